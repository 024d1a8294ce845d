"""What the products of a model cost in ONNX Runtime, and what copied channels, u8 weights and Gathers add.

The C++ cost tables (kernels/engines/cost_table.h) cannot give these costs. They predict the kernels of intact, which needs no repair:
it is exact with the stored weights. The repaired file runs in ONNX Runtime, on other kernels. For 784 rows, 256
depths and 256 outputs, u8 weights take 1.31 times the time of s8 weights in ONNX Runtime 1.32 held to AVX2 and 6.1 times with AMX; in
intact 1.03 times on both. By the C++ tables each repair would store u8 weights. The tables have no Gather. Each table is for one CPU
and compares times within one plan only. A file has one repair, for all CPUs."""

from __future__ import annotations

import math
from typing import Any

from .._audit.audit import AuditedLayer
from .._graph.axes import Axes
from .._graph.dims import Axis, Dim, factors, resolved, segment_size, size_of
from .._graph.nodes import attributes
from .._graph.operators import is_convolution
from .._graph.sizes import shapes_of

# Times, in multiply-adds of s8 weights. Measured per node with ONNX Runtime 1.32 on an Intel Xeon with AMX,
# one thread, 2026-11-26: natively, without AMX, and with a masked CPUID that leaves AVX2. Each is the mean of
# AVX2 and VNNI, as one plan serves all CPUs. A multiply-add takes 8.7 ps with AVX2, 2.7 with VNNI. Comments
# give the time with AVX2, then with VNNI.
_OUTPUT = 25  # an output, whatever its depth: 160 ps, 130 ps
_DEPTH_TAIL = 35  # an output whose depth is no multiple of 4: 200 ps on both
# a row of outputs, by a divisor of their number: 0.3 to 12 ns
_ROW_TAILS = ((16, 0), (8, 180), (4, 500), (1, 1500))
_NARROW_ROW = 1000  # a row of fewer than 16 outputs, in addition: 6 ns
_DEPTHWISE = 9  # a multiply-add of a depthwise convolution: 67 ps, 32 ps
# this multiply-add, in addition, if the number of channels is no multiple of 16: 20 ps, 55 ps
_DEPTHWISE_TAIL = 7
_DEPTHWISE_ROW = 2500  # a pixel, if the number of channels is no multiple of 8: 15 ns
_U8_WEIGHT = 1.0  # a multiply-add of u8 weights, beyond one of s8 weights: 3.7 ps, 7.6 ps
_U8_OUTPUT = 26  # an output with u8 weights, in addition: 125 ps, 178 ps
_GATHERED = 26  # an element that a Gather in front and the Transposes around it move: 150 ps
_GATHERED_PLANE = 700  # a plane of a channel that these operators move: 4 ns
_GATHER = 500_000  # these operators, in addition to what they move: 3 us
# assumed for a size that the file leaves open, except a tensor's first size, which counts as 1
_OPEN_SIZE = 64


class _Product:
    """An operator with constant weights. `groups`: of the convolution. `outputs`: the dimension of the
    weights that numbers the outputs."""

    def __init__(self, dims: list, positions: int, node: Any, is_depthwise: bool):
        self.dims, self.positions, self.is_depthwise = dims, positions, is_depthwise
        self.known: dict[tuple, tuple[int, float]] = {}
        self.axes = list(dict.fromkeys(factor.axis.root() for dim in dims for factor in factors(dim)))
        self.groups = attributes(node).get("group", 1) if is_convolution(node) else 1
        depth = [d for d, dim in enumerate(dims) if any(factor.is_depth for factor in factors(dim))]
        self.outputs = (
            len(dims) - 1
            if depth and depth[0] == len(dims) - 2 and len(dims) < 4
            else len(dims) - 2
            if depth and (depth[0] == len(dims) - 1)
            else 0
        )

    def cost(self, lengths: "dict[Axis, int]") -> tuple[int, float]:
        """Multiply-adds and time if axes have `lengths`."""
        key = tuple(lengths.get(axis) for axis in self.axes)
        if key not in self.known:
            work = self.positions * math.prod(_length(dim, lengths) for dim in self.dims)
            outputs = _length(self.dims[self.outputs], lengths)
            if self.is_depthwise:
                time = (_DEPTHWISE + (_DEPTHWISE_TAIL if outputs % 16 else 0)) * work + (
                    _DEPTHWISE_ROW * self.positions if outputs % 8 else 0
                )
            else:
                time = _time(self.positions, outputs, work / max(self.positions * outputs, 1), self.groups)
            self.known[key] = work, time
        return self.known[key]


def _length(dim: Dim, lengths: "dict[Axis, int]") -> int:
    """The size of a dimension if axes have `lengths`."""
    total = 0
    for segment in resolved(dim):
        root = segment[0].axis.root() if len(segment) == 1 and segment[0].is_whole else None
        total += lengths[root] if root in lengths else segment_size(segment) or 1
    return total


