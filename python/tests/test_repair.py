"""`intact repair` on small models made here."""

import itertools
import json
import os

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
import intact  # noqa: E402
import random_graphs  # noqa: E402
from commands import process, program  # noqa: E402
from graph_builder import GraphBuilder  # noqa: E402
from intact import _program  # noqa: E402
from intact._audit.audit import audit, certify  # noqa: E402
from intact._audit.run import as_u8, exact_variant, run_on_data  # noqa: E402
from intact._formats.model import QuantizedLayer  # noqa: E402
from intact._graph.scope import Scope  # noqa: E402
from intact._graph.sizes import shapes_of  # noqa: E402
from intact._library import Error, is_x86  # noqa: E402
from intact._repair import candidates, cost, editor, places, steps  # noqa: E402
from intact._repair import check as _repair_check
from intact._repair import order as _order
from intact._repair import plan as _repair_plan  # noqa: E402
from intact._repair import repair as _repair
from intact._repair import shorten as _shorten
from intact._repair.range import Limits  # noqa: E402
from intact._repair.repair import repair_file  # noqa: E402
from intact._repair.report import to_json, to_text  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from random_graphs import evaluate, random_graph  # noqa: E402

pytest.importorskip("cffi")
if not os.path.exists(os.path.join(os.path.dirname(intact.__file__), "channel_order.so")):
    pytest.skip("this build has no channel_order.so", allow_module_level=True)


def in_onnxruntime(model, data):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, data)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b))


@pytest.fixture
def copied_channels(monkeypatch):
    """Makes u8 weights slow, the budget large and many channels heavy, so that plans have copied channels."""
    monkeypatch.setattr(cost, "_U8_OUTPUT", 10**9)
    monkeypatch.setattr(_repair_plan, "MOST_DEPTH", 1000)
    monkeypatch.setattr(random_graphs, "HEAVY", 2 / 3)


@pytest.fixture
def slow_u8_weights(monkeypatch):
    monkeypatch.setattr(cost, "_U8_OUTPUT", 10**9)


def keeps_its_outputs(seeds, run):
    """Repairs random models and checks their outputs. Returns how many copied channels and orders they have."""
    added = orders = 0
    for seed in seeds:
        model, data = random_graph(seed)
        if run is in_onnxruntime and seed % 4 < 2:
            model = onnx.shape_inference.infer_shapes(model)  # states the shapes of tensors in between
        repaired, done = intact.repair(model, reorder_sums=seed % 3 > 0)
        assert done.is_proven and (seed % 3 or not done.sums), seed
        added, orders = added + done.copied_channels, orders + done.orders
        a, b = run(model, data), run(repaired, data)
        if done.sums:
            assert all(np.allclose(x, y, 1e-2, 1e-2 * np.abs(x).max()) for x, y in zip(a, b)), seed
        else:
            assert same(a, b), seed
    return added, orders


@pytest.mark.parametrize("first", range(0, 120, 10))
def test_random_graphs_keep_their_outputs(first):
    assert keeps_its_outputs(range(first, first + 10), evaluate)[1]


def test_random_graphs_with_copied_channels_keep_their_outputs(copied_channels):
    assert keeps_its_outputs(range(2000, 2060), evaluate)[0]


@pytest.mark.skipif(
    not {"avx_vnni", "avx512_vnni"} & set(intact.isas()), reason="the stored model would clamp here"
)
def test_random_graphs_in_onnxruntime():
    assert keeps_its_outputs(range(1000, 1040), in_onnxruntime)[1]


@pytest.mark.skipif(
    not {"avx_vnni", "avx512_vnni"} & set(intact.isas()), reason="the stored model would clamp here"
)
def test_random_graphs_with_copied_channels_in_onnxruntime(copied_channels):
    assert keeps_its_outputs(range(3000, 3080), in_onnxruntime)[0]


# ----- models by hand ----------------------------------------------------------------------------------------------------


def weights_of(rng, k, *columns):
    """int8 (k, *columns): only the first two rows saturate together."""
    w = rng.integers(-30, 31, (k, *columns)).astype(np.int8)
    w[:2, 0] = 95
    return w


class Builder(GraphBuilder):
    def linear(self, x, k, n, w=None):
        q, scale, point = self.node("DynamicQuantizeLinear", [x], 3)
        w = w or self.constant(weights_of(self.rng, k, n))
        y = self.node("MatMulInteger", [q, w, point])
        return self.node("Mul", [self.node("Cast", [y], to=1), scale])

    def model(self, outputs, inputs=(("x", (1, 5, 16)),), opset=17, kinds=None):
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
            [
                helper.make_tensor_value_info(name, (kinds or {}).get(name, TensorProto.FLOAT), None)
                for name in outputs
            ],
            [
                numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
                for name, value in self.constants.items()
            ],
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, ir_version=8, opset_imports=opsets)


def hows(done):
    return [layer.how for layer in done.layers]


def constants_of(model):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def data_of(*shape):
    return {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}


def test_one_order_serves_a_residual_stream():
    b = Builder()
    table = b.constant(b.rng.standard_normal((9, 32)).astype(np.float32))
    stream = b.node("Gather", [table, b.constant(np.array([[1, 2, 3, 5, 8]]))])
    for _ in range(3):
        inner = b.node("Relu", [b.linear(stream, 32, 64)])
        stream = b.node("Add", [stream, b.linear(inner, 64, 32)])
    model = b.model([stream], [])
    repaired, done = intact.repair(model)
    assert (
        done.orders == 4
        and done.gathers == [stream]
        and set(hows(done)) == {"folded order"}
        and not done.sums
    )
    assert len(repaired.graph.initializer) == len(model.graph.initializer) + 1  # the output's order
    assert same(evaluate(model, {}), evaluate(repaired, {}))
    text = to_text(done)
    assert "6 made safe by an order of channels" in text
    assert "all 6 layers are proven safe in ONNX Runtime" in text.splitlines()[-1]


def test_what_a_caller_gives_gets_u8_weights():
    b = Builder()
    model = b.model([b.linear("x", 16, 12)])
    repaired, done = intact.repair(model)
    (layer,) = done.layers
    assert (layer.how, layer.reason) == (
        "u8 weights",
        "the graph's input 'x'",
    ) and layer.unsafe > 0 == layer.left
    assert not done.orders and same(evaluate(model, data_of(1, 5, 16)), evaluate(repaired, data_of(1, 5, 16)))
    left = intact.repair(model, engines=["fbgemm"])[1]
    assert hows(left) == ["left"] and not left.is_proven


@pytest.mark.parametrize("heavy", [2, 9])
def test_the_zero_point_of_pytorchs_biases_lets_channels_move(heavy, copied_channels):
    b = Builder()
    point = b.node("Cast", [b.node("ConstantOfShape", [b.constant(np.array([16]))])], to=6)

    def layer(x, k, n, zero):
        scale, zero_point = b.constant(np.float32(0.25)), b.constant(np.uint8(128))
        a = b.node("DequantizeLinear", [b.node("QuantizeLinear", [x, scale, zero_point]), scale, zero_point])
        w = weights_of(b.rng, k, n)
        w[:heavy, 0] = 95
        step = b.constant(np.full(n, 0.125, np.float32))
        w = b.node("DequantizeLinear", [b.constant(w.T), step, b.constant(np.zeros(n, np.int8))], axis=0)
        inputs = [
            b.constant(b.rng.integers(-99, 99, n).astype(np.int32)),
            b.constant(np.full(n, 0.25 * 0.125, np.float32)),
        ]
        y = b.node("Gemm", [a, w, b.node("DequantizeLinear", inputs + [zero] * bool(zero), axis=0)], transB=1)
        return b.node("QuantizeLinear", [y, scale, zero_point])

    first = b.node(
        "DequantizeLinear",
        [layer("x", 16, 16, point), b.constant(np.float32(0.25)), b.constant(np.uint8(128))],
    )
    y = b.node(
        "DequantizeLinear", [layer(first, 16, 8, ""), b.constant(np.float32(0.25)), b.constant(np.uint8(128))]
    )
    model = b.model([y], [("x", (5, 16))])
    repaired, done = intact.repair(model)
    assert hows(done) == ["u8 weights", "folded order" if heavy == 2 else "u8 weights"]
    assert not done.copied_channels  # the zero point states how many channels there are
    assert same(evaluate(model, data_of(5, 16)), evaluate(repaired, data_of(5, 16)))


def test_weights_in_two_layouts_are_copied():
    b = Builder()
    w = b.constant(weights_of(b.rng, 16, 16), "shared")
    hidden = b.linear(b.linear("x", 16, 16, w), 16, 16, w)
    model = b.model([b.linear(hidden, 16, 8)])
    repaired, done = intact.repair(model)
    assert done.orders and "folded order" in hows(done)
    readers = [node.input[1] for node in repaired.graph.node if node.op_type == "MatMulInteger"]
    assert len(set(readers)) == 3 and all(name.startswith("shared") for name in readers[:2])
    assert same(evaluate(model, data_of(1, 5, 16)), evaluate(repaired, data_of(1, 5, 16)))


def test_a_hidden_tensor_that_is_an_output_too():
    b = Builder()
    hidden = b.node("Relu", [b.linear("x", 16, 32)])
    model = b.model([hidden, b.linear(hidden, 32, 8)])
    repaired, done = intact.repair(model)
    assert done.gathers == [hidden] and hows(done) == ["u8 weights", "folded order"]
    assert [value.name for value in repaired.graph.output] == [value.name for value in model.graph.output]
    assert same(evaluate(model, data_of(1, 5, 16)), evaluate(repaired, data_of(1, 5, 16)))
    assert same(in_onnxruntime(model, data_of(1, 5, 16)), in_onnxruntime(repaired, data_of(1, 5, 16)))


def test_a_constant_that_a_caller_may_override_keeps_its_order():
    b = Builder()
    hidden = b.node("Mul", [b.linear("x", 16, 32), b.constant(np.arange(32, dtype=np.float32), "gain")])
    model = b.model([b.linear(hidden, 32, 8)], [("x", (1, 5, 16)), ("gain", (32,))])
    _, done = intact.repair(model)
    assert not done.orders and done.layers[1].reason == "the constant 'gain' that a caller may override"
    # the first layer's weights
    model.graph.input.append(helper.make_tensor_value_info("c0", TensorProto.INT8, (16, 32)))
    assert intact.repair(model)[1].layers[0].reason.endswith("; weights that a caller may override")


