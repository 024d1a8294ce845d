"""The quantized layers of PT2E models on intact: every byte is that of the definition in integrations/pytorch/layers.cc."""

from __future__ import annotations

import copy
import gc
import itertools
import math
import os
import re
import subprocess
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import intact  # noqa: E402
import intact.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from intact import _program  # noqa: E402
from intact.torch import _layers as _torch_layers  # noqa: E402
from test_operators import python, without_vnni  # noqa: E402, F401

ONEDNN = torch.ops.onednn
LIMITS = {torch.uint8: (0, 255), torch.int8: (-128, 127)}
BOUNDS = {"none": (-np.inf, np.inf), "relu": (0, np.inf), "hardtanh": (0.25, 6)}
# no plan fuses them
OTHERS = {"gelu": lambda f: F.gelu(f, approximate="tanh"), "swish": F.silu, "hardswish": F.hardswish}


@dataclass
class Layer:
    """A layer and its input. `window`: stride, padding, dilation, groups of a convolution."""

    x: torch.Tensor
    weight: torch.Tensor
    w_scale: torch.Tensor
    bias: "torch.Tensor | None"
    window: "tuple[int, int, int, int] | None" = None
    x_scale: float = 0.013
    x_zero_point: int = 117
    dtype: Any = torch.float32
    scale: float = 1.0
    zero_point: int = 0
    unary: str = "none"  # hardtanh: to BOUNDS; gelu: with tanh
    binary: str = "none"
    other: "torch.Tensor | None" = None
    other_scale: float = 1.0
    other_zero_point: int = 0
    packed: Any = field(default=None, compare=False)
    convolution: str = "qconv_pointwise"  # the operator without a second input
    arguments: "tuple[list, str] | None" = None  # of `unary`, if others than BOUNDS and tanh

    def pack(self) -> "Layer":
        if self.window is None:
            self.packed = ONEDNN.qlinear_prepack(self.weight, None)
        else:
            stride, padding, dilation, groups = self.window
            self.packed = ONEDNN.qconv_prepack(
                self.weight,
                self.w_scale,
                self.x_scale,
                self.x_zero_point,
                [stride] * 2,
                [padding] * 2,
                [dilation] * 2,
                groups,
                None,
            )
        return self

    def run(self, tensors: bool = True, other: "torch.Tensor | None" = None) -> torch.Tensor:
        """PyTorch's operator. `other`: the second input, instead of a copy."""
        x_scale, x_zero_point = self.x_scale, self.x_zero_point
        if tensors:
            x_scale, x_zero_point = torch.as_tensor(x_scale), torch.as_tensor(x_zero_point)
        kept = (
            self.x,
            x_scale,
            x_zero_point,
            self.packed,
            self.w_scale,
            torch.zeros(len(self.w_scale), dtype=torch.int32),
        )
        window = (
            ()
            if self.window is None
            else ([self.window[0]] * 2, [self.window[1]] * 2, [self.window[2]] * 2, self.window[3])
        )
        output = (self.scale, self.zero_point, self.dtype)
        unary = (
            self.unary,
            [0.25, 6] if self.unary == "hardtanh" else [None],
            "tanh" if self.unary == "gelu" else "",
        )
        unary = unary if self.arguments is None else (self.unary, *self.arguments)
        suffix = "_tensor" if tensors else ""
        if self.other is None:
            operator = ONEDNN.qlinear_pointwise if self.window is None else getattr(ONEDNN, self.convolution)
            return getattr(operator, "tensor" if tensors else "default")(
                *kept, self.bias, *window, *output, *unary
            )
        operator = ONEDNN.qlinear_pointwise if self.window is None else ONEDNN.qconv2d_pointwise
        if other is None:
            other = self.x if self.other is self.x else self.other.clone()
        result = getattr(operator, "binary" + suffix)(
            *kept,
            other,
            self.bias,
            *window,
            *output,
            self.other_scale,
            self.other_zero_point,
            self.binary,
            1.0,
            *unary,
        )
        assert torch.equal(other, result if self.binary == "sum" else self.other)
        return result


def exact_sums(layer: Layer) -> np.ndarray:
    x = layer.x.double() - layer.x_zero_point
    if layer.window is None:
        return F.linear(x, layer.weight.double()).numpy()
    return F.conv2d(x, layer.weight.double(), None, *layer.window).numpy()


def defined(layer: Layer, sums: Callable[[Layer], np.ndarray] = exact_sums) -> torch.Tensor:
    """The definition, each operation rounded to float32. Sums and products in float64 are exact."""
    f32 = np.float32
    is_fused = layer.unary in BOUNDS
    q = f32(layer.scale) if is_fused and layer.dtype in LIMITS else f32(1)
    by_channel = (-1,) if layer.window is None else (-1, 1, 1)
    f = sums(layer).astype(f32) * (f32(layer.x_scale) / q * layer.w_scale.numpy()).reshape(by_channel)
    if layer.bias is not None:
        f = f + (layer.bias.numpy() / q).reshape(by_channel)
    if layer.binary != "none":  # else PyTorch ignores the second input
        f = f + (layer.other.float().numpy() - f32(layer.other_zero_point)) * (f32(layer.other_scale) / q)
    assert f.dtype == f32
    if layer.unary in BOUNDS:
        lowest, highest = (f32(bound) / q for bound in BOUNDS[layer.unary])
        f = np.minimum(np.maximum(f, lowest), highest)
    else:
        f = OTHERS[layer.unary](torch.from_numpy(f)).numpy()
    if layer.dtype not in LIMITS:
        return torch.from_numpy(f).to(layer.dtype)
    if not is_fused:
        f = f * f32(1 / layer.scale)
    return torch.from_numpy(np.clip(np.rint(f) + layer.zero_point, *LIMITS[layer.dtype])).to(layer.dtype)


Runner = Callable[[Layer], torch.Tensor]


def check(layer: Layer, run: Runner) -> None:
    wanted = defined(layer)  # first: a sum may overwrite x
    given = run(layer)
    assert layer.binary == "sum" or given.is_contiguous(memory_format=format_of(layer))
    assert given.dtype == wanted.dtype and torch.equal(given, wanted), f"outputs differ: {layer}"


def format_of(layer: Layer) -> Any:
    return torch.contiguous_format if layer.window is None else torch.channels_last


def integers(*sizes: int, dtype: Any = torch.int8) -> torch.Tensor:
    lowest, highest = LIMITS[dtype]
    return torch.randint(lowest, highest + 1, sizes, dtype=dtype)


def linear(m: int, n: int, k: int, dtype: Any = torch.uint8) -> Layer:
    return Layer(integers(m, k, dtype=dtype), integers(n, k), torch.rand(n) / 100 + 1e-3, torch.randn(n))


