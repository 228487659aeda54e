"""What one device may say: its own scopes, no more than it had time for, and less while it lies."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cans.learning import Hyperparameters, PoolKey, SufficientStatistics, Upload, policy_named
from cans.learning.edge import rules_of
from cans.live.server.trust.claims import LEAST_TRUST, PATIENCE, Claims
from cans.live.store import Judged, open_store
from cans.live.wire.link import Link
from cans.live.wire.messages import SyncRequest
from tests.live.running import running, terms
from tests.live.test_refused import logged
from tests.live.toy import toy

KEY = PoolKey("model", "1", "cans", "link", "network:lab")
ROWS = np.array([[1.0, 0.5], [1.0, 1.0], [0.0, 0.0]])


def times(one: SufficientStatistics, count: int) -> SufficientStatistics:
    return SufficientStatistics(one.sigma * count, one.b * count, one.squares * count, count, count)


def said(
    count: int, latency_ms: float, sequence: int = 0, key: PoolKey = KEY, device: str = "a"
) -> Upload:
    """So many observations, weighed as policy `cans` weighs them."""
    one = SufficientStatistics.of([1.0, 0.5], latency_ms).scaled(9 / (9 + latency_ms**2))
    return Upload(device, "first", key, 0, sequence, times(one, count))


# --- time ---


def test_nobody_observes_more_than_there_was_time_for() -> None:
    claims = Claims()
    assert not claims.objection(said(100_000, 500.0), ROWS, 0.0), "a backlog from before"
    claims.merged(said(1, 30.0), 0.0, 0.0)
    assert not claims.objection(said(100, 30.0), ROWS, 0.3)
    assert "1000000 observations" in claims.objection(said(1_000_000, 3000.0), ROWS, 60.0)
    assert "observations" in claims.objection(said(20_000, 30.0), ROWS, 0.3)
    assert not claims.objection(said(20_000, 30.0), ROWS, 3600.0), "an hour without the server"


def test_what_was_not_merged_took_no_time() -> None:
    """An upload that failed goes again: it is measured against the last one that arrived."""
    claims = Claims()
    claims.merged(said(1, 30.0), 0.0, 0.0)
    backlog = said(20_000, 30.0, 1)
    assert not claims.objection(backlog, ROWS, 3600.0)
    assert not claims.objection(backlog, ROWS, 3601.0)


# --- scope ---


def test_a_device_speaks_for_its_own_scopes() -> None:
    claims = Claims()
    claims.joined("a", [KEY])
    elsewhere = KEY._replace(scope="network:other")
    assert not claims.objection(said(1, 30.0), ROWS, 0.0)
    assert "not a scope of this device" in claims.objection(said(1, 30.0, key=elsewhere), ROWS, 0.0)
    claims.joined("a", [elsewhere])  # it has moved
    for key in (KEY, elsewhere):
        assert not claims.objection(said(1, 30.0, key=key), ROWS, 0.0)


def test_a_device_that_never_joined_is_bound_by_what_it_says_first() -> None:
    claims = Claims()
    claims.merged(said(1, 30.0), 0.0, 0.0)
    assert claims.objection(said(1, 30.0, key=KEY._replace(scope="network:other")), ROWS, 1.0)
    assert not claims.objection(said(1, 30.0, device="b", key=KEY), ROWS, 1.0)


# --- trust ---


def test_repeated_contradiction_lowers_trust_and_agreement_restores_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("cans"), "propagate", True)
    claims, trusts = Claims(), []
    for t in range(20):
        claims.merged(said(1, 150.0, t, device="liar"), 0.9, float(t))
        trusts.append(claims.trust("liar"))
    assert trusts[:PATIENCE] == [1.0] * PATIENCE
    assert trusts[PATIENCE : PATIENCE + 2] == [0.5, 0.25]
    assert trusts[-1] == LEAST_TRUST
    assert claims.doubtful() == {"liar": LEAST_TRUST}
    assert claims.trust("honest") == 1.0
    assert [each["device"] for each in logged(caplog, "a device contradicts its pool")] == ["liar"]
    for t in range(20, 26):
        claims.merged(said(1, 30.0, t, device="liar"), 0.0, float(t))
    assert claims.trust("liar") == 1.0
    assert not claims.doubtful()


RULES = rules_of(policy_named("cans"), Hyperparameters(), "link")


def judged(upload: Upload, trust: float = 1.0) -> Judged:
    """As a server of policy `cans` judges it."""
    return Judged(upload, trust=trust, rules=RULES)


def settled_pool(path: Path):
    """A store whose pool knows that the exchange takes 30 ms."""
    store = open_store(f"sqlite:{path}")
    key = PoolKey("m", "1", "cans", "link", "network:lab")
    rng = np.random.default_rng(0)
    for t in range(30):
        upload = said(1, float(30 * rng.lognormal(0, 0.05)), t, key, "honest")
        store.merge([judged(upload)], float(t))
    return store, key


def test_what_a_distrusted_device_says_is_doubted_and_counted(tmp_path: Path) -> None:
    store, key = settled_pool(tmp_path / "pools.sqlite")
    (before,) = store.accounts()
    lie = said(1, 3000.0, 0, key, "liar")
    (merged,) = store.merge([judged(lie, trust=0.25)], 40.0)
    assert merged.doubted > 0.5
    (after,) = store.accounts()
    assert after.total == before.total + 1
    assert after.pool.epoch == 0
    assert after.pool.alarm == before.pool.alarm, "it has no say in whether the pool has changed"
    added = after.pool.statistics - before.pool.statistics
    assert after.pool.doubted is not None
    before_doubted = before.pool.doubted or SufficientStatistics.zero(2)
    rest = after.pool.doubted - before_doubted
    assert (added + rest).equals(lie.statistics), "believed and doubted are all that was said"
    assert 0.0 < added.weight <= 0.25 * (1 - merged.doubted) * 1.001
    (honest,) = store.merge([judged(said(1, 30.0, 30, key, "honest"))], 41.0)
    assert honest.doubted == pytest.approx(0.0)
    store.close()


def test_a_distrusted_device_never_starts_a_pool_anew(tmp_path: Path) -> None:
    store, key = settled_pool(tmp_path / "pools.sqlite")
    for t in range(30):
        store.merge([judged(said(1, 3000.0, t, key, "liar"), trust=0.5)], 40.0 + t)
    (account,) = store.accounts()
    assert account.pool.epoch == 0
    assert account.total == 60
    store.close()


def estimate_ms(store, key: PoolKey) -> float:
    """What the pool says of the exchange."""
    (pool,) = store.downloads([key])
    theta = np.linalg.lstsq(pool.statistics.sigma, pool.statistics.b, rcond=None)[0]
    return float(theta @ [1.0, 0.5])


@pytest.mark.parametrize("factor", [100.0, 0.01], ids=["x100", "/100"])
def test_a_million_observations_in_one_upload_move_nothing(tmp_path: Path, factor) -> None:
    """The first that a device ever says: there is no time to hold against it."""
    store, key = settled_pool(tmp_path / "pools.sqlite")
    before = estimate_ms(store, key)
    store.merge([judged(said(1_000_000, 30.0 * factor, 0, key, "liar"))], 40.0)
    assert estimate_ms(store, key) == pytest.approx(before, rel=0.2)
    (account,) = store.accounts()
    assert account.total == 1_000_030
    store.close()


def test_a_pool_that_a_liar_began_is_soon_the_others(tmp_path: Path) -> None:
    store = open_store(f"sqlite:{tmp_path / 'pools.sqlite'}")
    store.merge([judged(said(1_000_000, 3000.0, 0, KEY, "liar"))], 0.0)
    for t in range(6):
        store.merge([judged(said(1, 30.0 + t % 3, t, KEY, "honest"))], 1.0 + t)
    assert estimate_ms(store, KEY) == pytest.approx(31.0, rel=0.1)
    store.close()


# --- over the wire ---


def test_bulk_and_foreign_uploads_are_refused_by_name(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(logging.getLogger("cans"), "propagate", True)
    model = toy()
    key = PoolKey(model.digest, model.table.version, "cans", "link", "network:lab")
    width = model.table.link.shape[1]

    def sums(count: int, latency_ms: float) -> SufficientStatistics:
        one = SufficientStatistics.of([1.0] * width, latency_ms).scaled(9 / (9 + latency_ms**2))
        return times(one, count)

    with running(model, terms=terms("cans")) as server:
        link = Link(server.address)
        first = Upload("liar", "first", key, 0, 0, sums(1, 30.0))
        bulk = replace(first, sequence=1, statistics=sums(1_000_000, 3000.0))
        foreign = replace(first, sequence=0, key=key._replace(scope="network:elsewhere"))
        for upload in (first, bulk, foreign):
            link.sync(SyncRequest((upload,)), 10.0).result(10.0)
        link.close()
        accounts = {each.key.scope: each for each in server.store().accounts()}
        assert accounts["network:lab"].pool.statistics.count == 1
        assert accounts["network:lab"].refused == 1_000_000
        assert accounts["network:elsewhere"].refused == 1
    named = logged(caplog, "upload refused")
    assert [each["device"] for each in named] == ["liar", "liar"]
    assert "1000000 observations" in named[0]["reason"]
    assert "not a scope of this device" in named[1]["reason"]
