"""Translates operators that change shapes."""

from __future__ import annotations

import operator
from typing import Any

from torch import fx

from ._emitter import Emitter
from ._values import Unknown, Value


class Moves(Emitter):
    """Methods that translate these operators; `_on_NAME` for the operator of this name."""

    def _on_flatten(self, x: Any) -> Value:
        rank = self.known(x)
        start, end = self.option(1, "start_dim", 0) % rank, self.option(2, "end_dim", -1) % rank
        if (start, end) == (1, rank - 1):
            return self.like(x, self.emit("Flatten", [self.name_of(x)], axis=1), 2)
        return self._reshaped(x, None)

    def _on_view(self, x: Any) -> Value:
        sizes = self.node.args[1:]
        sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)) else sizes
        return self._reshaped(x, list(sizes))

    _on_reshape = _on_unsafeview = _on_view

    def _reshaped(self, x: Any, sizes: list | None) -> Value:
        """A Reshape to the sizes of the call, or to the sizes that the graph states."""
        self.known(x)
        shape = self.shape_of(self.node)
        if sizes is None or not all(isinstance(n, int) for n in sizes):
            own = self.shape_of(self.node.args[0])
            if shape is None or own is None:
                raise Unknown
            keeps = own[:1] == shape[:1] == [None] and self._keeps_first(sizes)
            sizes = [0 if i == 0 and keeps else n for i, n in enumerate(shape)]
            if None in sizes:
                if sizes.count(None) > 1:
                    raise Unknown
                sizes = [-1 if n is None else n for n in sizes]
        return self.like(x, self.emit("Reshape", [self.name_of(x), self.vector(sizes)]), len(sizes))

    def _keeps_first(self, sizes: list | None) -> bool:
        """Whether a Reshape keeps the first size of its input."""
        if sizes is None:  # Flatten
            return self.option(1, "start_dim", 0) > 0
        first = sizes[0]
        source = self.node.args[0]
        if not isinstance(first, fx.Node):
            return False
        if first.op == "call_method" and first.target == "size":
            return first.args == (source, 0)
        return (
            first.target is operator.getitem
            and first.args[1] == 0
            and isinstance(first.args[0], fx.Node)
            and first.args[0].args[:1] == (source,)
            and self._name(first.args[0])[1] in ("size", "getattr")
        )

    def _on_permute(self, x: Any) -> Value:
        dims = self.node.args[1:]
        dims = dims[0] if len(dims) == 1 and isinstance(dims[0], (list, tuple)) else dims
        self.known(x)
        return self.like(x, self.emit("Transpose", [self.name_of(x)], perm=[self.dim(x, n) for n in dims]))

    def _on_transpose(self, x: Any) -> Value:
        permutation = list(range(self.known(x)))
        a, b = self.dim(x, self.option(1, "dim0")), self.dim(x, self.option(2, "dim1"))
        permutation[a], permutation[b] = b, a
        return self.like(x, self.emit("Transpose", [self.name_of(x)], perm=permutation))

    def _on_unsqueeze(self, x: Any) -> Value:
        rank = self.known(x)
        axes = self.vector([self.dim(x, self.option(1, "dim"), 1)])
        return self.like(x, self.emit("Unsqueeze", [self.name_of(x), axes]), rank + 1)

    def _on_squeeze(self, x: Any) -> Value:
        dims = self.option(1, "dim")
        dims = list(dims) if isinstance(dims, (list, tuple)) else [dims]
        shape = self.shape_of(self.node)
        axes = [self.dim(x, n) for n in dims]
        if shape is None or self.known(x) - len(axes) != len(shape):
            raise Unknown
        return self.like(x, self.emit("Squeeze", [self.name_of(x), self.vector(axes)]), len(shape))

    def _on_cat(self, x: Any) -> Value:
        parts = [value for value in x if isinstance(value, Value)]
        if not parts or len(parts) != len(x):
            raise Unknown
        dim = self.dim(parts[0], self.option(1, "dim", 0))
        made = self.emit("Concat", [value.name for value in parts], axis=dim)
        return self.like(parts[0], made)

    _on_concat = _on_cat

    def _on_chunk(self, x: Any) -> list:
        count = len({user.args[1] for user in self.node.users if len(user.args) > 1})
        total = self.option(1, "chunks")
        if not isinstance(total, int) or count > total:
            raise Unknown
        return self._split(x, None, total, self.option(2, "dim", 0))

    def _on_split(self, x: Any) -> list:
        sizes, dim = self.option(1, "split_size"), self.option(2, "dim", 0)
        shape = self.shape_of(self.node.args[0])
        if isinstance(sizes, int):
            size = shape[self.dim(x, dim)] if shape is not None else None
            if size is None:
                raise Unknown
            sizes = [min(sizes, size - begin) for begin in range(0, size, sizes)]
        if not sizes or not all(isinstance(n, int) for n in sizes):
            raise Unknown
        return self._split(x, sizes, len(sizes), dim)

    _on_splitwithsizes = _on_split

    def _split(self, x: Any, sizes: list | None, count: int, dim: int) -> list:
        names = [self.name_of(x)] + ([self.vector(sizes)] if sizes else [])
        made = self.emit("Split", names, count, axis=self.dim(x, dim))
        results = [self.like(x, name) for name in (made if count > 1 else [made])]
        for value in results:
            self.state(value.name, self.types.UINT8 if value.is_u8 else self.types.FLOAT, None)
        return results

    def _on_getitem(self, x: Any) -> Value:
        """x[:, a:b]"""
        index = self.node.args[1]
        index = list(index) if isinstance(index, tuple) else [index]
        if not all(isinstance(one, slice) and one.step in (None, 1) for one in index) or not self.known(
            x
        ) >= len(index):
            raise Unknown
        cuts = [(i, one.start or 0, one.stop) for i, one in enumerate(index) if one != slice(None)]
        return self._slice(x, [(i, start, 2**31 if stop is None else stop) for i, start, stop in cuts])

    def _on_slice(self, x: Any) -> Value:
        if self.option(4, "step", 1) != 1:
            raise Unknown
        start, stop = self.option(2, "start"), self.option(3, "end")
        return self._slice(
            x, [(self.dim(x, self.option(1, "dim", 0)), start or 0, 2**31 if stop is None else stop)]
        )

    def _slice(self, x: Any, cuts: list) -> Value:
        self.known(x)
        if not all(isinstance(n, int) for cut in cuts for n in cut):
            raise Unknown
        axes, starts, ends = (list(column) for column in zip(*cuts)) if cuts else ([], [], [])
        if not axes:
            return self.like(x, self.emit("Identity", [self.name_of(x)]))
        return self.like(
            x,
            self.emit("Slice", [self.name_of(x), self.vector(starts), self.vector(ends), self.vector(axes)]),
        )

    def _on_pad(self, x: Any) -> Value:
        pads = self.option(1, "pad")
        rank = self.known(x)
        if not isinstance(pads, (list, tuple)) or not all(isinstance(n, int) for n in pads):
            raise Unknown
        if len(pads) % 2 or len(pads) > 2 * rank:
            raise Unknown
        begins, ends = [0] * rank, [0] * rank
        for i in range(len(pads) // 2):
            begins[rank - 1 - i], ends[rank - 1 - i] = pads[2 * i], pads[2 * i + 1]
        return self.like(x, self.emit("Pad", [self.name_of(x), self.vector(begins + ends)]))

    _on_constantpadnd = _on_pad

    def _on_interpolate(self, x: Any) -> Value:
        if self.known(x) < 3:
            raise Unknown
        return self.like(x, self.emit("Resize", [self.name_of(x)]))

    _on_upsample = _on_upsamplenearest2d = _on_upsamplebilinear2d = _on_interpolate
