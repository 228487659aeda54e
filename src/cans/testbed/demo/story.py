"""What happens in the demo and what was measured of it; no process and no screen in here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

NOW = 8  # inferences that make up "now"


@dataclass(frozen=True)
class Sample:
    """One answered inference."""

    seconds: float  # since the start
    phase: int  # 0: before the link changed
    outage: bool
    device: int
    how: str  # "cans", "local" or "offload"
    ms: float
    point: str
    codec: str
    by_server: bool


class Story:
    """The schedule, and the samples so far. Every method may be called from several threads."""

    def __init__(self, seconds: float, devices: list[tuple[str, str]]) -> None:
        self.seconds = seconds
        self.change_at = 0.45 * seconds
        self.kill_at = 0.75 * seconds
        self.return_at = self.kill_at + min(6.0, 0.12 * seconds)
        self.devices = devices  # name and type
        self.phase = 0
        self.server_down = False
        self.unanswered = 0
        self.news = "devices learn where to cut"
        self.events: list[tuple[float, str]] = []
        self.over = threading.Event()
        self._start = time.monotonic()
        self._samples: list[Sample] = []

    def now(self) -> float:
        return time.monotonic() - self._start

    def tell(self, text: str) -> None:
        self.news = text
        self.events.append((self.now(), text))

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def samples(self, device: int, how: str) -> list[Sample]:
        return [each for each in list(self._samples) if each.device == device and each.how == how]

    def mean(self, device: int, how: str, keep: Callable[[Sample], bool]) -> float | None:
        found = [each.ms for each in self.samples(device, how) if keep(each)]
        return fmean(found) if found else None

    def latest(self, device: int) -> float | None:
        found = self.samples(device, "cans")[-NOW:]
        return fmean(each.ms for each in found) if found else None

    def comparison(self, device: int, how: str) -> float | None:
        """The mean of always doing so, on the link as it is now; what the server did not answer is
        no full offload."""
        phase, remote = self.phase, how == "offload"
        return self.mean(
            device, how, lambda each: each.phase == phase and (each.by_server or not remote)
        )
