"""A rack in namespaces of its own that is provisioned with every kind of secret while somebody watches.

`watch(folder)` starts this module by own_namespaces. Hosts are bare, the control plane too;
the controller logs in as an ordinary user with a sudo password, through a jump host where it may do nothing,
the registry wants TLS and a login, packages come through a proxy with a password. What runs said is kept in
files of `folder`; what was seen meanwhile in `seen.json`.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gpurack.lab import mirror, rack
from gpurack.lab.state import KEY, RackHost
from tests.lab import harness, own_namespaces

FOLDER = Path("/var/lib/gpurack/watched-rack")
CGROUP = "gpurack-watched"
HOSTS = (RackHost("cp-1", "10.77.0.11", "container"), RackHost("gpu-1", "10.77.0.12", "container", gpus=4))
JUMP = HOSTS[1]  # for the control plane a host before it; for itself one more way round
PLACES = (
    "etc/kubernetes", "etc/containerd", "etc/apt", "run/gpurack", "var/lib/kubelet/pki", "var/lib/gpurack",
    "var/log/gpurack", "root", "home", "tmp", "var/tmp",
)  # fmt: skip
TOKEN = re.compile(r"(?<![a-z0-9.-])[a-z0-9]{6}\.[a-z0-9]{16}(?![a-z0-9.-])")
KINDS = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s*[A-Za-z0-9+/]{20}"),
    "a key of a kubeconfig": re.compile(r"client-key-data: *[A-Za-z0-9+/]{20}"),
    "a join token": TOKEN,
}
EVERY = 0.05  # seconds between two looks
LOUD = ("-vvv", "--diff", "--json", "--debug", "--debug-all")


def watch(folder: Path, secrets: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Provision a rack while watching. + secrets: SUDO, PROXY_USER, PROXY_PASSWORD; REGISTRY comes back."""
    return own_namespaces.run(
        "tests.lab.watched_rack",
        str(folder),
        folder=FOLDER,
        cgroup=CGROUP,
        timeout=1500,
        env={f"WATCHED_{name}": value for name, value in secrets.items()},
    )


