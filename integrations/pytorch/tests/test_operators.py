"""PyTorch's operators on intact, against int64 arithmetic and against PyTorch's own errors.

`check` functions take the product that they judge, so that planted faults can show that they find what they look for."""

from __future__ import annotations

import collections
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.10", reason="needs torch 2.10")

import intact
import intact.torch

if not Path(intact.__file__).with_name("libintact_pytorch.so").exists():
    pytest.skip("needs a build with INTACT_BUILD_PYTORCH=ON", allow_module_level=True)

Product = Callable[..., torch.Tensor]
TYPES = (torch.int8, torch.uint8)


def random(rows: int, columns: int, dtype: torch.dtype = torch.int8, seed: int = 0) -> torch.Tensor:
    """Mostly random bytes; many are the smallest or the largest, whose products saturate first."""
    range_ = torch.iinfo(dtype)
    generator = np.random.default_rng([seed, rows, columns])
    values = generator.integers(range_.min, range_.max, (rows, columns), endpoint=True)
    extreme = generator.choice([range_.min, range_.max], values.shape)
    return torch.from_numpy(np.where(generator.random(values.shape) < 0.3, extreme, values)).to(dtype)


def expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The sums modulo 2^32. PyTorch has no int64 product that is fast; each float64 sum is exact below 2^53."""
    return (a.double() @ b.double()).long().to(torch.int32)


def check(a: torch.Tensor, b: torch.Tensor, product: Product) -> None:
    given = product(a, b)
    assert given.dtype == torch.int32 and given.is_contiguous()
    assert torch.equal(given, expected(a, b)), (
        f"{tuple(a.shape)}×{tuple(b.shape)}, strides {a.stride()} {b.stride()}"
    )
    out = torch.full(given.shape, 77, dtype=torch.int32)
    assert product(a, b, out=out) is out
    assert torch.equal(out, given)


SHAPES = [
    (1, 1, 1),
    (1, 16, 64),
    (1, 100, 33),
    (2, 5, 3),
    (3, 17, 130),
    (4, 64, 4),
    (5, 1, 9),
    (7, 48, 65),
    (16, 33, 64),
    (17, 16, 1),
    (32, 96, 256),
    (33, 130, 77),
    (64, 8, 100),
    (129, 70, 50),
    (40, 520, 300),
]
EMPTY = [(0, 4, 5), (4, 0, 5), (4, 5, 0), (0, 0, 0)]


def check_shapes(product: Product) -> None:
    for (m, n, k), dtype in itertools.product(SHAPES + EMPTY, TYPES):
        for transposed in (False, True):
            check(random(m, k, dtype), random(n, k).t() if transposed else random(k, n), product)


def laid_out(values: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same values with other strides and offsets."""
    rows, columns = values.shape
    wide = torch.full((rows + 3, columns + 5), 99, dtype=values.dtype)
    wide[2:-1, 3:-2] = values
    steps = torch.full((2 * rows, 3 * columns), 99, dtype=values.dtype)
    steps[::2, ::3] = values
    tall = torch.full((columns, rows + 7), 99, dtype=values.dtype)
    tall[:, 4:-3] = values.t()
    return {
        "rows": values.contiguous(),
        "columns": values.t().contiguous().t(),
        "slice": wide[2:-1, 3:-2],
        "steps": steps[::2, ::3],
        "slice of columns": tall[:, 4:-3].t(),
        "row steps": steps[::2, :][:, ::3],
    }


def check_layouts(product: Product) -> None:
    for (m, n, k), dtype in itertools.product([(1, 20, 40), (9, 37, 70), (40, 1, 33), (6, 50, 1)], TYPES):
        a, b = random(m, k, dtype), random(k, n)
        for a_laid_out, b_laid_out in itertools.product(laid_out(a).values(), laid_out(b).values()):
            check(a_laid_out, b_laid_out, product)
    # Elements that share memory.
    check(random(1, 30).expand(5, 30), random(30, 1).expand(30, 9), product)
    check(random(5, 1).expand(5, 30), random(1, 9).expand(30, 9), product)
    window = random(1, 60)[0].as_strided((8, 12), (3, 2))
    check(window, window.t(), product)


