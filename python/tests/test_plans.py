"""Products and convolutions from Python, against NumPy."""

import inspect
import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import intact
import numpy as np
import pytest


def random(shape, dtype, seed=0):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape, dtype=dtype)


def requantized(sums, scales, bias, zero_point, dtype):
    f = sums.astype(np.float32) * np.float32(scales) + np.float32(bias)
    info = np.iinfo(dtype)
    return np.clip(np.rint(f) + zero_point, info.min, info.max).astype(dtype)


@pytest.mark.parametrize("a_type,b_dtype", list(itertools.product(["u8", "s8"], [np.uint8, np.int8])))
@pytest.mark.parametrize("isa", intact.isas())
def test_sums(a_type, b_dtype, isa):
    a = random((5, 37), np.uint8 if a_type == "u8" else np.int8)
    b = random((37, 19), b_dtype, 1)
    gemm = intact.Gemm(b, a_type=a_type, max_isa=isa)
    c = gemm.run(a)
    assert c.dtype == np.int32
    assert np.array_equal(c, a.astype(np.int32) @ b.astype(np.int32))
    assert gemm.info.isa == isa or isa not in ("portable", "avx2")


def test_strides_are_not_copied():
    b = random((19, 37), np.int8).T  # N×K weights
    whole = random((12, 80), np.uint8)
    a = whole[::2, 3:40]
    assert not a.flags.c_contiguous
    out = np.full((6, 40), -1, np.int32)
    view = out[:, 5:24]
    assert intact.Gemm(b).run(a, view) is view
    assert np.array_equal(view, a.astype(np.int32) @ b.astype(np.int32))
    assert (out[:, :5] == -1).all() and (out[:, 24:] == -1).all()


@pytest.mark.parametrize(
    "b",
    [
        random((1, 5), np.int8),
        random((5, 1), np.int8),
        random((1, 1), np.int8),
        random((8, 6), np.int8)[::2, ::3],
        random((8, 6), np.int8)[::-1],
        np.broadcast_to(np.arange(7, dtype=np.int8), (9, 7)),
        np.broadcast_to(np.arange(7, dtype=np.int8)[:, None], (7, 3)),
    ],
)
def test_any_weights(b):
    a = random((3, b.shape[0]), np.uint8)
    assert np.array_equal(intact.Gemm(b).run(a), a.astype(np.int32) @ b.astype(np.int32))


def test_float16_outputs_are_numpys():
    a, b = random((9, 32), np.uint8), random((32, 40), np.int8)
    scales = np.ldexp(np.float32(1.1), np.arange(-36, 4))  # from subnormal numbers to infinity
    c = intact.Gemm(b, c_type="f16", scales=scales).run(a)
    with np.errstate(over="ignore"):
        expected = ((a.astype(np.int32) @ b.astype(np.int32)).astype(np.float32) * scales).astype(np.float16)
    assert c.dtype == np.float16 and np.array_equal(c.view(np.uint16), expected.view(np.uint16))
    assert np.isinf(c).any() and ((c != 0) & (abs(c) < 2.0**-14)).any()


def test_requantization_of_batches_with_a_residual():
    a, b = random((3, 4, 32), np.uint8), random((32, 16), np.int8)
    scales, bias = np.linspace(0.001, 0.01, 16, dtype=np.float32), np.arange(16) * 0.3
    residual = random((3, 4, 16), np.uint8, 2)
    gemm = intact.Gemm(
        b,
        c_type="u8",
        scales=scales,
        bias=bias,
        a_zero_point=7,
        b_zero_points=[2],
        c_zero_point=9,
        residual_type="u8",
        residual_scale=0.5,
        residual_zero_point=100,
    )
    sums = (a.astype(np.int32) - 7) @ (b.astype(np.int32) - 2)
    f = sums.astype(np.float32) * scales + bias.astype(np.float32)
    f = f + (residual.astype(np.float32) - 100) * np.float32(0.5)
    expected = np.clip(np.rint(f) + 9, 0, 255).astype(np.uint8)
    assert np.array_equal(gemm.run(a, residual=residual), expected)


