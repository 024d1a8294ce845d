"""The search for the float constant that quantized weights were made from."""

import re

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from intact._compare.constants import FloatConstants, agreement  # noqa: E402
from intact._library import Error  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def float_model(path, constants, nodes=()):
    graph = helper.make_graph(
        [*nodes, helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1,))],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in constants.items()],
    )
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    return FloatConstants(path)


def rounded(weights, most=64):
    scale = np.abs(weights).max() / most
    return (np.rint(weights / scale) * scale).astype(np.float32)


@pytest.fixture
def weights():
    rng = np.random.default_rng(0)
    return {f"w{i}": rng.laplace(size=(12, 12)).astype(np.float32) for i in range(6)}


def test_values_decide_where_names_say_nothing(tmp_path, weights):
    constants = float_model(tmp_path / "f.onnx", weights)
    for name, values in weights.items():
        found = constants.find("onnx::MatMul_7_quantized", rounded(values))
        assert found.name == name and np.array_equal(found.values, values)
        assert found.agreement == agreement(values, rounded(values)) > 25


def test_a_square_matrix_is_found_transposed(tmp_path, weights):
    found = float_model(tmp_path / "f.onnx", weights).find("", rounded(weights["w3"]).T)
    assert found.name == "w3" and np.array_equal(found.values, weights["w3"].T)


def test_directions_of_a_recurrent_layer_are_found_transposed(tmp_path):
    stored = np.random.default_rng(1).normal(size=(2, 32, 5)).astype(np.float32)
    found = float_model(tmp_path / "f.onnx", {"r": stored}).find("", rounded(stored).transpose(0, 2, 1))
    assert found.values.shape == (2, 5, 32) and np.array_equal(found.values, stored.transpose(0, 2, 1))


def test_a_name_decides_between_equal_values(tmp_path, weights):
    constants = float_model(tmp_path / "f.onnx", {**weights, "copy": weights["w1"]})
    assert constants.find("copy_Transposed_quantized", rounded(weights["w1"])).name == "copy"
    assert constants.find("w1_quantized", rounded(weights["w1"])).name == "w1"


def test_a_name_with_other_values_is_passed_over(tmp_path, weights):
    constants = float_model(tmp_path / "f.onnx", weights)
    assert constants.find("w2_quantized", rounded(weights["w5"])).name == "w5"
    assert (
        constants.find("w2_quantized", np.random.default_rng(9).laplace(size=(12, 12)).astype(np.float32))
        is None
    )
    assert constants.find("w2_quantized", rounded(weights["w2"])[:11]) is None


def test_constant_operators_and_float16(tmp_path, weights):
    half = weights["w0"].astype(np.float16)
    node = helper.make_node("Constant", [], ["made"], value=numpy_helper.from_array(half))
    found = float_model(tmp_path / "f.onnx", {"w1": weights["w1"]}, [node]).find("", rounded(weights["w0"]))
    assert (
        found.name == "made"
        and found.values.dtype == np.float32
        and np.array_equal(found.values, half.astype(np.float32))
    )


def test_large_weights_are_compared_by_a_sample(tmp_path):
    rng = np.random.default_rng(2)
    weights = {name: rng.normal(size=(300, 200)).astype(np.float32) for name in "abc"}
    found = float_model(tmp_path / "f.onnx", weights).find("", rounded(weights["b"]))
    assert found.name == "b" and found.agreement == agreement(weights["b"], rounded(weights["b"]))


def test_a_file_that_is_no_model(tmp_path):
    (tmp_path / "f.onnx").write_bytes(b"\xff\xfe")
    with pytest.raises(Error, match="is no ONNX model"):
        FloatConstants(tmp_path / "f.onnx")


def test_a_file_cannot_name_an_array_of_a_variant():
    """Its location is a secret, and an array serves only tensors of its type and shape."""
    from intact._graph import weights as _weights

    class Owner:
        pass

    array, owner = np.arange(_weights.SHARED_SIZE, dtype=np.int32).reshape(2, -1), Owner()
    tensor = TensorProto(name="w")
    _weights.set_array(tensor, array, owner)
    assert _weights.shared(tensor) is array
    (entry,) = tensor.external_data
    assert re.fullmatch(r"intact:[0-9a-f]{32}:[0-9]+", entry.value)
    for change in ({"data_type": TensorProto.FLOAT}, {"dims": array.T.shape}):
        other = TensorProto(
            name="v",
            data_location=tensor.data_location,
            external_data=tensor.external_data,
            **{"data_type": tensor.data_type, "dims": tensor.dims, **change},
        )
        assert _weights.shared(other) is None
    del owner
    assert _weights.shared(tensor) is None
