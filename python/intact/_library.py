"""Loads the shared library. Defines what all calls use: errors, types and the descriptor of the
arithmetic."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from ._interface import ffi

try:
    from ml_dtypes import bfloat16 as _bfloat16
except ImportError:
    _bfloat16 = np.uint16  # the bits of a bfloat16

PACKAGE = Path(__file__).parent  # with the libraries, the program and the tables
lib = ffi.dlopen(str(PACKAGE / "libintact.so"))


class Error(Exception):
    """A refused call. `status`: the name of intact.h's status ("INVALID_ARGUMENT", "UNSUPPORTED", "OVERFLOW",
    "CODEGEN_FAILED", "OUT_OF_MEMORY"). `message`: which argument was wrong, its value, and what was
    expected."""

    def __init__(self, status: str, message: str):
        super().__init__(message)
        self.status = status
        self.message = message


def invalid(message: str) -> Error:
    return Error("INVALID_ARGUMENT", message)


def excerpt(words: Any, most: int = 120) -> str:
    """Text from a user's file, made fit for one line of a terminal: printable, and at most `most`
    characters."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(words)[:most])
    return shown if len(str(words)) <= most else shown + "…"


def text(string: Any) -> str:
    """A C string, or a pointer to one."""
    return ffi.string(string).decode()


def check(status: int) -> None:
    """Raises the error of the library's last call on this thread, unless `status` is OK."""
    if status:
        raise Error(
            text(lib.intact_status_name(status)).upper().replace(" ", "_"), text(lib.intact_last_error())
        )


_DTYPES = {
    "u8": np.uint8,
    "s8": np.int8,
    "s32": np.int32,
    "f32": np.float32,
    "bf16": _bfloat16,
    "f16": np.float16,
}
DTYPES = {name: np.dtype(dtype) for name, dtype in _DTYPES.items()}
_TYPES = {name: getattr(lib, f"INTACT_{name.upper()}") for name in DTYPES} | {None: lib.INTACT_TYPE_NONE}
TYPE_NAMES = {value: name for name, value in _TYPES.items()}
_ISAS = {
    text(lib.intact_isa_name(isa)): isa
    for isa in itertools.takewhile(lib.intact_isa_name, itertools.count(lib.INTACT_ISA_ANY + 1))
}
_MODES = {"exact": lib.INTACT_EXACT, "saturating": lib.INTACT_SATURATING}
_ACTIVATIONS = {None: lib.INTACT_ACTIVATION_NONE, "relu": lib.INTACT_ACTIVATION_RELU}
_QUANTIZATIONS = {
    "static": lib.INTACT_QUANTIZATION_STATIC,
    "rows": lib.INTACT_QUANTIZATION_ROWS,
    "dynamic_rows": lib.INTACT_QUANTIZATION_DYNAMIC_ROWS,
    "dynamic_tensor": lib.INTACT_QUANTIZATION_DYNAMIC_TENSOR,
    "tensor": lib.INTACT_QUANTIZATION_TENSOR,
}
_FIXED_POINTS = {
    None: lib.INTACT_FIXED_POINT_NONE,
    "half_away": lib.INTACT_FIXED_POINT_HALF_AWAY,
    "half_up": lib.INTACT_FIXED_POINT_HALF_UP,
}
_OVERFLOWS = {"refused": lib.INTACT_OVERFLOW_REFUSED, "wraps": lib.INTACT_OVERFLOW_WRAPS}
_PAIRINGS = {"within_tap": lib.INTACT_PAIRING_WITHIN_TAP, "flattened": lib.INTACT_PAIRING_FLATTENED}


def choice(argument: str, value: Any, choices: dict) -> int:
    """The number that the C interface has for a named choice."""
    try:
        return choices[value]
    except (KeyError, TypeError):
        expected = ", ".join("None" if name is None else repr(name) for name in choices)
        raise invalid(f"{argument}: is {value!r}; expected {expected}") from None


def integer(argument: str, value: Any) -> int:
    """A Python or NumPy integer that fits into int32."""
    try:
        number = int(value.__index__())
    except (AttributeError, TypeError):
        raise invalid(f"{argument}: is {value!r}; expected an integer") from None
    if not -(1 << 31) <= number < 1 << 31:
        raise invalid(f"{argument}: is {number}; expected an integer that fits into int32")
    return number


