"""The control of comparisons: the exact variant with rounding noise in its float constants.

Noise stands for a computation in another order, so it may change values only. A constant that describes a
computation keeps its bytes: an exponent, the scales of a Resize, a mask's constants, whatever becomes an
integer or is compared."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np

from .nodes import array_of_tensor, attributes, every_node
from .operators import row_of
from .weights import set_array

CONTROL = 1e-7  # relative change of a float constant
_PIECE = 1 << 20  # numbers that are changed at once; even
_FLOAT = 1  # onnx.TensorProto.FLOAT
_FLOATS = {1, 10, 11, 16}  # onnx.TensorProto.DataType: float, float16, double, bfloat16


class _Roles:
    """What the tensors of a graph and of its inner graphs are. `descriptions`: tensors that describe a
    computation. `exact`: tensors that arithmetic makes from integers, shapes and constants, so that no
    rounding noise is in them."""

    def __init__(self, graph: Any):
        self.nodes = list(every_node(graph))
        self.readers: dict[str, list[tuple[Any, int]]] = {}
        for node in self.nodes:
            for place, name in enumerate(node.input):
                self.readers.setdefault(name, []).append((node, place))
        self.constants = {tensor.name for tensor in graph.initializer}
        self.descriptions = self._descriptions()
        self.exact = self._exact(graph)

    def _descriptions(self) -> set[str]:
        producers = {name: node for node in self.nodes for name in node.output if name}
        stack = [
            name
            for node in self.nodes
            for place, name in enumerate(node.input)
            if place in row_of(node).descriptions
            or (node.op_type == "Cast" and attributes(node).get("to") not in _FLOATS)
        ]
        found: set[str] = set()
        while stack:
            name = stack.pop()
            if name in found:
                continue
            found.add(name)
            node = producers.get(name)
            if node is not None and row_of(node).is_arithmetic:
                stack += node.input
        return found

    def _exact(self, graph: Any) -> set[str]:
        found = (
            {value.name for value in graph.input if value.type.tensor_type.elem_type not in _FLOATS}
            | self.constants
            | {""}
        )
        for node in graph.node:
            is_lookup = node.op_type == "Gather" and node.input[0] in self.constants  # of an embedding, say
            if row_of(node).has_no_noise or (
                (row_of(node).is_arithmetic or node.op_type == "Range")
                and not is_lookup
                and all(name in found for name in node.input)
            ):
                found.update(node.output)
        return found

    def is_value(self, name: str, array: np.ndarray) -> bool:
        """Whether every operator that reads a constant reads it as a value, in which rounding noise may
        be."""

        def reads_value(node: Any, place: int) -> bool:
            if place not in row_of(node).values:
                return False
            if not row_of(node).is_arithmetic:
                return True
            return not any(
                out in self.descriptions or out in self.exact for out in node.output
            ) and not _is_of_a_formula(array)

        return name not in self.descriptions and all(
            reads_value(*reader) for reader in self.readers.get(name, ())
        )


def _is_of_a_formula(array: np.ndarray) -> bool:
    """Whether a constant of arithmetic is one number that float32 products and sums mostly keep exact: the 1
    of 1 − x, the 255 of 255·x, a power of two."""
    if array.size != 1:
        return False
    value = float(array.reshape(-1)[0])
    return value == round(value) or abs(np.frexp(value)[0]) == 0.5 if np.isfinite(value) else True


def control_variant(proto: Any, owner: Any = None, draw: int = 0) -> Any:
    """The model with each float constant that all its readers read as a value changed by a relative 1e-7,
    alternately up and down. Finite numbers stay finite. `owner`: as for set_array(). `draw`: other numbers
    than 0 change each number at random up or down."""
    changed = copy.deepcopy(proto)
    roles = _Roles(changed.graph)
    rng = np.random.default_rng(draw)
    for tensor in changed.graph.initializer:
        if tensor.data_type != _FLOAT:
            continue
        stored = array_of_tensor(tensor, Path())  # variants have no other files
        if not roles.is_value(tensor.name, stored):
            continue
        flat = stored.reshape(-1)
        array = np.empty(flat.shape, np.float32)
        for begin in range(0, flat.size, _PIECE):
            piece = flat[begin : begin + _PIECE]
            signs = np.where(rng.integers(0, 2, len(piece)) if draw else np.arange(len(piece)) % 2, -1.0, 1.0)
            with np.errstate(over="ignore", invalid="ignore"):
                moved = (piece.astype(np.float64) * (1 + CONTROL * signs)).astype(np.float32)
            array[begin : begin + _PIECE] = np.where(np.isfinite(moved), moved, piece)
        set_array(tensor, array.reshape(stored.shape), owner)
    return changed
