"""One policy's fleet: a real `cans serve` and real `cans device` processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cans.testbed.run.experiment import Experiment, PolicyChoice
from cans.testbed.run.layout import DeviceSeat
from cans.testbed.run.network import Network
from cans.testbed.run.processes import DeviceProcess, ServerProcess


def table_words(experiment: Experiment) -> list[str]:
    """How a table is made, for a command line; every process must make the same one."""
    words = ["--features", experiment.features]
    for codec in experiment.codecs:
        words += ["--codec", codec]
    if experiment.max_points is not None:
        words += ["--max-points", str(experiment.max_points)]
    return words


class ProcessFleet:
    """The processes of one policy; every policy has its own, on the same links."""

    def __init__(
        self,
        experiment: Experiment,
        model: str,
        policy: PolicyChoice,
        seats: Sequence[DeviceSeat],
        network: Network,
        folder: Path,
        dashboard: str = "",
    ) -> None:
        self.policy = policy
        self._dashboard = dashboard  # HOST:PORT of the live page; empty: none
        self.seats = seats
        self.experiment = experiment
        self.model = model
        self.address = f"{network.host}:{network.free_port()}"
        self._network = network
        self._folder = folder
        self.devices: list[DeviceProcess] = []
        self.forced: dict[int, int | None] = {}
        folder.mkdir(parents=True)
        self.server = ServerProcess(
            network.server_prefix(), self._server_words(), folder / "server.log"
        )

    @property
    def label(self) -> str:
        return self.policy.label

    def _server_words(self) -> list[str]:
        experiment = self.experiment
        words = ["serve", "--model", self.model, "--listen", self.address]
        words += ["--store", f"sqlite:{self._folder / 'pools.sqlite'}"]
        words += ["--policy", self.policy.name, "--workers", str(experiment.workers)]
        words += ["--slowdown", repr(experiment.server_slowdown)]
        words += table_words(experiment)
        for name, value in self.policy.numbers().items():
            if value is not None:
                words += [f"--{name.replace('_', '-')}", repr(value)]
        if self._dashboard:
            words += ["--dashboard", self._dashboard]
        return [*words, *(["--prepare"] if experiment.prepare else [])]

    def start_devices(self) -> None:
        """One after the other unless told otherwise: each runs a few inferences for its warm start,
        and those must not be slower than the ones that count."""
        for seat in self.seats:
            prefix = self._network.device_prefix(seat.index)
            log = self._folder / f"{seat.name}.log"
            self.devices.append(DeviceProcess(prefix, self._device_words(seat), log))
            if not self.experiment.start_together:
                self.devices[-1].wait_until_ready()

    def _device_words(self, seat: DeviceSeat) -> list[str]:
        group, seed = seat.group, self.experiment.seed * 1000 + seat.index
        words = ["device", "--obey", "--server", self.address, "--model", self.model]
        words += ["--type", group.type] if self.policy.types else []
        words += ["--network", group.network, "--name", seat.name]
        words += ["--state", str(self._folder / seat.name), "--seed", str(seed)]
        words += ["--slowdown", repr(group.slowdown)]
        pace = self._network.pace_of(seat.index)
        if pace is not None:  # from the first probe on
            words += ["--pace-mbps", repr(pace)]
        return [*words, *(["--prepare"] if self.experiment.prepare else [])]

    def wait_until_ready(self) -> None:
        if self.experiment.start_together:
            for device in self.devices:
                device.wait_until_ready()
        self.follow_rates()

    def follow_rates(self) -> None:
        """Tell devices that pace themselves how fast their links are now."""
        for seat in self.seats:
            self.follow_rate(seat.index)

    def force(self, device: int, row: int | None) -> None:
        """Have a device take one choice from now on; None: the policy's."""
        if self.forced.get(device) != row:
            self.forced[device] = row
            self.follow_rate(device)

    def follow_rate(self, device: int) -> None:
        pace = self._network.pace_of(device)
        self.devices[device].ask("set", force=self.forced.get(device), mbps=pace)

    def infer(self, device: int) -> dict[str, Any]:
        return self.devices[device].ask("infer")

    def calibrate(self, device: int, runs: int, point: int | None = None) -> dict[str, Any]:
        """Times of a front-end, of the whole model without a point; nothing is learned from it."""
        where = {} if point is None else {"point": point}
        return self.devices[device].ask("calibrate", runs=runs, **where)
