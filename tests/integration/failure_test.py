"""Failures of a running cluster: which tasks end, with which exit codes and messages."""

import re
import signal

from harness import (CNN, DONE, FAILURE, INCOMPATIBLE, INTERRUPTED, MLP, RETRYABLE, TERMINATED, Cluster,
                     IntegrationTest, Relay, main, read_summary, reserve_port)

LONG = ["--model", CNN, "--epochs=10000", "--display_every=1"]  # hours


class UnreachableServerTest(IntegrationTest):

    def test_a_worker_names_the_server_that_it_cannot_reach(self):
        cluster = Cluster(self, ps=2, workers=1)
        server = cluster.start("ps", 0)
        self.assert_says(server, "Started server")
        worker = cluster.start("worker", 0, "--model", MLP, "--connect_timeout=2")
        self.assert_exit(RETRYABLE, worker)
        address = cluster.addresses["ps"][1]
        self.assertIn(f"not reached within 2 s: ps/1 at {address}: connection refused\n", worker.stderr)
        self.assertTrue(server.running)

    def test_a_worker_without_a_chief_reports_that_the_job_is_not_declared(self):
        cluster = Cluster(self, ps=1, workers=2)
        self.assert_says(cluster.start("ps", 0), "Started server")
        worker = cluster.start("worker", 1, "--model", MLP, "--connect_timeout=3")
        self.assert_exit(RETRYABLE, worker)
        self.assertIn("waited 3 s for ps/0", worker.stderr)
        self.assertIn("the chief has not declared the job", worker.stderr)


class MismatchTest(IntegrationTest):
    """Tasks with different configurations: the later one exits with 3 and names the difference."""

    def test_servers_in_another_order_are_refused(self):
        cluster = Cluster(self, ps=2, workers=1)
        cluster.start("ps", 0), cluster.start("ps", 1)
        cluster.addresses["ps"].reverse()
        worker = cluster.start("worker", 0, "--model", MLP)
        self.assert_exit(INCOMPATIBLE, worker)
        self.assertRegex(worker.stderr, "this is ps/[01], but worker/0 expects ps/[01]")

    def test_a_server_of_another_cluster_is_refused(self):
        cluster = Cluster(self, ps=2, workers=1)
        cluster.start("ps", 0)
        del cluster.addresses["ps"][1]
        worker = cluster.start("worker", 0, "--model", MLP)
        self.assert_exit(INCOMPATIBLE, worker)
        self.assertIn("ps/0 belongs to another cluster than worker/0", worker.stderr)

    def test_a_worker_whose_flags_differ_from_the_chiefs_is_refused(self):
        cluster = Cluster(self, ps=1, workers=2)
        server = cluster.start("ps", 0)
        flags = {"model": MLP, "mode": "sync", "batch_size": 32, "epochs": 1, "seed": 1, "optimizer": "adam",
                 "learning_rate": 0.001}
        chief = cluster.start("worker", 0, *[f"--{name}={value}" for name, value in flags.items()])
        self.assert_says(server, "worker/0 joined")
        for name, value, said in (("model", CNN, "model: [0-9a-f]{12} here, [0-9a-f]{12} on the servers; .*variable 'conv2d/"),
                                  ("mode", "async", "mode: async here, sync on the servers"),
                                  ("batch_size", 64, "batch size: 64 here, 32 on the servers"),
                                  ("epochs", 2, "epochs: 2 here, 1 on the servers"),
                                  ("seed", 2, "seed: 2 here, 1 on the servers"),
                                  ("learning_rate", 0.01, "learning_rate: 0.01 here, 0.001 on the servers"),
                                  ("optimizer", "sgd", "optimizer: ")):
            with self.subTest(name):
                given = dict(flags, **{name: value})
                worker = cluster.start("worker", 1, *[f"--{flag}={value}" for flag, value in given.items()])
                self.assert_exit(INCOMPATIBLE, worker)
                self.assertRegex(worker.stderr, f"the servers train another job than worker/1: .*{said}")
        # The cluster is unharmed: with the right flags it finishes.
        worker = cluster.start("worker", 1, *[f"--{name}={value}" for name, value in flags.items()])
        self.assert_exit(DONE, chief, worker, server)


class NotFiniteTest(IntegrationTest):

    def assert_ends_everybody(self, *flags):
        tasks = Cluster(self, ps=2, workers=2).start_all("--model", MLP, "--learning_rate=1e30", *flags)
        self.assert_exit(FAILURE, *tasks.values())
        for name, task in tasks.items():
            with self.subTest(name):
                self.assertRegex(task.stderr, "the (loss|gradient of '.*'|variable '.*') is -?(nan|inf)")

    def test_sync(self):
        self.assert_ends_everybody("--sync_replicas")

    def test_async(self):
        self.assert_ends_everybody()


