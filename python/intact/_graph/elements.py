"""How axes move through operators that work element by element, normalise, pool or reduce.

A rule returns the axes of a node's outputs, or None for "unknown". `tensors`: an axes.Axes, which knows the
axes of the inputs."""

from __future__ import annotations

import math

from .dims import Axis, fix_size, freeze, frozen, is_free, size_of, unify, whole
from .nodes import attributes, input_of
from .products import contracted


def same(tensors, node):
    dims = tensors.of(node, 0)
    for i in range(1, len(node.input)):
        if node.op_type == "FastGelu" and dims:
            tensors.along(node, i, dims[-1], dims)
    return None if dims is None else [dims] + [dims] * (len(node.output) - 1)


def broadcast(tensors, node):
    reason = f"the channels of the inputs of {node.op_type} do not match"
    if attributes(node).get("broadcast") or "axis" in attributes(node):  # before opset 7
        return None
    places = (
        [0, 3] if node.op_type.startswith("QLinear") else [i for i, name in enumerate(node.input) if name]
    )
    for i in range(len(node.input)):
        if i not in places and tensors.is_constant(node.input[i]) and not tensors.is_scalar(node.input[i]):
            return None
    moving = {i: tensors.of(node, i) for i in places if not tensors.is_constant(node.input[i])}
    shapes = {i: tensors.shape(node.input[i]) for i in places if tensors.is_constant(node.input[i])}
    if None in moving.values() or None in shapes.values():
        return None
    rank = max([len(dims) for dims in moving.values()] + [len(shape) for shape in shapes.values()])
    out = []
    for d in range(-rank, 0):
        there = [dims[d] for dims in moving.values() if -d <= len(dims) and size_of(dims[d]) != 1]
        sizes = [shape[d] for shape in shapes.values() if -d <= len(shape) and shape[d] != 1]
        if not there:
            out.append(whole(Axis(sizes[0])) if sizes else [[]])
            continue
        known = [dim for dim in there if size_of(dim) is not None]
        best = next((dim for dim in known if is_free(dim)), (known or there)[0])
        for dim in there:
            if dim is not best:
                unify(best, dim, reason)
        if not known and (sizes or any(dim[0][0].axis.root() is not best[0][0].axis.root() for dim in there)):
            best = frozen(sizes[0] if sizes else None, "a size that a run decides")
        out.append(best)
    for i, shape in shapes.items():
        if math.prod(shape) != 1:
            tensors.demand(node, i, [[[]] if shape[d] == 1 else out[d] for d in range(-len(shape), 0)])
    return [out]


def quantize_linear(tensors, node):
    dims = tensors.of(node, 0)
    if dims is not None:
        tensors.per_axis(node, dims)
    return None if dims is None else [dims]


def dynamic_quantize_linear(tensors, node):
    dims = tensors.of(node, 0)
    return None if dims is None else [dims, [], []]


def pool(tensors, node):
    x = tensors.of(node, 0)
    if (
        x is None
        or len(x) < 3
        or attributes(node).get("channels_last")
        or any(map(tensors.is_read, node.output[1:]))
    ):
        return None
    is_global = "Global" in node.op_type
    pixels = [[[]] if is_global else frozen(None, "a size that a run decides") for _ in x[2:]]
    return [x[:2] + pixels] + [None] * (len(node.output) - 1)


def batch_normalization(tensors, node):
    x = tensors.of(node, 0)
    if (
        x is None
        or len(x) < 2
        or any(map(tensors.is_read, node.output[1:]))
        or not attributes(node).get("spatial", 1)
    ):
        return None
    for i in range(1, 5):
        tensors.along(node, i, x[1])
    return [x]


def instance_normalization(tensors, node):
    x = tensors.of(node, 0)
    if x is None or len(x) < 2:
        return None
    contracted(node, x[1], False)  # ONNX Runtime's order of additions depends on the channel's number
    for i in (1, 2):
        tensors.along(node, i, x[1])
    return [x]


def layer_normalization(tensors, node):
    x = tensors.of(node, 0)
    axis = attributes(node).get("axis", -1)
    if x is None or not -len(x) <= axis < len(x):
        return None
    axis %= len(x)
    for dim in x[axis:]:
        contracted(node, dim, False)
        fix_size(dim)
    for i in (1, 2):
        if i < len(node.input) and node.input[i]:
            if axis == len(x) - 1:
                tensors.along(node, i, x[-1])
            else:
                freeze(x[axis:], f"{node.op_type} over several axes")
    reduced = x[:axis] + [[[]] for _ in x[axis:]]
    return [x] + [reduced] * (len(node.output) - 1)


def skip_layer_normalization(tensors, node):
    x, skip = tensors.of(node, 0), tensors.of(node, 1)
    if x is None or skip is None or not x:
        return None
    for a, b in zip(x[::-1], skip[::-1]):
        unify(a, b, node.op_type)
    contracted(node, x[-1], False)
    fix_size(x[-1])
    for i in range(2, len(node.input)):
        tensors.along(node, i, x[-1])
    reduced = x[:-1] + [[[]]]
    return [x, reduced, reduced, x][: len(node.output)]


def embed_layer_normalization(tensors, node):
    ids = tensors.of(node, 0)
    shape = (
        tensors.shape(node.input[2]) if len(node.input) > 2 and tensors.is_constant(node.input[2]) else None
    )
    if ids is None or shape is None or len(shape) != 2:
        return None
    n = whole(Axis(shape[1]))
    for i in (2, 3, 4):
        if i < len(node.input) and node.input[i]:
            if not tensors.is_constant(node.input[i]) or len(tensors.shape(node.input[i]) or ()) != 2:
                return None
            tensors.demand(node, i, [frozen(tensors.shape(node.input[i])[0], "rows of an embedding"), n])
    contracted(node, n, False)
    fix_size(n)
    for i in (5, 6):
        tensors.along(node, i, n)
    out = [*ids, n]
    return [out, [ids[0]], out][: len(node.output)]


def reduce(tensors, node):
    x = tensors.of(node, 0)
    values = attributes(node)
    axes = values.get("axes")
    if input_of(node, 1):
        found = tensors.scope.constant(node.input[1])
        if found is None:
            return None
        axes = found.reshape(-1).tolist()
    if x is None:
        return None
    if not axes:
        if values.get("noop_with_empty_axes"):
            return [x]
        axes = list(range(len(x)))
    if any(not -len(x) <= axis < len(x) for axis in axes):
        return None
    axes = {axis % len(x) for axis in axes}
    keep = values.get("keepdims", 1)
    out = []
    for i, dim in enumerate(x):
        if i not in axes:
            out.append(dim)
            continue
        fix_size(dim)
        if node.op_type not in ("ReduceMax", "ReduceMin"):
            contracted(node, dim, False)
        if keep:
            out.append([[]])
    return [out]


def softmax(tensors, node):
    x = tensors.of(node, 0)
    axis = attributes(node).get("axis", -1 if tensors.opset >= 13 else 1)
    if x is None or not x or not -len(x) <= axis < len(x):
        return None
    freeze(x[axis:] if tensors.opset < 13 else [x[axis]], f"{node.op_type} over its channels")
    return [x]
