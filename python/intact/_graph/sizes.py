"""Short lists of sizes that operators compute, and tensors whose elements are all equal."""

from __future__ import annotations

import math
from typing import Any

from .dims import MOST_DIMS, size_of
from .nodes import attributes, every_node, inner_graphs
from .operators import OPERATORS, UNKNOWN

_MOST = 64  # elements of a tensor that is followed as a list of sizes
# Operators for which onnx infers no shapes, with an operator that stands in for them: it has equal shapes and
# these inputs.
_SHAPED_LIKE = {
    "QLinearAdd": ("Add", (0, 3)),
    "QLinearMul": ("Mul", (0, 3)),
    "QLinearSigmoid": ("Identity", (0,)),
    "QLinearLeakyRelu": ("Identity", (0,)),
    "QLinearAveragePool": ("AveragePool", (0,)),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,)),
}


class Sizes:
    """`vectors`: lists of sizes, by tensor; an axis stands for a size that a run decides. `uniform`: tensors
    whose elements are all equal, so that any order fits them."""

    def __init__(self, tensors: Any):
        self.tensors = tensors  # the axes.Axes
        self.vectors: dict[str, list] = {}
        self.uniform: set[str] = set()

    def vector_of(self, name: str) -> list | None:
        if name in self.vectors:
            return self.vectors[name]
        if not self.tensors.is_constant(name):
            return None
        value = self.tensors.scope.constant(name)
        if value is None or value.dtype.kind not in "iu" or value.size > _MOST:
            return None
        return [int(n) for n in value.reshape(-1)]

    def follow(self, node: Any) -> None:
        """Follows short lists of sizes. An axis stands for a size that a run decides."""
        op, values = node.op_type, attributes(node)
        found: list | None = None
        first = self.vector_of(node.input[0]) if node.input and node.input[0] else None
        if op == "Shape":
            dims = self.tensors.dims.get(node.input[0])
            if dims is not None:
                found = [
                    size_of(dim)
                    if size_of(dim) is not None
                    else dim[0][0].axis.root()
                    if len(dim) == 1 and len(dim[0]) == 1
                    else None
                    for dim in dims
                ]
                found = found[values.get("start", 0) : values.get("end", len(found))]
        elif op in ("Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape") and first is not None:
            found = (
                first
                if op not in ("Unsqueeze", "Squeeze", "Reshape") or len(first) <= 1 or op == "Reshape"
                else None
            )
        elif op == "Gather" and first is not None:
            indices = self.vector_of(node.input[1])
            if indices is not None and all(
                isinstance(i, int) and -len(first) <= i < len(first) for i in indices
            ):
                found = [first[i] for i in indices]
        elif op == "Concat":
            parts = [self.vector_of(name) or [None] * self._length(name) for name in node.input]
            if all(parts):
                found = [size for part in parts for size in part]
        elif op == "Slice" and first is not None:
            parts = [self.vector_of(name) if name else None for name in node.input[1:]]
            is_known = all(part is None or len(part) == 1 and isinstance(part[0], int) for part in parts)
            if len(parts) >= 2 and is_known and parts[0] and parts[1]:
                step = parts[3][0] if len(parts) > 3 and parts[3] else 1
                found = first[parts[0][0] : parts[1][0]] if step == 1 else None
        elif op in ("Add", "Sub", "Mul", "Div") and first is not None and len(node.input) == 2:
            second = self.vector_of(node.input[1])
            if (
                second is not None
                and len(first) == len(second) == 1
                and isinstance(first[0], int)
                and isinstance(second[0], int)
            ):
                a, b = first[0], second[0]
                if op != "Div" or (a >= 0 and b > 0):
                    found = [
                        a + b if op == "Add" else a - b if op == "Sub" else a * b if op == "Mul" else a // b
                    ]
        if found is not None and len(found) <= _MOST and node.output:
            self.vectors[node.output[0]] = found

    def follow_uniform(self, node: Any) -> None:
        op = node.op_type
        is_uniform = op == "ConstantOfShape" or (
            OPERATORS.get(op, UNKNOWN).keeps_uniform and node.input[0] in self.uniform
        )
        if op == "Expand" and self.tensors.is_constant(node.input[0]):
            value = self.tensors.scope.constant(node.input[0])
            is_uniform = value is not None and value.size == 1
        if is_uniform:
            self.uniform.update(name for name in node.output if name)

    def _length(self, name: str) -> int:
        dims = self.tensors.dims.get(name)
        size = size_of(dims[0]) if dims is not None and len(dims) == 1 else None
        return size if size is not None and size <= _MOST else 0


def _give_types(graph: Any) -> None:
    """Says that what Shapes read are tensors. onnx 1.12 ends the process at a Shape of a tensor without a known type, such as
    an output of another domain's operator."""
    read = {node.input[0] for node in every_node(graph) if node.op_type == "Shape" and node.input}
    for inner in (graph, *(inner for node in every_node(graph) for _, inner in inner_graphs(node))):
        known = {value.name for value in [*inner.value_info, *inner.output]}
        for name in dict.fromkeys(name for node in inner.node for name in node.output):
            if name in read - known:
                inner.value_info.add(name=name).type.tensor_type.SetInParent()


def shapes_of(proto: Any, open_size: int = 0) -> dict[str, list]:
    """Shapes that the file states or that onnx infers; None for unknown sizes. `open_size`: replaces open
    sizes of inputs, but 1 replaces the first size of each input; then the other shapes of the file are
    ignored."""
    import onnx

    light = onnx.ModelProto()
    light.ir_version = proto.ir_version
    light.opset_import.extend(proto.opset_import)
    light.graph.name = proto.graph.name
    light.graph.node.extend(proto.graph.node)
    light.graph.input.extend(proto.graph.input)
    light.graph.output.extend(proto.graph.output)
    if open_size:
        for value in [*light.graph.input, *light.graph.output]:
            for d, size in enumerate(value.type.tensor_type.shape.dim):
                if not size.HasField("dim_value"):
                    size.dim_value = (open_size if d else 1) if value in light.graph.input else 0
        for node in light.graph.node:
            if node.op_type in _SHAPED_LIKE:
                op, inputs = _SHAPED_LIKE[node.op_type]
                names = [node.input[i] for i in inputs if i < len(node.input)]
                node.op_type, node.domain = op, ""
                del node.input[:]
                node.input.extend(names)
    else:
        light.graph.value_info.extend(proto.graph.value_info)
    light.functions.extend(proto.functions)
    for tensor in proto.graph.initializer:
        if math.prod(tensor.dims) <= _MOST and tensor.data_location != 1:
            light.graph.initializer.append(tensor)
        else:
            light.graph.initializer.append(
                onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            )
    graph = light.graph
    _give_types(graph)
    try:
        graph = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    except Exception:  # onnx refuses the model: only the shapes in the file are known
        pass
    found: dict[str, list] = {}
    for value in [*graph.value_info, *graph.input, *graph.output]:
        if (
            value.type.HasField("tensor_type")
            and value.type.tensor_type.HasField("shape")
            and (len(value.type.tensor_type.shape.dim) <= MOST_DIMS)
        ):
            found[value.name] = [
                d.dim_value if d.HasField("dim_value") else None for d in value.type.tensor_type.shape.dim
            ]
    return found
