"""Quantized layers of an ONNX model: operators that multiply activations by constant int8 weights, as ONNX Runtime runs them.

Files may be hostile: every size is checked before anything is allocated, and external data stays in the model's folder.
"""

from __future__ import annotations

import math
import warnings
from operator import itemgetter
from pathlib import Path
from typing import Any, Iterator, Sequence

import numpy as np

from ._fusion import FAILS, WEIGHT_ONLY, Fusions, exchanges_operands, is_moved, stays_s8, weights_in_words, wrong_bias
from ._library import Error, excerpt, invalid
from ._model import TYPE_RANGES, ActivationProduct, QuantizedLayer, QuantizedModel, bounded, ratio, type_name
from ._weights import shared

_DTYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16,
           11: np.float64, 12: np.uint32, 13: np.uint64}
ITEM_SIZES = {number: np.dtype(dtype).itemsize for number, dtype in _DTYPES.items()}  # bytes, by onnx.TensorProto.DataType
# The numbers of the inputs that are the weights and their zero point.
_INPUTS = {"QLinearConv": (3, 5), "ConvInteger": (1, 3), "QLinearMatMul": (3, 5), "MatMulInteger": (1, 3), "QGemm": (3, 5),
           "MatMulIntegerToFloat": (1, 5), "DynamicQuantizeMatMul": (1, 3), "QAttention": (1, 7)}
# Operators whose output has the range of their input.
_KEEPERS = {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "MaxPool", "Slice", "Gather", "Split",
            "GlobalAveragePool", "ReduceMax", "Expand", "Tile"}
# Operators whose output has the shape of their first input.
_SHAPE_KEEPERS = {"Identity", "QuantizeLinear", "DequantizeLinear", "Relu", "Clip", "Sigmoid", "Tanh", "Softmax", "LayerNormalization",
                  "Neg", "Abs", "Erf", "Gelu", "LeakyRelu"}
# Operators through which ONNX Runtime 1.32 moves a DequantizeLinear forward, and a QuantizeLinear back.
MOVED_THROUGH = {"Identity", "Dropout", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "MaxPool", "Slice"}
_OPERATORS = {("", op) for op in ("QLinearConv", "ConvInteger", "QLinearMatMul", "MatMulInteger", "Conv", "MatMul", "Gemm")} | {
    ("com.microsoft", op) for op in ("QLinearConv", "QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QAttention")}
_ELEMENTWISE = {"QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearSigmoid",
                "QLinearLeakyRelu", "QLinearSoftmax", "QLinearReduceMean", "QLinearWhere"}
_DEEPEST = 16  # levels of nested graphs
_BLOCKS = {"MatMulNBits", "GatherBlockQuantized", "MatMulBnb4"}


