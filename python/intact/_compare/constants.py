"""Finds the constant of the float model from which quantized weights were made. Helpers of the search: strip
the suffixes that tools append to names, compare weights, and find the scale of an integer product.

The search tries names first. Tools rename constants, so the values decide: dequantized weights are close to
the float constant from which they were made, and to no other. Values also show which constant of a quantized
model is the scale."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Container, Iterator

import numpy as np

from .._engines.data import decibels, power
from .._formats.onnx import read_onnx
from .._graph.scope import Scope

LEAST_AGREEMENT = 10.0  # decibels; the weights of another layer have 0 or less
_SAMPLE = 1 << 14  # elements that are compared to choose a constant
# Suffixes that tools append to the names of tensors and of nodes.
_SUFFIXES = tuple(
    "_quantized _quant _nchwc _MatMul _Transposed _DequantizeLinear_Output _QuantizeLinear_Output".split()
)
_WALK = 8  # the search for a product's scale follows at most this many operators
_FLOATS = {1, 10, 11}  # FLOAT, FLOAT16, DOUBLE of onnx.TensorProto


@dataclass
class Match:
    """A float constant, and its values in the layout of the quantized weights. `agreement`: the SQNR of the
    dequantized weights, in decibels."""

    name: str
    values: np.ndarray
    agreement: float


def agreement(values: np.ndarray, dequantized: np.ndarray) -> float:
    """The SQNR of dequantized values, in decibels: power of the float values over power of the error."""
    return decibels(power(values), float(np.square(np.subtract(values, dequantized, dtype=np.float64)).sum()))


def names_before(name: str) -> list[str]:
    """The names that a tensor or a node may have had before tools appended suffixes: the name itself, then
    shorter names."""
    found = []
    while name:
        found.append(name)
        name = next((name[: -len(suffix)] for suffix in _SUFFIXES if name.endswith(suffix)), "")
    return found


def samples_of(*arrays: np.ndarray) -> list[np.ndarray]:
    """A sample of each array, from equal places, small enough to compare quickly. The arrays must be equally
    large."""
    return [array.reshape(-1)[:: max(array.size // _SAMPLE, 1)] for array in arrays]


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """The cosine of two arrays of weights, computed from samples: 1 if they are proportional."""
    a, b = samples_of(a, b)
    lengths = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return float(a @ b) / lengths if lengths > 0 and np.isfinite(lengths) else 0.0


def multipliers(scope: Scope, node: Any, kept: Container[str] = ()) -> tuple[list[tuple[Any, int]], str]:
    """Walks from an integer product to the Muls that scale its sums. Returns each Mul with the number of its
    other input. Also returns the tensor that ended the walk, because it is in `kept` or does not have exactly
    one reader; else ""."""
    found, name = [], node.output[0]
    for _ in range(_WALK):
        readers = scope.consumers.get(name, [])
        if name in kept or len(readers) != 1:
            return found, name
        (reader,) = readers
        if reader.op_type == "Mul":
            found.append((reader, 1 - list(reader.input).index(name)))
        elif reader.op_type not in ("Cast", "Identity"):
            break
        name = reader.output[0]
    return found, ""


class FloatConstants:
    """The float constants of an ONNX file. `scope` names the operators that read them. Raises `Error` for a
    file that cannot be read."""

    def __init__(self, path: str | os.PathLike):
        graph = read_onnx(path).proto.graph
        self.scope = Scope(graph, Path(path).parent)
        self.shapes = {
            tensor.name: tuple(tensor.dims) for tensor in graph.initializer if tensor.data_type in _FLOATS
        }
        for node in graph.node:
            value = self.scope.constant(node.output[0]) if node.op_type == "Constant" else None
            if value is not None and value.dtype.kind == "f":
                self.shapes[node.output[0]] = value.shape

    def name_of(self, name: str) -> str:
        """The float constant with this name, or with the name before tools appended suffixes; "" if there is
        none."""
        return next((one for one in names_before(name) if one in self.shapes), "")

    def values(self, name: str) -> np.ndarray | None:
        value = self.scope.constant(name) if name in self.shapes else None
        return None if value is None else value.astype(np.float32)

    def find(self, name: str, dequantized: np.ndarray) -> Match | None:
        """The float constant from which weights were made. `name`: the quantized tensor's name, tried
        first."""
        named = self.name_of(name)
        best = self._closest([named], dequantized) if named else None
        if best is None or best.agreement < LEAST_AGREEMENT:
            best = self._closest(self.shapes, dequantized)
        return best if best is not None and best.agreement >= LEAST_AGREEMENT else None

    def _layouts(self, name: str, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
        """A constant's values, as stored and with the last two dimensions swapped, if this gives `shape`."""
        stored = self.shapes[name]
        if stored != shape and (len(shape) < 2 or stored != (*shape[:-2], *shape[:-3:-1])):
            return
        values = self.values(name)
        if values is not None and stored == shape:
            yield values
        if values is not None and len(shape) > 1 and stored == (*shape[:-2], *shape[:-3:-1]):
            yield values.swapaxes(-1, -2)

    def _closest(self, names: "list[str] | dict", dequantized: np.ndarray) -> Match | None:
        shape = dequantized.shape
        found = [
            (agreement(*samples_of(values, dequantized)), name, values)
            for name in names
            for values in self._layouts(name, shape)
        ]
        if not found:
            return None
        _, name, values = max(found, key=lambda one: one[0])
        return Match(name, values, agreement(values, dequantized))
