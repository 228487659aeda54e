"""Proof that a split model is the model: every cut is run and compared with the whole.

One session is open at a time, so that a model of a thousand points needs no more memory than it
needs itself. A lossless codec is checked both ways of running: as a chain of blocks, once, and with
fused halves at every point.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from cans.models.codecs.codec import Codec, codec_at
from cans.models.codecs.image import ImageSpec
from cans.models.onnx.model import Model
from cans.models.points.points import Point
from cans.models.run.runtime import RuntimeOptions
from cans.models.run.sessions import open_session
from cans.models.run.slicing import assemble, constant_outputs, cut_out
from cans.models.tools.comparing import error, top1_agreement
from cans.models.tools.evidence import PLAIN, Arrays, Evidence, sensitive


def verify(
    model: Model,
    points: Sequence[Point],
    codec: str = "float32",
    image: ImageSpec | None = None,
    samples: int = 1,
    given: Arrays | None = None,
    runtime: RuntimeOptions = PLAIN,
) -> dict[str, Any]:
    """Error of every cut, relative to the largest output, and what it shows.

    `verdict` is "equal", "differs" or "lossy"; or "unproven": the outputs on these inputs would
    look equal whatever the model did, or the whole model differs from itself too.
    """
    evidence = Evidence.of(model, points, runtime, image=image, samples=samples, given=given)
    batches, whole = evidence.inputs, evidence.outputs
    rows = []
    lossless = not codec_at_input(codec, image).lossy
    chain = _chain_error(model, points, batches, whole, runtime) if lossless else 0.0
    for point in points:
        used = codec_at(codec, point.index, image)
        if used is not None:
            runs = _split_runs(model, point, batches, used, runtime)
            rows.append(_row(point, runs, whole, chain))
    worst = max(row["max_error"] for row in rows)
    remarks = evidence.remarks
    if runtime.own_copies:
        remarks.append(runtime.own_copies)
    if evidence.shows_nothing:
        verdict = "unproven"
    elif not lossless:
        verdict = "lossy"
    else:
        verdict = "equal" if worst <= evidence.allowed else "differs"
    return {
        "model": model.name,
        "digest": model.digest,
        "codec": codec,
        "samples": len(batches),
        "tolerance": evidence.tolerance,
        "worst_error": worst,
        "own_error": evidence.own,
        "ok": {"equal": True, "differs": False}.get(verdict),
        "verdict": verdict,
        "remarks": remarks,
        "points": rows,
    }


class Unsafe(NamedTuple):
    """Cuts after which a model answers differently than it differs from itself."""

    points: frozenset[int]
    operators: tuple[str, ...]  # that make small differences large


def unsafe_cuts(model: Model, points: Sequence[Point], runtime: RuntimeOptions = PLAIN) -> Unsafe:
    """Of a model that differs from itself, by operators that make small differences large, every
    cut is run on made-up inputs; of any other none is. The raw input and the end are always
    safe."""
    if not sensitive(model):
        return Unsafe(frozenset(), ())
    evidence = Evidence.of(model, points, runtime)
    if not evidence.culprits:
        return Unsafe(frozenset(), ())
    raw = codec_at_input("float32", None)
    found = set()
    for point in points[1:-1]:
        runs = _split_runs(model, point, evidence.inputs, raw, runtime)
        if _row(point, runs, evidence.outputs, 0.0)["max_error"] > evidence.allowed:
            found.add(point.index)
    return Unsafe(frozenset(found), evidence.culprits)


def codec_at_input(name: str, image: ImageSpec | None) -> Codec:
    found = codec_at(name, 0, image)
    assert found is not None
    return found


def _chain_error(
    model: Model,
    points: Sequence[Point],
    batches: list[Arrays],
    whole: list[Arrays],
    runtime: RuntimeOptions,
) -> float:
    """All blocks one after the other: what crosses is not changed, so this is every point's."""
    fixed = _constants(model, runtime)
    values = [{**fixed, **batch} for batch in batches]
    alive = model.graph.crossings()
    for before, after in pairwise(points):
        piece = cut_out(model, before.depth, after.depth)
        session = open_session(piece, model.weights, runtime)
        wanted = {*alive[after.depth], *model.outputs}
        for i, made in enumerate(values):
            found = {**made, **session.run(made)}
            values[i] = {name: value for name, value in found.items() if name in wanted}
        del session
    return max(error(made, reference) for made, reference in zip(values, whole, strict=True))


def _split_runs(
    model: Model, point: Point, batches: list[Arrays], codec: Codec, runtime: RuntimeOptions
) -> list[tuple[Arrays, int]]:
    """Front-end, over the wire format, back-end; and the bytes that crossed, for each input."""
    fixed = _constants(model, runtime)
    fronts = _half(model, 0, point.depth, [{**fixed, **each} for each in batches], runtime)
    crossings, sizes = [], []
    for made in fronts:
        payloads = {each.name: codec.encode(made[each.name]) for each in point.tensors}
        crossings.append(
            {
                each.name: codec.decode(payloads[each.name], made[each.name].shape, each.dtype)
                for each in point.tensors
            }
        )
        sizes.append(sum(len(each) for each in payloads.values()))
    backs = _half(model, point.depth, len(model.graph.nodes), crossings, runtime)
    return [
        ({**{n: front[n] for n in model.outputs if n in front}, **back}, size)
        for front, back, size in zip(fronts, backs, sizes, strict=True)
    ]


def _half(
    model: Model, start: int, stop: int, given: list[Arrays], runtime: RuntimeOptions
) -> list[Arrays]:
    """What nodes `start` to `stop` make of each of these, and what was given."""
    if start == stop:
        return given
    session = open_session(cut_out(model, start, stop), model.weights, runtime)
    return [{**values, **session.run(values)} for values in given]


def _constants(model: Model, runtime: RuntimeOptions) -> Arrays:
    names = constant_outputs(model.graph)
    if not names:
        return {}
    return open_session(assemble(model, (), (), names), model.weights, runtime).run({})


def _row(
    point: Point, runs: list[tuple[Arrays, int]], references: list[Arrays], chain: float
) -> dict[str, Any]:
    pairs = [(outputs, whole) for (outputs, _), whole in zip(runs, references, strict=True)]
    agreements = [top1_agreement(outputs, reference) for outputs, reference in pairs]
    known = [each for each in agreements if each is not None]
    return {
        "index": point.index,
        "name": point.name,
        "bytes": point.bytes,
        "encoded_bytes": runs[0][1],
        "max_error": max(chain, *(error(outputs, reference) for outputs, reference in pairs)),
        "top1_agreement": float(np.mean(known)) if known else None,
    }
