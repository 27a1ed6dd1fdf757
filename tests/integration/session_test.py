"""Training loops on the public headers, with real servers: deploy/examples/linear_model.cc, session_program.cc."""

import signal

from harness import DONE, Cluster, IntegrationTest, main

FOUND = "kernel 1.00 2.00 -3.00, bias 0.50\n"


class SessionTest(IntegrationTest):

    def start_servers(self, count):
        self.cluster = Cluster(self, ps=count, workers=0)
        self.servers = [self.cluster.start("ps", index) for index in range(count)]
        self.addresses = ",".join(self.cluster.addresses["ps"])

    def train(self, servers, workers, mode):
        self.start_servers(servers)
        started = [self.start("linear_model", self.addresses, worker, workers, mode) for worker in range(workers)]
        self.assert_exit(DONE, *started, *self.servers)
        return started

    def test_one_worker_and_one_server(self):
        self.assertEqual(self.train(1, 1, "sync")[0].stdout, FOUND)

    def test_three_workers_and_two_servers_agree(self):
        for worker in self.train(2, 3, "sync"):
            self.assertEqual(worker.stdout, FOUND)

    def test_asynchronous_updates_of_three_workers(self):
        self.assertEqual(self.train(2, 3, "async")[0].stdout, FOUND)

    def test_one_asynchronous_worker(self):
        self.assertEqual(self.train(1, 1, "async")[0].stdout, FOUND)

    def start_slow(self, worker, workers, mode="sync", directory=""):
        """A worker that can be killed in the middle of training."""
        return self.start("session_program", self.addresses, worker, workers, mode, directory, 10,
                          name=f"session_program {worker}")

    def kill(self, *processes):
        for process in processes:
            process.signal(signal.SIGKILL)
            process.wait(10)

    def test_a_server_that_was_killed_is_restored_from_a_checkpoint(self):
        self.start_servers(2)
        directory = self.directory / "checkpoints"
        workers = [self.start_slow(worker, 2, directory=directory) for worker in (0, 1)]
        self.assert_says(workers[0], "saved .*step-0{5}(0[4-9]|1)")
        self.kill(self.servers[1])
        self.servers[1] = self.cluster.start("ps", 1)
        self.assert_exit(DONE, *workers, *self.servers)
        self.assertIn("resuming from update", workers[0].stderr)
        for worker in workers:
            self.assertIn("w = 3.000 3.000\n", worker.stdout)

    def test_a_worker_that_was_killed_returns(self):
        self.start_servers(1)
        workers = [self.start_slow(worker, 2, "async") for worker in (0, 1)]
        self.assert_says(workers[1], "step 20$")
        self.kill(workers[1])
        again = self.start_slow(1, 2, "async")
        self.assert_exit(DONE, workers[0], again, *self.servers)
        self.assertIn("w = 3.000 3.000\n", again.stdout)

    def test_a_round_closes_without_a_worker_that_was_killed(self):
        self.start_servers(1)
        workers = [self.start_slow(worker, 2) for worker in (0, 1)]
        self.assert_says(workers[1], "step 20$")
        self.kill(workers[1])
        self.assert_exit(DONE, workers[0], *self.servers)
        self.assertIn("w = 3.000 3.000\n", workers[0].stdout)

    def test_a_job_resumes_from_the_checkpoint_of_an_earlier_one(self):
        self.start_servers(1)
        directory = self.directory / "checkpoints"
        chief = self.start_slow(0, 1, directory=directory)
        self.assert_says(chief, "saved .*step-0{5}(0[4-9]|1)")
        self.kill(chief, *self.servers)
        self.servers = [self.cluster.start("ps", 0)]
        again = self.start_slow(0, 1, directory=directory)
        self.assert_exit(DONE, again, *self.servers)
        self.assertRegex(again.stderr, r"resuming from update \d+ of ")
        self.assertNotIn("step 190", again.stdout)
        self.assertIn("w = 3.000 3.000\n", again.stdout)


if __name__ == "__main__":
    main()
