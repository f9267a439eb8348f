"""What `gpurack` understands. Commands of other packages are imported when they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from gpurack.cli.check import check

# Their imports (pyinfra, kubernetes) take a second that `gpurack check` does not need.
_ELSEWHERE = {"lab": "gpurack.lab.commands:app", "hosts": "gpurack.engine.trust:hosts"}


class _Commands(TyperGroup):
    """The commands of this package, and the typer applications of `_ELSEWHERE`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*super().list_commands(ctx), *_ELSEWHERE})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, _, name = _ELSEWHERE[cmd_name].partition(":")
        group = get_group(getattr(import_module(module), name))
        group.name = cmd_name
        return group


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Takes racks of bare Ubuntu hosts to accepted GPU Kubernetes nodes, and keeps them there.",
)
app.command()(check)


@app.callback()
def _about() -> None:
    """Keeps `check` a command of its own: typer would make a lone command the whole program."""
