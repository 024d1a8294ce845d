"""The constants, producers and consumers of an ONNX graph, and what follows from them: shapes, types,
ranges."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from .nodes import (
    DTYPES,
    array_of_tensor,
    attributes,
    captured,
    four_bits,
    input_of,
    permutation_of,
    type_name,
)
from .operators import BOUNDED, row_of


class Scope:
    """The constants, producers and consumers of a graph; and, through `parent`, of the graphs around it."""

    def __init__(self, graph: Any, folder: Path, parent: "Scope | None" = None, within: str = ""):
        self.folder, self.parent, self.within = folder, parent, within
        inputs = {value.name for value in graph.input}
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.overridable = inputs & set(self.initializers)
        self.outputs = {value.name for value in graph.output}
        self.producers = {output: node for node in graph.node for output in node.output if output}
        self.consumers: dict[str, list] = {}
        self.captors: dict[str, list] = {}  # nodes whose inner graphs read a tensor of this graph
        for node in graph.node:
            for name in node.input:
                self.consumers.setdefault(name, []).append(node)
            for name in captured(node):
                self.captors.setdefault(name, []).append(node)
        self.types = {
            value.name: value.type.tensor_type.elem_type
            for value in [*graph.input, *graph.value_info, *graph.output]
        }
        self.shapes = {
            value.name: tuple(
                each.dim_value if each.HasField("dim_value") else each.dim_param or None
                for each in value.type.tensor_type.shape.dim
            )
            for value in [*graph.input, *graph.value_info, *graph.output]
            if value.type.tensor_type.HasField("shape")
        }
        self._constants: dict[str, np.ndarray | None] = {}

    def scope_of(self, name: str) -> "Scope | None":
        if name in self.initializers or name in self.producers:
            return self
        return self.parent.scope_of(name) if self.parent else None

    def readers(self, name: str) -> list:
        """The consumers and the captors of a tensor, in the graph that makes it."""
        scope = self.scope_of(name) or self
        return scope.consumers.get(name, []) + scope.captors.get(name, [])

    def is_output(self, name: str) -> bool:
        """Whether a tensor is an output of the graph that makes it."""
        return name in (self.scope_of(name) or self).outputs

    def producer(self, name: str) -> Any:
        scope = self.scope_of(name)
        return scope.producers.get(name) if scope else None

    def constant(self, name: str, depth: int = 0) -> np.ndarray | None:
        """The value of a tensor that does not depend on the model's inputs; None if this reader cannot
        compute it."""
        scope = self.scope_of(name)
        if scope is None or depth > 16:
            return None
        if name not in scope._constants:
            scope._constants[name] = scope._evaluate(name, depth)
        return scope._constants[name]

    def shape_of_constant(self, name: str) -> tuple[int, tuple[int, ...]] | None:
        """The type (of onnx.TensorProto) and the shape of a constant, also of types of 2 and 4 bits."""
        scope = self.scope_of(name)
        if scope is None:
            return None
        tensor = scope.initializers.get(name)
        if tensor is None and scope.producers[name].op_type == "Constant":
            tensor = next(
                (attribute.t for attribute in scope.producers[name].attribute if attribute.name == "value"),
                None,
            )
        return None if tensor is None else (tensor.data_type, tuple(tensor.dims))

    def shape_of(self, name: str, depth: int = 0) -> "tuple[int | str | None, ...] | None":
        """The extents of a tensor, numbers or names, as far as the file states them; None if it does not."""
        scope: Scope | None = self if depth < 32 else None
        while scope:
            if name in scope.shapes:
                return scope.shapes[name]
            scope = scope.parent
        stored = self.shape_of_constant(name)
        node = self.producer(name) if depth < 32 else None
        if stored is not None or node is None:
            return stored[1] if stored is not None else None
        if row_of(node).keeps_shape and node.input:
            return self.shape_of(node.input[0], depth + 1)
        if node.op_type == "Transpose" and node.input:
            shape = self.shape_of(node.input[0], depth + 1)
            permutation = permutation_of(node, len(shape or ()))
            return None if None in (shape, permutation) else tuple(shape[i] for i in permutation)
        if node.op_type == "Reshape" and len(node.input) > 1:
            return self._reshaped(node, depth)
        return None

    def _reshaped(self, node: Any, depth: int) -> "tuple[int | str | None, ...] | None":
        """The shape behind a Reshape, if its second input is a constant."""
        given, before = self.constant(node.input[1]), self.shape_of(node.input[0], depth + 1)
        if given is None or given.ndim != 1:
            return None
        extents = [
            (before[i] if before is not None and i < len(before) else None)
            if n == 0
            else None
            if n < 0
            else int(n)
            for i, n in enumerate(given)
        ]
        if (given < 0).sum() == 1 and before is not None and all(isinstance(n, int) for n in before):
            known = math.prod(n for n, one in zip(extents, given) if one >= 0 and isinstance(n, int))
            whole = (
                known
                and math.prod(before) % known == 0
                and all(isinstance(n, int) for n, one in zip(extents, given) if one >= 0)
            )
            extents = [
                math.prod(before) // known if one < 0 and whole else n for n, one in zip(extents, given)
            ]
        return tuple(extents)

    def integers_of(self, name: str) -> tuple[np.ndarray, str] | None:
        """A stored constant of 4 or 8 bits as int8 or uint8, and its type: "u8", "s8", "u4" or "s4"."""
        scope = self.scope_of(name)
        tensor = scope.initializers.get(name) if scope else None
        if tensor is None or tensor.data_type not in (21, 22):
            value = self.constant(name)
            return (value, type_name(value.dtype)) if value is not None and type_name(value.dtype) else None
        return four_bits(tensor, scope.folder), "u4" if tensor.data_type == 21 else "s4"

    def _evaluate(self, name: str, depth: int) -> np.ndarray | None:
        if name in self.initializers:
            return array_of_tensor(self.initializers[name], self.folder)
        node = self.producers[name]
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    return array_of_tensor(attribute.t, self.folder)
                if attribute.name in ("value_float", "value_int"):
                    return np.array(attribute.f if attribute.name == "value_float" else attribute.i)
            return None
        if node.op_type in ("Identity", "Transpose", "Reshape", "QuantizeLinear") and node.input:
            value = self.constant(node.input[0], depth + 1)
            if value is None:
                return None
            if node.op_type == "QuantizeLinear":
                return self._quantized(node, value, depth)
            return self._moved(node, value, depth)
        return None

    def _moved(self, node: Any, value: np.ndarray, depth: int) -> np.ndarray | None:
        """A constant after an operator that only moves its numbers; None if the result cannot be computed."""
        if node.op_type in ("Identity", "Dropout"):
            return value
        if node.op_type == "Transpose":
            permutation = permutation_of(node, value.ndim)
            return None if permutation is None else value.transpose(permutation)
        shape = self.constant(node.input[1], depth + 1) if len(node.input) > 1 else None
        if node.op_type == "Reshape" and shape is not None:
            return value.reshape([value.shape[i] if n == 0 else int(n) for i, n in enumerate(shape)])
        return None

    def integers(self, name: str, depth: int = 0, stored: np.ndarray | None = None) -> np.ndarray | None:
        """The constant from which a DequantizeLinear makes the float tensor `name`, in that tensor's shape.
        `stored` replaces the constant."""
        node = self.producer(name)
        if node is None or depth > 16:
            return None
        if node.op_type == "DequantizeLinear":
            return self.constant(node.input[0]) if stored is None else stored
        value = self.integers(node.input[0], depth + 1, stored)
        return None if value is None else self._moved(node, value, depth)

    def dequantizer(self, name: str) -> Any:
        """The DequantizeLinear that makes a tensor, directly or through operators that ONNX Runtime
        passes."""
        for _ in range(16):
            node = self.producer(name)
            if node is None or node.op_type == "DequantizeLinear":
                return node
            if not row_of(node).is_passed or not node.input:
                return None
            name = node.input[0]
        return None

    def _quantized(self, node: Any, value: np.ndarray, depth: int) -> np.ndarray | None:
        scale = self.constant(node.input[1], depth + 1)
        point = self.point(node, depth + 1)
        if scale is None or point is None or attributes(node).get("block_size"):
            return None
        axis = attributes(node).get("axis", 1)
        shape = [1] * value.ndim
        if scale.size > 1:
            shape[axis] = scale.size
        info = np.iinfo(point.dtype)
        real = np.rint(value / scale.reshape(shape)) + point.astype(np.int32).reshape(
            shape if point.size > 1 else [1] * value.ndim
        )
        return np.clip(real, info.min, info.max).astype(point.dtype)

    def point(self, node: Any, depth: int = 0) -> np.ndarray | None:
        """The zero point of a QuantizeLinear to 8 bits, if it is a constant."""
        if input_of(node, 2):
            value = self.constant(node.input[2], depth)
        else:
            value = np.zeros((), DTYPES.get(attributes(node).get("output_dtype") or 2, np.uint16))
        return value if value is not None and value.dtype in (np.int8, np.uint8) else None

    def type_of(self, name: str, depth: int = 0) -> Any:
        """The NumPy type of a tensor's elements, or None."""
        scope: Scope | None = self if depth < 32 else None
        while scope:
            if scope.types.get(name):
                return DTYPES.get(scope.types[name])
            scope = scope.parent
        node = self.producer(name) if depth < 32 else None
        if node is None or node.op_type == "Constant":
            value = self.constant(name)
            return value.dtype.type if value is not None else None
        if node.op_type == "DynamicQuantizeLinear":
            return np.uint8
        if node.op_type == "QuantizeLinear":
            has_point = input_of(node, 2)
            if has_point:
                return self.type_of(node.input[2], depth + 1)
            return DTYPES.get(attributes(node).get("output_dtype") or 2)
        if (row_of(node).moves or row_of(node).range is BOUNDED) and node.input:
            return self.type_of(node.input[0], depth + 1)
        point = row_of(node).c_point
        if point is None or len(node.input) <= point:
            return None
        value = self.constant(node.input[point])
        return value.dtype.type if value is not None else None

    def real_range(self, name: str, depth: int = 0) -> tuple[float, float, str]:
        """Bounds of a float tensor from the operators that make it, and the operator that bounds it. ±inf: no
        bound."""
        node = self.producer(name) if depth < 32 else None
        if node is None:
            return -math.inf, math.inf, ""
        op, range_ = node.op_type, row_of(node).range
        if isinstance(range_, tuple):
            return (*range_, op)
        if op == "Relu":
            low, high, why = self.real_range(node.input[0], depth + 1)
            return max(low, 0.0), max(high, 0.0), f"{op} of {why}" if why else op
        if op == "Clip":
            bounds = [attributes(node).get("min"), attributes(node).get("max")]
            for i in (1, 2):
                if input_of(node, i):
                    value = self.constant(node.input[i])
                    bounds[i - 1] = None if value is None or value.size != 1 else float(value.reshape(-1)[0])
            low = -math.inf if bounds[0] is None else bounds[0]
            high = math.inf if bounds[1] is None else bounds[1]
            if math.isnan(low) or math.isnan(high):
                return -math.inf, math.inf, ""
            return min(low, high), high, op  # if low > high, Clip returns `high`
        if range_ is BOUNDED and node.input:
            return self.real_range(node.input[0], depth + 1)
        return -math.inf, math.inf, ""
