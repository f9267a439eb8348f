"""The ssh connection: the site's host keys, strictly; no `~/.ssh/config`; quick packets; a jump host.

Every failure is a `Problem` that says what to do.
"""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import paramiko
from paramiko import (
    AuthenticationException,
    BadHostKeyException,
    ChannelException,
    MissingHostKeyPolicy,
    PasswordRequiredException,
    PKey,
    SSHClient,
    SSHException,
    Transport,
)
from paramiko.pkey import UnknownKeyType

from gpurack.defaults import CONNECT_LIMIT, KEEPALIVE
from gpurack.engine.run import beside, known_hosts
from gpurack.errors import Lost, Problem
from gpurack.site.models import Site

_NOT_ACKNOWLEDGED_LIMIT = 30_000  # milliseconds without an acknowledgement until a dead host counts as gone
_JUMP = "jump host"
_jumps: dict[tuple[str, str, int], SSHClient] = {}
_jumps_lock = threading.Lock()


class _UnknownKey(SSHException):
    def __init__(self, key: PKey) -> None:
        super().__init__("unknown host key")
        self.key = key


class _Strict(MissingHostKeyPolicy):
    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:  # noqa: ARG002
        raise _UnknownKey(key)


def open_connection(site: Site, name: str, address: str) -> SSHClient:
    """A connection to host `name`. `Lost` with one problem when there is none to be had."""
    jump = site.ssh.jump
    through = None
    if jump:
        entry = open_jump(site)
        try:
            through = open_through(entry, address, site.ssh.port)
        except (ChannelException, SSHException, EOFError, OSError) as error:
            raise Lost(
                Problem(
                    code="E-SSH-06",
                    what=f"jump host {jump.host} does not reach {address}:{site.ssh.port}",
                    found=str(error) or type(error).__name__,
                    next="look whether the host is up and whether the jump host allows forwarding to it",
                )
            ) from error
    return _open(site, name, address, site.ssh.port, site.ssh.user, through)


def open_through(jump: SSHClient, address: str, port: int) -> paramiko.Channel:
    """A stream to `address:port` through the jump host."""
    transport = jump.get_transport()
    if transport is None:
        raise SSHException("the connection to the jump host is gone")
    return transport.open_channel("direct-tcpip", (address, port), ("127.0.0.1", 0), timeout=CONNECT_LIMIT)


def close_jumps() -> None:
    """Close what `open_connection` opened to jump hosts."""
    with _jumps_lock:
        for client in _jumps.values():
            client.close()
        _jumps.clear()


def open_jump(site: Site) -> SSHClient:
    """The one connection to the jump host that all hosts share; strict about its key as well."""
    jump = site.ssh.jump
    if jump is None:
        raise ValueError("this site has no jump host")
    key = (jump.host, jump.user, jump.port)
    with _jumps_lock:
        client = _jumps.get(key)
        transport = client.get_transport() if client else None
        if client is None or transport is None or not transport.is_active():
            client = _jumps[key] = _open(site, f"{_JUMP} {jump.host}", jump.host, jump.port, jump.user, None)
        return client


def _open(
    site: Site, name: str, address: str, port: int, user: str, through: paramiko.Channel | None
) -> SSHClient:
    trusted = known_hosts(site)
    client = SSHClient()
    client.set_missing_host_key_policy(_Strict())
    if trusted.exists():
        try:
            client.load_host_keys(str(trusted))
        except (SSHException, OSError, ValueError) as error:
            raise Lost(
                Problem(
                    code="E-SSH-07",
                    what=f"{trusted} can't be read as known_hosts",
                    found=str(error),
                    next=f"repair or delete it, then run: gpurack hosts trust {site.file}",
                )
            ) from error
    try:
        client.connect(
            address,
            port=port,
            username=user,
            pkey=private_key(site),
            sock=through,
            allow_agent=site.ssh.key is None,
            look_for_keys=site.ssh.key is None,
            timeout=CONNECT_LIMIT,
            banner_timeout=CONNECT_LIMIT,
            auth_timeout=CONNECT_LIMIT,
        )
    except (SSHException, EOFError, OSError) as error:
        client.close()
        raise Lost(_explain(site, name, address, port, user, trusted, error)) from error
    transport = client.get_transport()
    if transport is None:
        raise Lost(Problem(code="E-SSH-05", what="the connection was lost at once"))
    _tune(transport)
    return client


