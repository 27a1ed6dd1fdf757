#!/usr/bin/env python3
"""One task of TensorFlow's ParameterServerStrategy that trains a click model of ctr_ratio.py; TF_CONFIG says which.

Set up as peer_tensorflow.py: several steps in one tf.function for each schedule(), examples in the worker's memory.
Tables are variables of the server, their gradients IndexedSlices, and the optimizer is the legacy Adagrad, which
applies rows alone. The chief prints {"step": N} when --first and --steps updates are made, and then {"loss": L}.
"""

import argparse
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["GRPC_FAIL_FAST"] = "use_caller"

import tensorflow as tf  # noqa: E402
import tf_keras  # noqa: E402

import ctr_data  # noqa: E402

POLL_SECONDS = 0.02


class FactorizationMachine(tf_keras.Model):
    def __init__(self, sizes):
        super().__init__()
        self.begins = tf.constant(sizes.cumsum() - sizes)
        rows = int(sizes.sum())
        uniform = tf_keras.initializers.RandomUniform(-0.01, 0.01)
        self.factors = tf_keras.layers.Embedding(rows, ctr_data.DIM, embeddings_initializer=uniform)
        self.weights_ = tf_keras.layers.Embedding(rows, 1, embeddings_initializer="zeros")
        self.linear = tf_keras.layers.Dense(1)

    def call(self, inputs):
        numbers, ids = inputs
        ids = ids + self.begins
        factors = self.factors(ids)
        pairs = 0.5 * (tf.reduce_sum(tf.square(tf.reduce_sum(factors, 1)), 1) - tf.reduce_sum(tf.square(factors), [1, 2]))
        return tf.squeeze(self.linear(numbers), 1) + tf.reduce_sum(self.weights_(ids), [1, 2]) + pairs


class Dlrm(tf_keras.Model):
    def __init__(self, sizes):
        super().__init__()
        self.tables = [tf_keras.layers.Embedding(int(size), ctr_data.DIM) for size in sizes]
        self.bottom = tf_keras.Sequential([tf_keras.layers.Dense(units, "relu") for units in ctr_data.BOTTOM])
        self.top = tf_keras.Sequential([tf_keras.layers.Dense(units, "relu") for units in ctr_data.TOP]
                                       + [tf_keras.layers.Dense(1)])
        count = ctr_data.CATEGORIES + 1
        self.pairs = tf.constant([row * count + column for row in range(count) for column in range(row)])

    def call(self, inputs):
        numbers, ids = inputs
        bottom = self.bottom(numbers)
        rows = [table(ids[:, field]) for field, table in enumerate(self.tables)]
        together = tf.stack([bottom, *rows], 1)
        products = tf.reshape(tf.matmul(together, together, transpose_b=True), [-1, (ctr_data.CATEGORIES + 1) ** 2])
        return tf.squeeze(self.top(tf.concat([bottom, tf.gather(products, self.pairs, axis=1)], 1)), 1)


def train(options, strategy):
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    labels, numbers, ids, sizes = ctr_data.examples(options.data_dir, options.rows)
    with strategy.scope():
        model = (FactorizationMachine if options.network == "fm" else Dlrm)(sizes)
        optimizer = tf_keras.optimizers.legacy.Adagrad(ctr_data.RATE, initial_accumulator_value=0.1)
        losses = tf.Variable(tf.zeros([]), trainable=False)

    def make_dataset():
        def gather(indices):
            return (tf.gather(numbers, indices), tf.gather(ids, indices)), tf.gather(labels, indices)

        dataset = tf.data.Dataset.range(options.rows).shuffle(options.rows).repeat()
        dataset = dataset.batch(options.batch_size, drop_remainder=True)
        tuned = tf.data.Options()
        tuned.threading.private_threadpool_size = 1
        return dataset.map(gather).prefetch(4).with_options(tuned)

    iterator = iter(coordinator.create_per_worker_dataset(make_dataset))

    def step(batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(y, model(x, training=True)))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        losses.assign(0.95 * losses + 0.05 * loss)

    @tf.function
    def several_steps(batches):
        for _ in tf.range(options.steps_per_call):
            strategy.run(step, args=(next(batches),))

    with strategy.scope():
        optimizer.iterations  # made before it is asked for
    for _ in range(options.steps // options.steps_per_call):
        coordinator.schedule(several_steps, args=(iterator,))
    for mark in (options.first, options.steps):
        while (done := int(optimizer.iterations.numpy())) < mark:
            time.sleep(POLL_SECONDS)
        ctr_data.tell(step=done)
    coordinator.join()
    ctr_data.tell(loss=float(losses.numpy()) / (1 - 0.95 ** options.steps))  # the average began at 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ctr_data.add_arguments(parser)
    parser.add_argument("--steps_per_call", type=int, default=5)
    options = parser.parse_args()
    task = json.loads(os.environ["TF_CONFIG"])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
        tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=task["task"]["index"],
                             config=config, protocol="grpc").join()
    train(options, tf.distribute.ParameterServerStrategy(resolver))
    os._exit(0)  # the coordinator's threads would wait for the servers


if __name__ == "__main__":
    main()
