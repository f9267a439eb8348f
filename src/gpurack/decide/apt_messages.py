"""What apt and dpkg said, sorted by cause (O-21, O-22, O-26, O-27).

apt's exit status says little: 100 for everything, and 0 for some failures with only `W:` lines. So the text
counts, in the C locale.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gpurack.errors import Problem

RESULT = "gpurack-result="  # the last line that our scripts write: the exit status of what they ran


class _Cause(NamedTuple):
    code: str
    pattern: re.Pattern[str]
    what: str
    next: str


def _cause(code: str, pattern: str, what: str, cure: str) -> _Cause:
    return _Cause(code, re.compile(pattern), what, cure)


# The first that fits a line names its cause. `{...}` are groups of the pattern; {file} is the keyring that
# the source names, {at} the repository.
_CAUSES = (
    _cause(
        "E-APT-11",
        r"EXPKEYSIG (?P<key>[0-9A-F]{16,40})",
        "signing key expired: {key}, file {file}",
        "fetch the vendor's current key, put its file and fingerprint into the site document (sources)",
    ),
    _cause(
        "E-APT-12",
        r"NO_PUBKEY (?P<key>[0-9A-F]{16,40})",
        "signing key missing: {key} is not in {file}",
        "compare the vendor's published fingerprint, then put that key into the site document (sources)",
    ),
    _cause(
        "E-APT-13",
        r"(?P<kind>REVKEYSIG|BADSIG) (?P<key>[0-9A-F]{16,40})",
        "signature refused ({kind}): {key}, file {file}",
        "do not install from there; ask the repository's owner what happened to the key",
    ),
    _cause(
        "E-APT-30",
        r"Could not get lock (?P<lock>\S+?)\.? It is held by process (?P<pid>\d+)(?: \((?P<name>[^)]*)\))?",
        "{lock} is held by process {pid} ({name})",
        "let it finish (systemctl status unattended-upgrades), then run again; never remove the lock",
    ),
    _cause(
        "E-APT-30",
        r"dpkg (?P<lock>\S.*? lock) (?:is|was) locked by another process with pid (?P<pid>\d+)",
        "{lock} of dpkg is held by process {pid}",
        "let it finish (ps -fp {pid}), then run again; never remove the lock",
    ),
    _cause(
        "E-PKG-13",
        r"Version '(?P<version>[^']*)' for '(?P<name>[^']*)' was not found"
        r"|Unable to locate package (?P<lost>\S+)",
        "a pinned package is in no source: {name}{lost} {version}",
        "pin a version that is there, or correct sources in the site document",
    ),
    _cause(
        "E-APT-21",
        r"Could not get lock|Unable to acquire the dpkg frontend lock|frontend(?: lock)? (?:is|was) locked"
        r"|Unable to lock|status database area is locked",
        "the lock of apt or dpkg is held by another process",
        "let it finish (fuser -v /var/lib/dpkg/lock-frontend), then run again; never remove the lock",
    ),
    _cause(
        "E-APT-14",
        r"Conflicting values set for option (?P<option>\S+) regarding source (?P<at>\S+)",
        "the repository {at} is listed twice with different {option}",
        "keep one entry: grep -rn for it under /etc/apt",
    ),
    _cause(
        "E-APT-15",
        r"(?:Release file for (?P<url>\S+) is not valid yet|Not live until)",
        "the repository's index is from the future for this host: its clock is behind",
        "correct the clock (timedatectl)",
    ),
    _cause(
        "E-APT-16",
        r"Release file for (?P<url>\S+) is expired",
        "the repository's index is out of date: the mirror is no longer refreshed",
        "refresh the mirror, or name another one in the site document (sources)",
    ),
    _cause(
        "E-APT-17",
        r"\b407\s|response from proxy|Proxy CONNECT aborted",
        "the proxy does not let apt through",
        "check sources.proxy and its user and password",
    ),
    _cause(
        "E-APT-18",
        r"\b40[13]\s",
        "the repository refuses access",
        "check the address and what the repository's owner allows",
    ),
    _cause(
        "E-APT-19",
        r"(?:\b404\s|does not have a Release file|no longer has a Release file)",
        "repository gone: {at} has no index there",
        "check uri and suite; pkgs.k8s.io has one repository per minor",
    ),
    _cause(
        "E-APT-20",
        r"[Cc]ertificate verification failed|certificate is NOT trusted|server certificate",
        "the repository's TLS certificate is not trusted",
        "give the CA as sources.ca_bundle, or correct the clock",
    ),
    _cause(
        "E-APT-22",
        r"Could not resolve|Temporary failure resolving|Could not connect|Unable to connect"
        r"|Connection refused|Connection timed out"
        r"|Network is unreachable|No route to host|Connection failed|Connection reset"
        r"|Could not handshake|connection timed out|Could not wait for server",
        "network down: the repository can't be reached",
        "check DNS, route and proxy from the host",
    ),
    _cause(
        "E-APT-23",
        r"Hash Sum mismatch|File has unexpected size",
        "what was fetched is not what the index promises: the mirror, or something on the way, changes it",
        "run again in a few minutes; if it stays, ask the mirror's owner",
    ),
    _cause(
        "E-APT-24",
        r"No space left on device|not have enough free space|You don't have enough free space",
        "the disk is full",
        "df -h /var/cache/apt /usr",
    ),
    _cause(
        "E-APT-25",
        r"Malformed (?:entry|line|stanza)|The list of sources could not be read|Unable to parse",
        "an entry of apt's sources can't be read, so every apt call fails",
        "correct the file that the message names",
    ),
    _cause(
        "E-APT-26",
        r"Repository '(?P<url>\S+) .*' changed its '(?P<kind>\w+)' value",
        "the repository changed its {kind}: apt wants a person to agree",
        "look at the change, then run `apt-get update` by hand once",
    ),
    _cause(
        "E-APT-27",
        r"is not signed|The following signatures couldn't be verified|signatures were invalid",
        "the repository {at} is not signed by the key that was named",
        "name the right key; unsigned repositories are never used",
    ),
    _cause(
        "E-PKG-11",
        r"dpkg: error processing (?:package|archive) (?P<name>\S+)|dpkg was interrupted"
        r"|Sub-process \S*dpkg returned",
        "dpkg did not finish {name}",
        "dpkg --audit; /var/log/gpurack/packages.log",
    ),
    _cause(
        "E-PKG-12",
        r"end of file on stdin at conffile prompt",
        "a package asked a question about a changed configuration file",
        "dpkg --configure -a --force-confold",
    ),
)
_AT = re.compile(r"(?P<at>(?:https?|file|copy|ftp|cdrom|mirror\+\w+|tor\+\w+):/+[^\s']+)")
# What apt says besides the cause, the more telling first.
_GENERAL = ("E-APT-21", "E-APT-25", "E-APT-19", "E-APT-27")
_FAILURES = ("W:", "E:", "Err:", "dpkg: error", "The following signatures", "***", "end of file")
_CREDENTIALS = re.compile(r"://[^/@\s]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What one of our scripts left. + result: its exit status; None when it did not get to its end."""

    lines: tuple[str, ...]
    result: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """+ problems: one per cause and repository; + notes: harmless warnings of apt."""

    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def keyring_for(at: str, keyrings: Iterable[tuple[str, str]]) -> str | None:
    """The keyring of the source whose URI begins the address `at`. + keyrings: (uri, file) pairs."""
    fitting = [(uri, file) for uri, file in keyrings if at.rstrip("/").startswith(uri.rstrip("/"))]
    return max(fitting, key=lambda pair: len(pair[0]))[1] if fitting else None


