"""What one device may say, and how far it is believed.

A device speaks for its own scopes only, claims no more observations than it had time to make, and
counts for less while it contradicts what everyone else says. All of it is kept in memory: after a
restart a device starts with a clean standing, and the pools keep what they have. Times come in,
seconds by the server's clock.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field

from cans.learning import PoolKey, Upload
from cans.learning.arithmetic.arrays import Array
from cans.learning.plausibility import least_claimed_ms
from cans.live.store.base import CONTRADICTED

_log = logging.getLogger(__name__)
MOST_DEVICES = 100_000  # remembered
MOST_SCOPES = 4  # of one part: where a device is, and where its last uploads belong while it moves
AT_ONCE = 16  # inferences of one device on their way at a time
GRACE_SECONDS = 10.0  # clocks, and what a busy machine delays
PATIENCE = 3  # contradictions in a row that cost nothing: a change looks the same at first
LEAST_TRUST = 1 / 64


@dataclass
class Standing:
    """What is remembered of one device."""

    scopes: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # by (model, part)
    last: dict[PoolKey, float] = field(default_factory=dict)  # when it last added to a pool
    contradictions: int = 0  # in a row
    trust: float = 1.0


class Claims:
    """Judges uploads by who sends them; all methods belong to one thread."""

    def __init__(self) -> None:
        self._standings: OrderedDict[str, Standing] = OrderedDict()

    def joined(self, device: str, keys: list[PoolKey]) -> None:
        """A device has said who it is: these are its pools from now on."""
        for key in keys:
            self._bind(self._standing(device), key)

    def objection(self, upload: Upload, rows: Array, now: float) -> str:
        """Why an upload must not enter its pool; empty: it may. `rows`: what its part observes."""
        standing, key = self._standing(upload.device), upload.key
        known = standing.scopes.get((key.model, key.part))
        if known is not None and key.scope not in known:
            return f"{key.scope!r} is not a scope of this device, which has {', '.join(known)}"
        last = standing.last.get(key)
        if last is None:  # what it did before it was first heard of took as long as it took
            return ""
        claimed = least_claimed_ms(upload.statistics, rows) / 1000.0
        had = AT_ONCE * (now - last + GRACE_SECONDS)
        if claimed > had:
            return f"{upload.statistics.count} observations of at least {claimed:.0f} s in all, " \
                   f"{now - last:.1f} s after the last ones"  # fmt: skip
        return ""

    def trust(self, device: str) -> float:
        """The share of its uploads that is believed at most: 1, unless it contradicts everyone."""
        standing = self._standings.get(device)
        return 1.0 if standing is None else standing.trust

    def doubtful(self) -> dict[str, float]:
        """Devices that are believed less than others, and how far."""
        return {name: each.trust for name, each in self._standings.items() if each.trust < 1.0}

    def merged(self, upload: Upload, doubted: float, now: float) -> tuple[str, ...]:
        """An upload has entered its pool, which did not believe the share `doubted` of it. Says so
        if its device is believed less from now on, or again."""
        standing = self._standing(upload.device)
        if upload.key not in standing.last or upload.statistics.count:
            self._bind(standing, upload.key)
            standing.last[upload.key] = now
        if not upload.statistics.count:
            return ()
        before = standing.trust
        if doubted > CONTRADICTED:
            standing.contradictions += 1
            if standing.contradictions > PATIENCE:
                standing.trust = max(standing.trust / 2, LEAST_TRUST)
        else:
            standing.contradictions = 0
            standing.trust = min(2 * standing.trust, 1.0)
        if (before < 1.0) is (standing.trust < 1.0):
            return ()
        say = _log.warning if standing.trust < 1.0 else _log.info
        message = "a device contradicts its pool" if standing.trust < 1.0 else "a device agrees"
        say(message, extra={"device": upload.device, "pool": ":".join(upload.key)})
        return (f"{message}; it is believed {'less' if standing.trust < 1.0 else 'again'}",)

    def _standing(self, device: str) -> Standing:
        standing = self._standings.setdefault(device, Standing())
        self._standings.move_to_end(device)
        if len(self._standings) > MOST_DEVICES:
            self._standings.popitem(last=False)
        return standing

    def _bind(self, standing: Standing, key: PoolKey) -> None:
        scopes = standing.scopes.setdefault((key.model, key.part), [])
        if key.scope in scopes:
            scopes.remove(key.scope)
        scopes.append(key.scope)
        if len(scopes) > MOST_SCOPES:
            gone = scopes.pop(0)
            standing.last = {each: t for each, t in standing.last.items() if each.scope != gone}
