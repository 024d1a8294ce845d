"""An audit as text, as JSON and as a page."""

from __future__ import annotations

import html
import json
import math
from typing import Any

from .._engines.known_operators import float_nodes_by_cpu
from .._engines.table import engines
from .._graph.nodes import every_node
from .._library import counted, excerpt, part_of
from .audit import Audit, AuditedLayer, Certified, why_exact
from .page import bar, listed, page, table, td, th

JSON_SCHEMA = "intact-audit"
JSON_VERSION = 1


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def verdict(audit: Audit) -> str:
    """One line: how many layers can saturate, in which engines, and whether this CPU is affected."""
    if not audit.layers and not audit.products and audit.missing:
        return f"no layer was audited; {_left_out(audit)}"
    if not audit.layers and not audit.products:
        return "no quantized layer with constant weights was found"
    table = engines()
    parts = []
    data = _data_verdict(audit)
    products = _products_verdict(audit)
    if not audit.layers:
        parts, products = [products], ""
    for name in audit.engines if audit.layers else ():
        failing = audit.failing(name)
        of = len(audit.layers)
        what = (
            f"{failing} of {counted(of, 'layer')} can compute wrong sums"
            if failing
            else f"{'the layer is' if of == 1 else f'all {of} layers are'} proven safe"
        )
        parts.append(f"{what} in {table[name].words}")
    here = f"this CPU {why_exact()} and is not affected"
    if audit.affecting:
        names = ", ".join(table[name].words for name in audit.affecting)
        here = (
            "this CPU has no VNNI and is affected"
            if audit.cpu_clamps
            else f"this CPU has VNNI, but some layers can be wrong here too in {names}"
        )
    left = f"; {_left_out(audit)}" if audit.model.not_audited else ""
    if not audit.is_unsafe:
        return "; ".join(parts) + ", whatever the input" + (products and f"; {products} too") + left
    return (
        "on CPUs without VNNI "
        + "; ".join(parts)
        + (products and f"; {products} too")
        + "; "
        + data
        + here
        + left
    )


def _left_out(audit: Audit) -> str:
    left = audit.model.not_audited
    return f"{counted(left, 'operator')} {'was' if left == 1 else 'were'} not audited"


NEAR = 3.0  # decibels by which a difference from exact sums must exceed rounding noise to count


def _data_verdict(audit: Audit) -> str:
    data = audit.on_data
    if data is None or not audit.layers:
        return ""
    seen = [layer for layer in data.layers.values() if layer is not None]
    changed = sum(layer.changed > 0 for layer in seen)
    name = engines()[data.engine].words
    hidden = [layer for layer in audit.layers if _is_hidden(audit, layer)]
    text = f"on {_your_data(data, data.counted)} "
    if hidden:
        text += (
            f"it is not known how many sums of {len(hidden)} of {counted(len(audit.layers), 'layer')} are wrong in {name} "
            f"({', '.join(sorted({_why_hidden(layer) for layer in hidden}))})"
            + ("; of the others " if seen else "")
        )
    if seen:
        text += (
            part_of(changed, len(audit.layers) - len(hidden), "layer", "computes", "compute")
            + f" wrong sums in {name}"
        )
    text += "; "
    if not data.stock_clamps or not data.outputs:
        return text
    if data.compared < data.runs:
        text += f"on {_your_data(data, data.compared)} "
    harmed = [o for o in data.outputs if o.stock < o.noise - NEAR]
    if not harmed:
        same = all(o.stock == math.inf for o in data.outputs)
        return text + (
            "the outputs are equal to those with exact sums; "
            if same
            else "the outputs change no more than by rounding noise; "
        )
    worst = min(harmed, key=lambda o: o.stock)
    return text + _harm(worst)


def _your_data(data: Any, done: int) -> str:
    """Words for the data. `done`: how many of the runs were finished."""
    return "your data" if done == data.runs else f"{done} of {counted(data.runs, 'run')} of your data"


