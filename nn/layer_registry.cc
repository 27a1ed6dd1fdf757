#include "nn/layer_registry.h"

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
    {"Add", MakeAdd, ByteUse::kPasses},
    {"Average", MakeAverage, ByteUse::kPasses},
    {"AveragePooling2D", MakeAveragePooling2D, ByteUse::kPasses},
    {"BatchNormalization", MakeBatchNormalization},
    {"Bidirectional", MakeBidirectional},
    {"CategoryEncoding", MakeCategoryEncoding, ByteUse::kRaw},
    {"Concatenate", MakeConcatenate, ByteUse::kPasses},
    {"Conv1D", MakeConv1D},
    {"Conv2D", MakeConv2D},
    {"Conv2DTranspose", MakeConv2DTranspose},
    {"Dense", MakeDense},
    {"DepthwiseConv2D", MakeDepthwiseConv2D},
    {"Discretization", MakeDiscretization, ByteUse::kRaw},
    {"Dot", MakeDot},
    {"DotInteraction", MakeDotInteraction},
    {"Dropout", MakeDropout, ByteUse::kPasses},
    {"ELU", MakeElu, ByteUse::kPasses},
    {"EmbedReduce", MakeEmbedReduce, ByteUse::kRaw},
    {"Embedding", MakeEmbedding, ByteUse::kRaw},
    {"FeatureCross", MakeFeatureCross},
    {"Flatten", MakeFlatten, ByteUse::kPasses},
    {"GRU", MakeGru},
    {"GlobalAveragePooling1D", MakeGlobalAveragePooling1D, ByteUse::kPasses},
    {"GlobalAveragePooling2D", MakeGlobalAveragePooling2D, ByteUse::kPasses},
    {"GlobalMaxPooling2D", MakeGlobalMaxPooling2D, ByteUse::kPasses},
    {"Hashing", MakeHashing, ByteUse::kRaw},
    {"IntegerLookup", MakeIntegerLookup, ByteUse::kRaw},
    {"LSTM", MakeLstm},
    {"LayerNormalization", MakeLayerNormalization},
    {"LeakyReLU", MakeLeakyRelu, ByteUse::kPasses},
    {"Masking", MakeMasking, ByteUse::kRaw},
    {"MaxPooling2D", MakeMaxPooling2D, ByteUse::kPasses},
    {"Maximum", MakeMaximum, ByteUse::kPasses},
    {"Minimum", MakeMinimum, ByteUse::kPasses},
    {"Multiply", MakeMultiply, ByteUse::kPasses},
    {"Normalization", MakeNormalization, ByteUse::kRaw},
    {"ReLU", MakeRelu, ByteUse::kPasses},
    {"Rescaling", MakeRescaling, ByteUse::kRaw},
    {"Reshape", MakeReshape, ByteUse::kPasses},
    {"SeparableConv2D", MakeSeparableConv2D},
    {"SimpleRNN", MakeSimpleRnn},
    {"Softmax", MakeSoftmax, ByteUse::kPasses},
    {"StringLookup", MakeStringLookup, ByteUse::kRaw},
    {"Subtract", MakeSubtract, ByteUse::kPasses},
    {"TimeDistributed", MakeTimeDistributed},
    {"ZeroPadding2D", MakeZeroPadding2D, ByteUse::kPasses},
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
  return class_name == "Flatten" || class_name == "Reshape";
}

std::string SupportedLayers() {
  return absl::StrCat("InputLayer, ", absl::StrJoin(kLayers, ", ", [](std::string* out, const LayerRow& row) {
                        absl::StrAppend(out, row.class_name);
                      }));
}

}  // namespace cairn::nn
