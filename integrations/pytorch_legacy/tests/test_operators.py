"""Compares the operators with the contract, byte by byte, and with PyTorch's engines."""

import ctypes
import itertools
import os
import re
import subprocess
import sys
import textwrap
import threading
import unittest

import intact_torch
import layers
import models
import torch
from intact_torch import reference

INTACT = torch.ops.intact

# Shapes of inputs, shapes of weights in PyTorch's order, and the geometry.
CONVOLUTIONS = {
    "1d": ([2, 6, 19], [10, 6, 3], dict(stride=2, padding=1)),
    "2d": ([2, 16, 11, 9], [24, 16, 3, 3], dict(padding=1)),
    "2d 1x1": ([3, 32, 7, 7], [16, 32, 1, 1], {}),
    "2d strided": ([1, 3, 23, 20], [17, 3, 5, 3], dict(stride=(2, 1), padding=(2, 0), dilation=(1, 2))),
    "2d grouped": ([2, 24, 9, 8], [36, 8, 3, 3], dict(groups=3, padding=1)),
    "2d depthwise": ([2, 20, 9, 10], [20, 1, 3, 3], dict(groups=20, padding=1, stride=2)),
    "3d": ([2, 5, 6, 7, 8], [9, 5, 3, 2, 3], dict(stride=(1, 2, 1), padding=(1, 0, 1))),
    "transposed 1d": ([2, 6, 9], [6, 10, 4], dict(stride=2, padding=1, transposed=True)),
    "transposed 2d": (
        [2, 8, 6, 5],
        [8, 12, 3, 3],
        dict(stride=2, padding=1, output_padding=1, transposed=True),
    ),
    "transposed 2d grouped": ([1, 8, 6, 5], [8, 3, 3, 2], dict(stride=2, groups=4, transposed=True)),
    "transposed 3d": (
        [1, 4, 3, 4, 5],
        [4, 6, 2, 3, 2],
        dict(stride=(1, 2, 2), padding=(0, 1, 0), transposed=True),
    ),
}
# The convolutions that PyTorch's engines offer; transposed ones per tensor only.
ALL = ["fbgemm", "onednn", "qnnpack"]
ENGINES = {
    "1d": ALL,
    "2d": ALL,
    "2d 1x1": ALL,
    "2d strided": ALL,
    "2d grouped": ALL,
    "2d depthwise": ALL,
    "3d": ALL,
    "transposed 1d": ALL,
    "transposed 2d": ["fbgemm", "qnnpack"],
    "transposed 3d": ["fbgemm", "onednn"],
}


def draw(name, dtype=torch.quint8, per_channel=True, zero_points=False, with_bias=True, seed=1, **options):
    """Input and params of a convolution of the list."""
    input_shape, weight_shape, geometry = CONVOLUTIONS[name]
    g = torch.Generator().manual_seed(seed)
    input = layers.activations(input_shape, dtype, g)
    weight = layers.weights(weight_shape, per_channel, 1 if geometry.get("transposed") else 0, zero_points, g)
    outputs = weight_shape[1] * geometry.get("groups", 1) if geometry.get("transposed") else weight_shape[0]
    bias = torch.randn(outputs, generator=g) if with_bias else None
    return input, layers.conv(weight, bias, **geometry, **options)


def output_scale(input, params):
    """A scale that uses the output's range: few outputs are clamped."""
    sums = reference.accumulators(input, params).to(torch.float64)
    scales, _ = reference.weight_quantization(params.weight(), reference.output_channels(params))
    return float((sums * reference.channelwise(scales, params)).abs().max()) * input.q_scale() / 140


