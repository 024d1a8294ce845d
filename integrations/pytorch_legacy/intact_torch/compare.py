"""compare(): compares each layer's outputs with PyTorch's engine, with the contract's reference, and with float."""

import copy
import dataclasses
import math
from typing import Dict, Iterator, List, Optional

import torch
from torch.ao.quantization.quantize_fx import fuse_fx
from torch.nn.intrinsic.modules.fused import _FusedModule

from . import reference
from .convert import convert, is_converted
from .modules import Conv, DynamicLinear, Linear
from .record import Call, batches, record


@dataclasses.dataclass
class Difference:
    """The difference of two outputs. `largest` is in LSB. For dynamic layers it is in the output's own unit; against the float
    reference, relative to the change that quantizing the input can cause."""

    outputs: int = 0
    differing: int = 0
    largest: float = 0.0

    def add(self, ours: torch.Tensor, theirs: torch.Tensor, unit=1) -> None:
        ours, theirs = (t.int_repr() if t.is_quantized else t for t in (ours, theirs))
        distance = (ours.to(torch.float64) - theirs.to(torch.float64)).abs() / unit
        self.outputs += distance.numel()
        self.differing += int((distance > 0).sum())
        self.largest = max(self.largest, float(distance.max()) if distance.numel() else 0.0)

    def __str__(self):
        if self.outputs == 0:
            return "no outputs"
        return "equal" if self.differing == 0 else f"{self.differing}/{self.outputs} by <= {self.largest:.3g}"


@dataclasses.dataclass
class Distance:
    """The distance of a quantized tensor from the float tensor."""

    sqnr: float  # decibels
    cosine: float
    normalised_l2: float
    lsb: float  # the largest error, in steps of the quantization

    @staticmethod
    def of(quantized: torch.Tensor, real: torch.Tensor, step: torch.Tensor) -> "Distance":
        quantized, real = quantized.to(torch.float64), real.to(torch.float64)
        error = quantized - real
        noise, signal = float(error.norm()), float(real.norm())
        cosine = float((quantized * real).sum()) / max(signal * float(quantized.norm()), 1e-300)
        ratio = noise / signal if signal else math.inf if noise else 0.0
        sqnr = math.inf if ratio == 0 else -20 * math.log10(ratio) if math.isfinite(ratio) else -math.inf
        return Distance(sqnr, cosine, ratio, float((error / step).abs().max()))


@dataclasses.dataclass
class Layer:
    name: str
    kind: str
    engine: Optional[Difference] = None  # intact against PyTorch's engine, on the activations that occur
    engine_error: str = ""  # why the engine computed nothing
    implementation: Difference = dataclasses.field(default_factory=Difference)  # intact against its contract
    # Outputs of intact and of the engine against dequantize, float, quantize; for dynamic layers, against float.
    float_reference: Difference = dataclasses.field(default_factory=Difference)
    engine_float_reference: Difference = dataclasses.field(default_factory=Difference)
    weights: Optional[Distance] = None  # the model's weights
    weights_per_tensor: Optional[Distance] = None  # the float weights, quantized symmetrically to 8 bits
    weights_per_channel: Optional[Distance] = None
    activations: Optional[Distance] = None  # the outputs of all samples
    samples: List[float] = dataclasses.field(default_factory=list)  # SQNR of each sample's outputs
    category: str = ""
    evidence: str = ""


