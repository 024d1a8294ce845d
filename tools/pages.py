"""pages.py [--check | --take REPORT RAMP OUT]: writes tables and pictures of the pages from docs/measurements/DATE-CPU/*.json.

A table of a page lies between a comment that names its source and `<!-- end -->`:

    <!-- table FILE: NAME -->                  the table NAME of docs/measurements/FILE
    <!-- table FILE: NAME; columns 0 2 -->     two of its columns
    <!-- summary CPU -->                       a row for each kind of work, a column for each ISA (SUMMARIES)
    <!-- losses CPU -->                        the shapes in which intact is slower than a peer (LOSSES)
    <!-- lost FILE: NAME; columns 0 2 -->      the cells below 1 of a table

A file is one of `intact_bench --json`, or has the keys cpu, date, source and tables. A table is a list of rows of texts, and its first row is its head. Pictures go to
docs. --check writes nothing. It reports tables and pictures that differ from what would be written, and figures of manual pages
that are in no such table. --take writes OUT, the file of two pictures, from REPORT, the report.json of `intact verify`, and RAMP,
from `intact verify ramp --isa avx2 --mode saturating --json RAMP`. Exit status: 0 if all is right.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pictures

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MEASUREMENTS = DOCS / "measurements"
BLOCK = re.compile(
    r"(<!-- (table|summary|losses|lost|versions) ([^\n]*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL
)
NUMERIC = re.compile(r"([\d+–±−]|below \d).*|$", re.DOTALL)
ISAS = ("AVX2", "AVX-VNNI", "AVX-VNNI-INT8", "AVX-512", "AVX-512-VNNI", "AVX10.2", "AMX")
BENCH_ISAS = dict(
    zip(("avx2", "avx_vnni", "avx_vnni_int8", "avx512", "avx512_vnni", "avx10_2", "amx_int8"), ISAS)
)
SATURATES = ("AVX2", "AVX-512")  # oneDNN does here, so its time is not comparable

Rows = list[list[str]]


@cache
def tables(file: str) -> dict[str, Rows]:
    found = json.loads((MEASUREMENTS / file).read_text())
    return bench_tables(found) if found.get("schema") == "intact-bench" else found["tables"]


def bench_tables(found: dict) -> dict[str, Rows]:
    """Of a file of `intact_bench --json` (bench/report/report.h): intact's GOPS, and its speed over each peer, by type of C."""
    versions = {
        peer["name"]: f"oneDNN {peer['version']}" for peer in found["peers"] if peer["name"] == "onednn"
    }
    cells: dict[str, dict[str, dict[str, str]]] = {}  # by table, shape and ISA
    for row in found["rows"]:
        if row["isa"] not in BENCH_ISAS:  # portable kernels
            continue
        for timing in row["timings"]:
            contender, c_type = timing["contender"], timing["c_type"]
            if timing["microseconds"] is None or timing["quantization"] != "static":
                continue
            if contender == "intact":
                name, cell = f"GOPS, {c_type}", f"{timing['gops']:,.0f}"
            elif timing.get("speed_up") is None:  # intact was not timed
                continue
            else:
                name, cell = (
                    f"over {versions.get(contender, contender)}, {c_type}",
                    f"{timing['speed_up']:.2f}",
                )
            of_shape = cells.setdefault(name, {}).setdefault(shape(row), {})
            if BENCH_ISAS[row["isa"]] in of_shape:
                raise ValueError(f"{name}: two rows {shape(row)} of {row['isa']}; expected one")
            of_shape[BENCH_ISAS[row["isa"]]] = cell
    return {name: by_isa("shape", of_shapes) for name, of_shapes in cells.items()}


def shape(row: dict) -> str:
    if not (conv := row["conv"]):
        return f"{row['m']}×{row['n']}×{row['k']}"
    stride = "" if conv["stride"] == [1, 1] else f"/{conv['stride'][0]}"
    groups = "" if conv["groups"] == 1 else f", {conv['groups']} groups"
    taps = "×".join(map(str, conv["kernel"]))
    return f"{conv['c_in']}×{conv['height']}×{conv['width']}→{conv['c_out']} {taps}{stride}{groups}"