def test_what_an_inner_graph_reads_keeps_its_order():
    b = Builder()
    hidden = b.linear("x", 16, 32)
    branches = [
        helper.make_graph(
            [helper.make_node("Identity", [hidden], [f"in{k}"])],
            f"g{k}",
            [],
            [helper.make_tensor_value_info(f"in{k}", TensorProto.FLOAT, None)],
        )
        for k in (0, 1)
    ]
    condition = b.constant(np.array(True))
    b.nodes.append(
        helper.make_node("If", [condition], ["chosen"], then_branch=branches[0], else_branch=branches[1])
    )
    model = b.model([b.linear(hidden, 32, 8), "chosen"])
    repaired, done = intact.repair(model)
    assert not done.orders and done.layers[1].reason == "an inner graph that reads it" and done.is_proven
    assert same(in_onnxruntime(model, data_of(1, 5, 16)), in_onnxruntime(repaired, data_of(1, 5, 16)))


def branched():
    """Two branches, with other weights of the same names; and the branches as models."""
    branches, flat = [], []
    for k in (0, 1):
        inner = Builder()
        w = inner.rng.integers(-30, 31, (16, 8)).astype(np.int8)
        w[: 2 + k, 0] = 95
        y = inner.linear("x", 16, 8, inner.constant(w))
        flat.append(inner.model([y]))
        branches.append(
            helper.make_graph(
                inner.nodes,
                f"g{k}",
                [],
                [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
                [numpy_helper.from_array(v, n) for n, v in inner.constants.items()],
            )
        )
    b = Builder()
    flag = b.node("Cast", ["flag"], to=TensorProto.BOOL)
    b.nodes.append(
        helper.make_node(
            "If", [flag], ["chosen"], name="choice", then_branch=branches[0], else_branch=branches[1]
        )
    )
    return b.model(["chosen"], [("x", (1, 5, 16)), ("flag", ())]), flat


def test_layers_of_an_inner_graph_keep_their_order():
    _, done = intact.repair(branched()[0], engines=["fbgemm"])
    assert hows(done) == ["left", "left"] and not done.is_proven
    assert {layer.reason for layer in done.layers} == {
        f"it is in the {name} of If 'choice'" for name in ("then_branch", "else_branch")
    }


def test_layers_of_an_inner_graph_get_u8_weights():
    model, flat = branched()
    repaired, done = intact.repair(model)
    assert hows(done) == ["u8 weights", "u8 weights"] and done.is_proven
    for flag in (0, 1):
        x = data_of(1, 5, 16)
        data = {**x, "flag": np.array(flag, np.float32)}
        assert same(in_onnxruntime(repaired, data), evaluate(flat[1 - flag], x))
        assert same(in_onnxruntime(exact_variant(done.before), data), evaluate(flat[1 - flag], x))


@pytest.mark.parametrize(
    "op,reason",
    [
        ("Gather", "Gather from its channels"),
        ("Softmax", "Softmax over its channels"),
        ("MatMul", "MatMul of two activations"),
        ("ArgMax", "the operator ArgMax"),
        ("CumSum", "the operator CumSum"),
        ("Slice", "Slice of its channels"),
        ("Reshape", "Reshape that mixes axes"),
        ("run", "the operator run"),
    ],
)
def test_what_depends_on_the_order_keeps_it(op, reason):
    b = Builder()
    hidden = b.linear("x", 16, 32)
    inputs = {
        "Gather": [b.constant(np.array([3, 1]))],
        "MatMul": [b.node("Transpose", [hidden], perm=[0, 2, 1])],
        "CumSum": [b.constant(np.int64(2))],
        "Slice": [b.constant(np.array([n])) for n in (0, 32, 2, 3)],
        "Reshape": [b.constant(np.array([1, 32, 5]))],
    }.get(op, [])
    other = b.node(op, [hidden, *inputs], **({"axis": 2} if op in ("Gather", "Softmax", "ArgMax") else {}))
    kinds = {other: TensorProto.INT64} if op == "ArgMax" else None
    model = b.model([b.linear(hidden, 32, 8), other], [("x", (1, 5, 16))], kinds=kinds)
    repaired, done = intact.repair(model)
    assert not done.orders and (done.layers[1].how, done.layers[1].reason) == ("u8 weights", reason)
    if op != "run":
        assert same(in_onnxruntime(model, data_of(1, 5, 16)), in_onnxruntime(repaired, data_of(1, 5, 16)))


def test_operators_may_come_in_any_order():
    b = Builder()
    hidden = b.linear("x", 16, 32)
    model = b.model([b.linear(hidden, 32, 8), b.node("Softmax", [hidden], axis=2)])
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(nodes[::-1])
    repaired, done = intact.repair(model)
    assert not done.orders and done.is_proven
    model.graph.node[0].input[0] = model.graph.node[0].output[0]  # waits for itself
    intact.repair(model)
    first = next(
        node for node in model.graph.node if node.op_type == "DynamicQuantizeLinear" and node.input[0] == "x"
    )
    first.input[0] = hidden
    with pytest.raises(intact.Error):
        intact.repair(model)


def test_files_before_version_4_state_their_constants_as_inputs():
    b = Builder()
    model = b.model([b.linear(b.linear("x", 16, 32), 32, 8)])
    model.ir_version = 3
    for tensor in model.graph.initializer:
        model.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        )
    repaired, done = intact.repair(model)
    assert done.is_proven and done.orders == 1 and [value.name for value in repaired.graph.input] == ["x"]
    assert same(evaluate(model, data_of(1, 5, 16)), evaluate(repaired, data_of(1, 5, 16)))


@pytest.mark.parametrize("way", ["gather", "slice", "start"])
def test_shapes_that_a_run_decides(way):
    b = Builder()
    hidden = b.linear("x", 16, 32)
    shape = b.node("Shape", [hidden], **({"start": 0, "end": 2} if way == "start" else {}))
    if way == "gather":
        sizes = [b.node("Gather", [shape, b.constant(np.array(k))]) for k in (0, 1)]
        sizes = [b.node("Unsqueeze", [size, b.constant(np.array([0]))]) for size in sizes]
    elif way == "slice":
        sizes = [b.node("Slice", [shape, *(b.constant(np.array([n])) for n in (0, 2, 0))])]
    else:
        sizes = [shape]
    heads = b.node("Concat", [*sizes, b.constant(np.array([2, 16]))], axis=0)
    y = b.node("Relu", [b.node("Transpose", [b.node("Reshape", [hidden, heads])], perm=[0, 2, 1, 3])])
    merged = b.node("Concat", [*sizes, b.constant(np.array([-1]))], axis=0)
    y = b.node("Reshape", [b.node("Transpose", [y], perm=[0, 2, 1, 3]), merged])
    model = b.model([b.linear(y, 32, 8)], [("x", ("batch", "words", 16))])
    repaired, done = intact.repair(model)
    assert done.orders == 1 and hows(done) == ["u8 weights", "folded order"]
    assert same(in_onnxruntime(model, data_of(2, 5, 16)), in_onnxruntime(repaired, data_of(2, 5, 16)))


def test_activations_with_a_scale_for_each_channel():
    b = Builder()
    scale = b.constant((2.0 ** -b.rng.integers(3, 6, 32)).astype(np.float32))
    zero = b.constant(b.rng.integers(0, 9, 32).astype(np.uint8))
    y = b.node("QuantizeLinear", [b.linear("x", 16, 32), scale, zero], axis=2)
    model = b.model([b.linear(b.node("DequantizeLinear", [y, scale, zero], axis=-1), 32, 8)])
    repaired, done = intact.repair(model)
    assert done.orders == 1 and done.is_proven
    assert same(in_onnxruntime(model, data_of(1, 5, 16)), in_onnxruntime(repaired, data_of(1, 5, 16)))


