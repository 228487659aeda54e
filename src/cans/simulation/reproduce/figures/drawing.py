"""Draws figures as SVG, directly: text stays text, ink follows the page, and it takes no time.

A full report has sixty panels. A plotting library needs a quarter of a second for each and writes
ten times the bytes; these few shapes are all that the figures need.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from cans.learning.arithmetic.arrays import Array
from cans.simulation.reproduce.figures.axes import Axis, tick_text
from cans.simulation.reproduce.figures.plots import Figure, Line, Look, Panel

WIDTH, HEIGHT = 400, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 20, 40, 42
DASHES = {"solid": "", "dashed": "7 3", "dashdot": "9 3 2 3", "dotted": "2 3.5"}
FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_OPEN = '<svg xmlns="http://www.w3.org/2000/svg"'


def panel_svg(panel: Panel, name: str, x: float = 0, y: float = 0) -> str:
    """One panel as an SVG element; `name` keeps its ids apart from those of others on a page."""
    across, up = _axes(panel)
    clip = f"{name}-plot"
    frame = (
        f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}"'
        f' height="{HEIGHT - TOP - BOTTOM}"/>'
    )
    drawn = panel.drawn()
    return "".join(
        [
            f'{_OPEN} x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}"'
            f' viewBox="0 0 {WIDTH} {HEIGHT}" font-family="{FONT}" font-size="12"'
            f' fill="currentColor" role="img" aria-label="{escape(_description(panel))}">',
            f'<defs><clipPath id="{clip}">{frame}</clipPath></defs>',
            _text(panel.title, LEFT, 16, size=14, weight=600),
            _grid(panel, across, up),
            f'<g clip-path="url(#{clip})">',
            *(_band(each, across, up) for each in drawn),
            *(_curve(each, across, up) for each in sorted(drawn, key=lambda e: e.style.width)),
            "</g>",
            _notes(panel),
            "</svg>",
        ]
    )


def _axes(panel: Panel) -> tuple[Axis, Axis]:
    drawn = panel.drawn() or panel.lines
    xs = np.concatenate([each.x for each in drawn])
    left, right = float(xs.min()), float(xs.max())
    if panel.ticks and not panel.log_x:  # room beside the first and last value of a sweep
        left, right = left - 0.06 * (right - left), right + 0.06 * (right - left)
    # The first rounds vary most between seeds: the axis fits what comes after a tenth of a curve.
    shown = [each.mean[0 if each.marked else len(each.mean) // 10 :] for each in drawn]
    values = np.concatenate(shown)
    if panel.log_y:
        values = values[values > 0] if (values > 0).any() else np.ones(1)
        low, high = float(values.min()) / 1.25, float(values.max()) * 1.25
    else:
        low, high = min(0.0, float(values.min())), float(values.max()) * 1.12 or 1.0
    return (
        Axis(left, right, LEFT, WIDTH - RIGHT, panel.log_x),
        Axis(low, high, HEIGHT - BOTTOM, TOP, panel.log_y),
    )


def _grid(panel: Panel, across: Axis, up: Axis) -> str:
    """Ticks, their faint lines, and what the axes mean."""
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    shapes = []
    for tick in panel.ticks or across.ticks():
        x = _number(float(across.place(tick)))
        shapes.append(f'<path d="M{x} {TOP}V{bottom}" stroke="currentColor" opacity=".1"/>')
        shapes.append(_text(tick_text(tick), x, bottom + 16, anchor="middle"))
    for tick in up.ticks():
        y = _number(float(up.place(tick)))
        shapes.append(f'<path d="M{LEFT} {y}H{right}" stroke="currentColor" opacity=".1"/>')
        shapes.append(_text(tick_text(tick), LEFT - 6, float(y) + 4, anchor="end"))
    shapes.append(
        f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="currentColor" opacity=".5"/>'
    )
    middle = (TOP + bottom) / 2
    shapes.append(_text(panel.x_label, (LEFT + right) / 2, HEIGHT - 7, anchor="middle"))
    turned = f' transform="rotate(-90 13 {middle})"'
    shapes.append(_text(panel.y_label, 13, middle, anchor="middle", more=turned))
    return "".join(shapes)


def _curve(each: Line, across: Axis, up: Axis) -> str:
    style = each.style
    end = f"{each.title}: {each.mean[-1]:.4g} (95 %: {each.low[-1]:.4g} to {each.high[-1]:.4g})"
    dots = ""
    if each.marked:
        dots = "".join(
            f'<circle cx="{_number(x)}" cy="{_number(y)}" r="3.2" fill="{style.colour}"/>'
            for x, y in zip(across.place(each.x), up.place(each.mean), strict=True)
        )
    path = _path(across.place(each.x), up.place(each.mean))
    return (
        f'<g><title>{escape(end)}</title><path d="{path}" fill="none" {stroke(style)}/>{dots}</g>'
    )


def _band(each: Line, across: Axis, up: Axis) -> str:
    x = np.concatenate([each.x, each.x[::-1]])
    edge = np.concatenate([each.high, each.low[::-1]])
    path = _path(across.place(x), up.place(edge))
    return f'<path d="{path}Z" fill="{each.style.colour}" opacity=".16"/>'


def stroke(style: Look) -> str:
    """A look as SVG attributes."""
    dash = DASHES[style.dash]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{style.colour}" stroke-width="{style.width}" stroke-linejoin="round"{dashes}'


def _notes(panel: Panel) -> str:
    """What the axes cannot show: curves at zero, and curves that lie below another."""
    right, notes = WIDTH - RIGHT, ""
    if zeros := panel.zeros():
        words = "zero: " + ", ".join(each.title for each in zeros)
        notes += _text(words, right - 4, HEIGHT - BOTTOM - 7, anchor="end", size=11)
    if hidden := panel.hidden():
        words = f"same as {panel.lines[0].title}: " + ", ".join(each.title for each in hidden)
        notes += _text(words, LEFT, 31, size=10)
    return notes


def _description(panel: Panel) -> str:
    """For those who cannot see the figure: where its curves end."""
    ends = ", ".join(f"{each.title} {each.mean[-1]:.3g}" for each in panel.lines)
    return f"{panel.title}: {panel.y_label} against {panel.x_label}; last values: {ends}"


def _path(xs: Array, ys: Array) -> str:
    return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in zip(xs, ys, strict=True))


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _text(
    words: str,
    x: float | str,
    y: float | str,
    *,
    anchor: str = "start",
    size: int = 12,
    weight: int = 400,
    more: str = "",
) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}"'
        f' font-weight="{weight}"{more}>{escape(words)}</text>'
    )


def figure_svg(figure: Figure) -> str:
    """A whole figure as a file of its own: rows of panels, and the legend below."""
    columns = max(len(panels) for _, panels in figure.rows)
    parts, y = [], 8.0
    for number, (heading, panels) in enumerate(figure.rows):
        parts.append(_text(heading, 16, y + 14, size=14))
        for column, panel in enumerate(panels):
            name = f"{figure.name}-{number}-{column}"
            parts.append(panel_svg(panel, name, x=column * WIDTH, y=y + 18))
        y += HEIGHT + 26
    width = columns * WIDTH
    parts.append(_legend_rows(figure.legend(), width, y + 14))
    y += 14 + 20 * _rows_needed(figure.legend(), width)
    return (
        f'{_OPEN} width="{width}" height="{y:g}" viewBox="0 0 {width} {y:g}" color="#23262b"'
        f' fill="#23262b" font-family="{FONT}"><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{''.join(parts)}</svg>\n"
    )


_SLOT = 190  # width of a legend entry


def _rows_needed(lines: Sequence[Line], width: float) -> int:
    per_row = max(int(width // _SLOT), 1)
    return -(-len(lines) // per_row)


def _legend_rows(lines: Sequence[Line], width: float, top: float) -> str:
    per_row = max(int(width // _SLOT), 1)
    shapes = []
    for number, each in enumerate(lines):
        x, y = 16 + number % per_row * _SLOT, top + number // per_row * 20
        shapes.append(f'<path d="M{x} {y - 4}h30" fill="none" {stroke(each.style)}/>')
        shapes.append(_text(each.title, x + 36, y))
    return "".join(shapes)