def conv(batch: int, inputs: int, outputs: int, extent: int, kernel: int, *window: int) -> Layer:
    x = integers(batch, inputs, extent, extent + 1, dtype=torch.uint8).contiguous(
        memory_format=torch.channels_last
    )
    return Layer(
        x,
        integers(outputs, inputs // window[3], kernel, kernel),
        torch.rand(outputs) / 100 + 1e-3,
        torch.randn(outputs),
        window,
    )


CONVS = [
    (2, 16, 32, 9, 3, 1, 1, 1, 1),
    (1, 3, 16, 12, 3, 2, 1, 1, 1),
    (2, 32, 32, 7, 3, 1, 1, 1, 32),
    (1, 16, 24, 9, 1, 1, 0, 1, 1),
    (2, 16, 24, 8, 3, 1, 2, 2, 2),
    (1, 9, 6, 11, 3, 2, 0, 1, 3),
]
OUTPUTS: "list[dict]" = [
    {"dtype": torch.float32},
    {"dtype": torch.bfloat16},
    {"dtype": torch.uint8, "scale": 0.11, "zero_point": 128},
    {"dtype": torch.int8, "scale": 0.07, "zero_point": -9},
]


def layers() -> "list[Layer]":
    linears = [linear(33, 48, 96), linear(1, 17, 65), linear(300, 10, 7), linear(5, 40, 300, torch.int8)]
    return [layer.pack() for layer in linears + [conv(*sizes) for sizes in CONVS]]


def check_unary(run: Runner) -> None:
    for number, layer in enumerate(layers()):
        for output in OUTPUTS:
            for unary in (*BOUNDS, [*OTHERS][number % 3]):
                check(replace(layer, **output, unary=unary), run)
        check(replace(layer, bias=None), run)


def check_binary(run: Runner) -> None:
    for layer in layers():
        for output, unary in itertools.product(OUTPUTS, ("none", "relu")):
            shape, dtype = defined(layer).shape, output["dtype"]
            if dtype in LIMITS:
                other, scales = integers(*shape, dtype=dtype), (0.03, 100 if dtype == torch.uint8 else -3)
            else:
                other, scales = torch.randn(*shape).to(dtype), (1.0, 0)
            summed = replace(
                layer,
                **output,
                unary=unary,
                binary="sum",
                other=other.contiguous(memory_format=format_of(layer)),
                other_scale=scales[0],
                other_zero_point=scales[1],
            )
            check(summed, run)
            if layer.window is None:
                for kind in (torch.float32, torch.bfloat16):
                    check(
                        replace(
                            layer, **output, unary=unary, binary="add", other=torch.randn(*shape).to(kind)
                        ),
                        run,
                    )


def check_others(run: Runner) -> None:
    """Second inputs of any strides, and a sum with the input itself."""
    for output in (OUTPUTS[0], OUTPUTS[2]):
        dtype, scales = output["dtype"], {"other_scale": 0.03, "other_zero_point": 99}
        for layer, other in (
            (linear(6, 20, 16).pack(), integers(20, 6, dtype=torch.uint8).t()),
            (conv(*CONVS[0]).pack(), integers(2, 32, 9, 10, dtype=torch.uint8)),
            (conv(*CONVS[0]).pack(), integers(2, 9, 32, 20, dtype=torch.uint8).transpose(1, 2)[..., ::2]),
        ):
            scales = scales if dtype == torch.uint8 else {}
            other = other if dtype == torch.uint8 else (other.float() / 16)
            check(replace(layer, **output, **scales, unary="relu", binary="sum", other=other), run)
            if layer.window is None:
                check(replace(layer, **output, other=torch.full(other.shape, 1000.0)), run)
                for kind in (torch.float32, torch.bfloat16):
                    check(replace(layer, **output, binary="add", other=(other.float() / 16).to(kind)), run)
    for layer in (linear(6, 16, 16).pack(), conv(2, 16, 16, 6, 3, 1, 1, 1, 1).pack()):
        check(
            replace(layer, **OUTPUTS[2], binary="sum", other=layer.x, other_scale=0.03, other_zero_point=99),
            run,
        )


def check_parts(run: Runner) -> None:
    """Layers of so much work that each thread computes a part."""
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        for layer in (linear(256, 512, 512), conv(2, 64, 64, 28, 3, 1, 1, 1, 1)):
            check(replace(layer.pack(), **OUTPUTS[2]), run)
    finally:
        torch.set_num_threads(threads)


def check_changes(run: Runner) -> None:
    """One layer with other parameters, and other layers in memory that freed ones had."""
    layer = linear(9, 24, 64).pack()
    check(layer, run)
    check(replace(layer, x_scale=0.5, x_zero_point=3), run)
    layer.bias += 1
    check(layer, run)
    layer.w_scale *= 3
    check(layer, run)
    layer.weight = integers(24, 64)
    layer.packed.data = replace(layer).pack().packed
    check(layer, run)
    for _ in range(20):  # an address of packed weights may return
        for _ in range(2):
            layer.weight = integers(24, 64)
            layer.packed.data = replace(layer).pack().packed
        check(layer, run)
    check(replace(layer, x=integers(2, 3, 64, dtype=torch.uint8)), run)
    check(replace(layer, x=integers(64, dtype=torch.uint8)), run)
    check(replace(layer, x=integers(64, 9, dtype=torch.uint8).t()), run)
    layer = conv(*CONVS[0]).pack()
    for x in (layer.x, layer.x.contiguous(), layer.x[:1], layer.x[:, :, 3:], layer.x[:, :, :, ::2]):
        check(replace(layer, x=x), run)
    layer.window = (2, 1, 1, 1)
    check(layer, run)
    for _ in range(20):
        check(linear(4, 24, 64).pack(), run)
        check(conv(1, 8, 8, 5, 3, 1, 1, 1, 1).pack(), run)


def check_threads(run: Runner) -> None:
    """Threads that run new layers at the same time, and replace their steps."""
    for _ in range(5):
        layer = linear(5, 24, 64).pack()
        calls = [
            replace(layer, x=layer.x[number % 3 :], dtype=torch.uint8, scale=0.1 + number % 6)
            for number in range(30)
        ]
        with ThreadPoolExecutor(6) as pool:
            for done in [pool.submit(check, call, run) for call in (layer, *calls)]:
                done.result()


def check_empty(run: Runner) -> None:
    for layer in (
        linear(0, 8, 16).pack(),
        replace(conv(*CONVS[0]), x=torch.empty(0, 16, 4, 4, dtype=torch.uint8)).pack(),
    ):
        assert run(layer).shape == defined(layer).shape


@pytest.fixture
def enabled():
    with intact.torch.enable():
        yield


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(41)


@pytest.mark.parametrize(
    "judge,tensors",
    [
        (check_unary, True),
        (check_binary, False),
        (check_others, True),
        (check_parts, True),
        (check_changes, True),
        (check_changes, False),
        (check_threads, True),
        (check_empty, True),
    ],
)
def test_exact(enabled, judge, tensors):
    judge(lambda layer: layer.run(tensors))


# How the names of kernels end that a plan of an ISA may use.
KERNELS = {
    "portable": {"portable"},
    "avx2": {"avx2"},
    "avx_vnni": {"avx2", "avxvnni"},
    "avx512": {"avx2", "avx512"},
    "avx512_vnni": {"avx2", "avx512", "avx512vnni"},
    "amx_int8": {"avx2", "avx512", "avx512vnni", "amxint8"},
}


@pytest.mark.parametrize("isa", [isa for isa in intact.isas() if isa != "any"])
def test_exact_on_isa(isa):
    """Layers and products: one process for each ISA."""
    done = python(
        """
import sys, torch, intact.torch, test_layers, test_operators
torch.manual_seed(41)
with intact.torch.enable():
    for judge in (test_layers.check_unary, test_layers.check_binary): judge(test_layers.Layer.run)
    print("products", file=sys.stderr, flush=True)
    torch.set_num_threads(2)
    for judge in test_operators.CHECKS: judge(torch._int_mm)
""",
        INTACT_MAX_ISA=isa,
        INTACT_VERBOSE="1",
        OMP_NUM_THREADS="1",
    )
    for text, least in zip(done.stderr.split("\nproducts\n"), (200, 50), strict=True):
        runs = [line for line in text.splitlines() if line.startswith("intact: run")]
        assert len(runs) > least
        names = {line.split(" mode=")[0].rpartition("_")[2] for line in runs}
        assert isa.replace("_", "") in names and names <= KERNELS[isa], names


# Planted faults: each check must find the fault that it is for.


def clamped_sums(layer: Layer) -> np.ndarray:
    """What VPMADDUBSW computes of a linear layer: two products are added in int16, with a clamp. Convolutions stay exact."""
    if layer.window is not None or layer.x.dtype != torch.uint8:
        return exact_sums(layer)
    odd = layer.x.shape[-1] % 2
    x, w = F.pad(layer.x.int(), (0, odd)), F.pad(layer.weight.int(), (0, odd))
    products = x[..., None, :] * w
    pairs = (products[..., ::2] + products[..., 1::2]).clamp(-32768, 32767)
    return (pairs.sum(-1) - layer.x_zero_point * layer.weight.int().sum(1)).double().numpy()


def one_rounding(layer: Layer) -> torch.Tensor:
    """The scale and the bias rounded once, as an FMA does."""
    if layer.bias is None or layer.dtype != torch.float32 or layer.unary != "none" or layer.binary != "none":
        return defined(layer)
    by_channel = (-1,) if layer.window is None else (-1, 1, 1)
    scale = (np.float32(layer.x_scale) * layer.w_scale.numpy()).astype(np.float64).reshape(by_channel)
    return torch.from_numpy(
        (exact_sums(layer) * scale + layer.bias.numpy().reshape(by_channel)).astype(np.float32)
    )


def remembers(key: Callable[[Layer], Any], *names: str) -> Runner:
    """Keeps parameters under a key of the layer."""
    kept: dict = {}

    def run(layer: Layer) -> torch.Tensor:
        old = kept.setdefault(
            (key(layer), layer.weight.shape), {name: copy.deepcopy(getattr(layer, name)) for name in names}
        )
        return defined(replace(layer, **old))

    return run


def lost_part(layer: Layer) -> torch.Tensor:
    """The second of four parts is not computed."""
    out = defined(layer)
    rows = (
        out.view(-1, out.shape[-1])
        if layer.window is None
        else out.permute(0, 2, 3, 1).reshape(-1, out.shape[1])
    )
    rows = rows.clone()
    rows[len(rows) // 4 : len(rows) // 2] = 0
    if layer.window is None:
        return rows.view(out.shape)
    return rows.view(out.shape[0], *out.shape[2:], out.shape[1]).permute(0, 3, 1, 2)


def without_strides(layer: Layer) -> torch.Tensor:
    """The second input read as if it were dense."""
    if layer.other is None or layer.other is layer.x:
        return defined(layer)
    other = torch.as_strided(layer.other, layer.other.shape, torch.empty(layer.other.shape).stride())
    return defined(replace(layer, other=other))


PLANTED = [
    (check_parts, lost_part),
    (check_others, without_strides),
    (check_unary, lambda layer: defined(layer, clamped_sums)),
    (check_unary, one_rounding),
    (check_binary, lambda layer: defined(replace(layer, other_zero_point=0))),
    (check_changes, remembers(lambda layer: id(layer.packed), "weight")),
    (check_changes, remembers(lambda layer: id(layer.packed), "bias")),
    (check_changes, remembers(lambda layer: id(layer.packed), "w_scale")),
    (check_changes, remembers(lambda layer: id(layer.packed), "x_scale")),
    (check_changes, remembers(lambda layer: (id(layer.packed), layer.x.shape), "window")),
]


def laid_out(layer: Layer, run: Runner) -> torch.Tensor:
    return run(layer).contiguous(memory_format=format_of(layer))


@pytest.mark.parametrize("judge,fault", PLANTED)
def test_planted_fault_is_found(judge, fault):
    judge(lambda layer: laid_out(layer, defined))
    with pytest.raises(AssertionError, match="outputs differ"):
        judge(lambda layer: laid_out(layer, fault))


# What is PyTorch's stays PyTorch's.


def own_calls() -> "dict[str, Callable[[], torch.Tensor]]":
    """Calls that intact leaves to PyTorch: it computes them, or refuses them."""
    layer, window = linear(4, 8, 16).pack(), conv(*CONVS[0]).pack()
    other = integers(4, 8, dtype=torch.uint8)
    as_other = {
        torch.float32: torch.randn(4, 8),
        torch.bfloat16: torch.randn(4, 8).bfloat16(),
        torch.uint8: other,
    }
    calls = {
        f"{binary} {other_dtype} to {dtype}": replace(
            layer, binary=binary, other=as_other[other_dtype], dtype=dtype
        ).run
        for binary, other_dtype, dtype in itertools.product(
            ("sum", "mul"), as_other, (torch.float32, torch.uint8)
        )
        if binary == "mul" or other_dtype != dtype
    }
    calls["depth"] = replace(layer, x=layer.x[:, :5]).run
    calls["x float"] = replace(layer, x=layer.x.float()).run
    calls["float64"] = replace(layer, dtype=torch.float64).run
    calls["unary"] = replace(layer, unary="nothing").run
    calls["conv: channels"] = replace(window, x=window.x[:, :5]).run
    calls["conv: add"] = replace(window, binary="add", other=torch.randn(defined(window).shape)).run
    calls["conv: too small"] = replace(window, x=window.x[:, :, :0]).run
    small = integers(1, 16, 2, 2, dtype=torch.uint8)
    for stride in (1, 2):
        calls[f"conv: 2×2, stride {stride}"] = replace(window, x=small, window=(stride, 0, 1, 1)).run
    for name, numbers in {"padding": (1, -1, 1, 1), "dilation": (1, 1, 0, 1), "groups": (1, 1, 1, 3)}.items():
        calls[f"conv: {name}"] = replace(window, window=numbers).run
    for dtype in (torch.float32, torch.bfloat16):
        calls[f"scale of {dtype}"] = replace(layer, dtype=dtype, scale=2.0).run
        calls[f"zero point of {dtype}"] = replace(layer, dtype=dtype, zero_point=3).run
    eight = replace(layer, dtype=torch.uint8, scale=0.1, zero_point=3)
    for value in (300, -1):
        calls[f"x zero point {value}"] = replace(layer, x_zero_point=value).run
        calls[f"zero point {value}"] = replace(eight, zero_point=value).run
        calls[f"other zero point {value}"] = replace(
            eight, binary="sum", other=other, other_zero_point=value
        ).run
    for value in (0.0, -0.1, np.inf):
        calls[f"scale {value}"] = replace(eight, scale=value).run
        calls[f"other scale {value}"] = replace(eight, binary="sum", other=other, other_scale=value).run
    for value in (-0.1, 1e39):
        calls[f"x scale {value}"] = replace(eight, x_scale=value).run
    calls["scales of weights"] = replace(layer, w_scale=-layer.w_scale).run
    calls["bias"] = replace(layer, bias=torch.full((8,), np.inf)).run
    for unary, *arguments in (
        ("hardtanh", [6, 0.25], ""),
        ("hardtanh", [], ""),
        ("hardtanh", [None, None], ""),
        ("gelu", [None], ""),
        ("gelu", [None], "erf"),
        ("leaky_relu", [], ""),
        ("leaky_relu", [None], ""),
    ):
        calls[f"{unary} {arguments}"] = replace(layer, unary=unary, arguments=tuple(arguments)).run
    calls["gelu of a sum"] = replace(eight, unary="gelu", binary="sum", other=other).run
    calls["0 dimensions"] = replace(layer, x=layer.x[0, 0]).run
    return calls


def outcome(call: Callable) -> tuple:
    try:
        return "returns", call()
    except Exception as error:
        return type(error).__name__, str(error).split("\n")[0]


def test_other_calls_are_pytorchs():
    calls = own_calls()
    own = {name: outcome(call) for name, call in calls.items()}
    with intact.torch.enable():
        given = {name: outcome(call) for name, call in calls.items()}
    for name in calls:
        assert given[name][0] == own[name][0], name
        assert (
            torch.equal(given[name][1], own[name][1])
            if own[name][0] == "returns"
            else given[name] == own[name]
        ), name
    assert sum(kind == "RuntimeError" for kind, _ in own.values()) >= 20
    assert sum(kind == "returns" for kind, _ in own.values()) >= 10


def later_calls() -> "list[tuple[str, Layer, dict]]":
    """Calls that intact computes, and changes that make them PyTorch's, although parameters and packed weights stay."""
    plain = linear(4, 8, 16).pack()
    calls = [
        (f"{name} on meta", plain, {name: torch.as_tensor(getattr(plain, name)).to("meta")})
        for name in ("x", "x_scale", "x_zero_point", "w_scale", "bias")
    ]
    added = replace(plain, binary="add", other=torch.randn(4, 8).abs().bfloat16())
    summed = replace(added, binary="sum", dtype=torch.bfloat16)
    for layer in (added, summed):
        calls.append((f"other on meta, {layer.binary}", layer, {"other": layer.other.to("meta")}))
        for dtype in (torch.float16, torch.float64, torch.uint8, torch.int8, torch.int32):
            calls.append((f"{layer.binary} {dtype}", layer, {"other": layer.other.to(dtype)}))
    return [*calls, ("sum torch.float32", summed, {"other": summed.other.float()})]


def test_later_calls_are_pytorchs():
    calls = later_calls()
    own = [outcome(replace(layer, **changes).run) for _, layer, changes in calls]
    assert {kind for kind, _ in own} <= {"returns", "RuntimeError", "NotImplementedError"}
    with intact.torch.enable():
        for (name, layer, changes), (kind, value) in zip(calls, own):
            layer.run()
            given = outcome(replace(layer, **changes).run)
            assert given[0] == kind and (
                torch.equal(given[1], value) if kind == "returns" else given[1] == value
            ), name


def steps_of(layer: Layer) -> list:
    return intact.torch._operators._layers._layers[id(layer.packed)].steps


def test_sums_are_in_place(enabled):
    """A sum writes into the second input, also if the input overlaps x."""
    layer = replace(
        linear(4, 16, 16).pack(), **OUTPUTS[2], binary="sum", other_scale=0.03, other_zero_point=99
    )
    memory = np.empty(128, np.uint8)
    for begin in (64, 32, 0):
        memory[:] = integers(128, dtype=torch.uint8)
        layer.x, layer.other = (
            torch.from_numpy(memory[first : first + 64]).view(4, 16) for first in (0, begin)
        )
        wanted, x, other = defined(layer), layer.x.clone(), layer.other.clone()
        given = layer.run(other=layer.other)
        assert given is layer.other and torch.equal(given, wanted), begin
        layer.other.copy_(other)
        layer.x.copy_(x)
        out = torch.ops.intact.run_step(
            steps_of(layer)[0]._number,
            layer.packed,
            layer.x,
            torch.tensor(layer.x_scale),
            torch.tensor(layer.x_zero_point),
            layer.w_scale,
            layer.other,
            layer.bias,
        )
        assert (out is layer.other) == (begin == 64) and torch.equal(out, wanted)


def test_steps_are_kept(enabled):
    """Steps that run stay. Calls of PyTorch take the place of no step."""
    layer = linear(4, 8, 16).pack()
    layer.run()
    step = steps_of(layer)[0]
    for scale in range(1, 7):
        replace(layer, dtype=torch.uint8, scale=float(scale)).run()
        layer.run()
        assert steps_of(layer)[0] is step and len(steps_of(layer)) <= 4
    kept = [*steps_of(layer)]
    for others in (replace(layer, x_zero_point=300), replace(layer, x_scale=-0.1)):
        others.run()
    with_gaps = torch.stack([layer.w_scale] * 2, 1)[:, 0]
    for w_scale in (layer.w_scale.double(), with_gaps):
        assert torch.equal(replace(layer, w_scale=w_scale).run(), layer.run())
    assert torch.equal(replace(layer, bias=layer.bias.double()).run(), layer.run())
    assert steps_of(layer) == kept


SUMMED = {"binary": "sum", "other_scale": 0.03, "other_zero_point": 99}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        *({"unary": unary} for unary in OTHERS),
        {"dtype": torch.bfloat16, "binary": "sum"},
        {**OUTPUTS[2], **SUMMED},
        {"binary": "add"},
    ],
    ids=str,
)
def test_second_calls(enabled, monkeypatch, changes):
    """Calls that find the newest step end without `_run`, also with an activation that no plan has, and with a second input."""
    if "binary" in changes:
        dtype = changes.get("dtype", torch.bfloat16)
        changes = {
            **changes,
            "other": integers(4, 8, dtype=dtype) if dtype in LIMITS else torch.randn(4, 8).to(dtype),
        }
    layer = replace(linear(4, 8, 16), **changes).pack()
    called, run = [], _torch_layers.Layers._run
    monkeypatch.setattr(_torch_layers.Layers, "_run", lambda *given: called.append(given) or run(*given))
    for _ in range(3):
        check(layer, lambda layer: layer.run())
        assert len(called) == 1
    check(layer, lambda layer: layer.run(tensors=False))
    assert len(called) == 2 and len(steps_of(layer)) == 1


