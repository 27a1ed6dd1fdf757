"""A classifier of generated reviews in Keras, saved for Cairn before it is trained.

    KERAS_BACKEND=tensorflow sentiment_keras.py DIR [--seeds 3] [--epochs 4]

Writes DIR/train.csv and DIR/test.csv, whose labels depend on hidden weights of the words, and DIR/sentiment.keras, with
the vocabulary that adapt() found in the training set. Then trains the model and prints what it reaches with each seed,
and the accuracy of the hidden weights. Cairn trains on the same files:

    cairn train DIR/sentiment.keras --data_dir DIR --init_from none --sync_replicas --batch_size 64 --epochs 4
"""

import argparse
import csv
import pathlib

import keras
import numpy as np
import tensorflow as tf
from keras import layers

WORDS, LONGEST = 2000, 40


def write_reviews(path: pathlib.Path, count: int, seed: int):
    """Returns texts, labels, and the accuracy of the hidden weights."""
    hidden = np.random.default_rng(0)
    words = ["".join(hidden.choice(list("bdfgklmnprst")) + hidden.choice(list("aeiou")) for _ in range(3))
             for _ in range(WORDS)]
    weights = hidden.normal(0, 1, WORDS) * (hidden.random(WORDS) < 0.2)
    draw = np.random.default_rng(seed)
    texts, labels, right = [], [], 0
    for _ in range(count):
        chosen = np.minimum(np.exp(draw.random(draw.integers(10, LONGEST)) * np.log(WORDS)).astype(int), WORDS - 1)
        score = weights[chosen].sum()
        label = int(draw.random() < 1 / (1 + np.exp(-score)))
        right += label == (score > 0)
        texts.append(" ".join(words[i] for i in chosen).capitalize() + ".")
        labels.append(label)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(zip(texts, labels))
    return tf.constant(texts)[:, None], np.array(labels), right / count


def network(vectorize: layers.TextVectorization) -> keras.Model:
    text = keras.Input((1,), dtype="string", name="text")
    rows = layers.Embedding(vectorize.vocabulary_size(), 16, mask_zero=True)(vectorize(text))
    hidden = layers.Dense(16, activation="relu")(layers.GlobalAveragePooling1D()(rows))
    model = keras.Model(text, layers.Dense(1, activation="sigmoid")(hidden))
    model.compile(keras.optimizers.Adam(0.002), "binary_crossentropy", metrics=["accuracy"])
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    texts, labels, _ = write_reviews(options.directory / "train.csv", 20000, 1)
    test_texts, test_labels, best = write_reviews(options.directory / "test.csv", 4000, 2)
    vectorize = layers.TextVectorization(max_tokens=1500, output_sequence_length=LONGEST, name="words")
    vectorize.adapt(texts)
    network(vectorize).save(options.directory / "sentiment.keras")
    print(f"hidden weights: accuracy {best:.4f}")
    for seed in range(1, options.seeds + 1):
        keras.utils.set_random_seed(seed)
        model = network(vectorize)
        model.fit(texts, labels, batch_size=64, epochs=options.epochs, verbose=0)
        loss, accuracy = model.evaluate(test_texts, test_labels, batch_size=64, verbose=0)
        print(f"seed {seed}: val_accuracy {accuracy:.4f} val_loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
