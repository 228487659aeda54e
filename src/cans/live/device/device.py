"""`cans.Device`: infer, and always have an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from random import uniform
from threading import Lock, RLock
from time import monotonic, perf_counter
from types import TracebackType
from typing import Self

import numpy as np

from cans.errors import DeadlineExceeded, InputError, Unreachable
from cans.learning import DeviceIdentity
from cans.learning.constraints import Constraints
from cans.learning.grouping import AUTO
from cans.learning.objective import Objective
from cans.live.clock import Clock
from cans.live.device.agent import Agent
from cans.live.device.experience import Experience
from cans.live.device.hooks import Hooks
from cans.live.device.options import DeviceOptions
from cans.live.device.own_run import OwnRun
from cans.live.device.real_work import RealWork
from cans.live.device.reporting.report import Report
from cans.live.device.request import Requests
from cans.live.device.round import Job
from cans.live.device.servers.contact import Contact, Kept
from cans.live.device.servers.route import Route
from cans.live.device.servers.session import Session
from cans.live.device.start.enrolment import Enrolment
from cans.live.device.start.handover import Handover
from cans.live.device.start.moving import Mover
from cans.live.device.start.offering import Offer
from cans.live.device.start.open_devices import open_devices, unless_ending
from cans.live.device.start.own_model import FirstWelcome, OwnModel
from cans.live.device.start.startup import (
    WholeTimes,
    first_welcome,
    measure_whole,
    remembered,
    with_own_floor,
)
from cans.live.device.start.statefile import StateFile, StateWriter, default_folder, free_slot
from cans.live.device.stream import Stream
from cans.live.device.timing import LocalTimes
from cans.live.device.turns import Turns
from cans.live.fetching import Progress
from cans.live.memory import keep_memory as keep_memory_of_messages
from cans.live.preparing import prepare_fronts
from cans.live.split import Array, Arrays, SplitModel
from cans.live.usage import Usage
from cans.live.wire.accuracy import AccuracyBudget
from cans.live.wire.link import parse_servers
from cans.live.wire.state import DeviceState
from cans.live.wire.tls import ClientTls
from cans.models.run.runtime import RuntimeOptions


@dataclass(frozen=True)
class Result:
    """The answer to one request."""

    outputs: dict[str, Array]
    _job: Job

    @property
    def report(self) -> Report:
        """How it came about. It is written after the answer, so this may wait for a moment."""
        return self._job.explained()


class Device:
    """A device that runs a model together with an edge server, and learns where to cut it.

    `server` is HOST:PORT, several of one fleet with commas between. `model` is an ONNX file or the
    name of a built-in model; None: what the server has, fetched from it. `type` is a prefix of the
    group that the server finds for this device; "auto": none. All methods may be called from
    several threads.
    """

    def __init__(
        self,
        server: str,
        model: str | PathLike[str] | SplitModel | None = None,
        type: str = AUTO,
        *,
        network: str = "default",
        name: str | None = None,
        state: str | PathLike[str] | None = None,
        token: str | None = None,
        tls: ClientTls | None = None,
        deadline_ms: float = 10_000.0,
        connect_seconds: float = 3.0,
        constraints: Constraints | None = None,
        accuracy: AccuracyBudget | None = None,
        local: bool = True,
        exit: Sequence[tuple[str, float]] = (),
        keep_memory: bool = True,
        seed: int | None = None,
        prepare: bool = False,
        provider: str | Sequence[str] = (),
        threads: int = 1,
        optimisation: str = "all",
        traces: str | None = None,
        objective: str = "latency",
        fps: float | None = None,
        selfish: bool = False,
        own_runs: bool = True,
        weight: float = 1.0,
        max_memory_mb: float | None = None,
        max_mb_per_day: float | None = None,
        send_model: bool = False,
        shape: Mapping[str, Sequence[int]] | None = None,
        model_sha256: str | None = None,
        follow: bool = True,
        progress: Progress | None = None,
    ) -> None:
        """Join a server, or go on alone until one answers.

        network: devices on one network share what they learn of the link.
        name: of this device; None: made up once and kept in the state.
        state: folder of its memory; None: a free one below ~/.local/state/cans.
        token: join token. tls: how to encrypt; None: not at all.
        deadline_ms: an answer, or a clear error, by then; each call may give its own.
        connect_seconds: how long start-up waits for a server before going on alone.
        constraints: which choices may be taken.
        accuracy: how far lossy codecs may change an answer; None: as far as they do.
        local: False: it holds no back-end, and cannot answer without a server.
        exit: early-exit outputs, and how sure they must be.
        keep_memory: of large messages, for the whole process (`cans.live.memory`).
        seed: of warm-start points and random choices; None: by chance.
        prepare: build and warm every front-end before the first inference.
        provider: NAME[,KEY=VALUE] of what executes the model (ONNX Runtime), or several in order;
        none: the CPU. Devices of other providers learn apart.
        threads: of one front-end; 0: all cores. optimisation: how much graphs are rewritten.
        traces: HOST:PORT of an OTLP collector (OpenTelemetry); None: no traces.
        objective: "latency", or "throughput": the choice with the smallest bottleneck of front-end,
        link and server, for streams. fps: the quickest choice that keeps up with so many a second.
        own_runs: where nothing runs on this device, run the whole model beside an answer now and
        then, to see how quick it is: at most a twentieth of the time, with the lowest priority.
        selfish: choose as if this device's server time cost nobody anything. weight: how much its
        latency matters beside that of others; it pays the toll divided by this.
        max_memory_mb: for the model and its halves; None: as they need.
        max_mb_per_day: both ways over the link, kept across restarts; when it is used up the device
        answers by itself until the next day. None: any.
        send_model: to a server that lacks it, if it takes models (`cans serve --accept-models`).
        shape: of inputs that the file leaves open, for a server that does not know them.
        model_sha256: of the only model to run; a server that has another one is done without.
        follow: when the server has a new model of this name, fetch it in the background and move
        over to it; False: keep the present one, and go on alone.
        progress: called with the bytes so far and in all while a model is fetched or sent.
        """
        providers = (provider,) if isinstance(provider, str) else provider
        self.options = DeviceOptions(
            parse_servers(server), type, network, name=name,
            state=None if state is None else Path(state), token=token, tls=tls,
            deadline_ms=deadline_ms, connect_seconds=connect_seconds,
            constraints=constraints or Constraints(), local=local, exit=tuple(exit),
            accuracy=accuracy or AccuracyBudget(),
            keep_memory=keep_memory, seed=seed, prepare=prepare, traces=traces,
            runtime=RuntimeOptions.parse(providers, threads, optimisation), send_model=send_model,
            objective=Objective.parse(objective, fps), max_memory_mb=max_memory_mb,
            max_mb_per_day=max_mb_per_day, selfish=selfish, own_runs=own_runs, weight=weight,
            shapes=tuple((name, tuple(shape)) for name, shape in (shape or {}).items()),
            model_sha256=model_sha256,
            follow=follow and model_sha256 is None and not send_model,
        )  # fmt: skip
        self._hooks = self._own_hooks()
        if keep_memory:
            keep_memory_of_messages()
        self._clock = Clock()
        self._turns = Turns()
        self._random = np.random.default_rng(seed)
        self._contact = Contact(self.options, self._hooks, self._turns.post)
        self._handover = Handover()
        self._closing = Lock()
        self._one_closes = RLock()
        self._mover: Mover | None = None
        # Devices that lost a server at the same moment must not all come back at the same moment.
        patience = self._hooks.breaker.times(uniform(0.75, 1.25))
        self._route = Route(self.options.servers, patience)
        self._workers = ThreadPoolExecutor(_MOST_IN_FLIGHT, thread_name_prefix="cans-request")
        self._file: StateFile | None = None
        self._writer: StateWriter | None = None
        self._agent: Agent | None = None
        try:
            with open_devices.starting(self, self._give_up_starting):
                self._start(model, progress)
        except BaseException:
            self._let_go()
            raise

    # --- starting ---

    def _own_hooks(self) -> Hooks:
        """Nothing is changed; a testbed's device (`hooked.py`) has hooks of its own."""
        return Hooks()

    def _start(
        self, source: str | PathLike[str] | SplitModel | None, progress: Progress | None
    ) -> None:
        options = self.options
        file = StateFile(options.state) if options.state else free_slot(_default_base(source))
        self._file = file
        self._contact.allowance.keep_in(file.folder)
        state = remembered(file, options)
        own = OwnModel(source, dict(options.shapes), options.model_sha256)
        if options.send_model and own.file is not None:
            self._contact.offer = Offer(
                own.file, dict(options.shapes), progress, self._contact.allowance.allows
            )
        unless_ending()
        welcome = first_welcome(self._contact, self._route, state.identity, own, options)
        unless_ending()
        model = own.cut(self._contact, welcome, state, options, progress)
        with_own_floor(options.constraints, model)  # an error at the start, before any work
        if options.prepare:
            prepare_fronts(model, options.local)
        self._writer = StateWriter(file, lambda: self._turns.post(Kept()))
        if options.follow and not isinstance(source, SplitModel):
            named = source is not None
            self._mover = Mover(options, self._contact, named, self._measured, self._move_over)
        measured = self._measured(model)
        with self._closing:
            unless_ending()
            self._live_with(model, state, measured, welcome)

    def _measured(self, model: SplitModel) -> WholeTimes:
        """How long this device takes for a model that it does not use yet."""
        if not self.options.local:
            return WholeTimes(LocalTimes())
        model.executor.on_block = lambda _, thread, wall: self._hooks.slow_down(thread, wall)
        return measure_whole(model, np.random.default_rng(self.options.seed))

    def _live_with(
        self,
        model: SplitModel,
        state: DeviceState,
        measured: WholeTimes,
        welcome: FirstWelcome | None = None,
    ) -> None:
        """Begin with a model: everything that is of it, and the agent."""
        options, writer = self.options, self._writer
        assert writer is not None
        self.model = model
        model.executor.on_block = self._on_block
        options = replace(options, constraints=with_own_floor(options.constraints, model))
        self._experience = Experience(state, writer, model)
        self._requests = Requests(
            options, model, self._experience, self._contact, self._random, self._hooks,
            measured.times, self._turns.learner,
        )  # fmt: skip
        self._contact.whole_ms = measured.whole_ms
        enrolment = Enrolment(
            options.local, model, self._experience, self._contact, self._route, self._clock,
            writer, self._requests, self._turns, self._random, self._hooks,
        )  # fmt: skip
        if welcome is not None:
            enrolment.accept(*welcome)
        self._experience.save()
        self._session = Session(
            model.digest, self._experience, self._contact, self._route, self._clock,
            enrolment.begin_between_requests, self._follow if self._mover is not None else None,
        )  # fmt: skip
        work = RealWork(
            options, self._experience, self._contact, self._requests, self._hooks, self._clock,
            self._turns.leave_to_agent, self._session.deliver,
        )  # fmt: skip
        own_run = OwnRun(
            options, model, self._experience, self._hooks, self._clock,
            self._requests.abandonment, self._turns.leave_to_agent, self._session.deliver,
        )  # fmt: skip
        self._agent = Agent(
            options.local, self._turns, self._requests, self._session, self._experience,
            self._hooks, Usage(model.executor, "front"), self._clock, work, own_run,
        )  # fmt: skip
        self._agent.start()

    def _give_up_starting(self) -> None:
        with self._closing:
            if self._agent is None:
                self._contact.close()

    # --- moving over to another model ---

    def _follow(self, server: int) -> None:
        """The agent's server has no such model (any more)."""
        if self._mover is not None:
            self._mover.begin(server, self._experience.state.identity, self.model)

    def _move_over(self, model: SplitModel, measured: WholeTimes) -> bool:
        """Put another model in the place of the present one; False: callers are inside, or the
        device is closing. What was learned of the old one is kept apart, and delivered if a server
        that has it is met again."""
        with self._handover.alone(_MOST_HELD_UP) as is_alone, self._closing:
            agent = self._agent
            if not is_alone or agent is None:
                return False
            agent.close(0.0)  # callers wait
            self._requests.close()
            self._contact.stop_watching()
            self._turns = Turns()
            self._contact.post = self._turns.post
            state = replace(self._experience.state, welcome=b"")
            self._live_with(model, state, measured)
        return True

    def _on_block(self, name: str, thread_seconds: float, wall_seconds: float) -> None:
        self._requests.abandonment.check()
        self._hooks.slow_down(thread_seconds, wall_seconds)

    # --- using ---

    def infer(self, inputs: Arrays | Array, deadline_ms: float | None = None) -> dict[str, Array]:
        """The model's outputs for these inputs: from the server or from here, by the deadline."""
        called = perf_counter()
        if deadline_ms is None and isinstance(inputs, dict):
            with self._handover:
                outputs = self._running_agent().stay(inputs, called)
            if outputs is not None:
                return outputs
        return self._run(inputs, deadline_ms, called).outputs

    def run(self, inputs: Arrays | Array, deadline_ms: float | None = None) -> Result:
        """The same with a report of how the answer came about."""
        return self._run(inputs, deadline_ms, perf_counter())

    def _run(self, inputs: Arrays | Array, deadline_ms: float | None, called: float) -> Result:
        agent, job = self._running_agent(), self._job(inputs, deadline_ms, called)
        if agent.has_time_for(job):
            try:
                return self._result(job)
            finally:
                self._wake_agent()
        played = self._workers.submit(self._result, job)
        try:
            return played.result(max(job.deadline - monotonic(), 0.0))
        except FutureTimeout:
            job.given_up.set()
            raise DeadlineExceeded(_LATE) from None
        finally:
            played.add_done_callback(self._wake_agent)

    async def ainfer(
        self, inputs: Arrays | Array, deadline_ms: float | None = None
    ) -> dict[str, Array]:
        """`infer` for `await`; several may be awaited at a time, and then overlap."""
        return (await self.arun(inputs, deadline_ms)).outputs

    async def arun(self, inputs: Arrays | Array, deadline_ms: float | None = None) -> Result:
        """`run` for `await`."""
        called = perf_counter()
        self._running_agent()
        job = self._job(inputs, deadline_ms, called)
        played = self._workers.submit(self._result, job)
        try:
            async with asyncio.timeout(max(job.deadline - monotonic(), 0.0)):
                return await asyncio.wrap_future(played)
        except TimeoutError:
            raise DeadlineExceeded(_LATE) from None
        finally:
            if not played.done() or played.cancelled():
                job.given_up.set()
            played.add_done_callback(self._wake_agent)

    def stream(
        self,
        frames: Iterable[Arrays | Array],
        in_flight: int = 3,
        *,
        latest: bool = False,
        deadline_ms: float | None = None,
    ) -> Stream[Arrays | Array, Result]:
        """Results of these frames in order, with up to so many on their way; for `for` and
        `async for`. `latest`: of frames that come faster than answers, only the newest."""
        return Stream(lambda frame: self._started(frame, deadline_ms), frames,
                      min(in_flight, _MOST_IN_FLIGHT), latest)  # fmt: skip

    def _started(self, inputs: Arrays | Array, deadline_ms: float | None) -> Future[Result]:
        called = perf_counter()
        self._running_agent()
        played = self._workers.submit(self._result, self._job(inputs, deadline_ms, called))
        played.add_done_callback(self._wake_agent)
        return played

    def _result(self, job: Job) -> Result:
        """What the caller is to have, and then the agent is to be woken."""
        with self._handover:
            return Result(self._running_agent().answer(job), job)

    def _wake_agent(self, _: object = None) -> None:
        self._turns.wake_agent()

    def _job(self, inputs: Arrays | Array, deadline_ms: float | None, called: float) -> Job:
        if not isinstance(inputs, dict):
            if len(self.model.inputs) != 1:
                names = ", ".join(each.name for each in self.model.inputs)
                raise InputError(f"this model has several inputs, give a dict of: {names}")
            inputs = {self.model.inputs[0].name: np.asarray(inputs)}
        milliseconds = self.options.deadline_ms if deadline_ms is None else deadline_ms
        return Job(inputs, monotonic() + milliseconds / 1e3, called)

    def settle(self, seconds: float = 10.0) -> None:
        """Wait until all that was observed is learned, and the server has acknowledged what was
        uploaded and told; no longer than it is there, nor than so many seconds."""
        self._running_agent().settle(seconds)

    def refresh(self) -> None:
        """Join again: deliver what is pending, and hear the pools as they are now."""
        self._running_agent()
        until = monotonic() + self.options.deadline_ms / 1e3
        with self._turns.turn(until), self._turns.learner:
            server, uploads = self._session.server, self._experience.pending()
            if server is None:
                raise Unreachable(self._session.trouble)
        welcome = self._contact.join(
            server, self._experience.state.identity, self.model.digest, uploads
        )
        with self._turns.turn(until), self._turns.learner:
            self._session.welcomed(server, welcome)

    def _running_agent(self) -> Agent:
        agent = self._agent
        if agent is None:
            raise InputError("this device is closed")
        if self not in open_devices:
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
        return self._session.server is not None

    def close(self) -> None:
        """Finish the inference that runs, keep what was learned, let go of everything."""
        if self not in open_devices:
            return  # closed, or of the process that forked this one
        with self._one_closes:  # a second thread waits until the first has done it
            if self in open_devices:
                self._let_go()

    def _let_go(self) -> None:
        if self._mover is not None:
            self._mover.closed = True
        with self._closing:
            agent, self._agent = self._agent, None
        if agent is not None:
            agent.close()
            self._requests.close()
            self._experience.save()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._contact.close()
        if self._mover is not None:
            self._mover.close()
        if self._writer is not None:
            self._writer.close()
        if self._file is not None:
            self._file.close()
            self._file = None
        open_devices.closed(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


_MOST_IN_FLIGHT = 32  # requests of one device at a time
_MOST_HELD_UP = 1.0  # seconds that callers wait for others before a new model can take its place
_LATE = "no answer in time, neither from the server nor from this device"


def _default_base(source: object) -> Path:
    name = source.name if isinstance(source, SplitModel) else Path(str(source or "any")).stem
    return default_folder(name)
