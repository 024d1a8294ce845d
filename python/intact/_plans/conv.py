"""Convolutions."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from .._library import Linear, array_of, counted, ffi, integer, invalid, lib, pairing_of, takes_linear
from .gemm import type_name
from .plan import Call, Certificate, Plan, Tuned, pointer, row_strides, run_of


class ConvFailingPair(NamedTuple):
    """A pair of an output channel's weights that can saturate: w0 at `channel` (within the group) of `tap`,
    w1 at the next channel or tap, and activations a0, a1 for which the exact `sum` is outside int16."""

    output_channel: int
    tap: tuple
    channel: int
    w0: int
    w1: int
    a0: int
    a1: int
    sum: int


@takes_linear
class Conv(Plan):
    """A convolution with constant weights, channels last, exact on every CPU.

    `weights` is (O, *kernel, I/groups), int8 or uint8, with 1, 2 or 3 spatial dimensions. The input is
    (batch, *extents, I), the output (batch, *extents, O). `stride`, `dilation`, `padding` and
    `output_padding`: one integer, or one for each dimension; an entry of `padding` may be a pair (begin,
    end). `input`: the input's extents. Without `input`, extents may differ from run to run. `transposed`: a
    transposed convolution. For other arguments see `Gemm`; a column is an output channel. Raises
    `intact.Error`. Any number of threads may run one plan at once."""

    _kind = "conv"

    def __init__(
        self,
        weights: Any,
        *,
        input: Sequence[int] | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        transposed: bool = False,
        output_padding: Any = 0,
        **linear: Any,
    ):
        weights = array_of("weights", weights)
        dims = weights.ndim - 2
        if not 1 <= dims <= 3:
            raise invalid(
                f"weights: has {weights.ndim} dimensions; expected 3, 4 or 5: (O, *kernel, I/groups)"
            )
        arithmetic = Linear(b_type=type_name("weights", weights, ("s8", "u8")), **linear)
        desc = ffi.new("intact_conv_desc *")
        desc.struct_size = ffi.sizeof(desc[0])
        desc.spatial_dims, desc.transposed, desc.groups = dims, int(transposed), integer("groups", groups)
        desc.input_channels = weights.shape[-1] * groups
        desc.output_channels = weights.shape[0]
        arithmetic.check_columns(desc.output_channels)
        extents = [-1] * dims if input is None else self._each("input", input, dims)
        for i in range(dims):
            desc.input[i] = integer("input", extents[i])
            desc.kernel[i] = weights.shape[1 + i]
            desc.stride[i] = integer("stride", self._each("stride", stride, dims)[i])
            desc.dilation[i] = integer("dilation", self._each("dilation", dilation, dims)[i])
            begin_end = self._each("padding", padding, dims)[i]
            ends = begin_end if isinstance(begin_end, (tuple, list)) else (begin_end, begin_end)
            if len(ends) != 2:
                raise invalid(f"padding: an entry is {begin_end!r}; expected an integer, or (begin, end)")
            desc.pad_begin[i], desc.pad_end[i] = (integer("padding", end) for end in ends)
            desc.output_pad[i] = integer(
                "output_padding", self._each("output_padding", output_padding, dims)[i]
            )
        handle = ffi.new("intact_conv **")
        weights = np.ascontiguousarray(weights)
        self._call("create", desc, arithmetic.desc, pointer(weights), handle)
        super().__init__(handle[0])

    @staticmethod
    def _each(argument: str, value: Any, dims: int) -> list:
        values = list(value) if isinstance(value, (tuple, list, np.ndarray)) else [value] * dims
        if len(values) != dims:
            raise invalid(f"{argument}: has {len(values)} entries; expected {dims}")
        return values

    def _describe(self, info: Any) -> None:
        super()._describe(info)
        self.spatial_dims = info.spatial_dims
        self.input_channels, self.output_channels = info.input_channels, info.output_channels

    def bind(
        self,
        a: Any,
        out: Any = None,
        *,
        residual: Any = None,
        a_scales: Any = None,
        a_zero_points: Any = None,
        threads: int = 0,
    ) -> Call:
        """run() computes the convolution in a new array, or in `out`. bind() returns a `Call`; each call of
        it computes the convolution again. `a` has the shape (batch, *extents, I). Pixels may have any
        stride; nothing is copied. `threads`: 0 is OpenMP's default. `a_scales`, `a_zero_points`: one value
        each, if the plan's quantization is "tensor"."""
        dims = self.spatial_dims
        a = self._input("a", a, self.a_dtype, dims + 2)
        if a.shape[-1] != self.input_channels:
            raise invalid(f"a: has {counted(a.shape[-1], 'channel')}; expected {self.input_channels}")
        args = ffi.new("intact_conv_args *")
        args.struct_size = ffi.sizeof(args[0])
        args.batch = a.shape[0]
        for i in range(dims):
            args.input[i] = a.shape[1 + i]
        info = ffi.new("intact_run_info *")
        info.struct_size = ffi.sizeof(info[0])
        self._call("prepare", self.handle, args, info)
        shape = (a.shape[0], *(info.output[i] for i in range(dims)), self.output_channels)
        out = self._output(out, shape, self.c_dtype)
        kept = [a, out]
        self._place("a", a, args)
        self._place("c", out, args)
        if residual is not None:
            residual = self._residual(residual, out.shape)
            self._place("residual", residual, args)
            kept.append(residual)
        args.threads = integer("threads", threads)
        kept += self._quantize(args, a_scales, a_zero_points, 0)
        return Call(lib.intact_conv_run, self, args, tuple(kept), out)

    @staticmethod
    def _place(name: str, array: np.ndarray, args: Any) -> None:
        """Sets a tensor's address and stride. The distance between adjacent pixels must be the same
        everywhere."""
        if array.flags.c_contiguous:
            setattr(args, name, pointer(array))
            return
        row_strides(name, array)
        step, pixels = 0, 1
        for extent, found in zip(array.shape[-2::-1], array.strides[-2::-1]):
            if extent == 1:
                continue
            if step == 0:
                step = found // pixels if found % pixels == 0 else 0
            if found != step * pixels or not step:
                raise invalid(
                    f"{name}: pixels are not equally far apart: a stride is {found} bytes; expected {step * pixels}"
                )
            pixels *= extent
        setattr(args, name, pointer(array))
        setattr(args, name + "_stride", step // array.itemsize)

    run = run_of(bind)

    def tune(self, input: Sequence[int] | None = None, *, milliseconds: float = 0.0) -> Tuned:
        """Times the kernels for an input of these extents until `milliseconds` are spent, at least four runs
        each, and chooses the fastest. No other call may use the plan meanwhile."""
        info = self._tune_info()
        extents = ffi.NULL
        if input is not None:
            extents = ffi.new("int64_t[3]", self._each("input", input, self.spatial_dims))
        self._call("tune", self.handle, extents, milliseconds, info)
        return self._tuned(info)

    def certificate(self, pairing: str = "within_tap") -> Certificate:
        """How many pairs of weights can make VPMADDUBSW saturate. `pairing`: "within_tap" (oneDNN, OpenVINO)
        or "flattened" (FBGEMM, ONNX Runtime)."""
        return self._certificate(pairing_of(pairing))

    def failing_pairs(
        self, pairing: str = "within_tap", first: int = 0, count: int | None = None
    ) -> list[ConvFailingPair]:
        """The pairs that can saturate, by output channel, tap and channel: from number `first` on, all or at
        most `count`."""
        pairs = self._failing_pairs(first, count, pairing_of(pairing)).tolist()
        return [ConvFailingPair(output, tuple(tap), *rest) for output, tap, *rest in pairs]
