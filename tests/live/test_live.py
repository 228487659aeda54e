"""Devices and a server over real sockets, with a toy model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from tests.live.ledger import Ledger, check_conservation
from tests.live.running import running, terms
from tests.live.toy import example, toy


def test_answers_are_right_wherever_they_come_from(tmp_path: Path) -> None:
    with (
        running(toy(), terms=terms("random")) as server,
        Device(server.address, toy(), "rpi5", state=tmp_path, seed=1) as device,
    ):
        assert device.joined
        points = set()
        for seed in range(30):
            inputs = example(seed=seed)
            outputs = device.infer(inputs)
            np.testing.assert_allclose(outputs["y"], inputs["t0"] + 4, rtol=1e-6)
            assert device.last is not None
            assert not device.last.fallback
            points.add(device.last.point)
        assert points == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("policy", ["cans", "fedlinucb-dw", "linucb", "lints", "local", "offload"])
def test_policies_learn(policy: str, tmp_path: Path) -> None:
    with (
        running(toy(), terms=terms(policy)) as server,
        Device(server.address, toy(), "rpi5", state=tmp_path, seed=1) as device,
    ):
        for seed in range(20):
            device.infer(example(seed=seed))
        assert device.last is not None
        assert device.last.learned
        document = device.last.to_dict()
        assert document["point"] == device.last.point
        assert str(device.last)


@pytest.mark.parametrize("delivery", ["immediate", "next-contact"])
@pytest.mark.parametrize("policy", ["cans", "fedlinucb-dw", "fedlinucb-decouple", "fedlinucb"])
def test_conservation(policy: str, delivery: str, tmp_path: Path) -> None:
    books = [Ledger() for _ in range(3)]
    with running(toy(), terms=terms(policy, delivery=delivery)) as server:
        devices = [
            Device(
                server.address,
                toy(),
                "rpi5",
                state=tmp_path / str(i),
                seed=i,
                hooks=Hooks(stopwatch=book),
            )
            for i, book in enumerate(books)
        ]
        for seed in range(30):
            for device in devices:
                device.infer(example(seed=seed))
        for device in devices:
            device.close()
        check_conservation(server.store(), devices, books)


def test_async(tmp_path: Path) -> None:
    async def main(address: str) -> None:
        with Device(address, toy(), "rpi5", state=tmp_path) as device:
            results = await asyncio.gather(*(device.ainfer(example(seed=i)) for i in range(5)))
            for i, outputs in enumerate(results):
                np.testing.assert_allclose(outputs["y"], example(seed=i)["t0"] + 4, rtol=1e-6)

    with running(toy()) as server:
        asyncio.run(main(server.address))
