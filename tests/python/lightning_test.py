#!/usr/bin/env python3
"""Lightning: an unchanged LightningModule with the Strategy on servers equals one process."""

import os
import pathlib
import unittest
import warnings

import frameworks

frameworks.need("torch", "pytorch_lightning")

import pytorch_lightning as pl  # noqa: E402
import torch  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset  # noqa: E402

import cairn.lightning  # noqa: E402

torch.set_num_threads(1)
QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}


class Module(pl.LightningModule):

    def __init__(self, seed=1, optimizers=1):
        super().__init__()
        torch.manual_seed(seed)
        self.net = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Tanh(), torch.nn.Linear(20, 3))
        self._optimizers = optimizers

    def training_step(self, batch, index):
        inputs, labels = batch
        return torch.nn.functional.cross_entropy(self.net(inputs), labels)

    def validation_step(self, batch, index):
        self.log("loss", self.training_step(batch, index), sync_dist=True)

    def configure_optimizers(self):
        optimizers = [torch.optim.AdamW(self.parameters(), 0.02) for _ in range(self._optimizers)]
        if len(optimizers) > 1:
            self.automatic_optimization = False
            return optimizers
        parts = [torch.optim.lr_scheduler.LinearLR(optimizers[0], 0.2, total_iters=3),
                 torch.optim.lr_scheduler.CosineAnnealingLR(optimizers[0], 10)]
        schedule = torch.optim.lr_scheduler.SequentialLR(optimizers[0], parts, [3])
        return {"optimizer": optimizers[0], "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def loader(size, **options):
    inputs, labels = (torch.from_numpy(array).flatten(0, 1) for array in frameworks.batches())
    data = TensorDataset(inputs, labels)
    return DataLoader(data, size, sampler=DistributedSampler(data, shuffle=False, **options) if options else None)


def fit(module, size, *, epochs=2, place=None, **options):
    """place: that of a worker. Lightning divides the validation data; training data it would also shuffle."""
    trainer = pl.Trainer(max_epochs=epochs, gradient_clip_val=0.3, accumulate_grad_batches=2, **QUIET, **options)
    trainer.fit(module, loader(size, **(place or {})), loader(size))
    return trainer


def values(module):
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def work():
    """A worker of the test."""
    folder = pathlib.Path(os.environ[frameworks.RESULTS], "checkpoints")
    saver = pl.callbacks.ModelCheckpoint(folder, "{epoch}")
    with cairn.init() as job, warnings.catch_warnings():
        warnings.filterwarnings("error", "(?s).*lr_scheduler.step.*")
        module = Module(seed=1 + job.worker)
        trainer = fit(module, 32, place={"num_replicas": job.workers, "rank": job.worker},
                      strategy=cairn.lightning.Strategy(job), callbacks=[saver])
        frameworks.report(job.worker, {**values(module), "loss": trainer.callback_metrics["loss"], "version": job.version,
                                       "saves": trainer.strategy.is_global_zero and len(list(folder.iterdir()))})


class WorkersTest(unittest.TestCase):

    def test_two_workers_equal_one_process_with_the_whole_batches(self):
        module = Module()
        trainer = fit(module, 64, enable_checkpointing=False)
        results = frameworks.train(__file__)
        for result, saves in zip(results, (1, 0), strict=True):
            self.assertEqual([int(result.pop("version")), int(result.pop("saves"))], [trainer.global_step, saves])
        frameworks.check(self, results, {**values(module), "loss": trainer.callback_metrics["loss"].numpy()})


class StrategyTest(unittest.TestCase):

    def test_examples_and_the_end_of_the_job(self):
        with cairn.local() as job:
            module = Module()
            trainer = fit(module, 64, epochs=9, enable_checkpointing=False,
                          strategy=cairn.lightning.Strategy(job, updates=4))
            self.assertEqual((job.version, trainer.current_epoch, job.stats()["examples"]), (4, 2, 4 * 2 * 64))

    def test_impossible_settings_are_named(self):
        for module, options, words in ((Module(optimizers=2), {}, "has 2 optimizers"),
                                       (Module(), {"gradient_clip_val": 1, "gradient_clip_algorithm": "value"}, "'value'")):
            with cairn.local() as job, self.assertRaisesRegex(cairn.InvalidArgument, words):
                pl.Trainer(max_epochs=1, enable_checkpointing=False, strategy=cairn.lightning.Strategy(job), **QUIET,
                           **options).fit(module, loader(64))


if __name__ == "__main__":
    if frameworks.is_worker():
        work()
    else:
        unittest.main()
