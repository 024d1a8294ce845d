"""Float operators that the provider computes with one order of additions: the bytes of ONNX Runtime's kernels for AVX-512, on every
CPU from AVX2 on."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
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
from intact._engines import held_to as _held_to
from test_provider import assert_same, assert_taken, cpu_session_of, session_of

LIBC = ctypes.CDLL(None)
ISAS = [None, "avx2", "portable"]  # "portable": the definition, one element after the other
# What ONNX Runtime computes on this CPU is the expected output only if the CPU has AVX-512.
stock_has_avx512 = pytest.mark.skipif("avx512" not in intact.isas(), reason="needs a CPU with AVX-512")


def softmax(op: str = "Softmax", opset: int = 13, dimensions: int = 2, **attributes: int) -> bytes:
    shape = [f"d{i}" for i in range(dimensions)]
    return layers.model_of(
        [onnx.helper.make_node(op, ["x"], ["y"], **attributes)],
        {"x": (np.float32, shape)},
        {"y": (np.float32, shape)},
        {},
        opset,
    )


def rows_of_each_length(longest: int = 300) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    lengths = [*range(1, longest + 1), 1000, 4099]
    return [rng.normal(0, rng.choice([0.1, 1, 8, 50]), (5, length)).astype(np.float32) for length in lengths]


def rows_of_rare_values() -> list[np.ndarray]:
    """NaNs of both signs, infinities, denormal numbers, numbers at the bounds of the exponential, masks."""
    rng = np.random.default_rng(1)
    rare = np.array(
        [
            np.nan,
            -np.nan,
            np.inf,
            -np.inf,
            1e-42,
            -1e-42,
            0.0,
            -0.0,
            3e38,
            -3e38,
            -3.4028235e38,
            1e20,
            -87.0,
            -87.4,
            -88.4,
            -95.0,
            -103.9,
            -103.98,
            -1e4,
        ],
        np.float32,
    )
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
            assert_same(
                session.run(None, {"x": x})[0], cpu.run(None, {"x": x})[0], f"{attributes}, {x.shape}"
            )


def test_a_row_of_softmax_does_not_depend_on_threads_or_other_rows():
    x = np.random.default_rng(2).normal(0, 4, (700, 130)).astype(np.float32)
    sessions = [session_of(softmax(), threads=threads) for threads in (1, 2, 4)]
    expected, *others = [session.run(None, {"x": x})[0] for session in sessions]
    for threads, computed in zip((2, 4), others):
        assert_same(computed, expected, f"{threads} threads")
    for rows in (slice(0, 1), slice(399, 400), slice(3, 11)):
        assert_same(
            sessions[1].run(None, {"x": x[rows]})[0], expected[rows], f"rows {rows.start} to {rows.stop}"
        )


def test_softmax_of_empty_tensors_and_of_an_axis_that_is_not_there():
    assert session_of(softmax()).run(None, {"x": np.zeros((0, 8), np.float32)})[0].shape == (0, 8)
    assert session_of(softmax()).run(None, {"x": np.zeros((3, 0), np.float32)})[0].shape == (3, 0)
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Softmax", ["x"], ["y"], axis=2)],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, None)],
            [onnx.helper.make_tensor_value_info("y", 1, None)],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 13)],
        ir_version=8,
    )
    with pytest.raises(
        Exception, match="intact: output y: axis: is 2 with 2 dimensions; expected one of them"
    ):
        session_of(model.SerializeToString()).run(None, {"x": np.zeros((2, 3), np.float32)})


def convolution(
    inputs: int, outputs: int, kernel: tuple = (3, 3), group: int = 1, bias: bool = True, **attributes: object
) -> bytes:
    rng = np.random.default_rng(inputs * outputs)
    constants = {"w": rng.normal(0, 1, (outputs, inputs // group, *kernel)).astype(np.float32)}
    if bias:
        constants["b"] = rng.normal(0, 1, outputs).astype(np.float32)
    shape = ["n", inputs, *(f"d{i}" for i in range(len(kernel)))]
    return layers.model_of(
        [onnx.helper.make_node("Conv", ["x", *constants], ["y"], group=group, **attributes)],
        {"x": (np.float32, shape)},
        {"y": (np.float32, ["n", outputs, *(f"e{i}" for i in range(len(kernel)))])},
        constants,
    )


def inputs_of(model: bytes, batch: int = 2, extents: tuple = (11, 14, 9)) -> dict:
    (x,) = onnx.load_from_string(model).graph.input
    dimensions = x.type.tensor_type.shape.dim
    shape = [batch, dimensions[1].dim_value, *extents[: len(dimensions) - 2]]
    return {"x": np.random.default_rng(batch).normal(0, 1, shape).astype(np.float32)}


# The provider takes these with `reproducible`. ONNX Runtime computes them with NCHWc kernels if the CPU has AVX-512.
CONVOLUTIONS = {
    "3 inputs": convolution(3, 20, pads=[1] * 4),
    "1 input": convolution(1, 16),
    "12 inputs": convolution(12, 24, pads=[1] * 4),
    "15 inputs, 5x3": convolution(15, 7, (5, 3), pads=[2, 1, 2, 1]),
    "8 inputs, 1x1": convolution(8, 8, (1, 1)),
    "16 inputs": convolution(16, 16, pads=[1] * 4),
    "24 inputs": convolution(24, 70, pads=[1, 2, 0, 1]),
    "20 inputs, strides": convolution(20, 33, pads=[1] * 4, strides=[2, 1]),
    "36 inputs": convolution(36, 64, bias=False),
    "dilations": convolution(64, 100, dilations=[2, 3], pads=[2] * 4),
    "7x7": convolution(32, 32, (7, 7), strides=[2, 2], pads=[3] * 4),
    "1x1": convolution(300, 32, (1, 1)),
    "1x1, strides": convolution(256, 100, (1, 1), strides=[2, 2]),
    "1x1, padding": convolution(32, 32, (1, 1), pads=[1] * 4),
    "one output": convolution(32, 1),
    "groups": convolution(48, 96, group=3),
    "groups, 1x1": convolution(64, 64, (1, 1), group=2),
    "SAME_UPPER": convolution(32, 48, (4, 4), auto_pad="SAME_UPPER"),
    "SAME_LOWER": convolution(32, 48, (2, 4), auto_pad="SAME_LOWER"),
    "padding only": convolution(16, 16, (3, 3), pads=[9, 9, 9, 9]),
}
# The provider takes these too. ONNX Runtime computes groups with NCHWc kernels only if the CPU has no AVX-512, and 18 inputs with none.
OTHER_CONVOLUTIONS = {
    "18 inputs": convolution(18, 16),
    "groups of 8": convolution(16, 32, group=2),
    "groups of 24": convolution(48, 48, group=2),
}
# ONNX Runtime adds in one order on every CPU.
CONVOLUTIONS_THAT_STAY = {
    "depthwise": (
        convolution(32, 32, group=32),
        "W: has 1 channels and 1 outputs in each group, where .* multiples of 8",
    ),
    "groups of 12": (
        convolution(24, 24, group=2),
        "W: has 12 channels and 12 outputs in each group, where .* multiples of 8",
    ),
    "1-d depthwise": (
        convolution(32, 32, (5,), group=32),
        "W: has one output and 5 depths in each group, .* expected more than 128",
    ),
}
# One or three dimensions.
MATRIX_CONVOLUTIONS = {
    "1-d": convolution(32, 32, (5,)),
    "1-d, many depths": convolution(128, 22, (7,), pads=[3, 3]),
    "1-d, groups": convolution(96, 10, (9,), group=2, strides=[2], bias=False),
    "1-d, pointwise": convolution(300, 7, (1,)),
    "1-d, many outputs": convolution(40, 200, (4,), dilations=[3], pads=[5, 1]),
    "3-d": convolution(8, 8, (3, 3, 3)),
    "3-d, strides": convolution(
        30, 20, (2, 3, 3), group=2, strides=[1, 2, 1], pads=[1, 0, 1, 0, 2, 1], dilations=[1, 1, 2]
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS | OTHER_CONVOLUTIONS)
def test_convolutions_have_the_same_bytes_on_each_isa(name):
    model = (CONVOLUTIONS | OTHER_CONVOLUTIONS)[name]
    sessions = {isa: session_of(model, max_isa=isa, reproducible=True) for isa in ISAS}
    assert_taken(sessions[None])
    for batch, extents in ((1, (7, 9)), (2, (14, 23))):
        given = inputs_of(model, batch, extents)
        expected = sessions["portable"].run(None, given)[0]
        for isa in (None, "avx2"):
            assert_same(sessions[isa].run(None, given)[0], expected, f"{isa}, {given['x'].shape}")


@stock_has_avx512
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_equal_the_cpu_provider(name):
    session, cpu = session_of(CONVOLUTIONS[name], reproducible=True), cpu_session_of(CONVOLUTIONS[name])
    for batch, extents in ((1, (7, 9)), (3, (16, 31))):
        given = inputs_of(CONVOLUTIONS[name], batch, extents)
        assert_same(session.run(None, given)[0], cpu.run(None, given)[0], str(given["x"].shape))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("inputs", [32, 20])
def test_convolutions_of_rare_values(isa, inputs):
    """NaNs and infinities, also where only a tap in the padding would meet an infinite weight; products that underflow to −0."""
    model = onnx.load_from_string(convolution(inputs, 33, pads=[1] * 4, bias=False))
    weights = np.array(onnx.numpy_helper.to_array(model.graph.initializer[0]))
    weights[3, 2, 0, 0] = np.inf
    weights[5] = np.abs(weights[5]) * np.float32(1e-30)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weights, "w"))
    given = inputs_of(model.SerializeToString())
    given["x"][0, :, 4:] = -np.abs(given["x"][0, :, 4:]) * np.float32(1e-30)
    given["x"][1, 7, 3, 3], given["x"][1, 2, 7, 7] = np.nan, -np.inf
    computed = session_of(model.SerializeToString(), max_isa=isa, reproducible=True).run(None, given)[0]
    expected = session_of(model.SerializeToString(), max_isa="portable", reproducible=True).run(None, given)[
        0
    ]
    if "avx512" in intact.isas():
        expected = cpu_session_of(model.SerializeToString()).run(None, given)[0]
    assert np.isnan(expected).any() and np.isinf(expected).any()
    # the missing channels of a block make −0 to 0
    assert (np.signbit(expected) & (expected == 0)).any() == (inputs == 32)
    assert (np.isnan(computed) == np.isnan(expected)).all()
    assert_same(np.nan_to_num(computed, nan=0), np.nan_to_num(expected, nan=0), str(isa))


def test_convolutions_do_not_depend_on_threads_or_the_batch():
    model = CONVOLUTIONS["dilations"]
    given = inputs_of(model, 6, (30, 40))
    expected, *others = [
        session_of(model, threads=threads, reproducible=True).run(None, given)[0] for threads in (1, 2, 4)
    ]
    for computed in others:
        assert_same(computed, expected, "threads")
    assert_same(
        session_of(model, reproducible=True).run(None, {"x": given["x"][4:5]})[0], expected[4:5], "one image"
    )


@pytest.mark.parametrize("name", MATRIX_CONVOLUTIONS)
def test_convolutions_of_one_or_three_dimensions(name):
    """ONNX Runtime's order with one thread, for every number of threads and on each ISA."""
    model = MATRIX_CONVOLUTIONS[name]
    sessions = [
        session_of(model, threads=threads, max_isa=isa, reproducible=True)
        for threads, isa in zip((1, 3, 2), ISAS)
    ]
    assert_taken(sessions[0])
    for batch, extents in ((1, (27, 9, 8)), (2, (150, 4, 5)), (1, (700, 5, 12))):
        given = inputs_of(model, batch, extents)
        expected = cpu_session_of(model).run(None, given)[0]
        for session in sessions:
            assert_same(session.run(None, given)[0], expected, str(given["x"].shape))


