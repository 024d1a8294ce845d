"""Runs the problems that python_target.so sends, in a Python class that the user wrote."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ._library import DTYPES, TYPE_NAMES, ffi, lib
from ._plans.grouped_weights import GroupedWeights

_MESSAGE = 256  # INTACT_TARGET_MESSAGE_BYTES
# Features that a Python class cannot support: it gets dense tensors of one item, one expert and one
# thread, without minimums.
_NOT_HERE = set(
    """STRIDES B_LAYOUTS RUNTIME_B BATCH BATCH_POINTERS RESIDUAL_IN_PLACE THREADS DYNAMIC_TENSOR
    TENSOR_QUANTIZATION FIXED_POINT LOOKUP_TABLE EMPTY A_TRANSPOSED ITEM_COLUMNS EXPERTS B_MINIMUMS""".split()
)
FEATURES = {
    name.removeprefix("INTACT_TARGET_").lower(): getattr(lib, name)
    for name in dir(lib)
    if name.startswith("INTACT_TARGET_")
    and name.removeprefix("INTACT_TARGET_") not in _NOT_HERE | {"FEATURES"}
}
# Features of classes with grouped weights only: GEMMs and convolutions get 8-bit activations with one zero
# point.
_ONLY_GROUPED = {"row_quantization", "dynamic_rows", "dynamic_f16", "dynamic_nan"}


@dataclass
class Arithmetic:
    """From the sums to the outputs; fields are named as `Gemm`'s arguments. Arrays are read-only."""

    a_type: str
    b_type: str
    c_type: str
    a_zero_point: int
    b_zero_points: np.ndarray | None
    c_zero_point: int
    bias: np.ndarray | None  # int32: added to the sums; float32: to the scaled sums
    scales: np.ndarray | None
    activation: str | None  # None, "relu" or "clamp"
    clamp: tuple[float, float]
    residual: np.ndarray | None
    residual_scale: float
    residual_zero_point: int

    @property
    def c_dtype(self) -> np.dtype:
        return DTYPES[self.c_type]


@dataclass
class GemmProblem(Arithmetic):
    """C = A·B: `a` is (M, K), `b` (K, N); the answer is (M, N) of `c_dtype`."""

    a: np.ndarray
    b: np.ndarray


@dataclass
class ConvProblem(Arithmetic):
    """`a` is (batch, *extents, I), `weights` (O, *kernel, I/groups); the answer (batch, *output, O) of
    `c_dtype`."""

    a: np.ndarray
    weights: np.ndarray
    output: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    groups: int
    transposed: bool
    output_padding: tuple[int, ...]


@dataclass
class GroupedProblem:
    """A product with grouped weights (intact/grouped.h); the answer is (M, N) of `c_dtype`. `a` is (M, K):
    floats, which the class quantizes to `a_type`; or 8-bit integers with `a_scales` and `a_zero_points`.
    `granularity`: "rows" or "groups", what has a scale in A. `weights.b` has rows of K bytes, or ⌈K/2⌉ with 4
    bits. `clamp` counts if `activation` is "clamp"."""

    a: np.ndarray
    a_type: str
    granularity: str
    a_scales: np.ndarray | None  # (M,) or (M, groups)
    a_zero_points: np.ndarray | None
    weights: GroupedWeights
    activation: str | None  # None, "relu" or "clamp"
    clamp: tuple[float, float]
    c_type: str

    @property
    def c_dtype(self) -> np.dtype:
        return DTYPES[self.c_type]


class _Pipe:
    def __init__(self, requests: BinaryIO):
        self.requests = requests

    def bytes(self, size: int) -> bytes:
        data = self.requests.read(size)
        if len(data) != size:
            raise EOFError
        return data

    def number(self) -> int:
        return int.from_bytes(self.bytes(8), "little", signed=True)

    def struct(self, name: str) -> Any:
        data = self.bytes(ffi.sizeof(name))
        return ffi.from_buffer(f"{name} *", data)

    def array(self, dtype: Any) -> np.ndarray | None:
        size = self.number()
        return np.frombuffer(self.bytes(size), dtype) if size else None


