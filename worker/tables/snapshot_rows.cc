#include "worker/tables/snapshot_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/tables/table_run.h"

namespace cairn::worker {
namespace {

constexpr int64_t kBatchOfSnapshot = 8192;  // rows

}  // namespace

absl::Status SnapshotRows::Begin(const client::Snapshot& snapshot, const client::TableSizes& sizes) {
  CAIRN_ASSIGN_OR_RETURN(auto tables, TablesOf(snapshot.job));
  tables_ = tables.has_value() ? *std::move(tables) : std::vector<TableRun>();
  step_ = snapshot.progress.version();
  optimizers_.clear();
  states_.assign(sizes.size(), {});
  std::vector<int64_t> rows;  // [table]
  for (size_t t = 0; t < tables_.size(); ++t) {
    CAIRN_ASSIGN_OR_RETURN(auto optimizer, OptimizerOf(tables_[t]));
    optimizers_.push_back(std::move(optimizer));
    int64_t next = 0;
    const int64_t record = embedding::kIdFloats + tables_[t].row_floats();
    for (size_t server = 0; server < sizes.size(); ++server) {
      const int64_t floats = sizes[server][t] - embedding::kStateHeadFloats;
      if (floats < 0 || floats % record != 0) {
        return absl::InternalError(absl::StrCat("ps/", server, ": the state of table '", tables_[t].name,
                                                "' is not one of rows of ", tables_[t].row_floats(),
                                                " floats"));
      }
      states_[server].push_back({.parser = embedding::StateParser(tables_[t].row_floats()), .next = next});
      next += floats / record;
    }
    rows.push_back(next);
  }
  return sink_.Begin(tables_, rows);
}

absl::Status SnapshotRows::Add(int server, int table, absl::Span<const float> piece) {
  const auto t = static_cast<size_t>(table) - 1;
  State& state = states_[static_cast<size_t>(server)][t];
  absl::Status status;
  const bool fits = state.parser.Add(piece, [&](absl::Span<const float> records) {
    const auto batch =
        static_cast<size_t>(kBatchOfSnapshot * (embedding::kIdFloats + tables_[t].row_floats()));
    for (; status.ok() && !records.empty(); records.remove_prefix(std::min(batch, records.size()))) {
      status = PassRows(t, state, records.subspan(0, batch));
    }
  });
  CAIRN_RETURN_IF_ERROR(Annotate(status, absl::StrCat("table '", tables_[t].name, "'")));
  if (fits) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the state of table '", tables_[t].name, "' has another size than its rows"));
}

absl::Status SnapshotRows::PassRows(size_t table, State& state, absl::Span<const float> records) {
  if (!sink_.Wants(table)) return absl::OkStatus();
  const TableRun& run = tables_[table];
  const auto dim = static_cast<size_t>(run.dim);
  ids_.clear();
  rows_.clear();
  for (; !records.empty();
       records.remove_prefix(static_cast<size_t>(embedding::kIdFloats + run.row_floats()))) {
    int64_t& id = ids_.emplace_back();
    std::memcpy(&id, records.data(), sizeof(id));
    rows_.push_back(records.data() + embedding::kIdFloats);
    CAIRN_RETURN_IF_ERROR(CheckId(run, id, state.order));
  }
  values_.resize(ids_.size() * dim);
  const embedding::RowUpdate at = {.learning_rate = state.parser.head().learning_rate, .step = step_};
  optimizers_[table]->Read(rows_, at, absl::MakeSpan(values_));
  for (size_t i = 0; i < values_.size(); ++i) {
    if (std::isfinite(values_[i])) continue;
    return absl::OutOfRangeError(absl::StrCat("the row of id ", ids_[i / dim], " has ", values_[i]));
  }
  const int64_t first = std::exchange(state.next, state.next + static_cast<int64_t>(ids_.size()));
  return sink_.Add(table, first, ids_, values_);
}

absl::Status SnapshotRows::Finish() const {
  for (const std::vector<State>& of_server : states_) {
    for (size_t t = 0; t < of_server.size(); ++t) {
      if (of_server[t].parser.complete()) continue;
      return absl::InternalError(absl::StrCat("the state of table '", tables_[t].name, "' is incomplete"));
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn::worker
