"""ufw and firewalld: active or not, and what they let in."""

from __future__ import annotations

from gpurack.decide.firewall import Firewall, Firewalld, Ufw
from gpurack.facts.pairs import Pairs
from gpurack.facts.probe import Probe

# A tool that is missing, or whose daemon does not run, filters nothing.
_SCRIPT = r"""
if command -v ufw >/dev/null 2>&1; then
  ufw status | sed 's/^/ufw=/'
  sed -n 's/^DEFAULT_FORWARD_POLICY="\{0,1\}\([A-Za-z]*\).*/forward=\1/p' /etc/default/ufw
fi
if command -v firewall-cmd >/dev/null 2>&1 && firewall-cmd --quiet --state 2>/dev/null; then
  echo firewalld=yes
  firewall-cmd --list-all | sed -n \
    's/^ *target: */target=/p; s/^ *ports: */ports=/p; s/^ *services: */services=/p'
else echo firewalld=no; fi
"""


class Firewalls(Probe[Firewall]):
    """Needs root: `ufw status` does."""

    script = _SCRIPT

    def parse(self, text: str) -> Firewall:
        return parse(text)


def parse(text: str) -> Firewall:
    """Parse the answer of `Firewalls`; `ValueError` when ufw is there and does not say its status."""
    pairs = Pairs(text)
    status = pairs.all("ufw")
    if status and not any(line.startswith("Status: ") for line in status):
        raise ValueError(f"ufw answers {status[0]!r}")
    firewalld = pairs.flag("firewalld")
    return Firewall(
        ufw=Ufw(
            active="Status: active" in status,
            status=status,
            forward=pairs.one("forward") if pairs.all("forward") else "DROP",
        ),
        firewalld=Firewalld(
            active=firewalld,
            target=pairs.some("target") if firewalld else "default",
            ports=tuple(pairs.one("ports").split()) if firewalld else (),
            services=tuple(pairs.one("services").split()) if firewalld else (),
        ),
    )
