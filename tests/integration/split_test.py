"""A model split over several workers trains like one worker, also when workers are killed."""

import re

from harness import DONE, INCOMPATIBLE, MLP, RETRYABLE, Cluster, IntegrationTest, main, read_summary

STEPS = ["--batch_size=16", "--train_steps=20", "--seed=3"]
SPLIT = "--place=dense=/job:worker/task:0,dense_1=/job:worker/task:1"


class SplitTest(IntegrationTest):

    def trained(self, *flags):
        steps = [step for step in STEPS if step.split("=")[0] not in {flag.split("=")[0] for flag in flags}]
        run = self.train(MLP, *steps, "--summary=summary.json", *flags)
        self.assert_exit(DONE, run)
        return read_summary(self.directory / "summary.json"), run

    def test_a_group_of_two_workers_gives_the_result_of_one_worker(self):
        alone, _ = self.trained("--sync_replicas")
        divided, run = self.trained("--sync_replicas", "--workers=2", SPLIT, "--micro_batches=1",
                                    "--log_device_placement")
        for field in ("parameters_sha256", "global_step", "examples", "workers", "val_accuracy"):
            self.assertEqual(divided[field], alone[field], field)
        self.assertRegex(run.stderr, r"worker/0\] dense_1: \(Dense\): /job:worker/task:1\n")
        self.assertRegex(run.stderr, r"worker/1\] dense_1: \(Dense\): /job:worker/task:1/device:CPU:0\n")
        pieces, _ = self.trained("--sync_replicas", "--workers=2", SPLIT, "--transport=tcp")
        self.assertAlmostEqual(pieces["val_loss"], alone["val_loss"], delta=1e-5)

    def test_two_groups_give_the_result_of_two_workers(self):
        flags = ["--sync_replicas", "--novalidation", "--train_steps=10"]
        two, _ = self.trained("--workers=2", *flags)
        groups, _ = self.trained("--workers=4", SPLIT, "--micro_batches=1", *flags)
        for field in ("parameters_sha256", "global_step", "examples", "workers", "gradients_accepted"):
            self.assertEqual(groups[field], two[field], field)

    def test_killed_stage_workers_and_leaders_are_restarted(self):
        alone, _ = self.trained("--sync_replicas", "--novalidation")
        again, run = self.trained("--sync_replicas", "--novalidation", "--workers=2", SPLIT, "--micro_batches=1",
                                  "--fault=worker/1:computed:7:KILL", "--fault=worker/0:computed:12:KILL")
        self.assertRegex(run.stderr, r"worker/0\] lost worker/1 at 127\.0\.0\.1:\d+ in step 7: .*; the batch will be repeated")
        self.assertRegex(run.stderr, r"worker/1\] lost worker/0 at 127\.0\.0\.1:\d+ in step 12: ")
        self.assertEqual(again["parameters_sha256"], alone["parameters_sha256"])

    def test_split_models_train_in_asynchronous_modes(self):
        for flags in (["--mode=async"], ["--mode=ssp", "--max_staleness=1"]):
            with self.subTest(flags):
                summary, _ = self.trained("--workers=4", SPLIT, "--novalidation", "--train_steps=10", *flags)
                self.assertGreaterEqual(summary["global_step"], 10)

    def test_a_worker_with_another_split_is_refused(self):
        cluster = Cluster(self, ps=1, workers=2)
        partner = cluster.start("worker", 1, "--reuse_port", "--model", MLP, *STEPS, SPLIT, "--connect_timeout=30")
        head = cluster.start("worker", 0, "--model", MLP, *STEPS, SPLIT, "--micro_batches=2")
        self.assert_exit(INCOMPATIBLE, head)
        self.assertRegex(head.stderr, r"worker/1 at 127\.0\.0\.1:\d+: it divides the model differently from the caller: a "
                                      r"batch is in 8 micro-batches here, 2 there")
        self.assertTrue(partner.running)

    def test_waiting_for_servers_ends_at_the_timeout(self):
        cluster = Cluster(self, ps=1, workers=2)
        flags = ["--reuse_port", "--model", MLP, *STEPS, SPLIT, "--connect_timeout=1"]
        head, partner = (cluster.start("worker", i, *flags) for i in (0, 1))
        self.assert_exit(RETRYABLE, head, partner)

    def test_impossible_splits_are_refused(self):
        for flags, said in ((["--workers=3", SPLIT], "--place divides the model over 2 workers, and 3 workers are not a multiple of that"),
                            (["--workers=2", "--place=dense=/task:2"], "no layer is on /job:worker/task:1"),
                            (["--workers=2", SPLIT, "--mode=allreduce"], "--mode allreduce does not go with a model that"),
                            (["--workers=2", SPLIT, "--elastic"], "--elastic does not go with a model that"),
                            (["--workers=2", "--place=dense=/job:ps/task:1"], "a task of /job:worker, not of /job:ps")):
            with self.subTest(flags):
                self.assert_refused(self.train(MLP, *flags), re.escape(said))


if __name__ == "__main__":
    main()
