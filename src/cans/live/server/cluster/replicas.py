"""A replica: an actor of the cluster that holds one model; and the runner that gives it work."""

from __future__ import annotations

import logging
import secrets
import threading
from contextlib import suppress
from typing import Any

import numpy as np

from cans import errors as own_errors
from cans.errors import CansError, RunError
from cans.live.server.backends import Work
from cans.live.server.cluster.channel import (
    TOKEN_BYTES,
    Address,
    Channel,
    Door,
    Header,
    Parts,
    connect,
)
from cans.live.server.cluster.options import ClusterOptions
from cans.live.server.cluster.sources import Source
from cans.live.server.workers import Here, Ran, RunnerGone

_log = logging.getLogger(__name__)
START_S = 300.0  # a node fetches the model first
RUN_S = 60.0  # longer than any device waits: a replica that does not answer is gone
CONNECT_S = 5.0  # to a replica that is ready
_LONGEST_ERROR = 300  # characters


class Replica:
    """Runs back-ends of a model, one at a time; lives in a process of a node."""

    def __init__(self, source: Source, token: bytes) -> None:
        import ray

        self._model = source.load()
        self._here = Here()
        self._turn = threading.Lock()
        self._door = Door(ray.util.get_node_ip_address(), token, self._answer)

    def ready(self) -> Address:
        """Where it listens."""
        return self._door.address

    def run(
        self, point: int, codec: str, shapes: tuple[tuple[int, ...], ...], *tensors: Any
    ) -> Ran:
        """For a front door that has no way to the node but through Ray."""
        views = [memoryview(each) for each in tensors]
        with self._turn:
            return self._here.run(Work(self._model, point, codec, views, "", shapes=shapes))

    def _answer(self, header: Header, parts: Parts) -> tuple[Header, Parts]:
        shapes = tuple(tuple(each) for each in header["shapes"])
        try:
            ran = self.run(header["point"], header["codec"], shapes, *parts)
        except CansError as error:
            return {"error": str(error), "kind": type(error).__name__}, ()
        except Exception as error:  # of the model or the runtime: the caller is told
            return {"error": f"{type(error).__name__}: {error}"[:_LONGEST_ERROR], "kind": ""}, ()
        arrays = {name: np.ascontiguousarray(each) for name, each in ran.outputs.items()}
        outputs = [(name, each.dtype.str, each.shape) for name, each in ran.outputs.items()]
        if any(each.dtype.hasobject for each in arrays.values()):
            return {"error": "outputs that are no numbers", "kind": "RunError"}, ()
        made = {"outputs": outputs, "compute_ms": ran.compute_ms, "settled": ran.settled}
        return made, [each.data.cast("B") for each in arrays.values() if each.nbytes]


class RayRunner:
    """A `Runner` whose work is done by a replica."""

    def __init__(self, source: Source, options: ClusterOptions) -> None:
        import ray

        self._ray = ray
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._channel: Channel | None = None  # None: tensors travel through Ray
        self._actor = (
            ray.remote(Replica)
            .options(
                num_cpus=max(options.runtime.threads, 1) if options.runtime else 1,
                num_gpus=options.gpus_per_replica,
                max_restarts=0,  # a new one is started, wherever there is room
                scheduling_strategy="SPREAD",
            )
            .remote(source, self._token)
        )

    def wait(self) -> None:
        """Until it can be used; raises what keeps it from that."""
        try:
            address = self._ray.get(self._actor.ready.remote(), timeout=START_S)
        except self._ray.exceptions.RayError as error:
            self.close()
            raise RunError(f"a replica did not start: {_last_line(error)}") from None
        try:
            self._channel = connect(address, self._token, CONNECT_S)
        except OSError as error:
            reason = f"no way to {address[0]}:{address[1]} ({error}); tensors travel through Ray"
            _log.warning("slower replica", extra={"reason": reason})

    def run(self, work: Work) -> Ran:
        if self._channel is None:
            return self._through_ray(work)
        header = {"point": work.point, "codec": work.codec, "shapes": work.shapes}
        try:
            self._channel.patience(RUN_S)
            self._channel.send(header, work.tensors)
            made, parts = self._channel.receive()
            if "error" not in made:
                return _ran(made, parts)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.close()
            raise RunnerGone(f"a replica is gone ({type(error).__name__})") from None
        raise _blamed(str(made.get("kind")), str(made["error"]))

    def _through_ray(self, work: Work) -> Ran:
        # arrays of bytes: taken into shared memory with one copy, and out of it with none
        tensors = [np.frombuffer(each, np.uint8) for each in work.tensors]
        errors = self._ray.exceptions
        try:
            ran: Ran = self._ray.get(
                self._actor.run.remote(work.point, work.codec, work.shapes, *tensors),
                timeout=RUN_S,
            )
        except errors.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, CansError) else RunError(_last_line(error)) from None
        except (errors.RayError, ConnectionError, TimeoutError) as error:
            self.close()
            raise RunnerGone(f"a replica is gone ({type(error).__name__})") from None
        return ran

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        with suppress(Exception):  # it is gone already, or the cluster is
            self._ray.kill(self._actor)


def _ran(made: Header, parts: Parts) -> Ran:
    left = iter(parts)
    outputs = {}
    for name, dtype, shape in made["outputs"]:
        wanted = np.dtype(dtype)
        data = next(left) if np.prod(shape) else memoryview(b"")
        outputs[str(name)] = np.frombuffer(data, wanted).reshape(shape)
    return Ran(outputs, float(made["compute_ms"]), bool(made["settled"]))


def _blamed(kind: str, said: str) -> CansError:
    """The error that a replica's answer names, if it is one of ours."""
    found = getattr(own_errors, kind, None)
    if isinstance(found, type) and issubclass(found, CansError):
        with suppress(TypeError):  # of those that need more than words
            return found(said)
    return RunError(said)


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip()[:_LONGEST_ERROR] if lines else type(error).__name__
