"""Products of matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._library import DTYPES, Linear, array_of, counted, ffi, integer, invalid, lib, takes_linear
from .plan import FLOAT32, INT32, Call, Certificate, Plan, Tuned, pointer, run_of

_ARGS_SIZE = ffi.sizeof("intact_gemm_args")


class FailingPair(NamedTuple):
    """A pair that can saturate: weights w0, w1 at depths k, k + 1 of column n, and activations a0, a1 for
    which the exact `sum` is outside int16. Weights and activations are as the instruction sees them: s8 and
    u8."""

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
    raise invalid(
        f"{argument}: has dtype {array.dtype}; expected " + " or ".join(str(DTYPES[name]) for name in names)
    )


def strides_of(b: np.ndarray) -> tuple:
    """Elements of `b` from depth to depth, and from column to column. For a dimension of extent 1, where
    NumPy's stride is arbitrary, returns the stride of a dense array."""
    (k, n), (stride_k, stride_n) = b.shape[-2:], b.strides[-2:]
    if k == 1:
        return n * (1 if n == 1 else stride_n), 1 if n == 1 else stride_n
    return stride_k, k * stride_k if n == 1 else stride_n


def is_transposed(a: np.ndarray) -> bool:
    """Whether the columns of `a` are dense in memory, but not its rows."""
    m, k = a.shape[-2:]
    return k > 1 and a.strides[-1] != a.itemsize and (m == 1 or a.strides[-2] == a.itemsize)


