#!/usr/bin/env python3
"""Times models with the execution provider beside ONNX Runtime's CPU provider.

    bench.py [--threads N] [--rounds N] [--isa ISA] [--create | --blocks]

The models are random networks, quantized by onnxruntime.quantization. Both sessions take turns; each time is the median. With
--create, times how long it takes to create sessions of a network with 49 convolutions: ResNet-50 without those of shortcuts. With
--blocks, times MatMulNBits, and layers of a language model that ONNX Runtime's tool quantizes."""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import os
import statistics
import sys
import time
from pathlib import Path

import intact.onnxruntime
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from layers import nbits_model
from networks import network, quantized


def cnn() -> onnx.ModelProto:
    layers = [("conv", 64, 3, 2, 1)]
    for outputs, stride in ((64, 1), (128, 2), (256, 2)):
        layers += [
            ("conv", outputs, 3, stride, 1),
            ("conv", outputs, 3, 1, 1),
            ("conv", outputs, 3, 1, 1),
            ("add", 2),
            ("conv", outputs, 3, 1, outputs),
            ("conv", outputs, 1, 1, 1),
        ]
    return network([*layers, ("pool",), ("gemm", 100)], [1, 3, 112, 112])


def mlp() -> onnx.ModelProto:
    return network([("matmul", 3072), ("matmul", 768)] * 3, [128, 768])


def resnet50_without_shortcuts() -> onnx.ModelProto:
    layers: list = [("conv", 64, 7, 2, 1), ("max",)]
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers += [
                ("conv", width, 1, 1, 1),
                ("conv", width, 3, 1 if block else stride, 1),
                ("conv", 4 * width, 1, 1, 1),
            ]
            layers += [("add", 3)] if block else []
    return network([*layers, ("pool",), ("gemm", 1000)], [1, 3, 224, 224])


def decoder(layers: int = 8, width: int = 576, inner: int = 1536, heads: int = 9) -> bytes:
    """Layers of the size of SmolLM2 135M, with random weights of 4 bits in blocks of 32. Each row attends to all rows of the run."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer  # needs onnx_ir

    rng, nodes, constants = np.random.default_rng(0), [], []

    def add(op: str, *inputs: str | np.ndarray, **attributes: object) -> str:
        names = []
        for value in inputs:
            if isinstance(value, np.ndarray):
                constants.append(numpy_helper.from_array(value, f"c{len(constants)}"))
            names.append(constants[-1].name if isinstance(value, np.ndarray) else value)
        nodes.append(helper.make_node(op, names, [f"t{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def product(x: str, k: int, n: int) -> str:
        return add("MatMul", x, (rng.standard_normal((k, n)) / math.sqrt(k)).astype(np.float32))

    def normalized(x: str) -> str:
        return add("LayerNormalization", x, np.ones(width, np.float32))

    def of_heads(x: str, order: list) -> str:
        return add("Transpose", add("Reshape", x, np.array([0, 0, heads, width // heads])), perm=order)

    x = "x"
    for _ in range(layers):
        given = normalized(x)
        q, k, v = (
            of_heads(product(given, width, width), order)
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = add("Mul", add("MatMul", q, k), np.array(0.125, np.float32))
        mixed = add("Transpose", add("MatMul", add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        mixed = add("Reshape", mixed, np.array([0, 0, width]))
        x = add("Add", x, product(mixed, width, width))
        given = normalized(x)
        gate = product(given, width, inner)
        gate = add("Mul", add("Mul", gate, add("Sigmoid", gate)), product(given, width, inner))
        x = add("Add", x, product(gate, inner, width))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, "rows", width]) for name in ("x", x)]
    graph = helper.make_graph(nodes, "decoder", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    quantizer = MatMulNBitsQuantizer(model, block_size=32, is_symmetric=True, accuracy_level=4)
    quantizer.process()
    return quantizer.model.model.SerializeToString()


def set_threads(options: onnxruntime.SessionOptions, threads: int) -> None:
    """If there are enough processors, each thread has one of its own, the caller of times() the first one. Otherwise a thread that
    wakes up may share the caller's processor for some milliseconds."""
    options.intra_op_num_threads = threads
    processors = sorted(os.sched_getaffinity(0))
    if 1 < threads <= len(processors):
        options.add_session_config_entry(
            "session.intra_op_thread_affinities", ";".join(str(each + 1) for each in processors[1:threads])
        )


