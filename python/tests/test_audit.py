"""`intact audit` on small models made here."""

import gc
import importlib.metadata
import importlib.util
import json
import math

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from commands import process, program  # noqa: E402
from intact._audit.audit import audit, certify  # noqa: E402
from intact._audit.page import SCRIPT  # noqa: E402
from intact._audit.report import to_html, to_json, to_text, verdict  # noqa: E402
from intact._audit.run import Sums  # noqa: E402
from intact._engines.table import engines, pairs_of  # noqa: E402
from intact._formats.model import QuantizedLayer  # noqa: E402
from intact._formats.onnx import read_onnx  # noqa: E402
from intact._graph.fusion import Fusions, rules  # noqa: E402
from intact._graph.nodes import every_node  # noqa: E402
from intact._library import is_x86  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

HOT = np.zeros((4, 3), np.int8)
HOT[0:2, 1] = 127  # one pair of adjacent depths that can saturate


def save(tmp_path, nodes, constants, inputs, outputs=("y",), opset=17):
    """A model file; inputs are names and element types."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, None) for name, kind in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    # older versions of ONNX Runtime load it
    model = helper.make_model(graph, ir_version=8 if opset < 21 else 10, opset_imports=opsets)
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path))
    return path


def one(tmp_path, op, inputs, constants, domain="", kind=TensorProto.UINT8, **attributes):
    node = helper.make_node(op, inputs, ["y"], name="n", domain=domain, **attributes)
    return save(tmp_path, [node], constants, [("a", kind)])


@pytest.mark.parametrize(
    "op,inputs,domain",
    [
        ("MatMulInteger", ["a", "w"], ""),
        ("QLinearMatMul", ["a", "s", "z", "w", "s", "p", "s", "z"], ""),
        ("QGemm", ["a", "s", "z", "w", "s", "p", "", "s", "z"], "com.microsoft"),
        ("MatMulIntegerToFloat", ["a", "w", "s", "s", "z", "p"], "com.microsoft"),
        ("DynamicQuantizeMatMul", ["a", "w", "s", "p"], "com.microsoft"),
        ("QAttention", ["a", "w", "b", "s", "s", "", "z", "p"], "com.microsoft"),
    ],
)
def test_products(tmp_path, op, inputs, domain):
    constants = {
        "w": HOT,
        "s": np.float32(0.5),
        "z": np.uint8(3),
        "p": np.int8(0),
        "b": np.zeros(3, np.float32),
    }
    kind = TensorProto.FLOAT if op == "DynamicQuantizeMatMul" else TensorProto.UINT8
    result = audit(one(tmp_path, op, inputs, constants, domain, kind))
    (layer,) = result.layers
    assert (layer.layer.a_type, layer.layer.b_type, layer.layer.weights.shape) == ("u8", "s8", (4, 3))
    found = layer.engines["onnxruntime"]
    assert (found.pairing, found.pairs, found.failing_pairs, found.failing_columns) == ("depths", 6, 1, 1)
    assert found.witness == "column 1, depths 0 1: 255*127 + 255*127 = 64770"
    assert found.error == math.ceil((64770 - 32767) * (0.5 if op in ("QLinearMatMul", "QGemm") else 1))
    assert not result.is_proven and "1 of 1 layer can compute wrong sums in ONNX Runtime" in verdict(result)


def test_transposed_gemm_and_batches_of_weights(tmp_path):
    constants = {"w": np.ascontiguousarray(HOT.T), "s": np.float32(1), "z": np.uint8(0), "p": np.int8(0)}
    path = one(tmp_path, "QGemm", ["a", "s", "z", "w", "s", "p"], constants, "com.microsoft", transB=1)
    assert audit(path).layers[0].engines["onnxruntime"].failing_pairs == 1
    path = one(tmp_path, "MatMulInteger", ["a", "w"], {"w": np.stack([HOT, HOT])})
    layer = audit(path).layers[0]
    assert layer.layer.weights.shape == (4, 6) and layer.engines["onnxruntime"].failing_pairs == 2


def test_a_recurrent_layer_is_two(tmp_path):
    constants = {"w": np.stack([HOT, 0 * HOT]), "r": np.stack([0 * HOT, HOT])}
    path = one(
        tmp_path, "DynamicQuantizeLSTM", ["a", "w", "r"], constants, "com.microsoft", TensorProto.FLOAT
    )
    layers = {layer.layer.name: layer.engines["onnxruntime"].failing_pairs for layer in audit(path).layers}
    assert layers == {
        "n input weights, direction 0": 1,
        "n input weights, direction 1": 0,
        "n recurrent weights, direction 0": 0,
        "n recurrent weights, direction 1": 1,
    }


def convolution(tmp_path, weights, op="QLinearConv", kind=TensorProto.UINT8, **attributes):
    constants = {
        "w": weights,
        "s": np.float32(1),
        "z": np.uint8(0) if kind == TensorProto.UINT8 else np.int8(0),
        "p": np.int8(0),
    }
    inputs = ["a", "s", "z", "w", "s", "p", "s", "z"] if op == "QLinearConv" else ["a", "w", "z"]
    return one(tmp_path, op, inputs, constants, kind=kind, **attributes)


def test_each_engine_has_its_pairs(tmp_path):
    weights = np.full(
        (2, 1, 1, 2), 127, np.int8
    )  # one channel: pairs are taps, with oneDNN and OpenVINO with AVX-512
    result = audit(convolution(tmp_path, weights), engines_asked=list(engines()))
    found = {name: c.failing_pairs for name, c in result.layers[0].engines.items()}
    assert found == {"onnxruntime": 2, "fbgemm": 2, "onednn": 2, "openvino": 2, "litert": 0}
    weights = np.zeros((2, 3, 1, 2), np.int8)  # three channels: (2 of tap 0, 0 of tap 1) is a flattened pair
    weights[0, 2, 0, 0] = weights[0, 0, 0, 1] = 127
    result = audit(convolution(tmp_path, weights), engines_asked=list(engines()))
    found = {name: c.failing_pairs for name, c in result.layers[0].engines.items()}
    assert found == {"onnxruntime": 1, "fbgemm": 1, "onednn": 0, "openvino": 0, "litert": 0}


def test_depthwise_and_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    weights = np.full((4, 1, 1, 2), 127, np.int8)
    result = audit(
        convolution(tmp_path, weights, group=4), engines_asked=["onnxruntime", "fbgemm", "onednn", "openvino"]
    )
    assert [c.failing_pairs for c in result.layers[0].engines.values()] == [0, 4, 0, 0]
    assert result.affecting == ["fbgemm"]
    assert "and is affected" in verdict(result) or verdict(result).endswith(
        "some layers can be wrong here too in FBGEMM"
    )
    assert audit(convolution(tmp_path, weights, group=4), engines_asked=["onnxruntime"]).affecting == []
    # multiplier 2
    result = audit(
        convolution(tmp_path, weights, group=2), engines_asked=["onnxruntime", "openvino", "onednn"]
    )
    assert [c.pairing for c in result.layers[0].engines.values()] == ["flattened", "flattened", "kernel_row"]
    assert result.layers[0].engines["onnxruntime"].failing_pairs == 4
    hot = np.zeros((4, 2, 1, 1), np.int8)
    hot[3] = 127
    (layer,) = audit(convolution(tmp_path, hot, group=2)).layers
    assert layer.engines["onnxruntime"].witness.startswith("output channel 3, ")


@pytest.mark.parametrize(
    "inputs,outputs,onednn,openvino",
    [
        (4, 8, "within_tap", "flattened"),
        (6, 4, "none", "flattened"),
        (4, 6, "none", "flattened"),
        (3, 4, "none", "flattened"),
    ],
)
def test_pairs_of_groups(tmp_path, inputs, outputs, onednn, openvino):
    weights = np.zeros((2 * outputs, inputs, 3, 3), np.int8)
    (layer,) = audit(convolution(tmp_path, weights, group=2), engines_asked=["onednn", "openvino"]).layers
    assert [c.pairing for c in layer.engines.values()] == [onednn, openvino]


def test_of_two_widths_the_worse_certificate_counts(tmp_path):
    """One pair of a kernel row can saturate, and two pairs of the kernel's columns."""
    weights = np.zeros((2, 1, 3, 3), np.int8)
    weights[0, 0, :, 0] = weights[0, 0, 0, 1] = 127
    (layer,) = audit(convolution(tmp_path, weights), engines_asked=["onednn"]).layers
    found = layer.engines["onednn"]
    assert (found.pairing, found.failing_pairs, found.only_with_avx512) == ("kernel_column", 2, True)


