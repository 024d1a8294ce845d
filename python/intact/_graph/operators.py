"""What intact knows about the operators of ONNX: a row for each.

A new operator that only moves values is one row. An operator without a row is unknown: its tensors keep their
stored order, its output may have any value, and its constants may describe anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, NamedTuple

from . import elements, products, shapes

ALL = range(64)  # every input
BOUNDED = "the range of the first input"
_MS = frozenset({"com.microsoft"})
_BOTH = frozenset({"", "com.microsoft"})


class Inputs(NamedTuple):
    """The numbers of a product's inputs; None: it has no such input. `b`: the weights. `bias`: int32, or
    float if `has_float_bias`. `c_scale`, `c_point`: of the output."""

    b: int
    b_scale: "int | None" = None
    b_point: "int | None" = None
    a_scale: "int | None" = None
    a_point: "int | None" = None
    c_scale: "int | None" = None
    c_point: "int | None" = None
    bias: "int | None" = None
    has_float_bias: bool = False

    @property
    def of_columns(self) -> "list[int]":
        """The inputs that have one value, or one for each column of the weights."""
        return sorted(
            i for i in (self.b_scale, self.b_point, self.c_scale, self.c_point, self.bias) if i is not None
        )

    @property
    def of_rows(self) -> "list[int]":
        """The inputs that have one value, or one for each row of the activations."""
        return [i for i in (self.a_scale, self.a_point) if i is not None]

    @property
    def steps(self) -> "tuple[int, int, int] | None":
        """The scales of both operands and of the output, if the operator requantizes."""
        return None if self.c_scale is None else (self.a_scale, self.b_scale, self.c_scale)

    @property
    def int_bias(self) -> "int | None":
        return None if self.has_float_bias else self.bias


@dataclass(frozen=True)
class Operator:
    """A row.

    - `axes`: how axes move through the operator (elements.py); None: they are not followed.
    - `domains`: those whose operator of this name this is; "" is ai.onnx.
    - `moves`: each value of the output is a value of an input.
    - `range`: bounds of the output, or BOUNDED. An operator that moves values has BOUNDED; None: no bound.
    - `keeps_shape`: the output has the shape of the first input.
    - `keeps_uniform`: if all elements of the first input are equal, so are the output's.
    - `is_lazy`: a constant stays a constant behind it, and its axes are those of the constant that is stored.
    - `is_passed`: ONNX Runtime 1.32 moves a DequantizeLinear forward through it, and a QuantizeLinear back.
    - `is_exact`: it moves values or computes integers, so its bytes are the same on every CPU.
    - `is_arithmetic`: what it computes from integers has no rounding noise.
    - `has_no_noise`: its output has no rounding noise, whatever the input.
    - `values`: inputs that it reads as values, in which rounding noise may be.
    - `descriptions`: inputs that describe the computation.
    - `inputs`: of a product of activations and weights.
    - `quantizes`: the operator whose quantized form it is.
    - `c_point`: the input that is the output's zero point, and so has its type."""

    axes: "Callable[[Any, Any], list | None] | None" = None
    domains: "frozenset[str]" = frozenset({""})
    moves: bool = False
    range: "tuple[float, float] | str | None" = None
    keeps_shape: bool = False
    keeps_uniform: bool = False
    is_lazy: bool = False
    is_passed: bool = False
    is_exact: bool = False
    is_arithmetic: bool = False
    has_no_noise: bool = False
    values: "tuple[int, ...] | range" = ()
    descriptions: "tuple[int, ...] | range" = ()
    inputs: "Inputs | None" = None
    quantizes: str = ""
    c_point: "int | None" = None


def _moving(axes: Any, range: Any = BOUNDED, **columns: Any) -> Operator:
    """The row of an operator that only moves values."""
    return Operator(
        axes, **{"moves": True, "range": range, "is_exact": True, "is_arithmetic": True, **columns}
    )


def _computing(axes: Any, values: Any = ALL, **columns: Any) -> Operator:
    """The row of an operator whose float constants are values."""
    return Operator(axes, values=values, **columns)


def _comparing(**columns: Any) -> Operator:
    return Operator(elements.broadcast, has_no_noise=True, descriptions=ALL, **columns)


def _logical(axes: Any = elements.broadcast) -> Operator:
    return Operator(axes, has_no_noise=True, is_exact=True)


def _quantized(axes: Any, quantizes: str, inputs: "Inputs | None" = None, **columns: Any) -> Operator:
    """The row of an operator of quantized tensors."""
    columns = {"domains": _MS, "values": ALL, "c_point": inputs.c_point if inputs else None, **columns}
    return Operator(axes, quantizes=quantizes, inputs=inputs, **columns)


_ALIKE, _EACH = Operator(elements.same), Operator(elements.same, keeps_shape=True)
_FIRST_AND_BIAS = Inputs(1, bias=2, has_float_bias=True)
_AMONG = elements.broadcast
_ADDED = Operator(elements.reduce)
_NORMALIZED = _computing(elements.layer_normalization)

