"""Records what keras_hub generates, in generated.json, for tests/unit/worker/export/generation_test.cc, and writes
translation.keras for tests/integration/language_models_test.py.

    KERAS_BACKEND=jax python make_generated.py

Needs keras_hub 0.32, Keras 3.15 and JAX. Variables have the values of make.py, times a factor.
"""

import json
import pathlib

import keras
import numpy as np
from keras import layers
from keras_hub import layers as hub
from keras_hub import models, samplers
from make import GROUPS, HEADS, SIZES, VOCABULARY, compress, lm, set_values

HERE = pathlib.Path(__file__).parent
LENGTH, SOURCE, START = 7, 5, 1


def translation():
    """The mask of the source is that of its ids."""
    source = keras.Input((SOURCE,), dtype="int32", name="encoder_inputs")
    tokens = keras.Input((LENGTH,), dtype="int32", name="decoder_inputs")
    encoded = hub.TokenAndPositionEmbedding(9, SOURCE, 8, mask_zero=True, name="source_embedding")(source)
    encoded = hub.TransformerEncoder(6, 2, name="encoder")(encoded)
    x = hub.TokenAndPositionEmbedding(VOCABULARY, LENGTH, 8, name="embedding")(tokens)
    x = hub.TransformerDecoder(6, 2, name="decoder")(x, encoded)
    x = hub.TransformerDecoder(6, 2, normalize_first=True, name="decoder_2")(x, encoded)
    return keras.Model([source, tokens], layers.Dense(VOCABULARY, name="scores")(x))


def record(name, model, factor, sources, prompt, sampler):
    """Generates a row for each source, or one row without a source."""
    set_values(model)
    for variable in model.trainable_variables:
        variable.assign(variable * factor)
    rows, margin = [], np.inf

    def next_of(source):
        def next(tokens, cache, index):
            nonlocal margin
            ids = np.asarray(tokens)
            if source is not None:
                arguments = [np.repeat([source], len(ids), 0).astype("int32"), ids]
            else:
                arguments = {"padding_mask": np.ones_like(ids), "token_ids": ids}
            logits = np.asarray(model(arguments))[:, int(index) - 1]
            best = np.sort(logits[0])
            margin = min(margin, best[-1] - best[-2])
            return logits, None, cache
        return next

    for source in sources:
        tokens = np.zeros((1, LENGTH), "int32")
        tokens[0, :len(prompt)] = prompt
        mask = np.arange(LENGTH)[None] < len(prompt)
        sampler.run_loop = run_loop
        rows.append(np.asarray(sampler(next_of(source), tokens, index=len(prompt), mask=mask))[0, len(prompt):].tolist())
    assert margin > 0.01, margin
    if name == "translation":
        model.save(HERE / "translation.keras")
        compress(HERE / "translation.keras")
    document = json.loads(model.to_json())
    document.pop("compile_config", None)
    return {"name": name, "model": document, "factor": factor, "sources": sources, "prompt": prompt, "rows": rows}


def run_loop(cond, body, loop_vars, maximum_iterations, model=None):
    """Without a compiler, so that `next` may look at its arguments."""
    for _ in range(int(maximum_iterations)):
        loop_vars = body(*loop_vars)
    return loop_vars


def main():
    assert keras.config.backend() == "jax", "run with KERAS_BACKEND=jax"
    sources = [[3, 8, 4, 5, 7], [6, 1, 0, 0, 0], [2, 2, 5, 0, 0]]
    kinds = {
        "gpt2": (lambda: lm(models.GPT2Backbone(**SIZES, **HEADS), models.GPT2CausalLM), 3, [None], [5, 1]),
        "llama": (lambda: lm(models.LlamaBackbone(**SIZES, **GROUPS), models.LlamaCausalLM), 1.5, [None], [5, 1, 4]),
        "translation": (translation, 1, sources, [START]),
    }
    lines = []
    for name, (make, factor, sources, prompt) in kinds.items():
        for beams in (1, 3):
            keras.utils.clear_session()
            sampler = samplers.GreedySampler() if beams == 1 else samplers.BeamSampler(num_beams=beams)
            lines.append(json.dumps({"beams": beams, **record(name, make(), factor, sources, prompt, sampler)},
                                    separators=(",", ":")))
    (HERE / "generated.json").write_text("[" + ",\n".join(lines) + "]\n")


if __name__ == "__main__":
    main()
