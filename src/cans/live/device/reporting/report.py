"""What a device can say about an inference: what it chose, why, and how long everything took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Any, Protocol

import numpy as np

from cans.learning import Choice, PartitionTable
from cans.learning.arithmetic.arrays import Array, BoolArray
from cans.live.device.experience import Experience
from cans.live.device.timing import Measured
from cans.live.split import SplitModel

LEAST_TOLD_MS = 0.1  # of a wait or a toll that is worth a word
Why = Callable[[], str]
"""Says why something was chosen; to be asked before more is learned, and not while anyone waits."""


@dataclass(frozen=True)
class Report:
    """One inference, explained."""

    number: int  # how many this device had answered, with this one
    point: int
    point_name: str
    codec: str
    why: str
    answered_by: str  # the server, or "device"
    predicted_ms: float  # nan: the policy does not predict
    width_ms: float
    front_ms: float
    link_ms: float  # encoding, both ways of the wire, decoding; nan: did not take place
    server_ms: float  # compute and queue; nan: did not take place
    queue_ms: float
    wait_ms: float  # for earlier requests of this device
    total_ms: float  # what the caller waited, from the call to the answer
    bytes_up: int
    learned: bool  # whether the latencies were typical enough to learn from
    fallback: str  # why the server did not answer; empty: it did, or was not asked
    predictions: tuple[Array, Array] | None = None  # mean and width of every choice
    measured: Array | None = None  # last measured total of every choice; nan: never taken
    table: PartitionTable | None = None

    def to_dict(self, choices: bool = True) -> dict[str, Any]:
        """As JSON; with what was expected of every other choice."""
        found = {name: _plain(getattr(self, name)) for name in _FIELDS}
        if choices and self.table is not None and self.predictions is not None:
            mean, width = self.predictions
            found["choices"] = [
                {
                    "point": self.table.point_of[row],
                    "point_name": self.table.points[self.table.point_of[row]],
                    "codec": self.table.codec_of[row],
                    "predicted_ms": _plain(float(mean[row])),
                    "width_ms": _plain(float(width[row])),
                    "measured_ms": None if self.measured is None
                    else _plain(float(self.measured[row])),
                }
                for row in range(self.table.choices)
            ]  # fmt: skip
        return found

    def __str__(self) -> str:
        parts = [f"{name} {value:.1f} ms" for name, value in
                 (("wait", self.wait_ms if self.wait_ms >= 0.05 else nan),
                  ("front", self.front_ms), ("link", self.link_ms), ("server", self.server_ms),
                  ("other", self.other_ms if self.other_ms >= 0.05 else nan))
                 if isfinite(value)]  # fmt: skip
        late = f"; finished here: {self.fallback}" if self.fallback else ""
        where = f"point {self.point} ({self.point_name}), {self.codec}"
        return f"{where}: {self.total_ms:.1f} ms = {' + '.join(parts)}; {self.why}{late}"

    @property
    def other_ms(self) -> float:
        """What no stage accounts for: building a half when it is first used, or a server whose
        reply was waited for and not used."""
        stages = (self.wait_ms, self.front_ms, self.link_ms, self.server_ms)
        return self.total_ms - sum(each for each in stages if isfinite(each))


class Explainer:
    """Writes the reports of one device. Used by whoever has the turn."""

    def __init__(self, model: SplitModel, experience: Experience) -> None:
        self._model = model
        self._experience = experience
        self._measured_ms: Array = np.zeros(0)  # the last total of every choice

    def report(
        self, job: TimedJob, choice: Choice | None, why: Why, measured: Measured, *, note: str,
        point: int | None = None, **more: Any,
    ) -> Report:  # fmt: skip
        """Of a job whose caller has its answer."""
        learner = self._experience.learner
        if point is None:
            point = self._model.last if choice is None else choice.point
        table = predictions = None
        if learner is not None and choice is not None:
            table = learner.table
            if len(self._measured_ms) != table.choices:
                self._measured_ms = np.full(table.choices, nan)
            predictions = learner.predictions() if learner.policy.parts else None
        fields: dict[str, Any] = {
            "codec": choice.codec if choice else "float32",
            "answered_by": "device",
            "predicted_ms": choice.predicted_ms if choice else nan,
            "width_ms": choice.width_ms if choice else nan,
            "link_ms": nan,
            "server_ms": nan,
            "queue_ms": nan,
            "bytes_up": 0,
            "fallback": "",
        }
        report = Report(
            number=self._experience.state.inferences + 1, point=point,
            point_name=self._model.points[point].name, why=why() + note,
            wait_ms=(job.begun - job.called) * 1e3, total_ms=(job.answered - job.called) * 1e3,
            learned=measured.front_ms is not None,
            predictions=predictions, measured=self._measured_ms.copy(), table=table,
            **{**fields, **more},
        )  # fmt: skip
        if choice is not None and measured.link_ms is not None:
            self._measured_ms[choice.row] = measured.total_ms
        return report


class TimedJob(Protocol):
    """When a request was made, its turn came and its caller had the answer, by the performance
    counter."""

    @property
    def called(self) -> float: ...
    @property
    def begun(self) -> float: ...
    @property
    def answered(self) -> float: ...


def reason(
    choice: Choice, mean: Array, table: PartitionTable, charge: Array | None = None,
    allowed: BoolArray | None = None,
) -> str:  # fmt: skip
    """Why the learner chose what it chose; `charge`: wait and toll of every choice, as assumed;
    `allowed`: what it chose among, None: all."""
    if not isfinite(choice.predicted_ms):
        return "the policy always chooses so"
    crowded = ""
    if charge is not None and charge[:, :-1].max() >= LEAST_TOLD_MS:
        mean = mean + charge[0]
        sent = choice.row if choice.row != table.local else int(np.argmin(mean[:-1]))
        wait, fee = (float(each) for each in charge[:, sent])
        crowded = f"; the server is busy: wait {wait:.1f} ms, toll {fee:.1f} ms"
        if sent != choice.row:
            crowded += f" for {table.points[table.point_of[sent]]} ({table.codec_of[sent]})"
    return (
        _reason(choice, mean if allowed is None else np.where(allowed, mean, inf), table) + crowded
    )


def _reason(choice: Choice, mean: Array, table: PartitionTable) -> str:
    lowest = int(np.argmin(mean))
    expected = f"expected {choice.predicted_ms:.1f} ms, width {choice.width_ms:z.1f} ms"
    if lowest == choice.row or mean[lowest] >= choice.predicted_ms:
        return f"lowest expected latency ({expected})"
    best = f"{table.points[table.point_of[lowest]]} ({table.codec_of[lowest]})"
    return f"worth finding out ({expected}); expected lowest: {best}, {mean[lowest]:.1f} ms"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value


_FIELDS = (
    *("number", "point", "point_name", "codec", "why", "answered_by", "predicted_ms", "width_ms"),
    *("front_ms", "link_ms", "server_ms", "queue_ms", "wait_ms", "total_ms", "bytes_up", "learned"),
    "fallback",
)
