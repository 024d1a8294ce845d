"""How axes move through products, convolutions, attention and recurrent layers. Rules are as in
elements.py."""

from __future__ import annotations

from .dims import (
    Axis,
    Factor,
    Reader,
    depths,
    factors,
    fix_size,
    freeze,
    frozen,
    joined,
    regrouped,
    resolved,
    size_of,
    unify,
    whole,
)
from .nodes import attributes


def contracted(node, dim, exact):
    """Notes that a product adds along the dimension."""
    if not exact:
        for factor in factors(dim):
            root = factor.axis.root()
            root.sums = root.sums or f"{node.op_type} in float"


def product(tensors, node):
    op, values, inputs = node.op_type, attributes(node), tensors.row(node).inputs
    at = inputs.b
    if len(node.input) <= at or tensors.is_constant(node.input[0]):
        return None
    a = tensors.of(node, 0)
    if a is None or len(a) < (2 if op in ("Gemm", "QGemm") else 1) or values.get("transA"):
        return None
    if not tensors.is_constant(node.input[at]):
        return _product_of_activations(tensors, node, a, at) if op not in ("Gemm", "QGemm") else None
    shape = tensors.shape(node.input[at])
    if shape is None or len(shape) < 2:
        return None
    n = whole(Axis(shape[-2] if values.get("transB") else shape[-1]))
    batch = [frozen(size, "weights for each item of a batch") for size in shape[:-2]]
    rows_of_weights = _depths_of(tensors, node, at, a[-1])
    tensors.weights(
        node, at, batch + ([n, rows_of_weights] if values.get("transB") else [rows_of_weights, n])
    )
    contracted(node, a[-1], tensors.place(node) in tensors.exact_nodes or inputs.b_point is not None)
    tensors.readers.append(Reader(tensors.place(node), a[-1]))
    for i in inputs.of_columns:
        tensors.along(node, i, n)
    for i in inputs.of_rows:
        if (
            i < len(node.input)
            and tensors.is_constant(node.input[i])
            and not tensors.is_scalar(node.input[i])
        ):
            freeze(a, "a scale for each row")
    rows = a[:-1]
    if batch:
        freeze(rows[:-1], "weights for each item of a batch")
        rank = max(len(rows), len(batch) + 1)
        rows = [frozen(None, "weights for each item of a batch") for _ in range(rank - 1)] + rows[-1:]
    return [rows + [n]]


def _depths_of(tensors, node, at, dim):
    """The depths of a product's weights. Depths can be added only if the weights' zero point is 0."""
    if not _has_zero(tensors, node, at):
        fix_size(dim)
    return depths(dim)


def _has_zero(tensors, node, at):
    source = node
    name = node.input[at]
    point = tensors.row(node).inputs.b_point
    if point is None:
        source = tensors.scope.dequantizer(name)
        if source is None:
            return name in tensors.leaves  # float
        name, point = source.input[0], 2
    weights = tensors.scope.constant(name)
    if weights is None or weights.dtype.kind not in "if":
        return False
    if len(source.input) <= point or not source.input[point]:
        return True
    value = tensors.scope.constant(source.input[point])
    return value is not None and not value.any()


def _product_of_activations(tensors, node, a, at):
    """A product of two activations. In attention each head multiplies its own channels: the heads are a
    batch."""
    b = tensors.of(node, at)
    if b is None or len(a) < 2 or len(b) < 2:
        return None
    freeze([a[-1], b[-2]], f"{node.op_type} of two activations")
    for i in range(len(node.input)):
        if i not in (0, at) and tensors.is_constant(node.input[i]) and not tensors.is_scalar(node.input[i]):
            return None
    batch = []
    rank = max(len(a), len(b)) - 2
    for d in range(-rank - 2, -2):
        there = [dims[d] for dims in (b, a) if -d <= len(dims) and size_of(dims[d]) != 1]
        if not there:
            batch.append([[]])
            continue
        best = next(
            (dim for dim in there if any(f.stride > 1 and not f.axis.is_frozen for f in factors(dim))), None
        )
        if best is None:
            best = next((dim for dim in there if size_of(dim) is not None), there[0])
        for dim in there:
            if dim is not best:
                if all(factor.stride > 1 for factor in factors(dim) + factors(best)):
                    continue  # digits that number blocks are never reordered
                unify(best, dim, f"{node.op_type} of two activations")
        batch.append(best)
    return [batch + [a[-2], b[-1]]]


