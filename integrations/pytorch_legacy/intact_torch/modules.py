"""The modules with which convert() replaces PyTorch's quantized modules.

Each holds `params`, a torch.classes.intact object: weights and bias as PyTorch quantized them, the geometry, and the options of
the conversion. State dicts have the keys of PyTorch's modules, so that each loads the other's.
"""

from typing import Optional

import torch
import torch.ao.nn.quantized as nnq


class _Layer(torch.nn.Module):
    """Base of the layers. Scale and zero point are the output's."""

    def __init__(self, params, relu: bool, scale: float, zero_point: int):
        super().__init__()
        self.params = params
        self.relu = relu
        self.scale = float(scale)
        self.zero_point = int(zero_point)

    def weight(self) -> torch.Tensor:
        return self.params.weight()

    def bias(self) -> Optional[torch.Tensor]:
        return self.params.bias()

    def set_weight_bias(self, weight: torch.Tensor, bias: Optional[torch.Tensor]) -> None:
        self.params = self.params.with_weights(weight, bias)

    def extra_repr(self):
        words = [f"{tuple(self.weight().shape)}, scale={self.scale}, zero_point={self.zero_point}"]
        words.append(f"mode={self.params.mode()}")
        if self.params.max_isa() != "any":
            words.append(f"max_isa={self.params.max_isa()}")
        if self.relu:
            words.append("relu=True")
        return ", ".join(words)

    _output = ""  # prefix of "scale" and "zero_point" in a state dict

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + self._output + "scale"] = torch.tensor(self.scale)
        destination[prefix + self._output + "zero_point"] = torch.tensor(self.zero_point)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        self.scale = float(state_dict.pop(prefix + self._output + "scale"))
        self.zero_point = int(state_dict.pop(prefix + self._output + "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class _LinearState(torch.nn.Module):
    """Saves and loads weights like PyTorch's linear modules: under their submodule `_packed_params`."""

    def __init__(self, params, *rest):
        super().__init__(params, *rest)
        # attributes of PyTorch's modules that models read
        self.out_features, self.in_features = params.weight().shape

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        prefix += "_packed_params."
        destination[prefix + "dtype"] = torch.qint8
        destination[prefix + "_packed_params"] = (self.weight(), self.bias())
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = {"version": 3}

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        state_dict.pop(prefix + "_packed_params.dtype", None)
        self.set_weight_bias(*state_dict.pop(prefix + "_packed_params._packed_params"))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Linear(_LinearState, _Layer):
    _version = 3

    def forward(self, input):
        if self.relu:
            return torch.ops.intact.linear_relu(input, self.params, self.scale, self.zero_point)
        return torch.ops.intact.linear(input, self.params, self.scale, self.zero_point)


class DynamicLinear(_LinearState, _Layer):
    """Quantizes its input in each call: the tensor with one scale, or each row with its own. Its output is float32.

    reduce_range: PyTorch's layer used 7 bits of its input. This layer uses 8 all the same.
    """

    _version = 4

    def __init__(self, params, relu: bool, per_row: bool, reduce_range: bool = False):
        super().__init__(params, relu, 1.0, 0)
        self.per_row = per_row
        self.reduce_range = reduce_range

    def extra_repr(self):
        return f"{super().extra_repr()}, per={'row' if self.per_row else 'tensor'}"

    def forward(self, input):
        # the operator refuses integers
        real = input.to(torch.float32) if torch.is_floating_point(input) else input
        return torch.ops.intact.linear_dynamic(
            real, self.params, self.per_row, self.relu, self.reduce_range
        ).to(input.dtype)


class _ConvState(torch.nn.Module):
    def __init__(self, params, *rest):
        super().__init__(params, *rest)
        # Attributes of PyTorch's modules that models read.
        channels = list(params.weight().shape[:2])
        channels[1] *= params.groups()
        self.in_channels, self.out_channels = channels if params.transposed() else reversed(channels)
        self.kernel_size, self.groups = tuple(params.weight().shape[2:]), params.groups()
        self.stride, self.padding, self.dilation = (
            tuple(v) for v in (params.stride(), params.padding(), params.dilation())
        )

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = self.weight()
        destination[prefix + "bias"] = self.bias()

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        self.set_weight_bias(state_dict.pop(prefix + "weight"), state_dict.pop(prefix + "bias"))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Conv(_ConvState, _Layer):
    """A convolution of one to three dimensions, or a transposed one."""

    def forward(self, input):
        if self.relu:
            return torch.ops.intact.conv_relu(input, self.params, self.scale, self.zero_point)
        return torch.ops.intact.conv(input, self.params, self.scale, self.zero_point)

    def extra_repr(self):
        words = [
            f"stride={self.stride}",
            f"padding={self.padding}",
            f"dilation={self.dilation}",
            f"groups={self.groups}",
        ]
        if self.params.transposed():
            words.append(f"transposed, output_padding={self.params.output_padding()}")
        return f"{super().extra_repr()}, {', '.join(words)}"


class ConvAdd(_ConvState, _Layer):
    """A convolution that adds a residual before it rounds. Scale and zero point are the sum's.

    If the convolution's output broadcasts to the residual, the residual is added after rounding, as in PyTorch; conv_scale and
    conv_zero_point are for that rounding. The state dict calls the sum's values sum_scale and sum_zero_point, because "scale" and
    "zero_point" are the convolution's there, as in PyTorch's.
    """

    _output = "sum_"

    def __init__(
        self, params, relu: bool, scale: float, zero_point: int, conv_scale: float, conv_zero_point: int
    ):
        super().__init__(params, relu, scale, zero_point)
        self.conv_scale = float(conv_scale)
        self.conv_zero_point = int(conv_zero_point)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = torch.tensor(self.conv_scale)
        destination[prefix + "zero_point"] = torch.tensor(self.conv_zero_point)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        self.conv_scale = float(state_dict.pop(prefix + "scale"))
        self.conv_zero_point = int(state_dict.pop(prefix + "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, input, residual):
        if self.relu:
            return torch.ops.intact.conv_add_relu(
                input,
                residual,
                self.params,
                self.scale,
                self.zero_point,
                self.conv_scale,
                self.conv_zero_point,
            )
        return torch.ops.intact.conv_add(
            input, residual, self.params, self.scale, self.zero_point, self.conv_scale, self.conv_zero_point
        )


class Quantize(nnq.Quantize):
    """PyTorch's module, computed with vector instructions. Errors name the layer."""

    def __init__(self, scale, zero_point, dtype, layer: str = ""):
        super().__init__(scale, zero_point, dtype)
        self.layer = layer

    def forward(self, X):
        return torch.ops.intact.quantize(X, float(self.scale), int(self.zero_point), self.dtype, self.layer)


class Functional(nnq.QFunctional):
    """PyTorch's module with intact's sums: the same bytes in less time. Errors name the layer.

    convert() makes it from PyTorch's object, and sets `layer`.
    """

    def add(self, x, y):
        return self.activation_post_process(
            torch.ops.intact.add(x, y, self.scale, self.zero_point, self.layer)
        )

    def add_relu(self, x, y):
        return self.activation_post_process(
            torch.ops.intact.add_relu(x, y, self.scale, self.zero_point, self.layer)
        )


#: The modules that convert() inserts.
OURS = (Linear, DynamicLinear, Conv, ConvAdd, Quantize, Functional)
