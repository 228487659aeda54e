"""A sweep of 1,000 cells on a real Dask cluster of processes: two workers against one.

Bar: two workers are at least 1.6 times as fast, and handing cells over costs less than 5 %. Both
play the same 1,000 cells, a slice at a time and taking turns, so that whatever else the machine
does meets both. Workers have compiled the engine before the clock starts. The rows of both must be
those of this machine's own processes, bit for bit.
"""

from __future__ import annotations

import logging
import tempfile
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
SLICES = 20
SWEEP = """
engine = "fast"
seeds = 250
rounds = 4000
policy = ["fedlinucb-dw", "linucb", "cans", "fedlinucb"]
"""


def played(cells: list[Cell], workers: Workers) -> tuple[dict[str, Row], float, float]:
    """(rows by cell, seconds, share of the workers' time that was not spent in cells)."""
    rows: dict[str, Row] = {}

    def keep(done: Played) -> None:
        rows.update({row["cell"]: row for row in done.rows})

    began = perf_counter()
    idle = run_cells(cells, "fast", {}, workers, keep)
    return rows, perf_counter() - began, idle


def run() -> dict[str, Any]:
    from distributed import LocalCluster

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "bench.toml"
        source.write_text(SWEEP)
        cells = list(read_sweep(source).cells)
    slices = [cells[start::SLICES] for start in range(SLICES)]
    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL, "threads_per_worker": 1}
    rows: dict[int, dict[str, Row]] = {1: {}, 2: {}}
    seconds = {1: 0.0, 2: 0.0}
    idle = []
    with LocalCluster(n_workers=1, **quiet) as one, LocalCluster(n_workers=2, **quiet) as two:
        clusters = {1: DaskCluster(one.scheduler_address), 2: DaskCluster(two.scheduler_address)}
        for cluster in clusters.values():
            played(cells[::25], cluster)  # every process compiles, or loads what is compiled
        for number, part in enumerate(slices):
            for workers in (1, 2) if number % 2 else (2, 1):
                found, taken, waited = played(part, clusters[workers])
                rows[workers] |= found
                seconds[workers] += taken
                idle.append(waited)
        for cluster in clusters.values():
            cluster.close()
    here = Processes(2)
    local, _, _ = played(cells, here)
    here.close()
    speedup = seconds[1] / seconds[2]
    return {
        "cells": len(cells),
        "seconds_one_worker": seconds[1],
        "seconds_two_workers": seconds[2],
        "speedup": speedup,
        "scheduling_share": mean(idle),
        "bars_met": {
            "speedup": speedup >= BAR_SPEEDUP,
            "scheduling": mean(idle) < BAR_SCHEDULING,
            "equal_bit_for_bit": rows[1] == rows[2] == local,
        },
    }
