"""Readers of weights in groups: MatMulNBits of ONNX; the types of GGUF."""

import intact
import numpy as np
import pytest
from intact._plans.ggml_types import FORMATS, of_rows

RNG = np.random.default_rng(7)


def packed(values):
    """Numbers of 4 bits, two a byte, the even one in the low bits; each row begins a byte."""
    rows = np.zeros((len(values), -(-values.shape[1] // 2)), np.uint8)
    for n, row in enumerate(values):
        for i, value in enumerate(row):
            rows[n, i // 2] |= int(value) << (4 if i % 2 else 0)
    return rows


def model_file(path, constants, **changes):
    """A model with one MatMulNBits. `constants`: B, scales, zero points, g_idx, bias; None: left out."""
    onnx, numpy_helper = pytest.importorskip("onnx"), pytest.importorskip("onnx.numpy_helper")
    names = ["b", "s", "z", "g", "bias"]
    tensors = [
        numpy_helper.from_array(array, name) for name, array in zip(names, constants) if array is not None
    ]
    inputs = ["a"] + [name if array is not None else "" for name, array in zip(names, constants)]
    node = onnx.helper.make_node(
        "MatMulNBits", inputs, ["c"], name="product", domain="com.microsoft", **changes
    )
    value = onnx.helper.make_tensor_value_info
    ends = [value("a", 1, ["m", changes["K"]])], [value("c", 1, ["m", changes["N"]])]
    graph = onnx.helper.make_graph([node], "g", *ends, tensors)
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8), str(path))
    return path


def operands(bits, group, k, n, has_points):
    """Weights N×K, their zero points, scales; and the constants of the node."""
    groups = -(-k // group)
    b, scales = RNG.integers(0, 1 << bits, (n, k)), RNG.uniform(0.5, 2, (n, groups)).astype(np.float32)
    points = RNG.integers(0, 1 << bits, (n, groups)) if has_points else np.full((n, groups), 1 << bits - 1)
    whole = np.pad(b, ((0, 0), (0, groups * group - k)))
    stored, stored_points = (
        (packed(whole), packed(points)) if bits == 4 else (whole.astype(np.uint8), points.astype(np.uint8))
    )
    shape = (n, groups, group * bits // 8)
    return (
        b,
        points,
        scales,
        [stored.reshape(shape), scales.ravel(), stored_points.ravel() if has_points else None],
    )


@pytest.mark.parametrize(
    "bits,group,k", [(4, 16, 16), (4, 32, 96), (4, 128, 200), (8, 16, 48), (8, 64, 100), (8, 256, 256)]
)
@pytest.mark.parametrize("has_points", [False, True])
def test_matmul_nbits(tmp_path, bits, group, k, has_points):
    n = 5
    b, points, scales, constants = operands(bits, group, k, n, has_points)
    path = model_file(tmp_path / "m.onnx", constants, K=k, N=n, bits=bits, block_size=group)
    ((name, weights),) = intact.read_grouped_weights(path)
    assert (name, weights.n, weights.k, weights.group, weights.b_type) == ("product", n, k, group, f"u{bits}")
    assert np.array_equal(weights.integers(), b - np.repeat(points, group, 1)[:, :k])
    assert (
        np.array_equal(weights.scales, scales)
        and (weights.zero_points is not None) == has_points
        and weights.bias is None
    )
    assert np.array_equal(weights.values(), weights.integers() * np.repeat(scales, group, 1)[:, :k])


def test_order_bias_and_float_zero_points(tmp_path):
    b, points, scales, constants = operands(4, 32, 64, 3, True)
    constants[2] = points.astype(np.float32).ravel()
    constants += [(np.arange(64) // 32).astype(np.int32), np.array([1, 2, 3], np.float32)]
    ((_, weights),) = intact.read_grouped_weights(
        model_file(tmp_path / "m.onnx", constants, K=64, N=3, bits=4, block_size=32)
    )
    assert np.array_equal(weights.integers(), b - np.repeat(points, 32, 1)) and weights.bias.tolist() == [
        1,
        2,
        3,
    ]


@pytest.mark.parametrize(
    "change,message",
    [
        ({"bits": 2}, "bits: is 2; expected 4 or 8"),
        ({"block_size": 24}, "block_size: is 24; expected 16, 32, 64, 128 or 256"),
        ({"K": 0}, "K×N: is 0×3; expected positive extents"),
        ({"N": 4}, "B: has shape (3, 2, 16); expected 4 columns"),
        ({"K": 96}, "B: has 96 elements of dtype uint8; expected 3×48 of uint8"),
        ({"weight_prepacked": 1}, "weight_prepacked: is 1; expected 0"),
        (
            {1: np.ones(5, np.float32)},
            "scales: has 5 elements of dtype float32; expected 3×2 of float32 or float16",
        ),
        (
            {1: np.ones(6, np.int8)},
            "scales: has 6 elements of dtype int8; expected 3×2 of float32 or float16",
        ),
        ({1: None}, "scales: is missing; expected a constant"),
        ({2: np.full(6, 7.5, np.float32)}, "zero_points: has a value that is no whole number from 0 to 15"),
        ({3: np.zeros(64, np.int32)}, "g_idx: is another order of the groups; expected depth // 32"),
        ({4: np.zeros(4, np.float32)}, "bias: has shape (4,); expected (3,)"),
    ],
)
def test_refusals(tmp_path, change, message):
    _, _, _, constants = operands(4, 32, 64, 3, True)
    constants += [None, None]
    attributes = {"K": 64, "N": 3, "bits": 4, "block_size": 32}
    for key, value in change.items():
        (attributes if isinstance(key, str) else constants)[key] = value
    with pytest.raises(intact.Error) as error:
        list(intact.read_grouped_weights(model_file(tmp_path / "m.onnx", constants, **attributes)))
    assert error.value.message == f"{tmp_path}/m.onnx: MatMulNBits 'product': {message}"


def test_malformed_node(tmp_path):
    onnx = pytest.importorskip("onnx")
    _, _, _, constants = operands(4, 32, 64, 3, True)
    path = model_file(tmp_path / "m.onnx", constants, K=64, N=3, bits=4, block_size=32)
    model = onnx.load(str(path))
    model.graph.node[0].name = ""
    del model.graph.node[0].output[:]
    path.write_bytes(model.SerializeToString())
    with pytest.raises(intact.Error, match="m.onnx: a node or a tensor is malformed"):
        list(intact.read_grouped_weights(path))


def gguf_rows(kind, n=3, groups=2):
    """Rows of bytes, and the integers and scales that they mean."""
    scales, rows = RNG.uniform(0.5, 2, (n, groups)).astype(np.float16), []
    b = RNG.integers(*((-8, 8) if kind == "Q4_0" else (-128, 128)), (n, groups, 32))
    for row, row_scales in zip(b, scales):
        data = b""
        for group, scale in zip(row.tolist(), row_scales):
            data += scale.tobytes()
            if kind == "Q4_0":
                data += bytes(group[i] + 8 | group[i + 16] + 8 << 4 for i in range(16))
            else:
                data += bytes(value & 255 for value in group)
        rows.append(np.frombuffer(data, np.uint8))
    return np.stack(rows), b.reshape(n, -1), scales


@pytest.mark.parametrize("kind,b_type", [("Q4_0", "u4"), ("Q8_0", "s8")])
def test_blocks_of_gguf(kind, b_type):
    rows, b, scales = gguf_rows(kind)
    weights = of_rows(rows, kind.lower())
    assert (weights.n, weights.k, weights.group, weights.b_type, weights.zero_points) == (
        3,
        64,
        32,
        b_type,
        None,
    )
    assert np.array_equal(weights.integers(), b) and np.array_equal(weights.scales, scales)
    with pytest.raises(intact.Error, match=r"rows: has dtype uint8 and shape \(3, .*\); expected"):
        of_rows(rows[:, 1:], kind.lower())


def random_rows(kind, n=3, blocks=2):
    """Rows of random blocks whose half-floats are finite."""
    size = FORMATS[kind].size
    rows = RNG.integers(0, 256, (n, blocks, size), np.uint8)
    halves = {"q6_k": [208], "mxfp4": []}.get(kind, [0, 2] if kind[3:] in ("1", "k") else [0])
    for at in halves:
        rows[..., at : at + 2] = RNG.uniform(-2, 2, (n, blocks, 1)).astype("<f2").view(np.uint8)
    if kind == "mxfp4":
        rows[..., 0] = RNG.integers(100, 150, (n, blocks))
    return rows.reshape(n, -1)


@pytest.mark.parametrize("kind", FORMATS)
def test_values_are_those_of_the_package_gguf(kind):
    gguf = pytest.importorskip("gguf")
    rows = random_rows(kind)
    quantization = getattr(
        gguf.GGMLQuantizationType,
        {"q4_k": "Q4_K", "q5_k": "Q5_K", "q6_k": "Q6_K"}.get(kind, kind.upper()),
        None,
    )
    if quantization is None:
        pytest.skip(f"this version of gguf has no {kind}")
    weights = of_rows(rows, kind)
    assert np.array_equal(weights.values(), gguf.quants.dequantize(rows, quantization))
    assert (weights.minimums is not None) == (kind[3:] == "1" or kind in ("q4_k", "q5_k"))


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind not in ("iq4_nl", "mxfp4")])
def test_like_ggml_is_near_the_product_of_values(kind):
    """test_ggml.py has its bytes."""
    rows = random_rows(kind)
    values = of_rows(rows, kind).values().astype(np.float64)
    a = np.random.default_rng(0).standard_normal((9, values.shape[1])).astype(np.float32)
    for m in (1, 9):
        product = a[:m] @ values.T
        magnitude = np.linalg.norm(a[:m], axis=1)[:, None] * np.linalg.norm(values, axis=1)
        assert (np.abs(intact.like_ggml(rows, kind, a[:m]) - product) < 0.02 * magnitude).all()
    for arguments, words in (
        ((rows[:, 1:], kind, a), "blocks: has dtype uint8 and shape"),
        ((rows, kind, a[:, 1:]), "a: has dtype float32 and shape"),
        ((rows, "mxfp4", a), "kind: is 'mxfp4'"),
    ):
        with pytest.raises(intact.Error, match=words):
            intact.like_ggml(*arguments)


def test_activations_like_ggml():
    """test_ggml.py multiplies them."""
    a = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    a[0, :32], a[1, 32:] = 0, 2.5  # 2.5·(127/2.5) is 127
    codes, scales = intact.quantize_like_ggml(a)
    assert codes.dtype == np.int8 and codes.shape == (3, 64) and scales.shape == (3, 2)
    assert not codes[0, :32].any() and scales[0, 0] == 0 and (codes[1, 32:] == 127).all()
    assert scales[1, 1] == np.float32(np.float16(2.5 / 127))
    steps = np.repeat(scales, 32, 1)
    assert (np.abs(codes * steps - a) <= steps * np.float32(0.57)).all()  # the scale is rounded to float16
    for wrong in (a[:, 1:], a.astype(np.float64), a[0]):
        with pytest.raises(intact.Error, match="expected float32 and rows of whole blocks of 32"):
            intact.quantize_like_ggml(wrong)


@pytest.mark.parametrize("kind", FORMATS)
def test_products_of_gguf(kind):
    """Near the product of floats, with activations that have few bits."""
    rows = random_rows(kind)
    weights = of_rows(rows, kind)
    a = RNG.integers(-127, 128, (4, weights.k)).astype(np.float32)
    a[:, :: weights.group] = 127  # the scale of each group is 1
    expected = a.astype(np.float64) @ weights.values().astype(np.float64).T
    got = intact.Grouped.from_gguf(rows, kind, granularity="groups").run(a)
    size = np.abs(a).astype(np.float64) @ np.abs(weights.values()).astype(np.float64).T
    assert np.all(np.abs(got - expected) <= 1e-5 * size)


def test_damaged_gguf_files(tmp_path):
    """A file that is cut, or has other bytes, is read or refused in one line."""
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tensor("w", random_rows("q8_0"), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file()
    writer.close()
    good = path.read_bytes()
    refused = 0
    for i in range(0, len(good), 5):
        damaged = bytearray(good)
        damaged[i] ^= 1 << i % 8
        for data in (good[:i], bytes(damaged)):
            path.write_bytes(data)
            try:
                list(intact.read_grouped_weights(path))
            except intact.Error as error:
                assert "m.gguf" in str(error) and "\n" not in str(error)
                refused += 1
    assert refused > len(good) // 5 // 2


def test_gguf_file(tmp_path):
    gguf = pytest.importorskip("gguf")
    path, rows = tmp_path / "m.gguf", {kind: gguf_rows(kind)[0] for kind in ("Q4_0", "Q8_0")}
    writer = gguf.GGUFWriter(str(path), "llama")
    for kind, data in rows.items():
        writer.add_tensor(kind, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.add_tensor(
        "experts", np.stack([rows["Q8_0"], rows["Q8_0"][::-1]]), raw_dtype=gguf.GGMLQuantizationType.Q8_0
    )
    writer.add_tensor("norm", np.ones(64, np.float32))
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file()
    writer.close()
    read = dict(intact.read_grouped_weights(path))
    assert list(read) == ["Q4_0", "Q8_0", "experts[0]", "experts[1]"]
    assert np.array_equal(read["experts[0]"].values(), read["Q8_0"].values())
    assert np.array_equal(read["experts[1]"].values(), read["Q8_0"].values()[::-1])
    for kind in rows:
        weights = read[kind]
        assert np.array_equal(
            weights.values(), gguf.quants.dequantize(rows[kind], gguf.GGMLQuantizationType[kind])
        )


def test_files_that_are_not_models(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"no model")
    for name in ("m.gguf", "missing.gguf"):
        with pytest.raises(intact.Error, match=name):
            list(intact.read_grouped_weights(tmp_path / name))


@pytest.mark.parametrize("bits,is_signed", [(4, True), (4, False), (8, True), (8, False)])
@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Gemm, transB", "Gemm, C of 1×N", "Gemm, beta without C"])
@pytest.mark.parametrize("has_points", [False, True])
def test_blocks_of_a_dequantizer(tmp_path, op, bits, is_signed, has_points):
    onnx = pytest.importorskip("onnx", minversion="1.16")
    k, n, group = 72, 3, 32
    low, high = (-(1 << bits - 1), 1 << bits - 1) if is_signed else (0, 1 << bits)
    b, points = RNG.integers(low, high, (n, k)), RNG.integers(low, high, (n, 3)) * has_points
    scales, bias = RNG.uniform(0.5, 2, (n, 3)).astype(np.float32), RNG.uniform(-1, 1, n).astype(np.float32)
    kind = {
        (4, True): onnx.TensorProto.INT4,
        (4, False): onnx.TensorProto.UINT4,
        (8, True): onnx.TensorProto.INT8,
        (8, False): onnx.TensorProto.UINT8,
    }[bits, is_signed]
    transposed, has_c = op.endswith("transB"), op.startswith("Gemm") and not op.endswith("without C")
    changes = {"transB": 1} if transposed else {"beta": 0.5} if op.startswith("Gemm, beta") else {}

    def tensor(name, values, kind):
        values = values if transposed else values.T
        return onnx.helper.make_tensor(name, kind, values.shape, values.ravel().tolist())

    tensors = [
        tensor("w", b, kind),
        tensor("s", scales, onnx.TensorProto.FLOAT),
        tensor("z", points, kind),
        onnx.numpy_helper.from_array(bias.reshape((1, n) if op.endswith("1×N") else n), "c"),
    ]
    nodes = [
        onnx.helper.make_node(
            "DequantizeLinear",
            ["w", "s"] + ["z"] * has_points,
            ["wf"],
            axis=int(transposed),
            block_size=group,
        ),
        onnx.helper.make_node(
            op.split(",")[0], ["a", "wf"] + ["c"] * has_c, ["y"], name="product", **changes
        ),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "g", [value("a", 1, ["m", k])], [value("y", 1, ["m", n])], tensors)
    path = tmp_path / "m.onnx"
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10),
        str(path),
    )
    ((name, weights),) = intact.read_grouped_weights(path)
    assert (name, weights.n, weights.k, weights.group) == ("product", n, k, group)
    assert weights.b_type == ("s" if is_signed else "u") + str(bits)
    assert np.array_equal(weights.integers(), b - np.repeat(points, group, 1)[:, :k]) and np.array_equal(
        weights.scales, scales
    )
    assert np.array_equal(weights.bias, bias) if has_c else weights.bias is None


@pytest.mark.parametrize("factor", ["alpha", "beta"])
def test_scaled_products_of_blocks_are_refused(tmp_path, factor):
    onnx = pytest.importorskip("onnx", minversion="1.16")
    tensors = [
        onnx.numpy_helper.from_array(np.ones(shape, dtype), name)
        for name, shape, dtype in (("w", (32, 2), np.int8), ("s", (1, 2), np.float32), ("c", 2, np.float32))
    ]
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["w", "s"], ["wf"], axis=0, block_size=32),
        onnx.helper.make_node("Gemm", ["a", "wf", "c"], ["y"], name="product", **{factor: 0.5}),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "g", [value("a", 1, ["m", 32])], [value("y", 1, ["m", 2])], tensors)
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10),
        str(tmp_path / "m.onnx"),
    )
    with pytest.raises(intact.Error, match=f"Gemm 'product': {factor}: is 0.5; expected 1"):
        list(intact.read_grouped_weights(tmp_path / "m.onnx"))


def test_nodes_that_cannot_be_read_are_skipped(tmp_path):
    onnx = pytest.importorskip("onnx")
    k, n, tensors, nodes = 1024, 2, [], []
    for name, group in (("first", 32), ("big", 512), ("last", 64)):
        _, _, _, constants = operands(4, group, k, n, False)
        tensors += [
            onnx.numpy_helper.from_array(array, f"{name}_{i}") for i, array in enumerate(constants[:2])
        ]
        nodes.append(
            onnx.helper.make_node(
                "MatMulNBits",
                ["a", f"{name}_0", f"{name}_1"],
                [f"{name}_y"],
                name=name,
                domain="com.microsoft",
                K=k,
                N=n,
                bits=4,
                block_size=group,
            )
        )
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "g", [value("a", 1, ["m", k])], [value("first_y", 1, None)], tensors
    )
    onnx.save(onnx.helper.make_model(graph), str(tmp_path / "m.onnx"))
    read = []
    with pytest.raises(intact.Error, match=r"m.onnx: MatMulNBits 'big': block_size: is 512; expected 16"):
        for name, _ in intact.read_grouped_weights(tmp_path / "m.onnx"):
            read.append(name)
    assert read == ["first", "last"]
