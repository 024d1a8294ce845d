"""ONNX Runtime as a target: intact verify pairing --target python:onnxruntime_target.py:OnnxRuntime

int32 outputs come from MatMulInteger and ConvInteger, 8-bit outputs from QLinearMatMul and QLinearConv."""

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper


def run(op, a, constants, c_dtype, **attributes):
    """Runs one operator on `a`. `constants`: its inputs by name, in order; None stands for `a`."""
    names = ["a" if value is None else name for name, value in constants.items()]
    tensors = [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in constants.items() if value is not None]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)], "g",
        [helper.make_tensor_value_info("a", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(c_dtype)), None)], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"a": a})[0]


class OnnxRuntime:
    name = f"ONNX Runtime {onnxruntime.__version__}"
    supports = ["gemm", "conv_2d", "a_u8", "a_s8", "b_s8", "b_u8", "c_s32", "c_u8", "c_s8", "a_zero_point", "b_zero_point",
                "c_zero_point", "channel_scales", "conv_padding", "conv_padding_ends", "conv_stride", "conv_dilation", "conv_groups",
                "conv_depthwise", "overflow_wraps", "scale_zero"]
    arithmetic = "any"

    def run(self, p, integer, quantized, a, w, channels, **attributes):
        a_point = np.array(p.a_zero_point, a.dtype)
        w_point = np.array(0 if p.b_zero_points is None else p.b_zero_points[0], w.dtype)
        if p.c_type == "s32":
            return run(integer, a, {"a": None, "w": w, "az": a_point, "wz": w_point}, np.int32, **attributes)
        if p.c_type != p.a_type or (p.a_type, p.b_type) == ("s8", "u8"):
            raise NotImplementedError("outputs must have the activations' type; s8 x u8 is not supported")
        one = np.float32(1)  # the scale of activations and of outputs, so the weights have the problem's scales
        scale = p.scales[0] if p.scales.size == 1 else p.scales
        if p.scales.size > 1:
            w_point = np.full(channels, w_point, w.dtype)
        return run(quantized, a, {"a": None, "as": one, "az": a_point, "w": w, "ws": scale, "wz": w_point, "ys": one,
                                  "yz": np.array(p.c_zero_point, p.c_dtype)}, p.c_dtype, **attributes)

    def gemm(self, p):
        return self.run(p, "MatMulInteger", "QLinearMatMul", p.a, p.b, p.b.shape[1])

    def conv(self, p):
        if p.c_type == "s32" and (p.a_type, p.b_type) != ("u8", "u8"):
            raise NotImplementedError("ConvInteger supports only u8 x u8")
        pads = [begin for begin, _ in p.padding] + [end for _, end in p.padding]
        w = np.ascontiguousarray(np.moveaxis(p.weights, -1, 1))
        y = self.run(p, "ConvInteger", "QLinearConv", np.ascontiguousarray(np.moveaxis(p.a, -1, 1)), w, len(w), pads=pads,
                     strides=list(p.stride), dilations=list(p.dilation), group=p.groups)
        return np.moveaxis(y, 1, -1)
