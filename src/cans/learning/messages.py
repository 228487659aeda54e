"""What devices and the edge server say to each other about learning: frozen and valid values.

An upload is named by (device, incarnation, pool key, epoch, sequence), so that a repeated one can
be told from a new one: sums are not idempotent, merging them must be.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from cans.learning.statistics import SufficientStatistics

DELIVERIES = ("immediate", "next-contact")
"""When uploads travel: at once, as in the paper, or with the next request."""


class PoolKey(NamedTuple):
    """Which observations belong together. Two keys never mix."""

    model: str  # digest of the model
    table: str  # version of the partition table: features of another table are other features
    policy: str
    part: str
    scope: str  # "everyone", "group:rpi5", "network:lab" or "device:7f3a"


class DeviceIdentity(NamedTuple):
    """Who a device is. `incarnation` is new whenever its kept state is, so that a wiped device
    that counts from zero again is not mistaken for a repeat of what it sent before."""

    device: str
    incarnation: str = "0"
    type: str = "device"
    network: str = "default"


@dataclass(frozen=True)
class Upload:
    """Statistics on their way to a pool. Sequence 0 is a joining device's offline experience."""

    device: str
    incarnation: str
    key: PoolKey
    epoch: int
    sequence: int
    statistics: SufficientStatistics
    pace: float = 1.0  # by which its latencies were divided: how many times its pool's they are

    @property
    def measured(self) -> SufficientStatistics:
        """What the device measured itself, before it was brought to the level of its pool."""
        if self.pace == 1.0:
            return self.statistics
        told = self.statistics
        b, squares = told.b * self.pace, told.squares * self.pace**2
        return SufficientStatistics(told.sigma, b, squares, told.weight, told.count)

    def __post_init__(self) -> None:
        if not 0.0 < self.pace < inf:
            raise ValueError(f"a pace of {self.pace}")
        if self.epoch < 0 or self.sequence < 0:
            raise ValueError(
                f"epoch {self.epoch} and sequence {self.sequence} must not be negative"
            )


@dataclass(frozen=True)
class Download:
    """A pool as the server holds it, and which upload of the receiver it already contains.

    `time` is that of the pool's last merge, in seconds by the server's clock.
    """

    key: PoolKey
    epoch: int
    statistics: SufficientStatistics
    round: int = 0
    acknowledged: int | None = None
    time: float = 0.0


def statistics_bytes(dimension: int) -> int:
    """Bytes of one set of statistics on the wire: half of symmetric Sigma, b and three totals."""
    return 8 * (dimension * (dimension + 1) // 2 + dimension + 3)
