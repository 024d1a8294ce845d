"""networks.py OUT [--score]: small networks, trained on scikit-learn's digits and quantized by the engines' own tools.

Writes OUT/NETWORK_float.onnx, OUT/NETWORK_HOW.onnx, OUT/digits.npz (inputs of 16 digits) and OUT/held_out.npz (400 digits and their
labels), and prints the share of the held-out digits that each model recognises. `--score` only prints, in an emulator, say.
Needs torch, scikit-learn, onnx and onnxruntime; models of NNCF need nncf and openvino.
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

import numpy as np

HELD_OUT = 400
CALIBRATION = 200
WIDTH = 32  # of the encoder


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 1, 8, 8) of 0 to 1, in random order, and their labels."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return (x[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8), y[order]


# ----- the networks -------------------------------------------------------------------------------------------------


def mobile():
    """Like MobileNetV2: inverted residuals of pointwise and depthwise convolutions, ReLU6."""
    from torch import nn

    class Inverted(nn.Module):
        def __init__(self, inputs, outputs, stride=1, factor=4):
            super().__init__()
            inner = inputs * factor
            self.body = nn.Sequential(
                nn.Conv2d(inputs, inner, 1, bias=False),
                nn.BatchNorm2d(inner),
                nn.ReLU6(),
                nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
                nn.BatchNorm2d(inner),
                nn.ReLU6(),
                nn.Conv2d(inner, outputs, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )
            self.is_residual = stride == 1 and inputs == outputs

        def forward(self, x):
            return x + self.body(x) if self.is_residual else self.body(x)

    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1, bias=False),
        nn.BatchNorm2d(12),
        nn.ReLU6(),
        Inverted(12, 12),
        Inverted(12, 20, 2),
        Inverted(20, 20),
        Inverted(20, 20),
        Inverted(20, 33, 2),
        Inverted(33, 33),
        nn.Conv2d(33, 64, 1),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def residual():
    """Like ResNet, with one block of groups like ResNeXt's. With odd numbers of channels, pairs across taps differ from pairs
    within."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride=1, groups=1):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, groups=groups, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
                nn.Conv2d(outputs, outputs, 3, 1, 1, groups=groups, bias=False),
                nn.BatchNorm2d(outputs),
            )
            self.short = (
                nn.Identity() if (inputs, stride) == (outputs, 1) else nn.Conv2d(inputs, outputs, 1, stride)
            )
            self.last = nn.ReLU()

        def forward(self, x):
            return self.last(self.body(x) + self.short(x))

    return nn.Sequential(
        nn.Conv2d(1, 15, 3, padding=1, bias=False),
        nn.BatchNorm2d(15),
        nn.ReLU(),
        Block(15, 15),
        Block(15, 20, 2),
        Block(20, 20, groups=4),
        Block(20, 36, 2),
        Block(36, 36, groups=6),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(36, 10),
    )


def encoder():
    """Like BERT: each line of pixels is a token; two layers of attention and feed-forward."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self, heads=4):
            super().__init__()
            self.heads = heads
            self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
            self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

        def forward(self, x):
            def split(t):
                return t.reshape(-1, 8, self.heads, WIDTH // self.heads).permute(0, 2, 1, 3)

            q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
            weights = torch.softmax(q @ k.transpose(-1, -2) / (WIDTH / self.heads) ** 0.5, -1)
            x = self.first(x + self.o((weights @ v).permute(0, 2, 1, 3).reshape(-1, 8, WIDTH)))
            return self.second(x + self.down(nn.functional.gelu(self.up(x))))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.place = nn.Linear(8, WIDTH), nn.Parameter(0.1 * torch.randn(8, WIDTH))
            self.layers, self.last = nn.Sequential(Layer(), Layer()), nn.Linear(WIDTH, 10)

        def forward(self, x):
            return self.last(self.layers(self.embed(x.reshape(-1, 8, 8)) + self.place).mean(1))

    return Encoder()


def recurrent():
    """An LSTM that reads line after line."""
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.last = nn.LSTM(8, 48, bidirectional=True), nn.Linear(96, 10)

        def forward(self, x):
            y, _ = self.lstm(x.reshape(-1, 8, 8).permute(1, 0, 2))
            return self.last(y.mean(0))

    return Recurrent()


NETWORKS = {"mobile": mobile, "residual": residual, "encoder": encoder, "recurrent": recurrent}


def trained(make, x: np.ndarray, y: np.ndarray, epochs: int = 20):
    """A network trained on the digits x, y with a fixed seed."""
    import torch

    torch.set_num_threads(1)  # the networks are small
    torch.manual_seed(0)
    network = make()
    rate = torch.optim.lr_scheduler.OneCycleLR
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3)
    images, labels = torch.tensor(x), torch.tensor(y)
    steps = -(-len(x) // 64)
    schedule = rate(optimizer, 5e-3, total_steps=epochs * steps)
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for part in order.split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(images[part]), labels[part]).backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def export(network, path: Path) -> None:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.zeros(2, 1, 8, 8),),
            str(path),
            input_names=["x"],
            output_names=["y"],
            opset_version=17,
            dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
            dynamo=False,
        )


# ----- the engines' tools -------------------------------------------------------------------------------------------


def coarser(path: Path) -> dict:
    """For ONNX Runtime's tool: each activation of a QDQ model quantized to 0 to 127."""
    import onnx

    graph = onnx.load(str(path)).graph
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = {}
    for node in graph.node:
        if node.op_type == "QuantizeLinear":
            scale, point = (constants[name] for name in node.input[1:])
            found[node.input[0]] = [
                {
                    "scale": np.array(scale * 255 / 127, np.float32),
                    "zero_point": np.array(np.rint(point * (127 / 255)), np.uint8),
                }
            ]
    return found


