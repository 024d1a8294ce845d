"""Weights with a scale for each group of depths, as intact_grouped_create() reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._library import address, array_of, choice, counted, ffi, integer, invalid, lib, numbers, type_of
from .gemm import type_name

GROUPS = (16, 32, 64, 128, 256)
_B_TYPES = {"u4": lib.INTACT_U4, "s4": lib.INTACT_S4, "u8": lib.INTACT_U8, "s8": lib.INTACT_S8}


@dataclass
class GroupedWeights:
    """Weights B (K×N) of a product A·B, as intact_grouped_create() reads them (intact/grouped.h).

    - `b`: N rows, one for each column of B. "s8": int8; "u8": uint8; "u4" and "s4": uint8, the even depth in
      the low four bits of a byte. A row may be longer than `k`.
    - `scales`: N×groups, float32, float16 or bfloat16.
    - `k`: the depth; needed for weights of 4 bits. `group`: 16, 32, 64, 128 or 256, or 0 for one group of all
      depths.
    - `b_type`: by default "s8" for int8, else "u4".
    - `zero_points`: N×groups, integers of `b_type`; None: 0 for signed weights, 128 for "u8", 8 for "u4".
    - `bias`: N numbers, or None.
    - `minimums`: N×groups, float32, which are added to the weights; zero points are then 0. Or None."""

    b: np.ndarray
    scales: np.ndarray
    k: int | None = None
    group: int = 32
    b_type: str | None = None
    zero_points: np.ndarray | None = None
    bias: np.ndarray | None = None
    minimums: np.ndarray | None = None

    def __post_init__(self) -> None:
        self.b = array_of("weights", self.b)
        if self.b.ndim != 2:
            raise invalid(f"weights: has {self.b.ndim} dimensions; expected 2, a row for each column of B")
        if self.b_type is None:
            self.b_type = "s8" if self.b.dtype == np.int8 else "u4"
        if self.k is None and self.is_packed:
            raise invalid("k: is not given; expected the depth, because weights of 4 bits share bytes")
        self.k = self.b.shape[-1] if self.k is None else integer("k", self.k)

    @property
    def is_packed(self) -> bool:
        """Whether two weights share a byte."""
        return str(self.b_type).endswith("4")

    def checked(self) -> GroupedWeights:
        """These weights as dense arrays of the types that the C interface reads."""
        choice("b_type", self.b_type, _B_TYPES)
        signed = self.b_type.startswith("s")
        dtype = np.dtype(np.int8 if self.b_type == "s8" else np.uint8)
        row = (self.k + 1) // 2 if self.is_packed else self.k
        if self.b.dtype != dtype:
            raise invalid(f"weights: has dtype {self.b.dtype}; expected {dtype} for b_type={self.b_type!r}")
        if self.b.shape[1] < row:
            raise invalid(
                f"weights: has rows of {self.b.shape[1]} bytes; expected at least {row} for k={self.k}"
            )
        group = integer("group", self.group)
        shape = self.n, 1 if group <= 0 else -(-self.k // group)
        scales = array_of("scales", self.scales)
        type_name("scales", scales, ("f32", "f16", "bf16"))
        points, minimums, bias = self.zero_points, self.minimums, self.bias
        if points is not None:
            points = _integers("zero_points", points, shape, np.int8 if signed else np.uint8)
        if minimums is not None:
            minimums = np.ascontiguousarray(array_of("minimums", minimums), np.float32)
        for name, values in (("scales", scales), ("minimums", minimums)):
            if values is not None:
                _check_shape(name, values, shape)
        if bias is not None:
            bias = np.ascontiguousarray(numbers("bias", bias), np.float32)
            if bias.size != self.n:
                raise invalid(
                    f"bias: has {counted(bias.size, 'value')}; expected {self.n}, one for each column"
                )
        b, scales = np.ascontiguousarray(self.b[:, :row]), np.ascontiguousarray(scales)
        return GroupedWeights(b, scales, self.k, group, self.b_type, points, bias, minimums)

    @property
    def n(self) -> int:
        return len(self.b)

    def stored(self) -> np.ndarray:
        """The weights: N×K, int16."""
        b = self.b
        if self.is_packed:
            b = nibbles(b)
        b = b[:, : self.k].astype(np.int16)
        return (b ^ 8) - 8 if self.b_type == "s4" else b

    def integers(self) -> np.ndarray:
        """The weights minus their zero points: N×K, int16."""
        b = self.stored()
        if self.minimums is not None:
            return b
        if self.zero_points is None:
            return b - np.int16({"u8": 128, "u4": 8}.get(self.b_type, 0))
        return b - self._of_depths(self.zero_points.astype(np.int16))

    def values(self) -> np.ndarray:
        """The real numbers that the weights represent: N×K, float32."""
        values = self.integers() * self._of_depths(self.scales.astype(np.float32))
        return values if self.minimums is None else values + self._of_depths(self.minimums)

    def _of_depths(self, values: np.ndarray) -> np.ndarray:
        """Values of groups, repeated for each depth: N×K."""
        return np.repeat(values, self.group or self.k, 1)[:, : self.k]


def described(weights: GroupedWeights | Sequence[GroupedWeights]) -> tuple[Any, np.ndarray, list]:
    """A new intact_grouped_desc of the weights of one or several experts, their matrices B, and the arrays that
    the descriptor points to."""
    one = isinstance(weights, GroupedWeights) or not isinstance(weights, (list, tuple))
    experts = [weights_of(expert).checked() for expert in ([weights] if one else weights)]
    if not experts:
        raise invalid("weights: is empty; expected the weights of at least one expert")
    first = experts[0]
    for i, expert in enumerate(experts):
        for name in ("n", "k", "group", "b_type"):
            if getattr(expert, name) != getattr(first, name):
                raise invalid(
                    f"weights: {name} of expert {i} is {getattr(expert, name)!r}; expected "
                    f"{getattr(first, name)!r}, as of expert 0"
                )

    def stacked(name: str) -> np.ndarray | None:
        values = [getattr(expert, name) for expert in experts]
        if any((value is None) != (values[0] is None) for value in values):
            raise invalid(
                f"weights: some experts have {name}, others have none; expected them of all experts or of none"
            )
        return values[0] if one or values[0] is None else np.stack(values)

    desc = ffi.new("intact_grouped_desc *")
    desc.struct_size = ffi.sizeof(desc[0])
    desc.n, desc.k, desc.group, desc.experts = first.n, first.k, first.group, len(experts)
    desc.b_type, scales = _B_TYPES[first.b_type], stacked("scales")
    desc.scale_type = type_of("scales", type_name("scales", scales, ("f32", "f16", "bf16")))
    kept = [scales]
    desc.b_scales = ffi.cast("void *", address(scales))
    for name, field, kind in (
        ("zero_points", "b_zero_points", "void *"),
        ("minimums", "b_minimums", "float *"),
        ("bias", "bias_f32", "float *"),
    ):
        values = stacked(name)
        if values is not None:
            setattr(desc, field, ffi.cast(kind, address(values)))
            kept.append(values)
    return desc, stacked("b"), kept


def weights_of(value: Any) -> GroupedWeights:
    if not isinstance(value, GroupedWeights):
        raise invalid(
            f"weights: is a {type(value).__name__}; expected GroupedWeights, or for experts a list of them"
        )
    return value


def _check_shape(argument: str, values: np.ndarray, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise invalid(
            f"{argument}: has shape {values.shape}; expected {shape}, a value for each column and group"
        )


def _integers(argument: str, values: Any, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """The values as a new array of `dtype`."""
    try:
        given = np.asarray(values)
    except ValueError:
        raise invalid(
            f"{argument}: is not an array of numbers; expected {'×'.join(map(str, shape))} integers"
        ) from None
    if given.dtype.kind not in "iuf":
        raise invalid(f"{argument}: has dtype {given.dtype}; expected {'×'.join(map(str, shape))} integers")
    _check_shape(argument, given, shape)
    bounds = np.iinfo(dtype)
    wrong = given[~((given >= bounds.min) & (given <= bounds.max) & (np.rint(given) == given))]
    if wrong.size:
        raise invalid(
            f"{argument}: has a value of {wrong[0]}; expected integers from {bounds.min} to {bounds.max}"
        )
    return np.array(given, dtype, order="C")


def nibbles(rows: np.ndarray) -> np.ndarray:
    """The numbers of 4 bits in rows of bytes, low bits first."""
    return np.stack([rows & 15, rows >> 4], 2).reshape(len(rows), -1)


def nbits(
    b: np.ndarray, scales: np.ndarray, zero_points: np.ndarray | None, k: int, bits: int, group: int
) -> GroupedWeights:
    """Weights of MatMulNBits from its inputs. Zero points are uint8, with 4 bits two in a byte, or whole
    numbers, one for each group."""
    if bits not in (4, 8):
        raise invalid(f"bits: is {bits!r}; expected 4 or 8")
    if group not in GROUPS:
        raise invalid(f"block_size: is {group!r}; expected 16, 32, 64, 128 or 256")
    groups, n = -(-k // group), len(b)

    def sized(name: str, array: np.ndarray, dtypes: tuple, row: int) -> np.ndarray:
        if array.dtype not in dtypes or array.size != n * row:
            raise invalid(
                f"{name}: has {array.size} elements of dtype {array.dtype}; expected {n}×{row} of "
                + " or ".join(str(np.dtype(dtype)) for dtype in dtypes)
            )
        return array.reshape(n, row)

    b = sized("B", b, (np.uint8,), groups * group * bits // 8)
    scales = sized("scales", scales, (np.float32, np.float16), groups)
    packed = (groups * bits + 7) // 8
    if (
        zero_points is not None
        and bits == 4
        and zero_points.dtype == np.uint8
        and zero_points.size == n * packed
    ):
        points = zero_points.reshape(n, packed)
        zero_points = nibbles(points)[:, :groups]  # low bits: the even group
    elif zero_points is not None:
        points = sized("zero_points", zero_points, (np.uint8, np.float32, np.float16), groups)
        if np.any(points != np.clip(np.rint(points), 0, 2**bits - 1)):
            raise invalid(f"zero_points: has a value that is no whole number from 0 to {2**bits - 1}")
        zero_points = points.astype(np.uint8)
    return GroupedWeights(b, scales, k, group, f"u{bits}", zero_points)
