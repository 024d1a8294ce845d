"""PyTorch's quantized layers on intact: takes the place of onednn::qlinear_pointwise and
onednn::qconv_pointwise, which compiled PT2E models call (docs/pytorch.md).

The weights that qlinear_prepack and qconv_prepack make stay PyTorch's. The first call of a layer unpacks them
into a layer of intact, which lives as long as the packed weights."""

from __future__ import annotations

import ctypes
import hashlib
import math
import weakref
from typing import Any, Callable, NamedTuple

import torch

from .._library import invalid

EIGHT_BITS = {torch.uint8: (0, 255), torch.int8: (-128, 127)}
_LEAST, _MOST = 2.0**-126, 2.0**127  # scales are float32 numbers


_MOST_STEPS = 4  # of a layer, which keeps 4 plans


class _Layer:
    """A layer of intact, by its number. `address`: of the packed weights."""

    def __init__(self, weight: torch.Tensor, address: int, loaded: ctypes.CDLL):
        self.number = torch.ops.intact.layer(unpacked(weight))
        self.address = address
        self.steps: "list[_Step]" = []  # of the last calls, the newest first
        # The address cannot belong to other weights as long as the layer lives.
        self._kept = weight.detach()
        weakref.finalize(self, loaded.intact_pytorch_free_layer, self.number)


class _Step:
    """A layer with the parameters of a call, which further calls share. `number`: what `intact::step`
    returned."""

    def __init__(self, call: "_Call", parameters: tuple, number: int, loaded: ctypes.CDLL):
        self.parameters, self._number = parameters, number
        weakref.finalize(self, loaded.intact_pytorch_free_step, number)
        self._is_sum = call.binary == "sum"
        self._has_bfloat16 = call.other is not None and call.other.dtype == torch.bfloat16
        self.dtype, self.scale, self.zero_point = call.dtype, call.scale, call.zero_point
        is_fused = bounds_of(call.unary, call.unary_arguments) is not None
        self._unary = None if is_fused else function_of(call)

    def run(
        self,
        weight: torch.Tensor,
        x: torch.Tensor,
        x_scale: torch.Tensor,
        x_zero_point: torch.Tensor,
        w_scale: torch.Tensor,
        other: "torch.Tensor | None",
        bias: "torch.Tensor | None",
    ) -> "torch.Tensor | None":
        """The output, or None if the call needs another step."""
        residual = other
        if self._has_bfloat16:
            if other is None or other.dtype != torch.bfloat16:
                return None
            residual = other.float()
        out = torch.ops.intact.run_step.default(
            self._number, weight, x, x_scale, x_zero_point, w_scale, residual, bias
        )
        if out is None:
            return None
        if self._unary is not None:
            function, arguments = self._unary
            out = function(out, **arguments)
            out = _quantized(out, self) if self.dtype in EIGHT_BITS else out.to(self.dtype)
        return other.copy_(out) if self._is_sum and out is not other else out


class Difference(NamedTuple):
    """What PyTorch's kernel made of a call, compared with the exact outputs."""

    operator: str  # of the namespace onednn
    x: "tuple[int, ...]"  # sizes of the input
    weight: "tuple[int, ...]"  # sizes of the weights
    outputs: int
    differing: int  # outputs that differ from intact's
    # the largest difference: steps of an 8-bit output, else a share of the largest finite exact output
    largest: float


def difference(name: str, call: "_Call", out: torch.Tensor, exact: torch.Tensor) -> Difference:
    """Equal infinities are no difference, and two NaNs are none. Other differences of infinities and NaNs are
    infinite. A difference from float outputs that are all 0 is infinite."""
    is_8_bit, out, exact = exact.dtype in EIGHT_BITS, out.double(), exact.double()
    equal = (out == exact) | (out.isnan() & exact.isnan())
    largest = _largest((out - exact)[~equal].abs().nan_to_num(nan=math.inf, posinf=math.inf))
    if largest and not is_8_bit:
        unit = _largest(exact[exact.isfinite()].abs())
        largest = largest / unit if unit else math.inf
    return Difference(
        name, tuple(call.x.shape), tuple(call.weight.shape), out.numel(), int((~equal).sum()), largest
    )


def _largest(values: torch.Tensor) -> float:
    return values.max().item() if values.numel() else 0.0


Observer = Callable[[str, "_Call", torch.Tensor, torch.Tensor], Any]  # see Layers._observed


