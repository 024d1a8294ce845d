"""Sessions with the same bytes on every CPU: the table of operators, refusals, float products and sums, digests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", minversion="1.23", reason="needs onnxruntime 1.23")
onnx = pytest.importorskip("onnx", reason="needs onnx")
import intact
import intact.onnxruntime
from intact._engines import held_to as _held_to
from intact._operators import digest as _digest
from intact._operators import measure as _operators
from onnx import TensorProto, helper, numpy_helper

if not Path(intact.__file__).with_name("libintact_onnxruntime_ep.so").exists():
    pytest.skip("needs a build with INTACT_BUILD_ONNXRUNTIME=ON", allow_module_level=True)

MEASURED = onnxruntime.__version__ in intact.onnxruntime.measured_versions()
needs_table = pytest.mark.skipif(
    not MEASURED, reason=f"ONNX Runtime {onnxruntime.__version__} is not in onnxruntime_operators.json"
)


needs_avx2_and_more = pytest.mark.skipif(
    not (_held_to.has_avx512() and _held_to.can_be_held("avx2")), reason="needs AVX-512 and CPUID faulting"
)


def model(
    nodes: list, inputs: dict, outputs: list[str], constants: dict | None = None, opset: int = 17
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    ).SerializeToString()


def session(proto: bytes, threads: int = 1, **arguments) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, threads
    intact.onnxruntime.add(options, **arguments)
    return onnxruntime.InferenceSession(proto, options)


def stock(proto: bytes, threads: int = 1) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, threads
    return onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])


def node(session_: onnxruntime.InferenceSession, name: str) -> dict:
    (found,) = [each for each in intact.onnxruntime.report(session_) if each["name"] == name]
    return found


PRODUCT = model(
    [helper.make_node("MatMul", ["a", "b"], ["y"], name="product")], {"a": [None] * 4, "b": [None] * 4}, ["y"]
)


@needs_table
def test_the_table_says_what_a_short_run_finds():
    """What a few problems show must be in the table: the table may know more."""
    names = ["Softmax", "MatMulInteger", "LRN", "Erf"]
    table = _operators.measure(operators=names, count=3)
    assert [op.name for op in table.operators] == names and not any(op.refused for op in table.operators)
    known = intact.onnxruntime.depends_on()
    for op in table.operators:
        if any(level.changed for level in op.levels.values()):
            assert "the CPU" in known[op.name], op.name
        if op.threads.changed:
            assert "threads" in known[op.name], op.name
    if not table.not_tried and _held_to.has_avx512():  # the run can see a difference
        assert table.operators[0].levels["avx2"].changed and not table.operators[3].levels["avx2"].changed


@needs_table
def test_a_session_with_dependent_nodes_is_refused():
    norm = model([helper.make_node("LRN", ["x"], ["y"], name="norm", size=3)], {"x": [1, 8, 5, 5]}, ["y"])
    assert node(session(norm), "norm")["same_bytes"] is False
    with pytest.raises(
        Exception,
        match=r"reproducible: 1 node may have other bytes on another machine; node 'norm' \(LRN\): its "
        "bytes depend on the number of threads",
    ):
        session(norm, reproducible=True)
    many = model(
        [helper.make_node("LRN", [f"x{i}"], [f"x{i + 1}"], name=f"norm{i}", size=3) for i in range(7)],
        {"x0": [1, 8, 5, 5]},
        ["x7"],
    )
    with pytest.raises(Exception, match=r"reproducible: 7 nodes .*'norm4'.*; \.\.\."):
        session(many, reproducible=True)


@needs_table
@pytest.mark.parametrize(
    "op, attributes",
    [
        ("GlobalAveragePool", {}),
        ("AveragePool", {"kernel_shape": [3, 3]}),
        ("MaxPool", {"kernel_shape": [3, 3]}),
    ],
)
def test_pools_in_blocks_of_channels(op, attributes):
    """ONNX Runtime's blocks have 16 channels with AVX-512 and 8 with AVX2: 24 channels are cut into blocks with AVX2 only."""

    def pool(channels):
        return model(
            [helper.make_node(op, ["x"], ["y"], name="pool", **attributes)],
            {"x": [1, channels, 13, 13]},
            ["y"],
        )

    for channels in (12, 32):
        assert not node(session(pool(channels), reproducible=True), "pool")["taken"]
    for channels in (8, 24, None):
        assert node(session(pool(channels), reproducible=True), "pool")["taken"]
        assert not node(session(pool(channels)), "pool")["same_bytes"]


