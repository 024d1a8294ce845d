"""peers.py NAME FOLDER [--out FOLDER] [--time SECONDS]: measures what another library computes, at each ISA that this CPU can run.

tools/bootstrap.sh peers calls it. The first FOLDER has the library: bin/python, or the plug-in NAME.so and a link `library` to
what the plug-in is linked with; and usr/lib, if the library comes with a C library of its own. `intact verify pairing`, then
`intact verify sweep --quick` run for each class of examples/targets, or for the plug-in, and for each ISA. --out (default:
report/peers) gets peers_NAME_VERSION.json, a file for docs/measurements/DATE-CPU, which tools/pages.py reads. Its keys are cpu,
date, source, versions (of the library, and of libraries inside it) and tables. Tables without rows are left out:

    sums        problems with clamped pairs, or "exact", for each operation, types and ISA
    roundings   problems with outputs that another rounding than intact's explains
    failures    kinds of failures, with a problem line
    pairs       which products form a pair; operations without clamped pairs are left out

A column's head names how the library was held to the ISA: "option", the library's own; "held", examples/targets/held_to.c;
"qemu", qemu-x86_64 -cpu Haswell. The last column is the CPU itself, with its best ISA.

After --time no further command begins, and the one that runs is stopped. If the same command runs again, sweeps continue from
their journals. A journal belongs to one version of the library, and of a plug-in's library to one file. Exit status: 0; 2 bad
arguments; 3 nothing was measured; 4 something was not.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import gzip
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INTACT = ROOT / "build/release/tools/intact"
PACKAGE = ROOT / "build/release/python"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
ITSELF = "this CPU"
TIME_OVER = "the time of --time was over"
# What /proc/cpuinfo calls each ISA, and what held_to.c does.
ISAS = {
    **{"AVX2": "avx2", "AVX-VNNI": "avx_vnni", "AVX-512": "avx512bw", "AVX-512-VNNI": "avx512_vnni"},
    "AMX": "amx_int8",
}
HELD_TO = ISAS | {"AVX-512": "avx512"}
OPERATIONS = ("gemm", "conv", "depthwise", "deconvolution")  # of a sweep
IN_QEMU = ["qemu-x86_64", "-cpu", "Haswell"]
# (words before a version, the version): of torch.__config__.show().
INSIDE_TORCH = {"oneDNN": re.compile(r"(?:MKL-DNN|oneDNN) v(\d+(?:\.\d+)+)")}
TARGET_VERSION = re.compile(r"^(?:oneDNN|ggml) (\d+(?:\.\d+)*)")

PAIR_WORDS = {
    "depths": "2i, 2i + 1",
    "within_tap": "within a tap",
    "within_tap_or_flattened": "within a tap, and flattened",
    "kernel_row": "taps of a kernel row",
    "kernel_column": "taps column by column",
}

Rows = list[list[str]]


@dataclass
class Peer:
    words: str
    file: str = ""  # of examples/targets; "": a plug-in
    classes: tuple[str, ...] = ()
    distribution: str = ""  # of PyPI
    # For a class ("": for all): the variable, or with a plug-in the option, that limits the library to an ISA.
    switches: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)


def numbered(words: str) -> dict[str, str]:
    return dict(zip(ISAS, words.split()))


ONEDNN = ("ONEDNN_MAX_CPU_ISA", numbered("AVX2 AVX2_VNNI AVX512_CORE AVX512_CORE_VNNI"))
FBGEMM = ("FBGEMM_ENABLE_INSTRUCTIONS", {"AVX2": "AVX2", "AVX-512": "AVX512", "AVX-512-VNNI": "AVX512_E1"})
PEERS = {
    "onnxruntime": Peer(
        "ONNX Runtime", "onnxruntime_target.py", ("OnnxRuntime", "Integer", "Dynamic"), "onnxruntime"
    ),
    "openvino": Peer("OpenVINO", "openvino_target.py", ("OpenVino",), "openvino", {"": ONEDNN}),
    "litert": Peer("LiteRT", "litert_target.py", ("Xnnpack", "BuiltIn", "Reference"), "ai-edge-litert"),
    "torch": Peer(
        "PyTorch",
        "torch_target.py",
        ("Fbgemm", "Onednn", "Pointwise", "FbgemmDynamic", "OnednnDynamic", "Qnnpack", "IntMm"),
        "torch",
        {"Fbgemm": FBGEMM, "FbgemmDynamic": FBGEMM}
        | dict.fromkeys(("Onednn", "OnednnDynamic", "Pointwise"), ONEDNN),
    ),
    "ggml": Peer(
        "ggml",
        "ggml_target.py",
        ("Q8", "Q4"),
        switches={"": ("GGML_CPU", numbered("haswell alderlake skylakex icelake sapphirerapids"))},
    ),
    "onednn": Peer("oneDNN", switches={"": ("isa", numbered("avx2 avx2_vnni avx512_core avx512_core_vnni"))}),
    "xnnpack": Peer("XNNPACK", switches={"": ("isa", {"AVX2": "avx2", "AVX-512": "avx512skx"})}),
}


@dataclass
class Hold:
    """How the library is limited to `isa`, the head of a column."""

    isa: str
    how: str = ""  # "option", "held" or "qemu"; "": not at all
    option: str = ""  # of a plug-in
    variables: dict[str, str] = field(default_factory=dict)
    emulator: tuple[str, ...] = ()
    missing: str = ""  # why the library has nothing for this ISA

    @property
    def head(self) -> str:
        return f"{self.isa} ({self.how})" if self.how else self.isa


def holds(peer: Peer, of_class: str, flags: set[str], can_be_held: bool, folder: Path) -> list[Hold]:
    """A Hold for each ISA that this CPU, whose flags are given, can run, then the CPU itself, which runs its best ISA."""
    variable, values = peer.switches.get(of_class, peer.switches.get("", ("", {})))
    found, here = [], [isa for isa, flag in ISAS.items() if flag in flags]
    is_library = variable == "GGML_CPU"  # a library for each ISA, none for the CPU itself
    for isa in here if is_library else here[:-1]:
        if value := values.get(isa):
            if not peer.file:
                found.append(Hold(isa, "option", option=f"{variable}={value}"))
            else:
                missing = ""
                if is_library:
                    name = f"ggml/*/libggml-cpu-{value}.so"
                    value = next((str(path) for path in (folder / LIBRARIES).glob(name)), "")
                    missing = "" if value else f"{folder / LIBRARIES} has no {name}"
                found.append(Hold(isa, "option", variables={variable: value}, missing=missing))
        elif peer.file and can_be_held:
            library = str(PACKAGE / "intact/held_to.so")
            found.append(Hold(isa, "held", variables={"HELD_TO": HELD_TO[isa], "LD_PRELOAD": library}))
        elif peer.file and isa == "AVX2":
            found.append(Hold(isa, "qemu", emulator=tuple(IN_QEMU)))
    return found if is_library else [*found, Hold(ITSELF)]


def sum_cell(mixture: dict) -> str:
    """What the sweep's JSON (verify/report/sweep_file.h) says of the sums of one operation: "exact, 24", "158/262"."""
    problems, exact = mixture["problems"], mixture["exact"]
    others: dict[str, int] = {}
    for part in mixture["parts"]:
        sums = part["arithmetic"].split("; ")[0]
        if sums == "exact":
            exact += part["problems"]
        else:
            others[sums] = others.get(sums, 0) + part["problems"]
    clamped = sum(count for sums, count in others.items() if "maddubs" in sums)
    words = [f"{clamped}/{problems}"] if clamped else []
    words += [f"{sums}: {count}/{problems}" for sums, count in others.items() if "maddubs" not in sums]
    if not words:
        words = [f"exact, {problems}" if exact == problems else f"exact, {exact} of {problems}"]
    for key, name in (
        ("in_parts", "several models"),
        ("unexplained", "no model"),
        ("without_outputs", "no outputs"),
    ):
        if count := mixture[key]["problems"]:
            words.append(f"{name}: {count}")
    return "; ".join(words)


