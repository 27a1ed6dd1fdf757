"""Runs a test's own program as the workers of a job, and compares the parameters that they end with.

A test that uses it is its own program: `cairn run` starts it again, with RESULTS in the environment.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

SKIPPED = 77
SECONDS = 240  # for two workers that import a framework on a busy machine
RESULTS = "CAIRN_TEST_RESULTS"


def need(*modules):
    """Skips the test, aloud, unless all modules are installed."""
    for module in ("cairn", *modules):
        if importlib.util.find_spec(module) is None:
            print(f"skipped: there is no {module}: configure with CAIRN_BUILD_PYTHON, and use the environment of "
                  "tests/python/environment.sh", file=sys.stderr)
            sys.exit(SKIPPED)


def is_worker():
    return RESULTS in os.environ


def report(worker, values):
    """Called by a worker: {name: array}."""
    np.savez(pathlib.Path(os.environ[RESULTS], f"{worker}.npz"), **{name: np.asarray(value) for name, value in values.items()})


def train(program, workers=2):
    """[worker]: what it reported."""
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(os.environ["CAIRN_BIN_DIR"], "cairn")
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run([run, "run", "--ps", "1", "--workers", str(workers), program], check=False, capture_output=True,
                              text=True, timeout=SECONDS, cwd=folder,
                              env={**os.environ, "PATH": path, RESULTS: folder, "PYTHONDONTWRITEBYTECODE": "1"})
        if done.returncode != 0:
            raise AssertionError(f"cairn run exited with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return [dict(np.load(pathlib.Path(folder, f"{worker}.npz"))) for worker in range(workers)]


def check(test, results, reference, rtol=1e-4, atol=1e-6):
    """All workers have the same bits, which are close to the reference: {name: array}."""
    first = results[0]
    for other in results[1:]:
        test.assertEqual(other.keys(), first.keys())
        for name, values in first.items():
            test.assertEqual(values.tobytes(), other[name].tobytes(), name)
    compare(test, first, reference, rtol, atol)


def compare(test, values, reference, rtol=1e-4, atol=1e-6):
    test.assertEqual(values.keys(), reference.keys())
    for name, expected in reference.items():
        np.testing.assert_allclose(values[name], np.asarray(expected), rtol, atol, err_msg=name)


def part(array, examples, worker):
    """The worker's part of each batch of `array`, [batches, batch, ...]; `examples`: [worker] of each batch."""
    first = sum(examples[:worker])
    return array[:, first:first + examples[worker]]


def batches(count=6, size=64, features=10, classes=3, seed=2):
    """Inputs [count, size, features] and labels [count, size]."""
    generator = np.random.default_rng(seed)
    inputs = generator.standard_normal((count, size, features)).astype(np.float32)
    return inputs, inputs[..., :classes].argmax(-1)
