"""Uses the files that `cmake --install` puts beneath a prefix."""

import os
import pathlib
import site
import subprocess
import sys
import tempfile
import textwrap
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "scripts"
PROGRAM = """
    import intact_torch, torch
    from intact_torch import reference
    integers = torch.arange(-24, 24).reshape(4, 12).to(torch.int8)
    params = torch.classes.intact.Linear(torch._make_per_tensor_quantized_tensor(integers, 0.01, 0), torch.ones(4), "", "exact", "any")
    x = torch.quantize_per_tensor(torch.linspace(-1, 1, 36).reshape(3, 12), 0.01, 100, torch.quint8)
    output = torch.ops.intact.linear(x, params, 0.02, 90)
    assert torch.equal(output.int_repr(), reference.output(x, params, 0.02, 90)), output
    print({line.split()[-1] for line in open("/proc/self/maps") if "intact" in line and ".so" in line})
"""


def packages_dir(prefix):
    return subprocess.run(
        [sys.executable, SCRIPTS / "packages_dir.py", prefix], check=True, capture_output=True, text=True
    ).stdout.rstrip()


class Installed(unittest.TestCase):
    def test_runs_from_its_prefix(self):
        with tempfile.TemporaryDirectory() as prefix:
            for component in ("runtime", "pytorch_legacy"):
                subprocess.run(
                    [
                        os.environ["INTACT_CMAKE"],
                        "--install",
                        os.environ["INTACT_BUILD"],
                        "--prefix",
                        prefix,
                        "--component",
                        component,
                    ],
                    check=True,
                    capture_output=True,
                )
            folder = os.path.join(prefix, packages_dir(prefix))
            used = eval(
                subprocess.run(
                    [sys.executable, "-B", "-c", textwrap.dedent(PROGRAM)],
                    check=True,
                    capture_output=True,
                    text=True,
                    cwd=prefix,
                    env={**os.environ, "PYTHONPATH": folder},
                ).stdout
            )
            self.assertIn(os.path.join(folder, "intact_torch", "libintact_torch.so"), used)
            self.assertEqual({path for path in used if not path.startswith(prefix)}, set())
            self.assertEqual(sum("/libintact.so" in path for path in used), 1)
            sources = {path.name for path in (SCRIPTS.parent / "intact_torch").glob("*.py")}
            self.assertEqual(
                set(os.listdir(os.path.join(folder, "intact_torch"))), sources | {"libintact_torch.so"}
            )

    def test_python_looks_there(self):
        # Debian's Python looks in two folders
        prefixes = ("/usr", "/usr/local") if sys.prefix == "/usr" else (sys.prefix,)
        for prefix, places in (
            *((prefix, site.getsitepackages()) for prefix in prefixes),
            (site.getuserbase(), [site.getusersitepackages()]),
        ):
            self.assertIn(os.path.join(prefix, packages_dir(prefix)), places)
        self.assertEqual(packages_dir("/opt/other"), "lib/python3/dist-packages")


if __name__ == "__main__":
    unittest.main()
