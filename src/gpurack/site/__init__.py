"""The site document: what a person edits, typed. No pyinfra, no kubernetes, no network."""

from gpurack.site.load import load

__all__ = ["load"]
