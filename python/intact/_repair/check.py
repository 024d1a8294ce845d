"""`intact repair --check`: runs the stored and the repaired model, and compares both with an exact variant
that cannot saturate.

Shortened weights (made smaller, so that pairs fit in int16) change the model's outputs, so the check has two
steps. With channels in the new order and the stored weights, the exact variant must compute the outputs of
the stored model's exact variant. The repaired model must compute the outputs of its own exact variant."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._audit.audit import cpu_clamps, why_exact
from .._audit.report import NEAR, finite
from .._audit.run import exact_variant, memory_needed
from .._deadline import begin_unit
from .._engines.data import TENSORS, decibels, distances, inputs_of, power
from .._engines.session import SESSION, constants_size, emulated, float_session, session_of
from .._graph.control import control_variant
from .._graph.nodes import load_onnx
from .._graph.weights import write_model
from .._library import excerpt, invalid, part_of
from .result import Repair

_RUNS = 3
# Places among the models that check() runs: after the exact variant, and with shortened weights the reordered
# model and the repaired model's own exact variant. Controls follow.
_STORED, _REPAIRED, _ORDERED, _OWN_EXACT = 1, 2, 3, 4
_DRAWS = 3  # controls; the worst of them decides
_TURNS = 100  # runs at most whose times are compared
_SECONDS = 1.0  # after which no further run is timed
_SIZE = 16  # size of random inputs along dimensions that the model leaves open


@dataclass
class CheckedOutput:
    """One output of the stored and of the repaired model, against the exact variant: how many values differ,
    and the distance in decibels. `control`: decibels of the exact variant with its float constants changed by
    1e-7; the worst of several such changes. `ordered`, `ordered_differ`: if weights were shortened, results
    of the exact variant with the new order and the stored weights; else results of the repaired model.
    `clamped`: with shortened weights, values of the repaired model that differ from its own exact variant.
    `stored_to_float`, `repaired_to_float`: decibels from the float model's outputs, if it was given."""

    name: str
    values: int = 0
    stored_differ: int = 0
    repaired_differ: int = 0
    stored: float = 0.0
    repaired: float = 0.0
    control: float = 0.0
    ordered_differ: int = 0
    ordered: float = 0.0
    clamped: int = 0
    stored_to_float: float | None = None
    repaired_to_float: float | None = None


@dataclass
class Check:
    """`must_be_equal`: no floats are added in a new order, so the repaired model's outputs must equal the
    outputs of the exact variant. `has_other_weights`: a float model was given, so the exact variant may use 8
    bits where the stored model uses 7. `time`: the CPU time of a run of the repaired model over that of the
    stored model, on this CPU; None if not measured."""

    runs: int
    where: str
    must_be_equal: bool
    is_shortened: bool = False
    has_other_weights: bool = False
    time: float | None = None
    outputs: list[CheckedOutput] = field(default_factory=list)

    def is_output_right(self, output: CheckedOutput) -> bool:
        return not output.clamped and (
            output.ordered_differ == 0 or (not self.must_be_equal and output.ordered >= output.control - NEAR)
        )

    @property
    def is_right(self) -> bool:
        return all(self.is_output_right(output) for output in self.outputs)

    def lines(self) -> list[str]:
        lines = []
        for output in self.outputs:

            def distance(differ: int, by: float) -> str:
                if differ:
                    return f"{part_of(differ, output.values, 'value', 'differs', 'differ')} ({by:.1f} dB)"
                return "equal bit for bit"

            repaired = (
                f"repaired{', with shortened weights,' * self.is_shortened} "
                f"{distance(output.repaired_differ, output.repaired)}; rounding noise alone: "
                f"{'none' if output.control == np.inf else f'{output.control:.1f} dB'}"
            )
            if self.has_other_weights:  # the stored model computes other outputs
                text = (
                    f"output {excerpt(output.name)} {self.where}, against exact sums with 8 bits: {repaired}"
                )
            else:
                text = (
                    f"output {excerpt(output.name)} {self.where}, against exact sums: "
                    f"stored {distance(output.stored_differ, output.stored)}; {repaired}"
                )
            if self.is_shortened:
                text += f"; {output.clamped or 'no'} values of the repaired model are wrong because sums were clamped"
            if output.repaired < output.stored - NEAR and not self.has_other_weights:
                text += "; the repaired model is farther from exact sums than the stored model"
            if output.repaired_to_float is not None:
                text += (
                    f"; against the float model: stored {output.stored_to_float:.1f} dB, "
                    f"repaired {output.repaired_to_float:.1f} dB"
                )
            lines.append(text if self.is_output_right(output) else text + ": THE REPAIR IS WRONG")
        return lines

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "where": self.where,
            "must_be_equal": self.must_be_equal,
            "has_other_weights": self.has_other_weights,
            "right": self.is_right,
            "time_over_stored": self.time,
            "outputs": [
                {key: finite(value) for key, value in vars(output).items()} for output in self.outputs
            ],
        }


