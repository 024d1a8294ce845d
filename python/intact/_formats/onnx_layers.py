"""Makes the layers that onnx.py finds: their weights, types and ranges, and the tensors that hold them."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from .._graph.fusion import is_moved, stays_s8, wrong_bias
from .._graph.nodes import as_matrix, attributes, type_name
from .._graph.operators import BOUNDED, is_convolution, row_of
from .._graph.scope import Scope
from .._library import excerpt, invalid
from .model import TYPE_RANGES, ActivationProduct, QuantizedLayer, QuantizedModel, bounded


def _channels_last(weights: np.ndarray) -> np.ndarray:
    return np.moveaxis(weights, 1, -1)


def _transposed_matrix(weights: np.ndarray) -> np.ndarray:
    return as_matrix(weights.swapaxes(-1, -2))


class Layers:
    """Adds the layers of operators to a model, or the reason why one is passed over."""

    def __init__(self, model: QuantizedModel):
        self.model = model

    def convolution(self, scope, node, a, b, steps, qdq=False):
        weights = b if isinstance(b, np.ndarray) else scope.constant(b)
        if weights is None:
            self.model.pass_over(f"{node.op_type}: weights are no constant")
            return
        if not 3 <= weights.ndim <= 5:
            self.model.pass_over(f"{node.op_type}: weights of {weights.ndim} dimensions")
            return
        groups = int(attributes(node).get("group", 1))
        if groups < 1 or weights.shape[0] % groups:
            raise invalid(
                f"{node.op_type} {excerpt(node.name)!r}: group is {groups}, with {weights.shape[0]} output channels"
            )
        self.add(scope, node, None, weights, _channels_last, steps, a, qdq=qdq)

    def product(self, scope, node, a, b, steps, transposed=False, a_type=None, qdq=False):
        weights = b if isinstance(b, np.ndarray) else scope.constant(b)
        if weights is None:
            self.activations(scope, node, a, b, a_type)
            return
        if weights.ndim < 2:
            self.model.pass_over(f"{node.op_type}: weights of {weights.ndim} dimensions")
            return
        hidden = weights.ndim > 2 or bool(attributes(node).get("transA"))
        arrange = _transposed_matrix if transposed else as_matrix
        if steps is not None and steps.size not in (1, arrange(weights).shape[1]):
            steps = None
        self.add(scope, node, a_type, weights, arrange, steps, a, qdq=qdq, hidden=hidden)

    def activations(
        self, scope: Scope, node: Any, a: str, b: str, a_type: "str | None" = None, reals: Sequence[str] = ()
    ) -> None:
        """Adds a product whose second operand is no constant. `reals`: the float operands of a QDQ group."""
        types, ranges, qdq = [], [], bool(reals)
        for name, given, real in zip((a, b), (a_type, None), reals or ("", "")):
            dtype = scope.type_of(name)
            kind = given or (type_name(dtype) if dtype else "")
            if not kind:
                self.model.pass_over(
                    f"{node.op_type}{' (QDQ)' * qdq}: the second operand is no constant, and the file does not "
                    "state the operands' types"
                )
                return
            value = scope.constant(name) if name else None
            low, high, _ = (
                (int(value.min(initial=0)), int(value.max(initial=0)), "")
                if value is not None
                else (self._range(scope, name, kind, padded=False))
            )
            if qdq and kind == "s8" and is_moved(scope, node, real):
                kind, low, high = "u8", low + 128, high + 128  # QDQS8ToU8Transformer, of both operands
            types.append(kind)
            ranges.append((low, high))
        weights = np.zeros((2, 1), np.uint8 if types[1] == "u8" else np.int8)
        name = self.model.unique(node.name or node.output[0])
        self.model.products.append(
            ActivationProduct(
                QuantizedLayer(
                    name, node.op_type, node.op_type, qdq, *types, weights, ranges[0], "", within=scope.within
                ),
                ranges[1],
            )
        )

    def add(self, scope, node, a_type, stored, arrange, steps, a, qdq=False, hidden=False, part=None):
        """Adds a layer. `stored`: its weights as the file stores them; `arrange`: makes them the layer's.
        `steps`: see ratio(). `a`: the activations. `hidden`: no run can output them. `part`: of an operator
        with two weights, the suffix of the layer's name, and the inputs that are the weights and their zero
        point."""
        weights = arrange(stored)
        if not weights.size:
            self.model.pass_over(f"{node.op_type}: weights of shape {weights.shape}", is_harmless=True)
            return
        b_type = type_name(weights.dtype)
        if not b_type:
            self.model.pass_over(f"{node.op_type}: weights of {weights.dtype}")
            return
        weights_node = scope.dequantizer(node.input[1]) if qdq else node
        inputs = row_of(node).inputs
        suffix, weights_input, point_input = ("", 0, 2) if qdq else part or ("", inputs.b, inputs.b_point)
        b_name = weights_node.input[weights_input]
        note = ""
        source = scope.scope_of(b_name)
        if source is not None and b_name in source.overridable:
            note = "some weights are inputs of the model too: audited as stored; a caller may override them"
        if a_type is None:
            a_dtype = scope.type_of(a)
            a_type = type_name(a_dtype) if a_dtype else ""
            if not a_type:
                a_type, note = (
                    "u8",
                    note or "the file does not state the type of some activations; audited as u8",
                )
        # pairs in the order (channel, kernel position)
        if node.op_type == "ConvInteger" and (a_type, b_type) == ("s8", "u8"):
            self.model.pass_over(
                "ConvInteger: s8 activations with u8 weights: ONNX Runtime clamps pairs that intact does not audit"
            )
            return
        low, high, why = self._range(scope, a, a_type, padded=weights.ndim > 2)
        # QDQS8ToU8Transformer; session.qdqisint8allowed=1 keeps s8
        if qdq and a_type == "s8" and not stays_s8(scope, node):
            a_type, low, high = "u8", low + 128, high + 128
            note = note or "s8 activations of QDQ models become u8 in ONNX Runtime"
        if qdq:
            # no tensor holds the integers
            hidden = hidden or scope.producer(node.input[0]).op_type != "DequantizeLinear"
            note = wrong_bias(scope, node) or note
        name = self.model.unique(node.name or node.output[0], suffix)
        self.model.layers.append(
            QuantizedLayer(
                name,
                node.op_type,
                node.op_type,
                qdq,
                a_type,
                b_type,
                weights,
                (low, high),
                why,
                steps,
                int(attributes(node).get("group", 1)) if is_convolution(node) else 1,
                note,
                activation="" if hidden else a,
                graph_node=node if scope.parent is None else None,
                weights_node=weights_node if scope.parent is None else None,
                inner_node=None if scope.parent is None else weights_node,
                within=scope.within,
                scope=scope,
                weights_input=weights_input,
                point_input=point_input,
                view=(lambda constant: arrange(scope.integers(node.input[1], stored=constant)))
                if qdq
                else arrange,
            )
        )

    @staticmethod
    def _range(scope: Scope, a: str, a_type: str, padded: bool) -> tuple[int, int, str]:
        """Bounds of the quantized activations, with padding: a convolution is padded by the zero point."""
        low, high = TYPE_RANGES[a_type]
        node = scope.producer(a) if a else None
        for _ in range(16):
            if node is None or row_of(node).range is not BOUNDED or not node.input:
                break
            node = scope.producer(node.input[0])
        if node is None or node.op_type != "QuantizeLinear":
            return low, high, ""
        scale = scope.constant(node.input[1])
        point = scope.point(node)
        if (
            scale is None
            or point is None
            or scale.size != 1
            or point.size != 1
            or not scale.reshape(-1)[0] > 0
        ):
            return low, high, ""
        real_low, real_high, why = scope.real_range(node.input[0])
        return bounded(
            (real_low, real_high),
            why,
            float(scale.reshape(-1)[0]),
            int(point.reshape(-1)[0]),
            (low, high),
            padded,
        )
