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
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ._library import Error, invalid
from ._program import native
from ._target import FEATURES, ConvProblem, GemmProblem

__all__ = ["FEATURES", "ConvProblem", "GemmProblem", "Sweep", "sweep"]


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
