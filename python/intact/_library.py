"""Loads the shared library. Defines what all calls use: errors, types and the descriptor of the
arithmetic."""

from __future__ import annotations

import inspect
import itertools
import platform
from pathlib import Path
from typing import Any, Callable, NamedTuple

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


def is_x86() -> bool:
    """Whether this CPU may have the instructions that clamp."""
    return platform.machine() in ("x86_64", "AMD64")


def invalid(message: str) -> Error:
    return Error("INVALID_ARGUMENT", message)


def counted(number: int, noun: str) -> str:
    """ "1 layer", "2 layers". `noun`: in the singular; its plural ends with "s"."""
    return f"{number} {noun}{'s' * (number != 1)}"


def part_of(part: int, whole: int, noun: str, be: str = "is", are: str = "are") -> str:
    """ "2 of 3 layers are", "1 of 3 layers is", "0 of 1 layer is". `be`, `are`: the verb in the singular and in the plural."""
    noun += "s" * (whole != 1)
    return f"{part:,} of {whole:,} {noun} {be if 1 in (part, whole) else are}"


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


class Argument(NamedTuple):
    """An argument of `Linear`. `convert`: gives the value of its field in the descriptor, from the argument's
    name and value; None: `Linear` has a method for it. `field`: the field's name, if it is another one."""

    default: Any
    convert: Callable[[str, Any], Any] | None = None
    field: str = ""


class Linear:
    """The arithmetic of products and convolutions: intact_linear_desc, and the arrays that it points to. Takes
    the arguments in `ARGUMENTS`, by name."""

    def __init__(self, *, b_type: str, **given: Any):
        for name in given:
            if name not in ARGUMENTS:
                raise TypeError(f"unexpected argument {name!r}; expected one of {', '.join(ARGUMENTS)}")
        values = {name: given.get(name, argument.default) for name, argument in ARGUMENTS.items()}
        if values["c_type"] is None:
            values["c_type"] = "s32" if values["scales"] is None else "f32"
        if str(values["quantization"]).startswith("dynamic") and values["a_source_type"] is None:
            values["a_source_type"] = "f32"
        if values["clamp"] is not None and values["activation"] is not None:
            raise invalid(
                f"clamp: is given together with activation={values['activation']!r}; expected only one of them"
            )
        if values["residual_scale"] is None:
            values["residual_scale"] = 0.0 if values["residual_type"] is None else 1.0
        self._kept: list = []
        self.bias_count = None
        self.desc = ffi.new("intact_linear_desc *")
        self.desc.struct_size = ffi.sizeof(self.desc[0])
        self.desc.b_type = type_of("b_type", b_type)
        for name, argument in ARGUMENTS.items():
            if argument.convert is None:
                getattr(self, f"_put_{name}")(values[name])
            else:
                setattr(self.desc, argument.field or name, argument.convert(name, values[name]))

    def check_columns(self, columns: int) -> None:
        """Refuses a bias that does not have one value for each column. The C interface cannot check this: it
        is not given a length."""
        if self.bias_count not in (None, columns):
            raise invalid(
                f"bias: has {counted(self.bias_count, 'value')}; expected {columns}, one for each column"
            )

    def _put_scales(self, values: Any) -> None:
        self.desc.scales, self.desc.scale_count = self._values("scales", values, np.float32)

    def _put_b_zero_points(self, values: Any) -> None:
        found = self._values("b_zero_points", values, np.int32)
        self.desc.b_zero_points, self.desc.b_zero_point_count = found

    def _put_bias(self, values: Any) -> None:
        if values is not None and numbers("bias", values).dtype.kind == "f":
            self.desc.bias_f32, self.bias_count = self._values("bias", values, np.float32)
        elif values is not None:
            self.desc.bias_s32, self.bias_count = self._values("bias", values, np.int32)

    def _put_clamp(self, bounds: Any) -> None:
        if bounds is not None:
            self.desc.activation = lib.INTACT_ACTIVATION_CLAMP
            self.desc.clamp_min, self.desc.clamp_max = self._two("clamp", bounds, float)

    def _put_multipliers(self, values: Any) -> None:
        self.desc.multipliers, self._multipliers = self._values("multipliers", values, np.int32)

    def _put_shifts(self, values: Any) -> None:
        self.desc.shifts, count = self._values("shifts", values, np.int32)
        if count and self._multipliers not in (0, count):
            raise invalid(
                f"multipliers: has {counted(self._multipliers, 'value')}; expected {count}, one for each shift"
            )
        if count:
            self.desc.scale_count = count

    def _put_lookup_table(self, given: Any) -> None:
        if given is None:
            return
        table = np.ascontiguousarray(array_of("lookup_table", given))
        c_type = TYPE_NAMES[self.desc.c_type]
        if c_type not in ("u8", "s8") or table.dtype != DTYPES[c_type] or table.shape != (256,):
            raise invalid(
                f"lookup_table: has shape {table.shape} and dtype {table.dtype}; expected 256 elements of an "
                "8-bit c_type"
            )
        self._kept.append(table)
        self.desc.lookup_table = ffi.cast("void *", address(table))

    def _put_a_range(self, bounds: Any) -> None:
        if bounds is not None:
            low, high = self._two("a_range", bounds, lambda value: integer("a_range", value))
            if low == high == 0:
                raise invalid("a_range: is (0, 0); expected more than one value")
            self.desc.a_min, self.desc.a_max = low, high

    def _put_check_range(self, is_checked: Any) -> None:
        self.desc.range_check = lib.INTACT_RANGE_CHECKED if is_checked else lib.INTACT_RANGE_UNCHECKED

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


