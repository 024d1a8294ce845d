"""The console script `intact`: the commands that read models, and the native program for all others."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any, Callable, NoReturn

import numpy as np

from ._audit.audit import audit
from ._audit.report import to_html, to_json, to_text, write
from ._audit.run import memory_needed, run_on_data
from ._deadline import TimeOver, limit
from ._engines.data import load_data
from ._engines.session import memory_available
from ._engines.table import engines
from ._library import Error, counted, excerpt, invalid

_MUCH = 1 << 30  # bytes
_UNFINISHED = 4  # the exit status if the time of --time was over first, and nothing that was done is wrong


def _progress(command: str, what: str) -> Callable[[int, int], None]:
    def show(done: int, of: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{command}: {done} of {of} {what}" if done < of else "\r\x1b[K")
            sys.stderr.flush()

    return show


def _erase_progress() -> None:
    """Erases the line of progress. Work that ends early leaves it there."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _say(text: str) -> None:
    _erase_progress()
    print(f"intact: {text}", file=sys.stderr)


def _failed(error: "Error | OSError") -> int:
    if isinstance(error, Error):
        _say(error.message)
    else:
        _say(f"{excerpt(error.filename)}: cannot be written: {error.strerror}")
    return _UNFINISHED if isinstance(error, TimeOver) else 2


def _print(text: str) -> None:
    _erase_progress()
    try:
        sys.stdout.write(
            text.encode(sys.stdout.encoding or "utf-8", "replace").decode(sys.stdout.encoding or "utf-8")
        )
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_REWORDED = [
    (r"argument (.*): expected (one|at least one) argument", r"\1: has no value; expected \2"),
    (r"argument (.*?): ignored explicit argument (.*)", r"\1: is \2; expected no value"),
    (r"argument (.*)", r"\1"),
    (r"the following arguments are required: (.*)", r"\1: missing; `{0} --help` says what is expected"),
    (r"unrecognized arguments: (.*)", r"\1: no argument of {0}; expected one that `{0} --help` lists"),
    (r"ambiguous option: (.*) could match (.*)", r"\1: is short for several; expected one of \2"),
]


class _Parser(argparse.ArgumentParser):
    """Reports a bad argument in one line: its name, its value, and what was expected."""

    def flag(self, name: str, help: str) -> None:
        self.add_argument(name, action="store_true", help=help)

    def value(self, name: str, metavar: str, help: str, **more: Any) -> None:
        self.add_argument(name, metavar=metavar, help=help, **more)

    def time(self, what: str) -> None:
        """--time, which bounds all long commands. `what`: what the command does when the time is over."""
        self.value(
            "--time", "TIME", f"after this time (seconds, or with ms, s, min, h) {what}", type=_seconds
        )

    def parse(self, arguments: list[str]) -> argparse.Namespace:
        """The command's time begins here."""
        options = self.parse_args(arguments)
        limit(options.time)
        return options

    def error(self, message: str) -> NoReturn:
        for pattern, text in _REWORDED:
            match = re.fullmatch(pattern, message, re.DOTALL)
            if match:
                message = match.expand(text.replace("{0}", self.prog))
                break
        self.exit(2, f"intact: {excerpt(message, 400)}\n")


_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def _seconds(text: str) -> float:
    """The value of --time, as the native program reads it."""
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*([a-zA-Z]*)\s*", text)
    unit = _UNITS.get(match[2].lower() or "s") if match else None
    try:
        seconds = float(match[1]) * unit if match and unit else math.nan
    except ValueError:
        seconds = math.nan
    if not 0.1 <= seconds <= 1e9:
        raise argparse.ArgumentTypeError(
            f"is {excerpt(text)!r}; expected 0.1 to 1e9 seconds, or a number with ms, s, min or h"
        )
    return seconds


def _write(options: argparse.Namespace, result: Any, to_json: Callable, to_html: Callable) -> None:
    """Writes the files that --json and --html name."""
    for path, make in ((options.json, to_json), (options.html, to_html)):
        if path:
            write(path, make(result))
            _say(f"wrote {path}")


def _say_memory(needed: int, what: str) -> None:
    """Says how many bytes of memory `what` needs, if it is much."""
    available = memory_available()
    if needed >= _MUCH or needed > available > 0:
        _say(
            f"{what}: the weights need up to {needed / 1e9:.1f} GB of memory, activations come on top; "
            f"{available / 1e9:.1f} GB are available{': this may not suffice' if needed > available else ''}"
        )