def test_depthwise_convolutions_of_one_dimension_have_one_order():
    for model in (convolution(96, 96, (7,), group=96, pads=[3, 3]), convolution(16, 1, (8,))):
        given = inputs_of(model, 1, (10_007,))
        assert (
            len(
                {
                    session_of(model, threads=threads, reproducible=True).run(None, given)[0].tobytes()
                    for threads in (1, 2, 3, 4)
                }
            )
            == 1
        )


def test_a_network_of_float_convolutions():
    """ONNX Runtime moves the nodes that intact takes to NHWC."""
    rng = np.random.default_rng(0)
    nodes, constants, x = [], {}, "x"
    for i, (inputs, outputs, kernel, group) in enumerate(
        [(3, 32, 3, 1), (32, 64, 1, 1), (64, 64, 3, 64), (64, 40, 3, 1), (40, 16, 3, 1)]
    ):
        constants[f"w{i}"] = rng.normal(0, 0.2, (outputs, inputs // group, kernel, kernel)).astype(np.float32)
        nodes += [
            onnx.helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"], group=group, pads=[kernel // 2] * 4),
            onnx.helper.make_node("Relu", [f"c{i}"], [x := f"r{i}"]),
        ]
    nodes[-1].output[0] = "y"
    model = layers.model_of(
        nodes, {"x": (np.float32, ["n", 3, "h", "w"])}, {"y": (np.float32, None)}, constants
    )
    session, given = session_of(model, reproducible=True), inputs_of(model, 2, (20, 17))
    assert [node["taken"] for node in intact.onnxruntime.report(session) if node["op"] == "Conv"] == [
        True,
        True,
        False,
        True,
        True,
    ]
    if "avx512" in intact.isas():
        assert_same(session.run(None, given)[0], cpu_session_of(model).run(None, given)[0], "network")


def behind(convolution_: bytes, *nodes: onnx.NodeProto, constants: dict | None = None) -> bytes:
    """The convolution with nodes behind it; the last one makes y."""
    model = onnx.load_from_string(convolution_)
    model.graph.node[0].output[0] = "c"
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in (constants or {}).items()
    )
    return model.SerializeToString()


BOUNDS = {"least": np.float32(-0.5), "most": np.float32(0.75)}
NEIGHBORS = {
    "Relu": behind(CONVOLUTIONS["20 inputs, strides"], onnx.helper.make_node("Relu", ["c"], ["y"])),
    "Relu, single channels": behind(CONVOLUTIONS["3 inputs"], onnx.helper.make_node("Relu", ["c"], ["y"])),
    "Clip": behind(
        CONVOLUTIONS["groups"], onnx.helper.make_node("Clip", ["c", "least", "most"], ["y"]), constants=BOUNDS
    ),
    "Clip, one bound": behind(
        CONVOLUTIONS["1x1"], onnx.helper.make_node("Clip", ["c", "", "most"], ["y"]), constants=BOUNDS
    ),
    "SAME_UPPER": behind(CONVOLUTIONS["SAME_UPPER"], onnx.helper.make_node("Relu", ["c"], ["y"])),
}


@pytest.mark.parametrize("name", NEIGHBORS)
def test_convolutions_are_computed_with_what_follows(name):
    model = NEIGHBORS[name]
    given = inputs_of(model, 2, (13, 20))
    given["x"][1, 0, 4, 5] = np.nan
    sessions = [
        session_of(model, threads=threads, max_isa=isa, reproducible=True)
        for threads, isa in zip((1, 3, 2), ISAS)
    ]
    assert_taken(sessions[0])
    assert len({node["kernel"] for node in intact.onnxruntime.report(sessions[0])}) == 1
    computed = [session.run(None, given)[0] for session in sessions]
    assert all(same_numbers(each, computed[0]) for each in computed) and np.isnan(computed[0]).any()
    if "avx512" in intact.isas():
        assert same_numbers(computed[0], cpu_session_of(model).run(None, given)[0])


def same_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    return without_nans(a).tobytes() == without_nans(b).tobytes()


def test_convolutions_whose_outputs_others_read_stay_alone():
    """Another node reads the output too; a bound of a run; bounds in the wrong order."""
    relu = onnx.helper.make_node("Relu", ["c"], ["y"], name="next")
    models = [
        behind(CONVOLUTIONS["1x1"], relu, onnx.helper.make_node("Neg", ["c"], ["z"])),
        behind(
            CONVOLUTIONS["1x1"],
            onnx.helper.make_node("Clip", ["c", "most", "least"], ["y"], name="next"),
            constants=BOUNDS,
        ),
    ]
    read = onnx.load_from_string(models[0])
    read.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None))
    models[0] = read.SerializeToString()
    of_run = onnx.load_from_string(
        behind(CONVOLUTIONS["1x1"], onnx.helper.make_node("Clip", ["c", "least"], ["y"], name="next"))
    )
    of_run.graph.input.append(onnx.helper.make_tensor_value_info("least", onnx.TensorProto.FLOAT, []))
    for model in (*models, of_run.SerializeToString()):
        (next_node,) = [
            node
            for node in intact.onnxruntime.report(session_of(model, reproducible=True))
            if node["name"] == "next"
        ]
        assert not next_node["taken"]


