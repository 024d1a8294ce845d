"""What a comparison of a quantized model with its float model finds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._audit.audit import Audit
from .._engines.data import decibels, distances, power
from .match import Matched

NEAR = 3.0  # decibels: a difference from exact counts only if it exceeds the control by more than this
KINDS = ("data-insensitive", "data-sensitive", "implementation")


@dataclass
class Distance:
    """How far values are from a reference. `largest`: the largest error, in steps of the quantization if they
    are known. `samples`: decibels of each sample."""

    values: int = 0
    signal: float = 0.0
    noise: float = 0.0
    largest: float = 0.0
    samples: list[float] = field(default_factory=list)
    _dot: float = 0.0
    _power: float = 0.0

    def add(self, reference: np.ndarray, other: np.ndarray, step: Any = 1.0) -> "Distance":
        reference, other = np.asarray(reference, np.float64), np.asarray(other, np.float64)
        apart = distances(reference, other)
        signal, noise = power(reference), float(np.square(apart).sum())
        self.values += reference.size
        self.signal += signal
        self.noise += noise
        self.largest = max(self.largest, float((apart / step).max(initial=0)))
        self.samples.append(decibels(signal, noise))
        self._power += power(other)
        finite = np.isfinite(reference) & np.isfinite(other)
        self._dot += float((reference[finite] * other[finite]).sum())
        return self

    @property
    def sqnr(self) -> float:
        return decibels(self.signal, self.noise)

    @property
    def cosine(self) -> float:
        lengths = math.sqrt(self.signal * self._power)
        return self._dot / lengths if lengths > 0 else float(self.noise == 0)

    @property
    def l2(self) -> float:
        """The L2 norm of the error over the L2 norm of the reference."""
        return math.sqrt(self.noise / self.signal) if self.signal > 0 else math.inf if self.noise else 0.0

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.samples), max(self.samples)


@dataclass
class ComparedLayer:
    """A layer and its float node. `reason`: why it was not compared on data, or "".

    `by`: the power of the product's error on the float model's input, if there is one cause alone: "weights",
    "bias", "input" and "output" (quantized as stored), "dynamic_input" and "dynamic_output" (quantized as
    `dynamically_quantized` chooses for each sample), "clamps" (clamped sums), and the keys of `requantized`.
    `per_channel`, `eighth_bit`: the error of the weights if they are quantized with a scale for each output
    channel, or with all 8 bits; None if they are stored this way."""

    matched: Matched
    weights: Distance | None = None
    channels: list[float] = field(default_factory=list)  # decibels of each output channel's weights
    per_channel: Distance | None = None
    eighth_bit: Distance | None = None
    requantized: dict[str, np.ndarray] = field(default_factory=dict)
    uses_7_bits: bool = False
    reason: str = ""
    input: Distance | None = None
    dynamic_input: Distance | None = None
    clipped: int = 0
    output_clipped: int = 0
    ranges: list[tuple[float, float]] = field(default_factory=list)  # the range of each sample's input
    by: dict[str, float] = field(default_factory=dict)
    product_signal: float = 0.0  # power of the float product
    sums: int = 0
    clamped: int = 0
    own: Distance | None = None
    network: Distance | None = None
    # how far the stock engine is from the exact variant, for the layer by itself
    here: Distance | None = None
    control: Distance | None = None

    @property
    def name(self) -> str:
        return self.matched.layer.name

    @property
    def is_per_channel(self) -> bool:
        return self.matched.scales is not None and self.matched.scales.size > 1

    @property
    def calibrated(self) -> tuple[float, float] | None:
        """The range of activations that the model can store; None if a run chooses it."""
        m = self.matched
        if not m.is_static:
            return None
        limits = np.iinfo(m.cut_type)
        return (limits.min - m.point) * m.scale, (limits.max - m.point) * m.scale

    @property
    def used(self) -> list[float]:
        """For each sample, the width of the sample's range over the calibrated range's width."""
        if self.calibrated is None:
            return []
        low, high = self.calibrated
        return [(top - bottom) / (high - low) for bottom, top in self.ranges]

    @property
    def explained(self) -> float:
        """The power of the errors that weights, bias, activations and rounding explain."""
        return sum(self.by.get(key, 0.0) for key in ("weights", "bias", "input", "output"))

    @property
    def parts(self) -> dict[str, float]:
        """The power of the layer's own errors in each category of quantization; 0 if the quantization does
        not explain them."""
        parts = dict.fromkeys(KINDS[:2], 0.0)
        if self.own is None or self.unexplained:
            return parts
        if self.by:
            by = self.by
            parts["data-sensitive"] = sum(
                max(0.0, by[key] - by[f"dynamic_{key}"]) for key in ("input", "output")
            )
            parts["data-insensitive"] = self.explained - parts["data-sensitive"]
        elif not self.matched.is_static:  # a run chooses the ranges
            parts["data-insensitive"] = self.own.noise
        return parts

    @property
    def engine_noise(self) -> float:
        """The power of the implementation's errors, the largest of three: sums that clamp on CPUs without
        VNNI, the stock engine's difference from the exact variant, and errors that no quantization
        explains."""
        return max(
            self.by.get("clamps", 0.0), self.here.noise if self.differs_here else 0.0, self.unexplained
        )

    @property
    def engine_excess(self) -> float:
        """Decibels of the implementation's errors over all errors of the quantization."""
        return decibels(self.engine_noise, sum(self.parts.values())) if self.engine_noise else -math.inf

    @property
    def differs_here(self) -> bool:
        """Whether the stock engine differs from the exact variant on this CPU, by more than the control."""
        return self.here is not None and self.here.noise > 0 and self.here.sqnr < self.control.sqnr - NEAR

    @property
    def unexplained(self) -> float:
        """The power of the layer's own errors if the quantization does not explain them, else 0. An example:
        operators differ."""
        if self.own is None or "weights" not in self.by or self.matched.layer.op_type == "QAttention":
            return 0.0
        return self.own.noise if self.own.noise > 4 * self.explained + 1e-8 * self.own.signal else 0.0

    @property
    def category(self) -> str:
        """The category with most of the layer's quantization error; "" if this error is 0 or unknown."""
        parts = self.parts
        kind = max(parts, key=lambda key: parts[key])
        return kind if parts[kind] > 0 else ""

    @property
    def share(self) -> float:
        """The category's share of the error."""
        parts = self.parts
        return parts[self.category] / sum(parts.values()) if self.category else 0.0

    def noise_of(self, category: str) -> float:
        """The power of the layer's errors of `category`; 0 if the layer does not belong to it. A layer
        belongs to "implementation" if these errors exceed the quantization errors. So it may belong to two
        categories."""
        if category == "implementation":
            return self.engine_noise if self.engine_excess > 0 else 0.0
        return self.parts[category] if self.category == category else 0.0


