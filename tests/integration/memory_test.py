"""Jobs that need too much memory are refused, and no task grows while another one is paused."""

import os
import pathlib
import re
import signal
import time

from harness import (CNN, DONE, MLP, USAGE, Cluster, IntegrationTest, main, read_summary)

STANDS_STILL = 4  # seconds
MOST_GROWTH = 24 << 20  # bytes: far above the temporary memory of a step, far below that of a hundred steps


def resident_bytes(process):
    """The resident memory of the process, without the pages of mapped files, of which one batch may touch megabytes."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return sum(int(kib) for kib in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB$", status, re.MULTILINE)) << 10


class MemoryLimitTest(IntegrationTest):

    REFUSAL = (r"ps/0: the job needs [\d.]+ MiB and may take 0\.954 MiB \(--memory_limit\): two versions of the "
               r"values [\d.]+ MiB, 2 slots of Adam [\d.]+ MiB, a gradient of each of 1 worker and one that arrives "
               r"[\d.]+ MiB, a snapshot [\d.]+ MiB")

    def test_a_model_beyond_the_memory_limit_is_refused(self):
        cluster = Cluster(self, ps=1, workers=1)
        server = cluster.start("ps", 0, "--memory_limit", "1MB")
        worker = cluster.start("worker", 0, "--model", MLP, "--optimizer=adam")
        self.assert_exit(USAGE, worker)
        self.assertRegex(worker.stderr, "cairn-worker: " + self.REFUSAL)
        self.assertTrue(server.running)

    def test_cairn_train_passes_the_limit_to_servers(self):
        training = self.train(MLP, "--optimizer=adam", "--ps_memory_limit=1MB")
        self.assert_exit(USAGE, training)
        self.assertRegex(training.stderr, self.REFUSAL)
        self.assert_nothing_runs(seconds=10)

    def test_a_malformed_limit_is_refused(self):
        cluster = Cluster(self, ps=1, workers=1)
        self.assert_refused(cluster.start("ps", 0, "--memory_limit=4apples"), "--memory_limit: '4apples' is not a memory size")


class StandingStillTest(IntegrationTest):

    STEPS = 600  # so many that some are left when the task is paused, on any machine

    def train_with_a_stop(self, stopped, watched, *flags):
        """Trains, and pauses the task `stopped` in the middle. Returns the summary."""
        tasks = Cluster(self, ps=2, workers=2).start_all("--model", CNN, f"--train_steps={self.STEPS}",
                                                         "--display_every=1", "--summary=summary.json", *flags)
        self.assert_says(tasks["worker/1"], "joined the job")  # it has read its data
        self.assert_says(tasks["worker/0"], "^ 5/")
        os.kill(tasks[stopped].pid, signal.SIGSTOP)
        before = {name: resident_bytes(tasks[name]) for name in watched}
        most = dict(before)
        end = time.monotonic() + STANDS_STILL
        while time.monotonic() < end:
            for name, task in tasks.items():
                self.assertTrue(task.running, f"{name} has ended meanwhile\n{task.story()}")
            for name in watched:
                most[name] = max(most[name], resident_bytes(tasks[name]))
            time.sleep(0.1)  # between two looks
        os.kill(tasks[stopped].pid, signal.SIGCONT)
        for name in watched:
            self.assertLess(most[name] - before[name], MOST_GROWTH, name)
        self.assert_exit(DONE, *tasks.values(), seconds=120)
        return read_summary(self.directory / "summary.json")

    def test_workers_wait_for_a_server_and_do_not_grow(self):
        for flags in (["--sync_replicas"], []):
            with self.subTest(flags):
                summary = self.train_with_a_stop("ps/1", ["worker/0", "worker/1", "ps/0"], *flags)
                self.assertEqual(summary["gradients_accepted"], self.STEPS * 2 if flags else self.STEPS)
                self.assertEqual(summary["gradients_duplicate"], 0)

    def test_servers_do_not_grow_while_a_worker_is_paused(self):
        summary = self.train_with_a_stop("worker/1", ["ps/0", "ps/1"], "--sync_replicas")
        self.assertEqual(summary["gradients_accepted"], self.STEPS * 2)


if __name__ == "__main__":
    main()
