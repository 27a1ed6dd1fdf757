#include "worker/embedding/table_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "worker/checkpoint/run_state.h"

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

}  // namespace cairn::worker
