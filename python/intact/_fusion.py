"""Which QDQ groups of an ONNX model ONNX Runtime computes in integers: asked of the installed ONNX Runtime, which writes the graph
that it runs; without ONNX Runtime by the rules of onnxruntime_rules.json.

A group is an operator whose inputs come from DequantizeLinear nodes. Each function returns a reason: "" if the operator multiplies
integers, else why it multiplies floats."""

from __future__ import annotations

import copy
import functools
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

_MOST_BYTES = 1 << 30  # larger models are not given to ONNX Runtime, which would copy them
_INTEGER = {"QLinearConv", "QGemm", "QLinearMatMul", "MatMulIntegerToFloat", "ConvInteger", "MatMulInteger"}
_ROUNDING = 1e-6  # scales of a bias that differ by less are a quantizer's rounding
WEIGHT_ONLY = "a MatMulNBits, which quantizes the activations too"
FAILS = "its weights are quantized in blocks, and ONNX Runtime fails to run it"
_BITS = {2: 8, 3: 8, 21: 4, 22: 4, 25: 2, 26: 2}  # of types of onnx.TensorProto


@functools.cache
def rules() -> dict:
    """onnxruntime_rules.json."""
    return json.loads(Path(__file__).with_name("onnxruntime_rules.json").read_text())


class Fusions:
    """What ONNX Runtime makes of each operator of a model. `source`: who says so, in words."""

    def __init__(self, proto: Any, folder: Path, ask: bool = True):
        self._made, version = _asked(proto, folder) if ask else ({}, "")
        self.source = (f"the graph that ONNX Runtime {version} makes of the model" if version else
                       f"the rules of ONNX Runtime {rules()['version']}")
        self.version = version or rules()["version"]
        self._opset = max((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), default=0)
        # Protobuf makes a node's wrapper again, at any address, if nothing holds it: the list holds the wrappers, so ids are lasting.
        self._nodes = list(_nodes(proto.graph)) if version else []
        self._places = {id(node): i for i, node in enumerate(self._nodes)}

    def made(self, node: Any) -> set[str]:
        """The operators that ONNX Runtime has in the place of a node; empty if that is not known."""
        return self._made.get(self._places.get(id(node), -1), set())

    def reason(self, scope: Any, node: Any) -> str:
        """Why ONNX Runtime computes a QDQ group in floats; "": in integers."""
        by_rules = reason_for_floats(scope, node, self._opset)
        made = self.made(node)
        if not made or by_rules == FAILS:
            return by_rules
        if made & _INTEGER:
            return ""
        if "MatMulNBits" in made:
            return f"ONNX Runtime {self.version} makes {WEIGHT_ONLY}"
        return by_rules or f"ONNX Runtime {self.version} leaves it in float"

    def is_weight_only(self, scope: Any, node: Any) -> bool:
        """Whether ONNX Runtime makes a MatMulNBits of a product of floats and quantized weights."""
        made = self.made(node)
        return "MatMulNBits" in made if made else becomes_matmul_nbits(scope, node)


def weights_in_words(scope: Any, node: Any) -> str:
    """The bits and the blocks of the weights of a QDQ product."""
    from ._onnx import attributes

    dequantizer = scope.dequantizer(node.input[1])
    stored, block = scope.shape_of_constant(dequantizer.input[0]), attributes(dequantizer).get("block_size", 0)
    bits = _BITS.get(stored[0]) if stored else None
    return (f" of {bits} bits" if bits else "") + (f" in blocks of {block}" if block else "")


def _nodes(graph: Any) -> Any:
    from ._onnx import every_node

    return every_node(graph)


def _asked(proto: Any, folder: Path) -> tuple[dict[int, set[str]], str]:
    """The operators in the place of each node of a model, by the node's number, and ONNX Runtime's version; ({}, "") if no ONNX
    Runtime is installed, or if it does not load the model."""
    size = proto.ByteSize() if proto is not None else 0
    names = {entry.value for tensor in proto.graph.initializer for entry in tensor.external_data if entry.key == "location"}
    try:
        import onnx
        import onnxruntime

        size += sum((folder / name).stat().st_size for name in names)
        if size > _MOST_BYTES:
            return {}, ""
        named = copy.deepcopy(proto)
        for i, node in enumerate(_nodes(named.graph)):
            node.name = f"intact:{i}:"  # ONNX Runtime keeps it, or begins a longer name with it
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        with tempfile.TemporaryDirectory() as made:
            options.optimized_model_filepath = os.path.join(made, "model.onnx")
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder.resolve()))
            onnxruntime.InferenceSession(named.SerializeToString(), options, providers=["CPUExecutionProvider"])
            optimized = onnx.load(options.optimized_model_filepath, load_external_data=False)
    except Exception:  # without onnxruntime, or for a model that it refuses, the rules decide
        return {}, ""
    found: dict[int, set[str]] = {}
    for node in _nodes(optimized.graph):
        for part in node.name.split("intact:")[1:]:
            number = part.split(":", 1)[0]
            if number.isdigit():
                found.setdefault(int(number), set()).add(node.op_type)
    return found, onnxruntime.__version__


