"""Random problems of PyTorch's operators, and how they run, for the table of operators whose bytes are the same on every CPU
(measure.py). The operators are float ones, which an exported program has between its int8 layers, in eager mode and compiled by
Inductor. int8 layers of PyTorch and of intact are in the table too."""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Iterator

import numpy as np

from .onnx_cases import draw_norm, draw_pair, draw_positive, draw_shape, draw_size, draw_weights, floats

ENGINE = "PyTorch"
# Threads that wait take no time from other levels. The number of threads is what was asked for, also beyond the number of cores.
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",
    "OMP_DYNAMIC": "false",
    "MKL_DYNAMIC": "FALSE",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
THREADS = (1, 2, 4)
_COMPILED, _INTACT = "compiled ", "intact "  # first words of names


@dataclass
class Case:
    """A function of tensors, and its inputs in their order. `rows`: as in onnx_cases.Case. `constants`: how many of the last
    inputs are weights of a compiled model."""

    operator: str
    function: Callable[..., Any]
    feeds: dict[str, np.ndarray]
    rows: tuple[str, ...] = ()
    constants: int = 0


@dataclass
class _Problem:
    """`function`: gets torch and the inputs as tensors. `rows`: places of inputs whose first axis counts rows. `constants`: as in
    Case."""

    function: Callable[..., Any]
    inputs: list[np.ndarray]
    rows: tuple[int, ...] = ()
    constants: int = 0


Draw = Callable[[np.random.Generator], _Problem]


def _unary(function: Callable[..., Any], make: Callable[..., np.ndarray] = floats) -> Draw:
    return lambda rng: _Problem(function, [make(rng, draw_shape(rng))], (0,))


def _binary(function: Callable[..., Any]) -> Draw:
    return lambda rng: _Problem(function, draw_pair(rng))


def _reduction(function: Callable[..., Any]) -> Draw:
    """`function` gets the axes too."""

    def draw(rng: np.random.Generator) -> _Problem:
        shape = draw_shape(rng)
        axes = sorted(rng.permutation(len(shape))[: int(rng.integers(1, len(shape) + 1))].tolist())
        return _Problem(lambda t, x: function(t, x, axes), [floats(rng, shape)], () if 0 in axes else (0,))

    return draw


def _along(function: Callable[..., Any]) -> Draw:
    """`function` gets one axis too."""

    def draw(rng: np.random.Generator) -> _Problem:
        shape = draw_shape(rng)
        axis = int(rng.integers(0, len(shape)))
        return _Problem(lambda t, x: function(t, x, axis), [floats(rng, shape)], (0,) if axis else ())

    return draw


def _norm(rng: np.random.Generator) -> _Problem:
    shape = (int(rng.integers(1, 4)), draw_size(rng, 40), draw_size(rng, 400))
    return _Problem(
        lambda t, x, w, b: t.nn.functional.layer_norm(x, w.shape, w, b),
        [floats(rng, shape), floats(rng, shape[2:]), floats(rng, shape[2:])],
        (0,),
    )


def _channel_norm(function: Callable[..., Any], parameters: int) -> Draw:
    return lambda rng: _Problem(function, draw_norm(rng, parameters), (0,))


def _product(function: Callable[..., Any], is_batched: bool = False, has_bias: bool = False) -> Draw:
    """A of (m, k) and B of (k, n)."""

    def draw(rng: np.random.Generator) -> _Problem:
        m, n, k = (1 if rng.random() < 0.3 else draw_size(rng, 200)), draw_size(rng, 200), draw_size(rng, 400)
        batch = (int(rng.integers(1, 5)),) if is_batched else ()
        bias = [floats(rng, (n,))] if has_bias else []
        return _Problem(
            function,
            [floats(rng, (*batch, m, k)), draw_weights(rng, (*batch, k, n)), *bias],
            (0, 1) if is_batched else (0,),
            1 + has_bias,
        )

    return draw


