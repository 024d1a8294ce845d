"""Products with scales of groups from Python, against NumPy and ONNX Runtime. Except in the tests of the
definition, all values are such that every sum is exact."""

import itertools

import intact
import numpy as np
import pytest


def random(low, high, shape, dtype=np.int64, seed=0):
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(dtype)


def powers(shape, dtype=np.float32, seed=1):
    return np.ldexp(np.float32(1), random(-4, 0, shape, np.int32, seed)).astype(dtype)


def packed(weights):
    """Two weights in a byte, the even depth in the low four bits."""
    nibbles = np.pad(weights.astype(np.uint8) & 15, ((0, 0), (0, weights.shape[1] % 2)))
    return nibbles[:, ::2] | nibbles[:, 1::2] << 4


def activations(m, k):
    """Floats that are their own quantization: integers up to 127, which is in every row."""
    a = random(-127, 127, (m, k), np.float32, 2)
    a[:, 0] = 127
    return a


def product(a, weights, zero_points, scales, group):
    centered = weights.astype(np.float64) - np.repeat(zero_points, group, 1)[:, : weights.shape[1]]
    return (
        a.astype(np.float64)
        @ (centered * np.repeat(scales.astype(np.float64), group, 1)[:, : weights.shape[1]]).T
    )


RANGES = {"u4": (0, 15, 8), "s4": (-8, 7, 0), "u8": (0, 255, 128), "s8": (-128, 127, 0)}


