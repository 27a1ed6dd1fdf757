#!/usr/bin/env python3
"""`import cairn` imports no framework, and the parts that need one name what to install."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import frameworks

frameworks.need("torch", "keras", "jax", "pytorch_lightning")

FRAMEWORKS = ["torch", "keras", "jax", "lightning", "pytorch_lightning", "transformers", "accelerate", "optuna", "ray", "numpy"]


def run(code):
    done = subprocess.run([sys.executable, "-B", "-c", code], check=False, capture_output=True, text=True,
                          timeout=frameworks.SECONDS, env={**os.environ, "KERAS_BACKEND": "torch"})
    return done.stdout + done.stderr


class ImportsTest(unittest.TestCase):

    def test_the_package_imports_no_framework(self):
        self.assertEqual(run(f"import sys, cairn; print(*sys.modules.keys() & set({FRAMEWORKS}))").strip(), "")

    def test_a_missing_framework_is_named_with_what_to_install(self):
        for part, missing, packages in (("keras", ["keras"], "keras torch"), ("jax", ["jax"], "jax"),
                                        ("lightning", ["lightning", "pytorch_lightning"], "lightning")):
            hidden = "; ".join(f"sys.modules['{name}'] = None" for name in missing)
            self.assertRegex(run(f"import sys; {hidden}; import cairn.{part}"),
                             rf"ImportError: cairn.{part} needs \w+, which is not installed: pip install {packages}")

    def test_a_framework_that_is_broken_shows_its_own_error(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "jax.py").write_text("import no_such_module\n", encoding="ascii")
            shown = run(f"import sys; sys.path.insert(0, {folder!r}); import cairn.jax")
        self.assertIn("ModuleNotFoundError: No module named 'no_such_module'", shown)
        self.assertNotIn("pip install", shown)


if __name__ == "__main__":
    unittest.main()
