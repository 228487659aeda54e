"""`python -m tests.live.poison [STRATEGY ...]` lets a device lie to a fleet, in every way of
`poisoners`, and prints the table of docs/reliability.md.

Four honest devices, two fast and two slow, each on one of two networks, and a fifth that lies: a
member of the fast group, of the first network and of the server. What it costs the honest ones is
counted in picks, each priced by what that choice was measured to take when it was forced.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cans.learning import PartitionTable, policy_named
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.split import Array, SplitModel
from cans.live.wire.terms import Terms, table_version
from cans.models import get_codec
from tests.live.poisoners import STRATEGIES, Liar, Strategy, Truth
from tests.live.process import ROOT, free_port
from tests.live.toy import ToyExecutor, ToyPoint, ToyTensor

SIZES = (37_500, 150_000, 75_000, 25_000, 12_500, 3_000)  # floats that cross at each point
LAYERS = len(SIZES)
SERVER_S = 0.001  # of a block; devices take more
FAST_S, SLOW_S = 0.006, 0.015
NETWORKS = {"near": 64.0, "far": 13.0}  # Mbit/s
HONEST = {
    "fast-near": (FAST_S, "near"), "slow-near": (SLOW_S, "near"),
    "fast-far": (FAST_S, "far"), "slow-far": (SLOW_S, "far"),
}  # fmt: skip
LIARS = ("liar-1", "liar-2")
WITH, APART, AFTER = 300, 50, 100  # inferences: with the liar, not counted, without it
BAR_WITH, BAR_AFTER = 1.05, 1.02


class Shrinking(ToyExecutor):
    """Sleeps for every block; tensors grow at first and shrink then, as in a real network."""

    def __init__(self, block_seconds: float) -> None:
        super().__init__(SIZES[0], LAYERS, block_seconds)
        self.points = [
            *(ToyPoint(f"p{i}", (ToyTensor(f"t{i}", (1, size)),)) for i, size in enumerate(SIZES)),
            ToyPoint("end", (), ("y",)),
        ]

    def _run(self, value: Array, first: int, last: int) -> tuple[Array, float]:
        value, seconds = super()._run(value, first, last)
        size = SIZES[last] if last < LAYERS else 1
        return np.full((1, size), value.flat[0], np.float32), seconds


def shrinking(block_seconds: float) -> SplitModel:
    executor = Shrinking(block_seconds)
    steps = np.arange(LAYERS + 1.0)
    nbytes = np.array([*(4 * size for size in SIZES), 0])
    table = PartitionTable(
        "shrinking",
        [point.name for point in executor.points],
        front=steps[:, None],
        link=np.column_stack([nbytes > 0, nbytes]),
        server=(LAYERS - steps)[:, None],
        bytes_of=nbytes.tolist(),
        probe=np.array([[1.0, 8 << 10], [1.0, 64 << 10]]),
        digest="shrinking",
    )
    table = replace(table, version=table_version(table, executor.points), scaled=True)
    return SplitModel(
        "shrinking", table.digest, (ToyTensor("t0", (1, SIZES[0])),), ("y",), executor, table,
        {(i, "float32"): get_codec("float32") for i in range(LAYERS)},
        made=(ToyTensor("y", (1, 1)),),
    )  # fmt: skip


INPUTS = {"t0": np.zeros((1, SIZES[0]), np.float32)}


# --- the fleet ---


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A server with the default policy, in a process of its own; its address."""
    tokens = folder / "tokens"
    tokens.write_text("".join(f"{name} {name}-token\n" for name in (*HONEST, *LIARS)))
    tokens.chmod(0o600)
    port = free_port()
    command = [sys.executable, "-m", "tests.live.poison", "--serve", str(port), str(tokens)]
    with (folder / "server.log").open("w") as log:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n", (folder / "server.log").read_text()
        yield f"127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(30)
        assert child.stdout is not None
        child.stdout.close()


def serve(port: int, tokens: Path) -> None:
    from cans.live.server.server import ServerOptions, serve

    policy = policy_named("cans")
    options = ServerOptions(
        Terms(policy, fresh_pools=policy.fresh), f"127.0.0.1:{port}", tokens=tokens, workers=8
    )
    asyncio.run(serve([shrinking(SERVER_S)], options, lambda _: print("ready", flush=True)))


