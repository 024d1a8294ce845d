"""QMoE as the provider computes it: its definition in qmoe.h with NumPy, every byte."""

from __future__ import annotations

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", minversion="1.31", reason="needs onnxruntime 1.31")
onnx = pytest.importorskip("onnx", reason="needs onnx")

import intact.onnxruntime
from layers import MICROSOFT, model_of
from onnx import helper
from test_nbits_products import unpacked
from test_provider import assert_same, assert_taken, cpu_session_of, session_of

ROW = np.float32
EXPERTS, HIDDEN, INTER, BLOCK = 5, 64, 96, 32
ACTIVATIONS = ["identity", "relu", "silu", "gelu", "swiglu"]


def model_with(
    activation: str = "silu",
    bits: int = 4,
    dtype: type = np.float32,
    has_points: bool = False,
    has_bias: bool = False,
    has_weights: bool = False,
    seed: int = 0,
    leaves: tuple[str, ...] = (),
    **changes: object,
) -> tuple[bytes, dict]:
    """A model of one QMoE, and its constants. `leaves`: attributes that are not given."""
    rng = np.random.default_rng(seed)
    columns = INTER * (2 if activation == "swiglu" else 1)
    constants: dict[str, np.ndarray] = {}
    for name, n, k in (("fc1", columns, HIDDEN), ("fc2", HIDDEN, INTER)):
        blocks = k // BLOCK
        constants[f"{name}_b"] = rng.integers(0, 256, (EXPERTS, n, k * bits // 8), dtype=np.uint8)
        constants[f"{name}_s"] = rng.uniform(0.001, 0.01, (EXPERTS, n, blocks)).astype(dtype)
        if has_points:
            constants[f"{name}_z"] = rng.integers(
                0, 256, (EXPERTS, n, -(-blocks * bits // 8)), dtype=np.uint8
            )
        if has_bias:
            constants[f"{name}_c"] = rng.normal(0, 0.1, (EXPERTS, n)).astype(dtype)
    names = [
        "x",
        "p",
        "fc1_b",
        "fc1_s",
        "fc1_c",
        "fc2_b",
        "fc2_s",
        "fc2_c",
        "",
        "",
        "",
        "fc1_z",
        "fc2_z",
        "",
        "w",
    ]
    given = {*constants, "x", "p", *(("w",) if has_weights else ())}
    names = [name if name in given else "" for name in names]
    while not names[-1]:
        names.pop()
    attributes: dict[str, object] = {
        "k": 2,
        "expert_weight_bits": bits,
        "block_size": BLOCK,
        "activation_type": activation,
        "accuracy_level": 4,
        "weights_prepacked": 0,
    }
    if activation == "swiglu":
        attributes |= {
            "swiglu_fusion": 1,
            "swiglu_limit": 0.5,
            "activation_alpha": 1.702,
            "activation_beta": 1.0,
        }
    attributes = {name: value for name, value in (attributes | changes).items() if name not in leaves}
    node = helper.make_node("QMoE", names, ["y"], domain=MICROSOFT, **attributes)
    inputs = {"x": (dtype, ["b", "t", HIDDEN]), "p": (dtype, ["r", EXPERTS])}
    if has_weights:
        inputs["w"] = (dtype, ["r", EXPERTS])
    return model_of([node], inputs, {"y": (dtype, ["b", "t", HIDDEN])}, constants, 17), constants


def feeds_of(rows: int, dtype: type = np.float32, has_weights: bool = False, seed: int = 1) -> dict:
    rng = np.random.default_rng(seed)
    feeds = {
        "x": rng.normal(0, 2, (1, rows, HIDDEN)).astype(dtype),
        "p": rng.normal(0, 2, (rows, EXPERTS)).round(1).astype(dtype),  # with ties
    }
    if has_weights:
        feeds["w"] = rng.uniform(0, 1, (rows, EXPERTS)).astype(dtype)
    return feeds


def exponential(x: np.ndarray) -> np.ndarray:
    """float_function.cc's."""
    f = ROW
    is_zero, x = x < f(-104), np.clip(x, f(-104), f(88.723))
    m = np.floor(x * f(1.44269504088896341) + f(0.5))
    r = m * f(2.12194440e-4) + (m * f(-0.693359375) + x)
    square = r * r
    even = square * f(1.37449637986719608306884765625e-3) + f(4.166965186595916748046875e-2)
    even = square * even + f(0.49999988079071044921875)
    odd = square * f(8.36894474923610687255859375e-3) + f(0.16666518151760101318359375)
    with np.errstate(over="ignore"):
        power = np.ldexp(square * (r * odd + even) + (r + f(1)), m.astype(int)).astype(f)
    return np.where(is_zero, f(0), power)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return ROW(1) / (ROW(1) + exponential(-x))


def product(a: np.ndarray, expert: int, name: str, constants: dict, bits: int) -> np.ndarray:
    """The definition of include/intact/grouped.h: exact sums, and fused multiply-adds in the order of the blocks."""
    b = unpacked(constants[f"{name}_b"][expert], bits).astype(np.int64)
    scales = constants[f"{name}_s"][expert].astype(ROW)
    n, blocks = scales.shape
    points = np.full(scales.shape, 1 << (bits - 1))
    if f"{name}_z" in constants:
        points = unpacked(constants[f"{name}_z"][expert], bits)[:, :blocks]
    x = a.astype(ROW).reshape(-1, blocks, BLOCK)
    a_scales = np.abs(x).max(2) / ROW(127)
    q = np.rint(x / np.where(a_scales == 0, ROW(1), a_scales)[:, :, None]).astype(np.int64)
    sums = np.einsum("mgk,ngk->mng", q, b.reshape(n, blocks, BLOCK) - points[:, :, None].astype(np.int64))
    c = np.zeros((len(x), n), ROW)
    for g in range(blocks):
        factor = a_scales[:, g, None] * scales[None, :, g]
        c = (sums[:, :, g].astype(np.longdouble) * factor.astype(np.longdouble) + c).astype(ROW)
    return c + constants[f"{name}_c"][expert].astype(ROW) if f"{name}_c" in constants else c


def activated(h: np.ndarray, activation: str) -> np.ndarray:
    if activation == "relu":
        return np.where(h < 0, ROW(0), h)
    if activation == "silu":
        return h * sigmoid(h)
    if activation == "gelu":
        return h * sigmoid(ROW(2) * (ROW(0.7978845608) * (h + ROW(0.044715) * h * h * h)))
    if activation == "swiglu":
        gate, linear = np.minimum(h[:, ::2], ROW(0.5)), np.clip(h[:, 1::2], ROW(-0.5), ROW(0.5))
        return gate * sigmoid(ROW(1.702) * gate) * (linear + ROW(1))
    return h


def by_definition(feeds: dict, constants: dict, activation: str, bits: int, top: int = 2, norm: bool = False):
    x, p = feeds["x"][0], feeds["p"].astype(ROW)
    w = feeds["w"].astype(ROW) if "w" in feeds else None
    y = np.zeros(x.shape, ROW)
    for row in range(len(x)):
        chosen = sorted(range(EXPERTS), key=lambda e: (-p[row, e], -e))[:top]
        factors = exponential(p[row, chosen] - p[row, chosen[0]]) if w is None else w[row, chosen]
        if w is None or norm:
            total = ROW(0)
            for factor in factors:
                total = total + factor
            factors = factors * (ROW(1) / total)
        for factor, expert in zip(factors, chosen):
            h = activated(product(x[row : row + 1], expert, "fc1", constants, bits), activation)
            y[row] = y[row] + factor * product(h, expert, "fc2", constants, bits)[0]
    return y.astype(x.dtype)[None]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_is_its_definition_and_near_onnx_runtime(bits, activation, dtype):
    for has_points, has_bias in [(False, False), (True, True)]:
        model, constants = model_with(activation, bits, dtype, has_points, has_bias)
        session = session_of(model, threads=2)
        assert_taken(session)
        for rows in (1, 7):
            feeds = feeds_of(rows, dtype)
            expected = by_definition(feeds, constants, activation, bits)
            for each in (session, session_of(model, max_isa="avx2"), session_of(model, max_isa="portable")):
                assert_same(each.run(None, feeds)[0], expected, f"{has_points} {rows}")
            of_stock = cpu_session_of(model).run(None, feeds)[0].astype(float)
            assert np.abs(of_stock - expected).max() <= 0.03 * np.abs(expected.astype(float)).max()


def test_router_weights():
    for norm in (0, 1):
        model, constants = model_with(has_weights=True, normalize_routing_weights=norm, k=3)
        feeds = feeds_of(9, has_weights=True)
        expected = by_definition(feeds, constants, "silu", 4, 3, bool(norm))
        assert_same(session_of(model).run(None, feeds)[0], expected, str(norm))
        of_stock = cpu_session_of(model).run(None, feeds)[0]
        assert np.abs(of_stock - expected).max() <= 0.03 * np.abs(expected).max()


def test_rows_do_not_depend_on_other_rows_or_threads():
    model, _ = model_with()
    feeds = feeds_of(40)
    expected = session_of(model).run(None, feeds)[0]
    assert np.array_equal(session_of(model, threads=2).run(None, feeds)[0], expected)
    for begin, count in [(0, 1), (39, 1), (3, 9)]:
        part = {"x": feeds["x"][:, begin : begin + count], "p": feeds["p"][begin : begin + count]}
        assert np.array_equal(session_of(model).run(None, part)[0], expected[:, begin : begin + count])
    empty = {"x": feeds["x"][:, :0], "p": feeds["p"][:0]}
    assert session_of(model).run(None, empty)[0].shape == (1, 0, HIDDEN)


def test_a_nan_stays_in_its_row():
    for activation in ACTIVATIONS:
        model, _ = model_with(activation)
        feeds = feeds_of(4)
        expected = session_of(model).run(None, feeds)[0]
        feeds["x"][0, 2, 5] = np.nan
        found = session_of(model).run(None, feeds)[0]
        assert np.isnan(found[0, 2]).all(), activation
        assert np.array_equal(np.delete(found, 2, 1), np.delete(expected, 2, 1))


def test_experts_of_other_scales_have_plans_of_their_own():
    """Both sessions live at once, and share plans of equal content. The models differ in the last expert only."""
    model, constants = model_with()
    changed = onnx.load_from_string(model)
    scales = next(each for each in changed.graph.initializer if each.name == "fc2_s")
    constants["fc2_s"][-1] *= 3
    scales.CopyFrom(onnx.numpy_helper.from_array(constants["fc2_s"], "fc2_s"))
    first, second = session_of(model), session_of(changed.SerializeToString())
    feeds = feeds_of(9)
    assert_same(second.run(None, feeds)[0], by_definition(feeds, constants, "silu", 4), "changed")
    assert not np.array_equal(first.run(None, feeds)[0], second.run(None, feeds)[0])


def test_a_session_is_reproducible():
    session = session_of(model_with()[0], reproducible=True)
    (line,) = intact.onnxruntime.report(session)
    assert line["taken"] and line["same_bytes"]


@pytest.mark.parametrize(
    "changes,option,reason",
    [
        ({"accuracy_level": 0}, {}, "accuracy_level: is 0; expected 4"),
        ({}, {"like": "onnxruntime:avx2"}, "like: "),
        ({"use_sparse_mixer": 1}, {}, "use_sparse_mixer: is 1; expected 0"),
    ],
)
def test_nodes_that_stay(changes, option, reason):
    model, _ = model_with(**changes)
    session, feeds = session_of(model, **option), feeds_of(3)
    (line,) = intact.onnxruntime.report(session)
    assert not line["taken"] and line["reason"].startswith(reason), line
    stock = cpu_session_of(model).run(None, feeds)[0]
    assert np.array_equal(session.run(None, feeds)[0], stock)


def test_gates_need_an_even_number_of_columns():
    model = onnx.load_from_string(model_with("swiglu")[0])
    for constant in model.graph.initializer:
        if constant.name in ("fc1_b", "fc1_s"):  # a column more
            values = onnx.numpy_helper.to_array(constant)
            longer = np.concatenate([values, values[:, :1]], 1)
            constant.CopyFrom(onnx.numpy_helper.from_array(longer, constant.name))
    (line,) = intact.onnxruntime.report(session_of(model.SerializeToString()))
    assert not line["taken"] and "expected an even number with swiglu" in line["reason"], line


def test_other_accuracy_levels_by_option():
    feeds = feeds_of(3)
    session = session_of(model_with(accuracy_level=0)[0], quantize_activations=True)
    assert_taken(session)
    assert np.array_equal(session.run(None, feeds)[0], session_of(model_with()[0]).run(None, feeds)[0])
