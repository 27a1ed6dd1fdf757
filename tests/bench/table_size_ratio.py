#!/usr/bin/env python3
"""Time of a step with a large embedding table, against a small one: the same model and batches of the same size.

    tests/bench/table_size_ratio.py [--bin build/release/bin] [--rows 500000,50000000] [--rounds 3]

Needs NumPy, and for 50 million rows 6 GB of memory and 1 GB of disk. The examples first name all ids in turn, 26 an
example, so that every row exists, and then 26 ids of Zipf's law: rank r has a probability of about 1 / r, and ranks are
dispersed over the ids. One server, one worker, --dynamic_tables, Adagrad, rows of 8, 2048 examples a step. Time is
taken as in peer_clusters.py, between two steps on ids of Zipf's law. A batch of the large table has more distinct ids,
which is part of the ratio; their number is printed.
"""

import argparse
import json
import os
import signal
import sys
import tempfile

import numpy

from peer_clusters import ROOT, Run, middle

BAG, BATCH, DIM = 26, 2048, 8
STEPS = 300  # on ids of Zipf's law


def model(rows):
    def layer(kind, name, source, **config):
        return {"class_name": kind, "name": name, "config": {"name": name, **config},
                "inbound_nodes": [[[source, 0, 0, {}]]] if source else []}

    return {"class_name": "Functional",
            "config": {"name": "bag", "input_layers": [["ids", 0, 0]], "output_layers": [["score", 0, 0]], "layers": [
                layer("InputLayer", "ids", None, batch_shape=[None, BAG], dtype="int64"),
                layer("Embedding", "table", "ids", input_dim=rows, output_dim=DIM),
                layer("GlobalAveragePooling1D", "mean", "table"),
                layer("Dense", "score", "mean", units=1)]},
            "compile_config": {"optimizer": {"class_name": "Adagrad", "config": {"learning_rate": 0.1}}, "loss": "mse"}}


def write_data(directory, rows):
    """Returns the steps that fill the table, and the mean number of distinct ids of a later batch."""
    filling = -(-rows // (BAG * BATCH))
    random = numpy.random.default_rng(0)
    ids = numpy.empty(((filling + STEPS) * BATCH, BAG), "int64")
    first = filling * BATCH
    ids[:first] = numpy.arange(first * BAG).reshape(first, BAG) % rows
    ranks = numpy.exp(random.random((STEPS * BATCH, BAG)) * numpy.log(rows + 1)).astype("int64") - 1
    ids[first:] = ranks * 2_654_435_761 % rows  # a prime
    numpy.save(os.path.join(directory, "x_train.npy"), ids)
    numpy.save(os.path.join(directory, "y_train.npy"), random.random(len(ids)).astype("float32"))
    with open(os.path.join(directory, "model.json"), "w", encoding="utf-8") as file:
        json.dump(model(rows), file)
    batches = ids[first:].reshape(STEPS, -1)
    return filling, sum(len(numpy.unique(batch)) for batch in batches[::30]) / len(batches[::30])


def measure(options, directory, filling):
    """Milliseconds of a step, and those of processor time."""
    every = 50
    first = -(-filling // every) * every + every
    last = (filling + STEPS) // every * every
    command = [os.path.join(options.bin, "cairn"), "train", os.path.join(directory, "model.json"), "--data_dir", directory,
               "--sync_replicas", "--ps=1", "--workers=1", f"--batch_size={BATCH}", "--epochs=1", "--threads=1", "--noshuffle",
               "--dynamic_tables=all", f"--display_every={every}", "--log_format=json", "--max_restarts=0"]
    with Run() as run:
        run.start(command)
        for when, fields in run.told():
            if fields["event"] == "step" and fields["step"] in (first, last):
                run.mark(when, fields["step"])
        outcome = run.outcome(BATCH, 0, 0)
    return BATCH / outcome.examples_per_second * 1000, outcome.processor * BATCH / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("CAIRN_BIN_DIR", os.path.join(ROOT, "build/release/bin")))
    parser.add_argument("--rows", default="500000,50000000", help="of the small table and of the large one")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and the processes go
    sizes = [int(rows) for rows in options.rows.split(",")]
    with tempfile.TemporaryDirectory() as directory:
        directories = [os.path.join(directory, str(rows)) for rows in sizes]
        filling = []
        for rows, path in zip(sizes, directories):
            os.mkdir(path)
            steps, distinct = write_data(path, rows)
            filling.append(steps)
            print(f"{rows} rows: {distinct:.0f} distinct of {BAG * BATCH} ids in a batch", flush=True)
        ratios = []
        for index in range(options.rounds):
            small, large = (measure(options, path, steps) for path, steps in zip(directories, filling))
            ratios.append([b / a for a, b in zip(small, large)])
            print(f"round {index + 1}: {small[0]:.2f} and {large[0]:.2f} ms a step, processor time {small[1]:.2f} and "
                  f"{large[1]:.2f} ms, load {os.getloadavg()[0]:.1f}", flush=True)
    of_time, of_processor = zip(*ratios)
    print(f"{sizes[1]} / {sizes[0]} rows: time of a step {middle(of_time)}, processor time {middle(of_processor)}")


if __name__ == "__main__":
    main()
