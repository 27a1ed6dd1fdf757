// The tables of a trained model in memory: prediction, evaluation and exports look up their rows here, not on servers.
//
// Constant after construction; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/rows/row_exchange.h"
#include "embedding/initializers/row_initializer.h"
#include "nn/model.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/run_state.h"
#include "worker/embedding/table_plan.h"

namespace cairn::worker {

class TrainedTable {
 public:
  // The rows that training has made: `rows` [id] [dim], with `ids` in the order of a checkpoint (table_state.h). Of
  // `description`, the optimizer and the slots are ignored. INVALID_ARGUMENT if ids and rows do not fit together or
  // are not of the table; OUT_OF_RANGE if a value is NaN or infinite. All name the table.
  static absl::StatusOr<TrainedTable> Create(TableRun description, std::vector<int64_t> ids,
                                             std::vector<float> rows);
  // A table that is saved as a variable: `rows` [id] [dim] are those of all ids from 0 on. OUT_OF_RANGE, naming the
  // row, if a value is NaN or infinite.
  static absl::StatusOr<TrainedTable> OfVariable(std::string name, int64_t dim, std::vector<float> rows);

  const TableRun& description() const { return description_; }
  const std::string& name() const { return description_.name; }
  int64_t dim() const { return description_.dim; }
  // Whether any int64 is an id of the table.
  bool dynamic() const { return description_.vocabulary_size == 0; }
  // Whether it was made by OfVariable(): then it has no ids().
  bool has_all_rows() const { return has_all_rows_; }
  // The stored rows and their ids.
  absl::Span<const int64_t> ids() const { return ids_; }
  absl::Span<const float> rows() const { return rows_; }

  // All rows that it has: of a table that is saved as a variable, those of all ids.
  int64_t num_rows() const { return static_cast<int64_t>(rows_.size()) / dim(); }
  // The id of a row.
  int64_t id(int64_t row) const { return has_all_rows_ ? row : ids_[static_cast<size_t>(row)]; }

  // Fills `row` [dim]: with the first values of the id if it has no row.
  void Read(int64_t id, absl::Span<float> row) const;
  // Fills `rows` [vocabulary_size] [dim]. Not of a dynamic table: CHECK.
  void ReadAll(absl::Span<float> rows) const;

 private:
  TrainedTable(TableRun description, const embedding::RowDistribution& first_values, std::vector<int64_t> ids,
               std::vector<float> rows);
  absl::Status CheckRows() const;
  absl::Status CheckFinite() const;

  TableRun description_;
  embedding::RowInitializer initializer_;
  bool has_all_rows_ = false;  // the rows are those of all ids, and ids_ is empty
  std::vector<int64_t> ids_;
  std::vector<float> rows_;
};

// Passes the ids and the values [id] [dim] of a table's rows in batches, in the order of the checkpoint. Returns the
// first error of `visit`; RowReader's errors; OptimizerOf()'s, naming the checkpoint.
absl::Status VisitRows(
    const Checkpoint& checkpoint, const TableRun& table,
    absl::FunctionRef<absl::Status(absl::Span<const int64_t> ids, absl::Span<const float> values)> visit);

// A table as it is in the checkpoint. VisitRows()'s errors.
absl::StatusOr<TrainedTable> LoadTrainedTable(const Checkpoint& checkpoint, const TableRun& table);

// The tables of a model, and the model that is left.
struct TrainedTables {
  TablePlan plan;
  std::vector<TrainedTable> tables;  // [table of the plan]
};

// Plans the tables of `layers`. Those of `dynamic_layers`, which are among them, take any id. ReplaceEmbeddings()'s
// errors.
absl::StatusOr<TablePlan> PlanLayers(const nn::Model& described, absl::Span<const std::string> layers,
                                     absl::Span<const std::string> dynamic_layers);

// The tables of `plan` in the checkpoint. FAILED_PRECONDITION, naming the table, if it is absent or of another shape;
// also RowReader's errors.
absl::StatusOr<std::vector<TrainedTable>> LoadPlannedTables(const Checkpoint& checkpoint,
                                                            const TablePlan& plan);

// Reads rows of tables in memory, by their numbers in the plan, from 1. Trains none: UNIMPLEMENTED.
class StoredRows final : public client::RowExchange {
 public:
  // The tables must outlive the object, or the next call of Use().
  explicit StoredRows(absl::Span<const TrainedTable> tables) : tables_(tables) {}
  void Use(absl::Span<const TrainedTable> tables) { tables_ = tables; }

  absl::Status ReadRows(absl::Span<const client::RowValues> rows) override;
  absl::Status BeginRead(absl::Span<const client::RowValues> rows) override;
  absl::Status FinishRead() override;
  void DropReads() override {}
  absl::Status PushRows(absl::Span<const client::RowGradients> gradients) override;
  absl::Status WantRows(absl::Span<const client::RowValues> rows) override;

 private:
  absl::Span<const TrainedTable> tables_;
};

}  // namespace cairn::worker
