"""QDQ groups of any structure: the provider takes only what ONNX Runtime computes in integers, with its bytes, and the audit says the
same, by ONNX Runtime's graph and by the rules."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", minversion="1.23", reason="needs onnxruntime 1.23")
onnx = pytest.importorskip("onnx", reason="needs onnx")

import intact
import intact.onnxruntime
import layers
import stock
import structures
from test_provider import LIKE, cpu_session_of, session_of

# On other CPUs ONNX Runtime's own kernels clamp. The rules are those of the versions in onnxruntime_rules.json.
pytestmark = [
    pytest.mark.skipif(not stock.cpu_has_vnni(), reason="needs a CPU whose stock engine is exact"),
    pytest.mark.skipif(onnxruntime.__version__ < "1.28", reason="the rules are those of 1.28 and newer"),
]


def in_words(findings: dict) -> str:
    return "\n".join(f"{found.what} {dict(key[1:])} {found.detail}" for key, found in findings.items())


@pytest.mark.parametrize(
    "all_changes",
    [
        {"Conv": {"bias": "fit"}, "Gemm": {"bias": "fit"}, "MatMul": {}, "Add": {"w": "u8"}},
        *(
            pytest.param({op: changes for op in structures.FEATURES["op"]}, marks=pytest.mark.long)
            for changes in ({}, {"w": "u8"}, {"a": "s8", "a_from": "float"})
        ),
    ],
    ids=["usual", "without a bias", "u8 weights", "s8 activations"],
)
def test_each_unusual_feature(all_changes):
    """Operators with each value of one feature. `all_changes`: what else is unusual, by operator."""
    usual, checked = {name: values[0] for name, values in structures.FEATURES.items()}, 0
    findings = {}
    with tempfile.TemporaryDirectory() as folder:
        for op, changes in all_changes.items():
            for name, values in structures.FEATURES.items():
                for value in dict.fromkeys(values):
                    s = structures.normal({**usual, "op": op, **changes, name: value})
                    if s["op"] != op or s[name] != value:
                        continue
                    try:
                        found = structures.examine(s, 40, folder)
                    except structures.Invalid:
                        continue
                    checked += 1
                    if found:
                        findings[(found.what, *s.items())] = found
    assert checked > 100 and not findings, in_words(findings)


# Structures that once differed, shrunk: what the audit's rules said, what the provider took, or its bytes.
SHRUNK = [
    {"op": "MatMul", "a": "s16"},
    {"op": "Gemm", "a": "u16", "bias": "fit"},
    {"op": "Gemm", "a": "s16", "behind": "two quantizers"},
    {"op": "Gemm", "a": "s16", "a_through": "transpose"},
    {"op": "Gemm", "a": "s16", "a_scale": "from run", "bias": "float"},
    {"op": "MatMul", "w_scale": "blocks"},
    {"w_scale": "blocks", "y": "u16"},
    {"w_scale": "blocks", "y": "s16"},
    {"op": "MatMul", "a": "u16", "w_scale": "blocks"},
    {"bias": "fit", "w_scale": "blocks"},
    {"a": "s8", "w_scale": "blocks"},
    {"op": "Gemm", "w_scale": "rows"},
    {"op": "MatMul", "w_scale": "column", "batch": "3-d"},
    {"op": "Gemm", "behind": "quantize and float", "y_through": "identity"},
    {"op": "Gemm", "behind": "two quantizers", "y_through": "reshape"},
    {"op": "MatMul", "behind": "clip", "y_through": "reshape"},
    {"behind": "relu", "y_through": "identity"},
    {"op": "Gemm", "behind": "clip", "constants": "overridable"},
    {"op": "Gemm", "behind": "relu", "constants": "overridable"},
    {"op": "Gemm", "a": "s8", "constants": "overridable", "y_read": "by a dequantizer"},
    {"op": "MatMul", "a": "s8", "a_through": "transpose", "behind": "float", "opset": 13},
    {"op": "Gemm", "a": "s8", "a_through": "reshape", "opset": 13},
    {"op": "Gemm", "w": "u8", "y_through": "transpose"},
    {"op": "MatMul", "a_from": "float, not quantized", "behind": "relu"},
    {"op": "Gemm", "a_from": "float, not quantized", "behind": "relu, float"},
    {"op": "MatMul", "a_from": "float, not quantized", "behind": "relu, two readers", "w_shared": True},
    {"op": "MatMul", "a_from": "float, not quantized", "y": "u16"},
    {"op": "MatMul", "a_from": "float, not quantized", "behind": "float", "w_through": "identity"},
    {
        "op": "MatMul",
        "a_from": "float, not quantized",
        "added": "float",
        "batch": "3-d A",
        "behind": "an output too",
    },
    {"op": "MatMul", "a_through": "reshape", "added": "sum of run"},
    {"op": "Gemm", "a_through": "reshape", "a_scale": "from run"},
    {"op": "Conv", "constant_w": False},
    {"constant_w": False, "opset": 19, "w_through": "reshape"},
    {"constants": "overridable", "w_through": "transpose"},
    {"op": "Softmax", "depth": 1},
    {"op": "Gemm", "a": "s8", "bias": "tiny", "next": "a layer", "y_read": "by a dequantizer"},
    {"op": "Mul", "a": "s8", "a_zero": "one", "next": "a layer", "y_read": "by a dequantizer"},
    {
        "op": "Add",
        "a": "s8",
        "y_scale": "one",
        "next": "a layer",
        "y_read": "by a dequantizer",
        "behind": "relu",
    },
    {"op": "Gemm", "a": "s16", "y_read": "by a dequantizer", "constants": "nodes"},
    {"op": "Gemm", "a": "s16", "a_from": "float", "constants": "nodes"},
    {"op": "MatMul", "exchanged": True, "w_through": "transpose"},
    {"op": "MatMul", "exchanged": True, "w_through": "reshape", "w": "u8"},
    {"op": "MatMul", "batch": "3-d A", "added": "float", "behind": "relu"},
    {"op": "MatMul", "batch": "3-d A", "added": "float", "y_zero": "from run"},
    {"op": "MatMul", "batch": "3-d A", "added": "float", "opset": 11, "y": "s8"},
    {"op": "MatMul", "batch": "3-d A", "added": "float", "a": "u16", "a_scale": "from run"},
    {"op": "MatMul", "batch": "3-d A", "added": "dequantized", "opset": 13, "a": "s8"},
    {
        "op": "MatMul",
        "batch": "3-d A",
        "added": "dequantized",
        "opset": 13,
        "a": "s8",
        "a_through": "identity",
    },
    {
        "op": "MatMul",
        "batch": "3-d A",
        "added": "dequantized",
        "a_scale": "channels",
        "behind": "quantize and float",
    },
    {"op": "MatMul", "added": "float", "a": "s16", "a_scale": "one", "behind": "two quantizers"},
    {"op": "Gemm", "a": "u16", "y_through": "identity", "behind": "two quantizers", "w_through": "transpose"},
    {"op": "Gemm", "a": "s8", "a_from": "float, shared", "a_zero": "from run"},
    {"w_scale": "from run", "w_through": "transpose"},
    {
        "op": "Gemm",
        "a": "s8",
        "w_scale": "from run",
        "w_through": "transpose",
        "behind": "quantize and float",
        "y_through": "reshape",
    },
    {"op": "MatMul", "y": "s8", "y_zero": "one", "behind": "clip", "y_read": "by a dequantizer"},
    {"a_scale": "channels", "bias": "float", "w_scale": "one"},
    {"w_shared": True, "w_through": "transpose"},
    {"op": "Gemm", "w_scale": "from run", "w_through": "transpose", "w_shared": True, "constant_w": False},
    {"op": "Gemm", "a": "u16", "bias": "fit", "trans_b": 1, "w_through": "transpose"},
    {"op": "MatMul", "depth": 1, "w_scale": "blocks"},
    {"op": "MatMul", "depth": 1, "w_scale": "blocks", "behind": "float"},
    {"op": "MatMul", "y_zero": "one", "behind": "clip", "y_read": "by a dequantizer"},
    {"op": "Softmax", "depth": 1, "behind": "clip"},
    {"op": "Softmax", "depth": 1, "a_through": "transpose", "y_through": "reshape"},
]


@pytest.mark.parametrize(
    "changes", SHRUNK, ids=lambda changes: ", ".join(f"{name} {value}" for name, value in changes.items())
)
def test_a_structure_that_once_differed(changes, tmp_path):
    usual = {name: values[0] for name, values in structures.FEATURES.items()}
    s = {**usual, **changes}
    assert structures.normal(s) == s
    try:
        found = structures.examine(s, 14125, str(tmp_path))
    except structures.Invalid:
        pytest.skip("this ONNX Runtime does not run the structure")
    assert found is None, (found.what, found.detail)


def test_a_softmax_that_onnxruntime_computes_in_floats(tmp_path):
    """Its int8 input is not moved to u8, its output is. If intact hid the output from ONNX Runtime, both would have one type."""
    usual = {name: values[0] for name, values in structures.FEATURES.items()}
    s = {**usual, "op": "Softmax", "a": "s8", "next": "a layer", "y_read": "by a dequantizer"}
    found = [structures.examine(s, seed, str(tmp_path)) for seed in range(14100, 14150)]
    assert not any(found), found


def test_a_difference_needs_the_reason_of_its_own_node(tmp_path, monkeypatch):
    """A note on a node that no output depends on excuses nothing."""
    s = {
        **{name: values[0] for name, values in structures.FEATURES.items()},
        "op": "Gemm",
        "bias": "other",
        "a_from": "bytes, shared",
    }
    reasons = Counter()
    assert structures.examine(s, 3, str(tmp_path), reasons) is None and "ONNX Runtime assumes" in next(
        iter(reasons)
    )
    report = intact.onnxruntime.report

    def with_the_note_elsewhere(session):
        nodes = report(session)
        note = next(node.pop("note") for node in nodes if "note" in node and node["name"] == "layer")
        return [
            {key: value for key, value in node.items() if key != "note"}
            | ({"note": note} if node["name"] == "other" else {})
            for node in nodes
        ]

    monkeypatch.setattr(intact.onnxruntime, "report", with_the_note_elsewhere)
    assert structures.examine(s, 3, str(tmp_path)).what == "bytes"


def test_random_structures():
    findings = structures.search(100, begin=1).findings
    assert not findings, in_words(findings)


@pytest.mark.long
def test_more_random_structures():
    findings = structures.search(4000, begin=100000).findings
    assert not findings, in_words(findings)


def test_a_difference_is_found_and_shrunk(monkeypatch):
    """If the audit's rules ignored zero points, a group of one unusual feature would show it."""
    changed = {
        "groups": {**_rules()["groups"], "Gemm": {**_rules()["groups"]["Gemm"], "needs_zero_points": False}}
    }
    monkeypatch.setattr("intact._graph.fusion.rules", lambda: {**_rules(), **changed})
    usual = {name: values[0] for name, values in structures.FEATURES.items()}
    s = {**usual, "op": "Gemm", "a_zero": "absent", "w": "u8", "a_scale": "one", "opset": 13}
    with tempfile.TemporaryDirectory() as folder:
        found = structures.examine(s, 1, folder)
        assert found.what == "rules"
        assert structures.shrink(found, 1, folder).structure == {**usual, "op": "Gemm", "a_zero": "absent"}


