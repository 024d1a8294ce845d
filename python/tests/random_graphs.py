"""Random small quantized ONNX graphs for test_repair.py, and a plain evaluator of their operators."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

HEAVY = 1 / 3  # of the channels: two heavy ones saturate together


def weights_of(rng, k, *columns):
    """int8 (k, *columns), a row for each channel."""
    limits = np.where(rng.permutation(k) < np.ceil(k * HEAVY), 95, 30).reshape(k, *[1] * len(columns))
    return np.rint(np.clip(rng.laplace(size=(k, *columns)) * 0.6, -1, 1) * limits).astype(np.int8)


class Graph:
    """A graph that grows by random operators."""

    def __init__(self, rng, opset=17):
        self.rng, self.opset = rng, opset
        self.nodes, self.constants, self.outputs = [], {}, []
        self.inputs: dict[str, tuple] = {}
        self.count = 0
        self.quantized: dict[str, list] = {}

    def name(self, prefix="t"):
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, value, prefix="c"):
        name = self.name(prefix)
        self.constants[name] = np.asarray(value)
        return name

    def node(self, op, inputs, outputs=1, domain="", **attributes):
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(
            helper.make_node(op, inputs, names, name=f"n{self.count}", domain=domain, **attributes)
        )
        return names[0] if outputs == 1 else names

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def power(self, low=-3, high=0):
        """A scale whose products are exact."""
        return np.float32(2.0 ** self.rng.integers(low, high + 1))

    def model(self, dynamic=False):
        shape = (lambda s: [n if k != 1 else "s" for k, n in enumerate(s)]) if dynamic else list
        kinds = {"x": TensorProto.FLOAT, "u": TensorProto.UINT8, "i": TensorProto.INT64}
        graph = helper.make_graph(
            self.nodes,
            "random",
            [
                helper.make_tensor_value_info(name, kinds[name[0]], shape(s))
                for name, s in self.inputs.items()
            ],
            [helper.make_empty_tensor_value_info(name) for name in self.outputs],
            [
                numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
                for name, value in self.constants.items()
            ],
        )
        for value in graph.output:
            value.type.tensor_type.elem_type = self.type_of(value.name)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, ir_version=8, opset_imports=opsets)

    def type_of(self, name):
        return TensorProto.UINT8 if name in self.u8 else TensorProto.FLOAT

    u8: set = frozenset()


# ----- activations quantized at run time ---------------------------------------------------------------------------------


class Dynamic(Graph):
    """Float tensors (1, S, C), quantized before each product, as quantize_dynamic makes them."""

    S = 5

    def quantize(self, x):
        if x not in self.quantized:
            self.quantized[x] = self.node("DynamicQuantizeLinear", [x], 3)
        return self.quantized[x]

    def linear(self, x, c, n, shared=None):
        rng = self.rng
        w = shared or self.constant(weights_of(rng, c, n), "w")
        way = self.pick("integer", "integer", "to_float", "quantize")
        scale = self.constant(
            self.power() if rng.random() < 0.5 else np.float32(2.0 ** rng.integers(-4, 0, n))
        )
        bias = self.constant(rng.integers(-8, 8, n).astype(np.float32))
        if way == "quantize":
            return self.node("DynamicQuantizeMatMul", [x, w, scale, "", bias], domain="com.microsoft")
        q, step, point = self.quantize(x)
        if way == "to_float":
            return self.node(
                "MatMulIntegerToFloat", [q, w, step, scale, point, "", bias], domain="com.microsoft"
            )
        zero = self.constant(np.int8(0) if rng.random() < 0.7 else np.zeros(n, np.int8))
        y = self.node(
            "Cast", [self.node("MatMulInteger", [q, w, point] + [zero] * (rng.random() < 0.5))], to=1
        )
        y = self.node("Mul", [y, self.node("Mul", [step, scale])])
        return self.node("Add", [y, bias] if rng.random() < 0.5 else [bias, y]) if rng.random() < 0.7 else y

    def grow(self, steps):
        rng = self.rng
        tensors = []
        if rng.random() < 0.4:
            self.inputs["ids"] = (1, self.S)
            c = int(rng.integers(2, 9)) * 4
            table = self.constant(rng.integers(-64, 64, (11, c)).astype(np.float32) / 8, "table")
            if rng.random() < 0.5:
                stored = self.constant(rng.integers(0, 256, (11, c)).astype(np.uint8), "table")
                step, zero = self.constant(np.float32(0.125)), self.constant(np.uint8(128))
                tensors.append(
                    (self.node("DequantizeLinear", [self.node("Gather", [stored, "ids"]), step, zero]), c)
                )
            else:
                tensors.append((self.node("Gather", [table, "ids"]), c))
        if not tensors or rng.random() < 0.5:
            c = int(rng.integers(2, 9)) * 4
            self.inputs["x"] = (1, self.S, c)
            tensors.append(("x", c))
            tensors.append((self.linear("x", c, c), c))
        for _ in range(steps):
            x, c = tensors[rng.integers(len(tensors))] if rng.random() < 0.4 else tensors[-1]
            found = self.step(x, c, tensors)
            if found is not None:
                tensors += found
        self.outputs = [name for name, _ in tensors[-1:]]
        self.outputs += [name for name, _ in tensors[1:-1] if rng.random() < 0.1]
        self.outputs = list(dict.fromkeys(self.outputs))
        return self

    def step(self, x, c, tensors):
        rng = self.rng
        op = self.pick(
            "linear",
            "linear",
            "linear",
            "linear",
            "residual",
            "residual",
            "shared",
            "relu",
            "gate",
            "affine",
            "concat",
            "split",
            "heads",
            "attention",
            "norm",
            "rms",
            "mean",
            "strange",
            "slice",
            "square",
            "softmax",
            "pad",
            "batch",
        )
        if op == "linear":
            n = int(rng.integers(1, 10)) * self.pick(1, 2, 4)
            return [(self.linear(x, c, n), n)]
        if op == "residual":
            y = self.node("Relu", [self.linear(x, c, 2 * c)])
            y = self.linear(y, 2 * c, c)
            return [(self.node("Add", [x, y] if rng.random() < 0.5 else [y, x]), c)]
        if op == "shared":  # one matrix for two layers
            w = self.constant(weights_of(rng, c, c), "w")
            y = self.linear(x, c, c, w)
            return [(self.linear(self.node("Relu", [y]), c, c, w), c)]
        if op == "relu":
            return [(self.node(self.pick("Relu", "Abs", "Neg", "Identity"), [x]), c)]
        if op == "gate":
            return [
                (
                    self.node(
                        "Mul", [self.linear(x, c, c), self.node("HardSigmoid", [self.linear(x, c, c)])]
                    ),
                    c,
                )
            ]
        if op == "affine":
            shape = self.pick((c,), (1, 1, c), (1,), (1, c))
            y = self.node("Mul", [x, self.constant((2.0 ** rng.integers(-1, 2, shape)).astype(np.float32))])
            return [(self.node("Add", [self.constant(rng.integers(-4, 4, (c,)).astype(np.float32)), y]), c)]
        if op == "concat":
            other, d = tensors[rng.integers(len(tensors))]
            return [(self.node("Concat", [x, other], axis=self.pick(2, -1)), c + d)] if c + d < 120 else None
        if op == "split" and c >= 8:
            a = int(rng.integers(1, c // 2)) * 2
            first, second = self.node("Split", [x, self.constant(np.array([a, c - a]))], 2, axis=-1)
            return [(first, a), (second, c - a)]
        if op == "heads" and c % 4 == 0:
            h = self.pick(2, 4)
            y = self.node(
                "Reshape",
                [x, self.constant(np.array([self.pick(0, 1), self.pick(self.S, 0, -1), h, c // h]))],
            )
            y = self.node("Transpose", [y], perm=[0, 2, 1, 3])
            if rng.random() < 0.5:
                shape = self.pick((h, 1, 1), (c // h,), (1, h, 1, c // h))
                y = self.node(
                    "Mul", [y, self.constant((2.0 ** rng.integers(-1, 2, shape)).astype(np.float32))]
                )
            y = self.node("Transpose", [y], perm=self.pick([0, 2, 1, 3], [0, 2, 1, 3], [0, 2, 3, 1]))
            return [(self.node("Reshape", [y, self.constant(np.array([1, self.S, self.pick(-1, c)]))]), c)]
        if op == "attention" and c % 4 == 0:
            h = self.pick(2, 4)
            parts = []
            for permutation in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
                y = self.node("Reshape", [self.linear(x, c, c), self.constant(np.array([0, -1, h, c // h]))])
                parts.append(self.node("Transpose", [y], perm=permutation))
            scores = self.node("Softmax", [self.node("MatMul", parts[:2])], axis=-1)
            y = self.node("Transpose", [self.node("MatMul", [scores, parts[2]])], perm=[0, 2, 1, 3])
            y = self.node("Reshape", [y, self.constant(np.array([0, -1, c]))])
            return [(self.node("Add", [x, self.linear(y, c, c)]), c)]
        if op == "norm":
            gain, bias = (
                self.constant(np.ones(c, np.float32) * 2),
                self.constant(rng.integers(-4, 4, c).astype(np.float32)),
            )
            return [(self.node("LayerNormalization", [x, gain, bias]), c)]
        if op == "rms":
            mean = self.node("ReduceMean", [self.node("Mul", [x, x])], axes=[-1], keepdims=1)
            return [
                (
                    self.node(
                        "Div",
                        [x, self.node("Sqrt", [self.node("Add", [mean, self.constant(np.float32(1))])])],
                    ),
                    c,
                )
            ]
        if op == "mean":
            return [(self.node("Add", [x, self.node("ReduceMax", [x], axes=[1], keepdims=1)]), c)]
        if op == "strange":  # an unknown operator
            return [(self.node("CumSum", [x, self.constant(np.int64(self.pick(1, 2)))]), c)]
        if op == "slice" and c >= 8:
            begin = int(rng.integers(0, c // 2))
            end = int(rng.integers(begin + 1, c + 1))
            y = self.node("Slice", [x, *(self.constant(np.array([n])) for n in (begin, end, 2))])
            return [(y, end - begin)]
        if op == "square" and c == self.S * 4:  # channels and rows change places
            y = self.node("Transpose", [x], perm=[0, 2, 1])
            return [(self.node("Reshape", [y, self.constant(np.array([1, self.S, c]))]), c)]
        if op == "softmax":
            return [(self.node("Softmax", [x], axis=self.pick(-1, 1)), c)]
        if op == "pad":
            extra = self.pick(0, 0, 2)
            return [(self.node("Pad", [x, self.constant(np.array([0, 0, 0, 0, 0, extra]))]), c + extra)]
        if op == "batch":
            y = self.node("Transpose", [x], perm=[0, 2, 1])
            values = [self.constant((2.0 ** rng.integers(-1, 2, c)).astype(np.float32)) for _ in range(4)]
            y = self.node("BatchNormalization", [y, *values])
            return [(self.node("Transpose", [y], perm=[0, 2, 1]), c)]
        return None


# ----- statically quantized convolutions ---------------------------------------------------------------------------------


class Static(Graph):
    """u8 tensors (1, C, H, W), with quantized operators or between DequantizeLinear and QuantizeLinear."""

    def grow(self, steps):
        rng = self.rng
        self.u8 = set()
        self.is_qdq = rng.random() < 0.5
        c = self.pick(3, 4, 8)
        self.inputs["u"] = (1, c, 6, 6)
        self.scale, self.point = (
            self.constant(np.float32(2.0**-4)),
            self.constant(np.uint8(rng.integers(0, 140))),
        )
        self.s8_zero = self.constant(np.int8(0))
        tensors = [("u", c, 6)]
        tensors.append((self.convolution("u", c, 12, 3), 12, 6))
        for _ in range(steps):
            x, c, size = tensors[rng.integers(len(tensors))] if rng.random() < 0.3 else tensors[-1]
            found = self.step(x, c, size, tensors)
            if found is not None:
                tensors.append(found)
        if rng.random() < 0.5:
            x, c, size = tensors[-1]
            tensors.append((self.classifier(x, c, size), 10, 0))
        self.outputs = [tensors[-1][0]] + [name for name, *_ in tensors[1:-1] if rng.random() < 0.1]
        self.outputs = list(dict.fromkeys(self.outputs))
        return self

    def dequantized(self, x):
        return self.node("DequantizeLinear", [x, self.scale, self.point])

    def requantized(self, x):
        y = self.node("QuantizeLinear", [x, self.scale, self.point])
        self.u8.add(y)
        return y

    def convolution(self, x, c, o, kernel, groups=1):
        rng = self.rng
        w = weights_of(rng, c // groups, o, kernel, kernel).swapaxes(0, 1)
        if groups > 1:
            w = np.concatenate(
                [
                    weights_of(rng, c // groups, o // groups, kernel, kernel).swapaxes(0, 1)
                    for _ in range(groups)
                ]
            )
        w = self.constant(w, "w")
        each = (2.0 ** rng.integers(-8, -5, o)).astype(np.float32)
        scale = self.constant(each if rng.random() < 0.6 else np.float32(2.0**-7))
        wide = self.constants[scale].ndim
        zero = self.constant(np.zeros(o, np.int8)) if wide else self.s8_zero
        bias = self.constant(rng.integers(-500, 500, o).astype(np.int32))
        options = {"kernel_shape": [kernel, kernel], "pads": [kernel // 2] * 4, "group": groups}
        if not self.is_qdq:
            inputs = [x, self.scale, self.point, w, scale, zero, self.scale, self.point] + [bias] * (
                rng.random() < 0.8
            )
            y = self.node("QLinearConv", inputs, **options)
            self.u8.add(y)
            return y
        real = self.node("DequantizeLinear", [w, scale, zero], axis=0)
        product = self.constant((np.float32(2.0**-4) * self.constants[scale]).astype(np.float32))
        b = self.node("DequantizeLinear", [bias, product], axis=0)
        y = self.node("Conv", [self.dequantized(x), real, b], **options)
        if rng.random() < 0.5:
            y = self.node("Relu", [y])
        return self.requantized(y)

    def step(self, x, c, size, tensors):
        rng = self.rng
        op = self.pick(
            "conv",
            "conv",
            "conv",
            "conv",
            "pointwise",
            "pointwise",
            "depthwise",
            "grouped",
            "multiplier",
            "residual",
            "residual",
            "add",
            "pool",
            "concat",
            "squeeze",
            "shuffle",
            "tail",
        )
        if op == "conv":
            o = int(rng.integers(2, 9)) * self.pick(1, 2, 2)
            return self.convolution(x, c, o, self.pick(1, 3)), o, size
        if op == "pointwise":
            o = int(rng.integers(2, 9)) * 4
            return self.convolution(x, c, o, 1), o, size
        if op == "depthwise":
            return self.convolution(x, c, c, 3, c), c, size
        if op == "grouped" and c % 4 == 0:
            return self.convolution(x, c, 12, self.pick(1, 3), 2), 12, size
        if op == "multiplier" and c < 20:
            return self.convolution(x, c, 2 * c, 3, c), 2 * c, size
        if op == "residual":
            y = self.convolution(self.convolution(x, c, 2 * c, 1), 2 * c, c, self.pick(1, 3))
            return self.add(x, y), c, size
        if op == "add":
            others = [t for t in tensors if t[1:] == (c, size)]
            return self.add(x, others[rng.integers(len(others))][0]), c, size
        if op == "pool" and size > 2:
            y = self.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
            self.u8.add(y)
            return y, c, size // 2
        if op == "concat":
            others = [t for t in tensors if t[2] == size and t[1] + c < 64]
            if not others:
                return None
            other = others[rng.integers(len(others))]
            if self.is_qdq:
                y = self.requantized(
                    self.node("Concat", [self.dequantized(x), self.dequantized(other[0])], axis=1)
                )
            else:
                inputs = [self.scale, self.point, x, self.scale, self.point, other[0], self.scale, self.point]
                y = self.node("QLinearConcat", inputs, domain="com.microsoft", axis=1)
                self.u8.add(y)
            return y, c + other[1], size
        if op == "squeeze" and self.is_qdq:
            real = self.dequantized(x)
            mean = self.requantized(self.node("ReduceMax", [real], axes=[2, 3], keepdims=1))
            gate = self.convolution(self.convolution(mean, c, 8, 1), 8, c, 1)
            gate = self.node("HardSigmoid", [self.dequantized(gate)])
            return self.requantized(self.node("Mul", [real, gate])), c, size
        if op == "shuffle" and c % 2 == 0:
            y = self.node("Reshape", [x, self.constant(np.array([1, 2, c // 2, size, size]))])
            y = self.node("Transpose", [y], perm=[0, 2, 1, 3, 4])
            y = self.node("Reshape", [y, self.constant(np.array([1, c, size, size]))])
            self.u8.add(y)
            return y, c, size
        if op == "tail" and c >= 8:
            y = self.node(
                "Slice",
                [x, self.constant(np.array([4])), self.constant(np.array([c])), self.constant(np.array([1]))],
            )
            self.u8.add(y)
            return y, c - 4, size
        return None

    def add(self, x, y):
        if self.is_qdq:
            return self.requantized(self.node("Add", [self.dequantized(x), self.dequantized(y)]))
        inputs = [x, self.scale, self.point, y, self.scale, self.point, self.scale, self.point]
        z = self.node("QLinearAdd", inputs, domain="com.microsoft")
        self.u8.add(z)
        return z

    def classifier(self, x, c, size):
        rng = self.rng
        depth = c
        if rng.random() < 0.5 and size > 1:
            depth = c * size * size
        else:
            x = self.node("MaxPool", [x], kernel_shape=[size, size])
        x = (
            self.node("Flatten", [x])
            if rng.random() < 0.5
            else self.node("Reshape", [x, self.constant(np.array([1, depth]))])
        )
        w = weights_of(rng, depth, 10)
        transposed = rng.random() < 0.5
        w = self.constant(w.T if transposed else w, "w")
        scale = self.constant(np.float32(2.0**-8))
        if self.is_qdq:
            real = self.node("DequantizeLinear", [w, scale, self.s8_zero])
            if transposed and rng.random() < 0.5:
                y = self.node("MatMul", [self.dequantized(x), self.node("Transpose", [real], perm=[1, 0])])
            else:
                y = self.node("Gemm", [self.dequantized(x), real], transB=int(transposed))
            return self.requantized(y)
        bias = self.constant(rng.integers(-500, 500, 10).astype(np.int32))
        inputs = [x, self.scale, self.point, w, scale, self.s8_zero, bias, self.scale, self.point]
        y = self.node("QGemm", inputs, domain="com.microsoft", transB=int(transposed))
        self.u8.add(y)
        return y


def random_graph(seed):
    """A model, and its inputs."""
    rng = np.random.default_rng(seed)
    graph = Dynamic(rng) if seed % 2 else Static(rng, int(rng.integers(13, 18)))
    graph.grow(int(rng.integers(2, 12)))
    data = {}
    for name, shape in graph.inputs.items():
        data[name] = {
            "x": lambda: rng.standard_normal(shape).astype(np.float32),
            "i": lambda: rng.integers(0, 11, shape),
            "u": lambda: rng.integers(0, 256, shape).astype(np.uint8),
        }[name[0]]()
    return graph.model(dynamic=bool(seed % 2) and rng.random() < 0.5), data


# ----- the evaluator -----------------------------------------------------------------------------------------------------


def evaluate(model, data):
    """A model's outputs, computed by NumPy. Sums of floats do not depend on the places of their columns."""
    from intact._engines.data import dynamically_quantized
    from intact._graph.nodes import attributes

    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    values.update(data)

    def product(a, b):
        kind = np.int64 if a.dtype.kind in "iu" else np.float64
        return (a[..., :, :, None].astype(kind) * b[..., None, :, :].astype(kind)).sum(-2)

    def along(value, rank, axis):
        return (
            value.reshape([-1 if k == axis % rank else 1 for k in range(rank)]) if value.ndim == 1 else value
        )

    def dequantized(x, scale, point=0, axis=1):
        steps = x.astype(np.int64) - along(np.asarray(point, np.int64), x.ndim, axis)
        return (steps * along(scale, x.ndim, axis)).astype(np.float32)

    def quantized(x, scale, point):
        return np.clip(np.rint(x / np.float64(scale)) + np.float64(point), 0, 255).astype(np.uint8)

    def integers(a, point):
        return a.astype(np.int64) - (0 if point is None else np.asarray(point, np.int64))

    def convolution(x, w, o):
        pad, groups, k = o["pads"][0], o.get("group", 1), w.shape[2]
        x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
        view = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(2, 3))
        parts = []
        for part, rows in zip(np.split(view, groups, axis=1), np.split(w.astype(np.float64), groups)):
            # integers or multiples of a power of two: exact
            parts.append(np.einsum("nchwij,ocij->nohw", part, rows))
        return np.concatenate(parts, axis=1)

    def node_of(node):
        o = attributes(node)
        x = [values[name] if name else None for name in node.input]
        op = node.op_type
        if op == "DynamicQuantizeLinear":
            return dynamically_quantized(x[0])
        if op == "MatMulInteger":
            return product(integers(x[0], x[2]), integers(x[1], x[3] if len(x) > 3 else None))
        if op in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
            a, w, step, scale, point, zero, bias = (
                x if op[0] == "M" else [None, x[1], None, x[2], None, x[3], x[4]]
            )
            if op[0] == "D":
                a, step, point = dynamically_quantized(x[0])
            sums = product(integers(a, point), integers(w, zero))
            return (sums * (step * scale) + bias).astype(np.float32)
        if op == "QLinearConv":
            sums = convolution(integers(x[0], x[2]), integers(x[3], along(x[5], 4, 0)), o)
            sums += along(x[8], 4, 1) if len(x) > 8 else 0
            return quantized(sums * (x[1] * along(x[4], 4, 1)), x[6], x[7])
        if op == "Conv":
            return (convolution(x[0], x[1], o) + along(x[2], 4, 1)).astype(np.float32)
        if op == "QGemm":
            w = x[3].T if o.get("transB") else x[3]
            return quantized(
                (product(integers(x[0], x[2]), integers(w, x[5])) + x[6]) * (x[1] * x[4]), x[7], x[8]
            )
        if op in ("MatMul", "Gemm"):
            return product(x[0], x[1].T if o.get("transB") else x[1]).astype(np.float32)
        if op == "QLinearAdd":
            return quantized(dequantized(*x[:3]) + dequantized(*x[3:6]), *x[6:])
        if op == "QLinearConcat":
            return np.concatenate([x[2], x[5]], axis=o["axis"])  # of one scale
        if op == "LayerNormalization":
            a = x[0].astype(np.float64)
            return (
                (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * x[1] + x[2]
            ).astype(np.float32)
        if op == "BatchNormalization":
            gain, bias, mean, variance = (along(value, x[0].ndim, 1) for value in x[1:])
            return ((x[0] - mean) / np.sqrt(variance) * gain + bias).astype(np.float32)
        if op == "Softmax":
            e = np.exp(x[0] - x[0].max(o["axis"], keepdims=True))
            return e / e.sum(o["axis"], keepdims=True)
        if op == "MaxPool":
            k = o["kernel_shape"]
            view = np.lib.stride_tricks.sliding_window_view(x[0], tuple(k), axis=(2, 3)).max((-1, -2))
            return view[:, :, :: o.get("strides", [1, 1])[0], :: o.get("strides", [1, 1])[1]]
        if op == "Split":
            assert x[1].sum() == x[0].shape[o["axis"]]
            return np.split(x[0], np.cumsum(x[1])[:-1], axis=o["axis"])
        if op == "Slice":
            axis = int(x[3][0])
            return x[0].take(range(int(x[1][0]), min(int(x[2][0]), x[0].shape[axis])), axis=axis)
        if op == "Reshape":
            return x[0].reshape([x[0].shape[k] if n == 0 else int(n) for k, n in enumerate(x[1])])
        if op == "Gather":
            return x[0].take(x[1], axis=o.get("axis", 0))
        if op == "Pad":
            return np.pad(x[0], list(zip(x[1][: x[0].ndim], x[1][x[0].ndim :])))
        if op in ("ReduceMean", "ReduceMax"):
            reduce = np.mean if op == "ReduceMean" else np.max
            return reduce(x[0], axis=tuple(o["axes"]), keepdims=bool(o["keepdims"]))
        simple = {
            "Cast": lambda: x[0].astype(np.float32),
            "Mul": lambda: x[0] * x[1],
            "Add": lambda: x[0] + x[1],
            "Div": lambda: x[0] / x[1],
            "Sqrt": lambda: np.sqrt(x[0]),
            "Relu": lambda: np.maximum(x[0], 0),
            "Abs": lambda: np.abs(x[0]),
            "Neg": lambda: -x[0],
            "ConstantOfShape": lambda: np.zeros(x[0], np.float32),
            "Identity": lambda: x[0],
            "HardSigmoid": lambda: np.clip(np.float32(0.2) * x[0] + np.float32(0.5), 0, 1),
            "Concat": lambda: np.concatenate(x, axis=o["axis"]),
            "Transpose": lambda: x[0].transpose(o["perm"]),
            "CumSum": lambda: np.cumsum(x[0], axis=int(x[1])),
            "Flatten": lambda: x[0].reshape(len(x[0]), -1),
            "DequantizeLinear": lambda: dequantized(*x, axis=o.get("axis", 1)),
            "QuantizeLinear": lambda: quantized(*x),
        }
        return simple[op]()

    for node in model.graph.node:
        results = node_of(node)
        for name, value in zip(node.output, results if len(node.output) > 1 else [results]):
            values[name] = np.asarray(value)
    return [values[value.name] for value in model.graph.output]
