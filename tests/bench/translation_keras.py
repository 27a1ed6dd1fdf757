"""The network of deploy/examples/translation.json in Keras and keras_hub, trained on the same pairs of sentences.

    cairn synthetic translation translation
    KERAS_BACKEND=jax translation_keras.py translation [--seeds 3] [--epochs 4]

Prints the results of each seed, without padding.
"""

import keras
import keras_hub
import numpy as np
from keras import layers

from keras_seeds import options_of, train

LENGTH, WIDTH, HEADS, BLOCKS = 16, 64, 4, 2
SOURCE_TOKENS, TARGET_TOKENS = 217, 377


def network() -> keras.Model:
    source = keras.Input((LENGTH,), dtype="int32", name="encoder_inputs")
    target = keras.Input((LENGTH,), dtype="int32", name="decoder_inputs")
    x = keras_hub.layers.TokenAndPositionEmbedding(SOURCE_TOKENS, LENGTH, WIDTH, mask_zero=True)(source)
    for _ in range(BLOCKS):
        x = keras_hub.layers.TransformerEncoder(2 * WIDTH, HEADS, normalize_first=True)(x)
    y = keras_hub.layers.TokenAndPositionEmbedding(TARGET_TOKENS, LENGTH, WIDTH, mask_zero=True)(target)
    for _ in range(BLOCKS):
        y = keras_hub.layers.TransformerDecoder(2 * WIDTH, HEADS, normalize_first=True)(y, x)
    model = keras.Model([source, target], layers.Dense(TARGET_TOKENS)(layers.LayerNormalization()(y)))
    model.compile(keras.optimizers.Adam(0.001), keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["accuracy"])
    return model


def read(directory, name):
    inputs = [np.load(directory / f"x_{name}_{side}_inputs.npy") for side in ("encoder", "decoder")]
    return inputs, np.load(directory / f"y_{name}.npy")


def main():
    options = options_of(__doc__, epochs=4, batch_size=64)
    test_set = read(options.directory, "test")
    train(network, read(options.directory, "train"), test_set, options, counted=test_set[1] != 0)


if __name__ == "__main__":
    main()
