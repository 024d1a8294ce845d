"""against_engine.py MODEL DATA.npz [LAYERS]: does ONNX Runtime compute what the audit predicts for CPUs without VNNI?

Each audited matrix product and convolution gets the activations that MODEL's exact variant makes of DATA, and is run by itself
in the installed ONNX Runtime: natively on a CPU without VNNI, elsewhere under Debian's qemu-user as on a Haswell. Prints a line
for each layer. Exit status: 0 if every byte is the predicted one, 1 if not, 2 for bad input.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

_RUN = """
import sys, numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.intra_op_num_threads = 1
folder = sys.argv[1]
for i in range(int(sys.argv[2])):
    a = np.load(f"{folder}/{i}.npy")
    session = onnxruntime.InferenceSession(f"{folder}/{i}.onnx", options, providers=["CPUExecutionProvider"])
    np.save(f"{folder}/{i}_out.npy", session.run(None, {"a": a})[0])
    print(i, flush=True)
"""


def case(layer, scope, a):
    """A model of one operator on `a`, and the bytes that it is predicted to give."""
    from onnx import TensorProto, helper, numpy_helper

    from intact._audit import engines, pairing
    from intact._run import Sums, zero_point

    sums = Sums(layer, pairing(engines()["onnxruntime"], layer))
    constants = []

    def constant(name, value):
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    types = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8}
    if not layer.is_convolution:
        exact, predicted = sums(a, 0)
        predicted, exact = (s.reshape(*a.shape[:-1], -1) for s in (predicted, exact))
        nodes = [helper.make_node("MatMulInteger", ["a", constant("w", layer.weights)], ["y"])]
        out_type = TensorProto.INT32
    else:
        dq = layer.graph_node
        x, w = (scope.producer(name) for name in dq.input[:2])
        q = scope.consumers[dq.output[0]][0]
        if q.op_type == "Relu":  # left out here: the operator alone is compared
            q = scope.consumers[q.output[0]][0]
        xs, ws, ys = (scope.constant(node.input[1]).reshape(-1) for node in (x, w, q))
        yzp = scope.constant(q.input[2])
        bias = None
        if len(dq.input) > 2 and dq.input[2]:
            bias = scope.constant(scope.producer(dq.input[2]).input[0])
        point = zero_point(layer, scope)
        weights = np.moveaxis(layer.weights, -1, 1)
        inputs = ["a", constant("xs", xs.reshape(())), constant("xz", np.array(point, a.dtype)), constant("w", weights),
                  constant("ws", ws if ws.size > 1 else ws.reshape(())), constant("wz", np.zeros(ws.shape if ws.size > 1 else (), weights.dtype)),
                  constant("ys", ys.reshape(())), constant("yz", yzp.reshape(()))]
        if bias is not None:
            inputs.append(constant("bias", bias))
        node = helper.make_node("QLinearConv", inputs, ["y"])
        node.attribute.extend(dq.attribute)
        nodes = [node]
        raw = sums(a, point)
        column = layer.weights.reshape(len(layer.weights), -1).astype(np.int64).sum(axis=1)
        info = np.iinfo(yzp.dtype)
        scale = (xs * ws) / ys  # float32, step by step

        def requantized(s):
            y = s.astype(np.int64) - point * column + (0 if bias is None else bias)
            return np.clip(np.rint(y.astype(np.float32) * scale) + int(yzp.reshape(-1)[0]), info.min, info.max).astype(yzp.dtype)

        exact, predicted = (requantized(s) for s in raw)
        out_type = types[yzp.dtype]
    graph = helper.make_graph(nodes, "layer", [helper.make_tensor_value_info("a", types[a.dtype], list(a.shape))],
                              [helper.make_tensor_value_info("y", out_type, None)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, exact, predicted


def main() -> int:
    import onnx
    from onnx import helper
    from pathlib import Path

    from intact._audit import audit, cpu_clamps
    from intact._onnx import Scope
    from intact._run import exact_variant, session_of, load_data

    path, data = sys.argv[1:3]
    most = int(sys.argv[3]) if len(sys.argv) > 3 else None
    audited = audit(path)
    scope = Scope(audited.model.proto.graph, Path(path).parent)
    captured = exact_variant(audited)
    layers = [a.layer for a in audited.layers if a.layer.graph_node is not None and a.layer.activation and a.layer.a_type + a.layer.b_type == "u8s8"]
    layers = [layer for layer in layers if not layer.is_convolution or layer.is_qdq][:most]
    for name in dict.fromkeys(layer.activation for layer in layers):
        captured.graph.output.append(helper.make_empty_tensor_value_info(name))
    session = session_of(captured)
    values = dict(zip([o.name for o in session.get_outputs()], session.run(None, load_data(data)[0])))
    emulator = [] if cpu_clamps() else [shutil.which("qemu-x86_64") or "", "-cpu", "Haswell"]
    if emulator and not emulator[0]:
        print("against_engine: this CPU has VNNI; install qemu-user", file=sys.stderr)
        return 2
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        expected = []
        for layer in layers:
            model, exact, predicted = case(layer, scope, values[layer.activation])
            np.save(f"{folder}/{len(expected)}.npy", values[layer.activation])
            onnx.save(model, f"{folder}/{len(expected)}.onnx")
            expected.append((layer, exact, predicted))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        process = subprocess.run([*emulator, sys.executable, "-c", _RUN, folder, str(len(expected))], env=environment, capture_output=True, text=True)
        if process.returncode:
            print(process.stderr[-500:], file=sys.stderr)
            return 2
        for i, (layer, exact, predicted) in enumerate(expected):
            out = np.load(f"{folder}/{i}_out.npy")
            if layer.is_convolution:
                out = np.moveaxis(out, 1, -1).reshape(predicted.shape)
            different = int(np.count_nonzero(out != predicted))
            wrong += different > 0
            print(f"{layer.name}: {different} of {out.size} outputs are not the predicted ones; {np.count_nonzero(out != exact)} are not exact")
    print(f"{len(expected)} layers: {wrong} differ from the prediction")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
