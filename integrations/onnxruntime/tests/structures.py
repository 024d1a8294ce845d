"""Random structures of QDQ groups: which of them ONNX Runtime computes in integers, compared with the rules of the audit, with what
the provider takes, and with the provider's bytes.

    python structures.py --count 20000                  # prints what differs, shrunk to the fewest unusual features
    python structures.py --count 20000 --begin 31000    # goes on behind the number that the last line of a run named
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import intact
import intact.onnxruntime

K, N = 6, 4
TYPES = {"u8": (np.uint8, TensorProto.UINT8), "s8": (np.int8, TensorProto.INT8), "u16": (np.uint16, TensorProto.UINT16),
         "s16": (np.int16, TensorProto.INT16), "s32": (np.int32, TensorProto.INT32)}
# The values of each feature. The first is the usual one; a structure is shrunk towards it.
FEATURES = {
    "op": ("Conv", "Gemm", "MatMul", "Add", "Mul", "ConvTranspose"),
    "opset": (21, 13, 19),
    "a": ("u8", "u8", "s8", "u16", "s16"),
    "w": ("s8", "s8", "u8"),
    "y": ("as a", "as a", "as a", "u8", "s8", "u16"),
    "a_from": ("bytes", "bytes", "float", "float, shared", "bytes, shared", "bytes, two dequantizers"),
    "a_scale": ("scalar", "scalar", "one"),
    "a_zero": ("scalar", "scalar", "one", "absent"),
    "w_scale": ("scalar", "column", "one"),
    "w_zero": ("given", "given", "absent"),
    "y_scale": ("scalar", "scalar", "one"),
    "y_zero": ("scalar", "scalar", "one", "absent"),
    "bias": ("none", "fit", "fit", "twice", "1.005", "1.02", "tiny", "other", "channel", "zero point", "float", "bytes", "from run"),
    "bias_shape": ("columns", "columns", "columns", "rows", "one"),
    "alpha": (1.0, 1.0, 1.0, 2.0),
    "beta": (1.0, 1.0, 1.0, 0.5),
    "trans_b": (0, 0, 1),
    "behind": ("quantize", "quantize", "float", "relu", "relu of another zero point", "clip", "narrow clip", "relu, float",
               "quantize and float", "two quantizers", "relu, two readers"),
    "y_read": ("by the caller", "by the caller", "by a dequantizer", "by two dequantizers", "by a shared dequantizer"),
    "added": ("nothing", "nothing", "float", "dequantized", "activation", "row of run"),  # behind a MatMul, a bias
    "exchanged": (False, False, False, True),
    "w_through": ("nothing", "nothing", "nothing", "reshape", "transpose"),
    "w_shared": (False, False, False, True),
    "constant_w": (True, True, True, False),
}
INTEGER = {"QLinearConv", "QGemm", "QLinearMatMul", "QLinearAdd", "QLinearMul", "MatMulIntegerToFloat", "ConvInteger", "MatMulInteger"}


def random_structure(rng: np.random.Generator, unusual: float = 0.3) -> dict:
    """A structure: the operator and opset by chance, each other feature the usual one except with the probability `unusual`."""
    structure = {}
    for name, values in FEATURES.items():
        is_free = name in ("op", "opset", "a", "bias", "behind") or rng.random() < unusual
        structure[name] = values[rng.integers(len(values))] if is_free else values[0]
    return structure


class Invalid(Exception):
    """A structure that no model has."""


def _initializer(name: str, value: object) -> onnx.TensorProto:
    array = np.asarray(value)
    return numpy_helper.from_array(array if array.ndim == 0 else np.ascontiguousarray(array), name)


def _shaped(value: np.generic, how: str) -> np.ndarray:
    return np.array([value]) if how == "one" else np.array(value)


def build(s: dict, seed: int) -> tuple[bytes, dict]:
    """The model of a structure, and its inputs."""
    rng, f32, op = np.random.default_rng(seed), np.float32, s["op"]
    conv = op in ("Conv", "ConvTranspose")
    y = s["a"] if s["y"] == "as a" else s["y"]
    if s["opset"] < 21 and {"u16", "s16"} & {s["a"], y}:
        raise Invalid
    if op != "Gemm" and (s["alpha"] != 1 or s["beta"] != 1 or s["trans_b"]):
        raise Invalid
    if s["bias"] == "none" and (s["beta"] != 1 or s["bias_shape"] != "columns") or s["bias"] != "none" and op not in ("Conv", "Gemm", "ConvTranspose"):
        raise Invalid
    if s["exchanged"] and op not in ("Add", "Mul", "MatMul") or s["w_scale"] == "column" and op in ("Add", "Mul"):
        raise Invalid
    if op in ("Conv", "ConvTranspose") and s["bias_shape"] != "columns" or s["exchanged"] and op == "MatMul" and s["w_scale"] == "column":
        raise Invalid
    if s["bias"] == "channel" and (s["bias_shape"] != "columns" or s["w_scale"] != "column"):
        raise Invalid
    if s["added"] != "nothing" and op != "MatMul" or s["y_read"] != "by the caller" and s["behind"] in ("float", "relu, float"):
        raise Invalid
    if s["y_zero"] == "absent" and (y != "u8" or s["behind"].startswith("relu") or s["behind"].endswith("clip")):
        raise Invalid
    nodes, initializers, inputs, outputs = [], [], [], []
    x_shape = [1, K, 3, 3] if conv else [3, K]
    w_shape = {"Conv": (N, K, 1, 1), "ConvTranspose": (K, N, 1, 1), "Add": (3, K), "Mul": (3, K)}.get(op, (N, K) if s["trans_b"] else (K, N))
    if s["exchanged"] and op == "MatMul":
        w_shape = (N, 3)
    axis = {"Conv": 0, "ConvTranspose": 1}.get(op, 0 if s["trans_b"] else 1)
    sx, sw, sy = f32(rng.uniform(0.03, 0.08)), f32(rng.uniform(0.01, 0.04)), f32(rng.uniform(0.08, 0.2))
    if s["bias"] == "tiny":
        sx, sw, sy = f32(3e-4), f32(2e-4), f32(1e-5)
    a_dtype, a_onnx = TYPES[s["a"]]
    w_dtype, y_dtype = TYPES[s["w"]][0], TYPES[y][0]
    a_info, y_info = np.iinfo(a_dtype), np.iinfo(y_dtype)
    a_zero = a_dtype(a_info.min + 100 if s["a_zero"] != "absent" else 0)
    y_low = s["behind"] in ("relu", "clip", "narrow clip", "relu, two readers")
    y_zero = y_dtype(0 if s["y_zero"] == "absent" else y_info.min + (0 if y_low else 77))
    initializers += [_initializer("xs", _shaped(sx, s["a_scale"])), _initializer("xz", _shaped(a_zero, s["a_zero"])),
                     _initializer("ys", _shaped(sy, s["y_scale"])), _initializer("yz", _shaped(y_zero, s["y_zero"]))]
    xz = [] if s["a_zero"] == "absent" else ["xz"]
    if s["a_from"].startswith("float"):
        inputs.append(("x", TensorProto.FLOAT, x_shape))
        given = {"x": (rng.normal(size=x_shape) * 100 * sx).astype(f32)}
        if not xz and s["a"] != "u8":
            raise Invalid
        nodes.append(helper.make_node("QuantizeLinear", ["x", "xs", *xz], ["xq"], name="quantizer"))
    else:
        inputs.append(("xq", a_onnx, x_shape))
        given = {"xq": rng.integers(a_info.min, a_info.max + 1, x_shape).astype(a_dtype)}
    nodes.append(helper.make_node("DequantizeLinear", ["xq", "xs", *xz], ["xf"], name="dequantizer"))
    if s["a_from"].endswith("shared"):
        nodes.append(helper.make_node("Neg", ["xf"], ["other"], name="other"))
        outputs.append(("other", TensorProto.FLOAT))
    if s["a_from"].endswith("two dequantizers"):
        nodes.append(helper.make_node("DequantizeLinear", ["xq", "xs", *xz], ["xf2"], name="dequantizer2"))
        nodes.append(helper.make_node("Neg", ["xf2"], ["other"], name="other"))
        outputs.append(("other", TensorProto.FLOAT))
    w_info = np.iinfo(w_dtype)
    w = rng.integers(w_info.min, w_info.max + 1, w_shape).astype(w_dtype)
    scales = {"scalar": np.array(sw), "one": np.array([sw]), "column": (sw * (1 + np.arange(N) / 7)).astype(f32)}[s["w_scale"]]
    w_zero = np.full(scales.shape, 0 if s["w"] == "s8" else 128, w_dtype)
    stored, through = w, []
    if s["w_through"] == "reshape":
        if s["w_scale"] == "column":
            raise Invalid
        stored = w.reshape(-1, 1)
        initializers.append(_initializer("shape", np.array(w_shape, np.int64)))
        through = [helper.make_node("Reshape", ["wd", "shape"], ["wf"], name="through")]
    elif s["w_through"] == "transpose":
        order = [1, 0, *range(2, w.ndim)]
        stored, axis = w.transpose(order), 1 - axis if s["w_scale"] == "column" else axis
        through = [helper.make_node("Transpose", ["wd"], ["wf"], name="through", perm=order)]
    if s["constant_w"]:
        initializers.append(_initializer("w", stored))
    else:
        inputs.append(("w", TYPES[s["w"]][1], list(stored.shape)))
        given["w"] = np.ascontiguousarray(stored)
    if s["w_zero"] == "absent" and s["w"] == "u8":
        raise Invalid
    initializers += [_initializer("ws", scales), _initializer("wz", w_zero)]
    nodes.append(helper.make_node("DequantizeLinear", ["w", "ws"] + ([] if s["w_zero"] == "absent" else ["wz"]), ["wd" if through else "wf"],
                                  name="weights", **({"axis": axis} if s["w_scale"] == "column" else {})))
    nodes += through
    if s["w_shared"]:
        nodes.append(helper.make_node("Neg", ["wf"], ["other_w"], name="other_w"))
        outputs.append(("other_w", TensorProto.FLOAT))
    operands = ["wf", "xf"] if s["exchanged"] else ["xf", "wf"]
    if s["bias"] != "none":
        operands.append("bf")
        _add_bias(s, rng, nodes, initializers, inputs, given, sx, scales)
    attributes = {}
    if op == "Gemm":
        attributes = {"alpha": s["alpha"], "beta": s["beta"], "transB": s["trans_b"]}
    nodes.append(helper.make_node(op, operands, ["p"], name="layer", **attributes))
    last, behind = "p", s["behind"]
    if s["added"] != "nothing":
        initializers.append(_initializer("added", rng.integers(-1000, 1000, N).astype(np.int32)))
        initializers.append(_initializer("added_scale", f32(0.003)))
        bias = helper.make_node("DequantizeLinear", ["added", "added_scale"], ["addend"], name="addend")
        if s["added"] in ("activation", "row of run"):
            inputs.append(("addend", TensorProto.FLOAT, [3, N] if s["added"] == "activation" else [N]))
            given["addend"] = rng.normal(size=inputs[-1][2]).astype(f32)
        elif s["added"] == "float":
            initializers.append(_initializer("addend", rng.normal(size=N).astype(f32)))
        else:
            nodes.append(bias)
        nodes.append(helper.make_node("Add", ["p", "addend"], ["sum"], name="sum"))
        last = "sum"
    if behind.startswith("relu"):
        nodes.append(helper.make_node("Relu", [last], ["r"], name="relu"))
        last = "r"
    if behind.endswith("clip"):
        initializers += [_initializer("low", f32(0)), _initializer("high", f32(1e6 if behind == "clip" else 1))]
        nodes.append(helper.make_node("Clip", [last, "low", "high"], ["r"], name="clip"))
        last = "r"
    if behind in ("float", "relu, float"):
        nodes.append(helper.make_node("Neg", [last], ["y"], name="negative"))
        outputs.append(("y", TensorProto.FLOAT))
        if s["y"] != "as a" or s["y_scale"] != "scalar" or s["y_zero"] != "scalar":
            raise Invalid
    else:
        nodes.append(helper.make_node("QuantizeLinear", [last, "ys"] + ([] if s["y_zero"] == "absent" else ["yz"]), ["y"], name="out"))
        z = [] if s["y_zero"] == "absent" else ["yz"]
        read = {"by the caller": 0, "by two dequantizers": 2}.get(s["y_read"], 1)
        outputs += [(f"d{i}", TensorProto.FLOAT) for i in range(read)] or [("y", TYPES[y][1])]
        for i in range(read):
            nodes.append(helper.make_node("DequantizeLinear", ["y", "ys", *z], [f"df{i}"], name=f"read{i}"))
            nodes.append(helper.make_node("Neg", [f"df{i}"], [f"d{i}"], name=f"negative{i}"))
        if s["y_read"] == "by a shared dequantizer":
            nodes.append(helper.make_node("Abs", ["df0"], ["d"], name="absolute"))
            outputs.append(("d", TensorProto.FLOAT))
        if behind == "two quantizers":
            initializers.append(_initializer("ys2", f32(sy * 2)))
            nodes.append(helper.make_node("QuantizeLinear", [last, "ys2"] + ([] if s["y_zero"] == "absent" else ["yz"]), ["y2"], name="out2"))
            outputs.append(("y2", TYPES[y][1]))
        if behind in ("quantize and float", "relu, two readers"):
            nodes.append(helper.make_node("Neg", [last], ["y2"], name="out2"))
            outputs.append(("y2", TensorProto.FLOAT))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*value) for value in inputs],
                              [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs], initializers)
    opsets = [helper.make_opsetid("", s["opset"]), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10 if s["opset"] == 21 else 8).SerializeToString(), given


def _add_bias(s: dict, rng: np.random.Generator, nodes: list, initializers: list, inputs: list, given: dict, sx: np.float32,
              w_scales: np.ndarray) -> None:
    shape = {"columns": (N,), "rows": (3, N), "one": (1,)}[s["bias_shape"]]
    fit = (sx * (w_scales if s["bias_shape"] == "columns" else w_scales.reshape(-1)[0])).astype(np.float32)
    fit = np.array(fit.reshape(-1)[0]) if fit.size == 1 else fit
    values = rng.integers(-1000, 1000, shape)
    if s["bias"] == "float":
        initializers.append(_initializer("bf", (values * sx * w_scales.reshape(-1)[0]).astype(np.float32)))
        return
    scale = {"twice": fit * 2, "1.005": fit * np.float32(1.005), "1.02": fit * np.float32(1.02), "tiny": fit * 3,
             "other": np.array(np.float32(0.004))}.get(s["bias"], fit)
    if s["bias"] == "channel":
        scale = fit.copy()
        scale[-1] *= 3
    scale = np.asarray(scale, np.float32)
    dtype = np.int8 if s["bias"] == "bytes" else np.int32
    if s["bias"] == "from run":
        inputs.append(("b", TensorProto.INT32, list(shape)))
        given["b"] = values.astype(np.int32)
    else:
        initializers.append(_initializer("b", (values // 10 if dtype is np.int8 else values).astype(dtype)))
    names = ["b", "bs"]
    initializers.append(_initializer("bs", scale))
    if s["bias"] == "zero point":
        names.append("bz")
        initializers.append(_initializer("bz", np.full(scale.shape, 300, dtype)))
    nodes.append(helper.make_node("DequantizeLinear", names, ["bf"], name="bias", **({"axis": 0} if scale.size > 1 else {})))


@dataclass
class Found:
    """A difference: of the audit by rules ("rules") or by ONNX Runtime's graph ("asked"), of the groups that the provider takes
    ("taken"), or of its bytes ("bytes")."""

    structure: dict
    what: str
    detail: str


def _options(optimized: str = "") -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    if optimized:
        options.optimized_model_filepath = optimized
    return options


def _audited(s: dict, path: str, optimized: onnx.ModelProto, integer: bool) -> Found | None:
    """Compares the audit with the graph that ONNX Runtime makes."""
    operators = [node.op_type for node in optimized.graph.node]
    for ask in (False, True):
        audited = intact.audit(path, ask=ask)
        says = any(layer.layer.name == "layer" for layer in audited.layers)
        if says != integer:
            return Found(s, "asked" if ask else "rules",
                         f"ONNX Runtime has {operators}, the audit {'integers' if says else audited.model.passed_over}")
    return None


def _before(graph: onnx.GraphProto, name: str) -> set[str]:
    """The names of the nodes that a tensor depends on."""
    makers = {output: node for node in graph.node for output in node.output}
    found, waiting = {}, [name]
    while waiting:
        node = makers.get(waiting.pop())
        if node is not None and node.name not in found:
            found[node.name] = node
            waiting += node.input
    return set(found)


def _is_the_models(value: np.ndarray, exact: np.ndarray, step: float) -> bool:
    """Whether an output is what the model's operators compute one by one: quantized to one step, which floats may show too."""
    with np.errstate(all="ignore"):
        apart = np.abs(value.astype(np.float64) - exact.astype(np.float64))
    return bool((apart <= (1 if value.dtype.kind in "iu" else 1.01 * step + 1e-5 * np.abs(exact))).all())