def session(model: bytes, threads: int, isa: str | None, with_intact: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    set_threads(options, threads)
    options.log_severity_level = 3
    if with_intact:
        intact.onnxruntime.add(options, max_isa=isa)
    return onnxruntime.InferenceSession(
        model, options, providers=None if with_intact else ["CPUExecutionProvider"]
    )


def times(
    sessions: list[onnxruntime.InferenceSession],
    given: dict,
    threads: int,
    rounds: int,
    seconds: float = math.inf,
) -> list[float]:
    """Milliseconds of a run of each session: medians of runs in turns. No further round starts after `seconds`, but three always
    run. The first round is not counted.

    With one thread, measures CPU time, which other programs hardly change. With several threads, CPU time counts all of them, so
    measures wall time."""
    clock = time.process_time if threads == 1 else time.perf_counter
    taken: list[list[float]] = [[] for _ in sessions]
    end = time.monotonic() + seconds
    processors = os.sched_getaffinity(0)
    if 1 < threads <= len(processors):
        os.sched_setaffinity(0, {min(processors)})  # see set_threads()
    try:
        while len(taken[0]) <= rounds and (len(taken[0]) < 3 or time.monotonic() < end):
            for each, of_session in zip(sessions, taken):
                if threads > 1:
                    time.sleep(0.06)  # threads of other sessions wait actively, there too, for up to 50 ms
                start = clock()
                each.run(None, given)
                of_session.append(1000 * (clock() - start))
    finally:
        os.sched_setaffinity(0, processors)
    return [statistics.median(of_session[1:]) for of_session in taken]


def positive(text: str) -> int:
    """The type of an argument."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"is '{text}'; expected a positive number")
    return int(text)


def time_creation(threads: int, rounds: int, isa: str | None) -> None:
    print(f"{'model':28} {'intact ms':>10} {'second session':>15} {'ONNX Runtime ms':>16}")
    for how in ("QOperator", "QDQ", "dynamic"):
        stored = quantized(resnet50_without_shortcuts(), how, [1, 3, 224, 224])
        taken: list[list] = [[], [], []]
        for _ in range(rounds):
            sessions = []  # the second session is created while the first one lives
            for with_intact, of_session in zip((True, True, False), taken):
                start = time.process_time()
                sessions.append(session(stored, threads, isa, with_intact))
                of_session.append(1000 * (time.process_time() - start))
        first, second, theirs = (statistics.median(each) for each in taken)
        print(f"{'49 convolutions, ' + how:28} {first:10.0f} {second:15.0f} {theirs:16.0f}")


def time_blocks(threads: int, rounds: int, isa: str | None) -> None:
    print(f"{'bits, block, rows':24} {'intact ms':>10} {'ONNX Runtime ms':>16} {'ratio':>6}")
    for bits, block in itertools.product((4, 8), (32, 128)):
        stored = nbits_model(bits, block, k=2048, n=2048)
        sessions = [session(stored, threads, isa, ours) for ours in (True, False)]
        for rows in (1, 4, 16, 128):
            given = {"a": np.random.default_rng(2).normal(size=(1, rows, 2048)).astype(np.float32)}
            ours, theirs = times(sessions, given, threads, rounds)
            print(f"{f'{bits}, {block}, {rows}':24} {ours:10.3f} {theirs:16.3f} {theirs / ours:6.2f}")
    sessions = [session(decoder(), threads, isa, ours) for ours in (True, False)]
    for rows in (1, 4, 16, 128):
        given = {"x": np.random.default_rng(2).normal(size=(1, rows, 576)).astype(np.float32)}
        ours, theirs = times(sessions, given, threads, rounds)
        print(f"{f'decoder, {rows}':24} {ours:10.3f} {theirs:16.3f} {theirs / ours:6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=positive, default=1)
    parser.add_argument("--rounds", type=positive, default=30)
    parser.add_argument("--isa", help="caps intact's instruction set; ONNX Runtime takes what the CPU has")
    parser.add_argument("--create", action="store_true", help="times the creation of sessions")
    parser.add_argument(
        "--blocks",
        action="store_true",
        help="times products with weights in blocks, 2048×2048, and 8 layers of a language model",
    )
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # advice on quantizing
    if arguments.create:
        return time_creation(arguments.threads, arguments.rounds, arguments.isa)
    if arguments.blocks:
        return time_blocks(arguments.threads, arguments.rounds, arguments.isa)
    print(f"{'model':24} {'intact ms':>10} {'ONNX Runtime ms':>16} {'ratio':>6} {'taken':>6}  same bytes")
    for name, model, shape in (
        ("CNN", cnn(), [1, 3, 112, 112]),
        ("MLP", mlp(), [128, 768]),
        ("MLP, 1 row", mlp(), [1, 768]),
    ):
        for how in ("QOperator", "QDQ", "dynamic"):
            stored = quantized(model, how, shape)
            sessions = [session(stored, arguments.threads, arguments.isa, ours) for ours in (True, False)]
            given = {"x": np.random.default_rng(2).normal(size=shape).astype(np.float32)}
            outputs = [each.run(None, given)[0] for each in sessions]
            ours, theirs = times(sessions, given, arguments.threads, arguments.rounds)
            took = sum(node["taken"] for node in intact.onnxruntime.report(sessions[0]))
            print(
                f"{name + ', ' + how:24} {ours:10.2f} {theirs:16.2f} {theirs / ours:6.2f} {took:6}  "
                f"{'yes' if outputs[0].tobytes() == outputs[1].tobytes() else 'no'}"
            )


if __name__ == "__main__":
    main()
