from __future__ import annotations

from dataclasses import replace

import pytest

from gpurack.decide.liveness import Api, Signs, judge
from tests.unit.decide.test_cni import node

READY = node("gpu-1")
AWAY = replace(READY, ready=False)
QUIET = Signs()


@pytest.mark.parametrize(
    ("found", "member", "api", "mine", "live"),
    [
        pytest.param(QUIET, False, Api.NONE, None, False, id="bare, no cluster yet"),
        pytest.param(QUIET, False, Api.SILENT, None, False, id="never joined, API silent"),
        pytest.param(QUIET, True, Api.SILENT, None, True, id="joined, API silent"),
        pytest.param(QUIET, True, Api.ANSWERS, READY, True, id="Ready"),
        pytest.param(QUIET, True, Api.ANSWERS, AWAY, False, id="NotReady and empty"),
        pytest.param(QUIET, True, Api.ANSWERS, None, False, id="half-joined, no Node"),
        pytest.param(
            Signs(workloads=("ml/train/c",)), True, Api.ANSWERS, AWAY, True, id="NotReady, workload runs"
        ),
        pytest.param(
            Signs(workloads=("ml/train/c",)), False, Api.NONE, None, True, id="workload without cluster"
        ),
        pytest.param(
            Signs(gpu_users=("77 python",)), False, Api.ANSWERS, None, True, id="a process holds a GPU"
        ),
        pytest.param(
            Signs(blind=True), True, Api.ANSWERS, AWAY, True, id="containers, runtime does not answer"
        ),
    ],
)
def test_a_host_is_live_by_any_sign_of_work(
    found: Signs, member: bool, api: Api, mine: object, live: bool
) -> None:
    answer, why = judge(found, member=member, api=api, node=mine)  # type: ignore[arg-type]
    assert answer is live
    assert why
