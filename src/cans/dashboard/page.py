"""The page as a web application: a few files, one stream of events, two documents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from cans.dashboard.access import Access, App
from cans.dashboard.broadcast import Broadcast
from cans.live.server.fleet.recorder import Recorder
from cans.live.server.fleet.status import device_document

STATIC = Path(__file__).parent / "static"
MOST_STREAMS = 64
Learning = Callable[[], dict[str, Any]]


def page(recorder: Recorder, learning: Learning, token: str | None) -> tuple[App, Broadcast]:
    """The application and what feeds it; `learning` says what the pools know, in human units."""
    broadcast = Broadcast(recorder)

    async def index(_: Request) -> FileResponse:
        return FileResponse(STATIC / "index.html")

    async def stream(_: Request) -> StreamingResponse | PlainTextResponse:
        if broadcast.streams >= MOST_STREAMS:
            return PlainTextResponse("too many people look at this page", 503)
        return StreamingResponse(broadcast.follow(), media_type="text/event-stream")

    async def device(request: Request) -> JSONResponse:
        name = request.query_params.get("name", "")
        with recorder.lock:
            record = recorder.devices.get(name)
            if record is None:
                return JSONResponse({"error": "no such device"}, 404)
            return JSONResponse(device_document(record, recorder.now()))

    async def learned(_: Request) -> JSONResponse:
        found = await asyncio.to_thread(learning)
        return JSONResponse({**found, "trend": list(broadcast.trend)})

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        ticking = asyncio.create_task(broadcast.run())
        yield
        ticking.cancel()

    application = Starlette(
        routes=[
            Route("/", index),
            Route("/api/stream", stream),
            Route("/api/device", device),
            Route("/api/learning", learned),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        lifespan=lifespan,
    )
    return Access(application, token), broadcast
