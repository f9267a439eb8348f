"""The base of every fact: one remote command in the C locale, a strict parser, a frozen result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.facts import FactBase

T = TypeVar("T")


class Probe(FactBase[T], Generic[T]):
    """A fact of gpurack.

    A subclass gives `script` (or a method `script(self, ...)`-less override of `command`) and `parse`.
    `parse` gets the whole standard output as text and returns a frozen model; a `ValueError` of any kind
    becomes "this fact failed on this host" and never a traceback that stops the other hosts.
    """

    script: str
    shell_executable = "sh"

    def command(self) -> str:
        return in_c_locale(self.script)

    def parse(self, text: str) -> T:
        raise NotImplementedError

    def process(self, output: Iterable[str]) -> T:
        try:
            return self.parse("\n".join(output))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else error
            raise FactProcessError(f"{type(self).__name__}: {reason}") from error


def in_c_locale(script: str) -> str:
    """`script`, with tools that answer in English whatever the host's language is (O-80, O-85)."""
    return f"export LC_ALL=C LANGUAGE=C; {script}"