def _rules() -> dict:
    import json

    return json.loads(Path(intact.__file__).with_name("onnxruntime_rules.json").read_text())


def one_element(op: str, bias: list, scale: object, zero: object = None, alpha: float = 1.0) -> bytes:
    """DequantizeLinear, a Conv or Gemm of one input channel with weights 1, QuantizeLinear; all other scales are 1."""
    node, n = onnx.helper.make_node, len(bias)
    per_channel = np.ndim(scale) > 0
    constants = {
        "xs": np.float32(1),
        "xz": np.uint8(0),
        "w": np.ones((n, 1, 1, 1) if op == "Conv" else (1, n), np.int8),
        "ws": np.ones(n, np.float32) if per_channel else np.float32(1),
        "wz": np.zeros(n, np.int8) if per_channel else np.int8(0),
        "b": np.int32(bias),
        "bs": np.float32(scale),
        "ys": np.float32(1),
        "yz": np.uint8(0),
    }
    names = ["b", "bs"]
    if zero is not None:
        constants["bz"] = np.int32(zero)
        names.append("bz")
    axis = {"axis": 0 if op == "Conv" else 1} if per_channel else {}
    nodes = [
        node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], **axis),
        node("DequantizeLinear", names, ["bf"], **({"axis": 0} if per_channel else {})),
        node(op, ["xf", "wf", "bf"], ["c"], name="layer", **({"alpha": alpha} if op == "Gemm" else {})),
        node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    return layers.model_of(
        nodes, {"x": (np.uint8, [1, 1, 1, 1] if op == "Conv" else [1, 1])}, {"y": (np.uint8, None)}, constants
    )


