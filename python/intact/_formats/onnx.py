"""Quantized layers of an ONNX model: operators that multiply activations by constant int8 weights, as ONNX
Runtime runs them.

Files may be hostile: every size is checked before anything is allocated, and external data stays in the
model's folder."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from .._graph.fusion import FAILS, WEIGHT_ONLY, Fusions, exchanges_operands, is_moved, weights_in_words
from .._graph.nodes import DEEPEST, attributes, inner_graphs, load_onnx, reading
from .._graph.operators import Inputs, is_convolution, row_of
from .._graph.scope import Scope
from .._library import excerpt, invalid
from .model import QuantizedModel, ratio
from .onnx_layers import Layers

_ELEMENTWISE = set(
    """QLinearAdd QLinearMul QLinearConcat QLinearAveragePool QLinearGlobalAveragePool QLinearSigmoid
    QLinearLeakyRelu QLinearSoftmax QLinearReduceMean QLinearWhere""".split()
)
# Operators with weights in blocks, and their attribute of the number of bits.
_BLOCKS = {
    "MatMulNBits": "bits",
    "QMoE": "expert_weight_bits",
    "GatherBlockQuantized": "bits",
    "MatMulBnb4": "bits",
}


class _Reader(Layers):
    """Finds the quantized layers of a graph and its inner graphs."""

    def __init__(self, model: QuantizedModel, folder: Path, ask: bool, for_others: bool):
        super().__init__(model)
        self.folder, self.ask, self.for_others = folder, ask, for_others

    def read(self, graph: Any, parent: Scope | None = None, depth: int = 0, within: str = "") -> None:
        if depth > DEEPEST:
            raise invalid(f"graphs are nested more than {DEEPEST} deep")
        scope = Scope(graph, self.folder, parent, within)
        for node in graph.node:
            self.model.operators += 1
            self._node(scope, node)
            for role, inner in inner_graphs(node):
                name = excerpt(node.name or next(iter(node.output), ""))
                self.read(inner, scope, depth + 1, f"the {role} of {node.op_type} {name!r}")

    def _node(self, scope: Scope, node: Any) -> None:
        op = node.op_type
        domain = node.domain if node.domain != "ai.onnx" else ""
        inputs = row_of(node).inputs
        if inputs is not None and domain in row_of(node).domains:
            self._operator(scope, node, inputs)
        elif op in _BLOCKS:
            given = attributes(node)
            blocks = "in blocks " if op != "QMoE" or given.get("block_size") else ""
            self.model.pass_over(
                f"{op}: weights {blocks}of {given.get(_BLOCKS[op], 4)} bits", is_harmless=True
            )
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
                *((self.convolution,) if node.op_type == "Conv" else (self.product,)),
                **({"transposed": bool(values.get("transB"))} if is_gemm else {}),
            )
        elif is_convolution(node):
            if values.get("channels_last"):
                self.model.pass_over(f"{node.op_type}: channels_last")
                return
            self.convolution(
                scope, node, node.input[0], node.input[inputs.b], self._steps(scope, node, inputs)
            )
        else:
            self.product(
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
                self.add(
                    scope, node, "u8", weights, itemgetter(direction), None, "", part=(suffix, i, 7 + 2 * i)
                )

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
            self.activations(scope, node, a.input[0], b.input[0], reals=node.input[:2])
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
        if steps:
            return ratio(*(scope.constant(node.input[i]) if len(node.input) > i else None for i in steps))
        return None


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
    with reading(path):
        reader.read(proto.graph)
        for function in proto.functions:
            model.pass_over(f"function {function.name}: its operators are not read")
    return model
