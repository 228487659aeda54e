"""A `BackEndPool` on a cluster: for each model the queue and the turns of `Workers`, with a replica
behind every worker, and as many of them as there is demand for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic

from cans.errors import Busy, CansError, RunError
from cans.learning.congestion import Load
from cans.live.server.backends import Answer, Work
from cans.live.server.cluster.options import ClusterOptions, Demand
from cans.live.server.cluster.replicas import RayRunner
from cans.live.server.cluster.sources import Source, source_of
from cans.live.server.metrics import Histogram
from cans.live.server.workers import NOBODY, Runner, Workers
from cans.live.split import SplitModel
from cans.simulation.workers.ray_cluster import connect

_log = logging.getLogger(__name__)
_LOOK_S = 0.25  # how often demand is looked at
_AGAIN_S = 2.0  # after a replica that did not start
_PATIENT_S = 10.0  # for the first replica of a model, before the log says what is waited for


class ModelReplicas:
    """The replicas of one model."""

    def __init__(
        self, name: str, source: Source, options: ClusterOptions, queue: int, queue_ms: Histogram
    ) -> None:
        self.name = name
        self.workers = Workers(0, queue, queue_ms, self._gone)
        self.failure = ""
        self._source = source
        self._options = options
        self._demand = Demand(options)
        self._starting = 0
        self._again = 0.0
        self._lock = threading.Lock()

    def tend(self, now: float) -> None:
        """Start or let go of replicas, by what is going on."""
        wanted = self._demand.replicas(self.workers.inside, now)
        with self._lock:
            missing = wanted - self.workers.count - self._starting
            if missing > 0 and now >= self._again:
                self._starting += missing
                for _ in range(missing):
                    threading.Thread(target=self._start, daemon=True).start()
        self.workers.shrink(wanted)

    def _start(self) -> None:
        try:
            runner = RayRunner(self._source, self._options)
            runner.wait()
        except (CansError, RuntimeError, ConnectionError) as error:
            with self._lock:
                self._starting -= 1
                self._again = monotonic() + _AGAIN_S
                self.failure = str(error)
            _log.error("no replica", extra={"model": self.name, "reason": str(error)})
            return
        with self._lock:
            self._starting -= 1
            self.workers.add(runner)
        _log.info("replica", extra={"model": self.name, "replicas": self.workers.count})

    def _gone(self, runner: Runner) -> None:
        """A worker ended: its replica died, or is not needed any more."""
        if isinstance(runner, RayRunner):
            runner.close()
        _log.info("replica gone", extra={"model": self.name, "replicas": self.workers.count})


class ClusterPool:
    """The replicas of every model that a server offers, now: models may come and go."""

    def __init__(
        self,
        offered: Callable[[], Sequence[SplitModel]],
        options: ClusterOptions,
        queue: int,
        source: Callable[[SplitModel], Source] | None = None,
    ) -> None:
        """`source`: how a model gets to a node; None: by its files."""
        self._ray, self._connected_here = connect(options.address, "--cluster")
        self.queue_ms = Histogram()
        self._offered = offered
        self._options = options
        self._queue = queue
        self._source = source or (lambda each: source_of(each, self._ray.put, options.runtime))
        self._models: dict[str, ModelReplicas] = {}
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="replicas", daemon=True)
        try:
            for each in offered():
                self._take(each)
            self._keeper.start()
            self._await_first()
        except BaseException:
            self.close()
            raise

    def _take(self, model: SplitModel) -> None:
        """Have replicas of this model from now on."""
        source = self._source(model)
        self._models[model.digest] = ModelReplicas(
            model.name, source, self._options, self._queue, self.queue_ms
        )

    def _await_first(self) -> None:
        """Until there is a replica of each model, or a reason why there is none."""
        for each in self._models.values():
            complain = monotonic() + _PATIENT_S
            while not each.workers.count:
                if each.failure:
                    raise RunError(f"{each.name} on the cluster: {each.failure}")
                if monotonic() > complain:
                    _log.warning("waiting for room on the cluster", extra={"model": each.name})
                    complain += 3 * _PATIENT_S
                self._closing.wait(0.05)

    def _keep(self) -> None:
        while not self._closing.is_set():
            try:
                self._look()
            except Exception:  # a cluster that is gone must not take this thread with it
                _log.exception("replicas not looked after")
            self._closing.wait(_LOOK_S)

    def _look(self) -> None:
        offered = {each.digest: each for each in self._offered()}
        for digest in self._models.keys() - offered.keys():
            if not self._models[digest].workers.inside:  # its last requests run to their end
                self._models.pop(digest).workers.close()
        for digest, model in offered.items():
            if digest not in self._models:
                self._take(model)
            self._models[digest].tend(monotonic())

    async def run(self, work: Work) -> Answer:
        replicas = self._models.get(work.model.digest)
        if replicas is None:  # offered since the last look, or not any more
            raise Busy(NOBODY)
        return await replicas.workers.run(work)

    def load(self, model: str, device: str, joined: int, announced: Sequence[float]) -> Load | None:
        replicas = self._models.get(model)
        return None if replicas is None else replicas.workers.load(model, device, joined, announced)

    def expected_ms(self, model: str, point: int, codec: str) -> float:
        replicas = self._models.get(model)
        return 0.0 if replicas is None else replicas.workers.expected_ms(model, point, codec)

    @property
    def inside(self) -> int:
        return sum(each.workers.inside for each in list(self._models.values()))

    @property
    def count(self) -> int:
        return sum(each.workers.count for each in list(self._models.values()))

    def close(self) -> None:
        self._closing.set()
        if self._keeper.is_alive():
            self._keeper.join()
        for each in self._models.values():
            each.workers.close()
        if self._connected_here:
            self._ray.shutdown()
