"""`intact.torch` on small modules made here. Their activations are large, so the stored modules clamp on CPUs without VNNI."""

import copy
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
pytest.importorskip("cffi")
import intact  # noqa: E402

if not os.path.exists(os.path.join(os.path.dirname(intact.__file__), "channel_order.so")):
    pytest.skip("this build has no channel_order.so", allow_module_level=True)
ENGINES = [name for name in ("fbgemm", "onednn") if name in torch.backends.quantized.supported_engines]
if not ENGINES:
    pytest.skip("this build of torch has neither FBGEMM nor oneDNN", allow_module_level=True)
import intact.torch  # noqa: E402
from intact._library import Error  # noqa: E402
from intact._repair import repair as _repair  # noqa: E402
from intact._repair.report import to_json, to_text  # noqa: E402
from intact.torch import _graph, _values  # noqa: E402
from torch import nn  # noqa: E402
from torch.ao import quantization as tq  # noqa: E402
from torch.ao.nn import quantized as nnq  # noqa: E402
from torch.ao.nn.quantized import dynamic as nnqd  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore")]
has_vnni = pytest.mark.skipif(
    not {"avx_vnni", "avx512_vnni"} & set(intact.isas()), reason="the stored module would clamp here"
)


@pytest.fixture(autouse=True)
def one_thread():
    threads, engine = torch.get_num_threads(), torch.backends.quantized.engine
    torch.set_num_threads(1)
    torch.backends.quantized.engine = ENGINES[0]
    yield
    torch.set_num_threads(threads)
    torch.backends.quantized.engine = engine


# ----- modules -----------------------------------------------------------------------------------------------------------


def weights_of(rng, shape, is_safe=False):
    """Integers (O, I, *taps): channels 0 and 1 saturate together, no others do. Each output's largest weight is 127."""
    w = rng.integers(-30, 31, shape)
    if shape[1] == 1:  # depthwise
        w.reshape(shape[0], -1)[:, -1] = 127
        return w
    w[:, -2] = -abs(w[:, -2])
    w[(slice(None), -1) + (0,) * (len(shape) - 2)] = 127
    if not is_safe:
        w[(slice(2, 5), slice(0, 2)) + (0,) * (len(shape) - 2)] = 95
    return w


def bias_of(rng, count):
    """Makes channels 0 and 1 large, so that their pair clamps."""
    bias = rng.uniform(0, 2, count)
    bias[:2] += 10
    return torch.tensor(bias.astype(np.float32))


def qtensor(w, rng):
    scales = torch.tensor(rng.uniform(0.001, 0.004, len(w)))
    points = torch.zeros(len(w), dtype=torch.int64)
    return torch._make_per_channel_quantized_tensor(torch.tensor(w.astype(np.int8)), scales, points, 0)


