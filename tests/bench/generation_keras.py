"""Writes a GPT-2 of keras_hub with random weights and a prompt, and measures how fast keras_hub generates with it.

    KERAS_BACKEND=jax tests/bench/generation_keras.py DIR [--layers 6] [--width 384]

DIR/gpt2.keras is the model, and DIR/windows.keras is the same with a Reshape at its end, for which Cairn computes whole
windows. Then `cairn predict DIR/gpt2.keras DIR/prompt.npy --input_shape padding_mask:256,token_ids:256 --generate 192`
generates as many tokens. Needs keras_hub 0.32 and Keras 3.15.
"""

import argparse
import pathlib
import time

import keras
import numpy as np
from keras_hub import models

VOCABULARY, PROMPT, LENGTH = 5000, 64, 256


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)
    backbone = models.GPT2Backbone(vocabulary_size=VOCABULARY, num_layers=arguments.layers, num_heads=6,
                                   hidden_dim=arguments.width, intermediate_dim=4 * arguments.width,
                                   max_sequence_length=LENGTH)
    model = models.GPT2CausalLM(backbone=backbone, preprocessor=None)
    model.compile(sampler="greedy")
    arguments.directory.mkdir(parents=True, exist_ok=True)
    model.save(arguments.directory / "gpt2.keras")
    logits = backbone.token_embedding(backbone.output, reverse=True)
    windows = keras.Model(backbone.input, keras.layers.Reshape((LENGTH, VOCABULARY))(logits))
    windows.save(arguments.directory / "windows.keras")
    prompt = np.random.default_rng(1).integers(1, VOCABULARY, PROMPT).astype("int32")
    np.save(arguments.directory / "prompt.npy", prompt)

    ids, mask = np.zeros((2, 1, LENGTH), "int32")
    ids[0, :PROMPT], mask[0, :PROMPT] = prompt, 1
    for repeat in range(arguments.repeats + 1):
        start, cpu = time.perf_counter(), time.process_time()
        made = model.generate({"token_ids": ids, "padding_mask": mask}, stop_token_ids=None)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        if repeat == 0:  # this call compiles
            print(*np.asarray(made["token_ids"])[0])
        else:
            print(f"{LENGTH - PROMPT} tokens in {seconds:.2f} s, {cpu:.2f} s of the CPU")


if __name__ == "__main__":
    main()
