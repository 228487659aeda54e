"""Errors as gRPC statuses, both ways: the server picks the one that says whose mistake it was, and
the device reads who is to blame."""

from __future__ import annotations

from typing import Any

import grpc

from cans.errors import (
    Busy,
    CansError,
    DeadlineExceeded,
    InputError,
    LocalProtocolError,
    Refused,
    RemoteProtocolError,
    StoreError,
    Unreachable,
)

_CODES = grpc.StatusCode
_REFUSALS = {
    _CODES.UNAUTHENTICATED,
    _CODES.PERMISSION_DENIED,
    _CODES.NOT_FOUND,
    _CODES.FAILED_PRECONDITION,
    _CODES.OUT_OF_RANGE,
    _CODES.UNIMPLEMENTED,
}
_STATUS = {
    RemoteProtocolError: _CODES.INVALID_ARGUMENT,
    InputError: _CODES.INVALID_ARGUMENT,
    # Not UNAVAILABLE: the server is there, and can run back-ends; only send the uploads again.
    StoreError: _CODES.ABORTED,
    Unreachable: _CODES.UNAVAILABLE,
    DeadlineExceeded: _CODES.DEADLINE_EXCEEDED,
}


def status_of(error: CansError) -> grpc.StatusCode:
    """The status that says whose mistake it was."""
    if isinstance(error, Refused):
        return _CODES[error.code]
    for kind, code in _STATUS.items():
        if isinstance(error, kind):
            return code
    return _CODES.INTERNAL


def translated(error: Any) -> CansError:
    """What a gRPC error means, by who is to blame."""
    code, details = error.code(), error.details() or "no details"
    if code is _CODES.ABORTED:
        return StoreError(details)
    if code in (_CODES.UNAVAILABLE, _CODES.CANCELLED):
        return Unreachable(f"the server does not answer: {details}")
    if code is _CODES.DEADLINE_EXCEEDED:
        return DeadlineExceeded("the server did not answer in time")
    if code is _CODES.RESOURCE_EXHAUSTED:
        return Busy(details)
    if code in _REFUSALS:
        return Refused(details, code.name)
    if code is _CODES.INVALID_ARGUMENT:
        return LocalProtocolError(f"the server did not understand us: {details}")
    return RemoteProtocolError(f"the server failed ({code.name}): {details}")
