"""`--time`: commands end at the next whole unit of work, with what they have, or give nothing."""

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
import commands  # noqa: E402
from commands import process, program  # noqa: E402
from intact import _deadline  # noqa: E402
from intact._audit import run as _run  # noqa: E402
from intact._compare import compare as _compare  # noqa: E402
from intact._engines import session as _session  # noqa: E402
from intact._engines.session import emulated, session_of  # noqa: E402
from intact._operators import digest as _digest  # noqa: E402
from intact._operators import measure as _measure  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from test_audit import HOT, save  # noqa: E402
from test_compare import Pair  # noqa: E402

SAFE = np.ones((4, 3), np.int8)
OVER = "the time of --time was over"


@pytest.fixture
def ticks(monkeypatch):
    """A clock that goes on by a second whenever it is read: `--time 2.5` is over when it is read for the third time."""
    count = itertools.count()
    monkeypatch.setattr(_deadline, "time", types.SimpleNamespace(monotonic=lambda: float(next(count))))


def three(tmp_path, *weights):
    """Layers that are read in turn; each reads the clock twice."""
    nodes = [helper.make_node("MatMulInteger", ["a", f"w{i}"], [f"y{i}"], name=f"n{i}") for i in range(3)]
    nodes += [
        helper.make_node("Cast", [f"y{i}"], [f"f{i}"], to=TensorProto.FLOAT, name=f"c{i}") for i in range(3)
    ]
    constants = {f"w{i}": w for i, w in enumerate(weights)}
    return save(tmp_path, nodes, constants, [("a", TensorProto.UINT8)], ["f0", "f1", "f2"])


def test_an_audit_ends_with_its_time(tmp_path, ticks):
    path = three(tmp_path, SAFE, SAFE, HOT)
    report = tmp_path / "audit.json"
    run = program("audit", path, "--time", "2.5", "--json", report)
    assert run.returncode == 4, run.stderr
    assert f"passed over: 2 x MatMulInteger: {OVER}\n" in run.stdout
    assert f"missing: 2 of 3 layers: {OVER}\n" in run.stdout
    assert run.stdout.endswith(
        "the layer is proven safe in ONNX Runtime, whatever the input; 2 operators were not audited\n"
    )
    found = json.loads(report.read_text())
    assert len(found["layers"]) == 1 and not found["proven"] and found["missing"] == f"2 of 3 layers: {OVER}"
    assert program("audit", path, "--time", "0.5").stdout.endswith(
        "no layer was audited; 3 operators were not audited\n"
    )
    run = program("audit", three(tmp_path, HOT, SAFE, SAFE), "--time", "2.5")
    assert run.returncode == 1, "an unsafe layer is a verdict, whatever is missing"
    assert f"missing: 2 of 3 layers: {OVER}\n" in run.stdout


def test_an_audit_keeps_the_runs_that_were_finished(tmp_path, ticks, monkeypatch):
    pytest.importorskip("onnxruntime")
    sessions = []  # since the time was set
    monkeypatch.setattr(_run, "session_of", lambda model: sessions.append(model) or session_of(model))
    nodes = [
        helper.make_node("MatMulInteger", ["a", "w"], ["y"], name="n"),
        helper.make_node("Cast", ["y"], ["f"], to=TensorProto.FLOAT, name="c"),
    ]
    path = save(tmp_path, nodes, {"w": SAFE}, [("a", TensorProto.UINT8)], ["f"])
    data, report = tmp_path / "data", tmp_path / "audit.json"
    data.mkdir()
    for i in range(2):
        np.savez(data / f"{i}.npz", a=np.ones((i + 1, 4), np.uint8))
    seen = {}
    for seconds in itertools.count(2):
        sessions.clear()
        run = program("audit", path, "--data", data, "--json", report, "--time", seconds + 0.5)
        if run.returncode == 0:
            break
        assert run.returncode == 4, run.stderr
        (missing,) = [line for line in run.stdout.splitlines() if line.startswith("missing: ")]
        found = json.loads(report.read_text())
        assert missing == f"missing: {found['missing']}"
        has_counted = found["data"] and found["data"]["counted"] == 2
        assert has_counted or len(sessions) <= 1, "a session was made after the time was over"
        seen[missing] = run.stdout, found
    assert len(sessions) == 4
    counted = f"missing: sums of 1 of 2 runs and outputs of 2 of 2 runs on data: {OVER}"
    compared = f"missing: outputs of 1 of 2 runs on data: {OVER}"
    assert [*seen] == [
        f"missing: the runs on data: {OVER}",
        counted,
        f"missing: outputs of 2 of 2 runs on data: {OVER}",
        compared,
    ]
    text, found = seen[counted]
    assert "  on 1 of 2 runs of your data, ONNX Runtime\n" in text and "0 of 3 sums are wrong" in text
    assert found["data"] == {"runs": 2, "counted": 1, "compared": 0} and found["outputs"] == []
    text, found = seen[compared]
    assert "on this CPU, 1 of 2 runs, against exact sums" in text and "0 of 9 sums are wrong" in text
    assert found["outputs"][0]["values"] == 3 and found["layers"][0]["on_data"]["results"] == 9
    assert json.loads(report.read_text())["data"] == {"runs": 2, "counted": 2, "compared": 2}


