"""Data and models: wrong shapes, targets and missing files are refused, bytes are scaled as the layers expect, all
workers have the same data, and a resumed job continues at its position in the data."""

import json
import random
import re
import struct
import zipfile

from harness import DONE, INCOMPATIBLE, USAGE, Cluster, IntegrationTest, main, read_summary

FORMATS = {"u1": "B", "i4": "i", "i8": "q", "f4": "f"}


def npy(dtype, shape, values):
    """An array as NumPy writes it."""
    header = f"{{'descr': '<{dtype}', 'fortran_order': False, 'shape': {tuple(shape)}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header +
            struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values))


def write_npz(path, **arrays):
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(f"{name}.npy", npy(*array))


def images(shape, count=40, dtype="u1"):
    draw = random.Random(1)
    size = count
    for extent in shape:
        size *= extent
    return dtype, (count, *shape), [draw.randrange(10) for _ in range(size)]


def labels(count=40):
    return "u1", (count,), [i % 2 for i in range(count)]


def model_of(*layers, loss="SparseCategoricalCrossentropy", shape=(4, 3, 2)):
    """JSON of a model with an input of this shape and these layers."""
    first = {"class_name": "InputLayer", "config": {"batch_shape": [None, *shape], "name": "x"}}
    loss = {"class_name": loss, "config": {"from_logits": True} if "Cross" in loss else {}}
    return json.dumps({"class_name": "Sequential", "config": {"name": "m", "layers": [first, *layers]},
                       "compile_config": {"optimizer": "sgd", "loss": loss}})


def layer(class_name, **config):
    return {"class_name": class_name, "config": config}


DENSE = (layer("Flatten"), layer("Dense", units=2))


class InputsTest(IntegrationTest):

    def write(self, name, text):
        (self.directory / name).write_text(text)
        return name

    def data(self, name="data.npz", **arrays):
        write_npz(self.directory / name, **arrays)
        return name

    def train_on(self, model, data, *flags):
        path = self.write("model.json", model)
        return self.run_to_end("cairn", "train", path, "--data_dir", data, "--threads=1", "--summary=summary.json", *flags)

    def trained_on(self, *arguments):
        run = self.train_on(*arguments)
        self.assert_exit(DONE, run)
        return run, read_summary(self.directory / "summary.json")

    def refused_on(self, pattern, *arguments):
        self.assert_refused(self.train_on(*arguments), pattern)


class ShapesTest(InputsTest):

    def test_examples_of_another_shape_with_as_many_elements_are_refused(self):
        for shape, hint in (((2, 4, 3), "channels first"), ((3, 4, 2), "another order"), ((6, 4), "")):
            with self.subTest(shape):
                data = self.data(x_train=images(shape), y_train=labels())
                self.refused_on(rf"data.npz: x_train: examples have shape \[{','.join(map(str, shape))}\], "
                                rf"the model takes \[4,3,2\].*{hint}", model_of(*DENSE), data)

    def test_a_validation_set_of_another_shape_is_refused(self):
        data = self.data(x_train=images((4, 3, 2)), y_train=labels(), x_val=images((2, 4, 3)), y_val=labels())
        self.refused_on(r"x_val: examples have the shape \[2,4,3\], but those of the training set \[4,3,2\]",
                        model_of(*DENSE), data)

    def test_flat_examples_and_axes_of_length_one_give_the_same_result(self):
        results = set()
        for shape in ((4, 3, 2), (24,), (1, 4, 3, 2)):
            data = self.data(x_train=images(shape), y_train=labels())
            results.add(self.trained_on(model_of(*DENSE), data)[1]["parameters_sha256"])
        self.assertEqual(len(results), 1)

    def test_predict_refuses_examples_of_another_shape(self):
        self.data("w.npz", **{"dense/kernel": ("f4", (24, 2), [0.0] * 48), "dense/bias": ("f4", (2,), [0.0, 0.0])})
        self.write("model.json", model_of(*DENSE))
        for shape, code in (((4, 3, 2), DONE), ((24,), DONE), ((2, 4, 3), USAGE)):
            with self.subTest(shape):
                (self.directory / "x.npy").write_bytes(npy(*images(shape)))
                run = self.run_to_end("cairn", "predict", "w.npz", "x.npy", "--model=model.json")
                self.assert_exit(code, run)
                if code != DONE:
                    self.assertRegex(run.stderr, r"x.npy: examples have shape \[2,4,3\], input 'x' of the model takes "
                                                 r"\[4,3,2\]; the examples are channels first")