def every_node(graph: Any, depth: int = 0) -> Iterator[Any]:
    """The nodes of a graph and of its inner graphs; each node is followed by the nodes of its own graphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute if depth < _DEEPEST else ():
            for inner in ([attribute.g] if attribute.type == 5 else attribute.graphs):
                yield from every_node(inner, depth + 1)


def _captured(node: Any, depth: int = 0) -> set[str]:
    """The tensors that the inner graphs of a node read and do not make."""
    names: set[str] = set()
    for attribute in node.attribute if depth < _DEEPEST else ():
        for inner in ([attribute.g] if attribute.type == 5 else attribute.graphs):
            read = {value.name for value in inner.output}
            made = {value.name for value in [*inner.input, *inner.initializer]}
            for each in inner.node:
                read.update(each.input, _captured(each, depth + 1))
                made.update(each.output)
            names |= read - made
    return names


class Scope:
    """The constants, producers and consumers of a graph; and, through `parent`, of the graphs around it."""

    def __init__(self, graph: Any, folder: Path, parent: "Scope | None" = None, within: str = ""):
        self.folder, self.parent, self.within = folder, parent, within
        inputs = {value.name for value in graph.input}
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.overridable = inputs & set(self.initializers)
        self.outputs = {value.name for value in graph.output}
        self.producers = {output: node for node in graph.node for output in node.output if output}
        self.consumers: dict[str, list] = {}
        self.captors: dict[str, list] = {}  # nodes whose inner graphs read a tensor of this graph
        for node in graph.node:
            for name in node.input:
                self.consumers.setdefault(name, []).append(node)
            for name in _captured(node):
                self.captors.setdefault(name, []).append(node)
        self.types = {value.name: value.type.tensor_type.elem_type
                      for value in [*graph.input, *graph.value_info, *graph.output]}
        self.shapes = {value.name: tuple(each.dim_value if each.HasField("dim_value") else each.dim_param or None
                                         for each in value.type.tensor_type.shape.dim)
                       for value in [*graph.input, *graph.value_info, *graph.output] if value.type.tensor_type.HasField("shape")}
        self._constants: dict[str, np.ndarray | None] = {}

    def scope_of(self, name: str) -> "Scope | None":
        if name in self.initializers or name in self.producers:
            return self
        return self.parent.scope_of(name) if self.parent else None

    def readers(self, name: str) -> list:
        """The consumers and the captors of a tensor, in the graph that makes it."""
        scope = self.scope_of(name) or self
        return scope.consumers.get(name, []) + scope.captors.get(name, [])

    def is_output(self, name: str) -> bool:
        """Whether a tensor is an output of the graph that makes it."""
        return name in (self.scope_of(name) or self).outputs

    def producer(self, name: str) -> Any:
        scope = self.scope_of(name)
        return scope.producers.get(name) if scope else None

    def constant(self, name: str, depth: int = 0) -> np.ndarray | None:
        """The value of a tensor that does not depend on the model's inputs; None if this reader cannot compute it."""
        scope = self.scope_of(name)
        if scope is None or depth > 16:
            return None
        if name not in scope._constants:
            scope._constants[name] = scope._evaluate(name, depth)
        return scope._constants[name]

    def shape_of_constant(self, name: str) -> tuple[int, tuple[int, ...]] | None:
        """The type (of onnx.TensorProto) and the shape of a constant, also of types of 2 and 4 bits."""
        scope = self.scope_of(name)
        if scope is None:
            return None
        tensor = scope.initializers.get(name)
        if tensor is None and scope.producers[name].op_type == "Constant":
            tensor = next((attribute.t for attribute in scope.producers[name].attribute if attribute.name == "value"), None)
        return None if tensor is None else (tensor.data_type, tuple(tensor.dims))

    def shape_of(self, name: str, depth: int = 0) -> "tuple[int | str | None, ...] | None":
        """The extents of a tensor, numbers or names, as far as the file states them; None if it does not."""
        scope: Scope | None = self if depth < 32 else None
        while scope:
            if name in scope.shapes:
                return scope.shapes[name]
            scope = scope.parent
        stored = self.shape_of_constant(name)
        node = self.producer(name) if depth < 32 else None
        if stored is not None or node is None:
            return stored[1] if stored is not None else None
        if node.op_type in _SHAPE_KEEPERS and node.input:
            return self.shape_of(node.input[0], depth + 1)
        if node.op_type == "Transpose" and node.input:
            shape = self.shape_of(node.input[0], depth + 1)
            axes = attributes(node).get("perm") or range(len(shape or ()))[::-1]
            return None if shape is None or sorted(axes) != list(range(len(shape))) else tuple(shape[axis] for axis in axes)
        if node.op_type == "Reshape" and len(node.input) > 1:
            return self._reshaped(node, depth)
        return None

    def _reshaped(self, node: Any, depth: int) -> "tuple[int | str | None, ...] | None":
        """The shape behind a Reshape, if its second input is a constant."""
        given, before = self.constant(node.input[1]), self.shape_of(node.input[0], depth + 1)
        if given is None or given.ndim != 1:
            return None
        extents = [(before[i] if before is not None and i < len(before) else None) if n == 0 else None if n < 0 else int(n)
                   for i, n in enumerate(given)]
        if (given < 0).sum() == 1 and before is not None and all(isinstance(n, int) for n in before):
            known = math.prod(n for n, one in zip(extents, given) if one >= 0 and isinstance(n, int))
            whole = known and math.prod(before) % known == 0 and all(isinstance(n, int) for n, one in zip(extents, given) if one >= 0)
            extents = [math.prod(before) // known if one < 0 and whole else n for n, one in zip(extents, given)]
        return tuple(extents)

    def integers_of(self, name: str) -> tuple[np.ndarray, str] | None:
        """A stored constant of 4 or 8 bits as int8 or uint8, and its type: "u8", "s8", "u4" or "s4"."""
        scope = self.scope_of(name)
        tensor = scope.initializers.get(name) if scope else None
        if tensor is None or tensor.data_type not in (21, 22):
            value = self.constant(name)
            return (value, type_name(value.dtype)) if value is not None and type_name(value.dtype) else None
        return four_bits(tensor, scope.folder), "u4" if tensor.data_type == 21 else "s4"

    def _evaluate(self, name: str, depth: int) -> np.ndarray | None:
        if name in self.initializers:
            return array_of_tensor(self.initializers[name], self.folder)
        node = self.producers[name]
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    return array_of_tensor(attribute.t, self.folder)
                if attribute.name in ("value_float", "value_int"):
                    return np.array(attribute.f if attribute.name == "value_float" else attribute.i)
            return None
        if node.op_type in ("Identity", "Transpose", "Reshape", "QuantizeLinear") and node.input:
            value = self.constant(node.input[0], depth + 1)
            if value is None:
                return None
            if node.op_type == "QuantizeLinear":
                return self._quantized(node, value, depth)
            return self._moved(node, value, depth)
        return None

    def _moved(self, node: Any, value: np.ndarray, depth: int) -> np.ndarray | None:
        """A constant after an operator that only moves its numbers; None if the result cannot be computed."""
        if node.op_type in ("Identity", "Dropout"):
            return value
        if node.op_type == "Transpose":
            axes = attributes(node).get("perm")
            return value.transpose(list(axes) if axes else None)
        shape = self.constant(node.input[1], depth + 1) if len(node.input) > 1 else None
        if node.op_type == "Reshape" and shape is not None:
            return value.reshape([value.shape[i] if n == 0 else int(n) for i, n in enumerate(shape)])
        return None

    def integers(self, name: str, depth: int = 0, stored: np.ndarray | None = None) -> np.ndarray | None:
        """The constant from which a DequantizeLinear makes the float tensor `name`, in that tensor's shape. `stored` replaces the
        constant."""
        node = self.producer(name)
        if node is None or depth > 16:
            return None
        if node.op_type == "DequantizeLinear":
            return self.constant(node.input[0]) if stored is None else stored
        value = self.integers(node.input[0], depth + 1, stored)
        return None if value is None else self._moved(node, value, depth)

    def dequantizer(self, name: str) -> Any:
        """The DequantizeLinear that makes a tensor, directly or through operators of MOVED_THROUGH."""
        for _ in range(16):
            node = self.producer(name)
            if node is None or node.op_type == "DequantizeLinear":
                return node
            if node.op_type not in MOVED_THROUGH or not node.input:
                return None
            name = node.input[0]
        return None

    def _quantized(self, node: Any, value: np.ndarray, depth: int) -> np.ndarray | None:
        scale = self.constant(node.input[1], depth + 1)
        point = self.point(node, depth + 1)
        if scale is None or point is None or attributes(node).get("block_size"):
            return None
        axis = attributes(node).get("axis", 1)
        shape = [1] * value.ndim
        if scale.size > 1:
            shape[axis] = scale.size
        info = np.iinfo(point.dtype)
        real = np.rint(value / scale.reshape(shape)) + point.astype(np.int32).reshape(shape if point.size > 1 else [1] * value.ndim)
        return np.clip(real, info.min, info.max).astype(point.dtype)

    def point(self, node: Any, depth: int = 0) -> np.ndarray | None:
        """The zero point of a QuantizeLinear to 8 bits, if it is a constant."""
        if len(node.input) > 2 and node.input[2]:
            value = self.constant(node.input[2], depth)
        else:
            value = np.zeros((), _DTYPES.get(attributes(node).get("output_dtype") or 2, np.uint16))
        return value if value is not None and value.dtype in (np.int8, np.uint8) else None

    def type_of(self, name: str, depth: int = 0) -> Any:
        """The NumPy type of a tensor's elements, or None."""
        scope: Scope | None = self if depth < 32 else None
        while scope:
            if scope.types.get(name):
                return _DTYPES.get(scope.types[name])
            scope = scope.parent
        node = self.producer(name) if depth < 32 else None
        if node is None or node.op_type == "Constant":
            value = self.constant(name)
            return value.dtype.type if value is not None else None
        if node.op_type == "DynamicQuantizeLinear":
            return np.uint8
        if node.op_type == "QuantizeLinear":
            has_point = len(node.input) > 2 and node.input[2]
            return self.type_of(node.input[2], depth + 1) if has_point else _DTYPES.get(attributes(node).get("output_dtype") or 2)
        if node.op_type in _KEEPERS | {"Concat", "Pad"} and node.input:
            return self.type_of(node.input[0], depth + 1)
        point = {"QLinearConv": 7, "QLinearMatMul": 7, "QGemm": 8, "QLinearAdd": 7, "QLinearMul": 7, "QLinearSigmoid": 4,
                 "QLinearLeakyRelu": 4, "QLinearSoftmax": 4, "QLinearAveragePool": 4, "QLinearGlobalAveragePool": 4,
                 "QLinearReduceMean": 4, "QLinearConcat": 1, "QLinearWhere": 8}.get(node.op_type)
        if point is None or len(node.input) <= point:
            return None
        value = self.constant(node.input[point])
        return value.dtype.type if value is not None else None

    def real_range(self, name: str, depth: int = 0) -> tuple[float, float, str]:
        """Bounds of a float tensor from the operators that make it, and the operator that bounds it. ±inf: no bound."""
        node = self.producer(name) if depth < 32 else None
        if node is None:
            return -math.inf, math.inf, ""
        op = node.op_type
        if op in ("Sigmoid", "HardSigmoid", "Softmax"):
            return 0.0, 1.0, op
        if op == "Tanh":
            return -1.0, 1.0, op
        if op == "Relu":
            low, high, why = self.real_range(node.input[0], depth + 1)
            return max(low, 0.0), max(high, 0.0), f"{op} of {why}" if why else op
        if op == "Clip":
            bounds = [attributes(node).get("min"), attributes(node).get("max")]
            for i in (1, 2):
                if len(node.input) > i and node.input[i]:
                    value = self.constant(node.input[i])
                    bounds[i - 1] = None if value is None or value.size != 1 else float(value.reshape(-1)[0])
            low, high = (-math.inf if bounds[0] is None else bounds[0]), (math.inf if bounds[1] is None else bounds[1])
            if math.isnan(low) or math.isnan(high):
                return -math.inf, math.inf, ""
            return min(low, high), high, op  # if low > high, Clip returns `high`
        if op in _KEEPERS and node.input:
            return self.real_range(node.input[0], depth + 1)
        return -math.inf, math.inf, ""


def as_matrix(weights: np.ndarray) -> np.ndarray:
    """A product's weights as K×N; the items of a batch are side by side."""
    return np.moveaxis(weights, -2, 0).reshape(weights.shape[-2], -1)


def attributes(node: Any) -> dict:
    """A node's attributes that are numbers or lists of integers."""
    values = {}
    for attribute in node.attribute:
        if attribute.type == 1:
            values[attribute.name] = attribute.f
        elif attribute.type == 2:
            values[attribute.name] = attribute.i
        elif attribute.type == 7:
            values[attribute.name] = list(attribute.ints)
    return values


def array_of_tensor(tensor: Any, folder: Path) -> np.ndarray | None:
    """A tensor's values, whose number is checked against its shape; None if its type is not in _DTYPES."""
    dtype = _DTYPES.get(tensor.data_type)
    if dtype is None:
        return None
    shape = tuple(tensor.dims)
    if any(n < 0 for n in shape):
        raise invalid(f"tensor {excerpt(tensor.name)!r}: has the shape {shape}")
    count = math.prod(shape)
    size = count * np.dtype(dtype).itemsize
    if tensor.data_location == 1:
        array = shared(tensor)
        return array if array is not None else _external(tensor, folder, dtype, shape, size)
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != size:
            raise invalid(f"tensor {excerpt(tensor.name)!r}: holds {len(tensor.raw_data)} bytes; expected {size} of shape {shape}")
        return np.frombuffer(tensor.raw_data, np.dtype(dtype).newbyteorder("<")).reshape(shape)
    fields = {np.float32: tensor.float_data, np.float64: tensor.double_data, np.int64: tensor.int64_data,
              np.uint32: tensor.uint64_data, np.uint64: tensor.uint64_data}
    values = fields.get(dtype, tensor.int32_data)
    if len(values) != count:
        raise invalid(f"tensor {excerpt(tensor.name)!r}: holds {len(values)} values; expected {count} of shape {shape}")
    if dtype is np.float16:
        return np.array(values, np.uint16).view(np.float16).reshape(shape)
    return np.array(values).astype(dtype).reshape(shape)


def four_bits(tensor: Any, folder: Path) -> np.ndarray:
    """The values of a tensor of type UINT4 or INT4, which holds two in a byte: uint8 or int8."""
    from onnx import TensorProto

    count = math.prod(tensor.dims)
    packed = TensorProto()
    packed.CopyFrom(tensor)
    packed.data_type = TensorProto.UINT8
    del packed.dims[:]
    packed.dims.append((count + 1) // 2)
    halves = array_of_tensor(packed, folder)
    values = np.stack([halves & 15, halves >> 4], 1).reshape(-1)[:count].reshape(tuple(tensor.dims))
    return values if tensor.data_type == 21 else ((values ^ 8) - 8).astype(np.uint8).view(np.int8)


def _external(tensor: Any, folder: Path, dtype: Any, shape: tuple, size: int) -> np.ndarray:
    where = {entry.key: entry.value for entry in tensor.external_data}
    try:
        path = (folder / where.get("location", "")).resolve()
        if folder.resolve() not in path.parents:
            raise invalid(f"tensor {excerpt(tensor.name)!r}: its data lie outside the model's folder: {excerpt(where.get('location'))!r}")
        offset, length = int(where.get("offset", 0)), int(where.get("length", size))
        available = path.stat().st_size
    except (OSError, RuntimeError, ValueError) as error:
        raise invalid(f"tensor {excerpt(tensor.name)!r}: its data cannot be read: {excerpt(error)}") from None
    if length != size or offset < 0 or offset + size > available:
        raise invalid(f"tensor {excerpt(tensor.name)!r}: needs bytes {offset} to {offset + size} of {path.name}, which has "
                      f"{available}")
    if not size:
        return np.zeros(shape, dtype)
    try:  # mapped, so that large weights need no memory of their own
        return np.asarray(np.memmap(path, np.dtype(dtype).newbyteorder("<"), "r", offset, shape))
    except OSError as error:
        raise invalid(f"tensor {excerpt(tensor.name)!r}: its data cannot be read: {error.strerror}") from None


def _channels_last(weights: np.ndarray) -> np.ndarray:
    return np.moveaxis(weights, 1, -1)


def _transposed_matrix(weights: np.ndarray) -> np.ndarray:
    return as_matrix(weights.swapaxes(-1, -2))


class _Reader:
    """Finds the quantized layers of a graph and its inner graphs."""

    def __init__(self, model: QuantizedModel, folder: Path, ask: bool, for_others: bool):
        self.model, self.folder, self.ask, self.for_others = model, folder, ask, for_others

    def read(self, graph: Any, parent: Scope | None = None, depth: int = 0, within: str = "") -> None:
        if depth > _DEEPEST:
            raise invalid(f"graphs are nested more than {_DEEPEST} deep")
        scope = Scope(graph, self.folder, parent, within)
        for node in graph.node:
            self.model.operators += 1
            self._node(scope, node)
            for attribute in node.attribute:
                for inner in ([attribute.g] if attribute.type == 5 else attribute.graphs):
                    name = excerpt(node.name or next(iter(node.output), ""))
                    self.read(inner, scope, depth + 1, f"the {attribute.name} of {node.op_type} {name!r}")

    def _node(self, scope: Scope, node: Any) -> None:
        op = node.op_type
        domain = node.domain if node.domain != "ai.onnx" else ""
        if (domain, op) in _OPERATORS:
            getattr(self, "_" + op)(scope, node)
        elif op in _BLOCKS:
            bits = attributes(node).get("bits", 4)
            self.model.pass_over(f"{op}: weights in blocks of {bits} bits", is_harmless=True)
        elif op == "ConvTranspose":
            if scope.dequantizer(node.input[1]) is not None:
                self.model.pass_over("ConvTranspose (QDQ): ONNX Runtime runs it in float", is_harmless=True)
        elif domain not in ("", "com.microsoft", "com.microsoft.nchwc"):
            self.model.pass_over(f"{op} of {domain}")
        elif op.startswith(("QLinear", "QOrdered", "QEmbed", "QMoE")) or op.endswith("Integer"):
            if op not in _ELEMENTWISE:
                self.model.pass_over(op)

    # ----- one method for each operator: where its operands are --------------------------------------------------

    def _QLinearConv(self, scope, node):
        if attributes(node).get("channels_last"):
            self.model.pass_over("QLinearConv: channels_last")
            return
        self._convolution(scope, node, "QLinearConv", node.input[0], node.input[3], self._steps(scope, node, 1, 4, 6))

    def _ConvInteger(self, scope, node):
        self._convolution(scope, node, "ConvInteger", node.input[0], node.input[1], None)

    def _QLinearMatMul(self, scope, node):
        self._product(scope, node, node.op_type, node.input[0], node.input[3], self._steps(scope, node, 1, 4, 6))

    def _MatMulInteger(self, scope, node):
        self._product(scope, node, node.op_type, node.input[0], node.input[1], None)

    def _QGemm(self, scope, node):
        values = attributes(node)
        self._product(scope, node, node.op_type, node.input[0], node.input[3],
                      self._steps(scope, node, 1, 4, 7), transposed=bool(values.get("transB")))

    def _MatMulIntegerToFloat(self, scope, node):
        self._product(scope, node, node.op_type, node.input[0], node.input[1], None)

    def _DynamicQuantizeMatMul(self, scope, node):
        self._product(scope, node, node.op_type, node.input[0], node.input[1], None, a_type="u8")

    def _QAttention(self, scope, node):
        self._product(scope, node, node.op_type, node.input[0], node.input[1], None)

    def _DynamicQuantizeLSTM(self, scope, node):
        for i, part in ((1, "input"), (2, "recurrent")):
            weights = scope.constant(node.input[i])
            if weights is None or weights.ndim != 3:
                self.model.pass_over(f"{node.op_type}: weights are no constant")
                continue
            for direction in range(len(weights)):
                suffix = f" {part} weights" + (f", direction {direction}" if len(weights) > 1 else "")
                self._add(scope, node, node.op_type, "u8", weights, itemgetter(direction), None, "", suffix=suffix,
                          inputs=(i, 7 + 2 * i))

    def _Conv(self, scope, node):
        self._qdq(scope, node, self._convolution)

    def _MatMul(self, scope, node):
        self._qdq(scope, node, self._product)

    def _Gemm(self, scope, node):
        self._qdq(scope, node, self._product, transposed=bool(attributes(node).get("transB")))

    # ----- shared by the operators ----------------------------------------------------------------------------------

    @property
    def fusions(self) -> Fusions:
        """What ONNX Runtime makes of the model's QDQ groups. It is asked when the first group is read."""
        if self.model.fusions is None:
            self.model.fusions = Fusions(self.model.proto, self.folder, self.ask)
        return self.model.fusions

    def _qdq(self, scope: Scope, node: Any, add: Any, **options: Any) -> None:
        a, b = (scope.dequantizer(name) for name in node.input[:2])
        if a is None and b is None:
            if self._is_dequantized_by_hand(scope, node.input[1]):
                self.model.pass_over(f"{node.op_type}: Cast and Mul make its integer weights float, so the operator runs in float",
                                     is_harmless=True)
            return  # a product of floats
        if a is None or b is None:
            self._half_quantized(scope, node, b is not None)
            return
        why = self.fusions.reason(scope, node)
        is_read = self.for_others and scope.type_of(a.input[0]) in (np.int8, np.uint8) and scope.integers(node.input[1]) is not None
        if why and not is_read:
            self.model.pass_over(f"{node.op_type} (QDQ): {why}" + ("" if WEIGHT_ONLY in why or FAILS in why else ": ONNX Runtime runs it in float"),
                                 is_harmless=True)
            return
        if not why and exchanges_operands(scope, node):
            self.model.pass_over(f"{node.op_type} (QDQ): ONNX Runtime exchanges the operands of a Gemm in front of a Transpose")
            return
        weights, stored = scope.integers(node.input[1]), scope.shape_of_constant(b.input[0])
        if weights is None and stored is not None:
            self.model.pass_over(f"{node.op_type} (QDQ): constant weights{weights_in_words(scope, node)} that are not read")
            return
        if not why and weights is not None and weights.dtype == np.int8 and is_moved(scope, node, node.input[1]):
            self.model.pass_over(f"{node.op_type} (QDQ): s8 weights that ONNX Runtime moves to u8 in each run, for a run gives their scale")
            return
        if weights is None and node.op_type == "Conv":  # which pairs clamp depends on its weights' shape
            self.model.pass_over("Conv (QDQ): weights are no constant")
            return
        if weights is None:
            self._activations(scope, node, a.input[0], b.input[0], reals=node.input[:2])
            return
        if weights.dtype not in (np.int8, np.uint8):
            self.model.pass_over(f"{node.op_type} (QDQ): weights of {weights.dtype}", is_harmless=True)
            return
        outputs = scope.consumers.get(node.output[0], [])
        quantizers = [n for n in outputs if n.op_type == "QuantizeLinear"]
        between = MOVED_THROUGH | {"Relu", "Clip"}
        while node.op_type == "Conv" and not quantizers and len(outputs) == 1 and outputs[0].op_type in between:
            outputs = scope.consumers.get(outputs[0].output[0], [])
            quantizers = [n for n in outputs if n.op_type == "QuantizeLinear"]
        steps = None
        if quantizers:
            found = [scope.constant(name) for name in (a.input[1], b.input[1], quantizers[0].input[1])]
            steps = ratio(*found)
        before = len(self.model.layers)
        add(scope, node, node.op_type, a.input[0], weights, steps, qdq=True, **options)
        for layer in self.model.layers[before:] if why else ():
            layer.float_in, layer.note = "ONNX Runtime", f"ONNX Runtime runs some layers in float: {why}"

    @staticmethod
    def _is_dequantized_by_hand(scope: Scope, name: str) -> bool:
        """Whether a tensor is a Mul (of a Sub) of a Cast of constant integers of 8 bits."""
        for _ in range(4):
            node = scope.producer(name)
            if node is None or node.op_type not in ("Mul", "Sub", "Cast", "Transpose", "Reshape") or not node.input:
                return False
            if node.op_type == "Cast":
                stored = scope.constant(node.input[0])
                return stored is not None and stored.dtype in (np.int8, np.uint8)
            name = next((each for each in node.input if scope.constant(each) is None), "")
        return False

    def _half_quantized(self, scope: Scope, node: Any, has_weights: bool) -> None:
        """A product of a float tensor and a dequantized one."""
        what = "one of its operands is float, so the operator runs in float"
        if has_weights and self.fusions.is_weight_only(scope, node):
            what = f"only its weights{weights_in_words(scope, node)} are quantized: ONNX Runtime 1.26 and newer makes {WEIGHT_ONLY}"
        elif has_weights:
            what = f"only its weights{weights_in_words(scope, node)} are quantized, so the operator runs in float"
        self.model.pass_over(f"{node.op_type} (QDQ): {what}", is_harmless=True)

    @staticmethod
    def _steps(scope: Scope, node: Any, a: int, b: int, c: int) -> np.ndarray | None:
        return ratio(*(scope.constant(node.input[i]) if len(node.input) > i else None for i in (a, b, c)))

    def _convolution(self, scope, node, operator, a, b, steps, qdq=False):
        weights = b if isinstance(b, np.ndarray) else scope.constant(b)
        if weights is None:
            self.model.pass_over(f"{node.op_type}: weights are no constant")
            return
        if not 3 <= weights.ndim <= 5:
            self.model.pass_over(f"{node.op_type}: weights of {weights.ndim} dimensions")
            return
        groups = int(attributes(node).get("group", 1))
        if groups < 1 or weights.shape[0] % groups:
            raise invalid(f"{node.op_type} {excerpt(node.name)!r}: group is {groups}, with {weights.shape[0]} output channels")
        self._add(scope, node, operator, None, weights, _channels_last, steps, a, groups=groups, qdq=qdq)

    def _product(self, scope, node, operator, a, b, steps, transposed=False, a_type=None, qdq=False):
        weights = b if isinstance(b, np.ndarray) else scope.constant(b)
        if weights is None:
            self._activations(scope, node, a, b, a_type)
            return
        if weights.ndim < 2:
            self.model.pass_over(f"{node.op_type}: weights of {weights.ndim} dimensions")
            return
        hidden = weights.ndim > 2 or bool(attributes(node).get("transA"))
        arrange = _transposed_matrix if transposed else as_matrix
        if steps is not None and steps.size not in (1, arrange(weights).shape[1]):
            steps = None
        self._add(scope, node, operator, a_type, weights, arrange, steps, a, qdq=qdq, hidden=hidden)

    def _activations(self, scope: Scope, node: Any, a: str, b: str, a_type: "str | None" = None,
                     reals: Sequence[str] = ()) -> None:
        """Adds a product whose second operand is no constant. `reals`: the float operands of a QDQ group."""
        types, ranges, qdq = [], [], bool(reals)
        for name, given, real in zip((a, b), (a_type, None), reals or ("", "")):
            dtype = scope.type_of(name)
            kind = given or (type_name(dtype) if dtype else "")
            if not kind:
                self.model.pass_over(f"{node.op_type}{' (QDQ)' * qdq}: the second operand is no constant, and the file does not "
                                     "state the operands' types")
                return
            value = scope.constant(name) if name else None
            low, high, _ = (int(value.min(initial=0)), int(value.max(initial=0)), "") if value is not None else (
                self._range(scope, name, kind, padded=False))
            if qdq and kind == "s8" and is_moved(scope, node, real):
                kind, low, high = "u8", low + 128, high + 128  # QDQS8ToU8Transformer, of both operands
            types.append(kind)
            ranges.append((low, high))
        weights = np.zeros((2, 1), np.uint8 if types[1] == "u8" else np.int8)
        name = self.model.unique(node.name or node.output[0])
        self.model.products.append(ActivationProduct(
            QuantizedLayer(name, node.op_type, node.op_type, qdq, *types, weights, ranges[0], "", within=scope.within), ranges[1]))

    def _add(self, scope, node, operator, a_type, stored, arrange, steps, a, groups=1, qdq=False, suffix="", inputs=None,
             hidden=False):
        weights = arrange(stored)
        if not weights.size:
            self.model.pass_over(f"{node.op_type}: weights of shape {weights.shape}", is_harmless=True)
            return
        b_type = type_name(weights.dtype)
        if not b_type:
            self.model.pass_over(f"{node.op_type}: weights of {weights.dtype}")
            return
        weights_node = scope.dequantizer(node.input[1]) if qdq else node
        weights_input, point_input = (0, 2) if qdq else inputs or _INPUTS[node.op_type]
        b_name = weights_node.input[weights_input]
        note = ""
        source = scope.scope_of(b_name)
        if source is not None and b_name in source.overridable:
            note = "some weights are inputs of the model too: audited as stored; a caller may override them"
        if a_type is None:
            a_dtype = scope.type_of(a)
            a_type = type_name(a_dtype) if a_dtype else ""
            if not a_type:
                a_type, note = "u8", note or "the file does not state the type of some activations; audited as u8"
        if node.op_type == "ConvInteger" and (a_type, b_type) == ("s8", "u8"):  # pairs in the order (channel, kernel position)
            self.model.pass_over("ConvInteger: s8 activations with u8 weights: ONNX Runtime clamps pairs that intact does not audit")
            return
        low, high, why = self._range(scope, a, a_type, padded=weights.ndim > 2)
        if qdq and a_type == "s8" and not stays_s8(scope, node):  # QDQS8ToU8Transformer; session.qdqisint8allowed=1 keeps s8
            a_type, low, high = "u8", low + 128, high + 128
            note = note or "s8 activations of QDQ models become u8 in ONNX Runtime"
        if qdq:
            hidden = hidden or scope.producer(node.input[0]).op_type != "DequantizeLinear"  # no tensor holds the integers
            note = wrong_bias(scope, node) or note
        name = self.model.unique(node.name or node.output[0], suffix)
        self.model.layers.append(QuantizedLayer(
            name, operator, node.op_type, qdq, a_type, b_type, weights, (low, high), why, steps, groups, note,
            activation="" if hidden else a, graph_node=node if scope.parent is None else None,
            weights_node=weights_node if scope.parent is None else None,
            inner_node=None if scope.parent is None else weights_node, within=scope.within, scope=scope,
            weights_input=weights_input, point_input=point_input,
            view=(lambda constant: arrange(scope.integers(node.input[1], stored=constant))) if qdq else arrange))

    @staticmethod
    def _range(scope: Scope, a: str, a_type: str, padded: bool) -> tuple[int, int, str]:
        """Bounds of the quantized activations, with padding: a convolution is padded by the zero point."""
        low, high = TYPE_RANGES[a_type]
        node = scope.producer(a) if a else None
        for _ in range(16):
            if node is None or node.op_type not in _KEEPERS or not node.input:
                break
            node = scope.producer(node.input[0])
        if node is None or node.op_type != "QuantizeLinear":
            return low, high, ""
        scale = scope.constant(node.input[1])
        point = scope.point(node)
        if scale is None or point is None or scale.size != 1 or point.size != 1 or not scale.reshape(-1)[0] > 0:
            return low, high, ""
        real_low, real_high, why = scope.real_range(node.input[0])
        return bounded((real_low, real_high), why, float(scale.reshape(-1)[0]), int(point.reshape(-1)[0]), (low, high), padded)


def load_onnx(path: str | Path) -> Any:
    """The ONNX model in a file, without its external data. Raises `Error` if it cannot be read."""
    try:
        import onnx
    except ImportError:
        raise invalid(f"{excerpt(path)}: to read ONNX models, install the package onnx: pip install onnx") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            proto = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise invalid(f"{excerpt(path)}: {error.strerror or excerpt(error)}") from None
    except Exception:  # protobuf's DecodeError, whose module differs by version
        raise invalid(f"{excerpt(path)}: is no ONNX model; expected .onnx, .tflite, or the .xml of an OpenVINO IR") from None
    if not proto.graph.node:
        raise invalid(f"{excerpt(path)}: is no ONNX model, or one without operators")
    return proto


def read_onnx(path: str | Path, proto: Any = None, ask: bool = True, for_others: bool = False) -> QuantizedModel:
    """The quantized layers of the model in a file. Raises `Error` if it cannot be read. `proto`: the file's model with other
    constants. External data are read from the file's folder. `ask`: an installed ONNX Runtime is asked which QDQ groups it
    computes in integers; else rules decide. `for_others`: reads the other groups of 8 bits too, because other engines may compute
    them in integers."""
    path = Path(path)
    proto = proto or load_onnx(path)
    model = QuantizedModel(str(path), proto=proto)
    reader = _Reader(model, path.parent, ask, for_others)
    try:
        reader.read(proto.graph)
        for function in proto.functions:
            model.pass_over(f"function {function.name}: its operators are not read")
    except Error as error:
        raise invalid(f"{excerpt(path)}: {error.message}") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError, OverflowError, MemoryError) as error:
        raise invalid(f"{excerpt(path)}: a node or a tensor is malformed: {excerpt(error)}") from None
    return model