@pytest.mark.parametrize("group,cell", [(1, "unsafe: 1 of"), (2, "unsafe with AVX-512: 1 of 8 pairs")])
def test_pairs_of_groups_with_avx512(tmp_path, group, cell, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    weights = np.zeros((2, 3, 1, 2), np.int8)
    weights[0, 0:2, 0, 1] = 127  # channels 0 and 1 of the second tap: no flattened pair
    names = ["onednn", "openvino"]
    result = audit(convolution(tmp_path, weights, group=group), engines_asked=[*names, "onnxruntime"])
    (layer,) = result.layers
    assert layer.fails(names) and not layer.fails(["onnxruntime"]) and not result.is_proven
    assert to_text(result).count(cell) == 2 and to_html(result).count("with AVX-512") == (
        2 if group == 2 else 0
    )
    found = to_json(result)["layers"][0]["engines"]
    assert [found[name]["only_with_avx512"] for name in found] == [group == 2, group == 2, False]
    for clamps, has_avx512, expected in [
        (True, False, [] if group == 2 else names),
        (True, True, names),
        (False, True, []),
    ]:
        result.cpu_clamps, result.has_avx512 = clamps, has_avx512
        assert result.affecting == expected


@pytest.mark.parametrize(
    "depth,first,openvino,plain",
    [
        (258, 129, "unsafe: 1 of", 0),
        (257, 129, "unsafe: 1 of", 0),
        (510, 255, "unsafe: 1 of", 0),  # a pair of the second half
        (258, 128, "unsafe with AVX-512: 1 of", 1),  # a pair across the middle
        (258, 0, "unsafe: 1 of", 1),
        (260, 130, "unsafe: 1 of", 1),
        (256, 127, "safe: proven", 0),
        (514, 257, "safe: proven", 0),
    ],
)
def test_openvino_pairs_each_half(tmp_path, depth, first, openvino, plain):
    weights = np.zeros((depth, 1), np.int8)
    weights[first : first + 2] = 127
    result = audit(
        one(tmp_path, "MatMulInteger", ["a", "w"], {"w": weights}), engines_asked=["fbgemm", "openvino"]
    )
    (layer,) = result.layers
    assert layer.engines["fbgemm"].failing_pairs == plain and openvino in to_text(result)
    if layer.fails(["openvino"]):
        assert (
            layer.engines["openvino"].witness
            == f"column 0, depths {first} {first + 1}: 255*127 + 255*127 = 64770"
        )
    assert Sums(layer.layer, pairs_of("openvino", layer.layer))(np.full((1, depth), 255, np.uint8), 0)[
        1
    ].item() == (32767 if openvino.startswith("unsafe:") else 64770)


def test_types_come_through_operators(tmp_path):
    nodes = [
        helper.make_node(
            "QLinearAdd", ["a", "s", "z", "a", "s", "z", "s", "z"], ["t"], domain="com.microsoft"
        ),
        helper.make_node("Reshape", ["t", "shape"], ["u"]),
        helper.make_node("QLinearMatMul", ["u", "s", "z", "w", "s", "z", "s", "z"], ["y"]),
    ]
    constants = {"w": HOT, "s": np.float32(1), "z": np.int8(0), "shape": np.array([-1, 4])}
    (layer,) = audit(save(tmp_path, nodes, constants, [("a", TensorProto.INT8)])).layers
    assert layer.layer.a_type == "s8" and not layer.layer.note and not layer.fails(["onnxruntime"])


@pytest.mark.parametrize(
    "weights,kind,op",
    [
        (np.full((1, 2, 1, 1), 127, np.int8), TensorProto.INT8, "QLinearConv"),
        (np.full((1, 2, 1, 1), 255, np.uint8), TensorProto.UINT8, "QLinearConv"),
        (np.full((1, 2, 1, 1), 127, np.int8), TensorProto.UINT8, "ConvInteger"),
    ],
)
def test_what_onnxruntime_adds_in_int32(tmp_path, weights, kind, op):
    result = audit(convolution(tmp_path, weights, op, kind))
    assert result.layers[0].engines["onnxruntime"].pairing == "none" and result.is_proven


def test_pairs_of_unknown_order_are_not_proven(tmp_path):
    result = audit(
        convolution(tmp_path, np.full((1, 2, 1, 1), 255, np.uint8), "ConvInteger", TensorProto.INT8)
    )
    assert not result.layers and not result.is_proven and result.model.not_audited == 1
    assert "s8 activations with u8 weights" in next(iter(result.model.passed_over))


def qdq(
    tmp_path,
    operator="Conv",
    before=None,
    after=True,
    a_point=np.uint8(0),
    weights=None,
    scale=np.float32(1 / 255),
):
    weights = np.full((1, 2, 1, 1), 127, np.int8) if weights is None else weights
    nodes, source = [], "x"
    if before:
        nodes.append(before)
        source = "b"
    nodes += [
        helper.make_node("QuantizeLinear", [source, "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        helper.make_node(operator, ["a", "wf"], ["c"], name="n"),
    ]
    if after:
        nodes += [
            helper.make_node("QuantizeLinear", ["c", "s", "z"], ["cq"]),
            helper.make_node("DequantizeLinear", ["cq", "s", "z"], ["y"]),
        ]
    else:
        nodes.append(helper.make_node("Identity", ["c"], ["y"]))
    constants = {"s": scale, "z": a_point, "w": weights, "ws": np.float32(1), "wz": np.int8(0)}
    return save(tmp_path, nodes, constants, [("x", TensorProto.FLOAT)])


def test_qdq_groups_as_the_engine_runs_them(tmp_path):
    (layer,) = audit(qdq(tmp_path)).layers
    assert layer.layer.node == "Conv (QDQ)" and layer.engines["onnxruntime"].failing_pairs == 1
    model = read_onnx(qdq(tmp_path, after=False))
    assert not model.layers and list(model.passed_over) == [
        "Conv (QDQ): its output is not quantized: ONNX Runtime runs it in float"
    ]
    model = read_onnx(qdq(tmp_path, "ConvTranspose"))
    assert not model.layers and "ConvTranspose (QDQ)" in next(iter(model.passed_over))
    # the caller reads the DequantizeLinear behind the output, and nothing else does
    for ask in (False, True):
        (layer,) = audit(qdq(tmp_path, a_point=np.int8(0)), ask=ask).layers
        assert (
            layer.layer.a_type == "u8" and layer.layer.a_range == (0, 255) and "become u8" in layer.layer.note
        )


# Of a QDQ group: what is unusual, and why ONNX Runtime then computes floats; "": integers. Each case is checked by the rules and,
# if ONNX Runtime is installed, by its graph.
FLOATS = {
    "usual": ({}, ""),
    "u16": ({"a": np.uint16, "y": np.uint16}, "its activations are uint16"),
    "another output": ({"y": np.uint16}, "its output has 16 bits"),
    "output becomes u8": ({"y": np.int8}, ""),
    "only the output becomes u8": ({"a": np.int8, "y": np.int8}, "its input and its output differ in type"),
    "another reader": ({"readers": 2}, "other nodes read its float output too"),
    "float output": ({"readers": 0}, "its output is not quantized"),
    "Clip": ({"clip": 1.0}, "a Clip changes its output"),
    "wide Clip": ({"clip": 1e9}, ""),
    "reshaped weights": ({"reshape": True}, "its weights are reshaped after they are dequantized"),
    "bias": ({"bias": 1.0}, ""),
    "scale of the bias": ({"bias": 2.0}, "its bias has a scale or a zero point of its own"),
}


def group(tmp_path, a=np.uint8, y=np.uint8, readers=1, clip=None, reshape=False, bias=None):
    """A QDQ Conv of quantized activations. `readers`: of its float output; the first is a QuantizeLinear."""
    weights, node = np.full((1, 2, 1, 1), 127, np.int8), helper.make_node
    constants = {
        "s": np.float32(1),
        "az": a(0),
        "yz": y(np.iinfo(y).min),
        "w": weights.reshape(1, 2) if reshape else weights,
        "wz": np.int8(0),
        "shape": np.array([1, 2, 1, 1]),
        "b": np.int32([7]),
        "bs": np.float32(bias or 1),
        "low": np.float32(-1e9),
        "high": np.float32(clip or 0),
    }
    nodes = [
        node("DequantizeLinear", ["a", "s", "az"], ["af"]),
        node("DequantizeLinear", ["w", "s", "wz"], ["wd" if reshape else "wf"]),
    ]
    nodes += [node("Reshape", ["wd", "shape"], ["wf"])] if reshape else []
    nodes += [node("DequantizeLinear", ["b", "bs"], ["bf"])] if bias else []
    nodes += [node("Conv", ["af", "wf"] + (["bf"] if bias else []), ["c"], name="n")]
    nodes += [node("Clip", ["c", "low", "high"], ["d"])] if clip else []
    last, outputs = "d" if clip else "c", []
    if readers != 1:
        nodes.append(node("Neg", [last], ["n"]))
        outputs.append("n")
    if readers:
        nodes += [
            node("QuantizeLinear", [last, "s", "yz"], ["q"]),
            node("DequantizeLinear", ["q", "s", "yz"], ["qf"]),
            node("Neg", ["qf"], ["y"]),
        ]
        outputs.append("y")
    kinds = {
        np.uint8: TensorProto.UINT8,
        np.int8: TensorProto.INT8,
        np.uint16: TensorProto.UINT16,
        np.int16: TensorProto.INT16,
    }
    path = save(tmp_path, nodes, constants, [("a", kinds[a])], outputs, opset=21)
    model = onnx.load(str(path))
    model.ir_version = 10
    extents = [onnx.TensorShapeProto.Dimension(dim_value=n) for n in (1, 2, 1, 1)]
    model.graph.input[0].type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto(dim=extents))
    onnx.save(model, str(path))
    return path


@pytest.mark.skipif(
    onnx.defs.onnx_opset_version() < 21, reason="this onnx has no tensors of 16 bits in QDQ groups"
)
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("ask", [False, True])
def test_groups_that_onnxruntime_computes_in_floats(tmp_path, name, ask):
    changes, reason = FLOATS[name]
    path = group(tmp_path, **changes)
    result = audit(path, ask=ask)
    assert [layer.layer.name for layer in result.layers] == ([] if reason else ["n"])
    assert list(result.model.passed_over) == (
        [f"Conv (QDQ): {reason}: ONNX Runtime runs it in float"] if reason else []
    )
    has_engine = ask and importlib.util.find_spec("onnxruntime") is not None
    source = (
        "the graph that ONNX Runtime " if has_engine else f"the rules of ONNX Runtime {rules()['version']}"
    )
    assert result.model.fusions.source.startswith(source) and source in to_text(result)
    assert to_json(result)["qdq_groups_by"] == result.model.fusions.source
    if reason and changes.get("a") is not np.uint16:  # other engines may compute integers
        both = audit(path, engines_asked=["onnxruntime", "openvino"], ask=ask)
        assert [layer.engines["onnxruntime"].pairing for layer in both.layers] == [
            "none"
        ] and not both.is_proven
        assert both.layers[0].fails(["openvino"]) and f"in float: {reason}" in to_text(both)


@pytest.mark.parametrize(
    "shape,is_constant,is_gemm",
    [
        ((3, 4), False, True),
        ((1, 4), False, True),
        ((3, 1), False, True),
        ((4,), False, True),
        (("m", 4), False, False),
        (None, False, False),
        ((2, 3, 4), False, False),
        ((), False, False),
        ((3, 4), True, True),
        ((1, 4), True, True),
        ((4,), True, True),
        ((1,), True, False),
    ],
)
@pytest.mark.parametrize("behind", ["nothing", "quantized"])
@pytest.mark.parametrize("ask", [False, True])
def test_additions_behind_a_product(tmp_path, shape, is_constant, is_gemm, behind, ask):
    """ONNX Runtime makes a Gemm of a MatMul and an Add of known shapes. A Gemm with a bias that stays float runs in float; a
    constant bias of one dimension is quantized if the output is."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "s", "p"], ["wf"]),
        helper.make_node("MatMul", ["a", "wf"], ["m"], name="n"),
        helper.make_node("Add", ["m", "added"], ["sum"]),
    ]
    nodes += (
        [helper.make_node("Neg", ["sum"], ["y"])]
        if behind == "nothing"
        else [
            helper.make_node("QuantizeLinear", ["sum", "s", "z"], ["sq"]),
            helper.make_node("DequantizeLinear", ["sq", "s", "z"], ["y"]),
        ]
    )
    constants = {"w": np.full((4, 4), 127, np.int8), "s": np.float32(1), "z": np.uint8(0), "p": np.int8(0)}
    if is_constant:
        constants["added"] = np.ones(shape, np.float32)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 4))]
    inputs += [] if is_constant else [helper.make_tensor_value_info("added", TensorProto.FLOAT, shape)]
    path = save(tmp_path, nodes, constants, [])
    model = onnx.load(str(path))
    model.graph.input.extend(inputs)
    onnx.save(model, str(path))
    is_float = is_gemm and not (is_constant and shape == (4,) and behind == "quantized")
    model = read_onnx(path, ask=ask)
    assert [layer.name for layer in model.layers] == ([] if is_float else ["n"])
    assert list(model.passed_over) == (
        ["MatMul (QDQ): its bias is float: ONNX Runtime runs it in float"] if is_float else []
    )


@pytest.mark.skipif(
    onnx.defs.onnx_opset_version() < 21, reason="this onnx has no tensors of 4 bits in QDQ groups"
)
def test_constant_weights_of_4_bits_are_no_activations(tmp_path, monkeypatch):
    """A later ONNX Runtime may compute such groups in integers."""
    path = qdq(tmp_path, "MatMul", weights=np.ones((2, 4), np.int8))
    model = onnx.load(str(path))
    for tensor in model.graph.initializer:
        if tensor.name in ("w", "wz"):
            dims = [2, 4] if tensor.name == "w" else []
            tensor.CopyFrom(
                helper.make_tensor(tensor.name, TensorProto.INT4, dims, b"\1" * (4 if dims else 1), raw=True)
            )
    onnx.save(model, str(path))
    monkeypatch.setattr(Fusions, "reason", lambda *_: "")
    model = read_onnx(path)
    assert not model.products and model.passed_over == {
        "MatMul (QDQ): constant weights of 4 bits that are not read": 1
    }


@pytest.mark.parametrize(
    "a_shape,w_shape,is_float", [((), (), False), ((1,), (), True), ((1,), (1,), False), ((), (1,), False)]
)
@pytest.mark.parametrize("ask", [False, True])
def test_float_biases_of_convolutions(tmp_path, a_shape, w_shape, is_float, ask):
    """ONNX Runtime quantizes the bias, except if only the scale of the activations has a dimension."""
    path = group(tmp_path)
    model = onnx.load(str(path))
    for name, shape in (("as", a_shape), ("ws", w_shape), ("bias", (1,))):
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    model.graph.node[0].input[1], model.graph.node[1].input[1] = "as", "ws"
    model.graph.node[2].input.append("bias")
    onnx.save(model, str(path))
    model = read_onnx(path, ask=ask)
    assert [layer.name for layer in model.layers] == ([] if is_float else ["n"])


@pytest.mark.parametrize(
    "op,opset,has_point,is_float",
    [
        ("MatMul", 17, False, True),
        ("MatMul", 17, True, False),
        ("MatMul", 21, False, False),
        ("Gemm", 17, True, False),
        ("Conv", 17, False, True),
    ],
)
@pytest.mark.parametrize("ask", [False, True])
def test_transposed_weights_without_a_zero_point(tmp_path, op, opset, has_point, is_float, ask):
    if onnx.defs.onnx_opset_version() < opset:
        pytest.skip("this onnx is older than the opset")
    weights = np.ones((4, 3), np.int8) if op != "Conv" else np.ones((1, 1, 2, 3), np.int8)
    perm = [1, 0] if op != "Conv" else [3, 2, 0, 1]
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["ad"]),
        helper.make_node("DequantizeLinear", ["w", "s"] + ["p"] * has_point, ["wd"]),
        helper.make_node("Transpose", ["wd"], ["wt"], perm=perm),
        helper.make_node(op, ["ad", "wt"], ["c"], name="n"),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    path = save(
        tmp_path,
        nodes,
        {"w": weights, "s": np.float32(1), "z": np.uint8(0), "p": np.int8(0)},
        [("a", TensorProto.UINT8)],
        opset=opset,
    )
    assert (not read_onnx(path, ask=ask).layers) == is_float


def test_an_output_of_unknown_type(tmp_path):
    """The zero point behind the operator comes from a Cast, which the rules do not compute."""
    path = group(tmp_path)
    model = onnx.load(str(path))
    model.graph.initializer.append(numpy_helper.from_array(np.int32(0), "given"))
    model.graph.node.insert(0, helper.make_node("Cast", ["given"], ["cast"], to=TensorProto.UINT8))
    for node in model.graph.node:
        node.input[:] = ["cast" if name == "yz" else name for name in node.input]
    onnx.save(model, str(path))
    assert list(read_onnx(path, ask=False).passed_over) == [
        "Conv (QDQ): the type of its output is not known: ONNX Runtime runs it in float"
    ]


@pytest.mark.parametrize(
    "op,axis,point,expected",
    [
        ("MatMul", 1, True, "makes a MatMulNBits"),
        ("Gemm", 1, True, "makes a MatMulNBits"),
        ("MatMul", 0, False, "the operator runs in float"),
    ],
)
def test_weight_only_products(tmp_path, op, axis, point, expected):
    """A scale for each column or row of the weights; activations are float."""
    constants = {"w": np.ones((64, 32), np.int8), "s": np.ones(32 if axis else 64, np.float32)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["wf"], axis=axis),
        helper.make_node(op, ["a", "wf"], ["y"], name="n"),
    ]
    path = save(tmp_path, nodes, constants, [("a", TensorProto.FLOAT)])
    has_engine = importlib.util.find_spec("onnxruntime") is not None
    version = importlib.metadata.version("onnxruntime").split(".") if has_engine else ["1", "26"]
    makes_nbits = tuple(int(part) for part in version[:2]) >= (1, 26)  # older ones make no MatMulNBits
    for ask in (False, True):
        (reason,) = audit(path, ask=ask).model.passed_over
        assert "only its weights of 8 bits are quantized" in reason
        assert (expected if makes_nbits or not ask else "only its weights") in reason
        assert audit(path, ask=ask).model.not_audited == 0
    run = program("compare", path, path, "--data", path)
    assert (
        run.returncode == 2
        and "only its weights of 8 bits" in run.stderr
        and len(run.stderr.splitlines()) == 1
    )


def test_rules_load_no_model_in_onnxruntime(tmp_path):
    assert (
        f"the rules of ONNX Runtime {rules()['version']} decided"
        in program("audit", "--rules", group(tmp_path)).stdout
    )


def test_weights_that_cast_and_mul_make_float(tmp_path):
    nodes = [
        helper.make_node("Cast", ["w"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["c", "s"], ["wf"]),
        helper.make_node("MatMul", ["a", "wf"], ["y"], name="n"),
    ]
    result = audit(save(tmp_path, nodes, {"w": HOT, "s": np.float32(1)}, [("a", TensorProto.FLOAT)]))
    assert list(result.model.passed_over) == [
        "MatMul: Cast and Mul make its integer weights float, so the operator runs in float"
    ]


@pytest.mark.parametrize(
    "op,place", [("MaxPool", "before"), ("MaxPool", "after"), ("Transpose", "before"), ("Identity", "after")]
)
def test_qdq_moves_through_operators(tmp_path, op, place):
    moved = helper.make_node(
        op,
        ["a" if place == "before" else "c"],
        ["m"],
        **({"kernel_shape": [1, 1]} if op == "MaxPool" else {}),
    )
    path = qdq(tmp_path)
    model = onnx.load(str(path))
    nodes = list(model.graph.node)
    at = 3 if place == "before" else 4  # around the convolution
    reader = nodes[at]
    reader.input[0] = "m"
    del model.graph.node[:]
    model.graph.node.extend(nodes[:at] + [moved] + nodes[at:])
    onnx.save(model, str(path))
    (layer,) = audit(path).layers
    assert (
        layer.layer.name == "n"
        and layer.fails(["onnxruntime"])
        and bool(layer.layer.activation) == (place == "after")
    )


def test_weights_are_transposed_after_they_are_dequantized(tmp_path):
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["af"]),
        helper.make_node("DequantizeLinear", ["w", "s", "p"], ["wf"]),
        helper.make_node("Transpose", ["wf"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["af", "wt"], ["y"], name="n"),
    ]
    constants = {"w": np.ascontiguousarray(HOT.T), "s": np.float32(1), "z": np.uint8(0), "p": np.int8(0)}
    (layer,) = audit(save(tmp_path, nodes, constants, [("a", TensorProto.UINT8)])).layers
    assert layer.layer.weights.shape == (4, 3) and layer.engines["onnxruntime"].failing_pairs == 1


@pytest.mark.parametrize(
    "op,attributes,point,expected",
    [
        ("Sigmoid", {}, 0, (0, 101)),  # one step of slack: engines divide in float32
        ("Softmax", {}, 0, (0, 101)),
        ("Relu", {}, 0, (0, 255)),
        ("Tanh", {}, 0, (0, 101)),
        ("Relu", {}, 20, (19, 255)),
        ("Tanh", {}, 120, (19, 221)),
    ],
)
def test_producers_bound_the_activations(tmp_path, op, attributes, point, expected):
    before = helper.make_node(op, ["x"], ["b"], **attributes)
    (layer,) = audit(qdq(tmp_path, before=before, scale=np.float32(0.01), a_point=np.uint8(point))).layers
    assert layer.layer.a_range == expected
    assert layer.layer.a_why == (op if expected != (0, 255) else "")
    assert layer.engines["onnxruntime"].is_proven == (expected[1] * 254 <= 32767)


def clipped(tmp_path, low, high, point, weights, pads=0, extra=None, opset=17, **quantize):
    """Clip, QuantizeLinear, QLinearConv: the activations' bound."""
    nodes = [helper.make_node("Clip", ["x", "lo", "hi"], ["c"])] + (
        extra or [helper.make_node("Identity", ["c"], ["p"])]
    )
    nodes += [
        helper.make_node(
            "QuantizeLinear", ["p", "s"] + (["z"] if point is not None else []), ["a"], **quantize
        ),
        helper.make_node(
            "QLinearConv", ["a", "s", "zz", "w", "s", "wz", "s", "zz"], ["y"], name="n", pads=[pads] * 4
        ),
    ]
    constants = {
        "lo": np.float32(low),
        "hi": np.float32(high),
        "s": np.float32(0.1),
        "w": weights,
        "wz": np.int8(0),
        "zz": np.uint8(0) if point is None else point,
    }
    if point is not None:
        constants["z"] = point
    return audit(save(tmp_path, nodes, constants, [("x", TensorProto.FLOAT)], opset=opset))


def test_padding_is_in_the_range(tmp_path):
    weights = np.full((1, 2, 1, 1), -128, np.int8)  # -256 times 100 fits, times 200 does not
    result = clipped(tmp_path, -12, -10, np.uint8(200), weights, pads=1)
    assert result.layers[0].layer.a_range == (79, 200) and not result.is_proven


def test_averages_of_padding_are_no_bound(tmp_path):
    pool = [
        helper.make_node(
            "AveragePool", ["c"], ["p"], kernel_shape=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1
        )
    ]
    result = clipped(tmp_path, -12, -10, np.uint8(200), np.full((1, 2, 1, 1), -128, np.int8), extra=pool)
    assert result.layers[0].layer.a_range == (0, 255)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 21, reason="this onnx has no output_dtype")
def test_types_of_the_output_attribute(tmp_path):
    result = clipped(
        tmp_path, 0, 10, None, np.full((1, 2, 1, 1), 100, np.int8), opset=21, output_dtype=TensorProto.INT8
    )
    assert result.layers[0].layer.a_type == "s8"


def test_crossed_bounds(tmp_path):
    result = clipped(tmp_path, 5, 1, np.uint8(0), np.full((1, 2, 1, 1), 127, np.int8))
    assert result.layers[0].layer.a_range == (0, 11) and result.is_proven


def test_what_is_not_audited_is_not_proven(tmp_path):
    nodes = [
        helper.make_node("MatMulInteger", ["a", "w"], ["t"], name="safe"),
        helper.make_node("MatMulInteger", ["a", "b"], ["y"]),
    ]
    path = save(tmp_path, nodes, {"w": HOT // 2}, [("a", TensorProto.UINT8), ("b", TensorProto.FLOAT)])
    result = audit(path)
    assert not result.is_proven and verdict(result).endswith("; 1 operator was not audited")
    assert program("audit", path).returncode == 1


@pytest.mark.parametrize(
    "op,domain", [("_init__", ""), ("node", ""), ("point", ""), ("MatMulInteger", "foo")]
)
def test_operators_of_others(tmp_path, op, domain):
    nodes = [
        helper.make_node("MatMulInteger", ["a", "w"], ["t"], name="n"),
        helper.make_node(op, ["a", "w"], ["y"], domain=domain),
    ]
    result = audit(save(tmp_path, nodes, {"w": HOT}, [("a", TensorProto.UINT8)]))
    assert len(result.layers) == 1 and result.model.passed_over == (
        {"MatMulInteger of foo": 1} if domain else {}
    )


def test_overridable_weights_have_a_note(tmp_path):
    node = helper.make_node("MatMulInteger", ["a", "w"], ["y"], name="n")
    result = audit(save(tmp_path, [node], {"w": HOT}, [("a", TensorProto.UINT8), ("w", TensorProto.INT8)]))
    assert "may override" in result.layers[0].layer.note


@pytest.mark.parametrize("scales", [np.float32(0), np.float32(np.nan), np.ones(3, np.float32)])
def test_odd_scales_leave_the_unit_open(tmp_path, scales):
    constants = {"w": HOT, "s": np.float32(1), "t": scales, "z": np.uint8(0), "p": np.int8(0)}
    result = audit(one(tmp_path, "QLinearMatMul", ["a", "s", "z", "w", "s", "p", "t", "z"], constants))
    assert result.layers[0].engines["onnxruntime"].error_unit == "units of the sum"
    json.dumps(to_json(result), allow_nan=False)


def test_counts_and_bounds_agree_with_the_definition(tmp_path):
    rng = np.random.default_rng(0)
    for _ in range(20):
        matrix = rng.integers(-128, 128, (2 * rng.integers(1, 15), 7)).astype(np.int8)
        pairs = matrix.astype(np.int32).reshape(-1, 2, 7)
        most, least = (255 * part.sum(axis=1) for part in (np.maximum(pairs, 0), np.minimum(pairs, 0)))
        above, below = np.maximum(most - 32767, 0), np.maximum(-32768 - least, 0)
        (layer,) = audit(one(tmp_path, "MatMulInteger", ["a", "w"], {"w": matrix})).layers
        found = layer.engines["onnxruntime"]
        assert found.failing_pairs == np.count_nonzero(above | below)
        assert found.error == max(above.sum(axis=0).max(), below.sum(axis=0).max())


def test_types_that_were_not_measured_are_not_called_safe(tmp_path):
    weights = np.full((1, 2, 1, 1), 127, np.int8)
    result = audit(
        convolution(tmp_path, weights, kind=TensorProto.INT8), engines_asked=["onnxruntime", "onednn"]
    )
    # s8 activations, shifted by 128
    assert [c.failing_pairs for c in result.layers[0].engines.values()] == [0, 1]


def test_deep_weights_are_certified_in_pieces(tmp_path):
    weights = np.zeros((70000, 1), np.int8)
    weights[[0, 1, 32766, 32767, 32768, 32769, 69998, 69999]] = 127
    weights[32767] = 0
    (layer,) = audit(one(tmp_path, "MatMulInteger", ["a", "w"], {"w": weights})).layers
    assert layer.engines["onnxruntime"].failing_pairs == 3


def test_constants_come_through_operators(tmp_path):
    nodes = [
        helper.make_node("Transpose", ["wt"], ["w"], perm=[1, 0]),
        helper.make_node("MatMulInteger", ["a", "w"], ["y"], name="n"),
    ]
    path = save(tmp_path, nodes, {"wt": np.ascontiguousarray(HOT.T)}, [("a", TensorProto.UINT8)])
    assert audit(path).layers[0].engines["onnxruntime"].failing_pairs == 1


def test_subgraphs_are_read(tmp_path):
    inner = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "w"], ["t"], name="inner")],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.INT32, None)],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    path = save(tmp_path, [node], {"w": HOT}, [("a", TensorProto.UINT8), ("c", TensorProto.BOOL)])
    assert [layer.layer.name for layer in audit(path).layers] == ["inner", "inner (operator 3)"]


