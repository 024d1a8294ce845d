"""dump(): writes the layers of a network as folders for `intact verify layer`."""

import itertools
import json
import pathlib
import re
from typing import Dict, List, Set

import numpy as np
import torch

from . import reference
from .convert import convert, is_converted
from .record import Call, batches, record


def dump(model: torch.nn.Module, inputs, folder) -> Dict[str, str]:
    """Writes each layer of `model` that intact can compute, in the format of verify/studies/layer.h: the activations that occur
    with `inputs`, weights, bias, and outputs. output_intact.npy has intact's outputs, output_<engine>.npy those of PyTorch's
    current engine.

    model    quantized by PyTorch, or converted
    inputs   a tensor, a tuple of arguments, or a list of either; each is a call of the model
    folder   gets a folder with the name of each layer. If a call before took the name, _2, _3, … is added.
             Arrays that such a folder has already are removed.

    Returns, by layer, the calls that were left out and why. Then: intact verify layer FOLDER/*
    """
    if not is_converted(model):
        model = convert(model)
    folder = pathlib.Path(folder)
    left: Dict[str, str] = {}
    taken: Set[str] = set()
    for arguments in batches(inputs):
        for call in record(model, *arguments):
            if call.residual is not None:
                left[call.layer] = "a layer folder holds no residual"
                continue
            name = re.sub(r"[^\w-]", "_", call.layer) or "layer"
            names = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(2)))
            name = next(free for free in names if free not in taken)
            taken.add(name)
            _write(call, folder / name)
    return left


def _write(call: Call, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.npy"):
        old.unlink()
    p = call.params
    _save(folder / "activations.npy", _rows_or_pixels(call, call.input))
    _save(folder / "weights.npy", channels_last_weights(p))
    if p.bias() is not None:
        _save(folder / "bias.npy", p.bias().detach())
    for name, output in _outputs(call).items():
        _save(folder / f"output_{name}.npy", _rows_or_pixels(call, output))
    (folder / "layer.json").write_text(json.dumps(_description(call), indent=1) + "\n")


def _outputs(call: Call) -> Dict[str, torch.Tensor]:
    outputs = {"intact": call.output}
    try:
        outputs[torch.backends.quantized.engine] = call.engine_output()
    except RuntimeError:
        pass  # the engine has no such operator; intact's output is written
    return outputs


def _save(path: pathlib.Path, tensor: torch.Tensor) -> None:
    np.save(path, np.ascontiguousarray(tensor.numpy()))


def _rows_or_pixels(call: Call, tensor: torch.Tensor) -> torch.Tensor:
    values = tensor.int_repr() if tensor.is_quantized else tensor
    return values.movedim(1, -1) if reference.is_conv(call.params) else values.reshape(-1, values.size(-1))


def channels_last_weights(params) -> torch.Tensor:
    """int8: [N, K] for a linear layer; [N, KD, KH, KW, C/groups] for a convolution, transposed or not."""
    values = params.weight().int_repr()
    if not reference.is_conv(params):
        return values
    if not params.transposed():
        return values.movedim(1, -1)
    groups = params.groups()
    values = values.reshape(groups, values.size(0) // groups, *values.shape[1:]).movedim(1, -1)
    return values.reshape(-1, *values.shape[2:])


def _description(call: Call) -> dict:
    p = call.params
    scales, zero_points = reference.weight_quantization(p.weight(), reference.output_channels(p))
    weight = {"scales": scales.tolist(), "zero_points": zero_points.tolist()}
    described = {"operator": call.kind(), "relu": call.relu}
    if call.is_dynamic:
        return {
            **described,
            "input": {"type": "u8", "per": "row" if call.per_row else "tensor"},
            "weight": weight,
        }
    described["input"] = {"scale": call.input.q_scale(), "zero_point": call.input.q_zero_point()}
    described["output"] = {"scale": call.scale, "zero_point": call.zero_point}
    described["weight"] = weight
    if reference.is_conv(p):
        described.update(
            stride=_list(p.stride()),
            padding=_list(p.padding()),
            dilation=_list(p.dilation()),
            groups=p.groups(),
        )
        if p.transposed():
            described["output_padding"] = _list(p.output_padding())
    return described


def _list(values) -> List[int]:
    return [int(v) for v in values]
