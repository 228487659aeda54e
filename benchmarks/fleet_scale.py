"""What learning costs a server as its fleet grows: policy `cans` against `offload`, side by side.

    python -m benchmarks.fleet_scale

Two servers of the toy model run at the same time, one under `cans` and one under `offload` (which
learns nothing); both get the same requests at the same moments, all for point 0, so that the
difference is what learning costs. Up to 200 devices are real `cans.Device`s; thousands are light
clients, all in one process, that speak the real wire and upload at the rate of a device that has
settled. Reported per policy: server CPU per request, messages and bytes about learning per device
and minute, quantiles of what answers took, fallbacks; and the exponent of each in the number of
devices.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fleet_clients import Client, Tally, count
from cans.errors import CansError

ROOT = Path(__file__).parent.parent
POLICIES = ("cans", "offload")
# Devices, and inferences a second of each: slow enough that the clients, which all share one
# process, are not what is measured.
REAL = ((20, 1.0), (100, 0.3), (200, 0.15))
LIGHT = ((1000, 0.1), (5000, 0.02))
SETTLE = 40.0  # seconds: young pools are worth more messages
SECONDS = 20.0  # measured
CPU_BAR, P99_BAR, GROWTH_BAR = 1.10, 1.5, 0.1


class Served:
    """A server in a process of its own, as a user starts it, and the processor time it has used."""

    def __init__(self, policy: str, folder: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.fleet_scale", "serve", policy,
                   str(folder / f"{policy}.sqlite")]  # fmt: skip
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self.child.stdout is not None
        self.port = int(self.child.stdout.readline())
        self.tally = Tally()

    def cpu(self) -> float:
        """Seconds so far."""
        words = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / 100.0

    def stop(self) -> None:
        self.child.terminate()
        self.child.wait(60)
        assert self.child.stdout is not None
        self.child.stdout.close()


def serve(policy: str, store: str) -> None:
    from tests.live.toy import toy

    from cans.learning import policy_named
    from cans.live.server.server import ServerOptions
    from cans.live.server.server import serve as serve_models
    from cans.live.wire.terms import Terms

    chosen = policy_named(policy)
    terms = Terms(chosen, fresh_pools=chosen.fresh)
    options = ServerOptions(terms, "127.0.0.1:0", f"sqlite:{store}", queue=256)
    asyncio.run(serve_models([toy()], options, lambda made: print(made.port, flush=True)))


# --- real devices ---


def real(served: list[Served], devices: int, rate: float, folder: Path) -> dict[str, Any]:
    """So many real devices at each server."""
    from tests.live.toy import example, toy

    from cans.live.device.hooked import HookedDevice as Device

    made = []
    for each in served:
        for i in range(devices):
            device = Device(
                f"127.0.0.1:{each.port}", toy(), "rpi5", state=folder / f"{each.port}-{i}", seed=i,
                connect_seconds=60.0,
            )  # fmt: skip
            device.hooks.force = 0
            count(device, each.tally)
            made.append((device, each.tally))
    stop = threading.Event()

    def infer(device: Any, tally: Tally, offset: float) -> None:
        inputs = example()
        stop.wait(offset)
        while not stop.is_set():
            begin, fallback = time.perf_counter(), False
            try:
                fallback = bool(device.run(inputs).report.fallback)
            except CansError:
                fallback = True
            took = time.perf_counter() - begin
            with tally.lock:
                tally.requests += 1
                tally.times.append(took * 1e3)
                tally.fallbacks += fallback
            stop.wait(max(1.0 / rate - took, 0.0))

    threads = [
        threading.Thread(target=infer, args=(*each, (i % devices) / devices / rate), daemon=True)
        for i, each in enumerate(made)
    ]
    for thread in threads:
        thread.start()
    try:
        time.sleep(SETTLE)
        return _measured(served, devices, SECONDS, lambda: time.sleep(SECONDS))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for device, _ in made:
            device.close()


# --- light clients ---


def light(served: list[Served], devices: int, rate: float) -> dict[str, Any]:
    """So many clients of each server in this process."""
    return asyncio.run(_light(served, devices, rate))


async def _light(served: list[Served], devices: int, rate: float) -> dict[str, Any]:
    clients = [Client(each.port, each.tally, i) for each in served for i in range(devices)]
    for some in range(0, len(clients), 100):
        await asyncio.gather(*(each.join() for each in clients[some : some + 100]))
    running = [
        asyncio.create_task(each.run(rate, (i % devices) / devices / rate))
        for i, each in enumerate(clients)
    ]
    try:
        await asyncio.sleep(SETTLE)
        before = [each.cpu() for each in served]
        for each in served:
            each.tally.forget()
        await asyncio.sleep(SECONDS)
        return _report(served, devices, SECONDS, before)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for client in clients:
            await client.close()


# --- numbers ---


def _measured(served: list[Served], devices: int, seconds: float, wait: Any) -> dict[str, Any]:
    before = [each.cpu() for each in served]
    for each in served:
        each.tally.forget()
    wait()
    return _report(served, devices, seconds, before)


def _report(
    served: list[Served], devices: int, seconds: float, before: list[float]
) -> dict[str, Any]:
    found: dict[str, Any] = {"devices": devices}
    for policy, each, cpu in zip(POLICIES, served, before, strict=True):
        tally, minutes = each.tally, seconds / 60 * devices
        found[policy] = {
            "requests": tally.requests,
            "fallbacks": tally.fallbacks,
            "cpu_ms_per_request": (each.cpu() - cpu) / max(tally.requests, 1) * 1e3,
            "messages_per_device_minute": tally.messages / minutes,
            "bytes_per_device_minute": tally.nbytes / minutes,
            **{f"p{q}_ms": float(np.quantile(tally.times, q / 100)) for q in (50, 90, 99)},
        }
    cans, offload = (found[policy] for policy in POLICIES)
    found["cpu_ratio"] = cans["cpu_ms_per_request"] / offload["cpu_ms_per_request"]
    found["p99_ratio"] = cans["p99_ms"] / offload["p99_ms"]
    return found


def one(kind: str, devices: int, rate: float) -> dict[str, Any]:
    """One size of fleet, in this process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        served = [Served(policy, folder) for policy in POLICIES]
        try:
            if kind == "real":
                return real(served, devices, rate, folder)
            return light(served, devices, rate)
        finally:
            for each in served:
                each.stop()


