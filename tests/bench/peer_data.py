"""Code that both sides of peer_clusters.py use: MNIST's files, the model's layers, and progress lines on stdout."""

import json
import re

from keras_curves import read_idx


def mnist(directory, which):
    """Images [n, 28, 28] and labels [n], both uint8, of the set "train" or "t10k"."""
    return read_idx(directory, f"{which}-images-idx3-ubyte"), read_idx(directory, f"{which}-labels-idx1-ubyte")


def layers(path):
    """(class, config) of each layer of a sequential model in Keras' JSON, comments allowed."""
    with open(path, encoding="utf-8") as file:
        model = json.loads(re.sub(r"//.*", "", file.read()))
    return [(layer["class_name"], layer.get("config", {})) for layer in model["config"]["layers"]]


def learning_rate(path):
    """The learning rate of the model's optimizer, which must be Adam with no other setting."""
    with open(path, encoding="utf-8") as file:
        optimizer = json.loads(re.sub(r"//.*", "", file.read()))["compile_config"]["optimizer"]
    if optimizer["class_name"] != "Adam" or set(optimizer["config"]) != {"learning_rate"}:
        raise SystemExit(f"{path}: the peers know Adam with a learning rate, not {optimizer}")
    return optimizer["config"]["learning_rate"]


def tell(**fields):
    """One line for peer_clusters.py, which notes when it came."""
    print(json.dumps(fields), flush=True)


def add_arguments(parser):
    parser.add_argument("--model", required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--batch_size", type=int, required=True, help="of a worker")
    parser.add_argument("--first", type=int, required=True, help="the step from which on time is taken")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