def random_runs(session: Any) -> list[dict[str, np.ndarray]]:
    """Random inputs for a session."""
    rng = np.random.default_rng(0)
    runs = []
    for _ in range(_RUNS):
        run = {}
        for value in session.get_inputs():
            if value.type not in TENSORS:
                raise invalid(
                    f"--check: input {excerpt(value.name)!r} is a {value.type}; give inputs with --data"
                )
            dtype = TENSORS[value.type]
            shape = [
                n if isinstance(n, int) and n > 0 else 1 if k == 0 else _SIZE
                for k, n in enumerate(value.shape)
            ]
            if dtype in (np.uint8, np.int8):
                limits = np.iinfo(dtype)
                run[value.name] = rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
            elif np.dtype(dtype).kind in "ib":
                run[value.name] = (
                    np.ones(shape, dtype)
                    if "mask" in value.name
                    else rng.integers(1, 10, shape).astype(dtype)
                )
            else:
                run[value.name] = rng.standard_normal(shape).astype(dtype)
        runs.append(run)
    return runs


def check(
    done: Repair,
    runs: "list[dict[str, np.ndarray]] | None" = None,
    *,
    emulate: bool = False,
    progress: Any = None,
) -> Check:
    """Runs the stored and the repaired model, the exact variant and the control, and the float model if the
    repair had one; compares their outputs."""
    exact = exact_variant(done.before, done)
    names = [output.name for output in exact.graph.output]
    where = (
        "in the emulator" if emulate else "on this CPU" + ("" if cpu_clamps() else f", which {why_exact()}")
    )
    found = Check(len(runs or []), where, not done.sums, done.ordered is not None, done.widened is not None)
    models: list[Any] = [exact, str(done.before.model.path), str(done.after.model.path)]
    if done.ordered is not None:
        models += [done.ordered, exact_variant(done.after, done)]
    first_control = len(models)
    models += (
        [control_variant(exact, done, draw) for draw in range(_DRAWS)]
        if done.sums
        else [control_variant(exact, done)]
    )
    stored = session_of(done.before.model.path)
    if runs is None:
        runs = random_runs(stored)
        found.runs = len(runs)
    floats = _results_of_floats(done, names, runs)
    runs = [inputs_of(stored, run) for run in runs]
    timed = [stored]  # and the repaired model; the other sessions live one after the other
    results: list[list] = []
    with tempfile.TemporaryDirectory() as folder:
        for k, model in enumerate(models):
            begin_unit("the check")
            if emulate:
                path = model
                if not isinstance(model, str):
                    path = str(Path(folder, f"{k}.onnx"))
                    write_model(model, Path(path))
                results.append(emulated(path, names, runs))
                continue
            session = stored if k == _STORED else session_of(model)
            if k == _REPAIRED:
                timed.append(session)
            try:
                results.append([session.run(names, run) for run in runs])
            except Exception as error:
                raise invalid(f"--check: ONNX Runtime cannot run the inputs: {excerpt(error, 300)}") from None
            del session
            if progress:
                progress(k + 1, len(models))
    if not emulate:
        found.time = _time(*timed, names, runs)
    for i, name in enumerate(names):
        output = _compared(name, [[run[i] for run in of_model] for of_model in results], first_control)
        if floats and name in floats[0]:
            output.stored_to_float, output.repaired_to_float = (
                _apart([one[name] for one in floats], [result[i] for result in results[k]])
                for k in (_STORED, _REPAIRED)
            )
        found.outputs.append(output)
    return found


