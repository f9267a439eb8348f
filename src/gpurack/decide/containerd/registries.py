"""`certs.d/<registry>/hosts.toml`: read by containerd at every pull, so never a reason to restart (R100).

Logins go into a header of the file (mode 0600): `registry.configs.auth` in the root file is deprecated,
makes containerd pull without its transfer service, and would need a restart (v2.2.9, docs/hosts.md).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import tomlkit

from gpurack.decide.containerd.config import CERTS
from gpurack.decide.containerd.edit import HEADER
from gpurack.decide.containerd.models import Digest, RegistryHosts
from gpurack.decide.decision import Decision, Remove, Run, Step, Write, refuse, settled
from gpurack.errors import Problem, Where

_UPSTREAM = {"docker.io": "https://registry-1.docker.io"}


def authorization(user: str, password: str) -> str:
    """The header value of a login; a secret like the password itself."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def folder(registry: str) -> str:
    return f"{CERTS}/{registry}"


def hosts_file(registry: RegistryHosts) -> str:
    """hosts.toml of one registry.

    The last mirror is the `server`, so nothing but the declared mirrors is ever asked: an image that the
    site's mirror lacks fails by its name and not by a time-out towards the internet. A site that wants the
    registry itself as a fallback lists it as its last mirror.
    """
    mirrors = registry.mirrors or (_UPSTREAM.get(registry.name, f"https://{registry.name}"),)
    document = tomlkit.document()
    document["server"] = mirrors[-1]
    _describe(document, registry)
    if len(mirrors) > 1:
        hosts = tomlkit.table(is_super_table=True)
        for mirror in mirrors[:-1]:
            table = tomlkit.table()
            _describe(table, registry)
            hosts[mirror] = table
        document["host"] = hosts
    return HEADER + tomlkit.dumps(document)


def _describe(table: tomlkit.TOMLDocument | tomlkit.items.Table, registry: RegistryHosts) -> None:
    table["capabilities"] = ["pull", "resolve"]
    if registry.ca:
        table["ca"] = f"{folder(registry.name)}/ca.pem"
    if registry.login:
        header = tomlkit.table()
        header["Authorization"] = authorization(registry.login.user, registry.login.password)
        table["header"] = header


def serve(registries: Iterable[RegistryHosts], found: Mapping[str, Digest]) -> Decision:
    """Bring certs.d to the declared registries; files of others stay, ours that nobody declares go.

    + found: the files that are looked at for containerd, by path; only those under certs.d count here
    """
    declared = tuple(registries)
    refused: list[Problem] = []
    steps: list[Step] = []
    notes: list[str] = []
    kept: set[str] = set()
    for registry in declared:
        path = f"{folder(registry.name)}/hosts.toml"
        files = {path: hosts_file(registry)}
        if registry.ca:
            files[f"{folder(registry.name)}/ca.pem"] = HEADER + registry.ca  # PEM readers skip what is before
        kept |= set(files)
        old = found.get(path)
        text = files[path]
        if old and not old.ours and old.sha256 != sha256(text):
            refused.append(_foreign(path, registry.name))
            continue
        if registry.login and any(urlsplit(one).scheme == "http" for one in registry.mirrors):
            notes.append(f"the login of {registry.name} crosses the network in clear: its mirror is http")
        steps += _writes(registry, files, found)
    gone = sorted(
        path for path, file in found.items() if file.ours and path not in kept and _registry_file(path)
    )
    for path in gone:
        steps.append(Remove(path=path))
    for empty in sorted({path.rpartition("/")[0] for path in gone}):
        steps.append(
            Run(
                script=f"rmdir --ignore-fail-on-non-empty '{empty}'",
                why=f"leave no empty folder of {empty.rpartition('/')[2]}",
            )
        )
    if refused:
        return refuse(*refused)
    names = ", ".join(registry.name for registry in declared) or "none"
    if not steps:
        return settled(f"registries are as declared: {names}", notes=tuple(notes))
    changed = sorted({step.path.split("/")[-2] for step in steps if isinstance(step, Write | Remove)})
    reason = f"sources of images change: {', '.join(changed)}"
    return Decision(reason=reason, steps=tuple(steps), notes=tuple(notes))


def _writes(registry: RegistryHosts, files: Mapping[str, str], found: Mapping[str, Digest]) -> list[Step]:
    steps: list[Step] = []
    for path, text in sorted(files.items()):  # ca.pem before hosts.toml, which names it
        mode = 0o600 if registry.login and path.endswith("hosts.toml") else 0o644
        old = found.get(path)
        if old and old.sha256 == sha256(text) and old.mode == mode:
            continue
        steps.append(Write(path=path, content=text, mode=mode, secret=mode == 0o600))
    return steps


def _registry_file(path: str) -> bool:
    return path.startswith(f"{CERTS}/")


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _foreign(path: str, name: str) -> Problem:
    return Problem(
        code="E-CTRD-12",
        what=f"{path} was written by someone else and says something else than the site document",
        where=Where(path),
        rule="one owner per file: settings of others are never replaced",
        next=f"remove the file, or remove {name} from sources.registries",
    )