def check_changes(product: Product) -> None:
    """Weights that change between calls: in place, through another view, in memory that a freed tensor had."""
    a, weights = random(6, 256), random(128, 256)
    check(a, weights.t(), product)
    weights[5, 7] ^= 1
    check(a, weights.t(), product)
    weights.data[0].neg_()  # leaves the version counter as it is
    check(a, weights.t(), product)
    weights.numpy()[100:, 3] = -128  # PyTorch does not see this
    check(a, weights.t(), product)
    with torch.inference_mode():
        weights.random_(-128, 128)
    check(a, weights.t(), product)
    for seed in range(20):  # the allocator gives the same address again
        check(a, random(128, 256, seed=seed).t(), product)


def check_threads(product: Product) -> None:
    before = torch.get_num_threads()
    a, b = random(70, 400), random(300, 400).t()
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            check(a, b, product)
            check(a[:1], b, product)
    finally:
        torch.set_num_threads(before)
    # Threads of the program, with shapes of their own and with one that they share.
    failures: list[Exception] = []

    def run(number: int) -> None:
        try:
            for turn in range(10):
                check(random(3 + number, 64, seed=turn), random(64, 40 + turn % 3, seed=turn), product)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def check_sums_that_wrap(product: Product) -> None:
    k = (1 << 31) // (128 * 128) + 4  # beyond int32
    check(torch.full((2, k), -128, dtype=torch.int8), torch.full((k, 3), -128, dtype=torch.int8), product)


CHECKS = [check_shapes, check_layouts, check_changes, check_threads, check_sums_that_wrap]


@pytest.fixture
def enabled():
    with intact.torch.enable():
        yield
    assert not intact.torch.is_enabled()


@pytest.mark.parametrize("judge", CHECKS)
def test_exact(enabled, judge):
    judge(torch._int_mm)


def test_own_operator():
    for shape in SHAPES:
        m, n, k = shape
        a, b = random(m, k), random(k, n)
        assert torch.equal(torch.ops.intact.int_mm(a, b), expected(a, b))


def test_many_shapes(enabled):
    """More shapes than plans are kept."""
    for turn in range(2):
        for n in range(1, 200):
            check(random(2, 12), random(12, n), torch._int_mm)


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    path = os.pathsep.join([str(Path(intact.__file__).parents[1]), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def without_vnni(tmp_path_factory) -> "dict[str, str]":
    """The environment of a process that runs as on a CPU without VNNI."""
    if "cpuid_fault" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has no CPUID faulting")
    library = tmp_path_factory.mktemp("held") / "held_to.so"
    source = Path(__file__).parents[3] / "examples/targets/held_to.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-Wl,-z,initfirst", "-o", library, source], check=True)
    return {"HELD_TO": "avx2", "LD_PRELOAD": str(library)}


# Planted faults: each check must find the fault that it is for.


def into(product: Product) -> Product:
    """`product` with an argument `out`."""

    def with_out(a, b, *, out=None):
        sums = product(a, b)
        return sums if out is None else out.copy_(sums)

    return with_out


