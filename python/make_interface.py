"""make_interface.py COMPILER FOLDER OUT: writes the declarations of the headers of C in FOLDER/intact as a cffi module.

The headers are the only definition of structs, enumerators and functions. They are preprocessed, and cffi's ABI mode writes their
declarations into a Python module. Importing this module needs neither a compiler nor a parser.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import cffi


def declarations(compiler: str, folder: Path) -> str:
    """The headers without comments, macros and attributes. cffi knows the types of <stddef.h> and <stdint.h>."""
    headers = "".join(
        f"#include <intact/{header.name}>\n" for header in sorted((folder / "intact").glob("*.h"))
    )
    with tempfile.TemporaryDirectory() as standard:
        for name in ("stddef.h", "stdint.h"):
            (Path(standard) / name).write_text("")
        command = [
            compiler,
            "-E",
            "-P",
            "-nostdinc",
            "-isystem",
            standard,
            "-I",
            str(folder),
            "-D__attribute__(x)=",
            "-x",
            "c",
            "-",
        ]
        return subprocess.run(command, check=True, capture_output=True, text=True, input=headers).stdout


def main() -> None:
    compiler, folder, out = sys.argv[1:]
    ffi = cffi.FFI()
    ffi.cdef(declarations(compiler, Path(folder)))
    ffi.set_source("_interface", None)
    ffi.emit_python_code(out)


if __name__ == "__main__":
    main()
