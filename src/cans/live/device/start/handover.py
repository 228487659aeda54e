"""Callers pass freely; whoever replaces what they use waits until none is inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class Handover:
    """`with handover:` around every use; `with handover.alone(seconds) as is_alone:` to replace."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._inside = 0
        self._shut = False

    def __enter__(self) -> None:
        with self._condition:
            if self._shut:
                self._condition.wait_for(lambda: not self._shut)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._condition:
            self._inside -= 1
            if self._shut:
                self._condition.notify_all()

    @contextmanager
    def alone(self, seconds: float) -> Iterator[bool]:
        """True: nobody is inside until the end of the block. False: somebody stayed for so long."""
        with self._condition:
            self._shut = True
            empty = self._condition.wait_for(lambda: self._inside == 0, seconds)
            if not empty:
                self._open()
        try:
            yield empty
        finally:
            with self._condition:
                self._open()

    def _open(self) -> None:
        self._shut = False
        self._condition.notify_all()
