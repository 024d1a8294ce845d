#!/usr/bin/env python3
"""Times models with the execution provider beside ONNX Runtime's CPU provider: bench.py [--threads N] [--rounds N] [--isa ISA]

The models are random networks, quantized by onnxruntime.quantization. Both sessions take turns; each time is the median."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

import intact.onnxruntime


def network(layers: list, shape: list, seed: int = 0) -> onnx.ModelProto:
    """Layers: ("conv", outputs, kernel, stride, groups) with a Relu, ("add", back) a residual from that many layers ago,
    ("pool",), ("gemm", outputs), ("matmul", outputs, relu)."""
    rng = np.random.default_rng(seed)
    nodes, weights, names, sizes = [], [], ["x"], [shape[1] if len(shape) == 4 else shape[-1]]

    def constant(name: str, values: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    for i, (kind, *arguments) in enumerate(layers):
        x, size, y = names[-1], sizes[-1], f"y{i}"
        if kind == "conv":
            outputs, kernel, stride, groups = arguments
            w = rng.normal(size=(outputs, size // groups, kernel, kernel)) * np.sqrt(2 / (size // groups * kernel * kernel))
            nodes.append(helper.make_node("Conv", [x, constant(f"w{i}", w), constant(f"b{i}", rng.normal(size=outputs) * 0.1)],
                                          [f"{y}_c"], kernel_shape=[kernel] * 2, strides=[stride] * 2, group=groups,
                                          pads=[kernel // 2] * 4, name=f"conv{i}"))
            nodes.append(helper.make_node("Relu", [f"{y}_c"], [y]))
            size = outputs
        elif kind == "add":
            nodes.append(helper.make_node("Add", [x, names[-1 - arguments[0]]], [y], name=f"add{i}"))
        elif kind == "pool":
            nodes += [helper.make_node("GlobalAveragePool", [x], [f"{y}_p"]), helper.make_node("Flatten", [f"{y}_p"], [y])]
        elif kind == "gemm":
            w = rng.normal(size=(arguments[0], size)) / np.sqrt(size)
            nodes.append(helper.make_node("Gemm", [x, constant(f"w{i}", w), constant(f"b{i}", np.zeros(arguments[0]))], [y],
                                          transB=1, name=f"gemm{i}"))
            size = arguments[0]
        else:
            w = rng.normal(size=(size, arguments[0])) / np.sqrt(size)
            nodes.append(helper.make_node("MatMul", [x, constant(f"w{i}", w)], [f"{y}_m"], name=f"matmul{i}"))
            nodes.append(helper.make_node("Add", [f"{y}_m", constant(f"b{i}", rng.normal(size=arguments[0]) * 0.1)], [f"{y}_a"]))
            nodes.append(helper.make_node("Relu", [f"{y}_a"], [y]))
            size = arguments[0]
        names.append(y)
        sizes.append(size)
    graph = helper.make_graph(nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape[1:]])],
                              [helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, None)], weights)
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


def cnn() -> onnx.ModelProto:
    layers = [("conv", 64, 3, 2, 1)]
    for outputs, stride in ((64, 1), (128, 2), (256, 2)):
        layers += [("conv", outputs, 3, stride, 1), ("conv", outputs, 3, 1, 1), ("conv", outputs, 3, 1, 1), ("add", 2),
                   ("conv", outputs, 3, 1, outputs), ("conv", outputs, 1, 1, 1)]
    return network([*layers, ("pool",), ("gemm", 100)], [1, 3, 112, 112])


def mlp() -> onnx.ModelProto:
    return network([("matmul", 3072), ("matmul", 768)] * 3, [128, 768])


class Samples(quantization.CalibrationDataReader):
    def __init__(self, shape: list):
        rng = np.random.default_rng(1)
        self.samples = iter([{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(2)])

    def get_next(self) -> dict | None:
        return next(self.samples, None)


def quantized(model: onnx.ModelProto, how: str, shape: list, folder: Path) -> bytes:
    source, target = folder / "float.onnx", folder / "quantized.onnx"
    onnx.save(model, source)
    if how == "dynamic":
        quantization.quantize_dynamic(source, target)
    else:
        quantization.quantize_static(source, target, Samples(shape), per_channel=True,
                                     quant_format=getattr(quantization.QuantFormat, how),
                                     activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8)
    return target.read_bytes()


def session(model: bytes, threads: int, isa: str | None, with_intact: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if with_intact:
        intact.onnxruntime.add(options, max_isa=isa)
    return onnxruntime.InferenceSession(model, options, providers=None if with_intact else ["CPUExecutionProvider"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--isa", help="caps intact's instruction set; ONNX Runtime takes what the CPU has")
    arguments = parser.parse_args()
    print(f"{'model':24} {'intact ms':>10} {'ONNX Runtime ms':>16} {'ratio':>6} {'taken':>6}  same bytes")
    for name, model, shape in (("CNN", cnn(), [1, 3, 112, 112]), ("MLP", mlp(), [128, 768]), ("MLP, 1 row", mlp(), [1, 768])):
        for how in ("QOperator", "QDQ", "dynamic"):
            with tempfile.TemporaryDirectory() as folder:
                stored = quantized(model, how, shape, Path(folder))
            sessions = [session(stored, arguments.threads, arguments.isa, ours) for ours in (True, False)]
            given = {"x": np.random.default_rng(2).normal(size=shape).astype(np.float32)}
            times: list[list] = [[], []]
            outputs = [each.run(None, given)[0] for each in sessions]
            for _ in range(arguments.rounds):
                for each, taken in zip(sessions, times):
                    start = time.perf_counter()
                    each.run(None, given)
                    taken.append(1000 * (time.perf_counter() - start))
            ours, theirs = (statistics.median(each) for each in times)
            took = sum(node["taken"] for node in intact.onnxruntime.report(sessions[0]))
            print(f"{name + ', ' + how:24} {ours:10.2f} {theirs:16.2f} {theirs / ours:6.2f} {took:6}  "
                  f"{'yes' if outputs[0].tobytes() == outputs[1].tobytes() else 'no'}")


if __name__ == "__main__":
    main()
