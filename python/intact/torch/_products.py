"""Translates products with constant weights, and quantization."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import fx

from ._emitter import Emitter
from ._values import CONV, LINEAR, Constant, Packed, Unknown, Value


class Products(Emitter):
    """Methods that translate products, and operators of quantized tensors."""

    def _weights(self, node: Any) -> Packed | None:
        """The packed weights that an operator reads; None if there are none."""
        if node.op == "call_module":
            module = self.modules[node.target]
            if callable(getattr(module, "weight", None)) and hasattr(module, "set_weight_bias"):
                return Packed(module)
            return None
        packed = self.value(node.args[1]) if len(node.args) > 1 else None
        if (
            packed is None
            and len(node.args) > 1
            and isinstance(node.args[1], fx.Node)
            and node.args[1].op == "get_attr"
        ):
            packed = self._attribute(node.args[1])  # a constant that the graph reads later
        return packed if isinstance(packed, Packed) else None

    def _product(self, node: Any, key: str, x: Any) -> Value:
        if not isinstance(x, Value):
            raise Unknown
        packed = self._weights(node)
        self.layer = str(node.target) if node.op == "call_module" else node.name
        self.done.operators[self.layer] = (
            type(self.owner).__name__
            if self.owner is not None
            else f"{self.source}{getattr(node.target, '__name__', key).split('.')[0]}"
        )
        if packed is None:
            return self._unpacked(key, x)
        weight, parts = self.packed(
            packed, str(node.target if node.op == "call_module" else node.args[1].target)
        )
        if ".dynamic." in self.source or key.endswith("dynamic"):
            return self._dynamic(node, key, x, weight, parts)
        scale, point = self._output_scale()
        b = [parts["weight"], parts["scale"], parts["zero_point"]]
        option = packed.option
        geometry = (
            None
            if key in LINEAR
            else self._geometry(
                weight.dim() - 2, option("stride"), option("padding"), option("dilation"), option("groups")
            )
        )
        made = self._integers(
            [x.name, self.scalar(x.scale), self.scalar(x.point, np.uint8)],
            b,
            parts.get("bias", ""),
            [self.scalar(scale), self.scalar(point, np.uint8)],
            geometry,
        )
        return Value(made, x.rank if geometry is None else weight.dim(), scale, point, True, True)

    def _integers(self, a: list[str], b: list[str], bias: str, c: list[str], geometry: dict | None) -> str:
        """A product of integers. a, b: tensor, scale and zero point. c: scale and zero point of a quantized
        output. The bias is float."""
        if geometry is None:
            return self.emit("QGemm", [*a, *b, bias, *c], domain="com.microsoft", name=self.layer, transB=1)
        return self.emit("QLinearConv", [*a, *b, *(c or ["", ""]), bias], name=self.layer, **geometry)

    @staticmethod
    def _geometry(dims: int, stride: Any, padding: Any, dilation: Any, groups: int) -> dict:
        def each(value: Any) -> list[int]:
            values = list(value) if isinstance(value, (list, tuple)) else [value]
            values = values * dims if len(values) == 1 else values[-dims:]
            if not all(isinstance(n, int) for n in values):
                raise Unknown
            return values

        found = {"strides": each(stride), "dilations": each(dilation), "group": groups}
        if isinstance(padding, str):
            return {**found, "auto_pad": {"same": "SAME_UPPER"}.get(padding, "VALID")}
        return {**found, "pads": each(padding) * 2}

    def _dynamic(self, node: Any, key: str, x: Value, weight: Any, parts: dict[str, str]) -> Value:
        """A product of float activations that PyTorch quantizes in each run, to 7 bits if it reduces the
        range."""
        if key not in LINEAR:
            raise Unknown
        if self.owner is not None:
            reduces = self.owner.version is not None and self.owner.version >= 4
        else:
            reduces = bool(self.option(2, "reduce_range", False))
        if reduces:
            clipped = self.emit(
                "Clip", [x.name, self.scalar(0.0), self.scalar(127.0)], name=f"{self.layer} reduce_range"
            )
            point = self.scalar(0, np.uint8)
            scale = self.scalar(1.0)
            a = self.emit("QuantizeLinear", [clipped, scale, point])
        else:
            a, scale, point = self.emit("DynamicQuantizeLinear", [x.name], 3)
        b = [parts["weight"], parts["scale"], parts["zero_point"]]
        made = self._integers([a, scale, point], b, parts.get("bias", ""), [], None)
        return Value(made, x.rank)

    def _unpacked(self, key: str, x: Value) -> Value:
        """A product with weights that are not packed: in float, or between dequantization and
        quantization."""
        if self.owner is not None:
            weight, bias = (
                Constant(tensor) if tensor is not None else None
                for tensor in (getattr(self.owner, "weight", None), getattr(self.owner, "bias", None))
            )
        else:
            weight, bias = self.option(1, "weight"), self.option(2, "bias")
        if (
            not isinstance(weight, Constant)
            or not isinstance(weight.tensor, torch.Tensor)
            or x.is_quantized
            or (bias is not None and not isinstance(bias, Constant))
        ):
            raise Unknown
        rank = weight.tensor.dim()
        geometry = None
        if key in CONV:
            stride, padding, dilation = (
                self.option(i, name, default)
                for i, name, default in ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1))
            )
            geometry = self._geometry(rank - 2, stride, padding, dilation, self.option(6, "groups", 1))
        if weight.scale is not None and weight.tensor.dtype is torch.int8 and x.integers is not None:
            a = x.integers
            made = self._integers(
                [a.name, self.scalar(a.scale), self.scalar(a.point, np.uint8)],
                [
                    self.constant(weight.tensor),
                    self._operand(weight.scale, np.float64),
                    self._zero_points(weight.point),
                ],
                self.constant(bias.tensor) if bias is not None else "",
                [],
                geometry,
            )
            return Value(made, x.rank if geometry is None else rank)
        bias_name = self.constant(bias.tensor, (-1, *[1] * (rank - 2))) if bias is not None else ""
        b = self.name_of(weight)
        if geometry is None:
            made = self.emit("MatMul", [x.name, self.emit("Transpose", [b], perm=[1, 0])], name=self.layer)
        else:
            made = self.emit("Conv", [x.name, b], name=self.layer, **geometry)
        if bias_name:
            made = self.emit("Add", [made, bias_name])
        return Value(made, x.rank if geometry is None else rank)

    def _zero_points(self, point: Any) -> str:
        """Zero points of weights; one 0 if all are 0."""
        if isinstance(point, Constant):
            return self.constant(point.tensor) if bool(point.tensor.any()) else self.scalar(0, np.int8)
        return self.scalar(point, np.int8)

    def _on_quantize(self, x: Any) -> Value:
        """The module Quantize."""
        if not isinstance(x, Value):
            raise Unknown
        return self._quantized(x, self.owner.scale, self.owner.zero_point, self.owner.dtype)

    def _on_quantizepertensor(self, x: Any) -> Any:
        scale, point = self.option(1, "scale"), self.option(2, "zero_point")
        if self.source != "quantized_decomposed.":
            return self._quantized(x, scale, point, self.option(3, "dtype"))
        self.is_exported = True
        low, high, dtype = (
            self.option(i, name) for i, name in ((3, "quant_min"), (4, "quant_max"), (5, "dtype"))
        )
        return self._quantized(x, scale, point, dtype, low, high)

    def _on_quantizepertensordynamic(self, x: Any) -> Value:
        reduces = bool(self.option(2, "reduce_range", False))
        made = self._quantized(x, None, None, self.option(1, "dtype"), 0, 127 if reduces else 255)
        made.is_quantized = True
        return made

    def _quantized(
        self, x: Any, scale: Any, point: Any, dtype: Any, low: int | None = None, high: int | None = None
    ) -> Value:
        """Quantizes to 8 bits. Engines shift s8 activations to u8; the translation makes them u8 at once."""
        shift = {torch.quint8: 0, torch.uint8: 0, torch.qint8: 128, torch.int8: 128}.get(dtype)
        scale, point = self._number(scale), self._number(point)
        if shift is None:
            raise Unknown
        low, high = (limit if n is None else n + shift for n, limit in ((low, 0), (high, 255)))
        name, rank = self.name_of(x), x.tensor.dim() if isinstance(x, Constant) else x.rank
        if scale is None or point is None:  # each run decides
            if (low, high) == (0, 255):
                return Value(self.emit("DynamicQuantizeLinear", [name], 3)[0], rank, 0.0, 0, True)
            scale, point, unknown = 1.0, 0, True
        else:
            point, unknown = int(point) + shift, False
        if (low, high) != (0, 255):
            bounds = [self.scalar((n - point) * scale) for n in (low, high)]
            name = self.emit("Clip", [name, *bounds])
        made = self.emit("QuantizeLinear", [name, self.scalar(scale), self.scalar(point, np.uint8)])
        return Value(made, rank, 0.0 if unknown else scale, point, True, dtype in (torch.quint8, torch.qint8))

    def _on_dequantize(self, x: Any) -> Value:
        if not isinstance(x, Value):
            raise Unknown
        return self._dequantized(x)

    def _dequantized(self, x: Value) -> Value:
        made = self.emit(
            "DequantizeLinear", [x.name, self.scalar(x.scale or 1.0), self.scalar(x.point, np.uint8)]
        )
        return Value(made, x.rank, integers=x)

    def _on_dequantizepertensor(self, x: Any) -> Any:
        """In an exported program: dequantizes activations or weights."""
        self.is_exported = True
        scale, point = self.option(1, "scale"), self.option(2, "zero_point")
        if isinstance(x, Constant):
            if x.scale is not None or None in (self._number(scale), self._number(point)):
                raise Unknown
            return Constant(x.tensor, float(self._number(scale)), int(self._number(point)))
        return self._dequantized(x)

    def _on_dequantizeperchannel(self, x: Any) -> Any:
        self.is_exported = True
        scales, points, axis = self.option(1, "scales"), self.option(2, "zero_points"), self.option(3, "axis")
        if (
            not isinstance(x, Constant)
            or not isinstance(scales, Constant)
            or axis != 0
            or x.scale is not None
        ):
            raise Unknown
        return Constant(x.tensor, scales, points if isinstance(points, Constant) else 0)

    def _on_chooseqparams(self, x: Any) -> list:
        """The smallest and the largest element, which do not depend on the order."""
        self.emit("ReduceMax", [self.name_of(x)], keepdims=0)
        return [None, None]
