"""The console script `intact`: the commands that read models, and the native program for all others."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path
from typing import Callable

from ._audit import audit, engines
from ._library import Error, excerpt, invalid
from ._run import load_data, run_on_data
from ._report import to_html, to_json, to_text, write


def _audit(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="intact audit", description="Says which layers of a quantized model can saturate.")
    parser.add_argument("model", metavar="MODEL", help="an ONNX file, a TFLite file, or the .xml of an OpenVINO IR")
    parser.add_argument("--engine", action="append", metavar="NAME",
                        help=f"an engine: {', '.join(engines())}, or all; may be given more than once "
                             "(default: onnxruntime, litert or openvino, by the model's format)")
    parser.add_argument("--data", metavar="PATH", help="inputs, a file .npz or a folder of them: what saturation does on them")
    parser.add_argument("--float", metavar="MODEL", dest="float_model", 
                        help="with --data: the model before quantization, to compare outputs with")
    parser.add_argument("--emulate", action="store_true",
                        help="with --data: runs the stock model in qemu-user (or with INTACT_PYTHON), on a CPU without VNNI")
    parser.add_argument("--json", metavar="FILE", help="writes the audit as JSON")
    parser.add_argument("--html", metavar="FILE", help="writes one page with a bar for each layer")
    options = parser.parse_args(arguments)
    if (options.float_model or options.emulate) and not options.data:
        print(f"intact: {'--float' if options.float_model else '--emulate'}: needs --data", file=sys.stderr)
        return 2

    def progress(what: str) -> Callable[[int, int], None]:
        def show(done: int, of: int) -> None:
            if sys.stderr.isatty():
                sys.stderr.write(f"\raudit: {done} of {of} {what}" if done < of else "\r\x1b[K")
                sys.stderr.flush()

        return show

    try:
        result = audit(options.model, engines_asked=options.engine, progress=progress("layers"))
        if options.data and result.model.proto is None:
            raise invalid(f"--data: needs an ONNX model; {excerpt(options.model)} is none")
        if options.data:
            result.on_data = run_on_data(result, load_data(options.data), progress=progress("runs"),
                                         float_model=options.float_model, emulate=options.emulate)
        if options.json:
            write(options.json, to_json(result))
            print(f"intact: wrote {options.json}", file=sys.stderr)
        if options.html:
            write(options.html, to_html(result))
            print(f"intact: wrote {options.html}", file=sys.stderr)
    except Error as error:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
        print(f"intact: {error.message}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"intact: {excerpt(error.filename)}: cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    except Exception:  # status 1 is a verdict, and this is none
        traceback.print_exc()
        print("intact: audit: failed by a mistake of its own, shown above; please report it", file=sys.stderr)
        return 3
    try:
        sys.stdout.write(to_text(result).encode(sys.stdout.encoding or "utf-8", "replace").decode(sys.stdout.encoding or "utf-8"))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not result.layers:
        return 2
    return 0 if result.is_proven else 1


def native(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """The native program's command line and environment. `--target python:FILE:CLASS` is the plug-in that runs classes."""
    package = Path(__file__).parent
    plugin = f"{package / 'python_target.so'}:"
    arguments = [argument.replace("python:", plugin, 1) if argument.startswith(("python:", "--target=python:")) else argument
                 for argument in arguments]
    path = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    # INTACT_PYTHON may name another: one in an emulator, say.
    environment = {"INTACT_PYTHON": sys.executable, **os.environ, "PYTHONPATH": os.pathsep.join(path)}
    return [str(package / "intact"), *arguments], environment


def main() -> None:
    if sys.argv[1:2] == ["audit"]:
        sys.exit(_audit(sys.argv[2:]))
    command, environment = native(sys.argv[1:])
    os.execve(command[0], ["intact", *command[1:]], environment)
