"""Made states.json, with Keras 3.15.1 on JAX 0.10.2, and Keras 2 (tf_keras 2.21.0) for `keras2`:
pip install keras==3.15.1 jax==0.10.2 tf_keras==2.21.0

Models with return_state and initial_state, in the form of models.json (make.py). The inputs of an example follow one
another. `losses`: those of three steps of SGD(0.1) on the mean squared error to `targets`.
"""

import json
import os
import pathlib

os.environ["KERAS_BACKEND"] = "jax"
import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers as L  # noqa: E402

HERE = pathlib.Path(__file__).parent
random = np.random.default_rng(2)
EXAMPLES, SOURCE, TARGET, CHANNELS, UNITS = 3, 4, 5, 2, 3


def vectors(*shape):
    return random.normal(0, 1, (EXAMPLES, *shape)).astype("float32")


def sequences():
    """The inputs of an encoder and of a decoder."""
    source, target = keras.Input((SOURCE, CHANNELS), name="source"), keras.Input((TARGET, CHANNELS), name="target")
    return source, target, [vectors(SOURCE, CHANNELS), vectors(TARGET, CHANNELS)]


def joined(outputs):
    """Flatten ends a mask."""
    return L.Concatenate()([L.Flatten()(output) for output in outputs])


def encoder_decoder(keras=keras):
    layers = keras.layers
    source = keras.Input((SOURCE, CHANNELS), name="source")
    target = keras.Input((TARGET, CHANNELS), name="target")
    _, h, c = layers.LSTM(UNITS, return_state=True, name="encoder")(source)
    decoder = layers.LSTM(UNITS, return_sequences=True, return_state=True, name="decoder")
    y, _, _ = decoder(target, initial_state=[h, c])
    return keras.Model([source, target], layers.Dense(2, name="dense")(y))


def with_attention():
    source, target, values = sequences()
    keys, h = L.GRU(UNITS, return_sequences=True, return_state=True)(source)
    queries = L.GRU(UNITS, return_sequences=True, reset_after=False)(target, initial_state=h)
    return keras.Model([source, target], L.Concatenate()([queries, L.Attention()([queries, keys])])), values


def both_ways(merge_mode, cell, last):
    source, target, values = sequences()
    y, *states = L.Bidirectional(cell(UNITS, return_state=True), merge_mode=merge_mode)(source)
    both = L.Bidirectional(cell(UNITS, return_sequences=True, return_state=last), merge_mode=merge_mode)
    decoded = both(target, initial_state=states)
    return keras.Model([source, target], joined([y, *decoded] if last else [y, decoded])), values


def apart(cell, with_states):
    """Two outputs, forward and backward, which are read in the other order, or only the second of them."""
    source, target, values = sequences()
    if not with_states:
        forward, backward = L.Bidirectional(cell(UNITS, return_sequences=True), merge_mode=None)(source)
        return keras.Model([source, target], joined([target, backward, forward])), values
    _, backward, *states = L.Bidirectional(cell(UNITS, return_state=True), merge_mode=None)(source)
    outputs = L.Bidirectional(cell(UNITS), merge_mode=None)(target, initial_state=states)
    return keras.Model([source, target], joined([*outputs, backward])), values


def joined_states():
    source, target, values = sequences()
    _, *states = L.Bidirectional(L.LSTM(2, return_state=True))(source)
    h, c = L.Concatenate()([states[0], states[2]]), L.Concatenate()([states[1], states[3]])
    return keras.Model([source, target], L.LSTM(4, return_sequences=True)(target, initial_state=[h, c])), values


def masked(cell, gives_mask=False, keras=keras):
    """Keras 3 gives a layer that has an initial_state no mask, unless the call does. Keras 2 does."""
    layers = keras.layers
    source = keras.Input((SOURCE,), dtype="int32", name="source")
    target = keras.Input((TARGET,), dtype="int32", name="target")
    embedding = layers.Embedding(7, CHANNELS, mask_zero=True, name="words")
    encoder = getattr(layers, cell)(UNITS, return_state=True, go_backwards=True, name="encoder")
    decoder = getattr(layers, cell)(UNITS, return_sequences=True, return_state=True, name="decoder")
    _, *states = encoder(embedding(source))
    mask = {"mask": embedding.compute_mask(target)} if gives_mask else {}
    outputs = decoder(embedding(target), initial_state=states, **mask)
    # Flatten ends the mask.
    flat = [layers.Flatten(name=f"flat_{i}")(output) for i, output in enumerate(outputs)]
    return keras.Model([source, target], layers.Concatenate(name="joined")(flat))


def ids():
    """No target begins with a masked step, where Keras gives h on JAX, and 0 on TensorFlow."""
    return [np.array([[3, 1, 2, 0], [0, 4, 0, 5], [6, 0, 0, 0]], "int32"),
            np.array([[1, 0, 2, 3, 4], [5, 6, 0, 0, 0], [1, 0, 2, 0, 3]], "int32")]


def given_states():
    """The states before the first step are inputs, and all that the layer returns is read."""
    target, h = keras.Input((TARGET, CHANNELS), name="target"), keras.Input((UNITS,), name="h")
    outputs = L.SimpleRNN(UNITS, return_sequences=True, return_state=True)(target, initial_state=h)
    return keras.Model([target, h], joined(outputs)), [vectors(TARGET, CHANNELS), vectors(UNITS)]


