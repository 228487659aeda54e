"""Stores, messages and state files of the release before: read, brought forward, or refused."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from cans.errors import Refused, StoreError
from cans.learning import DeviceIdentity
from cans.learning.edge import MergeRules
from cans.live.store import Judged, open_store
from cans.live.store.layout import LAYOUT
from cans.live.store.shares import REST
from cans.live.wire.inference import InferHeader, InferReply, InferRequest, TensorMeta
from cans.live.wire.messages import (
    JoinRequest,
    PoolNews,
    SyncReply,
    SyncRequest,
    WatchRequest,
    Welcome,
)
from cans.live.wire.proto import edge
from cans.live.wire.state import read
from tests.live.conftest import drop_tables
from tests.live.postgres import Postgres
from tests.live.values import KEY, upload

DATA = Path(__file__).parent / "data"
RECORDED: dict[str, Any] = json.loads((DATA / "release-0.1.0-messages.json").read_text())


def recorded(call: str) -> tuple[bytes, bytes]:
    """A request of the release's device and the reply of its server."""
    request, reply = (base64.b64decode(each) for each in RECORDED[call])
    return request, reply


@pytest.fixture
def old_store(tmp_path: Path) -> Path:
    return Path(shutil.copy(DATA / "release-0.1.0.sqlite", tmp_path / "pools.sqlite"))


# --- stores ---


