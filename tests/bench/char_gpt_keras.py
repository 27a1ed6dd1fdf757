"""The network of deploy/examples/char_gpt.json in Keras, trained on the same files of tokens.

    KERAS_BACKEND=jax char_gpt_keras.py DIR [--seed N] [--epochs N] [--batch_size N]

DIR has train.bin and test.bin of uint16. The windows are those of Cairn. Prints a line for each epoch; the perplexity
is exp of the loss.
"""

import argparse
import math
import pathlib

import keras
import numpy as np
from keras import layers

LENGTH, TOKENS, WIDTH, HEADS, BLOCKS = 64, 65, 64, 4, 2


def windows(path: pathlib.Path):
    tokens = np.fromfile(path, "<u2").astype("int32")
    count = (len(tokens) - 1) // LENGTH
    return tokens[:count * LENGTH].reshape(count, LENGTH), tokens[1:count * LENGTH + 1].reshape(count, LENGTH)


def network() -> keras.Model:
    tokens = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(TOKENS, WIDTH)(tokens)
    x = layers.EinsumDense("abc,cd->abd", output_shape=(LENGTH, WIDTH), bias_axes="bd")(x)
    for _ in range(BLOCKS):
        normal = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(normal, normal, use_causal_mask=True)
        hidden = layers.Dense(4 * WIDTH, activation="gelu")(layers.LayerNormalization()(x))
        x = x + layers.Dense(WIDTH)(hidden)
    return keras.Model(tokens, layers.Dense(TOKENS)(layers.LayerNormalization()(x)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=32)
    options = parser.parse_args()
    keras.utils.set_random_seed(options.seed)
    model = network()
    model.compile(keras.optimizers.Adam(0.002), keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["accuracy"])
    validation = windows(options.data / "test.bin")
    for epoch in range(options.epochs):
        model.fit(*windows(options.data / "train.bin"), batch_size=options.batch_size, verbose=0)
        loss, accuracy = model.evaluate(*validation, batch_size=options.batch_size, verbose=0)
        print(f"epoch {epoch + 1}: val_perplexity {math.exp(loss):.4f} val_accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
