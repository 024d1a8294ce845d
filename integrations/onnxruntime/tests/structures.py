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
from typing import Any, Callable

import intact
import intact.onnxruntime
import numpy as np
import onnx
import onnxruntime
from intact._graph.fusion import FAILS
from onnx import TensorProto, helper, numpy_helper

TYPES = {
    "u8": (np.uint8, TensorProto.UINT8),
    "s8": (np.int8, TensorProto.INT8),
    "u16": (np.uint16, TensorProto.UINT16),
    "s16": (np.int16, TensorProto.INT16),
    "s32": (np.int32, TensorProto.INT32),
    "u4": (np.uint8, TensorProto.UINT4),
    "s4": (np.int8, TensorProto.INT4),
}
RANGES = {"u4": (0, 15), "s4": (-8, 7)}  # other types have the range of their NumPy type
PRODUCTS = ("Conv", "Gemm", "MatMul", "ConvTranspose")
ELEMENTWISE = ("Add", "Mul", "Sub", "Div")
UNARY = ("MaxPool", "AveragePool", "Softmax", "Sigmoid", "LeakyRelu")
# The values of each feature. The first is the usual one; a structure is shrunk towards it.
FEATURES = {
    "op": (
        "Conv",
        "Conv",
        "Conv",
        "Gemm",
        "Gemm",
        "Gemm",
        "MatMul",
        "MatMul",
        "MatMul",
        "ConvTranspose",
        *ELEMENTWISE,
        "Add",
        "Mul",
        *UNARY,
    ),
    "opset": (21, 13, 19, 11, 23, 25),
    "domain": ("", "", "", "com.microsoft"),  # of QuantizeLinear and DequantizeLinear
    "a": ("u8", "u8", "s8", "u16", "s16"),
    "w": ("s8", "s8", "u8", "s4", "u4", "s16"),
    "y": ("as a", "as a", "as a", "u8", "s8", "u16"),
    "depth": (6, 6, 1, 33),
    "columns": (4, 4, 1),
    "a_from": (
        "bytes",
        "bytes",
        "float",
        "float, shared",
        "bytes, shared",
        "bytes, two dequantizers",
        "float, not quantized",
    ),
    "a_scale": ("scalar", "scalar", "one", "channels", "from run"),
    "a_zero": ("scalar", "scalar", "one", "absent", "unlike the quantizer's", "from run"),
    "a_through": (
        "nothing",
        "nothing",
        "nothing",
        "reshape",
        "transpose",
        "identity",
    ),  # between DequantizeLinear and the operator
    "w_scale": ("scalar", "column", "one", "rows", "blocks", "from run"),
    "w_zero": ("given", "given", "absent", "other", "each other"),
    "w_shape": ("full", "full", "row", "one"),  # of the second operand of an Add, a Mul, …
    "y_scale": ("scalar", "scalar", "one", "from run"),
    "y_zero": ("scalar", "scalar", "one", "absent", "from run"),
    "y_through": (
        "nothing",
        "nothing",
        "nothing",
        "reshape",
        "transpose",
        "identity",
    ),  # between the operator and QuantizeLinear
    "bias": (
        "none",
        "fit",
        "fit",
        "twice",
        "1.005",
        "1.02",
        "tiny",
        "other",
        "channel",
        "zero point",
        "float",
        "bytes",
        "from run",
        "shared",
        "float from run",
    ),
    "bias_shape": ("columns", "columns", "columns", "rows", "one", "1×columns", "scalar"),
    "alpha": (1.0, 1.0, 1.0, 2.0),
    "beta": (1.0, 1.0, 1.0, 0.5),
    "trans_a": (0, 0, 0, 1),
    "trans_b": (0, 0, 1),
    "geometry": (
        "1×1",
        "1×1",
        "3×3",
        "3×3 padded",
        "strided",
        "groups",
        "depthwise",
        "1-d",
        "3-d",
    ),  # of a Conv
    "batch": ("2-d", "2-d", "3-d A", "3-d", "1-d A"),  # of a MatMul
    "behind": (
        "quantize",
        "quantize",
        "float",
        "relu",
        "relu of another zero point",
        "clip",
        "narrow clip",
        "relu, float",
        "quantize and float",
        "two quantizers",
        "relu, two readers",
        "an output too",
    ),
    "y_read": (
        "by the caller",
        "by the caller",
        "by a dequantizer",
        "by two dequantizers",
        "by a shared dequantizer",
    ),
    "next": ("nothing", "nothing", "nothing", "a layer", "a sum"),  # behind a dequantizer of y
    # behind a MatMul, a bias or activations
    "added": ("nothing", "nothing", "float", "dequantized", "row of run", "columns of run", "sum of run"),
    "exchanged": (False, False, False, True),
    "w_through": ("nothing", "nothing", "nothing", "reshape", "transpose", "identity"),
    "w_shared": (False, False, False, True),
    "constant_w": (True, True, True, False),
    "constants": (
        "initializers",
        "initializers",
        "nodes",
        "identities",
        "overridable",
    ),  # how scales and zero points are held
    "shuffled": (False, True),  # the order of the nodes in the file
}
FREE = ("op", "opset", "a", "bias", "behind", "shuffled")  # take each value with the same probability
INTEGER = {
    "QLinearConv",
    "QGemm",
    "QLinearMatMul",
    "QLinearAdd",
    "QLinearMul",
    "MatMulIntegerToFloat",
    "ConvInteger",
    "MatMulInteger",
}
# Features, and the operators that have them. Other operators have the usual value.
_ONLY = {
    "bias": ("Conv", "Gemm", "ConvTranspose"),
    "alpha": ("Gemm",),
    "beta": ("Gemm",),
    "trans_a": ("Gemm",),
    "trans_b": ("Gemm",),
    "geometry": ("Conv",),
    "batch": ("MatMul",),
    "added": ("MatMul",),
    "exchanged": ("MatMul", *ELEMENTWISE),
    "w_shape": ELEMENTWISE,
    "bias_shape": ("Gemm",),
    "columns": PRODUCTS,
    **{
        name: (*PRODUCTS, *ELEMENTWISE)
        for name in ("w", "w_scale", "w_zero", "w_through", "w_shared", "constant_w")
    },
}


