"""`intact audit --data`: sums as engines compute them, and outputs compared with the float model's."""

import gc
import json
import math
import re
import shutil

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from commands import program  # noqa: E402
from intact import _program  # noqa: E402
from intact._audit import run as _run  # noqa: E402
from intact._audit.audit import audit  # noqa: E402
from intact._audit.report import to_html, to_text, verdict  # noqa: E402
from intact._audit.run import (  # noqa: E402
    Clamped,
    LayerOnData,
    OnData,
    OutputOnData,
    Sums,
    exact_variant,
    is_wide,
    run_on_data,
)
from intact._engines.data import dynamically_quantized, load_data  # noqa: E402
from intact._formats.model import QuantizedLayer  # noqa: E402
from intact._graph import weights as _weights  # noqa: E402
from intact._library import isas  # noqa: E402
from intact._plans.gemm import Gemm  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from test_audit import HOT, save  # noqa: E402
from test_kinds import resize  # noqa: E402


def clamped(a, w):
    """Sums of adjacent pairs, each clamped to int16."""
    products = (a.astype(np.int64)[..., None] * w).reshape(*a.shape[:-1], -1, 2, w.shape[1])
    return np.clip(products.sum(axis=-2), -32768, 32767).sum(axis=-2)


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("skips", [False, True])
def test_pairs_within_a_tap(channels, groups, skips):
    rng = np.random.default_rng(0)
    weights = rng.integers(100, 128, (2 * groups, 3, 3, channels)).astype(np.int8)
    a = rng.integers(200, 256, (2, channels * groups, 4, 5)).astype(np.uint8)
    node = helper.make_node("Conv", ["a", "w"], ["y"], pads=[1] * 4, group=groups)
    layer = QuantizedLayer(
        "n", "Conv", "Conv", True, "u8", "s8", weights, (0, 255), "", groups=groups, graph_node=node
    )
    right, wrong = Sums(layer, "within_tap", skips)(a, 180)
    even = channels + channels % 2
    w = np.pad(weights, [(0, 0)] * 3 + [(0, even - channels)])
    padded = np.pad(a, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=180)
    outside = np.pad(np.zeros(a.shape, bool), [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=True)
    row = 0
    for image in range(2):
        for y in range(4):
            for x in range(5):
                for o in range(2 * groups):
                    of_group = slice(o // 2 * channels, (o // 2 + 1) * channels)
                    window = np.moveaxis(padded[image, of_group, y : y + 3, x : x + 3], 0, -1)
                    is_padding = np.moveaxis(outside[image, of_group, y : y + 3, x : x + 3], 0, -1)
                    exact = int((window.astype(np.int64) * weights[o]).sum())
                    inside = np.where(is_padding & skips, 0, window)
                    pairs = np.pad(inside, [(0, 0)] * 2 + [(0, even - channels)]).reshape(-1)
                    added = int((np.where(is_padding & skips, window, 0).astype(np.int64) * weights[o]).sum())
                    assert (right[row, o], wrong[row, o]) == (
                        exact,
                        clamped(pairs, w[o].reshape(-1, 1))[0] + added,
                    )
                row += 1
    assert (right != wrong).any() == (channels > 1)


def test_dynamic_quantization_is_the_operators(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    path = save(
        tmp_path,
        [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])],
        {},
        [("x", TensorProto.FLOAT)],
        ["s"],
    )
    model = onnx.load(str(path))
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in ("y", "s", "z"))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for x in [
        rng.normal(size=(5, 40)),
        rng.random((3, 7)),
        -rng.random((3, 7)),
        np.zeros((2, 2)),
        np.arange(-128, 128)[None],
    ]:
        x = x.astype(np.float32)
        for found, wanted in zip(dynamically_quantized(x), session.run(None, {"x": x})):
            assert np.array_equal(found, wanted)


def models(tmp_path):
    """A dynamically quantized product, the float product, and data on which a pair clamps."""
    (tmp_path / "float").mkdir()
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"], name="n"),
        helper.make_node("Cast", ["i"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["c", "s"], ["y"]),
    ]
    quantized = save(tmp_path, nodes, {"w": HOT}, [("x", TensorProto.FLOAT)])
    before = save(
        tmp_path / "float",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"w": HOT.astype(np.float32)},
        [("x", TensorProto.FLOAT)],
    )
    np.savez(tmp_path / "d.npz", x=np.array([[1, 0.999, 0, 0], [0, 0, 0, 0.2]], np.float32))
    return quantized, before, tmp_path / "d.npz"


