"""PyTorch's quantized models on intact: exact int8 arithmetic, the same bytes on every CPU.

    import intact_torch
    model = intact_torch.convert(quantized_model)   # quantized by PyTorch: eager static, eager dynamic, or FX
    print(intact_torch.conversion(model))           # what was swapped, what was left, and why

The package's README.md describes everything else.
"""

import pathlib as _pathlib

import torch as _torch

_torch.ops.load_library(str(_pathlib.Path(__file__).parent / "libintact_torch.so"))

from .compare import compare  # noqa: E402
from .convert import Conversion, conversion, convert  # noqa: E402
from .dump import dump  # noqa: E402
from .modules import Conv, ConvAdd, DynamicLinear, Linear, Quantize  # noqa: E402

__all__ = [
    "Conv",
    "ConvAdd",
    "Conversion",
    "DynamicLinear",
    "Linear",
    "Quantize",
    "compare",
    "conversion",
    "convert",
    "dump",
    "isa_available",
]


def isa_available(name: str) -> bool:
    """Whether this machine, INTACT_MAX_ISA and the process permit the ISA `name`, such as "avx2"."""
    return _torch.ops.intact.isa_available(name)
