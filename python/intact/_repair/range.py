"""`intact repair --undo-reduce-range`: gives 7-bit weights and activations the full range of 8 bits, before
the repair.

Quantizers halve the range so that pairs cannot saturate. A repaired model is safe with the full range, so the
halved range only costs accuracy. Weights are rounded again from the float model's weights. Activations keep
the range of real numbers that the quantizer found. The file does not state that activations have 7 bits, so
data must show it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Iterator

import numpy as np

from .._audit.audit import Audit
from .._audit.run import exact_variant
from .._engines.data import inputs_of, outputs_of
from .._engines.session import session_of
from .._formats.model import QuantizedLayer
from .._graph.nodes import attributes, input_of
from .._graph.operators import row_of
from .._library import excerpt
from .editor import Editor
from .widen import Limits, Weights, WeightsWidener, Widened, WidenedActivations

# the largest value of activations of 7 bits: 127, plus one step if their zero point was rounded up
_MOST_FILLED = 128
# activations that do not exceed this on the data may have 8 bits: small values prove nothing
_LEAST_FILLED = 64
_MOST_BEYOND = 0.25  # if a larger share of all tensors exceeds 7 bits, activations have 8 bits


@dataclass
class _Tensor:
    """Quantized activations. `readers`: places of the QuantizeLinear and the DequantizeLinears. `clips`:
    places of Clips to 127. Steps are halved, so all values of 7 bits stay representable."""

    name: str
    scale: np.ndarray
    point: int
    readers: list[int]
    clips: list[int]
    reason: str = ""


@dataclass
class _Bias:
    """An int32 bias in new units. `place`: the node that reads it, as its input `input`. `unit`: the new
    scale for that node's second input; None if the file stores no scale for the bias."""

    place: int
    input: int
    values: np.ndarray
    unit: np.ndarray | None


