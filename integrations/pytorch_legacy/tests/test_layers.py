"""compare() and dump()."""

import copy
import importlib
import os
import pathlib
import subprocess
import tempfile
import unittest

import intact_torch
import layers
import models
import numpy as np
import torch

# the package's attribute of this name is the function
compare = importlib.import_module("intact_torch.compare")


def transposed():
    """A converted model of transposed convolutions. The first has a ReLU, which PyTorch does not offer."""
    g = torch.Generator().manual_seed(1)
    up = layers.conv(
        layers.weights([8, 4, 3, 3], per_channel=False, generator=g),
        torch.randn(8, generator=g),
        stride=2,
        padding=1,
        groups=2,
        transposed=True,
        layer="up",
    )
    last = layers.conv(
        layers.weights([8, 6, 2, 2], axis=1, generator=g), stride=2, transposed=True, layer="last"
    )
    return torch.nn.Sequential(
        torch.nn.quantized.Quantize(0.03, 120, torch.quint8),
        intact_torch.Conv(up, True, 0.5, 0),
        intact_torch.Conv(last, False, 0.4, 128),
    )


def fused_except_norms():
    model = models.Eager().eval()
    return models.fuse_modules(
        model, [["stem.0", "stem.1"], ["block.conv1", "block.relu"], ["head.0", "head.1"]]
    )


