"""conftest.py: skips are counted by reason, and INTACT_REQUIRE makes them failures. tools/test_summary.py shows the counts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.mark.parametrize("i", range(3))
@pytest.mark.skipif(True, reason="needs qemu-user")
def test_emulated(i): pass

def test_gguf(): pytest.importorskip("gguf_that_is_not_there")

@pytest.mark.xfail
def test_expected(): assert False

def test_passes(): pass
"""

if not (TREE / "conftest.py").exists():
    pytest.skip("the tree's other folders are not here", allow_module_level=True)


def run(folder, require=""):
    shutil.copy(TREE / "conftest.py", folder)
    (folder / "test_a.py").write_text(TESTS)
    (folder / "test_b.py").write_text(
        'import pytest\npytest.skip("this build has no channel_order.so", allow_module_level=True)\n'
    )
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "INTACT_REQUIRE": require},
    )


def test_skips_are_counted_by_reason(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    begin = lines.index("skipped tests and files of pytest: 5")
    assert (
        lines[begin + 1] == "      3  needs qemu-user"
        and "      1  this build has no channel_order.so" in lines[begin + 2 : begin + 4]
    )
    assert any("gguf_that_is_not_there" in line for line in lines[begin + 2 : begin + 4])
    results = tmp_path / "preset" / "tests.xml"
    results.parent.mkdir()
    results.write_text(
        f'<testsuite><testcase name="python.package" status="run" time="1"><system-out>{done.stdout}</system-out></testcase>'
        "</testsuite>"
    )
    shown = subprocess.run(
        [sys.executable, str(TREE / "tools/test_summary.py"), str(results)], capture_output=True, text=True
    )
    assert "skipped within python.package: 5\n      3  needs qemu-user\n" in shown.stdout
    assert shown.stdout.endswith("preset: 1 passed, 0 failed, 0 skipped, 5 skipped within tests of Python\n")


def test_what_is_required_fails(tmp_path):
    done = run(tmp_path, "lemon")
    assert done.returncode, done.stdout
    assert "this build has no channel_order.so: lemon is required by INTACT_REQUIRE" in done.stdout
    done = run(tmp_path, "qemu")
    assert (
        "needs qemu-user: qemu is required by INTACT_REQUIRE" in done.stdout
        and "1 xfailed, 3 errors" in done.stdout
    )
    assert "skipped tests and files of pytest: 2" in done.stdout


def test_an_unknown_requirement_is_refused(tmp_path):
    done = run(tmp_path, "lemons")
    assert (
        done.returncode == 4
        and "INTACT_REQUIRE: 'lemons' is not known; expected some of avx512, cpuid"
        in done.stderr + done.stdout
    )
