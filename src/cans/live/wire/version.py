"""The version of the wire. Fields are added and never change their meaning, so that neighbouring
releases understand each other; the version says when two are further apart."""

from __future__ import annotations

from cans.errors import Refused

WIRE = 1
"""What this release speaks. 0 was the first release, which did not say."""
OLDEST = 0
"""What it still understands."""


def understood(version: int, other: str) -> None:
    """Raise `Refused` unless this release and one that speaks this version work together.

    >>> understood(2, "server")
    >>> understood(3, "server")
    Traceback (most recent call last):
        ...
    cans.errors.Refused: the server speaks wire version 3, this side 0 to 2: upgrade this side
    """
    newest = WIRE + 1  # the next release says whatever this one needs to hear
    if not OLDEST <= version <= newest:
        which = "this side" if version > newest else f"the {other}"
        raise Refused(
            f"the {other} speaks wire version {version}, this side {OLDEST} to {newest}: "
            f"upgrade {which}"
        )
