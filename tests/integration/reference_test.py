"""The generated pages of docs/reference are those of the programs and of the Python package."""

import pathlib
import subprocess
import sys

from harness import BIN_DIR, IntegrationTest, main

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


class GeneratedPagesTest(IntegrationTest):

    def check(self, generator, *arguments):
        run = subprocess.run([sys.executable, "-B", str(DOCS / generator), *arguments, "--check"], capture_output=True,
                             text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_flags_are_those_of_the_programs(self):
        self.check("generate_flags.py", str(BIN_DIR))

    def test_the_python_api_is_that_of_the_docstrings(self):
        self.check("generate_python_reference.py")


if __name__ == "__main__":
    main()
