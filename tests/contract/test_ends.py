"""How runs end: exit codes, what is left on hosts, what the last screen and the report say."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.contract.trio import HOSTS, Trio

OWES = """
@operation()
@guarded
def change(*, what):
    set_live(this_node().name == "gpu-1", "two pods run")
    steps = (Write(path=f"{BASE}/{what}", content="x"),)
    yield from carry_out(Decision(reason=f"{what} is not there", steps=steps, disruption=Disruption.DRAIN))

change(name="change one", what="one")
"""

SLOW = """
import pathlib

@operation()
@guarded
def slow():
    at_end(lambda: pathlib.Path("ended").write_text("once"))
    once("mark", lambda: pathlib.Path("began").write_text(""))
    steps = (Run(script="echo $$ >{base}/pid; sleep 300 & sleep 300", why="sleep", deadline=400),)
    yield from carry_out(Decision(reason="because", steps=steps))

slow(name="slow")
"""


def wait_for(trio: Trio, name: str, path: str) -> int:
    """The pid that host `name` wrote to `path`."""
    for _ in range(300):
        file = trio.on(name, path)
        if file.exists() and file.read_text().strip():
            return int(file.read_text())
        time.sleep(0.05)
    raise AssertionError(f"{name} never wrote {path}")


def group_is_gone(pid: int) -> bool:
    for _ in range(80):
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_live_host_owes_what_disturbs_it_and_the_run_exits_3(trio: Trio) -> None:
    result = trio.run(OWES, "--yes", "--json")
    assert result.code == 3
    assert '"operation"' in result.out or result.out.lstrip().startswith("{")
    assert not trio.on("gpu-1", "one").exists()
    assert trio.on("gpu-2", "one").exists()
    assert result.report["hosts"]["gpu-1"]["owed"] == [
        {"operation": "change one", "reason": "one is not there (two pods run)", "disruption": "drain"}
    ]
    assert "OWED" in result.err
    assert result.report["exit_code"] == 3


def test_a_dry_run_owes_too_and_writes_nothing(trio: Trio) -> None:
    result = trio.run(OWES, "--dry")
    assert result.code == 3
    assert not any(trio.on(name, "one").exists() for name in HOSTS)
    assert result.report["dry"] is True


def test_a_dry_run_goes_on_past_a_dead_host_and_exits_1_for_a_refusal(trio: Trio) -> None:
    trio.daemons["cp-1"].kill()
    trio.daemons["cp-1"].wait()
    try:
        result = trio.run(
            """
@operation()
@guarded
def refused():
    problem = Problem(code="E-TEST-01", what="the wrong kind of host")
    yield from carry_out(refuse(problem) if this_node().name == "gpu-2" else settled("fine"))

refused(name="refuses")
""",
            "--dry",
        )
    finally:
        trio.boot("cp-1")
    assert result.code == 1
    codes = {name: [one["code"] for one in host["problems"]] for name, host in result.report["hosts"].items()}
    assert codes == {"cp-1": ["E-SSH-04"], "gpu-1": [], "gpu-2": ["E-TEST-01"]}
    assert "Traceback" not in result.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_and_what_runs_on_hosts(trio: Trio, number: int, code: int) -> None:
    process = trio.popen("inventories/bench", trio.deploy(SLOW.replace("{base}", str(trio.base))), "--yes")
    pids = [wait_for(trio, name, "pid") for name in HOSTS]
    process.send_signal(number)
    result = trio.finish(process)
    assert result.code == code
    assert all(group_is_gone(pid) for pid in pids)
    assert (trio.folder / "ended").read_text() == "once"
    assert result.report["exit_code"] == code
    assert "Traceback" not in result.err
    (trio.folder / "ended").unlink()


def test_kill_9_of_the_controller_ends_the_remote_process_group(trio: Trio) -> None:
    process = trio.popen("inventories/bench", trio.deploy(SLOW.replace("{base}", str(trio.base))), "--yes")
    pids = [wait_for(trio, name, "pid") for name in HOSTS]
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert all(group_is_gone(pid) for pid in pids)


def test_kill_9_in_the_middle_of_an_upload_leaves_the_old_file_and_no_rest(trio: Trio) -> None:
    body = """
@operation()
@guarded
def put(*, text):
    slow = f"echo $$ >{BASE}/pid; " + ("sleep 300" if text == "new" else "true")
    steps = (Write(path=f"{BASE}/file", content=text, mode=0o640, validate=slow),)
    yield from carry_out(Decision(reason="because", steps=steps))

put(name="old", text="old")
put(name="new", text="new")
"""
    process = trio.popen("inventories/bench", trio.deploy(body), "--yes", "--limit", "gpu-1")
    for _ in range(300):
        if list(trio.on("gpu-1", ".").glob(".gpurack.*")) and trio.on("gpu-1", "file").exists():
            break
        time.sleep(0.02)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    for _ in range(100):
        if not list(trio.on("gpu-1", ".").glob(".gpurack.*")):
            break
        time.sleep(0.05)
    assert trio.on("gpu-1", "file").read_text() == "old"
    assert not list(trio.on("gpu-1", ".").glob(".gpurack.*"))


def test_when_every_host_fails_results_and_report_still_come(trio: Trio) -> None:
    body = """
@operation()
@guarded
def fail():
    yield from carry_out(Decision(reason="because", steps=(Run(script="echo broken pipe >&2; exit 9", why="try"),)))

fail(name="fails everywhere")
fail(name="never reached")
"""
    result = trio.run(body)
    assert result.code == 1
    assert "Grand total" in result.err
    assert "Starting operation: never reached" not in result.err
    problem = result.report["hosts"]["gpu-1"]["problems"][0]
    assert problem["code"] == "E-STEP-01"
    assert problem["found"] == "exit 9: broken pipe"
    assert problem["left"] == ["not done: try"]
    assert "broken pipe" in open(problem["log"]).read()
    dry = trio.run(
        body.replace("yield from", "raise Refused(Problem(code='E-TEST-02', what='no')); yield from"), "--dry"
    )
    assert dry.code == 1
    assert "No hosts remaining" not in dry.err
    assert [host["problems"][0]["code"] for host in dry.report["hosts"].values()] == ["E-TEST-02"] * 3


def test_an_exception_is_one_line_and_fails_its_host_only(trio: Trio) -> None:
    result = trio.run(
        """
@operation()
@guarded
def breaks():
    if this_node().name == "gpu-1":
        {}["missing"]
    yield from carry_out(settled("fine"))

breaks(name="breaks")
"""
    )
    assert result.code == 1
    assert result.report["hosts"]["gpu-1"]["problems"][0]["code"] == "E-RUN-03"
    assert result.report["hosts"]["gpu-2"]["outcome"] == "as wanted"
    assert "Traceback" not in result.err


def test_deploy_code_that_raises_our_error_ends_in_its_problem(trio: Trio) -> None:
    result = trio.run(
        "raise Refused(Problem(code='E-TEST-03', what='no API yet', next='run control_plane.py'))"
    )
    assert result.code == 1
    assert "E-TEST-03  no API yet" in result.err
    assert "run control_plane.py" in result.err
    assert "Traceback" not in result.err