class BytesTest(InputsTest):

    def test_a_rescaling_layer_receives_bytes_unscaled(self):
        data = self.data(x_train=images((4, 3, 2)), y_train=labels())
        same_floats = self.data("floats.npz", x_train=images((4, 3, 2), dtype="f4"), y_train=labels())
        model = model_of(layer("Reshape", target_shape=[12, 2]), layer("Rescaling", scale=0.1, name="r"), *DENSE)
        run, of_bytes = self.trained_on(model, data)
        self.assertRegex(run.stdout, r"input 'x': uint8 values are passed as they are, since layer 'r' \(Rescaling\)")
        self.assertEqual(self.trained_on(model, same_floats)[1]["parameters_sha256"], of_bytes["parameters_sha256"])
        run, scaled = self.trained_on(model, data, "--input_scale=0.5")
        self.assertIn("input 'x': uint8 values are multiplied by 0.5 (--input_scale)", run.stdout)
        self.assertNotEqual(scaled["parameters_sha256"], of_bytes["parameters_sha256"])

    def test_a_layer_with_weights_receives_bytes_divided_by_255(self):
        data = self.data(x_train=images((4, 3, 2)), y_train=labels())
        dtype, shape, values = images((4, 3, 2), dtype="f4")
        divided = self.data("floats.npz", x_train=(dtype, shape, [v / 255 for v in values]), y_train=labels())
        run, of_bytes = self.trained_on(model_of(*DENSE), data, "--verbose")
        self.assertRegex(run.stderr, r"uint8 values are scaled by 1/255, since layer 'dense' \(Dense\)")
        of_floats = self.trained_on(model_of(*DENSE), divided)[1]
        self.assertEqual(of_bytes["parameters_sha256"], of_floats["parameters_sha256"])

    def test_token_ids_are_not_scaled_and_those_out_of_range_are_named(self):
        model = model_of(layer("Embedding", input_dim=10, output_dim=3, name="e"), *DENSE, shape=(5,))
        of_bytes = self.trained_on(model, self.data(x_train=images((5,)), y_train=labels()))[1]
        of_ints = self.trained_on(model, self.data(x_train=images((5,), dtype="i4"), y_train=labels()))[1]
        self.assertEqual(of_bytes["parameters_sha256"], of_ints["parameters_sha256"])
        dtype, shape, values = images((5,))
        values[12] = 10
        self.refused_on(r"x_train: example 2: value 2 is 10, and layer 'e' \(Embedding\) takes whole numbers from 0 to 9",
                        model, self.data(x_train=(dtype, shape, values), y_train=labels()))


class IdsTest(InputsTest):

    # Two rows that float32 cannot tell apart, and the loss of each is the distance to its own target.
    ROWS = (1 << 24) + 2
    MODEL = model_of(layer("Embedding", input_dim=ROWS, output_dim=1, embeddings_initializer="zeros", name="e"),
                     layer("Flatten"), loss="MeanSquaredError", shape=(1,))

    def test_ids_that_no_float_holds_train_rows_of_their_own(self):
        ids = ("i8", (2, 1), [self.ROWS - 2, self.ROWS - 1])
        data = self.data(x_train=ids, y_train=("f4", (2,), [1, -3]))
        # One step of rate 1 on the mean of two squares goes all the way: e - 2 (e - y) / 2 = y.
        self.trained_on(self.MODEL, data, "--ps=1", "--workers=1", "--sync_replicas", "--batch_size=2", "--train_steps=1",
                        "--optimizer=SGD", "--learning_rate=1", "--train_dir=trained")
        (self.directory / "ids.npy").write_bytes(npy("i8", (3, 1), [self.ROWS - 1, self.ROWS - 2, 0]))
        run = self.run_to_end("cairn", "predict", "trained", "ids.npy")
        self.assert_exit(DONE, run)
        self.assertEqual(run.stdout, "0\t-3\n1\t1\n2\t0\n")

    def test_ids_outside_the_table_are_named_exactly(self):
        model = model_of(layer("Embedding", input_dim=10, output_dim=3, name="e"), *DENSE, shape=(5,))
        for bad in ((1 << 24) + 1, (1 << 53) + 1, -1, -1 << 63):
            dtype, shape, values = images((5,), dtype="i8")
            values[12] = bad
            self.refused_on(rf"x_train: example 2: value 2 is {bad}, and layer 'e' \(Embedding\) takes whole numbers from 0 "
                            "to 9", model, self.data(x_train=(dtype, shape, values), y_train=labels()))

    def test_a_fraction_is_no_id(self):
        model = model_of(layer("Embedding", input_dim=10, output_dim=3, name="e"), *DENSE, shape=(5,))
        dtype, shape, values = images((5,), dtype="f4")
        self.trained_on(model, self.data(x_train=(dtype, shape, values), y_train=labels()))
        values[12] = 1.5
        self.refused_on(r"x_train: example 2: value 2 is 1.5, and the model's input takes whole numbers \(int64\)", model,
                        self.data(x_train=(dtype, shape, values), y_train=labels()))


