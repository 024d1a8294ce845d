"""The test vectors of docs/arithmetic.md for float operators: what the definitions (float_reference.cc) make, and what the provider
makes on each ISA.

    python integrations/onnxruntime/tests/test_vectors.py      # chooses vectors among random problems, and writes the file
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx")

from layers import model_of
from test_float_sweep import DRAWS, FAULTS, SESSIONS, Problem, drawn, prepared, same

FILE = Path(__file__).parents[3] / "tests" / "data" / "arithmetic" / "floats.json"
SEED = 0
MOST_BYTES = 20000  # of a vector's tensors
TYPES = {"f32": np.dtype("<f4"), "s64": np.dtype("<i8")}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def tensor(array: np.ndarray) -> dict[str, Any]:
    return {"type": NAMES[array.dtype], "shape": list(array.shape), "hex": array.tobytes().hex()}


def array_of(tensor: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(tensor["hex"]), TYPES[tensor["type"]]).reshape(tensor["shape"])


def stored(vector: dict[str, Any]) -> tuple[bytes, dict[str, np.ndarray]]:
    """The model and its inputs, of a vector in the file. The model does not state the extents, of reductions not the rank: where it
    does, the provider leaves some operators to ONNX Runtime."""
    names = [f"input_{i}" if each else "" for i, each in enumerate(vector["inputs"])]
    arrays = {name: array_of(each) for name, each in zip(names, vector["inputs"]) if each}
    constants = {names[i]: arrays.pop(names[i]) for i in vector["constants"]}
    node = onnx.helper.make_node(vector["operation"], names, ["y"], **vector["attributes"])
    is_reduction = vector["operation"].startswith("Reduce")
    inputs = {
        name: (array.dtype, None if is_reduction else [None] * array.ndim) for name, array in arrays.items()
    }
    return model_of([node], inputs, {"y": (np.float32, None)}, constants, vector["opset"]), arrays


def output_of(problem: Problem) -> np.ndarray:
    """With one NaN for all NaNs, whose bits are not defined."""
    y = np.ascontiguousarray(problem.defined(0))
    return np.where(np.isnan(y), np.float32(np.nan), y)


def vector_of(name: str, number: int) -> dict[str, Any]:
    _, problem = drawn(name, SEED, number)
    model = onnx.load_from_string(problem.model)
    (node,) = model.graph.node
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    tensors = {**problem.feeds, **constants}
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    return {
        "operation": node.op_type,
        "opset": model.opset_import[0].version,
        "attributes": attributes,
        "inputs": [tensor(tensors[each]) if each else None for each in node.input],
        "constants": [i for i, each in enumerate(node.input) if each in constants],
        "expected": {"c": tensor(output_of(problem))},
        "drawn": [name, number],
    }


def bytes_of(vector: dict[str, Any]) -> int:
    tensors = [each for each in [*vector["inputs"], vector["expected"]["c"]] if each]
    return sum(len(each["hex"]) // 2 for each in tensors)


def features_of(name: str, number: int, vector: dict[str, Any]) -> set[tuple]:
    """What a vector shows: faults that change its output, special values, and kinds of attributes."""
    _, problem = drawn(name, SEED, number)
    y, op = output_of(problem), vector["operation"]
    kinds = {
        "NaN": np.isnan(y),
        "infinity": np.isinf(y),
        "denormal": (y != 0) & (abs(y) < np.finfo(np.float32).tiny),
        "−0": (y == 0) & np.signbit(y),
    }
    shown = {
        fault
        for fault in problem.faults
        if not same(np.ascontiguousarray(problem.defined(1 + FAULTS.index(fault))), y)
    }
    given = {
        (key, value != [0] * len(value) if key == "pads" else value == [1] * len(value))
        for key, value in vector["attributes"].items()
        if isinstance(value, list)
    }
    given |= {("group", vector["attributes"].get("group", 1) > 1), ("inputs", len(vector["inputs"]))}
    # Blocks of several sizes: with the largest of these numbers that an extent exceeds.
    if "block of eight" in shown:
        largest = max(max(each["shape"], default=0) for each in vector["inputs"] if each)
        given.add(("blocks", max(n for n in (0, 16, 128, 256, 512, 1024) if largest > n)))
    return {(op, each) for each in [*shown, *given, *(kind for kind, is_it in kinds.items() if is_it.any())]}


def chosen(name: str, count: int) -> Iterator[dict[str, Any]]:
    """The smallest problems that show everything that some small problem shows."""
    vectors = [(number, vector_of(name, number)) for number in range(count)]
    small = sorted(
        (each for each in vectors if bytes_of(each[1]) <= MOST_BYTES), key=lambda each: bytes_of(each[1])
    )
    shown: set[tuple] = set()
    for number, vector in small:
        features = features_of(name, number, vector)
        if not features <= shown:
            shown |= features
            yield vector


def vectors() -> list[dict[str, Any]]:
    return json.loads(FILE.read_text())["vectors"]


def test_the_definitions_make_the_vectors():
    for vector in vectors():
        name, number = vector["drawn"]
        assert json.loads(json.dumps(vector_of(name, number))) == vector, (name, number)


@pytest.mark.parametrize("isa, threads", SESSIONS)
def test_the_provider_makes_the_vectors(isa, threads):
    for vector in vectors():
        model, feeds = stored(vector)
        (y,) = prepared(model, isa, threads).run(None, feeds)
        expected = array_of(vector["expected"]["c"])
        assert y.shape == expected.shape and same(y, expected), vector["drawn"]


def main() -> None:
    lines = [json.dumps(vector) for name in DRAWS for vector in chosen(name, 1500)]
    FILE.write_text('{"arithmetic": 1, "vectors": [\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
