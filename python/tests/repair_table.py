"""repair_table.py NETS [NAME...] [--engine openvino]: what each remedy costs, as a Markdown table.

NETS is the output of networks.py; NAME is a network, all by default. For each static (QDQ) and each dynamic model a table:

    stored             as quantized, full range
    repaired           by `intact repair`
    noise 0.05         by `intact repair --max-noise 0.05`
    7-bit weights      by the quantizer's reduce_range
    7-bit activations  0 to 127; ONNX Runtime's dynamic quantization always takes 0 to 255
    first layer        weights of the first layer have 7 bits: NNCF's overflow_fix, FIRST_LAYER
    u8 weights         zero point 128, which ONNX Runtime multiplies exactly

Columns: layers that can saturate in the engine; held-out digits that are recognised, on this CPU and on a Haswell that Debian's
qemu-user emulates; decibels from the float model's outputs, on both; CPU time of a run on this CPU over the stored model's: one
thread, median of interleaved runs. OpenVINO gets the static models, repaired for OpenVINO. `changed` counts digits: an output
differs from the stored model's on this CPU by more than 1e-4 of the largest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HASWELL = ["qemu-x86_64", "-cpu", "Haswell"]
ROUNDS = 200
BATCH = 64  # digits of a timed run
# ONNX Runtime's dynamic convolutions never add in int16, and its tool leaves an LSTM in float in QDQ models.
WAYS = {"mobile": ["qdq"], "residual": ["qdq"], "encoder": ["qdq", "dynamic"], "recurrent": ["dynamic"]}


def runner(engine: str, path: str):
    """A function from an input to the output, on one thread."""
    if engine == "openvino":
        import openvino

        options = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
        model = openvino.Core().compile_model(path, "CPU", options)
        return lambda x: model([x])[0].copy()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {session.get_inputs()[0].name: x})[0]


def outputs(engine: str, path: str, x: np.ndarray) -> np.ndarray:
    """The outputs of all digits. One digit at a time if quantization at run time depends on the whole batch, and in OpenVINO
    2026.4.1, which computes the encoder wrongly from the 38th digit of a batch on."""
    run = runner(engine, path)
    is_single = engine == "openvino" or "_dynamic" in Path(path).stem
    return np.concatenate([run(part) for part in np.split(x, len(x) if is_single else 1)])


def worker(engine: str, data: str, out: str, paths: list[str]) -> None:
    with np.load(data) as held_out:
        np.savez(out, **{Path(path).stem: outputs(engine, path, held_out["x"]) for path in paths})


def emulated(engine: str, data: Path, paths: list[str], folder: str) -> dict[str, np.ndarray]:
    command = [*HASWELL, sys.executable, __file__, "--worker", engine, str(data), f"{folder}/out.npz", *paths]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"repair_table: the emulated {engine} failed: {process.stderr[-500:]}")
    with np.load(f"{folder}/out.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


def first_layer_halved(stored: Path, halved: Path):
    """The stored model with the first layer's weights, scales and bias of the model with 7-bit weights."""
    import onnx
    from intact._audit.audit import audit

    model, other = (
        onnx.load(str(stored)),
        {tensor.name: tensor for tensor in onnx.load(str(halved)).graph.initializer},
    )
    layer = audit(stored).layers[0].layer
    weights = layer.weights_node.input[layer.weights_input]
    names = {weights, weights.replace("_quantized", "_scale")}
    if layer.is_qdq:  # its bias too
        makers = {name: node for node in model.graph.node for name in node.output}
        names |= {name for read in layer.graph_node.input[2:] for name in makers[read].input}
    for tensor in model.graph.initializer:
        if tensor.name in names:
            tensor.CopyFrom(other[tensor.name])
    return model


