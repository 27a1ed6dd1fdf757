"""The network of deploy/examples/sentiment.json in Keras, trained on the same reviews.

    cairn synthetic reviews reviews
    cairn model adapt deploy/examples/sentiment.json --data_dir reviews --out reviews/model.json
    KERAS_BACKEND=jax sentiment_keras.py reviews [--seeds 3] [--epochs 4]

Reads train.jsonl and test.jsonl, and the vocabulary of the adapted model. Prints the results of each seed.
"""

import json
import pathlib
import string
from typing import Dict, Tuple

import keras
import numpy as np
from keras import layers

from keras_seeds import options_of, train

LENGTH, TOKENS = 40, 1500


def read(path: pathlib.Path, ids: Dict[str, int]) -> Tuple[np.ndarray, np.ndarray]:
    """The ids of the reviews' words, as TextVectorization makes them, and the labels."""
    examples = [json.loads(line) for line in path.read_text().splitlines()]
    words = np.zeros((len(examples), LENGTH), "int32")
    for row, example in enumerate(examples):
        text = example["text"].lower().translate(str.maketrans("", "", string.punctuation)).split()[:LENGTH]
        words[row, :len(text)] = [ids.get(word, 1) for word in text]
    return words, np.array([example["label"] for example in examples])


def network() -> keras.Model:
    words = keras.Input((LENGTH,), dtype="int32")
    rows = layers.Embedding(TOKENS, 16, mask_zero=True)(words)
    hidden = layers.Dense(16, activation="relu")(layers.GlobalAveragePooling1D()(rows))
    model = keras.Model(words, layers.Dense(1, activation="sigmoid")(hidden))
    model.compile(keras.optimizers.Adam(0.002), "binary_crossentropy", metrics=["accuracy"])
    return model


def main():
    options = options_of(__doc__, epochs=4, batch_size=64)
    model = json.loads((options.directory / "model.json").read_text())
    vectorize = next(layer for layer in model["config"]["layers"] if layer["class_name"] == "TextVectorization")
    ids = {word: i for i, word in enumerate(vectorize["config"]["vocabulary"], start=2)}
    train(network, *(read(options.directory / f"{name}.jsonl", ids) for name in ("train", "test")), options)


if __name__ == "__main__":
    main()
