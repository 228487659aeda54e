"""What a device tells its server of its own inferences, and when.

It rides on requests and uploads about once a second. By itself it travels in two cases only: the
choice went from the server to local (the server sees every other change), and when a device that
stays local has had nothing else to send for a while.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import isfinite
from time import monotonic
from typing import NamedTuple

from cans.live.device.reporting.report import Report
from cans.live.wire.account import (
    FELL_BACK,
    MOST_ROUNDS,
    NO_SERVER,
    Account,
    PlayedRound,
)
from cans.live.wire.accuracy import Compared

RIDE_SECONDS = 1.0  # between accounts that ride on something
ALONE_SECONDS = 10.0  # between accounts that travel alone, without news
EXPLAIN_SECONDS = 5.0  # between tellings of every choice's prediction


class _Kept(NamedTuple):
    at: float
    round: PlayedRound


class Accounts:
    """Collects inferences until they are told. Used by whoever has the turn."""

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque(maxlen=MOST_ROUNDS)
        self._last: Report | None = None
        self._told_at = 0.0
        self._explained_at = 0.0
        self._told_local: bool | None = None  # what the server knows: did the last one stay here?
        self._told_row: int | None = None
        self._compared: deque[Compared] = deque(maxlen=MOST_ROUNDS)  # by any thread

    def add(self, report: Report, row: int | None, server_known: bool) -> None:
        """An inference was answered; row None: there was no table to choose from yet."""
        self._last = report
        if row is None:
            return
        wait = report.queue_ms if isfinite(report.queue_ms) else 0.0
        server = report.server_ms - wait if isfinite(report.server_ms) else 0.0
        outcome = FELL_BACK * bool(report.fallback) | NO_SERVER * (not server_known)
        played = PlayedRound(
            row, report.front_ms, wait, report.link_ms, server, report.total_ms, 0.0, outcome
        )
        self._kept.append(_Kept(monotonic(), played))

    def compared(self, found: Compared) -> None:
        """An answer was compared with the whole model's."""
        self._compared.append(found)

    def riding(self) -> Account | None:
        """The account that a request should carry. The server sees from the request itself that
        this device offloads."""
        self._told_local = False
        return self.take() if monotonic() - self._told_at >= RIDE_SECONDS else None

    def must_go(self) -> bool:
        """Whether an account is worth a message of its own."""
        if not self._kept or self._last is None:
            return False
        went_local = self._is_local(self._last) and self._told_local is not True
        return went_local or monotonic() - self._told_at >= ALONE_SECONDS

    def take(self) -> Account | None:
        """The account of what is not told yet; None: there is nothing."""
        if not self._kept or self._last is None:
            return None
        now, last = monotonic(), self._last
        rounds = tuple(each.round._replace(age_ms=(now - each.at) * 1e3) for each in self._kept)
        row = rounds[-1].row
        told = tuple(self._compared.popleft() for _ in range(len(self._compared)))
        account = Account(last.number, rounds, compared=told)
        if row != self._told_row or now - self._explained_at >= EXPLAIN_SECONDS:
            account = _explained(account, last)
            self._explained_at, self._told_row = now, row
        self._kept.clear()
        self._told_at, self._told_local = now, self._is_local(last)
        return account

    @staticmethod
    def _is_local(report: Report) -> bool:
        return report.answered_by == "device" and not report.fallback


def _explained(account: Account, last: Report) -> Account:
    predicted: tuple[float, ...] = ()
    width: tuple[float, ...] = ()
    if last.predictions is not None and all(map(_all_finite, last.predictions)):
        predicted, width = (tuple(map(float, each)) for each in last.predictions)
    return replace(account, why=last.why, predicted_ms=predicted, width_ms=width)


def _all_finite(values: object) -> bool:
    return all(isfinite(each) for each in values)  # type: ignore[attr-defined]
