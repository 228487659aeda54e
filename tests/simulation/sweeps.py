"""Small sweeps for tests, and a real Dask cluster of processes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cans.simulation.sweep.command import Where, sweep
from cans.simulation.sweep.results import read_rows

SMALL = """
engine = "reference"
seeds = 2
rounds = 30
devices = [3, 5]

[[runs]]
policy = ["fedlinucb-dw", "local"]

[[runs]]
policy = "linucb"
beta_ms = [10.0, "theory"]
"""


def write_sweep(folder: Path, text: str = SMALL) -> Path:
    path = folder / "small.toml"
    path.write_text(text, "utf-8")
    return path


def run_sweep(source: Path, out: Path, where: Where | None = None) -> list[dict[str, object]]:
    file, _ = sweep(source, out, where or Where(processes=1), replace=False)
    return read_rows(file)


def cans_command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cans", *arguments],
        capture_output=True, text=True, check=False, env=os.environ | variables,
    )  # fmt: skip


@contextmanager
def dask_cluster(workers: int, processes: bool = True) -> Iterator[str]:
    """A scheduler and workers of one thread each, in processes of their own; gives its address."""
    from distributed import LocalCluster

    cluster = LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=processes,
        dashboard_address=None,
        protocol="tcp://",
        silence_logs=logging.CRITICAL,
    )
    try:
        yield cluster.scheduler_address
    finally:
        cluster.close()
