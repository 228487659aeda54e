"""Tables that people bring: what cannot be learned from is one line that says why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_engine import assert_same
from test_trace_shapes import rows, written

from cans.errors import InputError
from cans.learning.policies import POLICIES
from cans.simulation.run import Settings, play
from cans.simulation.worlds.trace import trace_world


def one_shape() -> list[dict[str, object]]:
    return [row | {"shape": ""} for row in rows(np.random.default_rng(0), 320, "rpi5")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"front_macs": 0}, "front_macs: 0 in every row, so nothing explains front_ms"),
        ({"back_macs": 0}, "back_macs: 0 in every row, so nothing explains server_ms"),
        ({"bytes": 0}, "bytes: 0 in every row, so nothing explains link_ms"),
        ({"front:conv": 0}, "front:conv: 0 in every row"),
        ({"link:tries": 1}, "link:tries must be 0 at 'end', the local point"),
        ({"link_ms": 3.0}, "link_ms must be 0 at 'end', the local point"),
        ({"server_ms": 3.0}, "server_ms must be 0 at 'end', the local point"),
        ({"front_ms": 4e6}, "line 2: front_ms must be milliseconds, at most 600,000"),
        (
            {"point": "end", "bytes": 0, "front_macs": 1, "back_macs": 0},
            "a trace needs at least two partition points",
        ),
    ],
)
def test_a_table_that_explains_nothing_is_refused(
    tmp_path: Path, values: dict[str, object], message: str
) -> None:
    lines = [row | values for row in one_shape()]
    with pytest.raises(InputError, match=rf"bad\.csv.*{message}"):
        trace_world(written(tmp_path / "bad.csv", lines), 2)


def test_a_segment_that_takes_no_time_needs_no_features(tmp_path: Path) -> None:
    lines = [row | {"back_macs": 0, "server_ms": 0.0} for row in one_shape()]
    assert not trace_world(written(tmp_path / "free.csv", lines), 2).server_ms.any()


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "twice.csv", one_shape())
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([f"{header},front_ms", *(f"{line},1" for line in lines)]))
    with pytest.raises(InputError, match=r"twice\.csv: column front_ms is there twice"):
        trace_world(path, 2)


@pytest.mark.parametrize("policy", [name for name in POLICIES if POLICIES[name].clusters is None])
def test_a_device_that_only_sends_has_nothing_to_run_offline(tmp_path: Path, policy: str) -> None:
    sent = [row | {"device_type": "camera"} for row in one_shape() if row["point"] == "input"]
    lines = [*one_shape(), *sent]
    what = Settings(
        policy=policy, world="trace", trace=written(tmp_path / "camera.csv", lines),
        devices=2, rounds=60,
    )  # fmt: skip
    world = what.make_world()
    record = play(what, "reference", 0, world)
    assert not record.picks[record.active == world.types.index("camera")].any()
    assert_same(record, play(what, "fast", 0, world))


def test_a_trace_has_noise_of_its_own() -> None:
    with pytest.raises(InputError, match="noise cannot be given with a trace"):
        Settings(world="trace", trace=Path("mobilenet_v2"), noise="gaussian").make_world()


def test_exchanges_are_timed_as_the_links_of_the_trace_are(tmp_path: Path) -> None:
    """On the line through the links over their bytes; a link of nothing but noise has no slope."""
    lines = [
        row | {"link_ms": 2.0 + 3e-5 * float(str(row["bytes"])) if row["bytes"] else 0.0}
        for row in one_shape()
    ]
    world = trace_world(written(tmp_path / "straight.csv", lines), 1)
    np.testing.assert_allclose(world.probe_ms, [[3e-5 * 8192, 2.0]], rtol=1e-6)
    flat = [row | {"link_ms": 5.0 if row["bytes"] else 0.0} for row in lines]
    world = trace_world(written(tmp_path / "flat.csv", flat), 1)
    np.testing.assert_allclose(world.probe_ms, [[0.0, 5.0]], atol=1e-9)
    shrinking = [row | {"link_ms": 1e6 / float(str(row["bytes"] or 1e9))} for row in lines]
    shrinking = [row | {"link_ms": row["link_ms"] if row["bytes"] else 0.0} for row in shrinking]
    world = trace_world(written(tmp_path / "shrinking.csv", shrinking), 1)
    assert (world.probe_ms >= 0.0).all()


def test_a_link_with_features_of_its_own_times_no_exchanges(tmp_path: Path) -> None:
    lines = [row | {"link:tries": 1.0 if row["bytes"] else 0.0} for row in one_shape()]
    world = trace_world(written(tmp_path / "own.csv", lines), 1)
    assert world.table.probe is None
    assert not world.probe_ms.any()
