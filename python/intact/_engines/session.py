"""Runs models in ONNX Runtime: here, in an emulator, or held to an older CPU."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from .._deadline import TimeOver, begin_unit, seconds_left
from .._engines import held_to
from .._graph.nodes import ITEM_SIZES, every_node
from .._graph.weights import add_shared, write_model
from .._library import excerpt, invalid, is_x86


def session_of(model: Any, is_as_written: bool = False) -> Any:
    """A session of ONNX Runtime. `is_as_written`: without fusions of QuantizeLinear and DequantizeLinear
    nodes. The fusions would also quantize float weights between these nodes."""
    try:
        import onnxruntime
    except ImportError:
        raise invalid("--data: needs the package onnxruntime: pip install onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if is_as_written:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    try:
        values: list = []
        if not isinstance(model, str):
            outputs = {output.name for output in model.graph.output}
            read = outputs.union(*(node.input for node in every_node(model.graph)))
            model, values = add_shared(options, model, read)
            model = model.SerializeToString()
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        session.intact_shared = values  # must live as long as the session
        return session
    except Exception as error:
        raise invalid(f"ONNX Runtime does not load the model: {excerpt(error, 300)}") from None


_ELSEWHERE = """
import ctypes, json, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: SIGKILL when the command ends, by any signal
import numpy, onnxruntime
folder = sys.argv[1]
job = json.load(open(folder + "/job.json"))
options = onnxruntime.SessionOptions()
options.log_severity_level, options.intra_op_num_threads = 4, 1
session = onnxruntime.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
for i in range(job["runs"]):
    with numpy.load(f"{folder}/{i}.npz") as arrays:
        results = session.run(job["outputs"], dict(zip(job["inputs"][i], [arrays[name] for name in arrays.files])))
    results = [numpy.asarray(result) for result in results]
    numpy.savez(f"{folder}/{i}_new.npz", *[result if result.dtype.kind in "biuf" else numpy.zeros(0, "U1") for result in results])
    os.rename(f"{folder}/{i}_new.npz", f"{folder}/{i}_out.npz")
"""


def _run_to_end(command: list[str], environment: dict[str, str]) -> "tuple[int, str] | None":
    """Runs a process: its exit status, and what it said on standard error. If the time is over first, None.
    No process that it started is left."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
        start_new_session=True,
    )
    with process:
        try:
            _, said = process.communicate(timeout=seconds_left())
        except BaseException as error:  # also Ctrl-C, which the group does not get
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return None
            raise
    return process.returncode, said


def _run_elsewhere(
    command: list[str],
    environment: dict[str, str],
    path: str,
    names: list[str],
    runs: list[dict[str, np.ndarray]],
) -> "tuple[list[list[np.ndarray]], str]":
    """A model's outputs of each run, in a Python that `command` starts; or no outputs, and what it said on
    standard error. If the time is over first, the outputs of the runs that were finished."""
    with tempfile.TemporaryDirectory() as folder:
        for i, run in enumerate(runs):
            np.savez(f"{folder}/{i}.npz", *run.values())
        job = {
            "model": str(Path(path).resolve()),
            "runs": len(runs),
            "inputs": [list(run) for run in runs],
            "outputs": names,
        }
        Path(folder, "job.json").write_text(json.dumps(job))
        begin_unit("the runs on another CPU")
        ended = _run_to_end([*command, "-c", _ELSEWHERE, folder], environment)
        if ended and ended[0]:
            return [], ended[1] or f"it ended with status {ended[0]}"
        results = []
        for i in range(len(runs)):
            if ended is None and not Path(folder, f"{i}_out.npz").exists():
                break
            with np.load(f"{folder}/{i}_out.npz") as arrays:
                results.append([arrays[name] for name in arrays.files])
        return results, ""


def emulator() -> "tuple[list[str], dict[str, str]]":
    """The command of a Python on a CPU without VNNI, and variables for it. It is the interpreter INTACT_PYTHON;
    without INTACT_PYTHON, this interpreter held to AVX2, or in qemu-user if this CPU cannot be held."""
    own = os.environ.get("INTACT_PYTHON")
    if own and not shutil.which(own):
        raise invalid(f"INTACT_PYTHON: names {excerpt(own)}, which cannot be run")
    if own:
        return [own], {}
    if not is_x86():
        raise invalid(
            "--emulate: needs a Python of x86-64, which INTACT_PYTHON names; this Python is of another CPU"
        )
    if held_to.can_be_held("avx2"):
        return [sys.executable], held_to.environment("avx2")
    if not shutil.which("qemu-x86_64"):
        raise invalid("--emulate: needs qemu-x86_64; on Debian, install the package qemu-user")
    return ["qemu-x86_64", "-cpu", "Haswell", sys.executable], {}


def emulated(
    path: str, names: list[str], runs: list[dict[str, np.ndarray]], may_end_early: bool = False
) -> list[list[np.ndarray]]:
    """A model's outputs of each run on a CPU without VNNI. If the time is over first: raises `TimeOver`, or
    with `may_end_early` returns the outputs of the runs that were finished."""
    results, said = _run_elsewhere(*emulator(), path, names, runs)
    if said:
        raise invalid(f"--emulate: the emulated ONNX Runtime failed: {excerpt(said[-300:], 300)}")
    if len(results) < len(runs) and not may_end_early:
        raise TimeOver("the runs on another CPU")
    return results


def held_to_avx2(
    exact: Any, names: list[str], inputs: list[dict[str, np.ndarray]]
) -> "tuple[list[list[np.ndarray]], str]":
    """The outputs of the exact variant in ONNX Runtime held to AVX2, whose float operators add in other
    orders than on this CPU; or no outputs, and why there are none. Raises `TimeOver`."""
    if not held_to.has_avx512():
        return [], "this CPU has no AVX-512, so ONNX Runtime has no other order here"
    if not held_to.can_be_held("avx2"):
        return [], "this CPU cannot be held to AVX2"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "exact.onnx")
        write_model(exact, path)
        results, said = _run_elsewhere(
            [sys.executable], held_to.environment("avx2"), str(path), names, inputs
        )
    if not said and len(results) < len(inputs):
        raise TimeOver("the runs on another CPU")
    if results:
        return results, ""
    return [], f"ONNX Runtime could not be held to AVX2: {excerpt(said.strip()[-200:], 200)}"


# bytes of a session for each byte of constants: while it is made, it has loaded and packed them
SESSION = 2.2


def constants_size(proto: Any) -> tuple[int, int, int]:
    """The bytes of a model's constants: of all, of the constants that the file itself holds, and of the
    float32 constants."""
    tensors = proto.graph.initializer
    sizes = [math.prod(tensor.dims) * ITEM_SIZES.get(tensor.data_type, 4) for tensor in tensors]
    return (
        sum(sizes),
        sum(size for tensor, size in zip(tensors, sizes) if tensor.data_location != 1),
        sum(size for tensor, size in zip(tensors, sizes) if tensor.data_type == 1),
    )


def memory_available() -> int:
    """The bytes that this machine can still give to programs; 0 if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return 0


def float_session(path: str, names: list[str], option: str = "--float") -> Any:
    """A session of the model before quantization, which must have at least one of the outputs `names`."""
    if not Path(path).is_file():
        raise invalid(f"{option}: {excerpt(path)}: no such file")
    session = session_of(str(path))
    found = [output.name for output in session.get_outputs()]
    if not set(found) & set(names):
        raise invalid(
            f"{option}: {excerpt(path)}: has none of the model's outputs ({excerpt(', '.join(names))}); "
            f"its outputs: {excerpt(', '.join(found))}"
        )
    return session
