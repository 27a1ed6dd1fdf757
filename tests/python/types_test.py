#!/usr/bin/env python3
"""The types of the package: its sources and the stub of the extension module pass mypy --strict, as a user would see.

    PYTHONPATH=build/release/python python3 tests/python/types_test.py
"""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

import cairn

PACKAGE = pathlib.Path(cairn.__file__).parent
SECONDS = 400


def mypy(*arguments):
    """The complaints of mypy --strict about the arguments, with the built package on its path."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *arguments], check=False,
                              capture_output=True, text=True, timeout=SECONDS, env={"MYPYPATH": str(PACKAGE.parent)})
    return done.returncode, done.stdout + done.stderr


@unittest.skipIf(importlib.util.find_spec("mypy") is None, "there is no mypy: see tests/python/environment.sh")
class TypesTest(unittest.TestCase):

    def test_the_package_passes_mypy_strict(self):
        code, complaints = mypy("--package", "cairn")
        self.assertEqual(code, 0, complaints)

    def test_users_of_the_package_see_its_types(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program.py")
            program.write_text(textwrap.dedent("""\
                import cairn
                from cairn import _native
                job: cairn.Job = cairn.init(["localhost:1"], worker="first", workers=1)
                mode: int = _native.Mode.SYNC
                """))
            code, complaints = mypy("--follow-imports", "silent", str(program))
        self.assertEqual(code, 1, complaints)
        self.assertRegex(complaints, r'program.py:3: error: Argument "worker" to "init" has incompatible type "str"')
        self.assertRegex(complaints, r"program.py:4: error: Incompatible types in assignment")
        self.assertIn("Found 2 errors", complaints)

    def test_the_stub_names_what_the_module_has(self):
        from cairn import _native
        stub = (PACKAGE / "_native.pyi").read_text()
        for name in vars(_native):
            if not name.startswith("_"):
                self.assertRegex(stub, rf"(?m)^(class|def) {name}\b|^{name}:")
        self.assertTrue((PACKAGE / "py.typed").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
