"""Who adds a world or a store writes one file. The same is shown of codecs in
`models/test_new_codec.py` and of policies in `live/test_own_policy.py`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import cans
import cans.live.store
from cans.errors import InputError
from cans.live.store import open_store
from cans.simulation.worlds import named
from cans.simulation.worlds.world import World
from tests.live.running import running
from tests.live.toy import toy

A_STORE = """
from cans.live.store.memory import MemoryStore

_STORES = {}


def open_url(url, own):
    return _STORES.setdefault(url, MemoryStore())
"""


def test_a_world_is_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_server(model: str, devices: int) -> World:
        world = named.make_world("layered", model, devices)
        return replace(world, name="slow", server_ms=world.server_ms * 1000)

    monkeypatch.setitem(named.WORLDS, "slow", slow_server)
    result = cans.simulate("vgg16", "cans", world="slow", rounds=200, seeds=1, engine="reference")
    picks = result.runs[0].picks
    local = max(picks, key=int)
    assert picks[local] > 190, "nothing is worth sending there"


def test_a_store_is_a_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "shelf.py").write_text(A_STORE)
    path = [*cans.live.store.__path__, str(tmp_path)]
    monkeypatch.setattr(cans.live.store, "__path__", path)
    model = toy()
    with running(model, store="shelf:one") as server:
        state = tmp_path / "device"
        with cans.Device(server.address, model, "rpi5", state=state) as device:
            device.settle()
    accounts = open_store("shelf:one").accounts()
    assert sum(each.total for each in accounts) > 0


@pytest.mark.parametrize("url", ["redis:x", "base:x", "http://x", "a-b:x"])
def test_what_is_no_store_is_said(url: str) -> None:
    with pytest.raises(InputError, match="unknown store"):
        open_store(url)
