#!/usr/bin/env python3
"""Several workers: uneven batches, the same bits everywhere, each mode, and lost servers and workers."""

import pathlib
import re
import sys
import unittest

import support  # noqa: F401
import torch
from harness import IntegrationTest, reserve_port
from support import SECONDS, loss_of, make_data, make_model

PROGRAM = pathlib.Path(__file__).with_name("program.py")
STEPS = 12


class JobTest(IntegrationTest):
    program = PROGRAM

    def start_servers(self, ps=1, *flags):
        ports = [reserve_port(self) for _ in range(ps)]
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        return [self.start_server(index, *flags) for index in range(ps)]

    def start_server(self, index, *flags):
        return self.start("cairn-ps", "--ps_hosts", ",".join(self.addresses), "--job_name", "ps", "--task_index", index,
                          "--reuse_port", *flags, name=f"ps/{index}")

    def start_worker(self, worker, *flags, workers=2):
        environment = {"CAIRN_SERVERS": ",".join(self.addresses), "RANK": str(worker), "WORLD_SIZE": str(workers),
                       "DIED": str(self.directory / f"died_{self.addresses[0]}")}
        return self.start_command([sys.executable, "-B", self.program, *map(str, flags)], name=f"worker/{worker}", env=environment)

    def reports(self, processes):
        """[(version, loss, digest)] that the workers print, in their order."""
        found = []
        for process in processes:
            report = r"version (\d+) loss (\S+) digest (\w+)"
            self.assert_says(process, report, 2 * SECONDS)  # to import torch takes long on a busy machine
            version, loss, digest = re.search(report, process.stdout).groups()
            found.append((int(version), float(loss), digest))
        self.assert_exit(0, *processes)
        return found

    def run_job(self, *flags, ps=1, workers=2):
        servers = self.start_servers(ps)
        found = self.reports([self.start_worker(worker, *flags, workers=workers) for worker in range(workers)])
        self.assert_exit(0, *servers)
        return found


class WorkersTest(JobTest):

    def test_unequal_parts_of_a_batch_equal_the_whole(self):
        model = make_model(norm=False)
        optimizer = torch.optim.Adam(model.parameters(), 0.05)
        for step in range(STEPS):
            optimizer.zero_grad()
            whole = loss_of(model, *make_data(seed=step))
            whole.backward()
            optimizer.step()
        for parts in ("32,32", "48,16"):
            first, second = self.run_job("--examples", parts, ps=2)
            self.assertEqual(first[2], second[2])
            weights = [int(part) / 64 for part in parts.split(",")]
            self.assertAlmostEqual(weights[0] * first[1] + weights[1] * second[1], whole.item(), places=4)

    def test_the_other_modes_learn(self):
        for mode in ("async", "ssp"):
            for version, loss, _ in self.run_job("--mode", mode, "--steps", 40):
                self.assertGreaterEqual(version, 40)
                self.assertLess(loss, 0.7)  # 1.1 without training


class LostTasksTest(JobTest):
    """A job that loses a server, a worker or the chief at any point of a step ends with the bits of an
    undisturbed one."""

    PLACES = ("forward", "backward", "step")
    FLAGS = ("--lease", 30)

    def undisturbed(self):
        if not hasattr(type(self), "expected"):
            type(self).expected = self.run_job(*self.FLAGS, ps=2)[0][2]
        return type(self).expected

    def check(self, workers):
        self.assertEqual([report[2] for report in self.reports(workers)], [self.undisturbed()] * 2)

    def kill_server(self, place, *flags, step=6):
        servers = self.start_servers(2)
        flags = [*self.FLAGS, *flags]
        workers = [self.start_worker(0, *flags),
                   self.start_worker(1, *flags, "--die", f"{step}:{place}", "--kill", servers[1].pid)]
        self.assertTrue(servers[1].wait(SECONDS))
        self.start_server(1)
        self.check(workers)

    def kill_worker(self, worker, place):
        self.start_servers(2)
        flags = {worker: ["--die", f"6:{place}"], 1 - worker: []}
        workers = [self.start_worker(i, *self.FLAGS, *flags[i]) for i in range(2)]
        self.assertTrue(workers[worker].wait(SECONDS))
        workers[worker] = self.start_worker(worker, *self.FLAGS)
        self.check(workers)

    def test_a_server_with_a_copy(self):
        for place in self.PLACES:
            with self.subTest(place):
                self.kill_server(place, "--replication", 1)

    def test_a_server_with_checkpoints(self):
        for place in self.PLACES:
            with self.subTest(place):
                self.kill_server(place, "--train_dir", self.directory / place)

    def test_a_server_before_the_first_checkpoint(self):
        self.kill_server("backward", "--train_dir", self.directory / "run", step=2)

    def test_a_worker(self):
        for place in self.PLACES:
            with self.subTest(place):
                self.kill_worker(1, place)

    def test_the_chief(self):
        for place in self.PLACES:
            with self.subTest(place):
                self.kill_worker(0, place)


if __name__ == "__main__":
    unittest.main()
