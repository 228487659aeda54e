"""How back-ends run on a cluster, and how many replicas a model should have."""

from __future__ import annotations

from dataclasses import dataclass

from cans.errors import InputError
from cans.models import RuntimeOptions


@dataclass(frozen=True)
class ClusterOptions:
    """How back-ends run on a cluster."""

    address: str  # of a Ray cluster, or "local": one on this machine for as long as this process
    min_replicas: int = 1  # of each model, always
    max_replicas: int = 4  # of each model, when there is demand
    gpus_per_replica: float = 0.0  # fractions: replicas share a GPU
    runtime: RuntimeOptions | None = None  # threads and providers of a replica
    idle_seconds: float = 30.0  # a replica that nobody needed for so long goes

    def __post_init__(self) -> None:
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise InputError("need 1 <= --min-replicas <= --max-replicas")
        if not 0 <= self.gpus_per_replica < 1000:
            raise InputError("--gpus-per-replica must not be negative")


class Demand:
    """How many replicas a model should have: as many as had work at once, lately. No clock."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        self._seen: list[tuple[float, int]] = []  # (time, jobs inside)

    def replicas(self, inside: int, now: float) -> int:
        """
        >>> demand = Demand(ClusterOptions("local", 1, 4, idle_seconds=30.0))
        >>> [demand.replicas(inside, now) for inside, now in ((0, 0), (9, 1), (0, 2), (0, 40))]
        [1, 4, 4, 1]
        """
        options = self._options
        self._seen = [each for each in self._seen if each[0] > now - options.idle_seconds]
        self._seen.append((now, inside))
        most = max(each[1] for each in self._seen)
        return min(max(most, options.min_replicas), options.max_replicas)
