"""How much a device may send and receive in a day, for links that are paid by the megabyte.

Counted on the wire's messages, both ways, each with what surrounds it in packets. What is counted
is written ahead of being used, in steps: a killed process may have counted a little more than it
sent, never less.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from datetime import date
from math import ceil, inf
from pathlib import Path
from threading import Lock

_log = logging.getLogger(__name__)
_AROUND = 200  # bytes of headers and acknowledgements of a message, about
_STEPS = 100  # that an allowance is written in


def _today() -> str:
    return date.fromtimestamp(time.time()).isoformat()


class Allowance:
    """Bytes of today. Thread-safe.

    >>> days = iter(["2030-01-01", "2030-01-01", "2030-01-02"])
    >>> allowance = Allowance(0.001, lambda: next(days))
    >>> allowance.add(900)
    >>> allowance.spent, allowance.spent  # by 200 bytes of headers; and a new day begins
    (True, False)
    """

    def __init__(self, megabytes_per_day: float | None, today: Callable[[], str] = _today) -> None:
        """None: as much as there is."""
        self.most = inf if megabytes_per_day is None else megabytes_per_day * 1e6
        self._today = today
        self._lock = Lock()
        self._day = ""
        self._used = 0  # bytes
        self._written = 0.0  # bytes that the file says were used
        self._file: Path | None = None

    def keep_in(self, folder: Path) -> None:
        """Go on from what is kept there, and keep it there from now on."""
        if self.most == inf:
            return
        with self._lock:
            self._file = folder / "sent-today"
            try:
                found = json.loads(self._file.read_text(encoding="utf-8"))
                self._day, kept = str(found["day"]), int(found["bytes"])
                self._used += kept
                self._written = kept
            except (OSError, ValueError, KeyError, TypeError):
                pass  # nothing was kept, or nothing that can be read

    def add(self, nbytes: int) -> None:
        """A message of so many bytes travels."""
        if self.most == inf:
            return
        with self._lock:
            self._turn_the_day()
            self._used += nbytes + _AROUND
            if self._used > self._written:
                step = self.most / _STEPS
                self._written = max(ceil(self._used / step) * step, self._used)
                self._write()

    def allows(self, nbytes: int) -> bool:
        """Whether so many bytes more may travel today."""
        if self.most == inf:
            return True
        with self._lock:
            self._turn_the_day()
            return self._used + nbytes + _AROUND <= self.most

    @property
    def spent(self) -> bool:
        """Whether nothing more may travel today."""
        return not self.allows(0)

    @property
    def why(self) -> str:
        return f"today's {self.most / 1e6:g} MB are used up (--max-mb-per-day)"

    def _turn_the_day(self) -> None:
        day = self._today()
        if day > self._day:  # not for a clock that was put back: the day would be paid twice
            self._day, self._used, self._written = day, self._used if not self._day else 0, 0.0

    def _write(self) -> None:
        if self._file is None:
            return
        following = self._file.with_name(self._file.name + ".next")
        try:
            text = json.dumps({"day": self._day, "bytes": int(self._written)})
            following.write_text(text, encoding="utf-8")
            os.replace(following, self._file)
        except OSError as error:
            _log.error("cannot keep what was sent today", extra={"reason": str(error)})