@pytest.mark.parametrize("name", _torch_layers.ADAPTERS)
def test_each_operator(name):
    """intact computes a call of each operator, and PyTorch computes one that intact does not."""
    operator, _, overload = name.partition(".")
    layer = linear(4, 8, 16) if operator == "qlinear_pointwise" else conv(*CONVS[0])
    layer.convolution = operator
    if overload.startswith("binary"):
        layer = replace(
            layer,
            binary="sum",
            other=torch.randn(defined(layer).shape).contiguous(memory_format=format_of(layer)),
        )
    layer.pack()
    tensors, others = overload.endswith("tensor"), replace(layer, x_zero_point=300)
    own = others.run(tensors)
    with pytest.MonkeyPatch.context() as patch:
        calls = []  # of PyTorch's kernel
        get = torch.library.get_kernel

        def recorded(*name):
            kernel = get(*name)
            return SimpleNamespace(call_boxed=lambda *given: calls.append(name) or kernel.call_boxed(*given))

        patch.setattr(torch.library, "get_kernel", recorded)
        with intact.torch.enable():
            for _ in range(2):  # the second call finds the step of the first
                check(layer, lambda layer: layer.run(tensors))
                assert not calls and len(steps_of(layer)) == 1
            assert torch.equal(others.run(tensors), own)
            assert len(calls) == 1