def hear(log: Log, keyrings: Iterable[tuple[str, str]] = ()) -> Heard:
    """The causes in `log`.

    Warnings that name a failure count as failures (O-21). With a failing exit status and no cause that is
    known, what apt said is reported as it is. + keyrings: (uri, keyring file) of the sources on the host
    """
    keyrings = tuple(keyrings)
    problems: dict[tuple[str, str], Problem] = {}
    unknown: list[str] = []
    notes: dict[str, None] = {}
    at = ""
    for raw in log.lines:
        line = _CREDENTIALS.sub("://", raw.strip())
        place = _AT.search(line)
        if place:
            at = place["at"]
        elif line.startswith(("W:", "E:")):
            at = ""
        # Lines of progress, such as "Get:3 http://..." name no failure; indented ones belong to an "Err:".
        if not line.startswith(_FAILURES) and not raw.startswith(" "):
            continue
        cause, match = next(
            ((cause, match) for cause in _CAUSES if (match := cause.pattern.search(line))), (None, None)
        )
        if cause is None or match is None:
            if line.startswith("E:"):
                unknown.append(line)
            elif line.startswith("W:") and not line.startswith("W: Some index files failed"):
                notes[f"apt warns: {line[2:].strip()}"] = None
            continue
        # "Err:" names the repository, the line after it a file in it: one failure.
        if not any(code == cause.code and at and _about(at, other) for code, other in problems):
            problems.setdefault((cause.code, at), _problem(cause, match, at, line, keyrings))
    found = _specific(problems)
    if not found and (unknown or log.result not in (0, None)):
        said = "; ".join(unknown[-3:] or [line.strip() for line in log.lines[-3:]])
        found = (
            Problem(
                code="E-APT-29",
                what="apt failed",
                found=_CREDENTIALS.sub("://", said) or f"exit {log.result}, without a word",
                next="run apt-get update on the host and read what it says",
            ),
        )
    if log.result is None and not found:
        found = (
            Problem(
                code="E-APT-28",
                what="apt was ended before it was done",
                found=log.lines[-1].strip() if log.lines else "an empty log",
                next="run the same command again: it goes on from what it finds",
            ),
        )
    return Heard(problems=found, notes=tuple(notes))


