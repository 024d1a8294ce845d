"""The execution provider against exact arithmetic and against ONNX Runtime's own CPU provider: every byte."""

from __future__ import annotations

import concurrent.futures
import ctypes
import importlib
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", minversion="1.23", reason="needs onnxruntime 1.23")
onnx = pytest.importorskip("onnx", reason="needs onnx")

import intact
import intact.onnxruntime
import layers
import stock

if not Path(intact.__file__).with_name("libintact_onnxruntime_ep.so").exists():
    pytest.skip("needs a build with INTACT_BUILD_ONNXRUNTIME=ON", allow_module_level=True)

# ONNX Runtime's own kernels clamp sums to int16 on other CPUs.
CPU_IS_EXACT = stock.cpu_has_vnni()

LIKE = "onnxruntime:avx2"
long = pytest.mark.long


def emulated(test: Callable) -> Callable:
    """Marks a test that needs a CPU with AVX2 and no VNNI, or its emulator."""
    needs_cpu = pytest.mark.skipif(
        not stock.can_run(CPU_IS_EXACT), reason=f"needs {stock.EMULATOR[0]} (qemu-user)"
    )
    return pytest.mark.emulated(needs_cpu(test))


def quick_and_long(quick: range, count: int) -> list:
    """Parameters: the seeds of quick runs, and the other seeds below `count`, which only long runs have."""
    others = [seed for seed in range(count) if seed not in quick]
    return [pytest.param(quick, id="quick"), pytest.param(others, id="long", marks=long)]


def session_of(model: bytes, threads: int = 1, **arguments) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    intact.onnxruntime.add(options, **arguments)
    return onnxruntime.InferenceSession(model, options)


