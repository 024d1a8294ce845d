"""`intact repair`: reorders the channels of a model so that no pair of adjacent depths can saturate in stock
engines.

The order is folded into the constants, so neither results nor the time of a run change. Layers that no order
makes safe get u8 weights, which ONNX Runtime multiplies exactly."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

import numpy as np

from .._audit.audit import Audit, audit
from .._deadline import TimeOver, begin_unit
from .._graph.axes import Axes
from .._graph.dims import factors
from .._graph.nodes import load_onnx
from .._graph.scope import Scope
from .._library import excerpt, invalid
from .editor import Editor
from .files import MOST_PROTOBUF, files_of
from .plan import MOST_DEPTH, plan_of
from .range import Limits, undo_reduce_range
from .result import NOTABLE, Repair
from .steps import STEPS, State, describe, fold

# squared steps: the noise of shortened weights that reports offer; rounding to 8 bits has 0.083
_USUAL_NOISE = 0.05


@dataclass
class Options:
    """The options of repair(), by whose names they are checked. `engines_asked`, `float_model`: `engines` and
    `undo_reduce_range` of repair(). `ask`: as for audit()."""

    engines_asked: "Iterable[str] | None" = None
    reorder_sums: bool = False
    keep_channels: bool = False
    max_depth: "float | None" = None
    max_noise: float = 0.0
    float_model: "str | os.PathLike | None" = None
    allow_u8_weights: bool = False
    data: "list[dict[str, np.ndarray]] | None" = None
    add_gathers: bool = True
    ask: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.max_noise < math.inf:
            raise invalid(
                f"--max-noise: is {self.max_noise!r}; expected a number of 0 or more, in squared steps of the weights"
            )
        if self.max_depth is None:
            self.max_depth = MOST_DEPTH
        if self.keep_channels:
            self.max_depth = 0.0
        if not 0 <= self.max_depth < math.inf:
            raise invalid(
                f"--max-depth: is {self.max_depth!r}; expected a number of 0 or more, in percent of the model's "
                "multiply-adds"
            )


def _exact_nodes(result: Audit, scope: Scope) -> set[int]:
    """The numbers of the operators between DequantizeLinear and QuantizeLinear that ONNX Runtime computes
    with integer sums."""
    places = {id(node): i for i, node in enumerate(result.model.proto.graph.node)}
    found = set()
    for audited in result.layers:
        layer = audited.layer
        if layer.graph_node is None or layer.float_in:
            continue
        outputs = scope.consumers.get(layer.graph_node.output[0], [])
        if layer.op_type == "Gemm" and not any(node.op_type == "QuantizeLinear" for node in outputs):
            continue
        found.add(places[id(layer.graph_node)])
    return found


def repair(
    model: Any,
    *,
    engines: Iterable[str] | None = None,
    reorder_sums: bool = False,
    keep_channels: bool = False,
    max_depth: float | None = None,
    max_noise: float = 0.0,
    undo_reduce_range: str | os.PathLike | None = None,
    allow_u8_weights: bool = False,
    data: "list[dict[str, np.ndarray]] | None" = None,
    add_gathers: bool = True,
) -> "tuple[Any, Repair]":
    """Reorders the channels of an ONNX model so that no layer can saturate. Layers that no order helps get u8
    weights. Without `reorder_sums`, `max_noise` and `undo_reduce_range` the model computes the same bits as
    its exact model.

    - `model`: a path, or an `onnx.ModelProto`, which is not changed.
    - `engines`: the engines, by their names, in which no pair shall saturate; by default ONNX Runtime.
    - `reorder_sums`: layers may also get an order in which floats are added in another order (by
      LayerNormalization, say). This costs no time, and moves outputs by rounding noise. If a model quantizes
      its activations at run time, it amplifies this noise.
    - `keep_channels`: adds no copied channels.
    - `max_depth`: copied channels add at most this many percent to the model's multiply-adds; 100 by default.
    - `max_noise`: if no order helps, weights may be shortened. This bounds the mean squared change of a
      layer's weights, in squared steps of the stored weights. For comparison, rounding to 8 bits changes them
      by 0.083.
    - `undo_reduce_range`: the path of the float model. 7-bit weights get 8 bits. If a layer would then need
      u8 weights, which are slower, its weights get only the range that is safe in the stored order.
    - `allow_u8_weights`: layers that then need u8 weights get 8 bits too.
    - `data`: the inputs of each run. With them, `undo_reduce_range` also gives 7-bit activations 8 bits.
    - `add_gathers`: convolutions whose order cannot be folded into constants may get a Gather in front.

    Returns the repaired `onnx.ModelProto`, and a description of the repair. Raises `Error`."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        if isinstance(model, onnx.ModelProto):
            path = Path(folder, "model.onnx")
            if model.ByteSize() > MOST_PROTOBUF:
                raise invalid("the model has more than 2 GB: give the path of its file")
            path.write_bytes(model.SerializeToString())
        else:
            path = Path(model)
        done = repair_file(
            path,
            Path(folder, "repaired.onnx"),
            engines_asked=engines,
            reorder_sums=reorder_sums,
            keep_channels=keep_channels,
            max_depth=max_depth,
            max_noise=max_noise,
            float_model=undo_reduce_range,
            allow_u8_weights=allow_u8_weights,
            data=data,
            add_gathers=add_gathers,
        )
        return onnx.load(str(Path(folder, "repaired.onnx"))), done