def numbers(argument: str, values: Any) -> np.ndarray:
    """A number or a row of numbers, as an array of one dimension."""
    try:
        given = np.atleast_1d(np.asarray(values))
    except ValueError:
        raise invalid(
            f"{argument}: is not an array of numbers; expected a number, or one row of numbers"
        ) from None
    if given.ndim != 1 or given.dtype.kind not in "iuf":
        raise invalid(
            f"{argument}: has shape {given.shape} and dtype {given.dtype}; expected a number, or one row of numbers"
        )
    return given


def isa_of(name: str | None) -> int:
    return lib.INTACT_ISA_ANY if name is None else choice("max_isa", name, _ISAS)


def type_of(argument: str, name: str | None) -> int:
    return choice(argument, name, _TYPES)


def pairing_of(name: str) -> int:
    return choice("pairing", name, _PAIRINGS)


def array_of(argument: str, value: Any) -> np.ndarray:
    """A NumPy view of an array of NumPy, or of any library that speaks DLPack. Nothing is copied."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError) as error:
            raise invalid(f"{argument}: {excerpt(error)}") from None
    raise invalid(
        f"{argument}: is a {type(value).__name__}; expected a NumPy array, or one with __dlpack__()"
    )


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def isas() -> list[str]:
    """The names of the instruction sets that the library can use on this machine, including "portable"."""
    return [name for name, isa in _ISAS.items() if lib.intact_isa_available(isa)]


def version() -> str:
    """The library's version."""
    return text(lib.intact_version())


# Linear's arguments, for the documentation of the classes that pass them on.
ARGUMENTS = """\
    - `a_type`: "u8" or "s8". `c_type`: "s32", "f32", "bf16", "f16", "u8" or "s8"; by default "f32" with `scales`, else "s32".
    - `scales`: one number, or one for each column; 0 for a pruned column. The output is clamp(round_half_even(sum·scale + bias) +
      c_zero_point), in float32 steps. `sum` is the exact sum of products, each factor less its zero point.
    - `bias`: one value for each column. Integers are added to the sums, floats to the scaled sums.
    - `a_zero_point`, `c_zero_point`: integers. `b_zero_points`: one integer, or one for each column.
    - `activation="relu"`, or `clamp=(low, high)` in units of the output before `c_zero_point` is added.
    - `fixed_point` "half_away" or "half_up": `multipliers` (0, or 2^30 to 2^31 − 1; may be omitted) and `shifts` instead of
      `scales`, one value or one for each column, as in TensorFlow Lite (intact.h); 8-bit outputs only.
    - `lookup_table`: 256 elements of an 8-bit `c_type`; outputs q become lookup_table[q − lowest of `c_type`].
    - `overflow`: "refused" raises an error if for some activations a sum with its integer bias is outside int32; "wraps" computes
      sums modulo 2^32, as int32 additions wrap.
    - `a_range=(low, high)`: the activation range. A narrow range makes kernels without VNNI faster. Each run checks it unless
      `check_range=False`.
    - `residual_type` "u8", "s8" or "f32": each run adds (residual − `residual_zero_point`)·`residual_scale`.
    - `quantization`: "static"; "tensor" (each run passes one value of `a_scales` and `a_zero_points` for all of A); "rows" (a
      value for each row); "dynamic_rows", "dynamic_tensor" (A is float32; the run quantizes it to `a_type`). Convolutions do not
      support "rows" and "dynamic_rows".
    - `mode="saturating"` clamps pair sums to int16, as VPMADDUBSW does, for study. `pairing` chooses the pairs of a convolution:
      "within_tap" (oneDNN) or "flattened" (FBGEMM, ONNX Runtime). `max_isa`: a cap, one of `intact.isas()`.
"""