class ByteByByte(unittest.TestCase):
    def assert_same(self, output, expected):
        self.assertEqual(output.shape, expected.shape)
        self.assertEqual(int((output.int_repr() != expected).sum()), 0)
        self.assertGreater(expected.unique().numel(), 20)  # outputs differ from each other

    def test_convolutions_are_the_contract(self):
        for name, dtype, per_channel, relu in itertools.product(
            CONVOLUTIONS, (torch.quint8, torch.qint8), (True, False), (True, False)
        ):
            with self.subTest(name=name, dtype=dtype, per_channel=per_channel, relu=relu):
                input, params = draw(name, dtype, per_channel, with_bias=per_channel or relu)
                scale, zero_point = output_scale(input, params), 3 if dtype == torch.quint8 else -7
                op = INTACT.conv_relu if relu else INTACT.conv
                output = op(input, params, scale, zero_point)
                self.assertEqual(
                    (output.q_scale(), output.q_zero_point(), output.dtype), (scale, zero_point, dtype)
                )
                self.assert_same(output, reference.output(input, params, scale, zero_point, relu))

    def test_zero_points_of_weights(self):
        for name, per_channel in itertools.product(
            ("2d", "2d depthwise", "transposed 2d grouped"), (True, False)
        ):
            with self.subTest(name=name, per_channel=per_channel):
                input, params = draw(name, per_channel=per_channel, zero_points=True)
                scale = output_scale(input, params)
                self.assert_same(
                    INTACT.conv(input, params, scale, 128), reference.output(input, params, scale, 128)
                )

    def test_residuals(self):
        for name, relu in itertools.product(
            ("1d", "2d", "2d depthwise", "3d", "transposed 2d"), (True, False)
        ):
            for dtype in (torch.quint8, torch.qint8):
                with self.subTest(name=name, relu=relu, dtype=dtype):
                    input, params = draw(name)
                    scale = output_scale(input, params)
                    shape = reference.accumulators(input, params).shape
                    residual = layers.activations(shape, dtype, torch.Generator().manual_seed(2), scale * 0.7)
                    op = INTACT.conv_add_relu if relu else INTACT.conv_add
                    self.assert_same(
                        op(input, residual, params, scale, 100),
                        reference.output(input, params, scale, 100, relu, residual),
                    )

    def test_residuals_broadcast(self):
        for name, shape in (
            ("1d", [1, 10, 1]),
            ("2d", [2, 24, 1, 1]),
            ("2d", [24, 1, 1]),
            ("3d", [1, 9, 1, 1, 1]),
        ):
            with self.subTest(name=name, shape=shape):
                input, params = draw(name)
                scale = output_scale(input, params)
                residual = layers.activations(
                    shape, torch.quint8, torch.Generator().manual_seed(2), scale * 0.7
                )
                self.assert_same(
                    INTACT.conv_add(input, residual, params, scale, 100),
                    reference.output(input, params, scale, 100, False, residual),
                )

    def test_linear_is_the_contract(self):
        g = torch.Generator().manual_seed(1)
        for shape, dtype, relu, zero_points in itertools.product(
            ([1, 48], [7, 48], [2, 3, 5, 48], [130, 48]),
            (torch.quint8, torch.qint8),
            (True, False),
            (True, False),
        ):
            with self.subTest(shape=shape, dtype=dtype, relu=relu, zero_points=zero_points):
                input = layers.activations(shape, dtype, g)
                params = layers.linear(
                    layers.weights([33, 48], zero_points=zero_points, generator=g), torch.randn(33)
                )
                scale = output_scale(input, params)
                op = INTACT.linear_relu if relu else INTACT.linear
                expected = reference.output(input, params, scale, -5 if dtype == torch.qint8 else 9, relu)
                output = op(input, params, scale, -5 if dtype == torch.qint8 else 9)
                self.assertEqual(int((output.int_repr() != expected).sum()), 0)

    def test_dynamic_linear_is_the_contract(self):
        g = torch.Generator().manual_seed(1)
        params = layers.linear(layers.weights([33, 48], generator=g), torch.randn(33, generator=g))
        for shape, per_row, relu in itertools.product(
            ([1, 48], [2, 5, 48], [130, 48]), (True, False), (True, False)
        ):
            with self.subTest(shape=shape, per_row=per_row, relu=relu):
                input = torch.randn(shape, generator=g) * torch.rand(shape[:-1] + [1], generator=g)
                output = INTACT.linear_dynamic(input, params, per_row, relu)
                self.assertTrue(torch.equal(output, reference.dynamic_output(input, params, per_row, relu)))

    def test_every_isa_gives_the_same_bytes(self):
        isas = [
            isa
            for isa in ("portable", "avx2", "avx_vnni", "avx512", "avx512_vnni", "amx_int8")
            if intact_torch.isa_available(isa)
        ]
        self.assertIn("portable", isas)
        for name in CONVOLUTIONS:
            outputs = {}
            for isa in isas:
                input, params = draw(name, max_isa=isa)
                outputs[isa] = INTACT.conv(input, params, 0.4, 110).int_repr()
            for isa in isas:
                self.assertTrue(torch.equal(outputs[isa], outputs["portable"]), f"{name} on {isa}")


