"""Models within models, of images of any size, from Keras' files to trained clusters."""

import csv
import json
import shutil
import struct

from harness import DONE, REPOSITORY, USAGE, IntegrationTest, main

KERAS = REPOSITORY / "tests/support/data/keras_weights"  # see make_nested.py
TRAIN = ["--data_dir=data", "--ps=1", "--sync_replicas", "--novalidation", "--noshuffle"]


def write_labels(path, labels):
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({len(labels)},), }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(labels)}q", *labels))


class NestedModelsTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        (self.directory / "data").mkdir()
        shutil.copy(KERAS / "nested_inputs.npy", self.directory / "data/x_train.npy")
        write_labels(self.directory / "data/y_train.npy", [i % 5 for i in range(8)])

    def losses(self, name, *flags):
        self.assert_exit(DONE, self.run_to_end("cairn", "train", KERAS / "nested.keras", *TRAIN, f"--train_dir={name}",
                                               "--epochs=3", *flags))
        with open(self.directory / name / "log.csv", encoding="utf-8") as rows:
            return [float(row["loss"]) for row in csv.DictReader(rows)]

    def test_a_nested_model_trains_as_in_keras(self):
        expected = json.loads((KERAS / "nested_losses.json").read_text(encoding="utf-8"))["training"]
        for ours, theirs in zip(self.losses("one", "--workers=1", "--batch_size=8"), expected, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-5)

    def test_two_workers_learn_and_their_checkpoint_is_read_and_exported(self):
        losses = self.losses("two", "--workers=2", "--batch_size=4", "--learning_rate=0.2")
        self.assertLess(losses[2], losses[0])
        self.assert_exit(DONE, self.run_to_end("cairn", "predict", "two", "data/x_train.npy", "-o", "out.npy"))
        self.assert_exit(DONE, self.run_to_end("cairn", "export", "two", "-o", "model.safetensors"))
        self.assert_exit(DONE, self.run_to_end("cairn", "export", "two", "-o", "model.onnx"))
        names = (self.directory / "model.safetensors").read_bytes()
        for name in (b"tower/conv/kernel", b"tower/inner/deep/bias", b"frozen/norm/moving_mean", b"head/conv/kernel"):
            self.assertIn(name, names)
        # The values fit the model of Keras' file again.
        self.assert_exit(DONE, self.run_to_end("cairn", "train", KERAS / "nested.keras", *TRAIN, "--workers=1", "--epochs=1",
                                               "--init_from=model.safetensors"))

    def test_open_sizes_are_those_of_the_flag_or_the_data(self):
        run = self.run_to_end("cairn", "model", KERAS / "nested.keras")
        self.assertEqual(run.code, USAGE)
        self.assertRegex(run.stderr, r"\[null,null,null,3\]: the size of axis 1 is not fixed: .* --input_shape")
        run = self.run_to_end("cairn", "model", KERAS / "nested.keras", "--input_shape=9,10,3")
        self.assert_exit(DONE, run)
        self.assertIn("image (InputLayer)  │ (None, 9, 10, 3)", run.stdout)
        self.assertRegex(run.stdout, r"tower \(Functional\) +│ \[\(None, 9, 10, +│ +276 │ image\[0\]\[0\],")
        run = self.run_to_end("cairn", "train", KERAS / "nested.keras", *TRAIN, "--workers=1", "--input_shape=9,10,3")
        self.assertNotEqual(run.code, DONE)
        self.assertRegex(run.stderr, r"\[9,10,3\].*\[7,6,3\]|\[7,6,3\].*\[9,10,3\]")


if __name__ == "__main__":
    main()
