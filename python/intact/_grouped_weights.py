"""Weights with a scale for each group of depths, from files: MatMulNBits of ONNX, the types of GGUF (_gguf.py), and the formats of
safetensors files (_safetensors.py)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

import numpy as np

from ._library import Error, excerpt, invalid

GROUPS = (16, 32, 64, 128, 256)
_DEEPEST = 16  # levels of nested graphs


@dataclass
class GroupedWeights:
    """Weights B (K×N) of a product A·B, as intact_grouped_create() reads them (intact/grouped.h).

    - `b`: N rows, one for each column of B. "s8": int8; "u8": uint8; "u4" and "s4": uint8, the even depth in the low four bits of
      a byte. A row may be longer than `k`.
    - `group`: 16, 32, 64, 128 or 256, or 0 for one group of all depths.
    - `scales`: N×groups, float32 or float16.
    - `zero_points`: N×groups, int8 for signed weights, else uint8; None: 0 for signed weights, 128 for "u8", 8 for "u4".
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
        b = b[:, :self.k].astype(np.int16)
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
        return np.repeat(values, self.group or self.k, 1)[:, :self.k]


def nibbles(rows: np.ndarray) -> np.ndarray:
    """The numbers of 4 bits in rows of bytes, low bits first."""
    return np.stack([rows & 15, rows >> 4], 2).reshape(len(rows), -1)


def read_grouped_weights(path: str | Path) -> Iterator[tuple[str, GroupedWeights]]:
    """The weights in groups of a file, one matrix after the other, each with a name:

    - ONNX: MatMulNBits nodes, and MatMul and Gemm nodes whose weights a DequantizeLinear with a `block_size` makes of constants of 4
      or 8 bits, in blocks of depths; the name of the node, or of its output if it has no name. Needs the package onnx.
    - GGUF: tensors of type Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL and MXFP4. A tensor with the matrices of several experts yields each, named `name[i]`. Needs gguf.
    - safetensors, or a folder of such files: layers of GPTQ, AWQ, compressed-tensors (pack-quantized and int-quantized) and torchao
      (Int8Tensor, IntxUnpackedToInt8Tensor); the name of the layer. Needs safetensors, and ml_dtypes for bfloat16.

    Other nodes and tensors are passed over. Raises `Error` if the file cannot be read. A node of ONNX whose weights cannot be read is
    skipped; after the last node an `Error` says why."""
    path = Path(path)
    if path.suffix == ".gguf":
        from ._gguf import read_gguf

        yield from read_gguf(path)
        return
    if path.suffix == ".safetensors" or path.is_dir():
        from ._safetensors import read_safetensors

        yield from read_safetensors(path)
        return
    from ._onnx import load_onnx

    failed: list[str] = []
    try:
        yield from _read_graph(load_onnx(path).graph, path.parent, None, 0, failed)
        if failed:
            more = f" ({len(failed)} nodes were skipped)" if len(failed) > 1 else ""
            raise invalid(failed[0] + more)
    except Error as error:
        raise invalid(f"{excerpt(path)}: {error.message}") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError, OverflowError, MemoryError) as error:
        raise invalid(f"{excerpt(path)}: a node or a tensor is malformed: {excerpt(error)}") from None


def _read_graph(graph: Any, folder: Path, parent: Any, depth: int, failed: list[str]) -> Iterator[tuple[str, GroupedWeights]]:
    """`failed` gets a line for each node whose weights cannot be read."""
    from ._onnx import Scope

    scope = Scope(graph, folder, parent)
    for node in graph.node:
        read = {("com.microsoft", "MatMulNBits"): _matmul_nbits, ("", "MatMul"): _dequantized_blocks,
                ("", "Gemm"): _dequantized_blocks}.get((node.domain if node.domain != "ai.onnx" else "", node.op_type))
        weights = None
        try:
            weights = read(node, scope) if read else None
        except Error as error:
            failed.append(f"{node.op_type} {excerpt(node.name or node.output[0])!r}: {error.message}")
        if weights is not None:
            yield node.name or node.output[0], weights
        for attribute in node.attribute if depth < _DEEPEST else ():
            for inner in [attribute.g] if attribute.type == 5 else attribute.graphs:
                yield from _read_graph(inner, folder, scope, depth + 1, failed)


