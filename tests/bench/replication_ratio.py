#!/usr/bin/env python3
"""The cost of backups: steps/s of a synchronous cluster with --ps_replication=1, relative to runs without, in turn.

    tests/bench/replication_ratio.py MODEL DATA_DIR [--bin build/release/bin] [--pairs 5] [--steps 2000] [FLAG...]

`cairn train` with 2 ps and 2 workers of one thread each, without validation and checkpoints. Each FLAG is given to both
runs of a pair: `-- --transport=tcp`. The figure to quote is the median of the ratios.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile


def steps_per_second(options, *flags):
    """The rate of one run, from its own summary."""
    with tempfile.TemporaryDirectory() as directory:
        summary = os.path.join(directory, "summary.json")
        subprocess.run(
            [os.path.abspath(os.path.join(options.bin, "cairn")), "train", os.path.abspath(options.model), "--data_dir",
             os.path.abspath(options.data_dir), "--ps=2", "--workers=2", "--sync_replicas", "--batch_size=64", "--threads=1",
             "--novalidation", f"--train_steps={options.steps}", f"--summary={summary}", *options.flags, *flags],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600, cwd=directory)
        with open(summary, encoding="utf-8") as file:
            result = json.load(file)
        return result["global_step"] / result["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data_dir")
    parser.add_argument("flags", nargs="*", metavar="FLAG")
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    rates = {"without": [], "with": []}
    ratios = []
    for _ in range(options.pairs):
        rates["without"].append(steps_per_second(options))
        rates["with"].append(steps_per_second(options, "--ps_replication=1"))
        ratios.append(rates["with"][-1] / rates["without"][-1])
        print(f"without {rates['without'][-1]:7.1f} steps/s   with {rates['with'][-1]:7.1f}   ratio {ratios[-1]:.3f}", flush=True)
    print(f"medians: without {statistics.median(rates['without']):.1f} steps/s, with {statistics.median(rates['with']):.1f}, "
          f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
