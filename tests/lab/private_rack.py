"""A second, small rack in namespaces of its own: it may be broken while the tests' rack serves others.

`run(scenario)` starts this module behind `unshare`: own network, own mounts with another folder bound over
the lab's, other cgroups. A scenario is a function below; its traceback is what the failed test shows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gpurack.lab import cgroups, lay, mirror, network, process, rack, reach, root, state
from gpurack.lab.state import RackHost
from tests.lab import own_namespaces

FOLDER = Path("/var/lib/gpurack/test-rack")
CGROUP = "gpurack-test"
HOSTS = (RackHost("one", "10.77.0.31", "container", gpus=4), RackHost("two", "10.77.0.32", "container"))


def run(scenario: str) -> subprocess.CompletedProcess[str]:
    """Run a scenario to its end in fresh namespaces; what it left is removed in any case."""
    return own_namespaces.run("tests.lab.private_rack", scenario, folder=FOLDER, cgroup=CGROUP, timeout=600)


def up(**options: bool) -> float:
    begun = time.monotonic()
    rack.up(HOSTS, _say, with_mirror=False, **options)
    return time.monotonic() - begun


def ask(host: RackHost, script: str) -> str:
    answer = reach.ask(host, script)
    assert answer is not None, f"{host.name} does not answer"
    return answer.strip()


def leaders() -> dict[str, int | None]:
    return {one.name: one.leader for one in rack.status()}


# ------------------------------------------------------------------------------------ scenarios
def again() -> None:
    """The second `up` changes nothing, and finds every host as it was."""
    up()
    before = leaders()
    mounts = Path("/proc/self/mounts").read_text()
    assert all(before.values())
    assert up() < 5
    assert leaders() == before
    assert Path("/proc/self/mounts").read_text() == mounts


def nothing_left() -> None:
    """`down` leaves no mount, namespace, link, cgroup or process; `up` then goes on with the same disks."""
    links = set(Path("/sys/class/net").iterdir())
    mounts = Path("/proc/self/mounts").read_text()
    groups = set(cgroups.MOUNT.glob("*/*/"))
    up()
    ask(HOSTS[0], "echo kept > /root/mark; sync; systemd-run --unit=stays sleep 1000")
    pids = cgroups.members()
    assert len(pids) > 10
    rack.down(_say)
    assert Path("/proc/self/mounts").read_text() == mounts
    assert network.namespaces() == ()
    assert set(Path("/sys/class/net").iterdir()) == links
    assert cgroups.members() == ()
    assert cgroups.names() == ()
    made = set(cgroups.MOUNT.glob("*/*/")) - groups
    assert {folder.name for folder in made} <= {CGROUP}, "nspawn made cgroups that are nobody's"
    assert not [pid for pid in pids if process.alive(pid)]
    up()
    assert ask(HOSTS[0], "cat /root/mark") == "kept"
    rack.down(_say)


def mirror_too() -> None:
    """The site mirror comes up with the hosts, serves them, and is gone with them."""
    rack.up(HOSTS, _say)
    got = ask(
        HOSTS[0], "curl -sf http://10.77.0.2/apt/kubernetes/InRelease | head -1; curl -sf 10.77.0.2:5000/v2/"
    )
    assert got.split("\n") == ["-----BEGIN PGP SIGNED MESSAGE-----", "{}"]
    servers = mirror.running()
    assert len(servers) >= 2
    rack.down(_say)
    assert mirror.running() == {}
    assert not [pid for pid in servers.values() if process.alive(pid)]
    assert network.namespaces() == ()


def down_twice() -> None:
    """`down` with nothing up is no error."""
    rack.down(_say)
    up()
    rack.down(_say)
    rack.down(_say)


def reset_one() -> None:
    """A reset host is as new, with a new machine-id and the old host key; its neighbour is left alone."""
    up()
    one, two = HOSTS
    before, neighbour = ask(one, "cat /etc/machine-id; echo x > /etc/mark"), leaders()["two"]
    uuid = ask(one, "cat /sys/class/dmi/id/product_uuid")
    key = rack.known_hosts()
    rack.reset(["one"], _say)
    assert ask(one, "test ! -e /etc/mark; cat /etc/machine-id") != before
    assert ask(one, "cat /sys/class/dmi/id/product_uuid") == uuid
    assert rack.known_hosts() == key
    assert leaders()["two"] == neighbour
    assert ask(one, "cat /etc/machine-id") != ask(two, "cat /etc/machine-id")
    assert uuid != ask(two, "cat /sys/class/dmi/id/product_uuid")


def ghost() -> None:
    """nspawn killed by SIGKILL leaves its host running, invisible (lab.md): `up` ends it and boots anew."""
    up()
    (first,) = [one.leader for one in rack.status() if one.name == "one"]
    nspawn = state.recall("one")["pid"]
    assert first is not None
    os.kill(nspawn, signal.SIGKILL)
    process.gone(nspawn, 5)
    process.reap(nspawn)
    assert process.alive(first), "the host died with nspawn: there is no ghost to test with"
    assert not [one for one in rack.status() if one.name == "one" and one.running]
    up()
    assert not process.alive(first)
    assert ask(HOSTS[0], "hostname") == "one"


def ghost_down() -> None:
    """`down` ends ghosts as well, and those of hosts that nobody remembers."""
    up()
    pids = cgroups.members()
    nspawn = state.recall("one")["pid"]
    os.kill(nspawn, signal.SIGKILL)
    process.reap(nspawn)
    (state.ROOT / "hosts" / "one" / "host.json").write_text("")  # cut short by the same crash
    rack.down(_say)
    assert not [pid for pid in pids if process.alive(pid)]
    assert cgroups.names() == ()
    assert "gpurack-lab-one" not in Path("/proc/self/mounts").read_text()


def killed_run() -> None:
    """`up` killed at any moment: the next one comes to the end."""
    root.ensure(_say)
    for delay in (0.1, 0.3, 0.5, 0.7, 0.9, 1.2):
        child = subprocess.Popen([sys.executable, "-m", "tests.lab.private_rack", "boot_bare"])
        time.sleep(0.6 + delay)  # the first part is Python's start
        child.kill()
        child.wait()
        up()
        for host in HOSTS:
            assert ask(host, "systemctl is-system-running --wait; hostname").split() == ["running", host.name]
    pids = cgroups.members()
    rack.down(_say)
    assert not [pid for pid in pids if process.alive(pid)]


def boot_bare() -> None:
    """Not a test: what `killed_run` kills."""
    up(bare=True)


def not_ours() -> None:
    """A recorded pid that is another process by now is left alone."""
    up()
    rack.down(_say)
    stranger = subprocess.Popen(["sleep", "100"])
    state.remember(HOSTS[0], pid=stranger.pid, started=1)
    rack.down(_say)
    assert process.alive(stranger.pid)
    stranger.kill()
    stranger.wait()


def cut_power() -> None:
    """A host without power stays off until somebody boots it, and its disk is kept."""
    up()
    ask(HOSTS[0], "echo kept > /root/mark; sync")
    rack.power_cut("one")
    assert not next(one for one in rack.status() if one.name == "one").running
    rack.reboot("one", _say)
    assert ask(HOSTS[0], "cat /root/mark") == "kept"


def hardware() -> None:
    """Simulated functions are among the real ones and marked; nothing shows the machine's own network."""
    up()
    one, two = HOSTS
    listed = ask(
        one, "cd /sys/bus/pci/devices; cat */vendor | grep -c 0x10de; ls */gpurack-simulated | wc -l"
    )
    assert listed.split() == ["4", "4"]
    assert ask(two, "cat /sys/bus/pci/devices/*/vendor | grep -c 0x10de || :") == "0"
    assert ask(one, "lspci -d 10de:2330 | wc -l") == "4"
    assert ask(one, "ls /sys/class/net").split() == ["eth0", "lo"]
    frozen = ask(one, "cat /sys/devices/system/node/node0/meminfo")
    time.sleep(1)
    assert ask(one, "cat /sys/devices/system/node/node0/meminfo") == frozen
    before = ask(one, "cat /proc/mounts")
    ask(one, f"systemctl restart {lay.UNIT}")
    assert ask(one, "cat /proc/mounts") == before