def _convolution(is_transposed: bool = False) -> Draw:
    def draw(rng: np.random.Generator) -> _Problem:
        groups, inputs, outputs = int(rng.choice([1, 1, 2])), draw_size(rng, 40), draw_size(rng, 40)
        if not is_transposed and rng.random() < 0.25:
            groups, inputs, outputs = draw_size(rng, 40), 1, 1  # depthwise
        kernel, stride = int(rng.choice([1, 3, 3, 5])), int(rng.integers(1, 3))
        image = floats(
            rng, (int(rng.integers(1, 4)), groups * inputs, *(int(n) for n in rng.integers(kernel, 24, 2)))
        )
        first, second = (groups * inputs, outputs) if is_transposed else (groups * outputs, inputs)
        weights = draw_weights(rng, (first, second, kernel, kernel))
        name = "conv_transpose2d" if is_transposed else "conv2d"
        options = {"stride": stride, "padding": kernel // 2, "groups": groups}
        return _Problem(
            lambda t, x, w, b: getattr(t.nn.functional, name)(x, w, b, **options),
            [image, weights, floats(rng, (groups * outputs,))],
            (0,),
            2,
        )

    return draw


def _image(function: Callable[..., Any]) -> Draw:
    return lambda rng: _Problem(
        function,
        [
            floats(
                rng, (int(rng.integers(1, 4)), draw_size(rng, 40), *(int(n) for n in rng.integers(5, 24, 2)))
            )
        ],
        (0,),
    )


def _attention(rng: np.random.Generator) -> _Problem:
    heads, width = int(rng.choice([1, 2, 4, 12])), int(rng.choice([8, 16, 32, 64]))
    b, s, keys = int(rng.integers(1, 4)), draw_size(rng, 64), draw_size(rng, 64)
    return _Problem(
        lambda t, *qkv: t.nn.functional.scaled_dot_product_attention(*qkv),
        [floats(rng, (b, heads, n, width)) for n in (s, keys, keys)],
        (0, 1, 2),
    )


def _quantize(rng: np.random.Generator) -> _Problem:
    scale, point = float(10 ** rng.uniform(-3, -0.5)), int(rng.integers(0, 256))
    return _Problem(
        lambda t, x: t.ops.quantized_decomposed.quantize_per_tensor(x, scale, point, 0, 255, t.uint8),
        [np.nan_to_num(floats(rng, draw_shape(rng)))],
        (0,),
    )


def _dequantize(rng: np.random.Generator) -> _Problem:
    scale, point = float(10 ** rng.uniform(-3, -0.5)), int(rng.integers(0, 256))
    return _Problem(
        lambda t, x: t.ops.quantized_decomposed.dequantize_per_tensor(x, scale, point, 0, 255, t.uint8),
        [rng.integers(0, 256, draw_shape(rng)).astype(np.uint8)],
        (0,),
    )


def _choose(rng: np.random.Generator) -> _Problem:
    """The scale and the zero point of a dynamic quantization."""
    return _Problem(
        lambda t, x: t.ops.quantized_decomposed.choose_qparams(x, 0, 255, 1e-9, t.uint8),
        [np.nan_to_num(floats(rng, draw_shape(rng)))],
    )


def _integer_product(rng: np.random.Generator) -> _Problem:
    m, n, k = int(rng.integers(17, 80)), 8 * int(rng.integers(1, 13)), 8 * int(rng.integers(1, 41))
    return _Problem(
        lambda t, a, b: t._int_mm(a, b),
        [rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n))],
        (0,) if m > 64 else (),
    )


def _quantized_linear(activation: str = "none", has_float_output: bool = False) -> Draw:
    def draw(rng: np.random.Generator) -> _Problem:
        m, n, k = draw_size(rng, 64), draw_size(rng, 100), draw_size(rng, 300)
        steps = (float(x) for x in 10 ** rng.uniform(-3, -1, 2))
        points = [int(point) for point in rng.integers(0, 256, 2)]
        x_scale, y_scale = steps
        name = str(rng.choice(["none", "relu"])) if activation == "none" else activation

        def function(t: Any, x: Any, weight: Any, w_scale: Any, bias: Any) -> Any:
            packed = t.ops.onednn.qlinear_prepack(weight, None)
            output = (1.0, 0, t.float32) if has_float_output else (y_scale, points[1], t.uint8)
            return t.ops.onednn.qlinear_pointwise(
                x,
                x_scale,
                points[0],
                packed,
                w_scale,
                t.zeros(n, dtype=t.int32),
                bias,
                *output,
                name,
                [None],
                "none" if name == "gelu" else "",
            )

        return _Problem(
            function,
            [
                rng.integers(0, 256, (m, k)).astype(np.uint8),
                rng.integers(-128, 128, (n, k)).astype(np.int8),
                (10 ** rng.uniform(-3, -1, n)).astype(np.float32),
                rng.normal(0, 3, n).astype(np.float32),
            ],
            (0,),
        )

    return draw


