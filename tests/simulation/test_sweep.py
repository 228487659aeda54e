"""`cans sweep`: the same rows wherever they are run, and only those that are missing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cans.errors import InputError, Unreachable
from cans.simulation.run import simulate
from cans.simulation.sweep import cells, results
from cans.simulation.sweep.command import Where, show, sweep
from cans.simulation.sweep.grid import read_sweep
from cans.simulation.sweep.running import BATCH_S, Sizes
from cans.simulation.workers.dask_cluster import DaskCluster
from cans.simulation.workers.ray_cluster import RayCluster
from cans.simulation.workers.workers import Processes
from simulation.sweeps import SMALL, cans_command, dask_cluster, run_sweep, write_sweep

CELLS = 2 * (2 * 2 + 2 * 2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, object]]]:
    """A sweep that ran on one process of this machine, and its rows."""
    folder = tmp_path_factory.mktemp("sweep")
    out = folder / "small.parquet"
    return out, run_sweep(write_sweep(folder), out)


def test_rows_are_the_numbers_of_simulate(finished) -> None:
    _, rows = finished
    assert len(rows) == CELLS
    run = simulate("vgg16", "fedlinucb-dw", seeds=2, rounds=30, devices=3, engine="reference")
    mine = [r for r in rows if (r["policy"], r["devices"]) == ("fedlinucb-dw", 3)]
    for row, expected in zip(mine, run.runs, strict=True):
        assert row["regret_ms"] == expected.regret_ms
        assert row["mean_latency_ms"] == expected.mean_latency_ms
        assert json.loads(row["picks"]) == expected.to_dict()["picks"]


def test_csv_and_a_dask_cluster_give_the_same_rows(finished, tmp_path) -> None:
    _, rows = finished
    with dask_cluster(1, processes=False) as address:
        out = tmp_path / "other.csv"
        assert run_sweep(write_sweep(tmp_path), out, Where(dask=address)) == rows


def test_only_missing_cells_are_run(finished, tmp_path, monkeypatch) -> None:
    _, rows = finished
    out = tmp_path / "small.csv"
    journal = tmp_path / "small.csv.cells"
    half = "".join(json.dumps(row) + "\n" for row in rows[:9])
    journal.write_text(half + '{"cell": "cut o')  # killed while writing

    ran = []

    class Here:  # in this process, and it counts
        def __init__(self, count: int | None) -> None:
            self._inner = Processes(1)

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        def submit(self, function, batch):
            ran.extend(batch.cells)
            return self._inner.submit(function, batch)

    monkeypatch.setattr("cans.simulation.workers.workers.Processes", Here)
    assert run_sweep(write_sweep(tmp_path), out) == rows
    assert len(ran) == CELLS - 9
    assert not journal.exists()
    ran.clear()
    assert run_sweep(write_sweep(tmp_path), out) == rows
    assert ran == []


def test_cells_of_another_sweep_are_not_dropped_unasked(finished, tmp_path) -> None:
    out, rows = finished
    fewer = write_sweep(tmp_path, SMALL.replace("devices = [3, 5]", "devices = 3"))
    copy = tmp_path / out.name
    copy.write_bytes(out.read_bytes())
    with pytest.raises(InputError, match="8 cells that are not of this sweep"):
        sweep(fewer, copy, Where(processes=1), replace=False)
    sweep(fewer, copy, Where(processes=1), replace=True)
    assert results.read_rows(copy) == [row for row in rows if row["devices"] == 3]


def test_summary_has_intervals_and_a_picture(finished, tmp_path, capsys) -> None:
    out, rows = finished
    plot = tmp_path / "plot.svg"
    show(out, "", as_json=True, plot=plot)
    document = json.loads(capsys.readouterr().out)
    assert (document["cells"], len(document["groups"])) == (CELLS, CELLS // 2)
    group = document["groups"][0]
    measured = [row["mean_latency_ms"] for row in rows[:2]]
    interval = group["mean_latency_ms"]
    assert interval["mean"] == pytest.approx(sum(measured) / 2)
    assert interval["low"] < min(measured) < max(measured) < interval["high"]
    assert plot.read_text().count("<circle") == CELLS // 2
    show(out, "", as_json=False, plot=None)
    assert "beta_ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policy = 'nope'", "unknown policy 'nope'"),
        ("polic = 'cans'", "unknown setting 'polic'"),
        ("seeds = 0", "seeds must be at least 1"),
        ("seeds = 'many'", "seeds must be"),
        ("world = []", "world has no values"),
        ("world = 'mars'", "unknown world 'mars'"),
        ("world = 'crowded'", "played by `cans simulate --world crowded` alone"),
        ("world = 'own.toml'", "world 'own.toml' is a file: only `cans simulate` plays those"),
        ("devices = 'x'", "wrong type"),
        ("rounds = 0", "rounds must be at least 1"),
        ("trace = 'none.csv'\nworld = 'trace'", "cannot read trace"),
        ("runs = 3", r"\[\[runs\]\]"),
        ("a = = 1", "Invalid value"),
        ("seeds = 100000000", "too large"),
        ("engine = 'slow'", "unknown engine"),
    ],
)
def test_a_bad_sweep_is_one_line(text, said, tmp_path) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_sweep(write_sweep(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_files_that_are_no_results(tmp_path) -> None:
    wrong = tmp_path / "wrong.parquet"
    wrong.write_text("this is no parquet")
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    for path in (wrong, other, tmp_path / "absent.csv", tmp_path / "x.txt"):
        with pytest.raises(InputError):
            show(path, "", as_json=False, plot=None)
    with pytest.raises(InputError, match=r"absent\.parquet: there is no such file$"):
        show(tmp_path / "absent.parquet", "", as_json=False, plot=None)


def test_two_sweeps_do_not_write_one_file(tmp_path) -> None:
    out = tmp_path / "small.csv"
    with results.journal_of(out), pytest.raises(InputError, match="another sweep is writing"):
        run_sweep(write_sweep(tmp_path), out)


def test_batches_are_worth_the_way_and_end_together() -> None:
    sizes = Sizes(read_sweep_cells(400), "fast")
    first = sizes.take(2)
    sizes.learn(first, [0.02] * len(first))  # 20 ms a cell
    middle = sizes.take(2)
    assert len(middle) * 0.02 == pytest.approx(BATCH_S, rel=0.05)
    taken = []
    while sizes:
        taken.append(len(sizes.take(2)))
    assert taken[-1] <= 3


def read_sweep_cells(seeds: int) -> tuple[cells.Cell, ...]:
    from cans.simulation.reproduce.studies.experiments import study

    return tuple(cells.Cell(study(policy="linucb", rounds=100), seed) for seed in range(seeds))


def test_without_the_extras_a_line_says_what_to_install(tmp_path) -> None:
    """Also: whatever a device needs imports nothing of a cluster."""
    for module in ("distributed", "ray", "pyarrow"):
        (tmp_path / f"{module}.py").write_text("raise ImportError('not here')\n")
    source = write_sweep(tmp_path, "rounds = 5\nseeds = 1\nengine = 'reference'")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    for option, name in (("--dask", "Dask"), ("--ray", "Ray")):
        done = cans_command("sweep", str(source), option, "x:1", PYTHONPATH=path)
        assert done.returncode == 2
        assert done.stderr == f"cans: {option} needs {name}: pip install 'cans-edge[cluster]'\n"
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, cans; cans.Device; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert not {"distributed", "ray", "pyarrow", "dask"} & set(loaded)


def test_no_cluster_at_the_address() -> None:
    for more, said in ((["--ray", "b"], "choose one of"), ([], "cannot read x.toml")):
        done = cans_command("sweep", "x.toml", "--dask", "a", *more)
        assert done.returncode == 2
        assert said in done.stderr


@pytest.mark.parametrize("option", ["--dask", "--ray"])
def test_an_address_where_nobody_listens_is_one_line_at_once(option: str) -> None:
    """Dask and Ray themselves try for minutes, and end with a traceback."""
    open_at = {"--dask": DaskCluster, "--ray": RayCluster}[option]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    with pytest.raises(Unreachable, match=f"answers at 127.0.0.1:{free}: "):
        open_at(f"127.0.0.1:{free}")
    for wrong in ("nonsense", "host:port", "host:99999", ":80"):
        with pytest.raises(InputError, match=f"{option} must be HOST:PORT"):
            open_at(wrong)


@pytest.mark.slow
def test_an_interrupted_sweep_goes_on(tmp_path) -> None:
    """A real process, killed; its journal is used by the next."""
    source = write_sweep(tmp_path, SMALL.replace("seeds = 2", "seeds = 40"))
    out = tmp_path / "killed.csv"
    journal = tmp_path / "killed.csv.cells"
    command = [sys.executable, "-m", "cans", "sweep", str(source), "--out", str(out)]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not (journal.exists() and journal.stat().st_size):
        time.sleep(0.05)
        assert running.poll() is None
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = len(journal.read_text().splitlines())
    assert 0 < before < CELLS * 20
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ran = int(done.stdout.split(" cells, ")[1].split()[0])
    assert ran <= CELLS * 20 - before + 1
    assert len(results.read_rows(out)) == CELLS * 20


@pytest.mark.slow
def test_a_killed_worker_loses_no_cell(tmp_path) -> None:
    """Of a Dask cluster of processes, and of this machine's own; the rows are the same."""
    source = write_sweep(tmp_path, SMALL.replace("seeds = 2", "seeds = 30"))
    expected = run_sweep(source, tmp_path / "whole.parquet", Where(processes=2))
    with dask_cluster(2) as address:
        from distributed import Client

        with Client(address, set_as_default=False) as client:
            victims = list(client.run(os.getpid).values())
        killer = _kill_when_begun(tmp_path / "dask.parquet.cells", victims[0])
        assert run_sweep(source, tmp_path / "dask.parquet", Where(dask=address)) == expected
        killer.wait()
        assert killer.returncode == 0


