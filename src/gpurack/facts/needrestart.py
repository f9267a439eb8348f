"""Our files for needrestart and unattended-upgrades, as they are."""

from __future__ import annotations

from collections.abc import Mapping

from gpurack.decide.files import FileState
from gpurack.decide.needrestart import FILES
from gpurack.facts import files
from gpurack.facts.pairs import Pairs
from gpurack.facts.probe import Probe


class QuietFiles(Probe[Mapping[str, FileState]]):
    """State of `FILES`, by path; a missing one is not in it."""

    script = files.script(FILES)

    def parse(self, text: str) -> Mapping[str, FileState]:
        return files.parse(Pairs(text).all("owned"))
