#include "worker/embedding/trained_tables.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/shape.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "embedding/keys/key_hash.h"
#include "embedding/optimizers/row_optimizer.h"
#include "embedding/store/table_state.h"
#include "worker/checkpoint/tables.h"
#include "worker/tables/table_run.h"

namespace cairn::worker {
namespace {

absl::Status NotTrained() {
  return absl::UnimplementedError("the tables of a trained model are only read");
}

}  // namespace

TrainedTable::TrainedTable(TableRun description, const embedding::RowDistribution& first_values,
                           std::vector<int64_t> ids, std::vector<float> rows)
    : description_(std::move(description)),
      initializer_(first_values, description_.seed, description_.name),
      ids_(std::move(ids)),
      rows_(std::move(rows)) {}

absl::StatusOr<TrainedTable> TrainedTable::Create(TableRun description, std::vector<int64_t> ids,
                                                  std::vector<float> rows) {
  CAIRN_ASSIGN_OR_RETURN(const embedding::RowDistribution distribution, DistributionOf(description));
  TrainedTable table(std::move(description), distribution, std::move(ids), std::move(rows));
  CAIRN_RETURN_IF_ERROR(Annotate(table.CheckRows(), absl::StrCat("table '", table.name(), "'")));
  return table;
}

absl::StatusOr<TrainedTable> TrainedTable::OfVariable(std::string name, int64_t dim,
                                                      std::vector<float> rows) {
  TableRun description;
  description.name = std::move(name);
  description.dim = dim;
  description.vocabulary_size = static_cast<int64_t>(rows.size()) / dim;
  TrainedTable table(std::move(description), embedding::RowDistribution(), {}, std::move(rows));
  table.has_all_rows_ = true;
  CAIRN_RETURN_IF_ERROR(Annotate(table.CheckFinite(), absl::StrCat("table '", table.name(), "'")));
  return table;
}

absl::Status TrainedTable::CheckRows() const {
  if (dim() <= 0 || rows_.size() % static_cast<size_t>(dim()) != 0 ||
      rows_.size() / static_cast<size_t>(dim()) != ids_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(rows_.size(), " values are not ", ids_.size(), " rows of ", dim()));
  }
  embedding::RowOrder order;
  for (const int64_t id : ids_) CAIRN_RETURN_IF_ERROR(CheckId(description_, id, order));
  return CheckFinite();
}

absl::Status TrainedTable::CheckFinite() const {
  const auto bad = absl::c_find_if(rows_, [](float value) { return !std::isfinite(value); });
  if (bad == rows_.end()) return absl::OkStatus();
  const int64_t index = (bad - rows_.begin()) / dim();
  const int64_t id = has_all_rows_ ? index : ids_[static_cast<size_t>(index)];
  return absl::OutOfRangeError(absl::StrCat("the row of id ", id, " has ", *bad));
}

void TrainedTable::Read(int64_t id, absl::Span<float> row) const {
  size_t index = static_cast<size_t>(id);
  if (!has_all_rows_) {
    const auto place = [](int64_t key) { return std::pair(embedding::BucketOf(key), key); };
    const auto found = std::lower_bound(ids_.begin(), ids_.end(), id,
                                        [&](int64_t a, int64_t b) { return place(a) < place(b); });
    if (found == ids_.end() || *found != id) return initializer_.Fill(id, row);
    index = static_cast<size_t>(found - ids_.begin());
  }
  std::copy_n(rows_.data() + index * static_cast<size_t>(dim()), dim(), row.data());
}

void TrainedTable::ReadAll(absl::Span<float> rows) const {
  CAIRN_CHECK(!dynamic());
  const auto width = static_cast<size_t>(dim());
  if (has_all_rows_) {
    std::copy(rows_.begin(), rows_.end(), rows.begin());
    return;
  }
  for (int64_t id = 0; id < description_.vocabulary_size; ++id) {
    initializer_.Fill(id, rows.subspan(static_cast<size_t>(id) * width, width));
  }
  for (size_t i = 0; i < ids_.size(); ++i) {
    std::copy_n(rows_.data() + i * width, width, rows.data() + static_cast<size_t>(ids_[i]) * width);
  }
}

