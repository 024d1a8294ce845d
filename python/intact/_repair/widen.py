"""Weights of 7 bits that get the full range of 8 bits, rounded from the float model's weights."""

from __future__ import annotations

import copy
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._audit.audit import Audit, slices
from .._audit.run import weights_zero_point
from .._compare.constants import FloatConstants, Match, agreement, multipliers
from .._formats.model import QuantizedLayer
from .._graph.nodes import attributes, names_that_inner_graphs_read
from .._graph.scope import Scope
from .._library import excerpt

_LEAST_GAIN = 3.0  # decibels; one bit gains 6
_LEAST_BOUNDED_GAIN = 0.5  # decibels, if the layer gets only the range that is safe in the stored order


@dataclass
class WidenedLayer:
    """A layer whose weights have 7 bits. `before`, `after`: decibels of the float weights over the error of
    the quantized weights. `constant`: the name of the float weights. `bounded`: why it got only the range
    that is safe in the stored order. `reason`: why the layer keeps 7 bits; "" if it got more."""

    name: str
    operator: str
    before: float | None = None
    after: float | None = None
    constant: str = ""
    bounded: str = ""
    reason: str = ""


@dataclass
class WidenedActivations:
    """A quantized tensor. `largest`: its largest value on the data; None if a Clip to 127 shows that it has 7
    bits. `reason`: why it keeps 7 bits."""

    name: str
    largest: int | None = None
    reason: str = ""


@dataclass
class Widened:
    """The weights and activations that were examined. `activations`: without data, only tensors that a Clip
    bounds."""

    float_model: str
    layers: list[WidenedLayer] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # the audited layers that got 8 bits
    activations: list[WidenedActivations] = field(default_factory=list)


@dataclass
class Limits:
    """Layers, by number, that are unsafe with 8 bits in every order, and why. `bounded`: layers that get the
    range that is safe in the stored order. `left`: layers that keep 7 bits."""

    bounded: dict[int, str] = field(default_factory=dict)
    left: dict[int, str] = field(default_factory=dict)

    def tighten(self, number: int, reason: str) -> None:
        (self.left if number in self.bounded else self.bounded)[number] = reason


@dataclass
class Weights:
    """Weights of 7 bits, which the layers `of` read. `scale_at`: the node that reads their scale, and the
    number of that input. `shape`: the scale's shape in the layout of the weights."""

    of: list[int]
    place: int
    input: int
    point_input: int
    point: np.ndarray
    scale_at: tuple[int, int]
    scale: np.ndarray
    shape: tuple[int, ...]
    stored: np.ndarray
    match: Match
    new_scale: np.ndarray  # has the shape of `scale`
    new_values: np.ndarray
    reason: str = ""

    @property
    def agreement(self) -> float:
        return agreement(
            self.match.values, self.new_values * self.new_scale.astype(np.float32).reshape(self.shape)
        )

    def keep(self, columns: np.ndarray) -> bool:
        """Leaves columns as stored. Returns false, and changes nothing, if they have no scales of their own,
        or zero points."""
        if self.scale.size != columns.size or self.point.any():
            return False
        self.new_scale = np.where(columns.reshape(self.scale.shape), self.scale, self.new_scale)
        self.new_values = np.where(columns.reshape(self.shape), self.stored, self.new_values)
        return True

    @property
    def ratio(self) -> np.ndarray:
        return self.new_scale.reshape(-1).astype(np.float64) / self.scale.reshape(-1)


