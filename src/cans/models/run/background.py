"""Threads that run native code beside the program, and have ended before the interpreter does.

A thread that comes back from native code into an interpreter that is shutting down is ended by
force. Through frames of C++ that is `std::terminate`: the process aborts when all its work is done.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from threading import Event, Thread

ending = Event()
"""Set when the program ends: work that takes long looks at it, and stops."""

_running: list[Thread] = []


def start(work: Callable[[], object], name: str) -> Thread:
    """Do this work in a thread of its own; nothing is begun any more when the program ends."""

    def main() -> None:
        try:
            if not ending.is_set():
                work()
        finally:
            _running.remove(thread)

    thread = Thread(target=main, name=name, daemon=True)
    _running.append(thread)
    thread.start()
    return thread


def join_patiently(thread: Thread, seconds: float | None = None) -> None:
    """Wait for a thread also when the user presses Ctrl-C a second time."""
    while thread.is_alive():
        try:
            thread.join(seconds)
            return
        except KeyboardInterrupt:
            continue


def _end() -> None:
    ending.set()
    for thread in tuple(_running):  # each leaves the list when it ends
        join_patiently(thread)


atexit.register(_end)
os.register_at_fork(after_in_child=_running.clear)  # threads are not inherited
