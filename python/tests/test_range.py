"""`intact repair --undo-reduce-range`: a model quantized to 7 bits becomes the one that the same floats give with 8 bits."""

import json
import os

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
import intact  # noqa: E402
from commands import program  # noqa: E402
from graph_builder import GraphBuilder  # noqa: E402
from intact._audit.audit import audit, slices  # noqa: E402
from intact._graph.scope import Scope  # noqa: E402
from intact._library import Error  # noqa: E402
from intact._repair import cost  # noqa: E402
from intact._repair.range import Limits, undo_reduce_range  # noqa: E402
from intact._repair.repair import repair_file  # noqa: E402
from intact._repair.report import to_json, to_text  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

pytest.importorskip("cffi")
MICROSOFT = "com.microsoft"
needs_orders = pytest.mark.skipif(
    not os.path.exists(os.path.join(os.path.dirname(intact.__file__), "channel_order.so")),
    reason="this build has no channel_order.so",
)


class Builder(GraphBuilder):
    """A quantized model and its float model. `most`: 64 for weights of 7 bits, 127 for 8; `steps`: of activations, which are
    divided by `parts`."""

    def __init__(self, most=64, steps=255, parts=1, seed=0):
        super().__init__(seed)
        self.most, self.steps, self.parts, self.floats, self.float_nodes = most, steps, parts, {}, []

    def float_weights(self, name, *shape):
        self.floats[name] = self.rng.laplace(size=shape).astype(np.float32)
        return self.floats[name]

    def weights(self, name, values, axis=None, kept=None):
        """s8 weights and their scale, as ONNX Runtime's tool makes them. `axis`: of scales; `kept`: some axes of them."""
        kept = kept or (() if axis is None else (axis % values.ndim,))
        others = tuple(d for d in range(values.ndim) if d not in kept)
        scale = (np.abs(values).max(axis=others, keepdims=True).astype(np.float64) / self.most).astype(
            np.float32
        )
        whole = np.rint(values / scale).astype(np.int8)
        scale = scale.reshape([scale.shape[d] for d in kept])
        return (
            self.constant(whole, f"{name}_quantized"),
            self.constant(scale, f"{name}_scale"),
            self.constant(np.zeros(scale.shape, np.int8), f"{name}_zero_point"),
        )

    def bias(self, name, values, a_scale, w_scale):
        """An int32 bias and its unit."""
        unit = a_scale.astype(np.float64) * self.constants[w_scale]
        return (
            self.constant(np.rint(values / unit).astype(np.int32), f"{name}_quantized"),
            self.constant(unit.astype(np.float32), f"{name}_quantized_scale"),
        )

    def activations(self, name, low, high):
        """A scale and a zero point for real numbers of a range."""
        scale = np.float32((high - low) / self.steps)
        point = np.uint8(self.parts * round(-low * self.steps / (high - low)))
        return self.constant(scale / np.float32(self.parts), f"{name}_scale"), self.constant(
            point, f"{name}_zero_point"
        )

    def pair(self, x, name, low, high, between=None):
        """QuantizeLinear and DequantizeLinear."""
        scale, point = self.activations(name, low, high)
        q = self.node("QuantizeLinear", [x, scale, point])
        if between:
            q = between(q)
        return self.node("DequantizeLinear", [q, scale, point])

    def qdq_weights(self, name, values, axis):
        stored, scale, point = self.weights(name, values, axis)
        options = {} if axis is None else {"axis": axis}
        return self.node("DequantizeLinear", [stored, scale, point], **options), scale

    def qdq_bias(self, name, values, a_scale, w_scale):
        stored, unit = self.bias(name, values, a_scale, w_scale)
        return self.node("DequantizeLinear", [stored, unit], axis=0)

    def model(self, outputs=("y",), shape=(2, 16), kind=TensorProto.FLOAT, kinds=None):
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", kind, shape)],
            [
                helper.make_tensor_value_info(name, (kinds or {}).get(name, TensorProto.FLOAT), None)
                for name in outputs
            ],
            [
                numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
                for name, value in self.constants.items()
            ],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, ir_version=8, opset_imports=opsets)

    def float_model(self):
        """What the search for float weights reads: constants, and the operators that read them."""
        nodes = self.float_nodes or [helper.make_node("Identity", ["x"], ["y"])]
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
            [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
            [numpy_helper.from_array(value, name) for name, value in self.floats.items()],
        )
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])

    def end(self, name):
        """Calls the last node's first output `name`."""
        old = self.nodes[-1].output[0]
        self.nodes[-1].output[0] = name
        return old


# ----- one operator each -------------------------------------------------------------------------------------------------


