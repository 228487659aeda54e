"""A frozen dataclass from a TOML file. What is missing, unknown or of the wrong type is one line
that names the file, the table and the key, and says what is expected there."""

from __future__ import annotations

import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from cans.errors import InputError, unknown_name

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}

Made = TypeVar("Made")


def read_toml(path: Path) -> str:
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path}: {why}") from None


def parsed(kind: type[Made], text: str, source: str | Path) -> Made:
    """What the text of a file describes, as a dataclass of this kind."""
    try:
        return _made(kind, tomllib.loads(text))
    except (tomllib.TOMLDecodeError, InputError) as error:
        raise InputError(f"{source}: {error}") from None


def _made(kind: type[Made], table: Any) -> Made:
    """A dataclass from a table, which checks its values itself."""
    if not isinstance(table, dict):
        raise InputError(f"must be a table of settings, not {table!r}")
    hints = get_type_hints(kind)
    known = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    unknown = next((key for key in table if key not in known), None)
    if unknown is not None:
        raise unknown_name("setting", unknown, known)
    values = {key: _value(hints[key], value, key) for key, value in table.items()}
    try:
        return kind(**values)
    except TypeError as error:
        missing = str(error).rpartition("argument")[2].lstrip("s: ")
        raise InputError(f"needs {missing}") from None


def _value(hint: Any, value: Any, key: str) -> Any:
    """The value of a setting, if it is of the type that the dataclass says."""
    if get_origin(hint) in (Union, UnionType):
        hint = next(each for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        if not isinstance(value, list):
            raise InputError(f"{key} must be a list{f': [[{key}]]' * is_dataclass(inner)}")
        if is_dataclass(inner):
            return tuple(
                _made_at(f"[[{key}]] {number}", inner, each) for number, each in enumerate(value, 1)
            )
        return tuple(_value(inner, each, key) for each in value)
    if get_origin(hint) is dict:
        if not isinstance(value, dict):
            raise InputError(f"{key} must be tables: [{key}.NAME]")
        inner = get_args(hint)[1]
        return {name: _made_at(f"[{key}.{name}]", inner, each) for name, each in value.items()}
    if is_dataclass(hint):
        return _made_at(f"[{key}]", hint, value)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise InputError(f"{key} must be {_WORDS[hint]}, not {value!r}")
    return value


def _made_at(where: str, kind: Any, table: Any) -> Any:
    """A dataclass from a table within the file; what is wrong says where."""
    try:
        return _made(kind, table)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