def roundings(mixture: dict) -> dict[str, int]:
    """Problems of each rounding that is not intact's."""
    found: dict[str, int] = {}
    for part in mixture["parts"]:
        _, _, rounding = part["arithmetic"].partition("; ")
        if rounding:
            found[rounding] = found.get(rounding, 0) + part["problems"]
    return found


class Cells:
    """Rows of a table under construction. A key has the first cells of its row."""

    def __init__(self, *head: str):
        self.head, self.rows = list(head), {}

    def set(self, key: tuple[str, ...], column: str, text: str) -> None:
        self.rows.setdefault(key, {})[column] = text.replace("|", "\\|")

    def table(self, columns: list[str]) -> Rows:
        """`columns`: in their order; columns that no row has are left out. A row has "–" in columns that were not set."""
        columns = [column for column in columns if any(column in cells for cells in self.rows.values())]
        rows = [[*key, *(cells.get(column, "–") for column in columns)] for key, cells in self.rows.items()]
        return [[*self.head, *columns], *rows]


def pair_words(row: dict) -> str:
    """A row of verify pairing's JSON."""
    text = PAIR_WORDS.get(row["pairing"], row["pairing"])
    return f"{text}; other sums: {row['other_sums']}" if row["other_sums"] else text


def merged_types(rows: dict[tuple[str, ...], dict[str, str]]) -> dict[tuple[str, ...], dict[str, str]]:
    """Rows (target, operation, types) whose other cells are equal become one row."""
    merged: dict[tuple, list[str]] = {}
    for (target, operation, types), cells in rows.items():
        merged.setdefault((target, operation, tuple(cells.items())), []).append(types)
    return {
        (target, operation, " ".join(types)): dict(cells)
        for (target, operation, cells), types in merged.items()
    }


