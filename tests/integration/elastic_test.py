"""Workers that join and leave a running job, and dynamic data sharding, with real processes."""

import os
import pathlib
import signal

from harness import DONE, MLP, SMALL, TERMINATED, Cluster, IntegrationTest, main, read_summary, small_data

EXAMPLES = SMALL["train"]


class ElasticTest(IntegrationTest):

    def worker(self, cluster, index, *flags):
        """Starts a worker that its own cluster flags do not list."""
        told = lambda _job, _index: ([f"--ps_hosts={','.join(cluster.addresses['ps'])}"], {})  # noqa: E731
        return cluster.start("worker", index, "--elastic", f"--model={MLP}", *flags, told=told)

    def assert_all_used_once(self, summary, epochs):
        self.assertEqual(summary["examples"], EXAMPLES * epochs)
        self.assertEqual(summary["examples_missed"], 0)
        self.assertEqual(summary["examples_repeated"], 0)
        self.assertEqual(summary["epochs"], epochs)

    def test_a_job_goes_from_one_worker_to_three_to_two(self):
        epochs = 8
        flags = ["--sync_replicas", "--batch_size=10", f"--epochs={epochs}", "--novalidation", "--lease=60"]
        cluster = Cluster(self, ps=2, workers=1)
        servers = [cluster.start("ps", index) for index in range(2)]
        chief = self.worker(cluster, 0, *flags, f"--summary={self.directory}/summary.json")
        self.assert_says(chief, r"joined the job at step 0")
        chief.signal(signal.SIGSTOP)  # the round waits for it, so the job cannot end before the others join
        others = [self.worker(cluster, index, *flags) for index in (5, 9)]
        for other in others:
            self.assert_says(other, r"joined the job at step")
        chief.signal(signal.SIGCONT)
        self.assert_says(chief, r"3 workers take part now, [12] before")
        others[1].signal(signal.SIGTERM)
        self.assert_says(chief, r"2 workers take part now, 3 before")
        self.assert_exit(TERMINATED, others[1])
        self.assert_exit(DONE, chief, others[0], *servers, seconds=240)
        summary = read_summary(self.directory / "summary.json")
        self.assert_all_used_once(summary, epochs)
        self.assertEqual((summary["workers"], summary["workers_max"]), (2, 3))

    def test_a_worker_that_joins_after_a_server_is_lost_finds_its_backup(self):
        epochs = 4
        flags = ["--sync_replicas", "--batch_size=10", f"--epochs={epochs}", "--novalidation", "--lease=60", "--ps_replication=1"]
        cluster = Cluster(self, ps=2, workers=1)
        servers = [cluster.start("ps", index) for index in range(2)]
        chief = self.worker(cluster, 0, *flags, f"--summary={self.directory}/summary.json")
        for server in servers:
            self.assert_says(server, r"shard is in sync with its backup on")
        self.assert_says(chief, r"joined the job at step 0")
        chief.signal(signal.SIGSTOP)  # the round waits for it
        servers[1].signal(signal.SIGKILL)
        self.assert_exit(-signal.SIGKILL, servers[1])
        later = self.worker(cluster, 7, *flags)
        self.assert_says(later, r"joined the job at step")
        chief.signal(signal.SIGCONT)
        self.assert_exit(DONE, chief, later, servers[0], seconds=240)
        summary = read_summary(self.directory / "summary.json")
        self.assert_all_used_once(summary, epochs)
        self.assertEqual(summary["workers_max"], 2)
        for worker in (chief, later):
            self.assertNotRegex(worker.stderr, "resuming from step|starts again at step 0|joining again")

    def assert_a_killed_server_loses_nothing(self, killed, rounds=True):
        """One worker joins before a server is killed in the middle of training and another one after it; then the
        server is restarted. The workers stop themselves at fixed steps, and no other task can do their work, so the
        events happen in this order on machines of any speed."""
        epochs = 3
        flags = ["--sync_replicas" if rounds else "--mode=async", "--batch_size=10", f"--epochs={epochs}", "--novalidation",
                 "--lease=300", "--ps_replication=1"]
        cluster = Cluster(self, ps=2, workers=1)
        servers = [cluster.start("ps", index, *(["--fault=applied:120:KILL"] if index == killed else [])) for index in range(2)]
        chief = self.worker(cluster, 0, *flags, f"--summary={self.directory}/summary.json", "--fault=computed:20:STOP")
        self.assert_stops(chief)
        before = self.worker(cluster, 5, *flags, "--fault=computed:100:STOP")
        self.assert_says(before, r"joined the job at step")
        if not rounds:  # else the worker waits for the chief
            self.assert_stops(before)
        chief.signal(signal.SIGCONT)
        self.assert_says(chief, r"2 workers take part now, 1 before")
        self.assert_exit(-signal.SIGKILL, servers[killed])
        after = self.worker(cluster, 9, *flags)
        self.assert_says(after, r"joined the job at step")
        servers[killed] = cluster.start("ps", killed)
        for part in range(2):
            self.assert_says(servers[killed], rf"the backup of ps/{part}'s shard is in sync")
        self.assert_stops(before)
        before.signal(signal.SIGCONT)
        self.assert_exit(DONE, chief, before, after, *servers, seconds=240)
        summary = read_summary(self.directory / "summary.json")
        self.assert_all_used_once(summary, epochs)
        if rounds:  # else no work may be left for the last worker
            self.assertEqual(summary["workers_max"], 3)
        for worker in (chief, before, after):
            self.assertNotRegex(worker.stderr, "resuming from step|starts again at step 0|joining again")

    def test_workers_join_before_and_after_the_leader_is_killed(self):
        self.assert_a_killed_server_loses_nothing(0)

    def test_workers_join_before_and_after_another_server_is_killed(self):
        self.assert_a_killed_server_loses_nothing(1)

    def test_workers_join_before_and_after_the_leader_of_an_asynchronous_job_is_killed(self):
        self.assert_a_killed_server_loses_nothing(0, rounds=False)

    def test_new_workers_resume_from_the_checkpoint_after_all_were_killed(self):
        epochs = 6
        flags = ["--sync_replicas", "--batch_size=10", f"--epochs={epochs}", "--novalidation", "--train_dir=train",
                 "--save_steps=30", "--save_secs=0"]
        cluster = Cluster(self, ps=2, workers=1)
        tasks = [cluster.start("ps", index) for index in range(2)]
        tasks += [self.worker(cluster, index, "--min_workers=2", *flags) for index in (0, 1)]
        self.assert_says(tasks[2], r"saved .*step-")
        for task in tasks:
            task.signal(signal.SIGKILL)
            self.assertTrue(task.wait(10))
        later = Cluster(self, ps=1, workers=1)
        server = later.start("ps", 0)
        workers = [self.worker(later, index, "--min_workers=3", *flags, f"--summary={self.directory}/summary.json")
                   for index in (0, 1, 2)]
        self.assert_says(workers[0], r"resuming from step")
        self.assert_exit(DONE, server, *workers)
        self.assert_all_used_once(read_summary(self.directory / "summary.json"), epochs)

    def test_dynamic_sharding_uses_each_example_once_in_every_mode(self):
        for mode in (["--sync_replicas"], ["--mode=async"], ["--mode=ssp", "--max_staleness=1"]):
            with self.subTest(mode[0]):
                run = self.train(MLP, "--workers=3", "--ps=2", *mode, "--data_sharding=dynamic", "--epochs=2",
                                 "--batch_size=30", "--summary=summary.json")
                self.assert_exit(DONE, run)
                summary = read_summary(self.directory / "summary.json")
                self.assert_all_used_once(summary, epochs=2)
                if mode[0] == "--sync_replicas":  # else the work may be done before the last worker has joined
                    self.assertEqual(summary["workers"], 3)
                    self.assertEqual(run.stdout.count("67/67 - "), 2)  # batches of all workers

    def test_a_worker_under_the_launcher_leaves_at_sigterm(self):
        run = self.start("cairn", "train", MLP, "--elastic", "--workers=2", "--sync_replicas", "--epochs=1000",
                         "--batch_size=10", "--novalidation", "--verbose", "--summary=summary.json",
                         "--data_dir", small_data(), "--threads=1")
        self.assert_says(run, r"more workers may join: cairn-worker --job_name=worker --task_index=2 --ps_hosts=127")
        self.assert_says(run, r"worker/1\] .*joined the job")
        for pid in self.marked():
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "--task_index=1" in command and "--job_name=worker" in command:
                os.kill(pid, signal.SIGTERM)
        self.assert_says(run, r"worker/1 ended with exit code 143: it has left the job")
        run.signal(signal.SIGTERM)
        self.assert_exit(TERMINATED, run)
        self.assert_nothing_runs()

    def test_conflicting_flags_are_refused(self):
        for flags, fault in ((["--elastic", "--data_sharding=static"], "--elastic does not go with"),
                             (["--data_sharding=dynamic", "--shard_tail=pad"], "--shard_tail pad does not go with"),
                             (["--elastic", "--min_workers=3", "--max_workers=2"], "--max_workers: 2, fewer than"),
                             (["--min_workers=2"], "--min-?_?workers")):
            with self.subTest(flags):
                self.assert_refused(self.train(MLP, *flags), fault)


if __name__ == "__main__":
    main()
