"""The base classes of plans, and their helpers."""

from __future__ import annotations

import inspect
import os
from typing import Any, Callable, NamedTuple

import numpy as np

from .._library import (
    DTYPES,
    TYPE_NAMES,
    address,
    array_of,
    check,
    counted,
    ffi,
    integer,
    invalid,
    isa_of,
    lib,
    numbers,
    text,
)

FLOAT32, INT32 = np.dtype(np.float32), np.dtype(np.int32)


class Certificate(NamedTuple):
    """How many pairs of weights can make VPMADDUBSW saturate, if activations are from `a_min` to `a_max`:
    `failing_pairs` of all `pairs`. 0 failing pairs prove that no pair can saturate. Accumulators are between
    `accumulator_min` and `accumulator_max`; these bounds exceed int32 if accumulators can wrap."""

    a_min: int
    a_max: int
    pairs: int
    failing_pairs: int
    worst_column: int
    worst_column_failing_pairs: int
    accumulator_min: int
    accumulator_max: int


class Info(NamedTuple):
    """What a plan uses: the instruction set, the main kernel's name, the bytes of the packed weights, and
    bounds of the sums."""

    isa: str
    kernel: str
    packed_bytes: int
    accumulator_min: int
    accumulator_max: int


class Tuned(NamedTuple):
    """`kernel`: tuning's choice, the fastest kernel unless the gain is too small. `model_kernel`: the cost
    model's choice. Times are microseconds of one run."""

    kernel: str
    microseconds: float
    model_kernel: str
    model_microseconds: float


class Call:
    """A run. The object keeps the checked arguments. Each call computes the output from what the arrays hold
    at that time, and returns it. One call object must not run on two threads at once."""

    __slots__ = ("_run", "_plan", "_args", "_kept", "_out")

    def __init__(self, run: Any, plan: Any, args: Any, kept: tuple, out: np.ndarray):
        self._run, self._plan, self._args, self._kept, self._out = run, plan, args, kept, out

    def __call__(self) -> np.ndarray:
        status = self._run(self._plan.handle, self._args)
        if status:
            check(status)
        return self._out


def run_of(bind: Callable[..., Call]) -> Callable[..., np.ndarray]:
    """A plan's run(): takes the arguments of `bind`, and calls what `bind` returns."""

    def run(self: Any, *args: Any, **arguments: Any) -> np.ndarray:
        return bind(self, *args, **arguments)()

    run.__doc__ = bind.__doc__
    run.__qualname__ = bind.__qualname__.replace("bind", "run")
    run.__signature__ = inspect.signature(bind).replace(return_annotation="np.ndarray")
    return run


