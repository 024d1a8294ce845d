"""The verifier, on kernels written in Python.

    class Mine:
        name = "mine"
        supports = ["gemm", "a_u8", "b_s8", "c_s32"]       # intact.verify.FEATURES: the features of intact/target.h in lower case
        arithmetic = "exact"                               # or "any": the verifier finds what it computes

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

from ._grouped_weights import GroupedWeights
from ._library import Error, array_of, invalid
from ._program import native
from ._target import FEATURES, ConvProblem, GemmProblem, GroupedProblem

__all__ = ["FEATURES", "ConvProblem", "GemmProblem", "GroupedProblem", "Sweep", "sweep", "write_grouped_layer"]


@dataclass
class Sweep:
    """A sweep's result. `passed`: every output is what the target claims. `text`: the program's output. `report`: its JSON
    (schema "intact-sweep": verify/report/sweep_file.h)."""

    passed: bool
    text: str
    report: dict


def sweep(target: type | str, *, quick: bool = True) -> Sweep:
    """Runs problems on a class, or on a plug-in or peer by name, in a process that imports the class from its file. `quick`:
    about a thousand problems, else about five thousand. Raises `Error` for a target that cannot be loaded or supports no
    problem."""
    name = target
    if inspect.isclass(target):
        file = inspect.getsourcefile(target)
        if file is None or "." in target.__qualname__:
            raise invalid(f"target: {target.__qualname__} is not at the top level of a file; expected a class that is")
        name = f"python:{Path(file).resolve()}:{target.__name__}"
    elif not isinstance(target, str):
        raise invalid(f"target: is a {type(target).__name__}; expected a class, or a string as for --target")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.json"
        command, environment = native(["verify", "sweep", *(["--quick"] if quick else []), "--target", name, "--json", str(path)])
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if run.returncode not in (0, 1):
            lines = (run.stderr.strip() or run.stdout.strip()).splitlines()
            raise Error("INVALID_ARGUMENT", lines[-1].removeprefix("intact: ") if lines else "the sweep failed without a message")
        return Sweep(run.returncode == 0, run.stdout, json.loads(path.read_text()))


def write_grouped_layer(folder: str | os.PathLike, weights: GroupedWeights, a: Any, *, a_type: str = "s8", granularity: str = "rows",
                        a_scales: Any = None, a_zero_points: Any = None, activation: str | None = None,
                        clamp: tuple[float, float] | None = None, c_type: str = "f32", outputs: dict[str, Any] | None = None) -> None:
    """Writes a product with grouped weights as a folder for `intact verify layer` (verify/studies/grouped_layer.h). The arguments
    are those of `Grouped` and `Grouped.run`. `outputs`: what engines computed, by name."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.npy"):
        old.unlink()
    dtype = np.int8 if weights.b_type.startswith("s") else np.uint8
    scales, points = np.asarray(weights.scales), weights.zero_points
    if scales.dtype != np.float16:
        scales = scales.astype(np.float32)  # bfloat16, too: a .npy file cannot hold it
    arrays = {"activations": array_of("a", a), "a_scales": a_scales, "a_zero_points": a_zero_points,
              "weights": weights.stored().astype(dtype), "scales": scales,
              "zero_points": None if points is None else np.asarray(points, dtype), "bias": weights.bias}
    arrays.update({f"output_{name}": output for name, output in (outputs or {}).items()})
    for name, array in arrays.items():
        if array is not None:
            np.save(folder / f"{name}.npy", np.asarray(array))
    group = 0 if weights.group >= weights.k and weights.group not in (16, 32, 64, 128, 256) else weights.group
    layer = {"operator": "linear_grouped", "group": group, "weight": {"type": weights.b_type},
             "input": {"type": a_type, "per": {"rows": "row", "groups": "group"}[granularity]},
             "activation": {"min": clamp[0], "max": clamp[1]} if clamp else activation or "none", "output": {"type": c_type}}
    (folder / "layer.json").write_text(json.dumps(layer, indent=1) + "\n")
