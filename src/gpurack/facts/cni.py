"""Fact: the pod network's files on a host."""

from __future__ import annotations

from gpurack.decide.cni import CONFLIST, FOLDER, HELPER, ROUTES, UNIT, UNIT_NAME, Laid
from gpurack.facts.pairs import Pairs
from gpurack.facts.probe import Probe


class PodNetwork(Probe[Laid]):
    """Files of the bridge network, what else lies in /etc/cni/net.d, and the state of the routes' unit."""

    script = rf"""
file() {{ [ ! -e "$2" ] || {{ echo "exists=$1"; sed "s/^/$1=/" "$2"; }}; }}
file conflist {CONFLIST}
file routes {ROUTES}
file helper {HELPER}
file unit {UNIT}
for f in {FOLDER}/*.conf {FOLDER}/*.conflist {FOLDER}/*.json; do
  [ ! -e "$f" ] || echo "config=${{f##*/}}"; done
systemctl show {UNIT_NAME} -p ActiveState -p UnitFileState | sed 's/^/unit_/'
"""

    def parse(self, text: str) -> Laid:
        return parse(text)


def parse(text: str) -> Laid:
    """`ValueError` for an answer that is not whole."""
    answer = Pairs(text)
    there = answer.all("exists")

    def content(key: str) -> str | None:
        return "".join(f"{line}\n" for line in answer.all(key)) if key in there else None

    return Laid(
        conflist=content("conflist"),
        routes=content("routes"),
        helper=content("helper"),
        unit=content("unit"),
        configs=tuple(sorted(answer.all("config"))),
        state=f"{answer.one('unit_ActiveState')} {answer.one('unit_UnitFileState')}",
    )
