"""Skips of all Python tests: counted by reason at the end of a run, and failures where INTACT_REQUIRE says so.

INTACT_REQUIRE=qemu,lemon: words of REQUIREMENTS, with commas between. A test that is skipped for lack of one of these fails.
"""

from __future__ import annotations

import collections
import os
import re

import pytest

# What a run can require, and the reasons of skips for lack of it.
REQUIREMENTS = {
    "avx512": r"AVX-?512(?!-VNNI)",
    "cpuid": "CPUID faulting|cannot be held",
    "vnni": "VNNI|would clamp here|stock engine is exact",
    "gguf": "'gguf'",
    "lemon": "LEMON|channel_order",
    "ml_dtypes": "'ml_dtypes'",
    "networkx": "'networkx'",
    "onnx": r"could not import 'onnx['.]|needs onnx$",
    "onnxruntime": r"could not import 'onnxruntime['.]|needs onnxruntime",
    "openvino": "openvino",
    "program": "no program",
    "provider": "INTACT_BUILD_ONNXRUNTIME",
    "pytorch": "INTACT_BUILD_PYTORCH",
    "qemu": "qemu",
    "safetensors": "'safetensors",
    "torch": "could not import 'torch'|needs torch",
    "torchao": "torchao",
    "wheel": "no wheel",
}

_skips: "collections.Counter[str]" = collections.Counter()


def required() -> list[str]:
    """The words of INTACT_REQUIRE."""
    words = [word.strip() for word in os.environ.get("INTACT_REQUIRE", "").split(",") if word.strip()]
    for word in words:
        if word not in REQUIREMENTS:
            raise pytest.UsageError(
                f"INTACT_REQUIRE: '{word}' is not known; expected some of {', '.join(REQUIREMENTS)}"
            )
    return words


def pytest_configure(config: pytest.Config) -> None:
    required()


def _judged(report: "pytest.TestReport | pytest.CollectReport") -> None:
    """Counts a skip, or makes it a failure."""
    if not report.skipped or hasattr(report, "wasxfail") or not isinstance(report.longrepr, tuple):
        return
    reason = report.longrepr[2].removeprefix("Skipped: ")
    word = next((word for word in required() if re.search(REQUIREMENTS[word], reason)), "")
    if word:
        report.outcome, report.longrepr = (
            "failed",
            f"{report.longrepr[0]}:{report.longrepr[1]}: {reason}: {word} is required by INTACT_REQUIRE",
        )
    else:
        _skips[reason] += 1


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: object):
    _judged((yield).get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    _judged((yield).get_result())


def pytest_terminal_summary(terminalreporter) -> None:
    """tools/test_summary.py reads these lines."""
    if _skips:
        terminalreporter.write_line(f"skipped tests and files of pytest: {sum(_skips.values())}")
    for reason, count in _skips.most_common():
        terminalreporter.write_line(f"  {count:5}  {reason}")
