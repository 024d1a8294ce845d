"""Which operators of an engine have the same bytes on every CPU, for every number of threads, and for a row
alone and in a batch.

Random problems (onnx_cases.py, torch_cases.py) run in processes that are held to older CPUs, and natively. A
difference is a proof that an operator's bytes depend on the CPU; the absence of one in a few dozen problems
is evidence, which onnxruntime_operators.json keeps for the versions of ONNX Runtime that were tried."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Callable

import numpy as np

from .._deadline import IS_OVER, is_time_over
from .._engines import held_to
from .._library import PACKAGE, Error, excerpt, invalid

# modules with their problems
ENGINES = {"onnxruntime": "intact._operators.onnx_cases", "pytorch": "intact._operators.torch_cases"}
LEVELS = ("avx512", "avx2")  # of examples/targets/held_to.c, beside the CPU as it is


@dataclass
class Differences:
    """Of one kind of change: how many problems and values were compared, and how many differ. `nans`: values
    that are NaN in both runs and differ in bits; they do not count as different."""

    problems: int = 0
    problems_changed: int = 0
    values: int = 0
    changed: int = 0
    nans: int = 0

    def add(self, first: "list[np.ndarray]", second: "list[np.ndarray]") -> None:
        before = self.changed
        for a, b in zip(first, second):
            self.values += a.size
            if a.shape != b.shape or a.dtype != b.dtype:
                self.changed += max(a.size, 1)
            elif a.tobytes() != b.tobytes():
                kind = np.dtype(f"u{a.dtype.itemsize}")
                differs = np.ascontiguousarray(a).view(kind) != np.ascontiguousarray(b).view(kind)
                both = np.isnan(a) & np.isnan(b) if a.dtype.kind == "f" else np.zeros(a.shape, bool)
                self.nans += int((differs & both).sum())
                self.changed += int((differs & ~both).sum())
        self.problems += 1
        self.problems_changed += self.changed > before


@dataclass
class Operator:
    """What was found of one operator. `levels`: against the CPU as it is, by level; `threads`: 2 and 4
    against 1, on all levels; `rows`: a row alone against the row in its batch; None if no problem has rows.
    `refused`: why the engine ran a problem not."""

    name: str
    levels: dict[str, Differences] = field(default_factory=dict)
    threads: Differences = field(default_factory=Differences)
    rows: Differences | None = None
    refused: str = ""

    @property
    def is_same(self) -> bool:
        """Whether no value depended on the CPU or the number of threads."""
        return (
            not self.refused
            and not self.threads.changed
            and not any(level.changed for level in self.levels.values())
        )


@dataclass
class Table:
    engine: str  # of ENGINES
    version: str
    cpu: str
    operators: list[Operator] = field(default_factory=list)
    not_tried: dict[str, str] = field(default_factory=dict)  # levels, and why this CPU cannot run them
    not_run: list[str] = field(default_factory=list)  # operators that the time did not suffice for


Run = Callable[[dict[str, np.ndarray]], list[np.ndarray]]


def _rows_alone(run: Run, case: Any) -> "list[np.ndarray] | None":
    """The outputs of the problem's rows, each computed alone; None if it has no rows, one or many."""
    count = case.feeds[case.rows[0]].shape[0] if case.rows else 0
    if not 1 < count <= 64:
        return None
    each = [
        run(
            {name: value[row : row + 1] if name in case.rows else value for name, value in case.feeds.items()}
        )
        for row in range(count)
    ]
    return [np.concatenate(outputs) if outputs[0].ndim else outputs[0] for outputs in zip(*each)]


def _answer(cases: Any, operator: str, count: int, seed: int, with_rows: bool) -> dict[str, Any]:
    """What one process computes: the outputs of each problem by number of threads, and of the rows alone."""
    found: dict[str, Any] = {"outputs": [], "rows": [], "refused": ""}
    for case in cases.draw_cases(operator, count, seed):
        try:
            runs = [cases.prepare(case, threads) for threads in cases.THREADS]
            found["outputs"].append([run(case.feeds) for run in runs])
            found["rows"].append(_rows_alone(runs[0], case) if with_rows else None)
        except Exception as error:  # the engines' exceptions have no common base
            found["refused"] = excerpt(str(error), 200)
            break
    return found


def _serve(engine: str, stream_in: BinaryIO, stream_out: BinaryIO) -> None:
    """The process at one level: answers questions until there are no more."""
    cases = importlib.import_module(ENGINES[engine])
    pickle.dump(cases.version(), stream_out)
    stream_out.flush()
    while True:
        try:
            question = pickle.load(stream_in)
        except EOFError:
            return
        pickle.dump(_answer(cases, *question), stream_out, protocol=4)
        stream_out.flush()


