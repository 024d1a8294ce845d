"""What ggml's CPU backend computes with weights of GGUF's types: every float operation, in its order."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from .._library import array_of, choice, invalid
from .ggml_types import FORMATS, half, six_bits

_Product = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of blocks and of activations

_LANES = 8  # lane i of a sum has depths 4·i to 4·i + 3 of each 32
_TILED_ROWS = 8  # from this many rows of A on, K types use tiled kernels


def like_ggml(blocks: Any, kind: str, a: Any) -> np.ndarray:
    """A·B as ggml 0.27's CPU backend computes it, with the bytes of its kernels for AVX2, AVX-512, AVX-512-VNNI and
    AMX CPUs: M×N, float32. The weights are not rearranged: they lie in a buffer of the type CPU.

    - `blocks`: a tensor of a GGUF file, a row of bytes for each column of B; `kind`: "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k",
      "q5_k" or "q6_k".
    - `a`: M×K, float32. With K types, 8 and more rows are computed in another way than fewer rows.

    docs/peers_methods.md has the formulas. The function is slow: it explains differences of two results."""
    choice("kind", kind, _PRODUCTS)
    rows, a = array_of("blocks", blocks), array_of("a", a)
    size = FORMATS[kind].size
    depths = 256 if kind.endswith("k") else 32
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] % size or not rows.size:
        raise invalid(
            f"blocks: has dtype {rows.dtype} and shape {rows.shape}; expected uint8 and rows of {size}-byte blocks"
        )
    k = rows.shape[1] // size * depths
    if a.dtype != np.float32 or a.ndim != 2 or a.shape[1] != k:
        raise invalid(f"a: has dtype {a.dtype} and shape {a.shape}; expected float32 and rows of {k}")
    with np.errstate(all="ignore"):  # scales of float16 may be infinite, as ggml's
        return _PRODUCTS[kind](
            rows.reshape(len(rows), -1, size), a.reshape(len(a), a.shape[1] // depths, depths)
        )


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a·b + c, rounded once to float32. The arguments are float32."""
    product, addend = (
        a.astype(np.float64) * b.astype(np.float64),
        c.astype(np.float64),
    )  # the product is exact
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    # Rounding to odd numbers keeps what the rounding to float32 must know.
    is_even = total.view(np.int64) & 1 == 0
    nearer = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & is_even, nearer, total).astype(np.float32)


