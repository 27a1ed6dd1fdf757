#include "api/tables.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/conversions.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "embedding/store/unique_keys.h"
#include "worker/tables/snapshot_rows.h"
#include "worker/tables/table_run.h"

namespace cairn::api {
namespace {

v1::EmbeddingTable::Distribution ToProto(Table::FirstValues first_values) {
  switch (first_values) {
    case Table::FirstValues::kConstant:
      return v1::EmbeddingTable::DISTRIBUTION_CONSTANT;
    case Table::FirstValues::kUniform:
      return v1::EmbeddingTable::DISTRIBUTION_UNIFORM;
    case Table::FirstValues::kNormal:
      return v1::EmbeddingTable::DISTRIBUTION_NORMAL;
    case Table::FirstValues::kTruncatedNormal:
      return v1::EmbeddingTable::DISTRIBUTION_TRUNCATED_NORMAL;
  }
  return v1::EmbeddingTable::DISTRIBUTION_CONSTANT;
}

std::string NameOf(const Table& table) {
  return absl::StrCat("table '", table.name, "'");
}

absl::Status CheckIds(const Table& table, std::span<const int64_t> ids) {
  if (table.rows == 0) return absl::OkStatus();
  const auto bad =
      std::find_if(ids.begin(), ids.end(), [&](int64_t id) { return id < 0 || id >= table.rows; });
  if (bad == ids.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(NameOf(table), ": id ", *bad, ", must be in [0, ", table.rows, ")"));
}

// Checks an entry of a call; `named` has the tables of the entries before it.
absl::Status CheckEntry(const Job& job, int number, std::span<const int64_t> ids, size_t elements,
                        std::set<int>& named) {
  if (number < 0 || number >= static_cast<int>(job.tables.size())) {
    return absl::InvalidArgumentError(absl::StrCat("no table ", number, ", the job has ", job.tables.size()));
  }
  const Table& table = job.tables[static_cast<size_t>(number)];
  if (!named.insert(number).second) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(table), " occurs twice in a call"));
  }
  if (elements != ids.size() * static_cast<size_t>(table.width)) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(table), ": ", elements, " elements for ", ids.size(), " rows of ", table.width));
  }
  return CheckIds(table, ids);
}

// Keeps the rows of one table.
class OneTable final : public worker::RowSink {
 public:
  explicit OneTable(int table) : table_(static_cast<size_t>(table)) {}
  absl::Status Begin(absl::Span<const worker::TableRun> tables, absl::Span<const int64_t> rows) override {
    width_ = tables[table_].dim;
    contents_.ids.resize(static_cast<size_t>(rows[table_]));
    contents_.rows = FloatVector(rows[table_] * width_, tables[table_].name);
    return absl::OkStatus();
  }
  bool Wants(size_t table) const override { return table == table_; }
  absl::Status Add(size_t /*table*/, int64_t first, absl::Span<const int64_t> ids,
                   absl::Span<const float> values) override {
    std::copy(ids.begin(), ids.end(), contents_.ids.begin() + first);
    std::copy(values.begin(), values.end(), contents_.rows.begin() + first * width_);
    return absl::OkStatus();
  }
  TableContents Take() { return std::move(contents_); }

 private:
  const size_t table_;
  int64_t width_ = 0;
  TableContents contents_;
};

}  // namespace

absl::Status AddTables(const Job& job, v1::Job& proto) {
  std::set<std::string> names;
  for (const Table& table : job.tables) {
    if (table.name.empty()) return absl::InvalidArgumentError("Job::tables: a name is empty");
    if (!names.insert(table.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("Job::tables: two are named '", table.name, "'"));
    }
    if (table.width < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(table), ": rows of ", table.width, " elements, must be above 0"));
    }
    if (table.rows < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(table), ": ", table.rows, " rows, must not be negative"));
    }
    v1::Table& described = *proto.add_tables();
    described.set_name(table.name);
    described.set_kind("embedding");
    described.set_row_elements(table.width);
    v1::EmbeddingTable& embedding = *described.mutable_embedding();
    embedding.set_vocabulary_size(table.rows);
    embedding.set_seed(table.seed);
    embedding.set_distribution(ToProto(table.first_values));
    embedding.set_center(table.center);
    embedding.set_spread(table.spread);
    if (table.optimizer.has_value()) *embedding.mutable_optimizer() = ToProto(*table.optimizer);
  }
  return Annotate(worker::TablesOf(proto).status(), "Job::tables");
}

absl::StatusOr<std::vector<client::RowValues>> ToClient(const Job& job, absl::Span<const RowsToRead> rows) {
  std::vector<client::RowValues> values;
  std::set<int> named;
  for (const RowsToRead& entry : rows) {
    CAIRN_RETURN_IF_ERROR(CheckEntry(job, entry.table, entry.ids, entry.rows.size(), named));
    if (entry.ids.empty()) continue;
    values.push_back({.table = entry.table + 1,
                      .keys = {entry.ids.data(), entry.ids.size()},
                      .rows = {entry.rows.data(), entry.rows.size()}});
  }
  return values;
}

absl::StatusOr<std::vector<client::RowGradients>> ToClient(const Job& job,
                                                           absl::Span<const RowGradients> gradients) {
  std::vector<client::RowGradients> pushed;
  std::set<int> named;
  for (const RowGradients& entry : gradients) {
    CAIRN_RETURN_IF_ERROR(CheckEntry(job, entry.table, entry.ids, entry.gradients.size(), named));
    if (entry.ids.empty()) continue;
    pushed.push_back({.table = entry.table + 1,
                      .keys = {entry.ids.data(), entry.ids.size()},
                      .gradients = {entry.gradients.data(), entry.gradients.size()}});
  }
  return pushed;
}

absl::StatusOr<TableContents> ReadContents(const client::TakenSnapshot& taken, int table,
                                           const client::ReadLimit& limit) {
  OneTable contents(table);
  worker::SnapshotRows rows(contents);
  CAIRN_RETURN_IF_ERROR(taken.read(limit, &rows).status());
  CAIRN_RETURN_IF_ERROR(rows.Finish());
  return contents.Take();
}

}  // namespace cairn::api

namespace cairn {

class [[gnu::visibility("hidden")]] UniqueIds::Impl {
 public:
  embedding::UniqueKeys keys;
};

UniqueIds::UniqueIds() : impl_(std::make_unique<Impl>()) {}
UniqueIds::~UniqueIds() = default;

void UniqueIds::Compute(std::span<const int64_t> batch) {
  impl_->keys.Compute({batch.data(), batch.size()});
}

std::span<const int64_t> UniqueIds::ids() const {
  return {impl_->keys.keys().data(), impl_->keys.keys().size()};
}

std::span<const int32_t> UniqueIds::positions() const {
  return {impl_->keys.positions().data(), impl_->keys.positions().size()};
}

}  // namespace cairn
