"""Records models that compute masks from their ids, in keras_masks.json, for tests/unit/nn/keras_masks_test.cc.

    KERAS_BACKEND=jax python keras_masks.py

Needs Keras 3.15 and JAX. The loss is the mean squared error with targets of 0.
"""

import json
import pathlib

import jax
import keras
import numpy as np
from keras import layers, ops

STEPS, IDS, END = 6, 10, 3


def same_text(ids):
    """[steps, steps]: whether two steps belong to one text, which ends with END."""
    ends = ops.cast(ops.equal(ids, END), "int32")
    text = ops.cumsum(ends, axis=1) - ends
    return ops.equal(ops.expand_dims(text, 2), ops.expand_dims(text, 1))


def packed_texts():
    ids = keras.Input((STEPS,), dtype="int32", name="tokens")
    h = layers.Embedding(IDS, 8, name="embedding")(ids)
    h = layers.MultiHeadAttention(2, 4, name="attention")(h, h, attention_mask=same_text(ids), use_causal_mask=True)
    return keras.Model(ids, layers.Dense(5, name="scores")(h))


def packed_and_padded_texts():
    """The automatic mask of mask_zero, the causal mask and attention_mask in one layer."""
    ids = keras.Input((STEPS,), dtype="int32", name="tokens")
    h = layers.Embedding(IDS, 8, mask_zero=True, name="embedding")(ids)
    h = layers.MultiHeadAttention(2, 4, name="attention")(h, h, attention_mask=same_text(ids), use_causal_mask=True)
    return keras.Model(ids, layers.Dense(5, name="scores")(ops.sum(h, axis=1)))


def padding_mask():
    """A mask of one row for all queries, and a mean over the ids that are no padding."""
    ids = keras.Input((STEPS,), dtype="int32", name="tokens")
    keep = ops.not_equal(ids, 0)
    h = layers.Embedding(IDS, 8, name="embedding")(ids)
    h = layers.MultiHeadAttention(2, 4, name="attention")(h, h, attention_mask=keep[:, None, :])
    h = ops.where(keep[..., None], h, 0.0)
    count = ops.maximum(ops.sum(ops.cast(keep, "float32"), axis=1, keepdims=True), 1.0)
    return keras.Model(ids, layers.Dense(5, name="scores")(ops.sum(h, axis=1) / count))


def mask_for_all_heads():
    """[1, 1, steps], as other libraries write it."""
    ids = keras.Input((STEPS,), dtype="int64", name="tokens")
    keep = ops.logical_and(ids > 0, ops.less(ids, 5))[:, None, None, :]
    h = layers.Embedding(IDS, 8, name="embedding")(ids)
    h = layers.MultiHeadAttention(2, 4, name="attention")(h, h, attention_mask=keep)
    return keras.Model(ids, layers.Dense(5, name="scores")(ops.max(h, axis=1)))


def large_ids():
    """Ids that float32 does not distinguish."""
    a, b = (keras.Input((STEPS,), dtype="int32", name=name) for name in "ab")
    equal = ops.cast(ops.equal(a, ops.cast(b, "int64")), "float32")
    known = ops.cast(ops.expand_dims(a, 1) >= 2**24 + 1, "float32")
    other = ops.cast(ops.not_equal(b, np.arange(STEPS) + 2**24), "float32")
    return keras.Model([a, b], layers.Dense(5, name="scores")(ops.concatenate([equal, known[:, 0], other], axis=-1)))


TEXTS = [[1, 2, 3, 4, 1, 3], [2, 3, 4, 3, 5, 6], [5, 5, 5, 5, 5, 3]]
PADDED = [[1, 2, 3, 4, 0, 0], [0, 3, 4, 3, 5, 6], [5, 0, 5, 5, 5, 3]]
LARGE = [[2**24, 2**24 + 1, 2**24 + 2, 5, 7, 2**31 - 1], [2**24 + 1, 0, 2**24 + 3, -1, 2**30, 2**30 + 1], [1, 2, 3, 4, 5, 6]]
NEXT = [[2**24 + 1, 2**24 + 1, 2**24 + 2, 5, 6, 2**31 - 2], [2**24, 0, 2**24 + 2, -1, 2**30 + 1, 2**30 + 1], [1, 2, 3, 4, 5, 6]]
CASES = [
    (packed_texts, [TEXTS]), (packed_and_padded_texts, [PADDED]), (padding_mask, [PADDED]), (mask_for_all_heads, [PADDED]),
    (large_ids, [LARGE, NEXT]),
]


def numbers(values):
    return [float(f"{value:.6g}") for value in np.asarray(values).ravel()]


def record(make, ids):
    keras.utils.clear_session()
    model = make()
    random = np.random.default_rng(sum(map(ord, make.__name__)))
    for variable in model.variables:
        variable.assign(random.uniform(-1, 1, variable.shape).round(3))
    inputs = [np.array(of_input, tensor.dtype) for of_input, tensor in zip(ids, model.inputs)]

    def loss_of(trainable):
        outputs, _ = model.stateless_call(trainable, [], inputs if len(inputs) > 1 else inputs[0], training=True)
        return (outputs ** 2).mean(), outputs

    (loss, outputs), gradients = jax.value_and_grad(loss_of, has_aux=True)([v.value for v in model.trainable_variables])
    config = json.loads(model.to_json())["config"]
    return {
        "name": make.__name__, "model": {"class_name": "Functional", "config": config},
        "variables": {v.path: numbers(v) for v in model.variables}, "inputs": ids, "outputs": numbers(outputs),
        "loss": float(f"{loss:.6g}"), "gradients": {v.path: numbers(g) for v, g in zip(model.trainable_variables, gradients)},
    }


def main():
    assert keras.config.backend() == "jax", "run with KERAS_BACKEND=jax"
    lines = [json.dumps(record(*case), separators=(",", ":")) for case in CASES]
    pathlib.Path(__file__).with_suffix(".json").write_text("[" + ",\n".join(lines) + "]\n")


if __name__ == "__main__":
    main()
