#!/usr/bin/env python3
"""Jobs of NumPy arrays: exact values, a worker's place, errors, signals, forks."""

import datetime
import io
import json
import multiprocessing
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import tqdm
from support import SECONDS, local

import cairn

SGD = {"class_name": "SGD", "config": {"learning_rate": 0.5}}


class DataLoader:
    """As torch's, it has a length, and no indices."""

    def __len__(self):
        return 1


class ArraysTest(unittest.TestCase):

    def test_local_workers_are_threads(self):
        def train(job):
            with job:
                values = job.start({"w": [0.0]}, SGD)
                for _ in range(3):
                    job.push({"w": values["w"] - job.worker}, examples=1 + job.worker)
                    values = job.values
                return values["w"][0], job.version

        with cairn.local(ps=2, workers=2, connect_timeout=SECONDS, step_timeout=SECONDS) as jobs, ThreadPoolExecutor(2) as pool:
            first, second = pool.map(train, jobs)
        self.assertEqual(first, second)
        expected = 0.0
        for _ in range(3):
            expected -= 0.5 * (expected - 2 / 3)  # the mean of three examples
        self.assertAlmostEqual(first[0], expected, places=6)
        self.assertEqual(first[1], 3)
        with self.assertRaisesRegex(cairn.InvalidArgument, "workers is 0"), cairn.local(workers=0):
            pass

    def test_values_are_exact(self):
        with local(ps=2) as job:
            values = job.start({"w": np.array([1, 2, 3.]), "b": 4}, SGD)
            np.testing.assert_array_equal(values["w"], np.array([1, 2, 3], np.float32))
            self.assertEqual(values["b"].shape, ())
            result = job.push({"w": [2, 0, -2]}, examples=5)
            self.assertEqual(result, ("accepted", 1, 0))
            np.testing.assert_array_equal(job.values["w"], [0, 2, 4])
            self.assertEqual(job.values["b"], 4)
            self.assertEqual(job.push({}, examples=0).version, 2)
            np.testing.assert_array_equal(job.pull()["w"], [0, 2, 4])
            self.assertEqual(job.stats(), {"accepted": 2, "stale": 0, "duplicate": 0, "rejected": 0, "examples": 5,
                                           "staleness_max": 0, "version": 2})

    def test_each_mode(self):
        for mode, options in (("sync", {}), ("async", {}), ("ssp", {"max_staleness": 2})):
            with self.subTest(mode), local() as job:
                job.start({"w": [1.]}, SGD, mode=mode, updates=2, **options)
                job.push({"w": [1.]})
                job.push({"w": [1.]})
                self.assertEqual(job.values["w"], 0)
                self.assertTrue(job.finished)

    def test_faults_are_named(self):
        with local() as job:
            with self.assertRaisesRegex(cairn.Refused, "has not begun"):
                job.push({"w": [1]})
            for values, optimizer, words in (({"w": [1j]}, SGD, "'w' has numbers of type complex128"),
                                             ({"w": [1]}, "Adamm", "unknown optimizer 'Adamm'"),
                                             ({"w": [1]}, {"class_name": "SGD", "config": {"momentum": "fast"}}, "momentum"),
                                             ({}, SGD, "there are none")):
                with self.assertRaisesRegex(cairn.InvalidArgument, words):
                    job.start(values, optimizer)
            job.start({"w": [1, 2]}, SGD)
            with self.assertRaisesRegex(cairn.Refused, "has begun already"):
                job.start({"w": [1, 2]}, SGD)
            with self.assertRaisesRegex(cairn.InvalidArgument, "no such variable: v"):
                job.push({"v": [1, 2]})
            with self.assertRaisesRegex(cairn.InvalidArgument, r"'w' has the shape \[3\], the variable \[2\]"):
                job.push({"w": [1, 2, 3]})
            job.push({"w": [1, 2]})
        with self.assertRaisesRegex(cairn.ConnectionLost, "ps/0 at 127.0.0.1:1"):
            cairn.init("127.0.0.1:1", connect_timeout=1).start({"w": [1]})

    def test_arguments_are_named(self):
        address = "127.0.0.1:1"
        for options, words in (({"servers": "ps0"}, "'ps0' has no port"), ({"servers": 5}, "servers is 5"),
                               ({"train_dir": ""}, "train_dir is empty"), ({"replication": "1"}, "replication is '1'"),
                               ({"elastic": "no"}, "elastic is 'no'"), ({"elastic": True, "min_workers": -2}, "min_workers is -2"),
                               ({"tls": ("cert", "key")}, "tls is .* must be the paths")):
            with self.subTest(options), self.assertRaisesRegex(cairn.InvalidArgument, words):
                cairn.init(**{"servers": address, **options})
        with self.assertRaisesRegex(cairn.InvalidArgument, "ps is '1'"), cairn.local(ps="1"):
            pass
        with local() as job:
            for dataset in (iter([1, 2]), DataLoader()):
                with self.assertRaisesRegex(cairn.InvalidArgument, f"the dataset is {type(dataset).__name__}"):
                    job.batches(dataset, 2)
            job.start({"w": [1.]}, SGD)
            for examples in (-1, 2.5, "3", float("nan"), True, np.array([3]), np.array(2.5), np.array(True)):
                with self.subTest(examples), self.assertRaisesRegex(cairn.InvalidArgument, "must be a whole number of at least 0"):
                    job.push({"w": [1.]}, examples=examples)
            for examples in (2**70, 2**32, np.array(2**32)):
                with self.subTest(examples), self.assertRaisesRegex(cairn.InvalidArgument, "examples is .* must be below 4294967296"):
                    job.push({"w": [1.]}, examples=examples)
            job.push({"w": [0.]}, examples=np.array(3))
            self.assertEqual(job.stats()["examples"], 3)
            with self.assertRaisesRegex(cairn.Refused, "needs cairn.init.train_dir"):
                job.save_checkpoint()

    def test_a_second_job_in_the_same_place_is_told_of_the_first(self):
        with cairn.servers() as servers:
            def start():  # as a cell of a notebook that is run twice
                job = cairn.init(servers, worker=0, workers=1, connect_timeout=SECONDS)
                job.start({"w": [1.]}, SGD)
                return job
            job = start()
            with self.assertRaisesRegex(cairn.Refused, "another open job as worker 0 of these servers: close"):
                start()
            job.push({"w": [1.]})
            job.close()

    def test_a_closed_job_says_so(self):
        with local() as job:
            job.start({"w": [1.]}, SGD)
            job.push({"w": [1.]})
        for call in (lambda: job.push({"w": [1.]}), job.pull, job.stats, job.save_checkpoint):
            with self.assertRaisesRegex(cairn.Refused, "the job is closed"):
                call()
        self.assertEqual((job.version, job.values["w"].tolist()), (1, [0.5]))

    def test_a_port_of_a_server_is_held_until_the_server_listens(self):
        start, held = subprocess.Popen, []

        def start_after_another(command, **options):
            host, port = command[command.index("--ps_hosts") + 1].split(":")
            with socket.socket() as other, self.assertRaises(OSError):
                other.bind((host, int(port)))
            held.append(port)
            return start(command, **options)
        with mock.patch("subprocess.Popen", start_after_another), local() as job:
            self.assertEqual(job.start({"w": [1.]}, SGD)["w"], [1.])
        self.assertEqual(len(held), 1)

    def test_a_server_that_ends_is_named_with_its_last_line(self):
        with self.assertRaisesRegex(cairn.Error, r"ps/0 ended with code -9: .*joined"):
            with cairn.local(connect_timeout=10, step_timeout=3, lease=1) as job:
                job.start({"w": [1.]}, SGD)
                for child in pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                    os.kill(int(child), signal.SIGKILL)
                job.push({"w": [1.]})

    def test_named_variables(self):
        with local() as job:
            job.start({"w": [[1, 2], [3, 4]]}, SGD)
            variables = cairn.connect(job.servers)
            self.assertEqual(variables.names(), ["w"])
            np.testing.assert_array_equal(variables.read("w"), [[1, 2], [3, 4]])
            with self.assertRaisesRegex(cairn.Refused, "no variable 'v'"):
                variables.read("v")


