"""FBGEMM, PyTorch's quantized engine: 200 random layers have the bytes of a model. Without VNNI pairs of adjacent depths of the
flattened window clamp to int16. With VNNI only the depthwise kernels do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from test_operators import python, without_vnni  # noqa: E402, F401

LAYERS = 200
F32 = np.float32


@dataclass
class Layer:
    """`weight`: of a linear layer, or of a convolution with `window`: stride, padding and groups."""

    x: torch.Tensor
    weight: torch.Tensor
    w_scale: np.ndarray
    bias: np.ndarray
    relu: bool
    x_scale: float
    x_zero_point: int
    scale: float
    zero_point: int
    window: "tuple[int, int, int] | None" = None


def random_layer(rng: np.random.Generator, kind: str) -> Layer:
    def integers(*sizes: int, dtype: Any) -> torch.Tensor:
        limits = np.iinfo(dtype)
        return torch.from_numpy(rng.integers(limits.min, limits.max + 1, sizes, dtype))

    outputs, channels, window = int(rng.integers(1, 40)), int(rng.integers(1, 40)), None
    if kind == "linear":
        depth = int(rng.integers(1, 300))
        x, weight = (
            integers(int(rng.integers(1, 20)), depth, dtype=np.uint8),
            integers(outputs, depth, dtype=np.int8),
        )
    else:
        groups = {"conv": 1, "groups": int(rng.integers(2, 5)), "depthwise": 8 * int(rng.integers(1, 4))}[
            kind
        ]
        outputs, channels = (groups, groups) if kind == "depthwise" else (outputs * groups, channels * groups)
        kernel = 3 if kind == "depthwise" else int(rng.integers(1, 5))
        window = (int(rng.integers(1, 3)), int(rng.integers(0, 2)) if kernel > 1 else 0, groups)
        x = integers(int(rng.integers(1, 3)), channels, 6, 7, dtype=np.uint8)
        weight = integers(outputs, channels // groups, kernel, kernel, dtype=np.int8)
    depth = weight[0].numel()
    # Sums reach a few times 100·70·√depth. Most outputs are inside of 0…255.
    return Layer(
        x,
        weight,
        (rng.random(len(weight)) * 0.01 + 0.001).astype(F32),
        rng.standard_normal(len(weight)).astype(F32),
        bool(rng.integers(2)),
        float(rng.random() * 0.02 + 0.005),
        int(rng.integers(256)),
        float(np.sqrt(depth) * (rng.random() + 0.5) * 0.01),
        int(rng.integers(256)),
        window,
    )


def random_layers() -> "list[Layer]":
    rng = np.random.default_rng(41)
    return [
        random_layer(rng, ("linear", "conv", "groups", "depthwise", "linear")[i % 5]) for i in range(LAYERS)
    ]


def run(layer: Layer) -> np.ndarray:
    """FBGEMM's outputs."""
    quantized, points = torch.ops.quantized, torch.zeros(len(layer.weight), dtype=torch.int64)
    x = torch._make_per_tensor_quantized_tensor(layer.x, layer.x_scale, layer.x_zero_point)
    weight = torch._make_per_channel_quantized_tensor(
        layer.weight, torch.from_numpy(layer.w_scale).double(), points, 0
    )
    bias, name = torch.from_numpy(layer.bias), "linear" if layer.window is None else "conv2d"
    if layer.window is None:
        packed = quantized.linear_prepack(weight, bias)
    else:
        stride, padding, groups = layer.window
        packed = quantized.conv2d_prepack(weight, bias, [stride] * 2, [padding] * 2, [1, 1], groups)
    operator = getattr(quantized, name + ("_relu" if layer.relu else ""))
    return operator(x, packed, layer.scale, layer.zero_point).int_repr().numpy()


