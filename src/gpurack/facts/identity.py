"""Who a host says it is: machine-id, product UUID, hostname, addresses."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

from gpurack.decide.identity import UNREADABLE, Identity, Interface
from gpurack.facts.pairs import Pairs
from gpurack.facts.probe import Probe

# `ip -o` exists with every iproute2; sysfs gives MAC addresses without parsing its prose.
_SCRIPT = r"""
printf 'machine_id=%s\n' "$(cat /etc/machine-id 2>/dev/null)"
uuid=/sys/class/dmi/id/product_uuid
if ! test -e $uuid; then echo uuid_state=absent
elif value=$(cat $uuid 2>/dev/null); then printf 'uuid_state=read\nuuid=%s\n' "$value"
else echo uuid_state=unreadable; fi
printf 'hostname=%s\n' "$(uname -n)"
for link in /sys/class/net/*; do
  test -e "$link/address" && printf 'link=%s %s\n' "${link##*/}" "$(cat "$link/address" 2>/dev/null)"
done
ip -o address show | while read -r _ name family address _; do
  case $family in inet|inet6) printf 'address=%s %s\n' "${name%%@*}" "${address%%/*}";; esac
done
"""


class HostIdentity(Probe[Identity]):
    """Machine-id, product UUID (needs root), hostname, links and their addresses."""

    script = _SCRIPT

    def parse(self, text: str) -> Identity:
        return parse(text)


def parse(text: str) -> Identity:
    """Parse the answer of `HostIdentity`; `ValueError` for anything that is not understood."""
    pairs = Pairs(text)
    macs = {name: mac for name, _, mac in (value.partition(" ") for value in pairs.all("link"))}
    addresses: dict[str, list[IPv4Address | IPv6Address]] = {name: [] for name in macs}
    for value in pairs.all("address"):
        name, text_address = value.split(" ")
        addresses.setdefault(name, []).append(ip_address(text_address))
    return Identity(
        machine_id=pairs.one("machine_id") or None,
        product_uuid=_uuid(pairs),
        hostname=pairs.some("hostname"),
        interfaces=tuple(
            Interface(name=name, mac=_mac(macs.get(name, "")), addresses=tuple(found))
            for name, found in addresses.items()
        ),
    )


def _uuid(pairs: Pairs) -> str | None:
    """Denied is not empty: a host that hides its UUID must not look like one without (O-35)."""
    match pairs.some("uuid_state"):
        case "read":
            return pairs.one("uuid").strip() or None
        case "absent":
            return None
        case _:
            return UNREADABLE


def _mac(text: str) -> str | None:
    return None if text in ("", "00:00:00:00:00:00") else text.lower()