@needs_table
@pytest.mark.parametrize(
    "op, attributes, opset",
    [
        ("Log", {}, 13),
        ("Elu", {"alpha": 0.3}, 13),
        ("Celu", {"alpha": 1.7}, 13),
        ("Selu", {}, 13),
        ("Selu", {"alpha": 1.2, "gamma": 3.1}, 13),
        ("Softplus", {}, 13),
        ("Softplus", {}, 22),
    ],
)
def test_functions_of_elements_have_the_bytes_of_four_adjacent_ones(op, attributes, opset):
    """Of all kinds of floats, NaNs among them. ONNX Runtime computes the last elements of a tensor, or of a thread's part, in another way."""
    proto = model(
        [helper.make_node(op, ["x"], ["y"], name="function", **attributes)], {"x": [None]}, ["y"], opset=opset
    )
    x = np.arange(0, 2**32, 4129, dtype=np.uint32).view(np.float32)  # one number of 4129
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [x, rng.normal(0, 3, 200_000).astype(np.float32), np.float32([0.0, -0.0, 1.0, -104.0])]
    )
    x = x[: len(x) // 4 * 4]
    reproducible = session(proto, reproducible=True)
    assert node(reproducible, "function")["taken"]
    y = reproducible.run(None, {"x": x})[0]
    assert y.tobytes() == stock(proto).run(None, {"x": x})[0].tobytes()
    for threads in (2, 4):
        assert session(proto, threads, reproducible=True).run(None, {"x": x})[0].tobytes() == y.tobytes()
    for begin, end in ((0, 1), (3, 8), (17, 30), (8190, 8197)):
        assert reproducible.run(None, {"x": x[begin:end]})[0].tobytes() == y[begin:end].tobytes()
    assert reproducible.run(None, {"x": x[:0]})[0].shape == (0,)
    assert not node(session(proto), "function")["taken"]


@needs_table
def test_functions_of_one_thread_stay_with_onnx_runtime():
    x = np.random.default_rng(0).uniform(-1, 1, 300_003).astype(np.float32)
    for op in ("Sin", "Cos", "Asin", "Acos", "Atan"):
        proto = model([helper.make_node(op, ["x"], ["y"], name="function")], {"x": [None]}, ["y"])
        found = [session(proto, threads, reproducible=True) for threads in (1, 2, 4)]
        assert not node(found[0], "function")["taken"]
        assert len({each.run(None, {"x": x})[0].tobytes() for each in found}) == 1


def transposed_convolution(channels, image, group=1, constant=True, kernel=(3, 3), **attributes):
    """A model with one node, and its inputs: weights are constants, or a run gives them."""
    rng = np.random.default_rng(channels)
    tensors = {
        "w": rng.normal(0, 1, (channels, 6 // min(group, 2), *kernel)).astype(np.float32),
        "b": rng.normal(0, 1, 6 // min(group, 2) * group).astype(np.float32),
    }
    x = rng.normal(0, 1, (2, channels, *image)).astype(np.float32)
    of_run = {} if constant else {name: [None] * value.ndim for name, value in tensors.items()}
    proto = model(
        [
            helper.make_node(
                "ConvTranspose", ["x", "w", "b"], ["y"], name="convolution", group=group, **attributes
            )
        ],
        {"x": [2, channels] + [None] * len(image)} | of_run,
        ["y"],
        tensors if constant else None,
    )
    return proto, {"x": x} | ({} if constant else tensors)


@needs_table
@pytest.mark.parametrize(
    "channels, image, attributes",
    [
        (24, (19, 23), {"strides": [2, 2]}),
        (129, (5, 7), {}),
        (300, (3, 3), {"dilations": [2, 1], "pads": [1, 0, 0, 1]}),
        (512, (9, 8), {"group": 2, "strides": [2, 3], "output_padding": [1, 0]}),
        (512, (2, 1), {"group": 512}),
        (256, (31,), {"kernel": (20,), "strides": [10], "pads": [5, 5]}),
        (130, (2, 3, 4), {"kernel": (2, 2, 2), "auto_pad": "VALID"}),
    ],
)
@pytest.mark.parametrize("constant", [True, False])
def test_transposed_convolutions_of_unknown_images(channels, image, attributes, constant):
    """One order for every number of threads, and ONNX Runtime's with one thread."""
    proto, given = transposed_convolution(channels, image, constant=constant, **attributes)
    found = [
        session(proto, threads, reproducible=True, **isa)
        for threads, isa in ((1, {}), (3, {"max_isa": "avx2"}), (2, {"max_isa": "portable"}))
    ]
    assert node(found[0], "convolution")["taken"]
    outputs = {each.run(None, given)[0].tobytes() for each in found}
    assert outputs == {stock(proto).run(None, given)[0].tobytes()}


@needs_table
def test_transposed_convolutions_of_one_pixel_have_one_order():
    """ONNX Runtime multiplies a matrix by one column, and cuts its depths among the threads."""
    proto, given = transposed_convolution(1024, (1, 1), kernel=(8, 8))
    assert (
        len(
            {
                session(proto, threads, reproducible=True).run(None, given)[0].tobytes()
                for threads in (1, 2, 3, 4)
            }
        )
        == 1
    )
    assert not node(session(proto), "convolution")["same_bytes"]


@needs_table
def test_transposed_convolutions_of_few_channels_stay_with_onnx_runtime():
    proto = model(
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], name="convolution")],
        {"x": [2, 128, 19, 23]},
        ["y"],
        {"w": np.ones((128, 6, 3, 3), np.float32)},
    )
    assert not node(session(proto, reproducible=True), "convolution")["taken"]


@needs_table
@pytest.mark.parametrize(
    "attributes, reason",
    [
        ({"output_shape": [9, 9]}, "output_shape: is given"),
        ({"auto_pad": "SAME_UPPER"}, "auto_pad: is SAME_UPPER"),
        (
            {"output_padding": [1, 1], "dilations": [2, 2]},
            "output_padding: is 1; expected less than the stride, 1",
        ),
    ],
)
def test_transposed_convolutions_that_are_refused(attributes, reason):
    proto, _ = transposed_convolution(24, (5, 5), **attributes)
    with pytest.raises(Exception, match=reason):
        session(proto, reproducible=True)


@needs_table
def test_optimizations_that_order_needs():
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [4]}, ["y"])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with pytest.raises(intact.Error, match="graph_optimization_level: is ORT_DISABLE_ALL with reproducible"):
        intact.onnxruntime.add(options, reproducible=True)
    for entry in ("session.disable_prepacking", "session.disable_quant_qdq"):
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry(entry, "1")
        intact.onnxruntime.add(options, reproducible=True)
        with pytest.raises(Exception, match=f"{entry}: is '1' with reproducible"):
            onnxruntime.InferenceSession(proto, options)


