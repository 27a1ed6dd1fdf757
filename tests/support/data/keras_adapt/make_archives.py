"""Made the archives in this folder, with Keras 3.15.1 on TensorFlow: pip install keras==3.15.1 tensorflow-cpu.

A StringLookup and a Normalization in models within the model, before and after adapt() to the rows below, and the
values that adapt() found.
"""

import os
import pathlib
import zipfile

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

L = keras.layers
FOLDER = pathlib.Path(__file__).parent
CITIES = [["oslo"], ["rome"], ["oslo"], ["bern"]]
SIZES = [[3.0], [5.0], [-1.0], [0.5]]


def save(model, name):
    model.save(FOLDER / "stored.keras")
    with zipfile.ZipFile(FOLDER / "stored.keras") as stored:
        with zipfile.ZipFile(FOLDER / name, "w", zipfile.ZIP_DEFLATED) as small:
            for member in stored.namelist():
                small.writestr(member, stored.read(member))
    (FOLDER / "stored.keras").unlink()


def main():
    keras.utils.set_random_seed(1)
    word = keras.Input((1,), dtype="string", name="word")
    lookup = L.StringLookup(name="cities")
    embedded = keras.Model(word, L.Embedding(9, 2, name="rows")(lookup(word)), name="embedded")
    scaled = keras.Sequential([keras.Input((1,)), L.Normalization(name="norm")], name="scaled")
    city, size = keras.Input((1,), dtype="string", name="city"), keras.Input((1,), name="size")
    joined = L.Concatenate(name="join")([L.Flatten(name="flat")(embedded(city)), scaled(size)])
    model = keras.Model([city, size], L.Dense(1, name="out")(joined), name="prices")
    model.compile("sgd", "mse")
    save(model, "nested.keras")
    lookup.adapt(tf.constant(CITIES))
    scaled.layers[-1].adapt(np.array(SIZES, "float32"))
    save(model, "nested_adapted.keras")
    norm = scaled.layers[-1]
    print(lookup.get_vocabulary(include_special_tokens=False), norm.adapt_mean.numpy(), norm.adapt_variance.numpy())


if __name__ == "__main__":
    main()
