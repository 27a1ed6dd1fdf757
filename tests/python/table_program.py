#!/usr/bin/env python3
"""A worker of the tests with tables: trains on its part of each batch, and prints a digest of parameters and rows.

Its place comes from the environment (CAIRN_SERVERS, RANK, WORLD_SIZE).
"""

import argparse
import hashlib
import os
import signal

import cairn
import cairn.torch
import torch
from support import SECONDS, TableModel, make_bags

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="sync")
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--examples", default="32,32", help="of each worker, of the 64 of a step")
parser.add_argument("--optimizer", default="Adam", help="of the rows")
parser.add_argument("--replication", type=int, default=0)
parser.add_argument("--train_dir")
parser.add_argument("--prefetch", action="store_true")
parser.add_argument("--die", default="", help="STEP:WHERE, once: where is forward or step")
parser.add_argument("--kill", type=int, default=0, help="the process to kill there; 0: this one")
options = parser.parse_args()


def die(step, where):
    marker = os.environ.get("DIED", "")
    if options.die == f"{step}:{where}" and not os.path.exists(marker):
        open(marker, "w", encoding="ascii").close()
        os.kill(options.kill or os.getpid(), signal.SIGKILL)


def batches(job, counts):
    first = sum(counts[:job.worker])
    for step in range(job.position, options.steps):
        yield step, [part[first:first + counts[job.worker]] for part in make_bags(seed=step)]


model = TableModel(optimizer=options.optimizer, lr=0.05)
counts = [int(count) for count in options.examples.split(",")]
job = cairn.init(connect_timeout=SECONDS, step_timeout=SECONDS, lease=30, replication=options.replication,
                 train_dir=options.train_dir, save_steps=4)
optimizer = cairn.torch.distribute(torch.optim.Adam(model.parameters(), 0.05), model, job, mode=options.mode,
                                   max_staleness=4 if options.mode == "ssp" else None)
with job:
    version = job.version
    while not job.finished and job.position < options.steps:
        loader = batches(job, counts)
        if options.prefetch:
            loader = job.prefetch(loader, lambda batch: {"bags": batch[1][0]})
        for step, (ids, labels) in loader:
            die(step, "forward")
            optimizer.zero_grad()
            loss = model.loss(ids, labels) if len(ids) else None
            if loss is not None:
                loss.backward()
            die(step, "step")
            optimizer.step(examples=len(ids))
            if job.version < version:  # the servers went back to a checkpoint
                break
            version = job.version
    ids = sorted({int(i) for step in range(options.steps) for i in make_bags(seed=step)[0].reshape(-1)})
    rows = torch.from_numpy(job.table("bags").read(ids))
    values = torch.cat([*[p.detach().reshape(-1) for p in model.parameters()], rows.reshape(-1)])
    digest = hashlib.sha256(values.numpy().tobytes()).hexdigest()
print(f"worker {job.worker}: version {job.version} loss {0 if loss is None else loss.item():.6f} digest {digest}", flush=True)
