"""Quantized layers of an OpenVINO IR (a .xml and a .bin), as OpenVINO's CPU plug-in runs it without VNNI.

OpenVINO 2026.4.1 was run on an emulated Haswell. The precisions of its runtime model show which layers run in
int8. A Convolution takes u8 activations, whatever FakeQuantize states. A MatMul takes s8 if the range is
symmetric. Layers run in float if their weights have a zero point, FakeQuantize has other levels, or a
Convolution has several activation scales.

Files may be hostile: XML with a DTD is refused, and each offset, size and shape is checked before it is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np

from .._graph.nodes import as_matrix, type_name
from .._library import Error, excerpt, invalid
from .model import TYPE_RANGES, QuantizedLayer, QuantizedModel, bounded, ratio

DTYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "f64": np.float64,
    "i8": np.int8,
    "u8": np.uint8,
    "i16": np.int16,
    "u16": np.uint16,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "boolean": np.bool_,
}
_SMALL = {"i4", "u4", "nf4", "u1", "u2", "u3", "u6", "f4e2m1", "f8e4m3", "f8e5m2"}
_LEVELS = {256, 255, 16, 15}  # levels of a FakeQuantize that OpenVINO treats as 8 bits
_FLOAT = "OpenVINO runs it in float without VNNI"
_CONVOLUTIONS = {"Convolution": 1, "GroupConvolution": 2}  # dimensions of output channels
_PRODUCTS = {"MatMul", "FullyConnected"}
_UNREAD = set(
    """ConvolutionBackpropData GroupConvolutionBackpropData DeformableConvolution LSTMCell GRUCell
    RNNCell LSTMSequence GRUSequence RNNSequence AUGRUCell AUGRUSequence""".split()
)
# Layers that pass quantized activations on. _SCALERS and _FOLLOWED are followed too: OpenVINO may merge them
# into scales and zero points.
KEEPERS = set(
    """MaxPool AvgPool Reshape Transpose Squeeze Unsqueeze Split VariadicSplit StridedSlice Slice
    Gather ShuffleChannels DepthToSpace SpaceToDepth BatchToSpace SpaceToBatch ReduceMax ReduceMin
    Tile Broadcast Pad Identity Concat""".split()
)
_SCALERS = {"Convert", "Multiply", "Subtract"}
_FOLLOWED = {"Relu", "Add", "Divide", "Interpolate"}
# Keepers that mix in zeros or other tensors.
_MIXERS = {"Pad", "AvgPool", "SpaceToBatch", "Concat"}
# names in the file, and in OpenVINO's API
_SPELLINGS = {"ReLU": "Relu", "PReLU": "PRelu", "SoftMax": "Softmax", "TanH": "Tanh"}
# Bounds of a layer's output.
_BOUNDS = {
    "Relu": (0.0, math.inf),
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
    "HardSigmoid": (0.0, 1.0),
    "HSigmoid": (0.0, 1.0),
}
_RANGE_KEEPERS = KEEPERS - _MIXERS - {"BatchToSpace", "Identity"}
_DEPTH = 32


@dataclass
class _Layer:
    """A layer of the graph. `inputs`: the layers before it, by port."""

    name: str
    kind: str
    data: dict[str, str]
    inputs: dict[int, "_Layer"] = field(default_factory=dict)
    outputs: list["_Layer"] = field(default_factory=list)

    def input(self, i: int) -> "_Layer | None":
        return self.inputs.get(i)


@dataclass
class _Quantized:
    """Constant weights of 8 bits. `scales` broadcast to the weights' shape. `has_point`: whether there is a
    zero point."""

    values: np.ndarray
    scales: np.ndarray
    has_point: bool = False


@dataclass
class _Activations:
    """The FakeQuantize that quantizes a product's activations, and the effect of the layers between the
    two."""

    layer: _Layer
    levels: int
    input_range: tuple[np.ndarray, np.ndarray]
    output_range: tuple[np.ndarray, np.ndarray]
    scale: float = 1.0  # the product of the multiplications between
    is_followed: bool = False  # whether a layer between may not keep int8
    # whether other numbers are mixed in, so that the FakeQuantize's input does not bound them
    is_mixed: bool = False

    @property
    def is_per_tensor(self) -> bool:
        return all(bound.size == 1 for bound in (*self.input_range, *self.output_range))

    def agrees(self, other: "_Activations") -> bool:
        """Whether both have equal scales and zero points."""
        return (
            self.levels == other.levels
            and self.scale == other.scale
            and all(np.array_equal(a, b) for a, b in zip(self.output_range, other.output_range))
        )

    @property
    def is_symmetric(self) -> bool:
        """Whether OpenVINO treats the range as s8: -128 to 127, or -127 to 127, times a scale."""
        low, high = (bound.astype(np.float64) for bound in self.output_range)
        if not ((low < 0) & (high > 0)).all():
            return False
        expected = 1.0 if self.levels % 2 else (self.levels / 2) / (self.levels / 2 - 1)
        return bool((np.abs(-low / high - expected) < 0.002 * expected).all())


class _Weights:
    """The model's .bin, opened when it is first needed. Constants are views of this file."""

    def __init__(self, path: Path):
        self.path = path
        self._bytes: np.ndarray | None = None
        self.made = 0  # bytes of the weights that FakeQuantize layers made

    def read(self, offset: int, size: int) -> np.ndarray:
        if self._bytes is None:
            try:
                self._bytes = (
                    np.memmap(self.path, np.uint8, "r") if self.path.stat().st_size else np.zeros(0, np.uint8)
                )
            except OSError as error:
                why = error.strerror or excerpt(error)
                raise invalid(f"its weights {excerpt(self.path.name)} cannot be read: {why}") from None
        if offset < 0 or size < 0 or offset + size > self._bytes.size:
            raise invalid(
                f"a constant needs bytes {offset} to {offset + size} of {excerpt(self.path.name)}, "
                f"which has {self._bytes.size}"
            )
        return np.asarray(self._bytes[offset : offset + size])

    def count(self, size: int) -> None:
        """Counts weights that a FakeQuantize made. Many layers may quantize one constant, but at most 16
        times the file."""
        self.made += size
        assert self._bytes is not None
        if self.made > 16 * self._bytes.size:
            raise invalid(f"its layers quantize more weights than 16 times {excerpt(self.path.name)}")


