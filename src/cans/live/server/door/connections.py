"""Open connections: how many of whom, and which are closed to make room.

gRPC accepts whatever connects and tells nobody. So this process looks at its own sockets from time
to time: a connection is known once a caller has spoken on it who may, and those that stay unknown
are closed, after a while or when their address has too many.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import monotonic
from urllib.parse import unquote

from cans.errors import Refused

_log = logging.getLogger(__name__)
Address = tuple[str, int]  # of the other side

IDLE_SECONDS = 10.0  # that a connection may stay unknown
GRACE_SECONDS = 2.0  # that it may, where its address has many
MOST_UNKNOWN = 64  # of one address
MOST_OF_ONE = 32  # known connections of one identity
RESERVED = 128  # descriptors for files, the store, sessions
SWEEP_SECONDS = 0.5
SWEEP_SHARE = 0.02  # of the time at most


def raise_descriptor_limit() -> int:
    """Allow this process as many descriptors as it may allow itself; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else max(soft, 1 << 16)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def address_of(peer: str) -> Address | None:
    """The address in gRPC's name of a peer; None: not one of the internet.

    >>> address_of("ipv4:10.0.0.7:5100"), address_of("ipv6:%5B::1%5D:5100"), address_of("unix:")
    (('10.0.0.7', 5100), ('::1', 5100), None)
    """
    kind, _, rest = peer.partition(":")
    host, _, port = unquote(rest).rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return _plain(host.strip("[]")), int(port)


def _plain(host: str) -> str:
    return host.removeprefix("::ffff:")


@dataclass
class _Connection:
    since: float  # when it was first seen, or last heard of
    identity: str = ""  # who has spoken on it; empty: nobody who may


class Connections:
    """Keeps account of connections to one port. All methods belong to one event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.closed = 0  # how many were, to make room
        self._all: dict[Address, _Connection] = {}
        self._of: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None

    # --- who speaks ---

    def known(self, peer: str, identity: str) -> None:
        """Somebody who may has spoken on this connection; `Refused` if they have too many."""
        address = address_of(peer)
        if address is None:
            return
        found = self._all.get(address)
        if found is None:
            found = self._all[address] = _Connection(monotonic())
        found.since = monotonic()
        if found.identity == identity:
            return
        if self._of[identity] >= MOST_OF_ONE and not self._forget_quietest(identity, found.since):
            raise Refused(
                f"{identity[:64]!r} has {MOST_OF_ONE} connections already; close some",
                "RESOURCE_EXHAUSTED",
            )
        self._leave(found)
        found.identity = identity
        self._of[identity] += 1

    def _forget_quietest(self, identity: str, now: float) -> bool:
        """Make room for another connection of this identity: the one that was quiet for longest is
        closed by the next sweep. A network that loses connections without a word leaves this side
        of them open, and must not shut their device out. False: all of them are in use."""
        mine = (each for each in self._all.values() if each.identity == identity)
        quietest = min(mine, key=lambda each: each.since)
        if now - quietest.since < GRACE_SECONDS:
            return False
        self._leave(quietest)
        quietest.identity, quietest.since = "", -inf
        return True

    def _leave(self, connection: _Connection) -> None:
        if connection.identity:
            self._of[connection.identity] -= 1
            if not self._of[connection.identity]:
                del self._of[connection.identity]

    # --- looking after them ---

    def start(self, port: int) -> None:
        self._task = asyncio.create_task(self._look(port))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _look(self, port: int) -> None:
        while True:
            begin = monotonic()
            self.sweep(port, begin)
            took = monotonic() - begin
            await asyncio.sleep(max(SWEEP_SECONDS, took / SWEEP_SHARE))

    def sweep(self, port: int, now: float) -> None:
        """Close what must be closed now."""
        sockets = _sockets(port)
        for address in self._all.keys() - sockets.keys():
            self._leave(self._all.pop(address))
        for address in sockets.keys() - self._all.keys():
            self._all[address] = _Connection(now)
        doomed = self._doomed(now)
        for address in doomed:
            if _shut(sockets[address], port, address):
                self.closed += 1
        if doomed:
            hosts = Counter(host for host, _ in doomed).most_common(3)
            _log.warning(
                "closed connections on which nobody spoke who may",
                extra={"connections": len(doomed), "open": len(self._all),
                       "addresses": ", ".join(f"{host} ({n})" for host, n in hosts)},
            )  # fmt: skip

    def _doomed(self, now: float) -> list[Address]:
        unknown = [
            (each.since, address) for address, each in self._all.items() if not each.identity
        ]
        unknown.sort(reverse=True)  # the youngest first
        excess = len(self._all) - self.most
        found, seen = [], Counter[str]()
        for i, (since, address) in enumerate(unknown):
            seen[address[0]] += 1
            age = now - since
            crowded = seen[address[0]] > MOST_UNKNOWN and age > GRACE_SECONDS
            if age > IDLE_SECONDS or crowded or len(unknown) - i <= excess:
                found.append(address)
        return found


def _sockets(port: int) -> dict[Address, int]:
    """Descriptors of this process that are connections to its port, by the other side."""
    found: dict[Address, int] = {}
    for name in os.listdir("/dev/fd"):
        peer = _peer(int(name), port)
        if peer is not None:
            found[peer] = int(name)
    return found


def _peer(descriptor: int, port: int) -> Address | None:
    try:
        each = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        if each.family not in (socket.AF_INET, socket.AF_INET6) or each.getsockname()[1] != port:
            return None
        host, number = each.getpeername()[:2]
        return _plain(host), number
    except OSError:  # it listens, or has just been closed
        return None
    finally:
        each.detach()


def _shut(descriptor: int, port: int, address: Address) -> bool:
    """End a connection; gRPC, whose descriptor it is, sees that and closes it."""
    if _peer(descriptor, port) != address:
        return False
    each = socket.socket(fileno=descriptor)
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    finally:
        each.detach()
    return True