def _one_of(choices: dict) -> Callable[[str, Any], int]:
    return lambda argument, value: choice(argument, value, choices)


# In the order of signatures.
ARGUMENTS = {
    "a_type": Argument("u8", type_of),
    "c_type": Argument(None, type_of),
    "scales": Argument(None),
    "bias": Argument(None),
    "a_zero_point": Argument(0, integer),
    "b_zero_points": Argument(None),
    "c_zero_point": Argument(0, integer),
    "activation": Argument(None, _one_of(_ACTIVATIONS)),
    "clamp": Argument(None),
    "fixed_point": Argument(None, _one_of(_FIXED_POINTS)),
    "multipliers": Argument(None),
    "shifts": Argument(None),
    "lookup_table": Argument(None),
    "overflow": Argument("refused", _one_of(_OVERFLOWS)),
    "a_range": Argument(None),
    "check_range": Argument(True),
    "residual_type": Argument(None, type_of),
    "residual_scale": Argument(None, lambda _, value: value),
    "residual_zero_point": Argument(0, integer),
    "quantization": Argument("static", _one_of(_QUANTIZATIONS), "a_quantization"),
    "a_source_type": Argument(None, type_of),
    "mode": Argument("exact", _one_of(_MODES)),
    "pairing": Argument("within_tap", _one_of(_PAIRINGS)),
    "max_isa": Argument(None, lambda _, value: isa_of(value)),
}

_ARGUMENTS_IN_WORDS = """\
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
    - `residual_type` "u8", "s8" or "f32": each run adds (residual − `residual_zero_point`)·`residual_scale`, 1 by default.
    - `quantization`: "static"; "tensor" (each run passes one value of `a_scales` and `a_zero_points` for all of A); "rows" (a
      value for each row); "dynamic_rows", "dynamic_tensor" (A is float32, or has the `a_source_type` "bf16" or "f16"; the run
      quantizes it to `a_type`). Convolutions do not support "rows" and "dynamic_rows".
    - `mode="saturating"` clamps pair sums to int16, as VPMADDUBSW does, for study. `pairing` chooses the pairs of a convolution:
      "within_tap" (oneDNN) or "flattened" (FBGEMM, ONNX Runtime). `max_isa`: a cap, one of `intact.isas()`.
"""


def takes_linear(plan: type) -> type:
    """Documents a class whose `**linear` are arguments of `Linear`: its signature names them, and its text has
    their lines in the place of {linear}."""
    signature = inspect.signature(plan)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    passed = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=argument.default)
        for name, argument in ARGUMENTS.items()
    ]
    plan.__signature__ = signature.replace(parameters=[*own, *passed])
    words = inspect.cleandoc(_ARGUMENTS_IN_WORDS)
    plan.__doc__ = inspect.cleandoc(plan.__doc__ or "").replace("{linear}", words)
    return plan
