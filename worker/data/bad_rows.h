// Rows that cannot be used: left out and counted, up to a limit.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn::data {

// Of one set of files. One thread.
class BadRows {
 public:
  // `limit`: so many may be left out; with 0 the first ends the reading.
  explicit BadRows(int64_t limit) : limit_(limit) {}

  // OK: leave the row out and go on. Otherwise INVALID_ARGUMENT to end with: one row too many, or a `fault`
  // of code DATA_LOSS, behind which nothing can be read. `fault` names the file and the row.
  absl::Status Skip(const absl::Status& fault);

  // How many rows of `set` were left out, and why the first; empty when there were none.
  std::string Summary(absl::string_view set) const;

 private:
  const int64_t limit_;
  int64_t count_ = 0;
  absl::Status first_;
};

}  // namespace cairn::data
