"""A stream of requests: several are on their way at a time, and results come in order.

The next front-end runs while the last request is on the link. No more than `in_flight` frames are
taken from the source before the first of them is answered; with `latest` a thread takes them as
they come, and those that are stale when a place is free are dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from threading import Condition
from typing import Generic, TypeVar

from cans.errors import InputError
from cans.models.run import background

Frame = TypeVar("Frame")
Answer = TypeVar("Answer")


class Stream(Generic[Frame, Answer]):
    """Results of a source of frames, for `for` and `async for`; to be iterated once."""

    def __init__(
        self,
        submit: Callable[[Frame], Future[Answer]],
        frames: Iterable[Frame],
        in_flight: int,
        latest: bool,
    ) -> None:
        if in_flight < 1:
            raise InputError("in_flight must be at least 1")
        self._submit = submit
        self._in_flight = in_flight
        self._latest = _Latest(frames) if latest else None
        self._frames = iter(self._latest or frames)

    @property
    def dropped(self) -> int:
        """Frames that were stale before there was a place for them; 0 without `latest`."""
        return self._latest.dropped if self._latest is not None else 0

    def __iter__(self) -> Iterator[Answer]:
        pending: deque[Future[Answer]] = deque()
        try:
            for frame in self._frames:
                pending.append(self._submit(frame))
                if len(pending) >= self._in_flight:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for each in pending:
                each.cancel()

    async def __aiter__(self) -> AsyncIterator[Answer]:
        answers, over = iter(self), object()
        while True:
            answer = await asyncio.to_thread(next, answers, over)
            if answer is over:
                return
            yield answer  # type: ignore[misc]


class _Latest(Generic[Frame]):
    """The newest frame of a source that does not wait, such as a camera."""

    def __init__(self, frames: Iterable[Frame]) -> None:
        self._condition = Condition()
        self._newest: list[Frame] = []
        self._over = False
        self._error: BaseException | None = None
        self.dropped = 0
        background.start(lambda: self._take(frames), "cans-frames")

    def _take(self, frames: Iterable[Frame]) -> None:
        try:
            for frame in frames:
                with self._condition:
                    self.dropped += len(self._newest)
                    self._newest = [frame]
                    self._condition.notify()
                if background.ending.is_set():
                    break
        except BaseException as error:
            self._error = error
        with self._condition:
            self._over = True
            self._condition.notify()

    def __iter__(self) -> Iterator[Frame]:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._newest or self._over)
                if not self._newest:
                    if self._error is not None:
                        raise self._error
                    return
                frame = self._newest.pop()
            yield frame
