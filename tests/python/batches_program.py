#!/usr/bin/env python3
"""A worker of batches_test: a parameter whose elements sum up the examples' one-hot gradients.

Prints the indices that it used; the chief also prints the parameter and how many examples the servers have counted. Its
place comes from the environment (CAIRN_SERVERS, RANK, WORLD_SIZE).
"""

import argparse
import os
import signal

import cairn
import cairn.torch
import torch
from support import SECONDS

parser = argparse.ArgumentParser()
parser.add_argument("--examples", type=int, default=50)
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--mode", default="sync")
parser.add_argument("--num_workers", type=int, default=0)
parser.add_argument("--train_dir")
parser.add_argument("--lease", type=float, default=30)
parser.add_argument("--elastic", action="store_true")
parser.add_argument("--die", default="", help="STEP:WHERE, once: where is forward, backward or step")
parser.add_argument("--stop_at", type=int, default=0, help="leave the job before the step with this number")
parser.add_argument("--min_workers", type=int, default=0)
options = parser.parse_args()


class Indices(torch.utils.data.Dataset):

    def __len__(self):
        return options.examples

    def __getitem__(self, index):
        return index


def die(step, where):
    marker = os.environ["DIED"]
    if options.die == f"{step}:{where}" and not os.path.exists(marker):
        open(marker, "w", encoding="ascii").close()
        os.kill(os.getpid(), signal.SIGKILL)


job = cairn.init(connect_timeout=SECONDS, step_timeout=SECONDS, lease=options.lease, train_dir=options.train_dir, save_steps=1,
                 elastic=options.elastic, min_workers=options.min_workers)
batches = job.batches(Indices(), options.batch_size, epochs=options.epochs, seed=3, num_workers=options.num_workers)
model = torch.nn.Module()
model.counts = torch.nn.Parameter(torch.zeros(options.examples))
optimizer = cairn.torch.distribute(torch.optim.SGD(model.parameters(), 1), model, job, mode=options.mode)
used = []
with job:
    for step, batch in enumerate(batches):
        if options.stop_at and job.version >= options.stop_at:
            job.save_checkpoint()
            os._exit(0)
        die(step, "forward")
        optimizer.zero_grad()
        model.counts.register_hook(lambda _, step=step: die(step, "backward"))
        (-model.counts[batch]).mean().backward()
        die(step, "step")
        optimizer.step()
        if optimizer.result.outcome == "accepted":
            used += batch.tolist()
    counted = job.stats()["examples"] if job.is_chief else 0
print("used", *used, flush=True)
if job.is_chief:
    print("counted", counted, flush=True)
    print("parameter", *model.counts.tolist(), flush=True)