class Tables:
    """What all commands of a peer found."""

    def __init__(self) -> None:
        self.sums = Cells("target", "operation", "types")
        self.roundings = Cells("target", "operation", "types", "rounding")
        self.failures = Cells("target", "failure", "for example")
        self.pairs = Cells("target", "operation", "types")

    def add_sweep(self, target: str, column: str, sweep: dict) -> None:
        for mixture in sweep["computes"]:
            operation, types = mixture["operation"].rsplit(" ", 1)
            self.sums.set((target, operation, types), column, sum_cell(mixture))
            for rounding, count in roundings(mixture).items():
                self.roundings.set(
                    (target, operation, types, rounding), column, f"{count}/{mixture['problems']}"
                )
        kinds: dict[str, list[dict]] = {}
        for failure in sweep["failures"]:
            kinds.setdefault(failure["kind"], []).append(failure)
        for kind, failures in kinds.items():
            known = next((key for key in self.failures.rows if key[:2] == (target, kind)), None)
            first = min(failures, key=lambda failure: len(failure["minimised"] or failure["problem"]))
            line = f"`{first['minimised'] or first['problem']}`"
            self.failures.set(known or (target, kind, line), column, str(len(failures)))

    def add_pairing(self, target: str, column: str, pairing: dict) -> None:
        for row in pairing["rows"]:
            if row["pairing"] != "unsupported":
                self.pairs.set((target, row["operation"], row["types"]), column, pair_words(row))

    def tables(self, columns: list[str]) -> dict[str, Rows]:
        targets = list(dict.fromkeys(key[0] for key in self.sums.rows))

        def place(row: tuple) -> tuple:
            target, operation, *others = row[0]
            return targets.index(target), OPERATIONS.index(operation), others

        for cells in (self.sums, self.roundings):
            cells.rows = dict(sorted(cells.rows.items(), key=place))
        clamping = {key: cells for key, cells in self.pairs.rows.items() if set(cells.values()) != {"none"}}
        self.pairs.rows = merged_types(clamping)
        found = {
            "sums": self.sums.table(columns),
            "roundings": self.roundings.table(columns),
            "failures": self.failures.table(columns),
            "pairs": self.pairs.table(columns),
        }
        return {name: rows for name, rows in found.items() if len(rows) > 1}


def changelog_version(text: str) -> str:
    """Of a Debian package's changelog: "xnnpack (0.0~git1-2) unstable; …"."""
    match = re.match(r"\S+ \(([^)]+)\)", text)
    return match[1] if match else ""


def versions_of(peer: Peer, target_name: str, installed: str, config: str) -> dict[str, str]:
    """The versions of the library and of those inside. `target_name`: the target's own name, `installed`: the version of PyPI's
    distribution, `config`: torch.__config__.show(). ValueError: no version."""
    if peer.distribution:
        version = installed
    else:
        match = TARGET_VERSION.match(target_name)
        version = match[1] if match else installed
    if not re.fullmatch(r"\d+[\w.+~^:-]*", version):
        raise ValueError(f"{peer.words}: the version is {version!r}; expected digits and dots")
    inside = {words: match[1] for words, pattern in INSIDE_TORCH.items() if (match := pattern.search(config))}
    return {peer.words: version} | {f"{words} in {peer.words}": found for words, found in inside.items()}