class AgainstPyTorch(unittest.TestCase):
    """Asserts that few outputs differ, by one: both round float32, but in different orders."""

    def tearDown(self):
        torch.backends.quantized.engine = "onednn"

    def check(self, ours, theirs):
        difference = (ours.int_repr().to(torch.int32) - theirs.int_repr().to(torch.int32)).abs()
        self.assertLessEqual(int(difference.max()), 1)
        self.assertLessEqual(int((difference > 0).sum()), 1 + difference.numel() // 500)

    def engines(self, names):
        """The engines of `names`, each with the options under which intact computes what it does."""
        return [
            (name, models.as_engine(name))
            for name in names
            if name in torch.backends.quantized.supported_engines
            and (not models.clamps(name) or intact_torch.isa_available("avx2"))
        ]

    def test_convolutions(self):
        for name, names in ENGINES.items():
            for (engine, options), relu in itertools.product(self.engines(names), (True, False)):
                with self.subTest(name=name, engine=engine, relu=relu):
                    if engine == "onednn" and "transposed" in name and not models.onednn_transposes():
                        self.skipTest(
                            f"torch {torch.__version__} permutes the weights of onednn's transposed convolutions"
                        )
                    torch.backends.quantized.engine = engine
                    input, params = draw(name, per_channel="transposed" not in name, **options)
                    if params.transposed() and relu:
                        continue  # PyTorch has no such operator
                    scale, dims = output_scale(input, params), params.weight().dim() - 2
                    kind = f"conv{'_transpose' if params.transposed() else ''}{dims}d"
                    padding = [params.output_padding()] if params.transposed() else []
                    packed = getattr(torch.ops.quantized, kind + "_prepack")(
                        params.weight(),
                        params.bias(),
                        params.stride(),
                        params.padding(),
                        *padding,
                        params.dilation(),
                        params.groups(),
                    )
                    theirs = getattr(torch.ops.quantized, kind + ("_relu" if relu else ""))
                    self.check(
                        (INTACT.conv_relu if relu else INTACT.conv)(input, params, scale, 60),
                        theirs(input, packed, scale, 60),
                    )

    def test_linear(self):
        for engine, options in self.engines(ALL):
            with self.subTest(engine=engine):
                torch.backends.quantized.engine = engine
                g = torch.Generator().manual_seed(1)
                input = layers.activations([31, 64], generator=g)
                params = layers.linear(
                    layers.weights([40, 64], generator=g), torch.randn(40, generator=g), **options
                )
                packed = torch.ops.quantized.linear_prepack(params.weight(), params.bias())
                scale = output_scale(input, params)
                self.check(
                    INTACT.linear_relu(input, params, scale, 60),
                    torch.ops.quantized.linear_relu(input, packed, scale, 60),
                )


class Quantizing(unittest.TestCase):
    def test_bytes_are_pytorchs(self):
        g = torch.Generator().manual_seed(1)
        ties = torch.arange(-600, 600) * 0.25
        special = torch.tensor(
            [float("nan"), float("inf"), -float("inf"), -1e30, 1e30, -0.0, 0.0, 1e16, 3.0e-45]
        )
        for x in (
            torch.randn(100003, generator=g) * 3,
            ties,
            special,
            torch.randn(2, 3, 9, 7, generator=g),
            torch.randn(2, 3, 9, 7, generator=g).contiguous(memory_format=torch.channels_last),
            torch.randn(6, 9, generator=g).t(),
            torch.empty(0, 4),
        ):
            for dtype, zero_points in ((torch.quint8, (0, 117, 255)), (torch.qint8, (-128, 3, 127))):
                for scale, zero_point in itertools.product((0.5, 0.0173, 1.0), zero_points):
                    ours = INTACT.quantize(x, scale, zero_point, dtype)
                    theirs = torch.quantize_per_tensor(x, scale, zero_point, dtype)
                    self.assertTrue(torch.equal(ours.int_repr(), theirs.int_repr()))
                    self.assertEqual(
                        (ours.q_scale(), ours.q_zero_point(), ours.dtype, ours.stride()),
                        (theirs.q_scale(), theirs.q_zero_point(), theirs.dtype, theirs.stride()),
                    )

    def test_refused(self):
        for words, x, scale, zero_point, dtype in (
            ("dtype is QInt32; expected quint8 or qint8", torch.zeros(3), 1.0, 0, torch.qint32),
            (
                "input is Double on cpu, Strided; expected Float",
                torch.zeros(3).double(),
                1.0,
                0,
                torch.quint8,
            ),
            (
                "input is Float on cpu, Sparse; expected Float on cpu, Strided",
                torch.eye(3).to_sparse(),
                1.0,
                0,
                torch.quint8,
            ),
            ("input is QUInt8 on cpu", layers.activations([3]), 1.0, 0, torch.quint8),
            (
                "scale is nan; expected a finite float32 above 0",
                torch.zeros(3),
                float("nan"),
                0,
                torch.quint8,
            ),
            (
                "zero_point is 256; expected 0 to 255, values of QUInt8",
                torch.zeros(3),
                1.0,
                256,
                torch.quint8,
            ),
            ("zero_point is 4294967296; expected -128 to 127", torch.zeros(3), 1.0, 2**32, torch.qint8),
        ):
            with self.assertRaisesRegex(RuntimeError, "intact: quantize: " + words):
                INTACT.quantize(x, scale, zero_point, dtype)


class Adding(unittest.TestCase):
    def setUp(self):
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)  # on more, PyTorch rounds the ends of shares otherwise

    def assert_pytorchs(self, a, b, scale, zero_point):
        for ours, theirs in (
            (INTACT.add, torch.ops.quantized.add),
            (INTACT.add_relu, torch.ops.quantized.add_relu),
        ):
            x, y = ours(a, b, scale, zero_point), theirs(a, b, scale, zero_point)
            self.assertTrue(torch.equal(x.int_repr(), y.int_repr()))
            self.assertEqual(
                (x.q_scale(), x.q_zero_point(), x.dtype, x.stride()),
                (y.q_scale(), y.q_zero_point(), y.dtype, y.stride()),
            )

    def test_bytes_are_pytorchs(self):
        g = torch.Generator().manual_seed(1)
        for trial in range(200):
            low, dtype, values = ((0, torch.quint8, torch.uint8), (-128, torch.qint8, torch.int8))[trial % 2]
            count = int(torch.randint(1, 999, [], generator=g))
            scales = torch.exp(torch.rand(3, generator=g) * 7 - 6).tolist()
            zero_points = torch.randint(low, low + 256, [3], generator=g).tolist()
            a, b = (
                torch._make_per_tensor_quantized_tensor(
                    torch.randint(low, low + 256, [count], generator=g).to(values), scales[i], zero_points[i]
                )
                for i in (0, 1)
            )
            self.assertEqual(a.dtype, dtype)
            self.assert_pytorchs(a, b, scales[2], zero_points[2])

    def test_layouts(self):
        a, b = layers.activations([2, 16, 9, 7]), layers.activations([2, 16, 9, 7], scale=0.05)
        last = torch.channels_last
        for x, y in (
            (a.contiguous(memory_format=last), b.contiguous(memory_format=last)),
            (a.contiguous(memory_format=last), b),
            (a, b[:, :1]),
            (a[:, :, 1:], b[:, :, 1:]),
        ):
            self.assert_pytorchs(x, y, 0.1, 90)

    def test_layouts_without_a_name(self):
        """NWC, the layout of Conv1d's outputs, and other permutations: PyTorch's loop over them rounds differently."""
        g = torch.Generator().manual_seed(1)
        values = torch.arange(256, dtype=torch.uint8)
        pairs = [values.repeat_interleave(256), values.repeat(256)]
        for trial in range(60):
            scales = torch.exp(torch.rand(2, generator=g) * 3 - 4).tolist()
            zero_points = torch.randint(0, 256, [3], generator=g).tolist()
            shape, order = (((1, 1024, 64), (0, 2, 1)), ((4, 16, 16, 64), (0, 3, 2, 1)))[trial % 2]
            a, b = (
                torch._make_per_tensor_quantized_tensor(pair.reshape(shape), scale, zero_point).permute(order)
                for pair, scale, zero_point in zip(pairs, scales, zero_points)
            )
            self.assert_pytorchs(a, b, 0.9 * sum(scales), zero_points[2])

    def test_refused(self):
        a = layers.activations([3])
        for words, b, scale, zero_point in (
            ("intact: add: b is Float; expected a quantized tensor", torch.zeros(3), 1.0, 0),
            ("intact: add: scale is 0; expected a finite float32 above 0", a, 0.0, 0),
            ("intact: add: zero_point is -1; expected 0 to 255", a, 1.0, -1),
            ("Add operands should have same data type", layers.activations([3], torch.qint8), 1.0, 0),
        ):
            with self.assertRaisesRegex(RuntimeError, words):
                INTACT.add(a, b, scale, zero_point)

    def test_threads_do_not_change_bytes(self):
        a, b = layers.activations([1000003]), layers.activations([1000003], scale=0.05)
        one = INTACT.add(a, b, 0.05, 31).int_repr()
        torch.set_num_threads(3)
        self.assertTrue(torch.equal(INTACT.add(a, b, 0.05, 31).int_repr(), one))


