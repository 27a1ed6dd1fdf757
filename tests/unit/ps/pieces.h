// What these tests share: slices, payloads and values of a few floats.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/net/frame.h"
#include "common/net/placement.h"
#include "ps/optim/optimizer.h"
#include "ps/variable_store.h"
#include "tests/support/lent.h"

namespace cairn::ps {

// The bytes of some floats, as a payload in one run.
class Bytes {
 public:
  explicit Bytes(std::vector<float> values) : values_(std::move(values)) {
    run_ = {reinterpret_cast<const char*>(values_.data()), values_.size() * sizeof(float)};
  }
  operator net::Payload() const { return {&run_, 1}; }  // NOLINT: stands for a payload

 private:
  const std::vector<float> values_;
  absl::Span<const char> run_;
};

inline v1::Chunk At(int64_t offset) {
  v1::Chunk chunk;
  chunk.set_offset(offset);
  return chunk;
}

// Whole vectors of the given sizes, one after another.
inline std::vector<net::Slice> Vectors(const std::vector<std::pair<std::string, int64_t>>& sizes) {
  std::vector<net::Slice> slices;
  int64_t offset = 0;
  for (const auto& [name, size] : sizes) {
    slices.push_back({name, Shape({size}), 0, size, offset});
    offset += size;
  }
  return slices;
}

inline std::unique_ptr<Optimizer> Sgd(double rate) {
  return MakeOptimizer({.name = "SGD", .hyperparameters = {{"learning_rate", rate}}}).value();
}

inline std::vector<float> ToVector(const Values& values) {
  return {values.data->span().begin(), values.data->span().end()};
}

}  // namespace cairn::ps
