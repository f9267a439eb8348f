"""The host's clock, compared with the controller's, and who keeps it."""

from __future__ import annotations

import time

from gpurack.decide.clock import Clock
from gpurack.facts.pairs import Pairs
from gpurack.facts.probe import Probe

# `date` comes last: what follows it is only the way back. Alias names of one unit (chronyd, chrony) resolve
# to the same Id, which is why the answers are made unique. timedated needs D-Bus, which a minimal host lacks.
_SCRIPT = r"""
printf 'synchronised=%s\n' "$(timedatectl show -p NTPSynchronized --value 2>/dev/null || echo unknown)"
for unit in chrony chronyd systemd-timesyncd ntp ntpsec openntpd ntpd; do
  if systemctl is-active --quiet $unit.service; then systemctl show -P Id $unit.service; fi
done | sort -u | sed 's/^/service=/'
date +at=%s.%N
"""


class HostClock(Probe[Clock]):
    """The offset is taken from the moment the answer is parsed: late by the way back, and never early."""

    script = _SCRIPT
    prefetch = False  # an answer that waits to be asked for would be an old time

    def parse(self, text: str) -> Clock:
        return parse(text, time.time())


def parse(text: str, now: float) -> Clock:
    """Parse the answer of `HostClock`, which arrived when the controller's clock said `now`."""
    pairs = Pairs(text)
    at = float(pairs.some("at"))
    return Clock(
        at=at,
        offset=at - now,
        synchronised=None if pairs.one("synchronised") == "unknown" else pairs.flag("synchronised"),
        services=tuple(name.removesuffix(".service") for name in pairs.all("service")),
    )
