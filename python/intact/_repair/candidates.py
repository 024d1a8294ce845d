"""What orders, copied channels and shorter weights can do for the layers of a model, and at which cost."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace

import numpy as np

from .._audit.audit import Audit, AuditedLayer
from .._deadline import begin_unit
from .._graph.axes import Axes
from .._graph.dims import Axis, Reader, resolved, segment_size
from .cost import Work
from .order import order_channels
from .places import Consumer, changes_of, channels_of, filled, neighbours, with_copies
from .shorten import Halving, halving, largest_activation, shortened, squares, weights_key

_MULTIPLES = (2, 4, 8, 16)  # numbers of channels are rounded up to multiples of these
# rounds of the matching of the least change, each without the layers that were too noisy in the round before
_ROUNDS = 4


@dataclass
class Means:
    """The cost of each way to make a layer safe; None: it does not apply or was not examined. `order_leaves`:
    unsafe pairs in the order with the fewest unsafe layers. `copied_channels`: how many the layer's input
    needs. `depth`: what copied channels add to the model's multiply-adds, in percent. `noise`: of shortened
    weights. `u8_weights`, `gather`: what they add to the time of the model's products, in percent."""

    order_leaves: int | None = None
    copied_channels: int | None = None
    depth: float | None = None
    noise: float | None = None
    u8_weights: float | None = None
    gather: float | None = None


@dataclass
class Candidate:
    """An order of an axis. `source`: the channel at each place. `copies`: places of copied channels.
    `fillers`: copies that carry no weights, so that they may copy any channel. `changes`: by layer, the
    squared change that makes all its pairs safe. `pairs`: by layer, how many pairs need a change."""

    source: np.ndarray
    copies: np.ndarray
    fillers: np.ndarray
    changes: dict[int, float] = field(default_factory=dict)
    pairs: dict[int, int] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)  # layers that stay unsafe because shortening is too noisy
    noise: float = 0.0  # noise of the layers whose weights are shortened

    @functools.cached_property
    def is_stored(self) -> bool:
        return not self.copies.any() and np.array_equal(self.source, np.arange(len(self.source)))