def cpu_session_of(model: bytes) -> onnxruntime.InferenceSession:
    """On one thread: with more, DynamicQuantizeLSTM has a range for each part of a batch."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def assert_taken(session: onnxruntime.InferenceSession) -> None:
    assert [node for node in intact.onnxruntime.report(session) if not node["taken"]] == []


def run(session: onnxruntime.InferenceSession, given: dict) -> np.ndarray:
    return stock.joined(session.run(None, given))


def assert_same(computed: np.ndarray, expected: np.ndarray, of: str) -> None:
    assert (computed.dtype, computed.shape) == (expected.dtype, expected.shape), of
    different = computed.view(np.uint8) != np.ascontiguousarray(expected).view(np.uint8)
    assert not different.any(), f"{of}: {np.count_nonzero(different)} of {different.size} bytes differ"


@pytest.mark.parametrize("operator", layers.OPERATORS, ids=lambda operator: operator.__name__)
@pytest.mark.parametrize("seed", range(25))
def test_operators_are_exact(operator, seed):
    layer = operator(seed)
    sessions = {isa: session_of(layer.model, max_isa=isa) for isa in (None, "avx2", "avx512", "portable")}
    sessions["threads"] = session_of(layer.model, threads=4)
    cpu = cpu_session_of(layer.model) if layer.on_cpu and CPU_IS_EXACT else None
    for session in sessions.values():
        assert_taken(session)
    for _ in range(3):
        given = layer.inputs()
        expected = layer.exact(given)
        for name, session in sessions.items():
            assert_same(run(session, given), expected, name)
        if cpu:
            assert_same(run(cpu, given), expected, "ONNX Runtime's CPU provider")


@pytest.mark.parametrize("seed", range(2))
def test_recurrent_weights_that_l2_does_not_hold(seed):
    layer = layers.dynamic_quantize_lstm(seed, hidden=1024)
    given = layer.inputs()
    expected = layer.exact(given)
    for threads in (1, 3):
        assert_same(run(session_of(layer.model, threads), given), expected, f"{threads} threads")


def test_a_sigmoid_may_be_larger_than_one():
    """Without weights, the gates are the bias."""
    gate = np.concatenate(
        [np.float32([17.482065, 17.631031, 17.695677, 17.807888]), np.linspace(-20, 20, 60, dtype=np.float32)]
    )
    hidden, one = len(gate), np.ones(len(gate), np.float32)
    assert layers.sigmoid(gate).max() > 1
    weights = [np.zeros((1, depth, 4 * hidden), np.int8) for depth in (1, hidden)]
    bias = np.concatenate([gate, gate, gate, one, np.zeros(4 * hidden, np.float32)])[np.newaxis]
    scale, zero, state = np.ones(1, np.float32), np.zeros(1, np.int8), one.reshape(1, 1, -1)
    model = layers.one_node(
        "DynamicQuantizeLSTM",
        [
            ("x", (np.float32, ["steps", 1, 1])),
            ("w", weights[0]),
            ("r", weights[1]),
            ("bias", bias),
            ("lengths", None),
            ("h", state),
            ("c", state),
            ("p", None),
            ("ws", scale),
            ("wz", zero),
            ("rs", scale),
            ("rz", zero),
        ],
        (np.float32, None),
        layers.MICROSOFT,
        hidden_size=hidden,
    )
    sigmoids = layers.sigmoid(gate)
    expected = layers.tanh(sigmoids + sigmoids * layers.tanh(one)) * sigmoids
    for session in (session_of(model), cpu_session_of(model), session_of(model, max_isa="portable")):
        assert_same(session.run(None, {"x": np.zeros((1, 1, 1), np.float32)})[0].ravel(), expected, "")


def test_scales_are_multiplied_in_onnx_runtimes_order():
    """Enough outputs that the last bit of a scale decides how some are rounded."""
    r = layers.Random(7)
    rows, depth, columns = 4096, 3, 256
    a, b = r.integers(np.uint8, (rows, depth)), r.integers(np.int8, (depth, columns))
    a_scale, b_scale, zero = r.scale(), r.scale(columns), np.uint8(128)
    sums = layers.product(a, zero, b, 0)
    y_scale = np.float32(np.abs(sums).max() * a_scale * b_scale.min() / 128)
    expected = layers.quantized(sums, a_scale * b_scale / y_scale, zero)
    for other in (a_scale * (b_scale / y_scale), a_scale / y_scale * b_scale):
        assert (layers.quantized(sums, other, zero) != expected).any()
    model = layers.one_node(
        "QLinearMatMul",
        [
            ("a", (np.uint8, None)),
            ("a_scale", a_scale),
            ("a_zero", zero),
            ("b", b),
            ("b_scale", b_scale),
            ("b_zero", np.zeros(columns, np.int8)),
            ("y_scale", y_scale),
            ("y_zero", zero),
        ],
        (np.uint8, None),
    )
    assert_same(session_of(model).run(None, {"a": a})[0], expected, "intact")
    if CPU_IS_EXACT:
        assert_same(cpu_session_of(model).run(None, {"a": a})[0], expected, "ONNX Runtime's CPU provider")


BYTES = np.arange(256, dtype=np.uint8)


def operands(a_shape: list, b_shape: list) -> list[tuple]:
    """Of a run each. All pairs of bytes; with an operand of one element, all pairs with every fifth byte."""
    if a_shape == b_shape == [65536]:
        return [(np.repeat(BYTES, 256), np.tile(BYTES, 256))]
    single = BYTES[::5] if 1 in (np.prod(a_shape), np.prod(b_shape)) else BYTES[:1]
    of_shape = lambda shape, one: np.reshape(np.asarray(BYTES if np.prod(shape) == 256 else one), shape)
    return [(of_shape(a_shape, one), of_shape(b_shape, one)) for one in single]


@pytest.mark.parametrize(
    "a_shape, b_shape",
    [
        ([65536], [65536]),
        ([256, 1], [1, 256]),
        ([1, 256], [256, 1]),
        ([256], []),
        ([], [256]),
        ([2, 128, 1, 1], []),
        ([], [2, 128, 1, 1]),
        ([2, 128, 1, 1], [1, 1]),
        ([1], [2, 128, 1, 1]),
        ([2, 128, 1, 1], [1, 1, 1, 1]),
    ],
)
@pytest.mark.parametrize("seeds", quick_and_long(range(10, 14), 30))
def test_sums_are_rounded_as_onnx_runtime_rounds_them(a_shape, b_shape, seeds):
    """Enough outputs that the order of A and B decides how some are rounded."""
    decided = 0
    for r in map(layers.Random, seeds):
        a_scale, b_scale, y_scale = r.scale(), r.scale(), r.scale()
        a_zero, b_zero, y_zero = (r.integers(np.uint8) for _ in range(3))
        model = layers.one_node(
            "QLinearAdd",
            [
                ("a", (np.uint8, None)),
                ("a_scale", a_scale),
                ("a_zero", a_zero),
                ("b", (np.uint8, None)),
                ("b_scale", b_scale),
                ("b_zero", b_zero),
                ("y_scale", y_scale),
                ("y_zero", y_zero),
            ],
            (np.uint8, None),
            layers.MICROSOFT,
        )
        sessions = {
            "intact": session_of(model),
            "portable": session_of(model, max_isa="portable"),
            "ONNX Runtime's CPU provider": cpu_session_of(model),
        }
        scales, zeros = (a_scale, b_scale, y_scale), (a_zero, b_zero, y_zero)
        for a, b in operands(a_shape, b_shape):
            expected = layers.added(a, b, scales, zeros)
            for name, session in sessions.items():
                assert_same(session.run(None, {"a": a, "b": b})[0], expected, name)
            x, y = (value.ravel() for value in np.broadcast_arrays(a, b))
            other = layers.added(y, x, (b_scale, a_scale, y_scale), (b_zero, a_zero, y_zero))
            decided += (layers.added(x, y, scales, zeros) != other).sum()
    assert decided > 0


def test_products_of_tensors_are_rounded_as_onnx_runtime_rounds_them():
    """Half of the products are almost ties, so the last bit of the ratio decides how they are rounded."""
    r = layers.Random(12)
    (a, b), decided = operands([65536], [65536])[0], 0
    for _ in range(20):
        a_scale, b_scale, a_zero, b_zero, y_zero = (
            r.scale(),
            r.scale(),
            r.integers(np.uint8),
            r.integers(np.uint8),
            np.uint8(0),
        )
        y_scale = np.float32(np.float64(a_scale) * np.float64(b_scale) * r.one_of(2, 6, 100))
        model = layers.one_node(
            "QLinearMul",
            [
                ("a", (np.uint8, None)),
                ("a_scale", a_scale),
                ("a_zero", a_zero),
                ("b", (np.uint8, None)),
                ("b_scale", b_scale),
                ("b_zero", b_zero),
                ("y_scale", y_scale),
                ("y_zero", y_zero),
            ],
            (np.uint8, None),
            layers.MICROSOFT,
        )
        scales, zeros = (a_scale, b_scale, y_scale), (a_zero, b_zero, y_zero)
        expected = layers.multiplied(a, b, scales, zeros)
        for session in (session_of(model), session_of(model, max_isa="portable"), cpu_session_of(model)):
            assert_same(session.run(None, {"a": a, "b": b})[0], expected, f"{scales}, {zeros}")
        decided += (expected != layers.multiplied(a, b, scales, zeros, a_scale * (b_scale / y_scale))).sum()
    assert decided > 0


NETWORKS = {
    "cnn": (
        [
            ("conv", 16, 3, 2, 1),
            ("max",),
            ("conv", 16, 3, 1, 1),
            ("conv", 16, 3, 1, 1),
            ("add", 2),
            ("conv", 16, 3, 1, 16),
            ("conv", 24, 1, 1, 1),
            ("pool",),
            ("gemm", 10),
        ],
        [2, 3, 31, 33],
    ),
    "mlp": ([("matmul", 200), ("matmul", 65)] * 2, [17, 64]),
}
LAYERS = {"cnn": 6, "mlp": 4}


def quantized_network(name: str, how: str, signed: bool = False) -> tuple[bytes, dict]:
    networks = pytest.importorskip("networks", reason="needs onnxruntime.quantization")
    shape, rng = NETWORKS[name][1], np.random.default_rng(2)
    model = networks.quantized(networks.network(*NETWORKS[name]), how, shape, signed)
    return model, {"x": rng.normal(size=shape).astype(np.float32)}


QUANTIZED = [
    ("cnn", "QOperator", False),
    ("cnn", "QDQ", False),
    ("cnn", "QDQ", True),
    ("mlp", "QOperator", False),
    ("mlp", "QDQ", False),
    ("mlp", "QDQ", True),
    ("cnn", "dynamic", False),
    ("mlp", "dynamic", False),
]


@pytest.mark.parametrize("name, how, signed", QUANTIZED)
def test_networks_equal_the_cpu_provider(name, how, signed):
    model, given = quantized_network(name, how, signed)
    session = session_of(model, threads=2)
    main = {"QLinearConv", "QGemm", "QLinearMatMul", "ConvInteger", "MatMulInteger", "Conv", "Gemm", "MatMul"}
    nodes = [node for node in intact.onnxruntime.report(session) if node["op"] in main]
    assert len(nodes) == LAYERS[name]
    # A tensor that two nodes read stays s8, and ONNX Runtime computes the convolution behind it in floats.
    floats = ["conv2"] if (name, how, signed) == ("cnn", "QDQ", True) else []
    assert [node["name"] for node in nodes if not node["taken"]] == floats
    if name == "cnn" and how != "dynamic":  # with s8 tensors ONNX Runtime computes the residual in floats
        assert [node["taken"] for node in intact.onnxruntime.report(session) if "Add" in node["op"]] == [
            not signed
        ]
    expected = session.run(None, given)[0]
    for isa in ("avx2", "avx512"):
        assert_same(session_of(model, max_isa=isa).run(None, given)[0], expected, isa)
    if CPU_IS_EXACT:
        assert_same(cpu_session_of(model).run(None, given)[0], expected, "ONNX Runtime's CPU provider")


def random_networks(how: str, seeds: range, signed: bool = False) -> list[tuple[bytes, dict]]:
    networks = pytest.importorskip("networks", reason="needs onnxruntime.quantization")
    shape = networks.RANDOM_SHAPE
    return [
        (
            networks.quantized(networks.random_network(seed), how, shape, signed),
            {"x": np.random.default_rng(seed).normal(size=shape).astype(np.float32)},
        )
        for seed in seeds
    ]


@pytest.mark.skipif(not CPU_IS_EXACT, reason="needs VNNI")
@pytest.mark.parametrize("how, signed", [("QOperator", False), ("QDQ", False), ("QDQ", True)])
def test_random_networks_equal_the_cpu_provider(how, signed):
    """What is between convolutions decides where ONNX Runtime transposes."""
    for seed, (model, given) in enumerate(random_networks(how, range(30), signed)):
        assert_same(run(session_of(model), given), run(cpu_session_of(model), given), f"network {seed}")


@emulated
@pytest.mark.parametrize("how, signed", [("QOperator", False), ("QDQ", False), ("QDQ", True)])
@pytest.mark.parametrize("seeds", quick_and_long(range(8), 30))
def test_random_networks_are_like_stock_ones_on_avx2(how, signed, seeds):
    made = random_networks(how, seeds, signed)
    stock_outputs = stock.outputs_on_avx2([(model, [given]) for model, given in made], CPU_IS_EXACT)
    clamped = 0
    for seed, (model, given), (expected,) in zip(seeds, made, stock_outputs):
        assert_same(run(session_of(model, like=LIKE), given), expected, f"network {seed}")
        clamped += (run(session_of(model), given) != expected).any()
    assert clamped > len(seeds) / 6


def operators_of_run(model: bytes, given: dict, folder: Path) -> list[str]:
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
    intact.onnxruntime.add(options)
    session = onnxruntime.InferenceSession(model, options)
    session.run(None, given)
    events = json.loads(Path(session.end_profiling()).read_text())
    return [event["args"]["op_name"] for event in events if event["name"].endswith("_kernel_time")]


@pytest.mark.parametrize("how", ["QOperator", "QDQ"])
def test_layers_in_a_row_are_one_node(how, tmp_path):
    """Its layers pass on channels last, so that ONNX Runtime transposes nothing."""
    networks = pytest.importorskip("networks", reason="needs onnxruntime.quantization")
    shape = [1, 3, 20, 20]
    model = networks.quantized(
        networks.network(
            [
                ("conv", 8, 3, 1, 1),
                ("conv", 8, 3, 1, 1),
                ("conv", 8, 3, 1, 1),
                ("add", 2),
                ("conv", 8, 3, 1, 8),
            ],
            shape,
        ),
        how,
        shape,
    )
    operators = operators_of_run(model, {"x": np.ones(shape, np.float32)}, tmp_path)
    assert [operator.split("_")[0] for operator in operators] == [
        "QuantizeLinear",
        intact.onnxruntime.NAME,
        "DequantizeLinear",
    ]


def test_another_node_divides_a_chain(tmp_path):
    """An output of the model, the other node and a sum that broadcasts also read what a convolution passes on to a convolution.
    Because of a sum of int8 tensors intact does not ask for NHWC."""
    networks = pytest.importorskip("networks", reason="needs onnxruntime.quantization")
    shape, r = [2, 3, 9, 9], layers.Random(8)
    node = onnx.helper.make_node
    nodes = [
        node("Conv", ["x", "v"], ["a"]),
        node("Conv", ["a", "w"], ["b"]),
        node("AveragePool", ["a"], ["p"], kernel_shape=[3, 3], pads=[1] * 4),
        node("Add", ["b", "p"], ["m"]),
        node("Conv", ["m", "w"], ["y"]),
        node("Add", ["a", "bias"], ["c"]),
        node("Add", ["b", "c"], ["z"]),
    ]
    weights = {
        name: r.integers(np.int8, size).astype(np.float32)
        for name, size in (("v", (7, 3, 3, 3)), ("w", (7, 7, 1, 1)), ("bias", (7, 1, 1)))
    }
    outputs = {name: (np.float32, None) for name in "yaz"}
    made = onnx.load_from_string(layers.model_of(nodes, {"x": (np.float32, shape)}, outputs, weights))
    quantized = networks.quantized(onnx.shape_inference.infer_shapes(made), "QDQ", shape)
    ends = [
        node("DequantizeLinear", ["s", "one", "zero"], ["s_f"]),
        node("DequantizeLinear", ["t", "one", "zero"], ["t_f"]),
        node("Add", ["s_f", "t_f"], ["u_f"]),
        node("QuantizeLinear", ["u_f", "one", "zero"], ["u"]),
    ]
    constants = {"one": np.float32(1), "zero": np.int8(0)}
    integers = {name: (np.int8, [2, 5]) for name in "stu"}
    u = integers.pop("u")
    of_s8 = onnx.load_from_string(layers.model_of(ends, integers, {"u": u}, constants))
    both = onnx.compose.merge_models(onnx.load_from_string(quantized), of_s8, [])
    model = both.SerializeToString()
    given = {name: r.integers(np.int8, size) for name, (_, size) in integers.items()}
    given["x"] = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    operators = operators_of_run(model, given, tmp_path)
    assert sum(operator.startswith(intact.onnxruntime.NAME) for operator in operators) == 3, operators
    assert "Transpose" not in operators
    if CPU_IS_EXACT:
        expected = cpu_session_of(model).run(None, given)
        for output, of_cpu in zip(session_of(model).run(None, given), expected, strict=True):
            assert_same(output, of_cpu, "output")


def test_a_model_that_describes_wrong_shapes_has_the_bytes_of_its_own():
    """A sum of tensors of channels last broadcasts, although the model says that both have one shape."""
    r = layers.Random(4)
    constants = {"s": np.float32(0.05), "z": np.uint8(128), "small": np.float32(0.003), "zero": np.int8(0)}
    constants |= {name: r.integers(np.int8, (4, 4, 1, 1)) for name in ("u", "v", "w")}

    def conv(x: str, w: str, y: str, **attributes) -> onnx.NodeProto:
        inputs = [x, "s", "z", w, "small", "zero", "s", "z"]
        return onnx.helper.make_node("QLinearConv", inputs, [y], **attributes)

    add = onnx.helper.make_node("QLinearAdd", ["a", "s", "z", "b", *"szsz"], ["c"], domain=layers.MICROSOFT)
    nodes = [conv("x", "u", "a"), conv("x", "v", "b", strides=[5, 5]), add, conv("c", "w", "y")]
    inputs, outputs = {"x": (np.uint8, [1, 4, "H", "W"])}, {"y": (np.uint8, None)}
    model = layers.model_of(nodes, inputs, outputs, constants)
    wrong = onnx.load_from_string(model)
    for name in "abc":
        described = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, [1, 4, 5, 5])
        wrong.graph.value_info.append(described)
    x = {"x": r.integers(np.uint8, (1, 4, 5, 5))}
    assert_same(run(session_of(wrong.SerializeToString()), x), run(session_of(model), x), "y")


def test_weights_that_differ_in_one_byte_have_two_plans():
    k, n = 37, 131
    weights = {"b": layers.Random(2).integers(np.int8, (k, n))}
    for i in range(0, k * n, 389):
        weights[f"b{i}"] = weights["b"].copy()
        weights[f"b{i}"].flat[i] ^= 1
    nodes = [onnx.helper.make_node("MatMulInteger", ["a", name], [f"of_{name}"]) for name in weights]
    outputs = {f"of_{name}": (np.int32, None) for name in weights}
    session = session_of(layers.model_of(nodes, {"a": (np.uint8, [1, k])}, outputs, weights))
    a = np.arange(1, k + 1, dtype=np.uint8)[None]
    for (name, b), output in zip(weights.items(), session.run(None, {"a": a}), strict=True):
        assert_same(output, a.astype(np.int32) @ b.astype(np.int32), name)


def test_nodes_that_nothing_reads_stay():
    nodes = [onnx.helper.make_node("MatMulInteger", ["a", "b"], [name]) for name in ("y", "unread")]
    model = layers.model_of(
        nodes, {"a": (np.uint8, ["m", 8])}, {"y": (np.int32, None)}, {"b": np.ones((8, 3), np.int8)}
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    intact.onnxruntime.add(options)
    session = onnxruntime.InferenceSession(model, options)
    reasons = [node.get("reason") for node in intact.onnxruntime.report(session)]
    assert sorted(reasons, key=str) == [None, "output: nothing reads it"]
    assert (session.run(None, {"a": np.ones((2, 8), np.uint8)})[0] == 8).all()


RUN_IN_CHILD = """
import sys, numpy, test_provider
model, given = test_provider.quantized_network(sys.argv[1], "QDQ")
session = test_provider.session_of(model)
print([node["kernel"] for node in test_provider.intact.onnxruntime.report(session) if node["op"] in ("Conv", "MatMul")][-1])
sys.stdout.flush()
sys.stdout.buffer.write(session.run(None, given)[0].tobytes())
"""


@pytest.mark.parametrize("name", NETWORKS)
def test_bytes_do_not_depend_on_the_isa_of_the_environment(name):
    model, given = quantized_network(name, "QDQ")
    expected = session_of(model).run(None, given)[0].tobytes()
    kernels = set()
    for isa in ("avx2", "avx512", "portable"):
        done = subprocess.run(
            [sys.executable, "-B", "-c", RUN_IN_CHILD, name],
            capture_output=True,
            cwd=Path(__file__).parent,
            timeout=120,
            env=os.environ | {"INTACT_MAX_ISA": isa, "PYTHONPATH": str(Path(intact.__file__).parents[1])},
        )
        assert done.returncode == 0, done.stderr.decode()
        kernel, computed = done.stdout.split(b"\n", 1)
        kernels.add(kernel)
        assert computed == expected, isa
    assert len(kernels) == 1 + len({"avx2", "avx512"} & set(intact.isas())), kernels


@pytest.mark.parametrize("isa", ["portable", "avx2", None])
def test_loops_of_sums_do_not_go_beyond_the_cap(isa):
    (node,) = intact.onnxruntime.report(session_of(sum_of_scale(1), max_isa=isa))
    assert node["kernel"] == (
        "qlinear_add_avx2" if isa != "portable" and "avx2" in intact.isas() else "qlinear_add_portable"
    )


def test_a_clamped_sum_is_found():
    """What the comparisons above are for: kernels that clamp sums to int16 are a planted fault."""
    b = np.full((64, 32), 127, np.int8)
    model = layers.one_node("MatMulInteger", [("a", (np.uint8, None)), ("b", b)], (np.int32, None))
    given = {"a": np.full((40, 64), 255, np.uint8)}
    expected = layers.product(given["a"], 0, b, 0).astype(np.int32)
    assert_same(session_of(model, max_isa="avx2").run(None, given)[0], expected, "exact")
    with pytest.raises(AssertionError, match="bytes differ"):
        assert_same(
            session_of(model, mode="saturating", max_isa="avx2").run(None, given)[0], expected, "saturating"
        )


# by stock ONNX Runtime on a CPU with AVX2 and no VNNI
RECORDED = Path(__file__).parents[3] / "tests/data/onnxruntime-avx2"


def recorded(name: str) -> tuple[bytes, dict, np.ndarray]:
    """A model, its inputs, and the output that was recorded."""
    folder = RECORDED / name
    case = json.loads((folder / "case.json").read_text())
    arrays = {path.stem: np.load(path) for path in folder.glob("*.npy")}
    (output,) = case["outputs"]
    expected = arrays.pop(f"output_{output}")
    given = {name: arrays.pop(name) for name in case["inputs"]}
    nodes = [
        onnx.helper.make_node(node["op"], node["inputs"], node["outputs"], **node["attributes"])
        for node in case["nodes"]
    ]
    return (
        layers.model_of(
            nodes,
            {name: (value.dtype, value.shape) for name, value in given.items()},
            {output: (expected.dtype, expected.shape)},
            arrays,
        ),
        given,
        expected,
    )


@pytest.mark.parametrize(
    "name",
    [
        "qlinear_conv_c3_i17_o12_k5_s2_g1",
        "qlinear_conv_c8_i9_o16_k3_s1_g1",
        "qlinear_conv_c12_i10_o18_k3_s1_g3",
        "qlinear_conv_c16_i8_o32_k1_s1_g1",
    ],
)
@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_saturating_convolutions_equal_recorded_ones(name, isa):
    """The first one has three channels: its pairs cross taps."""
    if isa not in intact.isas():
        pytest.skip(f"needs {isa}")
    model, given, expected = recorded(name)
    session = session_of(model, mode="saturating", max_isa=isa)
    assert_taken(session)
    assert_same(session.run(None, given)[0], expected, "saturating")
    assert (session_of(model).run(None, given)[0] != expected).any()


def sessions_like_avx2(model: bytes) -> dict[str, onnxruntime.InferenceSession]:
    sessions = {
        str(isa): session_of(model, like=LIKE, max_isa=isa) for isa in (None, "avx2", "avx512", "avx_vnni")
    }
    return sessions | {"threads": session_of(model, like=LIKE, threads=4)}


# Stock ONNX Runtime's kernels of these layers.
CLAMP_NOTHING = {
    layers.conv_integer,
    layers.qlinear_add,
    layers.qlinear_mul,
    layers.quotient,
    layers.max_pool,
    layers.softmax,
}


@emulated
@pytest.mark.parametrize("operator", layers.OPERATORS, ids=lambda operator: operator.__name__)
@pytest.mark.parametrize("seeds", quick_and_long(range(24, 40), 60))  # every third of the quick layers clamps
def test_operators_are_like_stock_ones_on_avx2(operator, seeds):
    made = [layer for layer in map(operator, seeds) if layer.on_cpu and layer.has_like]
    runs = [[layer.inputs() for _ in range(3)] for layer in made]
    stock_outputs = stock.outputs_on_avx2(
        [(layer.model, given) for layer, given in zip(made, runs)], CPU_IS_EXACT
    )
    clamped = 0
    for i, (layer, given, outputs) in enumerate(zip(made, runs, stock_outputs)):
        for name, session in sessions_like_avx2(layer.model).items():
            assert_taken(session)
            for one, expected in zip(given, outputs):
                assert_same(run(session, one), expected, f"layer {i}, {name}")
        clamped += sum((layer.exact(one) != expected).any() for one, expected in zip(given, outputs))
    assert clamped == 0 if operator in CLAMP_NOTHING else clamped > 3


@emulated
def test_layers_that_clamp_in_another_way_are_not_like_stock_ones():
    """ConvInteger of s8 activations and u8 weights. Stock ONNX Runtime clamps there."""
    made = [layer for layer in map(layers.conv_integer, range(40)) if layer.on_cpu and not layer.has_like]
    runs = [layer.inputs() for layer in made]
    stock_outputs = stock.outputs_on_avx2(
        [(layer.model, [given]) for layer, given in zip(made, runs)], CPU_IS_EXACT
    )
    for layer in made:
        (node,) = intact.onnxruntime.report(session_of(layer.model, like=LIKE))
        assert node["reason"].startswith(
            "like: intact_engine_ask: op is 'ConvInteger' with types s8u8; it is not known"
        )
    assert any(
        (layer.exact(given) != expected).any() for layer, given, (expected,) in zip(made, runs, stock_outputs)
    )


@emulated
def test_networks_are_like_stock_ones_on_avx2():
    made = [quantized_network(*arguments) for arguments in QUANTIZED]
    stock_outputs = stock.outputs_on_avx2([(model, [given]) for model, given in made], CPU_IS_EXACT)
    for arguments, (model, given), (expected,) in zip(QUANTIZED, made, stock_outputs):
        for name, session in sessions_like_avx2(model).items():
            assert_same(session.run(None, given)[0], expected, f"{arguments}, {name}")
    exact = [session_of(model).run(None, given)[0] for model, given in made]
    assert sum((a != b).any() for a, (b,) in zip(exact, stock_outputs)) > len(made) / 2


@pytest.mark.parametrize(
    "name", sorted(path.name for path in RECORDED.iterdir() if not path.name.startswith("dynamic_quantize"))
)
def test_recorded_layers_are_like_stock_ones(name):
    model, given, expected = recorded(name)
    for isa, session in sessions_like_avx2(model).items():
        assert_taken(session)
        assert_same(session.run(None, given)[0], expected, isa)


def backend_cases(*operators: str) -> list:
    """ONNX's own cases. Each module adds its cases when it is imported; collect_testcases() would import all operators'."""
    cases = importlib.import_module("onnx.backend.test.case.node")
    for operator in operators:
        importlib.import_module(f"{cases.__name__}.{operator.lower()}")
    # ONNX Runtime lacks float16. A function of ONNX has a second case with its nodes.
    return [
        case
        for case in cases._NodeTestCases
        if case.model.graph.node[-1].op_type in operators
        and not case.name.endswith("float16")
        and "expanded" not in case.name
    ]


@pytest.mark.parametrize(
    "case",
    backend_cases("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"),
    ids=lambda case: case.name,
)
def test_onnx_backend_cases(case):
    """All inputs except the first become constants."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = 9
    first, *others = list(model.graph.input)
    values, (expected,) = case.data_sets[0]
    for constant, value in zip(others, values[1:]):
        model.graph.input.remove(constant)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), constant.name))
    session = session_of(model.SerializeToString())
    if expected.ndim == 3:  # a matrix for each item of the batch
        assert {node["reason"] for node in intact.onnxruntime.report(session)} == {
            "B: has 3 dimensions; expected 2"
        }
    else:
        assert_taken(session)
    assert_same(session.run(None, {first.name: values[0]})[0], expected, case.name)


