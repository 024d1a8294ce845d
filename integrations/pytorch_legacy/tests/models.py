"""Small models, quantized by PyTorch in each of its ways."""

import copy
import functools
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.ao.quantization import (
    DeQuantStub,
    MinMaxObserver,
    PerChannelMinMaxObserver,
    QConfig,
    QuantStub,
    convert,
    fuse_modules,
    prepare,
    quantize_dynamic,
)
from torch.ao.quantization.qconfig_mapping import QConfigMapping
from torch.ao.quantization.quantize_fx import convert_fx, fuse_fx, prepare_fx  # noqa: F401

QCONFIG = QConfig(
    activation=MinMaxObserver.with_args(dtype=torch.quint8, reduce_range=False),
    weight=PerChannelMinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_channel_symmetric),
)


class Block(nn.Module):
    """A residual block, as in torchvision's quantizable networks."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.norm = nn.BatchNorm2d(channels)
        self.add = torch.nn.quantized.FloatFunctional()

    def forward(self, x):
        return self.add.add_relu(self.norm(self.conv2(self.relu(self.conv1(x)))), x)


class Eager(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU())
        self.block = Block(8)
        self.reflected = nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10))

    def forward(self, x):
        x = self.reflected(self.block(self.stem(self.quant(x))))
        return self.dequant(self.head(torch.flatten(self.pool(x), 1)))


class Functional(nn.Module):
    """Modules and functional calls, for FX."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.weight = nn.Parameter(torch.randn(8, 4, 3, 3) * 0.2)
        self.bias = nn.Parameter(torch.randn(8))
        self.line = nn.Conv1d(8, 8, 3, padding=1)
        self.volume = nn.Parameter(torch.randn(8, 8, 1, 1, 1) * 0.2)
        self.matrix, self.offset = nn.Parameter(torch.randn(10, 8)), nn.Parameter(torch.randn(10))

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x) + x)
        x = F.relu(F.conv2d(x, self.weight, self.bias, (1, 1), (1, 1), (1, 1), 2))
        x = self.line(x.flatten(2))
        x = F.conv3d(x.reshape(-1, 8, 1, 6, 6), self.volume, self.bias, (1, 1, 1), (0, 0, 0), (1, 1, 1), 1)
        return F.linear(x.mean((2, 3, 4)), self.matrix, self.offset)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.rnn = nn.LSTM(32, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        x = self.out(torch.softmax(q @ k.transpose(-1, -2) / 6, -1) @ v)
        return self.rnn(x)[0]


class Gate(nn.Module):
    """A sum of convolutions that broadcasts. One of them is called twice."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow, self.pool = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        return self.wide(x) + self.narrow(self.narrow(self.pool(x)))


class Calls(nn.Module):
    """A user's own calls of PyTorch's quantized operators."""

    def __init__(self, call, prepack=torch.ops.quantized.linear_prepack, shape=(8, 4)):
        super().__init__()
        g = torch.Generator().manual_seed(1)
        weight = torch.quantize_per_tensor(torch.randn(shape, generator=g), 0.02, 0, torch.qint8)
        dims = len(shape) - 2
        geometry = [[1] * dims, [0] * dims, [1] * dims, 1] if dims else []
        self.packed, self.call = prepack(weight, None, *geometry), call

    def forward(self, x):
        return self.call(torch.quantize_per_tensor(x, 0.03, 120, torch.quint8), self.packed).dequantize()


@functools.cache
def clamps(engine):
    """Whether an engine of PyTorch clamps sums of two products to int16, as onednn and fbgemm do on a CPU without VNNI. The
    engine is asked, not the CPU: environment variables can limit oneDNN and intact to older instructions."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine
    input = torch._make_per_tensor_quantized_tensor(torch.full([1, 64], 255, dtype=torch.uint8), 1.0, 0)
    integers = torch.zeros(16, 64, dtype=torch.int8)
    integers[:, :2] = 127
    packed = torch.ops.quantized.linear_prepack(
        torch._make_per_tensor_quantized_tensor(integers, 1.0, 0), None
    )
    sums = torch.ops.quantized.linear(input, packed, 2.0 * 127, 0).int_repr()
    torch.backends.quantized.engine = before
    return int(sums[0, 0]) < 255  # 64,770 is exact, 32,767 is clamped


def as_engine(engine):
    """Options of convert() with which intact computes what an engine of PyTorch computes on this CPU: exact sums, or clamped
    ones."""
    return {"mode": "saturating", "max_isa": "avx2"} if clamps(engine) else {}


def as_onednn():
    return as_engine("onednn")


@functools.cache
def onednn_transposes():
    """Whether PyTorch's onednn engine keeps the order of a transposed convolution's weights. In torch 2.13 it permutes them if the
    numbers of input and output channels differ."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "onednn"
    weight = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.int8).reshape(2, 3, 1)
    packed = torch.ops.quantized.conv_transpose1d_prepack(
        torch._make_per_tensor_quantized_tensor(weight, 1.0, 0), None, [1], [0], [0], [1], 1
    )
    input = torch._make_per_tensor_quantized_tensor(torch.tensor([[[1], [10]]], dtype=torch.uint8), 1.0, 0)
    sums = torch.ops.quantized.conv_transpose1d(input, packed, 1.0, 0).int_repr()
    torch.backends.quantized.engine = before
    return sums.flatten().tolist() == [41, 52, 63]


def images(n=4, size=6, channels=3, seed=0):
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(seed))


def eager_static(engine="onednn"):
    """The quantized model, and the float model with fused modules that it was made from."""
    torch.manual_seed(1)
    torch.backends.quantized.engine = engine
    model = Eager().eval()
    fuse_modules(
        model,
        [
            ["stem.0", "stem.1"],
            ["block.conv1", "block.relu"],
            ["block.conv2", "block.norm"],
            ["head.0", "head.1"],
        ],
        inplace=True,
    )
    quantized = copy.deepcopy(model)
    quantized.qconfig = QCONFIG
    prepare(quantized, inplace=True)
    quantized(images(64, 12))
    return quiet(convert, quantized), model


def fx_static(engine="onednn", make=Functional):
    torch.manual_seed(1)
    torch.backends.quantized.engine = engine
    model = make().eval()
    prepared = quiet(prepare_fx, model, QConfigMapping().set_global(QCONFIG), (images(),))
    prepared(images(64))
    return quiet(convert_fx, prepared)


def eager_dynamic(engine="onednn"):
    torch.manual_seed(1)
    torch.backends.quantized.engine = engine
    model = quantize_dynamic(Attention().eval(), {nn.Linear, nn.LSTM})
    for layer in (model.qkv, model.out):
        if engine == "qnnpack":
            layer.version = None  # no reduce_range: qnnpack ignores it, with a warning at each call
    return model


def quiet(function, *arguments):
    """Calls `function` without PyTorch's warnings about future changes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)
