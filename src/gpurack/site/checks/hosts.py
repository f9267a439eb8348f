"""Hosts: names, addresses, places; and whether pools and racks that they name exist."""

from __future__ import annotations

from collections.abc import Iterable

from gpurack.site.complaints import nearest
from gpurack.site.draft import Draft
from gpurack.site.models import Host
from gpurack.site.names import is_address_like, node_name_fault, proposed_name

CONTROLLER = "controller"  # the connector's own host, on which cluster work runs


def check(draft: Draft) -> None:
    for index, host in enumerate(draft.hosts):
        _name(index, host, draft)
        _membership(index, host, draft)
    _twice(draft, "name", "E-SITE-13", ((host.name, host.name) for host in draft.hosts), "O-34")
    _duplicate_addresses(draft)
    places = ((f"{host.rack} {host.position}" if host.position else None, host.name) for host in draft.hosts)
    _twice(draft, "position", "E-SITE-19", places, None)
    _groups(draft)
    _control_plane(draft)


def _name(index: int, host: Host, draft: Draft) -> None:
    path = (*draft.entry(index), "name")
    fault = node_name_fault(host.name)
    if fault:
        near = proposed_name(host.name)
        draft.add(
            "E-SITE-14",
            f"{host.name!r} can't name a node: it {fault}",
            path,
            rule="O-31",
            next=f"name the host {near}, in its operating system too (R55)"
            if near
            else "choose another name",
        )
    elif host.name == CONTROLLER:
        draft.add(
            "E-SITE-14", f"{CONTROLLER!r} is the name of gpurack's own host", path, next="choose another name"
        )
    elif is_address_like(host.name) and "address-as-name" not in draft.accept:
        draft.add(
            "E-SITE-14",
            f"{host.name!r} is an address, not a name",
            path,
            rule="O-31",
            next="choose a name, or write accept: [address-as-name]",
        )


def _membership(index: int, host: Host, draft: Draft) -> None:
    path = draft.entry(index)
    for kind, name in (("pool", host.pool), ("rack", host.rack)):
        section = f"{kind}s"
        known = draft.document.data.get(section)
        names = known if isinstance(known, dict) else {}
        misspelt = any(problem.next == f"write {section}" for problem in draft.document.problems)
        if name is not None and name not in names and not misspelt:
            near = nearest(name, names)
            draft.add(
                "E-SITE-70",
                f"there is no {kind} {name!r}",
                (*path, kind),
                wanted=None if near or not names else f"one of {', '.join(names)}",
                next=f"write {near}" if near else f"add it to {section}:",
            )
    if host.role == "gpu" and host.pool is None:
        draft.add("E-SITE-73", f"the GPU host {host.name!r} is in no pool", path, next="add pool:")
    if host.role == "control-plane" and host.pool is not None:
        draft.add(
            "E-SITE-73",
            f"the control plane {host.name!r} is in pool {host.pool!r}, but pools are for GPU hosts",
            (*path, "pool"),
            next="take pool: out, or write role: gpu",
        )


def _twice(
    draft: Draft, field: str, code: str, values: Iterable[tuple[str | None, str]], rule: str | None
) -> None:
    names = [host.name for host in draft.hosts]
    first: dict[str, int] = {}
    for index, (value, _) in enumerate(values):
        if value is None:
            continue
        if value in first:
            before = draft.document.spot((*draft.entry(first[value]), field))
            draft.add(
                code,
                f"two hosts have the {field} {value!r}",
                (*draft.entry(index), field),
                found=f"{names[first[value]]} ({before.file}:{before.line}) and {names[index]}",
                rule=rule,
            )
        first.setdefault(value, index)


def _duplicate_addresses(draft: Draft) -> None:
    first: dict[object, int] = {}
    for index, host in enumerate(draft.hosts):
        for address in host.addresses:
            if address in first:
                before = draft.document.spot((*draft.entry(first[address]), "address"))
                other = draft.hosts[first[address]].name
                draft.add(
                    "E-SITE-13",
                    f"two hosts have the address {address}"
                    if other != host.name
                    else f"{address} stands here twice",
                    (*draft.entry(index), "address"),
                    found=f"{other} ({before.file}:{before.line}) and {host.name}",
                )
            first.setdefault(address, index)


def _groups(draft: Draft) -> None:
    """`--limit` takes hosts, pools, racks and the document alike, so a word may mean one thing only."""
    hosts = {host.name for host in draft.hosts}
    meanings = (("pool", draft.pools), ("rack", draft.racks))
    for kind, names in meanings:
        for name in names:
            others = [
                what
                for what, known in (("host", hosts), ("rack", draft.racks))
                if name in known and what != kind
            ]
            if name == draft.path.stem:
                others.append("document")
            if others:
                draft.add(
                    "E-SITE-15",
                    f"{name!r} is a {kind} and a {others[0]}; --limit {name} could mean either",
                    (f"{kind}s", name),
                    next=f"give the {kind} another name",
                )


def _control_plane(draft: Draft) -> None:
    if draft.cluster is None or draft.cluster.kubeconfig is not None or not draft.complete:
        return
    if not any(host.role == "control-plane" for host in draft.hosts):
        draft.add(
            "E-SITE-74",
            "no host has the role control-plane",
            ("hosts",),
            next="give one host role: control-plane, or name the kubeconfig of an existing cluster",
        )
