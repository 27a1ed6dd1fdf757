#!/usr/bin/env python3
"""Mistakes of programs, and uses that torch allows in one process: they are right here too, or raise and are named."""

import copy
import logging
import pickle
import tempfile
import time
import unittest

import numpy as np
import support  # noqa: F401
import torch
from support import assert_same, local, loss_of, make_data, make_model

import cairn
import cairn.torch

nn, optim = torch.nn, torch.optim


def distribute(model, job, rate=0.1, **options):
    return cairn.torch.distribute(optim.SGD(model.parameters(), rate, momentum=0.9), model, job, **options)


def step(model, optimizer, change=lambda: None):
    inputs, labels = make_data()
    optimizer.zero_grad()
    loss_of(model, inputs, labels).backward()
    change()
    optimizer.step()


class CopiesTest(unittest.TestCase):

    def test_an_optimizer_of_a_job_is_not_copied(self):
        model = make_model(norm=False)
        with local() as job:
            optimizer = distribute(model, job)
            for call in (copy.deepcopy, copy.copy, pickle.dumps):
                with self.subTest(call), self.assertRaisesRegex(cairn.Refused, "belongs to a live job.*state_dict"):
                    call(optimizer)
            step(model, optimizer)
            copied = copy.deepcopy(model)
            step(model, optimizer)
        self.assertFalse(torch.equal(copied[0].weight, model[0].weight))

    def test_the_state_of_another_run_is_refused_after_state_dict(self):
        model, other = make_model(norm=False), make_model(norm=False)
        used = optim.SGD(other.parameters(), 0.1, momentum=0.9)
        step(other, used)
        step(other, used)
        with local() as job:
            optimizer = distribute(model, job)
            step(model, optimizer)
            own = optimizer.state_dict()  # as torch.distributed.checkpoint does, to know the form
            optimizer.load_state_dict(own)
            with self.assertRaisesRegex(cairn.InvalidArgument, "state of earlier steps"):
                optimizer.load_state_dict(used.state_dict())
            own["state"][0]["momentum_buffer"].add_(1)
            with self.assertRaisesRegex(cairn.InvalidArgument, "state of earlier steps"):
                optimizer.load_state_dict(own)


