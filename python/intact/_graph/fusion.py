"""Which QDQ groups of an ONNX model ONNX Runtime computes in integers: asked of the installed ONNX Runtime,
which writes the graph that it runs; without ONNX Runtime by the rules of onnxruntime_rules.json.

A group is an operator whose inputs come from DequantizeLinear nodes. Each function returns a reason: "" if
the operator multiplies integers, else why it multiplies floats."""

from __future__ import annotations

import copy
import functools
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any, Callable

import numpy as np

from .._library import PACKAGE, is_x86
from .nodes import attributes, every_node, input_of, permutation_of
from .operators import row_of
from .weights import location_of

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
    return json.loads((PACKAGE / "onnxruntime_rules.json").read_text())


def rules_version() -> str:
    """The version of ONNX Runtime whose rules decide: the installed one if the rules name it or a version
    below and one above it, else the newest that they name."""
    import importlib.metadata  # it imports 36 modules, which models without QDQ groups do not need

    known = [rules()["version"], *rules()["also"]]
    try:
        installed = importlib.metadata.version("onnxruntime")
    except importlib.metadata.PackageNotFoundError:
        return known[0]
    if min(map(_numbers, known)) <= _numbers(installed) <= max(map(_numbers, known)):
        return installed
    return known[0]


def _numbers(version: str) -> tuple[int, ...]:
    """(1, 32, 0) of "1.32.0"."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _is_since(version: str, since: str | None) -> bool:
    """Whether a rule that holds since a version holds; None: in none."""
    return since is not None and _numbers(version) >= _numbers(since)


class Fusions:
    """What ONNX Runtime makes of each operator of a model. `source`: who says so, in words."""

    def __init__(self, proto: Any, folder: Path, ask: bool = True):
        # Off x86-64, ONNX Runtime computes other groups in integers.
        self._made, version = _asked(proto, folder) if ask and is_x86() else ({}, "")
        self.version = version or rules_version()
        self.source = (
            f"the graph that ONNX Runtime {version} makes of the model"
            if version
            else f"the rules of ONNX Runtime {self.version}"
        )
        self._opset = max(
            (entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), default=0
        )
        # Protobuf makes a node's wrapper again, at any address, if nothing holds it: the list holds the
        # wrappers, so ids are lasting.
        self._nodes = list(every_node(proto.graph)) if version else []
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

    dequantizer = scope.dequantizer(node.input[1])
    stored = scope.shape_of_constant(dequantizer.input[0])
    block = attributes(dequantizer).get("block_size", 0)
    bits = _BITS.get(stored[0]) if stored else None
    return (f" of {bits} bits" if bits else "") + (f" in blocks of {block}" if block else "")


def _asked(proto: Any, folder: Path) -> tuple[dict[int, set[str]], str]:
    """The operators in the place of each node of a model, by the node's number, and ONNX Runtime's version;
    ({}, "") if no ONNX Runtime is installed, or if it does not load the model."""
    size = proto.ByteSize() if proto is not None else 0
    names = set(map(location_of, proto.graph.initializer)) - {""}
    try:
        import onnx
        import onnxruntime

        size += sum((folder / name).stat().st_size for name in names)
        if size > _MOST_BYTES:
            return {}, ""
        named = copy.deepcopy(proto)
        for i, node in enumerate(every_node(named.graph)):
            node.name = f"intact:{i}:"  # ONNX Runtime keeps it, or begins a longer name with it
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        with tempfile.TemporaryDirectory() as made:
            options.optimized_model_filepath = os.path.join(made, "model.onnx")
            options.add_session_config_entry(
                "session.optimized_model_external_initializers_file_name", "weights"
            )
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", str(folder.resolve())
            )
            onnxruntime.InferenceSession(
                named.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            optimized = onnx.load(options.optimized_model_filepath, load_external_data=False)
    except Exception:  # without onnxruntime, or for a model that it refuses, the rules decide
        return {}, ""
    found: dict[int, set[str]] = {}
    for node in every_node(optimized.graph):
        for part in node.name.split("intact:")[1:]:
            number = part.split(":", 1)[0]
            if number.isdigit():
                found.setdefault(int(number), set()).add(node.op_type)
    return found, onnxruntime.__version__


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
    """Whether ONNX Runtime moves an s8 operand of the QDQ group of `node` to u8; `name`: what the operator
    reads. A QuantizeLinear and a DequantizeLinear with one constant zero point make the operand, and nothing
    else reads a tensor between the QuantizeLinear and the operator. Behind an operator that only moves
    numbers, ONNX Runtime puts such a pair itself."""
    dequantizer = scope.dequantizer(name)
    if dequantizer is None or all(_constant(scope, each) is not None for each in dequantizer.input if each):
        return False  # ONNX Runtime stores what the operators make of constants
    if name == node.input[0] and _is_behind_reshape(scope, node):
        return _has_one_point(scope, dequantizer)
    while name != dequantizer.output[0]:  # moved through these operators
        if len(scope.readers(name)) != 1 or scope.is_output(name):
            return False
        if scope.producer(name).op_type not in (
            *_REMOVED,
            *(["Transpose"] if _takes_transposes(scope, node) else []),
        ):
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
    points = [
        _constant(scope, input_of(node, 2)) if input_of(node, 2) else None
        for node in (quantizer, dequantizer)
    ]
    return (
        all(point is not None and point.size == 1 for point in points)
        and points[0].reshape(-1)[0] == points[1].reshape(-1)[0]
    )


def _is_held(scope: Any, node: Any, i: int) -> bool:
    """Whether an operator that moves numbers keeps a DequantizeLinear away from operand i of a node: each but
    a Transpose does, if the scale or the zero point is not one constant number."""
    name = node.input[i]
    dequantizer, is_moved_far = scope.dequantizer(name), i == 0 and _is_behind_reshape(scope, node)
    while dequantizer is not None and name != dequantizer.output[0]:
        is_moved_far |= scope.producer(name).op_type not in (*_REMOVED, "Transpose")
        name = scope.producer(name).input[0]
    return is_moved_far and dequantizer is not None and not _has_one_constant(scope, dequantizer)


def _has_one_point(scope: Any, node: Any) -> bool:
    """Whether the zero point of a QuantizeLinear or a DequantizeLinear is one constant number."""
    point = _constant(scope, node.input[2]) if input_of(node, 2) else None
    return point is not None and point.size == 1


def _has_one_constant(scope: Any, node: Any) -> bool:
    """Whether the scale of a QuantizeLinear or a DequantizeLinear, and its zero point if it has one, are each
    one constant number."""
    constants = [_constant(scope, each) for each in node.input[1:] if each]
    return all(each is not None and each.size == 1 for each in constants)


def _type(scope: Any, dequantizer: Any) -> Any:
    """The NumPy type of the integers that a DequantizeLinear reads, or None."""
    known = scope.type_of(input_of(dequantizer, 2)) if input_of(dequantizer, 2) else None
    return known or scope.type_of(dequantizer.input[0])


def has_s8_activations(scope: Any, node: Any) -> bool:
    """Whether the activations of a QDQ group are stored as s8."""
    return _type(scope, scope.dequantizer(node.input[0])) is np.int8


def stays_s8(scope: Any, node: Any) -> bool:
    """Whether the activations of a QDQ group are s8, and ONNX Runtime does not move them to u8."""
    return has_s8_activations(scope, node) and not is_moved(scope, node, node.input[0])


def _takes_transposes(scope: Any, node: Any) -> bool:
    """Whether ONNX Runtime makes Transposes in front of a node a part of it: of a Gemm that at most one node
    reads. It does so before it removes an Identity behind the Gemm, so the readers of the Identity do not
    count."""
    return node.op_type == "Gemm" and len(scope.readers(node.output[0])) < 2


def exchanges_operands(scope: Any, node: Any) -> bool:
    """Whether ONNX Runtime multiplies Bᵀ by Aᵀ, because a Transpose alone reads a Gemm without a bias."""
    readers = _readers(scope, node.output[0]) if node.op_type == "Gemm" and not input_of(node, 2) else []
    return len(readers) == 1 and readers[0].op_type == "Transpose" and not scope.is_output(node.output[0])


def _clamps_as_the_quantizer(scope: Any, node: Any, quantizer: Any) -> bool:
    """Whether a Relu or a Clip changes nothing, because the QuantizeLinear behind it clamps at least as
    much."""
    scale, point = _constant(scope, quantizer.input[1]), np.zeros((), np.uint8)
    if input_of(quantizer, 2):
        point = _constant(scope, quantizer.input[2])
    if point is None or point.size != 1 or point.dtype.kind not in "iu":
        return False
    limits = np.iinfo(point.dtype)
    if node.op_type == "Relu":
        return int(point.reshape(-1)[0]) == limits.min
    readers = scope.readers(quantizer.output[0])
    is_moved = point.dtype == np.int8 and _is_moved(
        scope, quantizer, readers[0] if len(readers) == 1 else None
    )
    # the zero point of a moved tensor has no dimensions
    if scale is None or scale.ndim or point.ndim and not is_moved:
        return False
    low, high, _ = scope.real_range(node.output[0])
    with np.errstate(all="ignore"):
        low, high = (
            np.rint(np.clip(value / float(scale), -(2.0**31), 2.0**31)) + int(point.reshape(-1)[0])
            for value in (low, high)
        )
    return low <= limits.min and high >= limits.max


def _behind(scope: Any, name: str) -> list:
    """The readers of a tensor. If a QuantizeLinear moves back to the tensor, through operators that only move
    numbers, it alone."""

    readers, at, needs_constants = _readers(scope, name), name, False
    for _ in range(16):
        if len(readers) != 1 or scope.is_output(at):
            break
        if readers[0].op_type == "QuantizeLinear":
            is_constant = all(_constant(scope, each) is not None for each in readers[0].input[1:] if each)
            return readers if is_constant or not needs_constants else _readers(scope, name)
        if not row_of(readers[0]).is_passed:
            break
        # ONNX Runtime exchanges a Transpose and any QuantizeLinear
        needs_constants |= readers[0].op_type not in (*_REMOVED, "Transpose")
        at = readers[0].output[0]
        readers = _readers(scope, at)
    return _readers(scope, name)


def _stays_s8_behind(scope: Any, node: Any, quantizer: Any) -> bool:
    """Whether the output of an operator of integers is s8: of a QuantizeLinear to s8 that stays s8, and has
    not moved back through operators behind which it left another one."""
    readers = scope.readers(quantizer.output[0])
    if scope.type_of(quantizer.output[0]) is not np.int8 or _is_moved(
        scope, quantizer, readers[0] if len(readers) == 1 else None
    ):
        return False

    if _is_behind_reshape(scope, node):
        return not _has_one_point(scope, quantizer)
    through = scope.producer(quantizer.input[0])
    for _ in range(16):
        if through is None or not row_of(through).is_passed or exchanges_operands(scope, node):
            return True
        if through.op_type not in _REMOVED:
            return not _has_one_point(scope, quantizer)
        through = scope.producer(through.input[0])
    return True


def _is_behind_reshape(scope: Any, node: Any) -> bool:
    """Whether ONNX Runtime puts the Gemm that it makes of a MatMul and an Add between Reshapes, because the
    activations have more or fewer than two dimensions."""
    shape = scope.shape_of(node.input[0]) if _addition(scope, node)[0] is not None else None
    return shape is not None and len(shape) != 2


def _output(scope: Any, node: Any) -> tuple[Any, str]:
    """The QuantizeLinear behind an operator and its Add, or None, and why ONNX Runtime then computes
    floats."""
    is_reshaped, node = _is_behind_reshape(scope, node), _addition(scope, node)[0] or node
    name = (
        node.output[0]
        if not exchanges_operands(scope, node)
        else _readers(scope, node.output[0])[0].output[0]
    )
    readers = _behind(scope, name)
    if (
        len(readers) == 1
        and readers[0].op_type in ("Relu", "Clip")
        and not scope.is_output(readers[0].output[0])
    ):
        clip, behind = readers[0], _behind(scope, readers[0].output[0])
        if len(behind) == 1 and not scope.is_output(name):
            if is_reshaped:
                return None, ""  # the Reshape keeps the QuantizeLinear away
            if behind[0].op_type == "QuantizeLinear" and _clamps_as_the_quantizer(scope, clip, behind[0]):
                return behind[0], ""
            return None, f"a {clip.op_type} changes its output"
    quantizers = [reader for reader in readers if reader.op_type == "QuantizeLinear"]
    if is_reshaped and (
        len(readers) > 1
        or scope.is_output(name)
        or quantizers
        and not _has_one_constant(scope, quantizers[0])
    ):
        return None, ""  # the Reshape has these readers
    if quantizers and (len(readers) > 1 or scope.is_output(name)):
        return quantizers[0], _ALSO_READ
    return (quantizers or [None])[0], ""


def _addition(scope: Any, node: Any) -> tuple[Any, str]:
    """The Add behind a MatMul that ONNX Runtime makes a Gemm with the MatMul, and the bias that it adds; None
    without one."""
    readers = scope.readers(node.output[0]) if node.op_type == "MatMul" else []
    if len(readers) != 1 or readers[0].op_type != "Add" or node.output[0] in scope.outputs:
        return None, ""
    bias = next((name for name in readers[0].input if name != node.output[0]), "")
    a, b, added = (scope.shape_of(name) for name in (*node.input[:2], bias))
    if added is None or b is not None and len(b) != 2:
        return None, ""
    is_constant = (
        scope.shape_of_constant(bias) is not None
        or scope.producer(bias) is not None
        and (
            scope.producer(bias).op_type == "DequantizeLinear"
            and scope.shape_of_constant(scope.producer(bias).input[0]) is not None
        )
    )
    if len(added) == 1:  # the audit may not know shapes that ONNX Runtime knows
        columns = b[1] if b is not None else added[0] if is_constant else None
        is_bias = columns is not None and added[0] == columns
    else:
        is_bias = (
            a is not None
            and b is not None
            and len(added) == len(a) == 2
            and None not in (added[0], added[1])
            and (added[0] == 1 and added[1] == b[1] or added[0] == a[0] and added[1] in (1, b[1]))
        )
    return (readers[0], bias) if is_bias else (None, "")


def bias_difference(scope: Any, dequantizers: tuple, bias: Any) -> tuple[np.ndarray, np.ndarray, bool] | None:
    """a_scale·b_scale of each channel, how far the scale of a bias is from it, and whether the bias has
    another zero point than 0; None if a scale is no constant."""
    scales = [_constant(scope, node.input[1]) for node in (*dequantizers, bias)]
    point = _constant(scope, bias.input[2]) if input_of(bias, 2) else np.zeros(1)
    if any(scale is None for scale in scales) or point is None or scales[0].size != 1:
        return None
    a, b, own = (scale.reshape(-1).astype(np.float32) for scale in scales)
    if len({b.size, own.size} - {1}) > 1:
        return None
    expected = a * b
    with np.errstate(all="ignore"):
        return np.abs(expected) + np.zeros_like(own), np.abs(own - expected), bool(point.any())


def wrong_bias(scope: Any, node: Any) -> str:
    """What ONNX Runtime computes wrongly of a group that it computes in integers: it ignores the scale and
    the zero point of the bias."""
    name = input_of(node, 2) or _addition(scope, node)[1]
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


class _Group:
    """What decides in which arithmetic ONNX Runtime computes a node, its DequantizeLinear nodes and its
    QuantizeLinear. `opset`: the version of ONNX's operators."""

    def __init__(self, scope: Any, node: Any, opset: int):
        self.scope, self.node, self.opset = scope, node, opset
        self.a, self.b = (scope.dequantizer(name) for name in node.input[:2])
        self.add, bias = _addition(scope, node)
        self.rule = rules()["groups"].get("Gemm" if self.add is not None else node.op_type)
        self.bias = bias or input_of(node, 2)  # a name
        self.quantizer, self.output_reason = _output(scope, node)
        self.through = scope.producer(node.input[1])
        self.stored = scope.shape_of_constant(self.b.input[0])  # of the weights
        self.weight_bits = _BITS.get(self.stored[0], 8) if self.stored is not None else 8
        # of A and B as ONNX Runtime has them
        names = node.input[1::-1] if exchanges_operands(scope, node) else node.input[:2]
        self.types = [_type(scope, scope.dequantizer(name)) for name in names]
        a_stays, b_stays = (
            kind is np.int8 and not is_moved(scope, node, name) for kind, name in zip(self.types, names)
        )
        self.is_s8, self.has_s8_weights = a_stays, b_stays
        self.a_type, self.b_type = ("unknown" if kind is None else np.dtype(kind).name for kind in self.types)

    def is_known(self, name: str) -> bool:
        return _constant(self.scope, name) is not None

    def has_reshaped_constant(self) -> bool:
        return any(
            self.scope.producer(name).op_type == "Reshape"
            and self.scope.shape_of_constant(maker.input[0]) is not None
            for name, maker in zip(self.node.input, (self.a, self.b))
        )

    def keeps_transpose(self) -> bool:
        """Whether a Transpose behind the weights' DequantizeLinear stays there if another node reads it: ONNX
        Runtime moves only Transposes of weights that a run gives, with constant scales."""
        is_moved_forward = self.stored is None and all(
            self.is_known(each) for each in self.b.input[1:] if each
        )
        return self.through.op_type == "Transpose" and not is_moved_forward

    def output_type(self) -> Any:
        return self.scope.type_of(self.quantizer.output[0]) if self.quantizer is not None else None

    def differs_in_type(self) -> bool:
        return (
            self.quantizer is not None
            and self.types[0] is not None
            and (_stays_s8_behind(self.scope, self.node, self.quantizer) != self.is_s8)
        )

    def has_factor(self) -> bool:

        values = attributes(self.node)
        return self.node.op_type == "Gemm" and (values.get("alpha", 1.0) != 1 or values.get("beta", 1.0) != 1)

    def bias_maker(self) -> Any:
        """The DequantizeLinear of the bias, or None."""
        maker = self.scope.producer(self.bias) if self.bias else None
        return maker if maker is not None and maker.op_type == "DequantizeLinear" else None

    def has_float_bias(self) -> bool:
        """Whether the bias is float, and ONNX Runtime does not quantize it. If the output is quantized, it
        quantizes a constant one."""
        if not self.bias or self.bias_maker() is not None:
            return False
        bias, scale, other = (
            _constant(self.scope, name) for name in (self.bias, self.a.input[1], self.b.input[1])
        )
        if self.quantizer is None or bias is None or bias.ndim != 1:
            return True
        fits = (
            scale is not None
            and other is not None
            and scale.size == 1
            and other.size in (1, bias.size)
            and scale.ndim <= other.ndim
        )
        return self.rule["checks_bias"] and not fits

    def bias_difference(self) -> tuple[np.ndarray, np.ndarray, bool] | None:
        return bias_difference(self.scope, (self.a, self.b), self.bias_maker())

    def has_own_bias(self) -> bool:
        """Whether the scale or the zero point of a bias is too far from the one that ONNX Runtime's integer
        operator assumes."""
        expected, apart, point = self.bias_difference()
        limit = rules()["bias_scale"]
        return point or bool((apart > limit["absolute"] + limit["relative"] * expected).any())

    def has_blocks(self) -> bool:

        return bool(attributes(self.b).get("block_size"))

    def has_block_of_column(self) -> bool:
        """Whether each column of a MatMul's weights is one block: ONNX Runtime's operators run them as
        weights with a scale for each column."""
        shape = self.scope.shape_of(self.b.input[0])
        return (
            self.node.op_type == "MatMul"
            and self.add is None
            and shape is not None
            and len(shape) == 2
            and (self.scope.shape_of(self.b.input[1]) == (1, shape[1]))
        )

    def has_other_axis(self) -> bool:
        """Whether the weights have several scales that do not belong to the outputs of the operator."""

        scale, shape = self.scope.shape_of(self.b.input[1]), self.scope.shape_of(self.b.input[0])
        if not scale or scale == (1,) or not shape:
            return False
        axis = attributes(self.b).get("axis", 1)
        axis += len(shape) if axis < 0 else 0
        name = self.node.input[1]
        while name != self.b.output[0]:  # back to the operator's view of the weights
            through = self.scope.producer(name)
            if through.op_type == "Transpose":
                permutation = permutation_of(through, len(shape)) or []
                axis = permutation.index(axis) if axis in permutation else axis
            name = through.input[0]
        is_row = (
            self.node.op_type == "Conv" or self.node.op_type == "Gemm" and attributes(self.node).get("transB")
        )
        return axis != (0 if is_row else 1) or self.node.op_type != "Conv" and len(shape) != 2


