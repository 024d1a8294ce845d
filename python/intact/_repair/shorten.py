"""Shortened weights: the smallest change of a layer's weights after which no pair can saturate.

Two weights of one sign are a safe pair if their sum is within a limit. Both weights of an unsafe pair lose
half of the excess: of all changes that remove the excess, this one has the least sum of squares. The cost of
a change is the sum of its squares, in steps of the stored weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterable

import numpy as np

from .._audit.audit import slices
from .._formats.model import QuantizedLayer
from .._graph.nodes import attributes
from .._graph.operators import row_of
from .._graph.scope import Scope
from .order import limits


def largest_activation(layer: QuantizedLayer) -> int:
    """The largest activation that the instruction sees. s8 activations are shifted by 128."""
    return layer.a_range[1] + (128 if layer.a_type == "s8" else 0)


def centered(weights: np.ndarray) -> np.ndarray:
    """Weights as the instruction sees them: s8."""
    return weights if weights.dtype == np.int8 else (weights.astype(np.int16) - 128).astype(np.int8)


def change_of(one: np.ndarray, other: np.ndarray, high: int) -> np.ndarray:
    """For each pair of weights, the sum of squares of the least change that makes the pair safe."""
    excess = _excess(one, other, high).astype(np.int32)
    return (excess * excess + excess % 2) // 2


def _excess(one: np.ndarray, other: np.ndarray, high: int) -> np.ndarray:
    most, least = limits(high)
    # weights of two signs have no excess, because each limit is 128 or more
    sums = np.add(one, other, dtype=np.int16)
    return np.maximum(np.maximum(sums - most, -least - sums), 0)


def _places(layer: QuantizedLayer, pairs: str) -> np.ndarray:
    """The positions of each pair's weights in the flat weights: an array (pairs, 2). `pairs`: a pairing, see
    slices()."""
    weights = layer.weights
    numbers = np.arange(1, weights.size + 1, dtype=np.int32 if weights.size < 1 << 31 else np.int64).reshape(
        weights.shape
    )
    found = []
    for matrix in slices(replace(layer, weights=numbers), pairs):
        even = matrix[: len(matrix) // 2 * 2]
        found.append(np.stack([even[::2].reshape(-1), even[1::2].reshape(-1)], axis=1))
    places = np.concatenate(found)
    return places[(places > 0).all(axis=1)] - 1  # 0: a depth that slices() adds


def _chain(excess: "list[int]") -> "list[int]":
    """The changes of a chain of weights, with the least sum of squares, by dynamic programming. `excess[i]`:
    what weights i and i + 1 must lose together."""
    most = max(excess)
    change = np.arange(most + 1, dtype=np.int64)
    cost = change * change
    chosen = []
    for over in excess:
        # The best change of the previous weight among all that are at least `over` - change.
        best = np.minimum.accumulate(cost[::-1])[::-1]
        at = most - np.maximum.accumulate(np.where(cost[::-1] == best[::-1], np.arange(most + 1), 0))[::-1]
        needed = np.maximum(over - change, 0)
        chosen.append(at[needed])
        cost = change * change + best[needed]
    found = [int(cost.argmin())]
    for at in reversed(chosen):
        found.append(int(at[found[-1]]))
    return found[::-1]


def shortened(layer: QuantizedLayer, pairings: Iterable[str]) -> np.ndarray:
    """The layer's weights, changed so that no pair of any pairing can saturate. The sum of squared changes is
    the least, except with "kernel_column" among other pairings."""
    if (
        "kernel_column" in pairings and len({*pairings} - {"none"}) > 1
    ):  # its pairs form no chains with others
        layer = replace(layer, weights=shortened(layer, ["kernel_column"]))
        pairings = {*pairings} - {"kernel_column"}
    stored = centered(layer.weights).reshape(-1)
    high = max(largest_activation(layer), 1)
    kinds = sorted(set(pairings) - {"none"})
    change = np.zeros(stored.size, np.int16)
    pairs = np.concatenate([_places(layer, kind) for kind in kinds] or [np.zeros((0, 2), np.int32)])
    excess = _excess(stored[pairs[:, 0]], stored[pairs[:, 1]], high)
    pairs, excess = pairs[excess > 0], excess[excess > 0]
    if len(kinds) > 1:  # pairs of two engines may be equal or share a weight
        pairs, first = np.unique(pairs, axis=0, return_index=True)
        excess = excess[first]
        chain = np.cumsum(np.append(True, pairs[1:, 0] != pairs[:-1, 1])[: len(pairs)])
        is_alone = np.bincount(chain, minlength=1)[chain] == 1
        for group in np.split(pairs[~is_alone], np.flatnonzero(np.diff(chain[~is_alone])) + 1):
            over = _excess(stored[group[:, 0]], stored[group[:, 1]], high).tolist()
            change[[*group[:, 0], *group[-1:, 1]]] = _chain(over) if over else []
        pairs, excess = pairs[is_alone], excess[is_alone]
    heavier = np.abs(stored[pairs[:, 0]].astype(np.int16)) >= np.abs(stored[pairs[:, 1]].astype(np.int16))
    change[pairs[:, 0]] = excess // 2 + (excess % 2) * heavier
    change[pairs[:, 1]] = excess // 2 + (excess % 2) * ~heavier
    return (
        (layer.weights.reshape(-1) - np.sign(stored) * change)
        .astype(layer.weights.dtype)
        .reshape(layer.weights.shape)
    )


def unsafe_by_output(layer: QuantizedLayer, pairings: Iterable[str]) -> np.ndarray:
    """For each output, how many of its pairs can saturate, summed over `pairings`."""
    stored = centered(layer.weights).reshape(-1)
    outputs = layer.weights.shape[0 if layer.is_convolution else -1]
    counts = np.zeros(outputs, np.int64)
    for kind in sorted(set(pairings) - {"none"}):
        pairs = _places(layer, kind)
        places = pairs[
            _excess(stored[pairs[:, 0]], stored[pairs[:, 1]], max(largest_activation(layer), 1)) > 0, 0
        ]
        counts += np.bincount(
            places // (stored.size // outputs) if layer.is_convolution else places % outputs,
            minlength=outputs,
        )
    return counts


def squares(layer: QuantizedLayer, weights: np.ndarray, halved: "np.ndarray | None" = None) -> np.ndarray:
    """For each output, the sum of squared differences between other weights and the layer's weights, in
    stored steps. `halved`: outputs for which a step of `weights` is twice as large."""
    values = centered(weights).astype(np.int32)
    if halved is not None:
        values *= _along_outputs(layer, 1 + halved)
    values = np.square(values - centered(layer.weights))
    return values.sum(axis=tuple(range(1, values.ndim)) if layer.is_convolution else 0, dtype=np.int64)


# ----- outputs with 7 bits --------------------------------------------------------------------------------------------------


def has_zero_in_the_middle(layer: QuantizedLayer, scope: Scope) -> bool:
    """Whether the weights' zero point is a constant in the middle of their type: 128 for u8, 0 for s8."""
    inputs = layer.weights_node.input
    name = inputs[layer.point_input] if layer.point_input < len(inputs) else ""
    point = scope.constant(name) if name else np.zeros((), layer.weights.dtype)
    return (
        point is not None
        and name not in scope.overridable
        and bool((point == (128 if layer.weights.dtype == np.uint8 else 0)).all())
    )