def conv(rng, i, o, kernel=3, groups=1, is_safe=False, padding=None):
    layer = nnq.Conv2d(i, o, kernel, padding=kernel // 2 if padding is None else padding, groups=groups)
    w = weights_of(rng, (o, i // groups, kernel, kernel), is_safe)
    layer.set_weight_bias(qtensor(w, rng), bias_of(rng, o))
    layer.scale, layer.zero_point = 0.05, 3
    return layer


def linear(rng, i, o, is_safe=False):
    layer = nnq.Linear(i, o)
    layer.set_weight_bias(qtensor(weights_of(rng, (o, i), is_safe), rng), bias_of(rng, o))
    layer.scale, layer.zero_point = 0.05, 3
    return layer


def quantize(scale=0.02, point=10):
    return nnq.Quantize(scale, point, torch.quint8)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(1)
        self.body = nn.Sequential(
            quantize(),
            linear(rng, 16, 32, True),
            nn.ReLU(),
            linear(rng, 32, 24),
            linear(rng, 24, 10),
            nnq.DeQuantize(),
        )

    def forward(self, x):
        return self.body(x)


class Residual(nn.Module):
    """A residual, a depthwise convolution, ReLU, pooling, a concatenation."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(2)
        self.q, self.first, self.second = quantize(), conv(rng, 4, 16, is_safe=True), conv(rng, 16, 16)
        self.add = nnq.QFunctional()
        self.add.scale, self.add.zero_point = 0.05, 0
        self.pool, self.deep, self.relu = nn.MaxPool2d(2), conv(rng, 16, 16, groups=16), nn.ReLU()
        self.third, self.mean, self.last = conv(rng, 16, 12, 1), nn.AdaptiveAvgPool2d(1), linear(rng, 28, 10)
        self.d = nnq.DeQuantize()

    def forward(self, x):
        x = self.first(self.q(x))
        x = self.relu(self.deep(self.pool(self.add.add_relu(x, self.second(x)))))
        x = self.mean(torch.cat([self.third(x), x], 1))
        return self.d(self.last(torch.flatten(x, 1)))


class Dynamic(nn.Module):
    """Quantizes activations in each run. `version` 3, as of old files: to 8 bits."""

    def __init__(self, version=3):
        super().__init__()
        rng = np.random.default_rng(3)
        self.first, self.second = nnqd.Linear(16, 32), nnqd.Linear(32, 10)
        for layer in (self.first, self.second):
            w = qtensor(weights_of(rng, (layer.out_features, layer.in_features), layer is self.first), rng)
            layer.set_weight_bias(w, bias_of(rng, len(w)))
            layer.version = version

    def forward(self, x):
        return self.second(torch.nn.functional.gelu(self.first(x)))


class Float(nn.Module):
    """A network in float, whose weights become those of weights_of() when they are quantized."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.deep = (
            nn.Conv2d(4, 16, 3),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.Conv2d(16, 16, 3, groups=16),
        )
        self.up, self.last = nn.Linear(16, 32), nn.Linear(32, 10)
        rng = np.random.default_rng(4)
        for name, layer in self.named_children():
            w = weights_of(rng, tuple(layer.weight.shape), name == "first")
            layer.weight.data = torch.tensor(w * 0.004, dtype=torch.float32)
            layer.bias.data = bias_of(rng, len(w))

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = nn.functional.max_pool2d(torch.relu(x + self.second(x)), 2)
        x = torch.relu(self.deep(x)).mean([2, 3])
        return self.last(torch.relu(self.up(x)))


def images(seed=0):
    return torch.tensor(np.random.default_rng(seed).uniform(0, 4.5, (8, 4, 8, 8)), dtype=torch.float32)


def rows(*shape):
    return torch.tensor(np.random.default_rng(0).uniform(0, 4.5, shape), dtype=torch.float32)


def by_fx():
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    config = tq.QConfig(
        activation=tq.MinMaxObserver.with_args(dtype=torch.quint8),
        weight=tq.default_per_channel_weight_observer,
    )
    prepared = prepare_fx(Float().eval(), tq.QConfigMapping().set_global(config), (images(),))
    prepared(images(1))
    return convert_fx(prepared)


def by_pt2e(reduce_range=False):
    pytest.importorskip("torchao", reason="PT2E's quantizers are in torchao")
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer().set_global(
        x86.get_default_x86_inductor_quantization_config(reduce_range=reduce_range)
    )
    prepared = quantize_pt2e.prepare_pt2e(
        torch.export.export(Float().eval(), (images(),)).module(), quantizer
    )
    prepared(images(1))
    return torch.export.export(quantize_pt2e.convert_pt2e(prepared), (images(),))


MODULES = {
    "mlp": (Mlp, rows(64, 16)),
    "mlp, batches of lines": (Mlp, rows(4, 8, 16)),
    "residual": (Residual, images()),
    "dynamic": (Dynamic, rows(64, 16)),
    "fx": (by_fx, images()),
}


def run(module, *inputs):
    """The outputs of a module, in NumPy."""
    with torch.no_grad():
        outputs = (module if isinstance(module, nn.Module) else module.module())(*inputs)
    return [one.numpy() for one in (outputs if isinstance(outputs, tuple) else [outputs])]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b))


def made(make, engine):
    torch.backends.quantized.engine = engine  # weights are packed for it
    return make()


# ----- tests -------------------------------------------------------------------------------------------------------------


