"""Values and constants of a module while it is translated, and what PyTorch's operators are called."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

try:
    from torch.export import ExportedProgram
except ImportError:  # before PyTorch 2.1

    class ExportedProgram: ...  # type: ignore[no-redef]


# Elementwise operators. PyTorch's names are in lower case, without underscores.
ELEMENTWISE = {
    "relu": "Relu",
    "leakyrelu": "LeakyRelu",
    "elu": "Elu",
    "selu": "Selu",
    "celu": "Celu",
    "sigmoid": "Sigmoid",
    "hardsigmoid": "HardSigmoid",
    "hardswish": "HardSwish",
    "tanh": "Tanh",
    "erf": "Erf",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "rsqrt": "Reciprocal",
    "reciprocal": "Reciprocal",
    "neg": "Neg",
    "abs": "Abs",
    "silu": "Swish",
    "gelu": "Gelu",
    "mish": "Mish",
    "softplus": "Softplus",
    "softsign": "Softsign",
}
KEEPING = set(
    """identity dropout dropout1d dropout2d featuredropout alphadropout clone contiguous detach alias
    float to typeas tocopy liftfreshcopy stochasticdepth""".split()
)
BOUNDED = {"relu6", "hardtanh", "clamp", "clip", "clampmin", "clampmax"}
BINARY = {
    "add": "Add",
    "iadd": "Add",
    "sub": "Sub",
    "isub": "Sub",
    "mul": "Mul",
    "imul": "Mul",
    "div": "Div",
    "truediv": "Div",
    "truedivide": "Div",
    "itruediv": "Div",
    "pow": "Pow",
    "ipow": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "addrelu": "Add",
    "mulrelu": "Mul",
    "addscalar": "Add",
    "mulscalar": "Mul",
}
POOLS = {
    f"{kind}{dims}d": op
    for dims in (1, 2, 3)
    for kind, op in (
        ("maxpool", "MaxPool"),
        ("avgpool", "AveragePool"),
        ("adaptiveavgpool", "AveragePool"),
        ("adaptivemaxpool", "MaxPool"),
    )
}
REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "amax": "ReduceMax", "amin": "ReduceMin"}
KEEPS_SCALE = (
    KEEPING
    | BOUNDED
    | set(POOLS)
    | set(
        "relu mean view reshape flatten transpose permute squeeze unsqueeze getitem slice chunk split".split()
    )
)
# PyTorch's names of products of activations and constant weights.
LINEAR = {"linear", "linearrelu", "linearleakyrelu", "lineartanh", "lineardynamic", "linearreludynamic"}
CONV = {f"conv{dims}d{relu}" for dims in (1, 2, 3) for relu in ("", "relu")} | {
    f"convrelu{dims}d" for dims in (1, 2, 3)
}
PRODUCTS = ("conv", "linear", "lstm", "gru", "rnn", "cell", "attention", "matmul")
# namespaces of products
PACKED = ("quantized.", "torch.ao.nn.", "torch.nn.quantized", "torch.nn.intrinsic.quantized")


class Unknown(Exception):
    """The operator has no translation."""


@dataclass
class Place:
    """The source of a constant of the translated model: `tensor`, or the part `part` of packed weights.
    `owner`: the module that has the packed weights, itself or in its attribute `attribute`."""

    identity: str  # the operator that reads the initializer
    tensor: Any = None
    owner: Any = None
    attribute: str = ""
    part: str = ""


@dataclass
class Translation:
    """`proto`: the module as an ONNX model. `operators`: PyTorch's names of products, by the names in the
    ONNX model."""

    proto: Any
    places: list[Place] = field(default_factory=list)
    operators: dict[str, str] = field(default_factory=dict)
    is_exported: bool = False  # whether the graph itself quantizes: a program of torch.export


@dataclass
class Value:
    """A tensor of a run. `rank`: None if the caller decides it; then only the last dimension is known."""

    name: str
    rank: int | None = None
    scale: float = 0.0  # the scale of u8 values; 0 if not known
    point: int = 0
    is_u8: bool = False
    is_quantized: bool = False  # whether it is u8 in a quantized tensor of PyTorch
    integers: "Value | None" = None  # the tensor that was dequantized to this one


@dataclass
class Constant:
    """A tensor of the module; with `scale`, dequantized."""

    tensor: Any
    scale: Any = None
    point: Any = None


@dataclass
class Packed:
    """Packed weights of a quantized module, in the module itself or in its attribute `attribute`."""

    owner: Any
    attribute: str = ""

    @property
    def held(self) -> Any:
        return getattr(self.owner, self.attribute) if self.attribute else self.owner

    @property
    def is_linear(self) -> bool:
        if self.attribute:
            return not self.held._has_method("stride")  # only packed weights of convolutions have it
        return "Linear" in type(self.owner).__name__

    def weight_bias(self) -> tuple[Any, Any]:
        if not self.attribute:
            return self.owner.weight(), self.owner.bias()
        if self.is_linear:
            return torch.ops.quantized.linear_unpack(self.held)
        return self.held.unpack()

    def option(self, name: str) -> Any:
        value = getattr(self.held, name)
        return value() if callable(value) else value

    def set(self, weight: Any, bias: Any, groups: int) -> None:
        if not self.attribute:
            for name, count in self._sizes(weight, groups).items():
                setattr(self.owner, name, count)
            self.owner.set_weight_bias(weight, bias)
            return
        if self.is_linear:
            packed = torch.ops.quantized.linear_prepack(weight, bias)
        else:
            prepack = getattr(torch.ops.quantized, f"conv{weight.dim() - 2}d_prepack")
            packed = prepack(
                weight, bias, self.option("stride"), self.option("padding"), self.option("dilation"), groups
            )
        setattr(self.owner, self.attribute, packed)

    def _sizes(self, weight: Any, groups: int) -> dict[str, int]:
        if self.is_linear:
            return {"in_features": weight.shape[1], "out_features": weight.shape[0]}
        return {"in_channels": weight.shape[1] * groups, "out_channels": weight.shape[0], "groups": groups}


def key_of(name: str) -> str:
    return name.lower().replace("_", "")
