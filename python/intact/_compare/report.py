"""A comparison as text, as JSON and as a page."""

from __future__ import annotations

import html
import math
import re
from typing import Any

from .._audit.page import listed, page, table, td, th
from .._audit.report import finite, output_words, table_lines
from .._deadline import IS_OVER
from .._engines.data import decibels
from .._engines.table import engines
from .._library import counted, excerpt, part_of
from .comparison import KINDS, Advice, ComparedLayer, Comparison, Distance

JSON_SCHEMA = "intact-compare"
JSON_VERSION = 1
_WORST = 3  # layers that the summary names in each category

_MEANING = {
    "data-insensitive": "of weights, biases and rounding: any input has it",
    "data-sensitive": "of ranges that do not fit each sample",
    "implementation": "of the engine, if larger than the quantization error",
}


def _dB(value: float) -> str:
    return "identical" if value == math.inf else "none" if value == -math.inf else f"{value:.1f} dB"


def _percent(*shares: float) -> str:
    """A share, or the smallest and the largest share."""
    return (
        " to ".join(
            f"{100 * share:.0f}" if share >= 0.1 or not share else f"{100 * share:.2g}" for share in shares
        )
        + " %"
    )


def _distance(d: "Distance | None", has_steps: bool = True) -> list[str]:
    if d is None:
        return ["", "", "", ""]
    return [
        _dB(d.sqnr),
        f"{d.cosine:.5f}",
        f"{d.l2:.4f}",
        f"{d.largest:.3g}" if has_steps else f"{d.largest:.3g} (float)",
    ]


def _spread(d: "Distance | None") -> str:
    if d is None or len(d.samples) < 2:
        return ""
    low, high = d.spread
    if math.isfinite(low) and math.isfinite(high):
        return f"{low:.0f} to {high:.0f} dB"
    return f"{_dB(low)} to {_dB(high)}"


def _alone(layer: ComparedLayer, *keys: str) -> float:
    """Decibels of the product over its errors with the causes `keys`."""
    return decibels(layer.product_signal, sum(layer.by.get(key, 0.0) for key in keys))


def _has_steps(layer: ComparedLayer) -> bool:
    return any(output.scale for output in layer.matched.outputs)


def _category(layer: ComparedLayer) -> str:
    words = [f"{layer.category} {_percent(layer.share)}"] if layer.category else []
    if layer.engine_excess > 0:
        words.append("implementation" + (f" +{layer.engine_excess:.0f} dB" if layer.category else ""))
    return ", ".join(words)


_DISTANCE = ["cosine", "L2", "largest"]


def _weights(layer: ComparedLayer) -> list[str]:
    scales = ("channels" if layer.is_per_channel else "tensor") + (", 7 bits" if layer.uses_7_bits else "")
    others = ("" if d is None else _dB(d.sqnr) for d in (layer.per_channel, layer.eighth_bit))
    m = layer.matched
    return [
        layer.name,
        m.layer.node,
        m.how,
        scales,
        *_distance(layer.weights),
        _dB(min(layer.channels)),
        *others,
    ]


def _input(layer: ComparedLayer) -> list[str]:
    is_static, used = layer.matched.is_static, layer.used
    return [
        layer.name,
        *_distance(layer.input),
        _percent(layer.clipped / max(layer.input.values, 1)) if is_static else "",
        _percent(min(used), max(used)) if used else "chosen by each run",
        _spread(layer.input),
        _dB(layer.dynamic_input.sqnr) if is_static else "",
    ]


def _output(layer: ComparedLayer) -> list[str]:
    clamps = f"{layer.clamped:,} of {layer.sums:,}" if layer.sums else ""
    by_itself, network = ([*_distance(d, _has_steps(layer)), _spread(d)] for d in (layer.own, layer.network))
    return [layer.name, *by_itself, *network, clamps, _category(layer)]


def tables(comparison: Comparison) -> list[tuple[str, list[list[str]]]]:
    """The tables of weights, activations and outputs: a title and rows, the first row the head."""
    layers = comparison.layers
    worst = sorted((layer for layer in layers if layer.own), key=lambda layer: layer.own.sqnr)[:_WORST]
    weights = ["layer", "operator", "float node found by", "scales", "SQNR", *_DISTANCE]
    weights += ["worst channel", "per channel", "8 bits"]
    inputs = ["layer", "SQNR", *_DISTANCE, "clipped", "range used", "samples", "dynamic"]
    outputs = ["", "layer", "by itself", *_DISTANCE, "samples", "in the network", *_DISTANCE, "samples"]
    outputs += ["wrong sums", "error by itself"]
    return [
        ("weights", [weights, *(_weights(layer) for layer in layers if layer.weights is not None)]),
        (
            "activations of the float model, as each layer quantizes them",
            [inputs, *(_input(layer) for layer in layers if layer.input is not None)],
        ),
        (
            "outputs",
            [
                outputs,
                *(
                    [">" if layer in worst else "", *_output(layer)]
                    for layer in layers
                    if layer.network is not None
                ),
            ],
        ),
    ]