@has_vnni
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODULES)
def test_a_repaired_module_is_proven_and_computes_the_same(name, engine):
    make, x = MODULES[name]
    module = made(make, engine)
    stored = run(module, x)
    repaired, done = intact.torch.repair(module)
    assert any(layer.unsafe for layer in done.layers) and done.orders
    assert done.is_proven and intact.torch.audit(repaired).is_proven, to_text(done)
    assert same(stored, run(repaired, x))
    assert same(stored, run(module, x)) and not intact.torch.audit(module).is_proven  # it is not changed
    again, done = intact.torch.repair(module, (x,))
    assert done.is_proven and same(stored, run(again, x))
    assert to_json(done)["proven"]


@has_vnni
def test_an_order_on_one_side_alone_shows():
    module = made(Mlp, ENGINES[0])
    repaired, _ = intact.torch.repair(module)
    moved = [
        k
        for k in (1, 3, 4)
        if not torch.equal(module.body[k].weight().int_repr(), repaired.body[k].weight().int_repr())
    ]
    assert moved
    for k in moved:
        one_sided, _ = intact.torch.repair(module)
        one_sided.body[k].set_weight_bias(*module.body[k]._weight_bias())
        assert not same(run(module, rows(64, 16)), run(one_sided, rows(64, 16))), k


def test_a_layer_that_is_not_written_back_is_found(monkeypatch):
    written = _values.Packed.set
    left = []

    def fails_once(self, *values):
        if left:
            written(self, *values)
        left.append(self)

    monkeypatch.setattr(_values.Packed, "set", fails_once)
    with pytest.raises(Error, match="does not hold the repaired constants"):
        intact.torch.repair(Mlp())


def test_programs():
    program = by_pt2e()
    repaired, done = intact.torch.repair(program)
    assert done.engines == ["onednn"] and done.orders and any(layer.unsafe for layer in done.layers)
    assert (
        done.is_proven
        and intact.torch.audit(repaired).is_proven
        and not intact.torch.audit(program).is_proven
    )
    stored, new = run(program, images()), run(repaired, images())
    # By itself the program runs in float: sums are added in another order, which moves some roundings by a step.
    assert abs(stored[0] - new[0]).max() < 0.02 * abs(stored[0]).max()
    module, done = intact.torch.repair(program.module())
    assert done.is_proven and same(new, run(module, images()))
    assert {"aten.conv2d", "aten.linear"} == {layer.operator for layer in done.layers}


def test_7_bit_activations_are_proven():
    assert intact.torch.audit(Dynamic(version=4)).is_proven
    assert not intact.torch.audit(Dynamic(version=3)).is_proven
    assert intact.torch.audit(by_pt2e(reduce_range=True)).is_proven


class Steps(nn.Module):
    """Layers in a row, then what `then` does with the result."""

    def __init__(self, layers, then=None):
        super().__init__()
        self.layers, self.then = nn.ModuleList(layers), then

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.then(self, x) if self.then else x


@has_vnni
def test_what_is_not_known_keeps_its_order():
    rng = np.random.default_rng(0)
    module = Steps(
        [quantize(), linear(rng, 16, 32, True)], lambda self, x: self.last(torch.flip(x, [1])).dequantize()
    )
    module.last = linear(rng, 32, 10)
    for example, reason in (None, "axes are not known"), ((rows(8, 16),), "the operator torch.flip"):
        repaired, done = intact.torch.repair(module, example)
        assert [layer.how for layer in done.layers] == ["stored order", "left"] and reason in done.layers[
            1
        ].reason
        assert same(run(module, rows(8, 16)), run(repaired, rows(8, 16)))


@has_vnni
def test_outputs_keep_their_order():
    rng = np.random.default_rng(0)
    module = Steps(
        [quantize(), linear(rng, 16, 32, True)], lambda self, x: (x.dequantize(), self.last(x).dequantize())
    )
    module.last = linear(rng, 32, 10)
    repaired, done = intact.torch.repair(module)
    assert done.layers[1].how == "left" and "output" in done.layers[1].reason
    assert same(run(module, rows(8, 16)), run(repaired, rows(8, 16)))