def _tune(transport: Transport) -> None:
    sock = transport.sock
    if isinstance(sock, socket.socket) or hasattr(sock, "setsockopt"):
        # paramiko never does; Nagle costs 45 ms per command (knowledge/pyinfra.md, 7.1).
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _NOT_ACKNOWLEDGED_LIMIT)
    transport.set_keepalive(KEEPALIVE)


def private_key(site: Site) -> PKey | None:
    """The site's key, or None for the agent and the user's own keys. `Lost` when it can't be used."""
    if site.ssh.key is None:
        return None
    file = beside(site, site.ssh.key)
    try:
        return PKey.from_path(file)
    except PasswordRequiredException as error:
        raise Lost(
            Problem(
                code="E-SSH-08",
                what="the ssh key has a passphrase, and a run can't ask for it",
                found=str(file),
                next=f"ssh-add {file}, and leave `ssh.key` out of the site document",
            )
        ) from error
    except (SSHException, OSError, ValueError, TypeError, UnknownKeyType) as error:
        raise Lost(
            Problem(
                code="E-SSH-08",
                what="the ssh key can't be read",
                found=f"{file}: {_words(error)}",
                next="name an existing private key in `ssh.key` of the site document",
            )
        ) from error


def _words(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return text or type(error).__name__


def _explain(
    site: Site, name: str, address: str, port: int, user: str, trusted: Path, error: BaseException
) -> Problem:
    place = f"{address}:{port}"
    whose = f" of the {name}" if name.startswith(_JUMP) else ""
    if isinstance(error, BadHostKeyException):
        return Problem(
            code="E-SSH-02",
            what=f"the host key{whose} has changed: it was re-imaged, or somebody is in between",
            found=f"{place} shows {error.key.get_name()} {error.key.fingerprint}",
            wanted=f"{error.expected_key.get_name()} {error.expected_key.fingerprint} of {trusted}",
            next=f"if the host was re-imaged: gpurack hosts trust {site.file} --replace {name}",
        )
    if isinstance(error, _UnknownKey):
        return Problem(
            code="E-SSH-01",
            what=f"the host key{whose} is not known yet",
            found=f"{place} shows {error.key.get_name()} {error.key.fingerprint}",
            wanted=f"a line for it in {trusted}",
            next=f"compare the fingerprint, then: gpurack hosts trust {site.file}",
        )
    if isinstance(error, AuthenticationException):
        return Problem(
            code="E-SSH-03",
            what=f"the {name if whose else 'host'} does not let {user} in",
            found=f"{place}: {_words(error)}",
            wanted=f"key {site.ssh.key}" if site.ssh.key else "a key of the agent or of ~/.ssh",
            next=f"add the public key to ~{user}/.ssh/authorized_keys there, or correct `ssh` in {site.file}",
        )
    if isinstance(error, TimeoutError):
        what, found = (
            f"the {name if whose else 'host'} does not answer",
            f"{place}: nothing for {CONNECT_LIMIT:.0f} s",
        )
    elif isinstance(error, socket.gaierror):
        what, found = f"the name{whose} does not resolve", f"{address}: {_words(error)}"
    else:
        what, found = (
            f"no ssh connection to the {name}" if whose else "no ssh connection",
            f"{place}: {_words(error)}",
        )
    return Problem(
        code="E-SSH-04",
        what=what,
        found=found,
        next=f"look whether the host is up and sshd listens: ssh -p {port} {user}@{address}",
    )