def qdq_conv(b, axis=0, bias=True):
    w, bias_values = b.float_weights("w", 8, 4, 3, 3), b.rng.normal(size=8).astype(np.float32) * 3
    a = b.pair("x", "x", -2, 3)
    w_output, w_scale = b.qdq_weights("w", w, axis)
    inputs = [a, w_output]
    if bias:
        b.floats["bias"] = bias_values
        scale = np.broadcast_to(b.constants[w_scale], 8)
        b.constants["wide"] = scale
        inputs.append(b.qdq_bias("bias", bias_values, b.constants["x_scale"], "wide"))
        del b.constants["wide"]
    b.float_nodes = [helper.make_node("Conv", ["x", "w", "bias"], ["y"])]
    y = b.node("Conv", inputs, pads=[1, 1, 1, 1])
    b.pair(y, "y", -40, 40)
    b.end("y")
    return dict(shape=(1, 4, 6, 6))


def qdq_conv_per_tensor(b):
    return qdq_conv(b, None)


def qdq_gemm(b):
    w = b.float_weights("w", 8, 16)
    b.floats["bias"] = b.rng.normal(size=8).astype(np.float32)
    a = b.pair("x", "x", -3, 3)
    w_output, w_scale = b.qdq_weights("w", w, 0)
    b.node(
        "Gemm", [a, w_output, b.qdq_bias("bias", b.floats["bias"], b.constants["x_scale"], w_scale)], transB=1
    )
    b.end("gemm")
    b.pair("gemm", "y", -20, 20)
    b.end("y")
    return {}


def qdq_matmul_behind_a_transpose(b):
    w_output, _ = b.qdq_weights("w", b.float_weights("w", 8, 16), 0)
    y = b.node("MatMul", [b.pair("x", "x", -3, 3), b.node("Transpose", [w_output], perm=[1, 0])])
    b.pair(y, "y", -20, 20)
    b.end("y")
    return {}


def qlinear_conv(b):
    w = b.float_weights("w", 8, 4, 3, 3)
    b.floats["bias"] = b.rng.normal(size=8).astype(np.float32)
    x, y = b.activations("x", -2, 3), b.activations("y", -40, 40)
    stored, scale, point = b.weights("w", w, 0)
    bias, unit = b.bias("bias", b.floats["bias"], b.constants["x_scale"], scale)
    del b.constants[unit]
    q = b.node("QuantizeLinear", ["x", *x])
    q = b.node("QLinearConv", [q, *x, stored, scale, point, *y, bias], pads=[1, 1, 1, 1])
    b.node("DequantizeLinear", [q, *y])
    b.end("y")
    return dict(shape=(1, 4, 6, 6))


def qlinear_matmul(b, axis=-1):
    x, y = b.activations("x", -3, 3), b.activations("y", -20, 20)
    weights = b.weights("w", b.float_weights("w", 16, 8), axis)
    q = b.node("QLinearMatMul", [b.node("QuantizeLinear", ["x", *x]), *x, *weights, *y])
    b.node("DequantizeLinear", [q, *y])
    b.end("y")
    return {}


def qgemm(b):
    b.floats["bias"] = b.rng.normal(size=8).astype(np.float32)
    x, y = b.activations("x", -3, 3), b.activations("y", -20, 20)
    stored, scale, point = b.weights("w", b.float_weights("w", 8, 16), 0)
    bias, unit = b.bias("bias", b.floats["bias"], b.constants["x_scale"], scale)
    del b.constants[unit]
    q = b.node(
        "QGemm",
        [b.node("QuantizeLinear", ["x", *x]), *x, stored, scale, point, bias, *y],
        domain=MICROSOFT,
        transB=1,
    )
    b.node("DequantizeLinear", [q, *y])
    b.end("y")
    return {}


def integer_product(b, x, weights, op="MatMulInteger", scale_shape=None, **options):
    stored, scale, point = weights
    q, a_scale, a_point = b.node("DynamicQuantizeLinear", [x], 3)
    if scale_shape:
        b.constants[scale] = b.constants[scale].reshape(scale_shape)
    both = b.node("Mul", [a_scale, scale])
    if op == "ConvInteger":  # ONNX Runtime refuses a zero point for each channel
        b.constants[point] = np.int8(0)
    whole = b.node(op, [q, stored, a_point, point], **options)
    return b.node("Mul", [b.node("Cast", [whole], to=1), both])


def matmul_integer(b, axis=-1):
    integer_product(b, "x", b.weights("w", b.float_weights("w", 16, 8), axis))
    b.end("y")
    return {}


def matmul_integer_per_tensor(b):
    return matmul_integer(b, None)


def matmul_integer_scaled_twice(b):
    stored, scale, point = b.weights("w", b.float_weights("w", 16, 8), -1)
    q, a_scale, a_point = b.node("DynamicQuantizeLinear", ["x"], 3)
    whole = b.node("Cast", [b.node("MatMulInteger", [q, stored, a_point, point])], to=1)
    y = b.node("Mul", [a_scale, whole])
    b.node("Mul", [b.node("Mul", [y, b.constant(np.float32(0.5))]), scale])
    b.end("y")
    return {}