@dataclasses.dataclass
class Comparison:
    engine: str
    layers: List[Layer]
    final: Optional[Difference]  # outputs of the converted model against outputs of PyTorch's model

    def __str__(self):
        head = (
            f"{'layer':28} {'kind':18} {'vs ' + self.engine:22} {'weights dB':>10} {'tensor':>7} {'channel':>7} "
            f"{'outputs dB':>10} {'cosine':>8} {'nl2':>7} {'LSB':>6}  category"
        )
        lines = [head] + [self._row(layer) for layer in self.layers]
        if self.final is not None:
            lines.append(f"final outputs against PyTorch's on {self.engine}: {self.final}")
        return "\n".join(lines)

    def _row(self, layer: Layer) -> str:
        def db(distance):
            return "-" if distance is None else f"{distance.sqnr:.1f}"

        engine = str(layer.engine) if layer.engine else "none"
        a = layer.activations
        real = (
            f"{a.sqnr:10.1f} {a.cosine:8.5f} {a.normalised_l2:7.4f} {a.lsb:6.1f}"
            if a
            else f"{'-':>10} {'-':>8} {'-':>7} {'-':>6}"
        )
        category = f"{layer.category} ({layer.evidence})" if layer.evidence else layer.category
        return (
            f"{layer.name:28} {layer.kind:18} {engine:22} {db(layer.weights):>10} {db(layer.weights_per_tensor):>7} "
            f"{db(layer.weights_per_channel):>7} {real}  {category}"
        )

    def json(self) -> dict:
        """The comparison as plain values. Infinite numbers become text."""

        def plain(value):
            if isinstance(value, dict):
                return {key: plain(v) for key, v in value.items()}
            if isinstance(value, list):
                return [plain(v) for v in value]
            return str(value) if isinstance(value, float) and not math.isfinite(value) else value

        return plain(dataclasses.asdict(self))


def compare(
    model: torch.nn.Module, float_model: Optional[torch.nn.Module], inputs, *, threshold: float = 20.0
) -> Comparison:
    """Compares the model's numbers layer by layer.

    model        quantized by PyTorch for its current engine, or converted
    float_model  the model that was quantized, with equal names, and fused like `model`. compare() fuses it, if convert_fx()
                 made `model`. None: no comparison with float
    inputs       a tensor, a tuple of arguments, or a list of either, for one call each. Samples are the first dimension
    threshold    decibels: a sample with a lower SQNR is off

    Each layer that is wrong gets one category:
      implementation error   integers differ from dequantize, float, quantize by more than rounding; outputs of a dynamic layer
                             differ from its contract, or are farther from float than quantizing its input can bring them
      data-insensitive       most samples are off
      data-sensitive         few samples are off
    """
    final = None
    converted = model
    if not is_converted(model):
        converted = convert(model)
        final = Difference()
    collected = _Collected(float_model if float_model is None else _fused_alike(float_model, converted))
    for arguments in batches(inputs):
        reals = collected.float_outputs(arguments)
        for call in record(converted, *arguments):
            collected.add(call, next(reals.get(call.layer, iter(())), None))
        if final is not None:
            with torch.no_grad():
                for ours, theirs in zip(*(_tensors(m(*arguments)) for m in (converted, model))):
                    final.add(ours, theirs)
    return Comparison(torch.backends.quantized.engine, collected.finished(threshold), final)


def _fused_alike(float_model: torch.nn.Module, converted: torch.nn.Module) -> torch.nn.Module:
    """`float_model`, fused like `converted`. Throws if it cannot be fused here."""
    difference = _unfused(float_model, converted)
    if difference is None:
        return float_model
    if any(isinstance(module, torch.fx.GraphModule) for module in converted.modules()):
        try:
            fused = fuse_fx(copy.deepcopy(float_model).eval())
            if _unfused(fused, converted) is None:
                return fused
        except Exception as error:  # torch.fx throws exceptions of any type
            difference += f" (fuse_fx: {str(error).splitlines()[0] if str(error) else type(error).__name__})"
    raise ValueError(
        f"float_model is not fused as model is: {difference}; pass it as fuse_modules() or fuse_fx() made it, "
        "before prepare()"
    )