@pytest.mark.skipif(not is_x86(), reason="only ONNX Runtime of x86-64 is asked")
def test_nodes_of_inner_graphs_are_distinguished(tmp_path):
    """ONNX Runtime computes the Conv of one branch in integers, that of the other in floats: its float output is read."""
    pytest.importorskip("onnxruntime")
    branches = []
    for branch, made in (("then", "QuantizeLinear"), ("else", "Neg")):
        n = [f"{branch}{i}" for i in range(6)]
        nodes = [
            helper.make_node("DequantizeLinear", ["a", "s", "z"], [n[0]]),
            helper.make_node("DequantizeLinear", ["w", "s", "p"], [n[1]]),
            helper.make_node("Conv", n[:2], [n[2]], name=f"{branch} product"),
        ]
        nodes += [
            helper.make_node("QuantizeLinear", [n[2], "s", "z"], [n[3]]),
            helper.make_node("DequantizeLinear", [n[3], "s", "z"], [n[4]]),
        ]
        nodes = nodes if made == "QuantizeLinear" else nodes[:3] + [helper.make_node("Neg", [n[2]], [n[4]])]
        branches.append(
            helper.make_graph(
                nodes, branch, [], [helper.make_tensor_value_info(n[4], TensorProto.FLOAT, None)]
            )
        )
    path = save(
        tmp_path,
        [helper.make_node("If", ["condition"], ["y"], then_branch=branches[0], else_branch=branches[1])],
        {"w": np.full((1, 2, 1, 1), 127, np.int8), "s": np.float32(1), "z": np.uint8(0), "p": np.int8(0)},
        [("a", TensorProto.UINT8), ("condition", TensorProto.BOOL)],
    )
    model = onnx.load(str(path))
    model.ir_version = 8  # older versions of ONNX Runtime load it too
    fusions = Fusions(model, tmp_path)
    gc.collect()
    made = {node.name: fusions.made(node) for node in every_node(model.graph) if node.op_type == "Conv"}
    assert made == {"then product": {"QLinearConv"}, "else product": {"Conv"}}
    model = read_onnx(path)
    assert [layer.name for layer in model.layers] == ["then product"] and sum(model.passed_over.values()) == 1


