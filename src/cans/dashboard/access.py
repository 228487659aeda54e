"""Who may look at the page, and what a browser may do with it.

On loopback everyone of this machine may, if the browser says that it asks for this machine (a page
elsewhere cannot point its own name at us). Beyond loopback a token is asked for: once in the
address, then in a cookie that scripts cannot read.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.responses import PlainTextResponse, RedirectResponse, Response

from cans.dashboard.addresses import is_loopback

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "cans_page"
_HEADERS = [
    (b"content-security-policy",
     b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
     b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]  # fmt: skip


class Access:
    """Lets requests in or not; read-only: nothing but GET and HEAD."""

    def __init__(self, app: App, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        answer: App = self._app if refusal is None else refusal
        await answer(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("this page is read-only", 405)
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if self._token is None:
            host = headers.get(b"host", "")
            name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
            return None if is_loopback(name) else PlainTextResponse("ask for localhost", 421)
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if given and self._right(given):
            answer = RedirectResponse(scope["path"] or "/", 303)
            secure = scope.get("scheme") == "https"
            answer.set_cookie(
                COOKIE, given, max_age=30 * 86400, httponly=True, samesite="strict", secure=secure
            )
            return answer
        bearer = headers.get(b"authorization", "").removeprefix("Bearer ")
        cookies: SimpleCookie = SimpleCookie(headers.get(b"cookie", ""))
        kept = cookies[COOKIE].value if COOKIE in cookies else ""
        if self._right(bearer) or self._right(kept):
            return None
        return PlainTextResponse("this page asks for a token: open it as /?token=TOKEN", 401)

    def _right(self, given: str) -> bool:
        assert self._token is not None
        return hmac.compare_digest(given.encode(), self._token.encode())
