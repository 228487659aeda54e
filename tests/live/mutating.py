"""A server between a device and a real one that changes what the real one says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

PATH = "/cans.v1.Edge/"
METHODS = ("Join", "Infer", "Sync", "Probe", "Quote")


class MutatingServer(grpc.GenericRpcHandler):
    """Passes requests on, and answers with damaged replies while it is told to."""

    def __init__(self, target: str, seed: int) -> None:
        self.share = 0.0  # of replies that are damaged
        self.mutated: Counter[str] = Counter()  # by method
        self._random = random.Random(seed)
        self._channel = grpc.insecure_channel(target)
        self._server = grpc.server(ThreadPoolExecutor(16), handlers=(self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def service(self, details: Any) -> Any:
        method = details.method.removeprefix(PATH)
        if method in METHODS:
            return grpc.unary_unary_rpc_method_handler(self._passing(method))
        if method == "Watch":
            return grpc.unary_stream_rpc_method_handler(self._watch)
        return None

    def _passing(self, method: str) -> Any:
        call = self._channel.unary_unary(PATH + method)

        def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                return self._said(method, call(request, timeout=10))
            except grpc.RpcError as error:
                context.abort(error.code(), error.details() or "")
                raise

        return handle

    def _watch(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        stream = self._channel.unary_stream(PATH + "Watch")(request)
        context.add_callback(stream.cancel)
        try:
            for reply in stream:
                yield self._said("Watch", reply)
        except grpc.RpcError:
            return

    def _said(self, method: str, reply: bytes) -> bytes:
        if self._random.random() >= self.share:
            return reply
        self.mutated[method] += 1
        return self._damaged(reply)

    def _damaged(self, reply: bytes) -> bytes:
        """Some bytes changed, left out, put in or said twice, or others altogether."""
        draw, data = self._random, bytearray(reply)
        at = draw.randrange(len(data) + 1)
        match draw.randrange(6):
            case 0:
                for _ in range(draw.randrange(1, 9)):
                    if data:
                        data[draw.randrange(len(data))] = draw.randrange(256)
            case 1:
                del data[at:]
            case 2:
                data[at:at] = draw.randbytes(draw.randrange(1, 40))
            case 3:
                data[at:at] = b"\xff" * draw.randrange(1, 12)  # a number without an end
            case 4:
                data += data[at:]
            case _:
                data = bytearray(draw.randbytes(draw.randrange(200)))
        return bytes(data)

    def close(self) -> None:
        self._server.stop(0).wait()
        self._channel.close()
