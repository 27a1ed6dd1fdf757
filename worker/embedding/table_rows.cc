#include "worker/embedding/table_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "worker/embedding/table_run.h"

namespace cairn::worker {
namespace {

constexpr int64_t kBatchRows = 8192;

class Collector final : public RowSink {
 public:
  explicit Collector(absl::FunctionRef<absl::Status(int64_t values)> check) : check_(check) {}

  absl::Status Begin(absl::Span<const TableRun> tables, absl::Span<const int64_t> rows) override {
    tables_.assign(tables.begin(), tables.end());
    ids_.clear();
    values_.clear();
    int64_t values = 0;
    for (size_t t = 0; t < tables_.size(); ++t) {
      values += std::max(rows[t], tables_[t].vocabulary_size) * tables_[t].dim;
    }
    CAIRN_RETURN_IF_ERROR(check_(values));
    for (size_t t = 0; t < tables_.size(); ++t) {
      ids_.emplace_back(static_cast<size_t>(rows[t]));
      values_.push_back(FloatVector(rows[t] * tables_[t].dim, tables_[t].name));
    }
    return absl::OkStatus();
  }
  absl::Status Add(size_t table, int64_t first, absl::Span<const int64_t> ids,
                   absl::Span<const float> values) override {
    std::copy(ids.begin(), ids.end(), ids_[table].begin() + first);
    std::copy(values.begin(), values.end(), values_[table].begin() + first * tables_[table].dim);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<TrainedTable>> Take() {
    std::vector<TrainedTable> trained;
    for (size_t t = 0; t < tables_.size(); ++t) {
      CAIRN_ASSIGN_OR_RETURN(
          TrainedTable table,
          TrainedTable::Create(std::move(tables_[t]), std::move(ids_[t]), std::move(values_[t])));
      trained.push_back(std::move(table));
    }
    return trained;
  }

 private:
  const absl::FunctionRef<absl::Status(int64_t values)> check_;
  std::vector<TableRun> tables_;
  std::vector<std::vector<int64_t>> ids_;   // [table]
  std::vector<std::vector<float>> values_;  // [table]
};

}  // namespace

TableRows RowsOf(const TrainedTables& tables) {
  return {.plan = tables.plan,
          .stream = [&tables](RowSink& sink) -> absl::Status {
            std::vector<TableRun> runs;
            std::vector<int64_t> rows;
            for (const TrainedTable& table : tables.tables) {
              runs.push_back(table.description());
              rows.push_back(table.num_rows());
            }
            CAIRN_RETURN_IF_ERROR(sink.Begin(runs, rows));
            std::vector<int64_t> ids;
            for (size_t t = 0; t < runs.size(); ++t) {
              const TrainedTable& table = tables.tables[t];
              for (int64_t first = 0; first < rows[t]; first += kBatchRows) {
                ids.resize(static_cast<size_t>(std::min(kBatchRows, rows[t] - first)));
                for (size_t i = 0; i < ids.size(); ++i) ids[i] = table.id(first + static_cast<int64_t>(i));
                CAIRN_RETURN_IF_ERROR(
                    sink.Add(t, first, ids,
                             table.rows().subspan(static_cast<size_t>(first * table.dim()),
                                                  ids.size() * static_cast<size_t>(table.dim()))));
              }
            }
            return absl::OkStatus();
          },
          .in_memory = &tables};
}

absl::StatusOr<TrainedTables> Collect(const TableRows& rows,
                                      absl::FunctionRef<absl::Status(int64_t values)> check) {
  Collector collector(check);
  CAIRN_RETURN_IF_ERROR(rows.stream(collector));
  TrainedTables trained = {rows.plan, {}};
  CAIRN_ASSIGN_OR_RETURN(trained.tables, collector.Take());
  return trained;
}

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
    for (size_t server = 0; server < sizes.size(); ++server) {
      states_[server].push_back({.parser = embedding::StateParser(tables_[t].row_floats()), .next = next});
      next +=
          (sizes[server][t] - embedding::kStateHeadFloats) / (embedding::kIdFloats + tables_[t].row_floats());
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
    const auto batch = static_cast<size_t>(kBatchRows * (embedding::kIdFloats + tables_[t].row_floats()));
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
