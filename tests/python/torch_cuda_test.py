#!/usr/bin/env python3
"""Gradients on a GPU: the order of copies and announcements with a stand-in for torch.cuda, and a real GPU if there is
one."""

import contextlib
import copy
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import torch
from support import SECONDS, local, loss_of, make_data, make_model  # first: it finds the harness
from harness import reserve_port

import cairn
import cairn.torch
from cairn.torch.cuda import DeviceCopies, _extents


def train(optimizer, model, inputs, labels, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, inputs, labels).backward()
        optimizer.step()


class Event:
    """Happens when the test sets `done`, or when it is waited for."""

    def __init__(self, cuda):
        self.cuda, self.done = cuda, False

    def record(self, stream):
        self.cuda.events.append(self)

    def query(self):
        return self.done or self.cuda.fast

    def synchronize(self):
        self.cuda.waits += 1
        self.done = True


class Stream:
    device = torch.device("cpu")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def wait_stream(self, other):
        pass


class FakeCuda:
    """torch.cuda with streams that do nothing: copies between tensors of the CPU are complete at once."""

    def __init__(self, fast=False, code=0):
        self.fast, self.code = fast, code
        self.events, self.registered, self.waits = [], {}, 0

    def Stream(self, device):
        return Stream()

    def Event(self):
        return Event(self)

    def current_stream(self, device):
        return Stream()

    def stream(self, stream):
        return stream

    def cudart(self):
        return self

    def cudaHostRegister(self, address, size, flags):
        if address in self.registered:
            return 712  # cudaErrorHostMemoryAlreadyRegistered
        self.registered[address] = size
        return self.code

    def cudaHostUnregister(self, address):
        del self.registered[address]


class DeviceCopiesTest(unittest.TestCase):

    def setUp(self):
        self.cuda, self.announced = FakeCuda(), []
        self.memory = [torch.zeros(5000) for _ in range(3)]
        self.copies = DeviceCopies(torch.device("cpu"), self.memory, self.announced.append, self.cuda)

    def test_a_gradient_is_announced_when_its_copy_is_complete(self):
        for index in range(3):
            self.copies.send(index, torch.full((5000,), float(index)), self.memory[index])
        self.assertEqual(self.announced, [])
        self.cuda.events[1].done = True
        self.copies.announce_copied()
        self.assertEqual(self.announced, [])  # in their order
        self.cuda.events[0].done = True
        self.copies.announce_copied()
        self.assertEqual(self.announced, [0, 1])
        self.copies.finish()
        self.assertEqual(self.announced, [0, 1, 2])
        self.assertEqual([float(tensor[0]) for tensor in self.memory], [0, 1, 2])

    def test_cancelled_gradients_are_not_announced(self):
        self.copies.send(0, torch.ones(5000), self.memory[0])
        self.copies.cancel()
        self.copies.finish()
        self.assertEqual(self.announced, [])
        self.assertEqual(self.cuda.waits, 1)

    def test_finish_waits_for_the_copies_of_values(self):
        self.copies.values_installed()
        self.copies.finish()
        self.assertEqual(self.cuda.waits, 1)

    def test_memory_is_pinned_as_long_as_it_is_used(self):
        self.assertTrue(self.copies.memory.pinned)
        for tensor in self.memory:
            self.assertTrue(any(begin <= tensor.data_ptr() and tensor.data_ptr() + tensor.nbytes <= begin + size
                                for begin, size in self.cuda.registered.items()))
        del self.copies
        self.assertEqual(self.cuda.registered, {})

    def test_pages_are_pinned_once(self):
        whole = torch.zeros(4096)
        [(begin, size)] = _extents([whole[:10], whole[10:11], whole[500:4096], whole[:0]])
        self.assertEqual((begin % 4096, size % 4096), (0, 0))
        end = whole.data_ptr() + whole.nbytes
        self.assertTrue(begin <= whole.data_ptr() and end <= begin + size < end + 4096)

    def test_memory_that_cannot_be_pinned_is_said(self):
        with self.assertLogs("cairn", "WARNING") as logs:
            copies = DeviceCopies(torch.device("cpu"), self.memory, self.announced.append, FakeCuda(code=1))
        self.assertFalse(copies.memory.pinned)
        self.assertIn("cannot be pinned", logs.output[0])


