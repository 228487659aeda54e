"""What a device tells of its own inferences, local ones too, with what it sends anyway.

Latencies travel as integers of hundredths of a millisecond, a column each: about twelve bytes for
an inference. What is expected of every choice goes along only now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, isfinite
from typing import Any, NamedTuple

from cans.errors import RemoteProtocolError
from cans.live.wire.accuracy import Compared, compared_in, compared_out
from cans.live.wire.learned import integer, name, parse
from cans.live.wire.proto import edge

MOST_ROUNDS = 64  # in one account; of older ones only the number is told
MOST_CHOICES = 4096
LONGEST_WHY = 400  # characters
_UNITS = 100.0  # per millisecond
_LARGEST = 2**32 - 1
FELL_BACK, NO_SERVER = 1, 2  # bits of an outcome


class PlayedRound(NamedTuple):
    """One answered inference."""

    row: int  # of the partition table
    front_ms: float
    wait_ms: float  # for a worker of the server
    link_ms: float
    server_ms: float
    total_ms: float  # what the caller waited
    age_ms: float  # how long before the account was sent
    outcome: int = 0  # bits: the server failed to answer, there was none to ask


@dataclass(frozen=True)
class Account:
    """Inferences since the last account, oldest first, and how the device sees its choices."""

    inferences: int  # that this device has ever answered
    rounds: tuple[PlayedRound, ...] = ()
    why: str = ""  # the last choice was made; empty: as told before
    predicted_ms: tuple[float, ...] = ()  # of every choice; empty: as told before
    width_ms: tuple[float, ...] = ()  # what a lower confidence bound is below that
    compared: tuple[Compared, ...] = ()  # answers, since the last account


@dataclass(frozen=True)
class StatusRequest:
    """Somebody wants to know what the fleet does."""

    device: str = ""  # all about this one; empty: a line about each
    most: int = 0  # devices to tell of; 0: as many as the server tells at once

    def to_bytes(self) -> bytes:
        data: bytes = edge.StatusRequest(device=self.device, most=self.most).SerializeToString()
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> StatusRequest:
        message = parse(edge.StatusRequest, data)
        return cls(name(message.device, "device") if message.device else "", message.most)


@dataclass(frozen=True)
class StatusReply:
    """A JSON document about the fleet, or about one device."""

    document: str

    def to_bytes(self) -> bytes:
        data: bytes = edge.StatusReply(document=self.document).SerializeToString()
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> StatusReply:
        return cls(parse(edge.StatusReply, data).document)


def account_out(account: Account) -> Any:
    """The message of an account."""
    rounds = account.rounds[-MOST_ROUNDS:]
    message = edge.Account(
        inferences=account.inferences,
        row=[each.row for each in rounds],
        front=_hundredths([each.front_ms for each in rounds]),
        wait=_hundredths([each.wait_ms for each in rounds]),
        link=_hundredths([each.link_ms for each in rounds]),
        server=_hundredths([each.server_ms for each in rounds]),
        total=_hundredths([each.total_ms for each in rounds]),
        # Rounded down: an inference must not seem older than the request that came before it.
        age_ms=[_bounded(each.age_ms, floor) for each in rounds],
        why=account.why[:LONGEST_WHY],
        predicted_ms=account.predicted_ms,
        width_ms=account.width_ms,
        compared=compared_out(account.compared),
    )
    if any(each.outcome for each in rounds):
        message.outcome.extend(each.outcome for each in rounds)
    return message


def account_in(message: Any) -> Account:
    """An account as it came in: columns of one length, finite, of sane size."""
    count = len(message.row)
    if count > MOST_ROUNDS:
        raise RemoteProtocolError(f"an account of {count} inferences; at most {MOST_ROUNDS}")
    columns = [
        message.front, message.wait, message.link, message.server, message.total, message.age_ms,
    ]  # fmt: skip
    outcomes = message.outcome or [0] * count
    if any(len(each) != count for each in (*columns, outcomes)):
        raise RemoteProtocolError("an account whose columns differ in length")
    if any(row >= MOST_CHOICES for row in message.row):
        raise RemoteProtocolError(f"an account of a choice beyond {MOST_CHOICES}")
    rounds = tuple(
        PlayedRound(row, front / _UNITS, wait / _UNITS, link / _UNITS, server / _UNITS,
                    total / _UNITS, float(age), outcome)
        for row, front, wait, link, server, total, age, outcome in zip(
            message.row, *columns, outcomes, strict=True
        )
    )  # fmt: skip
    predicted, width = tuple(message.predicted_ms), tuple(message.width_ms)
    if len(predicted) != len(width) or len(predicted) > MOST_CHOICES:
        raise RemoteProtocolError(f"{len(predicted)} predictions with {len(width)} widths")
    if not all(map(isfinite, (*predicted, *width))):
        raise RemoteProtocolError("predictions that are not finite")
    if len(message.why) > LONGEST_WHY:
        raise RemoteProtocolError(f"a reason of {len(message.why)} characters")
    return Account(
        integer(message.inferences, "number of inferences"), rounds, message.why, predicted, width,
        compared_in(message.compared),
    )  # fmt: skip


def _hundredths(milliseconds: Sequence[float]) -> list[int]:
    return [_bounded(each * _UNITS) for each in milliseconds]


def _bounded(value: float, whole: Callable[[float], int] = round) -> int:
    """What is not a number, or did not take place, counts as nothing."""
    return min(max(whole(value), 0), _LARGEST) if isfinite(value) else 0