class Comparing(unittest.TestCase):
    def test_layers_of_a_good_model(self):
        quantized, real = models.eager_static("qnnpack")
        comparison = intact_torch.compare(
            quantized, real, [models.images(4, 12, seed=5), models.images(3, 12, seed=6)]
        )
        self.assertEqual(comparison.engine, "qnnpack")
        self.assertEqual(
            [layer.name for layer in comparison.layers],
            ["stem.0", "block.conv1", "block.conv2", "head.0", "head.2"],
        )
        for layer in comparison.layers:
            self.assertEqual(layer.implementation.differing, 0)
            self.assertEqual(layer.implementation.outputs, layer.engine.outputs)
            self.assertLessEqual(layer.engine.largest, 1)
            self.assertEqual(layer.category, "")
            self.assertEqual(len(layer.samples), 7)
            self.assertGreater(layer.activations.sqnr, 25)
            self.assertGreater(layer.activations.cosine, 0.999)
            self.assertLess(layer.activations.normalised_l2, 0.05)
            self.assertGreater(layer.weights_per_channel.sqnr, layer.weights_per_tensor.sqnr - 1)
            # Rounding is by half a step at most.
            self.assertLess(layer.weights.lsb, 0.501)
        self.assertIn("final outputs against PyTorch's on qnnpack", str(comparison))
        self.assertEqual(comparison.json()["layers"][0]["name"], "stem.0")

    def test_each_call_of_a_layer_counts(self):
        torch.manual_seed(1)
        real = models.Gate().eval()
        torch.manual_seed(1)
        comparison = intact_torch.compare(models.fx_static("qnnpack", models.Gate), real, models.images(4))
        narrow = next(layer for layer in comparison.layers if layer.name == "narrow")
        self.assertEqual(len(narrow.samples), 8)
        self.assertGreater(min(narrow.samples), 25)

    def test_what_models_return(self):
        for wrap in (lambda y: {"y": y, "n": None}, lambda y: ((y,), None), lambda y: [y, y]):

            class Wrapped(models.Gate):
                def forward(self, x):
                    return wrap(super().forward(x))

            comparison = intact_torch.compare(
                models.fx_static("qnnpack", Wrapped), Wrapped().eval(), models.images(4)
            )
            self.assertEqual(comparison.final.outputs % (4 * 3 * 6 * 6), 0)
            self.assertGreater(comparison.final.outputs, 0)

    def test_nothing_to_compare(self):
        quantized, real = models.eager_static("qnnpack")
        for inputs in (models.images(0, 12), []):
            comparison = intact_torch.compare(quantized, real, inputs)
            self.assertIn("final outputs against PyTorch's on qnnpack: no outputs", str(comparison))
            self.assertEqual([layer.category for layer in comparison.layers], [""] * len(comparison.layers))

    def test_copies_are_converted(self):
        converted = intact_torch.convert(models.fx_static("onednn"))
        self.assertIsNone(intact_torch.compare(copy.deepcopy(converted), None, models.images(2)).final)

    def test_saturation_is_an_implementation_error(self):
        quantized, real = models.eager_static("qnnpack")
        saturating = intact_torch.convert(quantized, mode="saturating", max_isa="avx2")
        wrong = {
            layer.name: layer for layer in intact_torch.compare(saturating, real, models.images(8, 12)).layers
        }["stem.0"]
        self.assertEqual(wrong.category, "implementation error")
        self.assertIn("intact against dequantize, float, quantize", wrong.evidence)
        self.assertGreater(wrong.engine.largest, 1)
        self.assertEqual(wrong.engine_float_reference.largest <= 1, True)  # qnnpack is exact

    def test_saturation_of_dynamic_layers_is_one_too(self):
        torch.backends.quantized.engine = "qnnpack"
        torch.manual_seed(1)
        real = torch.nn.Sequential(torch.nn.Linear(64, 32)).eval()
        quantized = torch.ao.quantization.quantize_dynamic(real, {torch.nn.Linear})
        quantized[0].version = None  # with all 8 bits
        x = torch.randn(8, 64).abs()
        for mode, category in (("exact", ""), ("saturating", "implementation error")):
            (layer,) = intact_torch.compare(
                intact_torch.convert(quantized, mode=mode, max_isa="avx2"), real, x
            ).layers
            self.assertEqual(layer.category, category, layer.evidence)

    def test_engines_of_dynamic_layers_are_judged(self):
        call = type("Call", (), {"is_dynamic": True, "per_row": False, "input": torch.tensor([[-1.0, 1.0]])})
        call.params = layers.linear(torch.quantize_per_tensor(torch.ones(1, 2), 1.0, 0, torch.qint8))
        expected = torch.zeros(1, 1)
        unit = compare._unit(call, expected, 127, False)
        # of two weights of 1, a step of 2/127 of each input
        self.assertAlmostEqual(float(unit), 2 * 2 / 127 * 0.51)
        layer = compare.Layer("layer", "linear_dynamic")
        layer.engine_float_reference.add(torch.full([1, 1], 0.015), expected, unit)
        compare._categorise(layer, 20)
        self.assertEqual(layer.category, "")
        layer.engine_float_reference.add(torch.full([1, 1], 0.02), expected, unit)
        compare._categorise(layer, 20)
        self.assertEqual(layer.category, "implementation error")
        self.assertIn("the engine against float", layer.evidence)

    def test_engines_give_up_the_bit_that_the_layer_says(self):
        torch.backends.quantized.engine = "onednn"
        torch.manual_seed(1)
        quantized = torch.ao.quantization.quantize_dynamic(
            torch.nn.Sequential(torch.nn.Linear(64, 32)).eval(), {torch.nn.Linear}
        )
        x = torch.randn(8, 64)
        differences = []
        for version, options in ((4, {}), (None, models.as_onednn())):  # 7 bits do not clamp, 8 bits may
            quantized[0].version = version
            converted = intact_torch.convert(quantized, **options)
            (call,) = intact_torch.record.record(converted, x)
            self.assertTrue(torch.equal(call.engine_output(), quantized(x)))
            differences.append(intact_torch.compare(converted, None, x).layers[0].engine.largest)
        self.assertGreater(differences[0], 2 * differences[1])

    def test_steps_of_dynamic_layers_are_each_batchs(self):
        torch.backends.quantized.engine = "onednn"
        torch.manual_seed(1)
        real = torch.nn.Sequential(torch.nn.Linear(64, 32)).eval()
        quantized = torch.ao.quantization.quantize_dynamic(real, {torch.nn.Linear})
        x = torch.randn(4, 64)
        steps = [
            intact_torch.compare(quantized, real, inputs).layers[0].activations.lsb
            for inputs in ([x, x * 100], [x * 100, x], x)
        ]
        self.assertEqual(steps[0], steps[1])
        self.assertLess(steps[0], 2 * steps[2])

    def test_float_models_are_fused_as_the_quantized_one_is(self):
        torch.manual_seed(1)
        real = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, 8, 3),
            torch.nn.BatchNorm2d(8),
        ).eval()
        with torch.no_grad():
            for norm in (real[1], real[4]):
                norm.weight.uniform_(0.5, 2)
                norm.running_mean.uniform_(-1, 1)
                norm.running_var.uniform_(0.3, 3)
        quantized = models.fx_static("qnnpack", lambda: copy.deepcopy(real))
        fused = models.quiet(models.fuse_fx, copy.deepcopy(real))
        for model in (quantized, intact_torch.convert(quantized)):
            for float_model in (real, fused):
                comparison = models.quiet(intact_torch.compare, model, float_model, models.images())
                for layer in comparison.layers:
                    self.assertEqual(layer.category, "", layer.evidence)
                    self.assertGreater(layer.activations.sqnr, 25)
        self.assertIsInstance(real[1], torch.nn.BatchNorm2d)  # it was not changed

    def test_float_models_that_are_not_fused_are_refused(self):
        quantized, _ = models.eager_static("qnnpack")
        for float_model, words in (
            (models.Eager().eval(), "'stem.0' has a ReLU in model and none in float_model"),
            (fused_except_norms(), "'block.norm' is a BatchNorm2d in float_model and folded in model"),
        ):
            with self.assertRaisesRegex(
                ValueError, f"float_model is not fused as model is: {words}; pass it as fuse_modules"
            ):
                intact_torch.compare(quantized, float_model, models.images(2, 12))

    def test_fused_residuals_are_not_the_float_convolutions(self):
        torch.manual_seed(1)
        real = models.Gate().eval()
        fused = intact_torch.convert(models.fx_static("qnnpack", models.Gate), fuse_residual=True)
        layer = next(
            layer
            for layer in intact_torch.compare(fused, real, models.images()).layers
            if layer.name == "wide"
        )
        self.assertEqual((layer.kind, layer.category, layer.samples), ("conv2d", "", []))

    def test_coarse_weights_are_wrong_for_all_data(self):
        quantized, real = models.eager_static("qnnpack")
        weight = quantized.head[2].weight()
        steps = torch.full([10], 64 * float(weight.q_per_channel_scales().max()), dtype=torch.float64)
        coarse = torch.quantize_per_channel(
            weight.dequantize(), steps, torch.zeros(10, dtype=torch.int64), 0, torch.qint8
        )
        quantized.head[2].set_weight_bias(coarse, quantized.head[2].bias())
        layer = intact_torch.compare(quantized, real, models.images(8, 12)).layers[-1]
        self.assertEqual(layer.category, "data-insensitive", layer.evidence)
        self.assertLess(layer.weights.sqnr, layer.weights_per_channel.sqnr - 20)

    def test_an_outlier_is_wrong_for_few_data(self):
        quantized, real = models.eager_static("qnnpack")
        x = models.images(8, 12)
        x[5] *= 20  # far beyond the calibrated range
        layer = intact_torch.compare(quantized, real, x).layers[0]
        self.assertEqual(layer.category, "data-sensitive")
        self.assertIn("1 of 8 samples", layer.evidence)
        self.assertIn("sample 5", layer.evidence)

    def test_what_the_engine_lacks(self):
        torch.backends.quantized.engine = "qnnpack"
        comparison = intact_torch.compare(transposed(), None, models.images(2, 5, 8))
        self.assertIsNone(comparison.final)
        up, last = comparison.layers
        self.assertEqual(
            (up.kind, up.implementation.differing, up.implementation.outputs),
            ("conv_transpose2d", 0, 2 * 8 * 9 * 9),
        )
        self.assertIsNone(up.engine)
        self.assertIn("no transposed convolution with ReLU", up.engine_error)
        self.assertEqual(last.implementation.differing, 0)
        self.assertLessEqual(last.engine.largest, 1)

    def test_dynamic_layers(self):
        quantized = models.eager_dynamic("qnnpack")
        comparison = intact_torch.compare(quantized, None, torch.randn(5, 2, 32))
        self.assertEqual([layer.kind for layer in comparison.layers], ["linear_dynamic"] * 2)
        for layer in comparison.layers:
            self.assertEqual(layer.implementation.differing, 0)
            self.assertLess(layer.engine.largest, 0.02)


