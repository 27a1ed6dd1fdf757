"""Made recurrent.keras, recurrent.h5 and their .npy files, with Keras 3.15.1 on JAX 0.10.2: pip install keras==3.15.1
jax==0.10.2 h5py==3.16.0

Layers whose weights Keras keeps in groups of their own: cells, both directions, and the layer of TimeDistributed.
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

model = keras.Sequential([
    keras.Input((6, 3)), layers.Masking(), layers.Bidirectional(layers.LSTM(4, return_sequences=True)),
    layers.TimeDistributed(layers.Dense(5, activation="tanh")),
    layers.Bidirectional(layers.GRU(2, return_sequences=True),
                         backward_layer=layers.SimpleRNN(2, return_sequences=True, go_backwards=True)),
    layers.GRU(3, reset_after=False, return_sequences=True), layers.SimpleRNN(4), layers.Dense(2)])
for variable in model.trainable_variables:
    variable.assign(random.normal(0, 0.5, variable.shape))
model.save(HERE / "recurrent.keras")
model.save(HERE / "recurrent.h5")
with zipfile.ZipFile(HERE / "recurrent.keras") as archive:
    members = {name: archive.read(name) for name in archive.namelist()}
with zipfile.ZipFile(HERE / "recurrent.keras", "w", zipfile.ZIP_DEFLATED) as archive:
    for name, member in members.items():
        archive.writestr(zipfile.ZipInfo(name), member, zipfile.ZIP_DEFLATED)
(HERE / "recurrent.h5").write_bytes(gzip.compress((HERE / "recurrent.h5").read_bytes(), mtime=0))
inputs = random.normal(0, 1, (3, 6, 3)).astype("f4")
inputs[0, 4:] = inputs[2, 1] = 0
np.save(HERE / "recurrent_inputs.npy", inputs)
np.save(HERE / "recurrent_outputs.npy", np.asarray(model(inputs)))