class AnyPlan:
    """A handle of the C interface, with the calls that all kinds of plans have."""

    _kind: str  # "gemm", "conv" or "grouped"
    _certificate_type: type = Certificate

    def __init__(self, handle: Any):
        self.handle = ffi.gc(handle, getattr(lib, f"intact_{self._kind}_destroy"))
        self._describe(self._query())

    def _describe(self, info: Any) -> None:
        """Keeps the fields of the kind's intact_…_info that runs need."""
        raise NotImplementedError

    @classmethod
    def _call(cls, name: str, *arguments: Any) -> None:
        check(getattr(lib, f"intact_{cls._kind}_{name}")(*arguments))

    def _query(self) -> Any:
        info = ffi.new(f"intact_{self._kind}_info *")
        info.struct_size = ffi.sizeof(info[0])
        self._call("query", self.handle, info)
        return info

    def _certificate(self, *pairing: int) -> Any:
        of_groups = self._kind == "grouped"
        c = ffi.new("intact_pairs_certificate *" if of_groups else "intact_certificate *")
        c.struct_size = ffi.sizeof(c[0])
        self._call("certificate", self.handle, *pairing, c)
        return self._certificate_type(*(getattr(c, field) for field in self._certificate_type._fields))

    def _failing_pairs(self, first: int, count: int | None, *pairing: int) -> np.ndarray:
        """At most `count` failing pairs from number `first` on: a structured array with the fields of the C
        interface."""
        first = integer("first", first)
        count = None if count is None else integer("count", count)
        if first < 0 or (count is not None and count < 0):
            raise invalid(
                f"{f'first: is {first}' if first < 0 else f'count: is {count}'}; expected 0 or more"
            )
        left = max(0, self._certificate(*pairing).failing_pairs - first)
        count = left if count is None else min(count, left)
        struct = "intact_conv_failing_pair" if self._kind == "conv" else "intact_failing_pair"
        pairs, written = np.empty(count, dtype_of(struct)), ffi.new("int64_t *")
        self._call(
            "failing_pairs",
            self.handle,
            *pairing,
            first,
            count,
            ffi.cast(f"{struct} *", address(pairs)),
            written,
        )
        return pairs[: written[0]]

    def save(self, path: str | os.PathLike) -> None:
        """Writes the plan to a file, completely or not at all. The file loads on any CPU."""
        self._call("save", self.handle, os.fsencode(path))

    @classmethod
    def load(cls, path: str | os.PathLike, *, max_isa: str | None = None) -> Any:
        """A plan from a file that save() wrote on any machine. The file must not change while the plan
        lives."""
        handle = ffi.new(f"intact_{cls._kind} **")
        cls._call("load", os.fsencode(path), isa_of(max_isa), handle)
        plan = cls.__new__(cls)
        AnyPlan.__init__(plan, handle[0])
        return plan


class Plan(AnyPlan):
    """Packed weights and kernels. Only tuning changes a plan: any number of threads may run one plan at once.
    A run releases the interpreter's lock."""

    def _describe(self, info: Any) -> None:
        self.a_dtype = DTYPES[TYPE_NAMES[info.a_source_type or info.a_type]]
        self._quantization = info.a_quantization
        self.b_dtype = DTYPES[TYPE_NAMES[info.b_type]]
        self.c_dtype = DTYPES[TYPE_NAMES[info.c_type]]
        name = TYPE_NAMES[info.residual_type]
        self.residual_dtype = DTYPES[name] if name else None

    @property
    def info(self) -> Info:
        """The plan's instruction set, kernel, size and bounds."""
        info = self._query()
        isa = text(lib.intact_isa_name(info.isa))
        return Info(isa, text(info.kernel), info.packed_bytes, info.accumulator_min, info.accumulator_max)

    @staticmethod
    def _tuned(info: Any) -> Tuned:
        return Tuned(text(info.kernel), info.microseconds, text(info.model_kernel), info.model_microseconds)

    @staticmethod
    def _tune_info() -> Any:
        info = ffi.new("intact_tune_info *")
        info.struct_size = ffi.sizeof(info[0])
        return info

    @staticmethod
    def _input(argument: str, value: Any, dtype: np.dtype, dims: int | tuple) -> np.ndarray:
        array = value if type(value) is np.ndarray else array_of(argument, value)
        if array.dtype != dtype:
            raise invalid(f"{argument}: has dtype {array.dtype}; expected {dtype}")
        if array.ndim != dims and not (isinstance(dims, tuple) and array.ndim in dims):
            expected = " or ".join(str(d) for d in (dims if isinstance(dims, tuple) else (dims,)))
            raise invalid(f"{argument}: has {array.ndim} dimensions; expected {expected}")
        return array

    def _quantize(self, args: Any, a_scales: Any, a_zero_points: Any, rows: int) -> list:
        """Sets the scales and zero points of A in `args`, for `rows` rows. Returns arrays that must live as
        long as `args`."""
        kept = []
        for name, values, dtype, kind in (
            ("a_scales", a_scales, FLOAT32, "float *"),
            ("a_zero_points", a_zero_points, INT32, "int32_t *"),
        ):
            if values is None:
                continue
            if self._quantization == lib.INTACT_QUANTIZATION_TENSOR:
                values, count, each = self._of_tensor(name, values, dtype), 1, "for all of a"
            elif self._quantization == lib.INTACT_QUANTIZATION_ROWS:
                values, count, each = self._input(name, values, dtype, (1, 2)), rows, "one for each row"
            else:
                raise invalid(f'{name}: is given; the plan has no quantization="rows" or "tensor"')
            if not values.flags.c_contiguous:
                raise invalid(f"{name}: is not contiguous")
            if values.size != count:
                raise invalid(f"{name}: has {counted(values.size, 'value')}; expected {count}, {each}")
            setattr(args, name, ffi.cast(kind, pointer(values)))
            kept.append(values)
        return kept

    def _of_tensor(self, argument: str, values: Any, dtype: np.dtype) -> np.ndarray:
        """An array of `dtype` from a number. A given array must have this dtype and is not copied."""
        if isinstance(values, np.ndarray):
            return self._input(argument, values, dtype, 1)
        given = numbers(argument, values)
        if dtype == INT32:
            return np.array([integer(argument, v) for v in given.tolist()], dtype)
        return given.astype(dtype)

    def _residual(self, residual: Any, shape: tuple) -> np.ndarray:
        if self.residual_dtype is None:
            raise invalid("residual: is given; the plan has no residual_type")
        residual = self._input("residual", residual, self.residual_dtype, len(shape))
        if residual.shape != shape:
            raise invalid(f"residual: has shape {residual.shape}; expected {shape}")
        return residual

    @staticmethod
    def _place(name: str, array: np.ndarray, args: Any) -> None:
        """Sets the pointer and the strides of an array of rows, or of items of rows, in the arguments of a
        run."""
        setattr(args, name, pointer(array))
        if array.flags.c_contiguous:
            return  # strides of 0 mean a dense array
        strides = row_strides(name, array)
        if array.shape[-2] > 1:
            setattr(args, name + "_stride", strides[-1])
        if array.ndim == 3 and array.shape[0] > 1:
            setattr(args, name + "_batch_stride", strides[0])

    @staticmethod
    def _output(out: Any, shape: tuple, dtype: np.dtype) -> np.ndarray:
        if out is None:
            return np.empty(shape, dtype)
        if type(out) is not np.ndarray:
            out = array_of("out", out)
        if out.dtype != dtype or out.shape != shape:
            raise invalid(f"out: has shape {out.shape} and dtype {out.dtype}; expected {shape} and {dtype}")
        if not out.flags.writeable:
            raise invalid("out: is read-only")
        return out


