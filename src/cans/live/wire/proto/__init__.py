"""The wire messages: `edge` for cans.v1, `open_inference` for the Open Inference Protocol.

`edge_pb2` is generated code. The Open Inference messages are built at run time in a descriptor pool
of their own: a program that also imports another client of that protocol has registered the same
names already, and protobuf refuses to hear them twice in one pool.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from cans.live.wire.proto.cans.v1 import edge_pb2 as edge

__all__ = ["POOL", "edge", "open_inference"]


def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(edge.DESCRIPTOR.serialized_pb)
    stored = files(__package__).joinpath("inference/open_inference.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(stored).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL = _pool()
"""Everything we serve, for reflection."""


def open_inference(message: str) -> Any:
    """The class of a message of the Open Inference Protocol.

    >>> open_inference("ServerLiveResponse")(live=True).live
    True
    """
    found = POOL.FindMessageTypeByName(f"inference.{message}")
    return message_factory.GetMessageClass(found)
