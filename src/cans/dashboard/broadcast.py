"""What the page is sent: everything once, then what has changed, the same bytes to every stream."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import islice
from typing import Any

from cans.live.server.fleet.device_record import DeviceRecord
from cans.live.server.fleet.recorder import Recorder
from cans.live.server.fleet.status import event_document, fleet_row, rounds, totals

TICK_SECONDS = 0.4  # a change of point is to show within a second
SNAPSHOT_ROUNDS = 60  # inferences of each device, for its sparkline
SNAPSHOT_EVENTS = 200
MOST_BEHIND = 40  # ticks that a stream may lag before it is ended (the browser comes back)
TREND_SECONDS, MOST_TREND = 2.0, 450  # a sample of the totals so often; a quarter of an hour


class Broadcast:
    """Follows the recorder while anyone looks. Belongs to the page's event loop."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._streams: set[asyncio.Queue[bytes | None]] = set()
        self._seen: dict[str, tuple[int, int, str]] = {}  # version, rounds counted, state
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
                    data = await asyncio.wait_for(queue.get(), 15.0)
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
                "devices": [
                    {**fleet_row(each, now), "rounds": rounds(list(each.rounds)[-SNAPSHOT_ROUNDS:])}
                    for each in recorder.devices.values()
                ],
                "events": [event_document(each) for each in recorder.events][-SNAPSHOT_EVENTS:],
            }

    def _delta(self) -> bytes | None:
        recorder = self._recorder
        with recorder.lock:
            now = recorder.now()
            rows, before = [], self._seen
            new = recorder.told - self._told
            events = [event_document(each) for each in recorder.events][-new:] if new else []
            self._remember()
            for name, seen in self._seen.items():
                version, counted, state = before.get(name, (-1, 0, ""))
                if (version, state) != (seen[0], seen[2]):
                    record = recorder.devices[name]
                    fresh = _last(record, record.counted - counted)
                    rows.append({**fleet_row(record, now), "rounds": fresh})
            gone = [name for name in before if name not in self._seen]
            if not (rows or gone or events):
                return None
            body = {"totals": totals(recorder), "devices": rows, "gone": gone, "events": events}
        return _event("delta", body)

    def _remember(self) -> None:
        recorder = self._recorder
        with recorder.lock:
            now = recorder.now()
            self._seen = {
                name: (each.version, each.counted, each.state(now))
                for name, each in recorder.devices.items()
            }
            self._told = recorder.told

    def _sample(self) -> None:
        now = self._recorder.now()
        if now - self._trend_at >= TREND_SECONDS:
            self._trend_at = now
            with self._recorder.lock:
                found = totals(self._recorder)
            wanted = ("time", "latency_ms", "per_second", "saved_local_s", "saved_offload_s")
            self.trend.append({key: found[key] for key in wanted})


def _last(record: DeviceRecord, count: int) -> list[list[float]]:
    count = min(max(count, 0), SNAPSHOT_ROUNDS, len(record.rounds))
    start = len(record.rounds) - count
    return rounds(list(islice(record.rounds, start, None)))


def _event(kind: str, body: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(body, separators=(',', ':'))}\n\n".encode()