@has_vnni
def test_a_layer_that_runs_twice_has_one_order():
    rng = np.random.default_rng(0)
    module = Steps(
        [quantize(), linear(rng, 16, 32, True)],
        lambda self, x: self.last(self.twice(self.twice(x))).dequantize(),
    )
    module.twice, module.last = linear(rng, 32, 32), linear(rng, 32, 10)
    repaired, done = intact.torch.repair(module)
    assert done.is_proven and done.orders == 1
    assert same(run(module, rows(8, 16)), run(repaired, rows(8, 16)))


@has_vnni
def test_an_odd_number_of_channels_gets_a_zero_channel():
    rng = np.random.default_rng(0)
    module = Steps([quantize(), conv(rng, 4, 15, is_safe=True), conv(rng, 15, 12), nnq.DeQuantize()])
    repaired, done = intact.torch.repair(module)
    assert (
        done.copied_channels == 1 and repaired.layers[1].out_channels == 16 == repaired.layers[2].in_channels
    )
    assert same(run(module, images()), run(repaired, images()))
    repaired, done = intact.torch.repair(module, keep_channels=True)
    assert not done.copied_channels and done.layers[1].how == "left"


# ----- shortened weights ---------------------------------------------------------------------------------------------------


def heavy(layer, rng, outputs=(1, 2, 5)):
    """Gives a layer pairs with a small excess, and in these outputs with an excess so large that halving changes less."""
    w, bias = layer._weight_bias()
    values = w.int_repr().numpy().copy()
    by_tap = np.moveaxis(values, 1, -1).reshape(len(values), -1)
    by_tap[::2, :2] = (67, 65)
    by_tap[list(outputs), :2] = (100, 120)
    values[:] = np.moveaxis(by_tap.reshape(np.moveaxis(values, 1, -1).shape), -1, 1)
    layer.set_weight_bias(qtensor(values, rng), bias)
    return layer


