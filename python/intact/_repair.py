"""`intact repair`: the channels of a model in an order in which no pair of adjacent depths can saturate in stock engines.

The order is folded into the constants, so results stay the same and a run costs the same. Layers that no order makes safe get u8
weights, which ONNX Runtime multiplies exactly.
"""

from __future__ import annotations

import copy
import math
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable

import numpy as np

from ._audit import Audit, AuditedLayer, audit
from ._axes import Axes, Axis, Dim, Reader, factors, names_that_inner_graphs_read, resolved, segment_size
from ._library import Error, excerpt, invalid
from ._model import QuantizedLayer
from ._onnx import Scope, array_of_tensor
from ._order import clamping, order_channels
from ._run import as_u8, weights_zero_point

_MOST_PROTOBUF = (1 << 31) - 1
_U8_COSTS = 0.16  # of a product's time: u8 weights in ONNX Runtime on AVX2 without VNNI (with AMX: 1 to 2)
_MOST_GROWTH = 0.25  # more channels than that are not worth it where u8 weights do not help


@dataclass
class RepairedLayer:
    """A layer before and after. `unsafe`, `left`: pairs that can saturate in some engine asked for. `how`: what was done."""

    name: str
    operator: str
    pairs: int
    unsafe: int
    left: int = 0
    how: str = ""
    reason: str = ""  # why no order makes it safe
    zero_channels: int = 0  # that its input got


@dataclass
class Repair:
    """What was done to a model. `before`, `after`: its audits. `sums`: sums of floats that are added in a new order."""

    before: Audit
    engines: list[str]
    layers: list[RepairedLayer] = field(default_factory=list)
    orders: int = 0
    sums: list[str] = field(default_factory=list)
    zero_channels: int = 0  # that were added, in all tensors
    gathers: list[str] = field(default_factory=list)  # the graph's outputs that a Gather puts back in the stored order
    after: Any = None
    check: Any = None
    widened: Any = None  # what _range.undo_reduce_range() did before the repair; `before` is the audit of its model

    @property
    def is_proven(self) -> bool:
        return self.after.is_proven


# ----- orders -----------------------------------------------------------------------------------------------------------


@dataclass
class _Consumer:
    """Rows of a layer's weights whose channels an axis orders."""

    layer: int
    matrix: np.ndarray  # channels×columns
    high: int
    needs_even: bool = False  # whether an odd number of channels makes pairs across taps


def _channels(layer: QuantizedLayer) -> np.ndarray:
    """A layer's weights with a row for each input channel; those of groups one after the other."""
    weights = layer.weights
    if not layer.is_convolution:
        return weights
    parts = np.split(weights, layer.groups)
    return np.concatenate([part.reshape(-1, part.shape[-1]).T for part in parts])