def _is_hidden(audit: Audit, layer: AuditedLayer) -> bool:
    """Whether a layer can saturate, and its sums were not measured on the data."""
    return (
        audit.on_data.layers.get(layer.layer.name) is None
        and not layer.engines[audit.on_data.engine].is_proven
    )


def _why_hidden(layer: AuditedLayer) -> str:
    """Why the sums of a layer were not measured on data."""
    if layer.layer.within:
        return "in an inner graph"
    if layer.layer.op_type == "DynamicQuantizeLSTM":
        return "in an LSTM"
    return "their quantized inputs are no tensor of the model"


def _harm(output: Any) -> str:
    """Words on an output that clamped sums change by more than rounding noise. Only a distance from the float
    model is called an error."""
    text = (
        f"{output.stock_changed:,} of {output.values:,} value{'s' * (output.values != 1)} of output {excerpt(output.name)!r} "
        f"change{'s' * (1 in (output.stock_changed, output.values))}{_share_in_words(output.stock)}; rounding noise alone changes "
        + (f"{output.noise_changed:,}{_share_in_words(output.noise)}" if output.noise_changed else "none")
        + "; "
    )
    if output.exact_to_float is None or output.stock_to_float is None:
        return text
    is_near = output.stock_to_float >= output.exact_to_float - 1
    return text + (
        f"from the float model the output is {'no ' * is_near}farther than with exact sums: "
        f"{decibels_in_words(output.stock_to_float)}, with exact sums {decibels_in_words(output.exact_to_float)}; "
    )


def decibels_in_words(distance: float) -> str:
    if distance == math.inf:
        return "identical"
    if distance == -math.inf:
        return "infinitely far"
    return f"{distance:.0f} dB"


def _share_in_words(distance: float) -> str:
    if math.isfinite(distance):
        return f" by {100 * 10 ** (-distance / 20):.2g} % ({decibels_in_words(distance)})"
    return ""


def _products_verdict(audit: Audit) -> str:
    """Words on products of two activations, which have no constant weights."""
    of = len(audit.products)
    failing = sum(product.fails(audit.engines) for product in audit.products)
    if not of:
        return ""
    products = f"{counted(of, 'product')} of two activations"
    if failing:
        return f"{failing} of {products} can compute wrong sums"
    return f"{products} {'is' if of == 1 else 'are'} proven safe"


def _products_lines(audit: Audit) -> list[str]:
    """A line for each product of two activations that can saturate."""
    lines = []
    for product in audit.products:
        failing = [name for name in audit.engines if not product.engines[name].is_proven]
        if failing:
            layer = product.layer
            lines.append(
                f"product of two activations {layer.name} ({layer.node}, {layer.a_type}{layer.b_type}): unsafe in "
                f"{', '.join(engines()[name].words for name in failing)}: {product.engines[failing[0]].witness}"
                + "; u8 for the second operand makes it exact in ONNX Runtime"
                * ("onnxruntime" in failing)
            )
    return lines


def _on_data(audit: Audit, layer: AuditedLayer) -> str:
    found = audit.on_data.layers.get(layer.layer.name)
    if found is None:
        return f"not measured: {_why_hidden(layer)}" if _is_hidden(audit, layer) else ""
    words = part_of(found.changed, found.results, "sum") + " wrong"
    words += " with AVX-512" * layer.engines[audit.on_data.engine].only_with_avx512
    return words + (f" ({decibels_in_words(found.sqnr)})" if found.changed else "")


def _shape(layer: AuditedLayer) -> str:
    shape = "x".join(str(n) for n in layer.layer.weights.shape)
    return (
        shape
        + (f" groups {layer.layer.groups}" if layer.layer.groups > 1 else "")
        + (", 7 bits" if layer.uses_7_bits else "")
    )