BIASES = {
    "scale 2": ([5], 2.0, None, [20]),
    "zero point 3": ([5], 1.0, 3, [12]),
    "of a channel": ([5, 5], [1.0, 3.0], None, [15, 25]),
    "scale 0.5": ([5], 0.5, None, [12]),
    "scale 1.005": ([100], 1.005, None, [110]),
    "scale 1.02": ([100], 1.02, None, [112]),
    "fits": ([5], 1.0, None, [15]),
}


@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("op", ["Conv", "Gemm"])
def test_a_bias_has_the_scale_that_the_model_gives_it(op, name, tmp_path):
    bias, scale, zero, right = BIASES[name]
    model = one_element(op, bias, scale, zero)
    given = {"x": np.full([1, 1, 1, 1] if op == "Conv" else [1, 1], 10, np.uint8)}
    session, like = session_of(model), session_of(model, like=LIKE)
    assert session.run(None, given)[0].ravel().tolist() == right
    stock_gives = cpu_session_of(model).run(None, given)[0].ravel().tolist()
    assert like.run(None, given)[0].ravel().tolist() == stock_gives
    notes = [node["note"] for node in intact.onnxruntime.report(session) if "note" in node]
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    audited = [layer.layer.note for layer in intact.audit(path).layers]
    if stock_gives != right:
        assert "ONNX Runtime" in notes[0] and "which ONNX Runtime ignores" in audited[0]
        values = {
            tensor.name: onnx.numpy_helper.to_array(tensor)
            for tensor in onnx.load_from_string(model).graph.initializer
        }
        weights = values["w"].astype(np.float32) * (
            values["ws"].reshape(-1, 1, 1, 1) if op == "Conv" else values["ws"]
        )
        node = onnx.helper.make_node(op, ["f", "w"], ["y"], name="layer")
        floats = layers.model_of(
            [node], {"f": (np.float32, list(given["x"].shape))}, {"y": (np.float32, None)}, {"w": weights}
        )
        (tmp_path / "float.onnx").write_bytes(floats)
        np.savez(tmp_path / "data.npz", **given, f=given["x"].astype(np.float32))
        from intact._compare.compare import compare
        from intact._compare.report import to_text

        assert "which ONNX Runtime ignores" in to_text(
            compare(path, tmp_path / "float.onnx", tmp_path / "data.npz")
        )
    if name == "fits":
        assert not notes and audited == [""]


