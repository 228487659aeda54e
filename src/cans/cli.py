"""The one command, `cans`. Each layer keeps its own commands; this file only puts them together."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

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
    """Run the command; bad input is one clear line and its exit code, never a traceback."""
    try:
        sys.exit(app(standalone_mode=False))
    except CansError as error:
        _fail(str(error), error.exit_code)
    except TyperException as error:
        message = error.format_message()
        context = getattr(error, "ctx", None)
        if "\n" in message:  # the help text: nothing was asked for
            print(message, file=sys.stderr)
            sys.exit(error.exit_code)
        where = "" if context is None else f" (see '{context.command_path} --help')"
        _fail(message.rstrip(".") + where, error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except BrokenPipeError:  # who read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _fail(message: str, exit_code: int) -> NoReturn:
    print(f"cans: {message}", file=sys.stderr)
    sys.exit(exit_code)
