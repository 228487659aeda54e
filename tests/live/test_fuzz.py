"""Bad input: every message gets the right status, the pools stay clean, memory stays flat."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from cans.live.device.device import Device
from cans.live.server.door.quotas import QuotaOptions
from cans.live.store import open_store
from tests.live.fuzz import SMALL, Fuzzer, bombard
from tests.live.process import free_port, server
from tests.live.running import running, terms
from tests.live.toy import example, toy

PATIENT = QuotaOptions(refusals=1 << 30, senders=1 << 30)  # who is refused is not slowed down


def test_a_thousand_bad_messages() -> None:
    model = toy()
    with running(model, largest_message=SMALL, quotas=PATIENT) as edge_server:
        seen = bombard(edge_server.address, Fuzzer(model, "fedlinucb-dw", 0), 1000)
        assert sum(seen.values()) == 1000
        assert len({kind for kind, _ in seen}) == 14
        assert edge_server.server.gate.calls.get(("Infer", "INTERNAL")) is None
        assert edge_server.server.pools.refused > 0
        for account in edge_server.store().accounts():
            assert account.pool.statistics.squares < 1e9


def test_wrong_tokens(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a secret\n")
    model = toy()
    import grpc

    with running(model, terms=terms(), tokens=tokens) as edge_server:
        channel = grpc.insecure_channel(edge_server.address)
        fuzzer = Fuzzer(model, "fedlinucb-dw", 1)
        for token, code in ((None, "UNAUTHENTICATED"), ("guess", "UNAUTHENTICATED"),
                            ("secret", "PERMISSION_DENIED")):  # fmt: skip
            metadata = None if token is None else [("authorization", f"Bearer {token}")]
            method, data, _ = fuzzer._sync(set())
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(method)(data, metadata=metadata)
            assert caught.value.code().name == code
        channel.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_bad_messages_and_flat_memory(tmp_path: Path) -> None:
    port, store = free_port(), f"sqlite:{tmp_path / 'pools.sqlite'}"
    process = server(port, store, largest_message=SMALL, quotas=asdict(PATIENT))
    address, model = f"127.0.0.1:{port}", toy()
    bombard(address, Fuzzer(model, "fedlinucb-dw", 1), 2000)
    before = resident(process.child.pid)
    bombard(address, Fuzzer(model, "fedlinucb-dw", 2), 10_000)
    after = resident(process.child.pid)
    print(f"resident {before:.0f} -> {after:.0f} MB")
    assert after < before * 1.1 + 5
    with Device(address, toy(), "rpi5", state=tmp_path / "device") as device:
        assert device.joined
        device.infer(example())
    process.stop()
    open_store(store).close()


def resident(pid: int) -> float:
    """Megabytes of memory in use."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6