def row_strides(argument: str, array: np.ndarray) -> tuple:
    """Strides of all dimensions except the last, in elements. The last dimension must be dense. For a
    dimension of extent 1 the stride 0 is returned."""
    size = array.itemsize
    if array.shape[-1] > 1 and array.strides[-1] != size:
        raise invalid(
            f"{argument}: the elements of a row are {array.strides[-1]} bytes apart; expected {size}"
        )
    strides = [0 if extent == 1 else stride for extent, stride in zip(array.shape[:-1], array.strides[:-1])]
    for extent, stride in zip(array.shape[:-1], strides):
        if extent > 1 and (stride <= 0 or stride % size):
            raise invalid(
                f"{argument}: has a stride of {stride} bytes; expected a multiple of {size} above 0"
            )
    return tuple(stride // size for stride in strides)


def dtype_of(struct: str) -> np.dtype:
    """NumPy's type of a struct of the C interface. Its fields must be integers, or arrays of integers."""
    names, formats, offsets = [], [], []
    for name, field in ffi.typeof(struct).fields:
        names.append(name)
        is_array = field.type.kind == "array"
        item = np.dtype(f"i{ffi.sizeof(field.type.item if is_array else field.type)}")
        formats.append((item, (field.type.length,)) if is_array else item)
        offsets.append(field.offset)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": ffi.sizeof(struct)})


def pointer(array: np.ndarray) -> Any:
    """The address of an array's first element. The array must live as long as the address is used."""
    if array.flags.c_contiguous:
        try:
            return ffi.from_buffer(array)  # several times faster than asking NumPy for the address
        except ValueError:  # NumPy has no buffers of bfloat16
            pass
    return ffi.cast("void *", address(array))