class ProgressTest(unittest.TestCase):

    def test_a_bar_shows_the_position(self):
        shown = io.StringIO()
        with local() as job:
            job.start({"w": [8.]}, SGD)
            job.push({"w": [1.]})
            positions = []
            for position in job.progress(tqdm.tqdm, 4, file=shown):
                positions.append(position)
                job.push({"w": [1.]})
            self.assertEqual((positions, job.version), ([1, 2, 3], 4))
        self.assertRegex(shown.getvalue(), r"25%.*1/4.*100%.*4/4")

    def test_without_a_bar_to_the_end_of_the_job(self):
        with local() as job:
            job.start({"w": [8.]}, SGD, updates=3)
            self.assertEqual([job.push({"w": [1.]}).version for _ in job.progress()], [1, 2, 3])

    def test_other_workers_show_no_bar(self):
        bars = []

        def bar(**options):
            bars.append(tqdm.tqdm(**options))
            return bars[-1]
        with cairn.servers() as addresses:
            jobs = [cairn.init(addresses, worker=worker, workers=2) for worker in range(2)]
            chief = threading.Thread(target=jobs[0].start, args=({"w": [8.]}, SGD))
            chief.start()
            jobs[1].start({"w": [8.]}, SGD)
            chief.join(SECONDS)
            self.assertEqual(next(jobs[1].progress(bar, 4)), 0)
            self.assertTrue(bars[0].disable)
            for job in reversed(jobs):
                job.abandon()


