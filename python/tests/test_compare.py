"""`intact compare`: finds planted faults in their layer and category, and gives the advice that removes them."""

import html
import json
import math
import re
import shutil

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from commands import program  # noqa: E402
from intact._audit import run as _run  # noqa: E402
from intact._audit.audit import audit  # noqa: E402
from intact._compare.compare import compare, requantized  # noqa: E402
from intact._compare.comparison import Distance  # noqa: E402
from intact._compare.match import match  # noqa: E402
from intact._compare.report import to_html, to_json, to_text, verdict  # noqa: E402
from intact._engines.data import decibels  # noqa: E402
from intact._graph import weights as _weights  # noqa: E402
from intact._library import Error, is_x86  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

DEPTH = 16


def model(path, nodes, constants, output="y"):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), str(path))
    return path


def weights(seed, shape=(DEPTH, DEPTH)):
    return (np.random.default_rng(seed).integers(-100, 101, shape) / 100).astype(np.float32)


class Pair:
    """Float layers `one` and `two`, y = (x @ w1 + b1) @ w2 + b2, and the model quantized in QDQ form. `stored`: by layer, changes
    of how it is stored: `scale`, `bits`, `bias`, `alpha` (without a bias), `range` of its input, `channels` (a scale for each)."""

    def __init__(self, folder, stored=None, smooth=False, w1=None, w2=None, x=None, names=("one", "two")):
        self.folder, self.smooth = folder, smooth
        self.w = [weights(1) if w1 is None else w1, weights(2) if w2 is None else w2]
        self.b = [np.linspace(-1, 1, w.shape[1], dtype=np.float32) for w in self.w]
        self.x = np.random.default_rng(3).uniform(-1, 1, (4, 5, DEPTH)).astype(np.float32) if x is None else x
        self.float = model(
            folder / "float.onnx",
            [
                helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="one"),
                helper.make_node("Gemm", ["h", "w2", "b2"], ["y"], name="two"),
            ],
            {"w1": self.w[0], "w2": self.w[1], "b1": self.b[0], "b2": self.b[1]},
        )
        self.nodes, self.constants = [], {}
        hidden = [sample @ self.w[0] + self.b[0] for sample in self.x]
        self.result = self._layer(0, "x", self.x, (stored or {}).get("one", {}), names[0])
        self.result = self._layer(1, self.result, np.array(hidden), (stored or {}).get("two", {}), names[1])
        self.nodes[-1].output[0] = "y"
        self.quantized = model(folder / "quantized.onnx", self.nodes, self.constants)
        (folder / "data").mkdir(exist_ok=True)
        for i, sample in enumerate(self.x):
            np.savez(folder / "data" / f"{i}.npz", x=sample)

    def _layer(self, i, x, values, stored, name):
        w, b = self.w[i], self.b[i]
        low, high = stored.get("range", (min(values.min(), 0), values.max()))
        scale = np.float32((high - low) / 255)
        point = np.uint8(np.rint(-low / scale))
        axis = 0 if stored.get("channels", True) else None
        w_scale = np.float32(np.abs(w).max(axis=axis) / (63 if stored.get("bits") == 7 else 127))
        integers = np.clip(np.rint(w / w_scale), -127, 127).astype(np.int8)
        w_scale = np.float32(w_scale * stored.get("scale", 1))
        names = {
            key: f"{key}{i}"
            for key in ("s", "z", "q", "d", "w", "ws", "wz", "wd", "b", "bs", "bd", "o", "smooth", "sx")
        }
        b_scale = np.float32(scale * w_scale)
        b = np.rint((b + np.float32(stored.get("bias", 0))) / b_scale).astype(np.int32)
        self.constants.update(
            {
                names["s"]: scale,
                names["z"]: point,
                names["w"]: integers,
                names["ws"]: w_scale,
                names["wz"]: np.zeros(w_scale.shape, np.int8),
                names["b"]: b,
                names["bs"]: b_scale,
            }
        )
        self.nodes += [
            helper.make_node("QuantizeLinear", [x, names["s"], names["z"]], [names["q"]]),
            helper.make_node("DequantizeLinear", [names["q"], names["s"], names["z"]], [names["d"]]),
            helper.make_node(
                "DequantizeLinear", [names["w"], names["ws"], names["wz"]], [names["wd"]], axis=1
            ),
            helper.make_node("DequantizeLinear", [names["b"], names["bs"]], [names["bd"]], axis=0),
            helper.make_node(
                "Gemm",
                [names["d"], names["wd"]] + [names["bd"]] * ("alpha" not in stored),
                [names["o"]],
                name=name,
                alpha=stored.get("alpha", 1.0),
            ),
        ]
        return names["o"]

    def compared(self, **options):
        pytest.importorskip("onnxruntime")
        found = compare(self.quantized, self.float, self.folder / "data", **options)
        assert all(not layer.reason for layer in found.layers)
        return found, {layer.name: layer for layer in found.layers}


