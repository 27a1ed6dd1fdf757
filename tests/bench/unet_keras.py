"""The network of deploy/examples/unet.json in Keras, trained on the same arrays.

    KERAS_BACKEND=jax unet_keras.py DIR [--seed N] [--epochs N] [--batch_size N]

DIR is a directory that `cairn synthetic shapes` wrote. Prints a line for each epoch.
"""

import argparse
import json
import pathlib

import keras
import numpy as np

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "deploy/examples/unet.json"


def network() -> keras.Model:
    """Calls Keras' layers as the example connects them."""
    lines = [line for line in EXAMPLE.read_text(encoding="utf-8").splitlines() if not line.lstrip("{ ").startswith("//")]
    described = json.loads("{" + "\n".join(lines))
    values = {}
    for layer in described["config"]["layers"]:
        config = layer["config"]
        if layer["class_name"] == "InputLayer":
            values[config["name"]] = keras.Input(batch_shape=config["batch_shape"])
            continue
        inputs = [values[name] for name in layer["inbound_nodes"][0]]
        made = getattr(keras.layers, layer["class_name"])(**config)
        values[config["name"]] = made(inputs[0] if len(inputs) == 1 else inputs)
    return keras.Model(values["image"], values["classes"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=32)
    options = parser.parse_args()
    keras.utils.set_random_seed(options.seed)
    arrays = {name: np.load(options.data / f"{name}.npy") for name in ("x_train", "y_train", "x_test", "y_test")}
    model = network()
    model.compile("adam", "sparse_categorical_crossentropy",
                  metrics=["accuracy", keras.metrics.MeanIoU(4, name="mean_iou", sparse_y_pred=False)])
    for epoch in range(options.epochs):
        model.fit(arrays["x_train"], arrays["y_train"], batch_size=options.batch_size, verbose=0)
        loss, accuracy, iou = model.evaluate(arrays["x_test"], arrays["y_test"], batch_size=256, verbose=0)
        print(f"epoch {epoch + 1}: val_accuracy {accuracy:.4f} val_loss {loss:.4f} val_mean_iou {iou:.4f}", flush=True)


if __name__ == "__main__":
    main()