@pytest.mark.parametrize(
    "layer",
    [linear(4, 8, 16), replace(linear(4, 8, 16), **OUTPUTS[2]), conv(*CONVS[0])],
    ids=["float", "8 bits", "convolution"],
)
def test_compare(layer, monkeypatch):
    """Each changed output of PyTorch's kernel is found, also in a sum, which overwrites its second input."""
    other = defined(layer)
    layer = replace(
        layer, binary="sum", other=other, other_scale=layer.scale, other_zero_point=layer.zero_point
    ).pack()
    exact, get = defined(layer), torch.library.get_kernel
    wrong = exact.clone()
    unit = 1.0 if layer.dtype == torch.uint8 else exact.abs().max().item()
    wrong[0, 0] = exact[0, 0] ^ 4 if layer.dtype == torch.uint8 else exact[0, 0] + 2

    def kernel(*name):
        return SimpleNamespace(call_boxed=lambda keys, *given: given[6].copy_(computed))

    monkeypatch.setattr(torch.library, "get_kernel", kernel)
    model = lambda: [layer.run(other=other.clone()) for _ in range(2)]  # noqa: E731
    for computed in (exact, wrong):
        rows = intact.torch.compare(model)
        apart = (computed.double() - exact.double()).abs()
        assert [row[1:5] for row in rows] == [
            (tuple(layer.x.shape), tuple(layer.packed.shape), exact.numel(), int((apart > 0).sum()))
        ] * 2
        assert all(row.largest == apart.max().item() / unit for row in rows)
    assert int((apart > 0).sum()) >= 1 and not intact.torch.is_enabled()
    monkeypatch.setattr(torch.library, "get_kernel", get)
    with intact.torch.enable():
        intact.torch.compare(model)
        assert intact.torch.is_enabled() and torch.equal(layer.run(other=other.clone()), exact)