class PlaceTest(unittest.TestCase):
    """Where a worker's place comes from."""

    def place(self, environment, *arguments, **options):
        with mock.patch.dict(os.environ, environment, clear=True):
            job = cairn.init(*arguments, **options)
        return job.servers, job.worker, job.workers

    def test_sources(self):
        config = json.dumps({"cluster": {"ps": ["p:1"], "worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})
        self.assertEqual(self.place({}, "p:1,q:2", worker=1, workers=3), (["p:1", "q:2"], 1, 3))
        self.assertEqual(self.place({}, ["p:1"]), (["p:1"], 0, 1))
        self.assertEqual(self.place({"TF_CONFIG": config}), (["p:1"], 1, 2))
        self.assertEqual(self.place({"CAIRN_SERVERS": "p:1,q:2", "RANK": "2", "WORLD_SIZE": "4"}), (["p:1", "q:2"], 2, 4))
        self.assertEqual(self.place({"TF_CONFIG": config, "RANK": "1", "WORLD_SIZE": "2"}, "q:1"), (["q:1"], 1, 2))

    def test_ranks_can_be_hidden(self):
        with mock.patch.dict(os.environ, {"CAIRN_SERVERS": "p:1", "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2",
                                          "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, clear=True):
            job = cairn.init()
            cairn.hide_ranks()
            self.assertEqual(dict(os.environ), {"CAIRN_SERVERS": "p:1"})
            self.assertEqual((job.worker, job.workers), (1, 2))

    def test_faults(self):
        for environment, options, words in (({}, {}, "needs servers, or TF_CONFIG or CAIRN_SERVERS"),
                                            ({"CAIRN_SERVERS": "p:1", "RANK": "x"}, {}, "RANK is 'x'"),
                                            ({"TF_CONFIG": "{"}, {}, "TF_CONFIG is not JSON"),
                                            ({"TF_CONFIG": "{}"}, {"worker": 1}, "takes worker and workers from TF_CONFIG"),
                                            ({}, {"servers": "p:1", "worker": 2, "workers": 2}, "worker is 2 of 2"),
                                            ({}, {"servers": "p:1,,q:1"}, "servers: .*an empty one"),
                                            ({"CAIRN_SERVERS": "p:1,"}, {}, "CAIRN_SERVERS: .*an empty one"),
                                            ({"CAIRN_WORKERS": "a:1,,b:1"}, {}, "CAIRN_WORKERS: .*an empty one"),
                                            ({}, {"servers": "p:1", "worker": 1.5}, "worker is 1.5"),
                                            ({}, {"servers": "p:1", "connect_timeout": float("inf")}, "connect_timeout is inf"),
                                            ({}, {"servers": "p:1", "step_timeout": "5"}, "step_timeout is '5'"),
                                            ({}, {"servers": "p:1", "train_dir": "x", "keep": -1}, "keep is -1"),
                                            ({}, {"servers": "p:1", "wire_dtype": "int8"}, "wire_dtype is 'int8'"),
                                            ({}, {"servers": "p:1", "lease": 0}, "lease is 0")):
            with self.assertRaisesRegex(cairn.InvalidArgument, words):
                self.place(environment, **options)


def use(job):
    try:
        job.push({"w": [1.]})
    except cairn.Refused as error:
        os._exit(7 if "fork" in str(error) else 8)
    os._exit(9)


class ProcessTest(unittest.TestCase):

    def test_ctrl_c_ends_a_wait(self):
        with local() as chief:
            chief._description.workers = 2  # the other one never comes
            timer = threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT))
            timer.start()
            begun = time.monotonic()
            chief.start({"w": [1.]}, SGD)
            changes = chief.session.changes
            with self.assertRaises(KeyboardInterrupt):
                chief.push({"w": [1.]})
            self.assertLess(time.monotonic() - begun, SECONDS / 2)
            self.assertEqual(chief.session.changes, changes)  # no values have come
            self.assertIsNone(chief.session.finish_step(datetime.timedelta(seconds=0.01)))
            self.assertEqual(chief.session.changes, changes)
            chief.abandon()

    def test_ctrl_c_ends_reads_from_a_server_that_does_not_answer(self):
        with tempfile.TemporaryDirectory() as directory, local(ps=2, train_dir=directory) as job:
            job.start({"w": [1., 2.], "v": 3.}, "Adam", tables=[cairn.Table("t", 2, optimizer="SGD")])
            rows = {"t": (range(10), np.ones((10, 2)))}
            job.push({"w": [1., 1.]}, rows=rows)
            servers = [int(pid) for pid in pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
            calls = {"pull": job.pull, "state of the optimizer": job.session.optimizer_state, "table": job.table("t").contents,
                     "checkpoint": job.save_checkpoint}
            for name, call in calls.items():
                for server in servers:
                    with self.subTest(f"{name} {server}"):
                        sent = []

                        def interrupt(sent=sent):
                            sent.append(time.monotonic())
                            os.kill(os.getpid(), signal.SIGINT)
                        os.kill(server, signal.SIGSTOP)
                        threading.Timer(0.5, interrupt).start()
                        try:
                            with self.assertRaises(KeyboardInterrupt):
                                call()
                        finally:
                            os.kill(server, signal.SIGCONT)
                        self.assertLess(time.monotonic() - sent[0], 3)  # without a poll, the limit of a call is 10 s
                        self.assertEqual(job.push({"w": [0., 0.]}, rows=rows).outcome, "accepted")
            self.assertEqual(len(job.table("t").contents().ids), 10)
            job.save_checkpoint()

    def test_a_push_that_ctrl_c_interrupted_settles(self):
        with local(ps=1, lease=2) as chief:
            chief._description.workers = 2  # the other one comes once, and then no more
            environment = {"CAIRN_SERVERS": chief.servers[0], "RANK": "1", "WORLD_SIZE": "2"}
            program = ("import cairn, sys; job = cairn.init(lease=2); job.start({'w': [1.]}, " + repr(SGD) + "); "
                       "job.push({'w': [1.]}); print('pushed', flush=True); sys.stdin.read(); job.abandon()")
            other = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, **environment}, text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            chief.start({"w": [1.]}, SGD)
            chief.push({"w": [1.]})
            self.assertEqual(other.stdout.readline(), "pushed\n")
            timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                chief.push({"w": [1.]})  # its round waits for the other worker
            other.communicate("end", SECONDS)
            with self.assertLogs("cairn", "WARNING") as logs:
                self.assertEqual(chief.push({"w": [0.]}).version, 3)
            self.assertIn("an interrupted step has ended", logs.output[0])
            self.assertEqual(chief.values["w"], 0)

    def test_ctrl_c_of_the_terminal_does_not_reach_the_servers(self):
        program = ("import os, signal\nimport cairn\n"
                   "signal.signal(signal.SIGINT, lambda *_: None)\n"
                   "with cairn.local(connect_timeout=30, step_timeout=30) as job:\n"
                   "    job.start({'w': 0.0}, 'SGD')\n"
                   "    os.killpg(0, signal.SIGINT)\n"
                   "    print(job.push({'w': 1.0}).outcome)\n")
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=SECONDS,
                              start_new_session=True)
        self.assertEqual((done.returncode, done.stdout), (0, "accepted\n"))

    def test_pull_recovers_as_a_step_does(self):
        with tempfile.TemporaryDirectory() as directory, local(train_dir=directory) as job:
            job.start({"w": [1.]}, SGD)
            job.push({"w": [1.]})
            job.save_checkpoint()
            server, = map(int, pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
            command = pathlib.Path(f"/proc/{server}/cmdline").read_text().split("\0")[:-1]
            os.kill(server, signal.SIGKILL)
            again = subprocess.Popen([*command, "--reuse_port"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.assertEqual(job.pull()["w"], 0.5)
            self.assertEqual(job.push({"w": [1.]}).version, 2)
            job.close()
            self.assertEqual(again.wait(SECONDS), 0)

    def test_a_forked_process_may_not_use_the_job(self):
        with local() as job:
            job.start({"w": [1.]}, SGD)
            child = multiprocessing.get_context("fork").Process(target=use, args=(job,))
            child.start()
            child.join(SECONDS)
            self.assertEqual(child.exitcode, 7)
            job.push({"w": [1.]})  # the child's end has not harmed it
            with self.assertRaisesRegex(cairn.Refused, "cannot be pickled"):
                pickle.dumps(job)

    def test_an_exception_ends_the_job_with_its_message(self):
        with self.assertRaisesRegex(RuntimeError, "my fault"), local() as job:
            job.start({"w": [1.]}, SGD)
            raise RuntimeError("my fault")


if __name__ == "__main__":
    unittest.main()
