// One example of a data set, as values for matchers.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "data/dataset.h"

namespace cairn::data {

struct Example {
  std::vector<float> inputs, target;
  float weight = 1;
};

inline Example ReadExample(const Dataset& dataset, int64_t index) {
  Example example;
  example.inputs.resize(static_cast<size_t>(dataset.example_shape().num_elements()));
  example.target.resize(static_cast<size_t>(dataset.num_targets()));
  dataset.Read(index, {MutableTensorView::OfFloats(dataset.example_shape(), absl::MakeSpan(example.inputs))},
               absl::MakeSpan(example.target));
  if (dataset.weighted()) example.weight = dataset.WeightsOf(index)[0];
  return example;
}

// The only input of example `index`, which the data set gives as integers.
inline std::vector<int64_t> ReadIds(const Dataset& dataset, int64_t index) {
  InputRows rows(dataset.input_specs(), 1);
  std::vector<float> target(static_cast<size_t>(dataset.num_targets()));
  dataset.Read(index, rows.Row(0), absl::MakeSpan(target));
  const TensorView input = rows.First(1)[0];
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < input.shape.num_elements(); ++i) ids.push_back(input.Integer(i));
  return ids;
}

// Integers that no float32 and, the second, no double holds, and those that an unsigned type would change.
inline constexpr int64_t kIds[] = {(int64_t{1} << 24) + 1, (int64_t{1} << 53) + 1, -1,
                                   std::numeric_limits<int64_t>::min()};

}  // namespace cairn::data
