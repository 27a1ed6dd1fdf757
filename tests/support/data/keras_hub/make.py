"""Records what models of keras_hub compute, in models.json, for tests/unit/nn/keras_hub_test.cc, and writes gpt2.keras
for tests/unit/worker/export/keras_weights_test.cc.

    KERAS_BACKEND=jax python make.py

Needs keras_hub 0.32, Keras 3.15 and JAX. The models have no dropout. `losses` are the mean squares of the outputs in
three steps of SGD.
"""

import json
import pathlib
import zipfile

import jax
import keras
import numpy as np
from keras import layers
from keras_hub import layers as hub
from keras_hub import models

HERE = pathlib.Path(__file__).parent
EXAMPLES, LENGTH, VOCABULARY, WIDTH, LEARNING_RATE = 3, 5, 11, 16, 0.005
SIZES = {"vocabulary_size": VOCABULARY, "num_layers": 2, "hidden_dim": WIDTH, "intermediate_dim": 6, "dropout": 0}
HEADS = {"num_heads": 2, "max_sequence_length": 7}
GROUPS = {"num_query_heads": 4, "num_key_value_heads": 2}


def ids(name, length=LENGTH):
    return keras.Input((length,), dtype="int32", name=name)


def masked_encoder():
    """The mask is that of the ids. Two steps are masked in the first example, and one in the second."""
    tokens = ids("ids")
    x = hub.TokenAndPositionEmbedding(VOCABULARY, 7, WIDTH, mask_zero=True)(tokens)
    x = hub.TransformerEncoder(6, 2, activation="gelu")(x)
    x = hub.TransformerEncoder(6, 2, normalize_first=True)(x)
    x = layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)
    return tokens, layers.Flatten()(x)


def masked_decoder():
    tokens = ids("ids")
    x = hub.TokenAndPositionEmbedding(VOCABULARY, 7, WIDTH, mask_zero=True)(tokens)
    x = hub.TransformerDecoder(6, 2)(x)
    return tokens, layers.GlobalAveragePooling1D()(x)


def decoder_with_encoder():
    tokens, encoded = ids("ids"), keras.Input((4, WIDTH), name="encoded")
    padding, encoder_padding, pairs = ids("padding_mask"), ids("encoder_mask", 4), keras.Input((LENGTH, LENGTH), name="pairs")
    embedding = hub.ReversibleEmbedding(VOCABULARY, WIDTH, tie_weights=False, name="words")
    x = embedding(tokens)
    x = layers.Add()([x, hub.PositionEmbedding(7)(x), hub.SinePositionEncoding(max_wavelength=100)(x)])
    x = hub.TransformerDecoder(6, 2, normalize_first=True)(
        x, encoded, decoder_padding_mask=padding, encoder_padding_mask=encoder_padding, decoder_attention_mask=pairs)
    x = hub.TransformerDecoder(6, 2)(x, encoded, use_causal_mask=False)
    x = hub.CachedMultiHeadAttention(2, 4)(hub.RotaryEmbedding(max_wavelength=50)(x), x)
    return [tokens, encoded, padding, encoder_padding, pairs], embedding(x, reverse=True)


def flat():
    """The layers of a backbone in a model of their own, and a step of its output."""
    backbone = models.GPT2Backbone(**SIZES, **HEADS)
    last = layers.Dense(WIDTH, name="last")(backbone.output[:, -1, :])
    return backbone.input, backbone.token_embedding(last, reverse=True)


def nested():
    backbone = models.LlamaBackbone(**SIZES, **GROUPS)
    inputs = {name: ids(name) for name in ("padding_mask", "token_ids")}
    return inputs, layers.Dense(3, name="scores")(backbone(inputs)[:, 0])


def lm(backbone, model):
    return model(backbone=backbone, preprocessor=None)