def _quantized_convolution(rng: np.random.Generator) -> _Problem:
    inputs, outputs, kernel = draw_size(rng, 40), draw_size(rng, 40), int(rng.choice([1, 3]))
    x_scale, y_scale = (float(x) for x in 10 ** rng.uniform(-3, -1, 2))
    x_point, y_point = (int(point) for point in rng.integers(0, 256, 2))
    image = rng.integers(0, 256, (int(rng.integers(1, 3)), inputs, 9, 12)).astype(np.uint8)

    def function(t: Any, x: Any, weight: Any, w_scale: Any, bias: Any) -> Any:
        window = ([1, 1], [kernel // 2] * 2, [1, 1], 1)
        packed = t.ops.onednn.qconv_prepack(weight, w_scale, x_scale, x_point, *window, list(x.shape))
        pixels = x.contiguous(memory_format=t.channels_last)
        return t.ops.onednn.qconv_pointwise(
            pixels,
            x_scale,
            x_point,
            packed,
            w_scale,
            t.zeros(outputs, dtype=t.int32),
            bias,
            *window,
            y_scale,
            y_point,
            t.uint8,
            "relu",
            [None],
            "",
        )

    weights = rng.integers(-128, 128, (outputs, inputs, kernel, kernel)).astype(np.int8)
    return _Problem(
        function,
        [
            image,
            weights,
            (10 ** rng.uniform(-3, -1, outputs)).astype(np.float32),
            rng.normal(0, 3, outputs).astype(np.float32),
        ],
        (0,),
    )


def _functional(name: str, **arguments: Any) -> Callable[..., Any]:
    return lambda t, *tensors: getattr(t.nn.functional, name)(*tensors, **arguments)


def _of_torch(name: str) -> Callable[..., Any]:
    return lambda t, *tensors: getattr(t, name)(*tensors)


_FLOATS: dict[str, Draw] = {
    **{
        name: _unary(_of_torch(name))
        for name in "abs acos asin atan ceil cos erf exp expm1 neg reciprocal relu round rsqrt sigmoid sign sin sqrt tan tanh trunc".split()
    },
    **{name: _unary(_of_torch(name), draw_positive) for name in ("log", "log1p", "log2")},
    **{
        name: _unary(_functional(name))
        for name in "elu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softplus softsign".split()
    },
    "gelu": _unary(_functional("gelu")),
    "gelu with tanh": _unary(_functional("gelu", approximate="tanh")),
    "pow": _unary(lambda t, x: t.pow(x, 1.7), draw_positive),
    **{name: _binary(_of_torch(name)) for name in ("add", "sub", "mul", "div", "maximum", "minimum")},
    **{
        name: _reduction(lambda t, x, axes, name=name: getattr(t, name)(x, axes))
        for name in ("sum", "mean", "amax", "amin", "logsumexp")
    },
    "var": _reduction(lambda t, x, axes: t.var(x, axes, correction=0)),
    "norm": _reduction(lambda t, x, axes: t.linalg.vector_norm(x, 2, axes)),
    **{
        name: _along(lambda t, x, axis, name=name: getattr(t, name)(x, axis))
        for name in ("softmax", "log_softmax", "cumsum", "prod", "argmax", "argmin")
    },
    "layer_norm": _norm,
    "rms_norm": _unary(lambda t, x: t.nn.functional.rms_norm(x, x.shape[-1:])),
    "group_norm": _channel_norm(lambda t, x, w, b: t.nn.functional.group_norm(x, 4, w, b), 2),
    "batch_norm": _channel_norm(
        lambda t, x, w, b, mean, var: t.nn.functional.batch_norm(x, mean, var, w, b), 4
    ),
    "mm": _product(_of_torch("mm")),
    "addmm": _product(lambda t, a, b, c: t.addmm(c, a, b), has_bias=True),
    "linear": _product(lambda t, a, b, c: t.nn.functional.linear(a, b.T.contiguous(), c), has_bias=True),
    "bmm": _product(_of_torch("bmm"), is_batched=True),
    "conv2d": _convolution(),
    "conv_transpose2d": _convolution(is_transposed=True),
    "scaled_dot_product_attention": _attention,
    "max_pool2d": _image(_functional("max_pool2d", kernel_size=3, stride=2)),
    "avg_pool2d": _image(_functional("avg_pool2d", kernel_size=3)),
    "adaptive_avg_pool2d": _image(_functional("adaptive_avg_pool2d", output_size=1)),
    **{
        f"interpolate {mode}": _image(_functional("interpolate", scale_factor=1.7, mode=mode))
        for mode in ("nearest", "bilinear", "bicubic")
    },
    "quantize_per_tensor": _quantize,
    "dequantize_per_tensor": _dequantize,
    "choose_qparams": _choose,
}
_INTEGERS: dict[str, Draw] = {
    "_int_mm": _integer_product,
    "qlinear_pointwise": _quantized_linear(),
    "qlinear_pointwise, float output": _quantized_linear("none", True),
    "qlinear_pointwise with gelu": _quantized_linear("gelu", True),
    "qconv_pointwise": _quantized_convolution,
}
_FOR_INDUCTOR = (
    "add div exp erf gelu sigmoid silu tanh log rsqrt softmax log_softmax sum mean var layer_norm mm bmm linear "
    "conv2d scaled_dot_product_attention adaptive_avg_pool2d quantize_per_tensor dequantize_per_tensor "
    "choose_qparams"
).split()
_EACH_COMPILED = 8  # one of so many problems; a compiler runs for seconds for each number of threads

# How problems of each operator are drawn.
DRAWS: dict[str, Draw] = {
    **_FLOATS,
    **{_COMPILED + name: _FLOATS[name] for name in _FOR_INDUCTOR},
    **_INTEGERS,
    **{_INTACT + name: draw for name, draw in _INTEGERS.items()},
}


def draw_cases(operator: str, count: int, seed: int = 0) -> Iterator[Case]:
    """`count` random problems of an operator of DRAWS, fewer of a compiled one. The same seed makes the same problems."""
    is_compiled = operator.startswith(_COMPILED)
    for i in range(-(-count // _EACH_COMPILED) if is_compiled else count):
        rng = np.random.default_rng(
            [seed, i, *operator.removeprefix(_COMPILED).removeprefix(_INTACT).encode()]
        )
        problem = DRAWS[operator](rng)
        feeds = {f"x{place}": value for place, value in enumerate(problem.inputs)}
        rows = () if is_compiled else tuple(f"x{place}" for place in problem.rows)
        yield Case(operator, problem.function, feeds, rows, problem.constants)


def version() -> str:
    """Of PyTorch, which is then ready for all problems."""
    os.environ.pop("LD_PRELOAD", None)  # Inductor starts compilers, which cannot be held
    folder = tempfile.TemporaryDirectory(
        prefix="intact-operators-"
    )  # levels have other code of the same names
    atexit.register(folder.cleanup)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder.name
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    import torch

    warnings.filterwarnings("ignore")
    with contextlib.suppress(ImportError):
        import torch.ao.quantization.fx._decomposed  # noqa: F401
    return str(torch.__version__)


def _compiled(torch: Any, function: Callable[..., Any], constants: "list[Any]") -> Callable[..., Any]:
    """A compiled model with these weights."""

    class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            for i, value in enumerate(constants):
                self.register_buffer(f"w{i}", value)

        def forward(self, *tensors: Any) -> Any:
            return function(*tensors, *self.buffers())

    torch._dynamo.reset()  # the number of threads is a constant of compiled code
    model = torch.compile(Model(), dynamic=False)

    def run(*tensors: Any) -> Any:
        with torch._inductor.config.patch(freezing=True):
            return model(*tensors)

    return run


def prepare(case: Case, threads: int) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    """What computes the outputs of the problem with this number of threads."""
    import torch

    from .. import torch as own

    function: Callable[..., Any] = lambda *tensors: case.function(torch, *tensors)  # noqa: E731

    def run(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        torch.set_num_threads(threads)
        tensors = [torch.from_numpy(np.ascontiguousarray(value)) for value in feeds.values()]
        called = function
        if case.operator.startswith(_COMPILED):
            variables = len(tensors) - case.constants
            called, tensors = _compiled(torch, function, tensors[variables:]), tensors[:variables]
        with torch.no_grad(), own.enable() if case.operator.startswith(_INTACT) else contextlib.nullcontext():
            found = called(*tensors)
        return [
            np.asarray(tensor.contiguous())
            for tensor in (found if isinstance(found, (tuple, list)) else [found])
        ]

    return run
