"""convert(): what it swaps and leaves; and that models can still be copied, saved, scripted and traced."""

import copy
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

import intact_torch
import models
import torch
import torch.ao.nn.quantized as nnq


def saved_and_loaded(model):
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


class Swapping(unittest.TestCase):
    def test_eager_static(self):
        quantized, _ = models.eager_static()
        converted = intact_torch.convert(quantized)
        report = intact_torch.conversion(converted)
        self.assertEqual(
            dict(report.swapped),
            {
                "quant": "Quantize",
                "stem.0": "ConvReLU2d",
                "block.conv1": "ConvReLU2d",
                "block.conv2": "Conv2d",
                "block.add": "QFunctional (add, add_relu; its other calls are PyTorch's)",
                "head.0": "LinearReLU",
                "head.2": "Linear",
            },
        )
        reasons = {name: reason for name, _, reason in report.left}
        self.assertEqual(reasons["reflected"], "its padding_mode is 'reflect'")
        self.assertIn("PyTorch's own operator", reasons["dequant"])
        self.assertIn("left     reflected: Conv2d: its padding_mode is 'reflect'", str(report))
        self.assertIsInstance(converted.head[2], intact_torch.Linear)
        self.assertIsInstance(quantized.head[2], nnq.Linear)  # it was not changed
        self.assertEqual(converted.block.conv2.params.layer(), "block.conv2")
        x = models.images(16, 12, seed=3)
        self.check_outputs(quantized, x)
        qnnpack, _ = models.eager_static("qnnpack")  # exact on every CPU
        self.check_outputs(qnnpack, x, {})
        self.assertTrue(torch.equal(intact_torch.convert(qnnpack)(x), converted(x)))

    def test_fx(self):
        quantized = models.fx_static()
        converted = intact_torch.convert(quantized)
        kinds = [kind for _, kind in intact_torch.conversion(converted).swapped]
        self.assertEqual(
            sorted(kinds),
            ["Conv1d", "Conv2d", "ConvReLU2d"]
            + ["quantize_per_tensor"] * 2
            + ["quantized.add_relu", "quantized.conv2d_relu", "quantized.conv3d", "quantized.linear"],
        )
        self.assertEqual(intact_torch.conversion(converted).left, [])
        self.assertNotIn("quantized.linear", converted.code)
        self.check_outputs(quantized, models.images(16, seed=3))

    def test_eager_dynamic(self):
        quantized = models.eager_dynamic()
        x = torch.randn(5, 2, 32, generator=torch.Generator().manual_seed(3))
        for dynamic in ("tensor", "row"):
            converted = intact_torch.convert(quantized, dynamic=dynamic)
            report = intact_torch.conversion(converted)
            self.assertEqual(report.swapped, [("qkv", "Linear"), ("out", "Linear")])
            self.assertEqual([left[:2] for left in report.left], [("rnn", "LSTM")])
            # PyTorch uses 7 bits of the activations, and rounds their zero points differently.
            self.assertLess(float((converted(x) - quantized(x)).abs().max()), 0.02)

    def test_fx_dynamic(self):
        prepared = models.quiet(
            models.prepare_fx,
            torch.nn.Sequential(torch.nn.Linear(32, 8), torch.nn.ReLU()).eval(),
            models.QConfigMapping().set_global(torch.ao.quantization.default_dynamic_qconfig),
            (torch.randn(2, 32),),
        )
        quantized = models.quiet(models.convert_fx, prepared)
        converted = intact_torch.convert(quantized)
        self.assertEqual(len(intact_torch.conversion(converted).swapped), 1)
        x = torch.randn(50, 32)
        self.assertLess(float((converted(x) - quantized(x)).abs().max()), 0.05)
        self.assertGreaterEqual(float(converted(x).min()), 0)

    def test_saturating_dynamic_layers_are_pytorchs(self):
        quantized = models.eager_dynamic()
        quantized.out.version = None  # with all 8 bits
        converted = intact_torch.convert(quantized, mode="saturating", max_isa="avx2")
        report = intact_torch.conversion(converted)
        self.assertEqual(report.swapped, [("out", "Linear")])
        self.assertIn(
            (
                "qkv",
                "Linear",
                "PyTorch gives it 7 bits of its input (reduce_range), which do not saturate; intact uses 8",
            ),
            report.left,
        )
        x = torch.randn(5, 2, 32)
        self.assertTrue(torch.equal(converted.qkv(x), quantized.qkv(x)))
        for reduce_range in (False, True):
            model = torch.fx.symbolic_trace(
                models.Calls(
                    lambda q, w: torch.ops.quantized.linear_dynamic(q.dequantize(), w, reduce_range).relu()
                )
            )
            report = intact_torch.conversion(intact_torch.convert(model, mode="saturating", max_isa="avx2"))
            self.assertEqual(
                [name for name, _ in report.swapped if name.startswith("linear")],
                [] if reduce_range else ["linear_dynamic"],
            )

    @unittest.skipUnless(intact_torch.isa_available("avx2"), "no AVX2")
    def test_saturating_dynamic_layers_are_onednns_on_avx2(self):
        program = textwrap.dedent("""
            import intact_torch, torch
            torch.manual_seed(0)
            torch.backends.quantized.engine = "onednn"
            model = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(256, 64)).eval(), {torch.nn.Linear})
            x = torch.randn(16, 256).abs()
            model[0].version = None  # with all 8 bits
            exact, saturating = (intact_torch.convert(model, mode=mode, max_isa="avx2")(x) for mode in ("exact", "saturating"))
            assert (saturating - exact).abs().max() > 0.1
            assert (saturating - model(x)).abs().max() < 1e-6
            """)
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            check=True,
            env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2"},
        )

    def test_composed_layers_are_reported(self):
        attention = torch.nn.quantized.MultiheadAttention(8, 2)
        reasons = dict(left[::2] for left in intact_torch.conversion(intact_torch.convert(attention)).left)
        self.assertIn("its layers are reported separately", reasons[""])

    def test_subclasses_are_reported(self):
        class Mine(nnq.Linear):
            pass

        report = intact_torch.conversion(intact_torch.convert(torch.nn.Sequential(Mine(4, 4))))
        self.assertEqual(
            report.left, [("0", "Mine", "a subclass of PyTorch's Linear may compute something else")]
        )

    def test_a_refused_layer_is_left(self):
        layer = nnq.Linear(4, 4)
        zeros = torch.zeros(4, dtype=torch.int64)
        layer.set_weight_bias(
            torch.quantize_per_channel(torch.ones(4, 4), torch.ones(4), zeros, 1, torch.qint8), None
        )
        report = intact_torch.conversion(intact_torch.convert(torch.nn.Sequential(layer, nnq.Linear(4, 4))))
        self.assertEqual(report.swapped, [("1", "Linear")])
        self.assertEqual([left[0] for left in report.left], ["0"])
        self.assertIn("per channel of axis 1; expected 0", report.left[0][2])

    def test_calls_by_overload(self):
        model = torch.fx.symbolic_trace(
            models.Calls(lambda q, w: torch.ops.quantized.linear.default(q, w, 0.1, 9))
        )
        converted = intact_torch.convert(model, **models.as_onednn())
        self.assertEqual(
            intact_torch.conversion(converted).swapped,
            [("quantize_per_tensor", "quantize_per_tensor"), ("linear_default", "quantized.linear")],
        )
        x = torch.randn(3, 4)
        self.assertLessEqual(float((converted(x) - model(x)).abs().max()), 0.11)

    def test_ways_to_quantize(self):
        x = torch.randn(3, 4)
        calls = {
            "kwargs": (
                True,
                lambda x: torch.quantize_per_tensor(x, scale=0.1, zero_point=3, dtype=torch.quint8),
            ),
            "qint32": (False, lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.qint32)),
            "list": (
                False,
                lambda x: torch.quantize_per_tensor([x, x], torch.ones(2), torch.zeros(2), torch.quint8)[0],
            ),
            "overload": (True, lambda x: torch.ops.aten.quantize_per_tensor.default(x, 0.1, 3, torch.qint8)),
        }
        for name, (is_swapped, call) in calls.items():

            class Quantizes(torch.nn.Module):
                def forward(self, x):
                    return call(x)

            model = torch.fx.symbolic_trace(Quantizes())
            converted = intact_torch.convert(model)
            report = intact_torch.conversion(converted)
            self.assertEqual(
                (len(report.swapped), len(report.left)), (is_swapped, not is_swapped), (name, str(report))
            )
            self.assertTrue(torch.equal(converted(x).int_repr(), model(x).int_repr()), name)

    def test_weights_that_a_call_left_alone_shares(self):
        def call(q, w):
            q = torch.ops.quantized.linear(q, w, 0.1, 9)
            return torch.ops.quantized.linear(q, w, Y_scale_i=0.1, Y_zero_point_i=9)

        model = torch.fx.symbolic_trace(models.Calls(call, shape=(4, 4)))
        converted = intact_torch.convert(model, **models.as_onednn())
        self.assertIn(("linear", "quantized.linear"), intact_torch.conversion(converted).swapped)
        self.assertEqual([name for name, *_ in intact_torch.conversion(converted).left], ["linear_1"])
        x = torch.randn(3, 4)
        self.assertLessEqual(float((converted(x) - model(x)).abs().max()), 0.21)

    def test_errors_name_the_layer(self):
        for model in (
            intact_torch.convert(models.eager_static()[0]),
            intact_torch.convert(models.fx_static()),
        ):
            with self.assertRaisesRegex(
                RuntimeError, "intact: (quant|quantize_per_tensor(_1)?): quantize: input is Double"
            ):
                model(models.images(1, 12).double())
        add = intact_torch.convert(models.eager_static()[0]).block.add
        a, b = (torch.quantize_per_tensor(torch.ones(n), 0.1, 0, torch.quint8) for n in (3, 4))
        with self.assertRaisesRegex(RuntimeError, "intact: block.add: add: The size of tensor"):
            add.add(a, b)
        add.scale = 0.0
        with self.assertRaisesRegex(RuntimeError, "intact: block.add: add_relu: scale is 0"):
            add.add_relu(a, a)

    def check_outputs(self, quantized, x, options=None):
        """Compares PyTorch's outputs with the model converted with `options`, by default those of onednn's arithmetic here."""
        theirs = quantized(x)
        ours = intact_torch.convert(quantized, **(models.as_onednn() if options is None else options))(x)
        self.assertGreater(theirs.unique().numel(), 20)
        step = float((theirs.unique()[1:] - theirs.unique()[:-1]).min())
        self.assertLessEqual(float((theirs - ours).abs().max()), 2.01 * step)
        self.assertLess(float((theirs != ours).float().mean()), 0.02)

    def test_residuals_are_fused_by_name(self):
        for make, size in ((lambda: models.eager_static()[0], 12), (models.fx_static, 6)):
            quantized = make()
            fused = intact_torch.convert(quantized, fuse_residual=True, **models.as_onednn())
            self.assertEqual(len(intact_torch.conversion(fused).fused), 1)
            self.assertNotIn("add_relu", fused.code)
            x = models.images(16, size, seed=3)
            self.assertFalse(torch.equal(fused(x), quantized(x)))
            self.assertLess(
                float((fused(x) - quantized(x)).abs().max()), 0.15 * float(quantized(x).abs().max())
            )

    def test_saturating(self):
        quantized, _ = models.eager_static()
        exact, saturating = (
            intact_torch.convert(quantized, mode=mode, max_isa="avx2") for mode in ("exact", "saturating")
        )
        x = models.images(64, 12, seed=3) * 3
        self.assertFalse(torch.equal(exact(x), saturating(x)))
        self.assertTrue(torch.equal(exact(x), intact_torch.convert(quantized)(x)))
        self.assertIn("mode=saturating, max_isa=avx2", repr(saturating))

    def test_shared_modules_stay_shared(self):
        layer = models.eager_static()[0].head[2]
        model = intact_torch.convert(torch.nn.ModuleDict({"a": layer, "b": layer}))
        self.assertIs(model["a"], model["b"])

    def test_a_layer_is_a_model(self):
        layer = models.eager_static()[0].stem[0]
        converted = intact_torch.convert(layer)
        self.assertIsInstance(converted, intact_torch.Conv)
        self.assertEqual(intact_torch.conversion(converted).swapped, [("", "ConvReLU2d")])

    def test_refused(self):
        scripted = torch.jit.script(models.eager_static()[0])
        with self.assertRaisesRegex(TypeError, "model is a ScriptModule; expected the model before"):
            intact_torch.convert(scripted)
        with self.assertRaisesRegex(ValueError, "dynamic is 'column'"):
            intact_torch.convert(torch.nn.Identity(), dynamic="column")
        with self.assertRaisesRegex(RuntimeError, "intact: mode is 'fast'"):
            intact_torch.convert(torch.nn.Identity(), mode="fast")
        with self.assertRaisesRegex(RuntimeError, "intact: max_isa is 'sse'"):
            intact_torch.convert(torch.nn.Identity(), max_isa="sse")
        with self.assertRaisesRegex(TypeError, "model is a dict; expected a torch.nn.Module"):
            intact_torch.convert({})
        with self.assertRaisesRegex(TypeError, "model is a Identity without a report"):
            intact_torch.conversion(torch.nn.Identity())

    def test_inputs_of_dynamic_layers(self):
        layer = intact_torch.convert(models.eager_dynamic()).qkv
        x = torch.randn(3, 32).half()
        self.assertTrue(torch.equal(layer(x), layer(x.float()).half()))
        with self.assertRaisesRegex(RuntimeError, "intact: qkv: input is Long on cpu"):
            layer(torch.ones(3, 32, dtype=torch.int64))

    def test_converted_twice(self):
        for make in (lambda: models.eager_static()[0], models.fx_static):
            once = intact_torch.convert(make())
            twice = intact_torch.convert(once, mode="saturating", max_isa="avx2")
            report = intact_torch.conversion(twice)
            self.assertEqual(report.swapped, [])
            self.assertEqual(
                {name for name, _, reason in report.left if "intact's already" in reason},
                {name for name, _ in intact_torch.conversion(once).swapped},
            )
            fused = intact_torch.convert(once, fuse_residual=True)
            self.assertEqual(len(intact_torch.conversion(fused).fused), 1)
            x = models.images(4, 12 if "stem" in dir(once) else 6)
            self.assertTrue(torch.equal(fused(x), intact_torch.convert(make(), fuse_residual=True)(x)))

    def test_scripted_parts_are_reported(self):
        scripted = torch.jit.script(models.eager_static()[0])
        report = intact_torch.conversion(intact_torch.convert(torch.nn.Sequential(scripted)))
        self.assertEqual(
            report.left,
            [("0", "RecursiveScriptModule", "it is scripted; expected the module before scripting")],
        )

    def test_calls_of_another_form_are_left(self):
        torch.backends.quantized.engine = "onednn"
        ops, reason = torch.ops.quantized, "its arguments are not as torch.ao.quantization gives them"
        x = torch.randn(3, 4)
        for call, left in (
            (lambda q, w: ops.linear(q, w, 0.1, 9), []),
            (
                lambda q, w: ops.linear(q, w, Y_scale_i=0.1, Y_zero_point_i=9),
                [("linear", "quantized.linear", reason)],
            ),
            (
                lambda q, w: ops.linear(q, W_prepack=w, Y_scale_i=0.1, Y_zero_point_i=9),
                [("linear", "quantized.linear", reason)],
            ),
            (lambda q, w: ops.linear(ops.add(q, q, scale=0.1, zero_point=9), w, 0.1, 9), []),
            (
                lambda q, w: ops.linear(ops.add(qa=q, qb=q, scale=0.1, zero_point=9), w, 0.1, 9),
                [("add", "quantized.add", reason)],
            ),
        ):
            model = torch.fx.symbolic_trace(models.Calls(call))
            converted = intact_torch.convert(model, fuse_residual=True, **models.as_onednn())
            self.assertEqual(intact_torch.conversion(converted).left, left)
            self.assertLessEqual(float((converted(x) - model(x)).abs().max()), 0.101)

    def test_what_the_engine_does_not_unpack_is_reported(self):
        self.addCleanup(setattr, torch.backends.quantized, "engine", "onednn")
        torch.backends.quantized.engine = "qnnpack"
        model = torch.fx.symbolic_trace(
            models.Calls(
                lambda q, w: torch.ops.quantized.conv3d(q, w, 0.1, 9),
                torch.ops.quantized.conv3d_prepack,
                (8, 4, 1, 1, 1),
            )
        )
        report = intact_torch.conversion(intact_torch.convert(model, inplace=True))
        self.assertEqual(
            report.left, [("conv3d", "quantized.conv3d", "QNNPACK only supports conv2d_unpack right now.")]
        )

    def test_what_users_set_is_kept(self):
        quantized, _ = models.eager_static()
        seen = []
        quantized.head[2].register_forward_hook(lambda module, args, output: seen.append(output.shape))
        theirs = [
            (layer.in_features, layer.out_features)
            for layer in quantized.head
            if hasattr(layer, "in_features")
        ]
        names = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups")
        geometry = [getattr(quantized.block.conv2, name) for name in names]
        converted = intact_torch.convert(quantized, inplace=True)
        self.assertIs(converted, quantized)
        converted(models.images(3, 12))
        self.assertEqual(seen, [(3, 10)])
        self.assertEqual(
            [
                (layer.in_features, layer.out_features)
                for layer in converted.head
                if hasattr(layer, "in_features")
            ],
            theirs,
        )
        self.assertEqual([getattr(converted.block.conv2, name) for name in names], geometry)
        up = torch.nn.quantized.ConvTranspose2d(6, 10, (3, 2), stride=2, groups=2)
        ours = intact_torch.convert(up)
        self.assertEqual([getattr(ours, name) for name in names], [getattr(up, name) for name in names])

    def test_residuals_that_broadcast(self):
        quantized = models.fx_static(make=models.Gate)
        fused = intact_torch.convert(quantized, fuse_residual=True, **models.as_onednn())
        self.assertEqual(intact_torch.conversion(fused).fused, [("wide", "with add_1")])
        x = models.images(5)
        self.assertLess(float((fused(x) - quantized(x)).abs().max()), 0.02 * float(quantized(x).abs().max()))

    def test_residuals_that_are_larger(self):
        class Wide(models.Gate):
            def forward(self, x):
                return self.narrow(self.pool(x)) + torch.relu(x)

        quantized = models.fx_static(make=Wide)
        fused = intact_torch.convert(quantized, fuse_residual=True)
        self.assertEqual(len(intact_torch.conversion(fused).fused), 1)
        x = models.images(5)
        self.assertTrue(torch.equal(fused(x), intact_torch.convert(quantized)(x)))
        loaded = copy.deepcopy(fused)
        loaded.narrow.conv_scale, loaded.narrow.conv_zero_point = 1.0, 0
        loaded.load_state_dict(fused.state_dict())
        self.assertTrue(torch.equal(loaded(x), fused(x)))
        for layer in intact_torch.compare(fused, None, x).layers:
            self.assertEqual((layer.kind, layer.category, layer.implementation.differing), ("conv2d", "", 0))

    def test_fused_layers_have_a_state_of_their_own(self):
        quantized = models.fx_static(make=models.Gate)
        fused = intact_torch.convert(quantized, fuse_residual=True)
        fused.load_state_dict(fused.state_dict())
        # otherwise it would load the convolution's for the sum's
        with self.assertRaisesRegex(KeyError, "wide.sum_scale"):
            fused.load_state_dict(quantized.state_dict())

    def test_float_layers_are_reported(self):
        report = intact_torch.conversion(intact_torch.convert(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3))))
        self.assertEqual(report.left, [("0", "Conv2d", "PyTorch did not quantize it")])


