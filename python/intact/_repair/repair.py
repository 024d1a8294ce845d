"""`intact repair`: reorders the channels of a model so that no pair of adjacent depths can saturate in stock engines.

The order is folded into the constants, so neither results nor the time of a run change. Layers that no order makes safe get u8
weights, which ONNX Runtime multiplies exactly.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import re
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Iterable

import numpy as np

from .._audit.audit import Audit, audit
from .._audit.run import exact_variant
from .._graph.axes import Axes
from .._graph.dims import factors
from .._graph.nodes import array_of_tensor, every_node, load_onnx
from .._graph.scope import Scope
from .._library import Error, excerpt, invalid
from .editor import Editor
from .plan import MOST_DEPTH, Means, Planner, Work, channels_of, own_order, plan_of, worst
from .range import Limits, undo_reduce_range
from .shorten import Halving, halved, halving, shortened, squares, weights_key

_MOST_PROTOBUF = (1 << 31) - 1
NOTABLE = 1.0  # percent of the products' time: below it no cheaper repair is searched
_USUAL_NOISE = 0.05  # squared steps: the noise of shortened weights that reports offer; rounding to 8 bits has 0.083


@dataclass
class RepairedLayer:
    """A layer before and after the repair. `unsafe`, `left`: pairs that can saturate, before and after; if several engines were
    asked for, the largest number. `how`: what made the layer safe."""

    name: str
    operator: str
    pairs: int
    unsafe: int
    left: int = 0
    how: str = ""
    reason: str = ""  # why no order makes it safe
    copied_channels: int = 0  # how many the layer's input got
    noise: float = 0.0  # the mean squared change of shortened weights, in squared stored steps
    is_gathered: bool = False  # whether a Gather in front orders its channels
    shortened: int = 0  # how many weights changed
    halved: int = 0  # how many outputs have weights of 7 bits
    means: Means = field(default_factory=Means)


@dataclass
class Repair:
    """The repair of a model. `before`, `after`: its audits. `sums`: describes the float sums whose order changes. `out`: the path
    of the repaired model; until it is written, `after` is the audit of a temporary file. `price`: what the repair adds to the time
    of the model's products, in percent, as the planner's costs predict. `cheaper`: options of the command with a lower price, and
    that price."""

    before: Audit
    engines: list[str]
    layers: list[RepairedLayer] = field(default_factory=list)
    orders: int = 0
    sums: list[str] = field(default_factory=list)
    copied_channels: int = 0  # their number in all tensors
    gathers: list[str] = field(default_factory=list)  # outputs of the graph that a Gather puts back in the stored order
    max_depth: float = 0.0
    max_noise: float = 0.0
    depth: float = 0.0  # percent of the model's multiply-adds that copied channels add
    work: "Work | None" = None
    ordered: Any = None  # the exact variant of the model with new order and stored weights, if weights were shortened
    after: Any = None
    check: Any = None
    not_checked: str = ""  # why outputs were not compared, though the repair moves them
    out: str = ""
    price: float = 0.0
    cheaper: "list[tuple[str, float]]" = field(default_factory=list)
    widened: Any = None  # what range.undo_reduce_range() changed before the repair; `before` is the audit of its result

    @property
    def is_proven(self) -> bool:
        return self.after.is_proven


# ----- files ------------------------------------------------------------------------------------------------------------


def _tensors(graph: Any, depth: int = 0) -> Iterable[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == 4:
                yield attribute.t
            for inner in ([attribute.g] if attribute.type == 5 else attribute.graphs):
                if depth < 16:
                    yield from _tensors(inner, depth + 1)


def _files(path: Path, graph: Any) -> set[Path]:
    """The model's file, and the files of its external data."""
    return {path, *(path.parent / entry.value for tensor in _tensors(graph) if tensor.data_location == 1
                    for entry in tensor.external_data if entry.key == "location")}


