"""What devices do besides inferring: resume, watch, give up."""

from __future__ import annotations

import inspect
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cans
from cans.errors import DeadlineExceeded, InputError, Unreachable
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from tests.live.faults import QUICK, wait_until
from tests.live.ledger import Ledger, check_conservation
from tests.live.process import eager
from tests.live.running import Running, running, terms
from tests.live.toy import example, toy


def test_a_testbed_uses_the_public_device_with_hooks() -> None:
    assert issubclass(Device, cans.Device)
    assert "hooks" not in inspect.signature(cans.Device).parameters


def test_a_device_resumes_where_it_stopped(tmp_path: Path) -> None:
    book = Ledger()
    with running(toy(), terms=eager()) as server:
        for life in range(3):
            with Device(
                server.address,
                toy(),
                "rpi5",
                state=tmp_path,
                seed=life,
                hooks=Hooks(stopwatch=book),
            ) as device:
                for seed in range(10):
                    device.infer(example(seed=seed))
        assert device.identity.incarnation
        assert device._experience.state.inferences == 30
        check_conservation(server.store(), [device], [book])


def test_uploads_of_a_former_life_are_delivered(tmp_path: Path) -> None:
    book = Ledger()
    with running(toy(), terms=eager(delivery="next-contact")) as server:
        with Device(
            server.address, toy(), "rpi5", state=tmp_path, hooks=Hooks(stopwatch=book)
        ) as device:
            for seed in range(5):
                device.infer(example(seed=seed))
        assert device._experience.owes
        check_conservation(server.store(), [device], [book])


def test_other_terms_keep_former_records(tmp_path: Path) -> None:
    for policy in ("fedlinucb-dw", "fedlinucb", "fedlinucb-dw"):
        with (
            running(toy(), terms=terms(policy)) as server,
            Device(server.address, toy(), "rpi5", state=tmp_path) as device,
        ):
            for seed in range(8):
                device.infer(example(seed=seed))
    state = device._experience.state
    assert {each.key.policy for each in state.former} == {"fedlinucb"}
    assert {each.key.policy for each in state.records} == {"fedlinucb-dw"}


def test_no_server_at_all(tmp_path: Path) -> None:
    with Device("127.0.0.1:1", toy(), state=tmp_path, connect_seconds=0.3) as device:
        outputs = device.infer(example())
        np.testing.assert_allclose(outputs["y"], example()["t0"] + 4, rtol=1e-6)
        assert device.last is not None
        assert "local" in device.last.why
        with pytest.raises(Unreachable):
            device.refresh()
    with pytest.raises(InputError, match="closed"):
        device.infer(example())


def test_a_server_that_comes_later_is_joined(tmp_path: Path) -> None:
    from tests.live.process import free_port

    port = free_port()
    with Device(
        f"127.0.0.1:{port}", toy(), state=tmp_path, connect_seconds=0.3, hooks=Hooks(breaker=QUICK)
    ) as device:
        device.infer(example())
        with running(toy(), terms=terms("offload"), listen=f"127.0.0.1:{port}") as server:
            wait_until(lambda: device.joined)
            device.infer(example())
            assert device.last is not None
            assert device.last.answered_by == server.address
            server.stop()
            for _ in range(3):
                device.infer(example())
            assert device.last.answered_by == "device"


def test_a_device_without_a_back_end_says_so(tmp_path: Path) -> None:
    with (
        running(toy(), terms=terms("local")) as server,
        Device(
            server.address, toy(), state=tmp_path, local=False, hooks=Hooks(breaker=QUICK)
        ) as device,
    ):
        device.infer(example())
        assert device.last is not None
        assert device.last.answered_by == server.address
        server.stop()
        for _ in range(3):
            with pytest.raises(Unreachable):
                device.infer(example(), deadline_ms=1000)


def test_deadlines_are_kept_even_by_slow_devices(tmp_path: Path) -> None:
    with Device(
        "127.0.0.1:1", toy(block_seconds=0.1), state=tmp_path, connect_seconds=0.3
    ) as device:
        start = time.perf_counter()
        with pytest.raises(DeadlineExceeded):
            device.infer(example(), deadline_ms=50)
        assert time.perf_counter() - start < 0.15
        device.infer(example(), deadline_ms=5000)


