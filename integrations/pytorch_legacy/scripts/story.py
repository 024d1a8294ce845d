#!/usr/bin/python3
"""Shows the effect of int16 saturation on a small network, by running it.

    story.py [--out FOLDER]     writes FOLDER/story.html and FOLDER/story.json (report/pytorch)

A convolutional network is trained on scikit-learn's digits (seconds on one core) and quantized by PyTorch, activations in the
full range of 8 bits and weights per channel. Then the model runs in float, on PyTorch's engines, and on intact, exact and
saturating; all quantized ones with and without reduce_range. The second part is a linear layer with a rising constant as input.
"""

import argparse
import copy
import html
import json
import pathlib
import re
import subprocess
import warnings

import intact_torch
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver, QConfig
from torch.ao.quantization.qconfig_mapping import QConfigMapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

warnings.simplefilter("ignore")  # about future changes of PyTorch


# --- the network -------------------------------------------------------------------------------------------------


def digits():
    """Images [N, 1, 8, 8] and classes for training, then for testing."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    classes = torch.tensor(data.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[:1000], order[1000:]
    return images[train], classes[train], images[test], classes[test]


def network():
    """Blocks with linear bottlenecks, as in MobileNetV2: activations have both signs, and a zero point in the middle."""

    def conv(inputs, outputs, kernel, stride=1):
        return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]

    return nn.Sequential(
        *conv(1, 32, 3),
        nn.ReLU(),
        *conv(32, 8, 1),
        *conv(8, 48, 3, 2),
        nn.ReLU(),
        *conv(48, 12, 1),
        *conv(12, 64, 3),
        nn.ReLU(),
        *conv(64, 12, 1),
        nn.Flatten(),
        nn.Linear(192, 10),
    )


def trained(images, classes):
    torch.manual_seed(0)
    model = network().train()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    for _ in range(12):
        for batch in torch.randperm(len(images)).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), classes[batch]).backward()
            optimizer.step()
    return model.eval()


def quantized(model, images, reduce_range, engine):
    torch.backends.quantized.engine = engine
    qconfig = QConfig(
        activation=MinMaxObserver.with_args(dtype=torch.quint8, reduce_range=reduce_range),
        weight=PerChannelMinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_channel_symmetric),
    )
    prepared = prepare_fx(copy.deepcopy(model), QConfigMapping().set_global(qconfig), (images[:2],))
    prepared(images[:300])
    return convert_fx(prepared)


def contenders(model, images, reduce_range):
    """The quantized models by name. All have the same weights, scales and zero points."""
    by_engine = {engine: quantized(model, images, reduce_range, engine) for engine in ("qnnpack", "onednn")}
    return {
        "PyTorch, qnnpack": by_engine["qnnpack"],
        "PyTorch, onednn as it is here": by_engine["onednn"],
        "intact, exact": intact_torch.convert(by_engine["onednn"]),
        "intact, saturating as on AVX2": intact_torch.convert(
            by_engine["onednn"], mode="saturating", max_isa="avx2"
        ),
    }


def run_network():
    """The table's rows, the layers' shares of changed outputs, and noisy digits with changed answers."""
    train, train_classes, clean, classes = digits()
    noisy = clean + 0.7 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(1))
    model = trained(train, train_classes)
    layers, misread = {}, []
    with torch.no_grad():
        real = model(clean)
        rows = [
            {"model": "float", "accuracy": accuracy(real, classes), "noisy": accuracy(model(noisy), classes)}
        ]
        for reduce_range in (False, True):
            models = contenders(model, train, reduce_range)
            exact, exact_noisy = (models["intact, exact"](x) for x in (clean, noisy))
            for name, contender in models.items():
                output, output_noisy = contender(clean), contender(noisy)
                rows.append(
                    {
                        "model": name,
                        "reduce_range": reduce_range,
                        "accuracy": accuracy(output, classes),
                        "noisy": accuracy(output_noisy, classes),
                        "sqnr": float(20 * torch.log10(real.norm() / (output - real).norm())),
                        "changed_outputs": float((output != exact).float().mean()),
                        "changed_answers": int((output_noisy.argmax(1) != exact_noisy.argmax(1)).sum()),
                    }
                )
            saturating = models["intact, saturating as on AVX2"]
            layers["reduced" if reduce_range else "full"] = [
                (
                    layer.name,
                    layer.implementation.differing / layer.implementation.outputs,
                    layer.implementation.largest,
                )
                for layer in intact_torch.compare(saturating, None, clean).layers
            ]
            if not reduce_range:
                answers = saturating(noisy).argmax(1)
                for i in (answers != exact_noisy.argmax(1)).nonzero().flatten()[:12].tolist():
                    misread.append(
                        (noisy[i, 0].tolist(), int(classes[i]), int(exact_noisy[i].argmax()), int(answers[i]))
                    )
    return {"rows": rows, "layers": layers, "misread": misread, "tested": len(clean)}


def accuracy(output, classes):
    return float((output.argmax(1) == classes).float().mean())


# --- the ramp ----------------------------------------------------------------------------------------------------


def run_ramp():
    """Runs a linear layer 64 → 10 without bias on constant inputs from −4 to 4: float outputs are straight lines."""
    torch.manual_seed(100)
    linear = nn.Linear(64, 10, bias=False)
    calibration = torch.randn(100, 64)
    torch.backends.quantized.engine = "qnnpack"
    qconfig = QConfig(
        activation=MinMaxObserver.with_args(dtype=torch.quint8, reduce_range=False),
        weight=MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric),
    )
    prepared = prepare_fx(nn.Sequential(linear), QConfigMapping().set_global(qconfig), (calibration,))
    prepared(calibration)
    model = convert_fx(prepared)
    x = torch.arange(-4, 4, 0.01)
    inputs = x[:, None].repeat(1, 64)
    with torch.no_grad():
        outputs = {
            "float": linear(inputs),
            "qnnpack": model(inputs),
            "exact": intact_torch.convert(model)(inputs),
            "saturating": intact_torch.convert(model, mode="saturating", max_isa="avx2")(inputs),
        }
    rises = linear.weight.sum(1) > 0
    sign = torch.where(rises, 1.0, -1.0)
    wrong_way = {name: int((((y[1:] - y[:-1]) * sign) < 0).sum()) for name, y in outputs.items()}
    differs = (outputs["saturating"] - outputs["exact"]).abs()
    worst = int(differs.amax(0).argmax())
    return {
        "x": x.tolist(),
        "column": worst,
        "lines": {name: y[:, worst].tolist() for name, y in outputs.items()},
        "wrong_way": wrong_way,
        "changed": float((differs > 0).float().mean()),
        "largest": float(differs.max()),
    }


# --- the page ----------------------------------------------------------------------------------------------------


def plot(name, commands):
    """An <svg> that gnuplot draws. `name` becomes a prefix of its ids, because two pictures of a page must not share ids."""
    script = "set terminal svg size 720,330 dynamic font 'sans-serif,12' background '#ffffff'\n" + commands
    drawn = subprocess.run(["gnuplot"], input=script, capture_output=True, text=True, check=True).stdout
    svg = drawn[drawn.index("<svg") :]
    return re.sub(r"(id=['\"]|href=['\"]#|url\(#)", rf"\g<1>{name}-", svg)


def ramp_picture(ramp):
    styles = {"float": "lw 1 lc '#999999'", "exact": "lw 2 lc '#1b6ac9'", "saturating": "lw 2 lc '#d1361b'"}
    blocks = "".join(
        "\n".join(f"{x:.3f} {y:.6g}" for x, y in zip(ramp["x"], ramp["lines"][name])) + "\ne\n"
        for name in styles
    )
    series = ", ".join(f"'-' with lines {style} title '{name}'" for name, style in styles.items())
    return plot(
        "ramp",
        f"set xlabel 'input (all 64 equal)'\nset ylabel 'output {ramp['column']}'\nset key right\nset grid\n"
        f"plot {series}\n{blocks}",
    )


def layers_picture(layers):
    blocks = "".join(
        "\n".join(f"{i} {share * 100:.4f}" for i, (_, share, _) in enumerate(entries)) + "\ne\n"
        for entries in layers.values()
    )
    ticks = ", ".join(f"'layer {name}' {i}" for i, (name, _, _) in enumerate(layers["full"]))
    return plot(
        "layers",
        "set style fill solid\nset boxwidth 0.35\nset ylabel '% of outputs changed'\nset yrange [0:*]\n"
        f"set xtics ({ticks})\nset grid y\nset key above\n"
        "plot '-' using ($1-0.18):2 with boxes lc '#d1361b' title 'full range', "
        f"'-' using ($1+0.18):2 with boxes lc '#1b6ac9' title 'reduce_range' noenhanced\n{blocks}",
    )


def digit_picture(pixels):
    shades = (
        (x, y, min(max(int(255 - (p + 1) * 127.5), 0), 255))
        for y, row in enumerate(pixels)
        for x, p in enumerate(row)
    )
    cells = "".join(
        f'<rect x="{x}" y="{y}" width="1" height="1" fill="rgb({v},{v},{v})"/>' for x, y, v in shades
    )
    return (
        f'<svg viewBox="0 0 8 8" width="72" height="72" shape-rendering="crispEdges" role="img">{cells}</svg>'
    )


def percent(value, digits=2):
    return f"{value * 100:.{digits}f} %"


def table(rows):
    body = ""
    for row in rows:
        cells = [
            html.escape(row["model"]),
            {None: "", False: "no", True: "yes"}[row.get("reduce_range")],
            percent(row["accuracy"]),
            percent(row["noisy"]),
        ]
        cells += (
            ["", "", ""]
            if "sqnr" not in row
            else [f"{row['sqnr']:.1f} dB", percent(row["changed_outputs"]), str(row["changed_answers"])]
        )
        body += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"
    head = "".join(
        f"<th>{text}</th>"
        for text in (
            "model",
            "reduce_range",
            "accuracy",
            "accuracy under noise",
            "SQNR of outputs against float",
            "outputs that differ from exact",
            "answers under noise that differ from exact",
        )
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 780px; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
figcaption { font-size: 14px; color: #555; }
.digits { display: flex; flex-wrap: wrap; gap: .75rem; font-size: 13px; text-align: center; }
"""


