"""The learner's values as messages, both ways: statistics, pool keys, uploads, downloads, records.

Whatever comes in is checked here, once: what this module returns is finite, of sane size and
consistent, and what cannot be is a `RemoteProtocolError`, never another exception.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import isfinite
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

from cans.errors import RemoteProtocolError
from cans.learning import DeviceIdentity, Download, PoolKey, SufficientStatistics, Upload
from cans.learning.arithmetic.arrays import SUMS
from cans.learning.device.part import PartRecord
from cans.live.wire.proto import edge

LARGEST_DIMENSION = 256  # of a part; ours have 1 to about 30
MOST_CHOICES = 4096  # of a table
LONGEST_NAME = 256  # characters of any identifier
MOST_UPLOADS = 64  # in one message
LATEST = 2.0**33  # seconds since 1970 (the year 2242): no clock shows more
LARGEST_INTEGER = 2**62  # of epochs, sequence numbers, counts: they fit a database column
LATEST_EPOCH = 1_000_000  # of a pool: how often it was begun anew
LEAST_PACE = 1e-3  # of a device's latencies, as a share of its pool's; the most is its inverse
MOST_ROUNDS = 2**48  # of a pool: how many uploads it has merged

Message = TypeVar("Message")


def parse(kind: Callable[[], Message], data: bytes) -> Message:
    """The message that these bytes are."""
    message = kind()
    try:
        message.ParseFromString(data)  # type: ignore[attr-defined]
    except DecodeError as error:
        name = getattr(kind, "__name__", "message")
        raise RemoteProtocolError(f"these bytes are no {name}: {error}") from None
    return message


# --- statistics ----------------------------------------------------------------------------------


@cache
def _upper(dimension: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Where the upper triangle of a matrix is; making this anew costs more than reading it."""
    return np.triu_indices(dimension)


def statistics_out(value: SufficientStatistics) -> Any:
    upper = _upper(value.dimension)
    seen = np.flatnonzero(value.choices[0])
    telling = seen if value.choices[4].any() else seen[:0]
    return edge.Statistics(
        sigma=value.sigma[upper].tolist(),
        b=value.b.tolist(),
        squares=value.squares,
        weight=value.weight,
        count=value.count,
        choice=seen.tolist(),
        choice_weight=value.choices[0, seen].tolist(),
        choice_sum=value.choices[1, seen].tolist(),
        choice_squares=value.choices[2, seen].tolist(),
        choice_unlike=value.choices[3, telling].tolist(),
        choice_telling=value.choices[4, telling].tolist(),
    )


def statistics_in(message: Any) -> SufficientStatistics:
    dimension, half = len(message.b), len(message.sigma)
    if not 0 < dimension <= LARGEST_DIMENSION:
        raise RemoteProtocolError(f"statistics of dimension {dimension}")
    if half != dimension * (dimension + 1) // 2:
        raise RemoteProtocolError(f"{half} values of Sigma do not go with {dimension} of b")
    b = np.array(message.b)
    upper = _upper(dimension)
    sigma = np.zeros((dimension, dimension))
    sigma[upper] = message.sigma
    sigma.T[upper] = message.sigma
    totals = (message.squares, message.weight)
    if not (np.isfinite(sigma).all() and np.isfinite(b).all() and all(map(isfinite, totals))):
        raise RemoteProtocolError("statistics that are not finite")
    count = integer(message.count, "count")
    choices = _choices_in(message)
    return SufficientStatistics(sigma, b, message.squares, message.weight, count, choices)


def _choices_in(message: Any) -> np.ndarray[Any, Any]:
    """The sums of every choice up to the last that was observed."""
    seen = np.array(message.choice, dtype=np.int64)
    said = [message.choice_weight, message.choice_sum, message.choice_squares]
    if message.choice_unlike or message.choice_telling:
        said += [message.choice_unlike, message.choice_telling]
    sums = [np.array(each) for each in said]
    if any(len(each) != len(seen) for each in sums):
        raise RemoteProtocolError("sums of choices that do not go with their numbers")
    if len(seen) == 0:
        return np.zeros((SUMS, 0))
    if seen[-1] >= MOST_CHOICES or (np.diff(seen) <= 0).any():
        raise RemoteProtocolError(f"choices must ascend and be less than {MOST_CHOICES}")
    if not all(np.isfinite(each).all() for each in sums) or (sums[0] < 0.0).any():
        raise RemoteProtocolError("sums of choices that are not finite, or of no weight")
    choices = np.zeros((SUMS, int(seen[-1]) + 1))
    choices[: len(sums), seen] = sums
    return choices


def statistics_to_bytes(value: SufficientStatistics) -> bytes:
    data: bytes = statistics_out(value).SerializeToString()
    return data


def statistics_from_bytes(data: bytes) -> SufficientStatistics:
    return statistics_in(parse(edge.Statistics, data))


# --- names and numbers ---------------------------------------------------------------------------


