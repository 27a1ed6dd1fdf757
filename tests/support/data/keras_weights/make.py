"""Made the files in this folder, with Keras 3.15.1 on JAX 0.10.2 and HDF5 2.0: pip install keras==3.15.1 jax==0.10.2
h5py==3.16.0

image.keras, image.h5, steps.weights.h5: every layer with weights, random values; NAME_inputs.npy, and in
NAME_outputs.npy what Keras makes of them. dense.weights.h5: whole numbers, layers under names that Keras did not make
up, one in a model within. Archives and .h5 are packed again, since they are mostly zeros.
"""

import gzip
import os
import pathlib
import zipfile

os.environ["KERAS_BACKEND"] = "jax"
import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402

HERE = pathlib.Path(__file__).parent
random = np.random.default_rng(1)


def randomize(model):
    for variable in model.variables:
        if variable.dtype == "float32":
            positive = variable.name in ("moving_variance", "gamma")
            variable.assign(random.uniform(0.3, 0.9, variable.shape) if positive else random.normal(0, 0.4, variable.shape))


def score(name, model, inputs):
    np.save(HERE / f"{name}_inputs.npy", inputs)
    np.save(HERE / f"{name}_outputs.npy", np.asarray(model(inputs, training=False)))


def pack(path):
    data = path.read_bytes()
    if path.suffix == ".h5":
        path.write_bytes(gzip.compress(data, mtime=0))
        return
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member, zipfile.ZIP_DEFLATED)


image = keras.Input((7, 6, 2), name="image")
stem = layers.Conv2D(4, 3, padding="same", name="stem")(image)
stem = layers.ReLU()(layers.BatchNormalization(name="norm")(stem))
branch = layers.SeparableConv2D(4, 3, padding="same", depth_multiplier=2)(stem)
branch = layers.DepthwiseConv2D(3, padding="same")(branch)
top = layers.Dropout(0.5)(layers.Add()([stem, branch]))
top = layers.LayerNormalization()(layers.Conv2DTranspose(3, 2, strides=2)(top))
top = layers.Flatten()(layers.BatchNormalization(scale=False)(top))
top = layers.Dense(6, activation="tanh", name="hidden")(top)
model = keras.Model(image, layers.Dense(5, name="scores", use_bias=False)(top))
randomize(model)
model.compile("adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.save(HERE / "image.keras")
model.save(HERE / "image.h5")
score("image", model, random.normal(0, 1, [3, 7, 6, 2]).astype("f4"))

steps = keras.Sequential([keras.Input((7,), dtype="int32"), layers.Embedding(10, 4), layers.Conv1D(4, 3), layers.Flatten(),
                          layers.Dense(3, activation="tanh"), layers.Dense(2)])
randomize(steps)
steps.save_weights(HERE / "steps.weights.h5")
score("steps", steps, random.integers(0, 10, [3, 7]).astype("i4"))

dense = keras.Sequential([keras.Input((2,)), layers.Dense(2, name="first"),
                          keras.Sequential([layers.Dense(1, name="second")])])
for number, variable in enumerate(dense.variables):
    variable.assign(10 * number + np.arange(np.prod(variable.shape)).reshape(variable.shape))
dense.save_weights(HERE / "dense.weights.h5")

scores = keras.Input((4,))
only_optimizer = keras.Model(scores, layers.Softmax()(scores))  # which has no weights
only_optimizer.compile("sgd", "mse")
only_optimizer.save(HERE / "only_optimizer.keras")

for file in [*HERE.glob("*.h5"), HERE / "image.keras", HERE / "only_optimizer.keras"]:
    pack(file)