def mean(cells: list[float]) -> float:
    return math.exp(math.fsum(map(math.log, cells)) / len(cells))


def number(cell: str) -> float:
    return float(re.match(r"[\d.,]+", cell)[0].replace(",", ""))


@dataclass
class Work:
    """A row of a summary: `how` of the cells in `column` of `rows` that contain the words of `having`. `over`: the column of
    divisors. Of several tables the lowest cell of each row counts. `isa`: only this one, if the table does not name it."""

    label: str
    how: Callable[[list[float]], float]
    file: str
    names: tuple[str, ...]
    rows: tuple[int, int | None] = (0, None)  # from, to
    column: str = "{isa}"
    over: str = ""
    having: tuple[str, ...] = ()
    isa: str = ""

    def cells(self, cpu: str, isa: str) -> list[float]:
        return [
            min(cells)
            for cells in zip(*(self._cells(tables(f"{cpu}/{self.file}")[name], isa) for name in self.names))
        ]

    def _cells(self, table: Rows, isa: str) -> list[float]:
        head, *rows = table
        column = self.column.format(isa=isa)
        words = [*self.having, *([isa] if "ISA" in head else [])]
        if column not in head or (self.isa and isa != self.isa):
            return []
        cells = []
        for row in rows[slice(*self.rows)]:
            named = dict(zip(head, row, strict=True))
            if named[column] and all(word in row for word in words):
                cells.append(
                    number(named[column]) / (number(named[self.over.format(isa=isa)]) if self.over else 1)
                )
        return cells


S32 = ("over oneDNN 2.6.3, s32", "over oneDNN 3.12.1, s32")
U8 = ("over oneDNN 2.6.3, u8", "over oneDNN 3.12.1, u8")
DENSE = (0, 7)


def mean_and_worst(label: str, *rest: object, **more: object) -> list[Work]:
    return [Work(f"{label}: mean", mean, *rest, **more), Work(f"{label}: worst", min, *rest, **more)]


def networks(count: int) -> list[Work]:
    label, rest = (
        f"{count} networks, exact over saturating, s32",
        ("published_networks.json", ("exact over saturating",)),
    )
    return [
        Work(f"{label}: mean of sums", mean, *rest, column="sum", having=("s32",)),
        Work(f"{label}: worst layer", min, *rest, column="worst", having=("s32",)),
    ]