@dataclass
class Machine:
    flags: set[str]
    can_be_held: bool


class Measurement:
    def __init__(self, name: str, folder: Path, deadline: float):
        self.name, self.peer, self.folder, self.deadline = name, PEERS[name], folder.resolve(), deadline
        self.left_out: list[tuple[str, str]] = []  # reasons, and what they prevented
        self.start = time.monotonic()

    def say(self, text: str) -> None:
        print(f"peers: {self.name}, {time.monotonic() - self.start:.0f} s: {text}", flush=True)

    @property
    def loader(self) -> list[str]:
        libraries = self.folder / LIBRARIES
        loader = libraries / "ld-linux-x86-64.so.2"
        paths = f"{libraries}:/usr/lib/x86_64-linux-gnu"
        return [str(loader), "--library-path", paths] if loader.exists() else []

    def python(self, hold: Hold) -> Path:
        """A program that runs the environment's Python, held to an ISA."""
        python = self.folder / "bin/python"
        if self.loader:  # the loader does not find the environment
            site = next(self.folder.glob("lib/python3*/site-packages"))
            command = ["env", f"PYTHONPATH={PACKAGE}:{site}", *self.loader, str(python.resolve())]
        else:
            command = ["env", f"PYTHONPATH={PACKAGE}", *hold.emulator, str(python)]
        script = self.folder / "held_python"
        variables = [f"{key}={value}" for key, value in hold.variables.items()]
        script.write_text(f'#!/bin/sh\nexec {shlex.join(["env", *variables, *command])} "$@"\n')
        script.chmod(0o755)
        return script

    def ask_python(self, code: str) -> str:
        run = subprocess.run(
            [self.python(Hold(ITSELF)), "-c", code], check=False, capture_output=True, text=True
        )
        return run.stdout.strip()

    def sweep(self, of_class: str, hold: Hold, tested: str) -> dict | None:
        """Continues from a journal of this library, class and ISA. `tested`: the target's own name."""
        name = re.sub(r"\W+", "_", f"{tested} {self.installed()} {self.library()} {of_class} {hold.head}")
        journal = self.folder / "journals" / name
        journal.parent.mkdir(exist_ok=True)
        command = ["sweep", "--quick", "--journal", str(journal)]
        if journal.exists():
            found = self.run(command, of_class, hold)
            if found or time.monotonic() >= self.deadline:
                return found
            self.left_out.pop()
            journal.unlink()  # of another build of intact, or of the plug-in
        return self.run(command, of_class, hold)

    def run(self, command: list[str], of_class: str, hold: Hold) -> dict | None:
        """The JSON of `intact verify COMMAND`. None, with a line for people, if the command wrote none."""
        out = self.folder / "run.json"
        out.unlink(missing_ok=True)
        variables = dict(os.environ)
        if self.peer.file:
            target = f"{PACKAGE}/intact/python_target.so:{ROOT}/examples/targets/{self.peer.file}:{of_class}"
            variables["INTACT_PYTHON"] = str(self.python(hold))
            prefix = []
        else:
            target = f"{self.folder}/{self.name}.so{':' + hold.option if hold.option else ''}"
            prefix = self.loader
        left = self.deadline - time.monotonic()
        words = f"{command[0]} of {of_class or self.name}, {hold.head}"
        if left <= 0:
            self.left_out.append((TIME_OVER, words))
            return None
        if hold.missing:
            self.left_out.append((hold.missing, words))
            return None
        self.say(words)
        deadline = "120" if hold.emulator else "60"
        arguments = [*command, "--target", target, "--deadline", deadline, "--json", str(out)]
        with open(self.folder / "log", "a") as log:
            log.write(f"\n{words}\n")
            log.flush()
            try:
                run = subprocess.run(
                    [*prefix, str(INTACT), "verify", *arguments],
                    env=variables,
                    stdout=log,
                    stderr=None if sys.stderr.isatty() else log,
                    timeout=None if left == float("inf") else left,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                self.left_out.append((TIME_OVER, words))
                return None
        if not out.exists():
            reason = f"status {run.returncode} ({self.folder}/log)"
            self.left_out.append((reason, words))
            return None
        found = json.loads(out.read_text())
        if not_run := found.get("not_run"):
            self.left_out.append((not_run["reason"], f"{words}: problems not run: {not_run['problems']}"))
        return found

    def measure(self, machine: Machine) -> dict | None:
        """The file. None: nothing was measured."""
        tables, sweep, runs = Tables(), None, []
        for of_class in self.peer.classes or ("",):
            label = f"`{self.peer.file}:{of_class}`" if of_class else f"`{self.name}`"
            for hold in holds(self.peer, of_class, machine.flags, machine.can_be_held, self.folder):
                if pairing := self.run(["pairing"], of_class, hold):
                    runs.append((label, of_class, hold, pairing["target"]))
                    tables.add_pairing(label, hold.head, pairing)
        versions = self.versions(runs[0][3]) if runs else {}  # raises before the sweeps
        for label, of_class, hold, tested in runs:
            if found := self.sweep(of_class, hold, tested):
                sweep = found
                tables.add_sweep(label, hold.head, found)
        columns = sorted(
            {hold.head for _, _, hold, _ in runs}, key=lambda head: [*ISAS, ITSELF].index(head.split(" (")[0])
        )
        if sweep is None:
            return None
        cpu = sweep["machine"]
        return {
            "cpu": f"{cpu['cpu']}, CPUID family {cpu['family']}, model {cpu['model']}",
            "date": datetime.date.today().isoformat(),
            "source": f"written by tools/bootstrap.sh peers {self.name}, from intact {sweep['version']}: verify sweep --quick and verify pairing",
            "versions": versions,
            "tables": tables.tables(columns),
        }

    @functools.cache
    def installed(self) -> str:
        """The version of PyPI's distribution or of Debian's package; "": unknown."""
        if self.peer.distribution:
            return self.ask_python(
                f"from importlib.metadata import version; print(version({self.peer.distribution!r}))"
            )
        logs = sorted(self.folder.glob(f"usr/share/doc/lib{self.name}*/changelog.Debian.gz"))
        return changelog_version(gzip.decompress(logs[0].read_bytes()).decode()) if logs else ""

    @functools.cache
    def library(self) -> str:
        """The first digits of the SHA-256 of a plug-in's library; "": no plug-in."""
        file = self.folder / "library"
        return "" if self.peer.file else hashlib.sha256(file.read_bytes()).hexdigest()[:16]

    def versions(self, target_name: str) -> dict[str, str]:
        is_torch = self.name == "torch"
        config = self.ask_python("import torch; print(torch.__config__.show())") if is_torch else ""
        return versions_of(self.peer, target_name, self.installed(), config)


def file_text(file: dict) -> str:
    """JSON with a line for each row of a table."""
    text = re.sub(r"\n {4}", " ", json.dumps(file, indent=1, ensure_ascii=False))
    return re.sub(r"\n {3}\]", " ]", text) + "\n"


def cpu_flags(cpuinfo: str) -> set[str]:
    """Of the text of /proc/cpuinfo. ValueError: it has none."""
    match = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    if not match:
        raise ValueError("/proc/cpuinfo has no line 'flags'; expected the ISAs of an x86-64 CPU there")
    return set(match[1].split())


def this_machine() -> Machine:
    flags = cpu_flags(Path("/proc/cpuinfo").read_text())
    held = subprocess.run(
        ["true"],
        env={**os.environ, "HELD_TO": "avx2", "LD_PRELOAD": str(PACKAGE / "intact/held_to.so")},
        check=False,
        capture_output=True,
        text=True,
    )
    if held.returncode:
        print(f"peers: {held.stderr.strip()}; so other ISAs need an option of the library, or qemu for AVX2")
    return Machine(flags, held.returncode == 0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "report/peers")
    parser.add_argument("--time", type=float, default=float("inf"))
    options = parser.parse_args()
    measurement = Measurement(options.name, options.folder, time.monotonic() + options.time)
    try:
        found = measurement.measure(this_machine())
    except ValueError as error:  # no version, no flags
        measurement.say(str(error))
        return 3
    for reason in dict(measurement.left_out):
        left_out = [words for because, words in measurement.left_out if because == reason]
        measurement.say(f"LEFT OUT, {reason}: {'; '.join(left_out)}")
    if found is None:
        measurement.say("nothing was measured")
        return 3
    version = re.sub(r"\W+", "_", found["versions"][measurement.peer.words])
    out = options.out / f"peers_{options.name}_{version}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(file_text(found))
    measurement.say(f"wrote {out}")
    return 4 if measurement.left_out else 0


if __name__ == "__main__":
    sys.exit(main())