def _stored_pairs(count: int) -> np.ndarray:
    return np.arange(count // 2 * 2, dtype=np.int64).reshape(-1, 2)


def _worst(audited: AuditedLayer, names: Iterable[str]) -> tuple[int, int]:
    """The most pairs that can saturate in an engine, and its pairs."""
    worst = max((audited.engines[name] for name in names), key=lambda c: c.failing_pairs)
    return worst.failing_pairs, worst.pairs


def _readers(axes: Axes, layers: list[AuditedLayer]) -> "dict[int, Reader]":
    """By a layer's number: how the analysis sees it."""
    found: dict[tuple[int, int], Reader] = {(reader.node, reader.part): reader for reader in axes.readers}
    numbers: dict[int, Reader] = {}
    for i, audited in enumerate(layers):
        layer = audited.layer
        if layer.graph_node is None or id(layer.graph_node) not in axes.places:
            continue
        part = int(layer.weights_input == 2) if layer.op_type == "DynamicQuantizeLSTM" else 0
        reader = found.get((axes.places[id(layer.graph_node)], part))
        if reader is not None:
            numbers[i] = reader
    return numbers


class _Planner:
    """Chooses an order for each axis that layers with unsafe pairs read."""

    def __init__(self, result: Audit, axes: Axes, names: list[str], keep_channels: bool):
        self.result, self.axes, self.names, self.keep_channels = result, axes, names, keep_channels
        self.has_u8 = names == ["onnxruntime"]  # whether every layer without a safe order gets u8 weights
        self.readers = _readers(axes, result.layers)
        self.reasons: dict[int, str] = {}
        self.consumers: dict[Axis, list[_Consumer]] = {}
        self.orders: dict[Axis, np.ndarray] = {}  # where the channel of each place comes from
        self.zeros: dict[Axis, np.ndarray] = {}  # places of zero channels: copies of others, with zeros as weights
        self.costs = self._costs()
        done: dict[tuple, int] = {}
        for i, audited in enumerate(result.layers):
            if all(audited.engines[name].pairing == "none" for name in names):
                continue
            self._join(i, audited, done)
        for root, consumers in self.consumers.items():
            self._order(root, consumers)

    def _join(self, i: int, audited: AuditedLayer, done: dict) -> None:
        layer = audited.layer
        odd = ""
        pairings = {audited.engines[name].pairing for name in self.names} - {"none"}
        if layer.is_convolution and layer.weights.shape[-1] % 2 and (layer.groups > 1 or pairings != {"within_tap"}):
            where = " in each group" if layer.groups > 1 else ""
            odd = f"pairs across taps: {layer.weights.shape[-1]} channels{where}"
            if layer.groups > 1 or self.keep_channels:
                self.reasons[i] = odd
                return
        reader = self.readers.get(i)
        if reader is None:
            self.reasons[i] = "an inner graph" if layer.graph_node is None else "weights or activations whose axes are not known"
            return
        rows = _channels(layer)
        offset, number, direction = 0, 0, 0
        if layer.op_type == "DynamicQuantizeLSTM":
            number = done[(reader.node, reader.part)] = done.get((reader.node, reader.part), -1) + 1
            direction = len(rows) * number if reader.part else 0
        segments = resolved(reader.dim)
        parts: list[tuple[Axis, _Consumer]] = []
        high = layer.a_range[1] if layer.a_type == "u8" else 255
        for k, segment in enumerate(segments):
            size = segment_size(segment) or 0
            size = len(rows) if direction or reader.part else size
            part = rows[offset:offset + size]
            reason = self._obstacle(segment, offset, size, k + 1 == len(segments))
            if odd and (reason or len(segments) > 1 or segment[0].axis.root().has_fixed_size):
                self.reasons[i] = odd
                return
            if reason:
                if (offset % 2 or layer.b_type != "s8" or len(segments) == 1
                        or clamping(_stored_pairs(len(part)), part, high).any()):
                    self.reasons[i] = reason
                    if self.has_u8:  # the layer gets u8 weights: it is no constraint on other axes
                        return
            else:
                root = segment[0].axis.root()
                if reader.part:  # an LSTM's recurrent weights: the channels of this direction
                    whole = np.zeros((root.size, part.shape[1]), np.int8)
                    whole[direction:direction + size] = part
                    part = whole
                parts.append((root, _Consumer(i, part, high, bool(odd))))
            offset += size
        for root, consumer in parts:
            self.consumers.setdefault(root, []).append(consumer)

    @staticmethod
    def _obstacle(segment: list, offset: int, size: int, is_last: bool) -> str:
        """Why an axis cannot order this part of a layer's depths."""
        if len(segment) != 1 or not segment[0].is_whole:
            free = [factor for factor in segment if factor.stride == 1 and not factor.axis.is_frozen]
            held = next((factor.axis.root().reason for factor in segment if factor.axis.is_frozen), "")
            return "pairs within a channel that was flattened" if free else held or "its depths are not one axis"
        root = segment[0].axis.root()
        if root.reason:
            return root.reason
        if offset % 2 or (size % 2 and not is_last):
            return "a concatenation of odd numbers of channels"
        block = root.block or root.size
        if block % 2 and block != root.size:
            return f"blocks of {block} channels"
        return ""

    def _order(self, root: Axis, consumers: list[_Consumer]) -> None:
        stored = _stored_pairs(root.size)
        unsafe = {c.layer for c in consumers if clamping(stored, c.matrix, c.high).any()}
        unsafe |= {c.layer for c in consumers if c.needs_even and self.result.layers[c.layer].fails(self.names)}
        if not unsafe:
            return
        block = root.block or root.size
        largest = max(c.matrix.size for c in consumers)
        found = order_channels([c.matrix for c in consumers], [c.high for c in consumers], blocks=root.size // block,
                               weights=[c.matrix.size / largest for c in consumers])
        left = {consumers[k].layer for _, _, where in found.unsafe for k in where}
        left |= {c.layer for c in consumers if c.needs_even and c.layer in unsafe}
        if left and self._add_zeros(root, consumers, left):
            return
        for layer in left:
            is_odd = any(c.needs_even for c in consumers if c.layer == layer)
            self.reasons.setdefault(layer, "pairs across taps: an odd number of channels" if is_odd else
                                    "no order of its channels makes every pair safe")
        if unsafe - left and not np.array_equal(found.order, np.arange(root.size)):
            self.orders[root] = found.order


    def _costs(self) -> "dict[Axis, int]":
        """For each axis, how many weights there are along it: what it costs to make it longer."""
        found: dict[Axis, int] = {}
        for use in self.axes.uses:
            if self.axes.nodes[use.node].op_type == "Gather":
                continue  # an embedding
            count = math.prod(self.axes.leaves[use.name])
            for root in {factor.axis.root() for dim in use.dims for factor in factors(dim)}:
                found[root] = found.get(root, 0) + count
        return found

    def _add_zeros(self, root: Axis, consumers: list[_Consumer], left: "set[int]") -> bool:
        """Adds zero channels beside those that no safe pair is left for, where that costs less than u8 weights."""
        if self.keep_channels or root.has_fixed_size:
            return False
        found = order_channels([c.matrix for c in consumers], [c.high for c in consumers], allow_zero_channels=True)
        if found.unsafe:
            return False
        alone = set(found.single)
        places: list[int] = []
        for channel in found.order.tolist():
            places += [channel, -1] if channel in alone else [channel]
        places += [-1] * (-len(places) % (math.gcd(root.size, 8) if root.size % 2 == 0 else 2))
        growth = (len(places) - root.size) / root.size
        rest = sum(self.result.layers[layer].layer.weights.size for layer in left)
        if growth * self.costs.get(root, 0) > (_U8_COSTS * rest if self.has_u8 else _MOST_GROWTH * self.costs.get(root, 0)):
            return False
        source = np.array(places, np.int64)
        self.zeros[root] = source < 0
        source[source < 0] = source[0]  # a copy of a channel leaves ranges of activations as they are
        self.orders[root] = source
        return True


# ----- constants --------------------------------------------------------------------------------------------------------


def _digits(dims: "list[Dim]") -> "dict[Axis, list[tuple[int, int, int]]]":
    """For each axis, the digits that number its blocks: dimension, place value there, and stride of the axis's index."""
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
    """Where the elements along dimension d come from, an array that broadcasts to the tensor; None: from where they are."""
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
                    numbers = np.arange(math.prod(segment_size(s) or 0 for s in dims[other])) // other_value % other_size
                    begin = begin + along(other, numbers * stride)
                source = source + (orders[root][begin + along(d, digit)] - begin) * value
            value *= factor.size
        parts.append(source + offset)
        offset += segment_size(segment) or 0
    shape = np.broadcast_shapes(*[[1 if k == d else n for k, n in enumerate(part.shape)] for part in parts])
    wide = [np.broadcast_to(part, [part.shape[d] if k == d else n for k, n in enumerate(shape)]) for part in parts]
    return np.concatenate(wide, axis=d)


def _zero_places(dim: Dim, orders: "dict[Axis, np.ndarray]", zeros: "dict[Axis, np.ndarray]", only_depths: bool) -> np.ndarray:
    """Places along a dimension that zero channels were given."""
    found = []
    for segment in dim:
        root = segment[0].axis.root() if segment else None
        if root in zeros:
            found.append(zeros[root] if segment[0].is_depth or not only_depths else np.zeros(len(zeros[root]), bool))
        else:
            found.append(np.zeros(len(orders[root]) if root in orders and len(segment) == 1 and segment[0].is_whole
                                  else segment_size(segment) or 0, bool))
    return np.concatenate(found)


def arranged(array: np.ndarray, dims: "list[Dim]", orders: "dict[Axis, np.ndarray]",
             zeros: "dict[Axis, np.ndarray] | None" = None) -> np.ndarray:
    """A constant's values in the new order of the axes of its dimensions."""
    dims = [resolved(dim) for dim in dims]
    digits = _digits(dims)
    for d in range(len(dims)):
        index = _index(dims, d, orders, digits)
        if index is None:
            continue
        if index.size == index.shape[d]:
            array = array.take(index.reshape(-1), axis=d)
            none = _zero_places(dims[d], orders, zeros or {}, True)
            if none.any():
                array[(slice(None),) * d + (none,)] = 0
        else:
            index = np.broadcast_to(index, [index.shape[k] if k == d else n for k, n in enumerate(array.shape)])
            array = np.take_along_axis(array, index, axis=d)
    return array


def _is_moved(dims: "list[Dim]", orders: "dict[Axis, np.ndarray]") -> bool:
    return any(factor.stride == 1 and factor.axis.root() in orders for dim in dims for factor in factors(dim))


class _Editor:
    """Changes a copy of a model."""

    def __init__(self, proto: Any, folder: Path):
        self.proto, self.folder = copy.deepcopy(proto), folder
        graph = self.proto.graph
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.names = {name for node in graph.node for name in [*node.input, *node.output]} | set(self.initializers)
        self.names |= {value.name for value in [*graph.input, *graph.output]}

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
        self.proto.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def replace(self, name: str, array: np.ndarray) -> None:
        from onnx import numpy_helper

        self.initializers[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))

    def fold(self, axes: Axes, orders: "dict[Axis, np.ndarray]", zeros: "dict[Axis, np.ndarray]") -> None:
        """Reorders every constant that has an ordered axis. One that operators read in several layouts is copied."""
        self._lengthen(axes, orders, zeros)
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
        for name, moved in uses.items():
            stored = axes.scope.constant(name)
            layouts: list[tuple[np.ndarray, list]] = []
            for use in moved:
                array = arranged(stored, use.dims, orders, zeros)
                same = next((found for other, found in layouts
                             if other.shape == array.shape and other.tobytes() == array.tobytes()), None)
                if same is None:
                    layouts.append((array, [use]))
                else:
                    same.append(use)
            count = len({(use.node, use.input) for use in moved})
            if len(layouts) == 1 and count == reads[name] and name in self.initializers and name not in kept:
                self.replace(name, layouts[0][0])
                continue
            for array, found in layouts:
                new = self.add(f"{name}_ordered", array)
                for use in found:
                    graph.node[use.node].input[use.input] = new

    def _lengthen(self, axes: Axes, orders: "dict[Axis, np.ndarray]", zeros: "dict[Axis, np.ndarray]") -> None:
        """What states a number of channels: groups of depthwise convolutions, and shapes of tensors in between."""
        graph = self.proto.graph
        for place, dim in axes.depthwise.items():
            if any(factor.axis.root() in zeros for factor in factors(dim)):
                for attribute in graph.node[place].attribute:
                    if attribute.name == "group":
                        attribute.i = len(_zero_places(resolved(dim), orders, zeros, False))
        longer = {name for name, dims in axes.dims.items()
                  if any(factor.axis.root() in zeros for dim in dims or [] for factor in factors(dim))}
        for i in reversed(range(len(graph.value_info))):
            if graph.value_info[i].name in longer:
                del graph.value_info[i]

    def restore_outputs(self, axes: Axes, orders: "dict[Axis, np.ndarray]", zeros: "dict[Axis, np.ndarray]") -> list[str]:
        """The graph's outputs get their stored order back, by Gather."""
        from onnx import helper

        graph, restored = self.proto.graph, []
        for name, dims in axes.outputs.items():
            indices = []
            for d in range(len(dims)):
                one = [resolved(dims[d])]
                index = _index(one, 0, orders, {})
                if index is not None:
                    kept = np.flatnonzero(~_zero_places(one[0], orders, zeros, False))
                    indices.append((d, kept[np.argsort(index[kept])]))
            if not indices:
                continue
            restored.append(name)
            source = self.unique(f"{name}_ordered")
            for node in graph.node:
                for names in (node.input, node.output):
                    for k, other in enumerate(names):
                        if other == name:
                            names[k] = source
            for k, (d, index) in enumerate(indices):
                target = name if k + 1 == len(indices) else self.unique(f"{name}_{k}")
                constant = self.add(f"{name}_order", index.astype(np.int64))
                node_name = self.unique(f"{name}_restored")
                graph.node.append(helper.make_node("Gather", [source, constant], [target], name=node_name, axis=d))
                source = target
        return restored

    def store_as_u8(self, layer: QuantizedLayer, place: int, scope: Scope) -> str:
        """Weights become u8, with zero points 128 higher: the same integers. Gives why not, if not."""
        node = self.proto.graph.node[place]
        name = node.input[layer.weights_input]
        weights = scope.constant(name)
        if weights is None or weights.dtype != np.int8:
            return "its weights are not s8"
        if name in scope.overridable or node.input[min(layer.point_input, len(node.input) - 1)] in scope.overridable:
            return "weights that a caller may override"
        point = weights_zero_point(layer, node, scope)
        if point is None:
            return "its weights' zero point or scale is no constant"
        point_name = node.input[layer.point_input] or f"{name}_zero_point"
        for i, stem, values in ((layer.weights_input, name, weights), (layer.point_input, point_name, point)):
            node.input[i] = self.add(f"{stem}_u8", as_u8(values))
        self.drop_unused(name, point_name)
        return ""

    def drop_unused(self, *names: str) -> None:
        """Initializers that nothing reads any more."""
        graph = self.proto.graph

        read = {name for node in graph.node for name in node.input} | (
            {value.name for value in graph.output} | names_that_inner_graphs_read(graph))
        read |= {value.name for value in graph.input}
        for i in reversed(range(len(graph.initializer))):
            if graph.initializer[i].name in names and graph.initializer[i].name not in read:
                del graph.initializer[i]