def _result(layer: AuditedLayer, name: str) -> str:
    certified = layer.engines[name]
    if certified.pairing == "none":
        return "safe: no int16 sums"
    if certified.is_proven:
        return "safe: proven"
    return f"unsafe{_where(certified)}: {certified.failing_pairs:,} of {certified.pairs:,} pair{'s' * (certified.pairs != 1)}"


def _where(certified: Certified) -> str:
    return " with AVX-512" if certified.only_with_avx512 else ""


def _error(audit: Audit, layer: AuditedLayer) -> str:
    """The largest error bound among the audited engines, in words."""
    name = max(audit.engines, key=lambda name: layer.engines[name].error)
    worst = layer.engines[name]
    if not worst.failing_pairs:
        return ""
    is_all = worst.error_unit.startswith("steps") and worst.error >= 255
    words = "the whole range" if is_all else f"{_number(worst.error)} {worst.error_unit}"
    return words + (f", {engines()[name].words}" if len(audit.engines) > 1 else "")


def _data_head(audit: Audit) -> str:
    data = audit.on_data
    return f"on {_your_data(data, data.counted)}, {engines()[data.engine].words}"


def _all_remedies(audit: Audit) -> list[str]:
    return list(dict.fromkeys(text for layer in audit.layers for text in layer.remedies))


def output_words(audit: Audit, output: Any) -> str:
    """Words on an output: how the stock model's output and the control's output differ from the exact
    variant's output."""
    is_emulated = audit.on_data.stock_clamps and not audit.cpu_clamps
    where = "without VNNI (emulated)" if is_emulated else "on this CPU"
    data = audit.on_data
    where += f", {data.compared} of {counted(data.runs, 'run')}," if data.compared < data.runs else ""
    words = (
        f"output {excerpt(output.name)}: ONNX Runtime {where} against exact sums: {decibels_in_words(output.stock)}, "
        f"{part_of(output.stock_changed, output.values, 'value', 'differs', 'differ')}, by at most {output.stock_largest:.3g}; "
        + (
            f"rounding noise alone (float operators held to AVX2): {decibels_in_words(output.held)}, {output.held_changed:,} "
            "values; "
            if output.held is not None
            else ""
        )
        + f"float constants changed by 1e-7: {decibels_in_words(output.control)}, {output.control_changed:,} values, at most "
        f"{output.control_largest:.3g}"
    )
    if output.argmax:
        words += (
            f"; the place of the largest value changes in {output.stock_argmax_changed} of {counted(output.argmax, 'row')} "
            f"(rounding noise: {output.noise_argmax_changed})"
        )
    if output.exact_to_float is not None:
        words += (
            f"; from the float model: exact sums {output.exact_to_float:.1f} dB, ONNX Runtime "
            f"{output.stock_to_float:.1f} dB"
        )
    return words


def _remarks(audit: Audit) -> list[str]:
    """Lines on outputs, notes of layers, and layers with 7 bits."""
    lines = [output_words(audit, output) for output in audit.on_data.outputs] if audit.on_data else []
    if audit.on_data and audit.on_data.outputs and audit.on_data.not_held:
        lines.append(f"note: the order of another CPU was not tried: {audit.on_data.not_held}")
    lines += _products_lines(audit)
    lines += [
        f"note: {note}" for note in sorted({layer.layer.note for layer in audit.layers if layer.layer.note})
    ]
    lines += audit.model.decided_by()
    weights = sum(layer.uses_7_bits for layer in audit.layers)
    if weights:
        lines.append(
            f"7 bits: the weights of {counted(weights, 'layer')} lie within -64 to 64 (reduce_range); CPUs with VNNI "
            "do not need this"
        )
    seen = [found for found in audit.on_data.layers.values() if found] if audit.on_data else []
    if (
        seen
        and not audit.on_data.stock_clamps
        and audit.on_data.outputs
        and any(found.changed for found in seen)
    ):
        lines.append(
            f"this CPU {why_exact()} and computes these sums exactly; --emulate shows the outputs of a CPU without VNNI"
        )
    if audit.missing:
        lines.append(f"missing: {audit.missing}")
    held = sum(found.largest <= 127 for found in seen)
    if held:
        lines.append(
            f"7 bits: the activations of {held} of {counted(len(seen), 'layer')} do not exceed 127 on "
            + _your_data(audit.on_data, audit.on_data.counted)
        )
    return lines


