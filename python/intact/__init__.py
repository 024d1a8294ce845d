"""int8 matrix products and convolutions that give the same bytes on every x86-64 CPU.

    import numpy as np, intact

    weights = np.random.randint(-128, 128, (64, 16)).astype(np.int8)       # K×N
    gemm = intact.Gemm(weights, scales=0.01, c_type="u8", c_zero_point=3)
    c = gemm.run(np.full((5, 64), 255, np.uint8))                           # (5, 16), uint8

`Gemm`, `Conv` and `Grouped` are plans: they pack constant weights once and run many times. Arrays come from
NumPy, or from any library that supports DLPack. A rejected call raises `Error`. `audit` lists the layers of a
model that can compute wrong sums on CPUs without VNNI, `repair` makes them safe, `compare` compares a
quantized model with its float model."""

from . import verify
from ._audit.audit import Audit, audit
from ._compare.compare import compare
from ._compare.comparison import Comparison
from ._formats.grouped import read_grouped_weights
from ._library import Error, isas, version
from ._plans.conv import Conv, ConvFailingPair
from ._plans.gemm import FailingPair, Gemm
from ._plans.ggml_products import like_ggml, quantize_like_ggml
from ._plans.grouped import Grouped, GroupedInfo, PairsCertificate
from ._plans.grouped_weights import GroupedWeights
from ._plans.plan import Call, Certificate, Info, Tuned
from ._repair.repair import repair

__version__ = version()
__all__ = [
    "Audit",
    "Call",
    "Certificate",
    "Comparison",
    "Conv",
    "ConvFailingPair",
    "Error",
    "FailingPair",
    "Gemm",
    "Grouped",
    "GroupedInfo",
    "GroupedWeights",
    "Info",
    "PairsCertificate",
    "Tuned",
    "audit",
    "compare",
    "isas",
    "like_ggml",
    "quantize_like_ggml",
    "read_grouped_weights",
    "repair",
    "verify",
    "version",
]
