"""`intact audit` on TFLite models and OpenVINO IRs made here."""

import json
import math

import numpy as np
import pytest
from commands import program
from intact._audit.audit import audit, read_model
from intact._audit.report import to_html, to_json, to_text, verdict
from intact._engines.table import engines
from intact._library import Error

HOT = np.zeros((4, 3), np.int8)
HOT[0:2, 1] = 127  # one pair of adjacent depths that can saturate


def refused(path):
    """The one line of a file that is refused."""
    run = program("audit", path)
    assert run.returncode == 2 and run.stdout == "" and run.stderr.startswith(f"intact: {path}: ")
    assert run.stderr.count("\n") == 1 and len(run.stderr) < 600
    return run.stderr


# ----- TFLite ---------------------------------------------------------------------------------------------------------

FLOAT32, INT32, UINT8, INT16, INT8, INT4 = 0, 2, 3, 7, 9, 17
CONV, DEPTHWISE, FULLY_CONNECTED, BATCH_MATMUL = 3, 4, 9, 126
OPTIONS = {CONV: 1, DEPTHWISE: 2, FULLY_CONNECTED: 8, BATCH_MATMUL: 101}  # types of the options' union


def flat(builder, value, shared=None):
    """Writes a table, {field: value}, a vector of tables or of numbers, or a string; returns its offset. Tables share one array
    that is `shared`."""
    if shared is not None and value is shared.get("array"):
        if "at" not in shared:
            shared["at"] = builder.CreateNumpyVector(value)
        return shared["at"]
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, np.ndarray):
        return builder.CreateNumpyVector(value)
    if isinstance(value, list):
        offsets = [flat(builder, item, shared) for item in value]
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()
    offsets = {
        field: flat(builder, item, shared) for field, item in value.items() if not isinstance(item, tuple)
    }
    builder.StartObject(max(value, default=-1) + 1)
    for field, item in value.items():
        if field in offsets:
            builder.PrependUOffsetTRelativeSlot(field, offsets[field], 0)
        else:  # (kind, number)
            getattr(builder, f"Prepend{item[0]}Slot")(field, item[1], 0)
    return builder.EndObject()


def tensor(name, shape, kind=INT8, buffer=0, scale=0.5, point=0, axis=0, **more):
    fields = {0: np.array(shape, np.int32), 1: ("Int8", kind), 2: ("Uint32", buffer), 3: name}
    if kind != FLOAT32:
        fields[4] = {
            2: np.atleast_1d(np.float32(scale)),
            3: np.atleast_1d(np.int64(point)),
            6: ("Int32", axis),
        }
    fields.update(more.get("fields", {}))
    return fields


def operator(code, inputs, outputs, options=None):
    fields = {0: ("Uint32", code), 1: np.array(inputs, np.int32), 2: np.array(outputs, np.int32)}
    if options:
        fields.update({3: ("Uint8", 1), 4: {field: ("Int8", value) for field, value in options.items()}})
    return fields


def tflite(tmp_path, codes, tensors, operators, buffers, graphs=1, shared=None):
    """A model file; `codes`: numbers of operators, or names of custom ones."""
    flatbuffers = pytest.importorskip("flatbuffers", reason="the package flatbuffers writes the models")
    builder = flatbuffers.Builder(1024)
    kinds = [
        {0: ("Int8", 32), 1: code, 3: ("Int32", 32)}
        if isinstance(code, str)
        else {0: ("Int8", min(code, 127)), 3: ("Int32", code)}
        for code in codes
    ]
    graph = {0: tensors, 1: np.array([0], np.int32), 2: np.array([len(tensors) - 1], np.int32), 3: operators}
    data = [{}] + [
        b if isinstance(b, dict) else {0: np.frombuffer(np.ascontiguousarray(b).tobytes(), np.uint8)}
        for b in buffers
    ]
    root = flat(
        builder,
        {0: ("Uint32", 3), 1: kinds, 2: [graph] * graphs, 4: data},
        {"array": shared} if shared is not None else None,
    )
    builder.Finish(root, b"TFL3")
    path = tmp_path / "model.tflite"
    path.write_bytes(bytes(builder.Output()))
    return path


def one(
    tmp_path,
    code,
    a_shape,
    weights,
    a_kind=INT8,
    w_kind=None,
    options=None,
    w_scale=0.25,
    w_axis=0,
    out_kind=INT8,
    before=None,
    a_scale=0.5,
    a_point=0,
    w_fields=None,
):
    """One operator; `before`: (code, options, scale, zero point) of one that makes its activations."""
    weights = np.asarray(weights)
    w_kind = {np.dtype(np.int8): INT8, np.dtype(np.uint8): UINT8}[weights.dtype] if w_kind is None else w_kind
    tensors = [
        tensor("in", a_shape, a_kind),
        tensor("a", a_shape, a_kind, scale=a_scale, point=a_point),
        tensor(
            "w", weights.shape, w_kind, 1, w_scale, np.zeros(np.size(w_scale)), w_axis, fields=w_fields or {}
        ),
        tensor("y", [1, 1], out_kind, scale=0.125),
    ]
    operators = [operator(1, [0], [1], before[1])] if before else []
    operators.append(operator(0, [1, 2, -1], [3], options))
    return tflite(tmp_path, [code, before[0] if before else 0], tensors, operators, [weights])


def test_a_tflite_product(tmp_path):
    path = one(tmp_path, FULLY_CONNECTED, [1, 4], np.ascontiguousarray(HOT.T))
    result = audit(path)
    (layer,) = result.layers
    assert result.engines == ["litert"] and result.is_proven and layer.engines["litert"].pairing == "none"
    assert (layer.layer.name, layer.layer.node, layer.layer.a_type, layer.layer.b_type) == (
        "y",
        "FULLY_CONNECTED",
        "s8",
        "s8",
    )
    assert np.array_equal(layer.layer.weights, HOT) and layer.layer.a_range == (-128, 127)
    result = audit(path, engines_asked=["all"])
    found = {name: (c.pairing, c.failing_pairs) for name, c in result.layers[0].engines.items()}
    assert found == {
        "onnxruntime": ("depths", 1),
        "fbgemm": ("depths", 1),
        "onednn": ("depths", 1),
        "openvino": ("depths", 1),
        "litert": ("none", 0),
    }
    certified = result.layers[0].engines["onednn"]
    # s8 activations, shifted by 128
    assert certified.witness == "column 1, depths 0 1: 255*127 + 255*127 = 64770"
    assert (certified.error, certified.error_unit) == (
        (64770 - 32767) * 0.5 * 0.25 / 0.125,
        "steps of the output",
    )
    assert "LiteRT as the engine: its products are exact" in result.layers[0].remedies
    text = to_text(result)
    assert (
        "the layer is proven safe in LiteRT" in text
        and to_html(result)
        and json.dumps(to_json(result), allow_nan=False)
    )