def random_structure(rng: np.random.Generator, unusual: float = 0.15) -> dict:
    """A structure: features in FREE by chance, each other feature the usual one except with the probability `unusual`."""
    structure = {}
    for name, values in FEATURES.items():
        is_free = name in FREE or rng.random() < unusual
        structure[name] = values[rng.integers(len(values))] if is_free else values[0]
    return normal(structure)


def normal(s: dict) -> dict:
    """A structure without features that its operator does not have."""
    s = {
        name: FEATURES[name][0] if s["op"] not in _ONLY.get(name, (s["op"],)) else value
        for name, value in s.items()
    }
    if s["bias"] == "none":
        s["beta"], s["bias_shape"] = 1.0, "columns"
    if s["behind"] in ("float", "relu, float"):
        for name in ("y", "y_scale", "y_zero", "y_through", "y_read", "next"):
            s[name] = FEATURES[name][0]
    if s["next"] != "nothing" and s["y_read"] == "by the caller":
        s["y_read"] = "by a dequantizer"
    if s["a_from"] == "float, not quantized":
        s["a"], s["a_scale"], s["a_zero"] = "u8", "scalar", "scalar"
    return s


class Invalid(Exception):
    """A structure that no model has."""


def _limits(kind: str) -> tuple[int, int]:
    info = np.iinfo(TYPES[kind][0])
    return RANGES.get(kind, (info.min, info.max))


def _require(holds: bool) -> None:
    if not holds:
        raise Invalid


