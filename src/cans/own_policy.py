"""Policies that users wrote themselves, found by `module:name` on a command line."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from cans.errors import InputError
from cans.learning.policies import Policy, policy_named


def find_policy(text: str) -> Policy:
    """A policy by its name, or a user's own as `module:name`, from the current folder or installed.

    >>> find_policy("linucb").title
    'LinUCB'
    """
    module, colon, name = text.partition(":")
    if not colon:
        return policy_named(text)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"cannot find policy {text!r}: {error}") from None
    except Exception as error:
        raise InputError(f"module {module!r} cannot be imported: {error!r}") from None
    if not isinstance(found, Policy):
        raise InputError(f"{text} is a {type(found).__name__}, not a cans.Policy")
    return owned(found)


def owned(policy: Policy) -> Policy:
    """The policy, if its name is its own: pools of one name are added together."""
    try:
        known = policy_named(policy.name)
    except InputError:
        return policy
    if known != policy:
        raise InputError(f"{policy.name!r} is another policy's name; give yours one of its own")
    return policy
