"""Quantized layers of a TFLite model, as LiteRT runs it.

An audit needs few fields of TFLite's schema. They are read here by their numbers, because Python's
flatbuffers checks no bounds. Files may be hostile, so each offset, length and shape is checked before it is
used."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, Iterator

import numpy as np

from .._graph.nodes import as_matrix, type_name
from .._library import Error, excerpt, invalid
from .model import TYPE_RANGES, QuantizedLayer, QuantizedModel, bounded, ratio

# TensorType
DTYPES = {
    0: np.float32,
    1: np.float16,
    2: np.int32,
    3: np.uint8,
    4: np.int64,
    6: np.bool_,
    7: np.int16,
    9: np.int8,
    10: np.float64,
    12: np.uint64,
    15: np.uint32,
    16: np.uint16,
}
_SMALL = {17: 4, 19: 2, 20: 4}  # INT4, INT2, UINT4: bits
# BuiltinOperator: the operators that an audit examines
_NAMES = {
    0: "ADD",
    1: "AVERAGE_POOL_2D",
    2: "CONCATENATION",
    3: "CONV_2D",
    4: "DEPTHWISE_CONV_2D",
    5: "DEPTH_TO_SPACE",
    6: "DEQUANTIZE",
    9: "FULLY_CONNECTED",
    14: "LOGISTIC",
    16: "LSTM",
    17: "MAX_POOL_2D",
    18: "MUL",
    19: "RELU",
    20: "RELU_N1_TO_1",
    21: "RELU6",
    22: "RESHAPE",
    23: "RESIZE_BILINEAR",
    24: "RNN",
    25: "SOFTMAX",
    26: "SPACE_TO_DEPTH",
    27: "SVDF",
    28: "TANH",
    32: "CUSTOM",
    34: "PAD",
    35: "UNIDIRECTIONAL_SEQUENCE_RNN",
    36: "GATHER",
    37: "BATCH_TO_SPACE_ND",
    38: "SPACE_TO_BATCH_ND",
    39: "TRANSPOSE",
    40: "MEAN",
    41: "SUB",
    43: "SQUEEZE",
    44: "UNIDIRECTIONAL_SEQUENCE_LSTM",
    45: "STRIDED_SLICE",
    46: "BIDIRECTIONAL_SEQUENCE_RNN",
    49: "SPLIT",
    51: "DELEGATE",
    52: "BIDIRECTIONAL_SEQUENCE_LSTM",
    65: "SLICE",
    67: "TRANSPOSE_CONV",
    69: "TILE",
    70: "EXPAND_DIMS",
    82: "REDUCE_MAX",
    83: "PACK",
    88: "UNPACK",
    89: "REDUCE_MIN",
    97: "RESIZE_NEAREST_NEIGHBOR",
    100: "MIRROR_PAD",
    102: "SPLIT_V",
    114: "QUANTIZE",
    126: "BATCH_MATMUL",
    130: "BROADCAST_TO",
    132: "CONV_3D",
    141: "CONV_3D_TRANSPOSE",
    152: "RELU_0_TO_1",
    171: "STABLEHLO_CONVOLUTION",
    197: "STABLEHLO_DOT_GENERAL",
}
_UNREAD = set(
    """LSTM RNN SVDF UNIDIRECTIONAL_SEQUENCE_RNN UNIDIRECTIONAL_SEQUENCE_LSTM
    BIDIRECTIONAL_SEQUENCE_RNN BIDIRECTIONAL_SEQUENCE_LSTM TRANSPOSE_CONV CONV_3D CONV_3D_TRANSPOSE
    STABLEHLO_CONVOLUTION STABLEHLO_DOT_GENERAL""".split()
)
# Operators that only move numbers, of their first input or, in _OF_ALL, of all inputs.
_MOVES = set(
    """DEPTH_TO_SPACE MAX_POOL_2D RESHAPE SPACE_TO_DEPTH GATHER BATCH_TO_SPACE_ND TRANSPOSE SQUEEZE
    STRIDED_SLICE SLICE TILE EXPAND_DIMS REDUCE_MAX UNPACK REDUCE_MIN RESIZE_NEAREST_NEIGHBOR
    MIRROR_PAD SPLIT_V BROADCAST_TO CONCATENATION PACK SPLIT""".split()
)
_OF_ALL = {"CONCATENATION", "PACK"}
# Operators that keep the range but round. _PADS also add zeros.
_COMPUTES = {"AVERAGE_POOL_2D", "RESIZE_BILINEAR", "PAD", "SPACE_TO_BATCH_ND", "MEAN", "QUANTIZE"}
_PADS = {"PAD", "SPACE_TO_BATCH_ND"}
# Bounds of activations; fused activations by number; and the field of an operator's options that holds this
# number.
_ACTIVATIONS = {
    "RELU": (0.0, math.inf),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU6": (0.0, 6.0),
    "TANH": (-1.0, 1.0),
    "LOGISTIC": (0.0, 1.0),
    "SOFTMAX": (0.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}
_FUSED = {1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6", 4: "TANH"}
_FUSED_FIELD = {
    "ADD": 0,
    "AVERAGE_POOL_2D": 5,
    "CONCATENATION": 1,
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 4,
    "FULLY_CONNECTED": 0,
    "MAX_POOL_2D": 5,
    "MUL": 0,
    "SUB": 0,
}


class _Table:
    """A table of the file. Its vtable gives the place of each field. Fields are numbered as in the schema.
    Absent fields have a default."""

    def __init__(self, data: bytes, position: int):
        self._data, self._position = data, position
        self._vtable = position - self._get("<i", position)
        if self._vtable < 0:
            raise struct.error
        self._size = self._get("<H", self._vtable)

    def _get(self, kind: str, at: int) -> int:
        return struct.unpack_from(kind, self._data, at)[0]

    def _at(self, field: int) -> int:
        """The position of a field; 0 if it is absent."""
        slot = 4 + 2 * field
        offset = self._get("<H", self._vtable + slot) if slot + 2 <= self._size else 0
        return self._position + offset if offset else 0

    def number(self, field: int, kind: str, default: int = 0) -> int:
        """A number. `kind`: its format character, as in the module struct."""
        at = self._at(field)
        return self._get("<" + kind, at) if at else default

    def table(self, field: int) -> "_Table | None":
        at = self._at(field)
        return _Table(self._data, at + self._get("<I", at)) if at else None

    def vector(self, field: int, size: int) -> tuple[int, int]:
        """Position and length of a vector of elements of `size` bytes."""
        at = self._at(field)
        if not at:
            return 0, 0
        begin = at + self._get("<I", at)
        length = self._get("<I", begin)
        if begin + 4 + length * size > len(self._data):
            raise invalid(
                f"a vector claims {length} elements; the file has room for {(len(self._data) - begin - 4) // size}"
            )
        return begin + 4, length

    def array(self, field: int, dtype: Any, most: int | None = None) -> np.ndarray:
        """A vector of numbers, which may be empty. It is a view: nothing is copied."""
        size = np.dtype(dtype).itemsize
        begin, length = self.vector(field, size)
        if most is not None and length > most:
            raise invalid(f"a vector has {length} elements; expected at most {most}")
        if length:
            return np.frombuffer(self._data, np.dtype(dtype).newbyteorder("<"), length, begin)
        return np.zeros(0, dtype)

    def tables(self, field: int) -> "_Tables":
        return _Tables(self._data, *self.vector(field, 4))

    def text(self, field: int) -> str:
        begin, length = self.vector(field, 1)
        return bytes(self._data[begin : begin + min(length, 1600)]).decode("utf-8", "replace")


class _Tables:
    """A vector of tables."""

    def __init__(self, data: bytes, begin: int, length: int):
        self._data, self._begin, self._length = data, begin, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: int) -> _Table:
        if not 0 <= i < self._length:
            raise IndexError(f"number {i} of {self._length}")
        at = self._begin + 4 * i
        return _Table(self._data, at + struct.unpack_from("<I", self._data, at)[0])

    def __iter__(self) -> Iterator[_Table]:
        return (self[i] for i in range(self._length))


class _Tensor:
    """A tensor: its type, shape, quantization and, if it is constant, its values."""

    def __init__(self, file: "_File", table: _Table):
        self._file, self._table = file, table
        self.type = table.number(1, "b")
        self.dtype = DTYPES.get(self.type)
        self.shape = tuple(int(n) for n in table.array(0, np.int32, 8))
        self.name = table.text(3)
        self.is_sparse = table.table(6) is not None
        quantization = table.table(4)
        self.scales = self.points = np.zeros(0)
        self.axis = 0
        if quantization is not None:
            self.scales = quantization.array(2, np.float32)
            self.points = quantization.array(3, np.int64)
            self.axis = quantization.number(6, "i")
        self._values: np.ndarray | None = None

    @property
    def a_type(self) -> str:
        return type_name(self.dtype) if self.dtype else ""

    @property
    def scale(self) -> float:
        """The one scale, or 0."""
        return float(self.scales[0]) if self.scales.size == 1 else 0.0

    @property
    def point(self) -> int:
        return int(self.points[0]) if self.points.size == 1 else 0

    @property
    def is_constant(self) -> bool:
        return self._file.buffer(self._table.number(2, "I")) is not None

    @property
    def values(self) -> np.ndarray | None:
        """The constant's values, in its shape."""
        if self._values is None and self.dtype is not None:
            data = self._file.buffer(self._table.number(2, "I"))
            if data is None:
                return None
            if any(n < 0 for n in self.shape):
                raise invalid(f"tensor {excerpt(self.name)!r}: has the shape {self.shape}")
            size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
            if len(data) != size:
                raise invalid(
                    f"tensor {excerpt(self.name)!r}: holds {len(data)} bytes; expected {size} of shape {self.shape}"
                )
            self._values = data.view(np.dtype(self.dtype).newbyteorder("<")).reshape(self.shape)
        return self._values


