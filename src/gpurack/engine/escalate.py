"""How to become root on a host, found without ever waiting at a prompt (O-80, O-81)."""

from __future__ import annotations

import re

from paramiko import Transport

from gpurack.defaults import READ_LIMIT
from gpurack.engine.channel import Answer, ask
from gpurack.engine.run import resolve
from gpurack.engine.wire import PLAIN, Escalation
from gpurack.errors import Lost, Problem
from gpurack.site.models import Site

# By exit code, never by the words of an error: those come in the host's language (O-80).
_LOOK = """echo "uid $(id -u)"
command -v sudo >/dev/null || { echo "sudo none"; exit 0; }
echo "sudo $(sudo --version 2>&1 | head -n 1)"
sudo -n true >/dev/null 2>&1; echo "free $?"
"""


def find_escalation(transport: Transport, site: Site, name: str) -> Escalation:
    """The way to root that works on this host. `Lost` with what to change when there is none."""
    wanted = site.ssh.sudo
    if wanted is None:
        if site.ssh.user == "root":
            return PLAIN
        look = read_look(ask(transport, _LOOK, limit=READ_LIMIT))
        if look.root:
            return PLAIN
        raise Lost(
            _problem(
                "E-SUDO-01",
                f"user {site.ssh.user} is not root, and the site document says nothing of sudo",
                name,
                look,
                f"add `ssh: {{sudo: {{}}}}` to {site.file}",
            )
        )
    look = read_look(ask(transport, _LOOK, limit=READ_LIMIT))
    if look.root:
        return PLAIN
    if look.sudo is None:
        raise Lost(
            _problem("E-SUDO-02", "sudo is not installed", name, look, "log in as root: apt-get install sudo")
        )
    if look.free:
        return Escalation("sudo")
    if wanted.password is None:
        raise Lost(
            _problem(
                "E-SUDO-03",
                f"sudo on {name} needs a password; give one or allow NOPASSWD",
                name,
                look,
                f"set `ssh.sudo.password` (env:, file:, command:) in {site.file}, or put "
                f"'{site.ssh.user} ALL=(ALL) NOPASSWD: ALL' into /etc/sudoers.d/ on the host",
            )
        )
    return _with_password(transport, site, name, look, wanted.password)


def _with_password(transport: Transport, site: Site, name: str, look: Look, reference: str) -> Escalation:
    password = resolve(reference)
    try_it = Escalation("password", password, prompt=not look.rs)
    # Asked for the first time with nothing after the password: a wrong one must not wait for a second try.
    answer = ask(
        transport, f"exec {try_it.prefix()}id -u", payload=f"{password}\n".encode(), limit=READ_LIMIT
    )
    if answer.code == 0 and answer.out.strip() == "0":
        return try_it
    if look.rs:
        raise Lost(
            _problem(
                "E-SUDO-04",
                "sudo-rs on this host does not take the password from its standard input",
                name,
                look,
                "install the package sudo (sudo.ws) and select it: update-alternatives --config sudo; "
                "or allow NOPASSWD; or correct the password",
            )
        )
    raise Lost(
        _problem(
            "E-SUDO-05",
            f"sudo on {name} does not make user {site.ssh.user} root with the password given",
            name,
            look,
            f"correct what `ssh.sudo.password` in {site.file} refers to, or the rights in /etc/sudoers",
            said=answer.tail[-1] if answer.tail else "",
        )
    )


class Look:
    """What was found: whether we are root, which sudo there is, whether it asks."""

    def __init__(self, uid: int, sudo: str | None, free: bool) -> None:
        self.root = uid == 0
        self.sudo = sudo
        self.rs = sudo is not None and re.match(r"sudo-rs\b", sudo) is not None
        self.free = free


def read_look(answer: Answer) -> Look:
    """What the answer to the look says; `Lost` when it says nothing."""
    found = dict(line.split(" ", 1) for line in answer.out.split("\n") if " " in line)
    if not found.get("uid", "").isdigit():
        raise Lost(
            Problem(
                code="E-SUDO-06",
                what="the login shell of this user does not run commands",
                found="; ".join(answer.tail) or f"exit {answer.code}, nothing said",
                next="give the user /bin/sh or /bin/bash as login shell, without output in its start files",
            )
        )
    sudo = found.get("sudo", "none")
    return Look(int(found["uid"]), None if sudo == "none" else sudo, found.get("free") == "0")


def _problem(code: str, what: str, name: str, look: Look, next_step: str, said: str = "") -> Problem:
    """+ said: sudo's own last words, for the reader: they tell a wrong password from a lack of rights."""
    found = "; ".join(part for part in (look.sudo or "no sudo", said) if part)
    return Problem(code=code, what=what, host=name, found=found, rule="O-80, O-81", next=next_step)
