"""PyTorch's quantized engines as targets: intact verify sweep --quick --target python:torch_target.py:Fbgemm (or Onednn)"""

import numpy as np
import torch


class Fbgemm:
    """u8 inputs and outputs, a float bias, and weights with one scale or one for each channel."""

    engine = "fbgemm"
    name = f"PyTorch {torch.__version__}, fbgemm"
    supports = ["gemm", "conv_2d", "a_u8", "b_s8", "c_u8", "a_zero_point", "c_zero_point", "channel_scales", "relu", "bias_f32",
                "conv_padding", "conv_stride", "conv_dilation", "conv_groups", "conv_depthwise"]
    arithmetic = "any"

    def __init__(self):
        torch.backends.quantized.engine = self.engine
        torch.set_num_threads(1)

    @staticmethod
    def weights(w, p):
        """Activations and outputs have scale 1, so the weights have the problem's scales."""
        scales = torch.tensor(np.broadcast_to(p.scales, w.shape[0]).astype(np.float64))
        points = torch.zeros(w.shape[0], dtype=torch.int64)
        return torch._make_per_channel_quantized_tensor(torch.tensor(w), scales, points, 0)

    @staticmethod
    def activations(a, p):
        return torch._make_per_tensor_quantized_tensor(torch.tensor(a), 1.0, p.a_zero_point)

    def gemm(self, p):
        bias = None if p.bias is None else torch.tensor(p.bias)
        packed = torch.ops.quantized.linear_prepack(self.weights(np.ascontiguousarray(p.b.T), p), bias)
        run = torch.ops.quantized.linear_relu if p.activation == "relu" else torch.ops.quantized.linear
        return run(self.activations(p.a, p), packed, 1.0, p.c_zero_point).int_repr().numpy()

    def conv(self, p):
        bias = None if p.bias is None else torch.tensor(p.bias)
        w = self.weights(np.ascontiguousarray(np.moveaxis(p.weights, -1, 1)), p)
        pads = [begin for begin, _ in p.padding]
        packed = torch.ops.quantized.conv2d_prepack(w, bias, list(p.stride), pads, list(p.dilation), p.groups)
        a = self.activations(np.ascontiguousarray(np.moveaxis(p.a, -1, 1)), p)
        run = torch.ops.quantized.conv2d_relu if p.activation == "relu" else torch.ops.quantized.conv2d
        return np.moveaxis(run(a, packed, 1.0, p.c_zero_point).int_repr().numpy(), 1, -1)


class Onednn(Fbgemm):
    engine = "onednn"
    name = f"PyTorch {torch.__version__}, onednn"
