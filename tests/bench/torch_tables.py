#!/usr/bin/env python3
"""A click model of PyTorch whose rows are on a server, against torch.nn.EmbeddingBag in one process.

26 fields of Criteo's numbers of categories (at most a million, for torch's memory), Zipf ids, batches of 2048
examples, rows of 16 values with Adagrad, and a network over their dot products. One server and one worker of a thread
each against one process of a thread, in turn in both orders. Needs the Python package and the programs:

    export PYTHONPATH=build/release/python CAIRN_BIN_DIR=build/release/bin
    python3 tests/bench/torch_tables.py [--rounds 5]

Prints the processor time of a step, of all processes, and its time; medians over the rounds, and of their ratios.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch

BATCH, WIDTH, WARM_UP, STEPS = 2048, 16, 5, 25
CATEGORIES = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
              2173, 4, 7046547, 18, 15, 286181, 105, 142572]
ROWS = [min(count, 1_000_000) for count in CATEGORIES]
SIDES = ("cairn", "torch")
nn = torch.nn


class Torch(nn.Module):
    """The pooled fields, [example, field * WIDTH]."""

    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(rows, WIDTH, mode="sum", sparse=True) for rows in ROWS])

    def forward(self, ids):
        return torch.cat([bag(ids[:, i:i + 1]) for i, bag in enumerate(self.bags)], dim=1)


class Network(nn.Module):

    def __init__(self, bags):
        super().__init__()
        self.bags = bags
        fields = len(ROWS)
        self.register_buffer("pairs", torch.tril_indices(fields, fields, -1))
        self.top = nn.Sequential(nn.Linear(fields * (fields - 1) // 2, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, ids):
        vectors = self.bags(ids).view(len(ids), len(ROWS), WIDTH)
        products = vectors @ vectors.transpose(1, 2)
        return self.top(products[:, self.pairs[0], self.pairs[1]]).squeeze(1)


def make_batches():
    generator = torch.Generator().manual_seed(1)
    for _ in range(WARM_UP + STEPS):
        places = torch.rand(BATCH, len(ROWS), generator=generator, dtype=torch.float64)
        ids = (torch.tensor(ROWS, dtype=torch.float64) ** places - 1).long()
        yield ids, torch.randint(2, (BATCH,), generator=generator).float()


def processor_time():
    """The processor time of this process and its children, in seconds."""
    processes = [os.getpid(), *map(int, pathlib.Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())]
    ticks = 0
    for process in processes:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def train(model, optimizers, batches):
    """Prints the processor time and the time of a step."""
    for i, (ids, labels) in enumerate(batches):
        if i == WARM_UP:
            before = processor_time(), time.perf_counter()
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(ids), labels).backward()
        for optimizer in optimizers:
            optimizer.step()
    print((processor_time() - before[0]) / STEPS, (time.perf_counter() - before[1]) / STEPS)


def run(side):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    batches = list(make_batches())
    if side == "torch":
        model = Network(Torch())
        train(model, [torch.optim.Adam(model.top.parameters()), torch.optim.Adagrad(model.bags.parameters(), 0.01)], batches)
        return
    import cairn
    import cairn.torch

    class Cairn(cairn.torch.EmbeddingBagCollection):

        def __init__(self):
            super().__init__([cairn.torch.EmbeddingBagConfig(f"field{i}", WIDTH, rows, [f"field{i}"], optimizer="Adagrad", lr=0.01)
                              for i, rows in enumerate(ROWS)])

        def forward(self, ids):
            return super().forward(features(ids)).values()

    def features(ids):
        return {f"field{i}": ids[:, i:i + 1] for i in range(len(ROWS))}

    os.environ["OMP_NUM_THREADS"] = "1"
    with cairn.local(ps=1) as job:
        model = Network(Cairn())
        optimizer = cairn.torch.distribute(torch.optim.Adam(model.parameters()), model, job)
        train(model, [optimizer], job.prefetch(batches, lambda batch: model.bags.ids(features(batch[0]))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", choices=SIDES, help="run only this one, once")
    options = parser.parse_args()
    if options.side:
        run(options.side)
        return
    found = {side: [] for side in SIDES}
    for number in range(options.rounds):
        for side in SIDES if number % 2 == 0 else reversed(SIDES):
            done = subprocess.run([sys.executable, __file__, "--side", side], check=True, capture_output=True, text=True,
                                  timeout=600)
            found[side].append(tuple(map(float, done.stdout.split())))
    for index, what in enumerate(("processor time", "time")):
        values = {side: [1e3 * entry[index] for entry in entries] for side, entries in found.items()}
        ratios = [ours / theirs for ours, theirs in zip(values["cairn"], values["torch"])]
        print(f"{what} of a step: cairn {statistics.median(values['cairn']):.1f} ms, torch "
              f"{statistics.median(values['torch']):.1f} ms, ratio {statistics.median(ratios):.2f} "
              f"({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
