"""Sizes that are not fixed: numbers written in terms of the open dimensions of a model's inputs.

A model is run at several sizes when it is loaded. From what every dimension was then, it is written
as a function of one open dimension: exactly where it is of the form floor((m s + a) / d), as
strides, patches and up-sampling make them, else by interpolation; or as a product of such
functions. Work is counted with these in the place of numbers, once; the counts of a size are then
a small product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import total_ordering
from math import prod

import numpy as np

from cans.models.onnx.tensors import ONNX_TYPES, Tensor

_LARGEST_DIVISOR = 64
_LARGEST_FACTOR = 16


@dataclass(frozen=True)
class Exact:
    """floor((factor * s + shift) / divisor) of one open dimension."""

    symbol: int
    factor: int
    shift: int
    divisor: int

    def at(self, sizes: Sequence[int]) -> float:
        return (self.factor * sizes[self.symbol] + self.shift) // self.divisor


@dataclass(frozen=True)
class Interpolated:
    """A function of one open dimension, between the sizes it was seen at."""

    symbol: int
    sizes: tuple[int, ...]
    values: tuple[float, ...]

    def at(self, sizes: Sequence[int]) -> float:
        return float(np.interp(sizes[self.symbol], self.sizes, self.values))


Atom = Exact | Interpolated


@total_ordering
class Size:
    """A sum of products of functions of the open dimensions; behaves like a number."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[tuple[Atom, ...], float]) -> None:
        self.terms = dict(terms)

    def __mul__(self, other: Size | float) -> Size:
        found: dict[tuple[Atom, ...], float] = {}
        for a, x in self.terms.items():
            for b, y in terms_of(other).items():
                key = tuple(sorted((*a, *b), key=repr))
                found[key] = found.get(key, 0) + x * y
        return Size(found)

    def __add__(self, other: Size | float) -> Size:
        found = dict(self.terms)
        for key, value in terms_of(other).items():
            found[key] = found.get(key, 0) + value
        return Size(found)

    def __floordiv__(self, other: int) -> Size:
        return Size({key: value / other for key, value in self.terms.items()})

    __rmul__ = __mul__
    __radd__ = __add__

    # Only the order of alternatives (the heavier branch) is asked for.
    def __lt__(self, other: Size | float) -> bool:
        return sum(self.terms.values()) < sum(terms_of(other).values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    __hash__ = None  # type: ignore[assignment]

    def at(self, sizes: Sequence[int]) -> float:
        return sum(
            value * prod(atom.at(sizes) for atom in key) for key, value in self.terms.items()
        )


def terms_of(value: Size | float) -> Mapping[tuple[Atom, ...], float]:
    """The products of a size and their factors; of a number, itself."""
    return value.terms if isinstance(value, Size) else {(): value}


@dataclass(frozen=True)
class Symbols:
    """The open dimensions of a model's inputs, each with its range."""

    names: tuple[str, ...]
    lowest: tuple[int, ...]
    highest: tuple[int, ...]
    places: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)  # of inputs

    def sizes_of(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """What the open dimensions are for inputs of these shapes."""
        found = list(self.highest)
        for name, places in self.places.items():
            for symbol, size in zip(places, shapes.get(name, ()), strict=False):
                if symbol is not None:
                    found[symbol] = size
        return tuple(found)

    def shape_at(self, name: str, full: tuple[int, ...], sizes: Sequence[int]) -> tuple[int, ...]:
        """The shape of an input at these sizes."""
        places = self.places.get(name, (None,) * len(full))
        return tuple(
            size if symbol is None else sizes[symbol]
            for symbol, size in zip(places, full, strict=True)
        )

    def samples(self) -> list[tuple[int, ...]]:
        """Sizes to run at: the largest, all at their lowest, and each by itself in between."""
        found = [self.highest, self.lowest]
        for symbol, (low, high) in enumerate(zip(self.lowest, self.highest, strict=True)):
            found += [
                tuple(size if i == symbol else s for i, s in enumerate(self.highest))
                for size in _between(low, high)
            ]
        return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Varying:
    """How the shape of every tensor of a model follows from the open dimensions."""

    symbols: Symbols
    shapes: Mapping[str, tuple[int | Size, ...]]

    def shape_of(self, name: str, sizes: Sequence[int]) -> tuple[int, ...]:
        return tuple(
            round(each.at(sizes)) if isinstance(each, Size) else each for each in self.shapes[name]
        )


def _between(low: int, high: int) -> list[int]:
    """A few sizes with different remainders by 2, 4, 8 and 16."""
    parts = [low + (high - low) * i // 6 for i in range(7)]
    return sorted(
        {min(high, max(low, part + i % 2 + 4 * (i % 3 == 1))) for i, part in enumerate(parts)}
    )


def written(symbols: Symbols, runs: Mapping[tuple[int, ...], int]) -> int | Size:
    """One dimension as a function of the open ones, from what it was at sampled sizes."""
    base = runs[symbols.highest]
    if all(value == base for value in runs.values()):
        return base
    atoms: list[Atom] = []
    for symbol in range(len(symbols.names)):
        seen = {
            sizes[symbol]: value
            for sizes, value in runs.items()
            if _others(sizes, symbol) == _others(symbols.highest, symbol)
        }
        if len(set(seen.values())) > 1:
            atoms.append(_fitted(symbol, seen))
    if len(atoms) == 1 and isinstance(atoms[0], Exact):
        return Size({(atoms[0],): 1})
    # Each factor by itself; the base is counted once, whatever the number of factors.
    rest = base / prod(atom.at(symbols.highest) for atom in atoms)
    return Size({tuple(sorted(atoms, key=repr)): rest})


def _others(sizes: tuple[int, ...], symbol: int) -> tuple[int, ...]:
    return sizes[:symbol] + sizes[symbol + 1 :]


def _fitted(symbol: int, seen: Mapping[int, int]) -> Atom:
    points = sorted(seen.items())
    (s0, v0), (s1, v1) = points[0], points[-1]
    slope = (v1 - v0) / (s1 - s0)
    for divisor in range(1, _LARGEST_DIVISOR + 1):
        for factor in {round(slope * divisor), max(1, int(slope * divisor))}:
            if not 1 <= factor <= _LARGEST_FACTOR * divisor:
                continue
            low = max(v * divisor - factor * s for s, v in points)
            high = min(v * divisor - factor * s + divisor - 1 for s, v in points)
            if low <= high:
                shift = min(max(0, low), high)
                return Exact(symbol, factor, shift, divisor)
    return Interpolated(symbol, tuple(s for s, _ in points), tuple(float(v) for _, v in points))


def varying_tensors(
    symbols: Symbols,
    samples: Sequence[tuple[int, ...]],
    runs: Sequence[Mapping[str, tuple[int, ...]]],
    dtypes: Mapping[str, str],
) -> dict[str, Tensor]:
    """Every tensor at its largest, with the smallest each dimension was; those whose number of
    dimensions varies are left out."""
    found: dict[str, Tensor] = {}
    for name, full in runs[samples.index(symbols.highest)].items():
        shapes = [run.get(name, ()) for run in runs]
        if dtypes.get(name) in ONNX_TYPES and all(len(each) == len(full) for each in shapes):
            low = tuple(map(min, zip(*shapes, strict=True)))
            high = tuple(map(max, zip(*shapes, strict=True)))
            found[name] = Tensor(name, high, dtypes[name], low if low != high else ())
    return found


def written_shapes(
    symbols: Symbols,
    samples: Sequence[tuple[int, ...]],
    runs: Sequence[Mapping[str, tuple[int, ...]]],
    tensors: Mapping[str, Tensor],
) -> dict[str, tuple[int | Size, ...]]:
    """The shape of every tensor in terms of the open dimensions."""
    found: dict[str, tuple[int | Size, ...]] = {}
    memory: dict[tuple[int, ...], int | Size] = {}
    for name, tensor in tensors.items():
        if not tensor.lowest:
            found[name] = tensor.shape
            continue
        dims = []
        for axis in range(len(tensor.shape)):
            values = tuple(run[name][axis] for run in runs)
            if values not in memory:
                memory[values] = written(symbols, dict(zip(samples, values, strict=True)))
            dims.append(memory[values])
        found[name] = tuple(dims)
    return found
