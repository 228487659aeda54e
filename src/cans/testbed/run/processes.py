"""Child processes that never outlive this one: a server, and devices that obey."""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cans.errors import RunError
from cans.testbed.run.interruption import KINDS, check

_PR_SET_PDEATHSIG = 1
_START_SECONDS = 180.0  # large models on a busy machine take their time
_ANSWER_SECONDS = 120.0


_children: list[Child] = []
"""Every child from the moment it exists, so that a signal ends them all."""


def _die_with_parent() -> None:
    """Between fork and exec: even a SIGKILL of the testbed leaves no process behind (Linux)."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    """A `cans` command as a process; its messages go to a file."""

    def __init__(self, prefix: Sequence[str], words: Sequence[str], log: Path) -> None:
        self._command = [*prefix, sys.executable, "-m", "cans", *words]
        self._log = log
        self._start()

    def _start(self) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, KINDS)
        try:
            with self._log.open("ab") as log:
                self.process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                    text=True, bufsize=1, start_new_session=True, preexec_fn=_die_with_parent,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                )  # fmt: skip
            if self not in _children:
                _children.append(self)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def failed(self, what: str) -> RunError:
        lines = [each for each in self._log.read_text(errors="replace").splitlines() if each]
        return RunError(f"{what}: {lines[-1] if lines else 'it said nothing'}")

    def kill(self) -> None:
        """At once, as a power cut would."""
        self._end(signal.SIGKILL, 10.0)

    def stop(self) -> None:
        """By SIGTERM, and by SIGKILL if that takes too long."""
        self._end(signal.SIGTERM, 3.0)

    def ask_to_stop(self) -> None:
        """Without waiting, so that many can end at the same time."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    def _end(self, how: signal.Signals, seconds: float) -> None:
        process = self.process
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class ServerProcess(Child):
    """`cans serve`; can be killed and started again with the same port and store."""

    def _start(self) -> None:
        self._log.write_bytes(b"")
        super()._start()

    def wait_until_ready(self) -> None:
        until = time.monotonic() + _START_SECONDS
        while "serving " not in self._log.read_text(errors="replace"):
            check()
            if self.process.poll() is not None:
                raise self.failed("the server did not start")
            if time.monotonic() > until:
                raise RunError("the server did not start in time")
            time.sleep(0.05)

    def start_again(self) -> None:
        self._start()


class DeviceProcess(Child):
    """`cans device --obey`."""

    def wait_until_ready(self) -> None:
        if not self._answer(_START_SECONDS).get("ready"):
            raise self.failed("a device did not start")

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        """Give an order and wait for its answer."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        except OSError:
            raise self.failed("a device ended") from None
        return self._answer(_ANSWER_SECONDS)

    def _answer(self, seconds: float) -> dict[str, Any]:
        check()
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise RunError(f"a device did not answer in {seconds:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise self.failed("a device ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


def stop_all() -> None:
    """Every child, all at the same time."""
    for child in _children:
        child.ask_to_stop()
    while _children:
        _children.pop().stop()
