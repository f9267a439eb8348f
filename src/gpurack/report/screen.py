"""The run on a terminal: a line as things happen, and the last screen, all that a tired person reads."""

from __future__ import annotations

from collections.abc import Iterable

from gpurack.report.events import Changed, Event, Failed, Noted, Owed, RunBegan, Waiting

CONNECTING = "connect"  # pyinfra says itself that a host did not connect


def line(event: Event) -> str | None:
    """What to show at once for `event`; None when it can wait for the last screen."""
    match event:
        case Changed():
            return event.reason
        case Owed():
            return f"owed ({event.disruption}): {event.reason}"
        case Noted():
            return f"note: {event.text}"
        case Waiting():
            return f"{event.seconds} of {event.deadline} s: waiting for {event.reason}"
        case Failed() if event.operation != CONNECTING:
            return f"{event.problem.code}  {event.problem.what}" + (
                f": {event.problem.found}" if event.problem.found else ""
            )
        case _:
            return None


def last(events: Iterable[Event], *, owed: Iterable[Owed], report: str | None, code: int) -> list[str]:
    """The last screen: failed hosts with cause and next step, what is owed, where the report lies."""
    events = list(events)
    failed = sorted((event for event in events if isinstance(event, Failed)), key=lambda item: item.host)
    text: list[str] = []
    if failed:
        text += ["", "FAILED"]
        for item in failed:
            text += _failure(item)
    owed = list(owed)
    if owed:
        text += ["", "OWED: these hosts serve workloads, so the following waits for a window"]
        width = max(len(item.host) for item in owed)
        text += [
            f"  {item.host:<{width}}  {item.disruption}: {item.reason}  [{item.operation}]"
            for item in sorted(owed, key=lambda item: (item.host, item.operation))
        ]
    notes = [event for event in events if isinstance(event, Noted)]
    if notes:
        text += ["", "NOTES"]
        text += [f"  {item.host}: {item.text}" for item in notes]
    began = next((event for event in events if isinstance(event, RunBegan)), None)
    text.append("")
    if began and began.accepted:
        text.append(f"accepted gates: {', '.join(began.accepted)}")
    if code >= 128:
        text.append("interrupted: run the same command again, it goes on from what it finds")
    if report:
        text.append(f"report: {report}")
    return text if len(text) > 1 else []


def _failure(item: Failed) -> list[str]:
    text = [f"  {row}" for row in str(item.problem).split("\n")]
    if item.operation != "?":
        text.append(f"    during  {item.operation}")
    for label, rows in (("journal", item.journal), ("state", item.left)):
        text += [f"    {label if not index else '':<7} {row}" for index, row in enumerate(rows)]
    if item.log:
        text.append(f"    log     {item.log}")
    return text
