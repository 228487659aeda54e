"""A world that a user describes in a TOML file: `cans simulate --world my-world.toml`.

What every choice takes: `model`, a built-in model or an ONNX file, or `[[points]]` with bytes and
MACs; with the speeds or the milliseconds of `[devices.NAME]` and `[server]`, and the rates of
`[networks.NAME]`. Or `trace`, a file of measured inferences. `[[changes]]` come on top. Every field
below is a setting; docs/worlds.md has examples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from cans.errors import InputError, unknown_name
from cans.simulation.worlds.world import Noise


@dataclass(frozen=True)
class PointEntry:
    """A partition point."""

    name: str
    bytes: int  # that cross there; 0 at the last, which is local
    macs: float  # multiply-accumulates on the device up to there; 0 at the first, the raw input

    def __post_init__(self) -> None:
        _require(self.bytes >= 0, "bytes must not be negative")
        _require(isfinite(self.macs) and self.macs >= 0, "macs must be a number, not negative")


@dataclass(frozen=True)
class DeviceEntry:
    """A type of device: either what every choice takes it, or its speed."""

    count: int = 1  # so many of them, or in this proportion where --devices says how many in all
    front_ms: tuple[float, ...] = ()  # of every point, the first one 0
    gmacs: float | None = None  # billions of multiply-accumulates a second
    networks: tuple[str, ...] = ()  # that they are behind, in turn; all if not given

    def __post_init__(self) -> None:
        _require(self.count >= 1, "count must be at least 1")
        _one_of_two("front_ms", self.front_ms, self.gmacs)


@dataclass(frozen=True)
class NetworkEntry:
    mbps: float

    def __post_init__(self) -> None:
        _require(_positive(self.mbps), "mbps must be a positive number")


@dataclass(frozen=True)
class ServerEntry:
    """Either what the rest of the model takes it from every point on, or its speed."""

    ms: tuple[float, ...] = ()  # of every point, the last one 0
    gmacs: float | None = None

    def __post_init__(self) -> None:
        _one_of_two("ms", self.ms, self.gmacs)


@dataclass(frozen=True)
class NoiseEntry:
    kind: str = Noise.LOGNORMAL
    level: float = 0.1  # a share of the latency; milliseconds if gaussian or truncated

    def __post_init__(self) -> None:
        if self.kind not in list(Noise):
            raise unknown_name("kind", self.kind, Noise)
        _require(isfinite(self.level) and self.level >= 0, "level must be a number, not negative")


@dataclass(frozen=True)
class ChangeEntry:
    """From one round to another something takes so many times as long."""

    from_round: int
    until_round: int | None = None  # for good if not given
    device: str = ""  # the type that it concerns; all if not given
    network: str = ""  # the network that it concerns; all if not given
    front: float = 1.0
    link: float = 1.0
    server: float = 1.0

    def __post_init__(self) -> None:
        _require(self.from_round >= 0, "from_round must be 0 or later")
        late = self.until_round is None or self.until_round > self.from_round
        _require(late, "until_round must be later than from_round")
        for name in ("front", "link", "server"):
            _require(_positive(getattr(self, name)), f"{name} must be a positive factor")


@dataclass(frozen=True)
class WorldFile:
    """The whole file."""

    name: str = ""  # in tables; that of the file if not given
    model: str = ""  # built-in, or an ONNX file relative to this one
    points: tuple[PointEntry, ...] = ()
    trace: str = ""  # a shipped one, or a CSV file relative to this one
    devices: dict[str, DeviceEntry] = field(default_factory=dict)
    networks: dict[str, NetworkEntry] = field(default_factory=dict)
    server: ServerEntry | None = None
    exchange_ms: float | None = None  # of every exchange, on any network: what no slower link
    # stretches; 1 if not given
    noise: NoiseEntry | None = None  # lognormal, a tenth, if not given
    changes: tuple[ChangeEntry, ...] = ()

    def __post_init__(self) -> None:
        ways = [each for each in (self.model, self.points, self.trace) if each]
        _require(len(ways) == 1, "needs one of: model, [[points]], trace")
        if self.trace:
            self._check_trace()
        else:
            self._check_described()

    def _check_trace(self) -> None:
        for name in ("devices", "networks", "server", "exchange_ms", "noise"):
            given = getattr(self, name) not in ({}, None)
            _require(not given, f"{name} and trace exclude each other: the trace has them")

    def _check_described(self) -> None:
        _require(bool(self.devices), "needs [devices.NAME], one for each type of device")
        _require(bool(self.networks), "needs [networks.NAME], one for each network")
        _require(self.server is not None, "needs [server]")
        exchange = self.exchange_ms or 0.0
        _require(isfinite(exchange) and exchange >= 0, "exchange_ms must be a number, not negative")
        for kind, each in self.devices.items():
            for network in each.networks:
                if network not in self.networks:
                    error = unknown_name("network", network, self.networks)
                    raise InputError(f"[devices.{kind}]: {error}")
        if self.points:
            self._check_points()

    def _check_points(self) -> None:
        macs = [each.macs for each in self.points]
        _require(len(macs) >= 2, "[[points]]: needs at least two, the raw input and the local one")
        _require(macs[0] == 0, "[[points]] 1: macs must be 0: it sends the raw input")
        _require(macs == sorted(macs), "[[points]]: macs must not fall from point to point")
        _require(macs[-1] > 0, f"[[points]] {len(macs)}: macs must be those of the whole model")
        for number, each in enumerate(self.points[:-1], 1):
            _require(each.bytes > 0, f"[[points]] {number}: bytes must be at least 1")
        last = self.points[-1]
        _require(last.bytes == 0, f"[[points]] {len(macs)}: bytes must be 0: the last is local")
        names = {each.name for each in self.points}
        _require(len(names) == len(macs), "[[points]]: two have the same name")


def _one_of_two(name: str, milliseconds: tuple[float, ...], gmacs: float | None) -> None:
    one = bool(milliseconds) is not (gmacs is not None)
    _require(one, f"needs one of: {name} (a list, a number for each point), gmacs")
    right = all(isfinite(each) and each >= 0 for each in milliseconds)
    _require(right, f"{name} must be numbers, none negative")
    _require(gmacs is None or _positive(gmacs), "gmacs must be a positive number")


def _positive(value: float) -> bool:
    return isfinite(value) and value > 0


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)
