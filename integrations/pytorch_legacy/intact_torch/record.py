"""Records calls of intact's operators while a converted model runs, and repeats them on PyTorch's engine."""

import dataclasses
from typing import List, Optional

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import reference


@dataclasses.dataclass
class Call:
    """One call of an operator: its arguments and its output."""

    operator: str  # "linear", "linear_dynamic", "conv" or "conv_add"
    params: object
    input: torch.Tensor
    output: torch.Tensor
    relu: bool
    scale: float = 1.0  # of the output
    zero_point: int = 0
    residual: Optional[torch.Tensor] = None
    per_row: bool = False
    reduce_range: bool = False  # whether PyTorch's layer uses 7 bits of its input

    @property
    def layer(self) -> str:
        return self.params.layer()

    @property
    def is_dynamic(self) -> bool:
        return self.operator == "linear_dynamic"

    def kind(self) -> str:
        """PyTorch's name of the operator: "conv2d", "conv_transpose1d", "linear", "linear_dynamic"."""
        if not reference.is_conv(self.params):
            return self.operator
        return f"conv{'_transpose' if self.params.transposed() else ''}{self.params.weight().dim() - 2}d"

    def reference_output(self) -> torch.Tensor:
        """The output that the contract defines: integers, or the real numbers of a dynamic layer."""
        if self.is_dynamic:
            return reference.dynamic_output(self.input, self.params, self.per_row, self.relu)
        return reference.output(
            self.input, self.params, self.scale, self.zero_point, self.relu, self.residual
        )

    def engine_output(self) -> torch.Tensor:
        """The output of PyTorch's current engine. Throws if the engine has no such operator."""
        p, ops = self.params, torch.ops.quantized
        if self.residual is not None:
            raise RuntimeError("PyTorch has no convolution with a residual")
        if not reference.is_conv(p):
            packed = ops.linear_prepack(p.weight(), p.bias())
            if self.is_dynamic:
                # qnnpack ignores reduce_range, with a warning at each call.
                reduce_range = self.reduce_range and torch.backends.quantized.engine != "qnnpack"
                return (ops.linear_relu_dynamic if self.relu else ops.linear_dynamic)(
                    self.input, packed, reduce_range
                )
            return (ops.linear_relu if self.relu else ops.linear)(
                self.input, packed, self.scale, self.zero_point
            )
        if p.transposed() and self.relu:
            raise RuntimeError("PyTorch has no transposed convolution with ReLU")
        extra = [p.output_padding()] if p.transposed() else []
        packed = getattr(ops, self.kind() + "_prepack")(
            p.weight(), p.bias(), p.stride(), p.padding(), *extra, p.dilation(), p.groups()
        )
        operator = getattr(ops, self.kind() + ("_relu" if self.relu else ""))
        return operator(self.input, packed, self.scale, self.zero_point)


class _Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls: List[Call] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        namespace, _, operator = str(function).partition(".")
        operator = operator.rpartition(".")[0]
        if namespace != "intact" or operator in ("quantize", "add", "add_relu"):  # not products
            return output
        relu = operator.endswith("_relu")
        operator = operator[: -len("_relu")] if relu else operator
        input, *rest = args
        if operator == "linear_dynamic":
            params, per_row, relu, reduce_range = (rest + [False] * 3)[:4]
            self.calls.append(
                Call(operator, params, input, output, relu, per_row=per_row, reduce_range=reduce_range)
            )
            return output
        residual = rest.pop(0) if operator == "conv_add" else None
        params, scale, zero_point, *unfused = rest
        if unfused:
            unfused = (unfused + [0])[:2]  # a zero point of 0 is left out
            alone = torch.ops.intact.conv(input, params, *unfused)
            if alone.shape != output.shape:  # the sum was a separate call
                self.calls.append(Call("conv", params, input, alone, False, *unfused))
                return output
        self.calls.append(Call(operator, params, input, output, relu, scale, zero_point, residual))
        return output


def record(model: torch.nn.Module, *arguments) -> List[Call]:
    """The calls that model(*arguments) makes, in order."""
    recorder = _Recorder()
    with torch.no_grad(), recorder:
        model(*arguments)
    return recorder.calls


def batches(inputs) -> List[tuple]:
    """The arguments of each call of a model. `inputs`: a tensor, a tuple of arguments, or a list of either."""
    return [
        batch if isinstance(batch, tuple) else (batch,)
        for batch in (inputs if isinstance(inputs, list) else [inputs])
    ]
