"""Writing files under names that someone else chose: into one folder, and nowhere else."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from cans.errors import RemoteProtocolError, RunError

_log = logging.getLogger(__name__)
MOST_FILES = 10_000
LONGEST_NAME = 1024


def check_names(names: Sequence[str], taken: str) -> None:
    """Relative, plain, each once, none inside another, and not the one that is taken.

    >>> check_names(["w.bin", "layers/0.bin"], "model.onnx")
    >>> check_names(["../w.bin"], "model.onnx")
    Traceback (most recent call last):
        ...
    cans.errors.RemoteProtocolError: a file of a model cannot be called '../w.bin'
    """
    if len(names) > MOST_FILES:
        raise RemoteProtocolError(f"{len(names)} files of one model; at most {MOST_FILES}")
    all_names = {*names, taken}
    for name in names:
        path = PurePosixPath(name)
        plain = name == str(path) and name.isprintable() and "\\" not in name
        inside = path.name and not path.is_absolute() and ".." not in path.parts
        apart = not any(str(each) in all_names for each in path.parents)
        if not (plain and inside and apart and len(name) <= LONGEST_NAME):
            raise RemoteProtocolError(f"a file of a model cannot be called {name[:64]!r}")
    if len(all_names) < len(names) + 1:
        raise RemoteProtocolError("two files of a model have the same name")


def size_of(path: Path) -> int:
    """Bytes of a file; 0: there is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(found.st_mode):
        raise RunError(f"{path} is not a file of its own; remove it")
    return found.st_size


@contextmanager
def appending(path: Path, folder: Path) -> Iterator[BinaryIO]:
    """A file below this folder, made if need be; never one elsewhere that a link leads to."""
    size_of(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        raise RunError(f"{path.parent} leads out of its folder; remove it")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o644), "ab") as file:
        yield file


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Several devices on one machine may want the same files: one writes, the others wait."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.warning("another device writes there; waiting", extra={"folder": str(folder)})
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
