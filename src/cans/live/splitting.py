"""From the models layer to a `SplitModel`: load, cut, table, codecs."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from math import ceil
from os import PathLike

from cans import models  # of `models`, what is used is imported then: ONNX is heavy
from cans.errors import CansError, InputError
from cans.learning import PartitionTable
from cans.learning.table import PROBE_BYTES
from cans.live.sending import files_of
from cans.live.split import Arrays, BlockHook, Codec, Cutting, SplitModel
from cans.live.wire.terms import table_version

_log = logging.getLogger(__name__)


def load_model(source: str | PathLike[str], cutting: Cutting) -> models.Model:
    """The model of a file or a built-in name, not yet cut."""
    return models.load(source, dict(cutting.shapes), lowest=dict(cutting.lowest))


def unsafe_points(
    model: models.Model, cutting: Cutting, runtime: models.RuntimeOptions | None = None
) -> frozenset[int]:
    """Points that a server should not offer: there a split model differs from the whole by more
    than the whole differs from itself. Where the size of the input varies none is tried."""
    from cans.models.tools.verifying import unsafe_cuts

    if model.varying is not None:
        return frozenset()
    points = models.find_points(model, cutting.max_tensors, cutting.max_points)
    try:
        found = unsafe_cuts(model, points, runtime or models.RuntimeOptions())
    except CansError as error:  # e.g. it does not run on made-up inputs
        _log.warning("cuts not tried", extra={"model": model.name, "reason": str(error)})
        return frozenset()
    if found.points:
        names = ", ".join(points[index].name for index in sorted(found.points))
        reason = f"{', '.join(found.operators)}: small differences become large ones"
        _log.warning("points not offered", extra={"points": names, "reason": reason})
    return found.points


def is_built_in(name: str) -> bool:
    from cans.models import builtin

    return name in builtin.NAMES


def split(
    model: models.Model,
    cutting: Cutting,
    *,
    codecs: Sequence[str] = ("float32",),
    features: str = "rich",
    runtime: models.RuntimeOptions | None = None,
    local: bool = True,
    on_block: BlockHook | None = None,
    to_send: bool = False,
    max_memory: int | None = None,
    left_out: Collection[int] = (),
) -> SplitModel:
    """Cut a model; `codecs` are the choices its table offers (a device can read them all), and
    `to_send` says that devices may fetch it. `max_memory`: bytes of the model and its
    halves. `left_out`: points that are not offered."""
    points = models.find_points(model, cutting.max_tensors, cutting.max_points)
    image = models.ImageSpec.parse(cutting.image) if cutting.image else None
    table = models.PartitionTable.of(
        model, points, features, codecs, image, PROBE_BYTES, left_out=left_out
    )
    executor = models.Executor(
        model, points, runtime=runtime, local=local, on_block=on_block,
        memory_budget=None if max_memory is None else _for_halves(model, points, local, max_memory),
    )  # fmt: skip
    return SplitModel(
        name=model.name,
        digest=model.digest,
        inputs=model.inputs,
        outputs=tuple(model.outputs),
        executor=executor,
        table=replace(table, version=table_version(table, points)),
        codecs=_codecs(len(points), image),
        files=files_of(model) if to_send else (),
        cutting=cutting,
        made=tuple(model.tensors[name] for name in model.outputs if name in model.tensors),
        rows=_Rows(model, points, image) if model.varying is not None else None,
    )


def _for_halves(model: models.Model, points: Sequence[models.Point], local: bool, most: int) -> int:
    """Bytes that are left for fused halves where a chain of blocks must be held anyway."""
    needed = models.chain_bytes(model, points, local)
    if needed > most:
        raise InputError(
            f"--max-memory-mb {most / 1e6:g} is too little: {model.name} needs about "
            f"{ceil(needed / 1e6)} MB on this device"
        )
    return models.halves_within(most - needed)


class _Rows:
    """Rows of the moment by the codecs and features of the server's table."""

    def __init__(
        self, model: models.Model, points: Sequence[models.Point], image: models.ImageSpec | None
    ) -> None:
        self._model, self._points, self._image = model, points, image
        self._sized: dict[str, models.SizedTable] = {}  # by version of the table

    def at(self, table: PartitionTable, inputs: Arrays) -> PartitionTable:
        sized = self._sized.get(table.version)
        if sized is None:
            codecs = tuple(dict.fromkeys(table.codec_of))
            features = models.feature_set_of(table.names)
            sized = models.SizedTable(self._model, self._points, features, codecs, self._image)
            sized.largest = replace(sized.largest, version=table.version, probe=table.probe)
            self._sized = {table.version: sized}
        return sized.at(inputs)


def _codecs(points: int, image: models.ImageSpec | None) -> dict[tuple[int, str], Codec]:
    """Every codec at every point where it applies."""
    found: dict[tuple[int, str], Codec] = {}
    for point in range(points - 1):
        for name, codec in models.all_codecs().items():
            with suppress(InputError):  # pictures only, and this input is none
                used = codec.at(point, image)
                if used is not None:
                    found[point, name] = used
    return found