class Calls(unittest.TestCase):
    def test_layouts_and_channels_last_throughout(self):
        input, params = draw("2d")
        scale = output_scale(input, params)
        expected = reference.output(input, params, scale, 9)
        wide = layers.activations([2, 16, 11, 14])
        slices = torch.cat([input.int_repr(), wide.int_repr()[:, :, :, :5]], 3)
        sliced = torch._make_per_tensor_quantized_tensor(slices, input.q_scale(), input.q_zero_point())[
            :, :, :, :9
        ]
        self.assertFalse(sliced.is_contiguous())
        for layout in (input.contiguous(), input.contiguous(memory_format=torch.channels_last), sliced):
            output = INTACT.conv(layout, params, scale, 9)
            self.assertTrue(output.is_contiguous(memory_format=torch.channels_last))
            self.assertTrue(torch.equal(output.int_repr(), expected))
        input, params = draw("3d")
        self.assertTrue(
            INTACT.conv(input, params, 0.5, 9).is_contiguous(memory_format=torch.channels_last_3d)
        )
        input, params = draw("1d")  # NWC in memory
        self.assertEqual(INTACT.conv(input, params, 0.5, 9).stride(1), 1)

    def test_sizes_change_between_calls(self):
        _, params = draw("2d")
        for n, h, w in ((1, 4, 5), (3, 9, 4), (1, 1, 1), (2, 30, 7), (1, 4, 5)):
            input = layers.activations([n, 16, h, w])
            self.assertTrue(
                torch.equal(
                    INTACT.conv(input, params, 0.5, 9).int_repr(), reference.output(input, params, 0.5, 9)
                ),
                (n, h, w),
            )

    def test_quantizations_change_between_calls(self):
        input, params = draw("2d")
        for scale in (0.1 * i for i in range(1, 25)):  # more than are kept
            other = torch._make_per_tensor_quantized_tensor(input.int_repr(), scale, int(scale * 40))
            for _ in range(2):
                self.assertTrue(
                    torch.equal(
                        INTACT.conv(other, params, scale * 5, 9).int_repr(),
                        reference.output(other, params, scale * 5, 9),
                    ),
                    scale,
                )

    def test_empty_batches(self):
        _, params = draw("2d")
        self.assertEqual(INTACT.conv(layers.activations([0, 16, 8, 9]), params, 0.5, 9).shape, (0, 24, 8, 9))
        params = layers.linear(layers.weights([33, 48]))
        self.assertEqual(INTACT.linear(layers.activations([0, 48]), params, 0.5, 9).shape, (0, 33))
        self.assertEqual(INTACT.linear_dynamic(torch.empty(2, 0, 48), params).shape, (2, 0, 33))

    def test_threads(self):
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        input, params = draw("2d grouped")
        expected = reference.output(input, params, 0.5, 9)
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            self.assertTrue(torch.equal(INTACT.conv(input, params, 0.5, 9).int_repr(), expected))

    def test_threads_are_those_of_pytorch(self):
        program = textwrap.dedent("""
            import layers, torch
            conv, linear = layers.conv(layers.weights([8, 4, 1, 1])), layers.linear(layers.weights([8, 4]))
            for threads in (1, 3):
                torch.set_num_threads(threads)
                layers.INTACT.conv(layers.activations([2, 4, 5, 5]), conv, 1.0, 0)
                layers.INTACT.linear(layers.activations([2, 4]), linear, 1.0, 0)
                layers.INTACT.linear_dynamic(torch.ones(2, 4), linear)
            """)
        log = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "INTACT_VERBOSE": "1"},
            check=True,
            capture_output=True,
            text=True,
        ).stderr
        self.assertEqual(re.findall("intact: run .* threads=([0-9]+)", log), ["1"] * 3 + ["3"] * 3)

    def test_many_threads_call_one_layer(self):
        inputs = [layers.activations([1 + i % 3, 16, 5 + i, 9], scale=0.01 * (1 + i % 4)) for i in range(24)]
        _, params = draw("2d")
        expected = [reference.output(input, params, 0.5, 9) for input in inputs]
        wrong = []

        def work(first):
            for i in range(first, len(inputs) * 4, 4):
                i %= len(inputs)
                if not torch.equal(INTACT.conv(inputs[i], params, 0.5, 9).int_repr(), expected[i]):
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_memory_is_flat(self):
        def kept_kib():
            """Resident memory. Under the address sanitizer it changes by itself, so there the bytes that are allocated."""
            allocated = getattr(ctypes.CDLL(None), "__sanitizer_get_current_allocated_bytes", None)
            if allocated is not None:
                allocated.restype = ctypes.c_size_t
                return allocated() // 1024
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

        g = torch.Generator().manual_seed(1)
        _, conv = draw("2d")
        linear = layers.linear(layers.weights([33, 48]))
        source = layers.activations([2, 16, 40, 40])
        rows = layers.activations([64, 48])

        def call():
            h, w, n, m = (int(torch.randint(1, most, [], generator=g)) for most in (41, 41, 3, 65))
            INTACT.conv(source[:n, :, :h, :w], conv, 0.5, 9)
            INTACT.linear(rows[:m], linear, 0.5, 9)

        for _ in range(2000):
            call()
        before = kept_kib()
        for _ in range(10000):
            call()
        self.assertLess(kept_kib() - before, 4096)


