"""Translates a PyTorch module's graph to ONNX, for the audit and the planner of orders. The ONNX model is
never run.

Each constant is an initializer that only one operator reads (Identity). So it has one layout, however often
the module reads it, and can be written back. An operator without a translation gets a name that nothing
knows, so its inputs and outputs keep their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import fx

from .._library import Error, excerpt, invalid
from ._functions import Functions
from ._moves import Moves
from ._products import Products
from ._values import (
    BINARY,
    BOUNDED,
    CONV,
    ELEMENTWISE,
    KEEPING,
    LINEAR,
    PACKED,
    POOLS,
    PRODUCTS,
    REDUCTIONS,
    Constant,
    ExportedProgram,
    Packed,
    Translation,
    Unknown,
    Value,
    key_of,
)


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
        raise invalid(
            f"module: is a {excerpt(type(module).__name__)}; expected a torch.nn.Module that torch.fx traces, "
            "a GraphModule, or an ExportedProgram"
        )
    name = excerpt(type(module).__name__)
    if isinstance(module, fx.GraphModule):
        graph = module.graph
    else:
        try:
            graph = _Tracer().trace(module)
        except Exception as error:  # the module's code may raise anything
            raise invalid(
                f"{name}: torch.fx does not trace it: {excerpt(error, 200)}; expected a module without control flow "
                "that depends on data, a GraphModule, or an ExportedProgram"
            ) from None
    if example_inputs is not None:
        from torch.fx.passes.shape_prop import ShapeProp

        try:
            with torch.no_grad():
                ShapeProp(fx.GraphModule(module, graph)).propagate(*example_inputs)
        except Exception as error:
            raise invalid(f"{name}: does not run on example_inputs: {excerpt(error, 200)}") from None
    return graph


class _Translator(Products, Functions, Moves):
    """Translates a graph, operator by operator."""

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
            self.nodes,
            "module",
            inputs,
            [self.helper.make_empty_tensor_value_info(name) for name in self.outputs],
            [self.numpy_helper.from_array(array, name) for name, array in self.initializers.items()],
        )
        graph.value_info.extend(self.infos.values())
        opsets = [
            self.helper.make_opsetid(domain, version)
            for domain, version in (("", 17), ("com.microsoft", 1), ("torch", 1))
        ]
        self.done.proto = self.helper.make_model(graph, opset_imports=opsets)
        self.done.is_exported = self.is_exported
        return self.done

    def _placeholder(self, node: Any) -> list:
        if isinstance(self.module, ExportedProgram):
            signature = self.module.graph_signature
            for targets in (
                signature.inputs_to_parameters,
                signature.inputs_to_buffers,
                signature.inputs_to_lifted_tensor_constants,
            ):
                if node.name in targets:
                    name = targets[node.name]
                    tensor = self.module.state_dict.get(name)
                    self.values[node] = Constant(self.module.constants[name] if tensor is None else tensor)
                    return []
        shape = self.shape_of(node)
        value = self.values[node] = Value(self.unique(node.name))
        if shape is None:
            channels, value.rank = self._first_reader(node)
            # without a rank, only the channels are known
            shape = [None, channels] + [None] * ((value.rank or 2) - 2)
        else:
            value.rank = len(shape)
        return [self.helper.make_tensor_value_info(value.name, self.types.FLOAT, shape)]

    def _first_reader(self, node: Any, depth: int = 0) -> tuple[int | None, int | None]:
        """The numbers of channels and of dimensions of an input, from the first product that reads it; None
        if unknown."""
        for user in node.users if depth < 16 else []:
            key = self._name(user)[1]
            if key in LINEAR | CONV and user.args and user.args[0] is node:
                packed = self._weights(user)
                module = self.modules.get(user.target) if user.op == "call_module" else None
                weight = packed.weight_bias()[0] if packed is not None else getattr(module, "weight", None)
                if not isinstance(weight, torch.Tensor) or weight.dim() < 2:
                    continue
                if key in LINEAR:
                    return weight.shape[1], None
                return weight.shape[1] * (
                    packed.option("groups") if packed is not None else module.groups
                ), weight.dim()
            if key in ELEMENTWISE or key in KEEPING or key in ("quantize", "quantizepertensor"):
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
            return Constant(held)
        return Packed(owner, name) if isinstance(held, torch.ScriptObject) else held

    def _outputs(self, argument: Any) -> None:
        if isinstance(argument, (list, tuple)):
            for one in argument:
                self._outputs(one)
        elif isinstance(argument, dict):
            self._outputs(list(argument.values()))
        elif isinstance(self.value(argument), (Value, list)):
            for value in self._tensors(self.value(argument)):
                self.outputs.append(self.emit("output", [value.name], name="output"))

    def _name(self, node: Any) -> tuple[str, str]:
        """An operator's namespace, and its name in lower case: ("aten.", "conv2d")."""
        target = node.target
        if node.op == "call_module":
            kind = type(self.modules[target])
            return kind.__module__ + ".", key_of(kind.__name__)
        if node.op == "call_method":
            return "", key_of(target)
        schema = getattr(target, "_schema", None)
        name = schema.name if schema is not None else getattr(target, "_qualified_op_name", None)
        if name is not None:
            space, _, name = name.replace("::", ".").partition(".")
            return f"{space}.", key_of(name.partition(".")[0])
        return "", key_of(getattr(target, "__name__", str(target)))

    def _call(self, node: Any) -> None:
        source, key = self._name(node)
        self.source, self.key = source, key
        self.owner = self.modules[node.target] if node.op == "call_module" else None
        begin = len(self.nodes)
        try:
            result = self._translated(node, source, key)
        except Unknown:
            del self.nodes[begin:]
            self._forget(begin)
            result = self._unknown(node, source)
        self.values[node] = result
        if isinstance(result, Value):
            shape = self.shape_of(node)
            if result.rank is None and shape is not None:
                result.rank = len(shape)
            self.state(result.name, self.types.UINT8 if result.is_u8 else self.types.FLOAT, shape)

    def _forget(self, begin: int) -> None:
        """Forgets constants whose operators were removed."""
        made = {name for node in self.nodes for name in node.output}
        self.constants = {
            key: name for key, name in self.constants.items() if name in made or name in self.initializers
        }
        names = {node.name for node in self.nodes}
        self.done.places = [place for place in self.done.places if place.identity in names]

    def _unknown(self, node: Any, source: str) -> Any:
        inputs = [
            value.name if isinstance(value, Value) else self.name_of(value)
            for value in self._tensors([node.args, node.kwargs])
            if self._is_plain(value)
        ]
        name = (
            type(self.owner).__name__
            if self.owner is not None
            else key_of(getattr(node.target, "__name__", str(node.target)))
        )
        weights = [self.values.get(one) for one in node.all_input_nodes]
        is_product = (
            any(word in self.key for word in PRODUCTS)
            and source.startswith(PACKED)
            or self.key in LINEAR | CONV
        )
        is_product |= any(
            isinstance(value, Packed) or (isinstance(value, Constant) and value.scale is not None)
            for value in weights
        )
        # The audit counts operators of other domains as not audited.
        return Value(
            self.emit(name if is_product else f"torch.{name}", inputs, domain="torch" if is_product else "")
        )

    def _translated(self, node: Any, source: str, key: str) -> Any:
        x = self.value(node.args[0]) if node.args else None
        if key in ("size", "shape", "dim") or (key == "getattr" and node.args[1:2] == ("shape",)):
            if isinstance(x, Value):
                sizes = self.emit("Shape", [x.name])
                if len(node.args) > 1 and isinstance(node.args[1], int):
                    self.emit("Gather", [sizes, self.vector([node.args[1]])])
            return None
        if not any(True for _ in self._tensors([node.args, node.kwargs])) and self.owner is None:
            if isinstance(x, Packed):
                raise Unknown
            return None  # arithmetic on sizes
        if key == "getitem" and isinstance(x, list) and isinstance(node.args[1], int):
            return x[node.args[1]]
        if key in LINEAR or key in CONV:
            return self._product(node, key, x)
        if key in BINARY:
            return self._binary(key)
        if not isinstance(x, (Value, Constant, list)):
            raise Unknown
        if key in ELEMENTWISE or key in KEEPING:
            return self.like(x, self.emit(ELEMENTWISE.get(key, "Identity"), [self.name_of(x)]))
        if key in BOUNDED:
            return self._bounded(x)
        if key in POOLS:
            return self._pool(x)
        if key in REDUCTIONS:
            return self._reduce(x)
        handler = getattr(self, "_on_" + key, None)
        if handler is None or (isinstance(x, list) and key not in ("cat", "concat")):
            raise Unknown
        return handler(x)

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
        value = value.tensor if isinstance(value, Constant) else value
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            return float(value.reshape(-1)[0])
        return value if isinstance(value, (int, float)) else None

    def dim(self, x: Any, dim: int, extra: int = 0) -> int:
        """A dimension's number; counted from the end if the rank is not known."""
        rank = x.tensor.dim() if isinstance(x, Constant) else x.rank
        if not isinstance(dim, int) or (rank is None and (dim >= 0 or extra)):
            raise Unknown
        return dim if rank is None else dim % (rank + extra)

    @staticmethod
    def known(x: Any) -> int:
        rank = x.tensor.dim() if isinstance(x, Constant) else x.rank
        if rank is None:
            raise Unknown
        return rank