def clamped_pairs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What VPMADDUBSW computes: two products are added in int16, with a clamp."""
    shift = 128 if a.dtype == torch.int8 else 0
    u8 = torch.nn.functional.pad(a.int() + shift, (0, a.shape[1] % 2))
    s8 = torch.nn.functional.pad(b.int(), (0, 0, 0, b.shape[0] % 2))
    products = u8[:, :, None] * s8[None]
    pairs = (products[:, ::2] + products[:, 1::2]).clamp(-32768, 32767)
    return (pairs.sum(1) - shift * b.long().sum(0)).to(torch.int32)


def remembers(key: Callable) -> Product:
    """Keeps weights under `key`, as a cache of packed weights would."""
    kept: dict = {}
    return lambda a, b: expected(a, kept.setdefault(key(b), b.clone()))


def ignores_strides(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return expected(
        a,
        b.as_strided(b.shape, (b.shape[1], 1), b.storage_offset())
        if b.is_contiguous() or b.t().is_contiguous()
        else b,
    )


def shares_a_buffer(a: torch.Tensor, b: torch.Tensor, buffer: list = []) -> torch.Tensor:
    buffer[:] = [a]
    threading.Event().wait(0.001)  # another thread may set the buffer meanwhile
    return expected(buffer[0] if buffer[0].shape == a.shape else torch.zeros_like(a), b)


def forgets_a_part(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    sums = expected(a, b)
    if torch.get_num_threads() > 2:
        sums[-1] = 0
    return sums


def clamped_sums(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.double() @ b.double()).clamp(-(2**31), 2**31 - 1).to(torch.int32)


PLANTED = [
    (check_shapes, clamped_pairs),
    (check_layouts, ignores_strides),
    (check_changes, remembers(lambda b: (b.data_ptr(), b.stride()))),
    (check_changes, remembers(lambda b: (b.data_ptr(), b.stride(), b._version))),
    (check_threads, shares_a_buffer),
    (check_threads, forgets_a_part),
    (check_sums_that_wrap, clamped_sums),
]


@pytest.mark.parametrize("judge,fault", PLANTED)
def test_planted_fault_is_found(judge, fault):
    judge(into(expected))
    with pytest.raises(AssertionError):
        judge(into(fault))


# Errors.


def wrong_calls() -> dict[str, Callable]:
    a, b, out = random(4, 8), random(8, 6), torch.empty(4, 6, dtype=torch.int32)
    calls = {
        f"self {dtype}": (lambda dtype=dtype: torch._int_mm(a.to(dtype), b))
        for dtype in (
            torch.int16,
            torch.int32,
            torch.int64,
            torch.uint16,
            torch.uint32,
            torch.uint64,
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.float64,
            torch.complex64,
            torch.complex128,
            torch.bool,
        )
    }
    calls |= {
        f"mat2 {dtype}": (lambda dtype=dtype: torch._int_mm(a, b.to(dtype)))
        for dtype in (torch.uint8, torch.int16, torch.int32, torch.float32, torch.bool)
    }
    calls |= {
        f"out {dtype}": (lambda dtype=dtype: torch._int_mm(a, b, out=out.to(dtype)))
        for dtype in (torch.int8, torch.int64, torch.float32)
    }
    tensors = {
        "a": a,
        "b": b,
        "a[0]": a[0],
        "b[0]": b[0],
        "3d": a[None],
        "0d": a[0, 0],
        "b[:4]": b[:4],
        "float": a.float(),
    }
    outs = {
        "none": None,
        "ok": out,
        "flat": out.view(-1),
        "t": out.t(),
        "rows": out[:2],
        "columns": out[:, :3],
        "0": out[:0],
        "0d": out[0, 0],
        "not contiguous": torch.empty(6, 4, dtype=torch.int32).t(),
        "long": out.long(),
        "3d": out[None],
    }
    for (x_name, x), (y_name, y), (out_name, z) in itertools.product(
        tensors.items(), tensors.items(), outs.items()
    ):
        call = (
            (lambda x=x, y=y: torch._int_mm(x, y))
            if z is None
            else (lambda x=x, y=y, z=z: torch._int_mm(x, y, out=z))
        )
        calls[f"{x_name}, {y_name}, out {out_name}"] = call
    calls["sparse"] = lambda: torch._int_mm(a.to_sparse(), b)
    calls["requires_grad"] = lambda: torch._int_mm(a.float().requires_grad_(), b)
    return calls


def outcome(call: Callable) -> tuple:
    try:
        return ("returns", tuple(call().shape))
    except Exception as error:
        return (type(error).__name__, str(error).split("\n")[0])


def test_errors_are_pytorchs():
    own = {name: outcome(call) for name, call in wrong_calls().items()}
    with intact.torch.enable():
        given = {name: outcome(call) for name, call in wrong_calls().items()}
    kinds = collections.Counter(kind for kind, _ in own.values())
    # A kernel of the stable ABI cannot throw an IndexError. torch 2.10 does not take u8 yet.
    assert given == {
        name: (
            kind.replace("IndexError", "RuntimeError"),
            text.replace("to be of type int8 but", "to be int8 or uint8 but")
            if "Expected self" in text
            else text,
        )
        for name, (kind, text) in own.items()
    }
    assert kinds["RuntimeError"] > 100 and kinds["IndexError"] > 10 and kinds["returns"] >= 2


def test_other_devices_and_gradients(enabled):
    a, b = random(4, 8), random(8, 6)
    meta = torch._int_mm(a.to("meta"), b.to("meta"))
    assert meta.is_meta and meta.shape == (4, 6) and meta.dtype == torch.int32
    assert not torch._int_mm(a, b).requires_grad
    with torch.inference_mode():
        assert torch.equal(torch._int_mm(a, b), expected(a, b))
    assert torch.equal(torch.vmap(lambda x: torch._int_mm(x, b))(a[None]), expected(a, b)[None])


# On and off.


def kernel() -> str:
    """Where the kernel was registered that the dispatcher calls."""
    return next(
        line for line in torch._C._dispatch_dump("aten::_int_mm").splitlines() if line.startswith("CPU:")
    )


def test_enable_and_disable():
    own = kernel()
    assert "operators.cc" not in own
    assert not intact.torch.is_enabled()
    intact.torch.enable()
    try:
        assert intact.torch.is_enabled() and "operators.cc" in kernel()
        with intact.torch.enable():
            assert "operators.cc" in kernel()
        assert intact.torch.is_enabled() and "operators.cc" in kernel()
    finally:
        intact.torch.disable()
    assert kernel() == own
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            with intact.torch.enable():
                1 / 0
        assert kernel() == own and not intact.torch.is_enabled()
    intact.torch.disable()
    assert kernel() == own


def test_import_changes_nothing():
    done = python(
        """
