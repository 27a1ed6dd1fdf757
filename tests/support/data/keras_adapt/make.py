"""Made cases.json in this folder, with Keras 3.15.1 on TensorFlow: pip install keras==3.15.1 tensorflow-cpu.

Each case has the config of a layer before adapt(), the shape and type of its input, rows of a training set, and what
adapt() found in them.
"""

import json
import os
import pathlib

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

L = keras.layers
TEXTS = ["The film was good, the cast GREAT!", "a film; the WORST.  badly made the end", "été État Über straße", "",
         "it's a_b $5", "b a b c a", "the [UNK] zz film"]
WORDS = [["a", "b", ""], ["b", "c", "a"], ["mask", "b", "other"], ["Z", "c", "mask"], ["zz", "é", "other"]]
NUMBERS = [[3, 5, 0], [5, 7, 3], [-1, 5, 12], [0, -4, 3], [7, 9, 3]]


def case(layer, rows, dtype="float32"):
    if dtype == "string":
        data = tf.constant(rows)
        layer.adapt(data)
    else:
        data = np.array(rows, dtype)
        layer.adapt(data)
    config = layer.get_config()
    lookup = getattr(layer, "_lookup_layer", layer)
    if isinstance(layer, L.Discretization):
        learned = {"bin_boundaries": config.pop("bin_boundaries")}
    elif isinstance(layer, L.Normalization):
        learned = {"mean": keras.ops.convert_to_numpy(layer.adapt_mean).tolist(),
                   "variance": keras.ops.convert_to_numpy(layer.adapt_variance).tolist()}
        config.update(mean=None, variance=None)
    else:
        tokens = lookup.get_vocabulary(include_special_tokens=False)
        learned = {"vocabulary": [token if isinstance(token, str) else int(token) for token in tokens]}
        if lookup.output_mode == "tf_idf":
            first = lookup._token_start_index()
            learned["idf_weights"] = lookup.idf_weights.numpy()[first:first + len(tokens)].tolist()
        config.update(vocabulary=None, idf_weights=None, vocabulary_size=None)
    config.pop("dtype", None)
    return {"class_name": type(layer).__name__, "config": config, "dtype": dtype, "shape": list(data.shape[1:]),
            "rows": np.array(rows).reshape(len(rows), -1).tolist(), "learned": learned}


def main():
    texts = [[text] for text in TEXTS]
    draw = np.random.default_rng(1)
    skewed = np.exp(draw.normal(0, 1, (997, 1))).round(3)
    images = draw.normal(5, 2, (50, 2, 3)).round(2)
    cases = [
        case(L.TextVectorization(output_sequence_length=3), texts, "string"),
        case(L.TextVectorization(max_tokens=6, output_sequence_length=3), texts, "string"),
        case(L.TextVectorization(output_mode="count", ngrams=2, standardize="lower"), texts, "string"),
        case(L.TextVectorization(output_mode="tf_idf", max_tokens=9), texts, "string"),
        case(L.TextVectorization(split="character", output_sequence_length=9, standardize=None), texts, "string"),
        case(L.TextVectorization(split=None, output_mode="count"), texts, "string"),
        case(L.StringLookup(), WORDS, "string"),
        case(L.StringLookup(mask_token="mask", oov_token="other", num_oov_indices=2, max_tokens=6), WORDS, "string"),
        case(L.StringLookup(mask_token="mask", output_mode="tf_idf", max_tokens=5), WORDS, "string"),
        case(L.IntegerLookup(), NUMBERS, "int64"),
        case(L.IntegerLookup(mask_token=0, max_tokens=5, num_oov_indices=0), NUMBERS, "int64"),
        case(L.IntegerLookup(output_mode="tf_idf"), NUMBERS, "int64"),
        case(L.Discretization(num_bins=4), skewed),
        case(L.Discretization(num_bins=10, epsilon=0.003), skewed),
        case(L.Discretization(num_bins=3), skewed[:12]),
        case(L.Discretization(num_bins=50), skewed[:20]),
        case(L.Normalization(), skewed[:999 // 3 * 3 - 3].reshape(-1, 3)),
        case(L.Normalization(axis=None), skewed[:996].reshape(-1, 3)),
        case(L.Normalization(axis=(1, 2)), images),
        case(L.Normalization(axis=-1), images),
    ]
    path = pathlib.Path(__file__).with_name("cases.json")
    lines = [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in cases]
    path.write_text("[" + ",\n".join(lines) + "]\n")


if __name__ == "__main__":
    main()