def table_lines(rows: list[list[str]], widest: int = 40) -> list[str]:
    """The rows as aligned lines, the head first; [] if there is only a head. Cells wider than `widest` lose
    their beginning, except in the last column."""
    if len(rows) < 2:
        return []
    widths = [min(max(len(cell) for cell in column), widest) for column in zip(*rows)]

    def line(row: list[str]) -> str:
        cells = [
            (cell if len(cell) <= width else "…" + cell[1 - width :]).ljust(width)
            for cell, width in zip(row[:-1], widths)
        ]
        return ("  " + "  ".join([*cells, row[-1]])).rstrip()

    return [line(row) for row in rows]


# The lines below a table with a column of pairs.
EXPLANATION = (
    "pair: two products that an engine adds in int16 on a CPU without VNNI (most Intel CPUs before Cascade Lake (servers) and "
    "Alder Lake, AMD CPUs before Zen 4). A sum outside -32768 to 32767 is clamped (it saturates), and the layer's result is "
    "wrong."
)


def floats_by_cpu(audit: Audit) -> dict[str, int]:
    """The float operators whose outputs depend on the CPU in ONNX Runtime, and their number."""
    if audit.model.proto is None or "onnxruntime" not in audit.engines:
        return {}
    integers = {id(layer.graph_node) for layer in audit.model.layers if not layer.float_in}
    integers |= {id(product.layer.graph_node) for product in audit.model.products}
    return float_nodes_by_cpu(
        node for node in every_node(audit.model.proto.graph) if id(node) not in integers
    )


def dependence(audit: Audit) -> list[str]:
    """A line: whether the model's outputs depend on the CPU in ONNX Runtime, and through which nodes; and a
    line on how far they move, which only data shows. None for other formats."""
    if audit.model.proto is None or "onnxruntime" not in audit.engines:
        return []
    clamped = audit.failing("onnxruntime") + sum(product.fails(["onnxruntime"]) for product in audit.products)
    through = [f"{counted(clamped, 'product')} whose sums can saturate"] if clamped else []
    through += [f"{count} x {op} of floats" for op, count in sorted(floats_by_cpu(audit).items())]
    if not through and audit.missing:
        return ["it is not known whether outputs depend on the CPU in ONNX Runtime: layers are missing"]
    if not through:
        return ["no operator is known whose outputs depend on the CPU in ONNX Runtime"]
    how_far = (
        []
        if audit.on_data
        else [
            f"how far the outputs move depends on the inputs: intact audit {excerpt(audit.model.path, 400)} --data "
            "INPUTS.npz --emulate"
        ]
    )
    return [
        f"the outputs depend on the CPU in ONNX Runtime, through {', '.join(through)} (intact.onnxruntime: "
        "reproducible=True)",
        *how_far,
    ]