class SharedMemoryTest(unittest.TestCase):

    @staticmethod
    def make():
        """Two biases that are views of one tensor."""
        model = make_model(norm=False)
        flat = torch.randn(23, generator=torch.Generator().manual_seed(1))
        model[0].bias, model[2].bias = nn.Parameter(flat[:20]), nn.Parameter(flat[20:])
        return model

    def test_parameters_may_be_views_of_one_tensor(self):
        model, reference = self.make(), self.make()
        optimizer = optim.SGD(reference.parameters(), 0.1, momentum=0.9)
        for _ in range(3):
            step(reference, optimizer)
        with local() as job:
            optimizer = distribute(model, job)
            for _ in range(3):
                step(model, optimizer)
        assert_same(self, model, reference)

    def test_parameters_that_overlap_are_named(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = nn.Parameter(model[0].weight.data)  # not the same Parameter
        with local() as job, self.assertRaisesRegex(cairn.InvalidArgument, "'0.weight' and '1.weight' share memory"):
            distribute(model, job)


class WritesTest(unittest.TestCase):
    """Writes that torch counts no version of."""

    def check(self, change, words, **options):
        model = make_model(norm=False)
        with local() as job:
            optimizer = distribute(model, job, **options)
            for _ in range(2):
                step(model, optimizer)
            with self.assertRaisesRegex(cairn.Refused, words):
                step(model, optimizer, lambda: change(model))

    def test_through_data_into_values(self):
        def clamp(model):
            model[2].weight.data.clamp_(-0.01, 0.01)
        for eager in (True, False):
            with self.subTest(eager=eager):
                self.check(clamp, "the values of '2.weight'", eager=eager)

    def test_values_that_no_parameter_shares_are_not_sampled(self):
        for dtype in (torch.float32, torch.bfloat16):
            model = make_model(norm=False).to(dtype)
            with self.subTest(dtype), local() as job:
                optimizer = distribute(model, job)
                for values in optimizer._parameters[1].values:
                    values.add_(1)
                self.assertEqual(optimizer._session.changed_value(), 1 if dtype is torch.float32 else None)

    def test_a_target_network_is_no_part_of_the_model(self):
        for inside in (False, True):
            model = make_model(norm=False)
            target = copy.deepcopy(model).requires_grad_(False)
            model.add_module("target", nn.Identity())
            if inside:
                model.target.network = target

            def update(model=model, target=target):
                with torch.no_grad():
                    for value, other in zip(target.parameters(), model.parameters()):
                        value.lerp_(other, 0.5)
            with self.subTest(inside=inside), local() as job:
                optimizer = distribute(model, job)
                step(model, optimizer)
                update()
                if inside:
                    with self.assertRaisesRegex(cairn.Refused, "the values of 'target.network.0.weight'"):
                        step(model, optimizer)
                else:
                    step(model, optimizer)

    def test_through_data_into_gradients_that_were_sent(self):
        def scale(model):
            model[0].weight.grad.data.mul_(0.5)
        self.check(scale, "the gradient of '0.weight' was changed")

    def test_through_data_into_gradients_that_were_not_sent(self):
        model, reference = make_model(norm=False), make_model(norm=False)
        optimizer = optim.SGD(reference.parameters(), 0.1, momentum=0.9)

        def scale(model):
            model[0].weight.grad.data.mul_(0.5)
        for _ in range(3):
            step(reference, optimizer, lambda: scale(reference))
        with local() as job:
            optimizer = distribute(model, job, eager=False)
            for _ in range(3):
                step(model, optimizer, lambda: scale(model))
        assert_same(self, model, reference)


class InterruptsTest(unittest.TestCase):
    """Ctrl-C after an update was made, while its values are put in place."""

    def test_between_two_parameters(self):
        model, reference = make_model(norm=False), make_model(norm=False)
        rule = optim.SGD(reference.parameters(), 0.1, momentum=0.9)
        for _ in range(3):
            step(reference, rule)
        with local() as job:
            optimizer = distribute(model, job)
            step(model, optimizer)
            second = optimizer._parameters[1]
            install = second.install

            def interrupted(place):
                second.install = install
                raise KeyboardInterrupt
            second.install = interrupted
            with self.assertRaises(KeyboardInterrupt):
                step(model, optimizer)
            step(model, optimizer)
            self.assertEqual(job.version, 3)
        assert_same(self, model, reference)

    def test_before_the_first_parameter(self):
        model = make_model(norm=False)
        with local() as job:
            optimizer = distribute(model, job)
            step(model, optimizer)
            end = optimizer._end_step

            def interrupted():
                optimizer._end_step = end
                raise KeyboardInterrupt
            optimizer._end_step = interrupted
            with self.assertRaises(KeyboardInterrupt):
                step(model, optimizer)
            step(model, optimizer)  # its gradient belongs to the values before
            self.assertEqual(job.version, 3)
            self.assertEqual(model[0].weight.flatten().tolist(), job.values["0.weight"].flatten().tolist())

    def test_while_the_library_logs_after_the_values_have_come(self):
        model, caught = make_model(norm=False), []

        class Interrupt(logging.Handler):
            def emit(self, record):
                if record.getMessage().startswith("saved") and not caught:
                    caught.append(record)
                    raise KeyboardInterrupt
        logger, handler = logging.getLogger("cairn"), Interrupt()
        self.addCleanup(logger.setLevel, logger.level)
        self.addCleanup(logger.removeHandler, handler)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        with tempfile.TemporaryDirectory() as directory, local(train_dir=directory, save_steps=1) as job:
            optimizer = distribute(model, job)
            with self.assertRaises(KeyboardInterrupt):
                for _ in range(1000):
                    step(model, optimizer)
                    time.sleep(0.01)
            for _ in range(2):
                step(model, optimizer)
            self.assertEqual(model[0].weight.flatten().tolist(), job.values["0.weight"].flatten().tolist())


class BuffersTest(unittest.TestCase):

    def test_masks_with_infinities_stay(self):
        mask = torch.full((3, 3), float("-inf")).triu(1)
        model = make_model()
        model.register_buffer("mask", mask.clone())
        model.register_buffer("bias", -mask)
        with local() as job:
            with self.assertLogs("cairn", "WARNING") as logs:
                optimizer = distribute(model, job)
            self.assertIn("each worker keeps its own: 'mask', 'bias'; they must be the same buffers on all workers", logs.output[0])
            for _ in range(2):
                step(model, optimizer)
            self.assertEqual(job.version, 2)
            self.assertIn("1.running_mean", job.values)
            self.assertNotIn("mask", job.values)
        self.assertTrue(torch.equal(model.mask, mask))

    def test_statistics_that_are_not_numbers_are_an_error(self):
        model = make_model()
        model[1].running_mean[0] = float("nan")
        with self.assertRaisesRegex(cairn.InvalidArgument, "'1.running_mean' is not finite"), local() as job:
            step(model, distribute(model, job))

    def test_a_buffer_of_64_bits_is_named_with_what_to_do(self):
        model = make_model()
        model.register_buffer("angles", torch.zeros(2, dtype=torch.float64))
        with local() as job:
            with self.assertRaisesRegex(cairn.InvalidArgument, r"buffer 'angles' is torch.float64.*buffers='local'"):
                distribute(model, job)
            step(model, distribute(model, job, buffers="local"))

    def test_an_embedding_that_writes_into_its_weight_is_named(self):
        model = nn.Sequential(nn.Embedding(10, 4, max_norm=1.0))
        with local() as job, self.assertRaisesRegex(cairn.InvalidArgument, "the embedding '0' has max_norm"):
            distribute(model, job)


class GroupsTest(unittest.TestCase):

    def test_parameters_added_or_removed_by_hand_are_refused(self):
        changes = {"removed": lambda groups: groups[0]["params"].pop(),
                   "added": lambda groups: groups[0]["params"].append(nn.Parameter(torch.zeros(2))),
                   "replaced": lambda groups: groups[0]["params"].__setitem__(0, nn.Parameter(torch.zeros(20, 10))),
                   "cleared": lambda groups: groups.clear()}
        for name, change in changes.items():
            for moment in ("before backward", "after backward"):
                model = make_model(norm=False)
                with self.subTest(name, moment=moment), local() as job:
                    optimizer = distribute(model, job)
                    step(model, optimizer)
                    with self.assertRaisesRegex(cairn.Refused, r"parameters of param_groups\[0\].*requires_grad"):
                        if moment == "before backward":
                            change(optimizer.param_groups)
                            step(model, optimizer)
                        else:
                            step(model, optimizer, lambda: change(optimizer.param_groups))


class ArgumentsTest(unittest.TestCase):

    def test_wrong_arguments_are_named(self):
        model = make_model(norm=False)
        optimizer = optim.SGD(model.parameters(), 0.1)
        lazy = nn.Sequential(nn.LazyLinear(3))
        meta = nn.Linear(2, 2, device="meta")
        with local() as job:
            for arguments, options, words in (
                    ((model, optimizer, job), {}, "optimizer has the type Sequential"),
                    ((optimizer, list(model.parameters()), job), {}, "model has the type list"),
                    ((optimizer, model, "127.0.0.1:1"), {}, "job has the type str"),
                    ((optimizer, model, job), {"max_grad_norm": "1"}, "max_grad_norm is '1'"),
                    ((optimizer, model, job), {"max_grad_norm": [1.0]}, r"max_grad_norm is \[1.0\], must be a number above 0"),
                    ((optimizer, model, job), {"max_grad_norm": torch.ones(2)}, r"max_grad_norm is tensor\(\[1., 1.\]\)"),
                    ((optimizer, model, job), {"mode": "ssp"}, "'ssp' needs max_staleness"),
                    ((optimizer, model, job), {"max_staleness": 3}, "max_staleness is 3, but mode is 'sync'"),
                    ((optimizer, model, job), {"updates": 2.5}, "updates is 2.5"),
                    ((optim.SGD(lazy.parameters(), 0.1), lazy, job), {}, "'0.weight' has no shape yet: call the model"),
                    ((optim.SGD(meta.parameters(), 0.1), meta, job), {}, "'weight' is on the meta device")):
                with self.subTest(words), self.assertRaisesRegex(cairn.InvalidArgument, words):
                    cairn.torch.distribute(*arguments, **options)

    def test_models_on_the_meta_device_are_named(self):
        mask = make_model(norm=False)
        mask.register_buffer("mask", torch.zeros(2, device="meta"))
        statistics = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False, device="meta"))
        for model, name in ((nn.Linear(2, 2, device="meta"), "'weight'"), (mask, "buffer 'mask'"),
                            (nn.BatchNorm1d(2, device="meta"), "('weight'|buffer 'running_mean')"),
                            (statistics, "buffer '1.running_mean'")):
            words = f"^{name} is on the meta device and has no values: give it some before distribute"
            for mode in ("sync", "allreduce"):
                with self.subTest(name, mode=mode), self.assertRaisesRegex(cairn.InvalidArgument, words):
                    job = cairn.init("127.0.0.1:1") if mode == "sync" else cairn.init(peers="127.0.0.1:1", worker=0, workers=1)
                    distribute(model, job, mode=mode)

    def test_optimizers_that_all_reduce_cannot_run_are_named(self):
        model = make_model(norm=False)
        for rule in (optim.LBFGS, optim.SparseAdam):
            with self.assertRaisesRegex(cairn.InvalidArgument, rule.__name__):
                job = cairn.init(peers="127.0.0.1:1", worker=0, workers=1)
                cairn.torch.distribute(rule(list(model.parameters())), model, job, mode="allreduce")

    def test_ids_that_are_no_tensor_are_named(self):
        for module in (cairn.torch.Embedding(10, 4, name="t"), cairn.torch.EmbeddingBag(10, 4, name="t")):
            with self.assertRaisesRegex(cairn.InvalidArgument, "table 't': ids are a list"):
                module([1, 2])

    def test_numbers_of_examples(self):
        model = make_model(norm=False)
        with local() as job:
            optimizer = distribute(model, job)
            for examples in (float("nan"), float("inf"), 2**70, "8", torch.tensor([3, 4]), torch.tensor(True),
                             torch.tensor(4, device="meta")):
                with self.subTest(examples), self.assertRaisesRegex(cairn.InvalidArgument, "examples is"):
                    optimizer.step(examples=examples)
            for examples in (torch.tensor(4), torch.tensor([4]), np.array(4), np.int64(4)):
                optimizer.step(examples=examples)
            self.assertEqual(job.stats()["examples"], 16)

    def test_a_step_after_the_end_says_so(self):
        model = make_model(norm=False)
        with local() as job:
            optimizer = distribute(model, job)
            step(model, optimizer)
        with self.assertRaisesRegex(cairn.Refused, "the job is closed"):
            step(model, optimizer)


if __name__ == "__main__":
    unittest.main()
