#!/usr/bin/env python3
"""Whether the seed CNN learns here as it does in Keras: both train it on MNIST with several seeds.

    tests/bench/keras_curves.py --data_dir DIR [--bin build/release/bin] [--seeds 5] [--epochs 2] [--batch_size 64]

Needs Keras 3 with a backend (`pip install tensorflow-cpu`). Both read the same exported model with what it was compiled
with, the same images divided by 255, and shuffle each epoch in their own way, so curves agree to within their spread:
for each epoch and metric the mean and standard deviation over the seeds of both, and the difference of the means in
standard errors. Ends with status 1 when one is beyond 3.
"""

import argparse
import gzip
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "tests/support/data/keras316_mnist_cnn.json")
METRICS = ("accuracy", "loss", "val_accuracy", "val_loss")
MOST_STANDARD_ERRORS = 3


def cairn_curves(options, seed):
    """[metric][epoch], of a synchronous cluster of one server and one worker."""
    run = subprocess.run(
        [os.path.join(options.bin, "cairn"), "train", MODEL, "--data_dir", options.data_dir, "--ps", "1", "--workers", "1",
         "--sync_replicas", "--batch_size", str(options.batch_size), "--epochs", str(options.epochs), "--seed", str(seed)],
        stdout=subprocess.PIPE, check=True, text=True, timeout=1200)
    lines = [line for line in run.stdout.splitlines() if "ms/step" in line]
    return {metric: [float(re.search(rf"- {metric}: ([0-9.]+)", line).group(1)) for line in lines] for metric in METRICS}


def read_idx(directory, name):
    import numpy
    path = os.path.join(directory, name)
    opened = gzip.open(path + ".gz") if os.path.exists(path + ".gz") else open(path, "rb")
    with opened as file:
        data = file.read()
    extents = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(data[3])]
    return numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * data[3]).reshape(extents)


def keras_curves(options, seed):
    import keras
    images, labels, val_images, val_labels = (read_idx(options.data_dir, name) for name in (
        "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"))
    keras.utils.set_random_seed(seed)
    with open(MODEL, encoding="utf-8") as file:
        model = keras.models.model_from_json(file.read())
    scaled = [x[..., None].astype("float32") / 255 for x in (images, val_images)]
    history = model.fit(scaled[0], labels, validation_data=(scaled[1], val_labels), batch_size=options.batch_size,
                        epochs=options.epochs, verbose=0)
    return {metric: history.history[metric] for metric in METRICS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True, help="MNIST's IDX files")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=64)
    options = parser.parse_args()
    try:
        import keras
    except ImportError:
        parser.error("there is no Keras here: pip install tensorflow-cpu")

    ours = [cairn_curves(options, seed) for seed in range(options.seeds)]
    theirs = [keras_curves(options, seed) for seed in range(options.seeds)]
    print(f"{options.seeds} seeds, batch {options.batch_size}, Keras {keras.__version__} on {keras.backend.backend()}: "
          "mean (standard deviation)")
    apart = 0
    for epoch in range(options.epochs):
        for metric in METRICS:
            a, b = ([curves[metric][epoch] for curves in side] for side in (ours, theirs))
            error = ((statistics.variance(a) + statistics.variance(b)) / options.seeds) ** 0.5
            errors = (statistics.mean(a) - statistics.mean(b)) / error
            apart += abs(errors) > MOST_STANDARD_ERRORS
            print(f"epoch {epoch + 1} {metric:13} cairn {statistics.mean(a):.4f} ({statistics.stdev(a):.4f})   "
                  f"keras {statistics.mean(b):.4f} ({statistics.stdev(b):.4f})   apart by {errors:+.1f} standard errors")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