# Why ONNX Runtime computes a group in floats: the first row that holds. In a reason, {g} is the group.
_FLOATS: tuple[tuple[str, Callable[[_Group], Any]], ...] = (
    ("it computes {g.node.op_type} in floats", lambda g: g.rule is None),
    ("its weights are reshaped after they are dequantized", _Group.has_reshaped_constant),
    (
        "its inputs are moved after they are dequantized, with scales that are not one constant number",
        lambda g: any(_is_held(g.scope, g.node, i) for i in (0, 1)),
    ),
    (
        "other nodes read its transposed weights too",
        lambda g: g.keeps_transpose() and len(g.scope.readers(g.node.input[1])) > 1,
    ),
    (
        "its transposed weights have no zero point",  # then ONNX Runtime does not move the Transpose in front
        lambda g: (
            g.stored is not None
            and g.through.op_type == "Transpose"
            and g.opset < 21
            and not input_of(g.b, 2)
        ),
    ),
    (
        "its inputs are dequantized outside its graph",
        lambda g: any(g.scope.scope_of(each.output[0]) is not g.scope for each in (g.a, g.b)),
    ),
    ("its weights have {g.weight_bits} bits", lambda g: g.weight_bits < 8),
    ("{g.output_reason}", lambda g: g.output_reason),
    ("its output is not quantized", lambda g: g.quantizer is None and not g.rule["float_output"]),
    ("its activations are {g.a_type}", lambda g: g.types[0] not in (np.uint8, np.int8, None)),
    ("its weights are {g.b_type}", lambda g: g.types[1] not in (np.uint8, np.int8, None)),
    ("the type of its output is not known", lambda g: g.quantizer is not None and g.output_type() is None),
    (
        "its output has 16 bits",
        lambda g: g.quantizer is not None and g.output_type() not in (np.uint8, np.int8),
    ),
    ("its input and its output differ in type", _Group.differs_in_type),
    ("its activations are s8 and stay s8", lambda g: g.is_s8 and not g.rule["s8_input"]),
    ("its activations are s8 and its weights u8", lambda g: g.is_s8 and not g.has_s8_weights),
    (
        "its activations or its weights have no zero point",
        lambda g: g.rule["needs_zero_points"] and not (input_of(g.a, 2) and input_of(g.b, 2)),
    ),
    ("it has a bias, and alpha or beta is not 1", lambda g: g.bias and g.has_factor()),
    ("its bias is float", _Group.has_float_bias),
    (
        "its bias is not int32",
        lambda g: g.bias_maker() is not None and g.scope.type_of(g.bias_maker().input[0]) != np.int32,
    ),
    (
        "the scale of its bias is no constant",
        lambda g: g.bias_maker() is not None and g.rule["checks_bias"] and g.bias_difference() is None,
    ),
    (
        "its bias has a scale or a zero point of its own",
        lambda g: g.bias_maker() is not None and g.rule["checks_bias"] and g.has_own_bias(),
    ),
)
# Scales that no integer operator has. ONNX Runtime computes floats, or fails to run the integer operator that
# it makes.
_NO_OPERATOR: tuple[tuple[str, Callable[[_Group], Any]], ...] = (
    ("its weights are quantized in blocks", _Group.has_blocks),
    (
        "its activations have a scale for each channel",
        lambda g: (g.scope.shape_of(g.a.input[1]) or (1,)) != (1,),
    ),
    ("its weights have scales of another axis than its outputs", _Group.has_other_axis),
)