_ACTIVATIONS = {
    lib.INTACT_ACTIVATION_NONE: None,
    lib.INTACT_ACTIVATION_RELU: "relu",
    lib.INTACT_ACTIVATION_CLAMP: "clamp",
}


def _linear(pipe: _Pipe) -> tuple[Any, dict]:
    linear = pipe.struct("intact_linear_desc")
    names = [TYPE_NAMES[t] for t in (linear.a_type, linear.b_type, linear.c_type)]
    b_zero_points, bias_s32, bias_f32, scales = (
        pipe.array(t) for t in (np.int32, np.int32, np.float32, np.float32)
    )
    return linear, {
        "a_type": names[0],
        "b_type": names[1],
        "c_type": names[2],
        "a_zero_point": linear.a_zero_point,
        "b_zero_points": b_zero_points,
        "c_zero_point": linear.c_zero_point,
        "bias": bias_s32 if bias_s32 is not None else bias_f32,
        "scales": scales,
        "activation": _ACTIVATIONS[linear.activation],
        "clamp": (linear.clamp_min, linear.clamp_max),
        "residual_scale": linear.residual_scale,
        "residual_zero_point": linear.residual_zero_point,
    }


def _tensors(pipe: _Pipe, linear: Any, fields: dict) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    a, b = pipe.array(DTYPES[fields["a_type"]]), pipe.array(DTYPES[fields["b_type"]])
    name = TYPE_NAMES[linear.residual_type]
    return a, b, pipe.array(DTYPES[name] if name else np.uint8)


def _gemm(pipe: _Pipe) -> tuple[GemmProblem, tuple]:
    desc, args = pipe.struct("intact_gemm_desc"), pipe.struct("intact_gemm_args")
    linear, fields = _linear(pipe)
    a, b, residual = _tensors(pipe, linear, fields)
    shape = (args.m, desc.n)
    if residual is not None:
        residual = residual.reshape(shape)
    return GemmProblem(
        **fields, residual=residual, a=a.reshape(args.m, desc.k), b=b.reshape(desc.k, desc.n)
    ), shape


