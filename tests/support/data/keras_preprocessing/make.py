"""Made the files in this folder, with Keras 3.15.1 on TensorFlow 2.16.2: pip install keras==3.15.1
tensorflow-cpu==2.16.2; and with "keras2" as its argument, with tf_keras 2.16.0.

layers.json: layers with their inputs and outputs. two_towers.keras: a model whose vocabularies and idf_weights adapt()
has made, and two_towers.json, the same by to_json() with given vocabularies; two_towers.csv: inputs, and
two_towers_outputs.npy: the outputs for them. keras2.keras, keras2.json, keras2_outputs.npy: the same of Keras 2.
"""

import json
import os
import pathlib
import sys
import zipfile

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
KERAS2 = sys.argv[1:] == ["keras2"]
if KERAS2:
    import tf_keras as keras  # noqa: E402
else:
    import keras  # noqa: E402
import numpy as np  # noqa: E402

L = keras.layers
HERE = pathlib.Path(__file__).parent
WORDS = ["", "a", "abc", "Paris", "São Paulo", "sixteen letters!", "seventeen letters", "x" * 32, "y" * 33, "z" * 64,
         "longer than sixty-four bytes, so that all of the hash's loops are run: " + "0123456789" * 13]
NUMBERS = [0, 1, -1, 7, -8, 10, 20, 30, 4711, 2**31, -2**31, 2**62, -2**63]


def layer_cases():
    def texts(layer, values, **kwargs):
        yield layer(**kwargs), "string", values

    column = [[word] for word in WORDS]
    numbers = [[number] for number in NUMBERS]
    bags = [["b", "a", "b"], ["c", "q", "a"], ["", "", "q"]]
    number_bags = [[10, 20, 10], [30, 5, 20], [0, 0, 7]]
    for kwargs in [{"num_bins": 7}, {"num_bins": 1000003}, {"num_bins": 1}, {"num_bins": 97, "salt": 1337},
                   {"num_bins": 97, "salt": [3, -4]}, {"num_bins": 10, "salt": [2**63 - 1, 0]}]:
        yield from texts(L.Hashing, column, **kwargs)
        yield from texts(L.Hashing, column, mask_value="abc", **kwargs)
        yield L.Hashing(**kwargs), "int64", numbers
        yield L.Hashing(mask_value=7, **kwargs), "int64", numbers
    for mode in ["multi_hot", "count"]:
        yield L.Hashing(num_bins=4, output_mode=mode), "string", bags
        yield L.Hashing(num_bins=4, output_mode=mode), "int64", number_bags
    yield L.Hashing(num_bins=4, output_mode="one_hot"), "string", column
    for kwargs in [{}, {"num_oov_indices": 2}, {"num_oov_indices": 5, "mask_token": ""}, {"mask_token": "q"},
                   {"vocabulary": ["", "[UNK]", "a", "b", "c"], "mask_token": ""},
                   {"num_oov_indices": 3, "salt": [5, 6]}]:
        kwargs = {"vocabulary": ["a", "b", "c"], **kwargs}
        yield from texts(L.StringLookup, bags, **kwargs)
        for mode in ["multi_hot", "count"] if "[UNK]" not in kwargs["vocabulary"] else []:
            yield from texts(L.StringLookup, bags, output_mode=mode, **kwargs)
    for mask in [None, "a"]:
        yield from texts(L.StringLookup, [["a"], ["c"], ["q"]], vocabulary=["b", "c"], output_mode="one_hot",
                         mask_token=mask)
    yield from texts(L.StringLookup, [["b", "a"]], vocabulary=["a", "b"], num_oov_indices=0)
    yield from texts(L.StringLookup, bags, vocabulary=["a", "b", "c"], output_mode="tf_idf", idf_weights=[.5, .25, 3.])
    yield from texts(L.StringLookup, bags, vocabulary=["[UNK]", "a", "b"], output_mode="tf_idf",
                     idf_weights=[.1, .25, 3.])
    yield from texts(L.StringLookup, bags, vocabulary=["a", "b"], output_mode="tf_idf", idf_weights=[.25, 3.],
                     max_tokens=6, pad_to_max_tokens=True)
    for kwargs in [{}, {"num_oov_indices": 2}, {"num_oov_indices": 3, "mask_token": 0}, {"mask_token": 7},
                   {"num_oov_indices": 4, "oov_method": "farmhash"},
                   {"num_oov_indices": 4, "oov_method": "farmhash", "salt": 9}]:
        yield L.IntegerLookup(vocabulary=[10, 20, 30], **kwargs), "int64", numbers
        for mode in ["multi_hot", "count"]:
            yield L.IntegerLookup(vocabulary=[10, 20, 30], output_mode=mode, **kwargs), "int64", number_bags
    yield (L.IntegerLookup(vocabulary=[10, 20, 30], output_mode="count", max_tokens=9, pad_to_max_tokens=True), "int64",
           number_bags)
    yield L.IntegerLookup(vocabulary=[10, 20, 30], output_mode="tf_idf", idf_weights=[1., 2., 4.]), "int64", number_bags
    for mode in ["multi_hot", "count"]:
        yield L.CategoryEncoding(num_tokens=31, output_mode=mode), "int64", number_bags
    yield L.CategoryEncoding(num_tokens=31, output_mode="one_hot"), "int64", [[10], [0], [30]]
    yield L.CategoryEncoding(num_tokens=31, output_mode="one_hot"), "int64", number_bags
    floats = [[-5.0], [-1.0], [0.0], [0.1], [0.5], [np.float32(0.7).item()], [0.75], [9.0]]
    yield L.Discretization([-1.0, 0.1, 0.5, 0.7]), "float32", floats
    yield L.Discretization([-1.0, 0.1, 0.5, 0.7], output_mode="one_hot"), "float32", floats
    yield L.Discretization([0.0, 1.0], output_mode="count"), "float32", [[0.5, 0.25, 3.0], [1.0, -1.0, 0.0]]


