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

// Elements that are lent from a client's memory, of which `around` is mapped.
class Lent final : public net::LentBytes {
 public:
  Lent(absl::Span<const float> elements, absl::Span<const float> around)
      : bytes_(BytesOf(elements)), around_(BytesOf(around)) {}
  size_t size() const override { return bytes_.size(); }
  absl::Status Read(size_t begin, absl::Span<char> to) const override {
    const absl::Span<const char> from = bytes_.subspan(begin, to.size());
    std::copy(from.begin(), from.end(), to.begin());
    return absl::OkStatus();
  }
  std::optional<Kept> Keep() const override {
    return Kept{.owner = owner_, .bytes = bytes_, .around = around_};
  }
  operator net::Payload() const {  // NOLINT: stands for a payload
    return net::Payload(static_cast<const net::LentBytes&>(*this));
  }

 private:
  static absl::Span<const char> BytesOf(absl::Span<const float> floats) {
    return {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)};
  }
  const absl::Span<const char> bytes_, around_;
  const std::shared_ptr<const int> owner_ = std::make_shared<const int>();
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