class RaggedTest(InputsTest):

    IDS = {"class_name": "InputLayer", "config": {"batch_input_shape": [None, None], "dtype": "int64", "ragged": True,
                                                  "name": "ids"}}
    MODEL = json.dumps({"class_name": "Sequential", "config": {"name": "m", "layers": [
        IDS, layer("Embedding", input_dim=9, output_dim=1, embeddings_initializer="zeros", name="e"),
        layer("GlobalAveragePooling1D")]}, "compile_config": {"optimizer": "sgd", "loss": {
            "class_name": "MeanSquaredError", "config": {}}}})
    ONE_STEP = ["--train_steps=1", "--optimizer=SGD", "--learning_rate=1"]

    def ragged_data(self, **more):
        return self.data(x_train=("i8", (3,), [2, 5, 8]), x_train_row_splits=("i8", (3,), [0, 1, 3]),
                         y_train=("f4", (2,), [1, -3]), **more)

    def test_the_mean_over_ids_of_any_number_is_learnt(self):
        # The second example is the mean of two rows, which get half of its gradient each: -3 / 2 and -3 / 2.
        for name, *flags in (("one", "--batch_size=2"), ("two", "--batch_size=2", "--cpu_devices=2"),
                             ("ring", "--batch_size=1", "--mode=allreduce", "--workers=2")):
            with self.subTest(name):
                self.trained_on(self.MODEL, self.ragged_data(), *self.ONE_STEP, *flags, f"--train_dir={name}")
                run = self.run_to_end("cairn", "checkpoint", "consolidate", name, "-o", "all.safetensors")
                self.assert_exit(DONE, run)
                table = (self.directory / "all.safetensors").read_bytes()[-36:]
                self.assertEqual(struct.unpack("<9f", table), (0, 0, 1, 0, 0, -1.5, 0, 0, -1.5))

    def test_prediction_reads_arrays_and_csv(self):
        # Validation has a longer example than training.
        data = self.ragged_data(x_val=("i8", (4,), [2, 2, 2, 5]), x_val_row_splits=("i8", (2,), [0, 4]), y_val=("f4", (1,), [0]))
        _, summary = self.trained_on(self.MODEL, data, *self.ONE_STEP, "--batch_size=2", "--train_dir=trained")
        self.assertAlmostEqual(summary["val_loss"], 0.375 ** 2, delta=1e-6)  # the mean of 1, 1, 1 and -1.5
        config = {"cluster": {"chief": ["localhost:1"], "ps": ["localhost:2"]}, "task": {"type": "evaluator", "index": 0}}
        evaluator = self.run_to_end("cairn-worker", "--model=model.json", "--data_dir", data, "--threads=1",
                                    "--train_dir=trained", env={"TF_CONFIG": json.dumps(config)})
        self.assert_exit(DONE, evaluator)
        self.assertIn("step 1 - loss: 0.1406\n", evaluator.stdout)
        (self.directory / "ids.npy").write_bytes(npy("i8", (5,), [5, 2, 8, 0, 2]))
        splits = self.directory / "ids_row_splits.npy"
        splits.write_bytes(npy("i8", (4,), [0, 3, 4, 5]))
        expected = "0\t-0.666667\n1\t0\n2\t1\n"
        run = self.run_to_end("cairn", "predict", "trained", "ids.npy")
        self.assert_exit(DONE, run)
        self.assertEqual(run.stdout, expected)
        self.write("a.csv", "ids\n5 2 8\n0\n2\n")
        run = self.run_to_end("cairn", "predict", "trained", "a.csv")
        self.assert_exit(DONE, run)
        self.assertEqual(run.stdout, expected)

        self.write("a.csv", "ids\n5 2 8\n9\n")
        run = self.run_to_end("cairn", "predict", "trained", "a.csv")
        self.assert_exit(USAGE, run)
        self.assertRegex(run.stderr, r"example 1: value 0 is 9, and layer 'e' \(Embedding\) takes whole numbers from 0 to 8")
        splits.write_bytes(npy("i8", (4,), [0, 3, 3, 5]))
        run = self.run_to_end("cairn", "predict", "trained", "ids.npy")
        self.assert_exit(DONE, run)
        self.assertEqual(run.stdout, "0\t-0.666667\n1\t0\n2\t0.5\n")  # the mean of no rows is 0
        (self.directory / "ids.npy").write_bytes(npy("i8", (0,), []))
        splits.write_bytes(npy("i8", (3,), [0, 0, 0]))
        run = self.run_to_end("cairn", "predict", "trained", "ids.npy")
        self.assert_exit(DONE, run)
        self.assertEqual(run.stdout, "0\t0\n1\t0\n")
        splits.unlink()
        self.assert_refused(self.run_to_end("cairn", "predict", "trained", "ids.npy"),
                            "input 'ids' of the model is ragged: ids.npy has its values, but its row splits are missing: "
                            "ids_row_splits.npy")

    def test_a_model_divided_over_workers_gives_the_bits_of_one_worker(self):
        model = json.dumps({"class_name": "Sequential", "config": {"name": "m", "layers": [
            self.IDS, layer("Embedding", input_dim=9, output_dim=4, name="e"), layer("GlobalAveragePooling1D", name="mean"),
            layer("Dense", units=1, name="d")]}, "compile_config": {"optimizer": "sgd", "loss": {
                "class_name": "MeanSquaredError", "config": {}}}})
        _, alone = self.trained_on(model, self.ragged_data(), "--batch_size=2", "--train_steps=5", "--workers=1")
        for first, second in ((0, 1), (1, 0)):
            place = f"--place=e=/job:worker/task:{first},mean=/job:worker/task:{first},d=/job:worker/task:{second}"
            _, divided = self.trained_on(model, self.ragged_data(), "--batch_size=2", "--train_steps=5", "--workers=2", place,
                                         "--micro_batches=1")
            self.assertEqual(divided["parameters_sha256"], alone["parameters_sha256"])


