"""Every error CANS raises on purpose; the type says who is to blame, the message what to do.

CansError
├── InputError            what the user gave is wrong               exit code 2
│   └── ModelError        the model file cannot be used as it is    exit code 2
└── RunError              the run itself failed                     exit code 1
    ├── ProtocolError     two sides did not understand each other
    │   ├── LocalProtocolError    this side said or was asked to say something impossible
    │   └── RemoteProtocolError   the other side did
    ├── Refused           the other side understood, and said no
    │   └── Busy          ... because it has too much to do just now
    ├── Unreachable       the other side does not answer
    ├── DeadlineExceeded  no right answer could be had in time
    └── StoreError        the store of the pools cannot be used
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


class ProtocolError(RunError):
    """Two sides did not understand each other."""


class LocalProtocolError(ProtocolError):
    """This side broke the protocol, or was asked to."""


class RemoteProtocolError(ProtocolError):
    """The other side broke the protocol: what it sent cannot be used."""


class Refused(RunError):
    """The other side understood the request and said no."""

    def __init__(self, message: str, code: str = "FAILED_PRECONDITION") -> None:
        super().__init__(message)
        self.code = code  # the name of the gRPC status that says so


class Busy(Refused):
    """The other side has too much to do to answer in time."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "RESOURCE_EXHAUSTED")


class Unreachable(RunError):
    """The other side does not answer."""


class DeadlineExceeded(RunError):
    """No right answer could be had in time."""


class StoreError(RunError):
    """The store of the pools cannot be used; nothing was acknowledged."""


def unknown_name(kind: str, name: str, valid: object) -> InputError:
    """The error for a name that is not on a list, with the list."""
    names = ", ".join(str(each) for each in valid)  # type: ignore[attr-defined]
    return InputError(f"unknown {kind} {name!r}; choose one of: {names}")