@needs_table
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_products_of_one_column_have_one_order(op):
    proto = model(
        [helper.make_node(op, ["a", "b"], ["y"], name="product")], {"a": [4099, 100], "b": [100, 1]}, ["y"]
    )
    rng = np.random.default_rng(0)
    given = {
        name: rng.normal(0, 1, shape).astype(np.float32)
        for name, shape in (("a", (4099, 100)), ("b", (100, 1)))
    }
    found = [session(proto, threads, reproducible=True) for threads in (1, 2, 3, 7)]
    assert node(found[0], "product")["taken"]
    assert len({each.run(None, given)[0].tobytes() for each in found}) == 1


@needs_table
def test_sums_of_integers_have_one_order():
    axes = numpy_helper.from_array(np.array([1]), "axes")
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="reduce")],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [5, 37, 21])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
        [axes],
    )
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10
    ).SerializeToString()
    assert node(session(proto, reproducible=True), "reduce")["same_bytes"]


@needs_table
@needs_table
def test_a_softmax_between_bytes_is_computed_as_floats():
    """Else ONNX Runtime computes it: in bytes, or in floats in an order of the CPU."""
    bytes_of = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["f"]),
        helper.make_node("Softmax", ["f"], ["p"], name="softmax"),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "ys", "yz"], ["y"]),
    ]
    constants = {"s": np.float32(0.1), "z": np.uint8(9), "ys": np.float32(1 / 256), "yz": np.uint8(0)}
    proto = model(bytes_of, {"x": [4, 30]}, ["y"], constants)
    assert (
        node(session(proto, reproducible=True), "softmax")["taken"]
        and not node(session(proto), "softmax")["taken"]
    )


