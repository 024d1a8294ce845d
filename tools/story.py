"""story.py [--out FOLDER]: audit and repair a published model, and run it with ONNX Runtime on this CPU and on one without VNNI.

docs/measurements/story.md describes it. `tools/bootstrap.sh story` makes the environment that it runs in. Writes tables to FOLDER/story.md and,
as a measurement file (tools/pages.py), to FOLDER/story.json, and a plot to FOLDER/story.svg; the default FOLDER is report/story.
Inputs and repaired models go to build/story. qemu-user emulates
the CPU without VNNI, a Haswell. Exit status: 0 if intact proves and checks the repaired model, 1 if not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
import tokenizers
import traceforge_title_model
from pages import markdown

MODEL = traceforge_title_model.span_dir()
WORK = Path("build/story")
HASWELL = ["qemu-x86_64", "-cpu", "Haswell"]
TEXTS = [
    "Renamed the function load_config to read_settings in twelve files.",
    "Updated the Dockerfile to use a smaller base image and removed unused packages.",
    "Added a button to the settings page that exports the data of a user as CSV.",
    "Searched the repository for uses of the old API and replaced each call.",
    "Fixed the failing test of the date parser by handling leap years.",
    "Wrote unit tests for the new cache and measured its hit rate.",
    "Upgraded the database driver and ran the migration on a copy of the data.",
    "Split the large controller class into three smaller classes.",
]
START, END, LONGEST = 0, 1, 16  # tokens
PARTS = ("encoder", "decoder")
PRECISE = "precision mode"
ROUNDS = 100


class Titler:
    """The two halves of the model. `is_precise`: ONNX Runtime stores s8 weights as u8, which is exact on every CPU."""

    def __init__(self, folder: Path, is_precise: bool = False):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        options.add_session_config_entry("session.x64quantprecision", str(int(is_precise)))
        providers = ["CPUExecutionProvider"]
        self.parts = {
            part: onnxruntime.InferenceSession(str(folder / f"{part}.onnx"), options, providers=providers)
            for part in PARTS
        }
        self.tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))

    def encoder_inputs(self, text: str) -> dict[str, np.ndarray]:
        tokens = np.array([self.tokenizer.encode(text).ids], np.int64)
        return {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}

    def decoder_inputs(self, text: str, title: list[int]) -> dict[str, np.ndarray]:
        inputs = self.encoder_inputs(text)
        (state,) = self.parts["encoder"].run(None, inputs)
        return {
            "input_ids": np.array([title], np.int64),
            "encoder_hidden_states": state,
            "encoder_attention_mask": inputs["attention_mask"],
        }

    def tokens(self, text: str) -> list[int]:
        """The most likely next token, until the end."""
        title = [START]
        inputs = self.decoder_inputs(text, title)
        while title[-1] != END and len(title) < LONGEST:
            inputs["input_ids"] = np.array([title], np.int64)
            (logits,) = self.parts["decoder"].run(None, inputs)
            title.append(int(logits[0, -1].argmax()))
        return title

    def decoded(self, title: list[int]) -> str:
        return self.tokenizer.decode(title)

    def titles(self) -> list[str]:
        return [self.decoded(self.tokens(text)) for text in TEXTS]


def emulated_titles(folder: Path) -> list[str]:
    process = subprocess.run(
        [*HASWELL, sys.executable, __file__, "--titles", str(folder)], capture_output=True, text=True
    )
    if process.returncode:
        sys.exit(f"story: the emulated ONNX Runtime failed: {process.stderr[-300:]}")
    return json.loads(process.stdout)


def intact(*arguments: object) -> dict:
    """Runs a command of intact and prints its verdict. Returns its JSON."""
    words = [str(argument) for argument in arguments]
    shown = [Path(word).name if os.sep in word else word for word in words]
    print("$ intact", *shown, flush=True)
    file = Path(words[words.index("--json") + 1])
    process = subprocess.run(
        [sys.executable, "-c", "from intact._program import main; main()", *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    if process.returncode not in (0, 1):
        sys.exit(f"story: intact {words[0]}: exit status {process.returncode}")
    print("  ...\n  " + process.stdout.splitlines()[-1], flush=True)
    return json.loads(file.read_text())


def times(titlers: dict[str, Titler]) -> dict[str, dict[str, float]]:
    """Milliseconds for a run of each half: the first decile of interleaved runs. On a busy machine most runs wait for the CPU."""
    found: dict[str, dict[str, float]] = {}
    reference = titlers["stored"]
    title = reference.tokens(TEXTS[0])
    for part, inputs in (
        ("encoder", reference.encoder_inputs(TEXTS[0])),
        ("decoder", reference.decoder_inputs(TEXTS[0], title)),
    ):
        taken: dict[str, list[float]] = {name: [] for name in titlers}
        order = np.random.default_rng(0)
        for i in range(ROUNDS + 2):
            # so that periodic load does not always hit the same one
            for name in order.permutation(list(titlers)):
                start = time.perf_counter()
                titlers[name].parts[part].run(None, inputs)
                if i >= 2:
                    taken[name].append(1e3 * (time.perf_counter() - start))
        found[part] = {name: float(np.quantile(values, 0.1)) for name, values in taken.items()}
    return found


def plot(path: Path, audits: dict[str, dict]) -> None:
    """Bars: for each layer, the share of its sums that clamp on the texts."""
    columns = {"encoder": "#1b6ac9", "decoder": "#d1361b"}
    blocks, series, first = "", [], 0
    for part, color in columns.items():
        layers = audits[part]["layers"]
        rows = [
            (first + i, 100 * found["changed"] / found["results"])
            for i, layer in enumerate(layers)
            if (found := layer["on_data"]) and found["changed"]
        ]
        blocks += "".join(f"{i} {share:.6f}\n" for i, share in rows) + "e\n"
        series.append(f"'-' with impulses lw 3 lc '{color}' title '{part}, {len(layers)} layers'")
        first += len(layers)
    script = f"""set terminal svg size 720,300 font 'sans-serif,12' background '#ffffff'