def _input(node: Any, i: int) -> str:
    return node.input[i] if len(node.input) > i else ""


def is_moved(scope: Any, name: str) -> bool:
    """Whether ONNX Runtime moves an s8 operand of a QDQ group to u8; `name`: what the operator reads. A QuantizeLinear and a
    DequantizeLinear with one constant zero point make the operand, and nothing else reads a tensor between the QuantizeLinear and
    the operator."""
    dequantizer = scope.dequantizer(name)
    while dequantizer is not None and name != dequantizer.output[0]:  # moved through these operators
        if len(scope.readers(name)) != 1 or scope.is_output(name):
            return False
        name = scope.producer(name).input[0]
    return dequantizer is not None and _is_moved(scope, scope.producer(dequantizer.input[0]), dequantizer)


def _is_moved(scope: Any, quantizer: Any, dequantizer: Any) -> bool:
    """Whether ONNX Runtime moves the s8 tensor between both nodes to u8."""
    if quantizer is None or dequantizer is None:
        return False
    if (quantizer.op_type, dequantizer.op_type) != ("QuantizeLinear", "DequantizeLinear"):
        return False
    between, real = quantizer.output[0], dequantizer.output[0]
    if scope.is_output(between) or len(scope.readers(real)) + scope.is_output(real) > 1:
        return False  # of several uses, each gets a DequantizeLinear of its own
    if [reader.output[0] for reader in scope.readers(between)] != [real]:
        return False
    points = [scope.constant(_input(node, 2)) for node in (quantizer, dequantizer)]
    return all(point is not None and point.size == 1 for point in points) and points[0].reshape(-1)[0] == points[1].reshape(-1)[0]


def _type(scope: Any, dequantizer: Any) -> Any:
    """The NumPy type of the integers that a DequantizeLinear reads, or None."""
    point = scope.constant(_input(dequantizer, 2)) if _input(dequantizer, 2) else None
    return scope.type_of(dequantizer.input[0]) if point is None else point.dtype.type


def has_s8_activations(scope: Any, node: Any) -> bool:
    """Whether the activations of a QDQ group are stored as s8."""
    return _type(scope, scope.dequantizer(node.input[0])) is np.int8


def _type_behind(scope: Any, quantizer: Any) -> Any:
    """The NumPy type of the integers that a QuantizeLinear makes, or None."""
    from ._onnx import attributes

    if _input(quantizer, 2):
        return scope.type_of(_input(quantizer, 2)) or scope.type_of(quantizer.output[0])
    return {2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16}.get(attributes(quantizer).get("output_dtype") or 2)


def stays_s8(scope: Any, node: Any) -> bool:
    """Whether the activations of a QDQ group are s8, and ONNX Runtime does not move them to u8."""
    return has_s8_activations(scope, node) and not is_moved(scope, node.input[0])


def _clamps_as_the_quantizer(scope: Any, node: Any, quantizer: Any) -> bool:
    """Whether a Relu or a Clip changes nothing, because the QuantizeLinear behind it clamps at least as much."""
    scale, point = scope.constant(quantizer.input[1]), np.zeros((), np.uint8)
    if _input(quantizer, 2):
        point = scope.constant(quantizer.input[2])
    if point is None or point.size != 1 or point.dtype.kind not in "iu":
        return False
    limits = np.iinfo(point.dtype)
    if node.op_type == "Relu":
        return int(point.reshape(-1)[0]) == limits.min
    if scale is None or scale.ndim or point.ndim:
        return False
    low, high, _ = scope.real_range(node.output[0])
    with np.errstate(all="ignore"):
        low, high = (np.rint(np.clip(value / float(scale), -2.0**31, 2.0**31)) + int(point) for value in (low, high))
    return low <= limits.min and high >= limits.max


