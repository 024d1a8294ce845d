#!/usr/bin/env python3
"""Times models with the execution provider beside ONNX Runtime's CPU provider.

    bench.py [--threads N] [--rounds N] [--isa ISA] [--create]

The models are random networks, quantized by onnxruntime.quantization. Both sessions take turns; each time is the median. With
--create, times how long it takes to create sessions of a network with the convolutions of ResNet-50."""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import intact.onnxruntime

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from networks import network, quantized


def cnn() -> onnx.ModelProto:
    layers = [("conv", 64, 3, 2, 1)]
    for outputs, stride in ((64, 1), (128, 2), (256, 2)):
        layers += [("conv", outputs, 3, stride, 1), ("conv", outputs, 3, 1, 1), ("conv", outputs, 3, 1, 1), ("add", 2),
                   ("conv", outputs, 3, 1, outputs), ("conv", outputs, 1, 1, 1)]
    return network([*layers, ("pool",), ("gemm", 100)], [1, 3, 112, 112])


def mlp() -> onnx.ModelProto:
    return network([("matmul", 3072), ("matmul", 768)] * 3, [128, 768])


def resnet50() -> onnx.ModelProto:
    layers: list = [("conv", 64, 7, 2, 1), ("max",)]
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers += [("conv", width, 1, 1, 1), ("conv", width, 3, 1 if block else stride, 1), ("conv", 4 * width, 1, 1, 1)]
            layers += [("add", 3)] if block else []
    return network([*layers, ("pool",), ("gemm", 1000)], [1, 3, 224, 224])


def session(model: bytes, threads: int, isa: str | None, with_intact: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if with_intact:
        intact.onnxruntime.add(options, max_isa=isa)
    return onnxruntime.InferenceSession(model, options, providers=None if with_intact else ["CPUExecutionProvider"])


def time_creation(threads: int, rounds: int, isa: str | None) -> None:
    print(f"{'model':24} {'intact ms':>10} {'second session':>15} {'ONNX Runtime ms':>16}")
    for how in ("QOperator", "QDQ", "dynamic"):
        stored = quantized(resnet50(), how, [1, 3, 224, 224])
        times: list[list] = [[], [], []]
        for _ in range(rounds):
            sessions = []  # the second session is created while the first one lives
            for with_intact, taken in zip((True, True, False), times):
                start = time.process_time()
                sessions.append(session(stored, threads, isa, with_intact))
                taken.append(1000 * (time.process_time() - start))
        first, second, theirs = (statistics.median(each) for each in times)
        print(f"{'ResNet-50, ' + how:24} {first:10.0f} {second:15.0f} {theirs:16.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--isa", help="caps intact's instruction set; ONNX Runtime takes what the CPU has")
    parser.add_argument("--create", action="store_true", help="times the creation of sessions")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # advice on quantizing
    if arguments.create:
        return time_creation(arguments.threads, arguments.rounds, arguments.isa)
    # The time of the CPU hardly depends on what else the machine does; with several threads it is none of a run.
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    print(f"{'model':24} {'intact ms':>10} {'ONNX Runtime ms':>16} {'ratio':>6} {'taken':>6}  same bytes")
    for name, model, shape in (("CNN", cnn(), [1, 3, 112, 112]), ("MLP", mlp(), [128, 768]), ("MLP, 1 row", mlp(), [1, 768])):
        for how in ("QOperator", "QDQ", "dynamic"):
            stored = quantized(model, how, shape)
            sessions = [session(stored, arguments.threads, arguments.isa, ours) for ours in (True, False)]
            given = {"x": np.random.default_rng(2).normal(size=shape).astype(np.float32)}
            times: list[list] = [[], []]
            outputs = [each.run(None, given)[0] for each in sessions]
            for _ in range(arguments.rounds):
                for each, taken in zip(sessions, times):
                    start = clock()
                    each.run(None, given)
                    taken.append(1000 * (clock() - start))
            ours, theirs = (statistics.median(each) for each in times)
            took = sum(node["taken"] for node in intact.onnxruntime.report(sessions[0]))
            print(f"{name + ', ' + how:24} {ours:10.2f} {theirs:16.2f} {theirs / ours:6.2f} {took:6}  "
                  f"{'yes' if outputs[0].tobytes() == outputs[1].tobytes() else 'no'}")


if __name__ == "__main__":
    main()
