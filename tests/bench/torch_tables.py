#!/usr/bin/env python3
"""DLRM of PyTorch whose rows are on a server, against the tables of torch and of TorchRec in one process.

26 fields of Criteo's numbers of categories (at most a million, for the peers' memory), Zipf ids, batches of 2048
examples, rows of 16 values with Adagrad. The network is DLRM's with the layers of ctr_data.py, or --network dot: dot
products and one layer of 128. One server and one worker, on a thread and on two, in turn in both orders with one
process of nn.EmbeddingBag on a thread, with TorchRec's FusedEmbeddingBagCollection on FBGEMM's CPU operators, on a
thread and on two, and with the network alone on two threads, the limit of a step's time for any tables. Needs the
Python package and the programs; without torchrec, fbgemm-gpu-cpu and what they import, give --sides.

    pip install torch==2.14.1 fbgemm-gpu-cpu==1.9.0 tensordict torchmetrics pyre_extensions iopath
    pip install --no-deps torchrec==1.9.2
    export PYTHONPATH=build/release/python CAIRN_BIN_DIR=build/release/bin
    python3 tests/bench/torch_tables.py [--rounds 5] [--network dlrm] [--sides cairn,cairn2,torch]

Prints the processor time of a step, of all processes, and its time: medians over the rounds, and of the ratios ours /
the peer's. Of a thread and two, the better one of a round counts.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch

import ctr_data

BATCH, WIDTH, WARM_UP, STEPS, RATE = 2048, ctr_data.DIM, 5, 25, 0.01
CATEGORIES = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
              2173, 4, 7046547, 18, 15, 286181, 105, 142572]
ROWS = [min(count, 1_000_000) for count in CATEGORIES]
SIDES = ("cairn", "cairn2", "torch", "torchrec", "torchrec2", "network2")
nn = torch.nn


class Torch(nn.Module):
    """The pooled fields, [example, field * WIDTH]."""

    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(rows, WIDTH, mode="sum", sparse=True) for rows in ROWS])

    def forward(self, ids):
        return torch.cat([bag(ids[:, i:i + 1]) for i, bag in enumerate(self.bags)], dim=1)


def layers(inputs, units, output=None):
    made = []
    for count in units:
        made += [nn.Linear(inputs, count), nn.ReLU(inplace=True)]
        inputs = count
    return nn.Sequential(*made, *([nn.Linear(inputs, output)] if output else []))


class Network(nn.Module):

    def __init__(self, bags, network):
        super().__init__()
        self.bags = bags
        self.bottom = layers(ctr_data.NUMBERS, ctr_data.BOTTOM) if network == "dlrm" else None
        vectors = len(ROWS) + (self.bottom is not None)
        pairs = vectors * (vectors - 1) // 2
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, -1))
        self.top = layers(pairs + WIDTH, ctr_data.TOP, 1) if self.bottom else layers(pairs, [128], 1)

    def forward(self, numbers, ids):
        vectors = self.bags(ids).view(len(ids), len(ROWS), WIDTH)
        if self.bottom is not None:
            bottom = self.bottom(numbers)
            vectors = torch.cat([bottom.unsqueeze(1), vectors], dim=1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(products if self.bottom is None else torch.cat([bottom, products], dim=1)).squeeze(1)

    def dense_parameters(self):
        return [values for name, values in self.named_parameters() if not name.startswith("bags.")]


class NoTables(nn.Module):
    """Rows that are there already."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.rand(BATCH, len(ROWS) * WIDTH))

    def forward(self, ids):
        return self.rows


def torchrec_bags():
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    names = [f"field{i}" for i in range(len(ROWS))]

    class TorchRec(FusedEmbeddingBagCollection):

        def __init__(self):
            super().__init__([EmbeddingBagConfig(name=name, embedding_dim=WIDTH, num_embeddings=rows, feature_names=[name])
                              for name, rows in zip(names, ROWS)],
                             optimizer_type=torch.optim.Adagrad, optimizer_kwargs={"lr": RATE}, device=torch.device("cpu"))

        def forward(self, ids):
            one_each = torch.ones(ids.numel(), dtype=torch.int32)
            return super().forward(KeyedJaggedTensor.from_lengths_sync(names, ids.t().reshape(-1), one_each)).values()

    return TorchRec()


