"""Orders of channels with copies: which channels share a copy, and how a copy carries a part of its channel's
weights.

A copied channel has zeros as weights, or it carries a part of its channel's weights: x * w = x * u + x * v.
If no two of three channels are a safe pair, the three mostly fit into four places, with a copy of one of
them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from .._formats.model import QuantizedLayer
from .order import limits, order_channels, remembered
from .shorten import centered, change_of, largest_activation, shortened, squares

_MOST_TRIED = 48  # channels among which a group is searched, and groups of four that are tried for a channel
_TRIES = 20
_PIECE = 1 << 22  # weights that are processed at once


@dataclass
class Consumer:
    """The rows of a layer's weights that an axis orders. `share`: the share of the layer's rows that the axis
    orders."""

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

    def without_halved(self, changes: np.ndarray) -> "Consumer":
        """The consumer without the outputs that are halved."""
        if self.halving is None:
            return self
        taps = len(changes) // len(self.halving)
        kept = np.repeat(changes.reshape(len(self.halving), -1).sum(axis=1) <= self.halving, taps)
        return replace(self, matrix=self.matrix[:, kept], halving=self.halving[kept[::taps]])


def channels_of(layer: QuantizedLayer) -> np.ndarray:
    """A layer's weights with a row for each input channel, group after group."""
    weights = centered(layer.weights)
    if not layer.is_convolution:
        return weights
    parts = np.split(weights, layer.groups)
    return np.concatenate([part.reshape(-1, part.shape[-1]).T for part in parts])


