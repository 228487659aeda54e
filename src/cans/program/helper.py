"""The device behind a session: made beside the program, asked when a feed fits, never in the way.

Whatever it cannot do, for whatever reason, the session does locally as if there were no device.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from os import PathLike
from pathlib import Path
from threading import Event, Lock
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from cans.errors import CansError
from cans.live.device.device import Device
from cans.live.device.options import DeviceKeywords
from cans.live.device.reporting.report import Report
from cans.live.split import TensorSpec
from cans.models.run import background
from cans.models.run.executor import Executor

_log = logging.getLogger("cans.session")
_STARTING = "its device is still starting"
Feeds = Mapping[str, Any]
Accepted = tuple[Device, dict[str, NDArray[Any]]]


class Helper:
    """Makes a device for a model and asks it for answers."""

    def __init__(
        self,
        source: str | bytes | PathLike[str],
        whole: Any,
        server: str,
        make: Callable[..., Device],
        options: DeviceKeywords,
        wait: bool,
        open_inputs: frozenset[str],
    ) -> None:
        """`open_inputs`: all inputs of a file that leaves dimensions open, which the server knows
        or the first feed shows; none: it leaves none open."""
        self._whole = whole  # onnxruntime's session, for runs that the device keeps to itself
        self._server, self._make, self._options = server, make, options
        self._open_inputs = open_inputs
        self._waits_for_feed = bool(open_inputs) and options.get("shape") is None
        self._feed_seen = Lock()
        self._wait = wait
        self._device: Device | None = None
        self._inputs: dict[str, TensorSpec] = {}
        self._outputs: frozenset[str] = frozenset()
        self._closed = Event()
        self.reason = _STARTING  # why the session runs locally
        self.name, self._model = model_name(source), self._file(source)
        if self._waits_for_feed:  # a server that knows the shapes has the model already
            options = {**options, "send_model": False}
        self._begin(options, wait)

    def _begin(self, options: DeviceKeywords, wait: bool) -> None:
        starting = background.start(lambda: self._start(options), "cans-session")
        if wait:
            starting.join()

    def _file(self, source: str | bytes | PathLike[str]) -> str:
        """The file of the model; bytes become one while they are needed."""
        if not isinstance(source, bytes):
            return os.path.abspath(source)  # the program may change its folder
        folder = tempfile.mkdtemp(prefix="cans-session-")
        finalize(self, shutil.rmtree, folder, ignore_errors=True)
        # a server is asked for a model by digest; one of open dimensions has no other name
        path = Path(folder) / f"{sha256(source).hexdigest()}.onnx"
        path.write_bytes(source)
        return str(path)

    def _start(self, options: DeviceKeywords) -> None:
        try:
            # The program gets the answers of its own file, whatever else the server has by then.
            options = {**options, "follow": False}
            device = self._make(model=self._model, **options)
        except CansError as error:
            self._stay_local(str(error))
            return
        except Exception as error:  # a program that ran without us must run with us
            self._stay_local(f"{type(error).__name__}: {error}")
            return
        if isinstance(device.model.executor, Executor):
            device.model.executor.adopt_whole(self._whole)
        self._inputs = {each.name: each for each in device.model.inputs}
        self._outputs = frozenset(device.model.outputs)
        self.reason = "" if device.joined else "no server answers"
        self._device = device
        if self._closed.is_set():
            self.close()
        elif self.reason:
            _log.warning("%s runs locally for now: no server answers", self.name)
        else:
            _log.info("%s runs with the help of %s", self.name, self._server)

    def _stay_local(self, reason: str) -> None:
        self.reason = " ".join(reason.split())
        if self._waits_for_feed:
            self.reason = "the shapes of its inputs are open until the first feed"
            _log.info("%s runs locally: %s", self.name, self.reason)
        elif not (self._closed.is_set() or background.ending.is_set()):
            _log.warning("%s runs locally: %s", self.name, self.reason)

    @property
    def last(self) -> Report | None:
        return self._device.last if self._device is not None else None

    def accepted(self, names: Sequence[str] | None, feeds: Feeds) -> Accepted | None:
        """What the device can be asked; None: the session should do it, or say what is wrong."""
        device = self._device
        if device is None or not device.joined:
            if self._waits_for_feed and device is None and self.reason != _STARTING:
                self._begin_with(feeds)
                device = self._device  # if it was waited for
            if device is None or not device.joined:
                return None
        if feeds.keys() != self._inputs.keys() or (names and not self._outputs.issuperset(names)):
            return None
        arrays: dict[str, NDArray[Any]] = {}
        for name, value in feeds.items():
            array = self._fitting(name, value)
            if array is None:
                return None  # the runtime says what is wrong with it, or runs it
            arrays[name] = array
        return device, arrays

    def infer(self, accepted: Accepted) -> dict[str, Any] | None:
        """All outputs, or None: the session should do it."""
        device, arrays = accepted
        try:
            return device.infer(arrays)
        except CansError as error:
            _log.debug("%s: %s; run locally", self.name, error)
            return None

    def _fitting(self, name: str, value: Any) -> NDArray[Any] | None:
        """A feed as an array, if it is one that the model was cut for. Lists are fine: the runtime
        takes them too."""
        wanted = self._inputs[name]
        if isinstance(value, list):
            try:
                value = np.array(value, dtype=wanted.dtype)
            except (TypeError, ValueError, OverflowError):
                return None
        is_array = isinstance(value, np.ndarray) and value.dtype == wanted.dtype
        return value if is_array and wanted.fits(value.shape) else None

    def _begin_with(self, feeds: Feeds) -> None:
        """The server does not know the shapes that the file leaves open: these are those."""
        with self._feed_seen:
            known = feeds.keys() == self._open_inputs and all(
                isinstance(each, np.ndarray) for each in feeds.values()
            )
            if not self._waits_for_feed or not known or self._closed.is_set():
                return
            self._waits_for_feed = False
        self.reason = _STARTING
        shape = {name: each.shape for name, each in feeds.items()}
        self._begin({**self._options, "shape": shape}, self._wait)

    def close(self) -> None:
        self._closed.set()
        device, self._device = self._device, None
        if device is not None:
            device.close()


def model_name(source: str | bytes | PathLike[str]) -> str:
    """What to call a model in the log."""
    return "a model in memory" if isinstance(source, bytes) else Path(source).name
