#!/usr/bin/env python3
"""PyTorch models with Cairn against DistributedDataParallel: examples/s, and processor time of all processes.

One server and two workers of a thread each against two ranks of DDP (gloo, gradients as views of buckets, fused
optimizer), one after the other in both orders. With --mode allreduce there is no server, and the workers run the fused
optimizer too. Needs the Python package and the programs:

    export PYTHONPATH=build/release/python CAIRN_BIN_DIR=build/release/bin
    python3 tests/bench/torch_ddp.py [--net mlp] [--rounds 5] [--mode allreduce]

Prints, for each network, the medians of both and of their ratios. Processor time is little disturbed by other programs
of the machine; examples/s are.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time

import torch

WORKERS, WARM_UP, BATCH = 2, 5, 64
nn = torch.nn


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, width, stride=1):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width // stride, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        self.short = nn.Conv2d(width // stride, width, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, images):
        return torch.relu(self.body(images) + self.short(images))


class Transformer(nn.Module):

    def __init__(self, width=320, layers=8, classes=64):
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)).mean(1))


def make(net):
    """The model, a batch, labels, and the number of steps."""
    torch.manual_seed(0)
    if net == "mlp":
        model = nn.Sequential(nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))
        return model, torch.randn(BATCH, 784), torch.randint(10, (BATCH,)), 20
    if net == "cnn":
        model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                              nn.Flatten(), nn.Linear(1600, 10))
        return model, torch.randn(BATCH, 1, 28, 28), torch.randint(10, (BATCH,)), 80
    if net == "resnet":
        widths = (64, 64, 128, 128, 256, 256, 512, 512)
        blocks = [Block(w, 2 if i and w != widths[i - 1] else 1) for i, w in enumerate(widths)]
        model = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *blocks,
                              nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
        return model, torch.randn(8, 3, 32, 32), torch.randint(10, (8,)), 12
    return Transformer(), torch.randint(1000, (8, 32)), torch.randint(64, (8,)), 20


def work(side, net):
    """One worker: prints its examples/s and its processor time in ms a step."""
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    model, inputs, labels, steps = make(net)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    if side == "ddp":
        import torch.distributed as dist
        dist.init_process_group("gloo", rank=rank, world_size=WORKERS)
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    else:
        import cairn
        import cairn.torch
        job = cairn.init()
        optimizer = cairn.torch.distribute(optimizer, model, job, mode="sync" if side == "cairn" else "allreduce")
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            begun, busy = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    took, busy = time.perf_counter() - begun, time.process_time() - busy
    print(f"worker {steps * len(inputs) / took} {1e3 * busy / steps}", flush=True)
    if side != "ddp":
        job.close()
    os._exit(0)  # torch's own exit takes longer than some runs


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(side, net):
    """(examples/s of all workers, ms of all processes' processor time a step)"""
    port = free_port()
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(WORKERS),
                   "CAIRN_SERVERS": f"127.0.0.1:{port}" if side == "cairn" else "", "OMP_NUM_THREADS": "1",
                   "CAIRN_WORKERS": f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"}
    server = None
    if side == "cairn":
        program = os.path.join(os.environ["CAIRN_BIN_DIR"], "cairn-ps")
        server = subprocess.Popen([program, "--ps_hosts", f"127.0.0.1:{port}", "--job_name", "ps", "--task_index", "0"],
                                  stderr=subprocess.DEVNULL)
    workers = [subprocess.Popen([sys.executable, __file__, "--worker", side, "--net", net], text=True, stdout=subprocess.PIPE,
                                env={**environment, "RANK": str(rank)}) for rank in range(WORKERS)]
    reports = [worker.communicate(timeout=600)[0].split() for worker in workers]
    busy = sum(float(report[2]) for report in reports)
    if server:
        _, status, usage = os.wait4(server.pid, 0)
        server.returncode = os.waitstatus_to_exitcode(status)
        assert server.returncode == 0, f"the server ended with {server.returncode}"
        # Its warm-up is counted with its steps: first values, and memory that is touched for the first time.
        busy += 1e3 * (usage.ru_utime + usage.ru_stime) / (WARM_UP + make(net)[3])
    return sum(float(report[1]) for report in reports), busy


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=("mlp", "cnn", "resnet", "transformer"), action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mode", choices=("sync", "allreduce"), default="sync")
    parser.add_argument("--worker", choices=("ddp", "cairn", "allreduce"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.net[0])
    ours = "cairn" if options.mode == "sync" else "allreduce"
    for net in options.net or ("mlp", "cnn", "resnet", "transformer"):
        rounds = []
        for i in range(options.rounds):
            order = ("ddp", ours) if i % 2 else (ours, "ddp")
            rounds.append({side: run(side, net) for side in order})
        rate = {side: statistics.median(r[side][0] for r in rounds) for side in ("ddp", ours)}
        busy = {side: statistics.median(r[side][1] for r in rounds) for side in ("ddp", ours)}
        print(f"{net}: examples/s {rate[ours]:.0f} against {rate['ddp']:.0f}, "
              f"{statistics.median(r[ours][0] / r['ddp'][0] for r in rounds):.2f} x; processor time a step "
              f"{busy[ours]:.1f} against {busy['ddp']:.1f} ms, "
              f"{statistics.median(r[ours][1] / r['ddp'][1] for r in rounds):.2f} x", flush=True)


if __name__ == "__main__":
    main()
