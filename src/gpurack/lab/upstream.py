"""Packages taken from the vendors' own repositories, where they can be reached.

`replace(made, upstream, progress, cache)` puts the vendor's package in the place of ours wherever the
repository has exactly the same version. What came from where is verified as apt does it: the Release file by
the vendor's key, the index by the Release file, the package by the index.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from debian_inspector.debcon import get_paragraphs_data

from gpurack import defaults
from gpurack.errors import Problem, Refused
from gpurack.lab.packages import ARCHITECTURE
from gpurack.lab.process import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """One repository of a vendor, as a sources entry names it.

    + suite: `/` for a flat repository
    + key: its ASCII-armoured public key, a file of ours; nothing is trusted that comes with the repository
    """

    uri: str
    suite: str
    key: Path
    component: str = ""

    @property
    def top(self) -> str:
        """Where the Release file lies."""
        base = self.uri.rstrip("/")
        return base if self.suite == "/" else f"{base}/dists/{self.suite}"

    @property
    def index(self) -> str:
        """The index of packages, from the Release file."""
        return "Packages" if self.suite == "/" else f"{self.component}/binary-{ARCHITECTURE}/Packages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One package of an index. + sha256: 64 hex digits; + filename: relative to the repository's URI."""

    name: str
    version: str
    filename: str
    sha256: str


def replace(made: tuple[Path, ...], upstream: Upstream, progress: Progress, cache: Path) -> tuple[Path, ...]:
    """`made`, with the vendor's package for every one that the vendor has in the same version.

    A repository that cannot be reached changes nothing, and is said. One that answers with something that
    does not verify raises Refused (E-LAB-31): it is not passed over.
    """
    try:
        offered = {(entry.name, entry.version): entry for entry in entries(upstream)}
        chosen = []
        for deb in made:
            name, version, _ = deb.name.split("_")
            entry = offered.get((name, version))
            fetched = _fetched(entry, deb.name, upstream, progress, cache) if entry is not None else deb
            chosen.append(fetched)
    except Unreachable as error:
        progress(f"{upstream.uri} is not reachable ({error}): packages built here are used")
        return made
    return tuple(chosen)


def entries(upstream: Upstream) -> tuple[Entry, ...]:
    """Everything the repository offers for our architecture, verified. Raises Unreachable or Refused."""
    release = _verified(_get(f"{upstream.top}/InRelease"), upstream)
    listed = checksums(release)
    wanted = listed.get(upstream.index)
    if wanted is None:
        raise _untrusted(upstream, f"the Release file does not list {upstream.index}")
    index = _get(f"{upstream.top}/{upstream.index}")
    if hashlib.sha256(index).hexdigest() != wanted:
        raise _untrusted(upstream, f"{upstream.index} is not what the Release file lists")
    return parse_index(index.decode())


def parse_index(text: str) -> tuple[Entry, ...]:
    """A Packages file. ValueError when a paragraph lacks what apt needs."""
    found = []
    for paragraph in get_paragraphs_data(text):
        row = {name.lower(): str(value).strip() for name, value in paragraph.items()}
        if row.get("architecture") not in {ARCHITECTURE, "all"}:
            continue
        try:
            found.append(
                Entry(
                    name=row["package"],
                    version=row["version"],
                    filename=row["filename"].removeprefix("./"),
                    sha256=row["sha256"],
                )
            )
        except KeyError as error:
            raise ValueError(f"a package without {error}") from None
    return tuple(found)


def checksums(release: str) -> dict[str, str]:
    """SHA256 by path, from the text of a Release file; other, weaker sums are not looked at."""
    found, inside = {}, False
    for line in release.splitlines():
        if not line.startswith(" "):
            inside = line.strip().lower() == "sha256:"
        elif inside:
            matched = re.fullmatch(r" ([0-9a-f]{64}) +\d+ (\S+)", line)
            if matched:
                found[matched[2].removeprefix("./")] = matched[1]
    return found


class Unreachable(Exception):
    """The repository did not answer; says how."""


# ---------------------------------------------------------------------------------------------- details
def _fetched(entry: Entry, name: str, upstream: Upstream, progress: Progress, cache: Path) -> Path:
    target = cache / "upstream" / entry.sha256[:12] / name
    if not target.is_file():
        progress(f"fetching {name} from {upstream.uri}")
        content = _get(f"{upstream.uri.rstrip('/')}/{entry.filename}")
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise _untrusted(upstream, f"{entry.filename} is not what the index lists")
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_suffix(".new")
        scratch.write_bytes(content)
        scratch.rename(target)
    return target


def _get(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=defaults.LAB_UPSTREAM_DEADLINE) as answer:  # noqa: S310
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        raise Unreachable(f"{url}: {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{url}: {error}") from error


def _verified(signed: bytes, upstream: Upstream) -> str:
    """The text that was signed, by the given key alone; never what stands around it."""
    with tempfile.TemporaryDirectory() as folder:
        message, ring = Path(folder) / "InRelease", Path(folder) / "ring.gpg"
        message.write_bytes(signed)
        for tool in ("gpg", "gpgv"):
            if shutil.which(tool) is None:
                raise Refused(
                    Problem(
                        code="E-LAB-21",
                        what=f"{tool} is not on this machine; the vendors' signatures are checked with it.",
                        next="apt-get install gnupg gpgv",
                    )
                )
        base = ["gpg", "--batch", "--homedir", folder]
        subprocess.run([*base, "--dearmor", "--output", str(ring), str(upstream.key)], check=True)
        done = subprocess.run(
            ["gpgv", "--homedir", folder, "--keyring", str(ring), "--output", "-", str(message)],
            capture_output=True,
            check=False,
        )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()
        raise _untrusted(upstream, last[-1] if last else "gpgv refuses the signature")
    return done.stdout.decode()


def _untrusted(upstream: Upstream, found: str) -> Refused:
    return Refused(
        Problem(
            code="E-LAB-31",
            what=f"What {upstream.uri} serves does not verify, so nothing of it is used.",
            found=found,
            wanted=f"signed by the key in {upstream.key}",
            next="Compare the key with the one that the vendor publishes; then run the same command again.",
        )
    )
