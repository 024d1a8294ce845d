"""Which layers of a model can saturate, in which engine, and by how much: `intact audit MODEL`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable

import numpy as np

from ._gemm import Gemm
from ._library import Error, invalid, isas
from ._onnx import QuantizedLayer, QuantizedModel, read_onnx

_PIECE = 32768  # depths of a plan: certificates look at pairs, and no sum of so many leaves int32


def engines() -> dict:
    """The table of engines, engines.json: by name, which pairs each adds in int16."""
    return json.loads(Path(__file__).with_name("engines.json").read_text())["engines"]


def _row(engine: dict, layer: QuantizedLayer) -> dict:
    types = layer.a_type + layer.b_type
    for row in engine["rows"]:
        if row["operators"] != ["*"] and layer.operator not in row["operators"]:
            continue
        if "types" in row and types not in row["types"]:
            continue
        return row
    return {"pairing": "none"}


def pairing(engine: dict, layer: QuantizedLayer) -> str:
    """In which pairs an engine adds a layer's products in int16 on a CPU without VNNI: "depths", "within_tap",
    "flattened", or "none"."""
    row = _row(engine, layer)
    if layer.groups > 1 and layer.weights.shape[-1] % 2:
        return row.get("odd_grouped", row["pairing"])
    return row["pairing"]


@dataclass
class Certified:
    """What the weights prove in one pairing. `witness`: a pair that can saturate, in words. `error`: the most that all
    clamps together can move an output, in its quantization's steps if these are known, else in units of the sum."""

    pairing: str
    pairs: int
    failing_pairs: int
    failing_columns: int
    witness: str = ""
    error: float = 0.0
    error_unit: str = ""

    @property
    def is_proven(self) -> bool:
        return self.failing_pairs == 0


@dataclass
class AuditedLayer:
    """A layer and its certificate in each engine's pairing; `remedies` remove what can saturate."""

    layer: QuantizedLayer
    engines: dict[str, Certified]
    uses_7_bits: bool
    remedies: list[str] = field(default_factory=list)

    def fails(self, names: Iterable[str]) -> bool:
        return any(not self.engines[name].is_proven for name in names)


@dataclass
class Audit:
    """The audit of a model for some engines."""

    model: QuantizedModel
    engines: list[str]
    layers: list[AuditedLayer]
    cpu_clamps: bool  # whether this CPU has no VNNI
    on_data: Any = None  # what _run.run_on_data() found

    @property
    def is_proven(self) -> bool:
        """Whether all layers were audited and none can saturate in any of the engines, whatever the input."""
        return not self.model.not_audited and not self.is_unsafe

    @property
    def is_unsafe(self) -> bool:
        """Whether some layer can saturate."""
        return any(layer.fails(self.engines) for layer in self.layers)

    @property
    def is_affected(self) -> bool:
        """Whether some layer can saturate on this CPU: some pairs of some engines clamp where there is VNNI too."""
        table = engines()
        return any(not layer.engines[name].is_proven and (self.cpu_clamps or _row(table[name], layer.layer).get("with_vnni", False))
                   for layer in self.layers for name in self.engines)

    def failing(self, engine: str) -> int:
        return sum(not layer.engines[engine].is_proven for layer in self.layers)


def _slices(layer: QuantizedLayer, pairs: str) -> list[np.ndarray]:
    """Matrices K×N whose adjacent depths are the pairs: one for each group, or tap of a group."""
    weights = layer.weights
    if not layer.is_convolution:
        return [weights]
    per_group = np.split(weights, layer.groups) if layer.groups > 1 and pairs == "flattened" else [weights]
    if pairs == "flattened":
        return [group.reshape(len(group), -1).T for group in per_group]
    depth = weights.shape[-1]
    taps = weights.reshape(len(weights), -1, depth)
    if depth % 2:  # an odd last channel is alone
        taps = np.concatenate([taps, np.zeros_like(taps[..., :1])], axis=2)
    return [taps.reshape(len(taps), -1).T]