import torch
before = torch._C._dispatch_dump("aten::_int_mm") + torch._C._dispatch_dump("aten::_int_mm.out")
import intact.torch
intact.torch.library()
assert before == torch._C._dispatch_dump("aten::_int_mm") + torch._C._dispatch_dump("aten::_int_mm.out")
a = torch.ones(4, 8, dtype=torch.int8)
torch._int_mm(a, a.t())
""",
        INTACT_VERBOSE="1",
    )
    assert "intact: run" not in done.stderr


@pytest.mark.parametrize("function", [intact.torch.embed, intact.torch.package])
def test_other_things_are_refused(function):
    with pytest.raises(intact.Error, match="program: is a Linear; expected a torch.export.ExportedProgram"):
        function(torch.nn.Linear(1, 1))


# Compiled and exported. Standard error shows which calls reach intact.

MODES = """
import sys, torch, intact.torch, test_operators

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", test_operators.random(64, 96))
        self.register_buffer("scale", torch.rand(64))
    def forward(self, x):
        return torch._int_mm(x, self.weight.t()).float() * self.scale

layer, x = Layer().eval(), test_operators.random(5, 96)
def expected(x): return test_operators.expected(x, layer.weight.t()).float() * layer.scale
def check(name, run):
    for rows in (5, 5, 9) if "dynamic" in name else (5, 5):
        x = test_operators.random(rows, 96, seed=rows)
        run(x)  # compiles
        print("begin", name, file=sys.stderr, flush=True)
        assert torch.equal(run(x), expected(x)), name
        layer.weight[3, 3] ^= 1
        assert torch.equal(run(x), expected(x)), name
        print("end", file=sys.stderr, flush=True)
        layer.weight[3, 3] ^= 1

with torch.no_grad():
    before = torch.compile(layer)
    before(x)
    program = torch.export.export(layer, (x,))
    embedded = intact.torch.embed(program)
    with intact.torch.enable():
        check("eager", layer)
        check("compile", torch.compile(layer, fullgraph=True))
        check("compile, dynamic", torch.compile(layer, dynamic=True, fullgraph=True))
        check("compile, max-autotune", torch.compile(layer, mode="max-autotune", fullgraph=True))
        check("compiled before", before)
        check("export", program.module())
        check("script", torch.jit.trace(layer, (x,), check_trace=False))
    check("embedded", embedded.module())
    check("embedded, compile", torch.compile(embedded.module(), fullgraph=True))
    check("embedded, cpp_wrapper", torch.compile(embedded.module(), fullgraph=True, options={"cpp_wrapper": True}))
    check("disabled", torch.compile(layer, fullgraph=True))
"""


def test_compiled_and_exported():
    lines = python(MODES, INTACT_VERBOSE="1", TORCHINDUCTOR_COMPILE_THREADS="1").stderr.splitlines()
    calls: dict[str, int] = {}
    name = ""
    for line in lines:
        if line.startswith("begin "):
            name = line.removeprefix("begin ")
            calls.setdefault(name, 0)
        elif line == "end":
            name = ""
        elif line.startswith("intact: run") and name:
            calls[name] += 1
    assert calls.pop("disabled") == 0
    assert len(calls) == 10
    for name, count in calls.items():
        assert count >= 2, f"{name}: {calls}"
