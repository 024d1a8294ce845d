"""ggml as a target: GGML_CPU=…/libggml-cpu-haswell.so intact verify sweep --quick --target python:ggml_target.py:Q8 (or Q4)

`Grouped`: products with weights in groups of 32, Q8_0 and Q4_0, for `verify grouped`.

GGML_CPU: the library with the kernels of one CPU; its libggml-base.so stands beside it or where the loader finds it. GGML_BUFFER
chooses kernels for rearranged weights: CPU_REPACK or AMX. The llama.cpp package of npm and Debian's libggml0 have a library for
each kind of CPU; PyPI's libggml-python has one for AVX2."""

import contextlib
import ctypes
import itertools
import os

import numpy as np

POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t
F32, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K = 0, 2, 3, 6, 7, 8, 12, 13, 14
# Weights and bytes of a block.
BLOCKS = {
    **{Q4_0: (32, 18), Q4_1: (32, 20), Q5_0: (32, 22), Q5_1: (32, 24), Q8_0: (32, 34)},
    **{Q4_K: (256, 144), Q5_K: (256, 176), Q6_K: (256, 210)},
}
# ggml scales groups of 32 by their largest activation, so 127 is added to each group; its weight is 0
GROUP = 31


class Init(ctypes.Structure):
    _fields_ = [("mem_size", SIZE), ("mem_buffer", POINTER), ("no_alloc", ctypes.c_bool)]


def pointer(result, function, _):
    if result is None:
        raise RuntimeError(f"{function.__name__} returned NULL; expected a pointer")
    return result


def weight_blocks(b_type, b, scales):
    """ggml's type, and the rows of blocks, of weights in groups of 32. `b`: N rows of s8, of u8 with zero point 128, or of u4, two in
    a byte, the even depth in the low four bits. `scales`: N×groups."""
    n, groups = scales.shape
    b = b.view(np.uint8).reshape(n, groups, -1)
    if b_type == "u4":
        depths = np.stack([b & 15, b >> 4], 3).reshape(n, groups, 32)
        b = depths[..., :16] | depths[..., 16:] << 4
    elif b_type == "u8":
        b = b ^ 128
    rows = np.concatenate([scales.astype(np.float16)[..., None].view(np.uint8), b], 2)
    return Q4_0 if b_type == "u4" else Q8_0, rows.reshape(n, -1)


class Matrix:
    """Constant weights in the buffer of a Q8 object `ggml`: N rows of bytes, blocks of `type`. Calls multiply float activations."""

    def __init__(self, ggml, type, rows):
        depths, size = BLOCKS[type]
        self.ggml, self.n, self.k = ggml, len(rows), rows.shape[1] // size * depths
        self.stack, self.products = contextlib.ExitStack(), {}
        context = self._own(ggml.init, ggml.free, Init(1 << 14, None, True))
        self.weights = ggml.new_tensor_2d(context, type, self.k, self.n)
        self._own(ggml.backend_alloc_ctx_tensors_from_buft, ggml.backend_buffer_free, context, ggml.buffer)
        self.product(1)
        rows = np.ascontiguousarray(rows)
        ggml.backend_tensor_set(self.weights, rows.ctypes.data, 0, rows.nbytes)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()

    def _own(self, create, release, *arguments):
        made = create(*arguments)
        self.stack.callback(release, made)
        return made

    def product(self, m):
        """The tensors of A and C and the graph for `m` rows."""
        if m not in self.products:
            g = self.ggml
            run = self._own(g.init, g.free, Init(1 << 20, None, True))
            a = g.new_tensor_2d(run, F32, self.k, m)
            c, graph = g.mul_mat(run, self.weights, a), g.new_graph(run)
            g.build_forward_expand(graph, c)
            if not g.backend_dev_supports_op(g.device, c):
                raise NotImplementedError("these kernels do not take this size")
            self._own(
                g.backend_alloc_ctx_tensors_from_buft, g.backend_buffer_free, run, g.backend_cpu_buffer_type()
            )
            self.products[m] = a, c, graph
        return self.products[m]

    def set(self, x):
        x = np.ascontiguousarray(x, np.float32)
        self.ggml.backend_tensor_set(self.product(len(x))[0], x.ctypes.data, 0, x.nbytes)

    def compute(self, m):
        status = self.ggml.backend_graph_compute(self.ggml.backend, self.product(m)[2])
        if status != 0:
            raise RuntimeError(f"ggml_backend_graph_compute returned {status}; expected 0")

    def __call__(self, x):
        self.set(x)
        self.compute(len(x))
        y = np.empty((len(x), self.n), np.float32)
        self.ggml.backend_tensor_get(self.product(len(x))[1], y.ctypes.data, 0, y.nbytes)
        return y