def _copied(adapter: "_Adapter", arguments: tuple) -> tuple:
    """The arguments, with copies of the inputs that a sum overwrites."""
    call = adapter(*arguments)
    if call.binary != "sum" or call.other is None:
        return arguments
    return (arguments[0].clone(), *arguments[1:6], arguments[6].clone(), *arguments[7:])


class Layers:
    """The kernels in the place of PyTorch's, while `set(True)` is in force. `loaded`:
    libintact_pytorch.so."""

    def __init__(self, loaded: ctypes.CDLL):
        self._loaded = loaded
        for free in (loaded.intact_pytorch_free_layer, loaded.intact_pytorch_free_step):
            free.argtypes, free.restype = [ctypes.c_int64], None
        self._registered: Any = None
        self._layers: "dict[int, _Layer]" = {}  # by the identity of packed weights, as long as they live

    def set(self, is_enabled: bool, observe: "Observer | None" = None) -> None:
        """`observe`: PyTorch's kernels stay in force. The function gets each call that intact computes, see
        `_observed`."""
        if not is_enabled:
            if self._registered is not None:
                self._registered._destroy()
                self._registered = None
            return
        if self._registered is not None:  # compare() or dump() runs a model
            raise invalid(
                "model: calls enable(), compare() or dump() while compare() or dump() runs it; expected a model that "
                "calls none of them"
            )
        self._registered = torch.library.Library("onednn", "IMPL", "MkldnnCPU")
        try:
            for name, adapter in ADAPTERS.items():
                operator, _, overload = name.partition(".")
                packet = getattr(torch.ops.onednn, operator, None)
                if packet is not None and (overload or "default") in packet.overloads():
                    own = torch.library.get_kernel(
                        f"onednn::{name}", torch._C._parse_dispatch_key("MkldnnCPU")
                    )
                    kernel = (
                        self._kernel(own, adapter)
                        if observe is None
                        else self._observed(own, adapter, name, observe)
                    )
                    self._registered.impl(name, kernel, with_keyset=True, allow_override=True)
        except BaseException:
            self.set(False)
            raise

    def _kernel(self, own: Any, adapter: "_Adapter") -> Callable:
        """`own`: PyTorch's kernel."""
        layers, is_binary = self._layers, adapter.is_binary

        def kernel(
            keys: Any, x: Any, x_scale: Any, x_zero_point: Any, weight: Any, w_scale: Any, *others: Any
        ) -> torch.Tensor:
            layer = layers.get(id(weight))
            # Most calls of a model end here.
            if layer is not None and layer.steps and not isinstance(x_scale, float):
                step = layer.steps[0]
                other, bias, rest = (
                    (others[1], others[2], others[3:]) if is_binary else (None, others[1], others[2:])
                )
                if step.parameters == (adapter, rest):
                    out = step.run(weight, x, x_scale, x_zero_point, w_scale, other, bias)
                    if out is not None:
                        return out
            arguments = (x, x_scale, x_zero_point, weight, w_scale, *others)
            out = self._run(adapter, arguments)
            return own.call_boxed(keys, *arguments) if out is None else out

        return kernel

    def _observed(self, own: Any, adapter: "_Adapter", name: str, observe: "Observer") -> Callable:
        """PyTorch's kernel. After each call that intact computes, `observe` gets the operator's name, the
        call with inputs that nothing overwrote, PyTorch's output and the exact one."""

        def kernel(keys: Any, *arguments: Any) -> torch.Tensor:
            call = adapter(*_copied(adapter, arguments))
            exact = self._run(adapter, _copied(adapter, arguments))
            out = own.call_boxed(keys, *arguments)
            if exact is not None:
                observe(name, call, out, exact)
            return out

        return kernel

    def _run(self, adapter: "_Adapter", arguments: tuple) -> "torch.Tensor | None":
        """The output, or None if intact does not compute the call."""
        first = 7 if adapter.is_binary else 6  # the bias
        x, x_scale, x_zero_point, weight, w_scale = arguments[:5]
        other = arguments[6] if first == 7 else None
        bias = arguments[first]
        parameters = (adapter, arguments[first + 1 :])
        layer = self._layers.get(id(weight))
        steps = layer.steps if layer is not None else []
        if isinstance(x_scale, float):
            x_scale, x_zero_point = torch.tensor(x_scale, dtype=torch.float32), torch.tensor(x_zero_point)
        w_scale, bias = _floats(w_scale), None if bias is None else _floats(bias)
        for step in steps:
            if step.parameters == parameters:
                out = step.run(weight, x, x_scale, x_zero_point, w_scale, other, bias)
                if out is not None:
                    if step is not steps[0]:
                        layer.steps = [step, *(other_step for other_step in steps if other_step is not step)]
                    return out
        call = adapter(*arguments)
        step = self._step(call, parameters) if is_supported(call) else None
        if step is None:
            return None
        return step.run(
            weight,
            x,
            torch.tensor(call.x_scale, dtype=torch.float32),
            torch.tensor(call.x_zero_point),
            w_scale,
            other,
            bias,
        )

    def _step(self, call: "_Call", parameters: tuple) -> "_Step | None":
        """A new step, or None if no plan has its parameters."""
        weight = call.weight
        layer, address = self._layers.get(id(weight)), torch.ops.mkldnn.data_ptr.default(weight)
        if layer is None:
            weakref.finalize(weight, self._layers.pop, id(weight), None)
        if layer is None or layer.address != address:
            layer = self._layers[id(weight)] = _Layer(weight, address, self._loaded)
        step = new_step(call, layer.number, address)
        if step == 0:
            return None
        made = _Step(call, parameters, step, self._loaded)
        layer.steps = [made, *layer.steps[: _MOST_STEPS - 1]]
        return made


