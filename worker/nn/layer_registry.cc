#include "worker/nn/layer_registry.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/nn/layers/layers.h"

namespace cairn::nn {
namespace {

struct Row {
  absl::string_view class_name;
  LayerMaker make;
};

// One row per layer, in alphabetical order. InputLayer is no row: it is the model's shape.
constexpr Row kLayers[] = {
    {"Activation", MakeActivation},
    {"Add", MakeAdd},
    {"AveragePooling2D", MakeAveragePooling2D},
    {"BatchNormalization", MakeBatchNormalization},
    {"Concatenate", MakeConcatenate},
    {"Conv1D", MakeConv1D},
    {"Conv2D", MakeConv2D},
    {"Conv2DTranspose", MakeConv2DTranspose},
    {"Dense", MakeDense},
    {"DepthwiseConv2D", MakeDepthwiseConv2D},
    {"Dropout", MakeDropout},
    {"ELU", MakeElu},
    {"Embedding", MakeEmbedding},
    {"Flatten", MakeFlatten},
    {"GlobalAveragePooling2D", MakeGlobalAveragePooling2D},
    {"GlobalMaxPooling2D", MakeGlobalMaxPooling2D},
    {"LayerNormalization", MakeLayerNormalization},
    {"LeakyReLU", MakeLeakyRelu},
    {"MaxPooling2D", MakeMaxPooling2D},
    {"Multiply", MakeMultiply},
    {"Normalization", MakeNormalization},
    {"ReLU", MakeRelu},
    {"Rescaling", MakeRescaling},
    {"Reshape", MakeReshape},
    {"SeparableConv2D", MakeSeparableConv2D},
    {"Softmax", MakeSoftmax},
    {"ZeroPadding2D", MakeZeroPadding2D},
};

}  // namespace

LayerMaker FindLayer(absl::string_view class_name) {
  for (const Row& row : kLayers) {
    if (row.class_name == class_name) return row.make;
  }
  return nullptr;
}

std::string SupportedLayers() {
  return absl::StrCat("InputLayer, ", absl::StrJoin(kLayers, ", ", [](std::string* out, const Row& row) {
                        absl::StrAppend(out, row.class_name);
                      }));
}

}  // namespace cairn::nn
