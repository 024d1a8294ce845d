"""The steps of a repair. Each changes the state's model where the steps before it left layers unsafe, and
returns whether it changed something. `State.reread()` then writes and audits the model."""

from __future__ import annotations

import copy
import itertools
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._audit.audit import Audit, audit
from .._audit.run import exact_variant
from .._graph.nodes import every_node
from .._graph.scope import Scope
from .._library import Error
from .editor import Editor
from .files import is_external, write
from .places import channels_of, own_order
from .plan import Planner, worst
from .result import Repair, RepairedLayer
from .shorten import Halving, halved, halving, shortened, squares, weights_key


@dataclass
class State:
    """A repair that is going on. `editor`: holds the model; `after`: its audit, `places`: the numbers of its
    outermost graph's nodes, by id. `folder`: for the model's file, `name`. `source`: the folder of the stored
    model. `refused`: by layer, why a step did not change it."""

    done: Repair
    plan: Planner
    editor: Editor
    folder: Path
    name: str
    source: Path
    ask: bool
    after: "Audit | None" = None
    refused: "dict[int, str]" = field(default_factory=dict)
    places: "dict[int, int]" = field(default_factory=dict)
    scope: "Scope | None" = None

    def __post_init__(self) -> None:
        self.is_external = is_external(self.editor.proto)

    def reread(self) -> None:
        """Writes the model and audits it."""
        proto = copy.deepcopy(self.editor.proto) if self.is_external else self.editor.proto
        write(proto, self.folder, self.name, self.source, self.is_external)
        found = audit(self.folder / self.name, engines_asked=self.done.engines, ask=self.ask)
        self.after = _same_layers(found, self.done.before)
        graph = found.model.proto.graph
        self.places = {id(node): i for i, node in enumerate(graph.node)}
        self.scope = Scope(graph, self.folder)

    def place(self, node: Any) -> int:
        """The number of a node of the outermost graph, which the last audit read."""
        return self.places[id(node)]

    def fails(self, i: int) -> bool:
        return self.after.layers[i].fails(self.done.engines)


def _same_layers(after: Audit, before: Audit) -> Audit:
    """The audit of a changed model. Raises `Error` if it does not have the layers of the model before: a
    layer that ONNX Runtime now runs in float would be missing, and no longer proven."""

    def names(one: Audit) -> list[str]:  # without numbers by unique(), which inserted operators change
        return [re.sub(r" \(operator \d+\)$", "", audited.layer.name) for audited in one.layers]

    for stored, repaired in itertools.zip_longest(names(before), names(after)):
        if stored != repaired:
            raise Error(
                "INTERNAL",
                f"the repaired model has the layer {repaired!r} where the stored model has {stored!r}; "
                "expected the same layers",
            )
    return after


def fold(state: State) -> None:
    """The first step: folds the plan's orders into the constants."""
    axes, plan, done = state.plan.axes, state.plan, state.done
    state.editor.fold(axes, plan.orders, plan.copies)
    done.gathers = state.editor.restore_outputs(axes, plan.orders, plan.copies)
    done.orders = len(plan.orders)
    done.copied_channels = sum(int(zero.sum()) for zero in plan.copies.values())
    done.depth = plan.work.percent(plan.added)
    done.sums = sorted({root.sums for root in plan.orders if root.sums})
    for audited, means in zip(done.before.layers, plan.means):
        unsafe, pairs = worst(audited, done.engines)
        done.layers.append(
            RepairedLayer(audited.layer.name, audited.layer.node, pairs, unsafe, unsafe, means=means)
        )


@dataclass
class _Change:
    """New weights for an operator. For each layer: the sum of squared changes, the number of weights that
    change, and the outputs with halved weights."""

    weights: np.ndarray
    squares: dict[int, float]
    changed: dict[int, int]
    halved: "dict[int, tuple[Halving, np.ndarray]]"


def _change(after: Audit, members: list[int], stored: np.ndarray, scope: Scope, names: list[str]) -> _Change:
    """The smallest change of the weights that the layers `members` share, so that none of the layers can
    saturate."""
    numbers = np.arange(stored.size).reshape(stored.shape)
    found = _Change(stored.copy(), {}, {}, {})
    for i in members:  # shared weights are shortened for each layer in turn
        layer = after.layers[i].layer
        pairings = after.layers[i].pairings(names)
        found.weights.reshape(-1)[layer.view(numbers)] = shortened(
            replace(layer, weights=layer.view(found.weights)), pairings
        )
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


