"""Nodes, attributes and stored tensors of ONNX graphs.

Files may be hostile: every size is checked before anything is allocated, and external data stays in the
model's folder."""

from __future__ import annotations

import contextlib
import math
import warnings
from pathlib import Path
from typing import Any, Iterator

import numpy as np

from .._library import Error, counted, excerpt, invalid
from .weights import shared

DTYPES = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    4: np.uint16,
    5: np.int16,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    10: np.float16,
    11: np.float64,
    12: np.uint32,
    13: np.uint64,
}
# bytes, by onnx.TensorProto.DataType
ITEM_SIZES = {number: np.dtype(dtype).itemsize for number, dtype in DTYPES.items()}
DEEPEST = 16  # levels of nested graphs


def inner_graphs(node: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The graphs of a node with the names of their attributes. `depth`: of the node's graph; there are none from DEEPEST on."""
    for attribute in node.attribute if depth < DEEPEST else ():
        for inner in [attribute.g] if attribute.type == 5 else attribute.graphs:
            yield attribute.name, inner


def every_node(graph: Any, depth: int = 0) -> Iterator[Any]:
    """The nodes of a graph and of its inner graphs; each node is followed by the nodes of its own graphs."""
    for node in graph.node:
        yield node
        for _, inner in inner_graphs(node, depth):
            yield from every_node(inner, depth + 1)


def captured(node: Any, depth: int = 0) -> set[str]:
    """The tensors that the inner graphs of a node read and do not make."""
    names: set[str] = set()
    for _, inner in inner_graphs(node, depth):
        read = {value.name for value in inner.output}
        made = {value.name for value in [*inner.input, *inner.initializer]}
        for each in inner.node:
            read.update(each.input, captured(each, depth + 1))
            made.update(each.output)
        names |= read - made
    return names


def input_of(node: Any, i: int) -> str:
    """The name of a node's input; "" if it is absent."""
    return node.input[i] if len(node.input) > i else ""


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


def permutation_of(node: Any, rank: int) -> list[int] | None:
    """The rule of Transpose: axis i of its output is axis permutation_of(…)[i] of its input, of `rank` axes. None if
    the node's perm is no permutation of them."""
    perm = attributes(node).get("perm") or list(range(rank))[::-1]
    return perm if sorted(perm) == list(range(rank)) else None


def array_of_tensor(tensor: Any, folder: Path) -> np.ndarray | None:
    """A tensor's values, whose number is checked against its shape; None if its type is not in DTYPES."""
    dtype = DTYPES.get(tensor.data_type)
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
            raise invalid(
                f"tensor {excerpt(tensor.name)!r}: holds {len(tensor.raw_data)} bytes; expected {size} of shape {shape}"
            )
        return np.frombuffer(tensor.raw_data, np.dtype(dtype).newbyteorder("<")).reshape(shape)
    fields = {
        np.float32: tensor.float_data,
        np.float64: tensor.double_data,
        np.int64: tensor.int64_data,
        np.uint32: tensor.uint64_data,
        np.uint64: tensor.uint64_data,
    }
    values = fields.get(dtype, tensor.int32_data)
    if len(values) != count:
        raise invalid(
            f"tensor {excerpt(tensor.name)!r}: holds {counted(len(values), 'value')}; expected {count} of shape {shape}"
        )
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
            raise invalid(
                f"tensor {excerpt(tensor.name)!r}: its data lie outside the model's folder: {excerpt(where.get('location'))!r}"
            )
        offset, length = int(where.get("offset", 0)), int(where.get("length", size))
        available = path.stat().st_size
    except (OSError, RuntimeError, ValueError) as error:
        raise invalid(f"tensor {excerpt(tensor.name)!r}: its data cannot be read: {excerpt(error)}") from None
    if length != size or offset < 0 or offset + size > available:
        raise invalid(
            f"tensor {excerpt(tensor.name)!r}: needs bytes {offset} to {offset + size} of {path.name}, which has "
            f"{available}"
        )
    if not size:
        return np.zeros(shape, dtype)
    try:  # mapped, so that large weights need no memory of their own
        return np.asarray(np.memmap(path, np.dtype(dtype).newbyteorder("<"), "r", offset, shape))
    except OSError as error:
        raise invalid(f"tensor {excerpt(tensor.name)!r}: its data cannot be read: {error.strerror}") from None


# What reading a malformed node or tensor raises.
MALFORMED = (
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    RecursionError,
    OverflowError,
    MemoryError,
)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Reports errors of a graph's reader with the name of its file."""
    try:
        yield
    except Error as error:
        raise invalid(f"{excerpt(path)}: {error.message}") from None
    except MALFORMED as error:
        raise invalid(f"{excerpt(path)}: a node or a tensor is malformed: {excerpt(error)}") from None


def load_onnx(path: str | Path) -> Any:
    """The ONNX model in a file, without its external data. Raises `Error` if it cannot be read."""
    try:
        import onnx
    except ImportError:
        raise invalid(
            f"{excerpt(path)}: to read ONNX models, install the package onnx: pip install onnx"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            proto = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise invalid(f"{excerpt(path)}: {error.strerror or excerpt(error)}") from None
    except Exception:  # protobuf's DecodeError, whose module differs by version
        raise invalid(
            f"{excerpt(path)}: is no ONNX model; expected .onnx, .tflite, or the .xml of an OpenVINO IR"
        ) from None
    if not proto.graph.node:
        raise invalid(f"{excerpt(path)}: is no ONNX model, or one without operators")
    return proto


def type_name(dtype: Any) -> str:
    """ "u8", "s8", or "" for other types."""
    return {np.uint8: "u8", np.int8: "s8"}.get(np.dtype(dtype).type, "")


def names_that_inner_graphs_read(graph: Any) -> set[str]:
    """The names that inner graphs read or return; tensors of the outermost graph are among them."""
    found: set[str] = set()
    for node in every_node(graph):
        for _, inner in inner_graphs(node):
            found.update(value.name for value in inner.output)
            found.update(name for each in inner.node for name in each.input)
    return found - {""}


def sorted_nodes(nodes: list, scope: Any) -> list[int]:
    """The numbers of the operators, each after the makers of its inputs. ONNX Runtime accepts files in other
    orders."""
    places = {id(node): i for i, node in enumerate(nodes)}
    order: list[int] = []
    state = [0] * len(nodes)  # 1: being visited, 2: in the order
    for root in range(len(nodes)):
        stack = [(root, iter(nodes[root].input))] if not state[root] else []
        state[root] = state[root] or 1
        while stack:
            i, inputs = stack[-1]
            for name in inputs:
                maker = scope.producers.get(name) if name and name not in scope.initializers else None
                k = places[id(maker)] if maker is not None else i
                if k != i and state[k] == 1:
                    raise ValueError(f"operators form a cycle: {excerpt(name)!r}")
                if k != i and not state[k]:
                    state[k] = 1
                    stack.append((k, iter(nodes[k].input)))
                    break
            else:
                state[i] = 2
                order.append(i)
                stack.pop()
    return order
