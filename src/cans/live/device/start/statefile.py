"""The state of a device on its disk: a small file, replaced as a whole, owned by one process.

The server's terms are in a file beside it (`welcome`): they are large, and change when a server
says something new, not with every inference.

A replaced file survives a killed process without an fsync; what must also survive a power cut (a
sequence number that is about to be used) gets one, in a thread of its own. No request waits for a
disk: the agent writes when callers have gone on. An upload waits until its number is safe.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Condition, Thread

from cans.errors import InputError, RemoteProtocolError
from cans.live.wire.state import DeviceState, read, sealed, unsealed, written
from cans.models.run import background

_log = logging.getLogger(__name__)


_RETRY_SECONDS = 1.0


class StateWriter:
    """Keeps the latest state: written when that is asked for, and in the background where it must
    be safe from a power cut."""

    def __init__(self, file: StateFile, when_safe: Callable[[], None]) -> None:
        self._file = file
        self._when_safe = when_safe
        self._condition = Condition()
        self._unwritten: DeviceState | None = None  # the latest, unless the disk has it
        self._failing = False  # the disk did not take the last one: tried again
        self._asked = self._safe = 0  # how often something had to be made safe, and was
        self._closed = False
        self._thread = Thread(target=self._main, name="cans-state", daemon=True)
        self._thread.start()

    def keep(self, state: DeviceState, durable: bool) -> None:
        """Take this state, to be written by `write`; `durable`: at once, and it `waits` until the
        state is safe."""
        with self._condition:
            self._unwritten = state
            if durable:
                self._asked += 1
                self._condition.notify_all()

    @property
    def unwritten(self) -> bool:
        """Whether a killed process would lose something."""
        return self._unwritten is not None

    def write(self) -> None:
        """Write the latest state, if the disk has another."""
        with self._condition:
            self._write()

    @property
    def waits(self) -> bool:
        """Whether something that must be safe is not yet."""
        return self._safe < self._asked

    def flush(self, seconds: float = 5.0) -> bool:
        """Wait until what must be safe is; False: the disk does not take it."""
        with self._condition:
            return self._condition.wait_for(lambda: not self.waits, seconds)

    def close(self) -> None:
        """Try once more what is left."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        background.join_patiently(self._thread)

    def _main(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._closed or self.waits)
                self._write()
                if not self.waits:
                    return
                asked = self._asked
                written = self._unwritten is None
            if written and self._sync():
                with self._condition:
                    self._safe = asked
                    self._condition.notify_all()
                self._when_safe()
                continue
            with self._condition:
                if self._closed:
                    return
                self._condition.wait_for(lambda: self._closed, _RETRY_SECONDS)

    def _write(self) -> None:
        if self._unwritten is None:
            return
        try:
            self._file.keep(self._unwritten)
            self._unwritten, self._failing = None, False
        except OSError as error:
            if not self._failing:
                _log.error("cannot keep the state", extra={"reason": str(error)})
            self._failing = True

    def _sync(self) -> bool:
        try:
            self._file.sync()
        except OSError as error:
            _log.error("cannot keep the state", extra={"reason": str(error)})
            return False
        return True


class StateFile:
    """Keeps a `DeviceState`; the folder is locked until `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "state"
        self._welcome = folder / "welcome"
        self._kept_welcome = b""  # that the file beside holds
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InputError(f"cannot keep state in {folder}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise InputError(f"another device keeps its state in {folder}") from None

    def load(self) -> DeviceState | None:
        """What was kept, or None. A file that cannot be read is put aside: its device starts anew
        under a new incarnation, so that nothing is counted twice."""
        try:
            state = read(self._path.read_bytes())
            return state if state.welcome else replace(state, welcome=self._load_welcome())
        except FileNotFoundError:
            return None
        except RemoteProtocolError as error:
            aside = self._path.with_suffix(".damaged")
            self._path.replace(aside)
            _log.error("state put aside", extra={"file": str(aside), "reason": str(error)})
            return None

    def _load_welcome(self) -> bytes:
        """Empty if there is none that can be read: the next server says it again."""
        try:
            return unsealed(self._welcome.read_bytes())
        except FileNotFoundError:
            return b""
        except RemoteProtocolError as error:
            _log.warning("kept terms cannot be read", extra={"reason": str(error)})
            return b""

    def keep(self, state: DeviceState) -> None:
        """Replace what was kept."""
        if state.welcome != self._kept_welcome:
            _replace(self._welcome, sealed(state.welcome))
            self._kept_welcome = state.welcome
        _replace(self._path, written(replace(state, welcome=b"")))

    def sync(self) -> None:
        """Make what is kept, or something newer, safe from a power cut."""
        for path in (self._welcome, self._path, self.folder):
            if not path.exists():
                continue  # no server has said anything yet
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        os.close(self._lock)


def _replace(path: Path, data: bytes) -> None:
    view, following = memoryview(data), path.with_name(path.name + ".next")
    descriptor = os.open(following, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)
    following.replace(path)


def default_folder(what: str) -> Path:
    """Where a device keeps its state unless told otherwise."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "cans" / what


def free_slot(base: Path, most: int = 256) -> StateFile:
    """The first state folder below `base` that no other process owns: agents on one machine each
    find their own again."""
    for number in range(most):
        try:
            return StateFile(base / str(number))
        except InputError as error:
            if "another device" not in str(error):
                raise
    raise InputError(f"{most} devices already keep their state below {base}")
