#include "kernels/attention.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn::kernels {

absl::Status Validate(const AttentionParams& params) {
  const int64_t least = std::min(
      {params.batch, params.queries, params.keys, params.heads, params.key_heads, params.value_width});
  if (least < 1 || params.width < 0 || params.heads % params.key_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attention of ", params.heads, " heads over q [", params.batch, ",", params.queries, ",",
        params.heads, ",", params.width, "], k [", params.batch, ",", params.keys, ",", params.key_heads, ",",
        params.width, "] and v [", params.batch, ",", params.keys, ",", params.key_heads, ",",
        params.value_width, "]: expected extents of at least 1, and heads in multiples of those of k"));
  }
  if (!(params.dropout >= 0 && params.dropout < 1))
    return absl::InvalidArgumentError(
        absl::StrCat("attention with dropout ", params.dropout, ": expected [0, 1)"));
  return absl::OkStatus();
}

}  // namespace cairn::kernels
