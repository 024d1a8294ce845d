"""Writes the ONNX model of a module: names, constants, operators."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import torch
from torch import fx

from ._values import KEEPS_SCALE, Constant, ExportedProgram, Packed, Place, Translation, Unknown, Value


class Emitter:
    """The ONNX model that is being made, and the values of the graph's nodes."""

    def __init__(self, module: Any, graph: Any):
        from onnx import TensorProto, helper, numpy_helper

        self.helper, self.numpy_helper, self.types = helper, numpy_helper, TensorProto
        self.module, self.graph = module, graph
        self.nodes: list = []
        self.initializers: dict[str, np.ndarray] = {}
        self.infos: dict[str, Any] = {}
        self.outputs: list[str] = []
        self.names: set[str] = set()  # names of tensors
        self.node_names: set[str] = set()
        self.values: dict[Any, Any] = {}
        self.constants: dict[Any, str] = {}
        self.done = Translation(None)
        self.is_exported = isinstance(module, ExportedProgram)
        if not self.is_exported:
            self.modules = dict(module.named_modules())

    def unique(self, name: str, names: "set[str] | None" = None) -> str:
        names = self.names if names is None else names
        found, count = name, 1
        while found in names:
            count += 1
            found = f"{name}_{count}"
        names.add(found)
        return found

    def emit(
        self,
        op: str,
        inputs: list[str],
        outputs: int = 1,
        domain: str = "",
        name: str = "",
        **attributes: Any,
    ) -> Any:
        name = self.unique(name or f"{self.node.name} {op}", self.node_names)
        made = (
            [self.unique(f"{name}.{k}") for k in range(outputs)]
            if outputs > 1
            else [self.unique(f"{name}.out")]
        )
        attributes = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(self.helper.make_node(op, inputs, made, name=name, domain=domain, **attributes))
        return made if outputs > 1 else made[0]

    def state(self, name: str, kind: int, shape: Any) -> None:
        if name not in self.infos:
            self.infos[name] = self.helper.make_tensor_value_info(name, kind, shape)

    def scalar(self, value: Any, dtype: Any = np.float32) -> str:
        """A number as an initializer."""
        key = ("scalar", value, np.dtype(dtype).name)
        if key not in self.constants:
            self.constants[key] = self.unique(f"{value}")
            self.initializers[self.constants[key]] = np.array(value, dtype)
        return self.constants[key]

    def vector(self, values: list[int]) -> str:
        key = ("vector", *values)
        if key not in self.constants:
            self.constants[key] = self.unique(f"{values}")
            self.initializers[self.constants[key]] = np.array(values, np.int64)
        return self.constants[key]

    def _placed(self, key: Any, name: str, array: np.ndarray, place: Place) -> str:
        if key not in self.constants:
            initializer = self.unique(name)
            self.initializers[initializer] = array
            self.constants[key] = self.emit("Identity", [initializer], name=f"{name} read")
            place.identity = self.nodes[-1].name
            self.done.places.append(place)
        return self.constants[key]

    def constant(self, tensor: Any, shape: tuple | None = None, dtype: Any = None) -> str:
        """A tensor of the module. A vector is reshaped to the rank of `shape` if it differs."""
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_quantized or tensor.is_sparse:
            raise Unknown
        array = tensor.detach().to(torch.float32) if tensor.dtype is torch.bfloat16 else tensor.detach()
        array = array.numpy() if dtype is None else array.numpy().astype(dtype)
        name = self._placed(id(tensor), f"constant {len(self.done.places)}", array, Place("", tensor=tensor))
        if shape is None or len(shape) == tensor.dim():
            return name
        shape = (tensor.numel(), *shape[1:])
        key = (id(tensor), shape)
        if key not in self.constants:
            self.constants[key] = self.emit(
                "Reshape", [name, self.vector(list(shape))], name=f"{name} shaped"
            )
            self.state(self.constants[key], self.numpy_helper.from_array(array).data_type, shape)
        return self.constants[key]

    def packed(self, packed: Packed, path: str) -> tuple[Any, dict[str, str]]:
        """Unpacks weights: the weights, and the names of their parts as constants."""
        weight, bias = packed.weight_bias()
        if weight.dtype is not torch.qint8:
            raise Unknown
        parts = {"weight": weight.int_repr()}
        if weight.qscheme() == torch.per_tensor_affine:
            parts["scale"] = torch.tensor(weight.q_scale(), dtype=torch.float64)
            parts["zero_point"] = torch.tensor(weight.q_zero_point())
        elif weight.q_per_channel_axis() == 0:
            parts["scale"], parts["zero_point"] = (
                weight.q_per_channel_scales(),
                weight.q_per_channel_zero_points(),
            )
        else:
            raise Unknown
        parts["zero_point"] = parts["zero_point"].to(torch.int8)
        if bias is not None:
            parts["bias"] = bias.detach()
        names = {
            part: self._placed(
                (id(packed.owner), packed.attribute, part),
                f"{path}.{part}",
                value.numpy(),
                Place("", owner=packed.owner, attribute=packed.attribute, part=part),
            )
            for part, value in parts.items()
        }
        return weight, names

    def value(self, argument: Any) -> Any:
        """The translation of an argument: a `Value`, a `Constant`, a list of these, or the argument
        itself."""
        if isinstance(argument, fx.Node):
            return self.values.get(argument)
        if isinstance(argument, (list, tuple)):
            return [self.value(one) for one in argument]
        return argument

    def name_of(self, value: Any) -> str:
        """The ONNX tensor of a value."""
        if isinstance(value, Value):
            return value.name
        if isinstance(value, (bool, int, float)):
            return self.scalar(float(value))
        if not isinstance(value, Constant):
            raise Unknown
        if value.scale is None:
            return self.constant(value.tensor)
        key = (id(value.tensor), "dequantized")
        if key not in self.constants:
            self.constants[key] = self.emit(
                "DequantizeLinear",
                [
                    self.constant(value.tensor),
                    self._operand(value.scale, np.float64),
                    self._operand(value.point, np.int8),
                ],
                axis=0,
            )
        return self.constants[key]

    def _operand(self, value: Any, dtype: Any) -> str:
        """A scale or a zero point, for the whole tensor or for each channel."""
        if isinstance(value, Constant):
            return self.constant(value.tensor, dtype=dtype)
        return self.scalar(value, dtype)

    def shape_of(self, node: Any) -> list | None:
        """A tensor's sizes as the graph states them. The first size of a module's tensors is open, because
        batches vary."""
        found = node.meta.get("val")
        is_example = found is None
        found = node.meta.get("tensor_meta") if is_example else found
        shape = getattr(found, "shape", None)
        if shape is None:
            return None
        sizes = [size if isinstance(size, int) else None for size in shape]
        return [None, *sizes[1:]] if is_example and sizes else sizes

    def _tensors(self, argument: Any) -> Iterator[Any]:
        """The tensors among arguments, also within lists and dictionaries."""
        if isinstance(argument, (list, tuple)):
            for one in argument:
                yield from self._tensors(one)
        elif isinstance(argument, dict):
            yield from self._tensors(list(argument.values()))
        elif isinstance(argument, fx.Node):
            yield from self._tensors(self.value(argument))
        elif isinstance(argument, (Value, Constant)):
            yield argument

    @staticmethod
    def _is_plain(value: Any) -> bool:
        return isinstance(value, Value) or (
            type(value.tensor) in (torch.Tensor, torch.nn.Parameter) and not value.tensor.is_quantized
        )

    def option(self, i: int, name: str, default: Any = None) -> Any:
        """An argument of a call, by its place or its name; for a module, its attribute."""
        if self.owner is not None:
            return getattr(self.owner, name, default)
        argument = self.node.args[i] if i < len(self.node.args) else self.node.kwargs.get(name, default)
        return self.value(argument)

    def like(self, x: Any, name: str, rank: Any = "same") -> Value:
        """The result `name` of an operator that reads x."""
        rank = getattr(x, "rank", None) if rank == "same" else rank
        if isinstance(x, Constant):
            return Value(name, x.tensor.dim() if rank is None else rank)
        keeps = self.key in KEEPS_SCALE
        if x.is_u8 and keeps:
            return Value(name, rank, x.scale, x.point, True, x.is_quantized)
        if x.is_quantized:
            return Value(name, rank, *self._output_scale(), True, True)
        return Value(name, rank)
