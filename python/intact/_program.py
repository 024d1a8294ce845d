"""The console script `intact`: the native program of this package."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    program = str(Path(__file__).with_name("intact"))
    os.execv(program, ["intact", *sys.argv[1:]])
