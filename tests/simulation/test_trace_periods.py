"""Traces whose rows hold from a round on: oracle and measurements follow, in both engines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_engine import assert_same
from test_trace_shapes import rows, written

from cans import simulate
from cans.errors import InputError
from cans.learning.policies import POLICIES, policy_named
from cans.simulation.engines.arrays import truth_of
from cans.simulation.run import Settings, play
from cans.simulation.worlds.trace import trace_world

SLOW_LINK, SLOW_DEVICE = 100, 250  # rounds from which something takes ten times as long


def one_shape(
    kind: str = "rpi5", from_round: int = 0, **times_as_long: float
) -> list[dict[str, object]]:
    """The rows of one device type from a round on; `link_ms=10`: ten times as long."""
    lines = rows(np.random.default_rng(from_round), 320, kind)
    for row in lines:
        row |= {name: float(str(row[name])) * factor for name, factor in times_as_long.items()}
        row |= {"shape": "", "from_round": from_round}
    return lines


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two types on one network; the link of one becomes slow, then the other's processor. What is
    not measured again stays as it was."""
    lines = [
        *one_shape("rpi5"),
        *one_shape("nano"),
        *one_shape("rpi5", SLOW_LINK, link_ms=10.0),
        *one_shape("nano", SLOW_DEVICE, front_ms=10.0),
    ]
    return written(tmp_path / "periods.csv", lines)


def test_each_type_changes_at_its_own_rounds(trace: Path) -> None:
    world = trace_world(trace, 2)
    assert world.starts == (0, SLOW_LINK, SLOW_DEVICE)
    assert (world.devices, world.places, len(world.front_ms)) == (2, 2, 6)
    link, front = (
        each.reshape(3, 2, -1).transpose(1, 0, 2) for each in (world.link_ms, world.front_ms)
    )  # [nano, rpi5][period]
    nano, pi = link
    np.testing.assert_array_equal(nano[:2], [nano[0]] * 2)
    np.testing.assert_allclose(pi[1], 10 * pi[0], rtol=0.1)
    np.testing.assert_array_equal(pi[1], pi[2])
    nano, pi = front
    np.testing.assert_allclose(nano[2], 10 * nano[1], rtol=0.1)
    np.testing.assert_array_equal(pi[1], pi[2])


def test_it_is_laid_out_as_any_world_so_that_nothing_is_compiled_anew(trace: Path) -> None:
    policy = policy_named("cans")
    for world in (trace_world(trace, 2), Settings().make_world()):
        arrays = [each for each in truth_of(world, policy) if isinstance(each, np.ndarray)]
        assert all(each.flags.c_contiguous for each in arrays)
    assert not trace_world(trace, 2).front_ms.flags.c_contiguous, "the test tests nothing"


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("engine", ["reference", "fast"])
def test_oracle_and_measurements_follow(engine: str, trace: Path) -> None:
    def played(policy: str):
        what = {"world": "trace", "trace": trace, "devices": 2, "rounds": 400, "seeds": 1}
        return simulate(policy=policy, engine=engine, **what).runs[0].record  # type: ignore[arg-type]

    world = trace_world(trace, 2)
    for policy in ("oracle", "offload", "local"):
        record = played(policy)
        period = np.searchsorted(world.starts, np.arange(400), side="right") - 1
        place = world.place_of[record.active] + 2 * period
        total = world.front_ms + world.link_ms + world.server_ms
        np.testing.assert_allclose(record.expected_ms, total[place, record.picks])
        best = total.min(axis=1)[place]
        np.testing.assert_allclose(record.regret_ms, record.expected_ms - best, atol=1e-9)
        # Every round is one of the rows that hold in it.
        held = world.samples.sum(axis=3)[place, record.picks]
        assert (np.abs(held - record.latency_ms[:, None]).min(axis=1) < 1e-9).all()
        if policy == "oracle":
            assert record.regret_ms.sum() == 0.0
            assert len({tuple(total[p].argsort()[:1]) for p in range(6)}) > 1


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    starts=st.lists(st.integers(1, 200), max_size=3, unique=True),
    slower=st.floats(0.1, 20.0),
    devices=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
def test_engines_agree_pick_by_pick(policy, starts, slower, devices, seed, tmp_path) -> None:
    lines = [*one_shape("nano"), *one_shape("rpi5")]
    for number, start in enumerate(starts):
        segment = ("link_ms", "front_ms", "server_ms")[number]
        # One point is missing in a period: no choice then.
        lines += one_shape("rpi5", start, **{segment: slower})[3 * (number == 1) :]
    path = written(tmp_path / "random.csv", lines)
    what = Settings(policy=policy, world="trace", trace=path, devices=devices, rounds=240)
    world = what.make_world()
    fast, slow = (play(what, engine, seed, world) for engine in ("fast", "reference"))
    assert_same(fast, slow, 0.05 if policy_named(policy).physical else 1e-5)


def test_with_shapes_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [row | {"from_round": 0} for width in (40, 320) for row in rows(rng, width, "rpi5")]
    lines += [
        row | {"from_round": 50, "server_ms": 500.0}
        for row in rows(rng, 320, "rpi5")
        if row["point"] != "end"
    ] + [row | {"from_round": 50} for row in rows(rng, 320, "rpi5") if row["point"] == "end"]
    path = written(tmp_path / "both.csv", lines)
    small, large = trace_world(path, 1).sizes
    assert small.starts == large.starts == (0, 50)
    assert (small.server_ms[0] == small.server_ms[1]).all()
    assert large.server_ms[1, 0] == 500.0
    run = simulate(policy="offload", world="trace", trace=path, devices=1, rounds=100, seeds=1)
    assert run.runs[0].record.latency_ms[:50].max() < 500.0 < run.runs[0].record.latency_ms.max()


@pytest.mark.parametrize(
    ("from_round", "says"),
    [
        ("soon", "line 2: from_round must be a round, 0 or later: 'soon'"),
        ("-1", "from_round must be a round"),
        ("7", "nothing was measured for rpi5 on wifi in round 0"),
    ],
)
def test_what_is_wrong_with_a_round_is_said(from_round: str, says: str, tmp_path: Path) -> None:
    lines = [row | {"from_round": from_round} for row in one_shape()]
    with pytest.raises(InputError, match=says):
        trace_world(written(tmp_path / "wrong.csv", lines), 1)
