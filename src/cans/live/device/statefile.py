"""The state of a device on its disk: one small file, replaced as a whole, owned by one process.

A replaced file survives a killed process without an fsync; what must also survive a power cut (a
sequence number that is about to be used) is written with one.
"""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

from cans.errors import InputError, RemoteProtocolError
from cans.live.wire.state import DeviceState, read, written

_log = logging.getLogger(__name__)


class StateFile:
    """Keeps a `DeviceState`; the folder is locked until `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "state"
        self._next = folder / "state.next"
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
            return read(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except RemoteProtocolError as error:
            aside = self._path.with_suffix(".damaged")
            self._path.replace(aside)
            _log.error("state put aside", extra={"file": str(aside), "reason": str(error)})
            return None

    def keep(self, state: DeviceState, durable: bool = False) -> None:
        data = written(state)
        descriptor = os.open(self._next, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._next.replace(self._path)
        if durable:
            self._sync_folder()

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        os.close(self._lock)


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
