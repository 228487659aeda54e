"""The plot of a sweep: the regret of every setting as a dot, with its 95 % interval."""

from __future__ import annotations

from html import escape
from math import isfinite

from cans.simulation.reproduce.claims.intervals import Interval
from cans.simulation.reproduce.figures.axes import Axis, tick_text
from cans.simulation.reproduce.figures.drawing import FONT
from cans.simulation.sweep.summary import Group

MOST = 200  # rows that a picture can hold
ROW, WIDTH, TOP, BOTTOM = 20, 900, 44, 40
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a63d2", "#8c8c8c")


def sweep_svg(groups: list[Group], name: str) -> str:
    """An SVG picture; of a larger sweep the first settings, and it says so."""
    shown = [(each, regret) for each in groups if (regret := each.numbers["regret_ms"])][:MOST]
    left = 24 + 6.4 * max((len(each.title) for each, _ in shown), default=0)
    across = _axis([regret for _, regret in shown], left)
    height = TOP + ROW * len(shown) + BOTTOM
    title = f"{name}: regret in ms, mean and 95 % interval over seeds"
    if len(shown) < len(groups):
        title += f" (first {len(shown)} of {len(groups)} settings)"
    policies = list(dict.fromkeys(each.axes["policy"] for each, _ in shown))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" font-family="{FONT}" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>'
        f'<text x="12" y="22" font-size="14" font-weight="600">{escape(title)}</text>'
    ]
    for tick in across.ticks():
        x = float(across.place(tick))
        parts.append(
            f'<path d="M{x:.1f} {TOP - 6}V{height - BOTTOM}" stroke="#ddd"/>'
            f'<text x="{x:.1f}" y="{height - BOTTOM + 18}" text-anchor="middle">'
            f"{escape(tick_text(tick))}</text>"
        )
    for row, (each, regret) in enumerate(shown):
        colour = COLOURS[policies.index(each.axes["policy"]) % len(COLOURS)]
        parts.append(_row(each.title, regret, across, TOP + ROW * row + ROW / 2, colour))
    return "".join([*parts, "</svg>\n"])


def _row(title: str, regret: Interval, across: Axis, y: float, colour: str) -> str:
    low, mean, high = (
        float(across.place(value)) for value in (regret.low, regret.mean, regret.high)
    )
    line = f'<path d="M{low:.1f} {y}H{high:.1f}" stroke="{colour}" stroke-width="2"/>'
    return (
        f'<text x="12" y="{y + 4}">{escape(title)}</text>'
        f'{line if isfinite(regret.low) else ""}<circle cx="{mean:.1f}" cy="{y}" r="4"'
        f' fill="{colour}"/>'
    )


def _axis(regrets: list[Interval], left: float) -> Axis:
    """Logarithmic where regrets differ by more than a factor of ten and none is zero."""
    ends = [end for each in regrets for end in each if isfinite(end)] or [0.0, 1.0]
    means = [each.mean for each in regrets] or [1.0]
    log = min(means) > 0 and max(means) > 10 * min(means)
    low = min(means) / 2 if log else min(*ends, 0.0)
    high = max(ends)
    return Axis(low, high if high > low else low + 1.0, left, WIDTH - 24, log)
