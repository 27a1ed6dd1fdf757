#!/usr/bin/env python3
"""The bytes on the wire for rows of embedding tables, against the least that a step needs.

    tests/bench/row_bytes.py [--bin build/release/bin] [--dim 16] [--steps 200] [--ps 1]

A row that a batch looks up needs its id (8 bytes) and `dim` elements each way. The limit is 1.05 times that, and 64
bytes for each request; with bfloat16 it is 0.55 of that. `payload` is what the worker counts (row_push_bytes,
row_pull_bytes of the summary), ids and elements. `wire` is what the kernel counts on the loopback of a network
namespace of its own, with the headers of frames, TCP and IP and all acknowledgements, less the payload of the
variables; it needs root. Exits with 1 if the payload is above its limit.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

ROWS, EXAMPLES, BATCH, FIELDS = 20000, 20000, 1000, 8
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2}


def write_inputs(directory, dim):
    """A table that FIELDS ids of each example look up, Zipf-like, and data for it."""
    def layer(name, inputs, class_name, **config):
        return {"class_name": class_name, "name": name, "config": {"name": name, **config},
                "inbound_nodes": [[[i, 0, 0, {}] for i in inputs]] if inputs else []}
    layers = [layer("ids", [], "InputLayer", batch_shape=[None, FIELDS], dtype="int64"),
              layer("rows", ["ids"], "Embedding", input_dim=ROWS, output_dim=dim),
              layer("flat", ["rows"], "Flatten"), layer("score", ["flat"], "Dense", units=1)]
    model = {"class_name": "Functional",
             "config": {"name": "rows", "layers": layers, "input_layers": [["ids", 0, 0]],
                        "output_layers": [["score", 0, 0]]},
             "compile_config": {"optimizer": "sgd", "loss": "mean_squared_error"}}
    with open(os.path.join(directory, "model.json"), "w", encoding="utf-8") as file:
        json.dump(model, file)
    draw = random.Random(1)
    with open(os.path.join(directory, "data.csv"), "w", encoding="utf-8") as file:
        print(",".join([*(f"id{i}" for i in range(FIELDS)), "label"]), file=file)
        for _ in range(EXAMPLES):
            print(",".join(str(int(ROWS * draw.random() ** 3)) for _ in range(FIELDS)), draw.random(), sep=",", file=file)


def run(options, directory, dtype):
    """The summary of a job, and the bytes on the loopback; None without a namespace."""
    train = [os.path.abspath(os.path.join(options.bin, "cairn")), "train", "model.json", "--data_dir=data.csv",
             "--label_column=label", f"--ps={options.ps}", "--workers=1", "--sync_replicas", "--threads=1",
             f"--batch_size={BATCH}", f"--train_steps={options.steps}", "--embedding_tables=all", f"--wire_dtype={dtype}",
             "--transport=tcp", "--novalidation", "--summary=summary.json"]
    count = "ip link set lo up && \"$@\" > /dev/null && cat /proc/net/dev"
    alone = ["unshare", "--net", "sh", "-c", count, "sh"] if os.geteuid() == 0 else []
    ended = subprocess.run([*alone, *train], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=directory, timeout=600, check=False,
                           text=True)
    if ended.returncode != 0:
        sys.exit(f"cairn train ended with {ended.returncode}: {ended.stderr}")
    with open(os.path.join(directory, "summary.json"), encoding="utf-8") as file:
        summary = json.load(file)
    sent = [int(line.split()[1]) for line in ended.stdout.splitlines() if line.strip().startswith("lo:")]
    return summary, sent[0] if alone and sent else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ps", type=int, default=1)
    options = parser.parse_args()
    above = False
    with tempfile.TemporaryDirectory() as directory:
        write_inputs(directory, options.dim)
        for dtype in ELEMENT_BYTES:
            summary, sent = run(options, directory, dtype)
            rows = summary["distinct_lookups"]  # the rows that the batches need, whatever was sent
            needed = rows * (8 + 8 * options.dim)
            share = 1 if dtype == "float32" else 0.55
            limit = share * (1.05 * needed + 64 * options.steps * options.ps)
            payload = summary["row_push_bytes"] + summary["row_pull_bytes"]
            above |= payload > limit
            line = (f"{dtype:9} dim {options.dim}, {rows / options.steps:.0f} distinct of {BATCH * FIELDS} ids a step: "
                    f"payload {payload / needed:.3f} of rows x (8 + 8 dim), limit {limit / needed:.3f}")
            if sent is not None:
                variables = summary["push_bytes"] + summary["pull_bytes"] - payload
                line += f", wire {(sent - variables) / needed:.3f}"
            print(line, flush=True)
    sys.exit(1 if above else 0)


if __name__ == "__main__":
    main()
