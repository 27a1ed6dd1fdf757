// One example of a data set, as values for matchers.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "data/dataset.h"

namespace cairn::data {

struct Example {
  std::vector<float> inputs, target;
  float weight = 0;
};

inline Example ReadExample(const Dataset& dataset, int64_t index) {
  Example example;
  example.inputs.resize(static_cast<size_t>(dataset.example_shape().num_elements()));
  example.target.resize(static_cast<size_t>(dataset.num_targets()));
  example.weight = dataset.Read(index, absl::MakeSpan(example.inputs), absl::MakeSpan(example.target));
  return example;
}

}  // namespace cairn::data