def _evidence(comparison: Comparison, layer: ComparedLayer, kind: str) -> str:
    own, by, used = _dB(layer.own.sqnr), layer.by, layer.used
    if not by:
        return f"{layer.name}: by itself {own}; its weights {_dB(layer.weights.sqnr)}"
    rounded, fitted = (decibels(layer.own.signal, by[key]) for key in ("output", "dynamic_output"))
    if kind == "data-insensitive":
        bias = f", its bias {_dB(_alone(layer, 'bias'))}" if by["bias"] > 0.1 * layer.explained else ""
        output = f", rounding of its output {_dB(fitted)}" if by["output"] else ""
        return (
            f"{layer.name}: by itself {own}; its weights alone {_dB(_alone(layer, 'weights'))}{bias}, rounding of its input "
            f"{_dB(_alone(layer, 'dynamic_input'))}{output}"
        )
    if kind == "data-sensitive":
        parts = [f"{layer.name}: by itself {own}"]
        if by["input"] - by["dynamic_input"] > 0.2 * layer.parts[kind]:
            parts.append(
                f"its input's quantization alone {_dB(_alone(layer, 'input'))}, with a range for each sample "
                f"{_dB(_alone(layer, 'dynamic_input'))}"
            )
            parts.append(f"samples use {_percent(min(used), max(used))} of the range")
            if layer.clipped:
                parts.append(f"{_percent(layer.clipped / layer.input.values)} of the input is clipped")
        if by["output"] - by["dynamic_output"] > 0.2 * layer.parts[kind]:
            parts.append(
                f"its output's quantization alone {_dB(rounded)}, with a range for each sample {_dB(fitted)}"
            )
            if layer.output_clipped:
                parts.append(f"{_percent(layer.output_clipped / layer.own.values)} of the output is clipped")
        return "; ".join(parts)
    if layer.unexplained:
        explained = _dB(decibels(layer.own.signal, layer.explained))
        return (
            f"{layer.name}: by itself {own}; weights, activations and rounding explain only {explained}: its operator does "
            "not compute what the float node computes"
        )
    if layer.differs_here:
        where = "the emulated CPU" if comparison.is_emulated else "this CPU"
        text = (
            f"{layer.name}: ONNX Runtime on {where} is {_dB(layer.here.sqnr)} from exact sums (rounding noise alone: "
            f"{_dB(layer.control.sqnr)})"
        )
        return text + (f"; int16 clamps {layer.clamped:,} of {layer.sums:,} sums" if layer.clamped else "")
    return (
        f"{layer.name}: on CPUs without VNNI int16 clamps {layer.clamped:,} of {layer.sums:,} sums: "
        f"{_dB(_alone(layer, 'clamps'))}; with exact sums {own}"
    )


def _advice(advice: Advice) -> str:
    layers = advice.layers
    names = ", ".join([*layers[:_WORST], *["…"] * (len(layers) > _WORST)])
    where = names if len(layers) == 1 else f"{counted(len(layers), 'layer')} ({names})"
    return (
        f"{advice.what}: {where}: output {excerpt(advice.output)} goes from {advice.before:.1f} to {advice.after:.1f} dB "
        f"against the float model (chance: {advice.control:.1f} dB)"
    )


def _remedy(comparison: Comparison) -> list[str]:
    """A line on how to make the engine exact, if sums clamp on the data."""
    clamping = [layer for layer in comparison.layers if layer.clamped]
    if not clamping:
        return []
    remedies = list(dict.fromkeys(text for audited in comparison.audit.layers for text in audited.remedies))
    gains = [
        f"output {excerpt(o.name)} goes from {o.stock_to_float:.1f} to {o.exact_to_float:.1f} dB against the float model"
        for o in comparison.audit.on_data.outputs
        if o.exact_to_float is not None and comparison.audit.on_data.stock_clamps and o.stock < o.noise
    ]
    how = "; ".join(remedies[:1] + [text for text in remedies if "intact repair" in text])
    words = f"would help on CPUs without VNNI: exact sums in {counted(len(clamping), 'layer')} ({how})"
    return [words + (f": {', '.join(gains)}" if gains else "")]


