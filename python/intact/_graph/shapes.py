"""How axes move through operators that only move values, and through operators of sizes. Rules are as
in elements.py."""

from __future__ import annotations

import math

from .dims import (
    Axis,
    Dim,
    fix_size,
    freeze,
    frozen,
    is_free,
    regrouped,
    resolved,
    segment_size,
    size_of,
    unify,
    whole,
)
from .nodes import attributes, input_of, permutation_of


def transpose(tensors, node):
    x = tensors.of(node, 0)
    if x is None:
        return None
    permutation = permutation_of(node, len(x))
    return [[x[i] for i in permutation]] if permutation is not None else None


def reshaped(dims: list, target: list) -> list:
    """The axes of a tensor after Reshape. Elements of `target`: a size, an axis that stands for its unknown
    size, or None."""
    dims = [resolved(dim) for dim in dims]
    reason = "Reshape that mixes axes"
    out: list = [None] * len(target)

    def symbol(dim):
        if len(dim) == 1 and len(dim[0]) == 1 and size_of(dim) is None:
            return dim[0][0].axis.root()
        return size_of(dim)

    begin = 0
    while (
        begin < min(len(dims), len(target))
        and target[begin] is not None
        and symbol(dims[begin])
        == (target[begin].root() if isinstance(target[begin], Axis) else target[begin])
    ):
        out[begin] = dims[begin]
        begin += 1
    rest = [size_of(dim) for dim in dims[begin:]]
    unknown = [k for k in range(begin, len(target)) if not isinstance(target[k], int)]
    if len(unknown) == 1 and None not in rest:
        others = math.prod(target[k] for k in range(begin, len(target)) if k != unknown[0])
        if others and math.prod(rest) % others == 0:
            target = target[: unknown[0]] + [math.prod(rest) // others] + target[unknown[0] + 1 :]
    i, o = len(dims), len(target)
    while i > begin and o > begin:
        if i == begin + 1 and o == begin + 1:
            out[begin] = dims[begin]
            i = o = begin
            break
        # The shortest trailing dimensions of both sides with equal numbers of elements.
        first, last, sizes = i - 1, o - 1, [size_of(dims[i - 1]), target[o - 1]]
        while all(isinstance(size, int) for size in sizes) and sizes[0] != sizes[1]:
            if sizes[0] < sizes[1] and first > begin:
                first -= 1
                size = size_of(dims[first])
                sizes[0] = None if size is None else sizes[0] * size
            elif sizes[0] > sizes[1] and last > begin:
                last -= 1
                sizes[1] = sizes[1] * target[last] if isinstance(target[last], int) else None
            else:
                sizes[0] = None
        if not all(isinstance(size, int) for size in sizes):
            break
        group = [dim for dim in dims[first:i] if size_of(dim) != 1]
        wanted = target[last:o]
        if len(group) == 1 and [size for size in wanted if size != 1] == [size_of(group[0])]:
            parts = [group[0] if size != 1 else [[]] for size in wanted]
        elif any(len(dim) > 1 for dim in group):
            parts = None
        else:
            found = regrouped([factor for dim in group for factor in dim[0]], wanted)
            parts = None if found is None else [[part] for part in found]
        if parts is None:
            freeze(group, reason)
            parts = [frozen(size, reason) for size in wanted]
        out[last:o] = parts
        i, o = first, last
    if i > begin:
        freeze(dims[begin:i], reason)
    for k in range(len(out)):
        if out[k] is None:
            size = target[k]
            out[k] = whole(size.root()) if isinstance(size, Axis) else frozen(size, reason)
    return out


def reshape(tensors, node):
    x = tensors.of(node, 0)
    target = tensors.sizes.vector_of(node.input[1]) if len(node.input) > 1 else None
    if target is None:
        hint = tensors.hints.get(node.output[0])
        target = hint if hint is not None else None
    elif not attributes(node).get("allowzero") and x is not None:

        def copied(i):
            if i >= len(x):
                return None
            if size_of(x[i]) is None and len(x[i]) == 1 and len(x[i][0]) == 1:
                return x[i][0][0].axis
            return size_of(x[i])

        target = [copied(i) if size == 0 and isinstance(size, int) else size for i, size in enumerate(target)]
    if x is None or target is None:
        return None
    if any(isinstance(size, int) and size < 0 for size in target):
        rest = [size for size in target if not (isinstance(size, int) and size < 0)]
        total = [size_of(dim) for dim in x]
        inferred = None
        if None not in total and all(isinstance(size, int) for size in rest) and math.prod(rest):
            inferred = math.prod(total) // math.prod(rest)
        target = [inferred if isinstance(size, int) and size < 0 else size for size in target]
    fix_size(*x)
    return [reshaped(x, target)]


def flatten(tensors, node):
    x = tensors.of(node, 0)
    axis = attributes(node).get("axis", 1)
    if x is None or not -len(x) <= axis <= len(x):
        return None
    axis = axis % len(x) if axis < 0 else axis

    def product(dims):
        sizes = [size_of(dim) for dim in dims]
        return None if None in sizes else math.prod(sizes)

    head, tail = x[:axis], x[axis:]
    return [reshaped(head, [product(head)]) + reshaped(tail, [product(tail)])]


def _axes_of(tensors, node) -> list | None:
    axes = attributes(node).get("axes")
    if axes is None and input_of(node, 1):
        value = tensors.scope.constant(node.input[1])
        axes = None if value is None else value.reshape(-1).tolist()
    return axes


def squeeze(tensors, node):
    x, axes = tensors.of(node, 0), _axes_of(tensors, node)
    if x is None or (axes is None and (len(node.input) > 1 or any(size_of(dim) is None for dim in x))):
        return None
    if axes is None:
        return [[dim for dim in x if size_of(dim) != 1]]
    gone = {axis % len(x) for axis in axes} if x else set()
    return [[dim for i, dim in enumerate(x) if i not in gone]]


def unsqueeze(tensors, node):
    x, axes = tensors.of(node, 0), _axes_of(tensors, node)
    if x is None or axes is None:
        return None
    rank = len(x) + len(axes)
    new = {axis % rank for axis in axes}
    rest = iter(x)
    return [[[[]] if i in new else next(rest) for i in range(rank)]]


def concat(tensors, node, first=0, step=1):
    places = [i for i in range(first, len(node.input), step)]
    inputs = [tensors.of(node, i) for i in places]
    axis = attributes(node).get("axis", 0)
    if not inputs or None in inputs or len({len(dims) for dims in inputs}) != 1:
        return None
    if not -len(inputs[0]) <= axis < len(inputs[0]):
        return None
    axis %= len(inputs[0])
    out = []
    for d in range(len(inputs[0])):
        there = [dims[d] for dims in inputs]
        if d != axis:
            best = next((dim for dim in there if size_of(dim) is not None and is_free(dim)), there[0])
            for dim in there:
                if dim is not best:
                    unify(best, dim, "the channels of the inputs of Concat do not match")
            out.append(best)
            continue
        if any(size_of(dim) is None for dim in there):
            freeze(there, "Concat along an axis of unknown size")
            out.append(frozen(None, "Concat along an axis of unknown size"))
        else:
            out.append(
                [segment if segment else frozen(1, "")[0] for dim in there for segment in resolved(dim)]
            )
    return [out]


def qlinear_concat(tensors, node):
    return concat(tensors, node, 2, 3)


def cut(dim: Dim, sizes: list[int]) -> "list[Dim] | None":
    """The dimension, cut into dimensions of these sizes; None if that is not possible."""
    fix_size(dim)
    segments = list(resolved(dim))
    found: list = []
    for size in sizes:
        part: list = []
        while size > 0:
            if not segments:
                return None
            have = segment_size(segments[0])
            if have is None:
                return None
            if have <= size:
                part.append(segments.pop(0))
                size -= have
                continue
            if (
                len(segments[0]) != 1
                or not segments[0][0].is_whole
                or segments[0][0].axis.root().is_composite
            ):
                return None
            axis = segments[0][0].axis
            if axis.is_frozen:
                segments[:1] = [frozen(n, axis.root().reason)[0] for n in (size, have - size)]
            else:
                axis.cut([size, have - size])
                segments[:1] = resolved([segments[0]])
        found.append(part or [[]])
    return found


def split(tensors, node):
    x = tensors.of(node, 0)
    values = attributes(node)
    axis = values.get("axis", 0)
    if x is None or not -len(x) <= axis < len(x):
        return None
    axis %= len(x)
    fix_size(x[axis])
    sizes = values.get("split")
    if input_of(node, 1):
        value = tensors.scope.constant(node.input[1])
        sizes = None if value is None else value.tolist()
    total = size_of(x[axis])
    if not sizes and total is not None:
        part = -(-total // len(node.output))
        sizes = [min(part, total - part * i) for i in range(len(node.output))]
    parts = (
        cut(x[axis], sizes)
        if sizes and total is not None and sum(sizes) == total and min(sizes) >= 0
        else None
    )
    if parts is None:
        freeze([x[axis]], "Split of its channels")
        parts = [frozen(size, "Split of its channels") for size in (sizes or [None] * len(node.output))]
    return [x[:axis] + [part] + x[axis + 1 :] for part in parts]


def slice_(tensors, node):
    x = tensors.of(node, 0)
    values = attributes(node)
    if x is None:
        return None
    found = []
    for i, name in enumerate(("starts", "ends", "axes", "steps")):
        value = values.get(name)
        if value is None and input_of(node, i + 1):
            constant = tensors.scope.constant(node.input[i + 1])
            if constant is None and name in ("axes", "steps"):
                return None
            value = None if constant is None else constant.reshape(-1).tolist()
        found.append(value)
    starts, ends, axes, steps = found
    count = len(starts or ends or axes or [])
    axes = axes if axes is not None else list(range(count or len(x)))
    out = list(x)
    for k, axis in enumerate(axes):
        if not -len(x) <= axis < len(x):
            return None
        dim = x[axis]
        fix_size(dim)
        parts, size = None, size_of(dim)
        if starts and ends and (steps is None or steps[k] == 1) and size is not None:
            low, high = (min(max(n + size if n < 0 else n, 0), size) for n in (starts[k], ends[k]))
            if high > low:
                parts = cut(dim, [low, high - low, size - high])
        if parts is None:
            freeze([dim], "Slice of its channels")
        out[axis % len(x)] = parts[1] if parts else frozen(None, "Slice of its channels")
    return [out]


def gather(tensors, node):
    axis = attributes(node).get("axis", 0)
    if len(node.input) < 2:
        return None
    indices = (
        tensors.of(node, 1)
        if not tensors.is_constant(node.input[1])
        else [frozen(size, "indices of Gather") for size in tensors.shape(node.input[1]) or ()]
    )
    x = tensors.of(node, 0)
    if x is None or indices is None or not -len(x) <= axis < len(x):
        return None
    axis %= len(x)
    freeze([x[axis]], "Gather from its channels")
    return [x[:axis] + list(indices) + x[axis + 1 :]]


def expand(tensors, node):
    x = tensors.of(node, 0)
    hint = tensors.hints.get(node.output[0])
    target = tensors.sizes.vector_of(node.input[1]) if len(node.input) > 1 else None
    rank = len(target) if target is not None else len(hint) if hint is not None else None
    if x is None or rank is None or rank < len(x):
        return None
    fix_size(*x)
    out = [frozen(None, "Expand") for _ in range(rank - len(x))]
    return [out + [dim if (size_of(dim) or 1) != 1 else frozen(None, "Expand") for dim in x]]


def pad(tensors, node):
    x = tensors.of(node, 0)
    pads = attributes(node).get("pads")
    if pads is None and len(node.input) > 1:
        value = tensors.scope.constant(node.input[1])
        pads = None if value is None else value.reshape(-1).tolist()
    if x is None or pads is None or len(pads) != 2 * len(x) or input_of(node, 3):
        return None
    out = []
    for i, dim in enumerate(x):
        if pads[i] or pads[len(x) + i]:
            freeze([dim], "Pad of its channels")
            dim = frozen(None, "Pad of its channels")
        out.append(dim)
    return [out]


def resize(tensors, node):
    x = tensors.of(node, 0)
    hint = tensors.hints.get(node.output[0])
    if (
        x is None
        or len(x) < 3
        or hint is None
        or len(hint) != len(x)
        or hint[1] is None
        or hint[1] != size_of(x[1])
    ):
        return None
    if attributes(node).get("axes") is not None:
        return None
    if input_of(node, 3):  # sizes
        fix_size(*x)
    return [[x[0], x[1]] + [frozen(None, "Resize") for _ in x[2:]]]


def shape(tensors, node):
    dims = tensors.of(node, 0) if not tensors.is_constant(node.input[0]) else []
    seen = range(len(dims or []))
    readers = tensors.scope.consumers.get(node.output[0], [])
    if (
        readers
        and all(reader.op_type == "Gather" for reader in readers)
        and not {"start", "end"} & set(attributes(node))
    ):
        indices = [
            tensors.sizes.vector_of(reader.input[1]) if reader.input[0] == node.output[0] else None
            for reader in readers
        ]
        picked = [i for index in indices for i in index or [None]]
        if all(isinstance(i, int) and -len(seen) <= i < len(seen) for i in picked):
            seen = picked
    if (
        tensors.is_read(node.output[0])
        and node.output[0] not in tensors.scope.consumers
        or node.output[0] in tensors.captured
    ):
        seen = range(len(dims or []))
    fix_size(*[dims[i] for i in seen])
    return [[frozen(len(dims) if dims is not None else None, "sizes")]]


def size(tensors, node):
    fix_size(*(tensors.dims.get(node.input[0]) or []))
    return [[]]


def constant_of_shape(tensors, node):
    target = tensors.sizes.vector_of(node.input[0])
    hint = tensors.hints.get(node.output[0]) if target is None else None
    if target is None and hint is None:
        return None
    return [
        [frozen(size if isinstance(size, int) else None, "ConstantOfShape") for size in target or hint or []]
    ]


def constant(tensors, node):
    hint = tensors.hints.get(node.output[0])
    return [None if hint is None else [frozen(size, "a constant that is not read") for size in hint]]


def items_only(tensors, node):
    """Of an operator that moves values between all dimensions but the first."""
    x = tensors.of(node, 0)
    if not x:
        return None
    reason = f"{node.op_type} of its channels"
    freeze(x[1:], reason)
    return [[x[0]] + [frozen(None, reason) for _ in x[1:]]]