def to_text(audit: Audit) -> str:
    """The table of layers, remarks, and the operators that were passed over. The last line is the verdict."""
    table = engines()
    lines = [
        f"{excerpt(audit.model.path, 400)}: {counted(len(audit.layers), 'quantized layer')} of "
        f"{counted(audit.model.operators, 'operator')}",
        *dependence(audit),
    ]
    head = [
        "layer",
        "operator",
        "types",
        "weights",
        "activations",
        *(table[name].words for name in audit.engines),
        "error at most",
    ]
    if audit.on_data:
        head.append(_data_head(audit))
    rows = [head]
    for layer in audit.layers:
        q = layer.layer
        activations = f"{q.a_range[0]} to {q.a_range[1]}" + (f" ({q.a_why})" if q.a_why else "")
        rows.append(
            [
                q.name,
                q.node,
                q.a_type + q.b_type,
                _shape(layer),
                activations,
                *(_result(layer, name) for name in audit.engines),
                _error(audit, layer),
            ]
        )
        if audit.on_data:
            rows[-1].append(_on_data(audit, layer))
    lines += table_lines(rows)
    worst_layers = sorted(
        (layer for layer in audit.layers if layer.fails(audit.engines)),
        key=lambda layer: -max(layer.engines[name].error for name in audit.engines),
    )
    for layer in worst_layers[:3]:
        certified = next(layer.engines[name] for name in audit.engines if layer.engines[name].failing_pairs)
        lines.append(f"  e.g. {layer.layer.name}: {certified.witness}, which int16 does not hold")
    if worst_layers:
        lines.append(EXPLANATION)
    lines += _remarks(audit)
    lines += audit.model.left_out()
    lines += [f"remedy: {text}" for text in _all_remedies(audit)]
    lines.append(verdict(audit))
    return "\n".join(lines) + "\n"


