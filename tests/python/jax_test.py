#!/usr/bin/env python3
"""JAX: pytrees of gradients in, of parameters out, without torch."""

import os
import subprocess
import sys
import unittest

os.environ["JAX_PLATFORMS"] = "cpu"

import frameworks  # noqa: E402

frameworks.need("jax", "optax")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

import cairn.jax  # noqa: E402

EXAMPLES = (40, 24)  # of each worker, of the 64 of a batch


def make_params(seed=1):
    first, second = jax.random.split(jax.random.key(seed))
    return {"layers": [{"w": 0.3 * jax.random.normal(first, (10, 20)), "b": jnp.zeros(20)},
                       {"w": 0.3 * jax.random.normal(second, (20, 3)), "b": jnp.zeros(3)}]}


@jax.jit
@jax.grad
def gradient(params, inputs, labels):
    first, second = params["layers"]
    logits = jnp.tanh(inputs @ first["w"] + first["b"]) @ second["w"] + second["b"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def train(params, transformation, inputs, labels):
    """By optax in this process."""
    state = transformation.init(params)
    for x, y in zip(inputs, labels):
        updates, state = transformation.update(gradient(params, x, y), state, params)
        params = optax.apply_updates(params, updates)
    return params


def named(params):
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(params)}


def work():
    """A worker of the test."""
    with cairn.init() as job:
        training = cairn.jax.start(job, make_params(1 + job.worker), cairn.jax.adam(0.01))
        for x, y in zip(*(frameworks.part(array, EXAMPLES, job.worker) for array in frameworks.batches())):
            training.step(gradient(training.params, x, y), examples=len(x))
        frameworks.report(job.worker, named(training.params))


class WorkersTest(unittest.TestCase):

    def test_two_workers_equal_one_process_with_the_whole_batches(self):
        reference = train(make_params(), optax.adam(0.01), *frameworks.batches())
        frameworks.check(self, frameworks.train(__file__), named(reference))


class StepsTest(unittest.TestCase):

    def check(self, optimizer, transformation, rate=None):
        inputs, labels = frameworks.batches()
        with cairn.local(ps=2) as job:
            training = cairn.jax.start(job, make_params(), optimizer)
            for x, y in zip(inputs, labels):
                training.step(gradient(training.params, x, y), learning_rate=rate and rate(job.version))
        frameworks.compare(self, named(training.params), named(train(make_params(), transformation, inputs, labels)))

    def test_optimizers_equal_those_of_optax(self):
        for optimizer, transformation in ((cairn.jax.sgd(0.1), optax.sgd(0.1)),
                                          (cairn.jax.sgd(0.1, 0.9, True), optax.sgd(0.1, 0.9, True)),
                                          (cairn.jax.adam(0.01, 0.8), optax.adam(0.01, 0.8)),
                                          (cairn.jax.adamw(0.01, weight_decay=0.1), optax.adamw(0.01, weight_decay=0.1)),
                                          ({"class_name": "SGD", "config": {"learning_rate": 0.1}}, optax.sgd(0.1))):
            with self.subTest(optimizer):
                self.check(optimizer, transformation)

    def test_a_schedule_of_optax(self):
        schedule = optax.cosine_decay_schedule(0.1, 6)
        self.check(cairn.jax.sgd(0.1), optax.sgd(schedule), schedule)

    def test_the_form_and_the_types_stay_and_earlier_values_are_not_overwritten(self):
        params = {"a": jnp.ones((2, 3), jnp.bfloat16), "b": (np.ones(2, np.float32), jnp.float32(1))}
        with cairn.local() as job:
            training = cairn.jax.start(job, params, cairn.jax.sgd(0.5))
            earlier = [training.params]
            for _ in range(4):
                earlier.append(training.step(jax.tree.map(jnp.ones_like, params)))
        for step, values in enumerate(earlier):
            self.assertEqual(jax.tree.structure(values), jax.tree.structure(params))
            self.assertEqual([leaf.dtype for leaf in jax.tree.leaves(values)], [jnp.bfloat16, jnp.float32, jnp.float32])
            for leaf in jax.tree.leaves(values):
                np.testing.assert_array_equal(np.asarray(leaf, np.float32), 1 - 0.5 * step)

    def test_faults_are_named(self):
        params = {"w": jnp.ones(2)}
        with cairn.local() as job:
            with self.assertRaisesRegex(cairn.InvalidArgument, "the parameter n/0 is int32"):
                cairn.jax.start(job, {"n": [jnp.arange(2)]})
            with self.assertRaisesRegex(cairn.InvalidArgument, "learning_rate is"):
                cairn.jax.start(job, params, {"class_name": "SGD", "config": {"learning_rate": [1]}})
            with self.assertRaisesRegex(cairn.InvalidArgument, "one of optax.*cairn.jax.sgd"):
                cairn.jax.start(job, params, optax.sgd(0.1))
            training = cairn.jax.start(job, params)
            for grads, words in (({"v": jnp.ones(2)}, "the gradients are"),
                                 ({"w": 1j * jnp.ones(2)}, "the gradient of w is complex64, must be real"),
                                 ({"w": jnp.ones(3)}, r"gradient of w has the shape \[3\], the parameter \[2\]")):
                with self.assertRaisesRegex(cairn.InvalidArgument, words):
                    training.step(grads)
            with self.assertRaisesRegex(cairn.InvalidArgument, "within jax.jit"):
                jax.jit(training.step)(params)
            with self.assertRaisesRegex(cairn.InvalidArgument, "examples is"):
                jax.jit(lambda examples: training.step({"w": jnp.ones(2)}, examples=examples))(3)
            self.assertEqual(job.version, 0)
            training.step({"w": jnp.ones(2)}, examples=jnp.sum(jnp.ones(3, bool)))
            self.assertEqual(job.stats()["examples"], 3)

    def test_torch_is_not_imported(self):
        code = "import sys, cairn.jax; assert 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-B", "-c", code], check=True, timeout=frameworks.SECONDS)


if __name__ == "__main__":
    if frameworks.is_worker():
        work()
    else:
        unittest.main()
