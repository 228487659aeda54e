"""The page beside a running server: in its process, in a thread and an event loop of its own."""

from __future__ import annotations

import socket
import threading
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from cans.dashboard.addresses import check_address, is_loopback
from cans.errors import InputError, RunError

if TYPE_CHECKING:
    from cans.live.server.server import EdgeServer

START_SECONDS = 10.0


class PageThread:
    """Serves the page until `close`."""

    def __init__(self, server: Any, broadcast: Any, listener: socket.socket, base: str) -> None:
        self._server = server
        self._broadcast = broadcast
        self._listener = listener
        self.port: int = listener.getsockname()[1]
        self.address = f"{base}:{self.port}/"
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)
        self._thread.start()
        until = monotonic() + START_SECONDS
        while not server.started and self._thread.is_alive() and monotonic() < until:
            sleep(0.01)
        if not server.started:
            raise RunError("the page could not be started")

    def _run(self) -> None:
        self._server.run(sockets=[self._listener])

    def close(self) -> None:
        self._server.should_exit = True
        self._broadcast.end()
        self._thread.join(5.0)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(5.0)
        self._listener.close()


def show_page(server: EdgeServer, listen: str, token: str | None) -> PageThread:
    """Show a server on HOST:PORT (port 0: any free one); with its certificate beyond loopback."""
    host, port = check_address(listen, token)
    try:
        import uvicorn

        from cans.dashboard.page import page
        from cans.live.server.fleet.learning import LearningView
    except ImportError:
        raise InputError(
            "--dashboard needs more packages; pip install 'cans-edge[dashboard]'"
        ) from None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
    except OSError as error:
        listener.close()
        raise RunError(f"cannot show the page on {listen}: {error.strerror}") from None
    application, broadcast = page(server.recorder, LearningView(server).to_dict, token)
    tls = None if is_loopback(host) else server.options.tls
    config = uvicorn.Config(
        application,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        limit_concurrency=256,
        h11_max_incomplete_event_size=16384,
    )
    scheme = "http" if tls is None else "https"
    return PageThread(uvicorn.Server(config), broadcast, listener, f"{scheme}://{host}")
