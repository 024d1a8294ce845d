"""PyTorch's operators on intact: loads libintact_pytorch.so, and puts its kernels in the place of PyTorch's
(docs/pytorch.md)."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Callable

import torch

from .._library import PACKAGE, Error, invalid

if TYPE_CHECKING:
    from ._dump import Record
    from ._layers import Difference, Observer

_library: ctypes.CDLL | None = None
_layers: Any = None
_is_enabled = False


def library() -> str:
    """Loads libintact_pytorch.so, which stands beside this module, and returns its path. PyTorch then has the
    operator `intact::int_mm`; its own operators stay as they are."""
    global _library, _layers
    path = PACKAGE / "libintact_pytorch.so"
    if _library is None:
        version = tuple(int(part) for part in torch.__version__.split(".")[:2])
        if version < (2, 10):
            raise invalid(f"torch: is {torch.__version__}; expected 2.10 or newer")
        if not path.is_file():
            raise invalid(
                f"there is no {path}; expected a package with PyTorch's operators (docs/pytorch.md)"
            )
        from ._layers import Layers, fake_packaged_layer

        loaded = ctypes.CDLL(str(path))
        loaded.intact_pytorch_enable.restype = ctypes.c_char_p
        torch.library.register_fake("intact::int_mm", lambda self, mat2: torch.ops.aten._int_mm(self, mat2))
        torch.library.register_fake("intact::packaged_layer", fake_packaged_layer)
        _layers = Layers(loaded)
        _library = loaded
    return str(path)


def _set(is_enabled: bool) -> None:
    global _is_enabled
    if is_enabled == _is_enabled:
        return
    library()
    error = _library.intact_pytorch_enable(is_enabled)
    if error is not None:
        raise Error("UNSUPPORTED", f"torch: {error.decode()}")
    try:
        _layers.set(is_enabled)
    except BaseException:
        _library.intact_pytorch_enable(False)
        raise
    _is_enabled = is_enabled


class _Enabled:
    """What `enable()` returns. As a context manager it restores the state before that call."""

    def __init__(self, was_enabled: bool):
        self._was_enabled = was_enabled

    def __enter__(self) -> None:
        _set(True)

    def __exit__(self, *exception: Any) -> None:
        _set(self._was_enabled)


def enable() -> _Enabled:
    """Makes PyTorch compute `torch._int_mm` of CPU tensors and the quantized layers
    `onednn.qlinear_pointwise` and `onednn.qconv_pointwise` with intact, in all threads of the process: in
    eager mode, and in what `torch.compile` compiles. All else stays as it is. In `with
    intact.torch.enable():` it holds for the block.

    Call it while no other thread runs PyTorch. PyTorch writes one warning that a kernel is overridden."""
    before = _Enabled(_is_enabled)
    _set(True)
    return before


def disable() -> None:
    """Gives PyTorch its own kernels back. Call it while no other thread runs PyTorch."""
    _set(False)


def is_enabled() -> bool:
    """Whether `enable()` is in force."""
    return _is_enabled


def compare(model: "Callable[..., Any]", *inputs: Any) -> "list[Difference]":
    """Calls `model(*inputs)` with PyTorch's kernels and without gradients, and reports where they differ from
    the exact outputs. The list has a row for each call of a quantized layer that intact computes, in the
    order of the calls. A layer's input comes from PyTorch's kernels, so a row shows what one call does.
    `model`: compiled with `freezing` (docs/pytorch.md).

    intact's copies of the weights stay in memory as long as the model's weights. Call it while no other
    thread runs PyTorch."""
    library()
    from ._layers import difference

    return _observed(model, inputs, difference)


def dump(model: "Callable[..., Any]", *inputs: Any, folder: "str | os.PathLike") -> "list[Record]":
    """Calls `model(*inputs)` as `compare()` does. Writes each call of a quantized layer that intact computes,
    with PyTorch's output, as a recorded layer in a folder of its own. `intact verify layer` then names what
    PyTorch's kernel computed.

    - `folder`: an empty folder or a new one. It gets the folders of the calls.

    Returns a row for each call, in the order of the calls. A call that the format of recorded layers cannot
    express is not written, and its row has the reason (docs/pytorch.md)."""
    library()
    from ._dump import recorder

    return _observed(model, inputs, recorder(folder))


def _observed(model: "Callable[..., Any]", inputs: tuple, row_of: "Observer") -> list:
    """Calls the model with PyTorch's kernels and without gradients. Returns a row for each call that intact
    computes."""
    rows: list = []
    was_enabled = _is_enabled
    _set(False)
    try:
        _layers.set(True, lambda *call: rows.append(row_of(*call)))
        try:
            with torch.no_grad():
                model(*inputs)
        finally:
            _layers.set(False)
    finally:
        _set(was_enabled)
    if not rows:
        raise invalid(
            "model: calls no quantized layer that intact computes; expected a model compiled with freezing"
        )
    return rows


def embed(program: "torch.export.ExportedProgram") -> "torch.export.ExportedProgram":
    """A copy of the program that calls `intact::int_mm` instead of `aten::_int_mm`, with or without
    `enable()`. The code of `torch.compile` with `cpp_wrapper` calls PyTorch's kernel without the dispatcher,
    so `enable()` does not change this code. A process that runs the copy first calls `library()`."""
    _check(program)
    library()
    return program.run_decompositions({torch.ops.aten._int_mm.default: torch.ops.intact.int_mm.default})


def package(
    program: "torch.export.ExportedProgram",
    package_path: "str | os.PathLike | None" = None,
    inductor_configs: "dict[str, Any] | None" = None,
) -> str:
    """Compiles the program with AOTInductor, as `torch._inductor.aoti_compile_and_package` does, and returns
    the path of the package. The package calls intact's operators for the quantized layers of PT2E models and
    for `_int_mm`, with or without `enable()`. A process that runs the package first calls `library()`.

    - `inductor_configs`: options of Inductor. `freezing` is True by default: without it Inductor makes no
      quantized layers.

    The weights are constants of the package. Call it while no other thread compiles."""
    _check(program)
    library()
    from ._package import package

    return package(program, package_path, inductor_configs, _library)


def _check(program: Any) -> None:
    if not isinstance(program, torch.export.ExportedProgram):
        raise invalid(f"program: is a {type(program).__name__}; expected a torch.export.ExportedProgram")
