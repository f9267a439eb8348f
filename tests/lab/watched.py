"""What a watched rack (watched_rack) left to look at."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from tests.lab.watched_rack import KINDS


class Watched:
    """+ folder: what every command said, and the site's state; + seen: what the watcher saw."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: dict[str, Any] = json.loads((folder / "seen.json").read_text())
        self.state = folder / ".gpurack" / "watched"

    def said(self, name: str) -> str:
        return "".join((self.folder / f"{name}.{end}").read_text(errors="replace") for end in ("out", "err"))

    def secrets(self) -> Iterator[tuple[str, str]]:
        """Every form in which a secret of this rack could have left, with its name."""
        config = yaml.safe_load((self.state / "kubeconfig").read_text())
        key = config["users"][0]["user"]["client-key-data"]
        for line in base64.b64decode(key).decode().splitlines()[1:-1]:
            yield "line of the kubeconfig's key", line
        yield "kubeconfig's key", key[40:120]
        for token in self.seen["tokens"]:
            yield "join token", token
            yield "join token's secret half", token.partition(".")[2]
        for name, value in self.seen["known"].items():
            yield name, value
            yield f"{name} in a URL", quote(value, safe="")
            yield f"{name} in JSON", json.dumps(value)[1:-1]
            for before in ("", "rack:", "gate:"):
                yield f"{name} in base64", base64.b64encode((before + value).encode()).decode().rstrip("=")

    def leaks(self, text: str) -> list[str]:
        """Names of what `text` gives away; none of it is quoted."""
        found = [name for name, value in self.secrets() if value in text]
        return found + [kind for kind, pattern in KINDS.items() if pattern.search(text)]
