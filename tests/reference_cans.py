"""Policy `cans`, dense and slow, from the section "Formulas" of `docs/policy-cans.md`; nothing is
shared with the code.

The code keeps sums; here every observation is a row that can be looked at. Each list of rows is
solved from scratch whenever it is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import copysign, inf, log, sqrt

import numpy as np
from scipy.optimize import linprog
from scipy.stats import norm

from reference import argmin

FRONT, LINK, SERVER = range(3)
ALPHA = 2.0
MOST_TOKENS, TOKEN_EVERY = 1.0, 600.0
SPREADS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)


@dataclass(frozen=True)
class Row:
    """x~, y~ and what it is worth."""

    x: np.ndarray
    y: float
    worth: float = 1.0
    startling: bool = False  # in a buffer: to be told at once
    choice: int | None = None  # that it is of
    ms: float = 0.0  # its latency
    scatter: float = 0.0  # of the observations that it stands for, about that; squared
    count: int = 1  # 0: it stands for no observation
    unlike: float | None = None  # how far its device was from its pool, squared, less noise


@dataclass(frozen=True)
class Numbers:
    """What may differ between runs; the defaults are the policy's."""

    ridge: float = 1e-9
    kappa: float = 2.0
    spread: tuple[float, float, float] = (0.3, 0.3, 0.0)
    probe_after: float = 10.0
    events: bool = True  # exchange when it matters; False: after every inference
    alpha: float = ALPHA
    viable: tuple[bool, ...] | None = None  # None: by `viable_choices`
    bends: tuple[bool, bool, bool] = (True, True, True)


# --- rows ----------------------------------------------------------------------------------------


def importance(reference):
    return 9.0 / (9.0 + reference**2)


def milliseconds(square):
    """The latency of which this is the square, times its importance."""
    return sqrt(9.0 * square / max(9.0 - square, 9e-4))


def worth(rows):
    return sum(row.worth for row in rows)


def sums(rows, d):
    """Sigma, b, s and n."""
    x = np.array([row.x for row in rows]).reshape(-1, d)
    y, worth = (np.array([getattr(row, name) for row in rows]) for name in ("y", "worth"))
    sigma, b = (x.T * worth) @ x, x.T @ (worth * y)
    s, n = (worth * y**2).sum(), worth.sum()
    return sigma, b, s, n


# --- estimate ------------------------------------------------------------------------------------


def nonnegative(sigma, b, ridge):
    """Step 1: the most negative coefficient is fixed at zero, until none is negative; if that
    leaves out one that would explain more than a millionth, all begin at zero instead."""
    d = len(b)
    a = sigma + ridge * np.eye(d)
    free = list(range(d))
    theta = np.zeros(d)
    while free:
        theta = np.zeros(d)
        theta[free] = np.linalg.solve(a[np.ix_(free, free)], b[free])
        if theta.min() >= 0:
            break
        free.remove(int(theta.argmin()))
        theta = np.zeros(d)
    return theta if left_out(a, b, theta) is None else from_zero(a, b)


def left_out(a, b, theta):
    """The coefficient at zero that would explain most, if that is worth it."""
    gains = {
        j: (b[j] - a[j] @ theta) ** 2 / a[j, j]
        for j in range(len(b))
        if theta[j] <= 0 and b[j] > a[j] @ theta
    }
    best = max(gains, key=gains.get, default=None)
    return best if best is not None and gains[best] > 1e-6 * theta @ b else None


def from_zero(a, b):
    """Lawson and Hanson: the most explaining coefficient is let go, again and again; on the way to
    each solution the first one that reaches zero stays there."""
    theta, free = np.zeros(len(b)), set()
    for _ in range(3 * len(b)):
        entering = left_out(a, b, theta)
        if entering is None:
            break
        free.add(entering)
        for _ in range(len(b)):
            among = sorted(free)
            solved = np.zeros(len(b))
            solved[among] = np.linalg.solve(a[np.ix_(among, among)], b[among])
            if solved.min() >= 0:
                theta = solved
                break
            steps = {j: theta[j] / (theta[j] - solved[j]) for j in among if solved[j] < 0}
            theta = np.maximum(theta + min(steps.values()) * (solved - theta), 0.0)
            free -= {j for j in steps if steps[j] <= min(steps.values())}
            theta[[j for j in range(len(b)) if j not in free]] = 0.0
    return theta


def noise(rows, theta):
    """Step 2: sigma^2."""
    d = len(theta)
    sigma, b, s, n = sums(rows, d)
    if n == 0:
        return 0.0
    residual = max(s - 2 * theta @ b + theta @ sigma @ theta, 0.0)
    return (residual + 2 * 0.3**2 * s / n) / (max(n - d, 0.0) + 2)


def pace(own, theta, variance, spread):
    """Step 3."""
    if spread == 0 or variance == 0:
        return 1.0
    sigma, b, _, _ = sums(own, len(theta))
    prior = 1 / spread**2
    return max((theta @ b / variance + prior) / (theta @ sigma @ theta / variance + prior), 0.05)


def floors(lower, x, viable):
    """Step 5."""
    raised = list(lower)
    for q in range(len(x)):
        if viable[q]:
            for p in range(len(x)):
                shares = [x[p, j] / x[q, j] for j in range(x.shape[1]) if x[q, j] > 0]
                raised[p] = max(raised[p], min(shares, default=0.0) * lower[q])
    return np.array(raised)


# --- deviations ----------------------------------------------------------------------------------


def by_choice(rows, count):
    """N, T and S of every choice."""
    number, total, squares = np.zeros(count), np.zeros(count), np.zeros(count)
    for row in rows:
        if row.choice is not None:
            number[row.choice] += row.worth
            total[row.choice] += row.worth * row.ms
            squares[row.choice] += row.worth * (row.ms**2 + row.scatter)
    return number, total, squares


def scatter(rows, count, variance):
    """Step 7: what residuals of every choice are judged by, where the line's is this."""
    number, total, squares = by_choice(rows, count)
    about, freedom = np.zeros(count), np.zeros(count)
    for p in np.flatnonzero(number):
        average = total[p] / number[p]
        about[p] = importance(average) * max(squares[p] - total[p] * average, 0.0)
        freedom[p] = max(number[p] - 1, 0.0)
    common = (about.sum() + 2 * variance) / (freedom.sum() + 2)
    return np.maximum((about + 4 * common) / (freedom + 4), variance)


