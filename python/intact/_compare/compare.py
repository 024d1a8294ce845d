"""`intact compare MODEL FLOAT_MODEL --data PATH`: compares a quantized model with the float model, by layer
and by sample.

Each layer is compared by itself, on the float model's inputs, and in the network, where errors accumulate. A
product is linear, so the errors of its weights and of its activations are computed separately."""

from __future__ import annotations

import copy
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from .._audit.audit import Audit, audit
from .._audit.run import OnData, Sums, compare_outputs, exact_variant, memory_needed, take_data_in, windows
from .._deadline import IS_OVER, TimeOver, begin_unit, is_time_over
from .._engines.data import Run, decibels, dynamically_quantized, inputs_of, load_data, outputs_of, power
from .._engines.session import SESSION, constants_size, emulated, held_to_avx2, session_of
from .._engines.table import Engine, engines, pairs_of
from .._graph.control import control_variant
from .._graph.weights import write_model
from .._library import counted, excerpt, invalid
from .advice import measure
from .comparison import ComparedLayer, Comparison, Distance
from .match import Matched, Output, along_columns, columns_last, match

# of the quantized model and of its layers, which live at once, and of the process that is held to AVX2
_SESSIONS = 8
# float copies of each weight: dequantized, quantized otherwise, and in a network with changed layers
_BYTES_OF_WEIGHT = 45


# ----- weights ------------------------------------------------------------------------------------------------------------


def requantized(weights: np.ndarray, per_channel: bool) -> np.ndarray:
    """Weights rounded to s8, with a symmetric scale for the tensor or for each output channel, and
    dequantized."""
    columns = np.abs(columns_last(weights)).max(axis=0)
    scales = along_columns(
        np.maximum(columns if per_channel else columns.max(keepdims=True), 1e-30) / 127, weights
    )
    return (np.clip(np.rint(weights / scales), -127, 127) * scales).astype(np.float32)


def _compare_weights(layer: ComparedLayer) -> None:
    m = layer.matched
    wanted, real = m.weights, m.real
    layer.weights = Distance().add(wanted, real, along_columns(np.maximum(np.abs(m.scales), 1e-30), real))
    a, b = columns_last(wanted).astype(np.float64), columns_last(real).astype(np.float64)
    layer.channels = [
        decibels(signal, noise) for signal, noise in zip(np.square(a).sum(0), np.square(a - b).sum(0))
    ]
    if not layer.is_per_channel:
        layer.requantized["per_channel"] = requantized(wanted, True)
        layer.per_channel = Distance().add(wanted, layer.requantized["per_channel"])
    if layer.uses_7_bits:
        layer.requantized["eighth_bit"] = requantized(wanted, layer.is_per_channel)
        layer.eighth_bit = Distance().add(wanted, layer.requantized["eighth_bit"])


# ----- one layer by itself ------------------------------------------------------------------------------------------------


def quantized(x: np.ndarray, scale: float, point: int, dtype: Any) -> np.ndarray:
    """Quantizes real numbers as QuantizeLinear does."""
    limits = np.iinfo(dtype)
    return np.clip(np.rint(x / np.float32(scale)) + np.float32(point), limits.min, limits.max).astype(dtype)


def dequantized(values: np.ndarray, scale: float, point: int) -> np.ndarray:
    return (values.astype(np.float32) - np.float32(point)) * np.float32(scale)


class Product:
    """The product of a layer's activations with any float weights. Products have the shape (groups, rows, N /
    groups)."""

    def __init__(self, m: Matched):
        self.layer = m.layer

    def rows(self, x: np.ndarray) -> np.ndarray:
        if not self.layer.is_convolution:
            return x.reshape(1, -1, self.layer.weights.shape[0])
        return windows(x, self.layer, 0).transpose(1, 0, 2)

    def matrices(self, weights: np.ndarray) -> np.ndarray:
        if not self.layer.is_convolution:
            return weights[None]
        return weights.reshape(self.layer.groups, weights.shape[0] // self.layer.groups, -1).transpose(
            0, 2, 1
        )

    def power(self, rows: np.ndarray, weights: np.ndarray) -> float:
        return power(np.matmul(rows, self.matrices(weights)).astype(np.float64))


