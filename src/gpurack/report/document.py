"""The JSON report: what was wanted, done, owed and refused, per host, with the evidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from gpurack.errors import Problem
from gpurack.report.events import (
    Changed,
    Event,
    Failed,
    HostConnected,
    Noted,
    Owed,
    RunBegan,
    RunBroke,
    RunEnded,
    StepDone,
)

FORMAT = 1  # raised when a field changes its meaning; fields may be added


def build(events: Iterable[Event], *, owed: Iterable[Owed]) -> dict[str, Any]:
    """The report as plain data; hosts in the order of the document."""
    report: dict[str, Any] = {"format": FORMAT, "accepted": [], "hosts": {}}
    hosts: dict[str, dict[str, Any]] = {}

    order: dict[str, int] = {}

    def of(name: str) -> dict[str, Any]:
        empty: dict[str, Any] = {"outcome": "lost", "changes": [], "owed": [], "notes": [], "problems": []}
        return hosts.setdefault(name, empty)

    for event in events:
        match event:
            case RunBegan():
                report |= {
                    "run": event.run,
                    "site": event.site,
                    "document": event.file,
                    "command": list(event.command),
                    "dry": event.dry,
                    "accepted": list(event.accepted),
                }
                order = {name: index for index, name in enumerate(event.hosts)}
            case HostConnected():
                of(event.host)["outcome"] = "as wanted"
            case Changed():
                same = [one for one in of(event.host)["changes"] if one["operation"] == event.operation]
                if not same or same[-1]["reason"] != event.reason:
                    of(event.host)["changes"].append(
                        {
                            "operation": event.operation,
                            "reason": event.reason,
                            "disruption": event.disruption,
                            "steps": list(event.steps),
                            "done": [],
                        }
                    )
            case StepDone():
                changes = [one for one in of(event.host)["changes"] if one["operation"] == event.operation]
                if changes:
                    changes[-1]["done"].append({"step": event.step, "seconds": event.seconds})
            case Noted():
                of(event.host)["notes"].append(event.text)
            case Failed():
                of(event.host)["problems"].append(_failure(event))
            case RunBroke():
                report["error"] = event.what
            case RunEnded():
                report |= {"exit_code": event.exit_code, "seconds": event.seconds}
            case _:
                pass
    for item in owed:
        of(item.host)["owed"].append(
            {"operation": item.operation, "reason": item.reason, "disruption": item.disruption}
        )
    for host in hosts.values():
        if host["problems"]:
            host["outcome"] = "failed"
        elif host["owed"]:
            host["outcome"] = "owed"
        elif any(change["done"] for change in host["changes"]):
            host["outcome"] = "changed"
    report["hosts"] = {
        name: hosts[name] for name in sorted(hosts, key=lambda name: order.get(name, len(order)))
    }
    return report


def _failure(event: Failed) -> dict[str, Any]:
    return {
        "operation": event.operation,
        **_problem(event.problem),
        "journal": list(event.journal),
        "left": list(event.left),
        "log": event.log,
    }


def _problem(problem: Problem) -> dict[str, Any]:
    found = asdict(problem)
    found["where"] = str(problem.where) if problem.where else None
    return {key: value for key, value in found.items() if value is not None and key != "host"}
