"""Random networks, quantized by onnxruntime.quantization."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization


def network(layers: list, shape: list, seed: int = 0) -> onnx.ModelProto:
    """Layers: ("conv", outputs, kernel, stride, groups) with a Relu, ("add", back) a residual from that many layers ago,
    ("max",) of 2×2 pixels, ("pool",), ("gemm", outputs), ("matmul", outputs, relu)."""
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
        elif kind == "max":
            nodes.append(helper.make_node("MaxPool", [x], [y], kernel_shape=[2, 2], strides=[2, 2], name=f"max{i}"))
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


class Samples(quantization.CalibrationDataReader):
    def __init__(self, shape: list):
        rng = np.random.default_rng(1)
        self.samples = iter([{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(2)])

    def get_next(self) -> dict | None:
        return next(self.samples, None)


def quantized(model: onnx.ModelProto, how: str, shape: list, signed: bool = False) -> bytes:
    """`how`: QOperator, QDQ or dynamic. `signed`: activations are int8."""
    with tempfile.TemporaryDirectory() as folder:
        return _quantized(model, how, shape, signed, Path(folder))


def _quantized(model: onnx.ModelProto, how: str, shape: list, signed: bool, folder: Path) -> bytes:
    source, target = folder / "float.onnx", folder / "quantized.onnx"
    onnx.save(model, source)
    if how == "dynamic":
        quantization.quantize_dynamic(source, target)
    else:
        quantization.quantize_static(source, target, Samples(shape), per_channel=True,
                                     quant_format=getattr(quantization.QuantFormat, how),
                                     weight_type=quantization.QuantType.QInt8,
                                     activation_type=quantization.QuantType.QInt8 if signed else quantization.QuantType.QUInt8)
    return target.read_bytes()
