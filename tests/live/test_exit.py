"""Programs that end while a device works in the background end with their own exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.live.process import ROOT, free_port
from tests.live.running import Running, terms

USES = """
import os, signal, sys, threading
import numpy as np
import cans
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
device = cans.Device({server!r}, "mobilenet_v2", state={state!r}, connect_seconds=2.0)
picture = np.zeros((1, 3, 224, 224), np.float32)
for _ in range(25):  # a point that is used 20 times gets a fused half, built in the background
    device.infer(picture)
"""
WAYS = {
    "falls off the end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise KeyError('mine')", 1),
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT); signal.pause()", -signal.SIGINT),
    "closed": ("device.close()", 0),
    "closed twice": ("device.close(); device.close()", 0),
    "a fork that exits": (
        "child = os.fork()\n"
        "if not child: sys.exit(5)\n"
        "assert os.waitpid(child, 0)[1] == 5 << 8", 0),
    "a fork that infers": (
        "child = os.fork()\n"
        "if not child:\n"
        "    try: device.infer(picture)\n"
        "    except cans.InputError: sys.exit(6)\n"
        "assert os.waitpid(child, 0)[1] == 6 << 8\n"
        "device.infer(picture)", 0),
    "a thread that goes on inferring": (
        "def on():\n"
        "    try:\n"
        "        while True: device.infer(picture)\n"
        "    except cans.InputError: pass\n"
        "threading.Thread(target=on, daemon=True).start()", 0),
    "del, and a garbage collection": ("del device; import gc; gc.collect()", 0),
}  # fmt: skip


def ends(way: str, server: str, folder: Path, number: int = 0) -> str:
    """Run one program; empty: it ended as it should."""
    last, code = WAYS[way]
    state = folder / f"{way.replace(' ', '-')}-{number}"
    source = USES.format(server=server, state=str(state)) + last
    ended = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    return "" if ended.returncode == code else f"{way}: {ended.returncode}, {ended.stderr[-400:]}"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    from cans.live.split import Cutting
    from cans.live.splitting import load_model, split

    cutting = Cutting()
    model = split(load_model("mobilenet_v2", cutting), cutting)
    running = Running.of(model, terms=terms("cans", fresh_pools=True))
    yield running
    running.stop()


QUICK = ("falls off the end", "Ctrl-C", "a fork that infers", "a thread that goes on inferring")


@pytest.mark.parametrize("way", QUICK)
def test_a_program_ends_as_it_meant_to(server: Running, tmp_path: Path, way: str) -> None:
    assert not ends(way, server.address, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_hundred_programs(server: Running, tmp_path: Path) -> None:
    """Half of them with a server, half of them on their own, in every way."""
    alone = f"127.0.0.1:{free_port()}"
    every = list(WAYS)
    with ThreadPoolExecutor(2) as pool:
        ended = pool.map(
            lambda i: ends(
                every[i % len(every)], (server.address, alone)[i // 10 % 2], tmp_path, i
            ),
            range(500),
        )
        failed = [each for each in ended if each]
    assert not failed, (len(failed), failed[:3])
