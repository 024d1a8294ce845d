"""Translates operators that compute element by element, pool or reduce."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ._emitter import Emitter
from ._values import BINARY, POOLS, REDUCTIONS, Constant, Unknown, Value


class Functions(Emitter):
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
