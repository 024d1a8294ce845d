"""Which QDQ groups of an ONNX model ONNX Runtime computes in integers: asked of the installed ONNX Runtime, which writes the graph
that it runs; without ONNX Runtime by the rules of onnxruntime_rules.json.

A group is an operator whose inputs come from DequantizeLinear nodes. Each function returns a reason: "" if the operator multiplies
integers, else why it multiplies floats."""

from __future__ import annotations

import copy
import functools
import importlib.metadata
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

_MOST_BYTES = 1 << 30  # larger models are not given to ONNX Runtime, which would copy them
_INTEGER = {"QLinearConv", "QGemm", "QLinearMatMul", "MatMulIntegerToFloat", "ConvInteger", "MatMulInteger"}
_ROUNDING = 1e-6  # scales of a bias that differ by less are a quantizer's rounding
WEIGHT_ONLY = "a MatMulNBits, which quantizes the activations too"
FAILS = "and ONNX Runtime fails to run it"
_ALSO_READ = "other nodes read its float output too"
_REMOVED = ("Identity", "Dropout")  # operators that ONNX Runtime removes
_BITS = {2: 8, 3: 8, 21: 4, 22: 4, 25: 2, 26: 2}  # of types of onnx.TensorProto


@functools.cache
def rules() -> dict:
    """onnxruntime_rules.json."""
    return json.loads(Path(__file__).with_name("onnxruntime_rules.json").read_text())


def rules_version() -> str:
    """The version of ONNX Runtime whose rules decide: the installed one if the rules name it or a version below and one above it,
    else the newest that they name."""
    known = [rules()["version"], *rules()["also"]]
    try:
        installed = importlib.metadata.version("onnxruntime")
    except importlib.metadata.PackageNotFoundError:
        return known[0]
    return installed if min(map(_numbers, known)) <= _numbers(installed) <= max(map(_numbers, known)) else known[0]


