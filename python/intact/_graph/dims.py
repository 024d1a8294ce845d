"""The axes of tensors.

An `Axis` is a set of indices with one order for all tensors that have it. A dimension of a tensor is a list
of segments, which lie one after the other (Concat). A segment is a list of factors, the slowest first
(Reshape). A factor is an axis, or a digit of its index: (index // stride) % size. Only digits with stride 1
are ever reordered. The other digits number blocks, and an order stays within blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

MOST_DIMS = 64  # of a tensor that is followed; operators of a hostile graph may double them


class Axis:
    """A set of indices. `size`: None if a run decides it. `block`: an order stays within blocks of this size;
    0: one block. `reason`: why only the stored order is possible. `sums`: the sums of floats that a new order
    rearranges, in words. `has_fixed_size`: whether added channels would change results."""

    __slots__ = ("parent", "size", "block", "reason", "sums", "parts", "is_composite", "has_fixed_size")

    def __init__(self, size: int | None, reason: str = ""):
        self.parent: Axis | None = None
        self.size, self.block, self.reason, self.sums = size, 0, reason, ""
        self.parts: list[Axis] | None = None
        # whether it is one of several factors, or has digits: it cannot be cut into segments
        self.is_composite = False
        self.has_fixed_size = False

    def root(self) -> "Axis":
        root = self
        while root.parent is not None:
            root = root.parent
        while self.parent is not None:  # shortens the path
            self.parent, self = root if self is not root else None, self.parent
        return root

    @property
    def is_frozen(self) -> bool:
        return bool(self.root().reason)

    def freeze(self, reason: str) -> None:
        root = self.root()
        root.reason = root.reason or reason
        for part in root.parts or []:
            part.freeze(reason)

    def divide(self, block: int) -> None:
        root = self.root()
        root.block = math.gcd(root.block, block)
        self.compose()

    def compose(self) -> None:
        root = self.root()
        root.is_composite = root.has_fixed_size = True
        if root.parts:
            self.freeze("a concatenation that is reshaped")

    def cut(self, sizes: list[int]) -> "list[Axis]":
        """Cuts the axis into segments; each has its own order."""
        root = self.root()
        if root.parts is None:
            if root.is_composite:
                root.freeze("an axis that is both cut and reshaped")
            root.has_fixed_size = True
            root.parts = [Axis(size, root.reason) for size in sizes]
            for part in root.parts:
                part.sums, part.has_fixed_size = root.sums, True
        return root.parts


class Factor(NamedTuple):
    """A digit of an axis. `also`: a second axis whose blocks this digit numbers (groups of a convolution's
    input channels). `is_depth`: whether it is the depth of a product's weights; the weights of a copied
    channel may be zeros there."""

    axis: Axis
    stride: int
    size: int | None
    also: Any = None
    is_depth: bool = False

    @property
    def is_whole(self) -> bool:
        return self.stride == 1 and self.size == self.axis.root().size


Segment = list  # a list of Factor
Dim = list  # a list of Segment


def whole(axis: Axis) -> Dim:
    return [[Factor(axis, 1, axis.size)]] if axis.size != 1 else [[]]


def frozen(size: int | None, reason: str) -> Dim:
    return whole(Axis(size, reason))


def segment_size(segment: Segment) -> int | None:
    sizes = [factor.size for factor in segment]
    return None if None in sizes else math.prod(sizes)


def size_of(dim: Dim) -> int | None:
    sizes = [segment_size(segment) for segment in dim]
    return None if None in sizes else sum(sizes)


def resolved(dim: Dim) -> Dim:
    """The dimension, with each cut axis replaced by its segments."""
    found: Dim = []
    for segment in dim:
        if (
            len(segment) == 1
            and segment[0].is_whole
            and segment[0].axis.root().parts
            and not segment[0].axis.is_frozen
        ):
            for part in segment[0].axis.root().parts:
                found += resolved(whole(part))
        else:
            found.append(segment)
    return found


def factors(dim: Dim) -> list:
    return [factor for segment in resolved(dim) for factor in segment]


def freeze(dims: Any, reason: str) -> None:
    for dim in dims or []:
        for factor in factors(dim):
            factor.axis.freeze(reason)


def depths(dim: Dim) -> Dim:
    """The dimension, marked as the depths of a product's weights."""
    return [[factor._replace(is_depth=True) for factor in segment] for segment in dim]


def not_depths(dim: Dim) -> Dim:
    """The dimension without the mark of `depths`: the channels of a tensor that is no weights."""
    return [[factor._replace(is_depth=False) for factor in segment] for segment in dim]


