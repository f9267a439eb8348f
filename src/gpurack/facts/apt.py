"""Sources of apt as they are on the host, our own files, and what our last update said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from gpurack.decide.apt import OURS, Apt, Entry
from gpurack.decide.apt_messages import Log, read_log
from gpurack.facts import files
from gpurack.facts.pairs import Pairs
from gpurack.facts.probe import Probe

UPDATE_LOG = "/var/log/gpurack/apt-update.log"  # where the engine keeps what the transaction said

# apt reads sources.list, and files in sources.list.d whose names end in .list or .sources.
_SCRIPT = r"""
printf 'architecture=%s\n' "$(dpkg --print-architecture)"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
  if test -f "$file"; then printf 'file=%s\n' "$file"; sed 's/^/line=/' "$file"; fi
done
"""
_LINE = re.compile(
    r"(?P<type>deb|deb-src)\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<rest>.*)"
)


class AptSources(Probe[Apt]):
    """Every live entry, with file and line (the stock fact misses flat repositories, O-28)."""

    script = _SCRIPT + files.script(OURS)

    def parse(self, text: str) -> Apt:
        return parse(text)


class UpdateLog(Probe[Log]):
    """What the last `apt-get update` of ours said."""

    script = f"cat {UPDATE_LOG}"
    prefetch = False  # there is none before the first update

    def parse(self, text: str) -> Log:
        return read_log(text)


def parse(text: str) -> Apt:
    """Parse the answer of `AptSources`; `ValueError` when anything is missing."""
    lines = text.splitlines()
    of_files = ("file=", "line=")
    pairs = Pairs("\n".join(line for line in lines if not line.startswith(of_files)))
    contents: dict[str, list[str]] = {}
    for line in lines:
        kind, _, value = line.partition("=")
        if line.startswith("file="):
            contents[value] = []
        elif line.startswith("line=") and kind:
            contents[next(reversed(contents))].append(value)
    return Apt(
        architecture=pairs.some("architecture"),
        entries=tuple(entry for path, content in contents.items() for entry in entries(path, content)),
        files=files.parse(pairs.all("owned")),
    )


def entries(path: str, lines: list[str]) -> Iterator[Entry]:
    """The live entries of one file, in either format."""
    yield from (_stanzas(path, lines) if path.endswith(".sources") else _one_line(path, lines))


def _one_line(path: str, lines: list[str]) -> Iterator[Entry]:
    for number, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line.partition("#")[0].strip())
        if match:
            options = dict(_option(option) for option in (match["options"] or "").split() if "=" in option)
            yield Entry(
                file=path,
                line=number,
                type=match["type"],
                uri=match["uri"],
                suite=match["suite"],
                components=tuple(match["rest"].split()),
                signed_by=options.get("signed-by"),
            )


def _option(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.lower().rstrip("+-"), value


def _stanzas(path: str, lines: list[str]) -> Iterator[Entry]:
    for start, fields in _fields(lines):
        if fields.get("enabled", "yes").lower() in ("no", "false", "without", "off", "disable", "0"):
            continue
        signed = fields.get("signed-by")
        if signed and "BEGIN PGP" in signed:
            signed = "inline"
        combinations = product(*(fields.get(name, "").split() for name in ("types", "uris", "suites")))
        for kind, uri, suite in combinations:
            yield Entry(
                file=path,
                line=start,
                type=kind,
                uri=uri,
                suite=suite,
                components=tuple(fields.get("components", "").split()),
                signed_by=signed,
            )


def _fields(lines: list[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """deb822 stanzas: the line where each begins, and its fields (names in lower case)."""
    start, fields, name = 0, dict[str, str](), ""
    for number, line in enumerate([*lines, ""], start=1):
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield start, fields
            fields, name = {}, ""
        elif line[0] in " \t":
            fields[name] = f"{fields.get(name, '')}\n{line.strip()}".strip()
        else:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            start = start if fields else number
            fields[name] = value.strip()
