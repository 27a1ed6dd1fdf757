#!/usr/bin/env python3
"""The cost of monitoring: steps/s of a synchronous cluster with status pages and traces, against one without.

    tests/bench/trace_cost.py MODEL DATA_DIR [--bin build/release/bin] [--pairs 5] [--steps 3000]
                              [--trace_steps FIRST:LAST]

`cairn train` with 2 ps and 2 workers of one thread each, without validation; the two sides in turn, and each pair in
the other order. Watched: --metrics_port for every task, each read every --scrape_secs, and --trace_file, of all steps
unless --trace_steps selects some. The figures to quote are the medians of the ratios. In addition to steps/s, which
depends on other load on the machine, it reports the processor time of all tasks, including their start and the writing
of the files. The launcher's time to read the files again after training is reported separately: it is as long as
`cairn trace show` takes for the merged file.
"""

import argparse
import contextlib
import json
import os
import resource
import socket
import statistics
import subprocess
import tempfile
import threading
import urllib.request

TASKS = 4  # 2 ps, 2 workers


def free_ports(count):
    """The first of so many unused ports in a row."""
    while True:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError, OverflowError):
                first = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
                for port in range(first + 1, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
                return first


def scrape(port, every, over, pages):
    """As Prometheus would, until `over`; counts what it got in `pages`."""
    while not over.wait(every):
        for task in range(TASKS):
            with contextlib.suppress(OSError):  # not there yet, or not any more
                with urllib.request.urlopen(f"http://127.0.0.1:{port + task}/metrics", timeout=5) as reply:
                    pages.append(len(reply.read()))


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(options, watched):
    """Steps/s from the job's own summary, the processor's seconds of all its tasks, and of the merging."""
    with tempfile.TemporaryDirectory() as directory:
        summary = os.path.join(directory, "summary.json")
        flags, over, pages = [], threading.Event(), []
        if watched:
            port = free_ports(TASKS)
            flags = [f"--metrics_port={port}", "--metrics_host=127.0.0.1", "--trace_file=trace.json"]
            flags += [f"--trace_steps={options.trace_steps}"] if options.trace_steps else []
            scraper = threading.Thread(target=scrape, args=(port, options.scrape_secs, over, pages))
            scraper.start()
        before = processor_seconds()
        try:
            subprocess.run(
                [os.path.abspath(os.path.join(options.bin, "cairn")), "train", os.path.abspath(options.model), "--data_dir",
                 os.path.abspath(options.data_dir), "--ps=2", "--workers=2", "--sync_replicas", f"--batch_size={options.batch_size}",
                 "--threads=1", "--novalidation", f"--train_steps={options.steps}", f"--summary={summary}", *flags],
                check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600, cwd=directory)
        finally:
            over.set()
            if watched:
                scraper.join()
        with open(summary, encoding="utf-8") as file:
            result = json.load(file)
        if watched and not (pages and os.path.getsize(os.path.join(directory, "trace.json"))):
            raise RuntimeError("the job ended before anybody had looked: give more --steps")
        all_seconds, merging = processor_seconds() - before, 0
        if watched:
            subprocess.run([os.path.abspath(os.path.join(options.bin, "cairn")), "trace", "show", "trace.json"], check=True,
                           stdout=subprocess.DEVNULL, timeout=600, cwd=directory)
            merging = processor_seconds() - before - all_seconds
        return result["global_step"] / result["seconds"], all_seconds - merging, merging


def told(name, ratios):
    return f"{name} {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data_dir")
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--trace_steps")
    parser.add_argument("--scrape_secs", type=float, default=1)
    options = parser.parse_args()
    rates, seconds = [], []
    for pair in range(options.pairs):
        sides = {watched: run(options, watched) for watched in ((False, True) if pair % 2 == 0 else (True, False))}
        rates.append(sides[True][0] / sides[False][0])
        seconds.append(sides[True][1] / sides[False][1])
        print(f"without {sides[False][0]:7.1f} steps/s, {sides[False][1]:6.2f} s of processor   "
              f"watched {sides[True][0]:7.1f}, {sides[True][1]:6.2f} and {sides[True][2]:.2f} to merge   "
              f"ratios {rates[-1]:.3f}, {seconds[-1]:.3f}", flush=True)
    print(f"median ratios: {told('steps/s', rates)}, {told('processor time', seconds)}")


if __name__ == "__main__":
    main()