def _first(table: tuple, group: _Group) -> str:
    """The reason of the first row that holds; "": none does."""
    return next((reason.format(g=group) for reason, holds in table if holds(group)), "")


def reason_for_floats(scope: Any, node: Any, version: str, opset: int) -> str:
    """By the rules of a version: why ONNX Runtime computes a QDQ group in floats, or fails to run it; "": in
    integers. `opset`: the version of ONNX's operators."""
    group = _Group(scope, node, opset)
    why = _first(_FLOATS, group)
    if why:
        return _nbits(version) if becomes_matmul_nbits(scope, node, version) else why
    why = _first(_NO_OPERATOR, group)
    products = "MatMulIntegerToFloat" if group.quantizer is None else "QLinearMatMul"
    operator = (
        "QGemm"
        if group.add is not None
        else {"Gemm": "QGemm", "Conv": "QLinearConv"}.get(node.op_type, products)
    )
    if not why or _is_since(version, rules()["checks_scales_since"][operator]):
        return why
    return "" if group.has_blocks() and group.has_block_of_column() else f"{why}, {FAILS}"


def becomes_matmul_nbits(scope: Any, node: Any, version: str) -> bool:
    """By the rules of a version: whether ONNX Runtime makes a MatMulNBits of a MatMul or a Gemm with
    quantized weights, and activations that are float or have 16 bits."""

    activations, dequantizer = (scope.dequantizer(name) for name in node.input[:2])
    since = rules()["matmul_nbits_since"]
    if (
        node.op_type not in ("MatMul", "Gemm")
        or dequantizer is None
        or not _is_since(version, since["of floats"])
    ):
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
    if (
        why == _ALSO_READ
        and {reader.op_type for reader in readers} == {"QuantizeLinear"}
        and not scope.is_output((add or node).output[0])
    ):
        why = ""
    if why or types and (not _is_since(version, since["of 16 bits"]) or set(types) - {np.uint16, np.int16}):
        return False
    bias = bias or input_of(node, 2)
    if bias and not _is_bias_of_nbits(scope, node, bias):
        return False
    scales = [scope.dequantizer(name) for name in node.input[:2]]
    if (
        bias
        and quantizes_bias
        and _constant(scope, bias) is not None
        and any(
            scale is None or maker is activations and scale.shape == (1,)
            for maker in scales
            for scale in [_constant(scope, maker.input[1])]
        )
    ):
        return False  # ONNX Runtime quantizes the bias in the graph, and then does not know its shape
    values = attributes(node)
    if node.op_type == "Gemm":  # ONNX Runtime makes a Transpose in front of a Gemm part of the Gemm
        turned = [
            bool(values.get(name)) ^ (_takes_transposes(scope, node) and _turns(scope, operand) % 2 == 1)
            for name, operand in zip(("transA", "transB"), node.input)
        ]
        if values.get("alpha", 1.0) != 1 or any(turned) or input_of(node, 2) and values.get("beta", 1.0) != 1:
            return False
    return _are_weights_of_nbits(scope, node, dequantizer)


