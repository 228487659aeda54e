"""600 KB at 10 Mbps take 480 ms: by pacing on loopback, and through a shaped namespace."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from cans.live.device.hooks import Hooks
from cans.testbed.run.network import Namespaces, can_shape
from tests.testbed.exchange import exchange

SIZE, MBPS = 600_000, 10.0
IDEAL_MS = SIZE * 8e-3 / MBPS

RECEIVE = """
import socket, sys
with socket.create_server((sys.argv[1], 7000)) as server:
    print("ready", flush=True)
    other, _ = server.accept()
    left = int(sys.argv[2])
    while left:
        left -= len(other.recv(65536))
    other.sendall(b"x")
"""
SEND = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 7000)) as there:
    start = time.perf_counter()
    there.sendall(bytes(int(sys.argv[2])))
    there.recv(1)
    print((time.perf_counter() - start) * 1e3)
"""


def test_userspace_pacing_is_within_ten_percent() -> None:
    """As a device does it: wait for as long as the bytes would take, then send them."""

    def receive(other: socket.socket) -> None:
        left = SIZE
        while left:
            left -= len(other.recv(65536))
        other.sendall(b"x")

    near, far = socket.socketpair()
    with near, far:
        receiver = threading.Thread(target=receive, args=(far,))
        receiver.start()
        start = time.perf_counter()
        Hooks(pace_mbps=MBPS).pace(SIZE)
        near.sendall(bytes(SIZE))
        assert near.recv(1) == b"x"
        total_ms = (time.perf_counter() - start) * 1e3
        receiver.join()
    assert total_ms == pytest.approx(IDEAL_MS, rel=0.1)


def test_a_shaped_namespace_is_within_ten_percent() -> None:
    if not can_shape():
        pytest.skip("needs root, ip and tc")
    network = Namespaces(1, {})
    try:
        network.set_rate(0, 50.0)
        network.set_rate(0, MBPS)  # as in an experiment whose link changes
        _, sent = exchange(network, 0, RECEIVE, SEND, SIZE)
    finally:
        network.close()
    assert float(sent) == pytest.approx(IDEAL_MS, rel=0.1)
