"""LiteRT as a target: intact verify sweep --quick --target python:litert_target.py:Xnnpack

`Xnnpack` uses the default kernels, `BuiltIn` the kernels without delegates, `Reference` the reference kernels."""

import flatbuffers
import numpy as np
from ai_edge_litert import interpreter as litert
from ai_edge_litert import schema_py_generated as schema

TYPES = {
    np.dtype(np.int8): schema.TensorType.INT8,
    np.dtype(np.uint8): schema.TensorType.UINT8,
    np.dtype(np.int32): schema.TensorType.INT32,
}
BUILTINS = schema.BuiltinOperator


class Xnnpack:
    kernels = litert.OpResolverType.AUTO
    name = "LiteRT, XNNPACK"
    supports = [
        "gemm",
        "conv_2d",
        "a_u8",
        "a_s8",
        "b_u8",
        "b_s8",
        "c_u8",
        "c_s8",
        "a_zero_point",
        "b_zero_point",
        "c_zero_point",
        "channel_scales",
        "bias_s32",
        "relu",
        "conv_stride",
        "conv_dilation",
        "conv_depthwise",
        "conv_transposed",
    ]
    arithmetic = "any"

    def run(self, p, a, weights, output, code, kind, options, axis):
        """Runs a model of one operator on `a`. Activations and outputs have scale 1, so the weights have the problem's scales."""
        zero = 0 if p.b_zero_points is None else p.b_zero_points[0]
        if len({p.a_type, p.b_type, p.c_type}) > 1:
            raise NotImplementedError("all three types must be u8 or s8")
        if (p.a_type == "u8" and p.scales.size > 1) or (p.a_type == "s8" and zero != 0):
            raise NotImplementedError("u8 weights have one scale, s8 weights no zero point")
        if code != BUILTINS.TRANSPOSE_CONV and p.activation == "relu":
            options.fusedActivationFunction = schema.ActivationFunctionType.RELU
        buffers, tensors = [schema.BufferT()], []

        def tensor(shape, dtype, scales, zero_point, data=None, axis=0):
            made = schema.TensorT()
            made.shape, made.type, made.buffer = list(shape), TYPES[np.dtype(dtype)], 0
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale = [float(s) for s in scales]
            made.quantization.zeroPoint = [zero_point] * len(scales)
            made.quantization.quantizedDimension = axis
            if data is not None:
                made.buffer = len(buffers)
                buffers.append(schema.BufferT())
                buffers[-1].data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            tensors.append(made)
            return len(tensors) - 1

        channels = weights.shape[axis]
        scales = np.broadcast_to(p.scales, channels)
        bias = np.zeros(channels, np.int32) if p.bias is None else p.bias
        operator = schema.OperatorT()
        scales = scales[:1] if p.a_type == "u8" else scales
        inputs = [
            tensor(a.shape, a.dtype, [1], p.a_zero_point),
            tensor(weights.shape, a.dtype, scales, zero, weights, axis),
            tensor([channels], np.int32, scales, 0, bias),
        ]
        operator.outputs = [tensor(output, a.dtype, [1], p.c_zero_point)]
        if code == BUILTINS.TRANSPOSE_CONV:
            inputs = [
                tensor([4], np.int32, [], 0, np.array(output, np.int32)),
                inputs[1],
                inputs[0],
                inputs[2],
            ]
        operator.inputs = inputs
        operator.builtinOptionsType, operator.builtinOptions = kind, options
        graph = schema.SubGraphT()
        graph.tensors, graph.operators, graph.inputs, graph.outputs = (
            tensors,
            [operator],
            [0],
            operator.outputs,
        )
        codes = schema.OperatorCodeT()
        codes.builtinCode = codes.deprecatedBuiltinCode = code
        codes.version = 3
        model = schema.ModelT()
        model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [codes], [graph], buffers
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        interpreter = litert.Interpreter(
            model_content=bytes(builder.Output()), num_threads=1, experimental_op_resolver_type=self.kernels
        )
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, a)
        interpreter.invoke()
        return interpreter.get_tensor(3)

    def gemm(self, p):
        options = schema.FullyConnectedOptionsT()
        return self.run(
            p,
            p.a,
            np.ascontiguousarray(p.b.T),
            (len(p.a), p.b.shape[1]),
            BUILTINS.FULLY_CONNECTED,
            schema.BuiltinOptions.FullyConnectedOptions,
            options,
            0,
        )

    def conv(self, p):
        if max(p.stride) >= 1 << 15:
            raise NotImplementedError("strides are int16")
        is_depthwise = p.groups > 1
        options = schema.DepthwiseConv2DOptionsT() if is_depthwise else schema.Conv2DOptionsT()
        options.padding = schema.Padding.VALID
        (options.strideH, options.strideW), (options.dilationHFactor, options.dilationWFactor) = (
            p.stride,
            p.dilation,
        )
        output = (len(p.a), *p.output, len(p.weights))
        if p.transposed:
            if p.groups > 1 or max(p.dilation) > 1 or max(p.output_padding) > 0 or p.activation == "relu":
                raise NotImplementedError(
                    "transposed convolutions have no groups, dilation, output padding or ReLU"
                )
            options = schema.TransposeConvOptionsT()
            options.padding, (options.strideH, options.strideW) = schema.Padding.VALID, p.stride
            kind = schema.BuiltinOptions.TransposeConvOptions
            return self.run(p, p.a, p.weights, output, BUILTINS.TRANSPOSE_CONV, kind, options, 0)
        if not is_depthwise:
            return self.run(
                p, p.a, p.weights, output, BUILTINS.CONV_2D, schema.BuiltinOptions.Conv2DOptions, options, 0
            )
        options.depthMultiplier = len(p.weights) // p.groups
        return self.run(
            p,
            p.a,
            np.moveaxis(p.weights, 0, -1)[..., 0, :][None],
            output,
            BUILTINS.DEPTHWISE_CONV_2D,
            schema.BuiltinOptions.DepthwiseConv2DOptions,
            options,
            3,
        )


class BuiltIn(Xnnpack):
    kernels = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    name = "LiteRT, built-in kernels"


class Reference(Xnnpack):
    kernels = litert.OpResolverType.BUILTIN_REF
    name = "LiteRT, reference kernels"
