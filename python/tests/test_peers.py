"""tools/peers.py: cells, versions, how a library is held to an ISA, the file of a run, and the kept files."""

import hashlib
import json
import math
import sys
from pathlib import Path

import pytest
from test_engines import ask

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import pages  # noqa: E402

import peers  # noqa: E402


def mixture(operation="gemm u8s8", exact=0, parts=(), **others):
    keys = ("in_parts", "unexplained", "without_outputs")
    return {
        "operation": operation,
        "problems": exact + sum(count for _, count in parts) + sum(others.values()),
        "exact": exact,
        "parts": [{"arithmetic": arithmetic, "problems": count} for arithmetic, count in parts],
        **{key: {"problems": others.get(key, 0)} for key in keys},
    }


@pytest.mark.parametrize(
    ("found", "cell"),
    [
        (mixture(exact=24), "exact, 24"),
        (mixture(exact=20, parts=[("exact; fused multiply-add", 4)]), "exact, 24"),
        (mixture(exact=5, parts=[("maddubs", 3), ("maddubs, flattened depth; half up", 2)]), "5/10"),
        (mixture(exact=5, parts=[("halved weights", 2), ("maddubs", 1)]), "1/8; halved weights: 2/8"),
        (mixture(exact=5, unexplained=2, without_outputs=1), "exact, 5 of 8; no model: 2; no outputs: 1"),
    ],
)
def test_cells(found, cell):
    assert peers.sum_cell(found) == cell


def test_roundings_count_with_exact_and_with_clamped_sums():
    parts = [("exact; half up", 4), ("maddubs; half up", 3), ("maddubs", 2)]
    assert peers.roundings(mixture(parts=parts)) == {"half up": 7}


@pytest.mark.parametrize(
    ("name", "target", "installed", "config", "versions"),
    [
        ("onnxruntime", "ONNX Runtime 9.9.9", "1.32.0", "", {"ONNX Runtime": "1.32.0"}),
        ("litert", "LiteRT, XNNPACK", "2.3.0", "", {"LiteRT": "2.3.0"}),
        (
            "torch",
            "PyTorch 2.15.0+cu132, fbgemm",
            "2.15.0",
            "  - Intel(R) MKL-DNN v3.13.3 (Git Hash b38f97)\n  - OpenMP 201511",
            {"PyTorch": "2.15.0", "oneDNN in PyTorch": "3.13.3"},
        ),
        ("onednn", "oneDNN 3.12.1, avx2", "3.12.1+ds-3", "", {"oneDNN": "3.12.1"}),
        ("ggml", "ggml 0.27.0, cpu-haswell, CPU, Q8", "", "", {"ggml": "0.27.0"}),
        ("xnnpack", "XNNPACK", "0.0~git20241108.4ea82e5-2", "", {"XNNPACK": "0.0~git20241108.4ea82e5-2"}),
    ],
)
def test_versions(name, target, installed, config, versions):
    assert peers.versions_of(peers.PEERS[name], target, installed, config) == versions


def test_no_version_is_an_error():
    with pytest.raises(ValueError, match="LiteRT: the version is ''; expected digits and dots"):
        peers.versions_of(peers.PEERS["litert"], "LiteRT 2.3.0", "", "")
    assert peers.changelog_version("xnnpack (0.0~git1.4ea-2) unstable; urgency=medium\n") == "0.0~git1.4ea-2"
    assert peers.changelog_version("") == ""


def heads(name, of_class, flags, can_be_held):
    found = peers.holds(peers.PEERS[name], of_class, set(flags.split()), can_be_held, Path("/folder"))
    return [hold.head for hold in found]


def test_a_library_is_held_by_its_own_option_else_by_held_to_else_in_qemu():
    zen_5 = "avx2 avx_vnni avx512bw avx512_vnni"
    assert heads("onnxruntime", "Integer", zen_5, False) == ["AVX2 (qemu)", "this CPU"]
    assert heads("onnxruntime", "Integer", "avx2 avx512bw", True) == ["AVX2 (held)", "this CPU"]
    assert heads("onnxruntime", "Integer", "avx2 avx512bw amx_int8", True)[1:] == [
        "AVX-512 (held)",
        "this CPU",
    ]
    assert heads("torch", "Fbgemm", zen_5, False) == ["AVX2 (option)", "AVX-512 (option)", "this CPU"]
    assert heads("torch", "IntMm", zen_5, False) == ["AVX2 (qemu)", "this CPU"]
    assert heads("xnnpack", "", zen_5, True) == ["AVX2 (option)", "AVX-512 (option)", "this CPU"]
    assert heads("onednn", "", "", True) == ["this CPU"]


