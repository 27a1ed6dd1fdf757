#include "worker/tables/table_run.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "embedding/initializers/row_distribution.h"
#include "embedding/optimizers/row_optimizer.h"
#include "optim/store/optimizer_of.h"

namespace cairn::worker {
namespace {

using Kind = embedding::RowDistribution::Kind;

struct NamedDistribution {
  v1::EmbeddingTable::Distribution distribution;
  Kind kind;
  const char* name;  // in state.json
};
constexpr NamedDistribution kDistributions[] = {
    {v1::EmbeddingTable::DISTRIBUTION_CONSTANT, Kind::kConstant, "constant"},
    {v1::EmbeddingTable::DISTRIBUTION_UNIFORM, Kind::kUniform, "uniform"},
    {v1::EmbeddingTable::DISTRIBUTION_NORMAL, Kind::kNormal, "normal"},
    {v1::EmbeddingTable::DISTRIBUTION_TRUNCATED_NORMAL, Kind::kTruncatedNormal, "truncated_normal"},
};

std::string NameOf(v1::EmbeddingTable::Distribution distribution) {
  for (const NamedDistribution& one : kDistributions) {
    if (one.distribution == distribution) return one.name;
  }
  return absl::StrCat(static_cast<int>(distribution));
}

std::string RowFormOf(const TableRun& table) {
  return absl::StrCat("rows of ", table.dim, " elements of ",
                      table.vocabulary_size > 0 ? absl::StrCat(table.vocabulary_size, " ids") : "any id",
                      " with ", table.optimizer, " (", absl::StrJoin(table.slots, ", "), ": ",
                      absl::StrJoin(table.slot_floats, ", "), ")");
}

}  // namespace

absl::StatusOr<embedding::RowDistribution> DistributionOf(const TableRun& table) {
  for (const NamedDistribution& one : kDistributions) {
    if (one.name == table.distribution) {
      return embedding::RowDistribution{.kind = one.kind, .center = table.center, .spread = table.spread};
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("table '", table.name, "': unknown distribution '", table.distribution, "'"));
}

void SetSlots(const embedding::RowOptimizer& optimizer, TableRun& table) {
  table.slots.clear();
  table.slot_floats.clear();
  for (const embedding::RowSlot& slot : optimizer.slot_list()) {
    table.slots.emplace_back(slot.name);
    table.slot_floats.push_back(slot.floats);
  }
}

absl::StatusOr<std::optional<std::vector<TableRun>>> TablesOf(const v1::Job& job) {
  if (job.tables_size() == 0) return std::nullopt;
  std::vector<TableRun> tables;
  for (const v1::Table& table : job.tables()) {
    const v1::EmbeddingTable& description = table.embedding();
    const v1::OptimizerConfig& config =
        description.has_optimizer() ? description.optimizer() : job.optimizer();
    const auto optimizer =
        embedding::MakeRowOptimizer(optim::OptimizerConfigOf(config), static_cast<int>(table.row_elements()));
    if (!optimizer.ok()) return Annotate(optimizer.status(), absl::StrCat("table '", table.name(), "'"));
    TableRun& run = tables.emplace_back();
    run.name = table.name();
    run.vocabulary_size = description.vocabulary_size();
    run.dim = table.row_elements();
    run.seed = description.seed();
    run.distribution = NameOf(description.distribution());
    run.center = description.center();
    run.spread = description.spread();
    run.optimizer = std::string((*optimizer)->name());
    run.hyperparameters = {config.hyperparameters().begin(), config.hyperparameters().end()};
    SetSlots(**optimizer, run);
  }
  return tables;
}

absl::Status CheckSameTables(const std::optional<std::vector<TableRun>>& ours, const RunState& theirs) {
  const std::vector<TableRun> here = ours.value_or(std::vector<TableRun>());
  const std::vector<TableRun> there = theirs.tables.value_or(std::vector<TableRun>());
  const auto names = [](const std::vector<TableRun>& tables) {
    if (tables.empty()) return std::string("no embedding tables");
    return absl::StrCat("the embedding tables ",
                        absl::StrJoin(tables, ", ", [](std::string* out, const auto& table) {
                          absl::StrAppend(out, "'", table.name, "'");
                        }));
  };
  const auto same_name = [](const TableRun& a, const TableRun& b) { return a.name == b.name; };
  if (!std::equal(here.begin(), here.end(), there.begin(), there.end(), same_name)) {
    return absl::FailedPreconditionError(
        absl::StrCat("it has ", names(there), ", and this job has ", names(here)));
  }
  for (size_t i = 0; i < here.size(); ++i) {
    if (RowFormOf(here[i]) == RowFormOf(there[i])) {
      if (here[i].seed == there[i].seed || here[i].spread == 0) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("table '", here[i].name, "': the rows that it lacks begin with the values of seed ",
                       there[i].seed, ", and this job has seed ", here[i].seed));
    }
    return absl::FailedPreconditionError(absl::StrCat("table '", here[i].name, "': it has ",
                                                      RowFormOf(there[i]), ", and this job has ",
                                                      RowFormOf(here[i])));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const embedding::RowOptimizer>> OptimizerOf(const TableRun& table) {
  optim::OptimizerConfig config;
  config.name = table.optimizer;
  config.hyperparameters = table.hyperparameters;
  config.hyperparameters["learning_rate"] = table.learning_rate;
  CAIRN_ASSIGN_OR_RETURN(auto optimizer, embedding::MakeRowOptimizer(config, static_cast<int>(table.dim)));
  TableRun expected = table;
  SetSlots(*optimizer, expected);
  if (expected != table) {
    return absl::FailedPreconditionError(
        absl::StrCat("table '", table.name, "' has other slots than ", table.optimizer, " here"));
  }
  return optimizer;
}

absl::Status CheckId(const TableRun& table, int64_t id, embedding::RowOrder& order) {
  if (!order.Follows(id)) return absl::InvalidArgumentError(absl::StrCat("id ", id, " is not in its place"));
  if (table.vocabulary_size == 0 || (id >= 0 && id < table.vocabulary_size)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("it has the id ", id, ", outside of its vocabulary of ", table.vocabulary_size));
}

}  // namespace cairn::worker
