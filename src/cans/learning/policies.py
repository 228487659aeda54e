"""Every learning method as data: which features explain which latency, and who shares it.

To add a method, add an entry to `POLICIES`; only a new way to *choose* or to *share* needs code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from cans.errors import InputError, unknown_name
from cans.learning.table import SEGMENTS


class Pool(StrEnum):
    """Whose observations are added together."""

    DEVICE = "device"
    GROUP = "group"  # devices of one type
    NETWORK = "network"
    EVERYONE = "everyone"


class Choose(StrEnum):
    """How a choice is made from what is known."""

    OPTIMISTIC = "optimistic"  # lowest mean minus width: LinUCB, Eq. 3
    SAMPLED = "sampled"  # lowest mean under a sampled theta: LinTS
    UNIFORM = "uniform"
    LOCAL = "local"  # always the last choice
    OFFLOAD = "offload"  # always the first choice


class Clusters(StrEnum):
    """How a simulated fleet finds out by itself who is alike, from the whole parameter."""

    CLIQUES = "cliques"  # pairwise tests, one clique synchronised at a time (Blaser et al. 2024)
    COMPONENTS = "components"  # edges cut by distance, in phases (Liu et al. 2022)


@dataclass(frozen=True)
class Part:
    """One linear model: the columns of some segments predict the sum of their latencies."""

    name: str
    explains: tuple[str, ...]  # of "front", "link", "server"
    pool: Pool
    warm: bool = False  # starts from the offline experience
    uses_local: bool = False  # estimates with its own observations before any download
    alpha: float | None = None  # its own determinant criterion; None: the hyper-parameter's
    eager: bool = False  # uploads every observation, without waiting for the determinant
    events: bool = False  # also uploads what is surprising, and all while its pool is young; the
    # server tells of its pool when it matters: see `exchange.py`
    watched: bool = False  # starts anew when its predictions stay off in one direction
    spread: float = 0.0  # devices of the pool differ by about this share; each learns its factor
    bends: bool = False  # choices may deviate from the line: see `deviations.py`

    def __post_init__(self) -> None:
        _require(0 < len(self.name) <= 64 and self.name.isprintable(), "a part needs a name")
        _require(
            bool(self.explains) and set(self.explains) <= set(SEGMENTS),
            f"part {self.name!r} must explain some of {', '.join(SEGMENTS)}",
        )
        _require(self.alpha is None or 0 < self.alpha < inf, "alpha must be positive")
        _require(0 <= self.spread < inf, "spread must be finite and not negative")

    @property
    def shared(self) -> bool:
        return self.pool is not Pool.DEVICE


@dataclass(frozen=True)
class Physical:
    """Which of the physical assumptions a policy makes; see `estimating.py` and `viability.py`."""

    nonnegative: bool = True  # theta >= 0
    kappa: float = 2.0  # width in estimated standard deviations; 0: the constant beta instead
    prune: bool = True  # leave out choices that no possible theta makes best
    codecs: bool = True  # a choice is a point with a codec; False: the first codec alone

    def __post_init__(self) -> None:
        _require(0 <= self.kappa < inf, "kappa must be finite and not negative")


@dataclass(frozen=True)
class Policy:
    """A learning method."""

    name: str
    title: str
    parts: tuple[Part, ...] = ()
    choose: Choose = Choose.OPTIMISTIC
    knows: tuple[str, ...] = ()  # segments whose expected latency is given, not learned
    truth: bool = False  # what it knows is today's truth, not yesterday's profile (oracle)
    fleet_sync: bool = False  # a trigger synchronises everyone at once (DisLinUCB)
    clusters: Clusters | None = None  # who shares with whom is found from what all observe
    fresh: bool = False  # pools are brought up to date before every choice
    physical: Physical | None = None  # estimates that respect what latency is
    ridge: float | None = None  # the policy's own; None: the hyper-parameter's
    offline_whole: bool = False  # the first offline run is to the very end, the second the shortest
    load_aware: bool = False  # the server's time is learned without the wait, which is told
    grouped: bool = False  # a device's label is only the prefix of its group; see `grouping.py`
    probe_after_s: float = inf  # a device that stays local times a small exchange when the link
    # has not been heard of for so long
    forced_sampling: bool = False  # ANS: sometimes the local choice is forbidden
    key_frames: bool = False  # ANS: explore less on important frames

    def __post_init__(self) -> None:
        _require(0 < len(self.name) <= 64 and self.name.isprintable(), "a policy needs a name")
        names = [part.name for part in self.parts]
        _require(len(set(names)) == len(names), f"policy {self.name!r} has two parts of one name")
        _require(self.ridge is None or 0 < self.ridge < inf, "ridge must be positive")
        _require(set(self.knows) <= set(SEGMENTS), f"knows must be of {', '.join(SEGMENTS)}")
        _require(self.probe_after_s > 0, "probe_after_s must be positive")
        _require(
            not (self.fleet_sync and (self.physical or self.fresh)),
            "fleet_sync goes with plain parts alone",
        )

    @property
    def learns(self) -> bool:
        return bool(self.parts)

    def ridge_of(self, hyperparameters: Hyperparameters) -> float:
        """lambda: the policy's own, else that of the hyper-parameters."""
        return hyperparameters.ridge if self.ridge is None else self.ridge

    @property
    def of_server(self) -> tuple[Part, ...]:
        """Shared parts that explain the server's time alone: what a server can see by itself."""
        return tuple(part for part in self.parts if part.shared and part.explains == ("server",))

    def as_server(self) -> Policy:
        """What a server learns of itself, as a device would. It never chooses: which choices are
        worth trying is no question for it."""
        physical = replace(self.physical, prune=False) if self.physical else None
        own = tuple(replace(part, warm=True) for part in self.of_server)
        return replace(self, parts=own, physical=physical)

    def part(self, name: str) -> Part:
        """The part of this name."""
        return next(part for part in self.parts if part.name == name)

    @property
    def simulation_only(self) -> bool:
        """Needs what no deployment has: the truth, or the whole fleet stopping at once."""
        return self.truth or self.fleet_sync or self.clusters is not None


