"""The libraries of an installed wheel need no newer C library than its name says, and no C++ library."""

import importlib.metadata
import pathlib
import re
import shutil
import subprocess

import pytest

NEWEST_GLIBC = (2, 28)


def binaries():
    """The ELF files of the installed wheel; skips if the package does not come from a wheel."""
    try:
        files = importlib.metadata.files("intact") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    paths = [pathlib.Path(file.locate()) for file in files]
    elves = [path for path in paths if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    if not elves:
        pytest.skip("the package is not installed from a wheel")
    if not shutil.which("readelf"):
        pytest.skip("needs readelf")
    return elves


def test_needs_no_newer_libraries():
    newer = []
    for path in binaries():
        versions = subprocess.run(
            ["readelf", "--version-info", "--wide", path], check=True, capture_output=True, text=True
        ).stdout
        for name, version in re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI)_(\d[\d.]*)", versions):
            number = tuple(map(int, version.split(".")))
            if name != "GLIBC" or number > NEWEST_GLIBC:
                newer.append(f"{path.name}: {name}_{version}")
    assert not newer, "these need newer libraries; python/older_glibc.c defines such functions"


def test_is_called_for_its_libraries():
    binaries()
    tags = importlib.metadata.distribution("intact").read_text("WHEEL")
    assert f"manylinux_{NEWEST_GLIBC[0]}_{NEWEST_GLIBC[1]}_x86_64" in tags