class _File:
    """The model's root: operator codes and buffers."""

    def __init__(self, data: bytes):
        self.data = data
        self.root = _Table(data, struct.unpack_from("<I", data)[0])
        self.buffers = self.root.tables(4)
        # For newer operators, field 3 has the number, and field 0 has 127.
        self.codes = []
        for code in self.root.tables(1):
            number = max(code.number(0, "b"), code.number(3, "i"))
            self.codes.append((_NAMES.get(number, str(number)), code.text(1)))

    def buffer(self, i: int) -> np.ndarray | None:
        """The bytes of a buffer; None if it has none. In large models they follow the tables."""
        if not i:
            return None
        table = self.buffers[i]
        offset, size = table.number(1, "Q"), table.number(2, "Q")
        if offset > 1:  # if it is 0 or 1, the bytes are in the table
            if offset + size > len(self.data):
                raise invalid(
                    f"buffer {i}: needs bytes {offset} to {offset + size} of a file that has {len(self.data)}"
                )
            return np.frombuffer(self.data, np.uint8, size, offset)
        data = table.array(0, np.uint8)
        return data if data.size else None


class _Graph:
    """One subgraph: its tensors, and the operator that makes each."""

    def __init__(self, file: _File, table: _Table):
        self.file = file
        self._tables = table.tables(0)
        self._tensors: dict[int, _Tensor] = {}
        self._bounds: dict[int, tuple[int, int, str]] = {}
        self.operators = table.tables(3)
        self.producers: dict[int, _Table] = {}
        outputs = 0
        for operator in self.operators:
            made = operator.array(2, np.int32)
            outputs += made.size
            if outputs > len(file.data):
                raise invalid("its operators have more outputs than the file has bytes")
            self.producers.update((int(i), operator) for i in made)

    def tensor(self, i: int) -> _Tensor | None:
        """A tensor by its number. -1 is an omitted input: None."""
        if i == -1:
            return None
        if i not in self._tensors:
            self._tensors[i] = _Tensor(self.file, self._tables[i])
        return self._tensors[i]

    def code(self, operator: _Table) -> tuple[str, str]:
        """An operator's name, and its custom name if it is CUSTOM."""
        i = operator.number(0, "I")
        if i >= len(self.file.codes):
            raise IndexError(f"operator code {i} of {len(self.file.codes)}")
        return self.file.codes[i]

    def input(self, operator: _Table, i: int) -> int:
        inputs = operator.array(1, np.int32)
        return int(inputs[i]) if i < inputs.size else -1

    def bounds(self, i: int, depth: int = 0) -> tuple[int, int, str]:
        """Bounds of a quantized tensor from the operators that make it, and the operator that bounds it."""
        if i not in self._bounds:
            tensor = self.tensor(i)
            if tensor is None or not tensor.a_type:
                raise IndexError(f"tensor {i} is not quantized")
            self._bounds[i] = (*TYPE_RANGES[tensor.a_type], "")  # ends the recursion in a cycle
            self._bounds[i] = self._computed(i, tensor, depth)
        return self._bounds[i]

    def _computed(self, i: int, tensor: _Tensor, depth: int) -> tuple[int, int, str]:
        limits = TYPE_RANGES[tensor.a_type]
        operator = self.producers.get(i)
        if operator is None or depth > 100 or not tensor.scale > 0:
            return (*limits, "")
        op, _ = self.code(operator)
        real, why = (-math.inf, math.inf), ""
        if op in _ACTIVATIONS:
            real, why = _ACTIVATIONS[op], op
        elif op in _MOVES or op in _COMPUTES:
            found = self._moved(op, operator, tensor, depth)
            if found is not None and op in _MOVES and found[3]:
                return found[:3]  # the integers only move
            if found is not None:
                real, why = self._real(found, operator, op), found[2]
        options = operator.table(4)
        if op in _FUSED_FIELD and options is not None:
            fused = _FUSED.get(options.number(_FUSED_FIELD[op], "b"))
            if fused:
                low, high = _ACTIVATIONS[fused]
                real = (max(real[0], low), min(real[1], high))
                why = fused if not why else f"{fused} of {why}"
        if real[0] > real[1]:
            return (*limits, "")
        return bounded(real, why, tensor.scale, tensor.point, limits, False)

    def _moved(
        self, op: str, operator: _Table, output: _Tensor, depth: int
    ) -> tuple[int, int, str, bool] | None:
        """Bounds of the integers that an operator passes on, and whether its output has the inputs' scale and
        zero point. None if inputs are float, or have different scales."""
        inputs = operator.array(1, np.int32, 4096)
        data = inputs[1:2] if op == "SPLIT" else inputs if op in _OF_ALL else inputs[:1]
        bounds = []
        first = None
        for i in data:
            tensor = self.tensor(int(i))
            if tensor is None or not tensor.a_type or tensor.is_constant:
                return None
            first = first or tensor
            if (tensor.dtype, tensor.scale, tensor.point) != (first.dtype, first.scale, first.point):
                return None
            bounds.append(self.bounds(int(i), depth + 1))
        if first is None:
            return None
        low, high = min(b[0] for b in bounds), max(b[1] for b in bounds)
        why = next((b[2] for b in bounds if b[2]), "")
        return (
            low,
            high,
            why,
            (first.dtype, first.scale, first.point) == (output.dtype, output.scale, output.point),
        )

    def _real(self, found: tuple[int, int, str, bool], operator: _Table, op: str) -> tuple[float, float]:
        """The bounds of integers as real numbers. They include the zeros of a padding."""
        tensor = self.tensor(self.input(operator, 1 if op == "SPLIT" else 0))
        assert tensor is not None
        low, high = ((value - tensor.point) * tensor.scale for value in found[:2])
        return (min(low, 0.0), max(high, 0.0)) if op in _PADS else (low, high)