def of_onnxs_reference(model: bytes, given: dict) -> np.ndarray:
    return onnx.reference.ReferenceEvaluator(onnx.load_from_string(model)).run(None, given)[0]


# Of cases whose QDQ group stays with ONNX Runtime: what the reason begins with.
QDQ_REFUSED = {
    "gemm_default_matrix_bias": "bias",
    "gemm_alpha": "alpha",
    "gemm_beta": "beta",
    "gemm_all_attributes": "alpha",
    "matmul_3d": "B",
    "matmul_4d": "B",
    "matmul_bcast": "B",
    "matmul_1d_3d": "B",
    "matmul_4d_1d": "b",
    "matmul_1d_1d": "b",
}


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in backend_cases("Conv", "Gemm", "MatMul", "Add")
        if case.data_sets[0][0][0].dtype == np.float32
    ],
    ids=lambda case: case.name,
)
def test_qdq_groups_of_onnx_backend_cases(case):
    """ONNX's cases of float operators, between DequantizeLinear and QuantizeLinear, with other values. All scales are powers of
    two, so the floats of ONNX's reference are exact."""
    r, node = layers.Random(1), onnx.helper.make_node
    (operator,) = case.model.graph.node
    alpha = next((attribute.f for attribute in operator.attribute if attribute.name == "alpha"), 1)
    quantized = {"Add": [(np.uint8, 128, 1 / 16), (np.uint8, 120, 1 / 8)]}.get(
        operator.op_type, [(np.uint8, 128, 1 / 16), (np.int8, 0, 1 / 8), (np.int32, 0, alpha / 128)]
    )
    nodes, constants, inputs = [], {"ys": np.float32(1), "yz": np.uint8(100)}, {}
    for name, value, (dtype, zero, scale) in zip(operator.input, case.data_sets[0][0], quantized):
        values = r.rng.integers(-100, 101, value.shape) + zero
        (constants if inputs else inputs)[f"{name}_q"] = np.asarray(values, dtype)
        constants |= {f"{name}_s": np.float32(scale), f"{name}_z": np.asarray(zero, dtype)}
        nodes.append(node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [name]))
    nodes += [operator, node("QuantizeLinear", [operator.output[0], "ys", "yz"], ["quantized"])]
    model = layers.model_of(
        nodes,
        {name: (value.dtype, value.shape) for name, value in inputs.items()},
        {"quantized": (np.uint8, None)},
        constants,
        opset=19,
    )
    session = session_of(model)
    (layer,) = [each for each in intact.onnxruntime.report(session) if each["op"] == operator.op_type]
    assert layer.get("reason", "").split(":")[0] == QDQ_REFUSED.get(case.name.removeprefix("test_"), "")
    assert_same(run(session, inputs), of_onnxs_reference(model, inputs), case.name)


