"""make_interface.py COMPILER OUT HEADER...: writes the declarations of headers, and of the headers that they include, as a cffi module.

The headers are the only definition of structs, enumerators and functions. They are preprocessed, and cffi's ABI mode writes their
declarations into a Python module. Importing this module needs neither a compiler nor a parser.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import cffi


def declarations(compiler: str, headers: list[str]) -> str:
    """The headers without comments, macros and attributes. cffi knows the types of <stddef.h> and <stdint.h>."""
    with tempfile.TemporaryDirectory() as folder:
        for standard in ("stddef.h", "stdint.h"):
            (Path(folder) / standard).write_text("")
        all_headers = Path(folder) / "all.h"
        all_headers.write_text("".join(f'#include "{Path(header).resolve()}"\n' for header in headers))
        command = [compiler, "-E", "-P", "-nostdinc", "-isystem", folder, "-I", str(Path(headers[0]).parent.parent), "-D__attribute__(x)=", "-x", "c",
                   str(all_headers)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    compiler, out, *headers = sys.argv[1:]
    ffi = cffi.FFI()
    ffi.cdef(declarations(compiler, headers))
    ffi.set_source("_interface", None)
    ffi.emit_python_code(out)


if __name__ == "__main__":
    main()
