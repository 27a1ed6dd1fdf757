"""The format of the C++ sources: clang-format 19 would change nothing. Skipped where there is none.

Another version formats some lines differently, so only version 19 counts.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import List, Optional

from language_test import ROOT, SKIPPED, tracked_files

VERSION = 19
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
FILES_AT_ONCE = 50


def find_clang_format() -> Optional[str]:
    for name in [f"clang-format-{VERSION}", "clang-format"]:
        path = shutil.which(name)
        if path is None:
            continue
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        if re.search(rf"version {VERSION}\.", version):
            return path
    return None


CLANG_FORMAT = find_clang_format()


def format_faults(root: pathlib.Path, names: List[str]) -> List[str]:
    """"a.cc:3", for every line that clang-format would change."""
    def check(group: List[str]) -> str:
        return subprocess.run([CLANG_FORMAT, "--dry-run", "-Werror", "--style=file", *group], cwd=root,
                              capture_output=True, text=True, check=False).stderr

    groups = [names[i:i + FILES_AT_ONCE] for i in range(0, len(names), FILES_AT_ONCE)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        reports = list(threads.map(check, groups))
    found = [re.match(r"(.*?:\d+):\d+: error: ", line) for report in reports for line in report.splitlines()]
    faults = list(dict.fromkeys(match[1] for match in found if match))
    return faults if faults or not any(reports) else reports


@unittest.skipIf(CLANG_FORMAT is None, f"there is no clang-format {VERSION}: deploy/setup.sh --with-tests installs it")
class FormatTest(unittest.TestCase):
    maxDiff = None

    def test_clang_format_would_change_nothing(self):
        names = [name for name in tracked_files(ROOT) if pathlib.Path(name).suffix in SUFFIXES]
        self.assertGreater(len(names), 0)
        self.assertEqual(format_faults(ROOT, names), [], "clang-format-19 -i FILE mends it")

    def test_a_badly_formatted_line_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            shutil.copy(ROOT / ".clang-format", root)
            (root / "good.cc").write_text("int a = 1;\n", encoding="utf-8")
            (root / "bad.cc").write_text("int a = 1;\nint  b=2;\n", encoding="utf-8")
            self.assertEqual(format_faults(root, ["good.cc"]), [])
            self.assertEqual(format_faults(root, ["good.cc", "bad.cc"]), ["bad.cc:2"])

    def test_a_failure_of_the_tool_is_a_fault(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(len(format_faults(pathlib.Path(folder), ["none.cc"])), 1)


if __name__ == "__main__":
    result = unittest.main(verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.testsRun == len(result.skipped) else 0)