def changes_of(matrix: np.ndarray, high: int, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """The squared changes that make pairs of channels safe: summed for each pair, and for each column. Also
    how many pairs of weights change."""
    by_pair, by_column = np.zeros(len(pairs), np.int64), np.zeros(matrix.shape[1], np.int64)
    count = 0
    step = max(1, _PIECE // max(1, matrix.shape[1]))
    for begin in range(0, len(pairs), step):
        part = pairs[begin : begin + step]
        change = change_of(matrix[part[:, 0]], matrix[part[:, 1]], high)
        by_pair[begin : begin + step] = change.sum(axis=1)
        by_column += change.sum(axis=0)
        count += int(np.count_nonzero(change))
    return by_pair, by_column, count


def _within(weights: np.ndarray, mates: np.ndarray) -> np.ndarray:
    """The weights, clipped so that they make safe pairs with `mates`, for every activation range."""
    most, least = limits(255)
    return np.clip(weights, np.where(mates < 0, -least - mates, -128), np.where(mates > 0, most - mates, 127))


def spread(
    rows: np.ndarray, source: np.ndarray, copies: np.ndarray, fillers: "np.ndarray | None" = None
) -> np.ndarray:
    """s8 weights, a row for each channel, in an order. A copy carries the excess that makes its channel's
    pair unsafe: both weights add up to the stored weight. `fillers`: copies that carry nothing."""
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


def neighbours(matrix: np.ndarray, source: np.ndarray, copies: np.ndarray, fillers: np.ndarray) -> np.ndarray:
    """A consumer's weights in an order. Pairs are rows (0, 1), (2, 3), ...; an odd last row is dropped."""
    return spread(matrix, source, copies, fillers)[: len(source) // 2 * 2]


def _sums_fit(one: np.ndarray, other: np.ndarray, more: np.ndarray) -> np.ndarray:
    """For each channel of `more`, whether it and two others fit into four places: in no column are all three
    weights of one sign, with a sum beyond the limit of two pairs."""
    most, least = limits(255)
    sums = one + other
    high = np.flatnonzero((one > 0) & (other > 0) & (sums > 2 * most - 127))
    low = np.flatnonzero((one < 0) & (other < 0) & (sums < 128 - 2 * least))
    return (more[:, high] <= 2 * most - sums[high]).all(axis=1) & (
        more[:, low] >= -2 * least - sums[low]
    ).all(axis=1)


@remembered
def _in_threes(rows: np.ndarray) -> list[list[int]]:
    """Disjoint groups of three channels that fit into four places. Channels with the fewest possible groups
    choose first. Takes the best of several random tries."""
    count = len(rows)
    by_channel: list[list[tuple[int, int]]] = [[] for _ in rows]
    width = count if count <= _MOST_TRIED else max(_MOST_TRIED**2 // count, 16)
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
            pairs = (
                [pair for pair in by_channel[one] if is_free[pair[0]] and is_free[pair[1]]]
                if is_free[one]
                else []
            )
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
    """Disjoint groups of four channels that fit into six places. The copies of the first and the third
    channel are a pair."""
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


def _grouped(consumers: list[Consumer], channels: np.ndarray) -> "tuple[np.ndarray, np.ndarray]":
    """An order, with copies, of channels that have no safe pair, and the places of the copies. Three channels
    share a copy, four channels share two copies, or a channel has its own copy. -1: a copy of any channel."""
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
    copies = (
        np.arange(len(places))
        != np.unique(places, return_index=True)[1][np.unique(places, return_inverse=True)[1]]
    )
    apart = np.stack([np.array(alone, np.int64), np.full(len(alone), -1)], axis=1).reshape(-1)
    found = np.concatenate([channels[places], np.where(apart < 0, -1, channels[apart])])
    return found, np.concatenate([copies, apart < 0])


def with_copies(
    consumers: list[Consumer], allowed: list[float], sizes: list[int]
) -> "list[tuple[np.ndarray, np.ndarray]]":
    """Orders with copies, and the places of the copies; -1: a copy of any channel. In the first order every
    channel without a safe pair has a copy, or shares a copy. The second has only the copies that the
    consumers' allowed squared changes require."""
    matrices, highs = [c.matrix for c in consumers], [c.high for c in consumers]
    found = order_channels(matrices, highs, allow_zero_channels=True)
    single = np.array(found.single, np.int64)
    pairs = found.order[~np.isin(found.order, single)]

    def made(pairs: list[np.ndarray], apart: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        source, copies = _grouped(consumers, apart)
        return np.concatenate([*pairs, source]), np.concatenate(
            [np.zeros(sum(map(len, pairs)), bool), copies]
        )

    orders = [made([pairs], single)]
    if any(allowed) and len(single):
        rows = order_channels(
            [matrix[single] for matrix in matrices],
            highs,
            least_change=True,
            weights=[1 / size for size in sizes],
        ).order
        even = len(rows) // 2 * 2
        together = single[rows[:even]].reshape(-1, 2)
        changes = np.stack([changes_of(c.matrix, c.high, together)[0] for c in consumers]).astype(float)
        limits_of = np.array(allowed)[:, None]
        order = (changes / np.maximum(limits_of, 1e-9)).max(axis=0).argsort(kind="stable")
        count = int(np.count_nonzero((changes[:, order].cumsum(axis=1) <= limits_of).all(axis=0)))
        apart = np.concatenate([together[order[count:]].reshape(-1), single[rows[even:]]])
        orders.append(made([pairs, together[order[:count]].reshape(-1)], apart))
    return orders


def filled(
    order: "tuple[np.ndarray, np.ndarray]", multiple: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The order, filled up with copies to a multiple; the places of all copies; and the places of copies of
    any channel. These copy the first channel until the order is chosen. Copies do not change ranges of
    activations."""
    source, copies = (
        np.concatenate([part, np.full(-len(part) % multiple, more)]) for part, more in zip(order, (-1, True))
    )
    return np.where(source < 0, source[0], source), copies, source < 0


def own_order(layer: QuantizedLayer, pairings: set[str], max_noise: float) -> "tuple[np.ndarray, np.ndarray]":
    """The shortest order of a convolution's input channels, with copies if needed, that leaves at most
    `max_noise` in the layer: the channel at each place, and whether it is a copy."""
    consumer = Consumer(0, channels_of(layer), max(largest_activation(layer), 1))
    allowed = max_noise * layer.weights.size
    orders = [order_channels([consumer.matrix], consumer.high)]
    if max_noise:
        orders.append(order_channels([consumer.matrix], consumer.high, least_change=True))
    found = [(order.order, np.zeros(len(order.order), bool)) for order in orders]
    found += with_copies([consumer], [allowed], [layer.weights.size])
    padded = [filled(order, 1 if not order[1].any() and len(order[0]) % 4 == 0 else 4)[:2] for order in found]
    apart = np.stack([np.arange(len(consumer.matrix)), np.full(len(consumer.matrix), -1)], axis=1).reshape(-1)
    padded.append(filled((apart, apart < 0), 4)[:2])  # safe in every pairing
    found = [
        (source, copies)
        for source, copies in padded
        if _change_of(replace(layer, weights=moved(layer, source, copies)), pairings) <= allowed
    ]
    return min(found, key=lambda one: len(one[0]))


def _change_of(layer: QuantizedLayer, pairings: set[str]) -> int:
    return int(squares(layer, shortened(layer, pairings)).sum())


def moved(layer: QuantizedLayer, source: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """A layer's weights in an order of its input channels."""
    axis = layer.weights.ndim - 1 if layer.is_convolution else 0
    rows = np.moveaxis(centered(layer.weights), axis, 0)
    placed = spread(rows.reshape(len(rows), -1), source, copies).reshape(len(source), *rows.shape[1:])
    placed = np.moveaxis(placed, 0, axis)
    return placed if layer.weights.dtype == np.int8 else (placed.astype(np.int16) + 128).astype(np.uint8)
