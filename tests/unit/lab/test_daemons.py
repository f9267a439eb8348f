"""Records of daemons: what is ours is found again, what is not is never touched."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gpurack.errors import Refused
from gpurack.lab import daemons, process
from gpurack.lab.daemons import Daemon, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "run").mkdir()
    return Place(namespace="gpurack-no-such-namespace", run=tmp_path / "run", log=tmp_path / "log")


def record(place: Place, name: str, pid: int, started: int | None) -> None:
    content = {"pid": pid, "started": started, "described": ""}
    (place.run / f"{name}.json").write_text(json.dumps(content))


def test_without_the_racks_network_nothing_is_started(place: Place) -> None:
    with pytest.raises(Refused) as caught:
        daemons.start(place, (Daemon(name="web", command=("true",), port=80),))
    (problem,) = caught.value.problems
    assert (problem.code, problem.next) == ("E-LAB-26", "gpurack lab up")
    assert not list(place.run.iterdir())


def test_a_recorded_process_is_stopped_and_forgotten(place: Place) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        record(place, "web", child.pid, process.started(child.pid))
        assert daemons.stop(place) == ("web",)
        assert not process.alive(child.pid)
    assert daemons.stop(place) == ()


def test_a_recycled_process_id_is_not_ours(place: Place) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        start_time = process.started(stranger.pid)
        assert start_time is not None
        record(place, "web", stranger.pid, start_time - 1)
        assert daemons.stop(place) == ()
        assert stranger.poll() is None
        stranger.terminate()
    assert not list(place.run.iterdir())


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1}', "[]", '{"pid": "x", "started": 1, "described": ""}'])
def test_a_record_that_was_cut_short_counts_as_none(place: Place, text: str) -> None:
    (place.run / "web.json").write_text(text)
    assert daemons.running(place) == {}
    assert daemons.stop(place) == ()


def test_a_process_in_another_namespace_does_not_count_as_running(place: Place) -> None:
    record(place, "web", os.getpid(), process.started(os.getpid()))
    assert daemons.running(place) == {}


def test_before_the_first_start_nothing_runs(tmp_path: Path) -> None:
    place = Place(namespace="none", run=tmp_path / "absent", log=tmp_path / "log")
    assert daemons.running(place) == {}
    assert daemons.stop(place) == ()
