"""What a server tells a device when it joins: policy, numbers, table; both ways.

The table travels whole (a few kilobytes), so that features are the same numbers on both sides
whatever versions they run; the device checks that it cuts the model at the same points.

Fields of the wire are added and never change their meaning, so that neighbouring releases
understand each other; its version says when two are further apart.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from math import isfinite
from typing import Any

import numpy as np

from cans.errors import InputError, Refused, RemoteProtocolError
from cans.learning import Hyperparameters, PartitionTable, Policy, policy_named
from cans.learning.messages import DELIVERIES
from cans.learning.plausibility import Limits
from cans.learning.policy_data import policy_from_dict, policy_to_dict
from cans.learning.table import SEGMENTS
from cans.live.split import CutPoint, Cutting
from cans.live.wire import learned
from cans.live.wire.accuracy import AccuracyBudget
from cans.live.wire.proto import edge

WIRE = 1
"""What this release speaks. 0 was the first release, which did not say."""
OLDEST = 0
"""What it still understands."""
_MOST_CHOICES = 4096
_LONGEST_POLICY = 20_000  # characters; of hyper-parameters too
_MOST_OFFLINE_RUNS = 1000  # before the first round


@dataclass(frozen=True)
class Terms:
    """How the fleet of one server learns; the server's decision, the same for every device."""

    policy: Policy
    hyperparameters: Hyperparameters = field(default_factory=Hyperparameters)
    delivery: str = "immediate"  # uploads go at once, or with the next request
    fresh_pools: bool = False  # changed pools are pushed to devices, not only sent in answers
    limits: Limits = field(default_factory=Limits)  # which observations are believed
    # Not compared: what was learned under another budget is as true as before.
    accuracy: AccuracyBudget = field(default_factory=AccuracyBudget, compare=False)

    def __post_init__(self) -> None:
        refuse_unfit(self.policy, self.hyperparameters)
        if self.delivery not in DELIVERIES:
            raise InputError(f"--delivery must be one of: {', '.join(DELIVERIES)}")


def refuse_unfit(policy: Policy, hyperparameters: Hyperparameters) -> None:
    """Some policies need what no deployment has."""
    if policy.simulation_only:
        raise InputError(f"policy {policy.name!r} exists in simulation only")
    if policy.knows:
        raise InputError(
            f"policy {policy.name!r} needs latencies known beforehand ({', '.join(policy.knows)}); "
            "a live fleet has none"
        )
    if isinstance(hyperparameters.beta_ms, str):
        raise InputError("beta_ms 'theory' needs the size and noise of the fleet; give a number")


def table_version(table: PartitionTable, points: Sequence[CutPoint]) -> str:
    """Names the features and the cuts: observations under another version never mix."""
    content = {
        "points": [[p.name, [[t.name, t.dtype, list(t.shape)] for t in p.tensors]] for p in points],
        "choices": [list(table.point_of), list(table.codec_of)],
        "features": [getattr(table, segment).tolist() for segment in SEGMENTS],
        "probe": None if table.probe is None else table.probe.tolist(),
    }
    text = json.dumps(content, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:16]


def terms_out(terms: Terms, message: Any) -> None:
    message.policy = terms.policy.name
    message.whole_policy = json.dumps(policy_to_dict(terms.policy))
    message.hyperparameters = json.dumps(asdict(terms.hyperparameters))
    message.delivery = terms.delivery
    message.fresh_pools = terms.fresh_pools
    message.lowest_latency_ms = terms.limits.lowest_ms
    message.highest_latency_ms = terms.limits.highest_ms
    message.max_error = terms.accuracy.max_error or 0.0
    message.min_agreement = terms.accuracy.min_agreement or 0.0


def terms_in(message: Any) -> Terms:
    """The terms of a Welcome; one that this version cannot live by is a clear refusal."""
    if len(message.hyperparameters) > _LONGEST_POLICY:
        raise RemoteProtocolError(f"hyper-parameters of {len(message.hyperparameters)} characters")
    try:
        given = json.loads(message.hyperparameters)
        known = {each.name for each in fields(Hyperparameters)}
        unknown = set(given) - known
        if unknown:
            raise Refused(f"the server uses {', '.join(sorted(unknown))}: upgrade this device")
        hyperparameters = Hyperparameters(**given)
    except (ValueError, TypeError, InputError, RecursionError) as error:
        raise RemoteProtocolError(f"hyper-parameters that cannot be used: {error}") from None
    if hyperparameters.offline_runs > _MOST_OFFLINE_RUNS:
        raise RemoteProtocolError(f"{hyperparameters.offline_runs} runs before the first round")
    policy = _policy_in(message.policy, message.whole_policy)
    low, high = message.lowest_latency_ms, message.highest_latency_ms
    if not low <= high:
        raise RemoteProtocolError(f"latencies from {low} to {high} ms")
    try:
        return Terms(
            policy,
            hyperparameters,
            message.delivery,
            message.fresh_pools,
            Limits(low, high),
            AccuracyBudget(message.max_error or None, message.min_agreement or None),
        )
    except InputError as error:
        raise Refused(f"the server's terms do not fit this device: {error}") from None


