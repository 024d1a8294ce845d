"""Runs an audited model and its exact variant on data, in ONNX Runtime, and counts the sums that saturate."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np

from .._deadline import IS_OVER, TimeOver, begin_unit, is_time_over
from .._engines.data import decibels, distances, dynamically_quantized, inputs_of, outputs_of, power
from .._engines.session import (
    SESSION,
    constants_size,
    emulated,
    emulator,
    float_session,
    held_to_avx2,
    session_of,
)
from .._engines.table import Engine, engines, pairs_of
from .._formats.model import QuantizedLayer
from .._graph.control import control_variant
from .._graph.nodes import array_of_tensor, attributes, every_node, input_of
from .._graph.operators import row_of
from .._graph.scope import Scope
from .._graph.weights import SHARED_SIZE, set_array
from .._library import counted, excerpt, invalid, isas
from .._plans.gemm import Gemm
from .audit import Audit, paired, slices

_MOST_KEPT = 1 << 28  # bytes of weights up to which the plans of all layers are kept
_BASE = 300 << 20  # bytes of Python and ONNX Runtime


@dataclass
class LayerOnData:
    """One layer on data: how many integer sums it computed, and how many change if pairs clamp."""

    results: int = 0
    changed: int = 0
    largest: int = 0  # the largest activation
    signal: float = 0.0
    noise: float = 0.0

    @property
    def sqnr(self) -> float:
        """The power of the exact results over the power of the errors, in decibels."""
        return decibels(self.signal, self.noise)


@dataclass
class OutputOnData:
    """One output: how far the stock model (the model as it is), the control (control_variant()) and the exact
    variant held to AVX2 are from the exact variant. `held`: None if it was not run. The control changes float
    constants by much more than a last bit, so `noise`, the distance that counts as rounding noise, is the one
    of `held` if there is one. `exact_to_float`, `stock_to_float`: how far the exact variant and the stock
    model are from the float model, if it was given. Distances are in decibels."""

    name: str
    stock: float
    control: float
    stock_largest: float
    control_largest: float
    values: int
    stock_changed: int
    control_changed: int
    argmax: int
    stock_argmax_changed: int
    control_argmax_changed: int
    exact_to_float: float | None = None
    stock_to_float: float | None = None
    held: float | None = None
    held_changed: int = 0
    held_argmax_changed: int = 0

    @property
    def noise(self) -> float:
        return self.control if self.held is None else self.held

    @property
    def noise_changed(self) -> int:
        return self.control_changed if self.held is None else self.held_changed

    @property
    def noise_argmax_changed(self) -> int:
        return self.control_argmax_changed if self.held is None else self.held_argmax_changed


@dataclass
class OnData:
    """An audit on data. `runs`: how many runs the data have. `engine`: the engine whose pairs clamp in
    `layers`. `layers`: by name; None if a layer's activations are not visible. `outputs`: empty if ONNX
    Runtime was not asked for. `stock_clamps`: whether the stock model ran on a CPU without VNNI. `not_held`:
    why the exact variant did not run held to AVX2. `counted`, `compared`: how many runs `layers` and
    `outputs` contain, which are fewer than `runs` if the time was over; `missing` then says what is
    missing."""

    runs: int
    engine: str = "onnxruntime"
    stock_clamps: bool = False
    layers: dict[str, LayerOnData | None] = field(default_factory=dict)
    outputs: list[OutputOnData] = field(default_factory=list)
    not_held: str = ""
    counted: int = 0
    compared: int = 0
    missing: str = ""


def as_u8(values: np.ndarray) -> np.ndarray:
    """s8 values, or zero points, shifted by 128."""
    if values.dtype == np.int8:
        # NumPy 1 makes int64 of a zero point and 128
        return np.bitwise_xor(values.view(np.uint8), np.uint8(128))
    return (values.astype(np.int16) + 128).astype(np.uint8)


def weights_zero_point(layer: QuantizedLayer, node: Any, scope: Scope) -> np.ndarray | None:
    """The zero point of the s8 weights that `node` reads for a layer. If it has no zero point: zeros, in the
    shape of a DequantizeLinear's scale. None if the zero point or the scale is no constant. Extends the
    node's inputs up to the zero point."""
    while len(node.input) <= layer.point_input:
        node.input.append("")
    if node.input[layer.point_input]:
        return scope.constant(node.input[layer.point_input])
    scale = scope.constant(node.input[1]) if layer.is_qdq else np.zeros(())
    return None if scale is None else np.zeros(scale.shape, np.int8)


