"""`gpurack lab`: what a person types. Progress goes to stderr, answers to stdout."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gpurack.errors import BadInput, GpurackError, Problem
from gpurack.lab import deviations, machine, mirror, rack, reach, state, vm
from gpurack.lab.state import Kind, RackHost
from gpurack.site.load import load
from gpurack.site.models import Site

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="A rack of real systemd hosts on this machine: no cloud, no GPU needed.",
)

SITE = Path("inventories/lab.yaml")
SITE_VM = Path("inventories/lab_vm.yaml")
EXIT_BAD_INPUT, EXIT_REFUSED = 2, 4

SiteOption = Annotated[
    Path | None, typer.Option("--site", help="Site document whose hosts to boot.", show_default=str(SITE))
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print data, for programs.")]
HostArgument = Annotated[str, typer.Argument(metavar="HOST")]


def hosts_of(site: Site) -> tuple[RackHost, ...]:
    """The hosts that a site document describes, as the lab boots them."""
    return tuple(_host(site, name) for name in (host.name for host in site.hosts))


@app.command()
def up(
    site: SiteOption = None,
    bare: Annotated[bool, typer.Option("--bare", help="Every host as after its first boot.")] = False,
    vm_host: Annotated[bool, typer.Option("--vm", help=f"The rack of {SITE_VM}, with its guest.")] = False,
) -> None:
    """Boot the rack and its site mirror; repairs what a killed run left. What runs already stays."""
    with _plainly():
        document = load(site or (SITE_VM if vm_host else SITE), files=False)
        hosts = hosts_of(document)
        rack.up(hosts, _Say(), bare=bare)
        _trust(document)
        if bare:
            _forget_cluster(document)
        _print_status(rack.status())
        _print_nodes()
        names = " ".join(host.name for host in hosts)
        print(
            f"\nLook around: gpurack lab ssh {hosts[0].name}   (hosts: {names}; logs: gpurack lab logs HOST)"
        )


@app.command()
def down() -> None:
    """Stop everything; leaves no mount, namespace, link, cgroup or process. Disks stay for the next `up`."""
    with _plainly():
        rack.down(_Say())


@app.command()
def reset(host: Annotated[list[str] | None, typer.Argument(metavar="[HOST]...")] = None) -> None:
    """Make hosts (all, if none is named) as after their first boot. Their ssh host keys stay."""
    with _plainly():
        rack.reset(host or [], _Say())
        document = load(SITE, files=False)
        if not host or any(one.role == "control-plane" and one.name in host for one in document.hosts):
            _forget_cluster(document)


@app.command()
def status(site: SiteOption = None, as_json: JsonOption = False) -> None:
    """What runs, what it is, and where it differs from production. Exit 3 when a host is not as wanted."""
    with _plainly():
        wanted = {host.name for host in hosts_of(load(site, files=False))} if site else None
        found = tuple(one for one in rack.status() if wanted is None or one.name in wanted)
        if as_json:
            print(json.dumps(_document(found), indent=2))
        else:
            _print_status(found)
            _print_nodes()
        missing = (wanted or set()) - {one.name for one in found}
    if not found or missing or not all(one.ssh for one in found):
        raise typer.Exit(3)


@app.command(context_settings={"ignore_unknown_options": True})
def ssh(
    words: Annotated[list[str] | None, typer.Argument(metavar="[HOST] [-- COMMAND]")] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="On every host, one after the other.")] = False,
) -> None:
    """A shell on a host, or one command on one or all of them; ends with the command's exit code."""
    with _plainly():
        words = [word for word in words or [] if word != "--"]
        if everywhere:
            chosen, command = state.known(), words
        elif words:
            chosen, command = rack.find(words[0]), words[1:]
        else:
            raise BadInput(
                Problem(code="E-LAB-11", what="which host?", next="gpurack lab ssh HOST, or --all -- COMMAND")
            )
    worst = 0
    for host in chosen:
        if everywhere:
            print(f"== {host.name}", flush=True)
        worst = max(worst, subprocess.run(reach.argv(host, *command), check=False).returncode)
    raise typer.Exit(worst)


@app.command()
def reboot(
    host: HostArgument,
    cut: Annotated[bool, typer.Option("--cut", help="As if the power failed.")] = False,
    memory: Annotated[
        str | None, typer.Option("--memory", help="MiB of a guest's NUMA nodes from now on, as 2048,1920.")
    ] = None,
) -> None:
    """Power a host off and on again; returns when it answers."""
    with _plainly():
        if memory is not None:
            vm.configure(_guest(host), memory=_sizes(memory))
        rack.reboot(host, _Say(), cut=cut)