def repair_file(
    path: str | os.PathLike,
    out: str | os.PathLike,
    *,
    progress: Any = None,
    before_writing: "Callable[[Repair], bool] | None" = None,
    **options: Any,
) -> Repair:
    """Repairs the ONNX model in a file and writes `out`, completely or not at all. `options`: of Options.
    `before_writing(done)`: is called before `out` is written, when `done.after` is the audit of a temporary
    file; if it returns False, nothing is written. Raises `Error`."""
    path, out = Path(path), Path(out)
    if not out.name or out.is_dir():
        raise invalid(f"{excerpt(out)}: is a folder; expected a file's name for the repaired model")
    chosen, limits = Options(**options), Limits()
    stored = audit(path, engines_asked=chosen.engines_asked, progress=progress, ask=chosen.ask)
    if stored.model.proto is None:
        raise invalid(f"{excerpt(path)}: is no ONNX model; `intact repair` expects one")
    _refuse_inputs(path, out, stored, chosen)
    with tempfile.TemporaryDirectory(
        prefix=".intact-", dir=out.parent if out.parent.is_dir() else None
    ) as temporary:
        while True:
            with _malformed(path):
                state = _begun(path, out, Path(temporary), stored, chosen, limits, progress)
                fold(state)
            state.reread()
            for step in STEPS:
                begin_unit("the repair")
                if step(state):
                    state.reread()
            describe(state)
            if not _tighten(limits, state.done, chosen):
                break
        done, after = state.done, state.after
        done.after = after
        done.price = state.plan.price([i for i, layer in enumerate(done.layers) if layer.how == "u8 weights"])
        try:
            done.cheaper = _cheaper(done, path.parent, chosen)
        except TimeOver:  # advice only: the repair is complete
            done.cheaper = []
        if not out.parent.is_dir():
            raise invalid(f"{excerpt(out)}: its folder does not exist")
        is_wanted = before_writing is None or before_writing(done)
        for suffix in ([".data"] if state.is_external else []) + [""] if is_wanted else []:
            os.replace(state.folder / (out.name + suffix), out.parent / (out.name + suffix))
    after.model.path = str(out)
    return done