class Documented(unittest.TestCase):
    def test_the_readmes_program_runs(self):
        readme = (pathlib.Path(__file__).resolve().parents[1] / "README.md").read_text()
        program = next(
            code
            for code in re.findall("```python\n(.*?)```", readme, re.DOTALL)
            if code.startswith("import torch\n")
        )
        printed = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program], check=True, capture_output=True, text=True
        ).stdout
        self.assertIn("swapped 4, fused 0, left 0", printed)
        self.assertNotIn("data-", printed)
        errors = [line for line in printed.splitlines() if "error" in line]
        if models.clamps("onednn"):  # then compare() may report errors of the engine only
            errors = [line for line in errors if "the engine against" not in line]
        self.assertEqual(errors, [])


class Surviving(unittest.TestCase):
    """For each way in which PyTorch quantizes: the converted model, copied, saved and scripted, computes equal outputs."""

    def setUp(self):
        dynamic = intact_torch.convert(models.eager_dynamic(), dynamic="row")
        self.models = [
            (intact_torch.convert(models.eager_static()[0]), models.images(3, 12)),
            (
                intact_torch.convert(models.eager_static()[0], mode="saturating", max_isa="avx2"),
                models.images(3, 12) * 3,
            ),
            (intact_torch.convert(models.eager_static()[0], fuse_residual=True), models.images(3, 12)),
            (intact_torch.convert(models.fx_static()), models.images(3)),
            (dynamic, torch.randn(5, 2, 32)),
        ]

    def check(self, change):
        for model, x in self.models:
            with torch.no_grad():
                self.assertTrue(torch.equal(change(model, x)(x), model(x)), type(model).__name__)

    def test_copies(self):
        self.check(lambda model, x: copy.deepcopy(model))

    def test_copies_know_what_was_converted(self):
        for make in (lambda: models.eager_static()[0], models.fx_static, models.eager_dynamic):
            converted = intact_torch.convert(make())
            for copied in (copy.deepcopy(converted), copy.deepcopy(copy.deepcopy(converted))):
                self.assertEqual(intact_torch.conversion(copied), intact_torch.conversion(converted))

    def test_saved(self):
        for model, _ in self.models:
            if hasattr(model, "reflected"):
                model.reflected = torch.nn.Identity()  # PyTorch's own quantized modules cannot be saved
        self.models[-1][0].rnn = torch.nn.LSTM(32, 8)
        self.check(lambda model, x: saved_and_loaded(model))

    def test_scripted(self):
        self.check(lambda model, x: torch.jit.script(model))

    def test_traced(self):
        self.check(lambda model, x: models.quiet(torch.jit.trace, model, x))

    def test_scripted_and_saved(self):
        def change(model, x):
            stream = io.BytesIO()
            torch.jit.save(torch.jit.script(model), stream)
            stream.seek(0)
            return torch.jit.load(stream)

        self.check(change)

    def test_state_dicts(self):
        def change(model, x):
            state = saved_and_loaded(model.state_dict())
            other = copy.deepcopy(model)
            for module in other.modules():
                if hasattr(module, "params"):  # others, to be overwritten
                    weight = module.weight()
                    integers = torch.zeros_like(weight.int_repr())
                    module.set_weight_bias(torch._make_per_tensor_quantized_tensor(integers, 1.0, 0), None)
            other.load_state_dict(state)
            return other

        self.check(change)

    def test_state_dicts_are_pytorchs(self):
        for quantized, x in (
            (models.eager_static()[0], models.images(3, 12)),
            (models.eager_dynamic(), torch.randn(5, 2, 32)),
        ):
            converted = intact_torch.convert(quantized)
            self.assertEqual(set(converted.state_dict()), set(quantized.state_dict()))
            other = intact_torch.convert(quantized)
            other.load_state_dict(quantized.state_dict())
            self.assertTrue(torch.equal(other(x), converted(x)))
            back = copy.deepcopy(quantized)
            back.load_state_dict(converted.state_dict())
            self.assertTrue(torch.equal(back(x), quantized(x)))

    def test_pytorchs_state_of_calls_is_loaded(self):
        quantized, x = models.fx_static(), models.images(3)
        converted = intact_torch.convert(quantized)
        packed = {key for key in quantized.state_dict() if "_packed_weight" in key}
        self.assertGreater(len(packed), 1)
        self.assertEqual(packed - set(converted.state_dict()), set())
        for model in (intact_torch.convert(quantized), copy.deepcopy(converted)):
            for key in packed:  # others, to be overwritten
                zeros = torch.zeros_like(getattr(model, key).weight().int_repr())
                setattr(
                    model,
                    key,
                    getattr(model, key).with_weights(
                        torch._make_per_tensor_quantized_tensor(zeros, 1.0, 0), None
                    ),
                )
            self.assertFalse(torch.equal(model(x), converted(x)))
            self.assertEqual(
                str(model.load_state_dict(quantized.state_dict())), "<All keys matched successfully>"
            )
            self.assertTrue(torch.equal(model(x), converted(x)))
            model.load_state_dict(converted.state_dict())
            self.assertTrue(torch.equal(model(x), converted(x)))

    def test_cpp(self):
        model, _ = self.models[0]
        x = (torch.arange(2 * 3 * 12 * 10, dtype=torch.float32) / 720).reshape(2, 3, 12, 10)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pt")
            torch.jit.script(model).save(path)
            printed = subprocess.run(
                [os.environ["INTACT_RUN_SCRIPTED"], path, "2", "3", "12", "10"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        values = torch.tensor([float(line) for line in printed.split()])
        self.assertTrue(torch.equal(values, model(x).flatten()))


if __name__ == "__main__":
    unittest.main()
