"""Secrets in clear, wherever they stand."""

from __future__ import annotations

from gpurack.site.draft import Draft
from gpurack.site.secrets import clear_secret


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
