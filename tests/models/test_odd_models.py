"""Files as they are found in the wild: old, careless, quantised, with control flow or functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import FLOAT, assert_split_equals_whole, node, save, weight

from cans.errors import ModelError
from cans.models import Executor, find_points, load

IMAGE = {"x": [1, 4, 8, 8]}


def conv(source: str, name: str, weight_name: str | None = None) -> onnx.NodeProto:
    return node("Conv", [source, weight_name or f"{name}.w"], name, pads=[1, 1, 1, 1])


def convs(*names: str) -> list[TensorProto]:
    return [weight(f"{name}.w", 4, 4, 3, 3) for name in names]


def test_never_between_a_convolution_and_its_activation(tmp_path: Path) -> None:
    nodes = [conv("x", "a"), node("Relu", ["a"], "b"), conv("b", "c")]
    nodes += [node("Clip", ["c", "", "six"], "d"), conv("d", "e")]
    six = numpy_helper.from_array(np.array(6, np.float32), "six")
    path = save(tmp_path / "m.onnx", nodes, IMAGE, ["e"], [*convs("a", "c", "e"), six])
    assert assert_split_equals_whole(path) == ["input", "b", "d", "end"]


def test_never_between_a_product_and_its_bias_nor_inside_a_normalisation(tmp_path: Path) -> None:
    scalars = {"two": 2.0, "eps": 1e-5}
    extra = [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in scalars.items()]
    extra += [weight("w", 8, 8), weight("bias", 8), weight("gamma", 8), weight("beta", 8)]
    nodes = [
        node("MatMul", ["x", "w"], "product"),
        node("Add", ["product", "bias"], "linear"),
        node("ReduceMean", ["linear"], "mean", axes=[-1]),
        node("Sub", ["linear", "mean"], "centred"),
        node("Pow", ["centred", "two"], "square"),
        node("ReduceMean", ["square"], "variance", axes=[-1]),
        node("Add", ["variance", "eps"], "safe"),
        node("Sqrt", ["safe"], "deviation"),
        node("Div", ["centred", "deviation"], "normal"),
        node("Mul", ["normal", "gamma"], "scaled"),
        node("Add", ["scaled", "beta"], "norm"),
        node("MatMul", ["norm", "w"], "last"),
    ]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 5, 8]}, ["last"], extra)
    assert assert_split_equals_whole(path) == ["input", "linear", "norm", "end"]
    assert assert_split_equals_whole(path, max_tensors=3) == ["input", "linear", "norm", "end"]


def test_ir3_initializers_as_inputs_constant_nodes_unused_nodes_and_identity(
    tmp_path: Path,
) -> None:
    nodes = [
        node("Constant", [], "k", value=weight("", 4, 4, 3, 3)),
        node("Identity", ["a.w"], "alias"),
        conv("x", "a", "alias"),
        node("Relu", ["a"], "unused"),
        node("Identity", ["a"], "b"),
        conv("b", "c", "k"),
        node("Identity", ["c"], "out"),
    ]
    for each in nodes:
        each.name = "same"  # node names mean nothing
    path = save(tmp_path / "m.onnx", nodes, {**IMAGE, "a.w": [4, 4, 3, 3]}, ["out"], convs("a"))
    model = onnx.load(path)
    model.ir_version = 3
    onnx.save(model, path)
    assert [each.name for each in load(path).inputs] == ["x"]
    assert assert_split_equals_whole(path)[1] == "a"


def test_outputs_that_are_intermediate_constant_or_the_input(tmp_path: Path) -> None:
    nodes = [
        conv("x", "a"),
        conv("a", "b"),
        node("Identity", ["b"], "copy"),
        conv("b", "c"),
        node("Identity", ["fixed"], "constant"),
        node("Identity", ["x"], "echo"),
    ]
    outputs = ["a", "copy", "c", "constant", "echo"]
    path = save(
        tmp_path / "m.onnx", nodes, IMAGE, outputs, [*convs("a", "b", "c"), weight("fixed", 3)]
    )
    names = assert_split_equals_whole(path)
    assert {"a", "b"} <= set(names)
    point = {each.name: each for each in find_points(load(path))}["b"]
    assert "a" in point.outputs  # stays on the device


def test_several_inputs_and_an_early_exit(tmp_path: Path) -> None:
    nodes = [conv("x", "a"), node("Relu", ["a"], "b"), conv("b", "c"), node("Relu", ["c"], "d")]
    nodes += [node("Add", ["d", "y"], "e"), conv("e", "f"), node("Relu", ["f"], "last")]
    # The exit stands at the end of the file; it must not keep b alive for all later cuts.
    nodes += [node("GlobalAveragePool", ["b"], "exit")]
    inputs = {**IMAGE, "y": [1, 4, 8, 8]}
    path = save(tmp_path / "m.onnx", nodes, inputs, ["last", "exit"], convs("a", "c", "f"))
    assert assert_split_equals_whole(path) == ["input", "e", "end"]
    assert "b+y" in [
        n.replace("y+b", "b+y") for n in assert_split_equals_whole(path, max_tensors=2)
    ]


def test_shape_arithmetic_of_an_exporter_is_folded(tmp_path: Path) -> None:
    """A dynamic-shape export: Shape, Gather, Concat, Reshape; without folding a shape crosses."""
    constants = {"zero": np.array(0), "minus": np.array([-1]), "axis": np.array([0])}
    extra = [numpy_helper.from_array(v.astype(np.int64), n) for n, v in constants.items()]
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "zero"], "batch", axis=0),
        node("Unsqueeze", ["batch", "axis"], "batches"),
        conv("x", "a"),
        conv("a", "b"),
        node("Concat", ["batches", "minus"], "target", axis=0),
        node("Reshape", ["b", "target"], "flat"),
        node("MatMul", ["flat", "m"], "out"),
    ]
    extra += [*convs("a", "b"), weight("m", 256, 5)]
    path = save(tmp_path / "m.onnx", nodes, {"x": ["N", 4, 8, 8]}, ["out"], extra)
    with pytest.raises(ModelError, match=r"--shape x=1x4x8x8"):
        load(path)
    assert assert_split_equals_whole(path, {"x": (2, 4, 8, 8)}) == ["input", "a", "b", "end"]


def test_captured_names_count_as_used_and_no_cut_goes_into_a_branch(tmp_path: Path) -> None:
    def branch(name: str, kind: str) -> onnx.GraphProto:
        body = [node(kind, ["a", "b"], f"{name}.out")]  # a and b are captured
        out = [helper.make_tensor_value_info(f"{name}.out", FLOAT, None)]
        return helper.make_graph(body, name, [], out)

    nodes = [conv("x", "a"), conv("a", "b"), node("ReduceMean", ["b"], "m", keepdims=0)]
    nodes += [node("Greater", ["m", "zero"], "positive")]
    nodes += [
        node(
            "If", ["positive"], "c", then_branch=branch("t", "Add"), else_branch=branch("e", "Mul")
        )
    ]
    nodes += [conv("c", "d"), conv("d", "e")]
    zero = numpy_helper.from_array(np.array(0, np.float32), "zero")
    path = save(tmp_path / "m.onnx", nodes, IMAGE, ["e"], [*convs("a", "b", "d", "e"), zero])
    names = assert_split_equals_whole(path)
    assert "b" not in names  # a crosses with it
    assert {"a", "d"} <= set(names)
    assert "b" in "".join(assert_split_equals_whole(path, max_tensors=2))


def test_a_loop_is_one_operation(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Add", ["v", "a"], "w"), node("Identity", ["go"], "again")],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", FLOAT, None),
        ],
    )
    trips = numpy_helper.from_array(np.array(3, np.int64), "trips")
    nodes = [conv("x", "a"), node("Loop", ["trips", "", "a"], "l", body=body), conv("l", "c")]
    path = save(tmp_path / "m.onnx", nodes, IMAGE, ["c"], [*convs("a", "c"), trips])
    assert assert_split_equals_whole(path) == ["input", "a", "l", "end"]


def test_a_branch_with_a_known_condition_is_opened(tmp_path: Path) -> None:
    def branch(name: str, source: str) -> onnx.GraphProto:
        body = [conv(source, "inner", "i.w"), conv("inner", "result", "i.w")]
        return helper.make_graph(
            body, name, [], [helper.make_tensor_value_info("result", FLOAT, None)]
        )

    yes = numpy_helper.from_array(np.array(True), "yes")
    nodes = [conv("x", "a")]
    nodes += [node("If", ["yes"], "b", then_branch=branch("t", "a"), else_branch=branch("e", "x"))]
    nodes += [conv("b", "inner", "a.w")]  # the same name as inside
    path = save(tmp_path / "m.onnx", nodes, IMAGE, ["inner"], [*convs("a", "i"), yes])
    assert len(assert_split_equals_whole(path)) == 5


def test_token_ids_masks_and_gather(tmp_path: Path) -> None:
    nodes = [
        node("Gather", ["table", "ids"], "e"),
        node("MatMul", ["e", "w"], "h"),
        node("Relu", ["h"], "r"),
        node("MatMul", ["r", "w"], "g"),
        node("ArgMax", ["g"], "best", axis=-1, keepdims=0),
    ]
    types = {"ids": TensorProto.INT64, "best": TensorProto.INT64}
    extra = [weight("table", 50, 16), weight("w", 16, 16)]
    path = save(tmp_path / "m.onnx", nodes, {"ids": [1, 7]}, ["best"], extra, types=types)
    assert assert_split_equals_whole(path) == ["input", "e", "r", "g", "end"]


def test_float16_weights_and_activations(tmp_path: Path) -> None:
    extra = [weight(n, 4, 4, 3, 3, dtype="float16") for n in ("a.w", "b.w", "c.w")]
    types = {"x": TensorProto.FLOAT16, "c": TensorProto.FLOAT16}
    nodes = [conv("x", "a"), conv("a", "b"), conv("b", "c")]
    path = save(tmp_path / "m.onnx", nodes, IMAGE, ["c"], extra, types=types)
    assert assert_split_equals_whole(path) == ["input", "a", "b", "end"]


@pytest.mark.parametrize("signed", [False, True])
def test_quantised_models_are_cut_at_their_integers(tmp_path: Path, signed: bool) -> None:
    zero = np.array(0, np.int8) if signed else np.array(128, np.uint8)
    extra = [
        numpy_helper.from_array(np.array(0.05, np.float32), "s"),
        numpy_helper.from_array(zero, "z"),
        numpy_helper.from_array(np.array(0, np.int8), "wz"),
    ]
    nodes: list[onnx.NodeProto] = []
    source = "x"
    for i in range(3):
        values = np.random.default_rng(i).integers(-100, 100, (4, 4, 3, 3)).astype(np.int8)
        extra.append(numpy_helper.from_array(values, f"w{i}"))
        scale = numpy_helper.from_array(np.array(0.002, np.float32), f"ws{i}")
        extra.append(scale)
        nodes += [
            node("QuantizeLinear", [source, "s", "z"], f"q{i}"),
            node("DequantizeLinear", [f"q{i}", "s", "z"], f"d{i}"),
            node("DequantizeLinear", [f"w{i}", f"ws{i}", "wz"], f"dw{i}"),
            node("Conv", [f"d{i}", f"dw{i}"], f"c{i}", pads=[1, 1, 1, 1]),
            node("Relu", [f"c{i}"], f"r{i}"),
        ]
        source = f"r{i}"
    path = save(tmp_path / "m.onnx", nodes, IMAGE, ["r2"], extra)
    assert assert_split_equals_whole(path) == ["input", "q0", "q1", "q2", "end"]
    model = load(path)
    assert {t.dtype for p in find_points(model)[1:-1] for t in p.tensors} <= {"uint8", "int8"}
    assert find_points(model)[-1].front.weight_bytes < 3 * (4 * 4 * 9 + 32)  # one byte each


def test_a_declaration_that_no_longer_holds_is_ignored(tmp_path: Path) -> None:
    """Tools that rewrite a model keep its metadata."""
    path = save(
        tmp_path / "m.onnx", [conv("x", "a"), conv("a", "b")], IMAGE, ["b"], convs("a", "b")
    )
    model = onnx.load(path)
    for declared, names in (
        ('{"input": "x", "first": "a", "end": ""}', ["input", "first", "end"]),
        ('{"input": "x", "first": "gone", "end": ""}', ["input", "a", "end"]),
        ("not json", ["input", "a", "end"]),
        ("[1, 2, 3]", ["input", "a", "end"]),
    ):
        helper.set_model_props(model, {"cans.points": declared})
        onnx.save(model, path)
        assert assert_split_equals_whole(path) == names


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    function = helper.make_function(
        "own",
        "Block",
        ["a", "w"],
        ["b"],
        [node("Conv", ["a", "w"], "t", pads=[1, 1, 1, 1]), node("Relu", ["t"], "b")],
        [helper.make_opsetid("", 17)],
    )
    nodes = [
        helper.make_node("Block", ["x", "a.w"], ["a"], domain="own"),
        helper.make_node("Block", ["a", "b.w"], ["b"], domain="own"),
    ]
    path = save(tmp_path / "m.onnx", nodes, IMAGE, ["b"], convs("a", "b"), functions=[function])
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid("own", 1))
    onnx.save(model, path)
    assert assert_split_equals_whole(path) == ["input", "a", "end"]


def test_sparse_initializers(tmp_path: Path) -> None:
    values = weight("m", 3)
    indices = numpy_helper.from_array(np.array([1, 7, 13], np.int64), "m_idx")
    nodes = [node("MatMul", ["x", "w"], "a"), node("MatMul", ["a", "m"], "b")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [2, 4]}, ["b"], [weight("w", 4, 4)])
    model = onnx.load(path)
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4, 4]))
    onnx.save(model, path)
    assert assert_split_equals_whole(path) == ["input", "a", "end"]


@pytest.mark.parametrize("size_threshold", [0, 1024])
def test_external_data(tmp_path: Path, size_threshold: int) -> None:
    nodes = [
        conv("x", "a"),
        conv("a", "b"),
        node("Flatten", ["b"], "f"),
        node("MatMul", ["f", "m"], "o"),
    ]
    path = save(tmp_path / "m.onnx", nodes, IMAGE, ["o"], [*convs("a", "b"), weight("m", 256, 64)])
    inline = load(path).digest
    model = onnx.load(path)
    onnx.save(
        model, path, save_as_external_data=True, location="m.bin", size_threshold=size_threshold
    )
    assert assert_split_equals_whole(path) == ["input", "a", "b", "end"]
    before = load(path).digest
    assert before != inline
    data = bytearray((tmp_path / "m.bin").read_bytes())
    data[-1] ^= 1
    (tmp_path / "m.bin").write_bytes(data)
    assert load(path).digest != before  # the weights are part of the identity


def test_the_digest_goes_by_names_not_by_where_links_lead(tmp_path: Path) -> None:
    nodes = [conv("x", "a"), conv("a", "b"), node("Flatten", ["b"], "o")]
    path = save(tmp_path / "m.onnx", nodes, IMAGE, ["o"], convs("a", "b"))
    model = onnx.load(path)
    onnx.save(
        model, path, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0
    )
    plain = load(path)
    assert list(plain.beside) == sorted(plain.beside)
    assert len(plain.beside) >= 2
    for number, name in enumerate(reversed(plain.beside)):  # the other way round, elsewhere
        target = tmp_path / "blobs" / str(number)
        target.parent.mkdir(exist_ok=True)
        (tmp_path / name).rename(target)
        (tmp_path / name).symlink_to(target)
    linked = load(path)
    assert linked.digest == plain.digest
    assert list(linked.beside) == list(plain.beside)


def test_links_into_a_download_cache(tmp_path: Path) -> None:
    store, shown = tmp_path / "blobs", tmp_path / "shown"
    store.mkdir()
    shown.mkdir()
    nodes = [conv("x", "a"), node("Flatten", ["a"], "f"), node("MatMul", ["f", "m"], "o")]
    path = save(store / "m.onnx", nodes, IMAGE, ["o"], [*convs("a"), weight("m", 256, 64)])
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="m.bin", size_threshold=0)
    (store / "m.onnx").rename(store / "1f2e")
    other = tmp_path / "elsewhere"
    other.mkdir()
    (store / "m.bin").rename(other / "3d4c")
    (shown / "m.onnx").symlink_to(store / "1f2e")
    (shown / "m.bin").symlink_to(other / "3d4c")
    model = load(shown / "m.onnx")
    points = find_points(model)
    x = np.zeros((1, 4, 8, 8), np.float32)
    assert Executor(model, points).run_whole({"x": x})["o"].shape == (1, 64)


def test_dense_and_inception_blocks(tmp_path: Path) -> None:
    nodes = [conv("x", "a")]
    for i, source in enumerate(["a", "a", "a"]):
        nodes.append(conv(source, f"b{i}"))
    nodes += [node("Concat", ["b0", "b1", "b2", "a"], "cat", axis=1)]
    nodes += [node("Conv", ["cat", "w16"], "d"), conv("d", "e")]
    extra = [*convs("a", "b0", "b1", "b2", "e"), weight("w16", 4, 16, 1, 1)]
    path = save(tmp_path / "m.onnx", nodes, IMAGE, ["e"], extra)
    assert assert_split_equals_whole(path) == ["input", "a", "cat", "d", "end"]
    assert len(assert_split_equals_whole(path, max_tensors=4)) > 5
    assert len(assert_split_equals_whole(path, max_points=4)) == 4
