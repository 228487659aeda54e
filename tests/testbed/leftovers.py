"""What a run must not leave behind: processes, namespaces, temporary folders."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from cans.testbed.run.experiment_run import TEMPORARY


def descendants(pid: int) -> set[int]:
    """Every process below this one, by /proc."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(fields[1])
    found: set[int] = set()
    grown = True
    while grown:
        more = {child for child, parent in parents.items() if parent in {pid, *found}} - found
        grown = bool(more)
        found |= more
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that still run; a zombie does not."""
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.add(pid)
    return found


def gone(pids: set[int], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive(pids)


def folders(where: Path) -> set[Path]:
    return set(where.glob(f"{TEMPORARY}*"))


def namespaces(pid: int) -> list[str]:
    """Network namespaces that the testbed of this process has made."""
    try:
        done = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    return [line for line in done.stdout.splitlines() if line.startswith(f"cans-{pid}-")]


def temporary() -> Path:
    return Path(tempfile.gettempdir())
