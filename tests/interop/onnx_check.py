"""Cairn's .onnx files in onnxruntime against what Cairn computes itself: by onnx.sh, which installs what this imports.

    onnx_check.py BIN_DIR SOURCE_DIR

Every kind of layer is in one of the networks of NETWORKS. Each is given random values, exported, checked by ONNX's own
checker, and scored by both on the same examples, one at a time and many at once: the batch has no size of its own in
the file.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

TOLERANCE = 2e-5  # float32 sums in other orders, of outputs around 1

IMAGE = {"class_name": "InputLayer", "config": {"name": "image", "batch_shape": [None, 9, 8, 3]}}
VOLUME = {"class_name": "InputLayer", "config": {"name": "volume", "batch_shape": [None, 4, 5, 3, 2]}}
ROW = {"class_name": "InputLayer", "config": {"name": "row", "batch_shape": [None, 6]}}
IDS = {"class_name": "InputLayer", "config": {"name": "ids", "batch_input_shape": [None, None], "dtype": "int64", "ragged": True}}
SHARES = {"class_name": "InputLayer", "config": {"name": "shares", "batch_shape": [None, None], "ragged": True}}
STEPS = {"class_name": "InputLayer", "config": {"name": "steps", "batch_shape": [None, 7], "dtype": "int32"}}


def layer(class_name, **config):
    return {"class_name": class_name, "config": config}


def sequential(*layers):
    return {"class_name": "Sequential", "config": {"layers": list(layers)}}


def functional(inputs, calls, *outputs):
    """`calls`: (layer, [names of what it is called on]); the layer's config has its name."""
    layers = [dict(entry, name=entry["config"]["name"], inbound_nodes=[]) for entry in inputs]
    for entry, sources in calls:
        named = dict(entry, name=entry["config"]["name"])
        named["inbound_nodes"] = [[[*source, {}] for source in call] for call in sources]
        layers.append(named)
    return {"class_name": "Functional", "config": {
        "name": "graph", "layers": layers, "input_layers": [[e["config"]["name"], 0, 0] for e in inputs],
        "output_layers": [[output, 0, 0] for output in outputs]}}


def attention():
    """Attention in all its forms; the heads of `grouped` share keys."""
    document = functional(
        [{"class_name": "InputLayer", "config": {"name": "tokens", "batch_shape": [None, 5, 6]}},
         {"class_name": "InputLayer", "config": {"name": "visible", "batch_shape": [None, 5, 5]}}],
        [(layer("MultiHeadAttention", name="self", num_heads=2, key_dim=3, value_dim=2), [[["tokens", 0, 0], ["tokens", 0, 0]]]),
         (layer("RMSNormalization", name="rms"), [[["self", 0, 0]]]),
         (layer("GroupQueryAttention", name="grouped", head_dim=2, num_query_heads=4, num_key_value_heads=2),
          [[["rms", 0, 0], ["tokens", 0, 0]]]),
         (layer("EinsumDense", name="split", equation="abc,cde->abde", bias_axes="e", output_shape=[None, 2, 3], activation="tanh"),
          [[["grouped", 0, 0]]]),
         (layer("EinsumDense", name="join", equation="...de,def->...f", output_shape=[4]), [[["split", 0, 0]]]),
         (layer("Attention", name="scaled", use_scale=True), [[["join", 0, 0], ["grouped", 0, 0], ["join", 0, 0]]]),
         (layer("AdditiveAttention", name="additive"), [[["join", 0, 0], ["scaled", 0, 0], ["join", 0, 0]]]),
         (layer("Flatten", name="flat"), [[["additive", 0, 0]]]), (layer("Dense", name="scores", units=3), [[["flat", 0, 0]]])], "scores")
    keywords = {"self": {"use_causal_mask": True}, "additive": {"use_causal_mask": True}, "grouped": {"attention_mask": ["visible", 0, 0]}}
    for entry in document["config"]["layers"]:
        if entry["name"] in keywords:
            entry["inbound_nodes"][0][0][3] = keywords[entry["name"]]
    return document


def autoencoder():
    """Penalties and samples, which are not part of inference."""
    return functional(
        [ROW],
        [(layer("Dense", name="mean", units=3, activity_regularizer="l2"), [[["row", 0, 0]]]),
         (layer("Dense", name="log_var", units=3), [[["row", 0, 0]]]),
         (layer("Sampling", name="z", kl_weight=0.5), [[["mean", 0, 0], ["log_var", 0, 0]]]),
         (layer("ActivityRegularization", name="penalty", l1=0.1), [[["z", 0, 0]]]),
         (layer("Dense", name="out", units=4), [[["penalty", 0, 0]]])], "out")


