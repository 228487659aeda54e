"""A stream of requests: several are on their way at a time, and results come in order.

The next front-end runs while the last request is on the link. No more than `in_flight` frames are
taken from the source before the first of them is answered, and an answer that is there is handed on
before another frame is taken. With `latest` a thread takes frames as they come, and those that are
stale when a place is free are dropped; then an answer does not wait for a frame at all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from threading import Condition
from typing import Any, Generic, TypeVar

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
        self._source: Iterator[Frame] = iter(() if latest else frames)

    @property
    def dropped(self) -> int:
        """Frames that were stale before there was a place for them; 0 without `latest`."""
        return self._latest.dropped if self._latest is not None else 0

    def __iter__(self) -> Iterator[Answer]:
        pending: deque[Future[Answer]] = deque()
        over = False
        try:
            while pending or not over:
                if pending and (over or len(pending) >= self._in_flight or pending[0].done()):
                    yield pending.popleft().result()
                    continue
                frames, over = self._next(pending[0] if pending else None)
                pending.extend(self._submit(each) for each in frames)
        finally:
            for each in pending:
                each.cancel()
            if self._latest is not None:
                self._latest.stop()

    def _next(self, first: Future[Answer] | None) -> tuple[list[Frame], bool]:
        """The next frame, or none: the source is over, or the first answer is there."""
        if self._latest is not None:
            return self._latest.take(first)
        for frame in self._source:
            return [frame], False
        return [], True

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
        self._over = self._stopped = False
        self._error: BaseException | None = None
        self.dropped = 0
        background.start(lambda: self._run(frames), "cans-frames")

    def _run(self, frames: Iterable[Frame]) -> None:
        try:
            for frame in frames:
                with self._condition:
                    self.dropped += len(self._newest)
                    self._newest = [frame]
                    self._condition.notify()
                if self._stopped or background.ending.is_set():
                    break
        except BaseException as error:
            self._error = error
        with self._condition:
            self._over = True
            self._condition.notify()

    def take(self, first: Future[Any] | None) -> tuple[list[Frame], bool]:
        """The newest frame, once there is one, and whether there will be no other; none: the
        source is over, or this answer is there first."""
        if first is not None:
            first.add_done_callback(self._wake)
        with self._condition:
            self._condition.wait_for(
                lambda: self._newest or self._over or (first is not None and first.done())
            )
            taken, self._newest = self._newest, []
            if self._over and not taken and self._error is not None:
                raise self._error
            return taken, self._over and not taken

    def _wake(self, _: object) -> None:
        with self._condition:
            self._condition.notify()

    def stop(self) -> None:
        """Nobody wants frames any more; the source is left at its next one."""
        self._stopped = True