class _Probe:
    """Collects the errors of one layer over all runs."""

    def __init__(self, layer: ComparedLayer, engine: Engine):
        self.layer, m = layer, layer.matched
        self.product = Product(m)
        self.sums = Sums(m.layer, pairs_of(engine, m.layer), engine.skips_padding)
        layer.input, layer.dynamic_input = Distance(), Distance()
        layer.by = dict.fromkeys(
            ("weights", "bias", "input", "dynamic_input", "clamps", "output", "dynamic_output"), 0.0
        )
        layer.by.update(dict.fromkeys(layer.requantized, 0.0))

    def run(self, x: np.ndarray) -> None:
        """Adds a run. `x`: the layer's float input."""
        layer, m = self.layer, self.layer.matched
        chosen, chosen_scale, chosen_point = dynamically_quantized(x)
        dynamic = dequantized(chosen, chosen_scale, int(chosen_point))
        if m.is_static:
            values, scale, point = quantized(x, m.scale, m.point, m.cut_type), m.scale, m.point
            low, high = layer.calibrated
            layer.clipped += int(np.count_nonzero((x < low - scale / 2) | (x > high + scale / 2)))
        else:
            values, scale, point = chosen, float(chosen_scale), int(chosen_point)
        real = dequantized(values, scale, point)
        layer.ranges.append((float(min(x.min(), 0)), float(max(x.max(), 0))))
        layer.input.add(x, real, scale)
        layer.dynamic_input.add(x, dynamic, float(chosen_scale))
        by, wanted = layer.by, m.weights
        rows = self.product.rows(x)
        layer.product_signal += self.product.power(rows, wanted)
        by["weights"] += self.product.power(rows, m.real - wanted)
        if m.biases is not None:
            by["bias"] += power(m.biases[0].astype(np.float64) - m.biases[1]) * rows.shape[1]
        for key, weights in layer.requantized.items():
            by[key] += self.product.power(rows, weights - wanted)
        by["input"] += self.product.power(self.product.rows(real - x), wanted)
        by["dynamic_input"] += (
            self.product.power(self.product.rows(dynamic - x), wanted) if m.is_static else 0.0
        )
        if not m.is_static:
            by["dynamic_input"] = by["input"]
        if self.sums.pairs == "none":
            return
        if values.dtype == np.int8 and m.layer.a_type == "u8":
            values, point = (values.astype(np.int16) + 128).astype(np.uint8), point + 128
        exact, clamped = self.sums(values, point)
        layer.sums += exact.size
        layer.clamped += int(np.count_nonzero(exact != clamped))
        by["clamps"] += power((exact.astype(np.float64) - clamped) * m.scales.reshape(1, -1) * scale)


def _output_error(layer: ComparedLayer, output: Output, reference: np.ndarray) -> None:
    if not output.scale:
        return
    stored = dequantized(
        quantized(reference, output.scale, output.point, output.dtype), output.scale, output.point
    )
    chosen, scale, point = dynamically_quantized(reference)
    limits = np.iinfo(output.dtype)
    low, high = ((limit - output.point) * output.scale for limit in (limits.min, limits.max))
    layer.output_clipped += int(
        np.count_nonzero((reference < low - output.scale / 2) | (reference > high + output.scale / 2))
    )
    layer.by["output"] += power(stored - reference.astype(np.float64))
    layer.by["dynamic_output"] += power(dequantized(chosen, scale, int(point)) - reference.astype(np.float64))


# ----- layers cut out of the network -----------------------------------------------------------------------------------


