"""Float operators that the provider computes with one order of additions: the bytes of ONNX Runtime's kernels for AVX-512, on every
CPU from AVX2 on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", minversion="1.23", reason="needs onnxruntime 1.23")
onnx = pytest.importorskip("onnx", reason="needs onnx")

import intact
import intact.onnxruntime
import layers
from test_provider import assert_same, assert_taken, cpu_session_of, session_of

ISAS = [None, "avx2", "portable"]  # "portable": the definition, one element after the other
# What ONNX Runtime computes on this CPU is the expected output only if the CPU has AVX-512.
stock_has_avx512 = pytest.mark.skipif("avx512" not in intact.isas(), reason="needs a CPU with AVX-512")


def softmax(op: str = "Softmax", opset: int = 13, dimensions: int = 2, **attributes: int) -> bytes:
    shape = [f"d{i}" for i in range(dimensions)]
    return layers.model_of([onnx.helper.make_node(op, ["x"], ["y"], **attributes)], {"x": (np.float32, shape)},
                           {"y": (np.float32, shape)}, {}, opset)


def rows_of_each_length(longest: int = 300) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    lengths = [*range(1, longest + 1), 1000, 4099]
    return [rng.normal(0, rng.choice([0.1, 1, 8, 50]), (5, length)).astype(np.float32) for length in lengths]


def rows_of_rare_values() -> list[np.ndarray]:
    """NaNs of both signs, infinities, denormal numbers, numbers at the bounds of the exponential, masks."""
    rng = np.random.default_rng(1)
    rare = np.array([np.nan, -np.nan, np.inf, -np.inf, 1e-42, -1e-42, 0.0, -0.0, 3e38, -3e38, -3.4028235e38, 1e20, -87.0, -87.4, -88.4,
                     -95.0, -103.9, -103.98, -1e4], np.float32)
    made = []
    for length in [*range(1, 100), 257]:
        x = rng.normal(0, 5, (40, length)).astype(np.float32)
        chosen = rng.random(x.shape) < rng.choice([0.02, 0.3, 1])
        x[chosen] = rng.choice(rare, np.count_nonzero(chosen))
        made.append(x)
    masked = rng.normal(0, 5, (12, 40)).astype(np.float32)
    masked[:, 17:] = np.float32(-10000)
    fully_masked = np.full((3, 20), -np.inf, np.float32)
    return [*made, masked, fully_masked]


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("inputs", [rows_of_each_length, rows_of_rare_values])
def test_softmax_has_the_same_bytes_on_each_isa(op, inputs):
    sessions = {isa: session_of(softmax(op), max_isa=isa) for isa in ISAS}
    assert_taken(sessions[None])
    kernels = {intact.onnxruntime.report(session)[0]["kernel"] for session in sessions.values()}
    assert len(kernels) == 1 + len({"avx2", "avx512"} & set(intact.isas())), kernels
    for x in inputs():
        expected = sessions["portable"].run(None, {"x": x})[0]
        for isa in (None, "avx2"):
            assert_same(sessions[isa].run(None, {"x": x})[0], expected, f"{isa}, {x.shape}")


@stock_has_avx512
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("inputs", [rows_of_each_length, rows_of_rare_values])
def test_softmax_equals_the_cpu_provider(op, inputs):
    session, cpu = session_of(softmax(op)), cpu_session_of(softmax(op))
    for x in inputs():
        assert_same(session.run(None, {"x": x})[0], cpu.run(None, {"x": x})[0], str(x.shape))


@stock_has_avx512
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("opset", [8, 11, 12, 13, 17])
@pytest.mark.parametrize("dimensions", [1, 2, 3, 4, 5])
def test_softmax_of_each_axis_equals_the_cpu_provider(op, opset, dimensions):
    """Before opset 13 a row is all dimensions from the axis on."""
    rng = np.random.default_rng(dimensions)
    axes = range(-dimensions if opset >= 11 else 0, dimensions)
    for attributes in [{}, *({"axis": axis} for axis in axes)]:
        if not attributes and dimensions == 1 and opset < 13:
            continue  # the default is axis 1, which the tensor does not have
        model = softmax(op, opset, dimensions, **attributes)
        session, cpu = session_of(model), cpu_session_of(model)
        assert_taken(session)
        for _ in range(3):
            x = rng.normal(0, 3, rng.integers(1, 12, dimensions)).astype(np.float32)
            assert_same(session.run(None, {"x": x})[0], cpu.run(None, {"x": x})[0], f"{attributes}, {x.shape}")


def test_a_row_of_softmax_does_not_depend_on_threads_or_other_rows():
    x = np.random.default_rng(2).normal(0, 4, (700, 130)).astype(np.float32)
    sessions = [session_of(softmax(), threads=threads) for threads in (1, 2, 4)]
    expected, *others = [session.run(None, {"x": x})[0] for session in sessions]
    for threads, computed in zip((2, 4), others):
        assert_same(computed, expected, f"{threads} threads")
    for rows in (slice(0, 1), slice(399, 400), slice(3, 11)):
        assert_same(sessions[1].run(None, {"x": x[rows]})[0], expected[rows], f"rows {rows.start} to {rows.stop}")


def test_softmax_of_empty_tensors_and_of_an_axis_that_is_not_there():
    assert session_of(softmax()).run(None, {"x": np.zeros((0, 8), np.float32)})[0].shape == (0, 8)
    assert session_of(softmax()).run(None, {"x": np.zeros((3, 0), np.float32)})[0].shape == (3, 0)
    model = onnx.helper.make_model(onnx.helper.make_graph(
        [onnx.helper.make_node("Softmax", ["x"], ["y"], axis=2)], "g", [onnx.helper.make_tensor_value_info("x", 1, None)],
        [onnx.helper.make_tensor_value_info("y", 1, None)]), opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    with pytest.raises(Exception, match="intact: axis: is 2 with 2 dimensions; expected one of them"):
        session_of(model.SerializeToString()).run(None, {"x": np.zeros((2, 3), np.float32)})


RUN_IN_CHILD = """
import sys
import test_float_operators as tests
import test_provider
stock_too = sys.argv[1] == "stock"
model = tests.softmax()
session = test_provider.cpu_session_of(model) if stock_too else test_provider.session_of(model)
sys.stdout.buffer.write(b"".join(session.run(None, {"x": x})[0].tobytes() for x in tests.rows_of_each_length(200)))
"""


@stock_has_avx512
def test_bytes_of_a_process_that_is_held_to_avx2(tmp_path):
    """The CPU provider's bytes differ there: the comparison finds a Softmax that is left with ONNX Runtime."""
    if "cpuid_fault" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has no CPUID faulting")
    library, source = tmp_path / "held_to.so", Path(__file__).parents[3] / "examples/targets/held_to.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-Wl,-z,initfirst", "-o", library, source], check=True)

    def bytes_of(who: str, **environment: str) -> bytes:
        path = os.pathsep.join([str(Path(intact.__file__).parents[1]), str(Path(__file__).parent)])
        done = subprocess.run([sys.executable, "-B", "-c", RUN_IN_CHILD, who], capture_output=True, timeout=120,
                              env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"} |
                              {"PYTHONPATH": path} | environment)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    held = {"HELD_TO": "avx2", "LD_PRELOAD": str(library)}
    expected = bytes_of("stock")
    assert bytes_of("intact") == expected
    assert bytes_of("intact", **held) == expected
    assert bytes_of("stock", **held) != expected


