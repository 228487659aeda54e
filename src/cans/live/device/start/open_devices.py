"""The devices of this process. A program may end, or fork, without closing them; their threads must
end before it does."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

from cans.errors import RunError
from cans.models.run import background


class Closable(Protocol):
    def close(self) -> None:
        """Let go of everything."""


class OpenDevices:
    """Those that have started, and those that a thread makes just now."""

    def __init__(self) -> None:
        self._starting: dict[Closable, Callable[[], None]] = {}
        self._open: WeakSet[Closable] = WeakSet()
        atexit.register(self._close_all)
        os.register_at_fork(after_in_child=self._forget)

    def __contains__(self, device: Closable) -> bool:
        return device in self._open

    @contextmanager
    def starting(self, device: Closable, give_up: Callable[[], None]) -> Iterator[None]:
        """It is open at the end of this block. If the program ends before that, `give_up` makes it
        wait for a server no longer."""
        self._starting[device] = give_up
        try:
            yield
            self._open.add(device)
            unless_ending()
        finally:
            self._starting.pop(device, None)  # a fork may have forgotten it

    def closed(self, device: Closable) -> None:
        self._open.discard(device)

    def _close_all(self) -> None:
        background.ending.set()
        for give_up in list(self._starting.values()):
            give_up()
        for device in list(self._open):
            while device in self._open:
                try:
                    device.close()
                except KeyboardInterrupt:
                    continue

    def _forget(self) -> None:
        """They belong to the process that forked this one."""
        self._open.clear()
        self._starting.clear()


open_devices = OpenDevices()


def unless_ending() -> None:
    """A device that starts while the program ends must not be left behind."""
    if background.ending.is_set():
        raise RunError("the program ends")
