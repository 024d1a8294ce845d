"""Targets written in Python, checked by the native verifier."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import intact
import numpy as np
import pytest
from intact._program import native

if not Path(intact.__file__).with_name("intact").exists():
    pytest.skip("this build has no program", allow_module_level=True)


class Right:
    name = "right"
    supports = [
        "gemm",
        "a_u8",
        "a_s8",
        "b_s8",
        "c_s32",
        "c_u8",
        "bias_s32",
        "channel_scales",
        "a_zero_point",
        "conv_2d",
        "conv_padding",
        "conv_stride",
    ]

    def sums(self, a, b, p):
        s = (a.astype(np.int64) - p.a_zero_point) @ b.astype(np.int64)
        s = s if p.bias is None else s + p.bias
        if p.c_type == "s32":
            return s.astype(np.int32)
        return np.clip(np.rint(s.astype(np.float32) * p.scales) + p.c_zero_point, 0, 255).astype(np.uint8)

    def gemm(self, p):
        return self.sums(p.a, p.b, p)

    def conv(self, p):
        a = np.pad(p.a.astype(np.int64), [(0, 0), *p.padding, (0, 0)], constant_values=p.a_zero_point)
        taps = np.lib.stride_tricks.sliding_window_view(a, p.weights.shape[1:3], axis=(1, 2))
        taps = taps[:, :: p.stride[0], :: p.stride[1]].transpose(0, 1, 2, 4, 5, 3)
        rows = taps.reshape(*taps.shape[:3], -1)
        return self.sums(rows, p.weights.reshape(len(p.weights), -1).T, p)


class Wrong(Right):
    name = "wrong"

    def gemm(self, p):
        c = self.sums(p.a, p.b, p).copy()
        c[-1, -1] += 1
        return c


class Clamps(Right):
    name = "clamps"
    supports = ["gemm", "a_u8", "b_s8", "c_s32"]
    arithmetic = "any"

    def gemm(self, p):
        k = p.a.shape[1] // 2 * 2
        a, b = p.a.astype(np.int32), p.b.astype(np.int32)
        pairs = a[:, :k].reshape(len(a), -1, 2, 1) * b[:k].reshape(1, -1, 2, b.shape[1])
        sums = np.clip(pairs.sum(axis=2), -32768, 32767).sum(axis=1)
        return (sums + a[:, k:] @ b[k:]).astype(np.int32)


class Skips(Right):
    def gemm(self, p):
        raise NotImplementedError("no products today")


class Raises(Right):
    def gemm(self, p):
        raise KeyError("scales")


class Exits(Right):
    def gemm(self, p):
        if len(p.a) == 1 and p.c_type == "s32":
            raise SystemExit(3)
        if len(p.a) == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        return self.sums(p.a, p.b, p)


class WrongShape(Right):
    def gemm(self, p):
        print("this is no answer")
        return np.zeros((1, 1), np.float64)


class Masks(Right):
    """Other types in convolutions than in GEMMs, and no padding."""

    supports = ["gemm", "a_u8", "b_s8", "c_s32"]
    conv_supports = ["conv_2d", "a_s8", "b_s8", "c_s32"]

    def gemm(self, p):
        assert p.a.dtype == np.uint8
        return super().gemm(p)

    def conv(self, p):
        assert p.a.dtype == np.int8 and not np.any(p.padding)
        return super().conv(p)


class Unknown:
    supports = ["gem"]


def test_operations_have_their_own_features():
    sweep = intact.verify.sweep(Masks)
    assert sweep.passed, sweep.text
    assert "u8 activations in convolutions" in sweep.text
    assert sum(line.startswith("conv ") for line in sweep.report["digests"]) > 30


def test_a_right_target_passes():
    sweep = intact.verify.sweep(Right)
    assert sweep.passed and "PASSED" in sweep.text
    assert sweep.report["schema"] == "intact-sweep"


def verified(name, *arguments):
    """`intact verify` on a class of this file."""
    command, environment = native(["verify", *arguments, "--target", f"python:{__file__}:{name}"])
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_wrong_one_is_found():
    run = verified("Wrong", "replay", "gemm u8s8s32 m=3 n=4 k=20")
    assert run.returncode == 1 and "m 2 n 3" in run.stdout


def test_saturation_is_named():
    run = verified("Clamps", "sweep", "--quick", "--shard", "1/8")
    assert "clamped to int16 (maddubs)" in run.stdout, run


def test_a_failing_sweep():
    run = verified("Raises", "sweep", "--quick", "--shard", "1/8")
    assert run.returncode == 1 and "KeyError: 'scales'" in run.stdout, run


@pytest.mark.parametrize(
    "target,words,status",
    [
        ("Raises", "KeyError: 'scales'", 1),
        ("WrongShape", "returned shape (1, 1) of float64; expected (3, 4) of int32", 1),
        ("Skips", "no products today", 2),
    ],
)
def test_what_a_class_raises_is_reported(target, words, status):
    run = verified(target, "replay", "gemm u8s8s32 m=3 n=4 k=20")
    assert run.returncode == status and words in run.stdout + run.stderr, run


def test_a_process_that_ended_is_a_finding_and_started_again():
    run = verified("Exits", "pairing")
    assert run.returncode == 1
    lines = [line.split(": ", 1) for line in run.stdout.splitlines()[1:]]
    words = {line[0].split("  ")[1]: [] for line in lines}
    for name, text in lines:
        words[name.split("  ")[1]].append(text)
    assert any("the Python process ended with status 3" in text for text in words["product, 1 row"]), (
        run.stdout
    )
    assert any("the Python process was ended by SIGSEGV" in text for text in words["product, 1 row"]), (
        run.stdout
    )
    assert words["product, 5 rows"] == ["none"]


def test_what_it_skips_is_counted():
    assert "no products today" in intact.verify.sweep(Skips).text


@pytest.mark.parametrize(
    "target,words",
    [
        (Unknown, "supports: 'gem' is unknown"),
        ("python:/nope.py:Mine", "no such Python file"),
        (f"python:{__file__}:Nobody", "has no class Nobody"),
        (3, "is a int"),
    ],
)
def test_what_cannot_be_loaded(target, words):
    with pytest.raises(intact.Error) as caught:
        intact.verify.sweep(target)
    assert words in caught.value.message, caught.value.message


def cpu_flags():
    return set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1].split())


LOOKS = """
#include <cpuid.h>
unsigned seen;
__attribute__((constructor)) static void Look(void) { unsigned a, c, d; __cpuid_count(7, 0, a, seen, c, d); }
"""
PRINTS = """
#include <stdio.h>
extern unsigned seen;
int main(void) { return printf("%u %u\\n", seen >> 5 & 1, seen >> 16 & 1) < 0; }
"""


@pytest.mark.skipif("cpuid_fault" not in cpu_flags(), reason="this CPU has no CPUID faulting")
def test_a_program_is_held_to_an_older_cpu(tmp_path):
    library, source = tmp_path / "held_to.so", Path(__file__).parents[2] / "examples/targets/held_to.c"
    shared = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*shared, "-Wl,-z,initfirst", "-o", library, source], check=True)

    def held(level, command):
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HELD_TO": level, "LD_PRELOAD": str(library)},
        )

    here = set(intact.isas())
    print_isas = [sys.executable, "-c", "import intact; print(*intact.isas())"]
    for level, flag, isas, needs in [
        ("avx2", "avx2", {"avx2"}, "AVX2"),
        ("avx_vnni", "avx_vnni", {"avx2", "avx_vnni"}, "AVX-VNNI"),
        ("avx512", "avx512vl", {"avx2", "avx512"}, "AVX-512"),
        ("avx512_vnni", "avx512_vnni", {"avx2", "avx512", "avx512_vnni"}, "AVX-512-VNNI"),
    ]:
        run = held(level, print_isas)
        if flag in cpu_flags():
            assert run.returncode == 0 and set(run.stdout.split()) == (isas | {"portable"}) & here, run.stderr
        else:
            assert (
                run.returncode == 2 and run.stderr == f"held_to: this CPU lacks {needs}; HELD_TO is {level}\n"
            )
    run = held("sse2", print_isas)
    assert (
        run.returncode == 2
        and run.stderr == "held_to: HELD_TO is sse2; expected avx2, avx_vnni, avx512 or avx512_vnni\n"
    )
    # a library that the program links looks when it is loaded
    for name, text in (("looks.c", LOOKS), ("prints.c", PRINTS)):
        (tmp_path / name).write_text(text)
    subprocess.run([*shared, "-o", tmp_path / "liblooks.so", tmp_path / "looks.c"], check=True)
    subprocess.run(
        [
            "cc",
            "-o",
            tmp_path / "prints",
            tmp_path / "prints.c",
            tmp_path / "liblooks.so",
            f"-Wl,-rpath,{tmp_path}",
        ],
        check=True,
    )
    assert held("avx2", [tmp_path / "prints"]).stdout == "1 0\n"
    crash = subprocess.run(
        [sys.executable, "-c", "import ctypes; ctypes.string_at(0)"],
        check=False,
        env={**os.environ, "HELD_TO": "avx2", "LD_PRELOAD": str(library)},
    )
    assert crash.returncode == -signal.SIGSEGV  # crashes stay crashes


class Groups:
    """Grouped weights with float16 scales; one scale for each group of a row."""

    name = "groups"
    supports = [
        "grouped",
        "a_s8",
        "a_u8",
        "a_zero_point",
        "row_quantization",
        "b_u4",
        "b_s8",
        "b_zero_points",
        "c_f32",
        "scale_zero",
    ]
    shift = 0

    def grouped(self, p):
        w = p.weights
        if p.granularity != "groups" or w.scales.dtype != np.float16:
            raise NotImplementedError("another granularity or type of scales")
        f = np.zeros((len(p.a), w.n), np.float32)
        for g in range(w.scales.shape[1]):
            depths = slice(
                max(0, g * w.group - self.shift),
                (g + 1) * w.group - self.shift if (g + 1) * w.group < w.k else w.k,
            )
            a = p.a[:, depths].astype(np.int64) - p.a_zero_points[:, g : g + 1]
            scale = p.a_scales[:, g : g + 1] * w.scales[:, g].astype(np.float32)
            b = w.stored()[:, depths].astype(np.int64)
            b -= {"u4": 8, "s8": 0}[w.b_type] if w.zero_points is None else w.zero_points[:, g : g + 1]
            sums = (a @ b.T).astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                # a float64 sum, so rounded twice; rarely another result than FMA's
                f = (sums * scale + f).astype(np.float32)
        return np.where(np.isnan(f), -np.inf, f).astype(np.float32)


class LateGroups(Groups):
    name = "late groups"
    shift = 1


LINE = "grouped s8u4f32 m=3 n=4 k=70 src=none per=group"


def test_grouped_weights():
    run = verified("Groups", "replay", LINE, LINE.replace("u4", "s8") + " zb=yes")
    assert run.returncode == 0 and run.stdout.count("12 outputs: exact") == 2, run
    run = verified("LateGroups", "replay", LINE)
    assert run.returncode == 1 and "groups begin one depth too early" in run.stdout, run
    run = verified("Right", "replay", LINE)
    assert run.returncode == 2 and "has no grouped weights" in run.stderr, run


def test_grouped_features_need_a_class_of_their_own(tmp_path):
    supports = ["gemm", "grouped", "dynamic_rows", "a_s8", "b_s8", "c_f32"]
    (tmp_path / "both.py").write_text(f"class Both:\n    supports = {supports}\n")
    command, environment = native(
        ["verify", "replay", LINE, "--target", f"python:{tmp_path / 'both.py'}:Both"]
    )
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 2 and "'dynamic_rows' is for grouped weights" in run.stderr, run


def test_a_python_without_the_package_says_what_to_install(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')  # no packages, no PYTHONPATH
    python.chmod(0o755)
    command, environment = native(["verify", "replay", LINE, "--target", f"python:{__file__}:Right"])
    environment["INTACT_PYTHON"] = str(python)
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 2 and "cannot load intact: No module named 'intact'; " in run.stderr, run
    assert run.stderr.endswith("install intact's wheel there with pip\n") and run.stderr.count("\n") == 1


@pytest.mark.parametrize("b_type", ["u4", "s8"])
def test_grouped_layers(tmp_path, b_type):
    rng = np.random.default_rng(1)
    n, k = 6, 96
    b = (
        rng.integers(0, 256, (n, k // 2), np.uint8)
        if b_type == "u4"
        else rng.integers(-128, 128, (n, k)).astype(np.int8)
    )
    points = rng.integers(0, 16, (n, 3), np.uint8) if b_type == "u4" else None
    weights = intact.GroupedWeights(
        b,
        rng.uniform(0.01, 0.1, (n, 3)).astype(np.float16),
        k,
        32,
        b_type,
        points,
        rng.standard_normal(n).astype(np.float32),
    )
    a = rng.standard_normal((3, k)).astype(np.float32)
    out = intact.Grouped(weights, granularity="groups").run(a)
    intact.verify.write_grouped_layer(
        tmp_path / "qkv", weights, a, granularity="groups", outputs={"own": out, "wrong": out + 1}
    )
    command, environment = native(["verify", "layer", str(tmp_path / "qkv")])
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run
    assert f"qkv: linear_grouped s8{b_type}f32, 3×6×96, groups of 32" in run.stdout
    assert "output_own.npy: 18 outputs: exact" in run.stdout
    assert re.search("output_wrong.npy: 18 of 18 outputs differ; .*; unexplained", run.stdout)
    assert ("no pair of weights can saturate" in run.stdout) == (b_type == "u4")
    command, environment = native(["verify", "layer", str(tmp_path)])
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run
    assert f"{tmp_path}: 1 layer\n  qkv  output_own.npy  0 of 18 not exact  exact\n" in run.stdout
    assert "  qkv  output_wrong.npy  18 of 18 not exact  unexplained\n" in run.stdout


def test_write_grouped_layer_keeps_other_files(tmp_path):
    weights = intact.GroupedWeights(np.full((2, 16), 17, np.uint8), np.ones((2, 1), np.float32), 32)
    a = np.ones((3, 32), np.float32)
    own = "activations", "a_scales", "a_zero_points", "zero_points", "bias", "output_old"
    for name in (*own, "mine"):
        np.save(tmp_path / f"{name}.npy", np.ones(7))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    ones = np.ones(3, np.float32)
    for argument, more in [
        ("granularity", {"granularity": "row"}),
        ("a_type", {"a_type": "s4"}),
        ("c_type", {"c_type": "bf16"}),
        ("activation", {"activation": "gelu"}),
        ("clamp", {"clamp": (1,)}),
        ("clamp", {"clamp": (2, 1)}),
        ("clamp", {"clamp": (0, 1), "activation": "relu"}),
        ("a_scales", {"a_scales": ones}),
        ("a", {"a": a[:, 1:]}),
        ("a_scales", {"a": a.astype(np.int8)}),
        ("a_zero_points", {"a": a.astype(np.int8), "a_scales": ones, "a_zero_points": ones}),
        ("outputs", {"outputs": {"x/y": np.ones((3, 2), np.float32)}}),
        ("outputs['x']", {"outputs": {"x": np.ones((2, 3), np.float32)}}),
    ]:
        with pytest.raises(intact.Error, match="^" + re.escape(f"{argument}: ")):
            intact.verify.write_grouped_layer(tmp_path, weights, more.pop("a", a), **more)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before, argument
    minimums = dataclasses.replace(weights, minimums=np.ones((2, 1), np.float32))
    with pytest.raises(intact.Error, match="^weights: have minimums; expected none"):
        intact.verify.write_grouped_layer(tmp_path, minimums, a)
    clamp = np.array([-0.5, 1.5], np.float32)
    intact.verify.write_grouped_layer(tmp_path, weights, a, clamp=(clamp[0], clamp[1]))
    assert {path.name for path in tmp_path.iterdir()} == {
        "activations.npy",
        "layer.json",
        "mine.npy",
        "scales.npy",
        "weights.npy",
    }
    assert json.loads((tmp_path / "layer.json").read_text())["activation"] == {"min": -0.5, "max": 1.5}


@pytest.mark.parametrize(
    "b_type,more", [("u4", " zb=yes bias=yes"), ("u8", ""), ("u4", " group=128"), ("u8", " group=16 zb=yes")]
)
def test_matmul_nbits(b_type, more):
    """ONNX Runtime's MatMulNBits has the sums of the definition, in any order of the groups."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    target = Path(__file__).parents[2] / "examples" / "targets" / "onnxruntime_target.py"
    line = f"grouped s8{b_type}f32 m=5 n=40 k=600 per=group gscale=f32{more}"
    command, environment = native(["verify", "replay", line, "--target", f"python:{target}:NBits"])
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run
    assert "float32 sums in another order, within" in run.stdout or "exact" in run.stdout
