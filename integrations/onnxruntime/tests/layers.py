"""Random quantized layers: a model of one node, its inputs, and what it must compute, by NumPy's integers and float32."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, Callable

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from stock import joined

MICROSOFT = "com.microsoft"
_ONNX_TYPES = {
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int8): TensorProto.INT8,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float16): TensorProto.FLOAT16,
}


@dataclasses.dataclass
class Layer:
    model: bytes
    inputs: Callable[[], dict[str, np.ndarray]]  # random ones, of a random shape
    exact: Callable[[dict[str, np.ndarray]], np.ndarray]
    on_cpu: bool = True  # whether ONNX Runtime's CPU provider has the operator with these types
    has_like: bool = True  # whether intact computes what that provider does on AVX2


def model_of(
    nodes: list,
    inputs: dict[str, tuple],
    outputs: dict[str, tuple],
    constants: dict[str, np.ndarray],
    opset: int = 17,
) -> bytes:
    """Inputs and outputs: (dtype, shape), with names for extents that runs give."""
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info(name, _ONNX_TYPES[np.dtype(t)], s) for name, (t, s) in inputs.items()],
        [
            helper.make_tensor_value_info(name, _ONNX_TYPES[np.dtype(t)], s)
            for name, (t, s) in outputs.items()
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    sets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=9).SerializeToString()


def one_node(
    op: str, arguments: list[tuple[str, Any]], output: tuple, domain: str = "", **attributes: Any
) -> bytes:
    """Arguments: a name with an array, a constant; with (dtype, shape), an input; with None, not given."""
    names = [name if value is not None else "" for name, value in arguments]
    node = helper.make_node(op, names, ["y"], name=op, domain=domain, **attributes)
    inputs = {name: value for name, value in arguments if isinstance(value, tuple)}
    constants = {name: value for name, value in arguments if isinstance(value, (np.ndarray, np.generic))}
    return model_of([node], inputs, {"y": output}, constants)


class Random:
    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def below(self, most: int) -> int:
        return int(self.rng.integers(1, most + 1))

    def one_of(self, *values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def integers(self, dtype: Any, shape: Any = ()) -> np.ndarray:
        info = np.iinfo(dtype)
        return np.asarray(self.rng.integers(info.min, info.max + 1, shape), dtype)

    def bias(self, columns: int) -> np.ndarray:
        return self.rng.integers(-(1 << 14), 1 << 14, columns).astype(np.int32)

    def scale(self, shape: Any = ()) -> np.ndarray:
        return np.asarray(np.exp(self.rng.uniform(-6, -3, shape)), np.float32)

    def types(self) -> tuple[Any, Any, bool]:
        """Activations', weights', and whether ONNX Runtime's CPU provider has them."""
        return self.one_of(
            (np.uint8, np.int8, True),
            (np.uint8, np.uint8, True),
            (np.int8, np.int8, True),
            (np.int8, np.uint8, False),
        )

    def y_scale(self, depth: int, x_scale: np.ndarray, w_scale: np.ndarray) -> np.ndarray:
        """One that makes most outputs fit into eight bits."""
        return np.float32(x_scale * np.max(w_scale) * 100 * np.sqrt(depth) * self.rng.uniform(0.5, 2))


