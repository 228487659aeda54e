"""`cans.Device`: infer, and always have an answer."""

from __future__ import annotations

import asyncio
import atexit
import os
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from random import uniform
from time import monotonic
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

import numpy as np

from cans.errors import CansError, DeadlineExceeded, InputError, StoreError
from cans.learning import DeviceIdentity, Upload
from cans.learning.grouping import AUTO
from cans.live.clock import Clock
from cans.live.device.agent import Agent, Task
from cans.live.device.breaker import BreakerSettings
from cans.live.device.contact import Contact
from cans.live.device.experience import Experience
from cans.live.device.inbox import Inbox
from cans.live.device.options import DeviceOptions
from cans.live.device.report import Report
from cans.live.device.request import Job, Rounds
from cans.live.device.route import Route
from cans.live.device.session import Tending
from cans.live.device.startup import FirstWelcome, OwnModel, first_welcome, remembered
from cans.live.device.statefile import StateFile, default_folder, free_slot
from cans.live.device.timing import Monotonic, Stopwatch
from cans.live.device.warmstart import measure_whole, offline_runs
from cans.live.fetching import Progress
from cans.live.memory import keep_memory
from cans.live.preparing import prepare_fronts
from cans.live.split import Array, Arrays, SplitModel
from cans.live.usage import Usage
from cans.live.wire.link import parse_servers
from cans.live.wire.messages import Welcome


