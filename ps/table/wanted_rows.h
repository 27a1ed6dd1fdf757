// The rows that a client asks for, and the answer: in a read, or with a push whose answer brings the rows of the
// client's next batch.
//
//   session ─ Add: frames of ids ─► WantedRows ─► ReadWanted: the rows of all tables ─► session
//
// The ids and the rows count in the memory of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/net/wire/frame.h"
#include "optim/store/memory_budget.h"
#include "ps/table/table.h"
#include "ps/table/tables.h"

namespace cairn::ps {

// Filled by the one thread of a session; then constant, and for any thread.
class WantedRows {
 public:
  struct OfTable {
    size_t table = 0;
    std::vector<int64_t> ids{};  // in the order of the client
  };

  // For a shard with so many tables, that of the variables included.
  WantedRows(size_t num_tables, std::shared_ptr<optim::MemoryBudget> budget)
      : num_tables_(num_tables), budget_(std::move(budget)) {}
  ~WantedRows() { budget_->Give(bytes_); }
  WantedRows(const WantedRows&) = delete;
  WantedRows& operator=(const WantedRows&) = delete;

  // Adds the ids of a frame. Without effect, INVALID_ARGUMENT for an invalid frame or a table that has no rows,
  // RESOURCE_EXHAUSTED if the memory has no room for the ids.
  absl::Status Add(const v1::Rows& rows, net::Payload payload);

  // The tables that have been named, in the order in which they first were.
  absl::Span<const OfTable> tables() const { return tables_; }
  // The ids of this table; empty if it was not named.
  absl::Span<const int64_t> ids(int64_t table) const;

 private:
  const size_t num_tables_;
  const std::shared_ptr<optim::MemoryBudget> budget_;
  std::vector<OfTable> tables_;
  int64_t bytes_ = 0;
};

// The answer to `wanted`. Immutable.
struct AnsweredRows {
  std::shared_ptr<const WantedRows> wanted{};
  std::vector<TableRows> tables{};  // parallel to wanted->tables(); elements is not null
  int64_t version = 0;              // the oldest of the tables' versions, or of the variables without rows

  bool none() const { return wanted == nullptr; }
};

// Reads all rows, those of each table after the same update. The errors of Table::ReadRows().
absl::StatusOr<AnsweredRows> ReadWanted(const Tables& tables, std::shared_ptr<const WantedRows> wanted);

}  // namespace cairn::ps
