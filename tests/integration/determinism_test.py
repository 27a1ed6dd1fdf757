"""Synchronous training gives the same variables, bit for bit, whatever the timing and the number of servers."""

import random
import signal
import time

from harness import CNN, DONE, MLP, TIME_LIMIT, Cluster, IntegrationTest, main, read_summary


class DeterminismTest(IntegrationTest):

    def parameters_after(self, *flags, model=MLP, threads=1):
        """The digest of all variables after `cairn train`."""
        run = self.train(model, "--sync_replicas", "--workers=3", "--batch_size=16", "--summary=summary.json", *flags,
                         threads=threads)
        self.assert_exit(DONE, run)
        return read_summary(self.directory / "summary.json")["parameters_sha256"]

    def test_two_runs_of_a_seed_are_equal_and_another_seed_differs(self):
        first, again = self.parameters_after("--seed=7"), self.parameters_after("--seed=7")
        self.assertEqual(first, again)
        self.assertNotEqual(first, self.parameters_after("--seed=8"))

    def test_two_runs_of_the_cnn_are_equal(self):
        self.assertEqual(self.parameters_after("--train_steps=15", model=CNN),
                         self.parameters_after("--train_steps=15", model=CNN))

    def test_deterministic_threads_give_equal_runs(self):
        flags = ["--train_steps=15", "--deterministic"]
        digests = {self.parameters_after(*flags, model=CNN, threads=threads) for threads in (1, 2, 3)}
        self.assertEqual(len(digests), 1)

    def test_one_server_and_three_are_equal(self):
        self.assertEqual(self.parameters_after("--ps=1"), self.parameters_after("--ps=3"))

    def test_16_bit_values_give_equal_runs_for_any_number_of_servers(self):
        exact = self.parameters_after("--ps=1")
        for dtype in ("bfloat16", "float16"):
            with self.subTest(dtype):
                rounded = self.parameters_after("--ps=1", f"--wire_dtype={dtype}")
                self.assertNotEqual(rounded, exact)
                self.assertEqual(rounded, self.parameters_after("--ps=3", f"--wire_dtype={dtype}", "--transport=tcp"))

    def test_norms_span_all_servers(self):
        flags = ["--optimizer=lamb", "--global_clipnorm=0.1", "--train_steps=20"]  # the first kernel is split
        self.assertEqual(self.parameters_after("--ps=1", *flags), self.parameters_after("--ps=3", *flags))

    def test_random_pauses_of_a_worker_change_nothing(self):
        flags = ["--model", CNN, "--sync_replicas", "--batch_size=16", "--train_steps=100", "--summary=summary.json"]
        digests = []
        for slow in (False, True):
            cluster = Cluster(self, ps=2, workers=3)
            tasks = cluster.start_all(*flags)
            pauses = self.slow_down(tasks["worker/2"], until=tasks["worker/0"]) if slow else 0
            self.assert_exit(DONE, *tasks.values())
            digests.append(read_summary(self.directory / "summary.json")["parameters_sha256"])
        self.assertGreater(pauses, 3)
        self.assertEqual(*digests)

    def slow_down(self, worker, until):
        """Pauses `worker` at random, for less than its lease, until `until` has ended. Returns the number of pauses."""
        chance, pauses, limit = random.Random(0), 0, time.monotonic() + TIME_LIMIT
        while time.monotonic() < limit and not until.wait(chance.uniform(0.01, 0.1)) and worker.running:
            worker.signal(signal.SIGSTOP)
            until.wait(chance.uniform(0.02, 0.3))
            worker.signal(signal.SIGCONT)
            pauses += 1
        return pauses


if __name__ == "__main__":
    main()
