#!/usr/bin/env python3
"""One task of a cluster of TensorFlow's ParameterServerStrategy, which peer_clusters.py starts: see tensorflow_task.py.

The chief says {"step": N} on stdout when --first and --steps updates are made, and {"accuracy": A, "loss": L} of the
test set at the end. The optimizer is the legacy Adam: one kernel for each variable, run on its server.
"""

import argparse

import tensorflow_task
import tensorflow as tf
import tf_keras

import peer_data


def make_model(path):
    model = tf_keras.Sequential()
    for kind, config in peer_data.layers(path):
        if kind == "InputLayer":
            model.add(tf_keras.layers.InputLayer(input_shape=tuple(config["batch_shape"][1:])))
        else:
            model.add(getattr(tf_keras.layers, kind)(**config))
    return model


def train(options, strategy):
    tf.random.set_seed(options.seed)
    with strategy.scope():
        model = make_model(options.model)
        optimizer_class = tf_keras.optimizers.legacy.Adam if options.adam == "legacy" else tf_keras.optimizers.Adam
        optimizer = optimizer_class(peer_data.learning_rate(options.model))
    images, labels = peer_data.mnist(options.data_dir, "train")

    def gather(indices):
        return tf.cast(tf.gather(images, indices), tf.float32)[..., None] / 255, tf.cast(tf.gather(labels, indices), tf.int32)

    def step(batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True)))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    tensorflow_task.make_steps(options, strategy, optimizer, step,
                               lambda: tensorflow_task.batches(len(labels), options.batch_size, gather), peer_data.tell)
    evaluate(options, model)


def evaluate(options, model):
    images, labels = peer_data.mnist(options.data_dir, "t10k")
    logits = tf.concat([model(images[i:i + 500, ..., None].astype("float32") / 255) for i in range(0, len(labels), 500)], 0)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels.astype("int32"), logits))
    peer_data.tell(accuracy=float((tf.argmax(logits, 1).numpy() == labels).mean()), loss=float(loss))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peer_data.add_arguments(parser)
    parser.add_argument("--steps_per_call", type=int, default=10, help="of a worker, for each schedule()")
    parser.add_argument("--adam", choices=["legacy", "new"], default="legacy")
    options = parser.parse_args()
    tensorflow_task.run(lambda strategy: train(options, strategy))


if __name__ == "__main__":
    main()
