#!/usr/bin/env python3
"""Runs int8 TFLite models by intact and by LiteRT (XNNPACK), compares the outputs, and times both in turns, on one thread.

    PYTHONPATH=build/release/python bench/tflite/compare.py [--engine FILE] [--rounds N] [--layers] MODEL...

Needs the package ai-edge-litert and the targets intact_python_stage and intact_tflite_engine. Inputs are random. The outputs of
all operators are compared byte for byte. A time is the median of rounds of 2 ms, in CPU time, which other programs hardly change;
the ratio is the median of the rounds' ratios.
LiteRT's time does not include Python's call: the time of a call that does nothing is subtracted. Set-up: intact creates or loads
all plans of the model, and each of both times generates all code; LiteRT creates an interpreter and allocates its tensors."""

from __future__ import annotations

import argparse
import ctypes
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import interpreter as litert
from intact._formats.tflite import _File, _Graph, _Table, _Tensor, read_tflite
from intact._library import Error, excerpt, invalid

SET_UPS = 9
# The operators that the engine knows, and the numbers of inputs that each may have.
INPUTS = {
    "FULLY_CONNECTED": (2, 3),
    "CONV_2D": (2, 3),
    "DEPTHWISE_CONV_2D": (2, 3),
    "ADD": (2,),
    "AVERAGE_POOL_2D": (1,),
    "RESHAPE": (1, 2),
    "SOFTMAX": (1,),
}

INT8 = ctypes.POINTER(ctypes.c_int8)


class Linear(ctypes.Structure):
    _fields_ = [
        ("input", INT8),
        ("output", INT8),
        ("weights", INT8),
        ("bias", ctypes.POINTER(ctypes.c_int32)),
        ("scales", ctypes.POINTER(ctypes.c_float)),
        ("scale_count", ctypes.c_int64),
        ("input_zero", ctypes.c_int32),
        ("output_zero", ctypes.c_int32),
        ("low", ctypes.c_int32),
        ("high", ctypes.c_int32),
    ]


class Addend(ctypes.Structure):
    _fields_ = [("input", INT8), ("multiplier", ctypes.c_int32)]


def pointer(array: np.ndarray) -> Any:
    return array.ctypes.data_as(
        ctypes.POINTER(
            {"int8": ctypes.c_int8, "int32": ctypes.c_int32, "float32": ctypes.c_float}[array.dtype.name]
        )
    )


def pair(values: tuple[int, int]) -> Any:
    return (ctypes.c_int64 * 2)(*values)