# ----- files ------------------------------------------------------------------------------------------------------------


def _tensors(graph: Any, depth: int = 0) -> Iterable[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == 4:
                yield attribute.t
            for inner in ([attribute.g] if attribute.type == 5 else attribute.graphs):
                if depth < 16:
                    yield from _tensors(inner, depth + 1)


def _write(proto: Any, folder: Path, name: str, source: Path, is_external: bool) -> None:
    """Writes folder/name; the weights of a model with external data go to folder/name.data."""
    if is_external:
        with open(folder / f"{name}.data", "wb") as data:
            for tensor in _tensors(proto.graph):
                if tensor.data_location == 1:
                    array = array_of_tensor(tensor, source)
                    if array is None:
                        raise invalid(f"tensor {excerpt(tensor.name)!r}: is external data of a type that is not read")
                    content = np.ascontiguousarray(array).tobytes()
                elif tensor.HasField("raw_data") and len(tensor.raw_data) > 1024:
                    content = tensor.raw_data
                else:
                    continue
                data.write(b"\0" * (-data.tell() % 64))
                begin = data.tell()
                data.write(content)
                tensor.ClearField("raw_data")
                tensor.ClearField("external_data")
                tensor.data_location = 1
                for key, value in (("location", f"{name}.data"), ("offset", str(begin)), ("length", str(len(content)))):
                    entry = tensor.external_data.add()
                    entry.key, entry.value = key, value
    if proto.ByteSize() > _MOST_PROTOBUF:
        raise invalid("the repaired model has more than 2 GB; store the model with external data first")
    (folder / name).write_bytes(proto.SerializeToString())


# ----- the repair -------------------------------------------------------------------------------------------------------


def _exact_nodes(result: Audit, scope: Scope) -> set[int]:
    """Numbers of the operators between DequantizeLinear and QuantizeLinear whose sums ONNX Runtime adds as integers."""
    places = {id(node): i for i, node in enumerate(result.model.proto.graph.node)}
    found = set()
    for audited in result.layers:
        layer = audited.layer
        if layer.graph_node is None or layer.note:
            continue
        outputs = scope.consumers.get(layer.graph_node.output[0], [])
        if layer.op_type == "Gemm" and not any(node.op_type == "QuantizeLinear" for node in outputs):
            continue
        found.add(places[id(layer.graph_node)])
    return found


def repair(model: Any, *, engines: Iterable[str] | None = None, bit_exact: bool = False, keep_channels: bool = False,
           undo_reduce_range: str | os.PathLike | None = None, allow_u8_weights: bool = False,
           data: "list[dict[str, np.ndarray]] | None" = None) -> "tuple[Any, Repair]":
    """Reorders the channels of an ONNX model so that no layer can saturate; layers that no order helps get u8 weights.

    - `model`: a path, or an `onnx.ModelProto`, which is not changed.
    - `engines`: in which no pair shall saturate, names of engines.json; by default ONNX Runtime.
    - `bit_exact`: adds no floats in a new order.
    - `keep_channels`: adds no zero channels.
    - `undo_reduce_range`: the path of the float model; 7-bit weights get 8 bits. Where only u8 weights, which are slower, make
      these safe, they get the steps that are safe as stored (`allow_u8_weights`: 8 bits too). `data`: the inputs of each run;
      with them, 7-bit activations get 8 bits.

    Gives the repaired `onnx.ModelProto`, and what was done. Raises `Error`."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        if isinstance(model, onnx.ModelProto):
            path = Path(folder, "model.onnx")
            if model.ByteSize() > _MOST_PROTOBUF:
                raise invalid("the model has more than 2 GB: give the path of its file")
            path.write_bytes(model.SerializeToString())
        else:
            path = Path(model)
        done = repair_file(path, Path(folder, "repaired.onnx"), engines_asked=engines, bit_exact=bit_exact,
                           keep_channels=keep_channels, float_model=undo_reduce_range, allow_u8_weights=allow_u8_weights,
                           data=data)
        return onnx.load(str(Path(folder, "repaired.onnx"))), done


def repair_file(path: str | os.PathLike, out: str | os.PathLike, *, engines_asked: Iterable[str] | None = None,
                bit_exact: bool = False, keep_channels: bool = False, float_model: str | os.PathLike | None = None,
                allow_u8_weights: bool = False, data: "list[dict[str, np.ndarray]] | None" = None, progress: Any = None,
                limits: Any = None) -> Repair:
    """Repairs the ONNX model in a file and writes `out`, whole or not at all.

    `engines_asked`: engines in which no pair shall saturate, by default ONNX Runtime. `bit_exact`: no sum of floats is added in
    a new order. `keep_channels`: no zero channels are added. Raises `Error`.

    `float_model`: 7-bit weights get more steps, rounded from this model's: 8 bits where an order makes them safe (or
    `allow_u8_weights`), elsewhere the steps that are safe as stored. With `data`, inputs of runs, 7-bit activations get 8 bits.
    `limits`: what earlier attempts found."""
    path, out = Path(path), Path(out)
    result = audit(path, engines_asked=engines_asked, progress=progress)
    if result.model.proto is None:
        raise invalid(f"{excerpt(path)}: is no ONNX model; only these are repaired")
    names = result.engines
    proto = result.model.proto
    read = {path, *(path.parent / entry.value for tensor in _tensors(proto.graph) if tensor.data_location == 1
                    for entry in tensor.external_data if entry.key == "location")}
    for written in (out, out.with_name(out.name + ".data")):
        if written.exists() and any(one.exists() and written.samefile(one) for one in read):
            raise invalid(f"{excerpt(written)}: is a file of the model; expected another name for the repaired one")
    if proto.ir_version < 4:  # these state every constant as an input too
        stored = {tensor.name for tensor in proto.graph.initializer}
        inputs = [value for value in proto.graph.input if value.name not in stored]
        del proto.graph.input[:]
        proto.graph.input.extend(inputs)
        proto.ir_version = 4
    try:
        widened = None
        if float_model is not None:
            from ._range import Limits, undo_reduce_range

            limits = limits or Limits()
            keep_channels = keep_channels or not allow_u8_weights  # fewer steps cost no time
            proto, widened = undo_reduce_range(result, float_model, data, limits)
            result = audit(path, engines_asked=names, progress=progress, proto=proto)
        axes = Axes(proto, path.parent, _exact_nodes(result, Scope(proto.graph, path.parent)))
        if bit_exact:
            for reader in axes.readers:
                for factor in factors(reader.dim):
                    root = factor.axis.root()
                    if root.sums:
                        root.freeze(f"--bit-exact: another order of its channels changes sums of floats ({root.sums})")
        plan = _Planner(result, axes, names, keep_channels)
        done = Repair(result, names, orders=len(plan.orders), zero_channels=sum(int(zero.sum()) for zero in plan.zeros.values()),
                      widened=widened)
        editor = _Editor(proto, path.parent)
        editor.fold(axes, plan.orders, plan.zeros)
        done.gathers = editor.restore_outputs(axes, plan.orders, plan.zeros)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise invalid(f"{excerpt(path)}: a node or a tensor is malformed, or nested too deep: {excerpt(repr(error))}") from None
    done.sums = sorted({root.sums for root in plan.orders if root.sums})
    is_external = any(tensor.data_location == 1 for tensor in _tensors(proto.graph))
    for audited in result.layers:
        unsafe, pairs = _worst(audited, names)
        done.layers.append(RepairedLayer(audited.layer.name, audited.layer.node, pairs, unsafe, unsafe))
    with tempfile.TemporaryDirectory(prefix=".intact-", dir=out.parent if out.parent.is_dir() else None) as temporary:
        folder = Path(temporary)
        _write(copy.deepcopy(editor.proto) if is_external else editor.proto, folder, out.name, path.parent, is_external)
        after = audit(folder / out.name, engines_asked=names)
        if len(after.layers) != len(result.layers):
            raise Error("INTERNAL", f"the repaired model has {len(after.layers)} layers; the stored one has {len(result.layers)}")
        has_u8, refused = _store_rest_as_u8(editor, after, names)
        if has_u8:
            _write(editor.proto, folder, out.name, path.parent, is_external)
            after = audit(folder / out.name, engines_asked=names)
        _describe(done, result, after, plan, refused)
        costly = [] if widened is None or allow_u8_weights else [
            i for i in widened.numbers if done.layers[i].how in ("u8 weights", "left")]
        for i in costly:
            limits.tighten(i, done.layers[i].reason)
        if costly:
            return repair_file(path, out, engines_asked=names, bit_exact=bit_exact, keep_channels=keep_channels,
                               float_model=float_model, data=data, progress=progress, limits=limits)
        if not out.parent.is_dir():
            raise invalid(f"{excerpt(out)}: its folder does not exist")
        for suffix in ([".data"] if is_external else []) + [""]:
            os.replace(folder / (out.name + suffix), out.parent / (out.name + suffix))
    after.model.path = str(out)
    done.after = after
    return done


def _store_rest_as_u8(editor: _Editor, after: Audit, names: list[str]) -> tuple[bool, dict[int, str]]:
    """u8 weights for all layers that can still saturate. Returns whether some layer got them, and why others did not."""
    if "onnxruntime" not in names:
        return False, {}
    places = {id(node): i for i, node in enumerate(after.model.proto.graph.node)}
    scope = Scope(after.model.proto.graph, Path(after.model.path).parent)
    unsafe = [i for i, audited in enumerate(after.layers) if audited.fails(["onnxruntime"])]
    recurrent = {id(after.layers[i].layer.graph_node) for i in unsafe if after.layers[i].layer.op_type == "DynamicQuantizeLSTM"}
    unsafe += [i for i, audited in enumerate(after.layers) if i not in unsafe and audited.layer.graph_node is not None
               and id(audited.layer.graph_node) in recurrent]  # an LSTM's weights have one type
    refused: dict[int, str] = {}
    changed = set()
    for i in unsafe:
        layer = after.layers[i].layer
        if layer.weights_node is None:
            refused[i] = "an inner graph"
            continue
        if layer.a_type != "u8":
            continue
        key = (places[id(layer.weights_node)], layer.weights_input)
        if key in changed:
            continue
        reason = editor.store_as_u8(layer, key[0], scope)
        if reason:
            refused[i] = reason
        else:
            changed.add(key)
    return bool(changed), refused


def _describe(done: Repair, before: Audit, after: Audit, plan: _Planner, refused: "dict[int, str]") -> None:
    for i, (row, old, new) in enumerate(zip(done.layers, before.layers, after.layers)):
        row.left = _worst(new, done.engines)[0]
        row.zero_channels = len(_channels(new.layer)) - len(_channels(old.layer))
        reason = plan.reasons.get(i, "")
        is_u8 = new.layer.b_type == "u8" and old.layer.b_type == "s8"
        row.reason = refused.get(i) or reason
        if row.left:
            row.how = "left"
        elif is_u8:
            row.how = "u8 weights"
        elif not row.unsafe:
            row.how, row.reason = "stored order", ""
        else:
            row.how, row.reason = "folded order", ""
