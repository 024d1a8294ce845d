"""Orders of channels: proven by the library's certificates, and compared with an exhaustive search where that is possible."""

import functools
import itertools

import intact
import numpy as np
import pytest
from intact._repair import order as _order
from intact._repair.order import order_channels

HAS_LIBRARY = (_order.PACKAGE / "channel_order.so").exists()
needs_library = pytest.mark.skipif(not HAS_LIBRARY, reason="built without LEMON, so without channel_order.so")


def laplace(channels, columns, seed=0, spread=0.0):
    """Weights like those of layers: each column fills int8. `spread`: how different the channels are."""
    rng = np.random.default_rng(seed)
    weights = rng.laplace(size=(channels, columns)) * np.exp(spread * rng.normal(size=(channels, 1)))
    return np.clip(np.rint(weights / np.abs(weights).max(axis=0) * 127), -128, 127).astype(np.int8)


def failing(matrix, high=255):
    return intact.Gemm(np.ascontiguousarray(matrix), a_range=(0, high)).certificate().failing_pairs


def with_zeros(matrix, found):
    """The matrix in the new order, with a row of zeros after each single channel."""
    rows = []
    for channel in found.order.tolist():
        rows.append(matrix[channel])
        if channel in found.single:
            rows.append(np.zeros_like(matrix[channel]))
    return np.stack(rows)


def check(matrices, found, highs=255, blocks=1):
    """Checks that the order is a permutation, and that certificates agree with `unsafe`."""
    channels = len(matrices[0])
    length = channels // blocks
    assert found.order.dtype == np.int64
    for begin in range(0, channels, length):
        assert sorted(found.order[begin : begin + length].tolist()) == list(range(begin, begin + length))
    if blocks == 1 and found.single:
        assert found.order[-len(found.single) :].tolist() == found.single
    for i, matrix in enumerate(matrices):
        high = highs if isinstance(highs, int) else highs[i]
        rows = with_zeros(matrix, found)
        pairs = {(int(found.order[p]), int(found.order[p + 1])) for p in range(0, channels - 1, 2)}
        unsafe = {(a, b) for a, b, where in found.unsafe if i in where}
        assert unsafe <= pairs or found.single
        assert (failing(rows, high) > 0) == bool(unsafe)
        for place in range(0, len(rows) - 1, 2):
            if not found.single:
                pair = (int(found.order[place]), int(found.order[place + 1]))
                assert (failing(rows[place : place + 2], high) > 0) == (pair in unsafe)


def of_graph(safe, rng):
    """A matrix with the edges of a graph as its safe pairs: a column for each pair that is no edge."""
    channels = len(safe)
    others = [(i, j) for i in range(channels) for j in range(i) if not safe[i, j]]
    matrix = np.zeros((channels, max(1, len(others))), np.int8)
    for column, pair in enumerate(others):
        matrix[pair, column] = rng.choice([-1, 1]) * rng.integers(65, 128, 2)
    return matrix