def _output(scope: Any, node: Any) -> tuple[Any, str]:
    """The QuantizeLinear behind an operator, or None, and why ONNX Runtime then computes floats."""
    name = node.output[0]
    readers = scope.readers(name)
    from ._onnx import MOVED_THROUGH

    for _ in range(16):  # a QuantizeLinear moves back through these operators
        if len(readers) != 1 or readers[0].op_type not in MOVED_THROUGH or name in scope.outputs:
            break
        behind = scope.readers(readers[0].output[0])
        if not any(reader.op_type == "QuantizeLinear" for reader in behind):
            break
        name, readers = readers[0].output[0], behind
    if len(readers) == 1 and readers[0].op_type in ("Relu", "Clip") and readers[0].output[0] not in scope.outputs:
        clip, behind = readers[0], scope.readers(readers[0].output[0])
        if len(behind) == 1 and name not in scope.outputs:
            if behind[0].op_type == "QuantizeLinear" and _clamps_as_the_quantizer(scope, clip, behind[0]):
                return behind[0], ""
            return None, f"a {clip.op_type} changes its output"
    quantizers = [reader for reader in readers if reader.op_type == "QuantizeLinear"]
    if quantizers and (len(readers) > 1 or name in scope.outputs):
        return quantizers[0], "other nodes read its float output too"
    return (quantizers or [None])[0], ""


def _addition(scope: Any, node: Any) -> tuple[Any, str]:
    """The Add behind a MatMul that ONNX Runtime makes a Gemm with the MatMul, and the bias that it adds; None without one."""
    readers = scope.readers(node.output[0]) if node.op_type == "MatMul" else []
    if len(readers) != 1 or readers[0].op_type != "Add" or node.output[0] in scope.outputs:
        return None, ""
    bias = next((name for name in readers[0].input if name != node.output[0]), "")
    a, b, added = (scope.shape_of(name) for name in (*node.input[:2], bias))
    if added is None or b is not None and len(b) != 2:
        return None, ""
    is_constant = scope.shape_of_constant(bias) is not None or scope.producer(bias) is not None and (
        scope.producer(bias).op_type == "DequantizeLinear" and scope.shape_of_constant(scope.producer(bias).input[0]) is not None)
    if len(added) == 1:  # the audit may not know shapes that ONNX Runtime knows
        columns = b[1] if b is not None else added[0] if is_constant else None
        is_bias = columns is not None and added[0] == columns
    else:
        is_bias = a is not None and b is not None and len(added) == len(a) == 2 and None not in (added[0], added[1]) and (
            added[0] == 1 and added[1] == b[1] or added[0] == a[0] and added[1] in (1, b[1]))
    return (readers[0], bias) if is_bias else (None, "")


def _bias(scope: Any, node: Any, name: str, rule: dict, dequantizers: tuple, is_quantized: bool) -> str:
    """Why ONNX Runtime computes floats because of the bias `name`. `is_quantized`: the output is quantized. ONNX Runtime then
    quantizes a constant float bias."""
    from ._onnx import attributes

    if not name:
        return ""
    values = attributes(node)
    if node.op_type == "Gemm" and (values.get("alpha", 1.0) != 1 or values.get("beta", 1.0) != 1):
        return "it has a bias, and alpha or beta is not 1"
    maker = scope.producer(name)
    if maker is None or maker.op_type != "DequantizeLinear":
        bias, (scale, other) = scope.constant(name), (scope.constant(node.input[1]) for node in dequantizers)
        becomes_s32 = is_quantized and bias is not None and bias.ndim == 1 and scale is not None
        has_own_shape = scale is not None and scale.ndim and other is not None and not other.ndim
        return "" if becomes_s32 and not (rule["checks_bias"] and has_own_shape) else "its bias is float"
    if scope.type_of(maker.input[0]) != np.int32:
        return "its bias is not int32"
    if not rule["checks_bias"]:
        return ""
    difference = bias_difference(scope, dequantizers, maker)
    if difference is None:
        return "the scale of its bias is no constant"
    expected, apart, point = difference
    limit = rules()["bias_scale"]
    if point or (apart > limit["absolute"] + limit["relative"] * expected).any():
        return "its bias has a scale or a zero point of its own"
    return ""


def bias_difference(scope: Any, dequantizers: tuple, bias: Any) -> tuple[np.ndarray, np.ndarray, bool] | None:
    """a_scale·b_scale of each channel, how far the scale of a bias is from it, and whether the bias has another zero point than 0;
    None if a scale is no constant."""
    scales = [scope.constant(node.input[1]) for node in (*dequantizers, bias)]
    point = scope.constant(bias.input[2]) if _input(bias, 2) else np.zeros(1)
    if any(scale is None for scale in scales) or point is None or scales[0].size != 1:
        return None
    a, b, own = (scale.reshape(-1).astype(np.float32) for scale in scales)
    if len({b.size, own.size} - {1}) > 1:
        return None
    expected = a * b
    with np.errstate(all="ignore"):
        return np.abs(expected) + np.zeros_like(own), np.abs(own - expected), bool(point.any())


def wrong_bias(scope: Any, node: Any) -> str:
    """What ONNX Runtime computes wrongly of a group that it computes in integers: it ignores the scale and the zero point of the
    bias."""
    name = _input(node, 2) or _addition(scope, node)[1]
    maker = scope.producer(name) if name else None
    if maker is None or maker.op_type != "DequantizeLinear":
        return ""
    difference = bias_difference(scope, tuple(scope.dequantizer(name) for name in node.input[:2]), maker)
    if difference is None:
        return ""
    expected, apart, point = difference
    if not point and not (apart > _ROUNDING * expected).any():
        return ""
    return "some biases have a scale or a zero point of their own, which ONNX Runtime ignores: its outputs are not the model's"


