"""Which orders of channels, and which zero channels, make the layers of a model safe at the least cost.

Layers that read one axis share its order. For each axis there are several candidates: an order in which the fewest layers have
unsafe pairs, orders in which the change of weights that removes all unsafe pairs is least, and orders with zero channels. What a
candidate leaves unsafe is shortened, if the noise is small enough, or gets u8 weights, or stays unsafe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Iterable

import numpy as np

from ._audit import Audit, AuditedLayer
from ._axes import Axes, Axis, Reader, factors, resolved, segment_size, size_of
from ._model import QuantizedLayer
from ._order import order_channels
from ._shorten import Halving, centered, change_of, halving, largest_activation, shortened, squares, unsafe_by_output, weights_key

# Costs are in multiply-adds of s8 weights: the time of a product is taken to grow with them.
U8_WEIGHTS = 0.16  # of a product's time: ONNX Runtime on AVX2 without VNNI (T5 encoder, Zen 3, docs/peers.md; with AMX: 1 to 2)
# Of a convolution's time: a Gather in front (ONNX Runtime 1.32 on a Xeon with AMX, one thread, 2026-11-26: 0.93 to 1.12 times
# the product's time for 16 to 64 channels). Where it makes the number of channels a multiple of 4 that was none before, the
# convolution takes no more time, zero channels included (0.4 to 1.05 times, 1 to 33 channels). AVX2 was not measured.
GATHER = 0.1
MOST_DEPTH = 12.0  # percent of the model's multiply-adds that zero channels may add
_ROUNDS = 4  # in which layers that are too noisy are left out of the matching of the least change
_PIECE = 1 << 22  # weights that are looked at together


@dataclass
class Means:
    """What each means would cost a layer; None: it does not apply or was not looked at. `order_leaves`: unsafe pairs in the order
    with the fewest unsafe layers. `zero_channels`: that its input needs, and `depth`: how many percent of the model's
    multiply-adds they add.
    `noise`: of shortened weights. `u8_weights`, `gather`: the time that u8 weights take, and that a Gather in front takes, in
    percent of the model's multiply-adds."""

    order_leaves: int | None = None
    zero_channels: int | None = None
    depth: float | None = None
    noise: float | None = None
    u8_weights: float | None = None
    gather: float | None = None


@dataclass
class _Consumer:
    """Rows of a layer's weights whose channels an axis orders. `share`: of the layer's rows, these."""

    layer: int
    matrix: np.ndarray  # channels×columns
    high: int
    share: float = 1.0
    needs_even: bool = False  # whether an odd number of channels makes pairs across taps
    halving: "np.ndarray | None" = None  # for each output, the squared change that halving its weights makes

    def by_output(self, changes: np.ndarray) -> np.ndarray:
        """Sums of columns of the matrix over the taps of each output, or halving if that is less."""
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
    """`source`: where the channel of each place comes from. `zeros`: places of zero channels: copies of others, with zeros as
    weights. `changes`: by layer, the squared change that makes all its pairs safe; `pairs`: how many pairs that are."""

    source: np.ndarray
    zeros: np.ndarray
    changes: dict[int, float] = field(default_factory=dict)
    pairs: dict[int, int] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)  # layers that are not shortened
    key: tuple = ()  # the smallest is the best

    @property
    def is_stored(self) -> bool:
        return not self.zeros.any() and np.array_equal(self.source, np.arange(len(self.source)))


def channels_of(layer: QuantizedLayer) -> np.ndarray:
    """A layer's weights with a row for each input channel; those of groups one after the other."""
    weights = centered(layer.weights)
    if not layer.is_convolution:
        return weights
    parts = np.split(weights, layer.groups)
    return np.concatenate([part.reshape(-1, part.shape[-1]).T for part in parts])


