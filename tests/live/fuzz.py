"""Messages that no honest device sends, and the status each must be answered with."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc

from cans.learning import PoolKey
from cans.live.split import SplitModel
from cans.live.wire import frame, learned
from cans.live.wire.proto import edge, open_inference
from tests.live.values import statistics

Message = tuple[str, bytes, set[str]]  # method, bytes, statuses that are right
OURS = ("Join", "Infer", "Sync", "Quote")
PATH = "/cans.v1.Edge/"
THEIRS = "/inference.GRPCInferenceService/"
SMALL = 1 << 20  # the largest message of the server under test


class Fuzzer:
    """Draws bad messages for a server of one model."""

    def __init__(self, model: SplitModel, policy: str, seed: int) -> None:
        self._model = model
        self._policy = policy
        self._random = random.Random(seed)
        self.kinds: dict[str, Callable[[], Message]] = {
            "random bytes": self.random_bytes,
            "damaged request": self.damaged,
            "wrong shape": self.wrong_shape,
            "wrong length": self.wrong_length,
            "huge length": self.huge_length,
            "too large": self.too_large,
            "not finite": self.not_finite,
            "implausible": self.implausible,
            "wrong dimension": self.wrong_dimension,
            "stale table": self.stale_table,
            "unknown model": self.unknown_model,
            "foreign pool": self.foreign_pool,
            "absurd names": self.absurd_names,
            "bad open inference": self.open_inference,
        }

    def draw(self) -> tuple[str, Message]:
        kind = self._random.choice(list(self.kinds))
        return kind, self.kinds[kind]()

    # --- parts of good messages ---

    def _bytes(self, most: int = 400) -> bytes:
        return self._random.randbytes(self._random.randrange(most))

    def _key(self, **changes: str) -> Any:
        table = self._model.table
        key = PoolKey(table.digest, table.version, self._policy, "back", "everyone")
        return learned.key_out(key._replace(**changes))

    def _upload(self, **changes: Any) -> Any:
        fields: dict[str, Any] = {
            "device": "hostile", "incarnation": "1", "key": self._key(),
            "sequence": self._random.randrange(100),
            "statistics": learned.statistics_out(statistics(self._random.randrange(99))),
        }  # fmt: skip
        return edge.Upload(**{**fields, **changes})

    def _sync(self, right: set[str], **changes: Any) -> Message:
        request = edge.SyncRequest(uploads=[self._upload(**changes)])
        return PATH + "Sync", request.SerializeToString(), right

    def _header(self, **changes: Any) -> Any:
        table = self._model.table
        fields: dict[str, Any] = {
            "device": "hostile", "incarnation": "1", "model": table.digest,
            "table": table.version, "point": 0, "codec": "float32",
            "tensors": [edge.TensorMeta(name="t0", dtype="float32", shape=[1, 64])],
        }  # fmt: skip
        return edge.InferHeader(**{**fields, **changes})

    def _infer(self, right: set[str], data: bytes = bytes(256), **changes: Any) -> Message:
        header = self._header(**changes).SerializeToString()
        return PATH + "Infer", frame.joined(header, [data]), right

    # --- bad ones ---

    def random_bytes(self) -> Message:
        method = self._random.choice(OURS)
        # Bytes may happen to be a message, only not one that names anything we have.
        return PATH + method, self._bytes(), {"INVALID_ARGUMENT", "NOT_FOUND", "OK"}

    def damaged(self) -> Message:
        method, data, _ = self._infer({"OK"})
        damaged = bytearray(data)
        for _ in range(self._random.randrange(1, 6)):
            damaged[self._random.randrange(len(damaged))] = self._random.randrange(256)
        right = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "OK"}
        return method, bytes(damaged[: self._random.randrange(len(damaged) + 1)]), right

    def wrong_shape(self) -> Message:
        shape = [self._random.randrange(2**31) for _ in range(self._random.randrange(6))]
        tensor = edge.TensorMeta(name="t0", dtype="float32", shape=shape)
        return self._infer({"INVALID_ARGUMENT"}, tensors=[tensor])

    def wrong_length(self) -> Message:
        return self._infer({"INVALID_ARGUMENT"}, data=self._random.randbytes(
            self._random.choice([0, 1, 255, 257, 4096])))  # fmt: skip

    def huge_length(self) -> Message:
        lie = self._random.choice([2**31, 2**40, 2**63 - 1])
        varint = bytearray()
        while lie > 127:
            varint.append(lie & 127 | 128)
            lie >>= 7
        varint.append(lie)
        return PATH + "Infer", b"\x0a" + bytes(varint) + self._bytes(), {"INVALID_ARGUMENT"}

    def too_large(self) -> Message:
        return PATH + "Infer", bytes(SMALL + 1), {"RESOURCE_EXHAUSTED"}

    def not_finite(self) -> Message:
        value = self._random.choice([math.nan, math.inf, -math.inf])
        bad = learned.statistics_out(statistics(1))
        where = self._random.choice(["sigma", "b", "squares", "weight"])
        if where in ("sigma", "b"):
            getattr(bad, where)[0] = value
        else:
            setattr(bad, where, value)
        return self._sync({"INVALID_ARGUMENT"}, statistics=bad)

    def implausible(self) -> Message:
        """Well-formed, and a lie: acknowledged so that it is not sent again, and kept out."""
        bad = learned.statistics_out(statistics(1))
        match self._random.randrange(4):
            case 0:
                bad.b[0] = 1e12
            case 1:
                bad.sigma[0] = -5.0
            case 2:
                bad.count = 10**12
            case _:
                bad.squares = 1e30
        return self._sync({"OK"}, statistics=bad, sequence=self._random.randrange(3000))

    def wrong_dimension(self) -> Message:
        other = learned.statistics_out(statistics(1, 3, self._random.choice([1, 3, 9])))
        return self._sync({"INVALID_ARGUMENT"}, statistics=other)

    def stale_table(self) -> Message:
        if self._random.random() < 0.5:
            return self._infer({"FAILED_PRECONDITION"}, table="old")
        return self._sync({"FAILED_PRECONDITION"}, key=self._key(table="old"))

    def unknown_model(self) -> Message:
        if self._random.random() < 0.5:
            return self._infer({"NOT_FOUND"}, model="nothing")
        return self._sync({"NOT_FOUND"}, key=self._key(model="nothing"))

    def foreign_pool(self) -> Message:
        changes = self._random.choice(
            [{"policy": "linucb"}, {"part": "nose"}, {"scope": "group:x"}, {"scope": "device:a"}]
        )
        return self._sync({"FAILED_PRECONDITION", "INVALID_ARGUMENT"}, key=self._key(**changes))

    def absurd_names(self) -> Message:
        bad = self._random.choice(["", "x" * 300, "a\x00b", "\n"])
        return self._sync({"INVALID_ARGUMENT"}, device=bad)

    def open_inference(self) -> Message:
        request = open_inference("ModelInferRequest")(model_name="toy")
        request.inputs.add(name="t0", datatype="FP32", shape=[1, self._random.randrange(2**40)])
        request.raw_input_contents.append(self._bytes())
        return THEIRS + "ModelInfer", request.SerializeToString(), {"INVALID_ARGUMENT"}


def bombard(address: str, fuzzer: Fuzzer, count: int) -> Counter[tuple[str, str]]:
    """Send so many; returns (kind, status) counts. Raises on a status that is not right."""
    channel = grpc.insecure_channel(address, [("grpc.max_send_message_length", 64 << 20)])
    seen: Counter[tuple[str, str]] = Counter()
    try:
        for _ in range(count):
            kind, (method, data, right) = fuzzer.draw()
            try:
                channel.unary_unary(method)(data, timeout=20)
                status = "OK"
            except grpc.RpcError as error:
                status = error.code().name
            assert status in right, f"{kind}: {status} is not one of {right}"
            seen[kind, status] += 1
    finally:
        channel.close()
    return seen
