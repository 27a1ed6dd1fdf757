// Checks of accepted arrays and data sets.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "data/array.h"
#include "data/dataset.h"
#include "tests/fuzz/fuzz.h"

namespace cairn::fuzz {

inline void CheckArray(const absl::StatusOr<data::Array>& array) {
  if (!array.ok()) {
    FUZZ_CHECK(!array.status().message().empty());
    return;
  }
  FUZZ_CHECK(static_cast<int64_t>(array->bytes.size()) ==
             array->shape.num_elements() * data::SizeOf(array->type));
  uint64_t sum = 0;  // touches every byte
  for (const uint8_t byte : array->bytes) sum += byte;
  volatile uint64_t used = sum;
  static_cast<void>(used);
}

// Reads every example, all of which were checked at loading.
inline void ReadAll(const data::Dataset& dataset) {
  data::InputRows inputs(dataset.input_specs(), 1);
  std::vector<float> target(static_cast<size_t>(dataset.num_targets()));
  for (int64_t i = 0; i < dataset.size(); ++i) dataset.Read(i, inputs.Row(0), absl::MakeSpan(target));
}

inline void LoadAndRead(const data::DataOptions& options) {
  const auto data = data::LoadTrainingData(options);
  if (!data.ok()) {
    FUZZ_CHECK(!data.status().message().empty());
    return;
  }
  ReadAll(*data->train);
  if (data->validation != nullptr) ReadAll(*data->validation);
}

}  // namespace cairn::fuzz
