"""An experiment as one frozen value: devices, links, models, policies, rounds, and what happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from cans.errors import InputError
from cans.learning import Hyperparameters
from cans.own_policy import find_policy

MODES = ("one-at-a-time", "concurrent", "free-running")
NETWORKS = ("auto", "namespaces", "loopback")


@dataclass(frozen=True)
class DeviceGroup:
    """Devices that are alike."""

    type: str  # they share what they learn of their front-ends
    count: int = 1
    slowdown: float = 1.0  # so many times slower than this machine
    network: str = "wifi"  # the link they are behind
    watts: float = 10.0  # while computing, for the energy proxy
    radio_watts: float = 2.0  # while the link is in use, for the energy proxy

    def __post_init__(self) -> None:
        _require(bool(self.type) and self.type.isprintable(), "a device's type must have a name")
        _require(1 <= self.count <= 100, f"count of {self.type} must lie between 1 and 100")
        _require(1 <= self.slowdown <= 1000, f"slowdown of {self.type} must be 1 to 1000")
        _require(self.watts >= 0 and self.radio_watts >= 0, "watts must not be negative")


@dataclass(frozen=True)
class Link:
    """A network and its rate at the start."""

    network: str
    mbps: float
    loss: float = 0.0  # share of packets, each way; namespaces need iptables for it

    def __post_init__(self) -> None:
        _require(_positive(self.mbps), f"mbps of {self.network} must be positive")
        _require(0 <= self.loss < 1, f"loss of {self.network} must lie between 0 and 1")


@dataclass(frozen=True)
class Change:
    """From a round on, a network has another rate."""

    round: int
    network: str
    mbps: float

    def __post_init__(self) -> None:
        _require(self.round >= 1, "a change must come in round 1 or later")
        _require(_positive(self.mbps), f"mbps of {self.network} must be positive")


@dataclass(frozen=True)
class Outage:
    """The server is killed before a round and returns so many rounds later."""

    round: int
    rounds: int

    def __post_init__(self) -> None:
        _require(self.round >= 1 and self.rounds >= 1, "an outage needs round and rounds >= 1")


@dataclass(frozen=True)
class PolicyChoice:
    """A policy with its own numbers; None: the default."""

    name: str  # of a policy, or MODULE:NAME of your own
    label: str = ""  # in tables; made from the name if empty
    beta_ms: float | None = None
    alpha: float | None = None
    ridge: float | None = None
    types: bool = True  # tell its devices' types; otherwise the server finds groups by itself

    def __post_init__(self) -> None:
        policy = find_policy(self.name)
        _require(not policy.simulation_only, f"policy {self.name} exists in simulation only")
        _require(not policy.knows, f"policy {self.name} needs latencies known in advance")
        given: dict[str, Any] = {k: v for k, v in self.numbers().items() if v is not None}
        Hyperparameters(**given)
        if not self.label:
            extra = "" if self.beta_ms is None else f"(beta {self.beta_ms:g})"
            extra += "" if self.types else " (no types)"
            object.__setattr__(self, "label", f"{self.name}{extra}")

    def numbers(self) -> dict[str, float | None]:
        return {"beta_ms": self.beta_ms, "alpha": self.alpha, "ridge": self.ridge}


@dataclass(frozen=True)
class Experiment:
    """One TOML file."""

    name: str
    devices: tuple[DeviceGroup, ...]
    links: tuple[Link, ...]
    policies: tuple[PolicyChoice, ...]
    title: str = ""
    models: tuple[str, ...] = ("mobilenet_v2",)  # built-in names or ONNX files, one after another
    rounds: int = 100  # inferences of each device under each policy
    mode: str = "one-at-a-time"  # or "concurrent": all devices of a policy at once, and again when
    # all are done; or "free-running": each asks again when it has its answer, after a pause
    pause_ms: float = 0.0  # free-running: mean of those pauses
    turn: int = 10  # free-running: inferences of the slowest device before the next policy's turn
    server_slowdown: float = 1.0  # so many times slower than this machine
    seed: int = 1  # of inputs and random choices
    features: str = "rich"
    codecs: tuple[str, ...] = ("float32",)
    max_points: int | None = None  # keep only so many partition points; None: all
    prepare: bool = True  # build and warm all halves first; needs memory, for small models
    sweep_runs: int = 4  # runs of each choice in the exhaustive sweep; 0: no sweep
    policies_at_once: int = 100  # whose processes run beside each other; fewer for large models
    network: str = "auto"  # namespaces where privileges allow, else loopback
    workers: int = 1  # of each server
    start_together: bool = False  # all devices at once: sooner, but their offline runs are slower
    rest_ms: float = 20.0  # after every inference, one at a time: what it set off is over then
    changes: tuple[Change, ...] = field(default=())
    outages: tuple[Outage, ...] = field(default=())

    def __post_init__(self) -> None:
        _require(bool(self.name) and self.name.replace("-", "").isalnum(), "name: letters, digits")
        _require(bool(self.devices), "an experiment needs [[devices]]")
        _require(bool(self.policies), "an experiment needs [[policies]]")
        _require(bool(self.models), "an experiment needs a model")
        _require(bool(self.codecs), "an experiment needs a codec")
        _require(1 <= self.rounds <= 1_000_000, "rounds must be at least 1")
        _require(self.mode in MODES, f"mode must be one of: {', '.join(MODES)}")
        _require(self.network in NETWORKS, f"network must be one of: {', '.join(NETWORKS)}")
        _require(self.sweep_runs >= 0, "sweep_runs must not be negative")
        _require(self.rest_ms >= 0, "rest_ms must not be negative")
        _require(self.policies_at_once >= 1, "policies_at_once must be at least 1")
        _require(self.workers >= 1, "workers must be at least 1")
        _require(self.pause_ms >= 0 and self.turn >= 1, "pause_ms >= 0 and turn >= 1, please")
        _require(1 <= self.server_slowdown <= 1000, "server_slowdown must be 1 to 1000")
        labels = [each.label for each in self.policies]
        _require(len(set(labels)) == len(labels), "two policies have the same label")
        named = {each.network for each in self.links}
        for group in self.devices:
            _require(group.network in named, f"{group.type}: no [[links]] named {group.network!r}")
        steady = self.mode != "free-running" or not (self.changes or self.outages)
        _require(steady, "free-running devices have no rounds in which something could happen")
        for change in self.changes:
            _require(change.network in named, f"a change of unknown network {change.network!r}")

    def phases(self) -> tuple[int, ...]:
        """Rounds from which link rates are different from before; the first is 0."""
        return tuple(sorted({0, *(each.round for each in self.changes)}))

    def rates(self, round_: int) -> dict[str, float]:
        """Megabits per second of every network in a round."""
        rates = {each.network: each.mbps for each in self.links}
        for change in sorted(self.changes, key=lambda each: each.round):
            if change.round <= round_:
                rates[change.network] = change.mbps
        return rates

    def loss(self) -> dict[str, float]:
        """Share of packets that every network loses."""
        return {each.network: each.loss for each in self.links}

    def server_is_down(self, round_: int) -> bool:
        return any(each.round <= round_ < each.round + each.rounds for each in self.outages)


def _positive(value: float) -> bool:
    return isfinite(value) and value > 0


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)
