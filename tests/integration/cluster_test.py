"""Clusters whose tasks are started one by one, as a scheduler does: every task exits with 0 when the job is done."""

from harness import DONE, MLP, SMALL, Cluster, IntegrationTest, main, read_summary

SYNC = ["--model", MLP, "--sync_replicas", "--summary=summary.json"]
ASYNC = ["--model", MLP, "--summary=summary.json"]


class ClusterTest(IntegrationTest):

    def assert_all_end_well(self, tasks, **expected):
        self.assert_exit(DONE, *tasks.values())
        self.assert_nothing_runs()
        summary = read_summary(self.directory / "summary.json")
        self.assertEqual({name: summary[name] for name in expected}, expected)

    def test_a_cluster_given_by_flags_trains(self):
        tasks = Cluster(self, ps=2, workers=2).start_all(*SYNC)
        self.assert_all_end_well(tasks, mode="sync", ps=2, workers=2, global_step=32, gradients_accepted=64)

    def test_a_cluster_given_by_flags_trains_asynchronously(self):
        tasks = Cluster(self, ps=2, workers=2).start_all(*ASYNC)
        self.assert_all_end_well(tasks, mode="async", ps=2, workers=2, global_step=64, gradients_accepted=64)

    def test_a_cluster_given_by_flags_trains_with_bounded_staleness(self):
        tasks = Cluster(self, ps=2, workers=3).start_all(*ASYNC, "--mode=ssp", "--max_staleness=1",
                                                         "--staleness_aware_learning_rate", "--epochs=3")
        pushes = 3 * 3 * -(-SMALL["train"] // 3 // 32)
        self.assert_all_end_well(tasks, mode="ssp", ps=2, workers=3, epochs=3, global_step=pushes,
                                 gradients_accepted=pushes, gradients_stale=0, examples=3 * SMALL["train"])
        summary = read_summary(self.directory / "summary.json")
        self.assertEqual(sum(summary["staleness_histogram"]), pushes)
        # Between two steps of a worker, each other worker makes at most 2 * 1 + 1 steps.
        self.assertLessEqual(summary["staleness_max"], 2 * 3)

    def test_a_cluster_given_by_a_file_trains(self):
        cluster = Cluster(self)
        self.assert_all_end_well(cluster.start_all(*SYNC, told=cluster.by_file), ps=1, workers=2)

    def test_a_cluster_given_by_a_sparse_file_trains(self):
        cluster = Cluster(self, ps=2, workers=2)
        self.assert_all_end_well(cluster.start_all(*SYNC, told=cluster.by_sparse_file), ps=2, workers=2)

    def test_a_cluster_given_by_tf_config_trains(self):
        cluster = Cluster(self, ps=2, workers=2)
        self.assert_all_end_well(cluster.start_all(*SYNC, told=cluster.by_tf_config), ps=2, workers=2)

    def test_a_cluster_given_by_kubeflows_sparse_tf_config_trains(self):
        cluster = Cluster(self, ps=3, workers=2)
        self.assert_all_end_well(cluster.start_all(*SYNC, told=cluster.by_kubeflow_config), ps=3, workers=2)

    def test_tasks_may_be_given_the_cluster_in_different_ways(self):
        cluster = Cluster(self, ps=2, workers=3)
        ways = [cluster.by_flags, cluster.by_kubeflow_config, cluster.by_file, cluster.by_tf_config, cluster.by_flags]
        tasks = {f"{job}/{index}": cluster.start(job, index, *([] if job == "ps" else SYNC), told=told)
                 for (job, index), told in zip(cluster.tasks(), ways)}
        self.assert_all_end_well(tasks, ps=2, workers=3)

    def test_a_separate_chief_trains_too(self):
        tasks = Cluster(self, ps=2, workers=2, chief=True).start_all(*SYNC)
        self.assert_all_end_well(tasks, ps=2, workers=3)
        self.assertIn("Epoch 1/1\n", tasks["chief/0"].stdout)
        self.assertEqual(tasks["worker/0"].stdout + tasks["worker/1"].stdout, "")

    def test_a_separate_chief_trains_asynchronously(self):
        tasks = Cluster(self, ps=1, workers=1, chief=True).start_all(*ASYNC)
        self.assert_all_end_well(tasks, mode="async", workers=2)

    def test_one_worker_and_one_server_train(self):
        self.assert_all_end_well(Cluster(self, ps=1, workers=1).start_all(*SYNC), workers=1, gradients_accepted=63)


class StartOrderTest(IntegrationTest):

    def test_workers_may_start_before_servers(self):
        cluster = Cluster(self, ps=2, workers=2)
        workers = [cluster.start("worker", index, *SYNC) for index in (1, 0)]
        for worker in workers:
            self.assert_says(worker, "sync training of mnist_mlp")  # next it connects to the servers
        servers = [cluster.start("ps", index) for index in (1, 0)]
        self.assert_exit(DONE, *workers, *servers)

    def test_the_chief_may_start_last(self):
        cluster = Cluster(self, ps=1, workers=2)
        other = cluster.start("worker", 1, *SYNC)
        server = cluster.start("ps", 0)
        self.assert_says(other, "sync training of mnist_mlp")
        self.assert_says(server, "Started server with target: grpc://127.0.0.1:")
        chief = cluster.start("worker", 0, *SYNC)
        self.assert_exit(DONE, chief, other, server)

    def test_training_waits_for_the_last_worker(self):
        cluster = Cluster(self, ps=1, workers=2)
        server, chief = cluster.start("ps", 0), cluster.start("worker", 0, *SYNC)
        self.assert_says(server, "worker/0 joined")
        other = cluster.start("worker", 1, *SYNC)
        self.assert_exit(DONE, chief, other, server)
        self.assertEqual(read_summary(self.directory / "summary.json")["gradients_accepted"], 64)


if __name__ == "__main__":
    main()