def translate(module: Any, example_inputs: tuple | None = None) -> Translation:
    """Translates a module to ONNX. `example_inputs`: a run's arguments, which give the shapes of tensors."""
    return _Translator(module, _graph_of(module, example_inputs)).run()


def constants_of(translation: Translation, proto: Any) -> list[np.ndarray]:
    """The constants of all places of a translation, as the operators read them in the translation or in a
    repaired copy."""
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
                raise Error(
                    "INTERNAL", f"{excerpt(reader)}: its constant {excerpt(place.identity)!r} is lost"
                )
            arrays.append(numpy_helper.to_array(initializers[name]))
        arrays = arrays or [numpy_helper.to_array(initializers[makers[f"{place.identity}.out"].input[0]])]
        if any(array.shape != arrays[0].shape or array.tobytes() != arrays[0].tobytes() for array in arrays):
            raise Error("INTERNAL", f"operators read the constant {excerpt(place.identity)!r} in two orders")
        found.append(arrays[0])
    return found


def write_back(translation: Translation, repaired: Any) -> None:
    """Writes the constants of the repaired translation into the module that was translated."""
    if [node.op_type for node in translation.proto.graph.node] != [
        node.op_type for node in repaired.graph.node
    ]:
        raise Error("INTERNAL", "the repaired model has other operators, which a module cannot get")
    stored = constants_of(translation, translation.proto)
    packed: dict[tuple, dict[str, np.ndarray]] = {}
    owners: dict[tuple, Packed] = {}
    changed = set()
    for place, array, old in zip(translation.places, constants_of(translation, repaired), stored):
        is_changed = array.shape != old.shape or array.tobytes() != old.tobytes()
        if place.tensor is not None:
            if is_changed:
                place.tensor.data = torch.tensor(array).to(place.tensor.dtype)
            continue
        key = (id(place.owner), place.attribute)
        packed.setdefault(key, {})[place.part] = array
        owners[key] = Packed(place.owner, place.attribute)
        if is_changed:
            changed.add(key)
    for key in changed:
        owner, parts = owners[key], packed[key]
        values = torch.tensor(parts["weight"])
        if parts["scale"].ndim:
            weight = torch._make_per_channel_quantized_tensor(
                values, torch.tensor(parts["scale"]), torch.tensor(parts["zero_point"]).to(torch.int64), 0
            )
        else:
            weight = torch._make_per_tensor_quantized_tensor(
                values, float(parts["scale"]), int(parts["zero_point"])
            )
        groups = 1 if owner.is_linear else owner.option("groups")
        if groups > 1 and values.shape[1] == 1 and owner.weight_bias()[0].shape[0] == groups:
            groups = len(values)  # depthwise, with copied channels
        bias = parts.get("bias")
        owner.set(weight, None if bias is None else torch.tensor(bias), groups)