def weights_key(layer: QuantizedLayer, scope: Scope) -> Any:
    """A key of the constant that holds a layer's weights. Layers with equal keys can only change their
    weights together. The key is an operator and its input, or an Identity's output: translated modules share
    constants through an Identity."""
    name = layer.weights_node.input[layer.weights_input]
    return name if _is_shared_by_identity(name, scope) else (id(layer.weights_node), layer.weights_input)


def _is_shared_by_identity(name: str, scope: Scope) -> bool:
    maker = scope.producer(name)
    return maker is not None and maker.op_type == "Identity" and len(scope.consumers[name]) > 1


def _along_outputs(layer: QuantizedLayer, values: np.ndarray) -> np.ndarray:
    return values.reshape([-1] + [1] * (layer.weights.ndim - 1)) if layer.is_convolution else values


@dataclass
class Halving:
    """Halving the weights of outputs. Each output must have its own scale. `cost`: for each output, the
    squared change in squared steps; infinite if the output cannot be halved. Rounding an odd bias moves a sum
    by one and counts as one step.

    `constants`: scales and biases that must change too: (operator, input, array, the index of each output in
    array, factor)."""

    cost: np.ndarray
    constants: list[tuple[Any, int, np.ndarray, np.ndarray, float]]


def halving(layer: QuantizedLayer, scope: Scope) -> "Halving | None":
    """None if the outputs share one scale, or if a scale, zero point or bias is no constant."""
    node, weights_node = layer.graph_node, layer.weights_node
    if node is None or weights_node is None or layer.view is None or layer.scale_input is None:
        return None
    outputs = layer.weights.shape[0 if layer.is_convolution else -1]
    stored = scope.constant(weights_node.input[layer.weights_input])
    numbers = layer.view(np.arange(stored.size).reshape(stored.shape))
    numbers = numbers.reshape(outputs, -1) if layer.is_convolution else numbers.T
    at, bias_at = layer.scale_input, 2 if layer.is_qdq else row_of(layer).inputs.int_bias
    names = [weights_node.input[i] if i < len(weights_node.input) else "" for i in (at, layer.point_input)]
    scale = scope.constant(names[0]) if names[0] else None
    point = scope.constant(names[1]) if names[1] else np.zeros((), layer.weights.dtype)
    if (
        scale is None
        or point is None
        or scale.dtype not in (np.float32, np.float64)
        or {*names} & scope.overridable
        or (_is_shared_by_identity(names[0], scope))
    ):
        return None
    if layer.is_qdq:
        values = attributes(weights_node)
        axis = values.get("axis", 1)
        if values.get("block_size") or scale.ndim != 1 or not -stored.ndim <= axis < stored.ndim:
            return None
        place = np.unravel_index(numbers, stored.shape)[axis]
        if scale.size != stored.shape[axis] or (place != place[:, :1]).any():
            return None
        place = place[:, 0]
    else:
        place = np.arange(outputs)
        if layer.op_type == "DynamicQuantizeLSTM":
            place = place + numbers[0, 0] // stored[0].size * outputs
    if scale.size <= place.max() or scale.size % outputs or len(set(place.tolist())) < outputs:
        return None
    if point.size not in (1, scale.size):
        return None
    zero = np.broadcast_to(point.reshape(-1), scale.size)[place]
    can = (zero == (128 if layer.weights.dtype == np.uint8 else 0)) & np.isfinite(
        2 * scale.reshape(-1)[place]
    )
    flat = np.moveaxis(centered(layer.weights), 0 if layer.is_convolution else -1, 0).reshape(outputs, -1)
    cost = np.count_nonzero(flat % 2, axis=1).astype(float)
    constants = [(weights_node, at, scale, place, 2.0)]
    bias = node.input[bias_at] if bias_at is not None and len(node.input) > bias_at else ""
    if bias:
        maker = scope.producer(bias) if layer.is_qdq else None
        reader, where = (
            (maker, 0) if maker is not None and maker.op_type == "DequantizeLinear" else (node, bias_at)
        )
        array = scope.constant(reader.input[where])
        if array is None or array.size != outputs or reader.input[where] in scope.overridable:
            return None
        if array.dtype == np.int32:
            constants.append((reader, where, array, np.arange(outputs), 0.5))
            cost += array.reshape(-1) % 2
        elif reader is not node or array.dtype != np.float32:
            return None
        if reader is not node:  # the bias must belong to this operator alone and have a scale for each output
            steps = scope.constant(reader.input[1])
            if (
                steps is None
                or steps.size != outputs
                or reader.input[1] in scope.overridable
                or (len(scope.consumers.get(bias, ())) != 1)
            ):
                return None
            constants.append((reader, 1, steps, np.arange(outputs), 2.0))
    return Halving(np.where(can, cost, np.inf), constants)


def halved(layer: QuantizedLayer, outputs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """`weights`, but `outputs` have half the layer's weights, rounded. Then no pair of these outputs can
    saturate."""
    half = np.rint(centered(layer.weights) / 2)
    half = (half + (128 if layer.weights.dtype == np.uint8 else 0)).astype(weights.dtype)
    return np.where(_along_outputs(layer, outputs), half, weights)
