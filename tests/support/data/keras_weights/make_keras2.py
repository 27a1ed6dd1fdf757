"""Made keras2.keras, keras2.h5 and excite.keras in this folder, with Keras' outputs for NAME_inputs.npy in
NAME_outputs.npy, and checked.weights.h5: pip install tensorflow-cpu==2.21.0 tf_keras==2.21.0 keras==3.15.1 h5py==3.14.0

keras2: as Keras 2 (tf_keras) writes a whole model, with slashes in layer names and a loss object. excite: Normalization
after adapt(), squeeze and excitation, and the other merges that broadcast. checked.weights.h5: one dense layer whose
values HDF5 keeps with a checksum (Fletcher32). Archives and .h5 are packed again.
"""

import gzip
import os
import pathlib
import zipfile

os.environ["KERAS_BACKEND"] = "tensorflow"
import h5py  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tf_keras  # noqa: E402

HERE = pathlib.Path(os.environ.get("OUT", pathlib.Path(__file__).parent))
random = np.random.default_rng(2)


def randomize(model):
    for variable in model.variables:
        if "count" in variable.name or "seed" in variable.name:
            continue
        positive = "variance" in variable.name or "gamma" in variable.name
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


layers = tf_keras.layers
image = tf_keras.Input((6, 5, 2), name="in/image")
top = layers.Conv2D(3, 3, padding="same", activation="relu", name="block1/conv")(image)
top = layers.BatchNormalization(name="block1/norm")(top)
top = layers.Add(name="block1/add")([top, layers.Conv2D(3, 1, name="block1/conv/skip")(image)])
top = layers.GlobalAveragePooling2D()(top)
model = tf_keras.Model(image, layers.Dense(1, name="head/scores")(top), name="k2")
randomize(model)
model.compile(tf_keras.optimizers.Adam(0.002), loss=tf_keras.losses.BinaryCrossentropy(from_logits=True), metrics=["accuracy"])
model.save(HERE / "keras2.keras")
model.save(HERE / "keras2.h5")
score("keras2", model, random.normal(0, 1, [3, 6, 5, 2]).astype("f4"))

layers = keras.layers
image = keras.Input((6, 5, 8), name="image")
norm = layers.Normalization(name="norm")
norm.adapt(random.normal(3, 2, [40, 6, 5, 8]).astype("f4"))
stem = layers.Conv2D(8, 3, padding="same", activation="relu", name="stem")(norm(image))
squeeze = layers.GlobalAveragePooling2D(keepdims=True)(stem)
squeeze = layers.Conv2D(8, 1, activation="sigmoid", name="excite")(layers.Conv2D(4, 1, activation="relu", name="squeeze")(squeeze))
top = layers.Multiply()([stem, squeeze])
gate = layers.Dense(8, name="gate")(layers.GlobalMaxPooling2D()(stem))  # [8]: expanded to [1,1,8]
top = layers.Concatenate()([layers.Subtract()([top, gate]), layers.Maximum()([gate, top]), layers.Minimum()([top, squeeze]),
                            layers.Average()([top, gate, squeeze]), layers.Add()([squeeze, top, gate])])
top = layers.Flatten()(layers.Dropout(0.3, noise_shape=(None, 1, 1, 40))(top))
model = keras.Model(image, layers.Dense(3, name="scores")(top), name="excite")
count = [v for v in model.variables if v.name in ("mean", "variance")]
kept = [np.asarray(v) for v in count]
randomize(model)
for variable, value in zip(count, kept):
    variable.assign(value)
model.save(HERE / "excite.keras")
score("excite", model, random.normal(3, 2, [3, 6, 5, 8]).astype("f4"))

with h5py.File(HERE / "checked.weights.h5", "w") as file:
    group = file.create_group("layers/dense/vars")
    group.attrs["name"] = "dense"
    for number, values in enumerate([np.arange(1, 5).reshape(2, 2), np.arange(2)]):
        group.create_dataset(str(number), data=values.astype("f4"), fletcher32=True, chunks=values.shape)

for name in ("keras2.h5", "keras2.keras", "excite.keras"):
    pack(HERE / name)
