"""Translates operators that compute element by element, pool, reduce, or change shapes."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from ._emitter import Emitter
from ._values import BINARY, POOLS, REDUCTIONS, Constant, Unknown, Value


class Moves(Emitter):
    """Methods that translate these operators; `_on_NAME` for the operator of this name."""

    def _binary(self, key: str) -> Any:
        operands = [self.value(argument) for argument in self.node.args[:2]]
        if len(operands) < 2 or not any(isinstance(value, Value) for value in operands):
            raise Unknown
        if isinstance(self.node.args[1], fx.Node) and operands[1] is None:
            raise Unknown  # a size that a run decides
        made = self.emit(BINARY[key], [self.name_of(value) for value in operands])
        ranks = [
            value.tensor.dim() if isinstance(value, Constant) else value.rank
            for value in operands
            if isinstance(value, (Value, Constant))
        ]
        first = next(value for value in operands if isinstance(value, Value))
        return self.like(first, made, None if None in ranks else max(ranks))

    def _bounded(self, x: Any) -> Value:
        if self.key == "relu6":
            low, high = 0.0, 6.0
        elif self.owner is not None or self.key == "hardtanh":
            low, high = self.option(1, "min_val", -1.0), self.option(2, "max_val", 1.0)
        elif self.key == "clampmax":
            low, high = None, self.option(1, "max")
        else:
            low, high = self.option(1, "min"), self.option(2, "max")
        if (isinstance(x, Value) and x.is_quantized) or not all(
            isinstance(n, (int, float, type(None))) for n in (low, high)
        ):
            return self.like(x, self.emit("Elu", [self.name_of(x)]))  # elementwise, without a range
        bounds = ["" if value is None else self.scalar(float(value)) for value in (low, high)]
        return self.like(x, self.emit("Clip", [self.name_of(x), *bounds]))

    def _pool(self, x: Any) -> Value:
        op = POOLS[self.key]
        if "adaptive" in self.key:
            size = self.option(1, "output_size")
            if all(n == 1 for n in (size if isinstance(size, (list, tuple)) else [size])):
                op = {"AveragePool": "GlobalAveragePool", "MaxPool": "GlobalMaxPool"}[op]
        if self.known(x) != int(self.key[-2]) + 2:
            raise Unknown
        return self.like(x, self.emit(op, [self.name_of(x)]))

    def _reduce(self, x: Any) -> Value:
        dims, keep = self.option(1, "dim"), bool(self.option(2, "keepdim", False))
        rank = x.rank if isinstance(x, Value) else x.tensor.dim()
        if dims is None or dims == []:
            return self.like(x, self.emit(REDUCTIONS[self.key], [self.name_of(x)], keepdims=0), 0)
        axes = sorted(self.dim(x, n) for n in (dims if isinstance(dims, (list, tuple)) else [dims]))
        attributes = {"axes": axes}
        inputs = [self.name_of(x)]
        if self.key == "sum":  # since opset 13
            inputs, attributes = [*inputs, self.vector(axes)], {}
        made = self.emit(REDUCTIONS[self.key], inputs, keepdims=int(keep), **attributes)
        return self.like(x, made, None if rank is None else rank if keep else rank - len(axes))

    def _on_softmax(self, x: Any) -> Value:
        return self.like(x, self.emit("Softmax", [self.name_of(x)], axis=self.dim(x, self.option(1, "dim"))))

    def _norm_constants(self, names: list[tuple[int, str]]) -> list[str]:
        found = []
        for i, name in names:
            value = self.option(i, name)
            value = Constant(value) if isinstance(value, torch.Tensor) else value
            if value is not None and not isinstance(value, Constant):
                raise Unknown
            found.append("" if value is None else self.constant(value.tensor))
        return found

    def _on_layernorm(self, x: Any) -> Value:
        shape = self.option(1, "normalized_shape")
        constants = self._norm_constants([(2, "weight"), (3, "bias")])
        return self.like(
            x, self.emit("LayerNormalization", [self.name_of(x), *constants], axis=-len(list(shape)))
        )

    def _batch_norm(self, x: Any) -> Value:
        if self.owner is not None and (self.owner.training or self.owner.running_mean is None):
            raise Unknown
        if self.owner is None and (self.source == "quantized." or self.option(5, "training", False)):
            raise Unknown
        first = 1 if self.source == "aten." else 3  # torch.nn.functional has running means first
        order = [
            (first, "weight"),
            (first + 1, "bias"),
            (4 - first, "running_mean"),
            (5 - first, "running_var"),
        ]
        self.known(x)
        return self.like(x, self.emit("BatchNormalization", [self.name_of(x), *self._norm_constants(order)]))

    _on_batchnorm = _on_batchnorm1d = _on_batchnorm2d = _on_batchnorm3d = _on_bnrelu2d = _on_bnrelu3d = (
        _batch_norm
    )

    def _on_embedding(self, x: Any) -> Value:
        table, ids = (
            (Constant(self.owner.weight), x) if self.owner is not None else (x, self.option(1, "input"))
        )
        if isinstance(table, Value):
            table, ids = ids, table
        if not isinstance(table, Constant) or not isinstance(ids, Value):
            raise Unknown
        made = self.emit("Gather", [self.constant(table.tensor), ids.name], axis=0)
        return Value(made, None if ids.rank is None else ids.rank + 1)

    def _on_matmul(self, x: Any) -> Value:
        other = self.option(1, "other")
        if other is None:
            other = self.option(1, "mat2")
        if isinstance(other, Constant) or not isinstance(other, Value) or not isinstance(x, Value):
            raise Unknown
        self.known(x), self.known(other)
        # In float: because of the Cast, the audit does not take it for a product of integers.
        return Value(
            self.emit(
                "MatMul", [self.emit("Cast", [value.name], to=self.types.FLOAT) for value in (x, other)]
            ),
            max(self.known(x), self.known(other)),
        )

    _on_bmm = _on_mm = _on_matmul

    def _on_scaleddotproductattention(self, x: Any) -> Value:
        q, k, v = (self.option(i, name) for i, name in enumerate(("query", "key", "value")))
        if (
            not all(isinstance(value, Value) and value.rank == q.rank for value in (q, k, v))
            or self.known(q) < 2
        ):
            raise Unknown
        permutation = [*range(q.rank - 2), q.rank - 1, q.rank - 2]
        q, k, v = (self.emit("Cast", [value.name], to=self.types.FLOAT) for value in (q, k, v))
        weights = self.emit(
            "Softmax", [self.emit("MatMul", [q, self.emit("Transpose", [k], perm=permutation)])], axis=-1
        )
        return Value(self.emit("MatMul", [weights, v]), x.rank)

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