@dataclass(frozen=True)
class Hyperparameters:
    """The numbers of a method; the defaults are those of the paper's simulation."""

    ridge: float = 0.01  # lambda, for every part
    alpha: float = 1.0  # upload when the determinant grew by more than 1 + alpha
    beta_ms: float | str = 50.0  # confidence radius in milliseconds, or "theory"
    offline_runs: int = 5  # partial local runs before the first round, for warm starts
    sampling_ms: float = 5.0  # LinTS: v, about the noise level
    fleet_threshold: float = 5.0  # DisLinUCB: D
    delta: float = 0.05  # failure probability of radius "theory"

    def __post_init__(self) -> None:
        _require(0 < self.ridge < inf, "ridge must be positive: features are rank deficient")
        _require(self.alpha > 0, "alpha must be positive")
        _require(0 <= self.sampling_ms < inf, "sampling_ms must be finite and not negative")
        _require(self.fleet_threshold > 0, "fleet_threshold must be positive")
        _require(0 < self.delta < 1, "delta must lie between 0 and 1")
        _require(self.offline_runs >= 0, "offline_runs must not be negative")
        if isinstance(self.beta_ms, str):
            _require(self.beta_ms == "theory", "beta_ms must be a number or 'theory'")
        else:
            _require(0 <= self.beta_ms < inf, "beta_ms must be finite and not negative")


def _require(condition: bool, message: str) -> None:
    if not condition:  # a NaN fails every comparison and ends here too
        raise InputError(message)


_JOINT = Part("joint", SEGMENTS, Pool.DEVICE)
_FRONT = Part("front", ("front",), Pool.GROUP)
_BACK = Part("back", ("link", "server"), Pool.EVERYONE)


def _own(part: Part) -> Part:
    return replace(part, pool=Pool.DEVICE)


def _warm(part: Part) -> Part:
    return replace(part, warm=True)


def _shared(part: Part, pool: Pool, spread: float = 0.3, bends: bool = True) -> Part:
    return replace(
        part,
        pool=pool,
        uses_local=True,
        alpha=2.0,
        events=True,
        watched=True,
        spread=spread,
        bends=bends,
    )


