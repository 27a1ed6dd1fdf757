"""Keras' preprocessing layers: Cairn's outputs are Keras', and such models train, resume and are exported."""

import json
import struct

from harness import DONE, REPOSITORY, USAGE, IntegrationTest, main

KERAS = REPOSITORY / "tests/support/data/keras_preprocessing"
TEXTS = REPOSITORY / "tests/support/data/keras_text"
TRAIN = ["--workers=1", "--loss=binary_crossentropy", "--sync_replicas", "--batch_size=2", "--epochs=2", "--data_dir=data"]


def floats(path):
    data = path.read_bytes()
    begin = 10 + struct.unpack_from("<H", data, 8)[0]
    return list(struct.unpack_from(f"<{(len(data) - begin) // 4}f", data, begin))


class PreprocessingTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        (self.directory / "data").mkdir()
        for name in ["train.csv", "test.csv"]:
            (self.directory / "data" / name).write_bytes((KERAS / "two_towers.csv").read_bytes())

    def outputs(self, weights, *flags):
        run = self.run_to_end("cairn", "predict", weights, KERAS / "two_towers.csv", "-o", "outputs.npy", *flags)
        self.assert_exit(DONE, run)
        return floats(self.directory / "outputs.npy")

    def test_outputs_of_adapted_models_are_those_of_keras_2_and_3(self):
        for name in ["two_towers", "keras2"]:
            with self.subTest(name=name):
                expected = floats(KERAS / f"{name}_outputs.npy")
                got = self.outputs(KERAS / f"{name}.keras")
                self.assertEqual(len(got), len(expected))
                for ours, theirs in zip(got, expected):
                    self.assertAlmostEqual(ours, theirs, delta=1e-6)

    def test_outputs_for_texts_are_those_of_keras(self):
        run = self.run_to_end("cairn", "predict", TEXTS / "reviews.keras", TEXTS / "reviews.csv", "-o", "outputs.npy")
        self.assert_exit(DONE, run)
        expected = floats(TEXTS / "reviews_outputs.npy")
        got = floats(self.directory / "outputs.npy")
        self.assertEqual(len(got), len(expected))
        for ours, theirs in zip(got, expected):
            self.assertAlmostEqual(ours, theirs, delta=1e-6)

    def test_a_model_of_texts_trains_and_keeps_its_vocabularies(self):
        for name in ["train.csv", "test.csv"]:
            (self.directory / "data" / name).write_bytes((TEXTS / "reviews.csv").read_bytes())
        run = self.run_to_end("cairn", "train", TEXTS / "reviews.keras", *TRAIN, "--train_dir=texts",
                              "--export_dir=texts_e")
        self.assert_exit(DONE, run)
        self.assertFalse((self.directory / "texts_e/model.onnx").exists())
        outputs = []
        for weights in [["texts"], ["texts_e/model.safetensors", "--model=texts_e/model.json"]]:
            run = self.run_to_end("cairn", "predict", weights[0], TEXTS / "reviews.csv", "-o", "outputs.npy", *weights[1:])
            self.assert_exit(DONE, run)
            outputs.append(floats(self.directory / "outputs.npy"))
        self.assertEqual(outputs[0], outputs[1])
        self.assertNotEqual(outputs[0], floats(TEXTS / "reviews_outputs.npy"))

    def test_the_vocabulary_is_in_every_file_of_a_trained_model(self):
        for name in ["two_towers.keras", "two_towers.json", "keras2.json"]:
            with self.subTest(name=name):
                out = name.replace(".", "_")
                run = self.run_to_end("cairn", "train", KERAS / name, *TRAIN, "--optimizer=adam", f"--train_dir={out}",
                                      f"--export_dir={out}_e")
                self.assert_exit(DONE, run)
                self.assertFalse((self.directory / f"{out}_e/model.onnx").exists())
                trained = self.outputs(out)
                exported = self.outputs(self.directory / f"{out}_e/model.safetensors", f"--model={out}_e/model.json")
                self.assertEqual(trained, exported)

    def test_tables_on_servers_have_the_ids_of_the_layers(self):
        dense = self.run_to_end("cairn", "train", KERAS / "two_towers.json", *TRAIN, "--optimizer=sgd", "--seed=3",
                                "--train_dir=dense")
        self.assert_exit(DONE, dense)
        rows = self.run_to_end("cairn", "train", KERAS / "two_towers.json", *TRAIN, "--optimizer=sgd", "--seed=3",
                               "--embedding_tables=all", "--train_dir=rows")
        self.assert_exit(DONE, rows)
        self.assertEqual(len(self.outputs("rows")), 6)

    def test_a_string_without_an_id_is_named(self):
        model = json.loads((KERAS / "two_towers.json").read_text())
        for layer in model["config"]["layers"]:
            if layer["name"] == "cities":
                layer["config"].update(num_oov_indices=0, vocabulary="cities.txt", vocabulary_size=None)
        (self.directory / "strict.json").write_text(json.dumps(model))
        (self.directory / "cities.txt").write_text("Paris\nRome\n")
        run = self.run_to_end("cairn", "train", "strict.json", *TRAIN)
        self.assert_exit(USAGE, run)
        self.assertIn("line 5: column 'city' cannot be used: input 'city': layer 'cities' (StringLookup) has no id for "
                      "'Berlin'", run.stderr)
        (self.directory / "cities.txt").unlink()
        run = self.run_to_end("cairn", "model", "strict.json")
        self.assert_exit(USAGE, run)
        self.assertIn("vocabulary of \"cities\": cities.txt: ", run.stderr)

    def test_check_says_where_ids_come_from(self):
        run = self.run_to_end("cairn", "check", "--ps_hosts=127.0.0.1:1", "--worker_hosts=127.0.0.1:2", "--timeout=0.1",
                              f"--model={KERAS / 'two_towers.json'}")
        self.assertIn("input 'city': layer 'cities' (StringLookup) makes ids of strings: a vocabulary of 4 strings, 1 id for "
                      "other values", run.stdout)
        self.assertIn("input 'age': layer 'ages' (Discretization) makes ids of numbers: 4 intervals", run.stdout)

    def test_a_hash_has_no_form_in_onnx(self):
        run = self.run_to_end("cairn", "export", KERAS / "two_towers.keras", "-o", "model.onnx")
        self.assertNotEqual(run.code, DONE)
        self.assertIn("layer 'users' (IntegerLookup): num_oov_indices is 2: ONNX has no hash", run.stderr)


if __name__ == "__main__":
    main()