def by_hand(weights, scales, can_halve=True):
    """Weights (O, I, *taps) in which no pair can saturate, and their scales: changed pair by pair, or halved if that changes
    less."""
    stored = np.moveaxis(weights, 1, -1).astype(int)
    rows = stored.reshape(len(stored), -1)
    found, scales = rows.copy(), scales.copy()
    for o, row in enumerate(rows):
        for k in range(0, len(row) - 1, 2):
            excess = max(abs(row[k] + row[k + 1]) - 128, 0) if row[k] * row[k + 1] > 0 else 0
            first = abs(row[k]) >= abs(row[k + 1])
            found[o, k] -= np.sign(row[k]) * (excess // 2 + excess % 2 * first)
            found[o, k + 1] -= np.sign(row[k + 1]) * (excess // 2 + excess % 2 * (not first))
        if can_halve and np.count_nonzero(row % 2) < np.square(found[o] - row).sum():
            found[o] = np.rint(row / 2)
            scales[o] *= 2
    return np.moveaxis(found.reshape(stored.shape), -1, 1).astype(np.int8), scales


def values_of(layer):
    w = layer.weight()
    return w.int_repr().numpy(), w.q_per_channel_scales().numpy()


def with_weights(layer, weights, scales):
    layer.set_weight_bias(
        torch._make_per_channel_quantized_tensor(
            torch.tensor(weights), torch.tensor(scales), torch.zeros(len(scales), dtype=torch.int64), 0
        ),
        layer.bias(),
    )


def dense(module):
    """The module with dense convolutions instead of grouped ones: FBGEMM's depthwise convolutions clamp on every CPU."""
    module = copy.deepcopy(module)
    for layer in module.modules():
        if isinstance(layer, nnq.Conv2d) and layer.groups > 1:
            weights, scales = values_of(layer)
            inputs, outputs = weights.shape[1], len(weights) // layer.groups
            full = np.zeros((len(weights), inputs * layer.groups, *weights.shape[2:]), np.int8)
            for o, row in enumerate(weights):
                full[o, o // outputs * inputs :][:inputs] = row
            layer.groups = 1
            with_weights(layer, full, scales)
    return module


LAYERS = {
    "linear": lambda rng: linear(rng, 16, 12),
    "conv": lambda rng: conv(rng, 4, 12),
    "groups": lambda rng: conv(rng, 4, 8, groups=2),
    "depthwise": lambda rng: conv(rng, 4, 8, groups=4),
    "deep": lambda rng: conv(rng, 8, 8, groups=8),
}


@has_vnni
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", LAYERS)
def test_shortened_weights_are_those_made_by_hand(kind, engine):
    rng = np.random.default_rng(5)
    module = made(lambda: Steps([quantize(), heavy(LAYERS[kind](rng), rng), nnq.DeQuantize()]), engine)
    x = rows(*{"linear": (32, 16), "deep": (2, 8, 8, 8)}.get(kind, (2, 4, 8, 8)))
    stored = run(module, x)
    hand = copy.deepcopy(module)
    weights, scales = by_hand(*values_of(hand.layers[1]))
    with_weights(hand.layers[1], weights, scales)
    repaired, done = intact.torch.repair(module, engines=[engine], max_noise=0.5)
    (layer,) = done.layers
    if not layer.unsafe:  # oneDNN multiplies few channels of a group exactly
        assert engine == "onednn" and kind not in ("linear", "conv") and same(stored, run(repaired, x))
        return
    assert layer.how == "shortened weights" and layer.shortened and 0 < layer.noise <= 0.5, to_text(done)
    assert layer.halved == np.count_nonzero(scales != values_of(module.layers[1])[1]) > 0
    assert done.is_proven and intact.torch.audit(repaired, engines=[engine]).is_proven
    assert all(map(np.array_equal, values_of(repaired.layers[1]), (weights, scales)))
    assert same(run(repaired, x), run(dense(hand), x)) and not same(stored, run(repaired, x))
    assert same(stored, run(module, x))
    (left,) = intact.torch.repair(module, engines=[engine], max_noise=layer.noise * 0.999)[1].layers
    assert left.how == "left" and "shortened weights would have a noise" in left.reason


@has_vnni
@pytest.mark.parametrize("engine", ENGINES)
def test_an_order_and_shortened_weights(engine):
    """The order of the hidden channels shows in the first layer, whose own channels keep theirs."""
    rng = np.random.default_rng(6)

    def make():
        second = linear(rng, 32, 24)
        weights, scales = values_of(second)
        # which of these are beside each other does not matter: ten pairs with an excess of 12
        weights[:4, :20] = 70
        with_weights(second, weights, scales)
        return Steps([quantize(), linear(rng, 16, 32, True), second, nnq.DeQuantize()])

    module = made(make, engine)
    repaired, done = intact.torch.repair(module, engines=[engine], max_noise=5, keep_channels=True)
    assert [layer.how for layer in done.layers] == ["stored order", "shortened weights"] and done.orders == 1
    assert done.is_proven and intact.torch.audit(repaired).is_proven
    first, moved = (values_of(one.layers[1])[0] for one in (module, repaired))
    source = [int(np.flatnonzero((first == row).all(axis=1))[0]) for row in moved]
    assert sorted(source) == list(range(32)) != source
    weights, scales = values_of(module.layers[2])
    found, found_scales = by_hand(weights[:, source], scales)
    hand = copy.deepcopy(module)
    with_weights(hand.layers[2], found[:, np.argsort(source)], found_scales)
    assert same(run(hand, rows(64, 16)), run(repaired, rows(64, 16)))
    assert not same(run(module, rows(64, 16)), run(repaired, rows(64, 16)))


@has_vnni
def test_random_modules_with_shortened_weights():
    shortened = halved = 0
    for seed in range(12):
        module = made(lambda: Random(seed), ENGINES[0])
        repaired, done = intact.torch.repair(module, engines=ENGINES, max_noise=0.6)
        assert same(
            run(repaired, images()), run(dense(repaired) if done.is_proven else repaired, images())
        ), seed
        for layer in done.layers:
            assert layer.noise <= 0.6 and (layer.how == "left") == bool(layer.left)
        shortened += sum(layer.shortened for layer in done.layers)
        halved += sum(layer.halved for layer in done.layers)
    assert shortened and halved


class Shared(nn.Module):
    """One constant that two operators read: of all 8 bits of activations, and of 7."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(7)
        self.packed = torch.ops.quantized.linear_prepack(
            qtensor(weights_of(rng, (16, 16)), rng), bias_of(rng, 16)
        )

    def forward(self, x):
        return torch.ops.quantized.linear_dynamic(
            torch.ops.quantized.linear_dynamic(x, self.packed, True), self.packed, False
        )


@has_vnni
def test_operators_share_shortened_weights():
    module = Shared()
    repaired, done = intact.torch.repair(module, max_noise=1e4)
    assert done.is_proven and [layer.unsafe > 0 for layer in done.layers] == [False, True]
    assert [layer.how for layer in done.layers] == ["shortened weights"] * 2 and not any(
        layer.halved for layer in done.layers
    )
    before, after = (
        torch.ops.quantized.linear_unpack(one.packed)[0].int_repr().numpy() for one in (module, repaired)
    )
    assert np.array_equal(by_hand(before, np.ones(16), can_halve=False)[0], after)
    assert not same(run(module, rows(8, 16)), run(repaired, rows(8, 16)))


@has_vnni
def test_no_module_gets_a_gather():
    rng = np.random.default_rng(0)
    module = Steps(
        [quantize(), conv(rng, 4, 16, is_safe=True)],
        lambda self, x: self.last(torch.flip(x, [1])).dequantize(),
    )
    module.last = conv(rng, 16, 12)
    translation = _graph.translate(module, (images(),))
    _, done = _repair.repair(translation.proto, engines=ENGINES)
    assert [layer.how for layer in done.layers] == ["stored order", "gathered order"]
    repaired, done = intact.torch.repair(module, (images(),))
    assert [layer.how for layer in done.layers] == ["stored order", "left"]
    assert same(run(module, images()), run(repaired, images()))
    repaired, done = intact.torch.repair(module, (images(),), max_noise=0.6)
    assert [layer.how for layer in done.layers] == ["stored order", "shortened weights"] and done.is_proven


IN_EMULATOR = """
import sys, numpy, torch
torch.set_num_threads(1)
for engine in sys.argv[2].split(","):
    torch.backends.quantized.engine = engine
    for name in sys.argv[3].split(","):
        module = torch.jit.load(f"{sys.argv[1]}/{name}")
        with torch.no_grad():
            outputs = module(torch.tensor(numpy.load(f"{sys.argv[1]}/{name}.in.npy")))
        numpy.save(f"{sys.argv[1]}/{name}.{engine}.npy", outputs.numpy())
"""


@has_vnni
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="needs qemu-user")
def test_without_vnni(tmp_path):
    """On an emulated Haswell stored modules clamp, and repaired modules compute the results of a CPU with VNNI."""
    rng = np.random.default_rng(5)
    modules = [(made(MODULES[name][0], ENGINES[0]), MODULES[name][1], 0) for name in ("residual", "dynamic")]
    if ENGINES[0] == "fbgemm":  # oneDNN multiplies few channels of a group exactly
        modules += [
            (Steps([quantize(), heavy(LAYERS["deep"](rng), rng), nnq.DeQuantize()]), rows(2, 8, 8, 8), 0.5)
        ]
    expected = {}
    for k, (module, x, max_noise) in enumerate(modules):
        for kind, one in (
            ("stored", module),
            ("repaired", intact.torch.repair(module, max_noise=max_noise)[0]),
        ):
            torch.jit.trace(one, (x,)).save(str(tmp_path / f"{k}{kind}"))
            np.save(tmp_path / f"{k}{kind}.in.npy", x.numpy())
            expected[f"{k}{kind}"] = run(dense(one if max_noise else module), x)[0]
    emulator = ["qemu-x86_64", "-cpu", "Haswell", sys.executable, "-c", IN_EMULATOR]
    process = subprocess.run(
        [*emulator, str(tmp_path), ",".join(ENGINES), ",".join(expected)], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-2000:]
    for name, exact in expected.items():
        got = np.load(tmp_path / f"{name}.{ENGINES[0]}.npy")
        assert np.array_equal(got, exact) == name.endswith("repaired"), name
    for k in range(len(modules)):
        for engine in ENGINES:
            stored, repaired = (
                np.load(tmp_path / f"{k}{kind}.{engine}.npy") for kind in ("stored", "repaired")
            )
            assert not np.array_equal(stored, repaired), (k, engine)


class Random(nn.Module):
    """Random convolutions, sums, concatenations, slices and more."""

    def __init__(self, seed):
        super().__init__()
        rng = np.random.default_rng(seed)
        self.q, self.layers, self.plan = quantize(), nn.ModuleList(), []
        channels = [4]
        for _ in range(rng.integers(5, 10)):
            kind = rng.choice(
                ["conv", "conv", "conv", "groups", "deep", "relu", "pool", "add", "cat", "slice", "chunk"]
            )
            at = int(rng.integers(max(0, len(channels) - 3), len(channels)))
            width = channels[at]
            other = [k for k, n in enumerate(channels) if n == width and k != at]
            if (
                kind == "add"
                and not other
                or kind == "chunk"
                and width % 2
                or kind == "slice"
                and width < 6
                or (kind == "groups" and width % 4)
            ):
                kind = "conv"
            argument = int(rng.choice(other) if kind == "add" else rng.integers(len(channels)))
            outputs = {
                "conv": int(rng.choice([8, 12, 16, 17])),
                "groups": 16,
                "cat": width + channels[argument],
                "slice": width - 4,
                "chunk": width // 2,
            }.get(kind, width)
            if kind in ("conv", "groups", "deep"):
                groups = {"conv": 1, "groups": 2, "deep": width}[kind]
                if groups == 1 and width == 1:
                    continue
                self.layers.append(conv(rng, width, outputs, int(rng.choice([1, 3])), groups))
                argument = len(self.layers) - 1
            self.plan.append((kind, at, argument))
            channels.append(outputs)
        self.last = linear(rng, channels[-1], 10)

    def forward(self, x):
        found = [self.q(x)]
        for kind, at, argument in self.plan:
            x = found[at]
            if kind in ("conv", "groups", "deep"):
                x = self.layers[argument](x)
            elif kind == "add":
                x = torch.ops.quantized.add(x, found[argument], 0.1, 5)
            elif kind == "cat":
                x = torch.cat([x, found[argument]], 1)
            elif kind == "chunk":
                x = torch.chunk(x, 2, 1)[1]
            elif kind == "pool":
                x = nn.functional.max_pool2d(x, 3, 1, 1)
            else:
                x = torch.relu(x) if kind == "relu" else x[:, 2:-2]
            found.append(x)
        return self.last(torch.flatten(nn.functional.adaptive_avg_pool2d(found[-1], 1), 1)).dequantize()


@has_vnni
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_modules_compute_the_same(first):
    orders = 0
    for seed in range(first, first + 20):
        module = made(lambda: Random(seed), ENGINES[0])
        repaired, done = intact.torch.repair(module)
        orders += done.orders
        assert same(run(module, images()), run(repaired, images())), seed
    assert orders


@pytest.mark.parametrize(
    "module, inputs, message",
    [
        (lambda: 3, None, "is a int; expected a torch.nn.Module"),
        (lambda: torch.jit.trace(nn.ReLU(), (rows(2),)), None, "ScriptModule; expected a torch.nn.Module"),
        (lambda: Steps([], lambda self, x: x if x.sum() > 0 else -x), None, "torch.fx does not trace it"),
        (Mlp, (rows(3, 5),), "does not run on example_inputs"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(module, inputs, message):
    with pytest.raises(Error) as caught:
        intact.torch.repair(module(), inputs)
    assert message in caught.value.message and "\n" not in caught.value.message


def test_other_engines_are_refused():
    with pytest.raises(Error, match="engines: is 'litert'; expected fbgemm or onednn"):
        intact.torch.repair(Mlp(), engines=["litert"])
    assert intact.torch.audit(Mlp(), engines=["litert"]).is_proven


def test_products_that_are_not_read_are_not_proven():
    module = nn.Sequential(quantize(), nnq.ConvTranspose2d(4, 4, 3), nnq.DeQuantize())
    audited = intact.torch.audit(module)
    assert not audited.is_proven and audited.model.passed_over == {"ConvTranspose2d of torch": 1}


def test_intact_does_not_import_torch():
    code = "import sys, intact; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 0
