"""Shortened weights: the smallest change of a layer's weights after which no pair can saturate.

Two weights of one sign are a safe pair if their sum is within a limit. A pair with an excess loses it in halves: of all changes
that remove the excess, this one has the least sum of squares. A change is counted in squared steps of the stored weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable

import numpy as np

from ._audit import slices
from ._model import QuantizedLayer
from ._order import limits


def largest_activation(layer: QuantizedLayer) -> int:
    """The largest activation that the instruction sees; those of s8 are shifted by 128."""
    return layer.a_range[1] + (128 if layer.a_type == "s8" else 0)


def centered(weights: np.ndarray) -> np.ndarray:
    """Weights as the instruction sees them: s8."""
    return weights if weights.dtype == np.int8 else (weights.astype(np.int16) - 128).astype(np.int8)


def change_of(one: np.ndarray, other: np.ndarray, high: int) -> np.ndarray:
    """For each pair of weights the least sum of squared changes that makes it safe."""
    excess = _excess(one, other, high).astype(np.int32)
    return (excess * excess + excess % 2) // 2


def _excess(one: np.ndarray, other: np.ndarray, high: int) -> np.ndarray:
    most, least = limits(high)
    sums = np.add(one, other, dtype=np.int16)  # each limit is 128 or more: weights of two signs have no excess
    return np.maximum(np.maximum(sums - most, -least - sums), 0)


def _places(layer: QuantizedLayer, pairs: str) -> np.ndarray:
    """The pairs of an engine as places in the layer's weights, (pairs, 2), by the audit's own matrices."""
    weights = layer.weights
    numbers = np.arange(1, weights.size + 1, dtype=np.int32 if weights.size < 1 << 31 else np.int64).reshape(weights.shape)
    found = []
    for matrix in slices(replace(layer, weights=numbers), pairs):
        even = matrix[:len(matrix) // 2 * 2]
        found.append(np.stack([even[::2].reshape(-1), even[1::2].reshape(-1)], axis=1))
    places = np.concatenate(found)
    return places[(places > 0).all(axis=1)] - 1  # 0: what fills up a tap with an odd number of channels


def _chain(excess: "list[int]") -> "list[int]":
    """The least changes of weights in a row where each two neighbours have an excess: by dynamic programming."""
    most = max(excess)
    change = np.arange(most + 1, dtype=np.int64)
    cost = change * change
    chosen = []
    for over in excess:
        # The best of all changes of the weight before that are `over` - change or more.
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
    """The layer's weights with the least sum of squared changes for which no pair of these engines can saturate."""
    stored = centered(layer.weights).reshape(-1)
    high = max(largest_activation(layer), 1)
    kinds = sorted(set(pairings) - {"none"})
    change = np.zeros(stored.size, np.int16)
    pairs = np.concatenate([_places(layer, kind) for kind in kinds] or [np.zeros((0, 2), np.int32)])
    excess = _excess(stored[pairs[:, 0]], stored[pairs[:, 1]], high)
    pairs, excess = pairs[excess > 0], excess[excess > 0]
    if len(kinds) > 1:  # two engines' pairs may share a weight, or be one
        pairs, first = np.unique(pairs, axis=0, return_index=True)
        excess = excess[first]
        chain = np.cumsum(np.append(True, pairs[1:, 0] != pairs[:-1, 1])[:len(pairs)])
        is_alone = np.bincount(chain, minlength=1)[chain] == 1
        for group in np.split(pairs[~is_alone], np.flatnonzero(np.diff(chain[~is_alone])) + 1):
            over = _excess(stored[group[:, 0]], stored[group[:, 1]], high).tolist()
            change[[*group[:, 0], *group[-1:, 1]]] = _chain(over) if over else []
        pairs, excess = pairs[is_alone], excess[is_alone]
    heavier = np.abs(stored[pairs[:, 0]].astype(np.int16)) >= np.abs(stored[pairs[:, 1]].astype(np.int16))
    change[pairs[:, 0]] = excess // 2 + (excess % 2) * heavier
    change[pairs[:, 1]] = excess // 2 + (excess % 2) * ~heavier
    return (layer.weights.reshape(-1) - np.sign(stored) * change).astype(layer.weights.dtype).reshape(layer.weights.shape)


def squares(layer: QuantizedLayer, weights: np.ndarray) -> np.ndarray:
    """For each output, the sum of squares of what other weights differ by from the layer's, in stored steps."""
    values = np.square(weights.astype(np.int32) - layer.weights)
    return values.sum(axis=tuple(range(1, values.ndim)) if layer.is_convolution else 0, dtype=np.int64)
