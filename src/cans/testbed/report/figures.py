"""Latency over rounds, one line per policy; needs matplotlib."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from cans.testbed.report.records import SWEEP, Row, latency_ms

_SMOOTH = 10


def draw_latency(rows: Sequence[Row], title: str, path: Path) -> bool:
    """A moving mean over all devices; False when matplotlib is not installed."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return False
    by_policy: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["policy"] != SWEEP and not row["error"]:
            by_policy[row["policy"]][row["round"]].append(latency_ms(row))
    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for policy, rounds in by_policy.items():
        means = [fmean(rounds[each]) for each in sorted(rounds)]
        smooth = [fmean(means[max(i - _SMOOTH + 1, 0) : i + 1]) for i in range(len(means))]
        axes.plot(sorted(rounds), smooth, label=policy)
    axes.set(xlabel="round", ylabel="latency (ms), mean of 10 rounds", title=title)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return True
