"""A host as a site's rules allow it to be reached, and what it hears when the way is wrong (must show 2).

The host speaks French and is bare. The controller is an ordinary user there, with a password for sudo, and
comes through a jump host where it may do nothing at all. Images come from a registry behind TLS and a login,
packages through a proxy. Nobody but the jump host is talked to directly.
"""

from __future__ import annotations

import base64
import secrets
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpurack.lab import mirror
from gpurack.lab.network import CONTROLLER_ADDRESS
from gpurack.site.load import load
from tests.lab import cases, harness
from tests.lab.cases import HOST, Case, Change, assert_refused

pytestmark = pytest.mark.lab

JUMP, JUMP_ADDRESS = "gpu-1", "10.77.0.12"
OPS, HOP, GUEST = "ops", "hop", "guest"  # with sudo; on the jump host; without sudo, with the same password
SOON = 30.0  # seconds in which a refusal must be there, on a machine that is busy; unloaded it takes five
PROXY_PASSWORD, PROXY_PASSWORD_IN_URL = "pr0xy@word", "pr0xy%40word"

_USER = """
id {user} >/dev/null 2>&1 || useradd --create-home --shell /bin/bash {user}
install -d -m 700 -o {user} -g {user} ~{user}/.ssh
install -m 600 -o {user} -g {user} ~/.ssh/authorized_keys ~{user}/.ssh/authorized_keys
"""
# The lab's image has no translations; a locale needs only its name for gettext to look for some.
_FRENCH = """
cp -r /usr/lib/locale/C.utf8 /usr/lib/locale/fr_FR.utf8; echo LANG=fr_FR.UTF-8 >/etc/default/locale
mkdir -p /usr/share/locale/fr/LC_MESSAGES
printf %s {catalogue} | base64 -d >/usr/share/locale/fr/LC_MESSAGES/sudoers.mo
"""
O_80 = "il est nécessaire de saisir un mot de passe"  # the report's words


@pytest.fixture(scope="module")
def site(joined_rack: Path) -> Iterator[Path]:
    """The rack; the host under test is bare, with its users; it is a member as before in the end."""
    password = f"Pa'ss\"w%rd é {secrets.token_hex(4)}"
    cases.make_bare(HOST, site=joined_rack)
    users = "".join(_USER.format(user=user) for user in (OPS, GUEST))
    words = base64.b64encode(_catalogue({"a password is required": O_80})).decode()
    prepare = f"set -e{users}usermod --append --groups sudo {OPS}{_FRENCH.format(catalogue=words)}"
    harness.ssh(HOST, prepare, site=joined_rack).ok()
    given = "".join(f"{user}:{password}\n" for user in (OPS, GUEST))
    harness.ssh(HOST, "chpasswd", site=joined_rack, stdin=given).ok()
    harness.ssh(JUMP, f"set -e{_USER.format(user=HOP)}", site=joined_rack).ok()
    try:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("ACCESS_SUDO", password)
            environment.setenv("ACCESS_WRONG", f"{password}x")
            environment.setenv("ACCESS_REGISTRY", _registry_password())
            login = f"gate:{PROXY_PASSWORD_IN_URL}"
            environment.setenv("ACCESS_PROXY", f"http://{login}@{mirror.RACK.address}:{mirror.PROXY}")
            yield joined_rack
    finally:
        harness.ssh(JUMP, f"userdel --remove {HOP}", site=joined_rack)
        cases.make_bare(HOST, site=joined_rack)
        harness.pyinfra("inventories/lab_vm", "deploys/gpu_node.py", "--limit", HOST).ok()


def allowed(document: dict[str, Any]) -> None:
    """The only way in that this site allows, and where it lets packages and images come from."""
    document["ssh"] |= {
        "user": OPS,
        "sudo": {"password": "env:ACCESS_SUDO"},
        "jump": {"host": JUMP_ADDRESS, "user": HOP},
    }
    document["sources"]["proxy"] = "env:ACCESS_PROXY"
    document["sources"]["registries"]["registry.k8s.io"] = {
        "mirrors": [f"https://{mirror.RACK.address}:{mirror.REGISTRY_TLS}"],
        "ca": str(mirror.RACK.keys / "registry-ca.pem"),
        "username": mirror.USER,
        "password": "env:ACCESS_REGISTRY",
    }


