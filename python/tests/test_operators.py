"""The table of ONNX operators (_graph/operators.py): its columns agree, and what reads it follows a row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from intact._graph.axes import Axes  # noqa: E402
from intact._graph.dims import factors, size_of  # noqa: E402
from intact._graph.operators import BOUNDED, OPERATORS, row_of, where  # noqa: E402
from intact._graph.scope import Scope  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def graph_of(nodes, shape, constants=(), outputs=("y",)):
    tensors = [numpy_helper.from_array(value, name) for name, value in constants]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_columns_agree():
    for name, row in OPERATORS.items():
        assert not row.moves or (row.is_exact and row.is_arithmetic and not row.has_no_noise), name
        assert (
            row.range is not BOUNDED or row.moves or name in ("MaxPool", "ReduceMax", "GlobalAveragePool")
        ), name
        assert not row.is_lazy or row.axes is not None, name
        assert not row.quantizes or row.quantizes in OPERATORS, name
        assert name[0].isupper() and set(row.domains) <= {"", "com.microsoft"}
        if row.inputs is not None:
            assert row.c_point == row.inputs.c_point, name
            places = [row.inputs.b, *row.inputs.of_columns, *row.inputs.of_rows]
            assert len(places) == len(set(places)), name
    assert {"Transpose", "DepthToSpace"} <= where("moves") and "Conv" not in where("moves")
    assert row_of(helper.make_node("NoSuchOperator", [], [])).axes is None


@pytest.mark.parametrize("op", ["DepthToSpace", "SpaceToDepth"])
def test_an_operator_that_moves_values_between_pixels_and_channels(op):
    """Its row alone gives it a range, a type, axes and a control."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["c"]),
        helper.make_node(op, ["r"], ["y"], blocksize=2),
    ]
    proto = graph_of(nodes, [3, 8, 4, 4], [("w", np.ones((5, 8, 1, 1), np.float32))], ("y", "c"))
    assert Scope(proto.graph, Path()).real_range("y") == (0.0, np.inf, "Relu")
    axes = Axes(proto, Path(), set())
    sizes = [3, 2, 8, 8] if op == "DepthToSpace" else [3, 32, 2, 2]
    assert [size_of(dim) for dim in axes.dims["y"]] == sizes
    assert axes.dims["y"][0] is axes.dims["x"][0]
    assert all(factor.axis.is_frozen for dim in axes.dims["y"] for factor in factors(dim))


@pytest.mark.parametrize("op", ["DepthToSpace", "SpaceToDepth"])
def test_channels_in_front_of_it_keep_their_order(op):
    """The Conv's outputs have one order with what the operator reads."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node(op, ["c"], ["y"], blocksize=2)]
    free = graph_of(nodes[:1], [1, 4, 4, 4], [("w", np.ones((8, 4, 1, 1), np.float32))], ("c",))
    assert not any(factor.axis.is_frozen for factor in factors(Axes(free, Path(), set()).dims["c"][1]))
    held = graph_of(nodes, [1, 4, 4, 4], [("w", np.ones((8, 4, 1, 1), np.float32))])
    assert all(factor.axis.is_frozen for factor in factors(Axes(held, Path(), set()).dims["c"][1]))