def test_a_store_of_the_release_before_is_brought_forward(old_store: Path) -> None:
    expected = json.loads((DATA / "release-0.1.0-pools.json").read_text())
    with closing(open_store(f"sqlite:{old_store}")) as store:
        found = sorted(
            [list(a.key), a.pool.epoch, a.pool.round, a.pool.statistics.count, a.refused,
             a.pool.statistics.b.tolist(), a.total]
            for a in store.accounts()
        )  # fmt: skip
        assert found == expected
        # What it had received it does not take in again; what is new it does.
        again, new = store.merge([Judged(upload("a", 0)), Judged(upload("a", 5))], 400.0)
        assert again.repeated
        assert not new.repeated
        assert store.purge(0.0) == (0, 0)
    with closing(sqlite3.connect(old_store)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (LAYOUT,)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_pools_knew_before_senders_were_told_apart_stays(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """Layout 2 had no sums per sender; those of its pools are nobody's in particular."""
    if kind == "sqlite":
        file = tmp_path / "pools.sqlite"
        url, drop = f"sqlite:{file}", ("DROP TABLE shares", "PRAGMA user_version = 2")
    else:
        server: Postgres = request.getfixturevalue("postgres")
        drop_tables(server)
        url, drop = server.url, ("DROP TABLE cans_shares", "UPDATE cans_layout SET version = 2")
    watched, first, second = MergeRules(watched=True), upload("a", 0, seed=3), upload("b", 0)
    with closing(open_store(url)) as store:
        store.merge([Judged(first, rules=watched)], 5.0)
    if kind == "sqlite":
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            for statement in drop:
                connection.execute(statement)
    else:
        import psycopg

        with psycopg.connect(url, autocommit=True) as database:
            for statement in drop:
                database.execute(statement.encode())
    with closing(open_store(url)) as store:
        store.merge([Judged(second, rules=watched)], 6.0)
        shares = store.shares(KEY)
        assert shares.keys() == {REST, "b"}
        assert shares[REST].said.equals(first.statistics)
        kept = store.take_back(KEY, ["b"], 7.0)
        assert replace(kept.statistics, count=0).equals(replace(first.statistics, count=0))
        assert kept.statistics.count == first.statistics.count + second.statistics.count


def test_stores_that_cannot_be_read_say_what_to_do(tmp_path: Path, old_store: Path) -> None:
    with closing(sqlite3.connect(old_store)) as file:
        file.execute("PRAGMA user_version = 0")
    with pytest.raises(StoreError, match=r"before stores had a layout version.*move it away"):
        open_store(f"sqlite:{old_store}")
    with closing(sqlite3.connect(old_store)) as file:
        file.execute(f"PRAGMA user_version = {LAYOUT + 1}")
    with pytest.raises(StoreError, match=r"newer CANS.*upgrade this server"):
        open_store(f"sqlite:{old_store}")
    with pytest.raises(StoreError, match="there is no store"):
        open_store(f"sqlite:{tmp_path / 'none'}", own=False)


def test_postgresql_of_the_release_before_is_brought_forward(tmp_path: Path) -> None:
    import psycopg

    with closing(Postgres()) as postgres:
        with closing(open_store(postgres.url)) as store:
            store.merge([Judged(upload("a", 0))], 5.0)
        with psycopg.connect(postgres.url, autocommit=True) as database:
            database.execute("ALTER TABLE cans_senders DROP COLUMN time")
            database.execute("DROP TABLE cans_layout, cans_groups, cans_members, cans_shares")
        with closing(open_store(postgres.url)) as store:
            again, new = store.merge([Judged(upload("a", 0)), Judged(upload("a", 1))], 6.0)
            assert (again.repeated, new.repeated) == (True, False)
            with closing(open_store(postgres.url, own=False)) as looking:
                assert len(looking.snapshot(("senders",))["senders"]) == 1
            copied = tmp_path / "copy.sqlite"
            assert store_command("backup", postgres.url, str(copied)).returncode == 0
            shown = json.loads(store_command("show", postgres.url, "--json").stdout)
            assert [each["senders"] for each in shown["pools"]] == [1]
            store.merge([Judged(upload("a", 0, key=KEY._replace(scope="network:new")))], 4e9)
            purged = store_command("purge", postgres.url, "--older-than-days", "30", "--json")
            assert json.loads(purged.stdout) == {"pools": 1, "senders": 1}
        with psycopg.connect(postgres.url, autocommit=True) as database:
            database.execute("UPDATE cans_layout SET version = 99")
        with pytest.raises(StoreError, match="newer CANS"):
            open_store(postgres.url)
    with closing(open_store(f"sqlite:{copied}")) as copy:
        assert copy.merge([Judged(upload("a", 1))], 7.0)[0].repeated


def store_command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cans", "store", *words], capture_output=True, text=True, timeout=60
    )


def test_a_store_is_shown_copied_and_purged_while_its_server_runs(tmp_path: Path) -> None:
    file, copy = tmp_path / "pools.sqlite", tmp_path / "copy.sqlite"
    url = f"sqlite:{file}"
    with closing(open_store(url)) as store:  # as a server holds it
        store.merge([Judged(upload("a", 0)), Judged(upload("b", 0, key=KEY))], 1e9)
        other = KEY._replace(scope="network:new")
        store.merge([Judged(upload("a", 0, key=other))], 4e9)
        shown = json.loads(store_command("show", url, "--json").stdout)
        assert [(each["scope"], each["senders"]) for each in shown["pools"]] == [
            ("everyone", 2), ("network:new", 1)
        ]  # fmt: skip
        assert "everyone" in store_command("show", url).stdout
        assert store_command("backup", url, str(copy)).returncode == 0
        taken = store_command("backup", url, str(copy))
        assert (taken.returncode, len(taken.stderr.splitlines())) == (2, 1)
        gone = json.loads(store_command("purge", url, "--older-than-days", "30", "--json").stdout)
        assert gone == {"pools": 1, "senders": 2}
        assert store.merge([Judged(upload("a", 0, key=other))], 4e9)[0].repeated
    with closing(open_store(f"sqlite:{copy}")) as copied:
        assert len(copied.accounts()) == 2
        assert copied.merge([Judged(upload("a", 0))], 2e9)[0].repeated


def test_bad_usage_of_the_store_commands_is_one_line(tmp_path: Path) -> None:
    for words in (
        ("show", "memory:"),
        ("show", f"sqlite:{tmp_path / 'none'}"),
        ("purge", f"sqlite:{tmp_path / 'none'}", "--older-than-days", "0"),
        ("show", "ftp://x"),
    ):
        done = store_command(*words)
        assert done.returncode in (1, 2)
        assert len(done.stderr.splitlines()) == 1, done.stderr


# --- messages ---


def test_what_a_device_of_the_release_before_says_is_understood() -> None:
    assert JoinRequest.from_bytes(recorded("join")[0]).identity.type == "rpi5"
    request = InferRequest.from_bytes(recorded("infer")[0])
    assert (request.header.point, request.header.codec, request.nbytes) == (0, "float32", 256)
    assert SyncRequest.from_bytes(recorded("sync")[0]).uploads
    assert WatchRequest.from_bytes(recorded("watch")[0]).known


def test_what_a_server_of_the_release_before_says_is_understood() -> None:
    welcome = Welcome.from_bytes(recorded("join")[1])
    assert (welcome.terms.policy.name, welcome.model_name) == ("cans", "toy")
    reply = InferReply.from_bytes(recorded("infer")[1])
    assert list(reply.outputs) == ["y"]
    assert SyncReply.from_bytes(recorded("sync")[1]).pools
    assert PoolNews.from_bytes(recorded("watch")[1]).pools


def test_the_state_of_a_device_of_the_release_before_is_kept() -> None:
    state = read(base64.b64decode(RECORDED["state"]))
    assert (state.identity.device, state.inferences, state.joined) == ("old", 6, True)
    assert Welcome.from_bytes(state.welcome).terms.policy.name == "cans"
    assert {each.key.policy for each in state.records} == {"cans"}


def test_what_we_say_is_understood_by_the_release_before() -> None:
    """Read by its own descriptors, with every field in the place that it knows."""
    pool = descriptor_pool.DescriptorPool()
    described = (DATA / "release-0.1.0-edge.binpb").read_bytes()
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(described))

    def old(name: str, data: bytes) -> Any:
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"cans.v1.{name}"))
        return kind.FromString(data)

    join = old("JoinRequest", JoinRequest(DeviceIdentity("a", "b", "c", "d"), "m").to_bytes())
    assert (join.identity.device, join.identity.network, join.model) == ("a", "d", "m")
    said = Welcome.from_bytes(recorded("join")[1])
    welcome, before = (old("Welcome", each) for each in (said.to_bytes(), recorded("join")[1]))
    for field in ("policy", "table", "delivery", "fresh_pools", "model_name", "cutting",
                  "highest_latency_ms"):  # fmt: skip
        assert getattr(welcome, field) == getattr(before, field), field
    # A device refuses hyper-parameters that it does not know.
    assert set(json.loads(welcome.hyperparameters)) <= set(json.loads(before.hyperparameters))
    sync = SyncRequest.from_bytes(recorded("sync")[0])
    ours, theirs = (old("SyncRequest", each) for each in (sync.to_bytes(), recorded("sync")[0]))
    for upload_ in theirs.uploads:
        upload_.time = 0.0  # said for ageing, which is gone
    assert ours == theirs
    header = InferHeader("a", "b", "m", "t", 1, "uint8", (TensorMeta("x", "float32", (1, 2)),))
    infer = old("InferRequest", InferRequest(header, [memoryview(b"xy")]).to_bytes())
    assert (infer.header.point, infer.header.codec, infer.tensors[0]) == (1, "uint8", b"xy")


def test_releases_too_far_apart_say_which_to_upgrade() -> None:
    message = edge.JoinRequest.FromString(recorded("join")[0])
    for version in (0, 1, 2):
        message.wire = version
        JoinRequest.from_bytes(message.SerializeToString())
    message.wire = 9
    with pytest.raises(Refused, match=r"device speaks wire version 9.*upgrade this side"):
        JoinRequest.from_bytes(message.SerializeToString())
