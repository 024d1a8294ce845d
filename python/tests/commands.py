"""Runs the commands of intact that are Python."""

import contextlib
import errno
import io
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from intact import _program


def process(*arguments):
    """A command in a process of its own."""
    code = "import sys; sys.argv[0] = 'intact'; from intact._program import main; main()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    try:
        return subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        pytest.skip("in qemu-user, this Python cannot start itself")


def program(*arguments):
    """A command in this process, which is many times faster."""
    arguments = [*map(str, arguments)]
    assert arguments[0] in _program._COMMANDS  # the program in C++ would take the place of this process
    out, errors = io.StringIO(), io.StringIO()
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors)
    with mock.patch.object(sys, "argv", ["intact", *arguments]), streams[0], streams[1], np.errstate():
        try:
            _program.main()
        except SystemExit as end:
            return subprocess.CompletedProcess(arguments, end.code, out.getvalue(), errors.getvalue())
