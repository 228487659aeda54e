"""`cans inspect / verify / plan` as a user meets them; bad input is one line and exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import node, save, weight
from typer.testing import CliRunner

from cans.cli import app

INPUT = {"x": [1, 4, 8, 8]}


def small(path: Path, inputs: dict[str, list] | None = None, kind: str = "Relu") -> Path:
    nodes = [node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]), node(kind, ["a"], "b")]
    nodes += [node("Conv", ["b", "w"], "c", pads=[1, 1, 1, 1]), node("Flatten", ["c"], "f")]
    nodes += [node("MatMul", ["f", "m"], "out")]
    extra = [weight("w", 4, 4, 3, 3), weight("m", 256, 10)]
    return save(path, nodes, inputs or INPUT, ["out"], extra)


def cans(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cans", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def in_process(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_inspect_prints_the_documented_json(tmp_path: Path) -> None:
    report = json.loads(in_process("inspect", small(tmp_path / "m.onnx"), "--json"))
    assert list(report) == ["model", "digest", "inputs", "outputs", "total_macs", "points"]
    assert report["total_macs"] == 2 * 4 * 4 * 9 * 64 + 2560
    assert [point["name"] for point in report["points"]] == ["input", "b", "c", "end"]
    first = report["points"][1]
    assert first["tensors"] == [{"name": "b", "shape": [1, 4, 8, 8], "dtype": "float32"}]
    assert first["bytes"] == 1024
    assert first["front"]["macs"]["conv"] == 4 * 4 * 9 * 64
    assert first["front"]["macs"]["activation"] == 256
    assert first["front"]["ops"]["conv"] == 1
    assert set(first["back"]) == {"macs", "ops", "weight_bytes", "bytes_moved"}
    assert report["points"][-1]["tensors"] == []


def test_inspect_as_text_and_picture(tmp_path: Path) -> None:
    picture = tmp_path / "m.png"
    text = in_process("inspect", small(tmp_path / "m.onnx"), "--plot", picture)
    assert "4 points" in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_built_in_name_needs_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANS_CACHE", str(tmp_path))
    report = json.loads(in_process("inspect", "vgg16", "--json"))
    assert len(report["points"]) == 23
    assert not list(tmp_path.iterdir())


def test_max_points_keeps_the_ends_and_small_crossings() -> None:
    report = json.loads(in_process("inspect", "vgg16", "--json", "--max-points", "6"))
    names = [point["name"] for point in report["points"]]
    assert len(names) == 6
    assert (names[0], names[-1]) == ("input", "end")
    assert [point["index"] for point in report["points"]] == list(range(6))


def test_verify_says_that_split_equals_whole(tmp_path: Path) -> None:
    path = small(tmp_path / "m.onnx")
    report = json.loads(in_process("verify", path, "--json"))
    assert report["ok"] is True
    assert report["worst_error"] <= report["tolerance"] == 1e-5
    assert "split equals whole" in in_process("verify", path)


@pytest.mark.parametrize("codec", ["float16", "uint8", "uint8-zstd"])
def test_verify_reports_what_a_lossy_codec_costs(tmp_path: Path, codec: str) -> None:
    report = json.loads(
        in_process("verify", small(tmp_path / "m.onnx"), "--codec", codec, "--json")
    )
    assert report["ok"] is None
    assert report["samples"] == 4
    assert 0 < report["worst_error"] < 0.1
    assert all(0 <= point["top1_agreement"] <= 1 for point in report["points"])
    assert report["points"][1]["encoded_bytes"] < report["points"][1]["bytes"]


@pytest.mark.parametrize("codec", ["uint8", "jpeg"])
def test_a_picture_may_be_sent_as_pixels(tmp_path: Path, codec: str) -> None:
    nodes = [node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]), node("Relu", ["a"], "b")]
    nodes += [node("GlobalAveragePool", ["b"], "out")]
    path = save(
        tmp_path / "m.onnx", nodes, {"x": [2, 3, 48, 64]}, ["out"], [weight("w", 8, 3, 3, 3)]
    )
    image = ["--image", "0.485,0.456,0.406/0.229,0.224,0.225"]
    report = json.loads(in_process("verify", path, "--codec", codec, *image, "--json"))
    first = report["points"][0]
    assert first["encoded_bytes"] <= first["bytes"] / 4 + 40
    assert first["max_error"] < (1e-5 if codec == "uint8" else 0.1)
    assert len(report["points"]) == (4 if codec == "uint8" else 1) or codec == "uint8"


@pytest.mark.parametrize("name", ["file", "allow_pickle", "x.npy", "a/shape"])
def test_inputs_of_any_name(tmp_path: Path, name: str) -> None:
    nodes = [node("Relu", [name], "a"), node("Tanh", ["a"], "b"), node("Exp", ["b"], "out")]
    path = save(tmp_path / "m.onnx", nodes, {name: [1, 8]}, ["out"])
    assert json.loads(in_process("verify", path, "--json"))["verdict"] == "equal"


def test_verify_with_given_inputs(tmp_path: Path) -> None:
    file = tmp_path / "inputs.npz"
    np.savez(file, x=np.ones((1, 4, 8, 8), np.float32))
    assert json.loads(in_process("verify", small(tmp_path / "m.onnx"), "--input", file, "--json"))[
        "ok"
    ]


@pytest.mark.parametrize("method", ["neurosurgeon", "dads"])
def test_plan(method: str) -> None:
    speeds = ["--device-gmacs", "60", "--server-gmacs", "10000", "--mbps", "200"]
    report = json.loads(in_process("plan", "vgg16", *speeds, "--method", method, "--json"))
    parts = report["front_ms"] + report["transfer_ms"] + report["back_ms"]
    assert report["latency_ms"] == pytest.approx(parts)
    assert report["latency_ms"] == pytest.approx(25.6315, abs=1e-3)


def _truncated(folder: Path) -> Path:
    path = small(folder / "whole.onnx")
    (folder / "cut.onnx").write_bytes(path.read_bytes()[:-2000])
    return folder / "cut.onnx"


def _text(folder: Path) -> Path:
    (folder / "text.onnx").write_text("This is not a model.\n" * 50)
    return folder / "text.onnx"


def _empty(folder: Path) -> Path:
    (folder / "empty.onnx").touch()
    return folder / "empty.onnx"


def _custom_operator(folder: Path) -> Path:
    path = small(folder / "custom.onnx")
    model = onnx.load(path)
    model.graph.node[1].op_type = "MyRelu"
    model.graph.node[1].domain = "my.company"
    model.opset_import.append(helper.make_opsetid("my.company", 1))
    onnx.save(model, path)
    return path


def _unknown_operator(folder: Path) -> Path:
    return small(folder / "unknown.onnx", kind="Frobnicate")


def _open_shape(folder: Path) -> Path:
    return small(folder / "open.onnx", {"x": ["N", 4, 8, 8]})


def _no_usual_shape(folder: Path) -> Path:
    """Only a height of 8 fits its last product."""
    return small(folder / "open.onnx", {"x": ["N", 4, "H", 8]})


def _single_node(folder: Path) -> Path:
    return save(folder / "one.onnx", [node("Relu", ["x"], "y")], INPUT, ["y"])


def _missing_data(folder: Path) -> Path:
    path = small(folder / "m.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="d.bin", size_threshold=0)
    (folder / "d.bin").unlink()
    return path


def _escaping_data(folder: Path) -> Path:
    path = small(folder / "m.onnx")
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    path.write_bytes(model.SerializeToString())
    return path


def _strings(folder: Path) -> Path:
    nodes = [node("Identity", ["x"], "y"), node("Identity", ["y"], "z")]
    types = {"x": TensorProto.STRING, "z": TensorProto.STRING}
    return save(folder / "s.onnx", nodes, {"x": [1]}, ["z"], types=types)


def _wrong_types(folder: Path) -> Path:
    """Valid protobuf, invalid model: the weight is of another type than the input."""
    nodes = [node("MatMul", ["x", "w"], "y"), node("MatMul", ["y", "w"], "z")]
    bad = numpy_helper.from_array(np.ones((8, 8), np.int32), "w")
    return save(folder / "t.onnx", nodes, {"x": [1, 8]}, ["z"], [bad])


def _huge(folder: Path) -> Path:
    return small(folder / "huge.onnx", {"x": [1, 4, 100_000, 100_000]})


def _pointer(folder: Path) -> Path:
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"
    (folder / "pointer.onnx").write_text(text)
    return folder / "pointer.onnx"


def _missing(folder: Path) -> Path:
    return folder / "nowhere.onnx"


def _folder(folder: Path) -> Path:
    return folder


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_truncated, "truncated"),
        (_text, "not an ONNX"),
        (_empty, "empty"),
        (_custom_operator, "MyRelu"),
        (_unknown_operator, "Frobnicate"),
        (_open_shape, "--shape x=1x4x8x8"),
        (_no_usual_shape, "None of the usual sizes runs"),
        (_single_node, "no cut"),
        (_missing_data, "d.bin"),
        (_escaping_data, "outside"),
        (_strings, "STRING"),
        (_huge, "160.0 GB"),
        (_pointer, "git lfs pull"),
        (_missing, "no file"),
        (_folder, "cannot read"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(tmp_path: Path, make, says: str) -> None:
    done = cans("inspect", make(tmp_path), "--json")
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_model_the_runtime_refuses_is_refused_in_one_line(tmp_path: Path) -> None:
    done = cans("verify", _wrong_types(tmp_path))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "vgg16", "--max-tensors", "0"],
        ["inspect", "vgg16", "--max-points", "2"],
        ["inspect", "vgg16", "--shape", "input=axb"],
        ["inspect", "vgg16", "--shape", "other=1x3x8x8"],
        ["inspect", "vgg16", "--shape", "input=1x4x224x224"],
        ["inspect", "vgg16", "--plot", "/nonexistent/folder/p.png"],
        ["verify", "vgg16", "--codec", "gzip"],
        ["verify", "vgg16", "--codec", "jpeg"],
        ["verify", "vgg16", "--image", "a/b"],
        ["verify", "vgg16", "--input", "/nonexistent.npz"],
        ["verify", "vgg16", "--samples", "0"],
        ["plan", "vgg16", "--device-gmacs", "0", "--server-gmacs", "1", "--mbps", "1"],
        [
            "plan",
            "vgg16",
            "--device-gmacs",
            "1",
            "--server-gmacs",
            "1",
            "--mbps",
            "1",
            "--method",
            "x",
        ],
    ],
)
def test_bad_options_are_refused_in_one_line(arguments: list[str]) -> None:
    from cans.errors import InputError

    with pytest.raises(InputError) as refused:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "\n" not in str(refused.value)