class Model:
    """A model in the engine."""

    def __init__(self, library: ctypes.CDLL, path: str):
        self.library, self.path = library, path
        read_tflite(path)  # refuses files that are no models
        file = _File(Path(path).read_bytes())
        if len(file.root.tables(2)) != 1:
            raise invalid(f"{path}: has {len(file.root.tables(2))} graphs; expected 1")
        root = file.root.tables(2)[0]
        graph = self.graph = _Graph(file, root)
        ends = [[int(i) for i in root.array(field, np.int32)] for field in (1, 2)]
        if [len(numbers) for numbers in ends] != [1, 1]:
            raise invalid(
                f"{path}: has {len(ends[0])} inputs and {len(ends[1])} outputs; expected one of each"
            )
        (self.input,), (self.output,) = ends
        self.engine = ctypes.c_void_p(library.TfliteCreate())
        self.tensors: dict[int, np.ndarray] = {}
        self.kept: list[Any] = []  # what plans or steps read
        self.steps: list[tuple[str, int]] = []  # operator and output
        for i, operator in enumerate(graph.operators):
            name, _ = graph.code(operator)
            try:
                self._add_operator(name, operator)
            except Error as error:
                self.close()
                raise invalid(f"{path}: operator {i}, {name}: {error.message}") from None

    def close(self) -> None:
        self.library.TfliteDestroy(self.engine)

    def load(self) -> float:
        """Microseconds to load all plans from memory. The model cannot run afterwards."""
        return self._checked(self.library.TfliteLoad(self.engine))

    def array(self, i: int) -> np.ndarray:
        """The values of an int8 tensor."""
        if i not in self.tensors:
            tensor = self.tensor(i)
            if tensor.dtype is not np.int8:
                raise invalid(f"tensor {excerpt(tensor.name)!r} is {self._type(tensor)}; expected int8")
            if any(n < 1 for n in tensor.shape):
                raise invalid(
                    f"tensor {excerpt(tensor.name)!r} has the shape {tensor.shape}; expected positive extents"
                )
            self.tensors[i] = (
                np.zeros(tensor.shape, np.int8)
                if tensor.values is None
                else np.ascontiguousarray(tensor.values)
            )
        return self.tensors[i]

    def tensor(self, i: int) -> _Tensor:
        tensor = self.graph.tensor(i)
        if tensor is None:
            raise invalid("an input is omitted; expected all but the bias")
        return tensor

    @staticmethod
    def _type(tensor: _Tensor) -> str:
        return np.dtype(tensor.dtype).name if tensor.dtype else f"type {tensor.type}"

    def activations(self, i: int) -> _Tensor:
        """An int8 tensor with one scale."""
        tensor = self.tensor(i)
        self.array(i)
        if tensor.scale <= 0:
            raise invalid(
                f"tensor {excerpt(tensor.name)!r} has {tensor.scales.size} scales; expected one positive scale"
            )
        return tensor

    def _add_operator(self, name: str, operator: _Table) -> None:
        inputs, outputs = ([int(i) for i in operator.array(field, np.int32)] for field in (1, 2))
        add = getattr(self, "_" + name.lower(), None)
        if add is None or name not in INPUTS:
            raise invalid(f"is not known; expected one of {', '.join(INPUTS)}")
        if len(inputs) not in INPUTS[name] or len(outputs) != 1:
            expected = " or ".join(map(str, INPUTS[name]))
            raise invalid(
                f"has {len(inputs)} inputs and {len(outputs)} outputs; expected {expected} inputs and 1 output"
            )
        options = operator.table(4)
        if options is None and name not in ("ADD", "FULLY_CONNECTED", "RESHAPE"):
            raise invalid("has no options; expected the options of its kind")
        if add(options, inputs, outputs[0]) is False:
            raise invalid(self.library.TfliteError(self.engine).decode())
        if name != "RESHAPE":
            self.steps.append((name, outputs[0]))

    def _low(self, options: _Table | None, field: int, output: _Tensor) -> int:
        fused = options.number(field, "b") if options is not None else 0
        if fused not in (0, 1):
            raise invalid(f"has the fused activation {fused}; expected 0 (none) or 1 (RELU)")
        return max(output.point, -128) if fused == 1 else -128

    def _weights(self, i: int, rank: int) -> np.ndarray:
        tensor = self.tensor(i)
        if (
            tensor.values is None
            or tensor.dtype is not np.int8
            or len(tensor.shape) != rank
            or np.any(tensor.points)
        ):
            kind = "computed" if tensor.values is None else "constant"
            raise invalid(
                f"the weights {excerpt(tensor.name)!r} are {kind} {self._type(tensor)} of the shape {tensor.shape}; "
                f"expected constant int8 in {rank} dimensions, with the zero point 0"
            )
        return tensor.values

    def _linear(self, inputs: list[int], output: int, weights: np.ndarray, low: int) -> Any:
        a, b, c = self.activations(inputs[0]), self.tensor(inputs[1]), self.activations(output)
        scales = np.float32(a.scale) * b.scales / np.float32(c.scale)
        weights = np.ascontiguousarray(weights)
        bias = None
        if len(inputs) > 2 and inputs[2] >= 0:
            given = self.tensor(inputs[2])
            if given.values is None or given.dtype is not np.int32 or given.values.size != len(weights):
                raise invalid(
                    f"the bias has the shape {given.shape}; expected {len(weights)} constant int32 values"
                )
            bias = np.ascontiguousarray(given.values)
        self.kept += [scales, weights, bias]
        return ctypes.byref(
            Linear(
                pointer(self.array(inputs[0])),
                pointer(self.array(output)),
                pointer(weights),
                None if bias is None else pointer(bias),
                pointer(scales),
                scales.size,
                a.point,
                c.point,
                low,
                127,
            )
        )

    def _fully_connected(self, options: _Table | None, inputs: list[int], output: int) -> bool:
        weights = self._weights(inputs[1], 2)
        n, k = weights.shape
        m, rest = divmod(self.array(inputs[0]).size, k)
        if rest != 0 or self.array(output).size != m * n:
            raise invalid(
                f"maps {self.array(inputs[0]).shape} to {self.array(output).shape} by weights of {n}×{k}; expected "
                f"rows of {k} elements, and {n} outputs for each"
            )
        linear = self._linear(inputs, output, weights, self._low(options, 0, self.tensor(output)))
        return self.library.TfliteAddProduct(self.engine, linear, m, n, k)

    def _conv(
        self,
        inputs: list[int],
        output: int,
        weights: np.ndarray,
        low: int,
        options: _Table,
        dilation: tuple[int, int],
    ) -> bool:
        shape, made = self.array(inputs[0]).shape, self.array(output).shape
        if (
            (len(shape), len(made)) != (4, 4)
            or (shape[0], len(weights)) != made[::3]
            or shape[3] % weights.shape[3] != 0
        ):
            raise invalid(f"maps {shape} to {made} by weights of {weights.shape}; expected NHWC and OHWI")
        stride = (options.number(2, "i"), options.number(1, "i"))
        kernel = weights.shape[1:3]
        begin, end = [], []
        for axis in range(2):
            reach = (made[1 + axis] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
            pad = max(reach - shape[1 + axis], 0) if options.number(0, "b") == 0 else 0
            begin.append(pad // 2)
            end.append(pad - pad // 2)
        linear = self._linear(inputs, output, weights, low)
        return self.library.TfliteAddConvolution(
            self.engine,
            linear,
            shape[0],
            shape[3],
            len(weights),
            shape[3] // weights.shape[3],
            pair(shape[1:3]),
            pair(kernel),
            pair(stride),
            pair(dilation),
            pair(begin),
            pair(end),
        )

    def _conv_2d(self, options: _Table, inputs: list[int], output: int) -> bool:
        weights = self._weights(inputs[1], 4)
        return self._conv(
            inputs,
            output,
            weights,
            self._low(options, 3, self.tensor(output)),
            options,
            (options.number(5, "i", 1), options.number(4, "i", 1)),
        )

    def _depthwise_conv_2d(self, options: _Table, inputs: list[int], output: int) -> bool:
        weights = np.moveaxis(self._weights(inputs[1], 4), -1, 0).transpose(0, 2, 3, 1)
        return self._conv(
            inputs,
            output,
            weights,
            self._low(options, 4, self.tensor(output)),
            options,
            (options.number(6, "i", 1), options.number(5, "i", 1)),
        )

    def _add(self, options: _Table | None, inputs: list[int], output: int) -> None:
        """XNNPACK's arithmetic: multipliers of 21 bits, and sums rounded half up."""
        c = self.activations(output)
        for i in inputs:
            if self.array(i).shape != c.shape:
                raise invalid(
                    f"adds a tensor of {self.array(i).shape}; expected the output's shape {c.shape}"
                )
        scales = [np.float32(self.activations(i).scale) / np.float32(c.scale) for i in inputs]
        shift = 20 - (math.frexp(max(scales))[1] - 1)
        multipliers = [round(float(scale) * 2**shift) for scale in scales]
        bias = (1 << (shift - 1)) - sum(m * self.tensor(i).point for m, i in zip(multipliers, inputs))
        addends = [ctypes.byref(Addend(pointer(self.array(i)), m)) for i, m in zip(inputs, multipliers)]
        self.library.TfliteAddAddition(
            self.engine,
            *addends,
            ctypes.c_int64(self.array(output).size),
            bias,
            shift,
            c.point,
            self._low(options, 0, c),
            pointer(self.array(output)),
        )

    def _average_pool_2d(self, options: _Table, inputs: list[int], output: int) -> None:
        shape = self.array(inputs[0]).shape
        window = (options.number(4, "i"), options.number(3, "i"))
        if (
            len(shape) != 4
            or self.array(output).shape != (1, 1, 1, shape[3])
            or window != shape[1:3]
            or options.number(5, "b")
        ):
            raise invalid(
                f"maps {shape} to {self.array(output).shape} by a window of {window}; expected batch 1, a window of "
                "all pixels and no activation"
            )
        self.library.TfliteAddAverage(
            self.engine,
            pointer(self.array(inputs[0])),
            shape[1] * shape[2],
            ctypes.c_int64(shape[3]),
            pointer(self.array(output)),
        )

    def _reshape(self, options: _Table | None, inputs: list[int], output: int) -> None:
        made = self.array(output).shape
        if math.prod(made) != self.array(inputs[0]).size:
            raise invalid(
                f"maps {self.array(inputs[0]).shape} to {made}; expected {math.prod(made)} elements"
            )
        self.tensors[output] = self.array(inputs[0]).reshape(made)

    def _softmax(self, options: _Table, inputs: list[int], output: int) -> None:
        a, c = self.activations(inputs[0]), self.activations(output)
        if (c.scale, c.point) != (1 / 256, -128) or a.shape[:-1] != (1,) or c.shape != a.shape:
            raise invalid(
                f"maps {a.shape} to {c.shape} with scale {c.scale} and zero point {c.point}; expected (1, n), 1/256 "
                "and -128"
            )
        self.library.TfliteAddSoftmax(
            self.engine,
            pointer(self.array(inputs[0])),
            ctypes.c_int64(a.shape[-1]),
            ctypes.c_float(options.number(0, "f") * a.scale),
            pointer(self.array(output)),
        )

    def run(self, times: int = 1) -> float:
        """Microseconds of a run."""
        return self._checked(self.library.TfliteRun(self.engine, times))

    def run_step(self, i: int, times: int) -> float:
        """Microseconds of a run of one step."""
        return self._checked(self.library.TfliteRunStep(self.engine, i, times))

    def _checked(self, taken: float) -> float:
        if taken < 0:
            raise invalid(f"{self.path}: {self.library.TfliteError(self.engine).decode()}")
        return taken


class LiteRt:
    """A model in LiteRT."""

    def __init__(self, path: str, keeps_all: bool = False):
        start = time.thread_time()
        try:
            self.interpreter = litert.Interpreter(
                path, num_threads=1, experimental_preserve_all_tensors=keeps_all
            )
            self.interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise invalid(f"{path}: refused by LiteRT: {excerpt(error, 400)}") from None
        self.create_microseconds = 1e6 * (time.thread_time() - start)
        self.idle_microseconds = statistics.median(
            self._time(self.interpreter._interpreter.NumSubgraphs, 1000) for _ in range(9)
        )

    def run(self, times: int = 1) -> float:
        """Microseconds of a run."""
        return self._time(self.interpreter._interpreter.Invoke, times) - self.idle_microseconds

    @staticmethod
    def _time(call: Any, times: int) -> float:
        start = time.thread_time()
        for _ in range(times):
            call()
        return 1e6 * (time.thread_time() - start) / times


def load_library(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    results = {
        "Create": ctypes.c_void_p,
        "Destroy": None,
        "Error": ctypes.c_char_p,
        "CreateMicroseconds": ctypes.c_double,
        "Load": ctypes.c_double,
        "AddProduct": ctypes.c_bool,
        "AddConvolution": ctypes.c_bool,
        "Run": ctypes.c_double,
        "RunStep": ctypes.c_double,
    }
    for name, result in results.items():
        getattr(library, "Tflite" + name).restype = result
    integer = ctypes.c_int64
    library.TfliteAddProduct.argtypes = [ctypes.c_void_p, ctypes.c_void_p, integer, integer, integer]
    library.TfliteAddConvolution.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        *[integer] * 4,
        *[ctypes.c_void_p] * 6,
    ]
    library.TfliteRun.argtypes = [ctypes.c_void_p, integer]
    library.TfliteRunStep.argtypes = [ctypes.c_void_p, integer, integer]
    return library


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--engine", default="build/release/bench/libintact_tflite_engine.so")
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--layers", action="store_true", help="also shows the time of each operator")
    options = parser.parse_args()
    library = load_library(options.engine)
    different = 0
    for path in options.models:
        set_up = []
        for _ in range(SET_UPS):
            model, stock = Model(library, path), LiteRt(path)
            set_up.append(
                (library.TfliteCreateMicroseconds(model.engine), model.load(), stock.create_microseconds)
            )
            model.close()
        model = Model(library, path)
        create, load, stock_create = (statistics.median(column) for column in zip(*set_up))
        all_tensors = LiteRt(path, keeps_all=True)
        rng = np.random.default_rng(1)
        compared = wrong = 0
        for _ in range(20):
            given = rng.integers(-128, 128, model.array(model.input).shape, np.int8)
            model.array(model.input)[...] = given
            for each in (stock, all_tensors):
                each.interpreter.set_tensor(model.input, given)
                each.run()
            model.run()
            for name, output in model.steps:
                expected = all_tensors.interpreter.get_tensor(output)
                count = int(np.count_nonzero(expected != model.array(output)))
                if count and not wrong:
                    print(f"{name} {output}: {count} of {expected.size} outputs differ")
                wrong += count
                compared += expected.size
            if np.any(stock.interpreter.get_tensor(model.output) != model.array(model.output)):
                wrong += 1
        times = max(1, int(2000 / max(stock.run(10), 0.1)))
        rounds = [(model.run(times), stock.run(times)) for _ in range(options.rounds)]
        ours, theirs = (statistics.median(column) for column in zip(*rounds))
        ratio = statistics.median(b / a for a, b in rounds)
        print(
            f"{Path(path).stem:28} {compared} outputs, {wrong} differ; run: intact {ours:.2f} us, LiteRT {theirs:.2f} us, "
            f"ratio {ratio:.2f}; set-up: create {create:.0f} us, load {load:.0f} us, LiteRT {stock_create:.0f} us",
            flush=True,
        )
        different += wrong
        if options.layers:
            for i, (name, output) in enumerate(model.steps):
                print(f"    {name:20} {str(model.array(output).shape):20} {model.run_step(i, times):.2f} us")
        model.close()
    return 1 if different else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, Error) as error:
        sys.exit(str(error))
