"""Products with weights that have a scale for each group of depths (intact/grouped.h)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._library import (
    DTYPES,
    TYPE_NAMES,
    Linear,
    address,
    array_of,
    choice,
    ffi,
    integer,
    invalid,
    isa_of,
    lib,
    numbers,
    text,
    type_of,
)
from .gemm import FailingPair, type_name
from .ggml_types import FORMATS, of_rows
from .grouped_weights import GroupedWeights, nbits
from .plan import FLOAT32, INT32, AnyPlan, Call, Plan, dtype_of, pointer

_B_TYPES = {"u4": lib.INTACT_U4, "s4": lib.INTACT_S4, "u8": lib.INTACT_U8, "s8": lib.INTACT_S8}
_GRANULARITIES = {"rows": lib.INTACT_GRANULARITY_ROWS, "groups": lib.INTACT_GRANULARITY_GROUPS}
_ACTIVATIONS = {None: lib.INTACT_ACTIVATION_NONE, "relu": lib.INTACT_ACTIVATION_RELU}


class GroupedInfo(NamedTuple):
    """What a plan uses: the instruction set, the kernel's name, the bytes of the packed weights with their
    scales."""

    isa: str
    kernel: str
    packed_bytes: int


class PairsCertificate(NamedTuple):
    """Which pairs of weights could saturate in kernels of other libraries that add two products in int16, for
    all activations from 0 to 255 as VPMADDUBSW sees them: the fields of intact_pairs_certificate. 0 failing
    pairs prove that no pair can saturate; with activations from 0 to `safe_activation` none can. Column j of
    expert e has the number e·N + j."""

    pairs: int
    failing_pairs: int
    failing_groups: int
    worst_column: int
    worst_group: int
    worst_group_failing_pairs: int
    largest_sum_n: int
    largest_sum_k: int
    largest_sum: int
    safe_activation: int


class Grouped(AnyPlan):
    """A product C = A·B with constant weights of 4 or 8 bits, which have a scale for each group of depths. C
    has the same bytes on every CPU.

    - `weights`: a row for each column of B. 8-bit weights are N×K, int8 ("s8") or uint8 ("u8"). Weights of 4
      bits are N×⌈K/2⌉, uint8; the low four bits are the even depth. `b_type` "u4" (the default for them) or
      "s4".
    - `scales`: N×groups, float32, float16 or bfloat16. `zero_points`: N×groups, integers of `b_type`; by
      default 0 for signed weights, 8 or 128 for unsigned weights. `minimums` (instead of zero points, which
      are then 0): N×groups, float32, which are added to the weights.
    - `k`: the depth; needed for weights of 4 bits. `group`: 16, 32, 64, 128, 256, or 0 for one group of all
      depths.
    - `a_source_type`: "f32", "bf16" or "f16": each run quantizes A to `a_type` ("s8", symmetric, or "u8" with
      zero points). None: each run gets A in `a_type`, with `a_scales` and `a_zero_points`.
    - `granularity`: "rows" or "groups": whether A has a scale for each row, or for each group of each row.
    - `c_type`: "f32", "bf16" or "f16". `bias`: one float for each column. `activation="relu"`, or
      `clamp=(low, high)`.
    - `max_isa`: a cap, one of `intact.isas()`.
    - Several experts (mixture of experts): `weights`, `scales`, `zero_points`, `minimums` and `bias` have one
      more dimension in front, the experts. The rows of A are sorted by expert, and each run gets
      `expert_rows`, the number of rows of each expert.

    Raises `intact.Error`. Any number of threads may run one plan at once."""

    _kind = "grouped"

    def __init__(
        self,
        weights: Any,
        scales: Any,
        *,
        k: int | None = None,
        group: int = 32,
        b_type: str | None = None,
        zero_points: Any = None,
        minimums: Any = None,
        a_type: str = "s8",
        a_source_type: str | None = "f32",
        granularity: str = "rows",
        c_type: str = "f32",
        bias: Any = None,
        activation: str | None = None,
        clamp: tuple[float, float] | None = None,
        max_isa: str | None = None,
    ):
        weights = np.ascontiguousarray(array_of("weights", weights))
        if weights.ndim not in (2, 3):
            raise invalid(
                f"weights: has {weights.ndim} dimensions; expected 2, a row for each column of B, or 3, "
                "experts in front"
            )
        if b_type is None:
            b_type = "s8" if weights.dtype == np.int8 else "u4"
        dtype = np.dtype(np.int8 if b_type == "s8" else np.uint8)
        if weights.dtype != dtype:
            raise invalid(f"weights: has dtype {weights.dtype}; expected {dtype} for b_type={b_type!r}")
        *experts, n, row = weights.shape
        shape = (*experts, n)  # of the columns
        is_packed = str(b_type).endswith("4")
        if k is None and is_packed:
            raise invalid("k: is not given; expected the depth, because weights of 4 bits share bytes")
        k = row if k is None else integer("k", k)
        if row != ((k + 1) // 2 if is_packed else k):
            raise invalid(
                f"weights: has rows of {row} bytes; expected {(k + 1) // 2 if is_packed else k} for k={k}"
            )
        group = integer("group", group)
        groups = 1 if group <= 0 else -(-k // group)
        scales = np.ascontiguousarray(array_of("scales", scales))
        desc = ffi.new("intact_grouped_desc *")
        desc.struct_size = ffi.sizeof(desc[0])
        desc.n, desc.k, desc.group = n, k, group
        desc.experts = experts[0] if experts else 1
        desc.a_source_type, desc.a_type = type_of("a_source_type", a_source_type), type_of("a_type", a_type)
        desc.a_granularity = choice("granularity", granularity, _GRANULARITIES)
        desc.b_type = choice("b_type", b_type, _B_TYPES)
        desc.c_type = type_of("c_type", c_type)
        desc.scale_type = type_of("scales", type_name("scales", scales, ("f32", "f16", "bf16")))
        self._check_groups("scales", scales, (*shape, groups))
        desc.b_scales = ffi.cast("void *", address(scales))
        if zero_points is not None:
            zero_points = self._integers(
                "zero_points",
                zero_points,
                (*shape, groups),
                np.int8 if str(b_type).startswith("s") else np.uint8,
            )
            desc.b_zero_points = ffi.cast("void *", address(zero_points))
        if minimums is not None:
            minimums = np.ascontiguousarray(array_of("minimums", minimums), FLOAT32)
            self._check_groups("minimums", minimums, (*shape, groups))
            desc.b_minimums = ffi.cast("float *", address(minimums))
        if bias is not None:
            if experts:
                bias = array_of("bias", bias)
                if bias.shape != shape:
                    raise invalid(
                        f"bias: has shape {bias.shape}; expected {shape}, a value for each column of each expert"
                    )
                bias = bias.reshape(-1)
            bias = np.ascontiguousarray(numbers("bias", bias), FLOAT32)
            if bias.size != math.prod(shape):
                raise invalid(f"bias: has {bias.size} values; expected {n}, one for each column")
            desc.bias_f32 = ffi.cast("float *", address(bias))
        desc.activation = choice("activation", activation, _ACTIVATIONS)
        if clamp is not None:
            if activation is not None:
                raise invalid(
                    f"clamp: is given together with activation={activation!r}; expected only one of them"
                )
            desc.activation = lib.INTACT_ACTIVATION_CLAMP
            desc.clamp_min, desc.clamp_max = Linear._two("clamp", clamp, float)
        desc.max_isa = isa_of(max_isa)
        handle = ffi.new("intact_grouped **")
        self._call("create", desc, ffi.cast("void *", address(weights)), handle)
        super().__init__(handle[0])

    def _describe(self, info: Any) -> None:
        self.n, self.k, self.groups, self.experts = info.n, info.k, info.groups, info.experts
        self.a_dtype = DTYPES[TYPE_NAMES[info.a_source_type or info.a_type]]
        self.c_dtype = DTYPES[TYPE_NAMES[info.c_type]]
        of_groups = info.a_granularity == lib.INTACT_GRANULARITY_GROUPS
        # scales that a run gives for a row
        self._values = None if info.a_source_type else info.groups if of_groups else 1

    @staticmethod
    def _check_groups(argument: str, values: np.ndarray, shape: tuple[int, ...]) -> None:
        if values.shape != shape:
            raise invalid(
                f"{argument}: has shape {values.shape}; expected {shape}, a value for each column and group"
            )

    @classmethod
    def _integers(cls, argument: str, values: Any, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        """The values as a new array of `dtype`."""
        try:
            given = np.asarray(values)
        except ValueError:
            raise invalid(
                f"{argument}: is not an array of numbers; expected {'×'.join(map(str, shape))} integers"
            ) from None
        if given.dtype.kind not in "iuf":
            raise invalid(
                f"{argument}: has dtype {given.dtype}; expected {'×'.join(map(str, shape))} integers"
            )
        cls._check_groups(argument, given, shape)
        bounds = np.iinfo(dtype)
        wrong = given[~((given >= bounds.min) & (given <= bounds.max) & (np.rint(given) == given))]
        if wrong.size:
            raise invalid(
                f"{argument}: has a value of {wrong[0]}; expected integers from {bounds.min} to {bounds.max}"
            )
        return np.array(given, dtype, order="C")

    @classmethod
    def of(cls, weights: GroupedWeights | Sequence[GroupedWeights], **options: Any) -> Grouped:
        """A plan from weights that `intact.read_grouped_weights` read, or of several experts from the weights
        of each."""
        one = isinstance(weights, GroupedWeights)
        experts = [weights] if one else list(weights)
        if not experts:
            raise invalid("weights: is empty; expected the weights of at least one expert")
        first = experts[0]
        row = (first.k + 1) // 2 if first.b_type.endswith("4") else first.k

        def stacked(name: str) -> Any:
            values = [getattr(expert, name) for expert in experts]
            if any((value is None) != (values[0] is None) for value in values):
                raise invalid(
                    f"weights: some experts have {name}, others have none; expected them of all experts or of none"
                )
            return values[0] if one or values[0] is None else np.stack(values)

        for i, expert in enumerate(experts):
            for name in ("n", "k", "group", "b_type"):
                if getattr(expert, name) != getattr(first, name):
                    raise invalid(
                        f"weights: {name} of expert {i} is {getattr(expert, name)!r}; expected "
                        f"{getattr(first, name)!r}, as of expert 0"
                    )
        return cls(
            stacked("b")[..., :row],
            stacked("scales"),
            k=first.k,
            group=first.group,
            b_type=first.b_type,
            zero_points=stacked("zero_points"),
            minimums=stacked("minimums"),
            bias=stacked("bias"),
            **options,
        )

    @classmethod
    def from_matmul_nbits(
        cls,
        b: Any,
        scales: Any,
        zero_points: Any = None,
        *,
        k: int,
        bits: int = 4,
        block_size: int = 32,
        **options: Any,
    ) -> Grouped:
        """A plan from the inputs B, scales and zero_points of ONNX Runtime's operator MatMulNBits: B is
        N×blocks×(block_size·bits/8), uint8. Zero points of 4 bits may be packed, two in a byte."""
        points = None if zero_points is None else array_of("zero_points", zero_points)
        k, bits, block_size = integer("k", k), integer("bits", bits), integer("block_size", block_size)
        return cls.of(
            nbits(array_of("b", b), array_of("scales", scales), points, k, bits, block_size), **options
        )

    @classmethod
    def from_gguf(cls, blocks: Any, kind: str, **options: Any) -> Grouped:
        """A plan from a tensor of a GGUF file: `blocks` are its bytes, a row for each column of B; `kind` is
        "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k", "iq4_nl" or "mxfp4"."""
        choice("kind", kind, FORMATS)
        return cls.of(of_rows(array_of("blocks", blocks), kind), **options)

    @property
    def info(self) -> GroupedInfo:
        """The plan's instruction set, kernel and size."""
        info = self._query()
        return GroupedInfo(text(lib.intact_isa_name(info.isa)), text(info.kernel), info.packed_bytes)

    def certificate(self) -> PairsCertificate:
        """Which pairs of weights could saturate in kernels of other libraries. Pairs are depths (k, k + 1), k
        even."""
        certificate = ffi.new("intact_pairs_certificate *")
        certificate.struct_size = ffi.sizeof(certificate[0])
        self._call("certificate", self.handle, certificate)
        return PairsCertificate(*(getattr(certificate, field) for field in PairsCertificate._fields))

    def group_certificates(self) -> np.ndarray:
        """A structured array with a row for each column of B, of all experts one after the other: the fields
        `failing_pairs` and `safe_activation` of each group."""
        groups = np.empty((self.experts * self.n, self.groups), dtype_of("intact_group_certificate"))
        self._call(
            "group_certificates",
            self.handle,
            0,
            len(groups),
            ffi.cast("intact_group_certificate *", address(groups)),
        )
        return groups

    def failing_pairs(self, first: int = 0, count: int | None = None) -> list[FailingPair]:
        """The pairs that could saturate, by column, then depth: from number `first` on, all or at most
        `count`."""
        count = self.certificate().failing_pairs if count is None else integer("count", count)
        pairs, written = np.empty(max(count, 0), dtype_of("intact_failing_pair")), ffi.new("int64_t *")
        self._call(
            "failing_pairs",
            self.handle,
            integer("first", first),
            count,
            ffi.cast("intact_failing_pair *", address(pairs)),
            written,
        )
        return [FailingPair(*pair) for pair in pairs[: written[0]].tolist()]

    def bind(
        self,
        a: Any,
        out: Any = None,
        *,
        a_scales: Any = None,
        a_zero_points: Any = None,
        expert_rows: Any = None,
        threads: int = 0,
    ) -> Call:
        """A `Call` with these arrays, to be called many times. Takes the arguments of run()."""
        a = Plan._input("a", a, self.a_dtype, (2, 3))
        if a.shape[-1] != self.k:
            raise invalid(f"a: has {a.shape[-1]} columns; expected {self.k}")
        out = Plan._output(out, (*a.shape[:-1], self.n), self.c_dtype)
        args = ffi.new("intact_grouped_args *")
        args.struct_size = ffi.sizeof(args[0])
        args.m, args.threads = a.shape[-2], integer("threads", threads)
        args.batch = a.shape[0] if a.ndim == 3 else 1
        Plan._place("a", a, args)
        Plan._place("c", out, args)
        rows = args.m * args.batch
        kept = [a, out]
        for name, values, dtype, kind in (
            ("a_scales", a_scales, FLOAT32, "float *"),
            ("a_zero_points", a_zero_points, INT32, "int32_t *"),
        ):
            if values is None:
                continue
            if self._values is None:
                raise invalid(f"{name}: is given; the plan quantizes A")
            values = np.ascontiguousarray(Plan._input(name, values, dtype, (1, 2, 3)))
            if values.size != rows * self._values:
                raise invalid(f"{name}: has {values.size} values; expected {rows * self._values}")
            setattr(args, name, ffi.cast(kind, pointer(values)))
            kept.append(values)
        if expert_rows is not None:
            try:
                counts = np.array([integer("expert_rows", count) for count in expert_rows], np.int64)
            except TypeError:
                raise invalid(
                    f"expert_rows: is {expert_rows!r}; expected the number of rows of each expert"
                ) from None
            if counts.size != self.experts:
                raise invalid(
                    f"expert_rows: has {counts.size} values; expected {self.experts}, one for each expert"
                )
            args.expert_rows = ffi.cast("int64_t *", pointer(counts))
            kept.append(counts)
        return Call(lib.intact_grouped_run, self, args, tuple(kept), out)

    def run(
        self,
        a: Any,
        out: Any = None,
        *,
        a_scales: Any = None,
        a_zero_points: Any = None,
        expert_rows: Any = None,
        threads: int = 0,
    ) -> np.ndarray:
        """Computes A·B in a new array, or in `out`. `a` is M×K, or items×M×K (a batch). `threads`: 0 is
        OpenMP's default. `a_scales` (float32) and `a_zero_points` (int32), only without `a_source_type`: a
        value for each row of `a`, or for each group of each row. `expert_rows`, needed with several experts:
        the number of rows of each expert, M rows in all."""
        return self.bind(
            a, out, a_scales=a_scales, a_zero_points=a_zero_points, expert_rows=expert_rows, threads=threads
        )()