MODELS = {
    "masked_encoder": lambda: keras.Model(*masked_encoder()),
    "masked_decoder": lambda: keras.Model(*masked_decoder()),
    "decoder_with_encoder": lambda: keras.Model(*decoder_with_encoder()),
    "flat": lambda: keras.Model(*flat()),
    "nested": lambda: keras.Model(*nested()),
    "gpt2": lambda: lm(models.GPT2Backbone(**SIZES, **HEADS), models.GPT2CausalLM),
    "bert": lambda: models.BertTextClassifier(backbone=models.BertBackbone(**SIZES, **HEADS), num_classes=3, dropout=0,
                                              preprocessor=None),
    "llama": lambda: lm(models.LlamaBackbone(**SIZES, **GROUPS), models.LlamaCausalLM),
    "llama3": lambda: lm(models.LlamaBackbone(
        **SIZES, **GROUPS, rope_max_wavelength=100, rope_frequency_adjustment_factor=4,
        rope_low_freq_factor=1, rope_high_freq_factor=3, rope_pretraining_sequence_length=40), models.LlamaCausalLM),
}


def set_values(model):
    for variable in model.trainable_variables:
        i = np.arange(np.prod(variable.shape))
        salt = sum(map(ord, variable.path))
        center = 1 if variable.name in ("gamma", "scale") else 0
        variable.assign((center + ((i * i * 31 + i * 17 + salt) % 101 - 50) / 100).reshape(variable.shape))


def inputs_of(model):
    random = np.random.default_rng(1)
    values = {}
    for tensor in model.inputs:
        shape = (EXAMPLES, *(size or LENGTH for size in tensor.shape[1:]))
        if tensor.name == "encoded":
            values[tensor.name] = random.uniform(-1, 1, shape).round(3).astype("float32")
        elif tensor.name == "pairs":
            values[tensor.name] = np.maximum(random.integers(0, 2, shape), np.eye(LENGTH, dtype="int32")).astype("float32")
        elif tensor.name == "segment_ids":
            values[tensor.name] = random.integers(0, 2, shape).astype("int32")
        else:
            values[tensor.name] = random.integers(1, VOCABULARY, shape).astype("int32")
            if "mask" in tensor.name:
                values[tensor.name][:] = 1
            if "mask" in tensor.name or tensor.name == "ids":
                values[tensor.name][0, 3:] = 0
                values[tensor.name][1, -1] = 0
    return values


def compress(path):
    """Keras does not compress its archives, and most of a small HDF5 file is zeros."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def numbers(values):
    return [float(f"{value:.6g}") for value in np.asarray(values).ravel()]


def record(name, model):
    set_values(model)
    inputs = inputs_of(model)
    fixed = [variable.value for variable in model.non_trainable_variables]
    arguments = inputs if isinstance(model.input, dict) else keras.tree.pack_sequence_as(model.input, list(inputs.values()))

    def loss_of(trainable):
        outputs, _ = model.stateless_call(trainable, fixed, arguments, training=True)
        return (outputs ** 2).mean(), outputs

    trained, losses, first = [variable.value for variable in model.trainable_variables], [], None
    for _ in range(3):
        (loss, outputs), gradients = jax.value_and_grad(loss_of, has_aux=True)(trained)
        first = outputs if first is None else first
        losses.append(float(f"{loss:.7g}"))
        trained = [value - LEARNING_RATE * gradient for value, gradient in zip(trained, gradients)]
    if name == "gpt2":
        model.save(HERE / "gpt2.keras")
        compress(HERE / "gpt2.keras")
    document = json.loads(model.to_json())
    document.pop("compile_config", None)
    return {"name": name, "model": document,
            "inputs": {key: {"shape": value.shape, "values": numbers(value)} for key, value in inputs.items()},
            "variables": sorted(variable.path for variable in model.variables if "seed" not in variable.path),
            "outputs": numbers(first), "losses": losses}


def main():
    assert keras.config.backend() == "jax", "run with KERAS_BACKEND=jax"
    lines = []
    for name, make in MODELS.items():
        keras.utils.clear_session()
        lines.append(json.dumps(record(name, make()), separators=(",", ":")))
    (HERE / "models.json").write_text("[" + ",\n".join(lines) + "]\n")


if __name__ == "__main__":
    main()