def advice(found, what):
    """By layer."""
    return {layer: one for one in found.advice if one.what == what for layer in one.layers}


# ----- what needs no engine ---------------------------------------------------------------------------------------------


def test_distances():
    a, b = np.array([3.0, 4.0]), np.array([3.0, 4.5])
    found = Distance().add(a, b, 0.25)
    assert found.sqnr == pytest.approx(20) and found.l2 == pytest.approx(0.1) and found.largest == 2
    assert found.cosine == pytest.approx((9 + 18) / (5 * math.sqrt(9 + 4.5**2)))
    found.add(np.array([1.0]), np.array([2.0]))
    assert found.samples == [pytest.approx(20), 0] and found.sqnr == pytest.approx(10 * math.log10(26 / 1.25))
    assert Distance().add(a, a).sqnr == math.inf and Distance().add(a, a).cosine == pytest.approx(1)
    assert Distance().add(a, np.array([3.0, np.nan])).sqnr == -math.inf


def test_weights_quantized_anew():
    w = np.array([[1.27, 100], [-1.0, 127]], np.float32)
    assert np.allclose(requantized(w, True), [[1.27, 100], [-1.0, 127]])
    assert np.allclose(requantized(w, False), [[1, 100], [-1, 127]])
    of_convolution = requantized(np.moveaxis(w, 1, 0).reshape(2, 1, 1, 2), True)
    assert np.allclose(of_convolution.reshape(2, 2).T, requantized(w, True))


def test_matching_by_weights(tmp_path):
    pair = Pair(tmp_path, names=("p", "q"))
    found, _ = match(audit(pair.quantized), pair.float)
    assert [m.float_node.name for m in found] == ["one", "two"] and all(
        m.how == f"weights, correlation {1:.4f}" for m in found
    )
    assert np.allclose(found[1].real, pair.w[1], atol=0.005) and np.allclose(found[0].biases[1], pair.b[0])


def test_matching_by_name(tmp_path):
    pair = Pair(tmp_path)
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="two"),
        helper.make_node("MatMul", ["h", "w2"], ["y"], name="three"),
    ]
    other = model(tmp_path / "other.onnx", nodes, {"w1": weights(8), "w2": weights(9)})
    found, _ = match(audit(pair.quantized), other)
    assert found[0].float_node is None and found[0].how == "no float node has weights like these, or its name"
    assert found[1].float_node.name == "two" and found[1].how.startswith("name, correlation 0.0")


def test_equal_weights_are_distinguished_by_name(tmp_path):
    pair = Pair(tmp_path, w1=weights(1), w2=weights(1), names=("two_quant", "one_quant"))
    found, _ = match(audit(pair.quantized), pair.float)
    assert [m.float_node.name for m in found] == ["two", "one"]


