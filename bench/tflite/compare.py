#!/usr/bin/env python3
"""Runs int8 TFLite models by intact and by LiteRT (XNNPACK), compares the outputs, and times both in turns, on one thread.

    PYTHONPATH=build/release/python bench/tflite/compare.py [--engine FILE] [--rounds N] [--layers] MODEL...

Needs the package ai-edge-litert and the targets intact_python_stage and intact_tflite_engine. Inputs are random. The outputs of
all operators are compared byte for byte. A time is the median of rounds of 2 ms, in CPU time, which other programs hardly change;
the ratio is the median of the rounds' ratios.
LiteRT's time does not include Python's call: the time of a call that does nothing is subtracted. Set-up: intact creates or loads
all plans of the model; LiteRT creates an interpreter and allocates its tensors."""

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

from intact._library import Error
from intact._tflite import _File, _Graph, _Table, _Tensor, read_tflite

SET_UPS = 9

INT8 = ctypes.POINTER(ctypes.c_int8)


class Linear(ctypes.Structure):
    _fields_ = [("input", INT8), ("output", INT8), ("weights", INT8), ("bias", ctypes.POINTER(ctypes.c_int32)),
                ("scales", ctypes.POINTER(ctypes.c_float)), ("scale_count", ctypes.c_int64), ("input_zero", ctypes.c_int32),
                ("output_zero", ctypes.c_int32), ("low", ctypes.c_int32), ("high", ctypes.c_int32)]


class Addend(ctypes.Structure):
    _fields_ = [("input", INT8), ("multiplier", ctypes.c_int32)]


def pointer(array: np.ndarray) -> Any:
    return array.ctypes.data_as(ctypes.POINTER({"int8": ctypes.c_int8, "int32": ctypes.c_int32,
                                                "float32": ctypes.c_float}[array.dtype.name]))


def pair(values: tuple[int, int]) -> Any:
    return (ctypes.c_int64 * 2)(*values)


