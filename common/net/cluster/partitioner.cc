#include "common/net/cluster/partitioner.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cairn::net {

absl::StatusOr<RangePartitioner> RangePartitioner::Create(absl::string_view variable, int64_t rows,
                                                          std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  int64_t next = 0;
  for (const Range& range : ranges) {
    if (range.begin != next) {
      return absl::FailedPreconditionError(
          absl::StrCat("variable '", variable, "': row ", std::min(next, range.begin),
                       range.begin > next ? " is on no server" : " is on two servers"));
    }
    next = range.end;
  }
  if (next != rows) {
    return absl::FailedPreconditionError(
        ranges.empty() ? absl::StrCat("variable '", variable, "' is on no server")
                       : absl::StrCat("variable '", variable, "': row ", next, " is on no server"));
  }
  return RangePartitioner(std::move(ranges));
}

int RangePartitioner::ServerOf(int64_t row) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), row,
                                      [](int64_t at, const Range& range) { return at < range.begin; });
  if (after == ranges_.begin() || row >= std::prev(after)->end) return -1;
  return std::prev(after)->server;
}

}  // namespace cairn::net
