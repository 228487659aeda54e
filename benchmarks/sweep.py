"""A sweep of 1,000 cells on a real Dask cluster of processes: two workers against one.

Bar: two workers are at least 1.6 times as fast, and handing cells over costs less than 5 %. Both
play the same 1,000 cells of 2,500 rounds, a whole sweep at a time as a user starts it, on a cluster
that is alone on the machine; in turns, so that whatever else the machine does meets both. Workers
have compiled the engine before the clock starts. The rows of both must be those of this machine's
own processes, bit for bit.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

from cans.simulation.sweep.cells import Played, Row
from cans.simulation.sweep.grid import Cell, read_sweep
from cans.simulation.sweep.running import run_cells
from cans.simulation.workers.dask_cluster import DaskCluster
from cans.simulation.workers.workers import Processes, Workers

BAR_SPEEDUP, BAR_SCHEDULING = 1.6, 0.05
ORDER = (2, 1, 1, 2)  # workers of each turn
SWEEP = """
engine = "fast"
seeds = 250
rounds = 2500
policy = ["fedlinucb-dw", "linucb", "cans", "fedlinucb"]
"""


@dataclass
class Turns:
    """What came of all the turns of some workers."""

    rows: dict[str, Row] = field(default_factory=dict)
    seconds: float = 0.0  # from handing over to the last answer
    in_cells: float = 0.0  # of all workers
    idle: list[float] = field(default_factory=list)  # shares of the workers' time, not in cells

    def play(self, cells: list[Cell], workers: Workers) -> None:
        began = perf_counter()
        self.idle.append(run_cells(cells, "fast", {}, workers, self._keep))
        self.seconds += perf_counter() - began

    def _keep(self, done: Played) -> None:
        self.rows.update({row["cell"]: row for row in done.rows})
        self.in_cells += sum(done.seconds)


def run() -> dict[str, Any]:
    from distributed import LocalCluster

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "bench.toml"
        source.write_text(SWEEP)
        cells = list(read_sweep(source).cells)
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "threads_per_worker": 1}
    turns = {1: Turns(), 2: Turns()}
    for workers in ORDER:
        with LocalCluster(n_workers=workers, **quiet) as local_cluster:
            cluster = DaskCluster(local_cluster.scheduler_address)
            Turns().play(cells[::25], cluster)  # every process compiles, or loads what is compiled
            turns[workers].play(cells, cluster)
            cluster.close()
    here, local = Processes(2), Turns()
    local.play(cells, here)
    here.close()
    alone, both = turns[1], turns[2]
    speedup = alone.seconds / both.seconds
    idle = mean(alone.idle + both.idle)
    return {
        "cells": len(cells),
        "seconds_one_worker": alone.seconds / len(alone.idle),
        "seconds_two_workers": both.seconds / len(both.idle),
        "speedup": speedup,
        # above 1: the two workers share memory, or the machine is not quiet
        "time_in_a_cell_two_over_one": both.in_cells / alone.in_cells,
        "scheduling_share": idle,
        "bars_met": {
            "speedup": speedup >= BAR_SPEEDUP,
            "scheduling": idle < BAR_SCHEDULING,
            "equal_bit_for_bit": alone.rows == both.rows == local.rows,
        },
    }