def finite(value: Any) -> Any:
    """The value; None (null) if it is infinite or NaN, because JSON has neither. So the SQNR of equal outputs
    is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _layer_on_data(audit: Audit, name: str) -> dict | None:
    found = audit.on_data.layers.get(name) if audit.on_data else None
    if found is None:
        return None
    return {"results": found.results, "changed": found.changed, "sqnr": finite(found.sqnr)}


def to_json(audit: Audit) -> dict:
    """The audit as JSON: schema "intact-audit"."""
    table = engines()
    return {
        "schema": JSON_SCHEMA,
        "schema_version": JSON_VERSION,
        "model": audit.model.path,
        "operators": audit.model.operators,
        "verdict": verdict(audit),
        "proven": audit.is_proven,
        "cpu_without_vnni": audit.cpu_clamps,
        "engines": {
            name: {"name": table[name].words, "versions": table[name].versions} for name in audit.engines
        },
        "floats_by_cpu": floats_by_cpu(audit),
        "passed_over": audit.model.passed_over,
        "missing": audit.missing,
        "qdq_groups_by": audit.model.fusions.source if audit.model.fusions else None,
        "products_of_activations": [
            {
                "name": product.layer.name,
                "operator": product.layer.node,
                "types": product.layer.a_type + product.layer.b_type,
                "engines": {
                    name: {"proven": c.is_proven, "witness": c.witness} for name, c in product.engines.items()
                },
            }
            for product in audit.products
        ],
        "stock_clamps": audit.on_data.stock_clamps if audit.on_data else None,
        "data": {key: getattr(audit.on_data, key) for key in ("runs", "counted", "compared")}
        if audit.on_data
        else None,
        "outputs": [
            {key: finite(value) for key, value in vars(output).items()}
            for output in (audit.on_data.outputs if audit.on_data else [])
        ],
        "layers": [
            {
                "name": layer.layer.name,
                "operator": layer.layer.node,
                "types": layer.layer.a_type + layer.layer.b_type,
                "weights": list(layer.layer.weights.shape),
                "groups": layer.layer.groups,
                "activations": list(layer.layer.a_range),
                "activations_bounded_by": layer.layer.a_why,
                "note": layer.layer.note,
                "seven_bit_weights": layer.uses_7_bits,
                "remedies": layer.remedies,
                "on_data": _layer_on_data(audit, layer.layer.name),
                "engines": {
                    name: {
                        "pairing": c.pairing,
                        "pairs": c.pairs,
                        "failing_pairs": c.failing_pairs,
                        "failing_columns": c.failing_columns,
                        "witness": c.witness,
                        "error_at_most": c.error,
                        "error_unit": c.error_unit,
                        "only_with_avx512": c.only_with_avx512,
                    }
                    for name, c in layer.engines.items()
                },
            }
            for layer in audit.layers
        ],
    }


def _engine_cell(audit: Audit, layer: AuditedLayer, name: str) -> str:
    c, label = layer.engines[name], engines()[name].words
    if c.is_proven:
        return td(label, html.escape(_result(layer, name)), 0, ' class="good"')
    share = 100 * c.failing_pairs / c.pairs
    title = html.escape(f"{c.failing_pairs:,} of {c.pairs:,} pair{'s' * (c.pairs != 1)}, {c.witness}")
    words = f'<span class="bad">{share:.2g} %</span> <small>{c.failing_pairs:,}{_where(c)}</small>'
    return td(label, words + ("" if audit.on_data else bar(share)), share, f' title="{title}"')


def _data_cell(audit: Audit, layer: AuditedLayer) -> str:
    found, words = audit.on_data.layers.get(layer.layer.name), html.escape(_on_data(audit, layer))
    if found is None or not found.results:
        return td(_data_head(audit), words, -1)
    share, color = 100 * found.changed / found.results, "bad" if found.changed else "good"
    content = f'<span class="{color}">{share:.2g} %</span> <small>{words}</small>{bar(share)}'
    return td(_data_head(audit), content, share)


def _page_row(audit: Audit, layer: AuditedLayer) -> str:
    q, e = layer.layer, html.escape
    bound = max(layer.engines[name].error for name in audit.engines)
    return (
        f'<td class="name">{e(q.name)}<br><small>{e(q.node)} {q.a_type}{q.b_type} {e(_shape(layer))}</small></td>'
        + td("activations", f"{q.a_range[0]} to {q.a_range[1]} <small>{e(q.a_why)}</small>", q.a_range[1])
        + (_data_cell(audit, layer) if audit.on_data else "")
        + "".join(_engine_cell(audit, layer, name) for name in audit.engines)
        + td("error at most", e(_error(audit, layer)), bound)
    )


def to_html(audit: Audit) -> str:
    """A page: the verdict, and for each layer a bar: with data, of its wrong sums; else of its unsafe pairs."""
    table_of = engines()
    unsafe = "unsafe pairs" if audit.on_data else ""
    heads = [th("layer"), th("activations")]
    heads += [th(_data_head(audit), "wrong sums")] if audit.on_data else []
    heads += [
        th(table_of[name].words, ", ".join(filter(None, [unsafe, table_of[name].versions])))
        for name in audit.engines
    ]
    what = (
        f"A bar is the share of a layer's sums that {table_of[audit.on_data.engine].words} computes wrong on "
        f"{_your_data(audit.on_data, audit.on_data.counted)} on a CPU without VNNI, if the layer gets exact "
        "inputs. Errors that come from earlier layers show only in the outputs. The percentages beside it are"
        if audit.on_data
        else "A bar is"
    )
    passed = (f"{count} × {reason}" for reason, count in sorted(audit.model.passed_over.items()))
    return page(
        "intact audit",
        audit.model.path,
        verdict(audit),
        f"""<p>{html.escape(what)} the share of a layer's weight pairs that can saturate: for some input the sum of two products exceeds int16. CPUs
without VNNI (most Intel CPUs before Cascade Lake (servers) and Alder Lake, AMD CPUs before Zen 4) clamp it, so the result is
wrong. <small>Error at most: how far clamped sums can move an output of the layer. A click on a head sorts the table.</small></p>""",
        table([*heads, th("error at most")], (_page_row(audit, layer) for layer in audit.layers)),
        listed([*dependence(audit), *_remarks(audit)]),
        listed(_all_remedies(audit), "Remedies"),
        listed(passed, "Passed over"),
        is_proven=audit.is_proven,
    )


def write(path: str, text: str | dict[str, Any]) -> None:
    """Writes a report: a dictionary as JSON, else text."""
    with open(path, "w", encoding="utf-8") as file:
        if isinstance(text, dict):
            json.dump(text, file, indent=1, allow_nan=False)
            file.write("\n")
        else:
            file.write(text)
