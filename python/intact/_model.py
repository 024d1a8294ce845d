"""What readers of model files find: the quantized layers of a model, whatever its format."""

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
    a_why: str  # what bounds the activations
    scales: np.ndarray | None = None  # outputs' steps for each unit of the sum, a value or one for each column
    groups: int = 1
    note: str = ""
    is_shifted: bool = False  # whether other engines take s8 activations as u8, shifted by 128
    # Of ONNX models only, for --data:
    activation: str = ""  # the quantized activations' tensor; "" where they cannot be seen on data
    graph_node: Any = None  # the operator, in the outermost graph; None elsewhere
    weights_node: Any = None  # the node that reads the weights: the operator, or their DequantizeLinear
    inner_node: Any = None  # the same of an operator in an inner graph
    within: str = ""  # which inner graph
    scope: Any = None  # the names that its graph sees
    weights_input: int = 1  # which of its inputs they are
    point_input: int = 2  # and which their zero point is
    view: Any = None  # makes `weights` of the constant, and of any array with its shape

    @property
    def node(self) -> str:
        """The operator in words."""
        return self.op_type + (" (QDQ)" if self.is_qdq else "")

    @property
    def scale_input(self) -> int | None:
        """Which input of `weights_node` is the weights' scale; None: a Mul behind the operator reads it."""
        if self.op_type in ("MatMulInteger", "ConvInteger"):
            return None
        return {"MatMulIntegerToFloat": 3, "QAttention": 4}.get(self.op_type, self.point_input - 1)

    @property
    def is_convolution(self) -> bool:
        return self.weights.ndim > 2


@dataclass
class QuantizedModel:
    """What a model multiplies in int8, and what was passed over: name of an operator, or reason, and how often."""

    path: str
    engine: str = "onnxruntime"  # the engine that runs files of this format
    layers: list[QuantizedLayer] = field(default_factory=list)
    passed_over: dict[str, int] = field(default_factory=dict)
    not_audited: int = 0  # of what was passed over, what may add in int16
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
    """Bounds of quantized activations from those of the real ones. `is_padded`: the padding, the zero point, is among them."""
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
