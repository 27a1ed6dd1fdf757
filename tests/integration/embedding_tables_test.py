"""Models whose Embedding layers are tables of rows on the servers: they learn what the same model learns with dense
variables, to the same bits on any servers and transports, and refuse what they do not support."""

import json
import random

from harness import DONE, USAGE, IntegrationTest, main, read_summary
from inputs_test import write_npz

USERS, ITEMS, EXAMPLES = 50, 40, 600


def layer(class_name, name, inputs, **config):
    return {"class_name": class_name, "name": name, "config": {"name": name, **config},
            "inbound_nodes": [[[i, 0, 0, {}] for i in inputs]] if inputs else []}


def model(initializer="zeros", rows=USERS, optimizer="sgd"):
    """A score from the embeddings of a user and of an item."""
    table = {"output_dim": 4, "embeddings_initializer": initializer}
    layers = [
        layer("InputLayer", "user", [], batch_shape=[None, 1], dtype="int64"),
        layer("InputLayer", "item", [], batch_shape=[None, 1], dtype="int64"),
        layer("Embedding", "users", ["user"], input_dim=rows, **table),
        layer("Embedding", "items", ["item"], input_dim=ITEMS, **table),
        layer("Concatenate", "both", ["users", "items"]),
        layer("Flatten", "flat", ["both"]),
        layer("Dense", "hidden", ["flat"], units=8, activation="relu"),
        layer("Dense", "score", ["hidden"], units=1)]
    return json.dumps({
        "class_name": "Functional",
        "config": {"name": "scores", "layers": layers, "input_layers": [["user", 0, 0], ["item", 0, 0]],
                   "output_layers": [["score", 0, 0]]},
        "compile_config": {"optimizer": optimizer, "loss": "mean_squared_error"}})


class EmbeddingTablesTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        draw = random.Random(1)
        taste = {("u", i): draw.uniform(-1, 1) for i in range(USERS)} | {("i", i): draw.uniform(-1, 1) for i in range(ITEMS)}
        users = [draw.randrange(USERS) for _ in range(EXAMPLES)]
        items = [draw.randrange(ITEMS) for _ in range(EXAMPLES)]
        ratings = [taste["u", u] + taste["i", i] for u, i in zip(users, items)]
        write_npz(self.directory / "data.npz", **{
            "x_train_user": ("i8", (EXAMPLES, 1), users), "x_train_item": ("i8", (EXAMPLES, 1), items),
            "y_train": ("f4", (EXAMPLES, 1), ratings)})

    def train(self, text, *flags, epochs=5):
        (self.directory / "model.json").write_text(text)
        return self.run_to_end("cairn", "train", "model.json", "--data_dir=data.npz", "--batch_size=20", f"--epochs={epochs}",
                               "--threads=1", "--summary=summary.json", *flags)

    def trained(self, text, *flags, epochs=5):
        run = self.train(text, *flags, epochs=epochs)
        self.assert_exit(DONE, run)
        return read_summary(self.directory / "summary.json")

    def test_tables_learn_what_dense_variables_learn(self):
        # Adagrad leaves a row without a gradient alone in both.
        flags = "--workers=2", "--sync_replicas", "--optimizer=adagrad", "--learning_rate=0.2"
        dense = self.trained(model("ones"), *flags, epochs=30)
        tables = self.trained(model("ones"), "--embedding_tables=all", *flags, epochs=30)
        self.assertLess(tables["loss"], 0.5 * 0.66)  # the variance of the ratings is about 2/3
        self.assertAlmostEqual(tables["loss"], dense["loss"], places=4)
        self.assertEqual(tables["parameters"] + 4 * (USERS + ITEMS), dense["parameters"])
        mixed = self.trained(model("ones"), "--embedding_tables=items", *flags, epochs=30)
        self.assertAlmostEqual(mixed["loss"], dense["loss"], places=4)

    def test_bits_do_not_depend_on_servers_transports_or_backups(self):
        text = model("uniform", optimizer="adam")
        flags = "--workers=2", "--sync_replicas", "--embedding_tables=all"
        sha = self.trained(text, "--ps=1", *flags)["parameters_sha256"]
        for more in (["--ps=2"], ["--ps=3", "--transport=tcp"], ["--ps=2", "--transport=grpc"],
                     ["--ps=2", "--ps_replication=1"]):
            with self.subTest(more=more):
                self.assertEqual(self.trained(text, *more, *flags)["parameters_sha256"], sha)

    def test_tables_have_an_optimizer_of_their_own_in_every_mode(self):
        for mode in ("sync", "async", "ssp"):
            with self.subTest(mode=mode):
                flags = ("--max_staleness=4",) if mode == "ssp" else ()
                summary = self.trained(model("uniform"), "--ps=2", "--workers=2", f"--mode={mode}", "--learning_rate=0.05",
                                       "--embedding_tables=all", "--embedding_optimizer=adagrad",
                                       "--embedding_learning_rate=0.2", *flags)
                self.assertLess(summary["loss"], 0.5)

    def test_flags_that_tables_do_not_support_are_refused_by_name(self):
        for flags, pattern in (
                (["--embedding_tables=all", "--train_dir=t"], "--embedding_tables.*--train_dir"),
                (["--embedding_tables=all", "--resume=t"], "--embedding_tables.*--resume DIR"),
                (["--embedding_tables=all", "--init_from=w.npz"], "--embedding_tables.*w.npz: give --init_from none"),
                (["--embedding_tables=all", "--embedding_optimizer=sgd", "--reduce_lr_on_plateau=0.5"],
                 "--embedding_optimizer.*--reduce_lr_on_plateau"),
                (["--embedding_tables=all", "--mode=allreduce"], "--embedding_tables.*--mode allreduce"),
                (["--embedding_tables=hidden"], r"layer 'hidden' \(Dense\) has no embedding table; Embedding layers: users, items"),
                (["--embedding_optimizer=sgd"], "--embedding_optimizer.*--embedding_tables")):
            with self.subTest(flags=flags):
                self.assert_refused(self.train(model(), *flags), pattern)

    def test_a_table_that_does_not_fit_is_refused_by_name(self):
        run = self.train(model(rows=10**9), "--embedding_tables=all", "--ps_memory_limit=1GiB")
        self.assert_exit(USAGE, run)
        self.assertRegex(run.stderr, r"the job needs [0-9.]+ GiB and may take 1 GiB .*, other tables [0-9.]+ GiB")

    def test_an_optimizer_that_has_no_form_for_rows_is_refused_by_name(self):
        run = self.train(model(), "--embedding_tables=all", "--embedding_optimizer=lion")
        self.assert_exit(USAGE, run)
        self.assertRegex(run.stderr, "table 'users/embeddings': unknown optimizer 'lion' of a table; supported: SGD")


if __name__ == "__main__":
    main()
