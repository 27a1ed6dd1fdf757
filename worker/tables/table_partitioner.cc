#include "worker/tables/table_partitioner.h"

#include "absl/strings/str_cat.h"
#include "embedding/store/bucket_range.h"

namespace cairn::worker {

absl::StatusOr<std::unique_ptr<net::Partitioner>> TablePartitioner::Create(const v1::Table& table,
                                                                           int servers) {
  if (table.kind() != "embedding") {
    return absl::InvalidArgumentError(absl::StrCat("tables of the kind '", table.kind(), "' are unknown"));
  }
  return std::unique_ptr<net::Partitioner>(
      new TablePartitioner(table.embedding().vocabulary_size(), servers));
}

int TablePartitioner::ServerOf(int64_t row) const {
  if (vocabulary_size_ > 0 && (row < 0 || row >= vocabulary_size_)) return -1;
  return embedding::OwnerOf({}, embedding::BucketOf(row), servers_);
}

}  // namespace cairn::worker
