// Distinguishes Keras' own objects in a model file from custom ones. A custom class may have the name of a
// Keras class and do something else.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn::nn {

// INVALID_ARGUMENT naming the module or the registered name if `object`'s "module" or "registered_name" is
// not Keras'. An object without them counts as Keras'.
absl::Status CheckIsOfKeras(const nlohmann::json& object);

// Whether `object` is one of Keras' functions (`a + b` of two tensors), used in place of a layer.
bool IsKerasFunction(const nlohmann::json& object);

// Keras' to_snake_case: Conv2D becomes conv2d, MaxPooling2D max_pooling2d.
std::string SnakeCase(absl::string_view class_name);

// Names the groups of a model's layers in Keras' files, by class and order: "conv2d", "conv2d_1".
class GroupNames {
 public:
  // The name for the next layer of the model.
  std::string Next(absl::string_view class_name);

 private:
  std::map<std::string, int> count_;  // [class in snake case]
};

}  // namespace cairn::nn