@pytest.mark.parametrize("case", backend_cases("DynamicQuantizeLinear"), ids=lambda case: case.name)
@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger"])
def test_dynamic_groups_of_onnx_backend_cases(op, case):
    """ONNX's cases of DynamicQuantizeLinear, before a product or a convolution as quantize_dynamic writes it."""
    node, (x,) = onnx.helper.make_node, case.data_sets[0][0]
    if op == "ConvInteger":
        x = x.reshape(1, -1, x.shape[-1])
    w_shape = (x.shape[-1], 5) if op == "MatMulInteger" else (7, x.shape[1], 2)
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node(op, ["q", "w", "z"], ["sums"]),
        node("Cast", ["sums"], ["floats"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["s", "ws"], ["scale"]),
        node("Mul", ["floats", "scale"], ["y"]),
    ]
    model = layers.model_of(
        nodes,
        {"x": (np.float32, x.shape)},
        {"y": (np.float32, None)},
        {"w": layers.Random(1).integers(np.uint8, w_shape), "ws": np.float32(0.013)},
        opset=19,
    )
    session = session_of(model)
    assert_taken(session)
    assert_same(run(session, {"x": x}), of_onnxs_reference(model, {"x": x}), case.name)


def reason_of(layer_model: bytes) -> str:
    (node,) = intact.onnxruntime.report(session_of(layer_model))
    assert not node["taken"]
    return node["reason"]


def test_reasons():
    a = ("a", (np.uint8, ["m", 8]))
    b = np.ones((8, 3), np.int8)
    assert reason_of(layers.one_node("MatMulInteger", [a, ("b", (np.int8, None))], (np.int32, None))) == (
        "B: has 0 dimensions; expected at least 2, known before the run"
    )
    assert reason_of(
        layers.one_node("MatMulInteger", [a, ("b", np.ones((2, 8, 3), np.int8))], (np.int32, None))
    ) == ("B: has 3 dimensions; expected 2")
    deep = layers.one_node(
        "MatMulInteger", [("a", (np.uint8, None)), ("b", np.full((70000, 1), 127, np.int8))], (np.int32, None)
    )
    assert "int32" in reason_of(deep)
    scale, zero = np.float32(0.1), np.uint8(0)
    assert reason_of(
        layers.one_node(
            "QLinearMatMul",
            [
                a,
                ("a_scale", (np.float32, [])),
                ("a_zero", zero),
                ("b", b),
                ("b_scale", scale),
                ("b_zero", np.int8(0)),
                ("y_scale", scale),
                ("y_zero", zero),
            ],
            (np.uint8, None),
        )
    ) == ("a_scale: is computed by each run; expected a constant")
    assert reason_of(
        layers.one_node(
            "QGemm",
            [
                ("a", (np.uint8, [3, 8])),
                ("a_scale", scale),
                ("a_zero", zero),
                ("b", b),
                ("b_scale", scale),
                ("b_zero", np.int8(0)),
                ("c", np.ones((3, 1), np.int32)),
            ],
            (np.float32, None),
            layers.MICROSOFT,
        )
    ) == ("bias: has another shape than the columns; expected 1 or 3 values")
    assert reason_of(
        layers.one_node(
            "ConvInteger",
            [("x", (np.uint8, ["n", 1, "h", "w"])), ("w", np.ones((1, 1, 3, 3), np.uint8))],
            (np.int32, None),
            auto_pad="SAME_UPPER",
            strides=[2, 2],
        )
    ) == ("auto_pad: is SAME_UPPER with stride 2 and an input of unknown extents; expected explicit pads")
    assert reason_of(layers.one_node("Sigmoid", [("x", (np.float32, ["n"]))], (np.float32, ["n"]))) == (
        "no operator of this provider"
    )


