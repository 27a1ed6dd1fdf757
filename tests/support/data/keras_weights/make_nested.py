"""Made nested.keras, nested.h5 and nested2.h5 in this folder: models within models, of images of any size.

With Keras' outputs for nested_inputs.npy in NAME_outputs.npy, and its losses in nested_losses.json:
pip install tensorflow-cpu==2.21.0 tf_keras==2.21.0 keras==3.15.1 h5py==3.14.0

nested: as Keras 3 writes it; a tower with two outputs that is called twice, a Sequential in it, a frozen model, a
Sequential at the end; the losses of three steps of SGD on all examples. nested2: the same as Keras 2 (tf_keras) writes
it. Archives and .h5 are packed again.
"""

import gzip
import json
import os
import pathlib
import zipfile

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tf_keras  # noqa: E402

HERE = pathlib.Path(os.environ.get("OUT", pathlib.Path(__file__).parent))
random = np.random.default_rng(3)


def nested(k):
    layers = k.layers
    inner = k.Sequential([layers.Conv2D(4, 3, padding="same", name="deep"), layers.BatchNormalization(momentum=0.8)], name="inner")
    image = k.Input((None, None, 3))
    small = layers.Conv2D(4, 3, padding="same", activation="relu", name="conv")(image)
    tower = k.Model(image, [small, inner(small)], name="tower")
    maps = k.Input((None, None, 4))
    frozen = k.Model(maps, layers.BatchNormalization(name="norm")(layers.Conv2D(4, 1, name="conv")(maps)), name="frozen")
    frozen.trainable = False
    image = k.Input((None, None, 3), name="image")
    _, left = tower(image)
    small, right = tower(layers.Rescaling(-0.5, offset=0.25)(image))
    top = layers.Concatenate()([layers.GlobalAveragePooling2D()(x) for x in (left, frozen(small, training=False), right)])
    head = k.Sequential([layers.Dense(6, activation="tanh"), layers.Dense(5, name="conv")], name="head")
    model = k.Model(image, head(top), name="nested")
    for variable in model.weights:
        positive = "variance" in variable.name or "gamma" in variable.name
        variable.assign(random.uniform(0.3, 0.9, variable.shape) if positive else random.normal(0, 0.4, variable.shape))
    return model


def pack(path):
    if path.suffix == ".h5":
        path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        return
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member, zipfile.ZIP_DEFLATED)


inputs = random.normal(0, 1, [8, 7, 6, 3]).astype("f4")
np.save(HERE / "nested_inputs.npy", inputs)
model = nested(keras)
model.compile(keras.optimizers.SGD(0.1), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.save(HERE / "nested.keras")
model.save(HERE / "nested.h5")
np.save(HERE / "nested_outputs.npy", np.asarray(model(inputs, training=False)))
of_keras2 = nested(tf_keras)
of_keras2.save(HERE / "nested2.h5")
np.save(HERE / "nested2_outputs.npy", np.asarray(of_keras2(inputs, training=False)))
targets = np.arange(8) % 5
losses = [float(model.train_on_batch(inputs, targets)) for _ in range(3)]
losses = {"training": losses, "after": float(model.test_on_batch(inputs, targets))}
(HERE / "nested_losses.json").write_text(json.dumps(losses) + "\n", encoding="utf-8")
for name in ("nested.keras", "nested.h5", "nested2.h5"):
    pack(HERE / name)
