"""OpenVINO as a target: intact verify sweep --quick --target python:openvino_target.py:OpenVino

Its quantized kernels run where FakeQuantize and int8 constants surround a float product; here the activations' scale is 1."""

import numpy as np
import openvino
from openvino import opset13 as ops


class OpenVino:
    name = f"OpenVINO {openvino.__version__}"
    supports = ["gemm", "conv_2d", "a_u8", "b_s8", "c_u8", "channel_scales", "conv_padding", "conv_padding_ends", "conv_stride",
                "conv_dilation"]
    arithmetic = "any"

    def __init__(self):
        self.core = openvino.Core()
        self.core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"})

    @staticmethod
    def quantized(x):
        return ops.fake_quantize(x, np.float32(0), np.float32(255), np.float32(0), np.float32(255), 256)

    def run(self, a, w, scales, axis, product):
        shape = [1] * w.ndim
        shape[axis] = -1
        x = ops.parameter(a.shape, np.float32)
        scale = np.broadcast_to(scales, w.shape[axis]).astype(np.float32).reshape(shape)
        weights = ops.multiply(ops.convert(ops.constant(w), np.float32), ops.constant(scale))
        y = self.quantized(ops.relu(product(self.quantized(x), weights)))
        compiled = self.core.compile_model(openvino.Model([ops.result(y)], [x]), "CPU")
        return compiled([a.astype(np.float32)])[0].astype(np.uint8)

    def gemm(self, p):
        return self.run(p.a, p.b, p.scales, 1, lambda a, w: ops.matmul(a, w, False, False))

    def conv(self, p):
        begin, end = zip(*p.padding)
        w = np.ascontiguousarray(np.moveaxis(p.weights, -1, 1))
        a = np.ascontiguousarray(np.moveaxis(p.a, -1, 1))
        y = self.run(a, w, p.scales, 0, lambda a, w: ops.convolution(a, w, list(p.stride), list(begin), list(end), list(p.dilation)))
        return np.moveaxis(y, 1, -1)