def qdq(
    op: str, x_type: type, w_type: type, tail: list, outputs: dict, x_is_quantized: bool = False, **changes
) -> bytes:
    """DequantizeLinear, `op`, then the nodes of `tail`, which begin with the float value "c". `x_is_quantized`: a QuantizeLinear
    of the model makes the input, of x_type; else the caller gives it. `changes`: of the constants."""
    r, node = layers.Random(5), onnx.helper.make_node
    middle = lambda dtype: np.asarray(3 if dtype == np.int8 else 131, dtype)
    constants = {
        "xs": np.float32(0.02),
        "xz": middle(x_type),
        "ws": np.float32(0.01),
        "wz": np.asarray(0, w_type),
        "w": r.integers(w_type, (8, 16, 3, 3) if op == "Conv" else (60, 40)),
        "ys": np.float32(0.2),
        "u8": np.uint8(130),
        "s8": np.int8(2),
        "u8_low": np.uint8(0),
        "s8_low": np.int8(-128),
        "low": np.float32(0),
        "high": np.float32(6),
    }
    if op in ELEMENTWISE:
        constants |= {"w": r.integers(w_type, (7, 60)), "ys": np.float32(0.05)}
    constants |= changes
    nodes = [node("QuantizeLinear", ["x", "xs", "xz"], ["xq"])] if x_is_quantized else []
    nodes += [
        node("DequantizeLinear", ["xq" if x_is_quantized else "x", "xs", "xz"], ["xf"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        node(op, ["xf", "wf"], ["c"], name="layer"),
        *tail,
    ]
    read = {name for each in nodes for name in each.input}
    return layers.model_of(
        nodes,
        {"x": (np.float32 if x_is_quantized else x_type, [3, 16, 9, 8] if op == "Conv" else [7, 60])},
        outputs,
        {name: value for name, value in constants.items() if name in read},
    )


def qdq_input(model: bytes) -> dict:
    (x,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).get_inputs()
    r = layers.Random(6)
    if x.type == "tensor(float)":
        return {"x": r.rng.normal(size=x.shape).astype(np.float32)}
    return {"x": r.integers(np.uint8 if x.type == "tensor(uint8)" else np.int8, x.shape)}


def operators_of_stock(model: bytes, folder: Path) -> set:
    """After ONNX Runtime's optimizations."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.optimized_model_filepath = 3, str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return {node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node}


INTEGERS = {"QLinearConv", "QLinearMatMul", "MatMulIntegerToFloat", "QGemm", "QLinearAdd", "QLinearMul"}


def is_taken(session: onnxruntime.InferenceSession) -> bool:
    (taken,) = [node["taken"] for node in intact.onnxruntime.report(session) if node["name"] == "layer"]
    return taken


QDQ_OPERATORS = ["Conv", "MatMul", "Gemm", "Add", "Mul"]
ELEMENTWISE = ("Add", "Mul")


def qdq_of_types(op: str) -> list[bytes]:
    """All types of A, B and the output, where ONNX Runtime may or may not move A and the output to u8."""
    node, models = onnx.helper.make_node, []
    for x_type, w_type, x_is_quantized in itertools.product(
        (np.uint8, np.int8), (np.uint8, np.int8), (False, True)
    ):
        for y_type, zero in ((np.uint8, "u8"), (np.int8, "s8")):
            quantizer = node("QuantizeLinear", ["c", "ys", zero], ["y"])
            dequantizer = node("DequantizeLinear", ["y", "ys", zero], ["z"])
            models.append(qdq(op, x_type, w_type, [quantizer], {"y": (y_type, None)}, x_is_quantized))
            models.append(
                qdq(op, x_type, w_type, [quantizer, dequantizer], {"z": (np.float32, None)}, x_is_quantized)
            )
        models.append(
            qdq(
                op,
                x_type,
                w_type,
                [onnx.helper.make_node("Identity", ["c"], ["y"])],
                {"y": (np.float32, None)},
                x_is_quantized,
            )
        )
    return models


@pytest.mark.skipif(not CPU_IS_EXACT, reason="needs VNNI")
@pytest.mark.parametrize("op", QDQ_OPERATORS)
def test_types_decide_as_in_onnx_runtime_what_is_computed_in_floats(op, tmp_path):
    taken = []
    for i, model in enumerate(qdq_of_types(op)):
        session, given = session_of(model), qdq_input(model)
        taken.append(is_taken(session))
        of_stock = bool(operators_of_stock(model, tmp_path) & INTEGERS)
        if op in ELEMENTWISE:  # intact takes only sums and products whose types are one in the model too
            assert taken[-1] <= of_stock, f"model {i}"
        else:
            assert taken[-1] == of_stock, f"model {i}"
        assert_same(run(session, given), run(cpu_session_of(model), given), f"model {i}")
    assert set(taken) == {False, True}


@emulated
def test_types_decide_as_in_stock_onnx_runtime_on_avx2():
    models = [model for op in QDQ_OPERATORS for model in qdq_of_types(op)]
    given = [qdq_input(model) for model in models]
    stock_outputs = stock.outputs_on_avx2([(model, [one]) for model, one in zip(models, given)], CPU_IS_EXACT)
    for i, (model, one, (expected,)) in enumerate(zip(models, given, stock_outputs)):
        session = session_of(model, like=LIKE)
        if is_taken(session):
            assert_same(run(session, one), expected, f"model {i}")


def tails() -> list[tuple[list, dict]]:
    """Nodes behind a layer. ONNX Runtime computes floats before some of them."""
    node, f, u8, s8 = onnx.helper.make_node, (np.float32, None), (np.uint8, None), (np.int8, None)
    relu, clip = node("Relu", ["c"], ["r"]), node("Clip", ["c", "low", "high"], ["r"])
    quantized = lambda x, zero: node("QuantizeLinear", [x, "ys", zero] if zero else [x, "ys"], ["y"])
    made = [([first, node("Sigmoid", ["r"], ["y"])], {"y": f}) for first in (relu, clip)]
    made += [([first], {"r": f}) for first in (relu, clip)]
    made += [
        ([first, node("Sigmoid", ["r"], ["y"]), node("Tanh", ["r"], ["z"])], {"y": f, "z": f})
        for first in (relu, clip)
    ]
    made += [
        ([first, quantized("r", zero)], {"y": s8 if zero and "s8" in zero else u8})
        for first in (relu, clip)
        for zero in ("u8", "u8_low", "s8", "s8_low", None)
    ]
    made += [([quantized("c", zero)], {"y": u8, "c": f}) for zero in ("u8", None)]
    made += [
        ([quantized("c", "u8"), node("Sigmoid", ["c"], ["z"])], {"y": u8, "z": f}),
        ([quantized("c", None)], {"y": u8}),
        ([relu, quantized("r", "u8_low"), node("Sigmoid", ["r"], ["z"])], {"y": u8, "z": f}),
    ]
    return made


@pytest.mark.skipif(not CPU_IS_EXACT, reason="needs VNNI")
@pytest.mark.parametrize("op", QDQ_OPERATORS)
def test_nodes_behind_a_layer_decide_as_in_onnx_runtime(op, tmp_path):
    for i, (tail, outputs) in enumerate(tails()):
        model = qdq(op, np.uint8, np.uint8 if op in ELEMENTWISE else np.int8, tail, outputs)
        session, given = session_of(model), qdq_input(model)
        assert is_taken(session) <= bool(operators_of_stock(model, tmp_path) & INTEGERS), f"tail {i}"
        assert_same(run(session, given), run(cpu_session_of(model), given), f"tail {i}")


def qdq_product_of_run(b_is_read: bool) -> tuple[bytes, dict]:
    """A product of a u8 tensor and of an s8 tensor, which ONNX Runtime moves to u8 unless the caller reads it too."""
    r, node = layers.Random(7), onnx.helper.make_node
    constants = {
        "xs": np.float32(0.02),
        "xz": np.uint8(131),
        "bs": np.float32(0.03),
        "bz": np.int8(-3),
        "ys": np.float32(0.8),
        "yz": np.uint8(120),
    }
    nodes = [
        node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        node("QuantizeLinear", ["b", "bs", "bz"], ["bq"]),
        node("DequantizeLinear", ["bq", "bs", "bz"], ["bf"]),
        node("MatMul", ["xf", "bf"], ["c"], name="layer"),
        node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    model = layers.model_of(
        nodes,
        {"x": (np.uint8, [3, 7, 60]), "b": (np.float32, [3, 60, 40])},
        {"y": (np.uint8, None)} | ({"bq": (np.int8, None)} if b_is_read else {}),
        constants,
    )
    return model, {
        "x": r.integers(np.uint8, (3, 7, 60)),
        "b": r.rng.uniform(-4, 4, (3, 60, 40)).astype(np.float32),
    }


@emulated
@pytest.mark.parametrize("b_is_read", [False, True])
def test_a_product_of_run_clamps_unless_onnx_runtime_moves_b_to_u8(b_is_read):
    model, given = qdq_product_of_run(b_is_read)
    exact, like = session_of(model), session_of(model, like=LIKE)
    assert is_taken(exact) and is_taken(like)
    ((expected,),) = stock.outputs_on_avx2([(model, [given])], CPU_IS_EXACT)
    assert_same(run(like, given), expected, "like")
    assert (run(exact, given) != expected).any() == b_is_read
    if CPU_IS_EXACT:
        assert_same(run(exact, given), run(cpu_session_of(model), given), "ONNX Runtime's CPU provider")


def test_products_of_run_of_many_shapes():
    """More shapes than plans are kept."""
    model = layers.one_node(
        "MatMulInteger", [("a", (np.uint8, [None, None])), ("b", (np.int8, [None, None]))], (np.int32, None)
    )
    session, r = session_of(model), layers.Random(9)
    assert_taken(session)
    for k in (*range(1, 81), *range(1, 81)):
        given = {"a": r.integers(np.uint8, (3, k)), "b": r.integers(np.int8, (k, 5))}
        assert_same(
            run(session, given), layers.product(given["a"], 0, given["b"], 0).astype(np.int32), f"depth {k}"
        )


def s8_sum_behind_a_convolution() -> bytes:
    """A sum of a tensor that ONNX Runtime moves to u8 and of one that it does not, so it computes floats. In NHWC a
    transposition may stand between the first tensor's QuantizeLinear and its DequantizeLinear."""
    r, node = layers.Random(3), onnx.helper.make_node
    constants = {
        "xs": np.float32(0.02),
        "xz": np.uint8(128),
        "w": r.integers(np.int8, (8, 4, 3, 3)),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "cs": np.float32(0.1),
        "cz": np.uint8(127),
        "ss": np.float32(0.004),
        "sz": np.int8(-120),
        "bs": np.float32(0.005),
        "bz": np.int8(3),
        "ys": np.float32(0.0061),
        "yz": np.int8(-5),
    }
    nodes = [
        node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        node("Conv", ["xf", "wf"], ["c"], pads=[1] * 4),
        node("QuantizeLinear", ["c", "cs", "cz"], ["cq"]),
        node("DequantizeLinear", ["cq", "cs", "cz"], ["cf"]),
        node("Sigmoid", ["cf"], ["s"]),
        node("QuantizeLinear", ["s", "ss", "sz"], ["sq"]),
        node("DequantizeLinear", ["sq", "ss", "sz"], ["sf"]),
        node("DequantizeLinear", ["b", "bs", "bz"], ["bf"]),
        node("Add", ["sf", "bf"], ["y_f"], name="layer"),
        node("QuantizeLinear", ["y_f", "ys", "yz"], ["y"]),
    ]
    return layers.model_of(
        nodes,
        {"x": (np.uint8, [2, 4, 9, 9]), "b": (np.int8, [2, 8, 9, 9])},
        {"y": (np.int8, None)},
        constants,
    )


@pytest.mark.skipif(not CPU_IS_EXACT, reason="needs VNNI")
def test_transpositions_do_not_hide_the_types_of_a_sum(tmp_path):
    model, r = s8_sum_behind_a_convolution(), layers.Random(4)
    given = {"x": r.integers(np.uint8, (2, 4, 9, 9)), "b": r.integers(np.int8, (2, 8, 9, 9))}
    session = session_of(model)
    assert not is_taken(session)
    assert "Transpose" not in operators_of_run(model, given, tmp_path)
    assert [node["taken"] for node in intact.onnxruntime.report(session) if node["op"] == "Conv"] == [True]
    assert_same(run(session, given), run(cpu_session_of(model), given), "sum")


def large_layers() -> dict[str, tuple[bytes, dict]]:
    """Of 8 million multiplications or more, so that four threads compute a part each."""
    r, u8, s8, f = layers.Random(9), np.uint8, np.int8, np.float32
    m, k, n = 64, 512, 260
    a, scale = (u8, [m, k]), f(0.01)
    b, b_scale, bias = r.integers(s8, (k, n)), r.scale(n), r.bias(n)
    zeros = np.zeros(n, s8)
    quantized_a, quantized_b = (
        [("a", a), ("as", scale), ("az", u8(120))],
        [("b", b), ("bs", b_scale), ("bz", zeros)],
    )
    quantized_y = [("ys", f(0.9)), ("yz", u8(128))]
    random_a, random_x = {"a": r.integers(u8, (m, k))}, {"x": r.integers(u8, (5, 33, 36, 36))}
    x, w = (u8, [5, 33, 36, 36]), r.integers(s8, (40, 33, 3, 3))
    made = {
        "MatMulInteger": (
            layers.one_node("MatMulInteger", [("a", a), ("b", b), ("az", u8(120))], (np.int32, None)),
            random_a,
        ),
        "QLinearMatMul": (
            layers.one_node("QLinearMatMul", quantized_a + quantized_b + quantized_y, (u8, None)),
            random_a,
        ),
        "QGemm": (
            layers.one_node(
                "QGemm",
                quantized_a + quantized_b + [("c", bias)] + quantized_y,
                (u8, [m, n]),
                layers.MICROSOFT,
            ),
            random_a,
        ),
        "MatMulIntegerToFloat": (
            layers.one_node(
                "MatMulIntegerToFloat",
                [("a", a), ("b", b), ("as", scale), ("bs", b_scale), ("az", u8(120)), ("bz", zeros)],
                (f, None),
                layers.MICROSOFT,
            ),
            random_a,
        ),
        "DynamicQuantizeMatMul": (
            layers.one_node(
                "DynamicQuantizeMatMul",
                [("a", (f, [m, k])), ("b", b), ("bs", b_scale), ("bz", zeros)],
                (f, None),
                layers.MICROSOFT,
            ),
            {"a": r.rng.normal(size=(m, k)).astype(f)},
        ),
        "ConvInteger": (
            layers.one_node("ConvInteger", [("x", x), ("w", w), ("xz", u8(128))], (np.int32, None)),
            random_x,
        ),
    }
    quotient = layers.quotient(1)
    numbers = quotient.inputs()["x"].dtype
    made["Div"] = quotient.model, {"x": r.integers(numbers, (3, 90000))}
    made["Softmax"] = (
        layers.one_node(
            "QLinearSoftmax",
            [("x", (u8, [3, 1001, 90])), ("xs", f(0.05)), ("xz", u8(0)), ("ys", f(1 / 256)), ("yz", u8(0))],
            (u8, None),
            layers.MICROSOFT,
            axis=-1,
            opset=13,
        ),
        {"x": r.integers(u8, (3, 1001, 90))},
    )
    made["MaxPool"] = (
        layers.one_node("MaxPool", [("x", x)], (u8, None), kernel_shape=[3, 3], pads=[1] * 4),
        random_x,
    )
    made["QLinearMul"] = (
        layers.one_node(
            "QLinearMul",
            [
                ("x", x),
                ("xs", scale),
                ("xz", u8(120)),
                ("b", r.integers(u8, x[1])),
                ("bs", scale),
                ("bz", u8(99)),
                ("ys", f(0.02)),
                ("yz", u8(128)),
            ],
            (u8, None),
            layers.MICROSOFT,
        ),
        random_x,
    )
    made["MatMulInteger, B of the run"] = (
        layers.one_node("MatMulInteger", [("a", a), ("b", (s8, [k, n]))], (np.int32, None)),
        random_a | {"b": b},
    )
    conv = [
        ("xs", scale),
        ("xz", u8(120)),
        ("w", w),
        ("ws", r.scale(40)),
        ("wz", np.zeros(40, s8)),
        *quantized_y,
        ("bias", r.bias(40)),
    ]
    last = {"x": np.moveaxis(random_x["x"], 1, -1).copy()}
    made["QLinearConv"] = layers.one_node("QLinearConv", [("x", x), *conv], (u8, None)), random_x
    made["QLinearConv, channels last"] = (
        layers.one_node(
            "QLinearConv",
            [("x", (u8, last["x"].shape)), *conv],
            (u8, None),
            layers.MICROSOFT,
            channels_last=1,
        ),
        last,
    )
    of_a, of_b = (
        [("as", scale), ("az", u8(120))],
        [("bs", f(0.013)), ("bz", u8(99)), ("ys", f(0.02)), ("yz", u8(128))],
    )
    for name, shapes in {
        "Add": ([5, 70001], [5, 70001]),
        "Add, broadcast": ([5, 70001], [70001]),
        "Add, exchanged": ([5, 1], [5, 70001]),
        "Add, pooled": ([5, 70001, 1, 1], [1]),
    }.items():
        made[name] = (
            layers.one_node(
                "QLinearAdd",
                [("a", (u8, shapes[0])), *of_a, ("b", (u8, shapes[1])), *of_b],
                (u8, None),
                layers.MICROSOFT,
            ),
            {"a": r.integers(u8, shapes[0]), "b": r.integers(u8, shapes[1])},
        )
    steps, batch, size, hidden = 8, 64, 512, 256
    constants = {
        "W": r.integers(s8, (1, size, 4 * hidden)),
        "R": r.integers(s8, (1, hidden, 4 * hidden)),
        "ws": r.scale([1]) / 9,
        "wz": np.zeros(1, s8),
        "rs": r.scale([1]) / 9,
        "rz": np.zeros(1, s8),
    }
    lstm = onnx.helper.make_node(
        "DynamicQuantizeLSTM",
        ["x", "W", "R", "", "", "", "", "", "ws", "wz", "rs", "rz"],
        ["Y"],
        domain=layers.MICROSOFT,
        hidden_size=hidden,
    )
    made["LSTM"] = (
        layers.model_of([lstm], {"x": (f, [steps, batch, size])}, {"Y": (f, None)}, constants),
        {"x": r.rng.normal(size=(steps, batch, size)).astype(f)},
    )
    return made


@pytest.mark.parametrize("name", large_layers())
def test_large_layers_do_not_depend_on_threads(name):
    model, given = large_layers()[name]
    expected = run(session_of(model), given)
    for threads, arguments in ((4, {}), (3, {"max_isa": "avx2"}), (4, {"max_isa": "avx512"})):
        session = session_of(model, threads, **arguments)
        assert_taken(session)
        assert_same(run(session, given), expected, f"{threads} threads, {arguments}")
    if CPU_IS_EXACT:
        assert_same(run(cpu_session_of(model), given), expected, "ONNX Runtime's CPU provider")


def small_lstm(given: dict = {}, **attributes: object) -> bytes:
    """`given`: optional inputs, by their place."""
    r, hidden = layers.Random(1), 5
    constants = {
        "W": r.integers(np.int8, (1, 7, 4 * hidden)),
        "R": r.integers(np.int8, (1, hidden, 4 * hidden)),
        "ws": np.full(1, 0.01, np.float32),
        "wz": np.zeros(1, np.int8),
        "rs": np.full(1, 0.01, np.float32),
        "rz": np.zeros(1, np.int8),
    }
    names = ["x", "W", "R", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    for place, value in given.items():
        names[place] = f"given{place}"
        constants[names[place]] = value
    node = onnx.helper.make_node(
        "DynamicQuantizeLSTM",
        names,
        ["Y"],
        name="layer",
        domain=layers.MICROSOFT,
        hidden_size=hidden,
        **attributes,
    )
    return layers.model_of([node], {"x": (np.float32, [4, 2, 7])}, {"Y": (np.float32, None)}, constants)


def small_transposed_convolution() -> bytes:
    node, r = onnx.helper.make_node, layers.Random(2)
    constants = {
        "xs": np.float32(0.02),
        "xz": np.uint8(128),
        "w": r.integers(np.int8, (3, 4, 3, 3)),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "ys": np.float32(0.1),
        "yz": np.uint8(99),
    }
    nodes = [
        node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        node("ConvTranspose", ["xf", "wf"], ["c"], name="layer", strides=[2, 2]),
        node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    return layers.model_of(nodes, {"x": (np.uint8, [1, 3, 5, 5])}, {"y": (np.uint8, None)}, constants)


def qdq_float(op: str) -> bytes:
    return qdq(
        op, np.uint8, np.uint8, [onnx.helper.make_node("Identity", ["c"], ["y"])], {"y": (np.float32, None)}
    )


def int64_sum() -> bytes:
    node = onnx.helper.make_node("Add", ["x", "x"], ["y"], name="layer")
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT64, [3])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [3])],
    )
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9
    ).SerializeToString()