def take_data_in(proto: Any, folder: Path, owner: Any) -> None:
    """Makes a model independent of the files of its external data. `owner`: as for set_array()."""
    for tensor in proto.graph.initializer:
        is_large = owner is not None and tensor.HasField("raw_data") and len(tensor.raw_data) >= SHARED_SIZE
        if tensor.data_location == 1 or is_large:
            array = array_of_tensor(tensor, folder)
            if array is None and is_large:
                continue
            if array is None:
                raise invalid(f"tensor {excerpt(tensor.name)!r}: has a type that is not supported")
            set_array(tensor, array, owner)


def exact_variant(audit: Audit, owner: Any = None) -> Any:
    """The model with its s8 weights stored as u8 with zero point 128. This changes no integer sum, and ONNX
    Runtime's kernels for u8 weights are exact. `owner`: large constants are shared until it is deleted; None:
    the model holds all."""
    from onnx import TensorProto

    # Layers refer to nodes of the original model; positions find them in the copy.
    proto = copy.deepcopy(audit.model.proto)
    places = {id(node): i for i, node in enumerate(every_node(audit.model.proto.graph))}
    copies = list(every_node(proto.graph))
    made: dict[tuple[int, str], str] = {}

    def constant(name: str, array: np.ndarray) -> str:
        tensor = TensorProto(name=name)
        set_array(tensor, array, owner)
        proto.graph.initializer.append(tensor)
        return name

    folder = Path(audit.model.path).parent
    take_data_in(proto, folder, owner)
    changed, replaced = set(), set()
    for audited in audit.layers:
        layer, scope = audited.layer, audited.layer.scope
        reader = layer.weights_node if layer.inner_node is None else layer.inner_node
        if reader is None or layer.b_type != "s8" or layer.a_type != "u8":
            continue
        place = places[id(reader)]
        if (place, layer.weights_input) in changed:
            continue
        changed.add((place, layer.weights_input))
        node = copies[place]
        name = node.input[layer.weights_input]
        key = id(scope.scope_of(name)), name  # constants of two inner graphs may have one name
        if key not in made:
            made[key] = constant(
                f"{name}__u8" + (f"_{place}" if layer.within else ""), as_u8(scope.constant(name))
            )
        node.input[layer.weights_input] = made[key]
        replaced.add(name)
        point = weights_zero_point(layer, node, scope)
        if point is None:
            raise invalid(
                f"{layer.name}: the zero point or the scale of its weights is no constant, so no exact variant can be "
                "made"
            )
        node.input[layer.point_input] = constant(
            f"{name}__u8_point_{place}_{layer.point_input}", as_u8(point)
        )
    read = {name for node in copies for name in node.input} | {
        value.name for value in [*proto.graph.input, *proto.graph.output]
    }
    for i in reversed(range(len(proto.graph.initializer))):
        if proto.graph.initializer[i].name in replaced - read:
            del proto.graph.initializer[i]
    return proto


def _padded(a: np.ndarray, layer: QuantizedLayer, fill: int) -> np.ndarray:
    """A convolution's input with its padding: `fill`, the activations' zero point."""
    node = layer.graph_node
    values = attributes(node)
    kernel = layer.weights.shape[1:-1]
    dims = len(kernel)
    strides, dilations = values.get("strides", [1] * dims), values.get("dilations", [1] * dims)
    pads = values.get("pads", [0] * 2 * dims)
    auto = next(
        (attribute.s.decode() for attribute in node.attribute if attribute.name == "auto_pad"), "NOTSET"
    )
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max(
                (-(-a.shape[2 + i] // strides[i]) - 1) * strides[i]
                + (kernel[i] - 1) * dilations[i]
                + 1
                - a.shape[2 + i],
                0,
            )
            for i in range(dims)
        ]
        begins = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in totals]
        pads = begins + [t - b for t, b in zip(totals, begins)]
    return np.pad(
        a, [(0, 0), (0, 0)] + [(pads[i], pads[dims + i]) for i in range(dims)], constant_values=fill
    )


