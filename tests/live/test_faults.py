"""The fault suite: short here, at full length with `make test-slow` (docs/reliability.md)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live import faults
from tests.live.faults import Tally
from tests.live.postgres import Postgres

root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk, which needs root")
Fault = Callable[[Path], Tally]

SHORT: dict[str, Fault] = {
    "server killed": lambda folder: faults.server_killed(folder, 2),
    "agent killed": lambda folder: faults.agent_killed(folder, 2),
    "link cut": lambda folder: faults.link_cut(folder, 2),
    "replies delayed": lambda folder: faults.replies_delayed(folder, 1.0),
    "duplicates": lambda folder: faults.duplicates_and_reordering(folder, 20),
    "clock jumped": lambda folder: faults.clock_jumped(folder, 1.0),
}
LONG: dict[str, Fault] = {
    "server killed": lambda folder: faults.server_killed(folder, 50),
    "agent killed": lambda folder: faults.agent_killed(folder, 50),
    "link cut": lambda folder: faults.link_cut(folder, 20),
    "replies delayed": lambda folder: faults.replies_delayed(folder, 10.0),
    "duplicates": lambda folder: faults.duplicates_and_reordering(folder, 400),
    "clock jumped": lambda folder: faults.clock_jumped(folder, 8.0),
}


@pytest.mark.parametrize("fault", SHORT)
def test_short(fault: str, tmp_path: Path) -> None:
    SHORT[fault](tmp_path).check()


@root
@pytest.mark.parametrize("fault", [faults.disk_full, faults.device_disk_full])
def test_disks_full(fault: Callable[[Path, float], Tally], tmp_path: Path) -> None:
    fault(tmp_path, 0.7).check()


def test_postgres_restarted(tmp_path: Path, postgres: Postgres) -> None:
    faults.postgres_restarted(tmp_path, faults.fresh(postgres), 1).check()


def test_one_of_two_servers_killed(tmp_path: Path, postgres: Postgres) -> None:
    faults.one_of_two_killed(tmp_path, faults.fresh(postgres), 2).check()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", LONG)
def test_long(fault: str, tmp_path: Path) -> None:
    LONG[fault](tmp_path).check()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_long_with_postgres(tmp_path: Path, postgres: Postgres) -> None:
    faults.postgres_restarted(tmp_path / "a", faults.fresh(postgres), 10).check()
    faults.one_of_two_killed(tmp_path / "b", faults.fresh(postgres), 20).check()
