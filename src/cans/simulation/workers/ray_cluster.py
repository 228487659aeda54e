"""Workers of a Ray cluster that exists."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from cans.errors import InputError, Unreachable
from cans.simulation.workers.workers import WorkerLost, check_reachable

Result = TypeVar("Result")


def connect(address: str, option: str) -> tuple[Any, bool]:
    """The library, connected, and whether it was not before; `local` starts a cluster that ends
    with this process."""
    # A driver that does not reach the head for a minute would end this process.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(365 * 24 * 3600))
    try:
        import ray
    except ImportError:
        raise InputError(f"{option} needs Ray: pip install 'cans-edge[cluster]'") from None
    if ray.is_initialized():
        return ray, False
    if address not in ("local", "auto"):
        check_reachable(address, option, "Ray cluster")
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=False if address == "local" else None,
        )
    except ConnectionError:
        known = "RAY_AUTH_MODE" in os.environ
        hint = "" if known else "; one that asks for a token needs RAY_AUTH_MODE=token"
        raise Unreachable(f"no Ray cluster answers at {address}{hint}") from None
    except (ValueError, RuntimeError) as error:
        raise InputError(f"{option} {address!r}: {error}") from None
    return ray, True


class RayCluster:
    """A Ray cluster, by its address (`local`: one that lives as long as this)."""

    def __init__(self, address: str) -> None:
        self._ray, self._connected_here = connect(address, "--ray")
        self._call = self._ray.remote(max_retries=3)(_call)

    def count(self) -> int:
        return max(int(self._ray.cluster_resources().get("CPU", 1)), 1)

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        future: Future[Result] = self._call.remote(function, *arguments).future()
        return future

    def result(self, future: Future[Result]) -> Result:
        from ray import exceptions

        try:
            return future.result()
        except exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except (exceptions.WorkerCrashedError, exceptions.NodeDiedError) as error:
            raise WorkerLost(f"workers of the Ray cluster died: {type(error).__name__}") from None

    def close(self) -> None:
        if self._connected_here:
            self._ray.shutdown()


def _call(function: Callable[..., Result], *arguments: Any) -> Result:
    return function(*arguments)
