"""Times networks that Inductor compiles: with PyTorch's kernels and with intact's, in turns. PT2E quantizes networks of torchvision;
torchao's Int8DynamicActivationInt8WeightConfig quantizes `bert`, four blocks of BERT-base's size.

    PYTHONPATH=build/release/python python integrations/pytorch/scripts/bench_models.py resnet50 mobilenet_v2 bert

With HELD_TO and examples/targets/held_to.c both run as on an older CPU. Needs torchao and torchvision. The weights are random,
so the outputs mean nothing."""

from __future__ import annotations

import argparse
import os
import statistics
import time

import intact.torch
import torch
import torch._inductor.config
import torch.nn.functional as F
import torchvision
from torch import nn
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86


def image_network(name: str, batch: int) -> "tuple[nn.Module, torch.Tensor]":
    x = torch.randn(batch, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    model = torchvision.models.get_model(name, weights=None).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the statistics of all inputs, which keep the spread of activations
        if hasattr(module, "inplace"):
            module.inplace = False  # as torchao's quantizer expects it
    model.train()(torch.randn(8, *x.shape[1:]))
    model.eval()
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(model, (x,), strict=True).module(), quantizer)
    prepared(x)
    return convert_pt2e(prepared), x


class Block(nn.Module):
    """An encoder block: attention with 12 heads, and two linear layers with GELU."""

    def __init__(self, width: int = 768):
        super().__init__()
        self.project, self.attend = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (12, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        x = self.first(x + self.attend(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)))
        return self.second(x + self.narrow(F.gelu(self.widen(x))))


def bert(batch: int) -> "tuple[nn.Module, torch.Tensor]":
    model = nn.Sequential(*(Block() for _ in range(4))).eval()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model, torch.randn(batch, 128, 768)


def milliseconds(model: torch.nn.Module, x: torch.Tensor) -> float:
    begin = time.perf_counter()
    model(x)
    return (time.perf_counter() - begin) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="bert, or names of torchvision")
    parser.add_argument("--batch", type=int, default=1, help="images or texts (1)")
    parser.add_argument("--threads", type=int, default=1, help="threads (1)")
    parser.add_argument("--turns", type=int, default=30, help="timed runs of each kernel (30)")
    arguments = parser.parse_args()
    os.environ.pop("LD_PRELOAD", None)  # Inductor starts compilers, which are not held
    torch.set_num_threads(arguments.threads)
    torch._inductor.config.freezing = True
    for name in arguments.models:
        with torch.no_grad():
            torch.manual_seed(0)
            model, x = bert(arguments.batch) if name == "bert" else image_network(name, arguments.batch)
            model = torch.compile(model)
            own = model(x)
            with intact.torch.enable():
                given = model(x)
            times: "list[tuple[float, float]]" = []
            for _ in range(arguments.turns):
                pytorch = milliseconds(model, x)
                with intact.torch.enable():
                    times.append((pytorch, milliseconds(model, x)))
        ratio = statistics.median(pytorch / exact for pytorch, exact in times)
        medians = [statistics.median(column) for column in zip(*times)]
        noise = (own - given).abs().max().item() / own.abs().max().item()
        print(
            f"{name}: PyTorch {medians[0]:.2f} ms, intact {medians[1]:.2f} ms, ratio {ratio:.2f}; "
            f"largest difference of outputs {noise:.2g} of the largest output",
            flush=True,
        )


if __name__ == "__main__":
    main()
