#!/usr/bin/env python3
"""The networks of keras.applications here and in Keras: loading, inference and training.

    tests/bench/keras_applications.py [NAME ...] [--bin build/release/bin] [--workers 1] [--examples 8] [--seed 1]

Needs Keras 3 with a backend (`pip install tensorflow-cpu`). Each network gets Keras' random weights, ten classes and
small images, and its dropout and stochastic depth are switched off. A line for each network has

    inference   the largest difference of the logits, relative to the largest logit
    training    the largest relative difference of the losses of three steps of SGD on the same examples
    change      how much these losses change in Keras, relative to the first

The learning rate is a power of ten: the next one changes the losses by more than 0.1. With random weights, few examples
and batch normalization over few pixels, larger steps are chaotic: in Keras alone, 1e-6 of MobileNetV2's inputs is 7e-2
of its third loss at a rate of 1e-3.

Ends with status 1 if a network is not read from its JSON or its .keras file, or differs by more than 1e-4 or 1e-3.

Without training, batch normalization leaves values as they are, and deep networks multiply them from block to block.
If Keras' own float32 differs from its float64 by more than the bound, the network gets the moving averages of the
examples, and is compared again. If they differ still, twice their difference is the bound.
"""

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETWORKS = """ConvNeXtTiny ConvNeXtSmall ConvNeXtBase ConvNeXtLarge ConvNeXtXLarge DenseNet121 DenseNet169 DenseNet201
EfficientNetB0 EfficientNetB1 EfficientNetB2 EfficientNetB3 EfficientNetB4 EfficientNetB5 EfficientNetB6 EfficientNetB7
EfficientNetV2B0 EfficientNetV2B1 EfficientNetV2B2 EfficientNetV2B3 EfficientNetV2S EfficientNetV2M EfficientNetV2L
InceptionResNetV2 InceptionV3 MobileNet MobileNetV2 MobileNetV3Small MobileNetV3Large NASNetMobile NASNetLarge ResNet50
ResNet101 ResNet152 ResNet50V2 ResNet101V2 ResNet152V2 VGG16 VGG19 Xception""".split()
SIZES = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71}  # of the images; 64 for all others
CLASSES = 10
STEPS = 3
MOST_CHANGE = 0.1
COLUMNS = ("inference", "training", "change")
BOUNDS = {"inference": 1e-4, "training": 1e-3}


def without_randomness(entry):
    """A model's or a layer's JSON with rates of 0."""
    if isinstance(entry, list):
        return [without_randomness(value) for value in entry]
    if not isinstance(entry, dict):
        return entry
    off = {"Dropout": "rate", "StochasticDepth": "drop_path_rate"}.get(entry.get("class_name"))
    if off:
        entry = dict(entry, config=dict(entry["config"], **{off: 0.0}))
    return {key: without_randomness(value) for key, value in entry.items()}


def in_float64(entry):
    """A model's or a layer's JSON with float64 for float32."""
    if isinstance(entry, list):
        return [in_float64(value) for value in entry]
    if isinstance(entry, dict):
        return {key: in_float64(value) for key, value in entry.items()}
    return "float64" if entry == "float32" else entry


def read_network(entry):
    import keras
    from keras.src.applications.convnext import LayerScale, StochasticDepth
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer
    return keras.models.model_from_json(
        json.dumps(entry),
        custom_objects={layer.__name__: layer for layer in (LayerScale, StochasticDepth, CustomScaleLayer)})


def exact_logits(model, images):
    """The logits of Keras in float64."""
    import keras
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        exact = read_network(in_float64(json.loads(model.to_json())))
        exact.set_weights(model.get_weights())
        return np.asarray(exact.predict_on_batch(images.astype("float64")))
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


def rounding_of_keras(name, model, images):
    """The difference of the logits of Keras in float32 and in float64."""
    rounding = relative(model.predict_on_batch(images), exact_logits(model, images))
    print(f"{name}: {rounding:.1e} between Keras in float32 and in float64", flush=True)
    return rounding


def take_averages(model, images):
    """Sets the moving averages of batch normalization to those of the images."""
    import keras
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    model(images, training=True)
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum


