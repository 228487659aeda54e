"""Output tensors of a model, as metadata and raw bytes, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cans.errors import RemoteProtocolError
from cans.live.split import Array, Arrays
from cans.live.wire.proto import edge


def outputs_out(outputs: Arrays) -> tuple[list[Any], list[memoryview]]:
    """Metadata and raw bytes of output tensors."""
    metas, buffers = [], []
    for name, array in outputs.items():
        whole = np.ascontiguousarray(array)
        metas.append(edge.TensorMeta(name=name, dtype=whole.dtype.name, shape=array.shape))
        buffers.append(whole.reshape(-1).view(np.uint8).data)
    return metas, buffers


def outputs_in(metas: Sequence[Any], buffers: Sequence[memoryview]) -> dict[str, Array]:
    """Output tensors of a reply, as views of the received bytes."""
    if len(metas) != len(buffers):
        raise RemoteProtocolError(f"{len(buffers)} tensors came, {len(metas)} were announced")
    outputs: dict[str, Array] = {}
    for meta, data in zip(metas, buffers, strict=True):
        try:
            outputs[meta.name] = np.frombuffer(data, np.dtype(meta.dtype)).reshape(
                tuple(meta.shape)
            )
        except (TypeError, ValueError):
            raise RemoteProtocolError(
                f"{data.nbytes} bytes are no {meta.dtype[:16]}{list(meta.shape)[:8]}"
            ) from None
    return outputs
