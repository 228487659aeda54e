"""Where the page may be shown: on this machine to everyone, elsewhere only with a token."""

from __future__ import annotations

from ipaddress import ip_address

from cans.errors import InputError

SHORTEST_TOKEN = 8  # characters


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_address(listen: str, token: str | None) -> tuple[str, int]:
    """Host and port of the page; beyond loopback a token is a must.

    >>> check_address("127.0.0.1:7080", None)
    ('127.0.0.1', 7080)
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise InputError(f"--dashboard must be HOST:PORT, not {listen!r}")
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise InputError("a token of the page needs at least 8 characters")
    if token is None and not is_loopback(host):
        raise InputError(
            f"others can reach {host}: give --dashboard-token, or listen on 127.0.0.1:{port}"
        )
    return host, int(port)
