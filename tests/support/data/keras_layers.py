"""Records what layers of Keras compute, in keras_layers.json, for tests/unit/nn/keras_layers_test.cc.

    KERAS_BACKEND=jax python keras_layers.py

Needs Keras 3.16 and JAX. Every network is a dense layer, so that the gradient of the recorded layer's input counts,
the layer as Keras writes it, and a sum of squares: the mean squared error with targets of 0.
"""

import json
import pathlib

import jax
import keras
import numpy as np

# [name, shape of an example, the layer]; the dense layer before it keeps the shape.
CASES = [
    ("Cropping1D", (6, 2), keras.layers.Cropping1D((1, 2))),
    ("Cropping2D", (5, 4, 2), keras.layers.Cropping2D(((1, 0), (0, 2)))),
    ("Cropping3D", (4, 5, 3, 2), keras.layers.Cropping3D(((1, 0), (1, 2), (0, 1)))),
    ("ZeroPadding1D", (3, 2), keras.layers.ZeroPadding1D((1, 2))),
    ("ZeroPadding3D", (2, 2, 1, 2), keras.layers.ZeroPadding3D(((1, 0), (0, 2), (1, 1)))),
    ("UpSampling1D", (3, 2), keras.layers.UpSampling1D(3)),
    ("UpSampling2D", (3, 2, 2), keras.layers.UpSampling2D((2, 3))),
    ("UpSampling2DBilinear", (3, 2, 2), keras.layers.UpSampling2D((2, 3), interpolation="bilinear")),
    ("UpSampling3D", (2, 1, 2, 2), keras.layers.UpSampling3D((2, 1, 2))),
    ("Permute", (2, 3, 4), keras.layers.Permute((3, 1, 2))),
    ("RepeatVector", (3,), keras.layers.RepeatVector(4)),
    ("MaxPooling1D", (7, 2), keras.layers.MaxPooling1D(3, strides=2, padding="same")),
    ("AveragePooling1D", (7, 2), keras.layers.AveragePooling1D(3, strides=2, padding="same")),
    ("MaxPooling3D", (4, 3, 5, 2), keras.layers.MaxPooling3D((2, 2, 3), strides=(2, 1, 2), padding="same")),
    ("AveragePooling3D", (4, 3, 5, 2), keras.layers.AveragePooling3D((3, 2, 2), strides=(2, 1, 2), padding="same")),
    ("GlobalMaxPooling1D", (5, 3), keras.layers.GlobalMaxPooling1D(keepdims=True)),
    ("GlobalMaxPooling3D", (2, 3, 2, 3), keras.layers.GlobalMaxPooling3D()),
    ("GlobalAveragePooling3D", (2, 3, 2, 3), keras.layers.GlobalAveragePooling3D(keepdims=True)),
    ("Conv1DCausal", (7, 2), keras.layers.Conv1D(3, 3, padding="causal", dilation_rate=2, activation="relu")),
    ("Conv1DTranspose", (4, 2), keras.layers.Conv1DTranspose(3, 3, strides=2, padding="same", activation="tanh")),
    ("DepthwiseConv1D", (6, 3), keras.layers.DepthwiseConv1D(3, strides=2, depth_multiplier=2, padding="same")),
    ("SeparableConv1D", (6, 3), keras.layers.SeparableConv1D(4, 3, depth_multiplier=2, activation="relu")),
    ("PReLU", (3, 4), keras.layers.PReLU()),
    ("PReLUShared", (3, 2, 4), keras.layers.PReLU(shared_axes=[1, 2])),
    ("Identity", (3, 4), keras.layers.Identity()),
    ("GroupNormalization", (3, 2, 6), keras.layers.GroupNormalization(3, epsilon=0.01)),
    ("GroupNormalizationOfChannels", (4, 3), keras.layers.GroupNormalization(-1, scale=False)),
    ("GroupNormalizationOfAnAxis", (4, 3), keras.layers.GroupNormalization(2, axis=1)),
    ("UnitNormalization", (3, 4), keras.layers.UnitNormalization()),
    ("UnitNormalizationOverAxes", (3, 2, 4), keras.layers.UnitNormalization(axis=[1, 3])),
    ("BatchNormalizationOfAnAxis", (3, 4), keras.layers.BatchNormalization(axis=1)),
    ("LayerNormalizationOverAxes", (3, 2, 4), keras.layers.LayerNormalization(axis=[2, 3])),
    ("LayerNormalizationOverAnAxis", (3, 4), keras.layers.LayerNormalization(axis=1)),
    ("Conv3D", (4, 5, 3, 2), keras.layers.Conv3D(3, (3, 2, 2), strides=(2, 1, 1), padding="same", activation="relu")),
    ("Conv3DDilated", (5, 4, 4, 2), keras.layers.Conv3D(2, (2, 2, 3), dilation_rate=(2, 1, 1), use_bias=False)),
    ("ConvLSTM2D", (3, 4, 5, 2), keras.layers.ConvLSTM2D(3, 3)),
    ("ConvLSTM2DSame", (3, 5, 4, 2), keras.layers.ConvLSTM2D(2, (3, 2), strides=(2, 1), padding="same", return_sequences=True)),
    ("ConvLSTM2DBackwards", (3, 3, 4, 2), keras.layers.ConvLSTM2D(2, 2, go_backwards=True, return_sequences=True, use_bias=False)),
    ("ConvLSTM2DRelu", (2, 4, 4, 3), keras.layers.ConvLSTM2D(3, 2, activation="relu", recurrent_activation="hard_sigmoid", go_backwards=True)),
    ("ConvLSTM2DDilated", (2, 5, 5, 1), keras.layers.ConvLSTM2D(2, 3, dilation_rate=2)),
    ("ConvLSTM2DOfOneStep", (1, 3, 3, 2), keras.layers.ConvLSTM2D(2, 1, return_sequences=True)),
]