def _refuse_inputs(path: Path, out: Path, stored: Audit, options: Options) -> None:
    """Refuses an output that is a file of an input, and lets a file of an old version state its constants
    once."""
    proto = stored.model.proto
    read = files_of(path, proto.graph)
    if options.float_model is not None:
        read |= files_of(Path(options.float_model), load_onnx(options.float_model).graph)
    for written in (out, out.with_name(out.name + ".data")):
        if written.exists() and any(one.exists() and written.samefile(one) for one in read):
            raise invalid(
                f"{excerpt(written)}: is a file of an input model; expected another name for the repaired model"
            )
    if proto.ir_version < 4:  # such a file lists constants as inputs too
        constants = {tensor.name for tensor in proto.graph.initializer}
        inputs = [value for value in proto.graph.input if value.name not in constants]
        del proto.graph.input[:]
        proto.graph.input.extend(inputs)
        proto.ir_version = 4


@contextlib.contextmanager
def _malformed(path: Path) -> "Iterator[None]":
    """Reports errors of Python as a fault of the model."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise invalid(
            f"{excerpt(path)}: a node or a tensor is malformed, or nested too deep: {excerpt(repr(error))}"
        ) from None


def _begun(
    path: Path, out: Path, folder: Path, stored: Audit, options: Options, limits: Limits, progress: Any
) -> State:
    """The state before the first step: a plan for the stored model, or for the one whose weights got 8 bits
    within `limits`."""
    before, proto, widened, max_depth = stored, stored.model.proto, None, options.max_depth
    if options.float_model is not None:
        if not options.allow_u8_weights:
            max_depth = 0.0  # instead of adding copies, which cost time, the range shrinks
        proto, widened = undo_reduce_range(stored, options.float_model, options.data, limits)
        before = audit(path, engines_asked=stored.engines, progress=progress, proto=proto, ask=options.ask)
    axes = _axes(proto, path.parent, before, options.reorder_sums)
    plan = plan_of(before, axes, max_depth, options.max_noise, options.add_gathers)
    done = Repair(
        before,
        stored.engines,
        max_depth=max_depth,
        max_noise=options.max_noise,
        work=plan.work,
        widened=widened,
        out=str(out),
    )
    return State(done, plan, Editor(proto, path.parent), folder, out.name, path.parent, options.ask)


def _tighten(limits: Limits, done: Repair, options: Options) -> bool:
    """Notes the layers that cost time with 8 bits. Returns whether there are some, so that the repair begins
    again."""
    if done.widened is None or options.allow_u8_weights:
        return False
    costly = [
        i for i in done.widened.numbers if done.layers[i].how in ("u8 weights", "gathered order", "left")
    ]
    for i in costly:
        limits.tighten(i, done.layers[i].reason)
    return bool(costly)


def _axes(proto: Any, folder: Path, result: Audit, reorder_sums: bool) -> Axes:
    """The axes of a model. Without `reorder_sums`, axes over which floats are added keep their stored
    order."""
    axes = Axes(proto, folder, _exact_nodes(result, Scope(proto.graph, folder)))
    for reader in axes.readers if not reorder_sums else ():
        for factor in factors(reader.dim):
            root = factor.axis.root()
            if root.sums:
                root.freeze(
                    f"another order of its channels changes sums of floats ({root.sums}); --reorder-sums allows this"
                )
    return axes


def _cheaper(done: Repair, folder: Path, options: Options) -> "list[tuple[str, float]]":
    """Options with which a repair costs less, and their price in percent. Each of them moves outputs."""
    if done.price < NOTABLE:
        return []
    found, result, reorder_sums = [], done.before, options.reorder_sums
    for option, reorder, noise in (
        ("--reorder-sums", True, done.max_noise),
        (f"--max-noise {_USUAL_NOISE:g}", reorder_sums, _USUAL_NOISE),
    ):
        if (reorder, noise) == (reorder_sums, done.max_noise) or noise < done.max_noise:
            continue
        plan = plan_of(
            result,
            _axes(result.model.proto, folder, result, reorder),
            done.max_depth,
            noise,
            options.add_gathers,
        )
        price = plan.price(plan.with_u8)
        if price < done.price - NOTABLE and len(plan.unsafe) <= sum(layer.left > 0 for layer in done.layers):
            found.append((option, price))
    return sorted(found, key=lambda one: one[1])