def _unfused(float_model: torch.nn.Module, converted: torch.nn.Module) -> Optional[str]:
    """Describes the first float layer that is not fused like the quantized layer of its name; None if all are."""
    quantized = dict(converted.named_modules())
    for name, module in float_model.named_modules():
        ours = quantized.get(name)
        is_bare = isinstance(module, (torch.nn.Linear, torch.nn.modules.conv._ConvNd)) and not isinstance(
            module, _FusedModule
        )
        if is_bare and isinstance(ours, (Conv, Linear, DynamicLinear)) and ours.relu:
            return f"{name!r} has a ReLU in model and none in float_model"
        if (
            isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
            and isinstance(ours, (torch.nn.Identity, type(None)))
            and not isinstance(float_model.get_submodule(name.rpartition(".")[0]), _FusedModule)
        ):
            return f"{name!r} is a {type(module).__name__} in float_model and folded in model"
    return None


def _tensors(output) -> List[torch.Tensor]:
    """The tensors in a module's output."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = list(output.values())
    return [t for part in output for t in _tensors(part)] if isinstance(output, (list, tuple)) else []


class _Collected:
    """Layers by name, and their outputs in both models."""

    def __init__(self, float_model):
        self.float_model = float_model
        self.layers: Dict[str, Layer] = {}
        self.params: Dict[str, object] = {}
        self.outputs: Dict[str, list] = {}  # (quantized, float, step) of each call

    def float_outputs(self, arguments) -> Dict[str, Iterator[torch.Tensor]]:
        """The outputs of the float model's modules by name: the first tensor of each call."""
        found: Dict[str, List[torch.Tensor]] = {}
        if self.float_model is None:
            return {}

        def keep(name):
            # Copies, because later modules may work in place.
            return lambda module, args, output: found.setdefault(name, []).extend(
                t.detach().clone() for t in _tensors(output)[:1]
            )

        hooks = [
            module.register_forward_hook(keep(name)) for name, module in self.float_model.named_modules()
        ]
        try:
            with torch.no_grad():
                self.float_model(*arguments)
        finally:
            for hook in hooks:
                hook.remove()
        return {name: iter(outputs) for name, outputs in found.items()}

    def add(self, call: Call, real: Optional[torch.Tensor]) -> None:
        layer = self.layers.setdefault(call.layer, Layer(call.layer, call.kind()))
        self.params[call.layer] = call.params
        if call.output.numel() == 0:
            return
        layer.implementation.add(call.output, call.reference_output())
        expected = float_reference(call)
        layer.float_reference.add(call.output, expected, _unit(call, expected, 255, call.per_row))
        try:
            theirs = call.engine_output()
            layer.engine = layer.engine or Difference()
            layer.engine.add(call.output, theirs)
            steps = 127 if call.reduce_range else 255
            layer.engine_float_reference.add(theirs, expected, _unit(call, expected, steps, False))
        except RuntimeError as error:
            layer.engine_error = str(error).splitlines()[0]
        # With a residual the output is not the float convolution's.
        if real is not None and call.residual is None and real.shape == call.output.shape:
            quantized = call.output.dequantize() if call.output.is_quantized else call.output
            step = call.scale if not call.is_dynamic else max(float(real.max() - real.min()) / 255, 1e-30)
            self.outputs.setdefault(call.layer, []).append((quantized, real, step))

    def finished(self, threshold: float) -> List[Layer]:
        for name, layer in self.layers.items():
            self._compare_weights(layer, self.params[name])
            outputs = self.outputs.get(name, [])
            for quantized, real, step in outputs:
                layer.samples += [Distance.of(q, r, step).sqnr for q, r in zip(quantized, real)]
            if outputs:
                flat = [torch.cat([o[i].flatten() for o in outputs]) for i in (0, 1)]
                steps = torch.cat([torch.full([o[0].numel()], o[2], dtype=torch.float64) for o in outputs])
                layer.activations = Distance.of(*flat, steps)
            _categorise(layer, threshold)
        return list(self.layers.values())

    def _compare_weights(self, layer: Layer, params) -> None:
        real = _float_weight(self.float_model, layer.name)
        if real is None or real.shape != params.weight().shape:
            return
        axis = 1 if reference.is_conv(params) and params.transposed() else 0
        scales, _ = reference.weight_quantization(params.weight(), params.weight().size(axis))
        layer.weights = Distance.of(params.weight().dequantize(), real, _along(scales, axis, real))
        layer.weights_per_tensor = _symmetric(real, real.abs().max())
        layer.weights_per_channel = _symmetric(
            real, real.abs().amax([d for d in range(real.dim()) if d != axis], True)
        )


