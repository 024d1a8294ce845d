"""Packages of AOTInductor that call intact's operators (docs/pytorch.md).

The code of a package calls PyTorch's kernels without the dispatcher. Inductor writes this code by lowerings,
one for each operator. While `package()` compiles, lowerings of this module take the place of PyTorch's."""

from __future__ import annotations

import contextlib
import ctypes
import math
from typing import Any, Callable, Iterator

import torch
import torch._inductor.lowering  # first: cpp_gemm_template is part of a circle
from torch._inductor import ir
from torch._inductor.codegen.cpp_gemm_template import prune_tensors
from torch._inductor.lowering import fallback_handler, lowerings, to_dtype
from torch._inductor.virtualized import V

from ._layers import (
    ADAPTERS,
    EIGHT_BITS,
    bounds_of,
    digest_of,
    function_of,
    is_supported,
    new_step,
    residual_type,
    unpacked,
)


def package(
    program: "torch.export.ExportedProgram",
    package_path: Any,
    inductor_configs: "dict[str, Any] | None",
    loaded: ctypes.CDLL,
) -> str:
    with torch.no_grad(), _lowered(loaded):
        return torch._inductor.aoti_compile_and_package(
            program,
            package_path=package_path,
            inductor_configs={"freezing": True, **(inductor_configs or {})},
        )


@contextlib.contextmanager
def _lowered(loaded: ctypes.CDLL) -> Iterator[None]:
    """intact's lowerings instead of PyTorch's. They apply only to packages."""
    before = dict(lowerings)

    def replace(operator: Any, lower: "Callable[..., Any]") -> None:
        own = before[operator]

        def lowering(*arguments: Any, **named: Any) -> Any:
            out = lower(*arguments) if V.graph.aot_mode and not named else None
            return own(*arguments, **named) if out is None else out

        lowerings[operator] = lowering

    try:
        replace(torch.ops.aten._int_mm.default, _call(torch.ops.intact.int_mm.default))
        for name, adapter in ADAPTERS.items():
            operator, _, overload = name.partition(".")
            found = getattr(getattr(torch.ops.onednn, operator, None), overload or "default", None)
            if found in before:
                replace(found, lambda *arguments, adapter=adapter: _layer(adapter, arguments, loaded))
        yield
    finally:
        lowerings.clear()
        lowerings.update(before)


def _call(operator: Any) -> "Callable[..., Any]":
    """The lowering that calls the operator."""
    return fallback_handler(operator, add_to_fallback_set=False)


def _constant(node: Any) -> "torch.Tensor | None":
    """The value, if Inductor keeps the node as a constant."""
    while isinstance(node, ir.MutableBox):
        node = node.data
    return V.graph.constants.get(node.get_name()) if isinstance(node, ir.ConstantBuffer) else None


def _example(node: Any) -> Any:
    """A tensor of the node's type and sizes; the sizes of the example inputs where they may vary."""
    if not isinstance(node, ir.IRNode):
        return node
    sizes = V.graph.sizevars
    # torch 2.13, 2.10
    hint = sizes.optimization_hint if hasattr(sizes, "optimization_hint") else sizes.size_hint
    return torch.ones([hint(size) for size in node.get_size()], dtype=node.get_dtype())


def _layer(adapter: "Callable[..., Any]", arguments: tuple, loaded: ctypes.CDLL) -> Any:
    """The output of a quantized layer, or None if intact does not compute the layer."""
    packed = _constant(arguments[3])
    if packed is None or not packed.is_mkldnn:
        return None
    given = adapter(*arguments)
    call = adapter(
        *[
            packed if node is arguments[3] else _example(node) if _constant(node) is None else _constant(node)
            for node in arguments
        ]
    )
    if not is_supported(call):
        return None
    weights = unpacked(packed)
    layer = torch.ops.intact.layer(weights)
    step = new_step(call, layer, 0)
    loaded.intact_pytorch_free_step(step)
    loaded.intact_pytorch_free_layer(layer)
    if step == 0:
        return None

    def dense(node: Any) -> Any:
        require = (
            ir.ExternKernel.require_contiguous
            if call.window is None
            else ir.ExternKernel.require_channels_last
        )
        return None if node is None else require(node)

    def tensor(node: Any, dtype: Any) -> Any:
        if isinstance(node, ir.IRNode):
            return to_dtype(node, dtype)
        return V.graph.add_tensor_constant(torch.tensor(node, dtype=dtype))

    bounds = bounds_of(call.unary, call.unary_arguments)
    other = given.other if call.other is None else to_dtype(given.other, residual_type(call))
    out = _call(torch.ops.intact.packaged_layer.default)(
        dense(given.x),
        tensor(arguments[1], torch.float32),
        tensor(0 if arguments[2] is None else arguments[2], torch.int32),
        V.graph.add_tensor_constant(weights),
        digest_of(weights),
        tensor(given.w_scale, torch.float32),
        None if given.bias is None else tensor(given.bias, torch.float32),
        dense(other),
        call.window,
        torch.float32 if bounds is None else call.dtype,
        call.scale,
        call.zero_point,
        call.other_scale,
        call.other_zero_point,
        *(None if math.isinf(bound) else bound for bound in bounds or (-math.inf, math.inf)),
    )
    prune_tensors([arguments[3]], [])  # the weights that PyTorch packed
    if bounds is None:
        function, named = function_of(call)
        out = _call(function)(out, **named)
        if call.dtype in EIGHT_BITS:
            quantize = lowerings[torch.ops.quantized_decomposed.quantize_per_tensor.default]
            return quantize(out, call.scale, call.zero_point, *EIGHT_BITS[call.dtype], call.dtype)
        out = to_dtype(out, call.dtype)
    return out