class Errors(unittest.TestCase):
    def assert_error(self, words, call, *args):
        with self.assertRaises(RuntimeError) as raised:
            call(*args)
        self.assertIn(words, str(raised.exception).splitlines()[0])

    def test_calls(self):
        input, conv = draw("2d", layer="features.3")
        linear = layers.linear(layers.weights([33, 48]), layer="classifier")
        say = "intact: features.3: "
        self.assert_error(
            say + "input is Float on cpu; expected quint8", INTACT.conv, input.dequantize(), conv, 1.0, 0
        )
        self.assert_error(
            say + "input has shape [2, 9, 11, 9]; expected 4 dimensions and 16 channels",
            INTACT.conv,
            input[:, :9],
            conv,
            1.0,
            0,
        )
        self.assert_error(say + "output_scale is 0", INTACT.conv, input, conv, 0.0, 0)
        self.assert_error(
            say + "output_zero_point is 256; expected 0 to 255", INTACT.conv, input, conv, 1.0, 256
        )
        for scale, zero_point, words in (
            (0.0, 0, "input's scale is 0; expected a finite float32 above 0"),
            (1.0, 2**32, "input's zero_point is 4294967296; expected 0 to 255"),
        ):
            other = torch._make_per_tensor_quantized_tensor(input.int_repr(), scale, zero_point)
            self.assert_error(say + words, INTACT.conv, other, conv, 1.0, 0)
        self.assert_error(say + "output_scale is inf", INTACT.conv, input, conv, float("inf"), 0)
        self.assert_error(
            say + "residual has shape [2, 24, 11, 8]; expected the output's, [2, 24, 11, 9]",
            INTACT.conv_add,
            input,
            layers.activations([2, 24, 11, 8]),
            conv,
            1.0,
            0,
        )
        self.assert_error(
            say + "residual is Float", INTACT.conv_add, input, torch.zeros(2, 24, 11, 9), conv, 1.0, 0
        )
        self.assert_error(
            "intact: classifier: input has shape [3, 47]; expected a last dimension of 48",
            INTACT.linear,
            layers.activations([3, 47]),
            linear,
            1.0,
            0,
        )
        self.assert_error(
            "intact: classifier: input is QUInt8 on cpu, Strided; expected Float",
            INTACT.linear_dynamic,
            layers.activations([3, 48]),
            linear,
        )
        self.assert_error(
            "intact: classifier: input is Float on cpu, Sparse; expected Float on cpu, Strided",
            INTACT.linear_dynamic,
            torch.eye(48).to_sparse(),
            linear,
        )
        input, conv = draw("2d strided", layer="stem")
        self.assert_error(
            "intact: stem: intact_conv_prepare: kernel[1] is 3", INTACT.conv, input[:, :, :, :2], conv, 1.0, 0
        )

    def test_params(self):
        weight = layers.weights([8, 4, 3, 3])
        self.assert_error("intact: layer: mode is 'fast'", lambda: layers.conv(weight, mode="fast"))
        self.assert_error("intact: layer: max_isa is 'sse'", lambda: layers.conv(weight, max_isa="sse"))
        self.assert_error(
            "intact: layer: stride has 1 values; expected 2", lambda: layers.conv(weight, stride=[1])
        )
        self.assert_error("intact: layer: groups is 3", lambda: layers.conv(weight, groups=3))
        self.assert_error(
            "intact: layer: stride is [1, 0]; expected values above 0",
            lambda: layers.conv(weight, stride=[1, 0]),
        )
        self.assert_error("intact: layer: dilation is [0, 0]", lambda: layers.conv(weight, dilation=0))
        self.assert_error(
            "intact: layer: bias has shape [7]; expected [8]", lambda: layers.conv(weight, torch.zeros(7))
        )
        self.assert_error(
            "intact: layer: bias is Float on meta, Strided; expected Float on cpu",
            lambda: layers.conv(weight, torch.zeros(8, device="meta")),
        )
        integers = torch.zeros([2, 3], dtype=torch.int8)
        self.assert_error(
            "intact: layer: weight's zero_point is 4294967296; expected -128 to 127",
            lambda: layers.linear(torch._make_per_tensor_quantized_tensor(integers, 1.0, 2**32)),
        )
        self.assert_error(
            "intact: layer: weight channel 1's scale is nan",
            lambda: layers.linear(
                torch._make_per_channel_quantized_tensor(
                    integers, torch.tensor([1.0, float("nan")]), torch.zeros(2).long(), 0
                )
            ),
        )
        self.assert_error("intact: layer: weight is Float", lambda: layers.conv(torch.zeros(8, 4, 3, 3)))
        self.assert_error(
            "intact: layer: weight is quantized per channel of axis 1; expected 0",
            lambda: layers.linear(layers.weights([8, 4], axis=1)),
        )
        self.assert_error("intact: layer: weight has shape [8]", lambda: layers.linear(layers.weights([8])))


if __name__ == "__main__":
    unittest.main()
