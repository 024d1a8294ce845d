"""Quantized layers of an ONNX model: operators that multiply activations by constant int8 weights, as ONNX
Runtime runs them.

Files may be hostile: every size is checked before anything is allocated, and external data stays in the
model's folder."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from .._graph.fusion import (
    FAILS,
    WEIGHT_ONLY,
    Fusions,
    exchanges_operands,
    is_moved,
    stays_s8,
    weights_in_words,
    wrong_bias,
)
from .._graph.nodes import DEEPEST, MALFORMED, as_matrix, attributes, load_onnx, type_name
from .._graph.operators import BOUNDED, Inputs, is_convolution, row_of
from .._graph.scope import Scope
from .._library import Error, excerpt, invalid
from .model import TYPE_RANGES, ActivationProduct, QuantizedLayer, QuantizedModel, bounded, ratio

_ELEMENTWISE = {
    "QLinearAdd",
    "QLinearMul",
    "QLinearConcat",
    "QLinearAveragePool",
    "QLinearGlobalAveragePool",
    "QLinearSigmoid",
    "QLinearLeakyRelu",
    "QLinearSoftmax",
    "QLinearReduceMean",
    "QLinearWhere",
}
# Operators with weights in blocks, and their attribute of the number of bits.
_BLOCKS = {
    "MatMulNBits": "bits",
    "QMoE": "expert_weight_bits",
    "GatherBlockQuantized": "bits",
    "MatMulBnb4": "bits",
}


def _channels_last(weights: np.ndarray) -> np.ndarray:
    return np.moveaxis(weights, 1, -1)


def _transposed_matrix(weights: np.ndarray) -> np.ndarray:
    return as_matrix(weights.swapaxes(-1, -2))


class _Reader:
    """Finds the quantized layers of a graph and its inner graphs."""

    def __init__(self, model: QuantizedModel, folder: Path, ask: bool, for_others: bool):
        self.model, self.folder, self.ask, self.for_others = model, folder, ask, for_others

    def read(self, graph: Any, parent: Scope | None = None, depth: int = 0, within: str = "") -> None:
        if depth > DEEPEST:
            raise invalid(f"graphs are nested more than {DEEPEST} deep")
        scope = Scope(graph, self.folder, parent, within)
        for node in graph.node:
            self.model.operators += 1
            self._node(scope, node)
            for attribute in node.attribute:
                for inner in [attribute.g] if attribute.type == 5 else attribute.graphs:
                    name = excerpt(node.name or next(iter(node.output), ""))
                    self.read(inner, scope, depth + 1, f"the {attribute.name} of {node.op_type} {name!r}")

    def _node(self, scope: Scope, node: Any) -> None:
        op = node.op_type
        domain = node.domain if node.domain != "ai.onnx" else ""
        inputs = row_of(node).inputs
        if inputs is not None and domain in row_of(node).domains:
            self._operator(scope, node, inputs)
        elif op in _BLOCKS:
            bits = attributes(node).get(_BLOCKS[op], 4)
            self.model.pass_over(f"{op}: weights in blocks of {bits} bits", is_harmless=True)
        elif op == "ConvTranspose":
            if scope.dequantizer(node.input[1]) is not None:
                self.model.pass_over("ConvTranspose (QDQ): ONNX Runtime runs it in float", is_harmless=True)
        elif domain not in ("", "com.microsoft", "com.microsoft.nchwc"):
            self.model.pass_over(f"{op} of {domain}")
        elif op.startswith(("QLinear", "QOrdered", "QEmbed")) or op.endswith("Integer"):
            if op not in _ELEMENTWISE:
                self.model.pass_over(op)

    def _operator(self, scope: Scope, node: Any, inputs: Inputs) -> None:
        values = attributes(node)
        if node.op_type == "DynamicQuantizeLSTM":
            self._lstm(scope, node)
        elif inputs.b_point is None:  # between DequantizeLinear and QuantizeLinear
            is_gemm = node.op_type == "Gemm"
            self._qdq(
                scope,
                node,
                *((self._convolution,) if node.op_type == "Conv" else (self._product,)),
                **({"transposed": bool(values.get("transB"))} if is_gemm else {}),
            )
        elif is_convolution(node):
            if values.get("channels_last"):
                self.model.pass_over(f"{node.op_type}: channels_last")
                return
            self._convolution(
                scope, node, node.input[0], node.input[inputs.b], self._steps(scope, node, inputs)
            )
        else:
            self._product(
                scope,
                node,
                node.input[0],
                node.input[inputs.b],
                self._steps(scope, node, inputs),
                transposed=node.op_type == "QGemm" and bool(values.get("transB")),
                a_type="u8" if node.op_type == "DynamicQuantizeMatMul" else None,
            )

    def _lstm(self, scope: Scope, node: Any) -> None:
        for i, part in ((1, "input"), (2, "recurrent")):
            weights = scope.constant(node.input[i])
            if weights is None or weights.ndim != 3:
                self.model.pass_over(f"{node.op_type}: weights are no constant")
                continue
            for direction in range(len(weights)):
                suffix = f" {part} weights" + (f", direction {direction}" if len(weights) > 1 else "")
                self._add(
                    scope, node, "u8", weights, itemgetter(direction), None, "", part=(suffix, i, 7 + 2 * i)
                )

    # ----- shared by the operators ----------------------------------------------------------------------------------

    @property
    def fusions(self) -> Fusions:
        """What ONNX Runtime makes of the model's QDQ groups. It is asked when the first group is read."""
        if self.model.fusions is None:
            self.model.fusions = Fusions(self.model.proto, self.folder, self.ask)
        return self.model.fusions

    def _qdq(self, scope: Scope, node: Any, add: Any, **options: Any) -> None:
        a, b = (scope.dequantizer(name) for name in node.input[:2])
        if a is None and b is None:
            if self._is_dequantized_by_hand(scope, node.input[1]):
                self.model.pass_over(
                    f"{node.op_type}: Cast and Mul make its integer weights float, so the operator runs in float",
                    is_harmless=True,
                )
            return  # a product of floats
        if a is None or b is None:
            self._half_quantized(scope, node, b is not None)
            return
        why = self.fusions.reason(scope, node)
        is_read = (
            self.for_others
            and scope.type_of(a.input[0]) in (np.int8, np.uint8)
            and scope.integers(node.input[1]) is not None
        )
        if why and not is_read:
            self.model.pass_over(
                f"{node.op_type} (QDQ): {why}"
                + ("" if WEIGHT_ONLY in why or FAILS in why else ": ONNX Runtime runs it in float"),
                is_harmless=True,
            )
            return
        if not why and exchanges_operands(scope, node):
            self.model.pass_over(
                f"{node.op_type} (QDQ): ONNX Runtime exchanges the operands of a Gemm in front of a Transpose"
            )
            return
        weights, stored = scope.integers(node.input[1]), scope.shape_of_constant(b.input[0])
        if weights is None and stored is not None:
            self.model.pass_over(
                f"{node.op_type} (QDQ): constant weights{weights_in_words(scope, node)} that are not read"
            )
            return
        if (
            not why
            and weights is not None
            and weights.dtype == np.int8
            and is_moved(scope, node, node.input[1])
        ):
            self.model.pass_over(
                f"{node.op_type} (QDQ): s8 weights that ONNX Runtime moves to u8 in each run, for a run gives their scale"
            )
            return
        if weights is None and node.op_type == "Conv":  # which pairs clamp depends on its weights' shape
            self.model.pass_over("Conv (QDQ): weights are no constant")
            return
        if weights is None:
            self._activations(scope, node, a.input[0], b.input[0], reals=node.input[:2])
            return
        if weights.dtype not in (np.int8, np.uint8):
            self.model.pass_over(f"{node.op_type} (QDQ): weights of {weights.dtype}", is_harmless=True)
            return
        outputs = scope.consumers.get(node.output[0], [])
        quantizers = [n for n in outputs if n.op_type == "QuantizeLinear"]
        while (
            node.op_type == "Conv"
            and not quantizers
            and len(outputs) == 1
            and (row_of(outputs[0]).is_passed or outputs[0].op_type in ("Relu", "Clip"))
        ):
            outputs = scope.consumers.get(outputs[0].output[0], [])
            quantizers = [n for n in outputs if n.op_type == "QuantizeLinear"]
        steps = None
        if quantizers:
            found = [scope.constant(name) for name in (a.input[1], b.input[1], quantizers[0].input[1])]
            steps = ratio(*found)
        before = len(self.model.layers)
        add(scope, node, a.input[0], weights, steps, qdq=True, **options)
        for layer in self.model.layers[before:] if why else ():
            layer.float_in, layer.note = "ONNX Runtime", f"ONNX Runtime runs some layers in float: {why}"

    @staticmethod
    def _is_dequantized_by_hand(scope: Scope, name: str) -> bool:
        """Whether a tensor is a Mul (of a Sub) of a Cast of constant integers of 8 bits."""
        for _ in range(4):
            node = scope.producer(name)
            if (
                node is None
                or node.op_type not in ("Mul", "Sub", "Cast", "Transpose", "Reshape")
                or not node.input
            ):
                return False
            if node.op_type == "Cast":
                stored = scope.constant(node.input[0])
                return stored is not None and stored.dtype in (np.int8, np.uint8)
            name = next((each for each in node.input if scope.constant(each) is None), "")
        return False

    def _half_quantized(self, scope: Scope, node: Any, has_weights: bool) -> None:
        """A product of a float tensor and a dequantized one."""
        what = "one of its operands is float, so the operator runs in float"
        if has_weights and self.fusions.is_weight_only(scope, node):
            what = f"only its weights{weights_in_words(scope, node)} are quantized: ONNX Runtime 1.26 and newer makes {WEIGHT_ONLY}"
        elif has_weights:
            what = f"only its weights{weights_in_words(scope, node)} are quantized, so the operator runs in float"
        self.model.pass_over(f"{node.op_type} (QDQ): {what}", is_harmless=True)

    @staticmethod
    def _steps(scope: Scope, node: Any, inputs: Inputs) -> np.ndarray | None:
        """The requantization scales, if they are constants."""
        steps = inputs.steps
        return (
            ratio(*(scope.constant(node.input[i]) if len(node.input) > i else None for i in steps))
            if steps
            else None
        )

    def _convolution(self, scope, node, a, b, steps, qdq=False):
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
        self._add(scope, node, None, weights, _channels_last, steps, a, qdq=qdq)

    def _product(self, scope, node, a, b, steps, transposed=False, a_type=None, qdq=False):
        weights = b if isinstance(b, np.ndarray) else scope.constant(b)
        if weights is None:
            self._activations(scope, node, a, b, a_type)
            return
        if weights.ndim < 2:
            self.model.pass_over(f"{node.op_type}: weights of {weights.ndim} dimensions")
            return
        hidden = weights.ndim > 2 or bool(attributes(node).get("transA"))
        arrange = _transposed_matrix if transposed else as_matrix
        if steps is not None and steps.size not in (1, arrange(weights).shape[1]):
            steps = None
        self._add(scope, node, a_type, weights, arrange, steps, a, qdq=qdq, hidden=hidden)

    def _activations(
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

    def _add(self, scope, node, a_type, stored, arrange, steps, a, qdq=False, hidden=False, part=None):
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


def read_onnx(
    path: str | Path, proto: Any = None, ask: bool = True, for_others: bool = False
) -> QuantizedModel:
    """The quantized layers of the model in a file. Raises `Error` if it cannot be read. `proto`: the file's
    model with other constants. External data are read from the file's folder. `ask`: an installed ONNX
    Runtime is asked which QDQ groups it computes in integers; else rules decide. `for_others`: reads the
    other groups of 8 bits too, because other engines may compute them in integers."""
    path = Path(path)
    proto = proto or load_onnx(path)
    model = QuantizedModel(str(path), proto=proto)
    reader = _Reader(model, path.parent, ask, for_others)
    try:
        reader.read(proto.graph)
        for function in proto.functions:
            model.pass_over(f"function {function.name}: its operators are not read")
    except Error as error:
        raise invalid(f"{excerpt(path)}: {error.message}") from None
    except MALFORMED as error:
        raise invalid(f"{excerpt(path)}: a node or a tensor is malformed: {excerpt(error)}") from None
    return model