@pytest.mark.parametrize(
    "op_and_attributes",
    [
        ("MaxPool", {"kernel_shape": [2, 2]}),
        ("Softmax", {"axis": -1}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("LeakyRelu", {"alpha": 0.1}),
        ("HardSigmoid", {}),
        ("Gelu", {}),
        ("Relu", {}),
        ("Sqrt", {}),
        ("HardSwish", {}),
        ("Neg", {}),
        ("Round", {}),
        ("Erf", {}),
        ("Swish", {}),
    ],
    ids=lambda each: each[0],
)
@pytest.mark.parametrize("shape_of_scales", [(), (1,)])
@pytest.mark.parametrize("has_zero_points", [True, False])
def test_unary_groups(op_and_attributes, shape_of_scales, has_zero_points):
    """MaxPool, Softmax and functions of bytes, with scales of the shape [1] and without zero points."""
    (op, attributes), node, rng = op_and_attributes, onnx.helper.make_node, np.random.default_rng(5)
    y_scale = {"MaxPool": 0.05, "Softmax": 1 / 256}.get(op, 0.04)
    shape = [1, 3, 6, 6] if op == "MaxPool" else [3, 40]
    constants = {
        "s": np.full(shape_of_scales, 0.05, np.float32),
        "z": np.full(shape_of_scales, 40, np.uint8),
        "ys": np.full(shape_of_scales, y_scale, np.float32),
        "yz": np.full(shape_of_scales, 0 if op == "Softmax" else 40, np.uint8),
    }
    body = (
        [node("Sigmoid", ["xf"], ["g"]), node("Mul", ["xf", "g"], ["p"])]
        if op == "Swish"
        else [node(op, ["xf"], ["p"], **attributes)]
    )
    nodes = [
        node("DequantizeLinear", ["x", "s"] + ["z"] * has_zero_points, ["xf"]),
        *body,
        node("QuantizeLinear", ["p", "ys"] + ["yz"] * has_zero_points, ["y"]),
    ]
    model = layers.model_of(nodes, {"x": (np.uint8, shape)}, {"y": (np.uint8, None)}, constants, opset=20)
    given = {"x": rng.integers(0, 256, shape).astype(np.uint8)}
    assert (
        session_of(model).run(None, given)[0].tobytes() == cpu_session_of(model).run(None, given)[0].tobytes()
    )


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 21, reason="this onnx has no blocks")
@pytest.mark.parametrize("op", ["Conv", "MatMul"])
@pytest.mark.parametrize("axis", [0, 1])
def test_weights_in_blocks_beside_quantized_activations(op, axis):
    """ONNX Runtime makes an integer operator that fails in each run, of MatMul with a float output, of Conv with a quantized one."""
    rng, node, f32 = np.random.default_rng(3), onnx.helper.make_node, np.float32
    shape = (4, 6, 1, 1) if op == "Conv" else (6, 4)
    blocks = [extent // 2 if i == axis else extent for i, extent in enumerate(shape)]
    constants = {
        "xs": f32(0.05),
        "xz": np.uint8(99),
        "w": rng.integers(-128, 128, shape).astype(np.int8),
        "ws": rng.uniform(0.1, 0.4, blocks).astype(f32),
        "wz": rng.integers(-9, 9, blocks).astype(np.int8),
        "ys": f32(4),
        "yz": np.uint8(128),
    }
    nodes = [
        node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=axis, block_size=2, name="weights"),
        node(op, ["xf", "wf"], ["p"], name="layer"),
        node("QuantizeLinear", ["p", "ys", "yz"], ["y"]) if op == "Conv" else node("Neg", ["p"], ["y"]),
    ]
    extents = [1, 6, 3, 3] if op == "Conv" else [2, 6]
    model = onnx.load_from_string(
        layers.model_of(
            nodes,
            {"x": (np.uint8, extents)},
            {"y": (np.uint8 if op == "Conv" else f32, None)},
            constants,
            opset=21,
        )
    )
    model.ir_version = 10
    given = {"x": rng.integers(0, 256, extents).astype(np.uint8)}
    session = session_of(model.SerializeToString())
    report = {each["name"]: each for each in intact.onnxruntime.report(session)}
    assert "fails in each run" in report["weights"]["note"]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, given)[0]
    assert np.abs(session.run(None, given)[0] - expected.astype(float)).max() < 1e-3
    with pytest.raises(Exception, match="QLinearConv|MatMulIntegerToFloat"):
        cpu_session_of(model.SerializeToString()).run(None, given)


