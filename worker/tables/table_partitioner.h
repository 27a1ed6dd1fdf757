// The servers of the rows of an embedding table: each has a part of the buckets (embedding/store/bucket_range.h).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "common/net/cluster/partitioner.h"

namespace cairn::worker {

class TablePartitioner final : public net::Partitioner {
 public:
  // INVALID_ARGUMENT for a kind of table other than "embedding".
  static absl::StatusOr<std::unique_ptr<net::Partitioner>> Create(const v1::Table& table, int servers);
  // -1 for a row outside of the vocabulary.
  int ServerOf(int64_t row) const override;

 private:
  TablePartitioner(int64_t vocabulary_size, int servers)
      : vocabulary_size_(vocabulary_size), servers_(servers) {}

  const int64_t vocabulary_size_;  // 0: every row exists
  const int servers_;
};

}  // namespace cairn::worker