class _Widener(WeightsWidener):
    """Also finds activations of 7 bits, and changes the model."""

    # ----- activations --------------------------------------------------------------------------------------------------

    def find_activations(self, runs: "list[dict[str, np.ndarray]] | None") -> None:
        """Tensors of 7 bits between QuantizeLinear and DequantizeLinear."""
        every = [tensor for tensor in map(self._tensor, self.graph.node) if tensor is not None]
        largest = self._largest(every, runs) if runs else {}
        has_8_bits = sum(most > _MOST_FILLED for most in largest.values()) > _MOST_BEYOND * len(largest)
        for tensor in every:
            most = None if tensor.clips else largest.get(tensor.name)
            if not tensor.clips and (most is None or has_8_bits):
                continue
            if most is not None and most > _MOST_FILLED:
                tensor.reason = tensor.reason or f"exceeds 7 bits on the data: {most}"
            elif most is not None and most <= _LEAST_FILLED:
                tensor.reason = (
                    tensor.reason or f"may have 8 bits, and small values: the largest on the data is {most}"
                )
            self.tensors.append(tensor)
            self.found.activations.append(WidenedActivations(tensor.name, most))
        self._join_tensors()

    def _join_tensors(self) -> None:
        """Tensors with equal scales and zero points stay equal, as MaxPool and Concat require: if one is
        left, all are."""
        groups: dict[tuple, list[_Tensor]] = {}
        for tensor in self.tensors:
            groups.setdefault((tensor.scale.tobytes(), tensor.point), []).append(tensor)
        for group in groups.values():
            left = next((tensor for tensor in group if tensor.reason), None)
            for tensor in group if left else []:
                tensor.reason = (
                    tensor.reason
                    or f"its scale is also that of {excerpt(left.name)}, which is left: {left.reason}"
                )

    def _tensor(self, node: Any) -> "_Tensor | None":
        """The output of a QuantizeLinear to u8; None if it is no activation or cannot have 7 bits."""
        if node.op_type != "QuantizeLinear" or self.scope.constant(node.input[0]) is not None:
            return None
        scale, point = self.scope.constant(node.input[1]), self.scope.point(node)
        if (
            scale is None
            or point is None
            or scale.size != 1
            or point.size != 1
            or point.dtype != np.uint8
            or point.item() > 127
        ):
            return None
        tensor = _Tensor(node.output[0], scale, int(point.item()), [self.places[id(node)]], [])
        pending = [node.output[0]]
        while pending and not tensor.reason:
            name = pending.pop()
            if name in self.kept:
                tensor.reason = f"{excerpt(name)} is an output, or an inner graph reads it"
            for reader in self.scope.consumers.get(name, []):
                if reader.op_type == "DequantizeLinear" and reader.input[0] == name:
                    other, other_point = self.scope.constant(reader.input[1]), self._point(reader)
                    if (
                        other is None
                        or other.size != 1
                        or other.item() != scale.item()
                        or other_point != tensor.point
                    ):
                        tensor.reason = f"{excerpt(reader.name)} reads it with another scale"
                    tensor.readers.append(self.places[id(reader)])
                elif reader.op_type == "Clip" and self._is_clip_to_7_bits(reader):
                    tensor.clips.append(self.places[id(reader)])
                    pending.append(reader.output[0])
                elif reader.input[0] == name and (
                    row_of(reader).is_passed
                    or reader.op_type == "Flatten"
                    or (reader.op_type == "Cast" and attributes(reader).get("to") == 2)
                ):
                    pending += reader.output[:1]
                else:
                    tensor.reason = f"{excerpt(reader.op_type)} reads its quantized values"
        return tensor

    def _point(self, node: Any) -> "int | None":
        value = self.scope.constant(node.input[2]) if input_of(node, 2) else np.zeros((), np.uint8)
        return int(value.item()) if value is not None and value.size == 1 else None

    def _is_clip_to_7_bits(self, node: Any) -> bool:
        low, high = (self.scope.constant(node.input[i]) if input_of(node, i) else None for i in (1, 2))
        return (
            high is not None
            and high.dtype == np.uint8
            and high.size == 1
            and high.item() == 127
            and (low is None and not input_of(node, 1) or low is not None and not low.any())
        )

    def _largest(self, tensors: "list[_Tensor]", runs: "list[dict[str, np.ndarray]]") -> dict[str, int]:
        """The largest value of each tensor on the data, in the variant that cannot saturate."""
        from onnx import helper

        proto = exact_variant(self.audit, self.audit)
        outputs = {value.name for value in proto.graph.output}
        names = [tensor.name for tensor in tensors if tensor.name not in outputs]
        if not names:
            return {}
        proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
        session = session_of(proto)
        largest = dict.fromkeys(names, 0)
        for run in runs:
            values = outputs_of(
                session, inputs_of(session, run), getattr(run, "source", "--data"), list(names)
            )
            for name in names:
                largest[name] = max(largest[name], int(values[name].max(initial=0)))
        return largest

    # ----- biases -------------------------------------------------------------------------------------------------------

    def _products(self) -> "Iterator[tuple[Any, Weights | None, _Tensor | None]]":
        """The layers whose weights or activations get the full range, each with these weights and this
        tensor."""
        weights = {i: one for one in self.weights for i in one.of if not one.reason}
        tensors = {place: tensor for tensor in self.tensors if not tensor.reason for place in tensor.readers}
        for i, audited in enumerate(self.audit.layers):
            layer = audited.layer
            if layer.graph_node is None:
                continue
            dequantizer = self.scope.dequantizer(layer.graph_node.input[0]) if layer.is_qdq else None
            tensor = tensors.get(self.places[id(dequantizer)]) if dequantizer is not None else None
            if i in weights or tensor is not None:
                yield layer, weights.get(i), tensor

    def biases(self) -> list[_Bias]:
        """The new biases. Weights and activations for which a bias cannot be converted are left as stored."""
        while True:
            found = []
            for layer, weights, tensor in self._products():
                made = self._bias(layer, weights, tensor)
                if isinstance(made, str):
                    for one in (weights, tensor):
                        if one is not None:
                            one.reason = made
                    self._join_tensors()
                    break
                if made is not None:
                    found.append(made)
            else:
                return found

    def _bias(self, layer: QuantizedLayer, weights: "Weights | None", tensor: "_Tensor | None") -> Any:
        """A product's bias in its new unit; None if it has no int32 bias; a reason in words if the bias
        cannot be converted."""
        node = layer.graph_node
        k = 2 if layer.is_qdq else row_of(node).inputs.int_bias or len(node.input)
        if len(node.input) <= k or not node.input[k]:
            return None
        reader = self.scope.producer(node.input[k]) if layer.is_qdq else node
        if layer.is_qdq:
            if reader is None or reader.op_type != "DequantizeLinear":
                return None  # a float bias
            if len(self.scope.consumers[node.input[k]]) > 1 or node.input[k] in self.kept:
                return f"its bias {excerpt(node.input[k])!r} has other readers"
            dequantizer = self.scope.dequantizer(node.input[0])
            places = (0, dequantizer.input[1], self.scope.dequantizer(node.input[1]).input[1])
        else:
            places = (k, node.input[1], node.input[4])
        name = reader.input[places[0]]
        values, a_scale, w_scale = (self.scope.constant(one) for one in (name, *places[1:]))
        unit = self.scope.constant(reader.input[1]) if layer.is_qdq else None
        if (
            values is None
            or a_scale is None
            or w_scale is None
            or values.dtype != np.int32
            or name in self.kept
        ):
            return "its bias or a scale of it is no constant, or has other readers"
        product = a_scale.astype(np.float64).reshape(-1) * w_scale.astype(np.float64).reshape(-1)
        if layer.op_type == "QGemm":
            product = product * attributes(node).get("alpha", 1.0)
        if product.size not in (1, values.size) or (unit is not None and unit.size not in (1, values.size)):
            return "its bias has another size than its scale"
        if unit is not None and not np.allclose(unit.reshape(-1), product, rtol=1e-3, atol=0):
            return "its bias has another scale than its products"
        new = product * (weights.ratio if weights is not None else 1) * (0.5 if tensor is not None else 1)
        real = self._float_bias(name, node, weights, values, product)
        whole = np.rint(real / new)
        depth = layer.weights.size // layer.weights.shape[0 if layer.is_convolution else -1]
        most = np.maximum(2**31 - 1 - 255 * 128 * depth, np.abs(values.reshape(-1).astype(np.float64)) + 1)
        if (np.abs(whole) > most).any():  # ONNX Runtime's tool chooses larger scales for these columns
            is_kept = (
                weights is not None and (weights.ratio != 1).any() and weights.keep(np.abs(whole) > most)
            )
            return self._bias(layer, weights, tensor) if is_kept else "its bias would leave int32"
        if unit is not None:
            unit = np.broadcast_to(new, unit.size).reshape(unit.shape).astype(unit.dtype)
        return _Bias(self.places[id(reader)], places[0], whole.astype(np.int32).reshape(values.shape), unit)

    def _float_bias(
        self, name: str, node: Any, weights: "Weights | None", values: np.ndarray, unit: np.ndarray
    ) -> np.ndarray:
        """The bias in real numbers: the float model's bias if the stored bias was rounded from it, else the
        stored bias."""
        stored = values.reshape(-1).astype(np.float64) * unit
        readers = self.constants.scope.consumers.get(weights.match.name, []) if weights is not None else []
        names = [
            reader.input[2]
            for reader in readers
            if reader.op_type in ("Conv", "Gemm") and len(reader.input) > 2
        ]
        for candidate in [*names, self.constants.name_of(name)]:
            real = self.constants.values(candidate)
            if (
                real is not None
                and real.size == stored.size
                and (np.abs(real.reshape(-1) - stored) <= 0.51 * unit).all()
            ):
                return real.reshape(-1).astype(np.float64)
        return stored

    # ----- the model ----------------------------------------------------------------------------------------------------

    def edited(self, biases: list[_Bias]) -> Any:
        """A copy of the model with the new constants."""
        editor = Editor(self.audit.model.proto, self.folder)
        nodes = editor.proto.graph.node
        made: dict[tuple, str] = {}
        replaced: list[str] = []

        def put(place: int, k: int, values: np.ndarray) -> None:
            old = nodes[place].input[k]
            key = (old, values.dtype.str, values.shape, values.tobytes())
            if key not in made:
                made[key] = editor.add(f"{old}_8_bits", values)
            nodes[place].input[k] = made[key]
            replaced.append(old)

        for one in self.weights:
            if one.reason:
                continue
            put(one.place, one.input, one.new_values)
            put(*one.scale_at, one.new_scale)
            if one.point.any():
                put(one.place, one.point_input, np.zeros_like(one.point))
        for tensor in self.tensors:
            if tensor.reason:
                continue
            for place in tensor.readers:
                while len(nodes[place].input) < 3:
                    nodes[place].input.append("")
                put(place, 1, tensor.scale / tensor.scale.dtype.type(2))
                put(place, 2, np.array(2 * tensor.point, np.uint8))
            for place in tensor.clips:
                put(place, 2, np.array(255, np.uint8))
        for bias in biases:
            put(bias.place, bias.input, bias.values)
            if bias.unit is not None:
                put(bias.place, 1, bias.unit)
        editor.drop_unused(*replaced, with_nodes=True)
        return editor.proto


def undo_reduce_range(
    audit: Audit,
    float_model: str | os.PathLike,
    runs: "list[dict[str, np.ndarray]] | None" = None,
    limits: "Limits | None" = None,
) -> "tuple[Any, Widened]":
    """A copy of an audited ONNX model with the full range of 8 bits, and a description of the changes.
    `runs`: inputs that show which activations have 7 bits."""
    widener = _Widener(audit, float_model, limits or Limits())
    widener.find_weights()
    widener.find_activations(runs)
    proto = widener.edited(widener.biases())
    for one in widener.weights:
        for i in one.of:
            widener.rows[i].reason, widener.rows[i].after = one.reason, one.agreement
    widener.found.numbers = [i for i, row in widener.rows.items() if not row.reason]
    for row, tensor in zip(widener.found.activations, widener.tensors):
        row.reason = tensor.reason
    return proto, widener.found
