"""Finds, for the layers of a quantized ONNX model, the nodes of the float model that they were made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._formats.model import QuantizedLayer
from .._graph.nodes import as_matrix, attributes, input_of, load_onnx
from .._graph.operators import row_of
from .._graph.scope import Scope
from .._library import excerpt, invalid
from .constants import correlation, multipliers, names_before

ALIKE = 0.7  # weights that correlate at least this much count as the same
_CHAIN = 4  # most operators between a product and the tensor that is compared
_PER_CHANNEL = {"Add", "Sub", "Mul", "Div", "BatchNormalization", "Relu", "Clip", "LeakyRelu", "Identity"}


@dataclass
class FloatNode:
    """A product with constant weights in the float model. `weights`: laid out like the weights of a
    QuantizedLayer. `outputs`: its output tensor, then the tensors after a bias, a normalisation or an
    activation."""

    name: str
    node: Any
    weights: np.ndarray
    outputs: list[str]
    part: str = ""  # which of the node's weights, in words

    @property
    def input(self) -> str:
        return self.node.input[0]


@dataclass
class Output:
    """A tensor that holds a layer's result, and its quantization, if it is quantized."""

    name: str
    scale: float = 0.0
    point: int = 0
    dtype: Any = None

    def real(self, values: np.ndarray) -> np.ndarray:
        return (values.astype(np.float64) - self.point) * self.scale if self.scale else values


@dataclass
class Matched:
    """A layer, its float node (None: `how` gives the reason), and how its numbers are stored. `real`: its
    dequantized weights. `scales`: one for each column, or one. `smooth`: a factor for each depth, with which
    the quantizer multiplies the float input.

    `bounds`: bounds of the float input, if a Relu or a Clip computes it. The quantizer may have removed this
    operator, because the integers' range implies it. `cut`: the tensor that is the layer's input: quantized
    if the file states the scale, else float."""

    layer: QuantizedLayer
    float_node: FloatNode | None = None
    how: str = ""
    real: np.ndarray | None = None
    scales: np.ndarray | None = None
    smooth: np.ndarray | None = None
    bounds: tuple[float, float] = (-np.inf, np.inf)
    cut: str = ""
    cut_type: Any = None
    scale: float = 0.0
    point: int = 0
    outputs: list[Output] = field(default_factory=list)
    # the stored bias, dequantized, and the float node's bias
    biases: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def is_static(self) -> bool:
        return self.scale > 0

    @property
    def is_product(self) -> bool:
        """Whether the layer's input is visible, so that its product can be computed outside the network."""
        return bool(self.layer.activation) and self.layer.graph_node is not None

    @property
    def weights(self) -> np.ndarray:
        """The float node's weights, divided by `smooth`."""
        weights = self.float_node.weights
        if self.smooth is None:
            return weights
        return weights / (self.smooth if self.layer.is_convolution else self.smooth[:, None])


def columns_last(weights: np.ndarray) -> np.ndarray:
    """Weights of either layout as K×N: a column for each output channel."""
    return weights.reshape(len(weights), -1).T if weights.ndim > 2 else weights