def test_passed_over(tmp_path):
    path = one(
        tmp_path,
        "MatMulNBits",
        ["a", "w"],
        {"w": np.zeros((1, 1, 16), np.uint8)},
        "com.microsoft",
        TensorProto.FLOAT,
    )
    assert read_onnx(path).passed_over == {"MatMulNBits: weights in blocks of 4 bits": 1}
    for blocks, words in (({}, "of"), ({"block_size": 16}, "in blocks of")):
        path = one(
            tmp_path,
            "QMoE",
            ["a", "p", "w"],
            {"w": np.zeros((1, 1, 16), np.uint8)},
            "com.microsoft",
            TensorProto.FLOAT,
            expert_weight_bits=8,
            **blocks,
        )
        assert read_onnx(path).passed_over == {f"QMoE: weights {words} 8 bits": 1}
    path = save(
        tmp_path,
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        {},
        [("a", TensorProto.FLOAT), ("b", TensorProto.FLOAT)],
    )
    assert read_onnx(path).passed_over == {
        "MatMulInteger: the second operand is no constant, and the file does not state the operands' types": 1
    }


def of_activations(tmp_path, a_type, b_type, qdq=False, readers=1):
    """A model with a proven layer and a product of two activations."""
    types = {"u8": (TensorProto.UINT8, np.uint8), "s8": (TensorProto.INT8, np.int8)}
    constants, nodes, inputs = {"w": HOT[:, :1], "s": np.float32(0.5), "m": np.uint8(0)}, [], []
    for name, kind in (("a", a_type), ("b", b_type)):
        if qdq:
            constants[f"{name}z"] = types[kind][1](0)
            nodes += [
                helper.make_node("QuantizeLinear", [f"{name}x", "s", f"{name}z"], [name]),
                helper.make_node("DequantizeLinear", [name, "s", f"{name}z"], [f"{name}d"]),
            ]
            nodes += [
                helper.make_node("DequantizeLinear", [name, "s", f"{name}z"], [f"{name}{k}"])
                for k in range(1, readers)
            ]
        inputs.append((f"{name}x", TensorProto.FLOAT) if qdq else (name, types[kind][0]))
    nodes += (
        [helper.make_node("MatMul", ["ad", "bd"], ["y"], name="p")]
        if qdq
        else [helper.make_node("MatMulInteger", ["a", "b"], ["y"], name="p")]
    )
    nodes.append(helper.make_node("MatMulInteger", ["m8", "w"], ["v"], name="n"))
    return save(tmp_path, nodes, constants, [*inputs, ("m8", TensorProto.UINT8)])


