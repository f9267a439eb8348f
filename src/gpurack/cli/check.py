"""`gpurack check`: is the site document good? Nothing is contacted."""

from __future__ import annotations

from typing import Annotated

import typer

from gpurack.cli.exit_codes import ExitCode, exit_code
from gpurack.errors import BadInput
from gpurack.report.problems import print_json, show_problems, show_site
from gpurack.site import load


def check(
    path: Annotated[str, typer.Argument(help="the site document, such as inventories/prod", metavar="PATH")],
    json: Annotated[bool, typer.Option("--json", help="print the result for programs")] = False,
) -> None:
    """Say everything that is wrong with a site document. Nothing is contacted. Exits 2 if anything is."""
    try:
        site = load(path)
    except BadInput as error:
        if json:
            print_json(document=path, problems=error.problems)
        else:
            show_problems(error.problems, heading=f"{path} can't be used")
        raise typer.Exit(exit_code(error)) from None
    if json:
        print_json(document=path, site=site)
    else:
        show_site(site)
    raise typer.Exit(ExitCode.AS_WANTED)