def but(**ssh: Any) -> Change:
    """`allowed`, with something else in the section `ssh`."""

    def change(document: dict[str, Any]) -> None:
        allowed(document)
        document["ssh"] |= ssh

    return change


# ------------------------------------------------------------------------------------ refusals
def test_o_80_the_host_really_speaks_french(site: Path) -> None:
    """Without this the two tests below would show nothing."""
    said = harness.ssh(HOST, f"su - {OPS} -c '. /etc/default/locale; export LANG; sudo -n true'", site=site)
    assert O_80 in said.err


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        pytest.param(
            but(sudo={}),
            "E-SUDO-03",
            (f"sudo on {HOST} needs a password; give one or allow NOPASSWD", "ssh.sudo.password"),
            id="o-80-password-needed-said-in-french",
        ),
        pytest.param(
            but(sudo={"password": "env:ACCESS_WRONG"}),
            "E-SUDO-05",
            (f"sudo on {HOST} does not make user {OPS} root", "1 incorrect password attempt", "correct what"),
            id="o-80-wrong-password-in-french",
        ),
        pytest.param(
            but(user=GUEST),
            "E-SUDO-05",
            (f"does not make user {GUEST} root", f"{GUEST} is not in the sudoers file", "/etc/sudoers"),
            id="user-not-in-sudoers",
        ),
        pytest.param(
            but(jump={"host": JUMP_ADDRESS, "user": "nobody-here"}),
            "E-SSH-03",
            ("does not let nobody-here in", JUMP_ADDRESS, "authorized_keys"),
            id="jump-host-does-not-know-the-user",
        ),
        pytest.param(
            but(jump={"host": JUMP_ADDRESS, "user": HOP, "port": 2222}),
            "E-SSH-04",
            ("no ssh connection", f"{JUMP_ADDRESS}:2222"),
            id="jump-host-does-not-answer",
        ),
    ],
)
def test_a_wrong_way_in_is_one_clear_sentence_at_once(
    site: Path, tmp_path: Path, change: Change, code: str, words: tuple[str, ...]
) -> None:
    assert_quickly_refused(site, cases.case(tmp_path, change), code, *words)


@pytest.mark.parametrize(
    ("key", "code", "words"),
    [
        pytest.param(None, "E-SSH-01", ("not known yet", "gpurack hosts trust"), id="unknown"),
        pytest.param(HOST, "E-SSH-02", ("has changed", "--replace"), id="changed"),
    ],
)
def test_a_jump_host_is_believed_no_more_than_a_host(
    site: Path, tmp_path: Path, key: str | None, code: str, words: tuple[str, ...]
) -> None:
    """+ key: whose key the site expects of the jump host."""
    case = cases.case(tmp_path, allowed)
    known = case.state / "known_hosts"
    lines = [line.split() for line in known.read_text().splitlines()]
    keys = {name: rest for names, *rest in lines for name in names.split(",")}
    kept = [line for line in lines if JUMP_ADDRESS not in line[0].split(",")]
    swapped = [[JUMP_ADDRESS, *keys[key]]] if key else []
    known.write_text("".join(" ".join(line) + "\n" for line in kept + swapped))
    before = known.read_text()

    assert_quickly_refused(site, case, code, JUMP_ADDRESS, *words)

    assert known.read_text() == before


def assert_quickly_refused(site: Path, case: Case, code: str, *words: str) -> None:
    before = cases.state_of(HOST, site=site)
    begun = time.monotonic()
    ran = case.run()
    took = time.monotonic() - begun
    assert_refused(ran, code, *words)
    assert cases.last_screen(ran).count(code) == 1
    assert took < SOON, f"{took:.0f} s"
    assert cases.state_of(HOST, site=site) == before