def examine(s: dict, seed: int, folder: str, reasons: Counter | None = None) -> Found | None:
    """Compares what ONNX Runtime makes of a structure with the provider and the audit. None: nothing differs. Raises Invalid if
    ONNX Runtime refuses the model. `reasons`: counts the notes of nodes whose bytes are not ONNX Runtime's, because ONNX Runtime's
    are not the model's."""
    model, given = build(s, seed)
    path, optimized = f"{folder}/model.onnx", f"{folder}/optimized.onnx"
    Path(path).write_bytes(model)
    try:
        stock = onnxruntime.InferenceSession(model, _options(optimized), providers=["CPUExecutionProvider"])
    except Exception as error:  # each class of onnxruntime's errors derives from Exception only
        raise Invalid from error
    made = onnx.load(optimized)
    operators = [node.op_type for node in made.graph.node]
    integer = any(op in INTEGER for op in operators)
    if s["op"] in ("Conv", "Gemm", "MatMul", "ConvTranspose") and s["constant_w"] and not s["exchanged"]:
        found = _audited(s, path, made, integer)
        if found:
            return found
    options = _options()
    intact.onnxruntime.add(options)
    session = onnxruntime.InferenceSession(model, options)
    report = {node["name"]: node for node in intact.onnxruntime.report(session)}
    node = report.get("layer")
    if node and node["taken"] and not integer:
        return Found(s, "taken", f"ONNX Runtime has {operators}, the provider {node['kernel']}")
    try:
        expected = stock.run(None, given)
    except Exception as error:
        raise Invalid from error
    computed = session.run(None, given)
    if all(one.tobytes() == other.tobytes() for one, other in zip(computed, expected)):
        return None
    return _differ(s, onnx.load_from_string(model), given, computed, expected, report, reasons, operators)