def test_compare_special_values():
    """Values of PyTorch's output and of the exact one, how many differ, and the largest difference."""
    inf, nan = math.inf, math.nan
    layer = linear(1, 1, 1)
    for out, exact, differing, largest in [
        ([inf, -inf, nan, 4], [inf, -inf, nan, 4], 0, 0),
        ([], [], 0, 0),
        ([0], [0], 0, 0),
        ([inf, nan, 3, 4], [inf, nan, 4, -4], 2, 2),
        ([inf], [-inf], 1, inf),
        ([-inf, 4], [3, 4], 1, inf),
        ([3, 4], [nan, 4], 1, inf),
        ([nan], [0], 1, inf),
        ([0, 2.0**-149], [0, 0], 1, inf),
        ([1], [inf], 1, inf),
    ]:
        for dtype in (torch.float32, torch.bfloat16) if 2.0**-149 not in out else (torch.float32,):
            values = (torch.tensor(numbers, dtype=dtype) for numbers in (out, exact))
            row = _torch_layers.difference("some", layer, *values)
            assert row == ("some", (1, 1), (1, 1), len(out), differing, largest), (out, exact)
    values = (torch.tensor(numbers, dtype=torch.uint8) for numbers in ([0, 9, 255], [255, 9, 254]))
    assert _torch_layers.difference("some", layer, *values)[3:] == (3, 2, 255)


def test_compare_without_layers():
    """No row is an error, and leaves PyTorch as it was. compare() calls the model without gradients."""
    before, layer, is_enabled = kernels(), linear(4, 8, 16).pack(), []
    message = (
        r"^model: calls no quantized layer that intact computes; expected a model compiled with freezing$"
    )
    for model in (lambda: None, replace(layer, x_zero_point=300).run):
        with pytest.raises(intact.Error, match=message):
            intact.torch.compare(model)
    with torch.enable_grad():
        assert (
            len(intact.torch.compare(lambda: is_enabled.append(torch.is_grad_enabled()) or layer.run())) == 1
        )
        assert is_enabled == [False] and torch.is_grad_enabled()
    assert kernels() == before


@pytest.mark.parametrize(
    "call",
    [lambda: intact.torch.enable(), lambda: intact.torch.compare(lambda: None)],
    ids=["enable", "compare"],
)
def test_compared_model_changes_nothing(call):
    """A compared model calls neither enable() nor compare(). disable() does nothing there, as after an earlier disable()."""
    before, layer = kernels(), linear(4, 8, 16).pack()

    def model() -> None:
        intact.torch.disable()
        layer.run()
        with pytest.raises(
            intact.Error,
            match=r"^model: calls enable\(\), compare\(\) or dump\(\) while "
            r"compare\(\) or dump\(\) runs it; expected a model that calls none of them$",
        ):
            call()
        layer.run()

    assert len(intact.torch.compare(model)) == 2
    intact.torch.disable()
    intact.torch._operators._layers.set(False)
    assert kernels() == before and not intact.torch.is_enabled()
    assert "operators.cc" not in torch._C._dispatch_dump("aten::_int_mm")


def verified(folder: Path) -> "dict[str, tuple[int, str]]":
    """The line of each layer that `intact verify layer` prints: how many outputs are not exact, and the arithmetic."""
    command, environment = _program.native(["verify", "layer", str(folder)])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    lines = re.findall(
        r"^  (\S+) +output_pytorch.npy +(\d+) of +\d+ not exact  (.*)$", done.stdout, re.MULTILINE
    )
    assert lines, done.stderr
    return {name: (int(count), arithmetic) for name, count, arithmetic in lines}


def change_outputs(folder: Path) -> None:
    """Changes one output of each recorded layer by the smallest step."""
    for path in folder.glob("*/output_pytorch.npy"):
        values = np.load(path)
        last = values[(-1,) * values.ndim]
        values[(-1,) * values.ndim] = (
            np.nextafter(last, np.float32(np.inf)) if values.dtype == np.float32 else last ^ 1
        )
        np.save(path, values)


def test_dump(tmp_path, monkeypatch):
    """Recorded layers describe the calls: the outputs of the definition are exact, and changed outputs are not."""
    first, wide, image, grouped = (
        linear(9, 24, 64),
        linear(5, 40, 300, torch.int8),
        conv(*CONVS[0]),
        conv(*CONVS[4]),
    )
    u8, s8, other = OUTPUTS[2], OUTPUTS[3], {"other_scale": 0.03, "other_zero_point": 99}
    recorded = [
        replace(first, **u8, unary="relu", w_scale=torch.tensor([0.004])),
        replace(first, x=integers(2, 3, 64, dtype=torch.uint8)),
        wide,
        replace(wide, **s8),
        replace(first, x=integers(64, 9, dtype=torch.uint8).t(), bias=None),
        replace(first, **u8, binary="add", other=torch.randn(9, 24).bfloat16()),
        replace(first, **u8, **other, binary="sum", other=integers(9, 24, dtype=torch.uint8)),
        image,
        replace(image, **u8, unary="hardtanh"),
        replace(grouped, **s8, unary="relu"),
        replace(grouped, x=grouped.x.contiguous(), unary="hardtanh"),
    ]
    for output in (OUTPUTS[0], {**u8, **other}):
        residual = defined(replace(image, **output))
        recorded.append(replace(image, **output, unary="relu", binary="sum", other=residual))
    square = conv(2, 16, 16, 6, 3, 1, 1, 1, 1)
    recorded += [replace(square, **u8, **other, binary="sum", other=square.x), conv(*CONVS[5])]
    skipped = {
        "its activation is gelu": replace(first, unary="gelu"),
        "its outputs are bfloat16": replace(first, dtype=torch.bfloat16),
        "it has no outputs": linear(0, 8, 16),
        "its activation is hardtanh": replace(first, unary="hardtanh", arguments=([0, 0], "")),
        "its activation clamps to -0.01 and 0.01, which are 0 steps of the output": replace(
            first, **u8, unary="hardtanh", arguments=([-0.01, 0.01], "")
        ),
    }
    calls = [*recorded, *skipped.values()]
    outputs = [defined(layer) for layer in calls]

    def model() -> None:
        for layer in calls:
            replace(layer).pack().run()

    def kernel(*name):
        def computed(keys, *given):
            number = len(ran)
            ran.append(number)
            return given[6].copy_(outputs[number]) if calls[number].binary == "sum" else outputs[number]

        return SimpleNamespace(call_boxed=computed)

    ran: "list[int]" = []
    monkeypatch.setattr(torch.library, "get_kernel", kernel)
    folder = tmp_path / "new" / "layers"
    rows = intact.torch.dump(model, folder=folder)
    assert [row.reason for row in rows] == [""] * len(recorded) + list(skipped)
    assert [row[1:3] for row in rows] == [
        (tuple(layer.x.shape), tuple(replace(layer).pack().packed.shape)) for layer in calls
    ]
    names = [row.folder.name for row in rows if row.folder is not None]
    assert names[:2] == ["0000_qlinear_pointwise", "0001_qlinear_pointwise"] and len(names) == len(recorded)
    assert verified(folder) == dict.fromkeys(names, (0, "exact"))
    change_outputs(folder)
    assert all(count == 1 and arithmetic != "exact" for count, arithmetic in verified(folder).values())


