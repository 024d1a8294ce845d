"""Translates a PyTorch module's graph to ONNX, for the audit and the planner of orders. The ONNX model is never run.

Each constant is an initializer that only one operator reads (Identity). So it has one layout, however often the module reads it,
and can be written back. An operator without a translation gets a name that nothing knows, so its inputs and outputs keep their
order.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Iterator

import numpy as np

import torch
from torch import fx

from .._library import Error, excerpt, invalid

try:
    from torch.export import ExportedProgram
except ImportError:  # before PyTorch 2.1
    class ExportedProgram: ...  # type: ignore[no-redef]

# Elementwise operators. PyTorch's names are in lower case, without underscores.
_ELEMENTWISE = {"relu": "Relu", "leakyrelu": "LeakyRelu", "elu": "Elu", "selu": "Selu", "celu": "Celu", "sigmoid": "Sigmoid",
                "hardsigmoid": "HardSigmoid", "hardswish": "HardSwish", "tanh": "Tanh", "erf": "Erf", "exp": "Exp", "log": "Log",
                "sqrt": "Sqrt", "rsqrt": "Reciprocal", "reciprocal": "Reciprocal", "neg": "Neg", "abs": "Abs", "silu": "Swish",
                "gelu": "Gelu", "mish": "Mish", "softplus": "Softplus", "softsign": "Softsign"}
_KEEPING = {"identity", "dropout", "dropout1d", "dropout2d", "featuredropout", "alphadropout", "clone", "contiguous", "detach",
            "alias", "float", "to", "typeas", "tocopy", "liftfreshcopy", "stochasticdepth"}
_BOUNDED = {"relu6", "hardtanh", "clamp", "clip", "clampmin", "clampmax"}
_BINARY = {"add": "Add", "iadd": "Add", "sub": "Sub", "isub": "Sub", "mul": "Mul", "imul": "Mul", "div": "Div", "truediv": "Div",
           "truedivide": "Div", "itruediv": "Div", "pow": "Pow", "ipow": "Pow", "maximum": "Max", "minimum": "Min",
           "addrelu": "Add", "mulrelu": "Mul", "addscalar": "Add", "mulscalar": "Mul"}
_POOLS = {f"{kind}{dims}d": op for dims in (1, 2, 3) for kind, op in (
    ("maxpool", "MaxPool"), ("avgpool", "AveragePool"), ("adaptiveavgpool", "AveragePool"), ("adaptivemaxpool", "MaxPool"))}
_REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "amax": "ReduceMax", "amin": "ReduceMin"}
_KEEPS_SCALE = _KEEPING | _BOUNDED | set(_POOLS) | {"relu", "mean", "view", "reshape", "flatten", "transpose", "permute",
                                                    "squeeze", "unsqueeze", "getitem", "slice", "chunk", "split"}
# PyTorch's names of products of activations and constant weights.
_LINEAR = {"linear", "linearrelu", "linearleakyrelu", "lineartanh", "lineardynamic", "linearreludynamic"}
_CONV = {f"conv{dims}d{relu}" for dims in (1, 2, 3) for relu in ("", "relu")} | {f"convrelu{dims}d" for dims in (1, 2, 3)}
_PRODUCTS = ("conv", "linear", "lstm", "gru", "rnn", "cell", "attention", "matmul")
_PACKED = ("quantized.", "torch.ao.nn.", "torch.nn.quantized", "torch.nn.intrinsic.quantized")  # namespaces of products


class _Unknown(Exception):
    """The operator has no translation."""


@dataclass
class Place:
    """The source of a constant of the translated model: `tensor`, or the part `part` of packed weights. `owner`: the module that
    has the packed weights, itself or in its attribute `attribute`."""

    identity: str  # the operator that reads the initializer
    tensor: Any = None
    owner: Any = None
    attribute: str = ""
    part: str = ""


@dataclass
class Translation:
    """`proto`: the module as an ONNX model. `operators`: PyTorch's names of products, by the names in the ONNX model."""

    proto: Any
    places: list[Place] = field(default_factory=list)
    operators: dict[str, str] = field(default_factory=dict)
    is_exported: bool = False  # whether the graph itself quantizes: a program of torch.export


@dataclass
class _Value:
    """A tensor of a run. `rank`: None if the caller decides it; then only the last dimension is known."""

    name: str
    rank: int | None = None
    scale: float = 0.0  # the scale of u8 values; 0 if not known
    point: int = 0
    is_u8: bool = False
    is_quantized: bool = False  # whether it is u8 in a quantized tensor of PyTorch
    integers: "_Value | None" = None  # the tensor that was dequantized to this one


@dataclass
class _Constant:
    """A tensor of the module; with `scale`, dequantized."""

    tensor: Any
    scale: Any = None
    point: Any = None


@dataclass
class _Packed:
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
            packed = prepack(weight, bias, self.option("stride"), self.option("padding"), self.option("dilation"), groups)
        setattr(self.owner, self.attribute, packed)

    def _sizes(self, weight: Any, groups: int) -> dict[str, int]:
        if self.is_linear:
            return {"in_features": weight.shape[1], "out_features": weight.shape[0]}
        return {"in_channels": weight.shape[1] * groups, "out_channels": weight.shape[0], "groups": groups}


class _Tracer(fx.Tracer):
    """Traces into the user's modules, but not into modules of PyTorch."""

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        containers = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)
        return type(m).__module__.startswith(("torch.nn.", "torch.ao.nn.")) and not isinstance(m, containers)


def _graph_of(module: Any, example_inputs: tuple | None) -> Any:
    """The module's graph, with shapes of tensors if they are known."""
    if isinstance(module, ExportedProgram):
        return module.graph
    if not isinstance(module, torch.nn.Module) or isinstance(module, torch.jit.ScriptModule):
        raise invalid(f"module: is a {excerpt(type(module).__name__)}; expected a torch.nn.Module that torch.fx traces, "
                      "a GraphModule, or an ExportedProgram")
    name = excerpt(type(module).__name__)
    if isinstance(module, fx.GraphModule):
        graph = module.graph
    else:
        try:
            graph = _Tracer().trace(module)
        except Exception as error:  # the module's code may raise anything
            raise invalid(f"{name}: torch.fx does not trace it: {excerpt(error, 200)}; expected a module without control flow "
                          "that depends on data, a GraphModule, or an ExportedProgram") from None
    if example_inputs is not None:
        from torch.fx.passes.shape_prop import ShapeProp

        try:
            with torch.no_grad():
                ShapeProp(fx.GraphModule(module, graph)).propagate(*example_inputs)
        except Exception as error:
            raise invalid(f"{name}: does not run on example_inputs: {excerpt(error, 200)}") from None
    return graph


