"""MatMulNBits as the provider computes it: the definition of include/intact/grouped.h, within rounding errors of ONNX Runtime's numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", minversion="1.23", reason="needs onnxruntime 1.23")
onnx = pytest.importorskip("onnx", reason="needs onnx")

import intact
import intact.onnxruntime
import layers
from layers import nbits_model as model_of
from test_provider import assert_taken, cpu_session_of, session_of

ISAS = [None, "avx2", "portable"]


def rows(count: int, k: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(1).normal(0, 2, (1, count, k)).astype(dtype)


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """The numbers in bytes, the first one in the low bits; in a byte for each."""
    parts = [packed >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*packed.shape[:-1], -1)


def by_definition(model: bytes, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exact sums of blocks of quantized activations, times the scales, in float64; and the sum of the magnitudes of these terms."""
    graph = onnx.load_from_string(model).graph
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    bits, group = (
        {each.name: each.i for each in graph.node[0].attribute}[name] for name in ("bits", "block_size")
    )
    b = unpacked(constants["b"], bits).astype(np.int64)
    scales = constants["s"].astype(np.float64)
    groups = scales.shape[1]
    points = (
        unpacked(constants["z"], bits)[:, :groups]
        if "z" in constants
        else np.full(scales.shape, 1 << (bits - 1))
    )
    x = np.pad(a[0].astype(np.float32), ((0, 0), (0, groups * group - a.shape[2]))).reshape(-1, groups, group)
    a_scales = np.abs(x).max(2, keepdims=True) / np.float32(127)
    q = np.rint(x / np.where(a_scales == 0, np.float32(1), a_scales)).astype(np.int64)
    sums = np.einsum("mgk,ngk->mng", q, b - points[:, :, None].astype(np.int64))
    terms = sums * a_scales[:, None, :, 0].astype(np.float64) * scales
    bias = constants.get("bias", np.zeros(len(scales))).astype(np.float64)
    return terms.sum(2) + bias, np.abs(terms).sum(2) + np.abs(bias)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("group,k", [(16, 16), (16, 40), (32, 96), (64, 100), (128, 300), (256, 257)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_is_near_the_definition_and_has_the_same_bytes_on_each_isa(bits, group, k, dtype):
    for has_points, has_bias in [(False, False), (True, False), (True, True)]:
        model = model_of(bits, group, k, 24, dtype, has_points, has_bias)
        sessions = {isa: session_of(model, max_isa=isa) for isa in ISAS}
        assert_taken(sessions[None])
        stock = cpu_session_of(model)
        for count in (1, 2, 5, 40):
            a = rows(count, k, dtype)
            c = {isa: session.run(None, {"a": a})[0] for isa, session in sessions.items()}
            assert c[None].dtype == dtype and c[None].shape == (1, count, 24)
            for isa in ISAS[1:]:
                assert np.array_equal(c[None].view(np.uint8), c[isa].view(np.uint8)), (isa, count)
            expected, magnitude = by_definition(model, a)
            error = np.abs(c[None][0].astype(float) - expected)
            rounding = np.abs(expected) * 2.0**-10 if dtype == np.float16 else 0
            assert (error <= magnitude * 2.0**-21 + rounding).all(), (has_points, has_bias, count)
            if bits > 2 and dtype == np.float32:  # else ONNX Runtime does not quantize activations
                of_stock = np.abs(stock.run(None, {"a": a})[0][0] - expected)
                # it subtracts zero points last
                assert (of_stock <= magnitude.max() * 2.0**-20).all(), (has_points, has_bias, count)


def test_a_wrong_zero_point_is_not_near():
    model = onnx.load_from_string(model_of())
    points = next(each for each in model.graph.initializer if each.name == "z")
    changed = onnx.numpy_helper.to_array(points).copy()
    changed[3, 0] ^= 1
    points.CopyFrom(onnx.numpy_helper.from_array(changed, "z"))
    a = rows(5, 96)
    expected, magnitude = by_definition(model_of(), a)
    planted = session_of(model.SerializeToString()).run(None, {"a": a})[0]
    wrong = (np.abs(planted[0] - expected) > magnitude * 2.0**-21).any(axis=0)
    assert np.flatnonzero(wrong).tolist() == [3]


def test_rows_do_not_depend_on_other_rows_or_threads():
    model, a = model_of(k=400, n=100), rows(65, 400)
    expected = session_of(model, threads=1).run(None, {"a": a})[0]
    for threads in (1, 2, 4):
        session = session_of(model, threads=threads)
        assert np.array_equal(session.run(None, {"a": a})[0], expected)
        for begin, count in [(0, 1), (64, 1), (3, 2), (10, 8), (1, 64)]:
            part = session.run(None, {"a": a[:, begin : begin + count]})[0]
            assert np.array_equal(part, expected[:, begin : begin + count])


def resident() -> int:
    """Bytes of memory that the process occupies."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_thousand_prompts_of_random_length():
    model, a, rng = model_of(k=400, n=100), rows(300, 400), np.random.default_rng(3)
    session = session_of(model, threads=2)
    expected, before = session.run(None, {"a": a})[0], 0
    for prompt in range(1000):
        count = int(rng.integers(1, 129))
        first = int(rng.integers(0, 300 - count))
        found = session.run(None, {"a": a[:, first : first + count]})[0]
        assert np.array_equal(found.view(np.uint32), expected[:, first : first + count].view(np.uint32)), (
            prompt
        )
        if prompt == 200:
            before = resident()
    assert resident() < before + (4 << 20)


def test_a_session_is_reproducible():
    session = session_of(model_of(), reproducible=True)
    (line,) = intact.onnxruntime.report(session)
    assert line["taken"] and line["same_bytes"]


def test_embeddings_in_blocks_are_reproducible():
    """ONNX Runtime computes GatherBlockQuantized, whose bytes depend on nothing."""
    constants = {
        "d": np.random.default_rng(0).integers(0, 256, (9, 32), dtype=np.uint8),
        "s": np.full((9, 2), 0.1, np.float32),
    }
    node = onnx.helper.make_node(
        "GatherBlockQuantized", ["d", "i", "s"], ["y"], domain=layers.MICROSOFT, bits=4, block_size=32
    )
    model = layers.model_of([node], {"i": (np.int64, ["n"])}, {"y": (np.float32, ["n", 64])}, constants)
    (line,) = intact.onnxruntime.report(session_of(model, reproducible=True))
    assert not line["taken"] and line["same_bytes"]
    found = session_of(model).run(None, {"i": np.array([3, 0])})[0]
    expected = (unpacked(constants["d"], 4)[[3, 0]].astype(np.float32) - np.float32(8)) * np.float32(0.1)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    "arguments,option,reason",
    [
        ({"accuracy_level": 0}, {}, "accuracy_level: is 0; expected 4"),
        ({"accuracy_level": 1}, {}, "accuracy_level: is 1; expected 4"),
        ({}, {"like": "onnxruntime:avx2"}, "like: "),
        ({"inputs": {4: "g"}}, {}, "g_idx: is given"),
    ],
)
def test_nodes_that_stay(arguments, option, reason):
    model = model_of(**arguments)
    session, a = session_of(model, **option), rows(3, 96)
    (line,) = intact.onnxruntime.report(session)
    assert not line["taken"] and line["reason"].startswith(reason), line
    assert np.array_equal(session.run(None, {"a": a})[0], cpu_session_of(model).run(None, {"a": a})[0])


def test_other_accuracy_levels_by_option():
    a = rows(3, 96)
    session = session_of(model_of(accuracy_level=0), quantize_activations=True)
    assert_taken(session)
    assert np.array_equal(session.run(None, {"a": a})[0], session_of(model_of()).run(None, {"a": a})[0])


def test_no_rows():
    assert session_of(model_of()).run(None, {"a": np.empty((1, 0, 96), np.float32)})[0].shape == (1, 0, 24)


_TYPES = {
    "int4": (onnx.TensorProto.INT4, 4, 8),
    "uint4": (onnx.TensorProto.UINT4, 4, 0),
    "int8": (onnx.TensorProto.INT8, 8, 128),
    "uint8": (onnx.TensorProto.UINT8, 8, 0),
}  # type, bits, what makes it unsigned


def dequantized_model(kind: str, block: int, op: str = "MatMul", **changes) -> tuple[bytes, bytes]:
    """A DequantizeLinear of weights before a product, and the MatMulNBits that it stands for. `block`: 0: a scale for each column;
    −1: one scale. `changes`: of the attributes of the product; `behind`: an operator behind it."""
    (stored, bits, shift), k, n, rng = _TYPES[kind], 100, 24, np.random.default_rng(3)
    depths = block if block > 0 else 32
    groups = -(-k // depths)
    shape = (groups, n) if block > 0 else (n,) if block == 0 else ()
    b, points = rng.integers(0, 1 << bits, (k, n)), rng.integers(0, 1 << bits, shape)
    scales, bias = rng.uniform(0.01, 0.1, shape).astype(np.float32), rng.normal(0, 1, n).astype(np.float32)
    behind = changes.pop("behind", None)
    of_weights = {"block_size": block, "axis": 0} if block > 0 else {"axis": 1}
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["b", "s", "z"], ["d"], **of_weights),
        onnx.helper.make_node(op, ["a", "d", "bias"][: 3 if op == "Gemm" else 2], ["c"], **changes),
    ]
    if behind:
        nodes += [onnx.helper.make_node(behind, ["c"], ["e"]), onnx.helper.make_node("Neg", ["e"], ["f"])]
    constants = [
        onnx.helper.make_tensor(name, stored, values.shape, (values - shift).ravel().tolist())
        for name, values in (("b", b), ("z", points))
    ]
    constants += [
        onnx.numpy_helper.from_array(values, name) for name, values in (("s", scales), ("bias", bias))
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "g", [value("a", 1, ["m", k])], [value("f" if behind else "c", 1, None)], constants
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10
    ).SerializeToString()

    def packed(numbers: np.ndarray) -> np.ndarray:
        if bits == 8:
            return numbers.astype(np.uint8)
        pairs = np.pad(numbers, ((0, 0), (0, numbers.shape[1] % 2))).reshape(len(numbers), -1, 2)
        return (pairs[..., 0] | pairs[..., 1] << 4).astype(np.uint8)

    columns = np.pad(b.T, ((0, 0), (0, groups * depths - k)))
    of_blocks = {
        "b": packed(columns).reshape(n, groups, -1),
        "s": np.broadcast_to(scales, (groups, n)).T.copy(),
        "z": packed(np.broadcast_to(points, (groups, n)).T),
    }
    if op == "Gemm":
        of_blocks["bias"] = bias
    names = ["a", "b", "s", "z", *(["", "bias"] if op == "Gemm" else [])]
    node = onnx.helper.make_node(
        "MatMulNBits",
        names,
        ["c"],
        domain="com.microsoft",
        K=k,
        N=n,
        bits=bits,
        block_size=depths,
        accuracy_level=4,
    )
    return model, layers.model_of(
        [node], {"a": (np.float32, ["m", k])}, {"c": (np.float32, ["m", n])}, of_blocks, 17
    )


makes_nbits = pytest.mark.skipif(
    onnxruntime.__version__ < "1.26", reason="ONNX Runtime makes MatMulNBits since 1.26"
)


@makes_nbits
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("block", [16, 32, 128, 0, -1])
@pytest.mark.parametrize("kind", _TYPES)
def test_dequantized_weights_are_a_product_of_blocks(kind, block, op):
    model, of_blocks = dequantized_model(kind, block, op)
    session, a = session_of(model), rows(7, 100)[0]
    assert_taken(session)
    c = session.run(None, {"a": a})[0]
    assert np.array_equal(c, session_of(of_blocks).run(None, {"a": a})[0])
    assert np.array_equal(c, session_of(model, max_isa="portable").run(None, {"a": a})[0])
    expected = cpu_session_of(model).run(None, {"a": a})[0]
    assert np.abs(c - expected).max() < 1e-6 * np.abs(expected).max()


@makes_nbits
@pytest.mark.parametrize("size,block", [("0", 32), ("32", 32), ("64", 64), ("-1", None)])
def test_blocks_of_weights_without_blocks(size, block):
    """By the session's entry; 0 is ONNX Runtime's default."""
    model, _ = dequantized_model("int8", 0)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_block_size", size)
    intact.onnxruntime.add(options)
    lines = intact.onnxruntime.report(onnxruntime.InferenceSession(model, options))
    assert [line["taken"] for line in lines] == [block is not None] * 2
    if block is None:
        assert any(
            f"session.qdq_matmulnbits_block_size: is {size}; expected 0" in line["reason"] for line in lines
        ), lines


@makes_nbits
@pytest.mark.parametrize(
    "changes,reason",
    [
        ({"alpha": 0.5}, "alpha 1"),
        ({"beta": 0.5}, "beta 1"),
        ({"behind": "Relu"}, "output: one node reads it behind a Relu"),
    ],
)
def test_dequantized_weights_that_stay_float(changes, reason, tmp_path):
    """ONNX Runtime computes floats, so intact does not quantize the activations."""
    model, _ = dequantized_model("int4", 32, "Gemm", **changes)
    a = rows(7, 100)[0]
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    assert "MatMulNBits" not in {
        node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node
    }
    session = session_of(model)
    node = next(node for node in intact.onnxruntime.report(session) if node["op"] in ("MatMul", "Gemm"))
    assert not node["taken"] and reason in node["reason"], node
    assert np.array_equal(session.run(None, {"a": a})[0], cpu_session_of(model).run(None, {"a": a})[0])


def test_weights_of_the_same_bytes_in_another_order_have_another_plan():
    """A MatMulNBits stores columns, a DequantizeLinear rows. Both sessions live at once, and share plans of equal content."""
    size = 32
    rng = np.random.default_rng(0)
    b, scales = rng.integers(0, 256, (size, size), dtype=np.uint8), np.full(size, 0.01, np.float32)
    points = np.zeros(size, np.uint8)
    node = onnx.helper.make_node(
        "MatMulNBits",
        ["a", "b", "s", "z"],
        ["y"],
        domain=layers.MICROSOFT,
        K=size,
        N=size,
        bits=8,
        block_size=size,
        accuracy_level=4,
    )
    of_columns = layers.model_of(
        [node],
        {"a": (np.float32, ["m", size])},
        {"y": (np.float32, None)},
        {"b": b.reshape(size, 1, size), "s": scales, "z": points},
    )
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["b", "s", "z"], ["w"], axis=1),
        onnx.helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    of_rows = layers.model_of(
        nodes,
        {"a": (np.float32, ["m", size])},
        {"y": (np.float32, None)},
        {"b": b, "s": scales, "z": points},
        21,
    )
    sessions = [session_of(model) for model in (of_columns, of_rows)]
    a = rows(3, size)[0]
    for session, weights in zip(sessions, (b.T, b)):
        assert_taken(session)
        exact = a @ (weights.astype(np.float32) * np.float32(0.01))
        assert np.abs(session.run(None, {"a": a})[0] - exact).max() < 0.02 * np.abs(exact).max()