def test_a_normalisation_is_folded_in(tmp_path):
    w, gain, variance = (
        weights(1, (4, 3, 1, 1)),
        np.array([2, 1, -3, 0.5], np.float32),
        np.array([1, 4, 1, 9], np.float32),
    )
    before = model(
        tmp_path / "float.onnx",
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="n"),
            helper.make_node("BatchNormalization", ["c", "g", "b", "b", "v"], ["y"], epsilon=0.0),
        ],
        {"w": w, "g": gain, "b": np.zeros(4, np.float32), "v": variance},
    )
    folded = w * (gain / np.sqrt(variance)).reshape(4, 1, 1, 1)
    constants = {
        "s": np.float32(0.1),
        "z": np.uint8(0),
        "w": np.rint(folded * 20).astype(np.int8),
        "ws": np.float32(0.05),
        "wz": np.int8(0),
    }
    after = model(
        tmp_path / "after.onnx",
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node(
                "QLinearConv", ["q", "s", "z", "w", "ws", "wz", "s", "z"], ["o"], name="n_quant"
            ),
            helper.make_node("DequantizeLinear", ["o", "s", "z"], ["y"]),
        ],
        constants,
    )
    (found,), _ = match(audit(after), before)
    assert found.float_node.part == "with its BatchNormalization" and found.float_node.outputs == ["y"]
    assert np.allclose(found.weights, np.moveaxis(folded, 1, -1))


def test_bad_input(tmp_path):
    pair = Pair(tmp_path)
    data = tmp_path / "data"
    for arguments, words in [
        (
            [pair.float, pair.float],
            "has no quantized layer with constant weights; expected the quantized model first",
        ),
        ([pair.quantized, tmp_path / "none.onnx"], "none.onnx: no such file"),
        ([pair.quantized, pair.quantized], "has no product with constant float weights"),
    ]:
        run = program("compare", *arguments, "--data", data)
        assert run.returncode == 2 and words in run.stderr and run.stderr.count("\n") == 1, run.stderr
    (tmp_path / "m.tflite").write_bytes(b"\0\0\0\0TFL3")
    assert program("compare", tmp_path / "m.tflite", pair.float, "--data", data).returncode == 2
    run = program("compare", pair.quantized, pair.float)
    assert (
        run.returncode == 2
        and run.stderr == "intact: --data: missing; `intact compare --help` says what is expected\n"
    )


# ----- planted faults ---------------------------------------------------------------------------------------------------


def test_a_sound_model(tmp_path):
    pair = Pair(tmp_path)
    found, layers = pair.compared()
    assert found.samples == 4 and [layer.own.sqnr > 40 for layer in found.layers] == [True, True]
    x = pair.x.reshape(-1, DEPTH)
    scale = np.float32((x.max() - x.min()) / 255)
    point = np.rint(-x.min() / scale)
    real = (np.clip(np.rint(x / scale) + point, 0, 255) - point) * scale
    wanted = x @ pair.w[0] + pair.b[0]
    mine = real @ requantized(pair.w[0], True) + pair.b[0]
    step = pair.constants["s1"]
    assert layers["one"].own.sqnr == pytest.approx(
        Distance().add(wanted, np.rint(mine / step) * step).sqnr, abs=0.1
    )
    assert layers["one"].network.sqnr == pytest.approx(layers["one"].own.sqnr, abs=0.05)
    assert layers["two"].network.sqnr < layers["two"].own.sqnr - 1  # errors accumulate
    assert (
        layers["one"].weights.largest <= 0.51
        and layers["one"].input.largest <= 0.51
        and not layers["one"].clipped
    )
    assert len(layers["one"].own.samples) == len(layers["one"].ranges) == 4
    assert not advice(found, "the float model's biases") and not advice(found, "per-channel weights")


def test_a_wrong_scale_of_weights(tmp_path):
    found, layers = Pair(tmp_path, {"two": {"scale": 1.5}}).compared()
    assert (
        layers["two"].weights.sqnr == pytest.approx(20 * math.log10(2), abs=0.1)
        and layers["two"].weights.cosine > 0.9999
    )
    assert (layers["two"].category, layers["one"].own.sqnr > 40) == ("data-insensitive", True) and layers[
        "two"
    ].share > 0.99
    assert found.of("data-insensitive")[0].name == "two"
    best = advice(found, "left in float")["two"]
    assert best.helps and best.before < 8 and best.after > 35
    assert not advice(found, "left in float")["one"].helps


