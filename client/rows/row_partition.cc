#include "client/rows/row_partition.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cairn::client {

absl::StatusOr<RowPartition> RowPartition::Create(absl::Span<const int64_t> keys,
                                                  const net::Partitioner& partitioner, int servers) {
  RowPartition partition;
  partition.keys_.assign(keys.begin(), keys.end());
  std::vector<size_t>& ends = partition.ends_;
  ends.assign(static_cast<size_t>(servers), 0);
  std::vector<int> server_of(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    server_of[i] = partitioner.ServerOf(keys[i]);
    if (server_of[i] < 0 || server_of[i] >= servers) {
      return absl::InvalidArgumentError(absl::StrCat("no server stores the row ", keys[i]));
    }
    ++ends[static_cast<size_t>(server_of[i])];
  }
  if (servers == 1) return partition;
  size_t begin = 0;
  for (size_t& end : ends) {  // first, the beginning of each server's part
    const size_t count = end;
    end = begin;
    begin += count;
  }
  partition.grouped_.resize(keys.size());
  partition.positions_.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const size_t to = ends[static_cast<size_t>(server_of[i])]++;
    partition.grouped_[to] = keys[i];
    partition.positions_[to] = i;
  }
  return partition;
}

}  // namespace cairn::client
