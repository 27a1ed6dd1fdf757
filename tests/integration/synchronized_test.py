"""Synchronized batch normalization over workers: the step of n workers is that of one with the whole batch."""

import json

from harness import DONE, USAGE, IntegrationTest, floats_of, main, make_digits, read_summary

EXAMPLES = 60
COMPILED = {"optimizer": {"class_name": "SGD", "config": {"learning_rate": 0.1}},
            "loss": {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": True}}}


def layer(class_name, name, **config):
    return {"class_name": class_name, "config": {"name": name, **config}}


def normalized_model(synchronized=True):
    return {"config": {"layers": [
        layer("Conv2D", "conv", filters=8, kernel_size=[3, 3], strides=[2, 2], input_shape=[28, 28, 1]),
        layer("BatchNormalization", "norm", synchronized=synchronized),
        layer("Activation", "relu", activation="relu"),
        layer("Flatten", "flat"),
        layer("Dense", "hidden", units=16),
        layer("BatchNormalization", "norm_2", synchronized=synchronized),
        layer("Dense", "logits", units=10)]}, "compile_config": COMPILED}


class SynchronizedTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.runs = 0
        make_digits(self.directory / "data", train=EXAMPLES)
        for synchronized in (True, False):
            path = self.directory / f"{synchronized}.json"
            path.write_text(json.dumps(normalized_model(synchronized)))

    def trained(self, *flags, model="True.json"):
        """The values and their digest after ten updates from all examples each."""
        self.runs += 1
        name = f"run{self.runs}"
        run = self.run_to_end("cairn", "train", model, "--data_dir", "data", "--epochs=10", "--threads=1", "--novalidation",
                              "--seed=7", "--noshuffle", f"--train_dir={name}", f"--export_dir={name}.model",
                              f"--summary={name}.json", *flags)
        self.assert_exit(DONE, run)
        summary = read_summary(self.directory / f"{name}.json")
        self.assertEqual(summary["global_step"], 10)
        return floats_of(self.directory / f"{name}.model/model.safetensors"), summary["parameters_sha256"]

    def assert_near(self, trained, expected, bound=1e-4):
        self.assertLess(self.difference(trained, expected), bound)

    @staticmethod
    def difference(trained, expected):
        return max(abs(a - b) for name in expected for a, b in zip(trained[name], expected[name]))

    def test_any_number_of_workers_makes_the_steps_of_one(self):
        expected, _ = self.trained("--workers=1", "--batch_size=60", "--sync_replicas")
        for flags in (["--workers=2", "--batch_size=30", "--sync_replicas"],
                      ["--workers=3", "--batch_size=20", "--mode=allreduce"],
                      ["--workers=7", "--batch_size=9", "--sync_replicas", "--ps=2"],  # the last one has 6 examples
                      ["--workers=5", "--batch_size=15", "--sync_replicas"],           # the last one has none
                      ["--workers=5", "--batch_size=15", "--mode=allreduce"],
                      ["--workers=2", "--batch_size=30", "--sync_replicas", "--cpu_devices=2", "--mirrored"]):
            with self.subTest(flags):
                self.assert_near(self.trained(*flags)[0], expected)
        alone, _ = self.trained("--workers=2", "--batch_size=30", "--sync_replicas", model="False.json")
        self.assertGreater(self.difference(alone, expected), 1e-2, "each worker normalizes by its own batch")

    def test_a_killed_task_changes_no_bit(self):
        servers, ring = ["--workers=3", "--batch_size=20", "--sync_replicas"], ["--workers=3", "--batch_size=20", "--mode=allreduce"]
        digests = {"ps": self.trained(*servers)[1], "ring": self.trained(*ring)[1]}
        backup = ["--ps=2", "--ps_replication=1"]
        # Four means in each step, of which the first two are those of the forward pass.
        for kind, flags in (("ps", ["--lost_workers=wait", "--fault=worker/1:mean:14:KILL"]),
                            ("ps", ["--lost_workers=wait", "--fault=worker/2:announced:20:KILL"]),
                            ("ps", backup + ["--fault=ps/0:mean:51:KILL"]),
                            ("ps", backup + ["--fault=ps/0:applied:4:KILL"]),
                            ("ring", ["--fault=worker/1:mean:15:KILL"]),
                            ("ring", ["--fault=worker/0:mean:17:KILL"])):
            with self.subTest(flags):
                _, digest = self.trained(*(servers if kind == "ps" else ring), *flags)
                self.assertEqual(digest, digests[kind])

    def test_workers_that_do_not_wait_for_each_other_are_refused(self):
        for flags in (["--mode=async"], ["--sync_replicas", "--replicas_to_aggregate=1"]):
            refused = self.run_to_end("cairn", "train", "True.json", "--data_dir", "data", "--workers=2", *flags)
            self.assert_exit(USAGE, refused)
            self.assert_says(refused, r"layer 'norm' \(BatchNormalization\): synchronized: true is not supported")


if __name__ == "__main__":
    main()