class _Call:
    """The arguments of one call, by the names of _Adapter. `window`: stride, padding, dilation and groups of
    a convolution; empty if it is not 2-D, None for a product."""

    def __init__(self, named: "dict[str, Any]"):
        self.x, self.weight, self.w_scale, self.bias = (
            named[name] for name in ("x", "weight", "w_scale", "bias")
        )
        self.x_scale, self.x_zero_point = _number_of(named["x_scale"]), _number_of(named["x_zp"])
        self.window = _window(named) if "stride" in named else None
        self.scale, self.zero_point, self.dtype = named["scale"], named["zp"], named["dtype"] or self.x.dtype
        self.unary = named["unary"] or "none"
        self.unary_arguments = named["arguments"]
        self.algorithm = named["algorithm"]
        self.binary = named.get("binary", "none")
        self.other = None if self.binary == "none" else named["other"]  # PyTorch ignores it then
        self.other_scale, self.other_zero_point = named.get("other_scale", 1.0), named.get("other_zp", 0)
        self.alpha = 1 if named.get("alpha") is None else named["alpha"]
        self.sizes: "list[int]" = []  # of the output


def _number_of(value: Any) -> Any:
    """A scale or a zero point: a number, a tensor of one element, or no tensor."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else None
    return 0 if value is None else value


def _window(named: "dict[str, Any]") -> "list[int]":
    """Seven numbers of a 2-D convolution; nothing for others."""
    parts = [named[name] for name in ("stride", "padding", "dilation")]
    is_2d = all(len(part) == 2 for part in parts)
    return [*(number for part in parts for number in part), named["groups"]] if is_2d else []


class _Adapter:
    """Makes a _Call of an operator's arguments. `names`: of the arguments, in their order."""

    def __init__(self, names: str):
        self.names = names.split()
        self.is_binary = "other" in self.names

    def __call__(self, *arguments: Any) -> _Call:
        return _Call(dict(zip(self.names, arguments)))


_INPUTS = "x x_scale x_zp weight w_scale w_zp"
_WINDOW = "stride padding dilation groups"
_OUTPUT = "scale zp dtype"
_BINARY, _UNARY_OPERATOR = "other_scale other_zp binary alpha", "unary arguments algorithm"
_linear = _Adapter(f"{_INPUTS} bias {_OUTPUT} {_UNARY_OPERATOR}")
_linear_binary = _Adapter(f"{_INPUTS} other bias {_OUTPUT} {_BINARY} {_UNARY_OPERATOR}")
_conv = _Adapter(f"{_INPUTS} bias {_WINDOW} {_OUTPUT} {_UNARY_OPERATOR}")
_conv_binary = _Adapter(f"{_INPUTS} other bias {_WINDOW} {_OUTPUT} {_BINARY} {_UNARY_OPERATOR}")
ADAPTERS: "dict[str, _Adapter]" = {
    "qlinear_pointwise": _linear,
    "qlinear_pointwise.tensor": _linear,
    "qlinear_pointwise.binary": _linear_binary,
    "qlinear_pointwise.binary_tensor": _linear_binary,
    "qconv_pointwise": _conv,
    "qconv_pointwise.tensor": _conv,
    "qconv2d_pointwise": _conv,
    "qconv2d_pointwise.tensor": _conv,
    "qconv2d_pointwise.binary": _conv_binary,
    "qconv2d_pointwise.binary_tensor": _conv_binary,
}

