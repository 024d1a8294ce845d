"""Chooses orders of channels and copied channels that make the layers of a model safe at the least cost.

Layers that read one axis share its order. Each axis has several candidates: an order in which the fewest layers have unsafe
pairs, orders that need the least change of weights to remove all unsafe pairs, and orders with copied channels. If a candidate
leaves a layer unsafe, the layer's weights are shortened if the noise is small enough, or stored as u8, or stay unsafe.

A copied channel has zeros as weights, or it carries a part of its channel's weights: x * w = x * u + x * v. If no two of three
channels are a safe pair, the three mostly fit into four places, with a copy of one of them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Any, Iterable

import numpy as np

from .._audit.audit import Audit, AuditedLayer
from .._formats.model import QuantizedLayer
from .._graph.axes import Axes
from .._graph.dims import Axis, Dim, Reader, factors, resolved, segment_size, size_of
from .._graph.fusion import has_s8_activations
from .._graph.nodes import attributes
from .._graph.operators import is_convolution
from .._graph.scope import Scope
from .._graph.sizes import shapes_of
from .order import limits, order_channels
from .shorten import (
    Halving,
    centered,
    change_of,
    halving,
    has_zero_in_the_middle,
    largest_activation,
    shortened,
    squares,
    unsafe_by_output,
    weights_key,
)

# Times, in multiply-adds of s8 weights. Measured per node with ONNX Runtime 1.32 on an Intel Xeon with AMX, one thread,
# 2026-11-26: natively, without AMX, and with a masked CPUID that leaves AVX2. Each is the mean of AVX2 and VNNI, as one plan
# serves all CPUs. A multiply-add takes 8.7 ps with AVX2, 2.7 with VNNI. Comments give the time with AVX2, then with VNNI.
_OUTPUT = 25  # an output, whatever its depth: 160 ps, 130 ps
_DEPTH_TAIL = 35  # an output whose depth is no multiple of 4: 200 ps on both
_ROW_TAILS = ((16, 0), (8, 180), (4, 500), (1, 1500))  # a row of outputs, by a divisor of their number: 0.3 to 12 ns
_NARROW_ROW = 1000  # a row of fewer than 16 outputs, in addition: 6 ns
_DEPTHWISE = 9  # a multiply-add of a depthwise convolution: 67 ps, 32 ps
_DEPTHWISE_TAIL = 7  # this multiply-add, in addition, if the number of channels is no multiple of 16: 20 ps, 55 ps
_DEPTHWISE_ROW = 2500  # a pixel, if the number of channels is no multiple of 8: 15 ns
_U8_WEIGHT = 1.0  # a multiply-add of u8 weights, beyond one of s8 weights: 3.7 ps, 7.6 ps
_U8_OUTPUT = 26  # an output with u8 weights, in addition: 125 ps, 178 ps
_GATHERED = 26  # an element that a Gather in front and the Transposes around it move: 150 ps
_GATHERED_PLANE = 700  # a plane of a channel that these operators move: 4 ns
_GATHER = 500_000  # these operators, in addition to what they move: 3 us
MOST_DEPTH = 100.0  # percent of the model's multiply-adds that copied channels may add
_OPEN_SIZE = 64  # assumed for a size that the file leaves open, except a tensor's first size, which counts as 1
_MULTIPLES = (2, 4, 8, 16)  # numbers of channels are rounded up to multiples of these
_MOST_TRIED = 48  # channels among which a group is searched, and groups of four that are tried for a channel
_TRIES = 20
_ROUNDS = 4  # rounds of the matching of the least change, each without the layers that were too noisy in the round before
_PIECE = 1 << 22  # weights that are processed at once


@dataclass
class Means:
    """The cost of each way to make a layer safe; None: it does not apply or was not examined. `order_leaves`: unsafe pairs in the
    order with the fewest unsafe layers. `copied_channels`: how many the layer's input needs. `depth`: what copied channels add to
    the model's multiply-adds, in percent. `noise`: of shortened weights. `u8_weights`, `gather`: what they add to the time of the
    model's products, in percent."""

    order_leaves: int | None = None
    copied_channels: int | None = None
    depth: float | None = None
    noise: float | None = None
    u8_weights: float | None = None
    gather: float | None = None


@dataclass
class _Consumer:
    """The rows of a layer's weights that an axis orders. `share`: the share of the layer's rows that the axis orders."""

    layer: int
    matrix: np.ndarray  # channels×columns
    high: int
    share: float = 1.0
    needs_even: bool = False  # whether pairs span taps if the number of channels is odd
    halving: "np.ndarray | None" = None  # for each output, the squared change by halving its weights

    def by_output(self, changes: np.ndarray) -> np.ndarray:
        """For each output, the sum of its columns' changes, or the change by halving if that is less."""
        if self.halving is None:
            return changes
        return np.minimum(changes.reshape(len(self.halving), -1).sum(axis=1), self.halving)

    def without_halved(self, changes: np.ndarray) -> "_Consumer":
        """The consumer without the outputs that are halved."""
        if self.halving is None:
            return self
        taps = len(changes) // len(self.halving)
        kept = np.repeat(changes.reshape(len(self.halving), -1).sum(axis=1) <= self.halving, taps)
        return replace(self, matrix=self.matrix[:, kept], halving=self.halving[kept[::taps]])


