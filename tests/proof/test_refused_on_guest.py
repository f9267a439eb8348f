"""What only a host with its own kernel can get wrong: swap that returns, a clock years off (must show 7)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import cases, harness
from tests.lab.cases import assert_refused

pytestmark = [pytest.mark.lab, pytest.mark.vm]

GUEST = "gpu-3"
WITNESS = f"{GUEST},cp-1"


@pytest.fixture(scope="module")
def bare(joined_rack: Path) -> Iterator[Path]:
    """The guest as after its first boot; it is a member again when the module is done."""
    cases.make_bare(GUEST, site=joined_rack)
    yield joined_rack
    harness.pyinfra("inventories/lab_vm", "deploys/gpu_node.py", "--limit", GUEST, timeout=900).ok()


@pytest.mark.parametrize("moved", ["5 years ago", "5 years"])
def test_a_clock_years_off_is_refused_before_anything_is_written(
    bare: Path, tmp_path: Path, moved: str
) -> None:
    case = cases.case(tmp_path, of="lab_vm")
    before = cases.state_of(GUEST, site=bare)
    harness.ssh(GUEST, f"date -s '{moved}'", site=bare).ok()
    try:
        ran = case.run(limit=WITNESS)
    finally:
        harness.ssh(GUEST, f"date -s @{harness.run('date', '+%s').out.strip()}", site=bare).ok()

    direction = "behind" if moved.endswith("ago") else "ahead of"
    assert_refused(ran, "E-CLOCK-01", GUEST, "the clock is wrong", direction, "correct the clock")
    cases.assert_fails_alone(case, GUEST)
    assert cases.state_of(GUEST, site=bare) == before


# A tool that likes swap: what gpurack turns off is on again before it looks.
AGAIN = (
    "fallocate -l 16M /swapfile; chmod 600 /swapfile; mkswap -q /swapfile; "
    "systemd-run --quiet --unit swap-keeper "
    "sh -c 'while :; do grep -q /swapfile /proc/swaps || swapon /swapfile; sleep 0.05; done'"
)
GONE = "systemctl stop swap-keeper; swapoff /swapfile; rm -f /swapfile"


def test_swap_that_comes_back_is_named_and_nothing_else_is_begun(bare: Path, tmp_path: Path) -> None:
    case = cases.case(tmp_path, of="lab_vm")
    harness.ssh(GUEST, f"set -e; {AGAIN}", site=bare).ok()
    try:
        harness.until(
            lambda: harness.ssh(GUEST, "grep /swapfile /proc/swaps", site=bare).rc == 0, "swap is on", 20
        )
        before = cases.state_of(GUEST, site=bare)
        ran = case.run(limit=WITNESS)
        after = cases.state_of(GUEST, site=bare)
    finally:
        harness.ssh(GUEST, GONE, site=bare)

    assert_refused(ran, "E-PROOF-01", GUEST, "/swapfile", "find out what puts it back")
    cases.assert_fails_alone(case, GUEST)
    for fact in ("packages", "selections", "local", "leftovers"):
        assert after[fact] == before[fact]
