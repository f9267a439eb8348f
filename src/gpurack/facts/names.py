"""Fact: /etc/hosts to the byte, and what a name resolves to."""

from __future__ import annotations

import base64
import shlex

from gpurack.decide.names import Hosts
from gpurack.facts.pairs import Pairs
from gpurack.facts.probe import Probe, in_c_locale


class HostsFile(Probe[Hosts]):
    """+ wanted: the name to resolve, with everything that the host has for it (files, DNS)."""

    def command(self, wanted: str) -> str:  # type: ignore[override]
        return in_c_locale(
            'echo "content=$(base64 -w 0 /etc/hosts 2>/dev/null)"; '
            f"timeout 10 getent ahosts {shlex.quote(wanted)} | awk '{{ print \"address=\" $1 }}' | sort -u"
        )

    def parse(self, text: str) -> Hosts:
        return parse(text)


def parse(text: str) -> Hosts:
    """`ValueError` for an answer that is not whole, or a file that is not UTF-8."""
    answer = Pairs(text)
    content = base64.b64decode(answer.one("content")).decode()
    return Hosts(content=content, resolved=answer.all("address"))
