"""Products with weights in groups from Python, against NumPy."""

import numpy as np
import pytest

import intact


def weights_of(b_type, k, n, group, scale_type=np.float16, has_points=False, seed=3):
    rng, groups = np.random.default_rng(seed), -(-k // group)
    row = -(-k // 2) if b_type == "u4" else k
    b = rng.integers(0, 256, (n, row), dtype=np.uint8)
    scales = rng.uniform(0.01, 1, (n, groups)).astype(scale_type)
    highest = 16 if b_type == "u4" else 256
    points = rng.integers(0, highest, (n, groups), dtype=np.uint8) if has_points else None
    return intact.GroupedWeights(b.view(np.int8) if b_type == "s8" else b, b_type, k, group, scales, points)


def defined(a, a_scales, weights):
    """The definition in grouped.h for s8 activations with a scale for each group. A float64 holds a product exactly."""
    groups, b, f = weights.scales.shape[1], weights.integers().astype(np.int64), np.zeros((len(a), weights.n), np.float32)
    for g in range(groups):
        depths = slice(g * weights.group, (g + 1) * weights.group)
        acc = (a[:, depths].astype(np.int64) @ b[:, depths].T).astype(np.float64)
        scale = a_scales[:, g, None] * weights.scales[:, g].astype(np.float32)
        f = (acc * scale.astype(np.float64) + f).astype(np.float32)
    return f


def quantized(x, group):
    a, scales = np.empty(x.shape, np.int8), np.empty((len(x), -(-x.shape[1] // group)), np.float32)
    for g in range(scales.shape[1]):
        part = x[:, g * group:(g + 1) * group]
        scales[:, g] = np.abs(part).max(1) / np.float32(127)
        a[:, g * group:(g + 1) * group] = np.rint(part / scales[:, g, None])
    return a, scales


@pytest.mark.parametrize("isa", intact.isas())
@pytest.mark.parametrize("b_type,k,group,has_points", [("u4", 192, 32, False), ("u4", 301, 128, True), ("s8", 320, 64, False), ("u8", 100, 16, True)])
def test_definition(isa, b_type, k, group, has_points):
    weights = weights_of(b_type, k, 37, group, np.float32 if has_points else np.float16, has_points)
    x = np.random.default_rng(4).standard_normal((5, k)).astype(np.float32)
    a, scales = quantized(x, group)
    expected = defined(a, scales, weights)
    assert np.array_equal(intact.Grouped(weights, max_isa=isa).run(x), expected)
    given = intact.Grouped(weights, a_source_type=None, max_isa=isa)
    assert np.array_equal(given.run(a, a_scales=scales), expected)
    assert np.array_equal(np.concatenate([given.run(a[i:i + 1], a_scales=scales[i:i + 1]) for i in range(5)]), expected)
    assert given.info.isa in intact.isas() and given.info.packed_bytes >= len(weights.b) * k // 2


def test_rows_bias_and_activation():
    weights = weights_of("u4", 64, 8, 32)
    weights.bias = np.linspace(-5, 5, 8).astype(np.float32)
    a = np.random.default_rng(5).integers(-128, 128, (3, 64), dtype=np.int8)
    scales = np.array([[0.5], [2], [1]], np.float32)
    plan = intact.Grouped(weights, a_source_type=None, granularity="rows", activation="relu")
    f = defined(a, np.ones((3, 2), np.float32), weights) * scales + weights.bias
    assert np.array_equal(plan.run(a, a_scales=scales), np.maximum(f, 0))
    wide = np.zeros((3, 100), np.int8)
    wide[:, :64] = a
    assert np.array_equal(plan.run(wide[:, :64], a_scales=scales), np.maximum(f, 0))


@pytest.mark.parametrize("change,message", [
    ({"b": np.zeros((4, 31), np.uint8)}, "weights.b: has rows of 31 bytes; expected 32 or more"),
    ({"b": np.zeros((4, 32), np.int8)}, "weights.b: has shape (4, 32) and dtype int8; expected (4, 32) and uint8"),
    ({"scales": np.zeros((4, 3), np.float16)}, "weights.scales: has shape (4, 3) and dtype float16; expected (4, 2) and float32 or float16"),
    ({"zero_points": np.zeros((2, 4), np.uint8)}, "weights.zero_points: has shape (2, 4) and dtype uint8; expected (4, 2) and uint8"),
    ({"b_type": "u2"}, "weights.b_type: is 'u2'; expected 's8', 'u8', 'u4'"),
])
def test_refused_weights(change, message):
    weights = weights_of("u4", 64, 4, 32)
    for name, value in change.items():
        setattr(weights, name, value)
    with pytest.raises(intact.Error) as error:
        intact.Grouped(weights)
    assert error.value.message == message


def test_refused_runs():
    plan, given = (intact.Grouped(weights_of("u4", 64, 4, 32), a_source_type=source) for source in ("f32", None))
    x, a = np.ones((2, 64), np.float32), np.ones((2, 64), np.int8)
    for run, message in ((lambda: plan.run(x[:, :63]), "a: has 63 columns; expected 64"),
                         (lambda: plan.run(a), "a: has dtype int8; expected float32"),
                         (lambda: plan.run(x, a_scales=np.ones((2, 2), np.float32)), "a_scales: is given; the plan has a_source_type"),
                         (lambda: given.run(a, a_scales=np.ones((2, 1), np.float32)), "expected a dense array of (2, 2)")):
        with pytest.raises(intact.Error) as error:
            run()
        assert message in error.value.message
