"""What is spelled for the compiler returns what its NumPy spelling does."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from cans.learning.arithmetic import linear, physical
from cans.simulation.engines import loops

PARTS, SIZE, CHOICES = 3, 5, 7
rng = np.random.default_rng(1)
square = rng.normal(size=(SIZE, SIZE))
definite = square @ square.T + 1e-6 * np.eye(SIZE)
lower = np.linalg.cholesky(definite)
vectors = rng.normal(size=(PARTS, SIZE))
matrices = rng.normal(size=(PARTS, SIZE, SIZE))

GIVEN = {
    "times": (rng.normal(size=(CHOICES, SIZE)), vectors[0]),
    "cholesky": (definite,),
    "squared": (square,),
    "inverse_root": (definite,),
    "inverse_from": (lower,),
    "each_times": (matrices, vectors),
    "each_turned_times": (matrices, vectors),
    "each_quadratic": (rng.normal(size=(2, PARTS, SIZE, SIZE)), vectors),
    "each_dot": (rng.normal(size=(2, PARTS, SIZE)), vectors),
    "each_combined": (rng.normal(size=(SIZE, PARTS, CHOICES)), vectors),
    "over_parts": (rng.normal(size=(PARTS, CHOICES)),),
    "norms": (lower, rng.normal(size=(SIZE, CHOICES))),
    "apply_floors": (
        np.maximum(rng.normal(size=(PARTS, CHOICES)), 0.0),
        rng.random((PARTS, CHOICES, CHOICES)),
        rng.random(CHOICES) < 0.5,
    ),
}
ONLY_HERE = {"triangle_inverse"}  # a step of others


def spelled() -> set[str]:
    functions = inspect.getmembers(loops, inspect.isfunction)
    return {name for name, function in functions if function.__module__ == loops.__name__}


def test_everything_that_is_spelled_twice_is_compared() -> None:
    assert spelled() == GIVEN.keys() | ONLY_HERE


@pytest.mark.parametrize("name", GIVEN)
def test_loops_equal_array_expressions(name) -> None:
    expression = getattr(linear, name, None) or getattr(physical, name)
    given = GIVEN[name]
    before = [array.copy() for array in given]
    np.testing.assert_allclose(
        getattr(loops, name)(*given), expression(*given), rtol=1e-9, atol=1e-12
    )
    for array, copy in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, copy)