def test_float_convolutions_stay_with_onnx_runtime_unless_it_is_asked():
    reason = "operator: computes floats; expected quantized tensors, or the option reproducible"
    (node,) = intact.onnxruntime.report(session_of(CONVOLUTIONS["16 inputs"]))
    assert node["reason"] == reason
    for model, expected in CONVOLUTIONS_THAT_STAY.values():
        (node,) = intact.onnxruntime.report(session_of(model, reproducible=True))
        assert re.fullmatch(expected, node["reason"]), node["reason"]
    weights_of_runs = layers.model_of(
        [onnx.helper.make_node("Conv", ["x", "w"], ["y"])],
        {"x": (np.float32, [1, 16, 9, 9]), "w": (np.float32, [16, 16, 3, 3])},
        {"y": (np.float32, [1, 16, 7, 7])},
        {},
        17,
    )
    with pytest.raises(Exception, match="X, W: are floats, and each run gives W; expected"):
        session_of(weights_of_runs, reproducible=True)
    with pytest.raises(intact.Error, match="^reproducible: is "):
        session_of(CONVOLUTIONS["16 inputs"], reproducible="yes")


def pool(op: str, channels: int | str = 8, opset: int = 17, **attributes: object) -> bytes:
    return layers.model_of(
        [onnx.helper.make_node(op, ["x"], ["y"], **attributes)],
        {"x": (np.float32, ["n", channels, "h", "w"])},
        {"y": (np.float32, ["n", channels, "e", "f"])},
        {},
        opset,
    )