def write_layers():
    cases = []
    for layer, dtype, values in layer_cases():
        values = np.array(values, dtype=object if dtype == "string" else dtype)
        inputs = keras.ops.convert_to_tensor(values) if dtype != "string" else __import__("tensorflow").constant(values)
        outputs = np.asarray(layer(inputs))
        cases.append({"class_name": type(layer).__name__, "config": {**layer.get_config(), "name": "tested"},
                      "dtype": dtype, "inputs": values.tolist(), "outputs": outputs.tolist()})
    lines = ",\n".join(json.dumps(case, default=keras.saving.serialize_keras_object) for case in cases)
    (HERE / "layers.json").write_text(f"[\n{lines}\n]\n")


CITIES = ["Paris", "Rome", "Oslo", "Lima", "São Paulo"]
USERS = [1001, 17, 2**40, 5, 999]


def two_towers(adapted):
    city, user = keras.Input((1,), dtype="string", name="city"), keras.Input((1,), dtype="int64", name="user")
    words = keras.Input((3,), dtype="string", name="words")
    age, item = keras.Input((1,), name="age"), keras.Input((1,), dtype="string", name="item")
    cities = L.StringLookup(mask_token="", vocabulary=None if adapted else CITIES[:4], name="cities")
    users = L.IntegerLookup(num_oov_indices=2, vocabulary=None if adapted else USERS[:4], name="users")
    counts = (L.StringLookup(output_mode="tf_idf", name="counts") if adapted else
              L.StringLookup(output_mode="tf_idf", name="counts", vocabulary=["red", "blue"], idf_weights=[0.5, 0.75]))
    if adapted:
        cities.adapt(np.array(CITIES[:4] * 2))
        users.adapt(np.array([USERS[:4] * 2]).T)
        counts.adapt(np.array([["red", "blue", "green"], ["red", "blue", "black"], ["red", "white", "grey"]]))
    deep_city = L.Flatten()(L.Embedding(8, 3, name="city_rows")(cities(city)))
    user_ids = users(user)
    deep_user = L.Flatten()(L.Embedding(6, 2, name="user_rows")(user_ids))
    wide_user = L.CategoryEncoding(num_tokens=6, output_mode="one_hot", name="user_wide")(user_ids)
    hashed = L.Flatten()(L.Embedding(10, 2, name="item_rows")(L.Hashing(10, salt=[1, 2], name="buckets")(item)))
    crossed = L.Hashing(5, output_mode="multi_hot", name="items")(item)
    ages = L.Flatten()(L.Embedding(4, 2, name="age_rows")(L.Discretization([18.0, 30.5, 65.0], name="ages")(age)))
    joined = L.Concatenate()([deep_city, deep_user, wide_user, hashed, crossed, ages, counts(words)])
    model = keras.Model([city, user, words, age, item], L.Dense(1, activation="sigmoid", name="click")(joined))
    random = np.random.default_rng(1)
    for variable in model.trainable_weights:
        variable.assign(random.normal(0, 0.4, variable.shape))
    model.compile("adam", loss="binary_crossentropy")
    return model


def write_model(name, model):
    rows = [["Paris", 1001, "red red blue", 17, "i-1"], ["Rome", 17, "blue grey pink", 18, "i-2"],
            ["", 2**40, "black red white", 30.5, ""], ["Berlin", 4, "pink pink pink", 64.5, "ünï"],
            ["São Paulo", -7, "red blue green", 65, "i-1"], ["Oslo", 5, "white white red", 80, "x" * 70]]
    text = "city,user,words,age,item,label\n"
    text += "".join(",".join(map(str, row)) + f",{i % 2}\n" for i, row in enumerate(rows))
    (HERE / "two_towers.csv").write_text(text, encoding="utf-8")
    columns = list(zip(*rows))
    inputs = [np.array(columns[0], object)[:, None], np.array(columns[1], "i8")[:, None],
              np.array([words.split() for words in columns[2]], object), np.array(columns[3], "f4")[:, None],
              np.array(columns[4], object)[:, None]]
    tensors = [__import__("tensorflow").constant(array) for array in inputs]
    np.save(HERE / f"{name}_outputs.npy", np.asarray(model(tensors)))


def pack(path):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member, zipfile.ZIP_DEFLATED)


adapted = two_towers(adapted=True)
name = "keras2" if KERAS2 else "two_towers"
adapted.save(HERE / f"{name}.keras")
pack(HERE / f"{name}.keras")
write_model(name, adapted)
(HERE / f"{name}.json").write_text(json.dumps(json.loads(two_towers(adapted=False).to_json()), indent=1) + "\n")
if not KERAS2:
    write_layers()