def along_columns(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """One value, or one for each column, in a shape that broadcasts to `weights`."""
    return values.reshape(-1, *[1] * (weights.ndim - 1)) if weights.ndim > 2 else values


def following(scope: Scope, name: str) -> list[str]:
    """The tensors after a tensor, along a chain of per-channel operators without other readers."""
    found: list[str] = []
    while len(found) < _CHAIN:
        readers = scope.consumers.get(name, [])
        if len(readers) != 1 or readers[0].op_type not in _PER_CHANNEL:
            break
        if any(other and other != name and scope.constant(other) is None for other in readers[0].input):
            break
        name = readers[0].output[0]
        found.append(name)
    return found


def _normalised(scope: Scope, node: Any, weights: np.ndarray) -> np.ndarray | None:
    """A convolution's weights with the BatchNormalization folded in; None unless the BatchNormalization is
    its only reader."""
    readers = scope.consumers.get(node.output[0], [])
    if len(readers) != 1 or readers[0].op_type != "BatchNormalization":
        return None
    gain, _, _, variance = (scope.constant(name) for name in readers[0].input[1:5])
    epsilon = attributes(readers[0]).get("epsilon", 1e-5)
    if gain is None or variance is None or gain.shape != (len(weights),) or variance.shape != gain.shape:
        return None
    return weights * along_columns(gain / np.sqrt(variance + epsilon), weights)


def float_nodes(scope: Scope, graph: Any) -> list[FloatNode]:
    """The products with constant float weights in a graph."""
    found = []
    for node in graph.node:
        name = excerpt(node.name or node.output[0], 400)
        if node.op_type not in ("Conv", "MatMul", "Gemm", "LSTM", "Attention") or len(node.input) < 2:
            continue
        weights = scope.constant(node.input[1])
        if (
            weights is None
            or weights.dtype.kind != "f"
            or weights.ndim < 2
            or not weights.size
            or not np.isfinite(weights).all()
        ):
            continue
        weights = weights.astype(np.float32)
        values = attributes(node)
        outputs = [node.output[0], *following(scope, node.output[0])]
        if node.op_type == "Conv":
            weights = np.moveaxis(weights, 1, -1)
            folded = _normalised(scope, node, weights)
            if folded is not None:
                found.append(FloatNode(name, node, folded, outputs[1:], "with its BatchNormalization"))
            found.append(FloatNode(name, node, weights, outputs))
        elif node.op_type == "LSTM":
            for i, part in ((1, "input"), (2, "recurrent")):
                matrices = scope.constant(node.input[i])
                for direction, matrix in enumerate(
                    matrices if matrices is not None and matrices.ndim == 3 else []
                ):
                    suffix = f"{part} weights" + (f", direction {direction}" if len(matrices) > 1 else "")
                    found.append(FloatNode(name, node, matrix.astype(np.float32).T, outputs[:1], suffix))
        else:
            if values.get("transB"):
                weights = weights.swapaxes(-1, -2)
            found.append(
                FloatNode(name, node, as_matrix(weights) * np.float32(values.get("alpha", 1)), outputs)
            )
    return found


def _constant(scope: Scope, node: Any, i: int) -> np.ndarray | None:
    return scope.constant(node.input[i]) if input_of(node, i) else None


def _weights_scale(layer: QuantizedLayer, scope: Scope) -> np.ndarray | None:
    """The scale of a layer's weights. For an integer operator it is a factor of a Mul after it."""
    node = layer.weights_node
    if layer.scale_input is not None:
        return _constant(scope, node, layer.scale_input)
    for mul, i in multipliers(scope, node)[0][:1]:
        maker = scope.producer(mul.input[i])
        factors = maker.input if maker is not None and maker.op_type == "Mul" else [mul.input[i]]
        constants = [value for value in map(scope.constant, factors) if value is not None]
        return constants[0] if len(constants) == 1 else None
    return None


def _dequantize(matched: Matched, scope: Scope, direction: int) -> str:
    """Sets the dequantized weights. Returns "", or the reason why that is impossible."""
    layer = matched.layer
    if layer.weights_node is None:
        return "it is in an inner graph"
    scale, node = _weights_scale(layer, scope), layer.weights_node
    point = _constant(scope, node, layer.point_input)
    if input_of(node, layer.point_input) and point is None or scale is None:
        return "its weights' scale or zero point is no constant"
    values = [scale.astype(np.float64), np.zeros(1) if point is None else point.astype(np.float64)]
    if layer.op_type == "DynamicQuantizeLSTM":
        values = [value[direction] if value.ndim and len(value) > direction else value for value in values]
    count = columns_last(layer.weights).shape[1]
    values = [value.reshape(-1) for value in values]
    values = [
        np.tile(value, count // value.size) if value.size > 1 and count % value.size == 0 else value
        for value in values
    ]
    if any(value.size not in (1, count) for value in values):
        return "its weights' scales are neither of the tensor nor of output channels"
    scales, points = (along_columns(value, layer.weights) for value in values)
    matched.scales = values[0]
    with np.errstate(invalid="ignore", over="ignore"):
        matched.real = ((layer.weights.astype(np.float64) - points) * scales).astype(np.float32)
    return "" if np.isfinite(matched.real).all() else "its dequantized weights are not finite"


def _find_input(matched: Matched, scope: Scope, known: set[str]) -> None:
    """Finds the layer's input tensor, its quantization, and the factors by which the quantizer multiplies it
    first."""
    layer, node = matched.layer, matched.layer.graph_node
    quantizer = scope.producer(layer.activation) if layer.activation else None
    scale = point = None
    if layer.is_qdq and layer.activation:
        dequantizer = scope.producer(node.input[0])
        scale, point = _constant(scope, dequantizer, 1), _constant(scope, dequantizer, 2)
        point = np.zeros(1, np.uint8) if point is None and len(dequantizer.input) < 3 else point
    elif row_of(layer).c_point is not None:
        inputs = row_of(layer).inputs
        scale, point = _constant(scope, node, inputs.a_scale), _constant(scope, node, inputs.a_point)
    if (
        scale is not None
        and point is not None
        and scale.size == point.size == 1
        and 0 < scale.reshape(-1)[0] < np.inf
    ):
        matched.scale = float(scale.reshape(-1)[0])
        matched.point = int(point.reshape(-1)[0])
        matched.cut_type = point.dtype
        matched.cut = layer.activation
        before = quantizer.input[0] if quantizer is not None and quantizer.op_type == "QuantizeLinear" else ""
    elif layer.op_type in ("DynamicQuantizeMatMul", "DynamicQuantizeLSTM"):
        matched.cut = before = node.input[0]
    elif quantizer is not None and quantizer.op_type == "DynamicQuantizeLinear":
        matched.cut = before = quantizer.input[0]
    else:
        return
    multiplier = scope.producer(before)
    if multiplier is None or multiplier.op_type != "Mul" or before in known:
        return
    constants = [value for value in map(scope.constant, multiplier.input) if value is not None]
    channels = layer.weights.shape[-1] if layer.is_convolution else len(layer.weights)
    if len(constants) == 1 and constants[0].size == channels and layer.groups == 1:
        matched.smooth = constants[0].reshape(-1).astype(np.float32)


def _find_outputs(layer: QuantizedLayer, scope: Scope) -> list[Output]:
    """The tensors that can be compared with the float model's tensors, in the order of the graph."""
    node = layer.graph_node

    def quantized(name: str, scale: np.ndarray | None, point: np.ndarray | None) -> list[Output]:
        if (
            scale is None
            or scale.size != 1
            or not 0 < scale.reshape(-1)[0] < np.inf
            or (point is not None and point.size != 1)
        ):
            return []
        point = np.zeros((), np.uint8) if point is None else point
        return [Output(name, float(scale.reshape(-1)[0]), int(point.reshape(-1)[0]), point.dtype)]

    if row_of(layer).c_point is not None:
        place = row_of(layer).inputs.c_scale
        if input_of(node, place):
            return quantized(node.output[0], _constant(scope, node, place), _constant(scope, node, place + 1))
    if layer.op_type in ("MatMulInteger", "ConvInteger"):
        scaled = multipliers(scope, node)[0]
        if not scaled:
            return []
        node = scaled[0][0]
    names = [node.output[0], *following(scope, node.output[0])]
    for name in names if layer.is_qdq else []:
        for reader in scope.consumers.get(name, []):
            if reader.op_type == "QuantizeLinear":
                found = quantized(reader.output[0], _constant(scope, reader, 1), _constant(scope, reader, 2))
                return found or [Output(name)]  # a scale for each channel: ONNX Runtime runs it in float
    return [Output(name) for name in names]


def _find_biases(matched: Matched, scope: Scope, before: Scope) -> None:
    layer, node, other = matched.layer, matched.layer.graph_node, matched.float_node
    if other.node.op_type not in ("Conv", "Gemm") or other.part:
        return
    wanted = _constant(before, other.node, 2)
    stored = None
    if layer.is_qdq and input_of(node, 2):
        stored, maker = scope.constant(node.input[2]), scope.producer(node.input[2])
        if maker is not None and maker.op_type == "DequantizeLinear":
            integers, scale, point = (_constant(scope, maker, i) for i in range(3))
            if integers is not None and scale is not None and (point is None or not point.any()):
                stored = integers * scale.astype(np.float64)
    elif not layer.is_qdq and row_of(layer).inputs.int_bias is not None and matched.is_static:
        integers = _constant(scope, node, row_of(layer).inputs.int_bias)
        stored = None if integers is None else integers.reshape(-1) * (matched.scale * matched.scales)
    columns = columns_last(layer.weights).shape[1]
    if stored is not None and wanted is not None and stored.size == wanted.size == columns:
        wanted = wanted.reshape(-1) * attributes(other.node).get("beta", 1.0)
        matched.biases = stored.reshape(-1).astype(np.float32), wanted.astype(np.float32)


def match(audit: Any, float_path: str | Path) -> tuple[list[Matched], Any]:
    """Each layer of an audited model with its node of the float model in a file; and the float model.

    A node is found by its weights: the layer's dequantized weights correlate with the float weights. Names
    decide between equals, and if no weights correlate."""
    proto = load_onnx(float_path)
    folder = Path(float_path).parent
    before = Scope(proto.graph, folder)
    nodes = float_nodes(before, proto.graph)
    if not nodes:
        raise invalid(
            f"{excerpt(float_path)}: has no product with constant float weights; "
            "expected the model before quantization"
        )
    scope = Scope(audit.model.proto.graph, Path(audit.model.path).parent)
    known = {name for node in proto.graph.node for name in node.output}
    found, scores = [], []
    parts: dict[tuple, int] = {}
    for i, audited in enumerate(audit.layers):
        layer = audited.layer
        matched = Matched(layer)
        found.append(matched)
        key = (id(layer.graph_node), layer.weights_input)
        direction = parts[key] = parts.get(key, -1) + 1
        matched.how = _dequantize(matched, scope, direction)
        if matched.how:
            continue
        _find_input(matched, scope, known)
        matched.outputs = _find_outputs(layer, scope)
        real = matched.real
        if matched.smooth is not None:
            real = real * (matched.smooth if layer.is_convolution else matched.smooth[:, None])
        mine = names_before(layer.graph_node.name or layer.graph_node.output[0])
        for k, node in enumerate(nodes):
            if node.weights.shape != real.shape:
                continue
            has_name = (node.node.name or node.node.output[0]) in mine
            alike = correlation(real, node.weights)
            if alike >= ALIKE or has_name and _is_part(layer, node):
                scores.append((-round(alike, 3), not has_name, abs(i - k), i, k, alike))
    taken: set[tuple] = set()
    for _, other_name, _, i, k, alike in sorted(scores):
        key = (id(nodes[k].node), nodes[k].part if nodes[k].node.op_type == "LSTM" else "")
        if found[i].float_node is not None or key in taken:
            continue
        taken.add(key)
        found[i].float_node = nodes[k]
        if found[i].smooth is None:
            found[i].bounds = before.real_range(nodes[k].input)[:2]
        _find_biases(found[i], scope, before)
        by = ["weights"] * (alike >= ALIKE) + ["name"] * (not other_name)
        found[i].how = f"{' and '.join(by)}, correlation {alike:.4f}"
    for matched in found:
        if matched.float_node is None and not matched.how:
            matched.how = "no float node has weights like these, or its name"
    return found, proto


def _is_part(layer: QuantizedLayer, node: FloatNode) -> bool:
    return node.node.op_type != "LSTM" or layer.name.endswith(node.part)
