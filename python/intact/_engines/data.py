"""Inputs of runs, and distances of outputs."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from .._library import excerpt, invalid


def decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return math.inf
    if signal == 0 or math.isinf(noise):
        return -math.inf
    return 10 * math.log10(signal / noise)


class Run(dict):
    """The inputs of one run, by name. `source`: their file."""

    source = "--data"


def load_data(path: str | Path) -> list[Run]:
    """The runs in `path`: one for a .npz file, or one for each .npz file of a folder."""
    path = Path(path)
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if not files:
        raise invalid(f"{excerpt(path)}: has no .npz files")
    runs = []
    for file in files:
        try:
            arrays = np.load(file, allow_pickle=False)
            if isinstance(arrays, np.ndarray):
                raise invalid(
                    f"{excerpt(file)}: is one array; expected a .npz file, as numpy.savez(FILE, INPUT=ARRAY) writes it"
                )
            with arrays:
                run = Run({name: arrays[name] for name in arrays.files})
        except OSError as error:
            raise invalid(f"{excerpt(file)}: {error.strerror or 'is no .npz file of arrays'}") from None
        except (
            AttributeError,
            EOFError,
            MemoryError,
            NotImplementedError,
            RuntimeError,
            TypeError,
            ValueError,
            zipfile.BadZipFile,
            zlib.error,
        ):
            raise invalid(f"{excerpt(file)}: is no .npz file of arrays of numbers") from None
        run.source = str(file)
        runs.append(run)
    return runs


TENSORS = {  # by the type of an input in ONNX Runtime
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


def inputs_of(session: Any, run: dict[str, np.ndarray], model: str = "") -> dict[str, np.ndarray]:
    """The arrays of a run that a session reads, checked. Other arrays (labels, say) are left out."""
    source = excerpt(getattr(run, "source", "--data"))
    taken = {}
    for value in session.get_inputs():
        where = f"{source}: array {excerpt(value.name)!r}"
        if value.name not in run:
            raise invalid(
                f"{source}: has no array {excerpt(value.name)!r}, an input of {model or 'the model'}; has: {excerpt(', '.join(run)) or 'none'}"
            )
        array = run[value.name]
        dtype = TENSORS.get(value.type)
        if dtype is not None and array.dtype != dtype:
            raise invalid(f"{where}: is {array.dtype}; expected {np.dtype(dtype)}")
        shape = tuple(value.shape)
        # An empty shape is an unknown shape.
        if shape and (
            array.ndim != len(shape)
            or any(isinstance(want, int) and n != want for n, want in zip(array.shape, shape))
        ):
            expected = ", ".join(str(n) if isinstance(n, int) else "any" for n in shape)
            raise invalid(f"{where}: has the shape {array.shape}; expected ({expected})")
        if not array.size:
            raise invalid(f"{where}: has no elements: its shape is {array.shape}")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise invalid(f"{where}: holds NaN")
        taken[value.name] = array
    return taken


def outputs_of(
    session: Any, inputs: dict, source: str, names: list[str] | None = None
) -> dict[str, np.ndarray]:
    """A run's outputs by name: `names`, or all. `source`: the file of the inputs. Arrays that are no inputs are
    ignored."""
    names = names or [output.name for output in session.get_outputs()]
    try:
        values = session.run(names, {value.name: inputs[value.name] for value in session.get_inputs()})
    except Exception as error:
        raise invalid(
            f"{excerpt(source)}: ONNX Runtime cannot run these inputs: {excerpt(error, 300)}"
        ) from None
    return dict(zip(names, map(np.asarray, values)))


def dynamically_quantized(x: np.ndarray) -> tuple[np.ndarray, np.float32, np.uint8]:
    """u8 values, their scale and zero point, as DynamicQuantizeLinear computes them."""
    low, high = min(x.min(initial=0), np.float32(0)), max(x.max(initial=0), np.float32(0))
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    point = np.uint8(np.rint(np.clip(-low / scale, 0, 255)))
    return np.clip(np.rint(x / scale) + np.float32(point), 0, 255).astype(np.uint8), scale, point


def distances(exact: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far values are apart. Equal infinities and two NaNs: 0. Any other pair with an infinity or a NaN:
    infinity."""
    finite = np.isfinite(exact) & np.isfinite(other)
    alike = (exact == other) | (np.isnan(exact) & np.isnan(other))
    distances = np.where(alike, 0.0, np.inf)
    distances[finite] = np.abs(exact[finite] - other[finite])
    return distances


def power(values: np.ndarray) -> float:
    return float(np.square(values[np.isfinite(values)]).sum())
