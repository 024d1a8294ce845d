"""Weights in groups from GGUF files: Q4_0 and Q8_0."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

from .._library import excerpt, invalid
from .._plans.grouped_weights import GroupedWeights, q4_0, q8_0


def read_gguf(path: Path) -> Iterator[tuple[str, GroupedWeights]]:
    try:
        import gguf
    except ImportError:
        raise invalid(f"{excerpt(path)}: to read GGUF files, install the package gguf: pip install gguf") from None
    try:
        tensors = gguf.GGUFReader(str(path)).tensors
    except (OSError, ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError) as error:
        raise invalid(f"{excerpt(path)}: is no GGUF file: {excerpt(error)}") from None
    for tensor in tensors:
        read = {"Q4_0": q4_0, "Q8_0": q8_0}.get(tensor.tensor_type.name)
        if read is not None and tensor.data.ndim == 3:
            yield from ((f"{tensor.name}[{i}]", read(rows)) for i, rows in enumerate(tensor.data))
        elif read is not None and tensor.data.ndim == 2:
            yield tensor.name, read(tensor.data)