def _numbers(version: str) -> tuple[int, ...]:
    """(1, 32, 0) of "1.32.0"."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _is_since(version: str, since: str | None) -> bool:
    """Whether a rule that holds since a version holds; None: in none."""
    return since is not None and _numbers(version) >= _numbers(since)


class Fusions:
    """What ONNX Runtime makes of each operator of a model. `source`: who says so, in words."""

    def __init__(self, proto: Any, folder: Path, ask: bool = True):
        self._made, version = _asked(proto, folder) if ask else ({}, "")
        self.version = version or rules_version()
        self.source = (f"the graph that ONNX Runtime {version} makes of the model" if version else
                       f"the rules of ONNX Runtime {self.version}")
        self._opset = max((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), default=0)
        # Protobuf makes a node's wrapper again, at any address, if nothing holds it: the list holds the wrappers, so ids are lasting.
        self._nodes = list(_nodes(proto.graph)) if version else []
        self._places = {id(node): i for i, node in enumerate(self._nodes)}

    def made(self, node: Any) -> set[str]:
        """The operators that ONNX Runtime has in the place of a node; empty if that is not known."""
        return self._made.get(self._places.get(id(node), -1), set())

    def reason(self, scope: Any, node: Any) -> str:
        """Why ONNX Runtime computes a QDQ group in floats; "": in integers."""
        by_rules = reason_for_floats(scope, node, self.version, self._opset)
        made = self.made(node)
        if not made:
            return by_rules
        if made & _INTEGER:
            return by_rules if FAILS in by_rules else ""
        if "MatMulNBits" in made:
            return _nbits(self.version)
        is_of_floats = by_rules and FAILS not in by_rules and WEIGHT_ONLY not in by_rules
        return by_rules if is_of_floats else f"ONNX Runtime {self.version} leaves it in float"

    def is_weight_only(self, scope: Any, node: Any) -> bool:
        """Whether ONNX Runtime makes a MatMulNBits of a product of floats and quantized weights."""
        made = self.made(node)
        return "MatMulNBits" in made if made else becomes_matmul_nbits(scope, node, self.version)


def _nbits(version: str) -> str:
    return f"ONNX Runtime {version} makes {WEIGHT_ONLY}"


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


def _constant(scope: Any, name: str) -> np.ndarray | None:
    """A scale or a zero point that no caller can override; None if a run gives it."""
    source = scope.scope_of(name)
    return None if source is None or name in source.overridable else scope.constant(name)


def _readers(scope: Any, name: str, depth: int = 0) -> list:
    """The nodes that read a tensor, also behind an Identity, which ONNX Runtime removes."""
    found = []
    for reader in scope.readers(name):
        is_nothing = reader.op_type in _REMOVED and depth < 16 and not scope.is_output(reader.output[0])
        found += _readers(scope, reader.output[0], depth + 1) if is_nothing else [reader]
    return found


def is_moved(scope: Any, node: Any, name: str) -> bool:
    """Whether ONNX Runtime moves an s8 operand of the QDQ group of `node` to u8; `name`: what the operator reads. A QuantizeLinear and
    a DequantizeLinear with one constant zero point make the operand, and nothing else reads a tensor between the QuantizeLinear and
    the operator. Behind an operator that only moves numbers, ONNX Runtime puts such a pair itself."""
    dequantizer = scope.dequantizer(name)
    if dequantizer is None or all(_constant(scope, each) is not None for each in dequantizer.input if each):
        return False  # ONNX Runtime stores what the operators make of constants
    if name == node.input[0] and _is_behind_reshape(scope, node):
        return _has_one_point(scope, dequantizer)
    while name != dequantizer.output[0]:  # moved through these operators
        if len(scope.readers(name)) != 1 or scope.is_output(name):
            return False
        if scope.producer(name).op_type not in (*_REMOVED, *(["Transpose"] if _takes_transposes(scope, node) else [])):
            return _has_one_point(scope, dequantizer)
        name = scope.producer(name).input[0]
    return _is_moved(scope, scope.producer(dequantizer.input[0]), dequantizer)


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
    points = [_constant(scope, _input(node, 2)) if _input(node, 2) else None for node in (quantizer, dequantizer)]
    return all(point is not None and point.size == 1 for point in points) and points[0].reshape(-1)[0] == points[1].reshape(-1)[0]


def _is_held(scope: Any, node: Any, i: int) -> bool:
    """Whether an operator that moves numbers keeps a DequantizeLinear away from operand i of a node: each but a Transpose does, if the
    scale or the zero point is not one constant number."""
    name = node.input[i]
    dequantizer, is_moved_far = scope.dequantizer(name), i == 0 and _is_behind_reshape(scope, node)
    while dequantizer is not None and name != dequantizer.output[0]:
        is_moved_far |= scope.producer(name).op_type not in (*_REMOVED, "Transpose")
        name = scope.producer(name).input[0]
    return is_moved_far and dequantizer is not None and not _has_one_constant(scope, dequantizer)


def _has_one_point(scope: Any, node: Any) -> bool:
    """Whether the zero point of a QuantizeLinear or a DequantizeLinear is one constant number."""
    point = _constant(scope, node.input[2]) if _input(node, 2) else None
    return point is not None and point.size == 1


def _has_one_constant(scope: Any, node: Any) -> bool:
    """Whether the scale of a QuantizeLinear or a DequantizeLinear, and its zero point if it has one, are each one constant number."""
    constants = [_constant(scope, each) for each in node.input[1:] if each]
    return all(each is not None and each.size == 1 for each in constants)


def _type(scope: Any, dequantizer: Any) -> Any:
    """The NumPy type of the integers that a DequantizeLinear reads, or None."""
    known = scope.type_of(_input(dequantizer, 2)) if _input(dequantizer, 2) else None
    return known or scope.type_of(dequantizer.input[0])


def has_s8_activations(scope: Any, node: Any) -> bool:
    """Whether the activations of a QDQ group are stored as s8."""
    return _type(scope, scope.dequantizer(node.input[0])) is np.int8


def stays_s8(scope: Any, node: Any) -> bool:
    """Whether the activations of a QDQ group are s8, and ONNX Runtime does not move them to u8."""
    return has_s8_activations(scope, node) and not is_moved(scope, node, node.input[0])


def _takes_transposes(scope: Any, node: Any) -> bool:
    """Whether ONNX Runtime makes Transposes in front of a node a part of it: of a Gemm that at most one node reads. It does so before
    it removes an Identity behind the Gemm, so the readers of the Identity do not count."""
    return node.op_type == "Gemm" and len(scope.readers(node.output[0])) < 2


def exchanges_operands(scope: Any, node: Any) -> bool:
    """Whether ONNX Runtime multiplies Bᵀ by Aᵀ, because a Transpose alone reads a Gemm without a bias."""
    readers = _readers(scope, node.output[0]) if node.op_type == "Gemm" and not _input(node, 2) else []
    return len(readers) == 1 and readers[0].op_type == "Transpose" and not scope.is_output(node.output[0])


def _clamps_as_the_quantizer(scope: Any, node: Any, quantizer: Any) -> bool:
    """Whether a Relu or a Clip changes nothing, because the QuantizeLinear behind it clamps at least as much."""
    scale, point = _constant(scope, quantizer.input[1]), np.zeros((), np.uint8)
    if _input(quantizer, 2):
        point = _constant(scope, quantizer.input[2])
    if point is None or point.size != 1 or point.dtype.kind not in "iu":
        return False
    limits = np.iinfo(point.dtype)
    if node.op_type == "Relu":
        return int(point.reshape(-1)[0]) == limits.min
    readers = scope.readers(quantizer.output[0])
    is_moved = _is_moved(scope, quantizer, readers[0] if len(readers) == 1 else None)  # its new zero point has no dimensions
    if scale is None or scale.ndim or point.ndim and not is_moved:
        return False
    low, high, _ = scope.real_range(node.output[0])
    with np.errstate(all="ignore"):
        low, high = (np.rint(np.clip(value / float(scale), -2.0**31, 2.0**31)) + int(point.reshape(-1)[0]) for value in (low, high))
    return low <= limits.min and high >= limits.max


def _behind(scope: Any, name: str) -> list:
    """The readers of a tensor. If a QuantizeLinear moves back to the tensor, through operators that only move numbers, it alone."""
    from ._onnx import MOVED_THROUGH

    readers, at, needs_constants = _readers(scope, name), name, False
    for _ in range(16):
        if len(readers) != 1 or scope.is_output(at):
            break
        if readers[0].op_type == "QuantizeLinear":
            is_constant = all(_constant(scope, each) is not None for each in readers[0].input[1:] if each)
            return readers if is_constant or not needs_constants else _readers(scope, name)
        if readers[0].op_type not in MOVED_THROUGH:
            break
        needs_constants |= readers[0].op_type not in (*_REMOVED, "Transpose")  # ONNX Runtime exchanges a Transpose and any QuantizeLinear
        at = readers[0].output[0]
        readers = _readers(scope, at)
    return _readers(scope, name)


def _stays_s8_behind(scope: Any, node: Any, quantizer: Any) -> bool:
    """Whether the output of an operator of integers is s8: of a QuantizeLinear to s8 that stays s8, and has not moved back through
    operators behind which it left another one."""
    readers = scope.readers(quantizer.output[0])
    if scope.type_of(quantizer.output[0]) is not np.int8 or _is_moved(scope, quantizer, readers[0] if len(readers) == 1 else None):
        return False
    from ._onnx import MOVED_THROUGH

    if _is_behind_reshape(scope, node):
        return not _has_one_point(scope, quantizer)
    through = scope.producer(quantizer.input[0])
    for _ in range(16):
        if through is None or through.op_type not in MOVED_THROUGH or exchanges_operands(scope, node):
            return True
        if through.op_type not in _REMOVED:
            return not _has_one_point(scope, quantizer)
        through = scope.producer(through.input[0])
    return True


def _is_behind_reshape(scope: Any, node: Any) -> bool:
    """Whether ONNX Runtime puts the Gemm that it makes of a MatMul and an Add between Reshapes, because the activations have more or
    fewer than two dimensions."""
    shape = scope.shape_of(node.input[0]) if _addition(scope, node)[0] is not None else None
    return shape is not None and len(shape) != 2


def _output(scope: Any, node: Any) -> tuple[Any, str]:
    """The QuantizeLinear behind an operator and its Add, or None, and why ONNX Runtime then computes floats."""
    is_reshaped, node = _is_behind_reshape(scope, node), _addition(scope, node)[0] or node
    name = node.output[0] if not exchanges_operands(scope, node) else _readers(scope, node.output[0])[0].output[0]
    readers = _behind(scope, name)
    if len(readers) == 1 and readers[0].op_type in ("Relu", "Clip") and not scope.is_output(readers[0].output[0]):
        clip, behind = readers[0], _behind(scope, readers[0].output[0])
        if len(behind) == 1 and not scope.is_output(name):
            if is_reshaped:
                return None, ""  # the Reshape keeps the QuantizeLinear away
            if behind[0].op_type == "QuantizeLinear" and _clamps_as_the_quantizer(scope, clip, behind[0]):
                return behind[0], ""
            return None, f"a {clip.op_type} changes its output"
    quantizers = [reader for reader in readers if reader.op_type == "QuantizeLinear"]
    if is_reshaped and (len(readers) > 1 or scope.is_output(name) or quantizers and not _has_one_constant(scope, quantizers[0])):
        return None, ""  # the Reshape has these readers
    if quantizers and (len(readers) > 1 or scope.is_output(name)):
        return quantizers[0], _ALSO_READ
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
        bias, (scale, other) = _constant(scope, name), (_constant(scope, node.input[1]) for node in dequantizers)
        becomes_s32 = is_quantized and bias is not None and bias.ndim == 1
        is_unlike = scale is None or scale.size != 1 or other is None or scale.ndim and not other.ndim or (
            bias is not None and other.size not in (1, bias.size))
        return "" if becomes_s32 and not (rule["checks_bias"] and is_unlike) else "its bias is float"
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
    scales = [_constant(scope, node.input[1]) for node in (*dequantizers, bias)]
    point = _constant(scope, bias.input[2]) if _input(bias, 2) else np.zeros(1)
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


def _scales_that_fit_no_operator(scope: Any, a: Any, b: Any, node: Any) -> str:
    """Which scales no integer operator has: of activations by channel, of weights in blocks or of another axis than the outputs'."""
    from ._onnx import attributes

    if attributes(b).get("block_size"):
        return "its weights are quantized in blocks"
    scale = scope.shape_of(a.input[1])
    if scale and scale != (1,):
        return "its activations have a scale for each channel"
    scale, shape = scope.shape_of(b.input[1]), scope.shape_of(b.input[0])
    if not scale or scale == (1,) or not shape:
        return ""
    axis = attributes(b).get("axis", 1)
    axis += len(shape) if axis < 0 else 0
    name = node.input[1]
    while name != b.output[0]:  # back to the operator's view of the weights
        through = scope.producer(name)
        if through.op_type == "Transpose":
            order = attributes(through).get("perm") or list(range(len(shape)))[::-1]
            axis = order.index(axis) if axis in order else axis
        name = through.input[0]
    is_row = node.op_type == "Conv" or node.op_type == "Gemm" and attributes(node).get("transB")
    is_of_columns = axis == (0 if is_row else 1) and (node.op_type == "Conv" or len(shape) == 2)
    return "" if is_of_columns else "its weights have scales of another axis than its outputs"


