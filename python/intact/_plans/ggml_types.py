"""Weights in groups of GGUF: the types of ggml that are codes with a scale for each group of depths, and
perhaps a minimum."""

from __future__ import annotations

from typing import Callable, NamedTuple

import numpy as np

from .._library import invalid
from .grouped_weights import GroupedWeights


class Format(NamedTuple):
    """`read(blocks)`: from N×blocks×size bytes, N×blocks×depths codes, then N×blocks×groups scales and
    minimums, or None. Codes of "u4" are 0 to 15."""

    size: int  # bytes of a block
    b_type: str
    group: int
    read: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray | None]]


def half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 at byte `at`: N×blocks×1."""
    return np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")


def _nibbles(data: np.ndarray) -> np.ndarray:
    """Low nibbles are the first depths, high nibbles the next ones."""
    return np.concatenate([data & 15, data >> 4], -1)


def _five_bits(blocks: np.ndarray, at: int) -> np.ndarray:
    """Four bytes with the fifth bits at byte `at`, then nibbles."""
    fifth = np.unpackbits(blocks[..., at : at + 4], axis=-1, bitorder="little")
    return _nibbles(blocks[..., at + 4 : at + 20]) | fifth << 4


def six_bits(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factors of d and m of the 8 groups of Q4_K and Q5_K: N×blocks×8, 6 bits."""
    low, middle, high = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    of_d = np.concatenate([low & 63, high & 15 | low >> 6 << 4], -1)
    return of_d, np.concatenate([middle & 63, high >> 4 | middle >> 6 << 4], -1)


def _factors(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and minimums of Q4_K and Q5_K: float16 d and m, then 12 bytes with their factors."""
    of_d, of_m = six_bits(blocks)
    d, m = half(blocks, 0).astype(np.float32), half(blocks, 2).astype(np.float32)
    return d * of_d.astype(np.float32), -(m * of_m.astype(np.float32))


def _nibbles_of_k(data: np.ndarray) -> np.ndarray:
    """Each 32 bytes have 32 depths in the low nibbles, and the next 32 in the high ones."""
    return _nibbles(data.reshape(*data.shape[:-1], 4, 32)).reshape(*data.shape[:-1], 256)


def _q4_1(blocks: np.ndarray) -> tuple:
    return _nibbles(blocks[..., 4:]), half(blocks, 0), half(blocks, 2).astype(np.float32)


def _q5_1(blocks: np.ndarray) -> tuple:
    return _five_bits(blocks, 4), half(blocks, 0), half(blocks, 2).astype(np.float32)


def _q5_k(blocks: np.ndarray) -> tuple:
    bits = blocks[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return (_nibbles_of_k(blocks[..., 48:]) | bits.reshape(*blocks.shape[:-1], 256) << 4, *_factors(blocks))


def _q6_k(blocks: np.ndarray) -> tuple:
    low = np.concatenate([_nibbles(blocks[..., :64]), _nibbles(blocks[..., 64:128])], -1)
    pairs = (
        blocks[..., 128:192].reshape(*blocks.shape[:-1], 2, 1, 32)
        >> np.arange(0, 8, 2, dtype=np.uint8)[:, None]
        & 3
    )
    codes = (low | pairs.reshape(low.shape) << 4).astype(np.int16) - 32
    factors = np.ascontiguousarray(blocks[..., 192:208]).view(np.int8)
    return codes, half(blocks, 208).astype(np.float32) * factors.astype(np.float32), None


def _mxfp4(blocks: np.ndarray) -> tuple:
    exponents = blocks[..., :1].astype(np.int32) - 128
    return _MXFP4[_nibbles(blocks[..., 1:])], np.ldexp(np.float32(1), exponents).astype(np.float32), None


_IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
_MXFP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)  # doubled

FORMATS = {
    "q4_0": Format(18, "u4", 32, lambda blocks: (_nibbles(blocks[..., 2:]), half(blocks, 0), None)),
    "q4_1": Format(20, "u4", 32, _q4_1),
    "q5_0": Format(
        22,
        "s8",
        32,
        lambda blocks: (_five_bits(blocks, 2).astype(np.int8) - np.int8(16), half(blocks, 0), None),
    ),
    "q5_1": Format(24, "s8", 32, _q5_1),
    "q8_0": Format(
        34,
        "s8",
        32,
        lambda blocks: (np.ascontiguousarray(blocks[..., 2:]).view(np.int8), half(blocks, 0), None),
    ),
    "q4_k": Format(144, "u4", 32, lambda blocks: (_nibbles_of_k(blocks[..., 16:]), *_factors(blocks))),
    "q5_k": Format(176, "s8", 32, _q5_k),
    "q6_k": Format(210, "s8", 16, _q6_k),
    "iq4_nl": Format(
        18, "s8", 32, lambda blocks: (_IQ4_NL[_nibbles(blocks[..., 2:])], half(blocks, 0), None)
    ),
    "mxfp4": Format(17, "s8", 32, _mxfp4),
}


def of_rows(rows: np.ndarray, kind: str) -> GroupedWeights:
    """The weights of a tensor of GGUF's type `kind`, a key of FORMATS: N rows of bytes."""
    size, b_type, group, read = FORMATS[kind]
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] % size or not rows.size:
        raise invalid(
            f"rows: has dtype {rows.dtype} and shape {rows.shape}; expected uint8 and rows of {size}-byte blocks"
        )
    n = len(rows)
    codes, scales, minimums = read(rows.reshape(n, -1, size))
    codes = codes.reshape(n, -1)
    k = codes.shape[1]
    b = (
        codes[:, 0::2] | codes[:, 1::2] << 4
        if b_type == "u4"
        else np.ascontiguousarray(codes.astype(np.int8))
    )
    return GroupedWeights(
        b,
        scales.reshape(n, -1),
        k,
        group,
        b_type,
        minimums=None if minimums is None else minimums.reshape(n, -1),
    )