set output '{path}'
set logscale y
set format y '%g %%'
set xlabel 'layer'
set ylabel 'sums that clamp' offset 1
set xrange [-1:{first}]
set yrange [0.0005:1]
set grid y
set key above
plot {", ".join(series)}
{blocks}"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def decibels(value: "float | None") -> str:
    return "equal" if value is None else f"{value:.1f} dB"


def cpu() -> str:
    with open("/proc/cpuinfo") as info:
        return next(line.partition(":")[2].strip() for line in info if line.startswith("model name"))


def save(folder: Path, runs: list[dict[str, np.ndarray]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for i, run in enumerate(runs):
        np.savez(folder / f"{i}.npz", **run)
    return folder


def table(head: list[str], rows: "list[list[object]]") -> list[list[str]]:
    return [head, *([str(cell) for cell in row] for row in rows)]


def repairs_table(repairs: dict[str, dict]) -> list[list[str]]:
    rows = []
    for part, done in repairs.items():
        layers, output = done["layers"], done["check"]["outputs"][0]
        by = [sum(layer["made_safe_by"] == how for layer in layers) for how in ("folded order", "u8 weights")]
        rows.append(
            [
                part,
                f"{sum(layer['unsafe_pairs'] > 0 for layer in layers)} of {len(layers)}",
                *by,
                *(decibels(output[name]) for name in ("stored", "repaired", "control")),
            ]
        )
    return table(
        [
            "",
            "unsafe layers",
            "safe by order",
            "by u8 weights",
            "stored, without VNNI",
            "repaired",
            "control",
        ],
        rows,
    )


def titles_table(exact: list[str], written: dict[str, list[list[str]]]) -> list[list[str]]:
    def right(titles: list[str]) -> str:
        return f"{sum(one == other for one, other in zip(titles, exact))} of {len(exact)}"

    return table(
        ["exact titles", "this CPU", "without VNNI"],
        [[name, *map(right, sides)] for name, sides in written.items()],
    )


def times_table(milliseconds: dict[str, dict[str, float]]) -> list[list[str]]:
    rows = [
        [part, *(f"{ms / taken['stored']:.2f}" for ms in taken.values())]
        for part, taken in milliseconds.items()
    ]
    return table(["time over stored", *next(iter(milliseconds.values()))], rows)


def story(out: Path) -> int:
    start = time.monotonic()
    titlers = {"stored": Titler(MODEL), PRECISE: Titler(MODEL, is_precise=True)}
    precise = titlers[PRECISE]
    titles = [precise.tokens(text) for text in TEXTS]
    runs = [precise.decoder_inputs(text, title[:-1]) for text, title in zip(TEXTS, titles)]
    data = {
        "encoder": save(WORK / "encoder_data", [precise.encoder_inputs(text) for text in TEXTS]),
        "decoder": save(WORK / "decoder_data", runs),
    }
    audits, repairs = {}, {}
    for part in PARTS:
        model = MODEL / f"{part}.onnx"
        audits[part] = intact(
            "audit", model, "--data", data[part], "--emulate", "--json", WORK / f"{part}_audit.json"
        )
        repairs[part] = intact(
            "repair",
            model,
            "-o",
            WORK / model.name,
            "--reorder-sums",
            "--check",
            "--data",
            data[part],
            "--emulate",
            "--json",
            WORK / f"{part}_repair.json",
        )
    plot(out / "story.svg", audits)

    titlers["repaired"] = Titler(WORK)
    exact = [precise.decoded(title) for title in titles]
    written = {}
    for name, folder in (("stored", MODEL), ("repaired", WORK)):
        print(f"titles of the {name} model, on this CPU and emulated", flush=True)
        written[name] = [titlers[name].titles(), emulated_titles(folder)]
    tables = {
        "repairs": repairs_table(repairs),
        "titles": titles_table(exact, written),
        "times": times_table(times(titlers)),
        "texts": table(
            ["text", "exact title", "stored, without VNNI", "repaired, without VNNI"],
            [list(row) for row in zip(TEXTS, exact, written["stored"][1], written["repaired"][1])],
        ),
    }
    source = f"tools/story.py, ONNX Runtime {onnxruntime.__version__}"
    file = {"cpu": cpu(), "date": time.strftime("%Y-%m-%d"), "source": source, "tables": tables}
    (out / "story.json").write_text(json.dumps(file, indent=1, ensure_ascii=False) + "\n")
    page = "\n".join([f"{source}, {cpu()}\n", *map(markdown, tables.values())])
    (out / "story.md").write_text(page)
    print(page)
    print(f"wrote {out}/story.md, story.json and story.svg in {time.monotonic() - start:.0f} s")
    return 0 if all(done["proven"] and done["check"]["right"] for done in repairs.values()) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path("report/story"), help="folder to write to (report/story)"
    )
    parser.add_argument("--titles", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)  # in the emulator
    options = parser.parse_args()
    if options.titles:
        print(json.dumps(Titler(options.titles).titles()))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    return story(options.out)


if __name__ == "__main__":
    sys.exit(main())
