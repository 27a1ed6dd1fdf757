"""Made the files in this folder, with Keras 3.15.1 on TensorFlow 2.21.0: pip install keras==3.15.1
tensorflow-cpu==2.21.0.

layers.json: TextVectorization with several options, texts, and their ids. reviews.keras: a model of texts whose
vocabularies adapt() has made; reviews.csv: texts with labels, and reviews_outputs.npy: the outputs for them.
"""

import csv
import json
import os
import pathlib
import zipfile

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

L = keras.layers
HERE = pathlib.Path(__file__).parent
LEARNED = ["The film was good, the cast GREAT!", "a film; the WORST.  badly\tmade\nthe end", "été État Über straße", "",
           "it's a_b $5"]
TEXTS = LEARNED + ["great  film unknown words the the", "  lead and trail  ", "ÄÖÜ İstanbul 漢字"]


def tensor(texts):
    return tf.constant([[text] for text in texts])


def layer_cases():
    yield {"output_sequence_length": 6}
    yield {"output_sequence_length": 9, "ngrams": 2}
    yield {"output_sequence_length": 9, "ngrams": (3, 1)}
    yield {"output_sequence_length": 30, "split": "character", "standardize": "lower"}
    yield {"output_sequence_length": 8, "split": "character", "standardize": "strip_punctuation", "ngrams": (2,)}
    yield {"output_sequence_length": 4, "split": None}
    yield {"output_sequence_length": 5, "standardize": None, "max_tokens": 8}


def write_layers():
    cases = []
    for options in layer_cases():
        layer = L.TextVectorization(**options)
        layer.adapt(LEARNED)
        tokens = [str(token) for token in layer.get_vocabulary(include_special_tokens=False)]
        config = {**layer.get_config(), "name": "tested", "vocabulary": tokens}
        cases.append({"config": config, "texts": TEXTS, "ids": np.asarray(layer(tensor(TEXTS))).tolist()})
    lines = ",\n".join(json.dumps(case, default=keras.saving.serialize_keras_object) for case in cases)
    (HERE / "layers.json").write_text(f"[\n{lines}\n]\n")


def write_model():
    text = keras.Input((), dtype="string", name="text")
    layers = [L.TextVectorization(output_sequence_length=6, ngrams=2, name="pairs"),
              L.TextVectorization(output_mode="multi_hot", max_tokens=9, pad_to_max_tokens=True, name="words"),
              L.TextVectorization(output_mode="count", split="character", name="characters"),
              L.TextVectorization(output_mode="tf_idf", standardize="lower", name="weighted")]
    for layer in layers:
        # Line breaks of a vocabulary are lost in the file.
        layer.adapt(["the film"] if layer.name == "characters" else LEARNED)
    ids = layers[0](text)
    rows = L.Embedding(layers[0].vocabulary_size(), 3, name="rows")(ids)
    joined = L.Concatenate()([L.GlobalAveragePooling1D()(rows)] + [layer(text) for layer in layers[1:]])
    model = keras.Model(text, L.Dense(1, activation="sigmoid", name="liked")(joined))
    random = np.random.default_rng(1)
    for variable in model.trainable_weights:
        variable.assign(random.normal(0, 0.4, variable.shape))
    model.compile("adam", loss="binary_crossentropy")
    path = HERE / "reviews.keras"
    model.save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member, zipfile.ZIP_DEFLATED)
    np.save(HERE / "reviews_outputs.npy", np.asarray(model(tf.constant(TEXTS))))
    with open(HERE / "reviews.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writerow(["text", "label"])
        writer.writerows([text, i % 2] for i, text in enumerate(TEXTS))


write_layers()
write_model()