class SignalTest(IntegrationTest):

    def test_a_stopped_worker_leaves_and_the_others_finish(self):
        for number, code in ((signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)):
            with self.subTest(number.name):
                cluster = Cluster(self, ps=2, workers=2)
                tasks = cluster.start_all("--model", CNN, "--sync_replicas", "--train_steps=40", "--display_every=1",
                                          "--summary=summary.json")
                self.assert_says(tasks["worker/0"], "^ 3/32 - ")
                tasks["worker/1"].signal(number)
                self.assert_exit(code, tasks.pop("worker/1"))
                self.assert_exit(DONE, *tasks.values())
                self.assertLess(read_summary(self.directory / "summary.json")["gradients_accepted"], 2 * 40)

    def test_a_worker_that_waits_for_servers_can_be_stopped(self):
        worker = Cluster(self, ps=1, workers=1).start("worker", 0, "--model", MLP)
        self.assert_says(worker, "async training of mnist_mlp")
        worker.signal(signal.SIGTERM)
        self.assert_exit(TERMINATED, worker, seconds=5)

    def test_a_worker_that_waits_for_the_chief_can_be_stopped(self):
        cluster = Cluster(self, ps=1, workers=2)
        self.assert_says(cluster.start("ps", 0), "Started server")
        worker = cluster.start("worker", 1, "--model", MLP)
        self.assert_says(worker, "async training of mnist_mlp")
        worker.signal(signal.SIGINT)
        self.assert_exit(INTERRUPTED, worker, seconds=5)

    def test_a_server_can_be_stopped(self):
        for number, code in ((signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)):
            with self.subTest(number.name):
                server = Cluster(self, ps=1, workers=1).start("ps", 0)
                self.assert_says(server, "Started server")
                server.signal(number)
                self.assert_exit(code, server, seconds=5)


class LossTest(IntegrationTest):
    """The reaction of the other tasks when one is killed."""

    def test_the_others_continue_when_the_lease_of_a_killed_worker_expires(self):
        steps = 60
        tasks = Cluster(self, ps=2, workers=3).start_all("--model", CNN, "--sync_replicas", f"--train_steps={steps}",
                                                         "--display_every=1", "--summary=summary.json")
        self.assert_says(tasks["worker/0"], "^ 5/21 - ")
        tasks["worker/2"].signal(signal.SIGKILL)
        self.assert_exit(-signal.SIGKILL, tasks.pop("worker/2"))
        self.assert_exit(DONE, *tasks.values())
        self.assertIn("worker/2 sent no heartbeat for 10 s: it leaves the job", tasks["ps/0"].stderr)
        summary = read_summary(self.directory / "summary.json")
        self.assertEqual(summary["global_step"], steps)
        self.assertGreaterEqual(summary["gradients_accepted"], 2 * steps + 5)
        self.assertLess(summary["gradients_accepted"], 3 * steps)

    def test_async_workers_do_not_wait_for_a_killed_worker(self):
        tasks = Cluster(self, ps=2, workers=3).start_all("--model", CNN, "--train_steps=400", "--display_every=1")
        self.assert_says(tasks["worker/0"], "^ 3/21 - ")
        self.assert_says(tasks["worker/2"], "joined the job")
        tasks["worker/2"].signal(signal.SIGKILL)
        self.assert_exit(-signal.SIGKILL, tasks.pop("worker/2"))
        self.assert_exit(DONE, *tasks.values())

    def test_ssp_workers_wait_for_a_killed_worker_no_longer_than_its_lease(self):
        tasks = Cluster(self, ps=2, workers=3).start_all("--model", CNN, "--mode=ssp", "--max_staleness=1", "--epochs=3",
                                                         "--display_every=1", "--summary=summary.json")
        self.assert_says(tasks["worker/0"], "^ 5/21 - ")
        tasks["worker/2"].signal(signal.SIGKILL)
        self.assert_exit(-signal.SIGKILL, tasks.pop("worker/2"))
        self.assert_exit(DONE, *tasks.values())
        self.assertIn("worker/2 sent no heartbeat for 10 s: it leaves the job", tasks["ps/0"].stderr)
        pushes = read_summary(self.directory / "summary.json")["gradients_accepted"]
        self.assertGreaterEqual(pushes, 2 * 3 * 21 + 4)
        self.assertLess(pushes, 3 * 3 * 21)

    def assert_workers_name_the_killed_server(self, index, *flags):
        cluster = Cluster(self, ps=2, workers=2)
        tasks = cluster.start_all(*LONG, "--step_timeout=10", *flags)
        self.assert_says(tasks["worker/0"], "^ 3/32 - ")
        self.assert_says(tasks["worker/1"], "joined the job")
        tasks[f"ps/{index}"].signal(signal.SIGKILL)
        for name in ("worker/0", "worker/1"):
            self.assert_exit(RETRYABLE, tasks[name])
            last = tasks[name].stderr.splitlines()[-1]
            address = re.escape(cluster.addresses["ps"][index])
            self.assertRegex(last, f"step [0-9]+ of {name}: .*ps/{index} at {address}")

    def test_workers_name_the_killed_server(self):
        self.assert_workers_name_the_killed_server(1, "--sync_replicas")

    def test_workers_name_the_killed_first_server(self):
        self.assert_workers_name_the_killed_server(0, "--sync_replicas")

    def test_async_workers_name_the_killed_server(self):
        self.assert_workers_name_the_killed_server(1)

    def test_async_workers_that_clip_by_a_global_norm_name_the_killed_server(self):
        self.assert_workers_name_the_killed_server(1, "--global_clipnorm=1")

    def test_workers_report_that_a_server_has_been_restarted(self):
        cluster = Cluster(self, ps=2, workers=2)
        tasks = cluster.start_all(*LONG, "--sync_replicas", "--step_timeout=30")
        self.assert_says(tasks["worker/0"], "^ 3/32 - ")
        tasks["ps/1"].signal(signal.SIGKILL)
        self.assert_exit(-signal.SIGKILL, tasks["ps/1"])
        cluster.start("ps", 1)
        for name in ("worker/0", "worker/1"):
            self.assert_exit(RETRYABLE, tasks[name], seconds=20)
            self.assertIn("has been restarted and has lost its variables", tasks[name].stderr)