def gather_rest(state: State) -> bool:
    """Puts a Gather in front of each convolution that can still saturate, if the plan has a Gather there.
    Whole planes of pixels move."""
    done, plan, editor = state.done, state.plan, state.editor
    is_changed = False
    for i in sorted(plan.gathered):
        audited = state.after.layers[i]
        layer = audited.layer
        if not state.fails(i):
            continue
        source, copies = own_order(layer, audited.pairings(done.engines), plan.max_noise)
        reason = editor.gather(
            layer, state.place(layer.graph_node), state.place(layer.weights_node), state.scope, source, copies
        )
        if reason:
            state.refused[i] = f"no Gather in front: {reason}"
            continue
        is_changed = done.layers[i].is_gathered = True
        count = layer.weights.shape[-1]
        work = plan.work.layers[i] // done.before.layers[i].layer.weights.shape[-1]  # the work of one channel
        done.depth += plan.work.percent((len(source) - count) * work)
        done.copied_channels += len(source) - count
    editor.insert()
    return is_changed


def _changes(state: State) -> "list[_Change]":
    """Shorter weights for the layers that can still saturate, if nothing else reads their weights."""
    found: list[_Change] = []
    after, scope = state.after, state.scope
    for members in _weights_readers(after, scope):
        if not any(map(state.fails, members)):
            continue
        one = after.layers[members[0]].layer
        name = one.weights_node.input[one.weights_input]
        if name in scope.overridable:
            state.refused.update({i: "weights that a caller may override" for i in members})
        elif isinstance(weights_key(one, scope), str) and len(scope.consumers[name]) > len(members):
            state.refused.update({i: "weights that another operator reads" for i in members})
        else:
            found.append(_change(after, members, scope.constant(name), scope, state.done.engines))
    return found


def shorten_rest(state: State) -> bool:
    """Shortens the weights of layers that can still saturate, if the noise is small enough."""
    done, after, editor = state.done, state.after, state.editor
    changes = _changes(state) if done.max_noise else []
    noises = {
        i: change.squares[i] / done.before.layers[i].layer.weights.size
        for change in changes
        for i in change.squares
    }

    def place(i: int) -> int:
        return state.place(after.layers[i].layer.weights_node)

    noisy = {
        place(i)
        for change in changes
        for i in change.squares
        if any(noises[k] > done.max_noise for k in change.squares)
    }
    is_changed = False
    for change in changes:
        # All weights of an operator have one type. If some are stored as u8, all are, so all are safe.
        if any(noises[i] > done.max_noise for i in change.squares) or (
            done.engines == ["onnxruntime"] and any(place(i) in noisy for i in change.squares)
        ):
            continue
        is_changed = True
        for i in {place(i): i for i in change.squares}.values():
            editor.set_weights(after.layers[i].layer, place(i), change.weights, "shortened")
        for i in change.squares:
            row = done.layers[i]
            row.noise, row.shortened = noises[i], change.changed[i]
            if i in change.halved:
                row.halved = int(change.halved[i][1].sum())
                editor.scale(*change.halved[i], state.places)
    if is_changed:
        done.ordered = exact_variant(after, done)
    return is_changed


def store_rest_as_u8(state: State) -> bool:
    """Stores the weights of all layers that can still saturate as u8."""
    after = state.after
    if "onnxruntime" not in state.done.engines:
        return False
    places = {id(node): i for i, node in enumerate(every_node(after.model.proto.graph))}
    nodes = list(every_node(state.editor.proto.graph))
    readers = [
        one.layer.weights_node if one.layer.inner_node is None else one.layer.inner_node
        for one in after.layers
    ]
    unsafe = [i for i, audited in enumerate(after.layers) if audited.fails(["onnxruntime"])]
    recurrent = {id(readers[i]) for i in unsafe if after.layers[i].layer.op_type == "DynamicQuantizeLSTM"}
    # All weights of an LSTM have one type.
    unsafe += [i for i, reader in enumerate(readers) if i not in unsafe and id(reader) in recurrent]
    changed = set()
    for i in unsafe:
        layer = after.layers[i].layer
        key = (places[id(readers[i])], layer.weights_input)
        if layer.a_type != "u8" or key in changed:
            continue
        reason = state.editor.store_as_u8(layer, nodes[key[0]])
        if reason:
            state.refused[i] = reason
        else:
            changed.add(key)
    return bool(changed)


STEPS = (gather_rest, shorten_rest, store_rest_as_u8)


def describe(state: State) -> None:
    """Says of each layer what made it safe, or why it is not."""
    done, plan = state.done, state.plan
    for i, (row, old, new) in enumerate(zip(done.layers, done.before.layers, state.after.layers)):
        row.left = worst(new, done.engines)[0]
        row.copied_channels = len(channels_of(new.layer)) - len(channels_of(old.layer))
        row.reason = "; ".join(dict.fromkeys(filter(None, [plan.reasons.get(i, ""), state.refused.get(i)])))
        if row.left and done.max_noise and row.means.noise is not None and row.means.noise > done.max_noise:
            row.reason += f"; shortened weights would have a noise of {row.means.noise:.3g}"
        if row.left:
            row.how = "left"
        elif row.shortened:
            row.how = "shortened weights"
        elif new.layer.b_type == "u8" and old.layer.b_type == "s8":
            row.how = "u8 weights"
        elif row.is_gathered:
            row.how = "gathered order"
        else:
            row.how, row.reason = "folded order" if row.unsafe else "stored order", ""