def reason_for_floats(scope: Any, node: Any, version: str, opset: int) -> str:
    """By the rules of a version: why ONNX Runtime computes a QDQ group in floats, or fails to run it; "": in integers. `opset`: the
    version of ONNX's operators."""
    why, is_quantized = _reason_for_floats(scope, node, opset)
    if why:
        return _nbits(version) if becomes_matmul_nbits(scope, node, version) else why
    why = _scales_that_fit_no_operator(scope, *(scope.dequantizer(name) for name in node.input[:2]), node)
    operator = {"Gemm": "QGemm", "Conv": "QLinearConv"}.get(node.op_type, "QLinearMatMul" if is_quantized else "MatMulIntegerToFloat")
    operator = "QGemm" if _addition(scope, node)[0] is not None else operator
    is_float = why and _is_since(version, rules()["checks_scales_since"][operator])
    return why if is_float or not why else f"{why}, {FAILS}"


def _reason_for_floats(scope: Any, node: Any, opset: int) -> tuple[str, bool]:
    """Why ONNX Runtime computes a QDQ group in floats, whatever its scales are; and whether the output is quantized."""
    rule = rules()["groups"].get(node.op_type)
    if rule is None:
        return f"it computes {node.op_type} in floats", False
    a, b = (scope.dequantizer(name) for name in node.input[:2])
    through = scope.producer(node.input[1])
    if any(scope.producer(name).op_type == "Reshape" and scope.shape_of_constant(maker.input[0]) is not None
           for name, maker in zip(node.input, (a, b))):
        return "its weights are reshaped after they are dequantized", False
    if any(_is_held(scope, node, i) for i in (0, 1)):
        return "its inputs are moved after they are dequantized, with scales that are not one constant number", False
    is_constant = scope.shape_of_constant(b.input[0]) is not None
    stays = is_constant or any(_constant(scope, each) is None for each in b.input[1:] if each)  # ONNX Runtime moves other Transposes
    if stays and through.op_type == "Transpose" and len(scope.readers(node.input[1])) > 1:
        return "other nodes read its transposed weights too", False
    if is_constant and through.op_type == "Transpose" and opset < 21 and not _input(b, 2):
        return "its transposed weights have no zero point", False  # ONNX Runtime does not move the Transpose in front then
    if any(scope.scope_of(maker.output[0]) is not scope for maker in (a, b)):
        return "its inputs are dequantized outside its graph", False
    names = node.input[1::-1] if exchanges_operands(scope, node) else node.input[:2]  # of A and B as ONNX Runtime has them
    types = [_type(scope, scope.dequantizer(name)) for name in names]
    moved = [kind is np.int8 and is_moved(scope, node, name) for kind, name in zip(types, names)]
    add, bias = _addition(scope, node)
    rule = rules()["groups"]["Gemm"] if add is not None else rule
    stored = scope.shape_of_constant(b.input[0])
    if stored is not None and _BITS.get(stored[0], 8) < 8:
        return f"its weights have {_BITS[stored[0]]} bits", False
    quantizer, why = _output(scope, node)
    if why:
        return why, False
    if quantizer is None and not rule["float_output"]:
        return "its output is not quantized", False
    for name, kind in zip(("activations", "weights"), types):
        if kind not in (np.uint8, np.int8, None):
            return f"its {name} are {np.dtype(kind).name}", False
    is_s8 = types[0] is np.int8 and not moved[0]
    if quantizer is not None:
        kind = scope.type_of(quantizer.output[0])
        if kind not in (np.uint8, np.int8):
            return "the type of its output is not known" if kind is None else "its output has 16 bits", False
        if types[0] is not None and _stays_s8_behind(scope, node, quantizer) != is_s8:
            return "its input and its output differ in type", False
    if is_s8 and not rule["s8_input"]:
        return "its activations are s8 and stay s8", False
    if is_s8 and (types[1] is not np.int8 or moved[1]):
        return "its activations are s8 and its weights u8", False
    if rule["needs_zero_points"] and not all(_input(maker, 2) for maker in (a, b)):
        return "its activations or its weights have no zero point", False
    return _bias(scope, node, bias or _input(node, 2), rule, (a, b), quantizer is not None), quantizer is not None


