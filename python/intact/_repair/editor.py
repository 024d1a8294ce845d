"""Changes a copy of an ONNX model: reorders constants, replaces weights, inserts operators."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np

from .._audit.run import as_u8, weights_zero_point
from .._formats.model import QuantizedLayer
from .._graph.axes import Axes
from .._graph.dims import Axis, Dim, factors, resolved, segment_size
from .._graph.nodes import every_node, names_that_inner_graphs_read
from .._graph.scope import Scope
from .places import moved, spread
from .plan import gather_obstacle
from .shorten import Halving

# ----- constants --------------------------------------------------------------------------------------------------------


def _digits(dims: "list[Dim]") -> "dict[Axis, list[tuple[int, int, int]]]":
    """The digits of each axis's block numbers. A digit: the dimension that holds it, its place value there,
    its size, and its stride in the axis's index."""
    found: dict[Axis, list[tuple[int, int, int]]] = {}
    for d, dim in enumerate(dims):
        if len(dim) != 1:
            continue
        value = 1
        for factor in reversed(dim[0]):
            if factor.stride > 1:
                found.setdefault(factor.axis.root(), []).append((d, value, factor.size, factor.stride))
            if factor.also is not None:
                also = factor.also.root()
                found.setdefault(also, []).append((d, value, factor.size, also.size // factor.size))
            value *= factor.size
    return found


def _index(dims: "list[Dim]", d: int, orders: "dict[Axis, np.ndarray]", digits: dict) -> np.ndarray | None:
    """For each element along dimension d, its source: an array that broadcasts to the tensor. None: nothing
    moves."""
    if not any(factor.stride == 1 and factor.axis.root() in orders for factor in factors(dims[d])):
        return None
    rank = len(dims)

    def size_now(segment: list) -> int:
        root = segment[0].axis.root() if len(segment) == 1 and segment[0].is_whole else None
        return len(orders[root]) if root in orders else segment_size(segment) or 0

    def along(axis: int, values: np.ndarray) -> np.ndarray:
        return values.reshape([-1 if k == axis else 1 for k in range(rank)])

    parts, offset = [], 0
    for segment in dims[d]:
        size = size_now(segment)
        place = np.arange(size)
        source = along(d, np.zeros(size, np.int64))
        value = 1
        for factor in reversed(segment):
            root = factor.axis.root()
            digit = place // value % (size if len(segment) == 1 and factor.is_whole else factor.size)
            if factor.stride > 1 or root not in orders:
                source = source + along(d, digit * value)
            elif factor.is_whole:
                source = source + along(d, orders[root][digit] * value)
            else:
                begin = along(d, np.zeros(size, np.int64))
                for other, other_value, other_size, stride in digits[root]:
                    numbers = (
                        np.arange(math.prod(segment_size(s) or 0 for s in dims[other]))
                        // other_value
                        % other_size
                    )
                    begin = begin + along(other, numbers * stride)
                source = source + (orders[root][begin + along(d, digit)] - begin) * value
            value *= factor.size
        parts.append(source + offset)
        offset += segment_size(segment) or 0
    shape = np.broadcast_shapes(*[[1 if k == d else n for k, n in enumerate(part.shape)] for part in parts])
    wide = [
        np.broadcast_to(part, [part.shape[d] if k == d else n for k, n in enumerate(shape)]) for part in parts
    ]
    return np.concatenate(wide, axis=d)


def _copied_places(
    dim: Dim, orders: "dict[Axis, np.ndarray]", copies: "dict[Axis, np.ndarray]", only_depths: bool
) -> np.ndarray:
    """Whether each place along a dimension holds a copied channel."""
    found = []
    for segment in dim:
        root = segment[0].axis.root() if segment else None
        if root in copies:
            found.append(
                copies[root] if segment[0].is_depth or not only_depths else np.zeros(len(copies[root]), bool)
            )
        else:
            found.append(
                np.zeros(
                    len(orders[root])
                    if root in orders and len(segment) == 1 and segment[0].is_whole
                    else segment_size(segment) or 0,
                    bool,
                )
            )
    return np.concatenate(found)


def arranged(
    array: np.ndarray,
    dims: "list[Dim]",
    orders: "dict[Axis, np.ndarray]",
    copies: "dict[Axis, np.ndarray] | None" = None,
) -> np.ndarray:
    """A constant with its axes in their new orders."""
    dims = [resolved(dim) for dim in dims]
    digits = _digits(dims)
    for d in range(len(dims)):
        index = _index(dims, d, orders, digits)
        if index is None:
            continue
        if index.size == index.shape[d]:
            index, none = index.reshape(-1), _copied_places(dims[d], orders, copies or {}, True)
            if none.any() and array.dtype == np.int8:
                rows = np.moveaxis(array, d, 0)
                placed = spread(rows.reshape(len(rows), -1), index, none)
                array = np.moveaxis(placed.reshape(len(index), *rows.shape[1:]), 0, d)
                continue
            array = array.take(index, axis=d)
            if none.any():
                array[(slice(None),) * d + (none,)] = 0
        else:
            index = np.broadcast_to(
                index, [index.shape[k] if k == d else n for k, n in enumerate(array.shape)]
            )
            array = np.take_along_axis(array, index, axis=d)
    return array


def _is_moved(dims: "list[Dim]", orders: "dict[Axis, np.ndarray]") -> bool:
    return any(factor.stride == 1 and factor.axis.root() in orders for dim in dims for factor in factors(dim))


class Editor:
    """Changes a copy of a model."""

    def __init__(self, proto: Any, folder: Path):
        self.proto, self.folder = copy.deepcopy(proto), folder
        # names of new weights; key: stored name, suffix, values
        self.made: dict[tuple[str, str, bytes], str] = {}
        self.gathered: dict[tuple[str, bytes], str] = {}  # outputs of Gathers; key: tensor, order
        self.before: dict[int, list] = {}  # operators to insert; key: place of the operator behind them
        self.replaced: set[str] = set()  # tensors that lost a reader
        graph = self.proto.graph
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.names = set(self.initializers)
        self.names |= {value.name for value in [*graph.input, *graph.output]}
        self.names |= {name for node in every_node(graph) for name in [*node.input, *node.output]}

    def unique(self, name: str) -> str:
        candidate, count = name, 1
        while candidate in self.names:
            count += 1
            candidate = f"{name}_{count}"
        self.names.add(candidate)
        return candidate

    def add(self, name: str, array: np.ndarray) -> str:
        from onnx import numpy_helper

        name = self.unique(name)
        self.proto.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def replace(self, name: str, array: np.ndarray) -> None:
        from onnx import numpy_helper

        self.initializers[name].CopyFrom(numpy_helper.from_array(array, name))

    def fold(self, axes: Axes, orders: "dict[Axis, np.ndarray]", copies: "dict[Axis, np.ndarray]") -> None:
        """Reorders every constant that has an ordered axis. A constant that operators read in several layouts
        is copied."""
        self._lengthen(axes, orders, copies)
        graph = self.proto.graph
        uses: dict[str, list] = {}
        for use in axes.uses:
            if _is_moved(use.dims, orders):
                uses.setdefault(use.name, []).append(use)
        kept = {value.name for value in graph.output} | axes.captured | axes.scope.overridable
        reads: dict[str, int] = {}
        for node in graph.node:
            for name in node.input:
                reads[name] = reads.get(name, 0) + 1
        for name, found_uses in uses.items():
            stored = axes.scope.constant(name)
            layouts: list[tuple[np.ndarray, list]] = []
            for use in found_uses:
                array = arranged(stored, use.dims, orders, copies)
                same = next(
                    (
                        found
                        for other, found in layouts
                        if other.shape == array.shape and other.tobytes() == array.tobytes()
                    ),
                    None,
                )
                if same is None:
                    layouts.append((array, [use]))
                else:
                    same.append(use)
            count = len({(use.node, use.input) for use in found_uses})
            if len(layouts) == 1 and count == reads[name] and name in self.initializers and name not in kept:
                self.replace(name, layouts[0][0])
                continue
            for array, found in layouts:
                new = self.add(f"{name}_ordered", array)
                for use in found:
                    graph.node[use.node].input[use.input] = new

    def _lengthen(
        self, axes: Axes, orders: "dict[Axis, np.ndarray]", copies: "dict[Axis, np.ndarray]"
    ) -> None:
        """Adapts the file to copied channels: updates the groups of depthwise convolutions, and drops
        outdated shapes."""
        graph = self.proto.graph
        for place, dim in axes.depthwise.items():
            if any(factor.axis.root() in copies for factor in factors(dim)):
                for attribute in graph.node[place].attribute:
                    if attribute.name == "group":
                        attribute.i = len(_copied_places(resolved(dim), orders, copies, False))
        longer = {
            name
            for name, dims in axes.dims.items()
            if any(factor.axis.root() in copies for dim in dims or [] for factor in factors(dim))
        }
        for i in reversed(range(len(graph.value_info))):
            if graph.value_info[i].name in longer:
                del graph.value_info[i]

    def restore_outputs(
        self, axes: Axes, orders: "dict[Axis, np.ndarray]", copies: "dict[Axis, np.ndarray]"
    ) -> list[str]:
        """Adds Gathers that put the graph's outputs back in their stored order. Returns these outputs."""
        from onnx import helper

        graph, restored = self.proto.graph, []
        for name, dims in axes.outputs.items():
            indices = []
            for d in range(len(dims)):
                one = [resolved(dims[d])]
                index = _index(one, 0, orders, {})
                if index is not None:
                    kept = np.flatnonzero(~_copied_places(one[0], orders, copies, False))
                    indices.append((d, kept[np.argsort(index[kept])]))
            if not indices:
                continue
            restored.append(name)
            source = self.unique(f"{name}_ordered")
            for node in graph.node:
                if not node.name and node.output[:1] == [name]:
                    node.name = name  # reports call an operator without a name by its output
                for names in (node.input, node.output):
                    for k, other in enumerate(names):
                        if other == name:
                            names[k] = source
            for k, (d, index) in enumerate(indices):
                target = name if k + 1 == len(indices) else self.unique(f"{name}_{k}")
                constant = self.add(f"{name}_order", index.astype(np.int64))
                node_name = self.unique(f"{name}_restored")
                graph.node.append(
                    helper.make_node("Gather", [source, constant], [target], name=node_name, axis=d)
                )
                source = target
        return restored

    def gather(
        self,
        layer: QuantizedLayer,
        place: int,
        weights_place: int,
        scope: Scope,
        source: np.ndarray,
        copies: np.ndarray,
    ) -> str:
        """Puts a Gather that orders the input channels in front of a convolution. Returns "", or why that is
        impossible."""
        from onnx import helper

        node = layer.graph_node
        reason = gather_obstacle(layer, scope)
        if reason:
            return reason
        maker = scope.producer(node.input[0]) if layer.is_qdq else None
        tensor = node.input[0] if maker is None else maker.input[0]
        key = (tensor, source.tobytes())
        if key not in self.gathered:
            index = self.add(f"{tensor}_channels", source.astype(np.int64))
            self.gathered[key] = self.unique(f"{tensor}_gathered")
            self.before.setdefault(place, []).append(
                helper.make_node(
                    "Gather",
                    [tensor, index],
                    [self.gathered[key]],
                    name=self.unique(f"{tensor}_gather"),
                    axis=1,
                )
            )
        found = self.gathered[key]
        if maker is not None:
            copied = copy.deepcopy(maker)
            self.replaced.add(maker.output[0])
            copied.name, copied.input[0] = self.unique(f"{maker.name}_gathered"), found
            copied.output[0] = self.unique(f"{found}_real")
            self.before.setdefault(place, []).append(copied)
            found = copied.output[0]
        self.proto.graph.node[place].input[0] = found
        self.set_weights(layer, weights_place, np.moveaxis(moved(layer, source, copies), -1, 1), "gathered")
        return ""

    def insert(self) -> None:
        """Inserts the operators that gather() made. Drops each DequantizeLinear that nothing reads any more:
        ONNX Runtime would still run it."""
        nodes = [
            node
            for place, node in enumerate(self.proto.graph.node)
            for node in [*self.before.get(place, ()), node]
        ]
        read = {name for node in nodes for name in node.input} | names_that_inner_graphs_read(
            self.proto.graph
        )
        read |= {value.name for value in self.proto.graph.output}
        nodes = [
            copy.deepcopy(node)
            for node in nodes
            if node.op_type != "DequantizeLinear"
            or node.output[0] in read
            or node.output[0] not in self.replaced
        ]
        del self.proto.graph.node[:]
        self.proto.graph.node.extend(nodes)
        self.before.clear()

    def store_as_u8(self, layer: QuantizedLayer, node: Any) -> str:
        """Stores the weights that `node` reads as u8. Weights and zero points both grow by 128, so products
        stay equal. Returns "", or why that is impossible."""
        scope = layer.scope
        name = node.input[layer.weights_input]
        weights = scope.constant(name)
        if weights is None or weights.dtype != np.int8:
            return "its weights are not s8"
        read = [name, node.input[min(layer.point_input, len(node.input) - 1)]]
        if any(
            one in source.overridable
            for one in read
            for source in [scope.scope_of(one)]
            if source is not None
        ):
            return "weights that a caller may override"
        point = weights_zero_point(layer, node, scope)
        if point is None:
            return "its weights' zero point or scale is no constant"
        point_name = node.input[layer.point_input] or f"{name}_zero_point"
        for i, stem, values in ((layer.weights_input, name, weights), (layer.point_input, point_name, point)):
            node.input[i] = self.add(f"{stem}_u8", as_u8(values))
        self.drop_unused(name, point_name)
        return ""

    def set_weights(self, layer: QuantizedLayer, place: int, weights: np.ndarray, suffix: str) -> None:
        """Gives new weights to the operator at `place`, which reads a layer's weights."""
        node = self.proto.graph.node[place]
        name = node.input[layer.weights_input]
        key = (name, suffix, weights.tobytes())
        if key not in self.made:
            self.made[key] = self.add(f"{name}_{suffix}", weights)
        node.input[layer.weights_input] = self.made[key]
        self.drop_unused(name)

    def scale(self, half: Halving, outputs: np.ndarray, places: "dict[int, int]") -> None:
        """Adapts scales and biases to halved weights: twice the scale, half the bias."""
        for node, i, array, elements, factor in half.constants:
            values = array.reshape(-1).copy()
            scaled = values[elements[outputs]] * np.float64(factor)
            values[elements[outputs]] = np.rint(scaled) if array.dtype.kind == "i" else scaled
            node = self.proto.graph.node[places[id(node)]]
            name = node.input[i]
            node.input[i] = self.add(f"{name}_7bit", values.reshape(array.shape))
            self.drop_unused(name)

    def drop_unused(self, *names: str, with_nodes: bool = False) -> None:
        """Deletes the initializers among `names` that nothing reads any more; `with_nodes`: Constants too."""
        graph = self.proto.graph
        read = {name for node in graph.node for name in node.input} | names_that_inner_graphs_read(graph)
        read |= {value.name for value in (*graph.input, *graph.output)}
        unused = {*names} - read
        for i in reversed(range(len(graph.initializer))):
            if graph.initializer[i].name in unused:
                del graph.initializer[i]
        for i in reversed(range(len(graph.node))) if with_nodes else ():
            if graph.node[i].op_type == "Constant" and graph.node[i].output[0] in unused:
                del graph.node[i]
