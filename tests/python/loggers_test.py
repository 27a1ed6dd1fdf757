#!/usr/bin/env python3
"""Loggers of other projects: the calls of docs/guides/python.md. Each is skipped where its package is not installed:

    pip install --target /tmp/loggers tensorboard==2.21.0 wandb==0.31.0 mlflow==3.17.2
    PYTHONPATH=build/release/python:/tmp/loggers CAIRN_BIN_DIR=build/release/bin python3 tests/python/loggers_test.py
"""

import importlib.util
import os
import pathlib
import re
import tempfile
import unittest
from unittest import mock

from support import local

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/guides/python.md"
STEPS = 3


def need(package):
    return unittest.skipUnless(importlib.util.find_spec(package), f"there is no {package}")


class LoggersTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def log(self, logger, **names):
        """Makes the call of the guide after each step; returns the last stats."""
        call = re.search(rf"\| {logger} \| `(.*?)` \|", PAGE.read_text(encoding="utf-8"))[1]
        with local() as job:
            job.start({"w": [1.0]}, "SGD")
            for step in range(STEPS):
                job.push({"w": [1.0]})
                exec(call, {**names, "job": job, "step": step})  # pylint: disable=exec-used
            stats = job.stats()
        self.assertEqual(stats["version"], STEPS)
        return stats

    @need("tensorboard")
    def test_tensorboard(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from torch.utils.tensorboard import SummaryWriter
        with SummaryWriter(self.folder) as writer:
            stats = self.log("TensorBoard", writer=writer)
        events = EventAccumulator(self.folder)
        events.Reload()
        for name, value in stats.items():
            logged = events.Scalars(f"cairn/{name}")
            self.assertEqual([event.step for event in logged], list(range(STEPS)))
            self.assertEqual(logged[-1].value, value, name)

    @need("wandb")
    def test_weights_and_biases(self):
        with mock.patch.dict(os.environ, {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}):
            import wandb
            self.addCleanup(wandb.teardown)  # at the exit it would stumble over unittest's exit code, a bool
            run = wandb.init(project="cairn", dir=self.folder)
            stats = self.log("Weights & Biases", wandb=wandb)
            wandb.log({"end": 1}, step=STEPS)  # a step is in the summary when the next one begins
            self.assertEqual({name: run.summary[name] for name in stats}, stats)
            run.finish()

    @need("mlflow")
    def test_mlflow(self):
        import mlflow
        mlflow.set_tracking_uri(f"sqlite:///{self.folder}/mlflow.db")
        with mlflow.start_run() as run:
            stats = self.log("MLflow", mlflow=mlflow)
        self.assertEqual(mlflow.get_run(run.info.run_id).data.metrics, stats)
        versions = mlflow.MlflowClient().get_metric_history(run.info.run_id, "version")
        self.assertEqual([(entry.step, entry.value) for entry in versions], [(step, step + 1) for step in range(STEPS)])


if __name__ == "__main__":
    unittest.main()
