"""Readers of weights in groups in safetensors files. The tests pack each number by the published description of its format, bit by
bit. With compressed-tensors or torchao installed, these packages write files too, and dequantize them."""

import json

import intact
import numpy as np
import pytest

save_file = pytest.importorskip("safetensors.numpy").save_file

RNG = np.random.default_rng(11)


def words(numbers, bits, order=range(8)):
    """int32 words of the numbers of each row: number `order[i]` of a word is in bits i·bits and above."""
    count = 32 // bits
    rows = np.zeros((len(numbers), -(-numbers.shape[1] // count)), np.uint32)
    for r, row in enumerate(numbers.tolist()):
        for w in range(rows.shape[1]):
            for i in range(count):
                column = w * count + (order[i] if bits == 4 else i)
                if column < len(row):
                    rows[r, w] |= np.uint32(row[column] << i * bits)
    return rows.view(np.int32)


def numbers(bits, n, k, groups, low=0):
    """Weights N×K, zero points and scales N×groups."""
    points = RNG.integers(low, 1 << bits, (n, groups))
    return RNG.integers(0, 1 << bits, (n, k)), points, RNG.uniform(0.5, 2, (n, groups)).astype(np.float16)


def values(b, points, scales, group):
    """The definition: scale·(b − zero point)."""
    k = b.shape[1]
    real = np.empty(b.shape, np.float32)
    for n in range(len(b)):
        for depth in range(k):
            g = depth // (group or k)
            real[n, depth] = np.float32(int(b[n, depth]) - int(points[n, g])) * np.float32(scales[n, g])
    return real


def read(path):
    ((name, weights),) = intact.read_grouped_weights(path)
    return name, weights


def write(
    folder, tensors, config=None, metadata=None, name="model.safetensors", layer="model.layers.0.q_proj."
):
    arrays = {layer + key: np.ascontiguousarray(value) for key, value in tensors.items() if value is not None}
    save_file(arrays, folder / name, metadata)
    if config is not None:
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return folder / name


def check(path, b, points, scales, group, b_type, bias=None):
    name, weights = read(path)
    n, k = b.shape
    assert name == "model.layers.0.q_proj"
    assert (weights.n, weights.k, weights.group, weights.b_type) == (n, k, group, b_type)
    assert np.array_equal(weights.values(), values(b, points, scales, group))
    assert weights.scales.dtype == np.float16 and (bias is None) == (weights.bias is None)
    if bias is not None:
        assert weights.bias.dtype == np.float32 and np.array_equal(weights.bias, bias)
    # The plan computes with the same numbers: rows of A with one 127, and a scale of 1.
    a = np.zeros((min(k, 40), k), np.float32)
    a[np.arange(len(a)), np.arange(len(a)) * 7 % k] = 127
    c = intact.Grouped(weights).run(a)
    expected = np.float32(127) * values(b, points, scales, group).T[np.arange(len(a)) * 7 % k]
    assert np.array_equal(c, expected if bias is None else expected + weights.bias)


def gptq(b, points, scales, bits, minus=1):
    return {"qweight": words(b, bits).T, "qzeros": words(points.T - minus, bits), "scales": scales.T}


SIZES = [(32, 64, 0), (64, 64, 32), (32, 256, 128), (32, 160, 64), (96, 96, 16)]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("n,k,group", SIZES)
@pytest.mark.parametrize("version,minus", [(None, 1), ("gptq", 1), ("gptq_v2", 0)])
def test_gptq(tmp_path, bits, n, k, group, version, minus):
    groups = -(-k // group) if group else 1
    b, points, scales = numbers(bits, n, k, groups, minus)
    tensors = gptq(b, points, scales, bits, minus)
    tensors |= {
        "g_idx": np.arange(k, dtype=np.int32) // (group or k),
        "bias": RNG.standard_normal(n).astype(np.float16),
    }
    config = {"quant_method": "gptq", "bits": bits, "group_size": group or -1}
    if version:
        config["checkpoint_format"] = version
    check(write(tmp_path, tensors, config), b, points, scales, group, f"u{bits}", tensors["bias"])
    (tmp_path / "config.json").unlink()
    if minus and not version:  # the groups of the depths are enough
        check(write(tmp_path, tensors), b, points, scales, group, f"u{bits}", tensors["bias"])
    del tensors["g_idx"]  # older files
    (tmp_path / "quantize_config.json").write_text(json.dumps(config))
    check(write(tmp_path, tensors), b, points, scales, group, f"u{bits}", tensors["bias"])


@pytest.mark.parametrize(
    "packing,minus", [("auto_round", 0), ("auto_round:gptqmodel", 0), ("auto_round:auto_gptq", 1)]
)
@pytest.mark.parametrize("method", ["auto-round", "gptq", None])
def test_auto_round(tmp_path, packing, minus, method):
    b, points, scales = numbers(4, 32, 64, 2, minus)
    config = {"quant_method": method, "bits": 4, "group_size": 32, "packing_format": packing}
    check(write(tmp_path, gptq(b, points, scales, 4, minus), config), b, points, scales, 32, "u4")


def test_layers_of_other_groups(tmp_path):
    """The config has sizes of single layers."""
    b, points, scales = numbers(4, 32, 64, 2, 1)
    for name in ("dynamic", "extra_config"):
        config = {"group_size": 16, name: {"q_proj": {"group_size": 32}}}
        check(write(tmp_path, gptq(b, points, scales, 4), config), b, points, scales, 32, "u4")


def test_gptq_zero_points_of_0(tmp_path):
    """GPTQModel subtracts 1 from whole words."""
    b, points, scales = numbers(4, 32, 64, 2)
    points[:, 0] = np.arange(32) % 3
    tensors = gptq(b, points, scales, 4, 0)
    tensors["qzeros"] = (tensors["qzeros"].view(np.uint32) - np.uint32(0x11111111)).view(np.int32)
    config = {"quant_method": "gptq", "bits": 4, "meta": {"quantizer": ["gptqmodel:7.7.0"]}}
    check(write(tmp_path, tensors, config), b, points, scales, 32, "u4")
    with pytest.raises(
        intact.Error,
        match="qzeros: stores 15, which programs read as different zero points; expected 0 to 14",
    ):
        read(write(tmp_path, tensors, {"quant_method": "gptq", "bits": 4}))


@pytest.mark.parametrize("n,k,group", SIZES)
@pytest.mark.parametrize("file", ["config.json", "quant_config.json", None])
def test_awq(tmp_path, n, k, group, file):
    b, points, scales = numbers(4, n, k, -(-k // group) if group else 1)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    tensors = {"qweight": words(b.T, 4, order), "qzeros": words(points.T, 4, order), "scales": scales.T}
    path = write(tmp_path, tensors)
    config = {"quant_method": "awq", "bits": 4, "group_size": group or -1, "version": "gemm"}
    if file:
        (tmp_path / file).write_text(
            json.dumps({"quantization_config": config} if file == "config.json" else config)
        )
    if file or not group or k % group == 0:
        return check(path, b, points, scales, group, "u4")
    with pytest.raises(
        intact.Error,
        match="groups: are 3 of 160 depths; expected a multiple of 64 depths, or a group_size in",
    ):
        read(path)


def scheme(**weights):
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("n,k,group", SIZES + [(5, 75, 0), (21, 100, 32)])
@pytest.mark.parametrize("points_as", [None, "packed", "int8"])
def test_compressed_tensors_packed(tmp_path, bits, n, k, group, points_as):
    groups = -(-k // group) if group else 1
    b, points, scales = numbers(bits, n, k, groups)
    if points_as is None:
        points[:] = 1 << bits - 1
    stored = {
        None: None,
        "packed": words(points.T, bits).T,
        "int8": (points - (1 << bits - 1)).astype(np.int8),
    }[points_as]
    tensors = {
        "weight_packed": words(b, bits),
        "weight_scale": scales,
        "weight_shape": np.array([n, k]),
        "weight_zero_point": stored,
    }
    if not group or k % group == 0:
        check(
            write(tmp_path, tensors, {"quant_method": "compressed-tensors"}),
            b,
            points,
            scales,
            group,
            f"u{bits}",
        )
    config = scheme(num_bits=bits, group_size=group or None)
    check(write(tmp_path, tensors, config), b, points, scales, group, f"u{bits}")
    config["config_groups"]["group_1"] = {"weights": {"num_bits": 12 - bits, "group_size": 128}}
    if k % 128:
        check(write(tmp_path, tensors, config), b, points, scales, group, f"u{bits}")


@pytest.mark.parametrize("n,k,group", [(5, 75, 0), (8, 96, 32)])
@pytest.mark.parametrize("points_as", [None, "zeros", "int8"])
def test_compressed_tensors_int8(tmp_path, n, k, group, points_as):
    groups = -(-k // group) if group else 1
    b, points, scales = numbers(8, n, k, groups)
    b, points = b - 128, points - 128 if points_as == "int8" else np.zeros((n, groups), np.int64)
    tensors = {
        "weight": b.astype(np.int8),
        "weight_scale": scales,
        "input_scale": np.ones(1, np.float32),
        "weight_zero_point": points.astype(np.int8) if points_as else None,
    }
    check(write(tmp_path, tensors), b, points, scales, group, "u8" if points_as == "int8" else "s8")


def test_one_scale(tmp_path):
    b = RNG.integers(-128, 128, (3, 40))
    path = write(tmp_path, {"weight": b.astype(np.int8), "weight_scale": np.array([0.5], np.float16)})
    check(path, b, np.zeros((3, 1), int), np.full((3, 1), 0.5), 0, "s8")


@pytest.mark.parametrize(
    "kind,target,bits",
    [
        ("Int8Tensor", None, 8),
        ("IntxUnpackedToInt8Tensor", "int8", 8),
        ("IntxUnpackedToInt8Tensor", "int4", 4),
    ],
)
@pytest.mark.parametrize("has_points", [False, True])
def test_torchao(tmp_path, kind, target, bits, has_points):
    b, points, scales = numbers(bits, 6, 96, 3)
    b, points = b - (1 << bits - 1), (points - (1 << bits - 1)) * has_points
    tensors = {
        "_weight_qdata": b.astype(np.int8),
        "_weight_scale": scales,
        "_weight_zero_point": points.astype(np.int8) if has_points else None,
    }
    data = {"target_dtype": {"_type": "torch.dtype", "_data": target}} if target else {}
    path = write(tmp_path, tensors, metadata=note(kind, block_size=[1, 32], **data))
    check(path, b, points, scales, 32, "u4" if bits == 4 else "u8" if has_points else "s8")


def test_bfloat16_scales(tmp_path):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    b = RNG.integers(-128, 128, (3, 40)).astype(np.int8)
    for scales, dtype in (
        ([0.5, 1.9921875, 2**-24 * 5], np.float16),
        ([0.5, 1e-9, 1], np.float32),
        ([0.5, 1e9, 1], np.float32),
    ):
        scales = np.array(scales, bfloat16).reshape(3, 1)
        _, weights = read(write(tmp_path, {"weight": b, "weight_scale": scales}))
        assert weights.scales.dtype == dtype and np.array_equal(
            weights.scales.astype(np.float64), scales.astype(np.float64)
        )


def test_folders(tmp_path):
    """A layer may have its tensors in two files. Other tensors are passed over."""
    b, points, scales = numbers(4, 32, 64, 2, 1)
    tensors = gptq(b, points, scales, 4)
    write(
        tmp_path,
        {"qweight": tensors.pop("qweight"), "norm.weight": np.ones(4, np.float32)},
        {},
        name="model-00001.safetensors",
    )
    write(tmp_path, tensors | {"weight": np.ones((4, 4), np.int8)}, {}, name="model-00002.safetensors")
    check(tmp_path, b, points, scales, 32, "u4")
    with pytest.raises(intact.Error) as error:
        read(tmp_path / "model-00001.safetensors")
    assert error.value.message == (
        f"{tmp_path}/model-00001.safetensors: layer 'model.layers.0.q_proj': qzeros: is missing; expected a "
        "tensor (a folder may be given to read all its files)"
    )


def test_tensors_in_two_files(tmp_path):
    b, points, scales = numbers(4, 32, 64, 2, 1)
    tensors = gptq(b, points, scales, 4)
    write(tmp_path, tensors, {}, name="a.safetensors")
    write(tmp_path, {"scales": tensors["scales"]}, name="b.safetensors")
    with pytest.raises(intact.Error) as error:
        read(tmp_path)
    assert error.value.message == (
        f"{tmp_path}: tensor 'model.layers.0.q_proj.scales' is in a.safetensors and in b.safetensors; "
        "expected it in one file"
    )


def tensors_of(kind):
    b, points, scales = numbers(4, 32, 64, 2, 1)
    if kind == "gptq":
        return gptq(b, points, scales, 4) | {"g_idx": np.arange(64, dtype=np.int32) // 32}
    if kind == "packed":
        return {"weight_packed": words(b, 4), "weight_scale": scales, "weight_shape": np.array([32, 64])}
    if kind == "int8":
        return {"weight": b.astype(np.int8), "weight_scale": scales}
    return {"_weight_qdata": b.astype(np.int8), "_weight_scale": scales}


def note(kind, **data):
    return {"model.layers.0.q_proj.weight": json.dumps({"_type": kind, "_data": data})}


INTX = note("IntxUnpackedToInt8Tensor", target_dtype={"_data": "int4"})


@pytest.mark.parametrize(
    "kind,change,config,message",
    [
        (
            "gptq",
            {"g_idx": np.arange(64, dtype=np.int32)[::-1] // 32},
            {},
            "g_idx: is another order of the groups (act-order, desc_act); expected depth // 32",
        ),
        (
            "gptq",
            {},
            {"checkpoint_format": "marlin"},
            "checkpoint_format: is 'marlin'; expected 'gptq' or 'gptq_v2'",
        ),
        ("gptq", {"qzeros": np.zeros((2, 3), np.int32)}, {"bits": 3}, "bits: is 3; expected 4 or 8"),
        (
            "gptq",
            {"qzeros": np.zeros((2, 3), np.int32)},
            {},
            "bits: is unknown because qzeros has shape (2, 3); expected 4 or 8",
        ),
        (
            "gptq",
            {"qzeros": None},
            {},
            "qzeros: is missing; expected a tensor (a folder may be given to read all its files)",
        ),
        ("gptq", {"qweight": np.zeros((8, 32), np.int64)}, {}, "qweight: has dtype int64; expected int32"),
        (
            "gptq",
            {"qweight": np.zeros((7, 32), np.int32)},
            {},
            "qweight: has shape (7, 32); expected (8, 32)",
        ),
        (
            "gptq",
            {"qweight": np.zeros((8, 30), np.int32)},
            {},
            "qweight: has 30 columns, and scales has 32; expected equal numbers (GPTQ), or an eighth (AWQ)",
        ),
        ("gptq", {"scales": np.zeros(32, np.float16)}, {}, "scales: has 1 dimensions; expected 2"),
        (
            "gptq",
            {"scales": np.zeros((2, 32))},
            {},
            "scales: has dtype float64; expected float32, float16 or bfloat16",
        ),
        ("gptq", {"bias": np.zeros(8, np.float16)}, {}, "bias: has shape (8,); expected (32,)"),
        (
            "gptq",
            {"scales": np.ones((3, 32), np.float16), "qzeros": np.zeros((3, 4), np.int32), "g_idx": None},
            {},
            "groups: are 3 of 64 depths; expected groups of 16, 32, 64, 128 or 256 depths, or one group",
        ),
        (
            "gptq",
            {"qweight": np.zeros((64, 4), np.int32)},
            {"version": "GEMV"},
            "version: is 'gemv'; expected 'gemm'",
        ),
        (
            "gptq",
            {"qweight": np.zeros((64, 4), np.int32), "qzeros": np.zeros((2, 5), np.int32)},
            {},
            "qzeros: has shape (2, 5); expected (2, 4)",
        ),
        (
            "packed",
            {"weight_shape": np.array([31, 64])},
            {},
            "weight_shape: is [31 64]; expected 32 and the depth",
        ),
        (
            "packed",
            {"weight_shape": np.array([32, 65])},
            {},
            "weight_packed: has 8 words for a depth of 65; expected 4 or 8 bits for each depth",
        ),
        (
            "packed",
            {"weight_scale": np.ones((4, 2), np.float16)},
            {},
            "weight_scale: has shape (4, 2); expected a row for each of 32 columns",
        ),
        (
            "packed",
            {"weight_zero_point": np.zeros((5, 2), np.int32)},
            {},
            "weight_zero_point: has shape (5, 2); expected (4, 2)",
        ),
        (
            "packed",
            {"weight_zero_point": np.full((32, 2), 8, np.int8)},
            {},
            "weight_zero_point: has a value that is no integer from -8 to 7",
        ),
        (
            "packed",
            {"weight_g_idx": np.arange(64)[::-1] // 32},
            {},
            "weight_g_idx: is another order of the groups (act-order, desc_act); expected depth // 32",
        ),
        ("int8", {"weight": np.zeros((2, 2, 2), np.int8)}, {}, "weight: has 3 dimensions; expected 2"),
        (
            "int8",
            {"weight": np.zeros((32, 0), np.int8)},
            {},
            "weight: has shape (32, 0); expected at least 1 in each dimension",
        ),
        (
            "int8",
            {"weight": np.zeros((0, 64), np.int8), "weight_scale": np.ones((0, 2), np.float16)},
            {},
            "weight: has shape (0, 64); expected at least 1 in each dimension",
        ),
        (
            "gptq",
            {"qweight": np.zeros((8, 0), np.int32), "qzeros": np.zeros((2, 0), np.int32)},
            {},
            "qweight: has shape (8, 0); expected at least 1 in each dimension",
        ),
        (
            "gptq",
            {"qweight": np.zeros((0, 4), np.int32)},
            {},
            "qweight: has shape (0, 4); expected at least 1 in each dimension",
        ),
        (
            "packed",
            {"weight_packed": np.zeros((32, 0), np.int32)},
            {},
            "weight_packed: has shape (32, 0); expected at least 1 in each dimension",
        ),
        ("gptq", {}, {"quant_method": "awq"}, "quant_method: is 'awq'; expected 'gptq' or 'auto-round'"),
        (
            "gptq",
            {},
            {"quant_method": "auto-round"},
            "packing_format: is 'None'; expected 'auto_round', 'auto_round:gptqmodel', 'auto_round:auto_gptq'",
        ),
        (
            "gptq",
            {},
            {"packing_format": "auto_round:auto_awq"},
            "packing_format: is 'auto_round:auto_awq'; expected 'auto_round', 'auto_round:gptqmodel', 'auto_round:auto_gptq'",
        ),
        (
            "gptq",
            {},
            {"packing_format": "auto_round", "checkpoint_format": "gptq"},
            "checkpoint_format: is 'gptq'; expected 'gptq_v2', because packing_format is 'auto_round'",
        ),
        ("gptq", {}, {"group_size": 64}, "group_size: is 64; expected 32, because 64 depths have 2 groups"),
        ("gptq", {}, {"group_size": -1}, "group_size: is -1; expected 32, because 64 depths have 2 groups"),
        (
            "gptq",
            {},
            {"group_size": "32"},
            "group_size: is '32'; expected 32, because 64 depths have 2 groups",
        ),
        (
            "gptq",
            {
                "scales": np.ones((1, 32), np.float16),
                "qzeros": np.zeros((1, 4), np.int32),
                "g_idx": np.zeros(64, np.int32),
            },
            {"group_size": 32},
            "group_size: is 32; expected -1, because 64 depths have 1 group",
        ),
        (
            "gptq",
            {"qweight": np.zeros((12, 32), np.int32), "g_idx": None},
            {"group_size": 48},
            "group_size: is 48; expected 64, because 96 depths have 2 groups",
        ),
        (
            "gptq",
            {"qweight": np.zeros((12, 32), np.int32), "g_idx": None},
            {},
            "groups: are 2 of 96 depths; expected a multiple of 64 depths, or a group_size in config.json",
        ),
        (
            "gptq",
            {"qweight": np.zeros((96, 4), np.int32)},
            {"q_group_size": 48},
            "group_size: is 48; expected 64, because 96 depths have 2 groups",
        ),
        (
            "packed",
            {},
            scheme(num_bits=4, group_size=16),
            "group_size: is 16; expected 32, because 64 depths have 2 groups",
        ),
        (
            "packed",
            {},
            scheme(num_bits=8, group_size=32),
            "weight_packed: has 8 words for a depth of 64; expected 8 bits for each depth",
        ),
        (
            "packed",
            {"weight_packed": np.zeros((32, 16), np.int32)},
            scheme(num_bits=7, group_size=32),
            "num_bits: is 7; expected 4 or 8",
        ),
        ("packed", {}, scheme(num_bits=[4]), "num_bits: is [4]; expected 4 or 8"),
        (
            "packed",
            {"weight_packed": np.zeros((32, 12), np.int32), "weight_shape": np.array([32, 96])},
            {},
            "groups: are 2 of 96 depths; expected a multiple of 64 depths, or a group_size in config.json",
        ),
        (
            "int8",
            {"weight": np.zeros((32, 96), np.int8)},
            scheme(num_bits=8, group_size=48),
            "group_size: is 48; expected 64, because 96 depths have 2 groups",
        ),
        (
            "torchao",
            {},
            note("Int4Tensor"),
            "Int4Tensor: has zero points that are floats; expected IntxUnpackedToInt8Tensor or Int8Tensor",
        ),
        ("torchao", {}, {}, "the file's metadata: describe the weight by ''; expected a class of torchao"),
        (
            "torchao",
            {},
            note("Int8Tensor", block_size=[1, 64]),
            "group_size: is 64; expected 32, because 64 depths have 2 groups",
        ),
        (
            "torchao",
            {},
            note("Int8Tensor", block_size=64),
            "block_size: is 64; expected the columns and the depths of a group",
        ),
        (
            "torchao",
            {},
            note("Int8Tensor", block_size=["1", "32"]),
            "group_size: is '32'; expected 32, because 64 depths have 2 groups",
        ),
        ("torchao", {}, INTX, "_weight_qdata: has a value outside -8 to 7"),
        (
            "torchao",
            {"_weight_act_pre_scale": np.ones(64, np.float32)},
            note("Int8Tensor"),
            "_weight_act_pre_scale: is given; expected activations without scales of their own",
        ),
        (
            "torchao",
            {"_weight_zero_point": np.full((32, 2), 0.5, np.float32)},
            note("Int8Tensor"),
            "_weight_zero_point: has a value that is no integer from -128 to 127",
        ),
    ],
)
def test_refusals(tmp_path, kind, change, config, message):
    metadata, config = (config, None) if kind == "torchao" else (None, config)
    path = write(tmp_path, tensors_of(kind) | change, config, metadata)
    with pytest.raises(intact.Error) as error:
        read(path)
    assert error.value.message == f"{path}: layer 'model.layers.0.q_proj': {message}"


def test_floats_of_torchao_are_passed_over(tmp_path):
    assert not list(
        intact.read_grouped_weights(write(tmp_path, tensors_of("torchao"), metadata=note("Float8Tensor")))
    )


def test_files_that_are_not_models(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(b"no model")
    for name in ("m.safetensors", "missing.safetensors"):
        with pytest.raises(intact.Error, match=f"{name}: is no safetensors file"):
            list(intact.read_grouped_weights(tmp_path / name))
    (tmp_path / "empty").mkdir()
    with pytest.raises(intact.Error, match="empty: is a folder without safetensors files; expected some"):
        list(intact.read_grouped_weights(tmp_path / "empty"))
    write(tmp_path, tensors_of("gptq"), name="m.safetensors")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(intact.Error, match="config.json: is no JSON file"):
        list(intact.read_grouped_weights(tmp_path / "m.safetensors"))


@pytest.mark.parametrize(
    "format,bits,symmetric,strategy,group",
    [
        ("pack-quantized", 4, True, "group", 32),
        ("pack-quantized", 4, False, "group", 32),
        ("pack-quantized", 8, False, "channel", None),
        ("pack-quantized", 4, True, "channel", None),
        ("int-quantized", 8, True, "channel", None),
        ("int-quantized", 8, False, "group", 64),
        ("int-quantized", 4, True, "group", 128),
    ],
)
def test_against_compressed_tensors(tmp_path, format, bits, symmetric, strategy, group):
    package = pytest.importorskip("compressed_tensors")
    torch = pytest.importorskip("torch")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    args = QuantizationArgs(num_bits=bits, symmetric=symmetric, strategy=strategy, group_size=group)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry(format)
    n, k = 24, 128
    groups = k // group if group else 1
    scale = torch.rand(n, groups) * 0.02 + 0.01
    point = torch.randint(-(1 << bits - 1), 1 << bits - 1, (n, groups), dtype=torch.int8)
    point = torch.zeros_like(point) if symmetric else point
    given = {"weight": torch.randn(n, k), "weight_scale": scale, "weight_zero_point": point}
    stored = compressor.compress(given, scheme)
    path = write(
        tmp_path,
        {name: tensor.numpy() for name, tensor in stored.items()},
        {"quant_method": "compressed-tensors"},
    )
    _, weights = read(path)
    assert np.array_equal(weights.values(), compressor.decompress(stored, scheme)["weight"].numpy()), (
        package.__version__
    )


@pytest.mark.parametrize(
    "name,options",
    [
        ("Int8WeightOnlyConfig", {}),
        ("IntxWeightOnlyConfig", {"weight_dtype": "int4"}),
        ("IntxWeightOnlyConfig", {"weight_dtype": "int8", "mapping_type": "ASYMMETRIC"}),
        ("IntxWeightOnlyConfig", {"weight_dtype": "int4", "mapping_type": "ASYMMETRIC"}),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_against_torchao(tmp_path, name, options, dtype):
    pytest.importorskip("torchao"), pytest.importorskip("ml_dtypes")
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file
    from torchao import quantization
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    options = {
        key: getattr(torch if key == "weight_dtype" else quantization.MappingType, value)
        for key, value in options.items()
    }
    if name == "IntxWeightOnlyConfig":
        options["granularity"] = quantization.granularity.PerGroup(32)
    model = torch.nn.Sequential(torch.nn.Linear(96, 24, bias=True, dtype=getattr(torch, dtype)))
    quantization.quantize_(model, getattr(quantization, name)(**options))
    tensors, metadata = flatten_tensor_state_dict(model.state_dict())
    save_file(tensors, tmp_path / "m.safetensors", metadata=metadata)
    name, weights = read(tmp_path / "m.safetensors")
    weight = model[0].weight
    assert name == "0" and weights.b_type == (
        "u4" if options.get("weight_dtype") == torch.int4 else weights.b_type
    )
    expected = weight.qdata.double()
    for values, apply in ((weight.zero_point, torch.sub), (weight.scale, torch.mul)):
        if values is not None:
            expected = apply(
                expected,
                values.double().reshape(24, -1).repeat_interleave(96 // values.reshape(24, -1).shape[1], 1),
            )
    assert np.array_equal(weights.values().astype(np.float64), expected.float().double().numpy())
    if dtype == "float32":
        assert np.array_equal(weights.values(), weight.dequantize().numpy())
    assert np.array_equal(weights.bias, model[0].bias.float().detach().numpy())
