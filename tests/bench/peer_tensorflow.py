#!/usr/bin/env python3
"""One task of a cluster of TensorFlow's ParameterServerStrategy, which peer_clusters.py starts; TF_CONFIG says which.

Workers and servers are tf.distribute.Server; the chief trains with a ClusterCoordinator and says {"step": N} on stdout
when --first and --steps updates are made, and {"accuracy": A, "loss": L} of the test set at the end. As TensorFlow's
guide has it: several steps in one tf.function for each schedule(), a data set for each worker, static shapes, prefetch.
The images lie in the worker's memory and are gathered a batch at a time. The optimizer is the legacy Adam: one kernel
for each variable, run on its server.
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

import peer_data  # noqa: E402

POLL_SECONDS = 0.02


def make_model(path):
    model = tf_keras.Sequential()
    for kind, config in peer_data.layers(path):
        if kind == "InputLayer":
            model.add(tf_keras.layers.InputLayer(input_shape=tuple(config["batch_shape"][1:])))
        else:
            model.add(getattr(tf_keras.layers, kind)(**config))
    return model


def make_dataset(options, images, labels):
    """An infinite dataset of batches; each worker has a different order."""
    def gather(indices):
        return tf.cast(tf.gather(images, indices), tf.float32)[..., None] / 255, tf.cast(tf.gather(labels, indices), tf.int32)

    count = len(labels)
    dataset = tf.data.Dataset.range(count).shuffle(count).repeat().batch(options.batch_size, drop_remainder=True)
    tuned = tf.data.Options()
    tuned.threading.private_threadpool_size = 1
    return dataset.map(gather).prefetch(4).with_options(tuned)


def train(options, strategy):
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    tf.random.set_seed(options.seed)
    with strategy.scope():
        model = make_model(options.model)
        optimizer_class = tf_keras.optimizers.legacy.Adam if options.adam == "legacy" else tf_keras.optimizers.Adam
        optimizer = optimizer_class(peer_data.learning_rate(options.model))
    images, labels = peer_data.mnist(options.data_dir, "train")
    iterator = iter(coordinator.create_per_worker_dataset(lambda: make_dataset(options, images, labels)))

    def step(batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True)))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

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
        peer_data.tell(step=done)
    coordinator.join()
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
    task = json.loads(os.environ["TF_CONFIG"])
    workers = len(task["cluster"]["worker"])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(workers + 1)  # with fewer they may deadlock, says the guide
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=workers + 1)
        tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, config=config,
                             protocol="grpc").join()
    train(options, tf.distribute.ParameterServerStrategy(resolver))
    os._exit(0)  # the coordinator's threads would wait for the servers


if __name__ == "__main__":
    main()
