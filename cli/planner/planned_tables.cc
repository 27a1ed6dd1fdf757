#include "cli/planner/planned_tables.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/status.h"
#include "common/memory/memory_size.h"
#include "common/monitor/status_page.h"
#include "data/dataset.h"
#include "worker/embedding/table_plan.h"
#include "worker/inputs/inputs.h"
#include "worker/inputs/lookup_count.h"
#include "worker/options/job.h"
#include "worker/options/wire_flags.h"

namespace cairn::cli {
namespace {

// The expected number of different ids among `ids` that are drawn uniformly from `rows`.
double DistinctIfUniform(double ids, double rows) {
  return rows <= 1 ? std::min(ids, rows) : -rows * std::expm1(ids * std::log1p(-1 / rows));
}

absl::StatusOr<v1::Job> JobOf(const worker::TrainOptions& options, const worker::TablePlan& plan,
                              const nn::Model& described, int servers, int workers) {
  v1::Job job;
  job.set_mode(v1::MODE_SYNC);
  for (int server = 0; server < servers; ++server) job.add_servers(absl::StrCat("ps/", server));
  for (int worker = 0; worker < workers; ++worker) job.add_workers(absl::StrCat("worker/", worker));
  CAIRN_ASSIGN_OR_RETURN(*job.mutable_optimizer(), worker::MakeOptimizer(options, described));
  job.set_ps_replication(options.ps_replication);
  CAIRN_RETURN_IF_ERROR(worker::SetWire(options.wire, worker::VariablesOf(plan.model.model), job));
  job.mutable_tables()->Add(plan.tables.begin(), plan.tables.end());
  return job;
}

absl::StatusOr<worker::LookupCounts> Count(const worker::TrainOptions& options, const nn::Model& described,
                                           const worker::TablePlan& plan, int workers) {
  CAIRN_ASSIGN_OR_RETURN(const data::TrainingData data,
                         data::LoadTrainingData(worker::DataOptionsOf(options, described)));
  CAIRN_ASSIGN_OR_RETURN(const data::SamplerOptions sampler,
                         worker::MakeSamplerOptions(options, data.train->size(), workers, 0));
  return worker::CountLookups(*data.train, sampler, plan);
}

}  // namespace

absl::StatusOr<std::optional<PlannedTables>> PlanTables(const worker::TrainOptions& options,
                                                        const nn::Model& described, int servers, int workers,
                                                        const TableAssumptions& assumptions) {
  CAIRN_ASSIGN_OR_RETURN(std::optional<worker::TablePlan> plan, worker::PlanTables(options, described));
  if (!plan.has_value()) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(v1::Job job, JobOf(options, *plan, described, servers, workers));
  job.set_restorable(assumptions.checkpoints);
  CAIRN_ASSIGN_OR_RETURN(std::vector<worker::TableNeeds> needs, worker::TableNeedsOf(job));
  std::vector<PlannedTables::Table> tables;
  for (worker::TableNeeds& of_table : needs) tables.push_back({.needs = std::move(of_table)});
  std::optional<worker::LookupCounts> counts;
  if (!options.data.path.empty()) {
    CAIRN_ASSIGN_OR_RETURN(counts, Count(options, described, *plan, workers));
  }
  for (size_t i = 0; i < plan->model.lookups.size(); ++i) {
    const nn::TableLookup& lookup = plan->model.lookups[i];
    PlannedTables::Table& table = tables[static_cast<size_t>(plan->table_of_lookup[i])];
    table.combiner = lookup.combiner;
    table.ids +=
        static_cast<double>(options.batch_size) *
        (lookup.ids_per_example > 0 ? static_cast<double>(lookup.ids_per_example) : assumptions.bag_ids);
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    PlannedTables::Table& table = tables[t];
    if (table.needs.vocabulary_size > 0) {
      table.rows = table.needs.vocabulary_size;
      table.rows_from = "vocabulary";
    } else if (assumptions.dynamic_rows > 0) {
      table.rows = assumptions.dynamic_rows;
      table.rows_from = "--dynamic_rows";
    } else if (counts.has_value()) {
      table.rows = counts->tables[t].rows;
      table.rows_from =
          absl::StrCat("in ", monitor::WithCommas(static_cast<double>(counts->examples)), " examples");
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("table '", table.needs.name,
                       "' takes any id: give --dynamic_rows N, the rows to expect in each such table, or "
                       "--data_dir to count them"));
    }
    if (counts.has_value()) table.ids = counts->tables[t].ids;
    const auto rows = static_cast<double>(table.rows);
    table.distinct = assumptions.distinct_ids.has_value()
                         ? std::min(rows, table.ids * *assumptions.distinct_ids)
                     : counts.has_value() ? counts->tables[t].distinct
                                          : DistinctIfUniform(table.ids, rows);
  }
  return PlannedTables{
      .tables = std::move(tables),
      .distinct_from =
          assumptions.distinct_ids.has_value() ? "--distinct_ids"
          : counts.has_value()
              ? absl::StrCat("counted in ", monitor::WithCommas(static_cast<double>(counts->examples)),
                             " examples")
              : "for ids that are drawn uniformly",
      .job = std::move(job),
      .trained = std::move(plan->model.model)};
}

