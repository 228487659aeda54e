"""A TCP proxy that can do to a connection what networks do: delay, go silent, break."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from math import inf


class Proxy:
    """Between 127.0.0.1:port and a target; one event loop in a thread of its own."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.reply_delay = 0.0  # seconds, from the server to the device
        self.upload_rate = inf  # bytes a second, from the device to the server
        self._silent = threading.Event()
        self._connections = self._dead_before = 0
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        started = threading.Event()
        self.port = 0

        def main() -> None:
            asyncio.set_event_loop(self._loop)
            server = self._loop.run_until_complete(
                asyncio.start_server(self._serve, "127.0.0.1", 0)
            )
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            self._loop.run_forever()
            server.close()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.close()

        self._thread = threading.Thread(target=main, daemon=True)
        self._thread.start()
        started.wait(10)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        while self._silent.is_set():
            await asyncio.sleep(0.01)
        number = self._connections
        self._connections += 1
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self._writers.add(far_writer)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(
                self._pump(reader, far_writer, False, number),
                self._pump(far_reader, writer, True, number),
            )

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: bool, number: int
    ) -> None:
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sending = asyncio.ensure_future(self._send(chunks, writer, number, reply))
        with suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(1 << 16):
                delay = self.reply_delay if reply else 0.0
                chunks.put_nowait((self._loop.time() + delay, data))
        chunks.put_nowait((0.0, b""))
        with suppress(OSError):
            await sending
        writer.close()
        self._writers.discard(writer)

    async def _send(
        self,
        chunks: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
        number: int,
        reply: bool,
    ) -> None:
        """Each chunk at its time: a delay is not a lack of bandwidth."""
        free = 0.0  # when the bytes before are through
        while True:
            at, data = await chunks.get()
            if not data:
                return
            await asyncio.sleep(at - self._loop.time())
            if not reply and self.upload_rate < inf:
                free = max(free, at) + len(data) / self.upload_rate
                await asyncio.sleep(free - self._loop.time())
            while self._silent.is_set() or number < self._dead_before:
                await asyncio.sleep(0.01)
            writer.write(data)
            await writer.drain()

    def silence(self) -> None:
        """Nothing gets through, and nobody is told: a cable pulled out."""
        self._silent.set()

    def half_open(self) -> None:
        """As `silence`, and connections that were open stay dead after `restore`: whatever was
        between the two has forgotten them."""
        self._dead_before = self._connections
        self._silent.set()

    def restore(self) -> None:
        self._silent.clear()

    def cut(self) -> None:
        """Reset every connection."""

        def close() -> None:
            for writer in list(self._writers):
                writer.transport.abort()
            self._writers.clear()

        self._loop.call_soon_threadsafe(close)

    def close(self) -> None:
        self.restore()
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
