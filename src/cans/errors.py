"""Every error CANS raises on purpose; the type says who is to blame, the message what to do.

CansError
├── InputError            what the user gave is wrong               exit code 2
│   └── ModelError        the model file cannot be used as it is    exit code 2
└── RunError              the run itself failed                     exit code 1
"""

from __future__ import annotations


class CansError(Exception):
    """Base of every error raised on purpose."""

    exit_code = 1


class InputError(CansError):
    """What the user gave (an option, a file, an argument) cannot be used."""

    exit_code = 2


class ModelError(InputError):
    """The model file cannot be read, cut or run as it is."""


class RunError(CansError):
    """The input was fine; the run failed."""


def unknown_name(kind: str, name: str, valid: object) -> InputError:
    """The error for a name that is not on a list, with the list."""
    names = ", ".join(str(each) for each in valid)  # type: ignore[attr-defined]
    return InputError(f"unknown {kind} {name!r}; choose one of: {names}")