std::vector<PlannedTable> PlannedTables::traffic() const {
  std::vector<PlannedTable> traffic;
  for (const Table& table : tables) {
    traffic.push_back({.dim = table.needs.dim,
                       .row_bytes = table.needs.row_bytes() - table.needs.index_bytes,
                       .ids = table.ids,
                       .distinct = table.distinct});
  }
  return traffic;
}

double PlannedTables::server_bytes() const {
  double bytes = 0;
  for (const Table& table : tables) bytes += worker::PartBytes(table.needs, table.rows, job);
  return bytes;
}

absl::Status CheckPlannedMemory(const PlannedTables& tables, const TableAssumptions& assumptions) {
  if (assumptions.memory_limit == 0) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const ServerMemory memory,
                         worker::ServerMemoryOf(tables.job, worker::VariablesOf(tables.trained),
                                                tables.server_bytes(), assumptions.memory_limit));
  return CheckMemory(memory);
}

std::string AsText(const PlannedTables& tables, const TableAssumptions& assumptions) {
  size_t name_width = 5;
  for (const PlannedTables::Table& table : tables.tables) {
    name_width = std::max(name_width, table.needs.name.size());
  }
  std::string text = absl::StrFormat("\n%-*s %15s %5s %-14s %8s %6s %11s %11s  %s\n",
                                     static_cast<int>(name_width), "table", "rows", "width", "optimizer",
                                     "combiner", "B/row", "each server", "ids/batch", "distinct, rows from");
  for (const PlannedTables::Table& table : tables.tables) {
    absl::StrAppendFormat(
        &text, "%-*s %15s %5d %-14s %8s %6.0f %11s %11s  %s, %s\n", static_cast<int>(name_width),
        table.needs.name, monitor::WithCommas(static_cast<double>(table.rows)), table.needs.dim,
        table.needs.optimizer, table.combiner.empty() ? "-" : table.combiner, table.needs.row_bytes(),
        monitor::InBytes(worker::PartBytes(table.needs, table.rows, tables.job)),
        monitor::WithCommas(std::round(table.ids)), monitor::WithCommas(std::round(table.distinct)),
        table.rows_from);
  }
  const bool copies = assumptions.checkpoints || tables.job.ps_replication() > 0;
  absl::StrAppend(&text, "distinct ids: ", tables.distinct_from,
                  "; rows on each server: ", monitor::InBytes(tables.server_bytes()),
                  copies ? ", which includes a copy for checkpoints or backups"
                         : "; twice that with --checkpoints or --ps_replication 1",
                  "\n");
  if (assumptions.memory_limit == 0) return text;
  const auto memory = worker::ServerMemoryOf(tables.job, worker::VariablesOf(tables.trained),
                                             tables.server_bytes(), assumptions.memory_limit);
  if (!memory.ok()) return text;
  absl::StrAppend(&text, "memory of each server: ", InGiB(memory->needs.total()), " of ",
                  InGiB(static_cast<double>(memory->limit)), "\n");
  return text;
}

}  // namespace cairn::cli
