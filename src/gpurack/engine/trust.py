"""`gpurack hosts trust`: which host keys the site believes. Fingerprints are shown before one is believed."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from paramiko import PKey, SSHException, Transport
from paramiko.hostkeys import HostKeyEntry, HostKeys

from gpurack import site as sites
from gpurack.defaults import CONNECT_LIMIT
from gpurack.engine.run import known_hosts
from gpurack.engine.ssh import close_jumps, open_jump, open_through
from gpurack.errors import BadInput, GpurackError, Problem
from gpurack.site.models import Site

_AT_ONCE = 32  # connections; more would meet MaxStartups of a jump host

hosts = typer.Typer(help="The hosts of a site and their ssh keys.", no_args_is_help=True)


@hosts.callback()
def _group() -> None:
    """The hosts of a site and their ssh keys."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One host and what it shows: a key, or why there is none.

    + entry: its name in a known_hosts file
    """

    name: str
    entry: str
    key: PKey | None
    why: str = ""


@hosts.command()
def trust(
    path: Annotated[Path, typer.Argument(help="The site document, or its shim (inventories/prod).")],
    listed: Annotated[
        Path | None,
        typer.Option(
            "--list", help="Believe the keys of this file: known_hosts lines, or `host SHA256:...`."
        ),
    ] = None,
    first_use: Annotated[
        bool, typer.Option("--first-use", help="Believe what unknown hosts show now, without a question.")
    ] = False,
    replace: Annotated[
        list[str] | None,
        typer.Option("--replace", help="Believe the new key of this re-imaged host (may be repeated)."),
    ] = None,
) -> None:
    """Enrol the host keys of a site into its own known_hosts.

    Exit codes: 0 every host is trusted, 1 a host shows another key or does not answer, 2 bad input,
    3 unknown hosts are left as they are.
    """
    try:
        code = _trust(sites.load(path), listed, first_use, tuple(replace or ()))
    except BadInput as error:
        _say(error)
        raise typer.Exit(2) from None
    except GpurackError as error:
        _say(error)
        raise typer.Exit(1) from None
    finally:
        close_jumps()
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class Rules:
    """What makes a key believed.

    + file: the site's known_hosts
    + listed: fingerprints by host name
    + first_use: unknown hosts are believed as they are now
    + replace: hosts whose new key is believed
    """

    file: Path
    listed: dict[str, set[str]]
    first_use: bool
    replace: tuple[str, ...]

    def judge(self, shown: Shown) -> tuple[int, list[Shown]]:
        """Say what `shown` shows; the exit code it calls for, and itself when its key is not enrolled yet."""
        if shown.key is None:
            typer.echo(f"{shown.name}  no answer: {shown.why}")
            return 1, []
        mine = fingerprint(shown.key)
        old = {fingerprint(key) for key in trusted_keys(self.file, shown.entry)}
        text = f"{shown.name}  {shown.key.get_name()}  {mine}"
        if mine in old:
            typer.echo(f"{text}  trusted")
            return 0, []
        new = shown.name in self.replace
        if self.listed and not new and mine not in self.listed.get(shown.name, set()):
            typer.echo(f"{text}  NOT in the list; nothing is believed")
            return 1, []
        if old and not new:
            typer.echo(f"{text}  CHANGED, trusted is {', '.join(sorted(old))}")
            typer.echo(f"    if it was re-imaged: --replace {shown.name}; if not, somebody is in between")
            return 1, []
        typer.echo(f"{text}  {'replaces ' + ', '.join(sorted(old)) if old else 'new'}")
        return 0, [shown]

    def agreed(self, shown: Shown) -> bool:
        """Whether nobody has to be asked about `shown`."""
        return self.first_use or shown.name in self.listed or shown.name in self.replace

    def admit_jump(self, shown: Shown) -> bool:
        """Whether the jump host may be used: it has to be believed before what is behind it."""
        code, fresh = self.judge(shown)
        if code or (fresh and not self.agreed(shown) and not _ask(1)):
            return False
        if fresh:
            _append(self.file, fresh)
        return True


def _trust(site: Site, listed: Path | None, first_use: bool, replace: tuple[str, ...]) -> int:
    wrong = [name for name in replace if name not in {host.name for host in site.hosts}]
    if wrong:
        raise BadInput(
            Problem(
                code="E-SSH-20",
                what=f"--replace {wrong[0]}: {site.file} has no host of that name",
                next="name a host of the document",
            )
        )
    rules = Rules(known_hosts(site), read_list(listed, site) if listed else {}, first_use, replace)
    code = 0
    fresh: list[Shown] = []
    for shown in show_all(site, rules.admit_jump):
        one, keys = rules.judge(shown)
        code = code or one
        fresh += keys
    asked = [shown for shown in fresh if not rules.agreed(shown)]
    if asked and not _ask(len(asked)):
        fresh = [shown for shown in fresh if shown not in asked]
        code = code or 3
        typer.echo("not enrolled: compare the fingerprints, then add --first-use or --list FILE")
    if fresh:
        _append(rules.file, fresh)
        typer.echo(f"{len(fresh)} host key{'s' if len(fresh) > 1 else ''} enrolled in {rules.file}")
    return code


def _ask(number: int) -> bool:
    return sys.stdin.isatty() and typer.confirm(f"believe {number} new host key{'s' if number > 1 else ''}?")


# ------------------------------------------------------------------------------------ what hosts show
def show_all(site: Site, jump_is_believed: Callable[[Shown], bool]) -> Iterator[Shown]:
    """What every host of `site` shows, in the order of the document.

    + jump_is_believed: asked with what the jump host shows, before anything is sent through it
    """
    jump = site.ssh.jump
    client = None
    if jump:
        shown = _show(f"jump host {jump.host}", jump.host, jump.port, None)
        if not jump_is_believed(shown):
            raise GpurackError(
                Problem(
                    code="E-SSH-21",
                    what=f"jump host {jump.host} is not trusted, so nothing behind it can be looked at",
                    next="compare its fingerprint, then add --first-use or --list FILE",
                )
            )
        client = open_jump(site)

    def look(host: tuple[str, str]) -> Shown:
        name, address = host
        channel = None
        if client:
            try:
                channel = open_through(client, address, site.ssh.port)
            except (SSHException, EOFError, OSError) as error:
                return Shown(name, entry_of(address, site.ssh.port), None, f"through the jump host: {error}")
        return _show(name, address, site.ssh.port, channel)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(look, [(host.name, host.address) for host in site.hosts])


def _show(name: str, address: str, port: int, through: object) -> Shown:
    entry = entry_of(address, port)
    transport = None
    try:
        sock = through or socket.create_connection((address, port), timeout=CONNECT_LIMIT)
        transport = Transport(sock)  # type: ignore[arg-type]
        # One kind of key for everybody, the one that is neither weak nor long, when a host has it.
        transport.banner_timeout = CONNECT_LIMIT
        transport.start_client(timeout=CONNECT_LIMIT)
        return Shown(name, entry, transport.get_remote_server_key())
    except (SSHException, EOFError, OSError) as error:
        return Shown(name, entry, None, getattr(error, "strerror", None) or str(error) or "it hung up")
    finally:
        if transport:
            transport.close()


def entry_of(address: str, port: int) -> str:
    """The name of a host in a known_hosts file."""
    return address if port == 22 else f"[{address}]:{port}"


def fingerprint(key: PKey) -> str:
    """As `ssh-keygen -l` prints it: `SHA256:...`."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


