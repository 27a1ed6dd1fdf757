#!/usr/bin/env python3
"""Several workers with tables: parts of batches, the same bits everywhere, each mode, and lost servers and workers."""

import pathlib
import unittest

from support import SECONDS
from workers_test import JobTest


class TableWorkersTest(JobTest):
    program = pathlib.Path(__file__).with_name("table_program.py")

    def test_parts_of_a_batch_equal_the_whole(self):
        (_, whole, _), = self.run_job("--examples", 64, workers=1)
        for parts in ("32,32", "48,16", "64,0"):
            (_, first, digest), (_, second, other) = self.run_job("--examples", parts, "--prefetch", ps=2)
            self.assertEqual(digest, other)
            weights = [int(part) / 64 for part in parts.split(",")]
            self.assertAlmostEqual(weights[0] * first + weights[1] * second, whole, places=4)

    def test_neither_prefetching_nor_the_servers_change_the_bits(self):
        for optimizer in ("Adagrad", "RowWiseAdagrad"):
            flags = ["--optimizer", optimizer]
            self.assertEqual(self.run_job(*flags), self.run_job(*flags, "--prefetch", ps=3))

    def test_the_other_modes_learn(self):
        for mode in ("async", "ssp"):
            for version, loss, _ in self.run_job("--mode", mode, "--steps", 60, "--prefetch"):
                self.assertGreaterEqual(version, 60)
                self.assertLess(loss, 1.0)  # 1.1 without training

    def test_a_resumed_job_continues_with_the_rows_of_the_checkpoint(self):
        flags = ["--train_dir", self.directory / "run"]
        self.run_job(*flags, "--steps", 6)
        self.assertEqual(self.run_job(*flags, ps=2)[0][2], self.undisturbed())

    # --- A job that loses a server or a worker ends with the bits of an undisturbed one ---

    def undisturbed(self):
        if not hasattr(type(self), "expected"):
            type(self).expected = self.run_job(ps=2)[0][2]
        return type(self).expected

    def check(self, workers):
        self.assertEqual([report[2] for report in self.reports(workers)], [self.undisturbed()] * 2)

    def kill_server(self, place, *flags):
        servers = self.start_servers(2)
        workers = [self.start_worker(0, *flags), self.start_worker(1, *flags, "--die", f"6:{place}", "--kill", servers[1].pid)]
        self.assertTrue(servers[1].wait(2 * SECONDS))
        self.start_server(1)
        self.check(workers)

    def test_a_server_with_a_copy(self):
        for place, flags in (("forward", []), ("step", ["--prefetch"])):
            with self.subTest(place):
                self.kill_server(place, "--replication", 1, *flags)

    def test_a_server_with_checkpoints(self):
        for place, flags in (("forward", []), ("step", ["--prefetch"])):
            with self.subTest(place):
                self.kill_server(place, "--train_dir", self.directory / place, *flags)

    def test_a_worker_and_the_chief(self):
        for worker in (1, 0):
            with self.subTest(worker=worker):
                self.start_servers(2)
                flags = {worker: ["--die", "6:step"], 1 - worker: []}
                workers = [self.start_worker(i, "--prefetch", *flags[i]) for i in range(2)]
                self.assertTrue(workers[worker].wait(2 * SECONDS))
                workers[worker] = self.start_worker(worker, "--prefetch")
                self.check(workers)


if __name__ == "__main__":
    unittest.main()