absl::Status VisitRows(
    const Checkpoint& checkpoint, const TableRun& table,
    absl::FunctionRef<absl::Status(absl::Span<const int64_t> ids, absl::Span<const float> values)> visit) {
  constexpr int64_t kBatchRows = 8192;
  const auto optimizer = OptimizerOf(table);
  if (!optimizer.ok()) return Annotate(optimizer.status(), checkpoint.directory());
  CAIRN_ASSIGN_OR_RETURN(RowReader reader, RowReader::Open(checkpoint, table));
  const embedding::RowUpdate at = {.learning_rate = static_cast<float>(table.learning_rate),
                                   .step = checkpoint.run().global_step};
  std::vector<int64_t> ids;
  std::vector<float> records, values;
  std::vector<const float*> stored;
  for (int64_t first = 0; first < reader.rows(); first += kBatchRows) {
    const int64_t count = std::min(kBatchRows, reader.rows() - first);
    records.resize(static_cast<size_t>(count * reader.record_floats()));
    CAIRN_RETURN_IF_ERROR(reader.Read(absl::MakeSpan(records)));
    ids.resize(static_cast<size_t>(count));
    values.resize(static_cast<size_t>(count * table.dim));
    stored.clear();
    for (int64_t row = 0; row < count; ++row) {
      const float* const record = records.data() + row * reader.record_floats();
      std::memcpy(&ids[static_cast<size_t>(row)], record, sizeof(int64_t));
      stored.push_back(record + embedding::kIdFloats);
    }
    (*optimizer)->Read(stored, at, absl::MakeSpan(values));
    CAIRN_RETURN_IF_ERROR(visit(ids, values));
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainedTable> LoadTrainedTable(const Checkpoint& checkpoint, const TableRun& table) {
  CAIRN_ASSIGN_OR_RETURN(const RowReader reader, RowReader::Open(checkpoint, table));
  std::vector<int64_t> ids;
  ids.reserve(static_cast<size_t>(reader.rows()));
  std::vector<float> rows = FloatVector(reader.rows() * table.dim, table.name);
  auto to = rows.begin();
  CAIRN_RETURN_IF_ERROR(
      VisitRows(checkpoint, table, [&](absl::Span<const int64_t> of_batch, absl::Span<const float> values) {
        ids.insert(ids.end(), of_batch.begin(), of_batch.end());
        to = std::copy(values.begin(), values.end(), to);
        return absl::OkStatus();
      }));
  auto trained = TrainedTable::Create(table, std::move(ids), std::move(rows));
  if (trained.ok()) return trained;
  const absl::Status status = Annotate(trained.status(), checkpoint.directory());
  return absl::IsInvalidArgument(status) ? absl::DataLossError(status.message()) : status;
}

absl::StatusOr<TablePlan> PlanLayers(const nn::Model& described, absl::Span<const std::string> layers,
                                     absl::Span<const std::string> dynamic_layers) {
  CAIRN_ASSIGN_OR_RETURN(nn::ModelWithoutTables model, nn::ReplaceEmbeddings(described, layers));
  TablePlan plan = {.model = std::move(model)};
  for (nn::TableLookup& lookup : plan.model.lookups) {
    if (absl::c_linear_search(dynamic_layers, lookup.layer)) lookup.rows = 0;
    v1::Table table;
    table.set_name(TableNameOf(lookup.layer));
    table.set_row_elements(lookup.width);
    table.mutable_embedding()->set_vocabulary_size(lookup.rows);
    AddTableOfLookup(std::move(table), plan);
  }
  return plan;
}

absl::StatusOr<std::vector<TrainedTable>> LoadPlannedTables(const Checkpoint& checkpoint,
                                                            const TablePlan& plan) {
  std::vector<TrainedTable> tables;
  const std::vector<TableRun> stored = checkpoint.run().tables.value_or(std::vector<TableRun>());
  for (const v1::Table& table : plan.tables) {
    const auto found =
        absl::c_find_if(stored, [&](const TableRun& other) { return other.name == table.name(); });
    if (found == stored.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat(checkpoint.directory(), ": it has no embedding table '", table.name(), "'"));
    }
    const Shape there({found->vocabulary_size, found->dim});
    const Shape here({table.embedding().vocabulary_size(), table.row_elements()});
    if (there != here) {
      const auto text = [](const Shape& shape) {
        return absl::StrCat(shape[0] == 0 ? "any id" : absl::StrCat(shape[0], " ids"), " with rows of ",
                            shape[1]);
      };
      return absl::FailedPreconditionError(absl::StrCat(checkpoint.directory(), ": table '", table.name(),
                                                        "' has ", text(there), " in it and ", text(here),
                                                        " here"));
    }
    CAIRN_ASSIGN_OR_RETURN(TrainedTable trained, LoadTrainedTable(checkpoint, *found));
    tables.push_back(std::move(trained));
  }
  return tables;
}

absl::Status StoredRows::ReadRows(absl::Span<const client::RowValues> rows) {
  for (const client::RowValues& values : rows) {
    const TrainedTable& table = tables_[static_cast<size_t>(values.table) - 1];
    const auto width = static_cast<size_t>(table.dim());
    for (size_t i = 0; i < values.keys.size(); ++i) {
      table.Read(values.keys[i], values.rows.subspan(i * width, width));
    }
  }
  return absl::OkStatus();
}

absl::Status StoredRows::BeginRead(absl::Span<const client::RowValues>) {
  return NotTrained();
}

absl::Status StoredRows::FinishRead() {
  return NotTrained();
}

absl::Status StoredRows::PushRows(absl::Span<const client::RowGradients>) {
  return NotTrained();
}

absl::Status StoredRows::WantRows(absl::Span<const client::RowValues>) {
  return NotTrained();
}

}  // namespace cairn::worker
