"""Which operators of ONNX Runtime have bytes that depend on the CPU (onnxruntime_operators.json)."""

from __future__ import annotations

import json
from typing import Any, Iterable

from .._graph.operators import is_integer_product
from .._library import PACKAGE


def known() -> dict[str, Any]:
    """onnxruntime_operators.json: "versions" of ONNX Runtime that were measured; "exact", operators that move
    values or compute integers; "depends_on", by operator what its bytes depend on."""
    return json.loads((PACKAGE / "onnxruntime_operators.json").read_text(encoding="utf-8"))


def float_nodes_by_cpu(nodes: "Iterable[Any]") -> dict[str, int]:
    """The float operators among ONNX nodes whose bytes depend on the CPU in ONNX Runtime, and their
    number."""
    depends_on = known()["depends_on"]
    found: dict[str, int] = {}
    for node in nodes:
        name = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        if "the CPU" in depends_on.get(name, "") and not is_integer_product(node):
            found[node.op_type] = found.get(node.op_type, 0) + 1
    return found
