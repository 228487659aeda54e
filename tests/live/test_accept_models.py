"""`cans serve --accept-models`: what a server takes from devices, and what it does not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import cans
from cans.errors import InputError, Refused, RemoteProtocolError
from cans.live.server.accepting.accepted import AcceptedModels, AcceptOptions
from cans.live.splitting import load_model, split
from cans.live.wire.link import Link
from cans.live.wire.model_files import FileDigest, ModelPiece
from live.running import Running, running
from program.networks import classifier, picture


@pytest.fixture(autouse=True)
def _own_state(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def accepting(folder: Path, **options: Any) -> AcceptedModels:
    return AcceptedModels(
        AcceptOptions(folder, **options), lambda path, cut: split(load_model(path, cut), cut)
    )


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., Any]:
    return lambda **options: running(accepted=accepting(tmp_path / "given", **options))


def offer(path: Path, **more: Any) -> ModelPiece:
    data = path.read_bytes()
    digest = sha256(data).hexdigest()
    return ModelPiece(digest, (FileDigest("", len(data), digest),), name=path.stem, **more)


def give(server: Running, path: Path, **more: Any) -> None:
    """All of a model at once; raises what the server says."""
    with_data = replace(offer(path, **more), data=path.read_bytes())
    link = Link(server.address)
    try:
        receipt = link.send_model(with_data, 60.0)
        assert receipt.ready
    finally:
        link.close()


def test_a_session_gives_its_model_to_a_server_that_lacks_it(serve, tmp_path: Path) -> None:
    model = classifier(tmp_path / "mine.onnx")
    plain = ort.InferenceSession(model)
    with serve() as server:
        for source in (model, model.read_bytes()):
            session = cans.InferenceSession(source, server=server.address)
            assert session.local_because == ""
            for seed in range(4):
                feed = {"x": picture(seed)}
                for mine, theirs in zip(
                    session.run(None, feed), plain.run(None, feed), strict=True
                ):
                    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
            session.close()
        names = [each.name for each in server.server.catalogue.models]
        assert len(names) == 1
        assert names[0].startswith("mine-")


def test_the_shapes_of_open_inputs_come_with_the_first_feed(serve, tmp_path: Path) -> None:
    model = classifier(tmp_path / "open.onnx", batch="N")
    plain, feed = ort.InferenceSession(model), {"x": picture(1)}
    with serve() as server:
        session = cans.InferenceSession(model, server=server.address)
        assert "open until the first feed" in session.local_because
        found = session.run(["scores"], feed)[0]
        np.testing.assert_allclose(found, plain.run(["scores"], feed)[0], rtol=1e-5, atol=1e-5)
        assert session.local_because == ""
        for _ in range(20):
            session.run(None, feed)
        assert session.last is not None
        two = {"x": np.concatenate([picture(1), picture(2)])}  # another size: as ever, here
        np.testing.assert_allclose(session.run(["scores"], two)[0], plain.run(["scores"], two)[0])
        session.close()


def test_a_server_that_takes_none_leaves_the_session_local(tmp_path: Path, caplog) -> None:
    model, other = classifier(tmp_path / "mine.onnx"), classifier(tmp_path / "n.onnx", batch=2)
    with cans.Server([other]) as server, caplog.at_level(logging.WARNING, "cans.session"):
        session = cans.InferenceSession(model, server=server.address)
        assert "refuses" in session.local_because
        assert session.run(None, {"x": picture(0)})[0].shape == (1, 5)
        session.close()
    assert [each for each in caplog.messages if "mine.onnx runs locally" in each]


def test_why_a_model_is_not_taken_is_said(serve, tmp_path: Path) -> None:
    """Not only that the server lacks it."""
    nodes = [onnx.helper.make_node("Relu", ["x"], ["y"])]
    shape = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 4]) for n in "xy"]
    graph = onnx.helper.make_graph(nodes, "one", shape[:1], shape[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    path = tmp_path / "one.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    with serve() as server:
        session = cans.InferenceSession(path, server=server.address)
        assert "has no cut" in session.local_because
        session.close()


def test_pieces_go_on_where_they_stopped(serve, tmp_path: Path) -> None:
    model = classifier(tmp_path / "mine.onnx")
    data, piece = model.read_bytes(), offer(model)
    with serve() as server:
        link = Link(server.address)
        assert link.send_model(piece, 10.0).have == (0,)
        assert link.send_model(replace(piece, data=data[:100]), 10.0).have == (100,)
        again = link.send_model(replace(piece, data=data[:100]), 10.0)  # a repeated one
        assert (again.have, again.ready) == ((100,), False)
        link.close()
        with cans.Device(server.address, model, state=tmp_path / "s", send_model=True) as device:
            assert device.joined


def test_the_least_used_model_goes(serve, tmp_path: Path) -> None:
    paths = [classifier(tmp_path / f"{batch}.onnx", batch) for batch in (1, 2, 3)]
    with serve(most=2) as server:
        catalogue = server.server.catalogue
        give(server, paths[0])
        give(server, paths[1])
        with cans.Device(server.address, paths[0], state=tmp_path / "s") as device:
            device.infer({"x": picture(0)})
            give(server, paths[2])
            assert [each.name[0] for each in catalogue.models] == ["1", "3"]
    with running(accepted=accepting(tmp_path / "given", most=2)) as server:  # and after a restart
        kept = server.server.catalogue.models
        assert sorted(each.name[0] for each in kept) == ["1", "3"]
        with pytest.raises(Refused, match="say which model; there are: "):
            server.server.catalogue.find("")  # nobody gets one that he did not ask for
    assert len([each for each in (tmp_path / "given").iterdir() if each.is_dir()]) == 2


def test_a_device_whose_model_was_forgotten_goes_on(serve, tmp_path: Path) -> None:
    first, second = (classifier(tmp_path / f"{n}.onnx", n) for n in (1, 2))
    with serve(most=1) as server:
        options = {"state": tmp_path / "s", "send_model": True}
        with cans.Device(server.address, first, **options) as device:
            device.infer({"x": picture(0)})
            give(server, second)
            for seed in range(5):
                assert device.infer({"x": picture(seed)})["scores"].shape == (1, 5)


def test_too_large(serve, tmp_path: Path) -> None:
    with serve(largest=1000) as server, pytest.raises(Refused, match="takes up to 0 MB"):
        give(server, classifier(tmp_path / "mine.onnx"))


def test_what_is_not_what_was_announced(serve, tmp_path: Path) -> None:
    model = classifier(tmp_path / "mine.onnx")
    piece, data = offer(model), bytearray(model.read_bytes())
    data[-1] ^= 1
    with serve() as server:
        link = Link(server.address)
        with pytest.raises(cans.ProtocolError, match="not what was announced"):
            link.send_model(replace(piece, data=bytes(data)), 10.0)
        wrong = replace(piece, files=(piece.files[0], FileDigest("../w", 1, "0" * 64)))
        with pytest.raises(cans.ProtocolError, match="cannot be called"):
            link.send_model(wrong, 10.0)
        link.close()
        give(server, model)  # nothing of it was kept
    assert not (tmp_path / "w").exists()


def save(path: Path, *nodes: onnx.NodeProto, **more: Any) -> Path:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "bad", ends[:1], ends[1:], **more)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("of.nobody", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def endless(path: Path) -> Path:
    """A loop of so many rounds that nobody will see its end."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Sin", ["a"], ["b"])],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("b", TensorProto.FLOAT, [1, 4])],
    )  # fmt: skip
    rounds = helper.make_tensor("rounds", TensorProto.INT64, [], [10**15])
    always = helper.make_tensor("always", TensorProto.BOOL, [], [True])
    nodes = [
        helper.make_node("Softmax", ["x"], ["h"]),
        helper.make_node("Loop", ["rounds", "always", "h"], ["g"], body=body),
        helper.make_node("Softmax", ["g"], ["y"]),
    ]
    return save(path, *nodes, initializer=[rounds, always])


