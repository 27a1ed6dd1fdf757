#!/usr/bin/env python3
"""distribute(mode="allreduce"): torch's own optimizer in every worker, on the mean gradient of a ring."""

import contextlib
import copy
import io
import logging
import os
import pathlib
import signal
import sys
import unittest
from unittest import mock

import support  # noqa: F401
import torch
from harness import reserve_port
from support import SECONDS, assert_same, digest, loss_of, make_data, make_model
from workers_test import JobTest

import cairn
import cairn.torch

nn, optim = torch.nn, torch.optim
STEPS = 12


@contextlib.contextmanager
def alone(**options):
    """A job of one worker, whose ring has no other."""
    with cairn.init(peers="127.0.0.1:1", connect_timeout=SECONDS, step_timeout=SECONDS, **options) as job:
        yield job


class OneWorkerTest(unittest.TestCase):
    """Torch's semantics."""

    def check(self, make, step, rule=optim.Adam, steps=8, **options):
        """`step(model, optimizer, i)` with torch and with Cairn gives the same parameters, to the bit."""
        reference, model = make(), make()
        optimizer = rule(reference.parameters(), 0.05)
        for i in range(steps):
            step(reference, optimizer, i)
        with alone() as job:
            distributed = cairn.torch.distribute(rule(model.parameters(), 0.05), model, job, mode="allreduce", **options)
            for i in range(steps):
                step(model, distributed, i)
            self.assertEqual(job.version, steps)
        for name, value in reference.state_dict().items():
            self.assertTrue(torch.equal(value, model.state_dict()[name]), name)
        return optimizer, distributed

    def test_steps_state_and_schedules_are_those_of_torch(self):
        inputs, labels = make_data()

        def step(model, optimizer, i):
            if i == 0:
                model.schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
            optimizer.zero_grad(set_to_none=i % 2 == 0)
            loss_of(model, inputs, labels).backward()
            optimizer.step()
            model.schedule.step()
        for rule in (optim.Adam, optim.AdamW, lambda p, rate: optim.SGD(p, rate, momentum=0.9), optim.Rprop):
            optimizer, distributed = self.check(make_model, step, rule)
            state, other = optimizer.state_dict(), distributed.state_dict()
            self.assertEqual(state["param_groups"], other["param_groups"])
            for index, values in state["state"].items():
                for name, value in values.items():
                    self.assertTrue(torch.equal(torch.as_tensor(value), torch.as_tensor(other["state"][index][name])), name)

    def test_accumulation_unused_frozen_and_clipped_parameters(self):
        inputs, labels = make_data()

        def accumulate(model, optimizer, i):
            optimizer.zero_grad()
            parts = 2 if i % 3 else 5
            for x, y in zip(inputs.chunk(parts), labels.chunk(parts)):
                (loss_of(model, x, y) / parts).backward()
            optimizer.step()
        self.check(lambda: make_model(norm=False), accumulate)

        def add_up(model, optimizer, i):
            (0.1 * loss_of(model, inputs, labels)).backward()
            optimizer.step()
        self.check(lambda: make_model(norm=False), add_up)

        def make():
            model = make_model(norm=False)
            model.extra = nn.Identity()
            model.unused = nn.Parameter(torch.ones(3))
            return model

        def unused(model, optimizer, i):
            optimizer.zero_grad()
            (loss_of(model, inputs, labels) + (model.unused.sum() if i == 2 else 0)).backward()
            optimizer.step()
            self.assertEqual(model.unused.grad is None, i != 2)
        self.check(make, unused)  # Adam would go on moving a parameter with a gradient of zeros

        def frozen(model, optimizer, i):
            for parameter in model[0].parameters():
                parameter.requires_grad_(not 2 <= i < 5)
            optimizer.zero_grad()
            loss_of(model, inputs, labels).backward()
            optimizer.step()
        self.check(lambda: make_model(norm=False), frozen)

        def clipped(model, optimizer, _):
            optimizer.zero_grad()
            loss_of(model, inputs, labels).backward()
            if isinstance(optimizer, optim.Adam):
                nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
        self.check(lambda: make_model(norm=False), clipped, max_grad_norm=0.01)

    def test_a_gradient_scaler_unscales_and_skips(self):
        inputs, labels = make_data()

        def train(model, optimizer):
            scaler = torch.amp.GradScaler("cpu", init_scale=1024, growth_interval=3)
            for i in range(8):
                optimizer.zero_grad()
                loss = loss_of(model, inputs, labels)
                scaler.scale(loss * float("inf") if i == 4 else loss).backward()
                scaler.step(optimizer)
                scaler.update()
            return scaler.get_scale()
        reference, model = make_model(norm=False), make_model(norm=False)
        scale = train(reference, optim.SGD(reference.parameters(), 0.1))
        with alone() as job:
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job, mode="allreduce")
            self.assertEqual(train(model, optimizer), scale)
        assert_same(self, model, reference, atol=1e-6)

    def test_training_goes_on_from_saved_state(self):
        inputs, labels = make_data()

        def train(model, optimizer, steps):
            for _ in range(steps):
                optimizer.zero_grad()
                loss_of(model, inputs, labels).backward()
                optimizer.step()
        reference, model = make_model(), make_model()
        train(reference, optim.Adam(reference.parameters(), 0.05), 6)
        file = io.BytesIO()
        with alone() as job:
            optimizer = cairn.torch.distribute(optim.Adam(model.parameters(), 0.05), model, job, mode="allreduce")
            train(model, optimizer, 3)
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        saved = torch.load(file)
        resumed = make_model(seed=9)
        resumed.load_state_dict(saved["model"])
        rule = optim.Adam(resumed.parameters(), 0.05)
        rule.load_state_dict(saved["optimizer"])
        with alone() as job:
            train(resumed, cairn.torch.distribute(rule, resumed, job, mode="allreduce"), 3)
        for name, value in reference.state_dict().items():
            self.assertTrue(torch.equal(value, resumed.state_dict()[name]), name)

    def test_options_that_need_servers_are_named(self):
        model = make_model()

        def distribute(**options):
            cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, cairn.init(peers="127.0.0.1:1", **options),
                                   mode="allreduce")
        for name, options in (("train_dir", {"train_dir": "run"}), ("elastic", {"elastic": True}),
                              ("replication", {"replication": 1}), ("wire_dtype", {"wire_dtype": "float16"})):
            with self.assertRaisesRegex(cairn.InvalidArgument, f"{name} needs servers"):
                distribute(**options)
        job = cairn.init(peers="127.0.0.1:1")
        with self.assertRaisesRegex(cairn.InvalidArgument, "mode 'sync' needs servers"):
            cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job)
        with self.assertRaisesRegex(cairn.InvalidArgument, "peers: 2 addresses for 3 workers"):
            cairn.init(peers="a:1,b:1", worker=0, workers=3)
        with mock.patch.dict(os.environ, {}, clear=True), self.assertRaisesRegex(cairn.InvalidArgument, "CAIRN_WORKERS"):
            cairn.init()
        with self.assertRaisesRegex(cairn.InvalidArgument, "needs the addresses of the workers"):
            cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, cairn.init("a:1"), mode="allreduce")
        with alone() as job:
            cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job, mode="allreduce")
            with self.assertRaisesRegex(cairn.Refused, "has no servers"):
                job.stats()

    def test_a_gradient_that_was_changed_after_it_was_sent_raises(self):
        model = make_model(norm=False)
        inputs, labels = make_data()
        with alone() as job:
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job, mode="allreduce")
            for step in range(2):
                optimizer.zero_grad()
                loss_of(model, inputs, labels).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.01)
                if step == 0:
                    optimizer.step()
            with self.assertRaisesRegex(cairn.Refused, "'0.weight' was changed after"):
                optimizer.step()

    def test_an_update_that_was_interrupted_is_made_by_the_next_step_or_refused(self):
        model = make_model(norm=False)
        with alone() as job:
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job, mode="allreduce", max_grad_norm=1.0)
            reference = copy.deepcopy(model)
            with mock.patch.object(optimizer, "_ring", wraps=optimizer._ring) as ring:
                ring.await_sent.side_effect = KeyboardInterrupt
                loss_of(model, *make_data(seed=0)).backward()
                with self.assertRaises(KeyboardInterrupt):
                    optimizer.step()
            assert_same(self, model, reference, rtol=0, atol=0)
            loss_of(model, *make_data(seed=1)).backward()
            with self.assertLogs("cairn", "WARNING"):
                optimizer.step()
            theirs = optim.SGD(reference.parameters(), 0.1)
            late = copy.deepcopy(reference)  # the values of the second gradient
            for of_gradient, seed in ((reference, 0), (late, 1)):
                theirs.zero_grad()
                loss_of(of_gradient, *make_data(seed=seed)).backward()
                for parameter, computed in zip(reference.parameters(), of_gradient.parameters()):
                    parameter.grad = computed.grad
                nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
                theirs.step()
            assert_same(self, model, reference)
            with mock.patch.object(optimizer._inner, "step", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
                optimizer.step()
            with self.assertRaisesRegex(cairn.Refused, "was interrupted, and this worker's values may differ"):
                optimizer.step()
            job.abandon()


@contextlib.contextmanager
def log_to(handler):
    logger = logging.getLogger("cairn")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield
    logger.removeHandler(handler)
    logger.setLevel(level)


class WorkersTest(JobTest):

    def setUp(self):
        super().setUp()
        self.addresses = [f"127.0.0.1:{reserve_port(self)}" for _ in range(2)]

    def start_worker(self, worker, *flags, workers=2):
        environment = {"CAIRN_WORKERS": ",".join(self.addresses[:workers]), "RANK": str(worker), "CAIRN_REUSE_PORT": "1",
                       "DIED": str(self.directory / f"died_{self.addresses[0]}")}
        return self.start_command([sys.executable, "-B", self.program, "--mode", "allreduce", *map(str, flags)],
                                  name=f"worker/{worker}", env=environment)

    def train(self, optimizer, model, clip=None):
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, *make_data(seed=step)).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()

    def test_two_halves_of_a_batch_equal_the_whole(self):
        rules = {"adam": lambda p: optim.Adam(p, 0.05), "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9)}
        for parts, rule, clip in (("32,32", "adam", None), ("32,32", "momentum", 0.05), ("48,16", "momentum", None)):
            with self.subTest(f"{parts} {rule}"):
                model = make_model(norm=False)
                self.train(rules[rule](model.parameters()), model, clip)
                flags = ["--examples", parts, "--optimizer", rule, "--save", self.directory / "model.pt"]
                first, second = self.reports([self.start_worker(worker, *flags, *(["--clip", clip] if clip else []))
                                              for worker in range(2)])
                self.assertEqual(first[2], second[2])
                trained = make_model(norm=False)
                trained.load_state_dict(torch.load(self.directory / "model.pt"))
                assert_same(self, trained, model, rtol=1e-6, atol=1e-6)

    def test_a_worker_with_fewer_steps_does_not_stop_the_others(self):
        reports = self.reports([self.start_worker(0, "--steps", 5), self.start_worker(1, "--steps", 9)])
        self.assertEqual(reports[0][0], 5)
        self.assertEqual(reports[1][0], 9)

    def test_a_lost_worker_comes_back_to_the_values_of_the_others(self):
        undisturbed = self.reports([self.start_worker(worker, "--schedule") for worker in range(2)])
        self.assertEqual(undisturbed[0][2], undisturbed[1][2])
        for lost, where in ((1, "forward"), (1, "backward"), (0, "step")):
            with self.subTest(f"{lost} {where}"):
                self.setUp()
                flags = {lost: ["--die", f"6:{where}"], 1 - lost: []}
                workers = [self.start_worker(i, "--schedule", *flags[i]) for i in range(2)]
                self.assertTrue(workers[lost].wait(2 * SECONDS))
                workers[lost] = self.start_worker(lost, "--schedule")
                self.assertEqual([report[2] for report in self.reports(workers)], [undisturbed[0][2]] * 2)

    def test_a_recovery_that_ctrl_c_interrupts_begins_again_with_the_next_step(self):
        undisturbed = self.reports([self.start_worker(worker) for worker in range(2)])
        self.setUp()
        lost = self.start_worker(1, "--die", "6:forward")
        model = make_model(norm=False)
        interrupted = []

        class Interrupt(logging.Handler):
            def emit(self, record):
                if "connecting again" in record.getMessage() and len(interrupted) < 2:
                    os.kill(os.getpid(), signal.SIGINT)
        with log_to(Interrupt()), mock.patch.dict(os.environ, {"CAIRN_REUSE_PORT": "1"}), \
                cairn.init(peers=self.addresses, worker=0, connect_timeout=SECONDS, step_timeout=SECONDS) as job:
            optimizer = cairn.torch.distribute(optim.Adam(model.parameters(), 0.05), model, job, mode="allreduce")
            while job.position < STEPS:
                inputs, labels = (part[:32] for part in make_data(seed=job.position))
                optimizer.zero_grad()
                loss_of(model, inputs, labels).backward()
                try:
                    optimizer.step(examples=32)
                except KeyboardInterrupt:
                    interrupted.append(job.position)
                    if len(interrupted) == 2:
                        self.assertTrue(lost.wait(SECONDS))
                        back = self.start_worker(1)
        self.assertEqual(interrupted, [6, 6])
        self.assertEqual(self.reports([back])[0][2], undisturbed[1][2])
        self.assertEqual(digest(model), undisturbed[0][2])

    def test_a_worker_that_does_not_come_back_is_an_error_within_the_limit(self):
        workers = [self.start_worker(i, "--connect_timeout", 25, *(["--die", "6:step"] if i else [])) for i in range(2)]
        self.assertTrue(workers[0].wait(2 * SECONDS))
        self.assertNotEqual(workers[0].code, 0)
        self.assertRegex(workers[0].stderr, "cairn.errors.ConnectionLost: .*worker/1 at 127.0.0.1")


if __name__ == "__main__":
    unittest.main()
