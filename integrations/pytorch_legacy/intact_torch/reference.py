"""The operators' contract (include/intact/intact.h) in a few lines of PyTorch, slow and simple.

Sums are float64. They are exact for fewer than 2^36 products of 8 bits.
"""

from typing import Optional

import torch
import torch.nn.functional as F

_CONVOLUTIONS = {
    (3, False): F.conv1d,
    (4, False): F.conv2d,
    (5, False): F.conv3d,
    (3, True): F.conv_transpose1d,
    (4, True): F.conv_transpose2d,
    (5, True): F.conv_transpose3d,
}


def weight_quantization(weight: torch.Tensor, output_channels: int):
    """Scales (float64) and zero points of the weights of each output channel."""
    if weight.qscheme() == torch.per_tensor_affine:
        return (
            torch.full([output_channels], weight.q_scale(), dtype=torch.float64),
            torch.full([output_channels], weight.q_zero_point(), dtype=torch.int64),
        )
    repeats = output_channels // weight.q_per_channel_scales().numel()
    return (
        weight.q_per_channel_scales().to(torch.float64).repeat(repeats),
        weight.q_per_channel_zero_points().to(torch.int64).repeat(repeats),
    )


def output_channels(params) -> int:
    weight = params.weight()
    return weight.size(1) * params.groups() if is_conv(params) and params.transposed() else weight.size(0)


def is_conv(params) -> bool:
    return params.weight().dim() > 2


def product(input: torch.Tensor, weight: torch.Tensor, params) -> torch.Tensor:
    """The layer's sums of products of float64 tensors, in PyTorch's shapes."""
    if not is_conv(params):
        return input @ weight.t()
    geometry = dict(
        stride=params.stride(), padding=params.padding(), dilation=params.dilation(), groups=params.groups()
    )
    if params.transposed():
        geometry["output_padding"] = params.output_padding()
    return _CONVOLUTIONS[weight.dim(), params.transposed()](input, weight, **geometry)


def channelwise(values: torch.Tensor, params) -> torch.Tensor:
    """A value for each output channel, in a shape that broadcasts over the layer's output."""
    return values.reshape([-1] + [1] * (params.weight().dim() - 2)) if is_conv(params) else values


def accumulators(input: torch.Tensor, params) -> torch.Tensor:
    """Σ (a − za)·(b − zb), int64, in the output's shape."""
    weight = params.weight()
    _, zero_points = weight_quantization(weight, output_channels(params))
    axis = 1 if is_conv(params) and params.transposed() else 0
    shape = [1] * weight.dim()
    shape[axis] = -1
    # Groups of a transposed convolution share the zero points along its axis.
    centred = weight.int_repr().to(torch.float64) - zero_points[: weight.size(axis)].reshape(shape)
    return product(input.int_repr().to(torch.float64) - input.q_zero_point(), centred, params).to(torch.int64)


def output(
    input: torch.Tensor,
    params,
    scale: float,
    zero_point: int,
    relu: bool = False,
    residual: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """The output of a static layer, as integers."""
    scales, _ = weight_quantization(params.weight(), output_channels(params))
    real = accumulators(input, params).to(torch.float32)
    real = real * channelwise((input.q_scale() * scales / scale).to(torch.float32), params)
    if params.bias() is not None:
        real = real + channelwise((params.bias().to(torch.float64) / scale).to(torch.float32), params)
    if residual is not None:
        centred = (residual.int_repr().to(torch.int32) - residual.q_zero_point()).to(torch.float32)
        real = real + centred * torch.tensor(residual.q_scale() / scale, dtype=torch.float32)
    if relu:
        real = real.clamp(min=0)
    return quantized(real, zero_point, input.dtype)


def quantized(real: torch.Tensor, zero_point: int, dtype: torch.dtype) -> torch.Tensor:
    """Rounds to nearest even, adds the zero point, and clamps to the type's range."""
    limits = torch.iinfo(dtype)
    integers = (real.round() + zero_point).clamp(limits.min, limits.max)
    return integers.to(torch.uint8 if dtype == torch.quint8 else torch.int8)


def dynamic_output(input: torch.Tensor, params, per_row: bool, relu: bool = False) -> torch.Tensor:
    """The output of a layer that quantizes its float32 input to u8 in each call, like ONNX's DynamicQuantizeLinear."""
    rows = input.reshape(-1, input.size(-1))
    ranges = rows if per_row else rows.reshape(1, -1)
    low, high = ranges.amin(1, True).clamp(max=0), ranges.amax(1, True).clamp(min=0)
    scale = (high - low) / 255
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero_point = (0 - low / scale).round().clamp(0, 255)
    integers = ((rows / scale).round() + zero_point).clamp(0, 255)
    weight_scales, zero_points = weight_quantization(params.weight(), output_channels(params))
    weight = params.weight().int_repr().to(torch.float64) - zero_points[:, None]
    sums = (integers - zero_point).to(torch.float64) @ weight.t()
    real = sums.to(torch.float32) * (scale * weight_scales.to(torch.float32))
    if params.bias() is not None:
        real = real + params.bias()
    if relu:
        real = real.clamp(min=0)
    return real.reshape(*input.shape[:-1], -1)