def _view(padded: np.ndarray, layer: QuantizedLayer) -> np.ndarray:
    """The windows of a convolution's padded input (batch, I, *extents): (batch, *output extents, I, *taps)."""
    values = attributes(layer.graph_node)
    kernel = layer.weights.shape[1:-1]
    dims = len(kernel)
    strides, dilations = values.get("strides", [1] * dims), values.get("dilations", [1] * dims)
    spans = tuple((kernel[i] - 1) * dilations[i] + 1 for i in range(dims))
    view = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=tuple(range(2, 2 + dims)))
    view = view[
        (
            slice(None),
            slice(None),
            *(slice(None, None, s) for s in strides),
            *(slice(None, None, d) for d in dilations),
        )
    ]
    order = [0, *range(2, 2 + dims), 1, *range(2 + dims, 2 + 2 * dims)]
    return view.transpose(order)


def is_wide(a: np.ndarray, layer: QuantizedLayer) -> bool:
    """Whether a convolution of this input is wide, as in intact_engine_layer."""
    padded = _padded(a, layer, 0)
    is_narrowed = layer.a_type == "s8" and padded.shape != a.shape
    dilations = attributes(layer.graph_node).get("dilations", [1])
    return _view(padded, layer).shape[a.ndim - 2] >= 5 and max(dilations) == 1 and not is_narrowed


def windows(a: np.ndarray, layer: QuantizedLayer, fill: int) -> np.ndarray:
    """The windows of a convolution's input, tap by tap: (batch·pixels, groups, taps·I/groups). See _view()."""
    view, kernel = _view(_padded(a, layer, fill), layer), layer.weights.shape[1:-1]
    dims = len(kernel)
    pixels = int(np.prod(view.shape[: 1 + dims]))
    taps = int(np.prod(kernel))
    flat = view.reshape(pixels, layer.groups, -1, taps)
    return np.ascontiguousarray(flat.transpose(0, 1, 3, 2).reshape(pixels, layer.groups, -1))


class Clamped:
    """A product that clamps sums of two adjacent depths to int16, as VPMADDUBSW does, in NumPy: for CPUs without
    kernels that clamp."""

    def __init__(self, weights: np.ndarray, a_type: str):
        self.a_shift, self.b_shift = 128 * (a_type == "s8"), 128 * (weights.dtype == np.uint8)
        shifted = weights.astype(np.int32) - self.b_shift
        self.pairs = np.pad(shifted, [(0, len(weights) % 2), (0, 0)])
        self.columns = self.a_shift * shifted.sum(axis=0, dtype=np.int32)

    def run(self, a: np.ndarray) -> np.ndarray:
        shifted = np.pad(a.astype(np.int32) + self.a_shift, [(0, 0), (0, a.shape[1] % 2)])
        sums = self.b_shift * a.sum(axis=1, dtype=np.int32)[:, None] - self.columns
        for k in range(0, len(self.pairs), 2):
            pair = shifted[:, k, None] * self.pairs[k] + shifted[:, k + 1, None] * self.pairs[k + 1]
            sums += np.clip(pair, -32768, 32767)
        return sums