def excesses(matrix: np.ndarray, a_range: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """By how much the largest and the least sum of each pair of adjacent depths leave int16: (pairs, N) each. Weights are
    s8, activations of `a_range` are as the instruction sees them."""
    low, high = a_range
    if len(matrix) % 2:
        matrix = np.concatenate([matrix, np.zeros_like(matrix[:1])])
    w = matrix.astype(np.int32).reshape(len(matrix) // 2, 2, -1)
    most = np.where(w > 0, w * high, w * low).sum(axis=1)
    least = np.where(w > 0, w * low, w * high).sum(axis=1)
    return np.maximum(most - 32767, 0), np.maximum(-32768 - least, 0)


def certify(layer: QuantizedLayer, pairs: str) -> Certified:
    """Which pairs of a layer's weights can saturate. The library's certificates count; the error's bound is theirs
    too, in NumPy."""
    if pairs == "none":
        return Certified(pairs, 0, 0, 0)
    total = failing = 0
    over = np.zeros(0)
    witness = ""
    low, high = layer.a_range
    for matrix in _slices(layer, pairs):
        upper = np.zeros(matrix.shape[1], np.int64)
        lower = np.zeros(matrix.shape[1], np.int64)
        for begin in range(0, len(matrix), _PIECE):
            piece = matrix[begin:begin + _PIECE]
            # A range of 0 and 0 is the library's word for all.
            plan = Gemm(piece, a_type=layer.a_type, a_range=(low, max(high, 1)), a_zero_point=low, usual_m=1)
            certificate = plan.certificate()
            total += certificate.pairs
            failing += certificate.failing_pairs
            if not certificate.failing_pairs:
                continue
            above, below = excesses(piece, (low, max(high, 1)))
            if np.count_nonzero(above | below) != certificate.failing_pairs:
                raise Error("CODEGEN_FAILED", f"{layer.name}: certificate and count differ; this is a bug of intact")
            upper += above.sum(axis=0)
            lower += below.sum(axis=0)
            if not witness:
                worst = np.unravel_index(np.argmax(np.maximum(above, below)), above.shape)
                k, n = 2 * int(worst[0]), int(worst[1])
                w = [int(value) for value in piece[k:k + 2, n]] + [0]
                best = above[worst] >= below[worst]
                a = [max(high, 1) if (value > 0) == best else low for value in w[:2]]
                column = "output channel" if layer.is_convolution else "column"
                witness = f"{column} {len(over) + n}, depths {begin + k} {begin + k + 1}: {a[0]}*{w[0]} + {a[1]}*{w[1]} = {a[0] * w[0] + a[1] * w[1]}"
        over = np.concatenate([over, np.maximum(upper, lower)])
    unit, error = "units of the sum", float(over.max(initial=0))
    if layer.scales is not None and over.size:
        steps = np.broadcast_to(layer.scales, over.shape) if layer.scales.size in (1, over.size) else None
        if steps is not None:
            unit, error = "steps of the output", float((over * steps).max())
    return Certified(pairs, total, failing, int(np.count_nonzero(over)), witness, error, unit if failing else "")


_REMEDIES = {
    "depths": ["u8 weights with zero point 128 (ONNX Runtime: session.x64quantprecision=1; exact, about 1.16 times the time)",
               "a new order of the channels"],
    "conv": ["u8 weights with zero point 128 (ONNX Runtime: session.x64quantprecision=1; exact, about 1.16 times the time)",
             "a new order of the channels, with zero channels where their number is odd"],
    "all": ["7-bit weights (reduce_range: half the resolution of each weight)", "7-bit activations (half of theirs)",
            "intact: exact on every CPU"],
}


def is_affected() -> bool:
    return not {"avx_vnni", "avx512_vnni"} & set(isas())


def audit(path: str | os.PathLike, *, engines_asked: Iterable[str] = ("onnxruntime",), progress: Any = None) -> Audit:
    """Audits the model in a file for engines, names of `engines()`. `progress(done, of)` is called after each layer.

    Raises `Error` for a file that cannot be read, or an unknown engine."""
    table = engines()
    names = list(dict.fromkeys(engines_asked))
    if "all" in names:
        names = list(table)
    for name in names:
        if name not in table:
            raise invalid(f"--engine: is {name!r}; expected {', '.join(table)}, or all")
    model = read_onnx(path)
    layers = []
    for i, layer in enumerate(model.layers):
        known: dict[str, Certified] = {}
        certified = {}
        for name in names:
            pairs = pairing(table[name], layer)
            if pairs not in known:
                known[pairs] = certify(layer, pairs)
            certified[name] = known[pairs]
        signed = layer.weights if layer.b_type == "s8" else layer.weights.astype(np.int16) - 128
        audited = AuditedLayer(layer, certified, bool(signed.size > 1 and -64 <= int(signed.min()) and int(signed.max()) <= 64))
        if audited.fails(names):
            audited.remedies = _REMEDIES["conv" if layer.is_convolution else "depths"] + _REMEDIES["all"]
        layers.append(audited)
        if progress:
            progress(i + 1, len(model.layers))
    return Audit(model, names, layers, is_affected())