def convolution(tensors, node):
    inputs = tensors.row(node).inputs
    at = inputs.b
    x = tensors.of(node, 0) if node.input and not tensors.is_constant(node.input[0]) else None
    if (
        x is None
        or len(node.input) <= at
        or not tensors.is_constant(node.input[at])
        or attributes(node).get("channels_last")
    ):
        return None
    shape = tensors.shape(node.input[at])
    groups = attributes(node).get("group", 1)
    if shape is None or len(shape) < 3 or len(x) != len(shape):
        return None
    if groups < 1 or shape[0] % groups or size_of(x[1]) != groups * shape[1]:
        return None
    o, i = shape[:2]
    channels = x[1]
    kernel = [frozen(size, "taps of a convolution") for size in shape[2:]]
    contracted(
        node, channels, tensors.place(node) in tensors.exact_nodes or inputs.b_point is not None or i == 1
    )
    if groups == 1:
        n = whole(Axis(o))
        tensors.weights(node, at, [n, _depths_of(tensors, node, at, channels), *kernel])
    elif i == 1:
        if o == groups:
            n = channels
            tensors.depthwise[tensors.place(node)] = channels
        else:
            segments = resolved(channels)
            if len(segments) > 1:
                return None
            n = [joined([*segments[0], *frozen(o // groups, "outputs of one channel")[0]])]
        tensors.weights(node, at, [n, [[]], *kernel])
    else:
        segments = resolved(channels)
        parts = regrouped(segments[0], [groups, i]) if len(segments) == 1 else None
        axis = Axis(o)
        axis.divide(o // groups)
        n = whole(axis)
        if parts is None or len(parts[1]) != 1 or parts[1][0].stride != 1 or len(parts[0]) != 1:
            freeze([channels], "groups of a convolution that cut its channels unevenly")
            tensors.weights(node, at, [n, frozen(i, "groups of a convolution"), *kernel])
        else:
            number = Factor(axis, o // groups, groups, parts[1][0].axis)
            outputs = [number] + ([Factor(axis, 1, o // groups)] if o > groups else [])
            tensors.weights(node, at, [[outputs], [parts[1]], *kernel])
    if i > 1 or groups == 1:
        tensors.readers.append(Reader(tensors.place(node), channels))
    for k in inputs.of_columns:
        tensors.along(node, k, n)
    for k in inputs.of_rows:
        if (
            k < len(node.input)
            and tensors.is_constant(node.input[k])
            and not tensors.is_scalar(node.input[k])
        ):
            return None
    return [[x[0], n] + [frozen(None, "a size that a run decides") for _ in x[2:]]]


def attention(tensors, node):
    q, k, v = (tensors.of(node, i) for i in range(3))
    heads = attributes(node).get("num_heads", 0)
    if (
        None in (q, k, v)
        or any(node.input[3:])
        or len(node.output) > 1
        or heads < 1
        or len(v) != 3
        or len(q) != 3
    ):
        return None
    freeze([q[2], k[2]], "a product of two activations")
    segments = resolved(v[2])
    size = size_of(v[2])
    if (
        size is None
        or size % heads
        or len(segments) > 1
        or regrouped(segments[0], [heads, size // heads]) is None
    ):
        freeze([v[2]], "heads of attention")
    return [[q[0], q[1], v[2]]]


def lstm(tensors, node):
    x = tensors.of(node, 0)
    if (
        x is None
        or len(x) != 3
        or len(node.input) < 3
        or not all(tensors.is_constant(name) for name in node.input[1:3])
    ):
        return None
    w, r = tensors.shape(node.input[1]), tensors.shape(node.input[2])
    if not w or not r or len(w) != 3 or len(r) != 3 or size_of(x[2]) != w[1]:
        return None
    if r[2] != 4 * r[1] or w[2] != r[2] or w[0] != r[0]:
        return None
    if any(node.input[i] for i in (7,) if i < len(node.input)):  # peepholes
        return None
    directions, hidden = r[:2]
    axis = Axis(directions * hidden)
    axis.has_fixed_size = True
    fix_size(x[2])
    if directions > 1:
        axis.divide(hidden)
    number = joined([Factor(axis, hidden, directions)])
    unit = [Factor(axis, 1, hidden)]

    def gates(count):
        return [joined([*frozen(count, "gates")[0], *unit])]

    tensors.weights(node, 1, [[number], x[2], gates(4)])
    tensors.weights(node, 2, [[number], [unit], gates(4)])
    for i, dims in (
        (3, [[number], gates(8)]),
        (8, [[number], gates(4)]),
        (9, [[number], gates(4)]),
        (10, [[number], gates(4)]),
        (11, [[number], gates(4)]),
    ):
        if i < len(node.input) and node.input[i]:
            if not tensors.is_constant(node.input[i]):
                return None
            shape = tensors.shape(node.input[i])
            if len(shape) == 2 and shape[1] > 1:
                tensors.demand(node, i, dims)
    batch = x[1]
    for i in (5, 6):
        if i >= len(node.input) or not node.input[i]:
            continue
        if tensors.is_constant(node.input[i]):
            shape = tensors.shape(node.input[i])
            if len(shape) != 3:
                return None
            tensors.demand(node, i, [[number], frozen(shape[1], "items of a batch"), [unit]])
            continue
        if node.input[i] in tensors.sizes.uniform:
            continue
        state = tensors.dims.get(node.input[i])
        if state is None or len(state) != 3:
            axis.freeze("an initial state whose axes are not known")
        else:
            unify([unit], state[2], "an initial state")
            unify([number], state[0], "an initial state") if number else None
    tensors.readers.append(Reader(tensors.place(node), x[2], 0))
    tensors.readers.append(Reader(tensors.place(node), whole(axis), 1))
    states = [[number], batch, [unit]]
    return [[x[0], [number], batch, [unit]], states, list(states)][: len(node.output)]
