// Code of all backends that counts the ids of a row (ops.h, IdCountsParams).
#pragma once

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/core/host_device.h"
#include "kernels/ops.h"

namespace cairn::kernels {

// The column of `id`; -1 if it is outside [0, depth), or no whole number.
template <typename Id>
CAIRN_HOST_DEVICE int64_t ColumnOf(Id id, int64_t depth) {
  if constexpr (std::is_same_v<Id, float>) {
    if (!(id >= 0 && id < static_cast<float>(depth))) return -1;
    const auto column = static_cast<int64_t>(id);
    return static_cast<float>(column) == id ? column : -1;
  } else {
    const auto column = static_cast<int64_t>(id);
    return column >= 0 && column < depth ? column : -1;
  }
}

// The places of a row's ids, counted in ids from the beginning of x.
struct IdSpan {
  int64_t begin = 0, end = 0;
};
inline IdSpan IdsOfRow(const IdCountsParams& params, const float* x, int64_t row) {
  if (!params.ragged) return {row * params.ids, (row + 1) * params.ids};
  const auto* const splits = reinterpret_cast<const int64_t*>(x);
  return {params.rows + 1 + splits[row], params.rows + 1 + splits[row + 1]};
}

inline absl::Status Validate(const IdCountsParams& params) {
  const bool valid = params.rows >= 1 && params.depth >= 1 && (params.ragged || params.ids >= 1);
  if (!valid) {
    return absl::InvalidArgumentError(absl::StrCat("cannot count ", params.ids, " ids in each of ",
                                                   params.rows, " vectors of ", params.depth));
  }
  if (params.ragged && (params.weighted || params.id_type != DType::kInt64))
    return absl::UnimplementedError("ragged ids are int64 without weights");
  return absl::OkStatus();
}

}  // namespace cairn::kernels