@dataclass
class Advice:
    """What to change, and in which layers. `before`, `after`: decibels of `output` against the float model's
    output, measured in the network. `control`: how far an equally good quantization moves these decibels by
    chance."""

    what: str
    category: str
    layers: list[str]
    output: str
    before: float
    after: float
    control: float

    @property
    def gain(self) -> float:
        return self.after - self.before

    @property
    def helps(self) -> bool:
        return self.gain >= max(0.5, 2 * self.control)


@dataclass
class Comparison:
    """The comparison of a quantized model with the float model. `audit.on_data.outputs` compares the outputs
    of the two."""

    audit: Audit
    float_path: str
    samples: int
    layers: list[ComparedLayer] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)
    # advice whose layers could not be changed in the network
    not_measured: list[str] = field(default_factory=list)
    is_emulated: bool = False
    missing: list[str] = field(default_factory=list)  # what the time did not suffice for

    @property
    def uncounted(self) -> list[ComparedLayer]:
        """The layers that can saturate in ONNX Runtime, and whose sums were not counted: of an LSTM, or not
        compared."""
        return [
            layer
            for layer, audited in zip(self.layers, self.audit.layers)
            if not layer.sums and audited.fails(["onnxruntime"])
        ]

    def of(self, category: str) -> list[ComparedLayer]:
        """The layers of a category, the worst first."""
        found = [layer for layer in self.layers if layer.noise_of(category) > 0]
        return sorted(found, key=lambda layer: decibels(layer.own.signal, layer.noise_of(category)))