def test_remedies_are_those_of_the_engines(tmp_path):
    path = one(tmp_path, FULLY_CONNECTED, [1, 4], np.ascontiguousarray(HOT.T))
    for name, word in (
        ("onnxruntime", "x64quantprecision"),
        ("openvino", "overflow_fix"),
        ("fbgemm", "PyTorch: reduce_range"),
    ):
        (layer,) = audit(path, engines_asked=[name]).layers
        words = " ".join(layer.remedies)
        assert word in words and ("x64quantprecision" in words) == (name == "onnxruntime")


def test_tflite_convolutions(tmp_path):
    weights = np.zeros((2, 1, 2, 3), np.int8)  # O, kh, kw, I
    weights[1, 0, 1, :2] = 127
    path = one(tmp_path, CONV, [1, 5, 5, 3], weights, w_scale=[0.25, 0.5])
    (layer,) = audit(path, engines_asked=["onednn", "onnxruntime"]).layers
    assert (
        np.array_equal(layer.layer.weights, weights)
        and layer.layer.groups == 1
        and layer.layer.operator == "Conv"
    )
    # an odd last channel is alone
    assert layer.engines["onednn"].witness.startswith("output channel 1, depths 3 4: ")
    assert layer.engines["onnxruntime"].failing_pairs == 0  # 3 and 4 are no pair of the flattened window
    assert not any("ONNX Runtime" in remedy for remedy in layer.remedies)
    assert layer.engines["onednn"].error == (64770 - 32767) * 0.5 * 0.5 / 0.125
    grouped = np.full((4, 1, 1, 2), 127, np.int8)
    (layer,) = audit(one(tmp_path, CONV, [1, 5, 5, 4], grouped), engines_asked=["fbgemm"]).layers
    assert layer.layer.groups == 2 and layer.engines["fbgemm"].failing_pairs == 4


def test_tflite_depthwise(tmp_path):
    weights = np.zeros((1, 1, 2, 4), np.int8)  # 1, kh, kw, O
    weights[0, 0, :, 3] = 127, 126
    path = one(tmp_path, DEPTHWISE, [1, 5, 5, 4], weights, w_scale=[1, 1, 1, 2], w_axis=3)
    (layer,) = audit(path, engines_asked=["all"]).layers
    assert (
        layer.layer.operator == "Conv"
        and layer.layer.groups == 4
        and layer.layer.weights.shape == (4, 1, 2, 1)
    )
    assert layer.layer.weights[3].ravel().tolist() == [127, 126] and layer.layer.scales.tolist() == [
        4,
        4,
        4,
        8,
    ]
    assert {name: c.failing_pairs for name, c in layer.engines.items() if c.failing_pairs} == {"fbgemm": 1}
    # multiplier 2
    (layer,) = audit(one(tmp_path, DEPTHWISE, [1, 5, 5, 2], weights), engines_asked=["onnxruntime"]).layers
    assert (
        layer.layer.operator == "Conv"
        and layer.layer.groups == 2
        and layer.engines["onnxruntime"].failing_pairs == 1
    )


def test_tflite_batches_of_matrices(tmp_path):
    for options, weights in (({1: 0}, HOT[None]), ({1: 1}, HOT.T[None].copy())):
        (layer,) = audit(one(tmp_path, BATCH_MATMUL, [1, 7, 4], weights, options=options)).layers
        assert np.array_equal(layer.layer.weights, HOT)
    (layer,) = audit(one(tmp_path, BATCH_MATMUL, [2, 7, 4], np.stack([HOT, HOT]))).layers
    assert layer.layer.weights.shape == (4, 6)


@pytest.mark.parametrize(
    "before,scale,point,expected,why",
    [
        ((0, {0: 1}), 0.1, -20, (-21, 127), "RELU"),  # a step of slack: engines divide in float32
        ((0, {0: 3}), 0.1, -128, (-128, -67), "RELU6"),
        ((0, {0: 2}), 0.1, 5, (-6, 16), "RELU_N1_TO_1"),
        ((19, None), 0.1, 0, (-1, 127), "RELU"),
        ((14, None), 1 / 256, -128, (-128, 127), ""),
        ((25, None), 1 / 100, -128, (-128, -27), "SOFTMAX"),
        ((1, {5: 3}), 0.1, -128, (-128, -67), "RELU6"),
        ((18, {0: 3}), 0.1, -128, (-128, -67), "RELU6"),
        ((18, None), 0.1, -20, (-128, 127), ""),
        ((22, None), 0.1, -20, (-128, 127), ""),
        ((19, None), np.inf, 0, (-128, 127), ""),
    ],
)
def test_tflite_producers_bound_the_activations(tmp_path, before, scale, point, expected, why):
    path = one(tmp_path, FULLY_CONNECTED, [1, 4], HOT.T.copy(), before=before, a_scale=scale, a_point=point)
    (layer,) = audit(path).layers
    assert (layer.layer.a_range, layer.layer.a_why) == (expected, why)


def chain(
    tmp_path,
    code,
    scale=0.1,
    point=-100,
    options=None,
    extra=(),
    weights=None,
    product=FULLY_CONNECTED,
    first=-100,
):
    """RELU6 with the zero point `first`, an operator, and a product."""
    weights = HOT.T.copy() if weights is None else weights
    tensors = [
        tensor("in", [1, 1, 1, 4]),
        tensor("r", [1, 1, 1, 4], scale=0.1, point=first),
        tensor("a", [1, 1, 1, 4], scale=scale, point=point),
        tensor("w", weights.shape, INT8, 1),
        tensor("y", [1, 3]),
    ]
    return tflite(
        tmp_path,
        [21, code, product],
        tensors,
        [operator(0, [0], [1]), operator(1, [1, *extra], [2], options), operator(2, [2, 3, -1], [4])],
        [weights],
    )


@pytest.mark.parametrize(
    "code,scale,point,extra,expected",
    [
        (22, 0.1, -100, (), (-101, -39)),  # RESHAPE
        (17, 0.1, -100, (), (-101, -39)),  # MAX_POOL_2D
        (2, 0.1, -100, (1,), (-101, -39)),  # CONCATENATION of the same twice
        (2, 0.1, -100, (0,), (-128, 127)),  # and with one that has other numbers
        (40, 0.1, -100, (), (-102, -38)),  # MEAN rounds
        (114, 0.05, -128, (), (-128, -5)),  # QUANTIZE to another scale: 6.1 / 0.05 and a step
        (34, 0.1, -100, (), (-102, -38)),  # PAD
        (18, 0.1, -100, (3,), (-128, 127)),
    ],
)
def test_tflite_bounds_pass_operators(tmp_path, code, scale, point, extra, expected):
    layer = audit(chain(tmp_path, code, scale, point, extra=extra)).layers[-1]
    assert layer.layer.a_range == expected


