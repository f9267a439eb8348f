"""How runs end: exit codes, what is left on hosts, what the last screen and the report say."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

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
    name = NODE
    once("end", lambda: at_end(lambda: pathlib.Path(f"ended-{name}").open("a").write("once")))
    steps = (Run(script=f"echo $$ >{BASE}/pid; sleep 300 & sleep 300", why="sleep", deadline=400),)
    yield from carry_out(Decision(reason="because", steps=steps))

slow(name="slow")
"""


BREAKS = """
@operation()
@guarded
def breaks():
    if this_node().name == "gpu-1":
        {}["missing"]
    yield from carry_out(settled("fine"))

breaks(name="breaks")
"""

RAISES = 'raise Refused(Problem(code="E-TEST-03", what="no API yet", next="run control_plane.py"))'

REFUSES = """
@operation()
@guarded
def refuses():
    yield from carry_out(refuse(Problem(code="E-TEST-02", what="no")))

refuses(name="refuses")
"""


def wait_for(trio: Trio, name: str, path: str) -> int:
    """The pid that host `name` wrote to `path`."""
    for _ in range(1200):
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
    deploy = trio.deploy(OWES)
    dry = trio.finish(trio.popen("inventories/bench", deploy, "--dry"))
    assert dry.code == 3
    assert dry.report["dry"] is True
    assert not any(trio.on(name, "one").exists() for name in HOSTS)
    result = trio.pyinfra("inventories/bench", deploy, "--yes", "--json")
    assert result.code == 3
    assert json.loads(result.out)
    assert not trio.on("gpu-1", "one").exists()
    assert trio.on("gpu-2", "one").exists()
    assert result.report["hosts"]["gpu-1"]["owed"] == [
        {"operation": "change one", "reason": "one is not there (two pods run)", "disruption": "drain"}
    ]
    assert result.err.index("OWED") > result.err.index("change one")
    assert result.report["exit_code"] == 3


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


def test_signals_and_kill_9_end_the_run_and_what_runs_on_hosts(trio: Trio) -> None:
    """Three runs at once, one per host: Ctrl-C, SIGTERM, SIGKILL."""
    deploy = trio.deploy(SLOW)
    ways = {"cp-1": signal.SIGINT, "gpu-1": signal.SIGTERM, "gpu-2": signal.SIGKILL}
    runs = {name: trio.popen("inventories/bench", deploy, "--yes", "--limit", name) for name in ways}
    pids = {name: wait_for(trio, name, "pid") for name in ways}
    for name, number in ways.items():
        runs[name].send_signal(number)
    results = {name: trio.finish(run) for name, run in runs.items()}
    assert {name: result.code for name, result in results.items()} == {"cp-1": 130, "gpu-1": 143, "gpu-2": -9}
    assert all(group_is_gone(pid) for pid in pids.values())
    for name in ("cp-1", "gpu-1"):
        assert (trio.folder / f"ended-{name}").read_text() == "once"
        assert "Traceback" not in results[name].err
        assert "interrupted" in results[name].err


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
    for _ in range(1200):
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
FAILING = (Run(script="echo broken pipe >&2; exit 9", why="try"),)

@operation()
@guarded
def fail():
    yield from carry_out(Decision(reason="because", steps=FAILING))

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
    assert "broken pipe" in Path(problem["log"]).read_text()


def test_no_error_of_ours_or_of_python_ends_in_a_traceback(trio: Trio) -> None:
    """In an operation it fails its host; in deploy code, or on every host, it ends the run."""
    broken = trio.popen("inventories/bench", trio.deploy(BREAKS), "--yes")
    raised = trio.popen("inventories/bench", trio.deploy(RAISES, "raises.py"), "--yes")
    refused = trio.popen("inventories/bench", trio.deploy(REFUSES, "refuses.py"), "--dry")
    one, two, three = (trio.finish(process) for process in (broken, raised, refused))
    for result in (one, two, three):
        assert result.code == 1
        assert "Traceback" not in result.err
    problems = one.report["hosts"]["gpu-1"]["problems"]
    assert [problem["code"] for problem in problems] == ["E-RUN-03"]
    assert one.report["hosts"]["gpu-2"]["outcome"] == "as wanted"
    assert "E-TEST-03  no API yet" in two.err
    assert "run control_plane.py" in two.err
    assert "No hosts remaining" not in three.err
    assert three.err.count("E-TEST-02  ") >= 3
