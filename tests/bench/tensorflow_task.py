"""One task of a cluster of TensorFlow's ParameterServerStrategy; TF_CONFIG says which. Import it before TensorFlow.

As TensorFlow's guide has it: several steps in one tf.function for each schedule(), a data set for each worker, static
shapes, prefetch. Examples are in the worker's memory and are gathered a batch at a time.
"""

import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["GRPC_FAIL_FAST"] = "use_caller"

import tensorflow as tf  # noqa: E402

POLL_SECONDS = 0.02


def batches(count, batch_size, gather):
    """An infinite dataset of gather(indices) for batches of indices below `count`, in another order for each worker."""
    dataset = tf.data.Dataset.range(count).shuffle(count).repeat().batch(batch_size, drop_remainder=True)
    tuned = tf.data.Options()
    tuned.threading.private_threadpool_size = 1
    return dataset.map(gather).prefetch(4).with_options(tuned)


def make_steps(options, strategy, optimizer, step, make_dataset, tell):
    """Schedules options.steps calls of step(batch), and waits for them. Calls tell(step=N) when options.first and
    options.steps updates are made. The program that starts the cluster limits the time."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    iterator = iter(coordinator.create_per_worker_dataset(make_dataset))

    @tf.function
    def several_steps(batches_of_worker):
        for _ in tf.range(options.steps_per_call):
            strategy.run(step, args=(next(batches_of_worker),))

    with strategy.scope():
        optimizer.iterations  # made before it is asked for
    for _ in range(options.steps // options.steps_per_call):
        coordinator.schedule(several_steps, args=(iterator,))
    for mark in (options.first, options.steps):
        while (done := int(optimizer.iterations.numpy())) < mark:
            time.sleep(POLL_SECONDS)
        tell(step=done)
    coordinator.join()


def run(train):
    """Runs this task until its end: train(strategy) if it is the chief, otherwise a tf.distribute.Server."""
    workers = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
    threads = len(workers) + 1  # with fewer they may deadlock, says the guide
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=threads)
        tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, config=config,
                             protocol="grpc").join()
    train(tf.distribute.ParameterServerStrategy(resolver))
    os._exit(0)  # the coordinator's threads would wait for the servers
