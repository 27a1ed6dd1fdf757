"""Records what functions of keras.ops compute, in keras_functions.json, for tests/unit/nn/keras_layers_test.cc.

    KERAS_BACKEND=jax python keras_functions.py

Needs Keras 3.15 and JAX. Every network is a dense layer, so that the gradient of the function's input counts, the
functions as Keras writes them, and a sum of squares: the mean squared error with targets of 0.
"""

import json
import pathlib

import jax
import keras
import numpy as np
from keras import ops
from keras.src.ops.nn import Relu

ROW, STEPS, IMAGE, VOLUME = (4,), (3, 4), (4, 3, 2), (2, 3, 2, 3)


def twice(x):
    """One function that is called twice."""
    relu = Relu()
    return relu(x) - relu(0.5 - x)


def as_float(x):
    return ops.cast(x, "float32")


# [name, shape of an example, the functions]; the dense layer before them keeps the shape.
CASES = [
    ("Relu", ROW, ops.relu), ("Relu6", ROW, lambda x: ops.relu6(8 * x)), ("LeakyRelu", ROW, ops.leaky_relu),
    ("LeakyReluSlope", ROW, lambda x: ops.leaky_relu(x, negative_slope=0.1)), ("Elu", ROW, ops.elu),
    ("EluAlpha", ROW, lambda x: ops.elu(x, alpha=0.5)), ("Selu", ROW, ops.selu), ("Celu", ROW, ops.celu),
    ("CeluAlpha", ROW, lambda x: ops.celu(x, alpha=0.3)), ("Gelu", ROW, ops.gelu),
    ("GeluExact", ROW, lambda x: ops.gelu(x, approximate=False)), ("Silu", ROW, ops.silu), ("Sigmoid", ROW, ops.sigmoid),
    ("HardSigmoid", ROW, lambda x: ops.hard_sigmoid(4 * x)), ("HardSilu", ROW, lambda x: ops.hard_silu(4 * x)),
    ("HardTanh", ROW, lambda x: ops.hard_tanh(2 * x)), ("LogSigmoid", ROW, ops.log_sigmoid), ("Tanh", ROW, ops.tanh),
    ("Softplus", ROW, ops.softplus), ("Softmax", STEPS, ops.softmax),
    ("SoftmaxOverSteps", STEPS, lambda x: ops.softmax(x, axis=1)), ("SoftmaxOverHeight", IMAGE, lambda x: ops.softmax(x, axis=-3)),
    ("Absolute", ROW, ops.abs), ("Negative", ROW, ops.negative), ("Square", STEPS, ops.square),
    ("Power", ROW, lambda x: x ** 3), ("Clip", ROW, lambda x: ops.clip(x, -0.3, 0.5)), ("ClipAbove", ROW, lambda x: ops.clip(x, 0, 0.5)),
    ("MaximumNumber", ROW, lambda x: ops.maximum(x, -0.25)), ("MaximumZero", ROW, lambda x: ops.maximum(0.0, x)),
    ("MinimumNumber", ROW, lambda x: ops.minimum(x, 0.25)), ("Maximum", ROW, lambda x: ops.maximum(x, 0.5 * x + 0.1)),
    ("Minimum", ROW, lambda x: ops.minimum(x, 0.5 * x + 0.1)), ("Cast", ROW, lambda x: ops.cast(x, "float32")),
    ("ConvertToTensor", ROW, ops.convert_to_tensor), ("Arithmetic", ROW, lambda x: (1 - x) * (x / 4 + 3)), ("Twice", ROW, twice),
    ("Reshape", STEPS, lambda x: ops.reshape(x, (-1, 2, 6))),     ("ReshapeSame", STEPS, lambda x: ops.reshape(x, (-1, 3, 4))), ("ExpandDims", STEPS, lambda x: ops.expand_dims(x, -1)),
    ("ExpandDimsSeveral", STEPS, lambda x: ops.expand_dims(x, (1, -2))), ("Squeeze", (1, 3, 1, 2), ops.squeeze),
    ("SqueezeAxis", (1, 3, 1, 2), lambda x: ops.squeeze(x, axis=-2)), ("Transpose", IMAGE, lambda x: ops.transpose(x, (0, 3, 1, 2))),
    ("TransposeNegative", STEPS, lambda x: ops.transpose(x, (0, -1, 1))), ("Swapaxes", IMAGE, lambda x: ops.swapaxes(x, 1, -1)),
    ("Moveaxis", IMAGE, lambda x: ops.moveaxis(x, -1, 1)), ("MoveaxisSeveral", VOLUME, lambda x: ops.moveaxis(x, (1, 3), (4, 2))),
    ("Concatenate", STEPS, lambda x: ops.concatenate([x, 2 * x], axis=-1)), ("ConcatenateSteps", STEPS, lambda x: ops.concatenate([x, 2 * x], axis=1)),
    ("Stack", STEPS, lambda x: ops.stack([x, 2 * x, -x], axis=-1)), ("StackFirst", ROW, lambda x: ops.stack([x, 2 * x], axis=1)),
    ("Matmul", STEPS, lambda x: ops.matmul(x, ops.transpose(ops.tanh(x), (0, 2, 1)))),
    ("MatmulWide", STEPS, lambda x: ops.matmul(ops.softmax(ops.matmul(x, ops.swapaxes(x, 1, 2))), x)),
    ("MeanOfSteps", STEPS, lambda x: ops.mean(x, axis=1)), ("MeanOfStepsKept", STEPS, lambda x: ops.mean(x, axis=1, keepdims=True)),
    ("MeanOfFeatures", STEPS, lambda x: ops.mean(x, axis=-1)), ("MeanOfFeaturesKept", STEPS, lambda x: ops.mean(x, axis=-1, keepdims=True)),
    ("MeanOfImage", IMAGE, lambda x: ops.mean(x, axis=[1, 2])), ("MeanOfImageKept", IMAGE, lambda x: ops.mean(x, axis=(1, 2), keepdims=True)),
    ("MeanOfChannels", IMAGE, lambda x: ops.mean(x, axis=-1, keepdims=True)), ("MeanOfHeight", IMAGE, lambda x: ops.mean(x, axis=1)),
    ("MeanOfWidth", IMAGE, lambda x: ops.mean(x, axis=2)), ("MeanOfAllKept", IMAGE, lambda x: ops.mean(x, axis=(1, 2, 3), keepdims=True)),
    ("MeanOfRow", ROW, lambda x: ops.mean(x, axis=-1)), ("MeanOfRowKept", ROW, lambda x: ops.mean(x, axis=-1, keepdims=True)),
    ("MeanOfVolume", VOLUME, lambda x: ops.mean(x, axis=(1, 2, 3))), ("MeanOfVolumePart", VOLUME, lambda x: ops.mean(x, axis=(1, 3), keepdims=True)),
    ("Average", STEPS, lambda x: ops.average(x, axis=1)), ("SumOfSteps", STEPS, lambda x: ops.sum(x, axis=1)),
    ("SumOfFeatures", STEPS, lambda x: ops.sum(x, axis=2, keepdims=True)), ("SumOfRow", ROW, lambda x: ops.sum(x, axis=1)),
    ("MaxOfSteps", STEPS, lambda x: ops.max(x, axis=1)), ("MaxOfImageKept", IMAGE, lambda x: ops.max(x, axis=(1, 2), keepdims=True)),
    ("MaxOfFeatures", STEPS, lambda x: ops.amax(x, axis=-1)), ("MinOfSteps", STEPS, lambda x: ops.min(x, axis=1)),
    ("MinOfVolume", VOLUME, lambda x: ops.amin(x, axis=(1, 2, 3))),
    ("MaxPool", IMAGE, lambda x: ops.max_pool(x, 2, strides=2)), ("AveragePool", IMAGE, lambda x: ops.average_pool(x, (3, 2), strides=(1, 2), padding="same")),
    ("MaxPoolOfSteps", STEPS, lambda x: ops.max_pool(x, 2, strides=1)), ("PadSteps", STEPS, lambda x: ops.pad(x, ((0, 0), (1, 2), (0, 0)))),
    ("PadImage", IMAGE, lambda x: ops.pad(x, ((0, 0), (1, 0), (0, 2), (0, 0)))), ("RepeatSteps", STEPS, lambda x: ops.repeat(x, 2, axis=1)),
    ("RepeatWidth", IMAGE, lambda x: ops.repeat(x, 3, axis=-2)), ("Resize", IMAGE, lambda x: ops.image.resize(x, (8, 9))),
    ("Exp", ROW, ops.exp), ("Log", ROW, lambda x: ops.log(x * x + 0.5)), ("Log1p", ROW, lambda x: ops.log1p(x * x)),
    ("Sqrt", ROW, lambda x: ops.sqrt(x * x + 0.5)), ("Rsqrt", ROW, lambda x: ops.rsqrt(x * x + 0.5)),
    ("Reciprocal", ROW, lambda x: ops.reciprocal(x * x + 0.5)), ("Sin", STEPS, lambda x: ops.sin(5 * x)), ("Cos", STEPS, lambda x: ops.cos(5 * x)),
    ("ReciprocalOfNumber", ROW, lambda x: 2 / (x * x + 0.5)), ("Divide", STEPS, lambda x: x / (x * x + 0.5)),
    ("DivideBroadcast", STEPS, lambda x: x / (ops.sum(x * x, axis=1, keepdims=True) + 1)), ("PowerHalf", ROW, lambda x: (x * x + 0.5) ** 0.5),
    ("PowerMinusHalf", ROW, lambda x: (x * x + 0.5) ** -0.5), ("PowerMinusOne", ROW, lambda x: (x * x + 0.5) ** -1), ("PowerOfNumber", ROW, lambda x: 2 ** x),
    ("LogSoftmax", STEPS, lambda x: ops.log_softmax(40 * x)), ("LogSoftmaxOverSteps", STEPS, lambda x: ops.log_softmax(x, axis=1)),
    ("Logsumexp", STEPS, lambda x: ops.logsumexp(60 * x, axis=-1)), ("LogsumexpOfImage", IMAGE, lambda x: ops.logsumexp(x, axis=(1, 3), keepdims=True)),
    ("Var", STEPS, lambda x: ops.var(x, axis=1)), ("VarOfImage", IMAGE, lambda x: ops.var(x, axis=(1, 2), keepdims=True)), ("Std", STEPS, lambda x: ops.std(x, axis=-1)),
    ("Moments", STEPS, lambda x: ops.add(*ops.moments(x, axes=[1]))), ("MomentsMean", STEPS, lambda x: ops.moments(x, axes=[-1], keepdims=True)[0]),
    ("LayerNorm", STEPS, ops.layer_normalization), ("LayerNormOfSteps", STEPS, lambda x: ops.layer_normalization(x, axis=1, epsilon=0.01)),
    ("LayerNormRms", STEPS, lambda x: ops.layer_normalization(x, rms_scaling=True)), ("RMSNorm", STEPS, ops.rms_normalization),
    ("RMSNormEpsilon", IMAGE, lambda x: ops.rms_normalization(x, axis=(2, 3), epsilon=0.1)), ("Normalize", STEPS, ops.normalize),
    ("NormalizeEpsilon", STEPS, lambda x: ops.normalize(x, axis=1, epsilon=2.0)), ("GetItemStep", STEPS, lambda x: x[:, -1]),
    ("GetItemElement", ROW, lambda x: x[:, 1]), ("GetItemEllipsis", STEPS, lambda x: x[..., :3]), ("GetItemStride", STEPS, lambda x: x[:, ::2]),
    ("GetItemStrideOfImage", IMAGE, lambda x: x[:, 1::2, ::2, 1]), ("GetItemStrideOfRow", ROW, lambda x: x[:, 1::3]), ("GetItemNewAxis", STEPS, lambda x: x[:, None, -2:, ..., 1:-1]),
    ("GetItemOfVolume", VOLUME, lambda x: x[:, 0, 1:, :, 2]), ("GetItemCrop", IMAGE, lambda x: x[:, 1:3, 1:]),
    ("GetItemPairs", STEPS, lambda x: ops.stack([-x[..., 1::2], x[..., ::2]], axis=-1)), ("Slice", STEPS, lambda x: ops.slice(x, (0, 1, 1), (-1, 2, 3))),
    ("Split", STEPS, lambda x: ops.multiply(*ops.split(x, 2, axis=-1))), ("SplitAt", STEPS, lambda x: ops.concatenate(ops.split(x, [1, 3], axis=-1)[::-1], axis=-1)),
    ("SplitSecondOnly", IMAGE, lambda x: ops.split(x, 3, axis=2)[1]), ("SplitInOne", STEPS, lambda x: ops.split(x, 1, axis=1)[0]),
    ("Unstack", STEPS, lambda x: ops.subtract(*ops.unstack(x, axis=1)[1:])), ("Tile", STEPS, lambda x: ops.tile(x, (1, 2, 3))), ("TileLast", ROW, lambda x: ops.tile(x, 2)),
    ("TileOfImage", IMAGE, lambda x: ops.tile(x, (2, 1, 2))), ("EinsumMatmul", STEPS, lambda x: ops.einsum("bij,bjk->bik", x, ops.swapaxes(x, 1, 2))),
    ("EinsumTransposed", STEPS, lambda x: ops.einsum("bij,bkj->bki", x, ops.tanh(x))), ("EinsumSteps", STEPS, lambda x: ops.einsum("btc,btd->bcd", x, x[..., :2])),
    ("EinsumSeveral", IMAGE, lambda x: ops.einsum("bhwc,bvwd->bhdvc", x, ops.tanh(x))), ("EinsumVector", STEPS, lambda x: ops.einsum("bij,bj->bi", x, x[:, 0])),
    ("EinsumAll", STEPS, lambda x: ops.einsum("bij,bji->b", x, ops.swapaxes(ops.tanh(x), 1, 2))),
    ("EinsumTranspose", IMAGE, lambda x: ops.einsum("bhwc->bwch", x)), ("EinsumSum", IMAGE, lambda x: ops.einsum("bhwc->bch", x)),
    ("EinsumBatches", IMAGE, lambda x: ops.einsum("bhwc,bhvc->bhwv", x, ops.tanh(x))), ("EinsumElements", STEPS, lambda x: ops.einsum("bij,bij->bji", x, ops.tanh(x))),
    ("EinsumHeads", IMAGE, lambda x: ops.einsum("bhwc,bvwd->bcwvh", x, ops.tanh(x))), ("EinsumOuter", STEPS, lambda x: ops.einsum("bij,bk->bkij", x, x[:, 0])),
    ("EinsumUnused", IMAGE, lambda x: ops.einsum("bhwc,bvcd->bvc", x, ops.tanh(ops.swapaxes(x, 2, 3)))), ("MatmulOfHeads", IMAGE, lambda x: ops.matmul(x, ops.swapaxes(ops.tanh(x), 2, 3))),
    ("DotOfSteps", STEPS, lambda x: keras.layers.Dot(1)([x, ops.tanh(x)])), ("DotOfVector", STEPS, lambda x: keras.layers.Dot((1, -1))([x[:, 0], ops.tanh(x)])),
    ("DotNormalized", IMAGE, lambda x: keras.layers.Dot((2, 1), normalize=True)([x, ops.swapaxes(ops.tanh(x), 1, 2)])),
    ("MatmulOfVolume", VOLUME, lambda x: ops.matmul(ops.swapaxes(x, -1, -2), ops.tanh(x))),
    ("AddArray", STEPS, lambda x: x + np.arange(12, dtype="float32").reshape(3, 4) / 8), ("AddTensor", STEPS, lambda x: ops.add(ops.ones((1, 3, 1)) * 0.5, x)),
    ("SubtractArray", STEPS, lambda x: x - np.arange(4, dtype="float32")), ("SubtractFromArray", ROW, lambda x: ops.subtract(ops.arange(4, dtype="float32"), x)),
    ("MultiplyArray", IMAGE, lambda x: x * ops.reshape(ops.arange(8, dtype="float32"), (4, 1, 2))), ("DivideByArray", STEPS, lambda x: x / (ops.arange(4, dtype="float32") + 1)),
    ("DivideArray", ROW, lambda x: ops.divide(ops.convert_to_tensor([[1.0, -2.0, 3.0, 4.0]]), x * x + 0.5)),
    ("PositionalEncoding", ROW, lambda x: ops.concatenate([ops.sin(ops.expand_dims(x, -1) * 3.0), ops.cos(ops.expand_dims(x, -1) * 3.0)], axis=-1)),
    ("ResizeNearest", IMAGE, lambda x: ops.image.resize(x, (8, 3), interpolation="nearest")),
    ("Comparisons", STEPS, lambda x: x * as_float(x > 0.25) + 2 * x * as_float(x <= -0.25) - x * as_float(ops.less(0.1, x))),
    ("ComparisonsOfTensors", STEPS, lambda x: x * as_float(ops.equal(x, x)) + as_float(ops.not_equal(x, x[:, :1])) * x + as_float(x + 0.1 >= ops.tanh(2 * x)) + 3 * as_float(x < x[..., 1:2])),
    ("ComparisonOfArrays", STEPS, lambda x: x * as_float(x > np.arange(4, dtype="float32") / 4 - 0.5) + as_float(ops.less_equal(np.arange(3)[None, :, None] - 1, x))),
    ("Logic", STEPS, lambda x: x * as_float((x > 0) & (x < 0.5)) + 2 * x * as_float((x > 0.5) | (x < -0.5)) + 3 * x * as_float((x > 0) ^ (x > 0.25)) + 4 * x * as_float(~(x > 0.1))),
    ("LogicOfNumbers", ROW, lambda x: x * as_float(ops.logical_and(ops.round(x), True)) + as_float(ops.logical_not(ops.relu(x)))),
    ("Where", STEPS, lambda x: ops.where(x > 0, 2 * x, ops.tanh(x))), ("WhereNumbers", STEPS, lambda x: x + ops.where(x > 0.1, 3, -0.5)),
    ("WhereNumber", STEPS, lambda x: ops.softmax(ops.where(x > 0, x, -1e9))), ("WhereFirstNumber", ROW, lambda x: ops.where(x < 0, 1, x)),
    ("WhereBroadcast", STEPS, lambda x: ops.where(x[..., :1] > 0, x[:, :1], 3 * x)), ("WhereArray", STEPS, lambda x: ops.where(np.tril(np.ones((3, 4), "bool")), x, 0.0)),
    ("WhereOfArrays", ROW, lambda x: x * ops.where(x > 0, np.arange(4, dtype="float32"), np.array([[-1.0, 2.0, -3.0, 4.0]], "float32"))),
    ("WhereWithoutNaN", ROW, lambda x: ops.where(x < 9, x, ops.log(ops.floor(x) - 9))),
    ("WhereInfinite", STEPS, lambda x: ops.softmax(ops.where(np.tril(np.ones((3, 4), "bool")), x, -np.inf))), ("ClipInfinite", ROW, lambda x: ops.clip(x, 0.1, np.inf)),
    ("Filled", ROW, lambda x: ops.where(x > 0, ops.ones_like(x), x) + ops.where(x < -0.5, ops.zeros_like(x), x)),
    ("Scalars", STEPS, lambda x: x * ops.reshape(ops.exp(ops.sum(x, axis=(1, 2))) + ops.round(x[:, 0, 0] * 3) + as_float(ops.any(x > 0.9, axis=(1, 2))), (-1, 1, 1))),
    ("Sign", ROW, lambda x: x * ops.sign(x) + ops.sign(x)), ("Floor", ROW, lambda x: x * ops.floor(3 * x)), ("Ceil", ROW, lambda x: x * ops.ceil(3 * x)),
    ("Round", ROW, lambda x: x * ops.round(3 * x)), ("RoundHalf", ROW, lambda x: x * ops.round(ops.floor(4 * x) / 2)), ("Trunc", ROW, lambda x: x * ops.trunc(3 * x)),
    ("CastToInteger", ROW, lambda x: x * as_float(ops.cast(4 * x, "int32"))), ("CastToBoolean", ROW, lambda x: x * as_float(ops.cast(ops.relu(x), "bool"))),
    ("CumsumOfSteps", STEPS, lambda x: ops.cumsum(x, axis=1)), ("CumsumOfFeatures", STEPS, lambda x: ops.cumsum(x, axis=-1)), ("CumsumOfHeight", IMAGE, lambda x: ops.cumsum(x, axis=1)),
    ("CumsumOfBooleans", STEPS, lambda x: x * as_float(ops.cumsum(x > 0, axis=1))), ("CumsumOfIntegers", STEPS, lambda x: x * as_float(ops.cumsum(4 * x, axis=-1, dtype="int32"))),
    ("Any", STEPS, lambda x: x * as_float(ops.any(x > 0.5, axis=-1, keepdims=True))), ("All", STEPS, lambda x: x[:, 0] * as_float(ops.all(x > -0.75, axis=1))),
    ("AnyOfNumbers", IMAGE, lambda x: x[..., 0] * as_float(ops.any(ops.relu(x), axis=(1, -1), keepdims=True))[..., 0]),
    ("AllOfAll", STEPS, lambda x: x[:, 0] * as_float(ops.all(x > -1.25, axis=(1, 2), keepdims=True))[:, 0]), ("CountNonzero", STEPS, lambda x: x[:, 0] * as_float(ops.count_nonzero(ops.relu(x), axis=1))),
    ("SumOfBooleans", STEPS, lambda x: x[:, 0] * as_float(ops.equal(ops.sum(ops.cast(x > -9, "int32"), axis=1), 3))), ("Isnan", ROW, lambda x: ops.where(ops.isnan(ops.log(x)), x, 2 * x)),
    ("ClipWithoutZero", ROW, lambda x: ops.clip(x, 0.1, 0.6)), ("ClipBelowZero", ROW, lambda x: ops.clip(x, -0.6, -0.1)), ("MaximumPositive", ROW, lambda x: ops.maximum(x, 0.25)),
    ("MinimumNegative", ROW, lambda x: ops.minimum(-0.25, x)), ("MaximumOfArray", STEPS, lambda x: ops.maximum(x, np.arange(4, dtype="float32") / 4 - 0.5)),
]


