"""Who watches which pools, and when each is told, by the rules of `arithmetic.exchange`.

A change that is news wakes every watcher of its pool. Any other wakes only those that may be told
of such a change now (they have a token left); the others look again when their next token is due.
So the work of a merge does not grow with the number of devices that watch. Many watchers are not
woken in one go: a request that comes meanwhile would wait for all of their messages. While some
wait for that, an answer that goes to one of them takes its news along, which costs no message: a
device that uses the server is one inference late at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TypeVar

from cans.learning import Download, PoolKey
from cans.learning.arithmetic.exchange import Editions, Watcher
from cans.live.wire.messages import Known

WOKEN_AT_ONCE = 10  # the others after that, evenly, within four seconds:
WAKING_PAUSE_S, WAKING_PAUSES = 0.02, 200

Read = Callable[[PoolKey], Download | None]
Key = TypeVar("Key")


class Subscription:
    """One stream of news."""

    def __init__(self, watcher: Watcher, news: News) -> None:
        self._watcher = watcher
        self._news = news
        self._wake = asyncio.Event()
        self._called = False

    @property
    def keys(self) -> list[PoolKey]:
        return list(self._watcher.known)

    @property
    def device(self) -> str:
        return self._watcher.device

    def changed(self, pool: Download, urgent: bool, sender: str | None) -> None:
        """One of its pools is now this; `wake` has it told."""
        self._watcher.changed(pool, urgent, sender)

    def wake(self) -> None:
        self._wake.set()

    def call(self) -> None:
        """Send a message, even if no pool has changed: it has something else to say."""
        self._called = True
        self._wake.set()

    def called(self) -> bool:
        """Whether it was called since this was asked last."""
        called, self._called = self._called, False
        return called

    async def wait(self, now: Callable[[], float]) -> None:
        """Until there may be something to tell."""
        seconds = self._watcher.wait(now())
        if seconds is None and self._watcher.tokens < 1.0:
            seconds = self._watcher.next_token(now())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    def due(self, now: float) -> list[Download]:
        """The pools to tell of now."""
        self._news.look_again(self, now)
        found = []
        for key in self._watcher.due(now):
            pool = self._news.read(key)
            if pool is not None:
                found.append(pool)
                self._watcher.told(key, (pool.epoch, pool.round))
        if self._watcher.tokens < 1.0:
            self._news.satisfied(self)
        return found

    def may_hear(self) -> bool:
        """Whether it may be told of a change that is no news."""
        return self._watcher.tokens >= 1.0

    def refill(self, now: float) -> None:
        self._watcher.refill(now)


class News:
    """All streams of news of a server. All methods belong to one event loop."""

    def __init__(self, read: Read, ridge: float) -> None:
        self.read = read  # a pool as it is now, if it is remembered
        self._editions = Editions(ridge)
        self._watching: dict[PoolKey, set[Subscription]] = {}
        self._hungry: dict[PoolKey, set[Subscription]] = {}  # that may hear of any change
        self._of_device: dict[str, set[Subscription]] = {}
        self._to_wake: dict[Subscription, None] = {}  # in this order
        self._waking = False

    @property
    def watched(self) -> list[PoolKey]:
        return list(self._watching)

    def devices(self) -> list[str]:
        """All that watch."""
        return list(self._of_device)

    def pools_of(self, device: str) -> set[PoolKey]:
        """What a device watches."""
        return {key for each in self._of_device.get(device, ()) for key in each.keys}

    def call(self, device: str) -> None:
        """Send one of a device's streams a message, whatever its pools do."""
        for each in self._of_device.get(device, ()):
            each.call()
            return

    @contextmanager
    def subscribed(self, device: str, known: Known, now: float) -> Iterator[Subscription]:
        made = Subscription(Watcher.of(device, known, now), self)
        for key in made.keys:
            self._begin(key)
            self._watching.setdefault(key, set()).add(made)
            self._hungry.setdefault(key, set()).add(made)
        self._of_device.setdefault(device, set()).add(made)
        try:
            yield made
        finally:
            for key in made.keys:
                _discard(self._watching, key, made)
                _discard(self._hungry, key, made)
            _discard(self._of_device, device, made)
            self._to_wake.pop(made, None)

    def _begin(self, key: PoolKey) -> None:
        """Who begins to watch hears of a pool as it is: that is its first edition, not what comes
        after it."""
        pool = self.read(key)
        if pool is not None and not self._editions.number(key):
            self._editions.note(pool)

    def changed(self, pool: Download, sender: str | None) -> None:
        """A pool is now this, by an upload of this sender (None: not known whose)."""
        watching = self._watching.get(pool.key)
        if not watching:
            return
        if self._editions.note(pool):
            self._told(watching, pool, True, sender)
            return
        theirs = self._of_device.get(sender, ()) if sender is not None else ()
        hungry = {*self._hungry.get(pool.key, ()), *(x for x in theirs if x in watching)}
        self._told(hungry, pool, False, sender)

    def _told(
        self, whom: set[Subscription], pool: Download, urgent: bool, sender: str | None
    ) -> None:
        for each in whom:
            each.changed(pool, urgent, sender)
            self._to_wake[each] = None
        if self._to_wake and not self._waking:
            self._waking = True
            self._wake(WOKEN_AT_ONCE)

    def _wake(self, most: int) -> None:
        for each in list(islice(self._to_wake, most)):
            del self._to_wake[each]
            each.wake()
        if self._to_wake:
            some = 1 + len(self._of_device) // WAKING_PAUSES
            asyncio.get_running_loop().call_later(WAKING_PAUSE_S, self._wake, some)
        else:
            self._waking = False

    def riding(self, device: str, now: float) -> list[Download]:
        """What a device waits to be told, for an answer that goes to it anyway."""
        if not self._to_wake:
            return []
        waiting = [each for each in self._of_device.get(device, ()) if each in self._to_wake]
        found = []
        for each in waiting:
            del self._to_wake[each]
            found += each.due(now)
            each.wake()  # it has nothing to say now; when it may next has changed
        return found

    def satisfied(self, subscription: Subscription) -> None:
        """It is told of nothing more until its next token, unless it is news."""
        for key in subscription.keys:
            _discard(self._hungry, key, subscription)

    def look_again(self, subscription: Subscription, now: float) -> None:
        """One that was satisfied and has a token again catches up with what it was not told."""
        subscription.refill(now)
        if not subscription.may_hear():
            return
        for key in subscription.keys:
            hungry = self._hungry.setdefault(key, set())
            if subscription in hungry:
                continue
            hungry.add(subscription)
            pool = self.read(key)
            if pool is not None:
                subscription.changed(pool, False, None)
                subscription.wake()

    def wake_all(self) -> None:
        for each in self._of_device.values():
            for one in each:
                one.wake()


def _discard(sets: dict[Key, set[Subscription]], key: Key, one: Subscription) -> None:
    found = sets.get(key)
    if found is not None:
        found.discard(one)
        if not found:
            del sets[key]