@needs_table
def test_a_convolution_in_integers_that_clamps_is_refused():
    """s8 activations and u8 weights of a run: without VNNI ONNX Runtime's sums clamp."""
    graph = helper.make_graph(
        [helper.make_node("ConvInteger", ["x", "w"], ["y"], name="conv")],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.INT8, [1, 16, 9, 9]),
            helper.make_tensor_value_info("w", TensorProto.UINT8, [8, 16, 3, 3]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
    )
    options = onnxruntime.SessionOptions()
    intact.onnxruntime.add(options, reproducible=True)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(Exception, match=r"node 'conv' \(ConvInteger\): its bytes depend on the CPU"):
        onnxruntime.InferenceSession(made.SerializeToString(), options)


def test_a_product_of_a_vector_is_refused_with_its_reason():
    proto = model(
        [helper.make_node("MatMul", ["a", "b"], ["y"], name="product")], {"a": [300], "b": [300, 7]}, ["y"]
    )
    with pytest.raises(Exception, match="A: has 1 dimensions; expected at least 2"):
        session(proto, reproducible=True)


def with_function(nodes: list, more: list = ()) -> bytes:
    """A model whose graph has a function of `nodes` from a to b, and `more` nodes from b to y."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "Function", ["a"], ["b"], nodes, opsets[:1])
    graph = helper.make_graph(
        [helper.make_node("Function", ["x"], ["b" if more else "y"], domain="local", name="call"), *more],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 5, 7])],
        [onnx.ValueInfoProto(name="y")],
    )
    return helper.make_model(
        graph, opset_imports=opsets, functions=[function], ir_version=10
    ).SerializeToString()


@needs_table
@pytest.mark.parametrize(
    "more", [[], [helper.make_node("Log", ["b"], ["y"])], [helper.make_node("Relu", ["b"], ["y"])]]
)
def test_functions_of_a_model_are_replaced_by_their_nodes(more):
    """ONNX Runtime asks before it replaces them, too."""
    x = np.random.default_rng(0).normal(0, 1, (1, 8, 5, 7)).astype(np.float32)
    for nodes in (
        [helper.make_node("Softmax", ["a"], ["b"])],
        [helper.make_node("Mish", ["a"], ["b"])],
        [helper.make_node("Relu", ["a"], ["b"])],
    ):
        proto = with_function(nodes, more)
        mine = session(proto, reproducible=True)
        assert (
            mine.run(None, {"x": x})[0].tobytes()
            == session(proto, 2, reproducible=True).run(None, {"x": x})[0].tobytes()
        )
        found = {each["op"]: each for each in intact.onnxruntime.report(mine)}
        assert "Function" not in found and all(each["same_bytes"] for each in found.values())
        assert nodes[0].op_type == "Relu" or found.get("Softmax", found.get("Softplus"))["taken"]
    with pytest.raises(
        Exception, match=r"reproducible: 1 node .*\(LRN\): its bytes depend on the number of threads"
    ):
        session(with_function([helper.make_node("LRN", ["a"], ["b"], size=3)], more), reproducible=True)


@needs_table
def test_a_function_that_is_never_replaced_is_refused_in_the_run():
    proto = with_function([helper.make_node("LRN", ["a"], ["b"], size=3)])
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_aot_function_inlining", "1")
    options.log_severity_level = 4
    intact.onnxruntime.add(options, reproducible=True)
    with pytest.raises(Exception, match="reproducible: 1 node may have other bytes"):
        onnxruntime.InferenceSession(proto, options).run(None, {"x": np.zeros((1, 8, 5, 7), np.float32)})


@needs_table
def test_inner_graphs_are_refused_too():
    inner = helper.make_graph(
        [helper.make_node("LRN", ["x"], ["z"], name="inner", size=3)],
        "then",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["w"], name="other")],
        "else",
        [],
        [helper.make_tensor_value_info("w", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=other, name="if")],
        "graph",
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 5, 5]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10
    ).SerializeToString()
    with pytest.raises(Exception, match="'inner'"):
        session(proto, reproducible=True)
    assert {each["name"] for each in intact.onnxruntime.report(session(proto)) if each["same_bytes"]} == {
        "if",
        "other",
    }


def test_options_that_contradict():
    with pytest.raises(Exception, match="mode: is 'saturating' with reproducible; expected exact"):
        session(PRODUCT, reproducible=True, mode="saturating")
    with pytest.raises(intact.Error, match="reproducible: is 1; expected True or False"):
        intact.onnxruntime.add(onnxruntime.SessionOptions(), reproducible=1)


@needs_table
def test_a_product_in_integers_by_chance_is_refused_or_taken():
    """A float product behind DequantizeLinear, which ONNX Runtime may compute in integers."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["y"], name="product"),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [3, 200])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.float32(0.1), "s"),
            numpy_helper.from_array(np.ones((200, 5), np.float32), "w"),
        ],
    )
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10
    ).SerializeToString()
    assert "in integers" in node(session(proto), "product")["depends"]
    with pytest.raises(Exception, match="in integers"):
        session(proto, reproducible=True)