def becomes_matmul_nbits(scope: Any, node: Any, version: str) -> bool:
    """By the rules of a version: whether ONNX Runtime makes a MatMulNBits of a MatMul or a Gemm with quantized weights, and
    activations that are float or have 16 bits."""
    from ._onnx import attributes

    activations, dequantizer = (scope.dequantizer(name) for name in node.input[:2])
    since = rules()["matmul_nbits_since"]
    if node.op_type not in ("MatMul", "Gemm") or dequantizer is None or not _is_since(version, since["of floats"]):
        return False
    if exchanges_operands(scope, node):
        return False
    add, bias = _addition(scope, node)
    is_held = activations is None or _is_held(scope, node, 0)
    quantizer, why = _output(scope, node)
    quantizes_bias = quantizer is not None and not why and not is_held
    types = [] if quantizer is None else [scope.type_of(quantizer.output[0])]
    if not is_held:
        types.append(_type(scope, activations))
    readers = _readers(scope, (add or node).output[0])
    if why == _ALSO_READ and {reader.op_type for reader in readers} == {"QuantizeLinear"} and not scope.is_output((add or node).output[0]):
        why = ""
    if why or types and (not _is_since(version, since["of 16 bits"]) or set(types) - {np.uint16, np.int16}):
        return False
    bias = bias or _input(node, 2)
    if bias and not _is_bias_of_nbits(scope, node, bias):
        return False
    scales = [scope.dequantizer(name) for name in node.input[:2]]
    if bias and quantizes_bias and _constant(scope, bias) is not None and any(
            scale is None or maker is activations and scale.shape == (1,) for maker in scales
            for scale in [_constant(scope, maker.input[1])]):
        return False  # ONNX Runtime quantizes the bias in the graph, and then does not know its shape
    values = attributes(node)
    if node.op_type == "Gemm":  # ONNX Runtime makes a Transpose in front of a Gemm part of the Gemm
        turned = [bool(values.get(name)) ^ (_takes_transposes(scope, node) and _turns(scope, operand) % 2 == 1)
                  for name, operand in zip(("transA", "transB"), node.input)]
        if values.get("alpha", 1.0) != 1 or any(turned) or _input(node, 2) and values.get("beta", 1.0) != 1:
            return False
    return _are_weights_of_nbits(scope, node, dequantizer)


