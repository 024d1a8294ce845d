"""A repair as text and as JSON."""

from __future__ import annotations

from typing import Any

from .._audit.report import EXPLANATION, finite, table_lines, verdict
from .._engines.table import engines
from .._library import counted, excerpt
from .result import NOTABLE, Repair, RepairedLayer

JSON_SCHEMA = "intact-repair"
JSON_VERSION = 1
_WIDEST = 60


def _count(repair: Repair, how: str) -> int:
    return sum(layer.how == how for layer in repair.layers)


def summary(repair: Repair) -> str:
    """One line: how many layers could compute wrong sums, and what was done to them."""
    unsafe = sum(layer.unsafe > 0 for layer in repair.layers)
    kinds = {
        "folded order": "made safe by an order of channels",
        "gathered order": "made safe by a Gather in front",
        "shortened weights": "got shortened weights",
        "u8 weights": "got u8 weights",
        "left": "are still unsafe",
    }
    parts = [f"{_count(repair, how)} {what}" for how, what in kinds.items() if _count(repair, how)]
    head = f"{unsafe} of {counted(len(repair.layers), 'layer')} could compute wrong sums on CPUs without VNNI"
    return head + ("; " + ", ".join(parts) if parts else "")


_ALTERNATIVES = ["best order", "copied channels", "Gather", "u8 weights", "noise"]
_COSTS = (
    "best order: unsafe pairs that remain; copied channels: their number, and percent of the model's {unit}; Gather, "
    "u8 weights: percent of the model's time; noise: squared steps by shortened weights; -: does not apply"
)
_HOW = {
    "folded order": "channel order",
    "gathered order": "channel order, by a Gather",
    "stored order": "safe as stored",
    "left": "still unsafe",
}


def _alternatives(layer: RepairedLayer) -> list[str]:
    """The table's cells with the cost of each way to make the layer safe."""
    means = layer.means

    def percent(value: "float | None") -> str:
        return "-" if value is None else f"+{value:.2g} %"

    zeros = "-" if means.copied_channels is None else f"{means.copied_channels}, {percent(means.depth)}"
    return [
        "-" if means.order_leaves is None else f"{means.order_leaves:,}",
        zeros,
        percent(means.gather),
        percent(means.u8_weights),
        "-" if means.noise is None else f"{means.noise:.2g}",
    ]


def _decibels(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} dB"


def _widened(repair: Repair) -> list[str]:
    """Lines on the weights and activations that got 8 bits instead of 7 before the repair."""
    widened = repair.widened
    if widened is None:
        return []
    full = sum(not layer.reason and not layer.bounded for layer in widened.layers)
    bounded = sum(not layer.reason and bool(layer.bounded) for layer in widened.layers)
    head = f"{excerpt(repair.before.model.path, 400)}: {len(widened.layers)} of {counted(len(repair.layers), 'layer')} have 7-bit weights"
    lines = [
        head
        + (
            f"; {full} got the full range of 8 bits from {excerpt(widened.float_model, 400)}"
            if widened.layers
            else ""
        )
        + (f", {bounded} only the range that is safe in the stored order" if bounded else "")
    ]
    if widened.layers:
        rows = [["layer", "operator", "weights, 7 bits", "now", "float weights"]]
        rows += [
            [
                layer.name,
                layer.operator,
                _decibels(layer.before),
                _decibels(layer.after) if not layer.reason else "",
                f"left: {layer.reason}"
                if layer.reason
                else excerpt(layer.constant)
                + (f"; not the full range: {layer.bounded}" if layer.bounded else ""),
            ]
            for layer in widened.layers
        ]
        lines += table_lines(rows, _WIDEST)
    if widened.activations:
        done = sum(not tensor.reason for tensor in widened.activations)
        lines.append(
            f"activations: {done} of {counted(len(widened.activations), 'tensor')} of 7 bits got the full range"
        )
        lines += [
            f"  {excerpt(tensor.name)}: left: {tensor.reason}"
            for tensor in widened.activations
            if tensor.reason
        ]
    return lines


def _price(repair: Repair) -> list[str]:
    """Lines on the time that the repair adds, and on cheaper repairs."""
    means = (
        [f"{counted(_count(repair, 'u8 weights'), 'layer')} with u8 weights"]
        if _count(repair, "u8 weights")
        else []
    )
    means += [counted(repair.copied_channels, "copied channel")] if repair.copied_channels else []
    means += [counted(_count(repair, "gathered order"), "Gather")] if _count(repair, "gathered order") else []
    lines = [
        f"price: {repair.price:+.2g} % of the time of the model's products, predicted ({', '.join(means) or 'orders cost nothing'}"
        f"{'; the mean of a CPU with VNNI and one without' * bool(means)})"
    ]
    if repair.check is not None and repair.check.time is not None:
        lines[0] += f"; measured on this CPU: a run takes {repair.check.time:.2f} times the CPU time"
    lines += [
        f"cheaper: {option}: {price:+.2g} %, but outputs move: the command measures by how much"
        for option, price in repair.cheaper
    ]
    if repair.price >= NOTABLE and repair.engines == ["onnxruntime"]:
        lines.append(
            "cheaper: the stored model with intact's execution provider, which computes exact sums (docs/onnxruntime.md)"
        )
    return lines


