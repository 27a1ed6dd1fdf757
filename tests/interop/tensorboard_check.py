"""TensorBoard, without TensorFlow, reads the files of a run that was stopped after two epochs and resumed for two.

usage: tensorboard_check.py TRAIN_DIR SUMMARY.json OUTPUT
"""

import csv
import json
import pathlib
import re
import sys
import unittest

from tensorboard.backend.event_processing import event_accumulator
from tensorboard.backend.event_processing import plugin_event_multiplexer
from tensorboard.plugins.hparams import plugin_data_pb2

TRAIN_DIR, SUMMARY, OUTPUT = (pathlib.Path(argument) for argument in sys.argv[1:4])
EPOCHS = 4
VERSIONS_PER_EPOCH = 10  # 600 examples, two workers of 30


def load(run):
    accumulator = event_accumulator.EventAccumulator(str(TRAIN_DIR / run), size_guidance=event_accumulator.STORE_EVERYTHING_SIZE_GUIDANCE)
    accumulator.Reload()
    return accumulator


class TensorBoardTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.train, cls.validation = load("train"), load("validation")
        cls.summary = json.loads(SUMMARY.read_text())

    def scalars(self, run, tag):
        return [(event.step, event.value) for event in run.Scalars(tag)]

    def test_epochs_have_their_metrics_once_each(self):
        for run in (self.train, self.validation):
            for tag in ("epoch_loss", "epoch_accuracy"):
                self.assertEqual([step for step, _ in self.scalars(run, tag)], list(range(EPOCHS)), tag)
        for tag in ("epoch_learning_rate", "epoch_steps_per_second", "epoch_examples_per_second"):
            self.assertEqual(len(self.scalars(self.train, tag)), EPOCHS, tag)

    def test_the_last_metrics_equal_those_of_the_summary(self):
        for run, prefix in ((self.train, ""), (self.validation, "val_")):
            for metric in ("loss", "accuracy"):
                self.assertAlmostEqual(self.scalars(run, f"epoch_{metric}")[-1][1], self.summary[prefix + metric],
                                       places=5)

    def test_evaluations_are_at_their_versions(self):
        steps = [step for step, _ in self.scalars(self.validation, "evaluation_loss_vs_iterations")]
        self.assertEqual(steps, [VERSIONS_PER_EPOCH * (epoch + 1) for epoch in range(EPOCHS)])

    def test_steps_increase(self):
        steps = [step for step, _ in self.scalars(self.train, "batch_steps_per_second")]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertGreaterEqual(len(steps), EPOCHS * VERSIONS_PER_EPOCH // 4 - 1)

    def test_histograms_hold_every_weight(self):
        tags = self.train.Tags()["histograms"]
        kernels = [tag for tag in tags if tag.endswith("kernel/histogram")]
        self.assertEqual(len(kernels), 2, tags)
        self.assertEqual(len([tag for tag in tags if tag.endswith("gradient_histogram")]), 4)
        sizes = []
        for tag in [tag for tag in tags if not tag.endswith("gradient_histogram")]:
            events = self.train.Histograms(tag)
            self.assertEqual([event.step for event in events], list(range(EPOCHS)))
            sizes.append(sum(events[-1].histogram_value.bucket))
        self.assertEqual(sum(sizes), self.summary["parameters"])

    def test_the_graph_consists_of_layers(self):
        graph = self.train.Graph()
        ops = [node.op for node in graph.node]
        self.assertEqual(ops.count("Dense"), 2)
        names = {node.name for node in graph.node}
        for node in graph.node:
            for source in node.input:
                self.assertIn(source.lstrip("^"), names)

    def test_hyperparameters_are_found_next_to_the_metrics(self):
        multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(TRAIN_DIR))
        multiplexer.Reload()
        self.assertEqual(set(multiplexer.Runs()), {".", "train", "validation"})
        tags = multiplexer.PluginRunToTagToContent("hparams")["."]
        start = plugin_data_pb2.HParamsPluginData.FromString(tags["_hparams_/session_start_info"]).session_start_info
        self.assertEqual(start.hparams["batch_size"].number_value, 30)
        self.assertEqual(start.hparams["mode"].string_value, "sync")
        end = plugin_data_pb2.HParamsPluginData.FromString(tags["_hparams_/session_end_info"]).session_end_info
        self.assertEqual(end.status, 1)

    def test_the_newer_readers_see_the_scalars_too(self):
        """The multiplexer of current TensorBoards, which reads simple values as tensors."""
        multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(TRAIN_DIR))
        multiplexer.Reload()
        self.assertIn("epoch_loss", multiplexer.PluginRunToTagToContent("scalars")["train"])
        self.assertEqual(len(multiplexer.Tensors("validation", "epoch_accuracy")), EPOCHS)
        self.assertTrue(multiplexer.PluginRunToTagToContent("histograms")["train"])


class CsvTest(unittest.TestCase):

    def test_the_log_has_the_metrics_of_each_epoch_as_printed(self):
        with open(TRAIN_DIR / "log.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(list(rows[0]), ["epoch", "accuracy", "loss", "val_accuracy", "val_loss"])
        self.assertEqual([int(row["epoch"]) for row in rows], list(range(EPOCHS)))
        shown = re.findall(r"val_loss: ([0-9.e+-]+)", OUTPUT.read_text())
        self.assertEqual([f"{float(row['val_loss']):.4f}" for row in rows], shown)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