def test_no_line_of_progress_is_left(tmp_path, ticks, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(commands.io, "StringIO", Terminal)
    run = program("audit", three(tmp_path, SAFE, SAFE, SAFE), "--time", "2.5")
    assert run.returncode == 4
    assert run.stderr == "\raudit: 1 of 3 layers\r\x1b[K"


def test_a_comparison_ends_with_its_time(tmp_path, ticks):
    pytest.importorskip("onnxruntime")
    pair = Pair(tmp_path)
    arguments = ["compare", pair.quantized, pair.float, "--data", tmp_path / "data", "--time"]
    seen = set()
    for seconds in itertools.count():
        run = program(*arguments, seconds + 0.5)
        assert run.returncode == 4, run.stderr
        missing = [line for line in run.stdout.splitlines() if line.startswith("missing: ")]
        assert bool(missing) != run.stderr.startswith("intact: unfinished: ")
        assert all(line.strip().endswith(OVER) for line in missing or [run.stderr])
        seen.update(missing or [run.stderr])
        if missing == [f"missing: advice: {OVER}"]:
            break
    assert seen >= {
        f"intact: unfinished: the audit: {OVER}\n",
        *(f"missing: {n} of 4 samples: {OVER}" for n in (1, 2, 3)),
        f"missing: advice: {OVER}",
    }
    assert program(*arguments, "1h").returncode == 0


def test_samples_that_were_emulated_are_compared(tmp_path, monkeypatch):
    """The time is over after two of four samples of the model, and again after one of the layers."""
    pytest.importorskip("onnxruntime")
    kept = [2, 1]

    def some(path, names, runs, may_end_early=False):
        assert may_end_early
        session = session_of(path)
        results = [session.run(names, run) for run in runs[: kept.pop(0)]]
        if kept:
            _deadline.limit(0)
        return results

    monkeypatch.setattr(_compare, "emulated", some)
    pair = Pair(tmp_path)
    run = program(
        "compare", pair.quantized, pair.float, "--data", tmp_path / "data", "--emulate", "--time", "1h"
    )
    assert run.returncode == 4, run.stderr
    assert f"missing: 2 of 4 samples: {OVER}\n" in run.stdout
    assert f"missing: the layers of 1 of 2 samples on the emulated CPU: {OVER}\n" in run.stdout


def test_a_repair_gives_up_and_loses_nothing(tmp_path, ticks):
    path, out = three(tmp_path, HOT, SAFE, HOT), tmp_path / "out.onnx"
    out.write_text("old")
    seen = set()
    for seconds in itertools.count():
        run = program("repair", path, "-o", out, "--rules", "--time", seconds + 0.5)
        if run.returncode != 4:
            break
        assert run.stderr.startswith("intact: unfinished: the ") and run.stderr.endswith(f": {OVER}\n")
        seen.add(run.stderr.split()[3])
        assert out.read_text() == "old"
        assert {file.name for file in tmp_path.iterdir()} == {"model.onnx", "out.onnx"}
    assert seen == {"audit:", "repair:"}
    assert run.returncode == 0, run.stderr
    onnx.load(str(out))


def test_digests_of_a_part_are_not_given(tmp_path, ticks, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    # without the provider, which the tests of the package do not have
    monkeypatch.setattr(_digest, "_session", lambda path, *_: onnxruntime.InferenceSession(str(path)))
    nodes = [helper.make_node("Neg", ["x"], ["y"], name="n")]
    path = save(tmp_path, nodes, {}, [("x", TensorProto.FLOAT)])
    for i in range(3):
        np.savez(tmp_path / f"{i}.npz", x=np.ones(4, np.float32))
    _deadline.limit(2.5)
    try:
        with pytest.raises(_deadline.TimeOver, match=f"the digest: {OVER}"):
            _digest.digest(path, tmp_path)
    finally:
        _deadline.limit(None)
    assert len(_digest.digest(path, tmp_path).lines) == 3


def test_operators_that_are_left_are_named(tmp_path, ticks, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(_measure, "LEVELS", ())
    report = tmp_path / "operators.json"
    names = ["--op", "Relu", "--op", "Softmax", "--op", "Exp"]
    run = program("operators", *names, "--count", 1, "--time", "1.5", "--json", report)
    assert run.returncode == 4, run.stderr
    assert f"not run: Softmax: {OVER}\nnot run: Exp: {OVER}\n" in run.stdout
    found = json.loads(report.read_text())
    assert found["not_run"] == ["Softmax", "Exp"] and [one["name"] for one in found["operators"]] == ["Relu"]


@pytest.mark.parametrize("time", ["0", "50ms", "3days", "soon", "-1", "1e10", ""])
def test_times_that_are_none(tmp_path, time):
    run = program("audit", tmp_path / "none.onnx", "--time", time)
    assert run.returncode == 2
    assert (
        run.stderr
        == f"intact: --time: is {time!r}; expected 0.1 to 1e9 seconds, or a number with ms, s, min or h\n"
    )


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_processes_elsewhere_end_with_the_time(tmp_path, monkeypatch):
    """Of a clock that is real: the process that computes there, and its child, which has its standard error."""
    pytest.importorskip("onnxruntime")
    script, pids = tmp_path / "python", tmp_path / "pids"
    script.write_text(f"#!/bin/sh\nsleep 60 &\necho $$ $! > {pids}\nwait\n")
    script.chmod(0o755)
    monkeypatch.setenv("INTACT_PYTHON", str(script))
    path = three(tmp_path, SAFE, SAFE, SAFE)
    np.savez(tmp_path / "data.npz", a=np.ones((2, 4), np.uint8))
    for seconds in (3, 12, 48):  # the time must suffice for the work before
        run = process("audit", path, "--data", tmp_path / "data.npz", "--emulate", "--time", seconds)
        assert run.returncode == 4, run.stderr
        if pids.exists():
            break
    assert f"missing: outputs of 1 of 1 run on data: {OVER}\n" in run.stdout
    left = pids.read_text().split()
    for _ in range(100):  # the kernel takes a moment to end them
        left = [pid for pid in left if is_running(pid)]
        if not left:
            return
        time.sleep(0.1)
    pytest.fail(f"processes are left: {left}")


def test_runs_elsewhere_that_were_finished_are_kept(tmp_path, monkeypatch):
    """Of a clock that is real: the second run never ends."""
    pytest.importorskip("onnxruntime")
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nrm $3/1.npz\nmkfifo $3/1.npz\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("INTACT_PYTHON", str(script))
    path = three(tmp_path, SAFE, SAFE, SAFE)
    runs = [{"a": np.ones((2, 4), np.uint8)}, {"a": np.ones((1, 4), np.uint8)}]
    try:
        for seconds in (3, 12, 48):  # the time must suffice for the first run
            _deadline.limit(seconds)
            outputs = emulated(str(path), ["f0", "f1"], runs, True)
            if outputs:
                break
        assert [len(of_run) for of_run in outputs] == [2]
        _deadline.limit(1)
        with pytest.raises(_deadline.TimeOver, match="the runs on another CPU"):
            emulated(str(path), ["f0"], runs)
    finally:
        _deadline.limit(None)


def test_a_process_elsewhere_ends_with_a_killed_command(tmp_path):
    pid = tmp_path / "pid"
    head = _session._ELSEWHERE.split("import numpy")[0]
    there = f"{head}import time; open({str(pid)!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(60)"
    here = f"import sys; from intact._engines import session; session._run_to_end([sys.executable, '-c', {there!r}], {{}})"
    package = str(Path(_session.__file__).parents[2])
    with subprocess.Popen([sys.executable, "-c", here], env={**os.environ, "PYTHONPATH": package}) as command:
        end = time.monotonic() + 30
        while not (pid.exists() and pid.read_text().endswith("\n")) and time.monotonic() < end:
            time.sleep(0.01)
        command.kill()
    child = int(pid.read_text())
    end = time.monotonic() + 5
    while is_running(child) and time.monotonic() < end:
        time.sleep(0.01)
    is_left = is_running(child)
    if is_left:
        os.kill(child, signal.SIGKILL)
    assert not is_left
