"""The lab's Debian packages: what a node installs, laid out as the vendors lay it out.

`build(progress)` makes every revision of every package and returns the files, by repository. The trees under
`debs/` hold what is not a binary: units, conffiles, maintainer scripts. Everything that differs from the
vendors' packages is in `DIFFERENCES`.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpurack.errors import Problem, Refused
from gpurack.lab import components
from gpurack.lab.components import CACHE, HERE
from gpurack.lab.process import Progress
from gpurack.lab.recipes import CNI_BINARIES, CNI_PLUGINS, CONTAINERD, CRI_TOOLS, KUBERNETES

ARCHITECTURE = "amd64"
Repository = Literal["kubernetes", "containerd"]

# (what, vendor's package, lab's package): printed by `gpurack lab status`
DIFFERENCES: tuple[tuple[str, str, str], ...] = (
    ("binaries", "the vendors' release builds", "built here from the same published Go modules"),
    ("git commit", "stamped", "zeros (Kubernetes) or empty (containerd, runc): modules carry none"),
    ("containerd", "linked with glibc, btrfs snapshotter", "static without C, no btrfs snapshotter"),
    ("runc", "linked with libseccomp2", "static, libseccomp inside"),
    ("containerd.io Depends", "libc6, libseccomp2", "none, the binaries are static"),
    (
        "containerd.io revision",
        "2.2.9-1~debian.12~bookworm, so never taken from the vendor",
        "2.2.9-1, 2.2.9-2",
    ),
    ("revisions", "a rebuild", "-1.2 and -2 differ from -1.1 and -1 in their conffiles alone"),
    ("documentation", "README, LICENSE, manual pages", "none"),
    ("compression", "xz", "zstd, for speed"),
    ("signatures", "the vendors' keys", "two keys of this machine's lab, made by it"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One package.

    + revisions: Debian revisions, oldest first; a conffile differs between them
    + binaries: component -> folder on the host
    + fields: further control fields, in order
    """

    name: str
    repository: Repository
    version: str
    revisions: tuple[str, ...]
    binaries: dict[str, str]
    summary: str
    section: str = "admin"
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(f"{self.version}-{revision}" for revision in self.revisions)


_K8S = ("1.1", "1.2")

PACKAGES: tuple[Package, ...] = (
    Package(
        name="kubelet",
        repository="kubernetes",
        version=KUBERNETES,
        revisions=_K8S,
        binaries={"kubelet": "usr/bin"},
        summary="Node agent for Kubernetes clusters",
        section="net",
        # kubernetes/release 2026-07-24, metadata.yaml and kubelet.spec (R60)
        fields=(("Depends", "iptables (>= 1.4.21), kubernetes-cni (>= 1.2.0), mount, util-linux"),),
    ),
    Package(
        name="kubeadm",
        repository="kubernetes",
        version=KUBERNETES,
        revisions=_K8S,
        binaries={"kubeadm": "usr/bin"},
        summary="Command-line utility for administering a Kubernetes cluster",  # no Depends since 1.32 (R60)
    ),
    Package(
        name="kubectl",
        repository="kubernetes",
        version=KUBERNETES,
        revisions=_K8S,
        binaries={"kubectl": "usr/bin"},
        summary="Command-line utility for interacting with a Kubernetes cluster",
    ),
    Package(
        name="cri-tools",
        repository="kubernetes",
        version=CRI_TOOLS,
        revisions=_K8S,
        binaries={"crictl": "usr/bin"},
        summary="Command-line utility for interacting with a container runtime",
    ),
    Package(
        name="kubernetes-cni",
        repository="kubernetes",
        version=CNI_PLUGINS,
        revisions=_K8S,
        binaries=dict.fromkeys(CNI_BINARIES, "opt/cni/bin"),
        summary="Binaries required to provision kubernetes container networking",
        section="net",
    ),
    Package(
        name="containerd.io",
        repository="containerd",
        version=CONTAINERD,
        revisions=("1", "2"),
        binaries=dict.fromkeys(("containerd", "containerd-shim-runc-v2", "ctr", "runc"), "usr/bin"),
        summary="An open and reliable container runtime",
        section="devel",
        fields=(
            ("Provides", "containerd, runc"),
            ("Conflicts", "containerd, runc"),
            ("Replaces", "containerd, runc"),
        ),
    ),
)


