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
            w = rng.normal(size=(outputs, size // groups, kernel, kernel)) * np.sqrt(
                2 / (size // groups * kernel * kernel)
            )
            nodes.append(
                helper.make_node(
                    "Conv",
                    [x, constant(f"w{i}", w), constant(f"b{i}", rng.normal(size=outputs) * 0.1)],
                    [f"{y}_c"],
                    kernel_shape=[kernel] * 2,
                    strides=[stride] * 2,
                    group=groups,
                    pads=[kernel // 2] * 4,
                    name=f"conv{i}",
                )
            )
            nodes.append(helper.make_node("Relu", [f"{y}_c"], [y]))
            size = outputs
        elif kind == "add":
            nodes.append(helper.make_node("Add", [x, names[-1 - arguments[0]]], [y], name=f"add{i}"))
        elif kind == "max":
            nodes.append(
                helper.make_node("MaxPool", [x], [y], kernel_shape=[2, 2], strides=[2, 2], name=f"max{i}")
            )
        elif kind == "pool":
            nodes += [
                helper.make_node("GlobalAveragePool", [x], [f"{y}_p"]),
                helper.make_node("Flatten", [f"{y}_p"], [y]),
            ]
        elif kind == "gemm":
            w = rng.normal(size=(arguments[0], size)) / np.sqrt(size)
            nodes.append(
                helper.make_node(
                    "Gemm",
                    [x, constant(f"w{i}", w), constant(f"b{i}", np.zeros(arguments[0]))],
                    [y],
                    transB=1,
                    name=f"gemm{i}",
                )
            )
            size = arguments[0]
        else:
            w = rng.normal(size=(size, arguments[0])) / np.sqrt(size)
            nodes.append(helper.make_node("MatMul", [x, constant(f"w{i}", w)], [f"{y}_m"], name=f"matmul{i}"))
            nodes.append(
                helper.make_node(
                    "Add", [f"{y}_m", constant(f"b{i}", rng.normal(size=arguments[0]) * 0.1)], [f"{y}_a"]
                )
            )
            nodes.append(helper.make_node("Relu", [f"{y}_a"], [y]))
            size = arguments[0]
        names.append(y)
        sizes.append(size)
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape[1:]])],
        [helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, None)],
        weights,
    )
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    )


RANDOM_SHAPE = [2, 3, 16, 16]


def random_network(seed: int) -> onnx.ModelProto:
    """Operators in random order, each on one of the last three values; up to three outputs."""
    rng = np.random.default_rng(seed)
    nodes, weights, values = [], [], [("x", 3, 16)]  # name, channels, height and width

    def constant(name: str, value: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def normal(name: str, shape: tuple, scale: float) -> str:
        return constant(name, (rng.normal(size=shape) * scale).astype(np.float32))

    for i in range(rng.integers(3, 12)):
        x, channels, size = values[rng.integers(max(0, len(values) - 3), len(values))]
        y = f"y{i}"

        def add(
            op: str, inputs: list, of_channels: int = channels, of_size: int = size, **attributes: object
        ) -> None:
            nodes.append(helper.make_node(op, inputs, [y], name=f"{op}{i}", **attributes))
            values.append((y, of_channels, of_size))

        kind = rng.choice(
            ["conv"] * 3
            + [
                "depthwise",
                "add",
                "concat",
                "max",
                "average",
                "resize",
                "sigmoid",
                "relu",
                "clip",
                "transpose",
                "attention",
                "slice",
                "bias",
            ]
        )
        partners = [value for value in values[1:] if value[0] != x != "x" and value[2] == size]
        if kind in ("conv", "depthwise"):
            outputs, groups = (channels, channels) if kind == "depthwise" else (int(rng.integers(1, 20)), 1)
            kernel, stride = int(rng.choice([1, 3])), int(rng.choice([1, 1, 2])) if size >= 8 else 1
            depth = channels // groups * kernel * kernel
            w = normal(f"w{i}", (outputs, channels // groups, kernel, kernel), np.sqrt(2 / depth))
            add(
                "Conv",
                [x, w, normal(f"b{i}", (outputs,), 0.1)],
                outputs,
                (size - 1) // stride + 1,
                kernel_shape=[kernel] * 2,
                pads=[kernel // 2] * 4,
                strides=[stride] * 2,
                group=groups,
            )
        elif kind == "add" and (same := [value for value in partners if value[1] == channels]):
            add("Add", [x, same[rng.integers(len(same))][0]])
        elif kind == "concat" and partners:
            other = partners[rng.integers(len(partners))]
            add("Concat", [x, other[0]], channels + other[1], axis=1)
        elif kind in ("max", "average") and size >= 4:
            add(
                "MaxPool" if kind == "max" else "AveragePool",
                [x],
                channels,
                size // 2,
                kernel_shape=[2, 2],
                strides=[2, 2],
            )
        elif kind == "resize" and size <= 16:
            add(
                "Resize",
                [x, "", constant(f"s{i}", np.array([1, 1, 2, 2], np.float32))],
                channels,
                2 * size,
                mode="nearest",
            )
        elif kind in ("sigmoid", "relu"):
            add(kind.capitalize(), [x])
        elif kind == "clip":
            add("Clip", [x, constant(f"low{i}", np.float32(0)), constant(f"high{i}", np.float32(6))])
        elif kind == "transpose":
            add("Transpose", [x], perm=[0, 1, 3, 2])
        elif kind == "attention":
            nodes.append(helper.make_node("GlobalAveragePool", [x], [f"{y}_p"], name=f"pool{i}"))
            nodes.append(helper.make_node("Sigmoid", [f"{y}_p"], [f"{y}_s"], name=f"sigmoid{i}"))
            add("Mul", [x, f"{y}_s"])
        elif kind == "slice" and channels > 2:
            bounds = {"from": 1, "to": channels, "axis": 1}
            add(
                "Slice",
                [x, *(constant(f"{name}{i}", np.array([value], np.int64)) for name, value in bounds.items())],
                channels - 1,
            )
        elif kind == "bias" and x != "x":
            add("Add", [x, normal(f"b{i}", (channels, 1, 1), 1)])
    read = {name for node in nodes for name in node.input}
    ends = [value[0] for value in values[1:] if value[0] not in read][:3]
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *RANDOM_SHAPE[1:]])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ends],
        weights,
    )
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    )


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
        quantization.quantize_static(
            source,
            target,
            Samples(shape),
            per_channel=True,
            quant_format=getattr(quantization.QuantFormat, how),
            weight_type=quantization.QuantType.QInt8,
            activation_type=quantization.QuantType.QInt8 if signed else quantization.QuantType.QUInt8,
        )
    return target.read_bytes()
