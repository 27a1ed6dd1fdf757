#!/usr/bin/env python3
"""Embedding tables of jobs of arrays: exact values, where rows come from, errors."""

import contextlib
import os
import signal
import subprocess
import threading
import time
import unittest
from unittest import mock

import numpy as np
from support import SECONDS, local

import cairn
from cairn import tables

ONES = {"w": np.ones(1)}


def sgd(rate):
    return {"class_name": "SGD", "config": {"learning_rate": rate}}


class TablesTest(unittest.TestCase):

    def start(self, job, **table):
        described = cairn.Table("users", 2, first_values=tables.Constant(1), optimizer=sgd(0.5), **table)
        job.start(ONES, sgd(1.0), tables=[described, cairn.Table("items", 1, rows=4, first_values=tables.Constant(3))])

    def test_a_step_updates_the_rows_of_its_gradients(self):
        with local(ps=2) as job:
            self.start(job)
            users = job.table("users")
            self.assertEqual((users.name, users.width, users.rows, job.table("items").rows), ("users", 2, None, 4))
            job.push({"w": [0.5]}, rows={"users": ([7, -1, 7], [[2, 0], [4, 4], [0, 2]]), "items": ([3], [[1]])})
            np.testing.assert_array_equal(users.read([[7, -1], [5, 7]]), [[[0, 0], [-1, -1]], [[1, 1], [0, 0]]])
            np.testing.assert_array_equal(job.table("items").read([0, 3]), [[3], [2]])
            np.testing.assert_array_equal(job.values["w"], [0.5])
            self.assertEqual(users.read([]).shape, (0, 2))
            contents = users.contents()
            self.assertEqual(dict(zip(contents.ids.tolist(), contents.rows.tolist())), {7: [0, 0], -1: [-1, -1]})

    def test_ctrl_c_ends_waits_for_a_stopped_server(self):
        servers = []
        popen = subprocess.Popen

        def record(*arguments, **keywords):
            servers.append(popen(*arguments, **keywords))
            return servers[-1]

        with mock.patch("subprocess.Popen", record):
            running = local()
            job = running.__enter__()
        with contextlib.ExitStack() as stack:
            stack.push(running)
            self.start(job)
            users = job.table("users")
            users.read([1])
            servers[0].send_signal(signal.SIGSTOP)
            stack.callback(servers[0].send_signal, signal.SIGCONT)
            for wait in job.pull, lambda: users.read([1]):
                timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
                timer.start()
                begun = time.monotonic()
                with self.assertRaises(KeyboardInterrupt):
                    wait()
                self.assertLess(time.monotonic() - begun, SECONDS / 2)
            servers[0].send_signal(signal.SIGCONT)
            np.testing.assert_array_equal(users.read([1]), [[1, 1]])

    def test_gradients_without_examples_do_not_count(self):
        with local() as job:
            self.start(job)
            job.push({}, examples=0, rows={"users": ([1], [[1, 1]])})
            self.assertEqual(len(job.table("users").contents().ids), 0)

    def test_wrong_rows_are_named(self):
        with local() as job:
            self.start(job)
            for rows, message in (({"user": ([1], [[1, 1]])}, "no table 'user'; the job has 'users', 'items'"),
                                  ({"users": ([1.5], [[1, 1]])}, "table 'users': ids of type float64, must be integers"),
                                  ({"users": ([2**63], [[1, 1]])}, "table 'users': id 9223372036854775808, must be below"),
                                  ({"users": ([1, 2], [[1, 1]])}, r"gradients of the shape \[1, 2\] for 2 ids and rows of 2"),
                                  ({"items": ([4], [[1]])}, r"table 'items': id 4, must be in \[0, 4\)")):
                with self.assertRaisesRegex(cairn.InvalidArgument, message):
                    job.push({}, rows=rows)
            self.assertEqual(job.version, 0)
            job.push({})  # nothing of the refused steps is pushed
            self.assertEqual(len(job.table("users").contents().ids), 0)

    def test_wrong_tables_are_named(self):
        for described, message in ((cairn.Table("t", 0), "table 't': width is 0"),
                                   (cairn.Table("", 1), "Job::tables: a name is empty"),
                                   (cairn.Table("t", 1, optimizer="LAMB"), "table 't': unknown optimizer 'LAMB'"),
                                   (cairn.Table("t", 1, optimizer=7), "table 't': optimizer: expected a name")):
            with self.assertRaisesRegex(cairn.InvalidArgument, message), local() as job:
                job.start(ONES, sgd(1.0), tables=[described])
        with self.assertRaisesRegex(cairn.InvalidArgument, "two are named 't'"), local() as job:
            job.start(ONES, sgd(1.0), tables=[cairn.Table("t", 1), cairn.Table("t", 1)])

    def test_a_job_that_has_not_begun_has_no_tables(self):
        job = cairn.init("localhost:1", worker=0, workers=1)
        with self.assertRaisesRegex(cairn.Refused, "the job has not begun"):
            job.table("users")


if __name__ == "__main__":
    unittest.main()
