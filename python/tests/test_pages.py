"""Tables, pictures and figures of the pages come from measurement files (tools/pages.py)."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import pages  # noqa: E402

PAGE = ROOT / "docs/performance.md"


def test_pages_and_pictures_are_what_the_command_writes():
    assert pages.check() == []


def test_a_changed_cell_is_found():
    text = PAGE.read_text()
    changed = text.replace("| 1.90 |", "| 1.91 |", 1)
    assert changed != text and pages.written(changed) == text


def test_a_figure_outside_of_tables_is_found():
    assert pages.figures(PAGE.read_text(), []) == []
    for words in (
        "is 1.3 times as fast",
        "takes 30 µs",
        "in 3 of 7 models",
        "a ratio of 0.98",
        "differ by 20 %",
    ):
        assert len(pages.figures(PAGE.read_text() + f"intact {words}.", [])) == 1, words


def test_versions_and_code_are_no_figures():
    assert (
        pages.figures("ONNX Runtime 1.26 and 1.32, `scale=0.5`, [2.4](arithmetic.md#2-products), 1×1, u8", [])
        == []
    )


def test_a_summary_is_computed_from_the_tables():
    work = pages.Work("", pages.mean, "products.json", pages.S32, (0, 2))
    lowest = work.cells("2026-11-27-amd_zen_5", "AVX-512")
    assert lowest == [0.93, 1.25]  # the lower one of both versions of oneDNN in each row


def test_manual_pages_are_short():
    long = {page.name: size for page in pages.manual_pages() if (size := page.stat().st_size) > 10_000}
    assert long == {}  # divide a page by the questions of its readers


def test_measurement_files_name_their_source_and_are_shown():
    shown = "".join(
        page.read_text()
        for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"))
    )
    files = sorted(pages.MEASUREMENTS.glob("*/*.json"))
    assert len(files) > 20
    for path in files:
        file = json.loads(path.read_text())
        assert file.get("schema") == "intact-bench" or file["cpu"] and file["source"], path
        for name, (head, *rows) in file.get("tables", {}).items():
            assert rows and all(len(row) == len(head) for row in rows), (path, name)
            source = f"<!-- table {path.relative_to(pages.MEASUREMENTS)}: {name}"
            assert f"{source} -->" in shown or f"{source};" in shown, (path, name)


def test_files_of_intact_bench_are_tables():
    def timing(contender, c_type, **more):
        return {
            "contender": contender,
            "c_type": c_type,
            "quantization": "static",
            "microseconds": 1.0,
            "gops": 1234.5,
        } | more

    gemm = {"isa": "avx2", "m": 8, "n": 64, "k": 32, "conv": None}
    conv = {"c_in": 3, "height": 8, "width": 9, "c_out": 4, "kernel": [3, 1], "stride": [2, 2], "groups": 1}
    rows = [
        gemm | {"timings": [timing("intact", "s32"), timing("onednn", "s32", speed_up=1.5)]},
        gemm | {"isa": "avx512_vnni", "conv": conv, "timings": [timing("onednn", "s32", speed_up=0.9)]},
        gemm | {"isa": "amx_int8", "timings": [timing("onednn", "s32", microseconds=None)]},
    ]
    assert pages.bench_tables({"peers": [{"name": "onednn", "version": "2.6.3"}], "rows": rows}) == {
        "GOPS, s32": [["shape", "AVX2*"], ["8×64×32", "1,234"]],
        "over oneDNN 2.6.3, s32": [
            ["shape", "AVX2*", "AVX-512-VNNI"],
            ["8×64×32", "1.50", ""],
            ["3×8×9→4 3×1/2", "", "0.90"],
        ],
    }