COMMON = [
    *mean_and_worst("12 products, s32", "products.json", S32, (0, 12)),
    Work(
        "10 products of 32 and more rows, share of the peak: mean",
        mean,
        "products.json",
        ("share of the peak, s32",),
        (2, 12),
    ),
    *mean_and_worst("7 dense convolutions, s32", "convolutions.json", S32, DENSE),
    *mean_and_worst("7 dense convolutions, u8", "convolutions.json", U8, DENSE),
    Work("2 depthwise convolutions, u8: mean", mean, "convolutions.json", U8, (7, 9)),
    Work("convolution of 32 groups, u8", min, "convolutions.json", U8, (9, 10)),
]
ATTENTION, LITERT = "attention, 2 shapes, u8×s8, s32", "6 TFLite models, over LiteRT"
AMX, ON_AMX = ("over oneDNN 3.12.1",), {"isa": "AMX"}
CONVOLUTIONS_207 = ("convolutions_over_onednn_2_6_3.json", ("over oneDNN 2.6.3, u8",))
RESNET = "ResNet-50, 53 convolutions over oneDNN, u8: sum"
TIMES = ("transformers.json", ("attention",), (0, 2))
FEW_ROWS = ("few_rows.json", ("exact kernels",))
SUMMARIES = {
    "2026-11-27-amd_zen_5": [
        *COMMON,
        *mean_and_worst(ATTENTION, "transformers.json", ("attention over oneDNN 2.6.3, which saturates",)),
        *mean_and_worst(ATTENTION, *TIMES, "{isa}: oneDNN 2.6.3", "{isa}: intact", isa="AVX-512-VNNI"),
        *mean_and_worst(ATTENTION, *TIMES, "{isa}: oneDNN 3.12.1", "{isa}: intact", isa="AVX-VNNI"),
        *mean_and_worst(
            LITERT,
            "../2026-12-01-amd_zen_5/tflite_models.json",
            ("over LiteRT",),
            column="ratio",
            isa="AVX-512-VNNI",
        ),
        *networks(3),
    ],
    "2026-11-27-intel_xeon_167": [
        *COMMON,
        *mean_and_worst(
            "attention, 4 shapes, s32", "a_runtime_b.json", ("attention over oneDNN 2.6.3, s32",)
        ),
        *mean_and_worst(LITERT, "tflite_models.json", ("over LiteRT",), column="ratio"),
        *networks(2),
    ],
    "2026-11-29-intel_xeon_207": [
        *mean_and_worst("9 products over oneDNN 3.12.1, s32", "amx.json", AMX, (0, 9), "s32", **ON_AMX),
        *mean_and_worst("9 products over oneDNN 3.12.1, u8", "amx.json", AMX, (0, 9), "u8", **ON_AMX),
        *mean_and_worst("7 convolutions over oneDNN 3.12.1, u8", "amx.json", AMX, (9, 16), "u8", **ON_AMX),
        Work(
            "9 products, s32, share of the peak: mean",
            mean,
            "amx.json",
            AMX,
            (0, 9),
            "share of the peak, s32",
            **ON_AMX,
        ),
        Work("7 dense convolutions over oneDNN 2.6.3, u8: mean", min, *CONVOLUTIONS_207, (0, 1)),
        Work("8 transposed convolutions over oneDNN 2.6.3, u8: mean", min, *CONVOLUTIONS_207, (4, 5)),
        Work(RESNET, min, *CONVOLUTIONS_207, (6, 7)),
        Work(RESNET, lambda ms: min(ms[1:]) / ms[0], "amx.json", ("ResNet-50",), column="ms", **ON_AMX),
        *(
            Work(
                f"exact over saturating, 128 rows, {weights} weights: mean",
                min,
                "exact_over_saturating_kernels.json",
                ("exact over saturating",),
                column="{isa}, full-range u8",
                having=(weights,),
            )
            for weights in ("Laplace", "uniform")
        ),
    ],
    "2026-11-25-amd_zen_3": [
        *networks(3),
        *mean_and_worst(
            "exact over saturating, 1 to 16 rows, Laplace weights",
            *FEW_ROWS,
            column="ratio",
            having=("Laplace",),
            isa="AVX2",
        ),
        *mean_and_worst(
            "exact over saturating, 1 to 16 rows, uniform weights",
            *FEW_ROWS,
            column="ratio",
            having=("uniform",),
            isa="AVX2",
        ),
    ],
}
# (shapes, columns): the tables whose lowest cell counts.
LOSSES = [("products.json", S32, (0, 12)), ("convolutions.json", (*S32, *U8), (0, 10))]


def summary(cpu: str) -> Rows:
    found: dict[str, dict[str, str]] = {}
    for work in SUMMARIES[cpu]:
        cells = found.setdefault(work.label, {})
        for isa in ISAS:
            if values := work.cells(cpu, isa):
                cells[isa] = f"{work.how(values):.2f}"
    return by_isa("work", found)


def losses(cpu: str) -> Rows:
    found: dict[str, dict[str, str]] = {}
    for file, names, rows in LOSSES:
        shapes = [row[0] for row in tables(f"{cpu}/{file}")[names[0]][1:][slice(*rows)]]
        for isa in ISAS:
            for shape, ratio in zip(shapes, Work("", min, file, names, rows).cells(cpu, isa)):
                found.setdefault(shape, {}).update({isa: f"{ratio:.2f}"} if ratio < 1 else {})
    return by_isa("shape", {shape: cells for shape, cells in found.items() if cells})


def by_isa(name: str, found: dict[str, dict[str, str]]) -> Rows:
    isas = [isa for isa in ISAS if any(isa in cells for cells in found.values())]
    head = [name, *(isa + "*" * (isa in SATURATES) for isa in isas)]
    return [head, *([label, *(cells.get(isa, "") for isa in isas)] for label, cells in found.items())]


def table(source: str) -> Rows:
    file, _, name = source.partition(": ")
    name, _, columns = name.partition("; columns ")
    rows = tables(file)[name]
    return [[row[int(i)] for i in columns.split()] for row in rows] if columns else rows


