"""Tries what would help a quantized model: changes some layers in the network and compares the outputs with
the float model's outputs.

A changed layer computes in float. Its weights and activations are rounded as the quantization to try would
round them."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._deadline import TimeOver, begin_unit
from .._engines.data import decibels
from .._engines.session import session_of
from .._graph.nodes import input_of
from .._graph.operators import row_of
from .comparison import Advice, ComparedLayer, Comparison, Distance

LEFT_IN_FLOAT = 3  # how many layers are tried in float, one by one
TURNS = (1, 2, 3)  # a control changes 1, 2 or 3 layers, leaves the next 1, 2 or 3 as stored, and so on
CLEARLY = 3.0  # decibels: a change is tried in the network only if some layer gains this much by itself


@dataclass
class Change:
    """A change of a layer. `weights`: real numbers in the layer's layout; None: as stored. `input`: how its
    activations are quantized: "stored", "float", "dynamic", or by a range. `bias`: real numbers; None: as
    stored."""

    layer: ComparedLayer
    weights: "np.ndarray | None" = None
    input: "str | tuple[float, float]" = "stored"
    bias: "np.ndarray | None" = None


class _Network:
    """A copy of the exact variant in which layers are changed."""

    def __init__(self, exact: Any, places: dict[str, int]):
        self.proto = copy.deepcopy(exact)
        self.nodes: list[Any] = list(self.proto.graph.node)
        # before: new nodes; key: the place of the node after them
        self.places, self.before, self.count = places, {}, 0
        self.dropped: set[int] = set()
        self.producers = {name: node for node in self.nodes for name in node.output if name}
        # key: an integer tensor; value: the float tensor that was quantized to it
        self.real: dict[str, str] = {}

    def constant(self, array: np.ndarray) -> str:
        from onnx import numpy_helper

        self.count += 1
        name = f"advice/{self.count}"
        self.proto.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(
        self, place: int, op: str, inputs: list[str], outputs: "list[str] | None" = None, **values: Any
    ) -> str:
        from onnx import helper

        self.count += 1
        outputs = outputs or [f"advice/{self.count}"]
        node = helper.make_node(op, inputs, outputs, name=f"advice/{self.count}", **values)
        self.before.setdefault(place, []).append(node)
        return outputs[0]

    def quantized_anew(
        self, place: int, x: str, how: "str | tuple[float, float]", bounds: tuple[float, float]
    ) -> str:
        """The float tensor x, clipped to bounds, then quantized and dequantized."""
        if max(bounds) < np.inf or min(bounds) > -np.inf:
            limits = [self.constant(np.float32(bound)) if np.isfinite(bound) else "" for bound in bounds]
            x = self.add(place, "Clip", [x, *limits])
        if how == "float":
            return x
        if isinstance(how, tuple):
            low, high = min(how[0], 0.0), max(how[1], 0.0)
            scale = (high - low) / 255 or 1.0
            values = [
                self.constant(np.float32(scale)),
                self.constant(np.uint8(np.clip(np.rint(-low / scale), 0, 255))),
            ]
            return self.add(
                place, "DequantizeLinear", [self.add(place, "QuantizeLinear", [x, *values]), *values]
            )
        parts = [f"advice/{self.count}/{part}" for part in ("values", "scale", "point")]
        self.add(place, "DynamicQuantizeLinear", [x], parts)
        return self.add(place, "DequantizeLinear", parts)

    def float_of(self, place: int, name: str, depth: int = 0) -> str:
        """The float tensor that was quantized to this tensor, perhaps before operators that only move
        numbers; "" if there is none."""
        node = self.producers.get(name)
        if name in self.real:
            return self.real[name]
        if node is None or depth > 16:
            return ""
        if row_of(node).is_passed or node.op_type == "Flatten":
            x = self.float_of(place, node.input[0], depth + 1)
            if x:
                self.add(place, node.op_type, [x, *node.input[1:]])
                self.before[place][-1].attribute.extend(node.attribute)
                return self.before[place][-1].output[0]
        return node.input[0] if node.op_type == "QuantizeLinear" else ""

    def change(self, change: Change) -> bool:
        """Applies the change. Returns false if that is not possible."""
        m = change.layer.matched
        layer = m.layer
        if change.layer.name not in self.places or not m.is_product or not m.outputs or m.real is None:
            return False
        place = self.places[change.layer.name]
        node = self.nodes[place]
        weights = m.real if change.weights is None else change.weights
        stored = np.moveaxis(weights, -1, 1) if layer.is_convolution else weights
        if layer.is_qdq:
            if change.input != "stored":
                x = self.float_of(place, layer.activation)
                if not x:
                    return False
                node.input[0] = self.quantized_anew(place, x, change.input, m.bounds)
            if change.weights is not None:
                transposed = any(a.name == "transB" and a.i for a in node.attribute)
                node.input[1] = self.constant(stored.T if transposed else stored)
            if change.bias is not None:
                node.input[2] = self.constant(change.bias)
            return True
        if row_of(node).c_point is not None:
            return self._static(change, place, node, stored)
        if (
            layer.op_type in ("MatMulInteger", "ConvInteger", "DynamicQuantizeMatMul", "MatMulIntegerToFloat")
            and not m.is_static
        ):
            return self._dynamic(change, place, node, stored)
        return False

    def _static(self, change: Change, place: int, node: Any, weights: np.ndarray) -> bool:
        m = change.layer.matched
        if not m.is_static or not m.outputs[0].scale:
            return False
        x = "" if change.input == "stored" else self.float_of(place, node.input[0])
        if change.input == "stored":
            x = self.add(place, "DequantizeLinear", list(node.input[:3]))
        elif x:
            x = self.quantized_anew(place, x, change.input, m.bounds)
        else:
            return False
        inputs = [x, self.constant(weights)]
        row = row_of(node)
        bias, point = row.inputs.bias, row.c_point
        if bias is not None and input_of(node, bias):
            if m.biases is None:
                return False
            inputs.append(self.constant(m.biases[0] if change.bias is None else change.bias))
        real = self.add(place, row.quantizes, inputs)
        made = self.before[place][-1]
        made.attribute.extend(a for a in node.attribute if a.name not in ("transB", "channels_last"))
        self.add(place, "QuantizeLinear", [real, *node.input[point - 1 : point + 1]], [node.output[0]])
        self.real[node.output[0]] = real
        self.dropped.add(place)
        return True

    def _dynamic(self, change: Change, place: int, node: Any, weights: np.ndarray) -> bool:
        m = change.layer.matched
        name = m.outputs[0].name
        old = self.producers[name]
        place = next(i for i, other in enumerate(self.nodes) if other is old)
        x = self.quantized_anew(
            place, m.cut, "dynamic" if change.input == "stored" else change.input, m.bounds
        )
        bias = {"DynamicQuantizeMatMul": 4, "MatMulIntegerToFloat": 6}.get(node.op_type, 99)
        inputs = [x, self.constant(weights)]
        op = "Conv" if m.layer.is_convolution else "MatMul"
        if input_of(node, bias):
            product = self.add(place, op, inputs)
            self.add(place, "Add", [product, node.input[bias]], [name])
        else:
            self.add(place, op, inputs, [name])
            if m.layer.is_convolution:
                self.before[place][-1].attribute.extend(node.attribute)
        self.dropped.add(place)
        return True

    def finish(self) -> Any:
        graph = self.proto.graph
        kept = []
        for i, node in enumerate(self.nodes):
            kept += map(copy.deepcopy, self.before.get(i, []) + [node] * (i not in self.dropped))
        del graph.node[:]
        graph.node.extend(kept)
        return self.proto


def changed(
    exact: Any, found: Comparison, places: dict[str, int], changes: list[Change]
) -> "tuple[Any, list[str]]":
    """The exact variant with changed layers, and the names of the layers that could be changed."""
    network = _Network(exact, places)
    names = {change.layer.name for change in changes}
    if any(change.input != "stored" for change in changes):  # expose the floats that later layers need
        for layer in found.layers:
            if layer.name not in names and row_of(layer.matched.layer).c_point is not None:
                network.change(Change(layer))
    return network, [change.layer.name for change in changes if network.change(change)]


def _distances(runs: Any, model: Any) -> dict[str, float]:
    """Decibels between a model's outputs and the float model's outputs."""
    session = session_of(model, is_as_written=True)
    apart = {name: Distance() for name in runs.float_outputs}
    for run, floats in zip(runs.inputs, runs.floats):
        begin_unit("advice")
        for name, value in zip(runs.float_outputs, session.run(runs.float_outputs, run)):
            if (
                np.asarray(value).shape != np.asarray(floats[name]).shape
                or np.asarray(value).dtype.kind not in "biuf"
            ):
                continue
            apart[name].add(floats[name], value)
    return {name: distance.sqnr for name, distance in apart.items() if distance.samples}


class _Trials:
    """Changes that are tried in the network, and their results. `output`: the output that is farthest from the
    float model's. `control`: decibels by which changes that do not help move it."""

    def __init__(self, found: Comparison, runs: Any, usable: list[ComparedLayer], before: dict[str, float]):
        self.found, self.runs, self.usable = found, runs, usable
        self.output = min(before, key=lambda name: before[name])
        self.before = before[self.output]
        self.tried: list[tuple[Advice, list[Change]]] = []
        self.control = self._control()

    def distance(self, changes: list[Change]) -> "tuple[float, list[str]]":
        network, names = changed(self.runs.exact, self.found, self.runs.places, changes)
        return (_distances(self.runs, network.finish())[self.output] if names else math.nan), names

    def _control(self) -> float:
        """In some layers the weights' errors get the opposite sign. These weights are equally good."""
        moved = [
            self.distance(
                [
                    Change(layer, 2 * layer.matched.weights - layer.matched.real)
                    for i, layer in enumerate(self.usable)
                    if not i // turn % 2
                ]
            )[0]
            for turn in TURNS
        ]
        return max((abs(self.before - value) for value in moved if math.isfinite(value)), default=0.0)

    def advice(self, what: str, category: str, names: list[str], after: float) -> Advice:
        return Advice(what, category, names, self.output, self.before, after, self.control)

    def attempt(self, what: str, category: str, changes: list[Change]) -> None:
        if not changes:
            return
        after, names = self.distance(changes)
        if not names:
            self.found.not_measured.append(f"{what}: {', '.join(change.layer.name for change in changes)}")
            return
        self.found.advice.append(self.advice(what, category, names, after))
        self.tried.append((self.found.advice[-1], changes))

    def attempt_weights(self) -> None:
        """Other weights and biases."""
        for key, what in (
            ("per_channel", "per-channel weights"),
            ("eighth_bit", "weights with 8 bits instead of 7"),
        ):
            having = [layer for layer in self.usable if key in layer.requantized]
            if any(_gains(layer, key, "weights") for layer in having):
                self.attempt(
                    what, "data-insensitive", [Change(layer, layer.requantized[key]) for layer in having]
                )
        self.attempt(
            "the float model's biases",
            "data-insensitive",
            [
                Change(layer, bias=_bias_of(layer))
                for layer in self.usable
                if _bias_of(layer) is not None and layer.by.get("bias", 0.0) > layer.explained / 2
            ],
        )

    def attempt_inputs(self) -> None:
        """Other ranges of the activations."""
        varying = [
            layer
            for layer in self.usable
            if layer.matched.is_static and _gains(layer, "dynamic_input", "input")
        ]
        self.attempt(
            "dynamic quantization of the activations",
            "data-sensitive",
            [Change(layer, input="dynamic") for layer in varying],
        )
        self.attempt(
            "a calibration with this data",
            "data-sensitive",
            [
                Change(
                    layer, input=(min(low for low, _ in layer.ranges), max(high for _, high in layer.ranges))
                )
                for layer in varying
            ],
        )

    def attempt_together(self) -> None:
        """The helpful changes of more than one kind. If two concern one operand, the better change wins."""
        helpful = sorted(
            ((advice, changes) for advice, changes in self.tried if advice.helps),
            key=lambda pair: -pair[0].gain,
        )
        if len({"ranges" if one.category == "data-sensitive" else one.what for one, _ in helpful}) < 2:
            return
        together: dict[str, Change] = {}
        for _, changes in helpful:
            for change in changes:
                one = together.setdefault(change.layer.name, Change(change.layer))
                one.weights = change.weights if one.weights is None else one.weights
                one.input = change.input if one.input == "stored" else one.input
                one.bias = change.bias if one.bias is None else one.bias
        self.attempt("all helpful changes together", "", list(together.values()))

    def attempt_floats(self) -> None:
        """The worst layers in float, one by one."""
        singles = []
        for layer in sorted(self.usable, key=lambda layer: layer.own.sqnr)[:LEFT_IN_FLOAT]:
            for how in ("float", "stored"):
                after, names = self.distance([Change(layer, layer.matched.weights, how, _bias_of(layer))])
                if names:
                    singles.append(self.advice("left in float", layer.category, names, after))
                    break
        self.found.advice += sorted(singles, key=lambda advice: -advice.gain)


def _gains(layer: ComparedLayer, key: str, against: str) -> bool:
    error = layer.by.get(against, 0.0)
    return decibels(error, layer.by.get(key, math.inf)) >= CLEARLY and error > 0


def _bias_of(layer: ComparedLayer) -> "np.ndarray | None":
    return None if layer.matched.biases is None else layer.matched.biases[1]


def measure(found: Comparison, runs: Any) -> None:
    """Tries changes that may help, and sets the advice. If the time is over, some of it is missing."""
    try:
        _measure(found, runs)
    except TimeOver:
        found.missing.append("advice" if not found.advice else "more advice")


def _measure(found: Comparison, runs: Any) -> None:
    usable = [layer for layer in found.layers if not layer.reason and layer.own is not None]
    before = _distances(runs, runs.exact)
    if not before or not usable:
        return
    trials = _Trials(found, runs, usable, before)
    trials.attempt_weights()
    trials.attempt_inputs()
    trials.attempt_together()
    trials.attempt_floats()
