"""Confidence radii and the bounds of the paper's supplement, exactly as proved there.

`Evidence` gathers the symbols of one pooled part; the front-end of group k and the back-end (where
M_k = M, N_k = T, no offline samples, epsilon = 0) are the same formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt


@dataclass(frozen=True)
class Evidence:
    """The symbols of the supplement for one pooled part."""

    dimension: int  # d
    devices: int  # M_k: how many share the pool
    rounds: int  # T: horizon
    participations: int  # N_k(T): rounds played by those devices
    noise: float  # R: sub-Gaussian noise
    norm: float  # L: bound of |x|
    parameter: float  # S: bound of |theta|
    ridge: float  # lambda
    alpha: float
    delta: float  # failure probability of this part's events
    offline: int = 0  # n_off samples per device
    offline_strength: float = 0.0  # rho_k, the least eigenvalue of the offline covariance
    spread: float = 0.0  # epsilon: how much devices of the group differ

    @property
    def samples(self) -> int:
        """N-bar_k(T): offline and online samples."""
        return self.devices * self.offline + self.participations


def _concentration(e: Evidence, samples: int, ridge: float, union: float) -> float:
    growth = e.dimension * log(1 + samples * e.norm**2 / (ridge * e.dimension))
    return e.noise * sqrt(growth + 2 * log(union / e.delta)) + e.spread * e.norm * sqrt(samples)


def gamma_all(e: Evidence) -> float:
    """Lemma 1 (All-Information Confidence Bound)."""
    return _concentration(e, e.samples, e.ridge, e.devices * e.rounds)


def gamma_local(e: Evidence) -> float:
    """Lemma 2 (Local Front-End Concentration)."""
    return _concentration(e, e.participations, e.alpha * e.ridge, e.devices * e.rounds**2)


def radius(e: Evidence) -> float:
    """beta_{k,T} of Lemma 4 (Local Front-End Confidence)."""
    return (
        sqrt(e.ridge) * e.parameter
        + sqrt(1 + e.devices * e.alpha) * gamma_all(e)
        + e.devices * sqrt(2 * e.alpha) * gamma_local(e)
    )


def log_growth(e: Evidence) -> float:
    """Gamma_k(T) of the regret theorem: how far log det can grow, less what is known offline."""
    base = e.dimension * (e.ridge + e.offline_strength)
    return e.dimension * log(1 + e.participations * e.norm**2 / base)


def regret_bound(e: Evidence) -> float:
    """One part's share of the regret theorem, with C = M_k d Gamma_k (its O(.) taken as 1)."""
    growth = log_growth(e)
    boundary = e.devices * e.dimension * growth
    spread = sqrt(2 * (1 + e.devices * e.alpha) * e.participations * growth)
    return 2 * radius(e) * (boundary + spread)


def communication_bound(e: Evidence) -> float:
    """Uploads of one part at most, by the supplement: 2 log 2 d (M + 1/alpha) Gamma/d."""
    return 2 * log(2) * (e.devices + 1 / e.alpha) * log_growth(e)