def called_twice():
    """One layer continues from its own states."""
    source, target, values = sequences()
    lstm = L.LSTM(UNITS, return_state=True)
    _, h, c = lstm(source)
    return keras.Model([source, target], lstm(target, initial_state=[h, c])[1]), values


def of_images(keras=keras):
    """An encoder and a decoder of images, with states of another size than the inputs."""
    layers = keras.layers
    source, target = keras.Input((2, 5, 4, 2), name="source"), keras.Input((3, 5, 4, 1), name="target")
    options = {"filters": 2, "kernel_size": 3, "strides": (2, 1), "padding": "same", "return_state": True}
    y, h, c = layers.ConvLSTM2D(**options, recurrent_activation="sigmoid", name="encoder")(source)
    decoder = layers.ConvLSTM2D(**options, recurrent_activation="sigmoid", return_sequences=True, name="decoder")
    outputs = [y, *decoder(target, initial_state=[h, c])]
    flat = [layers.Flatten(name=f"flat_{i}")(output) for i, output in enumerate(outputs)]
    return keras.Model([source, target], layers.Concatenate(name="joined")(flat))


def given_images():
    """The states before the first step are inputs, and the last step is the first."""
    target, h, c = (keras.Input(shape, name=name) for name, shape in (("target", (3, 3, 3, 1)), ("h", (2, 2, 2)), ("c", (2, 2, 2))))
    dense = [L.Dense(2, name=f"dense_{name}")(value) for name, value in (("h", h), ("c", c))]
    outputs = L.ConvLSTM2D(2, 2, go_backwards=True, use_bias=False, name="lstm")(target, initial_state=dense)
    return keras.Model([target, h, c], outputs), [vectors(3, 3, 3, 1), vectors(2, 2, 2), vectors(2, 2, 2)]


CASES = {
    "encoder_decoder": (encoder_decoder(), [vectors(SOURCE, CHANNELS), vectors(TARGET, CHANNELS)]),
    "with_attention": with_attention(),
    "both_concat": both_ways("concat", L.LSTM, True),
    "both_sum": both_ways("sum", L.GRU, False),
    "joined_states": joined_states(),
    "masked_lstm": (masked("LSTM"), ids()),
    "masked_gru": (masked("GRU", gives_mask=True), ids()),
    "given_states": given_states(),
    "called_twice": called_twice(),
}


def numbers(values):
    return [float(f"{value:.9g}") for value in np.asarray(values, "float64").ravel()]


def rows(values):
    return np.concatenate([np.asarray(value).reshape(EXAMPLES, -1) for value in values], axis=1)


def record(model, inputs):
    for variable in model.trainable_variables:
        variable.assign(random.normal(0, 0.6, variable.shape))
    state = [variable.value for variable in model.non_trainable_variables]
    inputs = {tensor.name: value for tensor, value in zip(model.inputs, inputs)}

    def outputs_of(values):
        return model.stateless_call(values, state, inputs)[0].reshape(EXAMPLES, -1)

    values = [variable.value for variable in model.trainable_variables]
    outputs = outputs_of(values)
    weights = random.normal(0, 1, outputs.shape).astype("float32")
    targets = random.normal(0, 1, outputs.shape).astype("float32")
    gradients = jax.grad(lambda values: (outputs_of(values) * weights).sum())(values)
    step = jax.value_and_grad(lambda values: ((outputs_of(values) - targets) ** 2).mean())
    losses, trained = [], values
    for _ in range(3):
        loss, of_loss = step(trained)
        losses.append(loss)
        trained = [value - 0.1 * gradient for value, gradient in zip(trained, of_loss)]
    return {"model": json.loads(model.to_json()),
            "variables": [variable.path for variable in model.trainable_variables],
            "values": [numbers(value) for value in values], "inputs": numbers(rows(inputs.values())),
            "outputs": numbers(outputs), "weights": numbers(weights),
            "gradients": [numbers(gradient) for gradient in gradients], "targets": numbers(targets),
            "losses": numbers(losses)}


result = {name: record(model, inputs) for name, (model, inputs) in CASES.items()}
# Recorded after the others, whose numbers stay as they are.
for name, cell, with_states in (("apart", L.LSTM, False), ("apart_states", L.GRU, True)):
    result[name] = record(*apart(cell, with_states))
result["of_images"] = record(of_images(), [vectors(2, 5, 4, 2), vectors(3, 5, 4, 1)])
result["given_images"] = record(*given_images())
import tf_keras  # noqa: E402  Keras 2: the same models, as that version writes them

for name, model, like in (("keras2", encoder_decoder(tf_keras), "encoder_decoder"),
                          ("masked_keras2", masked("GRU", keras=tf_keras), "masked_gru"),
                          ("of_images_keras2", of_images(tf_keras), "of_images")):
    result[name] = dict(result[like], model=json.loads(model.to_json()))
    values = zip(result[like]["values"], model.weights)
    model.set_weights([np.reshape(value, weight.shape) for value, weight in values])
    inputs = np.split(np.reshape(result[like]["inputs"], (EXAMPLES, -1)).astype("float32"),
                      [int(np.prod(model.inputs[0].shape[1:]))], axis=1)
    outputs = numbers(model([np.reshape(value, (-1, *tensor.shape[1:])) for value, tensor in zip(inputs, model.inputs)]))
    assert np.allclose(outputs, result[like]["outputs"], atol=1e-5), name
(HERE / "states.json").write_text(json.dumps(result, separators=(",", ":")).replace('},"', '},\n"') + "\n")