@contextlib.contextmanager
def stand_in(fast):
    cuda = FakeCuda(fast)
    with mock.patch("cairn.torch.gradients.is_on_gpu", lambda tensor: True), \
            mock.patch("cairn.torch.gradients.is_plain", lambda tensor: False), \
            mock.patch("cairn.torch.gradients.DeviceCopies", lambda *args: DeviceCopies(*args, cuda)):
        yield cuda


class StandInTest(unittest.TestCase):
    """The optimizer's use of the copies: parameters of the CPU take the way of those on a GPU."""

    def values(self):
        model = make_model()
        with local() as job:
            optimizer = cairn.torch.distribute(torch.optim.Adam(model.parameters(), 0.01), model, job)
            train(optimizer, model, *make_data(), steps=5)
        return [tensor.clone() for tensor in model.state_dict().values()]

    def test_the_values_are_those_without_a_gpu(self):
        expected = self.values()
        for fast in (False, True):
            with stand_in(fast) as cuda:
                for value, wanted in zip(self.values(), expected, strict=True):
                    self.assertTrue(torch.equal(value, wanted))
            self.assertGreater(len(cuda.events), 5 * 4)

    def all_reduced(self, check_backward=contextlib.nullcontext):
        """The values of two workers."""
        addresses = [f"127.0.0.1:{reserve_port(self)}" for _ in range(2)]
        models = [make_model() for _ in range(2)]

        def worker(number):
            model = models[number]
            inputs, labels = (part.chunk(2)[number] for part in make_data())
            with cairn.init(peers=addresses, worker=number, connect_timeout=SECONDS, step_timeout=SECONDS) as job:
                optimizer = cairn.torch.distribute(torch.optim.Adam(model.parameters(), 0.01), model, job, mode="allreduce",
                                                   max_grad_norm=1.0)
                for _ in range(5):
                    optimizer.zero_grad()
                    with check_backward():
                        loss_of(model, inputs, labels).backward()
                    optimizer.step()
            return [tensor.clone() for tensor in model.state_dict().values()]
        with mock.patch.dict("os.environ", {"CAIRN_REUSE_PORT": "1"}), ThreadPoolExecutor(2) as pool:
            first, second = pool.map(worker, range(2))
        self.assertTrue(all(map(torch.equal, first, second)))
        return first

    def test_all_reduce_gives_the_values_without_a_gpu_and_waits_for_no_copy_in_backward(self):
        expected = self.all_reduced()
        waits = threading.local()
        for fast in (False, True):
            with stand_in(fast) as cuda:
                synchronize = Event.synchronize

                def counted(event, synchronize=synchronize):
                    self.assertFalse(getattr(waits, "in_backward", False))
                    synchronize(event)

                @contextlib.contextmanager
                def backward():
                    waits.in_backward = True
                    yield
                    waits.in_backward = False
                with mock.patch.object(Event, "synchronize", counted):
                    values = self.all_reduced(backward)
                for value, wanted in zip(values, expected, strict=True):
                    self.assertTrue(torch.equal(value, wanted))
            self.assertGreater(len(cuda.events), 2 * 5 * 4)
            self.assertGreater(cuda.waits, 0)

    def test_parameters_on_two_devices_are_refused(self):
        model = make_model()
        model[0].to("meta")
        with mock.patch("cairn.torch.gradients.is_on_gpu", lambda tensor: True), \
                mock.patch("cairn.torch.tensors._check_has_values"), local() as job, \
                self.assertRaisesRegex(cairn.InvalidArgument, "the model is on cpu, meta: start a worker for each GPU"):
            cairn.torch.distribute(torch.optim.SGD(model.parameters(), 0.1), model, job)


@unittest.skipUnless(torch.cuda.is_available(), "there is no GPU that PyTorch can use")
class GpuTest(unittest.TestCase):

    def test_a_model_on_the_gpu_trains_as_on_the_cpu(self):
        trained = []
        for device in ("cpu", "cuda"):
            model = copy.deepcopy(make_model()).to(device)
            with local() as job:
                optimizer = cairn.torch.distribute(torch.optim.Adam(model.parameters(), 0.01), model, job)
                train(optimizer, model, *(data.to(device) for data in make_data()), steps=20)
            trained.append([tensor.cpu() for tensor in model.state_dict().values()])
        for first, second in zip(*trained, strict=True):
            torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-4)


if __name__ == "__main__":
    unittest.main()