def transformers():
    """Layers of keras_hub, with masks of ids and of the call, and those of which its backbones consist."""
    width = [None, 7, 8]
    decoder = layer("TransformerDecoder", name="decoder", intermediate_dim=5, num_heads=2, decoder_sequence_shape=width)
    encoder = dict(layer("TransformerEncoder", name="encoder", intermediate_dim=5, num_heads=2, activation="gelu",
                         normalize_first=True), build_config={"input_shape": width})
    llama = dict(layer("LlamaTransformerDecoder", name="llama", intermediate_dim=5, num_query_heads=2, num_key_value_heads=1),
                 build_config={"input_shape": width})
    document = functional(
        [STEPS, {"class_name": "InputLayer", "config": {"name": "padding", "batch_shape": [None, 7], "dtype": "int32"}}],
        [(layer("TokenAndPositionEmbedding", name="tokens", vocabulary_size=10, sequence_length=9, embedding_dim=8, mask_zero=True),
          [[["steps", 0, 0]]]),
         (encoder, [[["tokens", 0, 0]]]), (decoder, [[["encoder", 0, 0], ["tokens", 0, 0]]]),
         (layer("ReversibleEmbedding", name="words", input_dim=10, output_dim=8), [[["steps", 0, 0]], [["norm", 0, 0]]]),
         (llama, [[["words", 0, 0]]]), (layer("PositionEmbedding", name="positions", sequence_length=7), [[["llama", 0, 0]]]),
         (layer("SinePositionEncoding", name="sines"), [[["llama", 0, 0]]]),
         (layer("Add", name="sum"), [[["llama", 0, 0], ["positions", 0, 0], ["sines", 0, 0], ["decoder", 0, 0]]]),
         (layer("RotaryEmbedding", name="rotated"), [[["sum", 0, 0]]]),
         (layer("CachedMultiHeadAttention", name="attention", num_heads=2, key_dim=3), [[["rotated", 0, 0], ["sum", 0, 0]]]),
         (layer("LlamaLayerNorm", name="norm"), [[["attention", 0, 0]]]),
         (dict(layer("GetItem", name="last"), module="keras.src.ops.numpy"), [[["words", 1, 0]]])], "last")
    calls = {entry["name"]: entry for entry in document["config"]["layers"]}
    calls["words"]["inbound_nodes"] = [{"args": [["steps", 0, 0]]}, {"args": [["norm", 0, 0]], "kwargs": {"reverse": True}}]
    calls["last"]["inbound_nodes"] = [{"args": [["words", 1, 0], [{"class_name": "__slice__", "config": {"start": None}}, -1]]}]
    calls["llama"]["inbound_nodes"] = [{"args": [["words", 0, 0]], "kwargs": {"decoder_padding_mask": ["padding", 0, 0]}}]
    return document


ACTIVATIONS = ["elu", "exponential", "gelu", "keras_hub>gelu_approximate", "hard_sigmoid", "hard_silu", "leaky_relu", "linear", "relu", "relu6", "selu", "sigmoid", "silu", "softmax", "softplus", "tanh"]

ACTIVATION_LAYERS = [
    layer("LeakyReLU", name="leaky", negative_slope=0.1), layer("ELU", name="half_elu", alpha=0.5), layer("Softmax", name="shares"),
    layer("Identity", name="same"), layer("ReLU", name="cut", max_value=0.75), layer("ReLU", name="sloped", negative_slope=0.25),
    layer("ReLU", name="all_options", max_value=1.0, negative_slope=-0.25, threshold=0.125)]


def side_by_side():
    """Every activation of the same values, whole in the output."""
    calls = [(layer("Dense", name="values", units=7, use_bias=False), [[["row", 0, 0]]])]
    calls += [(layer("Activation", name=f"as_{name.split('>')[-1]}", activation=name), [[["values", 0, 0]]]) for name in ACTIVATIONS]
    calls += [(entry, [[["values", 0, 0]]]) for entry in ACTIVATION_LAYERS]
    calls.append((layer("Concatenate", name="all"), [[[entry["config"]["name"], 0, 0] for entry, _ in calls[1:]]]))
    return functional([ROW], calls, "all")


def functions():
    """Functions of keras.ops: the networks that keras_functions.py recorded, as models within one."""
    path = pathlib.Path(__file__).parent.parent / "support/data/keras_functions.json"
    calls = []
    for recorded in json.loads(path.read_text()):
        name, model = recorded["name"], recorded["model"]
        shape = model["config"]["layers"][0]["config"]["batch_shape"][1:]
        calls += [(layer("Dense", name=f"values_{name}", units=int(np.prod(shape))), [[["row", 0, 0]]]),
                  (layer("Reshape", name=f"in_{name}", target_shape=shape), [[[f"values_{name}", 0, 0]]]),
                  (model, [[[f"in_{name}", 0, 0]]]), (layer("Flatten", name=f"out_{name}"), [[[name, 0, 0]]])]
    outputs = [entry["config"]["name"] for entry, _ in calls if entry["class_name"] == "Flatten"]
    return functional([ROW], [*calls, (layer("Concatenate", name="all"), [[[output, 0, 0] for output in outputs]])], "all")


def masks():
    """Models that compute masks from their ids, as keras_masks.py recorded them."""
    path = pathlib.Path(__file__).parent.parent / "support/data/keras_masks.json"
    return {f"masks_{recorded['name']}": recorded["model"] for recorded in json.loads(path.read_text())}