def test_tflite_concatenations_of_two_scales_are_not_bounded(tmp_path):
    tensors = [
        tensor("in", [1, 4]),
        tensor("p", [1, 2], scale=0.1, point=-100),
        tensor("q", [1, 2], scale=0.05, point=-100),
        tensor("a", [1, 4], scale=0.1, point=-100),
        tensor("w", [3, 4], INT8, 1),
        tensor("y", [1, 3]),
    ]
    path = tflite(
        tmp_path,
        [21, 2, FULLY_CONNECTED],
        tensors,
        [
            operator(0, [0], [1]),
            operator(0, [0], [2]),
            operator(1, [1, 2], [3]),
            operator(2, [3, 4, -1], [5]),
        ],
        [HOT.T],
    )
    assert audit(path).layers[0].layer.a_range == (-128, 127)


def test_tflite_scales_of_another_axis_are_not_steps(tmp_path):
    path = one(tmp_path, FULLY_CONNECTED, [1, 4], HOT.T.copy(), w_scale=[1, 2, 3], w_axis=0)
    assert audit(path).layers[0].layer.scales.tolist() == [4, 8, 12]
    path = one(tmp_path, FULLY_CONNECTED, [1, 4], HOT.T.copy(), w_scale=[1, 2, 3], w_axis=1)
    assert audit(path).layers[0].layer.scales is None


def test_weights_behind_the_tables(tmp_path):
    tensors = [tensor("a", [1, 4]), tensor("w", [3, 4], INT8, 1), tensor("y", [1, 3])]

    def make(at, size):
        buffer = {1: ("Uint64", at), 2: ("Uint64", size)}
        return tflite(tmp_path, [FULLY_CONNECTED], tensors, [operator(0, [0, 1, -1], [2])], [buffer])

    for size, is_right in ((12, True), (13, False)):
        path = make(len(make(1 << 40, size).read_bytes()), size)
        with open(path, "ab") as file:
            file.write(HOT.T.tobytes())
        if is_right:
            assert np.array_equal(audit(path).layers[0].layer.weights, HOT)
        else:
            assert "buffer 1: needs bytes" in refused(path)


@pytest.mark.parametrize(
    "code,shape,options",
    [(CONV, (2, 1, 1, 2), {3: 3}), (DEPTHWISE, (1, 1, 1, 2), {4: 3}), (FULLY_CONNECTED, (2, 2), {0: 3})],
)
def test_tflite_products_bound_the_next(tmp_path, code, shape, options):
    extents = [1, 2] if code == FULLY_CONNECTED else [1, 5, 5, 2]
    tensors = [
        tensor("in", extents),
        tensor("a", extents, scale=0.1, point=-128),
        tensor("y", extents),
        tensor("w", shape, INT8, 1),
    ]
    path = tflite(
        tmp_path,
        [code],
        tensors,
        [operator(0, [0, 3, -1], [1], options), operator(0, [1, 3, -1], [2])],
        [np.ones(shape, np.int8)],
    )
    assert [layer.layer.a_range for layer in audit(path).layers] == [(-128, 127), (-128, -67)]


def test_tflite_padding_is_in_the_range(tmp_path):
    path = one(
        tmp_path,
        CONV,
        [1, 5, 5, 2],
        np.ones((1, 1, 1, 2), np.int8),
        before=(25, None),
        a_scale=0.01,
        a_point=120,
    )
    assert audit(path).layers[0].layer.a_range == (119, 127)
    path = one(
        tmp_path,
        CONV,
        [1, 5, 5, 2],
        np.ones((1, 1, 1, 2), np.int8),
        before=(20, None),
        a_scale=0.1,
        a_point=-500,
    )
    assert audit(path).layers[0].layer.a_range == (-128, -128)  # a zero point out of range
    # -128 with the zero point -500 is 37.2: far from the next tensor's 0.
    pointwise = np.ones((1, 1, 1, 4), np.int8)
    assert audit(chain(tmp_path, 114, 1, 0, first=-500)).layers[0].layer.a_range == (36, 38)
    assert audit(chain(tmp_path, 114, 1, 0, first=-500, weights=pointwise, product=CONV)).layers[
        0
    ].layer.a_range == (0, 38)
    assert audit(chain(tmp_path, 34, 1, 0, first=-500)).layers[0].layer.a_range == (-1, 38)  # PAD adds zeros


def test_tflite_types(tmp_path):
    weights = np.full((1, 2), 255, np.uint8)
    (layer,) = audit(
        one(tmp_path, FULLY_CONNECTED, [1, 2], weights, UINT8), engines_asked=["onnxruntime", "onednn"]
    ).layers
    assert (layer.layer.a_type, layer.layer.b_type, layer.layer.a_range) == ("u8", "u8", (0, 255))
    assert layer.engines["onnxruntime"].pairing == "none" and layer.engines["onednn"].pairing == "depths"
    (layer,) = audit(one(tmp_path, FULLY_CONNECTED, [1, 4], HOT.T.copy(), FLOAT32, out_kind=FLOAT32)).layers
    assert layer.layer.a_type == "s8" and "at run time" in layer.layer.note and layer.layer.scales is None


@pytest.mark.parametrize(
    "reason,harmless,make",
    [
        (
            "FULLY_CONNECTED: activations of 16 bits: no engine adds their products in int16",
            True,
            lambda t: one(t, FULLY_CONNECTED, [1, 4], HOT.T.copy(), INT16),
        ),
        (
            "FULLY_CONNECTED: weights of 4 bits",
            False,
            lambda t: one(t, FULLY_CONNECTED, [1, 4], HOT.T.copy(), w_kind=INT4),
        ),
        (
            "FULLY_CONNECTED: shuffled weights",
            False,
            lambda t: one(t, FULLY_CONNECTED, [1, 4], HOT.T.copy(), options={1: 1}),
        ),
        (
            "FULLY_CONNECTED: sparse weights",
            False,
            lambda t: one(t, FULLY_CONNECTED, [1, 4], HOT.T.copy(), w_fields={6: {}}),
        ),
        (
            "FULLY_CONNECTED: float activations and u8 weights",
            False,
            lambda t: one(t, FULLY_CONNECTED, [1, 4], np.ones((3, 4), np.uint8), FLOAT32),
        ),
        (
            "TRANSPOSE_CONV: not read",
            False,
            lambda t: one(t, 67, [1, 4, 4, 2], np.ones((1, 1, 1, 2), np.int8)),
        ),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM: not read", False, lambda t: one(t, 44, [1, 4], HOT.T.copy())),
        ("custom operator Mine\\x1b: not read", False, lambda t: one(t, "Mine\x1b", [1, 4], HOT.T.copy())),
    ],
)
def test_tflite_passed_over(tmp_path, reason, harmless, make):
    model = read_model(make(tmp_path))
    assert model.passed_over == {reason: 1} and not model.layers and model.not_audited == (not harmless)