def _audit(arguments: list[str]) -> int:
    parser = _Parser(
        prog="intact audit",
        description="Shows which layers of a quantized model can compute wrong sums on CPUs without VNNI.",
    )
    parser.value("model", "MODEL", "an ONNX file, a TFLite file, or the .xml of an OpenVINO IR")
    parser.value(
        "--engine",
        "NAME",
        f"an engine: {', '.join(engines())}, or all; may be given more than once "
        "(default: onnxruntime, litert or openvino, by the model's format)",
        action="append",
    )
    parser.value(
        "--data",
        "PATH",
        "inputs, a file .npz or a folder of them: shows how many sums, and which outputs, are wrong on them",
    )
    parser.value(
        "--float",
        "MODEL",
        "with --data: the model before quantization; compares the outputs with its outputs",
        dest="float_model",
    )
    parser.flag(
        "--emulate",
        "with --data: runs the stock model in qemu-user (or with INTACT_PYTHON), on a CPU without VNNI",
    )
    parser.flag(
        "--rules",
        "does not load the model in ONNX Runtime to see which QDQ groups multiply integers; rules decide",
    )
    parser.value("--json", "FILE", "writes the audit as JSON")
    parser.value("--html", "FILE", "writes one page with a bar for each layer")
    parser.time("audits no further layer and runs no further data; status 4 unless a layer is unsafe")
    options = parser.parse(arguments)
    if (options.float_model or options.emulate) and not options.data:
        parser.error(f"{'--float' if options.float_model else '--emulate'}: needs --data")
    try:
        result = audit(
            options.model,
            engines_asked=options.engine,
            progress=_progress("audit", "layers"),
            ask=not options.rules,
            may_end_early=True,
        )
        if options.data and result.model.proto is None:
            raise invalid(f"--data: needs an ONNX model; {excerpt(options.model)} is none")
        if options.data and not result.missing:
            _say_memory(memory_needed(result), "--data")
            try:
                result.on_data = run_on_data(
                    result,
                    load_data(options.data),
                    progress=_progress("audit", "runs"),
                    float_model=options.float_model,
                    emulate=options.emulate,
                )
                result.missing = result.on_data.missing
            except TimeOver as over:
                result.missing = over.message.removeprefix("unfinished: ")
        _write(options, result, to_json, to_html)
    except (Error, OSError) as error:
        return _failed(error)
    _print(to_text(result))
    if result.missing and not result.is_unsafe:
        return _UNFINISHED
    if not result.layers and not result.products:
        return 2
    return 0 if result.is_proven else 1