NETWORKS = {
    "activations": side_by_side(),
    "attention": attention(),
    "autoencoder": autoencoder(),
    "convolutions": sequential(
        IMAGE, layer("ZeroPadding2D", padding=[[1, 0], [2, 1]]),
        layer("Conv2D", filters=6, kernel_size=[3, 2], strides=[2, 1], padding="same", activation="tanh"),
        layer("Conv2D", filters=8, kernel_size=3, groups=2, dilation_rate=2, padding="same"),
        layer("ZeroPadding2D", padding=1), layer("Dropout", rate=0.5),
        layer("DepthwiseConv2D", kernel_size=3, padding="same", depth_multiplier=2, activation="relu"),
        layer("SeparableConv2D", filters=6, kernel_size=3, depth_multiplier=2, padding="same", activation="sigmoid"),
        layer("Flatten"), layer("Dense", units=5)),
    "sizes": sequential(
        IMAGE, layer("Cropping2D", cropping=[[1, 0], [0, 2]]), layer("UpSampling2D", size=[1, 2]),
        layer("Conv2D", filters=4, kernel_size=3), layer("UpSampling2D", size=[2, 3], interpolation="bilinear"),
        layer("Cropping2D", cropping=1), layer("Permute", dims=[2, 3, 1]), layer("MaxPooling2D"), layer("Flatten"),
        layer("Dense", units=5), layer("RepeatVector", n=3), layer("ZeroPadding1D", padding=[1, 2]),
        layer("UpSampling1D", size=2), layer("Cropping1D", cropping=[0, 3]),
        layer("AveragePooling1D", pool_size=3, strides=2, padding="same"), layer("MaxPooling1D", padding="same"),
        layer("Flatten"), layer("Dense", units=5)),
    "waves": sequential(
        STEPS, layer("Embedding", input_dim=10, output_dim=4),
        layer("Conv1D", filters=6, kernel_size=3, padding="causal", dilation_rate=2, activation="relu"),
        layer("DepthwiseConv1D", kernel_size=3, strides=2, depth_multiplier=2, padding="same"),
        layer("SpatialDropout1D", rate=0.2), layer("SeparableConv1D", filters=4, kernel_size=2, activation="tanh"),
        layer("Conv1DTranspose", filters=3, kernel_size=3, strides=2), layer("GlobalMaxPooling1D", keepdims=True),
        layer("Flatten"), layer("Dense", units=5)),
    "augmented": sequential(
        IMAGE, layer("RandomFlip", mode="horizontal"), layer("RandomRotation", factor=[-0.1, 0.1]),
        layer("RandomZoom", height_factor=0.2), layer("RandomTranslation", height_factor=0.1, width_factor=0.2),
        layer("RandomContrast", factor=0.2), layer("Conv2D", filters=6, kernel_size=3), layer("PReLU", shared_axes=[1, 2]),
        layer("SpatialDropout2D", rate=0.2), layer("GroupNormalization", groups=3), layer("MaxPooling2D"),
        layer("GroupNormalization", groups=-1, scale=False), layer("LayerNormalization", axis=[1, 3]),
        layer("BatchNormalization", axis=1), layer("UnitNormalization", axis=[2, 3]), layer("Flatten"),
        layer("GaussianNoise", stddev=0.1), layer("Dense", units=6), layer("PReLU"), layer("GaussianDropout", rate=0.1),
        layer("AlphaDropout", rate=0.1), layer("UnitNormalization"), layer("Dense", units=5)),
    "volumes": sequential(
        VOLUME, layer("Conv3D", filters=3, kernel_size=[2, 3, 2], padding="same", activation="relu"),
        layer("SpatialDropout3D", rate=0.5), layer("ZeroPadding3D", padding=[[1, 0], [0, 2], [1, 1]]), layer("MaxPooling3D", padding="same"),
        layer("UpSampling3D", size=[2, 1, 2]), layer("Cropping3D", cropping=[[1, 0], [0, 1], [0, 0]]),
        layer("AveragePooling3D", pool_size=[2, 1, 2], strides=1), layer("Dense", units=4),
        layer("GlobalAveragePooling3D", keepdims=True), layer("GlobalMaxPooling3D"), layer("Dense", units=5)),
    "transformers": transformers(),
    "transposed_same": sequential(
        IMAGE, layer("Conv2DTranspose", filters=4, kernel_size=3, strides=2, padding="same"),
        layer("Conv2DTranspose", filters=3, kernel_size=2, strides=3, padding="same", activation="relu"),
        layer("AveragePooling2D", pool_size=3, padding="same"), layer("Flatten"), layer("Dense", units=5)),
    "transposed_valid": sequential(
        IMAGE, layer("Conv2DTranspose", filters=4, kernel_size=3, strides=2, use_bias=False),
        layer("Conv2DTranspose", filters=3, kernel_size=1, strides=2), layer("MaxPooling2D", pool_size=[3, 2], padding="same"),
        layer("GlobalAveragePooling2D")),
    "normalized": sequential(
        IMAGE, layer("Rescaling", scale=2.0, offset=-1.0),
        layer("Normalization", axis=-1, mean=[0.1, 0.2, 0.3], variance=[1.0, 4.0, 0.25]), layer("Conv2D", filters=4, kernel_size=3),
        layer("BatchNormalization"), layer("Activation", activation="relu"), layer("MaxPooling2D"),
        layer("BatchNormalization", center=False, scale=False), layer("LayerNormalization"),
        layer("GlobalMaxPooling2D", keepdims=True), layer("Flatten"), layer("BatchNormalization", epsilon=0.01),
        layer("LayerNormalization", center=False), layer("Dense", units=5)),
    "sequences": sequential(
        STEPS, layer("Embedding", input_dim=10, output_dim=4),
        layer("Conv1D", filters=8, kernel_size=3, strides=2, padding="same", activation="silu"), layer("BatchNormalization"),
        layer("Dense", units=3, activation="softmax"), layer("Reshape", target_shape=[2, -1]), layer("Dense", units=2),
        layer("Flatten"), layer("Dense", units=5)),
    "recurrent": sequential(
        STEPS, layer("Embedding", input_dim=10, output_dim=4), layer("LSTM", units=5, return_sequences=True, go_backwards=True),
        layer("Bidirectional", merge_mode="concat", layer=layer("GRU", units=3, return_sequences=True)),
        layer("TimeDistributed", layer=layer("Dense", units=4, activation="tanh")),
        layer("SimpleRNN", units=4, return_sequences=True, activation="elu"),
        layer("GRU", units=3, reset_after=False, return_sequences=True, activation="relu"),
        layer("Bidirectional", merge_mode="ave", layer=layer("SimpleRNN", units=4, activation="softplus")), layer("Dense", units=5)),
    "images_in_steps": sequential(
        {"class_name": "InputLayer", "config": {"name": "images", "batch_shape": [None, 3, 5, 4, 2]}},
        layer("ConvLSTM2D", filters=3, kernel_size=[3, 2], strides=[2, 1], padding="same", return_sequences=True),
        layer("ConvLSTM2D", filters=2, kernel_size=2, return_sequences=True, go_backwards=True, use_bias=False),
        layer("ConvLSTM2D", filters=2, kernel_size=2, activation="relu", recurrent_activation="hard_sigmoid"),
        layer("Flatten"), layer("Dense", units=5)),
    "encoder_decoder_of_images": functional(
        [{"class_name": "InputLayer", "config": {"name": name, "batch_shape": [None, steps, 4, 4, 2]}} for name, steps in (("images_seen", 2), ("images_next", 3))],
        [(layer("ConvLSTM2D", name="encoder", filters=2, kernel_size=3, padding="same", return_state=True), [[["images_seen", 0, 0]]]),
         (layer("ConvLSTM2D", name="decoder", filters=2, kernel_size=3, padding="same", return_sequences=True, return_state=True),
          [[["images_next", 0, 0], ["encoder", 0, 1], ["encoder", 0, 2]]]),
         *((layer("Flatten", name=f"flat_{output}"), [[["decoder", 0, output]]]) for output in range(3)),
         (layer("Concatenate", name="all"), [[[f"flat_{output}", 0, 0] for output in range(3)]])], "all"),
    "encoder_decoder": functional(
        [STEPS, {"class_name": "InputLayer", "config": {"name": "vectors", "batch_shape": [None, 5, 3]}}],
        [(layer("Embedding", name="words", input_dim=10, output_dim=4), [[["steps", 0, 0]]]),
         (layer("Bidirectional", name="encoder", merge_mode="concat", layer=layer("LSTM", units=2, return_sequences=True, return_state=True)),
          [[["words", 0, 0]]]),
         (layer("Concatenate", name="h"), [[["encoder", 0, 1], ["encoder", 0, 3]]]),
         (layer("Concatenate", name="c"), [[["encoder", 0, 2], ["encoder", 0, 4]]]),
         (layer("LSTM", name="decoder", units=4, use_bias=False, return_sequences=True, return_state=True),
          [[["vectors", 0, 0], ["h", 0, 0], ["c", 0, 0]]]),
         (layer("Attention", name="context"), [[["decoder", 0, 0], ["encoder", 0, 0]]]),
         (layer("GRU", name="last", units=4, go_backwards=True, return_state=True), [[["context", 0, 0], ["decoder", 0, 1]]]),
         (layer("SimpleRNN", name="more", units=4, return_state=True), [[["vectors", 0, 0], ["last", 0, 1]]]),
         (layer("Bidirectional", name="both", merge_mode="sum", layer=layer("GRU", units=4, reset_after=False)),
          [[["vectors", 0, 0], ["more", 0, 1], ["last", 0, 0]]]),
         (layer("Bidirectional", name="apart", merge_mode=None, layer=layer("LSTM", units=3, return_sequences=True, return_state=True)),
          [[["vectors", 0, 0]]]),
         (layer("Concatenate", name="sides"), [[["apart", 0, 1], ["apart", 0, 0]]]),
         (layer("Concatenate", name="ends"), [[["apart", 0, 2], ["apart", 0, 5]]])],
        "both", "decoder", "more", "sides", "ends"),
    "masked": sequential(
        STEPS, layer("Embedding", input_dim=10, output_dim=4, mask_zero=True), layer("Dense", units=3),
        layer("GlobalAveragePooling1D"), layer("Dense", units=5)),
    "masked_vectors": sequential(
        {"class_name": "InputLayer", "config": {"name": "vectors", "batch_shape": [None, 5, 3]}}, layer("Masking", mask_value=0.5),
        layer("GlobalAveragePooling1D"), layer("Dense", units=5)),
    "averaged": sequential(
        STEPS, layer("Embedding", input_dim=10, output_dim=4), layer("GlobalAveragePooling1D", keepdims=True),
        layer("Flatten"), layer("Dense", units=5)),
    "ragged": functional(
        [IDS, ROW],
        [(layer("Embedding", name="words", input_dim=10, output_dim=4), [[["ids", 0, 0]]]),
         (layer("GlobalAveragePooling1D", name="mean"), [[["words", 0, 0]]]),
         (layer("Concatenate", name="all"), [[["mean", 0, 0], ["row", 0, 0]]]),
         (layer("Dense", name="scores", units=5), [[["all", 0, 0]]])], "scores"),
    "pooled": functional(
        [IDS, SHARES, STEPS, {"class_name": "InputLayer", "config": {"name": "weights", "batch_shape": [None, 7]}}],
        [(layer("EmbedReduce", name="words", input_dim=10, output_dim=4, combiner="sqrtn"), [[["ids", 0, 0]]]),
         (layer("EmbedReduce", name="weighted_words", input_dim=10, output_dim=4), [[["ids", 0, 0], ["shares", 0, 0]]]),
         (layer("EmbedReduce", name="mean", input_dim=10, output_dim=4), [[["steps", 0, 0]]]),
         (layer("EmbedReduce", name="sum", input_dim=10, output_dim=4, combiner="sum"),
          [[["steps", 0, 0], ["weights", 0, 0]]]),
         (layer("EmbedReduce", name="root", input_dim=10, output_dim=4, combiner="sqrtn"),
          [[["steps", 0, 0], ["weights", 0, 0]]]),
         (layer("Concatenate", name="all"), [[["words", 0, 0], ["weighted_words", 0, 0], ["mean", 0, 0], ["sum", 0, 0], ["root", 0, 0]]]),
         (layer("Dense", name="scores", units=5), [[["all", 0, 0]]])], "scores"),
    "residual": functional(
        [IMAGE],
        [(layer("Conv2D", name="stem", filters=4, kernel_size=3, padding="same"), [[["image", 0, 0]]]),
         (layer("Conv2D", name="inner", filters=4, kernel_size=3, padding="same", activation="relu"), [[["stem", 0, 0]]]),
         (layer("Add", name="add"), [[["stem", 0, 0], ["inner", 0, 0]]]),
         (layer("Concatenate", name="channels"), [[["add", 0, 0], ["stem", 0, 0]]]),
         (layer("Concatenate", name="rows", axis=1), [[["channels", 0, 0], ["channels", 0, 0]]]),
         (layer("Concatenate", name="mixed", axis=2), [[["image", 0, 0], ["image", 0, 0]]]),
         (layer("GlobalAveragePooling2D", name="pooled"), [[["rows", 0, 0]]]),
         (layer("GlobalMaxPooling2D", name="peaks"), [[["mixed", 0, 0]]]),
         (layer("Concatenate", name="all"), [[["pooled", 0, 0], ["peaks", 0, 0]]]),
         (layer("Dense", name="scores", units=5), [[["all", 0, 0]]])], "scores"),
    "excited": functional(
        [IMAGE],
        [(layer("Normalization", name="norm"), [[["image", 0, 0]]]),
         (layer("Conv2D", name="stem", filters=4, kernel_size=3, padding="same"), [[["norm", 0, 0]]]),
         (layer("GlobalAveragePooling2D", name="squeeze", keepdims=True), [[["stem", 0, 0]]]),
         (layer("Conv2D", name="excite", filters=4, kernel_size=1, activation="sigmoid"), [[["squeeze", 0, 0]]]),
         (layer("Multiply", name="scaled"), [[["stem", 0, 0], ["excite", 0, 0]]]),
         (layer("GlobalMaxPooling2D", name="peaks"), [[["stem", 0, 0]]]),
         (layer("Subtract", name="less"), [[["scaled", 0, 0], ["peaks", 0, 0]]]),
         (layer("Maximum", name="most"), [[["peaks", 0, 0], ["less", 0, 0]]]),
         (layer("Minimum", name="least"), [[["most", 0, 0], ["excite", 0, 0]]]),
         (layer("Average", name="mean"), [[["least", 0, 0], ["stem", 0, 0], ["peaks", 0, 0]]]),
         (layer("Add", name="sum"), [[["excite", 0, 0], ["mean", 0, 0]]]),
         (layer("Dropout", name="drop", rate=0.5, noise_shape=[None, 1, 1, 4]), [[["sum", 0, 0]]]),
         (layer("Flatten", name="flat"), [[["drop", 0, 0]]]),
         (layer("Normalization", name="one_mean", axis=[]), [[["flat", 0, 0]]]),
         (layer("Dense", name="scores", units=5), [[["one_mean", 0, 0]]])], "scores"),
    "shared": functional(
        [ROW, {"class_name": "InputLayer", "config": {"name": "other", "batch_shape": [None, 6]}}],
        [(layer("Dense", name="tower", units=4, activation="tanh"), [[["row", 0, 0]], [["other", 0, 0]]]),
         (layer("Multiply", name="gate"), [[["tower", 0, 0], ["tower", 1, 0]]]),
         (layer("Dense", name="scores", units=5), [[["gate", 0, 0]]])], "scores"),
    "crossed": functional(
        [ROW, {"class_name": "InputLayer", "config": {"name": "other", "batch_shape": [None, 6]}}],
        [(layer("Dense", name="a", units=3), [[["row", 0, 0]]]),
         (layer("Dense", name="b", units=3), [[["other", 0, 0]]]),
         (layer("FeatureCross", name="low_rank", projection_dim=2, diag_scale=0.5, pre_activation="tanh"),
          [[["a", 0, 0], ["b", 0, 0]]]),
         (layer("FeatureCross", name="full"), [[["low_rank", 0, 0]]]),
         (layer("Reshape", name="rows", target_shape=[2, 3]), [[["row", 0, 0]]]),
         (layer("Dot", name="cosines", axes=-1, normalize=True), [[["full", 0, 0], ["rows", 0, 0]]]),
         (layer("Dot", name="product", axes=1), [[["a", 0, 0], ["b", 0, 0]]]),
         (layer("DotInteraction", name="pairs", self_interaction=True), [[["a", 0, 0], ["b", 0, 0], ["full", 0, 0]]]),
         (layer("DotInteraction", name="square", skip_gather=True), [[["a", 0, 0], ["low_rank", 0, 0]]]),
         (layer("Concatenate", name="all"),
          [[["cosines", 0, 0], ["product", 0, 0], ["pairs", 0, 0], ["square", 0, 0]]]),
         (layer("Dense", name="scores", units=5), [[["all", 0, 0]]])], "scores"),
    "nested": functional(
        [IMAGE],
        [(layer("Sequential", name="tower", layers=[
            layer("Conv2D", filters=4, kernel_size=3), sequential(layer("BatchNormalization"))]), [[["image", 0, 0]], [["half", 0, 0]]]),
         (layer("Rescaling", name="half", scale=0.5), [[["image", 0, 0]]]),
         (layer("StochasticDepth", name="depth", drop_path_rate=0.5), [[["tower", 0, 0]]]),
         (layer("CustomScaleLayer", name="sum", scale=0.25), [[["depth", 0, 0], ["tower", 1, 0]]]),
         (layer("LayerScale", name="scaled", projection_dim=4, init_values=0.5), [[["sum", 0, 0]]]),
         (layer("GlobalAveragePooling2D", name="scores"), [[["scaled", 0, 0]]])], "scores"),
    "functions": functions(),
    **masks(),
    "heads": functional(
        [IMAGE],
        [(layer("Conv2D", name="map", filters=4, kernel_size=3), [[["image", 0, 0]]]),
         (layer("Flatten", name="flat"), [[["map", 0, 0]]]),
         (layer("Dense", name="kind", units=3, activation="softmax"), [[["flat", 0, 0]]]),
         (layer("Reshape", name="box", target_shape=[3, 1]), [[["kind", 0, 0]]])], "kind", "map", "box"),
    "nothing_to_do": sequential(ROW, layer("Dropout", rate=0.5)),
}


