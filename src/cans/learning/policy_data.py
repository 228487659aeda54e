"""A policy as plain data and back, checked: how it travels from a server to its devices.

A server sends its policy whole, so that a device needs no module of it; what comes in is checked
field by field and by the policy's own rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from math import inf
from typing import Any, TypeVar

from cans.errors import InputError
from cans.learning.policies import Choose, Clusters, Part, Physical, Policy, Pool

MOST_PARTS = 16
_ENUMS = {"choose": Choose, "pool": Pool, "clusters": Clusters}
Value = TypeVar("Value", Policy, Part, Physical)


def policy_to_dict(policy: Policy) -> dict[str, Any]:
    """The policy as values that JSON knows; what is infinite is null.

    >>> from cans.learning import policy_named
    >>> policy_from_dict(policy_to_dict(policy_named("cans"))) == policy_named("cans")
    True
    """
    return {each.name: _plain(getattr(policy, each.name)) for each in fields(policy)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Enum):
        return str(value.value)
    return None if value == inf else value


def policy_from_dict(data: Any) -> Policy:
    """The policy that this data describes; an `InputError` says what is wrong with it."""
    given = _checked(Policy, data)
    parts = given.get("parts", [])
    if not isinstance(parts, list) or len(parts) > MOST_PARTS:
        raise InputError(f"parts of a policy must be a list of at most {MOST_PARTS}")
    given["parts"] = tuple(Part(**_checked(Part, part)) for part in parts)
    if given.get("physical") is not None:
        given["physical"] = Physical(**_checked(Physical, given["physical"]))
    if given.get("probe_after_s", 0.0) is None:
        given["probe_after_s"] = inf
    return Policy(**given)


def _checked(kind: type[Value], data: Any) -> dict[str, Any]:
    """The fields of a policy, a part or its physics, each of its type."""
    what = kind.__name__.lower()
    if not isinstance(data, Mapping):
        raise InputError(f"a {what} must be an object, not {type(data).__name__}")
    known = {each.name: str(each.type) for each in fields(kind)}
    unknown = set(data) - set(known)
    if unknown:
        raise InputError(f"a {what} has no {', '.join(sorted(map(str, unknown)))}")
    given = {name: _value(what, name, known[name], value) for name, value in data.items()}
    for name, declared in known.items():
        required = name in ("name", "title") or (kind is Part and name in ("explains", "pool"))
        if required and name not in given:
            raise InputError(f"a {what} needs its {name} ({declared})")
    return given


def _value(what: str, name: str, declared: str, value: Any) -> Any:
    wrong = InputError(f"{name} of a {what} must be {declared}, not {value!r:.80}")
    if name in _ENUMS:
        if value is None and "None" in declared:
            return None
        try:
            return _ENUMS[name](value)
        except ValueError:
            raise wrong from None
    if declared == "bool":
        fits = isinstance(value, bool)
    elif declared.startswith("float"):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = number or value is None
    elif declared == "str":
        fits = isinstance(value, str)
    elif declared.startswith("tuple[str"):
        fits = isinstance(value, list) and all(isinstance(each, str) for each in value)
        value = tuple(value) if fits else value
    else:
        fits = True  # parts and physics: checked in their turn
    if not fits:
        raise wrong
    return value