def _time(rows: int, outputs: int, depth: float, groups: int = 1) -> float:
    """The time of a product with s8 weights."""
    own = outputs // groups
    tail = next(time for multiple, time in _ROW_TAILS if own % multiple == 0) + (
        _NARROW_ROW if own < 16 else 0
    )
    return rows * (outputs * (depth + _OUTPUT + (_DEPTH_TAIL if depth % 4 else 0)) + groups * tail)


class Work:
    """The multiply-adds and times of products with constant weights. A size that the file leaves open counts
    as 1 if it is a tensor's first, else as 64. If the sizes of some convolution's output are unknown, weights
    are counted instead."""

    def __init__(self, axes: Axes, layers: list[AuditedLayer]):
        self.axes = axes
        self.sizes = shapes_of(axes.proto, _OPEN_SIZE)
        self.places = [axes.places.get(id(audited.layer.graph_node), -1) for audited in layers]
        self.positions = {
            place: self._positions(place)
            for place in {*self.places, *(place for place, _ in axes.products)} - {-1}
        }
        self.unit = "weights" if None in self.positions.values() else "multiply-adds"
        if self.unit == "weights":
            self.positions = dict.fromkeys(self.positions, 1)
        self.stored = [audited.layer for audited in layers]
        self.layers = [
            audited.layer.weights.size * self.positions.get(place, 1)
            for audited, place in zip(layers, self.places)
        ]
        self.products = [
            _Product(dims, self.positions[place], axes.nodes[place], place in axes.depthwise)
            for place, dims in axes.products
        ]
        self.of_axis: dict[Axis, list[int]] = {}
        for k, product in enumerate(self.products):
            for root in product.axes:
                self.of_axis.setdefault(root, []).append(k)
        known = {place for place, _ in axes.products}
        self.total, self.total_time = map(
            sum, zip((0, 0.0), *(product.cost({}) for product in self.products))
        )
        self.total += sum(work for work, place in zip(self.layers, self.places) if place not in known)
        self.total_time += sum(
            _time(*self._shape(i)) for i, place in enumerate(self.places) if place not in known
        )

    def _positions(self, place: int) -> int | None:
        node = self.axes.nodes[place]
        dims = self.axes.dims.get(node.output[0])
        sizes = self._sizes(node.output[0], dims)
        if is_convolution(node):
            if sizes is None or len(sizes) < 3 or None in sizes[2:]:
                return None
            return math.prod([sizes[0] or 1, *sizes[2:]])
        if node.op_type == "DynamicQuantizeLSTM":
            sizes = self._sizes(node.input[0], self.axes.dims.get(node.input[0]))
            sizes = sizes and sizes[:3]
        return math.prod(size or 1 for size in (sizes or [])[:-1])

    def _sizes(self, name: str, dims: "list[Dim] | None") -> "list[int | None] | None":
        """A tensor's sizes: from the axes if they are known, else from `shapes_of`."""
        guessed = self.sizes.get(name)
        if dims is None:
            return guessed
        known = [size_of(dim) for dim in dims]
        if guessed and len(guessed) == len(known):
            return [size or other for size, other in zip(known, guessed)]
        return known

    def _shape(self, i: int) -> tuple[int, int, float, int]:
        """Rows, outputs, depth and groups of a layer."""
        layer = self.stored[i]
        outputs = layer.weights.shape[0 if layer.is_convolution else -1]
        return (
            self.positions.get(self.places[i], 1),
            outputs,
            layer.weights.size / max(outputs, 1),
            layer.groups,
        )

    def u8_time(self, i: int) -> float:
        """The time that u8 weights add to a layer."""
        rows, outputs, depth, _ = self._shape(i)
        return rows * outputs * max(depth * _U8_WEIGHT + _U8_OUTPUT - (_DEPTH_TAIL if depth % 4 else 0), 0)

    def gather_time(self, i: int, length: int) -> float:
        """The time that a Gather in front adds to a convolution, if it makes `length` channels."""
        rows, outputs, depth, _ = self._shape(i)
        node = self.stored[i].graph_node
        sizes = self._sizes(node.input[0], self.axes.dims.get(node.input[0])) or []
        pixels = (
            math.prod(size or 1 for size in [*sizes[:1], *sizes[2:]])
            if self.unit == "multiply-adds"
            else rows
        )
        longer = depth / self.stored[i].weights.shape[-1] * length
        return (
            _time(rows, outputs, longer)
            - _time(rows, outputs, depth)
            + _GATHER
            + pixels * length * _GATHERED
            + (sizes[0] or 1 if sizes else 1) * length * _GATHERED_PLANE
        )

    def added(self, lengths: "dict[Axis, int]") -> tuple[int, float]:
        """The multiply-adds and the time that are added if axes get these lengths."""
        touched = [self.products[k] for k in {k for root in lengths for k in self.of_axis.get(root, ())}]
        costs = [(product.cost(lengths), product.cost({})) for product in touched]
        return sum(new[0] - old[0] for new, old in costs), sum(new[1] - old[1] for new, old in costs)

    def percent(self, work: float) -> float:
        return 100 * work / max(self.total, 1)

    def percent_of_time(self, time: float) -> float:
        return 100 * time / max(self.total_time, 1)
