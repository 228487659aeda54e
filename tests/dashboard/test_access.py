"""Who may look, and what a browser is told it may do."""

from __future__ import annotations

import http.client
import json

import pytest

from cans.dashboard.addresses import check_address
from cans.errors import InputError
from tests.dashboard.shown import shown


def ask(port: int, path: str = "/", method: str = "GET", **headers: str):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers=headers)
    try:
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_loopback_needs_no_token_but_the_right_name() -> None:
    with shown() as page:
        port = page.page.port
        answer, body = ask(port)
        assert answer.status == 200
        assert b"<title>CANS</title>" in body
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert ask(port, Host=f"localhost:{port}")[0].status == 200
        assert ask(port, Host="evil.example")[0].status == 421
        assert ask(port, method="POST")[0].status == 405
        assert ask(port, "/api/device?name=nobody")[0].status == 404
        assert ask(port, "/static/../page.py")[0].status == 404
        assert ask(port, "/static/vendor/uPlot.LICENSE")[0].status == 200


def test_with_a_token_nothing_is_shown_without_it() -> None:
    with shown(token="a long secret") as page:
        port = page.page.port
        for path in ("/", "/api/stream", "/api/learning", "/static/main.js"):
            assert ask(port, path)[0].status == 401
        assert ask(port, "/?token=another-secret")[0].status == 401
        answer, _ = ask(port, "/?token=a%20long%20secret")
        assert answer.status == 303
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert ask(port, Cookie=cookie.split(";")[0], Host="edge-box:7080")[0].status == 200
        bearer = {"Authorization": "Bearer a long secret"}
        answer, body = ask(port, "/api/learning", **bearer)
        assert answer.status == 200
        assert json.loads(body)["policy"] == "cans"


@pytest.mark.parametrize(
    ("listen", "token", "reason"),
    [
        ("0.0.0.0:7080", None, "--dashboard-token"),
        ("edge-box:7080", None, "--dashboard-token"),
        ("0.0.0.0:7080", "short", "at least 8"),
        ("7080", None, "HOST:PORT"),
        ("127.0.0.1:99999", None, "HOST:PORT"),
    ],
)
def test_addresses_that_are_refused(listen, token, reason) -> None:
    with pytest.raises(InputError, match=reason):
        check_address(listen, token)
    assert check_address("0.0.0.0:7080", "a long secret") == ("0.0.0.0", 7080)
