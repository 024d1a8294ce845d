"""ONNX Runtime as a target: intact verify pairing --target python:onnxruntime_target.py:OnnxRuntime

`OnnxRuntime`: QLinearMatMul and QLinearConv, MatMulIntegerToFloat for float32, QGemm for products with an int32 bias. `Integer`:
MatMulInteger and ConvInteger. `Dynamic`: DynamicQuantizeMatMul. `NBits`: MatMulNBits with accuracy level 4, for `verify
grouped`."""

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

ONE = np.float32(1)  # the scale of activations and of outputs, so the weights have the problem's scales


def run(op, a, constants, c_dtype, **attributes):
    """Runs one operator on `a`. `constants`: its other inputs, in order; None: left out."""
    tensors = [
        numpy_helper.from_array(np.ascontiguousarray(value), f"c{i}")
        for i, value in enumerate(constants)
        if value is not None
    ]
    names = ["a", *("" if value is None else f"c{i}" for i, value in enumerate(constants))]
    microsoft = {"QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulNBits"}
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], domain="com.microsoft" if op in microsoft else "", **attributes)],
        "g",
        [helper.make_tensor_value_info("a", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(c_dtype)), None)],
        tensors,
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    model = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"a": a})[0]


class OnnxRuntime:
    name = f"ONNX Runtime {onnxruntime.__version__}"
    supports = [
        "gemm",
        "conv_1d",
        "conv_2d",
        "conv_3d",
        "a_u8",
        "a_s8",
        "b_s8",
        "b_u8",
        "c_f32",
        "c_u8",
        "c_s8",
        "a_zero_point",
        "b_zero_point",
        "b_zero_points",
        "c_zero_point",
        "channel_scales",
        "bias_s32",
        "bias_f32",
        "conv_padding",
        "conv_padding_ends",
        "conv_stride",
        "conv_dilation",
        "conv_groups",
        "conv_depthwise",
        "scale_zero",
    ]
    arithmetic = "any"

    @staticmethod
    def points(p, w, channels):
        """The zero points of weights: one, or one for each channel if zero points or scales have one for each."""
        zero = np.zeros(1) if p.b_zero_points is None else p.b_zero_points
        is_one = zero.size == 1 and (p.scales is None or p.scales.size == 1)
        return np.array(zero[0], w.dtype) if is_one else np.broadcast_to(zero, channels).astype(w.dtype)

    @classmethod
    def quantization(cls, p, w, channels):
        """Scales and zero points of weights."""
        points = cls.points(p, w, channels)
        return np.broadcast_to(p.scales, points.shape or 1).reshape(points.shape), points

    @staticmethod
    def refuse(*refusals):
        for refused, words in refusals:
            if refused:
                raise NotImplementedError(words)

    def gemm(self, p):
        a_point, c_point, bias = (
            np.array(p.a_zero_point, p.a.dtype),
            np.array(p.c_zero_point, p.c_dtype),
            p.bias,
        )
        has_f32_bias = bias is not None and bias.dtype == np.float32
        scales, points = self.quantization(p, p.b, p.b.shape[1])
        self.refuse(
            ((p.a_type, p.b_type) == ("s8", "u8"), "s8 x u8"),
            (p.c_type not in ("f32", p.a_type), "8-bit outputs must have the activations' type"),
            (has_f32_bias and p.c_type != "f32", "8-bit outputs have an int32 bias"),
        )
        if bias is not None and not has_f32_bias:
            output = [None, None] if p.c_type == "f32" else [ONE, c_point]
            return run("QGemm", p.a, [ONE, a_point, p.b, scales, points, bias, *output], p.c_dtype)
        if p.c_type == "f32":
            return run("MatMulIntegerToFloat", p.a, [p.b, ONE, scales, a_point, points, bias], np.float32)
        return run("QLinearMatMul", p.a, [ONE, a_point, p.b, scales, points, ONE, c_point], p.c_dtype)

    def conv(self, p):
        self.refuse(
            ((p.a_type, p.b_type) == ("s8", "u8"), "s8 x u8"),
            (p.c_type != p.a_type, "outputs of convolutions must have the activations' type"),
            (p.bias is not None and p.bias.dtype == np.float32, "8-bit outputs have an int32 bias"),
        )
        return self.convolution(
            p,
            "QLinearConv",
            lambda a_point, w: [
                ONE,
                a_point,
                w,
                *self.quantization(p, w, len(w)),
                ONE,
                np.array(p.c_zero_point, p.c_dtype),
                p.bias,
            ],
        )

    @staticmethod
    def convolution(p, op, constants):
        w, a = (np.ascontiguousarray(np.moveaxis(x, -1, 1)) for x in (p.weights, p.a))
        return np.moveaxis(
            run(
                op,
                a,
                constants(np.array(p.a_zero_point, a.dtype), w),
                p.c_dtype,
                strides=list(p.stride),
                pads=[begin for begin, _ in p.padding] + [end for _, end in p.padding],
                dilations=list(p.dilation),
                group=p.groups,
            ),
            1,
            -1,
        )