class TargetsTest(InputsTest):

    def test_targets_that_do_not_fit_the_loss_are_named(self):
        one = model_of(layer("Dense", units=1), loss="BinaryCrossentropy", shape=(2,))
        self.write("a.csv", "a,b,label\n0.5,1,1\n0.25,1,-1\n1,1,1\n")
        self.refused_on(r"a.csv: example 1: the target is -1; BinaryCrossentropy admits 0 to 1", one, "a.csv")
        self.write("a.csv", "a,b,label\n0.5,1,0.5\n0.25,1,5.5\n")
        self.refused_on(r"a.csv: example 1: the target is 5.5; BinaryCrossentropy", one, "a.csv")
        two = model_of(layer("Dense", units=2), loss="CategoricalCrossentropy", shape=(2,))
        x = ("f4", (2, 2), [1, 2, 3, 4])
        data = self.data(x_train=x, y_train=("f4", (2, 2), [0, 1, 1.5, -0.5]))
        self.refused_on(r"y_train: example 1: the target is 1.5; CategoricalCrossentropy admits 0 to 1", two, data)

    def test_target_probabilities_that_do_not_sum_to_one_cause_a_warning(self):
        two = model_of(layer("Dense", units=2), loss="CategoricalCrossentropy", shape=(2,))
        data = self.data(x_train=("f4", (2, 2), [1, 2, 3, 4]), y_train=("f4", (2, 2), [0, 1, 1, 1]))
        run, _ = self.trained_on(two, data)
        self.assertIn("y_train: example 1: the target adds up to 2; CategoricalCrossentropy expects", run.stderr)


