"""Who calls, and which devices they may speak for.

Join tokens are a file of `device token [weight]` lines that may be edited while the server runs. A
token may be given as `sha256:HEX`, so that the file does not hold the secret itself; a device
called `*` lets its token speak for any device; a weight (1 if not given) says how many turns a
device has where another has one. A line that is removed is a token that is revoked, from the next
request on. With mutual TLS a caller may speak for the devices its certificate names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from cans.errors import InputError, Refused

ANY = "*"
_log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """A line of a token file."""

    device: str
    weight: float = 1.0


@dataclass(frozen=True)
class Caller:
    """Who calls."""

    peer: str = ""  # gRPC's name of the connection
    device: str = ANY  # the only one it may speak for, by its token; "*": any
    weight: float = 1.0  # of its turns at the workers
    names: frozenset[str] = frozenset()  # of its certificate; none: there is no certificate
    speaks: Callable[[str, str], None] | None = None  # told on which connection who speaks

    @property
    def account(self) -> str:
        """Whose bytes and open streams these are: a device's, or a connection's."""
        return self.peer if self.device == ANY else self.device

    def may_speak_for(self, device: str) -> None:
        """Raise unless this caller is that device, or may be any."""
        if self.device not in (ANY, device):
            raise Refused(
                f"this token belongs to {self.device!r}, not to {device!r}", "PERMISSION_DENIED"
            )
        if self.names and device not in self.names:
            names = ", ".join(sorted(self.names))[:200]
            raise Refused(
                f"this certificate belongs to {names!r}, not to {device!r}; "
                "start the device under that name (--name)",
                "PERMISSION_DENIED",
            )
        self.speak(device)

    def speak(self, identity: str = "") -> None:
        """This caller is served: its connection is in use, and whose it is."""
        if self.speaks is not None:
            self.speaks(self.peer, identity or self.account)


class TokenFile:
    """Tells whose token it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._entries: dict[bytes, Entry] = {}
        self._reload()

    def entry(self, token: str | None) -> Entry:
        """The device that this token was given to; raises `Refused` if there is none."""
        self._reload()
        if not token:
            raise Refused("this server asks for a join token", "UNAUTHENTICATED")
        # By digest: how long this takes depends on the digest of a guess, which tells nothing.
        found = self._entries.get(sha256(token.encode()).digest())
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
        if status.st_mode & 0o077:
            _log.warning(
                "others on this machine can read the token file; chmod 600 it",
                extra={"file": str(self.path)},
            )
        entries = _parsed(text)
        if entries is not None:
            self._entries = entries
        elif self._stamp is None:
            raise InputError(f"{self.path}: each line must be `device token [weight]`")
        else:
            self._close("each line must be `device token [weight]`")
        self._stamp = stamp

    def _close(self, reason: str) -> None:
        if self._entries:
            _log.error("token file unusable, refusing everyone", extra={"reason": reason})
        self._entries = {}


def _parsed(text: str) -> dict[bytes, Entry] | None:
    entries: dict[bytes, Entry] = {}
    for line in text.splitlines():
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) not in (2, 3):
            return None
        device, token, *rest = words
        try:
            weight = float(rest[0]) if rest else 1.0
            digest = (
                bytes.fromhex(token.removeprefix("sha256:"))
                if token.startswith("sha256:")
                else sha256(token.encode()).digest()
            )
        except ValueError:
            return None
        if not 0.01 <= weight <= 100.0:
            return None
        entries[digest] = Entry(device, weight)
    return entries


def bearer(metadata: Any) -> str | None:
    """The token among a call's metadata."""
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            return value.removeprefix("Bearer ")
    return None


def certified_names(context: Any) -> frozenset[str]:
    """The names on the caller's certificate; none if it showed none."""
    found = context.auth_context()
    names = (*found.get("x509_common_name", ()), *found.get("x509_subject_alternative_name", ()))
    return frozenset(each.decode("utf-8", "replace") for each in names)
