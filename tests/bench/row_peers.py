#!/usr/bin/env python3
"""Lookups and steps of an embedding table against TFRA, FBGEMM, PyTorch and TensorFlow, on one thread.

    python tests/bench/row_peers.py [--bin build/release/bin] [--rounds 3] [--rows 8388608]

Needs Python 3.11 on x86-64 and its peers in one virtual environment:

    pip install torch==2.14.1 fbgemm-gpu-cpu==1.9.0 tensorflow-cpu==2.16.2 tf-keras==2.16.0 "numpy<2" "setuptools<81"
    pip install --no-deps tensorflow-recommenders-addons==0.8.1

Each round runs every program in turn: row_store_bench (2,097,152 rows, for the lookup), row_step_bench and the peers.
A step is a forward pass that sums one row a bag, the backward pass, and the update, on 53,248 ids of a table of --rows
rows of 16 float32, uniform or Zipf. TensorFlow and PyTorch's Adagrad stand against Adagrad here, PyTorch's SparseAdam
against Adam, FBGEMM's exact row-wise Adagrad against RowWiseAdagrad. In ns of processor time for an id; of each peer
the best of six steps, of ours the median. Prints the ratios, median and range over the rounds. Ends with status 1 when
a median is below its bar.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DIM, BATCH, STEPS = 16, 2048 * 26, 6
LOOKUP_ROWS = 2 << 20
# Each comparison: its name, the peer, the measurement of the peer, ours, and the least ratio.
COMPARISONS = [("lookup, 2 M rows", "tfra", "lookup", "lookup", 4)]
for _ids in ("uniform", "Zipf"):
    COMPARISONS += [(f"RowWiseAdagrad, {_ids}", "fbgemm", f"step {_ids}", f"RowWiseAdagrad, {_ids}", 3),
                    (f"Adagrad, {_ids}", "torch", f"Adagrad {_ids}", f"Adagrad, {_ids}", 4),
                    (f"Adagrad, {_ids}", "tensorflow", f"Adagrad {_ids}", f"Adagrad, {_ids}", 8),
                    (f"Adam, {_ids}", "torch", f"SparseAdam {_ids}", f"Adam, {_ids}", 4)]


def ids_of(rows, zipf, seed):
    import numpy
    random = numpy.random.default_rng(seed)
    if not zipf:
        return random.integers(0, rows, BATCH)
    ranks = numpy.minimum((float(rows) ** random.random(BATCH)).astype("int64"), rows - 1)
    return ranks * 2654435761 % rows


def nanoseconds(step, batches):
    """The least processor time of a step for an id, after one step that does not count."""
    step(batches[0])
    best = float("inf")
    for batch in batches[1:]:
        start = time.process_time()
        step(batch)
        best = min(best, time.process_time() - start)
    return best / BATCH * 1e9


def batches_of(rows, ids, convert):
    return [convert(ids_of(rows, ids == "Zipf", seed)) for seed in range(STEPS + 1)]


def run_torch(rows):
    import torch
    torch.set_num_threads(1)
    table = torch.nn.EmbeddingBag(rows, DIM, mode="sum", sparse=True)
    offsets = torch.arange(BATCH)
    results = {}
    for name, make in (("Adagrad", lambda: torch.optim.Adagrad(table.parameters(), lr=0.01)),
                       ("SparseAdam", lambda: torch.optim.SparseAdam(list(table.parameters()), lr=0.01))):
        optimizer = make()

        def step(batch, optimizer=optimizer):
            optimizer.zero_grad(set_to_none=True)
            output = table(batch, offsets)
            output.backward(torch.ones_like(output))
            optimizer.step()

        for ids in ("uniform", "Zipf"):
            results[f"{name} {ids}"] = nanoseconds(step, batches_of(rows, ids, torch.from_numpy))
    return results


def run_fbgemm(rows):
    import torch
    torch.set_num_threads(1)
    import fbgemm_gpu  # noqa: F401, registers the operators
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (ComputeDevice,
                                                                        SplitTableBatchedEmbeddingBagsCodegen)
    table = SplitTableBatchedEmbeddingBagsCodegen([(rows, DIM, EmbeddingLocation.HOST, ComputeDevice.CPU)],
                                                  optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD, learning_rate=0.01,
                                                  pooling_mode=PoolingMode.SUM)
    offsets = torch.arange(BATCH + 1)

    def step(batch):
        output = table(batch, offsets)
        output.backward(torch.ones_like(output))

    return {f"step {ids}": nanoseconds(step, batches_of(rows, ids, torch.from_numpy)) for ids in ("uniform", "Zipf")}


def tensorflow_of_one_thread():
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_USE_LEGACY_KERAS="1", CUDA_VISIBLE_DEVICES="")
    import tensorflow
    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    return tensorflow


def run_tensorflow(rows):
    tf = tensorflow_of_one_thread()
    table = tf.Variable(tf.zeros([rows, DIM]))
    accumulator = tf.Variable(tf.fill([rows, DIM], 0.1))

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, batch))
        gradient = tape.gradient(loss, table)
        unique, positions = tf.unique(gradient.indices)
        merged = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(unique))
        tf.raw_ops.ResourceSparseApplyAdagradV2(var=table.handle, accum=accumulator.handle, lr=0.01, epsilon=1e-7,
                                                grad=merged, indices=unique)
        return loss

    return {f"Adagrad {ids}": nanoseconds(lambda batch: step(batch).numpy(), batches_of(rows, ids, tf.constant))
            for ids in ("uniform", "Zipf")}


def run_tfra(_rows):
    tf = tensorflow_of_one_thread()
    import tensorflow_recommenders_addons.dynamic_embedding as dynamic
    table = dynamic.get_variable("table", key_dtype=tf.int64, value_dtype=tf.float32, dim=DIM, initializer=0.1,
                                 init_size=2 * LOOKUP_ROWS, devices=["/CPU:0"])
    part = 1 << 18
    for begin in range(0, LOOKUP_ROWS, part):
        table.upsert(tf.range(begin, begin + part, dtype=tf.int64), tf.ones([part, DIM]))
    return {"lookup": nanoseconds(table.lookup, batches_of(LOOKUP_ROWS, "uniform", tf.constant))}


PEERS = {"tfra": run_tfra, "fbgemm": run_fbgemm, "torch": run_torch, "tensorflow": run_tensorflow}


def run_ours(binaries, rows):
    store = subprocess.run([f"{binaries}/row_store_bench", "--rows", str(LOOKUP_ROWS), "--lookup_only"], check=True,
                           stdout=subprocess.PIPE, text=True).stdout
    step = subprocess.run([f"{binaries}/row_step_bench", "--rows", str(rows), "--steps_only"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    results = {name: float(ns) for name, ns in re.findall(r"^(.*): update .*, step ([0-9.]+) ns an id", step, re.M)}
    results["lookup"] = float(re.search(r"lookup: ([0-9.]+) ns", store)[1])
    return results


def run_peer(peer, rows):
    done = subprocess.run([sys.executable, __file__, "--peer", peer, "--rows", str(rows)], check=True,
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8 << 20)
    parser.add_argument("--peer", choices=sorted(PEERS), help="run one peer alone and print its times as JSON")
    args = parser.parse_args()
    if args.peer:
        print(json.dumps(PEERS[args.peer](args.rows)))
        return 0
    rounds = []
    for _ in range(args.rounds):
        ours = run_ours(args.bin, args.rows)
        rounds.append((ours, {peer: run_peer(peer, args.rows) for peer in PEERS}))
    missed = False
    print("| what | peer | ns an id, ours | peer | ratio (range) | bar |\n|---|---|---|---|---|---|")
    for what, peer, theirs, mine, bar in COMPARISONS:
        ratios = [peers[peer][theirs] / ours[mine] for ours, peers in rounds]
        ratio = statistics.median(ratios)
        missed |= ratio < bar
        print(f"| {what} | {peer} | {statistics.median(ours[mine] for ours, _ in rounds):.0f} | "
              f"{statistics.median(peers[peer][theirs] for _, peers in rounds):.0f} | "
              f"{ratio:.1f} ({min(ratios):.1f} to {max(ratios):.1f}) | {bar} |")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