# ------------------------------------------------------------------------------------ files
def trusted_keys(file: Path, entry: str) -> list[PKey]:
    """The keys that `file` has for `entry`."""
    return [line.key for line in _entries(file) if line.key and _names(line, entry)]


def enrol(site: Site, fresh: Iterable[Shown]) -> None:
    """Believe the keys of `fresh` from now on, instead of older ones for the same names."""
    _append(known_hosts(site), list(fresh))


def _append(file: Path, fresh: list[Shown]) -> None:
    names = {shown.entry for shown in fresh}
    kept: list[str] = []
    for text in _lines(file):
        line = _entry(text)
        if line is None or not any(_names(line, name) for name in names):
            kept.append(text)
    kept += [f"{shown.entry} {shown.key.get_name()} {shown.key.get_base64()}" for shown in fresh if shown.key]
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(file.name + ".new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as stream:
        stream.write("".join(f"{text}\n" for text in kept))
    temporary.replace(file)


def read_list(file: Path, site: Site) -> dict[str, set[str]]:
    """Fingerprints by host name, from known_hosts lines or `host SHA256:...`. `BadInput` for other lines."""
    names = {entry_of(host.address, site.ssh.port): host.name for host in site.hosts}
    names |= {host.name: host.name for host in site.hosts} | {host.address: host.name for host in site.hosts}
    jump = site.ssh.jump
    if jump:
        name = f"jump host {jump.host}"
        names |= {entry_of(jump.host, jump.port): name, jump.host: name}
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise BadInput(
            Problem(
                code="E-SSH-22", what=f"{file} can't be read: {error.strerror}", next="name a readable file"
            )
        ) from error
    found: dict[str, set[str]] = {}
    for number, text in enumerate(lines, start=1):
        words = text.split()
        if not words or words[0].startswith("#"):
            continue
        line = _entry(text)
        if len(words) == 2 and words[1].startswith("SHA256:"):
            mine = {words[1]: [words[0]]}
        elif line and line.key:
            mine = {fingerprint(line.key): line.hostnames or []}
        else:
            raise BadInput(
                Problem(
                    code="E-SSH-22",
                    what=f"line {number} of {file} is neither a known_hosts line nor `host SHA256:...`",
                    found=text[:80],
                    next="write one host a line: ssh-keyscan's output, or a name and its fingerprint",
                )
            )
        for print_, hosts_ in mine.items():
            for host in hosts_:
                if host in names:
                    found.setdefault(names[host], set()).add(print_)
    return found


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _entry(text: str) -> HostKeyEntry | None:
    with contextlib.suppress(SSHException, ValueError):
        if text.strip() and not text.startswith("#"):
            return HostKeyEntry.from_line(text)
    return None


def _entries(file: Path) -> list[HostKeyEntry]:
    return [line for line in map(_entry, _lines(file)) if line]


def _names(line: HostKeyEntry, entry: str) -> bool:
    return any(
        name == entry or (name.startswith("|1|") and HostKeys.hash_host(entry, name) == name)
        for name in line.hostnames or []
    )


def _say(error: GpurackError) -> None:
    typer.echo("\n".join(str(problem) for problem in error.problems), err=True)