def test_a_gemm_with_alpha_and_a_bias():
    given = {"x": np.full([1, 1], 10, np.uint8)}
    model = one_element("Gemm", [8], 1.0, alpha=2.0)
    session = session_of(model)
    assert (
        session.run(None, given)[0].tolist() == cpu_session_of(model).run(None, given)[0].tolist() == [[28]]
    )
    assert [node["reason"] for node in intact.onnxruntime.report(session) if node["name"] == "layer"] == [
        "alpha: is not 1 with a bias, where ONNX Runtime computes floats; expected 1"
    ]


@pytest.mark.parametrize("free", ["xs", "xz", "ws", "bs", "b", "ys"])
@pytest.mark.parametrize("op", ["Conv", "Gemm"])
@pytest.mark.parametrize("is_overridden", [False, True])
def test_scales_that_a_caller_gives(op, free, is_overridden):
    """The model's scale or bias is an input, or an initializer that is also an input, and gets another value."""
    rng, node, f32 = np.random.default_rng(42), onnx.helper.make_node, np.float32
    constants = {
        "xs": f32(0.05),
        "xz": np.uint8(99),
        "w": rng.integers(-127, 128, (4, 6, 1, 1) if op == "Conv" else (6, 4)).astype(np.int8),
        "ws": f32(0.02),
        "wz": np.int8(0),
        "b": rng.integers(-500, 500, 4).astype(np.int32),
        "bs": f32(0.05) * f32(0.02),
        "ys": f32(0.11),
        "yz": np.uint8(77),
    }
    other = {
        "xs": f32(0.06),
        "xz": np.uint8(33),
        "ws": f32(0.03),
        "bs": f32(0.004),
        "b": constants["b"][::-1].copy(),
        "ys": f32(0.2),
    }[free]
    nodes = [
        node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        node("DequantizeLinear", ["b", "bs"], ["bf"]),
        node(op, ["xf", "wf", "bf"], ["p"], name="layer"),
        node("QuantizeLinear", ["p", "ys", "yz"], ["y"]),
    ]
    shape = [1, 6, 3, 3] if op == "Conv" else [2, 6]
    stored = (
        constants if is_overridden else {name: value for name, value in constants.items() if name != free}
    )
    model = layers.model_of(
        nodes,
        {"x": (np.uint8, shape), free: (other.dtype, list(np.shape(other)))},
        {"y": (np.uint8, None)},
        stored,
    )
    given = {"x": rng.integers(0, 256, shape).astype(np.uint8), free: np.asarray(other)}
    assert (
        session_of(model).run(None, given)[0].tobytes() == cpu_session_of(model).run(None, given)[0].tobytes()
    )