def control(package: Package, version: str, installed_kib: int) -> str:
    """DEBIAN/control. + installed_kib: for apt's disk arithmetic."""
    maintainer = "gpurack lab <lab@gpurack.invalid>"
    rows = [
        ("Package", package.name),
        ("Version", version),
        ("Architecture", ARCHITECTURE),
        ("Maintainer", maintainer),
        ("Installed-Size", str(installed_kib)),
        *package.fields,
        ("Section", package.section),
        ("Priority", "optional"),
        ("Description", f"{package.summary}\n Built for the gpurack lab; not the vendor's package."),
    ]
    return "".join(f"{key}: {value}\n" for key, value in rows)


def build(progress: Progress, cache: Path = CACHE) -> dict[Repository, tuple[Path, ...]]:
    """Every revision of every package, built where the cache lacks it. The same input gives the same folder.

    Raises Refused: what `components.ensure` raises; E-LAB-24 when dpkg-deb fails.
    """
    binaries = components.ensure({name for p in PACKAGES for name in p.binaries}, progress, cache)
    made: dict[Repository, tuple[Path, ...]] = {"kubernetes": (), "containerd": ()}
    for package in PACKAGES:
        target = cache / "packages" / f"{package.name}-{_digest(package, binaries)}"
        if not target.is_dir():
            progress(f"packing {package.name} {', '.join(package.versions)}")
            _pack(package, binaries, target)
        made[package.repository] += tuple(sorted(target.glob("*.deb")))
    return made


def _digest(package: Package, binaries: dict[str, Path]) -> str:
    parts = hashlib.sha256(repr(package).encode() + control(package, "", 0).encode())
    parts.update((inspect.getsource(_lay) + inspect.getsource(_dpkg_deb)).encode())
    for path in sorted((HERE / "debs" / package.name).rglob("*")):
        parts.update(str(path.relative_to(HERE)).encode())
        if path.is_file():
            parts.update(path.read_bytes())
    for name in package.binaries:
        parts.update(binaries[name].parent.name.encode())  # carries the recipe's hash
    return parts.hexdigest()[:12]


def _pack(package: Package, binaries: dict[str, Path], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{package.name}-") as scratch:
        out = Path(scratch) / "out"
        out.mkdir()
        for position, version in enumerate(package.versions, start=1):
            tree = Path(scratch) / version
            _lay(package, version, position, binaries, tree)
            _dpkg_deb(tree, out / f"{package.name}_{version}_{ARCHITECTURE}.deb")
            shutil.rmtree(tree)
        out.rename(target)


def _lay(package: Package, version: str, position: int, binaries: dict[str, Path], tree: Path) -> None:
    own = HERE / "debs" / package.name
    if (own / "root").is_dir():
        shutil.copytree(own / "root", tree)
    tree.mkdir(exist_ok=True)
    conffiles = sorted(p for p in (tree / "etc").rglob("*") if p.is_file() and p.stat().st_size)
    if position > 1:  # so that an upgrade meets a changed conffile, as it does between the vendors' releases
        for path in conffiles:
            path.write_text(f"{path.read_text()}# revision {position} of the lab's package\n")
    for path in tree.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for name, place in package.binaries.items():
        (tree / place).mkdir(parents=True, exist_ok=True)
        os.link(binaries[name], tree / place / name)
    size = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file()) // 1024
    debian = tree / "DEBIAN"
    debian.mkdir()
    (debian / "control").write_text(control(package, version, size))
    if conffiles:
        (debian / "conffiles").write_text("".join(f"/{path.relative_to(tree)}\n" for path in conffiles))
    for script in sorted((own / "scripts").iterdir()) if (own / "scripts").is_dir() else ():
        shutil.copy(script, debian)
        (debian / script.name).chmod(0o755)


def _dpkg_deb(tree: Path, deb: Path) -> None:
    tree.chmod(0o755)
    command = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z3", "--build", str(tree), str(deb)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600"}  # the same input gives the same bytes
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(
            Problem(
                code="E-LAB-24",
                what=f"{deb.name} could not be packed.",
                found=done.stderr.strip() or None,
                next="Install dpkg (1.21.18 or newer, for zstd), and run the same command again.",
            )
        )