def random_graph(channels, rng):
    safe = rng.random((channels, channels)) < rng.choice([0.05, 0.1, 0.2, 0.4, 0.8])
    if rng.random() < 0.3:  # few channels that all others want
        safe[rng.permutation(channels)[channels // 5 + 1 :]] = False
    safe = np.triu(safe, 1)
    return safe | safe.T


def largest(safe, preferred=None):
    """The number of pairs of a maximum matching, by trying all. With `preferred`: the largest number of preferred pairs of a
    perfect matching."""
    channels = len(safe)

    @functools.lru_cache(maxsize=None)
    def of(left):
        if not left:
            return 0
        first = left.bit_length() - 1
        left ^= 1 << first
        best = of(left) if preferred is None else -channels
        for other in range(first):
            if left >> other & 1 and safe[first, other]:
                best = max(
                    best, of(left ^ 1 << other) + (1 if preferred is None else int(preferred[first, other]))
                )
        return best

    return of((1 << channels) - 1)


@needs_library
@pytest.mark.parametrize("channels", [2, 16, 64, 130])
@pytest.mark.parametrize("seed", range(3))
def test_laplace_weights_get_a_proven_order(channels, seed):
    matrices = [laplace(channels, 12, seed, 0.3), laplace(channels, 7, seed + 100, 0.3)]
    found = order_channels(matrices, allow_zero_channels=True)
    check(matrices, found)
    assert not found.unsafe
    for matrix in matrices:
        assert failing(with_zeros(matrix, found)) == 0
    check(matrices, order_channels(matrices))


@needs_library
def test_an_order_repairs_what_is_unsafe_as_stored():
    matrix = laplace(256, 64, 5)
    found = order_channels([matrix])
    assert failing(matrix) > 0
    assert not found.unsafe and not found.single
    assert failing(matrix[found.order]) == 0


@needs_library
def test_limits_are_those_of_the_certificate():
    """Pairs of weights around the limits, for activations of many ranges."""
    weights = [-128, -127, -65, -64, -63, -1, 0, 1, 63, 64, 65, 126, 127]
    matrix = np.array([*itertools.product(weights, repeat=2)], np.int8).T
    for high in (0, 1, 127, 128, 129, 180, 254, 255):
        plan = intact.Gemm(np.ascontiguousarray(matrix), a_range=(0, high)) if high else None
        expected = {pair.n for pair in plan.failing_pairs()} if plan else set()
        for n in range(matrix.shape[1]):
            column = matrix[:, n : n + 1]
            assert bool(order_channels([column], high).unsafe) == (n in expected), (high, column)
            single = order_channels([column], high, allow_zero_channels=True).single
            assert len(single) == 2 * (n in expected), (high, column)


@needs_library
def test_single_and_multiple_highs():
    rng = np.random.default_rng(1)
    matrices = [rng.integers(-100, 101, (24, 5)).astype(np.int8) for _ in range(3)]
    highs = [255, 200, 140]
    found = order_channels(matrices, highs)
    check(matrices, found, highs)
    assert not order_channels(matrices, 127).unsafe


@needs_library
@pytest.mark.parametrize("seed", range(120))
def test_as_many_pairs_as_an_exhaustive_search_finds(seed):
    rng = np.random.default_rng(seed)
    channels = int(rng.integers(1, 14))
    safe = random_graph(channels, rng)
    matrix = of_graph(safe, rng)
    pairs = largest(safe)
    found = order_channels([matrix], allow_zero_channels=True)
    check([matrix], found)
    alone = channels - 2 * pairs
    assert len(found.single) == (0 if alone == 1 else alone)
    found = order_channels([matrix])
    check([matrix], found)
    assert not found.single and len(found.unsafe) == alone // 2


@needs_library
@pytest.mark.parametrize("seed", range(8))
def test_as_many_pairs_as_networkx_finds(seed):
    networkx = pytest.importorskip("networkx")
    rng = np.random.default_rng(seed)
    channels = int(rng.integers(60, 150))
    safe = random_graph(channels, rng)
    pairs = len(networkx.max_weight_matching(networkx.from_numpy_array(safe), maxcardinality=True))
    found = order_channels([of_graph(safe, rng)], allow_zero_channels=True)
    alone = channels - 2 * pairs
    assert len(found.single) == (0 if alone == 1 else alone)


@needs_library
def test_a_largest_matching_of_a_large_graph_is_known():
    """Channels of one kind fit only channels of the other kind, so the rarer kind decides the number of pairs."""
    rng = np.random.default_rng(3)
    is_rare = np.zeros(700, bool)
    is_rare[rng.permutation(700)[:250]] = True
    matrix = np.where(is_rare, 10, 100).astype(np.int8)[:, None]
    found = order_channels([matrix], allow_zero_channels=True)
    assert len(found.single) == 700 - 2 * 250
    assert failing(with_zeros(matrix, found)) == 0


@needs_library
def test_one_pair_among_thousands_is_found():
    """Two odd groups, in which all channels fit each other, and one pair that joins the groups: an order needs this pair."""
    group = np.arange(202) < 101
    safe = group[:, None] == group
    safe[50, 150] = safe[150, 50] = True
    matrix = of_graph(safe, np.random.default_rng(0))
    found = order_channels([matrix], allow_zero_channels=True)
    assert not found.single and failing(matrix[found.order]) == 0


@needs_library
def test_a_safe_order_is_kept():
    rng = np.random.default_rng(0)
    for channels in (1, 2, 7, 64):
        matrix = rng.integers(-64, 65, (channels, 9)).astype(np.int8)
        found = order_channels([matrix])
        assert np.array_equal(found.order, np.arange(channels)) and not found.unsafe and not found.single
        safe = rng.random((channels, channels)) < 0.3
        stored = np.arange(channels // 2 * 2)
        safe[stored, stored ^ 1] = True
        assert np.array_equal(order_channels([of_graph(safe & safe.T, rng)]).order, np.arange(channels))
    heavy = np.full((6, 4), 100, np.int8)  # each second channel is heavy
    heavy[1::2] = 1
    assert np.array_equal(order_channels([heavy]).order, np.arange(6))


@needs_library
def test_few_channels_move():
    matrix = np.zeros((64, 1), np.int8)
    matrix[[20, 21]] = 100  # the one pair that clamps
    found = order_channels([matrix])
    assert not found.unsafe
    assert np.count_nonzero(found.order != np.arange(64)) <= 3


@needs_library
@pytest.mark.parametrize("channels", [1, 3, 15, 33])
def test_an_odd_channel_is_alone(channels):
    matrix = np.full((channels, 2), 127, np.int8)
    matrix[: channels // 2] = 1  # one heavy channel too many: it is safe alone
    found = order_channels([matrix])
    check([matrix], found)
    assert not found.unsafe and not found.single
    assert matrix[found.order[-1], 0] == 127
    found = order_channels([np.full((channels, 1), 127, np.int8)], allow_zero_channels=True)
    assert len(found.single) == (0 if channels == 1 else channels)


@needs_library
def test_pairs_stay_in_their_blocks():
    matrix = np.full((16, 3), 1, np.int8)
    matrix[:8] = 100  # half of the channels are heavy, all in the first of two blocks
    assert not order_channels([matrix]).unsafe
    found = order_channels([matrix], blocks=2)
    check([matrix], found, blocks=2)
    assert len(found.unsafe) == 4 and max(max(a, b) for a, b, _ in found.unsafe) < 8
    found = order_channels([matrix], blocks=2, allow_zero_channels=True)
    assert sorted(found.single) == list(range(8)) and sorted(found.order[:8].tolist()) == list(range(8))
    assert failing(with_zeros(matrix, found)) == 0


@needs_library
def test_each_block_has_its_own_order():
    matrices = [laplace(96, 20, 3, 0.5), laplace(96, 9, 4, 0.5)]
    found = order_channels(matrices, blocks=4, allow_zero_channels=True)
    check(matrices, found, blocks=4)
    for block in range(4):
        rows = slice(24 * block, 24 * block + 24)
        alone = order_channels([matrix[rows] for matrix in matrices], allow_zero_channels=True)
        assert np.array_equal(alone.order + rows.start, found.order[rows])
    assert len({tuple(order) for order in (found.order.reshape(4, -1) % 24).tolist()}) > 1
    check(matrices, order_channels(matrices, blocks=4), blocks=4)


@needs_library
@pytest.mark.parametrize("seed", range(5))
def test_one_order_for_all_blocks(seed):
    matrices = [laplace(96, 10, seed), laplace(96, 4, seed + 50)]
    for blocks in (1, 2, 6):
        for zero in (False, True):
            found = order_channels(matrices, blocks=blocks, same_in_blocks=True, allow_zero_channels=zero)
            check(matrices, found, blocks=blocks)
            of_blocks = found.order.reshape(blocks, -1) - np.arange(0, 96, 96 // blocks)[:, None]
            assert (of_blocks == of_blocks[0]).all()
            # The blocks side by side are more columns of one block.
            side = [np.concatenate(np.split(matrix, blocks), axis=1) for matrix in matrices]
            alone = order_channels(side, allow_zero_channels=zero)
            assert np.array_equal(alone.order, of_blocks[0]) and len(alone.single) * blocks == len(
                found.single
            )


@needs_library
@pytest.mark.parametrize("seed", range(60))
def test_matrices_with_unsafe_pairs_cost_the_least(seed):
    rng = np.random.default_rng(seed)
    channels, count = 2 * int(rng.integers(2, 6)), int(rng.integers(1, 6))
    graphs = [rng.random((channels, channels)) < rng.choice([0.4, 0.7, 0.9]) for _ in range(count)]
    graphs = [np.triu(graph, 1) | np.triu(graph, 1).T for graph in graphs]
    matrices = [of_graph(graph, rng) for graph in graphs]
    costs = None if seed % 2 else rng.integers(1, 10, count).tolist()
    found = order_channels(matrices, weights=costs)
    check(matrices, found)
    costs = [1] * count if costs is None else costs
    admitted = {i for pair in found.unsafe for i in pair[2]}

    def joint(unsafe):
        return np.all(
            [graphs[i] for i in range(count) if i not in unsafe] or [np.ones((channels, channels), bool)],
            axis=0,
        )

    subsets = itertools.chain.from_iterable(
        itertools.combinations(range(count), size) for size in range(count + 1)
    )
    least = min(
        sum(costs[i] for i in unsafe) for unsafe in subsets if largest(joint(unsafe)) == channels // 2
    )
    assert sum(costs[i] for i in admitted) == least
    assert len(found.unsafe) == channels // 2 - largest(joint(admitted), joint(()))


@needs_library
@pytest.mark.parametrize("seed,least", [(4, 3), (7, 4), (8, 2), (11, 4)])
def test_layers_with_unsafe_pairs_are_few(seed, least):
    """`least` is the smallest number of such matrices: an exhaustive search over all sets of matrices found it."""
    rng = np.random.default_rng(seed)
    spread = np.exp(0.9 * rng.normal(size=(48, 1)))
    matrices = []
    for _ in range(8):
        weights = rng.laplace(size=(48, 10)) * spread
        matrices.append(
            np.clip(np.rint(weights / np.abs(weights).max(axis=0) * 127), -128, 127).astype(np.int8)
        )
    found = order_channels(matrices)
    check(matrices, found)
    assert len({i for pair in found.unsafe for i in pair[2]}) == least


@needs_library
def test_many_matrices_share_few_unsafe_ones():
    """As in a transformer's residual stream: most orders leave a pair over that is unsafe in many matrices."""
    rng = np.random.default_rng(4)
    matrices = [np.where(rng.random((60, 1)) < 0.1, 1, 60).astype(np.int8) for _ in range(20)]
    matrices[7][:] = 100  # no order helps this one
    matrices[3][10:14] = 100
    matrices[3][14:] = 50
    matrices[3][:10] = 1
    found = order_channels(matrices)
    check(matrices, found)
    assert {i for pair in found.unsafe for i in pair[2]} == {7}


def change_of(matrices, highs, costs, one, other):
    """The least squared change that makes a pair safe, by trying the changes of each column."""
    total = 0
    for matrix, high, cost in zip(matrices, highs, costs):
        most, least = 32767 // high, 32768 // high
        for a, b in zip(matrix[one].tolist(), matrix[other].tolist()):
            over = max(a + b - most, -a - b - least, 0)
            total += cost * min(d * d + (over - d) ** 2 for d in range(over + 1))
    return total


@needs_library
@pytest.mark.parametrize("seed", range(60))
def test_unsafe_pairs_need_the_least_change(seed):
    rng = np.random.default_rng(seed)
    blocks = int(rng.choice([1, 1, 2]))
    channels = int(rng.integers(1, 5)) * 2 * blocks if blocks > 1 else int(rng.integers(2, 10))
    matrices = [
        laplace(channels, int(rng.integers(1, 30)), seed * 9 + i, 0.5) for i in range(int(rng.integers(1, 4)))
    ]
    highs, costs = (
        rng.choice([255, 200, 160], len(matrices)).tolist(),
        rng.choice([1.0, 2.5, 0.1], len(matrices)).tolist(),
    )
    same = bool(blocks > 1 and rng.random() < 0.5)
    found = order_channels(
        matrices, highs, blocks=blocks, same_in_blocks=same, least_change=True, weights=costs
    )
    check(matrices, found, [int(high) for high in highs], blocks)
    length = channels // blocks

    @functools.lru_cache(maxsize=None)
    def cost(one, other):
        starts = range(0, channels, length) if same else [0]
        return sum(change_of(matrices, highs, costs, one + start, other + start) for start in starts)

    def least(nodes):
        if len(nodes) < 2:
            return 0
        first, rest = nodes[0], nodes[1:]
        found = [cost(first, other) + least(rest[:i] + rest[i + 1 :]) for i, other in enumerate(rest)]
        return min(found + ([least(rest)] if len(nodes) % 2 else []))

    best = sum(
        least(tuple(range(begin, begin + length))) for begin in ([0] if same else range(0, channels, length))
    )
    pairs = found.order[: channels // 2 * 2].reshape(-1, 2).tolist()
    if same:
        pairs = pairs[: length // 2]
    assert sum(cost(*pair) for pair in pairs) == pytest.approx(best, rel=1e-6)


@needs_library
def test_equal_arguments_give_equal_orders_whatever_the_strides():
    matrix = laplace(80, 30, 8)
    orders = [
        order_channels([given]).order
        for given in (
            matrix,
            matrix,
            np.asfortranarray(matrix),
            matrix[::-1].copy()[::-1],
            np.repeat(matrix, 2, axis=1)[:, ::2],
        )
    ]
    assert all(np.array_equal(order, orders[0]) for order in orders)


@needs_library
def test_empty_matrices():
    assert np.array_equal(order_channels([np.zeros((6, 0), np.int8)]).order, np.arange(6))
    assert not len(order_channels([np.zeros((0, 3), np.int8)]).order)


@pytest.mark.parametrize(
    "arguments,words",
    [
        (dict(matrices=[]), "matrices: is empty"),
        (dict(matrices=[np.zeros((4, 2), np.uint8)]), "dtype uint8; expected int8"),
        (dict(matrices=[np.zeros(4, np.int8)]), r"has shape \(4,\)"),
        (
            dict(matrices=[np.zeros((4, 2), np.int8), np.zeros((6, 2), np.int8)]),
            r"matrices\[1\]: has 6 channels; expected 4",
        ),
        (dict(matrices=[[1, 2]]), r"matrices\[0\]: is a list"),
        (dict(highs=256), "highs: is 256; expected an integer from 0 to 255"),
        (dict(highs=[255, 255]), r"highs: is \[255, 255\]"),
        (dict(highs=1.5), "highs: is 1.5"),
        (dict(weights=[-1.0]), "weights: is"),
        (dict(weights=[1, 2]), "expected 1 finite numbers"),
        (dict(blocks=3), "blocks: is 3; expected a divisor of the number of channels, 8"),
        (dict(blocks=8), "leaves 1 channel for each; expected an even number"),
        (dict(blocks=0), "blocks: is 0"),
    ],
)
def test_what_is_refused(arguments, words):
    with pytest.raises(intact.Error, match=words):
        order_channels(**{"matrices": [np.zeros((8, 2), np.int8)], **arguments})


def test_a_missing_library_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(_order, "PACKAGE", tmp_path)
    _order._library.cache_clear()
    try:
        with pytest.raises(intact.Error, match="no channel_order.so: LEMON"):
            order_channels([np.zeros((6, 7), np.int8)])  # no other test asks for it: orders are remembered
    finally:
        _order._library.cache_clear()


def test_results_are_remembered_by_the_values_of_arrays(monkeypatch):
    asked = []

    @_order.remembered
    def total(arrays, scale):
        asked.append(scale)
        return sum(int(array.sum()) for array in arrays) * scale

    rows = np.arange(6, dtype=np.int8).reshape(2, 3)
    assert total([rows], 2) == 30 == total([rows.copy()], 2) == total([rows[:, ::-1][:, ::-1]], 2)
    assert asked == [2]
    assert total([rows], 3) == 45 and total([rows, rows], 2) == 60 and asked == [2, 3, 2]
    assert (
        total([rows.reshape(3, 2)], 2) == 30 and total([rows.astype(np.int16)], 2) == 30 and len(asked) == 5
    )
    rows[0, 0] = 1
    assert total([rows], 2) == 32 and len(asked) == 6
    monkeypatch.setattr(_order, "_REMEMBERED", 1)
    assert total([rows], 4) == 64 and total([rows], 2) == 32 and len(asked) == 8  # those before were dropped
