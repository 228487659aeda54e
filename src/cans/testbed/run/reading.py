"""From a TOML file, or the name of a shipped experiment, to an `Experiment`."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from cans.errors import InputError
from cans.testbed.run.experiment import Experiment

_SHIPPED = files("cans.testbed.run") / "experiments"


def shipped() -> list[str]:
    """Names of the experiments that come with the package."""
    names = (each.name for each in _SHIPPED.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def read_experiment(source: str) -> Experiment:
    """The experiment of a file or a shipped name; whatever is wrong is one clear line."""
    path = Path(source)
    if path.suffix != ".toml" and source in shipped():
        text = (_SHIPPED / f"{source}.toml").read_text(encoding="utf-8")
    else:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            known = ", ".join(shipped())
            raise InputError(f"cannot read {source}: {why}; shipped: {known}") from None
    try:
        made: Experiment = _made(Experiment, tomllib.loads(text), "the experiment")
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source}: {error}") from None
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    return made


def _made(kind: type[Any], table: dict[str, Any], where: str) -> Any:
    """A dataclass from a table: unknown keys, missing keys and wrong types are errors."""
    hints = get_type_hints(kind)
    known = {each.name for each in fields(kind)}
    unknown = sorted(set(table) - known)
    if unknown:
        raise InputError(f"{where} has no setting {unknown[0]!r}")
    try:
        return kind(**{key: _value(hints[key], value, key) for key, value in table.items()})
    except TypeError as error:
        missing = str(error).rpartition("argument")[2].lstrip("s: ")
        raise InputError(f"{where} needs {missing}") from None


def _value(hint: Any, value: Any, key: str) -> Any:
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise InputError(f"{key} must be a list")
        inner = get_args(hint)[0]
        if hasattr(inner, "__dataclass_fields__"):
            if not all(isinstance(each, dict) for each in value):
                raise InputError(f"{key} must be tables: [[{key}]]")
            return tuple(_made(inner, each, f"[[{key}]] {n}") for n, each in enumerate(value, 1))
        return tuple(_value(inner, each, key) for each in value)
    if get_origin(hint) in (Union, UnionType):
        hint = next(each for each in get_args(hint) if each is not type(None))
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise InputError(f"{key} must be {_WORDS[hint]}, not {value!r}")
    return value


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