def test_one_heavy_channel_among_weights_of_one_scale(tmp_path):
    w2 = weights(2)
    w2[:, 0] *= 200
    found, layers = Pair(tmp_path, {"one": {"channels": False}, "two": {"channels": False}}, w2=w2).compared()
    two = layers["two"]
    assert two.category == "data-insensitive" and not two.is_per_channel
    assert max(two.channels[1:]) < 10 < 40 < two.channels[0] and two.per_channel.sqnr > two.weights.sqnr
    assert "per_channel" in two.requantized and two.by["per_channel"] < two.by["weights"] / 2
    assert advice(found, "per-channel weights")["two"].gain > 3


def test_per_channel_weights_help(tmp_path):
    w1 = weights(1)
    w1[0, 0] = 100  # of an input that is always 0
    x = np.random.default_rng(3).uniform(-1, 1, (4, 5, DEPTH)).astype(np.float32)
    x[..., 0] = 0
    found, layers = Pair(tmp_path, {"one": {"channels": False}}, w1=w1, x=x).compared()
    helped = advice(found, "per-channel weights")["one"]
    assert helped.helps and helped.gain > 3 and layers["one"].category == "data-insensitive"
    found, _ = Pair(tmp_path, w1=w1, x=x).compared()  # the advice, applied
    assert found.audit.on_data.outputs[0].exact_to_float == pytest.approx(helped.after, abs=0.3)


def test_an_outlier_in_one_sample(tmp_path):
    x = np.random.default_rng(3).uniform(-1, 1, (4, 5, DEPTH)).astype(np.float32)
    x[2, 1, 3] = 9
    found, layers = Pair(tmp_path, {"one": {"range": (-1, 1)}}, x=x).compared()
    one = layers["one"]
    assert one.category == "data-sensitive" and one.share > 0.9 and one.clipped == 1
    assert min(one.own.samples) == one.own.samples[2] and one.own.spread[1] - one.own.spread[0] > 15
    assert max(one.used) == pytest.approx(5, abs=0.1) and one.input.largest == pytest.approx(
        8 / (2 / 255), rel=0.01
    )
    dynamic = advice(found, "dynamic quantization of the activations")["one"]
    anew = advice(found, "a calibration with this data")["one"]
    assert dynamic.helps and dynamic.gain > anew.gain > 3
    assert "of the input is clipped" in to_text(found)
    found, _ = Pair(tmp_path, {"one": {"range": (-1, 9)}}, x=x).compared()  # the advice, applied
    assert found.audit.on_data.outputs[0].exact_to_float == pytest.approx(anew.after, abs=0.5)


def test_a_range_that_is_too_wide(tmp_path):
    found, layers = Pair(tmp_path, {"two": {"range": (-300, 300)}}).compared()
    assert (
        layers["two"].category == "data-sensitive"
        and max(layers["two"].used) < 0.1
        and not layers["two"].clipped
    )
    assert advice(found, "a calibration with this data")["two"].helps


def test_a_layer_that_clamps(tmp_path):
    w1 = weights(1)
    w1[:, 5] = 1  # 255 times 127, twice
    x = np.random.default_rng(3).uniform(0.2, 1, (4, 5, DEPTH)).astype(np.float32)
    pair = Pair(tmp_path, w1=w1, x=x)
    found, layers = pair.compared()
    one = layers["one"]
    q = np.clip(np.rint(x / pair.constants["s0"]), 0, 255).reshape(-1, DEPTH)
    integers = np.rint(w1 / (np.abs(w1).max(axis=0) / 127))
    pairs = (q[:, :, None] * integers).reshape(len(q), -1, 2, DEPTH).sum(axis=2)
    assert one.clamped == np.count_nonzero((pairs != np.clip(pairs, -32768, 32767)).any(axis=1)) > 0
    assert one.engine_excess > 10 and [layer.name for layer in found.of("implementation")][0] == "one"
    assert one.differs_here == found.audit.cpu_clamps
    assert "exact sums in" in to_text(found)


