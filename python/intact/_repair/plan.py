"""Chooses orders of channels and copied channels that make the layers of a model safe at the least cost.

Layers that read one axis share its order. Each axis has several candidates: an order in which the fewest
layers have unsafe pairs, orders that need the least change of weights to remove all unsafe pairs, and orders
with copied channels. If a candidate leaves a layer unsafe, the layer's weights are shortened if the noise is
small enough, or stored as u8, or stay unsafe."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Iterable

import numpy as np

from .._audit.audit import Audit, AuditedLayer
from .._formats.model import QuantizedLayer
from .._graph.axes import Axes
from .._graph.dims import Axis, resolved, segment_size
from .._graph.fusion import has_s8_activations
from .._graph.nodes import attributes
from .._graph.scope import Scope
from .candidates import Candidate, Candidates
from .places import Consumer, moved, own_order
from .shorten import has_zero_in_the_middle, unsafe_by_output

MOST_DEPTH = 100.0  # percent of the model's multiply-adds that copied channels may add
_TURNS = 4  # turns in which the axes choose, with and without regard to the multiply-adds that they add


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
        if (
            maker is None
            or maker.op_type != "DequantizeLinear"
            or scope.producer(node.input[1]) is not weights_node
            or len(scope.consumers[node.input[1]]) > 1
        ):
            return "an operator between DequantizeLinear and it"
        # ONNX Runtime moves them to u8 only if QuantizeLinear and DequantizeLinear touch
        if has_s8_activations(scope, node):
            return "ONNX Runtime would compute s8 activations behind a Gather in floats"
        if (
            any(scale is None for scale in scales)
            or scales[0].size > 1
            or (scales[1].size > 1 and attributes(weights_node).get("axis", 1))
        ):
            return "scales for each input channel"
    return ""


class Planner(Candidates):
    """Chooses an order for each axis that layers with unsafe pairs read: `orders`, `copies`. `gathered`:
    layers that get a Gather in front. `with_u8`: layers that get u8 weights. `unsafe`: layers that stay
    unsafe."""

    def __init__(self, result: Audit, axes: Axes, max_depth: float, max_noise: float, add_gathers: bool):
        super().__init__(result, axes, max_depth, max_noise)
        self.add_gathers = add_gathers
        self.orders: dict[Axis, np.ndarray] = {}  # the channel at each place
        self.copies: dict[Axis, np.ndarray] = {}
        self.gathers: dict[int, tuple[int, float] | None] = {}
        self._choose(self.candidates, self.consumers)

    def _u8_helps(self, i: int) -> bool:
        """Whether u8 weights make a layer safe."""
        return "onnxruntime" in self.names and not self.result.layers[i].fails(
            [n for n in self.names if n != "onnxruntime"]
        )

    def gather(self, i: int) -> "tuple[int, float] | None":
        """The multiply-adds and time that a Gather in front adds to a layer; None if it cannot get one."""
        layer = self.result.layers[i].layer
        if i not in self.gathers:
            self.gathers[i] = None
            if (
                self.add_gathers
                and layer.is_convolution
                and layer.groups == 1
                and layer.weights_node is not None
                and not gather_obstacle(layer, self.axes.scope)
                and self._reads_alone(i)
            ):
                count = layer.weights.shape[-1]
                time = self.work.gather_time(i, count + -count % 4)  # a lower bound
                if not self._u8_helps(i) or time < self.work.u8_time(i):
                    length = len(own_order(layer, self._pairings(i), self.max_noise)[0])
                    time = self.work.gather_time(i, length)
                    self.gathers[i] = self.work.layers[i] // count * (length - count), time
                self.means[i].gather = self.work.percent_of_time(time)
        return self.gathers[i]

    def price(self, with_u8: Iterable[int]) -> float:
        """What the plan adds to the time of the model's products, in percent. `with_u8`: the layers that get
        u8 weights."""
        time = self.copies_time + sum(self.work.u8_time(i) for i in with_u8)
        time += sum(found[1] for found in (self.gather(i) for i in self.gathered) if found is not None)
        return self.work.percent_of_time(time)

    def _rest(self, chosen: "dict[Axis, Candidate]", budget: float) -> "tuple[list[int], float, set[int]]":
        """For layers that candidates leave unsafe: layers that stay unsafe, the time that Gathers and u8
        weights add, and layers that get a Gather."""
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

    def _key(self, chosen: "dict[Axis, Candidate]") -> "tuple | None":
        """The cost of one candidate for each axis; the smallest is the best. None if they exceed the budget
        together."""
        lengths = {
            root: len(candidate.source) for root, candidate in chosen.items() if candidate.copies.any()
        }
        added, longer = self.work.added(lengths)
        if added > self.budget:
            return None
        unsafe, time, _ = self._rest(chosen, self.budget - added)
        return (
            sum(self.work.layers[i] for i in unsafe),
            time + longer,
            sum(candidate.noise for candidate in chosen.values()),
            sum(not candidate.is_stored for candidate in chosen.values()),
        )

    def _choose(
        self, candidates: "dict[Axis, list[Candidate]]", consumers: "dict[Axis, list[Consumer]]"
    ) -> None:
        """Starts with the stored orders and lets each axis choose in turn: in the first turns the candidate
        that gains most for the multiply-adds that it adds, in the last turns the best candidate within the
        remaining budget."""
        chosen = {root: found[0] for root, found in candidates.items()}

        def added(candidate: Candidate, root: Axis) -> int:
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

        for turn in range(2 * _TURNS):
            is_last = turn >= _TURNS
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
                self.reasons.setdefault(
                    i,
                    "pairs between kernel positions, as the number of channels is odd"
                    if is_odd
                    else "every order leaves unsafe pairs",
                )
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
                    counts = (
                        unsafe_by_output(self._ordered(i), self._pairings(i)) if counts is None else counts
                    )
                    found = counts[offset : offset + root.size]
                    unsafe[root][: len(found)] += found
                offset += segment_size(segment) or 0
        for root, fillers in self.fillers.items():
            source = self.orders[root]
            placed = source[~self.copies[root]]
            source[fillers] = placed[unsafe[root][placed].argmin()]

    def _ordered(self, i: int) -> QuantizedLayer:
        """A layer with its weights in the new order of its input axis, if it has exactly one."""
        layer = self.result.layers[i].layer
        segments = resolved(self.readers[i].dim) if i in self.readers else []
        root = (
            segments[0][0].axis.root()
            if len(segments) == 1 and len(segments[0]) == 1 and segments[0][0].is_whole
            else None
        )
        if root not in self.orders or layer.groups > 1:
            return layer
        source = self.orders[root]
        return replace(
            layer, weights=moved(layer, source, self.copies.get(root, np.zeros(len(source), bool)))
        )


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
