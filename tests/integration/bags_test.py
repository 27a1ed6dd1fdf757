"""Bags of ids with weights, in tables on the servers: the right mean whatever the bags, and one line about bad data."""

import itertools
import json
import pathlib
import random

from harness import DONE, IntegrationTest, main, read_summary
from embedding_tables_test import layer

ROWS, RATE, BATCH = 50, 0.05, 4
EXAMPLES_DIR = pathlib.Path(__file__).parents[2] / "deploy/examples"


def model(optimizer="sgd", rows=ROWS, combiner="sum", dtype="int64"):
    """A linear model: the sum of weights times rows of one column."""
    return json.dumps({
        "class_name": "Functional",
        "config": {"name": "linear", "layers": [
            layer("InputLayer", "ids", [], batch_shape=[None, None], dtype=dtype, ragged=True),
            layer("InputLayer", "values", [], batch_shape=[None, None], ragged=True),
            layer("EmbedReduce", "table", ["ids", "values"], input_dim=rows, output_dim=1, combiner=combiner,
                  embeddings_initializer="zeros"),
            layer("Activation", "score", ["table"], activation="linear")],
                   "input_layers": [["ids", 0, 0], ["values", 0, 0]], "output_layers": [["score", 0, 0]]},
        "compile_config": {"optimizer": optimizer, "loss": "mean_squared_error"}})


def bags():
    """Examples (target, [(id, weight)]): a batch without ids, a bag of 100,000, a short last batch."""
    draw = random.Random(1)
    some = [(draw.uniform(-1, 1), [(draw.randrange(ROWS), draw.choice((0.5, 1, -1))) for _ in range(draw.randrange(1, 5))])
            for _ in range(6)]
    return (some[:3] + [(0.75, [(i % ROWS, 1e-4) for i in range(100_000)])] + [(0.5, [])] * BATCH + [(1.25, [])] + some[3:] +
            [(-0.5, []), (2.0, [(7, 1), (7, 1)])])


def scores(table, examples):
    return [sum(weight * table[i] for i, weight in bag) for _, bag in examples]


def loss_after(examples, epochs):
    """The loss of the whole set after epochs of SGD, by the definition of the mean over the examples of a batch."""
    table = [0.0] * ROWS
    for _, begin in itertools.product(range(epochs), range(0, len(examples), BATCH)):
        batch = examples[begin:begin + BATCH]
        before = scores(table, batch)
        for score, (target, bag) in zip(before, batch):
            step = RATE * 2 * (score - target) / len(batch)
            for i, weight in bag:
                table[i] -= step * weight
    return sum((s - t) ** 2 for s, (t, _) in zip(scores(table, examples), examples)) / len(examples)


class BagsTest(IntegrationTest):

    def write(self, name, text):
        (self.directory / name).write_text(text)
        return name

    def run_on(self, data, *flags, text=None):
        self.write("model.json", text or model())
        return self.run_to_end("cairn", "train", "model.json", f"--data_dir={data}", "--threads=1", "--summary=summary.json",
                               *flags)

    def test_any_bags_give_the_mean_over_the_examples(self):
        examples = bags()
        self.assertNotEqual(len(examples) % BATCH, 0)
        lines = "".join(" ".join([str(t)] + [f"{i}:{w}" for i, w in bag]) + "\n" for t, bag in examples)
        self.write("a.libsvm", lines)
        self.write("a.libsvm.t", lines)
        table = "ids,target\n" + "".join("|".join(f"{i}:{w}" for i, w in bag) + f",{t}\n" for t, bag in examples)
        (self.directory / "csv").mkdir()
        self.write("csv/train.csv", table)
        self.write("csv/test.csv", table)
        expected = loss_after(examples, 2)
        # With 4 workers of one example, some have none in the last round.
        for workers, servers in ((1, 1), (2, 2), (4, 1)):
            with self.subTest(workers=workers, servers=servers):
                run = self.run_on("a.libsvm", f"--workers={workers}", f"--ps={servers}", f"--batch_size={BATCH // workers}",
                                  "--sync_replicas", "--noshuffle", "--epochs=2", f"--learning_rate={RATE}")
                self.assert_exit(DONE, run)
                self.assertAlmostEqual(read_summary(self.directory / "summary.json")["val_loss"], expected, delta=1e-5)
        run = self.run_on("csv", "--workers=2", "--batch_size=2", "--sync_replicas", "--noshuffle", "--epochs=2",
                          f"--learning_rate={RATE}")
        self.assert_exit(DONE, run)
        self.assertAlmostEqual(read_summary(self.directory / "summary.json")["val_loss"], expected, delta=1e-5)

    def test_a_factorization_machine_learns_from_libsvm(self):
        draw = random.Random(2)
        factors = [[draw.gauss(0, 1) for _ in range(2)] for _ in range(20)]

        def line():
            ids = draw.sample(range(20), 3)
            logit = 3 * sum(sum(a * b for a, b in zip(factors[i], factors[j])) for i, j in itertools.combinations(ids, 2))
            return " ".join([["-1", "+1"][logit > 0]] + [f"{i + 1}:1" for i in ids]) + "\n"

        self.write("train.libsvm", "".join(line() for _ in range(4000)))
        self.write("test.libsvm", "".join(line() for _ in range(500)))
        run = self.run_on(".", "--workers=2", "--ps=1", "--sync_replicas", "--batch_size=32", "--epochs=6",
                          "--embedding_tables=all", "--embedding_optimizer=adagrad", "--embedding_learning_rate=0.2",
                          text=(EXAMPLES_DIR / "libsvm.json").read_text())
        self.assert_exit(DONE, run)
        metrics = read_summary(self.directory / "summary.json")["metrics"]
        self.assertGreater(metrics["val_AUC"], 0.9)  # the pairs alone decide

    def test_bad_data_is_refused_in_one_line_that_names_it(self):
        fields = "\t".join(["1"] * 14 + ["68fd1e64"] * 25)
        clicks = (EXAMPLES_DIR / "criteo.json").read_text()
        for name, content, text, flags, pattern in (
                ("a.libsvm", "1 3:1\n0 three:1\n", None, [], "a.libsvm: line 2: 'three:1': 'three' is not a whole number from 0 on"),
                ("a.csv", "ids,values,label\n3,1,0\nthree,1,1\n", None, [], "line 3: column 'ids' holds 'three', which is not a number"),
                ("a.csv", "ids,values,label\n3,1,0\n3|4,1,1\n", None, [], "line 3: has 1 weight for input 'values', but 2 ids for input 'ids'"),
                ("a.libsvm", f"1 3:1\n0 {ROWS}:1\n", None, [], f"example 1: value 0 is {ROWS}, and layer 'table' .EmbedReduce. takes"),
                ("a.txt", fields + "\n", clicks, ["--hash_ids"], "a.txt: line 1: has 39 fields between tabs, but a line of Criteo has 40")):
            with self.subTest(pattern=pattern):
                run = self.run_on(self.write(name, content), *flags, text=text)
                self.assert_refused(run, pattern)


if __name__ == "__main__":
    main()
