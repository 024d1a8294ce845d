"""Makes python/intact/onnxruntime_operators.json from the counts of several versions of ONNX Runtime, and of several CPUs:

intact operators --python PYTHON --count 40 --json 1.32.json    # for each version
python3 integrations/onnxruntime/scripts/operators_table.py *.json > python/intact/onnxruntime_operators.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from intact._operators.onnx_cases import EXACT, FLOAT_UNARY

_CONTAINERS = ("If", "Loop", "Scan")  # their inner graphs have nodes of their own
# ONNX Runtime computes a tensor in one loop on one thread (core/providers/cpu/math/element_wise_ops.cc): the last elements are computed in
# another way, but they are the same ones for every number of threads.
_OF_ONE_THREAD = ("Acos", "Asin", "Atan", "Cos", "Sin")


def main(paths: list[str]) -> None:
    tables = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    for path, table in zip(paths, tables):
        if table["not_tried"]:
            sys.exit(
                f"{path}: was measured without {', '.join(table['not_tried'])}; expected a CPU with AVX-512 that can be held"
            )
    depends: dict[str, set[str]] = {}
    for table in tables:
        for operator in table["operators"]:
            name = operator["name"].split(" ")[0]
            if operator["refused"]:
                continue  # this version does not have it
            found = depends.setdefault(name, set())
            if any(level["changed"] for level in operator["levels"].values()):
                found.add("the CPU")
            # Functions of single elements: ends of rows and ends of threads' parts are computed in the same other way.
            is_cut = (
                name in FLOAT_UNARY
                and name not in _OF_ONE_THREAD
                and operator["rows"]
                and operator["rows"]["changed"]
            )
            if operator["threads"]["changed"] or is_cut:
                found.add("the number of threads")
    json.dump(
        {
            "comment": "Which operators of ONNX Runtime's CPU provider have the same bytes on every x86-64 CPU from AVX2 on and for "
            "every number of threads, as `intact operators` found them for float32 tensors. exact: operators that move "
            "values or compute integers, and operators with inner graphs. scripts/operators_table.py wrote this file.",
            "versions": sorted({table["onnxruntime"] for table in tables}),
            "exact": sorted(EXACT | set(_CONTAINERS)),
            "depends_on": {name: " and ".join(sorted(found)) for name, found in sorted(depends.items())},
        },
        sys.stdout,
        indent=1,
    )
    print()


if __name__ == "__main__":
    main(sys.argv[1:])