@pytest.mark.parametrize(
    "kind,types,witness",
    [
        (INT8, ("s8", "s8"), "255*-128 + 255*-128 = -65280"),
        (UINT8, ("u8", "s8"), "255*-128 + 255*-128 = -65280"),
    ],
)
def test_tflite_products_of_two_activations(tmp_path, kind, types, witness):
    """LiteRT's products are exact. Engines that shift s8 activations to u8 clamp."""
    path = one(tmp_path, FULLY_CONNECTED, [1, 4], HOT.T.copy(), kind, w_fields={2: ("Uint32", 0)})
    result = audit(path, engines_asked=["litert", "onednn"])
    (product,) = result.products
    assert not result.model.passed_over and (product.layer.a_type, product.layer.b_type) == types
    assert product.engines["litert"].is_proven and product.engines["onednn"].witness == witness
    run = program("audit", path)
    assert run.returncode == 0 and "1 product of two activations is proven safe" in run.stdout
    assert program("audit", path, "--engine", "onednn").returncode == 1


def test_tflite_float_is_ignored(tmp_path):
    path = one(tmp_path, FULLY_CONNECTED, [1, 4], HOT.T.copy(), FLOAT32, w_kind=FLOAT32)
    model = read_model(path)  # the weights' bytes are not looked at
    assert not model.layers and not model.passed_over and program("audit", path).returncode == 2
    tensors = [
        tensor("in", [1, 4], FLOAT32),
        tensor("q", [3, 4], INT8, 1),
        tensor("w", [3, 4], FLOAT32),
        tensor("y", [1, 3], FLOAT32),
    ]
    path = tflite(
        tmp_path, [6, FULLY_CONNECTED], tensors, [operator(0, [1], [2]), operator(1, [0, 2, -1], [3])], [HOT]
    )
    assert read_model(path).passed_over == {
        "FULLY_CONNECTED: its weights are dequantized first, so the operator runs in float": 1
    }


def test_tflite_subgraphs_and_names(tmp_path):
    tensors = [tensor("in", [1, 4]), tensor("w", [3, 4], INT8, 1), tensor("y\x1b", [1, 3])]
    path = tflite(tmp_path, [FULLY_CONNECTED], tensors, [operator(0, [0, 1, -1], [2])], [HOT.T], graphs=2)
    result = audit(path)
    assert [layer.layer.name for layer in result.layers] == ["y\\x1b", "y\\x1b (operator 2)"]
    path.rename(tmp_path / "model.bin")  # the file's first bytes say what it is
    assert len(audit(tmp_path / "model.bin").layers) == 2


def test_data_needs_an_onnx_model(tmp_path):
    path = one(tmp_path, FULLY_CONNECTED, [1, 4], HOT.T.copy())
    run = program("audit", path, "--data", tmp_path / "x.npz")
    assert (
        run.returncode == 2
        and run.stdout == ""
        and run.stderr == f"intact: --data: needs an ONNX model; {path} is none\n"
    )


def test_the_command_on_tflite(tmp_path):
    path = one(tmp_path, FULLY_CONNECTED, [1, 4], HOT.T.copy())
    run = program("audit", path)
    assert run.returncode == 0 and run.stdout.endswith(
        "the layer is proven safe in LiteRT, whatever the input\n"
    )
    assert program("audit", path, "--engine", "onednn").returncode == 1