class SeveralOutputsTest(InputsTest):

    MODEL = json.dumps({"class_name": "Functional", "config": {"name": "m", "layers": [
        {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [None, 2]}, "inbound_nodes": []},
        {"class_name": "Dense", "config": {"name": "trunk", "units": 4, "activation": "tanh"}, "inbound_nodes": [["x"]]},
        {"class_name": "Dense", "config": {"name": "kind", "units": 3}, "inbound_nodes": [["trunk"]]},
        {"class_name": "Dense", "config": {"name": "size", "units": 2}, "inbound_nodes": [["trunk"]]}],
        "input_layers": [["x", 0, 0]], "output_layers": [["kind", 0, 0], ["size", 0, 0]]},
        "compile_config": {"optimizer": "sgd", "loss_weights": {"kind": 1, "size": 0.5}, "metrics": {"size": ["mae"]}, "loss": {
            "kind": {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": True}}, "size": "mse"}}})

    def arrays(self, **others):
        kinds = [i % 3 for i in range(40)]
        inputs = [value for i, kind in enumerate(kinds) for value in (kind - 1, i / 20 - 1)]
        arrays = {"x_train": ("f4", (40, 2), inputs), "y_train_kind": ("i8", (40,), kinds),
                  "y_train_size": ("f4", (40, 2), [value / 2 for value in inputs])} | others
        return self.data(**{name: array for name, array in arrays.items() if array is not None})

    def test_they_learn_and_are_predicted_by_name(self):
        data = self.arrays(x_val=("f4", (2, 2), [1, 0, -1, 0.5]), y_val_kind=("u1", (2,), [2, 0]),
                           y_val_size=("f4", (2, 2), [0.5, 0, -0.5, 0.25]))
        run, _ = self.trained_on(self.MODEL, data, "--epochs=60", "--learning_rate=0.2", "--batch_size=8",
                                       "--train_dir=trained", "--monitor=val_size_mae", "--early_stopping=50")
        self.assertRegex(run.stdout, r"kind_loss: \d.* - loss: \d.* - size_loss: \d.* - size_mae: \d.* - val_kind_loss: \d")
        ending = {name: float(value) for name, value in re.findall(r"val_(\w+) ([\d.]+\d)", run.stdout)}
        self.assertLess(ending["size_mae"], 0.1)
        self.assertAlmostEqual(ending["loss"], ending["kind_loss"] + ending["size_loss"] / 2, delta=2e-4)

        (self.directory / "x.npy").write_bytes(npy("f4", (2, 2), [1, 0, -1, 0.5]))
        (self.directory / "y_kind.npy").write_bytes(npy("u1", (2,), [2, 0]))
        (self.directory / "y_size.npy").write_bytes(npy("f4", (2, 2), [0.5, 0, -0.5, 0.25]))
        run = self.run_to_end("cairn", "predict", "trained", "x.npy", "--labels=y.npy")
        self.assert_exit(DONE, run)
        first, second, metrics, *_ = run.stdout.split("\n")
        self.assertRegex(first, r"^0\tkind\t2\t0\.\d+\tsize\t0\.\d+\t-?\d\S*$")
        self.assertRegex(second, r"^1\tkind\t0\t0\.\d+\tsize\t-0\.\d+\t\S+$")
        values = dict(metric.split(": ") for metric in metrics.split(" - "))
        for name in ("loss", "kind_loss", "size_loss", "size_mae"):
            self.assertAlmostEqual(float(values[name]), ending[name], delta=1e-4)
        self.assert_exit(DONE, self.run_to_end("cairn", "predict", "trained", "x.npy", "--output=out.npy"))
        for name, shape in (("kind", "(2, 3)"), ("size", "(2, 2)")):
            self.assertIn(shape.encode(), (self.directory / f"out_{name}.npy").read_bytes())

    def test_targets_in_one_array_give_the_same_bits(self):
        flags = ("--batch_size=8", "--train_steps=5")
        _, by_name = self.trained_on(self.MODEL, self.arrays(), *flags)
        joined = [value for i in range(40) for value in (i % 3, (i % 3 - 1) / 2, (i / 20 - 1) / 2)]
        data = self.arrays(y_train_kind=None, y_train_size=None, y_train=("f4", (40, 3), joined))
        _, in_one = self.trained_on(self.MODEL, data, *flags)
        self.assertEqual(in_one["parameters_sha256"], by_name["parameters_sha256"])

    def test_a_model_divided_over_workers_gives_the_bits_of_one_worker(self):
        flags = ("--batch_size=8", "--train_steps=5", "--micro_batches=1")
        _, alone = self.trained_on(self.MODEL, self.arrays(), *flags[:2], "--workers=1")
        place = "--place=trunk=/job:worker/task:0,kind=/job:worker/task:1,size=/job:worker/task:0"
        run, divided = self.trained_on(self.MODEL, self.arrays(), *flags, "--workers=2", place)
        self.assertEqual(divided["parameters_sha256"], alone["parameters_sha256"])
        self.assertRegex(run.stdout, r"size_loss: \d")

    def test_each_output_has_weights(self):
        weights = [i % 4 / 2 for i in range(40)]
        flags = ("--epochs=2", "--sync_replicas")

        def trained(workers=1, **arrays):
            given = {f"sample_weight_train_{name}": ("f4", (40,), values) for name, values in arrays.items()}
            given |= {"x_val": ("f4", (2, 2), [1, 0, -1, 0.5]), "y_val_kind": ("u1", (2,), [2, 0]),
                      "y_val_size": ("f4", (2, 2), [0.5, 0, -0.5, 0.25])}
            return self.trained_on(self.MODEL, self.arrays(**given), *flags, f"--workers={workers}",
                                   f"--batch_size={8 // workers}")[1]

        of_all = self.trained_on(self.MODEL, self.arrays(sample_weight_train=("f4", (40,), weights)), *flags,
                                 "--workers=1", "--batch_size=8")[1]
        both = trained(kind=weights, size=weights)
        self.assertEqual(both["parameters_sha256"], of_all["parameters_sha256"])
        one = trained(kind=weights)
        self.assertNotEqual(one["parameters_sha256"], both["parameters_sha256"])
        self.assertEqual(trained(kind=weights, size=[1] * 40)["parameters_sha256"], one["parameters_sha256"])
        without = trained(size=[0] * 40)
        self.assertEqual(without["metrics"]["size_loss"], 0)
        self.assertGreater(without["metrics"]["kind_loss"], 0)
        two = trained(2, kind=weights)
        self.assertAlmostEqual(two["metrics"]["val_loss"], one["metrics"]["val_loss"], delta=1e-5)

    def test_batches_of_like_lengths_have_the_weights_of_each_output(self):
        model = json.dumps({"class_name": "Functional", "config": {"name": "m", "layers": [
            {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [None, None], "dtype": "int32"},
             "inbound_nodes": []},
            {"class_name": "Embedding", "config": {"name": "e", "input_dim": 9, "output_dim": 4, "mask_zero": True},
             "inbound_nodes": [["x"]]},
            {"class_name": "Dense", "config": {"name": "tags", "units": 3}, "inbound_nodes": [["e"]]},
            {"class_name": "GlobalAveragePooling1D", "config": {"name": "mean"}, "inbound_nodes": [["e"]]},
            {"class_name": "Dense", "config": {"name": "kind", "units": 1}, "inbound_nodes": [["mean"]]}],
            "input_layers": [["x", 0, 0]], "output_layers": [["tags", 0, 0], ["kind", 0, 0]]},
            "compile_config": {"optimizer": "sgd", "loss": {"kind": "mse", "tags": {
                "class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": True}}},
                "weighted_metrics": {"tags": ["accuracy"], "kind": ["mae"]}}})
        examples, steps = 24, 6
        ids = [1 + (5 * i + j) % 8 if j <= i % steps else 0 for i in range(examples) for j in range(steps)]
        data = self.data(x_train=("i4", (examples, steps), ids),
                         y_train_tags=("u1", (examples, steps), [i % 3 for i in range(examples * steps)]),
                         y_train_kind=("f4", (examples,), [i / 24 for i in range(examples)]),
                         sample_weight_train_tags=("f4", (examples, steps), [i % 5 / 2 for i in range(examples * steps)]),
                         sample_weight_train_kind=("f4", (examples,), [i % 4 / 2 for i in range(examples)]))
        flags = "--batch_size=1", "--workers=1", "--epochs=2", "--learning_rate=0.1"
        plain = self.trained_on(model, data, *flags)[1]["metrics"]
        buckets = self.trained_on(model, data, *flags, "--bucket_boundaries=2,4")[1]["metrics"]
        self.assertEqual(len(plain), 5)
        for name, value in plain.items():
            self.assertAlmostEqual(buckets[name], value, 5, name)

    def test_weights_that_do_not_fit_name_the_output(self):
        weights = "f4", (40,), [1] * 40
        self.refused_on("sample_weight_train_size exists in addition to sample_weight_train", self.MODEL,
                        self.arrays(sample_weight_train=weights, sample_weight_train_size=weights))
        self.refused_on(r"sample_weight_train_size: examples have weights of the shape \[3\]; output 'size' of the shape "
                        r"\[2\] takes one weight for each example", self.MODEL,
                        self.arrays(sample_weight_train_size=("f4", (40, 3), [1] * 120)))
        run = self.train_on(self.MODEL, self.arrays(sample_weight_train_size=weights), "--workers=2",
                            "--place=trunk=/job:worker/task:0,kind=/job:worker/task:1,size=/job:worker/task:0")
        self.assert_exit(USAGE, run)
        self.assertIn("weights of rows, or of each output, are not supported with a model that is divided", run.stderr)

    def test_targets_that_do_not_fit_name_the_output(self):
        self.refused_on("y_train_size: 1 targets per example, output 'size' of the model needs 2", self.MODEL,
                        self.arrays(y_train_size=("f4", (40,), [0] * 40)))
        self.refused_on("y_train_size: 39 examples, but data.npz: y_train_kind has 40", self.MODEL,
                        self.arrays(y_train_size=("f4", (39, 2), [0] * 78)))
        self.refused_on(r"y_train_kind: example 1, output 'kind' has 7", self.MODEL,
                        self.arrays(y_train_kind=("i8", (40,), [0, 7] * 20)))
        self.refused_on(r"the outputs of the model need 3 targets per example \(1 for 'kind', 2 for 'size'\), the data has 1",
                        self.MODEL, self.arrays(y_train_kind=None, y_train_size=None, y_train=labels()))
        self.refused_on("y_train_size", self.MODEL, self.arrays(y_train_size=None))


class PartsTest(InputsTest):

    def test_a_missing_file_of_a_set_is_named(self):
        one = model_of(layer("Dense", units=1), loss="MeanSquaredError", shape=(2,))
        (self.directory / "d").mkdir()
        for piece in (0, 2):
            self.write(f"d/train-0000{piece}-of-00003.csv", "a,b,label\n0.5,1,1.5\n")
        self.refused_on("of 3 pieces 1 is missing: train-00001-of-00003.csv", one, "d")

    def test_validation_arrays_are_used_and_logged(self):
        data = self.data(x_train=images((4, 3, 2)), y_train=labels(), x_val=images((4, 3, 2), 8), y_val=labels(8))
        run, summary = self.trained_on(model_of(*DENSE), data)
        self.assertIn("validation on the arrays x_val and y_val\n", run.stdout)
        self.assertIn("val_loss", summary)

    def start_worker(self, cluster, index, data):
        cluster_flags, _ = cluster.by_flags("worker", index)
        return self.start("cairn-worker", *cluster_flags, "--job_name=worker", f"--task_index={index}", "--threads=1",
                          "--model=model.json", "--sync_replicas", "--data_dir", data, name=f"worker/{index}")

    def test_workers_with_other_data_than_the_chief_are_refused(self):
        self.write("model.json", model_of(*DENSE))
        self.data("mine.npz", x_train=images((4, 3, 2)), y_train=labels())
        dtype, shape, values = images((4, 3, 2))
        values[0] += 1
        self.data("other.npz", x_train=(dtype, shape, values), y_train=labels())
        self.data("more.npz", x_train=images((4, 3, 2), 41), y_train=labels(41))
        cluster = Cluster(self, workers=3)
        cluster.start("ps", 0)
        self.start_worker(cluster, 0, "mine.npz")
        refused = {data: self.start_worker(cluster, index, data) for index, data in ((1, "other.npz"), (2, "more.npz"))}
        self.assert_exit(INCOMPATIBLE, *refused.values())
        self.assertRegex(refused["other.npz"].stderr, "contents of the training data .* by digest: [0-9a-f]+ here, ")
        self.assertIn("training examples: 41 here, 40 on the servers", refused["more.npz"].stderr)


class WeightsTest(InputsTest):
    """Weights of the tokens of examples, 8 examples of 3 tokens."""

    TAGGER = model_of(layer("Embedding", input_dim=10, output_dim=4), layer("Dense", units=2, name="d"), shape=(3,))

    def losses_with(self, weights, workers):
        x, y = images((3,), 8, "i4"), ("u1", (8, 3), [i % 2 for i in range(24)])
        data = self.data(x_train=x, y_train=y, x_val=x, y_val=y, sample_weight_train=("f4", (8, 3), weights))
        summary = self.trained_on(self.TAGGER, data, "--sync_replicas", f"--workers={workers}",
                                  f"--batch_size={4 // workers}", "--epochs=3", "--learning_rate=1")[1]
        return summary["metrics"]["loss"], summary["metrics"]["val_loss"]

    def test_tokens_have_weights_whatever_the_number_of_workers(self):
        weights = [i % 5 / 2 for i in range(24)]
        loss = self.losses_with(weights, 1)[1]
        self.assertAlmostEqual(self.losses_with(weights, 2)[1], loss, 5)
        self.assertNotAlmostEqual(self.losses_with([1.0] * 24, 1)[1], loss, 3)
        self.assertEqual(self.losses_with([0.0] * 24, 1)[0], 0)

    def test_weights_of_another_shape_are_refused(self):
        for shape, message in (((8, 4), r"examples have weights of the shape \[4\]; output 'd' of the shape \[3,2\] takes "
                                        r"weights \[examples\] or, for each of its rows, of the shape \[3\]"),
                               ((7, 3), r"x_train has 8 examples, but .*sample_weight_train has 7 weights")):
            data = self.data(x_train=images((3,), 8, "i4"), y_train=("u1", (8, 3), [i % 2 for i in range(24)]),
                             sample_weight_train=("f4", shape, [1.0] * (shape[0] * shape[1])))
            self.refused_on(message, self.TAGGER, data)
        data = self.data(x_train=images((4, 3, 2)), y_train=labels(), sample_weight_train=("f4", (40, 4), [1.0] * 160))
        self.refused_on(r"sample_weight_train: examples have weights of the shape \[4\]; output 'dense' of the shape "
                        r"\[2\] takes one weight for each example", model_of(*DENSE), data)


class ResumeTest(InputsTest):

    def test_a_resumed_job_continues_its_epochs_with_another_batch_size(self):
        data = self.data(x_train=images((4, 3, 2)), y_train=labels())
        for mode in ("sync", "async", "allreduce"):
            with self.subTest(mode):
                flags = [f"--mode={mode}", f"--train_dir={mode}"]
                self.trained_on(model_of(*DENSE), data, "--epochs=4", "--batch_size=5", *flags)
                run, summary = self.trained_on(model_of(*DENSE), data, "--epochs=6", "--batch_size=20", *flags)
                self.assertIn("the job ends at step 36", run.stderr)  # 4 * 8 + 2 * 2
                self.assertEqual((summary["global_step"], summary["epochs"], summary["examples"]), (36, 6, 240))
                self.assertRegex(run.stdout, "^Epoch 5/6\n(.*\n)*Epoch 6/6\n")
        # It resumes once more with the first batch size.
        run, summary = self.trained_on(model_of(*DENSE), data, "--epochs=7", "--batch_size=5", *flags)
        self.assertEqual((summary["global_step"], summary["epochs"], summary["examples"]), (36 + 8, 7, 280))


if __name__ == "__main__":
    main()