class Model:
    """A model in the engine."""

    def __init__(self, library: ctypes.CDLL, path: str):
        self.library = library
        read_tflite(path)  # refuses files that are no models
        file = _File(Path(path).read_bytes())
        if len(file.root.tables(2)) != 1:
            sys.exit(f"{path}: has {len(file.root.tables(2))} graphs; expected 1")
        graph = _Graph(file, file.root.tables(2)[0])
        self.graph = graph
        self.engine = ctypes.c_void_p(library.TfliteCreate())
        self.tensors: dict[int, np.ndarray] = {}
        self.kept: list[Any] = []  # what plans or steps read
        self.steps: list[tuple[str, int]] = []  # operator and output
        self.input, = map(int, file.root.tables(2)[0].array(1, np.int32))
        self.output, = map(int, file.root.tables(2)[0].array(2, np.int32))
        for operator in graph.operators:
            name, _ = graph.code(operator)
            inputs = [int(i) for i in operator.array(1, np.int32)]
            output, = map(int, operator.array(2, np.int32))
            add = getattr(self, "_" + name.lower(), None)
            if add is None:
                sys.exit(f"{path}: has the operator {name}; expected one of FULLY_CONNECTED, CONV_2D, DEPTHWISE_CONV_2D, ADD, "
                         "AVERAGE_POOL_2D over all pixels, RESHAPE, SOFTMAX")
            if add(operator.table(4), inputs, output) is False:
                sys.exit(f"{path}: {name}: {library.TfliteError(self.engine).decode()}")
            if name != "RESHAPE":
                self.steps.append((name, output))

    def close(self) -> None:
        self.library.TfliteDestroy(self.engine)

    def array(self, i: int) -> np.ndarray:
        if i not in self.tensors:
            self.tensors[i] = np.zeros(self.tensor(i).shape, np.int8)
        return self.tensors[i]

    def tensor(self, i: int) -> _Tensor:
        tensor = self.graph.tensor(i)
        assert tensor is not None
        return tensor

    def _low(self, options: _Table | None, field: int, output: _Tensor) -> int:
        fused = options.number(field, "b") if options is not None else 0
        if fused not in (0, 1):
            sys.exit(f"fused activation {fused}; expected none or RELU")
        return max(output.point, -128) if fused == 1 else -128

    def _linear(self, inputs: list[int], output: int, weights: np.ndarray, low: int) -> Any:
        a, b, c = self.tensor(inputs[0]), self.tensor(inputs[1]), self.tensor(output)
        scales = np.float32(a.scale) * b.scales / np.float32(c.scale)
        weights = np.ascontiguousarray(weights)
        bias = self.tensor(inputs[2]).values if len(inputs) > 2 and inputs[2] >= 0 else None
        bias = None if bias is None else np.ascontiguousarray(bias)
        self.kept += [scales, weights, bias]
        return ctypes.byref(Linear(pointer(self.array(inputs[0])), pointer(self.array(output)), pointer(weights),
                                   None if bias is None else pointer(bias), pointer(scales), scales.size, a.point, c.point, low,
                                   127))

    def _fully_connected(self, options: _Table | None, inputs: list[int], output: int) -> bool:
        weights = self.tensor(inputs[1]).values
        assert weights is not None
        n, k = weights.shape
        linear = self._linear(inputs, output, weights, self._low(options, 0, self.tensor(output)))
        return self.library.TfliteAddProduct(self.engine, linear, self.array(inputs[0]).size // k, n, k)

    def _conv(self, inputs: list[int], output: int, weights: np.ndarray, low: int, options: _Table,
              dilation: tuple[int, int]) -> bool:
        shape, made = self.tensor(inputs[0]).shape, self.tensor(output).shape
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
            self.engine, linear, shape[0], shape[3], len(weights), shape[3] // weights.shape[3], pair(shape[1:3]), pair(kernel),
            pair(stride), pair(dilation), pair(begin), pair(end))

    def _conv_2d(self, options: _Table, inputs: list[int], output: int) -> bool:
        weights = self.tensor(inputs[1]).values
        return self._conv(inputs, output, weights, self._low(options, 3, self.tensor(output)), options,
                          (options.number(5, "i", 1), options.number(4, "i", 1)))

    def _depthwise_conv_2d(self, options: _Table, inputs: list[int], output: int) -> bool:
        weights = np.moveaxis(self.tensor(inputs[1]).values, -1, 0).transpose(0, 2, 3, 1)
        return self._conv(inputs, output, weights, self._low(options, 4, self.tensor(output)), options,
                          (options.number(6, "i", 1), options.number(5, "i", 1)))

    def _add(self, options: _Table | None, inputs: list[int], output: int) -> None:
        """XNNPACK's arithmetic: multipliers of 21 bits, and sums rounded half up."""
        c = self.tensor(output)
        scales = [np.float32(self.tensor(i).scale) / np.float32(c.scale) for i in inputs]
        shift = 20 - (math.frexp(max(scales))[1] - 1)
        multipliers = [round(float(scale) * 2**shift) for scale in scales]
        bias = (1 << (shift - 1)) - sum(m * self.tensor(i).point for m, i in zip(multipliers, inputs))
        addends = [ctypes.byref(Addend(pointer(self.array(i)), m)) for i, m in zip(inputs, multipliers)]
        self.library.TfliteAddAddition(self.engine, *addends, ctypes.c_int64(self.array(output).size), bias, shift, c.point,
                                       self._low(options, 0, c), pointer(self.array(output)))

    def _average_pool_2d(self, options: _Table, inputs: list[int], output: int) -> None:
        shape = self.tensor(inputs[0]).shape
        if shape[0] != 1 or (options.number(4, "i"), options.number(3, "i")) != shape[1:3] or options.number(5, "b"):
            sys.exit(f"AVERAGE_POOL_2D of {shape}; expected batch 1, a window of all pixels and no activation")
        self.library.TfliteAddAverage(self.engine, pointer(self.array(inputs[0])), shape[1] * shape[2], ctypes.c_int64(shape[3]),
                                      pointer(self.array(output)))

    def _reshape(self, options: _Table | None, inputs: list[int], output: int) -> None:
        self.tensors[output] = self.array(inputs[0]).reshape(self.tensor(output).shape)

    def _softmax(self, options: _Table, inputs: list[int], output: int) -> None:
        a, c = self.tensor(inputs[0]), self.tensor(output)
        if (c.scale, c.point) != (1 / 256, -128) or a.shape[:-1] != (1,):
            sys.exit(f"SOFTMAX of {a.shape} with scale {c.scale} and zero point {c.point}; expected (1, n), 1/256, -128")
        self.library.TfliteAddSoftmax(self.engine, pointer(self.array(inputs[0])), ctypes.c_int64(a.shape[-1]),
                                      ctypes.c_float(options.number(0, "f") * a.scale), pointer(self.array(output)))

    def run(self, times: int = 1) -> float:
        """Microseconds of a run."""
        taken = self.library.TfliteRun(self.engine, ctypes.c_int64(times))
        if taken < 0:
            sys.exit(self.library.TfliteError(self.engine).decode())
        return taken