def test_a_busy_server_refuses_and_the_device_answers(tmp_path: Path) -> None:
    slow = toy(block_seconds=0.05)
    with running(slow, terms=terms("offload"), workers=1, queue=0) as server:
        devices = [Device(server.address, toy(), state=tmp_path / str(i), seed=i) for i in range(4)]
        threads = [
            threading.Thread(target=lambda d=each: [d.infer(example()) for _ in range(5)])
            for each in devices
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(each._agent.failures for each in devices if each._agent) > 0
        assert server.server.gate.calls["Infer", "RESOURCE_EXHAUSTED"] > 0
        for each in devices:
            each.close()


def test_fresh_pools_reach_devices_that_stay_local(tmp_path: Path) -> None:
    with (
        running(toy(), terms=eager(fresh=True)) as server,
        Device(server.address, toy(), "rpi5", state=tmp_path / "a", seed=1) as busy,
        Device(server.address, toy(), "rpi5", state=tmp_path / "b", seed=2) as idle,
    ):
        known = dict(idle._experience.known)
        for seed in range(10):
            busy.infer(example(seed=seed))
            busy.settle()
        wait_until(lambda: idle._experience.known != known, 5.0)


def test_bad_inputs_are_the_callers_mistake(tmp_path: Path) -> None:
    with (
        running(toy(), terms=terms("offload")) as server,
        Device(server.address, toy(), state=tmp_path) as device,
    ):
        with pytest.raises(InputError):
            device.infer({"t0": np.zeros((3, 3), np.float32)})
        device.infer(example()["t0"])  # one input needs no name
    with pytest.raises(InputError):
        Device("127.0.0.1:1", toy(), state=tmp_path, deadline_ms=0)
    for options in ({"slowdown": 0.5}, {"pace_mbps": -1.0}):
        with pytest.raises(InputError):
            Hooks(**options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="HOST:PORT"):
        Device("nowhere", toy(), state=tmp_path)


def test_one_state_folder_one_device(tmp_path: Path) -> None:
    with (
        Device("127.0.0.1:1", toy(), state=tmp_path, connect_seconds=0.2, name="a"),
        pytest.raises(InputError, match="another device"),
    ):
        Device("127.0.0.1:1", toy(), state=tmp_path, connect_seconds=0.2)
    with pytest.raises(InputError, match="remembers device 'a'"):
        Device("127.0.0.1:1", toy(), state=tmp_path, connect_seconds=0.2, name="b")


def test_another_model_is_refused_clearly(tmp_path: Path) -> None:
    with running(toy()) as server, pytest.raises(InputError, match="no model 'toy-9-4' here"):
        Device(server.address, toy(size=9), state=tmp_path)


def test_testbed_options(tmp_path: Path) -> None:
    big = toy(size=25_000)
    with running(big, terms=terms("offload")) as server, Device(
        server.address, big, state=tmp_path / "b", hooks=Hooks(pace_mbps=8.0)
    ) as device:  # fmt: skip
        device.infer(example(25_000))
        assert device.last is not None
        assert device.last.link_ms > 95  # 100 KB at 8 Mbit/s


def test_large_tensors_travel_in_pieces(tmp_path: Path) -> None:
    size = 1_200_000
    with running(toy(size), terms=terms("offload")) as server, Device(
        server.address, toy(size), state=tmp_path, hooks=Hooks(hedge=False)
    ) as device:  # fmt: skip
        outputs = device.infer(example(size))
        np.testing.assert_allclose(outputs["y"], example(size)["t0"] + 4, rtol=1e-5)
        assert device.last is not None
        assert not device.last.fallback
        assert server.server.gate.calls["InferLarge", "OK"] == 1


def test_health_and_reflection() -> None:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase,
    )

    with running(toy()) as server:
        channel = grpc.insecure_channel(server.address)
        stub = health_pb2_grpc.HealthStub(channel)
        assert stub.Check(health_pb2.HealthCheckRequest()).status == 1
        services = ProtoReflectionDescriptorDatabase(channel).get_services()
        assert "cans.v1.Edge" in services
        assert "inference.GRPCInferenceService" in services
        channel.close()


def test_draining_finishes_what_was_begun(tmp_path: Path) -> None:
    server = Running.of(toy(block_seconds=0.1), terms=terms("offload"))
    with Device(server.address, toy(), state=tmp_path, hooks=Hooks(hedge=False)) as device:
        done: list[Any] = []
        thread = threading.Thread(target=lambda: done.append(device.infer(example())))
        thread.start()
        time.sleep(0.15)
        server.stop()
        thread.join()
        assert done
        assert device.last is not None
        assert device.last.answered_by == server.address


def test_a_report_is_json(tmp_path: Path) -> None:
    with running(toy()) as server, Device(server.address, toy(), state=tmp_path) as device:
        device.infer(example())
        assert device.last is not None
        document = json.loads(json.dumps(device.last.to_dict()))
        assert len(document["choices"]) == 5
        assert {"predicted_ms", "width_ms", "measured_ms"} <= set(document["choices"][0])
