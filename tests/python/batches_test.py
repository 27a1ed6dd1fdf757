#!/usr/bin/env python3
"""job.batches(): every example counts once, with any number of workers, lost ones, new ones and a resumed job."""

import pathlib
import tempfile
import unittest

import numpy as np
import support  # noqa: F401
import torch
from support import SECONDS, assert_same, local, loss_of, make_data, make_model
from workers_test import JobTest

import cairn
import cairn.torch

EXAMPLES = 50


class BatchesTest(unittest.TestCase):
    """With one worker."""

    def test_batches_are_lists_of_examples_in_the_order_of_the_seed(self):
        def used(**options):
            with local() as job:
                batches = job.batches(list(range(10)), 4, collate_fn=list, **options)
                job.start({"w": [0.]}, "SGD")
                found = []
                for batch in batches:
                    self.assertEqual(job.steps.batch_examples, len(batch))
                    found.append((batches.epoch, batch))
                    job.push({"w": [1.]})
                self.assertEqual(job.stats()["examples"], 10 * options.get("epochs", 1))
                return found
        self.assertEqual(used(shuffle=False), [(0, [0, 1, 2, 3]), (0, [4, 5, 6, 7]), (0, [8, 9])])
        first = used(seed=1, epochs=2)
        self.assertEqual([epoch for epoch, _ in first], [0, 0, 0, 1, 1, 1])
        for epoch in (first[:3], first[3:]):
            self.assertEqual(sorted(index for _, batch in epoch for index in batch), list(range(10)))
        self.assertNotEqual([batch for _, batch in first[:3]], [batch for _, batch in first[3:]])
        self.assertEqual(used(seed=1, epochs=2), first)
        self.assertNotEqual(used(seed=2)[0], first[0])

    def test_processes_load_the_same_batches(self):
        inputs, labels = make_data(30)
        data = torch.utils.data.TensorDataset(inputs, labels)

        def used(**options):
            with local() as job:
                batches = job.batches(data, 8, epochs=2, **options)
                job.start({"w": [0.]}, "SGD")
                found = []
                for batch in batches:
                    found.append(batch)
                    job.push({"w": [1.]})
                return found
        here, there = used(), used(num_workers=2, prefetch_factor=3)
        self.assertEqual([len(y) for _, y in here], [8, 8, 8, 6] * 2)
        for a, b in zip(here, there, strict=True):
            for one, other in zip(a, b, strict=True):
                self.assertTrue(torch.equal(one, other))

    def test_wrong_use_is_named(self):
        with local() as job:
            for words, arguments, options in (("batch_size is 0", ([1], 0), {}), ("epochs is -1", ([1], 1), {"epochs": -1}),
                                              ("number of examples is 0", ([], 1), {}), ("seed is 0.5", ([1], 1), {"seed": 0.5}),
                                              ("prefetch_factor: .*num_workers", ([1], 1), {"prefetch_factor": 2})):
                with self.assertRaisesRegex(cairn.InvalidArgument, words):
                    job.batches(*arguments, **options)
            batches = job.batches(list(range(4)), 2)
            with self.assertRaisesRegex(cairn.Refused, "called once, before"):
                job.batches([1], 1)
            with self.assertRaisesRegex(cairn.Refused, "has not begun"):
                next(iter(batches))
            job.start({"w": [0.]}, "SGD")
            with self.assertRaisesRegex(cairn.Refused, "take the next one from job.batches"):
                job.push({"w": [1.]})
            iterator = iter(batches)
            next(iterator)
            with self.assertRaisesRegex(cairn.Refused, "no step was made with the last batch"):
                next(iterator)
            iterator = iter(batches)
            next(iterator)
            with self.assertRaisesRegex(cairn.InvalidArgument, "1 examples, but the work item has 2"):
                job.push({"w": [1.]}, examples=1)
            job.push({"w": [1.]})
            with self.assertRaisesRegex(cairn.Refused, "take the next one from job.batches"):
                job.push({"w": [1.]})
        with local(elastic=True) as job, self.assertRaisesRegex(cairn.InvalidArgument, "needs job.batches"):
            job.start({"w": [0.]}, "SGD")

    def test_a_checkpoint_of_another_order_is_refused(self):
        directory = self.enterContext(tempfile.TemporaryDirectory())

        def use_one(**options):
            with local(train_dir=directory) as job:
                batches = job.batches(list(range(4)), 2, **options)
                job.start({"w": [0.]}, "SGD")
                next(iter(batches))
                job.push({"w": [1.]})
        use_one(seed=1)
        for options in ({"seed": 2}, {"seed": 1, "shuffle": False}):
            with self.assertRaisesRegex(cairn.Refused, "has a work queue of seed 1"):
                use_one(**options)

    def test_a_step_of_0_examples_leaves_a_batch_out(self):
        with local() as job:
            batches = job.batches(list(range(6)), np.array(2), shuffle=False)
            values = job.start({"w": np.zeros(6)}, {"class_name": "SGD", "config": {"learning_rate": 1}})
            for step, batch in enumerate(batches):
                gradient = np.zeros(6)
                gradient[batch] = -1
                job.push({"w": gradient}, examples=0 if step == 1 else 2)
            np.testing.assert_array_equal(job.values["w"], [1, 1, 0, 0, 1, 1])
            self.assertEqual(values["w"].sum(), 0)


