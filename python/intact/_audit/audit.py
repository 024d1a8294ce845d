"""`intact audit MODEL`: which layers of a model can saturate, in which engine, and how large the error can
be."""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Iterable

import numpy as np

from .._deadline import IS_OVER, begin_unit, is_time_over
from .._engines.table import Engine, engines, pairs_of
from .._formats.model import ActivationProduct, QuantizedLayer, QuantizedModel
from .._library import counted, excerpt, invalid, is_x86, isas
from .._plans.gemm import FailingPair, Gemm

# depths of a plan: sums of 32768 products stay within int32, and a certificate needs only adjacent depths
_PIECE = 32768


def pairings(engine: Engine, layer: QuantizedLayer) -> list[str]:
    """The pairs on a CPU with AVX2, then the pairs on a CPU with AVX-512 and without VNNI, if they differ: each for
    narrow outputs, then for wide outputs, if they differ."""
    return list(
        dict.fromkeys(
            pairs_of(engine, layer, isa, is_wide) for isa in ("avx2", "avx512") for is_wide in (False, True)
        )
    )


@dataclass
class Certified:
    """A layer's certificate in one pairing. `witness`: a pair that can saturate, in words. `error`: the most
    that clamping can move an output, in `error_unit`: steps of the output if they are known, else units of
    the sum. `only_with_avx512`: pairs saturate only on CPUs with AVX-512 and without VNNI."""

    pairing: str
    pairs: int
    failing_pairs: int
    failing_columns: int
    witness: str = ""
    error: float = 0.0
    error_unit: str = ""
    only_with_avx512: bool = False

    @property
    def is_proven(self) -> bool:
        return self.failing_pairs == 0


@dataclass
class AuditedLayer:
    """A layer and its certificate in each engine's pairing. If the engine has another pairing on CPUs with
    AVX-512, and only this one fails, its certificate. `remedies`: ways to make the layer safe."""

    layer: QuantizedLayer
    engines: dict[str, Certified]
    uses_7_bits: bool
    remedies: list[str] = field(default_factory=list)

    def fails(self, names: Iterable[str]) -> bool:
        return any(not self.engines[name].is_proven for name in names)

    def pairings(self, names: Iterable[str]) -> set[str]:
        """All pairings of the engines `names`."""
        return {pairs for name in names for pairs in pairings(engines()[name], self.layer)}


@dataclass
class Audit:
    """The audit of a model for some engines."""

    model: QuantizedModel
    engines: list[str]
    layers: list[AuditedLayer]
    cpu_clamps: bool  # whether this CPU is an x86-64 without VNNI
    has_avx512: bool  # whether this CPU has AVX-512
    # products of two activations, which have no constant weights
    products: list[AuditedLayer] = field(default_factory=list)
    on_data: Any = None  # the result of run.run_on_data()
    missing: str = ""  # what is missing because the time was over

    @property
    def is_proven(self) -> bool:
        """Whether every layer was audited, and no layer can saturate in any of the engines."""
        return not self.model.not_audited and not self.is_unsafe

    @property
    def is_unsafe(self) -> bool:
        """Whether some layer, or some product of two activations, can saturate."""
        return any(layer.fails(self.engines) for layer in [*self.layers, *self.products])

    @property
    def affecting(self) -> list[str]:
        """The engines in which some layer can saturate on this CPU. Some engines clamp some pairs on CPUs
        with VNNI too."""

        def fails_here(layer: AuditedLayer, name: str) -> bool:
            found = layer.engines[name]
            if not is_x86() or found.is_proven or (found.only_with_avx512 and not self.has_avx512):
                return False
            return self.cpu_clamps or pairs_of(name, layer.layer, "avx512_vnni") != "none"

        return [
            name
            for name in self.engines
            if any(fails_here(layer, name) for layer in [*self.layers, *self.products])
        ]

    def failing(self, engine: str) -> int:
        return sum(not layer.engines[engine].is_proven for layer in self.layers)


# pairs of a convolution that begin anew after some depths
_BEGIN_ANEW = ("within_tap", "kernel_row", "kernel_column")


def paired(depths: np.ndarray, layer: QuantizedLayer, pairs: str, nothing: int = 0) -> np.ndarray:
    """The depths of a convolution, the last axis of `depths`, in an order in which pairs are adjacent. A depth without a
    partner gets `nothing`."""
    if pairs not in _BEGIN_ANEW:
        return depths
    first, kernel = depths.shape[:-1], layer.weights.shape[1:-1]
    length = layer.weights.shape[-1] if pairs == "within_tap" else kernel[-1]
    if pairs == "kernel_column" and len(kernel) > 1:
        depths = depths.reshape(*first, -1, *kernel[-2:]).swapaxes(-1, -2)
        length = kernel[-1] * kernel[-2]
    depths = depths.reshape(*first, -1, length)
    if length % 2:
        depths = np.concatenate([depths, np.full_like(depths[..., :1], nothing)], axis=-1)
    return depths.reshape(*first, -1)