_CANS = Policy(
    "cans",
    "CANS",
    (
        _shared(_warm(_FRONT), Pool.GROUP),
        _shared(Part("link", ("link",), Pool.NETWORK), Pool.NETWORK),
        # one server for all: it has one pace
        _shared(Part("server", ("server",), Pool.EVERYONE), Pool.EVERYONE, spread=0.0),
    ),
    fresh=True,
    physical=Physical(),
    ridge=1e-9,
    offline_whole=True,
    grouped=True,
    load_aware=True,
    probe_after_s=10.0,
)


def _each_part(name: str, **changes: object) -> Policy:
    parts = tuple(replace(part, **changes) for part in _CANS.parts)  # type: ignore[arg-type]
    return replace(_CANS, name=name, title=name, parts=parts)


def _physics(name: str, **changes: object) -> Policy:
    physical = replace(Physical(), **changes)  # type: ignore[arg-type]
    return replace(_CANS, name=name, title=name, physical=physical)


ABLATIONS: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        # `cans` with one ingredient turned off each
        replace(
            _CANS,
            name="cans-two-parts",
            title="cans-two-parts",
            parts=(_CANS.parts[0], _shared(_BACK, Pool.EVERYONE, bends=False)),
        ),
        replace(_CANS, name="cans-stale-pools", title="cans-stale-pools", fresh=False),
        _physics("cans-all-points", prune=False),
        _physics("cans-one-codec", codecs=False),
        _physics("cans-any-sign", nonnegative=False),
        _physics("cans-fixed-radius", kappa=0.0),
        _each_part("cans-no-detector", watched=False),
        replace(_CANS, name="cans-no-probes", title="cans-no-probes", probe_after_s=inf),
        _each_part("cans-no-offset", spread=0.0),
        _each_part("cans-no-deviations", bends=False),
        replace(_CANS, name="cans-labels", title="cans-labels", grouped=False),
    )
}


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        _CANS,
        # the paper's algorithm and its ablation (sections IV-B and V-C)
        Policy("fedlinucb-dw", "FedLinUCB-DW", (_warm(_FRONT), _BACK)),
        Policy("fedlinucb-decouple", "FedLinUCB-Decouple", (_FRONT, _BACK)),
        Policy("linucb-warmstart", "LinUCB-Warmstart", (_own(_warm(_FRONT)), _own(_BACK))),
        # the paper's baselines
        Policy("warmstart-linucb", "Warm-Start LinUCB", (_warm(_JOINT),)),
        Policy("linucb", "LinUCB", (_JOINT,)),
        Policy("fedlinucb", "FedLinUCB", (replace(_JOINT, pool=Pool.EVERYONE),)),
        Policy("random", "Random", choose=Choose.UNIFORM),
        Policy("local", "Local", choose=Choose.LOCAL),
        # further baselines of the field
        Policy("offload", "Offload", choose=Choose.OFFLOAD),
        Policy(
            "ans",
            "ANS",
            (_own(_BACK),),
            knows=("front",),
            forced_sampling=True,
            key_frames=True,
        ),
        Policy(
            "dislinucb",
            "DisLinUCB",
            (replace(_JOINT, pool=Pool.EVERYONE, uses_local=True),),
            fleet_sync=True,
        ),
        Policy("lints", "LinTS", (_JOINT,), choose=Choose.SAMPLED),
        Policy("neurosurgeon", "Neurosurgeon", knows=SEGMENTS),
        Policy("oracle", "Oracle", knows=SEGMENTS, truth=True),
    )
}


VARIANTS: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        # tells everything at once: ten to twenty times the bytes
        _each_part("cans-eager", alpha=None, eager=True, events=False),
    )
}
"""`cans` with one thing more or otherwise, for comparison."""


CLUSTERED: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("hetofedbandit", "HetoFedBandit", (_JOINT,), clusters=Clusters.CLIQUES),
        Policy("fclub", "FCLUB", (_JOINT,), clusters=Clusters.COMPONENTS),
    )
}
"""Clustered federated bandits that the paper cites, for comparison; in simulation only."""


DEFAULT_POLICY = "cans"
"""What simulations and servers use unless told otherwise."""


def policy_named(name: str) -> Policy:
    """The policy of this name; an unknown name is an error that lists the known ones."""
    for known in (POLICIES, ABLATIONS, VARIANTS, CLUSTERED):
        if name in known:
            return known[name]
    raise unknown_name("policy", name, [*POLICIES, *VARIANTS, *CLUSTERED])