def summary(comparison: Comparison) -> list[str]:
    """Lines on the categories with their evidence, on the outputs, and on what would help."""
    of = len(comparison.layers)
    lines = []
    for kind in KINDS:
        found = comparison.of(kind)
        lines.append(f"{kind} error ({_MEANING[kind]}): {len(found)} of {counted(of, 'layer')}")
        lines += [f"  {_evidence(comparison, layer, kind)}" for layer in found[:_WORST]]
    lines += [output_words(comparison.audit, output) for output in comparison.audit.on_data.outputs]
    same = [layer for layer in comparison.layers if layer.here is not None]
    if same and not any(layer.differs_here for layer in same):
        where = "the emulated CPU" if comparison.is_emulated else "this CPU"
        lines.append(
            f"ONNX Runtime on {where}: each of {counted(len(same), 'layer')}, by itself, differs from exact sums no more than by "
            "rounding noise"
        )
    reasons: dict[str, list[str]] = {}
    for layer in comparison.layers:
        if layer.reason:
            reasons.setdefault(layer.reason, []).append(layer.name)
    lines += [f"not compared: {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    if comparison.samples < 2:
        lines.append(
            "one sample: how errors differ between samples is not known; give more by --each or a folder of .npz files"
        )
    lines += [f"missing: {what}: {IS_OVER}" for what in comparison.missing]
    lines += [
        f"note: {note}"
        for note in sorted({layer.layer.note for layer in comparison.audit.layers if layer.layer.note})
    ]
    lines += comparison.audit.model.decided_by()
    lines += [f"would help: {_advice(advice)}" for advice in comparison.advice if advice.helps]
    lines += _remedy(comparison)
    lines += [
        f"tried, helps no more than chance: {_advice(advice)}"
        for advice in comparison.advice
        if not advice.helps and len(advice.layers) > 1
    ]
    lines += [f"could not be tried: {text}" for text in comparison.not_measured]
    return lines


def headline(comparison: Comparison) -> str:
    matched = sum(layer.matched.float_node is not None for layer in comparison.layers)
    return (
        f"{excerpt(comparison.audit.model.path, 400)} against {excerpt(comparison.float_path, 400)}: {matched} of "
        f"{counted(len(comparison.layers), 'layer')} found in the float model; {counted(comparison.samples, 'sample')}"
    )


def verdict(comparison: Comparison) -> str:
    """One line: how far the outputs are from the float model's, whether the engine adds errors, and what
    would help most."""
    outputs = [output for output in comparison.audit.on_data.outputs if output.stock_to_float is not None]
    parts = []
    if outputs:
        worst = min(outputs, key=lambda output: output.stock_to_float)
        where = "on the emulated CPU" if comparison.is_emulated else "on this CPU"
        parts.append(
            f"output {excerpt(worst.name)} {where} is {_dB(worst.stock_to_float)} from the float model's, with exact sums "
            f"{_dB(worst.exact_to_float)}"
        )
    clamping = sum(layer.clamped > 0 for layer in comparison.layers)
    hidden, of = len(comparison.uncounted), len(comparison.layers)
    others = part_of(clamping, of - hidden, "layer", "computes", "compute") + " wrong sums on this data"
    parts.append(
        "on CPUs without VNNI "
        + (
            others
            if not hidden
            else (
                f"it is not known how many sums of {hidden} of {counted(of, 'layer')} are wrong"
                + (f"; of the others {others}" if of > hidden else "")
            )
        )
    )
    unknown = sum(bool(layer.reason) for layer in comparison.layers)
    if unknown:
        parts.insert(0, f"{unknown} of {counted(of, 'layer')} were not compared")
    helpful = sorted(
        (advice for advice in comparison.advice if advice.helps), key=lambda advice: -advice.gain
    )
    parts.append(
        f"most helps: {helpful[0].what}, +{helpful[0].gain:.1f} dB"
        if helpful
        else "no change that was tried helps more than chance"
        if comparison.advice
        else "no change was tried"
    )
    return "; ".join(parts)


def _shown(comparison: Comparison) -> list[tuple[str, list[list[str]]]]:
    """The tables with the outputs first, without tables that have only a head, and without empty columns."""
    found = []
    for title, rows in reversed(tables(comparison)):
        kept = [k for k in range(len(rows[0])) if any(row[k] for row in rows[1:])]
        if kept:
            found.append((title, [[row[k] for k in kept] for row in rows]))
    return found


def to_text(comparison: Comparison) -> str:
    lines = [headline(comparison)]
    for title, rows in _shown(comparison):
        lines += [f"{title}:", *table_lines(rows, 60)]
    return "\n".join([*lines, *summary(comparison), verdict(comparison)]) + "\n"


def _json(d: "Distance | None", has_steps: bool = True) -> "dict[str, Any] | None":
    if d is None:
        return None
    return {
        "sqnr": finite(d.sqnr),
        "cosine": finite(d.cosine),
        "normalised_l2": finite(d.l2),
        "largest_error": finite(d.largest),
        "largest_error_unit": "steps" if has_steps else "float",
        "values": d.values,
        "sqnr_of_samples": [finite(value) for value in d.samples],
    }


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON: schema "intact-compare". Equal values have the SQNR null."""
    result = comparison.audit
    return {
        "schema": JSON_SCHEMA,
        "schema_version": JSON_VERSION,
        "model": result.model.path,
        "float_model": comparison.float_path,
        "samples": comparison.samples,
        "missing": comparison.missing,
        "engine": engines()["onnxruntime"].words,
        "emulated": comparison.is_emulated,
        "cpu_without_vnni": result.cpu_clamps,
        "verdict": verdict(comparison),
        "summary": [headline(comparison), *summary(comparison)],
        "outputs": [
            {key: finite(value) for key, value in vars(output).items()} for output in result.on_data.outputs
        ],
        "advice": [
            {
                **{key: finite(value) for key, value in vars(advice).items()},
                "gain": finite(advice.gain),
                "helps": advice.helps,
            }
            for advice in comparison.advice
        ],
        "not_tried": comparison.not_measured,
        "layers": [
            {
                "name": layer.name,
                "operator": layer.matched.layer.node,
                "float_node": layer.matched.float_node.name if layer.matched.float_node else None,
                "matched_by": layer.matched.how if layer.matched.float_node else None,
                "not_compared": layer.reason or None,
                "scales": "channels" if layer.is_per_channel else "tensor",
                "seven_bit_weights": layer.uses_7_bits,
                "weights": _json(layer.weights),
                "weights_sqnr_of_channels": [finite(value) for value in layer.channels],
                "weights_sqnr_per_channel": layer.per_channel and finite(layer.per_channel.sqnr),
                "weights_sqnr_8_bits": layer.eighth_bit and finite(layer.eighth_bit.sqnr),
                "input": _json(layer.input),
                "input_quantized_dynamically": _json(layer.dynamic_input),
                "input_clipped": layer.clipped,
                "output_clipped": layer.output_clipped,
                "input_range": layer.calibrated,
                "input_ranges_of_samples": layer.ranges,
                "own": _json(layer.own, _has_steps(layer)),
                "in_the_network": _json(layer.network, _has_steps(layer)),
                "sqnr_of_parts": {key: finite(_alone(layer, key)) for key in layer.by},
                "sums": layer.sums,
                "clamped_sums": layer.clamped,
                "engine_against_exact": _json(layer.here, _has_steps(layer)),
                "control_against_exact": _json(layer.control, _has_steps(layer)),
                "category": layer.category or None,
                "category_share": layer.share,
                "implementation_excess_db": finite(layer.engine_excess),
                "implementation_error": layer.engine_excess > 0,
            }
            for layer in comparison.layers
        ],
    }


def _sort_key(cell: str) -> str | None:
    """What a page sorts a cell by that begins with a number, or that is a distance."""
    if cell in ("identical", "none"):
        return "1e9" if cell == "identical" else "-1e9"
    number = re.match(r"-?[\d,]*\.?\d+(e[-+]?\d+)?(?= |$)", cell)
    return number.group().replace(",", "") if number else None


def to_html(comparison: Comparison) -> str:
    """A page: the verdict, the summary, and the tables, the outputs first."""
    parts = []
    for title, (heads, *rows) in _shown(comparison):
        cells = (
            "".join(td(label, html.escape(cell), _sort_key(cell)) for label, cell in zip(heads, row))
            for row in rows
        )
        parts.append(f"<h2>{html.escape(title)}</h2>{table(map(th, heads), cells)}")
    return page(
        "intact compare", headline(comparison), verdict(comparison), listed(summary(comparison)), *parts
    )
