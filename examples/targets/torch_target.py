"""PyTorch's quantized operators as targets: intact verify sweep --quick --target python:torch_target.py:Fbgemm

`Fbgemm`, `Onednn` and `Qnnpack`: the quantized operators of an engine. `FbgemmDynamic`, `OnednnDynamic`: linear_dynamic.
`Pointwise`: what models of torch.export run, with oneDNN's kernels. `IntMm`: torch._int_mm."""

import numpy as np
import torch

DTYPES = {"u8": torch.uint8, "s8": torch.int8, "f32": torch.float32, "bf16": torch.bfloat16}


class Fbgemm:
    """u8 inputs and outputs, a float bias, and weights with one scale or one for each channel."""

    engine = "fbgemm"
    name = f"PyTorch {torch.__version__}, fbgemm"
    supports = [
        "gemm",
        "conv_1d",
        "conv_2d",
        "conv_3d",
        "a_u8",
        "b_s8",
        "c_u8",
        "a_zero_point",
        "c_zero_point",
        "channel_scales",
        "relu",
        "bias_f32",
        "conv_padding",
        "conv_stride",
        "conv_dilation",
        "conv_groups",
        "conv_depthwise",
    ]
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

    @staticmethod
    def bias(p):
        return None if p.bias is None else torch.tensor(p.bias)

    def packed(self, p):
        return torch.ops.quantized.linear_prepack(self.weights(np.ascontiguousarray(p.b.T), p), self.bias(p))

    def gemm(self, p):
        run = torch.ops.quantized.linear_relu if p.activation == "relu" else torch.ops.quantized.linear
        return run(self.activations(p.a, p), self.packed(p), 1.0, p.c_zero_point).int_repr().numpy()

    def conv(self, p):
        w, a = (np.ascontiguousarray(np.moveaxis(x, -1, 1)) for x in (p.weights, p.a))
        name = f"conv{len(p.stride)}d"
        pads = [begin for begin, _ in p.padding]
        packed = getattr(torch.ops.quantized, name + "_prepack")(
            self.weights(w, p), self.bias(p), list(p.stride), pads, list(p.dilation), p.groups
        )
        run = getattr(torch.ops.quantized, name + ("_relu" if p.activation == "relu" else ""))
        return np.moveaxis(run(self.activations(a, p), packed, 1.0, p.c_zero_point).int_repr().numpy(), 1, -1)


class Onednn(Fbgemm):
    engine = "onednn"
    name = f"PyTorch {torch.__version__}, onednn"


class Qnnpack(Fbgemm):
    engine = "qnnpack"
    name = f"PyTorch {torch.__version__}, qnnpack"


class FbgemmDynamic(Fbgemm):
    """Two more rows give the activations the range 0…255, so their scale is 1."""

    name = f"PyTorch {torch.__version__}, fbgemm, linear_dynamic"
    supports = ["gemm", "a_u8", "b_s8", "c_f32", "a_zero_point", "channel_scales", "relu", "bias_f32"]

    def gemm(self, p):
        ends = np.broadcast_to(np.array([[0], [255]], np.uint8), (2, p.a.shape[1]))
        a = torch.tensor(np.concatenate([p.a, ends]).astype(np.float32) - p.a_zero_point)
        run = (
            torch.ops.quantized.linear_relu_dynamic
            if p.activation == "relu"
            else torch.ops.quantized.linear_dynamic
        )
        return run(a, self.packed(p))[:-2].numpy()


class OnednnDynamic(FbgemmDynamic):
    engine = "onednn"
    name = f"PyTorch {torch.__version__}, onednn, linear_dynamic"


class Pointwise(Fbgemm):
    engine = "onednn"
    name = f"PyTorch {torch.__version__}, onednn pointwise"
    supports = [*Fbgemm.supports, "a_s8", "c_s8", "c_f32", "c_bf16"]

    def quantization(self, p, channels):
        return torch.tensor(np.broadcast_to(p.scales, channels).astype(np.float32)), torch.zeros(
            channels, dtype=torch.int64
        )

    def output(self, p):
        return [1.0, p.c_zero_point, DTYPES[p.c_type], "relu" if p.activation == "relu" else "none", [], ""]

    @staticmethod
    def array(y, p):
        return y.view(torch.uint16).numpy().view(p.c_dtype) if p.c_type == "bf16" else y.numpy()

    def gemm(self, p):
        packed = torch.ops.onednn.qlinear_prepack(torch.tensor(np.ascontiguousarray(p.b.T)), list(p.a.shape))
        quantization = self.quantization(p, p.b.shape[1])
        y = torch.ops.onednn.qlinear_pointwise(
            torch.tensor(p.a), 1.0, p.a_zero_point, packed, *quantization, self.bias(p), *self.output(p)
        )
        return self.array(y, p)

    def conv(self, p):
        if p.a_type == "s8":
            raise NotImplementedError("convolutions have u8 activations")
        if len(p.stride) == 3 and p.activation == "relu":
            raise NotImplementedError("3-D convolutions have no ReLU")
        w, a = (torch.tensor(np.ascontiguousarray(np.moveaxis(x, -1, 1))) for x in (p.weights, p.a))
        quantization = self.quantization(p, len(w))
        geometry = [list(p.stride), [begin for begin, _ in p.padding], list(p.dilation), p.groups]
        packed = torch.ops.onednn.qconv_prepack(
            w, quantization[0], 1.0, p.a_zero_point, *geometry, list(a.shape)
        )
        y = torch.ops.onednn.qconv_pointwise(
            a, 1.0, p.a_zero_point, packed, *quantization, self.bias(p), *geometry, *self.output(p)
        )
        return np.moveaxis(self.array(y, p), 1, -1)


class IntMm(Fbgemm):
    name = f"PyTorch {torch.__version__}, _int_mm"
    supports = ["gemm", "a_s8", "b_s8", "c_s32", "overflow_wraps"]

    def gemm(self, p):
        return torch._int_mm(torch.tensor(p.a), torch.tensor(p.b)).numpy()
