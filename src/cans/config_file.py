"""`--config FILE.toml`: the options of a command from a file; the command line wins.

Every option has the name that it has on the command line, with dashes or underscores.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from cans.errors import InputError, unknown_name

_SPELLED = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make what the file says the defaults of the options that are not given."""
    if path is not None and not context.resilient_parsing:
        context.default_map = dict(_values(context.command, path))
    return path


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE.toml",
        help="Options by their names; the command line wins.",
        is_eager=True,  # read before the other options look for their defaults
        callback=_read_config,
    ),
]


def _values(command: Any, path: Path) -> dict[str, Any]:
    """The file's values by the names of the command's parameters."""
    hints = get_type_hints(command.callback)
    options = {
        name.lstrip("-"): each
        for each in command.params
        if each.name in hints and each.name != "config"
        for name in (*each.opts, *each.secondary_opts)
        if name.startswith("--")
    }
    found: dict[str, Any] = {}
    for key, value in _parsed(path).items():
        name = key.replace("_", "-")
        if name not in options:
            raise InputError(f"{path}: {unknown_name('option', key, sorted(options))}")
        option = options[name]
        if option.name in found:
            raise InputError(f"{path}: {key} is given twice")
        checked = _checked(f"{path}: {key}", value, hints[option.name])
        found[option.name] = not checked if f"--{name}" in option.secondary_opts else checked
    return found


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read --config {path}: {error.strerror}") from None
    except ValueError as error:  # no TOML, or no text at all
        reason = " ".join(str(error).split())
        raise InputError(f"--config {path} is not a TOML file: {reason}") from None


def _checked(where: str, value: Any, hint: Any) -> Any:
    """The value, if it is of the option's type; of options that repeat, a list or one of them."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is list:
        (each_hint,) = get_args(hint)
        values = value if isinstance(value, list) else [value]
        return [_checked(where, each, each_hint) for each in values]
    kind = hint if hint in _SPELLED else str  # a path is a string there
    fits = type(value) is kind or (kind is float and type(value) is int)
    if not fits:
        raise InputError(f"{where} must be {_SPELLED[kind]}, not {value!r}")
    return value
