#!/usr/bin/env python3
"""Accelerate: a loop with accelerator.accumulate() and an optimizer on servers equals the loop in one process."""

import unittest

import frameworks

frameworks.need("torch", "accelerate")

import accelerate  # noqa: E402
import support  # noqa: E402
import torch  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import cairn.torch  # noqa: E402


def make_loader(worker, workers):
    """The worker's part of each batch."""
    arrays = (array[:, worker::workers] for array in frameworks.batches())
    return DataLoader(TensorDataset(*(torch.from_numpy(array).flatten(0, 1) for array in arrays)), 64 // workers)


def fit(accelerator, model, optimizer, loader):
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    schedule = accelerator.prepare(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
    for _ in range(2):
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                accelerator.backward(support.loss_of(model, inputs, labels))
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()


def make_accelerator():
    return accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)


def values(model):
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def work():
    """A worker of the test."""
    with cairn.init() as job:
        cairn.hide_ranks()
        accelerator = make_accelerator()
        assert accelerator.num_processes == 1
        model = support.make_model(1 + job.worker, norm=False)
        optimizer = cairn.torch.distribute(torch.optim.Adam(model.parameters(), 0.01), model, job)
        fit(accelerator, model, optimizer, make_loader(job.worker, job.workers))
        assert job.version == 6
        frameworks.report(job.worker, values(model))


class WorkersTest(unittest.TestCase):

    def test_two_workers_equal_one_process_with_the_whole_batches(self):
        model = support.make_model(1, norm=False)
        fit(make_accelerator(), model, torch.optim.Adam(model.parameters(), 0.01), make_loader(0, 1))
        frameworks.check(self, frameworks.train(__file__), values(model))


if __name__ == "__main__":
    if frameworks.is_worker():
        work()
    else:
        unittest.main()