def make_network(name):
    import keras
    size = SIZES.get(name, 64)
    options = {"input_shape": (size, size, 3)}
    if name.startswith("MobileNetV3"):
        options = {"input_shape": (None, None, 3)}  # fixed by the data
    made = getattr(keras.applications, name)(weights=None, classes=CLASSES, classifier_activation=None, **options)
    model = read_network(without_randomness(json.loads(made.to_json())))
    model.compile(keras.optimizers.SGD(), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, size


def examples_for(model, size, count):
    random = np.random.default_rng(1)
    scales = any(layer.__class__.__name__ in ("Rescaling", "Normalization") for layer in model.layers)
    shape = [count, size, size, 3]
    images = random.uniform(0, 255, shape) if scales else random.normal(0, 1, shape)
    return images.astype("float32"), (np.arange(count) % CLASSES).astype("int64")


def losses_in_keras(model, images, labels):
    """The learning rate, and the losses of the steps."""
    weights, found = model.get_weights(), None
    for power in range(11, -1, -1):  # upwards: beyond the first rate that is too large, small changes are chance
        rate = 10.0 ** -power
        model.set_weights(weights)
        model.optimizer.learning_rate = rate
        losses = [float(np.ravel(model.train_on_batch(images, labels))[0]) for _ in range(STEPS)]
        if not max(abs(loss / losses[0] - 1) for loss in losses) < MOST_CHANGE:
            break
        found = rate, losses
    if found is None:
        raise ValueError("the losses change too much at every learning rate")
    return found


def relative(logits, expected):
    return np.abs(np.asarray(logits) - np.asarray(expected)).max() / np.abs(np.asarray(expected)).max()


def run(*command):
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, timeout=3600)


def compare(name, options, directory):
    """The number of parameters, the numbers of the line, and their bounds."""
    model, size = make_network(name)
    images, labels = examples_for(model, size, options.examples)
    np.save(directory / "x_train.npy", images)
    np.save(directory / "y_train.npy", labels)
    file = directory / f"{name}.keras"
    model.save(file)
    (directory / "model.json").write_text(model.to_json(), encoding="utf-8")
    cairn = os.path.join(options.bin, "cairn")
    run(cairn, "model", directory / "model.json", "--input_shape", f"{size},{size},3")
    run(cairn, "predict", file, directory / "x_train.npy", "-o", directory / "logits.npy")
    differences = {"inference": relative(np.load(directory / "logits.npy"), model.predict_on_batch(images))}
    bounds = dict(BOUNDS)
    if differences["inference"] > BOUNDS["inference"] and rounding_of_keras(name, model, images) > BOUNDS["inference"]:
        take_averages(model, images)
        model.save(file)
        run(cairn, "predict", file, directory / "x_train.npy", "-o", directory / "logits.npy")
        differences["inference"] = relative(np.load(directory / "logits.npy"), model.predict_on_batch(images))
        bounds["inference"] = max(BOUNDS["inference"], 2 * rounding_of_keras(name, model, images))
    rate, of_keras = losses_in_keras(model, images, labels)
    run(cairn, "train", file, "--data_dir", directory, "--learning_rate", rate, "--workers", options.workers,
        "--sync_replicas", "--novalidation", "--noshuffle", "--epochs", STEPS,
        "--batch_size", options.examples // options.workers, "--train_dir", directory / "run", "--save_secs", 0)
    with open(directory / "run/log.csv", encoding="utf-8") as rows:
        losses = [float(row["loss"]) for row in csv.DictReader(rows)]
    if len(losses) != STEPS:
        raise ValueError(f"{len(losses)} losses")
    differences["training"] = max(abs(a - b) / abs(b) for a, b in zip(losses, of_keras))
    differences["change"] = abs(of_keras[-1] / of_keras[0] - 1)
    return model.count_params(), differences, bounds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=NETWORKS)
    parser.add_argument("--bin", default=ROOT / "build/release/bin")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--examples", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        import keras
    except ImportError:
        parser.error("there is no Keras here: pip install tensorflow-cpu")
    failed = 0
    print(f"| network | parameters | {' | '.join(COLUMNS)} |\n|---|---|---|---|---|", flush=True)
    for name in options.names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                keras.utils.set_random_seed(options.seed)
                parameters, differences, bounds = compare(name, options, pathlib.Path(folder))
                line = " | ".join([f"{parameters:,}"] + [f"{differences[key]:.1e}" for key in COLUMNS])
                good = all(differences[key] <= bound for key, bound in bounds.items())
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                line, good = f"{error} | | |", False
        failed += not good
        print(f"| {name} | {line} |{'' if good else ' FAILED'}", flush=True)
        keras.backend.clear_session()
    print(f"{len(options.names) - failed} of {len(options.names)} agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
