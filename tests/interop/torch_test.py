#!/usr/bin/env python3
"""PyTorch models on Cairn's servers, with real PyTorch: deploy/python/cairn/torch.py.

Needs PyTorch, gRPC and NumPy (Debian: python3-torch, python3-grpcio, python3-numpy); skipped, with a message, without
them.

    CAIRN_BIN_DIR=build/release/bin python3 tests/interop/torch_test.py
"""

import gzip
import os
import pathlib
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "deploy/python"), str(SOURCE / "tests/integration")]
DEBIANS = "/usr/bin/python3"

try:
    import grpc  # noqa: F401  # pylint: disable=unused-import
    import numpy as np
    import torch
except ImportError:
    if sys.executable != DEBIANS and os.path.exists(DEBIANS):  # another Python stands before it in PATH
        os.execv(DEBIANS, [DEBIANS, "-B", __file__, *sys.argv[1:]])
    print("skipped: apt-get install python3-torch python3-grpcio python3-numpy", file=sys.stderr)
    sys.exit(77)

import cairn  # noqa: E402
import cairn.torch  # noqa: E402
import harness  # noqa: E402
from harness import DONE, Cluster, IntegrationTest, small_data  # noqa: E402

STEPS = {"sync": 40, "async": 200}
BATCH = 32
LEARNING_RATE = 0.1
LEARNT = 0.75  # of the test digits; guessing gives 0.1


def load(split):
    """Images [n, 1, 28, 28] in [0, 1] and labels [n]."""
    def read(name, header):
        path = small_data() / f"{split}-{name}-ubyte"
        data = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
        return np.frombuffer(data, "u1", offset=header)
    return (torch.from_numpy(read("images-idx3", 16).reshape(-1, 1, 28, 28) / np.float32(255)),
            torch.from_numpy(read("labels-idx1", 8).astype("i8")))


def make_model():
    torch.manual_seed(1)
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 12 * 12, 64), nn.ReLU(),
                         nn.Linear(64, 10))


def loss_of(model, images, labels):
    return torch.nn.functional.cross_entropy(model(images), labels)


def accuracy_of(model):
    images, labels = load("t10k")
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


def work(servers, worker, workers, mode, out, tls):
    """One process of a training: takes its part of each batch of BATCH * workers examples."""
    torch.set_num_threads(1)
    model = make_model()
    client = cairn.connect(servers, worker=worker, workers=workers, timeout=60, step_timeout=60, tls=tls)
    optimizer = cairn.torch.DistributedOptimizer(
        model.named_parameters(), client, mode=mode,
        optimizer={"class_name": "SGD", "config": {"learning_rate": LEARNING_RATE, "momentum": 0.9 if mode == "sync" else 0}})
    images, labels = load("train")
    for step in range(STEPS[mode]):
        first = (step * workers + worker) * BATCH % len(images)
        optimizer.zero_grad()
        loss_of(model, images[first:first + BATCH], labels[first:first + BATCH]).backward()
        optimizer.step(examples=len(images[first:first + BATCH]))
    optimizer.close()
    np.savez(out, accuracy=accuracy_of(model), **{n: p.detach().numpy() for n, p in model.named_parameters()})


class TorchTest(IntegrationTest):

    def train(self, workers, mode, *flags, tls=None):
        cluster = Cluster(self, ps=2, workers=workers)
        tasks = [cluster.start("ps", i, *flags) for i in range(2)]
        servers = ",".join(cluster.addresses["ps"])
        if tls:
            servers = servers.replace("127.0.0.1", "localhost")
        files = [self.directory / f"{mode}{worker}.npz" for worker in range(workers)]
        processes = [self.start(sys.executable, "-B", __file__, "work", servers, worker, workers, mode, out, *(tls or []))
                     for worker, out in enumerate(files)]
        self.assert_exit(DONE, *processes, *tasks, seconds=300)
        return [dict(np.load(file)) for file in files]

    def local(self, workers):
        """The same training by PyTorch's own optimizer, on all workers' examples at once."""
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=0.9)
        images, labels = load("train")
        for step in range(STEPS["sync"]):
            parts = [(step * workers + worker) * BATCH % len(images) for worker in range(workers)]
            batch = torch.cat([torch.arange(len(images))[first:first + BATCH] for first in parts])
            optimizer.zero_grad()
            loss_of(model, images[batch], labels[batch]).backward()
            optimizer.step()
        return {n: p.detach().numpy() for n, p in model.named_parameters()}

    def assert_close(self, values, expected):
        for name, array in expected.items():
            # Forty steps of float32 sums in another order.
            np.testing.assert_allclose(values[name], array, rtol=0, atol=2e-5, err_msg=name)

    def test_one_worker_trains_as_pytorch_alone_does(self):
        result, = self.train(1, "sync")
        self.assert_close(result, self.local(1))

    def test_two_synchronous_workers_train_as_one_with_both_batches(self):
        results = self.train(2, "sync")
        self.assert_close(results[0], self.local(2))
        for name in results[0]:
            np.testing.assert_array_equal(results[0][name], results[1][name])

    def test_two_asynchronous_workers_learn(self):
        results = self.train(2, "async")
        self.assertGreater(results[0]["accuracy"], LEARNT)

    def test_one_asynchronous_worker_learns(self):
        result, = self.train(1, "async")
        self.assertGreater(result["accuracy"], LEARNT)

    def test_two_workers_train_encrypted(self):
        certs = self.directory / "certs"
        subprocess.run([SOURCE / "deploy/make-certs.sh", certs, "localhost"], check=True, timeout=60, capture_output=True)
        files = [str(certs / name) for name in ("cert.pem", "key.pem", "ca.pem")]
        flags = [f"--tls_{kind}={file}" for kind, file in zip(("cert", "key", "ca"), files)]
        self.assert_close(self.train(2, "sync", *flags, tls=files)[1], self.local(2))

    def test_an_embedding_gives_its_gradient_as_rows(self):
        cluster = Cluster(self, ps=1, workers=1)
        task = cluster.start("ps", 0)
        torch.manual_seed(2)
        table = torch.nn.Embedding(1000, 4, sparse=True)
        expected = table.weight.detach().clone()
        optimizer = cairn.torch.DistributedOptimizer(
            table.named_parameters(), cairn.connect(cluster.addresses["ps"], timeout=60),
            optimizer={"class_name": "SGD", "config": {"learning_rate": 1.0}})
        table(torch.tensor([7, 3, 7])).sum().backward()
        self.assertTrue(table.weight.grad.is_sparse)
        optimizer.step()
        optimizer.close()
        expected[7] -= 2
        expected[3] -= 1
        torch.testing.assert_close(table.weight.detach(), expected, rtol=0, atol=0)
        self.assert_exit(DONE, task)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], sys.argv[6], sys.argv[7:] or None)
    else:
        unittest.TestCase.maxDiff = None
        harness.main()