def reason_for_floats(scope: Any, node: Any, opset: int) -> str:
    """By the rules: why ONNX Runtime computes a QDQ group in floats; "": in integers. `opset`: the version of ONNX's operators."""
    from ._onnx import attributes

    rule = rules()["groups"].get(node.op_type)
    if rule is None:
        return f"it computes {node.op_type} in floats"
    a, b = (scope.dequantizer(name) for name in node.input[:2])
    through = scope.producer(node.input[1])
    if through.op_type == "Reshape":
        return "its weights are reshaped after they are dequantized"
    is_constant = scope.shape_of_constant(b.input[0]) is not None
    if is_constant and through.op_type == "Transpose" and node.op_type != "Conv" and len(scope.readers(node.input[1])) > 1:
        return "other nodes read its transposed weights too"
    if is_constant and through.op_type == "Transpose" and opset < 21 and not _input(b, 2):
        return "its transposed weights have no zero point"  # ONNX Runtime does not move the Transpose in front then
    if any(scope.scope_of(maker.output[0]) is not scope for maker in (a, b)):
        return "its inputs are dequantized outside its graph"
    types = [_type(scope, maker) for maker in (a, b)]
    add, bias = _addition(scope, node)
    rule = rules()["groups"]["Gemm"] if add is not None else rule
    stored = scope.shape_of_constant(b.input[0])
    if stored is not None and _BITS.get(stored[0], 8) < 8:
        return f"its weights have {_BITS[stored[0]]} bits"
    quantizer, why = _output(scope, add or node)
    if why:
        return why
    if attributes(b).get("block_size"):
        return FAILS if node.op_type != "Gemm" else "its weights are quantized in blocks"
    if quantizer is None and not rule["float_output"]:
        return "its output is not quantized"
    for name, kind in zip(("activations", "weights"), types):
        if kind not in (np.uint8, np.int8, None):
            return f"its {name} are {np.dtype(kind).name}"
    is_s8 = stays_s8(scope, node)
    if quantizer is not None:
        kind = _type_behind(scope, quantizer)
        readers = scope.readers(quantizer.output[0])
        output_stays = kind is np.int8 and not _is_moved(scope, quantizer, readers[0] if len(readers) == 1 else None)
        if kind not in (np.uint8, np.int8):
            return "the type of its output is not known" if kind is None else "its output has 16 bits"
        if types[0] is not None and output_stays != is_s8:
            return "its input and its output differ in type"
    if is_s8 and not rule["s8_input"]:
        return "its activations are s8 and stay s8"
    if is_s8 and types[1] is not np.int8:
        return "its activations are s8 and its weights u8"
    if rule["needs_zero_points"] and not all(_input(maker, 2) for maker in (a, b)):
        return "its activations or its weights have no zero point"
    scale = scope.constant(a.input[1])
    if scale is not None and scale.size > 1:
        return "its activations have a scale for each channel"
    return _bias(scope, node, bias or _input(node, 2), rule, (a, b), quantizer is not None)


def becomes_matmul_nbits(scope: Any, node: Any) -> bool:
    """By the rules: whether ONNX Runtime makes a MatMulNBits of a MatMul or a Gemm of floats and quantized weights."""
    from ._onnx import attributes

    dequantizer = scope.producer(node.input[1])
    if node.op_type not in ("MatMul", "Gemm") or dequantizer is None or dequantizer.op_type != "DequantizeLinear":
        return False
    if len(scope.readers(dequantizer.output[0])) != 1 or any(
            reader.op_type == "QuantizeLinear" for reader in scope.readers(node.output[0])):
        return False
    values = attributes(node)
    if node.op_type == "Gemm" and (values.get("alpha", 1.0) != 1 or values.get("transA") or values.get("transB")
                                   or _input(node, 2) and values.get("beta", 1.0) != 1):
        return False
    tensor, scale = scope.shape_of_constant(dequantizer.input[0]), scope.shape_of_constant(dequantizer.input[1])
    if tensor is None or scale is None or len(tensor[1]) != 2 or tensor[0] not in _BITS:
        return False
    (depth, columns), shape = tensor[1], scale[1]
    block, axis = attributes(dequantizer).get("block_size", 0), attributes(dequantizer).get("axis", 1)
    if block:
        return axis == 0 and block >= 16 and block & (block - 1) == 0 and shape == (-(-depth // block), columns)
    return shape == () or (shape == (columns,) and axis == 1)
