"""How a device starts: who it was, which server answers, and its first runs."""

from __future__ import annotations

import logging
import secrets
from contextlib import suppress
from dataclasses import replace
from time import monotonic, perf_counter
from typing import NamedTuple

import numpy as np

from cans.errors import (
    CansError,
    DeadlineExceeded,
    InputError,
    Refused,
    Unreachable,
    unknown_name,
)
from cans.learning import DeviceIdentity, DeviceLearner
from cans.learning.arithmetic.offline import offline_choices
from cans.learning.constraints import Constraints
from cans.learning.grouping import AUTO
from cans.live.device.local import Abandoned
from cans.live.device.options import DeviceOptions
from cans.live.device.servers.contact import Contact
from cans.live.device.servers.route import Route
from cans.live.device.start.own_model import FirstWelcome, OwnModel
from cans.live.device.start.statefile import StateFile
from cans.live.device.timing import LocalTimes
from cans.live.split import SplitModel
from cans.live.wire.state import DeviceState
from cans.live.wire.tls import trouble
from cans.models.run.inputs import random_inputs

_log = logging.getLogger(__name__)
_SETTLING = 3  # runs before the time of a half is typical
_LONGEST_OFFLINE = 60.0  # seconds of runs before the first request, whatever a server asks for
_PERMANENT = {"UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND"}


def remembered(file: StateFile, options: DeviceOptions) -> DeviceState:
    """The state of last time, or a new one; a new one has a new incarnation."""
    state = file.load()
    if state is None:
        kind = "device" if options.type == AUTO else options.type
        device = options.name or f"{kind}-{secrets.token_hex(4)}"
        who = DeviceIdentity(device, secrets.token_hex(8), options.type, options.network)
        return DeviceState(who)
    who = state.identity._replace(type=options.type, network=options.network)
    if options.name is not None and options.name != who.device:
        raise InputError(
            f"{file.folder} remembers device {who.device!r}, not {options.name!r}; "
            "give another --state"
        )
    return replace(state, identity=who)


def first_welcome(
    contact: Contact, route: Route, who: DeviceIdentity, own: OwnModel, options: DeviceOptions
) -> FirstWelcome | None:
    """Join the first server that answers; None if none does. A server that says no for good is an
    error now: the user should know. One that has another model of the same name is joined later,
    when this device has fetched it; until then the device goes on alone with its own."""
    for index in range(len(route.servers)):
        try:
            return index, contact.join(index, who, own.wanted)
        except Refused as error:
            may_differ = options.follow or options.model_sha256 is not None
            differs = may_differ and _has_another(contact, index, who, own, error)
            if error.code in _PERMANENT and not differs:
                raise InputError(f"the server refuses this device: {error}") from None
            if error.code not in _PERMANENT:
                _log.error("cannot join", extra={"reason": str(error)})
            route.join_failed(index, monotonic())
        except CansError as error:
            reason = str(error)
            if isinstance(error, Unreachable | DeadlineExceeded):
                reason = trouble(route.servers[index], contact.tls)
            if reason:
                _log.error("cannot join", extra={"reason": reason})
            route.join_failed(index, monotonic())
    return None


def _has_another(
    contact: Contact, index: int, who: DeviceIdentity, own: OwnModel, error: Refused
) -> bool:
    if error.code != "NOT_FOUND" or not own.name:
        return False
    try:
        contact.join(index, who, own.name)
    except CansError:
        return False
    _log.warning("the server has another model of this name", extra={"model": own.name})
    return True


def with_own_floor(constraints: Constraints, model: SplitModel) -> Constraints:
    """The same with `local_until` as a depth of this device's own model. A number would mean
    another place wherever a server has the model cut at more points."""
    wanted = constraints.local_until
    if wanted is None:
        return constraints
    for depth, point in enumerate(model.points):
        if wanted in (point.name, *(each.name for each in point.tensors)):
            return replace(constraints, min_local_depth=max(depth, constraints.min_local_depth))
    raise unknown_name("point or tensor", wanted, [each.name for each in model.points])


# --- before the first request ---


def offline_runs(
    model: SplitModel,
    learner: DeviceLearner,
    random: np.random.Generator,
    times: LocalTimes,
    local: bool = True,
) -> list[tuple[int, float]]:
    """(choice, front milliseconds) of n random partial runs, each warmed up first (Alg. 1 line 2).
    Policies that want it begin with one to the end and the shortest, and go on where least is known
    (`arithmetic.offline`). Fewer when a request comes, or when they take long: the server says how
    many."""
    if not any(part.warm for part in learner.policy.parts):
        return []
    last = model.last if local else model.last - 1
    points = points_to_run(learner, last, random)
    found: list[tuple[int, float]] = []
    until = monotonic() + _LONGEST_OFFLINE
    with suppress(Abandoned):
        for point in points:
            inputs = random_inputs(model.inputs, random)
            run = model.executor.run_front(point, inputs)
            for _ in range(_SETTLING):
                if run.settled:
                    break
                run = model.executor.run_front(point, inputs)
            found.append((learner.table.point_of.index(point), run.steady_seconds * 1e3))
            if point == model.last:
                times.ran_whole(run.seconds)
            if monotonic() > until:
                break
    return found


def points_to_run(learner: DeviceLearner, last: int, random: np.random.Generator) -> list[int]:
    """Which front-ends, of those up to a point, are run offline."""
    table, runs = learner.table, learner.hyperparameters.offline_runs
    if last < 1:
        return []
    if not learner.policy.offline_whole:
        return list(map(int, random.integers(1, last + 1, runs)))
    first = [table.point_of.index(point) for point in range(1, last + 1)]  # without a codec
    choices = offline_choices(table.front, first, first[-1], random.random(runs))
    return [table.point_of[choice] for choice in choices]


class WholeTimes(NamedTuple):
    """How long a device needs for a model by itself."""

    times: LocalTimes
    whole_ms: float = 0.0  # the lower of two runs, which one disturbance does not change


def measure_whole(model: SplitModel, random: np.random.Generator) -> WholeTimes:
    """Whole runs, so that deadlines know how long this device needs by itself."""
    inputs, times = random_inputs(model.inputs, random), LocalTimes()
    model.executor.run_front(model.last, inputs)  # builds what it needs
    seconds = []
    for _ in range(2):
        start = perf_counter()
        model.executor.run_front(model.last, inputs)
        seconds.append(perf_counter() - start)
    times.ran_whole(seconds[-1])
    return WholeTimes(times, 1e3 * min(seconds))
