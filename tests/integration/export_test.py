"""A trained model is exported, scored by `cairn predict`, and used as the initial values of another run."""

import json
import struct

from harness import DONE, MLP, USAGE, IntegrationTest, main, read_summary, small_data

TRAINED = ["--ps=2", "--workers=2", "--sync_replicas", "--batch_size=32", "--train_steps=20"]


class ExportTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        run = self.train(MLP, *TRAINED, "--train_dir=run", "--export_dir=out/deep", "--summary=summary.json")
        self.assert_exit(DONE, run)
        self.summary = read_summary(self.directory / "summary.json")
        self.out = self.directory / "out/deep"

    def cairn(self, *arguments):
        return self.run_to_end("cairn", *arguments)

    def test_checkpoint_and_export_score_like_the_training(self):
        images, labels = (small_data() / f"t10k-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1"))
        # The file in the export directory equals the one that `cairn export` writes from the checkpoint.
        for name in ("model.onnx", "model.safetensors"):
            self.assert_exit(DONE, self.cairn("export", "run", "-o", name))
            self.assertEqual((self.directory / name).read_bytes(), (self.out / name).read_bytes())

        known = ["--labels", labels, "--threads=1"]
        run = self.cairn("predict", "run", images, *known)
        self.assert_exit(DONE, run)
        *lines, metrics = run.stdout.splitlines()
        metrics = dict(metric.split(": ") for metric in metrics.split(" - "))
        for name in ("accuracy", "loss"):
            self.assertAlmostEqual(float(metrics[name]), self.summary[f"val_{name}"], delta=1e-5)
        truth = labels.read_bytes()[8:]
        predicted = [line.split("\t") for line in lines]
        right = sum(int(number) == truth[int(example)] for example, number, _ in predicted)
        self.assertAlmostEqual(right / len(truth), self.summary["val_accuracy"], delta=1e-5)
        self.assertTrue(all(0.1 <= float(probability) <= 1 for _, _, probability in predicted))

        run = self.cairn("predict", self.out / "model.safetensors", images, "--model", self.out / "model.json", *known,
                         "-o", "outputs.npy")
        self.assert_exit(DONE, run)
        self.assertEqual(run.stdout.splitlines(), [" - ".join(f"{n}: {v}" for n, v in metrics.items())])
        outputs = (self.directory / "outputs.npy").read_bytes()
        header, = struct.unpack("<H", outputs[8:10])
        self.assertIn(b"'shape': (500, 10)", outputs[:10 + header])
        scores = struct.unpack("<5000f", outputs[10 + header:])
        first = scores[:10]
        self.assertEqual(first.index(max(first)), int(predicted[0][1]))

        # Another run begins with these values, and a step with a learning rate of 0 does not change them.
        run = self.train(MLP, "--ps=1", "--workers=1", "--sync_replicas", "--train_steps=1", "--optimizer=sgd",
                         "--learning_rate=0", f"--init_from={self.out / 'model.safetensors'}", "--summary=again.json")
        self.assert_exit(DONE, run)
        again = read_summary(self.directory / "again.json")
        self.assertEqual(again["parameters_sha256"], self.summary["parameters_sha256"])

    def test_a_file_that_does_not_fit_is_refused_before_training(self):
        other = json.loads((self.out / "model.json").read_text())
        other["config"]["layers"][-1]["config"]["units"] = 11
        (self.directory / "other.json").write_text(json.dumps(other))
        (self.directory / "other.keras").write_text("PK and no more")
        weights = self.out / "model.safetensors"
        for arguments, fault in [
                (["predict", weights, "none.npy"], "--model: .*model.safetensors contains only values"),
                (["predict", "run", "none.npy"], "none.npy"),
                (["predict", "run", self.directory / "other.json"], "other.json"),
                (["export", weights, "--model", "other.json", "-o", "x.onnx"], r"has shape \[\d+,10\], in the model \[\d+,11\]"),
                (["export", "run", "-o", "x.pb"], "--output: 'x.pb' ends in neither"),
                (["export", "other.keras", "--model", MLP, "-o", "x.onnx"], "other.keras: is not readable HDF5")]:
            with self.subTest(arguments=arguments):
                self.assert_refused(self.cairn(*arguments), fault)
        run = self.train("other.json", "--workers=1", "--init_from", weights)
        self.assertEqual(run.code, USAGE)
        self.assertRegex(run.stderr, r"--init_from: .*model.safetensors: .* in the model \[\d+,11\]")


if __name__ == "__main__":
    main()