def images(batch: int = 2, channels: int = 8, extents: tuple = (21, 33)) -> dict:
    """Images with NaNs, infinities and zeros of both signs."""
    rng = np.random.default_rng(channels)
    x = rng.normal(0, 1, (batch, channels, *extents)).astype(np.float32)
    rare = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    chosen = rng.random(x.shape) < 0.02
    x[chosen] = rng.choice(rare, np.count_nonzero(chosen))
    x[0, 0] = -0.0
    return {"x": x}


# ONNX Runtime cuts these into blocks of 8 channels if the CPU has no AVX-512.
POOLS = {
    "GlobalAveragePool": pool("GlobalAveragePool", 24),
    "GlobalAveragePool, 40": pool("GlobalAveragePool", 40),
    "GlobalMaxPool": pool("GlobalMaxPool"),
    "AveragePool": pool("AveragePool", kernel_shape=[3, 3]),
    "AveragePool, padding": pool("AveragePool", 24, kernel_shape=[4, 3], pads=[2, 1, 3, 2], strides=[3, 1]),
    "AveragePool, stride 2": pool(
        "AveragePool", kernel_shape=[3, 5], pads=[1, 2, 1, 2], strides=[2, 2], count_include_pad=1
    ),
    "AveragePool, stride 3": pool("AveragePool", kernel_shape=[5, 4], pads=[2, 3, 2, 3], strides=[1, 3]),
    "AveragePool, whole": pool("AveragePool", kernel_shape=[21, 33]),
    "AveragePool, long": pool("AveragePool", kernel_shape=[2, 33]),
    "AveragePool, old": pool("AveragePool", opset=10, kernel_shape=[2, 2], strides=[2, 2]),
    "MaxPool": pool("MaxPool", kernel_shape=[3, 3], pads=[1] * 4),
    "MaxPool, 24": pool("MaxPool", 24, kernel_shape=[2, 4], strides=[2, 2]),
    "MaxPool, stride 3": pool("MaxPool", kernel_shape=[3, 3], strides=[3, 3]),
    "MaxPool, dilations": pool("MaxPool", kernel_shape=[3, 2], dilations=[2, 3], pads=[1, 1, 2, 0]),
    "MaxPool, new": pool("MaxPool", opset=22, kernel_shape=[3, 3]),
}
# The bytes of these depend on nothing.
POOLS_THAT_STAY = {
    "16": pool("GlobalAveragePool", 16),
    "12": pool("AveragePool", 12, kernel_shape=[3, 3]),
    "3": pool("MaxPool", 3, kernel_shape=[2, 2]),
    "new": pool("AveragePool", opset=19, kernel_shape=[3, 3]),
}


