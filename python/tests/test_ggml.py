"""What ggml computes with weights in groups (docs/peers.md). Needs GGML_CPU, the path of a libggml-cpu-….so."""

import os
import sys
from pathlib import Path

import intact
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "targets"))
pytestmark = pytest.mark.skipif(
    "GGML_CPU" not in os.environ, reason="needs GGML_CPU, the path of a libggml-cpu-….so: docs/peers.md"
)

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
    q, a_scales = ggml_target.quantize(a)
    return weights, q, a_scales, {m: matrix(a[:m]) for m in (1, 9)}


@pytest.mark.parametrize("kind", ["CPU_REPACK", "AMX"])
@pytest.mark.parametrize("bits,k,n", [(4, 32, 64), (4, 1024, 64), (4, 4096, 32), (8, 1024, 64)])
def test_rearranged_weights_give_the_bytes_of_intact(kind, bits, k, n):
    weights, q, a_scales, outputs = engine(kind, bits, k, n)
    for isa in intact.isas():
        plan = intact.Grouped(weights, granularity="groups", a_source_type=None, max_isa=isa)
        for m, c in outputs.items():
            assert np.array_equal(c, plan.run(q[:m], a_scales=a_scales[:m]))


@pytest.mark.parametrize("bits,k,n", [(4, 32, 8), (4, 2080, 40), (8, 1024, 64)])
def test_plain_weights_add_eight_sums(bits, k, n):
    weights, q, a_scales, outputs = engine("CPU", bits, k, n)
    b = weights.integers().reshape(n, -1, 8, 4).astype(np.int64)
    sums = np.einsum("mglk,nglk->mngl", q.reshape(9, -1, 8, 4).astype(np.int64), b).astype(np.float64)
    scales = (a_scales[:, None] * weights.scales.astype(np.float32)).astype(np.float64)
    f = np.zeros((9, n, 8), np.float32)
    for g in range(scales.shape[2]):
        f = (sums[:, :, g] * scales[:, :, g, None] + f).astype(np.float32)
    f = f[..., :4] + f[..., 4:]
    f = f[..., :2] + f[..., 2:]
    for m, c in outputs.items():
        assert np.array_equal(c, (f[..., 0] + f[..., 1])[:m])
