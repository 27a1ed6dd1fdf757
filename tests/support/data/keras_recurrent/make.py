"""Made models.json, with Keras 3.15.1 on JAX 0.10.2: pip install keras==3.15.1 jax==0.10.2

For each model: its description, the values of its variables in Keras' order, inputs, outputs, and the gradients of the
sum of the outputs times `weights`. Id 0, and vectors of -1, are masked. Flatten ends a mask.
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
random = np.random.default_rng(1)
EXAMPLES, STEPS, CHANNELS, UNITS = 3, 4, 3, 3


def vectors():
    values = random.normal(0, 1, (EXAMPLES, STEPS, CHANNELS)).astype("float32")
    values[0, 3] = values[1, 0] = values[1, 2] = -1
    return values


def ids():
    return np.array([[3, 1, 2, 0], [0, 4, 0, 5], [6, 0, 0, 0]], "int32")


def plain(layer):
    return [keras.Input((STEPS, CHANNELS)), layer], vectors()


def masked(*after):
    return [keras.Input((STEPS, CHANNELS)), L.Masking(mask_value=-1.0), *after, L.Flatten()], vectors()


def of_ids(*after):
    return [keras.Input((STEPS,), dtype="int32"), L.Embedding(7, CHANNELS, mask_zero=True), *after], ids()


def functional():
    steps = keras.Input((STEPS,), dtype="int32", name="steps")
    words = L.Embedding(7, CHANNELS, mask_zero=True, name="words")(steps)
    states = L.LSTM(UNITS, return_sequences=True, name="states")(words)
    both = L.Concatenate(name="both")([words, states])
    mean = L.GlobalAveragePooling1D(name="mean")(L.Add(name="sum")([words, states]))
    return keras.Model(steps, L.Concatenate(name="all")([L.GRU(UNITS, name="last")(both), mean])), ids()


CASES = {
    "lstm": plain(L.LSTM(UNITS)),
    "lstm_sequences": plain(L.LSTM(UNITS, return_sequences=True, activation="relu", recurrent_activation="tanh")),
    "lstm_backwards": masked(L.LSTM(UNITS, return_sequences=True, go_backwards=True, use_bias=False)),
    "lstm_zero_output": masked(L.LSTM(UNITS, return_sequences=True, zero_output_for_mask=True)),
    "gru": plain(L.GRU(UNITS)),
    "gru_reset_before": masked(L.GRU(UNITS, reset_after=False, return_sequences=True)),
    "gru_masked": of_ids(L.GRU(UNITS)),
    "gru_without_bias": plain(L.GRU(UNITS, use_bias=False, go_backwards=True)),
    "simple": masked(L.SimpleRNN(UNITS, return_sequences=True)),
    "simple_backwards": plain(L.SimpleRNN(UNITS, go_backwards=True, activation="selu")),
    "both_concat": of_ids(L.Bidirectional(L.LSTM(UNITS, return_sequences=True)), L.Bidirectional(L.GRU(2))),
    "both_sum": masked(L.Bidirectional(L.LSTM(UNITS, return_sequences=True), merge_mode="sum")),
    "both_mul": plain(L.Bidirectional(L.SimpleRNN(UNITS), merge_mode="mul")),
    "both_ave": plain(L.Bidirectional(L.GRU(UNITS, reset_after=False), merge_mode="ave")),
    "two_layers": plain(L.Bidirectional(L.LSTM(2), backward_layer=L.GRU(UNITS, go_backwards=True))),
    "distributed": of_ids(L.TimeDistributed(L.Dense(2, activation="tanh")), L.LSTM(UNITS), L.Dense(2)),
    "averaged": of_ids(L.Dense(2), L.GlobalAveragePooling1D()),
    "graph": functional(),
}


def numbers(values):
    return [float(f"{value:.9g}") for value in np.asarray(values, "float64").ravel()]


result = {}
for name, (model, inputs) in CASES.items():
    model = keras.Sequential(model) if isinstance(model, list) else model
    for variable in model.trainable_variables:
        variable.assign(random.normal(0, 0.6, variable.shape))
    outputs = np.asarray(model(inputs))
    weights = random.normal(0, 1, outputs.shape).astype("float32")
    trainable = [variable.value for variable in model.trainable_variables]
    state = [variable.value for variable in model.non_trainable_variables]

    def loss(values):
        return (model.stateless_call(values, state, inputs)[0] * weights).sum()

    result[name] = {
        "model": json.loads(model.to_json()), "variables": [variable.path for variable in model.trainable_variables],
        "values": [numbers(value) for value in trainable], "inputs": numbers(inputs), "outputs": numbers(outputs),
        "weights": numbers(weights), "gradients": [numbers(value) for value in jax.grad(loss)(trainable)]}
(HERE / "models.json").write_text(json.dumps(result, separators=(",", ":")).replace('},"', '},\n"') + "\n")