class Builder:
    """Makes the model of a structure, and its inputs."""

    def __init__(self, s: dict, seed: int):
        self.s, self.op, self.rng = s, s["op"], np.random.default_rng(seed)
        self.nodes: list = []
        self.initializers: list = []
        self.inputs: list = []
        self.outputs: list = []
        self.given: dict = {}
        self.depth, self.columns = s["depth"], s["columns"]
        self.y = s["a"] if s["y"] == "as a" else s["y"]
        self._check()
        self._shapes()
        rng, f32 = self.rng, np.float32
        self.sx, self.sw, self.sy = (
            f32(rng.uniform(0.03, 0.08)),
            f32(rng.uniform(0.01, 0.04)),
            f32(rng.uniform(0.08, 0.2)),
        )
        if s["bias"] == "tiny":
            self.sx, self.sw, self.sy = f32(3e-4), f32(2e-4), f32(1e-5)
        if self.op == "MaxPool":
            self.sy = self.sx
        elif self.op in ("Softmax", "Sigmoid"):
            self.sy = f32(1 / 256)

    def _check(self) -> None:
        s, op = self.s, self.op
        kinds = {s["a"], s["w"], self.y}
        _require(s["opset"] >= 21 or s["domain"] != "" or not kinds & {"u16", "s16", "s4", "u4"})
        _require(
            s["opset"] >= 13
            or not {"column", "rows"} & {s["w_scale"]}
            and s["a_scale"] != "channels"
            and s["bias"] != "channel"
        )
        _require(
            s["w_scale"] != "blocks"
            or s["opset"] >= 21
            and s["domain"] == ""
            and op in ("Conv", "Gemm", "MatMul")
        )
        _require(op in PRODUCTS or s["w_scale"] not in ("column", "rows") and s["a_scale"] != "channels")
        _require(s["w_through"] != "reshape" or s["w_scale"] not in ("column", "rows", "blocks"))
        _require(
            not s["exchanged"]
            or op != "MatMul"
            or s["w_scale"] in ("scalar", "one", "from run")
            and s["batch"] == "2-d"
            and s["added"] == "nothing"
        )
        _require(s["bias"] != "channel" or s["w_scale"] == "column" and s["bias_shape"] == "columns")
        _require(
            s["y_zero"] != "absent"
            or self.y == "u8"
            and not s["behind"].startswith("relu")
            and not s["behind"].endswith("clip")
        )
        _require(s["a_zero"] != "absent" or s["a"] == "u8")
        _require(s["a_zero"] != "unlike the quantizer's" or s["a_from"].startswith("float"))
        _require(s["w_zero"] != "absent" or s["w"] in ("s8", "s4", "s16"))
        _require(s["w_zero"] != "each other" or s["w_scale"] == "column")
        _require(
            s["batch"] != "1-d A"
            or s["a_through"] == s["y_through"] == s["added"] == "nothing"
            and s["a_scale"] != "channels"
        )
        _require(op not in UNARY or s["a_from"] != "float, not quantized")
        _require(s["constant_w"] or s["w"] not in ("s4", "u4"))
        _require(s["next"] != "a sum" or op != "Softmax")
        # ONNX Runtime dequantizes y to make this output, although it is float in the model.
        _require(s["behind"] != "an output too" or s["y_through"] != "transpose")

    def _shapes(self) -> None:
        """The shapes of A and B, and the dimension of B that is of the outputs."""
        s, op, depth, columns = self.s, self.op, self.depth, self.columns
        self.axis, self.depth_axis = 1, 0
        if op in ("MaxPool", "AveragePool"):
            self.x_shape, self.w_shape = [1, depth, 4, 4], ()
        elif op in (*UNARY, *ELEMENTWISE):
            self.x_shape = [3, depth]
            self.w_shape = {"full": (3, depth), "row": (depth,), "one": (1,)}[s["w_shape"]]
        elif op in ("Conv", "ConvTranspose"):
            self.axis, self.depth_axis = (0, 1) if op == "Conv" else (1, 0)
            kernel = {"1-d": (3,), "3-d": (2, 2, 2), "1×1": (1, 1)}.get(s["geometry"], (3, 3))
            self.groups = {"groups": 2, "depthwise": depth}.get(s["geometry"], 1)
            if s["geometry"] == "depthwise":
                self.columns = columns = depth
            _require(depth % self.groups == 0 and columns % self.groups == 0)
            self.x_shape = [1, depth, *[extent + 3 for extent in kernel]]
            self.w_shape = ((columns, depth // self.groups) if op == "Conv" else (depth, columns)) + kernel
        else:
            rows = [3] if s["batch"] in ("2-d", "1-d A") else [2, 3]
            self.x_shape = [*rows, depth] if s["batch"] != "1-d A" else [depth]
            if s["trans_a"]:
                self.x_shape = self.x_shape[::-1]
            if s["trans_b"]:
                self.axis, self.depth_axis = 0, 1
            self.w_shape = (columns, depth) if s["trans_b"] else (depth, columns)
            if s["batch"] == "3-d":
                self.w_shape, self.axis, self.depth_axis = (2, *self.w_shape), 2, 1
            if s["exchanged"]:
                self.w_shape = (columns, 3)

    # ----- pieces of models -------------------------------------------------------------------------------------------

    def node(self, op: str, inputs: list, output: str, name: str, domain: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, domain=domain, **attributes))
        return output

    def initializer(self, name: str, value: Any, onnx_type: int = 0) -> str:
        array = np.asarray(value)
        if onnx_type:
            self.initializers.append(helper.make_tensor(name, onnx_type, array.shape, array.reshape(-1)))
        else:
            self.initializers.append(
                numpy_helper.from_array(array if array.ndim == 0 else np.ascontiguousarray(array), name)
            )
        return name

    def from_run(self, name: str, value: Any) -> str:
        value = np.asarray(value)
        self.inputs.append((name, helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)))
        self.given[name] = value
        return name

    def held(self, name: str, value: Any, how: str = "", onnx_type: int = 0) -> str:
        """A scale or a zero point. `how`: "one", "from run", or as an array has it."""
        value = np.asarray(value)
        value = value.reshape(1) if how == "one" and value.size == 1 else value
        if how == "from run":
            return self.from_run(name, value)
        if self.s["constants"] == "nodes" and not onnx_type:
            return self.node(
                "Constant", [], name, f"constant {name}", value=numpy_helper.from_array(value, name)
            )
        if self.s["constants"] == "identities" and not onnx_type:
            return self.node("Identity", [self.initializer(f"{name} held", value)], name, f"identity {name}")
        if self.s["constants"] == "overridable" and not onnx_type:
            self.inputs.append((name, helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)))
        return self.initializer(name, value, onnx_type)

    def quantization(self, op: str, inputs: list, output: str, name: str, **attributes: Any) -> str:
        return self.node(op, inputs, output, name, self.s["domain"], **attributes)

    def through(self, how: str, name: str, shape: list, output: str) -> str:
        """`name`, whose shape becomes `shape`, behind an operator that only moves its elements."""
        if how == "nothing":
            return name
        if how == "reshape":
            return self.node(
                "Reshape",
                [name, self.initializer(f"{output} shape", np.array(shape, np.int64))],
                output,
                f"{output} through",
            )
        order = {"perm": list(range(len(shape)))[::-1]} if how == "transpose" else {}
        return self.node(
            "Transpose" if how == "transpose" else "Identity", [name], output, f"{output} through", **order
        )

    # ----- the operands ----------------------------------------------------------------------------------------------------

    def activations(self) -> str:
        s, rng, x_shape = self.s, self.rng, self.x_shape
        shape = (
            x_shape[::-1]
            if s["a_through"] == "transpose"
            else [int(np.prod(x_shape))]
            if s["a_through"] == "reshape"
            else x_shape
        )
        dtype, onnx_type = TYPES[s["a"]]
        low, high = _limits(s["a"])
        if s["a_from"] == "float, not quantized":
            return self.through(
                s["a_through"],
                self.from_run("xf", (rng.normal(size=shape) * 5).astype(np.float32)),
                x_shape,
                "xt",
            )
        point = dtype(0 if s["a_zero"] == "absent" else low + 100)
        _require(s["a_scale"] != "channels" or s["a_through"] == "nothing" and self.op != "Softmax")
        channel = 1 if self.op in ("Conv", "ConvTranspose") else 0 if s["trans_a"] else len(shape) - 1
        scale = (
            self.sx
            if s["a_scale"] != "channels"
            else (self.sx * (1 + np.arange(shape[channel]) / 9)).astype(np.float32)
        )
        scales, points = self.held("xs", scale, s["a_scale"]), ""
        if s["a_zero"] != "absent":
            points = self.held(
                "xz", np.full(np.shape(scale), point) if s["a_scale"] == "channels" else point, s["a_zero"]
            )
        given, axis = (
            [scales, *([points] if points else [])],
            {"axis": channel} if s["a_scale"] == "channels" else {},
        )
        if s["a_from"].startswith("float"):
            self.from_run("x", (rng.normal(size=shape) * 100 * self.sx).astype(np.float32))
            quantized = list(given)
            if s["a_zero"] == "unlike the quantizer's":
                quantized[1] = self.held("xz of the quantizer", dtype(point + 9))
            self.quantization("QuantizeLinear", ["x", *quantized], "xq", "quantizer", **axis)
        else:
            self.from_run("xq", rng.integers(low, high + 1, shape).astype(dtype))
        self.quantization("DequantizeLinear", ["xq", *given], "xf", "dequantizer", **axis)
        if s["a_from"].endswith("shared"):
            self.outputs.append((self.node("Neg", ["xf"], "other", "other"), TensorProto.FLOAT))
        if s["a_from"].endswith("two dequantizers"):
            self.quantization("DequantizeLinear", ["xq", *given], "xf2", "dequantizer2", **axis)
            self.outputs.append((self.node("Neg", ["xf2"], "other", "other"), TensorProto.FLOAT))
        return self.through(s["a_through"], "xf", x_shape, "xt")

    def weights(self) -> str:
        s, rng, kind = self.s, self.rng, self.s["w"]
        dtype, onnx_type = TYPES[kind]
        low, high = _limits(kind)
        shape, axis = tuple(self.w_shape), self.axis
        w = rng.integers(low, high + 1, shape).astype(dtype)
        middle = dtype(0 if low < 0 else (high + 1) // 2)
        scales, attributes = np.array(self.sw), {}
        if s["w_scale"] in ("column", "rows"):
            attributes["axis"] = axis if s["w_scale"] == "column" else self.depth_axis
            scales = (self.sw * (1 + np.arange(shape[attributes["axis"]]) / 7)).astype(np.float32)
        elif s["w_scale"] == "blocks":
            block = 16 if shape[self.depth_axis] > 16 else 2
            attributes.update(axis=self.depth_axis, block_size=block)
            extents = [
                -(-extent // block) if i == self.depth_axis else extent for i, extent in enumerate(shape)
            ]
            scales = (self.sw * rng.uniform(0.5, 2, extents)).astype(np.float32)
        elif s["w_scale"] == "one":
            scales = scales.reshape(1)
        points = np.full(scales.shape, middle, dtype)
        if s["w_zero"] == "other":
            points = (points + dtype(3)).astype(dtype)
        elif s["w_zero"] == "each other":
            points = rng.integers(max(low, -9), min(high, 9) + 1, scales.shape).astype(dtype)
        if s["w_through"] == "reshape":
            w = w.reshape(-1, 1)
        elif s["w_through"] == "transpose":
            _require(s["w_scale"] != "blocks")
            w = w.transpose()
            if "axis" in attributes:
                attributes["axis"] = len(shape) - 1 - attributes["axis"]
        own_type = onnx_type if kind in RANGES else 0
        name = (
            self.initializer("w", w, own_type)
            if s["constant_w"]
            else self.from_run("w", np.ascontiguousarray(w))
        )
        given = [self.held("ws", scales, "from run" if s["w_scale"] == "from run" else "")]
        if s["w_zero"] != "absent":
            given.append(self.held("wz", points, onnx_type=own_type))
        self.quantization("DequantizeLinear", [name, *given], "wd", "weights", **attributes)
        self.w_scales = scales if s["w_scale"] == "column" else np.array(self.sw)
        result = self.through(s["w_through"], "wd", list(shape), "wf")
        if s["w_shared"]:
            self.outputs.append((self.node("Neg", [result], "other_w", "other_w"), TensorProto.FLOAT))
        return result

    def bias(self) -> str:
        s, rng, f32 = self.s, self.rng, np.float32
        columns, rows = self.columns, 3
        shape = {
            "columns": (columns,),
            "rows": (rows, columns),
            "one": (1,),
            "1×columns": (1, columns),
            "scalar": (),
        }[s["bias_shape"]]
        fit = (self.sx * self.w_scales).astype(f32)
        fit = (
            fit
            if fit.size == columns and fit.ndim and s["bias_shape"] == "columns"
            else np.array(fit.reshape(-1)[0])
        )
        values = rng.integers(-1000, 1000, shape)
        if s["bias"].startswith("float"):
            floats = (values * fit.reshape(-1)[0]).astype(f32)
            return (
                self.from_run("bf", floats)
                if s["bias"] == "float from run"
                else self.initializer("bf", floats)
            )
        scale = {
            "twice": fit * 2,
            "1.005": fit * f32(1.005),
            "1.02": fit * f32(1.02),
            "tiny": fit * 3,
            "other": f32(0.004),
        }.get(s["bias"], fit)
        if s["bias"] == "channel":
            scale = np.append(scale[:-1], scale[-1] * 3)
        scale = np.asarray(scale, f32)
        dtype = np.int8 if s["bias"] == "bytes" else np.int32
        stored = np.asarray(values // 10 if dtype is np.int8 else values).astype(dtype)
        names = [
            self.from_run("b", stored) if s["bias"] == "from run" else self.initializer("b", stored),
            self.held("bs", scale),
        ]
        if s["bias"] == "zero point":
            names.append(self.held("bz", np.full(scale.shape, 300, dtype)))
        self.quantization("DequantizeLinear", names, "bf", "bias", **({"axis": 0} if scale.size > 1 else {}))
        if s["bias"] == "shared":
            self.outputs.append((self.node("Neg", ["bf"], "other_b", "other_b"), TensorProto.FLOAT))
        return "bf"

    # ----- the operator, and what follows ------------------------------------------------------------------------------

    def layer(self) -> str:
        s, op = self.s, self.op
        operands = [self.activations()]
        if op not in UNARY:
            operands.append(self.weights())
        if s["exchanged"]:
            operands.reverse()
        if s["bias"] != "none":
            operands.append(self.bias())
        attributes: dict = {
            "Softmax": {"axis": -1},
            "LeakyRelu": {"alpha": 0.1},
            "MaxPool": {"kernel_shape": [2, 2]},
            "AveragePool": {"kernel_shape": [2, 2]},
        }.get(op, {})
        if op == "Gemm":
            attributes = {
                "alpha": s["alpha"],
                "beta": s["beta"],
                "transA": s["trans_a"],
                "transB": s["trans_b"],
            }
        elif op == "Conv":
            attributes = {"3×3 padded": {"pads": [1, 0, 1, 2]}, "strided": {"strides": [2, 2]}}.get(
                s["geometry"], {}
            )
            attributes |= {"group": self.groups} if self.groups > 1 else {}
        last = self.node(op, operands, "p", "layer", **attributes)
        added = s["added"]
        if added != "nothing":
            if added.endswith("of run"):
                shape = {
                    "row of run": (1, self.columns),
                    "columns of run": (self.columns,),
                    "sum of run": (3, self.columns),
                }[added]
                self.from_run("addend", self.rng.normal(size=shape).astype(np.float32))
            elif added == "float":
                self.initializer("addend", self.rng.normal(size=self.columns).astype(np.float32))
            else:
                self.initializer("added", self.rng.integers(-1000, 1000, self.columns).astype(np.int32))
                self.quantization(
                    "DequantizeLinear",
                    ["added", self.held("added_scale", np.float32(0.003))],
                    "addend",
                    "addend",
                )
            last = self.node("Add", [last, "addend"], "sum", "sum")
        return last

    def behind(self, last: str) -> None:
        s, behind = self.s, self.s["behind"]
        dtype, onnx_type = TYPES[self.y]
        low, _ = _limits(self.y)
        y_low = behind in ("relu", "clip", "narrow clip", "relu, two readers") or self.op == "Softmax"
        point = dtype(
            0 if s["y_zero"] == "absent" else low + (0 if y_low else 100 if self.op == "MaxPool" else 77)
        )
        if behind.startswith("relu"):
            last = self.node("Relu", [last], "r", "relu")
        if behind.endswith("clip"):
            _require(s["opset"] >= 11)
            bounds = [
                self.initializer("low", np.float32(0)),
                self.initializer("high", np.float32(1e6 if behind == "clip" else 1)),
            ]
            last = self.node("Clip", [last, *bounds], "r", "clip")
        if behind in ("float", "relu, float"):
            self.outputs.append((self.node("Neg", [last], "y", "negative"), TensorProto.FLOAT))
            self.initializer("ys", self.sy)
            return
        before = last
        if s["y_through"] != "nothing":
            last = (
                self.through(s["y_through"], last, [-1], "pt")
                if s["y_through"] == "reshape"
                else self.node(
                    "Transpose" if s["y_through"] == "transpose" else "Identity", [last], "pt", "pt through"
                )
            )
        given = [self.held("ys", self.sy, s["y_scale"])] + (
            [] if s["y_zero"] == "absent" else [self.held("yz", point, s["y_zero"])]
        )
        self.quantization("QuantizeLinear", [last, *given], "y", "out")
        read = {"by the caller": 0, "by two dequantizers": 2}.get(s["y_read"], 1)
        self.outputs += [(f"d{i}", TensorProto.FLOAT) for i in range(read)] or [("y", onnx_type)]
        for i in range(read):
            self.quantization("DequantizeLinear", ["y", *given], f"df{i}", f"read{i}")
            if i == 0 and s["next"] != "nothing":
                self.next(given)
            else:
                self.node("Neg", [f"df{i}"], f"d{i}", f"negative{i}")
        if s["y_read"] == "by a shared dequantizer":
            self.outputs.append((self.node("Abs", ["df0"], "d", "absolute"), TensorProto.FLOAT))
        if behind == "two quantizers":
            again = [self.initializer("ys2", np.float32(self.sy * 2)), *given[1:]]
            self.outputs.append(
                (self.quantization("QuantizeLinear", [last, *again], "y2", "out2"), onnx_type)
            )
        if behind in ("quantize and float", "relu, two readers"):
            self.outputs.append((self.node("Neg", [before], "y2", "out2"), TensorProto.FLOAT))
        if behind == "an output too":
            self.outputs.append((before, TensorProto.FLOAT))

    def next(self, given: list) -> None:
        """A sum or a product of y and constants, whose result is d0."""
        s, f32 = self.s, np.float32
        kind = "s8" if self.y in ("s8", "s16") else "u8"
        dtype = TYPES[kind][0]
        if s["next"] == "a sum":
            constants = [
                self.initializer("nw", dtype([5])),
                self.initializer("ns", f32(0.1)),
                self.initializer("nz", dtype(2)),
            ]
            self.quantization("DequantizeLinear", constants, "nf", "next weights")
            result = self.node("Add", ["df0", "nf"], "np", "next")
        else:
            _require(
                self.op not in ("Conv", "ConvTranspose", "MaxPool", "AveragePool") and s["batch"] != "1-d A"
            )
            columns = self.columns if self.op in PRODUCTS else self.depth
            _require(
                s["y_through"] in ("nothing", "identity") and not (s["exchanged"] and self.op == "MatMul")
            )
            constants = [
                self.initializer("nw", self.rng.integers(-128, 128, (columns, 5)).astype(np.int8)),
                self.initializer("ns", f32(0.02)),
                self.initializer("nz", np.int8(0)),
            ]
            self.quantization("DequantizeLinear", constants, "nf", "next weights")
            result = self.node("MatMul", ["df0", "nf"], "np", "next")
        self.quantization("QuantizeLinear", [result, *given], "nq", "next out")
        self.quantization("DequantizeLinear", ["nq", *given], "nd", "next read")
        self.node("Neg", ["nd"], "d0", "next negative")

    def model(self) -> tuple[bytes, dict]:
        s = self.s
        self.behind(self.layer())
        if s["shuffled"]:
            self.nodes = self._shuffled()
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info(*value) for value in self.inputs],
            [helper.make_tensor_value_info(name, kind, None) for name, kind in self.outputs],
            self.initializers,
        )
        opsets = [helper.make_opsetid("", s["opset"]), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=8 if s["opset"] < 21 else helper.find_min_ir_version_for(opsets[:1]),
        )
        return model.SerializeToString(), self.given

    def _shuffled(self) -> list:
        """The nodes in another order in which each node stands behind the nodes that it reads."""
        left, made, order = list(self.nodes), {output for node in self.nodes for output in node.output}, []
        while left:
            ready = [node for node in left if not made & set(node.input)]
            node = ready[self.rng.integers(len(ready))]
            order.append(node)
            left.remove(node)
            made -= set(node.output)
        return order


def build(s: dict, seed: int) -> tuple[bytes, dict]:
    """The model of a structure, and its inputs."""
    return Builder(s, seed).model()


# Of operators of integers, where the operands and the zero points of A and B are.
OPERANDS = {
    "QLinearConv": (0, 2, 3, 5),
    "QGemm": (0, 2, 3, 5),
    "QLinearMatMul": (0, 2, 3, 5),
    "MatMulIntegerToFloat": (0, 4, 1, 5),
    "ConvInteger": (0, 2, 1, 3),
    "MatMulInteger": (0, 2, 1, 3),
}


def _operands(graph: onnx.GraphProto, node: onnx.NodeProto) -> tuple[str, str, np.ndarray | None]:
    """The types of A and B of an operator of integers, and B as the audit has it if B is a constant. A type is "" if the graph does
    not state it."""
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in [*graph.input, *graph.value_info, *graph.output]
    }
    names = {TensorProto.UINT8: "u8", TensorProto.INT8: "s8"}

    def type_of(operand: int, point: int) -> str:
        for i in (operand, point):
            name = node.input[i] if i < len(node.input) else ""
            kind = initializers[name].data_type if name in initializers else types.get(name, 0)
            if kind:
                return names.get(kind, "other")
        return ""

    a, a_point, b, b_point = OPERANDS[node.op_type]
    values = None
    if node.input[b] in initializers:
        values = numpy_helper.to_array(initializers[node.input[b]])
        if node.op_type in ("QLinearConv", "ConvInteger"):
            values = np.moveaxis(values, 1, -1)
        elif any(attribute.name == "transB" and attribute.i for attribute in node.attribute):
            values = values.T
        elif values.ndim > 2:
            values = np.moveaxis(values, -2, 0).reshape(values.shape[-2], -1)
    return type_of(a, a_point), type_of(b, b_point), values


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


