"""apt's sources, keys and proxy on one host (O-21, O-25, O-28).

Ours are deb822 files with a keyring each; everybody else's stay as they are. What would make every later apt
call fail, the same repository under two keyrings, is found before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

from gpurack.decide.decision import Decision, Remove, Step, Write, refuse, settled
from gpurack.decide.files import FileState, lay
from gpurack.decide.openpgp import PublicKey, read_keys
from gpurack.defaults import KEY_EXPIRES_SOON
from gpurack.errors import Problem

SOURCES, KEYRINGS = "/etc/apt/sources.list.d", "/etc/apt/keyrings"
PROXY_FILE = "/etc/apt/apt.conf.d/90gpurack-proxy"
PROXY_SECRET = "/etc/apt/auth.conf.d/gpurack-proxy.conf"  # noqa: S105 - a path
CA_FILE = "/etc/apt/gpurack-ca.pem"
_HEADER = "# Managed by gpurack (role packages); changes here are put back.\n"
_CONF_HEADER = "// Managed by gpurack (role packages); changes here are put back.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A repository that we want. + name: `kubernetes`, `containerd`
    + key: ASCII-armoured text; + fingerprint: the one that the site document pins."""

    name: str
    uri: str
    suite: str
    components: tuple[str, ...]
    key: str
    fingerprint: str

    @property
    def file(self) -> str:
        return f"{SOURCES}/gpurack-{self.name}.sources"

    @property
    def keyring(self) -> str:
        return f"{KEYRINGS}/gpurack-{self.name}.asc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How apt gets out. + proxy: URL, possibly with user and password: a secret then
    + no_proxy: names, domains, networks reached directly; + ca: PEM text trusted for our sources."""

    proxy: str | None = None
    no_proxy: tuple[str, ...] = ()
    ca: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One live source on the host: a line, or one combination of a deb822 stanza.

    + signed_by: as written; an inline key is `inline`; None when there is none
    """

    file: str
    line: int
    type: str
    uri: str
    suite: str
    components: tuple[str, ...] = ()
    signed_by: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.signed_by or 'no Signed-By'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Apt:
    """+ architecture: dpkg's; + files: state of the files that we own (`OURS`)."""

    architecture: str
    entries: tuple[Entry, ...]
    files: Mapping[str, FileState]

    @property
    def keyrings(self) -> tuple[tuple[str, str], ...]:
        return tuple((entry.uri, entry.signed_by) for entry in self.entries if entry.signed_by)


NAMES = ("kubernetes", "containerd")
OURS = (
    *(f"{SOURCES}/gpurack-{name}.sources" for name in NAMES),
    *(f"{KEYRINGS}/gpurack-{name}.asc" for name in NAMES),
    PROXY_FILE,
    PROXY_SECRET,
    CA_FILE,
)


def sources(wanted: tuple[Source, ...], way: Way, now: float, found: Apt) -> Decision:
    """What it takes to have our sources, keys and way out, and nothing that contradicts them.

    + now: seconds since 1970, for the end of keys
    """
    problems: list[Problem] = []
    notes: list[str] = []
    for source in wanted:
        wrong, remarks = check_key(source.key, source.fingerprint, now, f"the key of {source.name}")
        problems += wrong
        notes += remarks
    others = [entry for entry in found.entries if entry.file not in OURS]
    problems += _conflicts(others, found.architecture)
    for source in wanted:
        for entry in _same(source, others, found.architecture):
            if entry.signed_by == source.keyring:
                notes.append(f"{entry} lists the same repository as {source.file}")
            else:
                problems.append(
                    _conflict(source.uri, str(entry), f"ours would be {source.file} ({source.keyring})")
                )
    if problems:
        return refuse(*problems)
    laid = lay(_files(wanted, way, found.architecture), found.files)
    steps: list[Step] = list(laid.steps)
    unwanted = {PROXY_FILE, PROXY_SECRET, CA_FILE} - {
        write.path for write in _files(wanted, way, found.architecture)
    }
    steps += [Remove(path=path) for path in sorted(unwanted & set(found.files))]
    if not steps:
        return settled("sources and keys are as wanted", notes=tuple(notes))
    reason = (
        laid.reason
        if laid.steps
        else "no longer in the site document: "
        + ", ".join(step.path for step in steps if isinstance(step, Remove))
    )
    return Decision(reason=reason, steps=tuple(steps), notes=tuple(notes))


def source_text(source: Source, architecture: str) -> str:
    """The deb822 file. A flat repository has suite `/` and no components (O-28)."""
    components = f"Components: {' '.join(source.components)}\n" if source.components else ""
    return (
        f"{_HEADER}Types: deb\nURIs: {source.uri}\nSuites: {source.suite}\n{components}"
        f"Architectures: {architecture}\nSigned-By: {source.keyring}\n"
    )


def _files(wanted: tuple[Source, ...], way: Way, architecture: str) -> list[Write]:
    files = [Write(path=source.keyring, content=source.key) for source in wanted]
    if way.ca:
        files.append(Write(path=CA_FILE, content=way.ca))
    if way.proxy or way.ca:
        files.append(Write(path=PROXY_FILE, content=_way_text(wanted, way)))
    if way.proxy and (secret := _proxy_secret(way.proxy)):
        files.append(Write(path=PROXY_SECRET, content=secret, mode=0o600, secret=True))
    # Sources last: a source without its key or its proxy would make every apt call on the host fail.
    files += [Write(path=source.file, content=source_text(source, architecture)) for source in wanted]
    return files


