"""What one run knows."""

from __future__ import annotations

import threading

import pytest

from gpurack.engine.run import Run
from gpurack.errors import Problem
from gpurack.report.events import Failed, Noted, Owed


def test_once_runs_once_for_many_at_the_same_time() -> None:
    run, calls, found = Run(), [], []
    start = threading.Barrier(8)

    def mint() -> str:
        calls.append(1)
        return "token"

    def ask() -> None:
        start.wait()
        found.append(run.once("token", mint))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert found == ["token"] * 8


def test_once_raises_again_for_everyone_and_tries_no_second_time() -> None:
    run, calls = Run(), []

    def fail() -> None:
        calls.append(1)
        raise ValueError("no API")

    for _ in range(3):
        with pytest.raises(ValueError, match="no API"):
            run.once("key", fail)
    assert len(calls) == 1


def test_winding_down_calls_everything_last_first_and_survives_a_failure() -> None:
    run, order = Run(), []
    run.at_end(lambda: order.append("first"))
    run.at_end(lambda: 1 / 0)
    run.at_end(lambda: order.append("last"))
    run.wind_down()
    run.wind_down()
    assert order == ["last", "first"]
    assert [event.host for event in run.events if isinstance(event, Noted)] == ["controller"]


def test_the_same_thing_is_said_once() -> None:
    run = Run()
    run.note("a", "clock is off")
    run.note("a", "clock is off")
    owed = Owed(host="a", operation="o", reason="r", disruption="drain")
    run.owe(owed)
    run.owe(owed)
    failed = Failed(host="a", operation="o", problem=Problem(code="E-X-01", what="w"))
    run.fail(failed)
    run.fail(failed)
    assert len(run.events) == 3