def test_dump_refuses(tmp_path):
    before, layer = kernels(), linear(4, 8, 16).pack()
    (tmp_path / "file").write_text("some")
    for folder, problem in [
        (tmp_path, "is not empty"),
        (tmp_path / "file", "cannot be used: File exists"),
        (tmp_path / "file" / "new", "cannot be used: Not a directory"),
    ]:
        with pytest.raises(intact.Error) as error:
            intact.torch.dump(layer.run, folder=folder)
        assert error.value.message == f"folder: {folder} {problem}; expected an empty folder or a new one"
    with pytest.raises(
        intact.Error,
        match="^model: calls no quantized layer that intact computes; expected a model compiled ",
    ):
        intact.torch.dump(lambda: None, folder=tmp_path / "new")

    def model() -> None:
        (tmp_path / "new" / "0000_qlinear_pointwise").mkdir()
        layer.run()

    with pytest.raises(
        intact.Error, match="^folder: .*/new/0000_qlinear_pointwise cannot be written: File exists$"
    ):
        intact.torch.dump(model, folder=tmp_path / "new")
    assert kernels() == before and not intact.torch.is_enabled()


DUMPED = """
import os, sys, torch, intact.torch, torch._inductor.config
os.environ.pop("LD_PRELOAD", None)  # Inductor starts compilers, which are not held
import test_layers
nn, torch._inductor.config.freezing = torch.nn, True
torch.manual_seed(0)
x = torch.rand(2, 16, 8, 8).contiguous(memory_format=torch.channels_last)
net = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(1),
                    nn.Linear(32 * 36, 10, bias=False))
rows = intact.torch.dump(torch.compile(test_layers.quantized(net, x)), x, folder=sys.argv[1])
assert all(row.folder for row in rows)
"""
DUMPED_NAMES = {"0000_qconv_pointwise", "0001_qconv_pointwise", "0002_qlinear_pointwise"}


@pytest.mark.skipif("avx512_vnni" not in intact.isas(), reason="this CPU has no AVX-512-VNNI")
def test_dump_with_vnni(tmp_path):
    """PyTorch's kernels of a compiled network are exact. A layer with a changed output is reported."""
    pytest.importorskip("torchao")
    python(DUMPED, str(tmp_path), TORCHINDUCTOR_COMPILE_THREADS="1")
    assert verified(tmp_path) == dict.fromkeys(DUMPED_NAMES, (0, "exact"))
    change_outputs(tmp_path)
    assert all(count == 1 and arithmetic != "exact" for count, arithmetic in verified(tmp_path).values())


def test_dump_without_vnni(without_vnni, tmp_path):  # noqa: F811
    """PyTorch's kernels of a compiled network clamp sums of pairs."""
    pytest.importorskip("torchao")
    python(DUMPED, str(tmp_path), TORCHINDUCTOR_COMPILE_THREADS="1", **without_vnni)
    found = verified(tmp_path)
    assert found.keys() == DUMPED_NAMES
    assert all(
        count > 0 and arithmetic.startswith("pairs of adjacent depths clamped to int16 (maddubs)")
        for count, arithmetic in found.values()
    ), found


def test_stride_0(enabled):
    with pytest.raises(RuntimeError, match=r"^intact: stride is \[0, 0\]; expected numbers of at least 1$"):
        replace(conv(*CONVS[0]).pack(), window=(0, 1, 1, 1)).run()


def test_enable_fails():
    """An error while kernels are registered leaves PyTorch as it was."""
    before = kernels()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_torch_layers.ADAPTERS, "qconv_pointwise", None)
        patch.setattr(_torch_layers.Layers, "_kernel", lambda self, own, adapter: adapter)
        with pytest.raises(Exception):
            intact.torch.enable()
    assert kernels() == before and not intact.torch.is_enabled()
    assert "operators.cc" not in torch._C._dispatch_dump("aten::_int_mm")


def new_step(layer: int, **given: Any) -> int:
    """intact's operator, with parameters of a linear layer 16×8."""
    arguments = {
        "packed": 0,
        "x_type": torch.uint8,
        "x_sizes": [16],
        "w_scale": torch.ones(8),
        "bias": None,
        "window": [],
        "type": torch.uint8,
        "scale": 1.0,
        "zero_point": 0,
        "residual_type": None,
        "residual_scale": 1.0,
        "residual_zero_point": 0,
        "is_sum": False,
        "lowest": -np.inf,
        "highest": np.inf,
        **given,
    }
    return torch.ops.intact.step(layer, **arguments)


