"""Weights with a scale for each group of depths, as intact_grouped_create() reads them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._library import invalid

GROUPS = (16, 32, 64, 128, 256)


@dataclass
class GroupedWeights:
    """Weights B (K×N) of a product A·B, as intact_grouped_create() reads them (intact/grouped.h).

    - `b`: N rows, one for each column of B. "s8": int8; "u8": uint8; "u4" and "s4": uint8, the even depth in
      the low four bits of a byte. A row may be longer than `k`.
    - `group`: 16, 32, 64, 128 or 256, or 0 for one group of all depths.
    - `scales`: N×groups, float32 or float16.
    - `zero_points`: N×groups, int8 for signed weights, else uint8; None: 0 for signed weights, 128 for "u8",
      8 for "u4".
    - `bias`: N float32 values, or None.
    - `minimums`: N×groups, float32, which are added to the weights; zero points are then 0. Or None."""

    b: np.ndarray
    b_type: str
    k: int
    group: int
    scales: np.ndarray
    zero_points: np.ndarray | None = None
    bias: np.ndarray | None = None
    minimums: np.ndarray | None = None

    @property
    def n(self) -> int:
        return len(self.b)

    def stored(self) -> np.ndarray:
        """The weights: N×K, int16."""
        b = self.b
        if self.b_type.endswith("4"):
            b = nibbles(b)
        b = b[:, : self.k].astype(np.int16)
        return (b ^ 8) - 8 if self.b_type == "s4" else b

    def integers(self) -> np.ndarray:
        """The weights minus their zero points: N×K, int16."""
        b = self.stored()
        if self.minimums is not None:
            return b
        if self.zero_points is None:
            return b - np.int16({"u8": 128, "u4": 8}.get(self.b_type, 0))
        return b - self._of_depths(self.zero_points.astype(np.int16))

    def values(self) -> np.ndarray:
        """The real numbers that the weights represent: N×K, float32."""
        values = self.integers() * self._of_depths(self.scales.astype(np.float32))
        return values if self.minimums is None else values + self._of_depths(self.minimums)

    def _of_depths(self, values: np.ndarray) -> np.ndarray:
        """Values of groups, repeated for each depth: N×K."""
        return np.repeat(values, self.group or self.k, 1)[:, : self.k]


def nibbles(rows: np.ndarray) -> np.ndarray:
    """The numbers of 4 bits in rows of bytes, low bits first."""
    return np.stack([rows & 15, rows >> 4], 2).reshape(len(rows), -1)


def nbits(
    b: np.ndarray, scales: np.ndarray, zero_points: np.ndarray | None, k: int, bits: int, group: int
) -> GroupedWeights:
    """Weights of MatMulNBits from its inputs. Zero points are uint8, with 4 bits two in a byte, or whole
    numbers, one for each group."""
    if bits not in (4, 8):
        raise invalid(f"bits: is {bits!r}; expected 4 or 8")
    if group not in GROUPS:
        raise invalid(f"block_size: is {group!r}; expected 16, 32, 64, 128 or 256")
    groups, n = -(-k // group), len(b)

    def sized(name: str, array: np.ndarray, dtypes: tuple, row: int) -> np.ndarray:
        if array.dtype not in dtypes or array.size != n * row:
            raise invalid(
                f"{name}: has {array.size} elements of dtype {array.dtype}; expected {n}×{row} of "
                + " or ".join(str(np.dtype(dtype)) for dtype in dtypes)
            )
        return array.reshape(n, row)

    b = sized("B", b, (np.uint8,), groups * group * bits // 8)
    scales = sized("scales", scales, (np.float32, np.float16), groups)
    packed = (groups * bits + 7) // 8
    if (
        zero_points is not None
        and bits == 4
        and zero_points.dtype == np.uint8
        and zero_points.size == n * packed
    ):
        points = zero_points.reshape(n, packed)
        zero_points = nibbles(points)[:, :groups]  # low bits: the even group
    elif zero_points is not None:
        points = sized("zero_points", zero_points, (np.uint8, np.float32, np.float16), groups)
        if np.any(points != np.clip(np.rint(points), 0, 2**bits - 1)):
            raise invalid(f"zero_points: has a value that is no whole number from 0 to {2**bits - 1}")
        zero_points = points.astype(np.uint8)
    return GroupedWeights(b, f"u{bits}", k, group, scales, zero_points)
