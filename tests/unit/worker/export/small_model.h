// A one-layer model whose outputs are easy to check by hand: scores = x kernel + bias.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nn/model.h"

namespace cairn::worker {

// Two inputs, two scores.
inline nn::Model SmallModel() {
  return *nn::Model::FromJson(R"({"config": {"name": "small", "layers": [
      {"class_name": "Dense", "config": {"name": "dense", "units": 2, "input_shape": [2]}}]}})",
                              "small.json");
}

// kernel [[1, 2], [3, 4]], bias [10, -10]
inline std::vector<float> SmallParameters() {
  return {1, 2, 3, 4, 10, -10};
}

}  // namespace cairn::worker