def supported_layers(bin_dir, directory):
    """The layers that the model reader supports, from its error message."""
    path = directory / "unknown.json"
    path.write_text(json.dumps(sequential(ROW, layer("NoSuchLayer"))))
    message = subprocess.run([bin_dir / "cairn", "model", path], capture_output=True, text=True, timeout=60, check=False).stderr
    return set(message.split("supported: ")[1].strip().split(", "))


def variables_of(model_file, bin_dir, directory):
    """{name: shape}, from the errors of an incomplete file of weights, which name the missing values one after
    another."""
    values, random = {}, np.random.default_rng(1)
    while True:
        np.savez(directory / "weights.npz", **values)
        run = subprocess.run([bin_dir / "cairn", "export", directory / "weights.npz", "--model", model_file, "-o",
                              directory / "values.safetensors"], capture_output=True, text=True, timeout=60, check=False)
        if run.returncode == 0:
            return values
        name = run.stderr.split("'")[1]
        if "has no" in run.stderr:
            values[name] = np.zeros([0], "f4")
        else:
            shape = json.loads(run.stderr.split("in the model ")[1])
            low = 0.5 if name.endswith(("variance", "gamma")) else -0.7  # a variance is positive
            fan_in = np.prod(shape[:-1]) if len(shape) > 1 else 1  # so that depth makes nothing large
            values[name] = (random.uniform(low, 0.9, shape) * 1.5 / np.sqrt(fan_in)).astype("f4")


