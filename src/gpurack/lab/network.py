"""The rack's network: a namespace with a switch in it, one for each host, and nothing that leads outside.

`gpurack0` on the machine is the controller's port (10.77.0.1/24). The switch, and the gateway 10.77.0.254
that hosts route by, live in the namespace `gpurack-rack`, so that no firewall rule of the machine (docker's
FORWARD policy, bridge netfilter) touches the rack's traffic and none of it can leave: the gateway answers
"unreachable" at once.
"""

from __future__ import annotations

from pathlib import Path

from gpurack.lab.process import tool

PREFIX = "gpurack-"  # every namespace of ours
RACK = PREFIX + "rack"
CONTROLLER = "gpurack0"
SWITCH = "switch"
CONTROLLER_ADDRESS = "10.77.0.1"
MIRROR_ADDRESS = "10.77.0.2"
GATEWAY = "10.77.0.254"
LENGTH = 24


def namespaces() -> tuple[str, ...]:
    """Network namespaces of the rack that exist now."""
    folder = Path("/run/netns")
    return tuple(sorted(entry.name for entry in folder.glob(PREFIX + "*"))) if folder.is_dir() else ()


def up() -> None:
    """Make switch, gateway and the controller's port; what is there already stays."""
    _namespace(RACK)
    if not _has_link(SWITCH, RACK):
        tool("ip", "-n", RACK, "link", "add", SWITCH, "type", "bridge", "forward_delay", "0")
    _address(RACK, SWITCH, GATEWAY)
    # forwarding on, so that the answer to a packet for elsewhere is an ICMP error instead of silence
    tool("ip", "netns", "exec", RACK, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    for family in ("-4", "-6"):
        tool("ip", family, "-n", RACK, "route", "replace", "unreachable", "default", "metric", "4096")
    if not _has_link(CONTROLLER):
        tool("ip", "link", "add", CONTROLLER, "type", "veth", "peer", "name", "controller", "netns", RACK)
    tool("ip", "-n", RACK, "link", "set", "controller", "master", SWITCH, "up")
    tool("ip", "address", "replace", f"{CONTROLLER_ADDRESS}/{LENGTH}", "dev", CONTROLLER)
    tool("ip", "link", "set", CONTROLLER, "up")


def plug(name: str, address: str, namespace: str | None = None) -> str:
    """A namespace with `eth0` on the switch, `address`/24 and the default route; its name."""
    space = namespace or PREFIX + name
    _namespace(space)
    if not _has_link("eth0", space):
        port = _port(address)
        if _has_link(port, RACK):
            tool("ip", "-n", RACK, "link", "del", port)
        tool("ip", "-n", RACK, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        tool("ip", "-n", RACK, "link", "set", port, "master", SWITCH, "up")
        # always the same: with a new one, neighbours would write to the old until their caches expire (20 s)
        tool("ip", "-n", space, "link", "set", "eth0", "address", mac(address))
    _address(space, "eth0", address)
    tool("ip", "-n", space, "route", "replace", "default", "via", GATEWAY)
    return space


def tap(address: str) -> str:
    """A tap on the switch for a guest, inside the namespace `gpurack-rack`; its name."""
    port = "t" + _port(address)
    if not _has_link(port, RACK):
        tool("ip", "-n", RACK, "tuntap", "add", port, "mode", "tap")
    tool("ip", "-n", RACK, "link", "set", port, "master", SWITCH, "up")
    return port


def unplug(name: str) -> None:
    """Remove the namespace of a host; its port on the switch goes with it."""
    if PREFIX + name in namespaces():
        tool("ip", "netns", "delete", PREFIX + name)


def untap(address: str) -> None:
    """Remove the tap of a guest."""
    port = "t" + _port(address)
    if RACK in namespaces() and _has_link(port, RACK):
        tool("ip", "-n", RACK, "link", "del", port)


def down() -> None:
    """Remove everything of the rack's network. The machine's own links and rules were never touched."""
    if _has_link(CONTROLLER):
        tool("ip", "link", "del", CONTROLLER)
    for space in namespaces():
        tool("ip", "netns", "delete", space)


def mac(address: str) -> str:
    """A stable, locally administered MAC for an address of the rack."""
    return "52:54:00:" + ":".join(f"{int(part):02x}" for part in address.split(".")[1:])


def _port(address: str) -> str:
    """Name of a port on the switch: by the last two octets, because interface names end at 15 characters."""
    return "p" + "-".join(address.split(".")[2:])


def _namespace(name: str) -> None:
    if name not in namespaces():
        tool("ip", "netns", "add", name)
    tool("ip", "-n", name, "link", "set", "lo", "up")


def _address(space: str, link: str, address: str) -> None:
    tool("ip", "-n", space, "address", "replace", f"{address}/{LENGTH}", "dev", link)
    tool("ip", "-n", space, "link", "set", link, "up")


def _has_link(name: str, space: str | None = None) -> bool:
    where = ("-n", space) if space else ()
    return bool(tool("ip", *where, "-o", "link", "show", "dev", name, check=False).strip())
