"""Products with weights that have a scale for each group of depths."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._grouped_weights import GroupedWeights
from ._library import _ACTIVATIONS, DTYPES, address, check, choice, ffi, integer, invalid, isa_of, lib, text, type_of
from ._plan import FLOAT32, INT32, Call, Plan, pointer, row_strides

_B_TYPES = {"s8": lib.INTACT_S8, "u8": lib.INTACT_U8, "u4": lib.INTACT_U4}
_GRANULARITIES = {"rows": lib.INTACT_GRANULARITY_ROWS, "groups": lib.INTACT_GRANULARITY_GROUPS}
_SCALE_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float16): "f16"}


class GroupedInfo(NamedTuple):
    """What a plan uses: the instruction set, the kernel's name, and the bytes of the packed weights with their scales."""

    isa: str
    kernel: str
    packed_bytes: int


class Grouped:
    """A product C = A·B with constant `weights` B in groups. The bytes are the same on every CPU (intact/grouped.h).

    - `a_source_type` "f32", "bf16" or "f16": each run quantizes A to `a_type`, "s8" or "u8". None: A is of `a_type`, and runs pass
      `a_scales` and `a_zero_points`.
    - `granularity`: the elements of A that share a scale: those of a row ("rows"), or those of a group of a row ("groups").
    - `c_type`: "f32", "bf16" or "f16". `activation="relu"`. `max_isa`: a cap, one of `intact.isas()`.

    Raises `intact.Error`. Any number of threads may run one plan at once."""

    def __init__(self, weights: GroupedWeights, *, a_source_type: str | None = "f32", a_type: str = "s8", granularity: str = "groups",
                 c_type: str = "f32", activation: str | None = None, max_isa: str | None = None):
        desc = ffi.new("intact_grouped_desc *")
        desc.struct_size = ffi.sizeof(desc[0])
        self.n, self.k = desc.n, desc.k = weights.n, weights.k
        desc.group = weights.group
        groups = -(-weights.k // weights.group)
        desc.a_source_type, desc.a_type = type_of("a_source_type", a_source_type), type_of("a_type", a_type)
        desc.a_granularity = choice("granularity", granularity, _GRANULARITIES)
        desc.b_type = choice("weights.b_type", weights.b_type, _B_TYPES)
        bytes_of_column = (weights.k + 1) // 2 if weights.b_type == "u4" else weights.k
        b = self._array("b", weights.b, (np.int8 if weights.b_type == "s8" else np.uint8,), (self.n, weights.b.shape[-1]))
        if b.shape[1] < bytes_of_column:
            raise invalid(f"weights.b: has rows of {b.shape[1]} bytes; expected {bytes_of_column} or more")
        desc.b_stride_n = b.shape[1]
        scales = self._array("scales", weights.scales, tuple(_SCALE_TYPES), (self.n, groups))
        desc.b_scales, desc.scale_type = pointer(scales), type_of("scales", _SCALE_TYPES[scales.dtype])
        points_type = np.int8 if weights.b_type == "s8" else np.uint8
        points = self._array("zero_points", weights.zero_points, (points_type,), (self.n, groups))
        if points is not None:
            desc.b_zero_points = pointer(points)
        bias = self._array("bias", weights.bias, (np.float32,), (self.n,))
        if bias is not None:
            desc.bias_f32 = ffi.cast("float *", address(bias))
        desc.c_type, desc.activation = type_of("c_type", c_type), choice("activation", activation, _ACTIVATIONS)
        desc.max_isa = isa_of(max_isa)
        handle = ffi.new("intact_grouped **")
        check(lib.intact_grouped_create(desc, pointer(b), handle))
        self.handle = ffi.gc(handle[0], lib.intact_grouped_destroy)
        self.a_dtype, self.c_dtype = DTYPES[a_source_type or a_type], DTYPES[c_type]
        self._scales_of_row = None if a_source_type else groups if granularity == "groups" else 1

    @staticmethod
    def _array(name: str, array: np.ndarray | None, dtypes: tuple, shape: tuple) -> np.ndarray | None:
        if array is None:
            return None
        if array.dtype not in dtypes or array.shape != shape:
            raise invalid(f"weights.{name}: has shape {array.shape} and dtype {array.dtype}; expected {shape} and "
                          + " or ".join(str(np.dtype(dtype)) for dtype in dtypes))
        return np.ascontiguousarray(array)

    @property
    def info(self) -> GroupedInfo:
        """The plan's instruction set, kernel and size."""
        info = ffi.new("intact_grouped_info *")
        info.struct_size = ffi.sizeof(info[0])
        check(lib.intact_grouped_query(self.handle, info))
        return GroupedInfo(text(lib.intact_isa_name(info.isa)), text(info.kernel), info.packed_bytes)

    def bind(self, a: Any, out: Any = None, *, a_scales: Any = None, a_zero_points: Any = None, threads: int = 0) -> Call:
        """A `Call` with these arrays, to be called many times. Takes the arguments of run()."""
        a = Plan._input("a", a, self.a_dtype, 2)
        if a.shape[1] != self.k:
            raise invalid(f"a: has {a.shape[1]} columns; expected {self.k}")
        out = Plan._output(out, (len(a), self.n), self.c_dtype)
        args = ffi.new("intact_grouped_args *")
        args.struct_size = ffi.sizeof(args[0])
        args.m, args.a, args.c, args.threads = len(a), pointer(a), pointer(out), integer("threads", threads)
        args.a_stride, args.c_stride = row_strides("a", a)[0], row_strides("out", out)[0]
        kept = [a, out]
        for name, values, dtype, kind in (("a_scales", a_scales, FLOAT32, "float *"),
                                          ("a_zero_points", a_zero_points, INT32, "int32_t *")):
            if values is None:
                continue
            if self._scales_of_row is None:
                raise invalid(f"{name}: is given; the plan has a_source_type, and runs quantize A")
            values = Plan._input(name, values, dtype, 2)
            if values.shape != (len(a), self._scales_of_row) or not values.flags.c_contiguous:
                raise invalid(f"{name}: has shape {values.shape}; expected a dense array of {(len(a), self._scales_of_row)}")
            setattr(args, name, ffi.cast(kind, pointer(values)))
            kept.append(values)
        return Call(lib.intact_grouped_run, self, args, tuple(kept), out)

    def run(self, a: Any, out: Any = None, *, a_scales: Any = None, a_zero_points: Any = None, threads: int = 0) -> np.ndarray:
        """Computes A·B in a new array, or in `out`. `a` is M×K; its rows may have any stride. Without `a_source_type`: `a_scales`
        (float32) and `a_zero_points` (int32) have the shape (M, 1), or (M, groups) with granularity "groups"."""
        return self.bind(a, out, a_scales=a_scales, a_zero_points=a_zero_points, threads=threads)()
