"""A peer of intact_bench, in a separate process. peer_process.cc starts it as `python3 -c TEXT KIND LIBRARY GGML_TARGET` and
exchanges lines of JSON with it (GGML_TARGET: the text of examples/targets/ggml_target.py):

    at the start                            {"version", "call_microseconds": the time of a product of two numbers}
    {"make": case, "memory": path}          {"contender": its number, "implementation": its name}
    {"contender": number, "times": number,  {"microseconds"}: the mean time of a run. "new_a": the file's A has changed. "with_c":
     "new_a": bool, "with_c": bool}         C is read from the file before the runs, and written to it after them

A case with "blocks" has weights in blocks (bench/cases/blocks.h). Any answer may be {"error"} instead. The file at `path`
has B, the scales, A and C, at case["offsets"]. Runs use a copy of them in huge pages, like the other contenders' memory."""

import ctypes
import json
import mmap
import os
import sys
import time
import types
import warnings

HUGE_PAGE = 1 << 21


class Memory:
    """The operands of a contender: a copy of `file`."""

    def __init__(self, file, case):
        self.file, self.size, self.file_offsets = file, len(file), case["offsets"]
        self.data = mmap.mmap(-1, self.size + 2 * HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        try:
            self.data.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a hint
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.data))
        begin = -self.address % HUGE_PAGE
        self.data[begin : begin + self.size] = file[:]
        self.offsets = {name: begin + offset for name, offset in self.file_offsets.items()}

    def at(self, name):
        return self.address + self.offsets[name]

    def parts(self, name):
        """The operand here, and in the file. C is the last operand, A is before it."""
        size = (self.size if name == "c" else self.file_offsets["c"]) - self.file_offsets[name]
        return (slice(begin, begin + size) for begin in (self.offsets[name], self.file_offsets[name]))

    def load(self, name):
        here, there = self.parts(name)
        self.data[here] = self.file[there]

    def store(self, name):
        here, there = self.parts(name)
        self.file[there] = self.data[here]