def _along(values: torch.Tensor, axis: int, like: torch.Tensor) -> torch.Tensor:
    shape = [1] * like.dim()
    shape[axis] = -1
    return values.reshape(shape)


def _symmetric(real: torch.Tensor, largest: torch.Tensor) -> Distance:
    step = largest.clamp(min=1e-30) / 127
    return Distance.of((real / step).round() * step, real, step)


def _float_weight(float_model, name: str) -> Optional[torch.Tensor]:
    try:
        module = float_model.get_submodule(name)
    except AttributeError:
        return None
    if isinstance(module, torch.nn.Sequential) and len(module):  # fused, as nn.intrinsic.ConvReLU2d
        module = module[0]
    weight = getattr(module, "weight", None)
    return weight.detach() if isinstance(weight, torch.Tensor) else None


def float_reference(call: Call) -> torch.Tensor:
    """Dequantizes, computes in float64, and quantizes, as integer operators should. For dynamic layers: real numbers."""
    p = call.params
    input = call.input if call.is_dynamic else call.input.dequantize()
    real = reference.product(input.to(torch.float64), p.weight().dequantize().to(torch.float64), p)
    if p.bias() is not None:
        real = real + reference.channelwise(p.bias().to(torch.float64), p)
    if call.residual is not None:
        real = real + call.residual.dequantize().to(torch.float64)
    if call.relu:
        real = real.clamp(min=0)
    if call.is_dynamic:
        return real
    return reference.quantized(real / call.scale, call.zero_point, call.input.dtype)


def _unit(call: Call, expected: torch.Tensor, steps: int, per_row: bool):
    """For a dynamic layer, how far its outputs may be from `expected`: each input is rounded by at most half a step, and the
    range of the tensor, or of the row, has `steps` steps. For other layers 1."""
    if not call.is_dynamic:
        return 1
    dims = {"dim": -1, "keepdim": True} if per_row else {}
    low, high = call.input.amin(**dims).clamp(max=0), call.input.amax(**dims).clamp(min=0)
    # The smallest step of PyTorch's engines is 6.1e-5.
    step = ((high - low).to(torch.float64) / steps).clamp(min=6.1e-5)
    weight = call.params.weight().dequantize().to(torch.float64).abs().sum(1)
    rounding = expected.abs() + (0 if call.params.bias() is None else call.params.bias().abs())
    return (step * weight * 0.51 + rounding * 1e-6).clamp(min=1e-30)


def _categorise(layer: Layer, threshold: float) -> None:
    is_dynamic = layer.kind == "linear_dynamic"
    if is_dynamic and layer.implementation.differing:  # the contract defines every bit
        layer.category = "implementation error"
        layer.evidence = f"intact against its contract: {layer.implementation}"
        return
    for who, difference in (("intact", layer.float_reference), ("the engine", layer.engine_float_reference)):
        # Rounding may change few outputs by one. Dynamic layers may differ from float by their input's steps.
        few = 2 + difference.outputs // 100
        if difference.largest > 1 or not is_dynamic and difference.differing > few:
            what = (
                "float, relative to the error of quantizing its input"
                if is_dynamic
                else "dequantize, float, quantize"
            )
            layer.category, layer.evidence = "implementation error", f"{who} against {what}: {difference}"
            return
    off = sum(sqnr < threshold for sqnr in layer.samples)
    if off:
        layer.category = "data-insensitive" if off * 2 > len(layer.samples) else "data-sensitive"
        worst = min(range(len(layer.samples)), key=layer.samples.__getitem__)
        layer.evidence = (
            f"{off} of {len(layer.samples)} samples below {threshold:g} dB, "
            f"sample {worst} at {layer.samples[worst]:.1f} dB"
        )