def test_a_float_softmax_beside_quantized_tensors():
    """Between DequantizeLinear and QuantizeLinear Softmax is an operator of bytes; with one of them it is one of floats."""
    node = onnx.helper.make_node
    constants = {"s": np.float32(0.05), "z": np.uint8(128), "ys": np.float32(1 / 256), "yz": np.uint8(0)}
    dequantize, quantize = node("DequantizeLinear", ["x", "s", "z"], ["f"]), node("QuantizeLinear", ["p", "ys", "yz"], ["y"])
    x = np.random.default_rng(4).integers(0, 256, (6, 37)).astype(np.uint8)
    for nodes, x_type, y_type, kernel in (([dequantize, node("Softmax", ["f"], ["p"]), quantize], np.uint8, np.uint8, "softmax_"),
                                          ([dequantize, node("Softmax", ["f"], ["y"])], np.uint8, np.float32, "softmax_f32_"),
                                          ([node("Softmax", ["x"], ["p"]), quantize], np.float32, np.uint8, "softmax_f32_")):
        model = layers.model_of(nodes, {"x": (x_type, ["n", 37])}, {"y": (y_type, None)}, constants)
        session = session_of(model)
        (found,) = [each["kernel"] for each in intact.onnxruntime.report(session) if each["op"] == "Softmax"]
        assert found.startswith(kernel) and ("f32" in found) == ("f32" in kernel)
        if "avx512" in intact.isas():
            assert_same(session.run(None, {"x": x.astype(x_type)})[0], cpu_session_of(model).run(None, {"x": x.astype(x_type)})[0], kernel)


def test_with_like_a_float_softmax_stays_with_onnx_runtime():
    (node,) = intact.onnxruntime.report(session_of(softmax(), like="onnxruntime:avx2"))
    assert node["reason"] == "operator: is of floats; expected integers with like, which is for sums of integers"
