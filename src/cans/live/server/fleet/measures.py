"""What is counted of a fleet, for Prometheus: histograms by part and model, counters, gauges.

Filled by the recorder's thread, never by a request. The table of metrics is data: the exporter and
the documentation are made from it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from cans.live.server.fleet.happenings import (
    Accounted,
    Answered,
    Happening,
    Joined,
    Merged,
    Rejected,
)
from cans.live.server.fleet.recorder import Recorder
from cans.live.wire.account import FELL_BACK


class Metric(NamedTuple):
    """One name that a scrape finds."""

    kind: str  # counter, gauge or histogram
    help: str
    labels: tuple[str, ...] = ()


METRICS: dict[str, Metric] = {
    "cans_part_seconds": Metric(
        "histogram",
        "Time of each part of an inference, as devices tell: front, wait, link, server, total.",
        ("part", "model"),
    ),
    "cans_backend_seconds": Metric(
        "histogram", "Time a worker spent on a request: decoding and the back-end.", ("model",)
    ),
    "cans_wait_seconds": Metric(
        "histogram", "Time a request waited for a worker.", ("model",)
    ),
    "cans_inferences_total": Metric(
        "counter",
        "Inferences that devices told of, by who answered: server, device, or device after the "
        "server failed (fallback).",
        ("model", "answered_by"),
    ),
    "cans_calls_total": Metric("counter", "Calls of every method by status.", ("method", "code")),
    "cans_uploads_total": Metric("counter", "Uploads: merged or refused.", ("verdict",)),
    "cans_observations_total": Metric(
        "counter", "Observations in merged uploads, by part.", ("part",)
    ),
    "cans_pool_changes_total": Metric(
        "counter", "Pools that started anew because what they are about has changed.", ("part",)
    ),
    "cans_joins_total": Metric("counter", "Devices that joined, again or for the first time."),
    "cans_overloads_total": Metric("counter", "Requests refused because of too much to do."),
    "cans_happenings_dropped_total": Metric(
        "counter", "Happenings that the recorder could not keep up with; requests were not harmed."
    ),
    "cans_devices": Metric(
        "gauge", "Devices by state: new, offloading, local, breaker, gone.", ("state",)
    ),
    "cans_requests_inside": Metric("gauge", "Requests that are running or waiting for a worker."),
    "cans_workers": Metric("gauge", "Back-ends that may run at a time."),
    "cans_saved_seconds": Metric(
        "gauge",
        "Time saved since the start against always local or always offload, as devices estimate.",
        ("against",),
    ),
}  # fmt: skip

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histograms' buckets, in seconds."""


class Buckets:
    """A classic histogram in seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        found, seen = [], 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self._counts, strict=True):
            seen += count
            found.append((bound, float(seen)))
        return found


class Measures:
    """Counts what the recorder takes in."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._lock = threading.Lock()
        self.histograms: dict[tuple[str, ...], Buckets] = {}  # name and label values
        self.counters: Counter[tuple[str, ...]] = Counter()
        self._epochs: dict[object, int] = {}
        recorder.listeners.append(self._take_in)

    def _take_in(self, happenings: list[Happening]) -> None:
        with self._lock:
            for each in happenings:
                match each:
                    case Answered():
                        model = self._recorder.model_name(each.model)
                        self._add("cans_backend_seconds", model, each.compute_ms)
                        self._add("cans_wait_seconds", model, each.queue_ms)
                    case Accounted():
                        self._account(each)
                    case Joined():
                        self.counters["cans_joins_total",] += 1
                    case Merged() if not each.refused:
                        self._merged(each)
                    case Rejected() if each.code == "RESOURCE_EXHAUSTED":
                        self.counters["cans_overloads_total",] += 1

    def _account(self, told: Accounted) -> None:
        record = self._recorder.devices.get(told.device)
        if record is None:
            return
        for each in told.account.rounds:
            local = each.row == record.table.local
            parts = {"front": each.front_ms, "total": each.total_ms}
            if not local and not each.outcome & FELL_BACK:
                parts |= {"wait": each.wait_ms, "link": each.link_ms, "server": each.server_ms}
            for part, ms in parts.items():
                self._buckets(("cans_part_seconds", part, record.model)).add(ms / 1e3)
            by = "fallback" if each.outcome & FELL_BACK else "device" if local else "server"
            self.counters["cans_inferences_total", record.model, by] += 1

    def _merged(self, merged: Merged) -> None:
        self.counters["cans_observations_total", merged.key.part] += merged.observations
        if merged.epoch > self._epochs.setdefault(merged.key, merged.epoch):
            self._epochs[merged.key] = merged.epoch
            self.counters["cans_pool_changes_total", merged.key.part] += 1

    def _add(self, name: str, model: str, milliseconds: float) -> None:
        self._buckets((name, model)).add(milliseconds / 1e3)

    def _buckets(self, key: tuple[str, ...]) -> Buckets:
        found = self.histograms.get(key)
        if found is None:
            found = self.histograms[key] = Buckets()
        return found

    # --- reading ---

    def read(self) -> tuple[dict[tuple[str, ...], Buckets], dict[tuple[str, ...], int]]:
        """Histograms and counters as they are now, by name and label values."""
        with self._lock:
            return dict(self.histograms), dict(self.counters)


def series(found: Iterable[tuple[str, ...]], name: str) -> list[tuple[str, ...]]:
    """Keys of one metric, in order."""
    return sorted(key for key in found if key[0] == name)