class Integer(OnnxRuntime):
    name = f"ONNX Runtime {onnxruntime.__version__}, integer operators"
    supports = [
        *(
            set(OnnxRuntime.supports)
            - {
                "c_f32",
                "c_u8",
                "c_s8",
                "c_zero_point",
                "channel_scales",
                "bias_s32",
                "bias_f32",
                "scale_zero",
            }
        ),
        "c_s32",
        "overflow_wraps",
    ]

    def gemm(self, p):
        return run(
            "MatMulInteger",
            p.a,
            [p.b, np.array(p.a_zero_point, p.a.dtype), self.points(p, p.b, p.b.shape[1])],
            np.int32,
        )

    def conv(self, p):
        self.refuse(
            (
                p.b_zero_points is not None and p.b_zero_points.size > 1,
                "ConvInteger has one zero point of weights",
            )
        )
        return self.convolution(p, "ConvInteger", lambda a_point, w: [w, a_point, self.points(p, w, len(w))])


class Dynamic(OnnxRuntime):
    """DynamicQuantizeMatMul. Two more rows give the activations the range 0…255, so their scale is 1."""

    name = f"ONNX Runtime {onnxruntime.__version__}, DynamicQuantizeMatMul"
    supports = [
        "gemm",
        "a_u8",
        "b_s8",
        "b_u8",
        "c_f32",
        "a_zero_point",
        "b_zero_point",
        "b_zero_points",
        "channel_scales",
        "bias_f32",
    ]

    def gemm(self, p):
        ends = np.broadcast_to(np.array([[0], [255]], np.uint8), (2, p.a.shape[1]))
        a = np.concatenate([p.a, ends]).astype(np.float32) - p.a_zero_point
        return run(
            "DynamicQuantizeMatMul", a, [p.b, *self.quantization(p, p.b, p.b.shape[1]), p.bias], np.float32
        )[:-2]


class NBits:
    """MatMulNBits with accuracy level 4. It quantizes each group of a row to s8."""

    name = f"ONNX Runtime {onnxruntime.__version__}, MatMulNBits"
    supports = ["grouped", "a_s8", "dynamic_rows", "b_u4", "b_u8", "b_zero_points", "bias_f32", "c_f32"]
    arithmetic = "any"

    def grouped(self, p):
        w, bits = p.weights, int(p.weights.b_type[1])
        OnnxRuntime.refuse(
            (p.a.dtype != np.float32, "float32 activations only"),
            (p.granularity != "groups", "activations have a scale for each group"),
            (w.group not in (16, 32, 64, 128, 256), "blocks of 16 to 256 only"),
        )
        groups = w.scales.shape[1]
        b = np.pad(w.b, ((0, 0), (0, groups * w.group * bits // 8 - w.b.shape[1]))).reshape(w.n, groups, -1)
        points = w.zero_points
        if points is not None and bits == 4:
            pairs = np.pad(points, ((0, 0), (0, groups % 2)))
            points = pairs[:, ::2] | pairs[:, 1::2] << 4
        constants = [
            b,
            w.scales.astype(np.float32).ravel(),
            None if points is None else points.ravel(),
            None,
            w.bias,
        ]
        while constants[-1] is None:
            constants.pop()
        return run(
            "MatMulNBits",
            p.a,
            constants,
            np.float32,
            K=w.k,
            N=w.n,
            bits=bits,
            block_size=w.group,
            accuracy_level=4,
        )