def _kill_when_begun(journal: Path, victim: int) -> subprocess.Popen[bytes]:
    """A process that kills another as soon as the first cells are finished."""
    code = (
        "import os, sys, time, pathlib\n"
        "journal, victim = pathlib.Path(sys.argv[1]), int(sys.argv[2])\n"
        "while not (journal.exists() and journal.stat().st_size): time.sleep(0.01)\n"
        "os.kill(victim, 9)\n"
    )
    return subprocess.Popen([sys.executable, "-c", code, str(journal), str(victim)])


@pytest.mark.slow
def test_ray_gives_the_same_rows(finished, tmp_path) -> None:
    _, rows = finished
    assert run_sweep(write_sweep(tmp_path), tmp_path / "ray.csv", Where(ray="local")) == rows


@pytest.mark.slow
def test_studies_of_the_report_are_the_same_on_a_cluster() -> None:
    from cans.simulation.reproduce.studies.experiments import study
    from cans.simulation.reproduce.studies.outcomes import CURVES, run_studies
    from cans.simulation.workers.workers import open_workers

    studies = [study(policy=name, rounds=200) for name in ("fedlinucb-dw", "cans", "random")]
    here = run_studies(studies, 2, lambda _: None)
    with dask_cluster(1) as address:
        workers = open_workers(dask=address)
        there = run_studies(studies, 2, lambda _: None, workers)
        workers.close()
    for each in studies:
        assert (here[each].regret_ms == there[each].regret_ms).all()
        for curve in CURVES:
            first, second = here[each].curves[curve], there[each].curves[curve]
            assert first.tobytes() == second.tobytes()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_report_is_the_same_on_a_cluster(tmp_path) -> None:
    """`cans reproduce --quick` as a user runs it, here and with --dask: the same claims.json."""
    here = cans_command("reproduce", "--quick", "--out", str(tmp_path / "here"))
    assert here.returncode == 0, here.stderr
    with dask_cluster(2) as address:
        there = cans_command(
            "reproduce", "--quick", "--dask", address, "--out", str(tmp_path / "there")
        )
    assert there.returncode == 0, there.stderr
    claims = [(tmp_path / where / "claims.json").read_bytes() for where in ("here", "there")]
    assert claims[0] == claims[1]
