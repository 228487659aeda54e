"""Ctrl-C and SIGTERM: everything is unwound first, then the usual exit code.

The handler raises in whatever code the signal meets. Some code swallows exceptions (finalisers, for
one), so the request is remembered, and whoever talks to a process looks whether there is one.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

KINDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received: list[int] = []


def check() -> None:
    """Raise if there was a signal."""
    if _received:
        raise SystemExit(128 + _received[0])


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Signals unwind what is inside."""

    def stop(number: int, _: object) -> None:
        # Once is enough: the clean-up itself must not be interrupted.
        for each in KINDS:
            signal.signal(each, signal.SIG_IGN)
        _received.append(number)
        check()

    _received.clear()
    before = {each: signal.signal(each, stop) for each in KINDS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