def _differ(s: dict, proto: onnx.ModelProto, given: dict, computed: list, expected: list, report: dict, reasons: Counter | None,
            operators: list) -> Found | None:
    """Judges outputs that differ. A difference is right if a node before the output has a note that says what ONNX Runtime computes
    wrongly, and the output is what the model's operators compute one by one."""
    options = _options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    exact = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, given)
    step = next(float(numpy_helper.to_array(tensor).reshape(-1)[0]) for tensor in proto.graph.initializer if tensor.name == "ys")
    for output, one, other, right in zip(proto.graph.output, computed, expected, exact):
        if one.tobytes() == other.tobytes():
            continue
        notes = {report[name]["note"] for name in _before(proto.graph, output.name) if "note" in report.get(name, {})}
        if not notes or not _is_the_models(one, right, step):
            return Found(s, "bytes", f"{np.count_nonzero(one != other)} of {one.size} values of {output.name} differ"
                         + (f", and are not the model's; notes {notes}" if notes else "") + f"; ONNX Runtime has {operators}")
        if reasons is not None:
            reasons.update(notes)
    return None


def shrink(found: Found, seed: int, folder: str) -> Found:
    """The same kind of difference with the fewest unusual features."""
    for name, values in FEATURES.items():
        if name == "op" or found.structure[name] == values[0]:
            continue
        try:
            smaller = examine({**found.structure, name: values[0]}, seed, folder)
        except Invalid:
            continue
        if smaller and smaller.what == found.what:
            found = smaller
    return found


