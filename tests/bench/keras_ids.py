#!/usr/bin/env python3
"""Whether a table of 20 million rows learns here as it does in Keras, by ids of which half no float32 holds.

    tests/bench/keras_ids.py [--bin build/release/bin] [--seeds 3] [--epochs 4] [--rows 20000000] [--backend tensorflow]

Needs NumPy and Keras 3 with a backend (`pip install keras tensorflow-cpu`, or `keras jax`), and about 2 GB of memory.
The same model, the same examples and SGD; both shuffle in their own way and draw their own first values. An example is
two ids, and its target is the sum of their weights. Ids come in pairs 4k, 4k + 1 with opposite weights, so a table that
rounds the ids above 2^24 cannot learn theirs: its loss stays near their variance. Prints the loss of each epoch, mean
and standard deviation over the seeds, and the difference of the means in standard errors. Ends with status 1 when one
is beyond 3, or the last loss here is above a tenth of that of a table that rounds.
"""

import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MOST_STANDARD_ERRORS = 3
PAIRS = 64  # of ids, in each half of the table
EXAMPLES, BATCH_SIZE, LEARNING_RATE = 4096, 64, 1.0


def model_of(rows):
    ids = {"name": "ids", "batch_shape": [None, 2], "dtype": "int64"}
    layers = [{"class_name": "InputLayer", "config": ids},
              {"class_name": "Embedding", "config": {"name": "table", "input_dim": rows, "output_dim": 1}},
              {"class_name": "Flatten", "config": {"name": "flatten"}},
              {"class_name": "Dense", "config": {"name": "sum", "units": 1, "use_bias": False, "trainable": False,
                                                 "kernel_initializer": "ones"}}]
    for layer in layers:
        layer["module"] = "keras.layers"
        layer["registered_name"] = None
    return {"module": "keras", "class_name": "Sequential", "config": {"name": "ids", "layers": layers}}


def examples_of(rows):
    """ids [examples, 2], targets [examples]: as many ids below 2^24 as above, in pairs that a float merges there."""
    import numpy
    random = numpy.random.default_rng(1)
    split = min(1 << 24, rows // 8 * 4)
    firsts = numpy.concatenate([4 * random.choice(split // 4, PAIRS, replace=False),
                                split + 4 * random.choice((rows - split) // 4, PAIRS, replace=False)])
    weights = random.uniform(0.5, 1.5, len(firsts))
    ids = numpy.stack([firsts, firsts + 1], 1).ravel().astype("int64")
    weights = numpy.stack([weights, -weights], 1).ravel()
    drawn = random.integers(0, len(ids), (EXAMPLES, 2))
    return ids[drawn], weights[drawn].sum(1).astype("float32")


def loss_of_rounding(ids, targets):
    """The least loss of a table that takes ids as float32: least squares with an unknown per rounded id."""
    import numpy
    names, columns = numpy.unique(ids.astype("float32"), return_inverse=True)
    design = numpy.zeros((len(ids), len(names)))
    for column in columns.reshape(ids.shape).T:
        design[numpy.arange(len(ids)), column] += 1
    fitted = design @ numpy.linalg.lstsq(design, targets, rcond=None)[0]
    return float(((fitted - targets) ** 2).mean())


def cairn_losses(options, directory, seed):
    train_dir = os.path.join(directory, f"run-{seed}")
    subprocess.run(
        [os.path.join(options.bin, "cairn"), "train", os.path.join(directory, "model.json"), "--data_dir",
         os.path.join(directory, "ids.npz"), "--ps", "1", "--workers", "1", "--sync_replicas", "--loss",
         "MeanSquaredError", "--optimizer", "SGD", "--learning_rate", str(LEARNING_RATE), "--batch_size",
         str(BATCH_SIZE), "--epochs", str(options.epochs), "--seed", str(seed), "--train_dir", train_dir],
        stdout=subprocess.DEVNULL, check=True, timeout=3600)
    with open(os.path.join(train_dir, "log.csv"), encoding="utf-8") as file:
        losses = [float(row["val_loss"]) for row in csv.DictReader(file)]
    shutil.rmtree(train_dir)
    return losses


def keras_losses(options, directory, seed):
    import keras
    import numpy
    keras.utils.set_random_seed(seed)
    with open(os.path.join(directory, "model.json"), encoding="utf-8") as file:
        model = keras.models.model_from_json(file.read())
    model.compile(optimizer=keras.optimizers.SGD(LEARNING_RATE), loss="mean_squared_error")
    data = numpy.load(os.path.join(directory, "ids.npz"))
    history = model.fit(data["x_train"], data["y_train"], validation_data=(data["x_val"], data["y_val"]),
                        batch_size=BATCH_SIZE, epochs=options.epochs, verbose=0)
    return history.history["val_loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--backend", default="tensorflow", help="of Keras")
    options = parser.parse_args()
    os.environ["KERAS_BACKEND"] = options.backend
    try:
        import keras
        import numpy
    except ImportError as error:
        parser.error(f"{error}: pip install keras tensorflow-cpu")

    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "model.json"), "w", encoding="utf-8") as file:
            json.dump(model_of(options.rows), file)
        ids, targets = examples_of(options.rows)
        numpy.savez(os.path.join(directory, "ids.npz"), x_train=ids, y_train=targets, x_val=ids, y_val=targets)
        bound = loss_of_rounding(ids, targets)
        ours = [cairn_losses(options, directory, seed) for seed in range(options.seeds)]
        theirs = [keras_losses(options, directory, seed) for seed in range(options.seeds)]
    print(f"{options.rows} rows, {options.seeds} seeds, Keras {keras.__version__} on {keras.backend.backend()}: mean "
          f"(standard deviation) of val_loss; a table that rounds its ids reaches {bound:.4f} at best")
    apart = 0
    for epoch in range(options.epochs):
        a, b = ([losses[epoch] for losses in side] for side in (ours, theirs))
        error = ((statistics.variance(a) + statistics.variance(b)) / options.seeds) ** 0.5
        errors = (statistics.mean(a) - statistics.mean(b)) / error
        apart += abs(errors) > MOST_STANDARD_ERRORS
        print(f"epoch {epoch + 1} cairn {statistics.mean(a):.5f} ({statistics.stdev(a):.5f})   "
              f"keras {statistics.mean(b):.5f} ({statistics.stdev(b):.5f})   apart by {errors:+.1f} standard errors")
    last = statistics.mean(losses[-1] for losses in ours)
    return 1 if apart or last > bound / 10 else 0


if __name__ == "__main__":
    sys.exit(main())