def spread_of_devices(rows, assumed, unlike, apart):
    """Step 9: by how much the devices of a pool differ; no less than this one does."""
    told = [row for row in rows if row.unlike is not None]
    square = 3 * assumed**2 + sum(row.worth * row.unlike for row in told)
    square = min(max(square / (3 + worth(told)), 0.003**2), 0.25)
    return max(sqrt(max(square, unlike or 0.0)), 1.0 if apart else 0.0)


def divisor(own, rows, line, variance, deviating, assumed, apart=False, dropped=0):
    """Step 8: the pace that what is told is divided by, and what is told of it."""
    if assumed == 0:
        return 1.0, None
    mine, measured, _ = by_choice(own, len(line))
    number, total, squares = by_choice(rows, len(line))
    about = freedom = 0.0
    for p in np.flatnonzero(number):
        about += importance(total[p] / number[p]) * max(squares[p] - total[p] ** 2 / number[p], 0.0)
        freedom += max(number[p] - 1, 0.0)
    noise = (about + 2 * variance) / (freedom + 2)
    if noise == 0:
        return 1.0, None
    others = max(1 - (len(own) + dropped) / max(sum(row.count for row in rows), 1), 0.0)
    above = precision = 0.0
    for p in np.flatnonzero(mine):
        average = total[p] / number[p] if number[p] else line[p]
        left = noise / (noise + 9 * deviating**2 * max(number[p] - mine[p], 0.0))
        mean = line[p] + (1 - left) * (average - line[p])
        said = importance(average) / (noise / mine[p] + 9 * deviating**2 * left)
        above += others * said * mean * measured[p] / mine[p]
        precision += others * said * mean**2
    unlike = None
    if precision >= 1 / 0.1**2:
        unlike = min((above / precision - 1) ** 2, 0.25) - 4 / precision
    prior = 1 / spread_of_devices(rows, assumed, unlike, apart) ** 2
    return max((above + prior) / (precision + prior), 0.05), unlike


def keenness(expected, y):
    """How much more a residual counts of what is faster than expected."""
    return ((81 + expected**2) / (81 + y**2)) ** 0.25 if abs(y) < expected else 1.0


def noise_of_choices(mean, number, total, squares, prior):
    """sigma_c^2 of every choice, and sigma^2 of all."""
    h = importance(mean)
    about, freedom = np.zeros(len(mean)), np.zeros(len(mean))
    for p in np.flatnonzero(number):
        about[p] = h[p] * max(squares[p] - total[p] ** 2 / number[p], 0.0)
        freedom[p] = max(number[p] - 1, 0.0)
    every = (about.sum() + prior) / (freedom.sum() + 2)
    if every <= 0 or number.sum() == 0:
        return np.zeros(len(mean)), 0.0
    counted = np.array([min(20 / f, 1.0) if f > 0 else 1.0 for f in freedom])
    known = counted @ freedom + 2
    usual = (number * h).sum() / number.sum()
    share = (counted @ about + prior) / known
    fixed = h * (counted @ (about / h) + prior / usual) / known
    gain = counted @ (freedom * np.log(share / fixed) + about / share - about / fixed)
    common = np.maximum(share, fixed) if gain / 2 > 1 else share
    return (about + 4 * common) / (freedom + 4), every


def reference_of(mean, average):
    """What the noise of a choice is a share of."""
    return np.maximum(mean, average / 3)


def likeliest_spread(mean, norm, weight, average, variance, every):
    best, found = 4.0, 0.0
    reference = reference_of(mean, average)
    freedom = np.maximum(weight / importance(reference) - 1, 0.0).sum() + 2
    for tau in SPREADS:
        gain = 0.0
        for p in np.flatnonzero(weight >= 1.5 * importance(reference)):
            left = 1 - min(weight[p] * norm[p] ** 2, 1.0)
            if left < 0.01:
                continue
            h = importance(reference[p])
            v = max(variance[p], every) * h / weight[p]
            apart = h * (max(average[p], 0.0) - mean[p]) ** 2
            more = 9 * tau**2
            student = log(1 + apart / (freedom * v)) - log(1 + apart / (freedom * (more + v)))
            gain += ((freedom + 1) * student - left * log(1 + more / v)) / 2
        if gain > best:
            best, found = gain, tau
    return found


def noise_share(mean, weight, tau, variance):
    """Of every choice, how much of its average's distance from the line is noise."""
    h = importance(mean)
    return variance * h / (variance * h + 9 * tau**2 * weight)


# --- viable choices ------------------------------------------------------------------------------


def viable_among(front, link, allowed, slack=0.02):
    """Which of the allowed choices no other one of them beats; the first and the last stay."""
    costs = np.hstack([front, link])

    def beaten(p):
        return any(
            all(costs[q] <= costs[p]) and any(costs[q] < (1 - slack) * costs[p])
            for q in np.flatnonzero(allowed)
        )

    last = len(costs) - 1
    return [bool(allowed[p]) and (p in (0, last) or not beaten(p)) for p in range(len(costs))]


def viable_choices(front, link, slack=0.02):
    """Which choices can win, and how clear that is: the least distance of a mixture's best value
    from the threshold. Multiplicative weights may miss what is not clear."""
    costs = np.hstack([front, link])
    kept, clear = list(range(len(costs))), inf
    for p in range(len(costs)):
        others = [q for q in kept if q != p]
        if any(
            all(costs[q] <= costs[p]) and any(costs[q] < (1 - slack) * costs[p]) for q in others
        ):
            kept.remove(p)
    for p in list(kept):
        others = [q for q in kept if q != p]
        if not others:
            continue
        value = mixture_value(costs[others], (1 - slack) * costs[p])
        clear = min(clear, abs(value))
        if value <= 0:
            kept.remove(p)
    return [p in kept or p in (0, len(costs) - 1) for p in range(len(costs))], clear


def mixture_value(others, target):
    """The least v such that a mixture of `others` exceeds the target by at most v in every column,
    each column in units of its largest deviation."""
    excess = others - target
    excess = excess / np.maximum(np.abs(excess).max(axis=0), 1e-12)
    count, columns = excess.shape
    found = linprog(
        c=[*np.zeros(count), 1.0],
        A_ub=np.hstack([excess.T, -np.ones((columns, 1))]),
        b_ub=np.zeros(columns),
        A_eq=[[*np.ones(count), 0.0]],
        b_eq=[1.0],
        bounds=[(0, None)] * count + [(None, None)],
    )
    return found.fun


def growth(before, after, ridge):
    """By how much log det (Sigma + ridge I) has grown."""
    eye = np.eye(len(before))
    return np.linalg.slogdet(after + ridge * eye)[1] - np.linalg.slogdet(before + ridge * eye)[1]


# --- the server ----------------------------------------------------------------------------------