def damaged(tmp_path, name):
    weights = HOT.T.copy()
    if name == "weights_size":
        return one(tmp_path, FULLY_CONNECTED, [1, 4], weights, w_fields={0: np.array([3, 5], np.int32)})
    if name == "two_gigabytes":
        return one(
            tmp_path, FULLY_CONNECTED, [1, 4], weights, w_fields={0: np.array([1 << 16, 1 << 15], np.int32)}
        )
    if name == "negative":
        return one(tmp_path, FULLY_CONNECTED, [1, 4], weights, w_fields={0: np.array([-3, -4], np.int32)})
    if name == "many_dimensions":
        return one(tmp_path, FULLY_CONNECTED, [1, 4], weights, w_fields={0: np.ones(100, np.int32)})
    if name == "buffer":
        return one(tmp_path, FULLY_CONNECTED, [1, 4], weights, w_fields={2: ("Uint32", 1 << 31)})
    if name == "channels":
        return one(tmp_path, CONV, [1, 4, 4, 7], np.ones((2, 1, 1, 3), np.int8))
    if name == "layout":
        return one(tmp_path, DEPTHWISE, [1, 4, 4, 3], np.ones((2, 1, 1, 3), np.int8))
    path = one(tmp_path, FULLY_CONNECTED, [1, 4], weights)
    data = bytearray(path.read_bytes())
    if name == "empty":
        data = data[:8]
    if name == "vtable":
        root = int.from_bytes(data[:4], "little")
        data[root : root + 4] = (root + 4).to_bytes(4, "little")  # four bytes before the file
    if name == "root":
        data[0:4] = b"\xff\xff\xff\xff"
    if name == "cut":
        data = data[: len(data) // 2]
    if name == "length":  # of the weights' buffer
        at = bytes(data).index(weights.tobytes())
        data[at - 4 : at] = (2 << 30).to_bytes(4, "little")
    path.write_bytes(bytes(data))
    return path


@pytest.mark.parametrize(
    "name,word",
    [
        ("weights_size", "holds 12 bytes; expected 15"),
        ("two_gigabytes", "expected 2147483648"),
        ("negative", "has the shape (-3, -4)"),
        ("many_dimensions", "expected at most 8"),
        ("buffer", "number 2147483648 of 2"),
        ("channels", "has 7 input channels"),
        ("layout", "expected (1, kh, kw, O)"),
        ("empty", "leads out of the file"),
        ("root", "leads out of the file"),
        ("cut", ""),
        ("length", "claims 2147483648 elements"),
        ("vtable", "leads out of the file"),
    ],
)
def test_damaged_tflite_files_get_one_line(tmp_path, name, word):
    assert word in refused(damaged(tmp_path, name))


def test_tflite_operators_that_share_their_outputs(tmp_path):
    outputs = np.arange(20000, dtype=np.int32)
    reshape = {0: ("Uint32", 0), 1: np.array([0], np.int32), 2: outputs}
    path = tflite(tmp_path, [22], [tensor("a", [1, 4])], [reshape] * 20000, [], shared=outputs)
    assert "more outputs than the file has bytes" in refused(path)


def test_other_files_named_tflite(tmp_path):
    for contents in (b"", b"\x00" * 7, b"<net/>", b"\x00\xff" * 50):
        (tmp_path / "x.tflite").write_bytes(contents)
        assert "is no TFLite model" in refused(tmp_path / "x.tflite")
    assert "No such file" in refused(tmp_path / "nothing.tflite")


def test_cycles_of_tflite_operators_end(tmp_path):
    weights = HOT.T.copy()
    tensors = [tensor("a", [1, 4]), tensor("b", [1, 4]), tensor("w", [3, 4], INT8, 1), tensor("y", [1, 3])]
    many = [0] * 2000  # concatenations of each other, many times over
    path = tflite(
        tmp_path,
        [2, FULLY_CONNECTED],
        tensors,
        [operator(0, many, [1]), operator(0, [1] * 2000, [0]), operator(1, [1, 2, -1], [3])],
        [weights],
    )
    assert audit(path).layers[0].layer.a_range == (-128, 127)


def test_spoilt_tflite_files_are_read_or_refused(tmp_path):
    weights = np.ones((2, 3, 3, 4), np.int8)
    path = one(tmp_path, CONV, [1, 5, 5, 4], weights, w_scale=[0.25, 0.5], before=(CONV, {3: 1}))
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    outcomes = set()
    for i in range(2000):
        data = bytearray(good)
        if i % 3 == 0:
            data = data[: rng.integers(8, len(data))]
        else:
            for at in rng.integers(8, len(data), 1 + i % 4):
                data[at] = rng.choice([0, 1, 127, 128, 255, data[at] ^ 1 << rng.integers(8)])
        path.write_bytes(bytes(data))
        try:
            read_model(path)
            outcomes.add("read")
        except Error as error:
            assert "\n" not in error.message and len(error.message) < 600
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


# ----- OpenVINO IR ----------------------------------------------------------------------------------------------------


class Net:
    """Writes an IR: layers in a .xml, constants in a .bin."""

    def __init__(self):
        self.layers, self.edges, self.data = [], [], b""

    def add(self, kind, *inputs, name=None, **data):
        number = len(self.layers)
        attributes = "".join(f' {key}="{value}"' for key, value in data.items())
        self.layers.append(
            f'<layer id="{number}" name="{name or kind + str(number)}" type="{kind}" version="opset1">'
            f"<data{attributes}/></layer>"
        )
        self.edges += [
            f'<edge from-layer="{source}" from-port="9" to-layer="{number}" to-port="{port}"/>'
            for port, source in enumerate(inputs)
        ]
        return number

    def constant(self, values, kind=None, **changes):
        values = np.asarray(values)
        kind = (
            kind
            or {"float32": "f32", "float16": "f16", "int8": "i8", "uint8": "u8", "int64": "i64"}[
                str(values.dtype)
            ]
        )
        data = {
            "element_type": kind,
            "shape": ",".join(map(str, values.shape)),
            "offset": len(self.data),
            "size": values.nbytes,
            **changes,
        }
        self.data += values.tobytes()
        return self.add("Const", **data)

    def fake_quantize(self, source, low, high, levels=256, out=None):
        bounds = [self.constant(np.float32(v)) for v in (low, high, *(out or (low, high)))]
        return self.add("FakeQuantize", source, *bounds, levels=levels)

    def weights(self, values, scale=0.25, point=None):
        node = self.add("Convert", self.constant(values), destination_type="f32")
        if point is not None:
            node = self.add("Subtract", node, self.constant(np.float32(point)))
        return self.add("Multiply", node, self.constant(np.float32(scale)))

    def text(self, head=""):
        return (
            f'<?xml version="1.0"?>{head}<net name="n" version="11"><layers>{"".join(self.layers)}</layers>'
            f"<edges>{''.join(self.edges)}</edges></net>"
        )

    def save(self, tmp_path, text=None):
        (tmp_path / "m.xml").write_text(self.text() if text is None else text)
        (tmp_path / "m.bin").write_bytes(self.data)
        return tmp_path / "m.xml"


def ir_product(
    tmp_path,
    kind="MatMul",
    weights=HOT,
    low=0.0,
    high=2.55,
    levels=256,
    before=None,
    after=None,
    scale=0.25,
    point=None,
    quantize=True,
    make=None,
    out=0.01 * 255,
    **data,
):
    """`before` the FakeQuantize and `after` it: a layer and its attributes."""
    net = Net()
    source = net.add("Parameter")
    if before:
        source = net.add(before[0], source, **before[1])
    if quantize:
        source = net.fake_quantize(source, low, high, levels)
    if after:
        source = net.add(
            after[0], source, *[net.constant(np.float32(value)) for value in after[2:]], **after[1]
        )
    product = net.add(
        kind, source, make(net) if make else net.weights(weights, scale, point), name="p", **data
    )
    net.add(
        "Result",
        net.fake_quantize(net.add("ReLU", net.add("Add", product, net.constant(np.float32([1])))), 0.0, out),
    )
    return net.save(tmp_path)


def test_an_ir_product(tmp_path):
    result = audit(ir_product(tmp_path))
    (layer,) = result.layers
    assert result.engines == ["openvino"] and (layer.layer.a_type, layer.layer.b_type) == ("u8", "s8")
    assert (
        np.array_equal(layer.layer.weights, HOT)
        and layer.layer.a_range == (0, 255)
        and result.model.operators == 7
    )
    found = layer.engines["openvino"]
    assert (found.pairing, found.failing_pairs) == ("depths", 1)
    assert (
        found.error == math.ceil((64770 - 32767) * 0.01 * 0.25 / 0.01)
        and found.error_unit == "steps of the output"
    )
    assert "can compute wrong sums in OpenVINO" in verdict(result)
    assert to_html(result) and json.dumps(to_json(result), allow_nan=False)
    (layer,) = audit(
        ir_product(tmp_path, weights=HOT.T.copy(), scale=[[1.0], [2.0], [3.0]], transpose_b="true")
    ).layers
    assert np.array_equal(layer.layer.weights, HOT) and layer.layer.scales == pytest.approx([1, 2, 3])
    assert audit(ir_product(tmp_path), engines_asked=["all"]).layers[0].engines["litert"].pairing == "none"


def test_ir_types_of_activations(tmp_path):
    (layer,) = audit(
        ir_product(tmp_path, low=-1.28, high=1.27), engines_asked=["openvino", "onnxruntime"]
    ).layers
    assert layer.layer.a_type == "s8" and [c.failing_pairs for c in layer.engines.values()] == [1, 1]
    (layer,) = audit(ir_product(tmp_path, low=-1.27, high=1.27, levels=255)).layers
    assert layer.layer.a_type == "s8"
    (layer,) = audit(ir_product(tmp_path, low=-1.0, high=1.55)).layers
    assert layer.layer.a_type == "u8" and layer.layer.a_range == (0, 255)
    (layer,) = audit(
        ir_product(tmp_path, "Convolution", np.ones((2, 4, 1, 1), np.int8), low=-1.28, high=1.27)
    ).layers
    assert layer.layer.a_type == "u8" and "become u8" in layer.layer.note


@pytest.mark.parametrize(
    "before,low,high,expected,why",
    [
        (("Sigmoid", {}), 0.0, 2.55, (0, 101), "Sigmoid"),  # one step of slack: engines divide in float32
        (("SoftMax", {}), 0.0, 2.55, (0, 101), "Softmax"),
        (("Clamp", {"min": 0, "max": 1}), 0.0, 2.55, (0, 101), "Clamp"),
        (("ReLU", {}), 0.0, 2.55, (0, 255), ""),
        (("ReLU", {}), -1.0, 1.55, (99, 255), "Relu"),
        (("ReLU", {}), -1.28, 1.27, (-1, 127), "Relu"),
        (("Tanh", {}), -1.28, 1.27, (-101, 101), "Tanh"),
        (("Clamp", {"min": 1, "max": 0}), 0.0, 2.55, (0, 255), ""),
        (("Convolution", {}), 0.0, 2.55, (0, 255), ""),
    ],
)
def test_ir_producers_bound_the_activations(tmp_path, before, low, high, expected, why):
    (layer,) = audit(ir_product(tmp_path, before=before, low=low, high=high)).layers
    assert (layer.layer.a_range, layer.layer.a_why) == (expected, why)


@pytest.mark.parametrize(
    "after,expected",
    [
        (("MaxPool", {}), (0, 101)),
        (("Transpose", {}), (0, 101)),
        (("Pad", {}), (0, 255)),
        (("AvgPool", {}), (0, 255)),
        (("ReLU", {}), (0, 255)),
        (("Multiply", {}, 2.0), (0, 101)),
        (("Add", {}, 2.0), (0, 255)),
    ],
)
def test_ir_activations_pass_layers(tmp_path, after, expected):
    (layer,) = audit(ir_product(tmp_path, before=("Sigmoid", {}), after=after)).layers
    assert layer.layer.a_range == expected and bool(layer.layer.note) == (after[0] in ("ReLU", "Add"))
    factor = 2 if after[0] == "Multiply" else 1
    assert layer.layer.scales == pytest.approx(0.25 * factor)


def test_ir_activations_dequantized_in_steps(tmp_path):
    net = Net()
    source = net.add(
        "Convert", net.fake_quantize(net.add("Parameter"), 0.0, 2.55, out=(0.0, 255.0)), destination_type="u8"
    )
    source = net.add(
        "Subtract", net.add("Convert", source, destination_type="f32"), net.constant(np.float32(3))
    )
    source = net.add(
        "Multiply", net.add("Multiply", source, net.constant(np.float32(2))), net.constant(np.float32(3))
    )
    net.fake_quantize(net.add("MatMul", source, net.weights(HOT, 0.5)), 0.0, 25.5)
    (layer,) = audit(net.save(tmp_path)).layers
    assert layer.layer.scales == pytest.approx(2 * 3 * 0.5 / 0.1) and layer.layer.note == ""


def test_ir_padding_is_in_the_range(tmp_path):
    path = ir_product(
        tmp_path, "Convolution", np.ones((2, 4, 1, 1), np.int8), before=("Clamp", {"min": 1, "max": 2})
    )
    assert audit(path).layers[0].layer.a_range == (0, 201)
    path = ir_product(tmp_path, weights=np.ones((4, 2), np.int8), before=("Clamp", {"min": 1, "max": 2}))
    assert audit(path).layers[0].layer.a_range == (99, 201)


def test_ir_convolutions(tmp_path):
    weights = np.zeros((2, 3, 1, 2), np.int8)  # O, I, kh, kw
    weights[1, :2, 0, 1] = 127
    (layer,) = audit(
        ir_product(tmp_path, "Convolution", weights, scale=np.ones((2, 1, 1, 1)) * [[[[0.5]]], [[[1.0]]]]),
        engines_asked=["openvino", "onnxruntime"],
    ).layers
    assert layer.layer.weights.shape == (2, 1, 2, 3) and layer.layer.scales == pytest.approx([0.5, 1])
    assert [c.failing_pairs for c in layer.engines.values()] == [1, 0]
    grouped = np.full((2, 3, 2, 1, 1), 127, np.int8)  # G, O/G, I/G, kh, kw
    (layer,) = audit(
        ir_product(tmp_path, "GroupConvolution", grouped, scale=np.arange(1, 7).reshape(2, 3, 1, 1, 1))
    ).layers
    assert (
        layer.layer.groups == 2
        and layer.layer.weights.shape == (6, 1, 1, 2)
        and layer.layer.operator == "Conv"
    )
    assert layer.engines["openvino"].failing_pairs == 6 and layer.layer.scales == pytest.approx(range(1, 7))
    (layer,) = audit(ir_product(tmp_path, "GroupConvolution", np.full((4, 1, 1, 1, 2), 127, np.int8))).layers
    assert layer.layer.operator == "Conv" and layer.engines["openvino"].pairing == "none"


def test_ir_weights_behind_a_fake_quantize(tmp_path):
    values = np.float32([[1.0, -1.0, 0.5, 0.004], [2.0, -2.0, 0.012, 0.02]]).T.copy()  # K, N

    def make(net):
        bounds = [net.constant(np.float32([v])) for v in ([-1.0, -2.0], [1.0, 2.0]) * 2]
        return net.add("FakeQuantize", net.constant(values), *bounds, levels=255)

    (layer,) = audit(ir_product(tmp_path, make=make)).layers
    assert (
        layer.layer.weights.T.tolist() == [[127, -127, 63, 1], [127, -127, 1, 1]]
        and layer.layer.b_type == "s8"
    )
    assert layer.layer.scales == pytest.approx([1 / 127, 2 / 127])

    def half(net):  # float16, converted; 256 levels
        bounds = [net.constant(np.float32(v)) for v in (-1.28, 1.27, -1.28, 1.27)]
        wide = net.add("Convert", net.constant(values.astype(np.float16)), destination_type="f32")
        return net.add("FakeQuantize", wide, *bounds, levels=256)

    (layer,) = audit(ir_product(tmp_path, make=half)).layers
    assert layer.layer.weights[:, 1].tolist() == [127, -128, 1, 2]


def test_ir_weights_pass_a_reshape_and_a_transpose(tmp_path):
    def make(net):
        flat_weights = net.weights(HOT.T.copy().reshape(3, 2, 2), np.float32([1, 2, 3]).reshape(3, 1, 1))
        matrix = net.add("Reshape", flat_weights, net.constant(np.int64([0, -1])), special_zero="true")
        return net.add("Transpose", matrix, net.constant(np.int64([1, 0])))

    (layer,) = audit(ir_product(tmp_path, make=make)).layers
    assert np.array_equal(layer.layer.weights, HOT) and layer.layer.scales == pytest.approx([1, 2, 3])


FLOAT = "OpenVINO runs it in float without VNNI"


@pytest.mark.parametrize(
    "reason,harmless,options",
    [
        (f"MatMul: weights of 8 bits and float activations: {FLOAT}", True, {"quantize": False}),
        (f"MatMul: weights with a zero point: {FLOAT}", True, {"point": 5}),
        (f"MatMul: u8 weights: {FLOAT}", True, {"weights": HOT.astype(np.uint8)}),
        (f"MatMul: activations of 128 levels: {FLOAT}", True, {"levels": 128}),
        (
            f"Convolution: activations with several scales: {FLOAT}",
            True,
            {
                "kind": "Convolution",
                "weights": np.ones((2, 4, 1, 1), np.int8),
                "low": np.zeros((1, 4, 1, 1)),
                "high": np.ones((1, 4, 1, 1)),
            },
        ),
        (
            "ConvolutionBackpropData: not read",
            False,
            {"kind": "ConvolutionBackpropData", "weights": np.ones((4, 2, 1, 1), np.int8)},
        ),
        ("LSTMCell: not read", False, {"kind": "LSTMCell"}),
        (
            "MatMul: weights of type u4",
            False,
            {"make": lambda net: net.add("Convert", net.constant(HOT, "u4"))},
        ),
    ],
)
def test_ir_passed_over(tmp_path, reason, harmless, options):
    model = read_model(ir_product(tmp_path, **options))
    assert model.passed_over == {reason: 1} and not model.layers and model.not_audited == (not harmless)
    assert (
        audit(ir_product(tmp_path, point=0)).layers
        and not audit(ir_product(tmp_path, point=0)).model.passed_over
    )


def test_ir_concatenations(tmp_path):
    def make(ranges):
        net = Net()
        parts = [net.fake_quantize(net.add("Sigmoid", net.add("Parameter")), 0.0, high) for high in ranges]
        net.add("MatMul", net.add("Concat", *parts, axis=1), net.weights(HOT))
        return audit(net.save(tmp_path)).layers[0].layer

    assert make([2.55, 2.55]).a_range == (0, 255) and make([2.55, 2.55]).note == ""
    assert make([2.55, 5.1]).a_type == "u8" and "audited as int8" in make([2.55, 5.1]).note
    net = Net()
    both = net.add("Concat", net.fake_quantize(net.add("Parameter"), 0.0, 2.55), net.add("Parameter"))
    net.add("MatMul", both, net.weights(HOT))
    assert not read_model(net.save(tmp_path)).layers


def test_ir_products_share_weights(tmp_path):
    net = Net()
    weights = net.weights(HOT)
    for _ in range(2):
        net.add("MatMul", net.fake_quantize(net.add("Parameter"), 0.0, 2.55), weights)
    assert len(read_model(net.save(tmp_path)).layers) == 2


def test_ir_two_tensors(tmp_path):
    net = Net()
    a, b = (net.fake_quantize(net.add("Parameter"), 0.0, 2.55) for _ in range(2))
    net.add("MatMul", a, b)
    net.add("MatMul", net.weights(HOT), b)
    model = read_model(net.save(tmp_path))
    assert (
        not model.products
        and model.not_audited == 1
        and model.passed_over
        == {
            f"MatMul: its second operand is u8 and changes from run to run: {FLOAT}": 1,
            "MatMul: its first operand is the constant one": 1,
        }
    )


@pytest.mark.parametrize(
    "low,top,witness",
    [(0.0, 1.28, "255*101 + 255*101 = 51510"), (-1.28, 1.28, "255*101 + 255*101 = 51510"), (0.0, 8.0, "")],
)
def test_ir_products_of_two_activations(tmp_path, low, top, witness):
    """With a range of 8, the integers of a Tanh are -17 to 17."""
    net = Net()
    a = net.fake_quantize(net.add("Parameter"), low, 2.55 if low == 0 else 1.27)
    b = net.fake_quantize(net.add("Tanh", net.add("Parameter")), -top, top * 127 / 128)
    net.add("MatMul", a, b)
    result = audit(net.save(tmp_path))
    (product,) = result.products
    assert (product.layer.a_type, product.layer.b_type) == ("u8" if low == 0 else "s8", "s8")
    assert (
        product.engines["openvino"].witness == witness
        and result.is_proven == (not witness)
        and not result.model.passed_over
    )


def test_ir_bodies_are_read(tmp_path):
    net = Net()
    net.add("MatMul", net.fake_quantize(net.add("Parameter"), 0.0, 2.55), net.weights(HOT))
    body = net.text().partition("<net")[2].partition(">")[2].replace("</net>", "")
    loop = f'<layer id="0" name="loop" type="Loop"><body>{body}</body></layer>'
    choice = f'<layer id="1" name="if" type="If"><then_body>{body}</then_body><else_body>{body}</else_body></layer>'
    path = net.save(tmp_path, f'<net version="11"><layers>{loop}{choice}</layers><edges/></net>')
    assert len({layer.layer.name for layer in audit(path).layers}) == 3
    for _ in range(20):
        loop = f'<layer id="0" name="loop" type="Loop"><body><layers>{loop}</layers></body></layer>'
    assert "nested more than 16 deep" in refused(
        net.save(tmp_path, f'<net version="11"><layers>{loop}</layers><edges/></net>')
    )


def hostile(tmp_path, name):
    path = ir_product(tmp_path)
    text = path.read_text()
    net = Net()
    if name == "no_xml":
        text = "<net version='11'><layers>"
    if name == "binary":
        path.write_bytes(b"\x00\xff" * 50)
        return path
    if name == "other_root":
        text = "<html><body/></html>"
    if name == "old":
        text = text.replace('version="11"', 'version="7"')
    if name == "laughs":
        entities = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(9))
        text = text.replace("<net", f'<!DOCTYPE net [<!ENTITY a0 "ha">{entities}]><net', 1).replace(
            'name="n"', 'name="&a9;"'
        )
    if name == "external":
        text = text.replace("<net", '<!DOCTYPE net SYSTEM "file:///etc/passwd"><net', 1)
    if name == "no_bin":
        (tmp_path / "m.bin").unlink()
    if name == "short_bin":
        (tmp_path / "m.bin").write_bytes(b"\x00" * 3)
    if name == "empty_bin":
        (tmp_path / "m.bin").write_bytes(b"")
    if name == "edge":
        text = text.replace(
            "<edges>", '<edges><edge from-layer="99" from-port="0" to-layer="1" to-port="0"/>'
        )
    if name == "ids":
        text = text.replace('id="1"', 'id="0"')
    for change, old, new in (
        ("negative_offset", 'offset="16"', 'offset="-16"'),
        ("huge_offset", 'offset="16"', f'offset="{1 << 70}"'),
        ("huge_shape", 'shape="4,3"', f'shape="{1 << 40},{1 << 40}"'),
        ("negative_shape", 'shape="4,3"', 'shape="-4,-3"'),
        ("no_number", 'shape="4,3"', 'shape="4,x"'),
        ("levels", 'levels="256"', 'levels="many"'),
        ("digits", 'shape="4,3"', f'shape="{"9" * 5000}"'),
    ):
        if name == change:
            assert old in text
            text = text.replace(old, new)
    if name == "two_gigabytes":
        weights = net.constant(HOT, shape="65536,32768", size=1 << 31)
        net.add("MatMul", net.fake_quantize(net.add("Parameter"), 0.0, 1.0), weights)
        return net.save(tmp_path)
    if name == "reshape":
        return ir_product(
            tmp_path, make=lambda n: n.add("Reshape", n.weights(HOT), n.constant(np.int64([1 << 40, 7])))
        )
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "name,word",
    [
        ("no_xml", "is no XML"),
        ("binary", "is no XML"),
        ("other_root", "its root is <html>"),
        ("old", "of version 7"),
        ("laughs", "has a DTD"),
        ("external", "has a DTD"),
        ("no_bin", "m.bin cannot be read: No such file"),
        ("short_bin", "which has 3"),
        ("empty_bin", "which has 0"),
        ("edge", "'99' to '1'"),
        ("ids", "the id '0'"),
        ("negative_offset", "needs bytes -16 to -4"),
        ("huge_offset", f"needs bytes {1 << 70}"),
        ("huge_shape", f"expected {1 << 80}"),
        ("negative_shape", "of shape (-4, -3)"),
        ("no_number", "malformed"),
        ("levels", "malformed"),
        ("digits", "malformed"),
        ("two_gigabytes", "2147483648 of m.bin"),
        ("reshape", "malformed"),
    ],
)
def test_hostile_irs_get_one_line(tmp_path, name, word):
    assert word in refused(hostile(tmp_path, name))