def _cone(graph: Any, producers: dict, m: Matched, others: set[int]) -> "list | None":
    """The nodes between a layer's input and its outputs; None if they depend on another quantized layer."""
    needed, stack, seen = set(), [output.name for output in m.outputs], set()
    while stack:
        name = stack.pop()
        node = producers.get(name)
        if name == m.cut or name in seen or node is None:
            continue
        seen.add(name)
        if id(node) in others or any(attribute.type in (5, 10) for attribute in node.attribute):
            return None
        needed.add(id(node))
        stack += node.input
    return [node for node in graph.node if id(node) in needed]


def cut_out(proto: Any, layers: list[ComparedLayer], places: dict[str, int]) -> Any:
    """A model in which each layer is by itself. The I-th layer has the input `own/I`, and its outputs are
    named `own/I/NAME`."""
    from onnx import TensorProto, helper

    cut = copy.deepcopy(proto)
    producers = {name: node for node in proto.graph.node for name in node.output if name}
    operators = {name: id(proto.graph.node[place]) for name, place in places.items()}
    del cut.graph.node[:], cut.graph.output[:], cut.graph.value_info[:]
    for i, layer in enumerate(layers):
        m = layer.matched
        if layer.reason or not m.outputs:
            continue
        mine = operators[layer.name]
        cone = _cone(proto.graph, producers, m, {other for other in operators.values() if other != mine})
        if cone is None:
            layer.reason = "its operator also reads outputs of other quantized layers"
            continue
        made = {name for node in cone for name in node.output if name}
        names = {name: f"own/{i}/{name}" for name in made}
        names[m.cut] = f"own/{i}"
        kind = {None: TensorProto.FLOAT, "uint8": TensorProto.UINT8, "int8": TensorProto.INT8}[
            m.cut_type and m.cut_type.name
        ]
        cut.graph.input.append(helper.make_tensor_value_info(f"own/{i}", kind, None))
        for node in cone:
            twin = copy.deepcopy(node)
            twin.name = f"own/{i}/{node.name}" if node.name else ""
            for values in (twin.input, twin.output):
                values[:] = [names.get(name, name) for name in values]
            cut.graph.node.append(twin)
        cut.graph.output.extend(
            helper.make_empty_tensor_value_info(f"own/{i}/{output.name}") for output in m.outputs
        )
    return cut


def _choose(
    layer: ComparedLayer, mine: list[np.ndarray], floats: list[np.ndarray]
) -> "tuple[int, int] | None":
    """Finds which output of the layer corresponds to which output of the float node. Returns the indices of
    the two. If several pairs are about equally similar, the first is chosen. None if no two outputs have
    equal sizes."""
    pairs = []
    for i, a in enumerate(mine):
        for k, b in enumerate(floats):
            if a.size == b.size and a.size:
                pairs.append((i + k, i, k, 1 - Distance().add(b.reshape(-1), a.reshape(-1)).cosine))
    if not pairs:
        return None
    best = min(apart for _, _, _, apart in pairs)
    return min(pair for pair in pairs if pair[3] <= 1.1 * best + 1e-9)[1:3]


# ----- the comparison -----------------------------------------------------------------------------------------------------


def _samples(data: Any, inputs: list[str], each: bool) -> list[Run]:
    runs = load_data(data) if isinstance(data, (str, os.PathLike)) else [Run(run) for run in data]
    if not each:
        return runs
    parts = []
    for run in runs:
        sizes = {run[name].shape[0] if run[name].ndim else 0 for name in inputs if name in run}
        if not sizes:  # inputs_of() says which input is missing
            parts.append(run)
            continue
        if len(sizes) != 1 or 0 in sizes:
            raise invalid(
                f"--each: {excerpt(run.source)}: the inputs' first dimensions are {sorted(sizes)}; "
                "expected one size, not 0"
            )
        for i in range(sizes.pop()):
            part = Run({name: run[name][i : i + 1] for name in inputs if name in run})
            part.source = f"{run.source}, item {i}"
            parts.append(part)
    return parts


