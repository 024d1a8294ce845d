"""The quantized layers of a model, as the readers of all file formats describe them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._library import excerpt

TYPE_RANGES = {"u8": (0, 255), "s8": (-128, 127)}


@dataclass
class QuantizedLayer:
    """A product of activations and constant int8 weights. `weights`: K×N, or (O, *kernel, I/groups) of a convolution."""

    name: str
    operator: str  # as in engines.json
    op_type: str  # the model's operator
    is_qdq: bool  # between DequantizeLinear and QuantizeLinear
    a_type: str
    b_type: str
    weights: np.ndarray
    a_range: tuple[int, int]
    a_why: str  # the operators that bound the activations
    scales: np.ndarray | None = None  # steps of the output for each unit of the sum: one value, or one for each column
    groups: int = 1
    note: str = ""
    is_shifted: bool = False  # whether other engines shift the s8 activations to u8, by 128
    # For ONNX models only:
    activation: str = ""  # the quantized activations' tensor; "" if a run cannot show them
    graph_node: Any = None  # the operator; None if it is in an inner graph
    weights_node: Any = None  # the node that reads the weights: the operator, or their DequantizeLinear; None as above
    inner_node: Any = None  # the node that reads the weights, if the operator is in an inner graph
    within: str = ""  # the inner graph in words
    scope: Any = None  # the Scope of its graph
    weights_input: int = 1  # the number of the node's input that the weights are
    point_input: int = 2  # the number of the input that their zero point is
    view: Any = None  # arranges the constant, or any array of its shape, like `weights`

    @property
    def node(self) -> str:
        """The operator in words, for reports."""
        return self.op_type + (" (QDQ)" if self.is_qdq else "")

    @property
    def scale_input(self) -> int | None:
        """The number of the input of `weights_node` that is the weights' scale; None: a Mul after the operator reads it."""
        if self.op_type in ("MatMulInteger", "ConvInteger"):
            return None
        return {"MatMulIntegerToFloat": 3, "QAttention": 4}.get(self.op_type, self.point_input - 1)

    @property
    def is_convolution(self) -> bool:
        return self.weights.ndim > 2


@dataclass
class QuantizedModel:
    """The layers that a model multiplies in int8. `passed_over`: operators that were left out, or the reason, and how often."""

    path: str
    engine: str = "onnxruntime"  # the engine that runs files of this format
    layers: list[QuantizedLayer] = field(default_factory=list)
    passed_over: dict[str, int] = field(default_factory=dict)
    not_audited: int = 0  # how many operators passed over may add in int16
    operators: int = 0
    proto: Any = None  # of an ONNX model
    names: set[str] = field(default_factory=set)  # of layers

    def pass_over(self, reason: str, is_harmless: bool = False) -> None:
        self.not_audited += not is_harmless
        reason = excerpt(reason)
        self.passed_over[reason] = self.passed_over.get(reason, 0) + 1

    def unique(self, name: str, suffix: str = "") -> str:
        """A layer's name, fit for a terminal; a second layer of that name also gets its operator's number."""
        name = excerpt(name, 400) + suffix
        if name in self.names:
            name += f" (operator {self.operators})"
        self.names.add(name)
        return name


def type_name(dtype: Any) -> str:
    """"u8", "s8", or "" for other types."""
    return {np.uint8: "u8", np.int8: "s8"}.get(np.dtype(dtype).type, "")


def bounded(real: tuple[float, float], why: str, scale: float, point: int, limits: tuple[int, int],
            is_padded: bool) -> tuple[int, int, str]:
    """Bounds of quantized activations, from the bounds of the real values. `is_padded`: includes the padding, the zero point."""
    low, high = limits
    if not math.isfinite(scale) or scale <= 0:
        return low, high, ""

    def quantized(value: float, slack: int) -> int:  # engines divide in float32: one step of slack
        return int(np.clip(np.rint(np.clip(value / scale, -1e6, 1e6)) + point + slack, low, high))

    bounds = quantized(real[0], -1), quantized(real[1], 1)
    if is_padded:
        bounds = min(bounds[0], point), max(bounds[1], point)
    return (*bounds, why if bounds != (low, high) else "")


def ratio(a: np.ndarray | None, b: np.ndarray | None, c: np.ndarray | None) -> np.ndarray | None:
    """Steps of the output for each unit of the sum: scale of A times scale of B over scale of C; None if unknown."""
    if a is None or b is None or c is None:
        return None
    with np.errstate(invalid="ignore"):
        a, b, c = (np.asarray(value, np.float64).reshape(-1) for value in (a, b, c))
    if a.size != 1 or c.size != 1 or not b.size or not all(np.isfinite(v).all() and (v > 0).all() for v in (a, b, c)):
        return None
    return a * b / c
