"""The one command, `cans`. Each layer keeps its own commands; this file only puts them together."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cans import __version__
from cans.errors import CansError
from cans.live import commands as live
from cans.models import commands as models
from cans.simulation import commands as simulation
from cans.testbed import commands as testbed

app = typer.Typer(
    name="cans",
    help="Cut DNNs between a fleet of unequal devices and one edge server, and learn where.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cans {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print version."),
    ] = False,
) -> None:
    pass


simulation.register(app, testbed.measure_prototype)
models.register(app)
testbed.register(app)
live.register(app)


def main() -> None:
    """Run the command; an error of ours is one clear line and its exit code, never a traceback."""
    try:
        app()
    except CansError as error:
        print(f"cans: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
