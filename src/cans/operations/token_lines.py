"""Adding to, reading and taking from a token file, the one that `cans serve --token-file` reads.

The file holds the SHA-256 of each token and never the token itself: what is printed once, when a
token is added, is the only copy. A running server notices every change by itself.
"""

from __future__ import annotations

import datetime
import os
import secrets
import tempfile
from hashlib import sha256
from pathlib import Path

from cans.errors import InputError

TOKEN_BYTES = 24  # of randomness


def add_token(file: Path, device: str) -> str:
    """A new token of a device; the file is made if there is none. Returns the token."""
    _check_name(device)
    lines = _lines(file, missing_is_empty=True)
    if device in _devices(lines):
        raise InputError(f"{device!r} has a token already; `cans token revoke {device}` first")
    token = secrets.token_urlsafe(TOKEN_BYTES)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines.append(f"{device} sha256:{sha256(token.encode()).hexdigest()}  # added {today}")
    _replace(file, lines)
    return token


def revoke_token(file: Path, device: str) -> int:
    """Take away every token of a device; returns how many there were, at least one."""
    lines = _lines(file)
    kept = [line for line in lines if _device(line) != device]
    if len(kept) == len(lines):
        raise InputError(f"{device!r} has no token in {file}")
    _replace(file, kept)
    return len(lines) - len(kept)


def devices_with_tokens(file: Path) -> list[str]:
    """Names of the devices that have a token, in the order of the file."""
    return _devices(_lines(file))


def _check_name(device: str) -> None:
    if not device or len(device) > 256 or not device.isprintable() or set(device) & set(" #\t"):
        raise InputError(f"a device cannot be called {device!r}: no spaces and no '#'")


def _device(line: str) -> str:
    words = line.split("#", 1)[0].split()
    return words[0] if words else ""


def _devices(lines: list[str]) -> list[str]:
    return [name for name in map(_device, lines) if name]


def _lines(file: Path, missing_is_empty: bool = False) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        if missing_is_empty:
            return []
        raise InputError(f"there is no token file {file}; `cans token add` makes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the token file {file}: {error}") from None


def _replace(file: Path, lines: list[str]) -> None:
    """All at once: a server that looks meanwhile sees the old file or the new one."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, path = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with open(descriptor, "w", encoding="utf-8") as written:  # mode 0600
            written.write("".join(f"{line}\n" for line in lines))
        os.replace(path, file)
    except OSError as error:
        raise InputError(f"cannot write the token file {file}: {error.strerror}") from None
