"""Finds the axes of an ONNX model's tensors that can be reordered together without changing the model's
results (dims.py)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from .._library import excerpt
from .dims import (
    MOST_DIMS,
    Axis,
    Dim,
    Reader,
    Use,
    factors,
    fix_size,
    freeze,
    frozen,
    not_depths,
    resolved,
    size_of,
    unify,
    whole,
)
from .nodes import attributes, names_that_inner_graphs_read, permutation_of, sorted_nodes
from .operators import Operator, row_of
from .scope import Scope
from .shapes import reshaped
from .sizes import Sizes, shapes_of

_MOST_SEGMENTS = 4096  # of a tensor that is followed


class Axes:
    """The axes of all tensors of a model's outermost graph. `uses`: constants and their axes. `readers`: the
    products with constant weights. `outputs`: the axes of the graph's outputs, by name."""

    def __init__(self, proto: Any, folder: Path, exact_nodes: set[int]):
        self.proto, self.graph = proto, proto.graph
        self.nodes = list(self.graph.node)
        self.scope = Scope(self.graph, folder)
        self.exact_nodes = exact_nodes  # operators that add integers, so their order is free
        self.opset = max([o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")], default=1)
        self.dims: dict[str, list | None] = {}
        self.sizes = Sizes(self)
        self.uses: list[Use] = []
        self.uses_of: dict[int, list[Use]] = {}  # key: the operator's number
        self.readers: list[Reader] = []
        self.products: list[tuple[int, list]] = []  # operators with constant weights, and the weights' axes
        self.outputs: dict[str, list] = {}
        self.depthwise: dict[int, Dim] = {}  # the channels of convolutions with one group for each channel
        self.leaves: dict[str, tuple] = {tensor.name: tuple(tensor.dims) for tensor in self.graph.initializer}
        self.lazy: dict[str, int] = {}  # tensors computed from constants alone, and the node that makes each
        self.captured = names_that_inner_graphs_read(self.graph)
        self.hints = shapes_of(proto)
        self._run()

    def is_constant(self, name: str) -> bool:
        return name in self.leaves or name in self.lazy

    def shape(self, name: str) -> tuple | None:
        """A constant's shape."""
        if name in self.leaves:
            return self.leaves[name]
        node = self.nodes[self.lazy[name]]
        shape = self.shape(node.input[0])
        if node.op_type in ("DequantizeLinear", "QuantizeLinear", "Identity", "Cast") or shape is None:
            return shape
        if node.op_type == "Transpose":
            permutation = permutation_of(node, len(shape))
            return None if permutation is None else tuple(shape[i] for i in permutation)
        hint = self.hints.get(name)
        return tuple(hint) if hint is not None and None not in hint else None

    def is_read(self, name: str) -> bool:
        """Whether anything reads a tensor."""
        is_output = any(name == value.name for value in self.graph.output)
        return bool(name) and (name in self.scope.consumers or name in self.captured or is_output)

    def is_scalar(self, name: str) -> bool:
        """Whether a constant has one element."""
        shape = self.shape(name)
        return shape is not None and math.prod(shape) == 1

    def of(self, node: Any, i: int) -> list | None:
        """The axes of a node's input; None if they are not known. A constant gets new axes, which are
        free."""
        if i >= len(node.input) or not node.input[i]:
            return None
        name = node.input[i]
        if not self.is_constant(name):
            return self.dims.get(name)
        shape = self.shape(name)
        if shape is None:
            return None
        dims = [whole(Axis(size)) for size in shape]
        self.demand(node, i, dims)
        return dims

    def weights(self, node: Any, i: int, dims: list) -> None:
        """Calls demand() for the weights of a product, and notes the product."""
        self.products.append((self.place(node), dims))
        self.demand(node, i, dims)

    def demand(self, node: Any, i: int, dims: list) -> None:
        """Requires that a constant has these axes where the node reads it."""
        name = node.input[i]
        if name in self.leaves:
            shape = self.leaves[name]
            if tuple(size_of(dim) for dim in dims) != shape:
                return freeze(dims, f"a constant of another shape, {excerpt(name)!r}")
            if name in self.scope.overridable:
                freeze(dims, f"the constant {excerpt(name)!r} that a caller may override")
            use = Use(self.place(node), i, name, dims)
            self.uses.append(use)
            self.uses_of.setdefault(use.node, []).append(use)
            return None
        if self.dims.get(name) is not None:
            for old, new in zip(self.dims[name], dims):
                unify(old, new, f"weights that operators read in different layouts, {excerpt(name)!r}")
            return None
        self.dims[name] = dims
        maker = self.nodes[self.lazy[name]]
        return self._demand_through(maker, dims)

    def _demand_through(self, node: Any, dims: list) -> None:
        op = node.op_type
        if op == "Transpose":
            permutation = permutation_of(node, len(dims))
            if permutation is None:
                freeze(dims, "Transpose with a wrong perm")
            else:
                self.demand(node, 0, [dims[permutation.index(axis)] for axis in range(len(dims))])
        elif op in ("Reshape", "Squeeze", "Unsqueeze"):
            shape = self.shape(node.input[0]) or ()
            fix_size(*dims)
            self.demand(node, 0, reshaped(dims, list(shape)))
        else:
            self.demand(node, 0, dims)
            if op in ("DequantizeLinear", "QuantizeLinear"):
                self.per_axis(node, dims)

    def per_axis(self, node: Any, dims: list) -> None:
        """Gives the scale and zero point of a QuantizeLinear or DequantizeLinear their axis."""
        values = attributes(node)
        if values.get("block_size"):
            freeze(dims, "scales for blocks of weights")
        axis = values.get("axis", 1)
        dim = dims[axis] if -len(dims) <= axis < len(dims) else [[]]
        for i in (1, 2):
            if i < len(node.input) and node.input[i]:
                self.along(node, i, not_depths(dim), dims)  # a copied channel keeps its scale

    def along(self, node: Any, i: int, dim: Dim, others: Any = ()) -> None:
        """Gives an input its axis: it has a value for each index of a dimension, or one value."""
        if i >= len(node.input) or not node.input[i]:
            return
        name = node.input[i]
        reason = f"{node.op_type} {excerpt(name)!r}"
        if name in self.sizes.uniform:  # PyTorch's zero points of biases
            fix_size(dim)
            return
        if not self.is_constant(name):
            dims = self.dims.get(name)
            if dims is None:
                freeze([dim, *others], reason)
            elif dims:
                if size_of(dims[-1]) != 1:
                    unify(dim, dims[-1], reason)
                freeze(dims[:-1], reason)
            return
        shape = self.shape(name)
        if shape is None:
            freeze([dim, *others], reason)
        elif math.prod(shape) != 1:
            if shape[-1] == size_of(dim) and math.prod(shape) == shape[-1]:
                self.demand(node, i, [frozen(1, "") for _ in shape[:-1]] + [dim])
            else:
                freeze([dim, *others], reason)

    @staticmethod
    def row(node: Any) -> Operator:
        return row_of(node)

    def place(self, node: Any) -> int:
        return self.places[id(node)]

    def _run(self) -> None:
        self.places = {id(node): i for i, node in enumerate(self.nodes)}
        for value in self.graph.input:
            if value.name not in self.leaves:
                tensor = value.type.tensor_type
                known = value.type.HasField("tensor_type") and tensor.HasField("shape")
                reason = f"the graph's input {excerpt(value.name)!r}"
                self.dims[value.name] = (
                    [
                        frozen(d.dim_value if d.HasField("dim_value") else None, reason)
                        for d in tensor.shape.dim
                    ]
                    if known
                    else None
                )
        for i in sorted_nodes(self.nodes, self.scope):
            node = self.nodes[i]
            if node.op_type == "Constant" and len(node.output) == 1:
                value = self.scope.constant(node.output[0])
                if value is not None:
                    self.leaves[node.output[0]] = value.shape
                    continue
            if (
                row_of(node).is_lazy
                and node.input
                and all(self.is_constant(name) for name in node.input if name)
            ):
                self.lazy[node.output[0]] = i
                if self.shape(node.output[0]) is not None:
                    continue
                del self.lazy[node.output[0]]
            self._node(node)
        for name in sorted(self.captured):
            self._freeze_name(name, "an inner graph that reads it")
        for value in self.graph.output:
            dims = self.dims.get(value.name)
            if value.name in self.lazy and dims is None:
                continue
            if dims is None or value.name in self.lazy or value.name not in self.scope.producers:
                freeze(dims, f"the graph's output {excerpt(value.name)!r}")
                continue
            self.outputs[value.name] = dims
        for dims in [*self.dims.values(), *(use.dims for use in self.uses)]:
            if dims is not None:
                self._validate(dims)
        for name, dims in self.outputs.items():
            for dim in dims:
                for segment in resolved(dim):
                    if len(segment) > 1 or (segment and not segment[0].is_whole):
                        freeze([[segment]], f"the graph's output {excerpt(name)!r}, reshaped")

    def _freeze_name(self, name: str, reason: str) -> None:
        if name in self.lazy and self.dims.get(name) is None:
            shape = self.shape(name)
            if shape is not None:
                self.dims[name] = [frozen(size, reason) for size in shape]
                self._demand_through(self.nodes[self.lazy[name]], self.dims[name])
        freeze(self.dims.get(name), reason)

    @staticmethod
    def _validate(dims: list) -> None:
        """Freezes an axis if a tensor has its digit with stride 1, but not the digits that number its
        blocks."""
        numbers: dict[Axis, int] = {}
        for factor in [factor for dim in dims for factor in factors(dim)]:
            if factor.stride > 1:
                root = factor.axis.root()
                numbers[root] = numbers.get(root, 1) * factor.size
            if factor.also is not None:
                root = factor.also.root()
                numbers[root] = numbers.get(root, 1) * factor.size
        for factor in [factor for dim in dims for factor in factors(dim)]:
            root = factor.axis.root()
            if (
                factor.stride == 1
                and not factor.is_whole
                and not root.reason
                and root.size != factor.size * numbers.get(root, 1)
            ):
                root.freeze("a tensor that has only a part of its channels")

    def _node(self, node: Any) -> None:
        domain = node.domain if node.domain != "ai.onnx" else ""
        rule = row_of(node).axes
        results = rule(self, node) if rule and domain in row_of(node).domains else None
        if results is not None and any(
            dims is not None and (len(dims) > MOST_DIMS or sum(map(len, dims)) > _MOST_SEGMENTS)
            for dims in results
        ):
            results = None
        if results is None:
            self._unknown(node)
            return
        for name, dims in zip(node.output, results):
            if name:
                self.dims[name] = dims
                hint = self.hints.get(name)
                if dims is not None and hint is not None and len(hint) == len(dims):
                    for i, size in enumerate(hint):
                        if size is not None and size_of(dims[i]) is None:
                            dims[i] = frozen(size, "a size that a run decides")
        if domain == "":
            self.sizes.follow(node)
            self.sizes.follow_uniform(node)

    def _unknown(self, node: Any, reason: str = "") -> None:
        """Freezes all tensors that the operator reads or writes."""
        reason = reason or f"the operator {excerpt(node.op_type)}"
        for name in node.input:
            if name:
                self._freeze_name(name, reason)
        for use in self.uses_of.get(self.place(node), ()):
            freeze(use.dims, reason)
        for name in node.output:
            hint = self.hints.get(name)
            self.dims[name] = None if hint is None else [frozen(size, reason) for size in hint]
