"""The quantized layers of a model, as the readers of all file formats describe them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._graph.operators import OPERATORS
from .._library import excerpt

TYPE_RANGES = {"u8": (0, 255), "s8": (-128, 127)}


@dataclass
class QuantizedLayer:
    """A product of activations and constant int8 weights. `weights`: K×N, or (O, *kernel, I/groups) of a
    convolution."""

    name: str
    operator: str  # its name in the table of engines
    op_type: str  # its type in the model
    is_qdq: bool  # between DequantizeLinear and QuantizeLinear
    a_type: str
    b_type: str
    weights: np.ndarray
    a_range: tuple[int, int]
    a_why: str  # the operators that bound the activations
    scales: np.ndarray | None = None  # requantization scales, see ratio(): one value, or one for each column
    groups: int = 1
    note: str = ""
    is_shifted: bool = False  # whether other engines shift the s8 activations to u8, by 128
    float_in: str = ""  # the engine that computes this layer in floats, by its name for readers
    # For ONNX models only:
    activation: str = ""  # name of the quantized activations; "" if a run cannot output them
    graph_node: Any = None  # the operator's node; None if it is in an inner graph
    # the node that reads the weights: graph_node or a DequantizeLinear; None if in an inner graph
    weights_node: Any = None
    inner_node: Any = None  # like weights_node, if the operator is in an inner graph; else None
    within: str = ""  # describes the inner graph, for reports
    scope: Any = None  # the Scope of the operator's graph
    weights_input: int = 1  # index of the weights among the inputs of weights_node or inner_node
    point_input: int = 2  # index of the weights' zero point among these inputs
    # a function that gives the stored constant, or an array of its shape, the shape of `weights`
    view: Any = None

    @property
    def node(self) -> str:
        """The operator in words, for reports."""
        return self.op_type + (" (QDQ)" if self.is_qdq else "")

    @property
    def scale_input(self) -> int | None:
        """Index of the weights' scale among the inputs of `weights_node`; None if a Mul after the operator
        reads the scale."""
        inputs = OPERATORS[self.op_type].inputs if not self.is_qdq and self.op_type in OPERATORS else None
        # whose two weights have scales before the zero points
        if inputs is None or self.op_type == "DynamicQuantizeLSTM":
            return self.point_input - 1
        return inputs.b_scale

    @property
    def is_convolution(self) -> bool:
        return self.weights.ndim > 2


@dataclass
class ActivationProduct:
    """A product whose second operand is no constant. `layer` has the operator, the types, and the first
    operand's range; its weights are placeholders of one pair. `b_range`: bounds of the second operand."""

    layer: QuantizedLayer
    b_range: tuple[int, int]


@dataclass
class QuantizedModel:
    """The int8 layers of a model. `products`: products of two activations. `passed_over`: the number of
    operators left out, by operator type and reason."""

    path: str
    engine: str = "onnxruntime"  # the engine that runs files of this format
    layers: list[QuantizedLayer] = field(default_factory=list)
    products: list[ActivationProduct] = field(default_factory=list)
    passed_over: dict[str, int] = field(default_factory=dict)
    not_audited: int = 0  # number of operators left out that may add products in int16
    operators: int = 0
    proto: Any = None  # the file's content, if it is an ONNX model
    names: set[str] = field(default_factory=set)  # names of layers
    fusions: Any = None  # what ONNX Runtime makes of QDQ groups (fusion.Fusions), if the model has some

    def pass_over(self, reason: str, is_harmless: bool = False) -> None:
        self.not_audited += not is_harmless
        reason = excerpt(reason, 200)
        self.passed_over[reason] = self.passed_over.get(reason, 0) + 1

    def add_product(
        self, name: str, op_type: str, a_type: str, b_type: str, a_bounds: tuple, b_bounds: tuple
    ) -> None:
        """Adds a MatMul of two activations of a TFLite or an OpenVINO model. Bounds begin with the smallest
        and the largest value."""
        weights = np.zeros((2, 1), np.uint8 if b_type == "u8" else np.int8)
        layer = QuantizedLayer(
            self.unique(name),
            "MatMul",
            op_type,
            False,
            a_type,
            b_type,
            weights,
            a_bounds[:2],
            "",
            is_shifted=a_type == "s8",
        )
        self.products.append(ActivationProduct(layer, b_bounds[:2]))

    def left_out(self) -> list[str]:
        """The operators left out: a line for each reason."""
        return [f"passed over: {count} x {reason}" for reason, count in sorted(self.passed_over.items())]

    def decided_by(self) -> list[str]:
        """Who says which QDQ groups multiply integers: a line, or none for a model without QDQ groups."""
        if self.fusions:
            return [f"note: {self.fusions.source} decided which QDQ groups multiply integers"]
        return []

    def unique(self, name: str, suffix: str = "") -> str:
        """A unique name of a layer, safe to print. If `name` is taken, the operator's number is appended."""
        name = excerpt(name, 400) + suffix
        if name in self.names:
            name += f" (operator {self.operators})"
        self.names.add(name)
        return name


def bounded(
    real: tuple[float, float], why: str, scale: float, point: int, limits: tuple[int, int], is_padded: bool
) -> tuple[int, int, str]:
    """Bounds of quantized activations, from bounds of the real values. `is_padded`: the zero point pads them,
    so include it."""
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
    """The requantization scales: scale of A times scale of B over scale of C; None if unknown."""
    if a is None or b is None or c is None:
        return None
    with np.errstate(invalid="ignore"):
        a, b, c = (np.asarray(value, np.float64).reshape(-1) for value in (a, b, c))
    if (
        a.size != 1
        or c.size != 1
        or not b.size
        or not all(np.isfinite(v).all() and (v > 0).all() for v in (a, b, c))
    ):
        return None
    return a * b / c
