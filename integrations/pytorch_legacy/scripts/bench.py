#!/usr/bin/python3
"""Measures PyTorch's quantized networks on intact and on PyTorch's engines, on one thread.

    bench.py [--isa avx2] [--rounds N] [--network NAME]... [--threads N] [--json FILE]
    bench.py --compare [--isa avx2] [--network NAME]...     counts the outputs that differ from the engines' outputs

ResNet-50 and MobileNetV2 of torchvision, batch 1 of 224x224, statically quantized; and an encoder of BERT-base's shape under
quantize_dynamic, sequences of 128 and 1. Weights are random, normal like the initial weights of these networks. Times do not
depend on the weights, except for exact kernels without VNNI, which run faster with trained weights. Contenders run in turns in
one process; medians count. --isa limits oneDNN and intact to an ISA. Exit status: 1 if intact's bytes depend on the ISA.
"""

import argparse
import collections
import json
import os
import statistics
import sys
import time
import warnings

ONEDNN_ISAS = {
    "avx2": "AVX2",
    "avx512": "AVX512_CORE",
    "avx512_vnni": "AVX512_CORE_VNNI",
    "avx_vnni": "AVX2_VNNI",
}


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--isa", choices=sorted(ONEDNN_ISAS), help="limit oneDNN and intact to this ISA")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contender (15)")
    parser.add_argument("--threads", type=int, default=1, help="torch.set_num_threads() (1)")
    parser.add_argument(
        "--network",
        action="append",
        choices=["resnet50", "mobilenet_v2", "bert_128", "bert_1"],
        help="a network to measure; may be given several times (all)",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="count the outputs of static networks that differ from each engine's; no times",
    )
    parser.add_argument("--json", help="a file for the results")
    return parser.parse_args()


ARGUMENTS = arguments()
if ARGUMENTS.isa:  # the libraries read these variables when they are loaded
    os.environ["INTACT_MAX_ISA"] = ARGUMENTS.isa
    os.environ["ONEDNN_MAX_CPU_ISA"] = os.environ["DNNL_MAX_CPU_ISA"] = ONEDNN_ISAS[ARGUMENTS.isa]

import intact_torch  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
from torch.ao.quantization import (  # noqa: E402
    MinMaxObserver,
    QConfig,
    convert,
    default_per_channel_weight_observer,
    prepare,
    quantize_dynamic,
)

warnings.simplefilter("ignore")  # about future changes of PyTorch


def cpu_name():
    fields = collections.OrderedDict()
    with open("/proc/cpuinfo") as info:
        for line in info:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    return f"{fields['model name']} (family {fields['cpu family']}, model {fields['model']})"


# --- networks ----------------------------------------------------------------------------------------------------


def quantized_network(make, x, engine):
    """A torchvision network quantized for `engine`: full-range u8 activations, weights per channel."""
    torch.manual_seed(1)
    torch.backends.quantized.engine = engine
    model = make(weights=None, quantize=False).eval()
    model.fuse_model()
    model.qconfig = QConfig(
        activation=MinMaxObserver.with_args(dtype=torch.quint8), weight=default_per_channel_weight_observer
    )
    prepare(model, inplace=True)
    model(x)
    return convert(model)


class Encoder(torch.nn.Module):
    """A layer of BERT-base's shape."""

    def __init__(self, width=768, heads=12, inner=3072):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (torch.nn.Linear(width, width) for _ in range(4))
        self.up, self.down = torch.nn.Linear(width, inner), torch.nn.Linear(inner, width)
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        weights = torch.softmax(q @ k.transpose(-1, -2) / q.size(-1) ** 0.5, -1)
        x = self.norm1(x + self.out((weights @ v).transpose(1, 2).reshape(x.shape)))
        return self.norm2(x + self.down(torch.nn.functional.gelu(self.up(x))))


def dynamic(make, engine):
    """The model of make(), with linear layers drawn like BERT's and quantized dynamically for `engine`."""
    torch.manual_seed(1)
    torch.backends.quantized.engine = engine
    model = make().eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, std=0.02)
    model = quantize_dynamic(model, {torch.nn.Linear}, inplace=True)
    for module in model.modules():
        if engine == "qnnpack" and isinstance(module, torch.nn.quantized.dynamic.Linear):
            module.version = None  # no reduce_range: qnnpack ignores it, with a warning at each call
    return model


def contenders(network):
    """The input, and the models to compare by name, PyTorch's first."""
    generator = torch.Generator().manual_seed(2)
    if network.startswith("bert"):
        x = torch.randn(1, int(network.split("_")[1]), 768, generator=generator)
        models = {
            engine: dynamic(lambda: torch.nn.Sequential(*(Encoder() for _ in range(12))), engine)
            for engine in ("onednn", "qnnpack")
        }
        models["intact"] = intact_torch.convert(models["onednn"])
        models["intact, rows"] = intact_torch.convert(models["onednn"], dynamic="row")
        return x, models
    x = torch.randn(1, 3, 224, 224, generator=generator)
    make = getattr(torchvision.models.quantization, network)
    models = {engine: quantized_network(make, x, engine) for engine in ("onednn", "qnnpack")}
    models["intact"] = intact_torch.convert(models["onednn"])
    models["intact, fused"] = intact_torch.convert(models["onednn"], fuse_residual=True)
    return x, models


def bytes_depend_on_the_isa(x, models):
    """Whether intact's output changes if only the oldest vector ISA is permitted."""
    capped = intact_torch.convert(models["onednn"], max_isa="avx2")
    return not torch.equal(capped(x), models["intact"](x))


