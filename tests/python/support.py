"""Servers, models and data for the tests of the Python package."""

import contextlib
import hashlib
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

SKIPPED = 77
try:
    import numpy as np  # noqa: F401
    import torch

    import cairn
    import cairn.torch
except ImportError as error:
    print(f"skipped: {error}: configure with CAIRN_BUILD_PYTHON, and use the environment of deploy/setup.sh --with-tests",
          file=sys.stderr)
    sys.exit(SKIPPED)

SECONDS = 60  # for waits that take less than one on an idle machine

torch.set_num_threads(1)


@contextlib.contextmanager
def local(ps=1, **options):
    with cairn.local(ps, connect_timeout=SECONDS, step_timeout=SECONDS, **options) as job:
        yield job


def make_model(seed=1, norm=True):
    torch.manual_seed(seed)
    nn = torch.nn
    return nn.Sequential(nn.Linear(10, 20), *[nn.BatchNorm1d(20)] * norm, nn.Tanh(), nn.Linear(20, 3))


def make_data(examples=64, seed=2):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(examples, 10, generator=generator)
    return inputs, inputs[:, :3].argmax(1)


def loss_of(model, inputs, labels):
    return torch.nn.functional.cross_entropy(model(inputs), labels)


def digest(model):
    values = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()


def assert_same(test, model, reference, rtol=1e-5, atol=5e-7):
    """The parameters and floating-point buffers of both models agree."""
    state = reference.state_dict()
    test.assertEqual(model.state_dict().keys(), state.keys())
    for name, values in model.state_dict().items():
        if values.is_floating_point():
            torch.testing.assert_close(values, state[name], rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


BAG = 5


class TableModel(torch.nn.Module):
    """Bags of any ids, and a linear layer over their means."""

    def __init__(self, **table):
        super().__init__()
        torch.manual_seed(1)
        self.bags = cairn.torch.EmbeddingBag(None, 4, name="bags", **table)
        self.out = torch.nn.Linear(4, 3)

    def loss(self, ids, labels):
        return torch.nn.functional.cross_entropy(self.out(self.bags(ids)), labels)


def make_bags(examples=64, seed=2):
    """Bags of ids far apart, some of them negative, and a label that depends on the id that occurs three times."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 50, (examples, BAG), generator=generator)
    ids[:, 1:3] = ids[:, :1]
    return (ids - 25) * (1 << 41), ids[:, 0] % 3