@pytest.mark.parametrize(
    "a_type,b_type,qdq,readers,is_safe",
    [
        ("u8", "u8", False, 1, True),
        ("u8", "s8", False, 1, False),
        ("s8", "s8", False, 1, True),
        ("u8", "u8", True, 1, True),
        ("u8", "s8", True, 1, True),
        ("s8", "s8", True, 1, True),
        ("u8", "s8", True, 2, False),
    ],
)
def test_products_of_two_activations(tmp_path, a_type, b_type, qdq, readers, is_safe):
    path = of_activations(tmp_path, a_type, b_type, qdq, readers)
    result = audit(path)
    assert (result.is_proven, len(result.products), result.model.not_audited) == (is_safe, 1, 0)
    run = program("audit", path, "--json", tmp_path / "j")
    assert run.returncode == (0 if is_safe else 1)
    words = (
        "1 product of two activations is proven safe too"
        if is_safe
        else "255*-128 + 255*-128 = -65280; u8 for the second operand"
    )
    assert words in run.stdout and "not audited" not in run.stdout
    (product,) = json.loads((tmp_path / "j").read_text())["products_of_activations"]
    assert (product["name"], product["engines"]["onnxruntime"]["proven"]) == ("p", is_safe)


@pytest.mark.parametrize(
    "b_type,status,words",
    [
        ("s8", 1, "on CPUs without VNNI 1 of 1 product of two activations can compute wrong sums; "),
        ("u8", 0, "1 product of two activations is proven safe, whatever the input\n"),
    ],
)
def test_a_model_of_products_of_two_activations_only(tmp_path, b_type, status, words):
    kind = {"u8": TensorProto.UINT8, "s8": TensorProto.INT8}[b_type]
    path = save(
        tmp_path,
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        {},
        [("a", TensorProto.UINT8), ("b", kind)],
    )
    run = program("audit", path)
    assert run.returncode == status and f"\n{words}" in run.stdout and "no quantized layer" not in run.stdout
    repaired = program("repair", path, "-o", tmp_path / "r.onnx")
    assert repaired.returncode == status and not repaired.stderr
    assert words in repaired.stdout


