"""Products with weights in groups: intact, ONNX Runtime's MatMulNBits and ggml in turns, one thread.

    PYTHONPATH=build/release/python taskset -c 1 python3 bench/grouped_peers.py --k 4096 --n 4096 --m 1 4 128 --group 128
    GGML_CPU=…/libggml-cpu-icelake.so …                             # with ggml, for 4 bits or 8 bits in groups of 32
    HELD_TO=avx2 LD_PRELOAD=./held_to.so … --isa avx2               # kernels for an older CPU: examples/targets/held_to.c

Float activations and weights of 4 or 8 bits. Each engine quantizes the activations in each run, in the groups of the weights. An
engine is timed only if its outputs are near the float64 product of its own integers. CPU times are medians over the turns; a turn
runs once untimed, then at least --turn milliseconds."""

import argparse
import contextlib
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import intact

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "targets"))

LARGEST_ERROR = 2e-6  # of the mean of Σ|a·w|; one activation quantized otherwise gives more


class Intact:
    def __init__(self, weights, isa):
        self.plan = intact.Grouped.of(weights, granularity="groups", max_isa=isa)
        info = self.plan.info
        self.name, self.bytes = f"intact, {info.isa}", info.packed_bytes

    def quantized(self, groups):
        """Integers and scales of A (M×groups×depths)."""
        scales = np.abs(groups).max(2) / np.float32(127)
        return np.rint(groups / scales[..., None]), scales

    def bind(self, a):
        return self.plan.bind(a, threads=1)


class MatMulNBits:
    """com.microsoft's operator, with accuracy level 4."""

    def __init__(self, weights, _):
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper

        bits = {"u4": 4, "u8": 8}[weights.b_type]
        groups = weights.scales.shape[1]
        tensors = {"b": weights.b.reshape(weights.n, groups, -1), "s": weights.scales.astype(np.float32).ravel()}
        node = helper.make_node("MatMulNBits", ["a", *tensors], ["c"], domain="com.microsoft", K=weights.k, N=weights.n,
                                bits=bits, block_size=weights.group, accuracy_level=4)
        value = helper.make_tensor_value_info
        graph = helper.make_graph([node], "g", [value("a", TensorProto.FLOAT, ["m", weights.k])],
                                  [value("c", TensorProto.FLOAT, ["m", weights.n])],
                                  [numpy_helper.from_array(array, name) for name, array in tensors.items()])
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        self.session = onnxruntime.InferenceSession(
            helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString(), options,
            providers=["CPUExecutionProvider"])
        self.name, self.n = f"ONNX Runtime {onnxruntime.__version__}", weights.n

    def quantized(self, groups):
        largest = np.abs(groups).max(2)
        return np.rint(groups * (np.float32(127) / largest)[..., None]), largest / np.float32(127)

    def bind(self, a):
        binding, out = self.session.io_binding(), np.empty((len(a), self.n), np.float32)
        binding.bind_input("a", "cpu", 0, np.float32, a.shape, a.ctypes.data)
        binding.bind_output("c", "cpu", 0, np.float32, out.shape, out.ctypes.data)

        def run():
            self.session.run_with_iobinding(binding)
            return out
        return run


class Ggml:
    """ggml's matrix product, with plain or rearranged weights."""

    def __init__(self, weights, _, kind):
        import ggml_target

        g = ggml_target.Q8(kind)
        self.matrix = ggml_target.Matrix(g, *ggml_target.weight_blocks(weights))
        self.quantize, self.name = ggml_target.quantize, g.name.rpartition(",")[0]

    def quantized(self, groups):
        a, scales = self.quantize(groups.reshape(len(groups), -1))
        return a.reshape(groups.shape), scales

    def bind(self, a):
        out = self.matrix(a)

        def run():
            self.matrix.compute(len(a))
            return out
        return run


def is_right(engine, a, weights):
    """Whether sampled columns are near the float64 product of the engine's own integers."""
    columns = np.linspace(0, weights.n - 1, min(weights.n, 64)).astype(int)
    sample = intact.GroupedWeights(weights.b[columns], weights.b_type, weights.k, weights.group, weights.scales[columns])
    values = sample.values().astype(np.float64)
    q, scales = engine.quantized(a.reshape(len(a), -1, weights.group))
    expected = (q * scales[..., None].astype(np.float64)).reshape(a.shape) @ values.T
    return np.abs(engine.bind(a)()[:, columns] - expected).max() <= LARGEST_ERROR * (np.abs(a) @ np.abs(values.T)).mean()


def measured(runs, turns, milliseconds):
    """The median CPU time of each run in microseconds. The runs take turns."""
    times = {name: [] for name in runs}
    for _ in range(turns):
        for name, run in runs.items():
            run()
            start, count = time.thread_time(), 0
            while (elapsed := time.thread_time() - start) < 1e-3 * milliseconds:
                run()
                count += 1
            times[name].append(1e6 * elapsed / count)
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description="Times products with weights in groups: intact, ONNX Runtime and ggml in turns.")
    parser.add_argument("--k", type=int, nargs="+", default=[4096])
    parser.add_argument("--n", type=int, nargs="+", default=[4096])
    parser.add_argument("--m", type=int, nargs="+", default=[1, 4, 128])
    parser.add_argument("--bits", type=int, nargs="+", choices=[4, 8], default=[4])
    parser.add_argument("--group", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--isa", help="intact's cap")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--turn", type=float, default=20, help="milliseconds")
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    print(f"{'K×N':>12} {'bits':>4} {'group':>5} {'M':>4}  engine: microseconds, GOPS, time relative to intact")
    for k, n, bits, group in ((k, n, b, g) for k in options.k for n in options.n for b in options.bits for g in options.group):
        scales = rng.uniform(0.001, 0.01, (n, k // group)).astype(np.float16)
        weights = intact.GroupedWeights(rng.integers(0, 256, (n, k * bits // 8), dtype=np.uint8), f"u{bits}", k, group, scales)
        makers = [Intact, MatMulNBits]
        if "GGML_CPU" in os.environ and group == 32:
            makers += [lambda w, isa, kind=kind: Ggml(w, isa, kind) for kind in ("CPU", "CPU_REPACK", "AMX")]
        engines = []
        for make in makers:
            with contextlib.suppress(NotImplementedError, ValueError, ImportError):  # a buffer, or a package, that is not there
                engines.append(make(weights, options.isa))
        for m in options.m:
            a = rng.standard_normal((m, k)).astype(np.float32)
            runs = {}
            for engine in engines:
                if is_right(engine, a, weights):
                    runs[engine.name] = engine.bind(a)
                else:
                    print(f"{engine.name}: wrong outputs; not timed")
            times = measured(runs, options.turns, options.turn)
            own = times.get(engines[0].name, float("nan"))
            cells = "; ".join(f"{name}: {t:.0f}, {2e-3 * m * n * k / t:.0f}, {t / own:.2f}" for name, t in times.items())
            print(f"{f'{k}×{n}':>12} {bits:>4} {group:>5} {m:>4}  {cells}", flush=True)


if __name__ == "__main__":
    main()