def operands(layer: Layer) -> "tuple[np.ndarray, np.ndarray]":
    """The activations of each output, (..., groups, depth), and the weights, (groups, outputs, depth). A convolution's depths are
    the flattened window: kernel row, kernel column, channel of the group. Padding has the zero point."""
    if layer.window is None:
        return layer.x.int().numpy()[:, None], layer.weight.int().numpy()[None]
    stride, padding, groups = layer.window
    kernel = layer.weight.shape[2]
    x = F.pad(layer.x.int(), [padding] * 4, value=layer.x_zero_point)
    windows = x.unfold(2, kernel, stride).unfold(3, kernel, stride)  # n, c, oh, ow, kh, kw
    n, channels, height, width = windows.shape[:4]
    windows = windows.reshape(n, groups, channels // groups, height, width, kernel, kernel).permute(
        0, 3, 4, 1, 5, 6, 2
    )
    weight = layer.weight.int().permute(0, 2, 3, 1).reshape(groups, len(layer.weight) // groups, -1)
    return windows.reshape(n, height, width, groups, -1).numpy(), weight.numpy()


def exact(products: np.ndarray) -> np.ndarray:
    return products.sum(-1)


def clamped(products: np.ndarray) -> np.ndarray:
    """Two adjacent products are added in int16, which clamps."""
    products = np.pad(products, [(0, 0)] * (products.ndim - 1) + [(0, products.shape[-1] % 2)])
    return (products[..., ::2] + products[..., 1::2]).clip(-32768, 32767).sum(-1)


Sums = Callable[[np.ndarray], np.ndarray]  # of products along the last dimension


def outputs(layer: Layer, sums: Sums) -> np.ndarray:
    """FBGEMM's rounding, each operation in float32."""
    x, weight = operands(layer)
    total = sums(x[..., None, :] * weight) - layer.x_zero_point * weight.sum(-1)
    total = total.reshape(*total.shape[:-2], -1)
    scale = F32(layer.x_scale) * layer.w_scale
    f = (total.astype(F32) + layer.bias / scale) * (scale / F32(layer.scale))
    assert f.dtype == F32
    lowest = layer.zero_point if layer.relu else 0
    given = np.clip(np.rint(f) + F32(layer.zero_point), lowest, 255).astype(np.uint8)
    return given if layer.window is None else np.moveaxis(given, -1, 1)


def kernel(layer: Layer) -> str:
    """The kernel that FBGEMM chooses. Its depthwise kernel has 3×3 taps, one channel in each group,
    and a padding of 1."""
    if layer.window is None:
        return "linear"
    is_depthwise = layer.window[1:] == (1, len(layer.weight)) and layer.weight.shape[1:] == (1, 3, 3)
    return "depthwise" if is_depthwise else "conv"


@dataclass
class Count:
    """Of layers of a kernel."""

    layers: int = 0
    exact: int = 0
    clamped: int = 0
    differ: int = 0  # with other bytes if pairs clamp


def equal_layers(pairs: Sums = clamped) -> "dict[str, Count]":
    """By kernel: how many layers are equal to which model."""
    torch.backends.quantized.engine = "fbgemm"
    torch.set_num_threads(1)
    counts: "dict[str, Count]" = {}
    for layer in random_layers():
        given, by_model = run(layer), {sums: outputs(layer, sums) for sums in (exact, pairs)}
        count = counts.setdefault(kernel(layer), Count())
        count.layers += 1
        count.exact += np.array_equal(given, by_model[exact])
        count.clamped += np.array_equal(given, by_model[pairs])
        count.differ += not np.array_equal(by_model[exact], by_model[pairs])
    return counts


def counted(expression: str = "equal_layers()", **environment: str) -> "dict[str, Count]":
    return eval(python(f"from test_fbgemm import *; print({expression})", **environment).stdout)


def test_pairs_clamp_without_vnni(without_vnni):
    counts = counted(**without_vnni)
    assert (
        set(counts) == {"linear", "conv", "depthwise"}
        and sum(count.layers for count in counts.values()) == LAYERS
    )
    for count in counts.values():
        assert (
            count.clamped == count.layers
            and count.exact == count.layers - count.differ
            and count.differ > count.layers / 2
        )


@pytest.mark.skipif(
    "avx512_vnni" not in Path("/proc/cpuinfo").read_text(), reason="this CPU has no AVX-512-VNNI"
)
def test_only_depthwise_kernels_clamp_with_vnni():
    counts = counted()
    for name in ("linear", "conv"):
        assert counts[name].exact == counts[name].layers
    assert counts["depthwise"].clamped == counts["depthwise"].layers > counts["depthwise"].exact


def across(products: np.ndarray) -> np.ndarray:
    """A planted fault: depths i and i + half form the pairs."""
    half = products.shape[-1] // 2
    order = [index for i in range(half) for index in (i, i + half)] + [*range(2 * half, products.shape[-1])]
    return clamped(products[..., order])


def test_other_pairs_are_found(without_vnni):
    for count in counted("equal_layers(across)", **without_vnni).values():
        assert count.clamped < count.layers / 2
