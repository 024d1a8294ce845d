"""Products with weights that have a scale for each group of depths (intact/grouped.h)."""

from __future__ import annotations

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
    counted,
    ffi,
    integer,
    invalid,
    lib,
    text,
)
from .gemm import FailingPair
from .ggml_types import FORMATS, of_rows
from .grouped_weights import GroupedWeights, described, nbits
from .plan import FLOAT32, INT32, AnyPlan, Call, Plan, dtype_of, pointer, run_of

_GRANULARITIES = {"rows": lib.INTACT_GRANULARITY_ROWS, "groups": lib.INTACT_GRANULARITY_GROUPS}


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

    - `weights`: `GroupedWeights`, made of arrays or read from a file; or those of several experts (mixture of
      experts), as a sequence. Then the rows of A are sorted by expert, and each run gets `expert_rows`, the
      number of rows of each expert.
    - `a_source_type`: "f32", "bf16" or "f16": each run quantizes A to `a_type` ("s8", symmetric, or "u8" with
      zero points). None: each run gets A in `a_type`, with `a_scales` and `a_zero_points`.
    - `granularity`: "rows" or "groups": whether A has a scale for each row, or for each group of each row.
    - `c_type`: "f32", "bf16" or "f16". `activation="relu"`, or `clamp=(low, high)`.
    - `max_isa`: a cap, one of `intact.isas()`.

    Raises `intact.Error`. Any number of threads may run one plan at once."""

    _kind = "grouped"
    _certificate_type = PairsCertificate

    def __init__(
        self,
        weights: GroupedWeights | Sequence[GroupedWeights],
        *,
        a_type: str = "s8",
        a_source_type: str | None = "f32",
        granularity: str = "rows",
        c_type: str = "f32",
        activation: str | None = None,
        clamp: tuple[float, float] | None = None,
        max_isa: str | None = None,
    ):
        desc, b, kept = described(weights)
        desc.a_granularity = choice("granularity", granularity, _GRANULARITIES)
        linear = Linear(
            b_type="s8",
            a_type=a_type,
            a_source_type=a_source_type,
            c_type=c_type,
            activation=activation,
            clamp=clamp,
            max_isa=max_isa,
        )
        for name in ("a_type", "a_source_type", "c_type", "activation", "clamp_min", "clamp_max", "max_isa"):
            setattr(desc, name, getattr(linear.desc, name))
        handle = ffi.new("intact_grouped **")
        self._call("create", desc, ffi.cast("void *", address(b)), handle)
        del kept
        super().__init__(handle[0])

    def _describe(self, info: Any) -> None:
        self.n, self.k, self.groups, self.experts = info.n, info.k, info.groups, info.experts
        self.a_dtype = DTYPES[TYPE_NAMES[info.a_source_type or info.a_type]]
        self.c_dtype = DTYPES[TYPE_NAMES[info.c_type]]
        of_groups = info.a_granularity == lib.INTACT_GRANULARITY_GROUPS
        # scales that a run gives for a row
        self._values = None if info.a_source_type else info.groups if of_groups else 1

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
        return cls(
            nbits(array_of("b", b), array_of("scales", scales), points, k, bits, block_size), **options
        )

    @classmethod
    def from_gguf(cls, blocks: Any, kind: str, **options: Any) -> Grouped:
        """A plan from a tensor of a GGUF file: `blocks` are its bytes, a row for each column of B; `kind` is
        "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k", "iq4_nl" or "mxfp4"."""
        choice("kind", kind, FORMATS)
        return cls(of_rows(array_of("blocks", blocks), kind), **options)

    @property
    def info(self) -> GroupedInfo:
        """The plan's instruction set, kernel and size."""
        info = self._query()
        return GroupedInfo(text(lib.intact_isa_name(info.isa)), text(info.kernel), info.packed_bytes)

    def certificate(self) -> PairsCertificate:
        """Which pairs of weights could saturate in kernels of other libraries. Pairs are depths (k, k + 1), k
        even."""
        return self._certificate()

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
        return [FailingPair(*pair) for pair in self._failing_pairs(first, count).tolist()]

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
        """run() computes A·B in a new array, or in `out`. bind() returns a `Call`; each call of it computes
        A·B again. `a` is M×K, or items×M×K (a batch). `threads`: 0 is OpenMP's default. `a_scales` (float32)
        and `a_zero_points` (int32), only without `a_source_type`: a value for each row of `a`, or for each
        group of each row. `expert_rows`, needed with several experts: the number of rows of each expert, M
        rows in all."""
        a = Plan._input("a", a, self.a_dtype, (2, 3))
        if a.shape[-1] != self.k:
            raise invalid(f"a: has {counted(a.shape[-1], 'column')}; expected {self.k}")
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
                raise invalid(f"{name}: has {counted(values.size, 'value')}; expected {rows * self._values}")
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
                    f"expert_rows: has {counted(counts.size, 'value')}; expected {self.experts}, one for each expert"
                )
            args.expert_rows = ffi.cast("int64_t *", pointer(counts))
            kept.append(counts)
        return Call(lib.intact_grouped_run, self, args, tuple(kept), out)

    run = run_of(bind)
