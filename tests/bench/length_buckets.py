#!/usr/bin/env python3
"""How many more examples a second a job trains with batches of like lengths than with examples padded to the longest.

    tests/bench/length_buckets.py [--bin build/release/bin] [--pairs 3] [--threads 1] [--boundaries 16,32,64,128]

The classifier has an embedding of 64 numbers, an LSTM of 64 units or two blocks of attention, and a mask of padding.
Lengths are drawn from a logarithmic normal distribution with a median of 20, cut at 256. Both jobs run in turn, with
one worker in all-reduce mode, for one epoch of 2000 examples in batches of 32, and the figure to quote is the median of
the ratios.
"""

import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import tempfile
import zipfile

EXAMPLES, LENGTH, TOKENS, WIDTH, BATCH = 2000, 256, 1000, 64, 32


def npy(descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def write_data(path):
    draw = random.Random(1)
    ids, labels, steps = [], [], 0
    for _ in range(EXAMPLES):
        length = max(1, min(LENGTH, round(draw.lognormvariate(3, 0.8))))
        steps += length
        text = [draw.randrange(1, TOKENS) for _ in range(length)]
        ids += text + [0] * (LENGTH - length)
        labels.append(text[0] % 2)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x_train.npy", npy("<u2", (EXAMPLES, LENGTH), struct.pack(f"<{len(ids)}H", *ids)))
        archive.writestr("y_train.npy", npy("|u1", (EXAMPLES,), bytes(labels)))
    return steps / (EXAMPLES * LENGTH)


def model_of(kind):
    layers = []

    def add(class_name, inputs, arguments=None, **config):
        name = f"{class_name.lower()}_{len(layers)}"
        calls = [[[value, 0, 0, arguments or {}] for value in inputs]] if inputs else []
        layers.append({"class_name": class_name, "name": name, "config": {"name": name, **config},
                       "inbound_nodes": calls})
        return name

    ids = add("InputLayer", [], batch_shape=[None, None], dtype="int32")
    x = add("Embedding", [ids], input_dim=TOKENS, output_dim=WIDTH, mask_zero=True)
    if kind == "lstm":
        x = add("LSTM", [x], units=WIDTH)
    else:
        for _ in range(2):
            attended = add("MultiHeadAttention", [x], {"value": [x, 0, 0]}, num_heads=4, key_dim=WIDTH // 4)
            x = add("LayerNormalization", [add("Add", [x, attended])])
            hidden = add("Dense", [add("Dense", [x], units=4 * WIDTH, activation="relu")], units=WIDTH)
            x = add("LayerNormalization", [add("Add", [x, hidden])])
        x = add("GlobalAveragePooling1D", [x])
    out = add("Dense", [x], units=1, activation="sigmoid")
    return {
        "class_name": "Functional",
        "config": {"name": kind, "layers": layers, "input_layers": [[ids, 0, 0]], "output_layers": [[out, 0, 0]]},
        "compile_config": {"optimizer": "adam", "loss": "binary_crossentropy"}}


def run(options, directory, kind, boundaries):
    command = [os.path.join(options.bin, "cairn"), "train", f"{kind}.json", "--mode", "allreduce", "--workers", "1",
               "--data_dir", "data.npz", "--batch_size", str(BATCH), "--epochs", "1", "--threads", str(options.threads),
               "--summary", "summary.json"]
    command += ["--bucket_boundaries", boundaries] if boundaries else []
    done = subprocess.run(["/usr/bin/time", "-f", "%M", *command], cwd=directory, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.returncode}\n{done.stderr}")
    with open(os.path.join(directory, "summary.json")) as file:
        summary = json.load(file)
    return summary["examples_per_second"], int(done.stderr.split()[-1]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--boundaries", default="16,32,64,128")
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    with tempfile.TemporaryDirectory() as directory:
        full = write_data(os.path.join(directory, "data.npz"))
        print(f"{full:.3f} of the padded steps are no padding")
        for kind in ("lstm", "attention"):
            with open(os.path.join(directory, f"{kind}.json"), "w") as file:
                json.dump(model_of(kind), file)
            ratios = []
            for _ in range(options.pairs):
                padded, padded_mib = run(options, directory, kind, "")
                buckets, buckets_mib = run(options, directory, kind, options.boundaries)
                ratios.append(buckets / padded)
                print(f"{kind}: padded {padded:.0f} examples/s, {padded_mib:.0f} MiB; "
                      f"buckets {buckets:.0f} examples/s, {buckets_mib:.0f} MiB; ratio {ratios[-1]:.2f}")
            print(f"{kind}: ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
