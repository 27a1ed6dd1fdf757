#include "nn/layers/layer_registry.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

struct LayerRow {
  absl::string_view class_name;
  LayerMaker make;
  ByteUse bytes = ByteUse::kScaled;
};

// One row per layer, in alphabetical order. InputLayer has no row: it is the model's shape.
constexpr LayerRow kLayers[] = {
    {"Activation", MakeActivation, ByteUse::kPasses},
    {"ActivityRegularization", MakeActivityRegularization, ByteUse::kPasses},
    {"Add", MakeAdd, ByteUse::kPasses},
    {"AdditiveAttention", MakeAdditiveAttention},
    {"AlphaDropout", MakeAlphaDropout, ByteUse::kPasses},
    {"Attention", MakeAttention},
    {"Average", MakeAverage, ByteUse::kPasses},
    {"AveragePooling1D", MakeAveragePooling1D, ByteUse::kPasses},
    {"AveragePooling2D", MakeAveragePooling2D, ByteUse::kPasses},
    {"AveragePooling3D", MakeAveragePooling3D, ByteUse::kPasses},
    {"BatchNormalization", MakeBatchNormalization},
    {"Bidirectional", MakeBidirectional},
    {"CachedMultiHeadAttention", MakeCachedMultiHeadAttention},
    {"CastToInteger", MakeCastToInteger, ByteUse::kRaw},
    {"CategoryEncoding", MakeCategoryEncoding, ByteUse::kRaw},
    {"Concatenate", MakeConcatenate, ByteUse::kPasses},
    {"Conv1D", MakeConv1D},
    {"Conv1DTranspose", MakeConv1DTranspose},
    {"Conv2D", MakeConv2D},
    {"Conv2DTranspose", MakeConv2DTranspose},
    {"Conv3D", MakeConv3D},
    {"ConvLSTM2D", MakeConvLstm2D},
    {"Cropping1D", MakeCropping1D, ByteUse::kPasses},
    {"Cropping2D", MakeCropping2D, ByteUse::kPasses},
    {"Cropping3D", MakeCropping3D, ByteUse::kPasses},
    {"CumulativeSum", MakeCumulativeSum, ByteUse::kRaw},
    {"CustomScaleLayer", MakeCustomScaleLayer, ByteUse::kPasses},
    {"Dense", MakeDense},
    {"DepthwiseConv1D", MakeDepthwiseConv1D},
    {"DepthwiseConv2D", MakeDepthwiseConv2D},
    {"Discretization", MakeDiscretization, ByteUse::kRaw},
    {"Dot", MakeDot, ByteUse::kRaw},
    {"DotInteraction", MakeDotInteraction},
    {"Dropout", MakeDropout, ByteUse::kPasses},
    {"ELU", MakeElu, ByteUse::kPasses},
    {"EinsumDense", MakeEinsumDense},
    {"ElementwiseFunction", MakeElementwiseFunction, ByteUse::kRaw},
    {"EmbedReduce", MakeEmbedReduce, ByteUse::kRaw},
    {"Embedding", MakeEmbedding, ByteUse::kRaw},
    {"FeatureCross", MakeFeatureCross},
    {"Flatten", MakeFlatten, ByteUse::kPasses},
    {"GRU", MakeGru},
    {"GaussianDropout", MakeGaussianDropout, ByteUse::kPasses},
    {"GaussianNoise", MakeGaussianNoise, ByteUse::kPasses},
    {"GlobalAveragePooling1D", MakeGlobalAveragePooling1D, ByteUse::kPasses},
    {"GlobalAveragePooling2D", MakeGlobalAveragePooling2D, ByteUse::kPasses},
    {"GlobalAveragePooling3D", MakeGlobalAveragePooling3D, ByteUse::kPasses},
    {"GlobalMaxPooling1D", MakeGlobalMaxPooling1D, ByteUse::kPasses},
    {"GlobalMaxPooling2D", MakeGlobalMaxPooling2D, ByteUse::kPasses},
    {"GlobalMaxPooling3D", MakeGlobalMaxPooling3D, ByteUse::kPasses},
    {"GlobalSumPooling1D", MakeGlobalSumPooling1D, ByteUse::kRaw},
    {"GlobalSumPooling2D", MakeGlobalSumPooling2D, ByteUse::kRaw},
    {"GlobalSumPooling3D", MakeGlobalSumPooling3D, ByteUse::kRaw},
    {"GroupNormalization", MakeGroupNormalization},
    {"GroupQueryAttention", MakeGroupQueryAttention},
    {"Hashing", MakeHashing, ByteUse::kRaw},
    {"Identity", MakeIdentity, ByteUse::kPasses},
    {"IntegerLookup", MakeIntegerLookup, ByteUse::kRaw},
    {"LSTM", MakeLstm},
    {"LayerNormalization", MakeLayerNormalization},
    {"LayerScale", MakeLayerScale},
    {"LeakyReLU", MakeLeakyRelu, ByteUse::kPasses},
    {"LlamaAttention", MakeLlamaAttention},
    {"LlamaLayerNorm", MakeLlamaLayerNorm},
    {"Masking", MakeMasking, ByteUse::kRaw},
    {"MathFunction", MakeMathFunction, ByteUse::kRaw},
    {"MaxPooling1D", MakeMaxPooling1D, ByteUse::kPasses},
    {"MaxPooling2D", MakeMaxPooling2D, ByteUse::kPasses},
    {"MaxPooling3D", MakeMaxPooling3D, ByteUse::kPasses},
    {"Maximum", MakeMaximum, ByteUse::kPasses},
    {"Minimum", MakeMinimum, ByteUse::kPasses},
    {"MultiHeadAttention", MakeMultiHeadAttention},
    {"Multiply", MakeMultiply, ByteUse::kPasses},
    {"Normalization", MakeNormalization, ByteUse::kRaw},
    {"PReLU", MakePRelu, ByteUse::kPasses},
    {"Permute", MakePermute, ByteUse::kPasses},
    {"PositionEmbedding", MakePositionEmbedding},
    {"RMSNormalization", MakeRmsNormalization},
    {"RandomContrast", MakeRandomContrast, ByteUse::kPasses},
    {"RandomFlip", MakeRandomFlip, ByteUse::kPasses},
    {"RandomRotation", MakeRandomRotation, ByteUse::kPasses},
    {"RandomTranslation", MakeRandomTranslation, ByteUse::kPasses},
    {"RandomZoom", MakeRandomZoom, ByteUse::kPasses},
    {"ReLU", MakeRelu, ByteUse::kPasses},
    {"RepeatVector", MakeRepeatVector, ByteUse::kPasses},
    {"Rescaling", MakeRescaling, ByteUse::kRaw},
    {"Reshape", MakeReshape, ByteUse::kPasses},
    {"ReverseEmbedding", MakeReverseEmbedding},
    {"ReversibleEmbedding", MakeReversibleEmbedding, ByteUse::kRaw},
    {"RotaryEmbedding", MakeRotaryEmbedding},
    {"Sampling", MakeSampling},
    {"SelectStep", MakeSelectStep, ByteUse::kPasses},
    {"SeparableConv1D", MakeSeparableConv1D},
    {"SeparableConv2D", MakeSeparableConv2D},
    {"SimpleRNN", MakeSimpleRnn},
    {"SinePositionEncoding", MakeSinePositionEncoding},
    {"Softmax", MakeSoftmax, ByteUse::kPasses},
    {"SpatialDropout1D", MakeSpatialDropout1D, ByteUse::kPasses},
    {"SpatialDropout2D", MakeSpatialDropout2D, ByteUse::kPasses},
    {"SpatialDropout3D", MakeSpatialDropout3D, ByteUse::kPasses},
    {"StochasticDepth", MakeStochasticDepth, ByteUse::kPasses},
    {"StringLookup", MakeStringLookup, ByteUse::kRaw},
    {"Subtract", MakeSubtract, ByteUse::kPasses},
    {"TextVectorization", MakeTextVectorization, ByteUse::kRaw},
    {"TimeDistributed", MakeTimeDistributed},
    {"UnitNormalization", MakeUnitNormalization},
    {"UpSampling1D", MakeUpSampling1D, ByteUse::kPasses},
    {"UpSampling2D", MakeUpSampling2D, ByteUse::kPasses},
    {"UpSampling3D", MakeUpSampling3D, ByteUse::kPasses},
    {"ZeroPadding1D", MakeZeroPadding1D, ByteUse::kPasses},
    {"ZeroPadding2D", MakeZeroPadding2D, ByteUse::kPasses},
    {"ZeroPadding3D", MakeZeroPadding3D, ByteUse::kPasses},
};

}  // namespace

LayerMaker FindLayer(absl::string_view class_name) {
  for (const LayerRow& row : kLayers) {
    if (row.class_name == class_name) return row.make;
  }
  return nullptr;
}

ByteUse ByteUseOf(absl::string_view class_name) {
  for (const LayerRow& row : kLayers) {
    if (row.class_name == class_name) return row.bytes;
  }
  return ByteUse::kScaled;
}

bool OnlyReshapes(absl::string_view class_name) {
  return class_name == "Flatten" || class_name == "Reshape" || class_name == "CastToInteger";
}

bool ComparesValues(absl::string_view class_name) {
  return class_name == "ElementwiseFunction";
}

bool ComputesIds(absl::string_view class_name) {
  constexpr absl::string_view kClasses[] = {"CategoryEncoding", "Discretization", "Hashing",
                                            "IntegerLookup",    "StringLookup",   "TextVectorization"};
  return absl::c_linear_search(kClasses, class_name);
}

std::string SupportedLayers() {
  return absl::StrCat("InputLayer, ", absl::StrJoin(kLayers, ", ", [](std::string* out, const LayerRow& row) {
                        absl::StrAppend(out, row.class_name);
                      }));
}

}  // namespace cairn::nn
