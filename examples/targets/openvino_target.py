"""OpenVINO as a target: intact verify pairing --target python:openvino_target.py:OpenVino

OpenVINO runs its quantized kernels if FakeQuantize and int8 constants surround a float product. Here the activations' scale is
1."""

import numpy as np
import openvino
from openvino import opset13 as ops


class OpenVino:
    name = f"OpenVINO {openvino.__version__.split('-')[0]}"
    supports = ["gemm", "conv_2d", "a_u8", "b_s8", "c_u8", "channel_scales", "conv_padding", "conv_padding_ends", "conv_stride",
                "conv_dilation", "conv_groups", "conv_depthwise"]
    arithmetic = "any"

    def __init__(self):
        self.core = openvino.Core()
        self.core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"})
        self.key = self.compiled = None

    @staticmethod
    def quantized(x):
        return ops.fake_quantize(x, np.float32(0), np.float32(255), np.float32(0), np.float32(255), 256)

    def run(self, a, w, scales, product, *options):
        """`scales` has the rank of `w`; an extent of 1 means one scale for all. Compiling takes most of the time, so the second
        run of a problem reuses the model of the first."""
        key = (a.shape, w.shape, w.tobytes(), scales.tobytes(), options)
        if key != self.key:
            x = ops.parameter(a.shape, np.float32)
            weights = ops.multiply(ops.convert(ops.constant(w), np.float32), ops.constant(scales))
            y = self.quantized(ops.relu(product(self.quantized(x), weights, *options)))
            self.key, self.compiled = key, self.core.compile_model(openvino.Model([ops.result(y)], [x]), "CPU")
        return self.compiled([a.astype(np.float32)])[0].astype(np.uint8)

    def gemm(self, p):
        return self.run(p.a, p.b, np.broadcast_to(p.scales, (1, p.b.shape[1])), ops.matmul, False, False)

    def conv(self, p):
        begin, end = zip(*p.padding)
        a, w = (np.ascontiguousarray(np.moveaxis(x, -1, 1)) for x in (p.a, p.weights))
        scales = np.broadcast_to(p.scales, len(w)).reshape(-1, 1, 1, 1)
        product = ops.convolution
        if p.groups > 1:
            w, scales = w.reshape(p.groups, -1, *w.shape[1:]), scales.reshape(p.groups, -1, 1, 1, 1)
            product = ops.group_convolution
        return np.moveaxis(self.run(a, w, scales, product, p.stride, begin, end, p.dilation), 1, -1)