def quantize_onnxruntime(source: Path, out: Path, name: str, x: np.ndarray) -> None:
    """Models of ONNX Runtime's tool: static and dynamic, as QDQ and as quantized operators, with 7 bits for the weights or the
    activations; and dynamic models after its optimizer."""
    import onnxruntime
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = out / f"{name}_prepared.onnx"
    quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.runs = iter(x[:CALIBRATION])

        def get_next(self):
            image = next(self.runs, None)
            return None if image is None else {"x": image[None]}

    unsigned, signed = QuantType.QUInt8, QuantType.QInt8
    ways = {
        "qdq": (QuantFormat.QDQ, unsigned, signed),
        "qdq_s8s8": (QuantFormat.QDQ, signed, signed),
        "qoperator": (QuantFormat.QOperator, unsigned, signed),
        "qoperator_s8s8": (QuantFormat.QOperator, signed, signed),
        "qoperator_u8u8": (QuantFormat.QOperator, unsigned, unsigned),
        "qdq_weights7": (QuantFormat.QDQ, unsigned, signed),
        "qdq_activations7": (QuantFormat.QDQ, unsigned, signed),
    }
    for way, (form, a_type, w_type) in ways.items():
        coarse = (
            {"TensorQuantOverrides": coarser(out / f"{name}_qdq.onnx")} if way == "qdq_activations7" else {}
        )
        quantize_static(
            str(prepared),
            str(out / f"{name}_{way}.onnx"),
            Reader(),
            quant_format=form,
            per_channel=True,
            activation_type=a_type,
            weight_type=w_type,
            reduce_range=way == "qdq_weights7",
            extra_options=coarse,
        )
    dynamic = out / f"{name}_dynamic.onnx"
    quantize_dynamic(str(prepared), str(dynamic), per_channel=True, weight_type=signed)
    quantize_dynamic(
        str(prepared),
        str(out / f"{name}_dynamic_weights7.onnx"),
        per_channel=True,
        weight_type=signed,
        reduce_range=True,
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    # DynamicQuantizeMatMul, MatMulIntegerToFloat
    options.optimized_model_filepath = str(out / f"{name}_fused.onnx")
    onnxruntime.InferenceSession(str(dynamic), options, providers=["CPUExecutionProvider"])
    prepared.unlink()


def quantize_attention(source: Path, out: Path, name: str) -> None:
    """With ONNX Runtime's Attention, which its tool makes QAttention."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model

    fused = out / f"{name}_attention_float.onnx"
    optimize_model(str(source), model_type="bert", num_heads=4, hidden_size=WIDTH).save_model_to_file(
        str(fused)
    )
    quantize_dynamic(
        str(fused),
        str(out / f"{name}_attention.onnx"),
        weight_type=QuantType.QInt8,
        extra_options={"DefaultTensorType": 1},
    )  # float: shape inference does not know Attention


def quantize_nncf(source: Path, out: Path, name: str, x: np.ndarray) -> None:
    """Models of NNCF, from the ONNX model and from OpenVINO's."""
    import nncf
    import onnx
    import openvino

    nncf.set_log_level(logging.ERROR)
    kind = nncf.ModelType.TRANSFORMER if name == "encoder" else None
    data = nncf.Dataset([{"x": image[None]} for image in x[:CALIBRATION]])
    model = nncf.quantize(onnx.load(str(source)), data, model_type=kind, subset_size=CALIBRATION)
    onnx.save(model, str(out / f"{name}_nncf.onnx"))
    model = nncf.quantize(
        openvino.Core().read_model(str(source)), data, model_type=kind, subset_size=CALIBRATION
    )
    openvino.save_model(model, str(out / f"{name}_nncf.xml"), compress_to_fp16=False)


def score(out: Path) -> None:
    """Prints how many of the held-out digits each model recognises on this CPU."""
    import onnxruntime

    with np.load(out / "held_out.npz") as held_out:
        x, y = held_out["x"], held_out["labels"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    for path in sorted(out.glob("*.onnx")):
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        # One digit at a time: dynamic quantization looks at the whole batch.
        answers = [session.run(None, {"x": image[None]})[0].argmax() for image in x]
        print(f"{path.name}: {np.count_nonzero(np.array(answers) == y)} of {len(y)} right", flush=True)


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--score"]):
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(sys.argv[1])
    if "--score" not in sys.argv:
        logging.disable(logging.WARNING)
        out.mkdir(parents=True, exist_ok=True)
        x, y = digits()
        np.savez(out / "held_out.npz", x=x[:HELD_OUT], labels=y[:HELD_OUT])
        np.savez(out / "digits.npz", x=x[:16])
        x, y = x[HELD_OUT:], y[HELD_OUT:]
        for name, make in NETWORKS.items():
            source = out / f"{name}_float.onnx"
            export(trained(make, x, y), source)
            quantize_onnxruntime(source, out, name, x)
            if name == "encoder":
                quantize_attention(source, out, name)
            try:
                quantize_nncf(source, out, name, x)
            except ImportError:
                print("without NNCF: it is not installed", file=sys.stderr)
            print(f"{name}: trained and quantized", file=sys.stderr, flush=True)
    score(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