def _problem(
    cause: _Cause, match: re.Match[str], at: str, line: str, keyrings: tuple[tuple[str, str], ...]
) -> Problem:
    words = {"at": at or "?", "name": "", "lost": "", "version": "", "pid": "?"}
    words |= {"file": keyring_for(at, keyrings) or "apt's trusted keys"}
    words |= {key: value for key, value in match.groupdict().items() if value}
    return Problem(
        code=cause.code,
        what=cause.what.format_map(words),
        found=line.removeprefix("E:").removeprefix("W:").strip(),
        rule="O-22" if cause.code in ("E-APT-21", "E-APT-30") else "O-21",
        next=cause.next.format_map(words),
    )


def _specific(problems: dict[tuple[str, str], Problem]) -> tuple[Problem, ...]:
    """Without what apt adds to a cause that was already named ("... is not signed")."""
    named = [(code, at) for code, at in problems if code not in _GENERAL]
    left = {
        (code, at): problem
        for (code, at), problem in problems.items()
        if code not in _GENERAL or not any(_about(at, other) for _, other in named)
    }
    order = [key for code in _GENERAL for key in left if key[0] == code]
    # Of two general remarks about one repository the first in _GENERAL stays.
    for later, key in enumerate(order):
        if any(_about(key[1], earlier[1]) and earlier[0] != key[0] for earlier in order[:later]):
            left.pop(key)
    return tuple(left.values())


def _about(at: str, other: str) -> bool:
    """Whether two addresses are of one repository; an unknown one may be of any."""
    return not at or not other or at.startswith(other) or other.startswith(at)


def read_log(text: str) -> Log:
    """What our script wrote: apt's lines, and `gpurack-result=STATUS` as the last one."""
    lines = text.rstrip("\n").splitlines()
    result = None
    if lines and lines[-1].startswith(RESULT):
        result = int(lines.pop().removeprefix(RESULT))
    return Log(lines=tuple(lines), result=result)