class _Graph:
    """Layers and edges of one <net> or body."""

    def __init__(self, element: Any, weights: _Weights):
        self.weights = weights
        self._constants: dict[int, np.ndarray | None] = {}
        self._not_quantized: set[int] = set()
        self._activations: dict[int, _Activations | str | None] = {}
        layers: dict[str, _Layer] = {}
        self.bodies = []
        for node in element.iterfind("layers/layer"):
            key = node.get("id", "")
            if key in layers:
                raise invalid(f"two layers have the id {excerpt(key)!r}")
            data = node.find("data")
            kind = node.get("type", "")
            layers[key] = _Layer(
                node.get("name", ""),
                _SPELLINGS.get(kind, kind),
                dict(data.attrib) if data is not None else {},
            )
            self.bodies += [body for body in node if body.tag in ("body", "then_body", "else_body")]
        self.layers = list(layers.values())
        for edge in element.iterfind("edges/edge"):
            source, target = layers.get(edge.get("from-layer", "")), layers.get(edge.get("to-layer", ""))
            if source is None or target is None:
                ends = " to ".join(repr(excerpt(edge.get(end))) for end in ("from-layer", "to-layer"))
                raise invalid(f"an edge leads from layer {ends}; one of them does not exist")
            target.inputs[int(edge.get("to-port", ""))] = source
            source.outputs.append(target)

    def values(self, layer: _Layer) -> np.ndarray | None:
        """The values of a Const; None if its type is not read."""
        kind = layer.data.get("element_type", "")
        dtype = DTYPES.get(kind)
        if dtype is None and kind != "bf16":
            return None
        shape = tuple(int(n) for n in layer.data.get("shape", "").split(",") if n.strip())
        offset, size = int(layer.data.get("offset", "")), int(layer.data.get("size", ""))
        expected = math.prod(shape) * (2 if dtype is None else np.dtype(dtype).itemsize)
        if any(n < 0 for n in shape) or size != expected:
            raise invalid(
                f"constant {excerpt(layer.name)!r}: has {size} bytes; expected {expected} of shape {shape}"
            )
        data = self.weights.read(offset, size)
        if dtype is None:  # bfloat16 is the upper half of a float
            return (data.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
        return data.view(np.dtype(dtype).newbyteorder("<")).reshape(shape)

    def constant(self, layer: _Layer | None, depth: int = 0) -> np.ndarray | None:
        """The value of a layer that computes a constant (a scale, a zero point or a shape); None if it is not
        constant."""
        if layer is None or depth > _DEPTH:
            return None
        if layer.kind == "Const":
            return self.values(layer)
        if id(layer) in self._constants:
            return self._constants[id(layer)]
        value = None
        if layer.kind == "Convert":
            value = self.constant(layer.input(0), depth + 1)
            if value is not None:
                value = value.astype(DTYPES.get(layer.data.get("destination_type", ""), np.float32))
        elif layer.kind == "Reshape":
            shape = self.constant(layer.input(1), depth + 1)
            value = (
                self.constant(layer.input(0), depth + 1)
                if shape is not None and shape.size <= _DEPTH
                else None
            )
            if value is not None and shape is not None:
                value = value.reshape(_shape(value, shape, layer))
        if value is None or value.size <= 1 << 16:  # larger values are used only once
            self._constants[id(layer)] = value
        return value

    def quantized(self, layer: _Layer | None, depth: int = 0) -> _Quantized | str | None:
        """Constant weights of 8 bits; a description of weights that are not read; None if the layer is not
        quantized weights."""
        if layer is None or id(layer) in self._not_quantized:
            return None
        if depth > _DEPTH:
            return f"weights behind more than {_DEPTH} layers"
        if layer.kind == "Const":
            if layer.data.get("element_type") in _SMALL:
                return f"weights of type {layer.data['element_type']}"
            if layer.data.get("element_type") not in ("i8", "u8"):
                return None
            values = self.values(layer)
            return None if values is None else _Quantized(values, np.ones(1))
        if layer.kind == "FakeQuantize":
            return self._fake_quantized(layer)
        if layer.kind not in ("Convert", "Subtract", "Multiply", "Reshape", "Transpose"):
            return None
        self._not_quantized.add(id(layer))
        found = self.quantized(layer.input(0), depth + 1)
        other = 1
        if found is None and layer.kind == "Multiply":
            found, other = self.quantized(layer.input(1), depth + 1), 0
        if found is not None:
            self._not_quantized.remove(id(layer))
        if not isinstance(found, _Quantized) or layer.kind == "Convert":
            return found
        operand = self.constant(layer.input(other))
        if operand is None:
            return f"weights changed by a {layer.kind} that is not read"
        if layer.kind == "Subtract":
            found.has_point = found.has_point or bool(operand.astype(np.float64).any())
        elif layer.kind == "Multiply":
            scales = np.asarray(operand, np.float64)
            if np.broadcast_shapes(scales.shape, found.values.shape) != found.values.shape:
                return "weights with scales of a larger shape"
            both = np.broadcast_shapes(scales.shape, found.scales.shape)
            if math.prod(both) > found.values.size:
                return "weights with scales of a larger shape"
            found.scales = found.scales * scales
        else:
            values, scales = found.values, found.scales
            if scales.size > 1:
                scales = np.broadcast_to(scales, values.shape)
            if layer.kind == "Reshape":
                shape = _shape(values, operand, layer)
                found.values = values.reshape(shape)
                found.scales = scales.reshape(shape) if scales.size > 1 else scales
            else:
                axes = [int(n) for n in operand.reshape(-1)]
                found.values = values.transpose(axes)
                found.scales = scales.transpose(axes) if scales.size > 1 else scales
        return found

    def _fake_quantized(self, layer: _Layer) -> _Quantized | str | None:
        """Float weights after a FakeQuantize, as the integers to which OpenVINO converts them."""
        values = self.constant(layer.input(0))
        if values is None:
            return None
        quantize = self.fake_quantize(layer)
        if quantize is None or values.dtype.kind != "f":
            return "weights behind a FakeQuantize that is not read"
        if quantize.levels not in (255, 256):
            return f"weights of {quantize.levels} levels"
        (low, high), (out_low, out_high) = quantize.input_range, quantize.output_range
        if any(
            np.broadcast_shapes(bound.shape, values.shape) != values.shape
            for bound in (low, high, out_low, out_high)
        ):
            return "weights behind a FakeQuantize that is not read"
        if not ((high > low) & (out_high > out_low)).all() or not np.isfinite(values).all():
            return "weights behind a FakeQuantize without a range"
        self.weights.count(values.size)
        steps = np.float32(quantize.levels - 1)
        least = -(quantize.levels // 2)
        index = np.rint((np.clip(values.astype(np.float32), low, high) - low) / (high - low) * steps)
        scales = (out_high.astype(np.float64) - out_low) / float(steps)
        point = least - out_low / scales
        integers = np.clip(index + least, -128, 127).astype(np.int8)
        return _Quantized(integers, scales, bool((np.abs(point) > 0.25).any()))

    def fake_quantize(self, layer: _Layer) -> _Activations | None:
        bounds = [self.constant(layer.input(i)) for i in range(1, 5)]
        if any(bound is None or not bound.size or not np.isfinite(bound).all() for bound in bounds):
            return None
        low, high, out_low, out_high = (np.asarray(bound, np.float32) for bound in bounds)
        return _Activations(layer, int(layer.data.get("levels", "")), (low, high), (out_low, out_high))

    def activations(self, layer: _Layer | None, depth: int = 0) -> _Activations | str | None:
        """The quantization of a product's activations; None if they are not quantized; a description if it is
        not read."""
        if layer is None:
            return None
        if depth > 2 * _DEPTH:
            return f"activations behind more than {2 * _DEPTH} layers"
        if id(layer) not in self._activations:
            self._activations[id(layer)] = self._found(layer, depth)
        found = self._activations[id(layer)]
        return replace(found) if isinstance(found, _Activations) else found

    def _found(self, layer: _Layer, depth: int) -> _Activations | str | None:
        if layer.kind == "FakeQuantize":
            return self.fake_quantize(layer) or "activations behind a FakeQuantize that is not read"
        if layer.kind == "Concat":
            found = [self.activations(before, depth + 1) for before in layer.inputs.values()]
            if not found or any(f is None for f in found):
                return None
            known = [f for f in found if isinstance(f, _Activations)]
            if len(known) < len(found):
                return "some activations behind a Concat are not read"
            if not all(f.agrees(known[0]) for f in known):  # OpenVINO aligns their intervals
                return replace(
                    known[0],
                    output_range=(np.zeros(1), np.ones(1)),
                    scale=math.nan,
                    is_followed=True,
                    is_mixed=True,
                )
            return replace(known[0], is_followed=any(f.is_followed for f in known), is_mixed=True)
        source, operand = layer.input(0), None
        if layer.kind in ("Multiply", "Subtract", "Add", "Divide"):
            operand = self.constant(layer.input(1))
            if operand is None and layer.kind in ("Multiply", "Add"):
                source, operand = layer.input(1), self.constant(source)
            if operand is None:
                return None  # no operand is constant
        elif layer.kind not in KEEPERS and layer.kind not in _SCALERS and layer.kind not in _FOLLOWED:
            return None
        found_one = self.activations(source, depth + 1)
        if isinstance(found_one, _Activations):
            found_one.is_followed = found_one.is_followed or layer.kind in _FOLLOWED
            found_one.is_mixed = found_one.is_mixed or layer.kind in _MIXERS
            if layer.kind == "Multiply" and operand is not None:
                found_one.scale *= float(operand.reshape(-1)[0]) if operand.size == 1 else math.nan
        return found_one

    def real_range(self, layer: _Layer | None, depth: int = 0) -> tuple[float, float, str]:
        """Bounds of a layer's output, and the layer that bounds it."""
        if layer is None or depth > _DEPTH:
            return -math.inf, math.inf, ""
        if layer.kind == "Clamp":
            low, high = float(layer.data.get("min", "-inf")), float(layer.data.get("max", "inf"))
            return (low, high, layer.kind) if low <= high else (-math.inf, math.inf, "")
        if layer.kind in _BOUNDS:
            low, high = _BOUNDS[layer.kind]
            if layer.kind == "Relu":
                before = self.real_range(layer.input(0), depth + 1)
                return (
                    max(before[0], 0.0),
                    max(before[1], 0.0),
                    f"{layer.kind} of {before[2]}" if before[2] else layer.kind,
                )
            return low, high, layer.kind
        if layer.kind in _RANGE_KEEPERS:
            return self.real_range(layer.input(0), depth + 1)
        return -math.inf, math.inf, ""

    def output_scale(self, layer: _Layer) -> np.ndarray | None:
        """The step of the FakeQuantize that quantizes a product's results, after a bias and an activation."""
        for _ in range(4):
            if len(layer.outputs) != 1:
                return None
            layer = layer.outputs[0]
            if layer.kind == "FakeQuantize":
                found = self.fake_quantize(layer)
                if found is None or found.levels < 2:
                    return None
                low, high = found.input_range
                return (high.astype(np.float64) - low) / (found.levels - 1)
            if layer.kind not in ("Add", "Relu", "Clamp", "PRelu"):
                return None
        return None


def _shape(value: np.ndarray, shape: np.ndarray, layer: _Layer) -> list[int]:
    """A Reshape's new shape. With special_zero, 0 keeps the old extent."""
    wanted = [int(n) for n in shape.reshape(-1)]
    if layer.data.get("special_zero", "").lower() in ("true", "1"):
        wanted = [value.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    return wanted


class _Reader:
    """Finds the quantized layers of a graph and its inner graphs."""

    def __init__(self, model: QuantizedModel, weights: _Weights):
        self.model, self.weights = model, weights

    def read(self, element: Any, depth: int = 0) -> None:
        if depth > 16:
            raise invalid("graphs are nested more than 16 deep")
        graph = _Graph(element, self.weights)
        for layer in graph.layers:
            self.model.operators += layer.kind not in ("Const", "Parameter", "Result")
            if layer.kind in _CONVOLUTIONS or layer.kind in _PRODUCTS:
                self._product(graph, layer)
            elif layer.kind in _UNREAD:
                if any(graph.quantized(before) is not None for i, before in layer.inputs.items() if i):
                    self.model.pass_over(f"{layer.kind}: not read")
        for body in graph.bodies:
            self.read(body, depth + 1)

    def _product(self, graph: _Graph, layer: _Layer) -> None:
        kind = layer.kind
        weights = graph.quantized(layer.input(1))
        activations = graph.activations(layer.input(0))
        if weights is None:
            if kind in _PRODUCTS and graph.activations(layer.input(1)) is not None:
                if activations is not None:
                    self._two_activations(graph, layer, activations, graph.activations(layer.input(1)))
                elif graph.quantized(layer.input(0)) is not None:
                    self.model.pass_over(f"{kind}: its first operand is the constant one")
            return
        if activations is None:
            what = weights if isinstance(weights, str) else "weights of 8 bits"
            self.model.pass_over(f"{kind}: {what} and float activations: {_FLOAT}", is_harmless=True)
            return
        reason = next((found for found in (weights, activations) if isinstance(found, str)), None)
        if reason is not None or isinstance(weights, str) or isinstance(activations, str):
            self.model.pass_over(f"{kind}: {reason}")
        elif activations.levels not in _LEVELS:
            self.model.pass_over(
                f"{kind}: activations of {activations.levels} levels: {_FLOAT}", is_harmless=True
            )
        elif weights.has_point or weights.values.dtype == np.uint8:
            what = "weights with a zero point" if weights.has_point else "u8 weights"
            self.model.pass_over(f"{kind}: {what}: {_FLOAT}", is_harmless=True)
        elif kind == "Convolution" and not activations.is_per_tensor and not activations.is_followed:
            self.model.pass_over(f"{kind}: activations with several scales: {_FLOAT}", is_harmless=True)
        elif not weights.values.size:
            self.model.pass_over(f"{kind}: weights of shape {weights.values.shape}", is_harmless=True)
        elif kind in _CONVOLUTIONS:
            self._convolution(graph, layer, weights, activations)
        else:
            self._matrix(graph, layer, weights, activations)

    def _two_activations(self, graph: _Graph, layer: _Layer, *operands: "_Activations | str | None") -> None:
        """Adds a product of two activations. OpenVINO multiplies integers if the second operand is s8
        (measured with 2026.4.1 held to AVX2)."""
        a, b = operands
        reason = next((operand for operand in operands if isinstance(operand, str)), None)
        if not isinstance(a, _Activations) or not isinstance(b, _Activations):
            self.model.pass_over(f"{layer.kind}: {reason}")
            return
        if any(one.levels not in _LEVELS or not one.is_per_tensor or one.is_followed for one in (a, b)):
            self.model.pass_over(f"{layer.kind}: both operands change from run to run")
            return
        if not b.is_symmetric:
            self.model.pass_over(
                f"{layer.kind}: its second operand is u8 and changes from run to run: {_FLOAT}",
                is_harmless=True,
            )
            return
        a_type = "s8" if a.is_symmetric else "u8"
        self.model.add_product(
            layer.name or f"{layer.kind} {self.model.operators}",
            layer.kind,
            a_type,
            "s8",
            self._bounds(graph, a, a_type, False),
            self._bounds(graph, b, "s8", False),
        )

    @staticmethod
    def _bounds(graph: _Graph, activations: _Activations, kind: str, is_padded: bool) -> tuple[int, int, str]:
        """Bounds of quantized activations of type `kind`, and the operators that bound them."""
        limits = TYPE_RANGES[kind]
        if (
            not activations.is_per_tensor
            or activations.levels not in (255, 256)
            or activations.is_followed
            or activations.is_mixed
        ):
            return (*limits, "")
        low, high = (float(bound.reshape(-1)[0]) for bound in activations.input_range)
        step = (high - low) / (activations.levels - 1)
        if not step > 0 or not math.isfinite(step):
            return (*limits, "")
        real_low, real_high, why = graph.real_range(activations.layer.input(0))
        if is_padded:
            real_low, real_high = min(real_low, 0.0), max(real_high, 0.0)
        # The integers count steps from the lower end. With 255 levels, they may be one step higher.
        real = real_low - low, real_high - low + (step if activations.levels == 255 else 0)
        return bounded(real, why, step, limits[0], limits, False)

    def _convolution(
        self, graph: _Graph, layer: _Layer, weights: _Quantized, activations: _Activations
    ) -> None:
        values = weights.values
        channels = _CONVOLUTIONS[layer.kind]
        if not channels + 2 <= values.ndim <= channels + 4:
            raise invalid(f"{layer.kind} {excerpt(layer.name)!r}: has weights of shape {values.shape}")
        groups = values.shape[0] if channels == 2 else 1
        scales = _columns(weights.scales, values.shape, range(channels))
        values = np.moveaxis(values.reshape(-1, *values.shape[channels:]), 1, -1)
        self._add(graph, layer, "Conv", values, scales, activations, groups)

    def _matrix(self, graph: _Graph, layer: _Layer, weights: _Quantized, activations: _Activations) -> None:
        values = weights.values
        if values.ndim < 2:
            self.model.pass_over(f"{layer.kind}: weights of {values.ndim} dimensions")
            return
        transposed = layer.kind == "FullyConnected" or layer.data.get("transpose_b", "").lower() in (
            "true",
            "1",
        )
        scales = _columns(weights.scales, values.shape, [values.ndim - (2 if transposed else 1)])
        if transposed:
            values = values.swapaxes(-1, -2)
        values = as_matrix(values)
        self._add(graph, layer, "MatMul", values, scales, activations, 1)

    def _add(
        self,
        graph: _Graph,
        layer: _Layer,
        operator: str,
        values: np.ndarray,
        scales: np.ndarray | None,
        activations: _Activations,
        groups: int,
    ) -> None:
        is_convolution = values.ndim > 2
        note = ""
        a_type = "u8"
        if activations.is_symmetric and is_convolution:
            note = "symmetric activations of convolutions become u8 in OpenVINO without VNNI"
        elif activations.is_symmetric:
            a_type = "s8"
        if activations.is_followed:
            note = "some activations pass another operator after FakeQuantize; audited as int8"
        bounds = self._bounds(graph, activations, a_type, is_convolution)
        steps = None
        if activations.is_per_tensor:
            out_low, out_high = (float(bound.reshape(-1)[0]) for bound in activations.output_range)
            output = graph.output_scale(layer)
            if scales is not None and output is not None:
                steps = ratio(
                    np.float64((out_high - out_low) / (activations.levels - 1) * activations.scale),
                    scales,
                    output,
                )
        if steps is not None and steps.size not in (1, len(values) if is_convolution else values.shape[1]):
            steps = None
        self.model.layers.append(
            QuantizedLayer(
                self.model.unique(layer.name or f"{layer.kind} {self.model.operators}"),
                operator,
                layer.kind,
                False,
                a_type,
                type_name(values.dtype),
                values,
                bounds[:2],
                bounds[2],
                steps,
                groups,
                note,
                is_shifted=a_type == "s8",
            )
        )


def _columns(scales: np.ndarray, shape: tuple, axes: Any) -> np.ndarray | None:
    """The scales of output channels or columns: one for all, or one for each; None if the scales vary along
    other axes too."""
    if scales.size == 1:
        return scales.reshape(-1)
    wanted = [shape[i] if i in axes else 1 for i in range(len(shape))]
    if scales.shape == shape:  # stretched by a Reshape or Transpose
        first = scales[tuple(slice(None) if i in axes else slice(0, 1) for i in range(len(shape)))]
        return first.reshape(-1) if np.array_equal(np.broadcast_to(first, shape), scales) else None
    try:
        return np.broadcast_to(scales, wanted).reshape(-1)
    except ValueError:
        return None


def _parsed(path: Path) -> Any:
    """The root of an XML file. A DTD is refused, so that there are no entities."""
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate()

    def refuse(*_: Any) -> None:
        raise invalid("has a DTD; an OpenVINO IR has none")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    with open(path, "rb") as file:
        parser.ParseFile(file)
    return builder.close()


def read_openvino(path: str | Path) -> QuantizedModel:
    """The quantized layers of an OpenVINO IR. `path`: its .xml. Raises `Error` if it cannot be read."""
    path = Path(path)
    model = QuantizedModel(str(path), "openvino")
    try:
        root = _parsed(path)
        if root.tag != "net":
            raise invalid(f"is no OpenVINO IR: its root is <{excerpt(root.tag, 40)}>; expected <net>")
        if int(root.get("version", "0")) < 10:
            raise invalid(f"is an IR of version {excerpt(root.get('version'), 40)}; expected 10 or 11")
        with np.errstate(all="ignore"):
            _Reader(model, _Weights(path.with_suffix(".bin"))).read(root)
    except Error as error:
        raise invalid(f"{excerpt(path)}: {error.message}") from None
    except OSError as error:
        raise invalid(f"{excerpt(path)}: {error.strerror or excerpt(error)}") from None
    except expat.ExpatError as error:
        raise invalid(f"{excerpt(path)}: is no XML: {excerpt(error)}") from None
    except (IndexError, KeyError, MemoryError, OverflowError, RecursionError, ValueError) as error:
        raise invalid(f"{excerpt(path)}: a layer or a constant is malformed: {excerpt(error)}") from None
    return model