def _way_text(wanted: tuple[Source, ...], way: Way) -> str:
    text = _CONF_HEADER
    hosts = list(dict.fromkeys(urlsplit(source.uri).hostname or "" for source in wanted))
    if way.proxy:
        parts = urlsplit(way.proxy)
        proxy = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        direct = dict.fromkeys(
            [host for host in hosts if bypasses(host, way.no_proxy)]
            + [entry for entry in way.no_proxy if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", entry)]
        )
        for scheme in ("http", "https"):
            text += f'Acquire::{scheme}::Proxy "{proxy}";\n'
            text += "".join(f'Acquire::{scheme}::Proxy::{host} "DIRECT";\n' for host in direct)
    if way.ca:
        text += "".join(f'Acquire::https::{host}::CAInfo "{CA_FILE}";\n' for host in hosts)
    return text


def _proxy_secret(proxy: str) -> str | None:
    """User and password for apt_auth.conf(5), which apt reads for proxies too.

    So they stay out of world-readable configuration and of what `apt-config dump` shows to everybody.
    """
    parts = urlsplit(proxy)
    if not parts.username:
        return None
    machine = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    login, password = unquote(parts.username), unquote(parts.password or "")
    return f"{_HEADER}machine {machine} login {login} password {password}\n"


def password_of(proxy: str) -> str:
    """The password inside a proxy's URL, as the proxy gets it; empty when there is none."""
    return unquote(urlsplit(proxy).password or "")


def bypasses(host: str, no_proxy: tuple[str, ...]) -> bool:
    """Whether `host` is reached directly: an equal name, a domain (`.example`), a network in CIDR form."""
    for entry in no_proxy:
        name = entry.removeprefix("*").removeprefix(".")
        if host == name or host.endswith("." + name):
            return True
        try:
            if ip_address(host) in ip_network(entry, strict=False):
                return True
        except ValueError:
            continue
    return False


def check_key(text: str, fingerprint: str, now: float, whose: str) -> tuple[list[Problem], list[str]]:
    """Problems and remarks about a signing key: the pinned one and no other, in force (O-21)."""
    try:
        keys = read_keys(text)
    except ValueError as error:
        return [
            _bad_key("E-APT-02", f"{whose} can't be read", str(error), "an ASCII-armoured public key")
        ], []
    wanted = fingerprint.replace(" ", "").upper()
    strange = [key.fingerprint for key in keys if key.fingerprint != wanted]
    if strange:
        what = f"{whose} is another key" if len(strange) == len(keys) else f"{whose} comes with further keys"
        return [_bad_key("E-APT-03", what, ", ".join(strange), wanted)], []
    key = keys[0]
    if key.revoked:
        return [_bad_key("E-APT-04", f"{whose} was revoked by its owner", key.fingerprint, "a valid key")], []
    if key.expires is None:
        return [], []
    if key.expires <= now:
        return [
            _bad_key("E-APT-05", f"signing key expired: {key.id}", _end(key), "a key that is valid today")
        ], []
    if key.expires - now < KEY_EXPIRES_SOON:
        return [], [f"{whose} {key.id} {_end(key)}: apt refuses the repository from then on (O-21)"]
    return [], []


def _end(key: PublicKey) -> str:
    return f"ends on {datetime.fromtimestamp(key.expires or 0, UTC):%Y-%m-%d}"


def _bad_key(code: str, what: str, found: str, wanted: str) -> Problem:
    return Problem(
        code=code,
        what=what,
        found=found,
        wanted=wanted,
        rule="O-21",
        next="fetch the vendor's current key, compare its fingerprint, name both in the site document",
    )


# ------------------------------------------------------------------------------- one repository, one key
def repository(uri: str, suite: str, architecture: str) -> tuple[str, str]:
    """What makes two entries the same repository: URI without trailing slash and credentials, and suite.

    A flat repository's suite is part of its path: `.../amd64 /`, `.../amd64/ ./` and `... amd64/` are one.
    """
    uri = uri.replace("$(ARCH)", architecture)
    scheme, separator, rest = uri.partition("://")
    host, slash, path = rest.rpartition("@")[2].partition("/")
    place = f"{scheme.lower()}{separator}{host.lower()}{slash}{re.sub('/+', '/', path)}".rstrip("/")
    if not suite.endswith("/"):
        return place, suite
    inner = suite.replace("$(ARCH)", architecture).strip("/").removeprefix("./").strip(".")
    return (f"{place}/{inner}" if inner else place), "/"


def _same(source: Source, entries: list[Entry], architecture: str) -> list[Entry]:
    wanted = repository(source.uri, source.suite, architecture)
    return [entry for entry in entries if repository(entry.uri, entry.suite, architecture) == wanted]


def _conflicts(entries: list[Entry], architecture: str) -> list[Problem]:
    """Pairs on the host that already make every apt call fail."""
    first: dict[tuple[str, str], Entry] = {}
    problems = []
    for entry in entries:
        other = first.setdefault(repository(entry.uri, entry.suite, architecture), entry)
        if other.signed_by != entry.signed_by:
            problems.append(_conflict(entry.uri, str(other), str(entry)))
    return problems


def _conflict(uri: str, one: str, other: str) -> Problem:
    return Problem(
        code="E-APT-01",
        what=f"the repository {re.sub('://[^/@]*@', '://', uri)} is listed twice with different keyrings",
        found=f"{one} and {other}",
        wanted="one entry for each repository",
        rule="O-25: after this every apt call on the host fails",
        next=f"remove the entry {one.split(' ')[0]}, or give both the same Signed-By",
    )