# ------------------------------------------------------------------------------------ the watcher
class Watcher(threading.Thread):
    """Looks at process lists and at files of the controller and the hosts, again and again.

    + known: secrets by name; + arguments: every command line with a secret in it
    + open: secret files that others than their owner could read at some moment: path -> mode and kind
    + closed: secret files that only their owner could read; + tokens: join tokens that lay on hosts
    """

    def __init__(self, controller: Path, known: dict[str, str], leaders: dict[str, int | None]) -> None:
        super().__init__(daemon=True)
        self.controller, self.known = controller, known
        self.arguments: dict[str, str] = {}
        self.open: dict[str, str] = {}
        self.closed: set[str] = set()
        self.tokens: set[str] = set()
        self.looks = self.lines = 0
        self.longest = 0.0
        self.done = threading.Event()
        self._looked: set[tuple[str, int, int, int, int]] = set()
        self._ours: dict[int, bool] = {}
        self._network = Path("/proc/self/ns/net").readlink()
        self._roots = {name: f"/proc/{leader}/root" for name, leader in leaders.items()}

    def run(self) -> None:
        last = time.monotonic()
        while not self.done.wait(EVERY):
            self._processes()
            for name, root in self._roots.items():
                for place in PLACES:
                    self._files(f"{root}/{place}", name, len(root))
            self._files(str(self.controller), "controller", 0)
            self.looks += 1
            self.longest, last = max(self.longest, time.monotonic() - last), time.monotonic()

    def _processes(self) -> None:
        """What `ps auxww` shows on the controller and, for hosts are containers, on the hosts."""
        for process in Path("/proc").iterdir():
            entry = process.name
            if not entry.isdigit():
                continue
            try:
                line = (
                    Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                if not line or not self._is_ours(int(entry)):
                    continue
            except OSError:
                continue  # it has just ended
            self.lines += 1
            kind = self._kind(line)
            if kind:
                self.arguments[line[:2000]] = kind

    def _is_ours(self, pid: int) -> bool:
        if pid not in self._ours:
            inside = f"/{CGROUP}/" in Path(f"/proc/{pid}/cgroup").read_text()
            self._ours[pid] = inside or Path(f"/proc/{pid}/ns/net").readlink() == self._network
        return self._ours[pid]

    def _files(self, folder: str, host: str, cut: int) -> None:
        try:
            entries = list(os.scandir(folder))
        except OSError:
            return
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    self._files(entry.path, host, cut)
                    continue
                facts = entry.stat(follow_symlinks=False)
                key = (entry.path, facts.st_ino, facts.st_mtime_ns, facts.st_size, facts.st_mode)
                if key in self._looked or not entry.is_file(follow_symlinks=False) or facts.st_size > 2**20:
                    continue
                text = Path(entry.path).read_text(errors="replace")
            except OSError:
                continue
            self._looked.add(key)
            kind = self._kind(text)
            if not kind:
                continue
            name = f"{host}:{entry.path[cut:]}"
            if facts.st_mode & 0o077:
                self.open[name] = f"{facts.st_mode & 0o7777:04o}, {kind}"
            else:
                self.closed.add(name)
            if host != "controller" and "/run/gpurack/" in name:
                self.tokens.update(TOKEN.findall(text))

    def _kind(self, text: str) -> str | None:
        for name, value in self.known.items():
            if value in text:
                return f"the {name}"
        return next((name for name, pattern in KINDS.items() if pattern.search(text)), None)


# ------------------------------------------------------------------------------------ the rack
def document(folder: Path) -> None:
    """The lab's site document, with a user, a login and a proxy; its shim; nothing secret in either."""
    site: dict[str, Any] = yaml.safe_load((harness.REPOSITORY / "inventories" / "lab.yaml").read_text())
    wanted = {host.name for host in HOSTS}
    site["name"] = "watched"
    site["stack"] = str(harness.REPOSITORY / "inventories" / site["stack"])
    site["ssh"] = {"user": "ops", "key": str(KEY), "sudo": {"password": "env:WATCHED_SUDO"}}
    site["sources"]["proxy"] = "env:WATCHED_PROXY"
    site["sources"]["registries"]["registry.k8s.io"] = {
        "mirrors": [f"https://{mirror.RACK.address}:{mirror.REGISTRY_TLS}"],
        "ca": str(mirror.RACK.keys / "registry-ca.pem"),
        "username": mirror.USER,
        "password": "env:WATCHED_REGISTRY",
    }
    site["hosts"] = [host for host in site["hosts"] if host["name"] in wanted]
    inventories = folder / "inventories"
    inventories.mkdir()
    (inventories / "watched.yaml").write_text(yaml.safe_dump(site, sort_keys=False))
    (inventories / "watched").write_text('watched = [f"@gpurack/{__file__}.yaml"]\n')


def user_with_password(host: RackHost, leader: int | None) -> None:
    password = shlex.quote(f"ops:{os.environ['WATCHED_SUDO']}")
    script = f"""set -e
useradd --create-home --shell /bin/bash --groups sudo ops
useradd --create-home --shell /bin/bash hop
printf '%s\\n' {password} | chpasswd
for user in ops hop; do
    eval home=~$user
    install -d -m 700 -o $user -g $user $home/.ssh
    install -m 600 -o $user -g $user /root/.ssh/authorized_keys $home/.ssh/authorized_keys
done"""
    inside(host, leader, script)


# A temporary file lives for milliseconds; a slow disk makes it long enough for one look at a busy time.
_SLOW_DISK = r"""cat >/usr/local/sbin/sync <<'X'
#!/bin/sh
case "$*" in */.gpurack*) sleep 1 ;; esac
exec /usr/bin/sync "$@"
X
chmod 755 /usr/local/sbin/sync"""


def inside(host: RackHost, leader: int | None, script: str) -> str:
    """Output of `script` as root in the namespaces of a running host."""
    done = subprocess.run(
        ["nsenter", "-t", str(leader), "-a", "bash"],
        input=script, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{host.name}: {done.stderr}"
    return done.stdout


def keep(folder: Path, name: str, argv: list[str], **settings: Any) -> int:
    """Run a command to its end; everything it said stays in `NAME.out` and `NAME.err`."""
    with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.err").open("wb") as err:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, timeout=900, check=False, **settings
        )
    return done.returncode


def trusting(folder: Path, leaders: dict[str, int | None]) -> Iterator[tuple[str, int]]:
    """`gpurack hosts trust` as a person goes through it; the host's key is changed and changed back."""
    trust = [str(harness.BIN / "gpurack"), "hosts", "trust", str(folder / "inventories" / "watched")]
    yield "trust-unasked", keep(folder, "trust-unasked", trust)
    listed = folder / "list"
    listed.write_text(f"{HOSTS[1].name} SHA256:{'A' * 43}\n")
    yield "trust-other-list", keep(folder, "trust-other-list", [*trust, "--list", str(listed)])
    listed.write_text(rack.known_hosts())
    yield "trust-list", keep(folder, "trust-list", [*trust, "--list", str(listed)])
    (folder / ".gpurack" / "watched" / "known_hosts").unlink()
    yield "trust-first-use", keep(folder, "trust-first-use", [*trust, "--first-use"])
    yield "trust-again", keep(folder, "trust-again", trust)
    key = "/etc/ssh/ssh_host_ed25519_key"
    new = f"mv {key} {key}.old; mv {key}.pub {key}.pub.old; ssh-keygen -q -t ed25519 -N '' -f {key}"
    inside(HOSTS[1], leaders[HOSTS[1].name], f"{new}; systemctl restart ssh")
    yield "trust-reimaged", keep(folder, "trust-reimaged", [*trust, "--first-use"])
    yield "trust-replace", keep(folder, "trust-replace", [*trust, "--replace", HOSTS[1].name])
    old = f"mv -f {key}.old {key}; mv -f {key}.pub.old {key}.pub; systemctl restart ssh"
    inside(HOSTS[1], leaders[HOSTS[1].name], old)
    yield "trust-back", keep(folder, "trust-back", [*trust, "--replace", HOSTS[1].name])


def behind_the_jump_host(folder: Path) -> None:
    path = folder / "inventories" / "watched.yaml"
    site = yaml.safe_load(path.read_text())
    site["ssh"]["jump"] = {"host": JUMP.address, "user": "hop"}
    path.write_text(yaml.safe_dump(site, sort_keys=False))


def runs(folder: Path) -> Iterator[tuple[str, int]]:
    """Every way in which a run may say too much, on hosts that have everything still before them."""
    for name in ("control_plane", "gpu_node"):
        argv = [str(harness.BIN / "pyinfra"), "--yes", str(folder / "inventories" / "watched")]
        deploy = str(harness.REPOSITORY / "deploys" / f"{name}.py")
        if name == "control_plane":
            yield f"{name}-dry", keep(folder, f"{name}-dry", [*argv, "--dry", *LOUD, deploy], cwd=folder)
        yield f"{name}", keep(folder, name, [*argv, *LOUD, deploy], cwd=folder)
        yield f"{name}-again", keep(folder, f"{name}-again", [*argv, *LOUD, deploy], cwd=folder)
    yield (
        "operations",
        keep(folder, "operations", [*argv, "--debug-operations", "--debug-facts", deploy], cwd=folder),
    )
    # A login that left the document is no secret that the run knows, and still stands in the old file.
    path = folder / "inventories" / "watched.yaml"
    site = yaml.safe_load(path.read_text())
    site["sources"]["registries"]["registry.k8s.io"] = {"mirrors": [f"http://{mirror.RACK.registry}"]}
    path.write_text(yaml.safe_dump(site, sort_keys=False))
    yield "login-gone", keep(folder, "login-gone", [*argv, "--dry", *LOUD, deploy], cwd=folder)
    yield "inventory", keep(folder, "inventory", [*argv[:1], argv[2], "debug-inventory"], cwd=folder)


def main(folder: Path) -> None:
    rack.up(HOSTS, _say, bare=True)
    registry = mirror.RACK.login.password.read_text().strip()
    user, password = os.environ["WATCHED_PROXY_USER"], os.environ["WATCHED_PROXY_PASSWORD"]
    os.environ["WATCHED_PROXY"] = f"http://{user}:{password}@{mirror.RACK.address}:{mirror.PROXY}"
    os.environ["WATCHED_REGISTRY"] = registry
    document(folder)
    leaders = {one.name: one.leader for one in rack.status()}
    for host in HOSTS:
        user_with_password(host, leaders[host.name])
        inside(host, leaders[host.name], _SLOW_DISK)
    known = {
        "sudo password": os.environ["WATCHED_SUDO"],
        "proxy password": password,
        "registry password": registry,
        "registry login": base64.b64encode(f"{mirror.USER}:{registry}".encode()).decode(),
    }
    watcher = Watcher(folder / ".gpurack", known, leaders)
    watcher.start()
    codes = dict(trusting(folder, leaders))
    behind_the_jump_host(folder)
    for name, code in runs(folder):
        codes[name] = code
        _say(f"{name}: exit {code}")
        if code:
            break
    watcher.done.set()
    watcher.join()
    for host in HOSTS:
        journal = inside(host, leaders[host.name], "journalctl -b -o cat --no-pager")
        (folder / f"journal-{host.name}.log").write_text(journal)
    seen = {
        "codes": codes,
        "known": known,
        "tokens": sorted(watcher.tokens),
        "arguments": watcher.arguments,
        "open": watcher.open,
        "closed": sorted(watcher.closed),
        "looks": watcher.looks,
        "lines": watcher.lines,
        "longest": watcher.longest,
        "proxy": (mirror.RACK.root / "log" / "proxy.log").read_text(),
        "registry": (mirror.RACK.root / "log" / "registry-tls.log").read_text(),
    }
    (folder / "seen.json").write_text(json.dumps(seen, indent=2))


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    own_namespaces.take_names(CGROUP)
    try:
        main(Path(sys.argv[1]))
    finally:
        rack.down(_say)
