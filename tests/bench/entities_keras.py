"""The network of deploy/examples/entities.json in Keras, trained on the same sentences.

    cairn synthetic entities entities
    KERAS_BACKEND=jax entities_keras.py entities [--seeds 3] [--epochs 4]

Prints the results of each seed, without padding.
"""

import keras
import numpy as np
from keras import layers

from keras_seeds import options_of, train

LENGTH, WORDS, TAGS = 24, 1002, 5


def network() -> keras.Model:
    words = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, 32, mask_zero=True)(words)
    x = layers.Bidirectional(layers.LSTM(32, return_sequences=True))(x)
    model = keras.Model(words, layers.Dense(TAGS, activation="softmax")(x))
    model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main():
    options = options_of(__doc__, epochs=4, batch_size=32)
    sets = [[np.load(options.directory / f"{part}_{name}.npy") for part in "xy"] for name in ("train", "test")]
    train(network, *sets, options, counted=sets[1][0] != 0)


if __name__ == "__main__":
    main()
