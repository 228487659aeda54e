"""What the pools say, in units that people use: GMAC/s of a group and of the server, Mbps and
round trip of a network. Estimated by the same learner that devices use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from cans.learning import DeviceIdentity, DeviceLearner, Download
from cans.live.split import SplitModel
from cans.live.wire.terms import Terms

LARGEST = 1e6  # a rate beyond is not known yet


class Quantity(NamedTuple):
    """An estimate with its interval; None: open on that side."""

    label: str
    unit: str
    value: float | None
    low: float | None
    high: float | None


def quantities(download: Download, model: SplitModel, terms: Terms) -> list[Quantity]:
    """What one pool says; empty: nothing that can be put in units."""
    part = terms.policy.part(download.key.part)
    if not download.statistics.count:
        return []
    learner = _reader(download, model, terms)
    if learner is None:
        return []
    learner.get_ready()
    mean, width = learner.part_predictions(part.name)
    found: list[Quantity] = []
    for segment in part.explains if len(part.explains) == 1 else ():
        if segment == "link":
            found += _link(model, mean, width)
        else:
            row = model.table.local if segment == "front" else 0
            found.append(_speed(model, segment, float(mean[row]), float(width[row])))
    return [each for each in found if each.value is not None]


def _reader(download: Download, model: SplitModel, terms: Terms) -> DeviceLearner | None:
    """A learner that has seen this pool and nothing else."""
    kind, _, name = download.key.scope.partition(":")
    identity = DeviceIdentity(
        "reader", type=name if kind == "group" else "device",
        network=name if kind == "network" else "default",
    )  # fmt: skip
    learner = DeviceLearner(model.table, terms.policy, identity, terms.hyperparameters)
    if download.key not in learner.pools():
        return None
    learner.adopt(download)
    return learner


def _speed(model: SplitModel, segment: str, mean_ms: float, width_ms: float) -> Quantity:
    """Multiply-accumulates per second over the whole model."""
    point: Any = model.points[model.last if segment == "front" else 0]
    half = getattr(point, "front" if segment == "front" else "back", None)
    macs = float(getattr(half, "total_macs", 0))
    whole = "whole model here" if segment == "front" else "whole model there"
    if not macs:  # a model that does not say how large it is
        return Quantity(whole, "ms", mean_ms, max(mean_ms - width_ms, 0.0), mean_ms + width_ms)
    return Quantity(
        "speed", "GMAC/s", _rate(macs / 1e6, mean_ms), _rate(macs / 1e6, mean_ms + width_ms),
        _rate(macs / 1e6, mean_ms - width_ms),
    )  # fmt: skip


def _link(model: SplitModel, mean: Any, width: Any) -> Iterable[Quantity]:
    """A line through what the smallest and the largest tensor are expected to take."""
    sizes = model.table.bytes_of
    if not sizes:
        return
    rows = range(model.table.local)
    small, large = min(rows, key=sizes.__getitem__), max(rows, key=sizes.__getitem__)
    kilobits = (sizes[large] - sizes[small]) * 8 / 1e3
    if kilobits <= 0:
        return
    taken = float(mean[large] - mean[small])
    spread = float(width[large])
    yield Quantity(
        "bandwidth", "Mbps", _rate(kilobits, taken), _rate(kilobits, taken + spread),
        _rate(kilobits, taken - spread),
    )  # fmt: skip
    trip = max(float(mean[small]) - taken * sizes[small] * 8 / 1e3 / kilobits, 0.0)
    around = float(width[small])
    yield Quantity("round trip", "ms", trip, max(trip - around, 0.0), trip + around)


def _rate(amount: float, milliseconds: float) -> float | None:
    """Amount per millisecond; None: nothing says how small the time is."""
    if milliseconds <= 0 or amount / milliseconds > LARGEST:
        return None
    return amount / milliseconds