def variants(nets: Path, name: str, way: str, engine: str, folder: str) -> dict[str, str]:
    """Paths of the models, by what was done."""
    import onnx
    from intact._audit.audit import audit
    from intact._audit.run import exact_variant
    from intact._repair.repair import repair

    stored = nets / f"{name}_{way}.onnx"
    made = {
        "stored": onnx.load(str(stored)),
        "repaired": repair(str(stored), engines=[engine], reorder_sums=True)[0],
    }
    made["noise 0.05"] = repair(str(stored), engines=[engine], reorder_sums=True, max_noise=0.05)[0]
    halved = nets / f"{name}_{way}_weights7.onnx"
    made["7-bit weights"] = onnx.load(str(halved))
    if way == "qdq":
        made["7-bit activations"] = onnx.load(str(nets / f"{name}_{way}_activations7.onnx"))
    made["first layer"] = first_layer_halved(stored, halved)
    if engine == "onnxruntime":
        made["u8 weights"] = exact_variant(audit(stored))
    paths = {}
    for what, model in made.items():
        paths[what] = f"{folder}/{name}_{way}_{what.replace(' ', '_')}.onnx"
        onnx.save(model, paths[what])
    return paths


def ratios(engine: str, paths: dict[str, str], x: np.ndarray) -> dict[str, float]:
    runs = {what: runner(engine, path) for what, path in paths.items()}
    taken: dict[str, list[float]] = {what: [] for what in runs}
    order = np.random.default_rng(0)
    for i in range(ROUNDS + 2):
        # another load of the machine must not hit one of them every time
        for what in order.permutation(list(runs)):
            start = time.process_time()
            runs[what](x[:BATCH])
            if i >= 2:
                taken[what].append(time.process_time() - start)
    medians = {what: float(np.median(seconds)) for what, seconds in taken.items()}
    return {what: seconds / medians["stored"] for what, seconds in medians.items()}


def decibels(y: np.ndarray, wanted: np.ndarray) -> float:
    y, wanted = y.astype(np.float64), wanted.astype(np.float64)
    noise = np.square(y - wanted).sum()
    return 10 * np.log10(np.square(wanted).sum() / noise) if noise else np.inf


def table(nets: Path, name: str, way: str, engine: str) -> None:
    from intact._audit.audit import audit

    with np.load(nets / "held_out.npz") as held_out:
        x, labels = held_out["x"], held_out["labels"]
    wanted = outputs("onnxruntime", str(nets / f"{name}_float.onnx"), x)
    with tempfile.TemporaryDirectory() as folder:
        paths = variants(nets, name, way, engine, folder)
        here = {what: outputs(engine, path, x) for what, path in paths.items()}
        there = emulated(engine, nets / "held_out.npz", list(paths.values()), folder)
        there = {what: there[Path(path).stem] for what, path in paths.items()}
        times = ratios(engine, paths, x)
        audits = {what: audit(path, engines_asked=[engine]) for what, path in paths.items()}

    def right(y: np.ndarray) -> int:
        return np.count_nonzero(y.argmax(-1) == labels)

    def changed(y: np.ndarray) -> int:
        largest = np.abs(here["stored"]).max()
        return np.count_nonzero(np.abs(y - here["stored"]).max(-1) > 1e-4 * largest)

    print(
        f"\n{name}, {'static' if way == 'qdq' else 'dynamic'}, {engine}; float: {right(wanted)} of {len(labels)}\n"
    )
    head = ["", "unsafe", "right here", "without VNNI", "dB here", "without VNNI", "time"]
    head += ["changed here", "without VNNI"] if engine == "openvino" else []
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for what in paths:
        cells = [
            what,
            f"{audits[what].failing(engine)} of {len(audits[what].layers)}",
            right(here[what]),
            right(there[what]),
            f"{decibels(here[what], wanted):.1f}",
            f"{decibels(there[what], wanted):.1f}",
            f"{times[what]:.2f}",
        ]
        cells += [changed(here[what]), changed(there[what])] if engine == "openvino" else []
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:5], sys.argv[5:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", metavar="NETS", type=Path)
    parser.add_argument("names", metavar="NAME", nargs="*", help=", ".join(WAYS))
    parser.add_argument("--engine", default="onnxruntime", choices=["onnxruntime", "openvino"])
    options = parser.parse_args()
    for name in set(options.names) - set(WAYS):
        parser.error(f"NAME: {name!r} is no network; expected some of {', '.join(WAYS)}")
    for name in options.names or WAYS:
        for way in WAYS[name]:
            if options.engine == "onnxruntime" or way == "qdq":
                table(options.nets, name, way, options.engine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
