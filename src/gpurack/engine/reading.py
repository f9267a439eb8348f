"""Facts: each is read once until something changes on the host; all that are due travel in one command."""

from __future__ import annotations

import inspect
import secrets
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyinfra import logger
from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.facts import FactBase

from gpurack.defaults import BATCH_LIMIT, READ_LIMIT
from gpurack.engine.channel import Answer, ConnectionLost, TookTooLong
from gpurack.engine.run import current, executing, this_host
from gpurack.errors import Lost, Problem
from gpurack.facts.probe import Probe

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from gpurack.engine.connector import GpurackConnector

T = TypeVar("T")
Key = tuple[type[FactBase[Any]], tuple[tuple[str, Any], ...]]


@dataclass(slots=True)
class _Known:
    """What is known about one host. `raw` holds answers that nobody has asked for yet."""

    values: dict[Key, Any]
    raw: dict[type[Probe[Any]], Answer]
    while_executing: bool = False
    batches: bool = True  # until something changes or one of them hangs


_known: dict[str, _Known] = {}


def read(fact: type[FactBase[T]], **arguments: Any) -> T:
    """The value of `fact` on this host; the only way to read one.

    Kept until the first change on the host. `Lost` when the fact failed: nothing may be decided then.
    """
    host = this_host()
    if not issubclass(fact, Probe):
        return _read_stock(host, fact, arguments)
    known = _known_about(host)
    key: Key = (fact, tuple(sorted(arguments.items())))
    if key not in known.values:
        known.values[key] = _value(host, known, fact, arguments)
    return cast("T", known.values[key])


def forget(host: str) -> None:
    """Something changed on `host`: nothing is known about it any more.

    From now on facts are read one by one, as operations ask: a batch after every change would cost more
    than it saves.
    """
    if host in _known:
        _known[host].values.clear()
        _known[host].raw.clear()
        _known[host].batches = False


def forget_here() -> None:
    """Something changed on this host in a way that no step shows (through the API, for instance)."""
    forget(this_host().name)


def _known_about(host: Host) -> _Known:
    known = _known.setdefault(host.name, _Known(values={}, raw={}))
    if executing() and not known.while_executing and current().pauses:
        # Between preparing and executing a person may have read the plan for an hour.
        known.while_executing = True
        forget(host.name)
        known.batches = True
    return known


def _value(host: Host, known: _Known, fact: type[Probe[T]], arguments: dict[str, Any]) -> T:
    if not arguments and _batched(fact):
        if fact not in known.raw and known.batches:
            _fetch_batch(host, known, fact)
        answer = known.raw.get(fact) or _fetch(host, fact, arguments)
    else:
        answer = _fetch(host, fact, arguments)
    if answer.code != 0:
        said = "; ".join(answer.tail) or "it said nothing"
        raise _lost(fact, f"exit {answer.code}: {said}")
    try:
        value = fact().process(answer.out.split("\n"))
    except FactProcessError as error:
        said = answer.err.strip()
        told = f"its output can't be understood: {error}" + (f"; it said: {said[-300:]}" if said else "")
        raise _lost(fact, told) from error
    logger.debug("%sread %s", host.print_prefix, fact.__name__)
    return value


def _connector_of(host: Host) -> GpurackConnector:
    from gpurack.engine.connector import connector_of

    return connector_of(host)


def _fetch(host: Host, fact: type[Probe[Any]], arguments: dict[str, Any]) -> Answer:
    command = fact().command(**arguments)
    try:
        return _connector_of(host).ask(str(command), limit=READ_LIMIT)
    except TookTooLong as error:
        raise _lost(fact, f"{error}; its processes were ended") from error
    except ConnectionLost as error:
        raise _lost(fact, str(error)) from error


def _lost(fact: type[Probe[Any]], found: str) -> Lost:
    return Lost(
        Problem(
            code="E-FACT-01",
            what=f"{fact.__name__} could not be read, so nothing is decided or written on this host",
            found=found,
            next="cure what the host says, then run the same command again",
        )
    )


# ------------------------------------------------------------------------------------ many at once
def _batched(fact: type[Probe[Any]]) -> bool:
    return bool(getattr(fact, "prefetch", True)) and len(inspect.signature(fact.command).parameters) == 1


def _due(known: _Known, first: type[Probe[Any]]) -> list[type[Probe[Any]]]:
    """`first` and every other fact without arguments that this process has imported and does not know yet."""
    found: dict[type[Probe[Any]], None] = {first: None}
    todo: list[type[Any]] = list(Probe.__subclasses__())
    while todo:
        fact = todo.pop()
        todo.extend(fact.__subclasses__())
        fresh = fact not in known.raw and (fact, ()) not in known.values
        if fresh and isinstance(getattr(fact, "script", None), str) and _batched(fact):
            found[fact] = None
    return list(found)


def _fetch_batch(host: Host, known: _Known, first: type[Probe[Any]]) -> None:
    facts = _due(known, first)
    if len(facts) == 1:
        return
    mark = f"gpurack-{secrets.token_hex(8)}"
    try:
        script = batch_script([str(fact().command()) for fact in facts], mark)
        answer = _connector_of(host).ask(script, limit=BATCH_LIMIT)
    except TookTooLong as error:
        # One of them hangs. What came before it counts; from here on each is read alone, so that only the
        # operation that needs the hanging one fails.
        known.batches = False
        answer = error.answer
    except ConnectionLost as error:
        raise _lost(first, str(error)) from error
    for index, one in split_batch(answer.out, mark).items():
        known.raw[facts[index]] = one


def batch_script(scripts: list[str], mark: str) -> str:
    """One script that runs all `scripts`, each in a subshell of its own, and reports on them apart.

    A syntax error or an `exit` in one does not touch the others.
    """
    parts = ["exec 4>&1"]
    for index, script in enumerate(scripts):
        parts.append(
            f"e=$(eval {shlex.quote(script)} 2>&1 >&4 4>&- </dev/null); "
            f'printf "\\n{mark} {index} %s\\n%s\\n{mark} end\\n" $? "$e"'
        )
    return "\n".join([*parts, "exit 0"])


def split_batch(text: str, mark: str) -> dict[int, Answer]:
    """The answers in what `batch_script` printed, by index; an incomplete last one is left out."""
    answers: dict[int, Answer] = {}
    out: list[str] = []
    err: list[str] | None = None
    index = code = 0
    for line in text.split("\n"):
        if line == f"{mark} end" and err is not None:
            while err and not err[-1]:
                err.pop()
            if out and not out[-1]:  # the line break before the mark
                out.pop()
            answers[index] = Answer(code, (*((False, one) for one in out), *((True, one) for one in err)))
            out, err = [], None
        elif line.startswith(f"{mark} ") and err is None:
            _, number, status = line.split(" ")
            index, code, err = int(number), int(status), []
        elif err is None:
            out.append(line)
        else:
            err.append(line)
    return answers


def _read_stock(host: Host, fact: type[FactBase[T]], arguments: dict[str, Any]) -> T:
    """One of pyinfra's own facts: not kept, and its failure (which pyinfra turns into a default) is seen."""
    value = host.get_fact(fact, **arguments)
    if any(failed.name == host.name for failed in host.state.failed_hosts):
        raise Lost(
            Problem(
                code="E-FACT-01",
                what=f"{fact.__name__} could not be read, so nothing is decided or written on this host",
                next="cure what the host says, then run the same command again",
            )
        )
    return value