@dataclass
class _Candidate:
    """An order of an axis. `source`: the channel at each place. `copies`: places of copied channels. `fillers`: copies that carry
    no weights, so that they may copy any channel. `changes`: by layer, the squared change that makes all its pairs safe.
    `pairs`: by layer, how many pairs need a change."""

    source: np.ndarray
    copies: np.ndarray
    fillers: np.ndarray
    changes: dict[int, float] = field(default_factory=dict)
    pairs: dict[int, int] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)  # layers that stay unsafe because shortening is too noisy
    noise: float = 0.0  # noise of the layers whose weights are shortened

    @property
    def is_stored(self) -> bool:
        return not self.copies.any() and np.array_equal(self.source, np.arange(len(self.source)))


def channels_of(layer: QuantizedLayer) -> np.ndarray:
    """A layer's weights with a row for each input channel, group after group."""
    weights = centered(layer.weights)
    if not layer.is_convolution:
        return weights
    parts = np.split(weights, layer.groups)
    return np.concatenate([part.reshape(-1, part.shape[-1]).T for part in parts])


def _changes(matrix: np.ndarray, high: int, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """The squared changes that make pairs of channels safe: summed for each pair, and for each column. Also how many pairs of
    weights change."""
    by_pair, by_column = np.zeros(len(pairs), np.int64), np.zeros(matrix.shape[1], np.int64)
    count = 0
    step = max(1, _PIECE // max(1, matrix.shape[1]))
    for begin in range(0, len(pairs), step):
        part = pairs[begin:begin + step]
        change = change_of(matrix[part[:, 0]], matrix[part[:, 1]], high)
        by_pair[begin:begin + step] = change.sum(axis=1)
        by_column += change.sum(axis=0)
        count += int(np.count_nonzero(change))
    return by_pair, by_column, count


def _within(weights: np.ndarray, mates: np.ndarray) -> np.ndarray:
    """The weights, clipped so that they make safe pairs with `mates`, for every activation range."""
    most, least = limits(255)
    return np.clip(weights, np.where(mates < 0, -least - mates, -128), np.where(mates > 0, most - mates, 127))


def spread(rows: np.ndarray, source: np.ndarray, copies: np.ndarray, fillers: "np.ndarray | None" = None) -> np.ndarray:
    """s8 weights, a row for each channel, in an order. A copy carries the excess that makes its channel's pair unsafe: both
    weights add up to the stored weight. `fillers`: copies that carry nothing."""
    placed = rows[source]
    placed[copies] = 0
    first = np.zeros(len(rows), np.int64)
    first[source[~copies]] = np.flatnonzero(~copies)
    for place in np.flatnonzero(copies if fillers is None else copies & ~fillers):
        one = first[source[place]]
        if one ^ 1 >= len(placed):
            continue
        weights = placed[one].astype(np.int16)
        excess = weights - _within(weights, placed[one ^ 1].astype(np.int16))
        if excess.any():
            other = placed[place ^ 1].astype(np.int16) if place ^ 1 < len(placed) else np.zeros_like(weights)
            carried = _within(excess, other)
            placed[place], placed[one] = carried, weights - carried
    return placed


def _neighbours(matrix: np.ndarray, source: np.ndarray, copies: np.ndarray, fillers: np.ndarray) -> np.ndarray:
    """A consumer's weights in an order. Pairs are rows (0, 1), (2, 3), ...; an odd last row is dropped."""
    return spread(matrix, source, copies, fillers)[:len(source) // 2 * 2]


def _sums_fit(one: np.ndarray, other: np.ndarray, more: np.ndarray) -> np.ndarray:
    """For each channel of `more`, whether it and two others fit into four places: in no column are all three weights of one sign,
    with a sum beyond the limit of two pairs."""
    most, least = limits(255)
    sums = one + other
    high = np.flatnonzero((one > 0) & (other > 0) & (sums > 2 * most - 127))
    low = np.flatnonzero((one < 0) & (other < 0) & (sums < 128 - 2 * least))
    return (more[:, high] <= 2 * most - sums[high]).all(axis=1) & (more[:, low] >= -2 * least - sums[low]).all(axis=1)


def _in_threes(rows: np.ndarray) -> list[list[int]]:
    """Disjoint groups of three channels that fit into four places. Channels with the fewest possible groups choose first. Takes
    the best of several random tries."""
    count = len(rows)
    by_channel: list[list[tuple[int, int]]] = [[] for _ in rows]
    width = count if count <= _MOST_TRIED else max(_MOST_TRIED ** 2 // count, 16)
    near = [np.sort((k + np.arange(width)) % count) for k in range(count)]
    for one in range(count):
        for two in near[one][near[one] > one].tolist():
            others = near[one][near[one] > two]
            for three in others[_sums_fit(rows[one], rows[two], rows[others])].tolist():
                for k, pair in ((one, (two, three)), (two, (one, three)), (three, (one, two))):
                    by_channel[k].append(pair)
    best: list[list[int]] = []
    for seed in range(_TRIES if any(by_channel) else 0):
        chance = np.random.default_rng(seed).random(count).tolist()
        # A channel with fewer possible groups chooses earlier, and is preferred as a partner.
        rank = [len(pairs) + chance[k] for k, pairs in enumerate(by_channel)]
        is_free, groups = [True] * count, []
        for one in sorted(range(count), key=rank.__getitem__):
            pairs = [pair for pair in by_channel[one] if is_free[pair[0]] and is_free[pair[1]]] if is_free[one] else []
            if pairs:
                group = [one, *min(pairs, key=lambda pair: rank[pair[0]] + rank[pair[1]])]
                groups.append(group)
                for k in group:
                    is_free[k] = False
        best = max(best, groups, key=len)
        if len(best) == count // 3:
            break
    return best


def _in_fours(rows: np.ndarray) -> list[list[int]]:
    """Disjoint groups of four channels that fit into six places. The copies of the first and the third channel are a pair."""
    groups, left = [], list(range(len(rows)))
    while len(left) > 3:
        one, found = left[0], None
        for two, three, four in itertools.islice(itertools.permutations(left[1:], 3), _MOST_TRIED):
            excess = [rows[k] - _within(rows[k], rows[mate]) for k, mate in ((one, two), (three, four))]
            if (_within(*excess) == excess[0]).all():
                found = [one, two, three, four]
                break
        left = [k for k in left[1:] if k not in (found or ())]
        groups += [found] if found else []
    return groups


def _grouped(consumers: list[_Consumer], channels: np.ndarray) -> "tuple[np.ndarray, np.ndarray]":
    """An order, with copies, of channels that have no safe pair, and the places of the copies. Three channels share a copy, four
    channels share two copies, or a channel has its own copy. -1: a copy of any channel."""
    rows = np.concatenate([c.matrix[channels] for c in consumers], axis=1).astype(np.int16)
    source: list[int] = []
    threes = _in_threes(rows)
    rest = np.setdiff1d(np.arange(len(rows)), np.array(threes, np.int64))
    fours = [[int(rest[k]) for k in group] for group in _in_fours(rows[rest])]
    alone = np.setdiff1d(rest, np.array(fours, np.int64)).tolist()
    for one, two, three in threes:
        source += [two, one, three, one]
    for one, two, three, four in fours:
        source += [two, one, four, three, one, three]
    places = np.array(source, np.int64)
    copies = np.arange(len(places)) != np.unique(places, return_index=True)[1][np.unique(places, return_inverse=True)[1]]
    apart = np.stack([np.array(alone, np.int64), np.full(len(alone), -1)], axis=1).reshape(-1)
    found = np.concatenate([channels[places], np.where(apart < 0, -1, channels[apart])])
    return found, np.concatenate([copies, apart < 0])


def _longer(consumers: list[_Consumer], allowed: list[float], sizes: list[int]) -> "list[tuple[np.ndarray, np.ndarray]]":
    """Orders with copies, and the places of the copies; -1: a copy of any channel. In the first order every channel without a
    safe pair has a copy, or shares a copy. The second has only the copies that the consumers' allowed squared changes require."""
    matrices, highs = [c.matrix for c in consumers], [c.high for c in consumers]
    found = order_channels(matrices, highs, allow_zero_channels=True)
    single = np.array(found.single, np.int64)
    pairs = found.order[~np.isin(found.order, single)]

    def made(pairs: list[np.ndarray], apart: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        source, copies = _grouped(consumers, apart)
        return np.concatenate([*pairs, source]), np.concatenate([np.zeros(sum(map(len, pairs)), bool), copies])

    orders = [made([pairs], single)]
    if any(allowed) and len(single):
        rows = order_channels([matrix[single] for matrix in matrices], highs, least_change=True,
                              weights=[1 / size for size in sizes]).order
        even = len(rows) // 2 * 2
        together = single[rows[:even]].reshape(-1, 2)
        changes = np.stack([_changes(c.matrix, c.high, together)[0] for c in consumers]).astype(float)
        limits_of = np.array(allowed)[:, None]
        order = (changes / np.maximum(limits_of, 1e-9)).max(axis=0).argsort(kind="stable")
        count = int(np.count_nonzero((changes[:, order].cumsum(axis=1) <= limits_of).all(axis=0)))
        apart = np.concatenate([together[order[count:]].reshape(-1), single[rows[even:]]])
        orders.append(made([pairs, together[order[:count]].reshape(-1)], apart))
    return orders


def _padded(order: "tuple[np.ndarray, np.ndarray]", multiple: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The order, filled up with copies to a multiple; the places of all copies; and the places of copies of any channel. These
    copy the first channel until the order is chosen. Copies do not change ranges of activations."""
    source, copies = (np.concatenate([part, np.full(-len(part) % multiple, more)]) for part, more in zip(order, (-1, True)))
    return np.where(source < 0, source[0], source), copies, source < 0


def own_order(layer: QuantizedLayer, pairings: set[str], max_noise: float) -> "tuple[np.ndarray, np.ndarray]":
    """The shortest order of a convolution's input channels, with copies if needed, that leaves at most `max_noise` in the
    layer: the channel at each place, and whether it is a copy."""
    consumer = _Consumer(0, channels_of(layer), max(largest_activation(layer), 1))
    allowed = max_noise * layer.weights.size
    orders = [order_channels([consumer.matrix], consumer.high)]
    if max_noise:
        orders.append(order_channels([consumer.matrix], consumer.high, least_change=True))
    found = [(order.order, np.zeros(len(order.order), bool)) for order in orders]
    found += _longer([consumer], [allowed], [layer.weights.size])
    padded = [_padded(order, 1 if not order[1].any() and len(order[0]) % 4 == 0 else 4)[:2] for order in found]
    apart = np.stack([np.arange(len(consumer.matrix)), np.full(len(consumer.matrix), -1)], axis=1).reshape(-1)
    padded.append(_padded((apart, apart < 0), 4)[:2])  # safe in every pairing
    found = [(source, copies) for source, copies in padded
             if _change_of(replace(layer, weights=moved(layer, source, copies)), pairings) <= allowed]
    return min(found, key=lambda one: len(one[0]))


def gather_obstacle(layer: QuantizedLayer, scope: Scope) -> str:
    """The reason why a convolution cannot get a Gather in front; "" if it can."""
    node, weights_node = layer.graph_node, layer.weights_node
    if weights_node.input[layer.weights_input] in scope.overridable:
        return "weights that a caller may override"
    if not has_zero_in_the_middle(layer, scope):
        return "its weights' zero point is not in the middle"
    if layer.is_qdq:
        maker = scope.producer(node.input[0])
        scales = [scope.constant(one.input[1]) for one in (maker, weights_node) if one is not None]
        if (maker is None or maker.op_type != "DequantizeLinear" or scope.producer(node.input[1]) is not weights_node
                or len(scope.consumers[node.input[1]]) > 1):
            return "an operator between DequantizeLinear and it"
        if has_s8_activations(scope, node):  # ONNX Runtime moves them to u8 only if QuantizeLinear and DequantizeLinear touch
            return "ONNX Runtime would compute s8 activations behind a Gather in floats"
        if any(scale is None for scale in scales) or scales[0].size > 1 or (
                scales[1].size > 1 and attributes(weights_node).get("axis", 1)):
            return "scales for each input channel"
    return ""


def _change_of(layer: QuantizedLayer, pairings: set[str]) -> int:
    return int(squares(layer, shortened(layer, pairings)).sum())


def moved(layer: QuantizedLayer, source: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """A layer's weights in an order of its input channels."""
    axis = layer.weights.ndim - 1 if layer.is_convolution else 0
    rows = np.moveaxis(centered(layer.weights), axis, 0)
    placed = spread(rows.reshape(len(rows), -1), source, copies).reshape(len(source), *rows.shape[1:])
    placed = np.moveaxis(placed, 0, axis)
    return placed if layer.weights.dtype == np.int8 else (placed.astype(np.int16) + 128).astype(np.uint8)


class _Product:
    """An operator with constant weights. `groups`: of the convolution. `outputs`: the dimension of the weights that numbers the
    outputs."""

    def __init__(self, dims: list, positions: int, node: Any, is_depthwise: bool):
        self.dims, self.positions, self.is_depthwise = dims, positions, is_depthwise
        self.known: dict[tuple, tuple[int, float]] = {}
        self.axes = list(dict.fromkeys(factor.axis.root() for dim in dims for factor in factors(dim)))
        self.groups = attributes(node).get("group", 1) if is_convolution(node) else 1
        depth = [d for d, dim in enumerate(dims) if any(factor.is_depth for factor in factors(dim))]
        self.outputs = len(dims) - 1 if depth and depth[0] == len(dims) - 2 and len(dims) < 4 else len(dims) - 2 if depth and (
            depth[0] == len(dims) - 1) else 0

    def cost(self, lengths: "dict[Axis, int]") -> tuple[int, float]:
        """Multiply-adds and time if axes have `lengths`."""
        key = tuple(lengths.get(axis) for axis in self.axes)
        if key not in self.known:
            work = self.positions * math.prod(_length(dim, lengths) for dim in self.dims)
            outputs = _length(self.dims[self.outputs], lengths)
            if self.is_depthwise:
                time = (_DEPTHWISE + (_DEPTHWISE_TAIL if outputs % 16 else 0)) * work + (
                    _DEPTHWISE_ROW * self.positions if outputs % 8 else 0)
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
    tail = next(time for multiple, time in _ROW_TAILS if own % multiple == 0) + (_NARROW_ROW if own < 16 else 0)
    return rows * (outputs * (depth + _OUTPUT + (_DEPTH_TAIL if depth % 4 else 0)) + groups * tail)


class Work:
    """The multiply-adds and times of products with constant weights. A size that the file leaves open counts as 1 if it is a
    tensor's first, else as 64. If the sizes of some convolution's output are unknown, weights are counted instead."""

    def __init__(self, axes: Axes, layers: list[AuditedLayer]):
        self.axes = axes
        self.sizes = shapes_of(axes.proto, _OPEN_SIZE)
        self.places = [axes.places.get(id(audited.layer.graph_node), -1) for audited in layers]
        self.positions = {place: self._positions(place)
                          for place in {*self.places, *(place for place, _ in axes.products)} - {-1}}
        self.unit = "weights" if None in self.positions.values() else "multiply-adds"
        if self.unit == "weights":
            self.positions = dict.fromkeys(self.positions, 1)
        self.stored = [audited.layer for audited in layers]
        self.layers = [audited.layer.weights.size * self.positions.get(place, 1) for audited, place in zip(layers, self.places)]
        self.products = [_Product(dims, self.positions[place], axes.nodes[place], place in axes.depthwise)
                         for place, dims in axes.products]
        self.of_axis: dict[Axis, list[int]] = {}
        for k, product in enumerate(self.products):
            for root in product.axes:
                self.of_axis.setdefault(root, []).append(k)
        known = {place for place, _ in axes.products}
        self.total, self.total_time = map(sum, zip((0, 0.0), *(product.cost({}) for product in self.products)))
        self.total += sum(work for work, place in zip(self.layers, self.places) if place not in known)
        self.total_time += sum(_time(*self._shape(i)) for i, place in enumerate(self.places) if place not in known)

    def _positions(self, place: int) -> int | None:
        node = self.axes.nodes[place]
        dims = self.axes.dims.get(node.output[0])
        sizes = self._sizes(node.output[0], dims)
        if is_convolution(node):
            return None if sizes is None or len(sizes) < 3 or None in sizes[2:] else math.prod([sizes[0] or 1, *sizes[2:]])
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
        return [size or other for size, other in zip(known, guessed)] if guessed and len(guessed) == len(known) else known

    def _shape(self, i: int) -> tuple[int, int, float, int]:
        """Rows, outputs, depth and groups of a layer."""
        layer = self.stored[i]
        outputs = layer.weights.shape[0 if layer.is_convolution else -1]
        return self.positions.get(self.places[i], 1), outputs, layer.weights.size / max(outputs, 1), layer.groups

    def u8_time(self, i: int) -> float:
        """The time that u8 weights add to a layer."""
        rows, outputs, depth, _ = self._shape(i)
        return rows * outputs * max(depth * _U8_WEIGHT + _U8_OUTPUT - (_DEPTH_TAIL if depth % 4 else 0), 0)

    def gather_time(self, i: int, length: int) -> float:
        """The time that a Gather in front adds to a convolution, if it makes `length` channels."""
        rows, outputs, depth, _ = self._shape(i)
        node = self.stored[i].graph_node
        sizes = self._sizes(node.input[0], self.axes.dims.get(node.input[0])) or []
        pixels = math.prod(size or 1 for size in [*sizes[:1], *sizes[2:]]) if self.unit == "multiply-adds" else rows
        longer = depth / self.stored[i].weights.shape[-1] * length
        return (_time(rows, outputs, longer) - _time(rows, outputs, depth) + _GATHER + pixels * length * _GATHERED
                + (sizes[0] or 1 if sizes else 1) * length * _GATHERED_PLANE)

    def added(self, lengths: "dict[Axis, int]") -> tuple[int, float]:
        """The multiply-adds and the time that are added if axes get these lengths."""
        touched = [self.products[k] for k in {k for root in lengths for k in self.of_axis.get(root, ())}]
        costs = [(product.cost(lengths), product.cost({})) for product in touched]
        return sum(new[0] - old[0] for new, old in costs), sum(new[1] - old[1] for new, old in costs)

    def percent(self, work: float) -> float:
        return 100 * work / max(self.total, 1)

    def percent_of_time(self, time: float) -> float:
        return 100 * time / max(self.total_time, 1)


class Planner:
    """Chooses an order for each axis that layers with unsafe pairs read: `orders`, `copies`. `gathered`: layers that get a Gather
    in front. `with_u8`: layers that get u8 weights. `unsafe`: layers that stay unsafe. `reasons`: by layer, why no order makes it
    safe."""

    def __init__(self, result: Audit, axes: Axes, max_depth: float, max_noise: float, add_gathers: bool):
        self.result, self.axes, self.names, self.max_noise = result, axes, result.engines, max_noise
        self.add_gathers = add_gathers
        self.has_u8 = self.names == ["onnxruntime"]  # whether every layer without a safe order gets u8 weights
        self.work = Work(axes, result.layers)
        self.budget = max_depth / 100 * self.work.total
        self.readers = _readers(axes, result.layers)
        self.reasons: dict[int, str] = {}
        self.halvings: dict[int, Halving] = {}
        for i, audited in enumerate(result.layers):
            half = halving(audited.layer, axes.scope) if max_noise and self._reads_alone(i) else None
            if half is not None:
                self.halvings[i] = half
        self.means = [self._means_as_stored(i) for i in range(len(result.layers))]
        self.noted: set[int] = set()
        self.fixed: dict[int, float] = {}  # key: a layer; value: the squared change that no order can avoid
        self.orders: dict[Axis, np.ndarray] = {}  # the channel at each place
        self.copies: dict[Axis, np.ndarray] = {}
        self.gathers: dict[int, tuple[int, float] | None] = {}
        consumers: dict[Axis, list[_Consumer]] = {}
        done: dict[tuple, int] = {}
        for i, audited in enumerate(result.layers):
            if self._pairings(i) != {"none"}:
                for root, consumer in self._join(i, audited, done):
                    consumers.setdefault(root, []).append(consumer)
        ordered = {consumer.layer for found in consumers.values() for consumer in found}
        self.alone = {i for i, audited in enumerate(result.layers)
                      if i not in ordered and audited.fails(self.names) and self.means[i].noise > max_noise}
        self._choose({root: self._candidates(root, found) for root, found in consumers.items()}, consumers)

    # ----- what an axis's order makes safe ----------------------------------------------------------------------------

    def _reads_alone(self, i: int) -> bool:
        """Whether the layer's weights can change without changing the weights of another layer."""
        keys = [None if one.layer.weights_node is None else weights_key(one.layer, self.axes.scope) for one in self.result.layers]
        return keys.count(keys[i]) == 1

    def _means_as_stored(self, i: int) -> Means:
        audited = self.result.layers[i]
        if not audited.fails(self.names):
            return Means()
        pairings = self._pairings(i)
        change = squares(audited.layer, shortened(audited.layer, pairings))
        if i in self.halvings:
            change = np.minimum(change, self.halvings[i].cost)
        noise = float(change.sum()) / audited.layer.weights.size
        u8 = self.work.u8_time(i) if "onnxruntime" in self.names and audited.fails(["onnxruntime"]) else None
        return Means(max(audited.engines[name].failing_pairs for name in self.names), noise=noise,
                     u8_weights=None if u8 is None else self.work.percent_of_time(u8))

    def _pairings(self, i: int) -> set[str]:
        return self.result.layers[i].pairings(self.names)

    def _join(self, i: int, audited: AuditedLayer, done: dict) -> "list[tuple[Axis, _Consumer]]":
        layer = audited.layer
        odd = ""
        is_tapped = layer.is_convolution and math.prod(layer.weights.shape[1:-1]) > 1
        if layer.is_convolution and layer.weights.shape[-1] % 2 and (
                layer.groups > 1 or (is_tapped and self._pairings(i) - {"none"} != {"within_tap"})):
            where = " in each group" if layer.groups > 1 else ""
            odd = f"pairs between kernel positions, as the number of channels is odd: {layer.weights.shape[-1]}{where}"
            if layer.operator == "DepthwiseConv":
                odd = "pairs of kernel positions, which no order of channels changes; --max-noise X shortens weights"
            if layer.groups > 1 or not (self.budget or self.max_noise):
                self.reasons[i] = odd
                return []
        reader = self.readers.get(i)
        if reader is None:
            self.reasons[i] = (f"it is in {layer.within}" if layer.graph_node is None else
                               "weights or activations whose axes are not known")
            return []
        rows = channels_of(layer)
        offset, direction = 0, 0
        if layer.op_type == "DynamicQuantizeLSTM":
            number = done[(reader.node, reader.part)] = done.get((reader.node, reader.part), -1) + 1
            direction = len(rows) * number if reader.part else 0
        segments = resolved(reader.dim)
        parts: list[tuple[Axis, _Consumer]] = []
        high = layer.a_range[1] if layer.a_type == "u8" else largest_activation(layer)
        for k, segment in enumerate(segments):
            size = len(rows) if reader.part else segment_size(segment) or 0
            part = rows[offset:offset + size]
            reason = self._obstacle(segment, offset, size, k + 1 == len(segments))
            if odd and (reason or len(segments) > 1 or segment[0].axis.root().has_fixed_size and not self.max_noise):
                self.reasons[i] = odd
                return []
            if reason:
                change = _changes(part, high, np.arange(len(part) // 2 * 2).reshape(-1, 2))[0].sum()
                if offset % 2 or len(segments) == 1 or change:
                    self.reasons[i] = reason
                    self.fixed[i] = self.fixed.get(i, 0) + (math.inf if offset % 2 or len(segments) == 1 else float(change))
                    if self.has_u8 and self.fixed[i] > self.max_noise * layer.weights.size:
                        return []  # the layer gets u8 weights, so it does not constrain other axes
            else:
                root = segment[0].axis.root()
                share = size / len(rows)
                if reader.part:  # an LSTM's recurrent weights: the channels of this direction
                    whole = np.zeros((root.size, part.shape[1]), np.int8)
                    whole[direction:direction + size] = part
                    part = whole
                half = self.halvings[i].cost if i in self.halvings and layer.groups == len(segments) == 1 else None
                parts.append((root, _Consumer(i, part, high, share, bool(odd), half)))
            offset += size
        return parts

    @staticmethod
    def _obstacle(segment: list, offset: int, size: int, is_last: bool) -> str:
        """The reason why an axis cannot order this part of a layer's depths; "" if it can."""
        if len(segment) != 1 or not segment[0].is_whole:
            free = [factor for factor in segment if factor.stride == 1 and not factor.axis.is_frozen]
            held = next((factor.axis.root().reason for factor in segment if factor.axis.is_frozen), "")
            return "pairs within a channel that was flattened" if free else held or "its input channels are not one axis"
        root = segment[0].axis.root()
        if root.reason:
            return root.reason
        if offset % 2 or (size % 2 and not is_last):
            return "a concatenation of odd numbers of channels"
        block = root.block or root.size
        if block % 2 and block != root.size:
            return f"blocks of {block} channels"
        return ""

    def _allowed(self, consumer: _Consumer) -> float:
        """The squared change that a layer's noise leaves to these rows."""
        allowed = self.max_noise * self.result.layers[consumer.layer].layer.weights.size - self.fixed.get(consumer.layer, 0)
        return max(allowed, 0) * consumer.share

    def _judged(self, root: Axis, consumers: list[_Consumer], source: np.ndarray, copies: "np.ndarray | None" = None,
                fillers: "np.ndarray | None" = None) -> _Candidate:
        """A candidate, with the layers that it leaves unsafe and its noise."""
        none = np.zeros(len(source), bool)
        copies, fillers = (none if part is None else part for part in (copies, fillers))
        found = _Candidate(source, copies, fillers)
        pairs = np.arange(len(source) // 2 * 2).reshape(-1, 2)
        is_noisy = {}
        for consumer in consumers:
            i = consumer.layer
            if consumer.needs_even and len(source) % 2:
                layer = replace(self.result.layers[i].layer, weights=self.result.layers[i].layer.weights[..., source])
                by_column = squares(layer, shortened(layer, self._pairings(i)))
                count = int(np.count_nonzero(by_column))
            else:
                matrix = _neighbours(consumer.matrix, source, copies, fillers)
                _, by_column, count = _changes(matrix, consumer.high, pairs)
            change = float(consumer.by_output(by_column).sum())
            found.changes[i] = found.changes.get(i, 0) + change
            found.pairs[i] = found.pairs.get(i, 0) + count
            is_noisy[i] = is_noisy.get(i, False) or change > self._allowed(consumer)
        found.left = {i for i, change in found.changes.items() if change > 0 and is_noisy[i]}
        found.noise = sum(change / self.result.layers[i].layer.weights.size for i, change in found.changes.items()
                          if i not in found.left)
        return found

    def _candidates(self, root: Axis, consumers: list[_Consumer]) -> list[_Candidate]:
        stored = self._judged(root, consumers, np.arange(root.size))
        if not any(stored.changes.values()):
            for i in sorted({c.layer for c in consumers}):
                self._note(i, root, [stored, stored])
            return [stored]
        blocks = root.size // (root.block or root.size)
        largest = max(c.matrix.size for c in consumers)
        found = order_channels([c.matrix for c in consumers], [c.high for c in consumers], blocks=blocks,
                               weights=[c.matrix.size / largest for c in consumers])
        best = self._judged(root, consumers, found.order)
        candidates = [stored, best]
        if self.max_noise and any(best.changes.values()):
            candidates += self._least_changes(root, consumers, blocks)
        if any(best.changes.values()):
            candidates += self._longer(root, consumers)
        for i in sorted({c.layer for c in consumers}):
            self._note(i, root, candidates)
        return candidates

    def _least_changes(self, root: Axis, consumers: list[_Consumer], blocks: int) -> list[_Candidate]:
        """Orders of the least change: for all layers, then without layers that are too noisy and outputs that are halved."""
        found = []
        among = consumers
        for _ in range(_ROUNDS):
            sizes = [self.result.layers[c.layer].layer.weights.size for c in among]
            order = order_channels([c.matrix for c in among], [c.high for c in among], blocks=blocks, least_change=True,
                                   weights=[1 / size for size in sizes]).order
            candidate = self._judged(root, consumers, order)
            found.append(candidate)
            rest = [c.without_halved(_changes(c.matrix, c.high, order[:len(order) // 2 * 2].reshape(-1, 2))[1])
                    for c in among if c.layer not in candidate.left]
            rest = [c for c in rest if c.matrix.size]
            if not rest or sum(c.matrix.size for c in rest) == sum(c.matrix.size for c in among):
                break
            among = rest
        return found

    def _longer(self, root: Axis, consumers: list[_Consumer]) -> list[_Candidate]:
        """Orders with copied channels: for every channel without a safe pair, for these channels of the largest layer alone, and
        only as few as the noise requires."""
        if not self.budget or root.has_fixed_size:
            return []
        candidates, lengths = [], set()
        largest = max(consumers, key=lambda c: self.work.layers[c.layer]).layer
        for among in (consumers, [c for c in consumers if c.layer == largest]):
            sizes = [self.result.layers[c.layer].layer.weights.size for c in among]
            for order in _longer(among, [self._allowed(c) for c in among], sizes):
                for multiple in _MULTIPLES:
                    padded = _padded(order, multiple)
                    if len(padded[0]) > root.size and (id(order[0]), len(padded[0])) not in lengths:
                        lengths.add((id(order[0]), len(padded[0])))
                        candidates.append(self._judged(root, consumers, *padded))
            if len({c.layer for c in consumers}) == 1:
                break
        return candidates

    def _note(self, i: int, root: Axis, candidates: list[_Candidate]) -> None:
        """Notes what the candidates would cost one layer."""
        if not self.result.layers[i].fails(self.names):
            return
        means, size = self.means[i], self.result.layers[i].layer.weights.size
        if i not in self.noted:  # axes of a concatenation add up
            self.noted.add(i)
            means.order_leaves, means.noise = 0, 0.0
        means.order_leaves += candidates[1].pairs[i]
        means.noise += min(c.changes[i] for c in candidates if not c.copies.any()) / size
        long = min((len(c.source) for c in candidates if c.copies.any() and not c.changes[i]), default=None)
        if long:
            means.copied_channels = long - root.size
            means.depth = self.work.percent(self.work.added({root: long})[0])

    # ----- all axes together ------------------------------------------------------------------------------------------

    def _u8_helps(self, i: int) -> bool:
        """Whether u8 weights make a layer safe."""
        return "onnxruntime" in self.names and not self.result.layers[i].fails([n for n in self.names if n != "onnxruntime"])

    def gather(self, i: int) -> "tuple[int, float] | None":
        """The multiply-adds and time that a Gather in front adds to a layer; None if it cannot get one."""
        layer = self.result.layers[i].layer
        if i not in self.gathers:
            self.gathers[i] = None
            if (self.add_gathers and layer.is_convolution and layer.groups == 1 and layer.weights_node is not None
                    and not gather_obstacle(layer, self.axes.scope) and self._reads_alone(i)):
                count = layer.weights.shape[-1]
                time = self.work.gather_time(i, count + -count % 4)  # a lower bound
                if not self._u8_helps(i) or time < self.work.u8_time(i):
                    length = len(own_order(layer, self._pairings(i), self.max_noise)[0])
                    time = self.work.gather_time(i, length)
                    self.gathers[i] = self.work.layers[i] // count * (length - count), time
                self.means[i].gather = self.work.percent_of_time(time)
        return self.gathers[i]

    def price(self, with_u8: Iterable[int]) -> float:
        """What the plan adds to the time of the model's products, in percent. `with_u8`: the layers that get u8 weights."""
        time = self.copies_time + sum(self.work.u8_time(i) for i in with_u8)
        time += sum(found[1] for found in (self.gather(i) for i in self.gathered) if found is not None)
        return self.work.percent_of_time(time)

    def _rest(self, chosen: "dict[Axis, _Candidate]", budget: float) -> "tuple[list[int], float, set[int]]":
        """For layers that candidates leave unsafe: layers that stay unsafe, the time that Gathers and u8 weights add, and layers
        that get a Gather."""
        left = self.alone.union(*(candidate.left for candidate in chosen.values()))
        unsafe, time, gathered = [], 0.0, set()
        for i in sorted(left, key=lambda i: (self._u8_helps(i), -self.work.layers[i])):
            gather, u8 = self.gather(i), self.work.u8_time(i) if self._u8_helps(i) else math.inf
            if gather is not None and gather[0] <= budget and gather[1] < u8:
                budget -= gather[0]
                time += gather[1]
                gathered.add(i)
            elif u8 < math.inf:
                time += u8
            else:
                unsafe.append(i)
        return unsafe, time, gathered

    def _key(self, chosen: "dict[Axis, _Candidate]") -> "tuple | None":
        """The cost of one candidate for each axis; the smallest is the best. None if they exceed the budget together."""
        lengths = {root: len(candidate.source) for root, candidate in chosen.items() if candidate.copies.any()}
        added, longer = self.work.added(lengths)
        if added > self.budget:
            return None
        unsafe, time, _ = self._rest(chosen, self.budget - added)
        return (sum(self.work.layers[i] for i in unsafe), time + longer, sum(candidate.noise for candidate in chosen.values()),
                sum(not candidate.is_stored for candidate in chosen.values()))

    def _choose(self, candidates: "dict[Axis, list[_Candidate]]", consumers: "dict[Axis, list[_Consumer]]") -> None:
        """Starts with the stored orders and lets each axis choose in turn: in the first turns the candidate that gains most for
        the multiply-adds that it adds, in the last turns the best candidate within the remaining budget."""
        chosen = {root: found[0] for root, found in candidates.items()}

        def added(candidate: _Candidate, root: Axis) -> int:
            return self.work.added({root: len(candidate.source)})[0] if candidate.copies.any() else 0

        def choices(root: Axis, is_last: bool) -> list[tuple]:
            """The candidates that are better than the axis's present one, the best first."""
            now, found = self._key(chosen), []
            for k, candidate in enumerate(candidates[root]):
                key = self._key({**chosen, root: candidate})
                if key is not None and key < now:
                    more = 1 if is_last else max(added(candidate, root) - added(chosen[root], root), 1)
                    found.append((tuple((after - before) / more for before, after in zip(now, key)), k))
            return sorted(found)

        for turn in range(2 * _ROUNDS):
            is_last = turn >= _ROUNDS
            first = {root: found[0] for root in candidates for found in [choices(root, is_last)] if found}
            for root in sorted(first, key=first.__getitem__):
                for _, k in choices(root, is_last)[:1]:
                    chosen[root] = candidates[root][k]
            if not first and is_last:
                break
        lengths = {root: len(c.source) for root, c in chosen.items() if c.copies.any()}
        self.added, self.copies_time = self.work.added(lengths)
        self.unsafe, _, self.gathered = self._rest(chosen, self.budget - self.added)
        left = self.alone.union(*(candidate.left for candidate in chosen.values()))
        self.with_u8 = left - self.gathered - set(self.unsafe)
        self.fillers = {root: c.fillers for root, c in chosen.items() if c.fillers.any()}
        for root, candidate in chosen.items():
            for i in candidate.left:
                is_odd = any(c.needs_even for c in consumers[root] if c.layer == i)
                self.reasons.setdefault(i, "pairs between kernel positions, as the number of channels is odd"
                                        if is_odd else "every order leaves unsafe pairs")
            if candidate.is_stored:
                continue
            self.orders[root] = candidate.source
            if candidate.copies.any():
                self.copies[root] = candidate.copies
        self._choose_copied()

    def _choose_copied(self) -> None:
        """Lets fillers copy the channel with the fewest unsafe pairs in the layers that make it."""
        unsafe = {root: np.zeros(root.size, np.int64) for root in self.fillers}
        for i, audited in enumerate(self.result.layers if unsafe else ()):
            layer = audited.layer
            if layer.graph_node is None or layer.op_type == "DynamicQuantizeLSTM":
                continue
            dims = self.axes.dims.get(layer.graph_node.output[0])
            segments = resolved(dims[1 if layer.is_convolution else -1]) if dims else []
            counts, offset = None, 0
            for segment in segments:
                root = segment[0].axis.root() if len(segment) == 1 and segment[0].is_whole else None
                if root in unsafe:
                    counts = unsafe_by_output(self._ordered(i), self._pairings(i)) if counts is None else counts
                    found = counts[offset:offset + root.size]
                    unsafe[root][:len(found)] += found
                offset += segment_size(segment) or 0
        for root, fillers in self.fillers.items():
            source = self.orders[root]
            placed = source[~self.copies[root]]
            source[fillers] = placed[unsafe[root][placed].argmin()]

    def _ordered(self, i: int) -> QuantizedLayer:
        """A layer with its weights in the new order of its input axis, if it has exactly one."""
        layer = self.result.layers[i].layer
        segments = resolved(self.readers[i].dim) if i in self.readers else []
        root = segments[0][0].axis.root() if len(segments) == 1 and len(segments[0]) == 1 and segments[0][0].is_whole else None
        if root not in self.orders or layer.groups > 1:
            return layer
        source = self.orders[root]
        return replace(layer, weights=moved(layer, source, self.copies.get(root, np.zeros(len(source), bool))))


def _readers(axes: Axes, layers: list[AuditedLayer]) -> "dict[int, Reader]":
    """The Readers of the layers, by the layers' numbers."""
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


def worst(audited: AuditedLayer, names: Iterable[str]) -> tuple[int, int]:
    """The pairs that can saturate in the engine that has the most, and all its pairs."""
    found = max((audited.engines[name] for name in names), key=lambda c: c.failing_pairs)
    return found.failing_pairs, found.pairs


def plan_of(result: Audit, axes: Axes, max_depth: float, max_noise: float, add_gathers: bool) -> Planner:
    """The plan that leaves the fewest layers unsafe: with noise, unless the lossless plan leaves fewer."""
    plan = Planner(result, axes, max_depth, max_noise, add_gathers)
    if max_noise and plan.unsafe:
        lossless = Planner(result, axes, max_depth, 0.0, add_gathers)
        if len(lossless.unsafe) < len(plan.unsafe):
            lossless.means = plan.means
            return lossless
    return plan