def _audited(s: dict, path: str, graph: onnx.GraphProto, fails: bool) -> Found | None:
    """Compares the audit with the graph that ONNX Runtime makes: the operator, its types and its weights. `fails`: ONNX Runtime
    fails to run the graph."""
    made = [] if fails else [node for node in graph.node if "layer" in node.name and node.op_type in OPERANDS]
    operators = [node.op_type for node in graph.node]
    for ask in (True, False):
        audited = intact.audit(path, ask=ask)
        found = [each.layer for each in [*audited.layers, *audited.products] if each.layer.name == "layer"]
        what = "asked" if ask else "rules"
        if made and not found and audited.model.not_audited:
            continue  # said to be not audited
        if bool(found) != bool(made):
            return Found(
                s,
                what,
                f"ONNX Runtime has {operators}, the audit {'integers' if found else audited.model.passed_over}",
            )
        if not found:
            reasons = "; ".join(audited.model.passed_over)
            if ("MatMulNBits" in operators) != ("MatMulNBits" in reasons) or fails != (FAILS in reasons):
                return Found(s, what, f"ONNX Runtime has {operators}, the audit {audited.model.passed_over}")
            continue
        a, b, weights = _operands(graph, made[0])
        if (a or found[0].a_type, b or found[0].b_type) != (found[0].a_type, found[0].b_type):
            return Found(
                s,
                what,
                f"ONNX Runtime multiplies {a} by {b}, the audit {found[0].a_type} by {found[0].b_type}",
            )
        audits = next((each.layer.weights for each in audited.layers if each.layer.name == "layer"), None)
        # a graph may also compute the weights from constants
        is_constant = s["constant_w"] and not s["exchanged"] if weights is None else True
        if is_constant != (audits is not None) or weights is not None and not np.array_equal(audits, weights):
            return Found(s, what, f"{made[0].op_type} has other weights than the audit")
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
    built = Builder(s, seed)
    model, given = built.model()
    path, optimized = f"{folder}/model.onnx", f"{folder}/optimized.onnx"
    Path(path).write_bytes(model)
    try:
        stock = onnxruntime.InferenceSession(model, _options(optimized), providers=["CPUExecutionProvider"])
    except Exception as error:  # each class of onnxruntime's errors derives from Exception only
        raise Invalid from error
    made = onnx.load(optimized).graph
    operators = [node.op_type for node in made.node]
    try:
        expected = stock.run(None, given)
    except Exception as error:
        if s["w_scale"] != "blocks":
            raise Invalid from error
        expected = None  # ONNX Runtime fails behind weights in blocks
    options = _options()
    intact.onnxruntime.add(options)
    try:
        session = onnxruntime.InferenceSession(model, options)
        computed = session.run(None, given)
    except Exception as error:
        if expected is None:
            raise Invalid from error
        return Found(s, "bytes", f"the provider fails: {str(error)[:300]}; ONNX Runtime has {operators}")
    report = {node["name"]: node for node in intact.onnxruntime.report(session)}
    node = report.get("layer")
    integer = any("layer" in each.name and each.op_type in (*INTEGER, "MatMulNBits") for each in made.node)
    if node and node["taken"] and not integer and s["op"] not in UNARY and "table" not in node["kernel"]:
        return Found(s, "taken", f"ONNX Runtime has {operators}, the provider {node['kernel']}")
    found = None
    false = [
        each["note"]
        for each in report.values()
        if expected is not None and "fails in each run" in each.get("note", "")
    ]
    if false:
        return Found(s, "note", f"the provider says: {false[0]}; ONNX Runtime runs {operators}")
    if expected is None or any(one.tobytes() != other.tobytes() for one, other in zip(computed, expected)):
        of_blocks = "MatMulNBits" in operators and any(
            each["taken"] for name, each in report.items() if name.startswith("layer")
        )
        found = _differ(
            s,
            onnx.load_from_string(model).graph,
            expected if of_blocks else _exact(model, given),
            computed,
            expected,
            report,
            reasons,
            float(built.sy),
            operators,
        )
    return found or (_audited(s, path, made, expected is None) if s["op"] in PRODUCTS else None)


