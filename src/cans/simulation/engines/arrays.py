"""Lays out a world, a policy and an episode as the arrays that `fast.play` reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cans.learning.arithmetic.arrays import (
    Array,
    IntArray,
    LearnerState,
    PoolState,
    contributions,
    new_pools,
)
from cans.learning.arithmetic.exchange import GROWN, MOVED
from cans.learning.arithmetic.layout import exploration_weight, fleet_state, raw_choices
from cans.learning.confidence import Evidence, radius
from cans.learning.device.learner import DeviceLearner
from cans.learning.device.part import offline_row
from cans.learning.policies import Choose, Hyperparameters, Part, Policy, Pool
from cans.learning.table import PROBE_BYTES, SEGMENTS
from cans.simulation.engines.fleet_arrays import Record, Rules, Traffic, Truth
from cans.simulation.engines.own_runs import new_server
from cans.simulation.worlds.episode import Episode
from cans.simulation.worlds.world import World


class Fleet(NamedTuple):
    """Everything `play` needs but the episode."""

    state: LearnerState
    pools: PoolState
    traffic: Traffic
    rules: Rules
    truth: Truth
    offline_rows: Array  # (parts, choices, d)  features of partial local runs
    warm: tuple[bool, ...]  # which parts start from them
    server: DeviceLearner | None  # what is known of the server before anyone joins
    names: tuple[str, ...]  # of the parts


def lay_out(
    world: World,
    policy: Policy,
    hyperparameters: Hyperparameters,
    radii: Mapping[str, Array] | None,
    immediate: bool = True,
    pool_age: float = 0.0,
) -> Fleet:
    """A fleet that has not joined yet."""
    table = world.table
    state = fleet_state(table, policy, hyperparameters, world.devices, radii)
    parts, choices, width = state.rows.shape
    pool_of = np.zeros((world.devices, parts), dtype=np.int64)
    offline_rows = np.zeros((parts, choices, width))
    explains = np.zeros((parts, len(SEGMENTS)))
    for number, part in enumerate(policy.parts):
        pool_of[:, number] = members_of(part, world) if part.shared else -1
        explains[number] = [segment in part.explains for segment in SEGMENTS]
        offline_rows[number] = [offline_row(part, table, c, width) for c in range(choices)]
    names = [part.name for part in policy.parts]
    link_part = names.index("link") if "link" in names and table.probe is not None else -1
    probes = np.zeros((len(PROBE_BYTES), width))
    if table.probe is not None and link_part >= 0:
        probes[:, : table.probe.shape[1]] = table.probe
    probe_at_zero, probe_per_ms = contributions(probes)
    frame_weights = [exploration_weight(key) for key in (False, True)]
    return Fleet(
        state=state,
        pools=new_pools(
            max(int(pool_of.max()) + 1, 1),
            parts,
            width,
            (MOVED, GROWN),
            choices if state.choices.used else 0,
        ),
        traffic=new_traffic(pool_of),
        rules=Rules(
            parts=len(policy.parts),
            choose=list(Choose).index(policy.choose),
            knows=np.array([float(segment in policy.knows) for segment in SEGMENTS]),
            truth=policy.truth,
            forced_sampling=policy.forced_sampling,
            key_frame_weight=np.array(frame_weights if policy.key_frames else [1.0, 1.0]),
            fleet_threshold=hyperparameters.fleet_threshold if policy.fleet_sync else 0.0,
            immediate=immediate,
            fresh=policy.fresh,
            pool_age=pool_age,
            watched=np.array([part.watched for part in policy.parts] or [False]),
            explains=explains,
            probe_after=policy.probe_after_s,
            probe_at_zero=probe_at_zero,
            probe_per_ms=probe_per_ms,
            probe_bytes=np.array(PROBE_BYTES, dtype=np.float64) / PROBE_BYTES[0],
            link_part=link_part,
            raw=raw_choices(state, table),
        ),
        truth=truth_of(world, policy),
        offline_rows=offline_rows,
        warm=tuple(part.warm for part in policy.parts),
        server=new_server(table, policy, hyperparameters),
        names=tuple(names),
    )


def truth_of(world: World, policy: Policy) -> Truth:
    """A world as arrays, each in one piece: for another layout numba would compile all anew."""
    whole = np.ascontiguousarray
    return Truth(
        place_of=whole(world.place_of),
        front_ms=whole(world.front_ms),
        link_ms=whole(world.link_ms),
        link_fixed_ms=whole(world.link_fixed_ms),
        server_ms=whole(world.server_ms),
        probe_ms=whole(world.probe_ms),
        has_front=whole(world.table.front.any(axis=1)),
        allowed=whole(world.allowed),
        restricted=not bool(world.allowed.all()),
        report=whole(world.told_per_ms(policy)),
        samples=whole(world.samples),
        sample_count=whole(world.sample_count),
    )


def new_traffic(pool_of: IntArray) -> Traffic:
    """Nothing on its way, nobody told of anything."""
    devices = len(pool_of)
    return Traffic(
        pool_of=pool_of,
        waiting=np.zeros(pool_of.shape, dtype=np.bool_),
        made_for=np.zeros_like(pool_of),
        seen_epoch=np.zeros_like(pool_of),
        seen_round=np.zeros_like(pool_of),
        seen_edition=np.zeros_like(pool_of),
        frames=np.zeros(devices, dtype=np.int64),
        refreshed=np.full(devices, -np.inf),
        tokens=np.zeros(devices),
        refilled=np.zeros(devices),
        worked=np.zeros(1),
    )


def members_of(part: Part, world: World) -> IntArray:
    """The number of the pool that each device belongs to."""
    match part.pool:
        case Pool.GROUP:
            return world.type_of
        case Pool.NETWORK:
            return world.network_of
        case Pool.EVERYONE:
            return np.zeros(world.devices, dtype=np.int64)
        case _:
            return np.arange(world.devices, dtype=np.int64)


def new_record(rounds: int, parts: int) -> Record:
    """Room to write down an episode; the error stays nan where a policy predicts nothing."""
    return Record(
        active=np.zeros(rounds, dtype=np.int64),
        picks=np.zeros(rounds, dtype=np.int64),
        regret_ms=np.zeros(rounds),
        expected_ms=np.zeros(rounds),
        latency_ms=np.zeros(rounds),
        error_ms=np.full(rounds, np.nan),
        uploads=np.zeros(rounds, dtype=np.int64),
        downloads=np.zeros(rounds, dtype=np.int64),
        part_uploads=np.zeros(max(parts, 1), dtype=np.int64),
        part_downloads=np.zeros(max(parts, 1), dtype=np.int64),
        probes=np.zeros(1, dtype=np.int64),
        trials=np.zeros(1, dtype=np.int64),
        ties=np.zeros(1, dtype=np.int64),
    )


def evidence(
    part: Part,
    world: World,
    policy: Policy,
    episode: Episode,
    hyperparameters: Hyperparameters,
) -> list[Evidence]:
    """The supplement's symbols for each pool of a part that has members, in this world and episode.

    delta is split over the 2 (K + 1) events of all pools (PAPER-NOTES 5.6).
    """
    pool_of = members_of(part, world)
    rows = world.table.columns(part.explains)
    events = 2 * sum(len(np.unique(members_of(each, world))) for each in policy.parts)
    offline = episode.offline_choice.shape[1] if part.warm else 0
    result = []
    for pool in np.unique(pool_of):
        members = np.flatnonzero(pool_of == pool)
        offline_sigma = np.zeros((rows.shape[1], rows.shape[1]))
        if offline:
            choices = range(world.table.choices)
            x = np.array([offline_row(part, world.table, c, rows.shape[1]) for c in choices])
            picked = x[episode.offline_choice[members].ravel()]
            offline_sigma = picked.T @ picked
        result.append(
            Evidence(
                dimension=rows.shape[1],
                devices=len(members),
                rounds=episode.rounds,
                participations=int(np.isin(episode.active, members).sum()),
                noise=_noise_ms(part, world),
                norm=float(np.linalg.norm(rows, axis=1).max()),
                parameter=_parameter_norm(part, world, int(members[0]), rows),
                ridge=hyperparameters.ridge,
                alpha=hyperparameters.alpha,
                delta=hyperparameters.delta / events,
                offline=offline,
                offline_strength=float(np.linalg.eigvalsh(offline_sigma)[0].clip(0.0)),
            )
        )
    return result


def theory_radii(
    world: World, policy: Policy, episode: Episode, hyperparameters: Hyperparameters
) -> dict[str, Array]:
    """beta of the confidence lemma for every device and part."""
    radii = {}
    for part in policy.parts:
        by_pool = np.array(
            [radius(e) for e in evidence(part, world, policy, episode, hyperparameters)]
        )
        _, pool_of = np.unique(members_of(part, world), return_inverse=True)
        radii[part.name] = by_pool[pool_of]
    return radii


def _noise_ms(part: Part, world: World) -> float:
    """R: the standard deviation of a part's noise; for lognormal noise at the largest latency."""
    if not world.noise.relative:
        halves = ("front" in part.explains) + bool({"link", "server"} & set(part.explains))
        return float(world.noise_level * np.sqrt(halves))
    return float(world.noise_level * max(_latency(part, world, d).max() for d in (0, -1)))


def _latency(part: Part, world: World, device: int) -> Array:
    by_segment = dict(zip(SEGMENTS, world.segments_ms(device), strict=True))
    total: Array = np.sum([by_segment[segment] for segment in part.explains], axis=0)
    return total


def _parameter_norm(part: Part, world: World, device: int, rows: Array) -> float:
    """S: the norm of the true theta, by least squares on the expected latencies."""
    theta = np.linalg.lstsq(rows, _latency(part, world, device), rcond=None)[0]
    return float(np.linalg.norm(theta))
