"""The last screen and the JSON report of one run, from its events."""

from __future__ import annotations

import json

from gpurack.errors import Problem
from gpurack.report import document, screen
from gpurack.report.events import (
    Changed,
    Event,
    Failed,
    HostConnected,
    Noted,
    Owed,
    RunBegan,
    RunEnded,
    StepDone,
    Waiting,
)

PROBLEM = Problem(
    code="E-STEP-05",
    what="install kubelet: failed",
    host="b",
    found="exit 100: dpkg broke",
    next="dpkg --audit",
)
OWED = Owed(host="c", operation="kubelet", reason="policy none, wanted static (2 pods)", disruption="drain")
EVENTS: list[Event] = [
    RunBegan(
        run="r1",
        site="lab",
        file="lab.yaml",
        command=("pyinfra", "x"),
        dry=False,
        accepted=("cgroup-v1",),
        hosts=("a", "b", "c", "d"),
    ),
    HostConnected(host="c"),
    HostConnected(host="b"),
    HostConnected(host="a"),
    Changed(host="a", operation="swap", reason="swap is on", disruption="none", steps=("swapoff", "mask")),
    StepDone(host="a", operation="swap", step="swapoff", seconds=0.1),
    OWED,
    Noted(host="a", text="a reboot is pending"),
    Failed(
        host="b",
        operation="packages",
        problem=PROBLEM,
        journal=("line 1", "line 2"),
        left=("done: write a", "not done: install"),
        log="/state/r1.b.log",
    ),
    Failed(host="d", operation="connect", problem=Problem(code="E-SSH-04", what="no answer", host="d")),
    RunEnded(exit_code=1, seconds=2.0),
]


def test_the_report_says_per_host_what_became_of_it() -> None:
    report = document.build(EVENTS, owed=[OWED])
    assert json.loads(json.dumps(report)) == report
    assert list(report["hosts"]) == ["a", "b", "c", "d"]
    assert {name: host["outcome"] for name, host in report["hosts"].items()} == {
        "a": "changed",
        "b": "failed",
        "c": "owed",
        "d": "failed",
    }
    assert report["hosts"]["a"]["changes"][0]["done"] == [{"step": "swapoff", "seconds": 0.1}]
    assert report["hosts"]["b"]["problems"][0] == {
        "operation": "packages",
        "code": "E-STEP-05",
        "what": "install kubelet: failed",
        "found": "exit 100: dpkg broke",
        "next": "dpkg --audit",
        "journal": ["line 1", "line 2"],
        "left": ["done: write a", "not done: install"],
        "log": "/state/r1.b.log",
    }
    assert (report["accepted"], report["exit_code"], report["run"]) == (["cgroup-v1"], 1, "r1")


def test_a_report_without_any_event_is_still_one() -> None:
    assert document.build([], owed=[])["hosts"] == {}


def test_the_last_screen_says_code_cause_journal_state_next_and_log_of_each_failed_host() -> None:
    text = "\n".join(screen.last(EVENTS, owed=[OWED], report="/state/r1.json", code=1))
    for wanted in (
        "E-STEP-05  b: install kubelet: failed",
        "exit 100: dpkg broke",
        "line 2",
        "not done: install",
        "dpkg --audit",
        "/state/r1.b.log",
        "E-SSH-04  d: no answer",
        "accepted gates: cgroup-v1",
        "report: /state/r1.json",
        "a: a reboot is pending",
    ):
        assert wanted in text
    assert text.index("FAILED") < text.index("OWED") < text.index("NOTES")
    assert "c  drain: policy none, wanted static (2 pods)  [kubelet]" in text


def test_a_quiet_run_has_a_quiet_end() -> None:
    assert screen.last([], owed=[], report=None, code=0) == []
    assert "interrupted" in screen.last([], owed=[], report="x", code=130)[1]


def test_signs_of_life_name_what_is_waited_for() -> None:
    event = Waiting(host="a", reason="containerd answers", seconds=5, deadline=60)
    assert screen.line(event) == "5 of 60 s: waiting for containerd answers"
    assert screen.line(StepDone(host="a", operation="o", step="s", seconds=1)) is None
