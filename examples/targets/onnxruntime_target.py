"""ONNX Runtime as a target: intact verify sweep --quick --target python:onnxruntime_target.py:OnnxRuntime"""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

TYPES = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8}


def run(op, a, w, points, **attributes):
    """One operator of integers, MatMulInteger or ConvInteger, with constant weights."""
    constants = [numpy_helper.from_array(value, name) for name, value in (("w", w), ("az", points[0]), ("wz", points[1]))]
    node = helper.make_node(op, ["a", "w", "az", "wz"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("a", TYPES[a.dtype], a.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.INT32, None)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"a": a})[0]


class OnnxRuntime:
    name = f"ONNX Runtime {onnxruntime.__version__}"
    supports = ["gemm", "conv_2d", "a_u8", "a_s8", "b_s8", "b_u8", "c_s32", "a_zero_point", "b_zero_point", "conv_padding",
                "conv_padding_ends", "conv_stride", "conv_dilation", "conv_groups", "conv_depthwise"]
    arithmetic = "any"

    @staticmethod
    def points(p, w):
        zero = 0 if p.b_zero_points is None else p.b_zero_points[0]
        return np.array(p.a_zero_point, p.a.dtype), np.array(zero, w.dtype)

    def gemm(self, p):
        return run("MatMulInteger", p.a, p.b, self.points(p, p.b))

    def conv(self, p):
        if p.a.dtype != np.uint8 or p.weights.dtype != np.uint8:
            raise NotImplementedError("ConvInteger is for u8 x u8")
        pads = [begin for begin, _ in p.padding] + [end for _, end in p.padding]
        w = np.ascontiguousarray(np.moveaxis(p.weights, -1, 1))
        y = run("ConvInteger", np.ascontiguousarray(np.moveaxis(p.a, -1, 1)), w, self.points(p, w), pads=pads,
                strides=list(p.stride), dilations=list(p.dilation), group=p.groups)
        return np.moveaxis(y, 1, -1)
