"""wheel_root_test.py FILE: writes a model of two quantized layers, one safe and one that can saturate. If ONNX Runtime is there,
runs it on intact's execution provider, which must take both layers and give the bytes of NumPy."""

import importlib.util
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROWS, DEPTH = 4, 64


def write(path):
    random = np.random.default_rng(1)
    weights = [random.integers(-60, 61, (DEPTH, DEPTH), dtype=np.int8), np.full((DEPTH, DEPTH), 127, np.int8)]
    nodes = [helper.make_node("MatMulInteger", ["a", f"b{i}"], [f"y{i}"], name=f"layer{i}") for i in range(2)]
    graph = helper.make_graph(
        nodes,
        "two",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [ROWS, DEPTH])],
        [helper.make_tensor_value_info(f"y{i}", TensorProto.INT32, [ROWS, DEPTH]) for i in range(2)],
        [numpy_helper.from_array(b, f"b{i}") for i, b in enumerate(weights)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, path)
    return weights


def run(path, weights):
    import intact.onnxruntime
    import onnxruntime

    options = onnxruntime.SessionOptions()
    intact.onnxruntime.add(options)
    session = onnxruntime.InferenceSession(path, options)
    assert all(node["taken"] for node in intact.onnxruntime.report(session)), "the provider left a layer out"
    a = np.full((ROWS, DEPTH), 255, np.uint8)
    for b, y in zip(weights, session.run(None, {"a": a})):
        assert np.array_equal(y, a.astype(np.int64) @ b.astype(np.int64)), (
            "the provider's bytes differ from NumPy's"
        )
    print(f"the provider runs in ONNX Runtime {onnxruntime.__version__}, Python {sys.version.split()[0]}")


def main(path):
    weights = write(path)
    if importlib.util.find_spec("onnxruntime"):
        run(path, weights)


main(sys.argv[1])
