#include "common/net/wire/row_frame.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/wire/codec.h"

namespace cairn::net {
namespace {

constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
constexpr auto kIdBytes = static_cast<int64_t>(sizeof(int64_t));

absl::Status CheckRows(const v1::Rows& rows, Payload payload, const RowForm& form) {
  CAIRN_RETURN_IF_ERROR(CheckEncoding(form.encoding));
  if (rows.count() >= 1 && rows.count() <= form.max_rows() &&
      PayloadBytes(payload) == form.Floats(rows.count()) * kFloatBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("a frame of ", rows.count(), " rows of ", form.row_bytes(),
                                                 " bytes has a payload of ", PayloadBytes(payload),
                                                 ": a frame has 1 to ", form.max_rows(), " such rows"));
}

// Decodes elements of a payload that begin at byte `first`.
absl::Status CopyFrom(v1::Encoding encoding, Payload payload, int64_t first, absl::Span<float> to) {
  v1::Chunk chunk;
  chunk.set_encoding(encoding);
  return CopyElements(chunk, payload, first / (CodecOf(encoding) == nullptr ? kFloatBytes : kFloatBytes / 2),
                      to);
}

}  // namespace

int64_t RowForm::row_bytes() const {
  return (ids ? kIdBytes : 0) + elements * (CodecOf(encoding) == nullptr ? kFloatBytes : kFloatBytes / 2);
}

int64_t RowForm::Floats(int64_t rows) const {
  return (rows * row_bytes() + kFloatBytes - 1) / kFloatBytes;
}

int64_t RowForm::max_rows() const {
  return kMaxRowFrameFloats * kFloatBytes / row_bytes();
}

absl::StatusOr<ReceivedRows> ReceivedRows::Of(const v1::Rows& rows, Payload payload, int64_t row_elements) {
  const RowForm form = {.elements = row_elements, .encoding = rows.encoding()};
  CAIRN_RETURN_IF_ERROR(CheckRows(rows, payload, form));
  AlignedBuffer data(rows.count() * (2 + row_elements));
  if (CodecOf(rows.encoding()) == nullptr) {
    CAIRN_RETURN_IF_ERROR(CopyPayload(payload, data.data()));
    return ReceivedRows(rows.count(), std::move(data));
  }
  const auto ids = static_cast<size_t>(2 * rows.count());
  CAIRN_RETURN_IF_ERROR(CopyFrom(v1::ENCODING_FLOAT32, payload, 0, data.span().first(ids)));
  CAIRN_RETURN_IF_ERROR(
      CopyFrom(rows.encoding(), payload, rows.count() * kIdBytes, data.span().subspan(ids)));
  return ReceivedRows(rows.count(), std::move(data));
}

absl::StatusOr<ReceivedRows> ReceivedRows::OfKnown(const v1::Rows& rows, Payload payload,
                                                   int64_t row_elements, absl::Span<const int64_t> ids) {
  CAIRN_RETURN_IF_ERROR(CheckRowElements(rows, payload, row_elements));
  CAIRN_CHECK(static_cast<int64_t>(ids.size()) == rows.count());
  AlignedBuffer data(rows.count() * (2 + row_elements));
  std::memcpy(data.data(), ids.data(), ids.size() * sizeof(int64_t));
  CAIRN_RETURN_IF_ERROR(CopyRowElements(rows, payload, data.span().subspan(2 * ids.size())));
  return ReceivedRows(rows.count(), std::move(data));
}

absl::Status CheckRowElements(const v1::Rows& rows, Payload payload, int64_t row_elements) {
  return CheckRows(rows, payload, {.ids = false, .elements = row_elements, .encoding = rows.encoding()});
}

absl::Status CopyRowElements(const v1::Rows& rows, Payload payload, absl::Span<float> to) {
  return CopyFrom(rows.encoding(), payload, 0, to);
}

}  // namespace cairn::net
