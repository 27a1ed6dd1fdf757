// Model files that several tests use.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nn/model.h"
#include "tests/support/source_dir.h"

namespace cairn::nn {

// A real export of Keras 3.16: a convolutional network, compiled.
inline const std::string kKerasJson = InSource("tests/support/data/keras316_mnist_cnn.json");
// The same model as written by Keras' model.save(), without its weights.
inline const std::string kKerasArchive = InSource("tests/support/data/keras316_mnist_cnn.keras");

// The shortest valid file of a Sequential model with these layers.
inline std::string SequentialOf(absl::string_view layers) {
  return absl::StrCat(R"({"config": {"layers": [)", layers, "]}}");
}

// The message with which a model file is refused.
inline std::string ModelFault(const std::string& json) {
  return std::string(Model::FromJson(json, "m").status().message());
}

// In the order of the model.
inline std::vector<std::string> LayerNames(const Model& model) {
  std::vector<std::string> names;
  for (const Node& node : model.nodes()) names.push_back(node.layer->name());
  return names;
}

inline std::vector<std::string> VariableNames(const Model& model) {
  std::vector<std::string> names;
  for (const ModelVariable& variable : model.variables()) names.push_back(variable.name);
  return names;
}

// The same network, written by hand.
inline constexpr char kHandWritten[] = R"({
  "class_name": "Sequential",
  "config": {"layers": [
    {"class_name": "Conv2D", "config": {"input_shape": [28, 28, 1], "filters": 32, "kernel_size": 3,
                                        "activation": "relu"}},
    {"class_name": "MaxPooling2D"},
    {"class_name": "Conv2D", "config": {"filters": 64, "kernel_size": 3, "activation": "relu"}},
    {"class_name": "MaxPooling2D"},
    {"class_name": "Conv2D", "config": {"filters": 64, "kernel_size": 3, "activation": "relu"}},
    {"class_name": "Flatten"},
    {"class_name": "Dense", "config": {"units": 64, "activation": "relu"}},
    {"class_name": "Dense", "config": {"units": 10}}
  ]},
  "compile_config": {
    "optimizer": "adam",
    "loss": {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true}},
    "metrics": ["accuracy"]
  }
})";

}  // namespace cairn::nn
