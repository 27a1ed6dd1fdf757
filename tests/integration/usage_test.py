"""Usage errors are found before anything starts: exit code 2, and one line that names the fault."""

import json
import re

from harness import CNN, DONE, MLP, RETRYABLE, USAGE, Cluster, IntegrationTest, main, small_data


class TrainUsageTest(IntegrationTest):
    """`cairn train`, which starts no task when a flag, the model or the data is wrong."""

    def refused(self, pattern, *arguments):
        self.assert_refused(self.run_to_end("cairn", "train", *arguments), "^cairn train: .*" + pattern)

    def model_with(self, change):
        model = json.loads(re.sub("//.*", "", MLP.read_text()))
        change(model)
        path = self.directory / "model.json"
        path.write_text(json.dumps(model))
        return path

    def test_an_unknown_flag_is_refused_with_a_suggestion(self):
        self.refused("unknown flag --learning_rat, did you mean --learning_rate[?]",
                     MLP, "--data_dir", small_data(), "--learning_rat=1")

    def test_a_missing_model_flag_is_refused(self):
        self.refused("which model[?]", "--data_dir", small_data())

    def test_a_missing_model_file_is_refused(self):
        self.refused("nowhere.json", "nowhere.json", "--data_dir", small_data())

    def test_a_model_file_that_is_not_json_is_refused(self):
        path = self.directory / "model.json"
        path.write_text("{]")
        self.refused("model.json:1: not valid JSON", path, "--data_dir", small_data())

    def test_an_unknown_layer_is_refused_with_the_known_ones(self):
        def change(model):
            model["config"]["layers"][2] = {"class_name": "ConvLSTM3D", "config": {"units": 8, "name": "memory"}}
        self.refused("ConvLSTM3D.*Conv2D.*Dense", self.model_with(change), "--data_dir", small_data())

    def test_an_unknown_optimizer_is_refused_with_the_known_ones(self):
        # Only servers know optimizers, so they have been started by then and are stopped again.
        run = self.train(MLP, "--optimizer=sophia")
        self.assert_exit(USAGE, run)
        self.assertIn("cairn-worker: ps/0: unknown optimizer 'sophia'; supported: SGD, ", run.stderr)
        self.assert_nothing_runs()

    def test_an_unknown_loss_is_refused(self):
        self.refused("hinge", MLP, "--data_dir", small_data(), "--loss=hinge")

    def test_a_loss_that_does_not_fit_the_data_is_refused(self):
        self.refused("--data_dir: loss CategoricalCrossentropy: .* class indices need SparseCategoricalCrossentropy",
                     MLP, "--data_dir", small_data(), "--loss=categorical_crossentropy")

    def test_an_unknown_metric_is_refused(self):
        self.refused("metric 'f1' is not supported; supported: accuracy, ", MLP, "--data_dir", small_data(),
                     "--metrics=accuracy,f1")

    def test_a_missing_data_flag_is_refused(self):
        self.refused("--data_dir", MLP)

    def test_a_missing_data_directory_is_refused(self):
        self.refused("/nowhere: no such file or directory", MLP, "--data_dir=/nowhere")

    def test_a_data_directory_without_data_is_refused(self):
        empty = self.directory / "empty"
        empty.mkdir()
        self.refused("empty.*train-images", MLP, "--data_dir", empty)

    def test_data_of_another_shape_than_the_models_input_is_refused(self):
        def change(model):
            model["config"]["layers"][0]["config"]["batch_shape"] = [None, 32, 32, 1]
        self.refused(r"\[28,28\].*\[32,32,1\]", self.model_with(change), "--data_dir", small_data())

    def test_more_replicas_to_aggregate_than_workers_are_refused(self):
        self.refused("--replicas_to_aggregate: 3 is more than 2 workers", MLP, "--data_dir", small_data(),
                     "--sync_replicas", "--workers=2", "--replicas_to_aggregate=3")

    def test_conflicting_flags_are_refused(self):
        self.refused("--max_staleness does not go with --sync_replicas", MLP, "--data_dir", small_data(),
                     "--sync_replicas", "--max_staleness=3")

    def test_a_malformed_device_is_refused(self):
        self.refused("--device: 'tpu:0' is not a device: .*; expected a name such as /cpu:0, /gpu:0", MLP, "--data_dir", small_data(),
                     "--device=tpu:0")

    def test_float16_on_the_cpu_is_refused(self):
        self.refused("--precision fp16 does not go with --device cpu", MLP, "--data_dir", small_data(),
                     "--device=cpu", "--precision=fp16")

    def test_help_goes_to_stdout_and_exits_with_zero(self):
        for program, command in (("cairn", ["train"]), ("cairn-ps", []), ("cairn-worker", []), ("cairn", [])):
            run = self.run_to_end(program, *command, "--help")
            self.assert_exit(DONE, run)
            self.assertIn("--help", run.stdout)


