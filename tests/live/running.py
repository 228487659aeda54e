"""A server in a thread of the test, and devices that keep their state in temporary folders."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cans.learning import Hyperparameters, policy_named
from cans.live.server.accepting.accepted import AcceptedModels
from cans.live.server.model_folder import ModelFolder
from cans.live.server.server import EdgeServer, ServerOptions
from cans.live.split import SplitModel
from cans.live.store import Store
from cans.live.wire.terms import Terms


def terms(policy: str = "fedlinucb-dw", **more: Any) -> Terms:
    hyperparameters = more.pop("hyperparameters", Hyperparameters(offline_runs=2))
    return Terms(policy_named(policy), hyperparameters, **more)


class Running:
    """An `EdgeServer` with its own event loop."""

    def __init__(
        self,
        models: Sequence[SplitModel],
        options: ServerOptions,
        folder: ModelFolder | None = None,
        accepted: AcceptedModels | None = None,
    ) -> None:
        self._folder, self._accepted = folder, accepted
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._error: BaseException | None = None
        self.server: EdgeServer
        self._thread = threading.Thread(target=self._main, args=(models, options), daemon=True)
        self._thread.start()
        self._started.wait(120)
        if self._error is not None:
            raise self._error

    def _main(self, models: Sequence[SplitModel], options: ServerOptions) -> None:
        async def main() -> None:
            try:
                async with EdgeServer(models, options, self._folder, self._accepted) as self.server:
                    self._started.set()
                    await self._stop.wait()
            except BaseException as error:
                self._error = error
            finally:
                self._started.set()

        self._loop.run_until_complete(main())
        self._loop.close()

    @classmethod
    def of(cls, *models: SplitModel, **options: Any) -> Running:
        options.setdefault("terms", terms())
        options.setdefault("listen", "127.0.0.1:0")
        options.setdefault("drain_seconds", 2.0)
        options.setdefault("books", False)  # tests keep accounts of what devices say
        folder, accepted = options.pop("folder", None), options.pop("accepted", None)
        return cls(models, ServerOptions(**options), folder, accepted)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def store(self) -> Store:
        return self.server.pools._store

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(30)
            assert not self._thread.is_alive(), "the server did not stop"


@contextmanager
def running(*models: SplitModel, **options: Any) -> Iterator[Running]:
    server = Running.of(*models, **options)
    try:
        yield server
    finally:
        server.stop()