def without_nans(x: np.ndarray) -> np.ndarray:
    """The same numbers, with one NaN for all."""
    return np.where(np.isnan(x), np.float32(np.nan), x)


def images_of(model: bytes, batch: int = 2, extents: tuple = (21, 33)) -> dict:
    graph = onnx.load_from_string(model).graph
    given = images(batch, graph.input[0].type.tensor_type.shape.dim[1].dim_value or 24, extents)
    # ONNX Runtime 1.28 drops NaNs there, 1.32 does not
    if any(each.name == "dilations" for each in graph.node[0].attribute):
        given["x"][np.isnan(given["x"])] = 1
    return given


@stock_has_avx512
@pytest.mark.parametrize("name", POOLS)
def test_pools_equal_the_cpu_provider(name):
    session, cpu = session_of(POOLS[name], reproducible=True), cpu_session_of(POOLS[name])
    assert_taken(session)
    # Beyond 2045 elements of a line the order is another one.
    for batch, extents in ((2, (21, 33)), (1, (21, 40)), (3, (22, 33)), (1, (21, 2060)), (1, (40, 41))):
        given = images_of(POOLS[name], batch, extents)
        assert_same(
            without_nans(session.run(None, given)[0]),
            without_nans(cpu.run(None, given)[0]),
            str(given["x"].shape),
        )


