// The errors of an embedding, which all backends share. `what` names the layer, unless the caller adds it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cairn::kernels {

template <typename Index>
absl::Status NotInTable(Index index, int64_t table_rows, absl::string_view what = "") {
  return absl::InvalidArgumentError(absl::StrCat(what, what.empty() ? "" : ": ", "index ", index,
                                                 " in a table of ", table_rows, " rows: expected 0 to ",
                                                 table_rows - 1));
}

}  // namespace cairn::kernels