def _exact(model: bytes, given: dict) -> list:
    """The outputs of a model whose operators run one by one."""
    options = _options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(
            None, given
        )
    except Exception as error:
        raise Invalid from error


def _differ(
    s: dict,
    graph: onnx.GraphProto,
    exact: list,
    computed: list,
    expected: list | None,
    report: dict,
    reasons: Counter | None,
    step: float,
    operators: list,
) -> Found | None:
    """Judges outputs that differ. A difference is right if a node before the output has a note that says what ONNX Runtime computes
    wrongly, and the output is what the model's operators compute one by one. `expected`: None if ONNX Runtime fails to run the
    model. `step`: the scale of the output. `exact` is `expected` for a MatMulNBits that intact computes: ONNX Runtime adds the products
    of blocks in another order."""
    for i, (output, one, right) in enumerate(zip(graph.output, computed, exact)):
        if expected is not None and one.tobytes() == expected[i].tobytes():
            continue
        notes = {
            report[name]["note"] for name in _before(graph, output.name) if "note" in report.get(name, {})
        }
        is_independent = expected is None and "layer" not in _before(graph, output.name)
        if not (notes or is_independent or exact is expected) or not _is_the_models(one, right, step):
            differ = one.size if expected is None else np.count_nonzero(one != expected[i])
            return Found(
                s,
                "bytes",
                f"{differ} of {one.size} values of {output.name} differ; notes {notes}; ONNX Runtime has {operators}",
            )
        if reasons is not None:
            reasons.update(notes)
    return None


