"""containerd, brought to the pinned version's schema and proven to answer on CRI."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.decide import containerd as decide
from gpurack.decide.containerd import candidates, merge, registries, wishes
from gpurack.decide.containerd.config import ROOT
from gpurack.decide.containerd.tables import Broken
from gpurack.decide.decision import Decision, Write, settled
from gpurack.engine import carry_out, conceal, executing, guarded, once, read, resolve
from gpurack.errors import Refused
from gpurack.facts.containerd import ETC, ConfigFiles, ContainerdSays, ContainerdSnapshot
from gpurack.site.models import Node, Registry
from gpurack.site.secrets import is_reference

CRICTL = "/etc/crictl.yaml"
CRICTL_TEXT = f"""# Managed by gpurack (role containerd); changes here are put back.
runtime-endpoint: unix://{candidates.SOCKET}
image-endpoint: unix://{candidates.SOCKET}
timeout: 10
"""
_IMPORT_DEPTH = (
    4  # files that import files that import ...; each level outside /etc/containerd is one more read
)


@operation()
@guarded
def sources(*, node: Node) -> Iterator[PyinfraCommand]:
    """Where images come from: mirrors, certificates and logins under certs.d. Nothing restarts (R100).

    + node: the host; its site names the registries
    """
    yield from carry_out(registries.serve(_wanted(node).registries, read(ContainerdSnapshot).digests))


@operation()
@guarded
def client() -> Iterator[PyinfraCommand]:
    """crictl asks the socket that kubelet uses, and no other."""
    digest = read(ContainerdSnapshot).digests.get(CRICTL)
    wanted = Write(path=CRICTL, content=CRICTL_TEXT)
    if digest and digest.sha256 == registries.sha256(CRICTL_TEXT):
        yield from carry_out(settled(f"{CRICTL} names {candidates.SOCKET}"))
    else:
        yield from carry_out(Decision(reason=f"{CRICTL} does not name {candidates.SOCKET}", steps=(wanted,)))


@operation()
@guarded
def serve(*, node: Node) -> Iterator[PyinfraCommand]:
    """containerd runs the wanted configuration, and CRI answers with the systemd cgroup driver.

    One transaction: everything that a restart reads is written, judged by containerd itself, and only then is
    it restarted, alone. The proof is read from the running process.

    + node: the host; its stack pins the version, which decides the schema
    """
    wanted = _wanted(node)
    found = _snapshot()
    decision = decide.serve(wanted, found, executing=executing())
    if decision.steps:
        found = replace(found, judged=read(ContainerdSays))
        decision = decide.serve(wanted, found, executing=executing())
    acted = False
    for command in carry_out(decision):
        acted = True
        yield command
    # Not after an owed change: a live node's containerd still runs what it ran.
    if acted and executing() and (wrong := decide.proof(wanted, _snapshot())):
        raise Refused(problem.on(node.name) for problem in wrong)


def _snapshot() -> decide.Snapshot:
    """The snapshot, with files that imports name outside /etc/containerd."""
    found = read(ContainerdSnapshot)
    for _ in range(_IMPORT_DEPTH):
        try:
            patterns = merge.outside(ROOT, found.files, ETC)
        except Broken:
            break  # the decision says which file
        more = read(ConfigFiles, patterns=patterns) if patterns else {}
        if not set(more) - set(found.files):
            break
        found = replace(found, files={**found.files, **more})
    return found


def _wanted(node: Node) -> decide.Wanted:
    """Read once per host and run: references are resolved, and masked from then on."""
    return once(f"containerd wanted on {node.name}", lambda: _resolved(node))


def _resolved(node: Node) -> decide.Wanted:
    given = node.site.sources
    proxy = resolve(given.proxy) if given.proxy and is_reference(given.proxy) else given.proxy
    hosts = tuple(_registry(name, registry) for name, registry in sorted(given.registries.items()))
    return wishes.wanted(node, proxy=proxy, ca_bundle=_text(given.ca_bundle), registries=hosts)


def _registry(name: str, registry: Registry) -> decide.RegistryHosts:
    login = None
    if registry.username and registry.password:
        user = resolve(registry.username) if is_reference(registry.username) else registry.username
        password = resolve(registry.password)
        conceal(registries.authorization(user, password))
        login = decide.Login(user=user, password=password)
    return decide.RegistryHosts(name=name, mirrors=registry.mirrors, ca=_text(registry.ca), login=login)


def _text(path: str | None) -> str | None:
    """A public file beside the site document; the site's loader made its path absolute and looked into it."""
    return Path(path).read_text(encoding="utf-8").rstrip("\n") + "\n" if path else None
