"""What learning costs a server as its fleet grows: policy `cans` against `offload`, in turns.

    python -m benchmarks fleet_scale

Two servers of the toy model, one under `cans` and one under `offload` (which learns nothing), each
with a fleet of its own that always takes point 0, so that the difference is what learning costs.
The fleets send in turns, at the same rate; the clients have one core and the servers the other. Up
to 200 devices are real `cans.Device`s, ten to a process, that have each had 100 inferences before
anything is measured (those that learn nothing 20), and a rehearsal; thousands are light clients,
all in one process, that speak the real wire and upload as often as the 200 real ones did. Per
policy: server CPU per request, messages and bytes about learning (uploads, answers, news of pools),
quantiles of what answers took, fallbacks; and the exponent of each in the number of devices. Once
fleets have settled a few messages more or less are chance, so that whether they grow with the
fleet is told by all messages of a device since it joined.

FLEET_SIZES=20,100,200,1000,5000 takes these sizes, instead of those that have a bar (20, 200 and
1,000), FLEET_TURNS=2 two turns of each fleet instead of up to twelve.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fleet_clients import LightFleet, Tally
from benchmarks.fleet_devices import RealFleet
from benchmarks.fleet_server import ROOT, Served, cores

POLICIES = ("cans", "offload")
# Devices, and inferences a second of each: slow enough that the clients, which all share one
# core, are not what is measured.
REAL = {20: 1.0, 100: 0.5, 200: 0.25}
LIGHT = {1000: 0.1, 5000: 0.04}
SIZES = (20, 200, 1000)  # that have a bar
# Of each real device, as fast as they go; who learns nothing has nothing to settle.
SETTLE_REQUESTS = {"cans": 100, "offload": 20}
REHEARSED = 4  # turns after that which are not measured: links are less busy now, which is news
# Short turns, many of them: a machine that has others to serve is slower for seconds at a time.
# Yet dozens of inferences of each real device in all: an edition of a pool goes to everybody, and
# is a twentieth of a message per inference where each device makes twenty.
TURN_REQUESTS = {20: 8, 100: 4, 200: 4, 1000: 1, 5000: 1}  # of each device
TURNS = {20: 12, 100: 6, 200: 12, 1000: 6, 5000: 2}  # of each fleet
LIGHT_UPLOADS = 0.01  # per inference and part, where the real ones were not asked
CPU_BAR, P99_BAR, GROWTH_BAR, MESSAGES_BAR, BYTES_BAR = 1.10, 1.5, 0.1, 0.05, 20.0


@dataclass
class Side:
    """One server, its fleet and what was measured of them."""

    served: Served
    fleet: RealFleet | LightFleet
    cpu_s: list[float] = field(default_factory=list)  # of the server in each turn
    clients_s: float = 0.0  # of all clients in all turns
    seconds: float = 0.0  # of all turns together
    tallies: list[Tally] = field(default_factory=list)
    settled: Tally = field(default_factory=Tally)  # of what came before the first turn

    def begin(self) -> None:
        self.fleet.tally = Tally()
        self.cpu_s.append(-self.served.cpu())
        self.clients_s -= self.fleet.cpu()

    def end(self, seconds: float) -> None:
        self.cpu_s[-1] += self.served.cpu()
        self.clients_s += self.fleet.cpu()
        self.seconds += seconds
        self.tallies.append(self.fleet.tally)

    def last_turn(self) -> str:
        """In a line."""
        tally = self.tallies[-1]
        cpu_ms, p99 = self.cpu_s[-1] / tally.requests * 1e3, np.quantile(tally.times, 0.99)
        return f"  {self.served.policy}: {cpu_ms:.2f} ms of CPU a request, p99 {p99:.1f} ms"

    def report(self, devices: int) -> dict[str, Any]:
        def total(name: str) -> int:
            return sum(getattr(each, name) for each in self.tallies)

        requests, minutes = max(total("requests"), 1), self.seconds / 60 * devices
        times = np.concatenate([each.times for each in self.tallies])
        return {
            "requests": requests,
            "fallbacks": total("fallbacks"),
            "cpu_ms_per_request": sum(self.cpu_s) / requests * 1e3,
            "client_cpu_ms_per_request": self.clients_s / requests * 1e3,
            "uploads_per_request": total("uploads") / requests,
            "messages_per_request": (total("messages") + total("riding")) / requests,
            "of_them_with_answers": total("riding") / requests,
            "load_messages_per_request": total("told") / requests,
            "bytes_per_request": total("nbytes") / requests,
            "messages_per_device_minute": (total("messages") + total("riding")) / minutes,
            "bytes_per_device_minute": total("nbytes") / minutes,
            "messages_per_device": self._messages() / devices,
            **{f"p{q}_ms": float(np.quantile(times, q / 100)) for q in (50, 90, 99)},
        }

    def _messages(self) -> int:
        """All since the devices joined."""
        return sum(each.messages + each.riding for each in (self.settled, *self.tallies))


def turns(devices: int) -> int:
    return int(os.environ.get("FLEET_TURNS", TURNS[devices]))


def say(text: str) -> None:
    """Progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def real(served: list[Served], devices: int, rate: float, folder: Path) -> list[Side]:
    """So many real devices at each server."""
    sides = [Side(each, RealFleet(each.port, devices, folder)) for each in served]
    requests = TURN_REQUESTS[devices]
    try:
        for side in sides:
            settling = SETTLE_REQUESTS[side.served.policy]
            say(f"{devices} devices, policy {side.served.policy}: {settling} inferences each")
            side.fleet.settle(settling)
            side.fleet.play(REHEARSED * requests, rate)
            side.settled = side.fleet.tally
        for turn in range(turns(devices)):
            for side in sides[:: -1 if turn % 2 else 1]:
                side.begin()
                side.fleet.play(requests, rate)
                side.end(requests / rate)
                say(side.last_turn())
    finally:
        for side in sides:
            side.fleet.close()
    return sides


