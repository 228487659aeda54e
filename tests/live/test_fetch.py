"""Fetching models: in one file or in many, cut off, damaged, and under names that must not be."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from cans import models
from cans.errors import InputError, Refused, RemoteProtocolError, RunError, Unreachable
from cans.live.device.device import Device
from cans.live.fetching import fetch_model
from cans.live.safe_files import check_names
from cans.live.split import Cutting, SplitModel
from cans.live.splitting import load_model, split
from cans.live.wire.link import Link
from tests.live.onnx_models import convolutions, with_weights_beside
from tests.live.proxy import Proxy
from tests.live.running import Running, running, terms


def served(path: Path) -> SplitModel:
    return split(load_model(path, Cutting()), Cutting(), to_send=True)


@pytest.fixture
def spread(tmp_path: Path) -> Path:
    """A model of 11 MB with its weights in nine files."""
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "spread.onnx"
    return with_weights_beside(path, layers=8, channels=200, size=8)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CANS_CACHE", raising=False)
    return tmp_path / "cache" / "cans" / "models"


def fetch(server: Running | Proxy, model: SplitModel, folder: Path, **more: Any) -> Path:
    link = Link(server.address)
    try:
        return fetch_model(link, model.digest, model.files[0].sha256, folder, **more)
    finally:
        link.close()


def contents(folder: Path) -> dict[str, bytes]:
    found = {str(each.relative_to(folder)): each for each in folder.rglob("*") if each.is_file()}
    return {name: each.read_bytes() for name, each in found.items()}


def test_a_device_without_a_copy_gets_all_files(spread: Path, cache: Path, tmp_path: Path) -> None:
    value = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    (whole,) = onnxruntime.InferenceSession(str(spread)).run(None, {"input": value})
    shown: list[tuple[int, int]] = []
    with running(served(spread), terms=terms("random")) as server:
        for life in range(2):
            with Device(
                server.address, state=tmp_path / "state", seed=life,
                progress=lambda *both: shown.append(both),
            ) as device:  # fmt: skip
                points = set()
                for _ in range(40):
                    outputs = device.infer({"input": value})
                    np.testing.assert_allclose(outputs["scores"], whole, atol=1e-4)
                    assert device.last is not None
                    points.add(device.last.answered_by)
                assert points == {"device", server.address}
            if life == 0:
                total = sum(each.stat().st_size for each in spread.parent.rglob("*.*"))
                assert [done for done, _ in shown] == sorted(done for done, _ in shown)
                assert (shown[-1], {of for _, of in shown}) == ((total, total), {total})
                fetched = len(shown)
        assert len(shown) == fetched  # the second time it was there
    with Device("127.0.0.1:1", state=tmp_path / "state", connect_seconds=0.2) as device:
        np.testing.assert_allclose(device.infer({"input": value})["scores"], whole, atol=1e-4)
    digest = models.load(spread).digest
    assert models.load(cache / digest / f"{digest}.onnx").digest == digest
    assert {each.name for each in cache.iterdir()} == {digest}


def test_a_model_in_one_file_stays_one_file(cache: Path, tmp_path: Path) -> None:
    path = convolutions(tmp_path / "one.onnx", channels=200)
    with running(served(path)) as server:
        with Device(server.address, state=tmp_path / "state") as device:
            assert device.joined
        model = served(path)
        assert cache.joinpath(f"{model.digest}.onnx").read_bytes() == path.read_bytes()
        assert len(list(cache.iterdir())) == 1
        # What another life has left: a part, too much, or something else.
        content = path.read_bytes()
        for number, left in enumerate((content[:12_345], content, content + b"more")):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / f"{model.digest}.part").write_bytes(left)
            shown: list[int] = []
            found = fetch(server, model, folder, progress=lambda n, _, to=shown: to.append(n))
            assert found.read_bytes() == content
            assert shown[0] >= (12_345 if number == 0 else len(content) if number == 1 else 0)
        (folder / f"{model.digest}.onnx").unlink()
        (folder / f"{model.digest}.part").write_bytes(b"x" * 100)
        with pytest.raises(RemoteProtocolError, match="not what was announced"):
            fetch(server, model, folder)
        assert fetch(server, model, folder).read_bytes() == content
        with pytest.raises(RemoteProtocolError, match="no proper digest"):
            fetch(server, replace(model, digest="../etc"), folder)


def test_it_goes_on_where_the_link_broke(spread: Path, tmp_path: Path) -> None:
    model = served(spread)
    shown: list[int] = []
    with running(model) as server:
        proxy = Proxy(server.server.port)
        cuts = [0.15, 0.4, 0.7, 0.95]  # of all bytes

        def progress(done: int, total: int) -> None:
            shown.append(done)
            if cuts and done > cuts[0] * total:
                cuts.pop(0)
                proxy.cut()
                time.sleep(0.02)

        found = fetch(proxy, model, tmp_path / "cache", progress=progress, attempts=2)
        proxy.close()
    assert not cuts
    assert shown == sorted(shown)  # nothing was begun anew
    assert models.load(found).digest == model.digest
    assert contents(found.parent) == {
        found.name if name == spread.name else name: data
        for name, data in contents(spread.parent).items()
    }


def test_without_any_progress_it_gives_up(spread: Path, tmp_path: Path) -> None:
    model = served(spread)
    link = Link("127.0.0.1:1")
    with pytest.raises(Unreachable):
        fetch_model(link, model.digest, model.files[0].sha256, tmp_path / "cache", attempts=2)
    link.close()


def test_a_damaged_file_is_thrown_away_and_only_that(spread: Path, tmp_path: Path) -> None:
    model, cache = served(spread), tmp_path / "cache"
    victim = spread.parent / "layers" / "w3.bin"
    good = victim.read_bytes()
    with running(model) as server:
        victim.write_bytes(bytes(len(good)))
        with pytest.raises(RemoteProtocolError, match=r"layers/w3\.bin is not what was announced"):
            fetch(server, model, cache)
        part = cache / f"{model.digest}.part"
        assert not (part / "layers" / "w3.bin").exists()
        assert (part / "layers" / "w4.bin").exists()
        victim.write_bytes(good[:-1])
        with pytest.raises(Refused, match="changed since the server started"):
            fetch(server, model, cache)
        victim.unlink()
        with pytest.raises(Refused, match="gone from the server"):
            fetch(server, model, cache)
        victim.write_bytes(good)
        shown: list[int] = []
        found = fetch(server, model, cache, progress=lambda done, _: shown.append(done))
        assert models.load(found).digest == model.digest
        assert shown[0] == shown[-1] - len(good)  # the rest was here


def test_files_that_are_not_one_model(spread: Path, tmp_path: Path) -> None:
    """Every file is as announced, and still it is not the model that the table is about."""
    model = served(spread)
    other = spread.parent / "layers" / "w3.bin"
    other.write_bytes(other.read_bytes()[::-1])
    forged = replace(model, files=served(spread).files)
    with running(forged) as server:
        with pytest.raises(RemoteProtocolError, match="not one model"):
            fetch(server, forged, tmp_path / "cache")
        assert list((tmp_path / "cache").iterdir()) == []


BAD_NAMES = [
    ".", "..", "../up.bin", "a/../../up.bin", "/etc/cans", "a//b", "./a", "a/", "a\\b", "a\0b",
    "a\nb", "x" * 2000,
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_must_not_be(spread: Path, tmp_path: Path, name: str) -> None:
    model = served(spread)
    first, *others = model.files
    hostile = replace(model, files=(first, replace(others[0], name=name), *others[1:]))
    before = contents(tmp_path)
    with running(hostile) as server, pytest.raises(RemoteProtocolError, match="cannot be called"):
        fetch(server, hostile, tmp_path / "cache" / "deep")
    added = set(contents(tmp_path)) - set(before)
    assert all(each.startswith(f"cache/deep/{model.digest}.part/") for each in added)
    assert not any(contents(tmp_path)[each] for each in added)


def test_names_that_are_in_each_others_way() -> None:
    check_names(["a", "b/c", "b/d"], "m.onnx")
    for names in (["a", "a/b"], ["a/b", "a"], ["m.onnx/x"], [""]):
        with pytest.raises(RemoteProtocolError, match="cannot be called"):
            check_names(names, "m.onnx")
    for names in (["a", "a"], ["m.onnx"]):
        with pytest.raises(RemoteProtocolError, match="same name"):
            check_names(names, "m.onnx")
    with pytest.raises(RemoteProtocolError, match="at most"):
        check_names([str(i) for i in range(20_000)], "m.onnx")


def test_only_files_of_the_model_are_sent(spread: Path, tmp_path: Path) -> None:
    from cans.live.wire.model_files import FetchRequest

    secret = spread.parent / "secret.txt"
    secret.write_text("nobody's business")
    with running(served(spread)) as server:
        link = Link(server.address)
        for name in ("secret.txt", "../spread.onnx", str(secret), "layers", "spread.onnx"):
            with pytest.raises(Refused, match="belongs to"):
                list(link.fetch(FetchRequest(file=name)))
        link.close()


def test_a_link_out_of_the_models_folder_is_not_followed(
    spread: Path,
    cache: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It can be served, and a device with a copy can use it; but it is not handed out."""
    monkeypatch.setattr(logging.getLogger("cans"), "propagate", True)
    moved = tmp_path / "elsewhere.bin"
    victim = spread.parent / "layers" / "w3.bin"
    victim.rename(moved)
    victim.symlink_to(moved)
    model = served(spread)
    assert model.files == ()
    assert any("link out of its folder" in vars(each).get("reason", "") for each in caplog.records)
    with running(model) as server:
        with pytest.raises(InputError, match="does not hand out 'spread'"):
            Device(server.address, state=tmp_path / "a")
        with Device(server.address, spread, state=tmp_path / "b") as device:
            assert device.joined
    moved.rename(spread.parent / "inside.bin")
    victim.unlink()
    victim.symlink_to(spread.parent / "inside.bin")
    assert len(served(spread).files) == 10


