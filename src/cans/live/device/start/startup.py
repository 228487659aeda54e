"""How a device starts: who it was, which server answers, and the model as that server cuts it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from time import monotonic, perf_counter

import numpy as np

from cans import models
from cans.cache import cache_folder
from cans.errors import (
    CansError,
    DeadlineExceeded,
    InputError,
    ModelError,
    Refused,
    Unreachable,
    unknown_name,
)
from cans.learning import DeviceIdentity, DeviceLearner
from cans.learning.constraints import Constraints
from cans.learning.grouping import AUTO
from cans.live.device.local import Abandoned
from cans.live.device.options import DeviceOptions
from cans.live.device.servers.contact import Contact
from cans.live.device.servers.route import Route
from cans.live.device.start.statefile import StateFile
from cans.live.device.timing import LocalTimes
from cans.live.fetching import Progress, fetch_model
from cans.live.split import Cutting, SplitModel
from cans.live.splitting import is_built_in, load_model, split
from cans.live.wire.messages import Welcome
from cans.live.wire.state import DeviceState
from cans.live.wire.tls import trouble
from cans.models.run.inputs import random_inputs

_log = logging.getLogger(__name__)
_SETTLING = 3  # runs before the time of a half is typical
_LONGEST_OFFLINE = 60.0  # seconds of runs before the first request, whatever a server asks for
_PERMANENT = {"UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND"}
FirstWelcome = tuple[int, Welcome]  # which server, and what it said


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
    contact: Contact, route: Route, who: DeviceIdentity, model: str
) -> FirstWelcome | None:
    """Join the first server that answers; None if none does. A server that says no for good is an
    error now: the user should know."""
    for index in range(len(route.servers)):
        try:
            return index, contact.join(index, who, model)
        except Refused as error:
            if error.code in _PERMANENT:
                raise InputError(f"the server refuses this device: {error}") from None
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


class OwnModel:
    """The model that the user named, if any, and what is known of it before a server is asked."""

    def __init__(
        self,
        source: str | PathLike[str] | SplitModel | None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self._source = source
        self._own = Cutting(shapes=tuple((shapes or {}).items()))
        self._loaded: models.Model | None = None
        if source is not None and not isinstance(source, SplitModel):
            with suppress(ModelError):  # of open dimensions: those the server knows
                self._loaded = load_model(source, self._own)

    @property
    def file(self) -> Path | None:
        """The model file; None: the model is not one's own, or has none."""
        if self._source is None or isinstance(self._source, SplitModel):
            return None
        path = Path(self._source)
        return path if path.is_file() else None

    @property
    def wanted(self) -> str:
        """What to ask the server for: a digest, a name, or whatever it has."""
        if isinstance(self._source, SplitModel):
            return self._source.digest
        return self._loaded.digest if self._loaded else Path(self._source or "").stem

    def cut(
        self,
        contact: Contact,
        welcome: FirstWelcome | None,
        state: DeviceState,
        options: DeviceOptions,
        progress: Progress | None,
    ) -> SplitModel:
        """The model, cut as the server cuts it (or did, when it was last heard of)."""
        if isinstance(self._source, SplitModel):
            return self._source
        told = welcome[1] if welcome else None
        if told is None and state.welcome:
            with suppress(CansError):  # one that this version cannot use
                told = Welcome.from_bytes(state.welcome)
        cutting = told.cutting if told is not None else self._own
        loaded = self._loaded
        if self._source is None:
            if told is None:
                raise Unreachable("no server answers, and this device has no model of its own")
            file = _fetched(contact, welcome, told, progress)
            loaded = replace(load_model(file, cutting), name=told.model_name)
        elif loaded is None or cutting.shapes:
            loaded = load_model(self._source, cutting)
        return split(
            loaded, cutting, local=options.local, runtime=options.runtime,
            max_memory=None if options.max_memory_mb is None else int(options.max_memory_mb * 1e6),
        )  # fmt: skip


def _fetched(
    contact: Contact, welcome: FirstWelcome | None, terms: Welcome, progress: Progress | None
) -> str | Path:
    if not terms.model_file_sha256:
        if not is_built_in(terms.model_name):
            raise InputError(
                f"the server does not hand out {terms.model_name!r} (its log says why); give "
                "this device a copy with --model"
            )
        return terms.model_name  # the name is enough
    link = contact.links[welcome[0] if welcome else 0]
    return fetch_model(
        link, terms.table.digest, terms.model_file_sha256, cache_folder("models"), progress
    )


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
    Policies that want it begin with one to the end: what only the last block does is seen nowhere
    else. Fewer when a request comes, or when they take long: the server says how many."""
    if not any(part.warm for part in learner.policy.parts):
        return []
    table = learner.table
    last = model.last if local else model.last - 1
    found: list[tuple[int, float]] = []
    until = monotonic() + _LONGEST_OFFLINE
    with suppress(Abandoned):
        for number in range(learner.hyperparameters.offline_runs):
            whole = number == 0 and learner.policy.offline_whole
            point = last if whole else int(random.integers(1, last + 1))
            inputs = random_inputs(model.inputs, random)
            run = model.executor.run_front(point, inputs)
            for _ in range(_SETTLING):
                if run.settled:
                    break
                run = model.executor.run_front(point, inputs)
            found.append((table.point_of.index(point), run.steady_seconds * 1e3))
            if point == model.last:
                times.ran_whole(run.seconds)
            if monotonic() > until:
                break
    return found


def measure_whole(model: SplitModel, random: np.random.Generator, times: LocalTimes) -> float:
    """Whole runs, so that deadlines know how long this device needs by itself; returns the lower of
    two in milliseconds, which one disturbance does not change."""
    inputs = random_inputs(model.inputs, random)
    model.executor.run_front(model.last, inputs)  # builds what it needs
    seconds = []
    for _ in range(2):
        start = perf_counter()
        model.executor.run_front(model.last, inputs)
        seconds.append(perf_counter() - start)
    times.ran_whole(seconds[-1])
    return 1e3 * min(seconds)
