#include "common/net/wire/row_frame.h"

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::net {

absl::StatusOr<ReceivedRows> ReceivedRows::Of(const v1::Rows& rows, Payload payload, int64_t row_elements) {
  const int64_t row_floats = RowFrameFloats(row_elements);
  const auto row_bytes = row_floats * static_cast<int64_t>(sizeof(float));
  if (rows.count() < 1 || rows.count() > kMaxRowFrameFloats / row_floats ||
      PayloadBytes(payload) != rows.count() * row_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a frame of ", rows.count(), " rows of ", row_bytes, " bytes has a payload of ",
        PayloadBytes(payload), ": a frame has 1 to ", kMaxRowFrameFloats / row_floats, " such rows"));
  }
  AlignedBuffer data(rows.count() * row_floats);
  CAIRN_RETURN_IF_ERROR(CopyPayload(payload, data.data()));
  return ReceivedRows(rows.count(), std::move(data));
}

}  // namespace cairn::net