@pytest.mark.skipif(not is_x86(), reason="needs a Python of x86-64")
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="needs qemu-user")
def test_an_emulator_shows_the_layer_that_clamps(tmp_path, monkeypatch):
    monkeypatch.delenv("INTACT_PYTHON", raising=False)
    w1 = weights(1)
    w1[:, 5] = 1
    x = np.random.default_rng(3).uniform(0.2, 1, (2, 5, DEPTH)).astype(np.float32)
    found, layers = Pair(tmp_path, w1=w1, x=x).compared(emulate=True)
    one = layers["one"]
    assert one.differs_here and one.control.sqnr == math.inf and len(one.here.samples) == 2
    wanted = decibels(one.own.signal, one.by["clamps"])
    assert one.here.sqnr == pytest.approx(wanted, abs=0.5)  # the prediction, from the engine
    text = to_text(found)
    assert "one: ONNX Runtime on the emulated CPU is " in text
    (output,) = found.audit.on_data.outputs
    assert (
        output.stock_to_float < output.exact_to_float - 5
        and f"{output.stock_to_float:.1f} to {output.exact_to_float:.1f} dB" in text
    )


def test_another_bias(tmp_path):
    found, layers = Pair(tmp_path, {"two": {"bias": 3}}).compared()
    assert layers["two"].category == "data-insensitive" and layers["two"].by["bias"] == pytest.approx(
        9 * DEPTH * 20, rel=1e-3
    )
    helped = advice(found, "the float model's biases")["two"]
    assert helped.helps and helped.before < 25 and helped.after > 35


def test_another_operator(tmp_path):
    found, layers = Pair(tmp_path, {"two": {"alpha": 2.0}}).compared()
    assert (
        layers["two"].unexplained > 0
        and found.of("implementation")[0].name == "two"
        and not layers["two"].category
    )
    assert not layers["one"].unexplained and "weights, activations and rounding explain only" in to_text(
        found
    )


def test_the_eighth_bit(tmp_path):
    found, layers = Pair(tmp_path, {"one": {"bits": 7}, "two": {"bits": 7}}).compared()
    assert all(
        layer.uses_7_bits and layer.eighth_bit.sqnr > layer.weights.sqnr + 4 for layer in layers.values()
    )
    helped = advice(found, "weights with 8 bits instead of 7")["two"]
    found, layers = Pair(tmp_path).compared()  # the advice, applied
    assert helped.helps and not layers["one"].uses_7_bits
    assert found.audit.on_data.outputs[0].exact_to_float == pytest.approx(helped.after, abs=0.3)


def test_faults_together(tmp_path):
    found, _ = Pair(tmp_path, {"one": {"range": (-20, 20)}, "two": {"bias": 0.5}}).compared()
    alone = [one for one in found.advice if len(one.layers) == 1]
    together = advice(found, "all helpful changes together")["two"]
    assert together.helps and together.after > max(one.after for one in alone) + 3


# ----- other forms ------------------------------------------------------------------------------------------------------