def lost(source: str) -> Rows:
    head, *rows = table(source)
    kept = [[row[0], *(cell if number(cell) < 1 else "" for cell in row[1:])] for row in rows]
    return [head, *(row for row in kept if any(row[1:]))]


def versions(source: str) -> Rows:
    if source.startswith("core/"):
        rows = versions_of_engines(json.loads((ROOT / source).read_text()))
    else:
        found = json.loads((MEASUREMENTS / source).read_text())
        rows = [[*library, found["date"], found["cpu"]] for library in found["versions"].items()]
    return [["library", "version", "date", "CPU"], *rows]


def versions_of_engines(found: dict) -> Rows:
    return [
        [library["words"], version["version"], *measured.split(", ", 1)]
        for library in found["engines"] + found["others"]
        for version in library["versions"]
        for measured in version["measured"]
    ]


def markdown(rows: Rows) -> str:
    columns = list(zip(*rows[1:]))
    ends = [
        "---:" if i and all(map(NUMERIC.fullmatch, column)) else "---" for i, column in enumerate(columns)
    ]

    def line(cells: list[str]) -> str:
        return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)

    return "\n".join([line(rows[0]), "|" + "|".join(ends) + "|", *map(line, rows[1:])]) + "\n"


def written(page: str) -> str:
    """The page with its tables made anew."""
    kinds = {"table": table, "summary": summary, "losses": losses, "lost": lost, "versions": versions}
    return BLOCK.sub(lambda block: block[1] + markdown(kinds[block[2]](block[3])) + block[5], page)


def speed_picture() -> str:
    groups = []
    for name, cpu, work in (
        ("AMD Zen 5, 12 products", "2026-11-27-amd_zen_5", COMMON[0]),
        ("Intel Xeon 167, 12 products", "2026-11-27-intel_xeon_167", COMMON[0]),
        (
            "Intel Xeon 207, 9 products, oneDNN 3.12.1",
            "2026-11-29-intel_xeon_207",
            SUMMARIES["2026-11-29-intel_xeon_207"][0],
        ),
    ):
        cells = {isa: work.cells(cpu, isa) for isa in ISAS}
        groups.append(
            (
                name,
                [
                    (isa + "*" * (isa in SATURATES), mean(found), "good")
                    for isa, found in cells.items()
                    if found
                ],
            )
        )
    return pictures.bars("Speed over the fastest oneDNN (dashed: equal; *: it saturates)", groups, one=1)


def model_picture() -> str:
    head, *rows = tables("2026-11-26-intel_xeon_167/story.json")["repairs"]
    names = {
        "stored, without VNNI": ("saturation", "bad"),
        "control": ("rounding noise", "good"),
        "repaired": ("repaired", "good"),
    }
    groups = [
        (row[0], [(label, number(row[head.index(column)]), kind) for column, (label, kind) in names.items()])
        for row in rows
    ]
    return pictures.bars("Outputs of a T5: signal over error (dB), without VNNI", groups, " dB", 1)


def ramp_picture() -> str:
    shown = taken()["ramp"]
    series = [("saturating", "bad", shown["outputs"]), ("exact", "good", shown["exact"])]
    return pictures.lines(
        "One output of a layer while its input rises", shown["activations"], series, "input", "output"
    )


def map_picture() -> str:
    cells = {(cell["amax"], cell["wmax"]): cell["share"] for cell in taken()["saturation_map"]}
    x, y = (sorted({key[i] for key in cells}) for i in (0, 1))
    title = f"Outputs that saturation changes (up to {100 * max(cells.values()):.0f} %), depth 128"
    return pictures.heat(title, x, y, cells, "largest activation", "largest weight")


def taken() -> dict:
    return json.loads((MEASUREMENTS / "2026-11-30-intel_xeon_207/verify.json").read_text())


PICTURES = {
    "speed.svg": speed_picture,
    "model.svg": model_picture,
    "ramp.svg": ramp_picture,
    "saturation.svg": map_picture,
}