class WorkersTest(JobTest):
    program = pathlib.Path(__file__).with_name("batches_program.py")

    def results(self, processes):
        """The indices that the workers used, the examples that the servers counted, and the model's parameter."""
        for process in processes:
            self.assert_says(process, "used", 3 * SECONDS)
        self.assert_exit(0, *processes)
        lines = [line.split() for process in processes for line in process.stdout.splitlines()]
        used = [int(word) for name, *words in lines if name == "used" for word in words]
        counted, = [int(words[0]) for name, *words in lines if name == "counted"]
        parameter, = [[float(word) for word in words] for name, *words in lines if name == "parameter"]
        return used, counted, parameter

    def check_once(self, counted, parameter, examples=EXAMPLES):
        """An example is in the model if its element has moved, and exactly once if the number of examples is right."""
        self.assertEqual(counted, examples)
        self.assertEqual(len(parameter), examples)
        self.assertGreater(min(parameter), 0)

    def start_workers(self, workers, *flags):
        self.start_servers(2)
        return [self.start_worker(worker, *flags, workers=workers) for worker in range(workers)]

    def test_each_index_is_used_once(self):
        for workers in (1, 2, 3):
            with self.subTest(workers):
                used, counted, parameter = self.results(self.start_workers(workers))
                self.assertEqual(sorted(used), list(range(EXAMPLES)))
                self.check_once(counted, parameter)

    def test_each_index_is_used_once_in_each_epoch_with_processes_that_load(self):
        used, counted, _ = self.results(self.start_workers(2, "--epochs", 2, "--num_workers", 2))
        self.assertEqual(sorted(used), sorted(2 * list(range(EXAMPLES))))
        self.assertEqual(counted, 2 * EXAMPLES)

    def test_asynchronous_workers(self):
        used, counted, _ = self.results(self.start_workers(2, "--mode", "async"))
        self.assertEqual(sorted(used), list(range(EXAMPLES)))
        self.assertEqual(counted, EXAMPLES)

    def test_a_lost_workers_examples_go_to_the_others(self):
        for where in ("forward", "backward", "step"):
            with self.subTest(where):
                self.start_servers(2)
                flags = ["--lease", 3, "--num_workers", 1]
                workers = [self.start_worker(0, *flags), self.start_worker(1, *flags, "--die", f"3:{where}")]
                self.assertTrue(workers[1].wait(2 * SECONDS))
                _, counted, parameter = self.results(workers[:1])
                self.check_once(counted, parameter)

    def test_a_restarted_worker_goes_on(self):
        for where in ("forward", "backward", "step"):
            with self.subTest(where):
                self.start_servers(2)
                workers = [self.start_worker(0), self.start_worker(1, "--die", f"3:{where}")]
                self.assertTrue(workers[1].wait(2 * SECONDS))
                workers[1] = self.start_worker(1)
                _, counted, parameter = self.results(workers)
                self.check_once(counted, parameter)

    def test_a_new_worker_gets_its_share(self):
        self.start_servers(2)
        flags = ["--elastic", "--min_workers", 2, "--lease", 3]
        chief = self.start_worker(0, *flags, workers=1)
        lost = self.start_worker(7, *flags, "--die", "3:step", workers=1)
        self.assertTrue(lost.wait(2 * SECONDS))
        new = self.start_worker(9, *flags, workers=1)
        _, counted, parameter = self.results([chief, new])
        self.check_once(counted, parameter)
        self.assertRegex(new.stdout, r"used \d+ \d+")

    def test_a_resumed_job_goes_on_with_another_number_of_workers(self):
        flags = ["--train_dir", self.directory / "run"]
        workers = self.start_workers(2, *flags, "--stop_at", 3)
        self.assertTrue(workers[0].wait(2 * SECONDS))
        self.assertTrue(workers[1].wait(2 * SECONDS))
        used, counted, parameter = self.results(self.start_workers(3, *flags))
        self.check_once(counted, parameter)
        self.assertEqual(len(used), EXAMPLES - 3 * 2 * 4)

    def test_uneven_batches_equal_one_process(self):
        # 60 = 2 rounds of 2 x 13, and 8 examples for worker 0 alone
        model = make_model(norm=False)
        optimizer = torch.optim.Adam(model.parameters(), 0.05)
        data = torch.utils.data.TensorDataset(*make_data(60))
        with local() as job:
            batches = job.batches(data, 26, epochs=4, seed=3)
            job.start({"w": [0.]}, "SGD")
            for inputs, labels in batches:
                optimizer.zero_grad()
                loss_of(model, inputs, labels).backward()
                optimizer.step()
                job.push({"w": [0.]})
        self.program = pathlib.Path(__file__).with_name("program.py")
        reports = self.run_job("--batches", 13, "--save", self.directory / "model.pt")
        self.assertEqual(reports[0][2], reports[1][2])
        trained = make_model(norm=False)
        trained.load_state_dict(torch.load(self.directory / "model.pt"))
        assert_same(self, trained, model)


if __name__ == "__main__":
    unittest.main()
