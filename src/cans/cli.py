"""The one command, `cans`. Each layer keeps its own commands; this file only puts them together."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from cans import __version__
from cans.dashboard.serving import show_page
from cans.errors import CansError
from cans.live import commands as live
from cans.models import commands as models
from cans.operations import commands as operations
from cans.program import commands as program
from cans.simulation import commands as simulation
from cans.testbed import commands as testbed

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PANELS = ("Run a fleet", "Look after a fleet", "Cut a model", "Study")


class GroupedCommands(TyperGroup):
    """Lists the commands under what they are for; each names its panel where it is mounted."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {panel: [] for panel in _PANELS}
        width = formatter.width - 6 - max(map(len, self.commands), default=0)
        for name, command in self.commands.items():
            if not command.hidden:
                panel = getattr(command, "rich_help_panel", None)
                title = panel if isinstance(panel, str) else "Further commands"
                rows.setdefault(title, []).append((name, command.get_short_help_str(width)))
        for title, found in rows.items():
            if found:
                with formatter.section(title):
                    formatter.write_dl(found)


app = typer.Typer(
    name="cans",
    cls=GroupedCommands,
    help="Cut DNNs between a fleet of unequal devices and one edge server, and learn where.",
    no_args_is_help=True,
    epilog="Every command has an example at the end of its help: cans COMMAND --help",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cans {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print version."),
    ] = False,
) -> None:
    context.obj = show_page


simulation.register(app, testbed.measure_prototype)
models.register(app)
live.register(app)
program.register(app)
testbed.register(app)
operations.register(app)


def main() -> None:
    """Run the command; bad input is one clear line and its exit code, never a traceback."""
    try:
        sys.exit(app(prog_name="cans", standalone_mode=False))
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
    except MemoryError:
        _fail("not enough memory for what was asked", 1)
    except BrokenPipeError:  # who read our output has seen enough
        _leave_output()
        sys.exit(1)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _leave_output()
        _fail(f"cannot write {error.filename or 'the output'}: {error.strerror}", 1)


def _leave_output() -> None:
    """Nothing more is written to standard output, nor when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, exit_code: int) -> NoReturn:
    print(f"cans: {message}", file=sys.stderr)
    sys.exit(exit_code)