def _with_outputs(proto: Any, names: list[str]) -> Any:
    from onnx import helper

    proto = copy.deepcopy(proto)
    have = {output.name for output in proto.graph.output}
    made = {name for node in proto.graph.node for name in node.output} - have
    proto.graph.output.extend(
        helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(names) if name in made
    )
    return proto


def compare(
    path: str | os.PathLike,
    float_path: str | os.PathLike,
    data: Any,
    *,
    each: bool = False,
    emulate: bool = False,
    progress: Any = None,
    say_memory: Any = None,
) -> Comparison:
    """Compares the quantized ONNX model in a file with the float model that it was made from. `data`: a file
    .npz, a folder of such files, or a list of dictionaries of arrays; each is a sample. `each`: items of the
    inputs' first dimension are samples. `emulate`: the stock engine runs on an emulated CPU without VNNI.
    `progress(done, of)` is called after each sample. `say_memory(bytes)` is called before a model runs, with
    a bound of the memory that the weights need.

    Raises `Error` for files that cannot be read or do not fit each other."""

    result = audit(path, engines_asked=["onnxruntime"])
    if result.model.proto is None:
        raise invalid(f"compare: {excerpt(path)}: not an ONNX model; expected two ONNX models")
    if not result.layers:
        left = "".join(f"; {line}" for line in result.model.left_out())
        raise invalid(
            f"{excerpt(path)}: has no quantized layer with constant weights; expected the quantized model first, "
            f"then the float model{left}"
        )
    if not Path(float_path).is_file():
        raise invalid(f"{excerpt(float_path)}: no such file")
    if all(audited.layer.graph_node is None for audited in result.layers):
        raise invalid(
            f"{excerpt(path)}: {counted(len(result.layers), 'quantized layer')}, all in inner graphs, which compare does not read"
        )
    matches, float_proto = match(result, float_path)
    if all(m.float_node is None for m in matches):
        raise invalid(
            f"{excerpt(float_path)}: contains no weights of {excerpt(path)}; expected the model before "
            f"quantization ({matches[0].layer.name}: {matches[0].how})"
        )
    found = Comparison(result, str(float_path), 0, is_emulated=emulate)
    for audited, m in zip(result.layers, matches):
        layer = ComparedLayer(m, uses_7_bits=audited.uses_7_bits)
        found.layers.append(layer)
        if m.float_node is None:
            layer.reason = m.how
            continue
        _compare_weights(layer)
        if not m.cut:
            layer.reason = (
                "its input has no constant scale (finite, positive) and zero point for the whole tensor"
            )
    if say_memory:
        say_memory(memory_of_compare(result, float_proto))
    run = _Runs(found, float_proto)
    runs = _samples(data, [value.name for value in run.plain.get_inputs()], each)
    run.run(runs, progress)
    measure(found, run)
    return found


def memory_of_compare(result: Audit, float_proto: Any) -> int:
    """A bound of the bytes that compare() needs for weights. Activations are not counted."""
    size, inside, _ = constants_size(float_proto)
    weights = sum(audited.layer.weights.size for audited in result.layers)
    return (
        memory_needed(result, sessions=_SESSIONS)
        + 4 * inside
        + int(SESSION * size)
        + _BYTES_OF_WEIGHT * weights
    )