def test_what_the_machine_lacks_is_named(fake, monkeypatch):
    """A ggml without a library for one ISA is measured with the others. No flags: one line."""
    folder = fake / peers.LIBRARIES
    (folder / "ggml/backends").mkdir(parents=True)
    (folder / "ggml/backends/libggml-cpu-haswell.so").touch()
    measurement = peers.Measurement("ggml", fake, math.inf)
    file = measurement.measure(peers.Machine({"avx2", "avx_vnni"}, False))
    assert file["tables"]["sums"][0][3:] == ["AVX2 (option)"]
    lacking = f"{folder} has no ggml/*/libggml-cpu-alderlake.so"
    assert measurement.left_out == [(lacking, f"pairing of {of}, AVX-VNNI (option)") for of in ("Q8", "Q4")]
    with pytest.raises(ValueError, match="/proc/cpuinfo has no line 'flags'; expected"):
        peers.cpu_flags("Features\t: fp asimd\n")


SWEEP = {
    "version": "0.1.0",
    "machine": {"cpu": "AMD EPYC", "family": 26, "model": 2},
    "target": {"name": "oneDNN 3.99, avx2"},
    "computes": [mixture("conv s8s8", exact=2), mixture(exact=5, parts=[("maddubs; half up", 3)])],
    "failures": [
        {"kind": "crash", "problem": "gemm u8s8s32 m=30 n=1 k=2", "minimised": ""},
        {"kind": "crash", "problem": "gemm u8s8s32 m=9 n=9 k=9", "minimised": "gemm u8s8s32 m=1 n=1 k=2"},
    ],
}
PAIRING = {
    "target": "oneDNN 3.99, avx2",
    "rows": [
        {"operation": "product", "types": types, "pairing": pairing, "other_sums": 0}
        for types, pairing in (
            ("u8s8s32", "depths"),
            ("u8s8f32", "depths"),
            ("s8s8s32", "unsupported"),
            ("s8s8f32", "none"),
        )
    ],
}
# A program instead of `intact`: it fails for the option isa=avx512_core, and for a journal that exists.
INTACT = f"""#!{sys.executable}
import json, os, sys
arguments = sys.argv[1:]
if any(word.endswith("isa=avx512_core") for word in arguments):
    sys.exit("no such ISA")
if "--journal" in arguments and os.path.exists(arguments[arguments.index("--journal") + 1]):
    sys.exit("a journal of another build")
found = {{"sweep": {SWEEP!r}, "pairing": {PAIRING!r}}}[arguments[1]]
open(arguments[arguments.index("--json") + 1], "w").write(json.dumps(found))
sys.exit(1)
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    program = tmp_path / "intact"
    program.write_text(INTACT)
    program.chmod(0o755)
    monkeypatch.setattr(peers, "INTACT", program)
    (tmp_path / "library").touch()
    return tmp_path


def file_of(measurement):
    return measurement.measure(peers.Machine({"avx2", "avx512bw", "avx512_vnni"}, False))


def test_the_file_of_a_run(fake):
    measurement = peers.Measurement("onednn", fake, math.inf)
    file = file_of(measurement)
    check(file)
    assert file["cpu"] == "AMD EPYC, CPUID family 26, model 2" and file["versions"] == {"oneDNN": "3.99"}
    columns = ["AVX2 (option)", "this CPU"]
    assert file["tables"] == {
        "sums": [
            ["target", "operation", "types", *columns],
            ["`onednn`", "gemm", "u8s8", "3/8", "3/8"],
            ["`onednn`", "conv", "s8s8", "exact, 2", "exact, 2"],
        ],
        "roundings": [
            ["target", "operation", "types", "rounding", *columns],
            ["`onednn`", "gemm", "u8s8", "half up", "3/8", "3/8"],
        ],
        "failures": [
            ["target", "failure", "for example", *columns],
            ["`onednn`", "crash", "`gemm u8s8s32 m=1 n=1 k=2`", "2", "2"],
        ],
        "pairs": [
            ["target", "operation", "types", *columns],
            ["`onednn`", "product", "u8s8s32 u8s8f32", "2i, 2i + 1", "2i, 2i + 1"],
        ],
    }
    assert measurement.left_out == [(f"status 1 ({fake}/log)", "pairing of onednn, AVX-512 (option)")]


def test_problems_that_a_sweep_did_not_run_are_left_out(fake):
    text = peers.INTACT.read_text()
    peers.INTACT.write_text(
        text.replace("'version'", "'not_run': {'problems': 7, 'reason': 'hangs'}, 'version'", 1)
    )
    measurement = peers.Measurement("onednn", fake, math.inf)
    check(file_of(measurement))
    assert ("hangs", "sweep of onednn, this CPU: problems not run: 7") in measurement.left_out


def test_a_row_of_a_file_is_a_line(fake):
    file = file_of(peers.Measurement("onednn", fake, math.inf))
    text = peers.file_text(file)
    assert json.loads(text) == file
    assert sum("AVX2 (option)" in line for line in text.splitlines()) == 4  # heads of tables


def test_a_journal_of_another_build_is_replaced(fake):
    file = file_of(peers.Measurement("onednn", fake, math.inf))
    digest = hashlib.sha256(b"").hexdigest()[:16]
    for head in ("AVX2_option_", "this_CPU"):
        (fake / "journals" / f"oneDNN_3_99_avx2_{digest}_{head}").touch()
    assert file_of(peers.Measurement("onednn", fake, math.inf)) == file
    assert not list((fake / "journals").iterdir())


def test_a_journal_is_kept_for_its_library(fake):
    """Another library of the same version has journals of its own."""
    peers.INTACT.write_text(
        INTACT.replace('    sys.exit("a journal of', '    os._exit(3)  # "').replace(
            "found =",
            '"--journal" in arguments and open(arguments[arguments.index("--journal") + 1], "w")\nfound =',
        )
    )
    for content in ("one", "other"):
        (fake / "library").write_text(content)
        measurement = peers.Measurement("onednn", fake, math.inf)
        file_of(measurement)
        assert [words for _, words in measurement.left_out] == ["pairing of onednn, AVX-512 (option)"]
    assert len(list((fake / "journals").iterdir())) == 4


def test_nothing_begins_after_the_time(fake):
    measurement = peers.Measurement("onednn", fake, 0.0)
    assert file_of(measurement) is None
    assert len(measurement.left_out) == 3 and set(dict(measurement.left_out)) == {peers.TIME_OVER}


def check(file):
    assert {"cpu", "date", "source", "versions", "tables"} == set(file)
    assert set(file["tables"]) <= {"sums", "roundings", "failures", "pairs"}
    for head, *rows in file["tables"].values():
        assert rows and all(
            len(row) == len(head) and all(isinstance(cell, str) for cell in row) for row in rows
        )
        assert pages.markdown([head, *rows]).count("\n") == len(rows) + 2


def test_kept_files_have_the_form_and_the_table_of_engines_names_their_versions():
    table = json.loads((ROOT / "core/engines.json").read_text())
    named = {
        (version["version"].removeprefix("PyTorch "), measured.split(", ")[0])
        for library in table["engines"] + table["others"]
        for version in library["versions"]
        for measured in version["measured"]
    }
    files = sorted(pages.MEASUREMENTS.glob("*/peers_*.json"))
    assert files
    for path in files:
        file = json.loads(path.read_text())
        check(file)
        assert ("AMD" in file["cpu"]) == ("amd" in path.parent.name), path
        for words, version in file["versions"].items():
            assert (version, file["date"]) in named, (path, words)


# The engine of the table, and the operators, that a class of examples/targets runs.
ENGINES = {
    "OnnxRuntime": ("onnxruntime", "QLinearMatMul", "QLinearConv"),
    "Integer": ("onnxruntime", "MatMulInteger", "ConvInteger"),
    "Dynamic": ("onnxruntime", "DynamicQuantizeMatMul", ""),
    "Fbgemm": ("fbgemm", "MatMul", "QLinearConv"),
    "Onednn": ("onednn", "MatMul", "QLinearConv"),
    "OpenVino": ("openvino", "MatMul", "QLinearConv"),
}
# Of a probe: depth, groups, inputs and outputs of a group, and whether the output is wide.
PROBES = {
    "gemm": {"product, 5 rows": (16, 1, 1, 1, True)},
    "conv": {
        "convolution 3x3, 3 channels": (27, 1, 3, 4, False),
        "convolution 3x3, 3 channels, wide": (27, 1, 3, 4, True),
        "convolution 3x3, 4 channels": (36, 1, 4, 4, False),
        "convolution 3x3, 2 groups of 3 channels": (27, 2, 3, 4, False),
        "convolution 3x3, 2 groups of 4 channels": (36, 2, 4, 4, False),
        "convolution 5x5, 1 channel": (25, 1, 1, 4, False),
        "convolution 3x3, 1 channel, wide": (9, 1, 1, 4, True),
        "convolution 5x5, 1 channel, wide": (25, 1, 1, 4, True),
    },
    "depthwise": {
        "depthwise 3x3, wide": (9, 9, 1, 1, True),
        "depthwise 3x3, 2 outputs for each channel, wide": (9, 9, 1, 2, True),
    },
}
BOTH = ("within_tap", "flattened")  # which some probes do not tell apart
ISAS = {"AVX2": "avx2", "AVX-VNNI": "avx_vnni", "AVX-512": "avx512", "this CPU": "avx512_vnni"}


def pairs_that_differ(tables):
    """Measured pairs that are not those of core/engines.json, and how many were compared."""
    differ, count = [], 0
    has_new_probes = any(
        "wide" in row[1] for row in tables["pairs"]
    )  # the files of 2026-11-30 that were measured again
    probed = {tuple(row[:2]) + (types,): row[3:] for row in tables["pairs"][1:] for types in row[2].split()}
    for column, head in enumerate(tables["pairs"][0][3:]):
        isa = ISAS[head.split(" (")[0]]
        for label, operation, types in {tuple(row[:3]) for row in tables["sums"][1:]}:
            engine, product, conv = ENGINES.get(label.strip("`").split(":")[-1], ("", "", ""))
            for probe, (*shape, is_wide) in PROBES.get(operation, {}).items() if engine else ():
                if ("wide" in probe or "5x5" in probe) and not has_new_probes:
                    continue
                cells = [probed.get((label, probe, types + c_type)) for c_type in ("u8", "s8", "f32", "s32")]
                found = next((cells[column] for cells in cells if cells), "none")
                op = product if operation == "gemm" else conv
                expected = ask(engine, op, types, *shape, isa, is_wide=is_wide)[0]
                words = peers.PAIR_WORDS.get(expected, expected)
                count += 1
                both = peers.PAIR_WORDS["within_tap_or_flattened"] if expected in BOTH else words
                if expected != "unknown" and found not in ("–", words, both):  # –: not measured
                    differ.append((label, head, probe, types, found, words))
    return differ, count


@pytest.mark.parametrize(
    "path", sorted(pages.MEASUREMENTS.glob("*/peers_*.json")), ids=lambda path: path.stem
)
def test_measured_pairs_are_those_of_the_table_of_engines(path):
    tables = json.loads(path.read_text())["tables"]
    if "pairs" in tables:
        assert pairs_that_differ(tables)[0] == []


def test_a_pair_that_differs_is_found():
    (path,) = pages.MEASUREMENTS.glob("*/peers_onnxruntime_*.json")
    tables = json.loads(path.read_text())["tables"]
    assert pairs_that_differ(tables)[1] > 40
    for row in tables["pairs"]:
        if row[:2] == ["`onnxruntime_target.py:OnnxRuntime`", "convolution 3x3, 3 channels"]:
            row[3] = "within a tap"
    assert len(pairs_that_differ(tables)[0]) == 1
