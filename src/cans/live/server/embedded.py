"""`cans.Server`: a server inside a Python program, in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

from cans.errors import InputError
from cans.learning import Hyperparameters, Policy
from cans.learning.policies import DEFAULT_POLICY
from cans.live.server.accepting.accepted import AcceptedModels, AcceptOptions
from cans.live.server.server import EdgeServer, ServerOptions
from cans.live.split import Cutting, SplitModel
from cans.live.splitting import load_model, split, unsafe_points
from cans.live.wire.terms import Terms
from cans.live.wire.tls import ServerTls
from cans.models.run.runtime import RuntimeOptions
from cans.own_policy import find_policy

_Model = str | PathLike[str] | SplitModel


class Server:
    """Serves back-ends of models until it is closed.

    `models`: one or several, as ONNX files or names of built-in models. All that `cans serve` does
    beside serving (metrics, the live page, a folder that is followed, a cluster) is left to that
    command.
    """

    def __init__(
        self,
        models: _Model | Sequence[_Model],
        *,
        listen: str = "127.0.0.1:0",
        store: str = "memory:",
        policy: str | Policy | None = None,
        codecs: str | Sequence[str] = ("float32",),
        accept_models: str | PathLike[str] | None = None,
        hyperparameters: Hyperparameters | None = None,
        workers: int | None = None,
        threads: int = 1,
        batch: int = 1,
        provider: str | Sequence[str] = (),
        token_file: str | PathLike[str] | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """Listen, and serve from now on.

        listen: HOST:PORT; port 0: any free one. store: where pools live (sqlite:FILE,
        postgresql://..., or memory:). policy: how the fleet learns, by name or one of your own;
        None: cans. codecs: how crossing tensors may travel.
        accept_models: a folder for models that devices give; None: none are taken.
        hyperparameters: the numbers of the policy; None: the defaults.
        workers: back-ends that run at a time; None: one per core. threads: of one back-end; 0: all
        cores. batch: requests of one model and cut that may run together if they wait and that is
        faster; 1: none. provider: NAME[,KEY=VALUE] of what executes back-ends, or several in order.
        token_file: who may join, lines `device token [weight]`; None: everyone.
        tls: how to encrypt; None: not at all.
        """
        if isinstance(models, str | PathLike | SplitModel):
            models = (models,)
        codecs = (codecs,) if isinstance(codecs, str) else codecs
        if not models and accept_models is None:
            raise InputError("a server needs at least one model, or a folder for those of devices")
        chosen = policy if isinstance(policy, Policy) else find_policy(policy or DEFAULT_POLICY)
        terms = Terms(chosen, hyperparameters or Hyperparameters(), fresh_pools=chosen.fresh)
        self._options = ServerOptions(
            terms, listen, store, None if token_file is None else Path(token_file), tls,
            workers=(os.cpu_count() or 1) if workers is None else workers, drain_seconds=2.0,
            batch=batch,
        )  # fmt: skip
        self._options.warn_if_open(strict=False)
        self._host = listen.rpartition(":")[0]
        providers = (provider,) if isinstance(provider, str) else provider
        runtime = RuntimeOptions.parse(providers, threads)
        self._models = [_split(each, codecs, runtime) for each in models]
        self._accepted: AcceptedModels | None = None
        if accept_models is not None:
            self._accepted = AcceptedModels(
                AcceptOptions(Path(accept_models)),
                lambda path, cutting: split(
                    load_model(path, cutting), cutting, codecs=codecs, runtime=runtime
                ),
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


def _split(model: _Model, codecs: Sequence[str], runtime: RuntimeOptions) -> SplitModel:
    if isinstance(model, SplitModel):
        return model
    cutting = Cutting()
    loaded = load_model(model, cutting)
    return split(
        loaded, cutting, codecs=codecs, runtime=runtime, to_send=True,
        left_out=unsafe_points(loaded, cutting, runtime),
    )  # fmt: skip
