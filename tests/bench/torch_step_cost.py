#!/usr/bin/env python3
"""The cost of step() for a model of one number: wall time, and processor time of the calling thread, in µs.

    export PYTHONPATH=build/release/python CAIRN_BIN_DIR=build/release/bin
    $(tests/python/environment.sh) tests/bench/torch_step_cost.py [--rounds 7] [--steps 2000]

One server and one worker on this machine. The processor time is that of all of step(), and that without the native
wait for the answer, in which the thread may poll. Prints medians and ranges over the rounds. The aims are 150 µs of
wall time, and 60 µs of processor time in Python.
"""

import argparse
import statistics
import time

import torch

import cairn
import cairn.torch


class Clocked:
    """A session whose finish_step() adds up its processor time."""

    def __init__(self, session):
        self._session, self.waited = session, 0.0

    def __getattr__(self, name):
        return getattr(self._session, name)

    def finish_step(self):
        begin = time.thread_time()
        try:
            return self._session.finish_step()
        finally:
            self.waited += time.thread_time() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    figures = {"wall time": [], "processor time": [], "processor time without the wait": []}
    with cairn.local(ps=1) as job:
        model = torch.nn.Linear(1, 1, bias=False)
        optimizer = cairn.torch.distribute(torch.optim.SGD(model.parameters(), lr=0.01), model, job)
        clocked = job.steps.session = Clocked(job.session)
        example = torch.ones(1, 1)
        for _ in range(args.rounds + 1):  # the first one warms up
            wall = processor = clocked.waited = 0.0
            for _ in range(args.steps):
                optimizer.zero_grad()
                model(example).sum().backward()
                began, used = time.perf_counter(), time.thread_time()
                optimizer.step()
                wall += time.perf_counter() - began
                processor += time.thread_time() - used
            for name, seconds in zip(figures, (wall, processor, processor - clocked.waited)):
                figures[name].append(seconds / args.steps * 1e6)
        job.steps.session = clocked._session
    for name, each in figures.items():
        print(f"step(): {statistics.median(each[1:]):.0f} ({min(each[1:]):.0f} to {max(each[1:]):.0f}) µs of {name}")


if __name__ == "__main__":
    main()