@app.command()
def logs(host: HostArgument) -> None:
    """What the host's console said."""
    with _plainly():
        file = rack.log_of(host)
        sys.stdout.write(file.read_text(errors="replace") if file.exists() else "")


# ---------------------------------------------------------------------------------------------- details
def _host(site: Site, name: str) -> RackHost:
    node = site.node(name)
    kind: Kind = "vm" if node.pool is not None and node.pool.platform == "lab-vm" else "container"
    gpus = node.pool.hardware.gpus.count if node.pool is not None else 0
    return RackHost(name=name, address=node.host.address, kind=kind, gpus=gpus)


def _guest(name: str) -> RackHost:
    (host,) = rack.find(name)
    if host.kind != "vm":
        raise BadInput(
            Problem(
                code="E-LAB-12",
                host=name,
                what="only a guest has memory of its own",
                found=f"{name} is a {host.kind} host, which shares the machine's",
                next="name a vm host: gpurack lab status shows the kinds",
            )
        )
    return host


def _sizes(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdigit() and int(part) >= 512 for part in parts):
        raise BadInput(
            Problem(
                code="E-LAB-13",
                what="the sizes of two NUMA nodes are wanted, in MiB, at least 512 each",
                found=text,
                next="write them as 2048,1920",
            )
        )
    return int(parts[0]), int(parts[1])


def _trust(site: Site) -> None:
    """Put the rack's host keys where a run of this site looks for them: the lab made them, so it may."""
    from gpurack.engine.run import known_hosts  # pyinfra takes a second that no other command here needs

    file = known_hosts(site)
    ours = rack.known_hosts()
    names = {line.split()[0] for line in ours.splitlines()}
    kept = file.read_text().splitlines() if file.exists() else []
    others = [line for line in kept if line.strip() and line.split()[0] not in names]
    file.write_text("".join(line + "\n" for line in others) + ours)


def _forget_cluster(site: Site) -> None:
    """The cluster is gone with its control plane: so is what the controller knew about it."""
    from gpurack.engine.run import state_dir

    for name in ("kubeconfig", "cluster.json"):
        (state_dir(site) / name).unlink(missing_ok=True)


def _document(found: Sequence[rack.HostState]) -> dict[str, object]:
    return {
        "hosts": [asdict(one) for one in found],
        "mirror": mirror.running(),
        "accelerator": {host.name: state.recall(host.name).get("accelerator") for host in state.known()},
        "deviations": [
            {"id": one.id, "differs": one.differs, "why": one.why, "how": one.how}
            for one in _deviations(found)
        ],
    }


def _deviations(found: Sequence[rack.HostState]) -> tuple[deviations.Deviation, ...]:
    return deviations.present(frozenset(one.kind for one in found))


def _print_status(found: Sequence[rack.HostState]) -> None:
    rows = [("HOST", "ADDRESS", "KIND", "STATE", "ABOUT")]
    rows += [(one.name, one.address, one.kind, "up" if one.ssh else "down", one.detail) for one in found]
    served = " ".join(sorted(mirror.running()))
    rows.append(("mirror", mirror.RACK.address, "services", "up" if served else "down", served))
    for row in rows:
        print("{:<8} {:<13} {:<10} {:<5} {}".format(*row).rstrip())
    differs = _deviations(found)
    if differs:
        print("\nDiffers from production (accepted by id in the site document):")
        for deviation in differs:
            print(f"  {deviation.id:<23} {deviation.differs}")


def _print_nodes() -> None:
    nodes = rack.nodes()
    if nodes:
        print(f"\nThe cluster's own words:\n{nodes.rstrip()}")


class _Say:
    """Progress lines on stderr, with seconds since the command began."""

    def __init__(self) -> None:
        self.begun = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"lab {time.monotonic() - self.begun:5.1f} s  {text}", file=sys.stderr, flush=True)


@contextmanager
def _plainly() -> Iterator[None]:
    """Problems as text on stderr, and the exit code they stand for; never a traceback."""
    try:
        machine.require_root()
        yield
    except GpurackError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(EXIT_BAD_INPUT if isinstance(error, BadInput) else EXIT_REFUSED) from None
    except KeyboardInterrupt:
        print("interrupted; `gpurack lab down` cleans up", file=sys.stderr)
        raise typer.Exit(130) from None
