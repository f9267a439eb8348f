"""A wrong clock is refused whatever the site accepts."""

from __future__ import annotations

import pytest

from gpurack.decide.clock import GATE, Clock, judge
from gpurack.decide.gates import GATES

NOW = 1_796_000_000.0


def clock(
    offset: float = 0.0, synchronised: bool | None = True, services: tuple[str, ...] = ("chrony",)
) -> Clock:
    return Clock(at=NOW + offset, offset=offset, synchronised=synchronised, services=services)


def codes(found: Clock, *accept: str) -> list[str]:
    return [problem.code for problem in judge(frozenset(accept), found).refused]


@pytest.mark.parametrize("offset", [121.0, -121.0, -6 * 365 * 86400.0, 30 * 365 * 86400.0])
def test_a_clock_that_is_far_off_is_refused_with_every_gate_open(offset: float) -> None:
    assert codes(clock(offset), *GATES) == ["E-CLOCK-01"]


def test_the_refusal_says_what_time_the_host_thinks_it_is() -> None:
    (problem,) = judge(
        frozenset(), Clock(at=0.0, offset=-NOW, synchronised=True, services=("chrony",))
    ).refused
    assert "1970-01-01" in str(problem.found)
    assert "behind the controller" in str(problem.found)


def test_an_offset_of_seconds_is_said() -> None:
    decision = judge(frozenset(), clock(-30.0))
    assert not decision.refused
    assert decision.notes == ("the clock is 30 s behind the controller (R64)",)


def test_an_unsynchronised_clock_needs_its_gate() -> None:
    assert GATE in GATES
    assert codes(clock(synchronised=False)) == ["E-CLOCK-02"]
    assert codes(clock(synchronised=None)) == ["E-CLOCK-02"]
    assert codes(clock(synchronised=False), GATE) == []


def test_two_time_services_are_refused_and_none_is_said() -> None:
    assert codes(clock(services=("chrony", "systemd-timesyncd"))) == ["E-CLOCK-03"]
    assert judge(frozenset(), clock(services=())).notes