OPERATORS: "dict[str, Operator]" = {
    # ----- operators that move values -----
    "Identity": _moving(elements.same, keeps_shape=True, keeps_uniform=True, is_lazy=True, is_passed=True),
    "Transpose": _moving(shapes.transpose, keeps_uniform=True, is_lazy=True, is_passed=True),
    "Reshape": _moving(shapes.reshape, keeps_uniform=True, is_lazy=True, is_passed=True),
    "Squeeze": _moving(shapes.squeeze, keeps_uniform=True, is_lazy=True, is_passed=True),
    "Unsqueeze": _moving(shapes.unsqueeze, keeps_uniform=True, is_lazy=True, is_passed=True),
    "Flatten": _moving(shapes.flatten),
    "Slice": _moving(shapes.slice_, keeps_uniform=True, is_passed=True),
    "Split": _moving(shapes.split, keeps_uniform=True),
    "Gather": _moving(shapes.gather, keeps_uniform=True, values=(0,)),
    "Expand": _moving(shapes.expand, keeps_uniform=True),
    "Tile": _moving(None),
    "Concat": _moving(shapes.concat, range=None),
    "Pad": _moving(shapes.pad, range=None),
    "DepthToSpace": _moving(shapes.items_only),
    "SpaceToDepth": _moving(shapes.items_only),
    "Dropout": Operator(elements.same, is_passed=True),
    "MaxPool": Operator(elements.pool, range=BOUNDED, is_passed=True),
    "Resize": Operator(shapes.resize, descriptions=(1, 2, 3)),
    **dict.fromkeys(
        """BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Compress ConcatFromSequence EyeLike
        GatherElements GatherND ReverseSequence ScatterElements ScatterND Trilu""".split(),
        Operator(is_exact=True),
    ),
    # ----- element by element -----
    "Relu": _EACH,
    "Clip": _EACH,
    "LeakyRelu": _EACH,
    "Erf": _EACH,
    "Sigmoid": Operator(elements.same, range=(0.0, 1.0), keeps_shape=True),
    "HardSigmoid": Operator(elements.same, range=(0.0, 1.0)),
    "Tanh": Operator(elements.same, range=(-1.0, 1.0), keeps_shape=True),
    "Gelu": Operator(elements.same, _BOTH, keeps_shape=True),
    "QuickGelu": Operator(elements.same, _MS),
    "FastGelu": _computing(elements.same, domains=_MS),
    "Cast": Operator(elements.same, keeps_uniform=True, is_lazy=True, is_arithmetic=True),
    "Neg": Operator(elements.same, keeps_shape=True, is_arithmetic=True),
    "Abs": Operator(elements.same, keeps_shape=True, is_arithmetic=True),
    **dict.fromkeys(("Floor", "Ceil", "Round"), Operator(elements.same, is_arithmetic=True)),
    **dict.fromkeys(
        """Elu Selu Celu HardSwish Exp Log Sqrt Reciprocal Sign Softplus Softsign Mish ThresholdedRelu Sin Cos Shrink Swish
                       CastLike""".split(),
        _ALIKE,
    ),
    "Not": _logical(elements.same),
    "IsNaN": Operator(elements.same, has_no_noise=True),
    "IsInf": Operator(elements.same, has_no_noise=True, descriptions=ALL),
    # ----- of several inputs -----
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Div", "Min", "Max", "Mean", "Sum"), _computing(_AMONG, is_arithmetic=True)
    ),
    "Where": _computing(_AMONG, (1, 2), is_arithmetic=True),
    "PRelu": _computing(_AMONG),
    "BiasGelu": _computing(_AMONG, domains=_MS),
    "Pow": Operator(_AMONG, descriptions=(1,)),
    "Mod": Operator(_AMONG, descriptions=ALL),
    **dict.fromkeys(("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"), _comparing()),
    **dict.fromkeys(("And", "Or", "Xor"), _logical()),
    # ----- over axes -----
    **dict.fromkeys(
        """ReduceMean ReduceSum ReduceL1 ReduceL2 ReduceSumSquare ReduceProd ReduceLogSum ReduceLogSumExp
        ReduceMin""".split(),
        _ADDED,
    ),
    "ReduceMax": Operator(elements.reduce, range=BOUNDED),
    "AveragePool": Operator(elements.pool),
    "GlobalMaxPool": Operator(elements.pool),
    "GlobalAveragePool": Operator(elements.pool, range=BOUNDED),
    "Softmax": Operator(elements.softmax, range=(0.0, 1.0), keeps_shape=True),
    "LogSoftmax": Operator(elements.softmax),
    "Hardmax": Operator(elements.softmax),
    "BatchNormalization": _computing(elements.batch_normalization),
    "InstanceNormalization": _computing(elements.instance_normalization),
    "LayerNormalization": _computing(elements.layer_normalization, keeps_shape=True),
    "SimplifiedLayerNormalization": _NORMALIZED,
    "RMSNormalization": _NORMALIZED,
    "SkipLayerNormalization": _computing(elements.skip_layer_normalization, domains=_MS),
    "SkipSimplifiedLayerNormalization": _computing(elements.skip_layer_normalization, domains=_MS),
    "EmbedLayerNormalization": _computing(elements.embed_layer_normalization, domains=_MS),
    "GroupNormalization": _computing(None),
    # ----- products -----
    "MatMul": _computing(products.product, inputs=Inputs(1)),
    "Gemm": _computing(products.product, inputs=_FIRST_AND_BIAS),
    "Conv": _computing(products.convolution, inputs=_FIRST_AND_BIAS),
    "QLinearConv": _quantized(products.convolution, "Conv", Inputs(3, 4, 5, 1, 2, 6, 7, 8), domains=_BOTH),
    "QLinearMatMul": _quantized(
        products.product, "MatMul", Inputs(3, 4, 5, 1, 2, 6, 7), domains=frozenset({""})
    ),
    "QGemm": _quantized(products.product, "Gemm", Inputs(3, 4, 5, 1, 2, 7, 8, 6)),
    "MatMulInteger": Operator(products.product, quantizes="MatMul", inputs=Inputs(1, b_point=3, a_point=2)),
    "ConvInteger": Operator(products.convolution, quantizes="Conv", inputs=Inputs(1, b_point=3, a_point=2)),
    "MatMulIntegerToFloat": _quantized(
        products.product, "MatMul", Inputs(1, 3, 5, 2, 4, bias=6, has_float_bias=True)
    ),
    "DynamicQuantizeMatMul": _quantized(
        products.product, "MatMul", Inputs(1, 2, 3, bias=4, has_float_bias=True)
    ),
    "DynamicQuantizeLSTM": _quantized(products.lstm, "LSTM", Inputs(1, 8, 9)),
    "QAttention": _quantized(None, "Attention", Inputs(1, 4, 7, 3, 6)),
    "MultiHeadAttention": Operator(products.attention, _MS),
    **dict.fromkeys(
        (
            "FusedMatMul",
            "FusedGemm",
            "FusedConv",
            "ConvTranspose",
            "Attention",
            "MatMulNBits",
            "QMoE",
            "GatherBlockQuantized",
        ),
        _computing(None),
    ),
    "LSTM": _computing(None, (1, 2, 3, 5, 6, 7)),
    "GRU": _computing(None, (1, 2, 3, 5)),
    "RNN": _computing(None, (1, 2, 3, 5)),
    # ----- of quantized tensors -----
    "QuantizeLinear": _computing(elements.quantize_linear, domains=_BOTH, keeps_shape=True, is_lazy=True),
    "DequantizeLinear": _computing(elements.quantize_linear, domains=_BOTH, keeps_shape=True, is_lazy=True),
    "DynamicQuantizeLinear": Operator(elements.dynamic_quantize_linear),
    "QLinearAdd": _quantized(_AMONG, "Add", c_point=7),
    "QLinearMul": _quantized(_AMONG, "Mul", c_point=7),
    "QLinearSigmoid": _quantized(elements.same, "Sigmoid", c_point=4),
    "QLinearLeakyRelu": _quantized(elements.same, "LeakyRelu", c_point=4),
    "QLinearAveragePool": _quantized(elements.pool, "AveragePool", c_point=4),
    "QLinearGlobalAveragePool": _quantized(elements.pool, "GlobalAveragePool", c_point=4),
    "QLinearConcat": _quantized(shapes.qlinear_concat, "Concat", c_point=1),
    "QLinearSoftmax": _quantized(None, "Softmax", c_point=4),
    "QLinearReduceMean": _quantized(None, "ReduceMean", c_point=4),
    "QLinearWhere": _quantized(None, "Where", c_point=8),
    # ----- sizes and integers -----
    "Shape": Operator(shapes.shape, has_no_noise=True, is_exact=True),
    "Size": Operator(shapes.size, has_no_noise=True, is_exact=True),
    "ConstantOfShape": Operator(shapes.constant_of_shape, has_no_noise=True, is_exact=True),
    "Constant": Operator(shapes.constant, has_no_noise=True, is_exact=True),
    "NonZero": Operator(has_no_noise=True, descriptions=ALL, is_exact=True),
    "Range": Operator(descriptions=ALL, is_exact=True),
    "ArgMax": Operator(has_no_noise=True),
    "ArgMin": Operator(has_no_noise=True),
    "OneHot": Operator(descriptions=(1, 2), is_exact=True),
    "Upsample": Operator(descriptions=(1,)),
    "NonMaxSuppression": Operator(descriptions=(2, 3, 4)),
}
UNKNOWN = Operator()


def row_of(node: Any) -> Operator:
    """The row of the operator of a node or of a layer, by its name alone."""
    return OPERATORS.get(node.op_type, UNKNOWN)


def is_integer_product(node: Any) -> bool:
    """Whether a node multiplies integers, so that its sums may clamp."""
    inputs = row_of(node).inputs
    return inputs is not None and inputs.b_point is not None


def is_convolution(node: Any) -> bool:
    return row_of(node).axes is products.convolution


def where(column: str) -> "frozenset[str]":
    """The operators whose rows have a column."""
    return frozenset(name for name, one in OPERATORS.items() if getattr(one, column))
