"""`intact repair` on small models made here."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import intact  # noqa: E402
from intact import _repair  # noqa: E402
from intact._library import Error  # noqa: E402
from intact._onnx import Scope  # noqa: E402
from intact._repair import repair_file  # noqa: E402
from intact._repair_report import to_json, to_text  # noqa: E402
import random_graphs  # noqa: E402
from random_graphs import evaluate, random_graph  # noqa: E402

pytest.importorskip("cffi")
if not os.path.exists(os.path.join(os.path.dirname(intact.__file__), "channel_order.so")):
    pytest.skip("this build has no channel_order.so", allow_module_level=True)


def in_onnxruntime(model, data):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, data)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b))


@pytest.fixture
def zero_channels(monkeypatch):
    """Zero channels wherever they are possible, and many heavy channels."""
    monkeypatch.setattr(_repair, "_U8_COSTS", 1000)
    monkeypatch.setattr(random_graphs, "HEAVY", 2 / 3)


def keeps_its_outputs(seeds, run):
    """How many zero channels and orders the repaired random models have."""
    added = orders = 0
    for seed in seeds:
        model, data = random_graph(seed)
        if run is in_onnxruntime and seed % 4 < 2:
            model = onnx.shape_inference.infer_shapes(model)  # states the shapes of tensors in between
        repaired, done = intact.repair(model)
        assert done.is_proven, seed
        added, orders = added + done.zero_channels, orders + done.orders
        a, b = run(model, data), run(repaired, data)
        if done.sums:
            assert all(np.allclose(x, y, 1e-2, 1e-2 * np.abs(x).max()) for x, y in zip(a, b)), seed
        else:
            assert same(a, b), seed
    return added, orders


@pytest.mark.parametrize("first", range(0, 120, 10))
def test_random_graphs_keep_their_outputs(first):
    assert keeps_its_outputs(range(first, first + 10), evaluate)[1]


def test_random_graphs_with_zero_channels_keep_their_outputs(zero_channels):
    assert keeps_its_outputs(range(2000, 2060), evaluate)[0]


@pytest.mark.skipif(not {"avx_vnni", "avx512_vnni"} & set(intact.isas()), reason="the stored model would clamp here")
def test_random_graphs_in_onnxruntime():
    assert keeps_its_outputs(range(1000, 1040), in_onnxruntime)[1]


@pytest.mark.skipif(not {"avx_vnni", "avx512_vnni"} & set(intact.isas()), reason="the stored model would clamp here")
def test_random_graphs_with_zero_channels_in_onnxruntime(zero_channels):
    assert keeps_its_outputs(range(3000, 3080), in_onnxruntime)[0]


# ----- models by hand ----------------------------------------------------------------------------------------------------


def weights_of(rng, k, *columns):
    """int8 (k, *columns): only the first two rows saturate together."""
    w = rng.integers(-30, 31, (k, *columns)).astype(np.int8)
    w[:2, 0] = 95
    return w


class Builder:
    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.constants = [], {}

    def constant(self, value, name=None):
        name = name or f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def node(self, op, inputs, outputs=1, domain="", **attributes):
        names = [f"{op}{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"n{len(self.nodes)}", domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def linear(self, x, k, n, w=None):
        q, scale, point = self.node("DynamicQuantizeLinear", [x], 3)
        w = w or self.constant(weights_of(self.rng, k, n))
        y = self.node("MatMulInteger", [q, w, point])
        return self.node("Mul", [self.node("Cast", [y], to=1), scale])

    def model(self, outputs, inputs=(("x", (1, 5, 16)),), opset=17, kinds=None):
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
            [helper.make_tensor_value_info(name, (kinds or {}).get(name, TensorProto.FLOAT), None) for name in outputs],
            [numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
             for name, value in self.constants.items()])
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
    assert done.orders == 4 and done.gathers == [stream] and set(hows(done)) == {"folded order"} and not done.sums
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
    assert (layer.how, layer.reason) == ("u8 weights", "the graph's input 'x'") and layer.unsafe > 0 == layer.left
    assert not done.orders and same(evaluate(model, data_of(1, 5, 16)), evaluate(repaired, data_of(1, 5, 16)))
    left = intact.repair(model, engines=["fbgemm"])[1]
    assert hows(left) == ["left"] and not left.is_proven


@pytest.mark.parametrize("heavy", [2, 9])
def test_the_zero_point_of_pytorchs_biases_lets_channels_move(heavy, zero_channels):
    b = Builder()
    point = b.node("Cast", [b.node("ConstantOfShape", [b.constant(np.array([16]))])], to=6)

    def layer(x, k, n, zero):
        scale, zero_point = b.constant(np.float32(0.25)), b.constant(np.uint8(128))
        a = b.node("DequantizeLinear", [b.node("QuantizeLinear", [x, scale, zero_point]), scale, zero_point])
        w = weights_of(b.rng, k, n)
        w[:heavy, 0] = 95
        w = b.node("DequantizeLinear", [b.constant(w.T), b.constant(np.full(n, 0.125, np.float32))], axis=0)
        inputs = [b.constant(b.rng.integers(-99, 99, n).astype(np.int32)), b.constant(np.full(n, 0.25 * 0.125, np.float32))]
        y = b.node("Gemm", [a, w, b.node("DequantizeLinear", inputs + [zero] * bool(zero), axis=0)], transB=1)
        return b.node("QuantizeLinear", [y, scale, zero_point])

    first = b.node("DequantizeLinear", [layer("x", 16, 16, point), b.constant(np.float32(0.25)), b.constant(np.uint8(128))])
    y = b.node("DequantizeLinear", [layer(first, 16, 8, ""), b.constant(np.float32(0.25)), b.constant(np.uint8(128))])
    model = b.model([y], [("x", (5, 16))])
    repaired, done = intact.repair(model)
    assert hows(done) == ["u8 weights", "folded order" if heavy == 2 else "u8 weights"]
    assert not done.zero_channels  # the zero point states how many channels there are
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
    model.graph.input.append(helper.make_tensor_value_info("c0", TensorProto.INT8, (16, 32)))  # the first layer's weights
    assert intact.repair(model)[1].layers[0].reason == "weights that a caller may override"


def test_what_an_inner_graph_reads_keeps_its_order():
    b = Builder()
    hidden = b.linear("x", 16, 32)
    branches = [helper.make_graph([helper.make_node("Identity", [hidden], [f"in{k}"])], f"g{k}", [],
                                  [helper.make_tensor_value_info(f"in{k}", TensorProto.FLOAT, None)]) for k in (0, 1)]
    condition = b.constant(np.array(True))
    b.nodes.append(helper.make_node("If", [condition], ["chosen"], then_branch=branches[0], else_branch=branches[1]))
    model = b.model([b.linear(hidden, 32, 8), "chosen"])
    repaired, done = intact.repair(model)
    assert not done.orders and done.layers[1].reason == "an inner graph that reads it" and done.is_proven
    assert same(in_onnxruntime(model, data_of(1, 5, 16)), in_onnxruntime(repaired, data_of(1, 5, 16)))


def test_layers_of_an_inner_graph_are_left():
    inner = Builder()
    y = inner.linear("x", 16, 8)
    branches = [helper.make_graph(inner.nodes, f"g{k}", [], [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
                                  [numpy_helper.from_array(v, n) for n, v in inner.constants.items()]) for k in (0, 1)]
    b = Builder()
    condition = b.constant(np.array(True))
    b.nodes.append(helper.make_node("If", [condition], ["chosen"], then_branch=branches[0], else_branch=branches[1]))
    _, done = intact.repair(b.model(["chosen"]))
    assert hows(done) == ["left", "left"] and done.layers[0].reason == "an inner graph" and not done.is_proven


@pytest.mark.parametrize("op,reason", [
    ("Gather", "Gather from it"), ("Softmax", "Softmax over it"), ("MatMul", "MatMul of two activations"),
    ("ArgMax", "the operator ArgMax"), ("CumSum", "the operator CumSum"), ("Slice", "Slice of it"),
    ("Reshape", "Reshape that mixes axes"), ("run", "the operator run")])
def test_what_depends_on_the_order_keeps_it(op, reason):
    b = Builder()
    hidden = b.linear("x", 16, 32)
    inputs = {"Gather": [b.constant(np.array([3, 1]))], "MatMul": [b.node("Transpose", [hidden], perm=[0, 2, 1])],
              "CumSum": [b.constant(np.int64(2))], "Slice": [b.constant(np.array([n])) for n in (0, 32, 2, 3)],
              "Reshape": [b.constant(np.array([1, 32, 5]))]}.get(op, [])
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
    first = next(node for node in model.graph.node if node.op_type == "DynamicQuantizeLinear" and node.input[0] == "x")
    first.input[0] = hidden
    with pytest.raises(intact.Error):
        intact.repair(model)


def test_files_before_version_4_state_their_constants_as_inputs():
    b = Builder()
    model = b.model([b.linear(b.linear("x", 16, 32), 32, 8)])
    model.ir_version = 3
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
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
    v = next(node.input[1] for node in model.graph.node if node.op_type == "MatMulInteger" and node.name == "n18")
    stored, new = (constants_of(m)[v] for m in (model, repaired))
    for head in (slice(0, 16), slice(16, 32)):  # the rows too have a new order
        old_columns, new_columns = (sorted(sorted(column) for column in w[:, head].T.tolist()) for w in (stored, new))
        assert old_columns == new_columns
    assert (np.sort(new, axis=0) != np.sort(stored, axis=0)).any()
    assert same(evaluate(model, data_of(1, 5, 16)), evaluate(repaired, data_of(1, 5, 16)))


def test_bit_exact_leaves_what_floats_are_summed_over():
    b = Builder()
    hidden = b.linear("x", 16, 32)
    gain, bias = b.constant(np.arange(32, dtype=np.float32)), b.constant(np.zeros(32, np.float32))
    normed = b.node("LayerNormalization", [hidden, gain, bias])
    model = b.model([b.linear(normed, 32, 8)])
    assert intact.repair(model)[1].sums == ["LayerNormalization in float"]
    repaired, done = intact.repair(model, bit_exact=True)
    assert not done.orders and "--bit-exact" in done.layers[1].reason and done.is_proven


def convolutions(opset, groups=1):
    b = Builder()
    scale, point, zero = b.constant(np.float32(2.0 ** -4)), b.constant(np.uint8(7)), b.constant(np.int8(0))

    def layer(x, c, o, groups):
        w = np.concatenate([weights_of(b.rng, c // groups, o // groups, 1, 1).swapaxes(0, 1) for _ in range(groups)])
        w, w_scale = b.constant(w), b.constant(np.float32(2.0 ** -7))
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


def test_zero_channels_beside_heavy_ones(zero_channels):
    b = Builder()
    w = np.full((32, 8), 20, np.int8)
    w[:18] = 100  # four pairs too many
    hidden = b.node("Add", [b.linear("x", 16, 32), b.constant(np.arange(32, dtype=np.float32))])
    model = b.model([hidden, b.linear(hidden, 32, 8, b.constant(w))])
    repaired, done = intact.repair(model)
    assert hows(done) == ["u8 weights", "folded order"]
    assert done.layers[1].zero_channels == done.zero_channels == 8  # eight by eight
    assert same(evaluate(model, data_of(1, 5, 16)), evaluate(repaired, data_of(1, 5, 16)))
    kept = intact.repair(model, keep_channels=True)[1]
    assert hows(kept) == ["u8 weights"] * 2 and not kept.zero_channels
    # Zeros are no zeros where the weights' zero point is 3.
    product = next(node for node in model.graph.node if node.op_type == "MatMulInteger" and node.input[1] == "c2")
    product.input.append("three")
    model.graph.initializer.append(numpy_helper.from_array(np.array(3, np.int8), "three"))
    assert not intact.repair(model)[1].zero_channels
    # Where the number of channels shows, it stays.
    b.nodes.append(helper.make_node("Shape", [hidden], ["sizes"]))
    shown = b.model([b.nodes[-2].output[0], "sizes"], kinds={"sizes": TensorProto.INT64})
    assert not intact.repair(shown)[1].zero_channels


@pytest.mark.parametrize("op", ["LayerNormalization", "ReduceMean", "DynamicQuantizeLSTM", "Split"])
def test_no_zero_channels_where_they_would_count(op, zero_channels, monkeypatch):
    def many_heavy(rng, k, *columns):
        return np.where(np.arange(k) < 0.6 * k, 100, 20).reshape(k, *[1] * len(columns)) * np.ones((k, *columns), np.int8)

    monkeypatch.setitem(globals(), "weights_of", lambda *sizes: many_heavy(*sizes).astype(np.int8))
    b = Builder()
    hidden = b.linear("x", 16, 32)
    if op == "LayerNormalization":
        hidden = b.node(op, [hidden, b.constant(np.ones(32, np.float32)), b.constant(np.zeros(32, np.float32))])
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
    assert not done.zero_channels and done.is_proven
    data = data_of(1, 5, 16)
    assert all(np.allclose(*pair, 1e-3, 1e-2) for pair in zip(in_onnxruntime(model, data), in_onnxruntime(repaired, data)))


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
            state = b.node("ConstantOfShape", [b.constant(np.array([directions, 2, hidden]))],
                           value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.0]))
        bias = b.constant(b.rng.standard_normal((directions, 8 * hidden)).astype(np.float32))
        inputs = [x, b.constant(w), b.constant(r), bias, "", state, state, "",
                  b.constant(np.full(directions, 0.01, np.float32)), b.constant(np.zeros(directions, np.int8)),
                  b.constant(np.full((directions, 4 * hidden), 0.01, np.float32)),
                  b.constant(np.zeros((directions, 4 * hidden), np.int8))]
        y, state = b.node("DynamicQuantizeLSTM", inputs, 2, "com.microsoft", hidden_size=hidden,
                   direction="bidirectional" if directions == 2 else "forward")
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


def run(*arguments):
    command = "import sys; from intact._program import main; sys.argv[0] = 'intact'; main()"
    return subprocess.run([sys.executable, "-c", command, "repair", *map(str, arguments)], capture_output=True, text=True)


def test_the_command(tmp_path):
    b = Builder()
    onnx.save(b.model([b.linear(b.linear("x", 16, 32), 32, 8)]), str(tmp_path / "m.onnx"))
    out, report = tmp_path / "r.onnx", tmp_path / "r.json"
    done = run(tmp_path / "m.onnx", "-o", out, "--json", report)
    assert done.returncode == 0 and "proven safe in ONNX Runtime" in done.stdout.splitlines()[-1], done.stderr
    found = json.loads(report.read_text())
    assert found["schema"] == "intact-repair"
    assert [layer["made_safe_by"] for layer in found["layers"]] == ["u8 weights", "folded order"]
    assert run(tmp_path / "m.onnx", "-o", out, "--for", "onednn").returncode == 1  # u8 weights help only ONNX Runtime
    assert run(tmp_path / "m.onnx", "-o", out, "--for", "nobody").returncode == 2
    assert run(tmp_path / "m.onnx", "-o", out, "--data", "x.npz").returncode == 2


def test_nothing_is_written_for_bad_input(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    out = tmp_path / "r.onnx"
    out.write_text("before")
    assert run(tmp_path / "bad.onnx", "-o", out).returncode == 2
    assert run(tmp_path / "none.onnx", "-o", out).returncode == 2
    b = Builder()
    onnx.save(b.model([b.linear("x", 16, 8)]), str(tmp_path / "m.onnx"))
    assert run(tmp_path / "m.onnx", "-o", tmp_path / "no" / "r.onnx").returncode == 2
    assert out.read_text() == "before" and sorted(os.listdir(tmp_path)) == ["bad.onnx", "m.onnx", "r.onnx"]


def test_the_stored_model_is_not_overwritten(tmp_path):
    b = Builder()
    path, link, out = tmp_path / "m.onnx", tmp_path / "link.onnx", tmp_path / "r.onnx"
    onnx.save(b.model([b.linear(b.linear("x", 16, 32), 32, 8)]), str(path))
    link.symlink_to(path)
    stored = path.read_bytes()
    for written in (path, link):
        with pytest.raises(Error, match="is a file of the model"):
            repair_file(path, written)
    assert path.read_bytes() == stored
    repair_file(path, out)
    again = repair_file(out, tmp_path / "again.onnx")
    assert set(hows(again)) == {"stored order"} and to_json(again)["orders"] == 0


@pytest.mark.skipif(not {"avx_vnni", "avx512_vnni"} & set(intact.isas()), reason="the stored model would clamp here")
@pytest.mark.parametrize("kind", ["slice", "split", "shape"])
def test_zero_channels_do_not_move_cuts(kind, monkeypatch):
    monkeypatch.setattr(_repair, "_U8_COSTS", 1000)
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
    _, done = intact.repair(b.model([b.linear(y, 32, 8)]))
    assert done.sums == ["InstanceNormalization in float"]


def test_the_check_sees_a_wrong_repair(tmp_path):
    pytest.importorskip("onnxruntime")
    from intact._repair_check import check

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