def quantized(sums: np.ndarray, scales: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    info = np.iinfo(zero_point.dtype)
    rounded = np.rint(sums.astype(np.float32) * scales).astype(np.float64)
    return np.clip(rounded + int(zero_point), info.min, info.max).astype(zero_point.dtype)


def product(a: np.ndarray, a_zero: Any, b: np.ndarray, b_zero: Any) -> np.ndarray:
    return (a.astype(np.int64) - int(a_zero)) @ (b.astype(np.int64) - np.asarray(b_zero, np.int64))


def convolution(
    x: np.ndarray,
    x_zero: Any,
    w: np.ndarray,
    w_zero: np.ndarray,
    strides: list,
    dilations: list,
    pads: list,
    groups: int,
) -> np.ndarray:
    dims = w.ndim - 2
    x = x.astype(np.int64) - int(x_zero)
    w = w.astype(np.int64) - np.asarray(w_zero, np.int64).reshape([-1] + [1] * (dims + 1))
    x = np.pad(x, [(0, 0), (0, 0)] + [(pads[i], pads[dims + i]) for i in range(dims)])
    extents = [
        (x.shape[2 + i] - dilations[i] * (w.shape[2 + i] - 1) - 1) // strides[i] + 1 for i in range(dims)
    ]
    x = x.reshape([x.shape[0], groups, -1, *x.shape[2:]])
    w = w.reshape([groups, -1, *w.shape[1:]])
    y = np.zeros([x.shape[0], groups, w.shape[1], *extents], np.int64)
    for tap in np.ndindex(*w.shape[3:]):
        window = tuple(
            slice(t * d, t * d + (e - 1) * s + 1, s) for t, d, e, s in zip(tap, dilations, extents, strides)
        )
        y += np.einsum("bgc...,goc->bgo...", x[(slice(None),) * 3 + window], w[(slice(None),) * 3 + tap])
    return y.reshape([y.shape[0], -1, *extents])


def matrices(r: Random, dtype: Any, depth: int) -> np.ndarray:
    """Of one to four dimensions."""
    extents = [r.below(most) for most in r.one_of((), (40,), (3, 20), (2, 2, 9))]
    return r.integers(dtype, [*extents, depth])


def matmul_integer(seed: int) -> Layer:
    r = Random(seed)
    a_type, b_type, _ = r.types()
    k, n = r.below(300), r.below(100)
    b = r.integers(b_type, (k, n))
    b_zero = r.one_of(None, r.integers(b_type), r.integers(b_type, n))
    a_zero = r.one_of(None, r.integers(a_type), (a_type, []))  # the last: each run gives it
    if a_zero is None:
        b_zero = None
    model = one_node(
        "MatMulInteger",
        [("a", (a_type, None)), ("b", b), ("a_zero", a_zero), ("b_zero", b_zero)],
        (np.int32, None),
    )

    def inputs() -> dict:
        return {"a": matrices(r, a_type, k)} | (
            {"a_zero": r.integers(a_type)} if isinstance(a_zero, tuple) else {}
        )

    def exact(given: dict) -> np.ndarray:
        zero = given.get("a_zero", a_zero if isinstance(a_zero, np.ndarray) else 0)
        return product(given["a"], zero, b, 0 if b_zero is None else b_zero).astype(np.int32)

    return Layer(model, inputs, exact)


def qlinear_matmul(seed: int) -> Layer:
    r = Random(seed)
    a_type, b_type, on_cpu = r.types()
    k, n = r.below(300), r.below(100)
    columns = r.one_of((), n)
    b, b_scale, b_zero = r.integers(b_type, (k, n)), r.scale(columns), r.integers(b_type, columns)
    a_scale, a_zero, y_zero = r.scale(), r.integers(a_type), r.integers(a_type)
    y_scale = r.y_scale(k, a_scale, b_scale)
    model = one_node(
        "QLinearMatMul",
        [
            ("a", (a_type, None)),
            ("a_scale", a_scale),
            ("a_zero", a_zero),
            ("b", b),
            ("b_scale", b_scale),
            ("b_zero", b_zero),
            ("y_scale", y_scale),
            ("y_zero", y_zero),
        ],
        (a_type, None),
    )
    return Layer(
        model,
        lambda: {"a": matrices(r, a_type, k)},
        lambda given: quantized(product(given["a"], a_zero, b, b_zero), a_scale * b_scale / y_scale, y_zero),
        on_cpu,
    )


def products_of_run(seed: int) -> Layer:
    """Each run gives A and B."""
    r = Random(seed)
    op = r.one_of("MatMulInteger", "QLinearMatMul", "MatMulIntegerToFloat")
    a_type, b_type, on_cpu = r.types()
    a_scale, a_zero, b_scale, b_zero, y_zero = (
        r.scale(),
        r.integers(a_type),
        r.scale(),
        r.integers(b_type),
        r.integers(a_type),
    )
    y_scale = r.y_scale(100, a_scale, b_scale)
    a_items, b_items = r.one_of(
        ([], []), ([3, 2], [3, 2]), ([3, 1], [2]), ([], [4]), ([2, 3], []), ([1, 3, 1], [2, 1, 5])
    )
    a, b = ("a", (a_type, [None] * (len(a_items) + 2))), ("b", (b_type, [None] * (len(b_items) + 2)))
    a_scales, b_scales, zeros = (
        ("a_scale", a_scale),
        ("b_scale", b_scale),
        [("a_zero", a_zero), ("b_zero", b_zero)],
    )
    if op == "MatMulInteger":
        model = one_node(op, [a, b, *zeros], (np.int32, None))
    elif op == "QLinearMatMul":
        model = one_node(
            op,
            [a, a_scales, zeros[0], b, b_scales, zeros[1], ("y_scale", y_scale), ("y_zero", y_zero)],
            (a_type, None),
        )
    else:
        model = one_node(op, [a, b, a_scales, b_scales, *zeros], (np.float32, None), MICROSOFT)

    def inputs() -> dict:
        m, k, n = r.below(20), r.below(300), r.below(40)
        return {"a": r.integers(a_type, [*a_items, m, k]), "b": r.integers(b_type, [*b_items, k, n])}

    def exact(given: dict) -> np.ndarray:
        sums = product(given["a"], a_zero, given["b"], b_zero)
        if op == "MatMulInteger":
            return sums.astype(np.int32)
        if op == "MatMulIntegerToFloat":
            return sums.astype(np.float32) * (a_scale * b_scale)
        return quantized(sums, a_scale * b_scale / y_scale, y_zero)

    return Layer(model, inputs, exact, on_cpu or op == "MatMulInteger")


def qgemm(seed: int) -> Layer:
    r = Random(seed)
    a_type, b_type, on_cpu = r.types()
    k, n = r.below(300), r.below(100)
    columns = r.one_of((), n)
    b, b_scale, b_zero = r.integers(b_type, (k, n)), r.scale(columns), r.integers(b_type, columns)
    a_scale, a_zero, y_zero = r.scale(), r.integers(a_type), r.integers(a_type)
    y_scale = r.y_scale(k, a_scale, b_scale)
    bias = r.one_of(None, r.bias(n), r.bias(1)[0], r.bias(n).reshape(1, n))
    transposed, is_float, alpha = r.one_of(0, 1), r.one_of(False, True), np.float32(r.one_of(1, 0.75, 1.3))
    a_transposed = r.one_of(0, 1)
    arguments = [
        ("a", (a_type, [k, "m"] if a_transposed else ["m", k])),
        ("a_scale", a_scale),
        ("a_zero", a_zero),
        ("b", b.T.copy() if transposed else b),
        ("b_scale", b_scale),
        ("b_zero", b_zero),
        ("c", bias),
    ]
    if not is_float:
        arguments += [("y_scale", y_scale), ("y_zero", y_zero)]
    model = one_node(
        "QGemm",
        arguments,
        (np.float32 if is_float else a_type, ["m", n]),
        MICROSOFT,
        transA=a_transposed,
        transB=transposed,
        alpha=float(alpha),
    )

    def exact(given: dict) -> np.ndarray:
        a = given["a"].T if a_transposed else given["a"]
        sums = product(a, a_zero, b, b_zero) + (0 if bias is None else bias)
        scales = alpha * a_scale * b_scale
        return sums.astype(np.float32) * scales if is_float else quantized(sums, scales / y_scale, y_zero)

    def inputs() -> dict:
        m = r.below(40)
        return {"a": r.integers(a_type, (k, m) if a_transposed else (m, k))}

    return Layer(model, inputs, exact, on_cpu)


def dynamically_quantized(a: np.ndarray) -> tuple[np.ndarray, np.float32, np.uint8]:
    """DynamicQuantizeLinear: values, scale, zero point."""
    low, high = np.float32(min(a.min(), 0)), np.float32(max(a.max(), 0))
    scale = (high - low) / np.float32(255) if high > low else np.float32(1)
    zero = np.uint8(np.clip(np.rint(0 - low / scale), 0, 255))
    return np.clip(np.rint(a / scale) + np.float32(zero), 0, 255).astype(np.uint8), scale, zero


def dynamic_quantize_matmul(seed: int) -> Layer:
    r = Random(seed)
    b_type = r.one_of(np.uint8, np.int8)
    k, n = r.below(300), r.below(100)
    columns = r.one_of((), n)
    b, b_scale = r.integers(b_type, (k, n)), r.scale(columns)
    b_zero = r.one_of(None, r.integers(b_type, columns))
    bias = r.one_of(None, r.rng.normal(size=n).astype(np.float32))
    model = one_node(
        "DynamicQuantizeMatMul",
        [("a", (np.float32, None)), ("b", b), ("b_scale", b_scale), ("b_zero", b_zero), ("bias", bias)],
        (np.float32, None),
        MICROSOFT,
    )

    def inputs() -> dict:
        shape = matrices(r, np.uint8, k).shape
        return {"a": (r.rng.normal(size=shape) * r.one_of(1, 1e-3, 1e6) + r.one_of(0, 3)).astype(np.float32)}

    def exact(given: dict) -> np.ndarray:
        values, scale, zero = dynamically_quantized(given["a"])
        y = product(values, zero, b, 0 if b_zero is None else b_zero).astype(np.float32) * (scale * b_scale)
        return y if bias is None else y + bias

    return Layer(model, inputs, exact)


def matmul_integer_to_float(seed: int) -> Layer:
    r = Random(seed)
    a_type, b_type, on_cpu = r.types()
    k, n = r.below(300), r.below(100)
    columns = r.one_of((), n)
    b, b_scale = r.integers(b_type, (k, n)), r.scale(columns)
    b_zero = r.one_of(None, r.integers(b_type, columns))
    bias = r.one_of(None, r.rng.normal(size=n).astype(np.float32))
    a_scale, a_zero = r.one_of((np.float32, []), r.scale()), r.one_of((a_type, []), r.integers(a_type), None)
    model = one_node(
        "MatMulIntegerToFloat",
        [
            ("a", (a_type, None)),
            ("b", b),
            ("a_scale", a_scale),
            ("b_scale", b_scale),
            ("a_zero", a_zero),
            ("b_zero", b_zero),
            ("bias", bias),
        ],
        (np.float32, None),
        MICROSOFT,
    )

    def inputs() -> dict:
        given = {"a": matrices(r, a_type, k)}
        if isinstance(a_scale, tuple):
            given["a_scale"] = r.scale()
        if isinstance(a_zero, tuple):
            given["a_zero"] = r.integers(a_type)
        return given

    def exact(given: dict) -> np.ndarray:
        zero = given.get("a_zero", 0 if a_zero is None else a_zero)
        scale = given.get("a_scale", a_scale)
        y = product(given["a"], zero, b, 0 if b_zero is None else b_zero).astype(np.float32) * (
            scale * b_scale
        )
        return y if bias is None else y + bias

    return Layer(model, inputs, exact, on_cpu)


def _geometry(r: Random) -> tuple:
    dims = r.one_of(1, 2, 2, 2, 3)
    groups = r.one_of(1, 1, 1, 2, 3, r.below(40), 16, 32)
    # ONNX Runtime has other kernels for multiples of 4 and 16.
    inputs, outputs = r.one_of((r.below(20), r.below(20)), (4 * r.below(5), 16 * r.below(3)))
    if groups > 3:  # depthwise, or one input channel for each group
        inputs, outputs = 1, r.one_of(1, 1, 2)
    kernel = [r.below([9, 5, 3][dims - 1]) for _ in range(dims)]
    automatic = r.one_of("NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    strides = [r.below(3) for _ in range(dims)]
    dilations = [r.below(3) for _ in range(dims)]
    pads = [int(r.rng.integers(0, 3)) for _ in range(2 * dims)]
    extents: list = ["h", "w", "d"][:dims]
    if automatic.startswith("SAME"):
        dilations = [1] * dims  # as ONNX Runtime wants it
        sizes = [kernel[i] + r.below(20 // dims) for i in range(dims)]
        if max(strides) > 1:
            extents = sizes
        need = [max((-(-size // s) - 1) * s + k - size, 0) for size, s, k in zip(sizes, strides, kernel)]
        less, more = [n // 2 for n in need], [n - n // 2 for n in need]
        pads = less + more if automatic == "SAME_UPPER" else more + less
    elif automatic == "VALID":
        pads = [0] * (2 * dims)
    attributes = {
        "group": groups,
        "strides": strides,
        "dilations": dilations,
        "kernel_shape": kernel,
        "auto_pad": automatic,
    }
    if automatic == "NOTSET":
        attributes["pads"] = pads

    def shape() -> list:
        own = (
            extents
            if isinstance(extents[0], int)
            else [d * k + r.below(20 // dims) for d, k in zip(dilations, kernel)]
        )
        return [r.below(3), inputs * groups, *own]

    return ((outputs * groups, inputs, *kernel), ["n", inputs * groups, *extents], attributes, pads, shape)


def conv_integer(seed: int) -> Layer:
    r = Random(seed)
    x_type, w_type, _ = r.types()
    shape, declared, attributes, pads, input_shape = _geometry(r)
    w = r.integers(w_type, shape)
    x_zero = r.one_of(None, r.integers(x_type), (x_type, []))  # the last: each run gives it
    w_zero = None if x_zero is None else r.one_of(None, r.integers(w_type), r.integers(w_type, shape[0]))
    on_cpu = w_zero is None or w_zero.size == 1
    model = one_node(
        "ConvInteger",
        [("x", (x_type, declared)), ("w", w), ("x_zero", x_zero), ("w_zero", w_zero)],
        (np.int32, None),
        **attributes,
    )

    def inputs() -> dict:
        return {"x": r.integers(x_type, input_shape())} | (
            {"x_zero": r.integers(x_type)} if isinstance(x_zero, tuple) else {}
        )

    def exact(given: dict) -> np.ndarray:
        zero = given.get("x_zero", x_zero if isinstance(x_zero, np.ndarray) else 0)
        return convolution(
            given["x"],
            zero,
            w,
            0 if w_zero is None else w_zero,
            attributes["strides"],
            attributes["dilations"],
            pads,
            attributes["group"],
        ).astype(np.int32)

    return Layer(model, inputs, exact, on_cpu, has_like=(x_type, w_type) != (np.int8, np.uint8))


def qlinear_conv(seed: int, channels_last: bool = False) -> Layer:
    r = Random(seed)
    x_type, w_type, on_cpu = r.types()
    shape, declared, attributes, pads, input_shape = _geometry(r)
    w, bias = r.integers(w_type, shape), r.one_of(None, r.bias(shape[0]))
    w_scale, w_zero = r.scale(r.one_of((), shape[0])), r.one_of(r.integers(w_type), np.zeros((), w_type))
    x_scale, x_zero, y_zero = r.scale(), r.integers(x_type), r.integers(x_type)
    y_scale = r.y_scale(int(np.prod(shape[1:])), x_scale, w_scale)
    if channels_last:
        attributes["channels_last"] = 1
        declared = [declared[0], *declared[2:], declared[1]]
    model = one_node(
        "QLinearConv",
        [
            ("x", (x_type, declared)),
            ("x_scale", x_scale),
            ("x_zero", x_zero),
            ("w", w),
            ("w_scale", w_scale),
            ("w_zero", w_zero),
            ("y_scale", y_scale),
            ("y_zero", y_zero),
            ("bias", bias),
        ],
        (x_type, None),
        MICROSOFT if channels_last else "",
        **attributes,
    )

    def inputs() -> dict:
        x = r.integers(x_type, input_shape())
        return {"x": np.moveaxis(x, 1, -1).copy() if channels_last else x}

    def exact(given: dict) -> np.ndarray:
        x = np.moveaxis(given["x"], -1, 1) if channels_last else given["x"]
        sums = convolution(
            x, x_zero, w, w_zero, attributes["strides"], attributes["dilations"], pads, attributes["group"]
        )
        column = [-1] + [1] * (len(shape) - 2)
        sums = sums + (0 if bias is None else bias.reshape(column))
        y = quantized(sums, (x_scale * w_scale / y_scale).reshape(column), y_zero)
        return np.moveaxis(y, 1, -1) if channels_last else y

    return Layer(model, inputs, exact, on_cpu)


def qlinear_conv_channels_last(seed: int) -> Layer:
    return qlinear_conv(seed, True)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """One rounding to float32. In float64 the product is exact. The sum is rounded to odd, so rounding it again does no harm."""
    product, c = np.float64(a) * np.float64(b), np.float64(c)
    total = np.atleast_1d(product + c)
    of_c = total - product
    lost = (product - (total - of_c)) + (c - of_c)
    bits = total.view(np.int64)
    step = np.where((lost > 0) == (total > 0), 1, -1)
    bits = np.where((lost != 0) & (bits % 2 == 0), bits + step, bits)
    return bits.view(np.float64).astype(np.float32).reshape(np.shape(product + c))


def added(x: np.ndarray, y: np.ndarray, scales: tuple, zeros: tuple) -> np.ndarray:
    """QLinearAdd. `scales`, `zeros`: of x, y and the output. Compare the shapes from the last dimension. At the first dimension
    where x or y has an extent other than 1: if x has extent 1 there, x and y are exchanged. If there is no such dimension, they
    are exchanged too."""
    common = min(x.ndim, y.ndim) or 1
    pairs = list(itertools.zip_longest(reversed(x.shape), reversed(y.shape), fillvalue=1))[:common] or [
        (1, 1)
    ]
    x_of_pair, _ = next((pair for pair in pairs if pair != (1, 1)), (1, 1))
    x_ratio, y_ratio = (scale / scales[2] for scale in scales[:2])
    x_zero, y_zero, zero = map(np.float32, zeros)
    if x_of_pair == 1:
        x, x_ratio, x_zero, y, y_ratio, y_zero = y, y_ratio, y_zero, x, x_ratio, x_zero
    fixed = zero - fma(x_ratio, x_zero, y_ratio * y_zero)
    info = np.iinfo(zeros[2].dtype)
    return np.clip(np.rint(fma(x, x_ratio, fma(y, y_ratio, fixed))), info.min, info.max).astype(
        zeros[2].dtype
    )


def _elementwise(seed: int, op: str, y_scale_of: Callable, exact_of: Callable) -> Layer:
    r = Random(seed)
    dtype = r.one_of(np.uint8, np.int8)
    a_scale, b_scale = r.scale(), r.scale()
    y_scale = np.float32(y_scale_of(a_scale, b_scale) * r.rng.uniform(1, 3))
    a_zero, b_zero, y_zero = (r.integers(dtype) for _ in range(3))
    extents = [r.below(9) for _ in range(r.below(4))] + [r.below(70)]
    which = r.one_of("equal", "a", "b", "both", "constant a", "constant b", "pooled", "pooled")
    dimensions = len(extents)
    few = [1] * r.one_of(0, 1, 2)
    pooled = (
        [[r.below(9), r.below(40), 1, 1], few]
        if r.one_of(True, False)
        else [few, [r.below(9), r.below(40), 1, 1]]
    )

    def shapes() -> list:
        """Of A and B: some extents of one of them, or of both, are 1 or not there."""
        if which == "pooled":
            return pooled
        a, b = list(extents), list(extents)
        for i in range(dimensions):
            if which in ("a", "both") and r.rng.random() < 0.6:
                a[i] = 1
            elif which in ("b", "both") and r.rng.random() < 0.6:
                b[i] = 1
        while which == "b" and b[:1] == [1] and len(b) > 1 and r.rng.random() < 0.5:
            del b[0]
        return [a, b]

    operands = {
        name: r.integers(dtype, shape) if which == f"constant {name}" else (dtype, None)
        for name, shape in zip("ab", shapes())
    }
    model = one_node(
        op,
        [
            ("a", operands["a"]),
            ("a_scale", a_scale),
            ("a_zero", a_zero),
            ("b", operands["b"]),
            ("b_scale", b_scale),
            ("b_zero", b_zero),
            ("y_scale", y_scale),
            ("y_zero", y_zero),
        ],
        (dtype, None),
        MICROSOFT,
    )

    def inputs() -> dict:
        return {
            name: r.integers(dtype, shape)
            for name, shape in zip("ab", shapes())
            if isinstance(operands[name], tuple)
        }

    def exact(given: dict) -> np.ndarray:
        both = operands | given
        return exact_of(both["a"], both["b"], (a_scale, b_scale, y_scale), (a_zero, b_zero, y_zero))

    return Layer(model, inputs, exact)


def qlinear_add(seed: int) -> Layer:
    return _elementwise(seed, "QLinearAdd", max, added)


def multiplied(
    a: np.ndarray, b: np.ndarray, scales: tuple, zeros: tuple, ratio: np.float32 | None = None
) -> np.ndarray:
    """`ratio`: instead of the ratio of ONNX Runtime's order."""
    products = (a.astype(np.int64) - int(zeros[0])) * (b.astype(np.int64) - int(zeros[1]))
    ratio = scales[0] * scales[1] / scales[2] if ratio is None else ratio
    values = products.astype(np.float32) * ratio + np.float32(zeros[2])
    info = np.iinfo(zeros[2].dtype)
    return np.clip(np.rint(values), info.min, info.max).astype(info.dtype)


def qlinear_mul(seed: int) -> Layer:
    return _elementwise(seed, "QLinearMul", lambda a_scale, b_scale: a_scale * b_scale * 60, multiplied)


def quotient(seed: int) -> Layer:
    """DequantizeLinear, Div, QuantizeLinear."""
    r = Random(seed)
    dtype = r.one_of(np.uint8, np.int8)
    constants = {
        "xs": r.scale(),
        "xz": r.integers(dtype),
        "d": np.float32(r.one_of(-1, 1) * np.exp(r.rng.uniform(-3, 3))),
        "yz": r.integers(dtype),
    }
    # With the factor 2, half of the quotients are close to a tie. The last bit of each operation then decides how they are
    # rounded.
    constants["ys"] = np.float32(constants["xs"] / abs(constants["d"]) * r.one_of(2, r.rng.uniform(0.7, 3)))
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["f"]),
        helper.make_node("Div", ["f", "d"], ["q"]),
        helper.make_node("QuantizeLinear", ["q", "ys", "yz"], ["y"]),
    ]
    model = model_of(nodes, {"x": (dtype, None)}, {"y": (dtype, None)}, constants)

    def exact(given: dict) -> np.ndarray:
        values = (
            (given["x"].astype(np.float32) - np.float32(constants["xz"])) * constants["xs"] / constants["d"]
        )
        return quantized(np.asarray(values / constants["ys"]), np.float32(1), constants["yz"])

    return Layer(model, lambda: {"x": r.integers(dtype, [r.below(9), 300])}, exact)


# Operators of float, and their constant operands.
UNARY = {
    "Abs": [],
    "Ceil": [],
    "Clip": [-0.7, 1.1],
    "Erf": [],
    "Floor": [],
    "HardSigmoid": [],
    "HardSwish": [],
    "LeakyRelu": [],
    "Neg": [],
    "Pow": [2],
    "Reciprocal": [],
    "Relu": [],
    "Round": [],
    "Sigmoid": [],
    "Sign": [],
    "Sqrt": [],
    "Tanh": [],
    "Add": [0.3],
    "Div": [1.7],
    "Max": [-0.5],
    "Min": [0.9],
    "Mul": [0.6],
    "Sub": [0.2],
}
BINARY = ("Add", "Div", "Max", "Min", "Mul", "Sub")


def function_of_bytes(seed: int) -> tuple[bytes, str]:
    """A model, and the operators of its float values: y is a random function of x, element by element."""
    r = Random(seed)
    last_extent = r.one_of(300, 300, 2, 3, 37, 101)
    dtype = r.one_of(np.uint8, np.int8)
    middle = 128 if dtype == np.uint8 else 0
    constants: dict[str, np.ndarray] = {}
    nodes, bytes_of, operators = [], ["x"], []  # bytes_of: names of quantized tensors

    def constant(value: Any) -> str:
        constants[name := f"c{len(constants)}"] = np.asarray(value)
        return name

    def node(op: str, inputs: list[str], domain: str = "") -> str:
        nodes.append(helper.make_node(op, inputs, [name := f"v{len(nodes)}"], domain=domain))
        return name

    def scale_of(name: str) -> list[str]:
        if name not in scales:
            zero = dtype(middle + r.one_of(0, -5, 17, -128 if name != "x" else 0))
            scales[name] = [constant(np.float32(r.rng.uniform(0.004, 0.03))), constant(zero)]
        return scales[name]

    def dequantized(name: str) -> str:
        return node("DequantizeLinear", [name, *scale_of(name)])

    def quantized_operand(name: str) -> list[str]:
        return [name, *scale_of(name)]

    def operand(value: float) -> str:
        shape = r.one_of((), (1,), (1, 1))
        if r.one_of(True, False):
            return constant(np.full(shape, value, np.float32))
        name = constant(np.full(shape, middle + 100, dtype))
        scales[name] = [constant(np.float32(abs(value) / 100 + 0.001)), constant(dtype(middle))]
        return dequantized(name)

    scales: dict[str, list[str]] = {}
    for _ in range(r.below(6)):
        if r.one_of(True, False, False):
            op = r.one_of("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu")
            other = r.one_of(r.one_of(*bytes_of), constant(r.integers(dtype, r.one_of((), (1,)))))
            inputs = quantized_operand(bytes_of[-1]) + (
                quantized_operand(other) if op in ("QLinearAdd", "QLinearMul") else []
            )
            operators.append(op)
            bytes_of.append(node(op, [*inputs, *scale_of(f"v{len(nodes)}")], MICROSOFT))
            continue
        value = dequantized(bytes_of[-1])
        for _ in range(r.one_of(1, 1, 1, 2, 3)):
            if r.one_of(True, False, False):
                op, inputs = r.one_of(*BINARY), [value, dequantized(r.one_of(*bytes_of))]
                if r.one_of(True, False):
                    inputs.reverse()
            else:
                op = r.one_of(*UNARY)
                # Bounds of Clip and exponents stay float.
                make = operand if op in BINARY else lambda number: constant(np.float32(number))
                inputs = [value, *(make(number) for number in UNARY[op])]
            operators.append(op)
            value = node(op, inputs)
        bytes_of.append(node("QuantizeLinear", [value, *scale_of(f"v{len(nodes)}")]))
    nodes[-1].output[0] = "y"
    model = model_of(nodes, {"x": (dtype, ["n", last_extent])}, {"y": (dtype, None)}, constants)
    return model, " ".join(operators)


def max_pool(seed: int) -> Layer:
    r = Random(seed)
    dtype = r.one_of(np.uint8, np.int8)
    channels, kernel, dilations = r.below(40), [r.below(4), r.below(4)], [r.below(2), r.below(2)]
    strides, pads = [r.below(3), r.below(3)], [int(r.rng.integers(extent)) for extent in kernel * 2]
    model = one_node(
        "MaxPool",
        [("x", (dtype, ["n", channels, "h", "w"]))],
        (dtype, None),
        kernel_shape=kernel,
        strides=strides,
        dilations=dilations,
        pads=pads,
    )

    def exact(given: dict) -> np.ndarray:
        x = np.pad(
            given["x"],
            [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])],
            constant_values=np.iinfo(dtype).min,
        )
        extents = [(x.shape[2 + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in (0, 1)]
        windows = [
            x[
                (
                    ...,
                    *(
                        slice(t * d, t * d + (e - 1) * s + 1, s)
                        for t, d, e, s in zip(tap, dilations, extents, strides)
                    ),
                )
            ]
            for tap in np.ndindex(*kernel)
        ]
        return np.max(windows, axis=0)

    def inputs() -> dict:
        least = [max(1, dilations[i] * (kernel[i] - 1) + 1 - pads[i] - pads[i + 2]) for i in (0, 1)]
        return {
            "x": r.integers(dtype, [r.below(3), channels, *(extent + r.below(20) - 1 for extent in least)])
        }

    return Layer(model, inputs, exact)


def softmax(seed: int) -> Layer:
    """QLinearSoftmax, or the group of a Softmax. Before opset 13 a row is all dimensions from `axis`."""
    r = Random(seed)
    opset, dimensions = r.one_of(12, 13), r.below(3)
    axis = int(r.rng.integers(dimensions)) if opset == 12 else dimensions - 1
    x_scale, y_scale = (
        np.float32(np.exp(r.rng.uniform(-5, 0))),
        np.float32(r.one_of(1 / 256, 1 / 255, 0.003, 0.001, 0.02)),
    )
    y_zero = np.uint8(r.one_of(0, 0, 7, 200))
    scales = [("xs", x_scale), ("xz", r.integers(np.uint8)), ("ys", y_scale), ("yz", y_zero)]
    x = (np.uint8, [f"d{i}" for i in range(dimensions)])
    if r.one_of(True, False):
        model = one_node(
            "QLinearSoftmax", [("x", x), *scales], (np.uint8, None), MICROSOFT, axis=axis, opset=opset
        )
    else:
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["f"]),
            helper.make_node(
                "Softmax", ["f"], ["s"], axis=axis - r.one_of(0, dimensions if opset == 13 else 0)
            ),
            helper.make_node("QuantizeLinear", ["s", "ys", "yz"], ["y"]),
        ]
        model = model_of(nodes, {"x": x}, {"y": (np.uint8, None)}, dict(scales), opset)

    def exact(given: dict) -> np.ndarray:
        rows = given["x"].reshape(int(np.prod(given["x"].shape[:axis])), -1).astype(int)
        shift = max(0.0, float(np.log(np.finfo(np.float32).max / np.float32(rows.shape[1]))) - 5) / float(
            x_scale
        )
        table = np.array([math.exp((b - 255 + shift) * float(x_scale)) for b in range(256)], np.float32)
        exponentials = table[rows + 255 - rows.max(1, keepdims=True)]
        sums = np.zeros(len(rows), np.float32)
        for column in exponentials.T:
            sums += column
        values = exponentials.astype(float) * float(np.floor(1 / y_scale)) / sums[:, np.newaxis]
        return np.minimum(np.rint(values) + y_zero, 255).astype(np.uint8).reshape(given["x"].shape)

    def inputs() -> dict:
        shape = [r.below(5) for _ in range(dimensions - 1)] + [r.below(300)]
        if r.one_of(True, False):
            return {"x": r.integers(np.uint8, shape)}
        return {"x": np.clip(r.rng.normal(120, 10, shape), 0, 255).astype(np.uint8)}  # many sums are close

    return Layer(model, inputs, exact)


def _rational(x: np.ndarray, bound: float, p: list, q: list) -> np.ndarray:
    x = np.clip(x, np.float32(-bound), np.float32(bound))
    square = x * x
    top, bottom = (np.full_like(x, np.float32(coefficients[0])) for coefficients in (p, q))
    for value in p[1:]:
        top = fma(top, square, np.float32(value))
    for value in q[1:]:
        bottom = fma(bottom, square, np.float32(value))
    return top * x / bottom


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Rounding makes it 1 + 2^-23 for few arguments."""
    return np.maximum(
        np.float32(0.5)
        + _rational(
            x,
            18,
            [
                4.37031012579801e-11,
                1.15627324459942e-07,
                6.08574864600143e-05,
                8.51377133304701e-03,
                2.48287947061529e-01,
            ],
            [
                6.10247389755681e-13,
                5.76102136993427e-09,
                6.29106785017040e-06,
                1.70198817374094e-03,
                1.16817656904453e-01,
                9.93151921023180e-01,
            ],
        ),
        np.float32(0),
    )


def tanh(x: np.ndarray) -> np.ndarray:
    return _rational(
        x,
        9,
        [
            -2.76076847742355e-16,
            2.00018790482477e-13,
            -8.60467152213735e-11,
            5.12229709037114e-08,
            1.48572235717979e-05,
            6.37261928875436e-04,
            4.89352455891786e-03,
        ],
        [1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03],
    )


def dynamic_quantize_lstm(seed: int, hidden: int = 0) -> Layer:
    """`hidden`: 0 for any."""
    r = Random(seed)
    b_type = r.one_of(np.uint8, np.int8)
    direction = r.one_of("forward", "reverse", "bidirectional")
    directions = 2 if direction == "bidirectional" else 1
    size, hidden = r.below(60), hidden or r.below(40)
    columns = 4 * hidden
    weights, scales, zeros = [], [], []
    for depth in (size, hidden):
        shape = [directions, columns] if r.one_of(True, False) else [directions]
        weights.append(r.integers(b_type, (directions, depth, columns)))
        scales.append(r.scale(shape) * np.float32(0.3))
        zeros.append(np.full(shape, 0 if b_type == np.int8 else r.integers(b_type), b_type))
    bias = r.one_of(None, r.rng.normal(size=(directions, 2 * columns)).astype(np.float32))
    batch = r.below(5)
    states = r.one_of(None, "runs", "constant")
    random_state = lambda: r.rng.normal(size=(directions, batch, hidden)).astype(np.float32)
    h, c = (random_state() for _ in range(2))
    constants = {
        "W": weights[0],
        "R": weights[1],
        "ws": scales[0],
        "wz": zeros[0],
        "rs": scales[1],
        "rz": zeros[1],
    }
    inputs_of_model: dict = {"x": (np.float32, ["steps", batch, size])}
    if bias is not None:
        constants["B"] = bias
    if states == "constant":
        constants |= {"h": h, "c": c}
    elif states == "runs":
        inputs_of_model |= {"h": (np.float32, h.shape), "c": (np.float32, h.shape)}
    outputs = r.one_of(["Y", "Y_h", "Y_c"], ["Y", "Y_h", "Y_c"], ["", "Y_h", ""], ["Y", "", "Y_c"])
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        [
            "x",
            "W",
            "R",
            "B" if bias is not None else "",
            "",
            "h" if states else "",
            "c" if states else "",
            "",
            "ws",
            "wz",
            "rs",
            "rz",
        ],
        outputs,
        domain=MICROSOFT,
        name="lstm",
        direction=direction,
        hidden_size=hidden,
    )
    model = model_of(
        [node], inputs_of_model, {name: (np.float32, None) for name in outputs if name}, constants
    )

    def inputs() -> dict:
        x = (r.rng.normal(size=(r.below(6), batch, size)) * r.one_of(1, 10)).astype(np.float32)
        return {"x": x} | ({"h": random_state(), "c": random_state()} if states == "runs" else {})

    def scaled(a: np.ndarray, which: int, d: int) -> np.ndarray:
        values, scale, zero = dynamically_quantized(a)
        b_zero, b_scale = zeros[which][d], scales[which][d]
        return product(values, zero, weights[which][d], b_zero).astype(np.float32) * (scale * b_scale)

    def exact(given: dict) -> np.ndarray:
        x, y = given["x"], []
        ends: dict = {"Y_h": [], "Y_c": []}
        for d in range(directions):
            of_x = scaled(x, 0, d)
            state, cell = (
                (given.get(name, value) if states else np.zeros_like(value))[d]
                for name, value in (("h", h), ("c", c))
            )
            b = np.float32(0) if bias is None else bias[d, :columns] + bias[d, columns:]
            sequence = [None] * len(x)
            for t in range(len(x)) if direction != "reverse" and d == 0 else reversed(range(len(x))):
                i, o, f, g = np.split(of_x[t] + scaled(state, 1, d) + b, 4, axis=1)
                cell = cell * sigmoid(f) + sigmoid(i) * tanh(g)
                sequence[t] = state = tanh(cell) * sigmoid(o)
            y.append(np.stack(sequence))
            ends["Y_h"].append(state)
            ends["Y_c"].append(cell)
        made = {"Y": np.stack(y, axis=1)} | {name: np.stack(values) for name, values in ends.items()}
        return joined([made[name] for name in outputs if name])

    return Layer(model, inputs, exact)


OPERATORS = [
    matmul_integer,
    qlinear_matmul,
    qgemm,
    dynamic_quantize_matmul,
    matmul_integer_to_float,
    conv_integer,
    qlinear_conv,
    qlinear_conv_channels_last,
    products_of_run,
    qlinear_add,
    qlinear_mul,
    quotient,
    max_pool,
    softmax,
    dynamic_quantize_lstm,
]


def nbits_model(
    bits: int = 4,
    group: int = 32,
    k: int = 96,
    n: int = 24,
    dtype: type = np.float32,
    has_points: bool = True,
    has_bias: bool = False,
    seed: int = 0,
    inputs: dict[int, str] | None = None,
    **attributes: int,
) -> bytes:
    """A MatMulNBits with random weights. `inputs`: names at places of the operator's inputs, of constants of int32."""
    rng, groups = np.random.default_rng(seed), -(-k // group)
    scales = rng.uniform(0.01, 0.1, (n, groups)).astype(dtype)
    constants = {"b": rng.integers(0, 256, (n, groups, group * bits // 8), dtype=np.uint8), "s": scales}
    names = ["a", "b", "s", "", "", ""]
    if has_points:
        constants["z"] = rng.integers(0, 256, (n, -(-groups * bits // 8)), dtype=np.uint8)
        names[3] = "z"
    if has_bias:
        constants["bias"] = rng.normal(0, 1, n).astype(dtype)
        names[5] = "bias"
    for place, name in (inputs or {}).items():
        constants[name] = np.arange(k, dtype=np.int32) // group
        names[place] = name
    while not names[-1]:
        names.pop()
    attributes = {"K": k, "N": n, "bits": bits, "block_size": group, "accuracy_level": 4, **attributes}
    node = helper.make_node("MatMulNBits", names, ["c"], domain=MICROSOFT, **attributes)
    return model_of([node], {"a": (dtype, ["i", "m", k])}, {"c": (dtype, ["i", "m", n])}, constants, 17)
