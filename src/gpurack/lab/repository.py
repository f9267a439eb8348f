"""Signed apt repositories, laid out as the vendors lay theirs out.

`flat` is the Kubernetes layout (`Suites: /`), `dists` is Docker's (`Suites: bookworm`, `Components: stable`).
A repository appears whole: it is built beside its place and renamed.
"""

from __future__ import annotations

import gzip
import hashlib
import inspect
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpurack.errors import Problem, Refused
from gpurack.lab.packages import ARCHITECTURE

Layout = Literal["flat", "dists"]

SUITE = "bookworm"
COMPONENT = "stable"

# Debian packages that this module needs
REPOSITORY_PACKAGES = ("apt-utils", "gnupg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A signing key of this machine's lab.

    + home: GnuPG's folder with the secret part
    + public: ASCII-armoured public part; its fingerprint lies beside it in `<name>.fingerprint`
    """

    fingerprint: str
    home: Path
    public: Path


def key(name: str, home: Path, exported: Path, *, expires: str = "never") -> Key:
    """The signing key `name`, made on first use, with its public part in `exported`/<name>.asc.

    + expires: as gpg takes it: `never`, `2y`, `seconds=60`
    """
    _private(home)
    exported.mkdir(parents=True, exist_ok=True)
    user = f"gpurack lab {name} <{name}@gpurack.invalid>"
    found = _fingerprint(home, user)
    if found is None:
        _gpg(home, "--passphrase", "", "--quick-generate-key", user, "rsa3072", "sign", expires)
        found = _fingerprint(home, user)
    if found is None:
        raise _failed("gpg made no key", home)
    public = exported / f"{name}.asc"
    _replace(public, _gpg(home, "--armor", "--export", found))
    _replace(exported / f"{name}.fingerprint", f"{found}\n".encode())
    _end_agent(home)
    return Key(fingerprint=found, home=home, public=public)


def publish(
    folder: Path, debs: Iterable[Path], layout: Layout, signed_by: Key, *, valid_until: str | None = None
) -> bool:
    """Make `folder` the repository of exactly `debs`. True when it was built, False when it already was it.

    + valid_until: RFC 2822 date for the Release file; the vendors give none
    """
    debs = tuple(debs)
    identity = _identity(debs, layout, signed_by, valid_until)
    if (folder / ".identity").is_file() and (folder / ".identity").read_text() == identity:
        return False
    new, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    top = new if layout == "flat" else new / "dists" / SUITE
    pool = new / ARCHITECTURE if layout == "flat" else top / "pool" / COMPONENT / ARCHITECTURE
    index = new if layout == "flat" else top / COMPONENT / f"binary-{ARCHITECTURE}"
    pool.mkdir(parents=True)
    index.mkdir(parents=True, exist_ok=True)
    for deb in debs:
        _place(deb, pool / deb.name)
    packages = _archive("packages", str(pool.relative_to(new)), folder=new)
    (index / "Packages").write_bytes(packages)
    (index / "Packages.gz").write_bytes(gzip.compress(packages, mtime=0))
    _release(top, layout, valid_until, signed_by)
    if layout == "flat":
        shutil.copy(signed_by.public, new / "Release.key")
    else:
        shutil.copy(signed_by.public, new / "gpg")
    (new / ".identity").write_text(identity)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    return True


def _release(top: Path, layout: Layout, valid_until: str | None, signed_by: Key) -> None:
    fields = {"Origin": "gpurack lab", "Label": "gpurack lab", "Architectures": ARCHITECTURE}
    if layout == "dists":
        fields |= {"Suite": SUITE, "Codename": SUITE, "Components": COMPONENT}
    options = [f"-oAPT::FTPArchive::Release::{name}={value}" for name, value in fields.items()]
    text = _archive(*options, "release", ".", folder=top).decode()
    if valid_until is not None:
        text = f"Valid-Until: {valid_until}\n{text}"
    release = top / "Release"
    release.write_text(text)
    signer = ("--local-user", signed_by.fingerprint)
    inline = _gpg(signed_by.home, *signer, "--clear-sign", "--output", "-", str(release))
    detached = _gpg(signed_by.home, *signer, "--armor", "--detach-sign", "--output", "-", str(release))
    (top / "InRelease").write_bytes(inline)
    (top / "Release.gpg").write_bytes(detached)
    _end_agent(signed_by.home)


def _identity(debs: Iterable[Path], layout: str, signed_by: Key, valid_until: str | None) -> str:
    """Names the content: debs by their folder (which carries their recipe's hash) and file name."""
    parts = [layout, signed_by.fingerprint, str(valid_until)]
    for deb in sorted(debs):
        state = deb.stat()
        parts.append(f"{deb.parent.name}/{deb.name} {state.st_size}")
    parts += [inspect.getsource(publish), inspect.getsource(_release)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest() + "\n"


def _place(source: Path, target: Path) -> None:
    """A hard link where the file system allows one."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _fingerprint(home: Path, user: str) -> str | None:
    listed = subprocess.run(
        ["gpg", "--batch", "--homedir", str(home), "--with-colons", "--list-secret-keys", f"={user}"],
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [line.split(":") for line in listed.stdout.splitlines()]
    return next((row[9] for row in rows if row[0] == "fpr"), None)


def _end_agent(home: Path) -> None:
    """gpg starts an agent for each home, which would outlive the lab."""
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], capture_output=True, check=False)


def _gpg(home: Path, *words: str) -> bytes:
    command = ["gpg", "--batch", "--yes", "--homedir", str(home), "--pinentry-mode", "loopback", *words]
    return _output(command, home)


def _archive(*words: str, folder: Path) -> bytes:
    return _output(["apt-ftparchive", *words], folder)


def _output(command: list[str], folder: Path) -> bytes:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    except FileNotFoundError:
        raise Refused(
            Problem(
                code="E-LAB-21",
                what=f"{command[0]} is not on this machine; the lab's repositories are made with it.",
                next=f"apt-get install {' '.join(REPOSITORY_PACKAGES)}",
            )
        ) from None
    if done.returncode:
        raise _failed(done.stderr.decode(errors="replace").strip(), folder)
    return done.stdout


def _failed(found: str, folder: Path) -> Refused:
    return Refused(
        Problem(
            code="E-LAB-25",
            what="The lab's apt repository could not be made or signed.",
            found=found or None,
            next=f"Remove {folder} and run the same command again.",
        )
    )


def _private(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)


def _replace(path: Path, content: bytes) -> None:
    """Write only what changed, whole: others may be reading."""
    if path.is_file() and path.read_bytes() == content:
        return
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_bytes(content)
    scratch.rename(path)
