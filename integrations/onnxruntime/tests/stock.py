"""What stock ONNX Runtime computes on a CPU with AVX2 and no VNNI: on this CPU, or in Debian's qemu-user as a Haswell."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

EMULATOR = ["qemu-x86_64", "-cpu", "Haswell"]


def cpu_has_vnni() -> bool:
    import intact  # not in the emulator

    return not {"avx_vnni", "avx512_vnni"}.isdisjoint(intact.isas())


def can_run(cpu_has_vnni: bool) -> bool:
    return not cpu_has_vnni or shutil.which(EMULATOR[0]) is not None


def joined(outputs: list[np.ndarray]) -> np.ndarray:
    """One output as it is, several of them in a row."""
    return outputs[0] if len(outputs) == 1 else np.concatenate([output.ravel() for output in outputs])


@functools.cache
def _process(cpu_has_vnni: bool) -> subprocess.Popen:
    """One process for all calls, until this process ends: in the emulator it takes seconds to start."""
    command = [*(EMULATOR if cpu_has_vnni else []), sys.executable, "-B", __file__]
    # sanitizers are only for intact
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    atexit.register(process.communicate)  # closes its input, so it ends
    return process


def outputs_on_avx2(
    cases: list[tuple[bytes, list[dict]]], cpu_has_vnni: bool, like: str = ""
) -> list[list[np.ndarray]]:
    """The outputs of each model, joined, for each of its inputs. `like`: intact runs them too, with this argument."""
    with tempfile.TemporaryDirectory() as folder:
        for i, (model, runs) in enumerate(cases):
            Path(folder, f"{i}.onnx").write_bytes(model)
            for j, given in enumerate(runs):
                np.savez(f"{folder}/{i}_{j}.npz", **given)
        process = _process(cpu_has_vnni)
        print(folder, like, sep="\t", file=process.stdin, flush=True)
        # its error is on stderr
        assert process.stdout.readline() == "done\n", "the process with stock ONNX Runtime has ended"
        return [
            [np.load(f"{folder}/{i}_{j}_out.npy") for j in range(len(runs))]
            for i, (_, runs) in enumerate(cases)
        ]


def run_cases(folder: str, like: str) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    if like:
        import intact.onnxruntime

        intact.onnxruntime.add(options, like=like)
    for model in Path(folder).glob("*.onnx"):
        session = onnxruntime.InferenceSession(
            model, options, providers=None if like else ["CPUExecutionProvider"]
        )
        for given in Path(folder).glob(f"{model.stem}_*.npz"):
            with np.load(given) as arrays:
                np.save(given.with_name(f"{given.stem}_out.npy"), joined(session.run(None, dict(arrays))))


if __name__ == "__main__":
    for line in sys.stdin:
        run_cases(*line.rstrip("\n").split("\t"))
        print("done", flush=True)