def shrink(found: Found, seed: int, folder: str) -> Found:
    """The same kind of difference with the fewest unusual features."""
    for name, values in FEATURES.items():
        if name == "op" or found.structure[name] == values[0]:
            continue
        try:
            smaller = examine(normal({**found.structure, name: values[0]}), seed, folder)
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


def search(
    count: int, begin: int, unusual: float = 0.15, progress: Callable[[Search], None] | None = None
) -> Search:
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
                key = (
                    difference.what,
                    *sorted((k, v) for k, v in difference.structure.items() if v != FEATURES[k][0]),
                )
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--begin", type=int, default=0)
    parser.add_argument("--unusual", type=float, default=0.15, help="the probability of unusual features")
    arguments = parser.parse_args()

    def progress(found: Search) -> None:
        print(
            f"onnxruntime {onnxruntime.__version__}: {found.count} structures from {arguments.begin} on, {len(found.findings)} kinds "
            f"of differences; the next is number {found.begin}",
            flush=True,
        )

    found = search(arguments.count, arguments.begin, arguments.unusual, progress=progress)
    progress(found)
    print(dict(found.operators))
    for reason, count in found.reasons.most_common():
        print(f"{count} structures have the model's bytes, not ONNX Runtime's: {reason}")


if __name__ == "__main__":
    main()
