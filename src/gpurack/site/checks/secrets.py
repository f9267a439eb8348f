"""Secrets in clear, wherever they stand."""

from __future__ import annotations

import re

from gpurack.site.document import Document, Path_
from gpurack.site.draft import Draft
from gpurack.site.secrets import clear_secret, is_reference

_SECRET_KEY = re.compile(r"password|token|secret|private", re.IGNORECASE)


def texts(document: Document) -> frozenset[str]:
    """Every value in clear that is a secret by its shape or by the key above it; no problem may repeat it."""
    return frozenset(
        spot.text
        for path, spot in document.spots.items()
        if spot.text and not is_reference(spot.text)
        if clear_secret(spot.text) or _has_secret_key(path)
    )


def _has_secret_key(path: Path_) -> bool:
    return "labels" not in path and any(_SECRET_KEY.search(str(part)) for part in path)


def check(draft: Draft) -> None:
    for path, spot in draft.document.spots.items():
        kind = clear_secret(spot.text) if spot.text else None
        if kind is not None:
            draft.add(
                "E-SITE-50",
                f"{kind} stands here in clear",
                path,
                wanted="a reference: env:NAME, file:/path or command:program arguments",
                next="take it out of the document (and out of its history), change it, and write a reference",
            )
