"""Finds the axes of an ONNX model's tensors that can be reordered together without changing the model's results.

An `Axis` is a set of indices with one order for all tensors that have it. A dimension of a tensor is a list of segments, which
lie one after the other (Concat). A segment is a list of factors, the slowest first (Reshape). A factor is an axis, or a digit of
its index: (index // stride) % size. Only digits with stride 1 are ever reordered. The other digits number blocks, and an order
stays within blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .._library import excerpt
from .nodes import attributes
from .scope import Scope


class Axis:
    """A set of indices. `size`: None if a run decides it. `block`: an order stays within blocks of this size; 0: one block.
    `reason`: why only the stored order is possible. `sums`: the sums of floats that a new order rearranges, in words.
    `has_fixed_size`: whether added channels would change results."""

    __slots__ = ("parent", "size", "block", "reason", "sums", "parts", "is_composite", "has_fixed_size")

    def __init__(self, size: int | None, reason: str = ""):
        self.parent: Axis | None = None
        self.size, self.block, self.reason, self.sums = size, 0, reason, ""
        self.parts: list[Axis] | None = None
        self.is_composite = False  # whether it is one of several factors, or has digits: it cannot be cut into segments
        self.has_fixed_size = False

    def root(self) -> "Axis":
        root = self
        while root.parent is not None:
            root = root.parent
        while self.parent is not None:  # shortens the path
            self.parent, self = root if self is not root else None, self.parent
        return root

    @property
    def is_frozen(self) -> bool:
        return bool(self.root().reason)

    def freeze(self, reason: str) -> None:
        root = self.root()
        root.reason = root.reason or reason
        for part in root.parts or []:
            part.freeze(reason)

    def divide(self, block: int) -> None:
        root = self.root()
        root.block = math.gcd(root.block, block)
        self.compose()

    def compose(self) -> None:
        root = self.root()
        root.is_composite = root.has_fixed_size = True
        if root.parts:
            self.freeze("a concatenation that is reshaped")

    def cut(self, sizes: list[int]) -> "list[Axis]":
        """Cuts the axis into segments; each has its own order."""
        root = self.root()
        if root.parts is None:
            if root.is_composite:
                root.freeze("an axis that is both cut and reshaped")
            root.has_fixed_size = True
            root.parts = [Axis(size, root.reason) for size in sizes]
            for part in root.parts:
                part.sums, part.has_fixed_size = root.sums, True
        return root.parts


class Factor(NamedTuple):
    """A digit of an axis. `also`: a second axis whose blocks this digit numbers (groups of a convolution's input channels).
    `is_depth`: whether it is the depth of a product's weights; the weights of a copied channel may be zeros there."""

    axis: Axis
    stride: int
    size: int | None
    also: Any = None
    is_depth: bool = False

    @property
    def is_whole(self) -> bool:
        return self.stride == 1 and self.size == self.axis.root().size


Segment = list  # a list of Factor
Dim = list  # a list of Segment


def whole(axis: Axis) -> Dim:
    return [[Factor(axis, 1, axis.size)]] if axis.size != 1 else [[]]


def frozen(size: int | None, reason: str) -> Dim:
    return whole(Axis(size, reason))


def segment_size(segment: Segment) -> int | None:
    sizes = [factor.size for factor in segment]
    return None if None in sizes else math.prod(sizes)


def size_of(dim: Dim) -> int | None:
    sizes = [segment_size(segment) for segment in dim]
    return None if None in sizes else sum(sizes)


def resolved(dim: Dim) -> Dim:
    """The dimension, with each cut axis replaced by its segments."""
    found: Dim = []
    for segment in dim:
        if len(segment) == 1 and segment[0].is_whole and segment[0].axis.root().parts and not segment[0].axis.is_frozen:
            for part in segment[0].axis.root().parts:
                found += resolved(whole(part))
        else:
            found.append(segment)
    return found


def factors(dim: Dim) -> list:
    return [factor for segment in resolved(dim) for factor in segment]


def freeze(dims: Any, reason: str) -> None:
    for dim in dims or []:
        for factor in factors(dim):
            factor.axis.freeze(reason)


def depths(dim: Dim) -> Dim:
    """The dimension, marked as the depths of a product's weights."""
    return [[factor._replace(is_depth=True) for factor in segment] for segment in dim]


def not_depths(dim: Dim) -> Dim:
    """The dimension without the mark of `depths`: the channels of a tensor that is no weights."""
    return [[factor._replace(is_depth=False) for factor in segment] for segment in dim]


def fix_size(*dims: Dim) -> None:
    for dim in dims:
        for factor in factors(dim):
            factor.axis.root().has_fixed_size = True


def is_free(dim: Dim) -> bool:
    """Whether some axis of the dimension can still be reordered."""
    return any(not factor.axis.is_frozen and factor.stride == 1 for factor in factors(dim))


def joined(segment: Segment) -> Segment:
    """The segment with adjacent digits of one axis merged, without factors of size 1."""
    found: Segment = []
    for factor in segment:
        if factor.size == 1:
            continue
        last = found[-1] if found else None
        if (last and last.axis.root() is factor.axis.root() and factor.size and last.size and not last.also and not factor.also
                and last.stride == factor.stride * factor.size):
            found[-1] = Factor(last.axis, factor.stride, last.size * factor.size)
        else:
            found.append(factor)
    if len(found) > 1 or (found and not found[0].is_whole):
        for factor in found:
            factor.axis.compose()
    return found


def union(a: Axis, b: Axis, reason: str) -> None:
    """Makes both axes share one order. Axes that cannot are frozen."""
    a, b = a.root(), b.root()
    if a is b:
        return
    if a.size is None or a.size != b.size:  # two unknown sizes may differ
        a.freeze(reason)
        b.freeze(reason)
        return
    if a.parts or b.parts:  # unify() replaces cut axes by their segments if it can
        a.freeze("an axis that is both cut and reshaped")
        b.freeze("an axis that is both cut and reshaped")
        return
    b.parent = a
    a.block = math.gcd(a.block, b.block)
    a.sums = a.sums or b.sums
    a.is_composite |= b.is_composite
    a.has_fixed_size |= b.has_fixed_size
    if a.reason or b.reason:
        a.freeze(a.reason or b.reason)


def _unify_segments(a: Segment, b: Segment, reason: str) -> None:
    if [(f.stride, f.size, f.axis.root().size) for f in a] == [(f.stride, f.size, f.axis.root().size) for f in b]:
        for first, second in zip(a, b):
            if first.stride > 1 and (first.axis.is_frozen or second.axis.is_frozen):
                continue  # digits that number blocks are never reordered
            union(first.axis, second.axis, reason)
        return
    for one, other in ((a, b), (b, a)):
        for factor in one:
            # If the other side keeps the stored order, digits that number blocks agree with it.
            if factor.stride == 1 or any(not f.axis.is_frozen for f in other):
                factor.axis.freeze(next((f.axis.root().reason for f in other if f.axis.is_frozen), reason))


def unify(a: Dim, b: Dim, reason: str) -> None:
    """Makes both dimensions share one order, or freezes them in the stored order."""
    a, b = list(resolved(a)), list(resolved(b))
    while a and b:
        first, second = segment_size(a[0]), segment_size(b[0])
        if first == second or (len(a) == len(b) == 1):
            _unify_segments(a.pop(0), b.pop(0), reason)
            continue
        if first is None or second is None:
            break
        larger, smaller = (a, b) if first > second else (b, a)
        least, most = min(first, second), max(first, second)
        factor = larger[0][0]
        if len(larger[0]) != 1 or not factor.is_whole or least == 0:
            break
        parts = factor.axis.cut([least, most - least])
        larger[:1] = [segment for part in parts for segment in resolved(whole(part))]
        if segment_size(larger[0]) == most:  # it is frozen
            break
    if a or b:
        freeze([a], reason)
        freeze([b], reason)


def regrouped(segment: Segment, sizes: list[int]) -> "list[Segment] | None":
    """The factors of a segment, distributed to dimensions of these sizes; None if a factor and a size do not divide evenly."""
    left = list(segment)
    groups = []
    for size in sizes:
        group = []
        while size > 1:
            if not left:
                return None
            factor = left.pop(0)
            if not factor.size or factor.also:
                return None
            if size % factor.size == 0:
                group.append(factor)
                size //= factor.size
            elif factor.size % size == 0:
                inner = factor.size // size
                factor.axis.divide(factor.stride * inner)
                group.append(Factor(factor.axis, factor.stride * inner, size))
                left.insert(0, Factor(factor.axis, factor.stride, inner))
                size = 1
            else:
                return None
        groups.append(joined(group))
    return None if any(factor.size != 1 for factor in left) else groups


@dataclass
class Use:
    """A constant as an operator's input, and the axes of its dimensions."""

    node: int
    input: int
    name: str
    dims: list


@dataclass
class Reader:
    """A product of activations and constant weights. `dim`: the axes of its depths, or of a convolution's input channels."""

    node: int
    dim: Dim
    part: int = 0  # the number of this product, if the operator has several


_SAME = set("""Relu LeakyRelu Elu Selu Celu Sigmoid HardSigmoid HardSwish Tanh Erf Exp Log Sqrt Reciprocal Neg Abs Floor Ceil
    Round Sign Softplus Softsign Cast Identity Dropout Gelu QuickGelu Mish ThresholdedRelu Not IsNaN IsInf Sin Cos Shrink Clip
    Swish FastGelu CastLike QLinearSigmoid QLinearLeakyRelu""".split())
_BROADCAST = set("""Add Sub Mul Div Pow Min Max Mean Sum Where And Or Xor Equal Greater Less GreaterOrEqual LessOrEqual PRelu Mod
    BiasGelu""".split())
_SUMMED = {"ReduceMean", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd", "ReduceLogSum", "ReduceLogSumExp"}
_REDUCED = _SUMMED | {"ReduceMax", "ReduceMin"}
_POOLS = {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "QLinearAveragePool", "QLinearGlobalAveragePool"}
_LAZY = {"DequantizeLinear", "QuantizeLinear", "Identity", "Cast", "Transpose", "Reshape", "Squeeze", "Unsqueeze"}
_PRODUCTS = {"MatMul", "MatMulInteger", "QLinearMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "Gemm", "QGemm"}
_MOST_DIMS, _MOST_SEGMENTS = 64, 4096  # limits for a tensor that is followed; operators of a hostile graph may double both
_MICROSOFT = {"QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearAveragePool", "QLinearGlobalAveragePool",
              "QLinearConcat", "QGemm", "QLinearConv", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM",
              "QuickGelu", "Gelu", "FastGelu", "BiasGelu", "QuantizeLinear", "DequantizeLinear", "SkipLayerNormalization",
              "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization", "MultiHeadAttention"}
_KEEPS_UNIFORM = {"Slice", "Expand", "Transpose", "Unsqueeze", "Squeeze", "Reshape", "Identity", "Cast", "Gather", "Split"}
# Operators for which onnx infers no shapes, with an operator that stands in for them: it has equal shapes and these inputs.
_SHAPED_LIKE = {"QLinearAdd": ("Add", (0, 3)), "QLinearMul": ("Mul", (0, 3)), "QLinearSigmoid": ("Identity", (0,)),
                "QLinearLeakyRelu": ("Identity", (0,)), "QLinearAveragePool": ("AveragePool", (0,)),
                "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,))}
_MOST_VECTOR = 64  # elements of a tensor that is followed as a list of sizes


class Axes:
    """The axes of all tensors of a model's outermost graph. `uses`: constants and their axes. `readers`: the products with
    constant weights. `outputs`: the axes of the graph's outputs, by name."""

    def __init__(self, proto: Any, folder: Path, exact_nodes: set[int]):
        self.proto, self.graph = proto, proto.graph
        self.nodes = list(self.graph.node)
        self.scope = Scope(self.graph, folder)
        self.exact_nodes = exact_nodes  # operators that add integers, so their order is free
        self.opset = max([o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")], default=1)
        self.dims: dict[str, list | None] = {}
        self.vectors: dict[str, list] = {}
        self.uniform: set[str] = set()  # tensors whose elements are all equal: any order fits them
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

    # ----- names ------------------------------------------------------------------------------------------------------

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
            permutation = attributes(node).get("perm") or list(range(len(shape)))[::-1]
            return tuple(shape[i] for i in permutation)
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
        """The axes of a node's input; None if they are not known. A constant gets new axes, which are free."""
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
        op, values = node.op_type, attributes(node)
        if op == "Transpose":
            permutation = values.get("perm") or list(range(len(dims)))[::-1]
            inner: list = [None] * len(dims)
            for i, axis in enumerate(permutation):
                inner[axis] = dims[i]
            self.demand(node, 0, inner)
        elif op in ("Reshape", "Squeeze", "Unsqueeze"):
            shape = self.shape(node.input[0]) or ()
            fix_size(*dims)
            self.demand(node, 0, self.reshaped(dims, list(shape)))
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
        if name in self.uniform:  # PyTorch's zero points of biases
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

    def place(self, node: Any) -> int:
        return self.places[id(node)]

    # ----- the pass ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self.places = {id(node): i for i, node in enumerate(self.nodes)}
        for value in self.graph.input:
            if value.name not in self.leaves:
                tensor = value.type.tensor_type
                known = value.type.HasField("tensor_type") and tensor.HasField("shape")
                reason = f"the graph's input {excerpt(value.name)!r}"
                self.dims[value.name] = [frozen(d.dim_value if d.HasField("dim_value") else None, reason)
                                         for d in tensor.shape.dim] if known else None
        for i in _sorted(self.nodes, self.scope):
            node = self.nodes[i]
            op = node.op_type
            if op == "Constant" and len(node.output) == 1:
                value = self.scope.constant(node.output[0])
                if value is not None:
                    self.leaves[node.output[0]] = value.shape
                    continue
            if op in _LAZY and node.input and all(self.is_constant(name) for name in node.input if name):
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
        """Freezes an axis if a tensor has its digit with stride 1, but not the digits that number its blocks."""
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
            if factor.stride == 1 and not factor.is_whole and not root.reason and root.size != factor.size * numbers.get(root, 1):
                root.freeze("a tensor that has only a part of its channels")

    def _node(self, node: Any) -> None:
        op, domain = node.op_type, node.domain if node.domain != "ai.onnx" else ""
        handler = None
        if (domain == "" and op not in _MICROSOFT) or (domain == "com.microsoft" and op in _MICROSOFT) or (
                domain == "" and op in ("Gelu", "QuantizeLinear", "DequantizeLinear", "QLinearConv")):
            handler = self._handler(op)
        results = handler(node) if handler else None
        if results is not None and any(dims is not None and (len(dims) > _MOST_DIMS or sum(map(len, dims)) > _MOST_SEGMENTS)
                                       for dims in results):
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
            self._vector(node)
            self._follow_uniform(node)

    def _handler(self, op: str) -> Any:
        if op in _SAME:
            return self._same
        if op in _BROADCAST or op in ("QLinearAdd", "QLinearMul"):
            return self._broadcast
        if op in _PRODUCTS:
            return self._product
        if op in ("Conv", "QLinearConv", "ConvInteger"):
            return self._convolution
        if op in _POOLS:
            return self._pool
        if op in _REDUCED:
            return self._reduce
        return getattr(self, "_" + op, None) if op[:1].isupper() else None  # other methods have lower case

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

    # ----- operators: each returns the axes of its outputs, or None for "unknown" --------------------------------------

    def _same(self, node):
        dims = self.of(node, 0)
        for i in range(1, len(node.input)):
            if node.op_type == "FastGelu" and dims:
                self.along(node, i, dims[-1], dims)
        return None if dims is None else [dims] + [dims] * (len(node.output) - 1)

    def _broadcast(self, node):
        reason = f"the channels of the inputs of {node.op_type} do not match"
        if attributes(node).get("broadcast") or "axis" in attributes(node):  # before opset 7
            return None
        places = [0, 3] if node.op_type.startswith("QLinear") else [i for i, name in enumerate(node.input) if name]
        for i in range(len(node.input)):
            if i not in places and self.is_constant(node.input[i]) and not self.is_scalar(node.input[i]):
                return None
        moving = {i: self.of(node, i) for i in places if not self.is_constant(node.input[i])}
        shapes = {i: self.shape(node.input[i]) for i in places if self.is_constant(node.input[i])}
        if None in moving.values() or None in shapes.values():
            return None
        rank = max([len(dims) for dims in moving.values()] + [len(shape) for shape in shapes.values()])
        out = []
        for d in range(-rank, 0):
            there = [dims[d] for dims in moving.values() if -d <= len(dims) and size_of(dims[d]) != 1]
            sizes = [shape[d] for shape in shapes.values() if -d <= len(shape) and shape[d] != 1]
            if not there:
                out.append(whole(Axis(sizes[0])) if sizes else [[]])
                continue
            known = [dim for dim in there if size_of(dim) is not None]
            best = next((dim for dim in known if is_free(dim)), (known or there)[0])
            for dim in there:
                if dim is not best:
                    unify(best, dim, reason)
            if not known and (sizes or any(dim[0][0].axis.root() is not best[0][0].axis.root() for dim in there)):
                best = frozen(sizes[0] if sizes else None, "a size that a run decides")
            out.append(best)
        for i, shape in shapes.items():
            if math.prod(shape) != 1:
                self.demand(node, i, [[[]] if shape[d] == 1 else out[d] for d in range(-len(shape), 0)])
        return [out]

    def _QuantizeLinear(self, node):
        dims = self.of(node, 0)
        if dims is not None:
            self.per_axis(node, dims)
        return None if dims is None else [dims]

    _DequantizeLinear = _QuantizeLinear

    def _DynamicQuantizeLinear(self, node):
        dims = self.of(node, 0)
        return None if dims is None else [dims, [], []]

    def _contracted(self, node, dim, exact):
        """Notes that a product adds along the dimension."""
        if not exact:
            for factor in factors(dim):
                root = factor.axis.root()
                root.sums = root.sums or f"{node.op_type} in float"

    def _product(self, node):
        op, values = node.op_type, attributes(node)
        at = {"QLinearMatMul": 3, "QGemm": 3}.get(op, 1)
        if len(node.input) <= at or self.is_constant(node.input[0]):
            return None
        a = self.of(node, 0)
        if a is None or len(a) < (2 if op in ("Gemm", "QGemm") else 1) or values.get("transA"):
            return None
        if not self.is_constant(node.input[at]):
            return self._product_of_activations(node, a, at) if op not in ("Gemm", "QGemm") else None
        shape = self.shape(node.input[at])
        if shape is None or len(shape) < 2:
            return None
        n = whole(Axis(shape[-2] if values.get("transB") else shape[-1]))
        batch = [frozen(size, "weights for each item of a batch") for size in shape[:-2]]
        rows_of_weights = self._depths(node, at, a[-1])
        self.weights(node, at, batch + ([n, rows_of_weights] if values.get("transB") else [rows_of_weights, n]))
        self._contracted(node, a[-1], self.place(node) in self.exact_nodes or op not in ("MatMul", "Gemm"))
        self.readers.append(Reader(self.place(node), a[-1]))
        for i in {"MatMulInteger": (3,), "QLinearMatMul": (4, 5, 6, 7), "MatMulIntegerToFloat": (3, 5, 6),
                  "DynamicQuantizeMatMul": (2, 3, 4), "Gemm": (2,), "QGemm": (4, 5, 6)}.get(op, ()):
            self.along(node, i, n)
        for i in {"MatMulInteger": (2,), "QLinearMatMul": (1, 2), "MatMulIntegerToFloat": (2, 4), "QGemm": (1, 2)}.get(op, ()):
            if i < len(node.input) and self.is_constant(node.input[i]) and not self.is_scalar(node.input[i]):
                freeze(a, "a scale for each row")
        rows = a[:-1]
        if batch:
            freeze(rows[:-1], "weights for each item of a batch")
            rank = max(len(rows), len(batch) + 1)
            rows = [frozen(None, "weights for each item of a batch") for _ in range(rank - 1)] + rows[-1:]
        return [rows + [n]]

    def _depths(self, node, at, dim):
        """The depths of a product's weights. Depths can be added only if the weights' zero point is 0."""
        if not self._has_zero(node, at):
            fix_size(dim)
        return depths(dim)

    def _has_zero(self, node, at):
        source = node
        name = node.input[at]
        point = {"QLinearConv": 5, "QLinearMatMul": 5, "QGemm": 5, "MatMulIntegerToFloat": 5}.get(node.op_type, 3)
        if node.op_type in ("MatMul", "Gemm", "Conv"):
            source = self.scope.dequantizer(name)
            if source is None:
                return name in self.leaves  # float
            name, point = source.input[0], 2
        weights = self.scope.constant(name)
        if weights is None or weights.dtype.kind not in "if":
            return False
        if len(source.input) <= point or not source.input[point]:
            return True
        value = self.scope.constant(source.input[point])
        return value is not None and not value.any()

    def _product_of_activations(self, node, a, at):
        """A product of two activations. In attention each head multiplies its own channels: the heads are a batch."""
        b = self.of(node, at)
        if b is None or len(a) < 2 or len(b) < 2:
            return None
        freeze([a[-1], b[-2]], f"{node.op_type} of two activations")
        for i in range(len(node.input)):
            if i not in (0, at) and self.is_constant(node.input[i]) and not self.is_scalar(node.input[i]):
                return None
        batch = []
        rank = max(len(a), len(b)) - 2
        for d in range(-rank - 2, -2):
            there = [dims[d] for dims in (b, a) if -d <= len(dims) and size_of(dims[d]) != 1]
            if not there:
                batch.append([[]])
                continue
            best = next((dim for dim in there if any(f.stride > 1 and not f.axis.is_frozen for f in factors(dim))), None)
            if best is None:
                best = next((dim for dim in there if size_of(dim) is not None), there[0])
            for dim in there:
                if dim is not best:
                    if all(factor.stride > 1 for factor in factors(dim) + factors(best)):
                        continue  # digits that number blocks are never reordered
                    unify(best, dim, f"{node.op_type} of two activations")
            batch.append(best)
        return [batch + [a[-2], b[-1]]]

    def _convolution(self, node):
        at = 3 if node.op_type == "QLinearConv" else 1
        x = self.of(node, 0) if node.input and not self.is_constant(node.input[0]) else None
        if x is None or len(node.input) <= at or not self.is_constant(node.input[at]) or attributes(node).get("channels_last"):
            return None
        shape = self.shape(node.input[at])
        groups = attributes(node).get("group", 1)
        if shape is None or len(shape) < 3 or len(x) != len(shape):
            return None
        if groups < 1 or shape[0] % groups or size_of(x[1]) != groups * shape[1]:
            return None
        o, i = shape[:2]
        channels = x[1]
        kernel = [frozen(size, "taps of a convolution") for size in shape[2:]]
        self._contracted(node, channels, self.place(node) in self.exact_nodes or node.op_type != "Conv" or i == 1)
        if groups == 1:
            n = whole(Axis(o))
            self.weights(node, at, [n, self._depths(node, at, channels), *kernel])
        elif i == 1:
            if o == groups:
                n = channels
                self.depthwise[self.place(node)] = channels
            else:
                segments = resolved(channels)
                if len(segments) > 1:
                    return None
                n = [joined([*segments[0], *frozen(o // groups, "outputs of one channel")[0]])]
            self.weights(node, at, [n, [[]], *kernel])
        else:
            segments = resolved(channels)
            parts = regrouped(segments[0], [groups, i]) if len(segments) == 1 else None
            axis = Axis(o)
            axis.divide(o // groups)
            n = whole(axis)
            if parts is None or len(parts[1]) != 1 or parts[1][0].stride != 1 or len(parts[0]) != 1:
                freeze([channels], "groups of a convolution that cut its channels unevenly")
                self.weights(node, at, [n, frozen(i, "groups of a convolution"), *kernel])
            else:
                number = Factor(axis, o // groups, groups, parts[1][0].axis)
                outputs = [number] + ([Factor(axis, 1, o // groups)] if o > groups else [])
                self.weights(node, at, [[outputs], [parts[1]], *kernel])
        if i > 1 or groups == 1:
            self.readers.append(Reader(self.place(node), channels))
        for k in {"QLinearConv": (4, 5, 6, 7, 8), "ConvInteger": (3,), "Conv": (2,)}[node.op_type]:
            self.along(node, k, n)
        for k in {"QLinearConv": (1, 2), "ConvInteger": (2,), "Conv": ()}[node.op_type]:
            if k < len(node.input) and self.is_constant(node.input[k]) and not self.is_scalar(node.input[k]):
                return None
        return [[x[0], n] + [frozen(None, "a size that a run decides") for _ in x[2:]]]

    def _pool(self, node):
        x = self.of(node, 0)
        if x is None or len(x) < 3 or attributes(node).get("channels_last") or any(map(self.is_read, node.output[1:])):
            return None
        is_global = "Global" in node.op_type
        pixels = [[[]] if is_global else frozen(None, "a size that a run decides") for _ in x[2:]]
        return [x[:2] + pixels] + [None] * (len(node.output) - 1)

    def _BatchNormalization(self, node):
        x = self.of(node, 0)
        if x is None or len(x) < 2 or any(map(self.is_read, node.output[1:])) or not attributes(node).get("spatial", 1):
            return None
        for i in range(1, 5):
            self.along(node, i, x[1])
        return [x]

    def _InstanceNormalization(self, node):
        x = self.of(node, 0)
        if x is None or len(x) < 2:
            return None
        self._contracted(node, x[1], False)  # ONNX Runtime's order of additions depends on the channel's number
        for i in (1, 2):
            self.along(node, i, x[1])
        return [x]

    def _LayerNormalization(self, node):
        x = self.of(node, 0)
        axis = attributes(node).get("axis", -1)
        if x is None or not -len(x) <= axis < len(x):
            return None
        axis %= len(x)
        for dim in x[axis:]:
            self._contracted(node, dim, False)
            fix_size(dim)
        for i in (1, 2):
            if i < len(node.input) and node.input[i]:
                if axis == len(x) - 1:
                    self.along(node, i, x[-1])
                else:
                    freeze(x[axis:], f"{node.op_type} over several axes")
        reduced = x[:axis] + [[[]] for _ in x[axis:]]
        return [x] + [reduced] * (len(node.output) - 1)

    _SimplifiedLayerNormalization = _RMSNormalization = _LayerNormalization

    def _SkipLayerNormalization(self, node):
        x, skip = self.of(node, 0), self.of(node, 1)
        if x is None or skip is None or not x:
            return None
        for a, b in zip(x[::-1], skip[::-1]):
            unify(a, b, node.op_type)
        self._contracted(node, x[-1], False)
        fix_size(x[-1])
        for i in range(2, len(node.input)):
            self.along(node, i, x[-1])
        reduced = x[:-1] + [[[]]]
        return [x, reduced, reduced, x][:len(node.output)]

    _SkipSimplifiedLayerNormalization = _SkipLayerNormalization

    def _EmbedLayerNormalization(self, node):
        ids = self.of(node, 0)
        shape = self.shape(node.input[2]) if len(node.input) > 2 and self.is_constant(node.input[2]) else None
        if ids is None or shape is None or len(shape) != 2:
            return None
        n = whole(Axis(shape[1]))
        for i in (2, 3, 4):
            if i < len(node.input) and node.input[i]:
                if not self.is_constant(node.input[i]) or len(self.shape(node.input[i]) or ()) != 2:
                    return None
                self.demand(node, i, [frozen(self.shape(node.input[i])[0], "rows of an embedding"), n])
        self._contracted(node, n, False)
        fix_size(n)
        for i in (5, 6):
            self.along(node, i, n)
        out = [*ids, n]
        return [out, [ids[0]], out][:len(node.output)]

    def _MultiHeadAttention(self, node):
        q, k, v = (self.of(node, i) for i in range(3))
        heads = attributes(node).get("num_heads", 0)
        if None in (q, k, v) or any(node.input[3:]) or len(node.output) > 1 or heads < 1 or len(v) != 3 or len(q) != 3:
            return None
        freeze([q[2], k[2]], "a product of two activations")
        segments = resolved(v[2])
        size = size_of(v[2])
        if size is None or size % heads or len(segments) > 1 or regrouped(segments[0], [heads, size // heads]) is None:
            freeze([v[2]], "heads of attention")
        return [[q[0], q[1], v[2]]]

    def _reduce(self, node):
        x = self.of(node, 0)
        values = attributes(node)
        axes = values.get("axes")
        if len(node.input) > 1 and node.input[1]:
            found = self.scope.constant(node.input[1])
            if found is None:
                return None
            axes = found.reshape(-1).tolist()
        if x is None:
            return None
        if not axes:
            if values.get("noop_with_empty_axes"):
                return [x]
            axes = list(range(len(x)))
        if any(not -len(x) <= axis < len(x) for axis in axes):
            return None
        axes = {axis % len(x) for axis in axes}
        keep = values.get("keepdims", 1)
        out = []
        for i, dim in enumerate(x):
            if i not in axes:
                out.append(dim)
                continue
            fix_size(dim)
            if node.op_type in _SUMMED:
                self._contracted(node, dim, False)
            if keep:
                out.append([[]])
        return [out]

    def _Softmax(self, node):
        x = self.of(node, 0)
        axis = attributes(node).get("axis", -1 if self.opset >= 13 else 1)
        if x is None or not x or not -len(x) <= axis < len(x):
            return None
        freeze(x[axis:] if self.opset < 13 else [x[axis]], f"{node.op_type} over its channels")
        return [x]

    _LogSoftmax = _Hardmax = _Softmax

    def _Transpose(self, node):
        x = self.of(node, 0)
        if x is None:
            return None
        permutation = attributes(node).get("perm") or list(range(len(x)))[::-1]
        return [[x[i] for i in permutation]] if sorted(permutation) == list(range(len(x))) else None

    def reshaped(self, dims: list, target: list) -> list:
        """The axes of a tensor after Reshape. Elements of `target`: a size, an axis that stands for its unknown size, or None."""
        dims = [resolved(dim) for dim in dims]
        reason = "Reshape that mixes axes"
        out: list = [None] * len(target)

        def symbol(dim):
            return dim[0][0].axis.root() if len(dim) == 1 and len(dim[0]) == 1 and size_of(dim) is None else size_of(dim)

        begin = 0
        while begin < min(len(dims), len(target)) and target[begin] is not None and symbol(dims[begin]) == (
                target[begin].root() if isinstance(target[begin], Axis) else target[begin]):
            out[begin] = dims[begin]
            begin += 1
        rest = [size_of(dim) for dim in dims[begin:]]
        unknown = [k for k in range(begin, len(target)) if not isinstance(target[k], int)]
        if len(unknown) == 1 and None not in rest:
            others = math.prod(target[k] for k in range(begin, len(target)) if k != unknown[0])
            if others and math.prod(rest) % others == 0:
                target = target[:unknown[0]] + [math.prod(rest) // others] + target[unknown[0] + 1:]
        i, o = len(dims), len(target)
        while i > begin and o > begin:
            if i == begin + 1 and o == begin + 1:
                out[begin] = dims[begin]
                i = o = begin
                break
            # The shortest trailing dimensions of both sides with equal numbers of elements.
            first, last, sizes = i - 1, o - 1, [size_of(dims[i - 1]), target[o - 1]]
            while all(isinstance(size, int) for size in sizes) and sizes[0] != sizes[1]:
                if sizes[0] < sizes[1] and first > begin:
                    first -= 1
                    size = size_of(dims[first])
                    sizes[0] = None if size is None else sizes[0] * size
                elif sizes[0] > sizes[1] and last > begin:
                    last -= 1
                    sizes[1] = sizes[1] * target[last] if isinstance(target[last], int) else None
                else:
                    sizes[0] = None
            if not all(isinstance(size, int) for size in sizes):
                break
            group = [dim for dim in dims[first:i] if size_of(dim) != 1]
            wanted = target[last:o]
            if len(group) == 1 and [size for size in wanted if size != 1] == [size_of(group[0])]:
                parts = [group[0] if size != 1 else [[]] for size in wanted]
            elif any(len(dim) > 1 for dim in group):
                parts = None
            else:
                found = regrouped([factor for dim in group for factor in dim[0]], wanted)
                parts = None if found is None else [[part] for part in found]
            if parts is None:
                freeze(group, reason)
                parts = [frozen(size, reason) for size in wanted]
            out[last:o] = parts
            i, o = first, last
        if i > begin:
            freeze(dims[begin:i], reason)
        for k in range(len(out)):
            if out[k] is None:
                size = target[k]
                out[k] = whole(size.root()) if isinstance(size, Axis) else frozen(size, reason)
        return out

    def _Reshape(self, node):
        x = self.of(node, 0)
        target = self._vector_of(node.input[1]) if len(node.input) > 1 else None
        if target is None:
            hint = self.hints.get(node.output[0])
            target = hint if hint is not None else None
        elif not attributes(node).get("allowzero") and x is not None:
            def copied(i):
                if i >= len(x):
                    return None
                return x[i][0][0].axis if size_of(x[i]) is None and len(x[i]) == 1 and len(x[i][0]) == 1 else size_of(x[i])

            target = [copied(i) if size == 0 and isinstance(size, int) else size for i, size in enumerate(target)]
        if x is None or target is None:
            return None
        if any(isinstance(size, int) and size < 0 for size in target):
            rest = [size for size in target if not (isinstance(size, int) and size < 0)]
            total = [size_of(dim) for dim in x]
            inferred = None
            if None not in total and all(isinstance(size, int) for size in rest) and math.prod(rest):
                inferred = math.prod(total) // math.prod(rest)
            target = [inferred if isinstance(size, int) and size < 0 else size for size in target]
        fix_size(*x)
        return [self.reshaped(x, target)]

    def _Flatten(self, node):
        x = self.of(node, 0)
        axis = attributes(node).get("axis", 1)
        if x is None or not -len(x) <= axis <= len(x):
            return None
        axis = axis % len(x) if axis < 0 else axis

        def product(dims):
            sizes = [size_of(dim) for dim in dims]
            return None if None in sizes else math.prod(sizes)

        head, tail = x[:axis], x[axis:]
        return [self.reshaped(head, [product(head)]) + self.reshaped(tail, [product(tail)])]

    def _axes_of(self, node) -> list | None:
        axes = attributes(node).get("axes")
        if axes is None and len(node.input) > 1 and node.input[1]:
            value = self.scope.constant(node.input[1])
            axes = None if value is None else value.reshape(-1).tolist()
        return axes

    def _Squeeze(self, node):
        x, axes = self.of(node, 0), self._axes_of(node)
        if x is None or (axes is None and (len(node.input) > 1 or any(size_of(dim) is None for dim in x))):
            return None
        if axes is None:
            return [[dim for dim in x if size_of(dim) != 1]]
        gone = {axis % len(x) for axis in axes} if x else set()
        return [[dim for i, dim in enumerate(x) if i not in gone]]

    def _Unsqueeze(self, node):
        x, axes = self.of(node, 0), self._axes_of(node)
        if x is None or axes is None:
            return None
        rank = len(x) + len(axes)
        new = {axis % rank for axis in axes}
        rest = iter(x)
        return [[[[]] if i in new else next(rest) for i in range(rank)]]

    def _Concat(self, node, first=0, step=1):
        places = [i for i in range(first, len(node.input), step)]
        inputs = [self.of(node, i) for i in places]
        axis = attributes(node).get("axis", 0)
        if not inputs or None in inputs or len({len(dims) for dims in inputs}) != 1:
            return None
        if not -len(inputs[0]) <= axis < len(inputs[0]):
            return None
        axis %= len(inputs[0])
        out = []
        for d in range(len(inputs[0])):
            there = [dims[d] for dims in inputs]
            if d != axis:
                best = next((dim for dim in there if size_of(dim) is not None and is_free(dim)), there[0])
                for dim in there:
                    if dim is not best:
                        unify(best, dim, "the channels of the inputs of Concat do not match")
                out.append(best)
                continue
            if any(size_of(dim) is None for dim in there):
                freeze(there, "Concat along an axis of unknown size")
                out.append(frozen(None, "Concat along an axis of unknown size"))
            else:
                out.append([segment if segment else frozen(1, "")[0] for dim in there for segment in resolved(dim)])
        return [out]

    def _QLinearConcat(self, node):
        return self._Concat(node, 2, 3)

    def _cut(self, dim: Dim, sizes: list[int]) -> "list[Dim] | None":
        """The dimension, cut into dimensions of these sizes; None if that is not possible."""
        fix_size(dim)
        segments = list(resolved(dim))
        found: list = []
        for size in sizes:
            part: list = []
            while size > 0:
                if not segments:
                    return None
                have = segment_size(segments[0])
                if have is None:
                    return None
                if have <= size:
                    part.append(segments.pop(0))
                    size -= have
                    continue
                if len(segments[0]) != 1 or not segments[0][0].is_whole or segments[0][0].axis.root().is_composite:
                    return None
                axis = segments[0][0].axis
                if axis.is_frozen:
                    segments[:1] = [frozen(n, axis.root().reason)[0] for n in (size, have - size)]
                else:
                    axis.cut([size, have - size])
                    segments[:1] = resolved([segments[0]])
            found.append(part or [[]])
        return found

    def _Split(self, node):
        x = self.of(node, 0)
        values = attributes(node)
        axis = values.get("axis", 0)
        if x is None or not -len(x) <= axis < len(x):
            return None
        axis %= len(x)
        fix_size(x[axis])
        sizes = values.get("split")
        if len(node.input) > 1 and node.input[1]:
            value = self.scope.constant(node.input[1])
            sizes = None if value is None else value.tolist()
        total = size_of(x[axis])
        if not sizes and total is not None:
            part = -(-total // len(node.output))
            sizes = [min(part, total - part * i) for i in range(len(node.output))]
        parts = self._cut(x[axis], sizes) if sizes and total is not None and sum(sizes) == total and min(sizes) >= 0 else None
        if parts is None:
            freeze([x[axis]], "Split of its channels")
            parts = [frozen(size, "Split of its channels") for size in (sizes or [None] * len(node.output))]
        return [x[:axis] + [part] + x[axis + 1:] for part in parts]

    def _Slice(self, node):
        x = self.of(node, 0)
        values = attributes(node)
        if x is None:
            return None
        found = []
        for i, name in enumerate(("starts", "ends", "axes", "steps")):
            value = values.get(name)
            if value is None and len(node.input) > i + 1 and node.input[i + 1]:
                constant = self.scope.constant(node.input[i + 1])
                if constant is None and name in ("axes", "steps"):
                    return None
                value = None if constant is None else constant.reshape(-1).tolist()
            found.append(value)
        starts, ends, axes, steps = found
        count = len(starts or ends or axes or [])
        axes = axes if axes is not None else list(range(count or len(x)))
        out = list(x)
        for k, axis in enumerate(axes):
            if not -len(x) <= axis < len(x):
                return None
            dim = x[axis]
            fix_size(dim)
            parts, size = None, size_of(dim)
            if starts and ends and (steps is None or steps[k] == 1) and size is not None:
                low, high = (min(max(n + size if n < 0 else n, 0), size) for n in (starts[k], ends[k]))
                if high > low:
                    parts = self._cut(dim, [low, high - low, size - high])
            if parts is None:
                freeze([dim], "Slice of its channels")
            out[axis % len(x)] = parts[1] if parts else frozen(None, "Slice of its channels")
        return [out]

    def _Gather(self, node):
        axis = attributes(node).get("axis", 0)
        if len(node.input) < 2:
            return None
        indices = self.of(node, 1) if not self.is_constant(node.input[1]) else [
            frozen(size, "indices of Gather") for size in self.shape(node.input[1]) or ()]
        x = self.of(node, 0)
        if x is None or indices is None or not -len(x) <= axis < len(x):
            return None
        axis %= len(x)
        freeze([x[axis]], "Gather from its channels")
        return [x[:axis] + list(indices) + x[axis + 1:]]

    def _Expand(self, node):
        x = self.of(node, 0)
        hint = self.hints.get(node.output[0])
        target = self._vector_of(node.input[1]) if len(node.input) > 1 else None
        rank = len(target) if target is not None else len(hint) if hint is not None else None
        if x is None or rank is None or rank < len(x):
            return None
        fix_size(*x)
        out = [frozen(None, "Expand") for _ in range(rank - len(x))]
        return [out + [dim if (size_of(dim) or 1) != 1 else frozen(None, "Expand") for dim in x]]

    def _Pad(self, node):
        x = self.of(node, 0)
        pads = attributes(node).get("pads")
        if pads is None and len(node.input) > 1:
            value = self.scope.constant(node.input[1])
            pads = None if value is None else value.reshape(-1).tolist()
        if x is None or pads is None or len(pads) != 2 * len(x) or (len(node.input) > 3 and node.input[3]):
            return None
        out = []
        for i, dim in enumerate(x):
            if pads[i] or pads[len(x) + i]:
                freeze([dim], "Pad of its channels")
                dim = frozen(None, "Pad of its channels")
            out.append(dim)
        return [out]

    def _Resize(self, node):
        x = self.of(node, 0)
        hint = self.hints.get(node.output[0])
        if x is None or len(x) < 3 or hint is None or len(hint) != len(x) or hint[1] is None or hint[1] != size_of(x[1]):
            return None
        if attributes(node).get("axes") is not None:
            return None
        if len(node.input) > 3 and node.input[3]:  # sizes
            fix_size(*x)
        return [[x[0], x[1]] + [frozen(None, "Resize") for _ in x[2:]]]

    def _Shape(self, node):
        dims = self.of(node, 0) if not self.is_constant(node.input[0]) else []
        seen = range(len(dims or []))
        readers = self.scope.consumers.get(node.output[0], [])
        if readers and all(reader.op_type == "Gather" for reader in readers) and not {"start", "end"} & set(attributes(node)):
            indices = [self._vector_of(reader.input[1]) if reader.input[0] == node.output[0] else None for reader in readers]
            picked = [i for index in indices for i in index or [None]]
            if all(isinstance(i, int) and -len(seen) <= i < len(seen) for i in picked):
                seen = picked
        if self.is_read(node.output[0]) and node.output[0] not in self.scope.consumers or node.output[0] in self.captured:
            seen = range(len(dims or []))
        fix_size(*[dims[i] for i in seen])
        return [[frozen(len(dims) if dims is not None else None, "sizes")]]

    def _Size(self, node):
        fix_size(*(self.dims.get(node.input[0]) or []))
        return [[]]

    def _ConstantOfShape(self, node):
        target = self._vector_of(node.input[0])
        hint = self.hints.get(node.output[0]) if target is None else None
        if target is None and hint is None:
            return None
        return [[frozen(size if isinstance(size, int) else None, "ConstantOfShape") for size in target or hint or []]]

    def _Constant(self, node):
        hint = self.hints.get(node.output[0])
        return [None if hint is None else [frozen(size, "a constant that is not read") for size in hint]]

    # ----- recurrent layers -------------------------------------------------------------------------------------------

    def _DynamicQuantizeLSTM(self, node):
        x = self.of(node, 0)
        if x is None or len(x) != 3 or len(node.input) < 3 or not all(self.is_constant(name) for name in node.input[1:3]):
            return None
        w, r = self.shape(node.input[1]), self.shape(node.input[2])
        if not w or not r or len(w) != 3 or len(r) != 3 or size_of(x[2]) != w[1]:
            return None
        if r[2] != 4 * r[1] or w[2] != r[2] or w[0] != r[0]:
            return None
        if any(node.input[i] for i in (7,) if i < len(node.input)):  # peepholes
            return None
        directions, hidden = r[:2]
        axis = Axis(directions * hidden)
        axis.has_fixed_size = True
        fix_size(x[2])
        if directions > 1:
            axis.divide(hidden)
        number = joined([Factor(axis, hidden, directions)])
        unit = [Factor(axis, 1, hidden)]

        def gates(count):
            return [joined([*frozen(count, "gates")[0], *unit])]

        self.weights(node, 1, [[number], x[2], gates(4)])
        self.weights(node, 2, [[number], [unit], gates(4)])
        for i, dims in ((3, [[number], gates(8)]), (8, [[number], gates(4)]), (9, [[number], gates(4)]),
                        (10, [[number], gates(4)]), (11, [[number], gates(4)])):
            if i < len(node.input) and node.input[i]:
                if not self.is_constant(node.input[i]):
                    return None
                shape = self.shape(node.input[i])
                if len(shape) == 2 and shape[1] > 1:
                    self.demand(node, i, dims)
        batch = x[1]
        for i in (5, 6):
            if i >= len(node.input) or not node.input[i]:
                continue
            if self.is_constant(node.input[i]):
                shape = self.shape(node.input[i])
                if len(shape) != 3:
                    return None
                self.demand(node, i, [[number], frozen(shape[1], "items of a batch"), [unit]])
                continue
            if node.input[i] in self.uniform:
                continue
            state = self.dims.get(node.input[i])
            if state is None or len(state) != 3:
                axis.freeze("an initial state whose axes are not known")
            else:
                unify([unit], state[2], "an initial state")
                unify([number], state[0], "an initial state") if number else None
        self.readers.append(Reader(self.place(node), x[2], 0))
        self.readers.append(Reader(self.place(node), whole(axis), 1))
        states = [[number], batch, [unit]]
        return [[x[0], [number], batch, [unit]], states, list(states)][:len(node.output)]

    # ----- sizes ------------------------------------------------------------------------------------------------------

    def _vector_of(self, name: str) -> list | None:
        if name in self.vectors:
            return self.vectors[name]
        if not self.is_constant(name):
            return None
        value = self.scope.constant(name)
        if value is None or value.dtype.kind not in "iu" or value.size > _MOST_VECTOR:
            return None
        return [int(n) for n in value.reshape(-1)]

    def _vector(self, node: Any) -> None:
        """Follows short lists of sizes. An axis stands for a size that a run decides."""
        op, values = node.op_type, attributes(node)
        found: list | None = None
        first = self._vector_of(node.input[0]) if node.input and node.input[0] else None
        if op == "Shape":
            dims = self.dims.get(node.input[0])
            if dims is not None:
                found = [size_of(dim) if size_of(dim) is not None else
                         dim[0][0].axis.root() if len(dim) == 1 and len(dim[0]) == 1 else None for dim in dims]
                found = found[values.get("start", 0):values.get("end", len(found))]
        elif op in ("Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape") and first is not None:
            found = first if op not in ("Unsqueeze", "Squeeze", "Reshape") or len(first) <= 1 or op == "Reshape" else None
        elif op == "Gather" and first is not None:
            indices = self._vector_of(node.input[1])
            if indices is not None and all(isinstance(i, int) and -len(first) <= i < len(first) for i in indices):
                found = [first[i] for i in indices]
        elif op == "Concat":
            parts = [self._vector_of(name) or [None] * self._length(name) for name in node.input]
            if all(parts):
                found = [size for part in parts for size in part]
        elif op == "Slice" and first is not None:
            parts = [self._vector_of(name) if name else None for name in node.input[1:]]
            is_known = all(part is None or len(part) == 1 and isinstance(part[0], int) for part in parts)
            if len(parts) >= 2 and is_known and parts[0] and parts[1]:
                step = parts[3][0] if len(parts) > 3 and parts[3] else 1
                found = first[parts[0][0]:parts[1][0]] if step == 1 else None
        elif op in ("Add", "Sub", "Mul", "Div") and first is not None and len(node.input) == 2:
            second = self._vector_of(node.input[1])
            if second is not None and len(first) == len(second) == 1 and isinstance(first[0], int) and isinstance(second[0], int):
                a, b = first[0], second[0]
                if op != "Div" or (a >= 0 and b > 0):
                    found = [a + b if op == "Add" else a - b if op == "Sub" else a * b if op == "Mul" else a // b]
        if found is not None and len(found) <= _MOST_VECTOR and node.output:
            self.vectors[node.output[0]] = found

    def _follow_uniform(self, node: Any) -> None:
        op = node.op_type
        is_uniform = op == "ConstantOfShape" or (op in _KEEPS_UNIFORM and node.input[0] in self.uniform)
        if op == "Expand" and self.is_constant(node.input[0]):
            value = self.scope.constant(node.input[0])
            is_uniform = value is not None and value.size == 1
        if is_uniform:
            self.uniform.update(name for name in node.output if name)

    def _length(self, name: str) -> int:
        dims = self.dims.get(name)
        size = size_of(dims[0]) if dims is not None and len(dims) == 1 else None
        return size if size is not None and size <= _MOST_VECTOR else 0


def _sorted(nodes: list, scope: Scope) -> list[int]:
    """The numbers of the operators, each after the makers of its inputs. ONNX Runtime accepts files in other orders."""
    places = {id(node): i for i, node in enumerate(nodes)}
    order: list[int] = []
    state = [0] * len(nodes)  # 1: being visited, 2: in the order
    for root in range(len(nodes)):
        stack = [(root, iter(nodes[root].input))] if not state[root] else []
        state[root] = state[root] or 1
        while stack:
            i, inputs = stack[-1]
            for name in inputs:
                maker = scope.producers.get(name) if name and name not in scope.initializers else None
                k = places[id(maker)] if maker is not None else i
                if k != i and state[k] == 1:
                    raise ValueError(f"operators form a cycle: {excerpt(name)!r}")
                if k != i and not state[k]:
                    state[k] = 1
                    stack.append((k, iter(nodes[k].input)))
                    break
            else:
                state[i] = 2
                order.append(i)
                stack.pop()
    return order


def names_that_inner_graphs_read(graph: Any) -> set[str]:
    """The names that inner graphs read or return; tensors of the outermost graph are among them."""
    found: set[str] = set()

    def visit(inner: Any, depth: int) -> None:
        for node in inner.node:
            found.update(node.input)
            visit_node(node, depth)
        found.update(value.name for value in inner.output)

    def visit_node(node: Any, depth: int) -> None:
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.type == 5 else attribute.graphs):
                if depth < 16:
                    visit(inner, depth + 1)

    for node in graph.node:
        visit_node(node, 0)
    return found - {""}


def shapes_of(proto: Any, open_size: int = 0) -> dict[str, list]:
    """Shapes that the file states or that onnx infers; None for unknown sizes. `open_size`: replaces open sizes of inputs, but 1
    replaces the first size of each input; then the other shapes of the file are ignored."""
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
        if math.prod(tensor.dims) <= _MOST_VECTOR and tensor.data_location != 1:
            light.graph.initializer.append(tensor)
        else:
            light.graph.initializer.append(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims))
    graph = light.graph
    try:
        graph = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    except Exception:  # onnx refuses the model: only the shapes in the file are known
        pass
    found: dict[str, list] = {}
    for value in [*graph.value_info, *graph.input, *graph.output]:
        if value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape") and (
                len(value.type.tensor_type.shape.dim) <= _MOST_DIMS):
            found[value.name] = [d.dim_value if d.HasField("dim_value") else None for d in value.type.tensor_type.shape.dim]
    return found
