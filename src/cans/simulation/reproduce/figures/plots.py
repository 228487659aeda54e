"""What a figure is, as data: panels of lines with bands. `drawing.py` draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cans.learning.arithmetic.arrays import Array, IntArray
from cans.learning.policies import POLICIES
from cans.simulation.reproduce.claims.intervals import band
from cans.simulation.reproduce.claims.verdicts import MODEL_TITLES


@dataclass(frozen=True)
class Look:
    """Colour, dashes and width, the same in every figure."""

    colour: str
    dash: str = "solid"
    width: float = 1.8


INK = "currentColor"  # the text colour of the page, light or dark

# Okabe and Ito's colours (safe for colour-blind readers), then Tol's; legends have this order.
LOOKS: dict[str, Look] = {
    "cans": Look("#e4007c", width=3.2),
    "fedlinucb-dw": Look("#0072b2", width=2.8),
    "fedlinucb-decouple": Look("#8a63d2", "dashed"),
    "linucb-warmstart": Look("#a6761d", "dashdot"),
    "warmstart-linucb": Look("#e69f00", "dashed"),
    "linucb": Look("#009e73", "dashdot"),
    "fedlinucb": Look("#d55e00"),
    "random": Look("#cc79a7", "dotted"),
    "local": Look("#8c8c8c"),
    "offload": Look("#56b4e9", "dashed"),
    "oracle": Look(INK, "dotted"),
    "bound": Look("#c23b22", "dashed"),
    "worst": Look("#8c8c8c", "dotted"),
    "vgg16": Look("#5b4bc4"),
    "resnet50": Look("#2f8f4e", "dashed"),
    "vit_b16": Look("#b0416e", "dashdot"),
}


@dataclass(frozen=True, eq=False)
class Line:
    """One curve with its 95 % band."""

    look: str  # a key of LOOKS: a policy, a model, a bound
    x: Array
    mean: Array
    low: Array
    high: Array
    label: str = ""  # the policy's or model's title unless given
    dash: str = ""  # another than its own, for a second curve of the same policy
    marked: bool = False  # a dot at every value, for sweeps

    @property
    def title(self) -> str:
        if self.label:
            return self.label
        return MODEL_TITLES.get(self.look) or POLICIES[self.look].title

    @property
    def style(self) -> Look:
        look = LOOKS[self.look]
        return Look(look.colour, self.dash or look.dash, look.width)


def line(
    look: str,
    x: Array | IntArray | Sequence[float],
    samples: Array,
    *,
    label: str = "",
    dash: str = "",
    marked: bool = False,
) -> Line:
    """The mean and band of (seeds, values) samples."""
    mean, low, high = band(samples)
    return Line(look, np.asarray(x, dtype=float), mean, low, high, label, dash, marked)


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = True
    ticks: Sequence[float] = ()  # x values to label, for sweeps

    def drawn(self) -> list[Line]:
        """The lines it can show: zero has no place on a logarithmic axis."""
        return [each for each in self.lines if not self.log_y or (each.mean > 0).any()]

    def zeros(self) -> list[Line]:
        """The lines that are zero everywhere; a note names them instead."""
        return [each for each in self.lines if self.log_y and not (each.mean > 0).any()]

    def hidden(self) -> list[Line]:
        """The lines that coincide with the first one, which is drawn on top of them."""
        first, *rest = self.lines
        return [
            each
            for each in rest
            if each.mean.shape == first.mean.shape
            and np.allclose(each.mean, first.mean, rtol=0.01)
            and each not in self.zeros()
        ]


@dataclass(frozen=True, eq=False)
class Figure:
    """Rows of panels under a heading each: usually a row per world, a column per model."""

    name: str  # of its file
    rows: Sequence[tuple[str, Sequence[Panel]]]

    def legend(self) -> list[Line]:
        """One line of each title, in the order of LOOKS."""
        order = list(LOOKS)
        found: dict[str, Line] = {}
        for _, panels in self.rows:
            for each in (each for panel in panels for each in panel.lines):
                found.setdefault(each.title, each)
        return sorted(found.values(), key=lambda each: order.index(each.look))
