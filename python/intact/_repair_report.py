"""A repair as text and as JSON."""

from __future__ import annotations

from typing import Any

from ._audit import engines
from ._library import excerpt
from ._repair import Repair
from ._report import finite, verdict

JSON_SCHEMA = "intact-repair"
JSON_VERSION = 1
_WIDEST = 60


def _count(repair: Repair, how: str) -> int:
    return sum(layer.how == how for layer in repair.layers)


def summary(repair: Repair) -> str:
    """One line: how many layers could saturate, and what was done to them."""
    unsafe = sum(layer.unsafe > 0 for layer in repair.layers)
    kinds = {"folded order": "made safe by an order of channels", "u8 weights": "got u8 weights", "left": "can still saturate"}
    parts = [f"{_count(repair, how)} {what}" for how, what in kinds.items() if _count(repair, how)]
    return f"{unsafe} of {len(repair.layers)} layers could saturate" + ("; " + ", ".join(parts) if parts else "")


def _table(rows: list[list[str]]) -> list[str]:
    """Lines of a table; the last column may be long."""
    widths = [min(max(len(row[i]) for row in rows), _WIDEST) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell if len(cell) <= width else "…" + cell[1 - width:] for cell, width in zip(row[:-1], widths)]
        lines.append(("  " + "  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths)), row[-1]])).rstrip())
    return lines


def _decibels(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} dB"


def _widened(repair: Repair) -> list[str]:
    """What was given the full range before the repair."""
    widened = repair.widened
    if widened is None:
        return []
    full = sum(not layer.reason and not layer.bounded for layer in widened.layers)
    bounded = sum(not layer.reason and bool(layer.bounded) for layer in widened.layers)
    head = f"{excerpt(repair.before.model.path, 400)}: {len(widened.layers)} of {len(repair.layers)} layers have 7-bit weights"
    lines = [head + (f"; {full} got the full range of 8 bits from {excerpt(widened.float_model, 400)}" if widened.layers else "")
             + (f", {bounded} the steps that are safe in the stored order" if bounded else "")]
    if widened.layers:
        rows = [["layer", "operator", "weights, 7 bits", "now", "float weights"]]
        rows += [[layer.name, layer.operator, _decibels(layer.before), _decibels(layer.after) if not layer.reason else "",
                  f"left: {layer.reason}" if layer.reason else
                  excerpt(layer.constant) + (f"; not all steps: {layer.bounded}" if layer.bounded else "")]
                 for layer in widened.layers]
        lines += _table(rows)
    if widened.activations:
        done = sum(not tensor.reason for tensor in widened.activations)
        lines.append(f"activations: {done} of {len(widened.activations)} tensors of 7 bits got the full range")
        lines += [f"  {excerpt(tensor.name)}: left: {tensor.reason}" for tensor in widened.activations if tensor.reason]
    return lines


def to_text(repair: Repair) -> str:
    """The table, and the verdict of the audit of the repaired model on the last line."""
    names = ", ".join(engines()[name]["name"] for name in repair.engines)
    lines = _widened(repair)
    lines.append(f"{excerpt(repair.before.model.path, 400)}: {summary(repair)} (engines: {names})")
    head = ["layer", "operator", "unsafe pairs", "after", "made safe by"]
    rows = [head]
    for layer in repair.layers:
        how = layer.how + (f", {layer.zero_channels} zero channels" if layer.zero_channels else "")
        if layer.reason:
            how += f": {layer.reason}" if layer.how == "left" else f" ({layer.reason})"
        rows.append([layer.name, layer.operator, f"{layer.unsafe:,} of {layer.pairs:,}", f"{layer.left:,}", how])
    lines += _table(rows) if repair.layers else []
    if repair.orders:
        added = f"; {repair.zero_channels} zero channels added in all" if repair.zero_channels else ""
        lines.append(f"orders: {repair.orders}, folded into the constants{added}")
    for name in repair.gathers:
        lines.append(f"output {excerpt(name)}: a Gather puts its channels back in the stored order")
    if repair.sums:
        lines.append(f"floats added in a new order: {', '.join(repair.sums)}; products stay exact, outputs agree to rounding "
                     "(--bit-exact leaves these orders as stored)")
    for line in repair.check.lines() if repair.check else []:
        lines.append(line)
    lines.append(f"{excerpt(repair.after.model.path, 400)}: {verdict(repair.after)}")
    return "\n".join(lines) + "\n"


def _widened_json(widened: Any) -> Any:
    if widened is None:
        return None
    return {"float_model": widened.float_model,
            "layers": [{key: finite(value) for key, value in vars(layer).items()} for layer in widened.layers],
            "activations": [vars(tensor) for tensor in widened.activations]}


def to_json(repair: Repair) -> dict[str, Any]:
    """The repair as JSON: schema "intact-repair"."""
    return {
        "schema": JSON_SCHEMA,
        "schema_version": JSON_VERSION,
        "model": repair.before.model.path,
        "repaired": repair.after.model.path,
        "engines": repair.engines,
        "summary": summary(repair),
        "verdict": verdict(repair.after),
        "proven": repair.is_proven,
        "orders": repair.orders,
        "zero_channels": repair.zero_channels,
        "floats_added_in_a_new_order": repair.sums,
        "outputs_gathered": repair.gathers,
        "undo_reduce_range": _widened_json(repair.widened),
        "check": repair.check.to_json() if repair.check else None,
        "layers": [{"name": layer.name, "operator": layer.operator, "pairs": layer.pairs, "unsafe_pairs": layer.unsafe,
                    "unsafe_pairs_after": layer.left, "made_safe_by": layer.how, "zero_channels": layer.zero_channels,
                    "reason": layer.reason}
                   for layer in repair.layers],
    }