def _amount(text: str) -> float:
    """The number of an option. repair_file() checks its range."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"is {text!r}; expected a number") from None


def _repair_options(arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="intact repair",
        description="Reorders the channels of a quantized model, so that its sums are right on CPUs without VNNI.",
    )
    parser.value("model", "MODEL", "an ONNX file")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="the repaired model")
    parser.value(
        "--for",
        "ENGINE",
        f"engines: {', '.join(engines())}, or all, with commas between; may be given more than once "
        "(default: onnxruntime)",
        action="append",
        dest="engines",
    )
    parser.flag(
        "--reorder-sums",
        "also chooses orders in which floats are added in another order (by LayerNormalization, say): costs "
        "less time, moves outputs by rounding noise, and measures by how much",
    )
    parser.flag("--keep-channels", "adds no copies of channels")
    parser.value(
        "--max-depth",
        "P",
        "copied channels add at most P percent of the model's multiply-adds (default: 100)",
        type=_amount,
    )
    parser.value(
        "--max-noise",
        "X",
        "shortens weights where no order helps, if a layer's mean squared change is at most X, in squared "
        "steps of its weights; rounding to 8 bits changes them by 0.083 (default 0: lossless)",
        type=_amount,
        default=0.0,
    )
    parser.value(
        "--undo-reduce-range",
        "FLOAT_MODEL",
        "first gives 7-bit weights the full range of 8 bits, rounded from the weights of this model, the "
        "one before quantization; with --data also 7-bit activations",
        dest="float_model",
    )
    parser.flag(
        "--allow-u8-weights",
        "with --undo-reduce-range: 8 bits also if only copied channels or u8 weights make them safe, which "
        "costs time",
    )
    parser.flag(
        "--check",
        "runs the stored and the repaired model in ONNX Runtime and compares both with exact sums; if the "
        "repair is wrong, OUT is not written",
    )
    parser.value(
        "--data",
        "PATH",
        "with --check or --undo-reduce-range: inputs, a file .npz or a folder of them (--check's default: "
        "random inputs)",
    )
    parser.flag(
        "--emulate",
        "with --check: runs both in qemu-user, on a CPU without VNNI (or with INTACT_PYTHON, if it is set)",
    )
    parser.flag(
        "--rules",
        "does not load the model in ONNX Runtime to see which QDQ groups multiply integers; rules decide "
        "(--check, --reorder-sums, --max-noise and --data still run it)",
    )
    parser.value("--json", "FILE", "writes a description of the repair as JSON")
    parser.time("gives up with status 4, and leaves OUT as it was: a part of a repair is no model")
    options = parser.parse(arguments)
    if options.emulate and not options.check:
        parser.error("--emulate: needs --check")
    if options.data and not (options.check or options.float_model):
        parser.error("--data: needs --check or --undo-reduce-range")
    if options.allow_u8_weights and not options.float_model:
        parser.error("--allow-u8-weights: needs --undo-reduce-range")
    return options


def _repair(arguments: list[str]) -> int:
    from ._repair import report as _repair_report
    from ._repair.check import check, memory_of_check
    from ._repair.repair import Repair, repair_file

    options = _repair_options(arguments)
    try:
        runs = load_data(options.data) if options.data else None
        asked = [name for names in options.engines or [] for name in names.split(",")]

        def checked_and_shown(done: Repair) -> bool:
            """Checks a repair and prints its report, before the model is written. Returns whether the model
            may be written."""
            if options.check or done.sums or any(layer.shortened for layer in done.layers):
                try:
                    _say_memory(memory_of_check(done), "--check")
                    done.check = check(
                        done, runs, emulate=options.emulate, progress=_progress("check", "runs")
                    )
                except Error as error:
                    if options.check:
                        raise
                    done.not_checked = error.message
            _print(_repair_report.to_text(done))
            return done.check is None or done.check.is_right

        done = repair_file(
            options.model,
            options.output,
            engines_asked=asked,
            reorder_sums=options.reorder_sums,
            keep_channels=options.keep_channels,
            max_depth=options.max_depth,
            max_noise=options.max_noise,
            float_model=options.float_model,
            allow_u8_weights=options.allow_u8_weights,
            data=runs,
            progress=_progress("repair", "layers"),
            before_writing=checked_and_shown,
            ask=not options.rules,
        )
        if options.json:
            write(options.json, _repair_report.to_json(done))
    except (Error, OSError) as error:
        return _failed(error)
    if done.check is not None and not done.check.is_right:
        _print(f"THE REPAIR IS WRONG: {excerpt(options.output)} was not written; please report it\n")
    if not done.layers and not done.before.products:
        return 2
    return 0 if done.is_proven and (done.check is None or done.check.is_right) else 1


def _compare(arguments: list[str]) -> int:
    from ._compare import report as _compare_report
    from ._compare.compare import compare

    parser = _Parser(
        prog="intact compare", description="Compares a quantized model with its float model, layer by layer."
    )
    parser.value("model", "MODEL", "the quantized ONNX model")
    parser.value("float_model", "FLOAT_MODEL", "the ONNX model before quantization")
    parser.value(
        "--data", "PATH", "inputs, a file .npz or a folder of them; each file is a sample", required=True
    )
    parser.flag("--each", "each item of the inputs' first dimension is a sample")
    parser.flag(
        "--emulate", "runs the stock engine in qemu-user (or with INTACT_PYTHON), on a CPU without VNNI"
    )
    parser.value("--json", "FILE", "writes the comparison as JSON")
    parser.value("--html", "FILE", "writes one page with all tables")
    parser.time("compares no further sample and tries no further advice; names what is missing (status 4)")
    options = parser.parse(arguments)
    try:
        found = compare(
            options.model,
            options.float_model,
            options.data,
            each=options.each,
            emulate=options.emulate,
            progress=_progress("compare", "samples"),
            say_memory=lambda needed: _say_memory(needed, "compare"),
        )
        _write(options, found, _compare_report.to_json, _compare_report.to_html)
    except (Error, OSError) as error:
        return _failed(error)
    _print(_compare_report.to_text(found))
    return _UNFINISHED if found.missing else 0


def _digest(arguments: list[str]) -> int:
    from ._operators.digest import difference, digest, read

    parser = _Parser(
        prog="intact digest",
        description="Runs a model so that every byte is the same on every CPU, and prints the SHA-256 of its outputs.",
    )
    parser.value("model", "MODEL", "an ONNX file")
    parser.value("--data", "PATH", "inputs, a file .npz or a folder of them", required=True)
    parser.flag("--layers", "also the outputs of each layer that intact computes")
    parser.value(
        "--threads", "N", "threads of the session (default: ONNX Runtime's choice)", type=int, default=0
    )
    parser.value(
        "--against",
        "FILE",
        "what the command printed on another machine: names the first tensor that differs",
    )
    parser.time("gives up with status 4: the digests of a part of the data prove nothing")
    options = parser.parse(arguments)
    try:
        if options.threads < 0:
            raise invalid(f"--threads: is {options.threads}; expected a positive number, or 0")
        there = read(options.against) if options.against else None
        here = digest(
            options.model,
            options.data,
            layers=options.layers,
            threads=options.threads,
            progress=_progress("digest", "runs"),
        )
    except (Error, OSError) as error:
        return _failed(error)
    if there is None:
        _print(here.to_text())
        return 0
    found = difference(here, there, options.against)
    _print((found or f"the same bytes: {counted(len(here.lines), 'tensor')}") + "\n")
    return 1 if found else 0


def _operators(arguments: list[str]) -> int:
    from ._operators.measure import ENGINES, measure, to_json, to_text

    parser = _Parser(
        prog="intact operators",
        description="Shows which operators of ONNX Runtime or PyTorch have the same bytes on every CPU, for every number "
        "of threads, and for a row alone and in a batch.",
    )
    parser.add_argument(
        "--engine", choices=list(ENGINES), default="onnxruntime", help="what is tried (default: onnxruntime)"
    )
    parser.value(
        "--python",
        "PYTHON",
        "the Python whose engine is tried; it needs numpy, and onnx for ONNX Runtime (default: this one)",
        default=sys.executable,
    )
    parser.value("--op", "NAME", "one operator; may be given more than once (default: all)", action="append")
    parser.value("--count", "N", "random problems of each operator (default: 24)", type=int, default=24)
    parser.value("--seed", "N", "other random problems", type=int, default=0)
    parser.value("--json", "FILE", "writes the counts as JSON")
    parser.time("tries no further operator, and names the operators that are left (status 4)")
    options = parser.parse(arguments)
    try:
        if options.count < 1 or options.seed < 0:
            raise invalid(
                f"--count, --seed: are {options.count}, {options.seed}; expected a positive number, and 0 or more"
            )
        table = measure(
            options.python,
            options.op,
            options.count,
            options.seed,
            _progress("operators", "operators"),
            options.engine,
        )
        if options.json:
            write(options.json, to_json(table))
            _say(f"wrote {options.json}")
    except (Error, OSError) as error:
        return _failed(error)
    _print(to_text(table))
    return _UNFINISHED if table.not_run else 0


def native(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """The native program's command line and environment. `--target python:FILE:CLASS` becomes the plug-in
    that runs Python classes."""
    package = Path(__file__).parent
    plugin = f"{package / 'python_target.so'}:"
    arguments = [
        argument.replace("python:", plugin, 1)
        if argument.startswith(("python:", "--target=python:"))
        else argument
        for argument in arguments
    ]
    path = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    # The environment's INTACT_PYTHON wins: an interpreter in an emulator, say.
    environment = {"INTACT_PYTHON": sys.executable, **os.environ, "PYTHONPATH": os.pathsep.join(path)}
    return [str(package / "intact"), *arguments], environment


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "audit": _audit,
    "compare": _compare,
    "digest": _digest,
    "operators": _operators,
    "repair": _repair,
}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in _COMMANDS:
        command, environment = native(sys.argv[1:])
        os.execve(command[0], ["intact", *command[1:]], environment)
    np.seterr(all="ignore")  # the reports show values that are not finite; warnings would add nothing
    try:
        status = _COMMANDS[name](sys.argv[2:])
    except Exception:  # not status 1, which is a verdict on the model
        _erase_progress()
        traceback.print_exc()
        _say(f"{name}: failed by a defect of intact, shown above; please report it")
        status = 3
    finally:
        limit(None)
    sys.exit(status)