def exponent(sizes: list[dict[str, Any]], name: str) -> float:
    """Of growth with the number of devices, by least squares on logarithms."""
    x = np.log([each["devices"] for each in sizes])
    y = np.log([max(each["cans"][name], 1e-9) for each in sizes])
    return float(np.polyfit(x, y, 1)[0])


def run() -> dict[str, Any]:
    found: dict[str, list[dict[str, Any]]] = {"real": [], "light": []}
    for kind, sizes in (("real", REAL), ("light", LIGHT)):
        for devices, rate in sizes:
            command = [
                sys.executable,
                "-m",
                "benchmarks.fleet_scale",
                kind,
                str(devices),
                str(rate),
            ]
            out = subprocess.run(
                command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=900
            ).stdout
            found[kind].append(json.loads(out))
            print(json.dumps(found[kind][-1]), file=sys.stderr, flush=True)
    largest = found["real"][-1]
    growth = exponent(found["real"], "messages_per_device_minute")
    return {
        **found,
        "exponents": {
            name: exponent(found["real"], name)
            for name in ("cpu_ms_per_request", "messages_per_device_minute",
                         "bytes_per_device_minute", "p99_ms")
        },
        "light_messages_exponent": exponent(found["light"], "messages_per_device_minute"),
        "bars_met": {
            **{f"cpu_at_{each['devices']}": each["cpu_ratio"] <= CPU_BAR
               for each in (*found["real"], *found["light"]) if each["devices"] in (20, 200, 1000)},
            "p99_at_200": largest["p99_ratio"] <= P99_BAR,
            "no_fallbacks_at_200": largest["cans"]["fallbacks"] == 0,
            "messages_do_not_grow": growth <= GROWTH_BAR,
        },
    }  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(*sys.argv[2:])
    elif len(sys.argv) > 1:
        print(json.dumps(one(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
    else:
        print(json.dumps(run(), indent=1))