def page(results):
    network, ramp = results["network"], results["ramp"]
    worst = max(network["layers"]["full"], key=lambda entry: entry[1])
    reduced = max(network["layers"]["reduced"], key=lambda entry: entry[1])
    misread = "".join(
        f"<div>{digit_picture(pixels)}<br>a {actual}: exact {exact}, saturating {wrong}</div>"
        for pixels, actual, exact, wrong in network["misread"]
    )
    digits = (
        f'<h2>Noisy digits with changed answers</h2><div class="digits">{misread}</div>'
        if misread
        else ("<p>No answer changes: the differences by saturation are too small.</p>")
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>The effect of saturation on a network</title><style>{STYLE}</style></head><body>
<h1>The effect of saturation on a network</h1>
<p>Before VNNI, int8 kernels add two products in int16, and clamp sums that do not fit. This page compares a quantized network on
PyTorch's engines and on intact. intact computes exactly on every CPU. On any CPU it can also compute what the saturating kernels
of FBGEMM and oneDNN compute on AVX2. CPU: {html.escape(results["cpu"])}; PyTorch {results["torch"]}.</p>
<h2>Digits, 8×8 pixels</h2>
<p>The network has six convolutions, three of them linear bottlenecks as in MobileNetV2, and a linear layer. It is trained on 1000
of scikit-learn's digits, and quantized by PyTorch with full-range activations and weights per channel. It is tested on
{network["tested"]} digits, with and without noise. All quantized models have the same weights and scales.</p>
{table(network["rows"])}
<figure>{layers_picture(network["layers"])}
<figcaption>Share of each layer's outputs that saturation changes, on the activations that occur. Layer {html.escape(worst[0])}:
{percent(worst[1])}, by up to {worst[2]:.0f} of 255. With reduce_range the largest share is {percent(reduced[1])}.</figcaption>
</figure>
{digits}
<h2>A straight line that bends</h2>
<p>A linear layer of 64 inputs and 10 outputs without bias gets constants from −4 to 4. Each output should be a straight line,
clamped at the ends of the output's range. Saturation changes {percent(ramp["changed"], 0)} of the outputs, by up to
{ramp["largest"]:.2f}. Steps in the wrong direction: saturating {ramp["wrong_way"]["saturating"]}, exact
{ramp["wrong_way"]["exact"]}, qnnpack {ramp["wrong_way"]["qnnpack"]}.</p>
<figure>{ramp_picture(ramp)}<figcaption>Output {ramp["column"]}, which saturation changes most.</figcaption></figure>
<p>intact's exact mode needs no <code>reduce_range</code>: <code>model = intact_torch.convert(model)</code>.</p>
</body></html>
"""


def cpu_name():
    with open("/proc/cpuinfo") as info:
        return next(line.partition(":")[2].strip() for line in info if line.startswith("model name"))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="report/pytorch", help="folder to write to (report/pytorch)")
    folder = pathlib.Path(parser.parse_args().out)
    results = {"cpu": cpu_name(), "torch": torch.__version__, "network": run_network(), "ramp": run_ramp()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "story.json").write_text(json.dumps(results) + "\n")
    (folder / "story.html").write_text(page(results))
    for row in results["network"]["rows"]:
        differences = (
            ""
            if "sqnr" not in row
            else (
                f"  {row['sqnr']:.1f} dB; {percent(row['changed_outputs'])} of outputs, "
                f"and {row['changed_answers']} answers under noise, differ from exact"
            )
        )
        print(
            f"{row['model']:32} {'reduce_range' if row.get('reduce_range') else '':13} {percent(row['accuracy'])}  under noise "
            f"{percent(row['noisy'])}{differences}"
        )
    ramp = results["ramp"]
    print(
        f"ramp: saturation changes {percent(ramp['changed'], 0)} of the outputs; steps in the wrong direction: "
        f"{ramp['wrong_way']}"
    )
    print(f"wrote {folder}/story.html")


if __name__ == "__main__":
    main()
