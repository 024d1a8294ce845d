"""against_engine.py MODEL DATA.npz [--engine NAME]: does an engine compute what the audit predicts for CPUs without VNNI?

MODEL's exact variant runs on DATA. Each audited product and convolution gets its activations of this run and is run by itself in
the installed engine (onnxruntime, the default, fbgemm, onednn or openvino): natively on a CPU without VNNI, else in Debian's
qemu-user, which emulates a Haswell. Prints a line for each layer. Exit status: 0 if every output is as predicted, 1 if not, 2 for
bad input.

ONNX Runtime runs the model's own operator, and all of its outputs are predicted. The outputs of DynamicQuantizeLSTM and
QAttention are instead compared with the operator with u8 weights: they must be equal if the audit proves the weights safe. The
other engines run the layer's u8 activations and s8 weights in their own operator.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

if "--worker" not in sys.argv:  # in the emulator there is neither
    from intact._audit.audit import audit
    from intact._audit.run import Sums, exact_variant, windows
    from intact._engines.data import dynamically_quantized, load_data
    from intact._engines.session import session_of
    from intact._engines.table import engines, pairs_of
    from intact._graph.nodes import attributes
    from intact._graph.scope import Scope
    from onnx import helper, numpy_helper

TYPES = {
    np.dtype(np.uint8): 2,
    np.dtype(np.int8): 3,
    np.dtype(np.int32): 6,
    np.dtype(np.int64): 7,
    np.dtype(np.float32): 1,
}
ONE = np.float32(1)

# ----- in the emulator: the engines, without intact ---------------------------------------------------------------------


def run_onnxruntime(path, case):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(f"{path}.onnx", options, providers=["CPUExecutionProvider"]).run(
        None, case
    )


def run_torch(engine, case):
    import torch

    torch.backends.quantized.engine = engine
    torch.set_num_threads(1)
    a = torch._make_per_tensor_quantized_tensor(torch.tensor(case["a"]), float(case["sx"]), int(case["zx"]))
    scales = torch.tensor(case["sw"].astype(np.float64))
    w = torch._make_per_channel_quantized_tensor(
        torch.tensor(case["w"]), scales, torch.zeros(len(scales), dtype=torch.int64), 0
    )
    bias = torch.tensor(case["bias"])
    if "pads" in case:
        packed = torch.ops.quantized.conv2d_prepack(
            w, bias, *(case[name].tolist() for name in ("strides", "pads", "dilations")), int(case["groups"])
        )
        return [torch.ops.quantized.conv2d(a, packed, float(case["sy"]), int(case["zy"])).int_repr().numpy()]
    packed = torch.ops.quantized.linear_prepack(w, bias)
    return [torch.ops.quantized.linear(a, packed, float(case["sy"]), int(case["zy"])).int_repr().numpy()]


def run_openvino(case):
    import openvino
    from openvino import opset13 as ops

    core = openvino.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"})

    def quantized(x, top):  # u8, of zero point 0
        return ops.fake_quantize(x, np.float32(0), top, np.float32(0), top, 256)

    a, w, groups = case["a"], case["w"], int(case.get("groups", 1))
    x = ops.parameter(a.shape, np.float32)
    column = [-1] + [1] * (w.ndim - 1)
    if groups > 1:
        w = w.reshape(groups, -1, *w.shape[1:])
    scale = case["sw"].reshape(*w.shape[:2] if groups > 1 else w.shape[:1], *[1] * (case["w"].ndim - 1))
    weights = ops.multiply(ops.convert(ops.constant(w), np.float32), ops.constant(scale))
    source = quantized(x, np.float32(255))
    if "pads" in case:
        strides, pads, dilations = (case[name].tolist() for name in ("strides", "pads", "dilations"))
        product = (ops.group_convolution if groups > 1 else ops.convolution)(
            source, weights, strides, pads, pads, dilations
        )
        column = [1] + column[:-1]
    else:
        product, column = ops.matmul(source, weights, False, True), [1, -1]
    y = quantized(
        ops.relu(ops.add(product, ops.constant(case["bias"].reshape(column)))), np.float32(255) * case["sy"]
    )
    out = core.compile_model(openvino.Model([ops.result(y)], [x]), "CPU")([a.astype(np.float32)])[0]
    return [np.rint(out / case["sy"]).astype(np.uint8)]


def worker(engine: str, folder: str, count: int) -> None:
    for i in range(count):
        path = f"{folder}/{i}"
        with np.load(f"{path}.npz") as arrays:
            case = dict(arrays)
        try:
            outputs = (
                run_onnxruntime(path, case)
                if engine == "onnxruntime"
                else run_openvino(case)
                if engine == "openvino"
                else run_torch(engine, case)
            )
        except RuntimeError as error:
            Path(f"{path}_refused").write_text(str(error))
        else:
            np.savez(f"{path}_out.npz", *outputs)


# ----- an operator's operands -------------------------------------------------------------------------------------------


@dataclass
class Operands:
    """An operator's operands on data: activations, zero points, scales and bias. Scales are None if its outputs are integers or
    floats."""

    a: np.ndarray
    az: int = 0
    bz: np.ndarray | int = 0
    a_scale: np.ndarray | None = None
    b_scale: np.ndarray | None = None
    y_scale: np.ndarray | None = None
    yz: np.ndarray | None = None
    bias: np.ndarray | None = None


# Inputs of each operator, in the order of the fields after `a`.
PLACES = {
    "QLinearConv": {"az": 2, "bz": 5, "a_scale": 1, "b_scale": 4, "y_scale": 6, "yz": 7, "bias": 8},
    "QLinearMatMul": {"az": 2, "bz": 5, "a_scale": 1, "b_scale": 4, "y_scale": 6, "yz": 7},
    "QGemm": {"az": 2, "bz": 5, "a_scale": 1, "b_scale": 4, "y_scale": 7, "yz": 8, "bias": 6},
    "MatMulInteger": {"az": 2, "bz": 3},
    "ConvInteger": {"az": 2, "bz": 3},
    "MatMulIntegerToFloat": {"az": 4, "bz": 5, "a_scale": 2, "b_scale": 3, "bias": 6},
    "DynamicQuantizeMatMul": {"bz": 3, "b_scale": 2, "bias": 4},
    "QAttention": {"az": 6, "bz": 7, "a_scale": 3, "b_scale": 4},
}


def flat(value):
    return value.reshape(-1) if value.size > 1 else value.reshape(-1)[0]


def operands_of_operator(layer, value) -> Operands:
    """The operands of a quantized operator. `value` returns a tensor by its name."""
    node = layer.graph_node
    found = {
        name: flat(value(node.input[place]))
        for name, place in PLACES[node.op_type].items()
        if len(node.input) > place and node.input[place]
    }
    a = value(node.input[0])
    if node.op_type == "DynamicQuantizeMatMul":
        a, found["a_scale"], found["az"] = dynamically_quantized(a)
    return Operands(a, **found)


def operands_of_qdq(layer, group, scope, value) -> Operands:
    """The operands of a Conv, MatMul or Gemm between DequantizeLinear and QuantizeLinear. ONNX Runtime shifts s8 activations to
    u8."""
    made = {name for node in group for name in node.output}
    dequantizers = [scope.dequantizer(name) for name in layer.graph_node.input if name in made]
    a, b = dequantizers[:2]
    az, bz, a_scale, b_scale = (
        flat(value(name)) for name in (a.input[2], b.input[2], a.input[1], b.input[1])
    )
    found = Operands(value(a.input[0]), int(az), bz, a_scale, b_scale)
    if len(dequantizers) > 2:
        found.bias = value(dequantizers[2].input[0])
    elif len(layer.graph_node.input) > 2:  # a float bias, which ONNX Runtime quantizes
        found.bias = np.rint(value(layer.graph_node.input[2]) / (found.a_scale * found.b_scale)).astype(
            np.int32
        )
    if group[-1].op_type == "QuantizeLinear":
        found.y_scale, found.yz = (flat(value(name)) for name in group[-1].input[1:3])
    if found.a.dtype == np.int8:
        found.a, found.az = (found.a.astype(np.int16) + 128).astype(np.uint8), found.az + 128
    return found


def group_of(layer, scope) -> list:
    """The nodes that ONNX Runtime fuses into one operator."""
    node = layer.graph_node
    if not layer.is_qdq:
        return [node]
    group = [node]
    for name in reversed(node.input):
        source = scope.producer(name) if name else None
        while source is not None and (name == node.input[0] or scope.integers(name) is not None):
            group.insert(0, source)
            if source.op_type == "DequantizeLinear":
                break
            source = scope.producer(source.input[0])
    after = scope.consumers.get(node.output[0], [])
    if len(after) == 1 and after[0].op_type in ("Relu", "Clip"):
        follow = scope.consumers.get(after[0].output[0], [])
        if any(n.op_type == "QuantizeLinear" for n in follow):
            group.append(after[0])
            after = follow
    return group + [n for n in after if n.op_type == "QuantizeLinear"][:1]


# ----- what is predicted ------------------------------------------------------------------------------------------------


def results(layer, o: Operands, raw: np.ndarray) -> np.ndarray:
    """Sums of products, minus the part that comes from zero points."""
    w = layer.weights.reshape(len(layer.weights), -1).T if layer.is_convolution else layer.weights
    sums = raw.astype(np.int64) - int(o.az) * w.astype(np.int64).sum(axis=0)
    if np.any(o.bz):
        rows = windows(o.a, layer, int(o.az)) if layer.is_convolution else o.a.reshape(-1, 1, len(w))
        of_groups = rows.astype(np.int64).sum(axis=2) - len(w) * int(o.az)
        sums -= of_groups.repeat(w.shape[1] // of_groups.shape[1], axis=1) * np.asarray(o.bz, np.int64)
    return sums


def output_of_onnxruntime(o: Operands, sums: np.ndarray) -> np.ndarray:
    """Integers, floats or requantized bytes, in ONNX Runtime's float32 steps."""
    if o.b_scale is None:
        return sums.astype(np.int32)
    scale = o.a_scale * o.b_scale
    if o.y_scale is None:
        y = sums.astype(np.float32) * scale
        return y if o.bias is None else y + o.bias
    if o.bias is not None:
        sums = sums + o.bias
    info = np.iinfo(o.yz.dtype)
    y = np.rint(sums.astype(np.float32) * (scale / o.y_scale)) + float(o.yz)
    return np.clip(y, info.min, info.max).astype(o.yz.dtype)