@pytest.mark.parametrize("rule", ["half_away", "half_up"])
def test_fixed_point(rule):
    a, b = random((9, 32), np.uint8), random((32, 16), np.int8)
    multipliers, shifts = np.arange(16) * 12345 + (1 << 30), np.arange(16) % 3 - 9
    sums = a.astype(np.int64) @ b.astype(np.int64)
    high = (sums * multipliers + (1 << 30)) >> 31
    halves = (1 << -shifts) >> 1
    shifted = (high + halves - ((high < 0) if rule == "half_away" else 0)) >> -shifts
    gemm = intact.Gemm(
        b, c_type="s8", fixed_point=rule, multipliers=multipliers, shifts=shifts, c_zero_point=3
    )
    assert np.array_equal(gemm.run(a), np.clip(shifted + 3, -128, 127).astype(np.int8))
    with pytest.raises(intact.Error, match="multipliers: has 16 values; expected 1"):
        intact.Gemm(b, c_type="s8", fixed_point=rule, multipliers=multipliers, shifts=-7)


def test_sums_that_leave_int32_wrap_or_are_refused():
    a, b = np.full((2, 2), 255, np.uint8), np.ones((2, 3), np.int8)
    bias = np.array([2147483647, 0, 2147483138])
    with pytest.raises(
        intact.Error, match=r"bias_s32\[0\] is 2147483647, and the products of column 0 of b reach 510"
    ):
        intact.Gemm(b, bias=bias)
    gemm = intact.Gemm(b, bias=bias, overflow="wraps")
    assert gemm.info.accumulator_max == 2147484157
    assert np.array_equal(gemm.run(a), [[-2147483139, 510, -2147483648]] * 2)
    weights = np.ones((3, 1, 1, 2), np.int8)
    conv = intact.Conv(weights, bias=bias, overflow="wraps")
    assert np.array_equal(conv.run(a.reshape(1, 2, 1, 2)).reshape(2, 3), gemm.run(a))
    with pytest.raises(intact.Error, match="overflow: is 'clamps'; expected 'refused', 'wraps'"):
        intact.Gemm(b, overflow="clamps")


def test_scales_of_pruned_channels():
    a, b = random((9, 32), np.uint8), random((32, 2), np.int8)
    bias = np.array([0.5, -3.0], np.float32)
    assert np.array_equal(
        intact.Gemm(b, scales=[0.0, 1.0], bias=bias).run(a)[:, 0], np.full(9, 0.5, np.float32)
    )
    assert np.array_equal(
        intact.Gemm(b, scales=0, c_type="u8", c_zero_point=7).run(a), np.full((9, 2), 7, np.uint8)
    )
    conv = intact.Conv(b.T.reshape(2, 1, 1, 32), scales=[0, 0.25], bias=bias)
    assert np.array_equal(conv.run(a.reshape(1, 9, 1, 32))[..., 0].ravel(), np.full(9, 0.5, np.float32))
    with pytest.raises(intact.Error, match=r"scales\[1\] is -1e-30; expected a finite value of at least 0"):
        intact.Gemm(b, scales=[1.0, -1e-30])


def test_lookup_table():
    a, b = random((9, 32), np.uint8), random((32, 16), np.int8)
    table = np.random.default_rng(1).permutation(256).astype(np.uint8).view(np.int8)
    plain, mapped = (intact.Gemm(b, c_type="s8", scales=0.003, lookup_table=t).run(a) for t in (None, table))
    assert np.array_equal(mapped, table[plain.astype(int) + 128])
    with pytest.raises(intact.Error, match=r"lookup_table: has shape \(255,\)"):
        intact.Gemm(b, c_type="s8", scales=0.003, lookup_table=table[1:])


