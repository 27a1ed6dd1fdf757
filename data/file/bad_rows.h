// Skips and counts rows that cannot be used, up to a limit.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn::data {

// The bad rows of one set of files. One thread.
class BadRows {
 public:
  // `limit`: the number of rows that may be skipped. With 0, the first bad row is an error.
  explicit BadRows(int64_t limit) : limit_(limit) {}

  // Returns OK if the row can be skipped. Returns INVALID_ARGUMENT if reading must end, because the limit is
  // exceeded or because `fault` is DATA_LOSS, after which nothing can be read. `fault` names the file and the
  // row.
  absl::Status Skip(const absl::Status& fault);

  // States how many rows of `set` were skipped, and the fault of the first one. Empty if no row was skipped.
  std::string Summary(absl::string_view set) const;

 private:
  const int64_t limit_;
  int64_t count_ = 0;
  absl::Status first_;
};

}  // namespace cairn::data
