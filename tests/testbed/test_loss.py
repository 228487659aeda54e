"""`loss` of a link: packets in namespaces, both ways; on loopback a link that carries less."""

from __future__ import annotations

import pytest

from cans.errors import InputError
from cans.testbed.run import network
from cans.testbed.run.network import Loopback, Namespaces, can_lose, can_shape, open_network
from tests.testbed.exchange import exchange

PACKETS, LOSS = 4000, 0.2
DEVIATION = (LOSS * (1 - LOSS) / PACKETS) ** 0.5

# Counts what arrives, and answers every packet: two directions in one exchange.
ECHO = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
    here.bind((sys.argv[1], 7000))
    print("ready", flush=True)
    arrived = 0
    while True:
        data, sender = here.recvfrom(100)
        if data == b"end":
            print(arrived, flush=True)
            break
        arrived += 1
        here.sendto(data, sender)
"""
SEND = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
    here.connect((sys.argv[1], 7000))
    here.settimeout(0.05)
    answered = 0
    for number in range(int(sys.argv[2])):
        here.send(str(number).encode())
        if number % 100 == 99:
            try:
                while True:
                    here.recv(100)
                    answered += 1
            except TimeoutError:
                pass
    print(answered, flush=True)
    try:
        for _ in range(50):  # one of them arrives
            here.send(b"end")
    except ConnectionRefusedError:
        pass  # one has
"""


def test_namespaces_lose_packets_both_ways() -> None:
    if not can_shape():
        pytest.skip("needs root, ip and tc")
    if not can_lose():
        pytest.skip("needs iptables")
    made = Namespaces(2, {0: LOSS})
    try:
        arrived, answered = _exchange(made, 0)
        assert arrived / PACKETS == pytest.approx(1 - LOSS, abs=5 * DEVIATION)
        assert answered / arrived == pytest.approx(1 - LOSS, abs=6 * DEVIATION)
        assert _exchange(made, 1) == (PACKETS, PACKETS)  # the other link loses nothing
    finally:
        made.close()


def _exchange(made: Namespaces, device: int) -> tuple[int, int]:
    """How many packets arrived at the server, and how many of its answers came back."""
    made.set_rate(device, 100.0)
    arrived, answered = exchange(made, device, ECHO, SEND, PACKETS)
    return int(arrived), int(answered)


def test_on_loopback_a_link_with_loss_carries_less() -> None:
    made = Loopback({0: 0.1})
    for device in (0, 1):
        made.set_rate(device, 40.0)
    assert made.pace_of(0) == pytest.approx(36.0)
    assert made.pace_of(1) == 40.0


def test_without_iptables_namespaces_say_what_loss_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "can_shape", lambda: True)
    monkeypatch.setattr(network, "can_lose", lambda: False)
    with pytest.raises(InputError, match="install it, or network = 'loopback'"):
        open_network("auto", 1, {0: 0.1})
    monkeypatch.setattr(network, "can_shape", lambda: False)
    assert isinstance(open_network("auto", 1, {0: 0.1}), Loopback)
