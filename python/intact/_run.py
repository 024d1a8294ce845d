"""Runs an audited model and its exact variant on data, in ONNX Runtime, and counts the sums that saturate."""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ._audit import Audit, slices
from ._engines import engines, pairs_of
from ._gemm import Gemm
from ._library import excerpt, invalid
from ._onnx import QuantizedLayer, Scope, array_of_tensor, attributes, every_node

CONTROL = 1e-7  # relative change of the control's float constants


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
    """One output: how far the stock model (the model as it is) and the control (control_variant()) are from the exact variant.
    `exact_to_float`, `stock_to_float`: how far the exact variant and the stock model are from the float model, if it was given.
    Distances are in decibels."""

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


@dataclass
class OnData:
    """An audit on data. `engine`: the engine whose pairs clamp in `layers`. `layers`: by name; None if a layer's activations are
    not visible. `outputs`: empty if ONNX Runtime was not asked for. `stock_clamps`: whether the stock model ran on a CPU without
    VNNI."""

    items: int
    engine: str = "onnxruntime"
    stock_clamps: bool = False
    layers: dict[str, LayerOnData | None] = field(default_factory=dict)
    outputs: list[OutputOnData] = field(default_factory=list)


def decibels(signal: float, noise: float) -> float:
    return math.inf if noise == 0 else -math.inf if signal == 0 or math.isinf(noise) else 10 * math.log10(signal / noise)


class Run(dict):
    """The inputs of one run, by name. `source`: their file."""

    source = "--data"


def load_data(path: str | Path) -> list[Run]:
    """The runs in `path`: one for a .npz file, or one for each .npz file of a folder."""
    path = Path(path)
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if not files:
        raise invalid(f"{excerpt(path)}: has no .npz files")
    runs = []
    for file in files:
        try:
            arrays = np.load(file, allow_pickle=False)
            if isinstance(arrays, np.ndarray):
                raise invalid(f"{excerpt(file)}: is one array; expected a .npz file, as numpy.savez(FILE, INPUT=ARRAY) writes it")
            with arrays:
                run = Run({name: arrays[name] for name in arrays.files})
        except OSError as error:
            raise invalid(f"{excerpt(file)}: {error.strerror or 'is no .npz file of arrays'}") from None
        except (AttributeError, EOFError, MemoryError, NotImplementedError, RuntimeError, TypeError, ValueError, zipfile.BadZipFile,
                zlib.error):
            raise invalid(f"{excerpt(file)}: is no .npz file of arrays of numbers") from None
        run.source = str(file)
        runs.append(run)
    return runs


_TENSORS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(int64)": np.int64,
            "tensor(int32)": np.int32, "tensor(int16)": np.int16, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8,
            "tensor(bool)": np.bool_}


def inputs_of(session: Any, run: dict[str, np.ndarray], model: str = "") -> dict[str, np.ndarray]:
    """The arrays of a run that a session reads, checked. Other arrays (labels, say) are left out."""
    source = excerpt(getattr(run, "source", "--data"))
    taken = {}
    for value in session.get_inputs():
        where = f"{source}: array {excerpt(value.name)!r}"
        if value.name not in run:
            raise invalid(f"{source}: has no array {excerpt(value.name)!r}, an input of {model or 'the model'}; has: {excerpt(', '.join(run)) or 'none'}")
        array = run[value.name]
        dtype = _TENSORS.get(value.type)
        if dtype is not None and array.dtype != dtype:
            raise invalid(f"{where}: is {array.dtype}; expected {np.dtype(dtype)}")
        shape = tuple(value.shape)
        # An empty shape is an unknown shape.
        if shape and (array.ndim != len(shape)
                      or any(isinstance(want, int) and n != want for n, want in zip(array.shape, shape))):
            expected = ", ".join(str(n) if isinstance(n, int) else "any" for n in shape)
            raise invalid(f"{where}: has the shape {array.shape}; expected ({expected})")
        if not array.size:
            raise invalid(f"{where}: has no elements: its shape is {array.shape}")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise invalid(f"{where}: holds NaN")
        taken[value.name] = array
    return taken


def as_u8(values: np.ndarray) -> np.ndarray:
    """s8 values, or zero points, shifted by 128."""
    return (values.astype(np.int16) + 128).astype(np.uint8)


