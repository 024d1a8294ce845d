"""Random problems of the provider's float operators on each ISA, with several numbers of threads, in unaligned memory between pages
that cannot be touched, against their definitions (float_reference.cc), bit by bit. The definitions with planted faults must differ.

    python integrations/onnxruntime/tests/test_float_sweep.py --count 20000 --seed 1      # longer, other problems
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", minversion="1.23", reason="needs onnxruntime 1.23")
onnx = pytest.importorskip("onnx", reason="needs onnx")

import layers
from test_float_operators import Guarded
from test_provider import assert_taken, session_of

# The ISAs, and the threads of a session; None: what this CPU has, "portable": the provider's own scalar functions.
SESSIONS = ((None, 4), ("avx2", 2), ("portable", 1))
# The numbers of float_reference.cc's faults.
FAULTS = (
    "adds in order",
    "adds lanes in order",
    "coefficient",
    "whole tail",
    "no maximum",
    "divides each",
    "another logarithm",
    "flushes",
    "rounds products",
    "bias first",
    "taps first",
    "blocks backward",
    "pads with zeros",
    "block of eight",
    "keeps −0",
    "adds from the first",
    "adds four",
    "C last",
    "alpha last",
    "taps backward",
    "ignores the place",
    "no columns",
    "counts all",
    "joins last",
    "fuses the exponential",
)
# The numbers of float_reference.cc's functions.
FUNCTIONS = ("Celu", "Elu", "Log", "Selu", "Softplus")
RARE = np.array([np.inf, -np.inf, np.nan, 1e-42, -1e-42, 0.0, -0.0, 3e38, -3e38, 1e-20, -1e-20], np.float32)
MASKS = np.array([-np.inf, -1e4, -3.4028235e38, -87.0, -87.4, -95.0, -103.9, -103.98, 0.0], np.float32)


@functools.cache
def reference() -> ctypes.CDLL:
    path = os.environ.get("INTACT_FLOAT_REFERENCE", "")
    if not Path(path).is_file():
        pytest.skip("needs INTACT_FLOAT_REFERENCE, the library of float_reference.cc")
    return ctypes.CDLL(path)


def place(array: "np.ndarray | None") -> ctypes.c_void_p:
    return ctypes.c_void_p(0 if array is None else array.ctypes.data)


@dataclass
class Problem:
    """Tensors, and `defined`: the definition with the fault of a number; 0 is none. `faults`: what its operator can be planted with."""

    model: bytes
    feeds: dict[str, np.ndarray]
    defined: Callable[[int], np.ndarray]
    faults: tuple[str, ...]


@dataclass
class Found:
    problems: int = 0
    values: int = 0
    differences: list[str] = field(default_factory=list)
    faults: dict[str, bool] = field(default_factory=dict)  # whether a problem showed it


def floats(rng: np.random.Generator, shape: tuple[int, ...], rare: np.ndarray = RARE) -> np.ndarray:
    """Values of one magnitude, a few of them rare; or very small ones, whose products are denormal or −0; or one rare value."""
    how = rng.random()
    values = (rng.standard_normal(shape) * 10 ** rng.uniform(-2, 2)).astype(np.float32)
    if how < 0.15:
        return values * np.float32(10 ** rng.uniform(-30, -18))
    if how < 0.2:
        return np.full(shape, rng.choice(rare), np.float32)
    if how < 0.4:
        chosen = rng.random(shape) < 10 ** rng.uniform(-3, 0)
        values[chosen] = rng.choice(rare, np.count_nonzero(chosen))
    return values


def length(rng: np.random.Generator, most: int) -> int:
    """Often around a width of a register."""
    near = [
        n for n in (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 127, 128, 129) if n <= most
    ]
    return int(rng.choice(near)) if rng.random() < 0.6 else int(rng.integers(1, most + 1))


@functools.cache
def model_of(op: str, dimensions: int, opset: int, inputs: int = 1, **attributes: int) -> bytes:
    names = ["a", "b"][:inputs]
    axes = {"axes": np.array(attributes.pop("axes"))} if "axes" in attributes else {}
    return layers.model_of(
        [onnx.helper.make_node(op, [*names, *axes], ["y"], **attributes)],
        {name: (np.float32, [None] * dimensions) for name in names},
        {"y": (np.float32, None)},
        axes,
        opset,
    )


def softmax(rng: np.random.Generator) -> Problem:
    dimensions, is_log, opset = int(rng.integers(2, 4)), bool(rng.integers(0, 2)), int(rng.choice([11, 13]))
    axis, shape = int(rng.integers(0, dimensions)), [int(rng.integers(1, 5)) for _ in range(dimensions)]
    shape[axis] = length(rng, 300)
    x = floats(rng, tuple(shape), MASKS if rng.random() < 0.7 else RARE)

    def defined(fault: int) -> np.ndarray:
        rows = np.ascontiguousarray(
            np.moveaxis(x, axis, -1) if opset >= 13 else x.reshape(math.prod(shape[:axis]), -1)
        )
        y = np.empty_like(rows)
        reference().intact_softmax_reference(
            place(rows),
            place(y),
            ctypes.c_int64(rows.size // rows.shape[-1]),
            ctypes.c_int64(rows.shape[-1]),
            int(is_log),
            fault,
        )
        return np.moveaxis(y, -1, axis) if opset >= 13 else y.reshape(x.shape)

    own = ("another logarithm",) if is_log else ("divides each", "flushes")
    return Problem(
        model_of("LogSoftmax" if is_log else "Softmax", dimensions, opset, axis=axis),
        {"a": x},
        defined,
        ("adds in order", "adds lanes in order", "coefficient", "whole tail", "no maximum", *own),
    )


def product(rng: np.random.Generator) -> Problem:
    """A MatMul, or a Gemm with alpha, beta and C."""
    is_gemm = rng.random() < 0.5
    items, m, n, k = (
        1 if is_gemm else int(rng.integers(1, 4)),
        length(rng, 40),
        length(rng, 140),
        length(rng, 129) * int(rng.choice([1, 1, 3, 9])),
    )
    a, b = floats(rng, (items, m, k)), floats(rng, (items if rng.random() < 0.5 else 1, k, n))
    alpha, beta = (
        (np.float32(rng.choice([1, 0.125, 0.3, -1.7])), np.float32(rng.choice([1, -0.7])))
        if is_gemm
        else (np.float32(1), np.float32(1))
    )
    c = (
        floats(rng, ((m, n), (1, n), (m, 1))[int(rng.integers(0, 3))])
        if is_gemm and rng.random() < 0.7
        else None
    )
    with np.errstate(all="ignore"):
        before = None if c is None else np.ascontiguousarray(np.broadcast_to(c * beta, (m, n)))

    def defined(fault: int) -> np.ndarray:
        y = np.empty((items, m, n), np.float32)
        for item in range(items):
            reference().intact_matmul_reference(
                place(a[item]),
                place(b[item % len(b)]),
                ctypes.c_float(alpha),
                place(before),
                place(y[item]),
                *(ctypes.c_int64(size) for size in (m, n, k)),
                fault,
            )
        return y[0] if is_gemm else y

    faults = ("adds in order", "flushes", "rounds products", "blocks backward", "block of eight")
    if not is_gemm:
        return Problem(model_of("MatMul", 3, 17, 2), {"a": a, "b": b}, defined, faults)
    feeds = {"a": a[0], "b": b[0]} | ({} if c is None else {"c": c})
    node = onnx.helper.make_node("Gemm", list(feeds), ["y"], alpha=float(alpha), beta=float(beta))
    model = layers.model_of(
        [node], {name: (np.float32, [None] * 2) for name in feeds}, {"y": (np.float32, None)}, {}, 17
    )
    return Problem(model, feeds, defined, (*faults, "alpha last", *([] if c is None else ["C last"])))


def transposed(rng: np.random.Generator) -> Problem:
    """A ConvTranspose of an image of unknown size."""
    groups, channels, outputs = (
        int(rng.choice([1, 1, 2])),
        int(rng.integers(300, 800)) if rng.random() < 0.4 else length(rng, 129),
        int(rng.integers(1, 5)),
    )
    kernel, stride, dilation, pads = (
        [int(n) for n in rng.choice(values, size)]
        for values, size in (((1, 2, 3), 2), ((1, 2, 3), 2), ((1, 1, 2), 2), ((0, 0, 1), 4))
    )
    image, more = [int(n) for n in rng.integers(1, 8, 2)], [int(rng.integers(0, s)) for s in stride]
    out = [
        s * (n - 1) + p + d * (k - 1) + 1 - pads[i] - pads[i + 2]
        for i, (s, n, p, d, k) in enumerate(zip(stride, image, more, dilation, kernel))
    ]
    if min(out) < 1:
        pads, out = [0] * 4, [n + pads[i] + pads[i + 2] for i, n in enumerate(out)]
    x, weights = (
        floats(rng, (int(rng.integers(1, 3)), groups * channels, *image)),
        floats(rng, (groups * channels, outputs, *kernel)),
    )
    bias = floats(rng, (groups * outputs,)) if rng.random() < 0.6 else None
    if rng.random() < 0.1:  # denormal products
        x, weights, bias = np.full_like(x, 1e-20), np.full_like(weights, 1e-20), None
    sizes = np.array(
        [groups * channels, groups * outputs, groups, *image, *out, *kernel, *stride, *dilation, *pads],
        np.int64,
    )

    def defined(fault: int) -> np.ndarray:
        y = np.empty((len(x), groups * outputs, *out), np.float32)
        reference().intact_conv_transpose_reference(
            place(x), place(weights), place(bias), place(y), ctypes.c_int64(len(x)), place(sizes), fault
        )
        return y

    constants = {"w": weights} | ({} if bias is None else {"b": bias})
    node = onnx.helper.make_node(
        "ConvTranspose",
        ["a", *constants],
        ["y"],
        group=groups,
        strides=stride,
        dilations=dilation,
        pads=pads,
        output_padding=more,
    )
    model = layers.model_of(
        [node],
        {"a": (np.float32, [None, groups * channels, None, None])},
        {"y": (np.float32, None)},
        constants,
    )
    return Problem(
        model,
        {"a": x},
        defined,
        (
            "adds in order",
            "flushes",
            "rounds products",
            "bias first",
            "blocks backward",
            "block of eight",
            "taps backward",
        ),
    )


def line_convolution(rng: np.random.Generator) -> Problem:
    """A Conv of one dimension."""
    groups, channels, outputs, taps = (
        int(rng.choice([1, 1, 2])),
        length(rng, 129),
        int(rng.integers(2, 40)),
        int(rng.integers(1, 8)),
    )
    stride, dilation = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    pads = [int(n) for n in rng.integers(0, 4, 2)]
    width = int(rng.integers((taps - 1) * dilation + 1, 300))
    pixels = (width + sum(pads) - (taps - 1) * dilation - 1) // stride + 1
    x, weights = (
        floats(rng, (int(rng.integers(1, 3)), groups * channels, width)),
        floats(rng, (groups * outputs, channels, taps)),
    )
    bias = floats(rng, (groups * outputs,)) if rng.random() < 0.6 else None
    if rng.random() < 0.1:  # denormal products
        x, weights, bias = np.full_like(x, 1e-20), np.full_like(weights, 1e-20), None
    sizes = np.array(
        [
            groups * channels,
            groups * outputs,
            groups,
            1,
            width,
            1,
            pixels,
            1,
            taps,
            1,
            stride,
            1,
            dilation,
            0,
            pads[0],
            0,
            pads[1],
        ],
        np.int64,
    )

    def defined(fault: int) -> np.ndarray:
        y = np.empty((len(x), groups * outputs, pixels), np.float32)
        reference().intact_matrix_conv_reference(
            place(x), place(weights), place(bias), place(y), ctypes.c_int64(len(x)), place(sizes), fault
        )
        return y

    constants = {"w": weights} | ({} if bias is None else {"b": bias})
    node = onnx.helper.make_node(
        "Conv", ["a", *constants], ["y"], group=groups, strides=[stride], dilations=[dilation], pads=pads
    )
    model = layers.model_of(
        [node], {"a": (np.float32, [None, groups * channels, None])}, {"y": (np.float32, None)}, constants
    )
    return Problem(
        model,
        {"a": x},
        defined,
        (
            "adds in order",
            "flushes",
            "rounds products",
            "bias first",
            "taps first",
            "blocks backward",
            "block of eight",
        ),
    )


def pool(rng: np.random.Generator) -> Problem:
    is_average, is_global = bool(rng.integers(0, 2)), rng.random() < 0.2
    image = [length(rng, 40), length(rng, 40)]
    kernel, stride, pads = (
        [int(rng.integers(1, min(n, 6) + 1)) for n in image],
        [int(n) for n in rng.integers(1, 4, 2)],
        [0] * 4,
    )
    dilation = [1, 1] if is_average or rng.random() < 0.7 else [int(n) for n in rng.integers(1, 3, 2)]
    if is_global or rng.random() < 0.1:
        kernel, stride, dilation = image, [1, 1], [1, 1]
    else:
        dilation = [d if (k - 1) * d < n else 1 for k, d, n in zip(kernel, dilation, image)]
        pads = [int(rng.integers(0, k)) for k in kernel * 2]
    out = [
        (n + pads[i] + pads[i + 2] - (kernel[i] - 1) * dilation[i] - 1) // stride[i] + 1
        for i, n in enumerate(image)
    ]
    shape = (int(rng.integers(1, 3)), 8, *image)
    x = floats(rng, shape)
    if rng.random() < 0.3:  # the maximum of two zeros, or of a NaN, depends on the order
        x = rng.choice(np.array([0.0, -0.0, -1.0, np.nan], np.float32), shape, p=[0.3, 0.3, 0.38, 0.02])
    counts = is_average and not is_global and bool(rng.integers(0, 2))
    if max(dilation) > 1:  # windows without a tap in the image have no number
        pads = [0] * 4
        out = [(n - (kernel[i] - 1) * dilation[i] - 1) // stride[i] + 1 for i, n in enumerate(image)]
    sizes = np.array([*image, *out, *kernel, *stride, *dilation, *pads], np.int64)

    def defined(fault: int) -> np.ndarray:
        y = np.empty((*x.shape[:2], *out), np.float32)
        reference().intact_pool_reference(
            place(x), place(y), ctypes.c_int64(len(x) * 8), place(sizes), int(is_average), int(counts), fault
        )
        return y

    attributes = (
        {}
        if is_global
        else {"kernel_shape": kernel, "strides": stride, "pads": pads}
        | ({"count_include_pad": int(counts)} if is_average else {"dilations": dilation})
    )
    node = onnx.helper.make_node(
        ("Global" if is_global else "") + ("AveragePool" if is_average else "MaxPool"),
        ["a"],
        ["y"],
        **attributes,
    )
    model = layers.model_of(
        [node], {"a": (np.float32, [None, 8, None, None])}, {"y": (np.float32, None)}, {}, 17
    )
    return Problem(model, {"a": x}, defined, ("no columns", "counts all") if is_average else ("joins last",))


def function(rng: np.random.Generator) -> Problem:
    shape, op = (length(rng, 300), length(rng, 9)), str(rng.choice(FUNCTIONS))
    x = (
        rng.integers(0, 2**31, shape, dtype=np.uint32).view(np.float32)
        if rng.random() < 0.3
        else floats(rng, shape)
    )
    alpha, gamma = (np.float32(rng.uniform(0.1, 3)) for _ in range(2))
    names = {"Celu": ("alpha",), "Elu": ("alpha",), "Selu": ("alpha", "gamma")}.get(op, ())
    attributes = {name: float(value) for name, value in (("alpha", alpha), ("gamma", gamma)) if name in names}

    def defined(fault: int) -> np.ndarray:
        y = np.empty(shape, np.float32)
        reference().intact_function_reference(
            place(np.ascontiguousarray(x)),
            place(y),
            ctypes.c_int64(x.size),
            FUNCTIONS.index(op),
            ctypes.c_float(alpha),
            ctypes.c_float(gamma),
            fault,
        )
        return y

    faults = ("coefficient", "rounds products") if op == "Log" else ("fuses the exponential",)
    return Problem(model_of(op, 2, 13, **attributes), {"a": x}, defined, faults)


def last_sum(rng: np.random.Generator) -> Problem:
    """Over the last axis, in a tensor whose dimensions the model does not state."""
    shape, is_mean = (length(rng, 9), length(rng, 9), length(rng, 129)), bool(rng.integers(0, 2))
    x = floats(rng, shape)

    def defined(fault: int) -> np.ndarray:
        y = np.empty((*shape[:2], 1), np.float32)
        reference().intact_reduce_last_reference(
            place(x), place(y), ctypes.c_int64(y.size), ctypes.c_int64(shape[2]), int(is_mean), fault
        )
        return y

    node = onnx.helper.make_node("ReduceMean" if is_mean else "ReduceSum", ["a", "axes"], ["y"])
    model = layers.model_of(
        [node], {"a": (np.float32, None)}, {"y": (np.float32, None)}, {"axes": np.array([2])}, 18
    )
    return Problem(model, {"a": x}, defined, ("adds in order", "adds four", "ignores the place"))


def reduction(rng: np.random.Generator) -> Problem:
    dimensions = int(rng.integers(3, 5))
    begin = int(rng.integers(1, dimensions - 1))
    end = int(rng.integers(begin + 1, dimensions))
    shape, is_mean = tuple(length(rng, 20) for _ in range(dimensions)), bool(rng.integers(0, 2))
    x = floats(rng, shape) if rng.random() < 0.9 else np.full(shape, -0.0, np.float32)
    sizes = [math.prod(part) for part in (shape[:begin], shape[begin:end], shape[end:])]

    def defined(fault: int) -> np.ndarray:
        y = np.empty(shape[:begin] + (1,) * (end - begin) + shape[end:], np.float32)
        reference().intact_reduce_reference(
            place(x), place(y), *map(ctypes.c_int64, sizes), int(is_mean), fault
        )
        return y

    model = model_of("ReduceMean" if is_mean else "ReduceSum", dimensions, 18, axes=tuple(range(begin, end)))
    return Problem(
        model, {"a": x}, defined, ("adds from the first", "adds four", *(["divides each"] if is_mean else []))
    )


def convolution(rng: np.random.Generator) -> Problem:
    groups = int(rng.choice([1, 1, 1, 2, 3]))
    channels, outputs = (
        (4 * length(rng, 20) if rng.random() < 0.5 else length(rng, 50), length(rng, 40))
        if groups == 1
        else (8 * int(rng.integers(1, 5)), 8 * int(rng.integers(1, 5)))
    )
    kernel, stride, dilation, pads = (
        [int(n) for n in rng.choice(values, size)]
        for values, size in (((1, 1, 2, 3, 5), 2), ((1, 1, 2, 3), 2), ((1, 1, 2), 2), ((0, 0, 1, 2, 4), 4))
    )
    if rng.random() < 0.3:
        kernel = [1, 1]
    if rng.random() < 0.3:
        pads = [0] * 4
    image = [int(rng.integers((k - 1) * d + 1, 15)) for k, d in zip(kernel, dilation)]
    out = [
        (n + pads[i] + pads[i + 2] - (kernel[i] - 1) * dilation[i] - 1) // stride[i] + 1
        for i, n in enumerate(image)
    ]
    x = floats(rng, (int(rng.integers(1, 3)), groups * channels, *image))
    weights = floats(rng, (groups * outputs, channels, *kernel))
    bias = floats(rng, (groups * outputs,)) if rng.random() < 0.6 else None
    if rng.random() < 0.1:  # products that underflow to −0
        x, weights, bias = np.full_like(x, -1e-30), np.full_like(weights, 1e-30), None
    sizes = np.array(
        [groups * channels, groups * outputs, groups, *image, *out, *kernel, *stride, *dilation, *pads],
        np.int64,
    )

    def defined(fault: int) -> np.ndarray:
        y = np.empty((len(x), groups * outputs, *out), np.float32)
        reference().intact_conv_reference(
            place(x), place(weights), place(bias), place(y), ctypes.c_int64(len(x)), place(sizes), fault
        )
        return y

    constants = {"w": weights} | ({} if bias is None else {"b": bias})
    node = onnx.helper.make_node(
        "Conv",
        ["a", *constants],
        ["y"],
        group=groups,
        kernel_shape=kernel,
        strides=stride,
        dilations=dilation,
        pads=pads,
    )
    model = layers.model_of(
        [node],
        {"a": (np.float32, [None, groups * channels, None, None])},
        {"y": (np.float32, None)},
        constants,
    )
    return Problem(
        model,
        {"a": x},
        defined,
        (
            "adds in order",
            "flushes",
            "rounds products",
            "bias first",
            "taps first",
            "blocks backward",
            "pads with zeros",
            "block of eight",
            "keeps −0",
        ),
    )


DRAWS = {
    "Softmax": softmax,
    "MatMul": product,
    "reduction": reduction,
    "Conv": convolution,
    "ConvTranspose": transposed,
    "Conv of a line": line_convolution,
    "pool": pool,
    "functions": function,
    "sum of the last axis": last_sum,
}


def same(a: np.ndarray, b: np.ndarray, also_nans: bool = False) -> bool:
    """Whether all bits are the same; NaNs may differ in bits unless `also_nans`."""
    equal = a.view(np.uint32) == b.view(np.uint32)
    return bool(np.all(equal | (np.isnan(a) & np.isnan(b) & (not also_nans))))


@functools.lru_cache(maxsize=400)
def prepared(model: bytes, isa: "str | None", threads: int) -> onnxruntime.InferenceSession:
    session = session_of(model, threads=threads, max_isa=isa, reproducible=True)
    assert_taken(session)
    return session


def guarded(
    session: onnxruntime.InferenceSession, feeds: dict[str, np.ndarray], shape: tuple[int, ...], at_end: bool
) -> np.ndarray:
    """The output, computed with all tensors beside pages that cannot be read or written."""
    given, y = (
        {name: Guarded(value, at_end) for name, value in feeds.items()},
        Guarded(np.zeros(shape, np.float32), at_end),
    )
    binding = session.io_binding()
    for name, value in given.items():
        binding.bind_input(name, "cpu", 0, np.float32, value.array.shape, value.array.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, shape, y.array.ctypes.data)
    session.run_with_iobinding(binding)
    return y.array.copy()


def drawn(name: str, seed: int, number: int) -> tuple[np.random.Generator, Problem]:
    rng = np.random.default_rng([seed, number, *name.encode()])
    return rng, DRAWS[name](rng)


def check(name: str, seed: int, number: int, found: Found) -> None:
    """One problem: on each ISA, and with each fault that no problem has shown yet."""
    rng, problem = drawn(name, seed, number)
    expected, first, where = (
        np.ascontiguousarray(problem.defined(0)),
        None,
        f"{name}, seed {seed}, problem {number}",
    )
    for isa, threads in SESSIONS:
        session = prepared(problem.model, isa, threads)
        if expected.size == 0:
            continue
        computed = guarded(session, problem.feeds, expected.shape, bool(rng.integers(0, 2)))
        if not same(computed, expected):
            found.differences.append(
                f"{where}: {isa or 'this CPU'}, {threads} threads: {np.sum(computed != expected)} values"
            )
        first = computed if first is None else first
        if name == "Softmax" and not same(computed, first, also_nans=True):
            found.differences.append(f"{where}: {isa or 'this CPU'}, {threads} threads: bits of NaNs")
    found.problems += 1
    found.values += expected.size
    for fault in problem.faults:
        key = f"{name}: {fault}"
        found.faults[key] = found.faults.get(key, False) or not same(
            np.ascontiguousarray(problem.defined(1 + FAULTS.index(fault))), expected
        )


def sweep(name: str, count: int, seed: int) -> Found:
    found = Found()
    for number in range(count):
        check(name, seed, number, found)
    return found


def judge(found: Found) -> None:
    assert not found.differences, f"{len(found.differences)} of {found.problems}: {found.differences[:5]}"
    missed = [fault for fault, is_shown in found.faults.items() if not is_shown]
    assert found.faults and not missed, f"{found.problems} problems do not show: {missed}"


@pytest.mark.parametrize(
    "name, count",
    [
        ("Softmax", 300),
        ("MatMul", 100),
        ("reduction", 150),
        ("Conv", 60),
        ("ConvTranspose", 50),
        ("Conv of a line", 40),
        ("pool", 80),
        ("functions", 80),
        ("sum of the last axis", 60),
    ],
)
def test_float_operators_are_as_defined(name, count):
    judge(sweep(name, count, 0))


@pytest.mark.long
@pytest.mark.parametrize(
    "name, count",
    [
        ("Softmax", 8000),
        ("MatMul", 2000),
        ("reduction", 4000),
        ("Conv", 2000),
        ("ConvTranspose", 2000),
        ("Conv of a line", 2000),
        ("pool", 2000),
        ("functions", 3000),
        ("sum of the last axis", 3000),
    ],
)
def test_float_operators_are_as_defined_in_many_problems(name, count):
    judge(sweep(name, count, 1))


def logarithms(first: int, step: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    own, of_library = np.empty(count, np.float32), np.empty(count, np.float32)
    reference().intact_logarithms(
        ctypes.c_uint32(first), ctypes.c_uint32(step), ctypes.c_int64(count), place(own), place(of_library)
    )
    return own, of_library


def check_logarithms(first: int, step: int, count: int) -> None:
    own, of_library = logarithms(first, step, count)
    x = (np.uint32(first) + np.arange(count, dtype=np.uint32) * np.uint32(step)).view(np.float32)
    with np.errstate(all="ignore"):
        exact = np.log(x.astype(np.float64))
        rounded = exact.astype(np.float32)
    is_finite = np.isfinite(exact)
    assert same(own[~is_finite], rounded[~is_finite])
    assert np.all(
        np.abs(own[is_finite] - exact[is_finite])
        <= 0.82 * np.spacing(np.abs(rounded[is_finite])).astype(np.float64)
    )
    name, version = os.confstr("CS_GNU_LIBC_VERSION").split()
    if name == "glibc" and tuple(map(int, version.split("."))) >= (2, 28):
        assert same(own, of_library)


def test_the_logarithm_of_log_softmax():
    check_logarithms(0, 4093, 2**32 // 4093)


@pytest.mark.long
def test_the_logarithm_of_each_float():
    for first in range(0, 2**32, 2**25):
        check_logarithms(first, 1, 2**25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="problems of each operator")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--op", choices=list(DRAWS), action="append")
    options = parser.parse_args()
    for name in options.op or DRAWS:
        found = sweep(name, options.count, options.seed)
        print(
            f"{name}: {found.problems} problems, {found.values} values, {len(found.differences)} differences, "
            f"{sum(found.faults.values())} of {len(found.faults)} faults shown",
            *found.differences[:20],
            sep="\n",
            flush=True,
        )
        judge(found)


if __name__ == "__main__":
    main()
