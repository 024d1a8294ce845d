"""The table of engines (core/engines.json): the library's answers, the audit's certificates, `intact verify certify` and recorded
engines against a second reading of the table, which only these tests have."""

import copy
import itertools
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from intact._audit.audit import certify, pairings
from intact._engines.table import engines, pairs_of
from intact._formats.model import QuantizedLayer
from intact._library import ffi, lib
from intact._program import native

ROOT = Path(__file__).parents[2]
TABLE = json.loads((ROOT / "core" / "engines.json").read_text())["engines"]
CONVOLUTIONS = ("Conv", "QLinearConv", "ConvInteger")
WITHOUT_VNNI, WITH_VNNI = ("avx2", "avx512"), ("avx_vnni", "avx512_vnni", "amx_int8")
# without VNNI; and whether outputs are wide
CPUS = (("avx2", True), ("avx512", False), ("avx512", True))
TYPES = ("u8s8", "s8s8", "u8u8", "s8u8")
# on both sides of each range of `halves`
DEPTHS = (1, 2, 3, 253, 255, 256, 257, 258, 259, 301, 509, 510, 511, 512, 513)


def second_reading(engine, op, types, depth, groups, inputs, outputs, isa, is_wide=True):
    """What the first row that fits says, written again from "about"."""
    for row in engine["rows"]:
        depthwise = op in CONVOLUTIONS and inputs == outputs == 1
        if not (
            "*" in row["operators"]
            or op in row["operators"]
            or (depthwise and "DepthwiseConv" in row["operators"])
        ):
            continue
        if types not in row.get("types", [types]) or (row.get("grouped") and groups == 1):
            continue
        if row.get("one_input_channel") and inputs != 1:
            continue
        if inputs % row.get("channels_multiple_of", 1) or outputs % row.get("channels_multiple_of", 1):
            continue
        if isa in WITH_VNNI and not row.get("with_vnni"):
            return "none"
        is_other = isa == "avx512" and "with_avx512" in row
        pairs = row["with_avx512"] if is_other else row["pairing"]
        if is_other and is_wide:
            pairs = row.get("with_avx512_wide", pairs)
        if (pairs == "within_tap" and inputs < 2) or (
            pairs in ("depths", "flattened", "kernel_row", "kernel_column") and depth < 2
        ):
            return "none"
        low, high = row.get("halves", (1, 0))
        return "halves" if not is_other and low <= depth <= high and -(-depth // 2) % 2 else pairs
    return "unknown"


def cases():
    """Layers of each operator of the table, on both sides of each limit."""
    named = {op for engine in TABLE for row in engine["rows"] for op in row["operators"]}
    for op in sorted((named - {"*", "DepthwiseConv"}) | {"Unheard"}):
        if op in CONVOLUTIONS:
            for groups, inputs, outputs, taps in itertools.product(
                (1, 2), (1, 2, 3, 4, 6, 8), (1, 2, 4, 6, 8), (1, 6)
            ):
                yield op, taps * inputs, groups, inputs, outputs
        else:
            yield from ((op, depth, 1, 1, 1) for depth in DEPTHS)


NAMES = {
    getattr(lib, f"INTACT_ENGINE_PAIRS_{name.upper()}"): name
    for name in ("none", "depths", "halves", "within_tap", "flattened", "kernel_row", "kernel_column")
}
TYPE = {"u8": lib.INTACT_U8, "s8": lib.INTACT_S8}


def ask(name, op, types, depth, groups, inputs, outputs, isa, version=None, is_wide=True):
    """The library's answer."""
    strings = [ffi.new("char[]", text.encode()) if text else ffi.NULL for text in (name, version, op)]
    layer = ffi.new(
        "intact_engine_layer *",
        (
            ffi.sizeof("intact_engine_layer"),
            *strings,
            TYPE[types[:2]],
            TYPE[types[2:]],
            depth,
            groups,
            inputs,
            outputs,
            getattr(lib, f"INTACT_ISA_{isa.upper()}"),
            is_wide,
        ),
    )
    answer = ffi.new("intact_engine_answer *", {"struct_size": ffi.sizeof("intact_engine_answer")})
    status = lib.intact_engine_ask(layer, answer)
    assert status in (lib.INTACT_OK, lib.INTACT_UNSUPPORTED), ffi.string(lib.intact_last_error())
    return (NAMES[answer.pairs], bool(answer.is_measured)) if status == lib.INTACT_OK else ("unknown", None)


def disagreements(table):
    """The cases in which the library's answer is not the second reading of `table`, and how many cases there are."""
    found, count = [], 0
    cpus = [*CPUS, (WITH_VNNI[1], True)]
    for engine, (op, *shape), types, (isa, is_wide) in itertools.product(table, list(cases()), TYPES, cpus):
        count += 1
        answer = ask(engine["name"], op, types, *shape, isa, is_wide=is_wide)[0]
        if answer != second_reading(engine, op, types, *shape, isa, is_wide):
            found.append((engine["name"], op, types, *shape, isa, is_wide))
    return found, count


def test_the_library_reads_the_table():
    found, count = disagreements(TABLE)
    assert not found and count > 25000
    assert [(e.name, e.words, e.versions, e.skips_padding) for e in engines().values()] == [
        (e["name"], e["words"], ", ".join(v["version"] for v in e["versions"]), e.get("skips_padding", False))
        for e in TABLE
    ]


def planted():
    """Tables with one fault each: a row missing, and each entry of a row changed."""
    for e, engine in enumerate(TABLE):
        for r, row in enumerate(engine["rows"]):
            changes: list = [None] if len(engine["rows"]) > 1 else []
            changes += [{"pairing": "none" if row["pairing"] != "none" else "depths"}]
            if "halves" in row:
                low, high = row["halves"]
                changes += [
                    {"halves": [low + 1, high]},
                    {"halves": [low, high - 2]},
                    {"halves": [low - 4, high]},
                    {"halves": [low, high + 2]},
                ]
            if "channels_multiple_of" in row:
                changes += [{"channels_multiple_of": 2}, {"channels_multiple_of": 8}]
            if "one_input_channel" in row:
                changes += [{"one_input_channel": False}]
            # without groups, row 4 says the same
            if "grouped" in row and (engine["name"], r) != ("onednn", 2):
                changes += [{"grouped": False}]
            if "with_vnni" in row or row["pairing"] not in ("none", "unknown"):
                changes += [{"with_vnni": not row.get("with_vnni", False)}]
            if "with_avx512" in row:
                changes += [{"with_avx512": "none" if row["with_avx512"] != "none" else "depths"}]
            if "with_avx512_wide" in row:
                changes += [{"with_avx512_wide": row["with_avx512"]}]
            if "types" in row:
                changes += [{"types": row["types"][1:] or ["u8u8"]}]
            for change in changes:
                table = copy.deepcopy(TABLE)
                if change is None:
                    del table[e]["rows"][r]
                else:
                    table[e]["rows"][r] |= change
                yield pytest.param([table[e]], id=f"{engine['name']} row {r}: {change or 'missing'}")


@pytest.mark.parametrize("table", list(planted()))
def test_a_planted_disagreement_is_found(table):
    assert disagreements(table)[0]


def test_versions():
    case = ("MatMul", "u8s8", 4, 1, 1, 1, "avx2")
    assert ask("onnxruntime", *case) == ask("onnxruntime", *case, "1.32.0") == ("depths", True)
    assert ask("onednn", *case, "PyTorch 2.13.0")[1] and ask("onednn", *case, "3.12.0")[1]
    assert ask("onednn", *case, "3.12.1") == ("depths", False) and not ask("onednn", *case, "3.12")[1]


# ----- the pairs themselves -------------------------------------------------------------------------------------------------


def hot_weights(*shape, seed=0):
    return np.random.default_rng(seed).choice(np.array([-128, 0, 0, 127], np.int8), shape)


def failing(weights, groups, pairs):
    """How many pairs of weights can leave int16, counted one by one."""
    columns = weights.reshape(len(weights), -1).astype(np.int64)  # O × depths
    depth, inputs = columns.shape[1], weights.shape[-1]
    starts = {
        "none": [],
        "depths": [(0, depth)],
        "flattened": [(0, depth)],
        "halves": [(0, -(-depth // 2)), (-(-depth // 2), depth)],
        "within_tap": [(tap, tap + inputs) for tap in range(0, depth, inputs)],
        "kernel_row": [(row, row + weights.shape[-2]) for row in range(0, depth, weights.shape[-2])],
        "kernel_column": [(0, depth)],
    }[pairs]
    if pairs == "kernel_column":
        columns = np.stack([filter[..., 0].T.reshape(-1) for filter in weights]).astype(np.int64)
    count = 0
    for begin, end in starts:
        for k in range(begin, end - 1, 2):
            pair = columns[:, k : k + 2]
            high, low = 255 * np.maximum(pair, 0).sum(1), 255 * np.minimum(pair, 0).sum(1)
            count += int(((high > 32767) | (low < -32768)).sum())
    return count


MATRICES = [hot_weights(5, depth, seed=depth) for depth in DEPTHS]
KERNELS = [
    (hot_weights(groups * outputs, 2, 3, inputs, seed=inputs), groups)
    for groups, inputs, outputs in itertools.product((1, 2), (1, 2, 3, 4, 6, 8), (1, 4, 6))
]


def layer_of(weights, groups, op):
    stored = weights if weights.ndim > 2 else np.ascontiguousarray(weights.T)
    return QuantizedLayer("n", op, op, True, "u8", "s8", stored, (0, 255), "", groups=groups)


@pytest.mark.parametrize("engine", TABLE, ids=lambda engine: engine["name"])
def test_certificates_count_these_pairs(engine, tmp_path):
    """The audit and `intact verify certify` against pairs counted one by one."""
    files, expected = {1: [], 2: []}, {1: [], 2: []}
    for i, (weights, groups) in enumerate([(matrix, 1) for matrix in MATRICES] + KERNELS):
        op = "Conv" if weights.ndim > 2 else "MatMul"
        shape = (
            weights[0].size,
            groups,
            weights.shape[-1] if op == "Conv" else 1,
            len(weights) // groups if op == "Conv" else 1,
        )
        asked = {cpu: second_reading(engine, op, "u8s8", *shape, *cpu) for cpu in CPUS}
        layer = layer_of(weights, groups, op)
        assert pairings(engines()[engine["name"]], layer) == list(dict.fromkeys(asked.values()))
        assert [pairs_of(engine["name"], layer, *cpu) for cpu in CPUS] == list(asked.values())
        counts = dict.fromkeys(WITHOUT_VNNI, 0)
        for isa, pairs in {(isa, pairs) for (isa, _), pairs in asked.items()}:
            count = failing(weights, groups, pairs)
            counts[isa] += count
            assert certify(layer, pairs).failing_pairs == count, (shape, pairs)
        np.save(tmp_path / f"{i}.npy", weights)
        files[groups].append(str(tmp_path / f"{i}.npy"))
        expected[groups].append(counts)
    for groups in files:
        out = tmp_path / "certificates.json"
        command, environment = native(
            [
                "verify",
                "certify",
                *files[groups],
                "--engine",
                engine["name"],
                "--groups",
                str(groups),
                "--operator",
                "conv",
                "--json",
                str(out),
            ]
            if groups > 1
            else ["verify", "certify", *files[groups], "--engine", engine["name"], "--json", str(out)]
        )
        subprocess.run(command, env=environment, capture_output=True, check=True)
        found = json.loads(out.read_text())["files"]
        assert len(found) == len(files[groups])
        for certificate, counts in zip(found, expected[groups]):
            by_isa = {
                isa: sum(p["failing_pairs"] for p in certificate["pairings"] if p.get("isa", isa) == isa)
                for isa in WITHOUT_VNNI
            }
            assert by_isa == counts, certificate["shape"]
            assert certificate["proven"] == (not any(counts.values()))


def test_pairs_of_taps_are_certified(tmp_path):
    """Of 3×3 taps, the first two of a row are a pair, and the first two column by column. Pairs cross columns, not rows."""

    def certificate(taps):
        weights = np.zeros((8, 3, 3, 1), np.int8)
        for height, width in taps:
            weights[5, height, width] = 127
        np.save(tmp_path / "w.npy", weights)
        command, environment = native(["verify", "certify", str(tmp_path / "w.npy"), "--engine", "onednn"])
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    text = certificate([(1, 0), (1, 1)])
    assert "adjacent taps of a kernel row (oneDNN with AVX-512" in text and "1 of 48 pairs" in text
    assert (
        "column 5 tap kh 1 kw 0, channel 0 and tap kh 1 kw 1, channel 0: 255·(127) + 255·(127) = 64770"
        in text
    )
    assert "adds no products in int16 here with AVX2: proven" in text
    text = certificate([(2, 0), (0, 1)])
    assert "adjacent taps column by column (oneDNN with AVX-512" in text and "1 of 40 pairs" in text
    assert "column 5 tap kh 2 kw 0, channel 0 and tap kh 0 kw 1, channel 0:" in text
    for taps in ([(0, 1), (0, 2)], [(0, 2), (1, 0)], [(1, 0), (2, 0)]):
        text = certificate(taps)
        assert "proven: none of 48" in text and "proven: none of 40" in text


def test_pairs_of_the_second_half_are_certified(tmp_path):
    """OpenVINO, 301 depths: depths 151 and 152 are a pair, for the second half begins at depth 151."""
    weights = np.zeros((16, 301), np.int8)
    weights[:, 151:153] = 127
    np.save(tmp_path / "w.npy", weights)

    def certificate(*arguments):
        command, environment = native(["verify", "certify", str(tmp_path / "w.npy"), *arguments])
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    text = certificate("--engine", "openvino")
    assert "adjacent depths of each half (OpenVINO with AVX2, 2026.4.1): 16 of 2416 pairs" in text
    assert "column 0 depths 151, 152: 255·(127) + 255·(127) = 64770" in text
    assert "adjacent depths (OpenVINO with AVX-512, 2026.4.1): proven" in text
    text = certificate()
    assert "adjacent depths (FBGEMM, ONNX Runtime, oneDNN, OpenVINO with AVX-512): proven" in text
    assert "adjacent depths of each half (OpenVINO): 16 of 2416 pairs" in text
    assert "proven: none of 2416" in certificate("--engine", "fbgemm")


# ----- recorded engines -----------------------------------------------------------------------------------------------------


def test_openvino_clamps_the_pairs_of_the_table():
    recorded = json.loads((ROOT / "tests" / "data" / "openvino_pairs_of_depths.json").read_text())
    assert set(recorded["cpus"]) == {"avx2", "avx512", "avx512_vnni"}
    for isa, depths in recorded["cpus"].items():
        for depth, found in depths.items():
            pairs, is_measured = ask(
                recorded["engine"], "MatMul", "u8s8", int(depth), 1, 1, 1, isa, recorded["version"]
            )
            assert is_measured
            for k in found["clamped"] + found["exact"]:
                weights = np.zeros((1, int(depth)), np.int8)
                weights[0, k : k + 2] = 127
                assert bool(failing(weights, 1, pairs)) == (k in found["clamped"]), (isa, depth, k)
