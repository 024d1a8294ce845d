"""Audits and repairs PyTorch modules and programs: finds layers that can saturate on CPUs without VNNI, and
makes them safe.

    import intact.torch

    repaired, report = intact.torch.repair(module)

Reads modules with s8 weights that were quantized in eager mode, by FX graph mode, or by PT2E (torchao). Needs
the packages torch and onnx.

    intact.torch.enable()

makes PyTorch compute `torch._int_mm` and the quantized layers of compiled PT2E models with intact
(docs/pytorch.md). Needs torch 2.10 or newer."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any, Iterable

import numpy as np

from .._audit.audit import Audit
from .._audit.audit import audit as _audit_file
from .._audit.report import to_text as _audit_text
from .._library import Error, excerpt, invalid
from .._repair import repair as _repair
from .._repair.repair import Repair
from .._repair.report import to_text as _repair_text
from ._graph import ExportedProgram, Translation, constants_of, translate, write_back
from ._operators import compare, disable, dump, embed, enable, is_enabled, library, package

__all__ = [
    "audit",
    "compare",
    "disable",
    "dump",
    "embed",
    "enable",
    "is_enabled",
    "library",
    "package",
    "repair",
    "to_text",
]

# of PyTorch; the engine x86 uses one of them, depending on the layer and the CPU
_ENGINES = ("fbgemm", "onednn")


def _translated(module: Any, example_inputs: Any) -> Translation:
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise invalid("intact.torch: needs the package onnx: pip install onnx") from None
    return translate(module, None if example_inputs is None else tuple(example_inputs))


def _names(translation: Translation, engines: Iterable[str] | None) -> list[str]:
    """The engines to audit for. Inductor runs exported programs with oneDNN; modules run with any of
    PyTorch's engines."""
    return list(engines) if engines is not None else ["onednn"] if translation.is_exported else list(_ENGINES)


def _named(audited: Audit, translation: Translation, module: Any) -> Audit:
    """The audit with PyTorch's names."""
    audited.model.path, audited.model.engine = type(module).__name__, "pytorch"
    for layer in audited.layers:
        layer.layer.op_type = translation.operators.get(layer.layer.name, layer.layer.op_type)
        layer.layer.is_qdq = False
        layer.remedies = [
            "a new order of the channels: intact.torch.repair" if text.startswith("a new order") else text
            for text in layer.remedies
            if "ONNX Runtime: session" not in text
        ]
    return audited


def _audited(translation: Translation, module: Any, names: list[str]) -> Audit:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "module.onnx")
        path.write_bytes(translation.proto.SerializeToString())
        return _named(_audit_file(path, engines_asked=names), translation, module)


def audit(module: Any, example_inputs: Any = None, *, engines: Iterable[str] | None = None) -> Audit:
    """Audits the quantized layers of a module, as `intact.audit()` audits a file.

    - `module`: a quantized `torch.nn.Module` that torch.fx traces, a `GraphModule`, or an `ExportedProgram`.
    - `example_inputs`: a tuple, the arguments of a run. Without the sizes that it gives, reshaped tensors
      keep their order.
    - `engines`: names of the table of engines; by default fbgemm and onednn; for exported programs onednn,
      with which Inductor runs them.

    Raises `Error`."""
    translation = _translated(module, example_inputs)
    return _audited(translation, module, _names(translation, engines))


def repair(
    module: Any, example_inputs: Any = None, *, engines: Iterable[str] | None = None, **options: Any
) -> "tuple[Any, Repair]":
    """Reorders the channels of a module so that no pair of adjacent depths can saturate. Without `max_noise`
    and `reorder_sums`, the module computes the same results.

    - `module`, `example_inputs`: as for `audit()`. The module is not changed.
    - `engines`: the engines in which no pair shall saturate, fbgemm or onednn; the same default as for
      `audit()`.
    - `options`: `reorder_sums`, `keep_channels`, `max_depth`, `max_noise`, as for `intact.repair()`. Programs
      keep their numbers of channels. With `max_noise`, layers that no order makes safe get shortened weights.
      An output with its own scale may get weights of 7 bits with twice the scale instead. The noise is then
      about 0.5. Weights that operators share are only shortened.

    Returns a repaired copy and a description of the repair. Layers that stay unsafe are not changed. Raises
    `Error`."""
    repaired = _copied(module)
    translation = _translated(repaired, example_inputs)
    names = _names(translation, engines)
    for name in names:
        if name not in _ENGINES:
            raise invalid(f"engines: is {excerpt(name)!r}; expected {' or '.join(_ENGINES)}")
    if translation.is_exported:
        options["keep_channels"] = True
    proto, done = _repair.repair(translation.proto, engines=names, add_gathers=False, **options)
    write_back(translation, proto)
    after = translate(repaired, None if example_inputs is None else tuple(example_inputs))
    held, wanted = constants_of(after, after.proto), constants_of(translation, proto)
    if len(held) != len(wanted) or not all(map(np.array_equal, held, wanted)):
        raise Error(
            "INTERNAL",
            f"{excerpt(type(module).__name__)}: the repaired module does not hold the repaired constants",
        )
    _named(done.before, translation, module)
    done.after = _audited(after, module, names)
    for row, layer in zip(done.layers, done.before.layers):
        row.operator = layer.layer.node
    return repaired, done


def to_text(result: "Audit | Repair") -> str:
    """The text that `intact audit` or `intact repair` would print."""
    return _audit_text(result) if isinstance(result, Audit) else _repair_text(result)


def _copied(module: Any) -> Any:
    """A copy with constants of its own."""
    if not isinstance(module, ExportedProgram):
        return copy.deepcopy(module)
    program = copy.copy(module)  # a deep copy would rename inputs that are named like built-in functions
    program._state_dict, program._constants = copy.deepcopy((module.state_dict, module.constants))
    return program
