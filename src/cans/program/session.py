"""`cans.InferenceSession`: an onnxruntime session that an edge server helps.

It is an onnxruntime session, so that everything about it is as before: inputs, metadata, profiling,
I/O bindings, exceptions. Only `run` and `run_async` look first whether its device can answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import PathLike
from threading import Lock
from typing import Any, Unpack
from weakref import finalize

import onnxruntime

from cans.errors import InputError
from cans.learning.constraints import Constraints
from cans.live.device.device import Device
from cans.live.device.options import DeviceKeywords
from cans.live.device.reporting.report import Report
from cans.models.codecs.codec import all_codecs
from cans.program.helper import Accepted, Helper, model_name

_log = logging.getLogger("cans.session")
_REMOTE = "AzureExecutionProvider"
RUNTIME_KEYWORDS = ("disabled_optimizers", "enable_fallback", "read_config_from_model")


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """`onnxruntime.InferenceSession` with the help of a server.

    `server` and `type` are those of `cans.Device`, and so is every further keyword. Tensors travel
    lossless unless `constraints` allow more, and a server that lacks the model is given it if it
    takes models (unless `send_model=False`). `wait=False` returns at once: the session runs locally
    until its device has started. Safe to use from several threads.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | PathLike[str],
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        *,
        server: str | None,
        type: str = "auto",
        wait: bool = True,
        disabled_optimizers: Sequence[str] | None = None,
        enable_fallback: int = 1,
        read_config_from_model: int | None = None,
        **options: Unpack[DeviceKeywords],
    ) -> None:
        unknown = options.keys() - DeviceKeywords.__annotations__
        if unknown:
            raise TypeError(f"InferenceSession has no keyword {min(unknown)!r}")
        config = {"read_config_from_model": read_config_from_model}
        super().__init__(
            path_or_bytes, sess_options, providers, provider_options,
            disabled_optimizers=disabled_optimizers, enable_fallback=enable_fallback,
            **(config if read_config_from_model is not None else {}),  # else the environment says
        )  # fmt: skip
        self._helper: Helper | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._making_threads = Lock()
        if server is None:
            return
        if not server:
            raise InputError("server must be HOST:PORT")
        if self._provider != "CPUExecutionProvider":
            _log.warning("%s runs locally: %s", model_name(path_or_bytes), self.local_because)
        else:
            options.setdefault("constraints", Constraints(allow_codec=lossless_codecs()))
            options.setdefault("send_model", True)
            inputs = self.get_inputs()
            is_open = any(not isinstance(n, int) for each in inputs for n in each.shape)
            names = frozenset(each.name for each in inputs if is_open)
            make = partial(Device, server, type=type)
            self._helper = Helper(
                path_or_bytes, _Plain(self._sess), server, make, options, wait, names
            )
            finalize(self, self._helper.close)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> Any:
        """What onnxruntime's `run` gives, from the server or from here."""
        helper = self._helper
        accepted = self._accepted(helper, output_names, input_feed, run_options)
        outputs = None if helper is None or accepted is None else helper.infer(accepted)
        if outputs is None:
            return super().run(output_names, input_feed, run_options)
        return [outputs[name] for name in output_names or self._output_names()]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[Any, Any, str], None],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """The same from another thread, which calls `callback(results, user_data, error)`."""
        helper = self._helper
        accepted = self._accepted(helper, output_names, input_feed, run_options)
        if helper is None or accepted is None:
            super().run_async(output_names, input_feed, callback, user_data, run_options)
            return
        with self._making_threads:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(2, thread_name_prefix="cans-run-async")
        plain, names = super().run, list(output_names or self._output_names())

        def work() -> None:
            try:
                outputs, error = helper.infer(accepted), ""
                made = plain(names, input_feed) if outputs is None else [outputs[n] for n in names]
            except Exception as failure:  # the callback is told, as onnxruntime tells it
                made, error = [], str(failure)
            callback(made, user_data, error)

        self._threads.submit(work)

    def _accepted(
        self, helper: Helper | None, names: Any, feed: Any, run_options: Any
    ) -> Accepted | None:
        """What the device can be asked, if it can be asked at all. Names in a string are what
        onnxruntime refuses."""
        if helper is None or run_options is not None or not isinstance(feed, dict):
            return None
        return None if isinstance(names, str) else helper.accepted(names, feed)

    @property
    def _provider(self) -> str:
        """What executes the model. The first of "all there are" (onnxruntime's own builds have it)
        executes nothing here: it sends whole models to a service that they name."""
        return str(next(each for each in self.get_providers() if each != _REMOTE))

    def _output_names(self) -> list[str]:
        return [each.name for each in self.get_outputs()]

    @property
    def last(self) -> Report | None:
        """The last inference that the device answered, explained."""
        return self._helper.last if self._helper is not None else None

    @property
    def local_because(self) -> str:
        """Why this session runs locally; empty while its device helps."""
        if self._helper is None:
            return f"it runs on {self._provider}"
        return self._helper.reason

    def close(self) -> None:
        """Let the device go; the session goes on locally."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.close()


class _Plain:
    """What runs the model when nobody helps. Not the session itself, whose `run` asks the device,
    and which could never be let go if its own device held it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def run(self, names: Sequence[str], feeds: Mapping[str, Any]) -> Any:
        return self._inner.run(list(names), feeds, None)


def lossless_codecs() -> frozenset[str]:
    """Those after which tensors are what they were."""
    return frozenset(name for name, codec in all_codecs().items() if not codec.lossy)