class OneDnn:
    """oneDNN 3 by its C API. The numbers are constants of its headers."""

    TYPES = {"f32": 3, "s32": 4, "s8": 5, "u8": 6}
    SRC, WEIGHTS, DST, SCALES = 1, 33, 17, 4096
    ISAS = {
        "portable": "SSE41",
        "avx2": "AVX2",
        "avx_vnni": "AVX2_VNNI",
        "avx_vnni_int8": "AVX2_VNNI_2",
        "avx512": "AVX512_CORE",
        "avx512_vnni": "AVX512_CORE_VNNI",
        "amx_int8": "AVX512_CORE_AMX",
    }

    def __init__(self, path):
        os.environ["ONEDNN_MAX_CPU_ISA"] = self.ISAS.get(os.environ.get("HELD_TO"), "DEFAULT")
        self.use_libc_of(path)
        self.library = ctypes.CDLL(path)
        version = self.function("version", ctypes.POINTER(ctypes.c_int))()
        self.version = ".".join(str(version[i]) for i in range(3))
        if version[0] != 3:
            raise ValueError(f"is oneDNN {self.version}; expected oneDNN 3")
        self.engine = self.new("engine_create", 1, ctypes.c_size_t(0))
        self.stream = self.new("stream_create", self.engine, 1)

    @staticmethod
    def use_libc_of(path):
        """Starts Python again by the dynamic loader beside the library, if there is one: with the libc of this folder."""
        folder = os.path.dirname(os.path.abspath(path))
        loader = os.path.join(folder, "ld-linux-x86-64.so.2")
        if os.path.exists(loader) and not os.path.samefile("/proc/self/exe", loader):
            os.execv(loader, [loader, "--library-path", folder, sys.executable, *sys.orig_argv[1:]])

    def function(self, name, result=ctypes.c_int):
        function = getattr(self.library, "dnnl_" + name)
        function.restype = result
        return function

    def call(self, name, *arguments):
        status = self.function(name)(*arguments)
        if status != 0:
            raise RuntimeError(f"dnnl_{name} returns status {status}")

    def new(self, name, *arguments):
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle

    @staticmethod
    def dimensions(values):
        return (ctypes.c_int64 * 12)(*values)

    def tensor(self, kind, extents, order):
        """A dense tensor's descriptor. `order`: the dimensions, outermost first; None: oneDNN chooses."""
        sizes = [len(extents), self.dimensions(extents), self.TYPES[kind]]
        if order is None:
            return self.new("memory_desc_create_with_tag", *sizes, 1)
        strides, stride = [0] * len(extents), 1
        for i in reversed(order):
            strides[i], stride = stride, stride * extents[i]
        return self.new("memory_desc_create_with_strides", *sizes, self.dimensions(strides))

    def memory(self, descriptor, address):
        return self.new("memory_create", descriptor, self.engine, ctypes.c_void_p(address))

    def runner(self, description, memories):
        class Argument(ctypes.Structure):
            _fields_ = [("argument", ctypes.c_int), ("memory", ctypes.c_void_p)]

        primitive, stream = self.new("primitive_create", description), self.stream
        arguments = (Argument * len(memories))(*((key, memory.value) for key, memory in memories.items()))
        execute, count = self.function("primitive_execute"), len(memories)

        def run():  # on a CPU the primitive is done when this returns
            if execute(primitive, stream, count, arguments) != 0:
                raise RuntimeError("dnnl_primitive_execute fails")

        return run

    def make(self, case, memory):
        conv, c_type = case["conv"], case["c_type"]
        if conv:
            groups = [conv["groups"]] if conv["groups"] != 1 else []
            lead = len(groups)
            a = self.tensor("u8", [conv["batch"], conv["c_in"], *conv["in"]], [0, 2, 3, 1])
            c = self.tensor(c_type, [conv["batch"], conv["c_out"], *conv["out"]], [0, 2, 3, 1])
            b = [*groups, conv["c_out"] // conv["groups"], conv["c_in"] // conv["groups"], *conv["kernel"]]
            b_order = [*range(lead + 1), lead + 2, lead + 3, lead + 1]
            columns = (1 << lead + 1) - 1
            name = "convolution_forward_primitive_desc_create"
            operation = [96, 1]
            geometry = [self.dimensions(conv[key]) for key in ("stride", "gaps", "pad_begin", "pad_end")]
        else:
            items = [case["items"]] if case["is_batch"] else []
            lead = len(items)
            order = [*range(lead + 2)]
            a = self.tensor("u8", [*items, case["m"], case["k"]], order)
            c = self.tensor(c_type, [*items, case["m"], case["n"]], order)
            b = [*items, case["k"], case["n"]]
            b_order = [*range(lead), lead + 1, lead] if case["b_by_columns"] else order
            columns = 1 << lead + 1
            name, operation, geometry = "matmul_primitive_desc_create", [], []
        plain = self.tensor("s8", b, b_order)
        attributes, memories = self.new("primitive_attr_create"), {}
        if c_type != "s32":
            self.call(
                "primitive_attr_set_scales_mask",
                attributes,
                self.WEIGHTS,
                columns if case["scales"] > 1 else 0,
            )
            scales = self.tensor("f32", [case["scales"]], [0])
            memories[self.SCALES | self.WEIGHTS] = self.memory(scales, memory.at("scales"))
        if c_type == "u8":
            relu = self.new("post_ops_create")
            self.call("post_ops_append_eltwise", relu, 32, ctypes.c_float(0), ctypes.c_float(0))
            self.call("primitive_attr_set_post_ops", attributes, relu)
        wanted = plain if case["is_batch"] else self.tensor("s8", b, None)
        description = self.new(name, self.engine, *operation, a, wanted, None, c, *geometry, attributes)
        chosen = ctypes.c_void_p(
            self.function("primitive_desc_query_md", ctypes.c_void_p)(description, 131, 0)
        )
        name = ctypes.c_char_p()
        self.call("primitive_desc_query", description, 8, 0, ctypes.byref(name))
        implementation = name.value.decode()
        weights = self.memory(plain, memory.at("b"))
        if not case["is_batch"] and self.function("memory_desc_equal")(plain, chosen):
            implementation += ", weights not packed"
        elif not case["is_batch"]:
            packed = self.memory(chosen, -1)  # of oneDNN's own
            reorder = self.new("reorder_primitive_desc_create", plain, self.engine, chosen, self.engine, None)
            self.runner(reorder, {self.SRC: weights, self.DST: packed})()
            weights = packed
        memories |= {
            self.SRC: self.memory(a, memory.at("a")),
            self.WEIGHTS: weights,
            self.DST: self.memory(c, memory.at("c")),
        }
        run = self.runner(description, memories)
        return lambda: run, implementation


class OnnxRuntime:
    """GEMMs: MatMulInteger to s32, QLinearMatMul to u8, MatMulIntegerToFloat to f32. Weights in blocks: MatMulNBits."""

    def __init__(self, _):
        import numpy
        import onnx
        import onnxruntime

        self.numpy, self.onnx, self.onnxruntime = numpy, onnx, onnxruntime
        self.version = onnxruntime.__version__

    def bound(self, graph, memory, a_shape, a_type, c_shape, c_type):
        session = self.session(graph)
        binding = session.io_binding()
        binding.bind_input("a", "cpu", 0, a_type, a_shape, memory.at("a"))
        binding.bind_output("c", "cpu", 0, c_type, c_shape, memory.at("c"))
        return lambda: lambda: session.run_with_iobinding(binding)

    def session(self, graph):
        helper, options = self.onnx.helper, self.onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=8)
        return self.onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def make(self, case, memory):
        if case["blocks"]:
            return self.make_blocks(case, memory)
        numpy, helper = self.numpy, self.onnx.helper
        m, n, k = case["m"], case["n"], case["k"]
        c_type = numpy.dtype({"s32": "int32", "u8": "uint8", "f32": "float32"}[case["c_type"]])
        b = numpy.frombuffer(memory.data, numpy.int8, k * n, memory.offsets["b"]).reshape(k, n)
        scales = numpy.frombuffer(memory.data, numpy.float32, case["scales"], memory.offsets["scales"])
        one, zero, points = numpy.float32(1), numpy.uint8(0), numpy.zeros(scales.shape, numpy.int8)
        operator, constants = {
            "s32": ("MatMulInteger", [b]),
            "u8": ("QLinearMatMul", [one, zero, b, scales, points, one, zero]),
            "f32": ("MatMulIntegerToFloat", [b, one, scales]),
        }[case["c_type"]]
        names = [f"constant{i}" for i in range(len(constants))]
        tensors = [
            self.onnx.numpy_helper.from_array(numpy.array(value), name)
            for value, name in zip(constants, names)
        ]
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            [
                helper.make_node(
                    operator, ["a", *names], ["c"], domain="com.microsoft" if case["c_type"] == "f32" else ""
                )
            ],
            "product",
            [value("a", self.onnx.TensorProto.UINT8, [m, k])],
            [value("c", helper.np_dtype_to_tensor_dtype(c_type), [m, n])],
            tensors,
        )
        return self.bound(graph, memory, [m, k], numpy.uint8, [m, n], c_type.type), operator

    def make_blocks(self, case, memory):
        """MatMulNBits, which quantizes A in each run (accuracy level 4)."""
        numpy, helper = self.numpy, self.onnx.helper
        m, n, k = case["m"], case["n"], case["k"]
        bits, group = case["blocks"]["bits"], case["blocks"]["depth"]
        groups = k // group
        b = numpy.frombuffer(memory.data, numpy.uint8, n * k * bits // 8, memory.offsets["b"]).reshape(
            n, groups, -1
        )
        scales = numpy.frombuffer(memory.data, numpy.float16, n * groups, memory.offsets["scales"])
        constants = {"b": b if bits == 4 else b ^ 128, "s": scales.astype(numpy.float32)}
        node = helper.make_node(
            "MatMulNBits",
            ["a", *constants],
            ["c"],
            domain="com.microsoft",
            K=k,
            N=n,
            bits=bits,
            block_size=group,
            accuracy_level=4,
        )
        value, f32 = helper.make_tensor_value_info, self.onnx.TensorProto.FLOAT
        tensors = [
            self.onnx.numpy_helper.from_array(numpy.array(array), name) for name, array in constants.items()
        ]
        graph = helper.make_graph(
            [node], "product", [value("a", f32, [m, k])], [value("c", f32, [m, n])], tensors
        )
        return self.bound(graph, memory, [m, k], numpy.float32, [m, n], numpy.float32), "MatMulNBits"