def conv_integer(b):
    integer_product(
        b,
        "x",
        b.weights("w", b.float_weights("w", 8, 4, 3, 3), 0),
        "ConvInteger",
        (1, 8, 1, 1),
        pads=[1, 1, 1, 1],
    )
    b.end("y")
    return dict(shape=(1, 4, 6, 6))


def shared_weights(b):
    weights = b.weights("w", b.float_weights("w", 16, 16), -1)
    integer_product(b, integer_product(b, "x", weights), weights)
    b.end("y")
    return {}


def lstm(b, columns=True):
    kept = (0, 2) if columns else (0,)
    parts = []
    for name, depth in (("w", 16), ("r", 12)):
        stored = b.float_weights(name, 2, 48, depth)  # the float model stores it transposed
        parts.append(b.weights(name, stored.transpose(0, 2, 1), kept=kept))
    (w, w_scale, w_point), (r, r_scale, r_point) = parts
    b.node(
        "DynamicQuantizeLSTM",
        ["x", w, r, "", "", "", "", "", w_scale, w_point, r_scale, r_point],
        3,
        MICROSOFT,
        hidden_size=12,
        direction="bidirectional",
    )
    b.end("y")
    return dict(shape=(5, 1, 16))


def lstm_per_direction(b):
    return lstm(b, False)


def dynamic_quantize_matmul(b):
    b.node("DynamicQuantizeMatMul", ["x", *b.weights("w", b.float_weights("w", 16, 8), -1)], domain=MICROSOFT)
    b.end("y")
    return {}


def matmul_integer_to_float(b):
    q, a_scale, a_point = b.node("DynamicQuantizeLinear", ["x"], 3)
    stored, scale, point = b.weights("w", b.float_weights("w", 16, 8), -1)
    b.node("MatMulIntegerToFloat", [q, stored, a_scale, scale, a_point, point], domain=MICROSOFT)
    b.end("y")
    return {}


KINDS = [
    qdq_conv,
    qdq_conv_per_tensor,
    qdq_gemm,
    qdq_matmul_behind_a_transpose,
    qlinear_conv,
    qlinear_matmul,
    qgemm,
    matmul_integer,
    matmul_integer_per_tensor,
    matmul_integer_scaled_twice,
    conv_integer,
    shared_weights,
    lstm,
    lstm_per_direction,
    dynamic_quantize_matmul,
    matmul_integer_to_float,
]


@pytest.fixture
def undone(tmp_path):
    """Undoes a builder's reduced range: the new model, and what was done."""

    def undo(b, model, runs=None, limits=None, engines=("onnxruntime",)):
        (tmp_path / "q.onnx").write_bytes(model.SerializeToString())
        (tmp_path / "f.onnx").write_bytes(b.float_model().SerializeToString())
        return undo_reduce_range(
            audit(tmp_path / "q.onnx", engines_asked=engines), tmp_path / "f.onnx", runs, limits
        )

    return undo


def assert_same_constants(a, b):
    """Two models have the same operators; constants agree, and those of integers are equal."""
    a_scope, b_scope = (Scope(model.graph, "") for model in (a, b))
    assert [node.op_type for node in a.graph.node] == [node.op_type for node in b.graph.node]
    for mine, other in zip(a.graph.node, b.graph.node):
        assert len(mine.input) == len(other.input)
        for x, y in zip(mine.input, other.input):
            x, y = a_scope.constant(x), b_scope.constant(y)
            assert (x is None) == (y is None), mine
            if x is not None:
                assert x.dtype == y.dtype and x.shape == y.shape, mine
                assert np.array_equal(x, y) if x.dtype.kind in "iu" else np.allclose(x, y, 3e-7, 0), mine


def in_onnxruntime(model, data):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, data)


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_the_model_of_8_bits(kind, undone):
    b, whole = Builder(64), Builder(127)
    stored, expected = b.model(**kind(b)), whole.model(**kind(whole))
    model, done = undone(b, stored)
    assert done.layers and all(
        not layer.reason and 4 < layer.after - layer.before < 8 for layer in done.layers
    ), done.layers
    assert_same_constants(model, expected)
    assert {tensor.name for tensor in model.graph.initializer} == {
        name for node in model.graph.node for name in node.input
    } & {tensor.name for tensor in model.graph.initializer}
    shape = [dim.dim_value for dim in stored.graph.input[0].type.tensor_type.shape.dim]
    data = {"x": np.random.default_rng(1).normal(size=shape).astype(np.float32)}
    for got, wanted, before in zip(*(in_onnxruntime(one, data) for one in (model, expected, stored))):
        assert np.allclose(got, wanted, 1e-5, 1e-6) and not np.allclose(before, wanted, 1e-5, 1e-6)


