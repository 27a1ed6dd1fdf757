// Frames of rows (v1::Rows): the ids of some rows of a table, and the rows' elements.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/wire/frame.h"

namespace cairn::net {

// The limit of a frame of rows, in floats: such a frame is sent whole on every transport.
inline constexpr int64_t kMaxRowFrameFloats = int64_t{64} << 10;

// The size of a row in a frame, in floats.
inline constexpr int64_t RowFrameFloats(int64_t row_elements) {
  return static_cast<int64_t>(sizeof(int64_t) / sizeof(float)) + row_elements;
}

// The ids as they are sent.
inline absl::Span<const float> AsFloats(absl::Span<const int64_t> ids) {
  return {reinterpret_cast<const float*>(ids.data()), ids.size() * sizeof(int64_t) / sizeof(float)};
}

// A received frame, in memory of its own.
class ReceivedRows {
 public:
  // `row_elements`: elements of a row; 0 for a frame of ids only. INVALID_ARGUMENT if the frame and its payload
  // do not agree, or exceed the limit; also the errors of BorrowedBytes::Read().
  static absl::StatusOr<ReceivedRows> Of(const v1::Rows& rows, Payload payload, int64_t row_elements);

  absl::Span<const int64_t> ids() const {
    return {reinterpret_cast<const int64_t*>(data_.data()), static_cast<size_t>(count_)};
  }
  // [row][element]
  absl::Span<const float> elements() const { return data_.span().subspan(AsFloats(ids()).size()); }

 private:
  ReceivedRows(int64_t count, AlignedBuffer data) : count_(count), data_(std::move(data)) {}

  int64_t count_;
  AlignedBuffer data_;
};

}  // namespace cairn::net
