"""Random layers and tensors for the tests."""

import intact_torch  # noqa: F401  # loads the operators
import torch

INTACT = torch.ops.intact


def activations(shape, dtype=torch.quint8, generator=None, scale=0.03, zero_point=None):
    """Random activations: all values of the type, also the extreme ones."""
    if zero_point is None:
        zero_point = 117 if dtype == torch.quint8 else -11
    low = torch.iinfo(dtype).min
    integers = torch.randint(low, low + 256, shape, generator=generator)
    integers = integers.to(torch.uint8 if dtype == torch.quint8 else torch.int8)
    return torch._make_per_tensor_quantized_tensor(integers, scale, zero_point)


def weights(shape, per_channel=True, axis=0, zero_points=False, generator=None):
    integers = torch.randint(-128, 128, shape, generator=generator).to(torch.int8)
    if not per_channel:
        return torch._make_per_tensor_quantized_tensor(integers, 0.007, 5 if zero_points else 0)
    channels = shape[axis]
    scales = torch.rand(channels, generator=generator, dtype=torch.float64) * 0.01 + 0.002
    zeros = torch.randint(-20, 20, [channels], generator=generator) if zero_points else torch.zeros(channels)
    return torch._make_per_channel_quantized_tensor(integers, scales, zeros.to(torch.int64), axis)


def linear(weight, bias=None, mode="exact", max_isa="any", layer="layer"):
    return torch.classes.intact.Linear(weight, bias, layer, mode, max_isa)


def conv(
    weight,
    bias=None,
    stride=1,
    padding=0,
    output_padding=0,
    dilation=1,
    groups=1,
    transposed=False,
    mode="exact",
    max_isa="any",
    layer="layer",
):
    dims = weight.dim() - 2
    arrays = [
        list(v) if isinstance(v, (list, tuple)) else [v] * dims
        for v in (stride, padding, output_padding, dilation)
    ]
    return torch.classes.intact.Conv(weight, bias, *arrays, groups, transposed, layer, mode, max_isa)
