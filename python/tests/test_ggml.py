"""What ggml computes with weights in groups (docs/peers_methods.md). Needs GGML_CPU, the path of a libggml-cpu-….so."""

import os
import sys
from pathlib import Path

import intact
import numpy as np
import pytest
from intact._plans.ggml_types import FORMATS

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "targets"))
pytestmark = pytest.mark.skipif(
    "GGML_CPU" not in os.environ, reason="needs GGML_CPU, path of a libggml-cpu-….so: docs/peers_methods.md"
)


@pytest.fixture(autouse=True)
def needs_the_cpu():
    import ggml_target

    try:
        ggml_target.Q8("CPU")
    except NotImplementedError as error:
        pytest.skip(str(error))


EXPECTED = ("CPU", 4), ("CPU", 8), ("CPU_REPACK", 4)  # kernels that every library has


def engine(kind, bits, k, n):
    import ggml_target

    rng = np.random.default_rng(k)
    b, scales = (
        rng.integers(0, 256, (n, k * bits // 8), dtype=np.uint8),
        rng.uniform(0.001, 1, (n, k // 32)).astype(np.float16),
    )
    weights = intact.GroupedWeights(b, scales, k, 32, f"u{bits}")
    try:
        matrix = ggml_target.Matrix(ggml_target.Q8(kind), *ggml_target.weight_blocks(f"u{bits}", b, scales))
    except (NotImplementedError, ValueError):
        if (kind, bits) in EXPECTED:
            raise
        pytest.skip(f"this library has no buffer {kind} for these weights")
    a = rng.standard_normal((9, k)).astype(np.float32)
    a[3], a[4], a[5] = 0, a[4] * 1e-6, a[5] * 1e4
    return weights, *intact.quantize_like_ggml(a), {m: matrix(a[:m]) for m in (1, 9)}


@pytest.mark.parametrize("kind", ["CPU_REPACK", "AMX"])
@pytest.mark.parametrize("bits,k,n", [(4, 32, 64), (4, 1024, 64), (4, 4096, 32), (8, 1024, 64)])
def test_rearranged_weights_give_the_bytes_of_intact(kind, bits, k, n):
    weights, q, a_scales, outputs = engine(kind, bits, k, n)
    for isa in intact.isas():
        plan = intact.Grouped(weights, granularity="groups", a_source_type=None, max_isa=isa)
        for m, c in outputs.items():
            assert np.array_equal(c, plan.run(q[:m], a_scales=a_scales[:m]))


# ggml's number, and the depths of a block.
KINDS = {
    **{"q4_0": (2, 32), "q4_1": (3, 32), "q5_0": (6, 32), "q5_1": (7, 32), "q8_0": (8, 32)},
    **{"q4_k": (12, 256), "q5_k": (13, 256), "q6_k": (14, 256)},
}


def random_blocks(kind, n, k):
    """Rows of blocks with finite scales."""
    rng = np.random.default_rng(k)
    size, blocks = FORMATS[kind].size, k // KINDS[kind][1]
    rows = rng.integers(0, 256, (n, blocks, size), dtype=np.uint8)
    for at in {"q6_k": (208,)}.get(kind, (0, 2) if kind[3:] in ("1", "k") else (0,)):
        scales = rng.uniform(0.001, 0.02, (n, blocks, 1)) * rng.choice([-1, 1], (n, blocks, 1))
        rows[..., at : at + 2] = scales.astype(np.float16).view(np.uint8)
    return rows.reshape(n, -1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n,k", [(7, 256), (24, 1024), (33, 2560)])
def test_plain_weights_have_the_bytes_of_like_ggml(kind, n, k):
    import ggml_target

    rows = random_blocks(kind, n, k)
    a = np.random.default_rng(n).standard_normal((19, k)).astype(np.float32)
    a[3], a[4], a[5] = 0, a[4] * 1e-6, a[5] * 1e4
    with ggml_target.Matrix(ggml_target.Q8("CPU"), KINDS[kind][0], rows) as matrix:
        for m in (1, 2, 7, 8, 9, 19):
            found = intact.like_ggml(rows, kind, a[:m])
            assert np.array_equal(matrix(a[:m]).view(np.uint32), found.view(np.uint32)), m
