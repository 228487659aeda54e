"""How a device runs: one value, a sentence per field."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from os import PathLike
from pathlib import Path
from typing import TypedDict

from cans.errors import InputError
from cans.learning.constraints import Constraints
from cans.learning.grouping import AUTO
from cans.learning.objective import Objective
from cans.live.fetching import Progress
from cans.live.wire.accuracy import AccuracyBudget
from cans.live.wire.tls import ClientTls
from cans.models.run.runtime import RuntimeOptions


@dataclass(frozen=True)
class DeviceOptions:
    """How a device runs."""

    servers: tuple[str, ...]  # tried in order; the device stays with one that answers
    type: str = AUTO  # a prefix of the group that the server finds for this device; "auto": none
    network: str = "default"  # devices on one network share what they learn of the link
    name: str | None = None  # of this device; None: made up once and kept in the state
    state: Path | None = None  # folder of its memory; None: a free one below ~/.local/state/cans
    token: str | None = None  # join token
    tls: ClientTls | None = None  # None: no encryption
    deadline_ms: float = 10_000.0  # an answer, or a clear error, by then
    connect_seconds: float = 3.0  # how long start-up waits for a server before going on alone
    constraints: Constraints = field(default_factory=Constraints)  # which choices may be taken
    local: bool = True  # False: it holds no back-end, and cannot answer without a server
    accuracy: AccuracyBudget = field(default_factory=AccuracyBudget)  # of lossy codecs
    exit: tuple[tuple[str, float], ...] = ()  # early-exit outputs and how sure they must be
    keep_memory: bool = True  # of large messages (glibc), for the whole process: see memory.py
    runtime: RuntimeOptions = field(default_factory=RuntimeOptions)  # threads, providers
    seed: int | None = None  # of warm-start points and random choices; None: by chance
    prepare: bool = False  # build and warm every front-end before the first inference
    traces: str | None = None  # HOST:PORT of an OTLP collector; None: no traces
    send_model: bool = False  # to a server that lacks it and takes models
    objective: Objective = field(default_factory=Objective)  # what it aims at
    selfish: bool = False  # choose as if its server time cost nobody anything
    own_runs: bool = True  # run the whole model for its own sake when it is never run here
    weight: float = 1.0  # how much its latency matters beside that of other devices
    max_memory_mb: float | None = None  # for the model and its halves; None: as it needs
    max_mb_per_day: float | None = None  # both ways over the link; None: any
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()  # of open inputs of a model that is sent
    follow: bool = True  # when the server has a new model of this name, fetch it and move over
    model_sha256: str | None = None  # of the only model to run; then nothing is followed

    def __post_init__(self) -> None:
        if not self.servers:
            raise InputError("a device needs at least one server to join")
        named = ((self.type, "type"), (self.network, "network"), (self.name, "name"))
        for value, what in named:
            if value is not None and not (value.isprintable() and 0 < len(value) <= 200):
                raise InputError(f"the {what} of a device must be a short printable name")
        if self.accuracy.wanted and not self.local:
            raise InputError(
                "an accuracy budget needs the whole model on the device: not --no-local"
            )
        if self.max_memory_mb is not None and not self.max_memory_mb > 0:
            raise InputError("--max-memory-mb must be positive")
        if self.max_mb_per_day is not None and not self.max_mb_per_day > 0:
            raise InputError("--max-mb-per-day must be positive")
        if self.model_sha256 is not None and not re.fullmatch("[0-9a-f]{64}", self.model_sha256):
            raise InputError("--model-sha256 must be 64 hexadecimal digits, as sha256sum prints")
        if not self.deadline_ms > 0:
            raise InputError("--deadline-ms must be positive")
        if not 0 < self.weight < inf:
            raise InputError("--weight must be positive")
        if self.seed is not None and self.seed < 0:
            raise InputError("--seed must not be negative")

    @property
    def toll(self) -> float:
        """The share of what its server time costs others that counts when it chooses."""
        return 0.0 if self.selfish else 1.0 / self.weight

    @property
    def provider(self) -> str:
        """What executes the model first of all; devices of other providers learn apart."""
        return self.runtime.providers[0].name


class DeviceKeywords(TypedDict, total=False):
    """The keywords of `cans.Device` beside server, model and type; it says what each means."""

    network: str
    name: str | None
    state: str | PathLike[str] | None
    token: str | None
    tls: ClientTls | None
    deadline_ms: float
    connect_seconds: float
    constraints: Constraints | None
    accuracy: AccuracyBudget | None
    local: bool
    exit: Sequence[tuple[str, float]]
    keep_memory: bool
    seed: int | None
    prepare: bool
    provider: str | Sequence[str]
    threads: int
    optimisation: str
    traces: str | None
    objective: str
    fps: float | None
    selfish: bool
    own_runs: bool
    weight: float
    max_memory_mb: float | None
    max_mb_per_day: float | None
    send_model: bool
    shape: Mapping[str, Sequence[int]] | None
    model_sha256: str | None
    follow: bool
    progress: Progress | None