def examples_of(graph):
    random = np.random.default_rng(2)
    feeds = {}
    for port in graph.input:
        shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim[1:]]
        if port.name in ("user", "seen"):  # also ids that have no row
            feeds[port.name] = random.choice(np.concatenate([USERS, [12, -2**62]]), [64, *shape])
        elif port.name == "shares":
            feeds[port.name] = np.where(feeds["ids"] >= 0, random.uniform(0.5, 1.5, [64, 30]), 0).astype("f4")
        elif port.type.tensor_type.shape.dim[1].dim_param:  # ragged: padded by -1
            ids = random.integers(0, 10, [64, 30])
            feeds[port.name] = np.where(np.arange(30) < random.integers(0, 31, [64, 1]), ids, -1)
        elif port.type.tensor_type.elem_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
            is_short = port.type.tensor_type.elem_type == onnx.TensorProto.INT32
            feeds[port.name] = random.integers(0, 10, [64, *shape]).astype("i4" if is_short else "i8")
        else:
            feeds[port.name] = random.normal(0, 1, [64, *shape]).astype("f4")
    return feeds


# Ids of which a dynamic table has rows after dynamic_tables().
USERS = np.array([-2**63, 2**63 - 1, 2**53 + 1, 2**53, -1, 0, 7], "i8")


