"""Receipts of a model's outputs: names, shapes and SHA-256 of a reproducible run, which two machines
compare."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import numpy as np

from .._deadline import begin_unit
from .._engines.data import load_data
from .._graph.weights import location_of
from .._library import counted, excerpt, invalid

_HEAD = "intact digest 1"


@dataclass
class Line:
    """One tensor of one run. `sample`: the name of the run's file. `name`: of the tensor."""

    sample: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def text(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return f"{self.sha256}  {self.dtype}  {shape}  {self.sample}  {self.name}"


@dataclass
class Digest:
    """`model`: the SHA-256 of the model's file and of its external data. `lines`: of each run the layers, if
    they were asked for, then the outputs."""

    model: str
    lines: list[Line] = field(default_factory=list)

    def to_text(self) -> str:
        return "\n".join([f"{_HEAD}, model {self.model}", *(line.text for line in self.lines)]) + "\n"


def read(path: str | Path) -> Digest:
    """A digest that was printed into a file. Raises `Error`."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise invalid(
            f"--against: {excerpt(path)}: {getattr(error, 'strerror', None) or 'is no text'}"
        ) from None
    if not lines or not lines[0].startswith(f"{_HEAD}, model "):
        raise invalid(
            f"--against: {excerpt(path)}: does not begin with {_HEAD + ', model '!r}; expected what `intact digest` printed"
        )
    found = Digest(lines[0].rpartition(" ")[2])
    for number, line in enumerate(lines[1:], 2):
        parts = line.split("  ", 4)
        if len(parts) != 5:
            raise invalid(
                f"--against: {excerpt(path)}: line {number} has {counted(len(parts), 'column')}; expected 5"
            )
        extents = [] if parts[2] == "scalar" else parts[2].split("x")
        if not all(extent.isdecimal() for extent in extents):
            raise invalid(
                f"--against: {excerpt(path)}: line {number} has the shape {excerpt(parts[2])!r}; expected extents with x "
                "between them"
            )
        shape = tuple(map(int, extents))
        found.lines.append(Line(parts[3], parts[4], parts[1], shape, parts[0]))
    return found


def difference(here: Digest, there: Digest, path: str) -> str:
    """The first difference in words; "" if there is none."""
    if here.model != there.model:
        return f"the models differ: {here.model} here, {there.model} in {excerpt(path)}"
    for mine, other in zip(here.lines, there.lines):
        if (mine.sample, mine.name) != (other.sample, other.name):
            return (
                f"the lines are of other tensors: {excerpt(mine.name)} of {excerpt(mine.sample)} here, {excerpt(other.name)} of "
                f"{excerpt(other.sample)} in {excerpt(path)}"
            )
        if mine.text != other.text:
            return f"the first that differs: {excerpt(mine.name)} of {excerpt(mine.sample)}"
    if len(here.lines) != len(there.lines):
        return f"{counted(len(here.lines), 'tensor')} here, {len(there.lines)} in {excerpt(path)}"
    return ""


def _session(model: "str | bytes", threads: int, reproducible: bool, folder: "Path | None" = None) -> Any:
    """`folder`: of the external data of a model of bytes."""
    try:
        import onnxruntime

        from .. import onnxruntime as provider
    except ImportError:
        raise invalid("digest: needs ONNX Runtime (pip install onnxruntime)") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    if folder is not None:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder.resolve())
        )
    provider.add(options, reproducible=reproducible)
    try:
        return onnxruntime.InferenceSession(model, options)
    except Exception as error:  # ONNX Runtime's exceptions have no common base
        said = str(error)
        raise invalid(
            f"digest: {said[said.find('reproducible: ') :] if 'reproducible: ' in said else excerpt(said, 300)}"
        ) from None


def _hash_of(path: Path) -> str:
    """The SHA-256 of a model's file, and of the files of its external data."""
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise invalid("digest: needs the package onnx: pip install onnx") from None
    found = hashlib.sha256()
    try:
        content = path.read_bytes()
        found.update(content)
        tensors = onnx.load_model_from_string(content).graph.initializer
        for name in sorted(set(map(location_of, tensors)) - {""}):
            with open(path.parent / name, "rb") as file:
                while piece := file.read(1 << 24):
                    found.update(piece)
    except OSError as error:
        raise invalid(f"{excerpt(error.filename)}: {error.strerror}") from None
    except DecodeError:
        raise invalid(f"{excerpt(path)}: is no ONNX model") from None
    return found.hexdigest()


def _with_layers(path: str, threads: int, reproducible: bool) -> tuple[bytes, list[str]]:
    """The model without its external data, with the outputs of each layer that intact computes as further
    outputs, and their names. The layers stay what they are, because their outputs are tensors of the session
    anyway."""
    import onnx

    from ..onnxruntime import report

    nodes = report(_session(path, threads, reproducible))
    proto = onnx.load(path, load_external_data=False)  # with it a model may have more than 2 GB
    known = {value.name for value in proto.graph.output}
    made = {name for node in proto.graph.node for name in node.output}
    names = [name for name in dict.fromkeys(node.get("output", "") for node in nodes) if name in made - known]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return proto.SerializeToString(), names


def digest(
    path: str,
    data: str,
    *,
    layers: bool = False,
    threads: int = 0,
    reproducible: bool = True,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Digest:
    """Runs a model reproducibly on each of the inputs in `data` (as for `audit --data`). `layers`: digests
    the outputs of each layer that intact computes too. `threads`: 0 for ONNX Runtime's choice. Raises `Error`
    if the model has a node whose bytes may depend on the CPU."""
    found = Digest(_hash_of(Path(path)))
    model, names = _with_layers(path, threads, reproducible) if layers else (path, [])
    session = _session(model, threads, reproducible, Path(path).parent if layers else None)
    outputs = [*names, *(value.name for value in session.get_outputs() if value.name not in names)]
    runs = load_data(data)
    wanted = {value.name for value in session.get_inputs()}
    for done, run in enumerate(runs):
        begin_unit("the digest")
        progress(done, len(runs))
        missing = wanted - run.keys()
        if missing:
            raise invalid(f"{excerpt(run.source)}: has no input {excerpt(min(missing))}")
        try:
            values = session.run(outputs, {name: run[name] for name in wanted})
        except Exception as error:  # as above
            raise invalid(f"{excerpt(run.source)}: cannot be run: {excerpt(str(error), 300)}") from None
        for name, value in zip(outputs, values):
            array = np.asarray(value)
            if array.dtype.kind not in "biuf":
                raise invalid(f"digest: output {excerpt(name)!r} is no tensor of numbers; expected numbers")
            found.lines.append(
                Line(
                    Path(run.source).name,
                    name,
                    str(array.dtype),
                    array.shape,
                    hashlib.sha256(array.tobytes()).hexdigest(),
                )
            )
    progress(len(runs), len(runs))
    return found
