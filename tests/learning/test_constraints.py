"""Constraints are filters on choices, and never leave a device without one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cans.errors import InputError
from cans.learning import Context, DeviceLearner, PartitionTable, policy_named
from cans.learning.constraints import Constraints

SIZES = [900, 300, 400, 100, 0]
TABLE = PartitionTable(
    "toy",
    ["input", "a", "end"],
    front=[[0], [0], [1], [1], [4]],
    link=[[9], [3], [4], [1], [0]],
    server=[[4], [4], [3], [3], [0]],
    point_of=[0, 0, 1, 1, 2],
    codec_of=["float32", "uint8", "float32", "uint8", "float32"],
    bytes_of=SIZES,
)


@given(
    depth=st.integers(0, 5),
    most=st.none() | st.integers(0, 1000),
    codecs=st.none() | st.frozensets(st.sampled_from(["float32", "uint8"])),
    deadline=st.none() | st.floats(0.1, 100),
    expected=st.lists(st.floats(0, 200), min_size=5, max_size=5),
)
def test_what_is_allowed_breaks_no_rule(depth, most, codecs, deadline, expected) -> None:
    constraints = Constraints(depth, most, codecs, deadline)
    allowed = constraints.allowed(TABLE, np.array(expected))
    assert allowed.any()
    for row in np.flatnonzero(allowed[:-1]):
        assert TABLE.point_of[row] >= depth
        assert most is None or SIZES[row] <= most
        assert codecs is None or TABLE.codec_of[row] in codecs
    if deadline is not None and allowed.sum() > 1:
        assert all(expected[row] <= deadline for row in np.flatnonzero(allowed))


@pytest.mark.parametrize("policy", ["cans", "fedlinucb-dw", "linucb", "random", "offload"])
def test_every_policy_keeps_to_them(policy) -> None:
    learner = DeviceLearner(TABLE, policy_named(policy))
    learner.join()
    allowed = Constraints(min_local_depth=1, allow_codec=frozenset({"uint8"})).allowed(TABLE)
    for draw in np.linspace(0, 0.99, 20):
        choice = learner.select(Context(uniform=draw, allowed=allowed))
        assert (choice.point, choice.codec) in {(1, "uint8"), (2, "float32")}


@pytest.mark.parametrize(
    "wrong", [{"min_local_depth": -1}, {"max_bytes": -1}, {"avoid_after_ms": 0}]
)
def test_nonsense_is_refused(wrong) -> None:
    with pytest.raises(InputError):
        Constraints(**wrong)
