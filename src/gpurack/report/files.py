"""Where reports and logs of a run lie on the controller: `<state folder>/reports/`, for their owner only."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_place: dict[str, Any] = {}


def keep_in(folder: Path, run: str) -> None:
    """Keep what run `run` leaves behind under `folder`."""
    reports = folder / "reports"
    reports.mkdir(mode=0o700, exist_ok=True)
    _place.update(folder=reports, run=run)


def write_report(report: dict[str, Any], mask: Callable[[str], str]) -> Path:
    """Write `report` as JSON without any concealed value; its path."""
    file = Path(_place["folder"]) / f"{_place['run']}.json"
    _write(file, mask(json.dumps(report, indent=2, ensure_ascii=False)) + "\n")
    return file


def keep_log(host: str, lines: Iterable[str], mask: Callable[[str], str]) -> str | None:
    """Append `lines` to the run's log of `host`; its path, or None when there is nowhere to put it."""
    if not _place:
        return None
    file = Path(_place["folder"]) / f"{_place['run']}.{host}.log"
    try:
        old = file.read_text() if file.exists() else ""
        _write(file, old + mask("\n".join(lines)) + "\n")
    except OSError:
        return None
    return str(file)


def _write(file: Path, text: str) -> None:
    temporary = file.with_suffix(file.suffix + ".new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)