def _policy_in(name: str, whole: str) -> Policy:
    """The policy that a server sent, whole or (the first release) by its name; one this version
    cannot follow is refused."""
    if len(whole) > _LONGEST_POLICY:
        raise RemoteProtocolError(f"a policy of {len(whole)} characters")
    try:
        if not whole:
            return policy_named(learned.name(name, "policy"))
        return policy_from_dict(json.loads(whole))
    except InputError as error:
        raise Refused(f"the server's policy does not fit this device: {error}") from None
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"a policy that cannot be read: {error}") from None


def table_out(table: PartitionTable) -> Any:
    segments = {}
    for segment in SEGMENTS:
        matrix = getattr(table, segment)
        segments[segment] = edge.Matrix(
            rows=matrix.shape[0],
            columns=matrix.shape[1],
            values=matrix.ravel().tolist(),
            names=table.names.get(segment, ()),
        )
    return edge.Table(
        model=table.model, digest=table.digest, version=table.version, points=table.points,
        point_of=table.point_of, codec_of=table.codec_of, bytes_of=table.bytes_of, **segments,
        probe=() if table.probe is None else table.probe.ravel().tolist(),
    )  # fmt: skip


def table_in(message: Any) -> PartitionTable:
    matrices, names = {}, {}
    for segment in SEGMENTS:
        matrix = getattr(message, segment)
        shape = (matrix.rows, matrix.columns)
        sane = 0 < shape[0] <= _MOST_CHOICES and 0 < shape[1] <= learned.LARGEST_DIMENSION
        if not sane or len(matrix.values) != shape[0] * shape[1]:
            raise RemoteProtocolError(f"{segment} features of shape {shape}")
        if not all(map(isfinite, matrix.values)):
            raise RemoteProtocolError(f"{segment} features that are not finite")
        matrices[segment] = np.array(matrix.values).reshape(shape)
        if matrix.names:
            names[segment] = tuple(matrix.names)
    try:
        return PartitionTable(
            learned.name(message.model, "model of a table"), tuple(message.points),
            front=matrices["front"], link=matrices["link"], server=matrices["server"],
            point_of=tuple(message.point_of), codec_of=tuple(message.codec_of), names=names,
            bytes_of=tuple(message.bytes_of),
            digest=message.digest, version=learned.name(message.version, "version of a table"),
            probe=_probe_in(message),
        )  # fmt: skip
    except ValueError as error:
        raise RemoteProtocolError(f"a table that cannot be used: {error}") from None


def _probe_in(message: Any) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    if not message.probe:
        return None
    if len(message.probe) % message.link.columns or not all(map(isfinite, message.probe)):
        raise RemoteProtocolError("a probe that does not fit the link's features")
    return np.array(message.probe).reshape(-1, message.link.columns)


def cutting_out(cutting: Cutting) -> Any:
    return edge.Cutting(
        max_tensors=cutting.max_tensors,
        max_points=cutting.max_points or 0,
        image=cutting.image,
        shapes=[edge.TensorMeta(name=name, shape=shape) for name, shape in cutting.shapes],
        lowest=[edge.TensorMeta(name=name, shape=shape) for name, shape in cutting.lowest],
    )


def cutting_in(message: Any) -> Cutting:
    return Cutting(
        message.max_tensors or 1,
        message.max_points or None,
        message.image,
        tuple((each.name, tuple(each.shape)) for each in message.shapes),
        tuple((each.name, tuple(each.shape)) for each in message.lowest),
    )


def understood(version: int, other: str) -> None:
    """Raise `Refused` unless this release and one that speaks this version work together.

    >>> understood(2, "server")
    >>> understood(3, "server")
    Traceback (most recent call last):
        ...
    cans.errors.Refused: the server speaks wire version 3, this side 0 to 2: upgrade this side
    """
    newest = WIRE + 1  # the next release says whatever this one needs to hear
    if not OLDEST <= version <= newest:
        which = "this side" if version > newest else f"the {other}"
        raise Refused(
            f"the {other} speaks wire version {version}, this side {OLDEST} to {newest}: "
            f"upgrade {which}"
        )
