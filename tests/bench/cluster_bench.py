#!/usr/bin/env python3
"""The cost of servers: images/s of a cluster of 1 ps and 2 workers against two lone workers on the same cores.

    tests/bench/cluster_bench.py DATA_DIR [--bin build/release/bin] [--pairs 5] [--batch_size 64] [--mode sync]

Lone workers are two processes of lone_worker, one thread each, that train by themselves: loader, forward, backward,
Adam. The cluster is `cairn train` without validation. The two sides run in turn; the figure to quote is the median of
the ratios.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

EPOCHS = 2  # long enough that the start of the processes does not count


def lone_workers(options):
    """Images/s of two lone_worker processes side by side, summed; together they do as much as the cluster."""
    command = [os.path.join(options.bin, "lone_worker"), options.model, options.data_dir, str(options.batch_size),
               str(EPOCHS // 2)]
    environment = dict(os.environ, OMP_WAIT_POLICY="passive")
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    return sum(float(process.communicate(timeout=300)[0].split()[0]) for process in processes)


def cluster(options):
    """Images/s of the cluster, from its own summary."""
    with tempfile.TemporaryDirectory() as directory:
        summary = os.path.join(directory, "summary.json")
        subprocess.run(
            [os.path.join(options.bin, "cairn"), "train", options.model, "--data_dir", options.data_dir, "--ps", "1",
             "--workers", "2", "--mode", options.mode, "--batch_size", str(options.batch_size), "--threads", "1",
             "--novalidation", "--epochs", str(EPOCHS), "--summary", summary],
            check=True, stdout=subprocess.DEVNULL, timeout=300)
        with open(summary, encoding="utf-8") as file:
            return json.load(file)["examples_per_second"]


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir")
    parser.add_argument("--bin", default=os.path.join(root, "build/release/bin"))
    parser.add_argument("--model", default=os.path.join(root, "deploy/examples/mnist_cnn.json"))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--mode", default="sync", choices=["sync", "async"])
    options = parser.parse_args()

    ratios = []
    for pair in range(options.pairs):
        alone, together = lone_workers(options), cluster(options)
        ratios.append(together / alone)
        print(f"pair {pair + 1}: two lone workers {alone:.0f} images/s, cluster {together:.0f}, ratio {ratios[-1]:.3f}",
              flush=True)
    print(f"{options.mode}, batch {options.batch_size}: median ratio {statistics.median(ratios):.3f} "
          f"({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