def to_text(repair: Repair) -> str:
    """The table of layers, then remarks. The last line is the verdict on the repaired model."""
    names = ", ".join(engines()[name].words for name in repair.engines)
    lines = _widened(repair)
    lines.append(f"{excerpt(repair.before.model.path, 400)}: {summary(repair)} (engines: {names})")
    head = ["layer", "operator", "unsafe pairs", "after", *_ALTERNATIVES, "made safe by"]
    rows = [head]
    for layer in repair.layers:
        how = _HOW.get(layer.how, layer.how) + (
            f", {counted(layer.copied_channels, 'copied channel')}" if layer.copied_channels else ""
        )
        if layer.shortened:
            how += f" ({layer.shortened:,}), noise {layer.noise:.2g}" + (
                f", {counted(layer.halved, 'output')} of 7 bits" if layer.halved else ""
            )
        if layer.reason:
            how += f" (no order helps: {layer.reason})"
        rows.append(
            [
                layer.name,
                layer.operator,
                f"{layer.unsafe:,} of {layer.pairs:,}",
                f"{layer.left:,}",
                *_alternatives(layer),
                how,
            ]
        )
    lines += table_lines(rows, _WIDEST)
    if any(layer.unsafe for layer in repair.layers):
        lines += [EXPLANATION, _COSTS.format(unit=repair.work.unit)]
    if _count(repair, "left"):
        lines.append(
            f"remedy for layers that are still unsafe: {'a larger ' * bool(repair.max_noise)}--max-noise X (shortened "
            "weights), or 7-bit weights (reduce_range of the quantizer)"
        )
    if repair.orders:
        lines.append(
            f"orders: {counted(repair.orders, 'group')} of channels in a new order, folded into the constants"
        )
    if repair.copied_channels:
        lines.append(
            f"copied channels: {repair.copied_channels} in all; they add {repair.depth:.2g} % to the model's "
            f"{repair.work.unit} (at most {repair.max_depth:g} %: --max-depth)"
        )
    shortened = [layer for layer in repair.layers if layer.shortened]
    if shortened:
        lines.append(
            f"shortened weights: {sum(layer.shortened for layer in shortened):,} in {counted(len(shortened), 'layer')}; their "
            f"noise is at most {max(layer.noise for layer in shortened):.2g} squared steps "
            f"(--max-noise {repair.max_noise:g}; rounding to 8 bits has a noise of 0.083)"
        )
    for name in repair.gathers:
        lines.append(f"output {excerpt(name)}: a Gather puts its channels back in the stored order")
    if repair.sums:
        lines.append(
            f"floats added in a new order: {', '.join(repair.sums)}; products stay exact, outputs move by rounding noise "
            "(--reorder-sums; without it outputs keep their bits)"
        )
    if repair.not_checked:
        lines.append(f"how far the outputs move was not measured: {repair.not_checked}")
    lines += _price(repair)
    for line in repair.check.lines() if repair.check else []:
        lines.append(line)
    lines += repair.before.model.decided_by()
    lines += repair.before.model.left_out() if not repair.layers else []
    lines.append(f"{excerpt(repair.out, 400)}: {verdict(repair.after)}")
    return "\n".join(lines) + "\n"


def _widened_json(widened: Any) -> Any:
    if widened is None:
        return None
    return {
        "float_model": widened.float_model,
        "layers": [{key: finite(value) for key, value in vars(layer).items()} for layer in widened.layers],
        "activations": [vars(tensor) for tensor in widened.activations],
    }


def to_json(repair: Repair) -> dict[str, Any]:
    """The repair as JSON: schema "intact-repair"."""
    return {
        "schema": JSON_SCHEMA,
        "schema_version": JSON_VERSION,
        "model": repair.before.model.path,
        "repaired": repair.out,
        "engines": repair.engines,
        "summary": summary(repair),
        "verdict": verdict(repair.after),
        "proven": repair.is_proven,
        "orders": repair.orders,
        "copied_channels": repair.copied_channels,
        "work_added_percent": repair.depth,
        "work_unit": repair.work.unit,
        "price_percent": repair.price,
        "cheaper": [{"option": option, "price_percent": price} for option, price in repair.cheaper],
        "max_depth": repair.max_depth,
        "max_noise": repair.max_noise,
        "floats_added_in_a_new_order": repair.sums,
        "outputs_gathered": repair.gathers,
        "undo_reduce_range": _widened_json(repair.widened),
        "check": repair.check.to_json() if repair.check else None,
        "layers": [
            {
                "name": layer.name,
                "operator": layer.operator,
                "pairs": layer.pairs,
                "unsafe_pairs": layer.unsafe,
                "unsafe_pairs_after": layer.left,
                "made_safe_by": layer.how,
                "copied_channels": layer.copied_channels,
                "changed_weights": layer.shortened,
                "outputs_of_7_bits": layer.halved,
                "noise": layer.noise,
                "reason": layer.reason,
                "alternatives": vars(layer.means),
            }
            for layer in repair.layers
        ],
    }