class VersionTest(IntegrationTest):

    def test_all_programs_print_the_same_version_commit_and_build(self):
        lines = {}
        for program in ("cairn", "cairn-ps", "cairn-worker"):
            run = self.run_to_end(program, "--version")
            self.assert_exit(DONE, run)
            self.assertRegex(run.stdout, rf"^{program} [0-9.]+ \(commit ([0-9a-f]{{7,}}|unknown), \w+, (GCC|Clang) [0-9.]+, "
                                         r"(CUDA [0-9.]+|no CUDA)\)\n$")
            lines[program] = run.stdout.removeprefix(program)
        self.assertEqual(len(set(lines.values())), 1, lines)
        self.assertEqual(self.run_to_end("cairn", "version").stdout, "cairn" + lines["cairn"])


class TaskUsageTest(IntegrationTest):
    """`cairn-ps` and `cairn-worker`."""

    def refused(self, pattern, program, *arguments, env=None):
        self.assert_refused(self.run_to_end(program, *arguments, env=env), f"^{program}: .*" + pattern)

    def worker_refused(self, pattern, *arguments):
        self.refused(pattern, "cairn-worker", "--job_name=worker", "--task_index=0", "--ps_hosts=127.0.0.1:1",
                     "--worker_hosts=127.0.0.1:2", *arguments)

    def test_a_missing_cluster_is_refused(self):
        self.refused("no cluster: give --ps_hosts", "cairn-ps", "--job_name=ps", "--task_index=0")

    def test_an_index_out_of_range_is_refused(self):
        self.refused("this task is ps/1, but the cluster has ps 0 only", "cairn-ps", "--ps_hosts=127.0.0.1:1",
                     "--job_name=ps", "--task_index=1")

    def test_a_repeated_address_is_refused(self):
        self.refused("worker/1: 127.0.0.1:2 is already the address of worker/0", "cairn-ps", "--job_name=ps",
                     "--task_index=0", "--ps_hosts=127.0.0.1:1", "--worker_hosts=127.0.0.1:2,127.0.0.1:2")

    def test_an_address_without_a_port_is_refused(self):
        self.refused("--ps_hosts: ps/0: .*localhost.*port", "cairn-ps", "--job_name=ps", "--task_index=0",
                     "--ps_hosts=localhost")

    def test_an_unknown_job_name_is_refused(self):
        self.refused('--job_name: "server" is not a job', "cairn-ps", "--job_name=server", "--task_index=0",
                     "--ps_hosts=127.0.0.1:1")

    def test_a_missing_cluster_file_is_refused(self):
        self.refused("--cluster: cannot open nowhere.json", "cairn-ps", "--cluster=nowhere.json", "--job_name=ps",
                     "--task_index=0")

    def test_a_broken_tf_config_is_refused(self):
        self.refused("TF_CONFIG:1: not valid JSON", "cairn-ps", env={"TF_CONFIG": '{"cluster": '})

    def test_a_tf_config_for_the_other_program_is_refused(self):
        config = {"cluster": {"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}, "task": {"type": "worker", "index": 0}}
        self.refused("this program is a ps, not a worker", "cairn-ps", env={"TF_CONFIG": json.dumps(config)})

    def test_a_worker_without_a_model_is_refused(self):
        self.worker_refused("--model", "--data_dir", small_data())

    def test_a_worker_without_data_is_refused(self):
        empty = self.directory / "empty"
        empty.mkdir()
        self.worker_refused("empty.*train-images", "--model", CNN, "--data_dir", empty)

    def test_a_second_server_on_a_port_is_refused(self):
        cluster = Cluster(self, ps=1, workers=1)
        first = cluster.start("ps", 0)
        self.assert_says(first, "Started server")
        flags, _ = cluster.by_flags("ps", 0)
        second = self.run_to_end("cairn-ps", *flags, "--job_name=ps", "--task_index=0")
        self.assert_exit(RETRYABLE, second)
        port = cluster.addresses["ps"][0].split(":")[1]
        self.assertRegex(second.stderr, f"cannot listen on 0.0.0.0:{port}: another process is using the port\n$")
        self.assertTrue(first.running)


if __name__ == "__main__":
    main()
