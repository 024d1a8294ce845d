"""ONNX Runtime's execution provider: quantized layers of a session run on intact, all else on ONNX Runtime.

    import onnxruntime, intact.onnxruntime

    intact.onnxruntime.register()
    options = onnxruntime.SessionOptions()
    intact.onnxruntime.add(options)
    session = onnxruntime.InferenceSession("model.onnx", options)
    for node in intact.onnxruntime.report(session):
        print(node)

docs/onnxruntime.md describes it. Needs onnxruntime 1.23 or newer.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
from pathlib import Path
from typing import Any

import onnxruntime

from ._engines.known_operators import known
from ._library import (
    _MODES,  # the names of modes
    Error,
    choice,
    integer,
    invalid,
    isa_of,
)

__all__ = ["NAME", "add", "depends_on", "measured_versions", "register", "report"]

NAME = "IntactExecutionProvider"
_OPTION = f"ep.{NAME.lower()}.report"  # as ONNX Runtime stores a provider's option in a session's
_LIKES = {None: 0, "onnxruntime:avx2": 1}
_ids = itertools.count(1)
_library: ctypes.CDLL | None = None


def measured_versions() -> list[str]:
    """The versions of ONNX Runtime whose operators were measured (`intact operators`): others have no
    reproducible sessions."""
    return known()["versions"]


def depends_on() -> dict[str, str]:
    """What the bytes of ONNX Runtime's operators depend on, by operator: "the CPU", "the number of threads",
    both, or nothing (an empty string). Some nodes of operators that depend on the number of threads do not
    (docs/onnxruntime_reproducible.md)."""
    return known()["depends_on"]


def register(library: str | os.PathLike | None = None) -> None:
    """Loads the provider into this process. `library`: the path of libintact_onnxruntime_ep.so; by default
    the one in this package. Another call does nothing."""
    global _library
    if _library is not None:
        return
    path = Path(library) if library is not None else Path(__file__).with_name("libintact_onnxruntime_ep.so")
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        raise invalid(f"onnxruntime: is {onnxruntime.__version__}; expected 1.23 or newer")
    if not path.is_file():
        raise invalid(
            f"library: there is no {path}; expected libintact_onnxruntime_ep.so (docs/onnxruntime.md)"
        )
    path = path.absolute()  # ONNX Runtime would begin a relative path at its own folder
    onnxruntime.register_execution_provider_library(NAME, str(path))
    found = ctypes.CDLL(str(path))  # the copy that is loaded already
    found.intact_onnxruntime_report.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    found.intact_onnxruntime_report.restype = ctypes.c_size_t
    _library = found


def add(
    options: Any,
    mode: str = "exact",
    max_isa: str | None = None,
    threads: int | None = None,
    like: str | None = None,
    reproducible: bool = False,
    quantize_activations: bool = False,
) -> None:
    """Makes sessions with these onnxruntime.SessionOptions use intact.

    - `mode`: "exact", or "saturating", what kernels without VNNI compute (intact_mode).
    - `max_isa`: no instruction set beyond it is used, "avx2" for instance.
    - `threads`: the largest number of parts that a product, a convolution, a sum or a transposition is cut
      into. By default `options.intra_op_num_threads`; if that is 0, the number of processors that the process
      may use. Nodes run on the session's threads.
    - `like`: "onnxruntime:avx2" makes nodes compute what ONNX Runtime 1.32 computes on a CPU with AVX2 and no
      VNNI, with the sums that its kernels clamp, operator by operator. `mode` is then "exact".
      docs/onnxruntime_arithmetic.md lists the conditions.
    - `reproducible`: a session is created only if every node has the same bytes on every x86-64 CPU from AVX2
      on and for every number of threads: nodes that intact computes, and nodes of ONNX Runtime for which this
      was measured (`intact operators`). Else creating the session fails, and the error names the nodes.
      intact then also computes float convolutions, products and sums that it leaves to ONNX Runtime
      otherwise. `mode` is "exact". docs/onnxruntime.md (Reproducible sessions) says what is not covered:
      nodes of constants only, other providers, the bits of NaNs. Needs ONNX Runtime's default optimizations.
    - `quantize_activations`: intact also computes `MatMulNBits` and `QMoE` nodes that do not ask for quantized
      activations (`accuracy_level` other than 4). Their outputs move by what the quantization to 8 bits
      moves.

    ONNX Runtime then warns in each session that "some nodes were not assigned to the preferred execution
    providers": these are the nodes that report() lists with a reason. `options.log_severity_level = 3` hides
    ONNX Runtime's warnings. Raises `Error`."""
    register()
    choice("mode", mode, _MODES)
    isa_of(max_isa)
    choice("like", like, _LIKES)
    switches = {"reproducible": reproducible, "quantize_activations": quantize_activations}
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise invalid(f"{name}: is {value!r}; expected True or False")
    levels = onnxruntime.GraphOptimizationLevel
    if reproducible and options.graph_optimization_level in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_BASIC):
        raise invalid(
            f"graph_optimization_level: is {options.graph_optimization_level.name} with reproducible; expected "
            "ORT_ENABLE_EXTENDED or ORT_ENABLE_ALL: pools between bytes else depend on the CPU"
        )
    threads = options.intra_op_num_threads or None if threads is None else integer("threads", threads)
    if threads is not None and threads < 1:
        raise invalid(f"threads: is {threads}; expected a positive number, or None: the session's number")
    given = {"mode": mode, "max_isa": max_isa, "threads": threads, "like": like, "report": next(_ids)}
    given.update({name: 1 for name, value in switches.items() if value})
    if _is_prepared(options):
        raise invalid("options: add() has prepared them before; expected new SessionOptions")
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == NAME]
    options.add_provider_for_devices(
        devices[:1], {key: str(value) for key, value in given.items() if value is not None}
    )


def _is_prepared(options: Any) -> bool:
    try:
        return bool(options.get_session_config_entry(_OPTION))
    except RuntimeError:
        return False


def report(session_or_model: Any) -> list[dict]:
    """What became of each node of a session that add() prepared, in the model's order: a dict with "name",
    "op", "domain" and "taken"; "same_bytes", whether its bytes are the same on every CPU and for every number
    of threads, and "depends", why not; "kernel", the main kernel of a node that intact computes; "reason",
    why another node stays with ONNX Runtime; "note", what ONNX Runtime's own operator would compute wrongly
    and intact computes rightly. For a model (a path or its bytes) a session is made. If several sessions have
    the same SessionOptions, the report is of the last session."""
    if not isinstance(session_or_model, onnxruntime.InferenceSession):
        options = onnxruntime.SessionOptions()
        add(options)
        session_or_model = onnxruntime.InferenceSession(session_or_model, options)
    try:
        name = session_or_model.get_session_options().get_session_config_entry(_OPTION)
    except RuntimeError:
        raise invalid(
            "session: has no IntactExecutionProvider; expected one with options that add() prepared"
        ) from None
    assert _library is not None
    size = _library.intact_onnxruntime_report(name.encode(), None, 0)
    text = ctypes.create_string_buffer(size)
    if size < 2 or _library.intact_onnxruntime_report(name.encode(), text, size) != size:
        raise Error("OUT_OF_MEMORY", "report: the session has none")
    return json.loads(text.value)