class Dumping(unittest.TestCase):
    def setUp(self):
        torch.backends.quantized.engine = "qnnpack"

    def dump_and_audit(self, model, inputs, *names):
        """Dumps to a folder, and runs `intact verify layer` on all its layers."""
        with tempfile.TemporaryDirectory() as folder:
            left = intact_torch.dump(model, inputs, folder)
            written = sorted(path.name for path in pathlib.Path(folder).iterdir())
            self.assertEqual(written, sorted(names))
            for name in written:
                audit = subprocess.run(
                    [
                        os.environ["INTACT_PROGRAM"],
                        "verify",
                        "layer",
                        os.path.join(folder, name),
                        "--expect",
                        "output_intact.npy",
                    ],
                    capture_output=True,
                    text=True,
                )
                self.assertEqual(audit.returncode, 0, audit.stdout + audit.stderr)
                self.assertRegex(audit.stdout, "against output_intact.npy +equal, all [0-9]+ outputs")
            self.outputs = {
                name: sorted(path.name for path in pathlib.Path(folder, name).glob("output_*.npy"))
                for name in written
            }
            self.activations = {
                name: np.load(pathlib.Path(folder, name, "activations.npy")) for name in written
            }
            return left

    def test_static(self):
        left = self.dump_and_audit(
            models.eager_static("qnnpack")[0],
            models.images(2, 12),
            "stem_0",
            "block_conv1",
            "block_conv2",
            "head_0",
            "head_2",
        )
        self.assertEqual(left, {})
        self.assertEqual(self.outputs["stem_0"], ["output_intact.npy", "output_qnnpack.npy"])
        self.assertEqual(self.activations["stem_0"].shape, (2, 12, 12, 3))

    def test_calls_and_dimensions(self):
        self.dump_and_audit(
            models.fx_static("onednn"),
            [models.images(2), models.images(1)],
            *(
                name + end
                for name in ("conv1", "conv2", "conv2d", "line", "conv3d", "linear")
                for end in ("", "_2")
            ),
        )
        self.assertEqual(self.activations["conv3d_2"].shape, (1, 1, 6, 6, 8))

    def test_transposed(self):
        self.dump_and_audit(transposed(), models.images(2, 5, 8), "up", "last")
        self.assertEqual(self.outputs["up"], ["output_intact.npy"])
        self.assertEqual(self.outputs["last"], ["output_intact.npy", "output_qnnpack.npy"])

    def test_dynamic(self):
        for dynamic in ("tensor", "row"):
            self.dump_and_audit(
                intact_torch.convert(models.eager_dynamic("qnnpack"), dynamic=dynamic),
                torch.randn(5, 2, 32),
                "qkv",
                "out",
            )
            self.assertEqual(self.activations["qkv"].shape, (10, 32))

    def test_names_that_are_taken(self):
        model = torch.nn.Sequential(intact_torch.Quantize(0.03, 120, torch.quint8))
        for name in ("x_2", "x"):
            params = layers.conv(layers.weights([3, 3, 1, 1]), layer=name)
            model.add_module(name, intact_torch.Conv(params, False, 0.1, 3))
        self.dump_and_audit(model, [models.images(1), models.images(2)], "x_2", "x", "x_2_2", "x_3")

    def test_arrays_from_before_are_removed(self):
        with tempfile.TemporaryDirectory() as folder:
            for bias, names in (
                (torch.zeros(3), ["activations", "bias", "output_intact", "output_qnnpack", "weights"]),
                (None, ["activations", "output_intact", "output_qnnpack", "weights"]),
            ):
                params = layers.linear(layers.weights([3, 8]), bias)
                model = torch.nn.Sequential(
                    intact_torch.Quantize(0.03, 120, torch.quint8), intact_torch.Linear(params, False, 0.1, 3)
                )
                intact_torch.dump(model, torch.randn(2, 8), folder)
                self.assertEqual(
                    sorted(path.stem for path in pathlib.Path(folder, "layer").glob("*.npy")), names
                )

    def test_residuals_are_left_out(self):
        fused = intact_torch.convert(models.eager_static("qnnpack")[0], fuse_residual=True)
        left = self.dump_and_audit(fused, models.images(2, 12), "stem_0", "block_conv1", "head_0", "head_2")
        self.assertEqual(left, {"block.conv2": "a layer folder holds no residual"})


if __name__ == "__main__":
    unittest.main()