def _turns(scope: Any, name: str) -> int:
    """How many Transposes there are between a DequantizeLinear, or floats, and a tensor."""

    count, maker = 0, scope.producer(name)
    for _ in range(16):
        if maker is None or not row_of(maker).is_passed or not maker.input:
            break
        count += maker.op_type == "Transpose"
        maker = scope.producer(maker.input[0])
    return count


def _is_bias_of_nbits(scope: Any, node: Any, bias: str) -> bool:
    """Whether the bias of a Gemm has one number for each column."""

    shape, weights = scope.shape_of(bias), scope.shape_of(node.input[1])
    is_row = node.op_type == "Gemm" and attributes(node).get("transB")
    return (
        shape is not None
        and len(shape) == 1
        and weights is not None
        and shape[0] == weights[0 if is_row else -1]
    )


def _are_weights_of_nbits(scope: Any, node: Any, dequantizer: Any) -> bool:
    """Whether the weights are a constant matrix in one of the forms of a MatMulNBits, that nothing else
    reads."""

    name, is_turned = node.input[1], False
    while name != dequantizer.output[0]:
        through = scope.producer(name)
        if (
            through.op_type not in ("Identity", "Transpose")
            or len(_readers(scope, name)) != 1
            or scope.is_output(name)
        ):
            return False
        is_turned ^= through.op_type == "Transpose"
        name = through.input[0]
    if len(_readers(scope, name)) != 1 or scope.is_output(name):
        return False
    constants = [each for each in dequantizer.input if each]
    if any(
        scope.shape_of_constant(each) is None
        and _constant(scope, each) is None
        or each in scope.scope_of(each).overridable
        for each in constants
    ):
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