def test_distances_to_the_float_model(tmp_path):
    pytest.importorskip("onnxruntime")
    quantized, before, data = models(tmp_path)
    run = program("audit", quantized, "--data", data, "--float", before, "--json", tmp_path / "j")
    assert run.returncode == 1 and "; from the float model: exact sums " in run.stdout
    (output,) = json.loads((tmp_path / "j").read_text())["outputs"]
    assert output["exact_to_float"] > 40
    assert (output["stock_to_float"] < 10) == audit(quantized).cpu_clamps


def test_a_float_model_with_other_outputs(tmp_path):
    pytest.importorskip("onnxruntime")
    quantized, before, data = models(tmp_path)
    model = onnx.load(str(before))
    model.graph.node[0].output[0] = model.graph.output[0].name = "other"
    onnx.save(model, str(before))
    run = program("audit", quantized, "--data", data, "--float", before)
    assert (
        run.returncode == 2
        and "has none of the model's outputs" in run.stderr
        and run.stderr.count("\n") == 1
    )


@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="needs qemu-user")
def test_an_emulator_shows_the_harm(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.delenv("INTACT_PYTHON", raising=False)
    quantized, before, data = models(tmp_path)
    run = program(
        "audit", quantized, "--data", data, "--float", before, "--emulate", "--json", tmp_path / "j"
    )
    assert run.returncode == 1 and "of 6 values of output 'y' changes by " in run.stdout
    assert "from the float model the output is farther than with exact sums: " in run.stdout
    report = json.loads((tmp_path / "j").read_text())
    assert report["stock_clamps"] and report["outputs"][0]["stock_to_float"] < 10


def test_what_the_options_need(tmp_path, monkeypatch):
    quantized, before, data = models(tmp_path)
    for option in (["--float", before], ["--emulate"]):
        run = program("audit", quantized, *option)
        assert run.returncode == 2 and run.stderr == f"intact: {option[0]}: needs --data\n"
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("INTACT_PYTHON", "/nonexistent/python")
    run = program("audit", quantized, "--data", data, "--emulate")
    assert (
        run.returncode == 2
        and run.stderr.startswith("intact: INTACT_PYTHON: names /nonexistent/python")
        and run.stderr.count("\n") == 1
    )


@pytest.mark.parametrize(
    "arrays,words",
    [
        ({"y": np.zeros((2, 4), np.float32)}, "has no array 'x', an input of the model; has: y"),
        ({"x": np.zeros((2, 4), np.float64)}, "array 'x': is float64; expected float32"),
        ({"x": np.zeros((0, 4), np.float32)}, "array 'x': has no elements"),
        ({"x": np.full((2, 4), np.nan, np.float32)}, "array 'x': holds NaN"),
    ],
)
def test_arrays_that_are_no_inputs(tmp_path, arrays, words):
    pytest.importorskip("onnxruntime")
    quantized, _, data = models(tmp_path)
    np.savez(data, **arrays)
    run = program("audit", quantized, "--data", data)
    assert (
        run.returncode == 2
        and words in run.stderr
        and str(data) in run.stderr
        and run.stderr.count("\n") == 1
    ), run.stderr


def test_labels_beside_the_inputs_are_left_out(tmp_path):
    pytest.importorskip("onnxruntime")
    quantized, _, data = models(tmp_path)
    np.savez(data, label=np.arange(2), **np.load(data))
    assert program("audit", quantized, "--data", data).returncode == 1


def test_sums_of_an_engine_without_outputs(tmp_path):
    pytest.importorskip("onnxruntime")
    quantized, _, data = models(tmp_path)
    run = program("audit", quantized, "--data", data, "--engine", "openvino")
    assert "on your data, OpenVINO" in run.stdout and "\noutput" not in run.stdout
    run = program("audit", quantized, "--data", data, "--engine", "openvino", "--emulate")
    assert run.returncode == 2 and "add --engine onnxruntime" in run.stderr


@pytest.mark.parametrize(
    "taps,width,words",
    [
        (
            [(1, 0), (1, 1)],
            6,
            "12 of 48 sums are wrong with AVX-512",
        ),  # a pair of a kernel row: narrow outputs
        ([(1, 0), (1, 1)], 7, "0 of 60 sums are wrong with AVX-512"),
        ([(2, 0), (0, 1)], 6, "0 of 48 sums are wrong with AVX-512"),
        (
            [(2, 0), (0, 1)],
            7,
            "15 of 60 sums are wrong with AVX-512",
        ),  # a pair of the kernel's columns: wide outputs
    ],
)
def test_pairs_that_only_avx512_has_are_counted(tmp_path, taps, width, words):
    pytest.importorskip("onnxruntime")
    weights = np.zeros((4, 1, 3, 3), np.int8)
    for height, column in taps:
        weights[2, 0, height, column] = 127
    nodes = [
        helper.make_node("ConvInteger", ["a", "w"], ["s"], name="n"),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
    ]
    path = save(tmp_path, nodes, {"w": weights}, [("a", TensorProto.UINT8)])
    np.savez(tmp_path / "d.npz", a=np.full((1, 1, 5, width), 255, np.uint8))
    run = program("audit", path, "--engine", "onednn", "--data", tmp_path / "d.npz")
    assert words in run.stdout, run.stdout + run.stderr


@pytest.mark.parametrize(
    "a_type,width,attributes,expected",
    [
        ("u8", 7, {}, True),
        ("u8", 6, {}, False),
        ("u8", 9, {"dilations": [2, 2]}, False),
        ("s8", 7, {}, True),
        ("u8", 5, {"pads": [1] * 4}, True),
        ("s8", 5, {"pads": [1] * 4}, False),
        ("s8", 5, {"auto_pad": "SAME_UPPER"}, False),
    ],
)
def test_which_outputs_are_wide(a_type, width, attributes, expected):
    node = helper.make_node("ConvInteger", ["a", "w"], ["y"], **attributes)
    weights = np.zeros((4, 3, 3, 1), np.int8)
    layer = QuantizedLayer("n", "Conv", "Conv", False, a_type, "s8", weights, (0, 255), "", graph_node=node)
    assert is_wide(np.zeros((1, 1, 5, width), np.uint8), layer) == expected


@pytest.mark.parametrize("a_type", ["u8", "s8"])
@pytest.mark.parametrize("b_type", [np.int8, np.uint8])
def test_numpy_clamps_as_kernels_do(a_type, b_type):
    if "avx2" not in isas():
        pytest.skip("no kernels that clamp")
    random = np.random.default_rng(3)
    clamped = 0
    for depth in (1, 2, 7, 64):
        low = np.iinfo(b_type).min
        weights = random.integers(low, low + 256, (depth, 5)).astype(b_type)
        first = -128 if a_type == "s8" else 0
        a = random.integers(first, first + 256, (9, depth)).astype(np.int8 if a_type == "s8" else np.uint8)
        there = Gemm(weights, a_type=a_type, mode="saturating", max_isa="avx2").run(a)
        here = Clamped(weights, a_type).run(a)
        assert here.dtype == there.dtype and np.array_equal(here, there)
        clamped += np.count_nonzero(here != a.astype(np.int32) @ weights.astype(np.int32))
    assert clamped


def result_on_data(tmp_path, layers, output):
    """The audit of a model with unsafe layers in an inner graph, and a planted result on data of a CPU without VNNI."""
    inner = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "w"], ["t"], name="inner")],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.INT32, None)],
    )
    nodes = [
        helper.make_node("If", ["c"], ["u"], then_branch=inner, else_branch=inner),
        helper.make_node("MatMulInteger", ["a", "w"], ["y"], name="outer"),
    ]
    result = audit(save(tmp_path, nodes, {"w": HOT}, [("a", TensorProto.UINT8), ("c", TensorProto.BOOL)]))
    assert len(result.layers) == 3
    known = {layer.layer.name: None for layer in result.layers}
    result.on_data = OnData(1, "onnxruntime", True, {**known, **layers}, [output], counted=1, compared=1)
    return result