@pytest.mark.parametrize(
    "change",
    [
        "another reader",
        "another zero point",
        "an output of the model",
        "a float output of the model",
        "a reader in an inner graph",
        "another reader behind a Transpose",
    ],
)
@pytest.mark.parametrize("ask", [False, True])
def test_operands_that_stay_s8(tmp_path, change, ask):
    """ONNX Runtime moves `a` to u8, and leaves `b` s8."""
    path = of_activations(tmp_path, "s8", "s8", qdq=True)
    assert audit(path, ask=ask).is_proven
    model = onnx.load(str(path))
    if change == "another reader":
        model.graph.node.append(helper.make_node("Sigmoid", ["bd"], ["other"]))
        model.graph.output.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, None))
    elif change == "another zero point":
        model.graph.initializer.append(numpy_helper.from_array(np.int8(3), "three"))
        next(node for node in model.graph.node if node.output[0] == "bd").input[2] = "three"
    elif change == "an output of the model":
        model.graph.output.append(helper.make_tensor_value_info("b", TensorProto.INT8, None))
    elif change == "another reader behind a Transpose":
        next(node for node in model.graph.node if node.name == "p").input[1] = "bt"
        at = next(i for i, node in enumerate(model.graph.node) if node.name == "p")
        model.graph.node.insert(at, helper.make_node("Transpose", ["bd"], ["bt"], perm=[1, 0]))
        onnx.save(model, str(path))
        assert audit(path, ask=ask).is_proven
        model.graph.node.append(helper.make_node("Sigmoid", ["bt"], ["other"]))
        model.graph.output.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, None))
    elif change == "a float output of the model":
        model.graph.output.append(helper.make_tensor_value_info("bd", TensorProto.FLOAT, None))
    else:
        branches = [
            helper.make_graph(
                [helper.make_node("Neg", ["bd"], [name])],
                name,
                [],
                [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
            )
            for name in ("t", "e")
        ]
        model.graph.input.append(helper.make_tensor_value_info("condition", TensorProto.BOOL, []))
        model.graph.node.append(
            helper.make_node("If", ["condition"], ["other"], then_branch=branches[0], else_branch=branches[1])
        )
        model.graph.output.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, None))
    onnx.save(model, str(path))
    result = audit(path, ask=ask)
    (product,) = result.products
    assert (product.layer.a_type, product.layer.b_type) == ("u8", "s8") and not result.is_proven


