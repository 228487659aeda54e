"""What devices found by comparing lossy answers with the whole model, for those that join later.

One device alone does not speak for the fleet: of the largest differences the second largest counts,
and of the agreements each device has at most so many. Kept while the server runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from cans.live.split import SplitModel
from cans.live.wire.accuracy import Compared

_MOST_DEVICES = 64  # whose comparisons of a choice are kept, the first
_MOST_SAID = 100  # agreements of one device that count

Table = tuple[str, str]  # digest of the model, version of its table


class FleetAccuracy:
    """Comparisons of every model, choice and device. Used by one thread."""

    def __init__(self) -> None:
        self._table_of: dict[str, Table] = {}  # of each device
        self._seen: dict[Table, dict[int, dict[str, Compared]]] = {}

    def joined(self, device: str, model: SplitModel) -> None:
        self._table_of[device] = (model.digest, model.table.version)

    def told(self, device: str, comparisons: Sequence[Compared]) -> None:
        """A device has compared some more."""
        table = self._table_of.get(device)
        if table is None:
            return
        rows = self._seen.setdefault(table, {})
        for each in comparisons:
            by_device = rows.setdefault(each.row, {})
            if device in by_device:
                by_device[device] = by_device[device].and_also(each)
            elif len(by_device) < _MOST_DEVICES:
                by_device[device] = each

    def known(self, model: SplitModel) -> tuple[Compared, ...]:
        """What is known of the choices of a model."""
        rows = self._seen.get((model.digest, model.table.version), {})
        return tuple(_together(row, list(found.values())) for row, found in sorted(rows.items()))


def _together(row: int, found: Sequence[Compared]) -> Compared:
    errors = sorted(each.worst_error for each in found)
    judged = agreed = 0.0
    for each in found:
        weight = min(1.0, _MOST_SAID / max(each.judged, 1))
        judged += round(each.judged * weight)
        agreed += each.agreed * weight
    count = sum(each.count for each in found)
    second = errors[-2] if len(errors) > 1 else 0.0
    return Compared(row, count, second, int(judged), min(agreed, judged))