def _matmul_nbits(node: Any, scope: Any) -> GroupedWeights:
    """The weights of a MatMulNBits node. `scope`: the constants of its graph."""
    from ._onnx import attributes

    values = attributes(node)
    k, n, bits, group = (int(values.get(key, default)) for key, default in (("K", 0), ("N", 0), ("bits", 4), ("block_size", 0)))
    if min(k, n) < 1:
        raise invalid(f"K×N: is {k}×{n}; expected positive extents")
    if values.get("weight_prepacked", 0):
        raise invalid(f"weight_prepacked: is {values['weight_prepacked']}; expected 0")

    def constant(i: int, name: str) -> np.ndarray | None:
        if len(node.input) <= i or not node.input[i]:
            return None
        array = scope.constant(node.input[i])
        if array is None:
            raise invalid(f"{name}: is no constant that can be read; expected one")
        return array

    names = "B", "scales", "zero_points", "g_idx", "bias"
    b, scales, points, order, bias = (constant(i, name) for i, name in enumerate(names, 1))
    if b is None or scales is None:
        raise invalid(f"{'B' if b is None else 'scales'}: is missing; expected a constant")
    if b.ndim == 0 or len(b) != n:
        raise invalid(f"B: has shape {b.shape}; expected {n} columns")
    weights = nbits(b, scales, points, k, bits, group)
    if order is not None and not np.array_equal(order[:k], np.arange(k) // group):
        raise invalid(f"g_idx: is another order of the groups; expected depth // {group}")
    if bias is not None:
        if bias.shape != (n,):
            raise invalid(f"bias: has shape {bias.shape}; expected {(n,)}")
        weights.bias = bias.astype(np.float32)
    return weights


def _dequantized_blocks(node: Any, scope: Any) -> GroupedWeights | None:
    """The weights of a product whose B a DequantizeLinear makes of constants in blocks; None for another product."""
    from ._onnx import attributes

    dequantizer = scope.producer(node.input[1])
    if dequantizer is None or dequantizer.op_type != "DequantizeLinear":
        return None
    values, product = attributes(dequantizer), attributes(node)
    group, axis = int(values.get("block_size", 0)), int(values.get("axis", 1))
    if not group:
        return None
    depth_axis = 1 if product.get("transB") else 0
    if axis % 2 != depth_axis:
        raise invalid(f"axis: is {axis}, so blocks have one depth; expected {depth_axis}, blocks of depths")
    if group not in GROUPS:
        raise invalid(f"block_size: is {group}; expected 16, 32, 64, 128 or 256")
    c = node.input[2] if node.op_type == "Gemm" and len(node.input) > 2 else ""
    for factor, matters in (("alpha", True), ("beta", bool(c))):
        if matters and product.get(factor, 1.0) != 1:
            raise invalid(f"{factor}: is {product[factor]:g}; expected 1")

    def rows(i: int, name: str) -> tuple[np.ndarray, str] | None:
        """A constant as N rows, and its type."""
        if len(dequantizer.input) <= i or not dequantizer.input[i]:
            return None
        found = scope.integers_of(dequantizer.input[i]) if i != 1 else (scope.constant(dequantizer.input[i]), "")
        if found is None or found[0] is None or found[0].ndim != 2:
            raise invalid(f"{name}: is no constant of two dimensions and 4 or 8 bits; expected one")
        return (found[0] if depth_axis else np.ascontiguousarray(found[0].T)), found[1]

    (b, b_type), (scales, _), points = rows(0, "weights"), rows(1, "scales"), rows(2, "zero points")
    k, groups = b.shape[1], -(-b.shape[1] // group)
    for name, array in (("scales", scales), ("zero points", points[0] if points else scales)):
        if array.shape != (len(b), groups):
            raise invalid(f"{name}: are for {array.shape[::-1]} blocks; expected {(groups, len(b))}")
    if scales.dtype not in (np.float32, np.float16):
        raise invalid(f"scales: are {scales.dtype}; expected float32 or float16")
    if b_type.endswith("4"):
        low = np.pad(b, [(0, 0), (0, k % 2)]).view(np.uint8) & 15
        b = low[:, ::2] | low[:, 1::2] << 4
    zero_points = points[0] if points else np.zeros_like(scales, np.uint8) if b_type.startswith("u") else None
    bias = scope.constant(c) if c else None
    if c and (bias is None or bias.shape not in ((len(b),), (1, len(b)))):
        raise invalid(f"C: is no constant of {len(b)} values; expected one")
    return GroupedWeights(b, b_type, k, group, scales, zero_points, None if bias is None else bias.reshape(-1).astype(np.float32))


def nbits(b: np.ndarray, scales: np.ndarray, zero_points: np.ndarray | None, k: int, bits: int, group: int) -> GroupedWeights:
    """Weights of MatMulNBits from its inputs. Zero points are uint8, with 4 bits two in a byte, or whole numbers, one for each
    group."""
    if bits not in (4, 8):
        raise invalid(f"bits: is {bits!r}; expected 4 or 8")
    if group not in GROUPS:
        raise invalid(f"block_size: is {group!r}; expected 16, 32, 64, 128 or 256")
    groups, n = -(-k // group), len(b)

    def sized(name: str, array: np.ndarray, dtypes: tuple, row: int) -> np.ndarray:
        if array.dtype not in dtypes or array.size != n * row:
            raise invalid(f"{name}: has {array.size} elements of dtype {array.dtype}; expected {n}×{row} of "
                          + " or ".join(str(np.dtype(dtype)) for dtype in dtypes))
        return array.reshape(n, row)

    b = sized("B", b, (np.uint8,), groups * group * bits // 8)
    scales = sized("scales", scales, (np.float32, np.float16), groups)
    packed = (groups * bits + 7) // 8
    if zero_points is not None and bits == 4 and zero_points.dtype == np.uint8 and zero_points.size == n * packed:
        points = zero_points.reshape(n, packed)
        zero_points = nibbles(points)[:, :groups]  # low bits: the even group
    elif zero_points is not None:
        points = sized("zero_points", zero_points, (np.uint8, np.float32, np.float16), groups)
        if np.any(points != np.clip(np.rint(points), 0, 2**bits - 1)):
            raise invalid(f"zero_points: has a value that is no whole number from 0 to {2**bits - 1}")
        zero_points = points.astype(np.uint8)
    return GroupedWeights(b, f"u{bits}", k, group, scales, zero_points)
