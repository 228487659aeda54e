"""Where to cut when every speed is known: Neurosurgeon (best point) and DADS (best cut of the DAG).

Both minimise device time + transfer + server time of one inference; the answer's way back is
neglected. They are the yardsticks the learner is compared with, not what CANS runs on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from cans.errors import InputError
from cans.models.codecs.codec import Codec, codec_at
from cans.models.codecs.image import ImageSpec
from cans.models.onnx.model import Model
from cans.models.onnx.tensors import Tensor
from cans.models.points.cost import MAC_CLASSES
from cans.models.points.points import Point

METHODS = ("neurosurgeon", "dads")
_SOURCE, _SINK = "device", "server"


@dataclass(frozen=True)
class Speeds:
    """Known speeds: multiply-accumulates per second on both sides, and the link."""

    device_gmacs: float
    server_gmacs: float
    mbps: float
    rtt_ms: float = 0.0

    def __post_init__(self) -> None:
        speeds = (self.device_gmacs, self.server_gmacs, self.mbps)
        if not all(0 < each < inf for each in speeds):
            raise InputError("speeds must be positive: --device-gmacs, --server-gmacs, --mbps")
        if not 0 <= self.rtt_ms < inf:
            raise InputError("--rtt-ms must be a time, zero or more")

    def device_ms(self, macs: int) -> float:
        return macs / self.device_gmacs / 1e6

    def server_ms(self, macs: int) -> float:
        return macs / self.server_gmacs / 1e6

    def transfer_ms(self, size: int) -> float:
        return size * 8 / self.mbps / 1e3


def neurosurgeon(
    points: Sequence[Point],
    speeds: Speeds,
    codec: str = "float32",
    image: ImageSpec | None = None,
) -> dict[str, Any]:
    """Every point's latency, and the best."""
    rows = []
    for point in points:
        used = codec_at(codec, point.index, image) or codec_at("float32", point.index, None)
        size = 0 if point is points[-1] else _size(point.tensors, used)
        rows.append(_row(point, size, speeds, point is points[-1]))
    best = min(rows, key=lambda row: (row["latency_ms"], row["index"]))
    return {"method": "neurosurgeon", "codec": codec, **best, "points": rows}


def _row(point: Point, size: int, speeds: Speeds, local: bool) -> dict[str, Any]:
    front = speeds.device_ms(point.front.total_macs)
    link = 0.0 if local else speeds.transfer_ms(size) + speeds.rtt_ms
    back = speeds.server_ms(point.back.total_macs)
    return {
        "index": point.index,
        "name": point.name,
        "crossing": [each.name for each in point.tensors],
        "bytes": size,
        "front_ms": front,
        "transfer_ms": link,
        "back_ms": back,
        "latency_ms": front + link + back,
    }


def dads(model: Model, speeds: Speeds, codec: str = "float32") -> dict[str, Any]:
    """The cheapest split of the nodes: a minimum s-t cut.

    A node on the server costs its server time, one on the device its device time. Each tensor has
    a node of its own behind its producer, so that it is paid once however many read it. Infinite
    arcs lead back from reader to producer: nothing returns from the server for free.
    """
    networkx = _networkx()
    graph = networkx.DiGraph()
    used = codec_at(codec, 1, None) or codec_at("float32", 1, None)
    macs = [sum(work.amount[: len(MAC_CLASSES)]) for work in model.node_work]
    for i, amount in enumerate(macs):
        graph.add_edge(_SOURCE, i, capacity=speeds.server_ms(amount))
        graph.add_edge(i, _SINK, capacity=speeds.device_ms(amount))
    producer: dict[str, Any] = {name: ("input", name) for name in model.graph.inputs}
    for name in model.graph.inputs:
        graph.add_edge(_SOURCE, ("input", name))  # no capacity attribute: infinite
    for i, node in enumerate(model.graph.nodes):
        producer.update((name, i) for name in node.outputs)
    for i, node in enumerate(model.graph.nodes):
        for name in node.inputs:
            tensor = model.tensors.get(name)
            if tensor is not None:
                cost = speeds.transfer_ms(_size([tensor], used))
                graph.add_edge(producer[name], ("tensor", name), capacity=cost)
            else:  # unknown size: never crosses
                graph.add_edge(producer[name], ("tensor", name))
            graph.add_edge(("tensor", name), i)
            graph.add_edge(i, producer[name])
    cost, (device, _) = networkx.minimum_cut(graph, _SOURCE, _SINK)
    return _dads_result(model, speeds, codec, macs, cost, device, used)


def _dads_result(
    model: Model,
    speeds: Speeds,
    codec: str,
    macs: list[int],
    cost: float,
    device: set[Any],
    used: Codec | None,
) -> dict[str, Any]:
    everything = sum(macs)
    local = speeds.device_ms(everything)
    here = {i for i in range(len(macs)) if i in device}
    if len(here) == len(macs) or cost + speeds.rtt_ms >= local:
        here, cost = set(range(len(macs))), local
    else:
        cost += speeds.rtt_ms
    crossing = [
        name
        for name in dict.fromkeys(n for node in model.graph.nodes for n in node.inputs)
        if _crosses(model, name, here)
    ]
    sizes = [model.tensors[name] for name in crossing]
    front = sum(macs[i] for i in here)
    return {
        "method": "dads",
        "codec": codec,
        "crossing": crossing,
        "bytes": _size(sizes, used),
        "device_operations": len(here),
        "server_operations": len(macs) - len(here),
        "front_ms": speeds.device_ms(front),
        "transfer_ms": cost - speeds.device_ms(front) - speeds.server_ms(everything - front),
        "back_ms": speeds.server_ms(everything - front),
        "latency_ms": cost,
    }


def _crosses(model: Model, name: str, here: set[int]) -> bool:
    made_here = name in model.graph.inputs or any(
        name in model.graph.nodes[i].outputs for i in here
    )
    return made_here and any(
        i not in here and name in node.inputs for i, node in enumerate(model.graph.nodes)
    )


def _size(tensors: Sequence[Tensor], codec: Codec | None) -> int:
    """Bytes on the wire; the plain codec counts the bare tensor, as the published methods do."""
    if codec is None or codec.name == "float32":
        return sum(each.nbytes for each in tensors)
    return sum(codec.size(each.shape, each.dtype) for each in tensors)


def _networkx() -> Any:
    try:
        import networkx
    except ImportError:
        raise InputError("dads needs networkx: pip install 'cans-edge[plan]'") from None
    return networkx
