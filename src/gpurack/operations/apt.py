"""apt's sources, keys and proxy."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.operation import operation

from gpurack.decide import apt as thought
from gpurack.defaults import KEY_FETCH_LIMIT, KEY_SIZE_LIMIT
from gpurack.engine import conceal, guarded, once, read, resolve, state_dir
from gpurack.errors import BadInput, Problem
from gpurack.facts.apt import AptSources
from gpurack.operations.proving import until_settled
from gpurack.site.models import AptSource, Node, SigningKey
from gpurack.site.secrets import is_reference


@operation()
@guarded
def sources(*, node: Node) -> Iterator[PyinfraCommand]:
    """Our repositories with their keys and the way to them; those of others are left as they are (O-25).

    + node: the host; its site names sources, proxy and CA
    """
    given = node.site.sources
    wanted = (_source("kubernetes", given.kubernetes), _source("containerd", given.containerd))
    proxy = given.proxy
    if proxy and is_reference(proxy):
        proxy = resolve(proxy)
        if password := thought.password_of(proxy):
            conceal(password)
    way = thought.Way(
        proxy=proxy, no_proxy=given.no_proxy, ca=_text(given.ca_bundle) if given.ca_bundle else None
    )
    yield from until_settled(lambda: thought.sources(wanted, way, time.time(), read(AptSources)))


def _source(name: str, given: AptSource) -> thought.Source:
    return thought.Source(
        name=name,
        uri=given.uri,
        suite=given.suite,
        components=given.components,
        key=once(f"signing key {given.key.fingerprint}", lambda: _key(given.key)),
        fingerprint=given.key.fingerprint,
    )


def _key(key: SigningKey) -> str:
    """The key's text: the site's file, or what the vendor publishes, kept in the site's state folder.

    A fetched key is only used when its fingerprint is the pinned one; that is judged with the sources.
    """
    if key.file:
        return _text(key.file)
    kept = state_dir() / "keys" / f"{key.fingerprint}.asc"
    if kept.exists() and not thought.check_key(_text(str(kept)), key.fingerprint, time.time(), "")[0]:
        return _text(str(kept))
    text = _fetch(str(key.url))
    if not thought.check_key(text, key.fingerprint, time.time(), "")[0]:
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        kept.write_text(text, encoding="utf-8")
    return text


def _fetch(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=KEY_FETCH_LIMIT) as answer:  # noqa: S310 - https, by the loader
            return str(answer.read(KEY_SIZE_LIMIT).decode("utf-8"))
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise BadInput(
            Problem(
                code="E-APT-06",
                what="the signing key can't be fetched from its publisher",
                found=f"{url}: {getattr(error, 'reason', error)}",
                next="fetch it by hand and name it as key.file in the site document (sources)",
            )
        ) from error


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").rstrip("\n") + "\n"
