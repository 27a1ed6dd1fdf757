#include "worker/tables/checkpointed_tables.h"

#include <cstddef>
#include <utility>

#include "common/core/status.h"
#include "worker/tables/table_run.h"

namespace cairn::worker {

absl::Status TablesToCheckpoint::Begin(const client::Snapshot& snapshot, const client::TableSizes& sizes) {
  CAIRN_ASSIGN_OR_RETURN(const auto tables, TablesOf(snapshot.job));
  return tables.has_value() ? writer_.BeginTables(*tables, sizes) : absl::OkStatus();
}

absl::Status TablesToCheckpoint::Add(int server, int table, absl::Span<const float> piece) {
  return writer_.AddTable(static_cast<size_t>(server), static_cast<size_t>(table) - 1, piece);
}

absl::StatusOr<std::unique_ptr<client::TableSource>> StoredTables::Open(const Checkpoint& checkpoint,
                                                                        int servers) {
  CAIRN_ASSIGN_OR_RETURN(auto states, TableStates::Open(checkpoint, servers));
  return std::unique_ptr<client::TableSource>(new StoredTables(std::move(states)));
}

StoredTables::StoredTables(std::unique_ptr<TableStates> states) : states_(std::move(states)) {}

absl::StatusOr<int64_t> StoredTables::Read(int server, int table, absl::Span<float> into) {
  return states_->Read(server, static_cast<size_t>(table) - 1, into);
}

}  // namespace cairn::worker
