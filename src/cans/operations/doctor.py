"""`cans doctor`: what this machine has, what it lacks, and what to do about it."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from cans import __version__

GOOD, NOTE, BAD = "good", "note", "bad"
_NEEDED = ("numpy", "onnx", "onnxruntime", "grpcio", "protobuf", "zstandard", "typer", "rich")
_EXTRAS = {
    "server": ("psycopg", "prometheus-client", "grpcio-health-checking", "grpcio-reflection"),
    "dashboard": ("starlette", "uvicorn"),
    "sim": ("numba", "matplotlib"),
    "plan": ("networkx",),
    "image": ("pillow",),
    "certs": ("cryptography",),
}


class Finding(NamedTuple):
    """One thing that was looked at."""

    about: str
    state: str  # good, note (works, with a remark) or bad (must be repaired)
    found: str
    advice: str = ""


def examine(port: int = 7070, server: str | None = None) -> list[Finding]:
    """Everything there is to say of this machine; looks, and changes nothing."""
    checks: list[Callable[[], Iterator[Finding]]] = [
        _python,
        _packages,
        _extras,
        _providers,
        _cores,
        _memory,
        _architecture,
        _folder,
        _clock,
        _privileges,
        lambda: _port(port),
    ]
    found = [finding for check in checks for finding in check()]
    if server is not None:
        found.extend(_server(server))
    return found


# --- programs and packages ---


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    good = sys.version_info >= (3, 11)
    advice = "" if good else "install Python 3.11 or newer"
    yield Finding("python", GOOD if good else BAD, version, advice)
    yield Finding("cans", GOOD, __version__)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _packages() -> Iterator[Finding]:
    missing = [name for name in _NEEDED if not _version(name)]
    versions = ", ".join(f"{name} {_version(name)}" for name in _NEEDED if _version(name))
    if missing:
        yield Finding("packages", BAD, f"missing: {', '.join(missing)}", "pip install cans-edge")
    else:
        yield Finding("packages", GOOD, versions)


def _extras() -> Iterator[Finding]:
    for extra, packages in _EXTRAS.items():
        missing = [name for name in packages if not _version(name)]
        if missing:
            yield Finding(
                f"extra {extra}",
                NOTE,
                f"missing: {', '.join(missing)}",
                f"if you want it: pip install 'cans-edge[{extra}]'",
            )
        else:
            versions = ", ".join(f"{name} {_version(name)}" for name in packages)
            yield Finding(f"extra {extra}", GOOD, versions)


def _providers() -> Iterator[Finding]:
    try:
        import onnxruntime
    except ImportError as error:
        yield Finding("providers", BAD, f"onnxruntime does not load: {error}", "reinstall it")
        return
    names = list(onnxruntime.get_available_providers())
    advice = ""
    if names in (["CPUExecutionProvider"], ["AzureExecutionProvider", "CPUExecutionProvider"]):
        advice = "for a GPU: pip install onnxruntime-gpu (Jetson: NVIDIA's own wheel)"
    yield Finding("providers", GOOD, ", ".join(names), advice)


# --- the machine ---


def _cores() -> Iterator[Finding]:
    cores, allowed = os.cpu_count() or 1, len(os.sched_getaffinity(0))
    quota = _quota()
    usable = min([allowed] + ([quota] if quota else []))
    text = f"{cores} cores, {allowed} may be used"
    if quota and quota < allowed:
        advice = f"a container quota allows {quota:g}: serve with --workers {max(int(quota), 1)}"
        yield Finding("threads", NOTE, f"{text}, quota {quota:g}", advice)
        return
    threads = os.environ.get("OMP_NUM_THREADS")
    if threads and threads.isdigit() and int(threads) > usable:
        yield Finding(
            "threads",
            NOTE,
            f"{text}, OMP_NUM_THREADS={threads}",
            "unset OMP_NUM_THREADS: more threads than cores slow every inference",
        )
        return
    yield Finding("threads", GOOD, text)


def _quota() -> float | None:
    """Cores that a control group allows; None: all."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        return None


def _memory() -> Iterator[Finding]:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (OSError, ValueError):
        return
    small = total < 1.0
    advice = "small models, or `cans device --no-local`" if small else ""
    yield Finding("memory", NOTE if small else GOOD, f"{total:.1f} GB", advice)


def _architecture() -> Iterator[Finding]:
    machine = platform.machine()
    if machine in ("aarch64", "arm64"):
        yield Finding(
            "processor",
            GOOD,
            machine,
            "set the governor to performance for steady latencies; a Pi that is too hot "
            "slows down, which the fleet learns as a slower device",
        )
    elif machine.startswith("arm"):
        yield Finding(
            "processor",
            BAD,
            machine,
            "onnxruntime has no wheels for 32-bit ARM: install a 64-bit system",
        )
    else:
        yield Finding("processor", GOOD, machine)


def _folder() -> Iterator[Finding]:
    from cans.live.device.start.statefile import default_folder

    folder = default_folder("doctor").parent
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    writable = os.access(nearest, os.W_OK)
    advice = "" if writable else "give --state DIR: without it a device learns anew at every start"
    yield Finding("state folder", GOOD if writable else BAD, str(folder), advice)


def _clock() -> Iterator[Finding]:
    synchronised = Path("/run/systemd/timesync/synchronized").exists()
    year = _year()
    if year < 2024:
        yield Finding(
            "clock", BAD, f"the year is {year}", "set the clock: certificates are not valid yet"
        )
    elif synchronised:
        yield Finding("clock", GOOD, "synchronised")
    else:
        yield Finding(
            "clock",
            GOOD,
            f"year {year}, synchronisation not known",
            "TLS needs a right clock; learning goes by the server's",
        )


def _year() -> int:
    from time import gmtime

    return gmtime().tm_year


def _privileges() -> Iterator[Finding]:
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        yield Finding("privileges", GOOD, "root: the testbed can shape links in namespaces")
    else:
        yield Finding(
            "privileges",
            GOOD,
            "no root: the testbed paces links itself (loopback)",
            "run `cans testbed run` as root for shaped links",
        )


def _port(port: int) -> Iterator[Finding]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("0.0.0.0", port))
        except OSError as error:
            yield Finding(
                f"port {port}",
                NOTE,
                error.strerror or str(error),
                "a server here needs another port: cans serve --listen 0.0.0.0:7071",
            )
            return
    yield Finding(f"port {port}", GOOD, "free")


# --- a server ---


def _server(server: str) -> Iterator[Finding]:
    from cans.errors import InputError

    host, colon, port = server.rpartition(":")
    if not colon or not re.fullmatch(r"\d{1,5}", port):
        raise InputError(f"--server must be HOST:PORT, not {server!r}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=5.0):
            yield Finding("server", GOOD, f"{server} takes connections")
    except (OSError, OverflowError) as error:
        yield Finding(
            "server",
            BAD,
            f"{server}: {error}",
            "is `cans serve` running there, and does the firewall let the port in?",
        )
