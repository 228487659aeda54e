"""A slow link in a process of its own: what delays bytes takes no interpreter from the devices."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.fleet_server import ROOT


class SlowLink:
    """Every reply of the server at this port arrives so much later."""

    def __init__(self, port: int, round_trip_s: float) -> None:
        command = [sys.executable, "-m", "benchmarks.slow_link", str(port), str(round_trip_s)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self._child.stdout is not None
        self.address = self._child.stdout.readline().strip()

    def close(self) -> None:
        self._child.communicate(timeout=60)  # it ends with its input


def carry(port: int, round_trip_s: float) -> None:
    from tests.live.proxy import Proxy

    proxy = Proxy(port)
    proxy.reply_delay = round_trip_s
    print(proxy.address, flush=True)
    sys.stdin.read()
    proxy.close()


if __name__ == "__main__":
    carry(int(sys.argv[1]), float(sys.argv[2]))
