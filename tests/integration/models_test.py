"""Residual networks, several inputs and their data and metrics, from files to a trained cluster."""

import json
import random

from harness import DONE, REPOSITORY, IntegrationTest, main, read_summary

RESNET = REPOSITORY / "deploy/examples/cifar_resnet20.json"


def write_cifar(path, count, seed):
    """Data in CIFAR-10's binary format: each image has one colour, which gives its class, and noise."""
    draw = random.Random(seed)
    with open(path, "wb") as file:
        for example in range(count):
            label = example % 10
            planes = [40 + 20 * label, 220 - 20 * label, 60 + 120 * (label % 2)]
            noise = [bytes(min(255, max(0, plane + draw.randint(-30, 30))) for _ in range(32)) * 32 for plane in planes]
            file.write(bytes([label]) + b"".join(noise))


class ResNetTest(IntegrationTest):

    def train_resnet(self, *flags):
        with open(RESNET, encoding="utf-8") as file:
            model = json.load(file)
        for layer in model["config"]["layers"]:
            if layer["class_name"] == "BatchNormalization":
                layer["config"]["momentum"] = 0.5  # so that the statistics follow within the few steps of a test
        (self.directory / "resnet.json").write_text(json.dumps(model), encoding="utf-8")
        data = self.directory / "cifar"
        if not data.exists():
            data.mkdir()
            write_cifar(data / "data_batch_1.bin", 480, seed=1)
            write_cifar(data / "test_batch.bin", 100, seed=2)
        run = self.run_to_end("cairn", "train", "resnet.json", "--data_dir", data, "--workers=2", "--batch_size=16",
                              "--epochs=4", "--threads=1", "--summary=summary.json", *flags)
        self.assert_exit(DONE, run)
        return read_summary(self.directory / "summary.json")

    def test_a_residual_network_learns_the_same_values_on_any_number_of_servers(self):
        summary = self.train_resnet("--ps=1", "--sync_replicas", "--augment=flip")
        self.assertEqual(summary["parameters"], 274442)
        self.assertGreater(summary["val_accuracy"], 0.9)
        self.assertEqual(summary["parameters_sha256"],
                         self.train_resnet("--ps=3", "--sync_replicas", "--augment=flip")["parameters_sha256"])

    def test_a_residual_network_learns_asynchronously(self):
        summary = self.train_resnet("--ps=2")  # runs differ: the bound is well above 0.1, the accuracy of guessing
        self.assertGreater(summary["accuracy"], 0.5)
        self.assertGreater(summary["val_accuracy"], 0.3)


class TableTest(IntegrationTest):

    def test_two_inputs_are_fed_from_columns_of_a_csv_file(self):
        draw = random.Random(3)
        lines = ["left,right,label"]
        for _ in range(600):
            left, right = draw.uniform(-1, 1), draw.uniform(-1, 1)
            lines.append(f"{left:.4f},{right:.4f},{int(left > right)}")
        (self.directory / "train.csv").write_text("\n".join(lines[:501]) + "\n")
        (self.directory / "test.csv").write_text("\n".join(lines[:1] + lines[501:]) + "\n")

        def column(name):
            return {"class_name": "InputLayer", "config": {"name": name, "batch_shape": [None, 1]}}
        model = {"class_name": "Functional", "config": {"layers": [
            column("left"), column("right"),
            {"class_name": "Dense", "config": {"name": "tower", "units": 8, "activation": "tanh"},
             "inbound_nodes": [["left"], ["right"]]},
            {"class_name": "Concatenate", "config": {"name": "both"},
             "inbound_nodes": [[["tower", 0, 0, {}], ["tower", 1, 0, {}]]]},
            {"class_name": "Dense", "config": {"name": "score", "units": 1, "activation": "sigmoid"},
             "inbound_nodes": [["both"]]}],
            "input_layers": ["left", "right"], "output_layers": ["score"]},
            "compile_config": {"loss": "binary_crossentropy", "metrics": ["accuracy", "AUC"],
                               "optimizer": {"class_name": "RMSprop", "config": {"learning_rate": {
                                   "class_name": "ExponentialDecay", "config": {
                                       "initial_learning_rate": 0.02, "decay_steps": 100, "decay_rate": 0.9}}}}}}
        (self.directory / "model.json").write_text(json.dumps(model), encoding="utf-8")
        run = self.run_to_end("cairn", "train", "model.json", "--data_dir", self.directory, "--workers=2", "--ps=2",
                              "--sync_replicas", "--epochs=20", "--batch_size=25", "--threads=1",
                              "--summary=summary.json")
        self.assert_exit(DONE, run)
        summary = read_summary(self.directory / "summary.json")
        self.assertGreater(summary["val_accuracy"], 0.95)
        self.assertGreater(summary["metrics"]["val_AUC"], 0.99)


if __name__ == "__main__":
    main()