class Sums:
    """Computes a layer's sums of products, without zero points: exactly, and as an engine does that adds
    `pairs` in int16. Makes the plans once.

    `skips_padding`: the engine forms no pairs with padding, so products of padding are added exactly."""

    def __init__(self, layer: QuantizedLayer, pairs: str, skips_padding: bool = False):
        self.layer, self.pairs, self.skips_padding = layer, pairs, skips_padding and pairs != "none"
        matrices = slices(layer, pairs)
        self.exact = [Gemm(matrix, a_type=layer.a_type) for matrix in matrices]
        if pairs == "none":
            self.clamped = self.exact
        elif "avx2" in isas():
            self.clamped = [
                Gemm(matrix, a_type=layer.a_type, mode="saturating", max_isa="avx2") for matrix in matrices
            ]
        else:
            self.clamped = [Clamped(matrix, layer.a_type) for matrix in matrices]

    def _rows(self, a: np.ndarray, fill: int) -> list[np.ndarray]:
        """A matrix for each group: a row for each output, a column for each depth. `fill`: the padding's
        value."""
        if not self.layer.is_convolution:
            depth = self.layer.weights.shape[0]
            a = a.reshape(-1, depth)
            return [
                np.ascontiguousarray(
                    np.insert(a, (depth + 1) // 2, 0, axis=1) if self.pairs == "halves" else a
                )
            ]
        rows = paired(windows(a, self.layer, fill), self.layer, self.pairs)
        return [np.ascontiguousarray(rows[:, group]) for group in range(self.layer.groups)]

    def __call__(self, a: np.ndarray, fill: int) -> tuple[np.ndarray, np.ndarray]:
        """The exact sums and the engine's sums of a layer's activations, both (rows, N). `fill`: the
        padding's value."""

        def run(plans: list, rows: list[np.ndarray]) -> np.ndarray:
            return np.concatenate([plan.run(part) for plan, part in zip(plans, rows)], axis=1)

        rows = self._rows(a, fill)
        exact = run(self.exact, rows)
        if self.pairs == "none":
            return exact, exact
        nothing = 0 if self.layer.a_type == "u8" else -128  # the activation that is 0 for the instruction
        if not self.skips_padding or fill == nothing or not self.layer.is_convolution:
            return exact, run(self.clamped, rows)
        rows = self._rows(a, nothing)
        return exact, exact + run(self.clamped, rows) - run(self.exact, rows)


def zero_point(layer: QuantizedLayer, scope: Any) -> int | None:
    """The activations' zero point; None if it is no constant."""
    node = layer.graph_node
    name, place = "", row_of(node).inputs.a_point
    if layer.is_convolution and place is not None and len(node.input) > place:
        name = node.input[place]
    elif layer.is_qdq:
        dequantizer = scope.producer(node.input[0])
        name = input_of(dequantizer, 2)
    value = scope.constant(name) if name else np.zeros((), np.uint8)
    return None if value is None else int(value.reshape(-1)[0])


def run_on_data(
    audit: Audit,
    runs: list[dict[str, np.ndarray]],
    progress: Any = None,
    *,
    float_model: str | None = None,
    emulate: bool = False,
) -> OnData:
    """Runs the model's exact variant on data, and computes each layer's sums as one engine clamps them: ONNX
    Runtime if the audit is for it, else the audit's first engine. Each layer gets the exact variant's inputs.

    `float_model`: the model before quantization; its outputs are compared with the outputs of equal names.
    `emulate`: the stock model runs in an emulator, on a CPU without VNNI.

    If the time is over, the result contains the runs that were finished. Raises `TimeOver` if there are none."""
    from onnx import helper

    has_stock = "onnxruntime" in audit.engines
    if emulate and not has_stock:
        raise invalid(
            "--emulate: runs ONNX Runtime, which is not among the engines; add --engine onnxruntime"
        )
    if emulate:
        emulator()  # raises before the work if there is none
    on_data = OnData(len(runs), "onnxruntime" if has_stock else audit.engines[0], audit.cpu_clamps or emulate)
    exact = exact_variant(audit, audit)
    names = [output.name for output in exact.graph.output]
    visible: dict[str, list[QuantizedLayer]] = {}
    for audited in audit.layers:
        layer = audited.layer
        on_data.layers[layer.name] = None
        if layer.activation and layer.graph_node is not None:
            visible.setdefault(layer.activation, []).append(layer)
            on_data.layers[layer.name] = LayerOnData()
    sources = [str(getattr(run, "source", "--data")) for run in runs]
    # One session after the other, because each packs all weights.
    floats: list[dict] = [{} for _ in runs]
    if float_model:
        before = float_session(float_model, names)
        floats = list(_each(before, [inputs_of(before, run, str(float_model)) for run in runs], sources))
        del before
    captured = copy.deepcopy(exact)
    captured.graph.output.extend(
        helper.make_empty_tensor_value_info(name) for name in visible if name not in names
    )
    session = session_of(captured)
    inputs = [inputs_of(session, run) for run in runs]
    counter = _Counter(audit, on_data, engines()[on_data.engine], visible)
    for values in _before_the_end(session, inputs, sources):
        counter.add(values)
        on_data.counted += 1
        if progress:
            progress(on_data.counted, len(runs))
    if not on_data.counted and runs:
        raise TimeOver("the runs on data")
    del session, counter
    if has_stock:
        _compare_outputs(audit, on_data, exact, floats, inputs, sources, emulate)
    parts = {"sums": on_data.counted, **({"outputs": on_data.compared} if has_stock else {})}
    of = counted(len(runs), "run")
    missing = [f"{what} of {len(runs) - n} of {of}" for what, n in parts.items() if n < len(runs)]
    on_data.missing = f"{' and '.join(missing)} on data: {IS_OVER}" if missing else ""
    return on_data


def _compare_outputs(
    audit: Audit,
    on_data: OnData,
    exact: Any,
    floats: "list[dict[str, np.ndarray]]",
    inputs: list,
    sources: list[str],
    emulate: bool,
) -> None:
    """Compares the outputs of the runs that end before the time is over."""
    names = [output.name for output in exact.graph.output]

    def results(make: Callable[[], Any], of: list) -> list[dict[str, np.ndarray]]:
        """Makes the session only if there is time for it."""
        return list(_before_the_end(session_of(make()), of, sources)) if of and not is_time_over() else []

    right = results(lambda: exact, inputs)
    control = results(lambda: control_variant(exact, audit), inputs[: len(right)])
    inputs = inputs[: len(control)]
    if not emulate:
        stock = results(lambda: audit.model.path, inputs)
    elif inputs and not is_time_over():
        there = emulated(audit.model.path, names, inputs, may_end_early=True)
        stock = [dict(zip(names, values)) for values in there]
    else:
        stock = []
    on_data.compared = len(stock)
    if not stock:
        return
    held: list[list[np.ndarray]] = []
    try:
        held, on_data.not_held = held_to_avx2(exact, names, inputs[: len(stock)])
    except TimeOver:
        on_data.not_held = IS_OVER
    for place, name in enumerate(names):
        gathered = [
            [*(outputs[name] for outputs in run), *([of_float[name]] if name in of_float else [])]
            for *run, of_float in zip(right, stock, control, floats)
        ]
        if any(values.dtype.kind not in "biuf" for outputs in gathered for values in outputs):
            continue  # strings, sequences
        on_data.outputs.append(compare_outputs(name, gathered, [values[place] for values in held]))


def _each(session: Any, inputs: list, sources: list[str]) -> Iterator[dict[str, np.ndarray]]:
    for run, source in zip(inputs, sources):
        begin_unit("the runs on data")
        yield outputs_of(session, run, source)


def _before_the_end(session: Any, inputs: list, sources: list[str]) -> Iterator[dict[str, np.ndarray]]:
    """As _each(), but ends without an error when the time is over."""
    try:
        yield from _each(session, inputs, sources)
    except TimeOver:
        return


class _Counter:
    """Counts the wrong sums of the layers in `visible`, by the tensors that the layers read. Plans of large
    models live only while they compute."""

    def __init__(
        self, audit: Audit, on_data: OnData, engine: Engine, visible: "dict[str, list[QuantizedLayer]]"
    ):
        self.scope = Scope(audit.model.proto.graph, Path(audit.model.path).parent)
        self.on_data, self.engine, self.visible = on_data, engine, visible
        # of the certificate: the pairs with AVX-512, if only these can clamp
        self.pairs = {audited.layer.name: audited.engines[engine.name].pairing for audited in audit.layers}
        self.keeps_plans = sum(audited.layer.weights.nbytes for audited in audit.layers) < _MOST_KEPT
        self.plans: dict[tuple[str, str], Sums] = {}

    def _sums(self, layer: QuantizedLayer, a: np.ndarray) -> Sums:
        pairs = self.pairs[layer.name]
        if pairs in ("kernel_row", "kernel_column"):
            pairs = pairs_of(self.engine, layer, "avx512", is_wide(a, layer))
        if (layer.name, pairs) in self.plans:
            return self.plans[layer.name, pairs]
        made = Sums(layer, pairs, self.engine.skips_padding)
        if self.keeps_plans:
            self.plans[layer.name, pairs] = made
        return made

    def add(self, values: "dict[str, np.ndarray]") -> None:
        """Adds a run. `values`: the quantized tensors by name; float tensors are quantized as their operators
        quantize them."""
        for name, layers in self.visible.items():
            for layer in layers:
                a = values[name]
                point = zero_point(layer, self.scope) if layer.is_convolution else 0
                if point is None or self.on_data.layers[layer.name] is None:
                    self.on_data.layers[layer.name] = None
                    continue
                if a.dtype == np.float32:  # the operator itself quantizes
                    a = dynamically_quantized(a)[0]
                if a.dtype == np.int8 and layer.a_type == "u8":
                    a, point = (a.astype(np.int16) + 128).astype(np.uint8), point + 128
                right, wrong = self._sums(layer, a)(a, point)
                found = self.on_data.layers[layer.name]
                found.results += right.size
                found.largest = max(found.largest, int(a.max(initial=0)))
                found.changed += int(np.count_nonzero(right != wrong))
                difference = right.astype(np.float64) - wrong
                found.signal += float(np.square(right.astype(np.float64)).sum())
                found.noise += float(np.square(difference).sum())


def memory_needed(*audits: Audit, sessions: int = 1, controls: int = 1) -> int:
    """A bound of the bytes that a run on data needs for weights: the u8 weights and the changed floats that
    variants share, the constants that the file itself holds, the sessions, and the plans of the largest layer
    or of all layers. Activations are not counted. `sessions`: how many sessions of the first model live at
    once; `controls`: how many variants change its floats."""
    needed = float(_BASE)
    for audit in audits:
        size, inside, floats = constants_size(audit.model.proto)
        weights = [audited.layer.weights.nbytes for audited in audit.layers]
        needed += 4 * inside + sum(weights)
        if audit is audits[0]:
            plans = 3 * (sum(weights) if sum(weights) < _MOST_KEPT else max(weights, default=0))
            needed += controls * floats + sessions * SESSION * size + plans
    return int(needed)


def compare_outputs(name: str, outputs: list, held: "list[np.ndarray] | None" = None) -> OutputOnData:
    """Compares an output. `outputs`: for each run the output of the exact variant, of the stock model, of the
    control, and, if given, of the float model. `held`: of the exact variant held to AVX2; empty or None if it
    was not run."""
    signal = noise = control = largest = largest_control = 0.0
    before = exact_error = stock_error = 0.0
    count = differing = control_differing = answers = changed = control_changed = 0
    for exact, stock, other, *floats in outputs:
        if any(values.shape != exact.shape for values in (stock, other)):
            raise invalid(
                f"output {excerpt(name)!r}: its shape changes with rounding, so outputs cannot be compared"
            )
        if any(values.shape != exact.shape for values in floats):
            raise invalid(
                f"output {excerpt(name)!r}: has the shape {exact.shape}; the float model's has {floats[0].shape}"
            )
        e, s, o = (np.asarray(values, np.float64) for values in (exact, stock, other))
        signal += power(e)
        stock_by, control_by = distances(e, s), distances(e, o)
        count += exact.size
        differing += int(np.count_nonzero(stock_by))
        control_differing += int(np.count_nonzero(control_by))
        noise += float(np.square(stock_by).sum())
        control += float(np.square(control_by).sum())
        largest = max(largest, float(stock_by.max(initial=0)))
        largest_control = max(largest_control, float(control_by.max(initial=0)))
        for f in floats:
            f = np.asarray(f, np.float64)
            before += power(f)
            exact_error += float(np.square(distances(f, e)).sum())
            stock_error += float(np.square(distances(f, s)).sum())
        if exact.ndim and exact.shape[-1] > 1:
            best = exact.argmax(-1)
            answers += best.size
            changed += int(np.count_nonzero(stock.argmax(-1) != best))
            control_changed += int(np.count_nonzero(other.argmax(-1) != best))
    found = OutputOnData(
        name,
        decibels(signal, noise),
        decibels(signal, control),
        largest,
        largest_control,
        count,
        differing,
        control_differing,
        answers,
        changed,
        control_changed,
    )
    if len(outputs[0]) > 3:
        found.exact_to_float = decibels(before, exact_error)
        found.stock_to_float = decibels(before, stock_error)
    if held and all(one.shape == exact.shape for one, (exact, *_) in zip(held, outputs)):
        by = [
            distances(np.asarray(exact, np.float64), np.asarray(one, np.float64))
            for one, (exact, *_) in zip(held, outputs)
        ]
        found.held = decibels(signal, sum(float(np.square(each).sum()) for each in by))
        found.held_changed = sum(int(np.count_nonzero(each)) for each in by)
        found.held_argmax_changed = sum(
            int(np.count_nonzero(one.argmax(-1) != exact.argmax(-1)))
            for one, (exact, *_) in zip(held, outputs)
            if exact.ndim and exact.shape[-1] > 1
        )
    return found