def quantize_like_ggml(a: Any) -> tuple[np.ndarray, np.ndarray]:
    """The activations that ggml 0.27's CPU backend multiplies by weights in blocks of 32 (Q8_0), for `a`, M×K, float32: the numbers, M×K,
    int8, and the scales of the blocks, M×K/32, float32. A `Grouped` plan with `a_source_type=None` runs with both."""
    a = array_of("a", a)
    if a.dtype != np.float32 or a.ndim != 2 or a.shape[1] % 32:
        raise invalid(
            f"a: has dtype {a.dtype} and shape {a.shape}; expected float32 and rows of whole blocks of 32"
        )
    with np.errstate(all="ignore"):  # of values that are not finite
        codes, scales = _quantized(a.reshape(len(a), a.shape[1] // 32, 32))
    return codes.astype(np.int8).reshape(a.shape), scales


def _quantized(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q8_0: int8 numbers of M×blocks×32 activations, and the scales of the blocks."""
    largest = np.abs(a).max(2)
    factor = np.float32(127) / np.where(largest > 0, largest, np.float32(np.inf))
    scales = (largest / np.float32(127)).astype(np.float16).astype(np.float32)
    return np.rint(a * factor[..., None]).astype(np.int64), scales


def _quantized_k(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q8_K: int8 numbers of M×blocks×256 activations, and the scales of the blocks."""
    largest = np.take_along_axis(a, np.abs(a).argmax(2)[..., None], 2)
    factor = np.float32(-127) / np.where(largest != 0, largest, np.float32(np.inf))
    codes = np.minimum(np.rint(a * factor), 127).astype(np.int64)
    scales = np.where(largest != 0, np.float32(1) / factor, np.float32(0))
    return codes, scales[..., 0].astype(np.float32)


def _sum_of_lanes(f: np.ndarray) -> np.ndarray:
    for width in (4, 2, 1):
        if f.shape[-1] > width:
            f = f[..., :width] + f[..., width:]
    return f[..., 0]


def _by_lanes(sums: np.ndarray, a_scales: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Fused multiply-adds of M×N×blocks×lanes sums, block after block; then the sum of the lanes."""
    f = np.zeros((*sums.shape[:2], sums.shape[3]), np.float32)
    for block in range(sums.shape[2]):
        scale = a_scales[:, None, block, None] * scales[None, :, block, None]
        f = fma(np.broadcast_to(scale, f.shape), sums[:, :, block].astype(np.float32), f)
    return _sum_of_lanes(f)


def _tiled(
    a_scales: np.ndarray, d: np.ndarray, sums: np.ndarray, m: np.ndarray, minimums: np.ndarray
) -> np.ndarray:
    """Fused multiply-adds of M×N×blocks sums and sums of minimums, block after block."""
    f = np.zeros(sums.shape[:2], np.float32)
    for block in range(sums.shape[2]):
        scaled = d[None, :, block] * sums[:, :, block].astype(np.float32)
        least = minimums[:, :, block].astype(np.float32)
        scaled = fma(np.broadcast_to(-m[None, :, block], f.shape), least, scaled)
        f = fma(np.broadcast_to(a_scales[:, block, None], f.shape), scaled, f)
    return f


def _of_lanes(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The products of M×blocks×groups×32 and N×blocks×groups×32: M×N×blocks×groups×lanes."""
    a, b = (each.reshape(*each.shape[:-1], _LANES, -1) for each in (a, b))
    return np.einsum("mbgik,nbgik->mnbgi", a, b)


def _product_of_32(kind: str) -> _Product:
    def product(blocks: np.ndarray, a: np.ndarray) -> np.ndarray:
        b, scales, minimums = FORMATS[kind].read(blocks)
        b = b.astype(np.int64) - (8 if kind == "q4_0" else 0)
        codes, a_scales = _quantized(a)
        f = _by_lanes(
            _of_lanes(codes[:, :, None], b[:, :, None])[:, :, :, 0],
            a_scales,
            scales[..., 0].astype(np.float32),
        )
        if minimums is None:
            return f
        # Q8_1 also has the sum of a block, times its scale before the rounding to float16.
        sums = (np.abs(a).max(2) / np.float32(127)) * codes.sum(2).astype(np.float32)
        sums, least = sums.astype(np.float16).astype(np.float32), np.zeros_like(f)
        for block in range(sums.shape[1]):
            of_rows = np.broadcast_to(sums[:, block, None], f.shape)
            least = fma(np.broadcast_to(minimums[None, :, block, 0], f.shape), of_rows, least)
        return f + least

    return product


def _with_minimums(kind: str) -> _Product:
    """Q4_K and Q5_K."""

    def product(blocks: np.ndarray, a: np.ndarray) -> np.ndarray:
        codes, a_scales = _quantized_k(a)
        codes = codes.reshape(*codes.shape[:2], 8, 32)
        b = FORMATS[kind].read(blocks)[0].astype(np.int64).reshape(*blocks.shape[:2], 8, 32)
        d, m = (half(blocks, at)[..., 0].astype(np.float32) for at in (0, 2))
        of_d, of_m = (factors.astype(np.int64) for factors in six_bits(blocks))
        sums = np.einsum("mnbgi,nbg->mnbi", _of_lanes(codes, b), of_d)
        minimums = np.einsum("mbg,nbg->mnbg", codes.sum(3), of_m)
        if len(a) >= _TILED_ROWS:
            return _tiled(a_scales, d, sums.sum(3), m, minimums.sum(3))
        lanes = 4 if kind == "q4_k" else 1
        minimums = minimums.reshape(*minimums.shape[:3], lanes, -1).sum(4)
        return _by_lanes(sums, a_scales, d) + _by_lanes(minimums, -a_scales, m)

    return product


def _q6_k(blocks: np.ndarray, a: np.ndarray) -> np.ndarray:
    codes, a_scales = _quantized_k(a)
    codes = codes.reshape(*codes.shape[:2], 8, 32)
    b = FORMATS["q6_k"].read(blocks)[0].astype(np.int64).reshape(*blocks.shape[:2], 8, 32)
    d = half(blocks, 208)[..., 0].astype(np.float32)
    factors = blocks[..., 192:208].view(np.int8).astype(np.int64).reshape(*blocks.shape[:2], 8, 2)
    if len(a) >= _TILED_ROWS:
        sums = np.einsum("mnbgi,nbgi->mnb", _of_lanes(codes, b), np.repeat(factors, 4, 3))
        zeros = np.zeros_like(sums)
        return _tiled(a_scales, d, sums, np.zeros_like(d), zeros)
    # The kernel multiplies by codes + 32, and subtracts in lane i what group i has too much.
    sums = np.einsum("mnbgi,nbgi->mnbi", _of_lanes(codes, b + 32), np.repeat(factors, 4, 3))
    too_much = np.einsum("mbgh,nbgh->mnbg", codes.reshape(*codes.shape[:3], 2, 16).sum(4), factors)
    return _by_lanes(sums - 32 * too_much, a_scales, d)


_PRODUCTS: dict[str, _Product] = {
    "q4_0": _product_of_32("q4_0"),
    "q4_1": _product_of_32("q4_1"),
    "q5_0": _product_of_32("q5_0"),
    "q5_1": _product_of_32("q5_1"),
    "q8_0": _product_of_32("q8_0"),
    "q4_k": _with_minimums("q4_k"),
    "q5_k": _with_minimums("q5_k"),
    "q6_k": _q6_k,
}
