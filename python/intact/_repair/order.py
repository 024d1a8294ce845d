"""Orders the channels of a tensor so that VPMADDUBSW, which adds the products of two adjacent depths in
int16, clamps no sum in the matrices that read the tensor."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import numpy as np

from .._library import PACKAGE, Error, address, array_of, counted, integer, invalid, numbers

_PIECE = 1 << 22  # weights that are processed at once
_REMEMBERED = 1024  # results of a function that are kept

_INTERFACE = """
struct ChannelMatrix {
  const int8_t* weights;
  int64_t columns, channel_stride, column_stride;
  int32_t high;
  double cost;
};
int intact_order_channels(const struct ChannelMatrix* matrices, int32_t count, int32_t channels, int32_t blocks,
                          int32_t same_in_blocks, int32_t allow_zero_channels, int32_t least_change, int32_t* mates);
"""


@dataclass
class Order:
    """An order of channels. Places (2i, 2i + 1) are a pair.

    - `order`: int64. `order[p]` is the channel that goes to place p.
    - `unsafe`: pairs that can clamp: (channel, channel, numbers of the matrices in which their sum can
      clamp).
    - `single`: channels that need a channel of zeros after them. They are at the end of `order`, or of each
      block."""

    order: np.ndarray
    unsafe: list[tuple[int, int, list[int]]]
    single: list[int]


def remembered(function: Callable) -> Callable:
    """Keeps the results of a function whose result depends on the values of its arguments alone: arrays, lists
    of arrays, numbers. The plans of one repair ask for the same. Callers do not change a result."""
    known: dict[tuple, Any] = {}

    def key_of(value: Any) -> Any:
        from hashlib import blake2b  # imported late, because it loads OpenSSL

        if isinstance(value, np.ndarray):
            digest = blake2b(np.ascontiguousarray(value), digest_size=32).digest()
            return value.shape, value.dtype.str, digest
        return tuple(map(key_of, value)) if isinstance(value, list) else value

    @functools.wraps(function)
    def ask(*values: Any) -> Any:
        key = tuple(map(key_of, values))
        if key not in known:
            if len(known) >= _REMEMBERED:
                known.clear()
            known[key] = function(*values)
        return known[key]

    return ask


@functools.cache
def _library() -> tuple[Any, Any]:
    from cffi import FFI

    path = PACKAGE / "channel_order.so"
    if not path.exists():
        raise Error(
            "UNSUPPORTED",
            "this build of intact has no channel_order.so: LEMON (Debian: liblemon-dev) was missing",
        )
    ffi = FFI()
    ffi.cdef(_INTERFACE)
    return ffi, ffi.dlopen(str(path))


def limits(high: int) -> tuple[int, int]:
    """The largest safe sums of two positive weights, and of the magnitudes of two negative weights."""
    return (32767 // high, 32768 // high) if high else (254, 256)


def clamping(pairs: np.ndarray, matrix: np.ndarray, high: int) -> np.ndarray:
    """Whether each pair of channels can clamp in some column of a matrix. `pairs`: an array (pairs, 2) of
    channels."""
    found = np.zeros(len(pairs), bool)
    most, least = limits(high)
    step = max(1, _PIECE // max(1, matrix.shape[1]))
    for begin in range(0, len(pairs), step):
        part = pairs[begin : begin + step]
        one, other = matrix[part[:, 0]], matrix[part[:, 1]]
        sums = np.add(one, other, dtype=np.int16)  # weights of two signs are always safe: 255*128 < 32768
        found[begin : begin + step] = (
            ((one > 0) & (other > 0) & (sums > most)) | ((one < 0) & (other < 0) & (sums < -least))
        ).any(axis=1)
    return found


def order_channels(
    matrices: Sequence[np.ndarray],
    highs: Sequence[int] | int = 255,
    *,
    blocks: int = 1,
    same_in_blocks: bool = False,
    allow_zero_channels: bool = False,
    least_change: bool = False,
    weights: Sequence[float] | None = None,
) -> Order:
    """Orders the channels of a tensor so that no pair of adjacent channels can clamp in any of the matrices
    that read it.

    - `matrices`: int8, (channels, columns) each: a row for each channel, a column for each output and tap.
    - `highs`: the largest u8 activation of each matrix, or one number for all. The smallest activation is 0.
    - `blocks`: channels stay within `blocks` equal blocks. `same_in_blocks`: all blocks get one order.
    - `allow_zero_channels`: channels without a safe pair go to `single`. By default they make unsafe pairs.
    - `least_change`: if some pairs must be unsafe, chooses pairs that a small squared change of weights makes
      safe.
    - `weights`: for each matrix, the cost of unsafe pairs in it, or of a squared step of change; by default
      1. The sum of costs is kept small.

    The number of safe pairs is as large as possible. If some pairs must be unsafe, the fewest matrices have
    unsafe pairs, even if more pairs are unsafe then. Pairs that are safe in the stored order stay in place if
    that costs nothing. An odd last channel is alone, which is safe. Equal arguments give equal orders.

    Raises `Error`."""
    given, high, cost = _checked(matrices, highs, weights)
    channels = integer("channels", len(given[0]))
    blocks = integer("blocks", blocks)
    if blocks < 1 or channels % blocks:
        raise invalid(f"blocks: is {blocks}; expected a divisor of the number of channels, {channels}")
    length = channels // blocks
    if blocks > 1 and length % 2:
        raise invalid(
            f"blocks: is {blocks}, which leaves {counted(length, 'channel')} for each; expected an even number of channels"
        )
    if not channels:
        return Order(np.zeros(0, np.int64), [], [])

    mates = _mates(
        given,
        high,
        cost,
        channels,
        blocks,
        bool(same_in_blocks),
        bool(allow_zero_channels),
        bool(least_change),
    )
    order = np.empty(channels, np.int64)
    single: list[int] = []
    for block in range(blocks):
        first = block * length
        order[first : first + length], alone = _places(mates[first : first + length])
        order[first : first + length] += first
        single += [first + channel for channel in alone]
    paired = np.ones(channels, bool)
    paired[single] = False
    pairs = order[paired[order]]
    pairs = pairs[: len(pairs) // 2 * 2].reshape(-1, 2)
    where: dict[int, list[int]] = {}
    for i, matrix in enumerate(given):
        for pair in np.flatnonzero(clamping(pairs, matrix, int(high[i]))).tolist():
            where.setdefault(pair, []).append(i)
    return Order(
        order, [(int(pairs[pair, 0]), int(pairs[pair, 1]), where[pair]) for pair in sorted(where)], single
    )


def _checked(
    matrices: Sequence[np.ndarray], highs: Sequence[int] | int, weights: Sequence[float] | None
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """The matrices, and for each its largest activation and its cost."""
    given = [array_of(f"matrices[{i}]", matrix) for i, matrix in enumerate(matrices)]
    if not given:
        raise invalid("matrices: is empty; expected one or more")
    for i, matrix in enumerate(given):
        if matrix.ndim != 2 or matrix.dtype != np.int8:
            raise invalid(
                f"matrices[{i}]: has shape {matrix.shape} and dtype {matrix.dtype}; expected int8, channels×columns"
            )
        if len(matrix) != len(given[0]):
            raise invalid(
                f"matrices[{i}]: has {counted(len(matrix), 'channel')}; expected {len(given[0])}, the number of matrices[0]"
            )
    high = numbers("highs", highs)
    if high.size == 1:
        high = np.repeat(high, len(given))
    if high.dtype.kind not in "iu" or len(high) != len(given) or high.min() < 0 or high.max() > 255:
        raise invalid(
            f"highs: is {highs!r}; expected an integer from 0 to 255, or {len(given)} of them, one for each matrix"
        )
    cost = numbers("weights", np.ones(len(given)) if weights is None else weights)
    if len(cost) != len(given) or not (np.isfinite(cost) & (cost >= 0)).all():
        raise invalid(
            f"weights: is {weights!r}; expected {len(given)} finite numbers of 0 or more, one for each matrix"
        )
    return given, high, cost


@remembered
def _mates(
    matrices: list[np.ndarray],
    highs: np.ndarray,
    costs: np.ndarray,
    channels: int,
    blocks: int,
    same_in_blocks: bool,
    allow_zero_channels: bool,
    least_change: bool,
) -> np.ndarray:
    """The mate of each channel as a place in its block; -1 if it has none. The mate of an odd last channel is
    a place beyond the block."""
    ffi, library = _library()
    length = channels // blocks
    described = ffi.new("struct ChannelMatrix[]", len(matrices))
    for i, matrix in enumerate(matrices):
        described[i].weights = ffi.cast("int8_t *", address(matrix))
        described[i].columns = matrix.shape[1]
        described[i].channel_stride, described[i].column_stride = matrix.strides
        described[i].high, described[i].cost = int(highs[i]), float(costs[i])
    mates = np.full((1 if same_in_blocks else blocks, length + length % 2), -1, np.int32)
    if library.intact_order_channels(
        described,
        len(matrices),
        channels,
        blocks,
        same_in_blocks,
        allow_zero_channels,
        least_change,
        ffi.cast("int32_t *", address(mates)),
    ):
        raise Error(
            "OUT_OF_MEMORY",
            f"no memory for the pairs of {counted(channels, 'channel')} in {len(matrices)} matrices",
        )
    # From nodes to places in the block.
    mates -= np.where(mates >= 0, np.arange(len(mates), dtype=np.int32)[:, None] * mates.shape[1], 0)
    return np.tile(mates, (blocks // len(mates), 1))[:, :length].reshape(-1)


def _places(mates: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """The channels of a block in their order, and the channels at its end that each need a channel of zeros.
    Pairs of the stored order stay in their places if they can."""
    count = len(mates)
    # mate beyond the block: an odd last channel
    alone = np.flatnonzero((mates < 0) | (mates == count)).tolist()
    single = alone if len(alone) > 1 or count % 2 == 0 else []
    pairs = (count - len(alone)) // 2
    first = np.flatnonzero((mates >= 0) & (mates < count) & (np.arange(count) < mates))
    kept = first[(first % 2 == 0) & (mates[first] == first + 1) & (first // 2 < pairs)]
    order = np.full((pairs, 2), -1, np.int64)
    order[kept // 2, 0] = kept
    moved = np.setdiff1d(first, kept)
    order[order[:, 0] < 0, 0] = moved
    order[:, 1] = mates[order[:, 0]]
    return np.concatenate([order.reshape(-1), np.array(alone, np.int64)]), single