def test_wrong_parameters_are_refused():
    intact.torch.library()
    free = intact.torch._operators._library.intact_pytorch_free_step
    linear_layer, conv_layer = (
        torch.ops.intact.layer(integers(16, 8)),
        torch.ops.intact.layer(integers(8, 3, 3, 16)),
    )
    image = {"window": [1] * 7, "x_sizes": [16, 5, 5]}
    for number in (new_step(linear_layer), new_step(conv_layer, **image)):
        assert number != 0
        free(number)
    assert new_step(linear_layer, w_scale=-torch.ones(8)) == 0
    for layer, arguments, message in [
        (linear_layer, {"w_scale": torch.ones(7)}, "w_scale has 7 numbers; expected 8"),
        (linear_layer, {"w_scale": torch.ones(8).double()}, "w_scale has the type Double; expected Float"),
        (linear_layer, {"w_scale": torch.ones(16)[::2]}, "w_scale has gaps; expected adjacent elements"),
        (linear_layer, {"bias": torch.ones(7)}, "bias has 7 numbers; expected 8"),
        (linear_layer, {"x_type": torch.float32}, "x has the type Float; expected Byte or Char"),
        (linear_layer, {"type": torch.float64}, "type is Double; expected Byte, Char, Float or BFloat16"),
        (linear_layer, {"x_sizes": [5]}, r"x has the last sizes \[5\]; expected \[16\]"),
        (linear_layer, {"scale": 0.0}, "output has the scale 0.0*; expected a normal float32 number above 0"),
        (
            linear_layer,
            {"zero_point": 2**32},
            "output has the zero point 4294967296; expected a value of its type",
        ),
        (
            linear_layer,
            {"residual_type": torch.int8, "residual_zero_point": 128},
            "other has the zero point 128; expected",
        ),
        (
            conv_layer,
            {**image, "x_sizes": [3, 5, 5]},
            r"x has the last sizes \[3, 5, 5\]; expected \[16, height, width\]",
        ),
        (conv_layer, {**image, "window": [0] * 7}, "window is .*; expected strides above 0"),
        (
            conv_layer,
            {"x_sizes": [16, 5, 1], "window": [1, 1, 0, 0, 1, 1, 1]},
            r"x has the last sizes \[16, 5, 1\]; expected images that contain the window",
        ),
        (linear_layer, image, "window has 7 numbers; expected 0"),
        (conv_layer, {}, "window has 0 numbers; expected 7"),
        (
            conv_layer,
            {**image, "x_sizes": [5, 5]},
            r"x has the last sizes \[5, 5\]; expected \[16, height, width\]",
        ),
    ]:
        with pytest.raises(RuntimeError, match=f"^intact: {message}"):
            new_step(layer, **arguments)
    for weights, message in [
        (integers(8), r"have the sizes \[8\]; expected 2 or 4 sizes"),
        (torch.empty(8, 8), "have the type Float; expected Char"),
        (integers(8, 4).t(), "are not contiguous; expected adjacent elements"),
    ]:
        with pytest.raises(RuntimeError, match=f"^intact: weights {message}"):
            torch.ops.intact.layer(weights)
    layer = linear(4, 8, 16).pack()
    with pytest.raises(
        RuntimeError, match="^intact: step is 0; expected a number that intact::step returned"
    ):
        torch.ops.intact.run_step(
            0, layer.packed, layer.x, torch.tensor(1.0), torch.tensor(0), layer.w_scale, None, layer.bias
        )


def kernels() -> "list[str]":
    names = [
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith(("onednn::qlinear", "onednn::qconv"))
    ]
    return [torch._C._dispatch_dump(name) for name in sorted(names)]


def test_enable_and_disable():
    before = kernels()
    for _ in range(3):
        with intact.torch.enable():
            assert sum("torch/_layers.py" in text for text in kernels()) >= 7
        assert kernels() == before
    done = python(
        """
import test_layers, intact.torch
layer = test_layers.linear(4, 8, 16).pack()
with intact.torch.enable(): pass
layer.run()
""",
        INTACT_VERBOSE="1",
    )
    assert "intact: run" not in done.stderr


def test_layers_live_as_long_as_packed_weights(enabled):
    layer = linear(4, 8, 16).pack()
    layer.run()
    kept = intact.torch._operators._layers._layers
    gc.collect()
    number, count = kept[id(layer.packed)].number, len(kept)
    step = weakref.ref(kept[id(layer.packed)].steps[0])
    intact.torch._operators._library.intact_pytorch_free_step(new_step(number))
    layer.packed = None
    gc.collect()
    assert len(kept) == count - 1 and step() is None
    with pytest.raises(
        RuntimeError, match=f"layer is {number}; expected a number that intact::layer returned"
    ):
        new_step(number)


def test_sizes_share_plans():
    """Each plan has packed weights. Sizes that vary must not fill memory."""
    done = python(
        """
import torch, test_layers, intact.torch
layer = test_layers.conv(1, 16, 8, 7, 3, 1, 1, 1, 1).pack()
with intact.torch.enable():
    for extent in range(4, 24):
        x = test_layers.integers(2, 16, extent, extent, dtype=torch.uint8)
        test_layers.check(test_layers.replace(layer, x=x), test_layers.Layer.run)
""",
        INTACT_VERBOSE="1",
    )
    lines = done.stderr.splitlines()
    assert sum(line.startswith("intact: plan") for line in lines) == 2
    assert sum(line.startswith("intact: run") for line in lines) == 20


# Packages of AOTInductor.


def packaged(layer: Layer) -> torch.Tensor:
    """The operator that packages call, if a plan fuses the activation."""
    bounds = {"none": (None, None), "relu": (0.0, None), "hardtanh": (0.25, 6.0)}.get(layer.unary)
    if bounds is None:
        return layer.run()
    weights, window = _torch_layers.unpacked(layer.packed), layer.window
    other = None if layer.binary == "none" else layer.other
    other = other.float() if other is not None and other.dtype == torch.bfloat16 else other
    out = torch.ops.intact.packaged_layer(
        layer.x,
        torch.tensor(layer.x_scale),
        torch.tensor(layer.x_zero_point),
        weights,
        _torch_layers.digest_of(weights),
        layer.w_scale,
        layer.bias,
        other,
        None if window is None else [*window[:1] * 2, *window[1:2] * 2, *window[2:3] * 2, window[3]],
        layer.dtype,
        layer.scale,
        layer.zero_point,
        layer.other_scale,
        layer.other_zero_point,
        *bounds,
    )
    return layer.other.copy_(out) if layer.binary == "sum" else out


@pytest.mark.parametrize(
    "judge", [check_unary, check_binary, check_others, check_changes, check_threads, check_empty]
)
def test_packaged_layer(enabled, judge):
    judge(packaged)


def test_packaged_layer_refuses():
    """Weights that a process replaced, and wrong arguments."""
    intact.torch.library()
    x, weights, image = integers(4, 16, dtype=torch.uint8), integers(16, 8), integers(8, 3, 3, 16)
    window = [1] * 7

    def call(
        x=x,
        x_scale=0.5,
        x_zero_point=3,
        weights=weights,
        digest="some",
        w_scale=torch.ones(8),
        window=None,
        other=None,
    ):
        return torch.ops.intact.packaged_layer(
            x,
            torch.tensor(x_scale),
            torch.tensor(x_zero_point),
            weights,
            digest,
            w_scale,
            None,
            other,
            window,
            torch.float32,
            1.0,
            0,
            1.0,
            0,
            None,
            None,
        )

    out = call()
    copies = [weights.clone() for _ in range(5)]
    for copied in copies:  # the package was loaded again
        assert torch.equal(call(weights=copied), out)
    copies[0] += 1
    pixels = integers(1, 16, 5, 5, dtype=torch.uint8)
    assert call(pixels, weights=image, digest="image", window=window).shape == (1, 8, 5, 5)
    for arguments, message in [
        ({"weights": weights + 1}, "weights differ from the weights of the first call"),
        ({"weights": copies[0]}, "weights differ from the weights of the first call"),
        ({"weights": weights.t()}, "weights are not contiguous"),
        ({"x": x[:, :5]}, r"x has the last sizes \[5\]; expected \[16\]"),
        ({"x": x[0, 0]}, r"x has the last sizes \[\]; expected \[16\]"),
        ({"x": x.float()}, "x has the type Float; expected Byte or Char"),
        (
            {"x": pixels[0], "weights": image, "digest": "image", "window": window},
            r"x has the last sizes \[5, 5\]; expected \[16, height, width\]",
        ),
        (
            {"x": pixels[..., :1], "weights": image, "digest": "image", "window": [1, 1, 0, 0, 1, 1, 1]},
            r"x has the last sizes \[16, 5, 1\]; expected images that contain the window",
        ),
        ({"x": pixels, "weights": image, "digest": "image", "window": [1, 1, -1, 1, 1, 1, 1]}, ".*pad"),
        ({"window": window}, "window has 7 numbers; expected 0"),
        ({"weights": image, "digest": "image"}, "window has 0 numbers; expected 7"),
        (
            {"x": pixels, "weights": image, "digest": "image", "window": [0] * 7},
            "window is .*; expected strides above 0",
        ),
        ({"x_scale": -1.0}, "x_scale is -1.0*; expected one normal float32 number above 0"),
        ({"x_scale": [1.0, 1.0]}, "x_scale is not one number; expected one normal float32 number above 0"),
        ({"x_zero_point": 256}, "x_zero_point is 256; expected one int32 or int64 number that x's type has"),
        ({"other": torch.ones(3, 8)}, r"other has the sizes \[3, 8\]; expected \[4, 8\]"),
        ({"w_scale": -torch.ones(8)}, ".*scales.*-1"),
    ]:
        with pytest.raises(RuntimeError, match=f"^intact: {message}"):
            call(**arguments)


