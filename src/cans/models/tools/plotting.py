"""A picture of the network from input to end: work done so far, and bytes that would cross."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cans.errors import InputError
from cans.models.points.points import Point
from cans.models.tools.describe import spelled_macs


def plot(name: str, points: Sequence[Point], path: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        raise InputError("--plot needs matplotlib: pip install 'cans-edge[sim]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(max(6.0, 0.32 * len(points)), 4.2))
    places = range(len(points))
    total = max(points[-1].front.total_macs, 1)
    raw = points[0].bytes
    colours = ["tab:green" if point.bytes < raw else "tab:gray" for point in points]
    axes.bar(places, [point.bytes / 1e3 for point in points], color=colours)
    axes.axhline(raw / 1e3, color="tab:gray", linewidth=0.8, linestyle="--")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylabel("crossing, kB (green: less than the input)")
    axes.set_xticks(list(places), [_short(point.name) for point in points], rotation=90, fontsize=7)
    work = axes.twinx()
    work.plot(
        places, [100 * point.front.total_macs / total for point in points], "o-", markersize=3
    )
    work.set_ylabel("work done on the device, % of MACs")
    work.set_ylim(0, 105)
    axes.set_title(f"{name}: {spelled_macs(points[-1].front.total_macs)}, {len(points)} points")
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write the picture {path}: {error}") from None
    finally:
        pyplot.close(figure)


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"…{name[-23:]}"
