"""What the page is sent: everything once, then what has changed, the same bytes to every stream.

A new choice or state, and events, are sent at the next tick; latencies of devices that go on as
before once a second, which is how often they tell of them.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from cans.live.server.fleet.device_record import DeviceRecord
from cans.live.server.fleet.recorder import Recorder
from cans.live.server.fleet.status import event_document, fleet_row, rounds, totals

TICK_SECONDS = 0.4  # a change of point is to show within a second
CALM_SECONDS = 1.0  # between two messages about devices whose choice and state are as before
SNAPSHOT_ROUNDS = 60  # inferences of each device, for its sparkline
SNAPSHOT_EVENTS = 200
MOST_BEHIND = 40  # ticks that a stream may lag before it is ended (the browser comes back)
TREND_SECONDS, MOST_TREND = 2.0, 450  # a sample of the totals so often; a quarter of an hour


class _Seen(NamedTuple):
    """What a device was when the streams were last told of it."""

    version: int  # of its record
    counted: int  # inferences
    what: tuple[str, int | None]  # state and choice: a change is sent at once

    @classmethod
    def of(cls, record: DeviceRecord, now: float) -> _Seen:
        return cls(record.version, record.counted, (record.state(now), record.row))


_UNSEEN = _Seen(-1, 0, ("", None))


class Broadcast:
    """Follows the recorder while anyone looks. Belongs to the page's event loop."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._streams: set[asyncio.Queue[bytes | None]] = set()
        self._seen: dict[str, _Seen] = {}  # of each device, what was sent last
        self._calm_at = 0.0
        self._told = 0
        self.trend: deque[dict[str, Any]] = deque(maxlen=MOST_TREND)
        self._trend_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def streams(self) -> int:
        return len(self._streams)

    async def run(self) -> None:
        """Tick until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.tick()

    def tick(self) -> None:
        self._sample()
        if not self._streams:
            return
        self._recorder.digest()
        data = self._delta()
        if data is None:
            return
        for queue in list(self._streams):
            if queue.qsize() >= MOST_BEHIND:
                self._streams.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(data)

    async def follow(self) -> AsyncIterator[bytes]:
        """The events of one stream: a snapshot first, then every change."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        yield b"retry: 1000\n\n"
        if not self._streams:
            self._remember()  # nobody looked until now: changes count from here
        self._streams.add(queue)
        try:
            yield _event("snapshot", self.snapshot())
            while True:
                data: bytes | None = b": still here\n\n"
                with suppress(TimeoutError):
                    async with asyncio.timeout(15.0):
                        data = await queue.get()
                if data is None:
                    return
                yield data
        finally:
            self._streams.discard(queue)

    def end(self) -> None:
        """Let every stream end by itself; may be called from any thread."""
        for queue in list(self._streams):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(queue.put_nowait, None)

    # --- what is sent ---

    def snapshot(self) -> dict[str, Any]:
        recorder = self._recorder
        with recorder.lock:
            now = recorder.now()
            return {
                "totals": totals(recorder),
                "devices": [_row(each, now, SNAPSHOT_ROUNDS) for each in recorder.devices.values()],
                "events": [event_document(each) for each in recorder.events][-SNAPSHOT_EVENTS:],
            }

    def _delta(self) -> bytes | None:
        recorder = self._recorder
        with recorder.lock:
            now = recorder.now()
            everything = now - self._calm_at >= CALM_SECONDS
            self._calm_at = now if everything else self._calm_at
            rows = []
            for name, record in recorder.devices.items():
                before, seen = self._seen.get(name, _UNSEEN), _Seen.of(record, now)
                if seen.what == before.what and not (everything and seen.version != before.version):
                    continue
                self._seen[name] = seen
                rows.append(_row(record, now, record.counted - before.counted))
            gone = [name for name in self._seen if name not in recorder.devices]
            for name in gone:
                del self._seen[name]
            new, self._told = recorder.told - self._told, recorder.told
            events = [event_document(each) for each in recorder.events][-new:] if new else []
            if not (rows or gone or events):
                return None
            body = {"totals": totals(recorder), "devices": rows, "gone": gone, "events": events}
        return _event("delta", body)

    def _remember(self) -> None:
        recorder = self._recorder
        with recorder.lock:
            now = recorder.now()
            self._seen = {name: _Seen.of(each, now) for name, each in recorder.devices.items()}
            self._told = recorder.told

    def _sample(self) -> None:
        now = self._recorder.now()
        if now - self._trend_at >= TREND_SECONDS:
            self._trend_at = now
            with self._recorder.lock:
                found = totals(self._recorder)
            wanted = ("time", "latency_ms", "per_second", "saved_local_s", "saved_offload_s")
            self.trend.append({key: found[key] for key in wanted})


def _row(record: DeviceRecord, now: float, count: int) -> dict[str, Any]:
    """A device with its last so many inferences, and how many there were: a stream that began in
    between has some of them already."""
    count = min(max(count, 0), SNAPSHOT_ROUNDS, len(record.rounds))
    fresh = rounds(list(islice(record.rounds, len(record.rounds) - count, None)))
    return {**fleet_row(record, now), "counted": record.counted, "rounds": fresh}


def _event(kind: str, body: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(body, separators=(',', ':'))}\n\n".encode()
