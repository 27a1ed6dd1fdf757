"""`cairn train`: a whole cluster on one machine, from the command line to its exit code."""

import json
import os
import re
import signal
import tempfile

from harness import CNN, DONE, MLP, RETRYABLE, SMALL, TERMINATED, IntegrationTest, main, read_summary, small_data

FIELDS = """mode ps workers workers_max batch_size global_step epochs examples examples_missed examples_repeated
    seconds examples_per_second loss accuracy val_loss val_accuracy metrics gradients_accepted gradients_stale
    gradients_duplicate staleness_max staleness_histogram push_bytes
    push_bytes_float32 pull_bytes pull_bytes_float32 gradient_error row_push_bytes
    row_pull_bytes pushed_rows pulled_rows lookups distinct_lookups best_epoch device parameters parameters_sha256""".split()
METRICS = "accuracy: [01].[0-9]{4} - loss: [0-9.]+ - val_accuracy: [01].[0-9]{4} - val_loss: [0-9.]+"


class TrainTest(IntegrationTest):

    def test_a_sync_update_uses_the_gradients_of_all_workers(self):
        run = self.train(CNN, "--sync_replicas", "--ps=2", "--workers=2", "--epochs=2", "--summary=summary.json")
        self.assert_exit(DONE, run)
        steps = -(-SMALL["train"] // (2 * 32))
        summary = read_summary(self.directory / "summary.json")
        self.assertEqual(sorted(summary), sorted(FIELDS))
        expected = {"mode": "sync", "ps": 2, "workers": 2, "batch_size": 32, "epochs": 2, "global_step": 2 * steps,
                    "examples": 2 * SMALL["train"], "gradients_accepted": 2 * 2 * steps, "gradients_stale": 0,
                    "gradients_duplicate": 0, "staleness_max": 0, "examples_missed": 0,
                    "device": "/cpu:0", "parameters": 93322}
        self.assertEqual({name: summary[name] for name in expected}, expected)
        self.assertAlmostEqual(summary["examples_per_second"], summary["examples"] / summary["seconds"])
        self.assertGreater(summary["val_accuracy"], 0.6)  # one in ten would be a guess
        self.assertLess(summary["val_loss"], 1.5)  # guessing gives ln 10 = 2.3
        self.assertRegex(summary["parameters_sha256"], "^[0-9a-f]{64}$")

    def test_an_async_update_uses_one_gradient(self):
        run = self.train(CNN, "--ps=2", "--workers=2", "--epochs=2", "--summary=summary.json")
        self.assert_exit(DONE, run)
        summary = read_summary(self.directory / "summary.json")
        self.assertEqual(sorted(summary), sorted(FIELDS))
        pushes = 2 * 2 * -(-SMALL["train"] // 2 // 32)
        expected = {"mode": "async", "global_step": pushes, "gradients_accepted": pushes, "gradients_stale": 0,
                    "examples": 2 * SMALL["train"]}
        self.assertEqual({name: summary[name] for name in expected}, expected)
        self.assertGreater(summary["val_accuracy"], 0.6)

    def test_progress_looks_like_keras_without_a_terminal(self):
        run = self.train(MLP, "--sync_replicas", "--workers=2", "--epochs=2")
        self.assert_exit(DONE, run)
        lines = run.stdout.splitlines()
        line = "32/32 - [0-9]+s - [0-9]+(us|ms|s)/step - " + METRICS
        for text, pattern in zip(lines, ["Epoch 1/2", line, "Epoch 2/2", line]):
            self.assertRegex(text, f"^{pattern}$")
        self.assertRegex(lines[4], "^64 steps, 4000 examples in .*: val_accuracy [01].[0-9]{4}, val_loss [0-9.]+$")
        self.assertEqual(len(lines), 5, run.stdout)

    def test_a_job_of_one_step_saves_a_checkpoint(self):
        for flags in [], ["--save_steps=1"]:
            train_dir = f"run{len(flags)}"
            self.assert_exit(DONE, self.train(MLP, "--train_steps=1", f"--train_dir={train_dir}", *flags))
            self.assertEqual([path.name for path in (self.directory / train_dir / "checkpoints").iterdir()],
                             ["step-00000001"])

    def test_the_metrics_flag_replaces_the_metrics_of_the_model_file(self):
        run = self.train(MLP, "--sync_replicas", "--metrics=accuracy,sparse_top_k_categorical_accuracy",
                         "--summary=summary.json")
        self.assert_exit(DONE, run)
        summary = read_summary(self.directory / "summary.json")
        names = ["accuracy", "loss", "sparse_top_k_categorical_accuracy"]
        self.assertEqual(list(summary["metrics"]), names + ["val_" + name for name in names])
        self.assertEqual(summary["val_accuracy"], summary["metrics"]["val_accuracy"])
        self.assertGreater(summary["metrics"]["val_sparse_top_k_categorical_accuracy"], summary["val_accuracy"])

    def test_display_every_adds_lines_within_the_epoch(self):
        run = self.train(MLP, "--sync_replicas", "--display_every=10", "--novalidation")
        self.assert_exit(DONE, run)
        steps = re.findall("^ *([0-9]+)/63 - ", run.stdout, re.MULTILINE)
        self.assertEqual(steps, ["10", "20", "30", "40", "50", "60", "63"])
        self.assertNotIn("val_", run.stdout)

    def test_train_steps_counts_global_steps(self):
        for mode in ("sync", "async"):
            with self.subTest(mode):
                run = self.train(MLP, f"--mode={mode}", "--workers=2", "--train_steps=17", "--summary=summary.json")
                self.assert_exit(DONE, run)
                self.assertEqual(read_summary(self.directory / "summary.json")["global_step"], 17)

    def test_a_good_run_prints_nothing_on_stderr_and_leaves_no_files(self):
        with tempfile.TemporaryDirectory() as temporary:
            run = self.train(MLP, "--sync_replicas", "--ps=2", "--workers=2", "--summary=summary.json",
                             env={"TMPDIR": temporary})
            self.assert_exit(DONE, run)
            self.assert_nothing_runs()
            self.assertEqual(os.listdir(temporary), [])
        self.assertEqual(os.listdir(self.directory), ["summary.json"])
        self.assertEqual(run.stderr, "")

    def test_flags_may_be_written_with_dashes(self):
        run = self.train(MLP, "--sync-replicas", "--batch-size=100", "--summary=summary.json")
        self.assert_exit(DONE, run)
        self.assertEqual(read_summary(self.directory / "summary.json")["batch_size"], 100)

    def test_the_tf_config_of_the_environment_does_not_reach_a_local_cluster(self):
        elsewhere = {"cluster": {"ps": ["nowhere:1"], "worker": ["nowhere:2"]}, "task": {"type": "worker", "index": 0}}
        run = self.train(MLP, "--sync_replicas", env={"TF_CONFIG": json.dumps(elsewhere)})
        self.assert_exit(DONE, run)


class StoppedTrainTest(IntegrationTest):
    """Clusters that are stopped or lose a task before the training is done."""

    def start_long_training(self, *flags):
        """Starts a synchronous training of hours and waits for a few steps."""
        run = self.start("cairn", "train", CNN, "--data_dir", small_data(), "--threads=1", "--sync_replicas",
                         "--ps=2", "--workers=2", "--epochs=10000", "--display_every=1", "--step_timeout=30",
                         *flags)
        self.assert_says(run, "^ 3/32 - ")
        self.assertEqual(len(self.marked()), 5)
        return run

    def pid_of(self, job, index):
        for pid in self.marked():
            with open(f"/proc/{pid}/cmdline") as file:
                arguments = file.read().split("\0")
            if f"--job_name={job}" in arguments and f"--task_index={index}" in arguments:
                return pid
        self.fail(f"no {job}/{index} runs")

    def test_sigterm_ends_all_tasks(self):
        run = self.start_long_training()
        run.signal(signal.SIGTERM)
        self.assert_exit(TERMINATED, run)
        self.assert_nothing_runs()

    def test_sigkill_leaves_no_task_behind(self):
        run = self.start_long_training()
        run.signal(signal.SIGKILL)
        self.assert_exit(-signal.SIGKILL, run)
        self.assert_nothing_runs(seconds=10)

    def test_a_killed_server_ends_the_run_as_retryable(self):
        run = self.start_long_training()
        os.kill(self.pid_of("ps", 1), signal.SIGKILL)
        self.assert_exit(RETRYABLE, run)
        self.assertIn("ps/1 was killed by SIGKILL", run.stderr)
        self.assert_nothing_runs()

    def test_a_killed_worker_is_restarted(self):
        run = self.start_long_training()
        os.kill(self.pid_of("worker", 1), signal.SIGKILL)
        self.assert_says(run, r"worker/1 was killed by SIGKILL: restarting it \(1 of 100\)")
        run.signal(signal.SIGTERM)
        self.assert_exit(TERMINATED, run)
        self.assert_nothing_runs()

    def test_a_killed_worker_without_restarts_ends_the_run_as_retryable(self):
        run = self.start_long_training("--max_restarts=0")
        os.kill(self.pid_of("worker", 1), signal.SIGKILL)
        self.assert_exit(RETRYABLE, run)
        self.assertIn("worker/1 was killed by SIGKILL; stopping the rest\n", run.stderr)
        self.assert_nothing_runs()


if __name__ == "__main__":
    main()
