"""Proof that a split model is the model: every cut is run and compared with the whole.

One session is open at a time, so that a model of a thousand points needs no more memory than it
needs itself. A lossless codec is checked both ways of running: as a chain of blocks, once, and with
fused halves at every point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from cans.errors import CansError, ModelError
from cans.models.codecs.codec import Codec, codec_at
from cans.models.codecs.image import ImageSpec
from cans.models.onnx.graph import RANDOM
from cans.models.onnx.model import Model
from cans.models.onnx.tensors import Tensor
from cans.models.points.points import Point
from cans.models.run.executor import checked_arrays
from cans.models.run.inputs import index_limits, random_inputs
from cans.models.run.runtime import RuntimeOptions
from cans.models.run.sessions import one_line, open_session
from cans.models.run.slicing import assemble, constant_outputs, cut_out
from cans.models.tools.comparing import error, shows_nothing, top1_agreement

Arrays = dict[str, NDArray[Any]]
TOLERANCE = 1e-5
PROVIDER_TOLERANCE = 1e-3  # other providers fuse and round as they like
_PLAIN = RuntimeOptions()
_HALF_TOLERANCE = 5e-3  # a float16 tensor holds three digits
_OWN = 3.0  # split may differ from whole by so many times what the whole differs from itself
_LEVELS = ("all", "none")
_TRIES = 6  # different made-up inputs, until outputs show something
_NUDGE = 1e-6  # relative; an input changed by rounding alone
# Small differences become large ones in these: a threshold, a rank, a rounding.
_SENSITIVE = frozenset(
    {"NonMaxSuppression", "TopK", "ArgMax", "ArgMin", "NonZero", "Round", "Floor", "Ceil", "Sign"}
    | {"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Unique", "Hardmax"}
    | {"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QuantizeLinear"}
    | {"QLinearConv", "QLinearMatMul", "MatMulIntegerToFloat"}
)


def verify(
    model: Model,
    points: Sequence[Point],
    codec: str = "float32",
    image: ImageSpec | None = None,
    samples: int = 1,
    given: Arrays | None = None,
    runtime: RuntimeOptions = _PLAIN,
) -> dict[str, Any]:
    """Error of every cut, relative to the largest output, and what it shows.

    `verdict` is "equal", "differs" or "lossy"; or "unproven": the outputs on these inputs would
    look equal whatever the model did, or the whole model differs from itself too.
    """
    batches, whole, nothing = _informative(model, image, samples, given, runtime)
    own = _own_difference(model, batches, whole, runtime)
    rows = []
    lossless = not codec_at_input(codec, image).lossy
    chain = _chain_error(model, points, batches, whole, runtime) if lossless else 0.0
    for point in points:
        used = codec_at(codec, point.index, image)
        if used is not None:
            runs = _split_runs(model, point, batches, used, runtime)
            rows.append(_row(point, runs, whole, chain))
    tolerance = tolerance_of(whole[0], points, runtime)
    worst = max(row["max_error"] for row in rows)
    culprits = _culprits(model) if own > tolerance else []
    remarks = _remarks(nothing, own, culprits)
    if runtime.own_copies:
        remarks.append(runtime.own_copies)
    allowed = max(tolerance, _OWN * own if culprits else 0.0)
    if len(nothing) == len(model.outputs) or own == float("inf") or set(culprits) & RANDOM:
        verdict = "unproven"
    elif not lossless:
        verdict = "lossy"
    else:
        verdict = "equal" if worst <= allowed else "differs"
    return {
        "model": model.name,
        "digest": model.digest,
        "codec": codec,
        "samples": len(batches),
        "tolerance": tolerance,
        "worst_error": worst,
        "own_error": own,
        "ok": {"equal": True, "differs": False}.get(verdict),
        "verdict": verdict,
        "remarks": remarks,
        "points": rows,
    }


class Unsafe(NamedTuple):
    """Cuts after which a model answers differently than it differs from itself."""

    points: frozenset[int]
    operators: tuple[str, ...]  # that make small differences large


def unsafe_cuts(model: Model, points: Sequence[Point], runtime: RuntimeOptions = _PLAIN) -> Unsafe:
    """Of a model that differs from itself, by operators that make small differences large, every
    cut is run on made-up inputs; of any other none is. The raw input and the end are always
    safe."""
    culprits = _culprits(model)
    if not culprits:
        return Unsafe(frozenset(), ())
    batches, whole, _ = _informative(model, None, 1, None, runtime)
    own = _own_difference(model, batches, whole, runtime)
    if own <= tolerance_of(whole[0], points, runtime):
        return Unsafe(frozenset(), ())
    raw = codec_at_input("float32", None)
    found = set()
    for point in points[1:-1]:
        runs = _split_runs(model, point, batches, raw, runtime)
        if _row(point, runs, whole, 0.0)["max_error"] > _OWN * own:
            found.add(point.index)
    return Unsafe(frozenset(found), tuple(culprits))


def codec_at_input(name: str, image: ImageSpec | None) -> Codec:
    found = codec_at(name, 0, image)
    assert found is not None
    return found


def _informative(
    model: Model,
    image: ImageSpec | None,
    samples: int,
    given: Arrays | None,
    runtime: RuntimeOptions,
) -> tuple[list[Arrays], list[Arrays], dict[str, str]]:
    """Inputs, the whole model's outputs on them, and which outputs show nothing there. Made-up
    inputs are drawn again while all outputs show nothing."""
    session = _original_session(model, runtime)
    if given is not None:
        batches = [checked_arrays(given, model.inputs, "input")]
        whole = [_run_whole(session, model, batch) for batch in batches]
        return batches, whole, shows_nothing(whole)
    limits = index_limits(model.proto.graph)
    inputs: list[Arrays] = []
    outputs: list[Arrays] = []
    if model.varying is not None:
        samples = max(samples, len(model.varying.symbols.samples()))
    for seed in range(max(_TRIES, samples)):
        tensors = _at_some_size(model, seed)
        values = random_inputs(tensors, np.random.default_rng(seed), limits, image)
        inputs.append(values)
        outputs.append(_run_whole(session, model, values))
        enough = len(inputs) >= max(2, samples)
        if enough and len(shows_nothing(outputs)) < len(model.outputs):
            break
    nothing = shows_nothing(outputs)
    # The last ones are kept: with them the outputs differed from one another.
    kept = slice(-samples, None) if samples < len(inputs) else slice(None)
    return inputs[kept], outputs[kept], nothing


def _at_some_size(model: Model, number: int) -> list[Tensor]:
    """The inputs; of a model whose size varies, at one of the sizes in its range."""
    if model.varying is None:
        return list(model.inputs)
    symbols = model.varying.symbols
    choices = symbols.samples()
    sizes = choices[number % len(choices)]
    return [replace(t, shape=symbols.shape_at(t.name, t.shape, sizes)) for t in model.inputs]


def _own_difference(
    model: Model, batches: list[Arrays], whole: list[Arrays], runtime: RuntimeOptions
) -> float:
    """How much the uncut model differs from itself: run again, optimised more and less, with and
    without knowing the size of its input, and on an input that differs by rounding."""
    if not _culprits(model):
        return 0.0
    runs = [[reference] for reference in whole]
    for level, fixed in product(_LEVELS, (True, False)):
        session = _original_session(model, replace(runtime, optimisation=level), fixed)
        for found, batch in zip(runs, batches, strict=True):
            found.append(_run_whole(session, model, batch))
            if level == _LEVELS[0]:
                found.append(_run_whole(session, model, _nudged(batch)))
        del session
    return max(error(a, b) for found in runs for a, b in combinations(found, 2))


def _nudged(batch: Arrays) -> Arrays:
    return {
        name: value * value.dtype.type(1 + _NUDGE) if value.dtype == np.float32 else value
        for name, value in batch.items()
    }


def _culprits(model: Model) -> list[str]:
    return sorted({node.kind for node in model.graph.nodes} & (_SENSITIVE | RANDOM))


def _remarks(nothing: dict[str, str], own: float, culprits: list[str]) -> list[str]:
    found = [f"output {name!r} is {why}" for name, why in nothing.items()]
    if culprits:
        found.append(
            f"the whole model differs from itself by {own:.1e} "
            f"({', '.join(culprits)}: small differences become large ones)"
        )
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


def run_original(model: Model, inputs: Arrays) -> Arrays:
    """Outputs of the whole model, by the untouched file where the runtime accepts it: how this
    package reads the file is under test too."""
    return _run_whole(_original_session(model, _PLAIN), model, inputs)


def _run_whole(session: ort.InferenceSession, model: Model, inputs: Arrays) -> Arrays:
    try:
        return dict(zip(model.outputs, session.run(list(model.outputs), inputs), strict=True))
    except Exception as failure:
        raise ModelError(
            f"the whole model does not run on these inputs ({one_line(failure)}); "
            "give real ones with --input FILE.npz"
        ) from None


def _original_session(
    model: Model, runtime: RuntimeOptions, fixed: bool = True
) -> ort.InferenceSession:
    options = runtime.session_options()
    options.log_severity_level = 4
    for name, size in model.named_sizes.items() if fixed else ():
        # The runtime optimises by what it knows; the halves know it too.
        options.add_free_dimension_override_by_name(name, size)
    if model.source is not None:
        try:
            return ort.InferenceSession(
                str(model.source), options, providers=runtime.provider_list()
            )
        except Exception:  # e.g. two nodes of one name: harmless, but the runtime refuses the file
            pass
    piece = assemble(model, model.graph.nodes, model.graph.inputs, model.outputs)
    try:
        return open_session(piece, model.weights, runtime).handle
    except CansError as failure:
        raise ModelError(f"the whole model does not run: {failure}") from None


def tolerance_of(
    outputs: Arrays, points: Sequence[Point], runtime: RuntimeOptions = _PLAIN
) -> float:
    types = {t.dtype for point in points for t in point.tensors}
    types |= {value.dtype.name for value in outputs.values() if isinstance(value, np.ndarray)}
    if "float16" in types:
        return _HALF_TOLERANCE
    return TOLERANCE if runtime.on_cpu else PROVIDER_TOLERANCE