class BrokenConnectionTest(IntegrationTest):
    LINES = ["^ 3/32 - ", "^11/32 - ", "^24/32 - "]

    def summary_of(self, *flags, cut_at=(), behind_relay=1, transport="tcp"):
        """Trains with one ps behind relays that break all its connections when the chief prints each of `cut_at`."""
        cluster = Cluster(self, ps=2, workers=2)
        port = reserve_port(self)
        relays = {"grpc": Relay(self, port, host="127.0.0.2"), "tcp": Relay(self, host="127.0.0.2")}
        cluster.addresses["ps"][behind_relay] = f"127.0.0.2:{relays['grpc'].port}"
        listens = [f"--listen=127.0.0.1:{port}", f"--data_port={relays['tcp'].port}"]
        tasks = [cluster.start("ps", index, *(listens if index == behind_relay else [])) for index in (0, 1)]
        tasks += [cluster.start("worker", index, "--model", CNN, "--summary=summary.json", "--display_every=1",
                                f"--transport={transport}", *flags) for index in (0, 1)]
        for line in cut_at:
            self.assert_says(tasks[2], line)
            broken = {name: relay.cut() for name, relay in relays.items()}
            self.assertGreater(broken[transport], 0)
        self.assert_exit(DONE, *tasks)
        return read_summary(self.directory / "summary.json")

    def test_a_sync_job_reconnects_and_counts_every_gradient_once(self):
        whole = self.summary_of("--sync_replicas", "--train_steps=40")
        broken = self.summary_of("--sync_replicas", "--train_steps=40", cut_at=self.LINES)
        self.assertEqual(broken["gradients_accepted"], 80)
        self.assertEqual(broken["parameters_sha256"], whole["parameters_sha256"])
        by_grpc = self.summary_of("--sync_replicas", "--train_steps=40", cut_at=self.LINES, transport="grpc")
        self.assertEqual(by_grpc["parameters_sha256"], whole["parameters_sha256"])

    def test_servers_that_exchange_norms_reconnect(self):
        flags = ["--sync_replicas", "--train_steps=40", "--global_clipnorm=0.1", "--optimizer=lamb"]
        whole = self.summary_of(*flags)
        broken = self.summary_of(*flags, cut_at=self.LINES, behind_relay=0)
        self.assertEqual(broken["gradients_accepted"], 80)
        self.assertEqual(broken["parameters_sha256"], whole["parameters_sha256"])

    def test_an_async_job_reconnects(self):
        self.assertEqual(self.summary_of("--train_steps=150", cut_at=self.LINES)["global_step"], 150)


if __name__ == "__main__":
    main()