@stock_has_avx512
def test_pools_of_unknown_channels_equal_the_cpu_provider():
    for op, more in (
        ("GlobalAveragePool", {}),
        ("AveragePool", {"kernel_shape": [3, 3]}),
        ("MaxPool", {"kernel_shape": [2, 2]}),
    ):
        model = pool(op, "c", **more)
        session, cpu = session_of(model, reproducible=True), cpu_session_of(model)
        assert_taken(session)
        for channels in (3, 8, 16):
            given = images(2, channels)
            assert_same(
                without_nans(session.run(None, given)[0]),
                without_nans(cpu.run(None, given)[0]),
                f"{op} {channels}",
            )


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pools_refuse_images_without_pixels(op):
    session = session_of(pool(op, 24, kernel_shape=[2, 2], pads=[1] * 4), reproducible=True)
    assert_taken(session)
    for shape in ((1, 24, 0, 5), (1, 24, 5, 0)):
        with pytest.raises(Exception, match="X: has an extent of 0; expected 1 or more"):
            session.run(None, {"x": np.zeros(shape, np.float32)})


def test_pools_do_not_depend_on_threads_or_the_batch():
    for name, model in POOLS.items():
        given = images_of(model, 5, (21, 33))
        expected, *others = [
            session_of(model, threads=threads, reproducible=True).run(None, given)[0] for threads in (1, 2, 4)
        ]
        for computed in others:
            assert_same(computed, expected, name)
        assert_same(
            session_of(model, reproducible=True).run(None, {"x": given["x"][3:4]})[0], expected[3:4], name
        )


def test_pools_that_stay_with_onnx_runtime():
    for model in POOLS_THAT_STAY.values():
        (node,) = intact.onnxruntime.report(session_of(model, reproducible=True))
        assert (
            not node["taken"]
            and node["same_bytes"]
            and "same bytes in ONNX Runtime on every CPU" in node["reason"]
        )
    (node,) = intact.onnxruntime.report(session_of(POOLS["GlobalAveragePool"]))
    assert not node["taken"] and not node["same_bytes"]
    indices = layers.model_of(
        [onnx.helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2])],
        {"x": (np.float32, ["n", 8, 9, 9])},
        {"y": (np.float32, None), "i": (np.int64, None)},
        {},
    )
    (node,) = intact.onnxruntime.report(session_of(indices, reproducible=True))
    assert not node["taken"] and node["same_bytes"]
    with pytest.raises(Exception, match="reproducible: 1 node .*ceil_mode: is not 0"):
        session_of(pool("AveragePool", kernel_shape=[2, 2], ceil_mode=1), reproducible=True)


