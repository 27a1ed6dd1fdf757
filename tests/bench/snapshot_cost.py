#!/usr/bin/env python3
"""The cost of snapshots: images/s of a synchronous cluster with a snapshot every so many seconds, and without.

    tests/bench/snapshot_cost.py MODEL DATA_DIR [--bin build/release/bin] [--pairs 3] [--steps 3000] [--save_secs 10]

`cairn train` with 2 ps and 2 workers of one thread each, without validation, the two in turn. Give so many steps that a
run takes several times --save_secs. The figure to quote is the median of the ratios; the snapshot at the job's end
counts too.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile


def rate(options, *flags):
    """Images/s and seconds of one run, from its own summary; in a directory of its own, with its checkpoints."""
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        summary = os.path.join(directory, "summary.json")
        subprocess.run(
            [os.path.abspath(os.path.join(options.bin, "cairn")), "train", os.path.abspath(options.model), "--data_dir",
             os.path.abspath(options.data_dir), "--ps=2", "--workers=2", "--sync_replicas", "--batch_size=64", "--threads=1",
             "--novalidation", "--save_steps=0", f"--train_steps={options.steps}", f"--summary={summary}", *flags],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600, cwd=directory)
        with open(summary, encoding="utf-8") as file:
            result = json.load(file)
        return result["examples_per_second"], result["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data_dir")
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--dir", help="where checkpoints go [the system's temporary directory]")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--save_secs", type=float, default=10)
    options = parser.parse_args()
    ratios = []
    for _ in range(options.pairs):
        without, seconds = rate(options)
        with_them, longer = rate(options, "--train_dir=run", f"--save_secs={options.save_secs}")
        ratios.append(with_them / without)
        print(f"without {without:8.0f} images/s ({seconds:.1f} s)   with {with_them:8.0f} ({longer:.1f} s)   "
              f"ratio {ratios[-1]:.3f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
