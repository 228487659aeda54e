"""Asking a server what its fleet does, for `cans status` and `cans explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cans.errors import RunError, Unreachable

ASK_SECONDS = 10.0


def ask(
    server: str,
    device: str = "",
    most: int = 0,
    *,
    token: str | None = None,
    tls: bool = False,
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> dict[str, Any]:
    """The document that a server answers with; raises why not."""
    from cans.live.logs import silence_grpc

    silence_grpc()
    from cans.live.wire.account import StatusRequest
    from cans.live.wire.link import Link
    from cans.live.wire.tls import ClientTls, trouble

    wanted = tls or tls_ca is not None or tls_cert is not None or tls_key is not None
    secure = ClientTls(tls_ca, tls_cert, tls_key) if wanted else None
    link = Link(server, token=token, tls=secure)
    try:
        found = json.loads(link.status(StatusRequest(device, most), ASK_SECONDS))
    except Unreachable as error:
        raise Unreachable(trouble(server, secure) or str(error)) from None
    except ValueError:
        raise RunError(f"{server} answered with something that is no status") from None
    finally:
        link.close()
    if not isinstance(found, dict):
        raise RunError(f"{server} answered with something that is no status")
    return found