def weights_zero_point(layer: QuantizedLayer, node: Any, scope: Scope) -> np.ndarray | None:
    """The zero point of the s8 weights that `node` reads for a layer. If it has no zero point: zeros, in the shape of a
    DequantizeLinear's scale. None if the zero point or the scale is no constant. Extends the node's inputs up to the zero
    point."""
    while len(node.input) <= layer.point_input:
        node.input.append("")
    if node.input[layer.point_input]:
        return scope.constant(node.input[layer.point_input])
    scale = scope.constant(node.input[1]) if layer.is_qdq else np.zeros(())
    return None if scale is None else np.zeros(scale.shape, np.int8)


def take_data_in(proto: Any, folder: Path) -> None:
    """Moves external data into the model, so that the model can be stored in another folder."""
    from onnx import numpy_helper

    for tensor in proto.graph.initializer:
        if tensor.data_location == 1:
            array = array_of_tensor(tensor, folder)
            if array is None:
                raise invalid(f"tensor {excerpt(tensor.name)!r}: has a type that is not supported")
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def exact_variant(audit: Audit) -> Any:
    """The model with its s8 weights stored as u8 with zero point 128. This changes no integer sum, and ONNX Runtime's kernels
    for u8 weights are exact."""
    from onnx import numpy_helper

    # Layers refer to nodes of the original model; positions find them in the copy.
    proto = copy.deepcopy(audit.model.proto)
    places = {id(node): i for i, node in enumerate(every_node(audit.model.proto.graph))}
    copies = list(every_node(proto.graph))
    made: dict[tuple[int, str], str] = {}

    def constant(name: str, array: np.ndarray) -> str:
        tensor = numpy_helper.from_array(np.asarray(array, order="C"), name)
        proto.graph.initializer.append(tensor)
        return name

    folder = Path(audit.model.path).parent
    take_data_in(proto, folder)
    changed = set()
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
            made[key] = constant(f"{name}__u8" + (f"_{place}" if layer.within else ""), as_u8(scope.constant(name)))
        node.input[layer.weights_input] = made[key]
        point = weights_zero_point(layer, node, scope)
        if point is None:
            raise invalid(f"{layer.name}: the zero point or the scale of its weights is no constant, so no exact variant can be "
                          "made")
        node.input[layer.point_input] = constant(f"{name}__u8_point_{place}_{layer.point_input}", as_u8(point))
    return proto


def control_variant(proto: Any) -> Any:
    """The exact variant with each float constant changed by a relative 1e-7, alternately up and down."""
    from onnx import numpy_helper

    changed = copy.deepcopy(proto)
    for tensor in changed.graph.initializer:
        if tensor.data_type != 1:
            continue
        array = numpy_helper.to_array(tensor).astype(np.float64)
        signs = np.where(np.arange(array.size).reshape(array.shape) % 2, -1.0, 1.0)
        tensor.CopyFrom(numpy_helper.from_array((array * (1 + CONTROL * signs)).astype(np.float32), tensor.name))
    return changed