def products(count: int):
    rng = np.random.default_rng(1)
    for _ in range(count):
        m, k, n = (int(rng.integers(2, most)) for most in (60, 500, 200))
        batch = (int(rng.integers(1, 3)), int(rng.integers(1, 4)))
        a, b = (
            rng.standard_normal((*batch, m, k)),
            rng.standard_normal((*(batch if rng.random() < 0.7 else (1, 1)), k, n)),
        )
        yield a.astype(np.float32), b.astype(np.float32)


def test_products_of_runs_have_one_order():
    """The bytes of ONNX Runtime with one thread, on every ISA and for every number of threads, rows alone too."""
    expected, isas = stock(PRODUCT), [isa for isa in intact.isas() if isa in ("portable", "avx2", "avx512")]
    mine = [session(PRODUCT, 1 + i, max_isa=isa, reproducible=True) for i, isa in enumerate(isas)]
    assert node(mine[-1], "product")["kernel"] == f"matmul_f32_{isas[-1]}"
    for a, b in products(24):
        wanted = expected.run(None, {"a": a, "b": b})[0]
        for isa, each in zip(isas, mine):
            computed = each.run(None, {"a": a, "b": b})[0]
            assert computed.tobytes() == wanted.tobytes(), f"{isa}: {a.shape} times {b.shape}"
        row = mine[-1].run(None, {"a": a[..., :1, :], "b": b})[0]
        assert row.tobytes() == wanted[..., :1, :].tobytes(), f"row alone: {a.shape} times {b.shape}"


def test_products_without_depth_or_rows():
    mine = session(PRODUCT, reproducible=True)
    for a, b in (((2, 1, 3, 0), (2, 1, 0, 4)), ((1, 1, 0, 5), (1, 1, 5, 4))):
        a, b = np.zeros(a, np.float32), np.zeros(b, np.float32)
        assert np.array_equal(mine.run(None, {"a": a, "b": b})[0], a @ b)
    with pytest.raises(Exception, match="B: has 4 rows; expected 5"):
        mine.run(None, {"a": np.zeros((1, 1, 2, 5), np.float32), "b": np.zeros((1, 1, 4, 3), np.float32)})


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean"])
def test_sums_over_an_inner_axis_have_one_order(op, opset):
    as_input = opset >= 18 or op == "ReduceSum"
    proto = model(
        [
            helper.make_node(
                op,
                ["x", "axes"] if as_input else ["x"],
                ["y"],
                name="reduce",
                keepdims=0,
                **({} if as_input else {"axes": [1]}),
            )
        ],
        {"x": [None] * 3},
        ["y"],
        {"axes": np.array([1])} if as_input else {},
        opset,
    )
    x = np.random.default_rng(2).standard_normal((5, 37, 21)).astype(np.float32)
    sums = np.zeros((5, 21), np.float32)
    for i in range(x.shape[1]):
        sums += x[:, i]
    wanted = sums / np.float32(37) if op == "ReduceMean" else sums
    for threads in (1, 2, 4):
        mine = session(proto, threads, reproducible=True)
        assert node(mine, "reduce")["taken"] and mine.run(None, {"x": x})[0].tobytes() == wanted.tobytes()
    assert stock(proto).run(None, {"x": x[:1]})[0].tobytes() == wanted[:1].tobytes()  # of one item