_ATEN = torch.ops.aten
_UNARY: "dict[str, tuple[Any, Callable[[list, str], dict]]]" = {  # an operator, and its arguments
    "hardtanh": (
        _ATEN.clamp.default,
        lambda arguments, algorithm: {"min": arguments[0], "max": arguments[1]},
    ),
    "gelu": (_ATEN.gelu.default, lambda arguments, algorithm: {"approximate": algorithm}),
    "swish": (_ATEN.silu.default, lambda arguments, algorithm: {}),
    "hardswish": (_ATEN.hardswish.default, lambda arguments, algorithm: {}),
    "leaky_relu": (_ATEN.leaky_relu.default, lambda arguments, algorithm: {"negative_slope": arguments[0]}),
    "tanh": (_ATEN.tanh.default, lambda arguments, algorithm: {}),
    "sigmoid": (_ATEN.sigmoid.default, lambda arguments, algorithm: {}),
}


def function_of(call: _Call) -> "tuple[Any, dict]":
    """PyTorch's operator for an activation that no plan fuses, and the arguments after the first."""
    function, arguments = _UNARY[call.unary]
    return function, arguments(call.unary_arguments, call.algorithm)


def is_supported(call: _Call) -> bool:
    """Whether intact computes the call; sets the sizes of its output. PyTorch computes other calls, or
    refuses them. The plan checks the values of the bias and of the weights' scales."""
    tensors = (call.x, call.w_scale, call.bias, call.other)
    if (
        any(tensor is not None and tensor.device.type != "cpu" for tensor in tensors)
        or call.x.dtype not in EIGHT_BITS
        or call.weight.dtype != torch.int8
        or not _has_output(call)
        or not _has_unary(call)
        or not _is_scale(call.x_scale, call.scale)
        or not _is_in(call.x_zero_point, call.x.dtype)
    ):
        return False
    if call.window is None:
        depth, outputs = call.weight.shape
        if call.x.dim() < 1 or call.x.shape[-1] != depth:
            return False
        call.sizes = [*call.x.shape[:-1], outputs]
    else:
        if not call.x.dim() == call.weight.dim() == 4 or len(call.window) != 7:
            return False
        if 0 in call.window[:2]:  # PyTorch divides by it
            raise RuntimeError(f"intact: stride is {call.window[:2]}; expected numbers of at least 1")
        outputs, channels, *kernel = call.weight.shape
        batch, inputs, *extents = call.x.shape
        call.sizes = [
            batch,
            outputs,
            *map(output_extent, extents, kernel, *(call.window[i : i + 2] for i in (0, 2, 4))),
        ]
        if inputs != channels * call.window[6] or 0 in call.sizes[2:]:
            return False
    return (
        call.w_scale.numel() in (1, outputs)
        and (call.bias is None or call.bias.numel() == outputs)
        and _has_residual(call)
    )


def _is_in(value: Any, dtype: Any) -> bool:
    """Whether an 8-bit type has this value."""
    return value is not None and EIGHT_BITS[dtype][0] <= value <= EIGHT_BITS[dtype][1]


def _is_scale(value: Any, unit: float) -> bool:
    """Whether the scale and the scale in this unit are normal float32 numbers above 0."""
    return value is not None and _LEAST <= value < _MOST and _LEAST <= value / unit < _MOST


def _has_output(call: _Call) -> bool:
    if call.dtype in (torch.float32, torch.bfloat16):
        return (call.scale, call.zero_point) == (1, 0)
    return call.dtype in EIGHT_BITS and _is_scale(call.scale, 1.0) and _is_in(call.zero_point, call.dtype)


def _has_unary(call: _Call) -> bool:
    arguments = call.unary_arguments
    if call.unary == "hardtanh":
        return (
            len(arguments) == 2
            and None not in arguments
            and arguments[0] <= arguments[1]
            and all(abs(bound) / call.scale < _MOST for bound in arguments)
        )
    if call.unary == "leaky_relu":
        return len(arguments) == 1 and arguments[0] is not None
    return call.unary in ("none", "relu", *_UNARY) and (
        call.unary != "gelu" or call.algorithm in ("none", "tanh")
    )