def output_of_engine(engine: str, case: dict, sums: np.ndarray) -> np.ndarray:
    """Bytes of FBGEMM, of oneDNN in PyTorch or of OpenVINO, each by its own float32 steps."""
    acc, bias, scale = sums.astype(np.float32), case["bias"], case["sx"] * case["sw"]
    if engine == "fbgemm":
        y = np.rint((acc + bias / scale) * (scale / case["sy"])) + float(case["zy"])
    elif (
        engine == "onednn"
    ):  # these steps of a product fit the recorded ties: a scale that was twice inverted
        scaled = acc * scale if "pads" in case else acc * (ONE / (ONE / case["sx"])) * case["sw"]
        y = np.rint((scaled + bias) * (ONE / case["sy"]) + np.float32(case["zy"]))
    else:  # a FakeQuantize of 0 to 255·sy
        y = np.rint((acc * scale + bias) * (np.float32(255) / (np.float32(255) * case["sy"])))
    return np.clip(y, 0, 255).astype(np.uint8)


# ----- the comparison ---------------------------------------------------------------------------------------------------


class Comparison:
    """Runs the layers of a model on data, and collects cases for the emulator in a folder."""

    def __init__(self, path: str, data: str, engine: str, folder: str):
        self.engine, self.folder = engine, folder
        self.audited = audit(path, engines_asked=[engine])
        self.scope = Scope(self.audited.model.proto.graph, Path(path).parent)
        self.layers = [a for a in self.audited.layers if a.layer.graph_node is not None]
        self.cases: list = []  # a line's beginning, expected outputs, exact outputs
        self.left: dict[str, int] = {}
        captured = exact_variant(self.audited)
        names = {
            name
            for a in self.layers
            for node in group_of(a.layer, self.scope)
            for name in node.input
            if name and self.scope.constant(name) is None
        }
        have = {value.name for value in captured.graph.output}
        data = load_data(data)[0]
        for name in sorted(names - have - set(data)):
            captured.graph.output.append(helper.make_empty_tensor_value_info(name))
        session = session_of(captured)
        self.values = {**data, **dict(zip([o.name for o in session.get_outputs()], session.run(None, data)))}

    def value(self, name: str) -> np.ndarray:
        constant = self.scope.constant(name)
        return self.values[name] if constant is None else constant

    def operands(self, layer) -> Operands:
        if layer.is_qdq:
            return operands_of_qdq(layer, group_of(layer, self.scope), self.scope, self.value)
        return operands_of_operator(layer, self.value)

    def leave(self, reason: str) -> None:
        self.left[reason] = self.left.get(reason, 0) + 1

    def add(self, name, inputs, expected, exact, model=None) -> None:
        path = f"{self.folder}/{len(self.cases)}"
        np.savez(f"{path}.npz", **inputs)
        if model is not None:
            Path(f"{path}.onnx").write_bytes(model.SerializeToString())
        self.cases.append((name, expected, exact))

    def cut(self, group: list):
        """The model of these nodes alone, and its inputs."""
        inputs, constants = {}, []
        first = group[0]
        if first.op_type == "DequantizeLinear" and self.value(first.input[0]).dtype == np.int8:
            # ONNX Runtime shifts s8 tensors between a QuantizeLinear and a DequantizeLinear to u8.
            q, scale, point = (self.value(name) for name in first.input)
            inputs["float"] = (q.astype(np.float32) - point) * scale
            group = [
                helper.make_node("QuantizeLinear", ["float", *first.input[1:]], [first.input[0]])
            ] + group
        made = {name for node in group for name in node.output} | set(inputs)
        for name in dict.fromkeys(name for node in group for name in node.input if name and name not in made):
            constant = self.scope.constant(name)
            if constant is None:
                inputs[name] = self.values[name]
            else:
                constants.append(numpy_helper.from_array(np.asarray(constant, order="C"), name))
        if group[-1].op_type == "QuantizeLinear":
            group = group + [
                helper.make_node(
                    "DequantizeLinear", [group[-1].output[0], *group[-1].input[1:]], ["dequantized"]
                )
            ]
        outputs = [name for name in group[-1].output if name]
        typed = [helper.make_tensor_value_info(name, TYPES[a.dtype], a.shape) for name, a in inputs.items()]
        graph = helper.make_graph(
            group, "layer", typed, [helper.make_empty_tensor_value_info(name) for name in outputs], constants
        )
        proto = self.audited.model.proto
        return helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version), inputs

    def operator(self, layer):
        """The operator in ONNX Runtime."""
        group = group_of(layer, self.scope)
        o = self.operands(layer)
        model, inputs = self.cut(group)
        right, wrong = Sums(layer, pairs_of("onnxruntime", layer))(o.a, int(o.az))
        exact, expected = (output_of_onnxruntime(o, results(layer, o, raw)) for raw in (right, wrong))
        if layer.is_qdq and o.y_scale is not None:
            exact, expected = ((y.astype(np.float32) - float(o.yz)) * o.y_scale for y in (exact, expected))
        self.add(layer.name, inputs, [expected], [exact], model)

    def variants(self, layers):
        """An operator of several products: stock, and with u8 weights."""
        node = layers[0].layer.graph_node
        model, inputs = self.cut([node])
        path = f"{self.folder}/variant.onnx"
        Path(path).write_bytes(model.SerializeToString())
        changes = None  # how many sums change on these activations, where they can be seen
        unsafe = sum(a.fails([self.engine]) for a in layers)
        if layers[0].layer.activation:
            o = operands_of_operator(layers[0].layer, self.value)
            right, wrong = Sums(layers[0].layer, pairs_of(self.engine, layers[0].layer))(o.a, 0)
            changes = int(np.count_nonzero(right != wrong))
        name = f"{node.op_type} {node.name}, {unsafe} of {len(layers)} products can saturate"
        name += "" if changes is None else f", {changes} sums change"
        self.add("", inputs, None, None, exact_variant(audit(path)))
        # Equal, different, or unknown: a pair that can clamp need not, and sums inside a recurrent layer are not visible.
        expected = True if unsafe == 0 or changes == 0 else None if changes is None else False
        self.add(name, inputs, expected, None, model)

    def in_engine(self, layer):
        """The layer in PyTorch's or OpenVINO's operator."""
        if layer.a_type + layer.b_type != "u8s8":
            return self.leave(f"{layer.a_type}{layer.b_type}")
        o = self.operands(layer)
        case: dict = {"a": o.a, "w": layer.weights.T}
        if layer.is_convolution:
            numbers = attributes(layer.graph_node)
            dims = layer.weights.ndim - 2
            pads = numbers.get("pads", [0] * 2 * dims)
            automatic = any(a.name == "auto_pad" and a.s != b"NOTSET" for a in layer.graph_node.attribute)
            if dims > 2 or pads[:dims] != pads[dims:] or automatic:
                return self.leave("padding or dimensions that this comparison does not run")
            case = {"a": o.a, "w": np.moveaxis(layer.weights, -1, 1), "groups": layer.groups}
            for name, default in (("strides", 1), ("pads", 0), ("dilations", 1)):
                case[name] = np.array(
                    ([0] if name == "pads" else [1]) * (2 - dims) + numbers.get(name, [default] * dims)[:dims]
                )
            if dims == 1:
                case["a"], case["w"] = case["a"][:, :, None], case["w"][:, :, None]
        else:
            case["a"] = o.a.reshape(-1, len(layer.weights))
        columns = len(case["w"])
        az = int(o.az) if self.engine != "openvino" else 0
        sums = Sums(layer, pairs_of(self.engine, layer), engines()[self.engine].skips_padding)
        raw = sums(o.a, az)
        from_zero = Operands(o.a, az)
        right, wrong = (results(layer, from_zero, part) for part in raw)
        scale = np.broadcast_to(np.float32(1) if o.b_scale is None else o.b_scale, columns).astype(np.float32)
        a_scale = ONE if self.engine == "openvino" or o.a_scale is None else np.float32(o.a_scale)
        has_bias = o.bias is not None and o.bias.dtype == np.int32
        bias = o.bias.astype(np.float32) * (a_scale * scale) if has_bias else np.zeros(columns, np.float32)
        # its activations have the zero point 0: the median of each column is moved there
        if self.engine == "openvino":
            bias = -np.median(right * scale, axis=0).astype(np.float32)
        real = right * (a_scale * scale) + bias
        spread = np.float32(max(np.abs(real).max(), 1e-6))
        case.update(
            sx=a_scale,
            zx=np.int64(az),
            sw=scale,
            bias=bias,
            zy=np.int64(0 if self.engine == "openvino" else 128),
            sy=spread / np.float32(255 if self.engine == "openvino" else 127),
        )
        exact, expected = (output_of_engine(self.engine, case, part) for part in (right, wrong))
        self.add(
            layer.name, {name: np.asarray(a, order="C") for name, a in case.items()}, [expected], [exact]
        )

    def runs_in_float(self, layer) -> str:
        """The reason if ONNX Runtime computes a layer between DequantizeLinear and QuantizeLinear in float, else ""."""
        if self.has_channel_scales(layer):
            return "a scale for each channel of the activations"
        node, last = layer.graph_node, group_of(layer, self.scope)[-1]
        has_float_bias = len(node.input) > 2 and not self.scope.dequantizer(node.input[2])
        if self.engine == "onnxruntime" and layer.op_type == "Gemm" and last is node and has_float_bias:
            return "float bias and float outputs: runs in float"
        return ""

    def has_channel_scales(self, layer) -> bool:
        """Whether the activations or the outputs have a scale for each channel: ONNX Runtime computes in float."""
        last = group_of(layer, self.scope)[-1]
        nodes = [self.scope.dequantizer(layer.graph_node.input[0])] + [last] * (
            last.op_type == "QuantizeLinear"
        )
        return any(self.value(node.input[1]).size > 1 for node in nodes)

    def gather(self, most: int | None) -> None:
        several: dict[int, list] = {}
        for audited in self.layers[:most]:
            layer = audited.layer
            if self.engine == "onnxruntime" and layer.op_type in ("DynamicQuantizeLSTM", "QAttention"):
                several.setdefault(id(layer.graph_node), []).append(audited)
            elif not layer.activation:
                self.leave("activations that cannot be seen")
            elif layer.is_qdq and self.runs_in_float(layer):
                self.leave(self.runs_in_float(layer))
            elif self.engine == "onnxruntime":
                self.operator(layer)
            else:
                self.in_engine(layer)
        for group in several.values():
            self.variants(group)

    def run(self) -> str:
        """Runs the cases in the emulator, or natively on a CPU that clamps. Returns an error in words, or ""."""
        emulator = [] if self.audited.cpu_clamps else [shutil.which("qemu-x86_64") or "", "-cpu", "Haswell"]
        if emulator and not emulator[0]:
            return "this CPU has VNNI; install qemu-user"
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [
            *emulator,
            sys.executable,
            __file__,
            "--worker",
            self.engine,
            self.folder,
            str(len(self.cases)),
        ]
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
        return process.stderr[-500:] if process.returncode else ""

    def report(self) -> bool:
        """Prints a line for each case and a summary. Returns whether all outputs are as predicted."""
        wrong = refused = compared = outputs = moved = 0
        for i, (name, expected, exact) in enumerate(self.cases):
            refusal = Path(f"{self.folder}/{i}_refused")
            if refusal.exists():
                refused += 1
                print(f"{name}: refused: {refusal.read_text().splitlines()[0][:200]}")
                continue
            found = self.outputs(i)

            def different(wanted: list) -> int:
                return sum(int(np.count_nonzero(self.rows(y, e) != e)) for y, e in zip(found, wanted))

            compared += bool(name)
            if not name:  # the exact variant of the next case
                continue
            size, from_exact = sum(y.size for y in found), different(exact or self.outputs(i - 1))
            outputs, moved = outputs + size, moved + from_exact
            if not isinstance(expected, list):
                wrong += expected is not None and expected != (from_exact == 0)
                print(f"{name}: {from_exact} of {size} outputs differ from those of u8 weights")
                continue
            wrong += different(expected) > 0
            print(
                f"{name}: {different(expected)} of {size} outputs are not the predicted ones; {from_exact} are not exact"
            )
        left = "".join(f"; {count} left out: {reason}" for reason, count in self.left.items())
        print(
            f"{self.engine}: {compared} operators compared, {refused} refused, {outputs} outputs, {moved} not exact{left}"
        )
        print(f"{wrong} differ from the prediction")
        return not wrong and not refused

    def outputs(self, i: int) -> list:
        with np.load(f"{self.folder}/{i}_out.npz") as arrays:
            return [arrays[key] for key in arrays.files]

    @staticmethod
    def rows(y: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """An engine's output in the order of a prediction: the last dimension is the columns."""
        if y.shape == wanted.shape:
            return y
        channels_last = (
            np.moveaxis(y, 1, -1) if y.ndim > 2 and y.shape[1] == wanted.shape[-1] != y.shape[-1] else y
        )
        if y.ndim > 2 and y.shape[1] == y.shape[-1] == wanted.shape[-1]:
            channels_last = np.moveaxis(y, 1, -1)
        return channels_last.reshape(wanted.shape)


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("data", metavar="DATA.npz")
    parser.add_argument(
        "--engine", default="onnxruntime", choices=["onnxruntime", "fbgemm", "onednn", "openvino"]
    )
    parser.add_argument("--most", type=int, help="only the first so many layers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(options.model, options.data, options.engine, folder)
        comparison.gather(options.most)
        fault = comparison.run()
        if fault:
            print(f"against_engine: {fault}", file=sys.stderr)
            return 2
        return 0 if comparison.report() else 1


if __name__ == "__main__":
    sys.exit(main())