def test_shared_weights_stay_shared(undone):
    b = Builder()
    model, done = undone(b, b.model(**shared_weights(b)))
    assert len(done.layers) == 2
    # and a zero point
    assert len([tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.INT8]) == 2


def test_weights_that_another_operator_reads_stay_for_it(undone):
    b = Builder()
    options = matmul_integer(b)
    b.node("Cast", ["w_quantized"], to=1)
    b.end("other")
    model, done = undone(b, b.model(["y", "other"], **options))
    assert done.layers[0].reason == ""
    scope = Scope(model.graph, "")
    assert np.array_equal(scope.constant(scope.producer("other").input[0]), b.constants["w_quantized"])


def test_weights_with_a_zero_point(undone):
    b, whole = Builder(64), Builder(127)
    options = qlinear_matmul(b)
    qlinear_matmul(whole)
    b.constants["w_quantized"] = (b.constants["w_quantized"] // 2 + 5).astype(np.int8)
    b.constants["w_scale"] = b.constants["w_scale"] * 2
    b.constants["w_zero_point"] = np.full(8, 5, np.int8)
    model, done = undone(b, b.model(**options))
    assert done.layers[0].reason == ""
    assert_same_constants(model, whole.model(**options))


def test_a_column_of_zeros_keeps_its_scale(undone):
    b, made = Builder(), Builder.float_weights

    def weights(name, *shape):
        made(b, name, *shape)[:, 3] = 0
        return b.floats[name]

    b.float_weights = weights
    with np.errstate(invalid="ignore"):
        options = matmul_integer(b)
    b.constants["w_scale"][3] = 0.25
    model, done = undone(b, b.model(**options))
    scale = next(
        numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name == "w_scale_8_bits"
    )
    assert done.layers[0].reason == "" and scale[3] == 0.25 and (scale[:3] < 0.25).all()


def test_a_bias_that_the_tool_corrected_is_kept(undone):
    b = Builder()
    options = qlinear_conv(b)
    b.constants["bias_quantized"] = b.constants["bias_quantized"] + 50  # as bias correction leaves it
    unit = b.constants["x_scale"] * b.constants["w_scale"]
    model, _ = undone(b, b.model(**options))
    new = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    real = new["bias_quantized_8_bits"] * (b.constants["x_scale"] * new["w_scale_8_bits"])
    assert np.allclose(real, b.constants["bias_quantized"] * unit, atol=unit.max())
    assert not np.allclose(real, b.floats["bias"], atol=unit.min())


def test_a_column_whose_bias_would_leave_int32_keeps_7_bits(undone):
    b = Builder()
    options = qlinear_conv(b)
    b.constants["bias_quantized"][2] = 2**31 - 2**24
    model, done = undone(b, b.model(**options))
    new = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert done.layers[0].reason == "" and new["bias_quantized_8_bits"][2] == 2**31 - 2**24
    assert np.array_equal(new["w_quantized_8_bits"][2], b.constants["w_quantized"][2])
    assert np.abs(new["w_quantized_8_bits"]).max() == 127
    ratio = new["w_scale_8_bits"] / b.constants["w_scale"]
    assert ratio[2] == 1 and np.allclose(np.delete(ratio, 2), 64 / 127)


# ----- layers that no order makes safe -----------------------------------------------------------------------------------


def pair_sums(layer):
    """The largest sum of two adjacent depths of one sign, for each column of a layer's one matrix."""
    found = []
    for matrix in slices(layer, "depths"):
        a, b = (part.astype(int) for part in (matrix[0 : len(matrix) // 2 * 2 : 2], matrix[1::2]))
        found.append(np.where(a * b > 0, np.abs(a + b), 0).max(axis=0))
    return np.concatenate(found)


@pytest.mark.parametrize(
    "kind",
    [
        qdq_conv,
        qdq_conv_per_tensor,
        qdq_gemm,
        qdq_matmul_behind_a_transpose,
        qlinear_conv,
        qgemm,
        matmul_integer,
        matmul_integer_per_tensor,
        shared_weights,
        lstm,
        lstm_per_direction,
    ],
)
def test_bounded_layers_are_safe_as_stored(kind, undone, tmp_path):
    b = Builder()
    stored = b.model(**kind(b))
    whole, _ = undone(b, stored)
    assert audit(tmp_path / "q.onnx", proto=whole).is_unsafe
    count = len(audit(tmp_path / "q.onnx").layers)
    model, done = undone(b, stored, limits=Limits({i: "why" for i in range(count)}))
    after = audit(tmp_path / "q.onnx", proto=model)
    assert after.is_proven and not any(layer.reason for layer in done.layers)
    assert all(
        layer.bounded == "why" and layer.before + 0.5 <= layer.after < layer.before + 7
        for layer in done.layers
    )
    for audited in after.layers:  # no larger steps than needed, except for rounding
        sums = pair_sums(audited.layer)
        largest = (
            np.abs(audited.layer.weights.astype(int))
            .reshape(len(audited.layer.weights), -1)
            .max(axis=1 if audited.layer.is_convolution else 0)
        )
        if audited.layer.weights.shape[-1] < 40 and "per_" not in kind.__name__:
            assert (largest <= 127).all() and ((largest == 127) | (sums >= 120)).all()


def test_pairs_of_all_engines_bound_a_layer(undone, tmp_path):
    b = Builder()
    b.floats["w"] = w = b.rng.laplace(size=(8, 3, 3, 3)).astype(np.float32)
    w[0, :2, 0, 1] = 20  # depths 3 and 4: a pair within the tap, and none of ONNX Runtime
    b.float_weights = lambda name, *shape: w
    options = {**qlinear_conv(b), "shape": (1, 3, 6, 6)}
    limits = Limits({0: "why"})
    model, _ = undone(b, b.model(**options), None, limits)
    assert audit(tmp_path / "q.onnx", proto=model).is_proven
    assert audit(tmp_path / "q.onnx", engines_asked=["all"], proto=model).is_unsafe
    model, _ = undone(b, b.model(**options), None, limits, ["all"])
    assert audit(tmp_path / "q.onnx", engines_asked=["all"], proto=model).is_proven


def test_a_bound_that_leaves_7_bits(undone):
    b = Builder()
    options = matmul_integer(b)
    for column in range(8):
        for constants, value in (
            (b.constants["w_quantized"], 64),
            (b.floats["w"], b.constants["w_scale"][column] * 64),
        ):
            constants[2:4, column] = value
    stored = b.model(**options)
    model, done = undone(b, stored, limits=Limits({0: "no order"}))
    assert done.layers[0].reason == "8 bits would need u8 weights (no order)"
    assert model.SerializeToString() == stored.SerializeToString()


def test_limits_tighten():
    limits = Limits()
    limits.tighten(3, "first")
    limits.tighten(3, "again")
    assert limits.bounded == {3: "first"} and limits.left == {3: "again"}


def test_a_layer_that_a_limit_leaves(undone):
    b = Builder()
    stored = b.model(**matmul_integer(b))
    model, done = undone(b, stored, limits=Limits({0: "first"}, {0: "again"}))
    assert done.layers[0].reason == "8 bits would need u8 weights (again)"
    assert model.SerializeToString() == stored.SerializeToString()


# ----- layers that keep 7 bits -------------------------------------------------------------------------------------------


def reason_of(undone, b, options, outputs=("y",), kinds=None):
    stored = b.model(outputs, kinds=kinds, **options)
    model, done = undone(b, stored)
    assert all(layer.reason for layer in done.layers)
    assert model.SerializeToString() == stored.SerializeToString()
    return done.layers[0].reason


def test_a_scale_that_an_output_reads(undone):
    b = Builder()
    options = matmul_integer(b)
    product = next(node.output[0] for node in b.nodes if node.op_type == "Mul")
    assert reason_of(undone, b, options, ["y", product]) == f"its scale '{product}' has other readers"


def test_a_scale_that_is_an_output(undone):
    b = Builder()
    reason = reason_of(undone, b, matmul_integer(b), ["y", "w_scale"])
    assert reason == "w_scale is an output, or an inner graph or a caller reads it"


def test_a_scale_that_two_products_share(undone):
    b = Builder()
    options = matmul_integer(b)
    product = next(node.output[0] for node in b.nodes if node.op_type == "Mul")
    b.node("Relu", [product])
    b.end("other")
    assert reason_of(undone, b, options, ["y", "other"]) == f"its scale '{product}' has other readers"


def test_integer_sums_that_an_output_reads(undone):
    b = Builder()
    options = matmul_integer(b)
    whole = next(node.output[0] for node in b.nodes if node.op_type == "MatMulInteger")
    assert reason_of(undone, b, options, ["y", whole], {whole: TensorProto.INT32}) == (
        f"its sums '{whole}' have other readers than a Mul by its scale"
    )


def test_a_product_that_is_not_scaled(undone):
    b = Builder()
    stored, _, point = b.weights("w", b.float_weights("w", 16, 8), -1)
    q, _, a_point = b.node("DynamicQuantizeLinear", ["x"], 3)
    b.node("Neg", [b.node("Cast", [b.node("MatMulInteger", [q, stored, a_point, point])], to=1)])
    b.end("y")
    del b.constants["w_scale"]
    assert reason_of(undone, b, {}) == "its scale is not found"


def test_a_float_model_of_other_weights(undone):
    b = Builder()
    options = qlinear_conv(b)
    b.floats["w"] = b.floats["w"][::-1].copy()
    assert reason_of(undone, b, options) == "no constant of the float model is near its weights"


def test_small_weights_are_not_halved(undone):
    b = Builder()
    options = matmul_integer(b)
    scale = b.constants["w_scale"]
    b.floats["w"] = b.constants["w_quantized"] * (scale * (1 + b.rng.normal(size=(16, 8)) / 1000)).astype(
        np.float32
    )
    assert (
        reason_of(undone, b, options)
        == "its weights are small, not halved: 8 bits are no nearer to the float weights"
    )


def test_one_direction_of_8_bits(undone):
    b = Builder()
    options = lstm_per_direction(b)
    for name, depth in (("w", 16), ("r", 12)):
        b.constants[f"{name}_quantized"][1] = np.clip(
            b.constants[f"{name}_quantized"][1].astype(int) * 2, -127, 127
        )
        b.constants[f"{name}_scale"][1] /= 2
    assert reason_of(undone, b, options) == "the weights of its other direction have 8 bits"


def test_a_bias_that_two_layers_read(undone):
    b = Builder()
    options = qdq_gemm(b)
    bias = next(node.input[2] for node in b.nodes if node.op_type == "Gemm")
    b.node("Relu", [bias])
    b.end("other")
    assert reason_of(undone, b, options, ["y", "other"]) == f"its bias '{bias}' has other readers"


def test_a_bias_of_another_scale(undone):
    b = Builder()
    options = qdq_gemm(b)
    b.constants["bias_quantized_scale"] = b.constants["bias_quantized_scale"] * np.float32(1.5)
    assert reason_of(undone, b, options) == "its bias has another scale than its products"


def test_a_model_of_8_bits_stays_as_it_is(undone):
    b = Builder(127)
    stored = b.model(**qdq_conv(b))
    model, done = undone(
        b,
        stored,
        [{"x": np.random.default_rng(0).normal(size=(1, 4, 6, 6)).astype(np.float32) * 4}]
        if has_onnxruntime()
        else None,
    )
    assert (
        not done.layers and not done.activations and model.SerializeToString() == stored.SerializeToString()
    )


# ----- activations -------------------------------------------------------------------------------------------------------


def has_onnxruntime():
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return False
    return True


def two_layers(b, between=None, ranges=((-3, 3), (-60, 60), (-90, 90))):
    """Two QDQ layers with biases, and a MaxPool whose input and output share a scale."""
    a = b.pair("x", "x", *ranges[0], between)
    for i, (inputs, outputs) in enumerate(((4, 8), (8, 6))):
        w, bias = (
            b.float_weights(f"w{i}", outputs, inputs, 3, 3),
            b.rng.normal(size=outputs).astype(np.float32),
        )
        b.floats[f"bias{i}"] = bias
        w_output, w_scale = b.qdq_weights(f"w{i}", w / (1 + 4 * i), 0)
        b.floats[f"w{i}"] = w / np.float32(1 + 4 * i)
        a_scale = b.constants["x_scale" if i == 0 else "t0_scale"]
        a = b.node("Conv", [a, w_output, b.qdq_bias(f"bias{i}", bias, a_scale, w_scale)], pads=[1, 1, 1, 1])
        a = b.pair(a, f"t{i}", *ranges[1 + i], between)
        if i == 0:
            a = b.node("MaxPool", [a], kernel_shape=[2, 2], strides=[2, 2])
            scale, point = "t0_scale", "t0_zero_point"
            q = b.node("QuantizeLinear", [a, scale, point])
            a = b.node("DequantizeLinear", [between(q) if between else q, scale, point])
    b.node("Relu", [a])
    b.end("y")
    return dict(shape=(1, 4, 8, 8))


def filling(factor=1.0):
    """Inputs from −3 to 3 times a factor."""
    x = np.random.default_rng(3).uniform(-3, 3, (1, 4, 8, 8)).astype(np.float32) * np.float32(factor)
    x.reshape(-1)[:2] = -3 * factor, 3 * factor
    return [{"x": x}]


def test_activations_of_7_bits_get_8(undone):
    pytest.importorskip("onnxruntime")
    b, whole = Builder(64, 127), Builder(127, 127, 2)
    options = two_layers(b)
    model, done = undone(b, b.model(**options), filling())
    assert [tensor.reason for tensor in done.activations] == [""] * 4 and not any(
        layer.reason for layer in done.layers
    )
    # −3 is 63.5 steps of 127, the zero point 64
    assert [tensor.largest for tensor in done.activations][0] == 128
    assert_same_constants(model, whole.model(**two_layers(whole)))


def test_activations_need_data(undone):
    b = Builder(127, 127)
    stored = b.model(**two_layers(b))
    model, done = undone(b, stored)
    assert not done.activations and model.SerializeToString() == stored.SerializeToString()


def test_a_clip_to_127_needs_no_data_and_goes(undone):
    b = Builder(127, 127)

    def clip(q):
        return b.node("Clip", [q, "", b.constant(np.uint8(127))])

    model, done = undone(b, b.model(**two_layers(b, clip)))
    assert [(tensor.largest, tensor.reason) for tensor in done.activations] == [(None, "")] * 4
    scope = Scope(model.graph, "")
    assert [scope.constant(node.input[2]) for node in model.graph.node if node.op_type == "Clip"] == [255] * 4
    assert [int(scope.point(node)) for node in model.graph.node if node.op_type == "QuantizeLinear"] == [
        128
    ] * 4


def test_a_tensor_that_exceeds_127_is_left_and_with_it_its_equals(undone):
    pytest.importorskip("onnxruntime")
    b = Builder(127, 127)
    stored = b.model(**two_layers(b, ranges=((-4, 4), (-20, 20), (-90, 90))))
    model, done = undone(b, stored, filling())
    reasons = {tensor.name: tensor.reason for tensor in done.activations}
    assert not done.activations, reasons  # half of the tensors exceed 127: 8 bits
    b = Builder(127, 127)
    options = two_layers(b, ranges=((-4, 4), (-60, 60), (-14, 14)))
    model, done = undone(b, b.model(**options), filling())
    assert [bool(tensor.reason) for tensor in done.activations] == [False, False, False, True]
    assert done.activations[3].reason.startswith("exceeds 7 bits on the data: ")


def test_small_activations_are_left(undone):
    pytest.importorskip("onnxruntime")
    b = Builder(127, 127)
    stored = b.model(**two_layers(b, ranges=((-3, 30), (-60, 60), (-90, 90))))
    model, done = undone(b, stored, filling())
    assert done.activations[0].reason.startswith(
        "may have 8 bits, and small values: the largest on the data is "
    )
    assert not done.activations[1].reason


def test_equal_scales_are_kept_equal(undone):
    pytest.importorskip("onnxruntime")
    b = Builder(127, 127)
    options = two_layers(b)
    reader = next(node for node in b.nodes if node.op_type == "MaxPool")
    q = next(node for node in b.nodes if reader.output[0] in node.input).output[0]
    b.node("Cast", [q], to=1)
    b.end("other")
    model, done = undone(b, b.model(["y", "other"], **options), filling())
    reasons = [tensor.reason for tensor in done.activations]
    assert reasons[2] == "Cast reads its quantized values" and reasons[1].startswith(
        "its scale is also that of "
    ), reasons
    assert reasons[0] == reasons[3] == ""


def test_activations_whose_bias_cannot_follow_are_left(undone):
    pytest.importorskip("onnxruntime")
    b = Builder(64, 127)
    options = two_layers(b)
    bias = next(node.input[2] for node in b.nodes if node.op_type == "Conv")
    b.node("Relu", [bias])
    b.end("other")
    _, done = undone(b, b.model(["y", "other"], **options), filling())
    assert [bool(tensor.reason) for tensor in done.activations] == [True, False, False, False]
    assert [bool(layer.reason) for layer in done.layers] == [True, False]


# ----- the command -------------------------------------------------------------------------------------------------------


def unsafe_float_weights(b, name, *shape, heavy):
    b.floats[name] = (b.rng.uniform(-0.23, 0.23, shape)).astype(np.float32)
    b.floats[name][:heavy, 0] = 0.75  # 95 and 95 in 8 bits: the first depths saturate together
    b.floats[name][:, 3] = -np.abs(b.floats[name][:, 3])
    b.floats[name][5, 3] = 1
    return b.floats[name]


def files_of(tmp_path, b, model):
    (tmp_path / "q.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "f.onnx").write_bytes(b.float_model().SerializeToString())
    return tmp_path / "q.onnx", tmp_path / "r.onnx", tmp_path / "f.onnx"


def chain(b, heavy=2):
    """A first layer without heavy weights, and a second one whose pair an order separates."""
    w0 = b.float_weights("w0", 16, 16)
    w0[:] = np.sign(w0) * 0.5 + w0 * 0.01
    w0[np.arange(16), np.arange(16)] *= 1.8
    hidden = integer_product(b, "x", b.weights("w0", w0, -1))
    integer_product(b, hidden, b.weights("w1", unsafe_float_weights(b, "w1", 16, 8, heavy=heavy), None))
    b.end("y")
    b.float_nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("MatMul", ["h", "w1"], ["y"]),
    ]
    return {}


@needs_orders
def test_the_repair_makes_8_bits_safe(tmp_path):
    b = Builder()
    path, out, source = files_of(tmp_path, b, b.model(**chain(b)))
    done = repair_file(path, out, float_model=source, allow_u8_weights=True)
    assert audit(path).is_proven and done.is_proven
    assert not any(layer.reason for layer in done.widened.layers)
    assert [row.how for row in done.layers] == ["u8 weights", "folded order"]
    # the first layer reads the model's input: no order makes it safe
    bounded = repair_file(path, out, float_model=source)
    assert [row.how for row in bounded.layers] == ["stored order", "folded order"] and bounded.is_proven
    first, second = bounded.widened.layers
    assert (
        first.bounded == "the graph's input 'x'" and not second.bounded and not first.reason + second.reason
    )
    text = to_text(bounded)
    assert "q.onnx: 2 of 2 layers have 7-bit weights; 1 got the full range of 8 bits from " in text
    assert "f.onnx, 1 only the range that is safe in the stored order\n" in text
    assert "w0; not the full range: the graph's input 'x'\n" in text
    found = json.loads(json.dumps(to_json(bounded)))["undo_reduce_range"]
    assert [layer["bounded"] == "" for layer in found["layers"]] == [False, True]
    assert (
        found["layers"][1]["constant"] == "w1"
        and found["layers"][1]["after"] > found["layers"][1]["before"] + 4
    )


@needs_orders
def test_copied_channels_need_leave_to_cost_time(tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "_U8_OUTPUT", 10**9)
    b = Builder()
    options = chain(b, heavy=9)
    path, out, source = files_of(tmp_path, b, b.model(**options))
    done = repair_file(path, out, float_model=source, allow_u8_weights=True, max_depth=100)
    assert done.copied_channels and not done.widened.layers[1].bounded
    done = repair_file(path, out, float_model=source, max_depth=100)
    assert (
        not done.copied_channels
        and done.widened.layers[1].bounded
        and not done.widened.layers[1].reason
        and done.is_proven
    )


@needs_orders
def test_the_check_compares_with_the_float_model(tmp_path):
    pytest.importorskip("onnxruntime")
    from intact._repair.check import check

    b = Builder()
    model, done = intact.repair(
        b.model(**chain(b)), undo_reduce_range=files_of(tmp_path, b, b.model(**chain(Builder())))[2]
    )
    assert done.is_proven
    path, out, source = files_of(tmp_path, b, b.model(**{}))
    done = repair_file(path, out, float_model=source, allow_u8_weights=True)
    data = [{"x": np.random.default_rng(5).normal(size=(2, 16)).astype(np.float32)}]
    found = check(done, data)
    output = found.outputs[0]
    assert found.is_right and output.repaired_to_float > output.stored_to_float + 2 > 20
    line = found.lines()[0]
    assert "against exact sums with 8 bits: repaired equal bit for bit" in line
    assert (
        f"against the float model: stored {output.stored_to_float:.1f} dB, repaired {output.repaired_to_float:.1f} dB"
        in line
    )


@needs_orders
def test_the_check_of_a_float_model_that_does_not_run(tmp_path):
    pytest.importorskip("onnxruntime")
    from intact._repair.check import check

    b = Builder()
    path, out, source = files_of(tmp_path, b, b.model(**chain(b)))
    done = repair_file(path, out, float_model=source)
    proto = onnx.load(str(source))
    proto.graph.node.add(op_type="Reshape", input=["x", "no_shape"], output=["other"])
    proto.graph.initializer.append(numpy_helper.from_array(np.array([3, 5]), "no_shape"))
    proto.graph.output.add(name="other").type.tensor_type.elem_type = 1
    onnx.save(proto, str(source))
    with pytest.raises(Error, match="--check: the float model does not run: "):
        check(done, [{"x": np.ones((2, 16), np.float32)}])


@needs_orders
def test_the_command(tmp_path):
    b = Builder()
    path, out, source = files_of(tmp_path, b, b.model(**chain(b)))
    ran = program("repair", path, "-o", out, "--undo-reduce-range", source, "--json", tmp_path / "r.json")
    assert ran.returncode == 0 and "1 got the full range of 8 bits" in ran.stdout, ran.stderr
    assert json.loads((tmp_path / "r.json").read_text())["undo_reduce_range"]["float_model"] == str(source)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--undo-reduce-range", "missing.onnx"], "missing.onnx: No such file"),
        (["--allow-u8-weights"], "--allow-u8-weights: needs --undo-reduce-range"),
        (["--data", "x.npz"], "--data: needs --check or --undo-reduce-range"),
        (["--emulate"], "--emulate: needs --check"),
    ],
)
def test_refused_arguments(tmp_path, arguments, words):
    b = Builder()
    path, out, _ = files_of(tmp_path, b, b.model(**matmul_integer(b)))
    ran = program("repair", path, "-o", out, *arguments)
    assert (
        ran.returncode == 2 and words in ran.stderr and not out.exists() and len(ran.stderr.splitlines()) == 1
    )


def test_a_float_model_that_is_none(tmp_path):
    b = Builder()
    path, out, source = files_of(tmp_path, b, b.model(**matmul_integer(b)))
    source.write_bytes(b"\xff\xfe")
    with pytest.raises(Error, match="is no ONNX model"):
        repair_file(path, out, float_model=source)