def sum_of_scale(y_scale: float) -> bytes:
    return layers.one_node(
        "QLinearAdd",
        [
            ("x", (np.uint8, [9])),
            ("xs", np.float32(1)),
            ("xz", np.uint8(3)),
            ("b", np.arange(9, dtype=np.uint8)),
            ("bs", np.float32(2)),
            ("bz", np.uint8(4)),
            ("ys", np.float32(y_scale)),
            ("yz", np.uint8(5)),
        ],
        (np.uint8, None),
        layers.MICROSOFT,
    )


def zero_point_of_each_run() -> bytes:
    """The caller gives the QuantizeLinear's zero point, so ONNX Runtime does not move A to u8."""
    node = onnx.helper.make_node
    constants = {
        "xs": np.float32(0.02),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "dz": np.int8(0),
        "w": layers.Random(1).integers(np.int8, (60, 40)),
    }
    nodes = [
        node("QuantizeLinear", ["x", "xs", "z"], ["xq"]),
        node("DequantizeLinear", ["xq", "xs", "dz"], ["xf"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        node("MatMul", ["xf", "wf"], ["y"], name="layer"),
    ]
    return layers.model_of(
        nodes, {"x": (np.float32, [7, 60]), "z": (np.int8, [])}, {"y": (np.float32, None)}, constants
    )


def qdq_unary(
    op: str,
    y_scale: float = 0.02,
    more_inputs: dict = {},
    outputs: list = ["c"],
    divisor: object = np.float32(2),
    **attributes: object,
) -> bytes:
    node, given = onnx.helper.make_node, {"x": (np.uint8, [1, 3, 9, 9])} | more_inputs
    constants = {"xs": np.float32(0.02), "xz": np.uint8(128), "ys": np.float32(y_scale), "two": divisor}
    nodes = [
        node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        node(
            op,
            ["xf", *(["two"] if op == "Div" and not more_inputs else more_inputs)],
            outputs,
            name="layer",
            **attributes,
        ),
        node("QuantizeLinear", ["c", "ys", "xz"], ["y"]),
    ]
    return layers.model_of(
        nodes, given, {"y": (np.uint8, None)} | ({"i": (np.int64, None)} if "i" in outputs else {}), constants
    )


def test_a_pool_whose_taps_lie_in_the_padding():
    model = layers.one_node(
        "MaxPool",
        [("x", (np.uint8, [1, 3, 1, 1]))],
        (np.uint8, None),
        kernel_shape=[2, 2],
        dilations=[2, 2],
        pads=[1] * 4,
    )
    session, given = session_of(model), {"x": np.full((1, 3, 1, 1), 7, np.uint8)}
    assert_taken(session)
    assert_same(run(session, given), np.zeros((1, 3, 1, 1), np.uint8), "the lowest value")
    assert_same(run(session, given), run(cpu_session_of(model), given), "ONNX Runtime's CPU provider")


def test_sums_of_products_of_the_run_wrap():
    model = layers.one_node(
        "MatMulInteger", [("a", (np.uint8, [1, 70000])), ("b", (np.int8, [70000, 1]))], (np.int32, None)
    )
    session, given = (
        session_of(model),
        {"a": np.full((1, 70000), 255, np.uint8), "b": np.full((70000, 1), 127, np.int8)},
    )
    assert_taken(session)
    expected = np.array([[255 * 127 * 70000]]).astype(np.int32)
    assert expected[0, 0] != 255 * 127 * 70000
    assert_same(run(session, given), expected, "the sum modulo 2^32")
    if CPU_IS_EXACT:
        assert_same(run(cpu_session_of(model), given), expected, "ONNX Runtime's CPU provider")


def test_a_dynamic_product_whose_b_each_run_gives():
    node = onnx.helper.make_node
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
        node("MatMulInteger", ["q", "b", "qz"], ["p"], name="layer"),
        node("Cast", ["p"], ["f"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["qs", "bs"], ["s"]),
        node("Mul", ["f", "s"], ["y"]),
    ]
    model = layers.model_of(
        nodes,
        {"x": (np.float32, [5, 30]), "b": (np.int8, [30, 8])},
        {"y": (np.float32, None)},
        {"bs": np.float32(0.02)},
    )
    r = layers.Random(11)
    given = {"x": r.rng.normal(size=(5, 30)).astype(np.float32), "b": r.integers(np.int8, (30, 8))}
    session = session_of(model)
    assert [each["taken"] for each in intact.onnxruntime.report(session) if each["name"] == "layer"] == [True]
    if CPU_IS_EXACT:
        assert_same(run(session, given), run(cpu_session_of(model), given), "ONNX Runtime's CPU provider")


def test_pools_and_quotients_between_dequantizing_and_quantizing():
    given = {"x": layers.Random(3).integers(np.uint8, (1, 3, 9, 9))}
    for model in (qdq_unary("MaxPool", kernel_shape=[3, 3], strides=[2, 2]), qdq_unary("Div", 0.013)):
        session = session_of(model)
        assert_taken(session)
        assert_same(run(session, given), run(cpu_session_of(model), given), "ONNX Runtime's CPU provider")


@pytest.mark.parametrize("seeds", quick_and_long(range(60), 600))
def test_functions_of_bytes_equal_the_cpu_provider(seeds):
    taken = 0
    for seed in seeds:
        model, operators = layers.function_of_bytes(seed)
        sessions = [session_of(model, max_isa=isa) for isa in (None, "avx2", "portable")] + [
            session_of(model, threads=3)
        ]
        cpu = cpu_session_of(model)
        dtype = np.uint8 if "uint8" in cpu.get_inputs()[0].type else np.int8
        r, columns = layers.Random(seed), cpu.get_inputs()[0].shape[1]
        given = [{"x": r.integers(dtype, (rows, columns))} for rows in (1, r.below(3), 150000 // columns)]
        for each in given:
            expected = run(cpu, each)
            for session in sessions:
                assert_same(run(session, each), expected, f"seed {seed}: {operators}")
        taken += all(
            node["taken"] and node["kernel"] == "table" for node in intact.onnxruntime.report(sessions[0])
        )
    assert taken == len(seeds)


def byte_operators(
    operators: list[tuple[str, list[str], str]], shape: list, constant: np.ndarray, outputs: list[str]
) -> bytes:
    """Each operator, (type, inputs, output), between DequantizeLinear and QuantizeLinear; `k` is the constant."""
    node, nodes = onnx.helper.make_node, []
    for op, inputs, output in operators:
        floats = [name if name == "k" else f"{output}_{i}" for i, name in enumerate(inputs)]
        nodes += [
            node("DequantizeLinear", [name, "s", "z"], [floats[i]])
            for i, name in enumerate(inputs)
            if name != "k"
        ]
        nodes += [
            node(op, floats, [f"{output}_f"], name=output),
            node("QuantizeLinear", [f"{output}_f", "s", "z"], [output]),
        ]
    return layers.model_of(
        nodes,
        {"x": (np.uint8, shape)},
        {name: (np.uint8, None) for name in outputs},
        {"s": np.float32(0.02), "z": np.uint8(100), "k": constant},
    )


SILU = [("Sigmoid", ["x"], "u"), ("Mul", ["x", "u"], "y")]


@pytest.mark.parametrize(
    "operators, shape, constant, outputs, kernels",
    [
        (SILU, ["n", 70], np.float32(1), ["y"], {"u": "table", "y": "table"}),
        (SILU, ["n", 70], np.float32(1), ["y", "u"], {"u": "table", "y": "qlinear_mul_avx2"}),
        (
            [("Sqrt", ["x"], "y"), ("Tanh", ["x"], "u")],
            [5],
            np.float32(1),
            ["y", "u"],
            {"u": "table", "y": "table"},
        ),
        ([("Mul", ["x", "k"], "y")], ["n", 70], np.float32([[[2]]]), ["y"], {"y": None}),
        ([("Mul", ["x", "k"], "y")], ["n", 2], np.float32([2, 3]), ["y"], {"y": None}),
        (
            [("Softmax", ["x"], "u"), ("Neg", ["u"], "y")],
            ["n", 70],
            np.float32(1),
            ["y"],
            {"u": "softmax_avx2", "y": "table"},
        ),
    ],
    ids=[
        "SiLU",
        "SiLU, its Sigmoid is read",
        "two functions",
        "a constant of more dimensions",
        "a vector",
        "behind a Softmax",
    ],
)
def test_functions_of_bytes_end_where_they_must(operators, shape, constant, outputs, kernels):
    model = byte_operators(operators, shape, constant, outputs)
    session = session_of(model)
    assert {
        node["name"]: node.get("kernel")
        for node in intact.onnxruntime.report(session)
        if node["name"] in kernels
    } == kernels
    given = {"x": layers.Random(5).integers(np.uint8, [7 if extent == "n" else extent for extent in shape])}
    assert_same(run(session, given), run(cpu_session_of(model), given), "ONNX Runtime's CPU provider")


def signed_chain(operators: list[tuple], scales: dict = {}, shape: list = ["n", 3, "h", "w"]) -> bytes:
    """Operators of s8 tensors: (type, more constants, attributes). x and y are float."""
    node, x, zero, constants = onnx.helper.make_node, "x", np.int8(3), {}
    nodes = []
    for i, (op, more, attributes) in enumerate([("Identity", {}, {}), *operators]):
        constants |= {f"s{i}": np.float32(scales.get(i, 0.03)), f"z{i}": zero}
        inputs = [x]
        for j, value in enumerate(more.values()):
            name = f"k{i}_{j}"
            constants |= {name: value, f"{name}s": np.float32(0.02), f"{name}z": np.int8(0)}
            nodes.append(node("DequantizeLinear", [name, f"{name}s", f"{name}z"], [f"{name}f"]))
            inputs.append(f"{name}f")
        if op != "Identity":
            nodes.append(node(op, inputs, [f"f{i}"], name=f"{op}{i}", **attributes))
            x = f"f{i}"
        nodes += [
            node("QuantizeLinear", [x, f"s{i}", f"z{i}"], [f"q{i}"]),
            node("DequantizeLinear", [f"q{i}", f"s{i}", f"z{i}"], [f"d{i}"]),
        ]
        x = f"d{i}"
    nodes[-1].output[0] = "y"
    return layers.model_of(nodes, {"x": (np.float32, shape)}, {"y": (np.float32, None)}, constants)


def test_functions_of_signed_bytes_do_not_change_their_neighbours():
    """intact refuses the convolution. With a function behind it, ONNX Runtime would not move its output to u8."""
    r = layers.Random(1)
    weights = {"w": r.integers(np.int8, (3, 3, 3, 3))}
    for conv in ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, {"pads": [1] * 4}):
        for function in ("Neg", "Sigmoid"):
            model = signed_chain(
                [("Conv", weights, conv), (function, {}, {}), ("Conv", weights, conv)], {1: 0.4}
            )
            given = {"x": r.rng.normal(size=(2, 3, 60, 60)).astype(np.float32)}
            assert_same(
                run(session_of(model), given), run(cpu_session_of(model), given), f"{conv}, {function}"
            )


def test_functions_of_signed_bytes_with_a_large_scale():
    r = layers.Random(2)
    weights = {"w": r.integers(np.int8, (40, 40))}
    model = signed_chain(
        [("MatMul", weights, {}), ("Mul", {"k": np.int8(100)}, {}), ("MatMul", weights, {})],
        {2: 6e36, 3: 1e36},
        ["n", 40],
    )
    given = {"x": r.rng.normal(size=(60, 40)).astype(np.float32)}
    assert_same(
        run(session_of(model), given), run(cpu_session_of(model), given), "ONNX Runtime's CPU provider"
    )


@pytest.mark.parametrize("y_scale", (1 / 255, 0.004, 0.0021))
def test_attention_of_signed_bytes(y_scale):
    r = layers.Random(3)
    weights = {"w": r.integers(np.int8, (50, 50))}
    model = signed_chain(
        [("MatMul", weights, {}), ("Softmax", {}, {}), ("MatMul", weights, {})],
        {1: 0.1, 2: y_scale},
        ["n", 50],
    )
    session, given = session_of(model), {"x": r.rng.normal(size=(400, 50)).astype(np.float32)}
    assert [
        node["taken"] for node in intact.onnxruntime.report(session) if node["op"] in ("MatMul", "Softmax")
    ] == [True] * 3
    assert_same(run(session, given), run(cpu_session_of(model), given), "ONNX Runtime's CPU provider")


def test_the_report_keeps_nodes_beside_functions_of_onnx():
    """ONNX Runtime replaces HardSwish by its nodes, and asks the provider again."""
    node = onnx.helper.make_node
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        node("Sigmoid", ["f"], ["g"], name="table"),
        node("QuantizeLinear", ["g", "s", "z"], ["y"]),
        node("HardSwish", ["h"], ["i"]),
    ]
    model = layers.model_of(
        nodes,
        {"x": (np.uint8, [4, 5]), "h": (np.float32, [7])},
        {"y": (np.uint8, None), "i": (np.float32, None)},
        {"s": np.float32(0.02), "z": np.uint8(9)},
    )
    assert [
        each["kernel"] for each in intact.onnxruntime.report(session_of(model)) if each["name"] == "table"
    ] == ["table"]


@pytest.mark.parametrize("shape", (["n", "m"], [1, 1]), ids=str)
def test_sums_of_one_element_are_no_functions_of_bytes(shape):
    """ONNX Runtime exchanges the operands of such a sum, so its bytes depend on the extents of a run."""
    model = byte_operators([("Add", ["x", "x"], "y")], shape, np.float32(1), ["y"])
    session, cpu = session_of(model), cpu_session_of(model)
    assert [node["kernel"] for node in intact.onnxruntime.report(session) if node["name"] == "y"] == [
        "qlinear_add_avx2"
    ]
    for x in range(256):
        given = {"x": np.full((1, 1), x, np.uint8)}
        assert_same(run(session, given), run(cpu, given), f"{x}")


REFUSED = {
    "other scale": (
        lambda: qdq_unary("MaxPool", 0.03, kernel_shape=[3, 3]),
        "output: is quantized in another way than X; expected one type, scale and zero point",
    ),
    "ceil_mode": (
        lambda: qdq_unary("MaxPool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        "ceil_mode: is not 0; expected 0",
    ),
    "indices": (
        lambda: qdq_unary("MaxPool", outputs=["c", "i"], kernel_shape=[3, 3]),
        "Indices: are read; expected one output",
    ),
    "pool with SAME": (
        lambda: qdq_unary("MaxPool", kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
        "auto_pad: is SAME_UPPER; expected explicit pads",
    ),
    "divisor of more dimensions": (
        lambda: qdq_unary("Div", divisor=np.full((1, 1, 1, 1, 1), 2, np.float32)),
        "no operator of this provider",
    ),
    "divisor": (
        lambda: qdq_unary("Div", more_inputs={"d": (np.float32, [])}),
        "no operator of this provider",
    ),
    "axis": (lambda: qdq_unary("Softmax", axis=1), "axis: is 1; expected the last of 4 dimensions"),
    "small y_scale": (lambda: qdq_unary("Softmax", 0.0005), "y_scale: is 0.000500; expected at least 1/1024"),
    "sequence_lens": (
        lambda: small_lstm({4: np.array([4, 2], np.int32)}),
        "sequence_lens: is given; expected none",
    ),
    "P": (lambda: small_lstm({7: np.full((1, 15), 0.1, np.float32)}), "P: is given; expected none"),
    "clip": (lambda: small_lstm(clip=0.5), "clip: is given; expected none"),
    "input_forget": (lambda: small_lstm(input_forget=1), "input_forget: is given; expected none"),
    "activations": (
        lambda: small_lstm(activations=["Sigmoid", "Relu", "Tanh"]),
        "activations: has Relu; expected Tanh",
    ),
    "ConvTranspose": (
        small_transposed_convolution,
        "operator: ONNX Runtime computes ConvTranspose in floats; expected another one",
    ),
    "float Conv": (lambda: qdq_float("Conv"), "output: stays float; expected a QuantizeLinear behind it"),
    "float Add": (lambda: qdq_float("Add"), "output: stays float; expected a QuantizeLinear behind it"),
    "int64 Add": (int64_sum, "no operator of this provider"),
    "large sums": (
        lambda: sum_of_scale(1e-7),
        "C_scale: is 1e-07, which makes results that leave int32; expected a larger scale",
    ),
    "zero point": (
        zero_point_of_each_run,
        "A: is int8, and ONNX Runtime does not move it to uint8 but computes floats; expected "
        "uint8, or a QuantizeLinear before this DequantizeLinear alone",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_nodes_have_a_reason_and_are_computed(name):
    make, reason = REFUSED[name]
    model = make()
    session, cpu = session_of(model), cpu_session_of(model)
    assert [
        node["reason"]
        for node in intact.onnxruntime.report(session)
        if node["name"] in ("layer", "QLinearAdd")
    ] == [reason]
    r = layers.Random(8)
    types = {
        "tensor(float)": np.float32,
        "tensor(uint8)": np.uint8,
        "tensor(int8)": np.int8,
        "tensor(int64)": np.int64,
    }
    given = {x.name: r.integers(np.uint8, x.shape).astype(types[x.type]) for x in cpu.get_inputs()}
    assert_same(run(session, given), run(cpu, given), name)


def qdq_conv(**changes) -> bytes:
    """DequantizeLinear, Conv, Relu, QuantizeLinear; `changes`: of the constants, or `axis`."""
    rng = np.random.default_rng(0)
    constants = {
        "xs": np.float32(0.02),
        "xz": np.uint8(128),
        "w": rng.integers(-128, 128, (4, 4, 3, 3)).astype(np.int8),
        "ws": rng.uniform(0.01, 0.02, 4).astype(np.float32),
        "wz": np.zeros(4, np.int8),
        "b": rng.integers(-9999, 9999, 4).astype(np.int32),
        "ys": np.float32(0.3),
        "yz": np.uint8(0),
    }
    axis = changes.pop("axis", 0)
    constants |= changes
    constants["bs"] = constants["xs"] * constants["ws"]
    node = onnx.helper.make_node
    nodes = [
        node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=axis),
        node("DequantizeLinear", ["b", "bs"], ["bf"], axis=0),
        node("Conv", ["xf", "wf", "bf"], ["c"], pads=[1] * 4),
        node("Relu", ["c"], ["r"]),
        node("QuantizeLinear", ["r", "ys", "yz"], ["y"]),
    ]
    return layers.model_of(nodes, {"x": (np.uint8, ["n", 4, "h", "w"])}, {"y": (np.uint8, None)}, constants)


def test_a_relu_is_part_of_a_group_only_where_quantizing_clamps_alike():
    given = {"x": np.random.default_rng(1).integers(0, 256, (2, 4, 9, 8)).astype(np.uint8)}
    model = qdq_conv()
    assert_taken(session_of(model))
    if CPU_IS_EXACT:
        assert_same(
            session_of(model).run(None, given)[0], cpu_session_of(model).run(None, given)[0], "with Relu"
        )
    for changed, reason in (
        ({"yz": np.uint8(3)}, "y_zero_point: is not the lowest value; expected that behind a Relu"),
        ({"axis": 1}, "axis: is 1 for the scales of the weights; expected 0"),
    ):
        model = qdq_conv(**changed)
        session = session_of(model)
        assert [node["reason"] for node in intact.onnxruntime.report(session) if node["op"] == "Conv"] == [
            reason
        ]
        assert_same(session.run(None, given)[0], cpu_session_of(model).run(None, given)[0], reason)


def test_branches_of_one_model_have_their_own_layers():
    """Subgraphs whose values have the same names."""

    def branch(fill: int) -> onnx.GraphProto:
        return onnx.helper.make_graph(
            [onnx.helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
            f"branch{fill}",
            [],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)],
            [onnx.numpy_helper.from_array(np.full((8, 3), fill, np.int8), "b")],
        )

    node = onnx.helper.make_node("If", ["c"], ["z"], then_branch=branch(1), else_branch=branch(2))
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [
            onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []),
            onnx.helper.make_tensor_value_info("a", onnx.TensorProto.UINT8, [1, 8]),
        ],
        [onnx.helper.make_tensor_value_info("z", onnx.TensorProto.INT32, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    session = session_of(model.SerializeToString())
    assert sorted(node["taken"] for node in intact.onnxruntime.report(session)) == [False, True, True]
    a = np.arange(8, dtype=np.uint8).reshape(1, 8)
    for c, factor in ((True, 1), (False, 2)):
        assert (session.run(None, {"c": np.asarray(c), "a": a})[0] == factor * a.sum()).all()


def test_runs_are_refused_in_one_line():
    model = layers.one_node(
        "MatMulInteger", [("a", (np.uint8, None)), ("b", np.ones((8, 3), np.int8))], (np.int32, None)
    )
    with pytest.raises(Exception, match="intact: output y: A: has rows of 7 elements; expected 8"):
        session_of(model).run(None, {"a": np.zeros((2, 7), np.uint8)})
    model = layers.one_node(
        "ConvInteger", [("x", (np.uint8, None)), ("w", np.ones((1, 2, 3), np.uint8))], (np.int32, None)
    )
    with pytest.raises(Exception, match="intact: output y: X: has 1 channels; expected 2"):
        session_of(model).run(None, {"x": np.zeros((1, 1, 9), np.uint8)})
    with pytest.raises(
        Exception, match="intact: output y: X: has extent 2 with its padding; expected at least 3"
    ):
        session_of(model).run(None, {"x": np.zeros((1, 2, 2), np.uint8)})


def test_options_are_prepared_once():
    options = onnxruntime.SessionOptions()
    intact.onnxruntime.add(options)
    with pytest.raises(
        intact.Error, match="options: add\\(\\) has prepared them before; expected new SessionOptions"
    ):
        intact.onnxruntime.add(options, reproducible=True)


def test_empty_batches():
    model = layers.one_node(
        "MatMulInteger", [("a", (np.uint8, None)), ("b", np.ones((8, 3), np.int8))], (np.int32, None)
    )
    assert session_of(model).run(None, {"a": np.zeros((0, 8), np.uint8)})[0].shape == (0, 3)
    model = layers.one_node(
        "ConvInteger", [("x", (np.uint8, None)), ("w", np.ones((5, 2, 3), np.uint8))], (np.int32, None)
    )
    assert session_of(model).run(None, {"x": np.zeros((0, 2, 9), np.uint8)})[0].shape == (0, 5, 7)


@pytest.mark.parametrize(
    "option, value, expected",
    [
        ("mode", "fast", "exact or saturating"),
        ("threads", "0", "a positive number"),
        ("max_isa", "sse9", "a name of intact_isa_name"),
        ("like", "onnxruntime:sse", "onnxruntime:avx2"),
        ("reproducible", "yes", "0 or 1"),
    ],
)
def test_options_are_checked(option, value, expected):
    intact.onnxruntime.register()
    options = onnxruntime.SessionOptions()
    device = next(each for each in onnxruntime.get_ep_devices() if each.ep_name == intact.onnxruntime.NAME)
    options.add_provider_for_devices([device], {option: value})
    model = layers.one_node(
        "MatMulInteger", [("a", (np.uint8, None)), ("b", np.ones((8, 3), np.int8))], (np.int32, None)
    )
    with pytest.raises(Exception, match=f"intact: {option}: is '{value}'; expected {expected}"):
        onnxruntime.InferenceSession(model, options)


def test_like_needs_the_exact_mode_and_avx2():
    model = layers.one_node(
        "MatMulInteger", [("a", (np.uint8, None)), ("b", np.ones((8, 3), np.int8))], (np.int32, None)
    )
    with pytest.raises(Exception, match="intact: mode: is 'saturating' with like; expected exact"):
        session_of(model, like=LIKE, mode="saturating")
    with pytest.raises(Exception, match="intact: like: is 'onnxruntime:avx2' without AVX2"):
        session_of(model, like=LIKE, max_isa="portable")


def test_python_arguments_are_checked():
    for arguments in (
        {"mode": "fast"},
        {"max_isa": "sse9"},
        {"like": "avx2"},
        {"threads": -1},
        {"threads": 0},
        {"threads": 1.5},
        {"threads": 1 << 31},
    ):
        with pytest.raises(intact.Error, match=f"^{next(iter(arguments))}: is "):
            intact.onnxruntime.add(onnxruntime.SessionOptions(), **arguments)
    model = layers.one_node(
        "MatMulInteger", [("a", (np.uint8, None)), ("b", np.ones((8, 3), np.int8))], (np.int32, None)
    )
    with pytest.raises(intact.Error, match="has no IntactExecutionProvider"):
        intact.onnxruntime.report(cpu_session_of(model))
    assert [node["taken"] for node in intact.onnxruntime.report(model)] == [True]


def test_an_older_onnx_runtime_is_refused():
    """A runtime that has only version 1 of the API. Its first function is CreateStatus()."""
    messages = []
    create_status = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p)(
        lambda code, message: messages.append(message.decode()) or 1
    )
    api, version = (
        (ctypes.c_void_p * 1)(ctypes.cast(create_status, ctypes.c_void_p).value),
        ctypes.create_string_buffer(b"1.22.0"),
    )
    get_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(
        lambda wanted: ctypes.addressof(api) if wanted == 1 else None
    )
    get_version = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(version))
    base = (ctypes.c_void_p * 2)(
        *(ctypes.cast(each, ctypes.c_void_p).value for each in (get_api, get_version))
    )
    make = ctypes.CDLL(str(Path(intact.__file__).with_name("libintact_onnxruntime_ep.so"))).CreateEpFactories
    make.restype = ctypes.c_size_t
    assert make(None, base, None, None, ctypes.c_size_t(1), None) == 1
    (message,) = messages
    assert re.fullmatch(
        r"intact: ONNX Runtime is 1\.22\.0; expected 1\.\d+ or newer, the version of the headers that .*",
        message,
    )


def test_a_report_lives_as_long_as_its_session():
    model = layers.one_node(
        "MatMulInteger", [("a", (np.uint8, None)), ("b", np.ones((8, 3), np.int8))], (np.int32, None)
    )
    options = onnxruntime.SessionOptions()
    intact.onnxruntime.add(options)
    first, second = (onnxruntime.InferenceSession(model, options) for _ in range(2))
    del first
    assert_taken(second)


def model_and_inputs(name: str) -> tuple[bytes, list[dict]]:
    """Inputs of eight shapes."""
    if name == "lstm":
        layer = layers.dynamic_quantize_lstm(1)
        return layer.model, [layer.inputs() for _ in range(8)]
    r, (_, *shape) = layers.Random(4), NETWORKS[name][1]
    model, _ = quantized_network(name, "dynamic" if name == "mlp" else "QDQ")
    return model, [{"x": r.rng.normal(size=[batch, *shape]).astype(np.float32)} for batch in range(1, 9)]


@pytest.mark.parametrize("runs", [400, pytest.param(10000, marks=long)])
@pytest.mark.parametrize("name", [*NETWORKS, "lstm"])
def test_eight_threads_of_a_program_share_two_sessions(name, runs):
    """Runs of other shapes go on in other threads, and all have the bytes of one thread."""
    model, inputs = model_and_inputs(name)
    alone = session_of(model)
    expected = [run(alone, given) for given in inputs]
    sessions = [session_of(model, threads=2), session_of(model, threads=3, max_isa="avx2")]

    def run_and_compare(i: int) -> None:
        given = i % len(inputs)
        assert_same(run(sessions[i // len(inputs) % 2], inputs[given]), expected[given], f"run {i}")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in pool.map(run_and_compare, range(runs)):
            assert done is None


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("runs", [1000, pytest.param(10000, marks=long)])
def test_runs_of_changing_shapes_leave_memory_flat(runs):
    """Prints the figures (pytest -s)."""
    rng = np.random.default_rng(3)
    made = [operator(3) for operator in layers.OPERATORS]
    sessions = [session_of(layer.model, threads=2) for layer in made]

    def run(times: int) -> None:
        for _ in range(times):
            i = rng.integers(len(made))
            sessions[i].run(None, made[i].inputs())

    run(500)
    before = resident_bytes()
    run(runs)
    after = resident_bytes()
    print(f"resident memory: {before >> 10} KiB, after {runs} more runs {after >> 10} KiB")
    assert after - before < 4 << 20


PLANS_IN_CHILD = """
import sys, test_provider
model = test_provider.quantized_network(*sys.argv[1:])[0]

def stage(name):
    print(name, file=sys.stderr, flush=True)

stage("first")
first = test_provider.session_of(model)
stage("second")
second = test_provider.session_of(model, threads=2)
stage("with a cap")
capped = test_provider.session_of(model, max_isa="avx2")
del first, second
stage("a third")
test_provider.session_of(model)
"""


def child_of(program: str, *arguments: str) -> subprocess.CompletedProcess:
    """Runs a program that imports these tests. Its stderr has a line for each plan and each run."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parent,
        env=os.environ | {"INTACT_VERBOSE": "1", "PYTHONPATH": str(Path(intact.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("name, how", [("cnn", "QOperator"), ("cnn", "QDQ"), ("mlp", "dynamic")])
def test_equal_layers_of_living_sessions_have_one_plan(name, how):
    """Also if ONNX Runtime asks for a layer twice, as it does with convolutions."""
    done = child_of(PLANS_IN_CHILD, name, how)
    plans = []
    for line in done.stderr.splitlines():
        if line in ("first", "second", "with a cap", "a third"):
            plans.append(0)
        elif line.startswith("intact: plan "):
            plans[-1] += 1
    count = LAYERS[name]
    assert plans == [count, 0, count, count]


PARTS_IN_CHILD = """
import numpy as np, layers, test_provider

def run(op, w, shape, **attributes):
    model = layers.one_node(op, [("a", (np.uint8, shape)), ("w", w)], (np.int32, None), **attributes)
    test_provider.session_of(model, threads=2, max_isa="avx2").run(None, {"a": np.zeros(shape, np.uint8)})

for m, k in ((1, 256), (1, 1024), (4, 256), (8, 256)):
    run("MatMulInteger", np.ones((k, k), np.int8), [m, k])
for side, channels in ((7, 64), (28, 48)):
    w = np.ones((channels, 1, 1, 1), np.int8)
    run("ConvInteger", w, [1, channels, side, side], group=channels)
"""


def test_layers_that_take_long_run_in_parts():
    """Those of many weights, of many products, or of many outputs."""
    done = child_of(PARTS_IN_CHILD)
    parts = re.findall(r"^intact: run .* part=0/(\d+) ", done.stderr, re.MULTILINE)
    assert parts == ["1", "2", "1", "2", "1", "2"]


def test_two_sessions_have_the_weights_of_a_layer_once():
    w = np.random.default_rng(4).integers(-128, 128, (8192, 4096), np.int8)
    model = layers.one_node("MatMulInteger", [("a", (np.uint8, ["m", 8192])), ("w", w)], (np.int32, None))
    sessions = [session_of(model)]
    before = resident_bytes()
    sessions.append(session_of(model))
    assert resident_bytes() - before < w.nbytes // 4
    given = {"a": np.full((1, 8192), 3, np.uint8)}
    results = [session.run(None, given)[0] for session in sessions]
    assert all((result == 3 * w.sum(0, np.int32)).all() for result in results)


def test_plans_of_many_extents_leave_memory_flat():
    w = np.random.default_rng(5).integers(-128, 128, (64, 64, 3, 3), np.int8)
    model = layers.one_node(
        "ConvInteger", [("x", (np.uint8, [1, 64, "h", "w"])), ("w", w)], (np.int32, None), pads=[1] * 4
    )
    session = session_of(model)

    def run(widths: range) -> None:
        for width in widths:
            session.run(None, {"x": np.zeros((1, 64, 3, width), np.uint8)})

    # From wide to narrow: ONNX Runtime's memory does not grow.
    run(range(1210, 1010, -1))
    before = resident_bytes()
    run(range(1010, 10, -1))
    assert resident_bytes() - before < 4 << 20