def attention(b, heads=2):
    stream = b.node("Relu", [b.linear("x", 16, 32)])
    parts = []
    for permutation in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        y = b.node("Reshape", [b.linear(stream, 32, 32), b.constant(np.array([0, -1, heads, 32 // heads]))])
        parts.append(b.node("Transpose", [y], perm=permutation))
    y = b.node("MatMul", [b.node("Softmax", [b.node("MatMul", parts[:2])], axis=-1), parts[2]])
    y = b.node("Reshape", [b.node("Transpose", [y], perm=[0, 2, 1, 3]), b.constant(np.array([0, 0, 32]))])
    return b.linear(b.node("Add", [stream, b.linear(y, 32, 32)]), 32, 8)


def test_heads_of_attention_are_ordered_each_by_itself():
    b = Builder()
    model = b.model([attention(b)], [("x", ("batch", "words", 16))])
    repaired, done = intact.repair(model)
    assert done.orders == 2 and hows(done) == ["u8 weights"] + ["folded order"] * 5
    v = next(
        node.input[1] for node in model.graph.node if node.op_type == "MatMulInteger" and node.name == "n18"
    )
    stored, new = (constants_of(m)[v] for m in (model, repaired))
    for head in (slice(0, 16), slice(16, 32)):  # the rows too have a new order
        old_columns, new_columns = (
            sorted(sorted(column) for column in w[:, head].T.tolist()) for w in (stored, new)
        )
        assert old_columns == new_columns
    assert (np.sort(new, axis=0) != np.sort(stored, axis=0)).any()
    assert same(evaluate(model, data_of(1, 5, 16)), evaluate(repaired, data_of(1, 5, 16)))


def test_what_floats_are_summed_over_is_reordered_only_on_demand():
    b = Builder()
    hidden = b.linear("x", 16, 32)
    gain, bias = b.constant(np.arange(32, dtype=np.float32)), b.constant(np.zeros(32, np.float32))
    normed = b.node("LayerNormalization", [hidden, gain, bias])
    model = b.model([b.linear(normed, 32, 8)])
    cheap = intact.repair(model, reorder_sums=True)[1]
    assert cheap.sums == ["LayerNormalization in float"] and hows(cheap) == ["u8 weights", "folded order"]
    done = intact.repair(model)[1]
    assert not done.orders and not done.sums and "--reorder-sums" in done.layers[1].reason and done.is_proven
    assert hows(done) == ["u8 weights"] * 2 and done.price > cheap.price > 0
    assert ("--reorder-sums", pytest.approx(cheap.price)) in done.cheaper
    text = to_text(done)
    assert f"price: {done.price:+.2g} %" in text and f"cheaper: --reorder-sums: {cheap.price:+.2g} %" in text
    # Nothing unsafe: nothing to pay.
    free = intact.repair(intact.repair(model)[0])[1]
    assert free.price == 0 and not free.cheaper and "price: +0 %" in to_text(free)


def convolutions(opset, groups=1):
    b = Builder()
    scale, point, zero = b.constant(np.float32(2.0**-4)), b.constant(np.uint8(7)), b.constant(np.int8(0))

    def layer(x, c, o, groups):
        w = np.concatenate(
            [weights_of(b.rng, c // groups, o // groups, 1, 1).swapaxes(0, 1) for _ in range(groups)]
        )
        w, w_scale = b.constant(w), b.constant(np.float32(2.0**-7))
        return b.node("QLinearConv", [x, scale, point, w, w_scale, zero, scale, point], group=groups)

    x = layer(layer("u", 4, 16, 1), 16, 16, 16)  # depthwise
    y = layer(layer(x, 16, 16, groups), 16, 8, 1)
    model = b.model([y], [], opset, {y: TensorProto.UINT8})
    model.graph.input.append(helper.make_tensor_value_info("u", TensorProto.UINT8, (1, 4, 6, 6)))
    return model, {"u": np.random.default_rng(2).integers(0, 256, (1, 4, 6, 6)).astype(np.uint8)}


@pytest.mark.parametrize("opset", range(10, 26))
def test_opsets(opset):
    if opset > onnx.defs.onnx_opset_version():
        pytest.skip("a newer opset than the package onnx knows")
    model, data = convolutions(opset)
    for node in model.graph.node:
        node.attribute.append(helper.make_attribute("pads", [0] * 4))
    repaired, done = intact.repair(model)
    assert done.orders == 2 and done.is_proven
    assert same(evaluate(model, data), evaluate(repaired, data))


def test_copied_channels_beside_heavy_ones(copied_channels):
    b = Builder()
    w = np.full((32, 8), 20, np.int8)
    w[:18] = 100  # four pairs too many
    hidden = b.node("Add", [b.linear("x", 16, 32), b.constant(np.arange(32, dtype=np.float32))])
    model = b.model([hidden, b.linear(hidden, 32, 8, b.constant(w))])
    repaired, done = intact.repair(model)
    assert hows(done) == ["u8 weights", "folded order"]
    # 4 would do; 40 channels take less time than 36
    assert done.layers[1].copied_channels == done.copied_channels == 8
    assert same(evaluate(model, data_of(1, 5, 16)), evaluate(repaired, data_of(1, 5, 16)))
    kept = intact.repair(model, keep_channels=True)[1]
    assert hows(kept) == ["u8 weights"] * 2 and not kept.copied_channels
    # Zeros are no zeros where the weights' zero point is 3.
    product = next(
        node for node in model.graph.node if node.op_type == "MatMulInteger" and node.input[1] == "c2"
    )
    product.input.append("three")
    model.graph.initializer.append(numpy_helper.from_array(np.array(3, np.int8), "three"))
    assert not intact.repair(model)[1].copied_channels
    # Where the number of channels shows, it stays.
    b.nodes.append(helper.make_node("Shape", [hidden], ["sizes"]))
    shown = b.model([b.nodes[-2].output[0], "sizes"], kinds={"sizes": TensorProto.INT64})
    assert not intact.repair(shown)[1].copied_channels


def test_copied_channels_copy_a_channel_without_unsafe_pairs(copied_channels):
    b = Builder()
    first, second = np.full((16, 32), 100, np.int8), np.full((32, 8), 20, np.int8)
    first[:, [21, 23]], second[:18] = 20, 100
    hidden = b.linear("x", 16, 32, b.constant(first))
    model = b.model([hidden, b.linear(hidden, 32, 8, b.constant(second))])
    repaired, done = intact.repair(model, engines=["fbgemm"])
    assert (
        done.layers[0].unsafe == done.layers[0].left == 30 * 8
        and done.layers[1].copied_channels == 8
        and not done.layers[1].left
    )
    assert same(evaluate(model, data_of(1, 5, 16)), evaluate(repaired, data_of(1, 5, 16)))


@pytest.mark.parametrize("op", ["LayerNormalization", "ReduceMean", "DynamicQuantizeLSTM", "Split"])
def test_no_copied_channels_where_they_would_count(op, copied_channels, monkeypatch):
    def many_heavy(rng, k, *columns):
        return np.where(np.arange(k) < 0.6 * k, 100, 20).reshape(k, *[1] * len(columns)) * np.ones(
            (k, *columns), np.int8
        )

    monkeypatch.setitem(globals(), "weights_of", lambda *sizes: many_heavy(*sizes).astype(np.int8))
    b = Builder()
    hidden = b.linear("x", 16, 32)
    if op == "LayerNormalization":
        hidden = b.node(
            op, [hidden, b.constant(np.ones(32, np.float32)), b.constant(np.zeros(32, np.float32))]
        )
    if op == "ReduceMean":
        hidden = b.node("Sub", [hidden, b.node(op, [hidden], axes=[-1], keepdims=1)])
    size = 32
    if op == "Split":  # states the sizes of what was concatenated
        both = b.node("Concat", [b.node("Relu", [hidden]), b.linear("x", 16, 32)], axis=-1)
        hidden = b.node(op, [both, b.constant(np.array([32, 32]))], 2, axis=2)[1]
    if op == "DynamicQuantizeLSTM":
        step, zero = b.constant(np.array([0.01], np.float32)), b.constant(np.zeros(1, np.int8))
        weights = [b.constant(weights_of(b.rng, k, 64)[None]) for k in (32, 16)]
        inputs = [hidden, *weights, "", "", "", "", "", step, zero, step, zero]
        hidden = b.node(op, inputs, domain="com.microsoft", hidden_size=16)
        hidden, size = b.node("Squeeze", [hidden, b.constant(np.array([1]))]), 16
    model = b.model([b.linear(hidden, size, 8)])
    repaired, done = intact.repair(model)
    assert not done.copied_channels and done.is_proven
    data = data_of(1, 5, 16)
    assert all(
        # ONNX Runtime on Arm normalizes equal channels to NaN
        np.allclose(*pair, 1e-3, 1e-2, equal_nan=True)
        for pair in zip(in_onnxruntime(model, data), in_onnxruntime(repaired, data))
    )


def test_groups_are_ordered_each_by_itself():
    model, data = convolutions(17, groups=2)
    for node in model.graph.node:
        node.attribute.append(helper.make_attribute("pads", [0] * 4))
    repaired, done = intact.repair(model)
    assert done.orders == 2 and hows(done)[2:] == ["folded order"] * 2
    assert same(evaluate(model, data), evaluate(repaired, data))


def test_places_of_maxima_keep_the_order():
    b = Builder()
    hidden = b.linear("x", 16, 32)  # (1, 5, 32): five channels of 32 pixels
    pooled, places = b.node("MaxPool", [b.node("Transpose", [hidden], perm=[0, 2, 1])], 2, kernel_shape=[2])
    y = b.linear(b.node("Transpose", [pooled], perm=[0, 2, 1]), 32, 8)
    assert intact.repair(b.model([y]))[1].orders == 1
    _, done = intact.repair(b.model([y, places], kinds={places: TensorProto.INT64}))
    assert not done.orders and done.layers[1].reason == "the operator MaxPool"


def recurrent(directions, hidden=16, states="zeros"):
    b = Builder()
    size = 12
    last = []

    def layer(x, width):
        w = np.stack([weights_of(b.rng, width, 4 * hidden) for _ in range(directions)])
        r = np.stack([weights_of(b.rng, hidden, 4 * hidden) for _ in range(directions)])
        state = last[-1] if last and states == "passed" else ""
        if states == "constant":
            state = b.constant(b.rng.standard_normal((directions, 2, hidden)).astype(np.float32))
        if states == "zeros":
            state = b.node(
                "ConstantOfShape",
                [b.constant(np.array([directions, 2, hidden]))],
                value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.0]),
            )
        bias = b.constant(b.rng.standard_normal((directions, 8 * hidden)).astype(np.float32))
        inputs = [
            x,
            b.constant(w),
            b.constant(r),
            bias,
            "",
            state,
            state,
            "",
            b.constant(np.full(directions, 0.01, np.float32)),
            b.constant(np.zeros(directions, np.int8)),
            b.constant(np.full((directions, 4 * hidden), 0.01, np.float32)),
            b.constant(np.zeros((directions, 4 * hidden), np.int8)),
        ]
        y, state = b.node(
            "DynamicQuantizeLSTM",
            inputs,
            2,
            "com.microsoft",
            hidden_size=hidden,
            direction="bidirectional" if directions == 2 else "forward",
        )
        last.append(state)
        y = b.node("Transpose", [y], perm=[0, 2, 1, 3])
        return b.node("Reshape", [y, b.constant(np.array([0, 0, -1]))])

    y = layer(layer("x", size), directions * hidden)
    return b.model([b.linear(y, directions * hidden, 6)], [("x", (7, 2, size))])


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("states", ["none", "zeros", "constant", "passed"])
def test_recurrent_layers(directions, states):
    model = recurrent(directions, states=states)
    repaired, done = intact.repair(model)
    assert done.is_proven and "folded order" in hows(done)
    last = [layer for layer in done.layers if layer.operator == "MatMulInteger"]
    assert last[0].how == "folded order"
    before, after = (in_onnxruntime(m, data_of(7, 2, 12)) for m in (model, repaired))
    assert same(before, after) or not {"avx_vnni", "avx512_vnni"} & set(intact.isas())


def test_external_data_stay_external(tmp_path):
    b = Builder()
    model = b.model([b.linear(b.linear("x", 16, 64), 64, 8)])
    for tensor in model.graph.initializer:
        onnx.external_data_helper.set_external_data(tensor, "weights.bin")
    onnx.save(model, str(tmp_path / "m.onnx"))
    (tmp_path / "out").mkdir()
    done = repair_file(tmp_path / "m.onnx", tmp_path / "out" / "r.onnx")
    assert done.is_proven and done.orders == 1
    assert sorted(os.listdir(tmp_path / "out")) == ["r.onnx", "r.onnx.data"]
    loaded = onnx.load(str(tmp_path / "m.onnx")), onnx.load(str(tmp_path / "out" / "r.onnx"))
    assert same(*(evaluate(m, data_of(1, 5, 16)) for m in loaded))


def test_shapes_of_tensors_without_a_known_type():
    """onnx 1.12 ended the process."""
    inner = helper.make_graph(
        [helper.make_node("Own", ["y"], ["v"], domain="own"), helper.make_node("Shape", ["v"], ["w"])],
        "inner",
        [],
        [helper.make_tensor_value_info("w", TensorProto.INT64, None)],
    )
    nodes = [
        helper.make_node("Own", ["x"], ["y"], domain="own"),
        helper.make_node("Shape", ["y"], ["s"]),
        helper.make_node("Transpose", ["y"], ["t"], perm=[1, 0]),
        helper.make_node("Shape", ["t"], ["u"], start=0),
        helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner),
        helper.make_node("Relu", ["x"], ["r"]),
    ]
    inputs = [("x", TensorProto.FLOAT, ["n", 2]), ("c", TensorProto.BOOL, [])]
    outputs = [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(*value) for value in inputs], outputs
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    found = shapes_of(helper.make_model(graph, opset_imports=opsets), 64)
    assert found["r"] == [1, 2] and "y" not in found


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_values_shifted_to_u8_have_the_type_u8(shape):
    for dtype in (np.int8, np.int32):
        shifted = as_u8(np.full(shape, -3, dtype))
        assert shifted.dtype == np.uint8 and shifted.shape == shape and (shifted == 125).all()


def test_the_command(tmp_path):
    b = Builder()
    onnx.save(b.model([b.linear(b.linear("x", 16, 32), 32, 8)]), str(tmp_path / "m.onnx"))
    out, report = tmp_path / "r.onnx", tmp_path / "r.json"
    done = process("repair", tmp_path / "m.onnx", "-o", out, "--json", report)
    assert done.returncode == 0 and "proven safe in ONNX Runtime" in done.stdout.splitlines()[-1], done.stderr
    found = json.loads(report.read_text())
    assert found["schema"] == "intact-repair"
    assert [layer["made_safe_by"] for layer in found["layers"]] == ["u8 weights", "folded order"]
    # u8 weights help only ONNX Runtime
    assert program("repair", tmp_path / "m.onnx", "-o", out, "--for", "onednn").returncode == 1
    assert program("repair", tmp_path / "m.onnx", "-o", out, "--for", "nobody").returncode == 2
    for arguments, words in [
        ((), "MODEL, -o/--output: missing; `intact repair --help` says what is expected"),
        (("m", "-o"), "-o/--output: has no value; expected one"),
        (("m", "-o", "r", "--max-noise", "two\nlines"), r"--max-noise: is 'two\nlines'; expected a number"),
        (
            ("m", "-o", "r", "--max", "3"),
            "--max: is short for several; expected one of --max-depth, --max-noise",
        ),
        (("m", "-o", "r", "--reorder-sums=3"), "--reorder-sums: is '3'; expected no value"),
        (
            ("m", "-o", "r", "n"),
            "n: no argument of intact repair; expected one that `intact repair --help` lists",
        ),
    ]:
        refused = program("repair", *arguments)
        assert refused.returncode == 2 and refused.stdout == "" and refused.stderr == f"intact: {words}\n"
    assert program("repair", tmp_path / "m.onnx", "-o", out, "--data", "x.npz").returncode == 2


def test_nothing_is_written_for_bad_input(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    out = tmp_path / "r.onnx"
    out.write_text("before")
    assert program("repair", tmp_path / "bad.onnx", "-o", out).returncode == 2
    assert program("repair", tmp_path / "none.onnx", "-o", out).returncode == 2
    b = Builder()
    onnx.save(b.model([b.linear("x", 16, 8)]), str(tmp_path / "m.onnx"))
    assert program("repair", tmp_path / "m.onnx", "-o", tmp_path / "no" / "r.onnx").returncode == 2
    assert out.read_text() == "before" and sorted(os.listdir(tmp_path)) == ["bad.onnx", "m.onnx", "r.onnx"]


def test_the_stored_model_is_not_overwritten(tmp_path):
    b = Builder()
    path, link, out = tmp_path / "m.onnx", tmp_path / "link.onnx", tmp_path / "r.onnx"
    onnx.save(b.model([b.linear(b.linear("x", 16, 32), 32, 8)]), str(path))
    link.symlink_to(path)
    stored = path.read_bytes()
    for written in (path, link):
        with pytest.raises(Error, match="is a file of an input model"):
            repair_file(path, written)
    assert path.read_bytes() == stored
    repair_file(path, out)
    again = repair_file(out, tmp_path / "again.onnx")
    assert set(hows(again)) == {"stored order"} and to_json(again)["orders"] == 0


def test_the_float_model_is_not_overwritten(tmp_path):
    b = Builder()
    path, before = tmp_path / "m.onnx", tmp_path / "float.onnx"
    onnx.save(b.model([b.linear("x", 16, 8)]), str(path))
    weights = numpy_helper.from_array(np.ones((16, 8), np.float32), "w")
    onnx.save(b.model([]), str(before))
    proto = onnx.load(str(before))
    proto.graph.initializer.append(weights)
    proto.graph.node.append(helper.make_node("MatMul", ["x", "w"], ["y"]))
    onnx.save(proto, str(before), save_as_external_data=True, location="r.onnx.data", size_threshold=0)
    stored, data = before.read_bytes(), (tmp_path / "r.onnx.data").read_bytes()
    for written in (before, tmp_path / "r.onnx"):
        with pytest.raises(Error, match="is a file of an input model"):
            repair_file(path, written, float_model=before)
    assert before.read_bytes() == stored and (tmp_path / "r.onnx.data").read_bytes() == data


@pytest.mark.parametrize("out", ["", ".", "..", "/"])
def test_a_folder_is_no_output(tmp_path, out):
    b = Builder()
    onnx.save(b.model([b.linear("x", 16, 8)]), str(tmp_path / "m.onnx"))
    done = program("repair", tmp_path / "m.onnx", "-o", out)
    assert (
        done.returncode == 2
        and "is a folder; expected a file's name" in done.stderr
        and done.stderr.count("\n") == 1
    )


@pytest.mark.parametrize(
    "arrays, words",
    [
        ({"z": np.zeros((1, 5, 16), np.float32)}, "has no array 'x', an input of the model; has: z"),
        ({"x": np.zeros((0, 5, 16), np.float32)}, "array 'x': has no elements"),
        ({"x": np.full((1, 5, 16), np.nan, np.float32)}, "array 'x': holds NaN"),
        ({"x": np.zeros((1, 5, 16))}, "array 'x': is float64; expected float32"),
    ],
)
def test_the_check_names_what_is_wrong_with_the_data(tmp_path, arrays, words):
    pytest.importorskip("onnxruntime")
    b = Builder()
    onnx.save(b.model([b.linear("x", 16, 8)], inputs=[("x", ("n", 5, 16))]), str(tmp_path / "m.onnx"))
    np.savez(tmp_path / "data.npz", **arrays)
    done = program(
        "repair", tmp_path / "m.onnx", "-o", tmp_path / "r.onnx", "--check", "--data", tmp_path / "data.npz"
    )
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.skipif(
    not {"avx_vnni", "avx512_vnni"} & set(intact.isas()), reason="the stored model would clamp here"
)
@pytest.mark.parametrize("kind", ["slice", "split", "shape"])
def test_copied_channels_do_not_move_cuts(kind, monkeypatch):
    monkeypatch.setattr(cost, "_U8_OUTPUT", 10**9)
    monkeypatch.setattr(_repair_plan, "MOST_DEPTH", 1000)
    b = Builder()
    heavy = b.rng.integers(-3, 4, (64, 512)).astype(np.int8)
    heavy[:33, 0] = 95  # two of these find no light channel
    a = b.linear("x", 16, 64)
    y = b.linear(a, 64, 512, b.constant(heavy))
    one = b.constant(np.array([2]))
    if kind == "slice":
        wide = b.node("Concat", [b.node("Relu", [a]), b.linear("x", 16, 8)], axis=2)
        other = b.node("Slice", [wide, b.constant(np.array([64])), b.constant(np.array([72])), one])
    elif kind == "split":
        wide = b.node("Concat", [a, b.node("Relu", [a])], axis=2)
        other = b.node("Split", [wide, b.constant(np.array([64, 64]))], 2, axis=2)[1]
    else:
        sizes = b.node("Shape", [b.node("Transpose", [a], perm=[0, 2, 1])], end=2)
        other = b.node("Cast", [b.node("Gather", [sizes, b.constant(np.array(-1))])], to=1)
    model, data = b.model([y, other]), data_of(1, 5, 16)
    repaired, done = intact.repair(model)
    assert done.is_proven and same(in_onnxruntime(model, data), in_onnxruntime(repaired, data))


def test_the_order_of_channels_shows_in_instance_normalization():
    b = Builder()
    a = b.node("Transpose", [b.linear("x", 16, 32)], perm=[0, 2, 1])
    ones, zeros = b.constant(np.ones(32, np.float32)), b.constant(np.zeros(32, np.float32))
    y = b.node("Transpose", [b.node("InstanceNormalization", [a, ones, zeros])], perm=[0, 2, 1])
    _, done = intact.repair(b.model([b.linear(y, 32, 8)]), reorder_sums=True)
    assert done.sums == ["InstanceNormalization in float"]


def test_the_check_sees_a_wrong_repair(tmp_path):
    pytest.importorskip("onnxruntime")
    from intact._repair.check import check

    b = Builder()
    path, out = tmp_path / "m.onnx", tmp_path / "r.onnx"
    onnx.save(b.model([b.linear(b.linear("x", 16, 32), 32, 8)]), str(path))
    done = repair_file(path, out)
    found = check(done)
    assert found.is_right and found.outputs[0].repaired_differ == 0 and not found.lines()[0].endswith("WRONG")
    model = onnx.load(str(out))
    name = next(node.input[1] for node in model.graph.node if node.name == "n5")
    scope = Scope(model.graph, tmp_path)
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(scope.constant(name)[::-1].copy(), name))
    onnx.save(model, str(out))
    found = check(done)
    assert not found.is_right and found.lines()[0].endswith("THE REPAIR IS WRONG")


def of_reordered_floats(tmp_path):
    """A repair whose LayerNormalization adds floats in a new order; its output is an output of the model."""
    b = Builder()
    gain, bias = (
        b.constant(np.linspace(1, 2, 32, dtype=np.float32), "gain"),
        b.constant(np.zeros(32, np.float32)),
    )
    hidden = b.linear("x", 16, 32)
    model = b.model([b.node("LayerNormalization", [hidden, gain, bias]), b.linear(hidden, 32, 8)])
    onnx.save(model, str(tmp_path / "m.onnx"))
    return repair_file(tmp_path / "m.onnx", tmp_path / "r.onnx", reorder_sums=True)


def test_the_check_of_reordered_sums_sees_a_change_above_rounding_noise(tmp_path):
    pytest.importorskip("onnxruntime")
    done = of_reordered_floats(tmp_path)
    assert done.sums and _repair_check.check(done).is_right
    model = onnx.load(str(tmp_path / "r.onnx"))
    (tensor,) = [tensor for tensor in model.graph.initializer if tensor.name.startswith("gain")]
    tensor.CopyFrom(
        numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1 + 5e-7), tensor.name)
    )
    onnx.save(model, str(tmp_path / "r.onnx"))
    found = _repair_check.check(done)
    assert 120 < found.outputs[0].ordered < found.outputs[0].control and not found.is_right


def test_the_worst_control_decides_about_reordered_sums(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    draws = []

    def with_one_noisy_draw(proto, owner, draw=0):
        draws.append(draw)
        made = control_variant(proto, owner, draw)
        for tensor in made.graph.initializer:
            if tensor.name == "gain" and draw == 1:
                tensor.CopyFrom(
                    numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1.01), tensor.name)
                )
        return made

    done = of_reordered_floats(tmp_path)
    control_variant = _repair_check.control_variant
    monkeypatch.setattr(_repair_check, "control_variant", with_one_noisy_draw)
    assert _repair_check.check(done).outputs[0].control == pytest.approx(40, abs=1) and draws == [0, 1, 2]


@pytest.mark.parametrize("is_right", [True, False])
def test_the_check_runs_before_the_file_is_written(tmp_path, monkeypatch, capsys, is_right):
    pytest.importorskip("onnxruntime")
    b = Builder()
    path, out = tmp_path / "m.onnx", tmp_path / "r.onnx"
    onnx.save(b.model([b.linear(b.linear("x", 16, 32), 32, 8)]), str(path))
    seen = []

    def planted(done, *arguments, **options):
        found = right_check(done, *arguments, **options)
        seen.append((out.exists(), found.is_right))
        found.outputs[0].clamped = 0 if is_right else 1
        return found

    right_check = _repair_check.check
    monkeypatch.setattr(_repair_check, "check", planted)
    status = _program._repair([str(path), "-o", str(out), "--check"])
    printed = capsys.readouterr().out
    assert (
        seen == [(False, True)] and f"{out}: all 2 layers are proven safe" in printed and "price: " in printed
    )
    assert (status, out.exists()) == ((0, True) if is_right else (1, False))
    assert ("was not written" in printed) == (not is_right) and not [
        one for one in tmp_path.iterdir() if one not in (path, out)
    ]


def test_what_moves_outputs_is_measured(tmp_path):
    pytest.importorskip("onnxruntime")
    b = Builder()
    gain, bias = b.constant(np.linspace(1, 2, 32, dtype=np.float32)), b.constant(np.zeros(32, np.float32))
    model = b.model([b.linear(b.node("LayerNormalization", [b.linear("x", 16, 32), gain, bias]), 32, 8)])
    onnx.save(model, str(tmp_path / "m.onnx"))
    done = program("repair", tmp_path / "m.onnx", "-o", tmp_path / "r.onnx", "--reorder-sums")
    assert (
        done.returncode == 0
        and "against exact sums: stored" in done.stdout
        and "floats added in a new order" in done.stdout
    )
    done = program("repair", tmp_path / "m.onnx", "-o", tmp_path / "r.onnx")
    assert (
        done.returncode == 0
        and "against exact sums" not in done.stdout
        and "in a new order: L" not in done.stdout
    )


@pytest.mark.parametrize("options", [(), ("--rules",)])
def test_with_rules_onnxruntime_does_not_load_the_model(tmp_path, monkeypatch, capsys, options):
    onnxruntime = pytest.importorskip("onnxruntime")
    loaded, session = [], onnxruntime.InferenceSession

    def seen(*arguments, **named):
        loaded.append(1)
        return session(*arguments, **named)

    monkeypatch.setattr(onnxruntime, "InferenceSession", seen)
    onnx.save(first_convolution(True), str(tmp_path / "m.onnx"))
    assert _program._repair([str(tmp_path / "m.onnx"), "-o", str(tmp_path / "r.onnx"), *options]) == 0
    text = capsys.readouterr().out
    is_asked = is_x86() and not options
    assert bool(loaded) == is_asked and ("note: the rules of ONNX Runtime" in text) == (not is_asked)
    assert "1 got u8 weights" in text


# ----- shortened weights -------------------------------------------------------------------------------------------------

ALL = ["onnxruntime", "fbgemm", "onednn", "openvino"]


def changes_of(model, repaired):
    """By layer: how far its weights are from the stored weights, if channels keep their order."""
    with_files = []
    for one in (model, repaired):
        done = intact.repair(one, keep_channels=True)[1]
        with_files.append(
            [
                audited.layer.weights.astype(np.int32) - 128 * (audited.layer.b_type == "u8")
                for audited in done.before.layers
            ]
        )
    return [b - a for a, b in zip(*with_files)]


@pytest.mark.parametrize("seed", range(40))
def test_shortened_weights_are_proven_and_nearest(seed):
    rng = np.random.default_rng(seed)
    o, i, groups = int(rng.integers(1, 6)), int(rng.integers(1, 7)), int(rng.integers(1, 4))
    is_convolution = seed % 2 == 0
    w = np.clip(
        rng.laplace(size=(o * groups, 3, 3, i) if is_convolution else (9 * i, o)) * 60, -128, 127
    ).astype(np.int8)
    b_type = "s8"
    if rng.random() < 0.3:
        w, b_type = (w.astype(np.int16) + 128).astype(np.uint8), "u8"
    a_type = ("u8", "s8")[int(rng.integers(2))]
    low = 0 if a_type == "u8" else -128
    layer = QuantizedLayer(
        "n",
        "Conv",
        "Conv",
        False,
        a_type,
        b_type,
        w,
        (low, low + int(rng.choice([160, 200, 254, 255]))),
        "",
        groups=groups if is_convolution else 1,
    )
    kinds = (
        [["within_tap"], ["flattened"], ["flattened", "within_tap"]][seed // 2 % 3]
        if is_convolution
        else ["depths"]
    )
    short = _shorten.replace(layer, weights=_shorten.shortened(layer, kinds))
    assert short.weights.dtype == w.dtype and all(certify(short, kind).is_proven for kind in kinds)
    change = short.weights.astype(np.int32) - w
    assert (np.abs(short.weights - 128.0 * (b_type == "u8")) <= np.abs(w - 128.0 * (b_type == "u8"))).all()
    assert _shorten.squares(layer, short.weights).sum() == (change**2).sum()
    # No weight can be longer by 1 alone, and no two neighbours can share their excess better.
    for place in np.flatnonzero(change)[:20]:
        longer = short.weights.reshape(-1).copy()
        longer[place] -= np.sign(change.reshape(-1)[place])
        longer = _shorten.replace(short, weights=longer.reshape(w.shape))
        assert not all(certify(longer, kind).is_proven for kind in kinds)


def test_a_chain_of_pairs_is_shortened_by_the_least_squares():
    rng = np.random.default_rng(0)
    for _ in range(60):
        over = rng.integers(1, 7, rng.integers(1, 5)).tolist()
        found = _shorten._chain(over)
        assert all(found[i] + found[i + 1] >= over[i] for i in range(len(over)))
        least = min(
            sum(d * d for d in ds)
            for ds in itertools.product(range(7), repeat=len(over) + 1)
            if all(ds[i] + ds[i + 1] >= over[i] for i in range(len(over)))
        )
        assert sum(d * d for d in found) == least, over


@pytest.mark.parametrize("seed", range(20))
def test_pairs_of_two_engines_are_shortened_by_the_least_squares(seed):
    rng = np.random.default_rng(seed)
    channels = (3, 5)[seed % 2]
    w = (rng.integers(50, 128, (1, 3, channels)) * rng.choice([-1, 1, 1, 1], (1, 3, channels))).astype(
        np.int8
    )
    layer = QuantizedLayer("n", "Conv", "Conv", False, "u8", "s8", w, (0, 255), "")
    depth = 3 * channels
    pairs = {(k, k + 1) for k in range(0, depth - 1, 2)}
    pairs |= {
        (tap * channels + k, tap * channels + k + 1) for tap in range(3) for k in range(0, channels - 1, 2)
    }
    flat = w.reshape(-1).tolist()
    least = {d: d * d for d in range(128)}  # by the change of the last weight
    for k in range(1, depth):
        over = abs(flat[k - 1] + flat[k]) - 128 if (k - 1, k) in pairs and flat[k - 1] * flat[k] > 0 else 0
        best = [min(least[d] for d in range(max(over - e, 0), 128)) for e in range(128)]
        least = {e: e * e + best[e] for e in range(128)}
    assert _shorten.squares(layer, _shorten.shortened(layer, ["flattened", "within_tap"])).sum() == min(
        least.values()
    )


def test_pairs_of_kernel_rows_and_columns_are_shortened():
    """A weight is in several pairs, which form no chains."""
    w = np.random.default_rng(0).integers(90, 128, (4, 5, 5, 1)).astype(np.int8)
    layer = QuantizedLayer("n", "Conv", "Conv", False, "u8", "s8", w, (0, 255), "")
    kinds = {"none", "flattened", "kernel_row", "kernel_column"}
    short = _shorten.replace(layer, weights=_shorten.shortened(layer, kinds))
    assert all(
        certify(short, kind).is_proven and (kind == "none" or not certify(layer, kind).is_proven)
        for kind in kinds
    )


def test_one_pair_is_shortened_by_the_least_squares():
    for one, other in itertools.product([-128, -127, -66, -65, -64, -1, 0, 1, 63, 64, 65, 127], repeat=2):
        layer = QuantizedLayer(
            "n", "MatMul", "MatMul", False, "u8", "s8", np.array([[one], [other]], np.int8), (0, 255), ""
        )
        found = _shorten.squares(layer, _shorten.shortened(layer, ["depths"])).sum()
        least = min(
            i * i + j * j
            for i, j in itertools.product(range(66), repeat=2)
            if abs((one - np.sign(one) * i) + (other - np.sign(other) * j)) <= 128 or one * other <= 0
        )
        assert found == least == _shorten.change_of(np.int8(one), np.int8(other), 255)


def test_max_noise_is_respected():
    b = Builder()
    model = b.model([b.linear("x", 16, 12)])
    (weights,) = (layer.layer.weights for layer in intact.repair(model)[1].before.layers)
    excess = 2 * 95 - 128
    noise = 2 * (excess // 2) ** 2 / weights.size
    repaired, done = intact.repair(model, max_noise=noise)
    (layer,) = done.layers
    assert (
        (layer.how, layer.shortened, layer.left) == ("shortened weights", 2, 0)
        and layer.noise == noise
        and done.is_proven
    )
    (change,) = changes_of(model, repaired)
    assert np.square(change).sum() / change.size == noise
    # Equal to NumPy's product of the shortened weights.
    b.constants["c0"] = (weights + change).astype(np.int8)
    assert same(
        evaluate(repaired, data_of(1, 5, 16)), evaluate(b.model([b.nodes[-1].output[0]]), data_of(1, 5, 16))
    )
    (layer,) = intact.repair(model, max_noise=noise * 0.999)[1].layers
    assert (layer.how, layer.shortened) == ("u8 weights", 0)
    assert intact.repair(model)[1].layers[0].how == "u8 weights"


def test_the_order_of_the_least_change_is_chosen():
    b = Builder()
    w = np.full((32, 8), 20, np.int8)
    w[:17] = np.arange(71, 88)[:, None]
    w[20:, :4] = 127  # these are lighter elsewhere
    w[17:20] = 0
    model = b.model([b.linear(b.linear("x", 16, 32), 32, 8, b.constant(w))])
    first, layer = intact.repair(model, max_noise=2000)[1].layers
    assert (layer.how, layer.copied_channels, layer.left) == (
        "shortened weights",
        0,
        0,
    ) and layer.noise == layer.means.noise
    change = _shorten.change_of(w[:, None], w[None], 255).sum(-1)

    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph()
    graph.add_weighted_edges_from((i, j, -int(change[i, j])) for i in range(32) for j in range(i))
    found = networkx.max_weight_matching(graph, maxcardinality=True)
    assert layer.noise * w.size == sum(change[i, j] for i, j in found) < change[::2, 1::2].diagonal().sum()
    assert intact.repair(model, max_noise=layer.noise * 0.999)[1].layers[1].how != "shortened weights"


def test_no_caller_s_weights_are_shortened():
    b = Builder()
    model = b.model([b.linear("x", 16, 12)])
    model.graph.input.append(helper.make_tensor_value_info("c0", TensorProto.INT8, (16, 12)))
    (layer,) = intact.repair(model, max_noise=1000)[1].layers
    assert (
        layer.how == "left" and "weights that a caller may override" in layer.reason and not layer.shortened
    )


def test_shortened_weights_of_two_layers_are_two_constants():
    b = Builder()
    w = b.constant(weights_of(b.rng, 16, 16), "shared")
    y = b.node("Relu", [b.linear("x", 16, 16, w)])
    frozen = b.node("CumSum", [y, b.constant(np.int64(2))])
    other = b.node(
        "MatMulInteger", [b.node("DynamicQuantizeLinear", [frozen], 3)[0], w, b.constant(np.uint8(0))]
    )
    used = b.node(
        "Gather",
        [
            b.node("DequantizeLinear", [w, b.constant(np.float32(1)), b.constant(np.int8(0))]),
            b.constant(np.array([0])),
        ],
    )
    model = b.model([other, used], kinds={other: TensorProto.INT32})
    repaired, done = intact.repair(model, max_noise=10)
    assert hows(done) == ["shortened weights"] * 2 and done.is_proven
    # the Gather reads it
    assert np.array_equal(constants_of(repaired)["shared"], constants_of(model)["shared"])
    short = [
        constants_of(repaired)[node.input[1]]
        for node in repaired.graph.node
        if node.op_type == "MatMulInteger"
    ]
    assert (
        np.array_equal(*short) and len([name for name in constants_of(repaired) if "shortened" in name]) == 1
    )


def shortened_everywhere(model, data, engines, max_noise=1000.0):
    """No layer stays unsafe in any engine, and each layer's noise is the one computed from its weights."""
    repaired, done = intact.repair(model, engines=engines, keep_channels=True, max_noise=max_noise)
    assert done.is_proven, to_text(done)
    if not done.orders:
        for change, layer, old in zip(changes_of(model, repaired), done.layers, done.before.layers):
            assert np.square(change).sum() / old.layer.weights.size == pytest.approx(
                layer.noise if layer.shortened else 0
            )
            assert (
                np.count_nonzero(change) == layer.shortened
                and layer.noise * bool(layer.shortened) <= max_noise
            )
    return repaired, done


@pytest.mark.parametrize("groups", [1, 2])
def test_depthwise_convolutions_are_shortened_for_fbgemm(groups):
    model, data = convolutions(17, groups)
    for node in model.graph.node:
        node.attribute.append(helper.make_attribute("pads", [0] * 4))
    for tensor in model.graph.initializer:  # several taps
        if len(tensor.dims) == 4:
            values = np.random.default_rng(0).integers(-127, 128, (*tensor.dims[:2], 2, 2)).astype(np.int8)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    repaired, done = shortened_everywhere(model, data, ALL)
    assert done.layers[1].shortened and evaluate(repaired, data)[0].shape == evaluate(model, data)[0].shape


@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_layers_are_shortened(directions):
    model = recurrent(directions)
    repaired, done = intact.repair(model, max_noise=10)
    assert done.is_proven and "shortened weights" in hows(done) and "u8 weights" not in hows(done)
    before, after = (in_onnxruntime(m, data_of(7, 2, 12)) for m in (model, repaired))
    assert before[0].shape == after[0].shape


@pytest.fixture
def stored_order(monkeypatch):
    """No channel moves, so weights can be compared place by place."""

    def order_channels(matrices, highs, *, allow_zero_channels=False, **_):
        count = len(matrices[0])
        return _order.Order(np.arange(count), [], list(range(count)) if allow_zero_channels else [])

    for module in (candidates, places):
        monkeypatch.setattr(module, "order_channels", order_channels)


def with_stored_scales(model, repaired):
    """The repaired model with the stored scales and int16 weights of equal value; and the squared change of each product."""
    constants = [constants_of(m) for m in (model, repaired)]
    reference, noises, halved = onnx.ModelProto(), [], 0
    reference.CopyFrom(repaired)

    def put(node, i, array):
        name = f"put{len(reference.graph.initializer)}"
        reference.graph.initializer.append(
            numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        )
        node.input[i] = name

    makers = [
        {name: k for k, node in enumerate(m.graph.node) for name in node.output} for m in (model, repaired)
    ]
    assert len(model.graph.node) == len(repaired.graph.node)
    for k, node in enumerate(model.graph.node):
        if node.op_type == "QLinearConv":
            readers = [(k, 3, 4, 5), (k, 8, None, None)]
        elif node.op_type == "Conv" and node.input[1] in makers[0]:
            readers = [(makers[0][node.input[1]], 0, 1, 2), (makers[0][node.input[2]], 0, 1, None)]
        else:
            continue
        (at, w, scale, point), (bias_at, bias, bias_scale, _) = readers
        both = [
            [constants[m][x.graph.node[at].input[i]] for i in (w, scale, point)]
            for m, x in enumerate((model, repaired))
        ]
        factor = np.broadcast_to(both[1][1] / both[0][1], len(both[0][0]))
        assert set(factor.tolist()) <= {1.0, 2.0}
        wide = [w.astype(np.int16) - 128 * (w.dtype == np.uint8) for w, _, _ in both]
        wide[1] = wide[1] * factor.astype(np.int16).reshape(-1, *[1] * (wide[1].ndim - 1))
        put(reference.graph.node[at], w, wide[1])
        put(reference.graph.node[at], scale, both[0][1])
        put(reference.graph.node[at], point, np.zeros_like(both[0][2], np.int8))
        change = float(np.square(wide[1] - wide[0]).sum())
        if bias_at != at or len(node.input) > bias:
            before, after = (
                constants[m][x.graph.node[bias_at].input[bias]] for m, x in enumerate((model, repaired))
            )
            put(reference.graph.node[bias_at], bias, (after * factor).astype(np.int32))
            change += float(np.square(after * factor - before).sum())
            if bias_scale is not None:
                put(
                    reference.graph.node[bias_at],
                    bias_scale,
                    constants[0][model.graph.node[bias_at].input[bias_scale]],
                )
        noises.append(change / both[0][0].size)
        halved += int((factor == 2).sum())
    return reference, noises, halved


def test_outputs_of_7_bits_mean_the_same(stored_order):
    """Static graphs: NumPy computes one output from the repaired model, and from its weights in stored steps."""
    halved = shortened = 0
    for seed in range(5000, 5040, 2):
        model, data = random_graph(seed)
        max_noise = (0.1, 0.6, 50.0)[seed % 3]
        repaired, done = intact.repair(model, engines=ALL, max_noise=max_noise, keep_channels=True)
        assert not done.orders
        reference, noises, count = with_stored_scales(model, repaired)
        assert same(evaluate(reference, data), evaluate(repaired, data)), seed
        layers = [layer for layer in done.layers if layer.operator in ("QLinearConv", "Conv (QDQ)")]
        assert [layer.noise for layer in layers] == pytest.approx(noises) and max(
            noises, default=0
        ) <= max_noise
        assert sum(layer.halved for layer in layers) == count
        halved, shortened = halved + count, shortened + sum(layer.shortened for layer in layers)
    assert halved and shortened


@pytest.mark.parametrize("engines", [["onnxruntime"], ALL])
def test_random_graphs_with_shortened_weights(engines):
    """With much noise allowed, no layer stays unsafe in any engine, and the stock model runs like its exact variant."""
    is_used = set()
    for seed in range(6000, 6024):
        model, data = random_graph(seed)
        repaired, done = intact.repair(model, engines=engines, max_noise=(0.05, 1e5)[seed // 2 % 2])
        is_used |= set(hows(done))
        if seed // 2 % 2 or engines == ["onnxruntime"]:
            assert done.is_proven, (seed, to_text(done))
        assert all(layer.noise <= done.max_noise for layer in done.layers)
        if seed % 10 < 2 and seed // 2 % 2:
            shortened = exact_variant(done.after)
            assert same(in_onnxruntime(repaired, data), in_onnxruntime(shortened, data)), seed
    assert {"shortened weights", "folded order"} <= is_used
    assert "u8 weights" in is_used or engines == ALL


def test_a_shortened_model_clamps_nowhere_on_data(tmp_path):
    pytest.importorskip("onnxruntime")
    for seed in (7000, 7001):
        model, data = random_graph(seed)
        path, out = tmp_path / f"{seed}.onnx", tmp_path / f"{seed}_out.onnx"
        onnx.save(model, str(path))
        clamped = []
        done = repair_file(path, out, engines_asked=ALL, max_noise=1e5)
        for one in (path, out):
            for engine in ("onnxruntime", "fbgemm"):
                on_data = run_on_data(audit(one, engines_asked=[engine]), [data])
                clamped.append(sum(layer.changed for layer in on_data.layers.values() if layer is not None))
        assert done.is_proven and sum(clamped[:2]) and not sum(clamped[2:])


def test_the_check_of_shortened_weights(tmp_path):
    pytest.importorskip("onnxruntime")
    from intact._repair.check import check

    b = Builder()
    path, out = tmp_path / "m.onnx", tmp_path / "r.onnx"
    onnx.save(b.model([b.linear(b.linear("x", 16, 32), 32, 8)]), str(path))
    done = repair_file(path, out, max_noise=10)
    assert hows(done) == ["shortened weights", "folded order"]
    found = check(done)
    (output,) = found.outputs
    assert found.is_right and output.repaired_differ and not output.ordered_differ and not output.clamped
    assert (
        "with shortened weights" in found.lines()[0]
        and "; no values of the repaired model are wrong" in found.lines()[0]
    )
    # A wrong order shows.
    for tensor in done.ordered.graph.initializer:
        if tensor.data_type == TensorProto.UINT8 and tensor.dims[:] == [32, 8]:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[::-1].copy(), tensor.name))
    assert not check(done).is_right


@pytest.mark.parametrize(
    "arguments,words",
    [
        ({"max_noise": -1}, "--max-noise: is -1"),
        ({"max_noise": float("nan")}, "--max-noise: is nan"),
        ({"max_depth": -0.5}, "--max-depth: is -0.5"),
        ({"max_depth": float("inf")}, "--max-depth: is inf"),
    ],
)
def test_what_is_no_amount(arguments, words):
    b = Builder()
    with pytest.raises(Error, match=words):
        intact.repair(b.model([b.linear("x", 16, 8)]), **arguments)


def test_copied_channels_keep_to_the_budget():
    b = Builder()
    w = np.full((32, 8), 20, np.int8)
    w[:18] = 100
    hidden = b.node("Relu", [b.linear("x", 16, 32)])
    other = b.node("Relu", [b.linear("x", 16, 32)])
    y = [b.linear(hidden, 32, 8, b.constant(w)), b.linear(other, 32, 8, b.constant(w))]
    model = b.model(y)
    whole = 2 * (16 * 32 + 32 * 8)
    each = 100 * 4 * (16 + 8) / whole  # percent that four channels add
    for max_depth, count in ((each * 0.99, 0), (each, 1), (2 * each * 0.99, 1), (2 * each, 2)):
        _, done = intact.repair(model, engines=["fbgemm"], max_depth=max_depth)
        assert done.copied_channels == 4 * count and hows(done).count("folded order") == count
        assert done.depth == pytest.approx(count * each) and done.depth <= max_depth + 1e-9
    for layer in done.layers[2:]:
        assert (layer.means.copied_channels, layer.means.depth) == (
            4,
            pytest.approx(each),
        ) and layer.means.order_leaves == 2 * 8


# ----- copies that carry weights ---------------------------------------------------------------------------------------


def test_three_channels_of_which_no_two_are_safe_share_a_copy():
    rows = np.array([[85, -100, 127], [85, -100, 0], [85, -56, 2]], np.int8)
    source, copies = np.array([1, 0, 2, 0]), np.array([False, False, False, True])
    placed = places.spread(rows, source, copies)
    assert placed.tolist() == [[85, -100, 0], [43, -28, 127], [85, -56, 2], [42, -72, 0]]
    assert places._in_threes(rows.astype(np.int16)) and not places._in_threes(
        rows.astype(np.int16) + [2, 0, 0]
    )
    assert not places._in_threes(rows.astype(np.int16) - [0, 1, 0])
    for sums, fits in ((256, True), (257, False), (-256, True), (-257, False)):
        rows = np.array([[65], [64], [127]], np.int16) * np.sign(sums)
        rows[0] += sums - rows.sum()
        assert bool(places._in_threes(rows)) == fits


def test_four_channels_share_two_copies():
    rows = np.array([[100, -5], [92, -128], [100, 127], [92, 1]], np.int16)
    assert places._in_fours(rows) == [[0, 1, 2, 3]]
    rows[0, 0] += 1
    assert places._in_fours(rows) != [[0, 1, 2, 3]]  # the copies' sum would be 129


@pytest.mark.parametrize("seed", range(6))
def test_copies_keep_every_sum(seed):
    """Groups of random channels: weights add up to the stored ones, and no pair can saturate."""
    rng = np.random.default_rng(seed)
    channels, columns = int(rng.integers(1, 120)), int(rng.integers(1, 40))
    rows = np.clip(rng.normal(0, rng.integers(50, 90), (channels, columns)), -128, 127).astype(np.int8)
    consumers = [places.Consumer(0, rows, 255)]
    order = places.with_copies(consumers, [0], [rows.size])[0]
    source, copies, fillers = places.filled(order, 4)
    assert (
        len(source) % 4 == 0
        and sorted(source[~copies].tolist()) == list(range(channels))
        and copies[fillers].all()
    )
    placed = places.spread(rows, source, copies, fillers)
    assert (
        not placed[fillers].any()
        and not _order.clamping(np.arange(len(source)).reshape(-1, 2), placed, 255).any()
    )
    for placed in (placed, places.spread(rows, source, copies)):
        sums = np.zeros(rows.shape, np.int64)
        np.add.at(sums, source, placed)
        assert np.array_equal(sums, rows)


def three_heavy_channels(b):
    """A layer of three channels: no two are a safe pair, and their weights fit into four places."""
    hidden = b.node("Relu", [b.linear("x", 16, 3)])
    return b.linear(hidden, 3, 8, b.constant(np.tile(np.array([[85], [84], [86]], np.int8), 8)))


def test_a_copy_carries_a_part_of_the_weights(slow_u8_weights):
    b = Builder()
    model = b.model([three_heavy_channels(b)])
    repaired, done = intact.repair(model)
    assert done.layers[1].how == "folded order" and done.copied_channels == 1
    assert same(evaluate(model, data_of(1, 5, 16)), evaluate(repaired, data_of(1, 5, 16)))
    assert same(
        in_onnxruntime(exact_variant(done.before), data_of(1, 5, 16)),
        in_onnxruntime(repaired, data_of(1, 5, 16)),
    )


def test_a_copy_has_the_scale_of_its_channel(slow_u8_weights):
    """A second reader multiplies by the same weights, dequantized with a scale for each input channel."""
    b = Builder()
    hidden = b.node("Relu", [b.linear("x", 16, 3)])
    weights = b.constant(np.tile(np.array([[85], [84], [86]], np.int8), 8))
    scales = b.constant(np.array([0.01, 0.02, 0.03], np.float32))
    floats = b.node("MatMul", [hidden, b.node("DequantizeLinear", [weights, scales], axis=0)])
    model = b.model([b.linear(hidden, 3, 8, weights), floats])
    repaired, done = intact.repair(model, reorder_sums=True)
    assert done.copied_channels == 1
    stored, after = (in_onnxruntime(m, data_of(1, 5, 16)) for m in (exact_variant(done.before), repaired))
    assert same(stored[:1], after[:1])
    np.testing.assert_allclose(after[1], stored[1], rtol=1e-5)  # floats are added in another order


def test_noise_never_leaves_more_layers_unsafe(monkeypatch):
    """With noise, the plan spends the budget on a layer with more multiply-adds; without, on several layers with fewer."""
    plans = []

    class Planned:
        def __init__(self, result, axes, max_depth, max_noise, add_gathers):
            self.max_noise, self.unsafe, self.means = max_noise, [0, 1, 2] if max_noise else [3, 4], []
            plans.append(self)

    monkeypatch.setattr(_repair_plan, "Planner", Planned)
    assert (
        _repair_plan.plan_of(None, None, 12.0, 0.05, True) is plans[1]
        and plans[1].max_noise == 0
        and plans[1].means is plans[0].means
    )
    assert _repair_plan.plan_of(None, None, 12.0, 0.0, True) is plans[2] and len(plans) == 3


def test_sizes_that_a_convolution_model_leaves_open():
    """Strides count, whatever the size: the second convolution has a quarter of the first one's pixels."""
    b = Builder()
    scale, point, zero = (
        b.constant(np.float32(0.1)),
        b.constant(np.uint8(0)),
        b.constant(np.zeros(8, np.int8)),
    )
    steps, x = (
        b.constant(np.full(8, 0.1, np.float32)),
        b.node("QuantizeLinear", ["x", b.constant(np.float32(0.1)), point]),
    )
    for stride in (1, 2):
        w = b.constant(b.rng.integers(-30, 31, (8, 8, 1, 1)).astype(np.int8))
        x = b.node("QLinearConv", [x, scale, point, w, steps, zero, scale, point], strides=[stride] * 2)
    model = b.model([x], [("x", ("n", 8, "h", "w"))], kinds={x: TensorProto.UINT8})
    _, done = intact.repair(model)
    assert done.work.unit == "multiply-adds" and done.work.layers == [64 * 64 * 64, 64 * 32 * 32]


@pytest.mark.parametrize("a_type", [np.uint8, np.int8])
def test_convolutions_between_quantizers_add_integers_whatever_the_type_of_activations(a_type):
    """No sum of floats reads the channels, so their order is free."""
    b = Builder()
    scale, point, zero = b.constant(np.float32(2.0**-4)), b.constant(a_type(7)), b.constant(np.int8(0))
    x = b.node("QuantizeLinear", ["x", scale, point])
    for inputs, outputs in ((4, 16), (16, 8)):
        w = (
            weights_of(b.rng, inputs, outputs).T
            if inputs == 16
            else b.rng.integers(-30, 31, (outputs, inputs)).astype(np.int8)
        )
        w = b.constant(np.ascontiguousarray(w)[:, :, None, None])
        w = b.node("DequantizeLinear", [w, b.constant(np.float32(2.0**-7)), zero])
        x = b.node("Conv", [b.node("DequantizeLinear", [x, scale, point]), w])
        x = b.node("QuantizeLinear", [x, scale, point])
    model = b.model([b.node("DequantizeLinear", [x, scale, point])], [("x", (1, 4, 6, 6))])
    repaired, done = intact.repair(model)
    assert (
        done.layers[1].unsafe
        and hows(done) == ["stored order", "folded order"]
        and done.orders == 1
        and not done.sums
    )
    assert done.is_proven and done.price == 0
    data = data_of(1, 4, 6, 6)
    assert same(in_onnxruntime(repaired, data), in_onnxruntime(exact_variant(done.before), data))


# ----- a Gather in front -------------------------------------------------------------------------------------------------


def first_convolution(is_qdq, channels=3, bound=None, kernel=3, a_type=np.uint8):
    """A convolution of the graph's input, with heavy channels."""
    b = Builder()
    w = b.rng.choice([-120, 120], (8, channels, kernel, kernel)).astype(np.int8)
    scale, point, zero = (
        b.constant(np.float32(2.0**-4)),
        b.constant(a_type(7)),
        b.constant(np.zeros(8, np.int8)),
    )
    steps = b.constant((2.0 ** -b.rng.integers(6, 9, 8)).astype(np.float32))
    x = (
        "x"
        if bound is None
        else b.node("Clip", ["x", b.constant(np.float32(0)), b.constant(np.float32(bound))])
    )
    q = b.node("QuantizeLinear", [x, scale, point])
    options = {"pads": [kernel // 2] * 4, "kernel_shape": [kernel] * 2}
    if is_qdq:
        real = b.node("DequantizeLinear", [b.constant(w), steps, zero], axis=0)
        steps_of_bias = b.constant(np.float32(2.0**-4) * b.constants[steps])
        bias = b.node("DequantizeLinear", [b.constant(np.zeros(8, np.int32)), steps_of_bias], axis=0)
        y = b.node("Conv", [b.node("DequantizeLinear", [q, scale, point]), real, bias], **options)
        y = b.node("QuantizeLinear", [y, scale, point])
        if a_type is np.int8:  # an s8 output of the graph would stay s8, and the convolution would be float
            return b.model([b.node("DequantizeLinear", [y, scale, point])], [("x", (1, channels, 6, 6))])
    else:
        y = b.node("QLinearConv", [q, scale, point, b.constant(w), steps, zero, scale, point], **options)
    return b.model([y], [("x", (1, channels, 6, 6))], kinds={y: TensorProto.UINT8})


@pytest.mark.parametrize("is_qdq", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_a_gather_in_front_of_the_first_convolution(is_qdq, channels, slow_u8_weights):
    model, data = first_convolution(is_qdq, channels), data_of(1, channels, 6, 6)
    for engines in (["onnxruntime"], ALL):
        repaired, done = intact.repair(model, engines=engines, max_depth=700)
        (layer,) = done.layers
        assert (layer.how, layer.left, layer.is_gathered) == ("gathered order", 0, True) and done.is_proven
        assert (
            layer.copied_channels
            == done.copied_channels
            == (-channels % 4 if channels == 1 else -2 * channels % 4 + channels)
        )
        assert done.depth == pytest.approx(100 * layer.copied_channels / channels)
        assert "1 made safe by a Gather in front" in to_text(done)
        (gather,) = [node for node in repaired.graph.node if node.op_type == "Gather"]
        read = {name for node in repaired.graph.node for name in node.input} | {
            value.name for value in repaired.graph.output
        }
        assert read >= {name for node in repaired.graph.node for name in node.output}
        order = constants_of(repaired)[gather.input[1]]
        assert set(order.tolist()) == set(range(channels)) and len(order) == channels + layer.copied_channels
        assert same(evaluate(model, data), evaluate(repaired, data))
        assert same(in_onnxruntime(repaired, data), in_onnxruntime(exact_variant(done.before), data))
    # Where copied channels do not fit into the budget, ONNX Runtime gets u8 weights, and others nothing.
    kept = [
        intact.repair(model, engines=engines, max_depth=10)[1].layers[0]
        for engines in (["onnxruntime"], ["fbgemm"])
    ]
    assert [layer.how for layer in kept] == ["u8 weights", "left"] and kept[0].means.gather > 0


def test_no_gather_between_the_operators_that_ONNX_Runtime_moves_to_u8(slow_u8_weights):
    """ONNX Runtime computes a convolution of s8 activations in floats if a Gather is between QuantizeLinear and
    DequantizeLinear."""
    model, data = first_convolution(True, a_type=np.int8), data_of(1, 3, 6, 6)
    repaired, done = intact.repair(model, max_depth=700)
    (layer,) = done.layers
    assert (
        len(done.after.layers) == 1
        and done.is_proven
        and (layer.how, layer.is_gathered) == ("u8 weights", False)
    )
    assert not [node for node in repaired.graph.node if node.op_type == "Gather"]
    assert same(in_onnxruntime(repaired, data), in_onnxruntime(exact_variant(done.before), data))
    _, done = intact.repair(model, engines=["fbgemm"], max_depth=700)
    assert hows(done) == ["left"] and not done.is_proven


def test_a_repair_that_loses_a_layer_fails(monkeypatch, slow_u8_weights):
    """The Gather makes the layer float in ONNX Runtime, so the repaired model has no such layer."""
    for module in (editor, _repair_plan):
        monkeypatch.setattr(module, "gather_obstacle", lambda *_: "")
    with pytest.raises(Error, match="has the layer None where the stored model has"):
        intact.repair(first_convolution(True, a_type=np.int8), max_depth=700)


def test_a_layer_without_a_name_keeps_its_name_if_its_output_is_reordered():
    b = Builder()
    scale, point, zero = b.constant(np.float32(2.0**-4)), b.constant(np.uint8(7)), b.constant(np.int8(0))
    steps = b.constant(np.float32(2.0**-7))
    hidden, y = (
        b.node(
            "QLinearMatMul",
            [x, scale, point, b.constant(weights_of(b.rng, 16, 16)), steps, zero, scale, point],
        )
        for x in ("u", "QLinearMatMul0_0")
    )
    for node in b.nodes:
        node.ClearField("name")
    model = b.model([hidden, y], [], kinds=dict.fromkeys((hidden, y), TensorProto.UINT8))
    model.graph.input.append(helper.make_tensor_value_info("u", TensorProto.UINT8, (3, 16)))
    _, done = intact.repair(model)
    assert hidden in done.gathers and [layer.layer.name for layer in done.after.layers] == [hidden, y]


def test_gathers_and_copies_have_one_budget():
    b = Builder()
    scale, point, zero = (
        b.constant(np.float32(2.0**-4)),
        b.constant(np.uint8(7)),
        b.constant(np.zeros(8, np.int8)),
    )
    q, steps = b.node("QuantizeLinear", ["x", scale, point]), b.constant(np.full(8, 2.0**-7, np.float32))
    y = []
    for _ in range(2):  # each wants 5 channels more
        w = b.constant(b.rng.choice([-120, 120], (8, 3, 3, 3)).astype(np.int8))
        y.append(b.node("QLinearConv", [q, scale, point, w, steps, zero, scale, point], pads=[1] * 4))
    model = b.model(y, [("x", (1, 3, 6, 6))], kinds=dict.fromkeys(y, TensorProto.UINT8))
    for max_depth, expected in (
        (83, ["left"] * 2),
        (84, ["gathered order", "left"]),
        (167, ["gathered order"] * 2),
    ):
        _, done = intact.repair(model, engines=["fbgemm"], max_depth=max_depth)
        assert sorted(hows(done)) == expected and done.depth <= max_depth


def test_a_gather_costs_more_than_u8_weights_where_the_layer_is_small():
    (layer,) = intact.repair(first_convolution(True), engines=["onnxruntime"])[1].layers
    assert layer.how == "u8 weights" and layer.means.gather > layer.means.u8_weights


def test_a_gather_keeps_the_range_of_activations(slow_u8_weights):
    model = first_convolution(True, 3, bound=9.0)
    _, done = intact.repair(model, engines=["onnxruntime"], max_depth=700)
    before, after = (done.before.layers[0].layer, done.after.layers[0].layer)
    assert before.a_range == after.a_range != (0, 255) and done.layers[0].is_gathered and done.is_proven


def test_no_gather_where_the_channels_are_not_planes():
    b = Builder()
    _, done = intact.repair(b.model([b.linear("x", 16, 12)]), engines=["fbgemm"], max_depth=700)
    assert hows(done) == ["left"] and done.layers[0].means.gather is None


def test_pointwise_convolutions_of_an_odd_number_of_channels(slow_u8_weights):
    """One tap has no pairs across taps: the last channel is alone."""
    model = first_convolution(False, 5, kernel=1)
    for tensor in model.graph.initializer:
        if len(tensor.dims) == 4:
            w = np.full((8, 5, 1, 1), 20, np.int8)
            w[:, :2] = 120
            tensor.CopyFrom(numpy_helper.from_array(w, tensor.name))
    _, done = intact.repair(model, max_depth=100)
    (layer,) = done.layers
    assert layer.reason == "the graph's input 'x'" and layer.unsafe == 8 and layer.is_gathered


def begun(tmp_path, model, **options):
    """A repair before its first step."""
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    (tmp_path / "steps").mkdir()
    chosen = _repair.Options(engines_asked=["onnxruntime"], **options)
    return _repair._begun(
        path,
        tmp_path / "r.onnx",
        tmp_path / "steps",
        audit(path, engines_asked=["onnxruntime"]),
        chosen,
        Limits(),
        None,
    )


def test_each_step_alone(tmp_path, slow_u8_weights):
    state = begun(tmp_path, first_convolution(False), max_depth=700)
    steps.fold(state)
    state.reread()
    assert state.fails(0) and not state.done.orders  # the graph's input has no order of its own
    assert state.place(state.after.layers[0].layer.graph_node) == 1
    assert steps.gather_rest(state) and state.done.layers[0].is_gathered
    state.reread()
    assert not state.fails(0) and not steps.shorten_rest(state) and not steps.store_rest_as_u8(state)


def test_steps_change_only_what_is_unsafe(tmp_path):
    state = begun(tmp_path, first_convolution(False), max_noise=1e5, add_gathers=False)
    steps.fold(state)
    state.reread()
    assert not steps.gather_rest(state) and steps.shorten_rest(state) and state.done.layers[0].shortened
    state.reread()
    assert not state.fails(0) and not steps.store_rest_as_u8(state)
    steps.describe(state)
    assert state.done.layers[0].how == "shortened weights"


def test_u8_weights_are_the_last_step(tmp_path):
    state = begun(tmp_path, first_convolution(False), add_gathers=False)
    steps.fold(state)
    state.reread()
    assert not steps.shorten_rest(state) and steps.store_rest_as_u8(state)
    state.reread()
    assert not state.fails(0) and state.after.layers[0].layer.b_type == "u8"