def device(address: str, name: str, folder: Path) -> Device:
    block, network = HONEST[name]
    return Device(
        address, shrinking(block), network=network, name=name, token=f"{name}-token",
        state=folder / name, hooks=Hooks(pace_mbps=NETWORKS[network]),
    )  # fmt: skip


def prices(repeats: int = 11) -> dict[str, Array]:
    """Milliseconds of every choice of each honest device, forced, one device at a time."""
    found = {}
    with tempfile.TemporaryDirectory() as name, server(Path(name)) as address:
        for who in HONEST:
            with device(address, who, Path(name)) as each:
                taken = []
                for choice in range(LAYERS + 1):
                    each.hooks.force = choice
                    runs = [each.run(INPUTS).report.total_ms for _ in range(repeats)]
                    taken.append(min(runs))  # what else this machine does is no part of it
                found[who] = np.array(taken)
    return found


def truth(price: Array) -> Truth:
    """What the liar knows of a fast device on the first network: what it would measure."""
    steps = np.arange(LAYERS + 1.0)
    front, behind = FAST_S * 1e3 * steps, SERVER_S * 1e3 * (LAYERS - steps)
    return {"front": front, "link": np.maximum(price - front - behind, 0.0), "server": behind}


@dataclass(frozen=True)
class Picks:
    """The choices of each honest device, in order: while the liar was there, and afterwards."""

    during: dict[str, list[int]]
    after: dict[str, list[int]]

    def cost(self, price: dict[str, Array], which: str, names: Sequence[str]) -> float:
        """Mean milliseconds of these devices' picks."""
        picks = self.during if which == "during" else {
            name: each[APART:] for name, each in self.after.items()
        }  # fmt: skip
        return float(np.mean([price[name][picks[name]].mean() for name in names]))


def play(
    strategy: Strategy | None, price: dict[str, Array], during: int = WITH,
    after: int = APART + AFTER,
) -> Picks:  # fmt: skip
    """One life of a fleet, with liars or without."""
    count = 0 if strategy is None else strategy.liars
    names = list(HONEST)[: 5 - count] if count else list(HONEST)
    picks = Picks({name: [] for name in names}, {name: [] for name in names})
    with (
        tempfile.TemporaryDirectory() as folder,
        server(Path(folder)) as address,
        ExitStack() as on,
    ):
        table = shrinking(0.0).table
        devices = {name: on.enter_context(device(address, name, Path(folder))) for name in names}
        liars = [
            Liar(address, name, f"{name}-token", "near", FAST_S * 1e3 * LAYERS, table,
                 truth(price["fast-near"]), strategy)
            for name in LIARS[:count] if strategy is not None
        ]  # fmt: skip
        gone = threading.Barrier(len(names), action=lambda: [each.leave() for each in liars])

        def work(name: str) -> None:
            for _ in range(during):
                picks.during[name].append(devices[name].run(INPUTS).report.point)
            gone.wait()
            for _ in range(after):
                picks.after[name].append(devices[name].run(INPUTS).report.point)

        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if count:
            assert sum(each.told for each in liars) > 0, "nobody lied"
    return picks


def not_best(picks: Picks, price: dict[str, Array], names: Sequence[str]) -> int:
    """Picks, while the liar was there, that cost more than 5 % above the best choice."""
    dear = {name: price[name] > BAR_WITH * price[name].min() for name in names}
    return sum(int(dear[name][picks.during[name]].sum()) for name in names)


def main(wanted: Sequence[str]) -> None:
    price = prices()
    for name, each in price.items():
        print(f"{name}: {np.round(each, 1).tolist()} ms")
    calm = [play(None, price) for _ in range(3)]
    names = list(HONEST)
    own = [each.cost(price, "during", names) for each in calm]
    print(f"without a liar: {np.round(own, 2).tolist()} ms, "
          f"{[not_best(each, price, names) for each in calm]} picks were dearer\n")  # fmt: skip
    print("| strategy | with the liar | after it | dearer picks | without |\n|---|---|---|---|---|")
    for way in wanted or STRATEGIES:
        found = play(STRATEGIES[way], price)
        names = list(found.during)
        ratios = [
            found.cost(price, when, names)
            / np.mean([each.cost(price, when, names) for each in calm])
            for when in ("during", "after")
        ]
        without = np.mean([not_best(each, price, names) for each in calm])
        print(f"| {way} | {ratios[0]:.3f} | {ratios[1]:.3f} | "
              f"{not_best(found, price, names)} | {without:.0f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        main(sys.argv[1:])
