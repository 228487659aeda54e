"""Split = whole for networks nobody drew: random DAGs with shared, skipped and side branches."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx_networks import assert_split_equals_whole, node, save, weight

from cans.errors import ModelError

_UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Identity", "Abs")
_BINARY = ("Add", "Mul", "Sub", "Max")


@st.composite
def networks(draw: st.DrawFn) -> tuple[list, dict, list, list]:
    """Nodes over (1, 4, 6, 6) tensors; each reads one or two of those made before it."""
    inputs = {f"in{i}": [1, 4, 6, 6] for i in range(draw(st.integers(1, 2)))}
    names = list(inputs)
    nodes, weights = [], []
    for i in range(draw(st.integers(2, 14))):
        # Near the end of the list: chains with skips, as real networks are.
        pick = st.integers(max(0, len(names) - 4), len(names) - 1)
        first, out = names[draw(pick)], f"t{i}"
        kind = draw(st.sampled_from(["unary", "binary", "conv", "bias", "matmul"]))
        if kind == "unary":
            nodes.append(node(draw(st.sampled_from(_UNARY)), [first], out))
        elif kind == "binary":
            nodes.append(node(draw(st.sampled_from(_BINARY)), [first, names[draw(pick)]], out))
        elif kind == "conv":
            weights.append(weight(f"w{i}", 4, 4, 3, 3, seed=i))
            nodes.append(node("Conv", [first, f"w{i}"], out, pads=[1, 1, 1, 1]))
        elif kind == "bias":
            weights.append(weight(f"w{i}", 1, 4, 1, 1, seed=i))
            nodes.append(node("Add", [first, f"w{i}"], out))
        else:
            weights.append(weight(f"w{i}", 6, 6, seed=i))
            nodes.append(node("MatMul", [first, f"w{i}"], out))
        names.append(out)
    made = names[len(inputs) :]
    extra = draw(st.lists(st.sampled_from(made), max_size=2, unique=True))
    outputs = list(dict.fromkeys([*extra, made[-1]]))
    order = draw(st.permutations(range(len(weights))))
    return nodes, inputs, outputs, [weights[i] for i in order]


@given(networks(), st.integers(1, 4))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_cut_of_a_random_network_equals_the_whole(
    network: tuple[list, dict, list, list], max_tensors: int
) -> None:
    nodes, inputs, outputs, weights = network
    with TemporaryDirectory() as folder:
        path = save(Path(folder) / "random.onnx", nodes, inputs, outputs, weights)
        try:
            names = assert_split_equals_whole(path, max_tensors=max_tensors)
        except ModelError as refused:
            if "no cut" not in str(refused):
                raise
        else:
            assert names[0] == "input"
            assert names[-1] == "end"


def test_random_networks_are_not_all_without_a_cut() -> None:
    """The law above is not empty: a plain chain of any kind of node has its cuts."""
    generator = np.random.default_rng(0)
    with TemporaryDirectory() as folder:
        nodes = [node("Conv", ["in0", "w0"], "c0", pads=[1, 1, 1, 1])]
        weights = [weight("w0", 4, 4, 3, 3)]
        for i in range(1, 5):
            weights.append(weight(f"w{i}", 4, 4, 3, 3, seed=int(generator.integers(99))))
            nodes.append(node("Conv", [f"c{i - 1}", f"w{i}"], f"c{i}", pads=[1, 1, 1, 1]))
        path = save(Path(folder) / "chain.onnx", nodes, {"in0": [1, 4, 6, 6]}, ["c4"], weights)
        assert assert_split_equals_whole(path) == ["input", "c0", "c1", "c2", "c3", "end"]
