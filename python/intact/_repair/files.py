"""Files of models with external data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterable

import numpy as np

from .._graph.nodes import array_of_tensor, inner_graphs
from .._graph.weights import location_of, place
from .._library import excerpt, invalid

MOST_PROTOBUF = (1 << 31) - 1  # bytes


def tensors_of(graph: Any, depth: int = 0) -> Iterable[Any]:
    yield from graph.initializer
    for node in graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.type == 4)
        for _, inner in inner_graphs(node, depth):
            yield from tensors_of(inner, depth + 1)


def files_of(path: Path, graph: Any) -> set[Path]:
    """The model's file, and the files of its external data."""
    return {path, *(path.parent / name for name in map(location_of, tensors_of(graph)) if name)}


def is_external(proto: Any) -> bool:
    """Whether some tensors of a model are in other files."""
    return any(tensor.data_location == 1 for tensor in tensors_of(proto.graph))


def write(proto: Any, folder: Path, name: str, source: Path, is_external: bool) -> None:
    """Writes folder/name; the weights of a model with external data go to folder/name.data, and `proto` is
    changed."""
    if is_external:
        # an audit may still map the file that was written before
        (folder / f"{name}.data").unlink(missing_ok=True)
        with open(folder / f"{name}.data", "wb") as data:
            for tensor in tensors_of(proto.graph):
                if tensor.data_location == 1:
                    array = array_of_tensor(tensor, source)
                    if array is None:
                        raise invalid(
                            f"tensor {excerpt(tensor.name)!r}: is external data of a type that intact cannot read"
                        )
                    content = np.ascontiguousarray(array).tobytes()
                elif tensor.HasField("raw_data") and len(tensor.raw_data) > 1024:
                    content = tensor.raw_data
                else:
                    continue
                data.write(b"\0" * (-data.tell() % 64))
                begin = data.tell()
                data.write(content)
                place(tensor, f"{name}.data", offset=begin, length=len(content))
    if proto.ByteSize() > MOST_PROTOBUF:
        raise invalid("the repaired model has more than 2 GB; store the model with external data first")
    (folder / name).write_bytes(proto.SerializeToString())