def dynamic_tables(bin_dir, directory):
    """A checkpoint of a model that looks up any id: by a layer, and by one that pools them."""
    inputs = [{"class_name": "InputLayer", "config": {"name": name, "batch_shape": [None, width], "dtype": "int64"}}
              for name, width in (("user", 1), ("seen", 3))]
    table = {"input_dim": 5, "output_dim": 3, "embeddings_initializer": {"class_name": "Constant", "config": {"value": 0.25}}}
    model = functional(
        inputs,
        [(layer("Embedding", name="users", **table), [[["user", 0, 0]]]), (layer("Flatten", name="flat"), [[["users", 0, 0]]]),
         (layer("EmbedReduce", name="history", **table), [[["seen", 0, 0]]]),
         (layer("Concatenate", name="all"), [[["flat", 0, 0], ["history", 0, 0]]]),
         (layer("Dense", name="scores", units=2), [[["all", 0, 0]]])], "scores")
    (directory / "dynamic.json").write_text(json.dumps(model))
    random = np.random.default_rng(3)
    np.savez(directory / "dynamic.npz", x_train_user=random.choice(USERS, [200, 1]), x_train_seen=random.choice(USERS, [200, 3]),
             y_train=random.normal(0, 1, [200, 2]).astype("f4"))
    subprocess.run([bin_dir / "cairn", "train", directory / "dynamic.json", "--data_dir", directory / "dynamic.npz",
                    "--dynamic_tables=all", "--sync_replicas", "--epochs=5", "--optimizer=adam", "--learning_rate=0.05", "--loss=mse",
                    "--train_dir", directory / "dynamic"], timeout=120, check=True, stdout=subprocess.DEVNULL)
    return directory / "dynamic"