def _conv(pipe: _Pipe) -> tuple[ConvProblem, tuple]:
    desc, args = pipe.struct("intact_conv_desc"), pipe.struct("intact_conv_args")
    linear, fields = _linear(pipe)
    a, weights, residual = _tensors(pipe, linear, fields)
    dims = range(desc.spatial_dims)

    def each(field: Any, least: int) -> tuple:
        return tuple(max(field[i], least) for i in dims)

    kernel = each(desc.kernel, 1)
    stride = each(desc.stride, 1)
    dilation = each(desc.dilation, 1)
    groups = max(desc.groups, 1)
    padding = tuple((desc.pad_begin[i], desc.pad_end[i]) for i in dims)
    output = tuple(args.output[i] for i in dims)
    shape = (args.batch, *output, desc.output_channels)
    return ConvProblem(
        **fields,
        residual=None if residual is None else residual.reshape(shape),
        a=a.reshape(args.batch, *(desc.input[i] for i in dims), desc.input_channels),
        weights=weights.reshape(desc.output_channels, *kernel, desc.input_channels // groups),
        output=output,
        stride=stride,
        dilation=dilation,
        padding=padding,
        groups=groups,
        transposed=bool(desc.transposed),
        output_padding=each(desc.output_pad, 0),
    ), shape


def _grouped(pipe: _Pipe) -> tuple[GroupedProblem, tuple]:
    desc, args = pipe.struct("intact_grouped_desc"), pipe.struct("intact_grouped_args")
    m, n, k = args.m, desc.n, desc.k
    groups = -(-k // desc.group) if desc.group else 1
    b_type = {lib.INTACT_S4: "s4", lib.INTACT_U4: "u4"}.get(desc.b_type) or TYPE_NAMES[desc.b_type]
    signed = np.int8 if b_type.startswith("s") else np.uint8
    a = pipe.array(DTYPES[TYPE_NAMES[desc.a_source_type or desc.a_type]]).reshape(m, k)
    by_groups = desc.a_granularity == lib.INTACT_GRANULARITY_GROUPS

    def shaped(values: np.ndarray | None, shape: tuple) -> np.ndarray | None:
        return None if values is None else values.reshape(shape)

    rows = (m, groups) if by_groups else (m,)
    a_scales, a_zero_points = shaped(pipe.array(np.float32), rows), shaped(pipe.array(np.int32), rows)
    b = pipe.array(signed if b_type.endswith("8") else np.uint8).reshape(n, -1)
    scales = pipe.array(DTYPES[TYPE_NAMES[desc.scale_type]]).reshape(n, groups)
    points = shaped(pipe.array(signed), (n, groups))
    weights = GroupedWeights(b, scales, k, desc.group or k, b_type, points, pipe.array(np.float32))
    return GroupedProblem(
        a,
        TYPE_NAMES[desc.a_type],
        "groups" if by_groups else "rows",
        a_scales,
        a_zero_points,
        weights,
        _ACTIVATIONS[desc.activation],
        (desc.clamp_min, desc.clamp_max),
        TYPE_NAMES[desc.c_type],
    ), (m, n)


def _text(words: str) -> bytes:
    return words.replace("\n", " ").encode()[: _MESSAGE - 1].ljust(_MESSAGE, b"\0")


def _status(status: int, words: str = "") -> bytes:
    return status.to_bytes(8, "little") + _text(words)


def load(file: str, name: str) -> Any:
    """Imports a file and makes an object of a class in it."""
    path = Path(file)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"{file}: no such Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    made = getattr(module, name, None)
    if made is None:
        raise ValueError(f"{file}: has no class {name}")
    return made()


def _mask(names: list[str]) -> bytes:
    """The features of GEMMs, convolutions or grouped weights, as a mask of intact_target."""
    mask = 0
    for name in names:
        if name not in FEATURES:
            raise ValueError(f"supports: {name!r} is unknown; expected some of: {', '.join(FEATURES)}")
        mask |= 1 << FEATURES[name]
    others = [name for name in names if name in _ONLY_GROUPED]
    if others and any(name == "gemm" or name.startswith("conv_") for name in names):
        raise ValueError(
            f"supports: {others[0]!r} is for grouped weights; expected it in grouped_supports, or a class without "
            "GEMMs and convolutions"
        )
    return mask.to_bytes(8, "little")


def introduction(target: Any) -> bytes:
    masks = [_mask(getattr(target, name, [])) for name in ("supports", "conv_supports", "grouped_supports")]
    named, claim = getattr(target, "name", type(target).__name__), getattr(target, "arithmetic", "exact")
    return _status(lib.INTACT_OK) + b"".join(masks) + _text(named) + _text(claim)


def answer(target: Any, pipe: _Pipe) -> bytes:
    kind = pipe.number()
    problem, shape = (_gemm, _conv, _grouped)[kind](pipe)
    try:
        c = np.asarray(getattr(target, ("gemm", "conv", "grouped")[kind])(problem))
    except NotImplementedError as error:
        return _status(lib.INTACT_UNSUPPORTED, str(error))
    except Exception as error:  # any other exception of the user's class is a finding
        return _status(lib.INTACT_CODEGEN_FAILED, f"{type(error).__name__}: {error}")
    if c.shape != shape or c.dtype != problem.c_dtype:
        return _status(
            lib.INTACT_CODEGEN_FAILED,
            f"returned shape {c.shape} of {c.dtype}; expected {shape} of {problem.c_dtype}",
        )
    return _status(lib.INTACT_OK) + np.ascontiguousarray(c).tobytes()


def main() -> None:
    """Arguments: the file and the name of the class."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the class may print; its output must not mix with replies
    try:
        target = load(*sys.argv[1:3])
        first = introduction(target)
    except Exception as error:  # the plug-in reports it
        first, target = _status(lib.INTACT_INVALID_ARGUMENT, f"{type(error).__name__}: {error}"), None
    replies.write(first)
    replies.flush()
    pipe = _Pipe(sys.stdin.buffer)
    while target is not None:
        try:
            reply = answer(target, pipe)
        except EOFError:
            return
        replies.write(reply)
        replies.flush()