def _has_residual(call: _Call) -> bool:
    """Whether the call has no second input, or one that intact adds."""
    other = call.other
    if other is None:
        return call.binary == "none"
    if list(other.shape) != call.sizes or call.alpha != 1 or call.unary not in ("none", "relu"):
        return False
    is_float = other.dtype in (torch.float32, torch.bfloat16)
    if is_float:
        is_valid = (call.other_scale, call.other_zero_point) == (1, 0) and _is_scale(1.0, call.scale)
    else:
        is_valid = (
            other.dtype in EIGHT_BITS
            and _is_scale(call.other_scale, call.scale)
            and _is_in(call.other_zero_point, other.dtype)
        )
    return is_valid and (
        call.binary == "sum"
        and other.dtype == call.dtype
        or call.binary == "add"
        and is_float
        and call.window is None
    )


def output_extent(extent: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """0 where PyTorch has no output, or refuses the window."""
    last = extent + 2 * padding - dilation * (kernel - 1) - 1
    return last // stride + 1 if last >= 0 and stride >= 1 and padding >= 0 and dilation >= 1 else 0


def bounds_of(unary: str, arguments: list) -> "tuple[float, float] | None":
    """The interval to which an activation clamps, or None if it does more."""
    if unary == "none":
        return -math.inf, math.inf
    if unary == "relu":
        return 0.0, math.inf
    if unary == "hardtanh" and any(arguments):
        return float(arguments[0]), float(arguments[1])
    return None


def unpacked(weight: torch.Tensor) -> torch.Tensor:
    """Weights that PyTorch packed, as `intact::layer` takes them."""
    plain = weight.to_dense()
    return (plain.permute(0, 2, 3, 1) if plain.dim() == 4 else plain).contiguous()


def digest_of(weights: torch.Tensor) -> str:
    """Names weights that a package contains."""
    digest = hashlib.sha256(repr(tuple(weights.shape)).encode())
    digest.update(weights.numpy())
    return digest.hexdigest()


def new_step(call: _Call, layer: int, address: int) -> int:
    """What `intact::step` returns: 0 if no plan has the parameters. `layer`: its number. `address`: of the
    packed weights."""
    bounds, is_conv = bounds_of(call.unary, call.unary_arguments), call.window is not None
    return torch.ops.intact.step.default(
        layer,
        address,
        call.x.dtype,
        call.x.shape[1:] if is_conv else call.x.shape[-1:],
        _floats(call.w_scale),
        None if call.bias is None else _floats(call.bias),
        call.window or [],
        torch.float32 if bounds is None else call.dtype,
        call.scale,
        call.zero_point,
        residual_type(call),
        call.other_scale,
        call.other_zero_point,
        call.binary == "sum",
        *(bounds or (-math.inf, math.inf)),
    )


def residual_type(call: _Call) -> Any:
    if call.other is None:
        return None
    return torch.float32 if call.other.dtype == torch.bfloat16 else call.other.dtype


def _floats(values: torch.Tensor) -> torch.Tensor:
    if values.dtype == torch.float32 and values.is_contiguous():
        return values
    return values.to(torch.float32).contiguous()


def _quantized(f: torch.Tensor, call: _Call) -> torch.Tensor:
    return (
        ((f * (1.0 / call.scale)).round_() + call.zero_point).clamp_(*EIGHT_BITS[call.dtype]).to(call.dtype)
    )


def fake_packaged_layer(
    x: torch.Tensor, x_scale: Any, x_zero_point: Any, weight: torch.Tensor, *others: Any
) -> torch.Tensor:
    """The output of `intact::packaged_layer`, without values."""
    window, type = others[4:6]  # after the digest, w_scale, bias and the residual
    if weight.dim() == 2:
        return x.new_empty([*x.shape[:-1], weight.shape[1]], dtype=type)
    extents = map(output_extent, x.shape[2:], weight.shape[1:3], *(window[i : i + 2] for i in (0, 2, 4)))
    sizes = [x.shape[0], weight.shape[0], *extents]
    return torch.empty(sizes, dtype=type, device=x.device, memory_format=torch.channels_last)
