"""Random problems of ONNX Runtime's operators: models of one node and inputs, and how they run, for the table
of operators whose bytes are the same on every CPU (measure.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Mapping

import numpy as np

from .._graph.operators import where

ENGINE = "ONNX Runtime"
ENVIRONMENT: Mapping[str, str] = {}  # of the processes
THREADS = (1, 2, 4)
# Operators that the optimizer gives kernels for blocks of channels; other operators stay what they are.
_BLOCKED = set(
    """Conv com.microsoft.FusedConv AveragePool MaxPool GlobalAveragePool GlobalMaxPool Resize
    BatchNormalization""".split()
)
_OPSETS = (17, 22)  # ONNX Runtime has other kernels for some operators of older opsets
_MS = "com.microsoft"


@dataclass
class Case:
    """A model of one operator, and its inputs. `rows`: the inputs whose first axis counts rows that the
    operator works on one by one; empty if there are none."""

    operator: str  # as in the table: the type of the node, with its domain unless that is ai.onnx
    model: bytes
    feeds: dict[str, np.ndarray]
    rows: tuple[str, ...] = ()


@dataclass
class _Problem:
    """A node, as a function that draws problems describes it. `inputs`: None for an absent one. Outputs
    beyond `outputs` are not asked for."""

    inputs: list[np.ndarray | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: tuple[int, ...] = ()  # places of inputs that are initializers
    rows: tuple[int, ...] = ()  # places of inputs whose first axis counts rows
    outputs: int = 1


Draw = Callable[[np.random.Generator], _Problem]


def draw_size(rng: np.random.Generator, largest: int = 70) -> int:
    """A length of an axis: often small, often around a width of a register."""
    around = [n for n in (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 64, 65) if n <= largest]
    return int(rng.choice(around)) if rng.random() < 0.7 else int(rng.integers(1, largest + 1))


def draw_shape(
    rng: np.random.Generator, least: int = 1, most: int = 4, values: int = 40_000
) -> tuple[int, ...]:
    while True:
        shape = tuple(draw_size(rng) for _ in range(int(rng.integers(least, most + 1))))
        if math.prod(shape) <= values:
            break
    if rng.random() < 0.15:  # enough for several threads
        shape = (int(10 ** rng.uniform(3.5, 5.5)) // math.prod(shape[1:]) + 1, *shape[1:])
    return shape


def floats(
    rng: np.random.Generator, shape: tuple[int, ...], kind: np.dtype | type = np.float32
) -> np.ndarray:
    """Values of one magnitude. In a fifth of the arrays a few are NaN, infinite, denormal, zero or −0."""
    values = np.asarray(rng.standard_normal(shape) * 10 ** rng.uniform(-1.5, 1.5))
    if rng.random() < 0.2 and values.size:
        special = np.array([np.nan, np.inf, -np.inf, 1e-40, -3e-42, 0.0, -0.0, 1e38, -1e38])
        places = rng.integers(0, values.size, max(1, values.size // 50))
        values.reshape(-1)[places] = rng.choice(special, len(places))
    with np.errstate(over="ignore"):
        return np.asarray(values.astype(kind))


def draw_weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (rng.standard_normal(shape) / math.sqrt(max(shape[0], 1))).astype(np.float32)


def draw_positive(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.abs(rng.standard_normal(shape)).astype(np.float32) + np.float32(0.01)


def draw_pair(rng: np.random.Generator, make: Callable[..., np.ndarray] = floats) -> list[np.ndarray]:
    """Two arrays. The second is broadcast to the shape of the first."""
    shape = draw_shape(rng)
    other = tuple(1 if rng.random() < 0.3 else n for n in shape)[int(rng.integers(0, len(shape) + 1)) :]
    return [make(rng, shape), make(rng, other)]


def draw_norm(rng: np.random.Generator, parameters: int) -> list[np.ndarray]:
    """Images, and parameters of their channels; the fourth is positive."""
    channels = 4 * draw_size(rng, 16)
    shape = int(rng.integers(1, 4)), channels, int(rng.integers(1, 12)), int(rng.integers(1, 12))
    drawn = [floats(rng, shape), *(floats(rng, (channels,)) for _ in range(min(parameters, 3)))]
    return drawn + [draw_positive(rng, (channels,))] * (parameters > 3)


def _unary(**attributes: Any) -> Draw:
    return lambda rng: _Problem([floats(rng, draw_shape(rng))], attributes, rows=(0,))


def _drawn(attributes: Callable[[np.random.Generator], dict[str, Any]]) -> Draw:
    return lambda rng: _Problem([floats(rng, draw_shape(rng))], attributes(rng), rows=(0,))


def _binary(make: Callable[..., np.ndarray] = floats) -> Draw:
    def draw(rng: np.random.Generator) -> _Problem:
        pair = draw_pair(rng, make)
        return _Problem(pair if rng.random() < 0.7 else pair[::-1])

    return draw


def _several(rng: np.random.Generator) -> _Problem:
    shape = draw_shape(rng)
    return _Problem([floats(rng, shape) for _ in range(int(rng.integers(1, 4)))])


def _reduction(as_attribute: bool = False) -> Draw:
    def draw(rng: np.random.Generator) -> _Problem:
        shape = draw_shape(rng, 1, 4)
        axes = sorted(rng.permutation(len(shape))[: int(rng.integers(1, len(shape) + 1))].tolist())
        keep = {"keepdims": int(rng.integers(0, 2))}
        rows = (0,) if 0 not in axes else ()
        return _Problem([floats(rng, shape), np.array(axes)], keep, (1,), rows)

    def old(rng: np.random.Generator) -> _Problem:
        shape = draw_shape(rng, 1, 3)
        axis = int(rng.integers(0, len(shape)))
        values = np.round(floats(rng, shape), 1)  # with ties
        return _Problem(
            [values], {"axis": axis, "select_last_index": int(rng.integers(0, 2))}, rows=(0,) if axis else ()
        )

    return old if as_attribute else draw


def _softmax(rng: np.random.Generator) -> _Problem:
    shape = draw_shape(rng, 1, 4)
    axis = int(rng.integers(0, len(shape)))
    return _Problem([floats(rng, shape)], {"axis": axis}, rows=(0,) if axis else ())


def _matrix_product(rng: np.random.Generator) -> _Problem:
    m, n, k = (1 if rng.random() < 0.3 else draw_size(rng, 200)), draw_size(rng, 200), draw_size(rng, 400)
    batch = tuple(int(rng.integers(1, 4)) for _ in range(int(rng.integers(0, 3))))
    other = batch if rng.random() < 0.5 else ()
    return _Problem(
        [floats(rng, (*batch, m, k)), draw_weights(rng, (*other, k, n))],
        constants=(1,) if rng.random() < 0.5 else (),
        rows=(0,) if not other else (),
    )


def _fused_matmul(rng: np.random.Generator) -> _Problem:
    problem = _matrix_product(rng)
    return _Problem(
        problem.inputs, {"alpha": float(rng.choice([1.0, 0.125]))}, problem.constants, problem.rows
    )


def _gemm(**more: Any) -> Draw:
    def draw(rng: np.random.Generator) -> _Problem:
        m, n, k = (1 if rng.random() < 0.3 else draw_size(rng, 200)), draw_size(rng, 200), draw_size(rng, 400)
        a, b = int(rng.integers(0, 2)), int(rng.integers(0, 2))
        c = (
            [floats(rng, [(n,), (1, n), (m, 1), (m, n), (1,)][int(rng.integers(0, 5))])]
            if rng.random() < 0.7
            else []
        )
        values = {
            "transA": a,
            "transB": b,
            "alpha": float(rng.choice([1.0, 0.5])),
            "beta": float(rng.choice([1.0, 2.0])),
        }
        return _Problem(
            [floats(rng, (k, m) if a else (m, k)), draw_weights(rng, (n, k) if b else (k, n)), *c],
            values | more,
            constants=(1,) if rng.random() < 0.5 else (),
        )

    return draw


def _einsum(rng: np.random.Generator) -> _Problem:
    b = int(rng.integers(1, 3))
    h = int(rng.integers(1, 4))
    i = draw_size(rng, 40)
    j = draw_size(rng, 200)
    d = draw_size(rng, 600)
    return _Problem([floats(rng, (b, h, i, d)), floats(rng, (b, h, j, d))], {"equation": "bhid,bhjd->bhij"})


def _convolution(is_transposed: bool = False, **more: Any) -> Draw:
    def draw(rng: np.random.Generator) -> _Problem:
        groups = int(rng.choice([1, 1, 1, 2, 4]))
        per_group, filters = draw_size(rng, 32), draw_size(rng, 32)
        if is_transposed and rng.random() < 0.3:
            per_group, filters = int(rng.integers(128, 600)), int(rng.integers(1, 4))
        if rng.random() < 0.2:
            groups, per_group, filters = draw_size(rng, 33), 1, 1  # depthwise
        dims = int(rng.choice([1, 2, 2, 2]))
        kernel = [int(rng.choice([1, 1, 2, 3, 3, 5])) for _ in range(dims)]
        image = [int(rng.integers(k, 20)) for k in kernel]
        weights = draw_weights(
            rng,
            (groups * per_group, filters, *kernel)
            if is_transposed
            else (groups * filters, per_group, *kernel),
        )
        values = {
            "group": groups,
            "kernel_shape": kernel,
            "pads": [k // 2 for k in kernel] * 2,
            "strides": [int(rng.choice([1, 1, 2]))] * dims,
        }
        bias = [floats(rng, (groups * filters,))] if rng.random() < 0.6 else []
        return _Problem(
            [floats(rng, (int(rng.integers(1, 4)), groups * per_group, *image)), weights, *bias],
            values | more,
            constants=(1, 2)[: 1 + len(bias)],
            rows=(0,),
        )

    return draw


def _pool(is_global: bool = False, **more: Any) -> Draw:
    def draw(rng: np.random.Generator) -> _Problem:
        kernel = [int(rng.integers(1, 9)), int(rng.integers(1, 9))]
        image = [int(rng.integers(k, 24)) for k in kernel]
        values = (
            {}
            if is_global
            else {
                "kernel_shape": kernel,
                "strides": [int(rng.integers(1, 3))] * 2,
                "pads": [int(rng.integers(0, k)) for k in kernel] * 2,
            }
        )
        # some are cut into blocks
        channels = int(rng.choice([8, 16, 24, 32, 40])) if rng.random() < 0.4 else draw_size(rng, 40)
        return _Problem([floats(rng, (int(rng.integers(1, 4)), channels, *image))], values | more, rows=(0,))

    return draw


def _resize(rng: np.random.Generator) -> _Problem:
    mode = str(rng.choice(["nearest", "linear", "cubic"]))
    scales = np.array([1, 1, *rng.choice([0.5, 1.5, 2.0, 2.7], 2)], np.float32)
    image = (
        int(rng.integers(1, 4)),
        int(rng.integers(1, 17)),
        int(rng.integers(4, 30)),
        int(rng.integers(4, 30)),
    )
    how = str(rng.choice(["half_pixel", "asymmetric", "align_corners"]))
    return _Problem(
        [floats(rng, image), None, scales], {"mode": mode, "coordinate_transformation_mode": how}, (2,), (0,)
    )


def _grid_sample(rng: np.random.Generator) -> _Problem:
    n, height, width = int(rng.integers(1, 4)), int(rng.integers(2, 12)), int(rng.integers(2, 12))
    grid = rng.uniform(-1.2, 1.2, (n, height, width, 2)).astype(np.float32)
    return _Problem(
        [floats(rng, (n, int(rng.integers(1, 17)), 9, 11)), grid],
        {"mode": str(rng.choice(["linear", "nearest"]))},
        rows=(0, 1),
    )


def _norm(parameters: int, is_skip: bool = False) -> Draw:
    """Norms of the last axis: `parameters` vectors of its length follow the input (and the skipped input)."""

    def draw(rng: np.random.Generator) -> _Problem:
        shape = (int(rng.integers(1, 4)), draw_size(rng, 40), draw_size(rng, 400))
        inputs = [floats(rng, shape) for _ in range(1 + is_skip)]
        values: dict[str, Any] = {"epsilon": 1e-5} if is_skip else {"epsilon": 1e-5, "axis": -1}
        return _Problem(
            [*inputs, *(floats(rng, shape[2:]) for _ in range(parameters))],
            values,
            rows=tuple(range(1 + is_skip)),
        )

    return draw


def _channel_norm(parameters: int, **attributes: Any) -> Draw:
    return lambda rng: _Problem(draw_norm(rng, parameters), attributes, rows=(0,))


def _prelu(rng: np.random.Generator) -> _Problem:
    shape = draw_shape(rng, 2, 4)
    return _Problem([floats(rng, shape), floats(rng, (shape[-1],))], rows=(0,))


def _bias(rng: np.random.Generator) -> _Problem:
    shape = draw_shape(rng, 2, 3)
    return _Problem([floats(rng, shape), floats(rng, shape[-1:])], rows=(0,))


def _attention(rng: np.random.Generator) -> _Problem:
    heads, width = int(rng.choice([1, 2, 4])), int(rng.choice([8, 16, 32]))
    b, s, hidden = int(rng.integers(1, 4)), draw_size(rng, 64), heads * width
    return _Problem(
        [floats(rng, (b, s, hidden)), draw_weights(rng, (hidden, 3 * hidden)), floats(rng, (3 * hidden,))],
        {"num_heads": heads},
        (1, 2),
        (0,),
    )


def _multi_head(rng: np.random.Generator) -> _Problem:
    heads, width = int(rng.choice([1, 2, 4])), int(rng.choice([8, 16, 32]))
    b, s, keys = int(rng.integers(1, 4)), draw_size(rng, 64), draw_size(rng, 64)
    return _Problem(
        [floats(rng, (b, n, heads * width)) for n in (s, keys, keys)], {"num_heads": heads}, rows=(0, 1, 2)
    )


def _onnx_attention(rng: np.random.Generator) -> _Problem:
    heads, width = int(rng.choice([1, 2, 4])), int(rng.choice([8, 16, 32]))
    b, s, keys = int(rng.integers(1, 4)), draw_size(rng, 64), draw_size(rng, 64)
    return _Problem([floats(rng, (b, heads, n, width)) for n in (s, keys, keys)], rows=(0, 1, 2))


def _grouped_query(rng: np.random.Generator) -> _Problem:
    heads, kv, width = 4, int(rng.choice([1, 2, 4])), int(rng.choice([16, 32]))
    b, s = int(rng.integers(1, 4)), int(rng.integers(2, 40))
    past = [np.zeros((b, kv, 0, width), np.float32)] * 2
    lengths = np.full(b, s - 1, np.int32), np.array(s, np.int32)
    return _Problem(
        [
            floats(rng, (b, s, heads * width)),
            floats(rng, (b, s, kv * width)),
            floats(rng, (b, s, kv * width)),
            *past,
            *lengths,
        ],
        {"num_heads": heads, "kv_num_heads": kv},
    )


def _rotary(rng: np.random.Generator) -> _Problem:
    b = int(rng.integers(1, 3))
    heads = int(rng.choice([1, 2, 4]))
    s = draw_size(rng, 40)
    width = int(rng.choice([8, 16, 32, 64]))
    angles = rng.uniform(0, 6.3, (s, width // 2)).astype(np.float32)
    places = np.tile(np.arange(s), (b, 1))
    return _Problem([floats(rng, (b, heads, s, width)), places, np.cos(angles), np.sin(angles)])


def _recurrent(gates: int) -> Draw:
    def draw(rng: np.random.Generator) -> _Problem:
        steps = int(rng.integers(1, 6))
        b = int(rng.integers(1, 9))
        inner = draw_size(rng, 600)
        hidden = draw_size(rng, 300)
        directions = int(rng.integers(1, 3))
        weights = [draw_weights(rng, (directions, gates * hidden, n)) for n in (inner, hidden)]
        return _Problem(
            [floats(rng, (steps, b, inner)), *weights, floats(rng, (directions, 2 * gates * hidden))],
            {"hidden_size": hidden, "direction": "bidirectional" if directions == 2 else "forward"},
            (1, 2, 3) if rng.random() < 0.5 else (),
        )

    return draw


def _top_k(rng: np.random.Generator) -> _Problem:
    shape = draw_shape(rng, 1, 3)
    values = np.round(floats(rng, shape), 1)  # with ties
    return _Problem(
        [values, np.array([int(rng.integers(1, shape[-1] + 1))])],
        {"largest": int(rng.integers(0, 2))},
        (1,),
        outputs=2,
    )


def _scale(rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray:
    return np.asarray(10 ** rng.uniform(-3, -0.5, shape), np.float32)


def _bytes(rng: np.random.Generator, shape: tuple[int, ...], kind: Any = np.uint8) -> np.ndarray:
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max + 1, shape).astype(kind)


def _parameters(rng: np.random.Generator, kind: Any = np.uint8) -> list[np.ndarray]:
    """A scale and a zero point."""
    return [_scale(rng), _bytes(rng, (), kind)]


def _tensor(rng: np.random.Generator, shape: tuple[int, ...], kind: Any = np.uint8) -> list[np.ndarray]:
    """A quantized tensor, its scale and its zero point."""
    return [_bytes(rng, shape, kind), *_parameters(rng, kind)]


def _kind(rng: np.random.Generator) -> Any:
    return np.uint8 if rng.random() < 0.5 else np.int8


def _quantize(rng: np.random.Generator) -> _Problem:
    return _Problem([floats(rng, draw_shape(rng)), _scale(rng), _bytes(rng, (), _kind(rng))], rows=(0,))


def _dequantize(rng: np.random.Generator) -> _Problem:
    kind = _kind(rng)
    return _Problem([_bytes(rng, draw_shape(rng), kind), _scale(rng), _bytes(rng, (), kind)], rows=(0,))


def _dynamic(rng: np.random.Generator) -> _Problem:
    return _Problem([floats(rng, draw_shape(rng))], outputs=3)


def _integer_product(rng: np.random.Generator) -> _Problem:
    m, n, k, kind = draw_size(rng, 100), draw_size(rng, 100), draw_size(rng, 200), _kind(rng)
    return _Problem(
        [_bytes(rng, (m, k)), _bytes(rng, (k, n), kind), _bytes(rng, ()), _bytes(rng, (), kind)],
        rows=(0,),
        constants=(1, 3),
    )


def _quantized_product(rng: np.random.Generator) -> _Problem:
    m, n, k, kind = draw_size(rng, 100), draw_size(rng, 100), draw_size(rng, 200), _kind(rng)
    return _Problem(
        [*_tensor(rng, (m, k)), *_tensor(rng, (k, n), kind), *_parameters(rng)],
        rows=(0,),
        constants=(3, 4, 5),
    )


def _to_float_product(rng: np.random.Generator) -> _Problem:
    m, n, k, kind = draw_size(rng, 100), draw_size(rng, 100), draw_size(rng, 200), _kind(rng)
    return _Problem(
        [
            _bytes(rng, (m, k)),
            _bytes(rng, (k, n), kind),
            _scale(rng),
            _scale(rng),
            _bytes(rng, ()),
            _bytes(rng, (), kind),
        ],
        rows=(0,),
        constants=(1, 3, 5),
    )


def _dynamic_product(rng: np.random.Generator) -> _Problem:
    m, n, k, kind = draw_size(rng, 100), draw_size(rng, 100), draw_size(rng, 200), _kind(rng)
    return _Problem([floats(rng, (m, k)), *_tensor(rng, (k, n), kind)], constants=(1, 2, 3))


def _integer_convolution(rng: np.random.Generator) -> _Problem:
    kind = _kind(rng)
    weights = _bytes(rng, (draw_size(rng, 24), draw_size(rng, 24), 3, 3), kind)
    image = _bytes(rng, (int(rng.integers(1, 3)), weights.shape[1], 9, 8))
    return _Problem(
        [image, weights, _bytes(rng, ()), _bytes(rng, (), kind)], {"pads": [1, 1, 1, 1]}, (1, 3), (0,)
    )


def _quantized_convolution(rng: np.random.Generator) -> _Problem:
    plain, kind = _integer_convolution(rng), np.uint8
    image, weights, a_point, b_point = plain.inputs
    return _Problem(
        [image, _scale(rng), a_point, weights, _scale(rng), b_point, *_parameters(rng, kind)],
        plain.attributes,
        (3, 4, 5),
        (0,),
    )


def _quantized_binary(rng: np.random.Generator) -> _Problem:
    shape, kind = draw_shape(rng), _kind(rng)
    return _Problem([*_tensor(rng, shape, kind), *_tensor(rng, shape, kind), *_parameters(rng, kind)])


def _quantized_unary(*, needs_opset: bool = False, **attributes: Any) -> Draw:
    def draw(rng: np.random.Generator) -> _Problem:
        kind, shape = _kind(rng), draw_shape(rng, 2, 3)
        values = attributes | ({"axis": len(shape) - 1, "opset": 13} if needs_opset else {})
        inputs = [*_tensor(rng, shape, kind), *_parameters(rng, kind)]
        return _Problem(inputs, values, rows=(0,), constants=(1, 2, 3, 4))

    return draw


def _quantized_pool(rng: np.random.Generator) -> _Problem:
    kind = _kind(rng)
    image = _tensor(rng, (int(rng.integers(1, 3)), draw_size(rng, 40), 9, 8), kind)
    return _Problem([*image, *_parameters(rng, kind)], rows=(0,))


def _quantized_window(rng: np.random.Generator) -> _Problem:
    plain = _quantized_pool(rng)
    return _Problem(
        plain.inputs, {"kernel_shape": [3, 2], "strides": [2, 1]}, rows=(0,), constants=(1, 2, 3, 4)
    )


def _quantized_concat(rng: np.random.Generator) -> _Problem:
    kind, shape = _kind(rng), draw_shape(rng, 2, 3)
    inputs = [*_parameters(rng, kind), *_tensor(rng, shape, kind), *_tensor(rng, shape, kind)]
    return _Problem(inputs, {"axis": 1}, (0, 1, 3, 4, 6, 7), (2, 5))


def _quantized_where(rng: np.random.Generator) -> _Problem:
    kind, shape = _kind(rng), draw_shape(rng)
    inputs = [rng.random(shape) < 0.5, *_tensor(rng, shape, kind), *_tensor(rng, shape, kind)]
    return _Problem([*inputs, *_parameters(rng, kind)], {}, (2, 3, 5, 6, 7, 8))


def _quantized_gemm(rng: np.random.Generator) -> _Problem:
    a, a_scale, a_point, b, b_scale, b_point, c_scale, c_point = _quantized_product(rng).inputs
    bias = rng.integers(-1000, 1000, b.shape[1]).astype(np.int32)
    return _Problem(
        [a, a_scale, a_point, b, b_scale, b_point, bias, c_scale, c_point], {}, (3, 4, 5, 6), (0,)
    )


def _quantized_attention(rng: np.random.Generator) -> _Problem:
    heads, width, kind = int(rng.choice([1, 2, 4])), int(rng.choice([8, 16, 32])), _kind(rng)
    b, s, hidden = int(rng.integers(1, 4)), draw_size(rng, 40), heads * width
    return _Problem(
        [
            _bytes(rng, (b, s, hidden)),
            _bytes(rng, (hidden, 3 * hidden), kind),
            floats(rng, (3 * hidden,)),
            _scale(rng),
            _scale(rng),
            None,
            _bytes(rng, ()),
            _bytes(rng, (), kind),
        ],
        {"num_heads": heads},
        (1, 2, 3, 4, 6, 7),
        (0,),
    )


def _quantized_lstm(rng: np.random.Generator) -> _Problem:
    steps = int(rng.integers(1, 5))
    b = int(rng.integers(1, 4))
    inner = draw_size(rng, 40)
    hidden = draw_size(rng, 40)
    kind = _kind(rng)
    weights = [_bytes(rng, (1, n, 4 * hidden), kind) for n in (inner, hidden)]
    absent: list[np.ndarray | None] = [None] * 4
    points = [_scale(rng, (1,)), _bytes(rng, (1,), kind)] * 2
    return _Problem(
        [floats(rng, (steps, b, inner)), *weights, floats(rng, (1, 8 * hidden)), *absent, *points],
        {"hidden_size": hidden},
        (1, 2, 3, 8, 9, 10, 11),
    )


def _blocks(rng: np.random.Generator) -> _Problem:
    k = 32 * int(rng.integers(1, 9))
    n = draw_size(rng, 100)
    m = draw_size(rng, 40)
    block = 32
    bits = int(rng.choice([4, 8]))
    packed = _bytes(rng, (n, k // block, block * bits // 8))
    return _Problem(
        [floats(rng, (m, k)), packed, _scale(rng, (n * (k // block),))],
        {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": int(rng.choice([0, 4]))},
        (1, 2),
        (0,),
    )


def _gathered_blocks(rng: np.random.Generator) -> _Problem:
    words, k, block, bits = draw_size(rng), 32 * int(rng.integers(1, 9)), 32, int(rng.choice([4, 8]))
    shape = (draw_size(rng, 40), int(rng.integers(1, 4)))
    points = _bytes(rng, (words, -(-(k // block) * bits // 8))) if rng.random() < 0.5 else None
    return _Problem(
        [
            _bytes(rng, (words, k * bits // 8)),
            rng.integers(-words, words, shape).astype(rng.choice([np.int32, np.int64])),
            floats(rng, (words, k // block)),
            points,
        ],
        {"bits": bits, "block_size": block, "quantize_axis": 1, "gather_axis": 0},
        (0, 2) if points is None else (0, 2, 3),
        (1,),
    )


def _experts(rng: np.random.Generator) -> _Problem:
    experts, hidden, inner, block = 4, 32 * int(rng.integers(2, 5)), 32 * int(rng.integers(2, 5)), 32
    bits, m = int(rng.choice([4, 8])), draw_size(rng, 40)
    weights = [_bytes(rng, (experts, n, k * bits // 8)) for n, k in ((inner, hidden), (hidden, inner))]
    scales = [_scale(rng, (experts, n, k // block)) for n, k in ((inner, hidden), (hidden, inner))]
    return _Problem(
        [
            floats(rng, (m, hidden)),
            floats(rng, (m, experts)),
            *(weights[0], scales[0], None, weights[1], scales[1]),
        ],
        {
            "k": 2,
            "expert_weight_bits": bits,
            "block_size": block,
            "activation_type": str(rng.choice(["relu", "silu", "gelu", "identity"])),
        },
        (2, 3, 5, 6),
        (0, 1),
    )


def _embedding(rng: np.random.Generator) -> _Problem:
    b, s, width, words = int(rng.integers(1, 4)), draw_size(rng, 40), draw_size(rng, 100), 50
    ids = rng.integers(0, words, (b, s)).astype(np.int32)
    tables = [floats(rng, (n, width)) for n in (words, 80)]
    return _Problem(
        [ids, None, tables[0], tables[1], None, floats(rng, (width,)), floats(rng, (width,))],
        {"epsilon": 1e-12},
        (2, 3, 5, 6),
        (0,),
        2,
    )


def _cumulated(rng: np.random.Generator) -> _Problem:
    shape = draw_shape(rng)
    return _Problem([floats(rng, shape), np.array(int(rng.integers(0, len(shape))))], constants=(1,))


def _where(rng: np.random.Generator) -> _Problem:
    shape = draw_shape(rng)
    return _Problem([rng.random(shape) < 0.5, floats(rng, shape), floats(rng, shape)])


def _clip(rng: np.random.Generator) -> _Problem:
    return _Problem([floats(rng, draw_shape(rng)), np.float32(-1), np.float32(1.5)], rows=(0,))


def _cast(rng: np.random.Generator) -> _Problem:
    values = np.clip(np.nan_to_num(floats(rng, draw_shape(rng))), -100, 100).astype(np.float32)
    return _Problem([values], {"to": int(rng.choice([1, 3, 6, 7, 10, 11]))}, rows=(0,))


def _half_to_float(rng: np.random.Generator) -> _Problem:
    return _Problem([floats(rng, draw_shape(rng), np.float16)], {"to": 1}, rows=(0,))


def _pow(rng: np.random.Generator) -> _Problem:
    exponent = np.float32(rng.choice([2.0, 3.0, 0.5, -1.0, 1.7]))
    return _Problem([draw_positive(rng, draw_shape(rng)), exponent], constants=(1,), rows=(0,))


def _mod(rng: np.random.Generator) -> _Problem:
    shape = draw_shape(rng)
    return _Problem([floats(rng, shape), draw_positive(rng, shape)], {"fmod": 1})


def _dft(rng: np.random.Generator) -> _Problem:
    samples = int(rng.choice([7, 16, 20, 64, 100]))
    return _Problem(
        [floats(rng, (int(rng.integers(1, 4)), samples, 1))], {"onesided": int(rng.integers(0, 2))}, rows=(0,)
    )


def _stft(rng: np.random.Generator) -> _Problem:
    frame, frames = int(rng.choice([7, 16, 20, 64, 100])), int(rng.integers(1, 40))
    signal = floats(rng, (int(rng.integers(1, 4)), frame * (frames + 1), 1))
    return _Problem(
        [signal, np.int64(max(1, frame // int(rng.integers(1, 5)))), floats(rng, (frame,)), np.int64(frame)],
        {"onesided": int(rng.integers(0, 2))},
        constants=(1, 3),
        rows=(0,),
    )


FLOAT_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish IsInf IsNaN "
    "LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh "
    "ThresholdedRelu"
).split()
_REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare"
).split()

# How problems of each operator are drawn.
DRAWS: dict[str, Draw] = {
    **{op: _unary() for op in FLOAT_UNARY},
    **{
        op: _binary()
        for op in ("Add", "Sub", "Mul", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    **dict.fromkeys(("Max", "Min", "Mean", "Sum"), _several),
    **{op: _reduction() for op in _REDUCTIONS},
    **{op: _reduction(as_attribute=True) for op in ("ArgMax", "ArgMin")},
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    "Pow": _pow,
    "Mod": _mod,
    "Clip": _clip,
    "Where": _where,
    "Cast": _cast,
    "Cast (float16)": _half_to_float,
    "CumSum": _cumulated,
    "TopK": _top_k,
    "PRelu": _prelu,
    "Gelu": _drawn(lambda rng: {"approximate": str(rng.choice(["none", "tanh"]))}),
    "MatMul": _matrix_product,
    "Gemm": _gemm(),
    "Einsum": _einsum,
    "Conv": _convolution(),
    "ConvTranspose": _convolution(True),
    "MaxPool": _pool(),
    "AveragePool": _pool(),
    "LpPool": _pool(),
    "GlobalAveragePool": _pool(True),
    "GlobalMaxPool": _pool(True),
    "Resize": _resize,
    "GridSample": _grid_sample,
    "LRN": _pool(True, size=3),
    "LayerNormalization": _norm(2),
    "SimplifiedLayerNormalization": _norm(1),
    "RMSNormalization": _norm(1),
    "BatchNormalization": _channel_norm(4),
    "InstanceNormalization": _channel_norm(2),
    "GroupNormalization": _channel_norm(2, num_groups=4),
    "LpNormalization": _drawn(lambda rng: {"axis": -1, "p": int(rng.integers(1, 3))}),
    "MeanVarianceNormalization": _pool(True, axes=[2, 3]),
    "DFT": _dft,
    "STFT": _stft,
    "RNN": _recurrent(1),
    "GRU": _recurrent(3),
    "LSTM": _recurrent(4),
    "Attention": _onnx_attention,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _integer_product,
    "QLinearMatMul": _quantized_product,
    "ConvInteger": _integer_convolution,
    "QLinearConv": _quantized_convolution,
    **{
        f"{_MS}.{op}": draw
        for op, draw in {
            "Gelu": _unary(),
            "FastGelu": _bias,
            "BiasGelu": _bias,
            "QuickGelu": _unary(alpha=1.702),
            "FusedMatMul": _fused_matmul,
            "FusedGemm": _gemm(activation="Relu"),
            "FusedConv": _convolution(activation="Relu"),
            "SkipLayerNormalization": _norm(3, True),
            "SkipSimplifiedLayerNormalization": _norm(1, True),
            "EmbedLayerNormalization": _embedding,
            "Attention": _attention,
            "MultiHeadAttention": _multi_head,
            "GroupQueryAttention": _grouped_query,
            "RotaryEmbedding": _rotary,
            "QLinearAdd": _quantized_binary,
            "QLinearMul": _quantized_binary,
            "QLinearSigmoid": _quantized_unary(),
            "QLinearLeakyRelu": _quantized_unary(alpha=0.1),
            "QLinearSoftmax": _quantized_unary(needs_opset=True),
            "QLinearGlobalAveragePool": _quantized_pool,
            "QLinearAveragePool": _quantized_window,
            "QLinearConcat": _quantized_concat,
            "QLinearWhere": _quantized_where,
            "QGemm": _quantized_gemm,
            "QAttention": _quantized_attention,
            "DynamicQuantizeLSTM": _quantized_lstm,
            "MatMulIntegerToFloat": _to_float_product,
            "DynamicQuantizeMatMul": _dynamic_product,
            "MatMulNBits": _blocks,
            "QMoE": _experts,
            "GatherBlockQuantized": _gathered_blocks,
        }.items()
    },
}

# Operators that move values and compute on shapes or integers: no rounding, so their bytes depend on nothing.
EXACT = where("is_exact")


# The opset that brought an operator, or the inputs and attributes that the problems have, if _OPSETS[0] does
# not have it.
_SINCE = {
    **{op: 18 for op in _REDUCTIONS},
    "Mish": 18,
    "Gelu": 20,
    "GridSample": 20,
    "GroupNormalization": 21,
    "RMSNormalization": 23,
    "Attention": 24,
}


def _model_of(operator: str, problem: _Problem, opset: int) -> tuple[bytes, dict[str, np.ndarray]]:
    from onnx import TensorProto, helper, numpy_helper

    domain, _, op = operator.split(" ")[0].rpartition(".")
    names = ["" if value is None else f"x{i}" for i, value in enumerate(problem.inputs)]
    arrays = {name: np.asarray(value) for name, value in zip(names, problem.inputs) if name}
    constants = {f"x{i}" for i in problem.constants}
    node = helper.make_node(
        op, names, [f"y{i}" for i in range(problem.outputs)], name="node", domain=domain, **problem.attributes
    )
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), [None, *array.shape[1:]][: array.ndim]
        )
        for name, array in arrays.items()
        if name not in constants
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output]
    for output in outputs:
        output.ClearField("type")
    graph = helper.make_graph(
        [node],
        "operator",
        inputs,
        outputs,
        [numpy_helper.from_array(arrays[name], name) for name in arrays if name in constants],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(_MS, 1)], ir_version=10
    )
    return model.SerializeToString(), {name: array for name, array in arrays.items() if name not in constants}


def draw_cases(operator: str, count: int, seed: int = 0) -> Iterator[Case]:
    """`count` random problems of an operator of DRAWS. The same seed makes the same problems."""
    for i in range(count):
        rng = np.random.default_rng([seed, i, *operator.encode()])
        problem = DRAWS[operator](rng)
        opset = problem.attributes.get("opset", max(_OPSETS[i % len(_OPSETS)], _SINCE.get(operator, 0)))
        model, feeds = _model_of(operator, problem, opset)
        rows = tuple(f"x{place}" for place in problem.rows)
        yield Case(operator, model, feeds, rows)


def version() -> str:
    """Of the engine, which then says nothing."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    return str(onnxruntime.__version__)


def prepare(case: Case, threads: int) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    """What computes the outputs of the problem with this number of threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # all levels run at once
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = (
        level.ORT_ENABLE_ALL if case.operator in _BLOCKED else level.ORT_DISABLE_ALL
    )
    session = onnxruntime.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
    return lambda feeds: [np.asarray(output) for output in session.run(None, feeds)]