# --- measurement -------------------------------------------------------------------------------------------------


def milliseconds(model, x):
    begin = time.perf_counter()
    model(x)
    return (time.perf_counter() - begin) * 1e3


def in_turns(models, x, rounds):
    """The times of each model."""
    for model in models.values():
        model(x)
    times = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            times[name].append(milliseconds(model, x))
    return times


def shares(model, x, runs=5):
    """Milliseconds per run by operator, the longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(runs):
            model(x)
    found = {event.key: event.self_cpu_time_total / 1e3 / runs for event in profile.key_averages()}
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def is_swapped(operator):
    """Whether convert() swaps `operator`."""
    return operator.startswith(
        ("intact::", "quantized::conv", "quantized::linear", "quantized::add", "aten::quantize_per_tensor")
    )


def linear_alone(rows, rounds):
    """Times of PyTorch's dynamic linear layer and of intact's, by shape."""
    results = {}
    for n, k in ((768, 768), (3072, 768), (768, 3072)):
        generator = torch.Generator().manual_seed(3)
        x = torch.randn(rows, k, generator=generator)
        layers = {
            engine: dynamic(lambda: torch.nn.Sequential(torch.nn.Linear(k, n)), engine)
            for engine in ("onednn", "qnnpack")
        }
        layers["intact"] = intact_torch.convert(layers["onednn"])
        times = in_turns(layers, x, rounds * 20)
        results[f"{rows}x{n}x{k}"] = {name: statistics.median(t) for name, t in times.items()}
    return results


def measure(network):
    x, models = contenders(network)
    if bytes_depend_on_the_isa(x, models):
        print(f"{network}: intact's output depends on the ISA", file=sys.stderr)
        sys.exit(1)
    times = in_turns(models, x, ARGUMENTS.rounds)
    result = {
        "milliseconds": {name: statistics.median(t) for name, t in times.items()},
        "fastest": {name: min(t) for name, t in times.items()},
        "operators": {name: shares(model, x) for name, model in models.items()},
    }
    if network.startswith("bert"):
        result["linear"] = linear_alone(x.size(1), ARGUMENTS.rounds)
    return result


def show_differences(network):
    """Compares the outputs of all layers, on the activations that occur, and of the whole network with both engines'."""
    x, models = contenders(network)
    for engine in ("onednn", "qnnpack"):
        torch.backends.quantized.engine = engine
        comparison = intact_torch.compare(models[engine], None, x)
        found = [layer.engine for layer in comparison.layers if layer.engine]
        print(
            f"| {network}, {engine} | {sum(d.outputs for d in found):,} | {sum(d.differing for d in found):,} "
            f"| {max(d.largest for d in found):g} | {comparison.final.differing} of {comparison.final.outputs} |",
            flush=True,
        )


def show(network, result):
    medians = result["milliseconds"]
    print(
        f"\n{network}\n  {'':15}{'ms':>8} {'fastest':>8} {'of onednn':>10} {'of qnnpack':>11} {'swapped':>9} {'others':>7}"
    )
    for name, median in medians.items():
        operators = result["operators"][name]
        swapped = sum(t for operator, t in operators.items() if is_swapped(operator))
        print(
            f"  {name:15}{median:8.2f} {result['fastest'][name]:8.2f} {median / medians['onednn']:10.2f} "
            f"{median / medians['qnnpack']:11.2f} {swapped:9.2f} {sum(operators.values()) - swapped:7.2f}"
        )
    outside = [(op, t) for op, t in result["operators"]["intact"].items() if not is_swapped(op)]
    total = sum(result["operators"]["intact"].values())
    print(
        "  outside intact's operators: "
        + ", ".join(f"{op} {t:.2f} ms ({t / total:.0%})" for op, t in outside[:6] if t / total > 0.003)
    )
    for shape, row in result.get("linear", {}).items():
        print(
            f"  linear {shape:14}"
            + ", ".join(f"{name} {t * 1e3:.0f} us" for name, t in row.items())
            + f"; onednn/intact {row['onednn'] / row['intact']:.2f}"
        )


def main():
    torch.set_num_threads(ARGUMENTS.threads)
    if ARGUMENTS.compare:
        print(f"{cpu_name()}; ISA {ARGUMENTS.isa or 'any'}; PyTorch {torch.__version__}; random weights\n")
        print(
            "| network, engine | outputs | differ | by | final outputs that differ |\n|---|---|---|---|---|"
        )
        with torch.inference_mode():
            for network in ARGUMENTS.network or ["resnet50", "mobilenet_v2"]:
                show_differences(network)
        return
    results = {
        "cpu": cpu_name(),
        "isa": ARGUMENTS.isa or "any",
        "torch": torch.__version__,
        "threads": ARGUMENTS.threads,
        "rounds": ARGUMENTS.rounds,
        "networks": {},
    }
    print(
        f"{results['cpu']}; ISA {results['isa']}; PyTorch {results['torch']}; {ARGUMENTS.threads} thread(s); random weights; "
        f"medians of {ARGUMENTS.rounds} turns"
    )
    with torch.inference_mode():
        for network in ARGUMENTS.network or ["resnet50", "mobilenet_v2", "bert_128", "bert_1"]:
            results["networks"][network] = measure(network)
            show(network, results["networks"][network])
    if ARGUMENTS.json:
        with open(ARGUMENTS.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
