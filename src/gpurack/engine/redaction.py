"""Secrets are masked by value where text leaves the process: whatever prints, logs or reports.

A filter on loggers is not enough (pyinfra prints commands, diffs and JSON itself), so standard output and
standard error are replaced by streams that mask every write.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import shlex
import sys
from typing import Any, BinaryIO, TextIO, cast
from urllib.parse import quote

from gpurack.defaults import SECRET_FLOOR, SECRET_LINE_FLOOR

MASK = "********"

_forms: dict[str, None] = {}
_ordered: tuple[tuple[str, ...], tuple[bytes, ...]] = ((), ())


def conceal(value: str) -> str:
    """Register `value`, so that it can't leave in any output, and give it back.

    Values shorter than `SECRET_FLOOR` are not masked. Of a value with several lines, each long line is
    masked as well.
    """
    global _ordered
    before = len(_forms)
    whole = value.strip("\n")
    if len(whole) >= SECRET_FLOOR:
        _forms.update(dict.fromkeys(_shapes(whole)))
    if "\n" in whole:
        for line in whole.splitlines():
            if len(line.strip()) >= SECRET_LINE_FLOOR:
                _forms.update(dict.fromkeys(_shapes(line.strip())))
    if len(_forms) != before:
        longest_first = tuple(sorted(_forms, key=len, reverse=True))
        _ordered = (longest_first, tuple(form.encode() for form in longest_first))
    return value


def mask(text: str) -> str:
    """`text` without any concealed value."""
    for form in _ordered[0]:
        if form in text:
            text = text.replace(form, MASK)
    return text


def mask_bytes(data: bytes) -> bytes:
    """`mask` for bytes in UTF-8."""
    for form in _ordered[1]:
        if form in data:
            data = data.replace(form, MASK.encode())
    return data


def _shapes(value: str) -> set[str]:
    """`value` as it looks in JSON, a shell word, a Python repr, a URL, and base64 at each alignment."""
    raw = value.encode()
    shapes = {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        shlex.quote(value).strip("'"),
        repr(value)[1:-1],
        quote(value, safe=""),
        base64.b64encode(raw).decode(),
        base64.b64encode(raw + b"\n").decode(),
    }
    for shift in range(3):
        # A value inside a longer encoded text (`user:password` of a registry) starts at any of three offsets;
        # the characters that also carry bits of its neighbours are cut off on both sides.
        encoded = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        inner = encoded[(0, 2, 3)[shift] : len(encoded) - (1 if (len(raw) + shift) % 3 else 0)]
        if len(inner) >= SECRET_LINE_FLOOR:
            shapes.add(inner)
    return {shape for shape in shapes if len(shape) >= SECRET_FLOOR}


class _MaskingRaw(io.RawIOBase):
    """The binary layer, so that bytes written past the text layer are masked too."""

    def __init__(self, below: BinaryIO) -> None:
        self._below = below

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        given = bytes(data)
        self._below.write(mask_bytes(given))
        self._below.flush()
        return len(given)

    def flush(self) -> None:
        if not self._below.closed:
            self._below.flush()

    def fileno(self) -> int:
        return self._below.fileno()

    def isatty(self) -> bool:
        return self._below.isatty()


class MaskingStream(io.TextIOWrapper):
    """Standard output or standard error without secrets."""


def _masking(stream: TextIO) -> TextIO:
    below = getattr(stream, "buffer", None)
    if below is None or isinstance(stream, MaskingStream):
        return stream
    stream.flush()
    # Written straight through: a secret that arrives in one write is masked in one write.
    raw = cast("BinaryIO", _MaskingRaw(below))
    return MaskingStream(raw, encoding=stream.encoding or "utf-8", errors="replace", write_through=True)


def install() -> None:
    """Put the masking streams in place of `sys.stdout` and `sys.stderr`, under log handlers as well."""
    old = {id(sys.stdout), id(sys.stderr)}
    sys.stdout, sys.stderr = _masking(sys.stdout), _masking(sys.stderr)
    loggers = [logging.getLogger(), *(logging.getLogger(name) for name in logging.root.manager.loggerDict)]
    for logger in loggers:
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and id(handler.stream) in old:
                handler.setStream(sys.stderr)