def test_quantization_of_rows():
    a, b = random((6, 32), np.uint8), random((32, 8), np.int8)
    scales, points = np.linspace(0.5, 1, 6, dtype=np.float32), np.arange(6, dtype=np.int32)
    gemm = intact.Gemm(b, scales=1.0, quantization="rows")
    sums = (a.astype(np.int32) - points[:, None]) @ b.astype(np.int32)
    assert np.array_equal(
        gemm.run(a, a_scales=scales, a_zero_points=points), sums.astype(np.float32) * scales[:, None]
    )


def test_quantization_of_the_tensor():
    a, b = random((6, 32), np.uint8), random((32, 8), np.int8)
    gemm = intact.Gemm(b, scales=0.25, quantization="tensor")
    sums = (a.astype(np.int32) - 9) @ b.astype(np.int32)
    assert np.array_equal(
        gemm.run(a, a_scales=0.5, a_zero_points=9), sums.astype(np.float32) * np.float32(0.125)
    )
    a, w = random((2, 7, 8, 5), np.uint8), random((12, 3, 3, 5), np.int8)
    conv = intact.Conv(w, padding=1, quantization="tensor")
    centered = convolved(a.astype(np.int32) - 77, w, 1, ((1, 1), (1, 1)), 1, 1)
    assert np.array_equal(conv.run(a, a_zero_points=np.array([77], np.int32)), centered)
    assert not np.array_equal(conv.run(a), centered)


