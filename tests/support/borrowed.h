// A payload that is borrowed from its sender's memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/net/wire/frame.h"

namespace cairn::net {

// Elements that are borrowed from a client's mapped memory, in one run or in several.
class Borrowed final : public BorrowedBytes {
 public:
  explicit Borrowed(absl::Span<const float> elements) : Borrowed({elements}) {}
  explicit Borrowed(std::initializer_list<absl::Span<const float>> runs) {
    for (const auto& run : runs) {
      runs_.push_back({reinterpret_cast<const char*>(run.data()), run.size() * sizeof(float)});
      bytes_.insert(bytes_.end(), runs_.back().begin(), runs_.back().end());
    }
  }
  size_t size() const override { return bytes_.size(); }
  absl::Status Scatter(size_t begin, absl::Span<const absl::Span<char>> to) const override {
    auto from = bytes_.begin() + static_cast<std::ptrdiff_t>(begin);
    for (const absl::Span<char>& place : to) {
      std::copy_n(from, place.size(), place.begin());
      from += static_cast<std::ptrdiff_t>(place.size());
    }
    return absl::OkStatus();
  }
  std::optional<Kept> Keep() const override { return Kept{.owner = owner_, .runs = runs_}; }
  // The number of users that may still read the elements, including this one.
  int64_t owners() const { return owner_.use_count(); }
  operator Payload() const {  // NOLINT: stands for a payload
    return Payload(static_cast<const BorrowedBytes&>(*this));
  }

 private:
  std::vector<absl::Span<const char>> runs_;
  std::vector<char> bytes_;
  const std::shared_ptr<const int> owner_ = std::make_shared<const int>();
};

}  // namespace cairn::net
