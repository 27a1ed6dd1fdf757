#!/usr/bin/env python3
"""Time of imports in a new process, beyond that of starting Python: wall and processor time, medians, in ms.

    PYTHONPATH=build/release/python $(tests/python/environment.sh) tests/bench/import_time.py [--rounds 15]

The aims are 150 ms for cairn, and 50 ms for cairn.torch where torch has been imported. NumPy is measured in the same
rounds for comparison.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

STATEMENTS = {"nothing": "pass", "import cairn": "import cairn", "import numpy": "import numpy"}
AFTER_TORCH = """
import time, torch
begin = time.perf_counter()
import cairn.torch
print(time.perf_counter() - begin)
"""
SECONDS = 60


def measure(statement):
    """Wall and processor time of a process, in ms."""
    start, used = time.perf_counter(), os.times()
    subprocess.run([sys.executable, "-c", statement], check=True, timeout=SECONDS)
    wall, now = time.perf_counter() - start, os.times()
    processor = now.children_user + now.children_system - used.children_user - used.children_system
    return 1e3 * wall, 1e3 * processor


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    times, after_torch = {name: [] for name in STATEMENTS}, []
    for _ in range(rounds):
        for name, statement in STATEMENTS.items():
            times[name].append(measure(statement))
        program = [sys.executable, "-c", AFTER_TORCH]
        after_torch.append(float(subprocess.run(program, check=True, timeout=SECONDS, stdout=subprocess.PIPE).stdout))
    idle = [statistics.median(each) for each in zip(*times.pop("nothing"))]
    for name, measured in times.items():
        wall, processor = [statistics.median(each) - base for each, base in zip(zip(*measured), idle)]
        print(f"{name}: {wall:.0f} ms, processor time {processor:.0f} ms")
    print(f"import cairn.torch after torch: {1e3 * statistics.median(after_torch):.0f} ms")


if __name__ == "__main__":
    main()