class Fbgemm:
    """GEMMs to u8: PyTorch's quantized.linear_relu, whose engine is FBGEMM."""

    def __init__(self, _):
        import torch

        self.torch = torch
        torch.backends.quantized.engine = "fbgemm"
        torch.set_num_threads(1)
        self.version = torch.__version__

    def make(self, case, memory):
        torch = self.torch
        m, n, k = case["m"], case["n"], case["k"]
        b = torch.frombuffer(memory.data, dtype=torch.int8, count=k * n, offset=memory.offsets["b"]).reshape(
            k, n
        )
        scales = torch.frombuffer(
            memory.data, dtype=torch.float32, count=case["scales"], offset=memory.offsets["scales"]
        )
        a = torch.frombuffer(memory.data, dtype=torch.uint8, count=m * k, offset=memory.offsets["a"]).reshape(
            m, k
        )
        weights = torch._make_per_channel_quantized_tensor(
            b.T.contiguous(), scales.double().expand(n), torch.zeros(n, dtype=torch.int64), 0
        )
        packed = torch.ops.quantized.linear_prepack(weights, None)
        operator = torch.ops.quantized.linear_relu.default

        def prepare():
            x = torch._make_per_tensor_quantized_tensor(a, 1.0, 0)

            def run():
                return operator(x, packed, 1.0, 0)

            return run

        return prepare, "quantized.linear_relu"