@stock_has_avx512
@pytest.mark.parametrize("types", [(np.uint8, np.uint8), (np.int8, np.int8), (np.uint8, np.float32)])
def test_pools_between_quantized_tensors(types):
    """ONNX Runtime computes integers between u8 tensors, in one order."""
    node, constants = onnx.helper.make_node, {"s": np.float32(0.05), "ys": np.float32(0.03)}
    constants |= {"z": types[0](3), "yz": types[0](5)}
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["f"]), node("GlobalAveragePool", ["f"], ["p"])]
    if types[1] != np.float32:
        nodes.append(node("QuantizeLinear", ["p", "ys", "yz"], ["y"]))
    else:
        nodes[-1].output[0] = "y"
    model = layers.model_of(nodes, {"x": (types[0], ["n", 24, "h", "w"])}, {"y": (types[1], None)}, constants)
    session = session_of(model, reproducible=True)
    (found,) = [each for each in intact.onnxruntime.report(session) if each["op"] == "GlobalAveragePool"]
    assert found["taken"] == (types != (np.uint8, np.uint8)) and found["same_bytes"]
    x = np.random.default_rng(0).integers(0, 120, (3, 24, 13, 17)).astype(types[0])
    if types[0] == np.uint8:
        assert_same(session.run(None, {"x": x})[0], cpu_session_of(model).run(None, {"x": x})[0], str(types))


DIGESTS_IN_CHILD = """
import hashlib, json, sys
import test_float_operators as tests
from test_provider import cpu_session_of, session_of
def digest(cases):
    found = hashlib.sha256()
    for model, inputs in cases:
        session = cpu_session_of(model) if sys.argv[1] == "stock" else session_of(model, reproducible=True)
        for given in inputs:
            found.update(tests.without_nans(session.run(None, given)[0]).tobytes())
    return found.hexdigest()
digests = {"SOFTMAX": digest([(tests.softmax(), [{"x": x} for x in tests.rows_of_each_length(200)])])}
for name in ("CONVOLUTIONS", "OTHER_CONVOLUTIONS", "CONVOLUTIONS_THAT_STAY"):
    models = [model if isinstance(model, bytes) else model[0] for model in vars(tests)[name].values()]
    digests[name] = digest((model, [tests.inputs_of(model)]) for model in models)
for name in ("POOLS", "POOLS_THAT_STAY"):
    digests[name] = digest((model, [tests.images_of(model)]) for model in vars(tests)[name].values())
print(json.dumps(digests))
"""