def test_the_verdict_says_first_what_is_not_known(tmp_path):
    output = OutputOnData("y", 20.0, math.inf, 1.0, 0.0, 200, 117, 0, 0, 0, 0)
    words = verdict(result_on_data(tmp_path, {"outer": LayerOnData(100, 0)}, output))
    assert (
        "; on your data it is not known how many sums of 2 of 3 layers are wrong in ONNX Runtime (in an inner graph); of the "
        "others 0 of 1 layer computes wrong sums in ONNX Runtime; 117 of 200 values of output 'y' change by 10 % (20 dB); "
        "rounding noise alone changes none; "
    ) in words
    assert "not measured: in an inner graph" in to_text(
        result_on_data(tmp_path, {"outer": LayerOnData(100, 0)}, output)
    )
    words = verdict(result_on_data(tmp_path, {}, output))
    assert "it is not known how many sums of 3 of 3 layers" in words and "of the others" not in words


@pytest.mark.parametrize("stock,word", [(14.9, "no farther"), (9.0, "farther")])
def test_only_a_distance_from_the_float_model_is_called_farther(tmp_path, stock, word):
    output = OutputOnData("y", 16.0, 40.0, 1.0, 0.1, 200, 117, 9, 0, 0, 0, 15.0, stock)
    words = verdict(result_on_data(tmp_path, {}, output))
    assert "an error of" not in words and "alone changes 9 by 1 % (40 dB)" in words
    assert (
        f"from the float model the output is {word} than with exact sums: {stock:.0f} dB, with exact sums 15 dB"
        in words
    )