class _Reader:
    """Finds the quantized layers of subgraphs."""

    def __init__(self, model: QuantizedModel, file: _File):
        self.model, self.file = model, file

    def read(self, graph: _Graph) -> None:
        for operator in graph.operators:
            self.model.operators += 1
            op, custom = graph.code(operator)
            if op in ("CONV_2D", "DEPTHWISE_CONV_2D"):
                self._convolution(graph, operator, op)
            elif op in ("FULLY_CONNECTED", "BATCH_MATMUL"):
                self._product(graph, operator, op)
            elif op == "DELEGATE":
                self.model.pass_over("DELEGATE: its operators are not in the file")
            elif op in _UNREAD and self._has_bytes(graph, operator):
                self.model.pass_over(f"{op}: not read")
            elif op == "CUSTOM" and self._has_bytes(graph, operator):
                self.model.pass_over(f"custom operator {custom}: not read")

    @staticmethod
    def _has_bytes(graph: _Graph, operator: _Table) -> bool:
        """Whether an operator reads numbers of 8 bits or fewer."""
        tensors = (graph.tensor(int(i)) for i in operator.array(1, np.int32, 4096))
        return any(tensor is not None and (tensor.a_type or tensor.type in _SMALL) for tensor in tensors)

    def _operands(
        self, graph: _Graph, operator: _Table, op: str
    ) -> "tuple[int, _Tensor, _Tensor, np.ndarray] | None":
        """The activations' number, the activations, the weights, and the weights' values. If the operator is
        no int8 product with constant weights: adds a product of two activations, or notes the reason, and
        returns None."""
        number = graph.input(operator, 0)
        a, b = graph.tensor(number), graph.tensor(graph.input(operator, 1))
        if a is None or b is None:
            raise IndexError(f"{op} has fewer than two operands")
        if b.type in _SMALL:
            self.model.pass_over(f"{op}: weights of {_SMALL[b.type]} bits")
        elif not b.a_type:
            source = graph.producers.get(graph.input(operator, 1))
            if source is not None and graph.code(source)[0] == "DEQUANTIZE":
                inner = graph.tensor(graph.input(source, 0))
                if inner is not None and inner.a_type and inner.is_constant:
                    self.model.pass_over(
                        f"{op}: its weights are dequantized first, so the operator runs in float",
                        is_harmless=True,
                    )
            elif a.a_type:
                self.model.pass_over(f"{op}: int8 activations and other weights")
        elif b.is_sparse:
            self.model.pass_over(f"{op}: sparse weights")
        elif a.dtype is np.int16:
            self.model.pass_over(
                f"{op}: activations of 16 bits: no engine adds their products in int16", is_harmless=True
            )
        elif b.values is None and a.a_type and not a.is_constant:
            self.model.add_product(
                self._output(graph, operator, op).name or f"{op} {self.model.operators}",
                op,
                a.a_type,
                b.a_type,
                graph.bounds(number),
                graph.bounds(graph.input(operator, 1)),
            )
        elif b.values is None:
            self.model.pass_over(
                f"{op}: "
                + (
                    "its first operand is the constant one"
                    if a.is_constant
                    else "both operands change from run to run"
                )
            )
        elif a.dtype is np.float32 and b.a_type == "u8":
            self.model.pass_over(f"{op}: float activations and u8 weights")
        elif not a.a_type and a.dtype is not np.float32:
            self.model.pass_over(f"{op}: activations of type {a.type}")
        else:
            return number, a, b, b.values
        return None

    @staticmethod
    def _output(graph: _Graph, operator: _Table, op: str) -> _Tensor:
        made = operator.array(2, np.int32)
        output = graph.tensor(int(made[0])) if made.size else None
        if output is None:
            raise IndexError(f"{op} has no output")
        return output

    def _convolution(self, graph: _Graph, operator: _Table, op: str) -> None:
        is_depthwise = op == "DEPTHWISE_CONV_2D"
        found = self._operands(graph, operator, op)
        if found is None:
            return
        number, a, b, weights = found
        if weights.ndim != 4 or (is_depthwise and weights.shape[0] != 1):
            expected = "(1, kh, kw, O)" if is_depthwise else "(O, kh, kw, I)"
            raise invalid(f"{op}: has weights of shape {weights.shape}; expected {expected}")
        if is_depthwise:
            weights = np.moveaxis(weights, -1, 0).reshape(weights.shape[3], *weights.shape[1:3], 1)
        if len(a.shape) != 4:
            raise invalid(f"{op}: has an input of shape {a.shape}; expected four dimensions")
        channels, depth = a.shape[-1], weights.shape[-1]
        if channels < 1:
            self.model.pass_over(f"{op}: an input without a number of channels")
            return
        if not depth or channels % depth or len(weights) % (channels // depth):
            raise invalid(f"{op}: has {channels} input channels, with weights of shape {b.shape}")
        groups = channels // depth
        self._add(graph, operator, "Conv", op, number, a, b, weights, groups, 3 if is_depthwise else 0)

    def _product(self, graph: _Graph, operator: _Table, op: str) -> None:
        options = operator.table(4)
        if op == "FULLY_CONNECTED" and options is not None and options.number(1, "b"):
            self.model.pass_over(f"{op}: shuffled weights")
            return
        found = self._operands(graph, operator, op)
        if found is None:
            return
        number, a, b, weights = found
        if weights.ndim < 2 or (op == "FULLY_CONNECTED" and weights.ndim != 2):
            raise invalid(f"{op}: has weights of shape {weights.shape}")
        axis = weights.ndim - 1
        if op == "FULLY_CONNECTED" or (options is not None and options.number(1, "B")):  # adj_y
            weights = weights.swapaxes(-1, -2)
            axis -= 1
        if weights.size:
            weights = as_matrix(weights)
        self._add(graph, operator, "MatMul", op, number, a, b, weights, 1, axis)

    def _add(
        self,
        graph: _Graph,
        operator: _Table,
        operator_name: str,
        op: str,
        number: int,
        a: _Tensor,
        b: _Tensor,
        weights: np.ndarray,
        groups: int,
        axis: int,
    ) -> None:
        """Adds a layer. `axis`: the axis of the outputs in the file's weights."""
        if not weights.size:
            self.model.pass_over(f"{op}: weights of shape {weights.shape}", is_harmless=True)
            return
        output = self._output(graph, operator, op)
        note, steps = "", None
        a_type = a.a_type
        if not a_type:  # float
            a_type, bounds = "s8", (-128, 127, "")
            note = "float activations: LiteRT quantizes them to s8 at run time"
        else:
            bounds = graph.bounds(number)
            if weights.ndim > 2:
                point = min(max(a.point, TYPE_RANGES[a_type][0]), TYPE_RANGES[a_type][1])  # the padding
                bounds = (min(bounds[0], point), max(bounds[1], point), bounds[2])
            if output.a_type and (b.scales.size == 1 or b.axis == axis):
                steps = ratio(a.scales, b.scales, output.scales)
        if steps is not None and steps.size not in (
            1,
            len(weights) if weights.ndim > 2 else weights.shape[1],
        ):
            steps = None
        if bounds[:2] == TYPE_RANGES[a_type]:
            bounds = (*bounds[:2], "")
        self.model.layers.append(
            QuantizedLayer(
                self.model.unique(output.name or f"{op} {self.model.operators}"),
                operator_name,
                op,
                False,
                a_type,
                b.a_type,
                weights,
                bounds[:2],
                bounds[2],
                steps,
                groups,
                note,
                is_shifted=a_type == "s8",
            )
        )


def read_tflite(path: str | Path) -> QuantizedModel:
    """The quantized layers of the model in a file. Raises `Error` if it cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise invalid(f"{excerpt(path)}: {error.strerror or excerpt(error)}") from None
    if data[4:8] != b"TFL3":
        raise invalid(f"{excerpt(path)}: is no TFLite model: the word TFL3 is not at byte 4")
    model = QuantizedModel(str(path), "litert")
    try:
        file = _File(data)
        reader = _Reader(model, file)
        for graph in file.root.tables(2):
            reader.read(_Graph(file, graph))
    except Error as error:
        raise invalid(f"{excerpt(path)}: {error.message}") from None
    except struct.error:
        raise invalid(f"{excerpt(path)}: an offset leads out of the file") from None
    except (IndexError, KeyError, MemoryError, OverflowError, RecursionError, ValueError) as error:
        raise invalid(f"{excerpt(path)}: a table or a tensor is malformed: {excerpt(error)}") from None
    return model
