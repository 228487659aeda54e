"""Traces whose rows carry a shape: every round has an input of one of them."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cans import cli, simulate
from cans.errors import InputError
from cans.learning.arithmetic.arrays import Array, IntArray
from cans.simulation.worlds.trace import trace_world
from cans.simulation.worlds.world import World

WIDTHS = (40, 80, 160, 320, 640)
WORK = {
    "input": (0, 100),
    "early": (10, 90),
    "late": (60, 40),
    "end": (100, 0),
}  # per unit of width
BYTES = {"input": 9, "early": 12, "late": 2, "end": 0}
FRONT_MS = {"rpi5": 6e-3, "nano": 1.5e-3}  # per unit of work


def rows(rng: np.random.Generator, width: int, kind: str) -> list[dict[str, object]]:
    """Three measured inferences at every point. A large input is sent early, a small one, for
    which the way there takes longest, stays on the device."""
    found = []
    for point, (front, back) in WORK.items():
        for _ in range(3):
            noise = rng.normal(1.0, 0.02, 3)
            link = 15.0 + 6e-3 * BYTES[point] * width if BYTES[point] else 0.0
            found.append({
                "device_type": kind, "network": "wifi", "point": point, "shape": f"1x3x48x{width}",
                "bytes": BYTES[point] * width, "front_macs": front * width,
                "back_macs": back * width, "front_ms": FRONT_MS[kind] * front * width * noise[0],
                "link_ms": link * noise[1], "server_ms": 2e-4 * back * width * noise[2],
            })  # fmt: skip
    return found


def written(path: Path, lines: list[dict[str, object]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = [row for kind in FRONT_MS for width in WIDTHS for row in rows(rng, width, kind)]
    return written(tmp_path / "widths.csv", lines)


def test_the_world_at_every_shape(trace: Path) -> None:
    world = trace_world(trace, 2)
    assert len(world.sizes) == len(WIDTHS)
    assert world.table.front.max() == 1.0
    np.testing.assert_allclose(
        [each.table.front.max() for each in world.sizes], np.array(WIDTHS) / max(WIDTHS)
    )
    seen = {world.at(draw)[0].front_ms.max() for draw in np.linspace(0.0, 0.999, 50)}
    assert seen == {each.front_ms.max() for each in world.sizes}
    best = {int((w.front_ms + w.link_ms + w.server_ms)[0].argmin()) for w in world.sizes}
    assert len(best) > 1  # or there would be nothing to choose by size


def test_experience_with_all_shapes_is_one(trace: Path) -> None:
    """Late latency is that of the best choice of each shape, and below that of the best choice
    for all of them."""
    result = simulate(policy="cans", world="trace", trace=trace, devices=2, rounds=400, seeds=1)
    assert result.engine == "reference"
    record = result.runs[0].record
    late, regret = record.expected_ms[200:], record.regret_ms[200:]
    assert regret.sum() < 0.02 * late.sum()
    world = trace_world(trace, 2)
    mean = np.mean([w.front_ms + w.link_ms + w.server_ms for w in world.sizes], axis=0)
    assert late.mean() < 0.98 * mean.min(axis=1).mean()


def test_from_the_command_line(trace: Path) -> None:
    words = ["simulate", "--world", "trace", "--trace", str(trace), "--devices", "2", "--rounds",
             "50", "--seeds", "1", "--json"]  # fmt: skip
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0, done.exception
    assert json.loads(done.stdout)["engine"] == "reference"


def test_what_cannot_be_played_is_one_line(trace: Path, tmp_path: Path) -> None:
    how = {"world": "trace", "trace": trace, "devices": 2, "rounds": 5, "seeds": 1}
    with pytest.raises(InputError, match="needs --engine reference"):
        simulate(engine="fast", **how)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'neurosurgeon' cannot play"):
        simulate(policy="neurosurgeon", **how)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    lines = [*rows(rng, 40, "rpi5"), *rows(rng, 80, "nano")]
    with pytest.raises(InputError, match="nothing was measured at shape '1x3x48x40' for nano on"):
        trace_world(written(tmp_path / "holes.csv", lines), 2)
    lines[0]["bytes"] = 1
    with pytest.raises(InputError, match="of shape '1x3x48x40' with different bytes"):
        trace_world(written(tmp_path / "other.csv", lines), 2)


def by_class(rng: np.random.Generator) -> list[dict[str, object]]:
    """The rows of one shape with two classes of work, of which the device does one fast."""
    lines = []
    for row in rows(rng, 320, "rpi5"):
        row.pop("shape")
        front, back = float(str(row["front_macs"])), float(str(row["back_macs"]))
        early = min(front, 0.3 * 100 * 320)
        lines.append(
            {**row, "front:conv": early, "front:linear": front - early, "server:all": back}
        )
    return lines


def test_features_of_a_trace_of_its_own(tmp_path: Path) -> None:
    lines = by_class(np.random.default_rng(1))
    world = trace_world(written(tmp_path / "classes.csv", lines), 2)
    assert world.table.front.shape == (4, 2)
    assert world.table.front.max(axis=0).tolist() == [1.0, 1.0]
    assert world.table.server.shape == (4, 1)
    assert world.table.link.shape == (4, 2)  # bytes, as usual, and a constant
    lines[0]["front:conv"] = -1.0
    with pytest.raises(InputError, match="front:conv must be finite and not negative"):
        trace_world(written(tmp_path / "negative.csv", lines), 2)
    lines[0]["front:conv"] = 1.0
    with pytest.raises(InputError, match="different bytes, MACs or features"):
        trace_world(written(tmp_path / "two.csv", lines), 2)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("engine", ["reference", "fast"])
def test_what_moves_a_world_moves_its_measurements(engine: str, tmp_path: Path) -> None:
    """Not the oracle alone: a link ten times slower is also measured so."""
    path = written(tmp_path / "still.csv", by_class(np.random.default_rng(1)))

    def slower(world: World, active: IntArray, rng: np.random.Generator) -> Array:
        scale = np.ones((len(active), 3))
        scale[len(active) // 2 :, 1] = 10.0
        return scale

    world = replace(trace_world(path, 2), drift=slower)
    run = simulate(policy="offload", world=world, rounds=40, seeds=1, engine=engine).runs[0]
    early, late = run.record.latency_ms[:20].mean(), run.record.latency_ms[20:].mean()
    assert late > 5.0 * early
    assert late == pytest.approx(run.record.expected_ms[20:].mean(), rel=0.05)