def rounded(
    values: np.ndarray, axes: tuple[int, ...], stored: np.ndarray, least: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Weights as s8, −127 to 127, and their scales, as ONNX Runtime's tool quantizes symmetrically. `axes`:
    the scale does not vary along them. A scale is at least the smaller one of `least` and the stored scale.
    Channels of zeros keep their scale."""
    largest = np.abs(values).max(axis=axes, keepdims=True, initial=0)
    scale = (largest.astype(np.float64) / 127).astype(np.float32)
    scale = np.where(
        scale < np.finfo(np.float32).tiny, stored, np.maximum(scale, np.minimum(least, stored))
    ).astype(stored.dtype)
    return np.clip(np.rint(values / scale.astype(np.float32)), -127, 127).astype(np.int8), scale


def _largest_pair_sums(matrix: np.ndarray, is_unsigned: bool) -> np.ndarray:
    """For each column the largest sum of two adjacent weights of one sign; for signed activations, of two
    magnitudes."""
    whole = np.zeros((len(matrix) + len(matrix) % 2, matrix.shape[1]), np.int32)
    whole[: len(matrix)] = matrix
    a, b = whole[0::2], whole[1::2]
    return (np.abs(a) + np.abs(b) if not is_unsigned else np.where(a * b > 0, np.abs(a + b), 0)).max(
        axis=0, initial=0
    )


class WeightsWidener:
    """Finds weights of 7 bits and rounds them again."""

    def __init__(self, audit: Audit, float_model: str | os.PathLike, limits: Limits):
        self.audit, self.constants, self.limits = audit, FloatConstants(float_model), limits
        self.folder = Path(audit.model.path).parent
        self.graph = audit.model.proto.graph
        self.scope = Scope(self.graph, self.folder)
        self.places = {id(node): i for i, node in enumerate(self.graph.node)}
        self.kept = {value.name for value in self.graph.output} | self.scope.overridable
        self.kept |= names_that_inner_graphs_read(self.graph)
        self.found = Widened(str(float_model))
        self.rows: dict[int, WidenedLayer] = {}
        self.weights: list[Weights] = []
        self.tensors: list = []  # of range.py

    # ----- weights ------------------------------------------------------------------------------------------------------

    def find_weights(self) -> None:
        groups: dict[tuple, list[int]] = {}
        for i, audited in enumerate(self.audit.layers):
            layer = audited.layer
            key = (
                (self.places[id(layer.weights_node)], layer.weights_input)
                if layer.weights_node is not None
                else ("inner", i)
            )
            groups.setdefault(key, []).append(i)
        for numbers in groups.values():
            layers = [self.audit.layers[i] for i in numbers]
            if not any(audited.uses_7_bits for audited in layers):
                continue
            for i in numbers:
                layer = self.audit.layers[i].layer
                self.rows[i] = WidenedLayer(layer.name, layer.node)
            reason = (
                self._weights(numbers)
                if all(audited.uses_7_bits for audited in layers)
                else ("the weights of its other direction have 8 bits")
            )
            for i in numbers:
                self.rows[i].reason = reason
        self.found.layers = list(self.rows.values())

    def _weights(self, numbers: list[int]) -> str:
        """Rounds the weights of layers that share one tensor. Returns "", or the reason if it does not."""
        layer = self.audit.layers[numbers[0]].layer
        node = layer.weights_node
        if node is None:
            return "an inner graph"
        name = node.input[layer.weights_input]
        stored = self.scope.constant(name)
        point = weights_zero_point(layer, copy.deepcopy(node), self.scope)
        if stored is None or point is None:
            return "its weights' zero point or scale is no constant"
        read = [
            name,
            *node.input[layer.point_input : layer.point_input + 1],
            *(node.output if layer.is_qdq else ()),
        ]
        best: Weights | None = None
        places, reason = self._scales(layer)
        for place, k in places:
            scale_name = self.graph.node[place].input[k]
            scale = self.scope.constant(scale_name)
            shape = None if scale is None else self._shape(layer, node, stored, scale)
            if scale is None or shape is None or not (np.isfinite(scale).all() and (scale > 0).all()):
                continue
            point_shape = shape if point.size > 1 else (1,) * stored.ndim
            if point.size not in (1, math.prod(shape)):
                continue
            whole = (stored.astype(np.int32) - point.astype(np.int32).reshape(point_shape)).astype(np.float32)
            dequantized = whole * scale.astype(np.float32).reshape(shape)
            match = self.constants.find(name, dequantized)
            if match is None or (best is not None and best.match.agreement >= match.agreement):
                continue
            axes = tuple(d for d in range(stored.ndim) if shape[d] == 1)
            least = self._least(numbers, scale).reshape(shape)
            values, new_scale = rounded(match.values, axes, scale.reshape(shape), least)
            best = Weights(
                numbers,
                self.places[id(node)],
                layer.weights_input,
                layer.point_input,
                point,
                (place, k),
                scale,
                shape,
                stored,
                match,
                new_scale.reshape(scale.shape),
                values,
            )
        if best is None:
            return reason or (
                "no constant of the float model is near its weights" if places else "its scale is not found"
            )
        read.append(self.graph.node[best.scale_at[0]].input[best.scale_at[1]])
        held = next((one for one in read if one in self.kept), None)
        if held is not None:
            return f"{excerpt(held)} is an output, or an inner graph or a caller reads it"
        after = best.agreement
        for i in numbers:
            row = self.rows[i]
            row.before, row.after, row.constant = best.match.agreement, after, best.match.name
            row.bounded = next((self.limits.bounded[i] for i in numbers if i in self.limits.bounded), "")
        left = next((self.limits.left[i] for i in numbers if i in self.limits.left), "")
        if left or (row.bounded and after < best.match.agreement + _LEAST_BOUNDED_GAIN):
            return f"8 bits would need u8 weights ({left or row.bounded})"
        if not row.bounded and after < best.match.agreement + _LEAST_GAIN:
            return "its weights are small, not halved: 8 bits are no nearer to the float weights"
        self.weights.append(best)
        return ""

    def _least(self, numbers: list[int], scale: np.ndarray) -> np.ndarray:
        """The least scales with which no pair of bounded layers can saturate in the stored order. A 7-bit
        weight is up to half a step from the float weight, and so is the new weight."""
        found = []
        for i in numbers:
            layer = self.audit.layers[i].layer
            sums = np.zeros(layer.weights.shape[0 if layer.is_convolution else -1])
            pairings = self.audit.layers[i].pairings(self.audit.engines) - {"none"}
            for pairs in pairings if i in self.limits.bounded else ():
                parts = [_largest_pair_sums(matrix, layer.a_type == "u8") for matrix in slices(layer, pairs)]
                sums = np.maximum(sums, np.concatenate(parts))
            most = 32767 // max(-layer.a_range[0], layer.a_range[1], 1) - 1
            found.append(np.where(sums > 0, (sums + 1) / most, 0))
        columns = np.concatenate(found)
        if columns.size % scale.size:
            columns = np.full(scale.size, columns.max())
        # Several columns may have one scale: the columns of a direction, or of all items of a batch.
        by_scale = (
            columns.reshape(scale.size, -1).max(1)
            if len(numbers) > 1 or scale.size == 1
            else (columns.reshape(-1, scale.size).max(0))
        )
        return by_scale * scale.reshape(-1)

    def _scales(self, layer: QuantizedLayer) -> tuple[list[tuple[int, int]], str]:
        """The inputs of nodes that may be the weights' scale, and the reason if there are none."""
        node = layer.weights_node
        if layer.scale_input is None:
            return self._multipliers(node)
        return [(self.places[id(node)], layer.scale_input)], ""

    def _multipliers(self, node: Any) -> tuple[list[tuple[int, int]], str]:
        """Constants that multiply an integer product, directly or through a Mul with the activations'
        scale."""
        found: list[tuple[int, int]] = []
        muls, end = multipliers(self.scope, node, self.kept)
        for mul, k in muls:
            other = mul.input[k]
            maker = self.scope.producer(other)
            if self.scope.constant(other) is not None:
                found.append((self.places[id(mul)], k))
            elif maker is not None and maker.op_type == "Mul" and id(maker) in self.places:
                constants = [i for i in (0, 1) if self.scope.constant(maker.input[i]) is not None]
                if constants and (len(self.scope.consumers[other]) > 1 or other in self.kept):
                    return found, f"its scale {excerpt(other)!r} has other readers"
                found += [(self.places[id(maker)], i) for i in constants]
        return (
            found,
            f"its sums {excerpt(end)!r} have other readers than a Mul by its scale"
            if end and not found
            else "",
        )

    @staticmethod
    def _shape(
        layer: QuantizedLayer, node: Any, stored: np.ndarray, scale: np.ndarray
    ) -> "tuple[int, ...] | None":
        """The shape in which a scale multiplies the stored weights; None if the two do not fit."""
        rank = stored.ndim
        values = attributes(node)
        if layer.op_type == "DynamicQuantizeLSTM":  # a value for each direction, or for each of its columns
            shape = (len(stored), 1, scale.size // len(stored))
            return shape if scale.size in (len(stored), len(stored) * stored.shape[2]) else None
        if scale.size == 1:
            return (1,) * rank
        if values.get("block_size"):
            return None
        if layer.is_qdq:
            axis = values.get("axis", 1)
        elif layer.is_convolution:
            axis = 0
            if layer.op_type == "ConvInteger" and (
                scale.ndim < rank - 1 or scale.shape[1 - rank] != scale.size
            ):
                return None
        else:
            axis = rank - 2 if values.get("transB") else rank - 1
            if scale.shape[-1] != scale.size:
                return None
        if not -rank <= axis < rank or scale.size != stored.shape[axis]:
            return None
        return tuple(scale.size if d == axis % rank else 1 for d in range(rank))