def test_ir_scales_that_stretch_the_weights(tmp_path):
    path = ir_product(tmp_path, weights=np.ones((1, 4000), np.int8), scale=np.ones((4000, 1)))
    assert read_model(path).passed_over == {"MatMul: weights with scales of a larger shape": 1}


def test_irs_that_quantize_one_constant_many_times(tmp_path):
    net = Net()
    weights = net.constant(np.ones((1000, 10), np.float32))
    source = net.fake_quantize(net.add("Parameter"), 0.0, 1.0)
    for _ in range(100):
        net.add("MatMul", source, net.fake_quantize(weights, -1.0, 1.0, 255))
    assert "more weights than 16 times m.bin" in refused(net.save(tmp_path))


def test_cycles_and_ladders_of_layers_end(tmp_path):
    net = Net()
    first = net.add("Multiply", 1, 1)
    net.add("Multiply", first, first)
    net.add("MatMul", net.fake_quantize(net.add("Parameter"), 0.0, 1.0), first)
    for kind in ("Multiply", "Reshape", "Concat"):  # each rung doubles the ways
        rung = net.add("Parameter")
        for _ in range(60):
            rung = net.add(kind, rung, rung)
        net.add("MatMul", rung, rung)
    first = len(net.layers)
    net.add("Concat", first + 1, first + 1)
    net.add("Concat", first, first)
    net.add("MatMul", first, first)
    assert not read_model(net.save(tmp_path)).layers
    net = Net()
    source = net.fake_quantize(net.add("Parameter"), 0.0, 1.0)
    for _ in range(100):
        source = net.add("Reshape", source)
    net.add("MatMul", source, net.weights(HOT))
    model = read_model(net.save(tmp_path))  # too far to see is not called float
    assert model.not_audited == 1 and list(model.passed_over) == [
        "MatMul: activations behind more than 64 layers"
    ]


