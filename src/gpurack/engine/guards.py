"""What stock pyinfra lets pass in silence or answers with a traceback ends in one clear line and exit 1 here.

Importing the connector is enough: pyinfra loads every connector before it starts a run. Each private name
that is touched has a contract test in tests/contract.
"""

from __future__ import annotations

import atexit
import inspect
import logging
import signal
import sys
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
import pyinfra.api.util
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.state import State, StateStage

from gpurack.engine import redaction
from gpurack.engine.run import current
from gpurack.errors import GpurackError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyinfra.api.config import Config
    from pyinfra.api.inventory import Inventory

    from gpurack.engine.ending import Ending

_NO_PROMPT = {"debug-inventory", "fact", "exec"}


def install() -> None:
    """Guard every run of pyinfra in this process; once."""
    if getattr(State.init, "guarded_by_gpurack", False):
        return
    stock = State.init

    def init(self: State, inventory: Inventory, config: Config | None, initial_limit: Any = None) -> None:
        context = click.get_current_context(silent=True)
        if context and "inventory" in context.params:
            refuse_silent_success(context.params, inventory, initial_limit)
        stock(self, inventory, config, initial_limit=initial_limit)

    init.guarded_by_gpurack = True  # type: ignore[attr-defined]
    State.init = init  # type: ignore[method-assign]
    # pyinfra orders operations by the line numbers of a stack, and has the source text of every frame looked
    # up for it: a walk through all modules, for each operation on each host.
    pyinfra.api.util.stack = partial(inspect.stack, 0)  # type: ignore[attr-defined]
    pyinfra.api.util.getframeinfo = partial(inspect.getframeinfo, context=0)  # type: ignore[attr-defined]
    # paramiko prints tracebacks of its own thread for every host that hangs up.
    logger = logging.getLogger("paramiko")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False


def refuse_silent_success(parameters: dict[str, Any], inventory: Inventory, limit: Any) -> None:
    """`SystemExit` with one line when the run would touch no host, or could not ask before it touches one."""
    name = parameters["inventory"]
    if not len(inventory):
        hint = "it names no host" if Path(name).exists() else "there is no such file or host"
        raise SystemExit(f"inventory {name}: {hint}")
    for option in ("limit", "exclude"):
        for pattern in parameters.get(option) or ():
            known = pattern in inventory.groups or any(fnmatch(host.name, pattern) for host in inventory)
            if not known:
                raise SystemExit(f"--{option} {pattern}: no host, pool, rack or role of {name} is called so")
    if limit is not None and not limit:
        raise SystemExit(f"no host of {name} is left after --limit and --exclude")
    operations = parameters.get("operations") or ("",)
    asks = not any(
        parameters.get(option) for option in ("yes", "dry", "json_output", "debug_facts", "debug_operations")
    )
    if asks and operations[0] not in _NO_PROMPT and not sys.stdin.isatty():
        raise SystemExit(
            "there is no terminal to confirm the changes on: add --yes to make them, or --dry to see them"
        )


_adopted: set[int] = set()
_endings: list[Ending] = []


def adopt(state: State) -> None:
    """Make a run with our hosts end well: signals, dead hosts, report. Every connector calls it."""
    if id(state) in _adopted:
        return
    _adopted.add(id(state))
    context = click.get_current_context(silent=True)
    if context is None or "inventory" not in context.params:
        return  # embedded by somebody else, who has the process
    # A host that is lost must not end the run for the others, not with --dry either.
    state.config.FAIL_PERCENT = None
    state.should_raise_failed_hosts = None
    # Every host is thought through to its end before the first change, with --yes too (pyinfra would not):
    # a host that can't become a node is refused as it was found, and `--yes --dry` is a dry run.
    state.check_for_changes = True
    current().pauses = not context.params.get("yes") or bool(context.params.get("dry"))
    _let_all_fail(state)
    _show_our_errors()
    _catch_signals(state)
    if context.params["operations"][0] not in _NO_PROMPT:
        from gpurack.engine.ending import Ending

        ending = Ending(state, dry=bool(context.params.get("dry")))
        _endings.append(ending)
        state.add_callback_handler(ending)  # type: ignore[no-untyped-call]
        atexit.register(ending.finish)


class _Order(list[str]):
    """The order of operations, which ends early when no host is left to carry them out."""

    state: State

    def __iter__(self) -> Iterator[str]:
        for each in list.__iter__(self):
            if self.state.current_stage == StateStage.Execute and not self.state.active_hosts:
                return
            yield each


def _let_all_fail(state: State) -> None:
    """When the last host fails, results and report still come, not "No hosts remaining!" and a file name."""
    stock_fail, stock_order = state.fail_hosts, state.get_op_order

    def fail_hosts(hosts_to_fail: set[Any], activated_count: int | None = None) -> None:
        try:
            stock_fail(hosts_to_fail, activated_count)  # type: ignore[no-untyped-call]
        except PyinfraError:
            if state.active_hosts:
                raise
            # While connecting or preparing nothing is left to do or to ask; in execute the results follow.
            if state.current_stage < StateStage.Execute:
                raise SystemExit(1) from None

    def get_op_order() -> list[str]:
        order = _Order(stock_order())  # type: ignore[no-untyped-call]
        order.state = state
        return order

    state.fail_hosts = fail_hosts  # type: ignore[method-assign]
    state.get_op_order = get_op_order  # type: ignore[method-assign]


def _catch_signals(state: State) -> None:
    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        signal.signal(number, signal.SIG_IGN)
        current().interrupted = number
        # Hosts that are busy are let go; closing their connections ends what runs there.
        state.pool.kill(block=False)
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _show_our_errors() -> None:
    """Deploy code that raises one of our errors ends in its problems, not in a traceback."""
    errors = sys.modules.get("pyinfra_cli.exceptions")
    if errors is None or getattr(errors, "guarded_by_gpurack", False):
        return
    errors.guarded_by_gpurack = True  # type: ignore[attr-defined]
    for name in ("WrappedError", "CliError", "UnexpectedExternalError", "UnexpectedInternalError"):
        cls = getattr(errors, name)
        cls.show = _show(cls.show)
    # pyinfra-debug.log is written past the streams.
    mixin = errors.UnexpectedMixin
    for name in ("get_traceback", "get_exception"):
        setattr(mixin, name, _masked(getattr(mixin, name)))


def _show(stock: Any) -> Any:
    def show(self: Any, file: Any = None) -> None:
        error = getattr(self, "exception", self)
        if isinstance(error, GpurackError):
            click.echo(str(error), err=True)
        else:
            stock(self, file)
        for ending in _endings:
            ending.broke(str(error) or type(error).__name__)

    return show


def _masked(stock: Any) -> Any:
    def text(self: Any) -> str:
        return redaction.mask(stock(self))

    return text