def small_network(tmp_path):
    """Conv, Relu, depthwise Conv, and Gemm, in float, and its data."""
    rng = np.random.default_rng(0)
    constants = {
        "c": rng.normal(size=(6, 3, 3, 3)),
        "cb": rng.normal(size=6),
        "d": rng.normal(size=(6, 1, 3, 3)),
        "g": rng.normal(size=(7, 96)),
        "gb": rng.normal(size=7),
    }
    nodes = [
        helper.make_node("Conv", ["x", "c", "cb"], ["h1"], name="first", pads=[1] * 4),
        helper.make_node("Relu", ["h1"], ["h2"], name="relu"),
        helper.make_node("Conv", ["h2", "d"], ["h3"], name="depthwise", group=6, pads=[1] * 4),
        helper.make_node("Flatten", ["h3"], ["h4"], name="flatten"),
        helper.make_node("Gemm", ["h4", "g", "gb"], ["y"], name="last", transB=1),
    ]
    path = model(
        tmp_path / "float.onnx", nodes, {name: value.astype(np.float32) for name, value in constants.items()}
    )
    proto = onnx.load(str(path))
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 4, 4]))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 7]))
    onnx.save(proto, str(path))
    x = rng.normal(size=(6, 3, 4, 4)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    return path, x


def quantize(path, out, x, form):
    quantization = pytest.importorskip("onnxruntime.quantization")
    kinds = {"activation_type": quantization.QuantType.QUInt8, "weight_type": quantization.QuantType.QInt8}
    if form == "dynamic":
        quantization.quantize_dynamic(str(path), str(out), weight_type=quantization.QuantType.QInt8)
        return

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.runs = iter(x)

        def get_next(self):
            image = next(self.runs, None)
            return None if image is None else {"x": image[None]}

    form = {"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}[form]
    quantization.quantize_static(str(path), str(out), Reader(), quant_format=form, **kinds)


@pytest.mark.parametrize("form", ["qdq", "qoperator", "dynamic"])
def test_forms_of_the_quantizer(tmp_path, form):
    from intact._compare.advice import Change, changed
    from intact._compare.compare import _Runs
    from intact._engines.session import session_of

    path, x = small_network(tmp_path)
    quantize(path, tmp_path / "q.onnx", x, form)
    found = compare(tmp_path / "q.onnx", path, tmp_path / "x.npz", each=True)
    assert [layer.matched.float_node.name for layer in found.layers] == [
        "first",
        "depthwise",
        "last",
    ] and found.samples == 6
    assert all(
        layer.own.sqnr > 30 and layer.network.sqnr > 25 and not layer.unexplained for layer in found.layers
    )
    assert not found.not_measured
    # A layer that is "changed" to what is stored computes the same.
    exact = _Runs(found, match(found.audit, path)[1])
    for how in ("stored", "float"):
        network, names = changed(
            exact.exact, found, exact.places, [Change(layer, input=how) for layer in found.layers]
        )
        assert names == [layer.name for layer in found.layers]
        apart = Distance().add(
            exact.plain.run(None, {"x": x})[0], session_of(network.finish(), True).run(None, {"x": x})[0]
        )
        assert apart.sqnr > (45 if how == "stored" else 20), (how, apart.sqnr)
    changes = [Change(layer, layer.matched.weights, "float") for layer in found.layers]
    network, _ = changed(exact.exact, found, exact.places, changes)
    floats = session_of(network.finish(), True).run(None, {"x": x})[0]
    apart = Distance().add(session_of(str(path)).run(None, {"x": x})[0], floats)
    assert apart.sqnr > 35  # what is left is the output's rounding


def test_weights_that_take_over_scales_of_activations(tmp_path):
    pytest.importorskip("onnxruntime")
    pair = Pair(tmp_path)
    proto = onnx.load(str(pair.quantized))
    scales = np.linspace(0.5, 2, DEPTH, dtype=np.float32)
    by_name = {tensor.name: tensor for tensor in proto.graph.initializer}
    w = pair.w[0] / scales[:, None]
    w_scale = np.float32(np.abs(w).max(axis=0) / 127)
    b_scale = np.float32(4 / 255) * w_scale
    for name, array in {
        "w0": np.rint(w / w_scale).astype(np.int8),
        "ws0": w_scale,
        "s0": np.float32(4 / 255),
        "z0": np.uint8(128),
        "bs0": b_scale,
        "b0": np.rint(pair.b[0] / b_scale).astype(np.int32),
    }.items():
        by_name[name].CopyFrom(numpy_helper.from_array(array, name))
    proto.graph.initializer.append(numpy_helper.from_array(scales, "smooth"))
    proto.graph.node[0].input[0] = "xs"
    proto.graph.node.insert(0, helper.make_node("Mul", ["x", "smooth"], ["xs"], name="smoothed"))
    onnx.save(proto, str(pair.quantized))
    found, layers = pair.compared()
    matched = layers["one"].matched
    assert np.array_equal(matched.smooth, scales) and matched.how == "weights and name, correlation 1.0000"
    assert layers["one"].own.sqnr > 38 and not layers["one"].unexplained and layers["one"].weights.sqnr > 40


# ----- the command ------------------------------------------------------------------------------------------------------


def test_the_command(tmp_path):
    pytest.importorskip("onnxruntime")
    pair = Pair(tmp_path, {"two": {"scale": 1.5}})
    run = program(
        "compare",
        pair.quantized,
        pair.float,
        "--data",
        tmp_path / "data",
        "--json",
        tmp_path / "j",
        "--html",
        tmp_path / "h",
    )
    assert run.returncode == 0, run.stderr
    for words in (
        "2 of 2 layers found in the float model; 4 samples",
        "would help: left in float: two: output y goes from ",
        "data-insensitive error (of weights, biases and rounding: any input has it): 2 of 2 layers",
    ):
        assert words in run.stdout
    report = json.loads((tmp_path / "j").read_text())
    assert (report["schema"], report["schema_version"], report["samples"]) == ("intact-compare", 1, 4)
    two = report["layers"][1]
    assert (two["name"], two["category"], two["scales"]) == ("two", "data-insensitive", "channels")
    assert len(two["weights_sqnr_of_channels"]) == DEPTH
    assert set(two["own"]) == {
        "sqnr",
        "cosine",
        "normalised_l2",
        "largest_error",
        "largest_error_unit",
        "values",
        "sqnr_of_samples",
    }
    page = (tmp_path / "h").read_text()
    assert "in the network" in page and "src=" not in page and "http" not in page


def test_samples(tmp_path):
    pytest.importorskip("onnxruntime")
    pair = Pair(tmp_path)
    np.savez(tmp_path / "one.npz", x=pair.x[0], labels=np.arange(3))
    found = compare(pair.quantized, pair.float, tmp_path / "one.npz")
    assert found.samples == 1 and "one sample: how errors differ between samples is not known" in to_text(
        found
    )
    found = compare(pair.quantized, pair.float, tmp_path / "one.npz", each=True)
    assert found.samples == 5 and len(found.layers[0].own.samples) == 5
    assert compare(pair.quantized, pair.float, [{"x": pair.x[0]}, {"x": pair.x[1]}]).samples == 2
    np.savez(tmp_path / "one.npz", x=np.float32(1))
    run = program("compare", pair.quantized, pair.float, "--data", tmp_path / "one.npz", "--each")
    assert (
        run.returncode == 2 and "the inputs' first dimensions are [0]; expected one size, not 0" in run.stderr
    )
    np.savez(tmp_path / "one.npz", z=pair.x[0])
    run = program("compare", pair.quantized, pair.float, "--data", tmp_path / "one.npz")
    assert (
        run.returncode == 2
        and "has no array 'x', an input of the model" in run.stderr
        and run.stderr.count("\n") == 1
    )


def test_a_float_model_with_other_outputs(tmp_path):
    pytest.importorskip("onnxruntime")
    pair = Pair(tmp_path)
    other = model(
        tmp_path / "other.onnx",
        [helper.make_node("MatMul", ["x", "w1"], ["h"])],
        {"w1": pair.w[0]},
        output="h",
    )
    run = program("compare", pair.quantized, other, "--data", tmp_path / "data")
    assert (
        run.returncode == 2
        and "other.onnx: has none of the model's outputs (y); its outputs: h" in run.stderr
    )


def test_what_is_left_out_is_said(tmp_path):
    pytest.importorskip("onnxruntime")
    pair = Pair(tmp_path)
    other = model(
        tmp_path / "other.onnx", [helper.make_node("MatMul", ["x", "w1"], ["y"], name="z")], {"w1": pair.w[0]}
    )
    found = compare(pair.quantized, other, tmp_path / "data")
    text = to_text(found)
    assert "1 of 2 layers found in the float model" in text
    assert "not compared: two: no float node has weights like these, or its name\n" in text
    assert to_json(found)["layers"][1]["weights"] is None and "not compared" in to_html(found)


def test_a_float_model_of_another_network(tmp_path):
    pair = Pair(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    other = Pair(other, w1=weights(8), w2=weights(9)).float
    proto = onnx.load(str(other))
    for node in proto.graph.node:
        node.name = f"other_{node.name}"
    onnx.save(proto, str(other))
    with pytest.raises(Error, match="contains no weights of .*; expected the model before quantization"):
        compare(pair.quantized, other, tmp_path / "data")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_float_weights_that_are_not_finite(tmp_path, value):
    onnxruntime = pytest.importorskip("onnxruntime")
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 27):
        pytest.skip("this ONNX Runtime computes finite numbers of infinite weights")
    w = weights(1)
    pair = Pair(tmp_path)
    w[3, 4] = value
    nodes = onnx.load(str(pair.float)).graph.node
    model(pair.float, nodes, {"w1": w, "w2": pair.w[1], "b1": pair.b[0], "b2": pair.b[1]})
    with pytest.raises(
        Error, match="the float model's tensor 'h', which two quantizes, has NaN or infinities"
    ):
        compare(pair.quantized, pair.float, tmp_path / "data")
    matches, _ = match(audit(pair.quantized), pair.float)
    assert matches[0].float_node is None and matches[1].float_node is not None


@pytest.mark.parametrize(
    "name, of, words",
    [
        ("ws0", np.nan, "its dequantized weights are not finite"),
        ("ws0", np.inf, "its dequantized weights are not finite"),
        ("s0", np.inf, "its input has no constant scale"),
        ("s0", 0, "its input has no constant scale"),
    ],
)
def test_scales_that_are_not_finite(tmp_path, name, of, words):
    pytest.importorskip("onnxruntime")
    pair = Pair(tmp_path)
    pair.constants[name] = np.full_like(pair.constants[name], of)
    model(pair.quantized, pair.nodes, pair.constants)
    found = compare(pair.quantized, pair.float, tmp_path / "data")
    assert words in found.layers[0].reason and not found.layers[1].reason
    assert found.layers[0] not in found.of("implementation") and "nan" not in to_text(found)


def test_each_names_an_input_that_is_missing(tmp_path):
    pytest.importorskip("onnxruntime")
    pair = Pair(tmp_path)
    np.savez(tmp_path / "other.npz", z=np.zeros(3))
    with pytest.raises(Error, match="has no array 'x', an input of the model; has: z"):
        compare(pair.quantized, pair.float, tmp_path / "other.npz", each=True)


def test_the_page_begins_with_the_verdict_and_has_no_empty_column(tmp_path):
    found, _ = Pair(tmp_path, {"two": {"scale": 1.5}}).compared()
    page = to_html(found)
    line = verdict(found)
    assert line.startswith("output y on this CPU is 6.") and "; most helps: left in float, +" in line
    assert (
        page.index(html.escape(line))
        < page.index("<li>")
        < page.index("<h2>outputs")
        < page.index("<h2>weights")
    )
    assert to_text(found).splitlines()[-1] == line and to_json(found)["verdict"] == line
    for table in re.findall("<tbody>(.*?)</tbody>", page):
        rows = [re.findall("<td[^>]*>([^<]*)</td>", row) for row in table.split("</tr>")[:-1]]
        assert all(any(column) for column in zip(*rows))
    assert page.count("<th data-by>") == page.count("<th") - page.count("<thead") > 20


def test_shared_constants_change_nothing(tmp_path, monkeypatch):
    """All constants are shared, also constants that nothing reads in a variant."""
    first, _ = Pair(tmp_path, {"two": {"channels": False}}).compared()
    monkeypatch.setattr(_weights, "SHARED_SIZE", 1)
    monkeypatch.setattr(_run, "SHARED_SIZE", 1)
    second, _ = Pair(tmp_path, {"two": {"channels": False}}).compared()
    assert to_text(first) == to_text(second) and _weights._arrays