def _write(proto: Any, folder: Path, name: str, source: Path, is_external: bool) -> None:
    """Writes folder/name; the weights of a model with external data go to folder/name.data."""
    if is_external:
        (folder / f"{name}.data").unlink(missing_ok=True)  # an audit may still map the file that was written before
        with open(folder / f"{name}.data", "wb") as data:
            for tensor in _tensors(proto.graph):
                if tensor.data_location == 1:
                    array = array_of_tensor(tensor, source)
                    if array is None:
                        raise invalid(f"tensor {excerpt(tensor.name)!r}: is external data of a type that intact cannot read")
                    content = np.ascontiguousarray(array).tobytes()
                elif tensor.HasField("raw_data") and len(tensor.raw_data) > 1024:
                    content = tensor.raw_data
                else:
                    continue
                data.write(b"\0" * (-data.tell() % 64))
                begin = data.tell()
                data.write(content)
                tensor.ClearField("raw_data")
                tensor.ClearField("external_data")
                tensor.data_location = 1
                for key, value in (("location", f"{name}.data"), ("offset", str(begin)), ("length", str(len(content)))):
                    entry = tensor.external_data.add()
                    entry.key, entry.value = key, value
    if proto.ByteSize() > _MOST_PROTOBUF:
        raise invalid("the repaired model has more than 2 GB; store the model with external data first")
    (folder / name).write_bytes(proto.SerializeToString())


# ----- the repair -------------------------------------------------------------------------------------------------------


def _exact_nodes(result: Audit, scope: Scope) -> set[int]:
    """The numbers of the operators between DequantizeLinear and QuantizeLinear that ONNX Runtime computes with integer sums."""
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


