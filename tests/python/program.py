#!/usr/bin/env python3
"""A worker of the tests: trains a small network on its part of each batch, and prints a digest of the parameters.

Its place comes from the environment (CAIRN_SERVERS, RANK, WORLD_SIZE).
"""

import argparse
import os
import signal

import cairn
import cairn.torch
import torch
from support import SECONDS, digest, loss_of, make_data, make_model

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="sync")
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--examples", default="32,32", help="of each worker, of the 64 of a step")
parser.add_argument("--batches", type=int, default=0, help="4 epochs of batches of this size, which the servers assign")
parser.add_argument("--save", help="the file for the model")
parser.add_argument("--replication", type=int, default=0)
parser.add_argument("--train_dir")
parser.add_argument("--lease", type=float, default=10)
parser.add_argument("--connect_timeout", type=float, default=SECONDS)
parser.add_argument("--optimizer", default="adam", choices=("adam", "momentum"))
parser.add_argument("--clip", type=float)
parser.add_argument("--schedule", action="store_true", help="with --mode allreduce: halve the rate every 3 steps")
parser.add_argument("--die", default="", help="STEP:WHERE, once: where is forward, backward or step")
parser.add_argument("--kill", type=int, default=0, help="the process to kill there; 0: this one")
options = parser.parse_args()


def die(step, where):
    marker = os.environ.get("DIED", "")
    if options.die == f"{step}:{where}" and not os.path.exists(marker):
        open(marker, "w", encoding="ascii").close()
        os.kill(options.kill or os.getpid(), signal.SIGKILL)


model = make_model(norm=False)
with torch.no_grad():  # all workers begin with the chief's values
    model[0].weight.add_(int(os.environ["RANK"]))
counts = [int(count) for count in options.examples.split(",")]
job = cairn.init(connect_timeout=options.connect_timeout, step_timeout=SECONDS, lease=options.lease,
                 replication=options.replication, train_dir=options.train_dir, save_steps=4)
batches = job.batches(torch.utils.data.TensorDataset(*make_data(60)), options.batches, epochs=4, seed=3) if options.batches else []
rule = (torch.optim.Adam(model.parameters(), 0.05) if options.optimizer == "adam"
        else torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
schedule = torch.optim.lr_scheduler.StepLR(rule, 3, 0.5) if options.schedule else None
optimizer = cairn.torch.distribute(rule, model, job, mode=options.mode, max_grad_norm=options.clip,
                                   max_staleness=4 if options.mode == "ssp" else None,
                                   stateful=[schedule] if options.schedule else [])
first = sum(counts[:job.worker])
loss = torch.zeros(())
with job:
    for inputs, labels in batches:
        optimizer.zero_grad()
        loss = loss_of(model, inputs, labels)
        loss.backward()
        optimizer.step()
    while not job.finished and job.position < options.steps:
        step = job.position
        inputs, labels = (part[first:first + counts[job.worker]] for part in make_data(seed=step))
        die(step, "forward")
        optimizer.zero_grad()
        loss = loss_of(model, inputs, labels)
        model[0].weight.register_hook(lambda _, step=step: die(step, "backward"))
        loss.backward()
        die(step, "step")
        optimizer.step(examples=len(inputs))
        if schedule is not None:
            schedule.step()
    if options.save:
        torch.save(model.state_dict(), options.save)
    print(f"worker {job.worker}: version {job.version} loss {loss.item():.6f} digest {digest(model)}", flush=True)
