#!/usr/bin/env python3
"""Keras on the torch backend: model.fit() on servers equals model.fit() in one process."""

import os
import pathlib
import tempfile
import unittest
from unittest import mock

os.environ.setdefault("KERAS_BACKEND", "torch")

import frameworks  # noqa: E402

frameworks.need("torch", "keras")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

import cairn.keras  # noqa: E402

EXAMPLES = (40, 24)  # of each worker, of the 64 of a batch
EPOCHS = 2

torch.set_num_threads(1)


def make_model(*more, seed=1):
    keras.utils.clear_session()  # names without numbers, the same in each worker
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((10,)), keras.layers.Dense(20, "tanh"), *more, keras.layers.Dense(3)])


def flat(array):
    return array.reshape(-1, *array.shape[2:])


def fit(model, optimizer, inputs, labels, epochs=EPOCHS, **options):
    """Trains by the batches of the inputs, [batches, batch, ...]."""
    model.compile(optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model.fit(flat(inputs), flat(labels), batch_size=inputs.shape[1], epochs=epochs, shuffle=False, verbose=0, **options)


def weights(model):
    return {variable.path: variable.numpy() for variable in model.weights}


def work():
    """A worker of the test."""
    with cairn.init() as job:
        model = make_model(seed=1 + job.worker)
        data = [frameworks.part(array, EXAMPLES, job.worker) for array in frameworks.batches()]
        fit(model, cairn.keras.Optimizer(keras.optimizers.Adam(0.01), model, job), *data)
        frameworks.report(job.worker, weights(model))


class WorkersTest(unittest.TestCase):

    def test_two_workers_equal_one_process_with_the_whole_batches(self):
        model = make_model()
        fit(model, keras.optimizers.Adam(0.01), *frameworks.batches())
        frameworks.check(self, frameworks.train(__file__), weights(model))


class FitTest(unittest.TestCase):
    """One worker against Keras alone."""

    def check(self, make_optimizer, make=make_model, before=None, callbacks=list, **options):
        reference, trained = make(), None
        if before:
            before(reference)
        fit(reference, make_optimizer(), *frameworks.batches(), callbacks=callbacks())
        with cairn.local() as job:
            trained = make()
            if before:
                before(trained)
            optimizer = cairn.keras.Optimizer(make_optimizer(), trained, job, **options)
            fit(trained, optimizer, *frameworks.batches(), callbacks=callbacks())
            self.assertEqual(int(optimizer.iterations), job.version)
        frameworks.compare(self, weights(trained), weights(reference), atol=1e-5)
        return trained

    def test_optimizers(self):
        for make in (lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, clipnorm=0.5),
                     lambda: keras.optimizers.RMSprop(0.01), lambda: keras.optimizers.AdamW(0.01, global_clipnorm=0.1)):
            with self.subTest(make().name):
                self.check(make)

    def test_a_schedule_runs_on_the_servers(self):
        self.check(lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)))

    def test_callbacks_set_the_learning_rate(self):
        self.check(lambda: keras.optimizers.SGD(0.1),
                   callbacks=lambda: [keras.callbacks.LearningRateScheduler(lambda epoch: 0.2 / (1 + epoch))])

    def test_variables_without_weight_decay(self):
        def make():
            optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.5)
            optimizer.exclude_from_weight_decay(var_names=["bias"])
            return optimizer
        self.check(make)

    def test_gradients_of_several_batches_add_up(self):
        model = make_model()
        fit(model, keras.optimizers.Adam(0.01, gradient_accumulation_steps=3), *frameworks.batches())
        with cairn.local() as job:
            trained = make_model()
            accumulated = keras.optimizers.Adam(0.01, gradient_accumulation_steps=3)
            fit(trained, cairn.keras.Optimizer(accumulated, trained, job), *frameworks.batches())
            self.assertEqual((job.version, job.stats()["examples"]), (4, 4 * 3 * 64))
        frameworks.compare(self, weights(trained), weights(model))

    def test_averages_of_batch_normalization(self):
        model = self.check(lambda: keras.optimizers.SGD(0.05), lambda: make_model(keras.layers.BatchNormalization()))
        self.assertGreater(np.abs(weights(model)["sequential/batch_normalization/moving_mean"]).max(), 0.001)

    def test_frozen_layers_stay(self):
        def freeze(model):
            model.layers[0].trainable = False
        trained = self.check(lambda: keras.optimizers.Adam(0.01), before=freeze)
        np.testing.assert_array_equal(weights(trained)["sequential/dense/kernel"], weights(make_model())["sequential/dense/kernel"])

    def test_a_model_that_fit_builds(self):
        def make():
            keras.utils.clear_session()
            keras.utils.set_random_seed(1)
            return keras.Sequential([keras.layers.Dense(20, "tanh"), keras.layers.Dense(3)])
        self.check(lambda: keras.optimizers.Adam(0.01), make)

    def test_the_job_ends_the_fit(self):
        with cairn.local() as job:
            model = make_model()
            history = fit(model, cairn.keras.Optimizer("adam", model, job, updates=8), *frameworks.batches(), epochs=5)
            self.assertEqual((job.version, len(history.history["loss"])), (8, 2))

    def test_a_saved_model_has_the_keras_optimizer(self):
        with cairn.local() as job, tempfile.TemporaryDirectory() as folder:
            model = make_model()
            fit(model, cairn.keras.Optimizer(keras.optimizers.Adam(0.02), model, job), *frameworks.batches())
            path = pathlib.Path(folder, "model.keras")
            model.save(path)
            read = keras.models.load_model(path)
        self.assertIsInstance(read.optimizer, keras.optimizers.Adam)
        self.assertAlmostEqual(float(read.optimizer.learning_rate), 0.02)
        for values, expected in zip(read.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(values, expected)

    def test_moving_averages_stay_on_the_servers_with_a_warning(self):
        with cairn.local() as job:
            model = make_model()
            with self.assertWarnsRegex(UserWarning, "use_ema.*the averages stay on the servers"):
                fit(model, cairn.keras.Optimizer(keras.optimizers.SGD(0.1, use_ema=True), model, job), *frameworks.batches())

    def test_impossible_settings_are_named(self):
        with cairn.local() as job:
            for optimizer, make, words in (
                    (keras.optimizers.SGD(lambda: 0.1), make_model, "learning_rate is a function"),
                    (keras.optimizers.SGD(0.1, loss_scale_factor=8.0), make_model, "loss_scale_factor"),
                    (keras.optimizers.Adafactor(), make_model, "Adafactor"),
                    (keras.optimizers.SGD(), lambda: make_model(keras.layers.Dense(3, kernel_constraint="non_neg",
                                                                                       name="bounded")),
                     "'sequential/bounded/kernel' has a constraint")):
                with self.subTest(words), self.assertRaisesRegex(cairn.InvalidArgument, words):
                    cairn.keras.Optimizer(optimizer, make(), job)
            model = make_model()
            model.dtype_policy = keras.DTypePolicy("mixed_float16")  # as of a model that is made under this policy
            with self.assertRaisesRegex(cairn.InvalidArgument, "mixed_float16 scales the loss"):
                cairn.keras.Optimizer("sgd", model, job)
            with (mock.patch.object(keras.backend, "backend", return_value="jax"),
                  self.assertRaisesRegex(cairn.InvalidArgument, "backend 'jax'.*KERAS_BACKEND=torch")):
                cairn.keras.Optimizer("sgd", make_model(), job)

    def test_gradients_leave_before_backward_ends(self):
        with cairn.local() as job:
            model = make_model()
            optimizer = cairn.keras.Optimizer("sgd", model, job)
            sent, step = [], optimizer._worker._distributed.step

            def counting_step(**options):
                sent.append(sum(parameter.sent is not None for parameter in optimizer._worker._distributed._trained))
                step(**options)
            with mock.patch.object(optimizer._worker._distributed, "step", counting_step):
                fit(model, optimizer, *frameworks.batches(count=3), epochs=1)
            self.assertEqual(sent, [0, 4, 4])


if __name__ == "__main__":
    if frameworks.is_worker():
        work()
    else:
        unittest.main(warnings="ignore")  # Keras uses what NumPy deprecates
