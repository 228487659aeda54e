"""A server of the toy model in a process of its own, with the terms that a user gets by default."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def cores() -> tuple[set[int], set[int]]:
    """One core for the clients and one for the servers, of which one is in use at a time; the same
    where there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return {allowed[0]}, {allowed[-1]}


def cpu_seconds(pid: int) -> float:
    """The processor time of a process so far, of all its threads."""
    clock = (~pid << 3) | 2  # as clock_getcpuclockid names the clock of a process
    return time.clock_gettime(clock)


class Served:
    """A running server, on these cores alone if any are named, and the processor time it used."""

    def __init__(self, policy: str, folder: Path, cores: set[int] | None = None) -> None:
        self.policy = policy
        command = [sys.executable, "-m", "benchmarks.fleet_server", policy,
                   str(folder / f"{policy}.sqlite")]  # fmt: skip
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        if cores is not None:
            os.sched_setaffinity(self.child.pid, cores)  # before it has started any thread
        assert self.child.stdout is not None
        self.port = int(self.child.stdout.readline())

    def cpu(self) -> float:
        """Seconds so far, of all its threads."""
        return cpu_seconds(self.child.pid)

    def stop(self) -> None:
        self.child.terminate()
        self.child.wait(60)
        assert self.child.stdout is not None
        self.child.stdout.close()


def serve(policy: str, store: str) -> None:
    from tests.live.toy import toy

    from cans.learning import policy_named
    from cans.live.server.server import ServerOptions
    from cans.live.server.server import serve as serve_models
    from cans.live.wire.terms import Terms

    chosen = policy_named(policy)
    terms = Terms(chosen, fresh_pools=chosen.fresh)
    options = ServerOptions(terms, "127.0.0.1:0", f"sqlite:{store}", queue=256)
    asyncio.run(serve_models([toy()], options, lambda made: print(made.port, flush=True)))


if __name__ == "__main__":
    serve(*sys.argv[1:])