@dataclass
class Pool:
    """A part's rows on the server, and the evidence that they are out of date."""

    d: int
    ridge: float
    rows: list[Row] = field(default_factory=list)
    epoch: int = 0
    merges: int = 0
    time: float = 0.0
    slower: float = 0.0
    faster: float = 0.0
    told: list[Row] | None = field(default_factory=list)  # what its present edition says
    edition: int = 0
    choices: int = 0  # 0: they do not deviate

    def take(self, upload, epoch, time):
        """Merge."""
        if epoch != self.epoch:
            return
        z, level, room = self.residual(upload)
        z = self.by_its_choice(upload, z)
        recent = min(max(len(upload), 1), 3)
        self.slower = max(self.slower + min(z, 6.0) - 2.0 * recent, 0.0)
        quicker = min(-z, -room * z, 4 * room)
        self.faster = max(self.faster + quicker - room**2 * recent, 0.0)
        if self.slower > 11.0 or self.faster > 8.0:
            self.slower = self.faster = 0.0
            self.epoch += 1
            self.told = None  # of this epoch
            self.rows = self.past_at(level) + upload
        else:
            trust = min(1.0, 3.0 / abs(z)) if z != 0 else 1.0
            self.rows = self.rows + [replace(row, worth=row.worth * trust) for row in upload]
        self.merges += 1
        self.time = max(time, self.time)

    def unsurprised(self):
        """Somebody who observed something told nothing of it."""
        self.slower, self.faster = max(self.slower - 2, 0.0), max(self.faster - 1, 0.0)

    def residual(self, upload):
        """Step 1, the level L of step 4 and the room of step 2."""
        sigma, b, _, n = sums(self.rows, self.d)
        theta = nonnegative(sigma, b, self.ridge)
        variance = noise(self.rows, theta)
        said = [row.choice for row in upload if row.choice is not None]
        if said and self.slower == self.faster == 0:
            variance = scatter(self.rows, self.choices, variance)[said].mean()
        sigma_u, b_u, s_u, n_u = sums(upload, self.d)
        v = sigma_u @ theta
        expected = theta @ v
        level = theta @ b_u / expected if expected > 0 else 0.0
        if expected > 0 and n > 0:
            usual = milliseconds(theta @ sigma @ theta / n)
            longer = milliseconds(s_u / n_u) - milliseconds(expected / n_u)
            level = min(level, 1 + 10 * max(longer, 0.0) / max(usual, 1e-3))
        room = min(sqrt(expected / n_u) / 3, 1.0) if upload else 0.0
        observed = sum(row.count for row in self.rows)
        if min(n, observed) < self.d + 5 or not upload:
            return 0.0, level, room
        if expected <= 1e-9 * s_u or variance == 0:
            return 0.0, level, room
        doubt = v @ np.linalg.solve(sigma + self.ridge * np.eye(self.d), v) / len(upload)
        spread = expected + doubt
        usual = milliseconds(expected / n_u)
        keen = keenness(usual, usual * (theta @ b_u) / expected)
        z = keen * (theta @ b_u - expected) / sqrt(variance * spread * len(upload))
        return z, level, room

    def by_its_choice(self, upload, z):
        """Step 1 for choices that deviate."""
        said, total_said, _ = by_choice(upload, self.choices)
        known, total, squared = by_choice(self.rows, self.choices)
        seen = known > 0
        beyond = seen.sum() - self.d
        if z == 0 or said.sum() == 0 or beyond <= 0:
            return z
        average = np.where(seen, total / np.where(seen, known, 1.0), 0.0)
        h = importance(average)
        known, total, squared, said, total_said = (
            h * each for each in (known, total, squared, said, total_said)
        )
        sigma, b, s, n = sums(self.rows, self.d)
        squares = np.maximum(squared - total * average, 0.0).sum()
        number = min(by_choice(self.rows, self.choices)[0].sum(), n)
        usual = beyond + n - number  # what was timed is of no choice
        variance = (squares + 2 * 0.3**2 * s / n) / (max(number - seen.sum(), 0.0) + 2)
        theta = nonnegative(sigma, b, self.ridge)
        misses = s - 2 * theta @ b + theta @ sigma @ theta - squares
        if variance <= 0 or misses <= variance * (usual + 3 * sqrt(2 * usual)):
            return z
        expected = (said * average**2).sum()
        if any(said[p] > 0 and known[p] == 0 for p in range(self.choices)) or expected <= 0:
            return 0.0
        doubt = sum((said[p] * average[p]) ** 2 / known[p] for p in np.flatnonzero(seen))
        spread = sqrt(variance * (expected + doubt / len(upload)) * len(upload))
        return ((average * total_said).sum() - expected) / spread

    def publish(self):
        """A new edition, if it says something else than the last."""
        if self.told is None or self.is_news():
            self.told, self.edition = self.rows, self.edition + 1

    def is_news(self):
        sigma, b, _, _ = sums(self.rows, self.d)
        sigma_told, b_told, _, _ = sums(self.told, self.d)
        if worth(self.told) < self.d + 20 <= worth(self.rows):
            return True
        if self.choices_are_news():
            return True
        theta = nonnegative(sigma, b, self.ridge)
        variance, before, now = noise(self.rows, theta), worth(self.told), worth(self.rows)
        if growth(sigma_told, sigma, self.ridge) > self.d * log(4.0):
            inverse = np.linalg.inv(sigma_told + self.ridge * np.eye(self.d))
            if variance * np.trace(inverse @ (sigma - sigma_told)) > 0.03**2 * (now - before):
                return True
        step = theta - nonnegative(sigma_told, b_told, self.ridge)
        return step @ sigma_told @ step > max(self.d * variance, 0.1**2 * before)

    def choices_are_news(self):
        """Eight times as much is known of a choice, and that could matter."""
        told, now = by_choice(self.told, self.choices), by_choice(self.rows, self.choices)
        for p in range(self.choices):
            if now[0][p] <= 8 * told[0][p]:
                continue
            if told[0][p] < 4:
                return True
            before, after = told[1][p] / told[0][p], now[1][p] / now[0][p]
            error = sqrt(max(told[2][p] / told[0][p] - before**2, 0.0) / (told[0][p] - 1))
            if max(error, abs(after - before)) > max(0.01 * abs(before), 0.1):
                return True
        return False

    def past_at(self, level):
        n = sum(row.worth for row in self.rows)
        if level <= 1 or n == 0:
            return []
        sigma, b, _, _ = sums(self.rows, self.d)
        variance = noise(self.rows, nonnegative(sigma, b, self.ridge))
        number, total, squares = by_choice(self.rows, self.choices)
        usual = []
        for p in np.flatnonzero(number >= 4):
            about = max(squares[p] - total[p] ** 2 / number[p], 0.0)
            usual.append(importance(total[p] / number[p]) * about / (number[p] - 1))
        if usual:
            variance = min(sorted(usual)[(len(usual) - 1) // 2], variance)
        past = []
        for row in self.rows:
            aged = replace(row, x=row.x / level, worth=row.worth * min(sqrt(1 / n), 1.0), count=0)
            if row.choice is not None:
                ms = level * total[row.choice] / number[row.choice]
                aged = replace(aged, ms=ms, scatter=variance / importance(ms))
            past.append(aged)
        return past


# --- a device ------------------------------------------------------------------------------------


@dataclass
class Part:
    """One part of one device."""

    x: np.ndarray  # features of every choice
    numbers: Numbers
    spread: float
    viable: list[bool]
    copy: list[Row] = field(default_factory=list)  # of its pool
    buffer: list[Row] = field(default_factory=list)
    own: list[Row] = field(default_factory=list)
    slower: float = 0.0  # evidence that it has itself become so
    faster: float = 0.0
    apart: bool = False
    dropped: int = 0  # rows of its own that no longer count, since it is
    on_its_way: int | None = None  # so many rows of the buffer
    awaited: int | None = None  # rows after a surprise until it tells more
    credit: float = 5.0  # surprises that it may tell
    seen: tuple[int, int, int] = (0, 0, 0)  # epoch, merges and edition that it was told of
    made_for: int = 0
    epoch: int = 0
    heard: float = 0.0
    pace: float = 1.0
    divisor: float = 1.0  # the same, by which what it tells is divided
    unlike: float | None = None  # what it tells of that
    theta: np.ndarray | None = None
    sigma: float = 0.0
    mean: np.ndarray | None = None
    lower: np.ndarray | None = None
    width: np.ndarray | None = None
    norm: np.ndarray | None = None
    bends: bool = False
    suspect: bool = False  # of that, before anything shows it: not the link
    tau: float = 0.0  # spread of the choices about the line
    personal: float = 0.0  # spread of the device's choices about those of its pool
    suspected: float = 0.5  # the spread to reckon with
    scatter: np.ndarray | None = None  # sigma of every choice that residuals are judged by
    tested: int = 0  # observations when that was last looked into
    pending: int = 0  # observations since the last estimate
    stale: bool = True  # an estimate is due
    average: np.ndarray | float = 0.0  # of every choice then, 0 if not known ...
    variance: np.ndarray | float = 0.0  # ... and how uncertain it is
    earned: float = 0.0  # towards a look of its device ...
    earned_with: int = 0  # ... with so many observations of its own
    considered: int = 0  # observations when a look of its device was last considered

    def observe(self, x, y, choice=None):
        if not x.any():
            return
        choice = choice if self.bends else None
        expected, z = self.expectation(x, y, choice)
        h = importance(y if z > 5 else expected)
        if z > 5 and choice is not None:
            self.tested = 0
        self.remember(x, y, expected, z, choice)
        self.pending += 1
        self.stale |= self.pending >= 0.01 * len(self.own) or self.rarity(z) > 3
        self.credit = min(self.credit + 0.005, 5.0)
        alone = self.observed() + 1 - len(self.own) - self.dropped < 5
        startling = (self.credit >= 1 or alone) and self.rarity(z) > 4
        self.credit = max(self.credit - startling, 0.0)
        ms = y / self.divisor
        unlike = None if choice is None else self.unlike
        row = Row(
            sqrt(h) * x, sqrt(h) * ms, startling=startling, ms=ms, choice=choice, unlike=unlike
        )
        self.buffer.append(row)
        if startling:
            self.awaited = 3
        elif self.awaited:
            self.awaited -= 1

    def expectation(self, x, y, choice):
        if self.theta is None or self.sigma == 0 or worth(self.copy) < len(x) + 5:
            return abs(y), 0.0
        expected = self.theta @ x
        if choice is not None and self.deviates:
            expected = self.mean[choice]
        sigma = self.sigma if choice is None else max(self.sigma, self.scatter[choice])
        z = (y - expected) * sqrt(importance(expected)) / sigma
        return expected, z * keenness(expected, y)

    def observed(self):
        return sum(row.count for row in self.copy + self.buffer)

    def remember(self, x, y, expected, z, choice):
        rarity = copysign(self.rarity(z), z)
        self.slower = max(self.slower + min(rarity, 6.0) - 2.0, 0.0)
        self.faster = max(self.faster + min(-rarity, 4.0) - 1.0, 0.0)
        if self.slower > 11.0 or self.faster > 8.0:
            self.dropped += len(self.own)
            self.own, self.slower, self.faster, self.apart = [], 0.0, 0.0, True
        believed = min(1.0, 5.0 / max(z, 5.0))  # also in the sums of its choice
        h = importance(expected)
        if z > 5 and not self.apart:
            h = importance(y) / believed
        self.own.append(Row(sqrt(h) * x, sqrt(h) * y, believed, ms=y, choice=choice))

    def rarity(self, z):
        known = worth(self.copy) + worth(self.buffer) + 1
        freedom = max(known - self.x.shape[1], 0.0) + 2
        return sqrt(freedom * log(1 + z**2 / freedom))

    def upload_is_due(self):
        if not self.buffer or self.on_its_way is not None:
            return False
        if not self.numbers.events:
            return True
        d = self.x.shape[1]
        if worth(self.copy) < d + 20 or len(self.buffer) >= 200 or self.awaited == 0:
            return True
        if any(row.startling for row in self.buffer):
            return True
        share = max(len(self.own), 1) / max(sum(row.count for row in self.copy), 1)
        waits, count = min(1.5 * share, 1.0) * (1 + 1e-9), len(self.x)
        kept, known, own = (
            by_choice(rows, count)[0] for rows in (self.buffer, self.copy, self.own)
        )
        shares = 1.5 * np.maximum(own, 1) / max(sum(row.count for row in self.copy), 1)
        if (kept > np.minimum(shares, 1.0) * (1 + 1e-9) * 1.5 * known).any():
            return True
        before, after = sums(self.copy, d)[0], sums(self.copy + self.buffer, d)[0]
        return growth(before, after, self.numbers.ridge) > waits * log(1 + self.numbers.alpha)

    def start_upload(self):
        """What is surprising goes alone."""
        startling = [row for row in self.buffer if row.startling and self.numbers.events]
        if not startling:
            self.awaited = None
        self.on_its_way, self.made_for = len(startling or self.buffer), self.epoch
        ordered = sorted(self.buffer, key=lambda row: not row.startling)
        self.buffer = [replace(row, startling=False) for row in ordered]

    def is_behind(self, pool):
        return pool.merges != self.seen[1]

    def is_urgent(self, pool):
        epoch, _, edition = self.seen
        return not self.numbers.events or pool.epoch > epoch or pool.edition > edition

    def see(self, pool):
        self.seen = pool.epoch, pool.merges, pool.edition

    def adopt(self, pool):
        if pool.epoch > self.epoch:
            self.epoch = pool.epoch
            self.buffer = self.buffer[: self.on_its_way or 0]
            self.own, self.awaited, self.tested, self.suspected = [], None, 0, 0.5
            self.slower, self.faster, self.apart, self.dropped = 0.0, 0.0, False, 0
            self.pace, self.divisor, self.unlike = 1.0, 1.0, None
        self.copy = pool.rows
        self.stale = True
        self.see(pool)
        self.heard = max(pool.time, self.heard)

    def estimate(self, mature):
        rows, d = self.copy + self.buffer, self.x.shape[1]
        sigma, b, _, _ = sums(rows, d)
        theta = nonnegative(sigma, b, self.numbers.ridge)
        variance = noise(rows, theta)
        due = not self.tested <= self.observed() <= 1.05 * self.tested + 1
        if due:
            self.tested = self.observed()
            if self.bends and self.awaited is None:
                self.scatter = np.sqrt(scatter(rows, len(self.x), variance))
        if not self.bends:
            self.estimate_line(rows, theta, sigma, variance)
            return due
        line = self.x @ theta
        told = self.divisor, self.unlike  # as long as nothing is new of this part
        if self.stale or self.pending or self.tau > 0:
            told = divisor(
                self.own,
                rows,
                line,
                variance,
                self.suspected,
                self.spread,
                self.apart,
                self.dropped,
            )
        known = mature and worth(self.copy) >= d + 20
        if not (known and self.estimate_bent(rows, theta, sigma, due, told[1])):
            self.tau = 0.0
            self.estimate_line(rows, theta, sigma, variance)
            self.divisor, self.unlike = told
        if mature:
            self.individualise(rows, due)
        else:
            self.personal = 0.0
        if mature and due:
            self.suspected = max(suspicion(self), 0.01)
        return due

    @property
    def deviates(self):
        return self.tau > 0 or self.personal > 0

    def individualise(self, rows, due):
        """Step 10: what the device's own averages say of every choice."""
        if not due and self.personal == 0:
            return
        count, kappa = len(self.x), self.numbers.kappa
        own, total, _ = by_choice(self.own, count)
        seen = [
            p
            for p in range(count)
            if own[p] >= 1.5 and self.mean[p] > 0 and self.scatter is not None and self.scatter[p]
        ]
        if len(self.own) + self.dropped >= self.observed() or not seen:
            self.personal = 0.0
            return
        apart, noise, open_ = np.zeros(count), np.ones(count), np.zeros(count)
        for p in np.flatnonzero(self.mean > 0):
            open_[p] = (self.width[p] / kappa / self.mean[p]) ** 2
        for p in seen:
            apart[p] = total[p] / own[p] / self.mean[p] - 1
            noise[p] = self.scatter[p] ** 2 / importance(self.mean[p]) / own[p] / self.mean[p] ** 2
        if due:
            freedom = np.maximum(by_choice(rows, count)[0] - 1, 0.0).sum() + 2
            best, self.personal = 4.0, 0.0
            for spread in SPREADS:
                gain = 0.0
                for p in seen:
                    v, square = noise[p] + open_[p], apart[p] ** 2
                    more = v + spread**2
                    student = log(1 + square / (freedom * v)) - log(1 + square / (freedom * more))
                    gain += ((freedom + 1) * student - log(1 + spread**2 / v)) / 2
                if gain > best:
                    best, self.personal = gain, spread
        if self.personal == 0:
            return
        prior = open_ + self.personal**2
        gain = np.array(
            [prior[p] / (prior[p] + noise[p]) if p in seen else 0 for p in range(count)]
        )
        self.mean = self.mean * (1 + gain * apart)
        self.width = kappa * np.sqrt(prior * (1 - gain)) * self.mean
        self.lower = np.maximum(self.mean - self.width, 0.0)

    def differing(self, rows, unlike):
        """The spread of the devices that its pace is shrunk by."""
        if self.bends and self.spread:
            return spread_of_devices(rows, self.spread, unlike, self.apart)
        return max(self.spread, 1.0) if self.apart and self.spread else self.spread

    def estimate_line(self, rows, theta, sigma, variance):
        d = self.x.shape[1]
        spread = self.differing(rows, self.unlike)
        self.pace = self.divisor = pace(self.own, theta, variance, spread)
        self.theta, self.sigma = theta * self.pace, sqrt(variance)
        self.mean = self.x @ self.theta
        inverse = np.linalg.inv(sigma + self.numbers.ridge * np.eye(d))
        self.norm = np.array([sqrt(x @ inverse @ x) for x in self.x])
        self.width = self.numbers.kappa * self.sigma * self.norm
        lower = np.maximum(self.mean - self.width, 0.0)
        self.lower = floors(lower, self.x, self.viable)

    def note_slow(self):
        """What is known of every choice, and how uncertain that is."""
        self.average, self.variance = np.zeros(len(self.x)), np.zeros(len(self.x))
        if worth(self.copy) >= self.x.shape[1] + 5:
            number, total, _ = by_choice(self.copy + self.buffer, len(self.x))
            for p in np.flatnonzero(number >= 1.5):
                self.average[p] = total[p] / number[p] * self.pace
                self.variance[p] = self.sigma**2 / importance(self.average[p]) / number[p]

    def estimate_bent(self, rows, theta, sigma, due, unlike):
        """Step 6; False: the line fits."""
        x, d, ridge = self.x, self.x.shape[1], self.numbers.ridge
        number, total, squares = by_choice(rows, len(x))
        seen = number > 0
        average = np.where(seen, total / np.where(seen, number, 1.0), 0.0)
        if not rows:
            return False

        def norms(matrix):
            inverse = np.linalg.inv(matrix + ridge * np.eye(d))
            return np.array([sqrt(max(each @ inverse @ each, 0.0)) for each in x])

        mean = x @ theta
        reference = reference_of(mean, average)
        weight = number * importance(reference)
        s, n = (sums(rows, d)[i] for i in (2, 3))
        prior = 2 * 0.3**2 * s / n
        noises, variance = noise_of_choices(reference, number, total, squares, prior)
        if due:
            self.tau = 0.0
            if noises.min() > 0:
                self.tau = likeliest_spread(mean, norms(sigma), weight, average, noises, variance)
        if self.tau == 0:
            return False
        if not self.suspect:  # what was timed is judged by the line that it is in
            self.estimate_line(rows, theta, sigma, noise(rows, theta))
        left = noise_share(reference, weight, self.tau, noises)
        sigma, b = (x.T * (left * weight)) @ x, x.T @ (left * weight * average)
        theta = nonnegative(sigma, b, ridge)
        mean, norm = x @ theta, norms(sigma)
        line = mean
        reference = reference_of(mean, average)
        h = importance(reference)
        left = noise_share(reference, number * h, self.tau, noises)
        open_ = 9 * self.tau**2 * left / h + variance * (left * norm) ** 2
        width = np.where(x.any(axis=1), np.sqrt(open_), 0.0)
        mean = np.maximum(mean + np.where(seen, (average - mean) * (1 - left), 0.0), 0.0)
        if self.spread > 0:
            spread = self.differing(rows, unlike)
            own, own_total, _ = by_choice(self.own, len(x))
            prior = 1 / spread**2
            above = (h * own_total * mean).sum() / variance + prior
            self.pace = max(above / ((h * own * mean**2).sum() / variance + prior), 0.05)
            self.divisor, self.unlike = divisor(
                self.own, rows, line, variance, self.tau, self.spread, self.apart, self.dropped
            )
        if self.suspect:
            self.theta, self.sigma = theta * self.pace, sqrt(variance)
        self.mean, self.width = mean * self.pace, self.numbers.kappa * width
        self.bound(left)
        return True

    def bound(self, left):
        """What has more work takes no less; who is known worse has no say."""
        x, d = self.x, self.x.shape[1]
        lower, upper = np.maximum(self.mean - self.width, 0.0), self.mean + self.width
        self.lower = lower.copy()

        def has_no_less(p, q):
            return x[q].any() and all(x[p, j] >= x[q, j] for j in range(d) if x[q, j] > 0)

        for p in range(len(x)):
            known = [q for q in range(len(x)) if left[q] <= left[p] * (1 + 1e-9)]
            less = [lower[q] for q in known if has_no_less(p, q)]
            more = [upper[q] for q in known if q != p and has_no_less(q, p)]
            ceiling = min(more, default=inf)
            self.lower[p] = min(max([lower[p], *less]), ceiling)
            if self.mean[p] > ceiling:
                self.width[p] = min(self.width[p], ceiling - self.lower[p])
            self.mean[p] = min(max(self.mean[p], self.lower[p]), ceiling)

    def send(self, pool, time):
        """What is on its way arrives."""
        sent = self.buffer[: self.on_its_way]
        pool.take(sent, self.made_for, time)
        if self.numbers.events:
            pool.publish()
            if (pool.epoch, pool.merges) == (self.seen[0], self.seen[1] + 1):
                self.see(pool)  # never told what it sent itself
        self.buffer = self.buffer[self.on_its_way :]
        self.on_its_way = None
        self.stale = True
        return sent


def estimate(parts):
    if any(part.stale for part in parts):
        due = [part.estimate(mature(parts, 20)) and part.bends for part in parts]
        if any(due):
            for part in parts:
                part.note_slow()
        for part in parts:
            part.stale, part.pending = False, 0


def lower_bounds(parts):
    """Of all parts together: the bounds' sum or, where choices deviate, variances are added up."""
    if not any(part.bends for part in parts):
        return sum(part.lower for part in parts)
    known = max(part.observed() for part in parts if part.suspect)
    hoped = [hope(part, known) * np.maximum(part.mean - part.lower, 0.0) for part in parts]
    expected = sum(np.maximum(part.mean, part.lower) for part in parts)
    if not any(part.deviates for part in parts):
        return expected - sum(hoped)
    own = max(len(part.own) for part in parts if part.suspect)
    return expected - min(own / 15, 1.0) * np.sqrt(sum(each**2 for each in hoped))


def hope(part, known):
    """How much of a bound counts: all of it up to three observations of a choice."""
    if not part.bends:
        return 1.0
    number = by_choice(part.copy + part.buffer, len(part.mean))[0]
    return np.where(number <= 3, 1.0, min(sqrt(100 / known), 1.0))


def too_far(parts, mean, scores):
    """The way alone, a standard deviation added, takes three times what the surest choice does."""
    if not any(part.bends for part in parts):
        return np.zeros(len(mean), dtype=bool)
    widths = [part.width / part.numbers.kappa for part in parts]
    high = mean + np.sqrt(sum(width**2 for width in widths))
    link = parts[LINK]
    known = link.norm**2 * importance(link.mean) <= 100
    way = parts[FRONT].mean + link.mean + np.where(known, widths[LINK], 0.0)
    surest = np.where(scores < inf, high, inf).argmin()
    far = way > 3 * mean[surest]
    far[surest] = False
    return far


def choose(parts, viable, allowed):
    lower, mean = lower_bounds(parts), sum(part.mean for part in parts)
    scores = np.where(allowed, lower + 0.01 * mean, inf)
    if any(part.deviates for part in parts):
        best = np.where(allowed, mean, inf).argmin()
        scores = np.where(affordable(parts, mean, best), scores, inf)
    elif parts[SERVER].mean[0] <= parts[FRONT].mean[-1]:
        back = worth_a_try(parts, viable, lower, mean)
        scores = np.where(np.logical_or(viable, back), scores, inf)
    scores = np.where(too_far(parts, mean, scores), inf, scores)
    expected = np.maximum(mean, seen_of(parts))
    scores = np.where(too_slow(parts, expected[scores < inf].min()), inf, scores)
    pick = argmin(scores)
    drawn = all(worth(part.copy) >= part.x.shape[1] for part in parts)
    if not its_turn(parts) or not drawn:
        return pick
    return look(parts, pick, allowed)


def mature(parts, beyond):
    return all(worth(part.copy) >= part.x.shape[1] + beyond for part in parts if part.suspect)


def affordable(parts, mean, best):
    link, kappa = parts[LINK], parts[LINK].numbers.kappa
    unseen = link.numbers.ridge * link.norm**2 > 1e-3
    widths = [np.where(unseen & (part is link), 0.0, part.width) / kappa for part in parts]
    high = mean + np.sqrt(sum(width**2 for width in widths))
    return high <= 3 * high[best]


def seen_of(parts):
    return sum(part.average for part in parts if part.bends)


def too_slow(parts, best):
    """What was surely seen to take three times the best."""
    variance = sum(part.variance for part in parts if part.bends)
    return seen_of(parts) - 3 * np.sqrt(variance) > 3 * best


def its_turn(parts):
    """Whether a look is earned; kept with the front-end's part."""
    bending, kept = [part for part in parts if part.suspect], parts[FRONT]
    own = sum(len(part.own) for part in bending)
    known = sum(part.observed() for part in bending)
    more = max(own - kept.earned_with, 0) * 10 / max(known, 1) ** (2 / 3)
    kept.earned, kept.earned_with = min(kept.earned + more, 1.0), own
    soon = all(each.considered <= each.observed() <= 1.02 * each.considered for each in bending)
    return kept.earned >= 1.0 and not soon


def suspicion(part):
    """The spread that is reckoned with: what was found or, of a tenth, what the choices leave."""
    if part.tau > 0:
        return part.tau
    rows, d = part.copy + part.buffer, part.x.shape[1]
    line = part.x @ (part.theta / part.pace)
    number, total, _ = by_choice(rows, len(line))
    inverse = np.linalg.inv(sums(rows, d)[0] + part.numbers.ridge * np.eye(d))
    known, square = 3.0, 3.0 * 0.3**2
    for p in np.flatnonzero(number >= 1):
        h = importance(line[p])
        noise = part.sigma**2 / number[p]
        left = 1 - min(number[p] * h * (part.x[p] @ inverse @ part.x[p]), 1.0)
        said = left * (0.3**2 / (0.3**2 + noise)) ** 2
        known += said
        square += said * (h * (max(total[p] / number[p], 0.0) - line[p]) ** 2 - noise)
    return min(sqrt(max(square / known, 0.0)) / 3, 0.5)


def outlook(part):
    """Expected latency of every choice with the suspected spread, its variance, and the noise of
    one observation."""
    tau, variance = suspicion(part), max(part.sigma**2, 1e-12)
    if part.personal > 0:
        noise = np.where(part.mean > 0, part.sigma**2 / importance(part.mean), 0.0)
        return part.mean, (part.width / part.numbers.kappa) ** 2, noise
    number, total, _ = by_choice(part.copy + part.buffer, len(part.mean))
    noise = variance / importance(part.mean)
    left = noise / (noise + tau**2 * (part.mean**2 + 1) * number)
    mean, line = part.mean.copy(), part.x @ (part.theta / part.pace)
    for p in np.flatnonzero(number * line) if part.tau == 0 else ():
        mean[p] *= max(1 + (1 - left[p]) * (total[p] / number[p] / line[p] - 1), 0.0)
    return mean, (tau * part.mean) ** 2 * left, np.where(part.mean > 0, noise, 0.0)


def no_better(parts, pick):
    """No less work for device and server than the pick has, and no shorter under way."""
    beaten = parts[LINK].mean >= parts[LINK].mean[pick]
    for part in (parts[FRONT], parts[SERVER]):
        more = part.x[:, part.x[pick] > 0] >= part.x[pick][part.x[pick] > 0]
        beaten = beaten & more.all(axis=1)
    return beaten


def misleading(server):
    """Hardly any work for a server that little is known of."""
    young = worth(server.copy) < server.x.shape[1] + 20
    return young & (server.mean > 0) & (server.mean < 0.02 * server.mean[0])


def look(parts, pick, allowed):
    """The choice of which a look saves most beyond what it costs, or `pick`."""
    bending = [part for part in parts if part.suspect]
    outlooks = [outlook(part) for part in parts if part.suspect or part.deviates]
    inferences = max(part.observed() for part in bending)
    certain = [part.mean for part in parts if not part.suspect and not part.deviates]
    mean = sum(certain) + sum(each[0] for each in outlooks)
    variance, noise = (sum(each[i] for each in outlooks) for i in (1, 2))
    best = max(mean[pick], seen_of(parts)[pick])
    far = too_far(parts, mean, np.where(allowed, 0.0, inf))
    allowed = allowed & affordable(parts, mean, pick) & ~too_slow(parts, best) & ~far
    allowed = allowed & ~misleading(parts[SERVER]) & ~no_better(parts, pick)
    gains = {}
    for p in range(len(mean)):
        worse, square = mean[p] - mean[pick], max(variance[p], 1e-12)
        if allowed[p] and worse <= 0.2 * mean[pick]:
            for looks in (1, 4, 16):
                told = square / sqrt(square + noise[p] / looks)
                saved = told * norm.pdf(worse / told) - worse * norm.sf(worse / told)
                gain = inferences * saved / looks - max(worse, 0.0)
                gains[p] = max(gain, gains.get(p, -inf))
    best = max(gains, key=gains.get, default=pick)
    if gains.get(best, 0.0) <= 0.04 * mean[pick]:
        for part in bending:
            part.considered = part.observed()
        return pick
    parts[FRONT].earned = 0.0
    return best


def leaves_server_little(x, p):
    return not x[p].any() or any(x[p] < 0.5 * x[0])


def leaves_device_little(x, p):
    return all(x[p, j] < 0.5 * x[-1, j] for j in range(x.shape[1]) if x[-1, j] > 0)


def worth_a_try(parts, viable, lower, mean):
    """Which of those left out may be chosen all the same."""
    width = sum(part.width for part in parts)
    server = parts[SERVER].mean
    best = min((p for p in range(len(mean)) if viable[p]), key=lambda p: mean[p])
    known = width[best] <= 0.2 * mean[best]
    return [
        mean[p] + width[p] < mean[best]
        or (
            known
            and lower[p] < 0.9 * mean[best]
            and mean[p] - server[p] + server[0] <= 3.0 * mean[best]
        )
        for p in range(len(mean))
    ]


def cans(
    x,
    pool_of,
    active,
    measure,
    probe,
    time_probe,
    arrivals,
    offline,
    served,
    numbers,
    immediate=True,
    allowed=None,
    raw=(0,),
):
    """Picks and, for each round, how many uploads it made.

    x            features of every choice: front-end, link, server
    pool_of      for each device the names of its three pools
    active       which device acts in each round
    measure      (t, p) -> the three latencies of choice p in round t
    probe        features of each size of a probe, or None; time_probe: t -> what the smallest takes
    arrivals     m -> what the probes of each size take device m when it arrives
    offline      for each device a list of (p, front-end latency)
    served       of the server by itself a list of (p, back-end latency)
    allowed      (m, p) -> whether device m may make choice p at all; None: all may
    raw          the choices that send the raw input
    """
    viable = numbers.viable or viable_choices(x[FRONT], x[LINK])[0]
    everything = np.ones(len(x[FRONT]), dtype=bool)
    may = [everything if allowed is None else allowed[m] for m in range(len(pool_of))]
    can_win = [
        viable if each.all() or numbers.viable else viable_among(x[FRONT], x[LINK], each)
        for each in may
    ]
    pools = {
        name: Pool(x[i].shape[1], numbers.ridge, choices=len(x[i]) if numbers.bends[i] else 0)
        for i in range(3)
        for name in {(i, names[i]) for names in pool_of}
    }

    def new_part(i):
        bends = numbers.bends[i]
        suspect = bends and i != LINK
        return Part(x[i], numbers, numbers.spread[i], list(viable), bends=bends, suspect=suspect)

    devices = [[new_part(i) for i in range(3)] for _ in pool_of]

    def pool(m, i):
        return pools[i, pool_of[m][i]]

    tokens, refilled, frames = ([0] * len(devices) for _ in range(3))

    def pull(m):
        """What is urgent comes at once, with all that has changed; the rest takes a token."""
        behind = [i for i in range(3) if devices[m][i].is_behind(pool(m, i))]
        tokens[m] = min(tokens[m] + (frames[m] - refilled[m]) / TOKEN_EVERY, MOST_TOKENS)
        refilled[m] = frames[m]
        urgent = any(devices[m][i].is_urgent(pool(m, i)) for i in behind)
        if not urgent and (not behind or tokens[m] < 1):
            return
        tokens[m] -= 0 if urgent else 1
        for i in behind:
            devices[m][i].adopt(pool(m, i))

    server = new_part(SERVER)  # it times itself before anyone comes
    for p, latency in served:
        server.observe(x[SERVER][p], latency, p)
    server.start_upload()
    server.send(pool(0, SERVER), 0.0)

    for i in range(3):  # everyone joins
        for m, parts in enumerate(devices):
            for p, latency in offline[m] if i == FRONT else []:
                parts[i].observe(x[FRONT][p], latency, p)
            parts[i].start_upload()
            parts[i].send(pool(m, i), 0.0)
        for name in {pool_of[m][i] for m in range(len(devices))}:
            pools[i, name].told = pools[i, name].rows
        for m, parts in enumerate(devices):
            parts[i].adopt(pool(m, i))

    arrived = 0
    for m, parts in enumerate(devices):  # everyone arrives
        part = parts[LINK]
        if probe is None:
            continue
        pull(m)
        estimate(parts)
        for features, milliseconds in zip(probe, arrivals(m), strict=True):
            part.observe(features, milliseconds)
        part.buffer = [replace(row, startling=False) for row in part.buffer]
        part.start_upload()
        if immediate:
            sent = part.send(pool(m, LINK), 0.0)
            arrived += 1
            if pool(m, LINK).epoch == part.epoch:
                part.copy = part.copy + sent

    picks, uploads = [], []
    last = len(x[FRONT]) - 1
    ran, worked = [0.0] * len(devices), 0.0  # when a device, the server last did most of the work

    def changed(front):
        return front.epoch > 0 or front.apart

    def young(part):
        return worth(part.copy) < part.x.shape[1] + 20

    def tell(m, part, i, time):
        part.start_upload()
        if immediate:
            sent = part.send(pool(m, i), time)
            uploads[-1] += 1
            if pool(m, i).epoch == part.epoch:
                part.copy, part.heard = part.copy + sent, max(time, part.heard)

    def contact(m, time):
        """Uploads that wait travel with a request."""
        for i, part in enumerate(devices[m]):
            if part.on_its_way is not None:
                part.send(pool(m, i), time)
                part.adopt(pool(m, i))
                uploads[-1] += 1

    def beside(t, m, p, concerned):
        """A choice for which nobody waits."""
        parts, latencies = devices[m], measure(t, p)
        for i in concerned:
            parts[i].observe(x[i][p], latencies[i], p)
            parts[i].heard = max(float(t), parts[i].heard)
        if p == last:
            ran[m] = float(t)
        due = [parts[i].upload_is_due() for i in concerned]
        for i, is_due in zip(concerned, due, strict=True):
            waits = parts[i].on_its_way is not None
            if is_due or (numbers.events and any(due) and not parts[i].bends and not waits):
                tell(m, parts[i], i, float(t))
            elif numbers.events and p != last and not waits:
                pool(m, i).unsurprised()

    for t, m in enumerate(active):
        parts, time = devices[m], float(t)
        uploads.append(arrived if t == 0 else 0)
        frames[m] += 1
        pull(m)
        estimate(parts)
        p = choose(parts, can_win[m], may[m])
        picks.append(p)
        if p != last:
            contact(m, time)  # with delivery `next-contact`
        latencies = measure(t, p)
        for i, part in enumerate(parts):
            part.observe(x[i][p], latencies[i], p)
            if x[i][p].any():
                part.heard = max(time, part.heard)
        if not leaves_device_little(x[FRONT], p):
            ran[m] = time
        observed = [x[i][p].any() or not numbers.events for i in range(len(parts))]
        told = numbers.events and any(
            part.upload_is_due() for part, some in zip(parts, observed, strict=True) if some
        )
        silent = time - parts[LINK].heard > numbers.probe_after
        if silent and p == last and probe is not None:
            parts[LINK].observe(probe[0], time_probe(t))
            parts[LINK].heard, observed[LINK] = time, True
        for i, part in enumerate(parts):
            rides = told and not part.bends and x[i][p].any() and part.on_its_way is None
            if not (observed[i] and part.upload_is_due()) and not rides:
                seen = x[i][p].any() if p != last else i == LINK and observed[LINK]
                if numbers.events and seen and part.on_its_way is None:
                    pool(m, i).unsurprised()
                continue
            tell(m, part, i, time)
        soon = changed(parts[FRONT]) or young(parts[FRONT])
        patience = numbers.probe_after * (1 if soon else 10)
        if leaves_device_little(x[FRONT], p) and time - ran[m] > patience:
            estimate(parts)
            beside(t, m, last, [FRONT])
        light = leaves_server_little(x[SERVER], p)
        soon = parts[SERVER].epoch > 0 or young(parts[SERVER])
        patience = numbers.probe_after * (1 if soon else 10)
        if light and time - worked > patience:
            estimate(parts)
            soonest = min(raw, key=lambda c: parts[FRONT].mean[c] + parts[LINK].mean[c])
            if may[m][soonest]:
                contact(m, time)
                beside(t, m, soonest, [LINK, SERVER])
                worked = time
        elif not light:
            worked = time
    return picks, uploads