def _changes(matrix: np.ndarray, high: int, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """The squared changes that make pairs of channels safe: for each pair, for each column; and how many pairs of weights
    change."""
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


def _pairs(source: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """Pairs of channels that are not zero."""
    pairs = np.where(zeros, -1, source)[:len(source) // 2 * 2].reshape(-1, 2)
    return pairs[(pairs >= 0).all(axis=1)]


def _sources_with_zeros(consumers: list[_Consumer], allowed: list[float], sizes: list[int]) -> list[np.ndarray]:
    """Orders with zero channels, -1, beside all channels that no safe pair is left for; and beside as few as the squared changes
    allow that the consumers may have."""
    matrices, highs = [c.matrix for c in consumers], [c.high for c in consumers]
    found = order_channels(matrices, highs, allow_zero_channels=True)
    single = np.array(found.single, np.int64)
    pairs = found.order[~np.isin(found.order, single)]

    def apart(channels: np.ndarray) -> np.ndarray:
        return np.stack([channels, np.full(len(channels), -1)], axis=1).reshape(-1)

    sources = [np.concatenate([pairs, apart(single)])]
    if any(allowed) and len(single):
        rows = order_channels([matrix[single] for matrix in matrices], highs, least_change=True,
                              weights=[1 / size for size in sizes]).order
        even = len(rows) // 2 * 2
        together = single[rows[:even]].reshape(-1, 2)
        changes = np.stack([_changes(c.matrix, c.high, together)[0] for c in consumers]).astype(float)
        limits = np.array(allowed)[:, None]
        order = (changes / np.maximum(limits, 1e-9)).max(axis=0).argsort(kind="stable")
        count = int(np.count_nonzero((changes[:, order].cumsum(axis=1) <= limits).all(axis=0)))
        alone = np.concatenate([together[order[count:]].reshape(-1), single[rows[even:]]])
        sources.append(np.concatenate([pairs, together[order[:count]].reshape(-1), apart(alone)]))
    return sources


def _padded(source: np.ndarray, multiple: int) -> tuple[np.ndarray, np.ndarray]:
    """The order with zero channels up to a multiple, and the places of all zero channels. They copy another channel, which leaves
    ranges of activations as they are: the first one, until an order is chosen."""
    source = np.concatenate([source, np.full(-len(source) % multiple, -1)])
    return np.where(source < 0, source[0], source), source < 0


def own_order(layer: QuantizedLayer, pairings: set[str], max_noise: float) -> "tuple[np.ndarray, np.ndarray]":
    """The shortest order of a convolution's input channels, with zero channels where it needs some, that leaves the layer with no
    more noise than this: the source of each place, and whether its channel is zero."""
    consumer = _Consumer(0, channels_of(layer), max(largest_activation(layer), 1))
    count, allowed = layer.weights.shape[-1], max_noise * layer.weights.size
    orders = [order_channels([consumer.matrix], consumer.high)]
    if max_noise:
        orders.append(order_channels([consumer.matrix], consumer.high, least_change=True))
    found = [_padded(order.order, 1 if count % 4 == 0 else 4) for order in orders]
    found += [_padded(source, 4) for source in _sources_with_zeros([consumer], [allowed], [layer.weights.size])]
    found = [(source, zeros) for source, zeros in found
             if _change_of(replace(layer, weights=moved(layer, source, zeros)), pairings) <= allowed]
    return min(found, key=lambda pair: len(pair[0]))


def _change_of(layer: QuantizedLayer, pairings: set[str]) -> int:
    return int(squares(layer, shortened(layer, pairings)).sum())


def moved(layer: QuantizedLayer, source: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """A convolution's weights in an order of its input channels."""
    weights = layer.weights[..., source]
    weights[..., zeros] = 128 if weights.dtype == np.uint8 else 0
    return weights


class Work:
    """The multiply-adds of products with constant weights. Sizes that the file does not state count as 1; where the sizes of a
    convolution's output are not known at all, weights are counted instead."""

    def __init__(self, axes: Axes, layers: list[AuditedLayer]):
        self.axes = axes
        places = [axes.places.get(id(audited.layer.graph_node), -1) for audited in layers]
        positions = {place: self._positions(place) for place in {*places, *(place for place, _ in axes.products)} - {-1}}
        self.unit = "weights" if None in positions.values() else "multiply-adds"
        if self.unit == "weights":
            positions = dict.fromkeys(positions, 1)
        self.layers = [audited.layer.weights.size * positions.get(place, 1) for audited, place in zip(layers, places)]
        self.products = [(dims, positions[place]) for place, dims in axes.products]
        self.of_axis: dict[Axis, list[int]] = {}
        for k, (dims, _) in enumerate(self.products):
            for root in {factor.axis.root() for dim in dims for factor in factors(dim)}:
                self.of_axis.setdefault(root, []).append(k)
        known = {place for place, _ in axes.products}
        self.total = sum(self._count(k, {}) for k in range(len(self.products)))
        self.total += sum(work for work, place in zip(self.layers, places) if place not in known)

    def _positions(self, place: int) -> int | None:
        node = self.axes.nodes[place]
        dims = self.axes.dims.get(node.output[0])
        if node.op_type in ("Conv", "QLinearConv", "ConvInteger"):
            sizes = None if dims is None else [size_of(dim) for dim in dims[2:]]
            if sizes is None or not any(sizes):
                return None
            return math.prod(size or 1 for size in [size_of(dims[0]), *sizes])
        if node.op_type == "DynamicQuantizeLSTM":
            dims = (self.axes.dims.get(node.input[0]) or [])[:3]
        return math.prod(size_of(dim) or 1 for dim in (dims or [])[:-1])

    def _count(self, k: int, lengths: "dict[Axis, int]") -> int:
        dims, positions = self.products[k]

        def size(segment: list) -> int:
            root = segment[0].axis.root() if len(segment) == 1 and segment[0].is_whole else None
            return lengths[root] if root in lengths else segment_size(segment) or 1

        return positions * math.prod(sum(size(segment) for segment in resolved(dim)) for dim in dims)

    def added(self, lengths: "dict[Axis, int]") -> int:
        """How many are added where axes get these lengths."""
        touched = {k for root in lengths for k in self.of_axis.get(root, ())}
        return sum(self._count(k, lengths) - self._count(k, {}) for k in touched)

    def percent(self, work: float) -> float:
        return 100 * work / max(self.total, 1)


class Planner:
    """Chooses an order for each axis that layers with unsafe pairs read: `orders`, `zeros`. `reasons`: by layer, why no order
    makes it safe."""

    def __init__(self, result: Audit, axes: Axes, max_depth: float, max_noise: float):
        self.result, self.axes, self.names, self.max_noise = result, axes, result.engines, max_noise
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
        self.fixed: dict[int, float] = {}  # squared changes that no order of an axis can avoid
        self.orders: dict[Axis, np.ndarray] = {}  # where the channel of each place comes from
        self.zeros: dict[Axis, np.ndarray] = {}
        consumers: dict[Axis, list[_Consumer]] = {}
        done: dict[tuple, int] = {}
        for i, audited in enumerate(result.layers):
            if any(audited.engines[name].pairing != "none" for name in self.names):
                for root, consumer in self._join(i, audited, done):
                    consumers.setdefault(root, []).append(consumer)
        self._choose({root: self._candidates(root, found) for root, found in consumers.items()}, consumers)

    # ----- what an axis's order makes safe ----------------------------------------------------------------------------

    def _reads_alone(self, i: int) -> bool:
        """Whether the layer's weights can change without those of another."""
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
        u8 = U8_WEIGHTS * self.work.layers[i] if "onnxruntime" in self.names and audited.fails(["onnxruntime"]) else None
        return Means(max(audited.engines[name].failing_pairs for name in self.names), noise=noise,
                     u8_weights=None if u8 is None else self.work.percent(u8))

    def _pairings(self, i: int) -> set[str]:
        return {self.result.layers[i].engines[name].pairing for name in self.names}

    def _join(self, i: int, audited: AuditedLayer, done: dict) -> "list[tuple[Axis, _Consumer]]":
        layer = audited.layer
        odd = ""
        is_tapped = layer.is_convolution and math.prod(layer.weights.shape[1:-1]) > 1
        if layer.is_convolution and layer.weights.shape[-1] % 2 and (
                layer.groups > 1 or (is_tapped and self._pairings(i) - {"none"} != {"within_tap"})):
            where = " in each group" if layer.groups > 1 else ""
            odd = f"pairs across taps: {layer.weights.shape[-1]} channels{where}"
            if layer.operator == "DepthwiseConv":
                odd = "pairs of taps, which no order moves; --max-noise X shortens weights"
            if layer.groups > 1 or not (self.budget or self.max_noise):
                self.reasons[i] = odd
                return []
        reader = self.readers.get(i)
        if reader is None:
            self.reasons[i] = "an inner graph" if layer.graph_node is None else "weights or activations whose axes are not known"
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
                        return []  # the layer gets u8 weights: it is no constraint on other axes
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

    def _allowed(self, consumer: _Consumer) -> float:
        """The squared change that a layer's noise leaves to these rows."""
        allowed = self.max_noise * self.result.layers[consumer.layer].layer.weights.size - self.fixed.get(consumer.layer, 0)
        return max(allowed, 0) * consumer.share

    def _judged(self, root: Axis, consumers: list[_Consumer], source: np.ndarray, zeros: np.ndarray) -> _Candidate:
        """A candidate with what it leaves and costs."""
        found = _Candidate(source, zeros)
        pairs = _pairs(source, zeros)
        is_noisy = {}
        for consumer in consumers:
            i = consumer.layer
            if consumer.needs_even and len(source) % 2:
                layer = replace(self.result.layers[i].layer, weights=self.result.layers[i].layer.weights[..., source])
                by_column = squares(layer, shortened(layer, self._pairings(i)))
                count = int(np.count_nonzero(by_column))
            else:
                _, by_column, count = _changes(consumer.matrix, consumer.high, pairs)
            change = float(consumer.by_output(by_column).sum())
            found.changes[i] = found.changes.get(i, 0) + change
            found.pairs[i] = found.pairs.get(i, 0) + count
            is_noisy[i] = is_noisy.get(i, False) or change > self._allowed(consumer)
        found.left = {i for i, change in found.changes.items() if change > 0 and is_noisy[i]}
        work = sum(self.work.layers[i] for i in found.left)
        time = self.work.added({root: len(source)}) if zeros.any() else 0
        if "onnxruntime" in self.names:
            time += U8_WEIGHTS * work
        noise = sum(change / self.result.layers[i].layer.weights.size for i, change in found.changes.items()
                    if i not in found.left)
        found.key = (0 if self.has_u8 else work, time, noise, not found.is_stored)
        return found

    def _candidates(self, root: Axis, consumers: list[_Consumer]) -> list[_Candidate]:
        none = np.zeros(root.size, bool)
        stored = self._judged(root, consumers, np.arange(root.size), none)
        if not any(stored.changes.values()):
            for i in sorted({c.layer for c in consumers}):
                self._note(i, root, [stored, stored])
            return [stored]
        blocks = root.size // (root.block or root.size)
        largest = max(c.matrix.size for c in consumers)
        found = order_channels([c.matrix for c in consumers], [c.high for c in consumers], blocks=blocks,
                               weights=[c.matrix.size / largest for c in consumers])
        best = self._judged(root, consumers, found.order, none)
        candidates = [stored, best]
        if self.max_noise and any(best.changes.values()):
            candidates += self._least_changes(root, consumers, blocks)
        if any(best.changes.values()):
            candidates += self._with_zeros(root, consumers)
        for i in sorted({c.layer for c in consumers}):
            self._note(i, root, candidates)
        return candidates

    def _least_changes(self, root: Axis, consumers: list[_Consumer], blocks: int) -> list[_Candidate]:
        """Orders of the least change: of all layers, then without layers that are too noisy and outputs that are halved."""
        found = []
        among = consumers
        for _ in range(_ROUNDS):
            sizes = [self.result.layers[c.layer].layer.weights.size for c in among]
            order = order_channels([c.matrix for c in among], [c.high for c in among], blocks=blocks, least_change=True,
                                   weights=[1 / size for size in sizes]).order
            none = np.zeros(root.size, bool)
            candidate = self._judged(root, consumers, order, none)
            found.append(candidate)
            rest = [c.without_halved(_changes(c.matrix, c.high, _pairs(order, none))[1]) for c in among
                    if c.layer not in candidate.left]
            rest = [c for c in rest if c.matrix.size]
            if not rest or sum(c.matrix.size for c in rest) == sum(c.matrix.size for c in among):
                break
            among = rest
        return found

    def _with_zeros(self, root: Axis, consumers: list[_Consumer]) -> list[_Candidate]:
        """Zero channels beside all channels that no safe pair is left for, and beside as few as the noise allows."""
        if not self.budget or root.has_fixed_size:
            return []
        sizes = [self.result.layers[c.layer].layer.weights.size for c in consumers]
        candidates = []
        for source in _sources_with_zeros(consumers, [self._allowed(c) for c in consumers], sizes):
            source, zeros = _padded(source, math.gcd(root.size, 8) if root.size % 2 == 0 else 2)
            if len(source) > root.size:
                candidates.append(self._judged(root, consumers, source, zeros))
        return candidates

    def _note(self, i: int, root: Axis, candidates: list[_Candidate]) -> None:
        """What the candidates are for one layer."""
        if not self.result.layers[i].fails(self.names):
            return
        means, size = self.means[i], self.result.layers[i].layer.weights.size
        if i not in self.noted:  # axes of a concatenation add up
            self.noted.add(i)
            means.order_leaves, means.noise = 0, 0.0
        means.order_leaves += candidates[1].pairs[i]
        means.noise += min(c.changes[i] for c in candidates if not c.zeros.any()) / size
        long = [c for c in candidates if c.zeros.any() and not c.changes[i]]
        if long:
            means.zero_channels = int(long[0].zeros.sum())
            means.depth = self.work.percent(self.work.added({root: len(long[0].source)}))

    # ----- all axes together ------------------------------------------------------------------------------------------

    def _choose(self, candidates: "dict[Axis, list[_Candidate]]", consumers: "dict[Axis, list[_Consumer]]") -> None:
        """The best candidate of each axis, as far as zero channels fit into the budget."""
        chosen = {root: min(found, key=lambda c: c.key) for root, found in candidates.items()}

        def added() -> int:
            return self.work.added({root: len(c.source) for root, c in chosen.items() if c.zeros.any()})

        while added() > self.budget:
            # Gives up the zero channels that save the least for what they add.
            root, other = min(((root, other) for root, c in chosen.items() for other in candidates[root]
                               if other.zeros.sum() < c.zeros.sum()),
                              key=lambda pair: self._loss(pair[0], chosen[pair[0]], pair[1]))
            chosen[root] = other
        for root, candidate in chosen.items():
            for i in candidate.left:
                is_odd = any(c.needs_even for c in consumers[root] if c.layer == i)
                self.reasons.setdefault(i, "pairs across taps: an odd number of channels" if is_odd else
                                        "no order of its channels makes every pair safe")
            if candidate.is_stored:
                continue
            self.orders[root] = candidate.source
            if candidate.zeros.any():
                self.zeros[root] = candidate.zeros
        self.added = added()
        self._choose_copied()

    def _choose_copied(self) -> None:
        """Zero channels copy the channel for which the layers that make it have the fewest unsafe pairs."""
        unsafe = {root: np.zeros(root.size, np.int64) for root in self.zeros}
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
        for root, zeros in self.zeros.items():
            source = self.orders[root]
            placed = source[~zeros]
            source[zeros] = placed[unsafe[root][placed].argmin()]

    def _ordered(self, i: int) -> QuantizedLayer:
        """A layer with its weights in the order that its one axis has been given."""
        layer = self.result.layers[i].layer
        segments = resolved(self.readers[i].dim) if i in self.readers else []
        root = segments[0][0].axis.root() if len(segments) == 1 and len(segments[0]) == 1 and segments[0][0].is_whole else None
        if root not in self.orders or layer.groups > 1:
            return layer
        source, zeros = self.orders[root], self.zeros.get(root, np.zeros(len(self.orders[root]), bool))
        if layer.is_convolution:
            return replace(layer, weights=moved(layer, source, zeros))
        weights = layer.weights[source]
        weights[zeros] = 128 if weights.dtype == np.uint8 else 0
        return replace(layer, weights=weights)

    def _loss(self, root: Axis, candidate: _Candidate, other: _Candidate) -> tuple:
        saved = max(self.work.added({root: len(candidate.source)})
                    - (self.work.added({root: len(other.source)}) if other.zeros.any() else 0), 1)
        return tuple((after - before) / saved for before, after in zip(candidate.key, other.key))


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


def worst(audited: AuditedLayer, names: Iterable[str]) -> tuple[int, int]:
    """The most pairs that can saturate in an engine, and its pairs."""
    found = max((audited.engines[name] for name in names), key=lambda c: c.failing_pairs)
    return found.failing_pairs, found.pairs