def repair(model: Any, *, engines: Iterable[str] | None = None, reorder_sums: bool = False, keep_channels: bool = False,
           max_depth: float | None = None, max_noise: float = 0.0, undo_reduce_range: str | os.PathLike | None = None,
           allow_u8_weights: bool = False, data: "list[dict[str, np.ndarray]] | None" = None,
           add_gathers: bool = True) -> "tuple[Any, Repair]":
    """Reorders the channels of an ONNX model so that no layer can saturate. Layers that no order helps get u8 weights. Without
    `reorder_sums`, `max_noise` and `undo_reduce_range` the model computes the same bits as its exact model.

    - `model`: a path, or an `onnx.ModelProto`, which is not changed.
    - `engines`: the engines, by their names, in which no pair shall saturate; by default ONNX Runtime.
    - `reorder_sums`: layers may also get an order in which floats are added in another order (by LayerNormalization, say). This
      costs no time, and moves outputs by rounding noise. If a model quantizes its activations at run time, it amplifies this noise.
    - `keep_channels`: adds no copied channels.
    - `max_depth`: copied channels add at most this many percent to the model's multiply-adds; 100 by default.
    - `max_noise`: if no order helps, weights may be shortened. This bounds the mean squared change of a layer's weights, in
      squared steps of the stored weights. For comparison, rounding to 8 bits changes them by 0.083.
    - `undo_reduce_range`: the path of the float model. 7-bit weights get 8 bits. If a layer would then need u8 weights, which are
      slower, its weights get only the range that is safe in the stored order.
    - `allow_u8_weights`: layers that then need u8 weights get 8 bits too.
    - `data`: the inputs of each run. With them, `undo_reduce_range` also gives 7-bit activations 8 bits.
    - `add_gathers`: convolutions whose order cannot be folded into constants may get a Gather in front.

    Returns the repaired `onnx.ModelProto`, and a description of the repair. Raises `Error`."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        if isinstance(model, onnx.ModelProto):
            path = Path(folder, "model.onnx")
            if model.ByteSize() > _MOST_PROTOBUF:
                raise invalid("the model has more than 2 GB: give the path of its file")
            path.write_bytes(model.SerializeToString())
        else:
            path = Path(model)
        done = repair_file(path, Path(folder, "repaired.onnx"), engines_asked=engines, reorder_sums=reorder_sums,
                           keep_channels=keep_channels, max_depth=max_depth, max_noise=max_noise, float_model=undo_reduce_range,
                           allow_u8_weights=allow_u8_weights, data=data, add_gathers=add_gathers)
        return onnx.load(str(Path(folder, "repaired.onnx"))), done


def repair_file(path: str | os.PathLike, out: str | os.PathLike, *, engines_asked: Iterable[str] | None = None,
                reorder_sums: bool = False, keep_channels: bool = False, max_depth: float | None = None, max_noise: float = 0.0,
                float_model: str | os.PathLike | None = None, allow_u8_weights: bool = False,
                data: "list[dict[str, np.ndarray]] | None" = None, add_gathers: bool = True, progress: Any = None,
                limits: Any = None, before_writing: "Callable[[Repair], bool] | None" = None, ask: bool = True) -> Repair:
    """Repairs the ONNX model in a file and writes `out`, completely or not at all. Takes the options of `repair()`; `float_model`
    is the option `undo_reduce_range` of `repair()`. `limits`: layers that earlier attempts could not make safe.
    `before_writing(done)`: is called before `out` is written, when `done.after` is the audit of a temporary file; if it returns
    False, nothing is written. `ask`: as for audit(). Raises `Error`."""
    path, out = Path(path), Path(out)
    if not out.name or out.is_dir():
        raise invalid(f"{excerpt(out)}: is a folder; expected a file's name for the repaired model")
    if not 0 <= max_noise < math.inf:
        raise invalid(f"--max-noise: is {max_noise!r}; expected a number of 0 or more, in squared steps of the weights")
    max_depth = 0.0 if keep_channels else MOST_DEPTH if max_depth is None else max_depth
    if not 0 <= max_depth < math.inf:
        raise invalid(f"--max-depth: is {max_depth!r}; expected a number of 0 or more, in percent of the model's multiply-adds")
    result = audit(path, engines_asked=engines_asked, progress=progress, ask=ask)
    if result.model.proto is None:
        raise invalid(f"{excerpt(path)}: is no ONNX model; `intact repair` expects one")
    names = result.engines
    proto = result.model.proto
    read = _files(path, proto.graph)
    if float_model is not None:
        read |= _files(Path(float_model), load_onnx(float_model).graph)
    for written in (out, out.with_name(out.name + ".data")):
        if written.exists() and any(one.exists() and written.samefile(one) for one in read):
            raise invalid(f"{excerpt(written)}: is a file of an input model; expected another name for the repaired model")
    if proto.ir_version < 4:  # such a file lists constants as inputs too
        stored = {tensor.name for tensor in proto.graph.initializer}
        inputs = [value for value in proto.graph.input if value.name not in stored]
        del proto.graph.input[:]
        proto.graph.input.extend(inputs)
        proto.ir_version = 4
    try:
        widened = None
        if float_model is not None:

            limits = limits or Limits()
            max_depth = max_depth if allow_u8_weights else 0.0  # instead of adding copies, which cost time, the range shrinks
            proto, widened = undo_reduce_range(result, float_model, data, limits)
            result = audit(path, engines_asked=names, progress=progress, proto=proto, ask=ask)
        axes = _axes(proto, path.parent, result, reorder_sums)
        plan = plan_of(result, axes, max_depth, max_noise, add_gathers)
        done = Repair(result, names, orders=len(plan.orders), copied_channels=sum(int(zero.sum()) for zero in plan.copies.values()),
                      max_depth=max_depth, max_noise=max_noise, depth=plan.work.percent(plan.added), work=plan.work,
                      widened=widened, out=str(out))
        editor = Editor(proto, path.parent)
        editor.fold(axes, plan.orders, plan.copies)
        done.gathers = editor.restore_outputs(axes, plan.orders, plan.copies)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise invalid(f"{excerpt(path)}: a node or a tensor is malformed, or nested too deep: {excerpt(repr(error))}") from None
    done.sums = sorted({root.sums for root in plan.orders if root.sums})
    is_external = any(tensor.data_location == 1 for tensor in _tensors(proto.graph))
    for audited, means in zip(result.layers, plan.means):
        unsafe, pairs = worst(audited, names)
        done.layers.append(RepairedLayer(audited.layer.name, audited.layer.node, pairs, unsafe, unsafe, means=means))
    with tempfile.TemporaryDirectory(prefix=".intact-", dir=out.parent if out.parent.is_dir() else None) as temporary:
        folder = Path(temporary)
        _write(copy.deepcopy(editor.proto) if is_external else editor.proto, folder, out.name, path.parent, is_external)
        after = _same_layers(audit(folder / out.name, engines_asked=names, ask=ask), result)
        refused: dict[int, str] = {}
        for change in [_gather_rest] + ([_shorten_rest] if max_noise else []) + [_store_rest_as_u8]:
            is_changed, why = change(editor, after, done, plan)
            refused.update(why)
            if is_changed:
                if change is _shorten_rest:
                    done.ordered = exact_variant(after, done)
                _write(copy.deepcopy(editor.proto) if is_external else editor.proto, folder, out.name, path.parent, is_external)
                after = _same_layers(audit(folder / out.name, engines_asked=names, ask=ask), result)
        _describe(done, result, after, plan, refused)
        costly = [] if widened is None or allow_u8_weights else [
            i for i in widened.numbers if done.layers[i].how in ("u8 weights", "gathered order", "left")]
        for i in costly:
            limits.tighten(i, done.layers[i].reason)
        if costly:
            return repair_file(path, out, engines_asked=names, reorder_sums=reorder_sums, keep_channels=keep_channels,
                               max_depth=max_depth, max_noise=max_noise, float_model=float_model, data=data, add_gathers=add_gathers,
                               progress=progress, limits=limits, before_writing=before_writing, ask=ask)
        done.after = after
        done.price = plan.price([i for i, layer in enumerate(done.layers) if layer.how == "u8 weights"])
        done.cheaper = _cheaper(done, result, path.parent, reorder_sums, add_gathers)
        if not out.parent.is_dir():
            raise invalid(f"{excerpt(out)}: its folder does not exist")
        if before_writing is not None and not before_writing(done):
            after.model.path = str(out)
            return done
        for suffix in ([".data"] if is_external else []) + [""]:
            os.replace(folder / (out.name + suffix), out.parent / (out.name + suffix))
    after.model.path = str(out)
    return done


def _same_layers(after: Audit, before: Audit) -> Audit:
    """The audit of a changed model. Raises `Error` if it does not have the layers of the model before: a layer that ONNX Runtime
    now runs in float would be missing, and no longer proven."""
    def names(one: Audit) -> list[str]:  # without numbers by unique(), which inserted operators change
        return [re.sub(r" \(operator \d+\)$", "", audited.layer.name) for audited in one.layers]

    for stored, repaired in itertools.zip_longest(names(before), names(after)):
        if stored != repaired:
            raise Error("INTERNAL", f"the repaired model has the layer {repaired!r} where the stored model has {stored!r}; "
                        "expected the same layers")
    return after


def _axes(proto: Any, folder: Path, result: Audit, reorder_sums: bool) -> Axes:
    """The axes of a model. Without `reorder_sums`, axes over which floats are added keep their stored order."""
    axes = Axes(proto, folder, _exact_nodes(result, Scope(proto.graph, folder)))
    for reader in axes.readers if not reorder_sums else ():
        for factor in factors(reader.dim):
            root = factor.axis.root()
            if root.sums:
                root.freeze(f"another order of its channels changes sums of floats ({root.sums}); --reorder-sums allows this")
    return axes


def _cheaper(done: Repair, result: Audit, folder: Path, reorder_sums: bool, add_gathers: bool) -> "list[tuple[str, float]]":
    """Options with which a repair costs less, and their price in percent. Each of them moves outputs."""
    if done.price < NOTABLE:
        return []
    found = []
    for option, reorder, noise in (("--reorder-sums", True, done.max_noise),
                                   (f"--max-noise {_USUAL_NOISE:g}", reorder_sums, _USUAL_NOISE)):
        if (reorder, noise) == (reorder_sums, done.max_noise) or noise < done.max_noise:
            continue
        plan = plan_of(result, _axes(result.model.proto, folder, result, reorder), done.max_depth, noise, add_gathers)
        price = plan.price(plan.with_u8)
        if price < done.price - NOTABLE and len(plan.unsafe) <= sum(layer.left > 0 for layer in done.layers):
            found.append((option, price))
    return sorted(found, key=lambda one: one[1])


@dataclass
class _Change:
    """New weights for an operator. For each layer: the sum of squared changes, the number of weights that change, and the
    outputs with halved weights."""

    weights: np.ndarray
    squares: dict[int, float]
    changed: dict[int, int]
    halved: "dict[int, tuple[Halving, np.ndarray]]"


def _change(after: Audit, members: list[int], stored: np.ndarray, scope: Scope, names: list[str]) -> _Change:
    """The smallest change of the weights that the layers `members` share, so that none of the layers can saturate."""
    numbers = np.arange(stored.size).reshape(stored.shape)
    found = _Change(stored.copy(), {}, {}, {})
    for i in members:  # shared weights are shortened for each layer in turn
        layer = after.layers[i].layer
        pairings = after.layers[i].pairings(names)
        found.weights.reshape(-1)[layer.view(numbers)] = shortened(replace(layer, weights=layer.view(found.weights)), pairings)
    for i in members:
        layer = after.layers[i].layer
        change = squares(layer, layer.view(found.weights)).astype(float)
        half = halving(layer, scope) if len(members) == 1 and change.any() else None
        if half is not None and (half.cost < change).any():
            outputs = half.cost < change
            found.halved[i] = half, outputs
            found.weights.reshape(-1)[layer.view(numbers)] = halved(layer, outputs, layer.view(found.weights))
            change = np.where(outputs, half.cost, change)
        found.squares[i] = float(change.sum())
        found.changed[i] = int(np.count_nonzero(layer.view(found.weights) != layer.weights))
    return found


def _weights_readers(after: Audit, scope: Scope) -> list[list[int]]:
    """Groups of layers that share weights."""
    readers: dict[Any, list[int]] = {}
    for i, audited in enumerate(after.layers):
        if audited.layer.weights_node is not None:
            readers.setdefault(weights_key(audited.layer, scope), []).append(i)
    return list(readers.values())


def _gather_rest(editor: Editor, after: Audit, done: Repair, plan: Planner) -> tuple[bool, dict[int, str]]:
    """Puts a Gather in front of each convolution that can still saturate, if the plan has a Gather there. Whole planes of pixels
    move. Returns whether some layer got a Gather, and the reasons of layers without one."""
    places = {id(node): i for i, node in enumerate(after.model.proto.graph.node)}
    scope = Scope(after.model.proto.graph, Path(after.model.path).parent)
    is_changed = False
    refused: dict[int, str] = {}
    for i in sorted(plan.gathered):
        layer = after.layers[i].layer
        if not after.layers[i].fails(done.engines):
            continue
        source, copies = own_order(layer, after.layers[i].pairings(done.engines), plan.max_noise)
        reason = editor.gather(layer, places[id(layer.graph_node)], places[id(layer.weights_node)], scope, source, copies)
        if reason:
            refused[i] = f"no Gather in front: {reason}"
            continue
        is_changed = done.layers[i].is_gathered = True
        count = layer.weights.shape[-1]
        work = plan.work.layers[i] // done.before.layers[i].layer.weights.shape[-1]  # the work of one channel
        done.depth += plan.work.percent((len(source) - count) * work)
        done.copied_channels += len(source) - count
    editor.insert()
    return is_changed, refused


def _shorten_rest(editor: Editor, after: Audit, done: Repair, _: Planner) -> tuple[bool, dict[int, str]]:
    """Shortens the weights of layers that can still saturate, if the noise is small enough. Returns whether some layer got
    shortened weights, and the reasons of layers that did not."""
    places = {id(node): i for i, node in enumerate(after.model.proto.graph.node)}
    scope = Scope(after.model.proto.graph, Path(after.model.path).parent)
    refused: dict[int, str] = {}
    changes: list[_Change] = []
    noises: dict[int, float] = {}
    for members in _weights_readers(after, scope):
        if not any(after.layers[i].fails(done.engines) for i in members):
            continue
        one = after.layers[members[0]].layer
        name = one.weights_node.input[one.weights_input]
        if name in scope.overridable:
            refused.update({i: "weights that a caller may override" for i in members})
            continue
        if isinstance(weights_key(one, scope), str) and len(scope.consumers[name]) > len(members):
            refused.update({i: "weights that another operator reads" for i in members})
            continue
        changes.append(_change(after, members, scope.constant(name), scope, done.engines))
        for i in members:
            noises[i] = changes[-1].squares[i] / done.before.layers[i].layer.weights.size

    def place(i: int) -> int:
        return places[id(after.layers[i].layer.weights_node)]

    noisy = {place(i) for change in changes for i in change.squares if any(noises[k] > done.max_noise for k in change.squares)}
    is_changed = False
    for change in changes:
        # All weights of an operator have one type. If some are stored as u8, all are, so all are safe.
        if any(noises[i] > done.max_noise for i in change.squares) or (
                done.engines == ["onnxruntime"] and any(place(i) in noisy for i in change.squares)):
            continue
        is_changed = True
        for i in {place(i): i for i in change.squares}.values():
            editor.set_weights(after.layers[i].layer, place(i), change.weights, "shortened")
        for i in change.squares:
            row = done.layers[i]
            row.noise, row.shortened = noises[i], change.changed[i]
            if i in change.halved:
                row.halved = int(change.halved[i][1].sum())
                editor.scale(*change.halved[i], places)
    return is_changed, refused


def _store_rest_as_u8(editor: Editor, after: Audit, done: Repair, _: Planner) -> tuple[bool, dict[int, str]]:
    """Stores the weights of all layers that can still saturate as u8. Returns whether some layer got u8 weights, and the reasons
    of layers that did not."""
    if "onnxruntime" not in done.engines:
        return False, {}
    places = {id(node): i for i, node in enumerate(every_node(after.model.proto.graph))}
    nodes = list(every_node(editor.proto.graph))
    readers = [one.layer.weights_node if one.layer.inner_node is None else one.layer.inner_node for one in after.layers]
    unsafe = [i for i, audited in enumerate(after.layers) if audited.fails(["onnxruntime"])]
    recurrent = {id(readers[i]) for i in unsafe if after.layers[i].layer.op_type == "DynamicQuantizeLSTM"}
    # All weights of an LSTM have one type.
    unsafe += [i for i, reader in enumerate(readers) if i not in unsafe and id(reader) in recurrent]
    refused: dict[int, str] = {}
    changed = set()
    for i in unsafe:
        layer = after.layers[i].layer
        if layer.a_type != "u8":
            continue
        key = (places[id(readers[i])], layer.weights_input)
        if key in changed:
            continue
        reason = editor.store_as_u8(layer, nodes[key[0]])
        if reason:
            refused[i] = reason
        else:
            changed.add(key)
    return bool(changed), refused


def _describe(done: Repair, before: Audit, after: Audit, plan: Planner, refused: "dict[int, str]") -> None:
    for i, (row, old, new) in enumerate(zip(done.layers, before.layers, after.layers)):
        row.left = worst(new, done.engines)[0]
        row.copied_channels = len(channels_of(new.layer)) - len(channels_of(old.layer))
        reason = plan.reasons.get(i, "")
        is_u8 = new.layer.b_type == "u8" and old.layer.b_type == "s8"
        row.reason = "; ".join(dict.fromkeys(filter(None, [reason, refused.get(i)])))
        if row.left and done.max_noise and row.means.noise is not None and row.means.noise > done.max_noise:
            row.reason += f"; shortened weights would have a noise of {row.means.noise:.3g}"
        if row.left:
            row.how = "left"
        elif row.shortened:
            row.how = "shortened weights"
        elif is_u8:
            row.how = "u8 weights"
        elif row.is_gathered:
            row.how = "gathered order"
        elif not row.unsafe:
            row.how, row.reason = "stored order", ""
        else:
            row.how, row.reason = "folded order", ""