class _Process:
    """A Python at one level ("": the CPU as it is)."""

    def __init__(self, python: str, engine: str, level: str):
        environment = {
            **importlib.import_module(ENGINES[engine]).ENVIRONMENT,
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        }
        if level:
            environment |= held_to.environment(level)
        self.said = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [python, "-m", "intact._operators.measure", engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            env=environment,
        )
        try:
            self.version: str = self._read()
        except Error:
            self.close()
            raise

    def _read(self) -> Any:
        assert self.process.stdout is not None
        try:
            return pickle.load(self.process.stdout)
        except Exception:  # what another library printed is no answer; an ended process gives none
            self.process.kill()
            self.process.wait()
            self.said.seek(0)
            lines = self.said.read().decode(errors="replace").strip().splitlines()
            raise invalid(
                f"operators: the process ended: {excerpt(lines[-1] if lines else 'it said nothing', 300)}"
            ) from None

    def ask(self, *question: Any) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # answer() says why the process ended
            pickle.dump(question, self.process.stdin)
            self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        return self._read()

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.said):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self.process.wait()


def _compared(name: str, answers: dict[str, dict[str, Any]]) -> Operator:
    """`answers`: by level, "" first."""
    native = answers[""]
    found = Operator(
        name, refused=next((answer["refused"] for answer in answers.values() if answer["refused"]), "")
    )
    if found.refused:
        return found
    for level, answer in answers.items():
        for outputs in answer["outputs"]:
            for other in outputs[1:]:
                found.threads.add(outputs[0], other)
        if level:
            found.levels[level] = differences = Differences()
            for first, second in zip(native["outputs"], answer["outputs"]):
                differences.add(first[0], second[0])
    for outputs, rows in zip(native["outputs"], native["rows"]):
        if rows is not None:
            found.rows = found.rows or Differences()
            found.rows.add(outputs[0], rows)
    return found


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def measure(
    python: str = sys.executable,
    operators: "list[str] | None" = None,
    count: int = 24,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, of: None,
    engine: str = "onnxruntime",
) -> Table:
    """Runs `count` random problems of each operator in the engine of `python`: natively and at the levels
    that this CPU can be held to, with 1, 2 and 4 threads, and rows alone. Raises `Error`."""
    draws = importlib.import_module(ENGINES[engine]).DRAWS
    unknown = [name for name in operators or [] if name not in draws]
    if unknown:
        raise invalid(f"--op: is {excerpt(unknown[0])}; expected one of {', '.join(draws)}")
    processes = {"": _Process(python, engine, "")}
    table = Table(engine, processes[""].version, _cpu())
    try:
        for level in LEVELS:
            try:
                processes[level] = _Process(python, engine, level)
            except Error as error:
                table.not_tried[level] = error.message.removeprefix("operators: the process ended: ")
        names = operators or list(draws)
        for done, name in enumerate(names):
            if is_time_over():
                table.not_run = names[done:]
                break
            progress(done, len(names))
            for level, process in processes.items():
                process.ask(name, count, seed, not level)
            table.operators.append(
                _compared(name, {level: process.answer() for level, process in processes.items()})
            )
        progress(len(names), len(names))
    finally:
        for process in processes.values():
            process.close()
    return table


def _share(found: Differences | None) -> str:
    return "" if found is None else "same" if not found.changed else f"{found.changed:,} of {found.values:,}"


def to_text(table: Table) -> str:
    """Operators that depend on something in a table, the others in one line."""
    levels = [level for level in LEVELS if level not in table.not_tried]
    heads = ["operator", *levels, "threads", "rows alone"]
    rows = [
        [op.name, *(_share(op.levels.get(level)) for level in levels), _share(op.threads), _share(op.rows)]
        for op in table.operators
        if not op.refused and (not op.is_same or (op.rows is not None and op.rows.changed))
    ]
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    title = importlib.import_module(ENGINES[table.engine]).ENGINE
    lines = [
        f"{title} {table.version}, {table.cpu}: values that change when the CPU, the threads or the batch change",
        "",
    ]
    lines += (
        ["  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in [heads, *rows]]
        if rows
        else []
    )
    same = [op.name for op in table.operators if op.is_same and not (op.rows is not None and op.rows.changed)]
    lines += ["", f"the same bytes in all runs: {', '.join(same) or 'none'}"]
    nans = [
        op.name for op in table.operators if any(level.nans for level in (*op.levels.values(), op.threads))
    ]
    lines += [f"NaNs of other bits: {', '.join(nans)}"] if nans else []
    lines += [f"not run: {op.name}: {op.refused}" for op in table.operators if op.refused]
    lines += [f"not run: {name}: {IS_OVER}" for name in table.not_run]
    lines += [f"not tried: {level}: {why}" for level, why in table.not_tried.items()]
    return "\n".join(lines) + "\n"


def to_json(table: Table) -> str:
    def counts(found: Differences | None) -> Any:
        if found is None:
            return None
        return {
            "problems": found.problems,
            "problems_changed": found.problems_changed,
            "values": found.values,
            "changed": found.changed,
            "nans": found.nans,
        }

    return (
        json.dumps(
            {
                "schema": "intact-operators",
                table.engine: table.version,
                "cpu": table.cpu,
                "not_tried": table.not_tried,
                "not_run": table.not_run,
                "operators": [
                    {
                        "name": op.name,
                        "refused": op.refused,
                        "threads": counts(op.threads),
                        "rows": counts(op.rows),
                        "levels": {level: counts(found) for level, found in op.levels.items()},
                    }
                    for op in table.operators
                ],
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    _serve(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