def air_gapped() -> None:
    """Hosts reach each other and the controller, and nothing else: at once, not after a time-out."""
    up()
    begun = time.monotonic()
    outside = (
        "for at in 192.0.2.1 1.1.1.1 10.0.0.1; do ping -c1 -W5 $at > /dev/null && echo reached $at; done; :"
    )
    assert ask(HOSTS[0], outside) == ""
    assert time.monotonic() - begun < 12, "three time-outs of 5 s: nobody said unreachable"
    ask(
        HOSTS[0],
        f"ping -c1 -W2 {HOSTS[1].name} > /dev/null && ping -c1 -W2 {network.CONTROLLER_ADDRESS} > /dev/null",
    )


def real_hosts() -> None:
    """What roles rely on: systemd up to its end, tools, apt without sources, writable cgroups."""
    up()
    host = HOSTS[0]
    assert ask(host, "systemctl is-system-running --wait") == "running"
    assert "ID=debian" in ask(host, "cat /etc/os-release")
    tools = (
        "sudo iptables nft conntrack ethtool socat modprobe lspci python3 gpg curl apt-get needrestart mount"
    )
    ask(host, f"for tool in {tools}; do command -v $tool > /dev/null || exit 1; done")
    assert ask(host, "apt-get update 2>&1 | grep -c '^Get:' || :") == "0"
    ask(host, "systemd-run --wait -p MemoryMax=64M true")
    assert ask(host, "date -s '2001-01-01' 2>&1 > /dev/null | grep -c 'not permitted'") == "1"
    assert ask(host, "stat -c '%a %U' /sys/class/dmi/id/product_uuid") == "400 root"


_BEGUN = time.monotonic()


def _say(text: str) -> None:
    print(f"{time.monotonic() - _BEGUN:6.1f} s  {text}", flush=True)


if __name__ == "__main__":
    own_namespaces.take_names(CGROUP)
    scenario = globals()[sys.argv[1]]
    try:
        scenario()
    finally:
        if sys.argv[1] != "boot_bare":
            rack.down(_say)
