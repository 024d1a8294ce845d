"""What ONNX Runtime's MatMulNBits computes with accuracy level 4 (docs/measurements/peers.md), and that intact reads its weights rightly."""

import intact
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

onnxruntime = pytest.importorskip("onnxruntime")
FLOAT = TensorProto.FLOAT


def node_file(path, bits, group, k, n, has_points, scales, seed=0):
    """A model with one MatMulNBits with random weights."""
    rng, groups = np.random.default_rng(seed), scales.shape[1]
    tensors = {"b": rng.integers(0, 256, (n, groups, group * bits // 8), dtype=np.uint8), "s": scales.ravel()}
    if has_points:
        tensors["z"] = rng.integers(0, 256, n * -(-groups * bits // 8), dtype=np.uint8)
    node = helper.make_node(
        "MatMulNBits",
        ["a", *tensors],
        ["c"],
        domain="com.microsoft",
        K=k,
        N=n,
        bits=bits,
        block_size=group,
        accuracy_level=4,
    )
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [value("a", FLOAT, ["m", k])],
        [value("c", FLOAT, ["m", n])],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    save(helper.make_model(graph, opset_imports=imports, ir_version=8), str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    ((_, weights),) = intact.read_grouped_weights(path)
    return weights, lambda a: session.run(None, {"a": a})[0]


def quantized(a, group):
    """s8 for each group of a row, and the groups' scales."""
    groups = -(-a.shape[1] // group)
    x = np.pad(a, ((0, 0), (0, groups * group - a.shape[1]))).reshape(len(a), groups, group)
    largest = np.abs(x).max(2)
    factor = np.float32(127) / np.where(largest > 0, largest, np.float32(np.inf))
    return np.rint(x * factor[..., None]).astype(np.int64), largest / np.float32(127)


def sums(q, weights):
    """The integer sum of each row, column and group."""
    groups = weights.scales.shape[1]
    b = np.pad(weights.integers(), ((0, 0), (0, groups * weights.group - weights.k))).reshape(
        weights.n, groups, -1
    )
    return np.einsum("mgk,ngk->mng", q, b.astype(np.int64))


@pytest.mark.parametrize("has_points", [False, True])
@pytest.mark.parametrize("k", [256, 400])
@pytest.mark.parametrize("group", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("bits", [4, 8])
def test_sums_of_groups_are_exact(tmp_path, bits, group, k, has_points):
    # With scales of 1 and activations whose group scales are 1, every float operation is exact.
    scales = np.ones((37, -(-k // group)), np.float32)
    weights, run = node_file(tmp_path / "m.onnx", bits, group, k, 37, has_points, scales)
    a = np.random.default_rng(1).integers(-127, 128, (9, k)).astype(np.float32)
    a[:, ::group] = 127
    a[0] = 127
    exact = sums(quantized(a, group)[0], weights).sum(2)
    for m in (1, 2, 9):
        assert np.array_equal(run(a[:m]), exact[:m])


@pytest.mark.parametrize("bits,group", [(4, 32), (4, 128), (8, 32), (8, 128)])
def test_activations_are_quantized_in_groups(tmp_path, bits, group):
    k, n = 512, 40
    rng = np.random.default_rng(2)
    scales = rng.uniform(0.5, 1, (n, k // group)).astype(np.float32)
    weights, run = node_file(tmp_path / "m.onnx", bits, group, k, n, True, scales)
    a = rng.standard_normal((5, k)).astype(np.float32)
    q, a_scales = quantized(a, group)

    def error(q):
        terms = sums(q, weights) * a_scales[:, None].astype(float) * scales.astype(float)
        return np.abs(run(a) - terms.sum(2)).max()

    scale = (np.abs(a) @ np.abs(weights.values()).T).mean()
    assert error(q) < 2e-7 * scale
    other = q.copy()
    other[:, 0, 0] += 1  # one activation of each row rounded otherwise: a planted fault
    assert error(other) > 2e-6 * scale