def hidden_path(path: Path) -> Path:
    value = helper.make_tensor("w", TensorProto.FLOAT, [1, 4], [0.0] * 4)
    value.ClearField("float_data")
    value.data_location = TensorProto.EXTERNAL
    value.external_data.add(key="location", value="/etc/passwd")
    nodes = [
        helper.make_node("Constant", [], ["c"], value=value),
        helper.make_node("Softmax", ["x"], ["h"]),
        helper.make_node("Add", ["h", "c"], ["y"]),
    ]
    return save(path, *nodes)


def test_models_that_harm_are_refused_and_the_server_goes_on(serve, tmp_path: Path) -> None:
    custom = helper.make_node("Anything", ["x"], ["y"], domain="of.nobody")
    bad = {
        "unknown to ONNX Runtime": save(tmp_path / "custom.onnx", custom),
        "names a file": hidden_path(tmp_path / "hidden.onnx"),
        "not an ONNX model": tmp_path / "noise.onnx",
    }
    bad["not an ONNX model"].write_bytes(np.random.default_rng(0).bytes(5000))
    with serve() as server:
        for reason, path in bad.items():
            for _ in range(2):  # the second time from memory
                with pytest.raises(Refused, match=reason):
                    give(server, path)
        give(server, classifier(tmp_path / "good.onnx"))
    assert len([each for each in (tmp_path / "given").iterdir() if each.is_dir()]) == 1


def test_an_endless_model_is_ended(serve, tmp_path: Path) -> None:
    with serve(seconds=6.0) as server, pytest.raises(Refused, match=r"longer than 6 s|crashed"):
        give(server, endless(tmp_path / "endless.onnx"))


def test_beyond_loopback_a_token_is_a_must(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--accept-models needs --token-file"):
        running_openly(tmp_path)
    with pytest.raises(InputError, match="--accept-models"):
        accepting(Path("/proc/nothing"))


def running_openly(tmp_path: Path) -> None:
    with running(accepted=accepting(tmp_path), listen="0.0.0.0:0"):
        pass


def test_pieces_that_are_none() -> None:
    digest = "0" * 64
    good = ModelPiece(digest, (FileDigest("", 3, digest),), (("x", (1, 3)),))
    assert ModelPiece.from_bytes(good.to_bytes()) == good
    for bad in (
        replace(good, model="../x"),
        replace(good, files=()),
        replace(good, file=1),
        replace(good, shapes=(("x", (0,)),)),
        replace(good, shapes=(("x", (1,) * 20),)),
    ):
        with pytest.raises(RemoteProtocolError):
            ModelPiece.from_bytes(bad.to_bytes())
