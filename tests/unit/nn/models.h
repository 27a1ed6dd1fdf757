// Model files that several tests read.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/support/source_dir.h"

namespace cairn::nn {

// A real export of Keras 3.16: the seed's convolutional network, compiled.
inline const std::string kKerasJson = InSource("tests/support/data/keras316_mnist_cnn.json");
// The same model as Keras' model.save() wrote it, without its weights.
inline const std::string kKerasArchive = InSource("tests/support/data/keras316_mnist_cnn.keras");

// A Sequential model of these layers, the shortest file that is valid.
inline std::string SequentialOf(absl::string_view layers) {
  return absl::StrCat(R"({"config": {"layers": [)", layers, "]}}");
}

// The same network as a person would write it.
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
