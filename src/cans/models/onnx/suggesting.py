"""Shapes to suggest for inputs that a file leaves open: usual ones, and tried before they are
suggested."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import onnx

from cans.models.onnx.shapes import is_open, spelled

Shapes = dict[str, tuple[int, ...]]
_COLOURS = (1, 3, 4)


@dataclass(frozen=True)
class Usual:
    """What an open dimension may be, by what it seems to stand for."""

    side: int  # of a picture
    tokens: int
    samples: int  # of sound


_USUAL = (
    Usual(224, 128, 16000),
    Usual(640, 16, 16000),
    Usual(320, 64, 512),
    Usual(64, 1, 1),
    Usual(512, 512, 160000),
    Usual(32, 100, 100),
)


def open_message(
    graph: onnx.GraphProto,
    still_open: Sequence[onnx.ValueInfoProto],
    named: Mapping[str, int],
    runs: Callable[[Shapes, bool], str],
) -> str:
    """One line about open dimensions, with options to copy that are known to work: `runs` says
    why a model does not run at some shapes, or nothing; on likely inputs, or on plain ones too,
    which may take another branch of the model. `named`: sizes of names that the user gave."""
    found = ", ".join(f"{each.name!r} ({spelled(each)})" for each in still_open)
    reason = ""
    for plainly, shapes in product((False, True), candidates(graph, still_open, named)):
        why = runs(shapes, plainly)
        if not why:
            options = " ".join(f"--shape {n}={'x'.join(map(str, s))}" for n, s in shapes.items())
            return f"open dimensions in the input {found}; fix them, e.g. {options}"
        reason = reason or why
    names = " ".join(f"--shape {each.name}=..." for each in still_open)
    return (
        f"open dimensions in the input {found}; fix them with {names}. "
        f"None of the usual sizes runs (the first: {reason})"
    )


def candidates(
    graph: onnx.GraphProto, still_open: Sequence[onnx.ValueInfoProto], given: Mapping[str, int]
) -> Iterator[Shapes]:
    """Shapes to try, the most usual first. A named dimension has one size in all inputs."""
    seen: list[Shapes] = []
    for usual in _USUAL:
        named = dict(given)
        shapes = {each.name: _shape(each, usual, named) for each in still_open}
        if shapes not in seen:
            seen.append(shapes)
            yield shapes


def _shape(info: onnx.ValueInfoProto, usual: Usual, named: dict[str, int]) -> tuple[int, ...]:
    kind = info.type.tensor_type
    if not kind.HasField("shape"):
        return (1, 3, usual.side, usual.side)
    dims = list(kind.shape.dim)
    sizes = []
    for i, dim in enumerate(dims):
        if not is_open(dim):
            sizes.append(int(dim.dim_value))
        elif dim.dim_param:
            known = _computed(dim.dim_param, named)
            size = known if known is not None else _size(info, i, usual)
            sizes.append(named.setdefault(dim.dim_param, size))
        else:
            sizes.append(_size(info, i, usual))
    return tuple(sizes)


def _computed(expression: str, named: Mapping[str, int]) -> int | None:
    """Sums of named dimensions, as exporters write them: "past_length + 1"."""
    terms = [term.strip() for term in expression.split("+")]
    if len(terms) < 2 or not all(term in named or term.isdigit() for term in terms):
        return None
    return sum(named[term] if term in named else int(term) for term in terms)


def _size(info: onnx.ValueInfoProto, at: int, usual: Usual) -> int:
    """By name if it has one that says something, else by its place."""
    dims = info.type.tensor_type.shape.dim
    name = dims[at].dim_param.lower()
    if re.search(r"batch|^n$|^b$|^bs$|past|beam", name):
        return 1
    if re.search(r"channel|colou?r", name):
        return 3
    if re.search(r"height|width|^h$|^w$", name):
        return usual.side
    if re.search(r"sample|audio|wave", name):
        return usual.samples
    if re.search(r"seq|token|len|time|frames", name):
        return usual.samples if _is_sound(info) else usual.tokens
    return _by_place(info, at, usual)


def _by_place(info: onnx.ValueInfoProto, at: int, usual: Usual) -> int:
    dims = info.type.tensor_type.shape.dim
    rank = len(dims)
    if at == 0 and rank > 1:
        return 1
    if rank == 4:
        last = dims[3].dim_value if not is_open(dims[3]) else 0
        first = dims[1].dim_value if not is_open(dims[1]) else 0
        colours = 3 if last in _COLOURS and first not in _COLOURS else 1
        return 3 if at == colours else usual.side
    if rank == 3 and at == 1:
        # The colours of a row of pictures; or, alone, the batch of a recurrent state.
        return 3 if is_open(dims[2]) else 1 if not is_open(dims[0]) else usual.tokens
    return usual.samples if _is_sound(info) else usual.tokens if rank > 1 else 1


def _is_sound(info: onnx.ValueInfoProto) -> bool:
    return bool(re.search(r"audio|wave|speech|pcm|sound|samples", info.name.lower()))
