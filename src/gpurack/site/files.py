"""Files that a site document names: do they exist, may we read them, are they what they should be."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TypeVar

from gpurack.errors import BadInput, Problem
from gpurack.site.document import Document, Path_, shown
from gpurack.site.models import AptSource, Cluster, Manifest, ManifestCni, Model, Sources, Ssh
from gpurack.site.secrets import is_reference, read_reference

# The lab makes these files itself: a missing one has another cause, and another cure, than a typing mistake.
LAB_STATE = "/var/lib/gpurack/lab"
_M = TypeVar("_M", bound=Model)


class Files:
    """Resolves the files of one document. Problems collect in `problems`, files read in `read`."""

    def __init__(self, document: Document, folder: Path) -> None:
        self.document = document
        self.folder = folder
        self.problems: list[Problem] = []
        self.read: list[Path] = []
        self.lab_is_missing = False

    def all(self, ssh: Ssh, sources: Sources, cluster: Cluster) -> tuple[Ssh, Sources, Cluster]:
        """The same three with absolute paths and read fingerprints."""
        ssh = _with(
            ssh,
            key=self.known(ssh.key, ("ssh", "key"), "PRIVATE KEY"),
            known_hosts=self.absolute(ssh.known_hosts) if ssh.known_hosts else None,
        )
        sources = _with(
            sources,
            kubernetes=self.apt(sources.kubernetes, ("sources", "kubernetes")),
            containerd=self.apt(sources.containerd, ("sources", "containerd")),
            ca_bundle=self.known(sources.ca_bundle, ("sources", "ca_bundle"), "BEGIN CERTIFICATE"),
            registries={
                name: _with(
                    registry,
                    ca=self.known(registry.ca, ("sources", "registries", name, "ca"), "BEGIN CERTIFICATE"),
                )
                for name, registry in sources.registries.items()
            },
        )
        cluster = _with(
            cluster, kubeconfig=self.known(cluster.kubeconfig, ("cluster", "kubeconfig"), "clusters")
        )
        if isinstance(cluster.cni, ManifestCni):
            cluster = _with(cluster, cni=ManifestCni(manifest=self.manifest(cluster.cni.manifest)))
        return ssh, sources, cluster

    def apt(self, source: AptSource, path: Path_) -> AptSource:
        key = source.key
        if (key.file is None) == (key.url is None):
            self.add(
                "E-SITE-62",
                "a signing key has either a file or a url",
                (*path, "key"),
                next="keep one of the two",
            )
            return source
        file = self.known(key.file, (*path, "key", "file"), "BEGIN PGP PUBLIC KEY BLOCK")
        fingerprint = key.fingerprint
        if is_reference(fingerprint):
            fingerprint = self.fingerprint(fingerprint, (*path, "key", "fingerprint"))
        return _with(source, key=_with(key, file=file, fingerprint=fingerprint))

    def fingerprint(self, reference: str, path: Path_) -> str:
        kind, _, name = reference.partition(":")
        if kind == "file":
            name = self.absolute(name.strip())
            self.read.append(Path(name))
            if self.lab_file_is_missing(name, path):
                return reference
        try:
            value = read_reference(f"{kind}:{name}", secret=False)
        except BadInput as error:
            problem = error.problems[0]
            self.add(problem.code, problem.what, path, found=problem.found, next=problem.next)
            return reference
        packed = value.replace(" ", "").upper()
        if not re.fullmatch(r"[0-9A-F]{40}", packed):
            self.add("E-SITE-62", f"{reference} holds no fingerprint", path, wanted="40 hexadecimal digits")
        return packed

    def known(self, name: str | None, path: Path_, content: str) -> str | None:
        """The absolute path of a file that must be readable and contain `content`."""
        if name is None:
            return None
        full = self.absolute(name)
        self.read.append(Path(full))
        if self.lab_file_is_missing(full, path):
            return full
        text = self.text(Path(full), path)
        if text is not None and content.encode() not in text:
            self.add(
                "E-SITE-52",
                f"{shown(Path(full))} is not what is wanted here",
                path,
                wanted=f"a file with {content!r}",
            )
        return full

    def manifest(self, manifest: Manifest) -> Manifest:
        path = ("cluster", "cni", "manifest")
        full = self.absolute(manifest.file)
        self.read.append(Path(full))
        content = self.text(Path(full), (*path, "file"))
        if content is not None:
            found = hashlib.sha256(content).hexdigest()
            if found != manifest.sha256.lower():
                self.add(
                    "E-SITE-63",
                    f"{shown(Path(full))} is not the file that was pinned",
                    (*path, "sha256"),
                    found=found,
                    wanted=manifest.sha256,
                    next="look at what changed in the file, then pin the new sha256",
                )
        return _with(manifest, file=full)

    def text(self, full: Path, path: Path_) -> bytes | None:
        try:
            return full.read_bytes()
        except OSError as error:
            step = "paths are relative to the document's folder" if not full.exists() else f"ls -l {full}"
            self.add("E-SITE-52", f"{shown(full)} can't be read: {error.strerror}", path, next=step)
            return None

    def lab_file_is_missing(self, full: str, path: Path_) -> bool:
        if not Path(full).is_relative_to(LAB_STATE) or Path(full).exists():
            return False
        if not self.lab_is_missing:
            self.lab_is_missing = True
            self.add(
                "E-SITE-54",
                f"the lab was never started here: it has not made {full} yet",
                path,
                next="make lab",
            )
        return True

    def absolute(self, name: str) -> str:
        return str((self.folder / Path(name).expanduser()).absolute())

    def add(self, code: str, what: str, path: Path_, **texts: str | None) -> None:
        self.problems.append(Problem(code=code, what=what, where=self.document.where(path), **texts))


def _with(model: _M, **changes: object) -> _M:
    return model.model_copy(update=changes)