def session_of(model: Any, is_as_written: bool = False) -> Any:
    """A session of ONNX Runtime. `is_as_written`: without fusions of QuantizeLinear and DequantizeLinear nodes. The fusions
    would also quantize float weights between these nodes."""
    try:
        import onnxruntime
    except ImportError:
        raise invalid("--data: needs the package onnxruntime: pip install onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if is_as_written:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    try:
        model = model if isinstance(model, str) else model.SerializeToString()
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise invalid(f"ONNX Runtime does not load the model: {excerpt(error, 300)}") from None


_ELSEWHERE = """
import json, sys, numpy, onnxruntime
folder = sys.argv[1]
job = json.load(open(folder + "/job.json"))
options = onnxruntime.SessionOptions()
options.log_severity_level, options.intra_op_num_threads = 4, 1
session = onnxruntime.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
for i in range(job["runs"]):
    with numpy.load(f"{folder}/{i}.npz") as arrays:
        results = session.run(job["outputs"], dict(zip(job["inputs"][i], [arrays[name] for name in arrays.files])))
    results = [numpy.asarray(result) for result in results]
    numpy.savez(f"{folder}/{i}_out.npz", *[result if result.dtype.kind in "biuf" else numpy.zeros(0, "U1") for result in results])
"""


def emulated(path: str, names: list[str], runs: list[dict[str, np.ndarray]]) -> list[list[np.ndarray]]:
    """A model's outputs of each run on a CPU without VNNI. The interpreter INTACT_PYTHON runs the model; without INTACT_PYTHON,
    this interpreter runs it in qemu-user."""
    own = os.environ.get("INTACT_PYTHON")
    python = [own] if own else ["qemu-x86_64", "-cpu", "Haswell", sys.executable]
    if own and not shutil.which(own):
        raise invalid(f"INTACT_PYTHON: names {excerpt(own)}, which cannot be run")
    if not shutil.which(python[0]):
        raise invalid(f"--emulate: needs {python[0]}; on Debian, install the package qemu-user")
    with tempfile.TemporaryDirectory() as folder:
        for i, run in enumerate(runs):
            np.savez(f"{folder}/{i}.npz", *run.values())
        job = {"model": str(Path(path).resolve()), "runs": len(runs), "inputs": [list(run) for run in runs], "outputs": names}
        Path(folder, "job.json").write_text(json.dumps(job))
        process = subprocess.run([*python, "-c", _ELSEWHERE, folder], capture_output=True, text=True)
        if process.returncode:
            raise invalid(f"--emulate: the emulated ONNX Runtime failed: {excerpt(process.stderr[-300:], 300)}")
        results = []
        for i in range(len(runs)):
            with np.load(f"{folder}/{i}_out.npz") as arrays:
                results.append([arrays[name] for name in arrays.files])
        return results


def windows(a: np.ndarray, layer: QuantizedLayer, fill: int) -> np.ndarray:
    """The windows of a convolution's input, tap by tap. The input has the shape (batch, I, *extents), the result
    (batch·pixels, groups, taps·I/groups). The padding is `fill`, the activations' zero point."""
    node = layer.graph_node
    values = attributes(node)
    kernel = layer.weights.shape[1:-1]
    dims = len(kernel)
    strides, dilations = values.get("strides", [1] * dims), values.get("dilations", [1] * dims)
    pads = values.get("pads", [0] * 2 * dims)
    auto = next((attribute.s.decode() for attribute in node.attribute if attribute.name == "auto_pad"), "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max((-(-a.shape[2 + i] // strides[i]) - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - a.shape[2 + i], 0)
                  for i in range(dims)]
        begins = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in totals]
        pads = begins + [t - b for t, b in zip(totals, begins)]
    padded = np.pad(a, [(0, 0), (0, 0)] + [(pads[i], pads[dims + i]) for i in range(dims)], constant_values=fill)
    spans = tuple((kernel[i] - 1) * dilations[i] + 1 for i in range(dims))
    view = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=tuple(range(2, 2 + dims)))
    view = view[(slice(None), slice(None), *(slice(None, None, s) for s in strides), *(slice(None, None, d) for d in dilations))]
    order = [0, *range(2, 2 + dims), 1, *range(2 + dims, 2 + 2 * dims)]
    view = view.transpose(order)  # batch, pixels, channel, taps
    pixels = int(np.prod(view.shape[:1 + dims]))
    taps = int(np.prod(kernel))
    flat = view.reshape(pixels, layer.groups, -1, taps)
    return np.ascontiguousarray(flat.transpose(0, 1, 3, 2).reshape(pixels, layer.groups, -1))