@needs_table
@pytest.mark.parametrize("axes", [[2], [1, -1]])
def test_sums_whose_order_is_one_stay_with_onnx_runtime(axes):
    proto = model(
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="reduce")],
        {"x": [None] * 3},
        ["y"],
        {"axes": np.array(axes)},
    )
    found = node(session(proto, reproducible=True), "reduce")
    assert not found["taken"] and found["same_bytes"]
    scattered = model(
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="reduce")],
        {"x": [None] * 3},
        ["y"],
        {"axes": np.array([0, 2])},
    )
    with pytest.raises(Exception, match="axes: are no adjacent constant axes"):
        session(scattered, reproducible=True)


@needs_table
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean"])
def test_sums_in_tensors_of_unknown_dimensions(op):
    """A run finds out which axes they are. Over the last axes the bytes are ONNX Runtime's."""
    rng = np.random.default_rng(0)
    for axes, shapes in (
        ([-1], [(1,), (5, 3), (7, 4), (6, 2, 37), (3, 203)]),
        ([2], [(3, 5, 9), (2, 2, 131), (2, 3, 4, 5)]),
        ([1, 2], [(4, 3, 7), (2, 5, 6, 3)]),
        ([0], [(1,), (31,), (20, 400), (9, 3, 2)]),
    ):
        graph = helper.make_graph(
            [helper.make_node(op, ["x", "axes"], ["y"], name="reduce")],
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
            [onnx.ValueInfoProto(name="y")],
            [numpy_helper.from_array(np.array(axes), "axes")],
        )
        proto = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10
        ).SerializeToString()
        found = [session(proto, threads, reproducible=True) for threads in (1, 3)]
        assert node(found[0], "reduce")["taken"]
        for shape in shapes:
            x = rng.normal(0, 1, shape).astype(np.float32)
            expected = stock(proto, 3).run(None, {"x": x})[0]  # one item for each thread, or fewer
            for each in found:
                assert each.run(None, {"x": x})[0].tobytes() == expected.tobytes(), (axes, shape)
        with pytest.raises(Exception, match="axes: are no adjacent ones of the input's 0 dimensions"):
            found[0].run(None, {"x": np.array(1, np.float32)})


@needs_table
def test_sums_of_minus_zeros_over_the_first_axis_have_one_sign():
    """ONNX Runtime begins with 0 or with the first element; which of both depends on the threads."""
    proto = model(
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="reduce")],
        {"x": [None] * 2},
        ["y"],
        {"axes": np.array([0])},
    )
    x = np.full((20, 400), -0.0, np.float32)
    assert (
        len(
            {
                session(proto, threads, reproducible=True).run(None, {"x": x})[0].tobytes()
                for threads in (1, 2, 3)
            }
        )
        == 1
    )
    assert not node(session(proto), "reduce")["same_bytes"]


INTACT = [sys.executable, "-c", "from intact._program import main; main()"]


def intact_command(*arguments: object, level: str = "") -> subprocess.CompletedProcess:
    environment = {**os.environ, **(_held_to.environment(level) if level else {})}
    return subprocess.run(
        [*INTACT, *map(str, arguments)], capture_output=True, text=True, check=False, env=environment
    )


@pytest.fixture
def files(tmp_path):
    """A model of a quantized product and of a Softmax, and two inputs."""
    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("Mul", ["f", "s"], ["h"]),
        helper.make_node("Softmax", ["h"], ["y"], name="softmax"),
    ]
    path = tmp_path / "model.onnx"
    path.write_bytes(
        model(nodes, {"x": [None, 64]}, ["y"], {"w": rng.integers(-128, 128, (64, 32)).astype(np.int8)})
    )
    data = tmp_path / "data"
    data.mkdir()
    for i in range(2):
        np.savez(data / f"{i}.npz", x=rng.standard_normal((3 + i, 64)).astype(np.float32))
    return path, data