def in_branches(tmp_path, dequantize_inside):
    """Products of u8 x and s8 y in both branches of an If. x and y are quantized outside."""

    def quantization(op, source, made, name):
        return helper.make_node(op, [source, "s", f"{name}z"], [made])

    branches = []
    for branch in ("then", "else"):
        at = branch if dequantize_inside else ""
        nodes = (
            [quantization("DequantizeLinear", f"{name}q", f"{at}{name}d", name) for name in "xy"]
            if dequantize_inside
            else []
        )
        nodes.append(helper.make_node("MatMul", [f"{at}xd", f"{at}yd"], [branch], name=f"{branch} product"))
        branches.append(
            helper.make_graph(
                nodes, branch, [], [helper.make_tensor_value_info(branch, TensorProto.FLOAT, None)]
            )
        )
    nodes = [quantization("QuantizeLinear", name, f"{name}q", name) for name in "xy"]
    if not dequantize_inside:
        nodes += [quantization("DequantizeLinear", f"{name}q", f"{name}d", name) for name in "xy"]
    nodes.append(
        helper.make_node("If", ["condition"], ["v"], then_branch=branches[0], else_branch=branches[1])
    )
    return save(
        tmp_path,
        nodes,
        {"s": np.float32(0.5), "xz": np.uint8(0), "yz": np.int8(0)},
        [("x", TensorProto.FLOAT), ("y", TensorProto.FLOAT), ("condition", TensorProto.BOOL)],
        ["v"],
    )


@pytest.mark.parametrize("ask", [False, True])
def test_products_of_activations_in_inner_graphs(tmp_path, ask):
    result = audit(in_branches(tmp_path, dequantize_inside=True), ask=ask)
    assert [(product.layer.a_type, product.layer.b_type) for product in result.products] == [("u8", "s8")] * 2
    assert not result.is_proven
    model = read_onnx(in_branches(tmp_path, dequantize_inside=False), ask=ask)
    assert not model.products and model.passed_over == {
        "MatMul (QDQ): its inputs are dequantized outside its graph: ONNX Runtime runs it in float": 2
    }


def test_ranges_bound_products_of_two_activations(tmp_path):
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "s", "z"], ["q"]),
        helper.make_node("MatMulInteger", ["q", "b"], ["y"]),
    ]
    for scale, is_safe in ((1 / 126, True), (1 / 255, False)):
        path = save(
            tmp_path,
            nodes,
            {"s": np.float32(scale), "z": np.uint8(0)},
            [("x", TensorProto.FLOAT), ("b", TensorProto.INT8)],
        )
        (product,) = audit(path).products
        assert product.engines["onnxruntime"].is_proven == is_safe


def test_the_command(tmp_path):
    path = one(tmp_path, "MatMulInteger", ["a", "w"], {"w": HOT})
    run = process("audit", path, "--json", tmp_path / "j", "--html", tmp_path / "h")
    assert run.returncode == 1 and [line.split(" ")[1] for line in run.stderr.splitlines()] == [
        "wrote",
        "wrote",
    ]
    assert run.stdout.splitlines()[-1].startswith(
        "on CPUs without VNNI 1 of 1 layer can compute wrong sums in ONNX Runtime; this CPU has "
    )
    report = json.loads((tmp_path / "j").read_text())
    assert (report["schema"], report["schema_version"], report["proven"]) == ("intact-audit", 1, False)
    assert report["layers"][0]["engines"]["onnxruntime"]["failing_pairs"] == 1
    page = (tmp_path / "h").read_text()
    assert "can saturate" in page and "src=" not in page and "http" not in page
    safe = one(tmp_path, "MatMulInteger", ["a", "w"], {"w": HOT // 2})
    run = program("audit", safe)
    assert run.returncode == 0 and run.stdout.endswith(
        "the layer is proven safe in ONNX Runtime, whatever the input\n"
    )
    assert "7 bits: the weights of 1 layer" in run.stdout


def test_names_cannot_write_the_page_or_the_terminal(tmp_path):
    node = helper.make_node("MatMulInteger", ["a", "w"], ["y"], name="<script>\x1b[2J")
    result = audit(save(tmp_path, [node], {"w": HOT}, [("a", TensorProto.UINT8)]))
    assert "<script>" not in to_html(result).replace(f"<script>{SCRIPT}", "")
    assert "\x1b" not in to_text(result) and "\\x1b" in to_text(result)
    assert json.dumps(to_json(result))


def external(tmp_path, **entries):
    path = one(tmp_path, "MatMulInteger", ["a", "w"], {"w": HOT})
    model = onnx.load(str(path))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    onnx.save(model, str(path))
    return path


def test_external_data(tmp_path):
    (tmp_path / "data").write_bytes(b"\x00" * 5 + HOT.tobytes())
    assert (
        audit(external(tmp_path, location="data", offset="5", length="12"))
        .layers[0]
        .engines["onnxruntime"]
        .failing_pairs
        == 1
    )


def hostile(tmp_path, name):
    (tmp_path / "short").write_bytes(b"\x00" * 5)
    if name in ("leaves", "truncated", "negative", "no_file", "no_number"):
        return external(
            tmp_path,
            **{
                "leaves": {"location": "../../etc/passwd"},
                "truncated": {"location": "short"},
                "negative": {"location": "short", "offset": "-1"},
                "no_file": {"location": "nothing"},
                "no_number": {"location": "short", "offset": "x"},
            }[name],
        )
    path = one(tmp_path, "MatMulInteger", ["a", "w"], {"w": HOT})
    model = onnx.load(str(path))
    tensor = model.graph.initializer[0]
    if name == "huge":
        tensor.dims[:] = [1 << 40, 1 << 40]
    if name == "negative_dims":
        tensor.dims[:] = [-4, -3]
    if name == "two_gigabytes":
        tensor.dims[:] = [1 << 16, 1 << 15]
    if name == "cycle":
        del model.graph.initializer[:]
        model.graph.node.extend(
            [helper.make_node("Identity", ["w"], ["v"]), helper.make_node("Identity", ["v"], ["w"])]
        )
    if name == "no_inputs":
        del model.graph.node[0].input[:]
    if name == "group":
        model.graph.node[0].CopyFrom(helper.make_node("ConvInteger", ["a", "w"], ["y"], group=0))
        tensor.dims[:] = [1, 3, 2, 2]
    if name == "long_words":
        model.graph.node[0].CopyFrom(
            helper.make_node("ConvInteger", ["a", "w"], ["y"], group=0, name="n" * 100000)
        )
        tensor.dims[:] = [1, 3, 2, 2]
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "leaves",
        "truncated",
        "negative",
        "no_file",
        "no_number",
        "huge",
        "negative_dims",
        "two_gigabytes",
        "no_inputs",
        "group",
        "long_words",
    ],
)
def test_hostile_models_get_one_line(tmp_path, name):
    run = program("audit", hostile(tmp_path, name))
    assert run.returncode == 2 and run.stdout == ""
    assert run.stderr.startswith("intact: ") and run.stderr.count("\n") == 1 and len(run.stderr) < 600


