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
    {"Conv2D", MakeConv2D},
    {"Dense", MakeDense},
    {"Flatten", MakeFlatten},
    {"MaxPooling2D", MakeMaxPooling2D},
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