def record(name, shape, function):
    keras.utils.clear_session()
    random = np.random.default_rng(sum(map(ord, name)))
    x = keras.Input(shape, name="in")
    model = keras.Model(x, function(keras.layers.Dense(shape[-1], name="before")(x)), name=name)
    for variable in model.variables:
        variable.assign(random.uniform(-1, 1, variable.shape).round(3))
    values = random.uniform(-1, 1, (3, *shape)).round(3).astype("float32")

    def loss_of(trainable):
        outputs, _ = model.stateless_call(trainable, [], values, training=True)
        return (outputs ** 2).mean(), outputs

    (loss, outputs), gradients = jax.value_and_grad(loss_of, has_aux=True)([v.value for v in model.trainable_variables])
    numbers = lambda values: [float(f"{value:.6g}") for value in np.asarray(values).ravel()]
    document = json.loads(model.to_json())
    before = document["config"]["layers"][1]
    before["config"] = {"name": "before", "units": shape[-1]}
    del before["build_config"]
    return {
        "name": name, "model": {"class_name": "Functional", "config": document["config"]},
        "variables": {variable.path: numbers(variable) for variable in model.variables},
        "inputs": numbers(values), "outputs": numbers(outputs), "inferred": numbers(model(values, training=False)),
        "loss": float(f"{loss:.6g}"), "gradients": {v.path: numbers(g) for v, g in zip(model.trainable_variables, gradients)},
    }


def main():
    assert keras.config.backend() == "jax", "run with KERAS_BACKEND=jax"
    lines = [json.dumps(record(*case), separators=(",", ":")) for case in CASES]
    pathlib.Path(__file__).with_suffix(".json").write_text("[" + ",\n".join(lines) + "]\n")


if __name__ == "__main__":
    main()