def name(value: str, what: str) -> str:
    """An identifier that is there and not absurd."""
    if not value or len(value) > LONGEST_NAME or not value.isprintable():
        raise RemoteProtocolError(f"the {what} must be 1 to {LONGEST_NAME} printable characters")
    return value


def integer(value: int, what: str, most: int = LARGEST_INTEGER) -> int:
    if value > most:
        raise RemoteProtocolError(f"the {what} {value} is beyond {most}")
    return value


def clock_time(value: float, what: str) -> float:
    """Seconds on somebody's clock, of a year that can be."""
    if not 0.0 <= value <= LATEST:  # false for NaN too
        raise RemoteProtocolError(f"the {what} is no time of a clock")
    return value


def duration_ms(value: float, what: str) -> float:
    """Milliseconds: a finite number that is not negative."""
    if not (isfinite(value) and value >= 0.0):
        raise RemoteProtocolError(f"the {what} is no duration")
    return value


# --- who, and which pool -------------------------------------------------------------------------


def key_out(key: PoolKey) -> Any:
    return edge.PoolKey(
        model=key.model, table=key.table, policy=key.policy, part=key.part, scope=key.scope
    )


def key_in(message: Any) -> PoolKey:
    return PoolKey(
        name(message.model, "model of a pool"),
        name(message.table, "table of a pool"),
        name(message.policy, "policy of a pool"),
        name(message.part, "part of a pool"),
        name(message.scope, "scope of a pool"),
    )


def identity_out(identity: DeviceIdentity) -> Any:
    return edge.Identity(**identity._asdict())


def identity_in(message: Any) -> DeviceIdentity:
    return DeviceIdentity(
        name(message.device, "device"),
        name(message.incarnation, "incarnation"),
        name(message.type, "device type"),
        name(message.network, "network"),
    )


# --- uploads and downloads -----------------------------------------------------------------------


def upload_out(upload: Upload) -> Any:
    return edge.Upload(
        device=upload.device,
        incarnation=upload.incarnation,
        key=key_out(upload.key),
        epoch=upload.epoch,
        sequence=upload.sequence,
        statistics=statistics_out(upload.statistics),
        pace=0.0 if upload.pace == 1.0 else upload.pace,
    )


def upload_in(message: Any) -> Upload:
    pace = message.pace or 1.0
    if not LEAST_PACE <= pace <= 1.0 / LEAST_PACE:
        raise RemoteProtocolError(f"a pace of {pace}")
    return Upload(
        name(message.device, "device"),
        name(message.incarnation, "incarnation"),
        key_in(message.key),
        integer(message.epoch, "epoch"),
        integer(message.sequence, "sequence"),
        statistics_in(message.statistics),
        pace,
    )


def uploads_in(messages: Sequence[Any]) -> tuple[Upload, ...]:
    """Uploads as they came in; of one that cannot be used the error names the sender."""
    if len(messages) > MOST_UPLOADS:
        raise RemoteProtocolError(f"{len(messages)} uploads in one message; at most {MOST_UPLOADS}")
    uploads = []
    for message in messages:
        try:
            uploads.append(upload_in(message))
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"upload of {message.device[:64]!r}: {error}") from None
    return tuple(uploads)


def download_out(download: Download, refused: str = "") -> Any:
    return edge.Download(
        key=key_out(download.key),
        epoch=download.epoch,
        statistics=statistics_out(download.statistics),
        round=download.round,
        acknowledged=download.acknowledged,
        time=download.time,
        refused=refused,
    )


def download_in(message: Any) -> Download:
    acknowledged = None
    if message.HasField("acknowledged"):
        acknowledged = integer(message.acknowledged, "acknowledged sequence")
    return Download(
        key_in(message.key),
        # A version beyond every other would shut out whatever honest servers say afterwards.
        integer(message.epoch, "epoch", LATEST_EPOCH),
        statistics_in(message.statistics),
        integer(message.round, "round", MOST_ROUNDS),
        acknowledged,
        clock_time(message.time, "time of a download"),
    )


# --- what a device keeps -------------------------------------------------------------------------


def record_out(record: PartRecord) -> Any:
    return edge.PartRecord(
        key=key_out(record.key),
        epoch=record.epoch,
        sequence=record.sequence,
        synced=statistics_out(record.synced),
        local=statistics_out(record.local),
        sent=None if record.sent is None else statistics_out(record.sent),
        retired=statistics_out(record.retired),
        sent_epoch=record.sent_epoch,
        synced_time=record.synced_time,
        own=None if record.own is None else statistics_out(record.own),
    )


def record_in(message: Any) -> PartRecord:
    return PartRecord(
        key_in(message.key),
        integer(message.epoch, "epoch"),
        integer(message.sequence, "sequence"),
        statistics_in(message.synced),
        statistics_in(message.local),
        statistics_in(message.sent) if message.HasField("sent") else None,
        statistics_in(message.retired),
        integer(message.sent_epoch, "epoch") if message.HasField("sent_epoch") else None,
        clock_time(message.synced_time, "time of a record"),
        statistics_in(message.own) if message.HasField("own") else None,
    )
