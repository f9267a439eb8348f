"""Operations: a decision is carried out step by step, and whatever goes wrong fails this host only."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from pyinfra import logger
from pyinfra.api.command import PyinfraCommand

from gpurack.decide.decision import Await, Decision, Disruption, Step, Transact, Unit, Write
from gpurack.engine import lock
from gpurack.engine.channel import Answer, ConnectionLost, TookTooLong
from gpurack.engine.diff import show_differences
from gpurack.engine.reading import forget
from gpurack.engine.redaction import mask
from gpurack.engine.run import current, executing, liveness, this_host
from gpurack.engine.steps import NOT_IN_TIME, Order, order
from gpurack.errors import GpurackError, Problem, Refused
from gpurack.report.events import Changed, Failed, Owed, StepDone

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

P = ParamSpec("P")
_STALE_LIMIT = 3  # times that an operation is thought through again because another run came first


def guarded(
    function: Callable[P, Iterator[PyinfraCommand]],
) -> Callable[P, Generator[PyinfraCommand, None, None]]:
    """Under `@operation()`: an exception fails this host only, with its problems on the last screen.

    pyinfra would end the whole run for an exception, or carry on with the default of a failed fact.
    """

    @wraps(function)
    def operation(*args: P.args, **kwargs: P.kwargs) -> Generator[PyinfraCommand, None, None]:
        host = this_host()
        if not executing() and host in host.state.failed_hosts:
            return
        for turn in range(1, _STALE_LIMIT + 1):
            try:
                yield from function(*args, **kwargs)
            except lock.OvertakenError as error:
                # Nothing was done yet; what was read is older than what the other run did.
                forget(host.name)
                if turn == _STALE_LIMIT:
                    yield from _give_up(host, error.problems)
            except GpurackError as error:
                yield from _give_up(host, error.problems)
                return
            except Exception as error:  # noqa: BLE001 - that is its purpose
                yield from _give_up(host, (_internal(error),))
                return
            else:
                return

    return operation


def carry_out(decision: Decision) -> Iterator[PyinfraCommand]:
    """The commands for `decision`, in order; none when there is nothing to do, or when a live host owes it.

    `Refused` when the decision is a refusal. While executing, the host's lock is taken before the first step.
    """
    host = this_host()
    run = current()
    operation = _operation_name(host)
    for text in decision.notes:
        run.note(host.name, text)
    if decision.refused:
        raise Refused(problem if problem.host else problem.on(host.name) for problem in decision.refused)
    if not decision.steps:
        host.noop(decision.reason)
        return
    if decision.disruption > Disruption.NONE:
        live, why = liveness(host.name)
        if live:
            reason = f"{decision.reason} ({why})"
            run.owe(
                Owed(host=host.name, operation=operation, reason=reason, disruption=str(decision.disruption))
            )
            host.noop(f"owed: {decision.reason}")
            return
    if executing():
        lock.hold(host)
    show_differences(host, decision.steps)
    orders = [order(step) for step in decision.steps]
    if executing() or run.pauses:  # with --yes the plan is carried out at once: once is enough
        run.emit(
            Changed(
                host=host.name,
                operation=operation,
                reason=decision.reason,
                disruption=str(decision.disruption),
                steps=tuple(each.phrase for each in orders),
            )
        )
    for index, (step, each) in enumerate(zip(decision.steps, orders, strict=True)):
        left = tuple(
            [f"done: {other.phrase}" for other in orders[:index]]
            + [f"not done: {other.phrase}" for other in orders[index:]]
        )
        yield StepCommand(step, each, operation, left)


class StepCommand(PyinfraCommand):
    """One step on one host. Its representation shows no content."""

    def __init__(self, step: Step, given: Order, operation: str, left: tuple[str, ...]) -> None:
        super().__init__()
        self.step = step
        self.order = given
        self.operation = operation
        self.left = left

    def __repr__(self) -> str:
        return f"StepCommand({self.order.phrase})"

    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:  # noqa: ARG002
        """Whether it worked. Never raises: what went wrong is recorded for the last screen."""
        forget(host.name)
        host.log(self.order.phrase)
        began = time.monotonic()
        try:
            answer = perform(host, self.order)
        except (ConnectionLost, TookTooLong) as error:
            self._fail(host, error)
            return False
        except GpurackError as error:
            for problem in error.problems:
                _record(host, self.operation, problem, left=self.left)
            return False
        if answer.code != 0:
            self._fail(host, answer)
            return False
        seconds = round(time.monotonic() - began, 3)
        current().emit(
            StepDone(host=host.name, operation=self.operation, step=self.order.phrase, seconds=seconds)
        )
        return True

    def _fail(self, host: Host, found: Answer | ConnectionLost | TookTooLong) -> None:
        journal = () if isinstance(found, ConnectionLost) else journal_of(host, self.order.unit)
        answer = found if isinstance(found, Answer) else getattr(found, "answer", Answer(-1, ()))
        log = _keep_log(host, self.order, answer, journal)
        if self.order.log:
            log = f"{host.name}:{self.order.log}" + (f" and {log}" if log else "")
        problem = explain(self.step, self.order, found)
        _record(host, self.operation, problem, journal=journal, left=self.left, log=log)


class Refusal(PyinfraCommand):
    """Fails the operation on this host; what is to be said has been said."""

    def __repr__(self) -> str:
        return "Refusal()"

    def execute(self, state: State, host: Host, connector_arguments: Any) -> bool:  # noqa: ARG002
        return False


def explain(step: Step, given: Order, found: Answer | ConnectionLost | TookTooLong) -> Problem:
    """Why `step` did not work, and what to do."""
    again = "cure it, then run the same command again: it goes on from what it finds"
    if isinstance(found, ConnectionLost):
        return Problem(
            code="E-STEP-03",
            what=f"the connection was lost during: {given.phrase}",
            found=str(found),
            next="look whether the host is up, then run the same command again: it goes on from there",
        )
    if isinstance(found, TookTooLong):
        said = "; ".join(found.answer.tail)
        return Problem(
            code="E-STEP-02",
            what=f"took too long: {given.phrase}",
            found=f"{found}; its processes were ended" + (f"; it said: {said}" if said else ""),
            next=again,
        )
    said = "; ".join(found.tail) or "it said nothing"
    if isinstance(step, Await) and found.code == NOT_IN_TIME:
        return Problem(
            code="E-STEP-04",
            what=f"waited {step.deadline} s in vain: {step.reason}",
            found=said,
            next=again,
        )
    kinds: dict[type[Any], tuple[str, str]] = {
        Transact: ("E-STEP-05", "failed"),
        Unit: ("E-STEP-06", "failed"),
        Write: ("E-STEP-07", "not written, what was there before is still in place"),
    }
    code, what = kinds.get(type(step), ("E-STEP-01", "failed"))
    return Problem(code=code, what=f"{given.phrase}: {what}", found=f"exit {found.code}: {said}", next=again)


def perform(host: Host, given: Order) -> Answer:
    """Run one order on `host` with its lock held."""
    from gpurack.engine.connector import connector_of

    return connector_of(host).perform(given)


def journal_of(host: Host, unit: str | None) -> tuple[str, ...]:
    from gpurack.engine.connector import connector_of

    return connector_of(host).journal(unit)


def _give_up(host: Host, problems: tuple[Problem, ...]) -> Iterator[PyinfraCommand]:
    operation = _operation_name(host)
    for problem in problems:
        _record(host, operation, problem)
    if executing():
        yield Refusal()
        return
    host.state.fail_hosts({host})  # type: ignore[no-untyped-call]


def _record(
    host: Host,
    operation: str,
    problem: Problem,
    *,
    journal: tuple[str, ...] = (),
    left: tuple[str, ...] = (),
    log: str | None = None,
) -> None:
    problem = problem if problem.host else problem.on(host.name)
    current().fail(
        Failed(host=host.name, operation=operation, problem=problem, journal=journal, left=left, log=log)
    )


def _internal(error: Exception) -> Problem:
    import traceback

    # A person gets one line; whoever repairs gpurack gets the traceback with --debug.
    logger.debug("%s", "".join(traceback.format_exception(error)))
    place = traceback.extract_tb(error.__traceback__)[-1] if error.__traceback__ else None
    where = f" ({place.name}, line {place.lineno})" if place else ""
    return Problem(
        code="E-RUN-03",
        what="an operation of gpurack broke; nothing more is done on this host",
        found=f"{type(error).__name__}: {error}{where}",
        next="run again with --debug and report it",
    )


def _operation_name(host: Host) -> str:
    key = host.current_op_hash
    meta = host.state.op_meta.get(key) if key else None
    return ", ".join(sorted(meta.names)) if meta else "?"


def _keep_log(host: Host, given: Order, answer: Answer, journal: tuple[str, ...]) -> str | None:
    from gpurack.report.files import keep_log

    lines = [f"# {given.phrase}", *(line for _, line in answer.lines)]
    if journal:
        lines += [f"# journal of {given.unit}", *journal]
    return keep_log(host.name, lines, mask)