class Linear:
    """The arithmetic of products and convolutions: intact_linear_desc, and the arrays that it points to."""

    def __init__(
        self,
        *,
        a_type: str = "u8",
        b_type: str,
        c_type: str | None = None,
        scales: Any = None,
        bias: Any = None,
        a_zero_point: int = 0,
        b_zero_points: Any = None,
        c_zero_point: int = 0,
        activation: str | None = None,
        clamp: tuple[float, float] | None = None,
        a_range: tuple[int, int] | None = None,
        check_range: bool = True,
        residual_type: str | None = None,
        residual_scale: float | None = None,
        residual_zero_point: int = 0,
        quantization: str = "static",
        a_source_type: str | None = None,
        fixed_point: str | None = None,
        multipliers: Any = None,
        shifts: Any = None,
        lookup_table: Any = None,
        overflow: str = "refused",
        mode: str = "exact",
        pairing: str = "within_tap",
        max_isa: str | None = None,
    ):
        if c_type is None:
            c_type = "s32" if scales is None else "f32"
        if str(quantization).startswith("dynamic") and a_source_type is None:
            a_source_type = "f32"
        self._kept: list = []
        d = self.desc = ffi.new("intact_linear_desc *")
        d.struct_size = ffi.sizeof(d[0])
        d.a_type, d.b_type, d.c_type = (
            type_of("a_type", a_type),
            type_of("b_type", b_type),
            type_of("c_type", c_type),
        )
        d.mode, d.pairing, d.max_isa = choice("mode", mode, _MODES), pairing_of(pairing), isa_of(max_isa)
        d.a_zero_point, d.c_zero_point = (
            integer("a_zero_point", a_zero_point),
            integer("c_zero_point", c_zero_point),
        )
        d.activation = choice("activation", activation, _ACTIVATIONS)
        if clamp is not None:
            if activation is not None:
                raise invalid(
                    f"clamp: is given together with activation={activation!r}; expected only one of them"
                )
            d.activation = lib.INTACT_ACTIVATION_CLAMP
            d.clamp_min, d.clamp_max = self._two("clamp", clamp, float)
        if a_range is not None:
            d.a_min, d.a_max = self._two("a_range", a_range, lambda value: integer("a_range", value))
            if d.a_min == d.a_max == 0:
                raise invalid("a_range: is (0, 0); expected more than one value")
        d.range_check = lib.INTACT_RANGE_CHECKED if check_range else lib.INTACT_RANGE_UNCHECKED
        d.b_zero_points, d.b_zero_point_count = self._values("b_zero_points", b_zero_points, np.int32)
        d.scales, d.scale_count = self._values("scales", scales, np.float32)
        d.fixed_point = choice("fixed_point", fixed_point, _FIXED_POINTS)
        d.multipliers, multiplier_count = self._values("multipliers", multipliers, np.int32)
        d.shifts, shift_count = self._values("shifts", shifts, np.int32)
        if shift_count:
            if multiplier_count not in (0, shift_count):
                raise invalid(
                    f"multipliers: has {multiplier_count} values; expected {shift_count}, one for each shift"
                )
            d.scale_count = shift_count
        if lookup_table is not None:
            table = np.ascontiguousarray(array_of("lookup_table", lookup_table))
            if c_type not in ("u8", "s8") or table.dtype != DTYPES[c_type] or table.shape != (256,):
                raise invalid(
                    f"lookup_table: has shape {table.shape} and dtype {table.dtype}; expected 256 elements of an "
                    "8-bit c_type"
                )
            self._kept.append(table)
            d.lookup_table = ffi.cast("void *", address(table))
        self.bias_count = None
        if bias is not None:
            bias = numbers("bias", bias)
            if bias.dtype.kind == "f":
                d.bias_f32, self.bias_count = self._values("bias", bias, np.float32)
            else:
                d.bias_s32, self.bias_count = self._values("bias", bias, np.int32)
        d.overflow = choice("overflow", overflow, _OVERFLOWS)
        d.residual_type = type_of("residual_type", residual_type)
        d.residual_scale = (
            (0.0 if residual_type is None else 1.0) if residual_scale is None else residual_scale
        )
        d.residual_zero_point = integer("residual_zero_point", residual_zero_point)
        d.a_quantization = choice("quantization", quantization, _QUANTIZATIONS)
        d.a_source_type = type_of("a_source_type", a_source_type)

    def check_columns(self, columns: int) -> None:
        """Refuses a bias that does not have one value for each column. The C interface cannot check this: it
        is not given a length."""
        if self.bias_count not in (None, columns):
            raise invalid(f"bias: has {self.bias_count} values; expected {columns}, one for each column")

    @staticmethod
    def _two(argument: str, values: Any, convert: Any) -> tuple:
        try:
            first, second = values
            return convert(first), convert(second)
        except (TypeError, ValueError):
            raise invalid(f"{argument}: is {values!r}; expected two numbers") from None

    def _values(self, argument: str, values: Any, dtype: type) -> tuple:
        """A pointer to the values, converted to `dtype`, and their number. Refuses values that an integer
        `dtype` cannot hold."""
        if values is None:
            return ffi.NULL, 0
        given = numbers(argument, values)
        with np.errstate(over="ignore", invalid="ignore"):
            array = np.ascontiguousarray(given, dtype=dtype)
        if np.issubdtype(dtype, np.integer) and not np.array_equal(array, given):
            raise invalid(f"{argument}: has a value that is no {np.dtype(dtype)}")
        self._kept.append(array)
        pointer = "int32_t *" if dtype is np.int32 else "float *"
        return ffi.cast(pointer, address(array)), array.size
