"""The control of comparisons: rounding noise in values, and in nothing else."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from commands import program  # noqa: E402
from intact._graph.control import CONTROL, control_variant  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from test_audit import HOT, save  # noqa: E402

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def changed(tmp_path, nodes, constants, inputs=(("x", FLOAT),)):
    """The names of the constants that the control changes."""
    path = save(tmp_path, nodes, constants, list(inputs))
    control = control_variant(onnx.load(str(path)))
    after = {tensor.name: numpy_helper.to_array(tensor) for tensor in control.graph.initializer}
    for name, array in after.items():
        near = np.isclose(array, constants[name], rtol=3 * CONTROL, atol=0)
        assert (near | (array == constants[name])).all()
    return {name for name, array in after.items() if array.tobytes() != np.asarray(constants[name]).tobytes()}


def f(*values):
    return np.array(values, np.float32)


def test_values_change(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Mul", ["c", "s"], ["y"]),
    ]
    assert changed(tmp_path, nodes, {"w": f([1, 2], [3, 4]), "b": f(0.3, 0.7), "s": f(0.3)}) == {
        "w",
        "b",
        "s",
    }


def test_draws_differ(tmp_path):
    path = save(
        tmp_path,
        [helper.make_node("Add", ["x", "b"], ["y"])],
        {"b": np.linspace(0.3, 0.7, 40, dtype=np.float32)},
        [("x", FLOAT)],
    )
    found = {control_variant(onnx.load(str(path)), draw=draw).SerializeToString() for draw in (0, 1, 2, 2)}
    assert len(found) == 3


@pytest.mark.parametrize(
    "node,constants",
    [
        (helper.make_node("Resize", ["x", "", "k"], ["y"]), {"k": f(1, 1, 2, 2)}),
        (helper.make_node("Pow", ["x", "k"], ["y"]), {"k": f(2)}),
        (helper.make_node("Pow", ["x", "k"], ["y"]), {"k": f(1.7)}),
        (helper.make_node("Greater", ["x", "k"], ["y"]), {"k": f(0.3)}),
        (helper.make_node("Clip", ["x", "k", "l"], ["y"]), {"k": np.float32(0.1), "l": np.float32(6)}),
        (helper.make_node("Sub", ["k", "x"], ["y"]), {"k": f(1)}),  # 1 - x, of a mask of 0 and 1
        (helper.make_node("Mul", ["x", "k"], ["y"]), {"k": f(0.125)}),
    ],
)
def test_constants_of_a_computation_stay(tmp_path, node, constants):
    assert not changed(tmp_path, [node], constants)


def test_a_constant_that_two_operators_read_stays_if_one_reads_more_than_a_value(tmp_path):
    nodes = [helper.make_node("Pow", ["x", "k"], ["a"]), helper.make_node("Mul", ["a", "k"], ["y"])]
    assert not changed(tmp_path, nodes, {"k": f(1.7)})


def test_what_becomes_an_integer_or_a_scale_stays(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "k"], ["b"]),
        helper.make_node("Floor", ["b"], ["c"]),
        helper.make_node("Cast", ["c"], ["y"], to=INT64),
    ]
    assert changed(tmp_path, nodes, {"w": f([1, 2], [3, 4]), "k": f(0.3)}) == {"w"}
    nodes = [
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Cast", ["n"], ["m"], to=FLOAT),
        helper.make_node("Div", ["k", "m"], ["s"]),
        helper.make_node("Resize", ["x", "", "s"], ["y"]),
    ]
    assert not changed(tmp_path, nodes, {"k": f(1.3, 1.3, 2.6, 2.6)})


def test_arithmetic_of_integers_stays_exact(tmp_path):
    nodes = [
        helper.make_node("Cast", ["x"], ["m"], to=FLOAT),
        helper.make_node("Mul", ["m", "k"], ["n"]),
        helper.make_node("Gather", ["e", "x"], ["r"]),
        helper.make_node("Add", ["r", "n"], ["y"]),
    ]
    constants = {"k": f(-3.3e38), "e": f([0.1, 0.2], [0.3, 0.4])}
    assert changed(tmp_path, nodes, constants, [("x", INT64)]) == {"e"}


def test_finite_numbers_stay_finite(tmp_path):
    lowest = np.finfo(np.float32).min
    path = save(
        tmp_path,
        [helper.make_node("Add", ["x", "k"], ["y"])],
        {"k": f(lowest, 1, -np.inf, lowest)},
        [("x", FLOAT)],
    )
    (tensor,) = control_variant(onnx.load(str(path))).graph.initializer
    found = numpy_helper.to_array(tensor)
    assert np.isfinite(found[[0, 1, 3]]).all() and found[1] < 1 and found[2] == -np.inf


@pytest.mark.parametrize(
    "extra,constants",
    [
        (
            [helper.make_node("Resize", ["r", "", "scales"], ["y"], mode="nearest", nearest_mode="floor")],
            {"scales": f(1, 1, 2, 2)},
        ),
        ([helper.make_node("Pow", ["r", "two"], ["y"])], {"two": f(2)}),
    ],
)
def test_audits_on_data_of_models_with_shapes_and_exponents(tmp_path, extra, constants):
    pytest.importorskip("onnxruntime")
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["c"], to=FLOAT),
        helper.make_node("Mul", ["c", "s"], ["m"]),
        helper.make_node("Reshape", ["m", "shape"], ["r"]),
        *extra,
    ]
    shape = np.array([1, 1, *HOT.shape[1:], -1], np.int64)
    path = save(tmp_path, nodes, {"w": HOT, "shape": shape, **constants}, [("x", FLOAT)])
    np.savez(tmp_path / "d.npz", x=np.array([[-1, -0.999, 0.5, 0], [0, 0, 0, -0.2]], np.float32))
    run = program("audit", path, "--data", tmp_path / "d.npz", "--json", tmp_path / "j")
    assert run.returncode == 1 and not run.stderr.startswith("intact: output"), run.stderr
    (output,) = json.loads((tmp_path / "j").read_text())["outputs"]
    assert output["control_largest"] is not None and output["control_largest"] < 1  # null: NaN
