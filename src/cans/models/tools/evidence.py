"""What the whole model shows: inputs that mean something, its outputs, and how far it differs from
itself. What a cut model is compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from cans.errors import CansError, ModelError
from cans.models.codecs.image import ImageSpec
from cans.models.onnx.graph import RANDOM, subgraphs
from cans.models.onnx.model import Model
from cans.models.onnx.tensors import Tensor
from cans.models.points.points import Point
from cans.models.run.executor import checked_arrays
from cans.models.run.inputs import index_limits, random_inputs
from cans.models.run.runtime import RuntimeOptions
from cans.models.run.sessions import one_line, open_session
from cans.models.run.slicing import assemble
from cans.models.tools.comparing import error, shows_nothing

Arrays = dict[str, NDArray[Any]]
TOLERANCE = 1e-5
PROVIDER_TOLERANCE = 1e-3  # other providers fuse and round as they like
PLAIN = RuntimeOptions()
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


@dataclass(frozen=True)
class Evidence:
    """Runs of the whole model, and how far what is compared with them can be believed."""

    inputs: list[Arrays]
    outputs: list[Arrays]  # of each
    nothing: dict[str, str]  # outputs that would look equal whatever the model did, and why
    own: float  # how much the whole model differs from itself
    tolerance: float  # of a model that does not
    culprits: tuple[str, ...]  # operators that make it differ from itself

    @classmethod
    def of(
        cls,
        model: Model,
        points: Sequence[Point],
        runtime: RuntimeOptions = PLAIN,
        *,
        image: ImageSpec | None = None,
        samples: int = 1,
        given: Arrays | None = None,
    ) -> Evidence:
        inputs, outputs, nothing = _informative(model, image, samples, given, runtime)
        own = _own_difference(model, inputs, outputs, runtime)
        tolerance = tolerance_of(outputs[0], points, runtime)
        culprits = tuple(sensitive(model)) if own > tolerance else ()
        return cls(inputs, outputs, nothing, own, tolerance, culprits)

    @property
    def shows_nothing(self) -> bool:
        """Whether equality would mean nothing: of empty or constant outputs, or by chance."""
        blank = len(self.nothing) == len(self.outputs[0])
        return blank or self.own == float("inf") or bool(set(self.culprits) & RANDOM)

    @property
    def allowed(self) -> float:
        """The largest error of a cut that is the same model."""
        return max(self.tolerance, _OWN * self.own if self.culprits else 0.0)

    @property
    def remarks(self) -> list[str]:
        found = [f"output {name!r} is {why}" for name, why in self.nothing.items()]
        if self.culprits:
            found.append(
                f"the whole model differs from itself by {self.own:.1e} "
                f"({', '.join(self.culprits)}: small differences become large ones)"
            )
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
    if not sensitive(model):
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


def sensitive(model: Model) -> list[str]:
    """Operators of this model, also in bodies of control flow, that make small differences large;
    and those that draw random numbers."""
    return sorted(set(_kinds(node.proto for node in model.graph.nodes)) & (_SENSITIVE | RANDOM))


def _kinds(nodes: Iterable[onnx.NodeProto]) -> Iterable[str]:
    for node in nodes:
        yield node.op_type
        for body in subgraphs(node):
            yield from _kinds(body.node)


def run_original(model: Model, inputs: Arrays) -> Arrays:
    """The untouched file where the runtime accepts it: our reading of it is under test too."""
    return _run_whole(_original_session(model, PLAIN), model, inputs)


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
    outputs: Arrays, points: Sequence[Point], runtime: RuntimeOptions = PLAIN
) -> float:
    types = {t.dtype for point in points for t in point.tensors}
    types |= {value.dtype.name for value in outputs.values() if isinstance(value, np.ndarray)}
    if "float16" in types:
        return _HALF_TOLERANCE
    return TOLERANCE if runtime.on_cpu else PROVIDER_TOLERANCE
