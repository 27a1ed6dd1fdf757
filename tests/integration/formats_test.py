"""Data files of other programs: the values that are read are right, and errors name what cannot be read."""

import json
import math
import os
import struct
import zlib

from harness import DONE, FAILURE, INCOMPATIBLE, USAGE, IntegrationTest, main, read_summary


def npy(shape, dtype, data):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def png(width, height, value):
    """A PNG file of a gray image of one value, as the specification defines it."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = (b"\x00" + bytes([value]) * width) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def layer(class_name, **config):
    return {"class_name": class_name, "config": config}


FROM_LOGITS = {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": True}}


class FormatsTest(IntegrationTest):

    def write(self, name, contents):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return path

    def model(self, shape, loss, *layers, metrics=()):
        first = layer("InputLayer", batch_shape=[None, *shape])
        return self.write("model.json", json.dumps({
            "class_name": "Sequential", "config": {"name": "m", "layers": [first, *layers]},
            "compile_config": {"optimizer": "sgd", "loss": loss, "metrics": list(metrics)}}))

    def cairn(self, *arguments):
        return self.run_to_end("cairn", *arguments)

    def begin(self, model, data, *flags):
        return self.cairn("train", model, "--data_dir", data, "--ps=1", "--workers=1", "--threads=1", *flags)

    def first_epoch(self, model, data, train_dir):
        """The values in log.csv of an epoch with a learning rate of 0, by name."""
        run = self.begin(model, data, "--epochs=1", "--learning_rate=0", "--train_dir", train_dir)
        self.assert_exit(DONE, run)
        names, row = (line.split(",") for line in (self.directory / train_dir / "log.csv").read_text().split()[:2])
        return dict(zip(names, row))

    def test_words_are_class_labels_in_training_and_prediction(self):
        model = self.model([2], FROM_LOGITS, layer("Dense", units=2))
        data = self.write("animals.csv", "# by hand\na;b;label\n1,5;2;dog\n-1;0,25;cat\n")
        run = self.begin(model, data, "--epochs=2", "--train_dir=run", "--export_dir=out")
        self.assert_exit(DONE, run)
        self.assertIn("separator ';', decimal comma, label column 'label' (2 classes: 0 'cat', 1 'dog'), 1 comment",
                      run.stdout)
        for folder in ("run", "out"):
            self.assertEqual((self.directory / folder / "class_names.txt").read_text(), "cat\ndog\n")

        labelled = self.cairn("predict", "run", data)
        self.assert_exit(DONE, labelled)
        *lines, metrics = labelled.stdout.splitlines()
        self.assertRegex(lines[0], r"^0\t(cat|dog)\t0\.\d+$")
        self.assertRegex(metrics, r"accuracy: \d.* - loss: \d")
        bare = self.cairn("predict", "run", self.write("bare.csv", "1,5;2\n-1;0,25\n"))
        self.assertEqual(bare.stdout.splitlines(), lines, bare.stderr)

        other = self.begin(model, self.write("other.csv", "1,2,ant\n3,4,cat\n"), "--epochs=3", "--train_dir=run")
        self.assert_exit(USAGE, other)
        self.assertIn("class_names.txt: has 2 classes: 0 'cat', 1 'dog'; the training set has 2 classes: 0 'ant', 1 'cat'; "
                      "class 0 is 'cat' there, 'ant' here", other.stderr)
        numbers = self.begin(model, self.write("numbers.csv", "1,2,0\n3,4,1\n"), "--init_from=out/model.safetensors")
        self.assert_refused(numbers, r"out/class_names.txt: has 2 classes.*the labels of the training set are numbers")

    def trained_on_columns(self, *flags):
        """Trains on columns a, b, c with the label y, into `run` and `out`."""
        model = self.model([3], "mse", layer("Dense", units=1))
        self.rows = [(a / 8, (a * 3 % 8) / 8, (a * 5 % 8) / 8) for a in range(8)]
        data = self.write("abc.csv", self.columns("a,b,c,y"))
        self.assert_exit(DONE, self.begin(model, data, "--label_column=y", "--epochs=2", "--train_dir=run",
                                          "--export_dir=out", *flags))
        return model, data

    def columns(self, header):
        """The same examples with their columns in the order of `header`."""
        lines = [dict(a=a, b=b, c=c, y=a + 2 * b + 4 * c) for a, b, c in self.rows]
        return header + "\n" + "".join(",".join(str(line[name]) for name in header.split(",")) + "\n" for line in lines)

    def test_prediction_uses_the_columns_and_scale_of_training(self):
        model, data = self.trained_on_columns("--input_scale=0.5")
        expected = self.cairn("predict", "run", data)
        self.assert_exit(DONE, expected)
        others = [self.write(f"other{i}.csv", self.columns(header)) for i, header in enumerate(("y,c,a,b", "b,a,c"))]
        for weights in (["run"], ["out/model.safetensors", "--model", model]):
            for other in others:
                run = self.cairn("predict", *weights, other)
                self.assert_exit(DONE, run)
                self.assertEqual(run.stdout.splitlines()[:8], expected.stdout.splitlines()[:8])
                self.assertRegex(run.stderr, r"as in .*preprocessing.json: columns a, b, c; label y; --input_scale 0.5")
        for flags, fault in (([], "has no column 'b', which the model was trained on; it has: a, c"),
                             (["--input_scale=1"], "are multiplied by 1, in training by 0.5"),
                             (["--feature_column=c,a,b"], "are columns c, a, b, but in training they were a, b, c")):
            path = others[0] if flags else self.write("few.csv", self.columns("a,c"))
            self.assert_refused(self.cairn("predict", "run", path, *flags), fault)

    def test_a_resumed_job_uses_the_columns_and_scale_of_training(self):
        model, data = self.trained_on_columns("--input_scale=0.5")
        other = self.write("other.csv", self.columns("y,c,a,b"))
        for flags, fault in ((["--input_scale=1"], "are multiplied by 1, in training by 0.5"),
                             (["--label_column=c"], "--label_column: the label is column 'c', but in training it was 'y'")):
            self.assert_refused(self.begin(model, other, "--train_dir=run", "--epochs=3", *flags), fault)
        digests = set()
        for path, directory in ((data, "straight"), (other, "reordered")):
            run = self.begin(model, path, "--resume=run", "--train_dir", directory, "--epochs=3", "--noshuffle",
                             f"--summary={directory}.json")
            self.assert_exit(DONE, run)
            self.assertIn("preprocessing.json: columns a, b, c; label y; --input_scale 0.5", run.stdout)
            digests.add(read_summary(self.directory / f"{directory}.json")["parameters_sha256"])
        self.assertEqual(len(digests), 1)
        tuned = self.begin(model, data, "--label_column=y", "--init_from=out/model.safetensors")
        self.assert_exit(DONE, tuned)
        self.assertIn("out/preprocessing.json: --input_scale: the numbers of input 'input_layer' are multiplied by 1, "
                      "in training by 0.5", tuned.stderr)

    def test_an_evaluator_with_other_preprocessing_is_refused(self):
        config = {"cluster": {"chief": ["localhost:1"], "ps": ["localhost:2"], "worker": ["localhost:3"]},
                  "task": {"type": "evaluator", "index": 0}}
        self.rows = [(1, 2, 3)]
        model = self.model([3], "mse", layer("Dense", units=1))
        data = self.write("abc.csv", self.columns("a,b,c,y"))
        evaluator = self.start("cairn-worker", "--model", model, "--data_dir", data, "--train_dir=run", "--input_scale=2",
                               env={"TF_CONFIG": json.dumps(config)})
        self.assert_says(evaluator, "evaluating the checkpoints in run")
        self.trained_on_columns("--input_scale=0.5")
        self.assert_exit(INCOMPATIBLE, evaluator)
        self.assertIn("are multiplied by 2, in training by 0.5", evaluator.stderr)

    def test_whole_floats_are_class_labels(self):
        model = self.model([1], FROM_LOGITS, layer("Dense", units=2))
        self.write("data/x_train.npy", npy("(2, 1)", "<f4", struct.pack("<2f", 1, 2)))
        labels = self.write("data/y_train.npy", npy("(2,)", "<f4", struct.pack("<2f", 1, 0)))
        self.assert_exit(DONE, self.begin(model, "data", "--epochs=2", "--train_dir=run"))
        predicted = self.cairn("predict", "run", "data/x_train.npy", "--labels", labels, "--metrics=accuracy")
        self.assert_exit(DONE, predicted)
        self.assertIn("accuracy: ", predicted.stdout)
        self.write("data/y_train.npy", npy("(2,)", "<f4", struct.pack("<2f", 1, 0.5)))
        self.assert_refused(self.begin(model, "data"), r"y_train.npy: example 1: the target is 0.5; .* admits non-negative integers")
        self.assert_refused(self.cairn("predict", "run", "data/x_train.npy", "--labels", labels),
                            r"example 1: the target is 0.5")

    def test_a_normalization_without_statistics_is_named(self):
        model = self.model([1], "mse", layer("Normalization", name="norm", axis=[-1]), layer("Dense", units=1))
        run = self.begin(model, self.write("a.csv", "x,label\n1,2\n3,5\n"))
        self.assert_exit(DONE, run)
        self.assertIn("layer 'norm' (Normalization) passes its inputs unchanged", run.stderr)

    def test_numbers_that_are_not_decimal_are_refused_by_line_and_column(self):
        model = self.model([2], "mse", layer("Dense", units=1))
        run = self.begin(model, self.write("hex.csv", "a,b,label\n0x10,1,0\n1,1,1\n"))
        self.assert_refused(run, r"hex.csv: line 2: column 'a' holds '0x10', which is not a number")

    def test_folders_of_images_are_class_labels(self):
        model = self.model([4, 4, 1], FROM_LOGITS, layer("Flatten"), layer("Dense", units=2))
        for value, name in enumerate(["train/a/0.png", "train/b/0.png", "val/b/0.png"]):
            self.write(f"images/{name}", png(4, 4, 50 * value))
        run = self.begin(model, "images", "--epochs=2", "--train_dir=run")
        self.assert_exit(DONE, run)
        self.assertIn("train: 2 images, 2 classes: 0 'a', 1 'b'", run.stdout)
        self.assertRegex(run.stdout, "val_loss")
        predicted = self.cairn("predict", "run", "images/train")
        self.assert_exit(DONE, predicted)
        self.assertIn("accuracy: ", predicted.stdout)

        self.write("images/train/b/1.png", png(4, 4, 7)[:50])
        damaged = self.begin(model, "images", "--epochs=1")
        self.assert_exit(FAILURE, damaged)
        self.assertIn("train/b/1.png: is a damaged PNG", damaged.stderr)

    def test_masks_have_a_class_for_each_pixel(self):
        # Scores of 0 for 3 classes: the loss is ln 3 whatever the mask, and the first class is the prediction.
        model = self.model([2, 3, 1], FROM_LOGITS, layer("Conv2D", filters=3, kernel_size=[1, 1],
                                                         kernel_initializer="zeros"), metrics=["accuracy"])
        self.write("masks/x_train.npy", npy("(2, 2, 3, 1)", "<f4", struct.pack("<12f", *range(12))))
        mask = bytes([0, 1, 2, 0, 0, 0, 2, 2, 2, 1, 1, 0])
        for run, shape in (("two", "(2, 2, 3)"), ("three", "(2, 2, 3, 1)")):
            self.write("masks/y_train.npy", npy(shape, "|u1", mask))
            values = self.first_epoch(model, "masks", run)
            self.assertAlmostEqual(float(values["loss"]), math.log(3), places=5)
            accuracy = next(float(value) for name, value in values.items() if name.endswith("accuracy"))
            self.assertAlmostEqual(accuracy, 5 / 12, places=5)
        self.write("masks/y_train.npy", npy("(2, 3, 2)", "|u1", mask))
        self.assert_refused(self.begin(model, "masks"), r"needs targets of the shape \[2,3\], the data has \[3,2\]")

    def test_an_autoencoder_has_images_as_targets(self):
        # The output is 0: the loss is the mean square of the targets.
        model = self.model([2, 2, 1], "mse", layer("Conv2D", filters=1, kernel_size=[1, 1],
                                                   kernel_initializer="zeros"))
        for name in ("x_train", "y_train"):
            self.write(f"images/{name}.npy", npy("(1, 2, 2, 1)", "<f4", struct.pack("<4f", 1, 2, 3, 4)))
        self.assertAlmostEqual(float(self.first_epoch(model, "images", "run")["loss"]), 7.5, places=4)

    def test_the_inputs_that_are_targets_are_checked(self):
        self.write("images/x_train.npy", npy("(1, 2, 2, 1)", "<f4", struct.pack("<4f", 1, 2, 3, 4)))
        shares = self.model([2, 2, 1], "binary_crossentropy", layer("Conv2D", filters=1, kernel_size=[1, 1]))
        self.assert_refused(self.begin(shares, "images", "--autoencoder"),
                            "example 0: the input, which is the target, is 2; BinaryCrossentropy admits 0 to 1")

    def test_a_fifo_among_the_files_is_refused_without_blocking(self):
        model = self.model([2], "mse", layer("Dense", units=1))
        (self.directory / "data").mkdir()
        for name in ("data/x_train.npy", "data/y_train.npy", "fifo.json", "fifo.npz"):
            os.mkfifo(self.directory / name)
        for arguments in ([model, "data"], ["fifo.json", "data"], [model, "fifo.npz"]):
            self.assert_refused(self.begin(*arguments), "is not a regular file")

    def test_a_file_that_is_cut_short_while_training_is_named(self):
        model = self.model([1024], "mse", layer("Dense", units=1))
        rows = 2048
        self.write("data/y_train.npy", npy(f"({rows},)", "<f4", bytes(4 * rows)))
        inputs = self.write("data/x_train.npy", npy(f"({rows}, 1024)", "<f4", bytes(4096 * rows)))
        run = self.start("cairn", "train", model, "--data_dir=data", "--ps=1", "--workers=1", "--epochs=1000000",
                         "--threads=1")
        self.assert_says(run, "loss")
        os.truncate(inputs, 4096)
        self.assert_exit(FAILURE, run)
        self.assertIn("x_train.npy: was cut short while it was in use", run.stderr)


if __name__ == "__main__":
    main()
