"""Processes that are held to an older CPU (examples/targets/held_to.c, which the package has as a
library)."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

from .._library import PACKAGE

LIBRARY = PACKAGE / "held_to.so"


def environment(level: str) -> dict[str, str]:
    """The variables that hold a process to a level of held_to.c. The process ends with status 2 if this CPU
    cannot be held."""
    return {"HELD_TO": level, "LD_PRELOAD": str(LIBRARY)}


def has_avx512() -> bool:
    """Whether this CPU has the AVX-512 that ONNX Runtime's float kernels use."""
    try:
        return " avx512f " in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


@functools.cache
def can_be_held(level: str) -> bool:
    """Whether this CPU can be held to a level: it has its features, and CPUID faulting."""
    return (
        LIBRARY.is_file()
        and subprocess.run(
            [sys.executable, "-c", ""],
            env={**os.environ, **environment(level)},
            check=False,
            capture_output=True,
        ).returncode
        == 0
    )
