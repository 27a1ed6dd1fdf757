#!/usr/bin/env python3
"""One task of TensorFlow's ParameterServerStrategy that trains a click model of ctr_ratio.py: see tensorflow_task.py.

Tables are variables of the server, their gradients IndexedSlices, and the optimizer is the legacy Adagrad, which
applies rows alone. The chief prints {"step": N} when --first and --steps updates are made, and then {"loss": L}.
"""

import argparse

import tensorflow_task
import tensorflow as tf
import tf_keras

import ctr_data


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
    labels, numbers, ids, sizes = ctr_data.examples(options.data_dir, options.rows)
    with strategy.scope():
        model = (FactorizationMachine if options.network == "fm" else Dlrm)(sizes)
        optimizer = tf_keras.optimizers.legacy.Adagrad(ctr_data.RATE, initial_accumulator_value=0.1)
        losses = tf.Variable(tf.zeros([]), trainable=False)

    def gather(indices):
        return (tf.gather(numbers, indices), tf.gather(ids, indices)), tf.gather(labels, indices)

    def step(batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(y, model(x, training=True)))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        losses.assign(0.95 * losses + 0.05 * loss)

    tensorflow_task.make_steps(options, strategy, optimizer, step,
                               lambda: tensorflow_task.batches(options.rows, options.batch_size, gather), ctr_data.tell)
    ctr_data.tell(loss=float(losses.numpy()) / (1 - 0.95 ** options.steps))  # the average began at 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ctr_data.add_arguments(parser)
    parser.add_argument("--steps_per_call", type=int, default=5)
    options = parser.parse_args()
    tensorflow_task.run(lambda strategy: train(options, strategy))


if __name__ == "__main__":
    main()
