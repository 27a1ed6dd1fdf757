"""NaN and infinity are never hidden: messages name weights and data that are not finite, and predictions show them.
If memory does not suffice, the error names what needs how much."""

import json
import struct
import zipfile

from harness import BIN_DIR, DONE, FAILURE, MLP, IntegrationTest, main, small_data

NAN = float("nan")


def npy(shape, values):
    """The bytes of a .npy file of float32."""
    header = repr({"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}f", *values)


def safetensors(tensors):
    """The bytes of a .safetensors file of {name: (shape, values)}."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def model(*layers):
    """Keras' JSON of a model with an input of two numbers and these layers."""
    layers = [("InputLayer", {"batch_shape": [None, 2], "name": "in"}), *layers]
    return json.dumps({
        "class_name": "Sequential",
        "config": {"name": "small", "layers": [{"class_name": name, "config": config} for name, config in layers]},
        "compile_config": {"optimizer": "sgd", "loss": "mse"}})


HIDDEN = ("Dense", {"units": 17, "activation": "relu", "name": "hidden"})
HEAD = ("Dense", {"units": 1, "name": "head"})


class FiniteTest(IntegrationTest):

    def write(self, name, content):
        path = self.directory / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def data(self, inputs, targets=None):
        """Writes an .npz with a training set."""
        rows = len(inputs) // 2
        path = self.directory / "data.npz"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("x_train.npy", npy([rows, 2], inputs))
            file.writestr("y_train.npy", npy([rows, 1], targets or [0.5] * rows))
        return path

    def weights(self, **changed):
        values = {"hidden/kernel": ([2, 17], [0.1] * 34), "hidden/bias": ([17], [0.0] * 17),
                  "head/kernel": ([17, 1], [0.1] * 17), "head/bias": ([1], [0.0])}
        for name, (place, value) in changed.items():
            values[name.replace("_", "/")][1][place] = value
        return self.write("weights.safetensors", safetensors(values))

    def test_predictions_of_nan_are_nan_and_reported(self):
        inputs = self.write("x.npy", npy([3, 2], [1, 2, 3, NAN, 5, 6]))
        run = self.run_to_end("cairn", "predict", self.weights(), inputs, "--model", self.write("m.json", model(HIDDEN, HEAD)))
        self.assert_exit(DONE, run)
        self.assertRegex(run.stdout, r"(?m)^0\t[\d.]+\n1\tnan\n2\t[\d.]+$")
        self.assertIn("the outputs of 1 of 3 examples are not finite numbers: 1 (input 1 is nan)", run.stderr)

    def test_classes_of_nan_are_nan(self):
        layers = [HIDDEN, ("Dense", {"units": 1, "name": "head", "activation": "sigmoid"})]
        inputs = self.write("x.npy", npy([1, 2], [1, NAN]))
        run = self.run_to_end("cairn", "predict", self.weights(), inputs, "--loss=binary_crossentropy",
                              "--model", self.write("m.json", model(*layers)))
        self.assert_exit(DONE, run)
        self.assertEqual(run.stdout, "0\tnan\tnan\n")

    def test_predictions_from_nan_weights_are_refused(self):
        inputs = self.write("x.npy", npy([1, 2], [1, 2]))
        run = self.run_to_end("cairn", "predict", self.weights(hidden_kernel=(20, NAN)), inputs,
                              "--model", self.write("m.json", model(HIDDEN, HEAD)))
        self.assert_exit(FAILURE, run)
        self.assertEqual(run.stdout, "")
        self.assertRegex(run.stderr, r"weights\.safetensors: 'hidden/kernel'\[1,3\] is nan")

    def test_training_does_not_begin_with_nan_in_any_mode(self):
        for mode in ("async", "sync", "allreduce"):
            run = self.run_to_end("cairn", "train", self.write("m.json", model(HIDDEN, HEAD)), "--data_dir",
                                  self.data([1, 2] * 8), "--init_from", self.weights(head_bias=(0, NAN)), "--epochs=1",
                                  "--threads=1", f"--mode={mode}")
            self.assert_exit(FAILURE, run)
            self.assertRegex(run.stderr, r"--init_from: .*weights\.safetensors: 'head/bias'\[0\] is nan")
            self.assert_nothing_runs(seconds=10)

    def test_a_nan_loss_from_data_names_the_example_in_any_mode(self):
        inputs = [1.0] * 64
        inputs[2 * 23 + 1] = NAN
        for flags in (["--mode=async"], ["--mode=sync", "--wire_dtype=int8"], ["--mode=allreduce"]):
            run = self.run_to_end("cairn", "train", self.write("m.json", model(HIDDEN, HEAD)), "--data_dir",
                                  self.data(inputs), "--epochs=2", "--batch_size=8", "--threads=1", *flags)
            self.assert_exit(FAILURE, run)
            self.assertRegex(run.stderr, r"the loss is nan at version \d+: the data are at fault: input \[1\] of example 23 "
                                         r"\(from 0\) of .*data\.npz is nan")
            self.assert_nothing_runs(seconds=10)

    def test_a_step_that_overflows_names_the_layer(self):
        run = self.run_to_end("cairn", "train", self.write("m.json", model(HIDDEN, HEAD)), "--data_dir",
                              self.data([1e30, -1e30] * 8, [1e30] * 8), "--epochs=20", "--threads=1")
        self.assert_exit(FAILURE, run)
        self.assertRegex(run.stderr, r"the step overflowed, the data and the parameters are finite|is not finite in the update")


class MemoryTest(IntegrationTest):
    """Programs under a limit of the address space, which makes allocations fail."""

    def limited(self, megabytes, *arguments):
        """Runs `cairn` with these arguments under a limit of the address space, and waits for its end."""
        return self.run_to_end("/bin/sh", "-c", f'ulimit -v {megabytes << 10} && exec "$@"', "sh", BIN_DIR / "cairn", *arguments)

    def test_an_error_about_a_large_batch_names_the_memory_it_needs(self):
        wide = json.dumps({"class_name": "Sequential", "config": {"name": "wide", "layers": [
            {"class_name": "InputLayer", "config": {"batch_shape": [None, 28, 28, 1], "name": "in"}},
            {"class_name": "Conv2D", "config": {"filters": 512, "kernel_size": [3, 3], "name": "wide"}},
            {"class_name": "GlobalAveragePooling2D", "config": {"name": "pool"}},
            {"class_name": "Dense", "config": {"units": 10, "name": "head"}}]},
            "compile_config": {"optimizer": "sgd", "loss": "sparse_categorical_crossentropy"}})
        path = self.directory / "wide.json"
        path.write_text(wide)
        run = self.limited(4000, "train", path, "--data_dir", small_data(), "--batch_size=2000", "--epochs=1", "--threads=1")
        self.assertEqual(run.code, FAILURE, run.stderr)
        self.assertRegex(run.stderr, r"a batch of \d+ examples on /cpu:0: .* on /cpu:0: no memory for [\d.]+ GiB")
        self.assertNotIn("check failed", run.stderr)

    def test_a_model_larger_than_memory_is_refused(self):
        path = self.directory / "vast.json"
        path.write_text(model(("Dense", {"units": 1 << 29, "name": "vast"}), HEAD))
        inputs = self.directory / "x.npy"
        inputs.write_bytes(npy([1, 2], [1, 2]))
        weights = self.directory / "w.safetensors"
        weights.write_bytes(safetensors({"vast/kernel": ([1], [0.0])}))
        run = self.limited(4000, "predict", weights, inputs, "--model", path)
        self.assertEqual(run.code, FAILURE, run.stderr)
        self.assertRegex(run.stderr, r"w\.safetensors: the model's variables: no memory for 8 GiB")


class ThreadsTest(IntegrationTest):

    def test_more_threads_than_cores_cause_a_warning(self):
        run = self.train(MLP, "--limit_examples=64", "--epochs=1", threads=100)
        self.assert_exit(DONE, run)
        self.assertRegex(run.stderr, r"--threads 100: this process may use \d+ core")

    def test_thousands_of_threads_are_refused(self):
        self.assert_refused(self.train(MLP, threads=100000), "--threads")


if __name__ == "__main__":
    main()
