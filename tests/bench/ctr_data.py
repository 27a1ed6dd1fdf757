"""Code that all sides of ctr_ratio.py use: the models as Keras' JSON, and Criteo's lines as arrays for the peers."""

import itertools
import json
import os

NUMBERS, CATEGORIES, DIM = 13, 26, 16
BOTTOM, TOP = (512, 256, 64, DIM), (512, 256)  # the units of DLRM's layers with ReLU
RATE = 0.02


def layer(kind, name, *inputs, **config):
    nodes = [[[source, 0, 0, {}] for source in inputs]] if inputs else []
    return {"class_name": kind, "name": name, "config": {"name": name, **config}, "inbound_nodes": nodes}


def input_layer(name, values, dtype="float32"):
    return layer("InputLayer", name, batch_shape=[None, values], dtype=dtype)


def network(name, layers):
    inputs = [[one["name"], 0, 0] for one in layers if one["class_name"] == "InputLayer"]
    return {"class_name": "Functional",
            "config": {"name": name, "layers": layers, "input_layers": inputs, "output_layers": [[layers[-1]["name"], 0, 0]]},
            "compile_config": {"optimizer": {"class_name": "Adagrad", "config": {"learning_rate": RATE}},
                               "loss": "binary_crossentropy"}}


def dlrm(from_ids=True):
    """DLRM with a table for each category. Without ids, its inputs are the rows of the tables: the dense part alone."""
    layers = [input_layer("numbers", NUMBERS)]
    rows = []
    for field in range(1, CATEGORIES + 1):
        if from_ids:
            layers += [input_layer(f"C{field}", 1, "int64"),
                       layer("Embedding", f"table_{field}", f"C{field}", input_dim=1_000_000, output_dim=DIM),
                       layer("Flatten", f"row_{field}", f"table_{field}")]
        else:
            layers.append(input_layer(f"row_{field}", DIM))
        rows.append(f"row_{field}")
    last = "numbers"
    for i, units in enumerate(BOTTOM):
        layers.append(layer("Dense", f"bottom_{i}", last, units=units, activation="relu"))
        last = f"bottom_{i}"
    layers += [layer("DotInteraction", "pairs", last, *rows), layer("Concatenate", "both", last, "pairs")]
    last = "both"
    for i, units in enumerate(TOP):
        layers.append(layer("Dense", f"top_{i}", last, units=units, activation="relu"))
        last = f"top_{i}"
    layers.append(layer("Dense", "click", last, units=1, activation="sigmoid"))
    return network("dlrm", layers)


def write_model(model, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(model, file)
    return path


def examples(directory, rows):
    """Labels [n], log(x + 1) of the numbers [n, 13], ids [n, 26] of each field from 0, and the ids of each field [26],
    of the first lines of a synthetic click log. Kept in a file beside the log."""
    import numpy  # pylint: disable=import-outside-toplevel  # which only the peers' Pythons need to have

    kept = os.path.join(directory, f"peer_{rows}.npz")
    if os.path.exists(kept):
        with numpy.load(kept) as arrays:
            return tuple(arrays[name] for name in ("labels", "numbers", "ids", "sizes"))
    labels, numbers = numpy.empty(rows, "float32"), numpy.zeros((rows, NUMBERS), "float32")
    words = numpy.zeros((rows, CATEGORIES), "int64")
    with open(os.path.join(directory, "train.txt"), encoding="ascii") as file:
        count = 0
        for i, line in enumerate(itertools.islice(file, rows)):
            fields = line.rstrip("\n").split("\t")
            labels[i] = int(fields[0])
            numbers[i] = [int(field or 0) for field in fields[1:1 + NUMBERS]]
            words[i] = [int(field, 16) + 1 if field else 0 for field in fields[1 + NUMBERS:]]
            count = i + 1
    if count < rows:
        raise SystemExit(f"{directory}/train.txt has {count} lines, fewer than {rows}")
    numbers = numpy.log1p(numpy.maximum(numbers, 0))
    ids, sizes = numpy.empty_like(words), numpy.empty(CATEGORIES, "int64")
    for field in range(CATEGORIES):
        seen, ids[:, field] = numpy.unique(words[:, field], return_inverse=True)
        sizes[field] = len(seen)
    numpy.savez(kept, labels=labels, numbers=numbers, ids=ids, sizes=sizes)
    return labels, numbers, ids, sizes


def tell(**fields):
    """One line for ctr_ratio.py, which notes when it came."""
    print(json.dumps(fields), flush=True)


def add_arguments(parser):
    parser.add_argument("--network", choices=["fm", "dlrm"], required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--batch_size", type=int, required=True)
    parser.add_argument("--first", type=int, required=True, help="the step from which on time is taken")
    parser.add_argument("--steps", type=int, required=True)