def light(served: list[Served], devices: int, rate: float, uploads: float) -> list[Side]:
    """So many light clients at each server."""

    async def play() -> list[Side]:
        sides = [Side(each, LightFleet(each.port, devices, uploads)) for each in served]
        requests = TURN_REQUESTS[devices]
        try:
            for side in sides:
                say(f"{devices} light clients, policy {side.served.policy}: they join")
                await side.fleet.join()
                await side.fleet.play(REHEARSED * requests, rate)
                side.settled = side.fleet.tally
            gc.collect()
            gc.freeze()  # thousands of clients share this process
            for turn in range(turns(devices)):
                for side in sides[:: -1 if turn % 2 else 1]:
                    side.begin()
                    await side.fleet.play(requests, rate)
                    side.end(requests / rate)
                    say(side.last_turn())
        finally:
            for side in sides:
                await side.fleet.close()
        return sides

    return asyncio.run(play())


def one(devices: int, rate: float, uploads: float | None) -> dict[str, Any]:
    """One size of fleet, in this process; real devices, unless it says how often to upload."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for_clients, for_servers = cores()
        os.sched_setaffinity(0, for_clients)
        served = [Served(policy, folder, for_servers) for policy in POLICIES]
        try:
            if uploads is None:
                sides = real(served, devices, rate, folder)
            else:
                sides = light(served, devices, rate, uploads)
        finally:
            for each in served:
                each.stop()
    cans, offload = (side.report(devices) for side in sides)
    return {
        "devices": devices,
        "rate": rate,
        "cans": cans,
        "offload": offload,
        "cpu_ratio": cans["cpu_ms_per_request"] / offload["cpu_ms_per_request"],
        "cpu_ratio_of_turns": np.divide(*(side.cpu_s for side in sides)).tolist(),
        "cpu_ratio_median": float(np.median(np.divide(*(side.cpu_s for side in sides)))),
        "p99_ratio": cans["p99_ms"] / offload["p99_ms"],
    }


def measured(devices: int, rate: float, uploads: float | None = None) -> dict[str, Any]:
    """The same in a process of its own, which begins with nothing."""
    words = [str(devices), str(rate), *([] if uploads is None else [str(uploads)])]
    command = [sys.executable, "-m", "benchmarks.fleet_scale", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=1200)
    print(done.stdout.decode().strip(), file=sys.stderr, flush=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def exponents(sizes: list[dict[str, Any]]) -> dict[str, float]:
    """Of growth with the number of devices, by least squares on logarithms; where there was no
    message at all, as if there had been one."""

    def fitted(read: Callable[[dict[str, Any]], float]) -> float:
        x = np.log([each["devices"] for each in sizes])
        y = np.log([max(read(each["cans"]), 1 / each["cans"]["requests"]) for each in sizes])
        return float(np.polyfit(x, y, 1)[0])

    names = (
        "cpu_ms_per_request",
        "messages_per_device",
        "messages_per_request",
        "bytes_per_request",
        "p99_ms",
    )
    return {name: fitted(itemgetter(name)) for name in names}


def run() -> dict[str, Any]:
    asked = os.environ.get("FLEET_SIZES")
    wanted = {int(size) for size in asked.split(",")} if asked else set(SIZES)
    reals = [measured(size, rate) for size, rate in REAL.items() if size in wanted]
    uploads = reals[-1]["cans"]["uploads_per_request"] / 2 if reals else LIGHT_UPLOADS
    lights = [measured(size, rate, uploads) for size, rate in LIGHT.items() if size in wanted]
    growth = {
        kind: exponents(sizes)
        for kind, sizes in (("real", reals), ("light", lights)) if len(sizes) > 1
    }  # fmt: skip
    by_size = {each["devices"]: each for each in (*reals, *lights)}
    bars = {f"cpu_at_{size}": by_size[size]["cpu_ratio"] <= CPU_BAR
            for size in (20, 200, 1000) if size in by_size}  # fmt: skip
    for each in reals:
        bars[f"messages_at_{each['devices']}"] = (
            each["cans"]["messages_per_request"] <= MESSAGES_BAR
        )
        bars[f"bytes_at_{each['devices']}"] = each["cans"]["bytes_per_request"] <= BYTES_BAR
    if 200 in by_size:
        bars["p99_at_200"] = by_size[200]["p99_ratio"] <= P99_BAR
        bars["no_fallbacks_at_200"] = by_size[200]["cans"]["fallbacks"] == 0
    for kind, found in growth.items():
        bars[f"messages_do_not_grow_{kind}"] = found["messages_per_device"] <= GROWTH_BAR
    return {
        **{f"{size} devices": found for size, found in by_size.items()},
        **{f"exponents, {kind} devices": found for kind, found in growth.items()},
        "bars_met": bars,
    }


if __name__ == "__main__":
    size, rate, *uploads = sys.argv[1:]
    print(json.dumps(one(int(size), float(rate), float(uploads[0]) if uploads else None)))
