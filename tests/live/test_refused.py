"""Uploads that the server does not believe: named, counted, acknowledged, and not lost."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from cans.errors import LocalProtocolError
from cans.learning import PoolKey, SufficientStatistics, Upload
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.server import pools
from cans.live.wire.link import Link
from cans.live.wire.messages import SyncRequest
from cans.live.wire.state import read
from tests.live.ledger import Ledger, check_conservation
from tests.live.process import eager
from tests.live.running import running
from tests.live.toy import example, toy
from tests.live.values import statistics


def logged(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    once = {id(each): each for each in caplog.records}  # a record may pass two handlers
    return [vars(each) for each in once.values() if each.getMessage() == message]


@pytest.mark.parametrize("delivery", ["immediate", "next-contact"])
def test_what_the_server_keeps_out_stays_in_the_books(
    delivery: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An honest device whose every third upload is not believed, for whatever reason."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(logging.getLogger("cans"), "propagate", True)
    honest, seen = pools.implausible, [0]

    def suspicious(*words: Any) -> str | None:
        seen[0] += 1
        return "looks odd" if seen[0] % 3 == 0 else honest(*words)

    monkeypatch.setattr(pools, "implausible", suspicious)
    book, store = Ledger(), f"sqlite:{tmp_path / 'pools.sqlite'}"
    terms = eager("fedlinucb-decouple", delivery)
    with running(toy(), terms=terms, store=store) as server:
        for life in range(2):
            with Device(
                server.address, toy(), "rpi5", state=tmp_path / "a", name="unlucky",
                hooks=Hooks(stopwatch=book), seed=life,
            ) as device:  # fmt: skip
                for seed in range(15):
                    device.infer(example(seed=seed))
                    device.settle()
        kept = read((tmp_path / "a" / "state").read_bytes()).refused
        assert device.refused == sum(each.statistics.count for each in kept) > 0
        assert {each.reason for each in kept} == {"looks odd"}
        check_conservation(server.store(), [device], [book])
        refusals = server.store().refused()
        assert {name for _, name, _ in refusals} == {"unlucky"}
        assert sum(each.observations for each in refusals.values()) == device.refused
        uploads = sum(each.uploads for each in refusals.values())
        assert uploads == sum(each.uploads for each in kept) == server.server.pools.refused
        named = logged(caplog, "upload refused")
        assert len(named) == uploads == len(logged(caplog, "our upload was refused"))
        assert {(each["device"], each["reason"]) for each in named} == {("unlucky", "looks odd")}
    with running(toy(), terms=terms, store=store):
        (again,) = logged(caplog, "uploads were refused before")
        assert (again["device"], again["uploads"]) == ("unlucky", uploads)


def test_a_kill_before_the_refusal_was_heard_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload goes again, and the verdict of then comes back: counted once on both sides."""
    monkeypatch.setattr(pools, "implausible", lambda *_: "looks odd")
    book = Ledger()
    with running(toy(), terms=eager()) as server:
        with Device(
            server.address, toy(), "rpi5", state=tmp_path, hooks=Hooks(stopwatch=book)
        ) as device:
            device.settle()
            before = (tmp_path / "state").read_bytes()
            owed = device.refused
            device._experience.adopt = lambda _: None  # type: ignore[method-assign]
            device.infer(example())
            device.settle(0.2)
            killed = (tmp_path / "state").read_bytes()
        assert killed != before
        monkeypatch.setattr(pools, "implausible", lambda *_: None)
        (tmp_path / "state").write_bytes(killed)
        with Device(
            server.address, toy(), "rpi5", state=tmp_path, hooks=Hooks(stopwatch=book)
        ) as device:
            device.settle()
            assert device.refused > owed
            check_conservation(server.store(), [device], [book])


def sync(link: Link, key: PoolKey, value: SufficientStatistics, sequence: int = 0) -> Any:
    upload = Upload("hostile", "1", key, 0, sequence, value)
    request = SyncRequest((upload,))
    return link.sync(request, 5.0).result()


def test_the_first_upload_of_a_pool_does_not_decide_its_size(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool that nobody has used yet must not be taken over by statistics of another size."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(logging.getLogger("cans"), "propagate", True)
    model, book = toy(), Ledger()
    with running(model, terms=eager()) as server:
        link = Link(server.address)
        key = PoolKey(model.digest, model.table.version, "fedlinucb-dw", "back", "everyone")
        for dimension in (1, 9):
            with pytest.raises(LocalProtocolError, match=r"'hostile'.*dimension"):
                sync(link, key, statistics(1, 3, dimension))
        assert "hostile" in logged(caplog, "request refused")[-1]["reason"]
        assert server.store().accounts() == []
        with Device(
            server.address, toy(), "rpi5", state=tmp_path, hooks=Hooks(stopwatch=book)
        ) as device:
            assert device.joined
            for seed in range(5):
                device.infer(example(seed=seed))
            device.settle()
            check_conservation(server.store(), [device], [book])
        link.close()


def test_statistics_that_are_no_numbers_name_their_sender(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(logging.getLogger("cans"), "propagate", True)
    model = toy()
    with running(model, terms=eager()) as server:
        link = Link(server.address)
        key = PoolKey(model.digest, model.table.version, "fedlinucb-dw", "back", "everyone")
        with pytest.raises(LocalProtocolError, match=r"'hostile'.*not finite"):
            sync(link, key, SufficientStatistics.of([1.0, 1.0], float("nan")))
        assert "hostile" in logged(caplog, "request refused")[-1]["reason"]
        link.close()