def test_deep_xml_ends(tmp_path):
    net = Net()
    refused(net.save(tmp_path, '<net version="11">' + "<layers>" * 100000))
    closed = '<net version="11">' + "<layers>" * 100000 + "</layers>" * 100000 + "</net>"
    assert read_model(net.save(tmp_path, closed)).operators == 0


def test_spoilt_irs_are_read_or_refused(tmp_path):
    path = ir_product(tmp_path, before=("Sigmoid", {}), after=("Multiply", {}, 2.0))
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for i in range(1000):
        data = bytearray(good)
        for at in rng.integers(0, len(data), 1 + i % 3):
            data[at] = rng.choice([*b'0123456789-,<>"x/ \x00\xff'])
        path.write_bytes(bytes(data[: rng.integers(len(data))] if i % 5 == 0 else data))
        try:
            read_model(path)
        except Error as error:
            assert "\n" not in error.message and len(error.message) < 600


def test_an_ir_that_openvino_writes(tmp_path):
    ov = pytest.importorskip("openvino", reason="openvino writes the model")
    from openvino import opset13 as op

    def real(value):
        return op.constant(np.array(value, np.float32))

    def quantized(x, low, high):
        return op.fake_quantize(x, real(low), real(high), real(low), real(high), 256)

    weights = np.zeros((2, 4, 1, 1), np.int8)
    weights[1, :2] = 127
    x = op.parameter([1, 4, 5, 5], np.float32)
    kernel = op.multiply(op.convert(op.constant(weights), "f32"), real(0.5))
    y = op.convolution(quantized(x, 0, 2.55), kernel, [1, 1], [0, 0], [0, 0], [1, 1], name="conv")
    y = op.reshape(quantized(op.relu(y), 0, 25.5), op.constant([1, -1]), False)
    matrix = np.zeros((3, 50), np.int8)
    matrix[2, 10:12] = -127
    y = op.matmul(y, op.multiply(op.convert(op.constant(matrix), "f32"), real(0.5)), False, True, name="fc")
    ov.save_model(ov.Model([y], [x], "m"), str(tmp_path / "m.xml"))
    found = {layer.layer.name: layer for layer in audit(tmp_path / "m.xml").layers}
    assert (
        found["conv"].engines["openvino"].witness == "output channel 1, depths 0 1: 255*127 + 255*127 = 64770"
    )
    assert found["conv"].layer.scales == pytest.approx(0.05)
    assert found["fc"].engines["openvino"].witness == "column 2, depths 10 11: 255*-127 + 255*-127 = -64770"


def test_weights_behind_a_fake_quantize_are_those_of_openvino(tmp_path):
    ov = pytest.importorskip("openvino", reason="openvino writes the model, and quantizes")
    from openvino import opset13 as op

    # half of them ties
    values = np.random.default_rng(0).integers(-254, 255, (300, 200)).astype(np.float32) / 2
    values[0] = most = 127
    for levels, low in ((255, -127), (256, -128)):
        bounds = [op.constant(np.float32(bound)) for bound in (low, most) * 2]
        x = op.parameter([300, 300], np.float32)
        zero, end = op.constant(np.float32(0)), op.constant(np.float32(255))
        weights = op.fake_quantize(op.constant(values), *bounds, levels)
        y = op.matmul(op.fake_quantize(x, zero, end, zero, end, 256), weights, False, False)
        model = ov.Model([y], [x], "m")
        ov.save_model(model, str(tmp_path / "m.xml"), compress_to_fp16=False)
        (layer,) = audit(tmp_path / "m.xml").layers
        plan = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        # each activation is 0 or 1
        assert np.array_equal(plan(np.eye(300, dtype=np.float32))[0], layer.layer.weights)


def test_each_format_has_an_engine():
    assert {"onnxruntime", "litert", "openvino"} <= set(engines())