class LiteRt:
    """A model in LiteRT."""

    def __init__(self, path: str, keeps_all: bool = False):
        start = time.thread_time()
        self.interpreter = litert.Interpreter(path, num_threads=1, experimental_preserve_all_tensors=keeps_all)
        self.interpreter.allocate_tensors()
        self.create_microseconds = 1e6 * (time.thread_time() - start)
        self.idle_microseconds = statistics.median(self._time(self.interpreter._interpreter.NumSubgraphs, 1000) for _ in range(9))

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
    results = {"Create": ctypes.c_void_p, "Destroy": None, "Error": ctypes.c_char_p, "CreateMicroseconds": ctypes.c_double,
               "LoadMicroseconds": ctypes.c_double, "AddProduct": ctypes.c_bool, "AddConvolution": ctypes.c_bool,
               "Run": ctypes.c_double, "RunStep": ctypes.c_double}
    for name, result in results.items():
        getattr(library, "Tflite" + name).restype = result
    integer = ctypes.c_int64
    library.TfliteAddProduct.argtypes = [ctypes.c_void_p, ctypes.c_void_p, integer, integer, integer]
    library.TfliteAddConvolution.argtypes = [ctypes.c_void_p, ctypes.c_void_p, *[integer] * 4, *[ctypes.c_void_p] * 6]
    library.TfliteRunStep.argtypes = [ctypes.c_void_p, integer, integer]
    return library


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
            set_up.append((library.TfliteCreateMicroseconds(model.engine), library.TfliteLoadMicroseconds(model.engine),
                           stock.create_microseconds))
            if len(set_up) < SET_UPS:
                model.close()
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
        times = max(1, int(2000 / stock.run(10)))
        rounds = [(model.run(times), stock.run(times)) for _ in range(options.rounds)]
        ours, theirs = (statistics.median(column) for column in zip(*rounds))
        ratio = statistics.median(b / a for a, b in rounds)
        print(f"{Path(path).stem:28} {compared} outputs, {wrong} differ; run: intact {ours:.2f} us, LiteRT {theirs:.2f} us, "
              f"ratio {ratio:.2f}; set-up: create {create:.0f} us, load {load:.0f} us, LiteRT {stock_create:.0f} us", flush=True)
        different += wrong
        if options.layers:
            for i, (name, output) in enumerate(model.steps):
                print(f"    {name:20} {str(model.array(output).shape):20} {library.TfliteRunStep(model.engine, i, times):.2f} us")
        model.close()
    return 1 if different else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, Error) as error:
        sys.exit(str(error))