def check_weights(name, weights, flags, bin_dir, directory):
    path = directory / f"{name}.onnx"
    subprocess.run([bin_dir / "cairn", "export", weights, *flags, "-o", path], timeout=60, check=True)
    file = onnx.load(path)
    onnx.checker.check_model(file, full_check=True)
    feeds = examples_of(file.graph)
    inputs = []
    for port, values in feeds.items():
        inputs.append(directory / f"{port}.npy")
        if port in ("ids", "shares"):
            here = feeds["ids"] >= 0
            np.save(directory / f"{port}_row_splits.npy", np.concatenate([[0], np.cumsum(here.sum(axis=1))]))
            values = values[here]
        np.save(inputs[-1], values)
    subprocess.run([bin_dir / "cairn", "predict", weights, *inputs, *flags, "-o", directory / "outputs.npy"], timeout=60, check=True)
    outputs = [port.name for port in file.graph.output]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    scored = session.run(None, feeds)
    one = session.run(None, {port: values[:1] for port, values in feeds.items()})
    worst = 0
    for i, output in enumerate(outputs):
        expected = np.load(directory / ("outputs.npy" if len(outputs) == 1 else f"outputs_{output}.npy"))
        what = f"{name}, {output}"
        np.testing.assert_allclose(scored[i], expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=what)
        np.testing.assert_allclose(one[i], expected[:1], rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{what}, one example")
        assert np.ptp(expected) > 1e-3, f"{what}: all outputs are the same, which compares nothing"
        worst = max(worst, np.abs(scored[i] - expected).max() / np.abs(expected).max())
    turned = sum(node.op_type == "Transpose" for node in file.graph.node)
    print(f"{name}: {len(file.graph.node)} nodes, {turned} of them Transpose; off by {worst:.1e} of the largest")


CITIES, NUMBERS = ["Paris", "São Paulo", "Oslo", "Rome", ""], [-2**62, 7, 2**40, 5, 0]
# Layers that make ids of values, also of strings. Hashes have no form in ONNX.
PREPROCESSING = functional(
    [{"class_name": "InputLayer", "config": {"name": name, "batch_shape": [None, width], "dtype": dtype}}
     for name, width, dtype in (("city", 1, "string"), ("words", 3, "string"), ("number", 1, "int64"), ("age", 1, "float32"))],
    [(layer("StringLookup", name="cities", vocabulary=CITIES[:3], mask_token=""), [[["city", 0, 0]]]),
     (layer("Embedding", name="city_rows", input_dim=5, output_dim=3), [[["cities", 0, 0]]]),
     (layer("Flatten", name="flat"), [[["city_rows", 0, 0]]]),
     (layer("StringLookup", name="one", vocabulary=CITIES[:3], mask_token="Rome", output_mode="one_hot"), [[["city", 0, 0]]]),
     (layer("StringLookup", name="tf_idf", vocabulary=CITIES[:3], mask_token="Rome", output_mode="tf_idf",
            idf_weights=[0.5, 0.25, 2.0]), [[["words", 0, 0]]]),
     (layer("IntegerLookup", name="numbers", vocabulary=NUMBERS[:3]), [[["number", 0, 0]]]),
     (layer("CategoryEncoding", name="known", num_tokens=4), [[["numbers", 0, 0]]]),
     (layer("Discretization", name="ages", bin_boundaries=[-0.5, 0.0, 0.75], output_mode="count"), [[["age", 0, 0]]]),
     (layer("Concatenate", name="all"), [[[name, 0, 0] for name in ("flat", "one", "tf_idf", "known", "ages")]]),
     (layer("Dense", name="scores", units=2), [[["all", 0, 0]]])], "scores")
WITHOUT_ONNX = {"Hashing", "TextVectorization"}
# Layers that files have under other names: Exp, GetItem, ReversibleEmbedding, LlamaTransformerDecoder, Equal, Cast,
# Cumsum, Sum.
READ_AS = {"MathFunction", "SelectStep", "ReverseEmbedding", "LlamaAttention", "ElementwiseFunction", "CastToInteger",
           "CumulativeSum", "GlobalSumPooling1D", "GlobalSumPooling2D", "GlobalSumPooling3D"}


def check_preprocessing(bin_dir, directory):
    """Strings and numbers in onnxruntime against the same in a CSV file."""
    model_file = directory / "id_layers.json"
    model_file.write_text(json.dumps(PREPROCESSING))
    variables_of(model_file, bin_dir, directory)
    weights, path, output = (directory / name for name in ("weights.npz", "id_layers.onnx", "outputs.npy"))
    subprocess.run([bin_dir / "cairn", "export", weights, "--model", model_file, "-o", path], timeout=60, check=True)
    random = np.random.default_rng(4)
    feeds = {"city": random.choice(np.array(CITIES, object), [64, 1]), "words": random.choice(np.array(CITIES[:4], object), [64, 3]),
             "number": random.choice(NUMBERS, [64, 1]), "age": random.choice([-2, -0.5, 0, 0.5, 0.75, 9], [64, 1]).astype("f4")}
    rows = ["|".join(map(str, row)) for row in feeds["words"]]
    (directory / "rows.csv").write_text("city,words,number,age\n" + "".join(
        f"{city},{words},{number},{age}\n" for city, words, number, age in
        zip(feeds["city"][:, 0], [row.replace(" ", "_") for row in rows], feeds["number"][:, 0], feeds["age"][:, 0])))
    feeds["words"] = np.array([[word.replace(" ", "_") for word in row] for row in feeds["words"]], object)
    subprocess.run([bin_dir / "cairn", "predict", weights, directory / "rows.csv", "--model", model_file, "-o", output], timeout=60,
                   check=True)
    scored, = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(scored, np.load(output), rtol=TOLERANCE, atol=TOLERANCE, err_msg="preprocessing")
    assert np.ptp(scored) > 1e-3, "preprocessing: all outputs are the same, which compares nothing"


def check(name, model_file, bin_dir, directory):
    variables_of(model_file, bin_dir, directory)
    check_weights(name, directory / "weights.npz", ["--model", model_file], bin_dir, directory)


def main():
    bin_dir, source_dir = map(pathlib.Path, sys.argv[1:3])
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary)
        used = {entry["class_name"] for document in NETWORKS.values() for entry in document["config"]["layers"]}
        used |= {entry["class_name"] for entry in PREPROCESSING["config"]["layers"]} | WITHOUT_ONNX | READ_AS
        missing = supported_layers(bin_dir, directory) - used
        assert not missing, f"no network here has {missing}"
        for name, document in NETWORKS.items():
            model_file = directory / f"{name}.json"
            model_file.write_text(json.dumps(document))
            check(name, model_file, bin_dir, directory)
        check_preprocessing(bin_dir, directory)
        check_weights("dynamic", dynamic_tables(bin_dir, directory), [], bin_dir, directory)
        examples = [source_dir / f"deploy/examples/{name}.json" for name in ("mnist_cnn", "mnist_mlp", "cifar_resnet20")]
        for example in examples:
            check(example.stem, example, bin_dir, directory)
    print(f"{len(NETWORKS) + 2 + len(examples)} networks score the same in onnxruntime {onnxruntime.__version__} as here")


if __name__ == "__main__":
    main()
