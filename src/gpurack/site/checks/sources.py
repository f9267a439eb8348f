"""Addresses of package sources, registries and proxies that apt or containerd would refuse on the host."""

from __future__ import annotations

from urllib.parse import urlsplit

from gpurack.site.document import Path_
from gpurack.site.draft import Draft
from gpurack.site.secrets import is_reference


def check(draft: Draft) -> None:
    sources = draft.sources
    if sources is None:
        return
    for field, source in (("kubernetes", sources.kubernetes), ("containerd", sources.containerd)):
        _url(source.uri, ("sources", field, "uri"), draft)
        if source.key.url is not None:
            _url(source.key.url, ("sources", field, "key", "url"), draft)
        flat = source.suite.endswith("/")
        if flat == bool(source.components):
            draft.add(
                "E-SITE-65",
                "a suite that ends in / has no components"
                if flat
                else f"suite {source.suite} has no components",
                ("sources", field, "components" if flat else "suite"),
                rule="sources.list(5): a flat repository has a suite that ends in / and nothing after it",
                next="take the components out" if flat else "add components: [main] or the like",
            )
    # An address with a login is a secret, so it stands as a reference and is not known yet.
    if sources.proxy is not None and not is_reference(sources.proxy):
        _url(sources.proxy, ("sources", "proxy"), draft)
    for name, registry in sources.registries.items():
        path: Path_ = ("sources", "registries", name)
        for index, mirror in enumerate(registry.mirrors):
            _url(mirror, (*path, "mirrors", index), draft)
        if registry.password is not None and registry.username is None:
            draft.add("E-SITE-66", f"a password for {name}, but no username", path, next="add username:")
        if registry.username is not None and registry.password is None:
            draft.add(
                "E-SITE-66", f"a username for {name}, but no password", path, next="add password: env:NAME"
            )


def _url(text: str, path: Path_, draft: Draft) -> None:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        draft.add(
            "E-SITE-64", f"{text!r} is no address of a server", path, wanted="http://... or https://..."
        )
