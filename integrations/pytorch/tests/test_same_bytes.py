"""Which operators have the same bytes on every CPU: `intact operators --engine pytorch`."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.10", reason="needs torch 2.10")

import intact
from intact._engines import held_to as _held_to
from intact._operators import measure as _operators
from intact._operators import torch_cases as _torch_operator_cases

if not Path(intact.__file__).with_name("libintact_pytorch.so").exists():
    pytest.skip("needs a build with INTACT_BUILD_PYTORCH=ON", allow_module_level=True)

FLOATS, LAYERS = ["softmax", "exp", "add"], ["qlinear_pointwise", "qconv_pointwise", "_int_mm"]
pytestmark = pytest.mark.skipif(
    not (_held_to.has_avx512() and _held_to.can_be_held("avx2")), reason="needs AVX-512 and CPUID faulting"
)


def measured(*names: str) -> "dict[str, _operators.Operator]":
    table = _operators.measure(operators=list(names), count=6, engine="pytorch")
    assert not table.not_tried and not any(operator.refused for operator in table.operators), table
    return {operator.name: operator for operator in table.operators}


def test_layers_of_intact_depend_on_nothing():
    found = measured(*FLOATS, *LAYERS, *(f"intact {name}" for name in LAYERS))
    assert all(
        found[f"intact {name}"].is_same and found[f"intact {name}"].levels["avx2"].values > 1000
        for name in LAYERS
    )
    assert all(not found[f"intact {name}"].rows.changed for name in LAYERS if found[f"intact {name}"].rows)
    # The run can see a difference: float functions, and sums that clamp.
    assert {name for name in (*FLOATS, *LAYERS) if found[name].levels["avx2"].changed} == {
        "softmax",
        "exp",
        *LAYERS[:2],
    }


def test_variables_that_hold_pytorch_to_avx2(monkeypatch):
    """What docs/pytorch.md says that a user can do. Without them the functions differ, see above."""
    for name, value in {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    }.items():
        monkeypatch.setenv(name, value)
    found = measured(*FLOATS, "linear")
    assert not any(level.changed for operator in found.values() for level in operator.levels.values())


def test_problems_are_the_same_in_each_process():
    for name in ("softmax", "compiled linear", "intact qconv_pointwise"):
        first, second = (list(_torch_operator_cases.draw_cases(name, 9, seed=1)) for _ in range(2))
        assert len(first) == (2 if name.startswith("compiled") else 9)
        for a, b in zip(first, second):
            assert list(a.feeds) == list(b.feeds) and all(
                (a.feeds[key].tobytes() == b.feeds[key].tobytes()) for key in a.feeds
            )
