"""Steps as scripts, run here: the paths that a real host shows rarely."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpurack.decide.decision import Await, Reload, Remove, Run, Transact, Unit, Write
from gpurack.engine.steps import NOT_IN_TIME, Order, order


def perform(given_: Order) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["sh", "-c", given_.script], input=given_.payload, capture_output=True, check=False)


def own(path: Path, content: str, **more: object) -> Write:
    return Write(
        path=str(path), content=content, owner=f"{path.parent.owner()}:{path.parent.group()}", **more
    )  # type: ignore[arg-type]


@settings(max_examples=15, deadline=None)
@given(content=st.text(alphabet=st.characters(codec="utf-8"), max_size=400))
def test_any_text_is_written_to_the_byte(content: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("w") / 'it\'s a "file" $x'
    assert perform(order(own(file, content))).returncode == 0
    assert file.read_bytes() == content.encode()


def test_content_that_arrives_damaged_is_not_put_in_place(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    whole = order(own(file, "new content"))
    cut = Order(phrase=whole.phrase, script=whole.script, payload=whole.payload[:-3])
    result = perform(cut)
    assert result.returncode == 74
    assert b"did not arrive whole" in result.stderr
    assert file.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_link_is_replaced_by_the_file_and_what_it_names_is_left(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("others'")
    (tmp_path / "link").symlink_to("target")
    assert perform(order(own(tmp_path / "link", "ours"))).returncode == 0
    assert (tmp_path / "target").read_text() == "others'"
    assert not (tmp_path / "link").is_symlink()


def test_validate_sees_the_temporary_file_with_its_final_mode(tmp_path: Path) -> None:
    step = own(tmp_path / "file", "x", mode=0o640, validate='stat -c %a "$1"; exit 1')
    result = perform(order(step))
    assert result.returncode == 1
    assert result.stderr == b"640\n"


def test_a_wait_ends_with_what_the_probe_said_last(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    wait = Await(
        probe=f"test -e {flag} || {{ echo no flag; exit 3; }}", reason="a flag", deadline=1, every=0.1
    )
    late = perform(order(wait))
    assert late.returncode == NOT_IN_TIME
    assert late.stderr == b"no flag\n"
    flag.touch()
    assert perform(order(wait)).returncode == 0


def test_a_probe_that_hangs_does_not_outlive_the_deadline() -> None:
    hanging = order(Await(probe="sleep 60", reason="nothing", deadline=1))
    assert perform(hanging).returncode == NOT_IN_TIME


@pytest.mark.parametrize(
    ("step", "phrase", "unit"),
    [
        (Remove(path="/a b"), "remove /a b", None),
        (Run(script="modprobe x", why="load x"), "load x", None),
        (Reload(), "systemctl daemon-reload", None),
        (
            Unit(name="kubelet.service", verb="restart"),
            "systemctl restart kubelet.service",
            "kubelet.service",
        ),
        (Await(probe="true", reason="it", deadline=9, journal="x.service"), "wait: it", "x.service"),
        (Transact(unit="apt", script="apt-get x", why="install x"), "install x", "gpurack-apt"),
    ],
)
def test_each_step_says_what_it_does_and_whose_journal_explains_it(
    step: Remove | Run | Reload | Unit | Await | Transact, phrase: str, unit: str | None
) -> None:
    found = order(step)
    assert (found.phrase, found.unit) == (phrase, unit)


def test_neither_input_nor_content_nor_a_transaction_is_part_of_the_script() -> None:
    for step in (
        Write(path="/x", content="s3cret", secret=True),
        Run(script="cat", why="w", stdin="s3cret"),
        Transact(unit="u", script="echo s3cret", why="w"),
    ):
        found = order(step)
        assert "s3cret" not in found.script
        assert b"s3cret" in found.payload


def test_a_transaction_outlives_its_deadline_by_the_time_systemd_needs() -> None:
    found = order(Transact(unit="u", script="true", why="w", deadline=60))
    assert "RuntimeMaxSec=60" in found.script
    assert found.limit > 60
    assert found.within == 60