def _compared(name: str, results: list[list], first_control: int) -> CheckedOutput:
    """An output's distances from the exact variant. `results`: its values, by model and run."""
    output = CheckedOutput(name)
    is_shortened = first_control > _ORDERED
    ordered = _ORDERED if is_shortened else _REPAIRED
    signal, noise = 0.0, [0.0] * len(results)
    for values in zip(*results):
        arrays = [np.asarray(value) for value in values]
        if any(array.dtype.kind not in "biuf" for array in arrays):
            break  # strings, sequences
        if any(array.shape != arrays[0].shape for array in arrays):
            raise invalid(
                f"output {excerpt(name)!r}: its shape changes with rounding, so outputs cannot be compared"
            )
        arrays = [np.asarray(array, np.float64) for array in arrays]
        output.values += arrays[0].size
        signal += power(arrays[0])
        apart = [distances(arrays[0], array) for array in arrays]
        output.stored_differ += int(np.count_nonzero(apart[_STORED]))
        output.repaired_differ += int(np.count_nonzero(apart[_REPAIRED]))
        output.ordered_differ += int(np.count_nonzero(apart[ordered]))
        if is_shortened:
            output.clamped += int(np.count_nonzero(distances(arrays[_OWN_EXACT], arrays[_REPAIRED])))
        noise = [total + float(np.square(by).sum()) for total, by in zip(noise, apart)]
    decibels_of = [decibels(signal, total) for total in noise]
    output.stored, output.repaired, output.ordered = (decibels_of[k] for k in (_STORED, _REPAIRED, ordered))
    output.control = min(decibels_of[first_control:])
    return output


def memory_of_check(done: Repair) -> int:
    """A bound of the bytes that check() needs for weights. Activations are not counted."""
    needed = memory_needed(done.before, done.after, sessions=3, controls=_DRAWS if done.sums else 1)
    if done.widened:
        size, inside, _ = constants_size(load_onnx(done.widened.float_model))
        needed += 4 * inside + int(SESSION * size)
    return needed


def _results_of_floats(done: Repair, names: list[str], runs: list) -> list[dict[str, np.ndarray]]:
    """The float model's outputs of each run, by name; [] if the repair had no float model."""
    if not done.widened:
        return []
    session = float_session(done.widened.float_model, names, "--undo-reduce-range")
    inputs = [inputs_of(session, run, "the float model") for run in runs]
    try:
        return [
            dict(zip([output.name for output in session.get_outputs()], session.run(None, run)))
            for run in inputs
        ]
    except Exception as error:
        raise invalid(f"--check: the float model does not run: {excerpt(error, 300)}") from None


def _time(stored: Any, repaired: Any, names: list[str], runs: list) -> float:
    """The median CPU time of a run of `repaired` over that of `stored`; runs take turns."""
    ratios: list[float] = []
    begin = time.perf_counter()
    while len(ratios) < _TURNS and (len(ratios) < 3 or time.perf_counter() - begin < _SECONDS):
        run = runs[len(ratios) % len(runs)]
        times = []
        for session in (stored, repaired):
            start = time.process_time()
            session.run(names, run)
            times.append(max(time.process_time() - start, 1e-9))
        ratios.append(times[1] / times[0])
    return statistics.median(ratios)


def _apart(right: list, other: list) -> float:
    """Decibels between two lists of arrays of numbers."""
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(right, other)]
    if any(a.shape != b.shape for a, b in pairs):
        raise invalid("the outputs of the float model and of the model have different shapes")
    return decibels(
        sum(power(a) for a, _ in pairs), sum(float(np.square(distances(a, b)).sum()) for a, b in pairs)
    )
