"""Keras model files: training begins with their weights, damage is found, and large models load in linear time."""

import io
import json
import random
import struct
import time
import zipfile

from harness import DONE, REPOSITORY, USAGE, IntegrationTest, main, read_summary

KERAS = REPOSITORY / "tests/support/data/keras_weights"
TRAIN = ["--workers=1", "--batch_size=8", "--optimizer=sgd", "--novalidation", "--data_dir=data.npz"]
STILL = [*TRAIN, "--train_steps=1", "--learning_rate=0"]  # leaves the variables unchanged


def npy(shape, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}f", *values)


def write_npz(path, inputs, width):
    """Eight examples of inputs of this shape, and targets of `width` zeros and ones."""
    draw = random.Random(1)
    elements = 8
    for extent in inputs:
        elements *= extent
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x_train.npy", npy((8, *inputs), [draw.gauss(0, 1) for _ in range(elements)]))
        archive.writestr("y_train.npy", npy((8, width), [float(i % 2) for i in range(8 * width)]))


class InitialValuesTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        write_npz(self.directory / "data.npz", (6, 5, 2), 1)

    def values_after(self, name, model, *flags):
        run = self.run_to_end("cairn", "train", model, *STILL, f"--summary={name}.json", *flags)
        self.assert_exit(DONE, run)
        return read_summary(self.directory / f"{name}.json")["parameters_sha256"], run.stderr

    def test_training_begins_with_the_files_weights_in_every_mode(self):
        model = KERAS / "keras2.keras"
        self.assert_exit(DONE, self.run_to_end("cairn", "export", model, "-o", "weights.safetensors"))
        given, _ = self.values_after("given", model, "--sync_replicas", "--init_from=weights.safetensors")
        fresh, said = self.values_after("fresh", model, "--sync_replicas", "--init_from=none")
        self.assertNotEqual(fresh, given)
        self.assertNotIn("initial values", said)
        for mode, flags in {"sync": [], "async": [], "ssp": ["--max_staleness=1"], "allreduce": []}.items():
            with self.subTest(mode=mode):
                values, said = self.values_after(mode, model, f"--mode={mode}", *flags)
                self.assertEqual(values, given)
                self.assertIn(f"initial values: from {model}", said)
        values, said = self.values_after("h5", KERAS / "keras2.h5", "--sync_replicas")
        self.assertEqual(values, given)
        self.assertIn("initial values: from", said)

    def test_a_resumed_checkpoint_overrides_the_files_weights(self):
        model = KERAS / "keras2.keras"
        flags = [*TRAIN, "--sync_replicas", "--train_dir=run", "--train_steps=3"]
        trained = self.run_to_end("cairn", "train", model, *flags, "--learning_rate=0.5", "--summary=trained.json")
        self.assert_exit(DONE, trained)
        resumed = self.run_to_end("cairn", "train", model, *flags, "--learning_rate=0", "--summary=resumed.json")
        self.assert_exit(DONE, resumed)
        self.assertNotIn("initial values", resumed.stderr)
        first, second = (read_summary(self.directory / f"{name}.json") for name in ("trained", "resumed"))
        self.assertEqual(first["parameters_sha256"], second["parameters_sha256"])

    def test_a_damaged_file_is_named(self):
        whole = (KERAS / "keras2.keras").read_bytes()
        with zipfile.ZipFile(io.BytesIO(whole)) as archive:
            member = archive.getinfo("model.weights.h5")
        at = member.header_offset + 30 + len("model.weights.h5") + member.compress_size // 2
        (self.directory / "damaged.keras").write_bytes(whole[:at] + bytes(b ^ 0xff for b in whole[at:at + 4]) + whole[at + 4:])
        run = self.run_to_end("cairn", "predict", "damaged.keras", KERAS / "keras2_inputs.npy")
        self.assertEqual(run.code, USAGE)
        self.assertRegex(run.stderr, r"damaged.keras: model.weights.h5: ")
        run = self.run_to_end("cairn", "train", "damaged.keras", *STILL, "--sync_replicas")
        self.assertNotEqual(run.code, DONE)
        self.assertRegex(run.stderr, r"damaged.keras: model.weights.h5: .*--init_from=none")


class LargeModelTest(IntegrationTest):

    def write_chain(self, layers):
        """Dense layers of one unit, listed from last to first: the worst order for a search of the next layer."""
        entries = [{"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [None, 1]}, "inbound_nodes": []}]
        before = "in"
        for number in range(layers):
            entries.append({"class_name": "Dense", "config": {"name": f"dense_{number}", "units": 1},
                            "inbound_nodes": [[[before, 0, 0, {}]]]})
            before = f"dense_{number}"
        model = {"class_name": "Functional",
                 "config": {"name": "deep", "layers": entries[::-1], "input_layers": [["in", 0, 0]],
                            "output_layers": [[before, 0, 0]]},
                 "compile_config": {"optimizer": "sgd", "loss": "mse"}}
        path = self.directory / f"deep_{layers}.json"
        path.write_text(json.dumps(model))
        return path

    def seconds(self, *command):
        began = time.monotonic()
        self.assert_exit(DONE, self.run_to_end(*command))
        return time.monotonic() - began

    def test_four_times_the_layers_do_not_take_sixteen_times_as_long(self):
        write_npz(self.directory / "data.npz", (1,), 1)
        few, many = self.write_chain(2000), self.write_chain(8000)
        for name, command in {"model": lambda path: ["cairn", "model", path],
                              "train": lambda path: ["cairn", "train", path, "--sync_replicas", *STILL]}.items():
            with self.subTest(command=name):
                self.seconds(*command(few))  # fills the file cache
                self.assertLess(self.seconds(*command(many)), 9 * self.seconds(*command(few)) + 2)


if __name__ == "__main__":
    main()