@stock_has_avx512
def test_bytes_of_a_process_that_is_held_to_avx2():
    """There the CPU provider's bytes differ: the comparison finds an operator that is left with ONNX Runtime."""
    if not _held_to.can_be_held("avx2"):
        pytest.skip("this CPU cannot be held to AVX2")
    path = os.pathsep.join([str(Path(intact.__file__).parents[1]), str(Path(__file__).parent)])
    own = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"} | {"PYTHONPATH": path}
    held = own | _held_to.environment("avx2")

    def digests_of(who: str, environment: dict[str, str]) -> dict[str, str]:
        done = subprocess.run(
            [sys.executable, "-B", "-c", DIGESTS_IN_CHILD, who],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    stock, stock_held = digests_of("stock", own), digests_of("stock", held)
    computed, computed_held = digests_of("intact", own), digests_of("intact", held)
    assert computed_held == computed
    assert {name for name in stock if stock[name] != stock_held[name]} == {
        "SOFTMAX",
        "CONVOLUTIONS",
        "OTHER_CONVOLUTIONS",
        "POOLS",
    }
    assert {name for name in stock if stock[name] != computed[name]} == {"OTHER_CONVOLUTIONS"}


class Guarded:
    """An array between two pages that cannot be read or written. It ends or begins at one of them."""

    def __init__(self, values: np.ndarray, at_end: bool = True):
        pages = max(-(-values.nbytes // mmap.PAGESIZE), 1)
        self._memory = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for page in (0, pages + 1):
            assert LIBC.mprotect(ctypes.c_void_p(address + page * mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
        begin = mmap.PAGESIZE + (pages * mmap.PAGESIZE - values.nbytes if at_end else 0)
        self.array = np.frombuffer(self._memory, values.dtype, values.size, begin).reshape(values.shape)
        self.array[...] = values


@pytest.mark.parametrize("isa", ISAS)
def test_nothing_beyond_the_tensors_is_read_or_written(isa):
    def run_guarded(session: onnxruntime.InferenceSession, given: np.ndarray, shape: tuple) -> np.ndarray:
        x, y = Guarded(given), Guarded(np.zeros(shape, np.float32))
        binding = session.io_binding()
        binding.bind_input("x", "cpu", 0, np.float32, given.shape, x.array.ctypes.data)
        binding.bind_output("y", "cpu", 0, np.float32, shape, y.array.ctypes.data)
        session.run_with_iobinding(binding)
        return y.array.copy()

    for op in ("Softmax", "LogSoftmax"):
        session = session_of(softmax(op), max_isa=isa)
        for length in [*range(1, 70), 127, 128, 129, 300]:
            given = np.random.default_rng(length).normal(0, 3, (3, length)).astype(np.float32)
            assert_same(
                run_guarded(session, given, given.shape),
                session.run(None, {"x": given})[0],
                f"{op}, {length}",
            )
    for name, model in CONVOLUTIONS.items():
        session, given = session_of(model, max_isa=isa, reproducible=True), inputs_of(model)
        expected = session.run(None, given)[0]
        assert_same(run_guarded(session, given["x"], expected.shape), expected, name)
    log = session_of(softmax("Log"), max_isa=isa, reproducible=True)
    for length in range(1, 10):
        given = np.random.default_rng(length).normal(0, 3, (1, length)).astype(np.float32)
        assert_same(run_guarded(log, given, given.shape), log.run(None, {"x": given})[0], f"Log, {length}")
    for name, model in POOLS.items():
        session, given = session_of(model, max_isa=isa, reproducible=True), images_of(model)
        expected = session.run(None, given)[0]
        assert_same(run_guarded(session, given["x"], expected.shape), expected, name)


def test_a_float_softmax_beside_quantized_tensors():
    """Between DequantizeLinear and QuantizeLinear Softmax is an operator of bytes; with one of them it is one of floats."""
    node = onnx.helper.make_node
    constants = {"s": np.float32(0.05), "z": np.uint8(128), "ys": np.float32(1 / 256), "yz": np.uint8(0)}
    dequantize, quantize = (
        node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        node("QuantizeLinear", ["p", "ys", "yz"], ["y"]),
    )
    x = np.random.default_rng(4).integers(0, 256, (6, 37)).astype(np.uint8)
    for nodes, x_type, y_type, kernel in (
        ([dequantize, node("Softmax", ["f"], ["p"]), quantize], np.uint8, np.uint8, "softmax_"),
        ([dequantize, node("Softmax", ["f"], ["y"])], np.uint8, np.float32, "softmax_f32_"),
        ([node("Softmax", ["x"], ["p"]), quantize], np.float32, np.uint8, "softmax_f32_"),
    ):
        model = layers.model_of(nodes, {"x": (x_type, ["n", 37])}, {"y": (y_type, None)}, constants)
        session = session_of(model)
        (found,) = [each["kernel"] for each in intact.onnxruntime.report(session) if each["op"] == "Softmax"]
        assert found.startswith(kernel) and ("f32" in found) == ("f32" in kernel)
        if "avx512" in intact.isas():
            assert_same(
                session.run(None, {"x": x.astype(x_type)})[0],
                cpu_session_of(model).run(None, {"x": x.astype(x_type)})[0],
                kernel,
            )


def test_with_like_a_float_softmax_stays_with_onnx_runtime():
    (node,) = intact.onnxruntime.report(session_of(softmax(), like="onnxruntime:avx2"))
    assert (
        node["reason"] == "operator: is of floats; expected integers with like, which is for sums of integers"
    )
