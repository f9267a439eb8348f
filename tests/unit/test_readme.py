"""What the README tells a newcomer to write is really enough."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from gpurack.site.load import load

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_shortest_document_of_the_readme_is_valid(page: str, tmp_path: Path) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    lines = text.splitlines()
    first = lines.index("    name: prod")
    last = next(index for index in range(first, len(lines)) if not lines[index].startswith("    "))
    (tmp_path / "stacks").symlink_to(REPOSITORY / "inventories" / "stacks")
    document = tmp_path / "prod.yaml"
    document.write_text(textwrap.dedent("\n".join(lines[first:last])), encoding="utf-8")

    site = load(document)

    assert [host.name for host in site.hosts][:2] == ["cp-1", "gpu-r07-01"]
    assert len(site.hosts) == 9
