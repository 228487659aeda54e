"""Real devices of `fleet_scale`, a few in each of many processes, and their messages counted.

In a fleet every device has an interpreter of its own. Two hundred in one process wait for each
other's, all the longer the more of them have something to do at the same time.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.fleet_clients import Tally
from benchmarks.fleet_server import ROOT, cpu_seconds
from cans.errors import CansError
from cans.live.wire.inference import InferReply, InferRequest
from cans.live.wire.link import Link
from cans.live.wire.messages import SyncReply, SyncRequest, WatchRequest

TOGETHER = 10  # devices of one process
SETTLING = 3  # processes that send at a time before anything is measured
AT_A_TIME = 10  # requests of each of their devices, before others have their turn

_tally = Tally()  # of the devices of this process, since it was last asked for


class RealFleet:
    """`cans.Device`s in processes beside this one, each forced to choice 0."""

    def __init__(self, port: int, devices: int, folder: Path) -> None:
        self.tally = Tally()
        self._devices = devices
        self._children = [
            _Child(port, folder, range(first, min(first + TOGETHER, devices)))
            for first in range(0, devices, TOGETHER)
        ]
        for each in self._children:
            each.hear()  # its devices have joined

    def settle(self, requests: int) -> None:
        """So many requests of each device, as fast as a few of them at a time can."""
        some = [min(AT_A_TIME, requests - done) for done in range(0, requests, AT_A_TIME)]
        with ThreadPoolExecutor(SETTLING) as pool:
            for number in some:
                list(pool.map(lambda child, n=number: child.ask(settle=n), self._children))
        self._collect()

    def play(self, requests: int, rate: float) -> None:
        """So many requests of each device, so many a second, evenly spread over the devices."""
        begin = time.monotonic() + 0.2
        for each in self._children:
            each.say(play=requests, rate=rate, begin=begin, devices=self._devices)
        for each in self._children:
            each.hear()
        self._collect()

    def _collect(self) -> None:
        for each in self._children:
            self.tally.add(each.ask())

    def cpu(self) -> float:
        """Seconds so far, of all its processes."""
        return sum(cpu_seconds(each.process.pid) for each in self._children)

    def close(self) -> None:
        for each in self._children:
            each.close()


class _Child:
    """A process with some of the devices; it is told what to do in lines of JSON."""

    def __init__(self, port: int, folder: Path, devices: range) -> None:
        words = [str(port), str(folder), str(devices.start), str(devices.stop)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fleet_devices", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip

    def ask(self, **wanted: Any) -> Any:
        """Have it do something; what it has seen since it was asked to do nothing."""
        self.say(**wanted)
        return self.hear()

    def say(self, **wanted: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(wanted) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a process of clients has ended")
        return json.loads(line)

    def close(self) -> None:
        self.process.communicate(timeout=120)  # closes its input, which ends it


# --- inside such a process -----------------------------------------------------------------------


class CountedLink(Link):
    """What its device says and hears about learning goes into the tally."""

    def infer(self, request: InferRequest, seconds: float) -> Any:
        pending = super().infer(request, seconds)
        read = pending._read

        def counted(data: bytes) -> InferReply:
            reply = read(data)
            _tally.rode(reply)
            return reply

        pending._read = counted
        return pending

    def sync(self, request: SyncRequest, seconds: float) -> Any:
        pending = super().sync(request, seconds)
        if request.uploads:
            uploads = SyncRequest(request.uploads)  # an account that rides along is no learning
            _tally.learned(len(uploads.to_bytes()), len(request.uploads))
            pending.when_done(lambda: _answered(pending))
        return pending

    def watch(self, request: WatchRequest) -> Any:
        stream = super().watch(request)
        read = stream._read

        def counted(data: bytes) -> Any:
            _tally.heard(data)
            return read(data)

        stream._read = counted
        return stream


def _answered(pending: Any) -> None:
    try:
        answer: SyncReply = pending.result()
    except CansError:
        return
    _tally.learned(len(answer.to_bytes()), messages=0)


def devices_of(port: int, folder: Path, numbers: range) -> list[Any]:
    from tests.live.toy import toy

    from cans.live.device.hooked import HookedDevice
    from cans.live.device.hooks import Hooks
    from cans.live.device.servers import contact

    with patch.object(contact, "Link", CountedLink):
        return [
            HookedDevice(
                f"127.0.0.1:{port}", toy(), "rpi5", state=folder / f"{port}-{i}", seed=i,
                connect_seconds=60.0, hooks=Hooks(force=0),
            )
            for i in numbers
        ]  # fmt: skip


def infer(device: Any, inputs: Any) -> None:
    start = time.perf_counter()
    try:
        fallback = bool(device.run(inputs).report.fallback)
    except CansError:
        fallback = True
    _tally.answered(time.perf_counter() - start, fallback)


def play(
    devices: Sequence[Any], inputs: Any, begins: Sequence[float], requests: int, rate: float
) -> None:
    def one(device: Any, begin: float) -> None:
        for i in range(requests):
            time.sleep(max(begin + i / rate - time.monotonic(), 0.0))
            infer(device, inputs)

    threads = [
        threading.Thread(target=one, args=each) for each in zip(devices, begins, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(port: int, folder: Path, first: int, last: int) -> None:
    """Do what the lines on the standard input say, until there are no more."""
    from tests.live.toy import example

    global _tally
    inputs, devices = example(), devices_of(port, folder, range(first, last))
    answer: Any = None
    while True:
        print(json.dumps(answer), flush=True)
        line = sys.stdin.readline()
        if not line:
            break
        wanted, answer = json.loads(line), None
        if "settle" in wanted:
            for _ in range(wanted["settle"]):
                for device in devices:
                    infer(device, inputs)
        elif "play" in wanted:
            gc.collect()
            gc.freeze()  # what the collector looks through is the benchmark's, of ten devices
            rate = wanted["rate"]
            begins = wanted["begin"] + np.arange(first, last) / wanted["devices"] / rate
            play(devices, inputs, begins.tolist(), wanted["play"], rate)
        else:
            seen, _tally = _tally, Tally()
            answer = seen.to_json()
    for device in devices:
        device.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
