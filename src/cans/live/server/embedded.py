"""`cans.Server`: a server inside a Python program, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

from cans.errors import InputError
from cans.learning import Policy
from cans.learning.policies import DEFAULT_POLICY
from cans.live.server.accepting.accepted import AcceptedModels, AcceptOptions
from cans.live.server.server import EdgeServer, ServerOptions
from cans.live.split import Cutting, SplitModel
from cans.live.splitting import load_model, split
from cans.live.wire.terms import Terms
from cans.own_policy import find_policy


class Server:
    """Serves back-ends of models until it is closed.

    `models` are ONNX files or names of built-in models. `listen` is HOST:PORT (port 0: any free
    one), `store` is where pools live (sqlite:FILE, postgresql://..., or memory:), `policy` how the
    fleet learns, and `codecs` how crossing tensors may travel. Devices may give models of their own
    if there is a folder for them, `accept_models`.
    """

    def __init__(
        self,
        models: Sequence[str | PathLike[str] | SplitModel],
        *,
        listen: str = "127.0.0.1:0",
        store: str = "memory:",
        policy: str | Policy | None = None,
        codecs: Sequence[str] = ("float32",),
        accept_models: str | PathLike[str] | None = None,
    ) -> None:
        if not models and accept_models is None:
            raise InputError("a server needs at least one model, or a folder for those of devices")
        chosen = policy if isinstance(policy, Policy) else find_policy(policy or DEFAULT_POLICY)
        self._options = ServerOptions(
            Terms(chosen, fresh_pools=chosen.fresh), listen, store, drain_seconds=2.0
        )
        self._host = listen.rpartition(":")[0]
        self._models = [_split(each, codecs) for each in models]
        self._accepted: AcceptedModels | None = None
        if accept_models is not None:
            self._accepted = AcceptedModels(
                AcceptOptions(Path(accept_models)),
                lambda path, cutting: split(load_model(path, cutting), cutting, codecs=codecs),
            )
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._port = 0
        self._thread = threading.Thread(target=self._main, name="cans-server", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    @property
    def address(self) -> str:
        """HOST:PORT to give to devices."""
        return f"{self._host}:{self._port}"

    def close(self) -> None:
        """Finish the requests that run, keep what was learned, and stop."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def _main(self) -> None:
        async def serve() -> None:
            try:
                async with EdgeServer(
                    self._models, self._options, accepted=self._accepted
                ) as server:
                    self._port = server.port
                    self._started.set()
                    await self._end.wait()
            except BaseException as error:
                self._error = error
            finally:
                self._started.set()

        self._loop.run_until_complete(serve())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _split(model: str | PathLike[str] | SplitModel, codecs: Sequence[str]) -> SplitModel:
    if isinstance(model, SplitModel):
        return model
    cutting = Cutting()
    return split(load_model(model, cutting), cutting, codecs=codecs, to_send=True)