def take(report: Path, ramp: Path, out: Path) -> None:
    """Keeps what the pictures show of the files of `intact verify` and `intact verify ramp`."""
    found = json.loads(report.read_text())
    machine = found["machine"]
    kept = {
        "cpu": f"{machine['cpu']}, CPUID family {machine['family']}, model {machine['model']}",
        "source": "written by pages.py --take, from files of intact verify and intact verify ramp",
        "ramp": json.loads(ramp.read_text())["shown"],
        "saturation_map": [
            {key: cell[key] for key in ("amax", "wmax", "share")} for cell in found["saturation_map"]["cells"]
        ],
    }
    out.write_text(json.dumps(kept) + "\n")


def manual_pages() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted(set(DOCS.glob("*.md")) - {DOCS / "arithmetic.md"}),
    ]


# A figure: a decimal number, a number with a unit of a measurement, or a count ("3 of 7").
FIGURE = re.compile(
    r"(?<![\w.−-])\d[\d,]*(?:\.\d+)?\s(?:%|ms|µs|ns|GOPS|GB/s|[MGK]B|dB|times)(?!\w)|(?<![\w.−-])\d+\.\d+(?!\w|\.\w)|\d(?:[\d,]*\d)? of \d"
)
VERSIONS = re.compile(
    r"(?:Ubuntu|Python|torch|PyTorch|torchao|ONNX\s+Runtime|glibc|oneDNN|ggml|valgrind|LiteRT|clauses?)\s+"
    r"\d+\.\d+(?:\.\d+)?(?:(?: to | and |, )\d+\.\d+(?:\.\d+)?)*"
)
NOT_PROSE = re.compile(r"```.*?```|`[^`]*`|\[[\d.]+\]\([^)]*\)|\]\([^)]*\)", re.DOTALL)
# Numbers that were chosen or defined, and were not measured: limits, and examples of how to read a unit.
CHOSEN = {
    "audit_reference.md": [
        "15 of 60 pairs",
        "40 dB is a difference of 1 %, 20 dB of 10 %",
        "more than 1 dB farther",
        "more than 1 GB",
    ],
    "benchmarking.md": ["more than 25 % of the median", "1.3 times as long"],
    "compare_reference.md": ["Rounding alone gives 0.5", '"+4 dB": by 4 dB', "at least 0.5 dB"],
    "models.md": ["has 90 MB", "1 dB means"],
    "new_cpu.md": ["less than 0.75 or more than 1.33", "more than 1.05 times the roof", "more than 25 %"],
    "onnxruntime_operators.md": ["at most 10⁻⁶ + 1 %"],
    "repair_reference.md": ["at most 3 dB"],
}


def figures(page: str, chosen: list[str]) -> list[str]:
    """The figures of a manual page outside of tables from files."""
    page = NOT_PROSE.sub("", BLOCK.sub("", page))
    for words in chosen:
        page = re.sub(r"\s+".join(map(re.escape, words.split())), "", page)
    page = VERSIONS.sub("", page)
    return [
        " ".join(page[max(0, figure.start() - 40) : figure.end() + 20].split())
        for figure in FIGURE.finditer(page)
    ]


def outputs() -> dict[Path, str]:
    """All files that this program writes, and what it writes."""
    texts = {
        page: written(page.read_text()) for page in (*manual_pages(), *sorted(MEASUREMENTS.glob("*.md")))
    }
    return texts | {DOCS / name: picture() for name, picture in PICTURES.items()}


def check() -> list[str]:
    faults = [
        f"{path.relative_to(ROOT)} is not what `tools/bootstrap.sh pages` writes"
        for path, text in outputs().items()
        if not path.exists() or path.read_text() != text
    ]
    for page in manual_pages():
        for figure in figures(page.read_text(), CHOSEN.get(page.name, [])):
            faults.append(f"{page.relative_to(ROOT)}: a figure in no table from a measurement file: {figure}")
    return faults


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--take"] and len(arguments) == 4:
        take(*map(Path, arguments[1:]))
    elif arguments == ["--check"]:
        faults = check()
        print("\n".join(faults) or "pages: all tables, pictures and figures come from measurement files")
        return 1 if faults else 0
    elif not arguments:
        for path, text in outputs().items():
            path.write_text(text)
    else:
        sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
