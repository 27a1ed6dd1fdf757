#!/usr/bin/env python3
"""How much faster a training step of an LSTM classifier (forward, backward, Adam) is here than in PyTorch.

    tests/bench/lstm_ratio.py --torch_python VENV/bin/python [--bin build/release/bin] [--pairs 3] [--threads 1,2]

Two layers of 256 units over 100 steps of 128 channels, batches of 32. PyTorch runs eagerly and compiled, and the faster
one counts. The programs run in turn, and the figure to quote is the median of the ratios, by processor time: other work
on the machine does not count.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEPS, CHANNELS, UNITS, CLASSES, BATCH = 100, 128, 256, 10, 32


def lstm(units, **options):
    return {"class_name": "LSTM", "config": {"units": units, **options}}


MODEL = {"config": {"layers": [
    lstm(UNITS, return_sequences=True, input_shape=[STEPS, CHANNELS]), lstm(UNITS),
    {"class_name": "Dense", "config": {"units": CLASSES}}]}}


def torch_rate(threads, compiled, steps):
    """Examples per second of processor time and of elapsed time."""
    import time

    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(CHANNELS, UNITS, num_layers=2, batch_first=True)
            self.dense = torch.nn.Linear(UNITS, CLASSES)

        def forward(self, x):
            return self.dense(self.lstm(x)[0][:, -1])

    model = Classifier()
    run = torch.compile(model) if compiled else model
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    x, labels = torch.randn(BATCH, STEPS, CHANNELS), torch.randint(0, CLASSES, (BATCH,))
    loss_of = torch.nn.CrossEntropyLoss()
    times = []
    for step in range(steps + 3):
        begin, began = time.process_time(), time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss_of(run(x), labels).backward()
        optimizer.step()
        if step >= 3:
            times.append((time.process_time() - begin, time.perf_counter() - began))
    processor, elapsed = (statistics.median(column) for column in zip(*times))
    print(json.dumps({"processor": BATCH * threads / processor, "elapsed": BATCH / elapsed}))


def own_run(options, threads, path, steps):
    """Processor seconds of a whole run, and the examples per second of its median step."""
    command = [os.path.join(options.bin, "step_bench"), "--model", path, "--threads", str(threads), "--batch_size",
               str(BATCH), "--steps", str(steps)]
    before = os.times()
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, float(re.search(r"([0-9.]+) images/s in the median step", output).group(1))


def own_rate(options, threads, path):
    """The difference of a long and a short run has no start in it."""
    short, _ = own_run(options, threads, path, options.steps)
    long, elapsed = own_run(options, threads, path, 3 * options.steps)
    return {"processor": BATCH * 2 * options.steps * threads / (long - short), "elapsed": elapsed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--torch_python", default=sys.executable)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--torch", choices=["eager", "compiled"], help="only measures PyTorch in this process")
    options = parser.parse_args()
    if options.torch is not None:
        torch_rate(int(options.threads), options.torch == "compiled", options.steps)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(MODEL, file)
        file.flush()
        for threads in map(int, options.threads.split(",")):
            ratios = []
            for _ in range(options.pairs):
                peers = {}
                for way in ("eager", "compiled"):
                    command = [options.torch_python, __file__, "--torch", way, "--threads", str(threads), "--steps",
                               str(options.steps)]
                    peers[way] = json.loads(
                        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout)
                own = own_rate(options, threads, file.name)
                best = {kind: max(peer[kind] for peer in peers.values()) for kind in own}
                ratios.append({kind: own[kind] / best[kind] for kind in own})
                print(f"{threads} threads: {own} here, {peers} in PyTorch", flush=True)
            for kind in ("processor", "elapsed"):
                print(f"{threads} threads, {kind} time: {statistics.median(r[kind] for r in ratios):.2f} times PyTorch")


if __name__ == "__main__":
    main()
