"""Large constants of the model variants that intact makes. They lie outside the protobuf messages, so
variants and sessions share one array, and a variant may have more than 2 GB."""

from __future__ import annotations

import copy
import itertools
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np

SHARED_SIZE = 1 << 20  # bytes from which a constant is shared
_EXTERNAL = 1  # onnx.TensorProto.EXTERNAL
_PREFIX = f"intact:{os.urandom(16).hex()}:"  # no model's file can name it
_numbers = itertools.count()
_arrays: dict[str, np.ndarray] = {}  # by location


def location_of(tensor: Any) -> str:
    """The file of a tensor's data; "" if they are in the model."""
    if tensor.data_location != _EXTERNAL:
        return ""
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def place(tensor: Any, location: str, **where: int) -> None:
    """Makes a tensor's data external. `where`: offset and length in the file."""
    tensor.ClearField("raw_data")
    tensor.ClearField("external_data")
    tensor.data_location = _EXTERNAL
    for key, value in {"location": location, **where}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)


def shared(tensor: Any) -> "np.ndarray | None":
    """The array that a tensor shares with other variants, or None. It has the tensor's shape and type."""
    array = _arrays.get(location_of(tensor))
    if array is None or array.shape != tuple(tensor.dims) or _type(array) != tensor.data_type:
        return None
    return array


def _type(array: np.ndarray) -> int:
    """The number of an array's type in onnx.TensorProto."""
    from onnx import numpy_helper

    return numpy_helper.from_array(array.reshape(-1)[:0]).data_type


def set_array(tensor: Any, array: np.ndarray, owner: Any) -> None:
    """Gives a tensor the values of an array. A large array is shared, and lives until `owner` is deleted;
    None: it is copied."""
    from onnx import TensorProto, numpy_helper

    if owner is None or array.nbytes < SHARED_SIZE:
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(array, order="C"), tensor.name))
        return
    location = f"{_PREFIX}{next(_numbers)}"
    _arrays[location] = np.asarray(array, order="C")
    weakref.finalize(owner, _arrays.pop, location, None)
    tensor.CopyFrom(TensorProto(name=tensor.name, data_type=_type(array), dims=array.shape))
    place(tensor, location)


def add_shared(options: Any, proto: Any, read: "set[str]") -> "tuple[Any, list]":
    """Gives a session's options the arrays that a model shares. `read`: the names that the model's operators
    read. Returns the model without shared constants that nothing reads, which ONNX Runtime refuses, and ONNX
    Runtime's values, which must live as long as the session."""
    from onnxruntime import OrtValue

    found = {
        tensor.name: array
        for tensor in proto.graph.initializer
        for array in [shared(tensor)]
        if array is not None
    }
    unread = set(found) - read
    if unread:
        proto = copy.deepcopy(proto)
        for i in reversed(range(len(proto.graph.initializer))):
            if proto.graph.initializer[i].name in unread:
                del proto.graph.initializer[i]
    names = [name for name in found if name in read]
    values = [OrtValue.ortvalue_from_numpy(found[name]) for name in names]
    if names:
        options.add_external_initializers(names, values)
    return proto, values


def write_model(proto: Any, path: Path) -> None:
    """Writes a variant to a file. Shared arrays go to a second file beside it, PATH.data."""
    written = copy.deepcopy(proto)
    with open(path.with_name(path.name + ".data"), "wb") as data:
        for tensor in written.graph.initializer:
            array = shared(tensor)
            if array is not None:
                place(tensor, f"{path.name}.data", offset=data.tell(), length=array.nbytes)
                array.tofile(data)
    path.write_bytes(written.SerializeToString())
