"""Who calls, and which devices they may speak for.

Join tokens are a file of `device token` lines that may be edited while the server runs. A token may
be given as `sha256:HEX`, so that the file does not hold the secret itself; a device called `*` lets
its token speak for any device. A line that is removed is a token that is revoked, from the next
request on.
"""

from __future__ import annotations

import hmac
import logging
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from cans.errors import InputError, Refused

ANY = "*"
_log = logging.getLogger(__name__)


class TokenFile:
    """Tells whose token it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._device_of: dict[bytes, str] = {}
        self._reload()

    def device(self, token: str | None) -> str:
        """The device that this token was given to; raises `Refused` if there is none."""
        self._reload()
        if not token:
            raise Refused("this server asks for a join token", "UNAUTHENTICATED")
        digest = sha256(token.encode()).digest()
        # Look at every entry, so that the time taken tells nothing about how near a guess was.
        found = None
        for known, device in self._device_of.items():
            if hmac.compare_digest(known, digest):
                found = device
        if found is None:
            raise Refused("this join token is unknown or revoked", "UNAUTHENTICATED")
        return found

    def _reload(self) -> None:
        try:
            status = self.path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._stamp:
                return
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            if self._stamp is None:
                raise InputError(f"cannot read the token file {self.path}: {error}") from None
            # Whoever removed the file did not mean to open the door.
            self._close(str(error))
            self._stamp = (0, 0, 0)
            return
        entries = self._parsed(text)
        if entries is not None:
            self._device_of = entries
        elif self._stamp is None:
            raise InputError(f"{self.path}: each line must be `device token`")
        else:
            self._close("each line must be `device token`")
        self._stamp = stamp

    def _close(self, reason: str) -> None:
        if self._device_of:
            _log.error("token file unusable, refusing everyone", extra={"reason": reason})
        self._device_of = {}

    @staticmethod
    def _parsed(text: str) -> dict[bytes, str] | None:
        entries: dict[bytes, str] = {}
        for line in text.splitlines():
            words = line.split("#", 1)[0].split()
            if not words:
                continue
            if len(words) != 2:
                return None
            device, token = words
            try:
                digest = (
                    bytes.fromhex(token.removeprefix("sha256:"))
                    if token.startswith("sha256:")
                    else sha256(token.encode()).digest()
                )
            except ValueError:
                return None
            entries[digest] = device
        return entries


class Caller(NamedTuple):
    """Who calls."""

    token_device: str = ANY  # where no tokens are asked for

    def may_speak_for(self, device: str) -> None:
        """Raise unless this caller is that device, or may be any."""
        if self.token_device not in (ANY, device):
            raise Refused(
                f"this token belongs to {self.token_device!r}, not to {device!r}",
                "PERMISSION_DENIED",
            )