def record(name, shape, layer):
    random = np.random.default_rng(sum(map(ord, name)))
    model = keras.Sequential([keras.Input(shape), keras.layers.Dense(shape[-1], name="before"), layer])
    variables = [variable for variable in model.variables if "seed_generator" not in variable.path]
    for variable in variables:
        low = 0.5 if variable.name in ("gamma", "moving_variance") else -1
        variable.assign(random.uniform(low, 1, variable.shape).round(3))
    x = random.uniform(-1, 1, (3, *shape)).round(3).astype("float32")

    def loss_of(trainable):
        outputs, state = model.stateless_call(trainable, [v.value for v in model.non_trainable_variables], x, training=True)
        return (outputs ** 2).mean(), outputs

    (loss, outputs), gradients = jax.value_and_grad(loss_of, has_aux=True)([v.value for v in model.trainable_variables])
    inferred = model(x, training=False)
    numbers = lambda values: [float(f"{value:.6g}") for value in np.asarray(values).ravel()]
    path = lambda variable: variable.path.split("/", 1)[-1] if variable.path.startswith("sequential") else variable.path
    return {
        "name": name,
        "model": {"class_name": "Sequential", "config": {"layers": [
            {"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [None, *shape]}},
            {"class_name": "Dense", "config": {"name": "before", "units": shape[-1]}},
            keras.saving.serialize_keras_object(layer)]}},
        "variables": {path(variable): numbers(variable) for variable in variables},
        "inputs": numbers(x), "outputs": numbers(outputs), "inferred": numbers(inferred), "loss": float(f"{loss:.6g}"),
        "gradients": {path(v): numbers(g) for v, g in zip(model.trainable_variables, gradients)},
    }


def main():
    assert keras.config.backend() == "jax", "run with KERAS_BACKEND=jax"
    lines = [json.dumps(record(*case), separators=(",", ":")) for case in CASES]
    pathlib.Path(__file__).with_suffix(".json").write_text("[" + ",\n".join(lines) + "]\n")


if __name__ == "__main__":
    main()
