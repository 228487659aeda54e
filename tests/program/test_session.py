"""`cans.InferenceSession` is onnxruntime's, with and without a server's help."""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import cans
from cans.live.device.options import DeviceKeywords
from cans.program import session as program_session
from live.running import running, terms
from program.networks import classifier, picture, served


@pytest.fixture(autouse=True)
def _own_state(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return classifier(tmp_path / "classifier.onnx")


def assert_same(mine: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_a_helped_session_gives_what_onnxruntime_gives(model) -> None:
    plain = ort.InferenceSession(model)
    with running(served(model)) as server:
        session = cans.InferenceSession(str(model), server=server.address)
        assert isinstance(session, ort.InferenceSession)
        assert session.local_because == ""
        for seed in range(12):
            feed = {"x": picture(seed)}
            assert_same(session.run(None, feed), plain.run(None, feed))
            assert_same(session.run(["label"], feed), plain.run(["label"], feed))
        assert session.last is not None
        for ask in ("get_inputs", "get_outputs"):
            mine, theirs = getattr(session, ask)(), getattr(plain, ask)()
            assert [(e.name, e.type, e.shape) for e in mine] == [
                (e.name, e.type, e.shape) for e in theirs
            ]
        assert session.get_providers() == plain.get_providers()
        assert session.get_modelmeta().graph_name == plain.get_modelmeta().graph_name
        session.close()
        assert_same(session.run(None, feed), plain.run(None, feed))


def test_its_keywords_are_those_of_a_device(model) -> None:
    device = inspect.signature(cans.Device).parameters
    own = set(device) - {"server", "model", "type"}
    assert set(DeviceKeywords.__annotations__) == own
    for name in own:
        assert device[name].annotation == DeviceKeywords.__annotations__[name].__forward_arg__
    with pytest.raises(TypeError, match="'netwrk'"):
        cans.InferenceSession(model, server="127.0.0.1:9", netwrk="lab")


def test_outputs_are_the_callers_to_write_to(model) -> None:
    with running(served(model), terms=terms("offload")) as server:
        session = cans.InferenceSession(model, server=server.address)
        for each in session.run(None, {"x": picture(0)}):
            each += 1
        assert session.last is not None
        assert session.last.answered_by == server.address
        session.close()


@pytest.mark.parametrize(
    "feed",
    [
        {},
        {"y": picture()},
        {"x": picture().astype("float64")},
        {"x": picture()[:, :2]},
        {"x": picture()[0]},
        {"x": picture(), "more": picture()},
        {"x": "text"},
    ],
)
def test_wrong_feeds_raise_what_onnxruntime_raises(model, feed) -> None:
    with pytest.raises(Exception) as theirs:
        ort.InferenceSession(model).run(None, feed)
    with running(served(model)) as server:
        session = cans.InferenceSession(model, server=server.address)
        with pytest.raises(type(theirs.value)) as mine:
            session.run(None, feed)
        assert str(mine.value) == str(theirs.value)
        with pytest.raises(Exception, match="nothing"):
            session.run(["nothing"], {"x": picture()})
        session.close()


def test_a_model_the_server_has_not_is_used_locally(model, tmp_path, caplog) -> None:
    other = classifier(tmp_path / "other.onnx", batch=2)
    with running(served(other)) as server:
        session = cans.InferenceSession(model, server=server.address)
        assert "refuses" in session.local_because
        (line,) = [record for record in caplog.records if record.name == "cans.session"]
        assert "classifier.onnx runs locally" in line.getMessage()
        plain = ort.InferenceSession(model)
        assert_same(session.run(None, {"x": picture()}), plain.run(None, {"x": picture()}))


def test_without_a_server(model) -> None:
    session = cans.InferenceSession(model, server="127.0.0.1:9", connect_seconds=0.2)
    assert session.local_because == "no server answers"
    plain = ort.InferenceSession(model)
    assert_same(session.run(None, {"x": picture()}), plain.run(None, {"x": picture()}))
    assert session.last is None
    session.close()


def test_a_server_that_dies_half_way(model) -> None:
    plain = ort.InferenceSession(model)
    with running(served(model)) as server:
        session = cans.InferenceSession(model, server=server.address)
        for seed in range(20):
            if seed == 8:
                server.stop()
            feed = {"x": picture(seed)}
            assert_same(session.run(None, feed), plain.run(None, feed))
        session.close()


def test_open_dimensions_are_helped_where_the_server_fixed_them(tmp_path) -> None:
    model = classifier(tmp_path / "open.onnx", batch="batch")
    plain = ort.InferenceSession(model)
    with running(served(model, shapes=(("x", (1, 3, 16, 16)),))) as server:
        session = cans.InferenceSession(model, server=server.address)
        assert_same(session.run(None, {"x": picture()}), plain.run(None, {"x": picture()}))
        helped = session.last
        assert helped is not None
        three = {"x": picture(batch=3)}
        assert_same(session.run(None, three), plain.run(None, three))
        assert session.last is helped  # the runtime did that one
        session.close()


class Listening:
    """A device of a model that only notes what it is asked."""

    joined = True

    def __init__(self, model) -> None:
        self.model, self.asked = model, []

    def infer(self, arrays):
        self.asked += [each.shape for each in arrays.values()]

    def close(self) -> None: ...


def test_sizes_that_the_server_lets_vary_are_asked_for(tmp_path, monkeypatch) -> None:
    model = classifier(tmp_path / "open.onnx", batch="batch")
    sizes = [(("x", (most, 3, 16, 16)),) for most in (1, 4)]
    device = Listening(served(model, shapes=sizes[1], lowest=sizes[0]))
    monkeypatch.setattr(program_session, "Device", lambda *_, **__: device)
    session = cans.InferenceSession(model, server="127.0.0.1:9")
    for batch in (1, 3, 4, 5):
        assert len(session.run(None, {"x": picture(batch=batch)})[1]) == batch
    assert [shape[0] for shape in device.asked] == [1, 3, 4]


def test_all_providers_there_are_is_the_cpu_on_a_machine_without_others(model) -> None:
    """`providers=get_available_providers()` names one that runs nothing here before the CPU's."""
    with running(served(model)) as server:
        there = ort.get_available_providers()
        remote = [each for each in there if each == "AzureExecutionProvider"]
        session = cans.InferenceSession(
            model, providers=[*remote, "CPUExecutionProvider"], server=server.address
        )
        assert session.local_because == ""
        session.close()


def test_bytes_threads_and_run_async(model) -> None:
    plain = ort.InferenceSession(model)
    with running(served(model)) as server:
        session = cans.InferenceSession(model.read_bytes(), server=server.address)
        assert session.local_because == ""
        with ThreadPoolExecutor(4) as threads:
            feeds = [{"x": picture(seed)} for seed in range(24)]
            for mine, feed in zip(
                threads.map(lambda f: session.run(None, f), feeds), feeds, strict=True
            ):
                assert_same(mine, plain.run(None, feed))
        done, told = threading.Event(), []

        def callback(results, user_data, error) -> None:
            told.append((results, user_data, error))
            if len(told) == 2:
                done.set()

        wrong = {"x": picture().astype("float64")}
        session.run_async(["scores"], feeds[0], callback, "mine")
        session.run_async(["scores"], wrong, callback, "wrong")
        assert done.wait(20)
        done.clear()
        told.sort(key=lambda each: each[1])
        assert_same(told[0][0], plain.run(["scores"], feeds[0]))
        assert told[0][1:] == ("mine", "")
        told.pop(0)
        plain.run_async(["scores"], wrong, callback, "wrong")
        assert done.wait(20)
        assert told[0] == told[1]  # onnxruntime's own words
        for each in (plain, session):
            with pytest.raises(ValueError, match="missing from input feed"):
                each.run_async(None, {"nope": picture()}, callback, None)
        session.close()


def test_a_bad_file_is_the_runtime_s_error(tmp_path) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"this is no model")
    with pytest.raises(Exception) as theirs:
        ort.InferenceSession(bad)
    with pytest.raises(type(theirs.value)):
        cans.InferenceSession(bad, server="127.0.0.1:9")
