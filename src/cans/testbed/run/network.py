"""Where processes live and how fast their links are: namespaces with `tc tbf`, or loopback.

Namespaces shape everything a device sends and receives, and lose packets in both directions where
they arrive: a lost packet has taken its time on the link. On loopback the devices pace themselves:
an upload takes as long as its bytes would; the small answers are not shaped. There are no packets
to lose there: what is lost is sent again, so that a link with loss carries less.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from cans.errors import InputError, RunError

BURST = "4kb"  # larger ones let short messages pass unshaped
QUEUE = "200ms"
PREFIX = "cans-"


class Network(Protocol):
    """A place for one server address and a number of devices."""

    name: str
    host: str

    def server_prefix(self) -> list[str]: ...
    def device_prefix(self, device: int) -> list[str]: ...
    def free_port(self) -> int: ...
    def set_rate(self, device: int, mbps: float) -> None: ...
    def pace_of(self, device: int) -> float | None:
        """What the device must pace itself to; None: its link is shaped already."""

    def close(self) -> None: ...


class Loopback:
    """One machine, devices that pace themselves; needs no privileges."""

    name = "loopback, paced by the devices"
    host = "127.0.0.1"

    def __init__(self, loss: Mapping[int, float]) -> None:
        self._loss = loss
        self._rates: dict[int, float] = {}
        self._used: set[int] = set()

    def server_prefix(self) -> list[str]:
        return []

    def device_prefix(self, device: int) -> list[str]:
        return []

    def free_port(self) -> int:
        while True:
            with socket.socket() as found:
                found.bind((self.host, 0))
                port = int(found.getsockname()[1])
            if port not in self._used:
                self._used.add(port)
                return port

    def set_rate(self, device: int, mbps: float) -> None:
        self._rates[device] = mbps

    def pace_of(self, device: int) -> float | None:
        rate = self._rates.get(device)
        return None if rate is None else goodput(rate, self._loss.get(device, 0.0))

    def close(self) -> None:
        pass


class Namespaces:
    """A namespace for the servers, one for each device, and a shaped veth between them."""

    name = "network namespaces, shaped by tc tbf"
    host = "10.77.0.1"

    def __init__(self, devices: int, loss: Mapping[int, float]) -> None:
        self._id = f"{PREFIX}{os.getpid()}-{secrets.token_hex(2)}"
        self._server = f"{self._id}-s"
        self._made: list[str] = []
        self._port = 7100
        self._shaped: set[int] = set()
        if devices > 250:
            raise InputError("namespaces hold at most 250 devices")
        remove_stale_namespaces()
        try:
            self._add(self._server)
            self._ip(self._server, "link add br0 type bridge")
            self._ip(self._server, f"addr add {self.host}/24 dev br0")
            self._ip(self._server, "link set br0 up")
            for device in range(devices):
                self._connect(device, loss.get(device, 0.0))
        except BaseException:
            self.close()
            raise

    def _add(self, name: str) -> None:
        self._made.append(name)
        _run("ip", "netns", "add", name)
        self._ip(name, "link set lo up")

    def _connect(self, device: int, loss: float) -> None:
        name, peer = self._device(device), f"d{device}"
        self._add(name)
        self._ip(self._server, f"link add {peer} type veth peer name eth0 netns {name}")
        self._ip(self._server, f"link set {peer} master br0 up")
        address = f"10.77.0.{device + 2}"
        self._ip(name, f"addr add {address}/24 dev eth0")
        self._ip(name, "link set eth0 up")
        if loss > 0:
            self._drop(name, "-i eth0", loss)
            self._drop(self._server, f"-s {address}", loss)

    def _drop(self, namespace: str, which: str, share: float) -> None:
        """Of what arrives; every packet by its own chance."""
        rule = f"-A INPUT {which} -m statistic --mode random --probability {share:f} -j DROP"
        _run("ip", "netns", "exec", namespace, "iptables", *rule.split())

    def _device(self, device: int) -> str:
        return f"{self._id}-d{device}"

    def _ip(self, namespace: str, words: str) -> None:
        _run("ip", "-n", namespace, *words.split())

    def server_prefix(self) -> list[str]:
        return ["ip", "netns", "exec", self._server]

    def device_prefix(self, device: int) -> list[str]:
        return ["ip", "netns", "exec", self._device(device)]

    def free_port(self) -> int:
        self._port += 1
        return self._port

    def set_rate(self, device: int, mbps: float) -> None:
        verb = "change" if device in self._shaped else "add"
        self._shaped.add(device)
        for namespace, end in ((self._device(device), "eth0"), (self._server, f"d{device}")):
            tbf = f"qdisc {verb} dev {end} root tbf rate {mbps * 1e6:.0f}bit burst {BURST}"
            _run("tc", "-n", namespace, *tbf.split(), "latency", QUEUE)

    def pace_of(self, device: int) -> float | None:
        return None

    def close(self) -> None:
        """Deleting a namespace takes its links with it."""
        for name in reversed(self._made):
            with suppress(RunError):
                _run("ip", "netns", "del", name)
        self._made.clear()


def remove_stale_namespaces() -> None:
    """Those of a testbed that was killed before it could clean up."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for line in listed.stdout.splitlines():
        name = line.split()[0] if line.strip() else ""
        if name.startswith(PREFIX) and is_left_over(name.removeprefix(PREFIX)):
            with suppress(RunError):
                _run("ip", "netns", "del", name)


def is_left_over(name: str) -> bool:
    """Whether `PID-...` names something whose process no longer exists."""
    number = name.partition("-")[0]
    return number.isdigit() and not os.path.exists(f"/proc/{number}")


def open_network(kind: str, devices: int, loss: Mapping[int, float]) -> Network:
    """The network that was asked for; `auto` takes namespaces where privileges allow."""
    if kind == "auto":
        kind = "namespaces" if can_shape() else "loopback"
    if kind == "loopback":
        return Loopback(loss)
    if any(loss.values()) and not can_lose():
        raise InputError("loss in namespaces needs iptables: install it, or network = 'loopback'")
    if not can_shape():
        raise InputError("namespaces need root, ip and tc; use network = 'loopback'")
    return Namespaces(devices, loss)


def goodput(mbps: float, loss: float) -> float:
    """What a link carries when everything lost is sent again."""
    return mbps * (1 - loss)


def can_lose() -> bool:
    """May namespaces lose packets? The kernel's netem would do too, but not every kernel has it."""
    return shutil.which("iptables") is not None


def can_shape() -> bool:
    """May this process make namespaces and shape links in them?"""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        return False
    name = f"{PREFIX}{os.getpid()}-try"
    try:
        _run("ip", "netns", "add", name)
    except RunError:
        return False
    try:
        shape = "qdisc add dev lo root tbf rate 1mbit burst 4kb latency 1ms"
        _run("tc", "-n", name, *shape.split())
    except RunError:
        return False
    finally:
        with suppress(RunError):
            _run("ip", "netns", "del", name)
    return True


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RunError(f"{' '.join(words)}: {done.stderr.strip() or 'failed'}")
