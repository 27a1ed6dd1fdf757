"""Callbacks at the end of an epoch: early stopping, a reduced learning rate, a file of the best parameters."""

import hashlib
import json
import re
import struct

from harness import DONE, MLP, Cluster, IntegrationTest, main, read_summary

SYNC = ["--sync_replicas", "--workers=3", "--batch_size=16"]
# The loss falls more slowly from epoch to epoch, so a job with these flags reduces its rate and then ends early.
STOPS = ["--epochs=30", "--monitor=loss", "--min_delta=0.05", "--early_stopping=2", "--reduce_lr_on_plateau=0.5",
         "--plateau_patience=1"]


def read_safetensors(path):
    """The metadata of a file, and the bytes of each variable by name."""
    file = path.read_bytes()
    length, = struct.unpack("<Q", file[:8])
    header, data = json.loads(file[8:8 + length]), file[8 + length:]
    metadata = header.pop("__metadata__")
    end = 0
    for tensor in sorted(header.values(), key=lambda tensor: tensor["data_offsets"]):
        assert tensor["dtype"] == "F32" and tensor["data_offsets"][0] == end, header
        end = tensor["data_offsets"][1]
    assert end == len(data), header
    return metadata, {name: data[slice(*tensor["data_offsets"])] for name, tensor in header.items()}


class CallbacksTest(IntegrationTest):

    def summary_of(self, run):
        self.assert_exit(DONE, run)
        return read_summary(self.directory / "summary.json")

    def losses(self, run):
        """The training loss of each epoch, from the progress lines."""
        return [float(loss) for loss in re.findall(r" - loss: ([0-9.e+-]+) - val_", run.stdout)]

    def test_a_sync_job_ends_early_with_the_same_bits_on_one_server_and_three(self):
        digests = []
        for servers in (1, 3):
            run = self.train(MLP, *SYNC, *STOPS, f"--ps={servers}", "--summary=summary.json")
            summary = self.summary_of(run)
            digests.append(summary["parameters_sha256"])
            self.assertLess(summary["epochs"], 30)
            self.assertEqual(len(self.losses(run)), summary["epochs"])
            self.assertEqual(summary["global_step"], summary["epochs"] * 42)
            self.assertEqual(summary["best_epoch"], summary["epochs"] - 2)
            self.assertIn(f"Epoch {summary['epochs']}: early stopping\n", run.stdout)
            self.assertRegex(run.stdout, "Epoch [0-9]+: ReduceLROnPlateau reducing learning rate to 0.0005.\n")
            self.assertIn(" - learning_rate: 5.0000e-04\n", run.stdout)
            self.assertLess(summary["metrics"]["learning_rate"], 0.001)
            self.assert_nothing_runs()
        self.assertEqual(*digests)

    def test_early_stopping_of_an_async_job_ends_every_task_with_0(self):
        cluster = Cluster(self, ps=2, workers=3, chief=True)
        tasks = cluster.start_all("--model", MLP, "--epochs=50", "--early_stopping=0", "--min_delta=0.5",
                                  "--summary=summary.json")
        self.assert_exit(DONE, *tasks.values())
        self.assertLess(read_summary(self.directory / "summary.json")["epochs"], 50)

    def test_the_best_epoch_is_restored_and_its_file_is_the_same(self):
        # A large learning rate makes the validation loss go up and down.
        run = self.train(MLP, *SYNC, "--epochs=6", "--learning_rate=0.02", "--early_stopping=6",
                         "--restore_best_weights", "--save_best=best.safetensors", "--summary=summary.json")
        summary = self.summary_of(run)
        val_losses = [float(loss) for loss in re.findall(r" - val_loss: ([0-9.]+)$", run.stdout, re.MULTILINE)]
        self.assertEqual(len(val_losses), 6)
        best = summary["best_epoch"]
        self.assertEqual(val_losses[best - 1], min(val_losses))
        self.assertLess(best, 6, "nothing to restore")
        self.assertAlmostEqual(summary["val_loss"], min(val_losses), places=4)
        self.assertIn(f"Restoring model weights from the end of the best epoch: {best}.\n", run.stdout)

        metadata, variables = read_safetensors(self.directory / "best.safetensors")
        self.assertEqual(metadata["epoch"], str(best))
        self.assertAlmostEqual(float(metadata["val_loss"]), min(val_losses), places=4)
        self.assertEqual(sum(len(values) for values in variables.values()), 4 * summary["parameters"])
        in_name_order = b"".join(values for _, values in sorted(variables.items()))
        self.assertEqual(hashlib.sha256(in_name_order).hexdigest(), summary["parameters_sha256"])
        self.assertEqual(list(self.directory.glob("best.safetensors.*")), [], "no temporary file is left")

    def test_wrong_flags_are_refused_before_anything_starts(self):
        for flags, fault in [
                (["--early_stopping=1", "--monitor=val_auc"],
                 "--monitor: there is no metric 'val_auc'; there are accuracy, loss, val_accuracy, val_loss"),
                (["--early_stopping=1", "--novalidation"], "'val_loss'; .* no validation set is evaluated"),
                (["--save_best=missing/best.safetensors"], "--save_best: cannot create .*: No such file"),
                (["--save_best=best.keras"], "--save_best: 'best.keras' does not end in .safetensors"),
                (["--restore_best_weights"], "--restore_best_weights requires --early_stopping"),
                (["--plateau_patience=1"], "--plateau_patience requires --reduce_lr_on_plateau"),
                (["--reduce_lr_on_plateau=1"], "--reduce_lr_on_plateau: '1' is not a number")]:
            with self.subTest(" ".join(flags)):
                self.assert_refused(self.train(MLP, *flags), fault)

    def test_a_schedule_and_a_plateau_are_refused(self):
        schedule = {"class_name": "CosineDecay", "config": {"initial_learning_rate": 0.1, "decay_steps": 10}}
        path = self.directory / "scheduled.json"
        path.write_text(MLP.read_text().replace('"learning_rate": 0.001', f'"learning_rate": {json.dumps(schedule)}'))
        self.assert_refused(self.train(path, "--reduce_lr_on_plateau=0.5"),
                            "--reduce_lr_on_plateau .* CosineDecay: replace it by --learning_rate")
        self.assert_exit(DONE, self.train(path, "--reduce_lr_on_plateau=0.5", "--learning_rate=0.1"))


if __name__ == "__main__":
    main()