@dataclass
class Search:
    """What a search found. `findings`: what differs, shrunk, each kind once. `reasons`: how many structures have bytes that are the
    model's and not ONNX Runtime's, by the kind of reason that the report names."""

    count: int = 0
    begin: int = 0  # the number of the next structure
    findings: dict[tuple, Found] = field(default_factory=dict)
    reasons: Counter = field(default_factory=Counter)
    operators: Counter = field(default_factory=Counter)


def search(count: int, begin: int, unusual: float = 0.3, progress: Callable[[Search], None] | None = None) -> Search:
    """Examines the random structures from number `begin` on, until ONNX Runtime has accepted `count`. `progress` is called after
    each 1,000 structures that it accepted, and for each new kind of difference."""
    found = Search(begin=begin)
    folder_of = "/dev/shm" if os.path.isdir("/dev/shm") else None  # files in memory take half the time
    with tempfile.TemporaryDirectory(dir=folder_of) as folder:
        while found.count < count:
            number = found.begin
            found.begin += 1
            s = random_structure(np.random.default_rng(number), unusual)
            notes: Counter = Counter()
            try:
                difference = examine(s, number, folder, notes)
            except Invalid:
                continue
            found.count += 1
            found.operators[s["op"]] += 1
            found.reasons.update({_kind(note) for note in notes})
            if difference:
                difference = shrink(difference, number, folder)
                key = (difference.what, *sorted((k, v) for k, v in difference.structure.items() if v != FEATURES[k][0]))
                is_new = key not in found.findings
                found.findings.setdefault(key, difference)
                if is_new and progress:
                    print(number, difference.what, dict(key[1:]), difference.detail, flush=True)
            if progress and found.count % 1000 == 0:
                progress(found)
    return found


def _kind(note: str) -> str:
    """A note without its numbers."""
    return re.sub(r"-?[0-9.]+(e-?[0-9]+)?", "#", note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--begin", type=int, default=0)
    arguments = parser.parse_args()

    def progress(found: Search) -> None:
        print(f"onnxruntime {onnxruntime.__version__}: {found.count} structures from {arguments.begin} on, {len(found.findings)} kinds "
              f"of differences; the next is number {found.begin}", flush=True)

    found = search(arguments.count, arguments.begin, progress=progress)
    progress(found)
    print(dict(found.operators))
    for reason, count in found.reasons.most_common():
        print(f"{count} structures have the model's bytes, not ONNX Runtime's: {reason}")


if __name__ == "__main__":
    main()