@takes_linear
class Gemm(Plan):
    """A product C = A·B with constant weights B, exact on every CPU.

    `b` is K×N, int8 or uint8, with any strides: `weights.T` of N×K weights needs no copy. The plan keeps a packed copy.
    Other arguments:

    {linear}
    - `usual_m`: expected rows of a run, 0 if unknown.
    - `runtime_b=True`: B is passed to each run. The plan keeps only the shape, dtype and strides of `b`, which every B must have.

    Raises `intact.Error`. Any number of threads may run one plan at once."""

    _kind = "gemm"

    _b_strides: tuple | None = None  # strides of a runtime B

    def __init__(self, b: Any, *, usual_m: int = 0, runtime_b: bool = False, **linear: Any):
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
        desc.b_stride_k, desc.b_stride_n = strides_of(b)
        desc.usual_m = integer("usual_m", usual_m)
        desc.runtime_b = bool(runtime_b)
        handle = ffi.new("intact_gemm **")
        self._call("create", desc, arithmetic.desc, ffi.NULL if runtime_b else pointer(b), handle)
        super().__init__(handle[0])
        if runtime_b:
            self._b_strides = strides_of(b)

    def _describe(self, info: Any) -> None:
        super()._describe(info)
        self.k, self.n = info.k, info.n

    def bind(
        self,
        a: Any,
        out: Any = None,
        *,
        residual: Any = None,
        a_scales: Any = None,
        a_zero_points: Any = None,
        b: Any = None,
        b_scales: Any = None,
        b_zero_points: Any = None,
        threads: int = 0,
    ) -> Call:
        """run() computes A·B in a new array, or in `out`. bind() returns a `Call`; each call of it computes
        A·B again. `a` has the shape (M, K) or (items, M, K). Rows of `a`, or columns of a transposed array
        (`x.T`), may have any stride; nothing is copied. `threads`: 0 is OpenMP's default. `a_scales`
        (float32) and `a_zero_points` (int32): a value for each row of `a`, or one value if the plan's
        quantization is "tensor". With `runtime_b`: `b` is (K, N) or (items, K, N); `b_scales` (float32) and
        `b_zero_points` (int32), of shape (items,) or (items, N), replace the scales and zero points of the
        plan. `b_zero_points` needs a plan that has `b_zero_points`."""
        a = self._input("a", a, self.a_dtype, (2, 3))
        if a.shape[-1] != self.k:
            raise invalid(f"a: has {counted(a.shape[-1], 'column')}; expected {self.k}")
        out = self._output(out, a.shape[:-1] + (self.n,), self.c_dtype)
        if (b is None) != (self._b_strides is None):
            raise invalid(
                "b: is not given; the plan has runtime_b"
                if b is None
                else "b: is given; the plan has no runtime_b"
            )
        args = ffi.new("intact_gemm_args *")
        args.struct_size = _ARGS_SIZE
        kept = [a, out]
        if is_transposed(a):
            args.a_transposed = 1
            self._place("a", a.swapaxes(-1, -2), args)
        else:
            self._place("a", a, args)
        self._place("c", out, args)
        if residual is not None:
            residual = self._residual(residual, out.shape)
            self._place("residual", residual, args)
            kept.append(residual)
        args.m = a.shape[-2]
        args.batch = a.shape[0] if a.ndim == 3 else 1
        args.threads = integer("threads", threads)
        if b is not None:
            kept.append(self._place_b(b, a.shape[:-2], args))
        for name, values, dtype, kind in (
            ("b_scale", b_scales, FLOAT32, "float *"),
            ("b_zero_point", b_zero_points, INT32, "int32_t *"),
        ):
            if values is not None:
                kept.append(self._place_b_values(name, values, dtype, kind, a.shape[:-2], args))
        kept += self._quantize(args, a_scales, a_zero_points, out.size // self.n)
        return Call(lib.intact_gemm_run, self, args, tuple(kept), out)

    def _place_b(self, b: Any, items: tuple, args: Any) -> np.ndarray:
        b = self._input("b", b, self.b_dtype, len(items) + 2)
        if b.shape != items + (self.k, self.n) or strides_of(b) != self._b_strides:
            raise invalid(
                f"b: has shape {b.shape} and strides {b.strides}; expected {items + (self.k, self.n)} with "
                f"strides {self._b_strides} within an item"
            )
        args.b = pointer(b)
        if items and items[0] > 1:
            if b.strides[0] <= 0:
                raise invalid(f"b: has a stride of {b.strides[0]} bytes; expected more than 0")
            args.b_batch_stride = b.strides[0]
        return b

    def _place_b_values(
        self, name: str, values: Any, dtype: np.dtype, kind: str, items: tuple, args: Any
    ) -> np.ndarray:
        values = self._input(name + "s", values, dtype, (1, 2))
        if not values.flags.c_contiguous:
            raise invalid(f"{name}s: is not contiguous")
        of_items, of_columns = items or (1,), items + (self.n,)
        if values.shape not in (of_items, of_columns):
            raise invalid(
                f"{name}s: has shape {values.shape}; expected {of_items}, or {of_columns} for a value per column"
            )
        setattr(args, name + "s", ffi.cast(kind, pointer(values)))
        setattr(args, name + "_count", 1 if values.shape == of_items else self.n)
        return values

    run = run_of(bind)

    def tune(self, m: int, *, milliseconds: float = 0.0) -> Tuned:
        """Times the kernels for `m` rows until `milliseconds` are spent, at least four runs each, and chooses
        the fastest. No other call may use the plan meanwhile."""
        info = self._tune_info()
        self._call("tune", self.handle, m, milliseconds, info)
        return self._tuned(info)

    def certificate(self) -> Certificate:
        """How many pairs of weights can make VPMADDUBSW saturate. Pairs are depths (k, k + 1), k even."""
        return self._certificate()

    def failing_pairs(self, first: int = 0, count: int | None = None) -> list[FailingPair]:
        """The pairs that can saturate, by column, then depth: from number `first` on, all or at most
        `count`."""
        return [FailingPair(*pair) for pair in self._failing_pairs(first, count).tolist()]

    def failing_pair_array(self) -> np.ndarray:
        """All failing pairs, as a structured array with the fields of `FailingPair`."""
        return self._failing_pairs(0, None)