class Ggml:
    """Weights in blocks: ggml's matrix product, with the library that `folder` has for the CPU of an ISA."""

    CPUS = {
        "portable": "x64",
        "avx2": "haswell",
        "avx_vnni": "alderlake",
        "avx_vnni_int8": "alderlake",
        "avx512": "skylakex",
        "avx512_vnni": "icelake",
        "avx10_2": "sapphirerapids",
        "amx_int8": "sapphirerapids",
    }

    def __init__(self, folder):
        import numpy

        self.numpy, self.target = numpy, types.ModuleType("ggml_target")
        exec(sys.argv[3], self.target.__dict__)
        self.cpu = self.CPUS[os.environ.get("HELD_TO", "avx2")]
        os.environ["GGML_CPU"] = os.path.join(os.path.abspath(folder), f"libggml-cpu-{self.cpu}.so")
        self.version = self.target.Q8("CPU").version().decode()

    def make(self, case, memory):
        numpy, target = self.numpy, self.target
        m, n, k, bits = case["m"], case["n"], case["k"], case["blocks"]["bits"]
        b = numpy.frombuffer(memory.data, numpy.uint8, n * k * bits // 8, memory.offsets["b"])
        scales = numpy.frombuffer(memory.data, numpy.float16, n * k // 32, memory.offsets["scales"]).reshape(
            n, -1
        )
        ggml = target.Q8(case["kernels"])
        matrix = target.Matrix(ggml, *target.weight_blocks("u4" if bits == 4 else "s8", b, scales))

        def prepare():
            matrix.set(numpy.frombuffer(memory.data, numpy.float32, m * k, memory.offsets["a"]).reshape(m, k))

            def fetch():
                ggml.backend_tensor_get(matrix.product(m)[1], memory.at("c"), 0, 4 * m * n)

            def run():
                matrix.compute(m)
                return fetch

            return run

        return prepare, f"{self.cpu}, {case['kernels']}"


WARM_UPS = 2


def measure(contender, memory, times, new_a=False, with_c=False):
    """The mean time of a run in microseconds, once A is in the caches."""
    if new_a:
        memory.load("a")
    if with_c:
        memory.load("c")
    run = contender()
    for _ in range(WARM_UPS):
        run()
    start = time.perf_counter()
    for _ in range(times):
        c = run()
    microseconds = 1e6 * (time.perf_counter() - start) / times
    if with_c and callable(c):  # C is not in `memory` yet
        c()
    elif with_c and c is not None:  # a tensor of PyTorch
        c = c.int_repr()
        ctypes.memmove(memory.at("c"), c.data_ptr(), c.numel())
    if with_c:
        memory.store("c")
    return microseconds


def call_microseconds(peer):
    offsets = {"b": 0, "scales": 512, "a": 1024, "c": 2048}
    case = {
        "m": 1,
        "n": 1,
        "k": 1,
        "is_batch": False,
        "b_by_columns": False,
        "conv": None,
        "c_type": "u8",
        "scales": 1,
        "blocks": None,
        "offsets": offsets,
    }
    if isinstance(peer, Ggml):
        case |= {"k": 32, "blocks": {"bits": 8, "depth": 32}, "kernels": "CPU"}
    memory = Memory(bytes(4096), case)
    contender, _ = peer.make(case, memory)
    return min(measure(contender, memory, 200) for _ in range(10))


def main():
    warnings.simplefilter("ignore")
    kind, library = sys.argv[1:3]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for libraries that print

    def answer(work):
        try:
            text = work()
        except Exception as error:
            text = {"error": str(error).split("\n")[0] or type(error).__name__}
        answers.write("\n" + json.dumps(text) + "\n")  # a library may have begun a line
        answers.flush()
        return "error" not in text

    peer, contenders = None, []

    def start():
        nonlocal peer
        peer = {"onednn": OneDnn, "onnxruntime": OnnxRuntime, "fbgemm": Fbgemm, "ggml": Ggml}[kind](library)
        if kind in ("onnxruntime", "fbgemm") and "HELD_TO" in os.environ:
            with open("/proc/self/maps") as maps:
                if not any(line.rstrip().endswith("/held_to.so") for line in maps):
                    raise RuntimeError(
                        f"uses all of this CPU's instructions; expected a Python held to {os.environ['HELD_TO']} "
                        "by held_to.so"
                    )
        return {"version": peer.version, "call_microseconds": call_microseconds(peer)}

    def make(request):
        with open(request["memory"], "r+b") as file:
            memory = Memory(mmap.mmap(file.fileno(), 0), request["make"])
        contender, implementation = peer.make(request["make"], memory)
        contenders.append((contender, memory))
        return {"contender": len(contenders) - 1, "implementation": implementation}

    if not answer(start):
        sys.exit(1)
    for line in sys.stdin:
        request = json.loads(line)
        if "make" in request:
            answer(lambda: make(request))
        else:
            contender = contenders[request.pop("contender")]
            answer(lambda: {"microseconds": measure(*contender, **request)})


main()
