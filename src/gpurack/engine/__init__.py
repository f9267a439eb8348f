"""The one place that knows pyinfra's internals. Roles, facts and operations use what is named here."""

from __future__ import annotations

from gpurack.engine.guarding import carry_out, guarded
from gpurack.engine.reading import forget_here as forget
from gpurack.engine.reading import read
from gpurack.engine.redaction import conceal
from gpurack.engine.run import (
    at_end,
    concerns,
    executing,
    once,
    resolve,
    set_live,
    shared,
    state_dir,
    this_node,
)

__all__ = [
    "at_end",
    "carry_out",
    "conceal",
    "concerns",
    "executing",
    "forget",
    "guarded",
    "once",
    "read",
    "resolve",
    "set_live",
    "shared",
    "state_dir",
    "this_node",
]