class Q8:
    """s8 activations, and s8 weights with scale 1. The float outputs are whole numbers; ggml adds groups in float32."""

    type = Q8_0
    supports = ["gemm", "a_s8", "b_s8", "c_s32"]
    arithmetic = "any"

    def __init__(self, kind=None):
        path, kind = os.environ.get("GGML_CPU"), kind or os.environ.get("GGML_BUFFER", "CPU")
        if path is None:
            raise ValueError("GGML_CPU is not set; expected the path of a libggml-cpu-….so")
        beside = os.path.join(os.path.dirname(path), "libggml-base.so")
        base = ctypes.CDLL(beside if os.path.exists(beside) else "libggml-base.so.0", ctypes.RTLD_GLOBAL)
        cpu = ctypes.CDLL(path)
        if getattr(cpu, "ggml_backend_score", lambda: 1)() == 0:
            raise NotImplementedError(f"this CPU cannot run {os.path.basename(path)}")
        for library, name, result, *arguments in (
            (base, "ggml_init", POINTER, Init),
            (base, "ggml_free", None, POINTER),
            (base, "ggml_version", ctypes.c_char_p),
            (base, "ggml_new_tensor_2d", POINTER, POINTER, ctypes.c_int, ctypes.c_int64, ctypes.c_int64),
            (base, "ggml_mul_mat", POINTER, POINTER, POINTER, POINTER),
            (base, "ggml_new_graph", POINTER, POINTER),
            (base, "ggml_build_forward_expand", None, POINTER, POINTER),
            (base, "ggml_backend_buft_name", ctypes.c_char_p, POINTER),
            (base, "ggml_backend_alloc_ctx_tensors_from_buft", POINTER, POINTER, POINTER),
            (base, "ggml_backend_buffer_free", None, POINTER),
            (base, "ggml_backend_cpu_buffer_type", POINTER),
            (base, "ggml_backend_tensor_set", None, POINTER, POINTER, SIZE, SIZE),
            (base, "ggml_backend_tensor_get", None, POINTER, POINTER, SIZE, SIZE),
            (base, "ggml_backend_graph_compute", ctypes.c_int, POINTER, POINTER),
            (base, "ggml_backend_reg_dev_get", POINTER, POINTER, SIZE),
            (base, "ggml_backend_dev_supports_op", ctypes.c_bool, POINTER, POINTER),
            (base, "ggml_backend_reg_get_proc_address", POINTER, POINTER, ctypes.c_char_p),
            (cpu, "ggml_backend_cpu_init", POINTER),
            (cpu, "ggml_backend_cpu_reg", POINTER),
            (cpu, "ggml_backend_cpu_set_n_threads", None, POINTER, ctypes.c_int),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
            if result is POINTER:
                function.errcheck = pointer
            setattr(self, name.removeprefix("ggml_"), function)
        self.backend = self.backend_cpu_init()
        self.backend_cpu_set_n_threads(self.backend, 1)
        self.device = self.backend_reg_dev_get(self.backend_cpu_reg(), 0)
        buffers = {"CPU": self.backend_cpu_buffer_type()}
        extra = ctypes.CFUNCTYPE(ctypes.POINTER(POINTER), POINTER)(
            self.backend_reg_get_proc_address(self.backend_cpu_reg(), b"ggml_backend_dev_get_extra_bufts")
        )(self.device)
        for one in itertools.takewhile(bool, map(extra.__getitem__, itertools.count())):
            buffers[self.backend_buft_name(one).decode()] = one
        if kind not in buffers:
            raise ValueError(f"GGML_BUFFER is {kind}; this library has {', '.join(buffers)}")
        self.buffer = buffers[kind]
        self.name = (
            f"ggml {self.version().decode()}, {os.path.basename(path)[8:-3]}, {kind}, {type(self).__name__}"
        )

    @staticmethod
    def blocks(b):
        """The bytes of N×K weights, in groups of 32 after a float16 scale. K is a multiple of 31."""
        groups = np.pad(b.reshape(len(b), -1, GROUP), ((0, 0), (0, 0), (0, 1)))
        return np.concatenate(
            [np.full((*groups.shape[:2], 1), 1, np.float16).view(np.uint8), groups.view(np.uint8)], 2
        )

    @staticmethod
    def activations(a):
        return np.pad(a.reshape(len(a), -1, GROUP), ((0, 0), (0, 0), (0, 1)), constant_values=127)

    def gemm(self, p):
        a, b = p.a, p.b.T
        if -128 in a:  # ggml quantizes to -127…127
            a, b = (
                np.concatenate([np.maximum(a, -127), -(a == -128).astype(np.int8)], 1),
                np.concatenate([b, b], 1),
            )
        short = ((0, 0), (0, -a.shape[1] % GROUP))
        a = self.activations(np.pad(a, short)).reshape(len(a), -1).astype(np.float32)
        b = self.blocks(np.pad(b, short))
        with Matrix(self, self.type, b.reshape(len(b), -1)) as matrix:
            y = matrix(a)
        return y.astype(np.int64).astype(np.int32)


class Q4(Q8):
    """Q4_0: each s8 weight is the sum of three weights of 4 bits: 16·⌊w/16⌋ + (w mod 16 − 8) + 8."""

    type = Q4_0

    @staticmethod
    def blocks(b):
        groups = np.pad(b.reshape(len(b), -1, 1, GROUP), ((0, 0), (0, 0), (0, 0), (0, 1)))
        digits = np.concatenate([(groups >> 4) + 8, groups & 15, np.full_like(groups, 9)], 2)
        digits[:, :, 1:, GROUP] = 8  # a weight of 0
        scales = np.broadcast_to(np.array([16, 1, 8], np.float16)[:, None], (*digits.shape[:3], 1)).copy()
        nibbles = (digits[..., :16] | digits[..., 16:] << 4).view(np.uint8)
        return np.concatenate([scales.view(np.uint8), nibbles], 3)

    @staticmethod
    def activations(a):
        return np.repeat(Q8.activations(a)[:, :, None], 3, 2)


class Grouped(Q8):
    """Weights in groups of 32: s8 as Q8_0, u4 as Q4_0. ggml quantizes each group of a row to s8."""

    supports = ["grouped", "a_s8", "dynamic_rows", "b_s8", "b_u4", "c_f32"]

    def grouped(self, p):
        w = p.weights
        for refused, words in (
            (p.a.dtype != np.float32, "float32 activations only"),
            (p.granularity != "groups", "activations have a scale for each group"),
            (w.group != 32 or w.k % 32, "whole groups of 32 only"),
            (w.scales.dtype != np.float16, "float16 scales only"),
        ):
            if refused:
                raise NotImplementedError(words)
        with Matrix(self, *weight_blocks(w.b_type, w.b, w.scales)) as matrix:
            return matrix(p.a)