@needs_table
def test_digests_are_compared(files, tmp_path):
    path, data = files
    printed = intact_command("digest", path, "--data", data, "--layers")
    assert printed.returncode == 0, printed.stderr
    lines = printed.stdout.splitlines()
    assert lines[0].startswith("intact digest 1, model ") and [
        line.split("  ")[1:] for line in lines[1:]
    ] == [
        ["int32", "3x32", "0.npz", "i"],
        ["float32", "3x32", "0.npz", "y"],
        ["int32", "4x32", "1.npz", "i"],
        ["float32", "4x32", "1.npz", "y"],
    ]
    receipt = tmp_path / "receipt"
    receipt.write_text(printed.stdout)
    for threads in (1, 2):
        again = intact_command(
            "digest", path, "--data", data, "--layers", "--threads", threads, "--against", receipt
        )
        assert (again.returncode, again.stdout) == (0, "the same bytes: 4 tensors\n")
    without = intact_command("digest", path, "--data", data)  # the outputs do not depend on --layers
    assert without.stdout.splitlines()[1:] == [line for line in lines[1:] if line.endswith("  y")]
    flipped = [*lines[:3], ("0" if lines[3][0] != "0" else "1") + lines[3][1:], *lines[4:]]
    receipt.write_text("\n".join(flipped) + "\n")
    found = intact_command("digest", path, "--data", data, "--layers", "--against", receipt)
    assert (found.returncode, found.stdout) == (1, "the first that differs: i of 1.npz\n")


