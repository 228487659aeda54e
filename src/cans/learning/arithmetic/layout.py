"""Lays out the arrays of a policy: for one device, or for a simulated fleet of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log1p

import numpy as np

from cans.learning.arithmetic.arrays import (
    ANEW,
    Array,
    BoolArray,
    LearnerState,
    Physics,
    new_state,
    padded,
    statistics_size,
)
from cans.learning.arithmetic.exchange import YOUNG
from cans.learning.arithmetic.idle import hardly_for_device, hardly_for_server
from cans.learning.arithmetic.viability import (
    beaten_by,
    floors,
    offered_choices,
    viable_choices,
)
from cans.learning.policies import Choose, Hyperparameters, Part, Policy, Pool
from cans.learning.table import PartitionTable

KEY_FRAME_WEIGHT = 0.8  # ANS: L on key frames ...
OTHER_FRAME_WEIGHT = 0.2  # ... and on all others


def exploration_weight(key_frame: bool) -> float:
    """ANS: sqrt(1 - L), less exploration on key frames."""
    return float(np.sqrt(1.0 - (KEY_FRAME_WEIGHT if key_frame else OTHER_FRAME_WEIGHT)))


def fleet_state(
    table: PartitionTable,
    policy: Policy,
    hyperparameters: Hyperparameters,
    devices: int,
    radius: Mapping[str, Array | float] | None = None,
) -> LearnerState:
    """The empty state of one device, or of a simulated fleet of them."""
    parts = policy.parts or (Part("nothing", ("front",), Pool.DEVICE),)  # arrays need one part
    default = hyperparameters.beta_ms
    if policy.choose is Choose.SAMPLED:
        default = hyperparameters.sampling_ms
    if isinstance(default, str):
        if radius is None and policy.parts:
            raise ValueError("beta_ms='theory' needs `radius=`")
        default = 0.0
    features = [table.columns(part.explains) for part in parts]
    bends = [part.bends and policy.physical is not None for part in parts]
    return new_state(
        features,
        devices,
        uses_local=[part.uses_local or not part.shared for part in parts],
        radius=[(radius or {}).get(part.name, default) for part in parts],
        threshold=[_threshold(part, hyperparameters) for part in parts],
        events=[part.shared and part.events for part in parts],
        young=YOUNG,
        ridge=policy.ridge_of(hyperparameters),
        physics=_physics(policy, table, features, devices) if policy.physical else None,
        bends=bends,
        # A line through timed exchanges as well is trusted until its choices show that it is off.
        suspect=[b and "link" not in part.explains for b, part in zip(bends, parts, strict=True)],
    )


def take_rows(state: LearnerState, of: LearnerState) -> None:
    """Give a state the features of another one, and what follows from them: it chooses for another
    size of input."""
    state.rows[...] = of.rows
    state.sums_at_zero[...] = of.sums_at_zero
    state.sums_per_ms[...] = of.sums_per_ms
    state.informative[...] = of.informative
    if state.choices.used:
        state.choices.largest[0] = np.array_equal(state.rows, state.choices.rows)
    physics, others = state.physics, of.physics
    if physics.used:
        physics.floor[...] = others.floor
        physics.viable[...] = others.viable
        physics.barred[...] = others.barred
        physics.beaten[...] = others.beaten
        physics.sources[...] = others.sources
        physics.source_count[...] = others.source_count
        physics.floor_by_source[...] = others.floor_by_source
        physics.columns[...] = others.columns
        physics.idle_device[...] = others.idle_device
        physics.idle_server[...] = others.idle_server
        physics.updates[...] = ANEW
        physics.stale[...] = True


def _threshold(part: Part, hyperparameters: Hyperparameters) -> float:
    """Growth of log det beyond which a part is uploaded."""
    if not part.shared:
        return inf
    if part.eager:
        return -1.0
    return log1p(hyperparameters.alpha if part.alpha is None else part.alpha)


def _physics(
    policy: Policy, table: PartitionTable, features: Sequence[Array], devices: int
) -> Physics:
    rows = padded(features)
    parts, choices, width = rows.shape
    names = [part.name for part in policy.parts]
    both = "front" in names and "server" in names
    nothing = np.zeros((choices, width))
    assert policy.physical is not None
    considered = viable_choices if policy.physical.prune else offered_choices
    physics = Physics(
        used=True,
        kappa=policy.physical.kappa,
        nonnegative=policy.physical.nonnegative,
        offered=offered_choices(table, policy.physical.codecs),
        viable=np.zeros(choices, dtype=np.bool_),
        barred=np.zeros(choices),
        beaten=beaten_by(table) & policy.physical.prune,
        sources=np.zeros(choices, dtype=np.int64),
        source_count=np.zeros(1, dtype=np.int64),
        floor=np.array([floors(part) for part in rows]),
        floor_by_source=np.zeros((choices, parts, choices)),
        columns=np.ascontiguousarray(rows.transpose(2, 0, 1)),
        spread=np.array([part.spread for part in policy.parts]),
        watched=np.array([part.watched for part in policy.parts]),
        front_part=names.index("front") if both else -1,
        server_part=names.index("server") if both else -1,
        idle_device=hardly_for_device(rows[names.index("front")] if both else nothing),
        idle_server=hardly_for_server(rows[names.index("server")] if both else nothing),
        own=np.zeros((devices, parts, statistics_size(width))),
        alarm=np.zeros((devices, parts, 2)),
        apart=np.zeros((devices, parts), dtype=np.bool_),
        dropped=np.zeros((devices, parts)),
        pace=np.ones((devices, parts)),
        divisor=np.ones((devices, parts)),
        unlike=np.zeros((devices, parts, 2)),
        theta=np.zeros((devices, parts, width)),
        deviation=np.zeros((devices, parts)),
        root=np.zeros((devices, parts, width, width)),
        latest=np.zeros((devices, parts, width)),
        updates=np.full((devices, parts), ANEW, dtype=np.int64),
        low=np.zeros((devices, parts, choices)),
        stale=np.ones((devices, parts), dtype=np.bool_),
        pending=np.zeros((devices, parts)),
        scores=np.zeros((devices, choices)),
        ran=np.zeros(devices),
    )
    mark_viable(physics, considered(table, policy.physical.codecs))
    return physics


def raw_choices(state: LearnerState, table: PartitionTable) -> BoolArray:
    """The choices that send the raw input, of those that the policy has."""
    raw: BoolArray = np.equal(table.point_of, 0)
    return raw & state.physics.offered if state.physics.used else raw


def mark_viable(physics: Physics, viable: BoolArray) -> None:
    """Say which choices can win, and put what follows from it where it is looked up."""
    physics.viable[...] = viable
    physics.barred[...] = np.where(viable, 0.0, np.inf)
    physics.sources[...] = np.argsort(~viable, kind="stable")
    physics.source_count[...] = viable.sum()
    physics.floor_by_source[...] = physics.floor[:, physics.sources].transpose(1, 0, 2)
