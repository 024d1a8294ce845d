"""Writes calls of PyTorch's quantized layers as recorded layers, which `intact verify layer` reads
(verify/studies/layer.h)."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any, Callable, NamedTuple

import numpy as np
import torch

from .._library import invalid
from ._layers import EIGHT_BITS, _Call, bounds_of

_TYPES = {torch.uint8: "u8", torch.int8: "s8", torch.float32: "f32"}  # of outputs


class Record(NamedTuple):
    """A call of a quantized layer."""

    operator: str  # of the namespace onednn
    x: "tuple[int, ...]"  # sizes of the input
    weight: "tuple[int, ...]"  # sizes of the weights
    folder: "Path | None"  # of the recorded layer; None if the call was not written
    reason: str  # why the call was not written; else empty


def recorder(folder: "str | os.PathLike") -> "Callable[[str, _Call, torch.Tensor, torch.Tensor], Record]":
    """A function that writes a call as a recorded layer in `folder`, see `Layers._observed`. The layer's
    folder has the number of the call."""
    top, numbers = Path(folder), itertools.count()
    try:
        top.mkdir(parents=True, exist_ok=True)
        is_empty = not any(top.iterdir())
    except OSError as error:
        raise invalid(
            f"folder: {folder} cannot be used: {error.strerror}; expected an empty folder or a new one"
        ) from None
    if not is_empty:
        raise invalid(f"folder: {folder} is not empty; expected an empty folder or a new one")

    def record(name: str, call: _Call, out: torch.Tensor, _: torch.Tensor) -> Record:
        path, reason = top / f"{next(numbers):04}_{name.partition('.')[0]}", _obstacle(call, out)
        if not reason:
            try:
                _write(path, call, out)
            except OSError as error:
                raise invalid(f"folder: {path} cannot be written: {error.strerror}") from None
        return Record(name, tuple(call.x.shape), tuple(call.weight.shape), None if reason else path, reason)

    return record


def _obstacle(call: _Call, out: torch.Tensor) -> str:
    """Why a recorded layer cannot express the call; empty if it can."""
    bounds = bounds_of(call.unary, call.unary_arguments)
    if out.numel() == 0:
        return "it has no outputs"
    if call.dtype not in _TYPES:
        return f"its outputs are {str(call.dtype).removeprefix('torch.')}"
    if bounds is None:
        return f"its activation is {call.unary}"
    if (
        call.unary == "hardtanh"
        and call.dtype in EIGHT_BITS
        and not any(round(bound / call.scale) for bound in bounds)
    ):
        return f"its activation clamps to {bounds[0]} and {bounds[1]}, which are 0 steps of the output"
    return ""


def _write(folder: Path, call: _Call, out: torch.Tensor) -> None:
    weights, is_8_bit = call.weight.to_dense(), call.dtype in EIGHT_BITS
    weights = weights.t() if call.window is None else weights.permute(0, 2, 3, 1)
    arrays = {
        "activations": _rows(call, call.x),
        "weights": weights,
        "output_pytorch": _rows(call, out),
        "bias": None if call.bias is None else call.bias.float().flatten(),
    }
    layer: "dict[str, Any]" = {
        "operator": "linear" if call.window is None else "conv2d",
        "activation": call.unary,
        "input": {"scale": call.x_scale, "zero_point": call.x_zero_point},
        "output": {"type": _TYPES[call.dtype]},
        "weight": {"scales": call.w_scale.flatten().tolist(), "zero_points": [0]},
        "overflow": "wraps",
    }
    if is_8_bit:
        layer["output"].update(scale=call.scale, zero_point=call.zero_point)
    if call.unary == "hardtanh":
        layer["activation"] = dict(zip(("min", "max"), bounds_of(call.unary, call.unary_arguments)))
    if call.other is not None:
        is_float = call.other.dtype not in EIGHT_BITS
        arrays["residual"] = _rows(call, call.other.float() if is_float else call.other)
        layer["residual"] = {
            "scale": call.other_scale,
            **({} if is_float else {"zero_point": call.other_zero_point}),
        }
    if call.window is not None:
        layer.update(
            zip(("stride", "padding", "dilation"), (call.window[i : i + 2] for i in (0, 2, 4))),
            groups=call.window[6],
        )
    folder.mkdir()
    for name, values in arrays.items():
        if values is not None:
            np.save(folder / f"{name}.npy", np.ascontiguousarray(values.detach().numpy()))
    (folder / "layer.json").write_text(json.dumps(layer, indent=1) + "\n")


def _rows(call: _Call, values: torch.Tensor) -> torch.Tensor:
    """A tensor as recorded layers have it: rows of a linear layer, images of a convolution with the channels
    last."""
    return values.reshape(-1, values.shape[-1]) if call.window is None else values.permute(0, 2, 3, 1)
