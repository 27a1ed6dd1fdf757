"""Workers without servers: `--mode allreduce` gives the result of synchronous servers, and ends as documented."""

import signal

from harness import DONE, FAILURE, MLP, RETRYABLE, Cluster, IntegrationTest, floats_of, main, read_summary

STEPS = ["--batch_size=16", "--train_steps=20", "--seed=3", "--novalidation"]


def around(step):
    """A pattern of the steps that another worker may be in when one dies at the end of its computation of `step`.

    The dying worker may have sent its whole gradient, so the others may be one step ahead, or one step behind.
    """
    return f"({step - 1}|{step}|{step + 1})"


class AllReduceTest(IntegrationTest):

    def trained(self, name, *flags, model=MLP):
        """The parameters and the summary of `cairn train`."""
        run = self.train(model, *STEPS, *flags, f"--summary={name}.json", f"--export_dir={name}")
        self.assert_exit(DONE, run)
        return floats_of(self.directory / name / "model.safetensors"), read_summary(self.directory / f"{name}.json")

    def assert_close(self, here, there):
        self.assertEqual(here.keys(), there.keys())
        for name in here:
            apart = max(abs(a - b) for a, b in zip(here[name], there[name], strict=True))
            self.assertLessEqual(apart, 1e-5, name)

    def test_the_result_equals_that_of_servers(self):
        for workers in (2, 4):
            with self.subTest(workers):
                ring, summary = self.trained(f"ring{workers}", "--mode=allreduce", f"--workers={workers}")
                served, other = self.trained(f"ps{workers}", "--sync_replicas", f"--workers={workers}")
                self.assert_close(ring, served)
                self.assertEqual((summary["mode"], summary["ps"], summary["workers"]), ("allreduce", 0, workers))
                same = ["global_step", "examples", "gradients_accepted"]
                if workers == 2:  # a sum of two has one order
                    same.append("parameters_sha256")
                for field in same:
                    self.assertEqual(summary[field], other[field], field)

    def test_the_result_with_clipping_and_adam_equals_that_of_servers(self):
        flags = ["--workers=3", "--optimizer=adam", "--global_clipnorm=0.1"]
        ring, _ = self.trained("ring", "--mode=allreduce", *flags)
        served, _ = self.trained("ps", "--sync_replicas", *flags)
        self.assert_close(ring, served)

    def test_a_restarted_chief_gets_the_values_of_a_peer(self):
        """A killed chief continues with the values of the other worker, and the result is bit-identical."""
        tasks = self.start_ring(2, "--model", MLP, *STEPS, "--fault=answered:10:KILL", faulty="worker/0")
        self.assert_exit(-signal.SIGKILL, tasks["worker/0"])
        chief = self.cluster.start("worker", 0, "--reuse_port", "--mode=allreduce", "--model", MLP, *STEPS,
                                   "--summary=summary.json")
        self.assert_exit(DONE, chief, tasks["worker/1"])
        after = read_summary(self.directory / "summary.json")["parameters_sha256"]
        _, undisturbed = self.trained("whole", "--mode=allreduce", "--workers=2")
        self.assertEqual(after, undisturbed["parameters_sha256"])

    def start_ring(self, workers, *flags, faulty=None):
        """Only the task `faulty` gets `--fault`."""
        self.cluster = Cluster(self, ps=0, workers=workers)
        tasks = {}
        for job, index in self.cluster.tasks():
            name = f"{job}/{index}"
            own = [flag for flag in flags if not str(flag).startswith("--fault") or name == faulty]
            tasks[name] = self.cluster.start(job, index, "--reuse_port", "--mode=allreduce", *own)
        return tasks

    def test_a_killed_worker_is_restarted_and_no_step_is_lost(self):
        _, undisturbed = self.trained("whole", "--mode=allreduce", "--workers=3")
        run = self.train(MLP, *STEPS, "--mode=allreduce", "--workers=3", "--summary=summary.json",
                         "--fault=worker/1:computed:7:KILL")
        self.assert_exit(DONE, run)
        summary = read_summary(self.directory / "summary.json")
        self.assertEqual(summary["parameters_sha256"], undisturbed["parameters_sha256"])
        self.assertRegex(run.stderr, rf"lost worker/1 at 127\.0\.0\.1:\d+ in step {around(7)}: .*; joining again")

    def test_a_chief_killed_after_the_last_step_gets_the_result_from_a_peer(self):
        _, undisturbed = self.trained("whole", "--mode=allreduce", "--workers=2")
        run = self.train(MLP, *STEPS, "--mode=allreduce", "--workers=2", "--train_dir=run", "--save_steps=1000",
                         "--summary=summary.json", "--fault=worker/0:snapshot:1:KILL")
        self.assert_exit(DONE, run)
        self.assertRegex(run.stderr, r"lost worker/0 at 127\.0\.0\.1:\d+ in step 2[12]: .*; joining again")
        self.assertEqual(read_summary(self.directory / "summary.json")["parameters_sha256"],
                         undisturbed["parameters_sha256"])

    def test_all_workers_end_if_a_lost_one_does_not_return(self):
        tasks = self.start_ring(3, "--model", MLP, "--epochs=10000", "--connect_timeout=8", "--fault=computed:5:KILL",
                                faulty="worker/2")
        self.assert_exit(-signal.SIGKILL, tasks["worker/2"])
        self.assert_exit(RETRYABLE, tasks["worker/0"], tasks["worker/1"])
        self.assertRegex(tasks["worker/0"].stderr, rf"lost worker/2 at 127\.0\.0\.1:\d+ in step {around(5)}: ")
        self.assertRegex(tasks["worker/1"].stderr, r"(worker/2 at 127\.0\.0\.1:\d+ was not reached in time: connection refused"
                                                   r"|timed out waiting for worker/2 at 127\.0\.0\.1:\d+ to connect)")

    def test_a_silent_worker_is_lost_when_its_lease_expires(self):
        tasks = self.start_ring(2, "--model", MLP, "--epochs=10000", "--lease=2", "--connect_timeout=8",
                                "--fault=computed:5:STOP", faulty="worker/1")
        self.assert_exit(RETRYABLE, tasks["worker/0"])
        self.assertRegex(tasks["worker/0"].stderr, r"lost worker/1 at 127\.0\.0\.1:\d+ in step \d+: not heard from for 2 s")
        tasks["worker/1"].signal(signal.SIGKILL)

    def test_a_value_that_is_not_finite_ends_all_workers(self):
        tasks = self.start_ring(3, "--model", MLP, "--learning_rate=1e30")
        self.assert_exit(FAILURE, *tasks.values())
        for name, task in tasks.items():
            with self.subTest(name):
                self.assertRegex(task.stderr, "the (loss|gradient of '.*'|variable '.*') is -?(nan|inf|not finite)")

    def test_a_job_resumes_from_its_checkpoint_with_and_without_servers(self):
        flags = ["--batch_size=16", "--seed=3", "--novalidation", "--train_dir=run", "--summary=summary.json"]
        self.assert_exit(DONE, self.train(MLP, "--mode=allreduce", "--workers=2", "--train_steps=10", *flags))
        second = self.train(MLP, "--mode=allreduce", "--workers=2", "--train_steps=20", *flags)
        self.assert_exit(DONE, second)
        self.assertRegex(second.stderr, "resuming from step 10")
        _, undisturbed = self.trained("whole", "--mode=allreduce", "--workers=2")
        self.assertEqual(read_summary(self.directory / "summary.json")["parameters_sha256"],
                         undisturbed["parameters_sha256"])
        third = self.train(MLP, "--sync_replicas", "--workers=2", "--train_steps=22", *flags)
        self.assert_exit(DONE, third)
        self.assertRegex(third.stderr, "resuming from step 20")

    def test_early_stopping_by_the_chief_ends_all_workers(self):
        run = self.train(MLP, "--mode=allreduce", "--ps=0", "--workers=2", "--epochs=50", "--early_stopping=0",
                         "--baseline=0.000001", "--summary=summary.json")
        self.assert_exit(DONE, run)
        self.assertLess(read_summary(self.directory / "summary.json")["epochs"], 50)

    def test_flags_that_need_servers_are_refused(self):
        for flag, said in (("--ps=1", "--ps does not go with --mode allreduce"),
                           ("--max_staleness=1", "--max_staleness does not go with --mode allreduce"),
                           ("--elastic", "--elastic does not go with --mode allreduce"),
                           ("--ps_replication=1", "--ps_replication does not go with --mode allreduce"),
                           ("--data_sharding=dynamic", "--data_sharding dynamic does not go with --mode allreduce"),
                           ("--replicas_to_aggregate=1", "--replicas_to_aggregate does not go with --mode allreduce"),
                           ("--wire_values=bfloat16", "--wire_values does not go with --mode allreduce"),
                           ("--wire_dtype=topk", "--wire_dtype does not go with --mode allreduce")):
            with self.subTest(flag):
                self.assert_refused(self.train(MLP, "--mode=allreduce", flag), said)
        self.assert_refused(self.train(MLP, "--ps=0"), "--ps: 0 servers: only --mode allreduce trains without servers")
        cluster = Cluster(self, ps=1, workers=1)
        self.assert_refused(cluster.start("worker", 0, "--mode=allreduce", "--model", MLP),
                            "--mode allreduce does not use the cluster's 1 ps")


if __name__ == "__main__":
    main()
