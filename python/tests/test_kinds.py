"""Kinds of models that `intact audit --data`, `compare` and `repair --check` must answer: by a right verdict, or by one line that
says what they do not read."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from intact import _program  # noqa: E402
from intact._audit.audit import cpu_clamps  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

f32 = np.float32


class Pair:
    """A quantized model, its float model, and data. `nodes`, `floats`: the operators of both."""

    def __init__(self, opset=17):
        self.opset, self.nodes, self.floats, self.constants, self.shape = opset, [], [], {}, (2, 4)

    def both(self, op, inputs, outputs, **attributes):
        for nodes in (self.nodes, self.floats):
            nodes.append(helper.make_node(op, inputs, outputs, name=outputs[0], **attributes))

    def quantized(self, op, inputs, outputs, **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs, name=outputs[0], **attributes))

    def write(self, folder):
        """The paths of the quantized model, of the float model, and of the data."""
        paths = []
        for name, nodes in (("q", self.nodes), ("f", self.floats)):
            graph = helper.make_graph(
                nodes,
                name,
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(self.shape))],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                [numpy_helper.from_array(np.asarray(value), key) for key, value in self.constants.items()],
            )
            opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
            paths.append(folder / f"{name}.onnx")
            onnx.save(
                helper.make_model(graph, ir_version=8 if self.opset < 21 else 10, opset_imports=opsets),
                str(paths[-1]),
            )
        x = np.random.default_rng(1).uniform(0, 1, self.shape)
        x.reshape(-1)[:2] = 1
        np.savez(folder / "d.npz", x=x.astype(f32))
        return *paths, folder / "d.npz"


def weights(k, n):
    """s8 weights whose first two depths saturate together with activations of 255."""
    w = np.random.default_rng(0).integers(-40, 41, (k, n)).astype(np.int8)
    w[:2] = 127
    return w


def dynamic(p, x, name, y):
    """MatMulInteger of the quantized model: its nodes."""
    return [
        helper.make_node("DynamicQuantizeLinear", [x], [f"{y}q", f"{y}s", f"{y}z"]),
        helper.make_node("MatMulInteger", [f"{y}q", name, f"{y}z"], [f"{y}i"], name=y),
        helper.make_node("Cast", [f"{y}i"], [f"{y}c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", [f"{y}c", f"{y}s"], [f"{y}r"]),
        helper.make_node("Mul", [f"{y}r", "ws"], [y]),
    ]


def resize():
    p = Pair()
    p.shape = (1, 4, 3, 3)
    w = weights(4, 8).T.reshape(8, 4, 1, 1)
    p.constants = {
        "w": w,
        "wf": w * f32(0.01),
        "s": f32(1 / 255),
        "z": np.uint8(0),
        "ws": f32(0.01),
        "wz": np.int8(0),
        "ys": f32(0.05),
        "yz": np.uint8(128),
        "k": f32([1, 1, 2, 2]),
    }
    p.quantized("QuantizeLinear", ["x", "s", "z"], ["xq"])
    p.quantized("DequantizeLinear", ["xq", "s", "z"], ["xd"])
    p.quantized("DequantizeLinear", ["w", "ws", "wz"], ["wd"])
    p.quantized("Conv", ["xd", "wd"], ["c"])
    p.quantized("QuantizeLinear", ["c", "ys", "yz"], ["cq"])
    p.quantized("DequantizeLinear", ["cq", "ys", "yz"], ["cd"])
    p.quantized("Resize", ["cd", "", "k"], ["y"], mode="nearest")
    p.floats = [
        helper.make_node("Conv", ["x", "wf"], ["c"]),
        helper.make_node("Resize", ["c", "", "k"], ["y"], mode="nearest"),
    ]
    return p


def sixteen_bits():
    p = Pair(21)
    w = weights(4, 8)
    p.constants = {
        "w": w,
        "wf": w * f32(0.01),
        "s": f32(1 / 65535),
        "z": np.uint16(0),
        "ws": f32(0.01),
        "wz": np.int8(0),
        "ys": f32(0.001),
        "yz": np.uint16(32768),
    }
    p.quantized("QuantizeLinear", ["x", "s", "z"], ["xq"])
    p.quantized("DequantizeLinear", ["xq", "s", "z"], ["xd"])
    p.quantized("DequantizeLinear", ["w", "ws", "wz"], ["wd"])
    p.quantized("MatMul", ["xd", "wd"], ["c"])
    p.quantized("QuantizeLinear", ["c", "ys", "yz"], ["cq"])
    p.quantized("DequantizeLinear", ["cq", "ys", "yz"], ["y"])
    p.floats = [helper.make_node("MatMul", ["x", "wf"], ["y"])]
    return p


def weight_only(bits):
    p = Pair(21)
    p.shape = (2, 32)
    w = weights(32, 8) if bits == 8 else np.clip(weights(32, 8), -8, 7)
    p.constants = {"wf": w * f32(0.01), "ws": np.full((1, 8) if bits == 4 else (), 0.01, f32)}
    kind = TensorProto.INT8 if bits == 8 else TensorProto.INT4
    stored = helper.make_tensor("w", kind, w.shape, w.reshape(-1).tolist())
    p.nodes = [helper.make_node("Constant", [], ["w"], value=stored)]
    p.quantized(
        "DequantizeLinear", ["w", "ws"], ["wd"], **({"axis": 0, "block_size": 32} if bits == 4 else {})
    )
    p.quantized("MatMul", ["x", "wd"], ["y"])
    p.floats = [helper.make_node("MatMul", ["x", "wf"], ["y"])]
    return p


def inner_graphs():
    p = Pair()
    w = weights(4, 8)
    p.constants = {"w": w, "wf": w * f32(0.01), "ws": f32(0.01), "yes": np.array(True)}
    p.nodes, p.floats = [], []

    def branches(make):
        return {
            f"{name}_branch": helper.make_graph(
                make(name), name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)]
            )
            for name in ("then", "else")
        }

    p.nodes.append(
        helper.make_node("If", ["yes"], ["y"], **branches(lambda name: dynamic(p, "x", "w", name)))
    )
    p.floats.append(
        helper.make_node(
            "If", ["yes"], ["y"], **branches(lambda name: [helper.make_node("MatMul", ["x", "wf"], [name])])
        )
    )
    return p


def lstm():
    p = Pair()
    p.shape, hidden = (5, 2, 4), 4
    w, r = (weights(4, 4 * hidden)[None] for _ in range(2))
    order = [a.transpose(0, 2, 1) * f32(0.01) for a in (w, r)]
    p.constants = {
        "w": w,
        "r": r,
        "s": f32([0.01]),
        "z": np.zeros(1, np.int8),
        "wf": order[0],
        "rf": order[1],
        "axes": np.array([1]),
    }
    p.nodes = [
        helper.make_node(
            "DynamicQuantizeLSTM",
            ["x", "w", "r", "", "", "", "", "", "s", "z", "s", "z"],
            ["h"],
            name="l",
            domain="com.microsoft",
            hidden_size=hidden,
        )
    ]
    p.floats = [helper.make_node("LSTM", ["x", "wf", "rf"], ["h"], hidden_size=hidden)]
    p.both("Squeeze", ["h", "axes"], ["y"])
    return p


def activations():
    """A product of two activations only."""
    p = Pair()
    p.shape = (4, 4)
    p.nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "q", "z", "z"], ["i"], name="p"),
        helper.make_node("Cast", ["i"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["c", "s"], ["r"]),
        helper.make_node("Mul", ["r", "s"], ["y"]),
    ]
    p.floats = [helper.make_node("MatMul", ["x", "x"], ["y"])]
    return p


KINDS = {
    "Resize": resize,
    "16 bits": sixteen_bits,
    "weight-only, 8 bits": lambda: weight_only(8),
    "weight-only, 4 bits": lambda: weight_only(4),
    "inner graphs": inner_graphs,
    "LSTM": lstm,
    "two activations": activations,
}

# By kind and command: the exit status, and words of the last line, or of the one line on stderr.
PRODUCT_PROVEN, UNKNOWN = (
    "1 product of two activations is proven safe",
    "it is not known how many sums of 2 of 2 layers are wrong",
)
NO_LAYER, PROVEN = (
    "no quantized layer with constant weights",
    "proven safe in ONNX Runtime, whatever the input",
)
ANSWERS = {
    "Resize": (
        (1, "on your data 1 of 1 layer computes wrong sums"),
        (0, "1 of 1 layer computes wrong sums on this data"),
        (0, PROVEN),
    ),
    "16 bits": ((2, NO_LAYER), (2, NO_LAYER), (2, NO_LAYER)),
    "weight-only, 8 bits": ((2, NO_LAYER), (2, NO_LAYER), (2, NO_LAYER)),
    "weight-only, 4 bits": ((2, NO_LAYER), (2, NO_LAYER), (2, NO_LAYER)),
    "inner graphs": (
        (1, UNKNOWN),
        (2, "2 quantized layers, all in inner graphs, which compare does not read"),
        (0, PROVEN),
    ),
    "LSTM": ((1, UNKNOWN), (0, UNKNOWN), (0, PROVEN)),
    "two activations": ((0, PRODUCT_PROVEN), (2, NO_LAYER), (0, PRODUCT_PROVEN)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_model_gets_an_answer(tmp_path, capsys, kind):
    pytest.importorskip("onnxruntime")
    if onnx.defs.onnx_opset_version() < 21 and kind in (
        "16 bits",
        "weight-only, 4 bits",
        "weight-only, 8 bits",
    ):
        pytest.skip("this onnx has no operators of opset 21")
    stored, before, data = map(str, KINDS[kind]().write(tmp_path))
    commands = [
        (_program._audit, stored, "--data", data, "--float", before),
        (_program._compare, stored, before, "--data", data),
        (_program._repair, stored, "-o", str(tmp_path / "r.onnx"), "--check", "--data", data),
    ]
    exact_here = [
        "against exact sums: identical",
        "against exact sums: identical",
        "stored equal bit for bit",
    ]
    for (command, *arguments), (status, words), exact in zip(commands, ANSWERS[kind], exact_here):
        assert command(arguments) == status  # an exception would be a traceback
        printed, error = capsys.readouterr()
        if error:
            assert error.count("\n") == 1 and not printed and words in error
        else:
            assert words in printed.splitlines()[-1] and "WRONG" not in printed
            assert cpu_clamps() or exact in printed