def make_batches():
    generator = torch.Generator().manual_seed(1)
    for _ in range(WARM_UP + STEPS):
        places = torch.rand(BATCH, len(ROWS), generator=generator, dtype=torch.float64)
        ids = (torch.tensor(ROWS, dtype=torch.float64) ** places - 1).long()
        numbers = torch.rand(BATCH, ctr_data.NUMBERS, generator=generator)
        yield numbers, ids, torch.randint(2, (BATCH,), generator=generator).float()


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
    for i, (numbers, ids, labels) in enumerate(batches):
        if i == WARM_UP:
            before = processor_time(), time.perf_counter()
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(numbers, ids), labels).backward()
        for optimizer in optimizers:
            optimizer.step()
    print((processor_time() - before[0]) / STEPS, (time.perf_counter() - before[1]) / STEPS)


def run(side, network):
    threads = 2 if side.endswith("2") else 1
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    batches = list(make_batches())
    if not side.startswith("cairn"):
        model = Network({"torch": Torch, "network2": NoTables}.get(side, torchrec_bags)(), network)
        optimizers = [torch.optim.Adam(model.dense_parameters(), fused=True)]
        if side == "torch":
            optimizers.append(torch.optim.Adagrad(model.bags.parameters(), RATE))
        train(model, optimizers, batches)
        return
    import cairn
    import cairn.torch

    class Cairn(cairn.torch.EmbeddingBagCollection):

        def __init__(self):
            super().__init__([cairn.torch.EmbeddingBagConfig(f"field{i}", WIDTH, rows, [f"field{i}"], optimizer="Adagrad", lr=RATE)
                              for i, rows in enumerate(ROWS)])

        def forward(self, ids):
            return super().forward(features(ids)).values()

    def features(ids):
        return {f"field{i}": ids[:, i:i + 1] for i in range(len(ROWS))}

    os.environ["OMP_NUM_THREADS"] = str(threads)
    with cairn.local(ps=1) as job:
        model = Network(Cairn(), network)
        optimizer = cairn.torch.distribute(torch.optim.Adam(model.parameters()), model, job)
        train(model, [optimizer], job.prefetch(batches, lambda batch: model.bags.ids(features(batch[1]))))


def report(what, found, peer):
    ours, theirs = ([1e3 * min(entries) for entries in zip(*(found[side] for side in found if side.rstrip("2") == name))]
                    for name in ("cairn", peer))
    ratios = [mine / other for mine, other in zip(ours, theirs)]
    print(f"{what} of a step: cairn {statistics.median(ours):.1f} ms, {peer} {statistics.median(theirs):.1f} ms, ratio "
          f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--network", choices=["dlrm", "dot"], default="dlrm")
    parser.add_argument("--sides", type=lambda text: text.split(","), default=list(SIDES))
    parser.add_argument("--run", choices=SIDES, help="run only this side, once")
    options = parser.parse_args()
    if options.run:
        run(options.run, options.network)
        return
    found = {side: [] for side in options.sides}
    for number in range(options.rounds):
        for side in options.sides if number % 2 == 0 else reversed(options.sides):
            done = subprocess.run([sys.executable, __file__, "--run", side, "--network", options.network], check=True,
                                  stdout=subprocess.PIPE, text=True, timeout=600)
            found[side].append(tuple(map(float, done.stdout.split())))
    for index, what in enumerate(("processor time", "time")):
        of_what = {side: [entry[index] for entry in entries] for side, entries in found.items()}
        for peer in ("torch", "torchrec", "network"):
            if any(side.rstrip("2") == peer for side in options.sides):
                report(what, of_what, peer)


if __name__ == "__main__":
    main()
