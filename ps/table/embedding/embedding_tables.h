// Makes the embedding tables of a job: kind "embedding", described by v1::EmbeddingTable.
//
// Thread-safe.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "common/system/thread_pool.h"
#include "ps/table/table_factory.h"

namespace cairn::ps {

class EmbeddingTables final : public TableFactory {
 public:
  // `thread_pool`: for updates; outlives the tables. Null: one thread.
  explicit EmbeddingTables(ThreadPool* thread_pool) : thread_pool_(thread_pool) {}

  // The bytes of all rows of this server's part of a table with a vocabulary, twice with replication or checkpoints:
  // there is a copy while a backup or a snapshot is made. Rows of other tables are counted as they are made.
  // INVALID_ARGUMENT also for an optimizer that has no form for rows.
  absl::StatusOr<double> BytesOf(const v1::Table& table, const v1::Job& job) const override;
  std::unique_ptr<Table> Make(const v1::Table& table, const v1::Job& job, int server,
                              std::shared_ptr<optim::MemoryBudget> budget) const override;

 private:
  ThreadPool* const thread_pool_;
};

}  // namespace cairn::ps