def test_equal_outputs_are_called_equal(tmp_path):
    output = OutputOnData("y", math.inf, 40.0, 0.0, 0.1, 200, 0, 9, 0, 0, 0)
    assert "the outputs are equal to those with exact sums; " in verdict(result_on_data(tmp_path, {}, output))


def test_bars_of_the_page_show_wrong_sums(tmp_path):
    output = OutputOnData("y", 20.0, math.inf, 1.0, 0.0, 200, 117, 0, 0, 0, 0)
    result = result_on_data(tmp_path, {"outer": LayerOnData(1000, 420)}, output)
    page = to_html(result)
    # the other layers are not measured
    assert page.count('class="bar"') == 1 and 'style="width:42.0%"' in page
    assert "share of a layer&#x27;s sums that ONNX Runtime computes wrong on your data" in page
    heads = re.findall("<th(?: [^>]*)?>", page)
    assert len(heads) == 5 and all("data-by" in head for head in heads)
    result.on_data = None
    assert to_html(result).count(
        'class="bar"'
    ) == 3 and "A bar is the share of a layer's weight pairs" in to_html(result)


@pytest.mark.parametrize("is_external", [False, True])
def test_shared_weights_change_nothing(tmp_path, monkeypatch, is_external):
    """All constants are shared, and lie in a file of their own or in the model."""
    pytest.importorskip("onnxruntime")
    quantized, before, data = models(tmp_path)
    if is_external:
        model = onnx.load(str(quantized))
        onnx.save(model, str(quantized), save_as_external_data=True, location="w.bin", size_threshold=0)
    first = run_on_data(audit(quantized), load_data(data), float_model=str(before))
    monkeypatch.setattr(_weights, "SHARED_SIZE", 1)
    monkeypatch.setattr(_run, "SHARED_SIZE", 1)
    monkeypatch.setattr(_run, "_MOST_KEPT", 0)
    result = audit(quantized)
    second = run_on_data(result, load_data(data), float_model=str(before))
    assert second == first and first.layers["n"].changed and _weights._arrays
    exact = exact_variant(result, result)
    assert {tensor.name for tensor in exact.graph.initializer} == {"w__u8", "w__u8_point_1_3"}
    _weights.write_model(exact, tmp_path / "exact.onnx")
    tensor = onnx.load(str(tmp_path / "exact.onnx")).graph.initializer[0]
    assert (numpy_helper.to_array(tensor) == (HOT.astype(np.int16) + 128)).all()
    del result, exact, second
    gc.collect()
    assert not _weights._arrays  # they live as long as the audit


@pytest.mark.parametrize("command,what", [("audit", "--data"), ("compare", "compare"), ("repair", "--check")])
def test_a_large_model_says_what_memory_it_needs(tmp_path, monkeypatch, capsys, command, what):
    pytest.importorskip("onnxruntime")
    quantized, before, data = map(str, resize().write(tmp_path))
    arguments = {
        "audit": [quantized],
        "compare": [quantized, before],
        "repair": [quantized, "-o", str(tmp_path / "r.onnx"), "--check"],
    }
    run = _program._COMMANDS[command]
    run([*arguments[command], "--data", data])
    assert "memory" not in capsys.readouterr().err
    for most, words in ((10**12, "are available\n"), (1, "are available: this may not suffice\n")):
        monkeypatch.setattr(_program, "memory_available", lambda most=most: most)
        monkeypatch.setattr(_program, "_MUCH", 1)
        run([*arguments[command], "--data", data])
        assert capsys.readouterr().err == (
            f"intact: {what}: the weights need up to 0.3 GB of memory, activations come on top; {most / 1e9:.1f} GB "
            + words
        )