def test_cycles_end(tmp_path):
    run = program("audit", hostile(tmp_path, "cycle"))
    assert run.returncode == 2 and run.stderr == "" and "no quantized layer" in run.stdout


@pytest.mark.parametrize("contents", [b"", b"\x00\xff" * 50, b"not a model\n"])
def test_other_files(tmp_path, contents):
    (tmp_path / "x.onnx").write_bytes(contents)
    run = program("audit", tmp_path / "x.onnx")
    assert run.returncode == 2 and "is no ONNX model" in run.stderr and run.stderr.count("\n") == 1


def test_bad_arguments(tmp_path):
    path = one(tmp_path, "MatMulInteger", ["a", "w"], {"w": HOT})
    run = program("audit", path, "--engine", "mlas")
    assert run.returncode == 2 and run.stderr == (
        "intact: engine 'mlas': is not known; expected fbgemm, onnxruntime, onednn, openvino, litert, or all\n"
    )
    run = program("audit", "/nonexistent.onnx")
    assert run.returncode == 2 and "No such file" in run.stderr and run.stderr.count("\n") == 1
    run = program("audit", path, "--json", "/nonexistent/x")
    assert (
        run.returncode == 2
        and run.stderr == "intact: /nonexistent/x: cannot be written: No such file or directory\n"
    )


@pytest.mark.parametrize("contents", [b"", b"PK\x03\x04 and no more", b"x" * 100])
def test_data_that_is_no_archive(tmp_path, contents):
    path = one(tmp_path, "MatMulInteger", ["a", "w"], {"w": HOT})
    (tmp_path / "d.npz").write_bytes(contents)
    run = program("audit", path, "--data", tmp_path / "d.npz")
    assert (
        run.returncode == 2
        and run.stdout == ""
        and run.stderr.count("\n") == 1
        and "is no .npz file" in run.stderr
    )


def test_distances_of_what_is_not_finite():
    from intact._engines.data import distances

    inf, nan = np.inf, np.nan
    found = distances(np.array([1.0, -inf, nan, -inf, 1.0, inf]), np.array([3.0, -inf, nan, 2.0, nan, -inf]))
    assert list(found) == [2, 0, 0, inf, inf, inf]


def test_on_data(tmp_path):
    pytest.importorskip("onnxruntime")
    from intact._audit.run import run_on_data

    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"], name="n"),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    result = audit(save(tmp_path, nodes, {"w": HOT}, [("x", TensorProto.FLOAT)]))
    x = np.array([[1, 1, 0, 0], [0, 0, 0, 1]], np.float32)
    found = run_on_data(result, [{"x": x}])
    layer = found.layers["n"]
    assert (layer.results, layer.changed) == (6, 1)
    assert found.outputs[0].control == np.inf and (found.outputs[0].stock == np.inf) != result.cpu_clamps


def test_an_odd_last_channel_of_u8_weights_is_alone():
    """Weights of 128 are zeros for the instruction, and so is the partner of the last channel of a tap."""
    weights = np.full((1, 2, 2, 3), 128, np.uint8)
    weights[..., 2] = 0
    layer = QuantizedLayer("n", "Conv", "Conv", False, "u8", "u8", weights, (0, 255), "")
    assert certify(layer, "within_tap").is_proven and certify(layer, "flattened").is_proven
    weights[..., 1] = 255
    weights[..., 0] = 255
    assert certify(layer, "within_tap").failing_pairs == 4


def test_a_convolution_with_weights_of_a_run_is_not_proven(tmp_path):
    scales = ["s", "p"]
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["x"]),
        helper.make_node("DequantizeLinear", ["w", *scales], ["wf"]),
        helper.make_node("Conv", ["x", "wf"], ["c"], name="n"),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    path = save(
        tmp_path,
        nodes,
        {"s": np.float32(0.5), "z": np.uint8(3), "p": np.int8(0)},
        [("a", TensorProto.UINT8), ("w", TensorProto.INT8)],
    )
    result = audit(path, ask=False)
    assert (
        list(result.model.passed_over) == ["Conv (QDQ): weights are no constant"]
        and not result.products
        and not result.is_proven
    )


@pytest.mark.parametrize(
    "installed,used",
    [("1.30.0", "1.30.0"), ("1.32.0", "1.32.0"), ("1.20.1", None), ("9.0.0", None), (None, None)],
)
def test_rules_are_those_of_the_installed_version(tmp_path, monkeypatch, installed, used):
    """ONNX Runtime 1.32 makes a MatMulNBits behind 16 bits; older ones compute floats."""

    def version(name):
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    nodes = [
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["x"]),
        helper.make_node("DequantizeLinear", ["w", "s", "p"], ["wf"]),
        helper.make_node("MatMul", ["x", "wf"], ["y"], name="n"),
    ]
    path = save(
        tmp_path,
        nodes,
        {"s": np.float32(0.5), "z": np.uint16(3), "w": HOT, "p": np.int8(0)},
        [("a", TensorProto.UINT16)],
    )
    monkeypatch.setattr(importlib.metadata, "version", version)
    result = audit(path, ask=False)
    assert result.model.fusions.version == (used or rules()["version"])
    assert ("MatMulNBits" in str(result.model.passed_over)) == (used != "1.30.0")


def test_another_cpu_than_x86_is_not_affected(tmp_path, monkeypatch):
    path = one(tmp_path, "MatMulInteger", ["a", "w"], {"w": HOT})
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("intact._audit.audit.isas", lambda: ["portable"])
    run = program("audit", path)
    assert run.returncode == 1, "the model is unsafe, wherever it is audited"
    assert run.stdout.endswith("in ONNX Runtime; this CPU is not an x86-64 and is not affected\n")
