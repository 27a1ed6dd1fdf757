#!/usr/bin/env python3
"""How long training pauses when a server is killed, with --ps_replication=1 and without; and what backups cost.

    tests/bench/failover_pause.py MODEL DATA_DIR [--bin build/release/bin] [--kills 3] [--pairs 3] [--steps 400]

`cairn train` with 2 ps and 2 workers of one thread each, synchronous, a line for each step. In the middle of a run ps/0
or ps/1 gets SIGKILL; the pause is the longest time between two steps after that. For comparison, the longest time
before it is printed too. Without backups the job is rolled back to its last snapshot, at most a second old, and the
pause lasts until the first step that was not made before. The cost is steps/s of undisturbed runs with backups,
relative to runs without, in turn.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time


def command(options, *flags):
    return [os.path.abspath(os.path.join(options.bin, "cairn")), "train", os.path.abspath(options.model), "--data_dir",
            os.path.abspath(options.data_dir), "--ps=2", "--workers=2", "--sync_replicas", "--batch_size=64", "--threads=1",
            "--novalidation", "--display_every=1", f"--train_steps={options.steps}", *flags]


def server_pid(launcher, index):
    """The process id of a ps that `launcher` has started."""
    for child in map(int, open(f"/proc/{launcher}/task/{launcher}/children", encoding="ascii").read().split()):
        words = open(f"/proc/{child}/cmdline", encoding="utf-8").read().split("\0")
        if "--job_name=ps" in words and f"--task_index={index}" in words:
            return child
    raise RuntimeError(f"ps/{index} does not run")


def run(options, victim, *flags):
    """Kills ps/`victim`, or no server, in the middle: (longest step before, pause, steps/s), in seconds."""
    with tempfile.TemporaryDirectory() as directory:
        job = subprocess.Popen(command(options, *flags), cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            times = {}  # [step of the epoch]: when it was first reported
            before = killed_at = None
            first = last = time.monotonic()
            pause = longest = 0.0
            most = 0
            for line in job.stdout:
                found = re.match(r"\s*(\d+)/\d+ - ", line)
                if not found:
                    continue
                now = time.monotonic()
                step = len(times) + 1
                key = int(found[1])
                if killed_at is not None and key in times:
                    continue  # repeated after a rollback
                times.setdefault(key, now)
                if step == 1:
                    first = now
                elif killed_at is None:
                    longest = max(longest, now - last)
                else:
                    pause = max(pause, now - last)
                last, most = now, step
                if victim is not None and killed_at is None and step >= options.steps // 3:
                    os.kill(server_pid(job.pid, victim), signal.SIGKILL)
                    killed_at, before = now, longest
            errors = job.stderr.read()
            if job.wait(120) != 0:
                raise RuntimeError(f"ended with {job.returncode}:\n{errors[-2000:]}")
            return before if before is not None else longest, pause, (most - 1) / (last - first)
        finally:
            job.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data_dir")
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--kills", type=int, default=3, help="of each server, with and without backups")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400, help="at most an epoch's")
    options = parser.parse_args()
    ways = {"backups": ["--ps_replication=1"], "rolled back": ["--train_dir=run", "--save_secs=1"]}
    for name, flags in ways.items():
        for victim in (0, 1):
            results = [run(options, victim, *flags) for _ in range(options.kills)]
            pauses = sorted(pause for _, pause, _ in results)
            print(f"{name:11}  ps/{victim} killed: pause {statistics.median(pauses):.2f} s "
                  f"({pauses[0]:.2f} to {pauses[-1]:.2f}); longest step before {max(r[0] for r in results):.2f} s", flush=True)
    ratios = []
    for _ in range(options.pairs):
        without, with_backups = run(options, None)[2], run(options, None, "--ps_replication=1")[2]
        ratios.append(with_backups / without)
        print(f"without backups {without:6.1f} steps/s   with {with_backups:6.1f}   ratio {ratios[-1]:.3f}", flush=True)
    if ratios:
        print(f"median ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
