"""docs/reference/flags.md lists the flags that the programs have."""

import pathlib
import subprocess
import sys

from harness import BIN_DIR, IntegrationTest, main

GENERATOR = pathlib.Path(__file__).resolve().parents[2] / "docs" / "generate_flags.py"


class FlagsPageTest(IntegrationTest):

    def test_the_committed_page_matches_the_programs_output(self):
        run = subprocess.run([sys.executable, "-B", str(GENERATOR), str(BIN_DIR), "--check"], capture_output=True,
                             text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    main()