class Device:
    """A device that runs a model together with an edge server, and learns where to cut it.

    `model` is an ONNX file or the name of a built-in model; None: whatever the server has, fetched
    from it. Every keyword of `DeviceOptions` may be given too. One inference runs at a time; calls
    from other threads wait for their turn.
    """

    def __init__(
        self,
        server: str,
        model: str | PathLike[str] | SplitModel | None = None,
        type: str = AUTO,
        *,
        stopwatch: Stopwatch | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> None:
        try:
            self.options = DeviceOptions(parse_servers(server), type, **options)
        except TypeError as error:
            raise InputError(str(error)) from None
        if self.options.keep_memory:
            keep_memory()
        self._clock = Clock()
        self._inbox = Inbox()
        self._random = np.random.default_rng(self.options.seed)
        self._contact = Contact(self.options, self._inbox)
        self._route = Route(self.options.servers, _unlike_others(self.options.breaker))
        self._stopwatch = stopwatch or Monotonic()
        self._file: StateFile | None = None
        self._agent: Agent | None = None
        _open.add(self)
        try:
            self._start(model, progress)
        except BaseException:
            self.close()
            raise

    # --- starting ---

    def _start(
        self, source: str | PathLike[str] | SplitModel | None, progress: Progress | None
    ) -> None:
        options = self.options
        self._file = (
            StateFile(Path(options.state)) if options.state else free_slot(_default_base(source))
        )
        state = remembered(self._file, options)
        own = OwnModel(source)
        welcome = first_welcome(self._contact, self._route, state.identity, own.wanted)
        self.model = own.cut(
            self._contact, welcome, state, options.local, options.runtime, progress
        )
        if options.prepare:
            prepare_fronts(self.model, options.local)
        self.model.executor.on_block = self._on_block
        self._experience = Experience(state, self._file, self.model)
        self._rounds = Rounds(options, self.model, self._experience, self._contact, self._random)
        if options.local:
            self._contact.whole_ms = measure_whole(self.model, self._random, self._rounds.times)
        if welcome is not None:
            welcome = self._with_group(*welcome)
            self._accept(*welcome)
        self._experience.save()
        tending = Tending(
            self.model.digest, self._experience, self._contact, self._inbox, self._route,
            self._clock, self._begin,
        )  # fmt: skip
        self._agent = Agent(
            options, self._experience, self._inbox, self._rounds, tending, self._stopwatch,
            Usage(self.model.executor, "front"), self._clock,
        )  # fmt: skip
        self._agent.start()

    def _with_group(self, server: int, welcome: Welcome) -> FirstWelcome:
        """The welcome with the group that the server finds for a device of this speed."""
        if welcome.group or not welcome.terms.policy.grouped or not self._contact.whole_ms:
            return server, welcome
        with suppress(CansError):  # the agent will ask again
            who = self._experience.state.identity
            return server, self._contact.join(server, who, self.model.digest)
        return server, welcome

    def _accept(self, server: int, welcome: Any) -> None:
        self._experience.accept(welcome)
        self._clock.follow(welcome.time)
        if self._experience.needs_offline:
            uploads = self._begin()
            try:
                who = self._experience.state.identity
                again = self._contact.join(server, who, self.model.digest, uploads)
                self._experience.accept(again)
            except StoreError:
                pass  # the agent will deliver them
            except CansError:
                self._route.join_failed(server, monotonic())
                return  # the agent will deliver them
        self._route.joined(server)

    def _begin(self) -> tuple[Upload, ...]:
        learner = self._experience.learner
        assert learner is not None
        runs = offline_runs(
            self.model, learner, self._random, self._rounds.times, self.options.local
        )
        return self._experience.start(self._stopwatch.offline(runs))

    def _on_block(self, name: str, thread_seconds: float, wall_seconds: float) -> None:
        self._rounds.abandonment.check()
        if self.options.slowdown > 1:
            # Until K times its own time have passed: waiting for a busy processor counts.
            time.sleep(max(thread_seconds * self.options.slowdown - wall_seconds, 0.0))

    # --- using ---

    def infer(self, inputs: Arrays | Array, deadline_ms: float | None = None) -> dict[str, Array]:
        """The model's outputs for these inputs: from the server or from here, by the deadline."""
        job = self._job(inputs, deadline_ms)
        agent = self._agent
        if agent is None or not agent.answer_here(job):
            self._submit(job)
        try:
            return job.future.result(timeout=max(job.deadline - monotonic(), 0.0))
        except FutureTimeout:
            job.given_up.set()
            raise DeadlineExceeded(_LATE) from None

    async def ainfer(
        self, inputs: Arrays | Array, deadline_ms: float | None = None
    ) -> dict[str, Array]:
        """The same for `await`."""
        job = self._job(inputs, deadline_ms)
        self._submit(job)
        try:
            async with asyncio.timeout(max(job.deadline - monotonic(), 0.0)):
                return await asyncio.wrap_future(job.future)
        except TimeoutError:
            raise DeadlineExceeded(_LATE) from None
        finally:
            if not job.future.done() or job.future.cancelled():
                job.given_up.set()

    def _submit(self, job: Job) -> None:
        if not self._inbox.put_job(job):
            raise InputError("this device is closed")

    def _job(self, inputs: Arrays | Array, deadline_ms: float | None) -> Job:
        self._running_agent()
        if not isinstance(inputs, dict):
            if len(self.model.inputs) != 1:
                names = ", ".join(each.name for each in self.model.inputs)
                raise InputError(f"this model has several inputs, give a dict of: {names}")
            inputs = {self.model.inputs[0].name: np.asarray(inputs)}
        milliseconds = self.options.deadline_ms if deadline_ms is None else deadline_ms
        return Job(inputs, monotonic() + milliseconds / 1e3)

    def settle(self, seconds: float = 10.0) -> None:
        """Wait until all that was observed is learned, and what was uploaded is acknowledged."""
        self._do(lambda agent: agent.settle(seconds))

    def refresh(self) -> None:
        """Join again: deliver what is pending, and hear the pools as they are now."""
        self._do(lambda agent: agent.refresh())

    def testbed(self, force: int | None = None, pace_mbps: float | None = None) -> None:
        """Testbeds: take this choice from now on (None: the policy's), and upload no faster."""
        self._rounds.chooser.forced = force
        self._contact.pace.mbps = pace_mbps

    def _do(self, work: Callable[[Agent], None]) -> None:
        agent = self._running_agent()
        task = Task(lambda: work(agent))
        if not self._inbox.put_job(task):
            raise InputError("this device is closed")
        task.future.result()

    def _running_agent(self) -> Agent:
        agent = self._agent
        if agent is None:
            raise InputError("this device is closed")
        if self not in _open:
            raise InputError("this device belongs to the process that forked this one; make one")
        return agent

    @property
    def last(self) -> Report | None:
        """The last inference, explained."""
        return self._agent.last if self._agent else None

    @property
    def identity(self) -> DeviceIdentity:
        return self._experience.state.identity

    @property
    def group(self) -> str:
        """With whom this device learns its front-end: the group that the server found, or its
        type."""
        return self._experience.learning_identity.type

    @property
    def refused(self) -> int:
        """Observations of this device that the server did not believe and keeps out of pools."""
        return sum(each.statistics.count for each in self._experience.state.refused)

    @property
    def joined(self) -> bool:
        """Is there a server that requests may go to?"""
        return self._route.usable is not None

    def close(self) -> None:
        """Finish the inference that runs, keep what was learned, let go of everything."""
        if self not in _open:
            return  # closed, or of the process that forked this one
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.close()
            self._rounds.close()
            self._experience.save()
        self._contact.close()
        if self._file is not None:
            self._file.close()
            self._file = None
        _open.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


_open: WeakSet[Device] = WeakSet()  # devices of this process that were not closed


def _close_all() -> None:
    """A program may end without closing its devices; their threads must end before it does."""
    for device in list(_open):
        while device in _open:
            try:
                device.close()
            except KeyboardInterrupt:
                continue


atexit.register(_close_all)
os.register_at_fork(after_in_child=_open.clear)

_LATE = "no answer in time, neither from the server nor from this device"


def _unlike_others(settings: BreakerSettings) -> BreakerSettings:
    """Devices that lost a server at the same moment must not all come back at the same moment."""
    return replace(settings, first_wait=settings.first_wait * uniform(0.75, 1.25))


def _default_base(source: object) -> Path:
    name = source.name if isinstance(source, SplitModel) else Path(str(source or "any")).stem
    return default_folder(name)