class Candidates:
    """What the axes can do for the layers that read them. `consumers`, `candidates`: of each axis. `means`:
    by layer, what each way costs. `alone`: unsafe layers that no axis orders. `reasons`: by layer, why no
    order makes it safe."""

    def __init__(self, result: Audit, axes: Axes, max_depth: float, max_noise: float):
        self.result, self.axes, self.names, self.max_noise = result, axes, result.engines, max_noise
        # whether every layer without a safe order gets u8 weights
        self.has_u8 = self.names == ["onnxruntime"]
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
        consumers: dict[Axis, list[Consumer]] = {}
        done: dict[tuple, int] = {}
        for i, audited in enumerate(result.layers):
            if self._pairings(i) != {"none"}:
                for root, consumer in self._join(i, audited, done):
                    consumers.setdefault(root, []).append(consumer)
        ordered = {consumer.layer for found in consumers.values() for consumer in found}
        self.alone = {
            i
            for i, audited in enumerate(result.layers)
            if i not in ordered and audited.fails(self.names) and self.means[i].noise > max_noise
        }
        self.consumers = consumers
        self.candidates = {root: self._candidates(root, found) for root, found in consumers.items()}

    # ----- what an axis's order makes safe ----------------------------------------------------------------------------

    def _reads_alone(self, i: int) -> bool:
        """Whether the layer's weights can change without changing the weights of another layer."""
        keys = [
            None if one.layer.weights_node is None else weights_key(one.layer, self.axes.scope)
            for one in self.result.layers
        ]
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
        return Means(
            max(audited.engines[name].failing_pairs for name in self.names),
            noise=noise,
            u8_weights=None if u8 is None else self.work.percent_of_time(u8),
        )

    def _pairings(self, i: int) -> set[str]:
        return self.result.layers[i].pairings(self.names)

    def _join(self, i: int, audited: AuditedLayer, done: dict) -> "list[tuple[Axis, Consumer]]":
        layer = audited.layer
        odd = ""
        is_tapped = layer.is_convolution and math.prod(layer.weights.shape[1:-1]) > 1
        if (
            layer.is_convolution
            and layer.weights.shape[-1] % 2
            and (layer.groups > 1 or (is_tapped and self._pairings(i) - {"none"} != {"within_tap"}))
        ):
            where = " in each group" if layer.groups > 1 else ""
            odd = f"pairs between kernel positions, as the number of channels is odd: {layer.weights.shape[-1]}{where}"
            if layer.operator == "DepthwiseConv":
                odd = "pairs of kernel positions, which no order of channels changes; --max-noise X shortens weights"
            if layer.groups > 1 or not (self.budget or self.max_noise):
                self.reasons[i] = odd
                return []
        reader = self.readers.get(i)
        if reader is None:
            self.reasons[i] = (
                f"it is in {layer.within}"
                if layer.graph_node is None
                else "weights or activations whose axes are not known"
            )
            return []
        rows = channels_of(layer)
        offset, direction = 0, 0
        if layer.op_type == "DynamicQuantizeLSTM":
            number = done[(reader.node, reader.part)] = done.get((reader.node, reader.part), -1) + 1
            direction = len(rows) * number if reader.part else 0
        segments = resolved(reader.dim)
        parts: list[tuple[Axis, Consumer]] = []
        high = layer.a_range[1] if layer.a_type == "u8" else largest_activation(layer)
        for k, segment in enumerate(segments):
            size = len(rows) if reader.part else segment_size(segment) or 0
            part = rows[offset : offset + size]
            reason = self._obstacle(segment, offset, size, k + 1 == len(segments))
            if odd and (
                reason or len(segments) > 1 or segment[0].axis.root().has_fixed_size and not self.max_noise
            ):
                self.reasons[i] = odd
                return []
            if reason:
                change = changes_of(part, high, np.arange(len(part) // 2 * 2).reshape(-1, 2))[0].sum()
                if offset % 2 or len(segments) == 1 or change:
                    self.reasons[i] = reason
                    self.fixed[i] = self.fixed.get(i, 0) + (
                        math.inf if offset % 2 or len(segments) == 1 else float(change)
                    )
                    if self.has_u8 and self.fixed[i] > self.max_noise * layer.weights.size:
                        return []  # the layer gets u8 weights, so it does not constrain other axes
            else:
                root = segment[0].axis.root()
                share = size / len(rows)
                if reader.part:  # an LSTM's recurrent weights: the channels of this direction
                    whole = np.zeros((root.size, part.shape[1]), np.int8)
                    whole[direction : direction + size] = part
                    part = whole
                half = (
                    self.halvings[i].cost
                    if i in self.halvings and layer.groups == len(segments) == 1
                    else None
                )
                parts.append((root, Consumer(i, part, high, share, bool(odd), half)))
            offset += size
        return parts

    @staticmethod
    def _obstacle(segment: list, offset: int, size: int, is_last: bool) -> str:
        """The reason why an axis cannot order this part of a layer's depths; "" if it can."""
        if len(segment) != 1 or not segment[0].is_whole:
            free = [factor for factor in segment if factor.stride == 1 and not factor.axis.is_frozen]
            held = next((factor.axis.root().reason for factor in segment if factor.axis.is_frozen), "")
            if free:
                return "pairs within a channel that was flattened"
            return held or "its input channels are not one axis"
        root = segment[0].axis.root()
        if root.reason:
            return root.reason
        if offset % 2 or (size % 2 and not is_last):
            return "a concatenation of odd numbers of channels"
        block = root.block or root.size
        if block % 2 and block != root.size:
            return f"blocks of {block} channels"
        return ""

    def _allowed(self, consumer: Consumer) -> float:
        """The squared change that a layer's noise leaves to these rows."""
        allowed = self.max_noise * self.result.layers[consumer.layer].layer.weights.size - self.fixed.get(
            consumer.layer, 0
        )
        return max(allowed, 0) * consumer.share

    def _judged(
        self,
        root: Axis,
        consumers: list[Consumer],
        source: np.ndarray,
        copies: "np.ndarray | None" = None,
        fillers: "np.ndarray | None" = None,
    ) -> Candidate:
        """A candidate, with the layers that it leaves unsafe and its noise."""
        none = np.zeros(len(source), bool)
        copies, fillers = (none if part is None else part for part in (copies, fillers))
        found = Candidate(source, copies, fillers)
        pairs = np.arange(len(source) // 2 * 2).reshape(-1, 2)
        is_noisy = {}
        for consumer in consumers:
            i = consumer.layer
            if consumer.needs_even and len(source) % 2:
                layer = replace(
                    self.result.layers[i].layer, weights=self.result.layers[i].layer.weights[..., source]
                )
                by_column = squares(layer, shortened(layer, self._pairings(i)))
                count = int(np.count_nonzero(by_column))
            else:
                matrix = neighbours(consumer.matrix, source, copies, fillers)
                _, by_column, count = changes_of(matrix, consumer.high, pairs)
            change = float(consumer.by_output(by_column).sum())
            found.changes[i] = found.changes.get(i, 0) + change
            found.pairs[i] = found.pairs.get(i, 0) + count
            is_noisy[i] = is_noisy.get(i, False) or change > self._allowed(consumer)
        found.left = {i for i, change in found.changes.items() if change > 0 and is_noisy[i]}
        found.noise = sum(
            change / self.result.layers[i].layer.weights.size
            for i, change in found.changes.items()
            if i not in found.left
        )
        return found

    def _candidates(self, root: Axis, consumers: list[Consumer]) -> list[Candidate]:
        stored = self._judged(root, consumers, np.arange(root.size))
        if not any(stored.changes.values()):
            for i in sorted({c.layer for c in consumers}):
                self._note(i, root, [stored, stored])
            return [stored]
        begin_unit("the repair")
        blocks = root.size // (root.block or root.size)
        largest = max(c.matrix.size for c in consumers)
        found = order_channels(
            [c.matrix for c in consumers],
            [c.high for c in consumers],
            blocks=blocks,
            weights=[c.matrix.size / largest for c in consumers],
        )
        best = self._judged(root, consumers, found.order)
        candidates = [stored, best]
        if self.max_noise and any(best.changes.values()):
            candidates += self._least_changes(root, consumers, blocks)
        if any(best.changes.values()):
            candidates += self._candidates_with_copies(root, consumers)
        for i in sorted({c.layer for c in consumers}):
            self._note(i, root, candidates)
        return candidates

    def _least_changes(self, root: Axis, consumers: list[Consumer], blocks: int) -> list[Candidate]:
        """Orders of the least change: for all layers, then without layers that are too noisy and outputs that
        are halved."""
        found = []
        among = consumers
        for _ in range(_ROUNDS):
            sizes = [self.result.layers[c.layer].layer.weights.size for c in among]
            order = order_channels(
                [c.matrix for c in among],
                [c.high for c in among],
                blocks=blocks,
                least_change=True,
                weights=[1 / size for size in sizes],
            ).order
            candidate = self._judged(root, consumers, order)
            found.append(candidate)
            rest = [
                c.without_halved(changes_of(c.matrix, c.high, order[: len(order) // 2 * 2].reshape(-1, 2))[1])
                for c in among
                if c.layer not in candidate.left
            ]
            rest = [c for c in rest if c.matrix.size]
            if not rest or sum(c.matrix.size for c in rest) == sum(c.matrix.size for c in among):
                break
            among = rest
        return found

    def _candidates_with_copies(self, root: Axis, consumers: list[Consumer]) -> list[Candidate]:
        """Orders with copied channels: for every channel without a safe pair, for these channels of the
        largest layer alone, and only as few as the noise requires."""
        if not self.budget or root.has_fixed_size:
            return []
        candidates, lengths = [], set()
        largest = max(consumers, key=lambda c: self.work.layers[c.layer]).layer
        for among in (consumers, [c for c in consumers if c.layer == largest]):
            sizes = [self.result.layers[c.layer].layer.weights.size for c in among]
            for order in with_copies(among, [self._allowed(c) for c in among], sizes):
                for multiple in _MULTIPLES:
                    padded = filled(order, multiple)
                    if len(padded[0]) > root.size and (id(order[0]), len(padded[0])) not in lengths:
                        lengths.add((id(order[0]), len(padded[0])))
                        candidates.append(self._judged(root, consumers, *padded))
            if len({c.layer for c in consumers}) == 1:
                break
        return candidates

    def _note(self, i: int, root: Axis, candidates: list[Candidate]) -> None:
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