@needs_avx2_and_more
@needs_table
def test_digests_show_a_softmax_of_onnx_runtime(files, tmp_path):
    """Planted: a softmax that stays with ONNX Runtime, in an attention. On AVX2 it has other bytes."""
    attention, inputs = tmp_path / "attention.onnx", tmp_path / "q.npz"
    attention.write_bytes(
        model(
            [
                helper.make_node(
                    "MultiHeadAttention", ["q", "q", "q"], ["y"], domain="com.microsoft", num_heads=2
                )
            ],
            {"q": [2, 60, 32]},
            ["y"],
        )
    )
    np.savez(inputs, q=(0.5 * np.random.default_rng(4).standard_normal((2, 60, 32))).astype(np.float32))
    script = (
        "import sys; from intact._operators import digest\n"
        "print(digest.digest(*sys.argv[1:3], threads=1, reproducible=sys.argv[3] == 'yes').to_text(), end='')"
    )

    def digest(level: str, *arguments: object) -> _digest.Digest:
        environment = {**os.environ, **(_held_to.environment(level) if level else {})}
        run = subprocess.run(
            [sys.executable, "-c", script, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        (tmp_path / "receipt").write_text(run.stdout)
        return _digest.read(tmp_path / "receipt")

    assert digest("", *files, "yes") == digest("avx2", *files, "yes")
    here, there = (digest(level, attention, inputs, "no") for level in ("", "avx2"))
    assert _digest.difference(here, there, "there") == "the first that differs: y of q.npz"


@pytest.mark.parametrize(
    "text, message",
    [
        (None, "--against: {}: No such file or directory"),
        ("", "--against: {}: does not begin with 'intact digest 1, model '"),
        ("intact digest 1, model 00\nab  float32\n", "--against: {}: line 2 has 2 columns; expected 5"),
        (
            "intact digest 1, model 00\nab  float32  3xy  s  n\n",
            "--against: {}: line 2 has the shape '3xy'; expected extents with x between",
        ),
    ],
)
def test_bad_digests_get_one_line(files, tmp_path, text, message):
    receipt = tmp_path / "receipt"
    if text is not None:
        receipt.write_text(text)
    run = intact_command("digest", *files[:1], "--data", files[1], "--against", receipt)
    assert (
        run.returncode == 2
        and run.stderr.startswith("intact: " + message.format(receipt))
        and run.stderr.count("\n") == 1
    )


@needs_table
def test_a_digest_holds_external_data(tmp_path):
    path, data = tmp_path / "model.onnx", tmp_path / "x.npz"
    np.savez(data, x=np.ones((2, 64), np.float32))
    heads = []
    for value in (1.0, 2.0):
        proto = onnx.load_from_string(
            model(
                [helper.make_node("Add", ["x", "w"], ["y"])],
                {"x": [None, 64]},
                ["y"],
                {"w": np.full(64, value, np.float32)},
            )
        )
        (tmp_path / "weights").unlink(missing_ok=True)
        onnx.save(proto, path, save_as_external_data=True, location="weights", size_threshold=0)
        heads.append(intact_command("digest", path, "--data", data).stdout.splitlines()[0])
    assert heads[0] != heads[1]
    (tmp_path / "weights").unlink()
    run = intact_command("digest", path, "--data", data)
    assert run.returncode == 2 and "weights: No such file or directory" in run.stderr
    path.write_bytes(b"no model")
    run = intact_command("digest", path, "--data", data)
    assert run.returncode == 2 and "is no ONNX model" in run.stderr


@needs_table
def test_digests_of_layers_do_not_load_external_data(tmp_path, monkeypatch):
    """A model of one file has at most 2 GB. Here the limit is 64 KB, and the weights have 1 MB."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("MatMul", ["f", "v"], ["y"]),
    ]
    proto = onnx.load_from_string(
        model(
            nodes,
            {"x": [None, 1024]},
            ["y"],
            {
                "w": rng.integers(-127, 128, (1024, 1024)).astype(np.int8),
                "v": rng.normal(0, 1, (1024, 8)).astype(np.float32),
            },
        )
    )
    data = tmp_path / "x.npz"
    np.savez(data, x=rng.normal(0, 1, (2, 1024)).astype(np.float32))
    onnx.save(proto, tmp_path / "whole.onnx")
    onnx.save(
        proto, tmp_path / "model.onnx", save_as_external_data=True, location="weights", size_threshold=0
    )
    expected = _digest.digest(str(tmp_path / "whole.onnx"), str(data), layers=True)
    create, sizes = _digest._session, []

    def limited(made: "str | bytes", *arguments: object) -> object:
        sizes.append(len(made))
        assert isinstance(made, str) or len(made) < 1 << 16, f"the model has {len(made)} bytes"
        return create(made, *arguments)

    monkeypatch.setattr(_digest, "_session", limited)
    for path in (tmp_path / "model.onnx", Path("model.onnx")):
        monkeypatch.chdir(tmp_path)
        assert _digest.digest(str(path), str(data), layers=True).lines == expected.lines
    assert len(sizes) == 4 and {line.name for line in expected.lines} == {"i", "y"}


def test_an_audit_says_how_far_answers_move_or_what_shows_it(files):
    path, data = files
    lines = intact_command("audit", path).stdout.splitlines()
    (place,) = (
        i
        for i, line in enumerate(lines)
        if line.startswith("the outputs depend on the CPU in ONNX Runtime, through ")
    )
    assert "1 x Softmax of floats" in lines[place]
    assert (
        lines[place + 1]
        == f"how far the outputs move depends on the inputs: intact audit {path} --data INPUTS.npz --emulate"
    )
    with_data = intact_command("audit", path, "--data", data)
    assert (
        "the outputs depend on the CPU" in with_data.stdout and "how far the outputs" not in with_data.stdout
    )


@needs_table
def test_a_digest_of_a_dependent_model_is_refused(tmp_path):
    path = tmp_path / "norm.onnx"
    path.write_bytes(
        model([helper.make_node("LRN", ["x"], ["y"], name="norm", size=3)], {"x": [1, 8, 5, 5]}, ["y"])
    )
    np.savez(tmp_path / "x.npz", x=np.ones((1, 8, 5, 5), np.float32))
    run = intact_command("digest", path, "--data", tmp_path / "x.npz")
    assert run.returncode == 2 and run.stderr.splitlines()[-1].startswith(
        "intact: digest: reproducible: 1 node"
    ), run.stderr


def test_operators_is_a_command():
    run = intact_command("operators", "--op", "Abs", "--count", 2)
    assert run.returncode == 0 and "the same bytes in all runs: Abs" in run.stdout
    run = intact_command("operators", "--op", "Nothing")
    assert run.returncode == 2 and run.stderr.startswith("intact: --op: is Nothing; expected one of Abs, ")
