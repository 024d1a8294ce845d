"""The execution provider against exact arithmetic and against ONNX Runtime's own CPU provider: every byte."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", minversion="1.23", reason="needs onnxruntime 1.23")
onnx = pytest.importorskip("onnx", reason="needs onnx")

import intact
import intact.onnxruntime
import layers

if not Path(intact.__file__).with_name("libintact_onnxruntime_ep.so").exists():
    pytest.skip("needs a build with INTACT_BUILD_ONNXRUNTIME=ON", allow_module_level=True)

# ONNX Runtime's own kernels clamp sums to int16 on other CPUs.
CPU_IS_EXACT = {"avx_vnni", "avx512_vnni"} & set(intact.isas())


def session_of(model: bytes, threads: int = 1, **arguments) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    intact.onnxruntime.add(options, **arguments)
    return onnxruntime.InferenceSession(model, options)


def cpu_session_of(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def assert_taken(session: onnxruntime.InferenceSession) -> None:
    assert [node for node in intact.onnxruntime.report(session) if not node["taken"]] == []


def assert_same(computed: np.ndarray, expected: np.ndarray, of: str) -> None:
    assert (computed.dtype, computed.shape) == (expected.dtype, expected.shape), of
    different = computed.view(np.uint8) != np.ascontiguousarray(expected).view(np.uint8)
    assert not different.any(), f"{of}: {np.count_nonzero(different)} of {different.size} bytes differ"


@pytest.mark.parametrize("operator", layers.OPERATORS, ids=lambda operator: operator.__name__)
@pytest.mark.parametrize("seed", range(25))
def test_operators_are_exact(operator, seed):
    layer = operator(seed)
    sessions = {isa: session_of(layer.model, max_isa=isa) for isa in (None, "avx2", "avx512")}
    sessions["threads"] = session_of(layer.model, threads=4)
    cpu = cpu_session_of(layer.model) if layer.on_cpu and CPU_IS_EXACT else None
    for session in sessions.values():
        assert_taken(session)
    for _ in range(3):
        given = layer.inputs()
        expected = layer.exact(given)
        for name, session in sessions.items():
            assert_same(session.run(None, given)[0], expected, name)
        if cpu:
            assert_same(cpu.run(None, given)[0], expected, "ONNX Runtime's CPU provider")
