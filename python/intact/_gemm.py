"""Products of matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._library import ARGUMENTS, DTYPES, Linear, array_of, ffi, integer, invalid, lib
from ._plan import Call, Certificate, Plan, Tuned, nothing, pointer, row_strides


_ARGS_SIZE = ffi.sizeof("intact_gemm_args")


class FailingPair(NamedTuple):
    """Weights w0, w1 of depths k, k + 1 of column n that can saturate, and activations a0, a1 that show it: the
    instruction adds up to `sum`, which is outside int16. Weights and activations are as the instruction sees them."""

    k: int
    n: int
    w0: int
    w1: int
    a0: int
    a1: int
    sum: int


def type_name(argument: str, array: np.ndarray, names: tuple) -> str:
    for name in names:
        if array.dtype == DTYPES[name]:
            return name
    raise invalid(f"{argument}: has dtype {array.dtype}; expected " + " or ".join(str(DTYPES[name]) for name in names))


class Gemm(Plan):
    __doc__ = """A product C = A·B with constant weights B, exact on every CPU.

    `b` is K×N, int8 or uint8; any strides are taken as they are (`weights.T` of N×K weights is not copied), and the
    plan keeps a packed copy. Other arguments:

""" + ARGUMENTS + """    - `usual_m`: expected rows of a run, 0 if unknown.

    Raises `intact.Error`. Any number of threads may run one plan at once."""

    _kind = "gemm"

    def __init__(self, b: Any, *, usual_m: int = 0, **linear: Any):
        b = array_of("b", b)
        if b.ndim != 2:
            raise invalid(f"b: has {b.ndim} dimensions; expected 2, K×N")
        arithmetic = Linear(b_type=type_name("b", b, ("s8", "u8")), **linear)
        desc = ffi.new("intact_gemm_desc *")
        desc.struct_size = ffi.sizeof(desc[0])
        desc.k, desc.n = b.shape
        arithmetic.check_columns(desc.n)
        if any(stride <= 0 for stride in b.strides):  # reversed, or broadcast
            b = np.ascontiguousarray(b)
        desc.b_stride_k, desc.b_stride_n = b.strides
        # The strides of a dimension of 1 mean nothing to NumPy.
        if desc.k == 1:
            desc.b_stride_k = desc.b_stride_n * desc.n
        if desc.n == 1:
            desc.b_stride_n = desc.b_stride_k * desc.k
        desc.usual_m = integer("usual_m", usual_m)
        handle = ffi.new("intact_gemm **")
        self._call("create", desc, arithmetic.desc, pointer(b), handle)
        super().__init__(handle[0])

    def _describe(self, info: Any) -> None:
        self.k, self.n = info.k, info.n

    def bind(self, a: Any, out: Any = None, *, residual: Any = None, a_scales: Any = None, a_zero_points: Any = None,
             threads: int = 0) -> Call:
        """A run with these arrays, to be called again and again. Arguments are those of run()."""
        a = self._input("a", a, self.a_dtype, (2, 3))
        if a.shape[-1] != self.k:
            raise invalid(f"a: has {a.shape[-1]} columns; expected {self.k}")
        out = self._output(out, a.shape[:-1] + (self.n,), self.c_dtype)
        if out.size == 0:
            return Call(nothing, self, None, (), out)
        args = ffi.new("intact_gemm_args *")
        args.struct_size = _ARGS_SIZE
        kept = [a, out]
        self._place("a", a, args)
        self._place("c", out, args)
        if residual is not None:
            residual = self._residual(residual, out.shape)
            self._place("residual", residual, args)
            kept.append(residual)
        args.m = a.shape[-2]
        if a.ndim == 3:
            args.batch = a.shape[0]
        args.threads = integer("threads", threads)
        kept += self._quantize(args, a_scales, a_zero_points, out.size // self.n)
        return Call(lib.intact_gemm_run, self, args, tuple(kept), out)

    @staticmethod
    def _place(name: str, array: np.ndarray, args: Any) -> None:
        setattr(args, name, pointer(array))
        if array.flags.c_contiguous:
            return  # strides of 0 are those of dense arrays
        strides = row_strides(name, array)
        if array.shape[-2] > 1:
            setattr(args, name + "_stride", strides[-1])
        if array.ndim == 3 and array.shape[0] > 1:
            setattr(args, name + "_batch_stride", strides[0])

    def run(self, a: Any, out: Any = None, *, residual: Any = None, a_scales: Any = None, a_zero_points: Any = None,
            threads: int = 0) -> np.ndarray:
        """The product of `a`, (M, K) or (items, M, K), in a new array, or in `out`. Rows may have any stride; nothing is
        copied. `threads`: 0 is OpenMP's default. `a_scales` (float32), `a_zero_points` (int32): arrays of a
        value for each row of `a`, or one value where the plan's quantization is "tensor"."""
        return self.bind(a, out, residual=residual, a_scales=a_scales, a_zero_points=a_zero_points, threads=threads)()

    def tune(self, m: int, *, milliseconds: float = 0.0) -> Tuned:
        """Times the kernels for `m` rows, for at most about `milliseconds` (0: the default), and keeps the fastest. No
        other call may use the plan meanwhile."""
        info = self._tune_info()
        self._call("tune", self.handle, m, milliseconds, info)
        return self._tuned(info)

    def certificate(self) -> Certificate:
        """Which weights can make VPMADDUBSW saturate: pairs of depths (k, k + 1), k even."""
        return self._certificate()

    def failing_pairs(self, first: int = 0, count: int | None = None) -> list[FailingPair]:
        """The pairs that can saturate, by column, then depth, from number `first` on; all, or at most `count`."""
        return [FailingPair(*pair) for pair in self._failing_pairs(first, count).tolist()]

    def failing_pair_array(self) -> np.ndarray:
        """All of them, as a structured array with the fields of `FailingPair`."""
        return self._failing_pairs(0, None)