def fix_size(*dims: Dim) -> None:
    for dim in dims:
        for factor in factors(dim):
            factor.axis.root().has_fixed_size = True


def is_free(dim: Dim) -> bool:
    """Whether some axis of the dimension can still be reordered."""
    return any(not factor.axis.is_frozen and factor.stride == 1 for factor in factors(dim))


def joined(segment: Segment) -> Segment:
    """The segment with adjacent digits of one axis merged, without factors of size 1."""
    found: Segment = []
    for factor in segment:
        if factor.size == 1:
            continue
        last = found[-1] if found else None
        if (
            last
            and last.axis.root() is factor.axis.root()
            and factor.size
            and last.size
            and not last.also
            and not factor.also
            and last.stride == factor.stride * factor.size
        ):
            found[-1] = Factor(last.axis, factor.stride, last.size * factor.size)
        else:
            found.append(factor)
    if len(found) > 1 or (found and not found[0].is_whole):
        for factor in found:
            factor.axis.compose()
    return found


def union(a: Axis, b: Axis, reason: str) -> None:
    """Makes both axes share one order. Axes that cannot are frozen."""
    a, b = a.root(), b.root()
    if a is b:
        return
    if a.size is None or a.size != b.size:  # two unknown sizes may differ
        a.freeze(reason)
        b.freeze(reason)
        return
    if a.parts or b.parts:  # unify() replaces cut axes by their segments if it can
        a.freeze("an axis that is both cut and reshaped")
        b.freeze("an axis that is both cut and reshaped")
        return
    b.parent = a
    a.block = math.gcd(a.block, b.block)
    a.sums = a.sums or b.sums
    a.is_composite |= b.is_composite
    a.has_fixed_size |= b.has_fixed_size
    if a.reason or b.reason:
        a.freeze(a.reason or b.reason)


def _unify_segments(a: Segment, b: Segment, reason: str) -> None:
    if [(f.stride, f.size, f.axis.root().size) for f in a] == [
        (f.stride, f.size, f.axis.root().size) for f in b
    ]:
        for first, second in zip(a, b):
            if first.stride > 1 and (first.axis.is_frozen or second.axis.is_frozen):
                continue  # digits that number blocks are never reordered
            union(first.axis, second.axis, reason)
        return
    for one, other in ((a, b), (b, a)):
        for factor in one:
            # If the other side keeps the stored order, digits that number blocks agree with it.
            if factor.stride == 1 or any(not f.axis.is_frozen for f in other):
                factor.axis.freeze(next((f.axis.root().reason for f in other if f.axis.is_frozen), reason))


def unify(a: Dim, b: Dim, reason: str) -> None:
    """Makes both dimensions share one order, or freezes them in the stored order."""
    a, b = list(resolved(a)), list(resolved(b))
    while a and b:
        first, second = segment_size(a[0]), segment_size(b[0])
        if first == second or (len(a) == len(b) == 1):
            _unify_segments(a.pop(0), b.pop(0), reason)
            continue
        if first is None or second is None:
            break
        larger, smaller = (a, b) if first > second else (b, a)
        least, most = min(first, second), max(first, second)
        factor = larger[0][0]
        if len(larger[0]) != 1 or not factor.is_whole or least == 0:
            break
        parts = factor.axis.cut([least, most - least])
        larger[:1] = [segment for part in parts for segment in resolved(whole(part))]
        if segment_size(larger[0]) == most:  # it is frozen
            break
    if a or b:
        freeze([a], reason)
        freeze([b], reason)


def regrouped(segment: Segment, sizes: list[int]) -> "list[Segment] | None":
    """The factors of a segment, distributed to dimensions of these sizes; None if a factor and a size do not
    divide evenly."""
    left = list(segment)
    groups = []
    for size in sizes:
        group = []
        while size > 1:
            if not left:
                return None
            factor = left.pop(0)
            if not factor.size or factor.also:
                return None
            if size % factor.size == 0:
                group.append(factor)
                size //= factor.size
            elif factor.size % size == 0:
                inner = factor.size // size
                factor.axis.divide(factor.stride * inner)
                group.append(Factor(factor.axis, factor.stride * inner, size))
                left.insert(0, Factor(factor.axis, factor.stride, inner))
                size = 1
            else:
                return None
        groups.append(joined(group))
    return None if any(factor.size != 1 for factor in left) else groups


@dataclass
class Use:
    """A constant as an operator's input, and the axes of its dimensions."""

    node: int
    input: int
    name: str
    dims: list


@dataclass
class Reader:
    """A product of activations and constant weights. `dim`: the axes of its depths, or of a convolution's
    input channels."""

    node: int
    dim: Dim
    part: int = 0  # the number of this product, if the operator has several
