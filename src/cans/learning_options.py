"""The learner's numbers as options of a command: the same for `simulate` and `serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from cans.errors import InputError
from cans.learning.policies import Hyperparameters

Ridge = Annotated[float | None, typer.Option(help="Ridge lambda (0.01).")]
Alpha = Annotated[float | None, typer.Option(help="Upload when det grew by 1 + alpha (1).")]
BetaMs = Annotated[
    str | None, typer.Option(help="Confidence radius in ms (50), or theory in simulations.")
]


def hyperparameters(
    ridge: float | None, alpha: float | None, beta_ms: str | None
) -> Hyperparameters:
    """What was given, and the defaults for the rest."""
    given: dict[str, float | str | None] = {"ridge": ridge, "alpha": alpha}
    given["beta_ms"] = None if beta_ms is None else _radius(beta_ms)
    return Hyperparameters(**{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]


def _radius(text: str) -> float | str:
    if text == "theory":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--beta-ms must be a number or 'theory', not {text!r}") from None
