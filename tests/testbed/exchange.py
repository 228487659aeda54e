"""Two small programs that talk across a shaped link."""

from __future__ import annotations

import subprocess
import sys

from cans.testbed.run.network import Namespaces


def exchange(
    network: Namespaces, device: int, serving: str, sending: str, number: int
) -> tuple[str, str]:
    """Run `serving` on the server, which prints `ready` when it listens, and `sending` on a device;
    returns the next line of the one and all that the other printed."""
    words = [sys.executable, "-c", serving, network.host, str(number)]
    with subprocess.Popen(
        [*network.server_prefix(), *words], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        words = [sys.executable, "-c", sending, network.host, str(number)]
        sent = subprocess.run(
            [*network.device_prefix(device), *words], capture_output=True, text=True, check=True
        )
        return server.stdout.readline(), sent.stdout