def test_links_planted_on_the_device(spread: Path, tmp_path: Path) -> None:
    model, outside = served(spread), tmp_path / "outside"
    outside.mkdir()
    cache = tmp_path / "cache"
    part = cache / f"{model.digest}.part"
    part.mkdir(parents=True)
    with running(model) as server:
        (part / "layers").symlink_to(outside)
        with pytest.raises(RunError, match="leads out of its folder"):
            fetch(server, model, cache)
        (part / "layers").unlink()
        (part / "w0.bin").symlink_to(outside / "w0.bin")
        with pytest.raises(RunError, match="not a file of its own"):
            fetch(server, model, cache)
        assert list(outside.iterdir()) == []


def test_several_devices_of_one_machine_fetch_at_once(spread: Path, tmp_path: Path) -> None:
    model, found = served(spread), []
    with running(model) as server:
        threads = [
            threading.Thread(target=lambda: found.append(fetch(server, model, tmp_path / "cache")))
            for _ in range(4)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert models.load(found[0]).digest == model.digest


def test_a_disk_that_is_too_small(
    spread: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = served(spread)
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with running(model) as server, pytest.raises(RunError, match="1000000 are free"):
        fetch(server, model, tmp_path / "cache")
    blocked = tmp_path / "file"
    blocked.write_text("")
    link = Link("127.0.0.1:1")
    with pytest.raises(RunError, match="cannot keep the model"):
        fetch_model(link, model.digest, model.files[0].sha256, blocked)
    link.close()


def large(folder: Path) -> Path:
    """Three layers of 1.0 GB each in two files, written sparse: only their corners are set."""
    size = 16384
    length = 4 * size * size
    nodes, tensors, source = [], [], "x"
    for i, name in enumerate(("two.bin", "two.bin", "one.bin")):
        offset = (i % 2) * length
        with (folder / name).open("r+b" if i == 1 else "wb") as file:
            file.seek(offset)
            file.write(np.full(64, 0.5 + i, np.float32).tobytes())
            file.truncate(offset + length)
        tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[size, size])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": name, "offset": offset, "length": length}.items():
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
        nodes.append(helper.make_node("MatMul", [source, f"w{i}"], [f"y{i}"]))
        source = f"y{i}"
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, size]) for n in ("x", source)]
    graph = helper.make_graph(nodes, "large", info[:1], info[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(folder / "large.onnx"))
    return folder / "large.onnx"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_more_than_two_gigabytes(tmp_path: Path) -> None:
    """Three gigabytes, one file alone above two; cut off behind that mark, and taken up again."""
    (tmp_path / "model").mkdir()
    model, shown = served(large(tmp_path / "model")), []
    assert max(each.size for each in model.files) == 2 << 30
    with running(model) as server:
        proxy = Proxy(server.server.port)

        def progress(done: int, total: int) -> None:
            if done > 2_900_000_000 and shown[-1] <= 2_900_000_000:
                proxy.cut()
                time.sleep(0.05)
            shown.append(done)

        shown.append(0)
        found = fetch(proxy, model, tmp_path / "cache", progress=progress)
        proxy.close()
    assert shown == sorted(shown)
    assert shown[-1] == sum(each.size for each in model.files) > 3 << 30
    assert models.load(found).digest == model.digest
