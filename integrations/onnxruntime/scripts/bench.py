#!/usr/bin/env python3
"""Times models with the execution provider beside ONNX Runtime's CPU provider.

    bench.py [--threads N] [--rounds N] [--isa ISA]

The models are random networks, quantized by onnxruntime.quantization. Both sessions take turns; each time is the median."""

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


def session(model: bytes, threads: int, isa: str | None, with_intact: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if with_intact:
        intact.onnxruntime.add(options, max_isa=isa)
    return onnxruntime.InferenceSession(model, options, providers=None if with_intact else ["CPUExecutionProvider"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--isa", help="caps intact's instruction set; ONNX Runtime takes what the CPU has")
    arguments = parser.parse_args()
    # The time of the CPU hardly depends on what else the machine does; with several threads it is none of a run.
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    logging.disable(logging.WARNING)  # advice on quantizing
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