def slices(layer: QuantizedLayer, pairs: str) -> list[np.ndarray]:
    """The weights as matrices K×N in which pairs are adjacent depths: one matrix, or one for each group."""
    weights = layer.weights
    nothing = 128 if weights.dtype == np.uint8 else 0
    if pairs == "halves":  # the last depth of the first half is alone
        return [np.insert(weights, (len(weights) + 1) // 2, nothing, axis=0)]
    if not layer.is_convolution:
        return [weights]
    taps = paired(weights.reshape(len(weights), -1), layer, pairs, nothing)
    return [group.T for group in np.split(taps, layer.groups)]


def depths_of_slices(layer: QuantizedLayer, pairs: str) -> np.ndarray:
    """The layer's depth of each row of a matrix of slices(); −1: an inserted row."""
    if pairs == "halves":
        return np.insert(np.arange(len(layer.weights)), (len(layer.weights) + 1) // 2, -1)
    if not layer.is_convolution:
        return np.arange(len(layer.weights))
    return paired(np.arange(layer.weights[0].size), layer, pairs, -1)


def certify(layer: QuantizedLayer, pairs: str) -> Certified:
    """Counts the pairs of a layer's weights that can saturate, from the library's certificates. Bounds the
    error."""
    if pairs == "none":
        return Certified(pairs, 0, 0, 0)
    total = failing = 0
    over = []  # for each column, how far clamped sums can move its result, in the worse direction
    witness = ""
    low, high = layer.a_range
    high = max(high, low + 1)  # to the library, (0, 0) means the whole range of the type
    for matrix in slices(layer, pairs):
        excess = np.zeros((2, matrix.shape[1]), np.int64)
        for begin in range(0, len(matrix), _PIECE):
            plan = Gemm(
                matrix[begin : begin + _PIECE],
                a_type=layer.a_type,
                a_range=(low, high),
                a_zero_point=low,
                usual_m=1,
            )
            total += plan.certificate().pairs
            found = plan.failing_pair_array()
            failing += len(found)
            if not len(found):
                continue
            beyond = np.maximum(found["sum"] - 32767, -32768 - found["sum"])
            np.add.at(excess, ((found["sum"] > 0).astype(int), found["n"]), beyond)
            if not witness:
                pair = FailingPair(*found[beyond.argmax()].tolist())
                column = f"{'output channel' if layer.is_convolution else 'column'} {pair.n + sum(len(part) for part in over)}"
                one, other = depths_of_slices(layer, pairs)[begin + pair.k : begin + pair.k + 2]
                witness = (
                    f"{column}, depths {one} {other}: {pair.a0}*{pair.w0} + {pair.a1}*{pair.w1} = {pair.sum}"
                )
        over.append(excess.max(axis=0))
    columns = np.concatenate(over)
    unit, error = "units of the sum", float(columns.max())
    if layer.scales is not None and layer.scales.size in (1, columns.size):
        # rounded up to whole steps
        unit, error = "steps of the output", float(math.ceil((columns * layer.scales).max()))
    return Certified(
        pairs, total, failing, int(np.count_nonzero(columns)), witness, error, unit if failing else ""
    )


def certify_product(product: ActivationProduct, pairs: str) -> Certified:
    """The certificate of a product of two activations, from the ranges of both: one pair stands for all."""
    if pairs == "none":
        return Certified(pairs, 1, 0, 0)
    shift = 128 if product.layer.is_shifted else 0
    products = [((a + shift) * b, f"{a + shift}*{b}") for a in product.layer.a_range for b in product.b_range]
    beyond, (value, words) = max((max(2 * one[0] - 32767, -32768 - 2 * one[0]), one) for one in products)
    if beyond <= 0:
        return Certified(pairs, 1, 0, 0)
    return Certified(pairs, 1, 1, 1, f"{words} + {words} = {2 * value}")


def _certificates(
    layer: QuantizedLayer, names: list[str], certify_in: Callable[[str], Certified]
) -> dict[str, Certified]:
    """By engine, the certificate of a layer in the engine's pairing, or in its pairing on CPUs with AVX-512
    if only this one fails: of two such pairings the one with more failing pairs."""
    known: dict[str, Certified] = {}
    certified: dict[str, Certified] = {}
    for name in names:
        for pairs in pairings(engines()[name], layer):
            if pairs not in known:
                known[pairs] = certify_in(pairs)
            before, found = certified.get(name), known[pairs]
            if before is None:
                certified[name] = found
            elif found.failing_pairs > before.failing_pairs and (before.is_proven or before.only_with_avx512):
                certified[name] = replace(found, only_with_avx512=True)
    return certified


def _remedies(layer: QuantizedLayer, names: list[str], model: QuantizedModel) -> list[str]:
    """Ways to remove the pairs that saturate in the engines `names`, as sentences for the report."""
    channels = layer.weights.shape[-1] if layer.is_convolution else len(layer.weights)
    found = []
    if "onnxruntime" in names:
        found.append(
            "u8 weights with zero point 128 (ONNX Runtime: session.x64quantprecision=1; exact, slower)"
        )
        if layer.is_qdq:
            found.append("s8 activations (ONNX Runtime: session.qdqisint8allowed=1; exact, slower)")
    if channels > 1:
        found.append(
            "a new order of the channels"
            + (": `intact repair MODEL -o OUT` (exact)" if model.engine == "onnxruntime" else " (exact)")
        )
    options = {
        "onnxruntime": "ONNX Runtime: reduce_range",
        "fbgemm": "PyTorch: reduce_range",
        "onednn": "PyTorch: reduce_range",
        "openvino": "NNCF: overflow_fix",
    }
    how = [options[name] for name in names if name in options]
    found.append(f"7-bit weights ({', '.join(dict.fromkeys(how))}; half the resolution of each weight)")
    found.append("7-bit activations (half the resolution of each activation)")
    if model.engine == "litert":
        found.append("LiteRT as the engine: its products are exact")
    found.append("intact as the engine's int8 library: exact on every CPU")
    return found


def cpu_clamps() -> bool:
    """Whether this x86-64 CPU has no VNNI, or INTACT_MAX_ISA hides it: no instruction then adds products of 8
    bits in int32."""
    return is_x86() and not {"avx_vnni", "avx512_vnni"} & set(isas())


def why_exact() -> str:
    """Why this CPU does not clamp, if it does not."""
    return "has VNNI" if is_x86() else "is not an x86-64"


def read_model(
    path: str | os.PathLike, proto: Any = None, ask: bool = True, for_others: bool = False
) -> QuantizedModel:
    """The quantized layers of a model file. Its first bytes or its name show the format: ONNX, TFLite or
    OpenVINO IR. `proto`: the file's ONNX model with changed constants, which is read instead of the file.
    `ask`, `for_others`: as for read_onnx()."""
    if proto is not None:
        from .._formats.onnx import read_onnx

        return read_onnx(path, proto, ask, for_others)
    head = b""
    try:
        if os.path.isfile(path):  # a pipe can be read only once
            with open(path, "rb") as file:
                head = file.read(8)
    except OSError as error:
        raise invalid(f"{excerpt(path)}: {error.strerror}") from None
    suffix = Path(path).suffix.lower()
    if head[4:] == b"TFL3" or suffix in (".tflite", ".lite"):
        from .._formats.tflite import read_tflite as read
    elif suffix == ".xml":
        from .._formats.openvino import read_openvino as read
    else:
        from .._formats.onnx import read_onnx

        return read_onnx(path, ask=ask, for_others=for_others)
    return read(Path(path))


def audit(
    path: str | os.PathLike,
    *,
    engines_asked: Iterable[str] | None = None,
    progress: Any = None,
    proto: Any = None,
    ask: bool = True,
    may_end_early: bool = False,
) -> Audit:
    """Audits the model in a file. `engines_asked`: names in `engines()`, or "all". Default: the engine that
    runs files of this format. `progress(done, of)` is called after each layer. `proto`: as for read_model().
    `ask`: if ONNX Runtime is installed, it is asked which QDQ groups it computes in integers; without it, or
    with False, rules decide (docs/audit_reference.md). `may_end_early`: if the time is over, the remaining
    layers are passed over, and the audit proves nothing.

    Raises `Error` for a file that cannot be read, or an unknown engine."""
    table = engines()
    names = list(dict.fromkeys(engines_asked or []))
    if "all" in names:
        names = list(table)
    for name in names:
        if name not in table:
            raise invalid(f"engine {name!r}: is not known; expected {', '.join(table)}, or all")
    model = read_model(path, proto, ask, for_others=bool(set(names) - {"onnxruntime"}))
    names = names or [model.engine]
    layers: list[AuditedLayer] = []
    products = model.products
    for i, layer in enumerate(model.layers):
        if may_end_early and is_time_over():
            for left in [*model.layers[i:], *(product.layer for product in products)]:
                model.pass_over(f"{left.node}: {IS_OVER}")
            products = []
            break
        begin_unit("the audit")
        certified = _certificates(layer, names, functools.partial(certify, layer))
        uses_7_bits = layer.b_type == "s8" and bool(layer.weights.min() >= -64 and layer.weights.max() <= 64)
        layers.append(AuditedLayer(layer, certified, uses_7_bits))
        if progress:
            progress(i + 1, len(model.layers))
    failing = [name for name in names if any(layer.fails([name]) for layer in layers)]
    for audited in layers:
        if audited.fails(names):
            audited.remedies = _remedies(audited.layer, failing, model)
    audited_products = [
        AuditedLayer(
            product.layer,
            _certificates(product.layer, names, functools.partial(certify_product, product)),
            False,
        )
        for product in products
    ]
    left = len(model.layers) - len(layers)
    missing = f"{left} of {counted(len(model.layers), 'layer')}: {IS_OVER}" if left else ""
    return Audit(model, names, layers, cpu_clamps(), "avx512" in isas(), audited_products, missing=missing)
