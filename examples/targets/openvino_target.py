"""OpenVINO as a target: intact verify pairing --target python:openvino_target.py:OpenVino

OpenVINO runs its quantized kernels if FakeQuantize and int8 constants surround a float product. The scales of activations and
outputs are 1."""

import numpy as np
import openvino
from openvino import opset13 as ops


class OpenVino:
    name = f"OpenVINO {openvino.__version__.split('-')[0]}"
    supports = [
        "gemm",
        "conv_1d",
        "conv_2d",
        "conv_3d",
        "a_u8",
        "a_s8",
        "b_s8",
        "c_u8",
        "c_s8",
        "c_f32",
        "a_zero_point",
        "c_zero_point",
        "channel_scales",
        "bias_f32",
        "relu",
        "conv_padding",
        "conv_padding_ends",
        "conv_stride",
        "conv_dilation",
        "conv_groups",
        "conv_depthwise",
        "conv_transposed",
    ]
    arithmetic = "any"

    def __init__(self):
        self.core = openvino.Core()
        self.core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"})
        self.key = self.compiled = None

    @staticmethod
    def quantized(x, kind, zero_point):
        low = np.float32((0 if kind == "u8" else -128) - zero_point)
        return ops.fake_quantize(x, low, low + np.float32(255), low, low + np.float32(255), 256)

    def run(self, p, a, w, scales, product, *options):
        """`scales` has the rank of `w`; an extent of 1 means one scale for all. Compiling takes most of the time, so the second
        run of a problem reuses the model of the first."""
        bias = None if p.bias is None else p.bias.reshape(1, -1, *[1] * (a.ndim - 2))
        key = (
            a.shape,
            w.shape,
            w.tobytes(),
            scales.tobytes(),
            options,
            p.a_type,
            p.c_type,
            p.a_zero_point,
            p.c_zero_point,
            p.activation,
            None if bias is None else bias.tobytes(),
        )
        if key != self.key:
            x = ops.parameter(a.shape, np.float32)
            weights = ops.multiply(ops.convert(ops.constant(w), np.float32), ops.constant(scales))
            y = product(self.quantized(x, p.a_type, p.a_zero_point), weights, *options)
            y = y if bias is None else ops.add(y, ops.constant(bias))
            y = ops.relu(y) if p.activation == "relu" else y
            y = y if p.c_type == "f32" else self.quantized(y, p.c_type, p.c_zero_point)
            self.key, self.compiled = (
                key,
                self.core.compile_model(openvino.Model([ops.result(y)], [x]), "CPU"),
            )
        y = self.compiled([a.astype(np.float32) - p.a_zero_point])[0]
        if p.c_type == "f32":
            return y
        y, limits = y + p.c_zero_point, np.iinfo(p.c_dtype)
        for value in (y.min(), y.max()):
            if not limits.min <= value <= limits.max:
                raise ValueError(f"an output is {value:g}; expected {limits.min} to {limits.max}")
        return y.astype(p.c_dtype)

    def gemm(self, p):
        return self.run(p, p.a, p.b, np.broadcast_to(p.scales, (1, p.b.shape[1])), ops.matmul, False, False)

    def conv(self, p):
        begin, end = zip(*p.padding)
        a, w = (np.ascontiguousarray(np.moveaxis(x, -1, 1)) for x in (p.a, p.weights))
        w = w.reshape(p.groups, -1, *w.shape[1:])
        scales = np.broadcast_to(p.scales, w.shape[0] * w.shape[1]).reshape(*w.shape[:2], *[1] * (w.ndim - 2))
        if p.transposed:
            w, scales = np.ascontiguousarray(w.swapaxes(1, 2)), np.ascontiguousarray(scales.swapaxes(1, 2))
        if p.groups == 1:
            w, scales = w[0], scales[0]
        if p.transposed:
            product = ops.convolution_backprop_data if p.groups == 1 else ops.group_convolution_backprop_data
            options = p.stride, None, begin, end, p.dilation, "explicit", p.output_padding
        else:
            product = ops.convolution if p.groups == 1 else ops.group_convolution
            options = p.stride, begin, end, p.dilation
        return np.moveaxis(self.run(p, a, w, scales, product, *options), 1, -1)