@pytest.mark.parametrize("isa", intact.isas())
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_convolutions_quantize_their_input(groups, isa):
    x, w = (
        np.random.default_rng(0).normal(size=(2, 9, 10, 6)).astype(np.float32),
        random((12, 3, 3, 6 // groups), np.int8),
    )
    low, high = min(np.float32(0), x.min()), max(np.float32(0), x.max())
    scale = (high - low) / np.float32(255)
    zero_point = int(np.clip(np.rint(np.float32(0) - low / scale), 0, 255))
    a = np.clip(np.rint(x / scale) + zero_point, 0, 255).astype(np.int32)
    sums = convolved(a - zero_point, w, 1, ((1, 1), (1, 1)), 1, groups)
    conv = intact.Conv(w, padding=1, groups=groups, scales=0.01, quantization="dynamic_tensor", max_isa=isa)
    assert conv.a_dtype == np.float32
    assert np.array_equal(conv.run(x), sums.astype(np.float32) * (scale * np.float32(0.01)))
    x[1, 2, 3, 4] = np.nan
    assert np.isnan(conv.run(x)).all()


def test_dynamic_quantization_reads_floats():
    a = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    b = random((64, 8), np.int8)
    c = intact.Gemm(b, scales=0.01, quantization="dynamic_rows").run(a)
    exact = a @ (b * np.float32(0.01))
    assert c.dtype == np.float32 and np.abs(c - exact).max() < 0.05 * np.abs(exact).max()


def test_no_rows():
    gemm = intact.Gemm(random((8, 4), np.int8))
    assert gemm.run(np.empty((0, 8), np.uint8)).shape == (0, 4)
    assert gemm.run(np.empty((3, 0, 8), np.uint8)).shape == (3, 0, 4)
    assert gemm.run(np.empty((0, 3, 8), np.uint8)).shape == (0, 3, 4)
    with pytest.raises(intact.Error, match="out: has shape"):
        gemm.run(np.empty((0, 8), np.uint8), np.empty((1, 4), np.int32))
    conv = intact.Conv(np.ones((4, 3, 3, 2), np.int8))
    assert conv.run(np.empty((0, 5, 6, 2), np.uint8)).shape == (0, 3, 4, 4)
    with pytest.raises(intact.Error, match="the padded input"):
        conv.run(np.empty((0, 2, 6, 2), np.uint8))


def test_certificate_and_failing_pairs():
    b = np.zeros((6, 3), np.int8)
    b[2:4, 1] = 127
    gemm = intact.Gemm(b)
    certificate = gemm.certificate()
    assert (certificate.pairs, certificate.failing_pairs, certificate.worst_column) == (9, 1, 1)
    (pair,) = gemm.failing_pairs()
    assert (pair.k, pair.n, pair.w0, pair.w1) == (
        2,
        1,
        127,
        127,
    ) and pair.sum == pair.a0 * 127 + pair.a1 * 127 > 32767
    assert gemm.failing_pairs(first=1) == []
    saturated = intact.Gemm(b, mode="saturating", max_isa="avx2").run(np.full((1, 6), 255, np.uint8))
    assert saturated[0, 1] == (32767 if intact.Gemm(b, max_isa="avx2").info.isa == "avx2" else 64770)


def test_saved_plans_give_the_same_bytes(tmp_path):
    a, b = random((5, 64), np.uint8), random((64, 16), np.int8)
    gemm = intact.Gemm(b, scales=0.003, c_type="s8")
    gemm.save(tmp_path / "plan")
    loaded = intact.Gemm.load(tmp_path / "plan", max_isa="avx2")
    assert (loaded.k, loaded.n) == (64, 16)
    assert np.array_equal(gemm.run(a), loaded.run(a))
    weights = random((4, 3, 3, 2), np.int8)
    conv = intact.Conv(weights, padding=1)
    conv.save(tmp_path / "conv")
    image = random((1, 6, 7, 2), np.uint8)
    assert np.array_equal(intact.Conv.load(tmp_path / "conv").run(image), conv.run(image))
    with pytest.raises(intact.Error, match="conv"):
        intact.Gemm.load(tmp_path / "conv")


def test_tuning_keeps_the_bytes():
    a, b = random((64, 64), np.uint8), random((64, 32), np.int8)
    gemm = intact.Gemm(b)
    before = gemm.run(a)
    assert gemm.tune(64, milliseconds=2).microseconds > 0
    assert np.array_equal(gemm.run(a), before)


def convolved(a, w, stride, padding, dilation, groups):
    """In integers, by the definition: NHWC and O, KH, KW, I/groups."""
    a = np.pad(a.astype(np.int32), ((0, 0), padding[0], padding[1], (0, 0)))
    kh, kw = w.shape[1:3]
    oh = (a.shape[1] - (kh - 1) * dilation - 1) // stride + 1
    ow = (a.shape[2] - (kw - 1) * dilation - 1) // stride + 1
    out = np.zeros((a.shape[0], oh, ow, w.shape[0]), np.int32)
    per_in, per_out = a.shape[3] // groups, w.shape[0] // groups
    for y, x, g in itertools.product(range(kh), range(kw), range(groups)):
        part = a[
            :,
            y * dilation : y * dilation + (oh - 1) * stride + 1 : stride,
            x * dilation : x * dilation + (ow - 1) * stride + 1 : stride,
            g * per_in : (g + 1) * per_in,
        ]
        taps = w[g * per_out : (g + 1) * per_out, y, x].astype(np.int32)
        out[..., g * per_out : (g + 1) * per_out] += part @ taps.T
    return out


@pytest.mark.parametrize("isa", intact.isas())
@pytest.mark.parametrize(
    "stride,padding,dilation,groups", [(1, (1, 1), 1, 1), (2, (0, 1), 1, 2), (1, (2, 2), 2, 6)]
)
def test_convolutions(stride, padding, dilation, groups, isa):
    a, w = random((2, 9, 10, 6), np.uint8), random((12, 3, 3, 6 // groups), np.int8)
    conv = intact.Conv(
        w, stride=stride, padding=[padding, padding], dilation=dilation, groups=groups, max_isa=isa
    )
    expected = convolved(a, w, stride, (padding, padding), dilation, groups)
    assert np.array_equal(conv.run(a), expected)
    wide = np.zeros((2, 9, 10, 11), np.uint8)
    wide[..., 2:8] = a
    assert np.array_equal(conv.run(wide[..., 2:8]), expected)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, None, None, :],
        lambda x: x[None, :, None, :],
        lambda x: x[None, None, :, :],
        lambda x: np.stack([x] * 3)[None][:, :, 0:1],
    ],
)
def test_pixels_of_dimensions_of_one(view):
    a, w = view(random((5, 4), np.uint8)), random((3, 1, 1, 4), np.int8)
    expected = a.astype(np.int32) @ w.reshape(3, 4).T.astype(np.int32)
    assert np.array_equal(intact.Conv(w).run(a), expected)


def test_bound_calls_keep_rows(tmp_path):
    a, b = random((4, 16), np.uint8), random((16, 8), np.int8)
    scales = np.ones(4, np.float32)
    call = intact.Gemm(b, scales=1.0, quantization="rows").bind(a, a_scales=scales)
    first = call().copy()
    scales[:] = 2
    assert np.array_equal(call(), 2 * first)


def test_transposed_convolution_has_its_shape():
    conv = intact.Conv(random((5, 2, 2, 3), np.int8), stride=2, transposed=True)
    assert conv.run(random((1, 4, 4, 3), np.uint8)).shape == (1, 8, 8, 5)


def test_pairings_differ():
    w = np.full((1, 1, 2, 1), 127, np.int8)
    conv = intact.Conv(w)
    assert conv.certificate().failing_pairs == 0
    assert conv.certificate("flattened").failing_pairs == 1
    (pair,) = conv.failing_pairs("flattened")
    assert pair.tap[:2] == (0, 0) and pair.sum > 32767


def test_saturating_pairs_cross_taps_if_asked():
    w, a = np.full((1, 1, 2, 1), 127, np.int8), np.full((1, 1, 2, 1), 255, np.uint8)
    is_avx2 = intact.Conv(w, max_isa="avx2").info.isa == "avx2"
    for pairing, expected in (("within_tap", 64770), ("flattened", 32767 if is_avx2 else 64770)):
        assert (
            intact.Conv(w, mode="saturating", pairing=pairing, max_isa="avx2").run(a)[0, 0, 0, 0] == expected
        )


def test_bound_calls_see_what_the_arrays_hold():
    a, b = random((4, 16), np.uint8), random((16, 8), np.int8)
    call = intact.Gemm(b).bind(a)
    first = call().copy()
    a[:] = 255 - a
    assert np.array_equal(call(), a.astype(np.int32) @ b.astype(np.int32)) and not np.array_equal(
        call(), first
    )


def test_threads_share_a_plan():
    b = random((256, 64), np.int8)
    gemm = intact.Gemm(b, scales=0.001)
    wrong = []

    def work(seed):
        a = random((32, 256), np.uint8, seed)
        expected = (a.astype(np.int32) @ b.astype(np.int32)).astype(np.float32) * np.float32(0.001)
        wrong.extend(seed for _ in range(20) if not np.array_equal(gemm.run(a), expected))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


ORDER = """
import os
for name in {order!r}: globals()[name] = __import__(name)
import numpy as np
torch.set_num_threads(1)
intact.Gemm(np.ones((1024, 1024), np.int8)).run(np.ones((512, 1024), np.uint8))
print(sum(open(f"/proc/self/task/{{task}}/comm").read() == "intact\\n" for task in os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
@pytest.mark.skipif(
    not list(Path(intact.__file__).parent.parent.glob("intact.libs/libgomp*")), reason="no wheel"
)
@pytest.mark.parametrize("order,helpers", [(("torch", "intact"), False), (("intact", "torch"), True)])
def test_the_libgomp_that_was_loaded_first_says_how_many_threads(order, helpers):
    pytest.importorskip("torch")
    run = subprocess.run(
        [sys.executable, "-c", ORDER.format(order=order)], capture_output=True, text=True, check=True
    )
    assert (int(run.stdout) > 0) == helpers


class DLPack:
    """An array of somebody else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack():
    a, b = random((4, 16), np.uint8), random((16, 8), np.int8)
    assert np.array_equal(intact.Gemm(DLPack(b)).run(DLPack(a)), a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("isa", intact.isas())
def test_transposed_views_are_taken_as_they_are(isa):
    b = random((70, 9), np.int8)
    gemm = intact.Gemm(b, max_isa=isa)
    x = random((70, 40), np.uint8)
    expected = x.T.astype(np.int32) @ b.astype(np.int32)
    assert np.array_equal(gemm.run(x.T), expected)
    assert np.array_equal(gemm.run(np.asfortranarray(x.T)), expected)
    assert np.array_equal(gemm.run(x[:, 3:20].T), expected[3:20])
    assert np.array_equal(gemm.run(x[:, 5:6].T), expected[5:6])
    items = random((3, 70, 11), np.uint8)
    assert np.array_equal(
        gemm.run(items.swapaxes(1, 2)), items.swapaxes(1, 2).astype(np.int32) @ b.astype(np.int32)
    )
    assert np.array_equal(gemm.run(x.reshape(70, 4, 10).transpose(1, 2, 0)), expected.reshape(4, 10, 9))


def test_transposed_numbers_are_quantized_by_row():
    x, b = random((40, 7), np.uint8).astype(np.float32) - 100, random((40, 5), np.int8)
    gemm = intact.Gemm(b, scales=0.01, quantization="dynamic_rows")
    assert np.array_equal(gemm.run(x.T), gemm.run(np.ascontiguousarray(x.T)))


@pytest.mark.parametrize("isa", intact.isas())
@pytest.mark.parametrize("by_columns", [False, True])
def test_runs_give_b(isa, by_columns):
    a = random((3, 5, 20), np.uint8)
    b = random((3, 9, 20), np.uint8, 1).swapaxes(1, 2) if by_columns else random((3, 20, 9), np.uint8, 1)
    zero_points = random((3, 9), np.uint8, 2).astype(np.int32)
    scales = random((3, 9), np.uint8, 3).astype(np.float32) + 1
    gemm = intact.Gemm(b[0], runtime_b=True, b_zero_points=0, scales=1.0, max_isa=isa)
    sums = np.stack([a[i].astype(np.int32) @ (b[i].astype(np.int32) - zero_points[i]) for i in range(3)])
    assert np.array_equal(
        gemm.run(a, b=b, b_zero_points=zero_points, b_scales=scales),
        sums.astype(np.float32) * scales[:, None],
    )
    assert np.array_equal(gemm.run(a[2], b=b[2], b_zero_points=zero_points[2]), sums[2].astype(np.float32))
    nothing = gemm.run(a[:0], b=b[:0], b_scales=scales[:0], b_zero_points=zero_points[:0])
    assert nothing.shape == (0, 5, 9)
    by_item = np.stack(
        [a[i].astype(np.int32) @ (b[i].astype(np.int32) - zero_points[i, 0]) for i in range(3)]
    )
    assert np.array_equal(
        gemm.run(a, b=b, b_zero_points=zero_points[:, 0].copy()), by_item.astype(np.float32)
    )


def test_runs_give_b_of_one_column_or_depth():
    for k, n in ((1, 4), (4, 1), (1, 1)):
        a, b = random((2, k), np.uint8), random((k, n), np.int8)
        assert np.array_equal(
            intact.Gemm(b, runtime_b=True).run(a, b=b), a.astype(np.int32) @ b.astype(np.int32)
        )


B = random((16, 8), np.int8)
A = random((4, 16), np.uint8)
REFUSED = {
    "b: has 1 dimensions; expected 2": lambda: intact.Gemm(B[0]),
    "b: has dtype int64; expected int8 or uint8": lambda: intact.Gemm(B.astype(np.int64)),
    "b: is a list; expected a NumPy array": lambda: intact.Gemm([[1]]),
    "c_type: is 'u16'; expected": lambda: intact.Gemm(B, c_type="u16"),
    "mode: is 'fast'; expected 'exact', 'saturating'": lambda: intact.Gemm(B, mode="fast"),
    "max_isa: is 'sse2'; expected": lambda: intact.Gemm(B, max_isa="sse2"),
    "bias: has 3 values; expected 8": lambda: intact.Gemm(B, scales=1.0, bias=[1.0, 2.0, 3.0]),
    "scale": lambda: intact.Gemm(B, scales=[1.0, 2.0]),
    "b_zero_points: has a value that is no int32": lambda: intact.Gemm(B, b_zero_points=0.5),
    "a_zero_point: is 1.5; expected an integer": lambda: intact.Gemm(B, a_zero_point=1.5),
    "clamp: is given together with activation='relu'": lambda: intact.Gemm(
        B, scales=1.0, activation="relu", clamp=(0, 6)
    ),
    "a: has dtype int8; expected uint8": lambda: intact.Gemm(B).run(A.view(np.int8)),
    "a: has 15 columns; expected 16": lambda: intact.Gemm(B).run(A[:, :15]),
    "a: the elements of a row are 2 bytes apart; expected 1": lambda: intact.Gemm(B[:8]).run(A[:, ::2]),
    "a: has a stride of 0 bytes": lambda: intact.Gemm(B).run(np.broadcast_to(A[0], (4, 16))),
    "a: has a stride of 0 bytes; expected a multiple of 1 above 0": lambda: intact.Gemm(B).run(
        np.broadcast_to(A, (3, 4, 16))
    ),
    "residual: has a stride of 0 bytes": lambda: intact.Gemm(B, scales=1.0, residual_type="f32").run(
        A, residual=np.broadcast_to(np.ones(8, np.float32), (4, 8))
    ),
    "a: has a stride of 0 bytes; expected a multiple": lambda: intact.Conv(random((2, 1, 1, 3), np.int8)).run(
        np.broadcast_to(np.ones(3, np.uint8), (1, 5, 5, 3))
    ),
    "a_range: is 5; expected two numbers": lambda: intact.Gemm(B, a_range=5),
    "a_range: is .0, 0.; expected more": lambda: intact.Gemm(B, a_range=(0, 0)),
    "a_range: is 1099511627776; expected an integer that fits into int32": lambda: intact.Gemm(
        B, a_range=(0, 2**40)
    ),
    "a_zero_point: is 1099511627776": lambda: intact.Gemm(B, a_zero_point=2**40),
    "threads: is 1099511627776": lambda: intact.Gemm(B).run(A, threads=2**40),
    "clamp: is 3; expected two numbers": lambda: intact.Gemm(B, scales=1.0, clamp=3),
    "quantization: is None; expected 'static'": lambda: intact.Gemm(B, quantization=None),
    "bias: is not an array of numbers|bias: has shape": lambda: intact.Gemm(
        B, scales=1.0, bias=[[1.0], [1.0, 2.0]]
    ),
    "padding: an entry is .1,.; expected": lambda: intact.Conv(
        random((2, 3, 3, 2), np.int8), padding=[(1,), 1]
    ),
    "a_scales: has dtype float64; expected float32": lambda: intact.Gemm(
        B, scales=1.0, quantization="rows"
    ).run(A, a_scales=np.ones(4)),
    "a: has a stride of -16 bytes": lambda: intact.Gemm(B).run(A[::-1]),
    "out: has shape .4, 7. and dtype int32; expected .4, 8.": lambda: intact.Gemm(B).run(
        A, np.empty((4, 7), np.int32)
    ),
    "out: is read-only": lambda: intact.Gemm(B).run(A, np.broadcast_to(np.int32(0), (4, 8))),
    "residual: is given; the plan has no residual_type": lambda: intact.Gemm(B).run(A, residual=A),
    "a_scales: is given": lambda: intact.Gemm(B).run(A, a_scales=[1.0]),
    "b_stride_k is 1 and b_stride_n is 1, so elements of b overlap": lambda: intact.Gemm(
        np.lib.stride_tricks.as_strided(B, (3, 4), (1, 1))
    ),
    "a_zero_points: has 2 values; expected 1": lambda: intact.Gemm(B, quantization="tensor").run(
        A, a_zero_points=[1, 2]
    ),
    "a_zero_points: is given; the plan has no": lambda: intact.Conv(random((2, 1, 1, 3), np.int8)).run(
        random((1, 4, 8, 3), np.uint8), a_zero_points=1
    ),
    "threads is -1": lambda: intact.Gemm(B).run(A, threads=-1),
    "stride: has 1 entries; expected 2": lambda: intact.Conv(random((2, 3, 3, 2), np.int8), stride=[1]),
    "a: pixels are not equally far apart": lambda: intact.Conv(random((2, 1, 1, 3), np.int8)).run(
        random((1, 4, 8, 3), np.uint8)[:, :, :5]
    ),
    "b: is not given; the plan has runtime_b": lambda: intact.Gemm(B, runtime_b=True).run(A),
    "b: is given; the plan has no runtime_b": lambda: intact.Gemm(B).run(A, b=B),
    "b: has shape .15, 8. and strides .8, 1.; expected .16, 8.": lambda: intact.Gemm(B, runtime_b=True).run(
        A, b=B[:15]
    ),
    "b: has shape .16, 8. and strides .1, 16.": lambda: intact.Gemm(B, runtime_b=True).run(
        A, b=np.asfortranarray(B)
    ),
    "b_zero_points: has shape .3,.; expected .1,., or .8,. for a value per column": lambda: intact.Gemm(
        B, runtime_b=True, b_zero_points=0
    ).run(A, b=B, b_zero_points=np.zeros(3, np.int32)),
    "b_scales: has shape .8, 1.; expected": lambda: intact.Gemm(B, runtime_b=True, scales=1.0).run(
        A, b=B, b_scales=np.ones((8, 1), np.float32)
    ),
    "a_zero_points: is 3.7; expected an integer": lambda: intact.Gemm(B, quantization="tensor").run(
        A, a_zero_points=3.7
    ),
    "a_zero_points: is 1099511627776; expected": lambda: intact.Gemm(B, quantization="tensor").run(
        A, a_zero_points=1 << 40
    ),
    "a_scales: has shape .1,. and dtype <U1": lambda: intact.Gemm(B, quantization="tensor", scales=1.0).run(
        A, a_scales="x"
    ),
    "a_scales: has dtype float64; expected float3[2]": lambda: intact.Gemm(
        B, quantization="tensor", scales=1.0
    ).run(A, a_scales=np.ones(1)),
    "b_scales is given to a run; expected none": lambda: intact.Gemm(B, scales=1.0).run(
        A, b_scales=np.ones(1, np.float32)
    ),
    "no such file|cannot be|No such": lambda: intact.Gemm.load("/nonexistent"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    with pytest.raises(intact.Error, match=message) as caught:
        REFUSED[message]()
    assert caught.value.status == "INVALID_ARGUMENT"
    assert "\n" not in caught.value.message


def test_arguments_are_listed_once():
    """Each field of intact_linear_desc has an argument, which the classes name in their signatures and texts."""
    from intact._interface import ffi
    from intact._library import ARGUMENTS

    other = {"struct_size", "b_type", "b_zero_point_count", "scale_count"}  # follow from arrays
    names = {
        "a_quantization": "quantization",
        "range_check": "check_range",
        "a_min": "a_range",
        "a_max": "a_range",
    }
    names |= {"bias_s32": "bias", "bias_f32": "bias", "clamp_min": "clamp", "clamp_max": "clamp"}
    fields = {name for name, _ in ffi.typeof("intact_linear_desc").fields} - other
    assert {names.get(name, name) for name in fields} == {*ARGUMENTS}
    for plan in (intact.Gemm, intact.Conv):
        parameters = inspect.signature(plan).parameters
        assert all(parameters[name].default == argument.default for name, argument in ARGUMENTS.items())
        assert list(inspect.signature(plan.run).parameters) == list(inspect.signature(plan.bind).parameters)
    assert all(f"`{name}" in intact.Gemm.__doc__ for name in ARGUMENTS)
    with pytest.raises(
        TypeError, match="unexpected argument 'scale'; expected one of a_type, c_type, scales"
    ):
        intact.Gemm(np.zeros((4, 4), np.int8), scale=1.0)