@pytest.mark.parametrize("b_type,k,has_zero_points", list(itertools.product(RANGES, (64, 75), (False, True))))
def test_product(b_type, k, has_zero_points):
    m, n, group = 3, 21, 32
    low, high, middle = RANGES[b_type]
    groups = -(-k // group)
    weights = random(low, high, (n, k))
    points = random(low, high, (n, groups), seed=3) if has_zero_points else np.full((n, groups), middle)
    scales = powers((n, groups), np.float16)
    a = activations(m, k)
    b = packed(weights) if b_type.endswith("4") else weights.astype(np.int8 if b_type == "s8" else np.uint8)
    for isa in intact.isas():
        given = intact.GroupedWeights(
            b, scales, k, group, b_type, points if has_zero_points else None, np.arange(n)
        )
        plan = intact.Grouped(given, max_isa=isa)
        c = plan.run(a, threads=2)
        assert c.dtype == np.float32 and np.array_equal(
            c, product(a, weights, points, scales, group) + np.arange(n)
        )
        assert plan.info.packed_bytes > 0 and plan.info.kernel


def test_certificate():
    weights = np.full((2, 64), 192, np.uint8)  # 64 as VPMADDUBSW sees it
    weights[1, 34:36] = 255
    plan = intact.Grouped(intact.GroupedWeights(weights, np.ones((2, 2), np.float16), b_type="u8"))
    certificate = plan.certificate()
    assert certificate == intact.PairsCertificate(64, 1, 1, 1, 1, 1, 1, 34, 255 * 254, 129)
    groups = plan.group_certificates()
    assert groups["failing_pairs"].tolist() == [[0, 0], [0, 1]] and groups["safe_activation"].tolist() == [
        [255, 255],
        [255, 129],
    ]
    assert plan.failing_pairs() == [(34, 1, 127, 127, 255, 255, 64770)] and plan.failing_pairs(first=1) == []
    with pytest.raises(intact.Error, match="first: is -1; expected 0 or more"):
        plan.failing_pairs(-1, 2)
    one = np.ones((1, 2), np.float16)
    experts = intact.Grouped([intact.GroupedWeights(own[None], one, b_type="u8") for own in weights])
    assert experts.certificate() == certificate and experts.failing_pairs() == plan.failing_pairs()
    assert np.array_equal(experts.group_certificates(), groups)
    codes = intact.GroupedWeights(packed(np.full((3, 32), 15)), np.ones((3, 1), np.float16), k=32)
    four_bits = intact.Grouped(codes).certificate()
    assert (four_bits.failing_pairs, four_bits.largest_sum, four_bits.safe_activation) == (0, 7650, 255)


def test_given_activations():
    n, k, group = 9, 100, 64
    weights, scales = random(0, 15, (n, k)), powers((n, 2))
    plan = intact.Grouped(
        intact.GroupedWeights(packed(weights), scales, k, group),
        a_source_type=None,
        a_type="u8",
        granularity="groups",
        c_type="f16",
        clamp=(-100, 200),
    )
    a, points, a_scales = (
        random(0, 255, (4, k), np.uint8),
        random(0, 255, (4, 2), np.int32),
        powers((4, 2), seed=5),
    )
    each = np.repeat(points, group, 1)[:, :k], np.repeat(a_scales, group, 1)[:, :k]
    real = (a - each[0].astype(np.float64)) * each[1]
    c = plan.run(a, a_scales=a_scales, a_zero_points=points)
    expected = np.clip(product(real, weights, np.full((n, 2), 8), scales, group), -100, 200).astype(
        np.float16
    )
    assert c.dtype == np.float16 and np.array_equal(c, expected)


def test_rows_without_a_scale_are_nan():
    a = activations(3, 32)
    a[1, 5] = np.inf
    c = intact.Grouped(intact.GroupedWeights(random(-128, 127, (4, 32), np.int8), powers((4, 1)))).run(a)
    assert np.array_equal(c.view(np.uint32)[1], np.full(4, 0x7FC00000)) and np.isfinite(c[[0, 2]]).all()


def test_gguf():
    n, k = 6, 96
    scales = powers((n, 3), np.float16)
    scales[0] *= -1  # llama.cpp writes negative scales too
    a = activations(5, k)
    weights = random(0, 15, (n, 3, 32), np.uint8)
    blocks = np.concatenate(
        [scales[..., None].view(np.uint8), weights[..., :16] | weights[..., 16:] << 4], -1
    ).reshape(n, -1)
    expected = product(a, weights.reshape(n, k), np.full((n, 3), 8), scales, 32)
    assert np.array_equal(intact.Grouped.from_gguf(blocks, "q4_0").run(a), expected)
    weights = random(-127, 127, (n, 3, 32), np.int8)
    blocks = np.concatenate([scales[..., None].view(np.uint8), weights.view(np.uint8)], -1).reshape(n, -1)
    expected = product(a, weights.reshape(n, k), np.zeros((n, 3)), scales, 32)
    assert np.array_equal(intact.Grouped.from_gguf(blocks, "q8_0").run(a), expected)


@pytest.mark.parametrize("bits,k,has_zero_points", list(itertools.product((4, 8), (64, 160), (False, True))))
def test_onnxruntime(bits, k, has_zero_points):
    onnxruntime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    m, n, block = 4, 24, 32
    blocks = k // block
    weights = random(0, 2**bits - 1, (n, k))
    b = (packed(weights) if bits == 4 else weights.astype(np.uint8)).reshape(n, blocks, -1)
    scales, a = powers((n, blocks)), activations(m, k)
    inputs = {"b": b, "scales": scales.reshape(-1)}
    if has_zero_points:
        points = random(0, 2**bits - 1, (n, blocks), np.uint8, 3)
        inputs["zero_points"] = (packed(points) if bits == 4 else points).reshape(-1)
    node = helper.make_node(
        "MatMulNBits", ["a", *inputs], ["c"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block
    )
    f32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("a", f32, [m, k])],
        [helper.make_tensor_value_info("c", f32, [m, n])],
        [onnx.numpy_helper.from_array(value, name) for name, value in inputs.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    plan = intact.Grouped.from_matmul_nbits(
        b, scales, inputs.get("zero_points"), k=k, bits=bits, block_size=block
    )
    assert np.array_equal(plan.run(a), session.run(None, {"a": a})[0])


def weights_of(b_type, k, n, group, scale_type=np.float16, has_points=False, seed=3):
    rng, groups = np.random.default_rng(seed), -(-k // group)
    row = -(-k // 2) if b_type == "u4" else k
    b = rng.integers(0, 256, (n, row), dtype=np.uint8)
    scales = rng.uniform(0.01, 1, (n, groups)).astype(scale_type)
    highest = 16 if b_type == "u4" else 256
    points = rng.integers(0, highest, (n, groups), dtype=np.uint8) if has_points else None
    return intact.GroupedWeights(b.view(np.int8) if b_type == "s8" else b, scales, k, group, b_type, points)


def defined(a, a_scales, weights):
    """The definition in grouped.h for s8 activations with a scale for each group. A float64 holds a product exactly."""
    groups, b, f = (
        weights.scales.shape[1],
        weights.integers().astype(np.int64),
        np.zeros((len(a), weights.n), np.float32),
    )
    for g in range(groups):
        depths = slice(g * weights.group, (g + 1) * weights.group)
        acc = (a[:, depths].astype(np.int64) @ b[:, depths].T).astype(np.float64)
        scale = a_scales[:, g, None] * weights.scales[:, g].astype(np.float32)
        f = (acc * scale.astype(np.float64) + f).astype(np.float32)
    return f


def quantized(x, group):
    a, scales = np.empty(x.shape, np.int8), np.empty((len(x), -(-x.shape[1] // group)), np.float32)
    for g in range(scales.shape[1]):
        part = x[:, g * group : (g + 1) * group]
        scales[:, g] = np.abs(part).max(1) / np.float32(127)
        a[:, g * group : (g + 1) * group] = np.rint(part / scales[:, g, None])
    return a, scales


@pytest.mark.parametrize("isa", intact.isas())
@pytest.mark.parametrize(
    "b_type,k,group,has_points",
    [("u4", 192, 32, False), ("u4", 301, 128, True), ("s8", 320, 64, False), ("u8", 100, 16, True)],
)
def test_definition(isa, b_type, k, group, has_points):
    weights = weights_of(b_type, k, 37, group, np.float32 if has_points else np.float16, has_points)
    x = np.random.default_rng(4).standard_normal((5, k)).astype(np.float32)
    a, scales = quantized(x, group)
    expected = defined(a, scales, weights)
    assert np.array_equal(intact.Grouped(weights, granularity="groups", max_isa=isa).run(x), expected)
    given = intact.Grouped(weights, granularity="groups", a_source_type=None, max_isa=isa)
    assert np.array_equal(given.run(a, a_scales=scales), expected)
    assert np.array_equal(
        np.concatenate([given.run(a[i : i + 1], a_scales=scales[i : i + 1]) for i in range(5)]), expected
    )


def test_rows_bias_and_activation():
    weights = weights_of("u4", 64, 8, 32)
    weights.bias = np.linspace(-5, 5, 8).astype(np.float32)
    a = np.random.default_rng(5).integers(-128, 128, (3, 64), dtype=np.int8)
    scales = np.array([[0.5], [2], [1]], np.float32)
    plan = intact.Grouped(weights, a_source_type=None, activation="relu")
    f = defined(a, np.ones((3, 2), np.float32), weights) * scales + weights.bias
    assert np.array_equal(plan.run(a, a_scales=scales), np.maximum(f, 0))
    wide = np.zeros((3, 100), np.int8)
    wide[:, :64] = a
    assert np.array_equal(plan.run(wide[:, :64], a_scales=scales), np.maximum(f, 0))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"granularity": "groups", "c_type": "f16"},
        {"a_source_type": "f16", "a_type": "u8"},
        {"a_source_type": None, "activation": "relu"},
        {"a_source_type": None, "a_type": "u8", "granularity": "groups"},
    ],
)
@pytest.mark.parametrize("b_type,has_points", [("u4", True), ("s8", False)])
def test_saved_plans_give_the_same_bytes(tmp_path, options, b_type, has_points):
    weights = weights_of(b_type, 75, 21, 32, has_points=has_points)
    weights.bias = np.linspace(-5, 5, 21).astype(np.float32)
    weights.scales /= 64  # outputs are float16 numbers
    plan = intact.Grouped(weights, **options)
    a, given = random(0, 127, (5, 75), np.uint8), {}
    if options.get("a_source_type", "") is None:
        row = 3 if "granularity" in options else 1
        given = {"a_scales": powers((5, row)), "a_zero_points": random(0, 127, (5, row), np.int32)}
    a = a.astype(plan.a_dtype)
    expected = plan.run(a, **given)
    plan.save(tmp_path / "plan")
    files = {layout(plan.info.isa, b_type): (tmp_path / "plan").read_bytes()}
    for isa in intact.isas():
        loaded = intact.Grouped.load(tmp_path / "plan", max_isa=isa)
        assert (loaded.n, loaded.k, loaded.groups, loaded.info.isa) == (21, 75, 3, plan_isa(isa))
        assert loaded.run(a, **given).tobytes() == expected.tobytes() and loaded.c_dtype == expected.dtype
        loaded.save(tmp_path / "again")
        assert intact.Grouped.load(tmp_path / "again").run(a, **given).tobytes() == expected.tobytes()
        again = (tmp_path / "again").read_bytes()
        (tmp_path / "again").unlink()
        assert again == files.setdefault(layout(loaded.info.isa, b_type), again)
    assert len(set(files.values())) == len(files)
    (tmp_path / "plan").unlink()
    # a mapped file may be deleted
    assert np.isfinite(expected).all() and loaded.run(a, **given).tobytes() == expected.tobytes()


def layout(isa, b_type):
    """What the packed weights in a file depend on: the vectors of the ISA that packed them, and its dot products."""
    return isa.startswith(("avx512", "amx")), b_type == "u4" or isa not in ("portable", "avx2", "avx512")


def plan_isa(cap):
    """The ISA of a plan with this cap."""
    return intact.Grouped(weights_of("u4", 32, 1, 32), max_isa=cap).info.isa


def test_files_that_are_not_plans(tmp_path):
    intact.Gemm(random(-9, 9, (64, 4), np.int8)).save(tmp_path / "gemm")
    intact.Grouped(weights_of("u4", 32, 3, 32)).save(tmp_path / "plan")
    data = (tmp_path / "plan").read_bytes()
    (tmp_path / "damaged").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    (tmp_path / "short").write_bytes(data[:-1])
    for name in ("gemm", "damaged", "short", "missing"):
        with pytest.raises(intact.Error, match=name) as error:
            intact.Grouped.load(tmp_path / name)
        assert error.value.status == "INVALID_ARGUMENT"


def test_runs_of_no_rows():
    plan = intact.Grouped(weights_of("u4", 64, 8, 32), a_source_type=None)
    scales = np.ones(0, np.float32)
    for a in (
        np.zeros((0, 64), np.int8),
        np.empty((4, 64), np.int8)[:0],
        np.empty((4, 100), np.int8)[2:2, :64],
    ):
        assert plan.run(a, a_scales=scales).shape == (0, 8)
        assert plan.run(a, np.empty((0, 8), np.float32), a_scales=scales).shape == (0, 8)


@pytest.mark.parametrize("isa", intact.isas())
def test_batches(isa):
    weights = weights_of("u4", 70, 20, 32, has_points=True)
    plan = intact.Grouped(weights, max_isa=isa)
    x = np.random.default_rng(7).standard_normal((3, 5, 70)).astype(np.float32)
    expected = plan.run(x.reshape(15, 70)).reshape(3, 5, 20)
    assert np.array_equal(plan.run(x), expected)
    wide = np.zeros((3, 8, 90), np.float32)
    wide[:, 2:7, 10:80] = x
    out = np.zeros((5, 3, 24), np.float32)
    assert np.array_equal(plan.run(wide[:, 2:7, 10:80], out.swapaxes(0, 1)[..., :20], threads=3), expected)
    assert not out[..., 20:].any()
    given = intact.Grouped(weights, granularity="groups", a_source_type=None, max_isa=isa)
    a, scales = quantized(x.reshape(15, 70), 32)
    expected = given.run(a, a_scales=scales).reshape(3, 5, 20)
    spread = np.zeros((3, 7, 70), np.int8)
    spread[:, :5] = a.reshape(3, 5, 70)
    assert np.array_equal(given.run(spread[:, :5], a_scales=scales.reshape(3, 5, 3)), expected)


@pytest.mark.parametrize("isa", intact.isas())
def test_experts(isa):
    experts = [weights_of("u4", 70, 20, 32, has_points=True, seed=seed) for seed in range(5)]
    for seed, weights in enumerate(experts):
        weights.bias = powers(20, seed=seed)
    plan = intact.Grouped(experts, max_isa=isa)
    assert plan.experts == 5
    rows = [3, 0, 1, 0, 7]
    x = np.random.default_rng(6).standard_normal((11, 70)).astype(np.float32)
    begins = np.cumsum([0, *rows])
    expected = np.concatenate(
        [
            intact.Grouped(weights, max_isa=isa).run(x[begin : begin + count])
            for weights, begin, count in zip(experts, begins, rows)
        ]
    )
    for threads in (1, 3):
        assert np.array_equal(plan.run(x, expert_rows=rows, threads=threads), expected)
    assert np.array_equal(plan.run(x, expert_rows=np.array(rows, np.int32)), expected)


def test_rows_of_one_expert():
    plan = intact.Grouped(weights_of("s8", 64, 8, 32))
    x = np.ones((3, 64), np.float32)
    assert np.array_equal(plan.run(x, expert_rows=[3]), plan.run(x))
    with pytest.raises(intact.Error) as error:
        plan.run(x, expert_rows=[2])
    assert error.value.message == (
        "intact_grouped_run: expert_rows[0] is 2; expected m, which is 3, because the plan has one expert"
    )


@pytest.mark.parametrize(
    "rows,message",
    [
        (None, "intact_grouped_run: expert_rows is NULL; expected 2 numbers of rows, one for each expert"),
        ([1, 1], "intact_grouped_run: the sum of expert_rows is 2; expected m, which is 3"),
        ([4, -1], "intact_grouped_run: expert_rows[0] is 4; expected 0 to m, which is 3"),
        (3, "expert_rows: is 3; expected the number of rows of each expert"),
        ([3], "expert_rows: has 1 value; expected 2, one for each expert"),
        ([1.5, 1.5], "expert_rows: is 1.5; expected an integer"),
    ],
)
def test_refused_rows_of_experts(rows, message):
    plan = intact.Grouped([weights_of("s8", 64, 8, 32)] * 2)
    with pytest.raises(intact.Error) as error:
        plan.run(np.ones((3, 64), np.float32), expert_rows=rows)
    assert error.value.message == message


@pytest.mark.parametrize(
    "experts,message",
    [
        ([], "weights: is empty; expected the weights of at least one expert"),
        (
            [weights_of("s8", 64, 8, 32), weights_of("s8", 64, 9, 32)],
            "weights: n of expert 1 is 9; expected 8, as of expert 0",
        ),
        (
            [weights_of("u8", 64, 8, 32), weights_of("u8", 64, 8, 32, has_points=True)],
            "weights: some experts have zero_points, others have none; expected them of all experts or of none",
        ),
    ],
)
def test_refused_experts(experts, message):
    with pytest.raises(intact.Error) as error:
        intact.Grouped(experts)
    assert error.value.message == message


@pytest.mark.parametrize(
    "k,message", [("64", "k: is '64'; expected an integer"), (64.5, "k: is 64.5; expected an integer")]
)
def test_refused_depths(k, message):
    with pytest.raises(intact.Error) as error:
        intact.Grouped.from_matmul_nbits(np.zeros((3, 2, 16), np.uint8), np.ones(6, np.float32), k=k)
    assert error.value.message == message


@pytest.mark.parametrize(
    "change,message",
    [
        ({"k": None}, "k: is not given; expected the depth, because weights of 4 bits share bytes"),
        ({"k": 66}, "weights: has rows of 32 bytes; expected at least 33 for k=66"),
        (
            {"group": 48},
            "intact_grouped_create: group is 48; expected 16, 32, 64, 128, 256, or 0 for all depths",
        ),
        ({"group": 64}, "scales: has shape (3, 2); expected (3, 1), a value for each column and group"),
        ({"b_type": "s8"}, "weights: has dtype uint8; expected int8 for b_type='s8'"),
        (
            {"zero_points": np.full((3, 2), 300)},
            "zero_points: has a value of 300; expected integers from 0 to 255",
        ),
        (
            {"zero_points": [[8, 8], [8, 7.5], [8, 8]]},
            "zero_points: has a value of 7.5; expected integers from 0 to 255",
        ),
        (
            {"zero_points": [[8, 8], [8, np.nan], [8, 8]]},
            "zero_points: has a value of nan; expected integers from 0 to 255",
        ),
        ({"zero_points": [["a", "b"]] * 3}, "zero_points: has dtype <U1; expected 3×2 integers"),
        ({"zero_points": [[8, 8], [8]]}, "zero_points: is not an array of numbers; expected 3×2 integers"),
        ({"zero_points": [[8, 2**70]] * 3}, "zero_points: has dtype object; expected 3×2 integers"),
        ({"clamp": 1.0}, "clamp: is 1.0; expected two numbers"),
        ({"clamp": (1,)}, "clamp: is (1,); expected two numbers"),
        (
            {"zero_points": np.full((3, 2), 16)},
            "intact_grouped_create: b_zero_points of column 0, group 0 is 16; expected 0 to 15",
        ),
        ({"granularity": "columns"}, "granularity: is 'columns'; expected 'rows', 'groups'"),
    ],
)
def test_refusals(change, message):
    options = {name: change[name] for name in change if name in ("clamp", "granularity")}
    arguments = {"k": 64} | {name: change[name] for name in change if name not in options}
    with pytest.raises(intact.Error) as error:
        weights = intact.GroupedWeights(np.zeros((3, 32), np.uint8), np.ones((3, 2), np.float32), **arguments)
        intact.Grouped(weights, **options)
    assert error.value.message == message
