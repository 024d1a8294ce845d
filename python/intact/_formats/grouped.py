"""Weights with a scale for each group of depths, from files: MatMulNBits of ONNX, the types of GGUF
(_plans/ggml_types.py), and the formats of safetensors files (safetensors.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import numpy as np

from .._graph.nodes import attributes, inner_graphs, load_onnx, reading
from .._graph.scope import Scope
from .._library import Error, excerpt, invalid
from .._plans.grouped_weights import GROUPS, GroupedWeights, nbits
from .gguf import read_gguf
from .safetensors import read_safetensors


def read_grouped_weights(path: str | Path) -> Iterator[tuple[str, GroupedWeights]]:
    """The weights in groups of a file, one matrix after the other, each with a name:

    - ONNX: MatMulNBits nodes, and MatMul and Gemm nodes whose weights a DequantizeLinear with a `block_size`
      makes of constants of 4 or 8 bits, in blocks of depths; the name of the node, or of its output if it has
      no name. Needs the package onnx.
    - GGUF: tensors of type Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL and MXFP4. A tensor with
      the matrices of several experts yields each, named `name[i]`. Needs gguf.
    - safetensors, or a folder of such files: layers of GPTQ, AWQ, compressed-tensors (pack-quantized and
      int-quantized) and torchao (Int8Tensor, IntxUnpackedToInt8Tensor); the name of the layer. Needs
      safetensors, and ml_dtypes for bfloat16.

    Other nodes and tensors are passed over. Raises `Error` if the file cannot be read. A node of ONNX whose
    weights cannot be read is skipped; after the last node an `Error` says why."""
    path = Path(path)
    if path.suffix == ".gguf":
        yield from read_gguf(path)
        return
    if path.suffix == ".safetensors" or path.is_dir():
        yield from read_safetensors(path)
        return

    failed: list[str] = []
    with reading(path):
        yield from _read_graph(load_onnx(path).graph, path.parent, None, 0, failed)
        if failed:
            more = f" ({len(failed)} nodes were skipped)" if len(failed) > 1 else ""
            raise invalid(failed[0] + more)


def _read_graph(
    graph: Any, folder: Path, parent: Any, depth: int, failed: list[str]
) -> Iterator[tuple[str, GroupedWeights]]:
    """`failed` gets a line for each node whose weights cannot be read."""

    scope = Scope(graph, folder, parent)
    for node in graph.node:
        read = {
            ("com.microsoft", "MatMulNBits"): _matmul_nbits,
            ("", "MatMul"): _dequantized_blocks,
            ("", "Gemm"): _dequantized_blocks,
        }.get((node.domain if node.domain != "ai.onnx" else "", node.op_type))
        weights = None
        try:
            weights = read(node, scope) if read else None
        except Error as error:
            failed.append(f"{node.op_type} {excerpt(node.name or node.output[0])!r}: {error.message}")
        if weights is not None:
            yield node.name or node.output[0], weights
        for _, inner in inner_graphs(node, depth):
            yield from _read_graph(inner, folder, scope, depth + 1, failed)


def _matmul_nbits(node: Any, scope: Any) -> GroupedWeights:
    """The weights of a MatMulNBits node. `scope`: the constants of its graph."""

    values = attributes(node)
    k, n, bits, group = (
        int(values.get(key, default)) for key, default in (("K", 0), ("N", 0), ("bits", 4), ("block_size", 0))
    )
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
    """The weights of a product whose B a DequantizeLinear makes of constants in blocks; None for another
    product."""

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
        found = (
            scope.integers_of(dequantizer.input[i]) if i != 1 else (scope.constant(dequantizer.input[i]), "")
        )
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
    bias = None if bias is None else bias.reshape(-1).astype(np.float32)
    return GroupedWeights(b, scales, k, group, b_type, zero_points, bias)
