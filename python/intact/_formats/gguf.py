"""Weights in groups from GGUF files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

from .._library import excerpt, invalid
from .._plans.ggml_types import FORMATS, of_rows
from .._plans.grouped_weights import GroupedWeights


def read_gguf(path: Path) -> Iterator[tuple[str, GroupedWeights]]:
    """See intact.read_grouped_weights."""
    try:
        import gguf
    except ImportError:
        raise invalid(
            f"{excerpt(path)}: to read GGUF files, install the package gguf: pip install gguf"
        ) from None
    try:
        tensors = gguf.GGUFReader(str(path)).tensors
    except Exception as error:  # the reader checks little; any of its errors means this
        raise invalid(f"{excerpt(path)}: is no GGUF file, or is cut or damaged: {excerpt(error)}") from None
    for tensor in tensors:
        kind = tensor.tensor_type.name.lower()
        if kind not in FORMATS or tensor.data.ndim not in (2, 3):
            continue
        matrices: list[Any] = [tensor.data] if tensor.data.ndim == 2 else list(tensor.data)
        for i, rows in enumerate(matrices):
            yield tensor.name + (f"[{i}]" if tensor.data.ndim == 3 else ""), of_rows(rows, kind)