# ------------------------------------------------------------------------------------ the right way
def test_from_bare_to_ready_by_the_only_way_that_the_site_allows(site: Path, tmp_path: Path) -> None:
    case = cases.case(tmp_path, allowed)
    logs = {name: len(_log(name)) for name in ("registry-tls", "registry", "proxy", "web")}

    case.run(timeout=900).ok()

    harness.until(lambda: harness.ready(site).get(HOST, False), f"{HOST} is Ready", deadline=60)
    came = {name: _log(name)[begin:] for name, begin in logs.items()}
    assert_came_the_right_way(came, load(site).node(HOST).host.address)
    assert _logins(f"{OPS} from {CONTROLLER_ADDRESS} ", site) == 0
    assert _logins(f"{OPS} from {JUMP_ADDRESS} ", site) > 0
    assert_kept_from_others(site)

    before = harness.footprint(HOST, site=site)
    again = case.run("--json").ok()
    assert harness.changed(again) == {}
    assert harness.footprint(HOST, site=site) == before


def assert_came_the_right_way(came: dict[str, list[str]], address: str) -> None:
    """By what the servers of the mirror noted meanwhile. Through the proxy nobody sees `address` any more."""
    pulled = [line for line in came["registry-tls"] if "/v2/pause/" in line and '" 200 ' in line]
    assert pulled, came["registry-tls"][-5:]
    fetched = [line for line in came["proxy"] if f" {address} " in line and ".deb" in line]
    for package in ("kubelet_", "kubeadm_", "containerd.io_"):
        assert any(package in line for line in fetched), (package, came["proxy"][-5:])
    for name in ("web", "registry"):
        assert [line for line in came[name] if address in line] == [], "somebody went past the proxy"


def assert_kept_from_others(site: Path) -> None:
    """Root finds every form of both passwords in the host's files; another user finds none, nor may write."""
    header = base64.b64encode(f"{mirror.USER}:{_registry_password()}".encode()).decode()
    search = "grep -rlFf /dev/stdin /etc /run /var /home /tmp /usr/local 2>/dev/null; true"
    for word in (header, PROXY_PASSWORD, PROXY_PASSWORD_IN_URL):
        ours = harness.ssh(HOST, search, site=site, stdin=f"{word}\n").ok().out.split()
        assert ours
        script = f"su {GUEST} -s /bin/sh -c '{search.replace('/dev/stdin', '-')}'"
        assert harness.ssh(HOST, script, site=site, stdin=f"{word}\n").ok().out == "", ours
        modes = harness.ssh(HOST, f"stat -c '%a %U' {' '.join(ours)}", site=site).ok().out.splitlines()
        assert set(modes) == {"600 root"}, dict(zip(ours, modes, strict=True))


# ------------------------------------------------------------------------------------ details
def _log(name: str) -> list[str]:
    return (harness.LAB / "mirror" / "log" / f"{name}.log").read_text(errors="replace").splitlines()


def _registry_password() -> str:
    return mirror.RACK.login.password.read_text().strip()


def _logins(origin: str, site: Path) -> int:
    """How often who came from where, by the host's journal."""
    script = f"journalctl -b --no-pager -o cat | grep -cF 'Accepted publickey for {origin}'; true"
    return int(harness.ssh(HOST, script, site=site).ok().out)


def _catalogue(messages: dict[str, str]) -> bytes:
    """A gettext catalogue (.mo) of these messages."""
    items = sorted({"": "Content-Type: text/plain; charset=UTF-8\n", **messages}.items())
    head = 28
    pool = b""
    tables: tuple[list[int], list[int]] = ([], [])
    for side, table in enumerate(tables):
        for item in items:
            text = item[side].encode()
            table += [len(text), head + 16 * len(items) + len(pool)]
            pool += text + b"\0"
    header = struct.pack("<7I", 0x950412DE, 0, len(items), head, head + 8 * len(items), 0, 0)
    return header + b"".join(struct.pack(f"<{len(table)}I", *table) for table in tables) + pool