def _key(name: str) -> str:
    return name.lower().replace("_", "")


class _Translator:
    """Translates a graph, operator by operator."""

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

    # ----- the ONNX model -----------------------------------------------------------------------------------------------

    def unique(self, name: str, names: "set[str] | None" = None) -> str:
        names = self.names if names is None else names
        found, count = name, 1
        while found in names:
            count += 1
            found = f"{name}_{count}"
        names.add(found)
        return found

    def emit(self, op: str, inputs: list[str], outputs: int = 1, domain: str = "", name: str = "", **attributes: Any) -> Any:
        name = self.unique(name or f"{self.node.name} {op}", self.node_names)
        made = [self.unique(f"{name}.{k}") for k in range(outputs)] if outputs > 1 else [self.unique(f"{name}.out")]
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
            raise _Unknown
        array = tensor.detach().to(torch.float32) if tensor.dtype is torch.bfloat16 else tensor.detach()
        array = array.numpy() if dtype is None else array.numpy().astype(dtype)
        name = self._placed(id(tensor), f"constant {len(self.done.places)}", array, Place("", tensor=tensor))
        if shape is None or len(shape) == tensor.dim():
            return name
        shape = (tensor.numel(), *shape[1:])
        key = (id(tensor), shape)
        if key not in self.constants:
            self.constants[key] = self.emit("Reshape", [name, self.vector(list(shape))], name=f"{name} shaped")
            self.state(self.constants[key], self.numpy_helper.from_array(array).data_type, shape)
        return self.constants[key]

    def packed(self, packed: _Packed, path: str) -> tuple[Any, dict[str, str]]:
        """Unpacks weights: the weights, and the names of their parts as constants."""
        weight, bias = packed.weight_bias()
        if weight.dtype is not torch.qint8:
            raise _Unknown
        parts = {"weight": weight.int_repr()}
        if weight.qscheme() == torch.per_tensor_affine:
            parts["scale"] = torch.tensor(weight.q_scale(), dtype=torch.float64)
            parts["zero_point"] = torch.tensor(weight.q_zero_point())
        elif weight.q_per_channel_axis() == 0:
            parts["scale"], parts["zero_point"] = weight.q_per_channel_scales(), weight.q_per_channel_zero_points()
        else:
            raise _Unknown
        parts["zero_point"] = parts["zero_point"].to(torch.int8)
        if bias is not None:
            parts["bias"] = bias.detach()
        names = {part: self._placed((id(packed.owner), packed.attribute, part), f"{path}.{part}", value.numpy(),
                                    Place("", owner=packed.owner, attribute=packed.attribute, part=part))
                 for part, value in parts.items()}
        return weight, names

    # ----- values ---------------------------------------------------------------------------------------------------------

    def value(self, argument: Any) -> Any:
        """The translation of an argument: a `_Value`, a `_Constant`, a list of these, or the argument itself."""
        if isinstance(argument, fx.Node):
            return self.values.get(argument)
        if isinstance(argument, (list, tuple)):
            return [self.value(one) for one in argument]
        return argument

    def name_of(self, value: Any) -> str:
        """The ONNX tensor of a value."""
        if isinstance(value, _Value):
            return value.name
        if isinstance(value, (bool, int, float)):
            return self.scalar(float(value))
        if not isinstance(value, _Constant):
            raise _Unknown
        if value.scale is None:
            return self.constant(value.tensor)
        key = (id(value.tensor), "dequantized")
        if key not in self.constants:
            self.constants[key] = self.emit("DequantizeLinear", [
                self.constant(value.tensor), self._operand(value.scale, np.float64), self._operand(value.point, np.int8)], axis=0)
        return self.constants[key]

    def _operand(self, value: Any, dtype: Any) -> str:
        """A scale or a zero point, for the whole tensor or for each channel."""
        return self.constant(value.tensor, dtype=dtype) if isinstance(value, _Constant) else self.scalar(value, dtype)

    def shape_of(self, node: Any) -> list | None:
        """A tensor's sizes as the graph states them. The first size of a module's tensors is open, because batches vary."""
        found = node.meta.get("val")
        is_example = found is None
        found = node.meta.get("tensor_meta") if is_example else found
        shape = getattr(found, "shape", None)
        if shape is None:
            return None
        sizes = [size if isinstance(size, int) else None for size in shape]
        return [None, *sizes[1:]] if is_example and sizes else sizes

    # ----- the pass -------------------------------------------------------------------------------------------------------

    def run(self) -> Translation:
        inputs = []
        for node in self.graph.nodes:
            self.node = node
            if node.op == "placeholder":
                inputs += self._placeholder(node)
            elif node.op == "get_attr":
                self.values[node] = self._attribute(node)
            elif node.op == "output":
                self._outputs(node.args)
            elif node.target != "_guards_fn":  # _guards_fn only checks the sizes of inputs
                self._call(node)
        graph = self.helper.make_graph(
            self.nodes, "module", inputs, [self.helper.make_empty_tensor_value_info(name) for name in self.outputs],
            [self.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
             for name, array in self.initializers.items()])
        graph.value_info.extend(self.infos.values())
        opsets = [self.helper.make_opsetid(domain, version) for domain, version in (("", 17), ("com.microsoft", 1), ("torch", 1))]
        self.done.proto = self.helper.make_model(graph, opset_imports=opsets)
        self.done.is_exported = self.is_exported
        return self.done

    def _placeholder(self, node: Any) -> list:
        if isinstance(self.module, ExportedProgram):
            signature = self.module.graph_signature
            for targets in (signature.inputs_to_parameters, signature.inputs_to_buffers,
                            signature.inputs_to_lifted_tensor_constants):
                if node.name in targets:
                    name = targets[node.name]
                    tensor = self.module.state_dict.get(name)
                    self.values[node] = _Constant(self.module.constants[name] if tensor is None else tensor)
                    return []
        shape = self.shape_of(node)
        value = self.values[node] = _Value(self.unique(node.name))
        if shape is None:
            channels, value.rank = self._first_reader(node)
            shape = [None, channels] + [None] * ((value.rank or 2) - 2)  # without a rank, only the channels are known
        else:
            value.rank = len(shape)
        return [self.helper.make_tensor_value_info(value.name, self.types.FLOAT, shape)]

    def _first_reader(self, node: Any, depth: int = 0) -> tuple[int | None, int | None]:
        """The numbers of channels and of dimensions of an input, from the first product that reads it; None if unknown."""
        for user in node.users if depth < 16 else []:
            key = self._name(user)[1]
            if key in _LINEAR | _CONV and user.args and user.args[0] is node:
                packed, module = self._weights(user), self.modules.get(user.target) if user.op == "call_module" else None
                weight = packed.weight_bias()[0] if packed is not None else getattr(module, "weight", None)
                if not isinstance(weight, torch.Tensor) or weight.dim() < 2:
                    continue
                if key in _LINEAR:
                    return weight.shape[1], None
                return weight.shape[1] * (packed.option("groups") if packed is not None else module.groups), weight.dim()
            if key in _ELEMENTWISE or key in _KEEPING or key in ("quantize", "quantizepertensor"):
                found = self._first_reader(user, depth + 1)
                if found[0] is not None:
                    return found
        return None, None

    def _attribute(self, node: Any) -> Any:
        *path, name = str(node.target).split(".")
        owner = self.module
        for step in path:
            owner = getattr(owner, step)
        held = getattr(owner, name)
        if isinstance(held, torch.Tensor):
            return _Constant(held)
        return _Packed(owner, name) if isinstance(held, torch.ScriptObject) else held

    def _outputs(self, argument: Any) -> None:
        if isinstance(argument, (list, tuple)):
            for one in argument:
                self._outputs(one)
        elif isinstance(argument, dict):
            self._outputs(list(argument.values()))
        elif isinstance(self.value(argument), (_Value, list)):
            for value in self._tensors(self.value(argument)):
                self.outputs.append(self.emit("output", [value.name], name="output"))

    def _tensors(self, argument: Any) -> Iterator[Any]:
        """The tensors among arguments, also within lists and dictionaries."""
        if isinstance(argument, (list, tuple)):
            for one in argument:
                yield from self._tensors(one)
        elif isinstance(argument, dict):
            yield from self._tensors(list(argument.values()))
        elif isinstance(argument, fx.Node):
            yield from self._tensors(self.value(argument))
        elif isinstance(argument, (_Value, _Constant)):
            yield argument

    def _name(self, node: Any) -> tuple[str, str]:
        """An operator's namespace, and its name in lower case: ("aten.", "conv2d")."""
        target = node.target
        if node.op == "call_module":
            kind = type(self.modules[target])
            return kind.__module__ + ".", _key(kind.__name__)
        if node.op == "call_method":
            return "", _key(target)
        schema = getattr(target, "_schema", None)
        name = schema.name if schema is not None else getattr(target, "_qualified_op_name", None)
        if name is not None:
            space, _, name = name.replace("::", ".").partition(".")
            return f"{space}.", _key(name.partition(".")[0])
        return "", _key(getattr(target, "__name__", str(target)))

    def _call(self, node: Any) -> None:
        source, key = self._name(node)
        self.source, self.key = source, key
        self.owner = self.modules[node.target] if node.op == "call_module" else None
        begin = len(self.nodes)
        try:
            result = self._translated(node, source, key)
        except _Unknown:
            del self.nodes[begin:]
            self._forget(begin)
            result = self._unknown(node, source)
        self.values[node] = result
        if isinstance(result, _Value):
            shape = self.shape_of(node)
            if result.rank is None and shape is not None:
                result.rank = len(shape)
            self.state(result.name, self.types.UINT8 if result.is_u8 else self.types.FLOAT, shape)

    def _forget(self, begin: int) -> None:
        """Forgets constants whose operators were removed."""
        made = {name for node in self.nodes for name in node.output}
        self.constants = {key: name for key, name in self.constants.items() if name in made or name in self.initializers}
        names = {node.name for node in self.nodes}
        self.done.places = [place for place in self.done.places if place.identity in names]

    def _unknown(self, node: Any, source: str) -> Any:
        inputs = [value.name if isinstance(value, _Value) else self.name_of(value)
                  for value in self._tensors([node.args, node.kwargs]) if self._is_plain(value)]
        name = type(self.owner).__name__ if self.owner is not None else _key(getattr(node.target, "__name__", str(node.target)))
        weights = [self.values.get(one) for one in node.all_input_nodes]
        is_product = any(word in self.key for word in _PRODUCTS) and source.startswith(_PACKED) or self.key in _LINEAR | _CONV
        is_product |= any(isinstance(value, _Packed) or (isinstance(value, _Constant) and value.scale is not None)
                          for value in weights)
        # The audit counts operators of other domains as not audited.
        return _Value(self.emit(name if is_product else f"torch.{name}", inputs, domain="torch" if is_product else ""))

    @staticmethod
    def _is_plain(value: Any) -> bool:
        return isinstance(value, _Value) or (type(value.tensor) in (torch.Tensor, torch.nn.Parameter)
                                             and not value.tensor.is_quantized)

    def option(self, i: int, name: str, default: Any = None) -> Any:
        """An argument of a call, by its place or its name; for a module, its attribute."""
        if self.owner is not None:
            return getattr(self.owner, name, default)
        argument = self.node.args[i] if i < len(self.node.args) else self.node.kwargs.get(name, default)
        return self.value(argument)

    def _translated(self, node: Any, source: str, key: str) -> Any:
        x = self.value(node.args[0]) if node.args else None
        if key in ("size", "shape", "dim") or (key == "getattr" and node.args[1:2] == ("shape",)):
            if isinstance(x, _Value):
                sizes = self.emit("Shape", [x.name])
                if len(node.args) > 1 and isinstance(node.args[1], int):
                    self.emit("Gather", [sizes, self.vector([node.args[1]])])
            return None
        if not any(True for _ in self._tensors([node.args, node.kwargs])) and self.owner is None:
            if isinstance(x, _Packed):
                raise _Unknown
            return None  # arithmetic on sizes
        if key == "getitem" and isinstance(x, list) and isinstance(node.args[1], int):
            return x[node.args[1]]
        if key in _LINEAR or key in _CONV:
            return self._product(node, key, x)
        if key in _BINARY:
            return self._binary(key)
        if not isinstance(x, (_Value, _Constant, list)):
            raise _Unknown
        if key in _ELEMENTWISE or key in _KEEPING:
            return self.like(x, self.emit(_ELEMENTWISE.get(key, "Identity"), [self.name_of(x)]))
        if key in _BOUNDED:
            return self._bounded(x)
        if key in _POOLS:
            return self._pool(x)
        if key in _REDUCTIONS:
            return self._reduce(x)
        handler = getattr(self, "_on_" + key, None)
        if handler is None or (isinstance(x, list) and key not in ("cat", "concat")):
            raise _Unknown
        return handler(x)

    def like(self, x: Any, name: str, rank: Any = "same") -> _Value:
        """The result `name` of an operator that reads x."""
        rank = getattr(x, "rank", None) if rank == "same" else rank
        if isinstance(x, _Constant):
            return _Value(name, x.tensor.dim() if rank is None else rank)
        keeps = self.key in _KEEPS_SCALE
        if x.is_u8 and keeps:
            return _Value(name, rank, x.scale, x.point, True, x.is_quantized)
        if x.is_quantized:
            return _Value(name, rank, *self._output_scale(), True, True)
        return _Value(name, rank)

    def _output_scale(self) -> tuple[float, int]:
        """The output's scale and zero point, from the arguments of an operator on quantized tensors."""
        if self.owner is not None:
            found = [getattr(self.owner, name, 0) for name in ("scale", "zero_point")]
        else:
            found = [self.node.kwargs.get("scale", 0), self.node.kwargs.get("zero_point", 0)]
            if self.source == "quantized." and not found[0] and len(self.node.args) > 3:
                found = list(self.node.args[-2:])
        return self._number(found[0]) or 0.0, int(self._number(found[1]) or 0)

    def _number(self, argument: Any) -> float | None:
        """The value of a number or of a constant with one element; None if a run decides it."""
        value = self.value(argument)
        value = value.tensor if isinstance(value, _Constant) else value
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            return float(value.reshape(-1)[0])
        return value if isinstance(value, (int, float)) else None

    def dim(self, x: Any, dim: int, extra: int = 0) -> int:
        """A dimension's number; counted from the end if the rank is not known."""
        rank = x.tensor.dim() if isinstance(x, _Constant) else x.rank
        if not isinstance(dim, int) or (rank is None and (dim >= 0 or extra)):
            raise _Unknown
        return dim if rank is None else dim % (rank + extra)

    @staticmethod
    def known(x: Any) -> int:
        rank = x.tensor.dim() if isinstance(x, _Constant) else x.rank
        if rank is None:
            raise _Unknown
        return rank

    # ----- products -----------------------------------------------------------------------------------------------------

    def _weights(self, node: Any) -> _Packed | None:
        """The packed weights that an operator reads; None if there are none."""
        if node.op == "call_module":
            module = self.modules[node.target]
            return _Packed(module) if callable(getattr(module, "weight", None)) and hasattr(module, "set_weight_bias") else None
        packed = self.value(node.args[1]) if len(node.args) > 1 else None
        if packed is None and len(node.args) > 1 and isinstance(node.args[1], fx.Node) and node.args[1].op == "get_attr":
            packed = self._attribute(node.args[1])  # a constant that the graph reads later
        return packed if isinstance(packed, _Packed) else None

    def _product(self, node: Any, key: str, x: Any) -> _Value:
        if not isinstance(x, _Value):
            raise _Unknown
        packed = self._weights(node)
        self.layer = str(node.target) if node.op == "call_module" else node.name
        self.done.operators[self.layer] = (type(self.owner).__name__ if self.owner is not None
                                           else f"{self.source}{getattr(node.target, '__name__', key).split('.')[0]}")
        if packed is None:
            return self._unpacked(key, x)
        weight, parts = self.packed(packed, str(node.target if node.op == "call_module" else node.args[1].target))
        if ".dynamic." in self.source or key.endswith("dynamic"):
            return self._dynamic(node, key, x, weight, parts)
        scale, point = self._output_scale()
        b = [parts["weight"], parts["scale"], parts["zero_point"]]
        option = packed.option
        geometry = None if key in _LINEAR else self._geometry(
            weight.dim() - 2, option("stride"), option("padding"), option("dilation"), option("groups"))
        made = self._integers([x.name, self.scalar(x.scale), self.scalar(x.point, np.uint8)], b, parts.get("bias", ""),
                              [self.scalar(scale), self.scalar(point, np.uint8)], geometry)
        return _Value(made, x.rank if geometry is None else weight.dim(), scale, point, True, True)

    def _integers(self, a: list[str], b: list[str], bias: str, c: list[str], geometry: dict | None) -> str:
        """A product of integers. a, b: tensor, scale and zero point. c: scale and zero point of a quantized output. The bias is
        float."""
        if geometry is None:
            return self.emit("QGemm", [*a, *b, bias, *c], domain="com.microsoft", name=self.layer, transB=1)
        return self.emit("QLinearConv", [*a, *b, *(c or ["", ""]), bias], name=self.layer, **geometry)

    @staticmethod
    def _geometry(dims: int, stride: Any, padding: Any, dilation: Any, groups: int) -> dict:
        def each(value: Any) -> list[int]:
            values = list(value) if isinstance(value, (list, tuple)) else [value]
            values = values * dims if len(values) == 1 else values[-dims:]
            if not all(isinstance(n, int) for n in values):
                raise _Unknown
            return values

        found = {"strides": each(stride), "dilations": each(dilation), "group": groups}
        if isinstance(padding, str):
            return {**found, "auto_pad": {"same": "SAME_UPPER"}.get(padding, "VALID")}
        return {**found, "pads": each(padding) * 2}

    def _dynamic(self, node: Any, key: str, x: _Value, weight: Any, parts: dict[str, str]) -> _Value:
        """A product of float activations that PyTorch quantizes in each run, to 7 bits if it reduces the range."""
        if key not in _LINEAR:
            raise _Unknown
        if self.owner is not None:
            reduces = self.owner.version is not None and self.owner.version >= 4
        else:
            reduces = bool(self.option(2, "reduce_range", False))
        if reduces:
            clipped = self.emit("Clip", [x.name, self.scalar(0.0), self.scalar(127.0)], name=f"{self.layer} reduce_range")
            point = self.scalar(0, np.uint8)
            scale = self.scalar(1.0)
            a = self.emit("QuantizeLinear", [clipped, scale, point])
        else:
            a, scale, point = self.emit("DynamicQuantizeLinear", [x.name], 3)
        b = [parts["weight"], parts["scale"], parts["zero_point"]]
        made = self._integers([a, scale, point], b, parts.get("bias", ""), [], None)
        return _Value(made, x.rank)

    def _unpacked(self, key: str, x: _Value) -> _Value:
        """A product with weights that are not packed: in float, or between dequantization and quantization."""
        if self.owner is not None:
            weight, bias = (_Constant(tensor) if tensor is not None else None
                            for tensor in (getattr(self.owner, "weight", None), getattr(self.owner, "bias", None)))
        else:
            weight, bias = self.option(1, "weight"), self.option(2, "bias")
        if not isinstance(weight, _Constant) or not isinstance(weight.tensor, torch.Tensor) or x.is_quantized or (
                bias is not None and not isinstance(bias, _Constant)):
            raise _Unknown
        rank = weight.tensor.dim()
        geometry = None
        if key in _CONV:
            stride, padding, dilation = (self.option(i, name, default) for i, name, default in (
                (3, "stride", 1), (4, "padding", 0), (5, "dilation", 1)))
            geometry = self._geometry(rank - 2, stride, padding, dilation, self.option(6, "groups", 1))
        if weight.scale is not None and weight.tensor.dtype is torch.int8 and x.integers is not None:
            a = x.integers
            made = self._integers(
                [a.name, self.scalar(a.scale), self.scalar(a.point, np.uint8)],
                [self.constant(weight.tensor), self._operand(weight.scale, np.float64), self._zero_points(weight.point)],
                self.constant(bias.tensor) if bias is not None else "", [], geometry)
            return _Value(made, x.rank if geometry is None else rank)
        bias_name = self.constant(bias.tensor, (-1, *[1] * (rank - 2))) if bias is not None else ""
        b = self.name_of(weight)
        if geometry is None:
            made = self.emit("MatMul", [x.name, self.emit("Transpose", [b], perm=[1, 0])], name=self.layer)
        else:
            made = self.emit("Conv", [x.name, b], name=self.layer, **geometry)
        if bias_name:
            made = self.emit("Add", [made, bias_name])
        return _Value(made, x.rank if geometry is None else rank)

    def _zero_points(self, point: Any) -> str:
        """Zero points of weights; one 0 if all are 0."""
        if isinstance(point, _Constant):
            return self.constant(point.tensor) if bool(point.tensor.any()) else self.scalar(0, np.int8)
        return self.scalar(point, np.int8)

    # ----- quantization -------------------------------------------------------------------------------------------------

    def _on_quantize(self, x: Any) -> _Value:
        """The module Quantize."""
        if not isinstance(x, _Value):
            raise _Unknown
        return self._quantized(x, self.owner.scale, self.owner.zero_point, self.owner.dtype)

    def _on_quantizepertensor(self, x: Any) -> Any:
        scale, point = self.option(1, "scale"), self.option(2, "zero_point")
        if self.source != "quantized_decomposed.":
            return self._quantized(x, scale, point, self.option(3, "dtype"))
        self.is_exported = True
        low, high, dtype = (self.option(i, name) for i, name in ((3, "quant_min"), (4, "quant_max"), (5, "dtype")))
        return self._quantized(x, scale, point, dtype, low, high)

    def _on_quantizepertensordynamic(self, x: Any) -> _Value:
        reduces = bool(self.option(2, "reduce_range", False))
        made = self._quantized(x, None, None, self.option(1, "dtype"), 0, 127 if reduces else 255)
        made.is_quantized = True
        return made

    def _quantized(self, x: Any, scale: Any, point: Any, dtype: Any, low: int | None = None, high: int | None = None) -> _Value:
        """Quantizes to 8 bits. Engines shift s8 activations to u8; the translation makes them u8 at once."""
        shift = {torch.quint8: 0, torch.uint8: 0, torch.qint8: 128, torch.int8: 128}.get(dtype)
        scale, point = self._number(scale), self._number(point)
        if shift is None:
            raise _Unknown
        low, high = (limit if n is None else n + shift for n, limit in ((low, 0), (high, 255)))
        name, rank = self.name_of(x), x.tensor.dim() if isinstance(x, _Constant) else x.rank
        if scale is None or point is None:  # each run decides
            if (low, high) == (0, 255):
                return _Value(self.emit("DynamicQuantizeLinear", [name], 3)[0], rank, 0.0, 0, True)
            scale, point, unknown = 1.0, 0, True
        else:
            point, unknown = int(point) + shift, False
        if (low, high) != (0, 255):
            bounds = [self.scalar((n - point) * scale) for n in (low, high)]
            name = self.emit("Clip", [name, *bounds])
        made = self.emit("QuantizeLinear", [name, self.scalar(scale), self.scalar(point, np.uint8)])
        return _Value(made, rank, 0.0 if unknown else scale, point, True, dtype in (torch.quint8, torch.qint8))

    def _on_dequantize(self, x: Any) -> _Value:
        if not isinstance(x, _Value):
            raise _Unknown
        return self._dequantized(x)

    def _dequantized(self, x: _Value) -> _Value:
        made = self.emit("DequantizeLinear", [x.name, self.scalar(x.scale or 1.0), self.scalar(x.point, np.uint8)])
        return _Value(made, x.rank, integers=x)

    def _on_dequantizepertensor(self, x: Any) -> Any:
        """In an exported program: dequantizes activations or weights."""
        self.is_exported = True
        scale, point = self.option(1, "scale"), self.option(2, "zero_point")
        if isinstance(x, _Constant):
            if x.scale is not None or None in (self._number(scale), self._number(point)):
                raise _Unknown
            return _Constant(x.tensor, float(self._number(scale)), int(self._number(point)))
        return self._dequantized(x)

    def _on_dequantizeperchannel(self, x: Any) -> Any:
        self.is_exported = True
        scales, points, axis = self.option(1, "scales"), self.option(2, "zero_points"), self.option(3, "axis")
        if not isinstance(x, _Constant) or not isinstance(scales, _Constant) or axis != 0 or x.scale is not None:
            raise _Unknown
        return _Constant(x.tensor, scales, points if isinstance(points, _Constant) else 0)

    def _on_chooseqparams(self, x: Any) -> list:
        """The smallest and the largest element, which do not depend on the order."""
        self.emit("ReduceMax", [self.name_of(x)], keepdims=0)
        return [None, None]

    # ----- other operators ------------------------------------------------------------------------------------------------

    def _binary(self, key: str) -> Any:
        operands = [self.value(argument) for argument in self.node.args[:2]]
        if len(operands) < 2 or not any(isinstance(value, _Value) for value in operands):
            raise _Unknown
        if isinstance(self.node.args[1], fx.Node) and operands[1] is None:
            raise _Unknown  # a size that a run decides
        made = self.emit(_BINARY[key], [self.name_of(value) for value in operands])
        ranks = [value.tensor.dim() if isinstance(value, _Constant) else value.rank
                 for value in operands if isinstance(value, (_Value, _Constant))]
        first = next(value for value in operands if isinstance(value, _Value))
        return self.like(first, made, None if None in ranks else max(ranks))

    def _bounded(self, x: Any) -> _Value:
        if self.key == "relu6":
            low, high = 0.0, 6.0
        elif self.owner is not None or self.key == "hardtanh":
            low, high = self.option(1, "min_val", -1.0), self.option(2, "max_val", 1.0)
        elif self.key == "clampmax":
            low, high = None, self.option(1, "max")
        else:
            low, high = self.option(1, "min"), self.option(2, "max")
        if (isinstance(x, _Value) and x.is_quantized) or not all(isinstance(n, (int, float, type(None))) for n in (low, high)):
            return self.like(x, self.emit("Elu", [self.name_of(x)]))  # elementwise, without a range
        bounds = ["" if value is None else self.scalar(float(value)) for value in (low, high)]
        return self.like(x, self.emit("Clip", [self.name_of(x), *bounds]))

    def _pool(self, x: Any) -> _Value:
        op = _POOLS[self.key]
        if "adaptive" in self.key:
            size = self.option(1, "output_size")
            if all(n == 1 for n in (size if isinstance(size, (list, tuple)) else [size])):
                op = {"AveragePool": "GlobalAveragePool", "MaxPool": "GlobalMaxPool"}[op]
        if self.known(x) != int(self.key[-2]) + 2:
            raise _Unknown
        return self.like(x, self.emit(op, [self.name_of(x)]))

    def _reduce(self, x: Any) -> _Value:
        dims, keep = self.option(1, "dim"), bool(self.option(2, "keepdim", False))
        rank = x.rank if isinstance(x, _Value) else x.tensor.dim()
        if dims is None or dims == []:
            return self.like(x, self.emit(_REDUCTIONS[self.key], [self.name_of(x)], keepdims=0), 0)
        axes = sorted(self.dim(x, n) for n in (dims if isinstance(dims, (list, tuple)) else [dims]))
        attributes = {"axes": axes}
        inputs = [self.name_of(x)]
        if self.key == "sum":  # since opset 13
            inputs, attributes = [*inputs, self.vector(axes)], {}
        made = self.emit(_REDUCTIONS[self.key], inputs, keepdims=int(keep), **attributes)
        return self.like(x, made, None if rank is None else rank if keep else rank - len(axes))

    def _on_softmax(self, x: Any) -> _Value:
        return self.like(x, self.emit("Softmax", [self.name_of(x)], axis=self.dim(x, self.option(1, "dim"))))

    def _norm_constants(self, names: list[tuple[int, str]]) -> list[str]:
        found = []
        for i, name in names:
            value = self.option(i, name)
            value = _Constant(value) if isinstance(value, torch.Tensor) else value
            if value is not None and not isinstance(value, _Constant):
                raise _Unknown
            found.append("" if value is None else self.constant(value.tensor))
        return found

    def _on_layernorm(self, x: Any) -> _Value:
        shape = self.option(1, "normalized_shape")
        constants = self._norm_constants([(2, "weight"), (3, "bias")])
        return self.like(x, self.emit("LayerNormalization", [self.name_of(x), *constants], axis=-len(list(shape))))

    def _batch_norm(self, x: Any) -> _Value:
        if self.owner is not None and (self.owner.training or self.owner.running_mean is None):
            raise _Unknown
        if self.owner is None and (self.source == "quantized." or self.option(5, "training", False)):
            raise _Unknown
        first = 1 if self.source == "aten." else 3  # torch.nn.functional has running means first
        order = [(first, "weight"), (first + 1, "bias"), (4 - first, "running_mean"), (5 - first, "running_var")]
        self.known(x)
        return self.like(x, self.emit("BatchNormalization", [self.name_of(x), *self._norm_constants(order)]))

    _on_batchnorm = _on_batchnorm1d = _on_batchnorm2d = _on_batchnorm3d = _on_bnrelu2d = _on_bnrelu3d = _batch_norm

    def _on_embedding(self, x: Any) -> _Value:
        table, ids = (_Constant(self.owner.weight), x) if self.owner is not None else (x, self.option(1, "input"))
        if isinstance(table, _Value):
            table, ids = ids, table
        if not isinstance(table, _Constant) or not isinstance(ids, _Value):
            raise _Unknown
        made = self.emit("Gather", [self.constant(table.tensor), ids.name], axis=0)
        return _Value(made, None if ids.rank is None else ids.rank + 1)

    def _on_matmul(self, x: Any) -> _Value:
        other = self.option(1, "other")
        if other is None:
            other = self.option(1, "mat2")
        if isinstance(other, _Constant) or not isinstance(other, _Value) or not isinstance(x, _Value):
            raise _Unknown
        self.known(x), self.known(other)
        # In float: because of the Cast, the audit does not take it for a product of integers.
        return _Value(self.emit("MatMul", [self.emit("Cast", [value.name], to=self.types.FLOAT) for value in (x, other)]),
                      max(self.known(x), self.known(other)))

    _on_bmm = _on_mm = _on_matmul

    def _on_scaleddotproductattention(self, x: Any) -> _Value:
        q, k, v = (self.option(i, name) for i, name in enumerate(("query", "key", "value")))
        if not all(isinstance(value, _Value) and value.rank == q.rank for value in (q, k, v)) or self.known(q) < 2:
            raise _Unknown
        permutation = [*range(q.rank - 2), q.rank - 1, q.rank - 2]
        q, k, v = (self.emit("Cast", [value.name], to=self.types.FLOAT) for value in (q, k, v))
        weights = self.emit("Softmax", [self.emit("MatMul", [q, self.emit("Transpose", [k], perm=permutation)])], axis=-1)
        return _Value(self.emit("MatMul", [weights, v]), x.rank)

    # ----- shapes ---------------------------------------------------------------------------------------------------------

    def _on_flatten(self, x: Any) -> _Value:
        rank = self.known(x)
        start, end = self.option(1, "start_dim", 0) % rank, self.option(2, "end_dim", -1) % rank
        if (start, end) == (1, rank - 1):
            return self.like(x, self.emit("Flatten", [self.name_of(x)], axis=1), 2)
        return self._reshaped(x, None)

    def _on_view(self, x: Any) -> _Value:
        sizes = self.node.args[1:]
        sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)) else sizes
        return self._reshaped(x, list(sizes))

    _on_reshape = _on_unsafeview = _on_view

    def _reshaped(self, x: Any, sizes: list | None) -> _Value:
        """A Reshape to the sizes of the call, or to the sizes that the graph states."""
        self.known(x)
        shape = self.shape_of(self.node)
        if sizes is None or not all(isinstance(n, int) for n in sizes):
            own = self.shape_of(self.node.args[0])
            if shape is None or own is None:
                raise _Unknown
            keeps = own[:1] == shape[:1] == [None] and self._keeps_first(sizes)
            sizes = [0 if i == 0 and keeps else n for i, n in enumerate(shape)]
            if None in sizes:
                if sizes.count(None) > 1:
                    raise _Unknown
                sizes = [-1 if n is None else n for n in sizes]
        return self.like(x, self.emit("Reshape", [self.name_of(x), self.vector(sizes)]), len(sizes))

    def _keeps_first(self, sizes: list | None) -> bool:
        """Whether a Reshape keeps the first size of its input."""
        if sizes is None:  # Flatten
            return self.option(1, "start_dim", 0) > 0
        first = sizes[0]
        source = self.node.args[0]
        if not isinstance(first, fx.Node):
            return False
        if first.op == "call_method" and first.target == "size":
            return first.args == (source, 0)
        return (first.target is operator.getitem and first.args[1] == 0 and isinstance(first.args[0], fx.Node)
                and first.args[0].args[:1] == (source,) and self._name(first.args[0])[1] in ("size", "getattr"))

    def _on_permute(self, x: Any) -> _Value:
        dims = self.node.args[1:]
        dims = dims[0] if len(dims) == 1 and isinstance(dims[0], (list, tuple)) else dims
        self.known(x)
        return self.like(x, self.emit("Transpose", [self.name_of(x)], perm=[self.dim(x, n) for n in dims]))

    def _on_transpose(self, x: Any) -> _Value:
        permutation = list(range(self.known(x)))
        a, b = self.dim(x, self.option(1, "dim0")), self.dim(x, self.option(2, "dim1"))
        permutation[a], permutation[b] = b, a
        return self.like(x, self.emit("Transpose", [self.name_of(x)], perm=permutation))

    def _on_unsqueeze(self, x: Any) -> _Value:
        rank = self.known(x)
        axes = self.vector([self.dim(x, self.option(1, "dim"), 1)])
        return self.like(x, self.emit("Unsqueeze", [self.name_of(x), axes]), rank + 1)

    def _on_squeeze(self, x: Any) -> _Value:
        dims = self.option(1, "dim")
        dims = list(dims) if isinstance(dims, (list, tuple)) else [dims]
        shape = self.shape_of(self.node)
        axes = [self.dim(x, n) for n in dims]
        if shape is None or self.known(x) - len(axes) != len(shape):
            raise _Unknown
        return self.like(x, self.emit("Squeeze", [self.name_of(x), self.vector(axes)]), len(shape))

    def _on_cat(self, x: Any) -> _Value:
        parts = [value for value in x if isinstance(value, _Value)]
        if not parts or len(parts) != len(x):
            raise _Unknown
        dim = self.dim(parts[0], self.option(1, "dim", 0))
        made = self.emit("Concat", [value.name for value in parts], axis=dim)
        return self.like(parts[0], made)

    _on_concat = _on_cat

    def _on_chunk(self, x: Any) -> list:
        count = len({user.args[1] for user in self.node.users if len(user.args) > 1})
        total = self.option(1, "chunks")
        if not isinstance(total, int) or count > total:
            raise _Unknown
        return self._split(x, None, total, self.option(2, "dim", 0))

    def _on_split(self, x: Any) -> list:
        sizes, dim = self.option(1, "split_size"), self.option(2, "dim", 0)
        shape = self.shape_of(self.node.args[0])
        if isinstance(sizes, int):
            size = shape[self.dim(x, dim)] if shape is not None else None
            if size is None:
                raise _Unknown
            sizes = [min(sizes, size - begin) for begin in range(0, size, sizes)]
        if not sizes or not all(isinstance(n, int) for n in sizes):
            raise _Unknown
        return self._split(x, sizes, len(sizes), dim)

    _on_splitwithsizes = _on_split

    def _split(self, x: Any, sizes: list | None, count: int, dim: int) -> list:
        names = [self.name_of(x)] + ([self.vector(sizes)] if sizes else [])
        made = self.emit("Split", names, count, axis=self.dim(x, dim))
        results = [self.like(x, name) for name in (made if count > 1 else [made])]
        for value in results:
            self.state(value.name, self.types.UINT8 if value.is_u8 else self.types.FLOAT, None)
        return results

    def _on_getitem(self, x: Any) -> _Value:
        """x[:, a:b]"""
        index = self.node.args[1]
        index = list(index) if isinstance(index, tuple) else [index]
        if not all(isinstance(one, slice) and one.step in (None, 1) for one in index) or not self.known(x) >= len(index):
            raise _Unknown
        cuts = [(i, one.start or 0, one.stop) for i, one in enumerate(index) if one != slice(None)]
        return self._slice(x, [(i, start, 2**31 if stop is None else stop) for i, start, stop in cuts])

    def _on_slice(self, x: Any) -> _Value:
        if self.option(4, "step", 1) != 1:
            raise _Unknown
        start, stop = self.option(2, "start"), self.option(3, "end")
        return self._slice(x, [(self.dim(x, self.option(1, "dim", 0)), start or 0, 2**31 if stop is None else stop)])

    def _slice(self, x: Any, cuts: list) -> _Value:
        self.known(x)
        if not all(isinstance(n, int) for cut in cuts for n in cut):
            raise _Unknown
        axes, starts, ends = (list(column) for column in zip(*cuts)) if cuts else ([], [], [])
        if not axes:
            return self.like(x, self.emit("Identity", [self.name_of(x)]))
        return self.like(x, self.emit("Slice", [self.name_of(x), self.vector(starts), self.vector(ends), self.vector(axes)]))

    def _on_pad(self, x: Any) -> _Value:
        pads = self.option(1, "pad")
        rank = self.known(x)
        if not isinstance(pads, (list, tuple)) or not all(isinstance(n, int) for n in pads):
            raise _Unknown
        if len(pads) % 2 or len(pads) > 2 * rank:
            raise _Unknown
        begins, ends = [0] * rank, [0] * rank
        for i in range(len(pads) // 2):
            begins[rank - 1 - i], ends[rank - 1 - i] = pads[2 * i], pads[2 * i + 1]
        return self.like(x, self.emit("Pad", [self.name_of(x), self.vector(begins + ends)]))

    _on_constantpadnd = _on_pad

    def _on_interpolate(self, x: Any) -> _Value:
        if self.known(x) < 3:
            raise _Unknown
        return self.like(x, self.emit("Resize", [self.name_of(x)]))

    _on_upsample = _on_upsamplenearest2d = _on_upsamplebilinear2d = _on_interpolate


def translate(module: Any, example_inputs: tuple | None = None) -> Translation:
    """Translates a module to ONNX. `example_inputs`: a run's arguments, which give the shapes of tensors."""
    return _Translator(module, _graph_of(module, example_inputs)).run()


def constants_of(translation: Translation, proto: Any) -> list[np.ndarray]:
    """The constants of all places of a translation, as the operators read them in the translation or in a repaired copy."""
    from onnx import numpy_helper

    initializers = {tensor.name: tensor for tensor in proto.graph.initializer}
    makers = {node.output[0]: node for node in proto.graph.node if node.op_type == "Identity"}
    nodes = {node.name: node for node in proto.graph.node}
    found = []
    readers: dict[str, list] = {}
    for node in translation.proto.graph.node:
        for i, name in enumerate(node.input):
            readers.setdefault(name, []).append((node.name, i))
    for place in translation.places:
        arrays = []
        for reader, i in readers.get(f"{place.identity}.out", []):
            name = nodes[reader].input[i] if reader in nodes else ""
            name = makers[name].input[0] if name in makers else name
            if name not in initializers:
                raise Error("INTERNAL", f"{excerpt(reader)}: its constant {excerpt(place.identity)!r} is lost")
            arrays.append(numpy_helper.to_array(initializers[name]))
        arrays = arrays or [numpy_helper.to_array(initializers[makers[f"{place.identity}.out"].input[0]])]
        if any(array.shape != arrays[0].shape or array.tobytes() != arrays[0].tobytes() for array in arrays):
            raise Error("INTERNAL", f"operators read the constant {excerpt(place.identity)!r} in two orders")
        found.append(arrays[0])
    return found


def write_back(translation: Translation, repaired: Any) -> None:
    """Writes the constants of the repaired translation into the module that was translated."""
    if [node.op_type for node in translation.proto.graph.node] != [node.op_type for node in repaired.graph.node]:
        raise Error("INTERNAL", "the repaired model has other operators, which a module cannot get")
    stored = constants_of(translation, translation.proto)
    packed: dict[tuple, dict[str, np.ndarray]] = {}
    owners: dict[tuple, _Packed] = {}
    changed = set()
    for place, array, old in zip(translation.places, constants_of(translation, repaired), stored):
        is_changed = array.shape != old.shape or array.tobytes() != old.tobytes()
        if place.tensor is not None:
            if is_changed:
                place.tensor.data = torch.tensor(array).to(place.tensor.dtype)
            continue
        key = (id(place.owner), place.attribute)
        packed.setdefault(key, {})[place.part] = array
        owners[key] = _Packed(place.owner, place.attribute)
        if is_changed:
            changed.add(key)
    for key in changed:
        owner, parts = owners[key], packed[key]
        values = torch.tensor(parts["weight"])
        if parts["scale"].ndim:
            weight = torch._make_per_channel_quantized_tensor(
                values, torch.tensor(parts["scale"]), torch.tensor(parts["zero_point"]).to(torch.int64), 0)
        else:
            weight = torch._make_per_tensor_quantized_tensor(values, float(parts["scale"]), int(parts["zero_point"]))
        groups = 1 if owner.is_linear else owner.option("groups")
        if groups > 1 and values.shape[1] == 1 and owner.weight_bias()[0].shape[0] == groups:
            groups = len(values)  # depthwise, with copied channels
        bias = parts.get("bias")
        owner.set(weight, None if bias is None else torch.tensor(bias), groups)