# Networks that torchao quantizes and Inductor compiles.


class Net(torch.nn.Module):
    """Six quantized layers, and a product of integers."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.depthwise = nn.Conv2d(16, 16, 3, stride=2, padding=1, groups=16)
        self.wide, self.square, self.last = nn.Linear(256, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.register_buffer("weights", integers(16, 12))

    def forward(self, x, rows):
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x) + x)
        x = F.hardtanh(self.depthwise(x), 0.25, 6).flatten(1)
        x = F.gelu(self.wide(x), approximate="tanh")
        return self.last(torch.relu(self.square(x) + x)), torch._int_mm(rows, self.weights)


def quantized(net: torch.nn.Module, *inputs: torch.Tensor) -> torch.nn.Module:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    with torch.no_grad():
        prepared = prepare_pt2e(torch.export.export(net.eval(), inputs).module(), quantizer)
        prepared(*inputs)
        return convert_pt2e(prepared)


def net() -> "tuple[torch.nn.Module, tuple]":
    inputs = torch.randn(4, 3, 8, 8).contiguous(memory_format=torch.channels_last), integers(20, 16)
    return quantized(Net(), *inputs), inputs


def small_net() -> "tuple[torch.nn.Module, tuple]":
    x = torch.randn(4, 64)
    return quantized(torch.nn.Sequential(torch.nn.Linear(64, 64)), x), (x,)


defined_calls = 0


def defined_call(_: Any, adapter: Callable, arguments: tuple) -> torch.Tensor:
    """The definition of a call that `intact.torch._layers` received."""
    global defined_calls
    defined_calls += 1
    call = adapter(*arguments)
    weight, window = call.weight.to_dense(), None
    if call.window is not None:
        window = (*call.window[:6:2], call.window[6])
    weight = weight.t() if window is None else weight
    layer = Layer(
        call.x,
        weight,
        call.w_scale,
        call.bias,
        window,
        call.x_scale,
        call.x_zero_point,
        call.dtype,
        call.scale,
        call.zero_point,
        call.unary,
        call.binary,
        call.other,
        call.other_scale,
        call.other_zero_point,
    )
    out = laid_out(layer, defined)
    return call.other.copy_(out) if call.binary == "sum" else out


COMPILED = """
import gc, sys, torch, test_layers, intact.torch, torch._inductor.config
from intact.torch import _layers as _torch_layers

def ran(name, model, inputs):
    print("begin", name, file=sys.stderr, flush=True)
    outputs = model(*inputs)
    print("end", file=sys.stderr, flush=True)
    return outputs

def equal(outputs, others):
    return all(map(torch.equal, outputs, others))

folder, torch._inductor.config.freezing = sys.argv[1], True
torch.manual_seed(0)
nets, wanted, paths = [test_layers.net(), test_layers.small_net()], [], []
with torch.no_grad():
    for number, (net, inputs) in enumerate(nets):
        compiled = torch.compile(net)
        own = compiled(*inputs)
        with intact.torch.enable():
            wanted.append(ran(f"compiled {number}", compiled, inputs))
            with test_layers.pytest.MonkeyPatch.context() as patch:
                patch.setattr(_torch_layers.Layers, "_run", test_layers.defined_call)
                intact.torch._operators._layers._layers.clear()  # layers that have steps do not call _run
                assert equal(wanted[number], compiled(*inputs))
        assert equal(own, compiled(*inputs))
        paths.append(intact.torch.package(torch.export.export(net, inputs), f"{folder}/{number}.pt2"))
    assert test_layers.defined_calls == 7
    for order in (0, 1), (1, 0):  # then weights have other addresses, perhaps those of the other network
        models = {number: torch._inductor.aoti_load_package(paths[number]) for number in order}
        for number in (0, 1, 0):
            assert equal(ran(f"package {number}, {order}", models[number], nets[number][1]), wanted[number]), (order, number)
        del models
        gc.collect()
    torch.save(list(nets[0][1]), f"{folder}/inputs.pt")
    torch.save(list(wanted[0]), f"{folder}/wanted.pt")

    # A planted fault: a layer that stays PyTorch's.
    del _torch_layers.ADAPTERS["qlinear_pointwise"], _torch_layers.ADAPTERS["qlinear_pointwise.tensor"]
    net, inputs = nets[1]
    path = intact.torch.package(torch.export.export(net, inputs), f"{folder}/fault.pt2")
    ran("fault", torch._inductor.aoti_load_package(path), inputs)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("packages")


def test_compiled_and_packaged(folder):
    """Compiled networks run with and without intact, and two packages share a process. All layers are intact's, and have the
    definition's bytes."""
    pytest.importorskip("torchao")
    parts = python(COMPILED, str(folder), INTACT_VERBOSE="1", TORCHINDUCTOR_COMPILE_THREADS="1").stderr.split(
        "begin "
    )[1:]
    runs = {part.split("\n")[0]: part.split("end\n")[0] for part in parts}
    text = runs["compiled 0"]
    assert "groups=16" in text and "c=3 " in text and "m=4 n=64 k=256" in text and "m=4 n=10 k=64" in text
    assert runs_of(runs.pop("fault")) == 0
    assert len(runs) == 6
    for name, text in runs.items():
        assert runs_of(text) == (1 if " 1" in name.split(",")[0] else 7), name


@pytest.mark.skipif(
    "INTACT_PYTORCH_RUN_PACKAGE" not in os.environ, reason="INTACT_PYTORCH_RUN_PACKAGE names no program"
)
def test_package_runs_without_python(folder):
    """The package of the last test in examples/run_package.cc."""
    if not (folder / "wanted.pt").is_file():
        pytest.skip("there is no package")

    def run(library: str) -> subprocess.CompletedProcess:
        files = (folder / name for name in ("0.pt2", "inputs.pt", "outputs.pt"))
        return subprocess.run(
            [os.environ["INTACT_PYTORCH_RUN_PACKAGE"], library, *files],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "INTACT_VERBOSE": "1"},
        )

    done = run(intact.torch.library())
    assert done.returncode == 0, done.stderr
    assert runs_of(done.stderr) == 7
    assert all(map(torch.equal, torch.load(folder / "outputs.pt"), torch.load(folder / "wanted.pt")))
    assert run("nothing.so").returncode == 1


def runs_of(text: str) -> int:
    return sum(line.startswith("intact: run") for line in text.splitlines())