class _Runs:
    """The sessions of a comparison. `inputs`, `floats`: for each sample, the model's inputs and the float
    model's outputs."""

    def __init__(self, found: Comparison, float_proto: Any):
        result = self.audit = found.audit
        self.found = found
        take_data_in(float_proto, Path(found.float_path).parent, result)
        self.exact = exact_variant(result, result)
        stored = copy.deepcopy(result.model.proto)
        take_data_in(stored, Path(result.model.path).parent, result)
        self.names = [output.name for output in self.exact.graph.output]
        places = {id(node): i for i, node in enumerate(result.model.proto.graph.node)}
        self.places = {
            layer.name: places[id(layer.matched.layer.graph_node)]
            for layer in found.layers
            if layer.matched.layer.graph_node is not None
        }
        own = cut_out(self.exact, found.layers, self.places)
        self.plain, self.stock = session_of(self.exact), session_of(result.model.path)
        self.control = session_of(control_variant(self.exact, result))
        outputs = [output.name for output in float_proto.graph.output]
        self.float_outputs = [name for name in outputs if name in self.names]
        if not self.float_outputs:
            raise invalid(
                f"{excerpt(found.float_path)}: has none of the model's outputs ({excerpt(', '.join(self.names))}); "
                f"its outputs: {excerpt(', '.join(outputs))}"
            )
        seen = [layer for layer in found.layers if layer.matched.float_node is not None]
        self.before = session_of(
            _with_outputs(
                float_proto,
                [
                    name
                    for layer in seen
                    for name in (layer.matched.float_node.input, *layer.matched.float_node.outputs)
                ],
            )
        )
        self.probe = session_of(
            _with_outputs(self.exact, [output.name for layer in seen for output in layer.matched.outputs])
        )
        self.own_stored = cut_out(stored, found.layers, self.places)
        has_own = len(own.graph.output) > 0
        self.own = (
            [session_of(model) for model in (own, self.own_stored, control_variant(own, result))]
            if has_own
            else []
        )
        self.inputs: list[dict] = []
        self.floats: list[dict] = []

    def run(self, runs: list[Run], progress: Any) -> None:
        found, result = self.found, self.audit
        engine = engines()["onnxruntime"]
        result.on_data = OnData(len(runs), "onnxruntime", result.cpu_clamps or found.is_emulated)
        self.inputs = [inputs_of(self.plain, run) for run in runs]
        before = [inputs_of(self.before, run, found.float_path) for run in runs]
        begin_unit("the comparison")
        elsewhere = None
        if found.is_emulated:  # samples that were emulated are compared, also when the time is over
            elsewhere = emulated(result.model.path, self.names, self.inputs, may_end_early=True)
            if not elsewhere and runs:
                raise TimeOver("the comparison")
        probes = {
            i: _Probe(layer, engine)
            for i, layer in enumerate(found.layers)
            if not layer.reason and layer.matched.is_product
        }
        chosen: dict[int, tuple[int, int]] = {}
        gathered: dict[str, list] = {name: [] for name in self.names}
        fed, wanted = [], []
        for done, (run, run_before) in enumerate(zip(self.inputs, before)):
            if done and (done == len(elsewhere) if elsewhere else is_time_over()):
                found.missing.append(f"{len(runs) - done} of {counted(len(runs), 'sample')}")
                break
            source = str(runs[done].source)
            floats = {**run_before, **outputs_of(self.before, run_before, source)}
            values = outputs_of(self.probe, run, source)
            stock = (
                dict(zip(self.names, elsewhere[done])) if elsewhere else outputs_of(self.stock, run, source)
            )
            three = [outputs_of(self.plain, run, source), stock, outputs_of(self.control, run, source)]
            feeds = {**run, **self._feeds(floats, probes, source)}
            own = [
                outputs_of(session, feeds, source)
                for session in (self.own[::2] if found.is_emulated else self.own)
            ]
            for name in self.names:
                gathered[name].append(
                    [one[name] for one in three] + [floats[name]] * (name in self.float_outputs)
                )
            self.floats.append({name: floats[name] for name in self.float_outputs})
            for i, layer in enumerate(found.layers):
                self._layer(i, layer, floats, values, own, chosen)
            if found.is_emulated and own:
                fed.append(feeds)
                wanted.append(own[0])
            if progress:
                progress(done + 1, len(runs))
        found.samples = result.on_data.compared = len(self.floats)
        self.inputs = self.inputs[: found.samples]
        held: list[list[np.ndarray]] = []
        try:
            held, result.on_data.not_held = held_to_avx2(self.exact, self.names, self.inputs)
        except TimeOver:
            result.on_data.not_held = IS_OVER
        for place, name in enumerate(self.names):
            if not any(array.dtype.kind not in "biuf" for arrays in gathered[name] for array in arrays):
                result.on_data.outputs.append(
                    compare_outputs(name, gathered[name], [values[place] for values in held])
                )
        if fed:
            try:
                count = self._emulated(fed, wanted, chosen)
            except TimeOver:
                count = 0
            if count < len(fed):
                of = f" of {len(fed) - count} of {counted(len(fed), 'sample')}" if count else ""
                found.missing.append(f"the layers{of} on the emulated CPU")

    def _feeds(self, floats: dict, probes: dict[int, _Probe], source: str) -> dict[str, np.ndarray]:
        """The inputs of the layers that were cut out: the float model's tensors, quantized as each layer
        quantizes its input."""
        feeds = {}
        for i, layer in enumerate(self.found.layers):
            m = layer.matched
            if layer.reason:
                continue
            x = np.asarray(floats[m.float_node.input], np.float32)
            if not np.isfinite(x).all():
                raise invalid(
                    f"{excerpt(source)}: the float model's tensor {excerpt(m.float_node.input)!r}, which {layer.name} "
                    "quantizes, has NaN or infinities; expected inputs that give finite values"
                )
            if m.smooth is not None:
                shape = [-1] + [1] * (x.ndim - 2) if m.layer.is_convolution else [-1]
                x = x * m.smooth.reshape(shape)
            if i in probes:
                probes[i].run(x)
            feeds[f"own/{i}"] = quantized(x, m.scale, m.point, m.cut_type) if m.is_static else x
        return feeds

    def _layer(
        self, i: int, layer: ComparedLayer, floats: dict, values: dict, own: list[dict], chosen: dict
    ) -> None:
        m = layer.matched
        if m.float_node is None or not m.outputs:
            return
        references = [floats[name] for name in m.float_node.outputs]
        alone = not layer.reason and own
        names = [f"own/{i}/{output.name}" for output in m.outputs]
        if i not in chosen:
            mine = [
                output.real(own[0][name] if alone else values[output.name])
                for output, name in zip(m.outputs, names)
            ]
            pair = _choose(layer, mine, references)
            if pair is None:
                layer.reason = layer.reason or "its output and the output of the float node differ in size"
                return
            chosen[i] = pair
        k, r = chosen[i]
        output, reference, step = m.outputs[k], references[r], m.outputs[k].scale or 1.0

        def distance(known: Distance | None, a: np.ndarray, b: np.ndarray) -> Distance:
            return (known or Distance()).add(a.reshape(-1), b.reshape(-1), step)

        layer.network = distance(layer.network, reference, output.real(values[output.name]))
        if not alone:
            return
        exact, *others = (output.real(one[names[k]]) for one in own)
        layer.own = distance(layer.own, reference, exact)
        if layer.by:
            _output_error(layer, output, np.asarray(reference, np.float32))
        if len(others) == 2:
            layer.here = distance(layer.here, exact, others[0])
        layer.control = distance(layer.control, exact, others[-1])

    def _emulated(self, fed: list[dict], wanted: list[dict], chosen: dict) -> int:
        """Adds the stock engine's results of the layers that were cut out, on the emulated CPU. Returns for how many
        samples the time sufficed."""
        names = [output.name for output in self.own_stored.graph.output]
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "own.onnx"))
            write_model(self.own_stored, Path(path))
            results = emulated(path, names, fed, may_end_early=True)
        for exact, values in zip(wanted, results):
            stock = dict(zip(names, values))
            for i, (k, _) in chosen.items():
                layer = self.found.layers[i]
                output = layer.matched.outputs[k]
                name = f"own/{i}/{output.name}"
                if name in stock:
                    a, b = (output.real(one[name]).reshape(-1) for one in (exact, stock))
                    layer.here = (layer.here or Distance()).add(a, b, output.scale or 1.0)
        return len(results)
