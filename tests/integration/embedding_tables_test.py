"""Models whose Embedding layers are tables of rows on the servers: they learn what the same model learns with dense
variables, to the same bits on any servers and transports, and refuse what they do not support."""

import array
import copy
import json
import pathlib
import random
import re

from harness import DONE, FAILURE, INCOMPATIBLE, USAGE, IntegrationTest, main, read_summary
from inputs_test import npy, write_npz

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


# Models as keras_rs 0.4.0 with Keras 3.15 writes them by to_json(), and the losses of their first three epochs there,
# on JAX, with the data of write_bags(), SGD with the rate 0.1 and batches of 8 in order.
KERAS_RS = json.loads(pathlib.Path(__file__).with_name("keras_rs_models.json").read_text())
BAGS = {"watched": (5, lambda i, j: (7 * i + 3 * j) % 30), "user": (1, lambda i, j: i % 20),
        "liked": (2, lambda i, j: (5 * i + j) % 30)}


def tensors(file):
    """The float tensors of a safetensors file, by name."""
    size = int.from_bytes(file[:8], "little")
    header = json.loads(file[8:8 + size])
    return {name: array.array("f", file[8 + size + start:8 + size + end])
            for name, tensor in header.items() if tensor.get("dtype") == "F32" for start, end in [tensor["data_offsets"]]}


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

    def train(self, text, *flags, epochs=5, batch_size=20):
        (self.directory / "model.json").write_text(text)
        return self.run_to_end("cairn", "train", "model.json", "--data_dir=data.npz", f"--batch_size={batch_size}", f"--epochs={epochs}",
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
        sha = self.trained(text, "--ps=1", "--train_dir=one", *flags)["parameters_sha256"]
        for i, more in enumerate((["--ps=2"], ["--ps=3", "--transport=tcp"], ["--ps=5", "--transport=grpc"],
                                  ["--ps=2", "--ps_replication=1"])):
            with self.subTest(more=more):
                self.assertEqual(self.trained(text, *more, f"--train_dir={i}", *flags)["parameters_sha256"], sha)
                self.assertEqual(self.rows(str(i)), self.rows("one"))

    def test_tables_have_an_optimizer_of_their_own_in_every_mode(self):
        for mode in ("sync", "async", "ssp"):
            with self.subTest(mode=mode):
                flags = ("--max_staleness=4", "--train_dir=ssp") if mode == "ssp" else (f"--train_dir={mode}",)
                summary = self.trained(model("uniform"), "--ps=2", "--workers=2", f"--mode={mode}", "--learning_rate=0.05",
                                       "--embedding_tables=all", "--embedding_optimizer=adagrad",
                                       "--embedding_learning_rate=0.2", *flags)
                self.assertLess(summary["loss"], 0.5)
                self.assertIn(b'"table/users/embeddings/rows":{"data_offsets"', self.rows(mode))

    def test_a_plan_foresees_the_rows_and_bytes_of_a_job(self):
        for flags in ([], ["--wire_dtype=bfloat16"]):
            for tables in ("--embedding_tables=all", "--dynamic_tables=all"):
                with self.subTest(flags=flags, tables=tables):
                    summary = self.trained(model("uniform"), "--ps=2", "--workers=2", "--sync_replicas", tables, "--train_dir=" + tables[2:9] + str(len(flags)),
                                           "--embedding_optimizer=rowwiseadagrad", *flags, epochs=5)
                    plan = self.run_to_end("cairn", "plan", "model.json", "--ps=2", "--workers=2", "--data_dir=data.npz", "--batch_size=20", tables,
                                           "--embedding_optimizer=rowwiseadagrad", "--step_compute=1ms", "--json", *flags)
                    self.assert_exit(DONE, plan)
                    plan = json.loads(plan.stdout)
                    rows = self.rows(tables[2:9] + str(len(flags)))
                    for table in plan["tables"]:
                        self.assertEqual(table["rows"], len(tensors(rows)[f"table/{table['name']}/rows"]) // 4)
                        self.assertEqual((table["optimizer"], table["slot_floats"], table["batch_ids"]), ("RowWiseAdagrad", 1, 20))
                        self.assertEqual(table["rows_from"], "vocabulary" if "embedding" in tables else "in 300 examples")
                    # The ids of a batch come before it, so that they are not in the bytes of the last step.
                    self.assertAlmostEqual(summary["row_pull_bytes"] / summary["global_step"], plan["worker_link_row_pull_bytes"], delta=0.05 * plan["worker_link_row_pull_bytes"])
                    self.assertAlmostEqual(summary["row_push_bytes"] / summary["global_step"], plan["worker_link_row_bytes"], delta=0.05 * plan["worker_link_row_bytes"])

    def test_a_plan_and_a_check_refuse_what_training_refuses(self):
        flags = "--embedding_tables=all", "--embedding_optimizer=lion"
        (self.directory / "model.json").write_text(model())
        (self.directory / "cluster.json").write_text('{"ps": ["localhost:1"], "worker": ["localhost:2"]}')
        trained = self.train(model(), "--ps=1", "--workers=1", *flags)
        self.assert_exit(USAGE, trained)
        why = re.search(r"job: table 'users/embeddings': unknown optimizer 'lion' .*", trained.stderr)[0]
        plan = self.run_to_end("cairn", "plan", "model.json", "--step_compute=1ms", *flags)
        self.assert_exit(USAGE, plan)
        check = self.run_to_end("cairn", "check", "--cluster=cluster.json", "--model=model.json", "--data_dir=data.npz", *flags)
        for text in (plan.stderr, check.stdout):
            self.assertIn(why, text)

    def test_a_server_refuses_tables_that_do_not_fit_as_plan_and_check_do(self):
        flags = "--embedding_tables=all", "--optimizer=adam"
        run = self.train(model(rows=100_000), "--ps=1", "--workers=1", "--ps_memory_limit=6MiB", *flags)
        self.assert_exit(USAGE, run)
        (self.directory / "cluster.json").write_text('{"ps": ["localhost:1"], "worker": ["localhost:2"]}')
        plan = self.run_to_end("cairn", "plan", "model.json", "--step_compute=1ms", "--memory_limit=6MiB", *flags)
        check = self.run_to_end("cairn", "check", "--cluster=cluster.json", "--model=model.json", "--memory_limit=6MiB", *flags)
        self.assert_exit(FAILURE, plan)
        refusal = re.search(r"the job needs .*", run.stderr)[0]
        self.assertIn(refusal, plan.stderr)
        self.assertIn(refusal, check.stdout)

    def rows(self, train_dir):
        """All variables and rows of the newest checkpoint, as one file does not depend on the servers."""
        run = self.run_to_end("cairn", "checkpoint", "consolidate", train_dir, "-o", "all.safetensors")
        self.assert_exit(DONE, run)
        return (self.directory / "all.safetensors").read_bytes()

    def test_a_job_resumes_on_another_number_of_servers_to_the_same_bits(self):
        text = model("uniform", optimizer="adam")
        flags = "--workers=2", "--sync_replicas", "--embedding_tables=all", "--embedding_optimizer=adagrad"
        self.trained(text, "--ps=1", "--train_dir=whole", *flags, epochs=4)
        whole = self.rows("whole")
        for before, after in ((1, 3), (3, 2), (2, 2)):
            with self.subTest(before=before, after=after):
                directory = f"train_{before}_{after}"
                self.trained(text, f"--ps={before}", f"--train_dir={directory}", *flags, epochs=2)
                self.assertNotEqual(self.rows(directory), whole)
                self.trained(text, f"--ps={after}", f"--train_dir={directory}", *flags, epochs=4)
                self.assertEqual(self.rows(directory), whole)

    def test_a_lost_server_is_restored_from_a_checkpoint(self):
        text = model("uniform", optimizer="adam")
        flags = "--workers=2", "--sync_replicas", "--embedding_tables=all"
        self.trained(text, "--ps=1", "--train_dir=whole", *flags, epochs=8)
        for attempt in range(3):  # on a busy machine, step 50 may come before the checkpoint of step 20 is written
            directory = f"lost_{attempt}"
            run = self.train(text, "--ps=2", f"--train_dir={directory}", "--save_steps=20", "--fault=ps/1:applied:50:KILL",
                             *flags, epochs=8)
            self.assert_exit(DONE, run)
            self.assertEqual(self.rows(directory), self.rows("whole"))
            if re.search(r"resuming from step [24]\d of", run.stderr):
                return
        self.fail(run.stderr)

    def test_any_task_may_be_killed_without_a_change_of_the_bits(self):
        text = model("uniform", optimizer="adam")
        flags = "--workers=2", "--sync_replicas", "--embedding_tables=all"
        self.trained(text, "--ps=1", "--train_dir=whole", *flags)
        for i, fault in enumerate(("ps/0:applied:25", "ps/1:push:40", "worker/0:computed:25", "worker/1:announced:25")):
            with self.subTest(fault=fault):
                run = self.train(text, "--ps=2", "--ps_replication=1", "--lost_workers=wait", f"--train_dir=killed{i}",
                                 f"--fault={fault}:KILL", *flags)
                self.assert_exit(DONE, run)
                self.assertIn(f"{fault.split(':')[0]} was killed by SIGKILL", run.stderr)
                self.assertEqual(self.rows(f"killed{i}"), self.rows("whole"))

    def test_work_that_is_assigned_dynamically_gives_the_same_bits_on_any_servers(self):
        text = model("uniform", optimizer="adam")
        flags = "--workers=2", "--sync_replicas", "--embedding_tables=all", "--data_sharding=dynamic"
        self.trained(text, "--ps=1", "--train_dir=one", *flags)
        self.trained(text, "--ps=3", "--train_dir=three", *flags)
        self.assertEqual(self.rows("three"), self.rows("one"))

    def test_workers_compute_what_one_worker_computes_with_all_their_examples(self):
        text = model("uniform", optimizer="adam")
        flags = "--sync_replicas", "--embedding_tables=all", "--ps=2"
        for workers, batch_size in ((1, 60), (3, 20)):
            run = self.train(text, f"--workers={workers}", f"--train_dir=by{workers}", *flags, batch_size=batch_size)
            self.assert_exit(DONE, run)
        one, three = (tensors(self.rows(f"by{workers}")) for workers in (1, 3))
        self.assertEqual(set(one), set(three))
        self.assertEqual(len(one["table/users/embeddings/rows"]), 4 * USERS)
        for name in one:
            for a, b in zip(one[name], three[name], strict=True):
                self.assertAlmostEqual(a, b, delta=1e-4, msg=name)

    def test_rows_that_lag_are_learnt_too_and_survive_the_loss_of_any_task(self):
        flags = ("--workers=2", "--sync_replicas", "--embedding_tables=all", "--learning_rate=0.05", "--embedding_optimizer=adagrad",
                 "--embedding_learning_rate=0.2", "--ps=2")
        exact = self.trained(model("uniform"), *flags)
        for i, (staleness, more) in enumerate((
                (1, []), (4, []), (1, ["--data_sharding=dynamic"]), (2, ["--fault=ps/1:applied:25:KILL"]),
                (2, ["--fault=ps/0:read:9:KILL"]), (2, ["--fault=worker/0:computed:25:KILL"]),
                (2, ["--fault=worker/1:announced:25:KILL"]))):
            with self.subTest(staleness=staleness, more=more):
                run = self.train(model("uniform"), f"--embedding_staleness={staleness}", f"--train_dir=t{i}", "--ps_replication=1",
                                 "--lost_workers=wait", *more, *flags)
                self.assert_exit(DONE, run)
                self.assertEqual("was killed by SIGKILL" in run.stderr, "KILL" in "".join(more))
                summary = read_summary(self.directory / "summary.json")
                self.assertAlmostEqual(summary["loss"], exact["loss"], delta=0.1)
                self.assertEqual([summary[key] for key in ("global_step", "gradients_accepted")], [75, 150])
                self.assertEqual(len(tensors(self.rows(f"t{i}"))["table/users/embeddings/rows"]), 4 * USERS)

    def test_a_trained_table_is_exported_and_evaluated_as_a_variable(self):
        flags = "--workers=2", "--sync_replicas", "--optimizer=adagrad", "--learning_rate=0.2"
        self.trained(model("uniform"), "--ps=2", "--train_dir=t", "--embedding_tables=all", *flags)
        (self.directory / "user.npy").write_bytes(npy("i8", (3, 1), [0, 1, USERS - 1]))
        (self.directory / "item.npy").write_bytes(npy("i8", (3, 1), [0, 1, ITEMS - 1]))
        (self.directory / "dense.json").write_text(model())
        scores = []
        for weights in ("t", "exported.safetensors"):
            if weights != "t":
                self.assert_exit(DONE, self.run_to_end("cairn", "export", "t", "-o", weights))
            run = self.run_to_end("cairn", "predict", weights, "user.npy", "item.npy", "--model=dense.json")
            self.assert_exit(DONE, run)
            scores.append(run.stdout)
        self.assertEqual(scores[0], scores[1])
        self.assertEqual(len(set(scores[0].splitlines())), 3)

    def loss_of_prediction(self, weights, inputs, arrays, *flags):
        """The loss that `cairn predict` prints for the validation set in `arrays`."""
        for name in [f"x_test_{i}" for i in inputs] + ["y_test"]:
            (self.directory / f"{name}.npy").write_bytes(npy(*arrays[name]))
        run = self.run_to_end("cairn", "predict", weights, *[f"x_test_{i}.npy" for i in inputs], "--labels=y_test.npy",
                              "--loss=mse", *flags)
        self.assert_exit(DONE, run)
        return float(run.stdout.splitlines()[-1].split("loss: ")[1])

    def test_models_with_tables_of_any_id_are_predicted_exported_and_evaluated(self):
        ids = [-2**63, 2**63 - 1, 2**53 + 1, 2**53, -1, 0]
        arrays = {"x_train_user": ("i8", (EXAMPLES, 1), [ids[i % len(ids)] for i in range(EXAMPLES)]),
                  "x_train_item": ("i8", (EXAMPLES, 1), [i % ITEMS for i in range(EXAMPLES)]),
                  "y_train": ("f4", (EXAMPLES, 1), [i % len(ids) for i in range(EXAMPLES)]),
                  # Three ids that training has seen, and three that it has not.
                  "x_test_user": ("i8", (6, 1), [*ids[:3], -2**62, 7, 2**62]), "x_test_item": ("i8", (6, 1), [0, 1, 2, 3, 4, 5]),
                  "y_test": ("f4", (6, 1), [1] * 6)}
        write_npz(self.directory / "data.npz", **arrays)
        flags = "--sync_replicas", "--embedding_tables=items", "--dynamic_tables=users"
        for optimizer in ("adam", "ftrl"):
            with self.subTest(optimizer=optimizer):
                directory = f"t_{optimizer}"
                trained = self.trained(model("uniform"), "--ps=2", f"--train_dir={directory}", *flags,
                                       f"--embedding_optimizer={optimizer}", epochs=3)
                served = trained["val_loss"]
                self.assertAlmostEqual(self.loss_of_prediction(directory, ["user", "item"], arrays), served, places=4)
                exported = f"{optimizer}.safetensors"
                self.assert_exit(DONE, self.run_to_end("cairn", "export", directory, "-o", exported))
                self.assertAlmostEqual(self.loss_of_prediction(exported, ["user", "item"], arrays, "--model=model.json"),
                                       served, places=4)
                self.assert_exit(DONE, self.run_to_end("cairn", "export", directory, "-o", f"{optimizer}.onnx"))
                run = self.run_to_end("cairn-worker", "--job_name=evaluator", "--task_index=0", "--ps_hosts=localhost:1",
                                      "--worker_hosts=localhost:2", "--evaluator_hosts=localhost:3", f"--train_dir={directory}",
                                      "--model=model.json", "--data_dir=data.npz", *flags,
                                      f"--embedding_optimizer={optimizer}")
                self.assert_exit(DONE, run)
                self.assertAlmostEqual(float(run.stdout.splitlines()[-1].split(" - loss: ")[1]), served, places=3)
                self.assert_exit(DONE, self.run_to_end("cairn", "checkpoint", "consolidate", directory, "-o", "all.safetensors"))
                self.assertAlmostEqual(self.loss_of_prediction("all.safetensors", ["user", "item"], arrays, "--model=model.json"),
                                       served, places=4)

    def test_a_job_exports_its_tables_at_the_end_and_the_best_ones(self):
        arrays = {"x_train_user": ("i8", (EXAMPLES, 1), [7 * (i % 30) - 100 for i in range(EXAMPLES)]),
                  "x_train_item": ("i8", (EXAMPLES, 1), [i % ITEMS for i in range(EXAMPLES)]),
                  "y_train": ("f4", (EXAMPLES, 1), [i % 5 for i in range(EXAMPLES)]),
                  "x_test_user": ("i8", (4, 1), [-100, -93, 1, 2]), "x_test_item": ("i8", (4, 1), [0, 1, 2, 3]),
                  "y_test": ("f4", (4, 1), [0, 1, 2, 3])}
        write_npz(self.directory / "data.npz", **arrays)
        for flags in (["--sync_replicas", "--save_steps=10", "--train_dir=t"], ["--mode=async"]):
            with self.subTest(flags=flags):
                trained = self.trained(model("uniform"), "--ps=2", "--workers=2", "--dynamic_tables=users", "--embedding_tables=items",
                                       "--export_dir=out", "--save_best=best.safetensors", "--learning_rate=0.05", *flags)
                inputs = ["user", "item"]
                self.assertAlmostEqual(
                    self.loss_of_prediction("out/model.safetensors", inputs, arrays, "--model=out/model.json"),
                    trained["val_loss"], places=4)
                self.assertTrue((self.directory / "out/model.onnx").exists())
                best = (self.directory / "best.safetensors").read_bytes()
                recorded = json.loads(best[8:8 + int.from_bytes(best[:8], "little")])["__metadata__"]["val_loss"]
                if flags != ["--mode=async"]:  # else workers may be ahead of the evaluation
                    self.assertAlmostEqual(self.loss_of_prediction("best.safetensors", inputs, arrays, "--model=out/model.json"),
                                           float(recorded), places=4)

    def test_an_optimizer_of_a_table_has_a_schedule(self):
        def sha(rate):
            document = copy.deepcopy(KERAS_RS["distributed"]["model"])
            tables = next(x for x in document["config"]["layers"] if x["class_name"] == "DistributedEmbedding")["config"]["tables"]
            for table in tables:
                table["optimizer"] = {"module": "keras.optimizers", "class_name": "SGD", "registered_name": None,
                                      "config": {"learning_rate": rate}}
            self.assert_exit(DONE, self.train_bags(document, "--sync_replicas"))
            return read_summary(self.directory / "summary.json")["parameters_sha256"]

        def decay(by):
            return {"module": "keras.optimizers.schedules", "class_name": "ExponentialDecay", "registered_name": None,
                    "config": {"initial_learning_rate": 0.1, "decay_steps": 1, "decay_rate": by, "staircase": False}}

        constant = sha(0.1)
        self.assertEqual(sha(decay(1.0)), constant)
        self.assertNotEqual(sha(decay(0.5)), constant)

    def test_layers_of_keras_rs_are_predicted_and_exported(self):
        for name, expected in KERAS_RS.items():
            with self.subTest(model=name):
                inputs = sorted(expected["model"]["config"]["input_layers"])
                arrays = self.write_bags(inputs)
                tests = {k.replace("train", "test"): v for k, v in arrays.items()}
                write_npz(self.directory / "data.npz", **arrays, **tests)
                run = self.train(json.dumps(expected["model"]), "--sync_replicas", "--ps=2", "--loss=mse", f"--train_dir={name}",
                                 "--learning_rate=0.1", "--optimizer=sgd", epochs=2, batch_size=8)
                self.assert_exit(DONE, run)
                served = read_summary(self.directory / "summary.json")["val_loss"]
                self.assertAlmostEqual(self.loss_of_prediction(name, inputs, tests), served, places=5)
                self.assert_exit(DONE, self.run_to_end("cairn", "export", name, "-o", "m.safetensors"))
                self.assertAlmostEqual(self.loss_of_prediction("m.safetensors", inputs, tests, "--model=model.json"), served,
                                       places=5)
                self.assert_exit(DONE, self.run_to_end("cairn", "export", name, "-o", f"{name}.onnx"))

    def test_a_checkpoint_of_other_tables_is_refused_by_name(self):
        flags = "--train_dir=t", "--sync_replicas"
        self.trained(model(), "--embedding_tables=all", *flags, epochs=1)
        for more, pattern in (
                (["--embedding_tables=users"], "it has the embedding tables 'users/embeddings', 'items/embeddings', and this"
                 " job has the embedding tables 'users/embeddings'"),
                (["--embedding_tables=all", "--embedding_optimizer=adagrad"], r"table 'users/embeddings': it has rows of 4 elements of 50 ids with SGD"
                 r".* this job has .* with Adagrad \(accumulator: 4\)")):
            with self.subTest(more=more):
                run = self.train(model(), *flags, *more, epochs=2)
                self.assert_exit(INCOMPATIBLE, run)
                self.assertRegex(run.stderr, pattern)
        run = self.train(model(), *flags, epochs=2)
        self.assert_exit(INCOMPATIBLE, run)
        self.assertRegex(run.stderr, "it has the embedding tables .*, and this job has no embedding tables")

    def weights(self, path):
        """The float tensors of an exported file."""
        return tensors((self.directory / path).read_bytes())

    def test_the_best_rows_are_restored_on_any_servers_and_after_the_loss_of_one(self):
        # The rate is so high that the loss rises after an early epoch.
        common = ("--workers=2", "--sync_replicas", "--embedding_tables=users", "--dynamic_tables=items", "--optimizer=adam", "--learning_rate=0.3",
                  "--monitor=loss", "--early_stopping=3", "--restore_best_weights")
        best = None
        for i, more in enumerate((["--ps=1"], ["--ps=3"], ["--ps=2", "--ps_replication=1", "--fault=ps/1:applied:100:KILL"])):
            with self.subTest(more=more):
                run = self.train(model("uniform"), f"--save_best=best{i}.safetensors", f"--export_dir=out{i}", f"--train_dir=kept{i}", *common, *more,
                                 epochs=40)
                self.assert_exit(DONE, run)
                self.assertIn("Restoring model weights from the end of the best epoch", run.stdout)
                self.assertIn("early stopping", run.stdout)
                restored = self.weights(f"out{i}/model.safetensors")
                self.assertEqual(restored, self.weights(f"best{i}.safetensors"))
                best = best or restored
                self.assertEqual(restored, best)

    def test_a_job_begins_with_the_tables_of_another_run(self):
        text = model("uniform", optimizer="adam")
        flags = "--workers=1", "--sync_replicas", "--seed=1"
        self.trained(text, "--ps=2", "--embedding_tables=all", "--train_dir=run", "--export_dir=run_out", *flags)
        self.trained(text, "--ps=1", "--dynamic_tables=all", "--train_dir=any", "--export_dir=any_out", *flags)
        self.trained(text, "--ps=1", "--train_dir=dense", "--export_dir=dense_out", *flags)
        self.assert_exit(DONE, self.run_to_end("cairn", "checkpoint", "consolidate", "any", "-o", "any.safetensors"))
        self.assert_exit(DONE, self.run_to_end("cairn", "checkpoint", "consolidate", "run", "-o", "run.safetensors"))
        # With a rate of 0, the job exports what it began with. Another seed would show where it begins with other rows.
        still = "--learning_rate=0", "--seed=7", "--workers=1", "--sync_replicas"
        for source, tables, expected in (
                ("run", "--embedding_tables=all", "run_out"), ("run_out/model.safetensors", "--embedding_tables=all", "run_out"),
                ("run.safetensors", "--embedding_tables=all", "run_out"), ("dense", "--embedding_tables=all", "dense_out"),
                ("dense_out/model.safetensors", "--embedding_tables=users", "dense_out"), ("run", "--novalidation", "run_out"),
                ("any", "--dynamic_tables=all", "any_out"), ("any_out/model.safetensors", "--dynamic_tables=all", "any_out"),
                ("any.safetensors", "--dynamic_tables=all", "any_out")):
            for servers in (1, 3):
                with self.subTest(source=source, tables=tables, servers=servers):
                    self.trained(text, f"--ps={servers}", tables, f"--init_from={source}", "--export_dir=out", *still, epochs=1)
                    self.assertEqual(self.weights("out/model.safetensors"), self.weights(f"{expected}/model.safetensors"))
        with self.subTest("a table of any id begins as a variable"):
            self.trained(text, "--ps=2", "--dynamic_tables=all", "--init_from=dense", "--export_dir=out", *still, epochs=1)
            self.assertEqual(sorted(self.weights("out/model.safetensors")["table/users/embeddings/rows"]),
                             sorted(self.weights("dense_out/model.safetensors")["users/embeddings"]))
        for source, tables, rows, pattern in (
                ("run", "--embedding_tables=all", 60, "table 'users/embeddings' has 50 ids with rows of 4 in it and 60 ids with rows of 4 here"),
                ("run_out/model.safetensors", "--embedding_tables=all", 60, r"'users/embeddings' has shape \[50,4\], in the model \[60,4\]"),
                ("any", "--embedding_tables=all", USERS, "table 'users/embeddings' has any id with rows of 4 in it and 50 ids with rows of 4 here"),
                ("any_out/model.safetensors", "--embedding_tables=all", USERS, "table 'users/embeddings' takes any id in it, and has 50 ids here")):
            with self.subTest(refused=source, tables=tables):
                run = self.train(model("uniform", rows=rows, optimizer="adam"), tables, f"--init_from={source}", *still, epochs=1)
                self.assert_exit(USAGE, run)
                self.assertRegex(run.stderr, f"--init_from: .*{pattern}")

    def test_a_plateau_reduces_the_rate_of_rows_with_an_optimizer_of_their_own(self):
        flags = "--workers=1", "--sync_replicas", "--embedding_tables=all", "--optimizer=sgd", "--learning_rate=0"
        own = "--embedding_optimizer=sgd", "--embedding_learning_rate=0.5"
        # Rows alone learn. The metric never improves by this much, so the rate becomes 0 after the second epoch.
        plateau = "--monitor=loss", "--reduce_lr_on_plateau=0", "--plateau_patience=1", "--min_delta=100"
        flags = [flag.replace("--learning_rate=0", "--learning_rate=1e-30") for flag in flags]
        self.trained(model("uniform"), "--ps=1", "--export_dir=two", *flags, *own, epochs=2)
        self.trained(model("uniform"), "--ps=2", "--export_dir=five", *flags, *own, *plateau, epochs=5)
        self.assertEqual(self.weights("five/model.safetensors"), self.weights("two/model.safetensors"))

    def test_a_consolidated_file_predicts_what_its_checkpoint_predicts(self):
        (self.directory / "user.npy").write_bytes(npy("i8", (3, 1), [0, 1, 7]))
        (self.directory / "item.npy").write_bytes(npy("i8", (3, 1), [0, 1, ITEMS - 1]))
        for i, tables in enumerate(("--dynamic_tables=all", "--embedding_tables=all")):
            with self.subTest(tables=tables):
                self.trained(model("uniform", optimizer="adam"), "--ps=2", "--sync_replicas", f"--train_dir=t{i}", tables)
                self.assert_exit(DONE, self.run_to_end("cairn", "checkpoint", "consolidate", f"t{i}", "-o", "all.safetensors"))
                outputs = []
                for weights in (f"t{i}", "all.safetensors"):
                    run = self.run_to_end("cairn", "predict", weights, "user.npy", "item.npy", "--model=model.json")
                    self.assert_exit(DONE, run)
                    outputs.append(run.stdout)
                self.assertEqual(outputs[0], outputs[1])

    def test_a_dynamic_table_takes_any_id(self):
        # Ids that no float32 and no float64 holds, and the ends of int64. The validation set has ids of its own.
        ids = [-2**63, 2**63 - 1, 2**53 + 1, 2**53, 2**53 + 2, -1, 0, 2**24 + 1]
        users = [ids[i % len(ids)] for i in range(EXAMPLES)]
        items = [i % ITEMS for i in range(EXAMPLES)]
        arrays = {"x_train_user": ("i8", (EXAMPLES, 1), users), "x_train_item": ("i8", (EXAMPLES, 1), items),
                  "y_train": ("f4", (EXAMPLES, 1), [(u % len(ids)) / 4 for u in range(EXAMPLES)]),
                  "x_test_user": ("i8", (8, 1), list(range(-2**62, -2**62 + 8))), "x_test_item": ("i8", (8, 1), [0] * 8),
                  "y_test": ("f4", (8, 1), [1] * 8)}
        write_npz(self.directory / "data.npz", **arrays)
        flags = "--workers=2", "--sync_replicas", "--embedding_tables=items", "--dynamic_tables=users", "--learning_rate=0.1"
        one = self.trained(model("uniform"), "--ps=1", *flags, epochs=20)
        self.assertLess(one["loss"], 0.1, "each id has a row of its own: the labels follow from the ids")
        two = self.trained(model("uniform"), "--ps=2", *flags, epochs=20)
        self.assertEqual([two["parameters_sha256"], two["val_loss"]], [one["parameters_sha256"], one["val_loss"]])
        run = self.train(model("uniform"), "--embedding_tables=all")
        self.assert_exit(USAGE, run)
        self.assertRegex(run.stderr, "x_train_user: example 0: value 0 is -9223372036854775808, and layer 'users' .* from 0 to 49")

    def test_large_layers_become_tables_by_themselves(self):
        flags = "--workers=1", "--sync_replicas", f"--embedding_tables_above={ITEMS}"
        run = self.train(model(), *flags, epochs=1)
        self.assert_exit(DONE, run)
        self.assertIn(f"embedding tables on the servers: users/embeddings ({USERS} rows of 4)\n", run.stdout + run.stderr)

    def write_bags(self, inputs):
        arrays = {}
        for name, (width, id_of) in BAGS.items():
            places = [(i, j) for i in range(64) for j in range(width)]
            arrays[f"x_train_{name}"] = ("i8", (64, width), [id_of(i, j) for i, j in places])
            arrays[f"x_train_w_{name}"] = ("f4", (64, width), [1 + (i + j) % 3 / 2 for i, j in places])
        arrays = {k: v for k, v in arrays.items() if k.removeprefix("x_train_") in inputs}
        arrays["y_train"] = ("f4", (64, 1), [i % 20 / 20 - 0.5 for i in range(64)])
        write_npz(self.directory / "data.npz", **arrays)
        return arrays

    def train_bags(self, document, *flags, epochs=1):
        self.write_bags(document["config"]["input_layers"])
        return self.train(json.dumps(document), "--optimizer=sgd", "--learning_rate=0.1", "--loss=mse", "--noshuffle",
                          *flags, epochs=epochs, batch_size=8)

    def test_layers_of_keras_rs_train_as_in_keras(self):
        for name, expected in KERAS_RS.items():
            with self.subTest(model=name):
                for epochs, loss in enumerate(expected["losses"], start=1):
                    run = self.train_bags(expected["model"], "--workers=1", "--ps=1", "--sync_replicas", epochs=epochs)
                    self.assert_exit(DONE, run)
                    one = read_summary(self.directory / "summary.json")
                    self.assertAlmostEqual(one["loss"], loss, delta=1e-6)
                self.assertRegex(run.stdout + run.stderr, r"embedding tables on the servers: \w+(/movies)?/embeddings \(30 rows of 4\)")
                self.assert_exit(DONE, self.train_bags(expected["model"], "--workers=1", "--ps=2", "--sync_replicas", epochs=3))
                two = read_summary(self.directory / "summary.json")
                self.assertEqual([two["parameters_sha256"], two["loss"]], [one["parameters_sha256"], one["loss"]])

    def test_faults_in_layers_of_keras_rs_are_named(self):
        def changed(change):
            document = copy.deepcopy(KERAS_RS["distributed_weighted"]["model"])
            change(next(x for x in document["config"]["layers"] if x["class_name"] == "DistributedEmbedding"))
            return document

        for change, flags, pattern in (
                (lambda x: x["config"]["feature_configs"]["user"].update(table=2), [],
                 r'"de" \(DistributedEmbedding\): feature_configs: feature "user" has table 2, and there are 2'),
                (lambda x: x["config"]["tables"][0].update(combiner="max"), [], "'de/movies' .*combiner"),
                (lambda x: x["config"]["tables"][1].update(secret=1), [], "table 'users'.*secret"),
                (lambda x: x["inbound_nodes"][0]["args"][1].pop("user"), [], "3 inputs and 2 weights for 3 features"),
                (lambda x: x["config"]["tables"][0].update(optimizer="lion"), [],
                 "table 'de/movies/embeddings': unknown optimizer 'Lion' of a table"),
                (lambda x: None, ["--mode=allreduce"], "layer 'de/.*' has a table on the servers: .*--mode allreduce")):
            with self.subTest(pattern=pattern):
                run = self.train_bags(changed(change), *flags)
                self.assert_exit(USAGE, run)
                self.assertRegex(run.stderr, pattern)

    def test_the_place_of_a_distributed_embedding_is_checked(self):
        def twice(config):
            config["layers"].append(copy.deepcopy(next(x for x in config["layers"] if x["class_name"] == "DistributedEmbedding")))

        def uncalled(config):
            next(x for x in config["layers"] if x["class_name"] == "DistributedEmbedding")["inbound_nodes"] = []

        for change, pattern in (
                (twice, r'layer "de" \(DistributedEmbedding\): two layers are named so'),
                (uncalled, r'layer "de" \(DistributedEmbedding\): inbound_nodes: expected a list of the layer\'s calls, at least one'),
                (lambda config: config.update(output_layers=["de", 0, 0]),
                 r"output_layers: 'de' \(DistributedEmbedding\) makes the model's output, and a model needs a layer behind")):
            with self.subTest(pattern=pattern):
                document = copy.deepcopy(KERAS_RS["distributed"]["model"])
                change(document["config"])
                run = self.train_bags(document)
                self.assert_exit(USAGE, run)
                self.assertRegex(run.stderr, pattern)

    def test_ids_of_a_fixed_table_are_checked_beside_a_dynamic_one(self):
        document = json.loads(model())
        for x in document["config"]["layers"]:
            if x["name"] == "items":
                x["inbound_nodes"] = [[["user", 0, 0, {}]]]
        document["config"]["layers"] = [x for x in document["config"]["layers"] if x["name"] != "item"]
        document["config"]["input_layers"] = [["user", 0, 0]]
        write_npz(self.directory / "data.npz", x_train=("i8", (20, 1), [2 * USERS] * 20), y_train=("f4", (20, 1), [1] * 20))
        for x in document["config"]["layers"]:
            if x["name"] == "users":
                x["config"]["input_dim"] = 5  # the smaller one is dynamic
        run = self.train(json.dumps(document), "--dynamic_tables=users", "--embedding_tables=items", "--sync_replicas")
        self.assert_exit(USAGE, run)
        self.assertRegex(run.stderr, r"example 0: value 0 is 100, and layer 'items' \(Embedding\) takes whole numbers from 0 to 39;"
                                     " --hash_ids fits the ids of .*, --dynamic_tables accepts any id")

    def test_flags_that_tables_do_not_support_are_refused_by_name(self):
        for flags, pattern in (
                (["--embedding_tables=all", "--mode=allreduce"], "--embedding_tables.*--mode allreduce"),
                (["--embedding_tables=hidden"], r"layer 'hidden' \(Dense\) has no embedding table; Embedding layers: users, items"),
                (["--embedding_optimizer=sgd"], "--embedding_optimizer.*--embedding_tables"),
                (["--embedding_staleness=1", "--sync_replicas"], "--embedding_staleness needs --embedding_tables"),
                (["--embedding_staleness=1", "--embedding_tables=all"], "--embedding_staleness needs --sync_replicas"),
                (["--embedding_staleness=2", "--embedding_tables=all", "--sync_replicas", "--data_sharding=dynamic"],
                 "--embedding_staleness above 1 does not go with dynamic sharding"),
                (["--dynamic_tables=hidden"], r"--dynamic_tables: layer 'hidden' \(Dense\) has no embedding table")):
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