def _turns(scope: Any, name: str) -> int:
    """How many Transposes there are between a DequantizeLinear, or floats, and a tensor."""
    from ._onnx import MOVED_THROUGH

    count, maker = 0, scope.producer(name)
    for _ in range(16):
        if maker is None or maker.op_type not in MOVED_THROUGH or not maker.input:
            break
        count += maker.op_type == "Transpose"
        maker = scope.producer(maker.input[0])
    return count


def _is_bias_of_nbits(scope: Any, node: Any, bias: str) -> bool:
    """Whether the bias of a Gemm has one number for each column."""
    shape, weights = scope.shape_of(bias), scope.shape_of(node.input[1])
    return shape is not None and len(shape) == 1 and weights is not None and shape[0] == weights[-1]


def _are_weights_of_nbits(scope: Any, node: Any, dequantizer: Any) -> bool:
    """Whether the weights are a constant matrix in one of the forms of a MatMulNBits, that nothing else reads."""
    from ._onnx import attributes

    name, is_turned = node.input[1], False
    while name != dequantizer.output[0]:
        through = scope.producer(name)
        if through.op_type not in ("Identity", "Transpose") or len(_readers(scope, name)) != 1 or scope.is_output(name):
            return False
        is_turned ^= through.op_type == "Transpose"
        name = through.input[0]
    if len(_readers(scope, name)) != 1 or scope.is_output(name):
        return False
    constants = [each for each in dequantizer.input if each]
    if any(scope.shape_of_constant(each) is None and _constant(scope, each) is None or each in scope.scope_of(each).overridable
           for each in constants):
        return False
    tensor = scope.shape_of_constant(constants[0])
    if tensor is None or len(tensor[1]) != 2 or tensor[0] not in _BITS:
        return False
    shapes = [scope.shape_of(each) for each in constants[1:]]
    is_turned &= not _takes_transposes(scope, node)  # of a Gemm, the Transpose and its transB undo each other
    depth, columns = tensor[1][::-1] if is_turned else tensor[1]
    block, axis = attributes(dequantizer).get("block_size", 0), attributes(dequantizer).get("axis", 1)
    axis = 1 - axis if is_turned else axis
    if block:
        fits = axis == 0 and block >= 16 and block & (block - 1) == 0 and not is_turned
        return fits and all(shape == (-(-depth // block), columns) for shape in shapes)
    return all(shape == () for shape in shapes) or axis == 1 and all(shape == (columns,) for shape in shapes)
