#!/usr/bin/env python3
"""Ray Train: runs the program of docs/guides/frameworks.md. Skipped where Ray, which is large, is not installed:

    pip install --target /tmp/ray 'ray[train]==2.60.0'
    PYTHONPATH=build/release/python:/tmp/ray CAIRN_BIN_DIR=build/release/bin python3 tests/python/ray_test.py
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import frameworks

frameworks.need("torch", "ray")

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/guides/frameworks.md"


class RayTest(unittest.TestCase):

    def test_the_program_of_the_guide_trains(self):
        program = re.search(r"```python\n(# ray_train\.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "ray_train.py")
            path.write_text(program, encoding="utf-8")
            # Ray starts workers elsewhere, which find the package by its path.
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path[1:])), "RAY_USAGE_STATS_ENABLED": "0"}
            done = subprocess.run([sys.executable, path], check=False, capture_output=True, text=True, cwd=folder,
                                  env=environment, timeout=frameworks.SECONDS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("{'updates': 20}", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