class Sums:
    """Computes a layer's sums of products, without zero points: exactly, and as an engine does that adds `pairs` in int16. Makes
    the plans once.

    `skips_padding`: the engine forms no pairs with padding, so products of padding are added exactly."""

    def __init__(self, layer: QuantizedLayer, pairs: str, skips_padding: bool = False):
        self.layer, self.pairs, self.skips_padding = layer, pairs, skips_padding and pairs != "none"
        matrices = slices(layer, pairs)
        self.exact = [Gemm(matrix, a_type=layer.a_type) for matrix in matrices]
        self.clamped = self.exact if pairs == "none" else [
            Gemm(matrix, a_type=layer.a_type, mode="saturating", max_isa="avx2") for matrix in matrices]

    def _rows(self, a: np.ndarray, fill: int) -> list[np.ndarray]:
        """A matrix for each group: a row for each output, a column for each depth. `fill`: the padding's value."""
        if not self.layer.is_convolution:
            depth = self.layer.weights.shape[0]
            a = a.reshape(-1, depth)
            return [np.ascontiguousarray(np.insert(a, (depth + 1) // 2, 0, axis=1) if self.pairs == "halves" else a)]
        rows = windows(a, self.layer, fill)
        depth = self.layer.weights.shape[-1]
        if self.pairs == "within_tap" and depth % 2:
            taps = rows.reshape(*rows.shape[:2], -1, depth)
            rows = np.pad(taps, [(0, 0)] * 3 + [(0, 1)]).reshape(*rows.shape[:2], -1)
        return [np.ascontiguousarray(rows[:, group]) for group in range(self.layer.groups)]

    def __call__(self, a: np.ndarray, fill: int) -> tuple[np.ndarray, np.ndarray]:
        """The exact sums and the engine's sums of a layer's activations, both (rows, N). `fill`: the padding's value."""

        def run(plans: list[Gemm], rows: list[np.ndarray]) -> np.ndarray:
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


def dynamically_quantized(x: np.ndarray) -> tuple[np.ndarray, np.float32, np.uint8]:
    """u8 values, their scale and zero point, as DynamicQuantizeLinear computes them."""
    low, high = min(x.min(initial=0), np.float32(0)), max(x.max(initial=0), np.float32(0))
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    point = np.uint8(np.rint(np.clip(-low / scale, 0, 255)))
    return np.clip(np.rint(x / scale) + np.float32(point), 0, 255).astype(np.uint8), scale, point


def zero_point(layer: QuantizedLayer, scope: Any) -> int | None:
    """The activations' zero point; None if it is no constant."""
    node = layer.graph_node
    places = {"QLinearConv": 2, "ConvInteger": 2}
    name = ""
    if node.op_type in places and len(node.input) > places[node.op_type]:
        name = node.input[places[node.op_type]]
    elif layer.is_qdq:
        dequantizer = scope.producer(node.input[0])
        name = dequantizer.input[2] if len(dequantizer.input) > 2 else ""
    value = scope.constant(name) if name else np.zeros((), np.uint8)
    return None if value is None else int(value.reshape(-1)[0])


def run_on_data(audit: Audit, runs: list[dict[str, np.ndarray]], progress: Any = None, *, float_model: str | None = None,
                emulate: bool = False) -> OnData:
    """Runs the model's exact variant on data, and computes each layer's sums as one engine clamps them: ONNX Runtime if the
    audit is for it, else the audit's first engine. Each layer gets the exact variant's inputs.

    `float_model`: the model before quantization; its outputs are compared with the outputs of equal names. `emulate`: the stock
    model runs in an emulator, on a CPU without VNNI."""
    from onnx import helper

    has_stock = "onnxruntime" in audit.engines
    if emulate and not has_stock:
        raise invalid("--emulate: runs ONNX Runtime, which is not among the engines; add --engine onnxruntime")
    on_data = OnData(len(runs), "onnxruntime" if has_stock else audit.engines[0], audit.cpu_clamps or emulate)
    engine = engines()[on_data.engine]
    scope = Scope(audit.model.proto.graph, Path(audit.model.path).parent)
    exact = exact_variant(audit)
    names = [output.name for output in exact.graph.output]
    visible: dict[str, list[Sums]] = {}
    for audited in audit.layers:
        layer = audited.layer
        on_data.layers[layer.name] = None
        if layer.activation and layer.graph_node is not None:
            sums = Sums(layer, pairs_of(engine, layer), engine.skips_padding)
            visible.setdefault(layer.activation, []).append(sums)
            on_data.layers[layer.name] = LayerOnData()
    captured = copy.deepcopy(exact)
    have = set(names)
    for name in visible:
        if name not in have:
            captured.graph.output.append(helper.make_empty_tensor_value_info(name))
    probe, stock, control = session_of(captured), session_of(audit.model.path), session_of(control_variant(exact))
    plain = session_of(exact)
    before = float_session(float_model, names) if float_model else None
    before_names = [output.name for output in before.get_outputs()] if before else []
    inputs = [inputs_of(plain, run) for run in runs]
    inputs_before = [inputs_of(before, run, str(float_model)) for run in runs] if before else []
    stock_results = emulated(audit.model.path, names, inputs) if emulate else []
    gathered: dict[str, list] = {name: [] for name in names}
    for done, run in enumerate(inputs):
        try:
            values = dict(zip([output.name for output in probe.get_outputs()], probe.run(None, run)))
            results = [plain.run(names, run), stock_results[done] if emulate else stock.run(names, run), control.run(names, run)]
            values_before = before.run(None, inputs_before[done]) if before else []
            floats = {name: [value] for name, value in zip(before_names, values_before)}
        except Exception as error:
            raise invalid(f"{excerpt(runs[done].source)}: ONNX Runtime cannot run these inputs: {excerpt(error, 300)}") from None
        for i, name in enumerate(names):
            gathered[name].append([np.asarray(values) for values in [*(result[i] for result in results), *floats.get(name, ())]])
        for name, layers in visible.items():
            for sums in layers:
                layer, a = sums.layer, values[name]
                point = zero_point(layer, scope) if layer.is_convolution else 0
                if point is None or on_data.layers[layer.name] is None:
                    on_data.layers[layer.name] = None
                    continue
                if a.dtype == np.float32:  # the operator itself quantizes
                    a = dynamically_quantized(a)[0]
                if a.dtype == np.int8 and layer.a_type == "u8":
                    a, point = (a.astype(np.int16) + 128).astype(np.uint8), point + 128
                right, wrong = sums(a, point)
                found = on_data.layers[layer.name]
                found.results += right.size
                found.largest = max(found.largest, int(a.max(initial=0)))
                found.changed += int(np.count_nonzero(right != wrong))
                difference = right.astype(np.float64) - wrong
                found.signal += float(np.square(right.astype(np.float64)).sum())
                found.noise += float(np.square(difference).sum())
        if progress:
            progress(done + 1, len(runs))
    for name in names if has_stock else []:
        if any(values.dtype.kind not in "biuf" for outputs in gathered[name] for values in outputs):
            continue  # strings, sequences
        on_data.outputs.append(compare_outputs(name, gathered[name]))
    return on_data


def float_session(path: str, names: list[str], option: str = "--float") -> Any:
    """A session of the model before quantization, which must have at least one of the outputs `names`."""
    if not Path(path).is_file():
        raise invalid(f"{option}: {excerpt(path)}: no such file")
    session = session_of(str(path))
    found = [output.name for output in session.get_outputs()]
    if not set(found) & set(names):
        raise invalid(f"{option}: {excerpt(path)}: has none of the model's outputs ({excerpt(', '.join(names))}); "
                      f"its outputs: {excerpt(', '.join(found))}")
    return session


def distances(exact: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far values are apart. Equal infinities and two NaNs: 0. Any other pair with an infinity or a NaN: infinity."""
    finite = np.isfinite(exact) & np.isfinite(other)
    alike = (exact == other) | (np.isnan(exact) & np.isnan(other))
    distances = np.where(alike, 0.0, np.inf)
    distances[finite] = np.abs(exact[finite] - other[finite])
    return distances


def compare_outputs(name: str, outputs: list) -> OutputOnData:
    """Compares an output. `outputs`: for each run the output of the exact variant, of the stock model, of the control, and, if
    given, of the float model."""
    signal = noise = control = largest = largest_control = 0.0
    before = exact_error = stock_error = 0.0
    count = differing = control_differing = answers = changed = control_changed = 0
    for exact, stock, other, *floats in outputs:
        if any(values.shape != exact.shape for values in (stock, other)):
            raise invalid(f"output {excerpt(name)!r}: its shape changes with rounding, so outputs cannot be compared")
        if any(values.shape != exact.shape for values in floats):
            raise invalid(f"output {excerpt(name)!r}: has the shape {exact.shape}; the float model's has {floats[0].shape}")
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
    found = OutputOnData(name, decibels(signal, noise), decibels(signal, control), largest, largest_control, count, differing,
                         control_differing, answers, changed, control_changed)
    if len(outputs[0]) > 3:
        found.exact_to_float, found.stock_to_float = decibels(before, exact_error), decibels(before, stock_error)
    return found


def power(values: np.ndarray) -> float:
    return float(np.square(values[np.isfinite(values)]).sum())
