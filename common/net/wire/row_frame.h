// Frames of rows (v1::Rows): the ids of some rows of a table, the rows' elements, or both.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/wire/frame.h"

namespace cairn::net {

// The limit of a frame of rows, in floats: such a frame is sent whole on every transport.
inline constexpr int64_t kMaxRowFrameFloats = int64_t{64} << 10;
// The limit of a row's elements: a frame has room for at least one row with its id.
inline constexpr int64_t kMaxRowElements = kMaxRowFrameFloats - 2;

// The contents of each row of a frame.
struct RowForm {
  bool ids = true;
  int64_t elements = 0;  // 0: only the id
  v1::Encoding encoding = v1::ENCODING_FLOAT32;

  // The size of one row, in bytes.
  int64_t row_bytes() const;
  // The floats that so many rows occupy in a frame, rounded up.
  int64_t Floats(int64_t rows) const;
  // The most rows of a frame.
  int64_t max_rows() const;
};

// The ids as they are sent.
inline absl::Span<const float> AsFloats(absl::Span<const int64_t> ids) {
  return {reinterpret_cast<const float*>(ids.data()), ids.size() * sizeof(int64_t) / sizeof(float)};
}

// A received frame with its ids, in memory of its own. The elements are decoded.
class ReceivedRows {
 public:
  // A frame of ids and elements. `row_elements`: elements of a row; 0 for a frame of ids only. INVALID_ARGUMENT
  // if the frame and its payload do not agree, exceed the limit, or have an unknown encoding; also the errors of
  // BorrowedBytes::Read().
  static absl::StatusOr<ReceivedRows> Of(const v1::Rows& rows, Payload payload, int64_t row_elements);
  // As Of(), for a frame of elements only, whose rows have the ids `ids` [rows.count()].
  static absl::StatusOr<ReceivedRows> OfKnown(const v1::Rows& rows, Payload payload, int64_t row_elements,
                                              absl::Span<const int64_t> ids);

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

// INVALID_ARGUMENT unless `payload` consists of the elements of rows.count() rows.
absl::Status CheckRowElements(const v1::Rows& rows, Payload payload, int64_t row_elements);
// Decodes the payload of a frame that CheckRowElements() accepts to `to` [row][element]. Fails as
// BorrowedBytes::Read() does.
absl::Status CopyRowElements(const v1::Rows& rows, Payload payload, absl::Span<float> to);

}  // namespace cairn::net
