"""SIGKILL of the controller, one moment of each kind (the others: tests/proof/test_killed_everywhere.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import kill_cases
from tests.lab.kill_cases import Moment

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("moment", kill_cases.FEW, ids=lambda moment: moment.name)
def test_after_a_kill_the_same_command_converges_and_nothing_is_left(
    joined_rack: Path, moment: Moment
) -> None:
    kill_cases.kill(moment, site=joined_rack)
    kill_cases.assert_converges(moment.host, moment.deploy, site=joined_rack)
