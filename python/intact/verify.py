"""The verifier, on kernels written in Python.

class Mine:
    name = "mine"
    supports = ["gemm", "a_u8", "b_s8", "c_s32"]       # intact.verify.FEATURES: the features of intact/target.h in lower case
    arithmetic = "exact"                               # or "any": the verifier finds what it computes
    # conv_supports, grouped_supports: features of convolutions and of grouped weights, if they differ from those of GEMMs

    def gemm(self, problem):                           # GemmProblem; NotImplementedError("why") skips it
        return problem.a.astype("int32") @ problem.b.astype("int32")

print(intact.verify.sweep(Mine).text)
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ._library import Error, array_of, invalid
from ._plans.grouped_weights import GROUPS, GroupedWeights, weights_of
from ._program import native
from ._target import FEATURES, ConvProblem, GemmProblem, GroupedProblem

__all__ = [
    "FEATURES",
    "ConvProblem",
    "GemmProblem",
    "GroupedProblem",
    "Sweep",
    "sweep",
    "write_grouped_layer",
]


@dataclass
class Sweep:
    """A sweep's result. `passed`: every output is what the target claims. `text`: the program's output.
    `report`: its JSON (schema "intact-sweep": verify/report/sweep_file.h)."""

    passed: bool
    text: str
    report: dict


def sweep(target: type | str, *, quick: bool = True) -> Sweep:
    """Runs problems on a class, or on a plug-in or peer by name, in a process that imports the class from its
    file. `quick`: about a thousand problems, else about five thousand. Raises `Error` for a target that
    cannot be loaded or supports no problem."""
    name = target
    if inspect.isclass(target):
        file = inspect.getsourcefile(target)
        if file is None or "." in target.__qualname__:
            raise invalid(
                f"target: {target.__qualname__} is not at the top level of a file; expected a class that is"
            )
        name = f"python:{Path(file).resolve()}:{target.__name__}"
    elif not isinstance(target, str):
        raise invalid(f"target: is a {type(target).__name__}; expected a class, or a string as for --target")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.json"
        command, environment = native(
            ["verify", "sweep", *(["--quick"] if quick else []), "--target", name, "--json", str(path)]
        )
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if run.returncode not in (0, 1):
            lines = (run.stderr.strip() or run.stdout.strip()).splitlines()
            raise Error(
                "INVALID_ARGUMENT",
                lines[-1].removeprefix("intact: ") if lines else "the sweep failed without a message",
            )
        return Sweep(run.returncode == 0, run.stdout, json.loads(path.read_text()))


# The names that arguments of a layer take; the first is the default.
_NAMES = {
    "a_type": ("s8", "u8"),
    "granularity": ("rows", "groups"),
    "c_type": ("f32", "f16"),
    "activation": (None, "none", "relu"),
}


def write_grouped_layer(
    folder: str | os.PathLike,
    weights: GroupedWeights,
    a: Any,
    *,
    a_scales: Any = None,
    a_zero_points: Any = None,
    clamp: tuple[float, float] | None = None,
    outputs: dict[str, Any] | None = None,
    **names: str | None,
) -> None:
    """Writes a product with grouped weights as a folder for `intact verify layer`
    (verify/studies/grouped_layer.h). The arguments are those of `Grouped` and `Grouped.run`; `names` may be
    `a_type`, `granularity`, `c_type` ("f32" or "f16") and `activation`. `outputs`: what engines computed, by
    name. The files of a layer that was in the folder are deleted; other files are kept.
    Nothing is written or deleted if an argument is wrong."""
    weights = weights_of(weights).checked()
    for argument, value in names.items():
        if argument not in _NAMES:
            raise TypeError(f"unexpected argument {argument!r}; expected one of {', '.join(_NAMES)}")
        if value not in _NAMES[argument]:
            known = ", ".join(map(str, _NAMES[argument]))
            raise invalid(f"{argument}: is {value!r}; expected one of {known}")
    a_type, granularity, c_type, activation = (names.get(key, known[0]) for key, known in _NAMES.items())
    if clamp is not None and activation not in (None, "none"):
        raise invalid(f"clamp: is given with activation {activation!r}; expected one of the two")
    bounds = None if clamp is None else _bounds(clamp)
    if weights.minimums is not None:
        raise invalid("weights: have minimums; expected none, because a recorded layer cannot hold them")
    integers = np.dtype(np.int8 if weights.b_type.startswith("s") else np.uint8)
    scales, points = np.asarray(weights.scales), weights.zero_points
    if scales.dtype != np.float16:
        scales = scales.astype(np.float32)  # bfloat16, too: a .npy file cannot hold it
    group = 0 if weights.group >= weights.k and weights.group not in GROUPS else weights.group
    a = array_of("a", a)
    given = np.dtype(np.int8 if a_type == "s8" else np.uint8)
    if a.ndim != 2 or a.shape[1] != weights.k or a.dtype not in (np.float32, np.float16, given):
        raise invalid(
            f"a: has shape {a.shape} and dtype {a.dtype}; expected (M, {weights.k}) of float32, float16 or {given}"
        )
    shape = (len(a),) if granularity == "rows" else (len(a), -(-weights.k // (group or weights.k)))
    numbers = {"a_scales": (a_scales, np.float32), "a_zero_points": (a_zero_points, np.int32)}
    arrays = {
        "activations": a,
        "weights": weights.stored().astype(integers),
        "scales": scales,
        "zero_points": None if points is None else np.asarray(points, integers),
        "bias": None if weights.bias is None else np.asarray(weights.bias, np.float32),
    }
    for name, (value, dtype) in numbers.items():
        if value is not None:
            arrays[name] = _shaped(name, value, shape, dtype)
            if a.dtype != given:
                raise invalid(
                    f"{name}: is given with {a.dtype} activations; expected None, or {given} activations"
                )
    if a.dtype == given and a_scales is None:
        raise invalid(f"a_scales: is None; expected scales of the {given} activations")
    output = np.float32 if c_type == "f32" else np.float16
    for name, value in (outputs or {}).items():
        if not isinstance(name, str) or not name or "/" in name:
            raise invalid(f"outputs: has the name {name!r}; expected part of a file's name")
        arrays[f"output_{name}"] = _shaped(f"outputs[{name!r}]", value, (len(a), weights.n), output)
    layer = {
        "operator": "linear_grouped",
        "group": group,
        "weight": {"type": weights.b_type},
        "input": {"type": a_type, "per": {"rows": "row", "groups": "group"}[granularity]},
        "activation": bounds or activation or "none",
        "output": {"type": c_type},
    }

    _write(Path(folder), arrays, layer)


def _write(folder: Path, arrays: dict[str, Any], layer: dict) -> None:
    """Writes the files of a layer, and deletes the files of a layer that was in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = "activations", "a_scales", "a_zero_points", "weights", "scales", "zero_points", "bias", "output_*"
    for old in [path for name in names for path in folder.glob(f"{name}.npy")]:
        old.unlink()
    for name, array in arrays.items():
        if array is not None:
            np.save(folder / f"{name}.npy", np.asarray(array))
    (folder / "layer.json").write_text(json.dumps(layer, indent=1) + "\n")


def _bounds(clamp: Any) -> dict[str, float]:
    """The bounds of a clamp, as layer.json has them."""
    try:
        low, high = (float(bound) for bound in clamp)
    except (TypeError, ValueError):
        low = high = 0.0
    if not (low < high or low == high != 0) or abs(low) == np.inf or abs(high) == np.inf:
        raise invalid(f"clamp: is {clamp!r}; expected two finite numbers in ascending order, not both 0")
    return {"min": low, "max": high}


def _shaped(name: str, value: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    array = array_of(name, value)
    if array.shape != shape or array.dtype != dtype:
        raise invalid(
            f"{name}: has shape {array.shape} and dtype {array.dtype}; expected {shape} of {np.dtype(dtype)}"
        )
    return array
